/*
 * unit/test_value: text/value: types from schemas, the order of readings, the strict recogniser against
 * base/json, and Python literals.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "text/value.h"

static lg_json_doc *parse(const char *text, bool repair)
{
    lg_json_limits lim = {.max_bytes = 1 << 20, .max_depth = 600, .repair = repair};
    lg_json_doc *doc = NULL;

    return lg_json_parse(lg_str_of(text), &lim, &doc, NULL) == LG_OK ? doc : NULL;
}

static lg_types types_of(const char *property)
{
    char schema[4096];
    lg_json_doc *doc;
    lg_types t;

    (void)snprintf(
        schema, sizeof schema,
        "{\"properties\":{\"k\":%s},\"$defs\":{\"s\":{\"type\":\"string\"},\"loop\":{\"$ref\":\"#/$defs/loop\"},"
        "\"wide\":{\"anyOf\":[{\"$ref\":\"#/$defs/wide\"},{\"$ref\":\"#/$defs/wide\"}]},"
        "\"a/b~c d\":[{\"type\":\"null\"},{\"type\":\"object\"}]}}",
        property);
    doc = parse(schema, false);
    assert_non_null(doc);
    t = lg_value_types(lg_json_root(doc), LG_STR("k"));
    lg_json_free(doc);
    return t;
}

static void test_types(void **state)
{
    static const struct {
        const char *property;
        lg_types types;
    } cases[] = {
        {"{\"type\":\"string\"}", LG_T_STRING},
        {"{\"type\":\"number\"}", LG_T_NUMBER},
        {"{\"type\":\"integer\",\"nullable\":true}", LG_T_INTEGER | LG_T_NULL},
        {"{\"type\":[\"string\",\"null\"]}", LG_T_STRING | LG_T_NULL},
        {"{\"type\":[\"string\",\"what\"]}", LG_T_STRING},
        {"{\"type\":\"what\",\"nullable\":true}", LG_T_UNKNOWN},
        {"{\"type\":7}", LG_T_UNKNOWN},
        {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", LG_T_STRING | LG_T_INTEGER},
        {"{\"oneOf\":[{\"type\":\"string\"},{}]}", LG_T_UNKNOWN},
        {"{\"anyOf\":[{\"type\":\"string\"},true]}", LG_T_UNKNOWN},
        {"{\"allOf\":[{\"type\":[\"string\",\"integer\"]},{},{\"type\":\"number\"}]}", LG_T_INTEGER},
        {"{\"allOf\":[{},{\"minLength\":1}]}", LG_T_UNKNOWN},
        {"{\"const\":\"x\"}", LG_T_STRING},
        {"{\"const\":null}", LG_T_NULL},
        {"{\"enum\":[\"a\",1,false]}", LG_T_STRING | LG_T_NUMBER | LG_T_BOOLEAN},
        {"{\"properties\":{}}", LG_T_OBJECT},
        {"{\"items\":{}}", LG_T_ARRAY},
        {"{\"description\":\"x\"}", LG_T_UNKNOWN},
        {"true", LG_T_UNKNOWN},
        {"{\"$ref\":\"#/$defs/s\"}", LG_T_STRING},
        {"{\"$ref\":\"#/$defs/s\",\"nullable\":true}", LG_T_STRING | LG_T_NULL},
        {"{\"$ref\":\"#/$defs/a~1b~0c%20d/1\"}", LG_T_OBJECT},
        {"{\"$ref\":\"#/$defs/a~1b~0c%20d/2\"}", LG_T_UNKNOWN},
        {"{\"$ref\":\"#/$defs/none\"}", LG_T_UNKNOWN},
        {"{\"$ref\":\"http://x/y\"}", LG_T_UNKNOWN},
        {"{\"$ref\":\"#\"}", LG_T_OBJECT}, // the whole schema
        {"{\"$ref\":\"#/$defs/loop\"}", LG_T_UNKNOWN},
        {"{\"$ref\":\"#/$defs/wide\"}", LG_T_UNKNOWN}, // 2 to the 16th branches, if nothing bounded them
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lg_types got = types_of(cases[i].property);
        if (got != cases[i].types) {
            print_error("%s: %x instead of %x\n", cases[i].property, got, cases[i].types);
            fail();
        }
    }
    assert_int_equal(lg_value_types(NULL, LG_STR("k")), LG_T_UNKNOWN);
    lg_json_doc *doc =
        parse("{\"$ref\":\"#/d\",\"d\":{\"properties\":{\"k\":{\"type\":\"boolean\"}}}}", false);
    assert_int_equal(lg_value_types(lg_json_root(doc), LG_STR("k")), LG_T_BOOLEAN);
    assert_int_equal(lg_value_types(lg_json_root(doc), LG_STR("j")), LG_T_UNKNOWN);
    lg_json_free(doc);
}

static void test_write(void **state)
{
    enum {
        S = LG_T_STRING,
        N = LG_T_NUMBER,
        I = LG_T_INTEGER,
        B = LG_T_BOOLEAN,
        Z = LG_T_NULL,
        A = LG_T_ARRAY,
        O = LG_T_OBJECT,
        U = LG_T_UNKNOWN
    };
    static const struct {
        lg_types types;
        const char *raw, *want;
    } cases[] = {
        {S, " 42 ", "\" 42 \""},
        {S, "null", "\"null\""},
        {S, "", "\"\""},
        {U, "[1, 2]", "[1, 2]"},
        {U, " true\n", "true"},
        {U, "\"q\"", "\"\\\"q\\\"\""},
        {U, "007", "\"007\""},
        {U, " words ", "\" words \""},
        {U, "", "\"\""},
        {U, "1e400", "1e400"},
        {U, "{'a': 1}", "\"{'a': 1}\""},
        {I, "42", "42"},
        {I, " 42\n", "42"},
        {I, "42.0", "42"},
        {I, "1e3", "1000"},
        {I, "-1.50e1", "-15"},
        {I, "120e-1", "12"},
        {I, "0.0", "0"},
        {I, "-0.0", "0"},
        {I, "0e9", "0"},
        {I, "123456789012345678901234567890", "123456789012345678901234567890"},
        {I, "3.5", "3.5"}, // no reading as an integer: strict JSON passes
        {I, "1e999", "1e999"},
        {I, "1e99999999999999999999", "1e99999999999999999999"},
        {I, "x", "\"x\""},
        {I, "None", "null"},
        {I, "\"7\"", "\"7\""},
        {I | S, "7", "7"},
        {I | S, "7.5", "\"7.5\""},
        {I | S, "null", "\"null\""},
        {I | S | Z, "null", "null"},
        {I | S | Z, "None", "null"},
        {N, "1.50", "1.50"},
        {N, "-0", "-0"},
        {N, "NaN", "\"NaN\""},
        {N, ".5", "\".5\""},
        {B, "True", "true"},
        {B, " false ", "false"},
        {B, "FALSE", "\"FALSE\""},
        {B | S, "True", "true"},
        {B, "1", "1"},
        {Z | B, "null", "null"},
        {A, "[1,2]", "[1,2]"},
        {A, "['x', 'y']", "[\"x\", \"y\"]"},
        {A, "('x', )", "[\"x\"]"},
        {A, "{\"a\":1}", "{\"a\":1}"}, // not of the kind, but strict JSON
        {A, "{'a':1}", "\"{'a':1}\""},
        {A, "a, b", "\"a, b\""},
        {O, "{'a': None, \"b\": [True, 1.5]}", "{\"a\": null, \"b\": [true, 1.5]}"},
        {O, "{}", "{}"},
        {O | S, "{\"a\": 1}", "{\"a\": 1}"},
        {O | S, "[1]", "\"[1]\""},
        {A | S, "\"x\"", "\"\\\"x\\\"\""},
    };
    lg_buf out;

    (void)state;
    lg_buf_init(&out, 1 << 16);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lg_buf_clear(&out);
        lg_value_write(cases[i].types, lg_str_of(cases[i].raw), &out);
        if (!lg_str_eqz(lg_buf_str(&out), cases[i].want)) {
            print_error("%x %s: %.*s instead of %s\n", cases[i].types, cases[i].raw, (int)out.n, out.p,
                        cases[i].want);
            fail();
        }
    }
    lg_buf_free(&out);
}

static void test_strict(void **state)
{
    static const struct {
        const char *text;
        bool ok;
    } cases[] = {
        {"1", true},
        {" 1 ", true},
        {"", false},
        {"01", false},
        {"-", false},
        {"-0", true},
        {"1.", false},
        {".1", false},
        {"1e", false},
        {"1e+", false},
        {"1E-2", true},
        {"+1", false},
        {"1 2", false},
        {"nul", false},
        {"null", true},
        {"nulll", false},
        {"\"a\"", true},
        {"\"a", false},
        {"\"\\x\"", false},
        {"\"\\u12g4\"", false},
        {"\"\\u0000\"", true},
        {"\"\\ud83d\\ude00\"", true},
        {"\"\\ud83d\"", false},
        {"\"\\ud83d\\u0041\"", false},
        {"\"\\ude00\"", false},
        {"\"\t\"", false},
        {"[]", true},
        {"[ ]", true},
        {"[1,]", false},
        {"[,1]", false},
        {"[1 2]", false},
        {"[1", false},
        {"]", false},
        {"{}", true},
        {"{ }", true},
        {"{\"a\":1}", true},
        {"{\"a\":1,}", false},
        {"{\"a\"}", false},
        {"{a:1}", false},
        {"{\"a\":1 \"b\":2}", false},
        {"{\"a\":[{}, [1, {\"b\": null}]]}", true},
        {"[}", false},
        {"{]", false},
        {"[1}", false},
        {"{\"a\":1]", false},
        {"[[1],[2]] ", true},
        {"[[1],[2]]]", false},
        {"\xEF\xBB\xBF"
         "1",
         false},
        {"NaN", false},
        {"'a'", false},
    };
    static const char pool[] = "[]{}\",:0123.eE+-truefalsn \\\\ud8";
    unsigned seed = 3;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (lg_value_is_json(lg_str_of(cases[i].text), NULL) != cases[i].ok) {
            print_error("%s\n", cases[i].text);
            fail();
        }
    }
    for (int round = 0; round < 200000; round++) { // base/json is the oracle
        char text[16];
        size_t n = (size_t)rand_r(&seed) % (sizeof text - 1);
        lg_json_kind kind = LG_JSON_NULL;
        for (size_t i = 0; i < n; i++)
            text[i] = pool[(size_t)rand_r(&seed) % (sizeof pool - 1)];
        text[n] = 0;
        lg_json_doc *doc = parse(text, false);
        bool ok = lg_value_is_json((lg_str){text, n}, &kind);
        if (ok != (doc != NULL) || (ok && kind != lg_json_kind_of(lg_json_root(doc)))) {
            print_error("%s\n", text);
            fail();
        }
        lg_json_free(doc);
    }
}

static void test_depth(void **state)
{
    char deep[1100];

    (void)state;
    for (int n = 500; n < 520; n++) {
        memset(deep, '[', (size_t)n);
        memset(deep + n, ']', (size_t)n);
        assert_int_equal(lg_value_is_json((lg_str){deep, 2 * (size_t)n}, NULL), n <= 512);
    }
}

static void test_member(void **state)
{
    lg_str v = {0};

    (void)state;
    assert_true(lg_value_member(LG_STR(" { \"a\" : [1, {\"b\": 2}] , \"b\":\"x\" } "), "a", &v));
    assert_str(v, "[1, {\"b\": 2}]");
    assert_true(lg_value_member(LG_STR("{\"a\":1,\"b\":2,\"a\":3}"), "a", &v));
    assert_str(v, "3");
    assert_false(lg_value_member(LG_STR("{\"b\":{\"a\":1}}"), "a", &v));
    assert_false(lg_value_member(LG_STR("{}"), "a", &v));
    assert_false(lg_value_member(LG_STR("[1]"), "a", &v));
    assert_false(lg_value_member(LG_STR(""), "a", &v));
}

static void test_python(void **state)
{
    static const struct {
        const char *text, *want; /* NULL: no literal */
    } cases[] = {
        {"'a'", "\"a\""},
        {"\"it's\"", "\"it's\""},
        {"'\\n\\t\\x41\\u00e9\\U0001F600\\101\\q'", "\"\\n\\tA\xC3\xA9\xF0\x9F\x98\x80" "A\\\\q\""},
        {"'\\ud83d\\ude00'", "\"\xF0\x9F\x98\x80\""},
        {"'\\ud83d'", "\"\xEF\xBF\xBD\""},
        {"'\\ud83d\\u0041'", "\"\xEF\xBF\xBD" "A\""},
        {"'a\\\nb'", "\"ab\""},
        {"'''a\n'b'''", "\"a\\n'b\""},
        {"'a\nb'", NULL},
        {"'a", NULL},
        {"'\\x4'", NULL},
        {"'\\U00110000'", NULL},
        {"''", "\"\""},
        {"[1, -2.50, 1e5, +3, 1., .5]", "[1, -2.50, 1e5, 3, 1.0, 0.5]"},
        {"[007]", NULL},
        {"[1e999]", "[1e999]"},
        {"[1_000]", NULL},
        {"[True, False, None, true, false, null]", "[true, false, null, true, false, null]"},
        {"[nan]", NULL},
        {"[1, 2,]", "[1, 2]"},
        {"[,]", NULL},
        {"[1 2]", NULL},
        {"()", "[]"},
        {"(1,)", "[1]"},
        {"(1)", NULL},
        {"(1, 2)", "[1, 2]"},
        {"{'a': (1, [2]), 'b': {}}", "{\"a\": [1, [2]], \"b\": {}}"},
        {"{1: 2}", NULL},
        {"{'a'}", NULL},
        {"{'a': 1, }", "{\"a\": 1}"},
        {"{'a' 1}", NULL},
        {" [ ] ", "[]"},
        {"[] x", NULL},
        {"", NULL},
        {"[", NULL},
        {"b'x'", NULL},
        {"x", NULL},
        {"-", NULL},
        {"1+2j", NULL},
    };
    char deep[400];
    lg_buf out;
    lg_json_kind kind;

    (void)state;
    lg_buf_init(&out, 1 << 16);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lg_buf_clear(&out);
        (void)lg_buf_addz(&out, "#");
        bool ok = lg_value_python(lg_str_of(cases[i].text), &kind, &out);
        lg_str got = {out.p + 1, out.n - 1};
        if (ok != (cases[i].want != NULL) || !lg_str_eqz(got, ok ? cases[i].want : "")) {
            print_error("%s: %.*s\n", cases[i].text, (int)got.n, got.p);
            fail();
        }
        assert_true(!ok || lg_value_is_json(got, NULL));
    }
    for (int n = 60; n < 70; n++) {
        memset(deep, '[', (size_t)n);
        memset(deep + n, ']', (size_t)n);
        lg_buf_clear(&out);
        assert_int_equal(lg_value_python((lg_str){deep, 2 * (size_t)n}, &kind, &out), n <= 64);
    }
    lg_buf_free(&out);
}

// Whatever the text and the types, what is written is JSON.
static void test_always_json(void **state)
{
    static const char pool[] = "[]{}()\"',:01.eE+-TrueNonfalsd \\xu\n\xC3\xA9";
    unsigned seed = 9;
    lg_buf out, text;

    (void)state;
    lg_buf_init(&out, 1 << 16);
    lg_buf_init(&text, 1 << 16);
    for (int round = 0; round < 100000; round++) {
        lg_buf_clear(&out);
        lg_buf_clear(&text);
        for (size_t i = (size_t)rand_r(&seed) % 14; i > 0; i--) {
            size_t k = (size_t)rand_r(&seed) % (sizeof pool - 2);
            (void)(k == sizeof pool - 3 ? lg_buf_addz(&text, "\xC3\xA9") : lg_buf_addc(&text, pool[k]));
        }
        lg_value_write((lg_types)rand_r(&seed) % 128, lg_buf_str(&text), &out);
        if (!lg_value_is_json(lg_buf_str(&out), NULL)) {
            print_error("%.*s: %.*s\n", (int)text.n, text.p, (int)out.n, out.p);
            fail();
        }
    }
    lg_buf_free(&out);
    lg_buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),  cmocka_unit_test(test_write),  cmocka_unit_test(test_strict),
        cmocka_unit_test(test_depth),  cmocka_unit_test(test_member), cmocka_unit_test(test_python),
        cmocka_unit_test(test_always_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
