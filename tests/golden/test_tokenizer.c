/*
 * tests/golden/test_tokenizer: every recorded tokenizer case, encoding (plain and with control tokens) and
 * decoding, random texts (make_random_cases.py), and the pre-token and detokenizer cases of the chat
 * specification.
 *
 * Where a case has `all_hf`, that is how the model's own tokenizer cuts CR LF and holds for both modes; the
 * other ids are checked with the LLAMA cut.
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

static int n_failed;

static void report(const lg_json *c, const char *what)
{
    lg_str id = lg_json_str(lg_json_get(c, "id"));

    fprintf(stderr, "%.*s: %s\n", (int)id.n, id.p, what);
    n_failed++;
}

static void check_ids(const lg_json *c, const lg_bpe *b, lg_str text, bool special, const lg_json *expect,
                      const char *what)
{
    lg_ids got = {0}, want = tt_ids(expect);
    lg_err err = {0};

    assert_int_equal(lg_bpe_encode(b, text, special, &got, &err), LG_OK);
    if (got.n != want.n || (got.n > 0 && memcmp(got.p, want.p, got.n * sizeof *got.p) != 0)) {
        report(c, what);
        tt_print_ids("got ", &got);
        tt_print_ids("want", &want);
    }
    lg_ids_free(&got);
    lg_ids_free(&want);
}

static void encode_case(const lg_json *c, const lg_bpe *llama)
{
    const lg_json *hf = lg_json_get(c, "all_hf"), *all = lg_json_get(c, "all"),
                  *none = lg_json_get(c, "none");
    lg_buf text;

    lg_buf_init(&text, 1 << 24);
    tt_unhex(lg_json_str(lg_json_get(c, "hex")), &text);
    check_ids(c, tt_bpe(), lg_buf_str(&text), false, hf ? hf : none, "plain");
    check_ids(c, tt_bpe(), lg_buf_str(&text), true, hf ? hf : all, "special");
    check_ids(c, llama, lg_buf_str(&text), false, none, "plain, llama");
    check_ids(c, llama, lg_buf_str(&text), true, all, "special, llama");
    lg_buf_free(&text);
}

static void decode_case(const lg_json *c)
{
    lg_ids ids = tt_ids(lg_json_get(c, "ids"));
    lg_buf got[2], want[2];

    for (int k = 0; k < 2; k++) {
        lg_buf_init(&got[k], 1 << 24);
        lg_buf_init(&want[k], 1 << 24);
        tt_unhex(lg_json_str(lg_json_get(c, k == 0 ? "hex_all" : "hex_no_control")), &want[k]);
        for (size_t i = 0; i < ids.n; i++)
            if (k == 0 || lg_vocab_class(tt_vocab(), ids.p[i]) != LG_TOK_CONTROL)
                (void)lg_buf_adds(&got[k], lg_vocab_bytes(tt_vocab(), ids.p[i]));
        if (!lg_str_eq(lg_buf_str(&got[k]), lg_buf_str(&want[k])))
            report(c, k == 0 ? "hex_all" : "hex_no_control");
        lg_buf_free(&got[k]);
        lg_buf_free(&want[k]);
    }
    lg_ids_free(&ids);
}

static void tokenizer_case(void *ctx, const lg_json *c)
{
    if (lg_json_get(c, "decode"))
        decode_case(c);
    else
        encode_case(c, ctx);
}

static void test_tokenizer(void **state)
{
    lg_bpe *llama = NULL;
    lg_err err = {0};

    (void)state;
    assert_int_equal(lg_bpe_create(tt_vocab(), LG_CRLF_LLAMA, &llama, &err), LG_OK);
    n_failed = 0;
    assert_int_equal(tt_each("tokenizer-cases.jsonl", NULL, tokenizer_case, llama), 154);
    assert_int_equal(n_failed, 0);
    lg_bpe_destroy(llama);
}

// Random texts: lengths of the pre-tokens, then ids.
static void random_case(void *ctx, const lg_json *c)
{
    const lg_json *lengths = lg_json_get(c, "n");
    lg_split_run run;
    lg_str piece;
    lg_err err = {0};
    lg_buf text;
    size_t n = 0;
    int64_t len = 0;
    bool equal = true;

    lg_buf_init(&text, 1 << 24);
    tt_unhex(lg_json_str(lg_json_get(c, "h")), &text);
    assert_int_equal(lg_split_begin(ctx, lg_buf_str(&text), &run, &err), LG_OK);
    for (; lg_split_next(&run, &piece); n++)
        equal = equal && lg_json_i64(lg_json_at(lengths, n), &len) && (size_t)len == piece.n;
    assert_int_equal(lg_split_end(&run, &err), LG_OK);
    if (!equal || n != lg_json_len(lengths)) {
        fprintf(stderr, "%s\n", lg_json_str(lg_json_get(c, "h")).p);
        report(c, "pre-tokens");
    }
    check_ids(c, tt_bpe(), lg_buf_str(&text), false, lg_json_get(c, "i"), "ids");
    lg_buf_free(&text);
}

static void test_random(void **state)
{
    lg_split *s = NULL;
    lg_err err = {0};

    (void)state;
    assert_int_equal(lg_split_create(LG_CRLF_HF, &s, &err), LG_OK);
    n_failed = 0;
    assert_int_equal(tt_each("tokenizer-random.jsonl", NULL, random_case, s), 2400);
    assert_int_equal(n_failed, 0);
    lg_split_destroy(s);
}

static void pretok_case(void *ctx, const lg_json *c)
{
    const lg_json *expect = lg_json_get(c, "expect");
    lg_split_run run;
    lg_str piece;
    lg_err err = {0};
    size_t n = 0;
    bool equal = true;

    assert_int_equal(lg_split_begin(ctx, lg_json_str(lg_json_get(c, "text")), &run, &err), LG_OK);
    for (; lg_split_next(&run, &piece); n++)
        equal = equal && lg_str_eq(piece, lg_json_str(lg_json_at(expect, n)));
    assert_int_equal(lg_split_end(&run, &err), LG_OK);
    if (!equal || n != lg_json_len(expect))
        report(c, "pre-tokens");
}

static void test_pretok(void **state)
{
    lg_split *s = NULL;
    lg_err err = {0};

    (void)state;
    assert_int_equal(lg_split_create(LG_CRLF_HF, &s, &err), LG_OK);
    n_failed = 0;
    assert_int_equal(tt_each("chat-cases.jsonl", "pretok", pretok_case, s), 15);
    assert_int_equal(n_failed, 0);
    lg_split_destroy(s);
}

static void detok_case(void *ctx, const lg_json *c)
{
    const lg_json *in = lg_json_get(c, "token_bytes_hex"), *expect = lg_json_get(c, "expect_deltas");
    lg_detok d = {0};
    lg_buf bytes, out;

    (void)ctx;
    lg_buf_init(&bytes, 4096);
    lg_buf_init(&out, 4096);
    for (size_t i = 0; i < lg_json_len(in); i++) {
        lg_buf_clear(&bytes);
        lg_buf_clear(&out);
        tt_unhex(lg_json_str(lg_json_at(in, i)), &bytes);
        lg_detok_feed(&d, lg_buf_str(&bytes), &out);
        if (!lg_str_eq(lg_buf_str(&out), lg_json_str(lg_json_at(expect, i))))
            report(c, "delta");
    }
    lg_buf_clear(&out);
    lg_detok_end(&d, &out);
    if (!lg_str_eq(lg_buf_str(&out), lg_json_str(lg_json_get(c, "expect_final_flush"))))
        report(c, "final flush");
    lg_buf_free(&bytes);
    lg_buf_free(&out);
}

static void test_detok(void **state)
{
    (void)state;
    n_failed = 0;
    assert_int_equal(tt_each("chat-cases.jsonl", "detok", detok_case, NULL), 4);
    assert_int_equal(n_failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_pretok),
        cmocka_unit_test(test_detok),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
