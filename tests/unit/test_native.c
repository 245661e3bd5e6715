/*
 * unit/test_native: POST /lagoon/v1/generate without sockets: every unknown field is refused with its path,
 * the turn begins as the body says, and the stream says the same as the single body.
 *
 * Recorded answers are in golden/native.txt, a section a case. After a change on purpose: test_native --write
 * FILE.
 */
#include "check.h"

#include <stdio.h>

#include "engine/think.h"
#include "support/dialects.h"

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"
#define HEAD "{" MESSAGES
#define TOOLS                                                                                              \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"ls\",\"description\":\"list\","             \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"}}}}}]"
#define CALL(path) "\x19ls<arg_key>path</arg_key><arg_value>" path "</arg_value>\x1A"

static lg_job *job_of(const char *body)
{
    return dk_accept(&lg_dialect_native, body);
}

static void check_prompt(const char *body, const char *want)
{
    dk_prompt_ends(&lg_dialect_native, body, want);
}

static void check_error(const char *body, const char *param, const char *message)
{
    dk_refuses(&lg_dialect_native, body, param, message);
}

/* --- bodies --- */

static void unknown_fields(void **state)
{
    static const struct {
        const char *fields, *path;
    } cases[] = {
        {"\"temperature\":1", "temperature"},
        {"\"novel\":null", "novel"},
        {"\"sampling\":{\"heat\":1}", "sampling.heat"},
        {"\"sampling\":{\"repeat_penalty\":1}", "sampling.repeat_penalty"},
        {"\"continue\":{\"thinking\":\"\",\"open\":true}", "continue.open"},
        {"\"format\":{\"type\":\"text\",\"name\":\"n\"}", "format.name"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":\"function\",\"function\":"
         "{\"name\":\"g\",\"params\":{}}}]",
         "tools[1].function.params"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"},\"cache_control\":{}}]",
         "tools[0].cache_control"},
        {"\"tool_choice\":{\"name\":\"f\",\"type\":\"function\"}", "tool_choice.type"},
        {"\"thinking\":true,\"reasoning_effort\":\"low\"", "reasoning_effort"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[500], message[100];
        (void)snprintf(body, sizeof body, HEAD ",%s}", cases[i].fields);
        (void)snprintf(message, sizeof message, "unknown field \"%s\"", cases[i].path);
        check_error(body, cases[i].path, message);
    }
    check_error(
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"b\":1}]}]}",
        "messages[0].content[0].b", "unknown field \"messages[0].content[0].b\"");
    check_error(
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{}\",\"x\":1}}]}]}",
        "messages[0].tool_calls[0].function.x", "unknown field \"messages[0].tool_calls[0].function.x\"");
    // the client's own: schemas, arguments, the parameters of a tool
    lg_job_release(
        job_of("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
               "\"function\":{\"name\":\"f\",\"arguments\":{\"any\":{\"thing\":1}}}}]}],\"tools\":[{\"type\":"
               "\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"x-any\":{\"thing\":1}}}}]}"));
}

static void beginnings(void **state)
{
    (void)state;
    check_prompt(HEAD "}", "<user>q</user>\n<assistant><think>");
    check_prompt(HEAD ",\"thinking\":false}", "<assistant></think>");
    check_prompt(HEAD ",\"continue\":{\"thinking\":\"Let me\"}}", "<assistant><think>Let me");
    check_prompt(HEAD ",\"continue\":{\"thinking\":\"\"}}", "<assistant><think>");
    check_prompt(HEAD ",\"continue\":{\"thinking\":\"Done.\",\"close_thinking\":true}}",
                 "<assistant><think>Done.</think>");
    check_prompt(HEAD ",\"continue\":{\"close_thinking\":true}}", "<assistant><think></think>");
    check_prompt(HEAD ",\"continue\":{\"thinking\":\"r\",\"close_thinking\":true,\"prefix\":\"It \"}}",
                 "<assistant><think>r</think>It ");
    check_prompt(HEAD ",\"thinking\":false,\"continue\":{\"prefix\":\"It is\"}}", "<assistant></think>It is");
    check_prompt(HEAD ",\"max_thinking_tokens\":0}", "<assistant><think></think>");
    check_prompt(HEAD ",\"max_thinking_tokens\":0,\"continue\":{\"prefix\":\"A\"}}",
                 "<assistant><think></think>A");
    // asked for outright
    check_prompt(HEAD ",\"max_tokens\":20,\"max_thinking_tokens\":10}", "<assistant><think>");
    check_prompt(HEAD ",\"max_tokens\":20}", "<assistant></think>");
    check_prompt(HEAD ",\"continue\":{\"thinking\":null,\"close_thinking\":null,\"prefix\":null}}",
                 "<assistant><think>");
    // markup in a prefix is text
    lg_job *job = job_of(HEAD ",\"thinking\":false,\"continue\":{\"prefix\":\"<tool_call></think>\"}}");
    assert_false(lg_chat_ends_in_reasoning(tt_vocab(), job->prompt.p, job->prompt.n));
    for (size_t i = 0; i < job->prompt.n; i++)
        assert_true(job->prompt.p[i] != 25);
    lg_job_release(job);
    // a prompt is taken as it is
    job = job_of("{\"prompt\":\"<assistant></think>a\"}");
    assert_true(job->raw);
    const int32_t ids[] = {2, 23, 19};
    assert_memory_equal(job->prompt.p, ids, sizeof ids);
    lg_job_release(job);
    job = job_of("{\"prompt\":\"\"}");
    assert_int_equal(job->prompt.n, 1);
    lg_job_release(job);
}

static void errors(void **state)
{
    (void)state;
#define BAD(rest, param, message) check_error(HEAD "," rest "}", param, message)
    check_error("{}", "messages", "there must be either messages or prompt");
    BAD("\"prompt\":\"x\"", "messages", "there must be either messages or prompt");
    check_error("{\"messages\":[]}", "messages", "messages must be an array of at least one message");
    check_error("{\"prompt\":\"x\",\"tools\":[]}", "tools",
                "tools needs messages; a prompt is taken as it is");
    check_error("{\"prompt\":7}", "prompt", "prompt must be a string");
    BAD("\"continue\":{\"prefix\":\"x\"}", "continue.prefix", "prefix requires close_thinking");
    BAD("\"continue\":{\"thinking\":\"t\",\"prefix\":\"x\"}", "continue.prefix",
        "prefix requires close_thinking");
    BAD("\"thinking\":false,\"continue\":{\"thinking\":\"t\"}", "thinking",
        "thinking must not be false when the request begins or closes it");
    BAD("\"thinking\":false,\"max_thinking_tokens\":5", "thinking",
        "thinking must not be false when the request bounds it");
    BAD("\"min_thinking_tokens\":5,\"max_thinking_tokens\":4", "min_thinking_tokens",
        "min_thinking_tokens must not be greater than max_thinking_tokens");
    BAD("\"continue\":[]", "continue", "continue must be an object");
    BAD("\"continue\":{\"prefix\":1}", "continue.prefix", "continue.prefix must be a string");
    BAD("\"tool_choice\":\"some\"", "tool_choice",
        "tool_choice must be \"auto\", \"none\", \"required\" or {\"name\": ...}");
    BAD("\"tool_choice\":{\"name\":\"g\"}" TOOLS, "tool_choice.name",
        "tool_choice.name must be the name of one of the tools");
    BAD("\"tool_choice\":\"required\"", "tool_choice", "tool_choice demands a call, but there are no tools");
    BAD("\"max_tokens\":0", "max_tokens", "max_tokens must be at least 1");
    BAD("\"stop\":\"x\"", "stop", "stop must be an array of strings");
    BAD("\"logprobs\":21", "logprobs", "logprobs must be between 0 and 20");
    BAD("\"logprobs\":true", "logprobs", "logprobs must be an integer");
    BAD("\"priority\":2", "priority", "priority must be between -1 and 1");
    BAD("\"cache\":\"never\"", "cache", "cache must be \"use\", \"no_store\" or \"off\"");
    BAD("\"history_thinking\":\"some\"", "history_thinking",
        "history_thinking must be \"tail\", \"all\" or \"none\"");
    BAD("\"ban_strings\":\"x\"", "ban_strings", "ban_strings must be an array of at most 256 strings");
    BAD("\"ban_strings\":[\"\"]", "ban_strings", "ban_strings must be an array of non-empty strings");
    BAD("\"sampling\":[]", "sampling", "sampling must be an object");
    BAD("\"sampling\":{\"top_p\":2}", "sampling.top_p", "sampling.top_p must be between 0 and 1");
#undef BAD
}

static void values(void **state)
{
    (void)state;
    lg_job *job = job_of(
        HEAD ",\"max_tokens\":1000,\"stop\":[\"s\"],\"logprobs\":3,\"ban_strings\":[\"foo\",\"bar\"],"
             "\"cache\":\"no_store\",\"priority\":-1,\"min_thinking_tokens\":7,\"max_thinking_tokens\":9,"
             "\"sampling\":{\"seed\":42,\"temperature\":0,\"logit_bias\":{\"300\":-100}}}");
    assert_int_equal(job->max_tokens, 1000);
    assert_int_equal(job->n_stop, 1);
    assert_int_equal(job->n_logprobs, 3);
    assert_int_equal(job->n_ban, 2);
    assert_str(job->ban[1], "bar");
    assert_int_equal(job->cache, LG_CACHE_NO_STORE);
    assert_int_equal(job->priority, -1);
    assert_int_equal(job->min_think, 7);
    assert_int_equal(job->max_think, 9);
    assert_true(job->sampling.seed == 42 && !job->random_seed && job->sampling.n_bias == 1);
    lg_job_release(job);
    job = job_of(HEAD ",\"cache\":\"off\"" TOOLS "}");
    assert_int_equal(job->cache, LG_CACHE_OFF);
    assert_int_equal(job->n_tool, 1);
    assert_int_equal(job->n_logprobs, -1);
    assert_true(job->random_seed);
    lg_job_release(job);
}

/* --- replies --- */

typedef struct reply_case {
    const char *name, *fields, *script;
    lg_end end;
    const char *thinking, *text, *calls, *finish; /* thinking NULL: null */
} reply_case;

static const reply_case cases[] = {
    {"text", "", "\x13Hello\x18", LG_END_EOG, NULL, "Hello", "[]", "stop"},
    {"reasoning", "", "I th\xC3\xA9.\x13Hello\x18", LG_END_EOG, "I th\xC3\xA9.", "Hello", "[]", "stop"},
    {"calls", TOOLS,
     "r\x13"
     "x" CALL("/a\\n\"") CALL("/b") "\x18",
     LG_END_EOG, "r", "x",
     "[{\"name\": \"ls\", \"arguments\": {\"path\": \"/a\\\\n\\\"\"}}, {\"name\": \"ls\", \"arguments\": {\"path\": \"/b\"}}]",
     "tool_calls"},
    {"cut in a call", TOOLS, "\x13x\x19ls<arg_key>path</arg_key><arg_value>/a", LG_END_LENGTH, NULL, "x",
     "[]", "length"},
    {"cut in reasoning", "", "I th", LG_END_LENGTH, "I th", "", "[]", "length"},
    {"stop", ",\"stop\":[\"STOP\"]",
     "\x13"
     "be STOP it",
     LG_END_EOG, NULL, "be ", "[]", "stop_string"},
    {"schema", "", "\x13{}", LG_END_SCHEMA, NULL, "{}", "[]", "schema"},
    {"cancelled", "", "\x13so", LG_END_CANCELLED, NULL, "so", "[]", "cancelled"},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void play(const reply_case *c, bool stream, size_t step, const char *error, lg_buf *out)
{
    char body[2000];
    const dk_script script = {.text = c->script, .step = step, .end = c->end, .error = error};

    (void)snprintf(body, sizeof body, HEAD ",\"max_tokens\":1000,\"model\":\"m\",\"stream\":%s%s}",
                   stream ? "true" : "false", c->fields);
    lg_job *job = job_of(body);
    dk_play(job, &script, out);
    lg_job_release(job);
}

// {name, arguments} of each call.
static void calls_text(const lg_json *calls, lg_buf *out)
{
    (void)lg_buf_addz(out, "[");
    for (size_t i = 0; i < lg_json_len(calls); i++) {
        const lg_json *c = lg_json_at(calls, i);
        (void)lg_buf_addz(out, i ? ", {\"name\": " : "{\"name\": ");
        (void)lg_json_dump(lg_json_get(c, "name"), out);
        (void)lg_buf_addz(out, ", \"arguments\": ");
        (void)lg_json_dump(lg_json_get(c, "arguments"), out);
        (void)lg_buf_addz(out, "}");
        assert_true(lg_str_starts(lg_json_str(lg_json_get(c, "id")), LG_STR("call_")));
    }
    (void)lg_buf_addz(out, "]");
}

// What is the same in the single body and in the last event of a stream.
static void check_answer(const reply_case *c, const lg_json *o)
{
    const lg_json *usage = lg_json_get(o, "usage");
    lg_buf calls;
    int64_t n = 0;

    lg_buf_init(&calls, 1 << 16);
    calls_text(lg_json_get(o, "tool_calls"), &calls);
    if (!lg_str_eqz(lg_buf_str(&calls), c->calls))
        fail_msg("%s: calls %.*s", c->name, (int)calls.n, calls.p);
    lg_buf_free(&calls);
    if (c->thinking)
        assert_true(lg_str_eqz(lg_json_str(lg_json_get(o, "thinking")), c->thinking));
    else
        assert_true(lg_json_is(lg_json_get(o, "thinking"), LG_JSON_NULL));
    if (!lg_str_eqz(lg_json_str(lg_json_get(o, "finish")), c->finish))
        fail_msg("%s: finish %s", c->name, lg_json_str(lg_json_get(o, "finish")).p);
    assert_true(lg_json_i64(lg_json_get(usage, "cached_tokens"), &n) && n == 5);
    assert_true(lg_json_i64(lg_json_get(usage, "input_tokens"), &n) && n > 100);
    assert_true(lg_json_i64(lg_json_get(o, "seed"), &n) && n == 7);
    assert_str(lg_json_str(lg_json_get(o, "model")), "m");
    assert_str(lg_json_str(lg_json_get(o, "id")), "gen_0");
    assert_true(lg_json_is(lg_json_get(o, "timings"), LG_JSON_OBJECT));
    assert_int_equal(lg_json_len(lg_json_get(o, "warnings")), 0);
    assert_true(lg_json_is(lg_json_get(o, "stop_string"),
                           strcmp(c->finish, "stop_string") == 0 ? LG_JSON_STRING : LG_JSON_NULL));
}

typedef struct client {
    const reply_case *c;
    lg_buf thinking, text, args;
    bool started, ended, failed, in_call;
    int64_t n_call, n_progress;
} client;

static void hear(void *ctx, lg_str name, lg_str data)
{
    client *k = ctx;
    lg_json_doc *doc = tt_parse(data);
    const lg_json *d = lg_json_root(doc);
    lg_str delta = lg_json_str(lg_json_get(d, "delta"));
    int64_t index = -1;

    assert_false(k->ended || k->failed);
    assert_true(lg_str_eqz(name, "error") || lg_str_eq(lg_json_str(lg_json_get(d, "type")), name));
    assert_true(lg_str_eqz(name, "start") == !k->started);
    k->started = true;
    (void)lg_json_i64(lg_json_get(d, "index"), &index);
    if (lg_str_eqz(name, "thinking")) {
        (void)lg_buf_adds(&k->thinking, delta);
    } else if (lg_str_eqz(name, "text")) {
        (void)lg_buf_adds(&k->text, delta);
    } else if (lg_str_eqz(name, "tool_start")) {
        assert_true(!k->in_call && index == k->n_call && lg_json_str(lg_json_get(d, "name")).n > 0);
        k->in_call = true;
        lg_buf_clear(&k->args);
    } else if (lg_str_eqz(name, "tool_args")) {
        assert_true(k->in_call && index == k->n_call && delta.n > 0);
        (void)lg_buf_adds(&k->args, delta);
    } else if (lg_str_eqz(name, "tool_end")) {
        assert_true(k->in_call && index == k->n_call);
        lg_json_free(tt_parse(lg_buf_str(&k->args))); // one JSON value
        k->in_call = false;
        k->n_call++;
    } else if (lg_str_eqz(name, "progress")) {
        k->n_progress++;
    } else if (lg_str_eqz(name, "end")) {
        assert_null(lg_json_get(d, "text"));
        check_answer(k->c, d);
        k->ended = true;
    } else if (lg_str_eqz(name, "error")) {
        k->failed = true;
        assert_str(lg_json_str(lg_json_get(lg_json_get(d, "error"), "type")), "server_error");
    } else {
        assert_true(lg_str_eqz(name, "start"));
    }
    lg_json_free(doc);
}

static void both_forms(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        lg_buf body;
        lg_buf_init(&body, 1 << 20);
        play(&cases[i], false, 0, NULL, &body);
        lg_json_doc *doc = tt_parse(lg_buf_str(&body));
        check_answer(&cases[i], lg_json_root(doc));
        assert_true(lg_str_eqz(lg_json_str(lg_json_get(lg_json_root(doc), "text")), cases[i].text));
        lg_json_free(doc);
        for (size_t step = 0; step <= 9; step++) {
            client k = {.c = &cases[i]};
            lg_buf_clear(&body);
            lg_buf_init(&k.thinking, 1 << 20);
            lg_buf_init(&k.text, 1 << 20);
            lg_buf_init(&k.args, 1 << 20);
            play(&cases[i], true, step, NULL, &body);
            (void)dk_each_event(lg_buf_str(&body), hear, &k);
            assert_true(k.ended);
            assert_in_range(k.n_progress, 1, 1);
            assert_true(lg_str_eqz(lg_buf_str(&k.text), cases[i].text));
            assert_true(lg_str_eqz(lg_buf_str(&k.thinking), cases[i].thinking ? cases[i].thinking : ""));
            lg_buf_free(&k.thinking);
            lg_buf_free(&k.text);
            lg_buf_free(&k.args);
        }
        lg_buf_free(&body);
    }
}

static void failure(void **state)
{
    client k = {.c = &cases[0]};
    lg_buf out;

    (void)state;
    lg_buf_init(&out, 1 << 20);
    lg_buf_init(&k.text, 1 << 20);
    play(&cases[0], true, 0, "the device is gone", &out);
    (void)dk_each_event(lg_buf_str(&out), hear, &k);
    assert_true(k.failed && !k.ended);
    lg_buf_free(&k.text);
    lg_buf_free(&out);
}

// Events that the script's model does not make: log-probabilities, warnings, an exit from thinking.
static void extras(void **state)
{
    const lg_gen_stats stats = {.n_ban_skipped = 1,
                                .think_exit = LG_THINK_WRAPPED,
                                .seed = 1,
                                .decode_us = 1000000,
                                .output_tokens = 11,
                                .draft = {.drafted = 4, .accepted = 3}};
    const lg_job_event token = {
        .kind = LG_JOB_TOKEN, .token = 300, .logprob = -0.5F, .n_top = 1, .top = {{301, -0.25F}}};
    const lg_job_event end = {.kind = LG_JOB_CHOICE_END, .stats = &stats, .stop = -1};
    lg_buf out;

    (void)state;
    lg_buf_init(&out, 1 << 20);
    lg_job *job = job_of(HEAD ",\"logprobs\":1,\"echo_prompt_ids\":true}");
    lg_dialect_native.event(job, &token, &out);
    lg_dialect_native.event(job, &end, &out);
    assert_int_equal(out.n, 0); // nothing before the end
    lg_dialect_native.finish(job, &out);
    lg_json_doc *doc = tt_parse(lg_buf_str(&out));
    const lg_json *o = lg_json_root(doc), *first = lg_json_at(lg_json_get(o, "logprobs"), 0);
    double v = 0;
    assert_true(lg_json_f64(lg_json_get(first, "logprob"), &v) && v == -0.5);
    assert_int_equal(lg_json_len(lg_json_get(first, "top_logprobs")), 1);
    assert_int_equal(lg_json_len(lg_json_get(o, "prompt_ids")), job->prompt.n);
    assert_int_equal(lg_json_len(lg_json_get(o, "warnings")), 1);
    assert_str(lg_json_str(lg_json_get(o, "thinking_exit")), "wrapped");
    // the first is no part of it
    assert_true(lg_json_f64(lg_json_get(lg_json_get(o, "timings"), "tokens_per_s"), &v) && v == 10);
    assert_true(lg_json_f64(lg_json_get(lg_json_get(o, "timings"), "draft_accept_rate"), &v) && v == 0.75);
    lg_json_free(doc);
    lg_job_release(job);
    lg_buf_free(&out);
}

/* --- recorded answers --- */

static void record(lg_buf *out)
{
    for (int i = 0; i < N_CASES; i++) {
        for (int stream = 1; stream >= 0; stream--) {
            (void)lg_buf_addf(out, "== %s%s\n", cases[i].name, stream ? "" : ", one body");
            play(&cases[i], stream, 0, NULL, out);
            if (!stream)
                (void)lg_buf_addz(out, "\n");
        }
    }
    (void)lg_buf_addz(out, "== error\n");
    play(&cases[1], true, 0, "the device is gone", out);
}

static void recorded(void **state)
{
    (void)state;
    dk_compare(record, "native.txt");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_fields), cmocka_unit_test(beginnings), cmocka_unit_test(errors),
        cmocka_unit_test(values),         cmocka_unit_test(both_forms), cmocka_unit_test(failure),
        cmocka_unit_test(extras),         cmocka_unit_test(recorded),
    };

    if (dk_write(argc, argv, record))
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
