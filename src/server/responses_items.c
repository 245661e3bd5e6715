/*
 * server/responses_items: what the model writes -> output items, one after the other, with the events of
 * their life (api.md 5.4). The same items, ids and texts stand in the events and in the final object.
 *
 * Surprise: a custom tool takes free text, but the model writes JSON with one string. The string is unescaped
 * while it arrives when it is called `input`; under another name it is known only at the end.
 */
#include <stdio.h>
#include <string.h>

#include "server/responses_int.h"

enum { ARGUMENTS_DEPTH = 512 };

static bool shows(const lg_job *job)
{
    return job->stream;
}

lg_jsonw lg_rframe_begin(lg_rstate *t, const char *type, lg_buf *out)
{
    lg_jsonw w = lg_sse_object(out, type);

    lg_jsonw_int(&w, "sequence_number", t->sequence++);
    return w;
}

void lg_rframe_end(lg_jsonw *w)
{
    lg_sse_object_end(w);
}

/* --- an item as JSON --- */

static void logprobs_json(lg_jsonw *w, lg_str entries)
{
    lg_jsonw_open(w, "logprobs", '[');
    if (entries.n > 0)
        lg_jsonw_raw(w, NULL, entries);
    lg_jsonw_close(w, ']');
}

static const char *status_of(const lg_ritem *it)
{
    return it->open ? "in_progress" : it->cut ? "incomplete" : "completed";
}

// `logprobs`: entries as JSON; only an output_text has them.
static void text_part(lg_jsonw *w, const char *key, const char *type, lg_str text, lg_str logprobs)
{
    lg_jsonw_open(w, key, '{');
    lg_jsonw_strz(w, "type", type);
    lg_jsonw_str(w, "text", text);
    if (strcmp(type, "output_text") == 0) {
        lg_jsonw_open(w, "annotations", '[');
        lg_jsonw_close(w, ']');
        logprobs_json(w, logprobs);
    }
    lg_jsonw_close(w, '}');
}

// An array of one part, or of none while the item is open.
static void parts(lg_jsonw *w, const char *key, const char *type, const lg_ritem *it, bool wanted)
{
    lg_jsonw_open(w, key, '[');
    if (wanted && !it->open)
        text_part(w, NULL, type, lg_text_str(&it->text), lg_text_str(&it->logprobs));
    lg_jsonw_close(w, ']');
}

static void sealed(lg_jsonw *w, const lg_rstate *t, const lg_ritem *it)
{
    lg_buf b;

    if (!t->sealed || it->open) {
        lg_jsonw_null(w, "encrypted_content");
        return;
    }
    lg_buf_init(&b, w->out->max);
    lg_responses_seal(lg_text_str(&it->text), &b);
    w->out->failed = w->out->failed || b.failed;
    lg_jsonw_str(w, "encrypted_content", lg_buf_str(&b));
    lg_buf_free(&b);
}

// The arguments as an action of the local shell: the model's own members, when they are an object.
static void shell_action(lg_jsonw *w, const lg_ritem *it)
{
    lg_json_limits limits = {.max_bytes = it->text.n, .max_depth = ARGUMENTS_DEPTH, .repair = true};
    lg_json_doc *doc = NULL;
    const lg_json *command;

    if (it->text.n > 0 && lg_json_parse(lg_text_str(&it->text), &limits, &doc, NULL) != LG_OK)
        doc = NULL; // cut or broken: no command
    command = doc ? lg_json_get(lg_json_root(doc), "command") : NULL;
    lg_jsonw_open(w, "action", '{');
    lg_jsonw_strz(w, "type", "exec");
    lg_jsonw_open(w, "command", '[');
    if (lg_json_is(command, LG_JSON_STRING))
        lg_jsonw_str(w, NULL, lg_json_str(command));
    for (size_t i = 0; lg_json_is(command, LG_JSON_ARRAY) && i < lg_json_len(command); i++)
        lg_jsonw_value(w, NULL, lg_json_at(command, i));
    lg_jsonw_close(w, ']');
    lg_jsonw_open(w, "env", '{');
    lg_jsonw_close(w, '}');
    lg_jsonw_value(w, "working_directory", doc ? lg_json_get(lg_json_root(doc), "working_directory") : NULL);
    lg_jsonw_value(w, "timeout_ms", doc ? lg_json_get(lg_json_root(doc), "timeout_ms") : NULL);
    lg_jsonw_close(w, '}');
    lg_json_free(doc);
}

static void call_json(lg_jsonw *w, const lg_ritem *it)
{
    lg_rtool_kind kind = it->tool ? it->tool->kind : LG_RTOOL_FUNCTION;
    static const char *const type[] = {[LG_RTOOL_FUNCTION] = "function_call",
                                       [LG_RTOOL_CUSTOM] = "custom_tool_call",
                                       [LG_RTOOL_SHELL] = "local_shell_call"};

    lg_jsonw_strz(w, "type", type[kind]);
    lg_jsonw_strz(w, "status", status_of(it));
    lg_jsonw_strz(w, "call_id", it->call_id);
    if (kind == LG_RTOOL_SHELL) {
        shell_action(w, it);
        return;
    }
    lg_jsonw_str(w, "name", it->tool ? it->tool->name : it->name);
    if (it->tool && it->tool->space.n > 0)
        lg_jsonw_str(w, "namespace", it->tool->space);
    if (kind == LG_RTOOL_CUSTOM)
        lg_jsonw_str(w, "input", it->open ? LG_STR("") : lg_text_str(&it->raw));
    else
        lg_jsonw_str(w, "arguments", it->open ? LG_STR("") : lg_text_str(&it->text));
}

void lg_ritem_json(lg_jsonw *w, const char *key, const lg_rstate *t, const lg_ritem *it)
{
    lg_jsonw_open(w, key, '{');
    lg_jsonw_strz(w, "id", it->id);
    switch (it->kind) {
    case LG_RITEM_REASONING:
        lg_jsonw_strz(w, "type", "reasoning");
        parts(w, "summary", "summary_text", it, t->summary);
        parts(w, "content", "reasoning_text", it, true);
        sealed(w, t, it);
        break;
    case LG_RITEM_MESSAGE:
        lg_jsonw_strz(w, "type", "message");
        lg_jsonw_strz(w, "status", status_of(it));
        lg_jsonw_strz(w, "role", "assistant");
        parts(w, "content", "output_text", it, true);
        break;
    case LG_RITEM_CALL: call_json(w, it); break;
    }
    lg_jsonw_close(w, '}');
}

/* --- events --- */

static lg_jsonw item_frame(lg_rstate *t, const char *type, const lg_ritem *it, lg_buf *out)
{
    lg_jsonw w = lg_rframe_begin(t, type, out);

    lg_jsonw_strz(&w, "item_id", it->id);
    lg_jsonw_int(&w, "output_index", it->index);
    return w;
}

static void whole_item(lg_rstate *t, const char *type, const lg_ritem *it, lg_buf *out)
{
    lg_jsonw w = lg_rframe_begin(t, type, out);

    lg_jsonw_int(&w, "output_index", it->index);
    lg_ritem_json(&w, "item", t, it);
    lg_rframe_end(&w);
}

// A frame with one text, "delta", "text", "arguments" or "input"; `index_key` NULL: without an index.
static void text_frame(lg_rstate *t, const char *type, const char *index_key, const char *key, lg_str text,
                       const lg_ritem *it, lg_buf *out)
{
    lg_jsonw w = item_frame(t, type, it, out);

    if (index_key)
        lg_jsonw_int(&w, index_key, 0);
    lg_jsonw_str(&w, key, text);
    if (strcmp(type, "response.output_text.delta") == 0)
        logprobs_json(&w, lg_text_str(&t->logprobs));
    else if (strcmp(type, "response.output_text.done") == 0)
        logprobs_json(&w, lg_text_str(&it->logprobs));
    if (strcmp(type, "response.function_call_arguments.done") == 0)
        lg_jsonw_str(&w, "name", it->tool ? it->tool->name : it->name);
    lg_rframe_end(&w);
}

static void part_frame(lg_rstate *t, const char *type, const char *index_key, const char *part_type,
                       lg_str text, const lg_ritem *it, lg_buf *out)
{
    lg_jsonw w = item_frame(t, type, it, out);

    lg_jsonw_int(&w, index_key, 0);
    text_part(&w, "part", part_type, text, it->part ? lg_text_str(&it->logprobs) : LG_STR(""));
    lg_rframe_end(&w);
}

/* --- custom tools --- */

static const char input_head[] = "{\"input\":\"";

// The value of four hexadecimal digits, or -1.
static int32_t hex4(const char *p)
{
    int32_t v = 0;

    for (int i = 0; i < 4; i++) {
        int c = p[i], d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c - 'A' + 10;
        if (d < 0 || d > 15)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

// One escape at p, n bytes left: its length, or 0 when it is not complete yet. The text goes to out[4].
static size_t unescape(const char *p, size_t n, char out[4], int *n_out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at;
    int32_t cp;

    if (n < 2)
        return 0;
    if (p[1] != 'u') {
        at = p[1] ? strchr(from, p[1]) : NULL;
        out[0] = at ? to[at - from] : p[1];
        *n_out = 1;
        return 2;
    }
    if (n < 6)
        return 0;
    cp = hex4(p + 2);
    if (cp >= 0xD800 && cp < 0xDC00 && n < 12)
        return 0;
    if (cp >= 0xD800 && cp < 0xDC00 && p[6] == '\\' && p[7] == 'u' && hex4(p + 8) >= 0xDC00 &&
        hex4(p + 8) < 0xE000) {
        *n_out = lg_utf8_put(0x10000 + ((cp - 0xD800) << 10) + (hex4(p + 8) - 0xDC00), out);
        return 12;
    }
    *n_out = lg_utf8_put(cp < 0 || (cp >= 0xD800 && cp < 0xE000) ? 0xFFFD : cp, out);
    return 6;
}

// What can be read of the input so far: appended to it->raw.
static bool scan_input(lg_ritem *it, lg_arena *a)
{
    const char *p = it->text.p;
    size_t head = sizeof input_head - 1;
    char one[4];
    int n_one = 0;

    if (it->scanned == 0) {
        if (it->text.n < head)
            return true;
        it->direct = memcmp(p, input_head, head) == 0;
        it->scanned = head;
    }
    while (it->direct && it->scanned < it->text.n && p[it->scanned] != '"') {
        size_t from = it->scanned, to = from, step;
        while (to < it->text.n && p[to] != '"' && p[to] != '\\')
            to++;
        if (!lg_text_add(&it->raw, a, (lg_str){p + from, to - from}))
            return false;
        it->scanned = to;
        if (to == it->text.n || p[to] == '"')
            break;
        step = unescape(p + to, it->text.n - to, one, &n_one);
        if (step == 0)
            break;
        if (!lg_text_add(&it->raw, a, (lg_str){one, (size_t)n_one}))
            return false;
        it->scanned = to + step;
    }
    return true;
}

// The input when the model called it otherwise: `input` anywhere, else the only string, else the arguments as
// they are.
static bool find_input(lg_ritem *it, lg_arena *a)
{
    lg_json_limits limits = {.max_bytes = it->text.n, .max_depth = ARGUMENTS_DEPTH, .repair = true};
    lg_json_doc *doc = NULL;
    const lg_json *found = NULL;
    size_t n_string = 0;
    bool ok;

    if (it->text.n > 0 && lg_json_parse(lg_text_str(&it->text), &limits, &doc, NULL) != LG_OK)
        doc = NULL; // broken: taken as it is
    if (doc)
        found = lg_json_get(lg_json_root(doc), "input");
    for (size_t i = 0; doc && !lg_json_is(found, LG_JSON_STRING) && i < lg_json_len(lg_json_root(doc)); i++)
        n_string += lg_json_is(lg_json_member(lg_json_root(doc), i, NULL), LG_JSON_STRING);
    for (size_t i = 0; n_string == 1 && !lg_json_is(found, LG_JSON_STRING); i++)
        found = lg_json_member(lg_json_root(doc), i, NULL);
    ok = lg_text_add(&it->raw, a,
                     lg_json_is(found, LG_JSON_STRING) ? lg_json_str(found) : lg_text_str(&it->text));
    lg_json_free(doc);
    return ok;
}

/* --- life of an item --- */

static lg_ritem *open_item(lg_job *job, lg_ritem_kind kind, const lg_job_event *ev, lg_buf *out)
{
    lg_rstate *t = job->state;
    lg_ritem *it = LG_NEW(&job->arena, lg_ritem);
    const char *prefix = kind == LG_RITEM_REASONING ? "rs_" : kind == LG_RITEM_MESSAGE ? "msg_" : "fc_";

    if (!it) {
        t->failed = true;
        return NULL;
    }
    *it = (lg_ritem){.kind = kind, .index = t->n_item++, .open = true};
    if (kind == LG_RITEM_CALL) {
        it->call_id = lg_job_call_id(job, ev->choice, ev->reply.call);
        it->name = (lg_str){lg_arena_dup(&job->arena, ev->reply.text.p, ev->reply.text.n), ev->reply.text.n};
        t->failed = t->failed || !it->name.p;
        it->tool = lg_responses_tool(&t->tools, it->name);
        if (it->tool && it->tool->kind != LG_RTOOL_FUNCTION)
            prefix = it->tool->kind == LG_RTOOL_CUSTOM ? "ctc_" : "lsh_";
    }
    lg_random_id(prefix, it->id, sizeof it->id);
    *(t->last ? &t->last->next : &t->first) = it;
    t->last = it;
    if (shows(job))
        whole_item(t, "response.output_item.added", it, out);
    return it;
}

static void show_text(lg_rstate *t, lg_ritem *it, lg_str text, lg_buf *out)
{
    if (it->kind == LG_RITEM_MESSAGE) {
        if (!it->part)
            part_frame(t, "response.content_part.added", "content_index", "output_text", LG_STR(""), it, out);
        text_frame(t, "response.output_text.delta", "content_index", "delta", text, it, out);
    } else {
        if (!it->part && t->summary)
            part_frame(t, "response.reasoning_summary_part.added", "summary_index", "summary_text",
                       LG_STR(""), it, out);
        if (!it->part) // the SDK takes no delta before its part was announced
            part_frame(t, "response.content_part.added", "content_index", "reasoning_text", LG_STR(""), it,
                       out);
        if (t->summary)
            text_frame(t, "response.reasoning_summary_text.delta", "summary_index", "delta", text, it, out);
        text_frame(t, "response.reasoning_text.delta", "content_index", "delta", text, it, out);
    }
    it->part = true;
}

// The log-probabilities that have come belong to this item.
static void take_logprobs(lg_job *job, lg_ritem *it)
{
    lg_rstate *t = job->state;
    bool first = it->logprobs.n == 0;

    if (it->kind != LG_RITEM_MESSAGE || t->logprobs.n == 0)
        return;
    t->failed = (!first && !lg_text_add(&it->logprobs, &job->arena, LG_STR(","))) ||
                !lg_text_add(&it->logprobs, &job->arena, lg_text_str(&t->logprobs)) || t->failed;
    t->logprobs.n = 0;
}

static void add_text(lg_job *job, lg_ritem_kind kind, const lg_job_event *ev, lg_buf *out)
{
    lg_rstate *t = job->state;
    lg_ritem *it = t->last;

    if (!it || !it->open || it->kind != kind) {
        lg_responses_close(job, false, out);
        it = open_item(job, kind, ev, out);
    }
    if (!it)
        return;
    t->failed = !lg_text_add(&it->text, &job->arena, ev->reply.text) || t->failed;
    if (shows(job))
        show_text(t, it, ev->reply.text, out);
    take_logprobs(job, it);
}

static void add_arguments(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    lg_rstate *t = job->state;
    lg_ritem *it = t->last;
    lg_rtool_kind kind;
    size_t before;

    if (!it || it->kind != LG_RITEM_CALL)
        return;
    kind = it->tool ? it->tool->kind : LG_RTOOL_FUNCTION;
    t->failed = !lg_text_add(&it->text, &job->arena, ev->reply.text) || t->failed;
    if (kind == LG_RTOOL_FUNCTION && shows(job))
        text_frame(t, "response.function_call_arguments.delta", NULL, "delta", ev->reply.text, it, out);
    if (kind != LG_RTOOL_CUSTOM)
        return;
    before = it->raw.n;
    t->failed = !scan_input(it, &job->arena) || t->failed;
    if (shows(job) && it->raw.n > before)
        text_frame(t, "response.custom_tool_call_input.delta", NULL, "delta",
                   (lg_str){it->raw.p + before, it->raw.n - before}, it, out);
}

static void close_text(lg_rstate *t, const lg_ritem *it, lg_buf *out)
{
    lg_str text = lg_text_str(&it->text);

    if (it->kind == LG_RITEM_MESSAGE) {
        text_frame(t, "response.output_text.done", "content_index", "text", text, it, out);
        part_frame(t, "response.content_part.done", "content_index", "output_text", text, it, out);
        return;
    }
    if (t->summary) {
        text_frame(t, "response.reasoning_summary_text.done", "summary_index", "text", text, it, out);
        part_frame(t, "response.reasoning_summary_part.done", "summary_index", "summary_text", text, it, out);
    }
    text_frame(t, "response.reasoning_text.done", "content_index", "text", text, it, out);
    part_frame(t, "response.content_part.done", "content_index", "reasoning_text", text, it, out);
}

static void close_call(lg_job *job, lg_ritem *it, lg_buf *out)
{
    lg_rstate *t = job->state;
    lg_rtool_kind kind = it->tool ? it->tool->kind : LG_RTOOL_FUNCTION;

    if (kind == LG_RTOOL_CUSTOM && !it->direct && !it->cut) {
        t->failed = !find_input(it, &job->arena) || t->failed;
        if (shows(job) && it->raw.n > 0)
            text_frame(t, "response.custom_tool_call_input.delta", NULL, "delta", lg_text_str(&it->raw), it,
                       out);
    }
    if (!shows(job))
        return;
    if (kind == LG_RTOOL_CUSTOM)
        text_frame(t, "response.custom_tool_call_input.done", NULL, "input", lg_text_str(&it->raw), it, out);
    else if (kind == LG_RTOOL_FUNCTION)
        text_frame(t, "response.function_call_arguments.done", NULL, "arguments", lg_text_str(&it->text), it,
                   out);
}

void lg_responses_close(lg_job *job, bool cut, lg_buf *out)
{
    lg_rstate *t = job->state;
    lg_ritem *it = t->last;

    if (!it || !it->open)
        return;
    it->cut = cut;
    take_logprobs(job, it); // of tokens without a text of their own
    if (it->kind == LG_RITEM_CALL)
        close_call(job, it, out);
    else if (shows(job))
        close_text(t, it, out);
    it->open = false;
    if (shows(job))
        whole_item(t, "response.output_item.done", it, out);
}

void lg_responses_reply(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    lg_rstate *t = job->state;

    switch (ev->reply.kind) {
    case LG_EV_REASONING:
        if (!t->hide)
            add_text(job, LG_RITEM_REASONING, ev, out);
        break;
    case LG_EV_CONTENT: add_text(job, LG_RITEM_MESSAGE, ev, out); break;
    case LG_EV_TOOL_START:
        lg_responses_close(job, false, out);
        t->logprobs.n = 0; // of white space before the call
        (void)open_item(job, LG_RITEM_CALL, ev, out);
        break;
    case LG_EV_TOOL_ARGS: add_arguments(job, ev, out); break;
    case LG_EV_TOOL_END: lg_responses_close(job, false, out); break;
    }
}
