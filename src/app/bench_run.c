/*
 * app/bench_run: see bench_run.h. Wall clock around whole prompts and whole stretches of tokens; nothing is
 * subtracted.
 */
#include "app/bench_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { ROUTE_TOKENS = 1024, ROUTE_WINDOW = 8 };
/* The ceiling is taken for half a repetition before it and half after it, within these bounds, seconds. */
static const double least_probe = 0.02, most_probe = 2.0;

/* --- ids --- */

/* Fresh ids every time: a permutation-free walk of a 64-bit counter through a mixer. */
static void random_ids(uint64_t *seed, int vocab, int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = *seed += 0x9E3779B97F4A7C15u;

        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        ids[i] = (int32_t)((z ^ z >> 31) % (uint64_t)vocab);
    }
}

/* --- one measurement --- */

/* The cache holds exactly `depth` random tokens; what is there already is used when it can be. */
static lg_status go_to(lg_bench *b, int64_t depth, lg_err *err)
{
    if (lg_engine_pos(b->engine) >= depth && lg_engine_truncate(b->engine, depth) == depth)
        return LG_OK;
    return lg_engine_fill(b->engine, depth, b->seed, err);
}

static lg_status eval(lg_bench *b, int64_t n, lg_err *err)
{
    return lg_engine_eval(b->engine, &(lg_eval){.ids = b->ids, .n = (size_t)n, .cancel = b->cancel}, err);
}

static lg_status run_once(lg_bench *b, bool prefill, int64_t depth, int64_t n, double *seconds, lg_err *err)
{
    int vocab = lg_engine_hparams(b->engine)->vocab;
    uint64_t start;

    LG_TRY(go_to(b, depth, err));
    random_ids(&b->seed, vocab, b->ids, n);
    start = lg_now_ns();
    if (prefill) {
        LG_TRY(eval(b, n, err));
    } else {
        for (int64_t i = 0; i < n; i++) {
            lg_eval one = {.ids = b->ids + i, .n = 1, .cancel = b->cancel};

            LG_TRY(lg_engine_eval(b->engine, &one, err));
        }
    }
    start = lg_now_ns() - start;
    *seconds = (double)(start > 0 ? start : 1) / 1e9; // a coarse clock may have stood still
    return LG_OK;
}

static void add_op(void *ctx, const char *name, double seconds)
{
    lg_bench_run *r = ctx;

    for (int i = 0; i < r->n_op; i++) {
        if (strcmp(r->op[i].name, name) == 0) {
            r->op[i].seconds += seconds;
            return;
        }
    }
    if (r->n_op < LG_BENCH_OPS)
        r->op[r->n_op++] = (lg_bench_op){name, seconds};
}

static void ignore_op(void *ctx, const char *name, double seconds)
{
    (void)ctx;
    (void)name;
    (void)seconds;
}

/* What the device gives now of what the run is held to. */
static double ceiling_now(lg_bench *b, const lg_bench_run *r)
{
    lg_backend *dev = lg_engine_backend(b->engine);
    double s = r->guess_s / 2, now, *best = r->prefill ? &b->compute : &b->bandwidth;

    s = s < least_probe ? least_probe : s > most_probe ? most_probe : s;
    if (r->prefill)
        now = dev->sustained_compute ? dev->sustained_compute(dev, s) : dev->measure_compute(dev);
    else
        now = dev->sustained_bandwidth ? dev->sustained_bandwidth(dev, s) : dev->measure_bandwidth(dev);
    *best = now > *best ? now : *best;
    return now;
}

/* What a token asks of the ceiling. */
static double work_of_token(const lg_bench_run *r)
{
    return r->prefill ? r->cost.ops : r->cost.weight_bytes + r->cost.kv_bytes;
}

static lg_status repeat(lg_bench *b, lg_bench_run *r, lg_err *err)
{
    lg_backend *dev = lg_engine_backend(b->engine);
    lg_bench_rep *rep = &r->rep[r->n_rep];
    double seconds = 0, before;

    LG_TRY(go_to(b, r->depth, err));
    before = ceiling_now(b, r);
    if (b->phases)
        dev->phases(dev, true, ignore_op, NULL);
    LG_TRY(run_once(b, r->prefill, r->depth, r->tokens, &seconds, err));
    if (b->phases)
        dev->phases(dev, true, add_op, r);
    r->guess_s = seconds;
    rep->tok_s = (double)r->tokens / seconds;
    rep->ceiling = (before + ceiling_now(b, r)) / 2;
    rep->ratio = rep->ceiling > 0 ? work_of_token(r) * rep->tok_s / rep->ceiling : 0;
    r->n_rep++;
    return LG_OK;
}

/* --- all of them --- */

static void plan_runs(lg_bench *b)
{
    for (int i = 0; i < b->n_depth; i++) {
        if (b->prompt > 0)
            b->run[b->n_run++] = (lg_bench_run){.prefill = true, .depth = b->depth[i], .tokens = b->prompt,
                                                .cost = lg_cost_prefill(b->engine, b->depth[i], b->prompt)};
        if (b->gen > 0)
            b->run[b->n_run++] = (lg_bench_run){.depth = b->depth[i], .tokens = b->gen,
                                                .cost = lg_cost_decode(b->engine, b->depth[i], b->gen)};
    }
}

static void probe_bandwidth(lg_bench *b)
{
    lg_backend *dev = lg_engine_backend(b->engine);
    double bytes = dev->measure_bandwidth(dev);

    b->bandwidth = bytes > b->bandwidth ? bytes : b->bandwidth;
}

static void probe_compute(lg_bench *b)
{
    lg_backend *dev = lg_engine_backend(b->engine);
    double ops = dev->measure_compute(dev);

    b->compute = ops > b->compute ? ops : b->compute;
}

static void tell(const lg_bench *b, int done)
{
    if (b->step)
        b->step(b->ctx, done, b->reps * b->n_run);
}

/* Pages touched, clocks up, caches as they will be. */
static lg_status warm_up(lg_bench *b, lg_err *err)
{
    uint64_t start = lg_now_ns();
    double seconds[2] = {0, 0}; /* a token of a decode, of a prefill */

    do {
        for (int prefill = 1; prefill >= 0; prefill--) {
            int64_t n = prefill ? b->prompt : b->gen < 16 ? b->gen : 16;

            if (n > 0) {
                LG_TRY(run_once(b, prefill, b->depth[0], n, &seconds[prefill], err));
                seconds[prefill] /= (double)n;
            }
        }
        tell(b, 0);
    } while ((double)(lg_now_ns() - start) / 1e9 < b->warmup_s);
    for (int i = 0; i < b->n_run; i++)
        b->run[i].guess_s = (double)b->run[i].tokens * seconds[b->run[i].prefill];
    return LG_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median, least and greatest of v[0 .. n - 1], which is sorted. */
static void summarise(double *v, int n, double *median, double *min, double *max)
{
    qsort(v, (size_t)n, sizeof v[0], by_value);
    *min = v[0];
    *max = v[n - 1];
    *median = (v[(n - 1) / 2] + v[n / 2]) / 2;
}

static void conclude(const lg_bench *b, lg_bench_run *r)
{
    double v[LG_BENCH_REPS];

    for (int i = 0; i < r->n_rep; i++)
        v[i] = r->rep[i].tok_s;
    summarise(v, r->n_rep, &r->median, &r->min, &r->max);
    for (int i = 0; i < r->n_rep; i++)
        v[i] = r->rep[i].ratio;
    summarise(v, r->n_rep, &r->around, &r->around_min, &r->around_max);
    r->gbs = (r->cost.weight_bytes + r->cost.kv_bytes) * r->median / 1e9;
    r->gops = r->cost.ops * r->median / 1e9;
    r->roofline = r->prefill ? r->gops * 1e9 / b->compute : r->gbs * 1e9 / b->bandwidth;
}

lg_status lg_bench_measure(lg_bench *b, lg_err *err)
{
    int64_t longest = b->prompt > b->gen ? b->prompt : b->gen;
    lg_status st;

    b->n_run = 0;
    b->bandwidth = b->compute = 0;
    b->ids = malloc((size_t)(longest > 0 ? longest : 1) * sizeof *b->ids);
    if (!b->ids)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for %lld token ids", (long long)longest);
    plan_runs(b);
    st = warm_up(b, err);
    if (st == LG_OK)
        probe_compute(b);
    for (int rep = 0; rep < b->reps && st == LG_OK; rep++) {
        probe_bandwidth(b);
        for (int i = 0; i < b->n_run && st == LG_OK; i++) {
            st = repeat(b, &b->run[i], err);
            tell(b, rep * b->n_run + i + 1);
        }
    }
    free(b->ids);
    b->ids = NULL;
    if (st != LG_OK)
        return st;
    probe_bandwidth(b);
    probe_compute(b);
    for (int i = 0; i < b->n_run; i++)
        conclude(b, &b->run[i]);
    return LG_OK;
}

/* --- routing --- */

typedef struct route_tally {
    lg_engine *engine;
    const lg_hparams *hp;
    int64_t *count; /* [layer][expert] */
    uint8_t *seen;  /* [expert] */
    double distinct;
    int64_t n_window;
} route_tally;

static void tally_rows(route_tally *t, int layer, const int32_t *ids, size_t rows)
{
    int k = t->hp->n_expert_used, n_expert = t->hp->n_expert;

    for (size_t r = 0; r + ROUTE_WINDOW <= rows; r += ROUTE_WINDOW) {
        int found = 0;

        memset(t->seen, 0, (size_t)n_expert);
        for (size_t i = r * (size_t)k; i < (r + ROUTE_WINDOW) * (size_t)k; i++) {
            found += !t->seen[ids[i]];
            t->seen[ids[i]] = 1;
            t->count[(size_t)layer * (size_t)n_expert + (size_t)ids[i]]++;
        }
        t->distinct += found;
        t->n_window++;
    }
}

static lg_status on_chunk(void *ctx, size_t first, size_t n, lg_err *err)
{
    route_tally *t = ctx;

    for (int i = 0; i < t->hp->n_layer; i++) {
        const int32_t *ids;
        const float *w;

        if (t->hp->layer[i].dense)
            continue;
        LG_TRY(lg_engine_route_rows(t->engine, i, first, n, &ids, &w, err));
        tally_rows(t, i, ids, n);
    }
    return LG_OK;
}

/* exp(entropy) of the layer's shares over the number of experts: 1 when all are used alike. */
static double effective(const route_tally *t, int layer)
{
    int n_expert = t->hp->n_expert;
    const int64_t *count = t->count + (size_t)layer * (size_t)n_expert;
    double total = 0, entropy = 0;

    for (int i = 0; i < n_expert; i++)
        total += (double)count[i];
    for (int i = 0; i < n_expert; i++)
        if (count[i] > 0)
            entropy -= (double)count[i] / total * log((double)count[i] / total);
    return exp(entropy) / n_expert;
}

lg_status lg_bench_route(lg_engine *e, lg_bench_routing *out, lg_err *err)
{
    const lg_hparams *hp = lg_engine_hparams(e);
    int64_t ctx = lg_engine_plan(e)->ctx,
            n = ctx < ROUTE_TOKENS ? ctx / ROUTE_WINDOW * ROUTE_WINDOW : ROUTE_TOKENS;
    lg_bench_routing r = {.n_expert = hp->n_expert, .effective = 1, .distinct = 1, .worst_layer = -1};
    route_tally t = {.engine = e, .hp = hp};
    uint64_t seed = 1;
    int32_t *ids = NULL;
    lg_status st = LG_OK;

    if (hp->n_expert == 0 || n == 0)
        goto out;
    t.count = calloc((size_t)hp->n_layer * (size_t)hp->n_expert, sizeof *t.count);
    t.seen = malloc((size_t)hp->n_expert);
    ids = malloc((size_t)n * sizeof *ids);
    if (!t.count || !t.seen || !ids) {
        st = LG_FAIL(err, LG_E_NOMEM, "no memory to count experts");
        goto out;
    }
    random_ids(&seed, hp->vocab, ids, n);
    (void)lg_engine_truncate(e, 0);
    st = lg_engine_eval(e, &(lg_eval){.ids = ids, .n = (size_t)n, .no_logits = true, .flags = LG_STEP_ROUTES,
                                      .chunk_done = on_chunk, .ctx = &t}, err);
    (void)lg_engine_truncate(e, 0);
    if (st != LG_OK)
        goto out;
    r.distinct =
        t.distinct / (double)t.n_window / lg_expert_union(hp->n_expert, hp->n_expert_used, ROUTE_WINDOW);
    for (int i = 0; i < hp->n_layer; i++) {
        double share = hp->layer[i].dense ? 1 : effective(&t, i);

        if (share < r.effective) {
            r.effective = share;
            r.worst_layer = i;
        }
    }
out:
    free(t.count);
    free(t.seen);
    free(ids);
    if (st == LG_OK)
        *out = r;
    return st;
}
