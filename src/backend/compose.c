/*
 * backend/compose: optional ops spelled with required ones, and the step key.
 *
 * A backend that leaves `ffn` or `tap` NULL gets these. `ffn` needs two scratch tensors that only a backend
 * can own, so it runs as a mixture of zero routed experts: out = shared(h).
 */
#include "backend/backend.h"

static void compose_ffn(lg_backend *b, const lg_ffn_args *a)
{
    b->ops->moe(b, &(lg_moe_args){.out = a->out,
                                  .h = a->h,
                                  .shared_gate = a->gate,
                                  .shared_up = a->up,
                                  .shared_down = a->down});
}

static void compose_tap(lg_backend *b, const lg_tensor *dst, const lg_tensor *x)
{
    b->ops->copy(b, dst->p, x->p, (size_t)x->cols * sizeof(float), (size_t)dst->stride * sizeof(float),
                 (size_t)x->stride * sizeof(float), x->rows);
}

void lg_backend_compose(lg_ops *ops)
{
    if (!ops->ffn)
        ops->ffn = compose_ffn;
    if (!ops->tap)
        ops->tap = compose_tap;
}

static uint16_t bucket(int n)
{
    int b = 1;

    while (b < n)
        b *= 2;
    return (uint16_t)b;
}

lg_key lg_step_key(const lg_step *s)
{
    int64_t ctx = s->pos + s->n_rows;
    uint16_t log2 = 0;

    while ((INT64_C(1) << log2) < ctx)
        log2++;
    return (lg_key){.graph = (uint16_t)s->graph,
                    .flags = (uint16_t)s->flags,
                    .rows_bucket = bucket(s->n_rows),
                    .ctx_bucket = log2,
                    .out_bucket = bucket(s->n_out),
                    .n_cand = (uint16_t)(s->graph == LG_GRAPH_INJECT ? s->n_cand : s->n_cand > 0)};
}
