/*
 * tests/golden/test_chat: every recorded render and parse case of the chat specification, random
 * conversations as Jinja renders them (make_random_chats.py), and the properties that belong to them: any cut
 * of the input gives the same events; encoding a rendered prompt and showing the ids' bytes gives the
 * rendered text. The third one, that a turn which was parsed and rendered again encodes to the ids that were
 * sampled, is in unit/test_chat.
 */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <string.h>

#include "support/texts.h"
#include "text/chat_json.h"

enum { EVEN_CUTS = 24, RANDOM_CUTS = 200 }; // steps of 0 (whole texts) to 24 bytes; seeds

static int n_failed;

static void report(const lg_json *c, const char *what, lg_str got, lg_str want)
{
    lg_str id = lg_json_str(lg_json_get(c, "id"));

    fprintf(stderr, "%.*s: %s\n  got  %.*s\n  want %.*s\n", (int)id.n, id.p, what, (int)got.n, got.p,
            (int)want.n, want.p);
    n_failed++;
}

static bool is_v2(const lg_json *c)
{
    return lg_str_eqz(lg_json_str(lg_json_get(c, "template")), "v2");
}

/* --- render --- */

static void check_encoding(const lg_json *c, lg_rendered *r, lg_str want)
{
    lg_ids ids = {0};
    lg_buf shown;
    lg_err err = {0};
    size_t n_bos = 0;

    lg_buf_init(&shown, 1 << 24);
    assert_int_equal(lg_chat_encode(tt_bpe(), r, &ids, &err), LG_OK);
    for (size_t i = 0; i < ids.n; i++) {
        (void)lg_buf_adds(&shown, lg_vocab_bytes(tt_vocab(), ids.p[i]));
        n_bos += ids.p[i] == lg_vocab_special(tt_vocab())->bos;
    }
    if (!lg_str_eq(lg_buf_str(&shown), want))
        report(c, "encode, decode", lg_buf_str(&shown), want);
    if (n_bos != 1 || ids.p[0] != lg_vocab_special(tt_vocab())->bos)
        report(c, "one BOS, in front", lg_buf_str(&shown), want);
    for (size_t m = 0; m < r->n_mark; m++) { // each mark: the most tokens that end at or before its byte
        size_t byte = 0, n = 0;
        while (n < ids.n && byte + lg_vocab_bytes(tt_vocab(), ids.p[n]).n <= r->mark[m].byte)
            byte += lg_vocab_bytes(tt_vocab(), ids.p[n++]).n;
        if (n != r->mark[m].token)
            report(c, "token of a mark", LG_STR(""), want);
    }
    lg_buf_free(&shown);
    lg_ids_free(&ids);
}

static void render_case(void *ctx, const lg_json *c)
{
    const lg_chat_json_opts opts = {.template_only = true};
    lg_str want = lg_json_str(lg_json_get(c, "expect"));
    lg_chat chat = {.family = is_v2(c) ? LG_TEMPLATE_V2 : LG_TEMPLATE_S21, .thinking = true};
    lg_chat_tools tools;
    lg_rendered r;
    lg_arena arena;
    lg_buf got;
    lg_err err = {0};

    (void)ctx;
    lg_arena_init(&arena, 1 << 24);
    lg_buf_init(&got, 1 << 24);
    assert_int_equal(lg_chat_json_body(c, &opts, &arena, &chat, &tools, &err), LG_OK);
    assert_int_equal(lg_chat_render(&chat, &arena, &r, &err), LG_OK);
    assert_int_equal(lg_chat_text(&r, NULL, &got, &err), LG_OK);
    if (!lg_str_eq(lg_buf_str(&got), want))
        report(c, "render", lg_buf_str(&got), want);
    lg_buf_clear(&got);
    assert_int_equal(lg_chat_text(&r, tt_vocab(), &got, &err), LG_OK);
    if (!lg_str_eq(lg_buf_str(&got), want))
        report(c, "render with the vocabulary's texts", lg_buf_str(&got), want);
    check_encoding(c, &r, want);
    for (size_t m = 1; m < r.n_mark; m++)
        if (r.mark[m].byte < r.mark[m - 1].byte || r.mark[m].token < r.mark[m - 1].token)
            report(c, "order of marks", LG_STR(""), want);
    lg_buf_free(&got);
    lg_arena_free(&arena);
}

static void test_render(void **state)
{
    (void)state;
    n_failed = 0;
    assert_int_equal(tt_each("chat-cases.jsonl", "render", render_case, NULL), 30);
    assert_int_equal(tt_each("chat-random.jsonl", "render", render_case, NULL), 240);
    assert_int_equal(n_failed, 0);
}

/* --- parse --- */

static void expected(const lg_json *events, tt_transcript *t)
{
    tt_transcript_init(t);
    for (size_t i = 0; i < lg_json_len(events); i++) {
        const lg_json *e = lg_json_at(events, i);
        lg_str kind = lg_json_str(lg_json_get(e, "t"));
        int64_t call = t->call;
        lg_event ev = {.text = lg_json_str(lg_json_get(e, "d"))};
        (void)lg_json_i64(lg_json_get(e, "i"), &call);
        ev.call = (int)call;
        if (lg_str_eqz(kind, "finish")) {
            tt_transcript_finish(t, lg_json_str(lg_json_get(e, "reason")).p);
            continue;
        }
        if (lg_str_eqz(kind, "reasoning")) {
            ev.kind = LG_EV_REASONING;
        } else if (lg_str_eqz(kind, "content")) {
            ev.kind = LG_EV_CONTENT;
        } else if (lg_str_eqz(kind, "tool_args")) {
            ev.kind = LG_EV_TOOL_ARGS;
        } else if (lg_str_eqz(kind, "tool_end")) {
            ev.kind = LG_EV_TOOL_END;
        } else {
            ev.kind = LG_EV_TOOL_START;
            ev.text = lg_json_str(lg_json_get(e, "name"));
        }
        tt_transcript_event(t, &ev);
    }
}

typedef struct turn {
    const lg_json *c;
    lg_chat_tools tools;
    lg_reply_params p;
} turn;

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u; // splitmix64

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

// Feeds the text in pieces of random length, each in one call of the encoder.
static bool feed_random(lg_reply *r, lg_str text, uint64_t *random)
{
    bool done = false;

    while (text.n > 0 && !done) {
        uint64_t bits = next_random(random);
        size_t most = (bits & 3) == 0 ? text.n : 1 + (bits >> 2) % 12, n = 1 + (bits >> 32) % most;
        n = n < text.n ? n : text.n;
        done = tt_feed(r, (lg_str){text.p, n}, 0);
        text = (lg_str){text.p + n, text.n - n};
    }
    return done;
}

// Runs the case's chunks with texts cut into `step` bytes, or where `random` (not NULL) has it.
static void run_parse(const turn *t, size_t step, uint64_t *random, tt_transcript *got)
{
    const lg_json *chunks = lg_json_get(t->c, "chunks");
    lg_str end = lg_json_str(lg_json_get(t->c, "end"));
    lg_end how = lg_str_eqz(end, "eog")      ? LG_END_EOG
                 : lg_str_eqz(end, "length") ? LG_END_LENGTH
                                             : LG_END_STOP_STRING;
    lg_reply *r = NULL;
    lg_finish finish;
    lg_err err = {0};
    bool done = false;

    tt_transcript_init(got);
    assert_int_equal(lg_reply_create(tt_vocab(), &t->p, 1 << 20, tt_transcript_event, got, &r, &err), LG_OK);
    for (size_t i = 0; i < lg_json_len(chunks) && !done; i++) {
        const lg_json *chunk = lg_json_at(chunks, i);
        int64_t id;
        if (lg_json_i64(lg_json_get(chunk, "id"), &id))
            assert_int_equal(lg_reply_feed(r, (int32_t)id, &done, &err), LG_OK);
        else
            done = random ? feed_random(r, lg_json_str(chunk), random) : tt_feed(r, lg_json_str(chunk), step);
    }
    assert_int_equal(lg_reply_end(r, how, &finish, &err), LG_OK);
    tt_transcript_finish(got, tt_finish_name(finish));
    lg_reply_destroy(r);
}

static void parse_case(void *ctx, const lg_json *c)
{
    turn t = {.c = c};
    lg_arena arena;
    tt_transcript want;
    lg_err err = {0};

    (void)ctx;
    lg_arena_init(&arena, 1 << 24);
    assert_int_equal(lg_chat_json_tools(lg_json_get(c, "tools"), NULL, &arena, &t.tools, &err), LG_OK);
    t.p = (lg_reply_params){.tool = t.tools.tool, .n_tool = t.tools.n};
    assert_true(lg_json_bool(lg_json_get(c, "prompt_thinking_open"), &t.p.open_reasoning));
    t.p.thinking = t.p.open_reasoning;
    expected(lg_json_get(c, "expect"), &want);
    for (size_t i = 0; i <= EVEN_CUTS + RANDOM_CUTS; i++) {
        tt_transcript got;
        uint64_t random = i;
        run_parse(&t, i, i > EVEN_CUTS ? &random : NULL, &got);
        if (!lg_str_eq(lg_buf_str(&got.out), lg_buf_str(&want.out))) {
            char what[48];
            (void)snprintf(what, sizeof what, "parse, %s %zu", i > EVEN_CUTS ? "cut at random, seed" : "step",
                           i);
            report(c, what, lg_buf_str(&got.out), lg_buf_str(&want.out));
        }
        lg_buf_free(&got.out);
    }
    lg_buf_free(&want.out);
    lg_arena_free(&arena);
}

static void test_parse(void **state)
{
    (void)state;
    n_failed = 0;
    assert_int_equal(tt_each("chat-cases.jsonl", "parse", parse_case, NULL), 32);
    assert_int_equal(n_failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_render),
        cmocka_unit_test(test_parse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
