/*
 * unit/test_json: what is accepted, repaired and refused (with its place), numbers by text, look-up, Python's
 * output form, limits, and memory that runs out at every allocation, jansson's included.
 */
#include "check.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "fault.h"

static const lg_json_limits lenient = {.max_bytes = 1 << 24, .max_depth = 512, .repair = true};
static const lg_json_limits strict = {.max_bytes = 1 << 24, .max_depth = 512, .repair = false};

static lg_json_doc *parse(lg_str text, const lg_json_limits *lim)
{
    lg_json_doc *doc = NULL;
    lg_err err = {0};

    if (lg_json_parse(text, lim, &doc, &err) != LG_OK)
        fail_msg("%s", err.msg);
    return doc;
}

#define assert_dump(in, lim, want)                            \
    do {                                                      \
        lg_json_doc *doc_ = parse(LG_STR(in), lim);           \
        lg_buf out_;                                          \
        lg_buf_init(&out_, 1 << 20);                          \
        assert_true(lg_json_dump(lg_json_root(doc_), &out_)); \
        assert_str(lg_buf_str(&out_), want);                  \
        lg_buf_free(&out_);                                   \
        lg_json_free(doc_);                                   \
    } while (0)

static void dumps(void **state)
{
    (void)state;
    assert_dump("{}", &strict, "{}");
    assert_dump(" [ ] ", &strict, "[]");
    assert_dump("\xEF\xBB\xBF\t{\"b\":[1,2,{\"x\":null}],\n\"a\":true , \"c\":false}", &strict,
                "{\"b\": [1, 2, {\"x\": null}], \"a\": true, \"c\": false}");
    assert_dump("\"\\u0041\\/\\b\\f\\n\\r\\t\\\"\\\\\\u0000\\u001f\x7f<>&'\\u2028\"", &strict,
                "\"A/\\b\\f\\n\\r\\t\\\"\\\\\\u0000\\u001f\x7f<>&'\xE2\x80\xA8\"");
    assert_dump("\"\\u00e9 \\ud83d\\uDE00 \xF0\x9F\x98\x80\"", &strict,
                "\"\xC3\xA9 \xF0\x9F\x98\x80 \xF0\x9F\x98\x80\"");
    // duplicates: last value, first position
    assert_dump("{\"a\":1,\"b\":2,\"a\":{\"z\":3}}", &strict, "{\"a\": {\"z\": 3}, \"b\": 2}");
}

// Right-hand sides are what Python 3.11 prints for json.loads of the left.
static void number_forms(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"0.1", "0.1"},
        {"1.0", "1.0"},
        {"100.0", "100.0"},
        {"1e16", "1e+16"},
        {"9999999999999998.0", "9999999999999998.0"},
        {"1e15", "1000000000000000.0"},
        {"123456789012345680.0", "1.2345678901234568e+17"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"1e-7", "1e-07"},
        {"5e-324", "5e-324"},
        {"2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"2.225073858507201e-308", "2.225073858507201e-308"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"1e23", "1e+23"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"1.10", "1.1"},
        {"3.14159265", "3.14159265"},
        {"1E5", "100000.0"},
        {"-0.0", "-0.0"},
        {"-0e5", "-0.0"},
        {"-1.5e-10", "-1.5e-10"},
        {"5.684341886080802e-14", "5.684341886080802e-14"}, // 2^-44: the nearest 16 digits do not read back
        {"9.5367431640625e-07", "9.5367431640625e-07"},
        {"6.10351562500000000e-05", "6.103515625e-05"},
        {"0.000123", "0.000123"},
        {"1e400", "Infinity"},
        {"-1e400", "-Infinity"},
        {"1e-400", "0.0"},
        {"0", "0"},
        {"-0", "0"},
        {"-7", "-7"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
    };
    lg_buf out;

    (void)state;
    lg_buf_init(&out, 1 << 10);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lg_json_doc *doc = parse(lg_str_of(cases[i].in), &strict);
        lg_buf_clear(&out);
        assert_true(lg_json_dump(lg_json_root(doc), &out));
        assert_string_equal(lg_buf_z(&out), cases[i].out);
        assert_true(lg_str_eqz(lg_json_number_text(lg_json_root(doc)), cases[i].in));
        lg_json_free(doc);
    }
    lg_buf_clear(&out);
    assert_true(lg_json_float(NAN, &out));
    assert_string_equal(lg_buf_z(&out), "NaN");
    lg_buf_free(&out);
}

// Whatever the double: its text reads back as the same double, and no shorter text would do.
static void floats_are_shortest(void **state)
{
    uint64_t z = 1;
    lg_buf out;

    (void)state;
    lg_buf_init(&out, 64);
    for (int i = 0; i < 20000; i++) {
        double v, back;
        z = z * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = i % 2 ? z ^ z >> 29 : (z >> 52) << 52; // every other one is a power of two
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v))
            continue;
        lg_buf_clear(&out);
        assert_true(lg_json_float(v, &out));
        assert_true(lg_str_f64(lg_buf_str(&out), &back));
        assert_true(back == v);
        int digits = 0, zeros = 0; // significant ones, and how many of them are trailing zeros
        for (size_t k = 0; k < out.n && out.p[k] != 'e'; k++) {
            if (out.p[k] < '0' || out.p[k] > '9' || (digits == 0 && out.p[k] == '0'))
                continue;
            digits++;
            zeros = out.p[k] == '0' ? zeros + 1 : 0;
        }
        digits -= zeros;
        if (digits > 1) {
            char shorter[40];
            (void)snprintf(shorter, sizeof shorter, "%.*e", digits - 2, v);
            assert_true(strtod(shorter, NULL) != v);
        }
    }
    lg_buf_free(&out);
}

static void integers(void **state)
{
    static const struct {
        const char *in;
        bool ok;
        int64_t value;
    } cases[] = {
        {"20.0", true, 20},
        {"1e3", true, 1000},
        {"-1.5e1", true, -15},
        {"1.25E2", true, 125},
        {"12300e-2", true, 123},
        {"0.0", true, 0},
        {"-0", true, 0},
        {"0e999999999999999999999", true, 0},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775807.000", true, INT64_MAX},
        {"9007199254740993.0", true, 9007199254740993}, // by its text, not through a double
        {"9223372036854775808", false, 0},
        {"-9.223372036854775809e18", false, 0},
        {"1.5", false, 0},
        {"1e-1", false, 0},
        {"1e19", false, 0},
        {"1e99999999999999999999", false, 0},
        {"1e-99999999999999999999", false, 0},
        {"100000000000000000000000000000000000000000000000000e-40", true, 10000000000},
        {"0.00000000000000000000000000000000000000001e42", true, 10},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t v = 42;
        lg_json_doc *doc = parse(lg_str_of(cases[i].in), &strict);
        if (lg_json_i64(lg_json_root(doc), &v) != cases[i].ok || v != (cases[i].ok ? cases[i].value : 42))
            fail_msg("%s gives %lld", cases[i].in, (long long)v);
        lg_json_free(doc);
    }
}

static void accessors(void **state)
{
    lg_json_doc *doc = parse(LG_STR("{\"s\":\"a\\u0000b\",\"t\":true,\"n\":[1.5,\"x\"],\"o\":{}}"), &strict);
    const lg_json *root = lg_json_root(doc), *n = lg_json_get(root, "n");
    int64_t i;
    double d;
    bool b = false;
    lg_str key;

    (void)state;
    assert_int_equal(lg_json_len(root), 4);
    assert_str(lg_json_str(lg_json_get(root, "s")), "a\0b");
    assert_true(lg_json_bool(lg_json_get(root, "t"), &b) && b);
    assert_int_equal(lg_json_len(n), 2);
    assert_true(lg_json_f64(lg_json_at(n, 0), &d) && d == 1.5);
    assert_ptr_equal(lg_json_member(root, 2, &key), n);
    assert_str(key, "n");
    assert_non_null(lg_json_member(root, 3, NULL));
    // everything answers on everything
    assert_null(lg_json_member(root, 4, NULL));
    assert_null(lg_json_at(n, 2));
    assert_null(lg_json_at(root, 0));
    assert_null(lg_json_get(n, "x"));
    assert_null(lg_json_get(root, "none"));
    assert_null(lg_json_get(NULL, "x"));
    assert_int_equal(lg_json_len(NULL), 0);
    assert_int_equal(lg_json_kind_of(NULL), LG_JSON_NULL);
    assert_int_equal(lg_json_str(n).n, 0);
    assert_int_equal(lg_json_number_text(root).n, 0);
    assert_false(lg_json_i64(NULL, &i));
    assert_false(lg_json_i64(lg_json_at(n, 1), &i));
    assert_false(lg_json_f64(root, &d));
    assert_false(lg_json_bool(n, &b));
    lg_json_free(doc);
    lg_json_free(NULL);
}

static void large_object(void **state)
{
    enum { N = 20000 };
    lg_json_doc *doc;
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 1 << 22);
    for (int i = 0; i < N; i++)
        assert_true(lg_buf_addf(&b, "%s\"k%d\":%d", i ? "," : "{", (i * 7919) % N, i));
    assert_true(lg_buf_addz(&b, ",\"k5\":-1}"));
    doc = parse(lg_buf_str(&b), &strict);
    assert_int_equal(lg_json_len(lg_json_root(doc)), N);
    for (int i = 0; i < N; i++) {
        char name[16];
        int64_t v;
        lg_str key;
        (void)snprintf(name, sizeof name, "k%d", (i * 7919) % N);
        const lg_json *j = lg_json_get(lg_json_root(doc), name);
        assert_true(lg_json_i64(j, &v) && v == (strcmp(name, "k5") ? i : -1));
        assert_ptr_equal(lg_json_member(lg_json_root(doc), (size_t)i, &key), j);
        assert_true(lg_str_eqz(key, name));
    }
    assert_null(lg_json_get(lg_json_root(doc), "k"));
    assert_null(lg_json_get(lg_json_root(doc), "zz"));
    assert_null(lg_json_get(lg_json_root(doc), ""));
    lg_json_free(doc);
    lg_buf_free(&b);
}

static void repairs(void **state)
{
    lg_json_doc *doc;

    (void)state;
#define FFFD "\xEF\xBF\xBD"
    assert_dump("[\"\\ud800\",\"\\udc00x\",\"\\ud83d\\u0041\",\"\\ud83d\\ud83d\\ude00\"]", &lenient,
                "[\"" FFFD "\", \"" FFFD "x\", \"" FFFD "A\", \"" FFFD "\xF0\x9F\x98\x80\"]");
    assert_dump("\"a\xFF\xFE"
                "b\xE2\x82"
                "c\xF0\x9F\x98\"",
                &lenient, "\"a" FFFD FFFD "b" FFFD "c" FFFD "\"");
    assert_dump("\"\xED\xA0\x80\"", &lenient, "\"" FFFD FFFD FFFD "\""); // a surrogate written as bytes
    assert_dump("{\"a\\u0000\":\"\\u0000\"}", &lenient, "{\"a" FFFD "\": \"\\u0000\"}");
    doc = parse(LG_STR("\"\\ud800\""), &lenient);
    assert_true(lg_json_repaired(doc));
    lg_json_free(doc);
    doc = parse(LG_STR("\"\\ud83d\\ude00 \xEF\xBF\xBD\""), &lenient);
    assert_false(lg_json_repaired(doc));
    lg_json_free(doc);
}

// The text behind a node of a document that was not taken as it was written.
static void written(void **state)
{
    static const struct {
        const char *in, *way, *out; // way: names of members, digits for elements
    } cases[] = {
        {"{\"a\": {\"x\":1}}", "a", ""}, // nothing was changed
        {"\xEF\xBB\xBF {\"s\" : {\"q\":1, \"q\":[2]} }", "s", "{\"q\":1, \"q\":[2]}"},
        {"{\"a\":1,\"b\":[0,{\"k\" : \"}\\\"\" }],\"a\":2}", "b1", "{\"k\" : \"}\\\"\" }"},
        {"{\"a\":1,\"b\":{},\"\\u0061\":{\"z\":\"\"}}", "a", "{\"z\":\"\"}"}, // the last one counts
        {"{\"a\":{\"z\":1},\"b\":0,\"a\":{\"z\":2,\"z\":3}}", "az", "3"},
        {"{\"a\":\"\\ud800\",\"b\":[ null,-1.50 ]}", "b1", "-1.50"},
        {"{\"a\":\"\\ud800\",\"b\":[]}", "a", "\"\\ud800\""},
        {"{\"\xC3\xA9\\u0000\":[{}],\"c\":\"\xFF\"}", "\xC3\xA9\xEF\xBF\xBD", "[{}]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lg_json_doc *doc = parse(lg_str_of(cases[i].in), &lenient);
        lg_json_doc *other;
        const lg_json *j = lg_json_root(doc);
        for (const char *w = cases[i].way; *w;) {
            size_t n = (unsigned char)*w < 0x80 ? 1 : strlen(w);
            j = lg_json_is(j, LG_JSON_ARRAY) ? lg_json_at(j, (size_t)(*w - '0'))
                                             : lg_json_getn(j, (lg_str){w, n});
            w += n;
        }
        assert_non_null(j);
        assert_true(lg_str_eqz(lg_json_written(doc, j), cases[i].out));
        other = parse(LG_STR("{}"), &strict);
        assert_str(lg_json_written(doc, lg_json_root(other)), "");
        lg_json_free(other);
        lg_json_free(doc);
    }
}

static void refusals(void **state)
{
    static const struct {
        const char *in, *msg;
    } cases[] = {
        {"", "JSON line 1, column 1: the text ends too early"},
        {" \n ", "JSON line 2, column 2: the text ends too early"},
        {"[1,", "JSON line 1, column 4: the text ends too early"},
        {"[1,]", "JSON line 1, column 4: a JSON value is needed here"},
        {"[1 2]", "JSON line 1, column 4: a comma or ] is needed here"},
        {"[1}", "JSON line 1, column 3: a comma or ] is needed here"},
        {"{\"a\":1]", "JSON line 1, column 7: a comma or } is needed here"},
        {"{\"a\" 1}", "JSON line 1, column 6: a colon is needed here"},
        {"{a:1}", "JSON line 1, column 2: a key in double quotes is needed here"},
        {"{\"a\":1,}", "JSON line 1, column 8: a key in double quotes is needed here"},
        {"{\"a\":1}\n x", "JSON line 2, column 2: nothing may follow the value"},
        {"\"\xC3\xA9\xC3\xA9\" x", "JSON line 1, column 6: nothing may follow the value"},
        {"'a'", "JSON line 1, column 1: a JSON value is needed here"},
        {"nul", "JSON line 1, column 1: a JSON value is needed here"},
        {"NaN", "JSON line 1, column 1: a JSON value is needed here"},
        {"truex", "JSON line 1, column 5: nothing may follow the value"},
        {"01", "JSON line 1, column 1: not a number in JSON's form (such as 10, -0.5, 1e-3)"},
        {"-", "JSON line 1, column 1: not a number in JSON's form (such as 10, -0.5, 1e-3)"},
        {"1.", "JSON line 1, column 1: not a number in JSON's form (such as 10, -0.5, 1e-3)"},
        {"1e", "JSON line 1, column 1: not a number in JSON's form (such as 10, -0.5, 1e-3)"},
        {"[\"ab\n",
         "JSON line 1, column 5: a control character in a string must be written as an escape such as \\n"},
        {"[\"ab", "JSON line 1, column 2: a string begins here and never ends"},
        {"\"\\", "JSON line 1, column 2: the text ends inside a string"},
        {"\"\\x\"", "JSON line 1, column 2: unknown escape; \\\\ is a backslash"},
        {"\"\\u12g4\"", "JSON line 1, column 2: \\u needs four hexadecimal digits"},
        {"\"\\u12", "JSON line 1, column 2: \\u needs four hexadecimal digits"},
        {"\"\\ud800\"", "JSON line 1, column 2: half of a surrogate pair; both halves are needed"},
        {"\"a\xFF\"", "JSON line 1, column 3: these bytes are not UTF-8"},
        {"{\"\\u0000\":1}", "JSON line 1, column 3: a key may not hold \\u0000"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lg_json_doc *doc = NULL;
        lg_err err = {0};
        assert_int_equal(lg_json_parse(lg_str_of(cases[i].in), &strict, &doc, &err), LG_E_INPUT);
        assert_string_equal(err.msg, cases[i].msg);
        assert_null(doc);
    }
}

static void limits(void **state)
{
    lg_json_limits lim = {.max_bytes = 100, .max_depth = 3, .repair = true, .max_values = 5};
    lg_json_doc *doc = NULL;
    lg_err err = {0};
    char deep[10000];

    (void)state;
    assert_int_equal(lg_json_parse(LG_STR("[[[1]]]"), &lim, &doc, &err), LG_OK);
    lg_json_free(doc);
    doc = NULL;
    assert_int_equal(lg_json_parse(LG_STR("[{\"a\":[{}]}]"), &lim, &doc, &err), LG_E_LIMIT);
    assert_string_equal(err.msg, "JSON line 1, column 8: nested too deeply");
    assert_int_equal(lg_json_parse(LG_STR("[1,2,3,4,5]"), &lim, &doc, &err), LG_E_LIMIT);
    assert_string_equal(err.msg, "JSON line 1, column 10: too many values");
    memset(deep, ' ', 101);
    assert_int_equal(lg_json_parse((lg_str){deep, 101}, &lim, &doc, &err), LG_E_LIMIT);
    assert_string_equal(err.msg, "JSON of 101 bytes; the limit is 100");
    // the cap holds whatever the caller allows; up to it, jansson and our walk manage
    lim = (lg_json_limits){.max_bytes = 1 << 20, .max_depth = 1 << 20};
    memset(deep, '[', 5000);
    memset(deep + 5000, ']', 5000);
    assert_int_equal(lg_json_parse((lg_str){deep, 10000}, &lim, &doc, &err), LG_E_LIMIT);
    assert_int_equal(lg_json_parse((lg_str){deep + 3000, 4000}, &lim, &doc, &err), LG_OK);
    lg_json_free(doc);
}

static void quote_any_bytes(void **state)
{
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 1 << 10);
    assert_true(lg_json_quote(LG_STR("a\"\\\n\x01\xFF\xE2\x82\xC3\xA9\0z"), &b));
    assert_str(lg_buf_str(&b), "\"a\\\"\\\\\\n\\u0001" FFFD FFFD "\xC3\xA9\\u0000z\"");
    lg_buf_free(&b);
    lg_buf_init(&b, 4);
    assert_false(lg_json_quote(LG_STR("abcdef"), &b));
    assert_true(b.failed);
    lg_buf_free(&b);
}

static void every_allocation(void **state)
{
    static const char text[] =
        "{\"a\":[1,2.5,\"x\",{\"b\":null,\"c\":[true,false]}],\"d\":\"\\ud800\",\"e\":1,\"f\":1,\"g\":1,"
        "\"h\":1,\"i\":1,\"j\":1,\"k\":1,\"l\":123456789012345678901234567890}";
    long n = 1;

    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    json_set_alloc_funcs(fault_malloc, free);
    for (;; n++) {
        lg_json_doc *doc = NULL;
        lg_err err = {0};
        fault_arm(FAULT_ALLOC, n);
        lg_status st = lg_json_parse(LG_STR(text), &lenient, &doc, &err);
        if (!fault_disarm()) {
            assert_int_equal(st, LG_OK);
            lg_json_free(doc);
            break;
        }
        assert_int_equal(st, LG_E_NOMEM);
        assert_string_equal(err.msg, "out of memory while reading JSON");
        assert_null(doc);
    }
    assert_true(n > 30);
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dumps),    cmocka_unit_test(number_forms), cmocka_unit_test(floats_are_shortest),
        cmocka_unit_test(integers), cmocka_unit_test(accessors),       cmocka_unit_test(large_object),
        cmocka_unit_test(repairs),  cmocka_unit_test(written),      cmocka_unit_test(refusals),
        cmocka_unit_test(limits),
        cmocka_unit_test(quote_any_bytes), cmocka_unit_test(every_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
