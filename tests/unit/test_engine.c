/*
 * Tests of engine/engine, generate and plan: whole replies of models whose weights are a script (the newest
 * token alone decides the next), reuse of the live sequence, cancellation, limits, and no allocation in a
 * decode step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine.h"
#include "support/maker.h"
#include "support/scratch.h"

static const char vocab_path[] = LG_TEST_DIR "/golden/vocab512.gguf";
static const char real_path[] = LG_TEST_DIR "/golden/laguna-tiny-xs.gguf";
static const char *path; // of the file that is written
enum { V = 512, H = 256, EOS = 2, THINK = 18, END_THINK = 19, ASSISTANT = 23, EOT = 24 };

// --- allocations: the link step routes the engine's through these ---

#if LG_WRAP_ALLOC
static long n_allocs;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

static long fail_at = -1; // this allocation from now fails; negative: none

static bool fails(void)
{
    n_allocs++;
    return fail_at >= 0 && fail_at-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}
#endif

// --- a model that follows a script ---

static int32_t next[V], otherwise; // next[t] comes after t where it is not -1

static void script_values(void *arg, const char *name, float *v, const uint64_t *ne, size_t n)
{
    static float embed[V * H];

    (void)arg;
    (void)ne;
    if (strcmp(name, "token_embd.weight") == 0) {
        for (int t = 0; t < V; t++)
            v[t * H] = 4; // what all tokens have in common
        memcpy(embed, v, sizeof embed);
    }
    if (strstr(name, "attn_output") || strstr(name, "ffn_down"))
        memset(v, 0, n * sizeof *v); // the layers add nothing
    if (strcmp(name, "output.weight") == 0) {
        memset(v, 0, n * sizeof *v);
        v[otherwise * H] = 2; // a logit of 8 after any token
        for (int t = 0; t < V; t++)
            for (int i = 1; i < H && next[t] >= 0; i++)
                v[next[t] * H + i] += embed[t * H + i] * 0.06f; // 15 for the next token, about 1 for others
    }
}

// Each token of the chain is followed by its neighbour, all others by `rest`.
static void script(int32_t rest, const int32_t *chain, int n)
{
    mk_model m = mk_default(vocab_path);

    otherwise = rest;
    for (int t = 0; t < V; t++)
        next[t] = -1;
    for (int i = 0; i + 1 < n; i++)
        next[chain[i]] = chain[i + 1];
    m.n_layer = 2;
    m.values = script_values;
    m.ctx = 1024;
    assert_true(mk_write(&m, path));
}
#define SCRIPT(rest, ...) script(rest, (int32_t[]){__VA_ARGS__}, (int)(sizeof(int32_t[]){__VA_ARGS__} / 4))

static lg_engine *open_file(const char *file, int64_t ctx)
{
    lg_engine *e;
    lg_err err = {0};

    if (lg_engine_open(&(lg_engine_params){.model_path = file,
                                           .backend = {.device = "cpu", .threads = 1},
                                           .ctx = ctx,
                                           .kv_type = LG_F16,
                                           .chunk = 32},
                       &e, &err) != LG_OK)
        fail_msg("%s: %s", err.subject, err.msg);
    return e;
}

// What a reply said, and knobs for the tests that interrupt it.
typedef struct heard {
    char content[4096], reasoning[4096];
    atomic_bool cancel;
    int cancel_at; // number of events, or of prefill calls when negative
    int n_events, n_prefill;
    size_t last_done;
} heard;

static void on_event(void *ctx, const lg_event *ev)
{
    heard *h = ctx;
    char *to = ev->kind == LG_EV_REASONING ? h->reasoning : h->content;

    if (ev->kind == LG_EV_REASONING || ev->kind == LG_EV_CONTENT)
        (void)snprintf(to + strlen(to), sizeof h->content - strlen(to), "%.*s", (int)ev->text.n, ev->text.p);
    if (++h->n_events == h->cancel_at)
        atomic_store(&h->cancel, true);
}

static void on_prefill(void *ctx, size_t done, size_t total)
{
    heard *h = ctx;

    assert_true(done >= h->last_done && done <= total);
    h->last_done = done;
    if (-++h->n_prefill == h->cancel_at)
        atomic_store(&h->cancel, true);
}

static lg_gen_params params(heard *h)
{
    lg_gen_params p = {.sampling = lg_sampling_default(),
                       .max_tokens = 60,
                       .max_think = -1,
                       .max_reply_bytes = 1 << 20,
                       .cancel = &h->cancel,
                       .event = on_event,
                       .prefill = on_prefill,
                       .ctx = h};

    *h = (heard){0};
    p.sampling.temperature = 0;
    return p;
}

static lg_ids generate(lg_engine *e, const int32_t *prompt, size_t n, const lg_gen_params *p, lg_gen_stats *s)
{
    lg_ids ids = {0};
    lg_err err = {0};

    ((heard *)p->ctx)->last_done = 0;
    if (lg_generate(e, prompt, n, p, s, &ids, &err) != LG_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(ids.n, s->output_tokens);
    return ids;
}

static void assert_ids(const lg_ids *got, const int32_t *want, size_t n)
{
    assert_int_equal(got->n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got->p[i], want[i]);
}

static int32_t id_of(lg_engine *e, const char *text)
{
    lg_ids ids = {0};

    assert_int_equal(lg_bpe_encode(lg_engine_bpe(e), lg_str_of(text), false, &ids, NULL), LG_OK);
    assert_int_equal(ids.n, 1);
    int32_t id = ids.p[0];
    lg_ids_free(&ids);
    return id;
}

// Byte tokens of the small vocabulary.
static int32_t byte_token(char c)
{
    return 70 + (unsigned char)c;
}

static void a_plain_reply(void **state)
{
    const int32_t a = byte_token('a'), b = byte_token('b'), c = byte_token('c');
    const int32_t prompt[] = {EOS, byte_token('q'), a}, want[] = {b, c, EOT};
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    SCRIPT(byte_token('z'), a, b, c, EOT);
    lg_engine *e = open_file(path, 0);
    assert_int_equal(lg_engine_plan(e)->ctx, 1024);
    assert_int_equal(id_of(e, "a"), a);
    lg_ids ids = generate(e, prompt, 3, &p, &s);
    assert_ids(&ids, want, 3);
    assert_string_equal(h.content, "bc");
    assert_true(s.end == LG_END_EOG && s.finish == LG_FINISH_STOP);
    assert_true(s.prompt_tokens == 3 && s.cached_tokens == 0 && s.output_tokens == 3 && s.think_tokens == 0);
    assert_true(s.think_exit == LG_THINK_NONE && s.first_token_us >= s.prefill_us && h.last_done == 3);
    // the ending token has no row; prompt and the tokens before it have
    assert_int_equal(lg_engine_pos(e), 5);
    assert_int_equal(lg_engine_tokens(e)[4], c);
    lg_ids_free(&ids);
    // again: all but the last prompt token is there
    ids = generate(e, prompt, 3, &p, &s);
    assert_ids(&ids, want, 3);
    assert_int_equal(s.cached_tokens, 2);
    lg_ids_free(&ids);
    // the same reply, sampled
    p.sampling.temperature = 1;
    p.sampling.seed = 5;
    ids = generate(e, prompt, 3, &p, &s);
    assert_ids(&ids, want, 3);
    assert_int_equal(s.seed, 5);
    lg_ids_free(&ids);
    lg_engine_close(e);
}

static void limits(void **state)
{
    const int32_t a = byte_token('a'), b = byte_token('b');
    int32_t prompt[64];
    lg_gen_stats s;
    lg_err err = {0};
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    for (int i = 0; i < 64; i++)
        prompt[i] = a;
    SCRIPT(a, a, b, a);
    lg_engine *e = open_file(path, 64);
    lg_ids ids = generate(e, prompt, 10, &p, &s);
    assert_true(s.end == LG_END_LENGTH && s.finish == LG_FINISH_LENGTH &&
                s.output_tokens == 54); // the context ends
    lg_ids_free(&ids);
    p.max_tokens = 7;
    ids = generate(e, prompt, 10, &p, &s);
    assert_true(s.end == LG_END_LENGTH && s.output_tokens == 7);
    lg_ids_free(&ids);
    ids = generate(e, prompt, 63, &p, &s);
    assert_int_equal(s.output_tokens, 1);
    lg_ids_free(&ids);
    p.prefill = NULL;
    assert_int_equal(lg_generate(e, prompt, 64, &p, &s, NULL, &err), LG_E_LIMIT);
    assert_non_null(strstr(err.msg, "prompt is too long: 64 tokens > 63 maximum"));
    assert_int_equal(lg_generate(e, prompt, 0, &p, &s, NULL, &err), LG_E_INPUT);
    prompt[3] = V;
    assert_int_equal(lg_generate(e, prompt, 10, &p, &s, NULL, &err), LG_E_INPUT);
    assert_non_null(strstr(err.msg, "512; the vocabulary has 0 to 511"));
    prompt[3] = -1;
    assert_int_equal(lg_generate(e, prompt, 10, &p, &s, NULL, &err), LG_E_INPUT);
    lg_logit_bias bias = {V, 1};
    p.sampling.bias = &bias;
    p.sampling.n_bias = 1;
    assert_int_equal(lg_generate(e, prompt, 10, &p, &s, NULL, &err), LG_E_INPUT);
    p.sampling.n_bias = 0;
    p.sampling.temperature = 9;
    assert_int_equal(lg_generate(e, prompt, 10, &p, &s, NULL, &err), LG_E_INPUT);
    lg_engine_close(e);
}

static void thinking_off_does_not_start_to_think(void **state)
{
    const int32_t a = byte_token('a');
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    SCRIPT(EOT, a, THINK);
    lg_engine *e = open_file(path, 0);
    lg_ids ids = generate(e, &a, 1, &p, &s);
    assert_int_not_equal(ids.p[0], THINK);
    lg_ids_free(&ids);
    p.reply.raw = true; // no parsing, no rules
    ids = generate(e, &a, 1, &p, &s);
    assert_int_equal(ids.p[0], THINK);
    lg_ids_free(&ids);
    lg_engine_close(e);
}

static void an_end_inside_the_reasoning_closes_it(void **state)
{
    const int32_t a = byte_token('a'), c = byte_token('c');
    const int32_t prompt[] = {EOS, ASSISTANT, THINK}, want[] = {a, END_THINK, c, EOT};
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    SCRIPT(EOT, THINK, a, EOS, END_THINK, c, EOT); // a is followed by the end of the whole turn
    lg_engine *e = open_file(path, 0);
    p.reply.thinking = p.reply.open_reasoning = true;
    for (int way = 0; way < 2; way++) { // from the candidates, and from the full row
        lg_logit_bias nothing = {300, 0};
        p.sampling.bias = &nothing;
        p.sampling.n_bias = way;
        h = (heard){0};
        lg_ids ids = generate(e, prompt, 3, &p, &s);
        assert_ids(&ids, want, 4);
        assert_string_equal(h.reasoning, "a");
        assert_string_equal(h.content, "c");
        assert_true(s.think_exit == LG_THINK_NATURAL && s.end == LG_END_EOG && s.injected_tokens == 0);
        lg_ids_free(&ids);
    }
    lg_engine_close(e);
}

static void the_graduated_exit(void **state)
{
    static const char sentence[] = "\nI have thought about this enough; now I will answer.\n";
    const int32_t a = byte_token('a'), b = byte_token('b'), c = byte_token('c'), dot = byte_token('.');
    const int32_t prompt[] = {EOS, ASSISTANT, THINK};
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);
    char want[256];

    (void)state;
    SCRIPT(EOT, THINK, a, b, a); // never ends by itself
    lg_engine *e = open_file(path, 0);
    p.reply.thinking = p.reply.open_reasoning = true;
    p.max_tokens = 200;
    p.max_think = 8;
    lg_ids ids = generate(e, prompt, 3, &p, &s);
    memset(want, 0, sizeof want);
    for (int i = 0; i < 8 + LG_THINK_WAIT; i++)
        want[i] = i % 2 ? 'b' : 'a';
    (void)snprintf(want + strlen(want), sizeof want - strlen(want), "%s", sentence);
    assert_string_equal(h.reasoning, want);
    assert_int_equal(s.think_exit, LG_THINK_WRAPPED);
    assert_int_equal(s.output_tokens, 8 + LG_THINK_WAIT + s.injected_tokens + 2); // and the tag, and the end
    assert_true(s.injected_tokens > 10 && s.end == LG_END_EOG);
    assert_true(s.think_tokens >= 8 + LG_THINK_WAIT + s.injected_tokens);
    lg_ids_free(&ids);
    p.max_think = 0;
    h = (heard){0};
    ids = generate(e, prompt, 3, &p, &s);
    assert_true(ids.p[0] == END_THINK && s.think_exit == LG_THINK_FORCED && s.injected_tokens == 1);
    assert_string_equal(h.reasoning, "");
    lg_ids_free(&ids);
    lg_engine_close(e);
    // a sentence that ends soon after the bound
    SCRIPT(EOT, THINK, a, b, c, dot, a);
    e = open_file(path, 0);
    p.max_think = 6;
    h = (heard){0};
    ids = generate(e, prompt, 3, &p, &s);
    (void)snprintf(want, sizeof want, "abc.abc.%s", sentence);
    assert_string_equal(h.reasoning, want);
    lg_ids_free(&ids);
    lg_engine_close(e);
}

static void the_floor_of_thinking(void **state)
{
    const int32_t a = byte_token('a'), prompt[] = {EOS, ASSISTANT, THINK};
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    SCRIPT(END_THINK, THINK, END_THINK, a, EOT); // the tag at every step
    lg_engine *e = open_file(path, 0);
    p.reply.thinking = p.reply.open_reasoning = true;
    lg_ids ids = generate(e, prompt, 3, &p, &s);
    assert_int_equal(ids.p[0], END_THINK);
    lg_ids_free(&ids);
    p.min_think = 9;
    ids = generate(e, prompt, 3, &p, &s);
    for (int i = 0; i < 9; i++)
        assert_true(ids.p[i] != END_THINK && ids.p[i] != EOS && ids.p[i] != EOT);
    assert_int_equal(ids.p[9], END_THINK);
    lg_ids_free(&ids);
    lg_engine_close(e);
}

static void stop_strings_and_bans(void **state)
{
    const int32_t a = byte_token('a'), b = byte_token('b'), c = byte_token('c'), d = byte_token('d');
    lg_str stop[] = {LG_STR("cd")}, ban[] = {LG_STR("c"), LG_STR("think")};
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    SCRIPT(EOT, a, b, c, d, a);
    lg_engine *e = open_file(path, 0);
    p.reply.stop = stop;
    p.reply.n_stop = 1;
    lg_ids ids = generate(e, &a, 1, &p, &s);
    assert_true(s.end == LG_END_STOP_STRING && s.finish == LG_FINISH_STOP && s.output_tokens == 3);
    assert_string_equal(h.content, "b");
    lg_ids_free(&ids);
    p.ban = ban;
    p.n_ban = 2;
    for (int way = 0; way < 2; way++) {
        lg_logit_bias nothing = {300, 0};
        p.sampling.bias = &nothing;
        p.sampling.n_bias = way;
        ids = generate(e, &a, 1, &p, &s);
        assert_int_equal(ids.p[0], b);
        for (size_t i = 0; i < ids.n; i++) {
            lg_str text = lg_vocab_bytes(lg_engine_vocab(e), ids.p[i]);
            assert_true(lg_vocab_is_added(lg_engine_vocab(e), ids.p[i]) ||
                        lg_str_find(text, ban[0], 0) == SIZE_MAX);
        }
        assert_int_equal(s.n_ban_skipped, 2 + 2); // "c" in two texts of added tokens, "think" in two
        lg_ids_free(&ids);
    }
    p.sampling.n_bias = 0;
    lg_logit_bias never[] = {{b, -100}};
    p.n_ban = 0;
    p.sampling.bias = never;
    p.sampling.n_bias = 1;
    ids = generate(e, &a, 1, &p, &s);
    assert_int_not_equal(ids.p[0], b);
    lg_ids_free(&ids);
    lg_engine_close(e);
}

// With random weights: candidates and full rows give the same text for the same seed, and another for
// another.
static void both_ways_sample_alike(void **state)
{
    const int32_t prompt[] = {EOS, 100, 200, 300};
    lg_logit_bias nothing = {300, 0};
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    lg_engine *e = open_file(real_path, 512);
    for (uint64_t seed = 0; seed < 6; seed++) {
        p.sampling.temperature = 2.5f;
        p.sampling.top_k = seed % 2 ? 20 : 40;
        p.sampling.top_p = seed % 3 ? 1.0f : 0.9f;
        p.sampling.seed = seed;
        p.reply.thinking = p.reply.open_reasoning = seed >= 3;
        p.max_think = seed >= 3 ? 40 : -1;
        p.sampling.n_bias = 0;
        lg_ids one = generate(e, prompt, 4, &p, &s);
        p.sampling.bias = &nothing;
        p.sampling.n_bias = 1;
        lg_ids two = generate(e, prompt, 4, &p, &s);
        assert_ids(&one, two.p, two.n);
        p.sampling.seed = seed + 100;
        lg_ids other = generate(e, prompt, 4, &p, &s);
        assert_true(other.n != one.n || memcmp(other.p, one.p, one.n * sizeof *one.p) != 0);
        lg_ids_free(&one);
        lg_ids_free(&two);
        lg_ids_free(&other);
    }
    lg_engine_close(e);
}

static void penalties_act(void **state)
{
    const int32_t a = byte_token('a');
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);
    int most = 0;

    (void)state;
    SCRIPT(byte_token('b'), a, a); // the same token for ever
    lg_engine *e = open_file(path, 0);
    p.max_tokens = 30;
    p.sampling.frequency_penalty = 2;
    lg_ids ids = generate(e, &a, 1, &p, &s);
    for (int run = 0, i = 0; i < 30; i++) {
        run = ids.p[i] == a ? run + 1 : 0;
        most = run > most ? run : most;
    }
    assert_true(ids.p[0] == a && most < 8); // 7 logits more than another, 2 less each time
    lg_ids_free(&ids);
    lg_engine_close(e);
}

// The live sequence after a reply, a longer prompt on top of it, another prompt: always what a fresh engine
// says.
static void reuse_never_changes_an_answer(void **state)
{
    enum { N = 1000 };
    int32_t prompt[N];
    uint64_t rng = 77;
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    for (int i = 0; i < N; i++)
        prompt[i] = 70 + (int32_t)(mk_uniform(&rng) * 400);
    p.reply.raw = true;
    lg_engine *live = open_file(real_path, 1024);
    static const int cut[] = {40, 60, 700, 700, 1000, 999, 990, 100, 1000};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        lg_engine *fresh = open_file(real_path, 1024);
        p.max_tokens = 5 + (int64_t)i;
        lg_ids got = generate(live, prompt, (size_t)cut[i], &p, &s);
        int64_t cached = s.cached_tokens;
        lg_ids want = generate(fresh, prompt, (size_t)cut[i], &p, &s);
        assert_ids(&got, want.p, want.n);
        assert_int_equal(s.cached_tokens, 0);
        if (i == 1)
            assert_int_equal(cached, 40); // the prompt before; its reply was something else
        if (i == 3)
            assert_int_equal(cached, 699); // a retry evaluates the last token only
        if (i == 7)
            assert_int_equal(cached, 0); // the window before it has slid away: from nothing, not wrongly
        lg_ids_free(&got);
        lg_ids_free(&want);
        lg_engine_close(fresh);
    }
    lg_engine_close(live);
}

// A long reply pushes the prompt's window out; the next turn, which renders that reply otherwise, goes on
// from the cut.
static void the_next_turn_resumes(void **state)
{
    enum { FIRST = 300, ALL = 340 };
    int32_t prompt[ALL];
    uint64_t rng = 78;
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    for (int i = 0; i < ALL; i++)
        prompt[i] = 70 + (int32_t)(mk_uniform(&rng) * 400);
    p.reply.raw = true;
    p.max_tokens = 700;
    lg_logit_bias never[] = {{EOS, -100}, {EOT, -100}};
    p.sampling.bias = never;
    p.sampling.n_bias = 2;
    lg_engine *live = open_file(real_path, 2048), *fresh = open_file(real_path, 2048);
    lg_ids ids = generate(live, prompt, FIRST, &p, &s);
    assert_int_equal(ids.n, 700);
    lg_ids_free(&ids);
    p.max_tokens = 20;
    ids = generate(live, prompt, ALL, &p, &s);
    assert_int_equal(s.cached_tokens, FIRST);
    lg_ids want = generate(fresh, prompt, ALL, &p, &s);
    assert_ids(&ids, want.p, want.n);
    lg_ids_free(&ids);
    ids = generate(live, prompt, FIRST, &p, &s); // and the first prompt again
    assert_int_equal(s.cached_tokens, FIRST - 1);
    lg_ids_free(&ids);
    lg_ids_free(&want);
    lg_engine_close(live);
    lg_engine_close(fresh);
}

// A backend that fails in the middle: the sequence is as it was before the step.
static int waits_left;
static const lg_ops *real_ops;

static lg_status failing_wait(lg_backend *b, lg_err *err)
{
    lg_status st = real_ops->wait(b, err);

    return st == LG_OK && waits_left-- == 0 ? LG_FAIL(err, LG_E_DEVICE, "the device fell over") : st;
}

static void a_failed_step(void **state)
{
    int32_t prompt[150];
    lg_gen_stats s;
    lg_err err = {0};
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    for (int i = 0; i < 150; i++)
        prompt[i] = 70 + i;
    p.reply.raw = true;
    p.max_tokens = 10;
    lg_engine *e = open_file(real_path, 1024);
    lg_ids want = generate(e, prompt, 150, &p, &s);
    lg_backend *b = lg_engine_backend(e);
    lg_ops ops = *b->ops;
    real_ops = b->ops;
    ops.wait = failing_wait;
    for (int at = 0; at < 14; at += 3) {
        (void)lg_engine_truncate(e, 0);
        b->ops = &ops;
        waits_left = at;
        h.last_done = 0;
        assert_int_equal(lg_generate(e, prompt, 150, &p, &s, NULL, &err), LG_E_DEVICE);
        const float *row;
        int64_t pos = lg_engine_pos(e);
        if (at < 5) // no logits of a step that failed
            assert_int_equal(lg_engine_logits(e, 0, &row, &err), LG_E_INPUT);
        assert_int_equal(pos, at < 5 ? at * 32 : 150 + at - 5); // a token is a step from the sixth on
        b->ops = real_ops;
        lg_ids ids = generate(e, prompt, 150, &p, &s);
        assert_ids(&ids, want.p, want.n);
        lg_ids_free(&ids);
    }
    lg_ids_free(&want);
    lg_engine_close(e);
}

static lg_status rows_of_nan(lg_backend *b, const void *from, void *to, size_t n, lg_err *err)
{
    lg_status st = real_ops->download(b, from, to, n, err);

    for (size_t i = 0; n == 512 * sizeof(float) && i < 512; i++)
        ((float *)to)[i] = NAN;
    return st;
}

// Whether everything is banned or no logit is a number: the reply ends, and the device is not lost.
static void nothing_to_choose(void **state)
{
    const int32_t a = byte_token('a');
    lg_logit_bias never[512];
    lg_gen_stats s;
    lg_err err = {0};
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    SCRIPT(EOT, a, a);
    lg_engine *e = open_file(path, 0);
    lg_backend *b = lg_engine_backend(e);
    lg_ops ops = *(real_ops = b->ops);
    for (int i = 0; i < 512; i++)
        never[i] = (lg_logit_bias){i, -100};
    p.sampling.bias = never;
    p.sampling.n_bias = 512;
    assert_int_equal(lg_generate(e, &a, 1, &p, &s, NULL, &err), LG_E_INPUT);
    assert_string_equal(err.msg, "bans and biases leave no token to choose, 0 tokens into the reply");
    never[0] = (lg_logit_bias){300, 0};
    p.sampling.n_bias = 1;
    ops.download = rows_of_nan;
    b->ops = &ops;
    h.last_done = 0;
    assert_int_equal(lg_generate(e, &a, 1, &p, &s, NULL, &err), LG_E_INTERNAL);
    b->ops = real_ops;
    h.last_done = 0;
    assert_int_equal(lg_generate(e, &a, 1, &p, &s, NULL, &err), LG_OK);
    lg_engine_close(e);
}

static void cancelled_replies(void **state)
{
    enum { N = 200 };
    int32_t prompt[N];
    uint64_t rng = 5;
    lg_gen_stats s;
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    for (int i = 0; i < N; i++)
        prompt[i] = 70 + (int32_t)(mk_uniform(&rng) * 400);
    p.reply.raw = true;
    p.max_tokens = 20;
    lg_engine *e = open_file(real_path, 1024);
    lg_ids want = generate(e, prompt, N, &p, &s);
    (void)lg_engine_truncate(e, 0);
    h = (heard){.cancel_at = -4}; // after the third chunk of 32
    lg_ids ids = generate(e, prompt, N, &p, &s);
    assert_true(s.end == LG_END_CANCELLED && ids.n == 0);
    assert_int_equal(lg_engine_pos(e), 96);
    lg_ids_free(&ids);
    h = (heard){0};
    ids = generate(e, prompt, N, &p, &s); // goes on where it stopped
    assert_int_equal(s.cached_tokens, 96);
    assert_ids(&ids, want.p, want.n);
    lg_ids_free(&ids);
    h = (heard){.cancel_at = 5};
    ids = generate(e, prompt, N, &p, &s);
    assert_true(s.end == LG_END_CANCELLED && ids.n >= 1 && ids.n < want.n);
    assert_ids(&ids, want.p, ids.n);
    lg_ids_free(&ids);
    h = (heard){0};
    ids = generate(e, prompt, N, &p, &s);
    assert_ids(&ids, want.p, want.n);
    lg_ids_free(&ids);
    h = (heard){0};
    atomic_store(&h.cancel, true); // before anything happened
    ids = generate(e, prompt, N, &p, &s);
    assert_true(s.end == LG_END_CANCELLED && ids.n == 0);
    lg_ids_free(&ids);
    lg_ids_free(&want);
    lg_engine_close(e);
}

#if LG_WRAP_ALLOC
static long allocs_at[256];
static int n_seen;

static void count_event(void *ctx, const lg_event *ev)
{
    (void)ctx;
    (void)ev;
    if (n_seen < 256)
        allocs_at[n_seen++] = n_allocs;
}

static void no_allocation_in_a_step(void **state)
{
    const int32_t a = byte_token('a'), b = byte_token('b');
    lg_gen_stats s;
    lg_err err = {0};
    heard h;
    lg_gen_params p = params(&h);

    (void)state;
    SCRIPT(a, a, b, a);
    lg_engine *e = open_file(path, 0);
    assert_true(n_allocs > 0); // the counter is in force
    p.event = count_event;
    p.prefill = NULL;
    p.max_tokens = 120;
    for (int way = 0; way < 3; way++) { // greedy candidates, sampled candidates, full row with penalties
        p.sampling.temperature = way > 0;
        p.sampling.frequency_penalty = way > 1 ? 0.01f : 0;
        n_seen = 0;
        assert_int_equal(lg_generate(e, &a, 1, &p, &s, NULL, &err), LG_OK);
        assert_int_equal(s.output_tokens, 120);
        assert_true(n_seen > 110);
        assert_int_equal(allocs_at[n_seen - 1] - allocs_at[n_seen - 101], 0);
    }
    lg_engine_close(e);
}
#endif

#if LG_WRAP_ALLOC
// Every allocation of opening fails once: an error each time, and nothing is left behind (the sanitizer
// looks).
static void open_without_memory(void **state)
{
    lg_engine_params p = {
        .model_path = path, .backend = {.device = "cpu", .threads = 1}, .kv_type = LG_F16, .chunk = 8};
    lg_status st = LG_E_NOMEM;
    lg_engine *e = NULL;
    int n = 0;

    (void)state;
    SCRIPT(EOT, 100, 101);
    for (; st != LG_OK; n++) {
        lg_err err = {0};
        fail_at = n;
        st = lg_engine_open(&p, &e, &err);
        if (fail_at >= 0) // it was not reached
            assert_int_equal(st, LG_OK);
        fail_at = -1;
        assert_true(st == LG_OK || st == LG_E_NOMEM || st == LG_E_IO || st == LG_E_LIMIT);
        assert_true(st == LG_OK || err.msg[0]);
    }
    assert_true(n > 20);
    lg_engine_close(e);
}
#endif

static lg_status stop_at_64(void *ctx, size_t first, size_t n, lg_err *err)
{
    (void)ctx;
    return first + n >= 64 ? LG_FAIL(err, LG_E_IO, "enough") : LG_OK;
}

static void evaluation(void **state)
{
    int32_t ids[200] = {0};
    const float *row, *again;
    float last[V];
    lg_err err = {0};

    (void)state;
    for (int i = 0; i < 200; i++)
        ids[i] = 70 + i;
    lg_engine *e = open_file(real_path, 256);
    assert_int_equal(lg_engine_eval(e, &(lg_eval){.ids = ids, .n = 100}, &err), LG_OK);
    assert_int_equal(lg_engine_pos(e), 100);
    assert_int_equal(lg_engine_logits(e, 0, &row, &err), LG_OK);
    assert_int_equal(lg_engine_logits(e, 1, &again, &err), LG_E_INPUT);
    memcpy(last, row, sizeof last);
    assert_int_equal(lg_engine_eval(e, &(lg_eval){.ids = ids, .n = 157}, &err), LG_E_LIMIT);
    assert_int_equal(lg_engine_pos(e), 100); // nothing of it was done
    assert_int_equal(lg_engine_eval(e, &(lg_eval){.ids = ids, .n = 4, .flags = LG_STEP_LAYERS}, &err),
                     LG_E_INPUT);
    assert_int_equal(lg_engine_truncate(e, 99), 99);
    assert_int_equal(lg_engine_eval(e, &(lg_eval){.ids = ids + 99, .n = 1}, &err), LG_OK);
    assert_int_equal(lg_engine_logits(e, 0, &row, &err), LG_OK);
    assert_memory_equal(row, last, sizeof last);
    assert_int_equal(lg_engine_truncate(e, 1000), 100);
    assert_int_equal(lg_engine_truncate(e, -5), 0);
    assert_int_equal(lg_engine_eval(e, &(lg_eval){.ids = ids, .n = 200, .chunk_done = stop_at_64}, &err),
                     LG_E_IO);
    assert_int_equal(lg_engine_pos(e), 64); // finished chunks stay
    assert_int_equal(lg_engine_eval(e, &(lg_eval){.ids = ids, .n = 0}, &err), LG_OK);
    lg_engine_close(e);
}

static void refused_at_open(void **state)
{
    lg_engine_params p = {.model_path = path, .backend = {.device = "cpu", .threads = 1}, .kv_type = LG_F16};
    lg_engine *e;
    lg_err err = {0};
    mk_model m = mk_default(vocab_path);

    (void)state;
    m.n_layer = 2;
    m.window = 0;
    m.n_kv_head = 3;
    m.head_dim = 48;
    m.n_rot = 24;
    m.n_rot_window = 48;
    assert_true(mk_write(&m, path));
    p.kv_type = LG_Q8_0;
    assert_int_equal(lg_engine_open(&p, &e, &err), LG_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "needs a head size that 32 divides; this model has 48"));
    assert_string_equal(err.subject, path);
    p.kv_type = LG_Q4_K;
    assert_int_equal(lg_engine_open(&p, &e, &err), LG_E_INPUT);
    p.kv_type = LG_F32;
    p.ctx = -1;
    assert_int_equal(lg_engine_open(&p, &e, &err), LG_E_INPUT);
    p.ctx = INT64_C(1) << 30; // some 2.5 TB: more than any memory here
    err = (lg_err){0};
    assert_int_equal(lg_engine_open(&p, &e, &err), LG_E_NOMEM);
    assert_non_null(strstr(err.msg, " available; use --ctx "));
    p.ctx = 0;
    p.backend.isa = "sse9";
    err = (lg_err){0};
    assert_int_equal(lg_engine_open(&p, &e, &err), LG_E_INPUT);
    assert_string_equal(err.subject, ""); // not about the file
    p.backend.isa = "";
    p.model_path = "no such file.gguf";
    err = (lg_err){0};
    assert_true(lg_engine_open(&p, &e, &err) != LG_OK);
    assert_string_equal(err.subject, "no such file.gguf");
}

// --- the plan, on a made-up device ---

static size_t no_scratch(lg_backend *b, const lg_limits *lim)
{
    (void)b;
    return (size_t)lim->max_rows * 1000;
}

// 1000 bytes a token of full KV is 1/64 of a block.
static void plans(void **state)
{
    static const lg_ops ops = {0};
    lg_backend b = {.ops = &ops, .info = {.max_rows = 64}, .scratch_bytes = no_scratch};
    lg_hparams hp = {.n_layer = 2,
                     .hidden = 64,
                     .vocab = 512,
                     .n_kv_head = 2,
                     .head_dim = 64,
                     .window = 512,
                     .n_full = 1,
                     .n_window = 1,
                     .n_dense_lead = 2,
                     .ffn_dense = 64,
                     .ctx_train = 262144};
    lg_plan_for f = {
        .hp = &hp,
        .weights = {.stored_bytes = 70000000000, .extra_bytes = 500000000, .resident_bytes = 70500000000},
        .b = &b,
        .kv_type = LG_F32};
    lg_plan p;
    lg_err err = {0};

    (void)state;
    hp.layer[0] = hp.layer[1] = (lg_layer_params){.n_head = 2, .dense = true};
    hp.layer[1].window = true;
    b.info.free_bytes = UINT64_C(80000000000);
    lg_plan_choose(&f, 0, &p);
    assert_true(p.fits && !p.lowered && p.ctx == 262144 && p.chunk == 64);
    assert_int_equal(p.kv_bytes_per_token, 1024); // K and V, 2 heads, 64 values, 4 bytes
    assert_int_equal(p.kv_fixed_bytes, (((512 + 64 + 16) + 63) / 64 + 2 + 1) * 64 * 1024);
    assert_int_equal(p.kv_bytes, (262144 + 64) * 1024 + p.kv_fixed_bytes);
    assert_int_equal(p.total_bytes, p.resident_bytes + p.kv_bytes + p.scratch_bytes);
    // less memory: the longest context that fits, and one more step would not
    b.info.free_bytes = UINT64_C(70700000000);
    lg_plan_choose(&f, 0, &p);
    assert_true(p.fits && p.lowered && p.ctx < 262144 && p.ctx >= 2048 && p.ctx % 1024 == 0);
    assert_false(lg_plan_at(&f, p.ctx + 1024).fits);
    // asked for explicitly: refused with the sum and what would help
    lg_plan_choose(&f, 262144, &p);
    assert_false(p.fits);
    assert_int_equal(lg_plan_refuse(&f, &p, &err), LG_E_NOMEM);
    assert_non_null(
        strstr(err.msg, "needs 70.8 GB (weights 70.5, kv 0.3, scratch 0.0), 70.7 GB available; use --ctx "));
    // conversations take a share of what is left, or what they are given, if that is there
    b.info.free_bytes = UINT64_C(80000000000);
    lg_plan_choose(&f, 262144, &p);
    assert_int_equal(p.cache_slots, 16);
    assert_int_equal(p.cache_bytes, (p.available_bytes - p.total_bytes) / 10 * 3);
    assert_int_equal(p.cut_bytes, 512 * 1024);
    assert_int_equal(lg_plan_conversation_bytes(&p, 13000), 13000 * 1024 + 512 * 1024);
    b.info.free_bytes = p.total_bytes + 100; // next to nothing
    lg_plan_choose(&f, 262144, &p);
    assert_true(p.fits && p.cache_bytes == 100);
    b.info.free_bytes = p.total_bytes + (UINT64_C(600) << 20);
    lg_plan_choose(&f, 262144, &p);
    assert_int_equal(p.cache_bytes, 512 << 20); // at least
    f.cache_slots = 3;
    f.cache_ram = UINT64_C(600) << 20;
    lg_plan_choose(&f, 262144, &p);
    assert_true(p.fits && p.cache_bytes == f.cache_ram && p.cache_slots == 3);
    f.cache_ram++;
    lg_plan_choose(&f, 262144, &p);
    assert_false(p.fits);
    assert_int_equal(lg_plan_refuse(&f, &p, &err), LG_E_NOMEM);
    assert_non_null(strstr(err.msg, "a prefix cache of 629.1 MB does not fit beside "));
    assert_non_null(strstr(err.msg, "; use --cache-ram 600MiB"));
    f.cache_ram = 0;
    // a device with memory of its own: the host's bounds them, and the device keeps some at hand
    b.info.image_bytes = UINT64_C(20000000000);
    b.info.free_bytes = UINT64_C(80000000000);
    lg_plan_choose(&f, 262144, &p);
    assert_true(p.fits && p.cache_bytes == 6000000000);
    assert_int_equal(p.near_bytes, (p.available_bytes - p.total_bytes) / 10 * 3);
    f.cache_near = 1000;
    f.cache_ram = UINT64_C(19000000000); // more than the device has left
    lg_plan_choose(&f, 262144, &p);
    assert_true(p.fits && p.cache_bytes == f.cache_ram && p.near_bytes == 1000);
    f.cache_ram = UINT64_C(20000000001);
    lg_plan_choose(&f, 262144, &p);
    assert_int_equal(lg_plan_refuse(&f, &p, &err), LG_E_NOMEM);
    assert_non_null(strstr(err.msg, "does not fit the host's 20.0 GB; use --cache-ram 19073MiB"));
    b.info.image_bytes = f.cache_ram = f.cache_near = 0;
    // not even the least useful one
    b.info.free_bytes = UINT64_C(1000000);
    lg_plan_choose(&f, 0, &p);
    assert_true(!p.fits && p.ctx == 2048);
    assert_int_equal(lg_plan_refuse(&f, &p, &err), LG_E_NOMEM);
    assert_non_null(strstr(err.msg, "no useful context fits"));
    hp.ctx_train = 500; // a short one may be used whole
    b.info.free_bytes = UINT64_C(80000000000);
    lg_plan_choose(&f, 0, &p);
    assert_true(p.fits && p.ctx == 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_reply),
        cmocka_unit_test(limits),
        cmocka_unit_test(thinking_off_does_not_start_to_think),
        cmocka_unit_test(an_end_inside_the_reasoning_closes_it),
        cmocka_unit_test(the_graduated_exit),
        cmocka_unit_test(the_floor_of_thinking),
        cmocka_unit_test(stop_strings_and_bans),
        cmocka_unit_test(both_ways_sample_alike),
        cmocka_unit_test(penalties_act),
        cmocka_unit_test(reuse_never_changes_an_answer),
        cmocka_unit_test(the_next_turn_resumes),
        cmocka_unit_test(a_failed_step), cmocka_unit_test(nothing_to_choose),
        cmocka_unit_test(cancelled_replies),
#if LG_WRAP_ALLOC
        cmocka_unit_test(no_allocation_in_a_step),
        cmocka_unit_test(open_without_memory),
#endif
        cmocka_unit_test(evaluation),
        cmocka_unit_test(refused_at_open),
        cmocka_unit_test(plans),
    };

    path = scratch_path("engine.gguf");
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
