/*
 * server/chat: the dialect of POST /v1/chat/completions (api.md 3).
 *
 * Surprise: log-probabilities come one token at a time, text in pieces of whole characters; so a chunk with
 * text carries the entries of all tokens since the last one, and the closing chunk what is left.
 */
#include <string.h>

#include "server/openai.h"
#include "server/request.h"

/* One choice while it runs. */
typedef struct choice {
    lg_parts parts;    /* answers in one piece: everything */
    lg_gen_stats *stats; /* once it is complete */
    bool failed;       /* the arena was too small: something is missing */
    lg_text logprobs;  /* entries as JSON, comma between; streams: those not sent yet */
    bool inside;       /* inline reasoning: <think> was written, </think> not yet */
} choice;

typedef struct state {
    const lg_service *s;
    choice *choice;
    lg_openai_usage usage;
    bool include_usage; /* a chunk of its own at the end */
    bool inline_think;  /* reasoning goes into the content, between its tags */
    bool hide;          /* reasoning is not shown */
    bool content_key, alias_key; /* it is called reasoning_content, reasoning */
} state;

/* --- the request --- */

static bool present(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return j && !lg_json_is(j, LG_JSON_NULL);
}

static lg_status refuse_unserved(const lg_json *body, lg_api_error *e)
{
    static const char *const key[] = {"audio", "web_search_options"};
    const lg_json *modalities = lg_json_get(body, "modalities");

    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        if (present(body, key[i]))
            return lg_openai_refuse(key[i], e);
    for (size_t i = 0; i < lg_json_len(modalities); i++)
        if (!lg_str_eqz(lg_json_str(lg_json_at(modalities, i)), "text"))
            return lg_api_fail(e, LG_API_INVALID, "modalities", "modalities must be [\"text\"]");
    return LG_OK;
}

static lg_status read_logprobs(const lg_json *body, lg_job *job, lg_api_error *e)
{
    bool wanted = false;
    int64_t top = -1;

    LG_TRY(lg_field_bool(body, "", "logprobs", &wanted, e));
    LG_TRY(lg_field_int(body, "", "top_logprobs", 0, LG_TOP_LOGPROBS_MAX, &top, e));
    if (top > 0 && !wanted)
        return lg_api_fail(e, LG_API_INVALID, "top_logprobs", "top_logprobs needs logprobs to be true");
    job->n_logprobs = !wanted ? -1 : top > 0 ? (int)top : 0;
    return LG_OK;
}

static lg_status read_output(const lg_service *s, const lg_json *body, state *t, lg_api_error *e)
{
    const lg_json *options = lg_json_get(body, "stream_options");
    const char *name = s->set->reasoning_field;
    lg_str format = lg_str_of(s->set->reasoning_format);

    LG_TRY(lg_field_bool(options, "stream_options.", "include_usage", &t->include_usage, e));
    LG_TRY(lg_field_str(body, "", "reasoning_format", &format, e));
    t->inline_think = lg_str_eqz(format, "none");
    t->content_key = strcmp(name, "reasoning") != 0;
    t->alias_key = strcmp(name, "reasoning_content") != 0;
    return LG_OK;
}

static lg_status read_messages(const lg_service *s, const lg_json *body, lg_job *job, lg_chat *c,
                               lg_chat_tools *tools, lg_api_error *e)
{
    const lg_json *messages = lg_json_get(body, "messages");
    lg_err err = {0};

    if (!lg_json_is(messages, LG_JSON_ARRAY) || lg_json_len(messages) == 0)
        return lg_api_fail(e, LG_API_INVALID, "messages", "messages must be a non-empty array");
    if (lg_chat_json_body(body, &(lg_chat_json_opts){.drop_images = s->set->drop_images}, &job->arena, c,
                          tools, &err) != LG_OK)
        return lg_api_from_err(e, &err);
    return LG_OK;
}

static lg_status parse(const lg_service *s, const lg_request *rq, const lg_json *body, lg_job *job,
                       lg_api_error *e)
{
    state *t = LG_NEW(&job->arena, state);
    lg_chat *c = LG_NEW(&job->arena, lg_chat);
    lg_chat_tools tools = {0};
    lg_chat_request r = {.chat = c, .tools = &tools};
    int64_t n = 1;

    (void)rq;
    if (!t || !c)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs too much memory");
    t->s = s;
    job->state = t;
    LG_TRY(lg_request_model(s, body, job, e));
    LG_TRY(refuse_unserved(body, e));
    LG_TRY(lg_openai_start(body, "chatcmpl-", job, e));
    LG_TRY(lg_request_sampling(s, body, "", LG_SAMPLE_ALL, job, e));
    LG_TRY(lg_request_stop(body, "", "stop", job, e));
    LG_TRY(lg_field_int(body, "", "n", 1, 8, &n, e));
    LG_TRY(read_logprobs(body, job, e));
    LG_TRY(lg_openai_limit(body, &r.limit, &r.limit_given, e));
    LG_TRY(lg_request_thinking(s, body, &r.think, e));
    LG_TRY(read_output(s, body, t, e));
    LG_TRY(read_messages(s, body, job, c, &tools, e));
    LG_TRY(lg_request_tool_choice(body, &tools, &job->arena, &r.choice, e));
    LG_TRY(lg_request_format(body, &r.format, e));
    job->n_choice = (int)n;
    t->hide = r.think.hide;
    t->choice = LG_NEW_N(&job->arena, choice, (size_t)n);
    if (!t->choice)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs too much memory");
    return lg_request_chat(s, &r, job, e);
}

/* --- chunks --- */

static lg_jsonw object_begin(const lg_job *job, const char *kind, lg_buf *out)
{
    const state *t = job->state;
    lg_jsonw w = lg_jsonw_start(out);

    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_strz(&w, "id", job->id);
    lg_jsonw_strz(&w, "object", kind);
    lg_jsonw_int(&w, "created", job->created);
    lg_jsonw_str(&w, "model", lg_openai_model(job, t->s->model_id));
    lg_jsonw_strz(&w, "system_fingerprint", "lagoon-" LG_VERSION);
    return w;
}

// Everything up to and including the opening of `delta`.
static lg_jsonw chunk_begin(const lg_job *job, int index, lg_buf *out)
{
    lg_jsonw w;

    lg_sse_begin(out, NULL);
    w = object_begin(job, "chat.completion.chunk", out);
    lg_jsonw_open(&w, "choices", '[');
    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_int(&w, "index", index);
    lg_jsonw_open(&w, "delta", '{');
    return w;
}

static void take_logprobs(lg_jsonw *w, choice *c)
{
    if (c->logprobs.n == 0)
        return;
    lg_jsonw_open(w, "logprobs", '{');
    lg_jsonw_open(w, "content", '[');
    lg_jsonw_raw(w, NULL, lg_text_str(&c->logprobs));
    lg_jsonw_close(w, ']');
    lg_jsonw_close(w, '}');
    c->logprobs.n = 0;
}

// From the end of `delta` on. `s` NULL: the choice goes on.
static void chunk_end(lg_jsonw *w, const lg_job *job, choice *c, const lg_gen_stats *s)
{
    const state *t = job->state;

    lg_jsonw_close(w, '}');
    if (c)
        take_logprobs(w, c);
    lg_jsonw_strz(w, "finish_reason", s ? lg_openai_finish(s->finish) : NULL);
    lg_jsonw_close(w, '}');
    lg_jsonw_close(w, ']');
    if (s && t->s->set->usage_on_finish)
        lg_openai_usage_json(w, "usage", &t->usage);
    else if (t->include_usage)
        lg_jsonw_null(w, "usage");
    if (s)
        lg_openai_timings_json(w, s);
    lg_jsonw_close(w, '}');
    lg_sse_end(w->out);
}

static void reasoning_keys(lg_jsonw *w, const state *t, lg_str text)
{
    if (t->content_key)
        lg_jsonw_str(w, "reasoning_content", text);
    if (t->alias_key)
        lg_jsonw_str(w, "reasoning", text);
}

static void text_chunk(lg_job *job, int index, bool reasoning, lg_str text, lg_buf *out)
{
    state *t = job->state;
    lg_jsonw w = chunk_begin(job, index, out);

    if (reasoning)
        reasoning_keys(&w, t, text);
    else
        lg_jsonw_str(&w, "content", text);
    chunk_end(&w, job, reasoning ? NULL : &t->choice[index], NULL);
}

static void call_chunk(lg_job *job, int index, const lg_event *r, lg_buf *out)
{
    lg_jsonw w = chunk_begin(job, index, out);

    lg_jsonw_open(&w, "tool_calls", '[');
    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_int(&w, "index", r->call);
    if (r->kind == LG_EV_TOOL_START) {
        lg_jsonw_strz(&w, "id", lg_job_call_id(job, index, r->call));
        lg_jsonw_strz(&w, "type", "function");
    }
    lg_jsonw_open(&w, "function", '{');
    if (r->kind == LG_EV_TOOL_START)
        lg_jsonw_str(&w, "name", r->text);
    lg_jsonw_str(&w, "arguments", r->kind == LG_EV_TOOL_START ? LG_STR("") : r->text);
    lg_jsonw_close(&w, '}');
    lg_jsonw_close(&w, '}');
    lg_jsonw_close(&w, ']');
    chunk_end(&w, job, NULL, NULL);
}

static void open_stream(lg_job *job, const lg_job_admission *a, lg_buf *out)
{
    (void)a;
    for (int i = 0; i < job->n_choice; i++) {
        lg_jsonw w = chunk_begin(job, i, out);
        lg_jsonw_strz(&w, "role", "assistant");
        lg_jsonw_strz(&w, "content", "");
        chunk_end(&w, job, NULL, NULL);
    }
}

/* --- events --- */

static void stream_reply(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    switch (ev->reply.kind) {
    case LG_EV_REASONING: text_chunk(job, ev->choice, true, ev->reply.text, out); break;
    case LG_EV_CONTENT: text_chunk(job, ev->choice, false, ev->reply.text, out); break;
    case LG_EV_TOOL_START:
    case LG_EV_TOOL_ARGS: call_chunk(job, ev->choice, &ev->reply, out); break;
    case LG_EV_TOOL_END: break;
    }
}

static void pass(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    state *t = job->state;

    if (job->stream)
        stream_reply(job, ev, out);
    else
        lg_parts_add(&t->choice[ev->choice].parts, job, ev->choice, &ev->reply);
}

static void pass_text(lg_job *job, int index, lg_str text, lg_buf *out)
{
    pass(job,
         &(lg_job_event){
             .kind = LG_JOB_REPLY, .choice = index, .reply = {.kind = LG_EV_CONTENT, .text = text}},
         out);
}

// Reasoning as content between its tags. The end of the reasoning shows in what comes after it.
static void pass_inline(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    choice *c = &((state *)job->state)->choice[ev->choice];
    bool thought = ev->kind == LG_JOB_REPLY && ev->reply.kind == LG_EV_REASONING;

    if (thought && !c->inside)
        pass_text(job, ev->choice, LG_STR("<think>"), out);
    if (!thought && c->inside)
        pass_text(job, ev->choice, LG_STR("</think>"), out);
    c->inside = thought;
    if (thought)
        pass_text(job, ev->choice, ev->reply.text, out);
    else if (ev->kind == LG_JOB_REPLY)
        pass(job, ev, out);
}

static void end_choice(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    state *t = job->state;
    choice *c = &t->choice[ev->choice];

    lg_openai_count(&t->usage, ev->stats, ev->choice);
    c->stats = LG_NEW(&job->arena, lg_gen_stats);
    if (c->stats)
        *c->stats = *ev->stats;
    c->failed = c->failed || !c->stats;
    if (job->stream) {
        lg_jsonw w = chunk_begin(job, ev->choice, out);
        chunk_end(&w, job, c, ev->stats);
    }
}

static void event(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    state *t = job->state;
    choice *c = &t->choice[ev->choice];

    if (ev->kind == LG_JOB_TOKEN && !lg_openai_add_logprob(&c->logprobs, &job->arena, t->s->vocab, ev))
        c->failed = true;
    if (t->hide && ev->kind == LG_JOB_REPLY && ev->reply.kind == LG_EV_REASONING)
        return;
    if (t->inline_think && (ev->kind == LG_JOB_REPLY || ev->kind == LG_JOB_CHOICE_END))
        pass_inline(job, ev, out);
    else if (ev->kind == LG_JOB_REPLY)
        pass(job, ev, out);
    if (ev->kind == LG_JOB_CHOICE_END)
        end_choice(job, ev, out);
}

/* --- the end --- */

static void calls_json(lg_jsonw *w, const lg_parts *parts)
{
    lg_jsonw_open(w, "tool_calls", '[');
    for (const lg_reply_part *p = parts->first; p; p = p->next) {
        if (p->kind != LG_EV_TOOL_START || !p->ended) // a call that a limit cut is left out
            continue;
        lg_jsonw_open(w, NULL, '{');
        lg_jsonw_strz(w, "id", p->id);
        lg_jsonw_strz(w, "type", "function");
        lg_jsonw_open(w, "function", '{');
        lg_jsonw_str(w, "name", p->name);
        lg_jsonw_str(w, "arguments", p->text);
        lg_jsonw_close(w, '}');
        lg_jsonw_close(w, '}');
    }
    lg_jsonw_close(w, ']');
}

static void choice_json(lg_jsonw *w, lg_job *job, int index)
{
    const state *t = job->state;
    choice *c = &t->choice[index];
    size_t n_call = lg_openai_calls(&c->parts);
    lg_str content = {0}, reasoning = {0};

    if (!lg_openai_joined(&c->parts, LG_EV_CONTENT, &job->arena, &content) ||
        !lg_openai_joined(&c->parts, LG_EV_REASONING, &job->arena, &reasoning))
        c->failed = true;
    lg_jsonw_open(w, NULL, '{');
    lg_jsonw_int(w, "index", index);
    lg_jsonw_open(w, "message", '{');
    lg_jsonw_strz(w, "role", "assistant");
    if (content.n == 0 && n_call > 0)
        lg_jsonw_null(w, "content");
    else
        lg_jsonw_str(w, "content", content);
    if (reasoning.n > 0)
        reasoning_keys(w, t, reasoning);
    if (n_call > 0)
        calls_json(w, &c->parts);
    lg_jsonw_null(w, "refusal");
    lg_jsonw_close(w, '}');
    if (c->logprobs.n > 0)
        take_logprobs(w, c);
    else
        lg_jsonw_null(w, "logprobs");
    lg_jsonw_strz(w, "finish_reason", c->stats ? lg_openai_finish(c->stats->finish) : NULL);
    lg_jsonw_close(w, '}');
    w->out->failed = w->out->failed || c->failed || c->parts.full;
}

static void whole_body(lg_job *job, lg_buf *out)
{
    const state *t = job->state;
    lg_jsonw w = object_begin(job, "chat.completion", out);

    lg_jsonw_open(&w, "choices", '[');
    for (int i = 0; i < job->n_choice; i++)
        choice_json(&w, job, i);
    lg_jsonw_close(&w, ']');
    lg_openai_usage_json(&w, "usage", &t->usage);
    if (t->choice[0].stats)
        lg_openai_timings_json(&w, t->choice[0].stats);
    lg_jsonw_close(&w, '}');
}

static void finish(lg_job *job, lg_buf *out)
{
    const state *t = job->state;

    for (int i = 0; i < job->n_choice; i++)
        out->failed = out->failed || t->choice[i].failed;
    if (!job->stream) {
        whole_body(job, out);
        return;
    }
    if (t->include_usage) {
        lg_jsonw w;
        lg_sse_begin(out, NULL);
        w = object_begin(job, "chat.completion.chunk", out);
        lg_jsonw_open(&w, "choices", '[');
        lg_openai_usage_end(&w, &t->usage);
    }
    lg_sse_frame(out, NULL, LG_STR("[DONE]"));
}

const lg_dialect lg_dialect_chat = {.name = "chat",
                                    .setting = "openai",
                                    .shape = LG_SHAPE_OPENAI,
                                    .ping = LG_PING_COMMENT,
                                    .parse = parse,
                                    .open = open_stream,
                                    .event = event,
                                    .finish = finish,
                                    .fail = lg_openai_fail};
