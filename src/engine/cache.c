/*
 * engine/cache: see cache.h. What a request does to the prefix cache, from its look-up to its end.
 *
 * What surprises: a request that must leave no trace parks the live sequence as a cut, works detached from
 * the tree, and brings it back at its end.
 */
#include "engine/cache.h"

#include "base/log.h"
#include "engine/engine_int.h"

enum { RATE_ROWS = 64 }; // rows from which a chunk says something about prefill

void lg_prompt_marks(const lg_chat_mark *mark, size_t n, lg_prompt_mark *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (lg_prompt_mark){
            .kind = mark[i].kind, .message = mark[i].message, .token = (int64_t)mark[i].token};
}

const char *lg_cache_from_name(lg_cache_from f)
{
    return f == LG_CACHE_LIVE ? "live" : f == LG_CACHE_MEMORY ? "host" : "none";
}

// --- looking ---

void lg_engine_peek(lg_engine *e, const lg_cache_ask *ask, lg_peek *out, lg_prefix_pin *pin)
{
    int64_t n = (int64_t)ask->n;
    lg_prefix_match m = {0};

    if (ask->mode == LG_CACHE_USE && n > 0)
        lg_prefix_find(e->px, ask->scope, ask->ids, n, n - 1, &m);
    else if (ask->mode == LG_CACHE_NO_STORE && n > 0)
        lg_prefix_find_parked(e->px, ask->scope, ask->ids, n, n - 1, &m);
    *out = (lg_peek){.lcp = m.lcp, .cached = m.k, .new_tokens = n - m.k};
    out->prefill_us = lg_rates_prefill_us(&e->rates, m.k, n);
    out->measured = lg_rates_measured(&e->rates.prefill);
    // a few rows cost about as much as one
    if (out->measured && n > m.k && lg_rates_measured(&e->rates.decode) &&
        out->prefill_us < lg_rates_decode_us(&e->rates, n))
        out->prefill_us = lg_rates_decode_us(&e->rates, n);
    if (pin)
        lg_prefix_pin_match(e->px, &m, pin);
}

void lg_engine_unpin(lg_engine *e, lg_prefix_pin *pin)
{
    lg_prefix_unpin(e->px, pin);
}

static void say_where(const lg_cache_ask *ask, const lg_prefix_match *m, lg_cache_found *f)
{
    if (m->lcp >= (int64_t)ask->n || m->beyond <= m->lcp || (double)m->k >= 0.9 * (double)m->beyond)
        return;
    f->diverge = LG_DIVERGE_UNKNOWN;
    f->diverge_pos = m->lcp;
    for (size_t i = 0; i < ask->n_mark; i++) {
        if (ask->mark[i].kind == LG_MARK_SYS && m->lcp < ask->mark[i].token)
            f->diverge = LG_DIVERGE_SYSTEM;
        if (ask->mark[i].kind == LG_MARK_MESSAGE && ask->mark[i].token <= m->lcp &&
            f->diverge != LG_DIVERGE_SYSTEM) {
            f->diverge = LG_DIVERGE_MESSAGE;
            f->diverge_message = ask->mark[i].message;
        }
    }
}

// counts: somebody asked; else the engine works ahead.
static void account(lg_engine *e, const lg_cache_ask *ask, const lg_prefix_match *m, bool counts)
{
    lg_cache_found *f = &e->cache.found;
    static const char *const where[] = {"nowhere", "system", "message", "unknown"};

    *f = (lg_cache_found){.lcp = m->lcp, .cached = m->k, .diverge_message = -1};
    f->from = m->k == 0 ? LG_CACHE_NONE : m->live ? LG_CACHE_LIVE : LG_CACHE_MEMORY;
    if (f->from == LG_CACHE_MEMORY)
        f->cut = lg_prefix_cut_kind(m->cut);
    if (!counts)
        return;
    say_where(ask, m, f);
    e->cache_stats.hits[f->from]++;
    e->cache_stats.saved_tokens += (uint64_t)m->k;
    e->cache_stats.avoidable_tokens += (uint64_t)(m->lcp - m->k);
    LG_INFO("cache", m->k ? "hit" : "miss", "tier=%s lcp=%lld k=%lld cut=%s new=%lld",
            lg_cache_from_name(f->from), (long long)m->lcp, (long long)m->k,
            f->from == LG_CACHE_MEMORY ? lg_cut_name(f->cut) : "-", (long long)ask->n - (long long)m->k);
    if (f->diverge != LG_DIVERGE_NO)
        LG_INFO("cache", "diverges", "at=%lld in=%s message=%d of=%lld", (long long)f->diverge_pos,
                where[f->diverge], f->diverge_message, (long long)m->beyond);
}

// --- a request ---

static int64_t next_step(const lg_engine *e)
{
    return lg_prefix_last_cut(e->px, e->kv.pos) + lg_prefix_step(e->px);
}

static void cut(lg_engine *e, int64_t at, int64_t from, lg_cut_kind kind)
{
    if (at > from && at <= e->kv.pos && lg_prefix_cut_at(e->px, at, kind))
        e->cache.next_step = next_step(e);
}

// The cuts that the renderer asks for among the rows behind `from`.
static void cut_marks(lg_engine *e, int64_t from)
{
    const lg_cache_ask *ask = &e->cache.ask;

    for (size_t i = 0; i < ask->n_mark; i++)
        if (ask->mark[i].kind == LG_MARK_SYS || ask->mark[i].kind == LG_MARK_TURN)
            cut(e, ask->mark[i].token, from, ask->mark[i].kind == LG_MARK_SYS ? LG_CUT_SYS : LG_CUT_TURN);
}

int64_t lg_cache_begin(lg_engine *e, const lg_cache_ask *ask, int64_t most, bool end_cut)
{
    int64_t n = (int64_t)ask->n;
    lg_prefix_match m = {0};

    lg_cache_end(e);
    e->cache = (lg_cache_now){
        .active = true, .stores = ask->mode == LG_CACHE_USE, .ask = *ask, .end_cut = end_cut};
    lg_prefix_commit(e->px, e->kv.pos);
    if (!e->cache.stores)
        lg_prefix_park(e->px, &e->cache.parked);
    if (ask->mode != LG_CACHE_OFF)
        lg_prefix_find(e->px, ask->scope, ask->ids, n, most, &m);
    account(e, ask, &m, end_cut);
    lg_prefix_adopt(e->px, ask->scope, &m, n);
    if (!e->cache.stores)
        lg_prefix_detach(e->px);
    if (m.lcp - m.k >= LG_PREFIX_BRANCH && m.lcp < n)
        e->cache.branch = m.lcp;
    e->cache.next_step = next_step(e);
    if (e->cache.stores)
        cut_marks(e, 0); // what is a cut for another reason gets the weight of its mark
    return m.k;
}

static void cut_rows(lg_engine *e, int n)
{
    const lg_cache_now *c = &e->cache;
    int64_t from = e->kv.pos - n;

    if (!c->active)
        return;
    if (!c->stores) {
        lg_prefix_settle(e->px); // a block that was shared may have been copied
        return;
    }
    if (from >= (int64_t)c->ask.n) { // of the reply: nothing to do but once in a long while
        if (from >= c->next_step) {
            lg_prefix_commit(e->px, from);
            (void)lg_prefix_cut_at(e->px, from, LG_CUT_STEP);
            e->cache.next_step = from + lg_prefix_step(e->px);
            lg_prefix_settle(e->px);
        }
        return;
    }
    lg_prefix_commit(e->px, e->kv.pos);
    cut_marks(e, from);
    cut(e, c->branch, from, LG_CUT_BRANCH);
    if (c->end_cut)
        cut(e, (int64_t)c->ask.n, from, LG_CUT_END);
    if (e->kv.pos >= c->next_step)
        cut(e, e->kv.pos, from, LG_CUT_STEP);
    lg_prefix_settle(e->px);
}

void lg_cache_rows(lg_engine *e, int n)
{
    cut_rows(e, n);
    lg_kv_page_ahead(&e->kv, n); // as many more are likely to follow
}

void lg_cache_end(lg_engine *e)
{
    if (!e->cache.active)
        return;
    e->cache.active = false;
    if (e->cache.stores) {
        lg_prefix_commit(e->px, e->kv.pos);
        lg_prefix_settle(e->px);
    } else {
        lg_prefix_unpark(e->px, &e->cache.parked);
    }
    e->cache.ask = (lg_cache_ask){0};
}

typedef struct ahead {
    void (*progress)(void *ctx, size_t done, size_t total);
    void *ctx;
    size_t k, n;
} ahead;

static lg_status on_chunk(void *ctx, size_t first, size_t n, lg_err *err)
{
    const ahead *a = ctx;

    (void)err;
    if (a->progress)
        a->progress(a->ctx, a->k + first + n, a->n);
    return LG_OK;
}

lg_status lg_engine_prefill(lg_engine *e, const lg_cache_ask *ask, atomic_bool *cancel,
                            void (*progress)(void *ctx, size_t done, size_t total), void *ctx,
                            int64_t *evaluated, lg_err *err)
{
    ahead a = {.progress = progress, .ctx = ctx, .n = ask->n};
    lg_status st;

    if (evaluated)
        *evaluated = 0;
    if (ask->n > (size_t)e->plan.ctx)
        return LG_FAIL(err, LG_E_LIMIT, "%zu tokens exceed the context of %lld", ask->n,
                       (long long)e->plan.ctx);
    a.k = (size_t)lg_cache_begin(e, ask, (int64_t)ask->n, false);
    (void)on_chunk(&a, 0, 0, err);
    st = lg_engine_eval(e,
                        &(lg_eval){.ids = ask->ids + a.k,
                                   .n = ask->n - a.k,
                                   .no_logits = true,
                                   .cancel = cancel,
                                   .chunk_done = on_chunk,
                                   .ctx = &a},
                        err);
    if (evaluated)
        *evaluated = e->kv.pos - (int64_t)a.k;
    lg_cache_end(e);
    return st;
}

// --- numbers ---

void lg_cache_time(lg_engine *e, int n, uint64_t us)
{
    int64_t pos = e->kv.pos - n;

    if (n == 1)
        lg_rates_add_decode(&e->rates, pos, us);
    else if (n >= RATE_ROWS || n == e->work.max_rows)
        lg_rates_add_prefill(&e->rates, pos, n, us);
}

void lg_engine_cache_stats(const lg_engine *e, lg_cache_stats *out)
{
    *out = e->cache_stats;
    lg_prefix_get_stats(e->px, &out->now);
}

int lg_engine_cache_slots(const lg_engine *e, lg_prefix_slot *out, int max)
{
    return lg_prefix_slots(e->px, out, max);
}

void lg_engine_cache_clear(lg_engine *e)
{
    lg_prefix_clear(e->px);
}

const lg_rates *lg_engine_rates(const lg_engine *e)
{
    return &e->rates;
}
