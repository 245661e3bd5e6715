/*
 * unit/test_dialect_anthropic: the Messages API without sockets: what a body becomes, what a reply becomes,
 * and that the stream says the same as the single body however the reply is cut.
 *
 * Recorded answers are in golden/messages.txt, a section a case ("== name", then the bytes). After a change
 * on purpose: test_dialect_anthropic --write FILE.
 */
#include "check.h"

#include <stdio.h>

#include "support/dialects.h"

#define HEAD "{\"max_tokens\":1000,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOLS                                                                                            \
    ",\"tools\":[{\"name\":\"ls\",\"description\":\"list\",\"input_schema\":{\"type\":\"object\","       \
    "\"properties\":{\"path\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}}}]"
#define CALL(path) "\x19ls<arg_key>path</arg_key><arg_value>" path "</arg_value>\x1A"

/* --- bodies --- */

static lg_job *job_of(const char *body)
{
    return dk_accept(&lg_dialect_messages, body);
}

static void check_prompt(const char *body, const char *want)
{
    dk_prompt_ends(&lg_dialect_messages, body, want);
}

static void check_error(const char *body, const char *param, const char *message)
{
    dk_refuses(&lg_dialect_messages, body, param, message);
}

static void conversations(void **state)
{
    (void)state;
    check_prompt("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"system\":\"s\"}",
                 "\xE3\x80\x88|EOS|\xE3\x80\x89<system>s</system>\n<user>hi</user>\n<assistant><think>");
    // blocks, a late system message in its place, results in front of the text, and in the order of the calls
    check_prompt(
        "{\"system\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\","
        "\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":["
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"text\",\"text\":\"y\"}]},"
        "{\"role\":\"system\",\"content\":\"late\"},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"r\",\"signature\":\"?\"},"
        "{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{\"k\":\"v\"}},"
        "{\"type\":\"tool_use\",\"id\":\"2\",\"name\":\"g\",\"input\":{}}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"2\",\"content\":\"two\"},"
        "{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":[{\"type\":\"text\",\"text\":\"one\"}]}]}]}",
        "<system>a\nb</system>\n<user>xy</user>\n<system>late</system>\n"
        "<assistant><think>r</think><tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>"
        "<tool_call>g</tool_call></assistant>\n<tool_response>one</tool_response>\n"
        "<tool_response>two</tool_response>\n<assistant><think>");
    // an empty system text is one, no system text is the default one
    check_prompt(
        "{\"system\":\"\",\"thinking\":{\"type\":\"disabled\"},\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
        "\xE3\x80\x88|EOS|\xE3\x80\x89<user>hi</user>\n<assistant></think>");
    check_prompt("{\"system\":null,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
                 "natural language conversations.</system>\n<user>hi</user>\n<assistant><think>");
}

static void volatile_headers(void **state)
{
    (void)state;
    static const char *const systems[] = {
        "[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cc_version=2.1.36; cch=12345;\"},"
        "{\"type\":\"text\",\"text\":\"You\"}]",
        "[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=0;\\n\"},{\"type\":\"text\",\"text\":\"You\"}]",
        "[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=fffff;\\nYou\"}]",
        "\"x-anthropic-billing-header: cch=1;\\nx-anthropic-other: 2\\nYou\"",
        "[{\"type\":\"text\",\"text\":\"You\"}]",
        "\"You\"",
    };
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        char body[512];
        (void)snprintf(body, sizeof body,
                       "{\"system\":%s,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", systems[i]);
        check_prompt(
            body, "\xE3\x80\x88|EOS|\xE3\x80\x89<system>You</system>\n<user>hi</user>\n<assistant><think>");
    }
    check_prompt(
        "{\"system\":\"x-anthropic-billing-header: cch=1;\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        "natural language conversations.</system>\n<user>x</user>\n<assistant><think>");
    // not at the beginning: the client's own words
    check_prompt(
        "{\"system\":\"a x-anthropic-b: c\",\"messages\":[{\"role\":\"user\",\"content\":\"x-anthropic-b\"}]}",
        "<system>a x-anthropic-b: c</system>\n<user>x-anthropic-b</user>\n<assistant><think>");
}

static void prefill(void **state)
{
    (void)state;
    check_prompt(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"It is \"}]}",
        "<user>q</user>\n<assistant><think></think>It is ");
    check_prompt("{\"thinking\":{\"type\":\"disabled\"},\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
                 "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"{\"}]}]}",
                 "<user>q</user>\n<assistant></think>{");
    check_prompt("{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":["
                 "{\"type\":\"thinking\",\"thinking\":\"Let me\"}]}]}",
                 "<user>q</user>\n<assistant><think>Let me");
    // an empty answer is none
    check_prompt(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\"}]}",
        "<user>q</user>\n<assistant><think>");
}

static void tools(void **state)
{
    (void)state;
    // envelope keys do not reach the prompt; tools of the service are left out; typed ones get their
    // parameters
    check_prompt(
        "{\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"tools\":["
        "{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\",\"not\":{}},"
        "\"cache_control\":{\"type\":\"ephemeral\"},\"defer_loading\":true,\"eager_input_streaming\":true},"
        "{\"type\":\"custom\",\"name\":\"g\"},{\"type\":\"web_search_20250305\",\"name\":\"web_search\"},"
        "{\"type\":\"computer_20250124\",\"name\":\"computer\"},{\"type\":\"code_execution_20250522\","
        "\"name\":\"code_execution\"},{\"type\":\"no_such_thing\",\"name\":\"n\"}]}",
        "<available_tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", "
        "\"parameters\": {\"type\": \"object\", \"not\": {}}}}\n"
        "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}\n</available_tools></system>\n"
        "<user>q</user>\n<assistant><think>");
    static const struct {
        const char *type, *name, *parameter;
    } typed[] = {{"bash_20250124", "bash", "restart"},
                 {"text_editor_20250124", "str_replace_editor", "undo_edit"},
                 {"text_editor_20241022", "str_replace_editor", "undo_edit"},
                 {"text_editor_20250728", "str_replace_based_edit_tool", "insert_text"},
                 {"memory_20250818", "memory", "old_path"}};
    for (size_t i = 0; i < sizeof typed / sizeof typed[0]; i++) {
        char body[300], name[100];
        lg_buf text;
        (void)snprintf(body, sizeof body,
                       "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"tools\":[{\"type\":\"%s\"}]}",
                       typed[i].type);
        lg_job *job = job_of(body);
        (void)snprintf(name, sizeof name, "{\"name\": \"%s\", \"description\"", typed[i].name);
        lg_buf_init(&text, 1 << 20);
        dk_prompt(job, &text);
        assert_true(lg_str_find(lg_buf_str(&text), lg_str_of(name), 0) != SIZE_MAX);
        assert_true(lg_str_find(lg_buf_str(&text), lg_str_of(typed[i].parameter), 0) != SIZE_MAX);
        assert_int_equal(job->n_tool, 1);
        assert_non_null(lg_json_get(job->tool[0].parameters, "properties"));
        lg_buf_free(&text);
        lg_job_release(job);
    }
}

static void errors(void **state)
{
    (void)state;
#define BAD(rest, param, message) check_error(HEAD "," rest "}", param, message)
    check_error("{}", "messages", "messages must be an array of at least one message");
    check_error("{\"messages\":[]}", "messages", "messages must be an array of at least one message");
    check_error("{\"messages\":{}}", "messages", "messages must be an array of at least one message");
    check_error("{\"messages\":[1]}", "messages[0].role",
                "messages[0].role: must be system, developer, user, assistant, tool or function");
    check_error("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{}}]}]}",
                "messages[0].content[0].type",
                "messages[0].content[0].type: \"image\" is not supported here; content must be text");
    check_error("{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages[0].content",
                "messages[0].content: must be a string or an array of parts");
    BAD("\"system\":7", "system", "system must be a string or an array of text blocks");
    BAD("\"system\":[{\"type\":\"image\"}]", "system[0]", "system[0] must be a text block, not image");
    BAD("\"tools\":{}", "tools", "tools must be an array");
    BAD("\"tools\":[7]", "tools[0]", "tools[0] must be an object");
    BAD("\"tools\":[{\"input_schema\":{}}]", "tools[0].name", "tools[0].name must be a non-empty string");
    BAD("\"tools\":[{\"name\":\"f\",\"input_schema\":[]}]", "tools[0].input_schema",
        "tools[0].input_schema must be a JSON Schema object");
    BAD("\"tools\":[{\"name\":\"f\",\"type\":7}]", "tools[0].type", "tools[0].type must be a string");
    BAD("\"tool_choice\":\"auto\"", "tool_choice", "tool_choice must be an object with a type");
    BAD("\"tool_choice\":{\"type\":\"all\"}", "tool_choice.type",
        "tool_choice.type must be \"auto\", \"any\", \"tool\" or \"none\"");
    BAD("\"tool_choice\":{\"type\":\"any\"}", "tool_choice",
        "tool_choice demands a call, but there are no tools");
    BAD("\"tools\":[{\"name\":\"f\"}],\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}", "tool_choice.name",
        "tool_choice.name must be the name of one of the tools");
    BAD("\"mcp_servers\":[{}]", "mcp_servers",
        "mcp_servers is not supported; the client must call MCP servers itself");
    BAD("\"stream\":1", "stream", "stream must be true or false");
    BAD("\"temperature\":\"hot\"", "temperature", "temperature must be a number");
    BAD("\"temperature\":5.5", "temperature", "temperature must be between 0 and 5");
    BAD("\"stop_sequences\":[1]", "stop_sequences", "stop_sequences must be a string or an array of strings");
    BAD("\"thinking\":{\"type\":\"often\"}", "thinking.type",
        "thinking.type must be \"enabled\", \"disabled\" or \"adaptive\"");
    check_error("{\"max_tokens\":0,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", "max_tokens",
                "max_tokens must be at least 1");
#undef BAD
}

static void tolerance(void **state)
{
    (void)state;
    // null is absence everywhere, unknown fields are nothing, at any depth
    check_prompt(
        "{\"max_tokens\":null,\"system\":null,\"tools\":null,\"tool_choice\":null,\"thinking\":null,"
        "\"metadata\":{\"user_id\":\"u\"},\"stop_sequences\":null,\"temperature\":null,\"stream\":null,"
        "\"output_config\":null,\"mcp_servers\":[],\"context_management\":{\"edits\":[]},\"novel\":1,"
        "\"service_tier\":\"auto\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\","
        "\"citations\":null,\"cache_control\":null}],\"extra\":1}]}",
        "<user>q</user>\n<assistant><think>");
    check_prompt(
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"user\",\"content\":\"r\"}]}",
        "<user>q</user>\n<user>r</user>\n<assistant><think>");
}

static void thinking(void **state)
{
    static const struct {
        const char *fields, *otherwise;
        bool on;
        int64_t budget;
    } cases[] = {
        {"\"max_tokens\":100000", "on", true, 4096},
        {"\"max_tokens\":100000", "off", false, 0},
        {"\"max_tokens\":100000", "hidden", true, 4096},
        {"\"max_tokens\":100", "on", false, 0}, // small-limit rule
        {"\"max_tokens\":90000,\"thinking\":{\"type\":\"adaptive\"},\"output_config\":{\"effort\":\"high\"}",
         "off", true, 16384},
        {"\"max_tokens\":90000,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}", "off", true,
         1024},
        // fits
        {"\"max_tokens\":1000,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5000}", "on", true, 750},
        {"\"max_tokens\":90000,\"thinking\":{\"type\":\"disabled\"},\"output_config\":{\"effort\":\"max\"}",
         "on", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[400];
        dk_settings()->anthropic_default_thinking = cases[i].otherwise;
        (void)snprintf(body, sizeof body, "{%s,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
                       cases[i].fields);
        lg_job *job = job_of(body);
        if (job->thinking != cases[i].on || (cases[i].on && job->max_think != cases[i].budget))
            fail_msg("case %zu: thinking %d, %lld", i, job->thinking, (long long)job->max_think);
        lg_job_release(job);
        dk_reset();
    }
}

static void sampling_and_limits(void **state)
{
    (void)state;
    lg_job *job =
        job_of(HEAD ",\"temperature\":0.5,\"top_p\":0.9,\"top_k\":7.0,\"stop_sequences\":[\"a\",\"\",\"b\"],"
                    "\"stream\":true,\"model\":\"claude-x\",\"tools\":[{\"name\":\"f\"}],"
                    "\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}}");
    assert_true(job->sampling.temperature == 0.5F && job->sampling.top_p == 0.9F && job->sampling.top_k == 7);
    assert_int_equal(job->n_stop, 2);
    assert_str(job->stop[1], "b");
    assert_true(job->stream && job->one_call && job->random_seed);
    assert_int_equal(job->max_tokens, 1000);
    assert_str(job->model, "claude-x");
    assert_string_equal(job->id, "msg_0");
    lg_job_release(job);
    // more than there is room for is lowered; a prompt that does not fit is refused in words that agents know
    dk_service()->n_ctx = 400;
    job = job_of("{\"max_tokens\":32000,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}");
    assert_int_equal(job->max_tokens, 400 - (int64_t)job->prompt.n);
    dk_service()->n_ctx = (int64_t)job->prompt.n;
    lg_job_release(job);
    lg_api_error e;
    assert_null(dk_job(&lg_dialect_messages,
                       "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"qqqqqqqq\"}]}", &e));
    lg_buf out;
    lg_buf_init(&out, 1 << 16);
    lg_api_error_json(&e, LG_SHAPE_ANTHROPIC, "req_9", &out);
    lg_json_doc *doc = tt_parse(lg_buf_str(&out));
    const lg_json *inner = lg_json_get(lg_json_root(doc), "error");
    assert_str(lg_json_str(lg_json_get(inner, "type")), "invalid_request_error");
    char want[80];
    (void)snprintf(want, sizeof want, "prompt is too long: %lld tokens > %lld maximum",
                   (long long)e.n_prompt_tokens, (long long)dk_service()->n_ctx);
    assert_true(lg_str_eqz(lg_json_str(lg_json_get(inner, "message")), want));
    assert_str(lg_json_str(lg_json_get(lg_json_root(doc), "request_id")), "req_9");
    lg_json_free(doc);
    lg_buf_free(&out);
    dk_reset();
}

static void strict_models(void **state)
{
    static const char *const alias[] = {"claude-haiku"};
    lg_api_error e;

    (void)state;
    dk_settings()->model_policy = "strict";
    dk_settings()->model_aliases = (lg_list){.v = alias, .n = 1};
    assert_null(dk_job(&lg_dialect_messages, HEAD ",\"model\":\"other\"}", &e));
    assert_int_equal(lg_api_status(&e), 404);
    lg_job_release(job_of(HEAD ",\"model\":\"laguna-test\"}"));
    lg_job_release(job_of(HEAD ",\"model\":\"claude-haiku\"}"));
    dk_reset();
}

static void counting(void **state)
{
    static const char *const bodies[] = {
        HEAD "}",
        HEAD TOOLS ",\"thinking\":{\"type\":\"adaptive\"},\"output_config\":{\"effort\":\"high\"}}",
        "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=1;\"},{\"type\":\"text\",\"text\":\"You\"}],"
        "\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"pre\"}],"
        "\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        lg_job *job = job_of(bodies[i]);
        lg_json_doc *doc = tt_parse(lg_str_of(bodies[i]));
        lg_request rq = {0};
        lg_api_error e;
        lg_arena a;
        lg_buf out;
        char want[64];
        lg_arena_init(&a, 1 << 24);
        lg_buf_init(&out, 1 << 16);
        assert_int_equal(lg_util_count_tokens(dk_service(), &rq, lg_json_root(doc), &a, &out, &e), LG_OK);
        (void)snprintf(want, sizeof want, "{\"input_tokens\":%zu}", job->prompt.n);
        assert_true(lg_str_eqz(lg_buf_str(&out), want));
        lg_buf_free(&out);
        lg_arena_free(&a);
        lg_json_free(doc);
        lg_job_release(job);
    }
}

/* --- replies --- */

typedef struct reply_case {
    const char *name, *fields, *script;
    lg_end end;
    const char *error;
} reply_case;

static const reply_case cases[] = {
    {"text", "", "\x13Hello \xF0\x9F\x9A\xA9\n\"you\"\x18", LG_END_EOG, NULL},
    {"reasoning and text", "", "I think.\x13Hello\x18", LG_END_EOG, NULL},
    {"reasoning and call", TOOLS, "I look.\x13" CALL(" /a\n") "\x18", LG_END_EOG, NULL},
    {"text and call", TOOLS, "\x13Look:" CALL("/a") "\x18", LG_END_EOG, NULL},
    {"two calls", TOOLS, "r\x13" CALL("/a") CALL("/b") "\x18", LG_END_EOG, NULL},
    {"call without arguments", TOOLS, "\x13\x19ls\x1A\x18", LG_END_EOG, NULL},
    {"text behind a call", TOOLS, "\x13" CALL("/a") "and\x18", LG_END_EOG, NULL},
    {"reasoning again", TOOLS,
     "a\x13" CALL("/a") "\x12"
                        "b\x13" CALL("/b") "\x18",
     LG_END_EOG, NULL},
    {"cut in reasoning", "", "I th", LG_END_LENGTH, NULL},
    {"cut in text", "", "r\x13Hel", LG_END_LENGTH, NULL},
    {"cut in a name", TOOLS, "r\x13\x19l", LG_END_LENGTH, NULL},
    {"cut in arguments", TOOLS, "r\x13\x19ls<arg_key>path</arg_key><arg_value>/a/lo", LG_END_LENGTH, NULL},
    {"cut in the second call", TOOLS, "\x13" CALL("/a") "\x19ls<arg_key>path</arg_key><arg_value>/lo",
     LG_END_LENGTH, NULL},
    {"cut behind a call", TOOLS, "\x13" CALL("/a") "and", LG_END_LENGTH, NULL},
    {"stop string", ",\"stop_sequences\":[\"STOP\"]",
     "r\x13"
     "be STOP it",
     LG_END_EOG, NULL},
    {"schema", "", "\x13{\"a\":1}", LG_END_SCHEMA, NULL},
    {"nothing", "", "\x13\x18", LG_END_EOG, NULL},
    {"error", "", "r\x13Hel", LG_END_EOG, "the device is gone"},
    {"error at once", "", "", LG_END_EOG, "the device is gone"},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void play(const reply_case *c, bool stream, size_t step, lg_buf *out)
{
    char body[2000];
    const dk_script script = {.text = c->script, .step = step, .end = c->end, .error = c->error};

    (void)snprintf(body, sizeof body, HEAD ",\"model\":\"m\",\"stream\":%s%s}", stream ? "true" : "false",
                   c->fields);
    lg_job *job = job_of(body);
    dk_play(job, &script, out);
    lg_job_release(job);
}

/* What a client makes of a stream; every rule of the protocol is checked on the way. */
typedef struct client {
    lg_buf content;          /* blocks as JSON, commas between */
    lg_buf text;             /* of the open block */
    lg_buf block;            /* its beginning */
    char kind[16], signature[64], end[128];
    int64_t index;
    bool started, open, stopped, failed, tail;
    const char *last;
} client;

static bool is(const lg_json *o, const char *key, const char *value)
{
    return lg_str_eqz(lg_json_str(lg_json_get(o, key)), value);
}

static void keep(char *to, size_t n, lg_str s)
{
    assert_true(s.n < n);
    memcpy(to, s.p, s.n);
    to[s.n] = '\0';
}

static void block_start(client *c, const lg_json *d)
{
    const lg_json *b = lg_json_get(d, "content_block");
    int64_t index = -1;

    assert_true(c->started && !c->open && !c->tail);
    assert_true(lg_json_i64(lg_json_get(d, "index"), &index) && index == c->index);
    keep(c->kind, sizeof c->kind, lg_json_str(lg_json_get(b, "type")));
    c->open = true;
    lg_buf_clear(&c->text);
    lg_buf_clear(&c->block);
    (void)lg_buf_addf(&c->block, "{\"type\": \"%s\", ", c->kind);
    if (is(b, "type", "tool_use")) {
        (void)lg_buf_addz(&c->block, "\"id\": ");
        (void)lg_json_dump(lg_json_get(b, "id"), &c->block);
        (void)lg_buf_addz(&c->block, ", \"name\": ");
        (void)lg_json_dump(lg_json_get(b, "name"), &c->block);
        (void)lg_buf_addz(&c->block, ", ");
        assert_int_equal(lg_json_len(lg_json_get(b, "input")), 0);
        assert_true(lg_json_is(lg_json_get(b, "input"), LG_JSON_OBJECT));
    }
}

static void block_delta(client *c, const lg_json *d)
{
    static const char *const fits[][3] = {{"thinking", "thinking_delta", "thinking"},
                                          {"text", "text_delta", "text"},
                                          {"tool_use", "input_json_delta", "partial_json"}};
    const lg_json *delta = lg_json_get(d, "delta");
    int64_t index = -1;

    assert_true(c->open && lg_json_i64(lg_json_get(d, "index"), &index) && index == c->index);
    if (is(delta, "type", "signature_delta")) {
        assert_string_equal(c->kind, "thinking");
        keep(c->signature, sizeof c->signature, lg_json_str(lg_json_get(delta, "signature")));
        assert_int_equal(strlen(c->signature), 24);
        return;
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(c->kind, fits[i][0]) != 0)
            continue;
        assert_true(is(delta, "type", fits[i][1]));
        assert_true(lg_json_str(lg_json_get(delta, fits[i][2])).n > 0);
        (void)lg_buf_adds(&c->text, lg_json_str(lg_json_get(delta, fits[i][2])));
    }
}

static void block_stop(client *c, const lg_json *d)
{
    const lg_json_limits lim = {.max_bytes = 1 << 20, .max_depth = 64};
    lg_json_doc *doc = NULL;
    bool whole = true;
    int64_t index = -1;

    assert_true(c->open && lg_json_i64(lg_json_get(d, "index"), &index) && index == c->index);
    c->open = false;
    c->index++;
    if (strcmp(c->kind, "thinking") == 0) {
        (void)lg_buf_addz(&c->block, "\"thinking\": ");
        (void)lg_json_quote(lg_buf_str(&c->text), &c->block);
        (void)lg_buf_addf(&c->block, ", \"signature\": \"%s\"", c->signature);
    } else if (strcmp(c->kind, "text") == 0) {
        (void)lg_buf_addz(&c->block, "\"text\": ");
        (void)lg_json_quote(lg_buf_str(&c->text), &c->block);
    } else {
        whole = lg_json_parse(lg_buf_str(&c->text), &lim, &doc, NULL) == LG_OK;
        (void)lg_buf_addz(&c->block, "\"input\": ");
        if (whole)
            (void)lg_json_dump(lg_json_root(doc), &c->block);
    }
    lg_json_free(doc);
    if (!whole)
        return; // a call that was cut is in the stream only
    if (c->content.n > 0)
        (void)lg_buf_addz(&c->content, ", ");
    (void)lg_buf_adds(&c->content, lg_buf_str(&c->block));
    (void)lg_buf_addz(&c->content, "}");
}

static void end_of(client *c, const lg_json *holder, const lg_json *usage)
{
    lg_buf b;

    lg_buf_init(&b, sizeof c->end - 1);
    (void)lg_json_dump(lg_json_get(holder, "stop_reason"), &b);
    (void)lg_json_dump(lg_json_get(holder, "stop_sequence"), &b);
    (void)lg_json_dump(lg_json_get(usage, "output_tokens"), &b);
    (void)lg_json_dump(lg_json_get(usage, "input_tokens"), &b);
    (void)lg_json_dump(lg_json_get(usage, "cache_read_input_tokens"), &b);
    keep(c->end, sizeof c->end, lg_buf_str(&b));
    lg_buf_free(&b);
}

static void hear(void *ctx, lg_str name, lg_str data)
{
    client *c = ctx;
    lg_json_doc *doc = tt_parse(data);
    const lg_json *d = lg_json_root(doc);

    assert_true(lg_str_eq(lg_json_str(lg_json_get(d, "type")), name));
    assert_false(c->stopped || c->failed);
    if (lg_str_eqz(name, "message_start")) {
        assert_false(c->started);
        c->started = true;
        assert_int_equal(lg_json_len(lg_json_get(lg_json_get(d, "message"), "content")), 0);
    } else if (lg_str_eqz(name, "ping")) {
        assert_true(c->started);
    } else if (lg_str_eqz(name, "content_block_start")) {
        block_start(c, d);
    } else if (lg_str_eqz(name, "content_block_delta")) {
        block_delta(c, d);
    } else if (lg_str_eqz(name, "content_block_stop")) {
        block_stop(c, d);
    } else if (lg_str_eqz(name, "message_delta")) {
        assert_true(c->started && !c->open && !c->tail);
        c->tail = true;
        end_of(c, lg_json_get(d, "delta"), lg_json_get(d, "usage"));
    } else if (lg_str_eqz(name, "message_stop")) {
        assert_true(c->tail);
        c->stopped = true;
    } else {
        assert_true(lg_str_eqz(name, "error"));
        c->failed = true;
    }
    lg_json_free(doc);
}

static void listen(client *c, lg_str stream)
{
    *c = (client){0};
    lg_buf_init(&c->content, 1 << 20);
    lg_buf_init(&c->text, 1 << 20);
    lg_buf_init(&c->block, 1 << 20);
    assert_true(dk_each_event(stream, hear, c) >= 3);
    assert_true(c->stopped || c->failed);
}

static void client_free(client *c)
{
    lg_buf_free(&c->content);
    lg_buf_free(&c->text);
    lg_buf_free(&c->block);
}

// The content of a single body, in the same form.
static void body_content(lg_str body, lg_buf *content, client *end)
{
    lg_json_doc *doc = tt_parse(body);
    const lg_json *blocks = lg_json_get(lg_json_root(doc), "content");

    for (size_t i = 0; i < lg_json_len(blocks); i++) {
        if (i > 0)
            (void)lg_buf_addz(content, ", ");
        (void)lg_json_dump(lg_json_at(blocks, i), content);
    }
    end_of(end, lg_json_root(doc), lg_json_get(lg_json_root(doc), "usage"));
    lg_json_free(doc);
}

// A call that was cut takes a number in the stream which the single body does not have; ids are compared by
// that number, so it must come last: which it does.
static void streams_equal_bodies(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        lg_buf body, content;
        client whole = {0};
        if (cases[i].error)
            continue;
        lg_buf_init(&body, 1 << 20);
        lg_buf_init(&content, 1 << 20);
        play(&cases[i], false, 0, &body);
        body_content(lg_buf_str(&body), &content, &whole);
        for (size_t step = 0; step <= 12; step++) {
            lg_buf stream;
            client c;
            lg_buf_init(&stream, 1 << 20);
            play(&cases[i], true, step, &stream);
            listen(&c, lg_buf_str(&stream));
            if (!lg_str_eq(lg_buf_str(&c.content), lg_buf_str(&content)) || strcmp(c.end, whole.end) != 0)
                fail_msg("%s, step %zu:\n%.*s %s\n%.*s %s", cases[i].name, step, (int)c.content.n,
                         c.content.p, c.end, (int)content.n, content.p, whole.end);
            client_free(&c);
            lg_buf_free(&stream);
        }
        lg_buf_free(&body);
        lg_buf_free(&content);
    }
}

static void hidden_reasoning(void **state)
{
    static const reply_case c = {"", "", "secret\x13" "answer\x18", LG_END_EOG, NULL};
    lg_buf out;

    (void)state;
    lg_buf_init(&out, 1 << 20);
    for (int stream = 0; stream < 2; stream++) {
        dk_settings()->anthropic_default_thinking = "hidden";
        play(&c, stream, 0, &out);
        dk_reset();
    }
    assert_true(lg_str_find(lg_buf_str(&out), LG_STR("secret"), 0) == SIZE_MAX);
    assert_true(lg_str_find(lg_buf_str(&out), LG_STR("answer"), 0) != SIZE_MAX);
    lg_buf_free(&out);
}

/* --- recorded answers --- */

static void record(lg_buf *out)
{
    for (int i = 0; i < N_CASES; i++) {
        for (int stream = 1; stream >= 0; stream--) {
            (void)lg_buf_addf(out, "== %s%s\n", cases[i].name, stream ? "" : ", one body");
            play(&cases[i], stream, 0, out);
            if (!stream)
                (void)lg_buf_addz(out, "\n");
        }
    }
}

static void recorded(void **state)
{
    (void)state;
    dk_compare(record, "messages.txt");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations),
        cmocka_unit_test(volatile_headers),
        cmocka_unit_test(prefill),
        cmocka_unit_test(tools),
        cmocka_unit_test(errors),
        cmocka_unit_test(tolerance),
        cmocka_unit_test(thinking),
        cmocka_unit_test(sampling_and_limits),
        cmocka_unit_test(strict_models),
        cmocka_unit_test(counting),
        cmocka_unit_test(streams_equal_bodies),
        cmocka_unit_test(hidden_reasoning),
        cmocka_unit_test(recorded),
    };

    if (dk_write(argc, argv, record))
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
