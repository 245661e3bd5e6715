/*
 * server/responses: the dialect of POST /v1/responses (api.md 5): the request, the response object, the
 * terminal events. Items are in responses_items.c, input in responses_input.c, tools in responses_tools.c.
 */
#include <stdio.h>
#include <string.h>

#include "server/responses_int.h"
#include "server/store.h"

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

/* --- the request --- */

static lg_status refuse_unserved(const lg_service *s, const lg_json *body, lg_api_error *e)
{
    static const char *const kept[] = {"conversation", "previous_response_id"};
    bool background = false;

    LG_TRY(lg_field_bool(body, "", "background", &background, e));
    if (background)
        return lg_openai_refuse("background", e);
    for (size_t i = 0; i < (s->store ? 1 : sizeof kept / sizeof *kept); i++) {
        if (!field(body, kept[i]))
            continue;
        (void)lg_api_fail(e, LG_API_INVALID, kept[i],
                          "%s is not supported: responses are not stored here; send the full input", kept[i]);
        (void)snprintf(e->code, sizeof e->code, "unsupported_parameter");
        return LG_E_INPUT;
    }
    return LG_OK;
}

// The items of the conversation so far, when the request goes on from a stored response.
static lg_status recall(const lg_service *s, const lg_json *body, lg_job *job, lg_rstate *t, lg_api_error *e)
{
    lg_str id = {0};
    lg_status st;
    lg_buf items;
    lg_err err = {0};

    t->keep = s->store != NULL;
    LG_TRY(lg_field_bool(body, "", "store", &t->keep, e));
    t->keep = t->keep && s->store;
    LG_TRY(lg_field_str(body, "", "previous_response_id", &id, e));
    if (!id.p)
        return LG_OK;
    lg_buf_init(&items, job->arena.limit);
    if (lg_store_get(s->store, id, LG_STORE_ITEMS, &items)) {
        st = lg_responses_made(lg_buf_str(&items), &job->made, &err);
        if (st == LG_OK)
            t->before = lg_json_get(lg_json_root(job->made), "items");
        else
            (void)lg_api_from_err(e, &err);
    } else {
        st = lg_api_fail(e, LG_API_INVALID, "previous_response_id", "no response of this id is stored here");
        (void)snprintf(e->code, sizeof e->code, "previous_response_not_found");
    }
    lg_buf_free(&items);
    return st;
}

// What the client wants to see of the answer: reasoning, and log-probabilities.
static lg_status read_output(const lg_json *body, lg_job *job, lg_rstate *t, lg_api_error *e)
{
    const lg_json *reasoning = field(body, "reasoning"), *include = field(body, "include");
    lg_str summary = {0};
    int64_t top = -1;

    LG_TRY(lg_field_str(reasoning, "reasoning.", "generate_summary", &summary, e));
    LG_TRY(lg_field_str(reasoning, "reasoning.", "summary", &summary, e));
    t->summary = summary.n > 0 && !lg_str_eqz(summary, "none");
    if (include && !lg_json_is(include, LG_JSON_ARRAY))
        return lg_api_fail(e, LG_API_INVALID, "include", "include must be an array of strings");
    LG_TRY(lg_field_int(body, "", "top_logprobs", 0, LG_TOP_LOGPROBS_MAX, &top, e));
    for (size_t i = 0; i < lg_json_len(include); i++) {
        lg_str what = lg_json_str(lg_json_at(include, i));

        t->sealed = t->sealed || lg_str_eqz(what, "reasoning.encrypted_content");
        if (lg_str_eqz(what, "message.output_text.logprobs") && top < 0)
            top = 0;
    }
    job->n_logprobs = (int)top;
    return LG_OK;
}

static lg_status read_format(const lg_json *body, lg_format *out, lg_api_error *e)
{
    const lg_json *text = field(body, "text"), *f = field(text, "format");

    if (text && !lg_json_is(text, LG_JSON_OBJECT))
        return lg_api_fail(e, LG_API_INVALID, "text", "text must be an object");
    return lg_request_format_of(f, "text.format", f, "text.format.schema", out, e);
}

static lg_status parse(const lg_service *s, const lg_request *rq, const lg_json *body, lg_job *job,
                       lg_api_error *e)
{
    lg_rstate *t = LG_NEW(&job->arena, lg_rstate);
    lg_chat *c = LG_NEW(&job->arena, lg_chat);
    lg_chat_request r = {.chat = c, .param = "input"};

    (void)rq;
    if (!t || !c)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs too much memory");
    *t = (lg_rstate){.s = s, .body = body};
    job->state = t;
    LG_TRY(lg_request_model(s, body, job, e));
    LG_TRY(refuse_unserved(s, body, e));
    LG_TRY(lg_openai_start(body, "resp_", job, e));
    LG_TRY(lg_request_sampling(s, body, "", LG_SAMPLE_BASIC | LG_SAMPLE_MIN_P | LG_SAMPLE_SEED, job, e));
    LG_TRY(lg_openai_limit(body, &r.limit, &r.limit_given, e));
    LG_TRY(lg_request_thinking(s, body, &r.think, e));
    LG_TRY(read_output(body, job, t, e));
    LG_TRY(recall(s, body, job, t, e));
    LG_TRY(lg_responses_tools(lg_json_get(body, "tools"), &job->arena, &job->made, &t->tools, e));
    LG_TRY(lg_request_tool_choice(body, &t->tools.chat, &job->arena, &r.choice, e));
    LG_TRY(read_format(body, &r.format, e));
    LG_TRY(lg_responses_input(s, body, t->before, &job->arena, c, e));
    t->hide = r.think.hide;
    t->parallel = r.choice.parallel;
    r.tools = &t->tools.chat;
    return lg_request_chat(s, &r, job, e);
}

/* --- the response object --- */

static void echo(lg_jsonw *w, const lg_rstate *t, const char *key, const char *otherwise)
{
    const lg_json *j = field(t->body, key);

    if (j)
        lg_jsonw_value(w, key, j);
    else
        lg_jsonw_raw(w, key, lg_str_of(otherwise));
}

static void usage_json(lg_jsonw *w, const lg_openai_usage *u)
{
    lg_jsonw_open(w, "usage", '{');
    lg_jsonw_int(w, "input_tokens", u->prompt);
    lg_jsonw_open(w, "input_tokens_details", '{');
    lg_jsonw_int(w, "cached_tokens", u->cached);
    lg_jsonw_close(w, '}');
    lg_jsonw_int(w, "output_tokens", u->output);
    lg_jsonw_open(w, "output_tokens_details", '{');
    lg_jsonw_int(w, "reasoning_tokens", u->thinking);
    lg_jsonw_close(w, '}');
    lg_jsonw_int(w, "total_tokens", u->prompt + u->output);
    lg_jsonw_close(w, '}');
}

static void reasoning_json(lg_jsonw *w, const lg_rstate *t)
{
    const lg_json *reasoning = field(t->body, "reasoning");

    lg_jsonw_open(w, "reasoning", '{');
    lg_jsonw_value(w, "effort", field(reasoning, "effort"));
    lg_jsonw_value(w, "summary", field(reasoning, "summary"));
    lg_jsonw_close(w, '}');
}

static void text_json(lg_jsonw *w, const lg_rstate *t)
{
    const lg_json *format = field(field(t->body, "text"), "format");

    lg_jsonw_open(w, "text", '{');
    if (format)
        lg_jsonw_value(w, "format", format);
    else
        lg_jsonw_raw(w, "format", LG_STR("{\"type\":\"text\"}"));
    lg_jsonw_close(w, '}');
}

// OpenAI's own words for errors inside a response.
static const char *error_code(const lg_api_error *e)
{
    if (e->code[0])
        return e->code;
    switch (e->kind) {
    case LG_API_INVALID: return "invalid_request_error";
    case LG_API_QUEUE_FULL: return "rate_limit_exceeded";
    case LG_API_STOPPING: return "shutting_down";
    default: return "server_error";
    }
}

// `error` NULL: none.
static void response_json(lg_jsonw *w, const char *key, lg_job *job, const char *status,
                          const lg_api_error *error)
{
    const lg_rstate *t = job->state;

    lg_jsonw_open(w, key, '{');
    lg_jsonw_strz(w, "id", job->id);
    lg_jsonw_strz(w, "object", "response");
    lg_jsonw_int(w, "created_at", job->created);
    lg_jsonw_strz(w, "status", status);
    if (error) {
        lg_jsonw_open(w, "error", '{');
        lg_jsonw_strz(w, "code", error_code(error));
        lg_jsonw_strz(w, "message", error->message);
        lg_jsonw_close(w, '}');
    } else {
        lg_jsonw_null(w, "error");
    }
    lg_jsonw_raw(w, "incomplete_details",
                 strcmp(status, "incomplete") == 0 ? LG_STR("{\"reason\":\"max_output_tokens\"}")
                                                   : LG_STR("null"));
    echo(w, t, "instructions", "null");
    echo(w, t, "max_output_tokens", "null");
    lg_jsonw_str(w, "model", lg_openai_model(job, t->s->model_id));
    lg_jsonw_open(w, "output", '[');
    for (const lg_ritem *it = t->first; it; it = it->next)
        lg_ritem_json(w, NULL, t, it);
    lg_jsonw_close(w, ']');
    lg_jsonw_bool(w, "parallel_tool_calls", t->parallel);
    echo(w, t, "previous_response_id", "null");
    reasoning_json(w, t);
    lg_jsonw_bool(w, "store", t->keep);
    lg_jsonw_num(w, "temperature", (double)job->sampling.temperature);
    lg_jsonw_num(w, "top_p", (double)job->sampling.top_p);
    text_json(w, t);
    echo(w, t, "tool_choice", "\"auto\"");
    echo(w, t, "tools", "[]");
    lg_jsonw_strz(w, "truncation", "disabled");
    if (t->stats)
        usage_json(w, &t->usage);
    else
        lg_jsonw_null(w, "usage");
    echo(w, t, "metadata", "{}");
    lg_jsonw_close(w, '}');
}

static void response_frame(lg_job *job, const char *type, const char *status, const lg_api_error *error,
                           lg_buf *out)
{
    lg_jsonw w = lg_rframe_begin(job->state, type, out);

    response_json(&w, "response", job, status, error);
    lg_rframe_end(&w);
}

/* --- events --- */

static void open_stream(lg_job *job, const lg_job_admission *a, lg_buf *out)
{
    (void)a;
    response_frame(job, "response.created", "in_progress", NULL, out);
    response_frame(job, "response.in_progress", "in_progress", NULL, out);
}

static void end_choice(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    lg_rstate *t = job->state;
    lg_gen_stats *stats = LG_NEW(&job->arena, lg_gen_stats);

    lg_openai_count(&t->usage, ev->stats, 0);
    t->failed = t->failed || !stats;
    if (stats)
        *stats = *ev->stats;
    t->stats = stats;
    lg_responses_close(job, ev->stats->finish == LG_FINISH_LENGTH, out);
}

static void event(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    lg_rstate *t = job->state;

    if (ev->kind == LG_JOB_TOKEN && !lg_openai_add_logprob(&t->logprobs, &job->arena, t->s->vocab, ev))
        t->failed = true;
    if (ev->kind == LG_JOB_REPLY)
        lg_responses_reply(job, ev, out);
    else if (ev->kind == LG_JOB_CHOICE_END)
        end_choice(job, ev, out);
}

// The whole conversation, as items, for a request that goes on from here, and the response as it went out.
static void keep(lg_job *job, const char *status, size_t max)
{
    const lg_rstate *t = job->state;
    const lg_json *input = field(t->body, "input");
    size_t n_input;
    lg_buf items, response;
    lg_jsonw w;

    lg_buf_init(&items, max);
    lg_buf_init(&response, max);
    w = lg_jsonw_start(&items);
    for (size_t i = 0; i < lg_json_len(t->before); i++)
        lg_jsonw_value(&w, NULL, lg_json_at(t->before, i));
    for (size_t i = 0; i < lg_json_len(input); i++)
        lg_jsonw_value(&w, NULL, lg_json_at(input, i));
    if (lg_json_is(input, LG_JSON_STRING)) {
        lg_jsonw_open(&w, NULL, '{');
        lg_jsonw_strz(&w, "type", "message");
        lg_jsonw_strz(&w, "role", "user");
        lg_jsonw_value(&w, "content", input);
        lg_jsonw_close(&w, '}');
    }
    n_input = items.n;
    for (const lg_ritem *it = t->first; it; it = it->next)
        lg_ritem_json(&w, NULL, t, it);
    w = lg_jsonw_start(&response);
    response_json(&w, NULL, job, status, NULL);
    if (!items.failed && !response.failed)
        lg_store_put(t->s->store, &(lg_stored){.id = lg_str_of(job->id),
                                               .items = lg_buf_str(&items),
                                               .n_input = n_input,
                                               .response = lg_buf_str(&response)});
    lg_buf_free(&items);
    lg_buf_free(&response);
}

static void finish(lg_job *job, lg_buf *out)
{
    const lg_rstate *t = job->state;
    bool cut = t->stats && t->stats->finish == LG_FINISH_LENGTH;
    const char *status = cut ? "incomplete" : "completed";

    out->failed = out->failed || t->failed;
    if (t->keep && !t->failed)
        keep(job, status, out->max);
    if (job->stream) {
        response_frame(job, cut ? "response.incomplete" : "response.completed", status, NULL, out);
    } else {
        lg_jsonw w = lg_jsonw_start(out);
        response_json(&w, NULL, job, status, NULL);
    }
}

static void fail(lg_job *job, const lg_api_error *e, lg_buf *out)
{
    lg_responses_close(job, true, out);
    response_frame(job, "response.failed", "failed", e, out);
}

const lg_dialect lg_dialect_responses = {.name = "responses",
                                         .setting = "responses",
                                         .shape = LG_SHAPE_OPENAI,
                                         .ping = LG_PING_COMMENT,
                                         .parse = parse,
                                         .open = open_stream,
                                         .event = event,
                                         .finish = finish,
                                         .fail = fail};
