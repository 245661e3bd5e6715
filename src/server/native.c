/*
 * server/native: POST /lagoon/v1/generate: the dialect that shows everything the engine can do, and the only
 * one that can steer the turn that is being written (api.md 8). Body -> job; what goes back is in
 * native_write.c.
 *
 * Strict: a field it does not know, a value out of range, two fields that exclude each other are refused.
 */
#include <stdio.h>
#include <string.h>

#include "server/native_int.h"

enum { MAX_BAN = 256, MAX_TOP = LG_TOP_LOGPROBS_MAX };

/* In the arena, since the job keeps the conversation. */
typedef struct translation {
    lg_chat chat;
    lg_chat_tools tools;
    lg_chat_request request;
} translation;

/* "continue": how the turn begins. */
typedef struct beginning {
    lg_str thinking, prefix; /* p NULL: none */
    bool close;
} beginning;

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static lg_status no_memory(const lg_arena *a, lg_api_error *e)
{
    return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs more than %zu bytes of memory", a->limit);
}

static lg_status must_be(lg_api_error *e, const char *key, const char *what)
{
    return lg_api_fail(e, LG_API_INVALID, key, "%s must be %s", key, what);
}

// An object, or absent.
static lg_status read_object(const lg_json *body, const char *key, const lg_json **out, lg_api_error *e)
{
    *out = field(body, key);
    if (*out && !lg_json_is(*out, LG_JSON_OBJECT))
        return must_be(e, key, "an object");
    return LG_OK;
}

// Index of the word, or -1 when the field is absent.
static lg_status read_word(const lg_json *body, const char *key, const char *const *word, int n,
                           const char *must, int *out, lg_api_error *e)
{
    lg_str s = {0};

    *out = -1;
    LG_TRY(lg_field_str(body, "", key, &s, e));
    if (!s.p)
        return LG_OK;
    for (int i = 0; i < n; i++)
        if (lg_str_eqz(s, word[i]))
            *out = i;
    return *out < 0 ? must_be(e, key, must) : LG_OK;
}

/* --- fields of both modes --- */

static lg_status read_bans(const lg_json *body, lg_job *job, lg_api_error *e)
{
    const lg_json *list = field(body, "ban_strings");
    size_t n = lg_json_len(list);
    lg_str *ban;

    if (!list)
        return LG_OK;
    if (!lg_json_is(list, LG_JSON_ARRAY) || n > MAX_BAN)
        return must_be(e, "ban_strings", "an array of at most 256 strings");
    ban = LG_NEW_N(&job->arena, lg_str, n);
    if (!ban)
        return no_memory(&job->arena, e);
    for (size_t i = 0; i < n; i++) {
        ban[i] = lg_json_str(lg_json_at(list, i));
        if (ban[i].n == 0)
            return must_be(e, "ban_strings", "an array of non-empty strings");
    }
    job->ban = ban;
    job->n_ban = n;
    return LG_OK;
}

static lg_status read_common(const lg_service *s, const lg_json *body, lg_job *job, int64_t *limit,
                             lg_api_error *e)
{
    static const char *const modes[] = {"use", "no_store", "off"};
    const lg_json *sampling;
    int64_t logprobs = -1, priority = 0;
    int cache;

    LG_TRY(lg_request_model(s, body, job, e));
    LG_TRY(lg_field_limit(body, "", "max_tokens", 1, limit, e));
    LG_TRY(lg_field_bool(body, "", "stream", &job->stream, e));
    LG_TRY(read_object(body, "sampling", &sampling, e));
    LG_TRY(lg_request_sampling(s, sampling, "sampling.", LG_SAMPLE_ALL, job, e));
    if (field(body, "stop") && !lg_json_is(field(body, "stop"), LG_JSON_ARRAY))
        return must_be(e, "stop", "an array of strings");
    LG_TRY(lg_request_stop(body, "", "stop", job, e));
    LG_TRY(lg_field_int(body, "", "logprobs", 0, MAX_TOP, &logprobs, e));
    LG_TRY(lg_field_int(body, "", "priority", -1, 1, &priority, e));
    LG_TRY(read_word(body, "cache", modes, 3, "\"use\", \"no_store\" or \"off\"", &cache, e));
    LG_TRY(read_bans(body, job, e));
    job->n_logprobs = (int)logprobs;
    job->priority = (int)priority;
    job->cache = cache == 1 ? LG_CACHE_NO_STORE : cache == 2 ? LG_CACHE_OFF : LG_CACHE_USE;
    return LG_OK;
}

/* --- a raw prompt --- */

static lg_status parse_raw(const lg_service *s, const lg_json *body, int64_t limit, lg_job *job,
                           lg_api_error *e)
{
    static const char *const no[] = {"tools",
                                     "tool_choice",
                                     "thinking",
                                     "max_thinking_tokens",
                                     "min_thinking_tokens",
                                     "history_thinking",
                                     "continue",
                                     "format"};
    lg_str text = {0};

    LG_TRY(lg_field_str(body, "", "prompt", &text, e));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (field(body, no[i]))
            return lg_api_fail(e, LG_API_INVALID, no[i], "%s needs messages; a prompt is taken as it is",
                               no[i]);
    LG_TRY(lg_request_raw_text(s, text, &job->prompt, e));
    return lg_request_raw(s, limit, job, e);
}

/* --- a conversation --- */

static lg_status read_choice(const lg_json *body, const lg_chat_tools *tools, lg_tool_choice *out,
                             lg_api_error *e)
{
    static const char *const words[] = {"auto", "none", "required"};
    const char *must = "\"auto\", \"none\", \"required\" or {\"name\": ...}";
    const lg_json *j = field(body, "tool_choice");
    lg_str name;
    int word = -1;

    *out = (lg_tool_choice){.mode = LG_CHOICE_AUTO, .parallel = true, .max_calls = 1};
    if (!j)
        return LG_OK;
    if (lg_json_is(j, LG_JSON_OBJECT)) {
        name = lg_json_str(field(j, "name"));
        for (size_t i = 0; i < tools->n; i++)
            if (name.n > 0 && lg_str_eq(tools->tool[i].name, name))
                out->only = name;
        if (out->only.n == 0)
            return must_be(e, "tool_choice.name", "the name of one of the tools");
        out->mode = LG_CHOICE_REQUIRED;
        return LG_OK;
    }
    if (!lg_json_is(j, LG_JSON_STRING))
        return must_be(e, "tool_choice", must);
    LG_TRY(read_word(body, "tool_choice", words, 3, must, &word, e));
    out->mode = (lg_choice_mode)word; // the same order
    if (out->mode == LG_CHOICE_REQUIRED && tools->n == 0)
        return lg_api_fail(e, LG_API_INVALID, "tool_choice",
                           "tool_choice demands a call, but there are no tools");
    return LG_OK;
}

static lg_status read_beginning(const lg_json *body, beginning *out, lg_api_error *e)
{
    const lg_json *o;

    *out = (beginning){0};
    LG_TRY(read_object(body, "continue", &o, e));
    LG_TRY(lg_field_str(o, "continue.", "thinking", &out->thinking, e));
    LG_TRY(lg_field_bool(o, "continue.", "close_thinking", &out->close, e));
    return lg_field_str(o, "continue.", "prefix", &out->prefix, e);
}

static lg_status read_thinking(const lg_service *s, const lg_json *body, beginning *b, lg_job *job,
                               lg_think_ask *out, lg_api_error *e)
{
    static const char *const words[] = {"tail", "all", "none"};
    int64_t most = -1, least = 0;
    bool begun = b->thinking.p || b->close;
    int history;

    LG_TRY(lg_request_thinking(s, NULL, out, e));
    LG_TRY(lg_field_bool(body, "", "thinking", &out->on, e));
    LG_TRY(lg_field_limit(body, "", "max_thinking_tokens", 0, &most, e));
    LG_TRY(lg_field_int(body, "", "min_thinking_tokens", 0, LG_LIMIT_MOST, &least, e));
    LG_TRY(read_word(body, "history_thinking", words, 3, "\"tail\", \"all\" or \"none\"", &history, e));
    if (field(body, "thinking") && !out->on && (begun || most > 0 || least > 0))
        return lg_api_fail(e, LG_API_INVALID, "thinking", "thinking must not be false when the request %s",
                           begun ? "begins or closes it" : "bounds it");
    if (history >= 0)
        out->history = history == 0 ? LG_HISTORY_TAIL : history == 1 ? LG_HISTORY_ALL : LG_HISTORY_NONE;
    out->on = out->on || begun || most > 0 || least > 0;
    out->explicitly = field(body, "thinking") || begun || most >= 0 || least > 0;
    if (most > 0)
        out->budget = most;
    if (most == 0)
        b->close = out->on; // no new thinking: the same as closing what there is
    if (most >= 0 && least > most)
        return lg_api_fail(e, LG_API_INVALID, "min_thinking_tokens",
                           "min_thinking_tokens must not be greater than max_thinking_tokens");
    if (b->prefix.n > 0 && out->on && !b->close)
        return lg_api_fail(e, LG_API_INVALID, "continue.prefix", "prefix requires close_thinking");
    job->min_think = b->close ? 0 : least;
    return LG_OK;
}

// The turn that is to be continued, as a message of its own at the end.
static lg_status begin_turn(const beginning *b, lg_arena *a, lg_chat *c, lg_api_error *e)
{
    lg_chat_message *all;

    c->generation_prompt = true;
    if (!b->thinking.p && !b->close && b->prefix.n == 0)
        return LG_OK;
    all = LG_NEW_N(a, lg_chat_message, c->n_message + 1);
    if (!all)
        return no_memory(a, e);
    if (c->n_message > 0)
        memcpy(all, c->message, c->n_message * sizeof *all);
    all[c->n_message] =
        (lg_chat_message){.role = LG_ROLE_ASSISTANT, .reasoning = b->thinking, .content = b->prefix};
    c->message = all;
    c->n_message++;
    c->generation_prompt = false;
    c->continue_final = true;
    c->continue_open_think = b->thinking.p && !b->close;
    return LG_OK;
}

// The formats of every dialect, and two of our own: {"type": "regex", "pattern"} and {"type": "choice",
// "choices"}.
static lg_status read_format(const lg_json *f, lg_format *out, lg_api_error *e)
{
    lg_str type = lg_json_str(lg_json_get(f, "type"));
    const lg_json *choices = field(f, "choices");

    if (lg_str_eqz(type, "regex")) {
        *out = (lg_format){.kind = LG_FORMAT_REGEX, .schema = field(f, "pattern"), .param = "format.pattern"};
        if (!lg_json_is(out->schema, LG_JSON_STRING))
            return must_be(e, out->param, "a string");
    } else if (lg_str_eqz(type, "choice")) {
        *out = (lg_format){.kind = LG_FORMAT_CHOICE, .schema = choices, .param = "format.choices"};
        for (size_t i = 0; i < lg_json_len(choices) || i == 0; i++)
            if (!lg_json_is(choices, LG_JSON_ARRAY) || !lg_json_is(lg_json_at(choices, i), LG_JSON_STRING))
                return must_be(e, out->param, "an array of at least one string");
    } else {
        LG_TRY(lg_request_format_of(f, "format", f, "format.schema", out, e));
    }
    out->options = field(f, "options");
    return LG_OK;
}

static lg_status parse_chat(const lg_service *s, const lg_json *body, int64_t limit, lg_job *job,
                            lg_api_error *e)
{
    translation *t = LG_NEW(&job->arena, translation);
    const lg_json *format;
    beginning b;
    lg_err err = {0};

    if (!t)
        return no_memory(&job->arena, e);
    if (lg_json_len(field(body, "messages")) == 0)
        return must_be(e, "messages", "an array of at least one message");
    if (lg_chat_json_messages(field(body, "messages"), false, &job->arena, &t->chat.message,
                              &t->chat.n_message, &err) != LG_OK ||
        lg_chat_json_tools(field(body, "tools"), NULL, &job->arena, &t->tools, &err) != LG_OK)
        return lg_api_from_err(e, &err);
    t->request = (lg_chat_request){
        .chat = &t->chat, .tools = &t->tools, .limit = limit, .limit_given = limit > 0};
    LG_TRY(read_choice(body, &t->tools, &t->request.choice, e));
    LG_TRY(read_beginning(body, &b, e));
    LG_TRY(read_thinking(s, body, &b, job, &t->request.think, e));
    LG_TRY(begin_turn(&b, &job->arena, &t->chat, e));
    LG_TRY(read_object(body, "format", &format, e));
    LG_TRY(read_format(format, &t->request.format, e));
    t->request.prefix = b.prefix;
    return lg_request_chat(s, &t->request, job, e);
}

static lg_status parse(const lg_service *s, const lg_request *rq, const lg_json *body, lg_job *job,
                       lg_api_error *e)
{
    bool chat = field(body, "messages") != NULL, echo_ids = false;
    int64_t limit = 0;

    (void)rq;
    LG_TRY(lg_native_check_fields(body, e));
    if (chat == (field(body, "prompt") != NULL))
        return lg_api_fail(e, LG_API_INVALID, "messages", "there must be either messages or prompt");
    LG_TRY(read_common(s, body, job, &limit, e));
    LG_TRY(lg_field_bool(body, "", "echo_prompt_ids", &echo_ids, e));
    LG_TRY(chat ? parse_chat(s, body, limit, job, e) : parse_raw(s, body, limit, job, e));
    lg_random_id("gen_", job->id, sizeof job->id);
    return lg_native_state(s, job, job->model.n > 0 ? job->model : lg_str_of(s->model_id), echo_ids, e);
}

const lg_dialect lg_dialect_native = {
    .name = "native",
    .setting = "native",
    .shape = LG_SHAPE_OPENAI,
    .ping = LG_PING_COMMENT,
    .model_optional = true,
    .parse = parse,
    .open = lg_native_open,
    .event = lg_native_event,
    .finish = lg_native_finish,
    .fail = lg_native_fail,
};
