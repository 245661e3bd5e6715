/*
 * app/bench_count: see bench_count.h.
 */
#include "app/bench_count.h"

#include <math.h>

/* Everything that one pass over n rows reads and does in the matrices of the model, without the head. */
typedef struct tally {
    double bytes, ops;
    double n; /* rows of the pass */
} tally;

static void add(tally *t, const lg_weight *w)
{
    if (!w->data)
        return;
    t->bytes += (double)w->bytes;
    if (w->use != LG_USE_VECTOR)
        t->ops += 2.0 * w->n_in * w->n_out * t->n;
}

double lg_expert_union(int n_expert, int k, double n)
{
    return n_expert * (1.0 - pow(1.0 - (double)k / n_expert, n));
}

static void add_experts(tally *t, const lg_weight *w, int k)
{
    t->bytes += (double)w->bytes / w->n_expert * lg_expert_union(w->n_expert, k, t->n);
    t->ops += 2.0 * w->n_in * w->n_out * k * t->n;
}

static void add_layer(tally *t, const lg_hparams *hp, const lg_layer *l)
{
    const lg_weight *each[] = {&l->attn_norm, &l->q,          &l->k,      &l->v,           &l->gate,
                               &l->o,         &l->q_norm,     &l->k_norm, &l->ffn_norm,    &l->ffn_gate,
                               &l->ffn_up,    &l->ffn_down,   &l->router, &l->router_bias, &l->shared_gate,
                               &l->shared_up, &l->shared_down};

    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++)
        add(t, each[i]);
    if (!l->exp_gate.data)
        return;
    add_experts(t, &l->exp_gate, hp->n_expert_used);
    add_experts(t, &l->exp_up, hp->n_expert_used);
    add_experts(t, &l->exp_down, hp->n_expert_used);
}

/* One row of the embedding for each token; the head for `out` rows. */
static void add_ends(tally *t, const lg_laguna *m, double out)
{
    t->bytes += (double)m->embed.bytes / m->embed.n_out * t->n;
    add(t, &m->output_norm);
    if (out > 0) {
        t->bytes += (double)m->output.bytes;
        t->ops += 2.0 * m->output.n_in * m->output.n_out * out;
    }
}

/* Visible positions, summed over the rows at positions [pos, pos + n), each seeing itself and what is before.
 */
static double visible(int64_t pos, int64_t n, int window)
{
    double last = (double)(pos + n), first = (double)pos + 1;

    if (window == 0 || last <= window)
        return (first + last) * (double)n / 2;
    if (first >= window)
        return (double)window * (double)n;
    return (first + window) * (window - first + 1) / 2 + (last - window) * window;
}

/* Rows of a class that a pass reads: everything the rows see, once. */
static double read_rows(int64_t pos, int64_t n, int window)
{
    int64_t all = pos + n, seen = window == 0 ? all : window + n - 1;

    return (double)(seen < all ? seen : all);
}

static void add_attention(const lg_engine *e, int64_t pos, int64_t n, double *kv_bytes, double *ops)
{
    const lg_hparams *hp = lg_engine_hparams(e);
    const lg_plan *plan = lg_engine_plan(e);
    double row = (double)plan->kv_bytes_per_token / (hp->n_full > 0 ? hp->n_full : 1);

    for (int i = 0; i < hp->n_layer; i++) {
        const lg_layer_params *l = &hp->layer[i];
        int window = l->window ? hp->window : 0;

        *kv_bytes += row * read_rows(pos, n, window);
        *ops += 4.0 * l->n_head * hp->head_dim * visible(pos, n, window);
    }
}

static lg_cost cost_of(const lg_engine *e, int64_t pos, int64_t n, double out)
{
    const lg_laguna *m = lg_engine_model(e);
    tally t = {.n = (double)n};
    lg_cost c = {0};

    for (int i = 0; i < m->hp.n_layer; i++)
        add_layer(&t, &m->hp, &m->layer[i]);
    add_ends(&t, m, out);
    c.weight_bytes = t.bytes;
    c.ops = t.ops;
    add_attention(e, pos, n, &c.kv_bytes, &c.ops);
    return c;
}

static lg_cost average(lg_cost sum, int64_t n)
{
    return (lg_cost){sum.weight_bytes / (double)n, sum.kv_bytes / (double)n, sum.ops / (double)n};
}

static void sum_up(lg_cost *sum, lg_cost c)
{
    sum->weight_bytes += c.weight_bytes;
    sum->kv_bytes += c.kv_bytes;
    sum->ops += c.ops;
}

lg_cost lg_cost_decode(const lg_engine *e, int64_t depth, int64_t n)
{
    lg_cost sum = {0};

    for (int64_t i = 0; i < n; i++)
        sum_up(&sum, cost_of(e, depth + i, 1, 1));
    return average(sum, n);
}

lg_cost lg_cost_prefill(const lg_engine *e, int64_t depth, int64_t n)
{
    int64_t chunk = lg_engine_plan(e)->chunk;
    lg_cost sum = {0};

    for (int64_t at = 0; at < n; at += chunk) {
        int64_t rows = n - at < chunk ? n - at : chunk;

        sum_up(&sum, cost_of(e, depth + at, rows, at + rows == n ? 1 : 0));
    }
    return average(sum, n);
}
