/*
 * model/laguna: the forward pass. Read it beside model.md 5; the names are the paper's.
 *
 * Everything here enqueues work on the backend; the engine's thread is the only caller. What surprises: a
 * residual add and the norm that follows it are one op, so each half of a layer leaves its result in `delta`,
 * and the next half begins by adding it.
 */
#include "model/laguna.h"

#include <string.h>

// The first `cols` columns of a work tensor that was sized for the widest layer.
static lg_tensor narrow(const lg_tensor *t, int cols)
{
    lg_tensor v = *t;

    v.cols = v.stride = cols;
    return v;
}

// delta = Wo (softplus(Wg h) * attention(rope(norm(Wq h)), rope(norm(Wk h)), Wv h))
static void attention_block(lg_backend *b, const lg_laguna *m, const lg_kv_class *kv, lg_work *t, int i)
{
    const lg_ops *op = b->ops;
    const lg_hparams *hp = &m->hp;
    const lg_layer *l = &m->layer[i];
    const lg_layer_params *lp = &hp->layer[i];
    const lg_kv_class *cls = &kv[lp->window ? LG_KV_WINDOW : LG_KV_FULL];
    lg_tensor q = narrow(&t->q, lp->n_head * hp->head_dim);
    lg_tensor k = narrow(&t->k, hp->n_kv_head * hp->head_dim);
    lg_tensor v = narrow(&t->v, hp->n_kv_head * hp->head_dim);
    lg_tensor gate = narrow(&t->gate, l->gate.n_out);
    lg_tensor attn = narrow(&t->attn, lp->n_head * hp->head_dim);

    op->linear(b, &t->h, (lg_part[]){{q, &l->q}, {k, &l->k}, {v, &l->v}, {gate, &l->gate}}, 4);
    op->qkv_post(b, &(lg_qkv_args){.q = q,
                                   .k = k,
                                   .v = v,
                                   .q_norm = &l->q_norm,
                                   .k_norm = &l->k_norm,
                                   .eps = hp->eps,
                                   .rope = lp->window ? &hp->rope_window : &hp->rope_full,
                                   .kv = cls,
                                   .kv_layer = lp->kv_layer,
                                   .n_head = lp->n_head});
    op->attention(b, &(lg_attn_args){.out = attn,
                                     .q = q,
                                     .gate = gate,
                                     .kv = cls,
                                     .kv_layer = lp->kv_layer,
                                     .n_head = lp->n_head});
    op->linear(b, &attn, &(lg_part){t->delta, &l->o}, 1);
}

// delta = dense FFN, or shared expert + routed experts
static void ffn_block(lg_backend *b, const lg_laguna *m, lg_work *t, int i)
{
    const lg_ops *op = b->ops;
    const lg_hparams *hp = &m->hp;
    const lg_layer *l = &m->layer[i];

    if (hp->layer[i].dense) {
        op->ffn(b, &(lg_ffn_args){.out = t->delta, .h = t->h, .gate = &l->ffn_gate, .up = &l->ffn_up,
                                  .down = &l->ffn_down});
        return;
    }
    bool shared = hp->ffn_shared > 0;
    op->route(b, &(lg_route_args){.out = t->routes,
                                  .h = t->h,
                                  .router = &l->router,
                                  .bias = &l->router_bias,
                                  .gating = hp->gating,
                                  .norm = hp->route_norm,
                                  .scale = hp->route_scale});
    op->moe(b, &(lg_moe_args){.out = t->delta,
                              .h = t->h,
                              .routes = t->routes,
                              .gate = &l->exp_gate,
                              .up = &l->exp_up,
                              .down = &l->exp_down,
                              .shared_gate = shared ? &l->shared_gate : NULL,
                              .shared_up = shared ? &l->shared_up : NULL,
                              .shared_down = shared ? &l->shared_down : NULL});
}

static void debug_routes(lg_backend *b, const lg_hparams *hp, lg_work *t, int i)
{
    size_t k = (size_t)hp->n_expert_used, at = (size_t)i * (size_t)t->max_rows * k;

    b->ops->copy(b, t->dbg_route_ids + at, t->routes.ids, k * sizeof(int32_t), k * sizeof(int32_t),
                 k * sizeof(int32_t), LG_ROWS_STEP);
    b->ops->copy(b, t->dbg_route_w + at, t->routes.w, k * sizeof(float), k * sizeof(float), k * sizeof(float),
                 LG_ROWS_STEP);
}

// What a step may ask to see of layer i, after its second residual add: taps for a drafter, debug outputs.
static void observe(lg_backend *b, const lg_hparams *hp, lg_work *t, const lg_step *s, int i)
{
    size_t row = (size_t)hp->hidden * sizeof(float);

    for (int n = 0; (s->flags & LG_STEP_TAPS) && n < t->n_tap; n++) {
        if (t->tap_layer[n] == i) {
            lg_tensor dst = t->taps;
            dst.p += (size_t)n * (size_t)hp->hidden;
            dst.cols = hp->hidden;
            b->ops->tap(b, &dst, &t->x);
        }
    }
    if (s->flags & LG_STEP_LAYERS)
        b->ops->copy(b, t->dbg_layers + (size_t)i * (size_t)t->max_rows * (size_t)hp->hidden, t->x.p, row,
                     row, row, LG_ROWS_STEP);
}

// logits = Woutput h of the rows that are wanted
static void head(lg_backend *b, const lg_laguna *m, lg_work *t)
{
    b->ops->gather_rows(b, &t->last, &t->h);
    b->ops->linear(b, &t->last, &(lg_part){t->logits, &m->output}, 1);
}

static void candidates(lg_backend *b, lg_work *t, const lg_step *s)
{
    if (s->flags & LG_STEP_MASK)
        b->ops->mask_logits(b, &t->logits);
    b->ops->topk(b, &t->logits, &t->cand);
}

lg_status lg_laguna_forward(lg_backend *b, const lg_laguna *m, const lg_kv_class *kv, lg_work *t,
                            const lg_step *s, lg_err *err)
{
    const lg_ops *op = b->ops;
    const lg_hparams *hp = &m->hp;
    lg_begin how;

    LG_TRY(op->begin(b, lg_step_key(s), s, &how, err));
    if (how == LG_RECORD) {
        op->embed(b, &t->x, &m->embed);
        op->rmsnorm(b, &t->h, &t->x, &m->layer[0].attn_norm, hp->eps);
        for (int i = 0; i < hp->n_layer; i++) {
            const lg_weight *next = i + 1 < hp->n_layer ? &m->layer[i + 1].attn_norm : &m->output_norm;

            attention_block(b, m, kv, t, i);
            op->add_rmsnorm(b, &t->h, &t->x, &t->delta, &m->layer[i].ffn_norm, hp->eps);
            ffn_block(b, m, t, i);
            if ((s->flags & LG_STEP_ROUTES) && !hp->layer[i].dense)
                debug_routes(b, hp, t, i);
            op->add_rmsnorm(b, &t->h, &t->x, &t->delta, next, hp->eps);
            observe(b, hp, t, s, i);
        }
        if (!(s->flags & LG_STEP_NO_HEAD))
            head(b, m, t);
        if (s->n_cand > 0)
            candidates(b, t, s);
    }
    return op->end(b, err);
}

lg_status lg_laguna_head(lg_backend *b, const lg_laguna *m, lg_work *t, const lg_step *s, lg_err *err)
{
    lg_begin how;

    LG_TRY(b->ops->begin(b, lg_step_key(s), s, &how, err));
    if (how == LG_RECORD)
        head(b, m, t);
    return b->ops->end(b, err);
}

lg_status lg_laguna_sample(lg_backend *b, lg_work *t, const lg_step *s, lg_err *err)
{
    const lg_ops *op = b->ops;
    lg_begin how;

    LG_TRY(op->begin(b, lg_step_key(s), s, &how, err));
    if (how == LG_RECORD)
        candidates(b, t, s);
    return op->end(b, err);
}
