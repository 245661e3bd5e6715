/*
 * model/dflash: the drafter's forward passes (dflash.md 4 and 5), on the ops of the target. Engine thread.
 *
 * What surprises: the rows of a block are written into the context's KV class, at the positions behind it.
 * They are no context: the next injection overwrites them before anything could see them.
 */
#include "model/dflash.h"

static lg_tensor shaped(int cols)
{
    return (lg_tensor){.cols = cols, .stride = cols, .rows = LG_ROWS_STEP};
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

void lg_dflash_limits(const lg_dflash_params *hp, lg_limits *lim)
{
    lim->max_head = larger(lim->max_head, hp->n_head);
    lim->max_q_cols = larger(lim->max_q_cols, hp->n_head * hp->head_dim);
    // the widest input of a product: all taps side by side
    lim->max_ffn = larger(lim->max_ffn, larger(hp->ffn, hp->n_tap * hp->hidden));
}

lg_kv_class lg_dflash_kv_shape(const lg_dflash_params *hp, lg_qtype type)
{
    lg_kv_class c = {.id = LG_KV_DRAFT,
                     .type = type,
                     .n_layer = hp->n_layer,
                     .n_kv_head = hp->n_kv_head,
                     .head_dim = hp->head_dim,
                     .window = hp->window};
    bool whole = lg_row_bytes(type, (uint64_t)hp->head_dim, &c.row_bytes);

    LG_ASSERT(whole); // f16 or f32
    c.tile_bytes = c.row_bytes * LG_KV_BLOCK;
    c.layer_bytes = c.tile_bytes * 2 * (size_t)c.n_kv_head;
    c.block_bytes = c.layer_bytes * (size_t)c.n_layer;
    return c;
}

// Shapes and sizes of the work tensors, in floats.
static void describe(const lg_dflash_params *hp, int max_rows, lg_dflash_work *w, lg_tensor *at[5],
                     size_t floats[5])
{
    int q = hp->n_head * hp->head_dim, kv = hp->n_kv_head * hp->head_dim;
    int rows[5] = {max_rows, max_rows, LG_DRAFT_ROWS_MAX, LG_DRAFT_ROWS_MAX, LG_DRAFT_ROWS_MAX};

    w->k = w->v = shaped(kv);
    w->q = w->attn = shaped(q);
    w->gate = shaped(hp->n_head);
    w->max_rows = max_rows;
    at[0] = &w->k, at[1] = &w->v, at[2] = &w->q, at[3] = &w->attn, at[4] = &w->gate;
    for (int i = 0; i < 5; i++)
        floats[i] = (size_t)larger(rows[i], LG_DRAFT_ROWS_MAX) * (size_t)at[i]->cols;
}

size_t lg_dflash_work_bytes(const lg_dflash_params *hp, int max_rows)
{
    lg_dflash_work w;
    lg_tensor *at[5];
    size_t floats[5], n = 0;

    describe(hp, max_rows, &w, at, floats);
    for (int i = 0; i < 5; i++)
        n += floats[i] * sizeof(float);
    return n;
}

lg_status lg_dflash_work_create(lg_backend *b, const lg_dflash_params *hp, int max_rows, lg_dflash_work *out,
                                lg_err *err)
{
    lg_dflash_work w = {0};
    lg_tensor *at[5];
    size_t floats[5];

    describe(hp, max_rows, &w, at, floats);
    for (int i = 0; i < 5; i++) {
        lg_status st = b->ops->alloc(b, floats[i] * sizeof(float), &w.mem[i], err);
        if (st != LG_OK) {
            lg_dflash_work_release(b, &w);
            return st;
        }
        w.n_mem++;
        at[i]->p = w.mem[i].p;
    }
    *out = w;
    return LG_OK;
}

void lg_dflash_work_release(lg_backend *b, lg_dflash_work *w)
{
    for (int i = 0; i < w->n_mem; i++)
        b->ops->release(b, &w->mem[i]);
    *w = (lg_dflash_work){0};
}

// K and V of one layer for the rows of the step: no queries, nothing attended.
static void inject_layer(lg_backend *b, const lg_dflash *d, const lg_kv_class *kv, lg_work *t,
                         lg_dflash_work *w, int i)
{
    const lg_ops *op = b->ops;
    const lg_layer *l = &d->layer[i];

    op->rmsnorm(b, &t->delta, &t->x, &l->attn_norm, d->hp.eps);
    op->linear(b, &t->delta, (lg_part[]){{w->k, &l->k}, {w->v, &l->v}}, 2);
    op->qkv_post(b, &(lg_qkv_args){.k = w->k,
                                   .v = w->v,
                                   .k_norm = &l->k_norm,
                                   .eps = d->hp.eps,
                                   .rope = &d->hp.rope,
                                   .kv = kv,
                                   .kv_layer = i,
                                   .n_head = d->hp.n_head});
}

lg_status lg_dflash_inject(lg_backend *b, const lg_dflash *d, const lg_kv_class *kv, lg_work *t,
                           lg_dflash_work *w, const lg_step *s, lg_err *err)
{
    const lg_ops *op = b->ops;
    lg_tensor taps = t->taps;
    lg_begin how;

    taps.p += (size_t)s->n_cand * (size_t)taps.stride;
    LG_TRY(op->begin(b, lg_step_key(s), s, &how, err));
    if (how == LG_RECORD) {
        // a norm for each tap: the residual of the last layers is a thousand times that of the first
        for (int i = 0; i < d->hp.n_tap; i++) {
            lg_tensor tap = taps;
            tap.p += (size_t)i * (size_t)d->hp.hidden;
            tap.cols = d->hp.hidden;
            op->rmsnorm(b, &tap, &tap, &d->aux_norm[i], d->hp.eps);
        }
        op->linear(b, &taps, &(lg_part){t->delta, &d->fc}, 1);
        op->rmsnorm(b, &t->x, &t->delta, &d->fused_norm, d->hp.eps);
        for (int i = 0; i < d->hp.n_layer; i++)
            inject_layer(b, d, &kv[LG_KV_DRAFT], t, w, i);
    }
    return op->end(b, err);
}

static void draft_layer(lg_backend *b, const lg_dflash *d, const lg_kv_class *kv, lg_work *t,
                        lg_dflash_work *w, int i)
{
    const lg_ops *op = b->ops;
    const lg_layer *l = &d->layer[i];
    const lg_weight *next = i + 1 < d->hp.n_layer ? &d->layer[i + 1].attn_norm : &d->output_norm;

    op->linear(b, &t->h, (lg_part[]){{w->q, &l->q}, {w->k, &l->k}, {w->v, &l->v}, {w->gate, &l->gate}}, 4);
    op->qkv_post(b, &(lg_qkv_args){.q = w->q,
                                   .k = w->k,
                                   .v = w->v,
                                   .q_norm = &l->q_norm,
                                   .k_norm = &l->k_norm,
                                   .eps = d->hp.eps,
                                   .rope = &d->hp.rope,
                                   .kv = kv,
                                   .kv_layer = i,
                                   .n_head = d->hp.n_head});
    op->attention(b, &(lg_attn_args){.out = w->attn,
                                     .q = w->q,
                                     .gate = w->gate,
                                     .kv = kv,
                                     .kv_layer = i,
                                     .n_head = d->hp.n_head});
    op->linear(b, &w->attn, &(lg_part){t->delta, &l->o}, 1);
    op->add_rmsnorm(b, &t->h, &t->x, &t->delta, &l->ffn_norm, d->hp.eps);
    op->ffn(b, &(lg_ffn_args){.out = t->delta, .h = t->h, .gate = &l->ffn_gate, .up = &l->ffn_up,
                              .down = &l->ffn_down});
    op->add_rmsnorm(b, &t->h, &t->x, &t->delta, next, d->hp.eps);
}

lg_status lg_dflash_draft(lg_backend *b, const lg_dflash *d, const lg_laguna *m, const lg_kv_class *kv,
                          lg_work *t, lg_dflash_work *w, const lg_step *s, lg_err *err)
{
    const lg_ops *op = b->ops;
    lg_begin how;

    LG_ASSERT(s->n_rows <= LG_DRAFT_ROWS_MAX);
    LG_TRY(op->begin(b, lg_step_key(s), s, &how, err));
    if (how == LG_RECORD) {
        op->embed(b, &t->x, &m->embed);
        op->rmsnorm(b, &t->h, &t->x, &d->layer[0].attn_norm, d->hp.eps);
        for (int i = 0; i < d->hp.n_layer; i++)
            draft_layer(b, d, &kv[LG_KV_DRAFT], t, w, i);
        op->gather_rows(b, &t->last, &t->h);
        op->linear(b, &t->last, &(lg_part){t->logits, &m->output}, 1);
        op->topk(b, &t->logits, &t->cand);
    }
    return op->end(b, err);
}
