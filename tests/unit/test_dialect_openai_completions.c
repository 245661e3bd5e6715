/*
 * unit/test_dialect_openai_completions: server/completions and server/infill without sockets: recorded
 * answers, both forms alike under every cut, prompts of every form, fill in the middle, refusals.
 */
#include "check.h"

#include <stdio.h>

#include "server/completions_int.h"
#include "support/play.h"
#include "support/texts.h"

typedef struct text_case {
    const char *name;
    const lg_dialect *dialect;
    const char *body; /* without the opening brace; stream is put in front */
    td_script script;
} text_case;

static const text_case cases[] = {
    {"text", &lg_dialect_completions, "\"prompt\":\"Once\"}", {.text = {" upon a t\xC3\xAFme.{24}"}}},
    {"cut",
     &lg_dialect_completions,
     "\"prompt\":\"Once\",\"max_tokens\":3}",
     {.text = {" upon"}, .how = LG_END_LENGTH}},
    {"stop-string",
     &lg_dialect_completions,
     "\"prompt\":\"a\",\"stop\":\"STOP\"}",
     {.text = {"one STOP two"}}},
    {"markup",
     &lg_dialect_completions,
     "\"prompt\":\"a\"}",
     {.text = {"<think>x</think> {18}y{25}z{26}{24}"}}},
    {"echo-two",
     &lg_dialect_completions,
     "\"prompt\":[\"One\",\"Two\"],\"n\":2,\"echo\":true,\"stream_options\":{\"include_usage\":true}}",
     {.text = {" a{24}", " b{24}", " c{24}", " d{24}"}}},
    {"logprobs",
     &lg_dialect_completions,
     "\"prompt\":\"a\",\"logprobs\":1}",
     {.text = {"bc{24}"}, .logprobs = true}},
    {"fim", &lg_dialect_completions, "\"prompt\":\"int f(\",\"suffix\":\") {}\"}", {.text = {"int a{06}x"}}},
    {"infill",
     &lg_dialect_infill,
     "\"input_prefix\":\"int f(\",\"input_suffix\":\") {}\",\"input_extra\":[{\"filename\":\"a.h\",\"text\":\"int a;\"}]}",
     {.text = {"int a{24}"}}},
};

static const char *body_of(const char *rest, bool stream)
{
    static char body[2048];

    (void)snprintf(body, sizeof body, "{\"stream\":%s,%s", stream ? "true" : "false", rest);
    return body;
}

static void golden(void **state)
{
    const td_script failing = {.text = {"Half"}, .error = true};
    lg_buf all;

    (void)state;
    lg_buf_init(&all, 1 << 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int stream = 0; stream < 2; stream++)
            td_record(cases[i].dialect, cases[i].name, body_of(cases[i].body, stream), &cases[i].script, 4,
                      &all);
    td_record(&lg_dialect_completions, "error", body_of("\"prompt\":\"x\"}", true), &failing, 0, &all);
    td_golden("openai-completions.txt", lg_buf_str(&all));
    lg_buf_free(&all);
}

/* --- both forms --- */

enum { MAX_CHOICES = 8 };

// Adds the texts of an object's choices to those of the choices.
static void gather(lg_str json, bool infill, lg_buf *text)
{
    lg_json_doc *doc = tt_parse(json);
    const lg_json *choices = lg_json_get(lg_json_root(doc), "choices");

    if (infill)
        (void)lg_buf_adds(&text[0], lg_json_str(lg_json_get(lg_json_root(doc), "content")));
    else
        assert_true(lg_json_str(lg_json_get(lg_json_root(doc), "id")).n > 0);
    for (size_t i = 0; i < lg_json_len(choices); i++) {
        const lg_json *c = lg_json_at(choices, i);
        int64_t index = -1;
        assert_true(lg_json_i64(lg_json_get(c, "index"), &index));
        assert_in_range(index, 0, MAX_CHOICES - 1);
        assert_non_null(lg_json_get(c, "finish_reason"));
        (void)lg_buf_adds(&text[index], lg_json_str(lg_json_get(c, "text")));
    }
    lg_json_free(doc);
}

static void check_forms(const text_case *c, size_t step)
{
    td_run stream, whole;
    lg_buf a[MAX_CHOICES], b[MAX_CHOICES];
    bool infill = c->dialect == &lg_dialect_infill;
    size_t at = 0;
    lg_str name, data;

    for (int i = 0; i < MAX_CHOICES; i++) {
        lg_buf_init(&a[i], 1 << 16);
        lg_buf_init(&b[i], 1 << 16);
    }
    td_play(c->dialect, body_of(c->body, true), &c->script, step, &stream);
    td_play(c->dialect, body_of(c->body, false), &c->script, 0, &whole);
    while (td_event(lg_buf_str(&stream.out), &at, &name, &data))
        if (!lg_str_eqz(data, "[DONE]"))
            gather(data, infill, a);
    gather(lg_buf_str(&whole.out), infill, b);
    for (int i = 0; i < MAX_CHOICES; i++) {
        assert_true(lg_str_eq(lg_buf_str(&a[i]), lg_buf_str(&b[i])));
        assert_true(a[i].n > 0 || i >= whole.job->n_choice);
        lg_buf_free(&a[i]);
        lg_buf_free(&b[i]);
    }
    td_free(&stream);
    td_free(&whole);
}

static void both_forms_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 0; step < 8; step++)
            check_forms(&cases[i], step);
}

/* --- prompts --- */

static void ids_are(const lg_dialect *d, const char *rest, const char *want)
{
    td_run r;
    char got[512];
    size_t n = 0;

    td_parse(d, body_of(rest, false), &r);
    if (r.st != LG_OK)
        print_error("%s: %s\n", rest, r.error.message);
    assert_int_equal(r.st, LG_OK);
    got[0] = 0;
    // control tokens by number, text as text
    for (size_t i = 0; i < r.job->prompt.n && n < sizeof got - 64; i++) {
        int32_t id = r.job->prompt.p[i];
        lg_str s = lg_vocab_bytes(tt_vocab(), id);
        if (lg_vocab_is_added(tt_vocab(), id))
            n += (size_t)snprintf(got + n, sizeof got - n, "[%d]", (int)id);
        else
            n += (size_t)snprintf(got + n, sizeof got - n, "%.*s", (int)s.n, s.p);
    }
    assert_string_equal(got, want);
    assert_true(r.job->raw);
    td_free(&r);
}

static void prompts(void **state)
{
    lg_settings *set = td_settings();
    td_run r;

    (void)state;
    ids_are(&lg_dialect_completions, "\"prompt\":\"hi\"}", "[2]hi");
    ids_are(&lg_dialect_completions, "\"prompt\":\"<think>x</think>\"}", "[2][18]x[19]");
    ids_are(&lg_dialect_completions, "\"prompt\":\"\xE3\x80\x88|EOS|\xE3\x80\x89x\"}", "[2]x"); // not twice
    ids_are(&lg_dialect_completions, "\"prompt\":\"\"}", "[2]");
    ids_are(&lg_dialect_completions, "\"prompt\":null}", "[2]");
    ids_are(&lg_dialect_completions, "\"prompt\":[]}", "[2]");
    ids_are(&lg_dialect_completions, "\"prompt\":[18,24]}", "[18][24]");
    ids_are(&lg_dialect_completions, "\"prompt\":[[18,24]]}", "[18][24]");
    ids_are(&lg_dialect_completions, "\"prompt\":[\"a\"],\"suffix\":null}", "[2]a");
    ids_are(&lg_dialect_completions, "\"prompt\":\"a<think>\",\"suffix\":\"b</think>\"}",
            "[2][11]a<think>[7]b</think>[6]");
    ids_are(&lg_dialect_infill, "\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"prompt\":\"c\"}",
            "[2][11]ac[7]b[6]");
    set->fim_order = "spm";
    ids_are(&lg_dialect_completions, "\"prompt\":\"a\",\"suffix\":\"b\"}", "[2][11][7]b[6]a");
    set->fim_order = "off";
    td_parse(&lg_dialect_completions, body_of("\"prompt\":\"a\",\"suffix\":\"b\"}", false), &r);
    assert_int_equal(lg_api_status(&r.error), 400);
    assert_string_equal(r.error.message, "model does not support suffix");
    td_free(&r);
    td_parse(&lg_dialect_infill, body_of("\"input_prefix\":\"a\"}", false), &r);
    assert_int_equal(lg_api_status(&r.error), 501);
    td_free(&r);
    set->fim_order = "psm";
}

static void defaults(void **state)
{
    td_run r;

    (void)state;
    td_parse(&lg_dialect_completions, body_of("\"prompt\":\"a\"}", false), &r);
    assert_int_equal(r.job->max_tokens, 512);
    assert_true(r.job->sampling.temperature == 1.0f);
    td_free(&r);
    td_parse(&lg_dialect_completions, body_of("\"prompt\":\"a\",\"suffix\":\"b\"}", false), &r);
    assert_int_equal(r.job->max_tokens, 128);
    assert_true(r.job->sampling.temperature == 0);
    assert_int_equal(r.job->n_stop_id, 3);
    td_free(&r);
    td_parse(&lg_dialect_completions,
             body_of("\"prompt\":\"a\",\"suffix\":\"b\",\"temperature\":0.5}", false), &r);
    assert_true(r.job->sampling.temperature == 0.5f);
    td_free(&r);
    td_parse(&lg_dialect_completions,
             body_of("\"prompt\":[\"a\",\"bcdefg\"],\"n\":2,\"max_tokens\":-1}", false), &r);
    assert_int_equal(r.job->n_choice, 4);
    assert_int_equal(r.job->n_more, 1);
    assert_int_equal(r.job->max_tokens, td_service()->n_ctx - (int64_t)r.job->more[0].n);
    td_free(&r);
    td_parse(&lg_dialect_completions,
             body_of("\"prompt\":\"a\",\"response_format\":{\"type\":\"json_object\"}}", false), &r);
    assert_int_equal(lg_constraint_kind_of(r.job->constraint), LG_CONSTRAIN_JSON_OBJECT);
    td_free(&r);
}

static void refuse(const lg_dialect *d, const char *rest, const char *param)
{
    td_refuse(d, body_of(rest, false), param, NULL, NULL);
}

static void refusals(void **state)
{
    int64_t ctx = td_service()->n_ctx;

    (void)state;
    refuse(&lg_dialect_completions, "\"prompt\":7}", "prompt");
    refuse(&lg_dialect_completions, "\"prompt\":{}}", "prompt");
    refuse(&lg_dialect_completions, "\"prompt\":[512]}", "prompt");
    refuse(&lg_dialect_completions, "\"prompt\":[1,-1]}", "prompt");
    refuse(&lg_dialect_completions, "\"prompt\":[1,\"a\"]}", "prompt");
    refuse(&lg_dialect_completions, "\"prompt\":[\"a\",1.5]}", "prompt");
    refuse(&lg_dialect_completions, "\"prompt\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}",
           "prompt");
    refuse(&lg_dialect_completions, "\"prompt\":[\"a\"],\"suffix\":\"b\"}", "prompt");
    refuse(&lg_dialect_completions, "\"prompt\":\"a\",\"suffix\":7}", "suffix");
    refuse(&lg_dialect_completions, "\"prompt\":\"a\",\"best_of\":2}", "best_of");
    refuse(&lg_dialect_completions, "\"prompt\":\"a\",\"logprobs\":21}", "logprobs");
    refuse(&lg_dialect_completions, "\"prompt\":\"a\",\"logprobs\":1,\"echo\":true}", "echo");
    refuse(&lg_dialect_infill, "\"input_prefix\":1}", "input_prefix");
    refuse(&lg_dialect_infill, "\"input_extra\":1}", "input_extra");
    refuse(&lg_dialect_infill, "\"n_predict\":\"x\"}", "n_predict");
    td_service()->n_ctx = 4;
    refuse(&lg_dialect_completions, "\"prompt\":[\"a\",\"bcdefghijk\"]}", "prompt");
    td_service()->n_ctx = ctx;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),   cmocka_unit_test(both_forms_agree), cmocka_unit_test(prompts),
        cmocka_unit_test(defaults), cmocka_unit_test(refusals),
    };

    td_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
