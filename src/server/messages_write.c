/*
 * server/messages_write: the answer of a Messages request, as one body or as a stream of events
 * (api.md 4.2, 4.3).
 *
 * A stream is strictly one block after the other: a block opens with its first text, and closes when text of
 * another kind comes, so each delta fits its block. Which block is open is all the state there is.
 */
#include <string.h>

#include "server/parts.h"
#include "server/jsonw.h"
#include "server/messages_int.h"

typedef enum block { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_TOOL } block;

/* A running hash of thinking text. Clients want a signature and send it back; nobody checks it. */
typedef struct seal {
    uint64_t a, b;
} seal;

typedef struct state {
    lg_str model;
    bool hide;
    block open;
    int index;           /* of the open block, or of the next one */
    seal seal;
    bool completed, cut; /* calls: at least one ended; the last one has not */
    lg_parts parts;    /* not streaming */
    lg_gen_stats stats;
    int stop;
} state;

/* --- signatures --- */

static seal seal_start(void)
{
    return (seal){0xCBF29CE484222325u, 0x9AE16A3B2F90404Fu};
}

static void seal_add(seal *s, lg_str text)
{
    for (size_t i = 0; i < text.n; i++) { // FNV-1a, twice: does not depend on how the text is cut
        s->a = (s->a ^ (unsigned char)text.p[i]) * 0x100000001B3u;
        s->b = (s->b ^ (unsigned char)text.p[i]) * 0x880355F21E6D1965u;
    }
}

static const char *seal_text(const seal *s, char out[25])
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char bytes[18] = {0};
    size_t at = 0;

    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(s->a >> 8 * i);
        bytes[8 + i] = (unsigned char)(s->b >> 8 * i);
    }
    for (size_t i = 0; i < 18; i += 3) {
        unsigned v = (unsigned)bytes[i] << 16 | (unsigned)bytes[i + 1] << 8 | bytes[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6)
            out[at++] = digit[v >> shift & 63];
    }
    memcpy(out + 22, "==", 3); // 16 bytes are 22 digits
    return out;
}

/* --- what both forms share --- */

lg_status lg_messages_state(lg_job *job, lg_str model, bool hide, lg_api_error *e)
{
    state *s = LG_NEW(&job->arena, state);

    if (!s)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs more than %zu bytes of memory",
                           job->arena.limit);
    *s = (state){.model = model, .hide = hide, .stop = -1};
    job->state = s;
    return LG_OK;
}

static void write_usage(lg_jsonw *w, int64_t prompt, int64_t cached, int64_t output, int64_t thinking)
{
    lg_jsonw_open(w, "usage", '{');
    lg_jsonw_int(w, "input_tokens", prompt - cached);
    lg_jsonw_int(w, "cache_creation_input_tokens", 0);
    lg_jsonw_int(w, "cache_read_input_tokens", cached);
    lg_jsonw_int(w, "output_tokens", output);
    if (thinking > 0) {
        lg_jsonw_open(w, "output_tokens_details", '{');
        lg_jsonw_int(w, "thinking_tokens", thinking);
        lg_jsonw_close(w, '}');
    }
    lg_jsonw_close(w, '}');
}

static void write_stats(lg_jsonw *w, const state *s)
{
    write_usage(w, s->stats.prompt_tokens, s->stats.cached_tokens, s->stats.output_tokens,
                s->stats.think_tokens);
}

// Beginning of a message object, up to its content.
static void write_head(lg_jsonw *w, const char *key, const lg_job *job, const state *s)
{
    lg_jsonw_open(w, key, '{');
    lg_jsonw_strz(w, "id", job->id);
    lg_jsonw_strz(w, "type", "message");
    lg_jsonw_strz(w, "role", "assistant");
    lg_jsonw_str(w, "model", s->model);
    lg_jsonw_open(w, "content", '[');
}

// A reply with a call that was cut is not one to act on, whatever else is in it.
static void write_stop(lg_jsonw *w, const lg_job *job, const state *s)
{
    const lg_str *stop = NULL;
    const char *reason = "end_turn";

    if (s->completed && !s->cut) {
        reason = "tool_use";
    } else if (s->stats.end == LG_END_STOP_STRING && s->stop >= 0 && (size_t)s->stop < job->n_stop) {
        reason = "stop_sequence";
        stop = &job->stop[s->stop];
    } else if (s->stats.end == LG_END_LENGTH || s->stats.end == LG_END_CANCELLED) {
        reason = "max_tokens";
    }
    lg_jsonw_strz(w, "stop_reason", reason);
    if (stop)
        lg_jsonw_str(w, "stop_sequence", *stop);
    else
        lg_jsonw_null(w, "stop_sequence");
}

/* --- a stream --- */

static void delta(state *s, lg_buf *out, const char *type, const char *key, lg_str text)
{
    lg_jsonw w = lg_sse_object(out, "content_block_delta");

    lg_jsonw_int(&w, "index", s->index);
    lg_jsonw_open(&w, "delta", '{');
    lg_jsonw_strz(&w, "type", type);
    lg_jsonw_str(&w, key, text);
    lg_jsonw_close(&w, '}');
    lg_sse_object_end(&w);
}

static void close_block(state *s, lg_buf *out)
{
    char text[25];

    if (s->open == BLOCK_NONE)
        return;
    if (s->open == BLOCK_THINKING)
        delta(s, out, "signature_delta", "signature", lg_str_of(seal_text(&s->seal, text)));
    lg_jsonw w = lg_sse_object(out, "content_block_stop");
    lg_jsonw_int(&w, "index", s->index);
    lg_sse_object_end(&w);
    s->open = BLOCK_NONE;
    s->index++;
}

// id and name of a call.
static void open_block(state *s, lg_buf *out, block kind, const char *id, lg_str name)
{
    close_block(s, out);
    lg_jsonw w = lg_sse_object(out, "content_block_start");
    lg_jsonw_int(&w, "index", s->index);
    lg_jsonw_open(&w, "content_block", '{');
    switch (kind) {
    case BLOCK_THINKING:
        lg_jsonw_strz(&w, "type", "thinking");
        lg_jsonw_strz(&w, "thinking", "");
        lg_jsonw_strz(&w, "signature", "");
        s->seal = seal_start();
        break;
    case BLOCK_TOOL:
        lg_jsonw_strz(&w, "type", "tool_use");
        lg_jsonw_strz(&w, "id", id);
        lg_jsonw_str(&w, "name", name);
        lg_jsonw_raw(&w, "input", LG_STR("{}"));
        break;
    default:
        lg_jsonw_strz(&w, "type", "text");
        lg_jsonw_strz(&w, "text", "");
    }
    lg_jsonw_close(&w, '}');
    lg_sse_object_end(&w);
    s->open = kind;
}

static void stream_text(state *s, lg_buf *out, block kind, lg_str text)
{
    if (s->open != kind)
        open_block(s, out, kind, NULL, (lg_str){0});
    if (kind == BLOCK_THINKING) {
        seal_add(&s->seal, text);
        delta(s, out, "thinking_delta", "thinking", text);
    } else {
        delta(s, out, "text_delta", "text", text);
    }
}

static void stream_event(lg_job *job, state *s, const lg_job_event *ev, lg_buf *out)
{
    switch (ev->reply.kind) {
    case LG_EV_REASONING: stream_text(s, out, BLOCK_THINKING, ev->reply.text); break;
    case LG_EV_CONTENT: stream_text(s, out, BLOCK_TEXT, ev->reply.text); break;
    case LG_EV_TOOL_START:
        open_block(s, out, BLOCK_TOOL, lg_job_call_id(job, ev->choice, ev->reply.call), ev->reply.text);
        break;
    case LG_EV_TOOL_ARGS: delta(s, out, "input_json_delta", "partial_json", ev->reply.text); break;
    case LG_EV_TOOL_END: close_block(s, out); break;
    }
}

void lg_messages_open(lg_job *job, const lg_job_admission *a, lg_buf *out)
{
    const state *s = job->state;
    lg_jsonw w = lg_sse_object(out, "message_start");

    write_head(&w, "message", job, s);
    lg_jsonw_close(&w, ']');
    lg_jsonw_null(&w, "stop_reason");
    lg_jsonw_null(&w, "stop_sequence");
    write_usage(&w, a->prompt_tokens, a->cached_tokens, 1, 0);
    lg_jsonw_close(&w, '}');
    lg_sse_object_end(&w);
    lg_sse_frame(out, "ping", LG_STR("{\"type\": \"ping\"}"));
}

static void finish_stream(lg_job *job, state *s, lg_buf *out)
{
    close_block(s, out);
    lg_jsonw w = lg_sse_object(out, "message_delta");
    lg_jsonw_open(&w, "delta", '{');
    write_stop(&w, job, s);
    lg_jsonw_close(&w, '}');
    write_stats(&w, s);
    lg_sse_object_end(&w);
    w = lg_sse_object(out, "message_stop");
    lg_sse_object_end(&w);
}

void lg_messages_fail(lg_job *job, const lg_api_error *e, lg_buf *out)
{
    lg_sse_begin(out, "error");
    lg_api_error_json(e, LG_SHAPE_ANTHROPIC, job->request_id, out);
    lg_sse_end(out);
}

/* --- one body --- */

static void write_part(lg_jsonw *w, const lg_reply_part *p)
{
    char text[25];
    seal sealed = seal_start();

    lg_jsonw_open(w, NULL, '{');
    switch (p->kind) {
    case LG_EV_REASONING:
        seal_add(&sealed, p->text);
        lg_jsonw_strz(w, "type", "thinking");
        lg_jsonw_str(w, "thinking", p->text);
        lg_jsonw_strz(w, "signature", seal_text(&sealed, text));
        break;
    case LG_EV_CONTENT:
        lg_jsonw_strz(w, "type", "text");
        lg_jsonw_str(w, "text", p->text);
        break;
    default:
        lg_jsonw_strz(w, "type", "tool_use");
        lg_jsonw_strz(w, "id", p->id);
        lg_jsonw_str(w, "name", p->name);
        lg_jsonw_raw(w, "input", p->text);
    }
    lg_jsonw_close(w, '}');
}

static void finish_body(lg_job *job, state *s, lg_buf *out)
{
    lg_jsonw w = lg_jsonw_start(out);

    if (s->parts.full)
        out->failed = true;
    write_head(&w, NULL, job, s);
    for (const lg_reply_part *p = s->parts.first; p; p = p->next)
        if (p->kind != LG_EV_TOOL_START || p->ended)
            write_part(&w, p);
    lg_jsonw_close(&w, ']');
    write_stop(&w, job, s);
    write_stats(&w, s);
    lg_jsonw_close(&w, '}');
}

/* --- the dialect's calls --- */

void lg_messages_event(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    state *s = job->state;

    if (ev->kind == LG_JOB_CHOICE_END) {
        s->stats = *ev->stats;
        s->stop = ev->stop;
    }
    if (ev->kind != LG_JOB_REPLY || (s->hide && ev->reply.kind == LG_EV_REASONING))
        return;
    if (ev->reply.kind == LG_EV_TOOL_START)
        s->cut = true;
    if (ev->reply.kind == LG_EV_TOOL_END) {
        s->cut = false;
        s->completed = true;
    }
    if (job->stream)
        stream_event(job, s, ev, out);
    else
        lg_parts_add(&s->parts, job, ev->choice, &ev->reply);
}

void lg_messages_finish(lg_job *job, lg_buf *out)
{
    state *s = job->state;

    if (job->stream)
        finish_stream(job, s, out);
    else
        finish_body(job, s, out);
}
