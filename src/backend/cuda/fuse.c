/*
 * backend/cuda/fuse: steps of one row above all: norms, routing and the work on projections wait for the op
 * behind them.
 *
 * A launch costs about as much as the whole arithmetic of a norm, so a norm of one row is not launched but
 * remembered; the products that want its result norm the row themselves (stream.cuh), and leave the result in
 * memory besides. The same for a router in front of its experts, and for QK-norm, RoPE and the KV store in
 * front of an attention (of up to 32 rows that are more than 16, too), and for the row that is gathered in
 * front of the head. In a step of several rows the weighted sum of experts waits for the norm behind it, and
 * the routing of 17 to 64 for its experts. Whatever else comes behind them finds them done: `lg_cuda_settle`
 * comes first in every other op.
 *
 * Surprise: all blocks of a fused product read the residual row, so x + delta cannot go back where x is. It
 * goes to the other of two places, c->cu.x_other and the tensor's own, in turn; later.away says when it is
 * not at home. And since all of them would read delta too, the product that makes delta leaves x + delta in
 * that other place besides, x being the row that was normed last: a guess. Nobody needs that place meanwhile,
 * and it counts only if the very next op is a norm that names both; else x and delta are where they were.
 */
#include "backend/cuda/internal.h"

// Where the row of x is now.
static float *place_of(lg_cuda *c, const lg_tensor *x)
{
    return c->later.away == x->p ? c->cu.x_other : x->p;
}

// Where it is not.
static float *other_place(lg_cuda *c, const lg_tensor *x)
{
    return c->later.away == x->p ? x->p : c->cu.x_other;
}

// away: x may be there afterwards.
static void settle_norm(lg_cuda *c, bool away)
{
    lg_cuda_later *l = &c->later;
    float *place = place_of(c, &l->x), *other = other_place(c, &l->x);
    bool summed = l->summed && (away || other == l->x.p), fits = l->h.cols % 32 == 0;
    lg_tensor from = l->x;

    if (!l->norm)
        return;
    l->norm = false;
    from.p = summed ? other : place;
    lg_cu_norm(&c->cu, &l->h, &from, l->x.p, l->delta.p && !summed ? &l->delta : NULL, l->w, l->eps, fits,
               NULL);
    if (l->delta.p)
        l->away = summed && other != l->x.p ? l->x.p : NULL;
    lg_cuda_quantised(c, &l->h);
}

static void settle_ops(lg_cuda *c, bool away)
{
    if (c->later.sum.out.p)
        lg_cu_sum_now(&c->cu, &c->later.sum);
    c->later.sum.out.p = NULL;
    settle_norm(c, away);
    if (c->later.last.p)
        lg_cu_gather(&c->cu, &c->later.last, &c->later.h);
    c->later.last.p = NULL;
    if (c->later.route)
        lg_cu_route_op(&c->cu, &c->later.r);
    c->later.route = false;
    if (c->later.qkv)
        lg_cu_qkv_post(&c->cu, &c->later.q);
    c->later.qkv = false;
}

static void bring_home(lg_cuda *c)
{
    size_t row = (size_t)c->later.x.cols * sizeof(float);

    if (c->later.away)
        lg_cu_copy(&c->cu, c->later.x.p, c->cu.x_other, row, row, row, LG_ROWS_STEP);
    c->later.away = NULL;
}

void lg_cuda_settle(lg_cuda *c)
{
    settle_ops(c, false);
    bring_home(c);
    c->later.sum_of = NULL;
}

void lg_cuda_later_norm(lg_cuda *c, const lg_tensor *h, const lg_tensor *x, const lg_tensor *delta,
                        const float *w, float eps)
{
    lg_cuda_later *l = &c->later;
    bool summed = delta && delta->p == l->sum_of && x->p == l->x.p && x->cols == l->x.cols;

    settle_ops(c, false);
    if (l->away != x->p || l->x.cols != x->cols)
        bring_home(c);
    lg_cuda_touch(c, x->p);
    lg_cuda_touch(c, h->p);
    l->norm = true;
    l->h = *h;
    l->x = *x;
    l->delta = delta ? *delta : (lg_tensor){0};
    l->summed = summed;
    l->sum_of = NULL;
    l->w = w;
    l->eps = eps;
}

bool lg_cuda_later_gather(lg_cuda *c, const lg_tensor *out, const lg_tensor *x)
{
    lg_cuda_later *l = &c->later;

    if (c->cu.rows != 1 || c->cu.outs != 1 || !l->norm || l->route || l->last.p || l->h.p != x->p ||
        ((uintptr_t)out->p & 15) != 0)
        return false;
    lg_cuda_touch(c, out->p);
    l->last = *out;
    return true;
}

void lg_cuda_later_route(lg_cuda *c, const lg_cu_route *r)
{
    if (c->later.route || c->later.qkv || c->later.sum.out.p || (c->later.norm && c->later.h.p != r->h.p))
        lg_cuda_settle(c);
    c->later.route = true;
    c->later.r = *r;
}

void lg_cuda_later_qkv(lg_cuda *c, const lg_cu_qkv *q)
{
    lg_cuda_settle(c);
    c->later.qkv = true;
    c->later.q = *q;
}

// The norm that waits, as a product takes it.
static lg_cu_normed norm_of(lg_cuda *c)
{
    const lg_cuda_later *l = &c->later;
    lg_cu_normed n = {.x = l->summed ? other_place(c, &l->x) : place_of(c, &l->x),
                      .h = l->h.p,
                      .w = l->w,
                      .eps = l->eps,
                      .cols = l->h.cols,
                      .acts = c->cu.acts};

    if (l->delta.p && !l->summed) {
        n.delta = l->delta.p;
        n.x_out = other_place(c, &l->x);
    }
    return n;
}

// Where the row of x is when that norm is done.
static const float *normed_at(const lg_cu_normed *n)
{
    return n->x_out ? n->x_out : n->x;
}

static void norm_done(lg_cuda *c, const lg_cu_normed *n)
{
    lg_cuda_later *l = &c->later;

    l->norm = false;
    l->away = normed_at(n) == l->x.p ? NULL : l->x.p;
    lg_cuda_quantised(c, &l->h);
}

// Is y none of the rows that a product with a norm reads or writes besides?
static bool apart(const lg_cuda *c, const float *y)
{
    const lg_cuda_later *l = &c->later;

    return y != l->x.p && y != l->h.p && y != l->delta.p && y != l->last.p;
}

bool lg_cuda_fused_linear(lg_cuda *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts)
{
    lg_cuda_later *l = &c->later;
    bool last = l->last.p && x->p == l->last.p;

    if (!l->norm || l->route || l->h.cols != x->cols ||
        (!last && (l->h.p != x->p || x->rows != LG_ROWS_STEP)))
        return false;
    for (int i = 0; i < n_parts; i++)
        if (!apart(c, parts[i].y))
            return false;
    lg_cu_normed n = norm_of(c);
    n.also = last ? x->p : NULL;
    if (!lg_cu_normed_gemv(&c->cu, &n, parts, n_parts))
        return false;
    if (last)
        l->last.p = NULL;
    norm_done(c, &n);
    return true;
}

// x + y besides y, a row of so many columns; now: where the row of x is. Absent: x is not such a row.
static lg_cu_residual sum_with(lg_cuda *c, const float *y, int cols, const float *now)
{
    const lg_tensor *x = &c->later.x;

    if (c->cu.rows != 1 || !x->p || x->p == y || x->cols != cols)
        return (lg_cu_residual){0};
    return (lg_cu_residual){.x = now, .sum = now == x->p ? c->cu.x_other : x->p};
}

void lg_cuda_want_sum(lg_cuda *c, const lg_tensor *x, lg_cu_part *part)
{
    if (x->rows != LG_ROWS_STEP)
        return;
    part->add = sum_with(c, part->y, part->w.n_out, place_of(c, &c->later.x));
    c->later.sum_of = part->add.sum ? part->y : NULL;
}

// The launches of lg_cuda_fused_moe. now: where the row of x is then.
static bool launch_moe(lg_cuda *c, const lg_cu_moe *m, bool route, const lg_cu_normed *n, const float *now)
{
    lg_cuda_later *l = &c->later;
    lg_cu_moe with = *m;

    with.add = sum_with(c, m->out.p, m->out.cols, now);
    if (!lg_cu_moe_one(&c->cu, &with, route ? &l->r : NULL, n))
        return false;
    l->route = false;
    l->sum_of = with.add.sum ? m->out.p : NULL;
    return true;
}

bool lg_cuda_fused_moe(lg_cuda *c, const lg_cu_moe *m)
{
    lg_cuda_later *l = &c->later;
    bool route = l->route && m->routed && l->r.ids == m->ids && l->r.h.p == m->h.p;
    bool norm = route && l->norm;

    if (c->cu.rows > LG_CU_EXACT_ROWS && route) {
        lg_cuda_want_acts(c, &m->h);
        if (!lg_cu_moe_follow(&c->cu, m, &l->r))
            return false;
        l->route = false;
        return true;
    }
    if (c->cu.rows != 1 || m->h.rows != LG_ROWS_STEP || m->h.cols % 256 != 0 || m->out.p == m->h.p)
        return false;
    if (!norm) {
        bool aside = m->out.p != l->x.p && m->h.p != l->x.p; // then x may be in either place
        if (!route)
            settle_ops(c, aside);
        if (!aside)
            bring_home(c);
        lg_cuda_want_acts(c, &m->h);
        return launch_moe(c, m, route, NULL, place_of(c, &l->x));
    }
    lg_cu_normed n = norm_of(c);
    if ((!apart(c, m->out.p) && m->out.p != l->delta.p) || !launch_moe(c, m, true, &n, normed_at(&n)))
        return false;
    norm_done(c, &n);
    return true;
}

const lg_cu_qkv *lg_cuda_fused_qkv(lg_cuda *c, const lg_attn_args *a)
{
    lg_cuda_later *l = &c->later;

    if (!l->qkv || l->q.q.p != a->q.p || l->q.kv != a->kv || l->q.kv_layer != a->kv_layer ||
        l->q.n_head != a->n_head || a->out.p == a->q.p)
        return NULL;
    l->qkv = false;
    return &l->q;
}
