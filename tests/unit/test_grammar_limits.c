/*
 * unit/test_grammar_limits: schemas made to hurt, and what is said about schemas that are refused. Each
 * compiles or is refused with a code, within the budget of work; none may crash or hang.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

#include "grammar/grammar_int.h"

typedef struct verdict {
    lg_grammar_code code;
    lg_grammar_error why;
    lg_err err;
} verdict;

static verdict try_text(lg_str schema)
{
    verdict v = {0};
    lg_grammar *g = NULL;
    lg_status st = lg_grammar_schema(schema, NULL, &g, &v.why, &v.err);

    v.code = v.why.code;
    assert_true(!g || g->memory.used <= (size_t)32 << 20);
    assert_int_equal(st == LG_OK, v.code == LG_GRAMMAR_OK);
    assert_true(st == LG_OK || v.err.msg[0]);
    lg_grammar_destroy(g);
    return v;
}

static void expect(lg_buf *b, lg_grammar_code code)
{
    verdict v = try_text(lg_buf_str(b));

    if (v.code != code)
        fail_msg("%.60s...: %s (%s)", lg_buf_z(b), lg_grammar_code_name(v.code), v.err.msg);
    lg_buf_clear(b);
}

static void repeat(lg_buf *b, const char *z, int n)
{
    while (n-- > 0)
        assert_true(lg_buf_addz(b, z));
}

static void test_hostile(void **state)
{
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 1 << 22);
    repeat(&b, "[", 100000);
    expect(&b, LG_GRAMMAR_SCHEMA_TOO_LARGE);
    repeat(&b, "{\"allOf\":[", 100000);
    expect(&b, LG_GRAMMAR_SCHEMA_TOO_LARGE);
    repeat(&b, "{\"allOf\":[", 10000); // its text is not too long
    expect(&b, LG_GRAMMAR_SCHEMA_TOO_LARGE);
    repeat(&b, "{\"allOf\":[", 60); // nested as deeply as may be
    repeat(&b, "{\"type\":\"null\"}", 1);
    repeat(&b, "]}", 60);
    expect(&b, LG_GRAMMAR_OK);
    repeat(&b, "{\"type\":\"string\",\"pattern\":\"", 1);
    repeat(&b, "(", 100000);
    repeat(&b, "\"}", 1);
    expect(&b, LG_GRAMMAR_TOO_COMPLEX);
    repeat(&b, "{\"type\":\"string\",\"pattern\":\"", 1);
    repeat(&b, "(", 3000);
    repeat(&b, "\"}", 1);
    expect(&b, LG_GRAMMAR_TOO_COMPLEX);
    repeat(&b, "{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){20}\"}", 1);
    expect(&b, LG_GRAMMAR_TOO_COMPLEX);
    repeat(&b, "{\"type\":\"string\",\"pattern\":\"((a{1,100}){1,100}){1,100}\"}", 1);
    expect(&b, LG_GRAMMAR_TOO_COMPLEX);
    repeat(&b, "{\"type\":\"string\",\"pattern\":\"^(a+)+$\"}", 1);
    expect(&b, LG_GRAMMAR_OK);
    repeat(&b, "{\"type\":\"string\",\"maxLength\":1000000000}", 1);
    expect(&b, LG_GRAMMAR_OK);
    repeat(&b, "{\"type\":\"array\",\"minItems\":1000000000}", 1);
    expect(&b, LG_GRAMMAR_OK);
    repeat(&b, "{\"type\":\"array\",\"maxItems\":123456789012345678901234567890}", 1);
    expect(&b, LG_GRAMMAR_OK);
    repeat(&b, "{\"type\":\"number\",\"minimum\":1", 1);
    repeat(&b, "0", 10000);
    repeat(&b, "}", 1);
    expect(&b, LG_GRAMMAR_TOO_COMPLEX);
    for (int i = 0; i < 3; i++) {
        static const char *const keyword[] = {"const", "multipleOf", "exclusiveMaximum"};
        assert_true(lg_buf_addf(&b, "{\"type\":\"number\",\"%s\":1", keyword[i]));
        repeat(&b, "3", 10000);
        repeat(&b, "}", 1);
        expect(&b, i ? LG_GRAMMAR_TOO_COMPLEX : LG_GRAMMAR_OK);
    }
    repeat(&b, "{\"type\":\"object\",\"properties\":{\"", 1);
    repeat(&b, "k", 100000);
    repeat(&b, "\":{}},\"additionalProperties\":false}", 1);
    expect(&b, LG_GRAMMAR_OK);
    repeat(
        &b,
        "{\"type\":\"object\",\"patternProperties\":{\".*\":{\"type\":\"integer\"},\"^a\":{\"minimum\":3}}}",
        1);
    expect(&b, LG_GRAMMAR_OK);
    repeat(&b, "{\"title\":\"\xff\xfe\"}", 1);
    expect(&b, LG_GRAMMAR_INVALID_SCHEMA);
    repeat(
        &b,
        "{\"anyOf\":[{\"$ref\":\"#/$defs/b\"},{\"$ref\":\"#\"}],\"$defs\":{\"b\":{\"anyOf\":[{\"$ref\":\"#\"}]}}}",
        1);
    expect(&b, LG_GRAMMAR_UNSATISFIABLE);
    repeat(&b, "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", 1);
    expect(&b, LG_GRAMMAR_OK);
    lg_buf_free(&b);
}

static void test_large(void **state)
{
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 1 << 22);
    repeat(&b, "{\"enum\":[", 1); // one long beginning
    for (int i = 0; i < 10000; i++)
        assert_true(lg_buf_addf(&b, "%s\"one beginning %05d\"", i ? "," : "", i));
    repeat(&b, "]}", 1);
    expect(&b, LG_GRAMMAR_OK);
    repeat(&b, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{", 1);
    for (int i = 0; i < 2000; i++)
        assert_true(lg_buf_addf(&b, "%s\"name%04d\":{\"type\":\"integer\"}", i ? "," : "", i));
    repeat(&b, "}}", 1);
    expect(&b, LG_GRAMMAR_OK);
    repeat(&b, "{\"type\":\"object\",\"properties\":{", 1);
    for (int i = 0; i < 2001; i++)
        assert_true(lg_buf_addf(&b, "%s\"n%d\":{}", i ? "," : "", i));
    repeat(&b, "}}", 1);
    expect(&b, LG_GRAMMAR_TOO_COMPLEX);
    repeat(&b, "{\"allOf\":[{\"anyOf\":[", 1); // 60 times 60 alternatives
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 60; i++)
            assert_true(lg_buf_addf(&b, "%s{\"minimum\":%d}", i ? "," : "", i + 100 * k));
        repeat(&b, k ? "]}],\"type\":\"integer\"}" : "]},{\"anyOf\":[", 1);
    }
    expect(&b, LG_GRAMMAR_OK);
    repeat(&b, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{", 1); // a chain of references
    for (int i = 0; i < 10000; i++)
        assert_true(lg_buf_addf(&b, "\"d%d\":{\"$ref\":\"#/$defs/d%d\"},", i, i + 1));
    repeat(&b, "\"d10000\":{}}}", 1);
    expect(&b, LG_GRAMMAR_SCHEMA_TOO_LARGE);
    repeat(&b, "{\"$ref\":\"#/d/0\",\"d\":{", 1); // one whose text is short enough
    for (int i = 0; i < 9000; i++)
        assert_true(lg_buf_addf(&b, "\"%x\":{\"$ref\":\"#/d/%x\"},", i, i + 1));
    repeat(&b, "\"2328\":{}}}", 1);
    assert_true(b.n < 256 << 10);
    expect(&b, LG_GRAMMAR_TOO_COMPLEX);
    repeat(&b, " ", (256 << 10) + 1);
    expect(&b, LG_GRAMMAR_SCHEMA_TOO_LARGE);
    lg_buf_free(&b);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *schema, *code, *pointer;
    } cases[] = {
        {"{\"a\":1,\"b\":{\"x\":1,\"y\":[{\"q\":1,\"q\":2}]}}", "invalid_schema", "/b/y/0/q"},
        {"{\"type\":\"object\",\"t\\u0079pe\":\"array\"}", "invalid_schema", "/type"},
        {"{\"const\":\"\\ud800\"}", "invalid_schema", ""},
        {"{\"$schema\":\"http://example.test/mine\"}", "invalid_schema", "/$schema"},
        {"{\"type\":[]}", "invalid_schema", "/type"},
        {"{\"enum\":3}", "invalid_schema", "/enum"},
        {"{\"allOf\":[]}", "invalid_schema", "/allOf"},
        {"{\"allOf\":[{},7]}", "invalid_schema", "/allOf/1"},
        {"[]", "invalid_schema", ""},
        {"{\"type\":\"array\",\"items\":3}", "invalid_schema", "/items"},
        {"{\"type\":\"string\",\"pattern\":\"a{2,1}\"}", "invalid_schema", "/pattern"},
        {"{\"type\":\"string\",\"pattern\":\"[b-a]\"}", "invalid_schema", "/pattern"},
        {"{\"type\":\"string\",\"pattern\":\"*\"}", "invalid_schema", "/pattern"},
        {"{\"type\":\"string\",\"pattern\":\"\\\\q\"}", "unsupported_regex", "/pattern"},
        {"{\"type\":\"string\",\"pattern\":\"(?i)a\"}", "unsupported_regex", "/pattern"},
        {"{\"type\":\"string\",\"pattern\":\"\\\\p{Script=Greek}\"}", "", ""},
        {"{\"type\":\"string\",\"pattern\":\"\\\\p{Script=Klingon}\"}", "unsupported_regex", "/pattern"},
        {"{\"type\":\"string\",\"pattern\":\"a^\"}", "unsatisfiable", ""},
        {"{\"type\":\"object\",\"required\":[\"b\"],\"propertyNames\":{\"maxLength\":0}}", "unsatisfiable",
         "/required"},
        {"{\"type\":\"object\",\"minProperties\":3,\"propertyNames\":{\"enum\":[\"a\",\"b\"]}}",
         "unsatisfiable", ""},
        {"{\"type\":\"object\",\"minProperties\":300}", "too_complex", ""},
        {"{\"type\":\"integer\",\"minimum\":0.2,\"maximum\":0.9}", "unsatisfiable", ""},
        {"{\"type\":\"integer\",\"multipleOf\":99991}", "too_complex", "/multipleOf"},
        {"{\"type\":\"number\",\"multipleOf\":1e400}", "too_complex", "/multipleOf"},
        {"{\"type\":\"number\",\"multipleOf\":1e-400}", "too_complex", "/multipleOf"},
        {"{\"type\":\"number\",\"multipleOf\":0.0e9}", "invalid_schema", "/multipleOf"},
        {"{\"type\":\"number\",\"multipleOf\":-3}", "invalid_schema", "/multipleOf"},
        {"{\"enum\":[1,2],\"const\":3}", "unsatisfiable", ""},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"string\",\"enum\":[1]}],\"minItems\":2}",
         "unsatisfiable", "/prefixItems/1"},
        {"{\"oneOf\":[{\"type\":\"array\"},{\"type\":\"array\",\"items\":{\"type\":\"null\"}}]}",
         "oneof_not_disjoint", "/oneOf"},
        {"{\"$ref\":\"#no-such\"}", "unresolved_ref", "/$ref"},
        {"{\"$ref\":\"other.json\"}", "remote_ref", "/$ref"},
        {"{\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"x\",\"format\":\"regex\"}}}",
         "unsupported_format", "/properties/a/format"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        verdict v = try_text(lg_str_of(cases[i].schema));
        if (strcmp(lg_grammar_code_name(v.code), cases[i].code) || strcmp(v.why.pointer, cases[i].pointer))
            fail_msg("%s: %s at \"%s\" (%s)", cases[i].schema, lg_grammar_code_name(v.code), v.why.pointer,
                     v.err.msg);
    }
}

static void test_tools(void **state)
{
    static const struct {
        const char *name, *parameters, *code, *pointer;
    } cases[] = {
        {"", "", "invalid_schema", ""},
        {"a<b", "", "invalid_schema", ""},
        {"f", "{\"type\":\"string\"}", "invalid_schema", "/tools/0/function/parameters"},
        {"f", "{\"type\":\"object\",\"properties\":{\"x\":{\"not\":{}}}}", "unsupported_keyword",
         "/tools/0/function/parameters/properties/x/not"},
        {"f", "{\"type\":\"object\",\"properties\":{\"x<\":{}}}", "invalid_schema",
         "/tools/0/function/parameters/properties/x<"},
        {"f", "", "", ""},
    };
    lg_special special = {.tool_call = 25, .end_tool_call = 26};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lg_grammar_tool tool = {.name = lg_str_of(cases[i].name),
                                .parameters = lg_str_of(cases[i].parameters)};
        lg_grammar *g = NULL;
        lg_grammar_error why = {0};
        lg_err err = {0};
        (void)!lg_grammar_tools(&tool, 1, 1, &special, (lg_str){0}, NULL, &g, &why, &err);
        assert_string_equal(lg_grammar_code_name(why.code), cases[i].code);
        assert_string_equal(why.pointer, cases[i].pointer);
        lg_grammar_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hostile), cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_refusals), cmocka_unit_test(test_tools)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
