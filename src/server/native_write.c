/*
 * server/native_write: the answer of the native dialect, as one body or as a stream (api.md 8).
 *
 * A stream's last event is the single body without its text, so both forms are made by one function; the
 * parts are gathered in both.
 */
#include <string.h>

#include "base/clock.h"
#include "server/jobs.h"
#include "server/jsonw.h"
#include "server/native_int.h"
#include "server/openai.h"
#include "server/parts.h"

enum { PROGRESS_US = 500000 }; /* at most two a second */

typedef struct kept_token {
    lg_job_event event; /* kind TOKEN: nothing borrowed in it */
    struct kept_token *next;
} kept_token;

typedef struct state {
    const lg_vocab *vocab;
    lg_str model;
    bool echo_ids;
    lg_parts parts;
    kept_token *first_token, *last_token;
    uint64_t progress_us; /* when the last one was shown; 0: none was */
    lg_gen_stats stats;
    int stop;
} state;

lg_status lg_native_state(const lg_service *s, lg_job *job, lg_str model, bool echo_ids, lg_api_error *e)
{
    state *t = LG_NEW(&job->arena, state);

    if (!t)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs more than %zu bytes of memory",
                           job->arena.limit);
    *t = (state){.vocab = s->vocab, .model = model, .echo_ids = echo_ids, .stop = -1};
    job->state = t;
    return LG_OK;
}

/* --- the body --- */

static bool has_part(const state *t, lg_event_kind kind)
{
    for (const lg_reply_part *p = t->parts.first; p; p = p->next)
        if (p->kind == kind)
            return true;
    return false;
}

// All parts of one kind, joined.
static void write_joined(lg_jsonw *w, const char *key, const state *t, lg_event_kind kind)
{
    lg_buf b;

    lg_buf_init(&b, w->out->max);
    for (const lg_reply_part *p = t->parts.first; p; p = p->next)
        if (p->kind == kind)
            (void)lg_buf_adds(&b, p->text);
    lg_jsonw_str(w, key, lg_buf_str(&b));
    if (b.failed)
        w->out->failed = true;
    lg_buf_free(&b);
}

static void write_calls(lg_jsonw *w, const state *t)
{
    lg_jsonw_open(w, "tool_calls", '[');
    for (const lg_reply_part *p = t->parts.first; p; p = p->next) {
        if (p->kind != LG_EV_TOOL_START || !p->ended)
            continue;
        lg_jsonw_open(w, NULL, '{');
        lg_jsonw_strz(w, "id", p->id);
        lg_jsonw_str(w, "name", p->name);
        lg_jsonw_raw(w, "arguments", p->text);
        lg_jsonw_close(w, '}');
    }
    lg_jsonw_close(w, ']');
}

static const char *finish_word(const lg_gen_stats *s)
{
    if (s->finish == LG_FINISH_TOOL_CALLS)
        return "tool_calls";
    switch (s->end) {
    case LG_END_LENGTH: return "length";
    case LG_END_STOP_STRING: return "stop_string";
    case LG_END_CANCELLED: return "cancelled";
    case LG_END_SCHEMA: return "schema";
    default: return "stop";
    }
}

static const char *exit_word(lg_think_exit x)
{
    static const char *const word[] = {[LG_THINK_NONE] = NULL,
                                       [LG_THINK_NATURAL] = "natural",
                                       [LG_THINK_LIFTED] = "lifted",
                                       [LG_THINK_WRAPPED] = "wrapped",
                                       [LG_THINK_FORCED] = "forced"};
    return word[x];
}

static void write_ms(lg_jsonw *w, const char *key, uint64_t us)
{
    lg_jsonw_num(w, key, (double)us / 1000);
}

static void write_timings(lg_jsonw *w, const lg_job *job, const lg_gen_stats *s)
{
    lg_jsonw_open(w, "timings", '{');
    write_ms(w, "queue_ms", lg_job_queue_us(job));
    write_ms(w, "prefill_ms", s->prefill_us);
    write_ms(w, "decode_ms", s->decode_us);
    write_ms(w, "ttft_ms", lg_job_queue_us(job) + s->first_token_us);
    if (s->decode_us > 0 && s->output_tokens > 1) // the first came of the prefill
        lg_jsonw_num(w, "tokens_per_s", (double)(s->output_tokens - 1) * 1e6 / (double)s->decode_us);
    else
        lg_jsonw_null(w, "tokens_per_s");
    if (s->draft.drafted > 0)
        lg_jsonw_num(w, "draft_accept_rate", (double)s->draft.accepted / (double)s->draft.drafted);
    else
        lg_jsonw_null(w, "draft_accept_rate");
    lg_jsonw_close(w, '}');
}

static void write_usage(lg_jsonw *w, const lg_gen_stats *s)
{
    lg_jsonw_open(w, "usage", '{');
    lg_jsonw_int(w, "input_tokens", s->prompt_tokens);
    lg_jsonw_int(w, "cached_tokens", s->cached_tokens);
    lg_jsonw_int(w, "output_tokens", s->output_tokens);
    lg_jsonw_int(w, "thinking_tokens", s->think_tokens);
    lg_jsonw_int(w, "injected_tokens", s->injected_tokens);
    lg_jsonw_close(w, '}');
}

static void write_warnings(lg_jsonw *w, const lg_gen_stats *s)
{
    lg_jsonw_open(w, "warnings", '[');
    if (s->n_ban_skipped > 0) {
        lg_buf b;
        lg_buf_init(&b, 200);
        (void)lg_buf_addf(&b, "ban_strings also fit %d control token%s, which stay%s allowed",
                          s->n_ban_skipped, s->n_ban_skipped == 1 ? "" : "s",
                          s->n_ban_skipped == 1 ? "s" : "");
        lg_jsonw_str(w, NULL, lg_buf_str(&b));
        lg_buf_free(&b);
    }
    lg_jsonw_close(w, ']');
}

static void write_prompt_ids(lg_jsonw *w, const lg_job *job)
{
    lg_jsonw_open(w, "prompt_ids", '[');
    for (size_t i = 0; i < job->prompt.n; i++)
        lg_jsonw_int(w, NULL, job->prompt.p[i]);
    lg_jsonw_close(w, ']');
}

// Members of the answer; without `text` when the stream has carried it.
static void write_answer(lg_jsonw *w, const lg_job *job, const state *t)
{
    lg_jsonw_strz(w, "id", job->id);
    lg_jsonw_strz(w, "object", "lagoon.generation");
    lg_jsonw_int(w, "created", job->created);
    lg_jsonw_str(w, "model", t->model);
    if (has_part(t, LG_EV_REASONING))
        write_joined(w, "thinking", t, LG_EV_REASONING);
    else
        lg_jsonw_null(w, "thinking");
    if (!job->stream)
        write_joined(w, "text", t, LG_EV_CONTENT);
    write_calls(w, t);
    lg_jsonw_strz(w, "finish", finish_word(&t->stats));
    if (t->stop >= 0 && (size_t)t->stop < job->n_stop)
        lg_jsonw_str(w, "stop_string", job->stop[t->stop]);
    else
        lg_jsonw_null(w, "stop_string");
    lg_jsonw_int(w, "seed", (int64_t)t->stats.seed);
    write_usage(w, &t->stats);
    lg_jsonw_strz(w, "thinking_exit", exit_word(t->stats.think_exit));
    write_timings(w, job, &t->stats);
    if (job->n_logprobs >= 0 && !job->stream) {
        lg_jsonw_open(w, "logprobs", '[');
        for (const kept_token *k = t->first_token; k; k = k->next)
            lg_openai_logprob_json(w, t->vocab, &k->event);
        lg_jsonw_close(w, ']');
    }
    if (t->echo_ids)
        write_prompt_ids(w, job);
    write_warnings(w, &t->stats);
}

/* --- a stream --- */

static void text_event(lg_buf *out, const char *type, lg_str delta)
{
    lg_jsonw w = lg_sse_object(out, type);

    lg_jsonw_str(&w, "delta", delta);
    lg_sse_object_end(&w);
}

static void call_event(const lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    static const char *const type[] = {
        [LG_EV_TOOL_START] = "tool_start", [LG_EV_TOOL_ARGS] = "tool_args", [LG_EV_TOOL_END] = "tool_end"};
    lg_jsonw w = lg_sse_object(out, type[ev->reply.kind]);

    lg_jsonw_int(&w, "index", ev->reply.call);
    if (ev->reply.kind == LG_EV_TOOL_START) {
        lg_jsonw_strz(&w, "id", lg_job_call_id(job, ev->choice, ev->reply.call));
        lg_jsonw_str(&w, "name", ev->reply.text);
    } else if (ev->reply.kind == LG_EV_TOOL_ARGS) {
        lg_jsonw_str(&w, "delta", ev->reply.text);
    }
    lg_sse_object_end(&w);
}

static void reply_event(const lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    switch (ev->reply.kind) {
    case LG_EV_REASONING: text_event(out, "thinking", ev->reply.text); break;
    case LG_EV_CONTENT: text_event(out, "text", ev->reply.text); break;
    default: call_event(job, ev, out);
    }
}

static void progress_event(state *t, const lg_job_event *ev, lg_buf *out)
{
    uint64_t now = lg_now_us();
    lg_jsonw w;

    if (t->progress_us != 0 && now - t->progress_us < PROGRESS_US)
        return;
    t->progress_us = now;
    w = lg_sse_object(out, "progress");
    lg_jsonw_int(&w, "prefill_done", ev->done);
    lg_jsonw_int(&w, "prefill_total", ev->total);
    lg_sse_object_end(&w);
}

static void token_event(const state *t, const lg_job_event *ev, lg_buf *out)
{
    lg_jsonw w = lg_sse_object(out, "logprobs");

    lg_jsonw_open(&w, "content", '[');
    lg_openai_logprob_json(&w, t->vocab, ev);
    lg_jsonw_close(&w, ']');
    lg_sse_object_end(&w);
}

void lg_native_open(lg_job *job, const lg_job_admission *a, lg_buf *out)
{
    const state *t = job->state;
    lg_jsonw w = lg_sse_object(out, "start");

    lg_jsonw_strz(&w, "id", job->id);
    lg_jsonw_int(&w, "input_tokens", a->prompt_tokens);
    lg_jsonw_int(&w, "cached_tokens", a->cached_tokens);
    if (t->echo_ids)
        write_prompt_ids(&w, job);
    lg_sse_object_end(&w);
}

void lg_native_fail(lg_job *job, const lg_api_error *e, lg_buf *out)
{
    lg_sse_begin(out, "error");
    lg_api_error_json(e, LG_SHAPE_OPENAI, job->request_id, out);
    lg_sse_end(out);
}

/* --- the dialect's calls --- */

static void keep_token(lg_job *job, state *t, const lg_job_event *ev)
{
    kept_token *k = LG_NEW(&job->arena, kept_token);

    if (!k) {
        t->parts.full = true;
        return;
    }
    k->event = *ev;
    *(t->last_token ? &t->last_token->next : &t->first_token) = k;
    t->last_token = k;
}

void lg_native_event(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    state *t = job->state;

    switch (ev->kind) {
    case LG_JOB_PROGRESS:
        if (job->stream)
            progress_event(t, ev, out);
        break;
    case LG_JOB_REPLY:
        lg_parts_add(&t->parts, job, ev->choice, &ev->reply);
        if (job->stream)
            reply_event(job, ev, out);
        break;
    case LG_JOB_TOKEN:
        if (job->stream)
            token_event(t, ev, out);
        else
            keep_token(job, t, ev);
        break;
    case LG_JOB_CHOICE_END:
        t->stats = *ev->stats;
        t->stop = ev->stop;
        break;
    default: break; // the server ends the answer
    }
}

void lg_native_finish(lg_job *job, lg_buf *out)
{
    state *t = job->state;
    lg_jsonw w = {.out = out};

    if (t->parts.full)
        out->failed = true; // better no answer than a part of one
    if (job->stream) {
        w = lg_sse_object(out, "end");
        write_answer(&w, job, t);
        lg_sse_object_end(&w);
        return;
    }
    lg_jsonw_open(&w, NULL, '{');
    write_answer(&w, job, t);
    lg_jsonw_close(&w, '}');
}
