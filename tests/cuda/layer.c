/*
 * tests/cuda/layer: see layer.h.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/layer.h"

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

int layer_shapes(void)
{
    return (int)(sizeof shapes / sizeof *shapes);
}

void layer_open(gpu *g, layer *l, int i, int rows)
{
    const lg_qtype *t = shapes[i].t;

    *l = (layer){.hidden = shapes[i].hidden,
                 .ffn = shapes[i].ffn,
                 .n_expert = shapes[i].n_expert,
                 .k = shapes[i].k,
                 .rows = rows};
    kc_label(&g->k, "layer/hidden %d ffn %d rows %d %s, %s", l->hidden, l->ffn, rows,
             lg_qtype_get((uint32_t)t[0])->name, lg_qtype_get((uint32_t)t[3])->name);
    for (int j = 0; j < 2; j++)
        l->norm[j] = wt_vector(g, l->hidden, 1, 0.1);
    for (int j = 0; j < PROJ; j++)
        l->proj[j] = wt_random(g, t[6 + j], LG_USE_LINEAR, l->hidden, j ? 72 : 330, 1, 0);
    l->o = wt_random(g, t[0], LG_USE_LINEAR, ATTN, l->hidden, 1, 0);
    l->router = wt_random(g, LG_F32, LG_USE_ROUTER, l->hidden, l->n_expert, 1, 0);
    l->bias = wt_vector(g, l->n_expert, 0, 0.1);
    for (int j = 0; j < 6; j++)
        l->w[j] = wt_random(g, t[j], j < 3 ? LG_USE_EXPERTS : LG_USE_LINEAR, j % 3 == 2 ? l->ffn : l->hidden,
                            j % 3 == 2 ? l->hidden : l->ffn, j < 3 ? l->n_expert : 1, 0);
    l->x = dev_random(g, rows, l->hidden, LG_ROWS_STEP, 0);
    l->delta = dev_random(g, rows, l->hidden, LG_ROWS_STEP, 0);
    l->other = dev_random(g, rows, l->hidden, LG_ROWS_STEP, 0);
    l->attn = dev_random(g, rows, ATTN, LG_ROWS_STEP, 0);
}

void layer_close(gpu *g, layer *l)
{
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

void choice_open(gpu *g, choice *c, int n)
{
    c->n = (size_t)n;
    c->id = calloc(c->n, sizeof *c->id);
    c->weight = calloc(c->n, sizeof *c->weight);
    LG_ASSERT(c->id && c->weight);
    c->ids = mem_of(g, c->id, c->n * sizeof *c->id);
    c->weights = mem_of(g, c->weight, c->n * sizeof *c->weight);
}

void choice_fetch(gpu *g, choice *c)
{
    (void)g->b->ops->download(g->b, c->ids.p, c->id, c->n * sizeof *c->id, NULL);
    (void)g->b->ops->download(g->b, c->weights.p, c->weight, c->n * sizeof *c->weight, NULL);
}

void choice_close(gpu *g, choice *c)
{
    g->b->ops->release(g->b, &c->ids);
    g->b->ops->release(g->b, &c->weights);
    free(c->id);
    free(c->weight);
}

void choice_same(gpu *g, const choice *a, int a_first, const choice *b, int b_first, int k, const char *what)
{
    size_t n = (size_t)k;

    kc_check(&g->k,
             memcmp(a->id + a_first, b->id + b_first, n * sizeof *a->id) == 0 &&
                 memcmp(a->weight + a_first, b->weight + b_first, n * sizeof *a->weight) == 0,
             "row %d: another choice %s", a_first / k, what);
}

void row_same(gpu *g, const dev *a, int a_row, const dev *b, int b_row, const char *what, const char *where)
{
    const float *p = dev_row(a, a_row), *q = dev_row(b, b_row);
    int i = 0;

    while (i < a->t.cols && memcmp(&p[i], &q[i], sizeof *p) == 0)
        i++;
    kc_check(&g->k, i == a->t.cols, "row %d, %s: column %d is %.9g, %s %.9g", a_row, what, i,
             (double)p[i % a->t.cols], where, (double)q[i % a->t.cols]);
}
