/*
 * tests/cuda: layers as the model runs them: projections, the output product, residual add and norm, routing
 * and experts or a dense FFN, the next norm and its projections. What a step of one row fuses must give the
 * bits of a step of several rows, and leave the same in every tensor, whatever somebody does in between.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu.h"

enum { ATTN = 512, PROJ = 2 }; // columns of the attention's result; projections

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

typedef struct layer {
    int hidden, ffn, n_expert, k, rows;
    wt norm[2], router, bias, w[6], proj[PROJ], o;
    dev x, delta, other, attn; // as they are before
} layer;

enum { OUT_X, OUT_OTHER, OUT_DELTA, OUT_H, OUT_NEXT, OUT_SEEN, OUT_Y, OUTS = OUT_Y + PROJ };

static const char *const out_names[OUTS] = {
    "x", "other x", "delta", "h", "next h", "what was seen", "first projection", "second projection"};

typedef struct layer_out {
    dev d[OUTS];
    lg_mem ids, weights;
    int32_t *id;
    float *weight;
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
    const lg_routes routes = {.ids = o->ids.p, .w = o->weights.p, .k = l->k};
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
    o.id = calloc((size_t)(n * l->k), sizeof *o.id);
    o.weight = calloc((size_t)(n * l->k), sizeof *o.weight);
    LG_ASSERT(o.id && o.weight);
    o.ids = mem_of(g, o.id, (size_t)(n * l->k) * sizeof *o.id);
    o.weights = mem_of(g, o.weight, (size_t)(n * l->k) * sizeof *o.weight);
    gpu_begin(g, &s);
    enqueue(g, l, &o, &attn, &other, how);
    gpu_end(g);
    for (int i = 0; i < OUTS; i++)
        dev_fetch(g, &o.d[i]);
    (void)g->b->ops->download(g->b, o.ids.p, o.id, (size_t)(n * l->k) * sizeof *o.id, NULL);
    (void)g->b->ops->download(g->b, o.weights.p, o.weight, (size_t)(n * l->k) * sizeof *o.weight, NULL);
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
    g->b->ops->release(g->b, &o->ids);
    g->b->ops->release(g->b, &o->weights);
    free(o->id);
    free(o->weight);
}

// NaNs too: what nobody wrote.
static void same(gpu *g, const dev *a, int row, const dev *b, const char *what, look how)
{
    const float *p = dev_row(a, row), *q = dev_row(b, 0);
    int i = 0;

    while (i < a->t.cols && memcmp(&p[i], &q[i], sizeof *p) == 0)
        i++;
    kc_check(&g->k, i == a->t.cols, "%s, look %d: column %d is %.9g, alone %.9g", what, (int)how, i,
             (double)p[i % a->t.cols], (double)q[i % a->t.cols]);
}

static void check_layer(gpu *g, const layer *l, look how)
{
    layer_out all = run_layer(g, l, 0, l->rows, how);

    for (int r = 0; r < l->rows; r++) {
        layer_out one = run_layer(g, l, r, 1, how);
        for (int i = 0; i < OUTS; i++)
            same(g, &all.d[i], r, &one.d[i], out_names[i], how);
        kc_check(&g->k,
                 memcmp(all.id + r * l->k, one.id, (size_t)l->k * sizeof *one.id) == 0 &&
                     memcmp(all.weight + r * l->k, one.weight, (size_t)l->k * sizeof *one.weight) == 0,
                 "row %d: another choice alone", r);
        free_out(g, &one);
    }
    free_out(g, &all);
}

static void layer_once(gpu *g, layer *l, const lg_qtype *t)
{
    for (int i = 0; i < 2; i++)
        l->norm[i] = wt_vector(g, l->hidden, 1, 0.1);
    for (int i = 0; i < PROJ; i++)
        l->proj[i] = wt_random(g, t[6 + i], LG_USE_LINEAR, l->hidden, i ? 72 : 330, 1, 0);
    l->o = wt_random(g, t[0], LG_USE_LINEAR, ATTN, l->hidden, 1, 0);
    l->router = wt_random(g, LG_F32, LG_USE_ROUTER, l->hidden, l->n_expert, 1, 0);
    l->bias = wt_vector(g, l->n_expert, 0, 0.1);
    for (int i = 0; i < 6; i++)
        l->w[i] = wt_random(g, t[i], i < 3 ? LG_USE_EXPERTS : LG_USE_LINEAR, i % 3 == 2 ? l->ffn : l->hidden,
                            i % 3 == 2 ? l->hidden : l->ffn, i < 3 ? l->n_expert : 1, 0);
    l->x = dev_random(g, l->rows, l->hidden, LG_ROWS_STEP, 0);
    l->delta = dev_random(g, l->rows, l->hidden, LG_ROWS_STEP, 0);
    l->other = dev_random(g, l->rows, l->hidden, LG_ROWS_STEP, 0);
    l->attn = dev_random(g, l->rows, ATTN, LG_ROWS_STEP, 0);
    for (int how = 0; how < LOOKS; how++)
        check_layer(g, l, (look)how);
    dev_free(g, &l->x);
    dev_free(g, &l->delta);
    dev_free(g, &l->other);
    dev_free(g, &l->attn);
    for (int i = 0; i < 6; i++)
        wt_free(g, &l->w[i]);
    for (int i = 0; i < 2; i++)
        wt_free(g, &l->norm[i]);
    for (int i = 0; i < PROJ; i++)
        wt_free(g, &l->proj[i]);
    wt_free(g, &l->o);
    wt_free(g, &l->router);
    wt_free(g, &l->bias);
}

void gpu_case_layer(gpu *g)
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

    static const int rows[] = {16, 7, 4, 3, 2, 9, 5};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        layer l = {.hidden = shapes[i].hidden,
                   .ffn = shapes[i].ffn,
                   .n_expert = shapes[i].n_expert,
                   .k = shapes[i].k,
                   .rows = rows[i]};
        kc_label(&g->k, "layer/hidden %d ffn %d %s, %s", l.hidden, l.ffn,
                 lg_qtype_get((uint32_t)shapes[i].t[0])->name, lg_qtype_get((uint32_t)shapes[i].t[3])->name);
        layer_once(g, &l, shapes[i].t);
    }
}
