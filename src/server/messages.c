/*
 * server/messages: POST /v1/messages and its count_tokens, the Messages API of Anthropic: body -> job (api.md
 * 4). What goes back is in messages_write.c.
 *
 * Surprise: the first lines of a system text that start with "x-anthropic-" never reach the prompt. Claude
 * Code puts a billing line there that changes with every request and would cost the whole prefix cache.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/jsonw.h"
#include "server/messages_int.h"

/* A body in our terms. In the arena, since the job keeps the conversation. */
typedef struct translation {
    lg_chat chat;
    lg_chat_tools tools;
    lg_chat_request request;
} translation;

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static lg_status no_memory(const lg_arena *a, lg_api_error *e)
{
    return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs more than %zu bytes of memory", a->limit);
}

/* --- system --- */

static lg_str without_headers(lg_str s)
{
    while (lg_str_starts(s, LG_STR("x-anthropic-"))) {
        const char *end = memchr(s.p, '\n', s.n);
        size_t drop = end ? (size_t)(end - s.p) + 1 : s.n;
        s = (lg_str){s.p + drop, s.n - drop};
        LG_DEBUG("messages", "header-left-out", "bytes=%zu", drop);
    }
    return s;
}

static lg_status block_text(const lg_json *block, size_t i, lg_str *out, lg_api_error *e)
{
    char path[64];
    lg_str type = lg_json_str(field(block, "type"));

    *out = lg_json_is(block, LG_JSON_STRING) ? lg_json_str(block) : lg_json_str(field(block, "text"));
    if (lg_json_is(block, LG_JSON_STRING) || lg_json_is(field(block, "text"), LG_JSON_STRING))
        return LG_OK;
    (void)snprintf(path, sizeof path, "system[%zu]", i);
    return lg_api_fail(e, LG_API_INVALID, path, "%s must be a text block%s%.*s", path, type.n ? ", not " : "",
                       (int)(type.n < 40 ? type.n : 40), type.n ? type.p : "");
}

// The system text; p is NULL when there is none, or nothing but headers.
static lg_status read_system(const lg_json *system, lg_arena *a, lg_str *out, lg_api_error *e)
{
    size_t n = lg_json_is(system, LG_JSON_ARRAY) ? lg_json_len(system) : 1, bytes = 0, at = 0;
    lg_str block;
    char *p;

    if (!system)
        return LG_OK;
    if (!lg_json_is(system, LG_JSON_ARRAY) && !lg_json_is(system, LG_JSON_STRING))
        return lg_api_fail(e, LG_API_INVALID, "system", "system must be a string or an array of text blocks");
    for (size_t i = 0; i < n; i++) {
        LG_TRY(block_text(lg_json_is(system, LG_JSON_ARRAY) ? lg_json_at(system, i) : system, i, &block, e));
        bytes += block.n + 1;
    }
    p = lg_arena_alloc(a, bytes + 1);
    if (!p)
        return no_memory(a, e);
    for (size_t i = 0, kept = 0; i < n; i++) {
        lg_str whole;
        LG_TRY(block_text(lg_json_is(system, LG_JSON_ARRAY) ? lg_json_at(system, i) : system, i, &whole, e));
        block = without_headers(whole);
        if (block.n == 0 && whole.n > 0)
            continue;
        if (kept++ > 0)
            p[at++] = '\n';
        if (block.n > 0)
            memcpy(p + at, block.p, block.n);
        at += block.n;
        *out = (lg_str){p, at};
    }
    return LG_OK;
}

/* --- messages --- */

static bool says_nothing(const lg_chat_message *m)
{
    return m->role == LG_ROLE_ASSISTANT && m->content.n == 0 && m->reasoning.n == 0 && m->n_call == 0;
}

// System text and messages. An answer at the end is the beginning of ours.
static lg_status read_conversation(const lg_service *s, const lg_json *body, lg_arena *a, lg_chat *c,
                                   lg_api_error *e)
{
    const lg_json *list = field(body, "messages");
    const lg_chat_message *message, *last;
    lg_chat_message *all;
    lg_str system = {0};
    lg_err err = {0};
    size_t n;

    LG_TRY(read_system(field(body, "system"), a, &system, e));
    if (!lg_json_is(list, LG_JSON_ARRAY) || lg_json_len(list) == 0)
        return lg_api_fail(e, LG_API_INVALID, "messages",
                           "messages must be an array of at least one message");
    if (lg_chat_json_messages(list, s->set->drop_images, a, &message, &n, &err) != LG_OK)
        return lg_api_from_err(e, &err);
    if (n > 0 && says_nothing(&message[n - 1]))
        n--;
    if (system.p) {
        all = LG_NEW_N(a, lg_chat_message, n + 1);
        if (!all)
            return no_memory(a, e);
        all[0] = (lg_chat_message){.role = LG_ROLE_SYSTEM, .content = system};
        if (n > 0)
            memcpy(all + 1, message, n * sizeof *all);
        message = all;
        n++;
    }
    c->message = message;
    c->n_message = n;
    last = n > 0 ? &message[n - 1] : NULL;
    c->continue_final = last && last->role == LG_ROLE_ASSISTANT;
    c->continue_open_think = c->continue_final && last->content.n == 0 && last->n_call == 0;
    c->generation_prompt = !c->continue_final;
    return LG_OK;
}

/* --- the other fields --- */

static lg_status read_choice(const lg_json *body, const lg_chat_tools *tools, lg_tool_choice *out,
                             lg_api_error *e)
{
    const lg_json *j = field(body, "tool_choice");
    bool serial = false;
    lg_str type = {0}, name = {0};

    *out = (lg_tool_choice){.mode = LG_CHOICE_AUTO, .parallel = true, .max_calls = 1};
    if (!j)
        return LG_OK;
    if (!lg_json_is(j, LG_JSON_OBJECT))
        return lg_api_fail(e, LG_API_INVALID, "tool_choice", "tool_choice must be an object with a type");
    LG_TRY(lg_field_str(j, "tool_choice.", "type", &type, e));
    LG_TRY(lg_field_str(j, "tool_choice.", "name", &name, e));
    LG_TRY(lg_field_bool(j, "tool_choice.", "disable_parallel_tool_use", &serial, e));
    out->parallel = !serial;
    if (lg_str_eqz(type, "auto"))
        return LG_OK;
    if (lg_str_eqz(type, "none")) {
        out->mode = LG_CHOICE_NONE;
        return LG_OK;
    }
    if (!lg_str_eqz(type, "any") && !lg_str_eqz(type, "tool"))
        return lg_api_fail(e, LG_API_INVALID, "tool_choice.type",
                           "tool_choice.type must be \"auto\", \"any\", \"tool\" or \"none\"");
    out->mode = LG_CHOICE_REQUIRED;
    if (tools->n == 0)
        return lg_api_fail(e, LG_API_INVALID, "tool_choice",
                           "tool_choice demands a call, but there are no tools");
    if (lg_str_eqz(type, "any"))
        return LG_OK;
    for (size_t i = 0; i < tools->n; i++)
        if (name.n > 0 && lg_str_eq(tools->tool[i].name, name))
            out->only = name;
    if (out->only.n == 0)
        return lg_api_fail(e, LG_API_INVALID, "tool_choice.name",
                           "tool_choice.name must be the name of one of the tools");
    return LG_OK;
}

static lg_status read_format(const lg_json *body, lg_format *out, lg_api_error *e)
{
    const lg_json *now = field(field(body, "output_config"), "format"), *old = field(body, "output_format");

    if (now || !old)
        return lg_request_format_of(now, "output_config.format", now, "output_config.format.schema", out, e);
    return lg_request_format_of(old, "output_format", old, "output_format.schema", out, e);
}

static lg_status read_thinking(const lg_service *s, const lg_json *body, lg_think_ask *out, lg_api_error *e)
{
    const char *otherwise = s->set->anthropic_default_thinking;

    LG_TRY(lg_request_thinking(s, body, out, e));
    if (out->explicitly || field(body, "thinking"))
        return LG_OK;
    if (strcmp(otherwise, "off") == 0)
        out->on = false;
    else if (strcmp(otherwise, "hidden") == 0)
        out->hide = true;
    return LG_OK;
}

// Everything that decides what the prompt is.
static lg_status translate(const lg_service *s, const lg_json *body, lg_job *job, translation **out,
                           lg_api_error *e)
{
    translation *t = LG_NEW(&job->arena, translation);

    if (!t)
        return no_memory(&job->arena, e);
    LG_TRY(lg_request_model(s, body, job, e));
    if (lg_json_len(field(body, "mcp_servers")) > 0)
        return lg_api_fail(e, LG_API_INVALID, "mcp_servers",
                           "mcp_servers is not supported; the client must call MCP servers itself");
    LG_TRY(read_conversation(s, body, &job->arena, &t->chat, e));
    LG_TRY(lg_messages_tools(field(body, "tools"), &job->arena, &job->made, &t->tools, e));
    t->request.chat = &t->chat;
    t->request.tools = &t->tools;
    LG_TRY(read_choice(body, &t->tools, &t->request.choice, e));
    LG_TRY(read_thinking(s, body, &t->request.think, e));
    LG_TRY(read_format(body, &t->request.format, e));
    *out = t;
    return LG_OK;
}

// A prompt that does not fit, in the words that clients of this API match on.
static lg_status say_too_long(lg_status st, lg_api_error *e)
{
    if (st != LG_OK && e->n_ctx > 0)
        (void)snprintf(e->message, sizeof e->message, "prompt is too long: %lld tokens > %lld maximum",
                       (long long)e->n_prompt_tokens, (long long)e->n_ctx);
    return st;
}

static lg_status parse(const lg_service *s, const lg_request *rq, const lg_json *body, lg_job *job,
                       lg_api_error *e)
{
    translation *t;
    int64_t limit = 0;

    (void)rq;
    LG_TRY(translate(s, body, job, &t, e));
    LG_TRY(lg_field_limit(body, "", "max_tokens", 1, &limit, e));
    LG_TRY(lg_field_bool(body, "", "stream", &job->stream, e));
    LG_TRY(lg_request_sampling(s, body, "", LG_SAMPLE_BASIC, job, e));
    LG_TRY(lg_request_stop(body, "", "stop_sequences", job, e));
    if (limit == 0)
        LG_DEBUG("messages", "no-max-tokens", "limit=default"); // the original service demands it
    t->request.limit = limit;
    t->request.limit_given = limit > 0;
    LG_TRY(say_too_long(lg_request_chat(s, &t->request, job, e), e));
    lg_random_id("msg_", job->id, sizeof job->id);
    return lg_messages_state(job, job->model.n > 0 ? job->model : lg_str_of(s->model_id),
                             t->request.think.hide, e);
}

const lg_dialect lg_dialect_messages = {
    .name = "messages",
    .setting = "anthropic",
    .shape = LG_SHAPE_ANTHROPIC,
    .ping = LG_PING_EVENT,
    .parse = parse,
    .open = lg_messages_open,
    .event = lg_messages_event,
    .finish = lg_messages_finish,
    .fail = lg_messages_fail,
};

/* --- count_tokens --- */

lg_status lg_util_count_tokens(const lg_service *s, const lg_request *rq, const lg_json *body, lg_arena *a,
                               lg_buf *out, lg_api_error *e)
{
    lg_job job = {.arena = *a}; // lent for the call: the same path as a request's, up to the prompt
    lg_jsonw w = lg_jsonw_start(out);
    translation *t;
    lg_status st = translate(s, body, &job, &t, e);

    (void)rq;
    if (st == LG_OK) {
        t->request.count_only = true;
        st = lg_request_chat(s, &t->request, &job, e);
    }
    if (st == LG_OK) {
        lg_jsonw_open(&w, NULL, '{');
        lg_jsonw_int(&w, "input_tokens", (int64_t)job.prompt.n);
        lg_jsonw_close(&w, '}');
    }
    lg_ids_free(&job.prompt);
    lg_json_free(job.made);
    *a = job.arena;
    return st;
}
