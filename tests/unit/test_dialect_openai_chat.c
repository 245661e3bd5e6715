/*
 * unit/test_dialect_openai_chat: server/chat without sockets: recorded streams, the equality of both forms
 * under every cut of the text, what a request may say, and what is refused with which words.
 */
#include "check.h"

#include <stdio.h>

#include "server/jsonw.h"
#include "support/play.h"
#include "support/texts.h"

#define TOOLS                                                                                                \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"ls\",\"parameters\":{\"type\":\"object\","   \
    "\"properties\":{}}}},{\"type\":\"function\",\"function\":{\"name\":\"write\",\"description\":\"d\","    \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"n\":{\"type\":"    \
    "\"integer\"}},\"required\":[\"path\"]}}}]"
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define CALL_LS "{25}ls{26}"
#define CALL_WRITE \
    "{25}write<arg_key>path</arg_key><arg_value>a \"b\"\n</arg_value><arg_key>n</arg_key><arg_value>7</arg_value>{26}"

typedef struct chat_case {
    const char *name, *fields; /* of the body, beside messages and stream */
    td_script script;
} chat_case;

/* api.md 11.2 */
static const chat_case cases[] = {
    {"text", "\"reasoning_effort\":\"none\"", {.text = {"Hello, w\xC3\xB6rld.{24}"}}},
    {"reasoning-text", "\"model\":\"m\"", {.text = {"Let me see.{19}Hello.{24}"}}},
    {"reasoning-call", TOOLS, {.text = {"I look.{19}" CALL_LS "{24}"}}},
    {"text-call", TOOLS ",\"reasoning_effort\":\"none\"", {.text = {"Now I write.\n" CALL_WRITE "{24}"}}},
    {"two-calls",
     TOOLS ",\"stream_options\":{\"include_usage\":true}",
     {.text = {"r{19}" CALL_WRITE CALL_LS "{24}"}}},
    {"one-call", TOOLS ",\"parallel_tool_calls\":false", {.text = {"r{19}" CALL_LS CALL_LS "{24}"}}},
    {"cut-reasoning", TOOLS, {.text = {"I am still thi"}, .how = LG_END_LENGTH}},
    {"cut-text", "\"think\":false", {.text = {"Half a sen"}, .how = LG_END_LENGTH}},
    {"cut-name", TOOLS ",\"think\":false", {.text = {"{25}wri"}, .how = LG_END_LENGTH}},
    {"cut-arguments",
     TOOLS ",\"think\":false",
     {.text = {CALL_LS "{25}write<arg_key>path</arg_key><arg_value>half a"}, .how = LG_END_LENGTH}},
    {"stop-string", "\"stop\":[\"STOP\",\"\"],\"think\":false", {.text = {"one STOP two"}}},
    {"schema",
     "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"type\":"
     "\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}}}",
     {.text = {"r{19}{\"a\": 1}"}, .how = LG_END_SCHEMA}},
    {"two-choices",
     "\"n\":2,\"think\":false,\"stream_options\":{\"include_usage\":true}",
     {.text = {"one{24}", "two{24}"}}},
    {"inline", "\"reasoning_format\":\"none\"," TOOLS, {.text = {"why{19}so " CALL_LS "{24}"}}},
    {"hidden", "\"reasoning\":{\"exclude\":true}", {.text = {"why{19}so{24}"}}},
    {"logprobs",
     "\"logprobs\":true,\"top_logprobs\":1,\"think\":false",
     {.text = {"ab{24}"}, .logprobs = true}},
    {"no-text", "\"think\":false", {.text = {"{24}"}}},
};

static const char *body_of(const char *fields, bool stream)
{
    static char body[4096];

    (void)snprintf(body, sizeof body, "{" USER ",\"stream\":%s%s%s}", stream ? "true" : "false",
                   *fields ? "," : "", fields);
    return body;
}

/* --- golden transcripts --- */

static void golden(void **state)
{
    const td_script failing = {.text = {"r{19}Half"}, .error = true};
    lg_buf all;

    (void)state;
    lg_buf_init(&all, 1 << 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int stream = 0; stream < 2; stream++)
            td_record(&lg_dialect_chat, cases[i].name, body_of(cases[i].fields, stream), &cases[i].script, 5,
                      &all);
    td_record(&lg_dialect_chat, "error", body_of("", true), &failing, 0, &all);
    td_golden("openai-chat.txt", lg_buf_str(&all));
    lg_buf_free(&all);
}

/* --- a stream folded into the message that it makes --- */

typedef struct folded_call {
    lg_buf name, id, args;
} folded_call;

typedef struct folded {
    lg_buf content, reasoning;
    folded_call call[8];
    int n_call, n_finish;
    char finish[16];
    bool content_seen;
} folded;

static void add(lg_buf *b, const lg_json *s)
{
    if (!s)
        return;
    assert_true(lg_json_is(s, LG_JSON_STRING)); // never null inside a delta
    if (!b->max)
        lg_buf_init(b, 1 << 20);
    (void)lg_buf_adds(b, lg_json_str(s));
}

static void fold_call(folded *f, const lg_json *part)
{
    const lg_json *fn = lg_json_get(part, "function");
    int64_t index = -1;

    assert_true(lg_json_i64(lg_json_get(part, "index"), &index));
    assert_in_range(index, 0, f->n_call);
    if (index == f->n_call) { // id, type and name together, and only in the first fragment
        assert_true(lg_json_str(lg_json_get(part, "id")).n > 0);
        assert_true(lg_str_eqz(lg_json_str(lg_json_get(part, "type")), "function"));
        assert_true(lg_json_str(lg_json_get(fn, "name")).n > 0);
        assert_int_equal(lg_json_str(lg_json_get(fn, "arguments")).n, 0);
        f->n_call++;
    } else {
        assert_int_equal(index, f->n_call - 1);
        assert_null(lg_json_get(part, "id"));
        assert_null(lg_json_get(part, "type"));
        assert_null(lg_json_get(fn, "name"));
    }
    add(&f->call[index].name, lg_json_get(fn, "name"));
    add(&f->call[index].id, lg_json_get(part, "id"));
    add(&f->call[index].args, lg_json_get(fn, "arguments"));
}

static void fold_chunk(folded *f, const lg_json *chunk, bool first)
{
    const lg_json *choice = lg_json_at(lg_json_get(chunk, "choices"), 0),
                  *delta = lg_json_get(choice, "delta");
    const lg_json *finish = lg_json_get(choice, "finish_reason"), *content = lg_json_get(delta, "content");
    const lg_json *calls = lg_json_get(delta, "tool_calls");

    assert_true(lg_str_eqz(lg_json_str(lg_json_get(chunk, "object")), "chat.completion.chunk"));
    assert_true(lg_json_is(lg_json_get(chunk, "choices"), LG_JSON_ARRAY));
    if (!choice)
        return; // the usage chunk
    assert_non_null(finish);
    if (lg_json_is(finish, LG_JSON_STRING)) {
        f->n_finish++;
        (void)snprintf(f->finish, sizeof f->finish, "%s", lg_json_str(finish).p);
        assert_int_equal(lg_json_len(delta), 0);
    }
    if (content && !first)
        assert_true(lg_json_str(content).n > 0);
    add(&f->content, content);
    add(&f->reasoning, lg_json_get(delta, "reasoning_content"));
    for (size_t i = 0; i < lg_json_len(calls); i++)
        fold_call(f, lg_json_at(calls, i));
}

static void fold(lg_str stream, folded *f)
{
    size_t at = 0;
    lg_str name, data;
    bool first = true, done = false;

    *f = (folded){0};
    while (td_event(stream, &at, &name, &data)) {
        assert_int_equal(name.n, 0);
        assert_false(done);
        done = lg_str_eqz(data, "[DONE]");
        if (done)
            continue;
        lg_json_doc *doc = tt_parse(data);
        assert_false(lg_json_repaired(doc));
        fold_chunk(f, lg_json_root(doc), first);
        lg_json_free(doc);
        first = false;
    }
    assert_true(done);
    assert_int_equal(f->n_finish, 1);
}

static void unfold(folded *f)
{
    lg_buf_free(&f->content);
    lg_buf_free(&f->reasoning);
    for (int i = 0; i < f->n_call; i++) {
        lg_buf_free(&f->call[i].name);
        lg_buf_free(&f->call[i].id);
        lg_buf_free(&f->call[i].args);
    }
}

static void same(const lg_json *whole, const lg_buf *streamed)
{
    assert_true(lg_str_eq(lg_json_str(whole), lg_buf_str(streamed)));
}

static void compare(const folded *f, const lg_json *body, bool cut)
{
    const lg_json *choice = lg_json_at(lg_json_get(body, "choices"), 0), *m = lg_json_get(choice, "message");
    const lg_json *calls = lg_json_get(m, "tool_calls");
    size_t n = lg_json_len(calls);

    same(lg_json_get(m, "content"), &f->content);
    same(lg_json_get(m, "reasoning_content"), &f->reasoning);
    assert_string_equal(lg_json_str(lg_json_get(choice, "finish_reason")).p, f->finish);
    assert_true(n > 0 || !calls);
    assert_true(n == (size_t)f->n_call || (cut && n + 1 == (size_t)f->n_call));
    for (size_t i = 0; i < n; i++) {
        const lg_json *fn = lg_json_get(lg_json_at(calls, i), "function");
        lg_json_doc *args = tt_parse(lg_json_str(lg_json_get(fn, "arguments")));
        assert_true(lg_json_is(lg_json_root(args), LG_JSON_OBJECT));
        lg_json_free(args);
        same(lg_json_get(fn, "name"), &f->call[i].name);
        same(lg_json_get(fn, "arguments"), &f->call[i].args);
        same(lg_json_get(lg_json_at(calls, i), "id"), &f->call[i].id);
    }
}

static void both_forms_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].script.text[1])
            continue; // more than one choice
        for (size_t step = 0; step < 12; step++) {
            td_run stream, whole;
            lg_json_doc *doc;
            folded f;
            td_play(&lg_dialect_chat, body_of(cases[i].fields, true), &cases[i].script, step, &stream);
            td_play(&lg_dialect_chat, body_of(cases[i].fields, false), &cases[i].script, 0, &whole);
            fold(lg_buf_str(&stream.out), &f);
            doc = tt_parse(lg_buf_str(&whole.out));
            compare(&f, lg_json_root(doc), cases[i].script.how == LG_END_LENGTH);
            lg_json_free(doc);
            unfold(&f);
            td_free(&stream);
            td_free(&whole);
        }
    }
}

/* --- what is refused --- */

static void refuse(const char *fields, const char *param, const char *code, const char *words)
{
    td_refuse(&lg_dialect_chat, body_of(fields, false), param, code, words);
}

static void refusals(void **state)
{
    (void)state;
    refuse("\"temperature\":6", "temperature", "", "between 0 and 5");
    refuse("\"temperature\":\"hot\"", "temperature", "", "number");
    refuse("\"top_k\":1.5", "top_k", "", "integer");
    refuse("\"top_p\":1.01", "top_p", "", "between 0 and 1");
    refuse("\"seed\":1e30", "seed", "", "between -9223372036854775808 and");
    refuse("\"n\":9", "n", "", "between 1 and 8");
    refuse("\"n\":0", "n", "", "between 1 and 8");
    refuse("\"stop\":7", "stop", "", "string");
    refuse("\"stop\":[\"a\",1]", "stop", "", "string");
    refuse("\"stop\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"]",
           "stop", "", "at most 16");
    refuse("\"logit_bias\":{\"x\":1}", "logit_bias", "", "ids of the vocabulary");
    refuse("\"logit_bias\":{\"512\":1}", "logit_bias", "", "ids of the vocabulary");
    refuse("\"logit_bias\":{\"5\":101}", "logit_bias", "", "between -100 and 100");
    refuse("\"top_logprobs\":2", "top_logprobs", "", "logprobs");
    refuse("\"top_logprobs\":21,\"logprobs\":true", "top_logprobs", "", "between 0 and 20");
    refuse("\"reasoning_effort\":\"banana\"", "reasoning_effort", "", "\"minimal\"");
    refuse("\"reasoning\":{\"effort\":\"banana\"}", "reasoning.effort", "", "\"minimal\"");
    refuse("\"reasoning\":7", "reasoning", "", "object");
    refuse("\"thinking\":{\"type\":\"maybe\"}", "thinking.type", "", "adaptive");
    refuse("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":0}", "thinking.budget_tokens", "",
           "at least 1");
    refuse("\"max_tokens\":-2", "max_tokens", "", "at least -1");
    refuse("\"max_tokens\":-1e30", "max_tokens", "", "at least -1");
    refuse("\"max_tokens\":1.5", "max_tokens", "", "an integer");
    refuse("\"top_k\":18446744073709551616", "top_k", "", "between -1");
    refuse("\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage", "", "true or false");
    refuse("\"audio\":{}", "audio", "", "not supported");
    refuse("\"modalities\":[\"text\",\"audio\"]", "modalities", "", "[\"text\"]");
    refuse("\"web_search_options\":{}", "web_search_options", "", "not supported");
    refuse("\"grammar\":\"root\"", "grammar", "", "response_format");
    refuse("\"tool_choice\":\"required\"", "tool_choice", "", "no tools");
    refuse("\"tool_choice\":\"sometimes\"", "tool_choice", "", "\"required\"");
    refuse(TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"rm\"}}", "tool_choice", "",
           "\"rm\"");
    refuse("\"tools\":[{\"type\":\"retrieval\"}]", "tools[0].type", "", "function");
    refuse("\"response_format\":{\"type\":\"xml\"}", "response_format", "", "json_schema");
    refuse("\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema.schema",
           "invalid_schema", "JSON Schema");
    refuse("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"properties\":{\"a\":"
           "{\"not\":{}}}}}}",
           "response_format.json_schema.schema", "unsupported_keyword", "schema at /properties/a/not");
    refuse("\"guided_json\":{\"$ref\":\"http://x/y\"}", "guided_json", "remote_ref", "$ref");
    refuse(TOOLS ",\"response_format\":{\"type\":\"json_object\"}", "response_format", "",
           "cannot be combined with tools");
}

static void refuse_messages(const char *body, const char *param)
{
    td_refuse(&lg_dialect_chat, body, param, NULL, NULL);
}

static void bad_messages(void **state)
{
    (void)state;
    refuse_messages("{}", "messages");
    refuse_messages("{\"messages\":[]}", "messages");
    refuse_messages("{\"messages\":{}}", "messages");
    refuse_messages("{\"messages\":[{\"role\":\"wizard\",\"content\":\"x\"}]}", "messages[0].role");
    refuse_messages("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
                    "messages[0].content[0].type");
    refuse_messages("{\"messages\":[7]}", "messages[0].role");
}

/* --- what a request sets --- */

static void take(const char *fields, td_run *r)
{
    td_parse(&lg_dialect_chat, body_of(fields, false), r);
    if (r->st != LG_OK)
        print_error("%s: %s\n", fields, r->error.message);
    assert_int_equal(r->st, LG_OK);
}

static void thinking_is(const char *fields, bool on, int64_t budget)
{
    td_run r;

    take(fields, &r);
    if (r.job->thinking != on || (on && r.job->max_think != budget))
        print_error("%s -> %d %lld\n", fields, r.job->thinking, (long long)r.job->max_think);
    assert_int_equal(r.job->thinking, on);
    if (on)
        assert_int_equal(r.job->max_think, budget);
    assert_int_equal(lg_chat_ends_in_reasoning(tt_vocab(), r.job->prompt.p, r.job->prompt.n), on);
    td_free(&r);
}

static void thinking(void **state)
{
    int64_t ctx = td_service()->n_ctx;

    (void)state;
    td_service()->n_ctx = 1 << 20;
    thinking_is("", true, 4096);
    thinking_is("\"reasoning_effort\":null", true, 4096);
    thinking_is("\"reasoning_effort\":\"none\"", false, 0);
    thinking_is("\"reasoning_effort\":\"minimal\"", true, 512);
    thinking_is("\"reasoning_effort\":\"low\"", true, 2048);
    thinking_is("\"reasoning_effort\":\"high\"", true, 16384);
    thinking_is("\"reasoning_effort\":\"max\"", true, -1);
    thinking_is("\"reasoning\":{\"effort\":\"low\"}", true, 2048);
    thinking_is("\"reasoning\":{\"max_tokens\":700}", true, 700);
    thinking_is("\"reasoning\":{\"enabled\":false}", false, 0);
    thinking_is("\"reasoning_effort\":\"high\",\"enable_thinking\":false", false, 0);
    thinking_is("\"reasoning_effort\":\"none\",\"think\":true", true, 4096);
    thinking_is("\"chat_template_kwargs\":{\"enable_thinking\":false}", false, 0);
    thinking_is("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1000}", true, 1000);
    thinking_is("\"thinking\":{\"type\":\"disabled\"}", false, 0);
    thinking_is("\"thinking\":{\"type\":\"adaptive\"},\"output_config\":{\"effort\":\"high\"}", true, 16384);
    thinking_is("\"thinking_budget_tokens\":0", false, 0);
    thinking_is("\"thinking_budget\":-1", true, -1);
    // limits: a small one means no thinking unless it was asked for, and the answer has its reserve
    thinking_is("\"max_tokens\":255", false, 0);
    thinking_is("\"max_tokens\":255,\"reasoning_effort\":\"low\"", true, 255 - 64);
    thinking_is("\"max_tokens\":4000", true, 3000);
    thinking_is("\"max_tokens\":100,\"think\":true", true, -1);
    thinking_is("\"max_tokens\":100,\"max_completion_tokens\":2000", true, 1500);
    // a limit that the context lowers counts like any other
    td_run r;
    take("", &r);
    int64_t n = (int64_t)r.job->prompt.n;
    td_free(&r);
    td_service()->n_ctx = n + 1000;
    thinking_is("\"think\":true,\"max_tokens\":100000", true, 750);
    td_service()->n_ctx = n + 200; // nobody asked, and the room is small
    thinking_is("\"max_tokens\":100000", false, 0);
    td_service()->n_ctx = ctx;
}

static void limits(void **state)
{
    static const char *const most[] = {"\"max_tokens\":2147483647",
                                       "\"max_tokens\":9007199254740991",
                                       "\"max_tokens\":9223372036854775807",
                                       "\"max_tokens\":18446744073709551615",
                                       "\"max_tokens\":1e30",
                                       "\"thinking_budget\":1e30"};
    td_run r;
    int64_t ctx = td_service()->n_ctx;

    (void)state;
    take("", &r);
    assert_int_equal(r.job->max_tokens, ctx - (int64_t)r.job->prompt.n);
    assert_int_equal(r.job->ctx, ctx);
    td_free(&r);
    take("\"max_tokens\":50", &r);
    assert_int_equal(r.job->max_tokens, 50);
    td_free(&r);
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) { // however a client spells it
        take(most[i], &r);
        assert_int_equal(r.job->max_tokens, ctx - (int64_t)r.job->prompt.n);
        td_free(&r);
    }
    take("\"max_tokens\":-1", &r);
    assert_int_equal(r.job->max_tokens, ctx - (int64_t)r.job->prompt.n);
    int64_t n = (int64_t)r.job->prompt.n;
    td_free(&r);
    td_service()->n_ctx = n + 1; // the last prompt that leaves room
    take("\"max_tokens\":50,\"think\":true", &r);
    assert_int_equal(r.job->max_tokens, 1);
    td_free(&r);
    td_service()->n_ctx = n;
    td_parse(&lg_dialect_chat, body_of("\"think\":true", false), &r);
    assert_int_equal(r.st, LG_E_INPUT);
    assert_string_equal(r.error.code, "context_length_exceeded");
    assert_string_equal(r.error.param, "messages");
    assert_int_equal(r.error.n_ctx, n);
    assert_int_equal(r.error.n_prompt_tokens, n);
    assert_non_null(strstr(r.error.message, "prompt is too long: "));
    assert_non_null(strstr(r.error.message, "maximum context length is "));
    assert_non_null(strstr(r.error.message, "exceeds the available context size"));
    td_free(&r);
    td_service()->n_ctx = ctx;
}

static void sampling(void **state)
{
    td_run r;

    (void)state;
    take("\"temperature\":0.5,\"top_k\":20.0,\"top_p\":0,\"min_p\":0.1,\"seed\":-1,\"frequency_penalty\":0.5,"
         "\"presence_penalty\":null,\"repeat_penalty\":1.5,\"logit_bias\":{\"7\":-100},\"stop\":\"\"",
         &r);
    assert_true(r.job->sampling.temperature == 0); // top_p 0 leaves no choice
    assert_int_equal(r.job->sampling.top_k, 20);
    assert_true(r.job->random_seed);
    assert_true(r.job->sampling.repetition_penalty == 1.5f);
    assert_int_equal(r.job->sampling.n_bias, 1);
    assert_int_equal(r.job->n_stop, 0);
    td_free(&r);
    take("\"seed\":42,\"stop\":[\"a\",\"\",\"b\"]", &r);
    assert_false(r.job->random_seed);
    assert_int_equal(r.job->sampling.seed, 42);
    assert_int_equal(r.job->n_stop, 2);
    assert_true(r.job->sampling.temperature == 1.0f);
    assert_int_equal(r.job->sampling.top_k, 20);
    td_free(&r);
}

static void tool_choice(void **state)
{
    int32_t call = lg_vocab_special(tt_vocab())->tool_call;
    td_run r;

    (void)state;
    take(TOOLS ",\"tool_choice\":\"none\"", &r);
    assert_int_equal(r.job->n_tool, 0); // not for the parser, but in the prompt, and no call can begin
    assert_int_equal(r.job->history->n_tool, 2);
    assert_int_equal(r.job->sampling.n_bias, 1);
    assert_int_equal(r.job->sampling.bias[0].id, call);
    td_free(&r);
    take(TOOLS ",\"tool_choice\":null,\"parallel_tool_calls\":null", &r);
    assert_int_equal(r.job->n_tool, 2);
    assert_false(r.job->one_call);
    assert_null(r.job->constraint);
    td_free(&r);
    take(TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false", &r);
    assert_non_null(r.job->constraint);
    assert_int_equal(lg_constraint_kind_of(r.job->constraint), LG_CONSTRAIN_CALL);
    assert_true(r.job->one_call);
    td_free(&r);
    take(TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"ls\"}}", &r);
    assert_int_equal(lg_constraint_kind_of(r.job->constraint), LG_CONSTRAIN_CALL);
    td_free(&r);
    take(
        TOOLS
        ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"ls\"}}]}}",
        &r);
    assert_null(r.job->constraint);
    td_free(&r);
    take(TOOLS ",\"tool_choice\":\"none\",\"response_format\":{\"type\":\"json_object\"}", &r);
    assert_int_equal(lg_constraint_kind_of(r.job->constraint), LG_CONSTRAIN_JSON_OBJECT);
    td_free(&r);
}

static void settings(void **state)
{
    lg_settings *set = td_settings();
    td_run r;

    (void)state;
    set->forced_tools = "reject";
    refuse(TOOLS ",\"tool_choice\":\"required\"", "tool_choice", "", "forces no calls");
    set->forced_tools = "force";
    set->format_with_tools = true;
    take(TOOLS ",\"response_format\":{\"type\":\"json_object\"}", &r);
    assert_int_equal(lg_constraint_kind_of(r.job->constraint), LG_CONSTRAIN_CALL_OR_SCHEMA);
    td_free(&r);
    set->format_with_tools = false;
    set->strict_tools = "enforce";
    take(
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"ls\",\"strict\":true}},{\"type\":\"function\","
        "\"function\":{\"name\":\"cat\"}}]",
        &r);
    assert_int_equal(lg_constraint_kind_of(r.job->constraint), LG_CONSTRAIN_STRICT_CALLS);
    td_free(&r);
    set->strict_tools = "ignore";
    set->model_policy = "strict";
    td_parse(&lg_dialect_chat, body_of("\"model\":\"gpt-x\"", false), &r);
    assert_int_equal(lg_api_status(&r.error), 404);
    assert_string_equal(r.error.code, "model_not_found");
    td_free(&r);
    set->strict_status = "400";
    td_parse(&lg_dialect_chat, body_of("\"model\":\"gpt-x\"", false), &r);
    assert_int_equal(lg_api_status(&r.error), 400);
    assert_string_equal(r.error.code, "model_mismatch");
    td_free(&r);
    refuse("\"model\":null", "model", "model_mismatch", "model must name what is served here");
    take("\"model\":\"laguna-test\"", &r);
    td_free(&r);
    set->strict_status = "404";
    set->model_policy = "echo";
}

// null counts as absent, and what nobody knows is ignored.
static void tolerance(void **state)
{
    td_run r;

    (void)state;
    take(
        "\"tools\":null,\"tool_choice\":null,\"stop\":null,\"stream_options\":null,\"response_format\":null,"
        "\"max_tokens\":null,\"n\":null,\"temperature\":null,\"logit_bias\":null,\"reasoning_effort\":null,"
        "\"chat_template_kwargs\":null,\"user\":\"u\",\"metadata\":{\"a\":1},\"store\":true,\"nobody\":{\"knows\":1},"
        "\"cache_prompt\":true,\"id_slot\":3,\"modalities\":[\"text\"],\"audio\":null,\"functions\":null",
        &r);
    td_free(&r);
    td_parse(
        &lg_dialect_chat,
        "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"s\"}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":"
        "\"b\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\","
        "\"function\":{\"name\":\"ls\",\"arguments\":\"{\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\","
        "\"content\":[{\"type\":\"text\",\"text\":\"out\"}]}],\"think\":false}",
        &r);
    assert_int_equal(r.st, LG_OK);
    lg_buf text;
    lg_buf_init(&text, 1 << 16);
    td_prompt(r.job, &text);
    assert_non_null(strstr(lg_buf_z(&text),
                           "<user>ab</user>\n<assistant></think><tool_call>ls<arg_key>input</arg_key>"
                           "<arg_value>{</arg_value></tool_call></assistant>\n"
                           "<tool_response>out</tool_response>\n<assistant></think>"));
    lg_buf_free(&text);
    td_free(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),       cmocka_unit_test(both_forms_agree), cmocka_unit_test(refusals),
        cmocka_unit_test(bad_messages), cmocka_unit_test(thinking),         cmocka_unit_test(limits),
        cmocka_unit_test(sampling),     cmocka_unit_test(tool_choice),      cmocka_unit_test(settings),
        cmocka_unit_test(tolerance),
    };

    td_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
