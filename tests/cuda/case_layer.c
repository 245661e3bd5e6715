/*
 * tests/cuda: layers as the model runs them: projections, the output product, residual add and norm, routing
 * and experts or a dense FFN, the next norm and its projections. What a step of one row fuses must give the
 * bits of a step of several rows, and leave the same in every tensor, whatever somebody does in between.
 */
#include <stdio.h>
#include <string.h>

#include "cuda/layer.h"

// What somebody does between a product that ends in delta and the norm that adds it, or behind that norm.
typedef enum look {
    LOOK_NOT,
    LOOK_X,      // looks at x
    LOOK_NORMED, // looks at x behind the norm
    LOOK_DELTA,  // puts other rows in the place of delta
    LOOK_ROWS,   // adds other rows than delta
    LOOK_OTHER,  // the norm of the experts' sum adds it to another x
    LOOK_START,  // delta is there when the step begins: no norm and no product came before
    LOOKS
} look;

enum { OUT_X, OUT_OTHER, OUT_DELTA, OUT_H, OUT_NEXT, OUT_SEEN, OUT_Y, OUTS = OUT_Y + PROJ };

static const char *const out_names[OUTS] = {
    "x", "other x", "delta", "h", "next h", "what was seen", "first projection", "second projection"};

typedef struct layer_out {
    dev d[OUTS];
    choice c;
} layer_out;

static dev rows_of(gpu *g, const dev *all, int first, int n)
{
    dev d = dev_new(g, n, all->t.cols, LG_ROWS_STEP);

    for (int r = 0; r < n; r++)
        memcpy(dev_row(&d, r), dev_row(all, first + r), (size_t)all->t.cols * sizeof(float));
    dev_send(g, &d);
    return d;
}

static void copy_rows(gpu *g, const dev *to, const dev *from)
{
    g->b->ops->copy(g->b, to->t.p, from->t.p, (size_t)from->t.cols * sizeof(float),
                    (size_t)to->t.stride * sizeof(float), (size_t)from->t.stride * sizeof(float),
                    LG_ROWS_STEP);
}

// What comes behind a product that ends in delta: h = norm of x + delta, with somebody in between.
static void add_norm(gpu *g, layer_out *o, const dev *h, const dev *x, const wt *w, look how,
                     const dev *other)
{
    if (how == LOOK_X)
        g->b->ops->tap(g->b, &o->d[OUT_SEEN].t, &x->t);
    if (how == LOOK_DELTA)
        copy_rows(g, &o->d[OUT_DELTA], other);
    const dev *delta = how == LOOK_ROWS ? other : &o->d[OUT_DELTA];
    g->b->ops->add_rmsnorm(g->b, &h->t, &x->t, &delta->t, &w->w, 1e-6f);
    if (how == LOOK_NORMED)
        g->b->ops->tap(g->b, &o->d[OUT_SEEN].t, &x->t);
}

static void project(gpu *g, const layer *l, layer_out *o, const dev *h)
{
    g->b->ops->linear(g->b, &h->t,
                      (lg_part[]){{o->d[OUT_Y].t, &l->proj[0].w}, {o->d[OUT_Y + 1].t, &l->proj[1].w}}, PROJ);
}

// The ops of one layer with experts, then of a dense one.
static void enqueue(gpu *g, const layer *l, layer_out *o, const dev *attn, const dev *other, look how)
{
    const lg_ops *op = g->b->ops;
    const lg_routes routes = {.ids = o->c.ids.p, .w = o->c.weights.p, .k = l->k};
    dev *x = &o->d[OUT_X], *delta = &o->d[OUT_DELTA], *h = &o->d[OUT_H], *next = &o->d[OUT_NEXT];

    if (how != LOOK_START) {
        op->rmsnorm(g->b, &next->t, &x->t, &l->norm[1].w, 1e-6f);
        project(g, l, o, next);
        op->linear(g->b, &attn->t, &(lg_part){delta->t, &l->o.w}, 1);
    }
    add_norm(g, o, h, x, &l->norm[0], how, other);
    op->route(g->b, &(lg_route_args){.out = routes,
                                     .h = h->t,
                                     .router = &l->router.w,
                                     .bias = &l->bias.w,
                                     .gating = LG_GATE_SIGMOID,
                                     .norm = true,
                                     .scale = 2.5f});
    op->moe(g->b, &(lg_moe_args){.out = delta->t,
                                 .h = h->t,
                                 .routes = routes,
                                 .gate = &l->w[0].w,
                                 .up = &l->w[1].w,
                                 .down = &l->w[2].w,
                                 .shared_gate = &l->w[3].w,
                                 .shared_up = &l->w[4].w,
                                 .shared_down = &l->w[5].w});
    add_norm(g, o, next, how == LOOK_OTHER ? &o->d[OUT_OTHER] : x, &l->norm[1], how, other);
    project(g, l, o, next);
    op->linear(g->b, &attn->t, &(lg_part){delta->t, &l->o.w}, 1);
    add_norm(g, o, h, x, &l->norm[0], how, other);
    op->ffn(g->b, &(lg_ffn_args){
                      .out = delta->t, .h = h->t, .gate = &l->w[3].w, .up = &l->w[4].w, .down = &l->w[5].w});
    add_norm(g, o, next, x, &l->norm[1], how, other);
    project(g, l, o, next);
}

// Rows [first, first + n) through the ops.
static layer_out run_layer(gpu *g, const layer *l, int first, int n, look how)
{
    layer_out o = {.d = {[OUT_X] = rows_of(g, &l->x, first, n),
                         [OUT_OTHER] = rows_of(g, &l->other, first, n),
                         [OUT_DELTA] = rows_of(g, &l->delta, first, n)}};
    dev attn = rows_of(g, &l->attn, first, n), other = rows_of(g, &l->other, first, n);
    lg_step s = {.n_rows = n};

    for (int i = OUT_H; i < OUT_Y; i++)
        o.d[i] = dev_new(g, n, l->hidden, LG_ROWS_STEP);
    for (int i = 0; i < PROJ; i++)
        o.d[OUT_Y + i] = dev_new(g, n, l->proj[i].w.n_out, LG_ROWS_STEP);
    choice_open(g, &o.c, n * l->k);
    gpu_begin(g, &s);
    enqueue(g, l, &o, &attn, &other, how);
    gpu_end(g);
    for (int i = 0; i < OUTS; i++)
        dev_fetch(g, &o.d[i]);
    choice_fetch(g, &o.c);
    dev_free(g, &attn);
    dev_free(g, &other);
    return o;
}

static void free_out(gpu *g, layer_out *o)
{
    for (int i = 0; i < OUTS; i++) {
        dev_check_pad(g, &o->d[i], "layer");
        dev_free(g, &o->d[i]);
    }
    choice_close(g, &o->c);
}

static void check_layer(gpu *g, const layer *l, look how)
{
    layer_out all = run_layer(g, l, 0, l->rows, how);
    char alone[32];

    (void)snprintf(alone, sizeof alone, "alone, look %d,", (int)how);
    for (int r = 0; r < l->rows; r++) {
        layer_out one = run_layer(g, l, r, 1, how);
        for (int i = 0; i < OUTS; i++)
            row_same(g, &all.d[i], r, &one.d[i], 0, out_names[i], alone);
        choice_same(g, &all.c, r * l->k, &one.c, 0, l->k, alone);
        free_out(g, &one);
    }
    free_out(g, &all);
}

void gpu_case_layer(gpu *g)
{
    static const int rows[] = {16, 7, 4, 3, 2, 9, 5};

    LG_ASSERT(sizeof rows / sizeof *rows == (size_t)layer_shapes());
    for (int i = 0; i < layer_shapes(); i++) {
        layer l;
        layer_open(g, &l, i, rows[i]);
        for (int how = 0; how < LOOKS; how++)
            check_layer(g, &l, (look)how);
        layer_close(g, &l);
    }
}
