/*
 * Tests of engine/cache on a small model with random weights: what a hit gives is bit for bit what computing
 * gives, and clients that behave like agents find what they should.
 *
 * Every request runs twice: on an engine whose cache is under test, and on one that starts from nothing.
 * Tokens and the logits behind the last prompt token must be equal, whatever was reused (the CPU's rows do
 * not depend on how a prompt is divided into chunks).
 *
 *     test_cache [rounds [seed [test]]]     more cancellations, at random operations; only the tests that fit
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "engine/engine_int.h"
#include "engine/prefix_int.h"
#include "support/maker.h"

static int cancel_rounds = 80;
static uint64_t cancel_seed = 2026;

static const char model_path[] = LG_TEST_DIR "/golden/laguna-tiny-xs.gguf";
enum { V = 512, CTX = 4096, LONG = 3000 };

typedef struct pair {
    lg_engine *warm, *cold;
    lg_gen_stats s; /* of the last request */
    lg_ids reply;
    lg_cache_mode mode;
    uint64_t scope;
    atomic_bool cancel;
    int cancel_after; /* progress calls (negative) or tokens until the request is cancelled; 0: never */
    int calls;
    bool unchecked; /* the cold engine is not asked */
} pair;

static const lg_engine_params plain = {.model_path = model_path,
                                       .backend = {.device = "cpu", .threads = 1},
                                       .ctx = CTX,
                                       .kv_type = LG_F16,
                                       .chunk = 64,
                                       .cache_ram = 64 << 20,
                                       .cache_min = 40};

static lg_engine *open_engine(const lg_engine_params *p)
{
    lg_engine *e;
    lg_err err = {0};

    if (lg_engine_open(p, &e, &err) != LG_OK)
        fail_msg("%s: %s", err.subject, err.msg);
    return e;
}

static void pair_open(pair *p, const lg_engine_params *how)
{
    lg_engine_params cold = *how;

    *p = (pair){.warm = open_engine(how)};
    cold.cache_ram = 1;
    p->cold = open_engine(&cold);
}

static void pair_close(pair *p)
{
    assert_int_equal(p->warm->cache.active, false);
    assert_true(lg_prefix_check(p->warm->px));
    lg_ids_free(&p->reply);
    lg_engine_close(p->warm);
    lg_engine_close(p->cold);
}

static void count_call(pair *p, int what)
{
    if (what == (p->cancel_after > 0) && ++p->calls == abs(p->cancel_after))
        atomic_store(&p->cancel, true);
}

static void on_prefill(void *ctx, size_t done, size_t total)
{
    (void)done;
    (void)total;
    if (((pair *)ctx)->cancel_after)
        count_call(ctx, 0);
}

static void on_event(void *ctx, const lg_event *ev)
{
    (void)ev;
    if (((pair *)ctx)->cancel_after)
        count_call(ctx, 1);
}

static void ignore(void *ctx, const lg_event *ev)
{
    (void)ctx;
    (void)ev;
}

static const lg_logit_bias endless[] = {{2, -100}, {24, -100}}; // no reply ends by itself

static lg_gen_params params(pair *p, const lg_prompt_mark *mark, size_t n_mark, int reply)
{
    lg_gen_params g = {.sampling = lg_sampling_default(),
                       .max_tokens = reply,
                       .max_think = -1,
                       .max_reply_bytes = 1 << 20,
                       .event = on_event,
                       .prefill = on_prefill,
                       .ctx = p,
                       .cancel = &p->cancel,
                       .mark = mark,
                       .n_mark = n_mark,
                       .cache = p->mode,
                       .scope = p->scope};

    g.reply.raw = true;
    g.sampling.temperature = 0;
    g.sampling.bias = endless;
    g.sampling.n_bias = 2;
    atomic_store(&p->cancel, false);
    p->calls = 0;
    return g;
}

// A request to both; returns K.
static int64_t ask(pair *p, const int32_t *ids, size_t n, const lg_prompt_mark *mark, size_t n_mark,
                   int reply)
{
    static float logits[V];
    lg_gen_params g = params(p, mark, n_mark, reply);
    lg_gen_stats cold;
    lg_ids want = {0};
    lg_err err = {0};
    lg_cache_stats before, after;
    lg_peek peek;
    const float *row;

    lg_engine_cache_stats(p->warm, &before);
    lg_engine_peek(p->warm, &(lg_cache_ask){.ids = ids, .n = n, .mode = p->mode, .scope = p->scope}, &peek,
                   NULL);
    p->reply.n = 0;
    if (lg_generate(p->warm, ids, n, &g, &p->s, &p->reply, &err) != LG_OK)
        fail_msg("%s", err.msg);
    lg_engine_cache_stats(p->warm, &after);
    // an estimate with nothing in between is exact, but for what parking the live sequence pushed out
    if (p->mode == LG_CACHE_NO_STORE && after.now.evicted_cuts > before.now.evicted_cuts)
        assert_true(p->s.cached_tokens <= peek.cached);
    else
        assert_int_equal(peek.cached, p->s.cached_tokens);
    assert_true(p->s.cached_tokens < (int64_t)n && p->s.found.lcp >= p->s.cached_tokens);
    assert_true(lg_prefix_check(p->warm->px));
    if (p->unchecked || p->s.end == LG_END_CANCELLED)
        return p->s.cached_tokens;
    bool readable = reply == 1 && lg_engine_logits(p->warm, 0, &row, &err) == LG_OK;
    if (readable)
        memcpy(logits, row, sizeof logits);
    g.cache = LG_CACHE_OFF;
    g.event = ignore;
    g.prefill = NULL;
    g.cancel = NULL;
    assert_int_equal(lg_generate(p->cold, ids, n, &g, &cold, &want, &err), LG_OK);
    assert_int_equal(cold.cached_tokens, 0);
    assert_int_equal(p->reply.n, want.n);
    assert_memory_equal(p->reply.p, want.p, want.n * sizeof *want.p);
    if (readable) {
        assert_int_equal(lg_engine_logits(p->cold, 0, &row, &err), LG_OK);
        assert_memory_equal(logits, row, sizeof logits);
    }
    lg_ids_free(&want);
    return p->s.cached_tokens;
}

static void fill(int32_t *ids, int from, int to, uint64_t seed)
{
    uint64_t rng = seed;

    if (from < to)
        ids[from++] = 70 + (int32_t)(seed * 13 % 400); // begins unlike those of other seeds
    for (int i = from; i < to; i++)
        ids[i] = 70 + (int32_t)(mk_uniform(&rng) * 400);
}

// --- equality ---

static lg_prompt_mark turn_at(int64_t pos)
{
    return (lg_prompt_mark){.kind = LG_MARK_TURN, .message = -1, .token = pos};
}

// Cut, go far beyond, come back at the cut and one token before it.
static void cut_and_rewind(const lg_engine_params *how, const int *at, size_t n)
{
    static int32_t a[LONG], b[LONG];
    pair p;

    pair_open(&p, how);
    for (size_t i = 0; i < n; i++) {
        fill(a, 0, LONG, 1000 + i);
        memcpy(b, a, sizeof b);
        lg_prompt_mark turn = turn_at(at[i]);
        p.unchecked = true;
        (void)ask(&p, a, (size_t)at[i] + 300, &turn, 1, 1);
        p.unchecked = false;
        fill(b, at[i], at[i] + 40, 77); // differs from the cut on
        b[at[i]] = a[at[i]] + 1;
        assert_int_equal(ask(&p, b, (size_t)at[i] + 40, NULL, 0, 1), at[i]);
        if (at[i] > 1) {
            b[at[i] - 1] = a[at[i] - 1] + 1; // and one token before it
            assert_int_equal(ask(&p, b, (size_t)at[i] + 40, NULL, 0, 1), at[i] - 1);
            assert_int_equal(ask(&p, a, (size_t)at[i], NULL, 0, 1), at[i] - 1); // exactly what was cut
        }
        lg_engine_cache_clear(p.warm);
    }
    pair_close(&p);
}

static void cuts_everywhere(void **state)
{
    static const int at[] = {1, 7, 8, 9, 63, 64, 65, 128, 504, 512, 513, 520, 1025, 1040};
    lg_engine_params how = plain;

    (void)state;
    cut_and_rewind(&how, at, sizeof at / sizeof *at);
    how.chunk = 300; // cuts inside chunks
    cut_and_rewind(&how, at + 4, 6);
}

static void cuts_of_all_types(void **state)
{
    static const int at[] = {8, 65, 200, 513};
    lg_engine_params how = plain;

    (void)state;
    how.kv_type = LG_F32;
    cut_and_rewind(&how, at, 4);
    how.kv_type = LG_Q8_0;
    cut_and_rewind(&how, at, 4);
}

// All rows of F and W that the live sequence holds are those of a sequence that was never anything else.
static void rows_are_equal(const pair *p)
{
    const lg_engine *a = p->warm;
    lg_engine *b = p->cold;
    lg_err err = {0};

    (void)lg_engine_truncate(b, 0);
    lg_eval all = {.ids = lg_engine_tokens(a), .n = (size_t)lg_engine_pos(a)};
    assert_int_equal(lg_engine_eval(b, &all, &err), LG_OK);
    for (int c = 0; c < LG_KV_DRAFT; c++) {
        const lg_kv_class *k = &a->kv.cls[c], *l = &b->kv.cls[c];
        int64_t from = k->window ? a->kv.pos - k->window + 1 : 0;
        for (int64_t q = from > 0 ? from : 0; q < a->kv.pos; q++)
            for (int i = 0; i < k->n_layer * 2 * k->n_kv_head; i++) {
                int layer = i / (2 * k->n_kv_head), v = i / k->n_kv_head % 2, head = i % k->n_kv_head;
                size_t x = lg_kv_offset(k, a->kv.pool[c].table[q / LG_KV_BLOCK], layer, v, head,
                                        (int)(q % LG_KV_BLOCK));
                size_t y = lg_kv_offset(l, b->kv.pool[c].table[q / LG_KV_BLOCK], layer, v, head,
                                        (int)(q % LG_KV_BLOCK));
                assert_memory_equal((char *)k->mem.p + x, (char *)l->mem.p + y, k->row_bytes);
            }
    }
}

static void resumed_equals_never_left(void **state)
{
    static int32_t a[LONG], b[LONG];
    pair p;

    (void)state;
    pair_open(&p, &plain);
    fill(a, 0, LONG, 5);
    fill(b, 0, LONG, 6);
    (void)ask(&p, a, 1500, NULL, 0, 50);
    memcpy(a + 1500, p.reply.p, p.reply.n * sizeof *a);
    (void)ask(&p, b, 1800, NULL, 0, 10); // another conversation in between
    assert_int_equal(ask(&p, a, 1600, NULL, 0, 1), 1549);
    assert_int_equal(p.s.found.from, LG_CACHE_MEMORY);
    assert_int_equal(p.s.found.cut, LG_CUT_SLOT);
    rows_are_equal(&p);
    assert_int_equal(ask(&p, b, 1801, NULL, 0, 1), 1801 - 1);
    rows_are_equal(&p);
    pair_close(&p);
}

// One transcript of a session, whatever the cache may do.
static void one_transcript(void **state)
{
    enum { TURNS = 8, CONFIGS = 8 };
    static int32_t ids[LONG];
    static int32_t transcript[TURNS][16];
    uint64_t rng = 99;

    (void)state;
    for (int config = 0; config < CONFIGS; config++) {
        lg_engine_params how = plain;
        pair p;
        how.cache_slots = config == 1 ? 1 : 16;
        how.cache_ram = config == 2 ? 100 << 10 : config == 3 ? 1 : plain.cache_ram;
        how.cache_step = config == 4 ? 64 : 0;
        how.chunk = config == 5 ? 200 : 64;
        pair_open(&p, &how);
        p.unchecked = true;
        p.mode = config == 6 ? LG_CACHE_OFF : config == 7 ? LG_CACHE_NO_STORE : LG_CACHE_USE;
        rng = 99;
        fill(ids, 0, LONG, 1);
        for (int t = 0; t < TURNS; t++) {
            int at = (int)(mk_uniform(&rng) * 500), n = at + 60 + (int)(mk_uniform(&rng) * 300);
            if (t % 3 == 0)
                fill(ids, 0, 100, (uint64_t)(t % 2));
            fill(ids, at, n, (uint64_t)(t * 31));
            lg_prompt_mark turn = turn_at(at + 10);
            (void)ask(&p, ids, (size_t)n, &turn, 1, 16);
            assert_int_equal(p.reply.n, 16);
            if (config == 0)
                memcpy(transcript[t], p.reply.p, sizeof transcript[t]);
            assert_memory_equal(p.reply.p, transcript[t], sizeof transcript[t]);
        }
        pair_close(&p);
    }
}

// A drafter's rows come back with a cut, or are missing: the answer and K are the same.
static void with_a_drafter(void **state)
{
    static int32_t a[LONG], b[LONG];
    lg_engine_params how = plain, cold;
    lg_err err = {0};
    pair p = {0};

    (void)state;
    how.model_path = LG_TEST_DIR "/golden/laguna-tiny-s.gguf";
    cold = how;
    how.draft_path = LG_TEST_DIR "/golden/laguna-tiny-s-dflash.gguf";
    how.draft_required = true;
    if (lg_engine_open(&how, &p.warm, &err) != LG_OK)
        fail_msg("%s: %s", err.subject, err.msg);
    p.cold = open_engine(&cold);
    fill(a, 0, LONG, 51);
    fill(b, 0, LONG, 52);
    (void)ask(&p, a, 700, NULL, 0, 40);
    memcpy(a + 700, p.reply.p, p.reply.n * sizeof *a);
    assert_int_equal(p.warm->kv.draft_to, p.warm->kv.pos);
    int64_t held = p.warm->kv.pos;
    assert_true(p.warm->kv.draft_from < held);
    (void)ask(&p, b, 500, NULL, 0, 10);
    lg_prefix_match m;
    lg_prefix_find(p.warm->px, 0, a, 760, 759, &m);
    assert_true(m.k == held && m.cut->kv.draft_n > 0);
    assert_int_equal(ask(&p, a, 760, NULL, 0, 40), held);
    assert_true(p.s.draft.rounds + p.s.draft.plain > 0);
    (void)ask(&p, b, 501, NULL, 0, 10);
    // the rows of another drafter, say: without them the hit stays
    for (lg_prefix_cut *c = p.warm->px->cuts; c; c = c->next) {
        for (int i = 0; i < c->kv.draft_n; i++)
            lg_kv_release(&p.warm->kv, LG_KV_DRAFT, c->kv.draft_block[i]);
        c->kv.draft_n = 0;
        c->kv.draft_from = -1;
    }
    assert_int_equal(ask(&p, a, 760, NULL, 0, 40), 759);
    pair_close(&p);
}

// --- agents ---

enum { SYS = 400 };
static const lg_prompt_mark agent_marks[] = {{LG_MARK_SYS, -1, SYS},
                                             {LG_MARK_MESSAGE, 0, SYS},
                                             {LG_MARK_TURN, -1, SYS + 100},
                                             {LG_MARK_DURABLE, -1, SYS + 100}};

// System text, the user's message, and `loop` tokens of tool results and calls behind them.
static size_t agent(int32_t *ids, uint64_t user)
{
    fill(ids, 0, SYS, 1);
    fill(ids, SYS, SYS + 100, user);
    return SYS + 100;
}

static void tool_loop(void **state)
{
    static int32_t ids[LONG];
    pair p;
    size_t n = agent(ids, 2);

    (void)state;
    pair_open(&p, &plain);
    assert_int_equal(ask(&p, ids, n, agent_marks, 4, 30), 0);
    for (int i = 0; i < 10; i++) {
        int64_t held = (int64_t)n + 29; // the newest token has no row yet
        memcpy(ids + n, p.reply.p, 30 * sizeof *ids);
        n += 30;
        fill(ids, (int)n, (int)n + 45, 100 + (uint64_t)i);
        n += 45;
        assert_int_equal(ask(&p, ids, n, agent_marks, 4, 30), held);
        assert_int_equal(p.s.found.from, LG_CACHE_LIVE);
    }
    // the user speaks again, and the loop is rendered without its reasoning: everything behind the turn
    // differs
    fill(ids, SYS + 100, SYS + 300, 555);
    assert_int_equal(ask(&p, ids, SYS + 300, agent_marks, 4, 5), SYS + 100);
    assert_int_equal(p.s.found.cut, LG_CUT_TURN);
    assert_int_equal(p.s.found.diverge, LG_DIVERGE_MESSAGE);
    assert_int_equal(p.s.found.diverge_pos, SYS + 100);
    assert_int_equal(p.s.found.diverge_message, 0);
    // compaction, and the next run of the same agent
    fill(ids, SYS, SYS + 500, 556);
    assert_int_equal(ask(&p, ids, SYS + 500, agent_marks, 1, 5), SYS);
    assert_int_equal(p.s.found.cut, LG_CUT_SYS);
    pair_close(&p);
}

static void titles_in_between(void **state)
{
    static int32_t ids[LONG], title[100];
    lg_engine_params how = plain;
    lg_cache_stats s;
    pair p;
    size_t n = agent(ids, 3);

    (void)state;
    how.cache_min = 200;
    pair_open(&p, &how);
    (void)ask(&p, ids, n, agent_marks, 4, 30);
    for (int i = 0; i < 6; i++) {
        int64_t held = (int64_t)n + 29;
        memcpy(ids + n, p.reply.p, 30 * sizeof *ids);
        fill(title, 0, 100, 900 + (uint64_t)i);
        (void)ask(&p, title, 100, NULL, 0, 5);
        fill(ids, (int)n + 30, (int)n + 330, 200 + (uint64_t)i);
        n += 330;
        assert_int_equal(ask(&p, ids, n, agent_marks, 4, 30), held);
        lg_engine_cache_stats(p.warm, &s);
        assert_int_equal(s.now.slots, 1); // what was short left nothing
    }
    pair_close(&p);
}

// Four of one kind: what they have in common exists once.
static void sub_agents(void **state)
{
    static int32_t ids[4][LONG];
    lg_cache_stats s;
    pair p;
    size_t n = 0;

    (void)state;
    pair_open(&p, &plain);
    for (int step = 0; step < 4; step++)
        for (int i = 0; i < 4; i++) {
            if (step == 0) {
                n = agent(ids[i], 30 + (uint64_t)i);
                assert_int_equal(ask(&p, ids[i], n, agent_marks, 4, 10), i ? SYS : 0);
                continue;
            }
            n = SYS + 100 + (size_t)step * 300;
            fill(ids[i], (int)n - 300, (int)n, (uint64_t)(step * 10 + i));
            int64_t k = ask(&p, ids[i], n, agent_marks, 4, 10);
            assert_true(k >= (int64_t)n - 301);
        }
    lg_engine_cache_stats(p.warm, &s);
    assert_int_equal(s.now.slots, 4);
    int shared = 0;
    for (const node *x = p.warm->px->nodes; x; x = x->next)
        shared += x->begin == 0;
    assert_int_equal(shared, 1);
    assert_int_equal(p.warm->px->n_tokens, SYS + 4 * (100 + 900) + 13 * 9); // and ends of 13 answers
    pair_close(&p);
}

static void volatile_text(void **state)
{
    static int32_t ids[LONG];
    static const lg_prompt_mark marks[] = {{LG_MARK_MESSAGE, 0, 5},
                                           {LG_MARK_SYS, -1, 1000},
                                           {LG_MARK_MESSAGE, 1, 1000},
                                           {LG_MARK_TURN, -1, 1100}};
    pair p;

    (void)state;
    pair_open(&p, &plain);
    fill(ids, 0, 1100, 8);
    (void)ask(&p, ids, 1100, marks, 4, 5);
    for (int i = 0; i < 4; i++) { // the time in the middle of the system text
        fill(ids, 600, 606, 50 + (uint64_t)i);
        assert_int_equal(ask(&p, ids, 1100, marks, 4, 5), i ? 600 : 0);
        assert_int_equal(p.s.found.lcp, 600);
        assert_int_equal(p.s.found.diverge, LG_DIVERGE_SYSTEM);
        assert_int_equal(p.s.found.diverge_pos, 600);
        if (i)
            assert_int_equal(p.s.found.cut, LG_CUT_BRANCH);
    }
    pair_close(&p);
}

// Edits anywhere: not more is computed than the changed end and one distance between cuts.
static void edits(void **state)
{
    enum { STEP = 128 };
    static int32_t ids[LONG];
    lg_engine_params how = plain;
    uint64_t rng = 3;
    pair p;

    (void)state;
    how.cache_step = STEP;
    how.cache_ram = 500 << 20;
    pair_open(&p, &how);
    fill(ids, 0, 1000, 9);
    (void)ask(&p, ids, 1000, NULL, 0, 5);
    for (int i = 0; i < 8; i++) {
        int at = (int)(mk_uniform(&rng) * 900);
        fill(ids, at, 1000, 1000 + (uint64_t)i);
        int64_t k = ask(&p, ids, 1000, NULL, 0, 5);
        assert_true(k >= at - STEP - how.chunk);
    }
    pair_close(&p);
}

static void cancelled(void **state)
{
    static int32_t ids[LONG], other[LONG];
    pair p;

    (void)state;
    pair_open(&p, &plain);
    fill(other, 0, 600, 4);
    for (int round = 0; round < 2; round++) // a retry at once, and after somebody else
        for (int i = 0; i < 6; i++) {
            static const int after[] = {-2, -3, -9, 1, 5, 40};
            fill(ids, 0, 800, 300 + (uint64_t)(round * 10 + i));
            p.cancel_after = after[i];
            p.unchecked = true;
            (void)ask(&p, ids, 800, NULL, 0, 60);
            assert_int_equal(p.s.end, LG_END_CANCELLED);
            int64_t held = lg_engine_pos(p.warm);
            p.cancel_after = 0;
            if (round)
                (void)ask(&p, other, 600, NULL, 0, 5);
            p.unchecked = false;
            int64_t k = ask(&p, ids, 800, NULL, 0, 20);
            if (after[i] > 0)
                assert_int_equal(k, 799); // one row
            else if (!round || held >= 256)
                assert_int_equal(k, held); // what was finished
        }
    pair_close(&p);
}

static void modes_and_scopes(void **state)
{
    static int32_t ids[LONG], other[LONG];
    lg_cache_stats before, after;
    pair p;

    (void)state;
    pair_open(&p, &plain);
    fill(ids, 0, 900, 21);
    memcpy(other, ids, sizeof ids);
    fill(other, 500, 900, 22);
    (void)ask(&p, ids, 700, NULL, 0, 10);
    int64_t pos = lg_engine_pos(p.warm);
    lg_engine_cache_stats(p.warm, &before);
    p.mode = LG_CACHE_NO_STORE;
    assert_int_equal(ask(&p, ids, 800, NULL, 0, 10), 700); // may hit ...
    assert_int_equal(lg_engine_pos(p.warm), pos);          // ... and leaves the live sequence as it was
    assert_int_equal(ask(&p, ids, 800, NULL, 0, 10), 700); // ... and left nothing
    p.mode = LG_CACHE_OFF;
    assert_int_equal(ask(&p, ids, 800, NULL, 0, 10), 0);
    assert_int_equal(lg_engine_pos(p.warm), pos);
    lg_engine_cache_stats(p.warm, &after);
    assert_int_equal(after.now.tokens, before.now.tokens);
    assert_int_equal(after.now.n_pins, 0);
    p.mode = LG_CACHE_USE;
    assert_int_equal(ask(&p, ids, 800, NULL, 0, 10), 700);
    p.scope = 7; // another key
    assert_int_equal(ask(&p, ids, 800, NULL, 0, 10), 0);
    assert_int_equal(ask(&p, ids, 800, NULL, 0, 10), 799);
    p.scope = 0;
    assert_int_equal(ask(&p, ids, 800, NULL, 0, 10), 799);
    pair_close(&p);
}

// --- memory ---

static void within_the_budget(void **state)
{
    static int32_t ids[LONG];
    lg_engine_params how = plain;
    lg_cache_stats s;
    pair p;

    (void)state;
    how.cache_ram = 400 << 10;
    pair_open(&p, &how);
    p.unchecked = true;
    for (int i = 0; i < 50; i++) {
        fill(ids, 0, 300, 4000 + (uint64_t)i);
        assert_int_equal(ask(&p, ids, 300, NULL, 0, 2), 0);
        lg_engine_cache_stats(p.warm, &s);
        assert_true(s.now.bytes <= how.cache_ram && s.now.budget_bytes == how.cache_ram);
    }
    assert_true(s.now.evicted_cuts > 0);
    uint64_t committed = 0;
    for (int c = 0; c < LG_KV_CLASSES; c++)
        committed += (uint64_t)(p.warm->kv.pool[c].n_fresh - p.warm->kv.pool[c].n_clean) *
                     p.warm->kv.cls[c].block_bytes;
    assert_true(committed <= p.warm->kv.max_bytes);
    fill(ids, 0, 1500, 1); // larger than the budget
    p.unchecked = false;
    (void)ask(&p, ids, 1500, NULL, 0, 2);
    pair_close(&p);
}

// A, B, C in turn with memory for two: what all begin with stays.
static void the_shared_prefix_survives(void **state)
{
    static int32_t ids[LONG];
    lg_engine_params how = plain;
    lg_cache_stats s;
    pair p;

    (void)state;
    pair_open(&p, &how);
    p.unchecked = true;
    for (int i = 0; i < 3; i++) { // how much is two of them?
        (void)agent(ids, 60 + (uint64_t)i);
        fill(ids, SYS + 100, 1600, 70 + (uint64_t)i);
        (void)ask(&p, ids, 1600, agent_marks, 4, 2);
    }
    lg_engine_cache_stats(p.warm, &s);
    pair_close(&p);
    how.cache_ram = s.now.bytes / 2;
    pair_open(&p, &how);
    p.unchecked = true;
    for (int i = 0; i < 12; i++) {
        (void)agent(ids, 60 + (uint64_t)i % 3);
        fill(ids, SYS + 100, 1600, 70 + (uint64_t)i % 3);
        int64_t k = ask(&p, ids, 1600, agent_marks, 4, 2);
        assert_true(i == 0 || k >= SYS);
    }
    pair_close(&p);
}

static void pins(void **state)
{
    static int32_t ids[LONG], other[LONG];
    lg_engine_params how = plain;
    lg_prefix_pin pin = {0};
    lg_cache_stats s;
    lg_peek peek;
    pair p;

    (void)state;
    how.cache_ram = 900 << 10;
    pair_open(&p, &how);
    p.unchecked = true;
    fill(ids, 0, 1000, 31);
    (void)ask(&p, ids, 1000, NULL, 0, 20);
    memcpy(ids + 1000, p.reply.p, 20 * sizeof *ids);
    fill(ids, 1020, 1100, 32);
    lg_cache_ask queued = {.ids = ids, .n = 1100};
    lg_engine_peek(p.warm, &queued, &peek, &pin);
    assert_int_equal(peek.cached, 1019);
    for (int i = 0; i < 20; i++) {
        fill(other, 0, 1000, 5000 + (uint64_t)i);
        (void)ask(&p, other, 1000, NULL, 0, 2);
    }
    lg_engine_cache_stats(p.warm, &s);
    assert_int_equal(s.now.n_pins, 1);
    assert_int_equal(ask(&p, ids, 1100, NULL, 0, 2), 1019);
    lg_engine_unpin(p.warm, &pin);
    lg_engine_unpin(p.warm, &pin); // once is enough, twice no harm
    lg_engine_cache_stats(p.warm, &s);
    assert_int_equal(s.now.n_pins, 0);
    pair_close(&p);
}

// --- prefill without sampling ---

static int prefill_calls;
static atomic_bool prefill_cancel;

static void on_idle(void *ctx, size_t done, size_t total)
{
    (void)ctx;
    assert_true(done <= total);
    if (++prefill_calls == 4)
        atomic_store(&prefill_cancel, true);
}

static void idle_prefill(void **state)
{
    static int32_t ids[LONG];
    lg_err err = {0};
    int64_t done;
    pair p;
    size_t n = agent(ids, 40);

    (void)state;
    pair_open(&p, &plain);
    (void)ask(&p, ids, n, agent_marks, 4, 200);
    fill(ids, SYS + 100, SYS + 800, 41); // as it will be rendered when the user speaks next
    lg_cache_ask history = {.ids = ids, .n = SYS + 800, .mark = agent_marks, .n_mark = 4};
    atomic_store(&prefill_cancel, false);
    prefill_calls = 0;
    assert_int_equal(lg_engine_prefill(p.warm, &history, &prefill_cancel, on_idle, NULL, &done, &err),
                     LG_E_CANCELLED);
    assert_int_equal(done, 3 * 64);
    atomic_store(&prefill_cancel, false);
    assert_int_equal(lg_engine_prefill(p.warm, &history, &prefill_cancel, NULL, NULL, &done, &err), LG_OK);
    assert_int_equal(done, 700 - 3 * 64); // it went on where it had stopped
    assert_int_equal(lg_engine_prefill(p.warm, &history, NULL, NULL, NULL, &done, &err), LG_OK);
    assert_int_equal(done, 0); // never twice
    fill(ids, SYS + 800, SYS + 900, 42);
    assert_int_equal(ask(&p, ids, SYS + 900, agent_marks, 4, 1), SYS + 800);
    history.n = CTX + 1;
    assert_int_equal(lg_engine_prefill(p.warm, &history, NULL, NULL, NULL, &done, &err), LG_E_LIMIT);
    pair_close(&p);
}

// --- rates ---

static void rates(void **state)
{
    static const lg_hparams hp = {.n_layer = 2,
                                  .hidden = 256,
                                  .vocab = 1000,
                                  .n_kv_head = 2,
                                  .head_dim = 64,
                                  .window = 512,
                                  .n_full = 2,
                                  .ffn_dense = 512,
                                  .layer = {{.n_head = 8, .dense = true}, {.n_head = 8, .dense = true}}};
    lg_rates r;

    (void)state;
    lg_rates_init(&r, &hp);
    assert_false(lg_rates_measured(&r.prefill));
    double near = lg_rates_prefill_us(&r, 0, 1000), far = lg_rates_prefill_us(&r, 100000, 101000);
    assert_true(near > 0 && far > near);
    assert_true(lg_rates_prefill_us(&r, 500, 500) == 0);
    double whole = lg_rates_prefill_us(&r, 0, 200000), parts = 0;
    for (int i = 0; i < 200; i++)
        parts += lg_rates_prefill_us(&r, i * 1000, (i + 1) * 1000);
    assert_true(fabs(whole - parts) < 1e-6 * whole);
    lg_rates_add_prefill(&r, 0, 2048, 2048 * 50); // 50 us a token at 1k
    assert_true(lg_rates_measured(&r.prefill) && !lg_rates_measured(&r.decode));
    double now = lg_rates_prefill_us(&r, 0, 1000);
    assert_true(now > 49000 && now < 51000);
    assert_true(fabs(lg_rates_prefill_us(&r, 100000, 101000) / now - far / near) < 0.01 * far / near);
    for (int i = 0; i < 60; i++)
        lg_rates_add_prefill(&r, 0, 2048, 2048 * 20);
    now = lg_rates_prefill_us(&r, 0, 1000);
    assert_true(now > 19000 && now < 21000);
    for (int i = 0; i < 60; i++)
        lg_rates_add_decode(&r, 4096, 700);
    assert_true(fabs(lg_rates_decode_us(&r, 4096) - 700) < 1);
    assert_true(lg_rates_decode_us(&r, 250000) > 700);
}

// --- cancellation at random operations ---

// What the device does is counted, and the request is cancelled at an operation that the test chooses.
// Between two looks at the flag lies an operation at least, so every moment that matters can be chosen.
static const lg_ops *real_ops;
static atomic_bool *flag;
static long n_ops, cancel_at; // 0: never

static void count_op(void)
{
    if (++n_ops == cancel_at)
        atomic_store(flag, true);
}

static lg_status counted_begin(lg_backend *b, lg_key key, const lg_step *s, lg_begin *how, lg_err *err)
{
    count_op();
    return real_ops->begin(b, key, s, how, err);
}

static lg_status counted_end(lg_backend *b, lg_err *err)
{
    count_op();
    return real_ops->end(b, err);
}

static lg_status counted_wait(lg_backend *b, lg_err *err)
{
    count_op();
    return real_ops->wait(b, err);
}

static void counted_linear(lg_backend *b, const lg_tensor *x, const lg_part *parts, int n_parts)
{
    count_op();
    real_ops->linear(b, x, parts, n_parts);
}

static void counted_qkv_post(lg_backend *b, const lg_qkv_args *a)
{
    count_op();
    real_ops->qkv_post(b, a);
}

static void counted_attention(lg_backend *b, const lg_attn_args *a)
{
    count_op();
    real_ops->attention(b, a);
}

static void counted_moe(lg_backend *b, const lg_moe_args *a)
{
    count_op();
    real_ops->moe(b, a);
}

static void count_ops(pair *p, lg_ops *counted)
{
    lg_backend *b = lg_engine_backend(p->warm);

    real_ops = b->ops;
    flag = &p->cancel;
    *counted = *b->ops;
    counted->begin = counted_begin;
    counted->end = counted_end;
    counted->wait = counted_wait;
    counted->linear = counted_linear;
    counted->qkv_post = counted_qkv_post;
    counted->attention = counted_attention;
    counted->moe = counted_moe;
    b->ops = counted;
}

enum { FAMILIES = 5, HELD = 3, RANDOM_LONG = 500 };

// A prompt of one of a few families, so that rounds find what others left; returns its length.
static int random_prompt(int32_t *ids, uint64_t *rng)
{
    int n = 30 + (int)(mk_uniform(rng) * (RANDOM_LONG - 30)), own = (int)(mk_uniform(rng) * (double)n);

    fill(ids, 0, own, 40 + (uint64_t)(mk_uniform(rng) * FAMILIES));
    fill(ids, own, n, (uint64_t)(mk_uniform(rng) * 1e9));
    return n;
}

// One request, or one prefill ahead, that is cancelled at its operation `at`; 0: before it begins. Returns
// whether it was.
static bool one_cancelled(pair *p, const int32_t *ids, int n, bool ahead, long at)
{
    lg_gen_params g = params(p, NULL, 0, 12);
    const lg_cache_ask what = {.ids = ids, .n = (size_t)n, .mode = p->mode, .scope = p->scope};
    lg_status st;
    lg_err err = {0};

    atomic_store(&p->cancel, at == 0);
    n_ops = 0;
    cancel_at = at;
    if (ahead)
        st = lg_engine_prefill(p->warm, &what, &p->cancel, NULL, NULL, NULL, &err);
    else
        st = lg_generate(p->warm, ids, (size_t)n, &g, &p->s, NULL, &err);
    cancel_at = 0;
    assert_true(st == LG_OK || (ahead && st == LG_E_CANCELLED));
    return ahead ? st == LG_E_CANCELLED : p->s.end == LG_END_CANCELLED;
}

static void cancelled_anywhere(void **state)
{
    static int32_t ids[LONG];
    lg_prefix_pin pin[HELD] = {0};
    uint64_t rng = cancel_seed;
    long longest = 1; // operations of a request
    lg_engine_params how = plain;
    lg_cache_stats s;
    lg_peek peek;
    lg_ops counted;
    int n_cancelled = 0, held;
    pair p;

    (void)state;
    how.cache_ram = 1500 << 10; // a few conversations: eviction goes on meanwhile
    pair_open(&p, &how);
    count_ops(&p, &counted);
    for (int i = 0; i < cancel_rounds; i++) {
        int n = random_prompt(ids, &rng);
        double what = mk_uniform(&rng);

        p.mode = what < 0.1 ? LG_CACHE_NO_STORE : what < 0.15 ? LG_CACHE_OFF : LG_CACHE_USE;
        p.scope = mk_uniform(&rng) < 0.1;
        if (i % 16 == 0) { // in peace, and right
            n_ops = 0;
            (void)ask(&p, ids, (size_t)n, NULL, 0, 12);
            longest = n_ops > longest ? n_ops : longest;
        } else {
            bool ahead = mk_uniform(&rng) < 0.1;
            long at = (long)(mk_uniform(&rng) * mk_uniform(&rng) * (double)longest);

            n_cancelled += one_cancelled(&p, ids, n, ahead, at);
        }
        if (mk_uniform(&rng) < 0.2) // what a waiting request would hold, or let go
            lg_engine_unpin(p.warm, &pin[i % HELD]);
        else if (mk_uniform(&rng) < 0.2)
            lg_engine_peek(p.warm, &(lg_cache_ask){.ids = ids, .n = (size_t)n, .scope = p.scope}, &peek,
                           &pin[i % HELD]);
        held = (pin[0].cut != NULL) + (pin[1].cut != NULL) + (pin[2].cut != NULL);
        lg_engine_cache_stats(p.warm, &s);
        assert_int_equal(s.now.n_pins, held);
        assert_true(!p.warm->cache.active && lg_prefix_check(p.warm->px));
        assert_true(s.now.bytes <= s.now.budget_bytes);
    }
    assert_true(n_cancelled > cancel_rounds / 4);
    for (int i = 0; i < HELD; i++)
        lg_engine_unpin(p.warm, &pin[i]);
    lg_engine_cache_stats(p.warm, &s);
    assert_int_equal(s.now.n_pins, 0);
    pair_close(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_everywhere),
        cmocka_unit_test(cuts_of_all_types),
        cmocka_unit_test(resumed_equals_never_left),
        cmocka_unit_test(one_transcript),
        cmocka_unit_test(with_a_drafter),
        cmocka_unit_test(tool_loop),
        cmocka_unit_test(titles_in_between),
        cmocka_unit_test(sub_agents),
        cmocka_unit_test(volatile_text),
        cmocka_unit_test(edits),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(cancelled_anywhere),
        cmocka_unit_test(modes_and_scopes),
        cmocka_unit_test(within_the_budget),
        cmocka_unit_test(the_shared_prefix_survives),
        cmocka_unit_test(pins),
        cmocka_unit_test(idle_prefill),
        cmocka_unit_test(rates),
    };

    if (argc > 1)
        cancel_rounds = atoi(argv[1]);
    if (argc > 2)
        cancel_seed = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
