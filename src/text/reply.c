/*
 * text/reply: see reply.h. Symbols, reasoning and content, stop strings, and how a reply ends; calls are in
 * reply_tool.c.
 *
 * White space at the start of reasoning or content waits, because what follows decides whether it is shown.
 * Content then passes the stop strings, which may hold back a little more.
 */
#include "text/reply.h"

#include <stdlib.h>

#include "text/reply_int.h"
#include "text/trim.h"

/* Each buffer starts with as much, so that ordinary replies are parsed without allocating. */
enum { ROOM = 1024 };

/* --- events --- */

bool lg_reply_keep(lg_reply *r, lg_buf *b, lg_str text)
{
    bool ok = lg_buf_adds(b, text);

    r->lost = r->lost || !ok;
    return ok;
}

void lg_reply_event(lg_reply *r, lg_event_kind kind, lg_str text)
{
    lg_event ev = {.kind = kind, .call = r->call.index, .text = text};

    if (r->state == ST_ENDED)
        return;
    if (text.n > 0 || kind == LG_EV_TOOL_START || kind == LG_EV_TOOL_END)
        r->fn(r->ctx, &ev);
}

// Content on its way out, through the stop strings.
static void content_out(lg_reply *r, lg_str text)
{
    lg_str ready;
    int found;

    if (!r->stop) {
        lg_reply_event(r, LG_EV_CONTENT, text);
        return;
    }
    if (r->state == ST_ENDED || text.n == 0)
        return;
    found = lg_stop_feed(r->stop, text, &ready);
    lg_reply_event(r, LG_EV_CONTENT, ready);
    if (found >= 0) {
        r->stop_index = found;
        r->state = ST_ENDED;
    }
}

// What the stop strings hold back can no longer become one.
static void content_flush(lg_reply *r)
{
    if (r->stop)
        lg_reply_event(r, LG_EV_CONTENT, lg_stop_flush(r->stop));
}

static void segment_out(lg_reply *r, const segment *s, lg_str text)
{
    if (s->discard)
        return;
    if (s->kind == LG_EV_CONTENT)
        content_out(r, text);
    else
        lg_reply_event(r, s->kind, text);
}

void lg_reply_segment_start(segment *s)
{
    s->visible = false;
    s->discard = false;
    lg_buf_clear(&s->held);
}

// Does white space at the edges of a segment go?
static bool strips(const lg_reply *r, const segment *s)
{
    return r->p.family == LG_TEMPLATE_V2 && !(r->p.verbatim && s->kind == LG_EV_CONTENT);
}

// White space in front waits for something visible; v2 drops it and lets white space behind wait as well.
void lg_reply_segment_text(lg_reply *r, segment *s, lg_str text)
{
    bool strip = strips(r, s);
    lg_str body = text;

    if (!s->visible) {
        body = lg_trim_left(text);
        if (!strip)
            (void)lg_reply_keep(r, &s->held, (lg_str){text.p, text.n - body.n});
        if (body.n == 0)
            return;
        s->visible = true;
    }
    lg_str seen = strip ? lg_trim_right(body) : body;
    if (seen.n > 0) {
        segment_out(r, s, lg_buf_str(&s->held));
        lg_buf_clear(&s->held);
        segment_out(r, s, seen);
    }
    if (seen.n < body.n)
        (void)lg_reply_keep(r, &s->held, (lg_str){body.p + seen.n, body.n - seen.n});
}

void lg_reply_segment_end(lg_reply *r, segment *s, bool keep_space)
{
    if (keep_space && !strips(r, s))
        segment_out(r, s, lg_buf_str(&s->held));
    lg_buf_clear(&s->held);
    if (s->kind == LG_EV_CONTENT)
        content_flush(r);
}

/* --- symbols --- */

static symbol classify(const lg_reply *r, int32_t id)
{
    const lg_special *s = &r->special;

    if (lg_vocab_is_eog(r->v, id))
        return SYM_EOG;
    for (size_t i = 0; i < r->p.n_stop_id; i++)
        if (id == r->p.stop_id[i])
            return SYM_EOG;
    if (!lg_vocab_is_added(r->v, id) || r->p.raw)
        return SYM_TEXT;
    if (id == s->think)
        return SYM_THINK;
    if (id == s->end_think)
        return SYM_END_THINK;
    if (id == s->assistant)
        return SYM_ASSISTANT;
    if (id == s->tool_call)
        return SYM_TOOL_CALL;
    return id == s->end_tool_call ? SYM_END_TOOL_CALL : SYM_NONE;
}

lg_str lg_reply_symbol_text(symbol s)
{
    switch (s) {
    case SYM_THINK: return LG_STR("<think>");
    case SYM_END_THINK: return LG_STR("</think>");
    case SYM_TOOL_CALL: return LG_STR("<tool_call>");
    case SYM_END_TOOL_CALL: return LG_STR("</tool_call>");
    case SYM_ASSISTANT: return LG_STR("<assistant>");
    default: return LG_STR("");
    }
}

/* --- reasoning and content --- */

static void to_reasoning(lg_reply *r, bool discard)
{
    lg_reply_segment_start(&r->reasoning);
    r->reasoning.discard = discard;
    r->state = ST_REASONING;
}

static void to_content(lg_reply *r)
{
    lg_reply_segment_start(&r->content);
    r->state = ST_CONTENT;
}

static void reasoning_symbol(lg_reply *r, symbol s)
{
    if (s == SYM_THINK && !r->reasoning.visible) { // the model repeats the tag that the prompt ends in
        lg_buf_clear(&r->reasoning.held);
    } else if (s == SYM_END_THINK) {
        lg_reply_segment_end(r, &r->reasoning, true);
        to_content(r);
    } else if (s == SYM_TOOL_CALL && r->p.n_tool > 0) {
        lg_reply_call_begin(r, ST_PROBE);
    } else {
        lg_reply_segment_text(r, &r->reasoning, lg_reply_symbol_text(s));
    }
}

static void content_symbol(lg_reply *r, symbol s)
{
    if (s == SYM_END_THINK && !r->content.visible) {
        lg_buf_clear(&r->content.held);
    } else if (s == SYM_THINK && !r->content.visible) {
        lg_buf_clear(&r->content.held);
        to_reasoning(r, !r->p.thinking);
    } else if (s == SYM_TOOL_CALL && r->p.n_tool > 0) {
        lg_reply_call_begin(r, ST_NAME);
    } else {
        lg_reply_segment_text(r, &r->content, lg_reply_symbol_text(s));
    }
}

static void take_text(lg_reply *r, lg_str text)
{
    while (text.n > 0 && r->state != ST_ENDED) {
        switch (r->state) {
        case ST_REASONING:
            lg_reply_segment_text(r, &r->reasoning, text);
            return;
        case ST_CONTENT:
            if (r->p.raw)
                content_out(r, text);
            else
                lg_reply_segment_text(r, &r->content, text);
            return;
        default:
            text = lg_reply_call_text(r, text);
        }
    }
}

// The end of the reply by its own end-of-generation id, or by <assistant>.
static void take_eog(lg_reply *r)
{
    bool done = false;

    while (!done && r->state != ST_ENDED) {
        done = true;
        if (r->state == ST_REASONING)
            lg_reply_segment_end(r, &r->reasoning, true);
        else if (r->state == ST_CONTENT)
            lg_reply_segment_end(r, &r->content, r->n_started == 0);
        else
            done = lg_reply_call_eog(r);
    }
    r->by_eog = r->state != ST_ENDED; // a stop string in what was held back came first
    r->state = ST_ENDED;
}

static void take_symbol(lg_reply *r, symbol s)
{
    bool done = false;

    while (!done && r->state != ST_ENDED) {
        bool inside = r->state == ST_VALUE || r->state == ST_VALUE_CLOSED || r->state == ST_VALUE_CALL;
        done = true;
        if (s == SYM_EOG || (s == SYM_ASSISTANT && !inside))
            take_eog(r);
        else if (r->state == ST_REASONING)
            reasoning_symbol(r, s);
        else if (r->state == ST_CONTENT)
            content_symbol(r, s);
        else
            done = lg_reply_call_symbol(r, s);
    }
}

/* --- the object --- */

lg_status lg_reply_create(const lg_vocab *v, const lg_reply_params *p, size_t max_bytes, lg_event_fn fn,
                          void *ctx, lg_reply **out, lg_err *err)
{
    lg_status st = LG_OK;
    lg_reply *r = calloc(1, sizeof *r);

    if (!r)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    r->v = v;
    r->special = *lg_vocab_special(v);
    r->p = *p;
    r->fn = fn;
    r->ctx = ctx;
    r->stop_index = -1;
    r->reasoning.kind = LG_EV_REASONING;
    r->content.kind = LG_EV_CONTENT;
    lg_buf *bufs[] = {&r->reasoning.held, &r->content.held, &r->call.markup, &r->call.key, &r->call.value,
                      &r->call.space, &r->call.keys, &r->text, &r->scratch};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++) {
        lg_buf_init(bufs[i], max_bytes);
        if (!lg_buf_room(bufs[i], max_bytes < ROOM ? max_bytes : ROOM) && st == LG_OK)
            st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
    }
    if (p->n_stop > 0 && st == LG_OK)
        st = lg_stop_create(p->stop, p->n_stop, max_bytes, &r->stop, err);
    if (st != LG_OK) {
        lg_reply_destroy(r);
        return st;
    }
    r->state = p->open_reasoning && !p->raw ? ST_REASONING : ST_CONTENT;
    *out = r;
    return LG_OK;
}

void lg_reply_destroy(lg_reply *r)
{
    if (!r)
        return;
    lg_buf_free(&r->reasoning.held);
    lg_buf_free(&r->content.held);
    lg_reply_call_free(r);
    lg_buf_free(&r->text);
    lg_buf_free(&r->scratch);
    lg_stop_destroy(r->stop);
    free(r);
}

static lg_status check(const lg_reply *r, lg_err *err)
{
    if (r->lost || r->text.failed || (r->stop && lg_stop_failed(r->stop)))
        return LG_FAIL(err, LG_E_LIMIT, "one piece of the reply is longer than %zu bytes, or memory ran out",
                       r->text.max);
    return LG_OK;
}

lg_status lg_reply_feed(lg_reply *r, int32_t id, bool *done, lg_err *err)
{
    bool was_reasoning = lg_reply_now(r) == LG_PHASE_REASONING;
    symbol s = classify(r, id);

    if (r->state != ST_ENDED && s != SYM_NONE) {
        lg_buf_clear(&r->text);
        if (s == SYM_TEXT)
            lg_detok_feed(&r->detok, lg_vocab_bytes(r->v, id), &r->text);
        else
            lg_detok_end(&r->detok, &r->text);
        take_text(r, lg_buf_str(&r->text));
        if (s != SYM_TEXT)
            take_symbol(r, s);
    }
    if (r->p.one_call && r->n_completed > 0 && r->state != ST_ENDED) {
        r->by_eog = true;
        r->state = ST_ENDED;
    }
    if (was_reasoning && lg_reply_now(r) == LG_PHASE_REASONING)
        r->n_reasoning++;
    *done = r->state == ST_ENDED;
    return check(r, err);
}

static lg_finish finish_of(const lg_reply *r, lg_end how)
{
    if (r->stop_index >= 0)
        return LG_FINISH_STOP;
    if (r->by_eog || how == LG_END_SCHEMA)
        return r->n_completed > 0 ? LG_FINISH_TOOL_CALLS : LG_FINISH_STOP;
    return how == LG_END_LENGTH || how == LG_END_CANCELLED ? LG_FINISH_LENGTH : LG_FINISH_STOP;
}

lg_status lg_reply_end(lg_reply *r, lg_end how, lg_finish *finish, lg_err *err)
{
    if (r->state != ST_ENDED) {
        lg_buf_clear(&r->text);
        lg_detok_end(&r->detok, &r->text);
        take_text(r, lg_buf_str(&r->text));
    }
    if (how == LG_END_EOG) {
        if (r->state != ST_ENDED)
            take_eog(r);
    } else if (r->state == ST_REASONING) {
        lg_reply_segment_end(r, &r->reasoning, true);
    } else if (r->state == ST_CONTENT) {
        lg_reply_segment_end(r, &r->content, r->n_started == 0);
    } else if (r->state != ST_ENDED) {
        lg_reply_call_cut(r);
    }
    r->state = ST_ENDED;
    *finish = finish_of(r, how);
    return check(r, err);
}

lg_reply_phase lg_reply_now(const lg_reply *r)
{
    switch (r->state) {
    case ST_REASONING:
    case ST_PROBE: return LG_PHASE_REASONING;
    case ST_CONTENT:
    case ST_ENDED: return LG_PHASE_CONTENT;
    default: return LG_PHASE_TOOL;
    }
}

int lg_reply_stop(const lg_reply *r)
{
    return r->stop_index;
}

int lg_reply_reasoning_tokens(const lg_reply *r)
{
    return r->n_reasoning;
}

int lg_reply_fallbacks(const lg_reply *r)
{
    return r->n_fallback;
}
