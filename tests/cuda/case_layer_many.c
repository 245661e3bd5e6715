/*
 * tests/cuda: the second half of a layer as the model runs it, with more rows than are exact: residual add
 * and norm, routing, experts, the next norm and its projections. What such a step fuses must give the bits of
 * its ops one by one, and the same again.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu.h"

typedef struct layer {
    int hidden, ffn, n_expert, k, rows;
    wt norm[2], router, bias, w[6], proj[2];
    dev x, delta; // as they are before
} layer;

typedef struct layer_out {
    dev x, delta, h, next, y[2];
    lg_mem ids, weights;
    int32_t *id;
    float *weight;
} layer_out;

// Rows [first, first + n) through the ops. stop: whether somebody looks at x between the norms, and at
// h between routing and experts.
static layer_out run_layer(gpu *g, const layer *l, int first, int n, bool stop)
{
    layer_out o = {.x = dev_new(g, n, l->hidden, LG_ROWS_STEP),
                   .delta = dev_new(g, n, l->hidden, LG_ROWS_STEP),
                   .h = dev_new(g, n, l->hidden, LG_ROWS_STEP),
                   .next = dev_new(g, n, l->hidden, LG_ROWS_STEP)};
    dev seen = dev_new(g, n, l->hidden, LG_ROWS_STEP);
    lg_step s = {.n_rows = n};
    size_t row = (size_t)l->hidden * sizeof(float);

    o.id = calloc((size_t)(n * l->k), sizeof *o.id);
    o.weight = calloc((size_t)(n * l->k), sizeof *o.weight);
    LG_ASSERT(o.id && o.weight);
    o.ids = mem_of(g, o.id, (size_t)(n * l->k) * sizeof *o.id);
    o.weights = mem_of(g, o.weight, (size_t)(n * l->k) * sizeof *o.weight);
    for (int r = 0; r < n; r++) {
        memcpy(dev_row(&o.x, r), dev_row(&l->x, first + r), row);
        memcpy(dev_row(&o.delta, r), dev_row(&l->delta, first + r), row);
    }
    dev_send(g, &o.x);
    dev_send(g, &o.delta);
    for (int i = 0; i < 2; i++)
        o.y[i] = dev_new(g, n, l->proj[i].w.n_out, LG_ROWS_STEP);
    const lg_routes routes = {.ids = o.ids.p, .w = o.weights.p, .k = l->k};
    const lg_ops *op = g->b->ops;
    gpu_begin(g, &s);
    op->add_rmsnorm(g->b, &o.h.t, &o.x.t, &o.delta.t, &l->norm[0].w, 1e-6f);
    op->route(g->b, &(lg_route_args){.out = routes, .h = o.h.t, .router = &l->router.w, .bias = &l->bias.w,
                                     .gating = LG_GATE_SIGMOID, .norm = true, .scale = 2.5f});
    if (stop)
        op->tap(g->b, &seen.t, &o.h.t);
    op->moe(g->b, &(lg_moe_args){.out = o.delta.t, .h = o.h.t, .routes = routes, .gate = &l->w[0].w,
                                 .up = &l->w[1].w, .down = &l->w[2].w, .shared_gate = &l->w[3].w,
                                 .shared_up = &l->w[4].w, .shared_down = &l->w[5].w});
    if (stop)
        op->tap(g->b, &seen.t, &o.x.t);
    op->add_rmsnorm(g->b, &o.next.t, &o.x.t, &o.delta.t, &l->norm[1].w, 1e-6f);
    op->linear(g->b, &o.next.t, (lg_part[]){{o.y[0].t, &l->proj[0].w}, {o.y[1].t, &l->proj[1].w}}, 2);
    gpu_end(g);
    dev_fetch(g, &o.x);
    dev_fetch(g, &o.delta);
    dev_fetch(g, &o.h);
    dev_fetch(g, &o.next);
    for (int i = 0; i < 2; i++)
        dev_fetch(g, &o.y[i]);
    (void)op->download(g->b, o.ids.p, o.id, (size_t)(n * l->k) * sizeof *o.id, NULL);
    (void)op->download(g->b, o.weights.p, o.weight, (size_t)(n * l->k) * sizeof *o.weight, NULL);
    dev_free(g, &seen);
    return o;
}

static void free_out(gpu *g, layer_out *o)
{
    dev *all[] = {&o->x, &o->delta, &o->h, &o->next, &o->y[0], &o->y[1]};

    for (int i = 0; i < 6; i++) {
        dev_check_pad(g, all[i], "layer");
        dev_free(g, all[i]);
    }
    g->b->ops->release(g->b, &o->ids);
    g->b->ops->release(g->b, &o->weights);
    free(o->id);
    free(o->weight);
}

static void same(gpu *g, const dev *a, int row, const dev *b, int b_row, const char *what)
{
    const float *p = dev_row(a, row), *q = dev_row(b, b_row);
    int i = 0;

    while (i < a->t.cols && memcmp(&p[i], &q[i], sizeof *p) == 0)
        i++;
    kc_check(&g->k, i == a->t.cols, "%s: column %d is %.9g, otherwise %.9g", what, i,
             (double)p[i % a->t.cols], (double)q[i % a->t.cols]);
}

// Row r of a step is row b_r of another.
static void same_row(gpu *g, const layer *l, const layer_out *a, int r, const layer_out *b, int b_r)
{
    size_t k = (size_t)l->k;

    same(g, &a->x, r, &b->x, b_r, "x");
    same(g, &a->h, r, &b->h, b_r, "h");
    kc_check(&g->k,
             memcmp(a->id + (size_t)r * k, b->id + (size_t)b_r * k, k * sizeof *b->id) == 0 &&
                 memcmp(a->weight + (size_t)r * k, b->weight + (size_t)b_r * k, k * sizeof *b->weight) == 0,
             "row %d: another choice", r);
    same(g, &a->delta, r, &b->delta, b_r, "delta");
    same(g, &a->next, r, &b->next, b_r, "next h");
    same(g, &a->y[0], r, &b->y[0], b_r, "first projection");
    same(g, &a->y[1], r, &b->y[1], b_r, "second projection");
}

static void layer_once(gpu *g, layer *l, const lg_qtype *t)
{
    for (int i = 0; i < 2; i++) {
        l->norm[i] = wt_vector(g, l->hidden, 1, 0.1);
        l->proj[i] = wt_random(g, t[6 + i], LG_USE_LINEAR, l->hidden, i ? 72 : 330, 1, 0);
    }
    l->router = wt_random(g, LG_F32, LG_USE_ROUTER, l->hidden, l->n_expert, 1, 0);
    l->bias = wt_vector(g, l->n_expert, 0, 0.1);
    for (int i = 0; i < 6; i++)
        l->w[i] = wt_random(g, t[i], i < 3 ? LG_USE_EXPERTS : LG_USE_LINEAR, i % 3 == 2 ? l->ffn : l->hidden,
                            i % 3 == 2 ? l->hidden : l->ffn, i < 3 ? l->n_expert : 1, 0);
    l->x = dev_random(g, l->rows, l->hidden, LG_ROWS_STEP, 0);
    l->delta = dev_random(g, l->rows, l->hidden, LG_ROWS_STEP, 0);
    layer_out all = run_layer(g, l, 0, l->rows, false);
    for (int stop = 0; stop < 2; stop++) { // twice, and op by op
        layer_out again = run_layer(g, l, 0, l->rows, stop);
        for (int r = 0; r < l->rows; r++)
            same_row(g, l, &all, r, &again, r);
        free_out(g, &again);
    }
    free_out(g, &all);
    dev_free(g, &l->x);
    dev_free(g, &l->delta);
    for (int i = 0; i < 6; i++)
        wt_free(g, &l->w[i]);
    for (int i = 0; i < 2; i++) {
        wt_free(g, &l->norm[i]);
        wt_free(g, &l->proj[i]);
    }
    wt_free(g, &l->router);
    wt_free(g, &l->bias);
}

void gpu_case_layer_many(gpu *g)
{
    static const struct {
        int hidden, ffn, n_expert, k;
        lg_qtype t[8];
    } shapes[] = {
        {3072, 1024, 32, 10, {LG_Q4_K, LG_Q4_K, LG_Q4_K, LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0}},
        {2048, 512, 32, 8, {LG_Q4_K, LG_Q4_K, LG_Q6_K, LG_Q4_K, LG_Q4_K, LG_Q6_K, LG_Q4_K, LG_Q6_K}},
        {1024, 512, 16, 8, {LG_Q4_K, LG_Q4_K, LG_Q4_K, LG_Q4_K, LG_Q4_K, LG_Q4_K, LG_Q4_K, LG_Q4_K}},
        {512, 768, 20, 3, {LG_Q5_K, LG_Q5_K, LG_Q5_K, LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q5_K, LG_Q8_0}},
        {1536, 512, 12, 2, {LG_Q6_K, LG_Q6_K, LG_Q6_K, LG_Q6_K, LG_Q6_K, LG_Q6_K, LG_Q6_K, LG_Q6_K}},
        {256, 256, 8, 2, {LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0}},
        {512, 256, 8, 2, {LG_Q4_0, LG_Q4_0, LG_Q8_0, LG_F16, LG_F16, LG_Q8_0, LG_F32, LG_Q8_0}},
    };

    static const int rows[] = {32, 64, 17, 20, 33, 40, 18};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        layer l = {.hidden = shapes[i].hidden,
                   .ffn = shapes[i].ffn,
                   .n_expert = shapes[i].n_expert,
                   .k = shapes[i].k,
                   .rows = rows[i]};
        kc_label(&g->k, "layer/hidden %d ffn %d rows %d %s, %s", l.hidden, l.ffn, l.rows,
                 lg_qtype_get((uint32_t)shapes[i].t[0])->name, lg_qtype_get((uint32_t)shapes[i].t[3])->name);
        layer_once(g, &l, shapes[i].t);
    }
}
