/*
 * text/chat: see chat.h. The renderers of both families append pieces, each a control token, a slice of text
 * or a replayed call; at the end adjacent slices become one item, since pre-tokens reach across them.
 *
 * Surprise: a full arena is noticed once, at the end (builder.full); appending to a full builder does
 * nothing.
 */
#include "text/chat.h"

#include <string.h>

#include "text/trim.h"

static const char default_system[] =
    "You are a helpful, conversationally-fluent assistant made by Poolside. You are here "
    "to be helpful to users through natural language conversations.";
static const char tools_head[] = "### Tools\n\n"
                                 "You may call functions to assist with the user query.\n"
                                 "All available function signatures are listed below:\n"
                                 "<available_tools>\n";

typedef struct builder {
    const lg_chat *c;
    lg_arena *arena;
    lg_item *piece;
    size_t n_piece, cap_piece;
    lg_chat_mark *mark; /* `item` is the number of a piece until finish() */
    size_t n_mark, cap_mark;
    size_t byte;
    int last_user; /* the last real user message, or -1 */
    bool full;
} builder;

/* --- pieces and marks --- */

// Room for one more element of an array that grows in the arena.
static void *grow(builder *b, void *old, size_t n, size_t *cap, size_t size)
{
    void *p = old;

    if (n == *cap) {
        size_t more = *cap ? 2 * *cap : 32;
        p = lg_arena_alloc_n(b->arena, more, size);
        if (!p) {
            b->full = true;
            return old;
        }
        if (n > 0)
            memcpy(p, old, n * size);
        *cap = more;
    }
    return p;
}

static void add_piece(builder *b, lg_item piece, size_t bytes)
{
    b->piece = grow(b, b->piece, b->n_piece, &b->cap_piece, sizeof *b->piece);
    if (b->full)
        return;
    b->piece[b->n_piece++] = piece;
    b->byte += bytes;
}

static void text(builder *b, lg_str s)
{
    if (s.n > 0)
        add_piece(b, (lg_item){.kind = LG_ITEM_TEXT, .text = s}, s.n);
}

static lg_str control_text(int32_t id)
{
    switch (id) {
    case LG_ID_EOS: return LG_STR("\xE3\x80\x88|EOS|\xE3\x80\x89");
    case LG_ID_THINK: return LG_STR("<think>");
    case LG_ID_END_THINK: return LG_STR("</think>");
    case LG_ID_ASSISTANT: return LG_STR("<assistant>");
    case LG_ID_END_ASSISTANT: return LG_STR("</assistant>");
    case LG_ID_TOOL_CALL: return LG_STR("<tool_call>");
    default: LG_ASSERT(id == LG_ID_END_TOOL_CALL); return LG_STR("</tool_call>");
    }
}

static void control(builder *b, int32_t id)
{
    add_piece(b, (lg_item){.kind = LG_ITEM_CTRL, .id = id}, control_text(id).n);
}

static void mark(builder *b, lg_mark_kind kind, int message)
{
    b->mark = grow(b, b->mark, b->n_mark, &b->cap_mark, sizeof *b->mark);
    if (!b->full)
        b->mark[b->n_mark++] =
            (lg_chat_mark){.kind = kind, .message = message, .item = b->n_piece, .byte = b->byte};
}

static bool has_mark(const builder *b, lg_mark_kind kind)
{
    for (size_t i = 0; i < b->n_mark; i++)
        if (b->mark[i].kind == kind)
            return true;
    return false;
}

/* --- what both families share --- */

static bool family_v2(const builder *b)
{
    return b->c->family == LG_TEMPLATE_V2;
}

// A line break where v2 has one and s21 has none.
static void v2_break(builder *b)
{
    if (family_v2(b))
        text(b, LG_STR("\n"));
}

static void tag(builder *b, const char *open, lg_str content, const char *close)
{
    text(b, lg_str_of(open));
    v2_break(b);
    text(b, content);
    v2_break(b);
    text(b, lg_str_of(close));
    text(b, LG_STR("\n"));
}

static void instruction(builder *b)
{
    if (b->c->thinking) {
        text(b, LG_STR("Wrap your thinking in '"));
        control(b, LG_ID_THINK);
        text(b, LG_STR("', '"));
        control(b, LG_ID_END_THINK);
        text(b, LG_STR("' tags, followed by a function call. "));
    }
    text(
        b,
        LG_STR(
            "For each function call, return an unescaped XML-like object with function name and arguments within '"));
    control(b, LG_ID_TOOL_CALL);
    text(b, LG_STR("' and '"));
    control(b, LG_ID_END_TOOL_CALL);
    text(b, LG_STR("' tags, like here:\n"));
    if (b->c->thinking) {
        control(b, LG_ID_THINK);
        text(b, LG_STR(" your thoughts here "));
        control(b, LG_ID_END_THINK);
        text(b, LG_STR("\n"));
    }
    control(b, LG_ID_TOOL_CALL);
    text(b, LG_STR("function-name\n"
                   "<arg_key>argument-key</arg_key>\n"
                   "<arg_value>value-of-argument-key</arg_value>\n"));
    control(b, LG_ID_END_TOOL_CALL);
}

static void system_block(builder *b, lg_str sys)
{
    const lg_chat *c = b->c;
    bool has_sys = !lg_is_blank(sys), has_tools = c->n_tool > 0;

    if (!has_sys && !has_tools && (family_v2(b) || !c->thinking))
        return;
    text(b, LG_STR("<system>"));
    v2_break(b);
    if (has_sys) {
        v2_break(b);
        text(b, lg_trim_right(sys));
    }
    if (has_tools) {
        if (has_sys || family_v2(b))
            text(b, LG_STR("\n\n"));
        text(b, LG_STR(tools_head));
        for (size_t i = 0; i < c->n_tool; i++) {
            text(b, c->tool[i]);
            text(b, LG_STR("\n"));
        }
        text(b, LG_STR("</available_tools>"));
        if (family_v2(b)) {
            text(b, LG_STR("\n\n"));
            instruction(b);
        }
    }
    v2_break(b);
    text(b, LG_STR("</system>\n"));
    mark(b, LG_MARK_SYS, -1);
}

static void call(builder *b, const lg_chat_call *call)
{
    size_t start = b->n_piece;

    control(b, LG_ID_TOOL_CALL);
    text(b, call->name);
    v2_break(b);
    for (size_t i = 0; i < call->n_arg; i++) {
        text(b, LG_STR("<arg_key>"));
        text(b, call->arg[i].key);
        text(b, LG_STR("</arg_key>"));
        v2_break(b);
        text(b, LG_STR("<arg_value>"));
        text(b, call->arg[i].value);
        text(b, LG_STR("</arg_value>"));
        v2_break(b);
    }
    control(b, LG_ID_END_TOOL_CALL);
    if (call->replay && !b->full) { // the exact ids instead; `byte` stays where the rendered form left it
        b->n_piece = start;
        add_piece(b, (lg_item){.kind = LG_ITEM_IDS, .ids = call->replay, .n_ids = call->n_replay}, 0);
    }
    v2_break(b);
}

// <assistant> and the control token that says whether reasoning follows. Sets the marks of the turn when the
// answer to the last real user message begins here.
static void open_answer(builder *b, bool think, bool turn)
{
    turn = turn && !has_mark(b, LG_MARK_TURN);
    control(b, LG_ID_ASSISTANT);
    v2_break(b);
    // v2 writes an answer whose reasoning was dropped with </think> alone, so <think> itself will not last
    if (family_v2(b) && think &&
        (b->c->history == LG_HISTORY_NONE || (b->c->history == LG_HISTORY_TAIL && turn)))
        mark(b, LG_MARK_DURABLE, -1);
    control(b, think ? LG_ID_THINK : LG_ID_END_THINK);
    if (!turn)
        return;
    mark(b, LG_MARK_TURN, -1);
    if (b->c->history == LG_HISTORY_TAIL && (family_v2(b) || b->c->thinking) && !has_mark(b, LG_MARK_DURABLE))
        mark(b, LG_MARK_DURABLE, -1);
}

/* --- assistant turns --- */

typedef struct turn {
    lg_str reasoning, content;
    bool has_reasoning, open, open_think, is_answer; /* open: to be continued by the model */
} turn;

static void assistant_s21(builder *b, const lg_chat_message *m, const turn *t)
{
    bool think = b->c->thinking;

    open_answer(b, think, t->is_answer);
    if (think) {
        text(b, t->reasoning);
        if (t->open && t->open_think)
            return;
        control(b, LG_ID_END_THINK);
    }
    text(b, t->content);
    for (size_t i = 0; i < m->n_call; i++)
        call(b, &m->call[i]);
    if (t->open)
        return;
    control(b, LG_ID_END_ASSISTANT);
    text(b, LG_STR("\n"));
}

static void assistant_v2(builder *b, const lg_chat_message *m, const turn *t)
{
    bool open_think = t->open && t->open_think, think = t->reasoning.n > 0 || open_think;

    open_answer(b, think, t->is_answer);
    text(b, LG_STR("\n"));
    if (open_think) {
        text(b, lg_trim_left(t->reasoning));
        return;
    }
    if (think) {
        text(b, lg_trim(t->reasoning));
        text(b, LG_STR("\n"));
        control(b, LG_ID_END_THINK);
        text(b, LG_STR("\n"));
    }
    if (t->open && m->n_call == 0) {
        text(b, lg_trim_left(t->content));
        return;
    }
    if (!lg_is_blank(t->content)) {
        text(b, lg_trim(t->content));
        text(b, LG_STR("\n"));
    }
    for (size_t i = 0; i < m->n_call; i++)
        call(b, &m->call[i]);
    if (t->open)
        return;
    control(b, LG_ID_END_ASSISTANT);
    text(b, LG_STR("\n"));
}

static lg_str strip_breaks_left(lg_str s)
{
    while (s.n > 0 && s.p[0] == '\n') {
        s.p++;
        s.n--;
    }
    return s;
}

static lg_str strip_breaks_right(lg_str s)
{
    while (s.n > 0 && s.p[s.n - 1] == '\n')
        s.n--;
    return s;
}

static size_t find_last(lg_str hay, lg_str needle)
{
    size_t found = SIZE_MAX;

    for (size_t at = lg_str_find(hay, needle, 0); at != SIZE_MAX;
         at = lg_str_find(hay, needle, at + needle.n))
        found = at;
    return found;
}

// v2 takes reasoning out of content that contains think tags.
static void lift_reasoning(turn *t)
{
    const lg_str open = LG_STR("<think>"), close = LG_STR("</think>");
    size_t first = lg_str_find(t->content, close, 0), last, at;

    if (first == SIZE_MAX)
        return;
    if (!t->has_reasoning) {
        lg_str r = strip_breaks_right((lg_str){t->content.p, first});
        at = find_last(r, open);
        if (at != SIZE_MAX)
            r = (lg_str){r.p + at + open.n, r.n - at - open.n};
        t->reasoning = strip_breaks_left(r);
    }
    last = find_last(t->content, close) + close.n;
    t->content = strip_breaks_left((lg_str){t->content.p + last, t->content.n - last});
}

static void assistant(builder *b, size_t index)
{
    const lg_chat *c = b->c;
    const lg_chat_message *m = &c->message[index];
    bool open = c->continue_final && index + 1 == c->n_message;
    bool behind = (int)index > b->last_user;
    turn t = {.reasoning = m->reasoning,
              .content = m->content,
              .has_reasoning = m->reasoning.p != NULL,
              .open = open,
              .open_think = open && c->continue_open_think && (c->thinking || family_v2(b)),
              .is_answer = behind};

    if (family_v2(b))
        lift_reasoning(&t);
    if (!open && (c->history == LG_HISTORY_NONE || (c->history == LG_HISTORY_TAIL && !behind)))
        t.reasoning = (lg_str){0};
    if (family_v2(b))
        assistant_v2(b, m, &t);
    else
        assistant_s21(b, m, &t);
}

/* --- the whole prompt --- */

static bool real_user(const lg_chat_message *m)
{
    return m->role == LG_ROLE_USER && !m->tool_result_only && m->content.n > 0;
}

static void message(builder *b, size_t index)
{
    const lg_chat_message *m = &b->c->message[index];

    mark(b, LG_MARK_MESSAGE, (int)index);
    switch (m->role) {
    case LG_ROLE_SYSTEM: tag(b, "<system>", m->content, "</system>"); break;
    case LG_ROLE_USER: tag(b, "<user>", m->content, "</user>"); break;
    case LG_ROLE_TOOL: tag(b, "<tool_response>", m->content, "</tool_response>"); break;
    case LG_ROLE_ASSISTANT: assistant(b, index); break;
    }
}

// Pieces become items: adjacent text is joined, and the marks are told where their piece went.
static void finish(builder *b, lg_rendered *out)
{
    lg_item *item = LG_NEW_N(b->arena, lg_item, b->n_piece);
    size_t n_item = 0, m = 0;

    for (size_t i = 0; item && i < b->n_piece;) {
        size_t end = i, bytes = 0;
        while (end < b->n_piece && b->piece[end].kind == LG_ITEM_TEXT)
            bytes += b->piece[end++].text.n;
        if (end == i)
            end = i + 1;
        item[n_item] = b->piece[i];
        char *joined = end - i > 1 ? lg_arena_alloc(b->arena, bytes) : NULL;
        if (end - i > 1 && !joined)
            b->full = true;
        size_t at = 0;
        for (; i < end; i++) {
            for (; m < b->n_mark && b->mark[m].item == i; m++) {
                b->mark[m].item = n_item;
                b->mark[m].offset = at;
            }
            if (joined)
                memcpy(joined + at, b->piece[i].text.p, b->piece[i].text.n);
            at += b->piece[i].text.n;
        }
        if (joined)
            item[n_item].text = (lg_str){joined, bytes};
        n_item++;
    }
    for (; m < b->n_mark; m++)
        b->mark[m].item = n_item;
    if (!item)
        b->full = true;
    *out = (lg_rendered){.item = item, .n_item = n_item, .mark = b->mark, .n_mark = b->n_mark};
}

lg_status lg_chat_render(const lg_chat *c, lg_arena *a, lg_rendered *out, lg_err *err)
{
    builder b = {.c = c, .arena = a, .last_user = -1};
    lg_str sys = LG_STR(default_system);
    lg_rendered done;
    size_t i = 0;

    if (c->continue_final && (c->n_message == 0 || c->message[c->n_message - 1].role != LG_ROLE_ASSISTANT))
        return LG_FAIL(err, LG_E_INPUT,
                       "only an assistant message can be continued, and the last one is none");
    for (size_t k = 0; k < c->n_message; k++)
        if (real_user(&c->message[k]))
            b.last_user = (int)k;
    control(&b, LG_ID_EOS);
    if (c->n_message > 0 && c->message[0].role == LG_ROLE_SYSTEM) {
        sys = c->message[0].content;
        mark(&b, LG_MARK_MESSAGE, 0);
        i = 1;
    }
    system_block(&b, sys);
    for (; i < c->n_message; i++)
        message(&b, i);
    if (c->generation_prompt && !c->continue_final)
        open_answer(&b, c->thinking, true);
    if (!has_mark(&b, LG_MARK_DURABLE))
        mark(&b, LG_MARK_DURABLE, -1);
    finish(&b, &done);
    if (b.full)
        return LG_FAIL(err, LG_E_LIMIT, "the conversation needs more than %zu bytes of memory", a->limit);
    *out = done;
    return LG_OK;
}

/* --- the prompt as text and as ids --- */

lg_status lg_chat_text(const lg_rendered *r, const lg_vocab *v, lg_buf *out, lg_err *err)
{
    for (size_t i = 0; i < r->n_item; i++) {
        const lg_item *it = &r->item[i];
        if (it->kind == LG_ITEM_TEXT)
            (void)lg_buf_adds(out, it->text);
        else if (it->kind == LG_ITEM_CTRL)
            (void)lg_buf_adds(out, control_text(it->id));
        LG_ASSERT(it->kind != LG_ITEM_IDS || v);
        for (size_t k = 0; it->kind == LG_ITEM_IDS && k < it->n_ids; k++)
            (void)lg_buf_adds(out, lg_vocab_bytes(v, it->ids[k]));
    }
    if (out->failed)
        return LG_FAIL(err, LG_E_LIMIT, "the prompt is longer than %zu bytes", out->max);
    return LG_OK;
}

// The vocabulary's number for one of LG_ID_*, or -1.
static int32_t control_id(const lg_vocab *v, int32_t id)
{
    const lg_special *s = lg_vocab_special(v);

    switch (id) {
    case LG_ID_EOS: return s->bos;
    case LG_ID_THINK: return s->think;
    case LG_ID_END_THINK: return s->end_think;
    case LG_ID_ASSISTANT: return s->assistant;
    case LG_ID_END_ASSISTANT: return s->eot;
    case LG_ID_TOOL_CALL: return s->tool_call;
    default: return s->end_tool_call;
    }
}

static lg_status encode_item(const lg_bpe *b, const lg_item *it, lg_ids *out, lg_err *err)
{
    int32_t id;

    switch (it->kind) {
    case LG_ITEM_TEXT:
        return lg_bpe_encode(b, it->text, false, out, err);
    case LG_ITEM_IDS:
        for (size_t i = 0; i < it->n_ids; i++)
            LG_TRY(lg_ids_add(out, it->ids[i], err));
        return LG_OK;
    default:
        id = control_id(lg_bpe_vocab(b), it->id);
        if (id < 0)
            return LG_FAIL(err, LG_E_UNSUPPORTED,
                           "the vocabulary has no %s token, which the chat template needs",
                           control_text(it->id).p);
        return lg_ids_add(out, id, err);
    }
}

lg_status lg_chat_encode(const lg_bpe *b, lg_rendered *r, lg_ids *out, lg_err *err)
{
    size_t start = out->n, m = 0;

    for (size_t i = 0; i < r->n_item; i++) {
        size_t token = out->n, byte = 0;
        lg_status st = encode_item(b, &r->item[i], out, err);
        if (st != LG_OK) {
            out->n = start;
            return st;
        }
        for (; m < r->n_mark && r->mark[m].item == i; m++) {
            while (token < out->n) {
                size_t len = lg_vocab_bytes(lg_bpe_vocab(b), out->p[token]).n;
                if (byte + len > r->mark[m].offset)
                    break;
                byte += len;
                token++;
            }
            r->mark[m].token = token - start;
        }
    }
    for (; m < r->n_mark; m++)
        r->mark[m].token = out->n - start;
    LG_ASSERT(out->n > start && out->p[start] == lg_vocab_special(lg_bpe_vocab(b))->bos);
    return LG_OK;
}

bool lg_chat_ends_in_reasoning(const lg_vocab *v, const int32_t *ids, size_t n)
{
    const lg_special *sp = lg_vocab_special(v);

    for (size_t i = n; i-- > 0;) {
        if (ids[i] == sp->think && sp->think >= 0)
            return true;
        if ((ids[i] == sp->end_think && sp->end_think >= 0) ||
            (ids[i] == sp->assistant && sp->assistant >= 0))
            return false;
    }
    return false;
}
