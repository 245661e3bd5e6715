/*
 * unit/test_split: text/split: what the shorthands of regular expressions get wrong, CR LF in both ways,
 * stray bytes, and properties on random bytes.
 */
#include "check.h"

#include <stdlib.h>

#include "base/buf.h"
#include "fault.h"
#include "text/split.h"

static lg_split *split_hf, *split_llama;

// The pre-tokens of `text`, each followed by '|'.
static void cut(const lg_split *s, lg_str text, lg_buf *out)
{
    lg_split_run run;
    lg_str piece;
    lg_err err = {0};

    lg_buf_clear(out);
    assert_int_equal(lg_split_begin(s, text, &run, &err), LG_OK);
    while (lg_split_next(&run, &piece)) {
        assert_true(piece.n > 0);
        (void)lg_buf_adds(out, piece);
        (void)lg_buf_addc(out, '|');
    }
    assert_false(lg_split_next(&run, &piece));
    assert_int_equal(lg_split_end(&run, &err), LG_OK);
}

#define CUT(s, text, want)                   \
    do {                                     \
        lg_buf out_;                         \
        lg_buf_init(&out_, 1 << 20);         \
        cut((s), LG_STR(text), &out_);       \
        assert_str(lg_buf_str(&out_), want); \
        lg_buf_free(&out_);                  \
    } while (0)

static void test_contractions(void **state)
{
    (void)state;
    CUT(split_hf, "", "");
    CUT(split_hf, "I've he'LL we'Re", "I|'ve| he|'LL| we|'Re|");
    CUT(split_hf, "x'sy 'd'm", "x|'s|y| '|d|'m|");
    // U+017F folds to s only beyond ASCII: one word, not 's
    CUT(split_hf, "it'\xC5\xBF now", "it|'\xC5\xBF| now|");
    CUT(split_hf, "it'\xC5\xBFx", "it|'\xC5\xBFx|");
    CUT(split_hf, "o'\xE2\x84\xAA" "x", "o|'\xE2\x84\xAAx|"); // U+212A, the kelvin sign
    CUT(split_hf, "''ll", "''|ll|");
}

static void test_space(void **state)
{
    (void)state;
    CUT(split_hf, "a\xE1\xA0\x8E" "b", "a|\xE1\xA0\x8E" "b|");          // U+180E is no space
    CUT(split_hf, "a\xE1\xA0\x8E\xE1\xA0\x8E", "a|\xE1\xA0\x8E\xE1\xA0\x8E|");
    CUT(split_hf, "a\xC2\x85" "b", "a|\xC2\x85" "b|");                  // U+0085 is
    CUT(split_hf, "a \xC2\x85\xC2\xA0", "a| \xC2\x85\xC2\xA0|");
    CUT(split_hf, "a\x1C\x1F" "b", "a|\x1C\x1F|b|");                    // U+001C to U+001F are not
    CUT(split_hf, "a\xE2\x80\x8B b", "a|\xE2\x80\x8B| b|");             // nor is U+200B
    CUT(split_hf, "\xE3\x80\x80\xE3\x80\x80x", "\xE3\x80\x80|\xE3\x80\x80x|");
    CUT(split_hf, "   x", "  | x|");
    CUT(split_hf, "x   ", "x|   |");
    CUT(split_hf, " \t \n \t", " \t |\n| \t|");
}

static void test_crlf(void **state)
{
    (void)state;
    CUT(split_hf, "a\r\nb", "a|\r\n|b|");
    CUT(split_llama, "a\r\nb", "a|\r|\n|b|");
    CUT(split_hf, "a;\r\n\r\nb", "a|;|\r\n\r\n|b|");
    CUT(split_llama, "a;\r\n\r\nb", "a|;\r|\n|\r|\n|b|");
    CUT(split_hf, "a\r", "a|\r|");
    CUT(split_hf, "a\r\r\n\n\rb", "a|\r|\r\n\n\r|b|");
    CUT(split_hf, "\n\n  x", "\n\n| | x|");
    CUT(split_hf, "!\n\n", "!|\n\n|");
    CUT(split_llama, "!\n\n", "!|\n\n|");
    CUT(split_hf, "\n", "\n|");
    CUT(split_hf, "\r\n", "\r\n|");
}

static void test_numbers(void **state)
{
    (void)state;
    CUT(split_hf, "123", "1|2|3|");
    CUT(split_hf, "v1.2", "v|1|.|2|");
    CUT(split_hf, " 7", " |7|");
    CUT(split_hf, "\xC2\xBD\xE2\x85\xA7", "\xC2\xBD|\xE2\x85\xA7|"); // a half, roman eight
    CUT(split_hf, "e\xCC\x81x", "e|\xCC\x81x|");                     // a combining mark is no letter
}

static void test_stray_bytes(void **state)
{
    (void)state;
    CUT(split_hf, "\xFF", "\xFF|");
    CUT(split_hf, "a\xFF" "b", "a|\xFF" "b|");
    CUT(split_hf, "1\xFF" "2", "1|\xFF|2|");
    CUT(split_hf, " \xE2\x82 x", " \xE2\x82| x|");
    CUT(split_hf, "\xED\xA0\x80\n", "\xED\xA0\x80|\n|"); // a surrogate
    CUT(split_hf, "\xC3'\xC3s", "\xC3'\xC3|s|");
    CUT(split_hf, "'\xFFs", "'\xFF|s|");
}

// Pre-tokens cover the text in order, and a newline never stands behind something else but a space or a mark.
static void test_random(void **state)
{
    static const char pool[] = "ab1 \n\r\t'.\xC3\xA9\xE2\x80\xA8\xFF\xF0\x9F\x98\x80<";
    unsigned seed = 7;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[24];
        size_t n = (size_t)rand_r(&seed) % sizeof text, at = 0;
        lg_split_run run;
        lg_str piece;
        lg_err err = {0};
        for (size_t i = 0; i < n; i++)
            text[i] = pool[(size_t)rand_r(&seed) % (sizeof pool - 1)];
        const lg_split *s = round % 2 ? split_hf : split_llama;
        assert_int_equal(lg_split_begin(s, (lg_str){text, n}, &run, &err), LG_OK);
        while (lg_split_next(&run, &piece)) {
            assert_ptr_equal(piece.p, text + at);
            at += piece.n;
            if (s == split_llama && memchr(piece.p, '\n', piece.n))
                for (size_t i = 0; i < piece.n; i++)
                    assert_int_equal(piece.p[i], '\n');
        }
        assert_int_equal(lg_split_end(&run, &err), LG_OK);
        assert_int_equal(at, n);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    for (long n = 1;; n++) { // PCRE2 allocates in its own library, so only ours fail here
        lg_split_run run;
        lg_err err = {0};
        fault_arm(FAULT_ALLOC, n);
        lg_status st = lg_split_begin(split_hf, LG_STR("a\xFFz"), &run, &err);
        if (fault_disarm() == 0) {
            assert_int_equal(st, LG_OK);
            assert_int_equal(n, 2);
            assert_int_equal(lg_split_end(&run, &err), LG_OK);
            return;
        }
        assert_int_equal(st, LG_E_NOMEM);
    }
}

static int set_up(void **state)
{
    lg_err err = {0};

    (void)state;
    return lg_split_create(LG_CRLF_HF, &split_hf, &err) != LG_OK ||
           lg_split_create(LG_CRLF_LLAMA, &split_llama, &err) != LG_OK;
}

static int tear_down(void **state)
{
    (void)state;
    lg_split_destroy(split_hf);
    lg_split_destroy(split_llama);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contractions), cmocka_unit_test(test_space),
        cmocka_unit_test(test_crlf),         cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_stray_bytes),  cmocka_unit_test(test_random),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
