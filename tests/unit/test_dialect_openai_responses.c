/*
 * unit/test_dialect_openai_responses: server/responses without sockets: recorded streams, the equality of
 * both forms under every cut of the text, the order of the events, tools of every kind, input items, sealed
 * reasoning.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/responses_int.h"
#include "server/store.h"
#include "support/play.h"
#include "support/texts.h"

#define TOOLS                                                                                                \
    "\"tools\":[{\"type\":\"function\",\"name\":\"ls\",\"strict\":true,\"parameters\":{\"type\":\"object\"," \
    "\"properties\":{\"n\":{\"type\":\"integer\"}}}},{\"type\":\"custom\",\"name\":\"apply_patch\","         \
    "\"description\":\"Patches.\",\"format\":{\"type\":\"grammar\",\"syntax\":\"lark\",\"definition\":"      \
    "\"start: x\"}},{\"type\":\"namespace\",\"name\":\"mcp\",\"description\":\"d\",\"tools\":[{\"type\":"    \
    "\"function\",\"name\":\"find\"},{\"type\":\"function\",\"name\":\"mcp__near\"}]},{\"type\":"            \
    "\"web_search\"},{\"type\":\"local_shell\"},{\"type\":\"holodeck\"}]"
#define CALL_LS "{25}ls<arg_key>n</arg_key><arg_value>3</arg_value>{26}"
#define CALL_PATCH \
    "{25}apply_patch<arg_key>input</arg_key><arg_value>*** Begin \"x\"\n\\d\t\xC3\xA9</arg_value>{26}"

typedef struct responses_case {
    const char *name, *fields;
    td_script script;
} responses_case;

static const responses_case cases[] = {
    {"text", "\"reasoning\":{\"effort\":\"none\"}", {.text = {"Hello, w\xC3\xB6rld.{24}"}}},
    {"reasoning-text",
     "\"reasoning\":{\"summary\":\"auto\"},\"include\":[\"reasoning.encrypted_content\"]",
     {.text = {"Let me see.{19}Hello.{24}"}}},
    {"reasoning-call", TOOLS, {.text = {"I look.{19}" CALL_LS "{24}"}}},
    {"text-call", TOOLS ",\"reasoning\":{\"effort\":\"none\"}", {.text = {"Now.\n" CALL_PATCH "{24}"}}},
    {"two-calls", TOOLS, {.text = {"r{19}" CALL_PATCH CALL_LS "{24}"}}},
    {"other-name",
     TOOLS,
     {.text = {"{19}{25}apply_patch<arg_key>patch</arg_key><arg_value>p\n</arg_value>{26}{24}"}}},
    {"namespace", TOOLS, {.text = {"{19}{25}mcp__find{26}{25}mcp__near{26}{24}"}}},
    {"shell",
     TOOLS,
     {.text =
          {"{19}{25}local_shell<arg_key>command</arg_key><arg_value>[\"ls\",\"-l\"]</arg_value>{26}{24}"}}},
    {"unknown-tool", TOOLS, {.text = {"{19}{25}rm<arg_key>a</arg_key><arg_value>b</arg_value>{26}{24}"}}},
    {"cut-reasoning", TOOLS, {.text = {"I am still thi"}, .how = LG_END_LENGTH}},
    {"cut-text", "\"think\":false", {.text = {"Half a sen"}, .how = LG_END_LENGTH}},
    {"cut-name", TOOLS ",\"think\":false", {.text = {"{25}l"}, .how = LG_END_LENGTH}},
    {"cut-arguments",
     TOOLS ",\"think\":false",
     {.text = {CALL_LS "{25}apply_patch<arg_key>input</arg_key><arg_value>half a"}, .how = LG_END_LENGTH}},
    {"schema",
     "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"x\",\"schema\":{\"type\":\"object\"}}}",
     {.text = {"r{19}{\"a\": 1}"}, .how = LG_END_SCHEMA}},
    {"hidden", "\"reasoning\":{\"exclude\":true}", {.text = {"why{19}so{24}"}}},
    {"nothing", "\"think\":false", {.text = {"{24}"}}},
    {"logprobs", "\"think\":false,\"top_logprobs\":1", {.text = {"Hi you.{24}"}, .logprobs = true}},
};

static const char *body_of(const char *fields, bool stream)
{
    static char body[4096];

    (void)snprintf(body, sizeof body, "{\"input\":\"hi\",\"stream\":%s%s%s}", stream ? "true" : "false",
                   *fields ? "," : "", fields);
    return body;
}

static void golden(void **state)
{
    const td_script failing = {.text = {"r{19}Half"}, .error = true};
    lg_buf all;

    (void)state;
    lg_buf_init(&all, 1 << 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int stream = 0; stream < 2; stream++)
            td_record(&lg_dialect_responses, cases[i].name, body_of(cases[i].fields, stream),
                      &cases[i].script, 7, &all);
    td_record(&lg_dialect_responses, "error", body_of("", true), &failing, 0, &all);
    td_golden("openai-responses.txt", lg_buf_str(&all));
    lg_buf_free(&all);
}

/* --- the order of events, and the final object --- */

/* What the deltas of one item add up to, and the item in its output_item.done. */
typedef struct folded_item {
    lg_buf delta, summary, done;
    bool closed;
} folded_item;

typedef struct folded {
    folded_item item[8];
    int n_item;
    int64_t sequence;
    lg_buf last;        /* the response of the terminal event */
    char terminal[24];
    lg_buf first;       /* of response.created */
} folded;

static lg_str get(const lg_json *o, const char *key)
{
    return lg_json_str(lg_json_get(o, key));
}

static folded_item *item_of(folded *f, const lg_json *ev)
{
    int64_t index = -1;

    assert_true(lg_json_i64(lg_json_get(ev, "output_index"), &index));
    assert_in_range(index, 0, 7);
    assert_int_equal(index, f->n_item - 1); // items are sequential
    return &f->item[index];
}

static void text_is(const lg_json *ev, const char *key, const lg_buf *sum)
{
    assert_true(lg_str_eq(get(ev, key), lg_buf_str(sum)));
}

static void fold_event(folded *f, lg_str name, const lg_json *ev)
{
    int64_t sequence = -1;

    assert_true(lg_str_eq(get(ev, "type"), name));
    assert_true(lg_json_i64(lg_json_get(ev, "sequence_number"), &sequence));
    assert_int_equal(sequence, f->sequence++);
    assert_int_equal(f->terminal[0], 0); // nothing follows the terminal event
    if (lg_str_eqz(name, "response.output_item.added")) {
        folded_item *it = &f->item[f->n_item++];
        assert_true(f->n_item == 1 || f->item[f->n_item - 2].closed);
        lg_buf_init(&it->delta, 1 << 16);
        lg_buf_init(&it->summary, 1 << 16);
        lg_buf_init(&it->done, 1 << 16);
        assert_true(get(lg_json_get(ev, "item"), "id").n > 0);
        (void)item_of(f, ev);
    } else if (lg_str_eqz(name, "response.output_item.done")) {
        folded_item *it = item_of(f, ev);
        it->closed = true;
        (void)lg_json_dump(lg_json_get(ev, "item"), &it->done);
    } else if (lg_str_eqz(name, "response.reasoning_summary_text.delta")) {
        (void)lg_buf_adds(&item_of(f, ev)->summary, get(ev, "delta"));
    } else if (lg_str_ends(name, LG_STR(".delta"))) {
        assert_true(get(ev, "delta").n > 0);
        (void)lg_buf_adds(&item_of(f, ev)->delta, get(ev, "delta"));
    } else if (lg_str_eqz(name, "response.reasoning_summary_text.done")) {
        text_is(ev, "text", &item_of(f, ev)->summary);
    } else if (lg_str_eqz(name, "response.output_text.done") ||
               lg_str_eqz(name, "response.reasoning_text.done")) {
        text_is(ev, "text", &item_of(f, ev)->delta);
    } else if (lg_str_eqz(name, "response.function_call_arguments.done")) {
        text_is(ev, "arguments", &item_of(f, ev)->delta);
    } else if (lg_str_eqz(name, "response.custom_tool_call_input.done")) {
        text_is(ev, "input", &item_of(f, ev)->delta);
    } else if (lg_str_eqz(name, "response.completed") || lg_str_eqz(name, "response.incomplete")) {
        (void)snprintf(f->terminal, sizeof f->terminal, "%.*s", (int)name.n, name.p);
        (void)lg_json_dump(lg_json_get(ev, "response"), &f->last);
    } else if (lg_str_eqz(name, "response.created") || lg_str_eqz(name, "response.in_progress")) {
        assert_int_equal(lg_json_len(lg_json_get(lg_json_get(ev, "response"), "output")), 0);
    } else {
        assert_true(lg_str_ends(name, LG_STR("_part.added")) || lg_str_ends(name, LG_STR("_part.done")));
    }
}

static void check_forms(const responses_case *c, size_t step)
{
    td_run stream, whole;
    folded f = {0};
    size_t at = 0;
    lg_str name, data;

    lg_buf_init(&f.last, 1 << 20);
    td_play(&lg_dialect_responses, body_of(c->fields, true), &c->script, step, &stream);
    // the script has a log-probability for each piece of text
    td_play(&lg_dialect_responses, body_of(c->fields, false), &c->script, c->script.logprobs ? step : 0,
            &whole);
    while (td_event(lg_buf_str(&stream.out), &at, &name, &data)) {
        lg_json_doc *doc = tt_parse(data);
        fold_event(&f, name, lg_json_root(doc));
        lg_json_free(doc);
    }
    assert_true(f.terminal[0] != 0);
    lg_json_doc *a = tt_parse(lg_buf_str(&f.last)), *b = tt_parse(lg_buf_str(&whole.out));
    const lg_json *output = lg_json_get(lg_json_root(a), "output");
    lg_buf x, y;
    assert_int_equal(lg_json_len(output), f.n_item);
    for (int i = 0; i < f.n_item; i++) { // item.done and the final object say the same
        lg_buf item;
        lg_buf_init(&item, 1 << 20);
        (void)lg_json_dump(lg_json_at(output, (size_t)i), &item);
        assert_true(f.item[i].closed);
        assert_true(lg_str_eq(lg_buf_str(&item), lg_buf_str(&f.item[i].done)));
        lg_buf_free(&item);
        lg_buf_free(&f.item[i].delta);
        lg_buf_free(&f.item[i].summary);
        lg_buf_free(&f.item[i].done);
    }
    lg_buf_init(&x, 1 << 20);
    lg_buf_init(&y, 1 << 20);
    (void)lg_json_dump(lg_json_root(a), &x);
    (void)lg_json_dump(lg_json_root(b), &y);
    if (!lg_str_eq(lg_buf_str(&x), lg_buf_str(&y)))
        print_error("%s\n%s\n%s\n", c->name, lg_buf_z(&x), lg_buf_z(&y));
    assert_true(lg_str_eq(lg_buf_str(&x), lg_buf_str(&y))); // the terminal object is the answer in one piece
    lg_buf_free(&x);
    lg_buf_free(&y);
    lg_buf_free(&f.last);
    lg_json_free(a);
    lg_json_free(b);
    td_free(&stream);
    td_free(&whole);
}

static void both_forms_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 0; step < 12; step++)
            check_forms(&cases[i], step);
}

/* --- the request --- */

static void prompt_is(const char *body, const char *want)
{
    td_run r;
    lg_buf text;

    td_parse(&lg_dialect_responses, body, &r);
    if (r.st != LG_OK)
        print_error("%s\n%s: %s\n", body, r.error.param, r.error.message);
    assert_int_equal(r.st, LG_OK);
    lg_buf_init(&text, 1 << 16);
    td_prompt(r.job, &text);
    if (!strstr(lg_buf_z(&text), want))
        print_error("%s\nnot in\n%s\n", want, lg_buf_z(&text));
    assert_non_null(strstr(lg_buf_z(&text), want));
    lg_buf_free(&text);
    td_free(&r);
}

static void input_items(void **state)
{
    (void)state;
    prompt_is(
        "{\"instructions\":\"be brief\",\"input\":[{\"role\":\"developer\",\"content\":\"dev\"},{\"role\":\"user\","
        "\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":\"b\"}]}]}",
        "<system>be brief</system>\n<system>dev</system>\n<user>ab</user>\n<assistant><think>");
    prompt_is(
        "{\"input\":[{\"type\":\"message\",\"role\":\"developer\",\"content\":\"first\"},{\"type\":\"message\","
        "\"role\":\"developer\",\"content\":\"second\"},{\"role\":\"user\",\"content\":\"u\"}]}",
        "<system>first</system>\n<system>second</system>\n<user>u</user>\n");
    // reasoning, text and calls in a row are one turn
    prompt_is(
        "{\"input\":[{\"role\":\"user\",\"content\":\"u\"},{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{"
        "\"type\":\"summary_text\",\"text\":\"short\"}],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"why\"}]"
        "},{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"so\"}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"ls\",\"arguments\":\"{\\\"n\\\": 1}\"},"
        "{\"type\":\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"apply_patch\",\"input\":\"raw\\n\"},"
        "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c2\",\"output\":\"two\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":[{\"type\":\"input_text\",\"text\":"
        "\"one\"},{\"type\":\"input_image\"}]}]}",
        "<assistant><think>why</think>so<tool_call>ls<arg_key>n</arg_key><arg_value>1</arg_value></tool_call>"
        "<tool_call>apply_patch<arg_key>input</arg_key><arg_value>raw\n</arg_value></tool_call></assistant>\n"
        "<tool_response>one[image]</tool_response>\n<tool_response>two</tool_response>\n<assistant><think>");
    // only the summary, content null; the namespace of a call; a shell call and its result
    prompt_is(
        "{\"input\":[{\"type\":\"reasoning\",\"content\":null,\"summary\":[{\"type\":\"summary_text\",\"text\":"
        "\"sum\"}]},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"find\",\"namespace\":\"mcp\","
        "\"arguments\":\"\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}]}",
        "<think>sum</think><tool_call>mcp__find</tool_call></assistant>\n<tool_response>o</tool_response>\n");
    prompt_is(
        "{\"input\":[{\"type\":\"local_shell_call\",\"id\":\"l\",\"call_id\":\"c\",\"action\":{\"type\":\"exec\","
        "\"command\":[\"ls\"],\"env\":{},\"timeout_ms\":null}},{\"type\":\"local_shell_call_output\",\"call_id\":"
        "\"c\",\"output\":{\"stdout\":\"x\"}}]}",
        "<tool_call>local_shell<arg_key>command</arg_key><arg_value>[\"ls\"]</arg_value></tool_call></assistant>\n"
        "<tool_response>{\"stdout\": \"x\"}</tool_response>\n");
    // unknown items are left out, an empty input is an empty turn
    prompt_is(
        "{\"input\":[{\"type\":\"web_search_call\",\"id\":\"w\"},{\"type\":\"item_reference\",\"id\":\"x\"},{"
        "\"type\":\"compaction\"},{\"role\":\"user\",\"content\":\"u\"}]}",
        "<user>u</user>\n<assistant>");
    prompt_is("{\"input\":[],\"max_output_tokens\":1}", "<user></user>\n<assistant></think>");
    prompt_is("{\"input\":\"\"}", "<user></user>\n<assistant><think>");
    prompt_is(
        "{\"input\":\"hi\"," TOOLS "}",
        "{\"type\": \"function\", \"function\": {\"name\": \"apply_patch\", \"description\": \"Patches.\\n\\nstart: "
        "x\", \"parameters\": {\"type\": \"object\", \"properties\": {\"input\": {\"type\": \"string\"}}, "
        "\"required\": [\"input\"]}}}\n{\"type\": \"function\", \"function\": {\"name\": \"mcp__find\"}}\n"
        "{\"type\": \"function\", \"function\": {\"name\": \"mcp__near\"}}\n{\"type\": \"function\", \"function\": "
        "{\"name\": \"local_shell\"");
}

static void sealed_reasoning(void **state)
{
    const char *text[] = {"", "a", "ab", "abc", "why \xC3\xA9 \n"};
    lg_arena a;
    lg_buf b;
    char body[512];

    (void)state;
    lg_arena_init(&a, 1 << 16);
    lg_buf_init(&b, 1 << 16);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        lg_buf_clear(&b);
        lg_responses_seal(lg_str_of(text[i]), &b);
        lg_str back = lg_responses_unseal(lg_buf_str(&b), &a);
        assert_non_null(back.p);
        assert_true(lg_str_eqz(back, text[i]));
    }
    (void)snprintf(
        body, sizeof body,
        "{\"input\":[{\"type\":\"reasoning\",\"summary\":[],\"content\":null,\"encrypted_content\":\"%s\"},{"
        "\"role\":\"assistant\",\"content\":\"so\"}]}",
        lg_buf_z(&b));
    prompt_is(body, "<think>why \xC3\xA9 \n</think>so</assistant>\n");
    b.p[b.n - 2] ^= 1; // damaged
    assert_null(lg_responses_unseal(lg_buf_str(&b), &a).p);
    assert_null(lg_responses_unseal(LG_STR("lg1.0123"), &a).p);
    assert_null(lg_responses_unseal(LG_STR("gAAAAABo"), &a).p);
    for (size_t n = 0; n < b.n; n++)
        (void)lg_responses_unseal((lg_str){b.p, n}, &a);
    lg_buf_free(&b);
    lg_arena_free(&a);
}

static void refuse(const char *body, const char *param, const char *code)
{
    td_refuse(&lg_dialect_responses, body, param, code, NULL);
}

static void refusals(void **state)
{
    (void)state;
    refuse("{}", "input", "");
    refuse("{\"input\":7}", "input", "");
    refuse("{\"input\":[7]}", "input[0]", "");
    refuse("{\"input\":[{\"role\":\"wizard\",\"content\":\"x\"}]}", "input[0].role", "");
    refuse("{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}",
           "input[0].content[0].type", "");
    refuse("{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"x\"}]}",
           "input[0].call_id", "");
    refuse("{\"input\":[{\"type\":\"function_call\",\"name\":\"x\"}]}", "input[0].call_id", "");
    refuse("{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", "previous_response_id",
           "unsupported_parameter");
    refuse("{\"input\":\"x\",\"conversation\":{\"id\":\"c\"}}", "conversation", "unsupported_parameter");
    refuse("{\"input\":\"x\",\"background\":true}", "background", "");
    refuse("{\"input\":\"x\",\"reasoning\":{\"effort\":\"banana\"}}", "reasoning.effort", "");
    refuse("{\"input\":\"x\",\"tools\":{}}", "tools", "");
    refuse("{\"input\":\"x\",\"tools\":[{\"type\":\"function\"}]}", "tools[0].name", "");
    refuse(
        "{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\"}]}]}",
        "tools[0].tools[0].name", "");
    refuse("{\"input\":\"x\",\"tool_choice\":\"required\"}", "tool_choice", "");
    refuse("{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"not\":{}}}}}",
           "text.format.schema", "unsupported_keyword");
    refuse("{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_object\"}}," TOOLS "}", "text", "");
    refuse("{\"input\":\"x\",\"include\":\"all\"}", "include", "");
    refuse("{\"input\":\"x\",\"max_output_tokens\":\"many\"}", "max_output_tokens", "");
}

/* A second turn that sends only what is new has the prompt of one that sends everything. */
static void stored(void **state)
{
    const td_script script = {.text = {"why{19}" CALL_LS "{24}"}};
    lg_store *store = NULL;
    char body[512], *more;
    td_run first, r, whole;
    lg_buf items;

    (void)state;
    assert_int_equal(lg_store_create(2, &store, NULL), LG_OK);
    td_service()->store = store;
    td_play(&lg_dialect_responses, body_of(TOOLS, false), &script, 0, &first);
    (void)snprintf(
        body, sizeof body,
        "{\"previous_response_id\":\"%s\",\"input\":[{\"type\":\"function_call_output\",\"call_id\":"
        "\"call_0_0\",\"output\":\"o\"}]}",
        first.job->id);
    td_parse(&lg_dialect_responses, body, &r);
    assert_int_equal(r.st, LG_OK);
    lg_buf_init(&items, 1 << 16);
    assert_true(lg_store_get(store, lg_str_of(first.job->id), LG_STORE_ITEMS, &items));
    (void)lg_buf_addz(&items,
                      ",{\"type\":\"function_call_output\",\"call_id\":\"call_0_0\",\"output\":\"o\"}]}");
    assert_int_not_equal(asprintf(&more, "{\"input\":[%s", lg_buf_z(&items)), -1);
    td_parse(&lg_dialect_responses, more, &whole);
    assert_int_equal(whole.st, LG_OK);
    assert_int_equal(r.job->prompt.n, whole.job->prompt.n);
    assert_memory_equal(r.job->prompt.p, whole.job->prompt.p, r.job->prompt.n * sizeof *r.job->prompt.p);
    free(more);
    td_free(&whole);
    td_free(&r);
    td_free(&first);
    // not asked for, unknown, and pushed out by later ones
    refuse("{\"input\":\"x\",\"previous_response_id\":\"resp_no\"}", "previous_response_id",
           "previous_response_not_found");
    for (int i = 0; i < 3; i++) {
        td_play(&lg_dialect_responses, body_of(i == 2 ? "\"store\":false" : "", false), &script, 0, &first);
        lg_buf_clear(&items);
        assert_int_equal(lg_store_get(store, lg_str_of(first.job->id), LG_STORE_ITEMS, &items), i < 2);
        td_free(&first);
    }
    refuse(body, "previous_response_id", "previous_response_not_found");
    lg_buf_free(&items);
    td_service()->store = NULL;
    lg_store_destroy(store);
}

static int logprobs_of(const char *body)
{
    td_run r;
    int n;

    td_parse(&lg_dialect_responses, body, &r);
    assert_int_equal(r.st, LG_OK);
    n = r.job->n_logprobs;
    td_free(&r);
    return n;
}

static void logprobs(void **state)
{
    (void)state;
    assert_int_equal(logprobs_of("{\"input\":\"x\"}"), -1);
    assert_int_equal(logprobs_of("{\"input\":\"x\",\"top_logprobs\":0}"), 0);
    assert_int_equal(logprobs_of("{\"input\":\"x\",\"include\":[\"message.output_text.logprobs\"]}"), 0);
    assert_int_equal(
        logprobs_of("{\"input\":\"x\",\"top_logprobs\":5,\"include\":[\"message.output_text.logprobs\"]}"),
        5);
    refuse("{\"input\":\"x\",\"top_logprobs\":21}", "top_logprobs", "");
}

static void tolerance(void **state)
{
    td_run r;

    (void)state;
    td_parse(
        &lg_dialect_responses,
        "{\"input\":\"x\",\"previous_response_id\":null,\"conversation\":null,\"background\":false,\"tools\":null,"
        "\"tool_choice\":null,\"reasoning\":null,\"text\":null,\"include\":null,\"truncation\":\"auto\",\"store\":true,"
        "\"prompt_cache_key\":\"k\",\"client_metadata\":{},\"service_tier\":\"flex\",\"stop\":5,\"instructions\":null}",
        &r);
    assert_int_equal(r.st, LG_OK);
    td_free(&r);
    td_parse(&lg_dialect_responses,
             "{\"input\":\"x\",\"tool_choice\":{\"type\":\"custom\",\"name\":\"apply_patch\"}," TOOLS "}",
             &r);
    assert_int_equal(r.st, LG_OK);
    assert_int_equal(lg_constraint_kind_of(r.job->constraint), LG_CONSTRAIN_CALL);
    td_free(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),      cmocka_unit_test(both_forms_agree), cmocka_unit_test(input_items),
        cmocka_unit_test(sealed_reasoning), cmocka_unit_test(stored), cmocka_unit_test(refusals),
        cmocka_unit_test(logprobs),
        cmocka_unit_test(tolerance),
    };

    td_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
