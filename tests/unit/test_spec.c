/*
 * Tests of speculative decoding on whole replies: whatever the drafter says, tokens, caches and random
 * numbers are those of plain decoding, and every way a reply can end leaves the sequence where plain decoding
 * leaves it.
 *
 * The engine's drafts pass through a wrapper of this file, which can replace them: by the right continuation,
 * by one with a wrong token, by nonsense.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_int.h"

enum { PROMPT = 32, REPLY = 80, VOCAB = 512, CTX = 1060 };

static const char model_path[] = LG_TEST_DIR "/golden/laguna-tiny-s.gguf";
static const char draft_path[] = LG_TEST_DIR "/golden/laguna-tiny-s-dflash.gguf"; // a window of 24
static const char wide_path[] = LG_TEST_DIR "/golden/laguna-tiny-s-dflash-nowin.gguf"; // of 512

// --- what is drafted ---

static enum { OWN, RIGHT, WRONG_AT, NONSENSE } mode;
static const int32_t *truth; // tokens of the reply, from its first one
static int64_t truth_from;   // position of the first
static int64_t n_truth;
static int wrong_at;

lg_status __real_lg_spec_draft(lg_engine *e, int n, int32_t *ids, float *confidence, atomic_bool *cancel,
                               lg_err *err);
lg_status __wrap_lg_spec_draft(lg_engine *e, int n, int32_t *ids, float *confidence, atomic_bool *cancel,
                               lg_err *err);

lg_status __wrap_lg_spec_draft(lg_engine *e, int n, int32_t *ids, float *confidence, atomic_bool *cancel,
                               lg_err *err)
{
    LG_TRY(__real_lg_spec_draft(e, n, ids, confidence, cancel, err));
    for (int i = 1; mode != OWN && i <= n; i++) {
        int64_t at = e->kv.pos + i - truth_from;
        int32_t right = at >= 0 && at < n_truth ? truth[at] : 5;
        bool wrong = mode == NONSENSE || (mode == WRONG_AT && i == wrong_at);
        ids[i] = wrong ? (right + 1) % VOCAB : right;
        confidence[i - 1] = 1;
    }
    return LG_OK;
}

// --- engines and replies ---

static lg_engine *open_pair(const char *draft, int max)
{
    lg_engine *e;

    mode = OWN;
    n_truth = 0;
    assert_int_equal(lg_engine_open(&(lg_engine_params){.model_path = model_path,
                                                        .backend = {.device = "cpu", .threads = 1, .isa = ""},
                                                        .ctx = CTX,
                                                        .kv_type = LG_F16,
                                                        .chunk = 64,
                                                        .draft_path = draft,
                                                        .draft_required = true,
                                                        .draft = {.max = max}},
                                    &e, NULL),
                     LG_OK);
    assert_true((lg_engine_drafter(e) != NULL) == (draft != NULL));
    return e;
}

static lg_engine *open_engine(bool drafter, int max)
{
    return open_pair(drafter ? draft_path : NULL, max);
}

static void ignore(void *ctx, const lg_event *ev)
{
    (void)ctx;
    (void)ev;
}

static lg_gen_params params(int64_t max_tokens)
{
    lg_gen_params p = {.sampling = lg_sampling_default(),
                       .max_tokens = max_tokens,
                       .max_think = -1,
                       .reply = {.raw = true},
                       .max_reply_bytes = 1 << 20,
                       .event = ignore};

    p.sampling.temperature = 0;
    return p;
}

static lg_gen_stats reply(lg_engine *e, const int32_t *prompt, size_t n, const lg_gen_params *p, lg_ids *out)
{
    lg_gen_stats stats;
    lg_err err = {0};

    out->n = 0;
    if (lg_generate(e, prompt, n, p, &stats, out, &err) != LG_OK)
        fail_msg("%s", err.msg);
    assert_true(lg_kv_check(&e->kv));
    assert_int_equal(out->n, stats.output_tokens);
    return stats;
}

static void make_prompt(int32_t *ids, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        ids[i] = 70 + (int32_t)(seed >> 16) % (VOCAB - 70);
    }
}

static void assert_same(const lg_ids *a, const lg_ids *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->p, b->p, a->n * sizeof *a->p);
}

// Rows [from, pos) of a class are the same bits in both engines.
static void assert_same_rows(const lg_engine *a, const lg_engine *b, lg_kv_class_id id, int64_t from)
{
    const lg_kv_class *c = &a->kv.cls[id];

    assert_int_equal(a->kv.pos, b->kv.pos);
    for (int64_t p = from > 0 ? from : 0; p < a->kv.pos; p++)
        for (int tile = 0; tile < c->n_layer * 2 * c->n_kv_head; tile++) {
            int layer = tile / (2 * c->n_kv_head), v = tile / c->n_kv_head % 2, head = tile % c->n_kv_head;
            size_t x = lg_kv_offset(c, a->kv.pool[id].table[p / LG_KV_BLOCK], layer, v, head,
                                    (int)(p % LG_KV_BLOCK));
            size_t y = lg_kv_offset(c, b->kv.pool[id].table[p / LG_KV_BLOCK], layer, v, head,
                                    (int)(p % LG_KV_BLOCK));
            assert_memory_equal((char *)a->kv.cls[id].mem.p + x, (char *)b->kv.cls[id].mem.p + y,
                                c->row_bytes);
        }
}

static void assert_same_caches(const lg_engine *a, const lg_engine *b)
{
    assert_same_rows(a, b, LG_KV_FULL, 0);
    assert_same_rows(a, b, LG_KV_WINDOW, a->kv.pos - a->kv.cls[LG_KV_WINDOW].window + 1);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->kv.pos * sizeof *a->tokens);
}

// --- tests ---

static void right_and_wrong_drafts(void **state)
{
    lg_engine *plain = open_engine(false, 0), *spec = open_engine(true, 0);
    int32_t prompt[PROMPT];
    lg_gen_params p = params(REPLY);
    lg_ids want = {0}, got = {0};

    (void)state;
    make_prompt(prompt, PROMPT, 1);
    (void)reply(plain, prompt, PROMPT, &p, &want);
    truth = want.p;
    n_truth = (int64_t)want.n;
    truth_from = PROMPT;
    mode = RIGHT;
    lg_gen_stats s = reply(spec, prompt, PROMPT, &p, &got);
    assert_same(&want, &got);
    assert_same_caches(plain, spec);
    assert_true(s.draft.accepted + 1 >= s.draft.drafted); // an end that was drafted is no row any more
    // the first token comes from the prompt; then blocks of 8
    assert_int_equal(s.draft.rounds, (got.n - 1 + 7) / 8);
    mode = NONSENSE;
    (void)lg_engine_truncate(spec, 0);
    s = reply(spec, prompt, PROMPT, &p, &got);
    assert_same(&want, &got);
    assert_same_caches(plain, spec);
    assert_int_equal(s.draft.accepted, 0);
    assert_int_equal(s.draft.rounds, 16); // then it gives up for this reply
    mode = OWN;
    (void)lg_engine_truncate(spec, 0);
    s = reply(spec, prompt, PROMPT, &p, &got);
    assert_same(&want, &got);
    lg_ids_free(&want);
    lg_ids_free(&got);
    lg_engine_close(plain);
    lg_engine_close(spec);
}

// A rejection at every place of a block: caches of target and drafter are bit by bit those of single steps.
static void reject_everywhere(const char *draft, int n, unsigned seed)
{
    lg_engine *plain = open_pair(draft, 1), *spec = open_pair(draft, 0);
    static int32_t prompt[CTX];
    lg_gen_params p = params(26);
    lg_ids want = {0}, got = {0};

    make_prompt(prompt, n, seed);
    mode = NONSENSE; // one wrong draft a round, then none: single steps, with the drafter's context kept
    (void)reply(plain, prompt, (size_t)n, &p, &want);
    truth = want.p;
    n_truth = (int64_t)want.n;
    truth_from = n;
    for (wrong_at = 1; wrong_at <= 8; wrong_at++) {
        mode = WRONG_AT; // the prompt is there from the last time
        lg_gen_stats s = reply(spec, prompt, (size_t)n, &p, &got);
        assert_same(&want, &got);
        assert_same_caches(plain, spec);
        assert_int_equal(spec->kv.draft_from, plain->kv.draft_from);
        assert_int_equal(spec->kv.draft_to, plain->kv.draft_to);
        assert_same_rows(plain, spec, LG_KV_DRAFT, spec->kv.pos - spec->kv.cls[LG_KV_DRAFT].window + 1);
        assert_true(s.draft.rounds > 0);
    }
    lg_ids_free(&want);
    lg_ids_free(&got);
    lg_engine_close(plain);
    lg_engine_close(spec);
}

// At lengths around the ends of windows and blocks, the drafter's first and second window among them.
static void rejections(void **state)
{
    (void)state;
    reject_everywhere(draft_path, 40, 3);
    reject_everywhere(draft_path, 575, 4);
    reject_everywhere(wide_path, 505, 5);
    reject_everywhere(wide_path, 1018, 6);
}

static void random_numbers(void **state)
{
    lg_engine *plain = open_engine(false, 0), *spec = open_engine(true, 0);
    int32_t prompt[PROMPT];
    lg_gen_params p = params(REPLY);
    lg_ids want = {0}, got = {0};
    int64_t accepted = 0;

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        make_prompt(prompt, PROMPT, 20 + i);
        p.sampling.temperature = i % 4 == 0 ? 0.3f : 1.0f;
        p.sampling.top_k = i % 4 == 3 ? 0 : 20; // the full row decides
        p.sampling.top_p = i % 3 ? 1 : 0.9f;
        p.sampling.repetition_penalty = i % 8 == 5 ? 1.2f : 1;
        p.sampling.frequency_penalty = i % 8 == 6 ? 0.5f : 0;
        p.sampling.seed = 1000 + i;
        (void)reply(plain, prompt, PROMPT, &p, &want);
        truth = want.p;
        n_truth = (int64_t)want.n;
        truth_from = PROMPT;
        mode = i % 2 ? OWN : WRONG_AT;
        wrong_at = (int)i % 8 + 1;
        lg_gen_stats s = reply(spec, prompt, PROMPT, &p, &got);
        assert_same(&want, &got);
        accepted += s.draft.accepted;
    }
    assert_true(accepted > 50);
    lg_ids_free(&want);
    lg_ids_free(&got);
    lg_engine_close(plain);
    lg_engine_close(spec);
}

// What the sampler should give for a row: temperature 1, the `k` likeliest tokens.
static void probabilities(const float *row, int k, double *p)
{
    double sum = 0;

    for (int v = 0; v < VOCAB; v++) {
        int above = 0;
        for (int w = 0; w < VOCAB; w++)
            above += row[w] > row[v] || (row[w] == row[v] && w < v);
        p[v] = above < k ? exp((double)row[v]) : 0;
        sum += p[v];
    }
    for (int v = 0; v < VOCAB; v++)
        p[v] /= sum;
}

// The row behind n ids, from single steps or a chunk, without drafts.
static const float *row_behind(lg_engine *e, const int32_t *ids, size_t n)
{
    const float *row;

    (void)lg_engine_truncate(e, 0);
    assert_int_equal(lg_engine_eval(e, &(lg_eval){.ids = ids, .n = n}, NULL), LG_OK);
    assert_int_equal(lg_engine_logits(e, 0, &row, NULL), LG_OK);
    return row;
}

static int32_t likeliest(const float *row)
{
    int32_t best = 0;

    for (int v = 1; v < VOCAB; v++)
        best = row[v] > row[best] ? v : best;
    return best;
}

// Over many seeds the second token of a reply, for which a draft was right or wrong, has the distribution
// that the model gives it behind the first.
static void distribution(void **state)
{
    enum { SAMPLES = 5000, K = 8 };
    lg_engine *plain = open_engine(false, 0), *spec = open_engine(true, 1);
    lg_gen_params p = params(3); // of three tokens the last one is never drafted
    static int count[VOCAB][VOCAB];
    int32_t prompt[PROMPT + 1], guess[2];
    double want[VOCAB], chi = 0;
    int n_free = 0; // classes less one for each first token
    int64_t accepted = 0;
    lg_ids got = {0};

    (void)state;
    make_prompt(prompt, PROMPT, 12);
    prompt[PROMPT] = guess[0] = likeliest(row_behind(plain, prompt, PROMPT));
    guess[1] = likeliest(row_behind(plain, prompt, PROMPT + 1));
    mode = RIGHT;
    truth = guess;
    n_truth = 2;
    truth_from = PROMPT;
    p.sampling.temperature = 1;
    p.sampling.top_k = K;
    lg_spec_pace(spec->spec)->set.pause_margin = 0; // a draft in every reply
    for (int i = 0; i < SAMPLES; i++) {
        p.sampling.seed = (uint64_t)i;
        accepted += reply(spec, prompt, PROMPT, &p, &got).draft.accepted;
        if (got.n > 1)
            count[got.p[0]][got.p[1]]++;
    }
    assert_true(accepted > SAMPLES / 50 && accepted < SAMPLES * 9 / 10);
    for (int32_t first = 0; first < VOCAB; first++) {
        int n = 0;
        for (int v = 0; v < VOCAB; v++)
            n += count[first][v];
        if (n < SAMPLES / 50)
            continue;
        prompt[PROMPT] = first;
        probabilities(row_behind(plain, prompt, PROMPT + 1), K, want);
        for (int v = 0; v < VOCAB; v++) {
            assert_true(want[v] > 0 || count[first][v] == 0);
            if (want[v] * n < 5)
                continue;
            chi += pow(count[first][v] - want[v] * n, 2) / (want[v] * n);
            n_free++;
        }
        n_free--;
    }
    assert_true(n_free > 30);
    assert_true(chi < n_free + 3.5 * sqrt(2.0 * n_free)); // about p = 0.0003
    lg_ids_free(&got);
    lg_engine_close(plain);
    lg_engine_close(spec);
}

// Both engines go on from a reply that ended in the middle of a block as if it had not.
static void same_next_turn(lg_engine *plain, lg_engine *spec, const int32_t *prompt, size_t n,
                           const lg_ids *answer)
{
    lg_gen_params p = params(20);
    static int32_t next[2 * CTX];
    lg_ids want = {0}, got = {0};

    memcpy(next, prompt, n * sizeof *next);
    memcpy(next + n, answer->p, answer->n * sizeof *next);
    make_prompt(next + n + answer->n, 10, 77);
    size_t total = n + answer->n + 10;
    if (total + 21 < CTX) {
        lg_gen_stats a = reply(plain, next, total, &p, &want), b = reply(spec, next, total, &p, &got);
        assert_same(&want, &got);
        assert_int_equal(a.cached_tokens, b.cached_tokens);
        assert_same_caches(plain, spec);
    }
    lg_ids_free(&want);
    lg_ids_free(&got);
}

static void ends(void **state)
{
    lg_engine *plain = open_engine(false, 0), *spec = open_engine(true, 0);
    static int32_t prompt[CTX];
    lg_ids want = {0}, got = {0};

    (void)state;
    mode = RIGHT;
    truth_from = PROMPT;
    make_prompt(prompt, PROMPT, 5);
    for (int limit = 1; limit < 18; limit += 2) { // the budget, at each place of a block
        lg_gen_params p = params(limit);
        lg_gen_stats a = reply(plain, prompt, PROMPT, &p, &want);
        truth = want.p;
        n_truth = (int64_t)want.n;
        lg_gen_stats b = reply(spec, prompt, PROMPT, &p, &got);
        assert_same(&want, &got);
        assert_int_equal(a.end, b.end);
        assert_same_caches(plain, spec);
        same_next_turn(plain, spec, prompt, PROMPT, &want);
    }
    for (int n = CTX - 13; n < CTX; n += 3) { // the context
        lg_gen_params p = params(0);
        make_prompt(prompt, n, 9);
        truth_from = n;
        lg_gen_stats a = reply(plain, prompt, (size_t)n, &p, &want);
        truth = want.p;
        n_truth = (int64_t)want.n;
        lg_gen_stats b = reply(spec, prompt, (size_t)n, &p, &got);
        assert_same(&want, &got);
        assert_int_equal(a.end, b.end);
        assert_same_caches(plain, spec);
    }
    lg_ids_free(&want);
    lg_ids_free(&got);
    lg_engine_close(plain);
    lg_engine_close(spec);
}

// An end-of-generation id that is a draft, right or wrong, anywhere in a block; banned bytes; no drafts
// asked.
static void stops_and_bans(void **state)
{
    lg_engine *plain = open_engine(false, 0), *spec = open_engine(true, 0);
    int32_t prompt[PROMPT];
    lg_logit_bias bias = {.id = 2, .bias = 9};
    lg_ids want = {0}, got = {0};
    lg_str ban[] = {LG_STR("a"), LG_STR("e")};
    int ended = 0;

    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        lg_gen_params p = params(30);
        make_prompt(prompt, PROMPT, 100 + i);
        p.sampling.temperature = 1;
        p.sampling.seed = i;
        if (i % 2) {
            p.sampling.bias = &bias;
            p.sampling.n_bias = 1;
        } else {
            p.ban = ban;
            p.n_ban = 2;
        }
        lg_gen_stats a = reply(plain, prompt, PROMPT, &p, &want);
        truth = want.p;
        n_truth = (int64_t)want.n;
        truth_from = PROMPT;
        mode = i % 3 ? RIGHT : OWN;
        lg_gen_stats b = reply(spec, prompt, PROMPT, &p, &got);
        assert_same(&want, &got);
        assert_int_equal(a.end, b.end);
        assert_same_caches(plain, spec);
        same_next_turn(plain, spec, prompt, PROMPT, &want);
        ended += a.end == LG_END_EOG;
    }
    assert_true(ended > 1);
    lg_gen_params p = params(40);
    p.no_draft = true;
    lg_gen_stats s = reply(spec, prompt, PROMPT, &p, &got);
    assert_false(s.draft.present);
    assert_int_equal(s.draft.rounds, 0);
    lg_ids_free(&want);
    lg_ids_free(&got);
    lg_engine_close(plain);
    lg_engine_close(spec);
}

// A reply without the drafter leaves a hole in its context; the next one drafts again, from the next block
// on, and never sees what is not there.
static void holes(void **state)
{
    lg_engine *plain = open_engine(false, 0), *spec = open_engine(true, 0);
    static int32_t prompt[CTX];
    lg_gen_params p = params(100), off = params(100);
    lg_ids want = {0}, got = {0};
    size_t n = PROMPT;

    (void)state;
    off.no_draft = true;
    make_prompt(prompt, PROMPT, 31);
    for (int turn = 0; turn < 4; turn++) {
        (void)reply(plain, prompt, n, &p, &want);
        lg_gen_stats s = reply(spec, prompt, n, turn % 2 ? &p : &off, &got);
        assert_same(&want, &got);
        assert_int_equal(s.draft.rounds > 0, turn % 2);
        if (turn % 2)
            assert_int_equal(spec->kv.draft_to, spec->kv.pos);
        memcpy(prompt + n, want.p, want.n * sizeof *prompt);
        make_prompt(prompt + n + want.n, 5, (unsigned)turn);
        n += want.n + 5;
    }
    lg_ids_free(&want);
    lg_ids_free(&got);
    lg_engine_close(plain);
    lg_engine_close(spec);
}

// A pause between two positions, whatever the clock says: the prices that decide about rows of the drafter's
// context are set at every token, and what the context lacked by then is kept.
typedef struct pause {
    lg_engine *e;
    int64_t from, until;
    double plain_us; // of a plain step: beside a tiny one every row is dear, beside a huge one none
    double purse;    // how far the next draft is
    int64_t gap;     // rows that the context lacked, at most
} pause;

static void keep_paused(void *ctx, const lg_gen_token *t)
{
    pause *n = ctx;
    lg_pace *p = lg_spec_pace(n->e->spec);
    int64_t pos = n->e->kv.pos;

    (void)t;
    if (pos >= n->until) {
        p->paused = false;
        p->set.pause_margin = 0; // from here on every round drafts
    } else if (pos >= n->from) {
        p->set.pause_margin = 1;
        p->paused = true;
        p->probe = 0;
        p->purse = n->purse;
        p->plain_us = pos < n->until - 100 ? n->plain_us : 1e12; // the newest rows are worth keeping
        p->n_plain = 100; // a mean that no step can replace
    }
    if (pos - n->e->kv.draft_to > n->gap)
        n->gap = pos - n->e->kv.draft_to;
}

// Drafts before and behind a pause of some 300 tokens; returns the rows that the context lacked at most, and
// where it begins at the end.
static int64_t pause_reply(double plain_us, double purse, int64_t *draft_from)
{
    lg_engine *plain = open_engine(false, 0), *spec = open_engine(true, 0);
    static int32_t prompt[PROMPT];
    pause n = {.e = spec, .from = PROMPT + 20, .until = 350, .plain_us = plain_us, .purse = purse};
    const lg_special *sp = lg_vocab_special(lg_engine_vocab(spec));
    const lg_logit_bias never[] = {{.id = sp->eos, .bias = -100}, {.id = sp->eot, .bias = -100}};
    lg_gen_params p = params(560), q = p;
    lg_ids want = {0}, got = {0};

    p.sampling.bias = q.sampling.bias = never;
    p.sampling.n_bias = q.sampling.n_bias = 2;
    q.token = keep_paused;
    q.ctx = &n;
    make_prompt(prompt, PROMPT, 1);
    (void)reply(plain, prompt, PROMPT, &p, &want);
    assert_true(want.n == 560);
    truth = want.p;
    n_truth = (int64_t)want.n;
    truth_from = PROMPT;
    mode = RIGHT;
    lg_gen_stats s = reply(spec, prompt, PROMPT, &q, &got);
    assert_same(&want, &got);
    assert_same_caches(plain, spec);
    assert_int_equal(spec->kv.draft_to, spec->kv.pos);
    assert_true(s.draft.accepted > 200);
    *draft_from = spec->kv.draft_from;
    lg_ids_free(&want);
    lg_ids_free(&got);
    lg_engine_close(plain);
    lg_engine_close(spec);
    return n.gap;
}

// In a long pause rows that no draft would see are not made where they are dear or no draft will come, and
// drafting comes back on a context that begins behind the gap; else they enter many at a time, without a gap.
static void long_pause(void **state)
{
    int64_t from;

    (void)state;
    assert_true(pause_reply(1e-6, -1000, &from) > 200);
    assert_true(from > PROMPT + 20);
    assert_true(pause_reply(1e12, -INFINITY, &from) > 200);
    assert_true(from > PROMPT + 20);
    int64_t gap = pause_reply(1e12, -1000, &from);
    assert_true(gap > 32 && gap <= 129);
    assert_int_equal(from, 0);
}

static void stop_at(void *ctx, const lg_event *ev)
{
    lg_engine *e = ((void **)ctx)[0];
    atomic_bool *cancel = ((void **)ctx)[1];

    (void)ev;
    if (e->kv.pos > PROMPT + 20)
        atomic_store(cancel, true);
}

static void cancelled(void **state)
{
    lg_engine *plain = open_engine(false, 0), *spec = open_engine(true, 0);
    int32_t prompt[PROMPT];
    atomic_bool cancel = false;
    void *both[] = {spec, &cancel};
    lg_gen_params p = params(REPLY), q = p;
    lg_ids want = {0}, got = {0};

    (void)state;
    q.cancel = &cancel;
    q.event = stop_at;
    q.ctx = both;
    make_prompt(prompt, PROMPT, 8);
    (void)reply(plain, prompt, PROMPT, &p, &want);
    lg_gen_stats s = reply(spec, prompt, PROMPT, &q, &got);
    assert_int_equal(s.end, LG_END_CANCELLED);
    assert_true(got.n < want.n && memcmp(want.p, got.p, got.n * sizeof *got.p) == 0);
    s = reply(spec, prompt, PROMPT, &p, &got); // and again
    assert_same(&want, &got);
    assert_int_equal(s.cached_tokens, PROMPT - 1);
    lg_ids_free(&want);
    lg_ids_free(&got);
    lg_engine_close(plain);
    lg_engine_close(spec);
}

// A drafter that does not fit: named when it was asked for, left aside when it was only found.
static void unusable(void **state)
{
    lg_engine_params p = {.model_path = LG_TEST_DIR "/golden/laguna-tiny-xs.gguf",
                          .backend = {.device = "cpu", .threads = 1, .isa = ""},
                          .ctx = 64,
                          .kv_type = LG_F16,
                          .draft_path = draft_path,
                          .draft_required = true};
    lg_engine *e = NULL;
    lg_err err = {0};

    (void)state;
    assert_int_equal(lg_engine_open(&p, &e, &err), LG_E_INPUT);
    assert_non_null(strstr(err.subject, "laguna-tiny-s-dflash.gguf"));
    assert_non_null(strstr(err.msg, "another model"));
    p.draft_required = false;
    assert_int_equal(lg_engine_open(&p, &e, &err), LG_OK);
    assert_null(lg_engine_drafter(e));
    lg_engine_close(e);
    p.draft_path = "no-such-file.gguf";
    p.draft_required = true;
    err = (lg_err){0};
    assert_int_equal(lg_engine_open(&p, &e, &err), LG_E_IO);
    assert_non_null(strstr(err.subject, "no-such-file.gguf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_and_wrong_drafts),
        cmocka_unit_test(rejections),
        cmocka_unit_test(random_numbers),
        cmocka_unit_test(distribution),
        cmocka_unit_test(ends),
        cmocka_unit_test(stops_and_bans),
        cmocka_unit_test(holes), cmocka_unit_test(long_pause),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(unusable),
    };

    return cmocka_run_group_tests_name("spec", tests, NULL, NULL);
}
