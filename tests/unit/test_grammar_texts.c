/*
 * unit/test_grammar_texts: which texts a grammar accepts, against other judges: numbers against decimal
 * comparison, patterns against PCRE2, dates against a calendar, characters and their escapes one by one.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "grammar/grammar_int.h"

static uint64_t seed = 7;

static uint32_t pick(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static bool accepts(lg_grammar *g, lg_str text)
{
    uint32_t cfg = lg_auto_start(g->automaton);

    for (size_t i = 0; i < text.n && cfg != LG_CFG_DEAD; i++)
        cfg = lg_auto_next(g->automaton, cfg, (uint8_t)text.p[i]);
    return cfg != LG_CFG_DEAD && lg_auto_cfg(g->automaton, cfg)->accept;
}

// The spelling of a decimal of up to `digits` digits and three places, without a minus sign before zero.
static void decimal(char *out, size_t size, int most)
{
    int whole = (int)pick((uint32_t)most * 2 + 1) - most, places = (int)pick(4), frac = (int)pick(1000);
    char f[8] = "";

    for (int i = 0; i < places; i++, frac /= 10)
        f[i] = (char)('0' + frac % 10);
    (void)snprintf(out, size, "%d%s%.*s", whole, places ? "." : "", places, f);
}

static void test_numbers(void **state)
{
    static const char *const low[] = {"minimum", "exclusiveMinimum"}, *const high[] = {"maximum",
                                                                                       "exclusiveMaximum"};
    static const char *const multiples[] = {"1", "0.5", "3", "0.07", "2.5", "10"};
    int inside = 0, compared = 0;

    (void)state;
    for (int i = 0; i < 150; i++) {
        char schema[256], bound[32], text[32];
        int most = i % 3 == 0 ? 3 : i % 3 == 1 ? 120 : 2000, n;
        lg_grammar *g;
        lg_err err = {0};
        n = snprintf(schema, sizeof schema, "{\"type\":\"%s\"", pick(3) ? "number" : "integer");
        decimal(bound, sizeof bound, most);
        n += snprintf(schema + n, sizeof schema - (size_t)n, ",\"%s\":%s", low[pick(2)], bound);
        decimal(bound, sizeof bound, most);
        if (pick(3))
            n += snprintf(schema + n, sizeof schema - (size_t)n, ",\"%s\":%s", high[pick(2)], bound);
        if (pick(3) == 0)
            n += snprintf(schema + n, sizeof schema - (size_t)n, ",\"multipleOf\":%s", multiples[pick(6)]);
        (void)snprintf(schema + n, sizeof schema - (size_t)n, "}");
        bool empty = lg_grammar_schema(lg_str_of(schema), NULL, &g, NULL, &err) != LG_OK;
        for (int k = 0; k < 200; k++) {
            bool holds, spelled;
            decimal(text, sizeof text, most + 2);
            assert_int_equal(lg_schema_evaluate(lg_str_of(schema), lg_str_of(text), &holds, &err), LG_OK);
            spelled = !(text[0] == '-' && strtod(text, NULL) == 0.0) &&
                      !(strchr(text, '.') && strstr(schema, "integer"));
            if (empty ? holds && spelled : accepts(g, lg_str_of(text)) != (holds && spelled))
                fail_msg("%s and %s: %s", schema, text, holds ? "refused" : "accepted");
            inside += holds && spelled;
            compared++;
        }
        if (!empty)
            lg_grammar_destroy(g);
    }
    assert_true(inside > compared / 20 && inside < compared);
}

static void pattern(char *out, size_t size, int depth)
{
    static const char *const atoms[] = {"a", "b",   "c",   "[ab]",    "[^a]", ".", "^",
                                        "$", "\\w", "\\d", "(?:a|b)", "\\s",  "ab"};
    static const char *const counts[] = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "{0,1}"};
    char left[200], right[200];

    if (depth == 0 || pick(4) == 0) {
        const char *atom = atoms[pick(13)];
        (void)snprintf(out, size, "%s%s", atom, atom[0] == '^' || atom[0] == '$' ? "" : counts[pick(10)]);
        return;
    }
    pattern(left, sizeof left, depth - 1);
    pattern(right, sizeof right, depth - 1);
    if (pick(3) == 0)
        (void)snprintf(out, size, "(%.90s|%.90s)%s", left, right, counts[pick(3)]);
    else
        (void)snprintf(out, size, "%.95s%.95s", left, right);
}

static void test_patterns(void **state)
{
    int matched = 0, compared = 0;

    (void)state;
    for (int i = 0; i < 400; i++) {
        char re[256], schema[600], text[16];
        int code;
        size_t at;
        lg_grammar *g = NULL;
        lg_grammar_error why;
        pcre2_match_data *md;
        lg_buf quoted;
        pattern(re, sizeof re, 3);
        pcre2_code *pc = pcre2_compile((PCRE2_SPTR)re, PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &code, &at, NULL);
        if (!pc)
            continue;
        lg_buf_init(&quoted, 1000);
        assert_true(lg_json_quote(lg_str_of(re), &quoted));
        (void)snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":%s}", lg_buf_z(&quoted));
        lg_buf_free(&quoted);
        bool empty = lg_grammar_schema(lg_str_of(schema), NULL, &g, &why, NULL) != LG_OK;
        if (empty && why.code != LG_GRAMMAR_UNSATISFIABLE)
            fail_msg("%s: %s", re, lg_grammar_code_name(why.code));
        md = pcre2_match_data_create_from_pattern(pc, NULL);
        for (int k = 0; k < 60; k++) {
            size_t n = pick(6);
            bool want, got;
            text[0] = '"';
            for (size_t c = 0; c < n; c++)
                text[c + 1] = "abc1 _"[pick(6)];
            text[n + 1] = '"';
            want = pcre2_match(pc, (PCRE2_SPTR)text + 1, n, 0, 0, md, NULL) >= 0;
            got = !empty && accepts(g, (lg_str){text, n + 2});
            if (want != got)
                fail_msg("%s on %.*s: %s", re, (int)n + 2, text, got ? "accepted" : "refused");
            matched += want;
            compared++;
        }
        pcre2_match_data_free(md);
        pcre2_code_free(pc);
        lg_grammar_destroy(g);
    }
    assert_true(compared > 10000 && matched > compared / 10 && matched < compared * 9 / 10);
}

static void test_dates(void **state)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    lg_grammar *g;

    (void)state;
    assert_int_equal(
        lg_grammar_schema(LG_STR("{\"type\":\"string\",\"format\":\"date\"}"), NULL, &g, NULL, NULL), LG_OK);
    for (int y = 1600; y <= 2400; y++)
        for (int m = 0; m <= 13; m++)
            for (int d = m == 2 ? 27 : 29; d <= 32; d++) {
                char text[32];
                bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
                bool want = m >= 1 && m <= 12 && d <= days[m - 1] + (m == 2 && leap);
                int n = snprintf(text, sizeof text, "\"%04d-%02d-%02d\"", y, m, d);
                if (accepts(g, (lg_str){text, (size_t)n}) != want)
                    fail_msg("%s", text);
            }
    lg_grammar_destroy(g);
}

// Every character raw and as escapes, in a free string and in one with a pattern that admits exactly one
// character.
static void test_characters(void **state)
{
    lg_grammar *g, *one;

    (void)state;
    assert_int_equal(lg_grammar_schema(LG_STR("{\"type\":\"string\",\"minLength\":1,\"maxLength\":1}"), NULL,
                                       &g, NULL, NULL),
                     LG_OK);
    assert_int_equal(
        lg_grammar_schema(LG_STR("{\"type\":\"string\",\"pattern\":\"^[^]$\"}"), NULL, &one, NULL, NULL),
        LG_OK);
    for (int32_t cp = 0; cp < 0x110000; cp += cp < 0x3000 || (cp > 0xd000 && cp < 0x10100) ? 1 : 211) {
        char text[32] = "\"", esc[32];
        bool scalar = cp < 0xd800 || cp > 0xdfff, raw = cp >= 0x20 && cp != '"' && cp != '\\',
             plain = cp < 0x20;
        int n = 0;
        if (scalar) {
            n = 1 + lg_utf8_put(cp, text + 1);
            text[n++] = '"';
            // a backslash or a quote before the end leaves the string open
            assert_int_equal(accepts(g, (lg_str){text, (size_t)n}), raw);
            assert_int_equal(accepts(one, (lg_str){text, (size_t)n}), raw);
        }
        if (cp < 0x10000)
            n = snprintf(esc, sizeof esc, "\"\\u%04x\"", (unsigned)cp);
        else
            n = snprintf(esc, sizeof esc, "\"\\u%04X\\u%04x\"", 0xd800u + ((unsigned)(cp - 0x10000) >> 10),
                         0xdc00u + ((unsigned)cp & 0x3ff));
        assert_int_equal(accepts(g, (lg_str){esc, (size_t)n}), scalar);
        // with a pattern each character has one spelling
        plain = plain && cp != '\b' && cp != '\f' && cp != '\n' && cp != '\r' && cp != '\t';
        if (accepts(one, (lg_str){esc, (size_t)n}) != plain)
            fail_msg("%s", esc);
    }
    lg_grammar_destroy(g);
    lg_grammar_destroy(one);
}

// Properties of characters against PCRE2's tables, where these are of the same Unicode.
static void test_properties(void **state)
{
    static const struct {
        const char *ours, *theirs;
    } cases[] = {
        {"\\\\p{Alphabetic}", "\\p{Alphabetic}"},
        {"\\\\P{Alpha}", "\\P{Alphabetic}"},
        {"\\\\p{White_Space}", "\\p{White_Space}"},
        {"\\\\p{Letter}", "\\p{L}"},
        {"\\\\p{gc=Nd}", "\\p{Nd}"},
        {"\\\\p{Script=Greek}", "\\p{sc:Greek}"},
        {"\\\\p{scx=Greek}", "\\p{scx:Greek}"},
        {"\\\\p{sc=Latn}", "\\p{sc:Latin}"},
        {"\\\\p{Script_Extensions=Latin}", "\\p{scx:Latin}"},
        {"\\\\p{sc=Common}", "\\p{sc:Common}"},
        {"\\\\p{scx=Han}", "\\p{scx:Han}"},
        {"\\\\p{scx=Deva}", "\\p{scx:Devanagari}"},
        {"\\\\p{sc=Unknown}", "\\p{sc:Unknown}"},
    };
    char version[64] = "";

    (void)state;
    if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version) < 0 || strncmp(version, "14.", 3) != 0)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char schema[128], pattern[64];
        lg_grammar *g;
        int code;
        size_t at, n_in = 0;
        (void)snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":\"^%s$\"}", cases[i].ours);
        (void)snprintf(pattern, sizeof pattern, "^%s$", cases[i].theirs);
        assert_int_equal(lg_grammar_schema(lg_str_of(schema), NULL, &g, NULL, NULL), LG_OK);
        pcre2_code *pc =
            pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
        assert_non_null(pc);
        pcre2_match_data *md = pcre2_match_data_create_from_pattern(pc, NULL);
        for (int32_t cp = 0x20; cp < 0x110000; cp += cp < 0x3400 || (cp > 0xa600 && cp < 0x11200) ? 1 : 61) {
            char text[8] = "\"";
            bool want;
            int n;
            if ((cp >= 0xd800 && cp < 0xe000) || cp == '"' || cp == '\\')
                continue;
            n = lg_utf8_put(cp, text + 1);
            text[n + 1] = '"';
            want = pcre2_match(pc, (PCRE2_SPTR)text + 1, (size_t)n, 0, 0, md, NULL) >= 0;
            if (accepts(g, (lg_str){text, (size_t)n + 2}) != want)
                fail_msg("%s: U+%04X is %s", cases[i].ours, (unsigned)cp, want ? "missing" : "too much");
            n_in += want;
        }
        assert_true(n_in > 0);
        pcre2_match_data_free(md);
        pcre2_code_free(pc);
        lg_grammar_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_dates), cmocka_unit_test(test_characters),
                                       cmocka_unit_test(test_properties)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
