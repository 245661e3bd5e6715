/*
 * unit/test_str: slices, numbers, and UTF-8 against a table of all the ways to be wrong; every code point
 * goes there and back.
 */
#include "check.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

#include "fault.h"

static void slices(void **state)
{
    (void)state;
    assert_true(lg_str_eq(lg_str_of(NULL), (lg_str){0}));
    assert_true(lg_str_eqz(LG_STR("ab"), "ab"));
    assert_false(lg_str_eqz(LG_STR("ab"), "abc"));
    assert_false(lg_str_eq(LG_STR("ab"), LG_STR("ac")));
    assert_true(lg_str_starts(LG_STR("abc"), LG_STR("ab")));
    assert_false(lg_str_starts(LG_STR("a"), LG_STR("ab")));
    assert_true(lg_str_starts((lg_str){0}, (lg_str){0}));
    assert_true(lg_str_ends(LG_STR("abc"), LG_STR("bc")));
    assert_false(lg_str_ends(LG_STR("c"), LG_STR("bc")));
    assert_int_equal(lg_str_find(LG_STR("abcabc"), LG_STR("bc"), 0), 1);
    assert_int_equal(lg_str_find(LG_STR("abcabc"), LG_STR("bc"), 2), 4);
    assert_int_equal(lg_str_find(LG_STR("abc"), LG_STR(""), 3), 3);
    assert_true(lg_str_find(LG_STR("abc"), LG_STR("bc"), 2) == SIZE_MAX);
    assert_true(lg_str_find(LG_STR("abc"), LG_STR(""), 4) == SIZE_MAX);
    assert_true(lg_str_find(LG_STR("a"), LG_STR("ab"), 0) == SIZE_MAX);
}

static void integers(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"+7", true, 7},
        {"007", true, 7},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"99999999999999999999999", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"+-1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1.0", false, 0},
        {"0x10", false, 0},
        {"1e3", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t v = 42;
        assert_int_equal(lg_str_i64(lg_str_of(cases[i].text), &v), cases[i].ok);
        assert_true(v == (cases[i].ok ? cases[i].value : 42));
    }
}

static void floats(void **state)
{
    static const char *const bad[] = {"",   "-",  ".",     "e5",  "1e",    "1e+", "inf", "nan",  "0x1p3",
                                      "1 ", " 1", "1.2.3", "1,5", "1e400", "--1", "1f",  "1e5.0"};
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1", 1},      {"-0.5", -0.5},
                {".5", 0.5},   {"5.", 5},
                {"1e3", 1000}, {"+1E-3", 0.001},
                {"1e-400", 0}, {"179769313486231570000000000000000000000e270", 1.7976931348623157e308}};
    char many[4000];
    double v;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        v = 42;
        assert_false(lg_str_f64(lg_str_of(bad[i]), &v));
        assert_true(v == 42);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(lg_str_f64(lg_str_of(good[i].text), &v));
        assert_true(v == good[i].value);
    }
    memset(many, '3', sizeof many); // longer than the local buffer
    many[1] = '.';
    assert_true(lg_str_f64((lg_str){many, sizeof many}, &v));
    assert_true(v == 10.0 / 3);
    if (LG_HAVE_FAULT) {
        fault_arm(FAULT_ALLOC, 1);
        assert_false(lg_str_f64((lg_str){many, sizeof many}, &v));
        assert_int_equal(fault_disarm(), 1);
    }
}

static void locale_plays_no_part(void **state)
{
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    const char *got = NULL;
    double v;

    (void)state;
    for (size_t i = 0; i < sizeof commas / sizeof commas[0] && !got; i++)
        got = setlocale(LC_NUMERIC, commas[i]);
    if (!got)
        skip(); // no locale with a decimal comma is installed
    assert_true(lg_str_f64(LG_STR("1.5"), &v) && v == 1.5);
    assert_false(lg_str_f64(LG_STR("1,5"), &v));
    (void)setlocale(LC_NUMERIC, "C");
}

static void every_code_point(void **state)
{
    (void)state;
    for (int32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char b[4];
        int32_t back;
        if (cp >= 0xD800 && cp <= 0xDFFF)
            continue;
        int n = lg_utf8_put(cp, b);
        if (lg_utf8_step(b, (size_t)n, &back) != n || back != cp)
            fail_msg("U+%04X does not come back", (unsigned)cp);
        if (lg_utf8_complete(b, (size_t)n) != (size_t)n)
            fail_msg("U+%04X is taken for incomplete", (unsigned)cp);
        for (int cut = 1; cut < n; cut++) {
            if (lg_utf8_complete(b, (size_t)cut) != 0 || lg_utf8_step(b, (size_t)cut, &back) != 1 ||
                back != -1 || lg_utf8_bad_len(b, (size_t)cut) != cut)
                fail_msg("U+%04X cut to %d bytes", (unsigned)cp, cut);
        }
    }
}

static void ill_formed(void **state)
{
    static const struct {
        const char *bytes;
        int bad; // bytes of the maximal subpart
    } cases[] = {
        {"\x80", 1},
        {"\xBF", 1},
        {"\xC0\x80", 1},
        {"\xC1\xBF", 1},
        {"\xF5\x80\x80\x80", 1},
        {"\xFF", 1},
        {"\xE0\x80\x80", 1},     // overlong
        {"\xE0\x9F\xBF", 1},     // overlong
        {"\xED\xA0\x80", 1},     // surrogate
        {"\xF0\x80\x80\x80", 1}, // overlong
        {"\xF0\x8F\xBF\xBF", 1}, // overlong
        {"\xF4\x90\x80\x80", 1}, // past U+10FFFF
        {"\xC3x", 1},
        {"\xE2\x82x", 2},
        {"\xE2x", 1},
        {"\xF0\x9F\x98x", 3},
        {"\xF0\x9Fx", 2},
        {"\xE1\x80\xE2", 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = strlen(cases[i].bytes);
        int32_t cp = 0;
        assert_int_equal(lg_utf8_step(cases[i].bytes, n, &cp), 1);
        assert_int_equal(cp, -1);
        assert_int_equal(lg_utf8_bad_len(cases[i].bytes, n), cases[i].bad);
    }
}

static void held_back(void **state)
{
    (void)state;
    assert_int_equal(lg_utf8_complete("ab\xE2\x82", 4), 2);
    assert_int_equal(lg_utf8_complete("ab\xF0\x9F\x98", 5), 2);
    assert_int_equal(lg_utf8_complete("ab\xF0", 3), 2);
    // what no further byte can mend is not held back
    assert_int_equal(lg_utf8_complete("ab\x80", 3), 3);
    assert_int_equal(lg_utf8_complete("\x80\x80\x80\x80", 4), 4);
    assert_int_equal(lg_utf8_complete("ab\xED\xA0", 4), 4);
    assert_int_equal(lg_utf8_complete("ab\xC0", 3), 3);
    assert_int_equal(lg_utf8_complete("ab\xFF", 3), 3);
    assert_int_equal(lg_utf8_complete("\xE2\x82\xAC", 3), 3);
    assert_int_equal(lg_utf8_complete("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices),           cmocka_unit_test(integers),   cmocka_unit_test(floats),
        cmocka_unit_test(locale_plays_no_part), cmocka_unit_test(every_code_point),
        cmocka_unit_test(ill_formed),       cmocka_unit_test(held_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
