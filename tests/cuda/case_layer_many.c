/*
 * tests/cuda: the second half of a layer as the model runs it, with more rows than are exact: residual add
 * and norm, routing, experts, the next norm and its projections. What such a step fuses must give the bits of
 * its ops one by one, and the same again.
 */
#include <string.h>

#include "cuda/layer.h"

typedef struct layer_out {
    dev x, delta, h, next, y[2];
    choice c;
} layer_out;

// All rows through the ops. stop: whether somebody looks at x between the norms, and at h between routing and
// experts.
static layer_out run_layer(gpu *g, const layer *l, bool stop)
{
    int n = l->rows;
    layer_out o = {.x = dev_new(g, n, l->hidden, LG_ROWS_STEP),
                   .delta = dev_new(g, n, l->hidden, LG_ROWS_STEP),
                   .h = dev_new(g, n, l->hidden, LG_ROWS_STEP),
                   .next = dev_new(g, n, l->hidden, LG_ROWS_STEP)};
    dev seen = dev_new(g, n, l->hidden, LG_ROWS_STEP);
    lg_step s = {.n_rows = n};
    size_t row = (size_t)l->hidden * sizeof(float);

    choice_open(g, &o.c, n * l->k);
    for (int r = 0; r < n; r++) {
        memcpy(dev_row(&o.x, r), dev_row(&l->x, r), row);
        memcpy(dev_row(&o.delta, r), dev_row(&l->delta, r), row);
    }
    dev_send(g, &o.x);
    dev_send(g, &o.delta);
    for (int i = 0; i < 2; i++)
        o.y[i] = dev_new(g, n, l->proj[i].w.n_out, LG_ROWS_STEP);
    const lg_routes routes = {.ids = o.c.ids.p, .w = o.c.weights.p, .k = l->k};
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
    choice_fetch(g, &o.c);
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
    choice_close(g, &o->c);
}

static void check_layer(gpu *g, const layer *l)
{
    static const char *const names[] = {"x", "delta", "h", "next h", "first projection", "second projection"};
    layer_out all = run_layer(g, l, false);

    for (int stop = 0; stop < 2; stop++) { // twice, and op by op
        layer_out again = run_layer(g, l, stop);
        const dev *a[] = {&all.x, &all.delta, &all.h, &all.next, &all.y[0], &all.y[1]},
                  *b[] = {&again.x, &again.delta, &again.h, &again.next, &again.y[0], &again.y[1]};
        const char *where = stop ? "op by op" : "again";
        for (int r = 0; r < l->rows; r++) {
            for (int i = 0; i < 6; i++)
                row_same(g, a[i], r, b[i], r, names[i], where);
            choice_same(g, &all.c, r * l->k, &again.c, r * l->k, l->k, where);
        }
        free_out(g, &again);
    }
    free_out(g, &all);
}

void gpu_case_layer_many(gpu *g)
{
    static const int rows[] = {32, 64, 17, 20, 33, 40, 18};

    LG_ASSERT(sizeof rows / sizeof *rows == (size_t)layer_shapes());
    for (int i = 0; i < layer_shapes(); i++) {
        layer l;
        layer_open(g, &l, i, rows[i]);
        check_layer(g, &l);
        layer_close(g, &l);
    }
}
