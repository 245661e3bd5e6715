/*
 * text/reply_tool: the part of the reply parser that reads calls (chat.md 4.2 TOOL, 4.3, 4.4). See
 * reply_int.h.
 *
 * Until the name is complete everything is kept as markup, since it may turn out to be text. From then on
 * arguments are written as they come; what was written is never taken back.
 *
 * Surprise: a closing tag inside a value closes it only if the right thing follows, because files that
 * document this very format are written through it. So one symbol of look-ahead is held after each closing
 * tag.
 */
#include <stdlib.h>
#include <string.h>

#include "text/reply_int.h"
#include "text/trim.h"

static const char arg_key[] = "<arg_key>", end_key[] = "</arg_key>", arg_value[] = "<arg_value>",
                  end_value[] = "</arg_value>";

static lg_str rest_of(lg_str s, size_t used)
{
    return (lg_str){s.p + used, s.n - used};
}

static void tag_start(tag *t, const char *text)
{
    *t = (tag){.text = lg_str_of(text)};
}

// One byte; true when the tag is complete, which starts it anew.
static bool tag_step(tag *t, char c)
{
    if (t->text.p[t->at] == c)
        t->at++;
    else
        t->at = c == t->text.p[0];
    if (t->at < t->text.n)
        return false;
    t->at = 0;
    return true;
}

/* --- beginning --- */

void lg_reply_call_begin(lg_reply *r, state how)
{
    tool_call *c = &r->call;

    lg_buf_clear(&c->markup);
    (void)lg_reply_keep(r, &c->markup, lg_reply_symbol_text(SYM_TOOL_CALL));
    c->name_at = c->markup.n;
    c->body_at = 0;
    r->state = how;
}

static const lg_tool *find_tool(const lg_reply *r, lg_str name)
{
    for (size_t i = 0; i < r->p.n_tool; i++)
        if (lg_str_eq(r->p.tool[i].name, name))
            return &r->p.tool[i];
    return NULL;
}

// The name as written in the markup up to `end`. A repeated opening tag spelled as text starts it anew.
static lg_str call_name(const tool_call *c, size_t end)
{
    const lg_str open = lg_reply_symbol_text(SYM_TOOL_CALL);
    lg_str s = {c->markup.p + c->name_at, end - c->name_at};

    for (size_t at = lg_str_find(s, open, 0); at != SIZE_MAX; at = lg_str_find(s, open, 0))
        s = rest_of(s, at + open.n);
    return lg_trim(s);
}

static void start_call(lg_reply *r, lg_str name)
{
    tool_call *c = &r->call;

    if (r->state == ST_PROBE)
        lg_reply_segment_end(r, &r->reasoning, true);
    else
        lg_reply_segment_end(r, &r->content, false);
    c->index = r->n_started++;
    c->declared = find_tool(r, name);
    c->n_pairs = 0;
    c->n_seen = 0;
    lg_buf_clear(&c->keys);
    lg_reply_event(r, LG_EV_TOOL_START, name);
}

static void end_call(lg_reply *r)
{
    lg_reply_event(r, LG_EV_TOOL_ARGS, r->call.n_pairs > 0 ? LG_STR("}") : LG_STR("{}"));
    lg_reply_event(r, LG_EV_TOOL_END, (lg_str){0});
    r->n_completed++;
    lg_reply_segment_start(&r->content);
    r->state = ST_CONTENT;
}

// It was no call: its markup is text of the content, or of the reasoning it stands in.
static void not_a_call(lg_reply *r)
{
    bool probe = r->state == ST_PROBE;

    r->n_fallback += !probe; // in reasoning it was a quotation
    r->state = probe ? ST_REASONING : ST_CONTENT;
    lg_reply_segment_text(r, probe ? &r->reasoning : &r->content, lg_buf_str(&r->call.markup));
    lg_buf_clear(&r->call.markup);
}

static void to_key(lg_reply *r)
{
    lg_buf_clear(&r->call.key);
    tag_start(&r->call.a, end_key);
    r->state = ST_KEY;
}

/* --- the name --- */

// Whether what follows <tool_call> in reasoning can still become the name of a declared tool and <arg_key>.
static bool probe_viable(const lg_reply *r)
{
    const tool_call *c = &r->call;
    lg_str s = lg_trim_left((lg_str){c->markup.p + c->name_at, c->markup.n - c->name_at});

    for (size_t i = 0; i < r->p.n_tool; i++) {
        lg_str name = r->p.tool[i].name;
        if (lg_str_starts(name, s))
            return true;
        if (lg_str_starts(s, name) && lg_str_starts(LG_STR(arg_key), lg_trim_left(rest_of(s, name.n))))
            return true;
    }
    return false;
}

static lg_str name_text(lg_reply *r, lg_str text)
{
    tool_call *c = &r->call;
    size_t before = c->markup.n;
    // a tag may have begun in earlier text
    size_t from = before - c->name_at > sizeof arg_key ? before - sizeof arg_key : c->name_at;

    if (!lg_reply_keep(r, &c->markup, text))
        return (lg_str){0};
    lg_str all = lg_buf_str(&c->markup);
    size_t key = lg_str_find(all, LG_STR(arg_key), from), end;
    size_t brace = r->state == ST_PROBE ? SIZE_MAX : lg_str_find(all, LG_STR("{"), from);

    if (key == SIZE_MAX && brace == SIZE_MAX) {
        if (r->state == ST_PROBE && !probe_viable(r))
            not_a_call(r);
        return (lg_str){0};
    }
    end = brace < key ? brace + 1 : key + sizeof arg_key - 1;
    c->markup.n = end; // the rest goes to the next state
    if (brace < key) {
        c->body_at = brace;
        r->state = ST_JSON;
    } else {
        lg_str name = call_name(c, key);
        if (name.n == 0 || (r->state == ST_PROBE && !find_tool(r, name))) {
            not_a_call(r);
        } else {
            start_call(r, name);
            to_key(r);
        }
    }
    return rest_of(text, end - before);
}

// A call whose name is followed by its end.
static void name_end(lg_reply *r)
{
    tool_call *c = &r->call;
    lg_str name = call_name(c, c->markup.n);

    if (name.n == 0 || (r->state == ST_PROBE && !find_tool(r, name))) {
        (void)lg_reply_keep(r, &c->markup, lg_reply_symbol_text(SYM_END_TOOL_CALL));
        not_a_call(r);
        return;
    }
    start_call(r, name);
    end_call(r);
}

static bool name_symbol(lg_reply *r, symbol s)
{
    tool_call *c = &r->call;
    bool probe = r->state == ST_PROBE;

    if (s == SYM_END_TOOL_CALL) {
        name_end(r);
        return true;
    }
    if (s == SYM_TOOL_CALL && (!probe || call_name(c, c->markup.n).n == 0)) { // the call starts anew
        (void)lg_reply_keep(r, &c->markup, lg_reply_symbol_text(s));
        c->name_at = c->markup.n;
        return true;
    }
    if (probe) {
        not_a_call(r);
        return false;
    }
    (void)lg_reply_keep(r, &c->markup, lg_reply_symbol_text(s));
    return true;
}

/* --- a body in JSON --- */

// Name and arguments of a JSON body; false when it is no call.
static bool json_call(lg_reply *r, lg_json_doc **doc, lg_str *name, lg_str *args)
{
    tool_call *c = &r->call;
    lg_str body = lg_trim((lg_str){c->markup.p + c->body_at, c->markup.n - c->body_at});
    lg_json_limits limits = {.max_bytes = body.n, .max_depth = 512};
    const lg_json *given;
    lg_status st;

    if (!lg_value_is_json(body, NULL)) // starts with a brace, so it is an object
        return false;
    *name = call_name(c, c->body_at);
    *args = body;
    if (name->n > 0)
        return true;
    st = lg_json_parse(body, &limits, doc, NULL);
    r->lost = r->lost || st == LG_E_NOMEM;
    if (st != LG_OK)
        return false;
    *name = lg_trim(lg_json_str(lg_json_get(lg_json_root(*doc), "name")));
    *args = LG_STR("{}");
    given = lg_json_get(lg_json_root(*doc), "arguments");
    if (name->n == 0 || (given && !lg_json_is(given, LG_JSON_OBJECT)))
        return false;
    return !given || lg_value_member(body, "arguments", args);
}

// True when the body was a call, which is then complete.
static bool json_end(lg_reply *r)
{
    lg_json_doc *doc = NULL;
    lg_str name = {0}, args = {0};
    bool ok = json_call(r, &doc, &name, &args);

    if (ok) {
        start_call(r, name);
        lg_reply_event(r, LG_EV_TOOL_ARGS, args);
        lg_reply_event(r, LG_EV_TOOL_END, (lg_str){0});
        r->n_completed++;
        r->n_fallback++;
        lg_reply_segment_start(&r->content);
        r->state = ST_CONTENT;
    }
    lg_json_free(doc);
    return ok;
}

/* --- keys and values --- */

// What was written to the scratch buffer goes out, but for `trim` bytes at either end.
static void scratch_out(lg_reply *r, size_t trim)
{
    if (r->scratch.failed)
        r->lost = true;
    else
        lg_reply_event(r, LG_EV_TOOL_ARGS, (lg_str){r->scratch.p + trim, r->scratch.n - 2 * trim});
    lg_buf_clear(&r->scratch);
}

// Brace or comma, key and colon.
static void write_key(lg_reply *r)
{
    lg_str key = lg_trim(lg_buf_str(&r->call.key));

    (void)lg_buf_addc(&r->scratch, r->call.n_pairs++ > 0 ? ',' : '{');
    (void)lg_json_quote(key, &r->scratch);
    (void)lg_buf_addc(&r->scratch, ':');
    scratch_out(r, 0);
}

// True the first time a key comes.
static bool new_key(lg_reply *r, lg_str key)
{
    tool_call *c = &r->call;

    for (size_t i = 0; i < c->n_seen; i++)
        if (lg_str_eq((lg_str){c->keys.p + c->seen[i].at, c->seen[i].n}, key))
            return false;
    if (c->n_seen == c->cap_seen) {
        size_t cap = c->cap_seen ? 2 * c->cap_seen : 16;
        key_span *p = realloc(c->seen, cap * sizeof *p);
        if (!p) {
            r->lost = true;
            return true;
        }
        c->seen = p;
        c->cap_seen = cap;
    }
    c->seen[c->n_seen++] = (key_span){c->keys.n, key.n};
    (void)lg_reply_keep(r, &c->keys, key);
    return true;
}

static void value_start(lg_reply *r)
{
    tool_call *c = &r->call;
    lg_str key = lg_trim(lg_buf_str(&c->key));

    c->ignore = !new_key(r, key);
    c->types = lg_value_types(c->declared ? c->declared->parameters : NULL, key);
    c->stream = !c->ignore && c->types == LG_T_STRING;
    lg_buf_clear(&c->value);
    if (c->stream) {
        write_key(r);
        lg_reply_event(r, LG_EV_TOOL_ARGS, LG_STR("\""));
    }
    tag_start(&c->a, end_value);
    r->state = ST_VALUE;
}

static void value_part(lg_reply *r, lg_str text)
{
    if (text.n == 0 || r->call.ignore)
        return;
    if (!r->call.stream) {
        (void)lg_reply_keep(r, &r->call.value, text);
        return;
    }
    (void)lg_json_quote(text, &r->scratch);
    scratch_out(r, 1); // without the quotes
}

static void value_end(lg_reply *r)
{
    tool_call *c = &r->call;

    if (c->ignore)
        return;
    if (c->stream) {
        lg_reply_event(r, LG_EV_TOOL_ARGS, LG_STR("\""));
        return;
    }
    write_key(r);
    lg_value_write(c->types, lg_buf_str(&c->value), &r->scratch);
    scratch_out(r, 0);
}

// Part of </arg_value> that turned out to be text.
static void flush_tag(lg_reply *r)
{
    value_part(r, (lg_str){end_value, r->call.a.at});
    r->call.a.at = 0;
}

static lg_str value_text(lg_reply *r, lg_str text)
{
    tag *t = &r->call.a;
    // bytes of the tag that came before this text; until they are settled nothing of it has passed
    size_t carried = t->at;

    for (size_t i = 0; i < text.n; i++) {
        if (carried > 0 && text.p[i] != t->text.p[t->at]) {
            value_part(r, (lg_str){end_value, carried});
            carried = 0;
        }
        if (!tag_step(t, text.p[i]))
            continue;
        if (carried == 0)
            value_part(r, (lg_str){text.p, i + 1 - t->text.n});
        lg_buf_clear(&r->call.space);
        tag_start(&r->call.a, arg_key);
        r->state = ST_VALUE_CLOSED;
        return rest_of(text, i + 1);
    }
    if (carried == 0)
        value_part(r, (lg_str){text.p, text.n - t->at});
    return (lg_str){0};
}

// The closing tag, or </tool_call>, and the white space behind it were text of the value. Part of <arg_key>
// that has matched meanwhile goes through the value again, because a closing tag may begin in it.
static void reopen_value(lg_reply *r, lg_str closing)
{
    size_t part = r->state == ST_VALUE_CLOSED ? r->call.a.at : 0;

    value_part(r, closing);
    value_part(r, lg_buf_str(&r->call.space));
    tag_start(&r->call.a, end_value);
    r->state = ST_VALUE;
    if (part > 0)
        (void)value_text(r, (lg_str){arg_key, part}); // too short to hold the whole tag
}

// Behind </arg_value>: white space, then <arg_key>, or it was text.
static lg_str closed_text(lg_reply *r, lg_str text)
{
    tool_call *c = &r->call;

    for (size_t i = 0; i < text.n;) {
        int32_t cp;
        int len = lg_utf8_step(text.p + i, text.n - i, &cp);
        if (c->a.at == 0 && lg_is_space(cp)) {
            (void)lg_reply_keep(r, &c->space, (lg_str){text.p + i, (size_t)len});
            i += (size_t)len;
            continue;
        }
        if (text.p[i] != c->a.text.p[c->a.at]) {
            reopen_value(r, LG_STR(end_value));
            return rest_of(text, i);
        }
        if (tag_step(&c->a, text.p[i++])) {
            value_end(r);
            to_key(r);
            return rest_of(text, i);
        }
    }
    return (lg_str){0};
}

// Behind </tool_call> inside a value: white space, then the end or another call, or it was text.
static lg_str call_closed_text(lg_reply *r, lg_str text)
{
    lg_str body = lg_trim_left(text);

    (void)lg_reply_keep(r, &r->call.space, (lg_str){text.p, text.n - body.n});
    if (body.n > 0)
        reopen_value(r, lg_reply_symbol_text(SYM_END_TOOL_CALL));
    return body;
}

static lg_str key_text(lg_reply *r, lg_str text)
{
    tool_call *c = &r->call;

    for (size_t i = 0; i < text.n; i++) {
        if (!tag_step(&c->a, text.p[i]))
            continue;
        if (!lg_reply_keep(r, &c->key, (lg_str){text.p, i + 1}))
            return (lg_str){0};
        c->key.n -= sizeof end_key - 1;
        tag_start(&c->a, arg_value);
        tag_start(&c->b, arg_key);
        r->state = ST_GAP;
        return rest_of(text, i + 1);
    }
    (void)lg_reply_keep(r, &c->key, text);
    return (lg_str){0};
}

static lg_str gap_text(lg_reply *r, lg_str text)
{
    for (size_t i = 0; i < text.n; i++) {
        bool value = tag_step(&r->call.a, text.p[i]), key = tag_step(&r->call.b, text.p[i]);
        if (value)
            value_start(r);
        else if (key) // a key without a value: the next one counts
            to_key(r);
        else
            continue;
        return rest_of(text, i + 1);
    }
    return (lg_str){0};
}

lg_str lg_reply_call_text(lg_reply *r, lg_str text)
{
    switch (r->state) {
    case ST_PROBE:
    case ST_NAME: return name_text(r, text);
    case ST_JSON: (void)lg_reply_keep(r, &r->call.markup, text); return (lg_str){0};
    case ST_KEY: return key_text(r, text);
    case ST_GAP: return gap_text(r, text);
    case ST_VALUE: return value_text(r, text);
    case ST_VALUE_CLOSED: return closed_text(r, text);
    default: LG_ASSERT(r->state == ST_VALUE_CALL); return call_closed_text(r, text);
    }
}

/* --- control symbols and ends --- */

static bool value_symbol(lg_reply *r, symbol s)
{
    flush_tag(r);
    if (s == SYM_END_TOOL_CALL) {
        lg_buf_clear(&r->call.space);
        r->state = ST_VALUE_CALL;
    } else {
        value_part(r, lg_reply_symbol_text(s));
    }
    return true;
}

bool lg_reply_call_symbol(lg_reply *r, symbol s)
{
    switch (r->state) {
    case ST_PROBE:
    case ST_NAME:
        return name_symbol(r, s);
    case ST_JSON:
        if (s == SYM_END_TOOL_CALL && json_end(r))
            return true;
        (void)lg_reply_keep(r, &r->call.markup, lg_reply_symbol_text(s));
        if (s == SYM_END_TOOL_CALL)
            not_a_call(r);
        return true;
    case ST_VALUE:
        return value_symbol(r, s);
    case ST_VALUE_CLOSED:
    case ST_VALUE_CALL: {
        bool closed = r->state == ST_VALUE_CLOSED;
        if (s == SYM_TOOL_CALL || (s == SYM_END_TOOL_CALL && closed)) {
            if (closed && r->call.a.at > 0) { // </arg_value> and the start of some other tag
                reopen_value(r, LG_STR(end_value));
                return false;
            }
            value_end(r);
            break;
        }
        reopen_value(r, closed ? LG_STR(end_value) : lg_reply_symbol_text(SYM_END_TOOL_CALL));
        return false;
    }
    case ST_KEY:
        if (s == SYM_THINK || s == SYM_END_THINK) {
            r->call.a.at = 0;
            (void)lg_reply_keep(r, &r->call.key, lg_reply_symbol_text(s));
            return true;
        }
        break;
    default:
        if (s == SYM_THINK || s == SYM_END_THINK) { // between key and value: skipped like any other text
            r->call.a.at = r->call.b.at = 0;
            return true;
        }
        break;
    }
    // </tool_call>, or <tool_call> in its place
    end_call(r);
    if (s == SYM_TOOL_CALL)
        lg_reply_call_begin(r, ST_NAME);
    return true;
}

bool lg_reply_call_eog(lg_reply *r)
{
    tool_call *c = &r->call;
    lg_str name;

    switch (r->state) {
    case ST_PROBE:
        not_a_call(r);
        return false;
    case ST_NAME:
        name = call_name(c, c->markup.n);
        if (!find_tool(r, name)) {
            not_a_call(r);
            return false;
        }
        start_call(r, name);
        break;
    case ST_JSON:
        if (json_end(r))
            return true;
        not_a_call(r);
        return false;
    case ST_VALUE_CLOSED:
        if (c->a.at > 0) {
            reopen_value(r, LG_STR(end_value));
            return false;
        }
        value_end(r);
        break;
    case ST_VALUE:
        flush_tag(r);
        value_end(r);
        break;
    case ST_VALUE_CALL:
        value_end(r);
        break;
    default: // a key without its value is dropped
        break;
    }
    end_call(r);
    return true;
}

void lg_reply_call_cut(lg_reply *r)
{
    if (r->state == ST_PROBE) {
        not_a_call(r);
        lg_reply_segment_end(r, &r->reasoning, true);
    } else if (r->state == ST_NAME || r->state == ST_JSON) {
        // stop strings may hold back text that stands before the call
        lg_reply_segment_end(r, &r->content, false);
    } else if (r->state == ST_VALUE_CLOSED && r->call.a.at == 0) {
        value_end(r);
    }
}

void lg_reply_call_free(lg_reply *r)
{
    tool_call *c = &r->call;

    lg_buf_free(&c->markup);
    lg_buf_free(&c->key);
    lg_buf_free(&c->value);
    lg_buf_free(&c->space);
    lg_buf_free(&c->keys);
    free(c->seen);
}
