/*
 * text/chat_json: see chat_json.h.
 *
 * A message may become several: Anthropic-style tool results inside a user message turn into tool messages in
 * front of it. The paths in error subjects name the client's fields, not the result's.
 */
#include "text/chat_json.h"

#include <stdio.h>
#include <string.h>

#include "text/trim.h"

enum { ARGUMENTS_DEPTH = 512 };

static lg_status no_memory(const lg_arena *a, lg_err *err)
{
    return LG_FAIL(err, LG_E_LIMIT, "the request needs more than %zu bytes of memory", a->limit);
}

// Member that is there and not null, or NULL.
static const lg_json *field(const lg_json *object, const char *key)
{
    const lg_json *j = lg_json_get(object, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static bool field_is(const lg_json *object, const char *key, const char *value)
{
    const lg_json *j = field(object, key);

    return lg_json_is(j, LG_JSON_STRING) && lg_str_eqz(lg_json_str(j), value);
}

/* --- pieces of text --- */

/* Slices to be joined without anything between them; one slice alone is not copied. */
typedef struct joiner {
    lg_arena *a;
    char *p; /* NULL while there is at most one slice */
    lg_str one;
    size_t n, cap;
    bool any, full;
} joiner;

static void join_add(joiner *j, lg_str s)
{
    if (!j->any || (j->n == 0 && !j->p)) {
        j->one = s.p ? s : LG_STR("");
        j->n = s.n;
        j->any = true;
        return;
    }
    if (!j->p || s.n > j->cap - j->n) {
        size_t cap = 2 * (j->n + s.n) + 64;
        char *p = lg_arena_alloc(j->a, cap);
        if (!p) {
            j->full = true;
            return;
        }
        memcpy(p, j->p ? j->p : j->one.p, j->n);
        j->p = p;
        j->cap = cap;
    }
    if (s.n > 0)
        memcpy(j->p + j->n, s.p, s.n);
    j->n += s.n;
}

// p is NULL when nothing was added.
static lg_str joined(const joiner *j)
{
    return j->p ? (lg_str){j->p, j->n} : j->one;
}

// What a JSON value looks like in the prompt: a string's own text, anything else in Python's JSON form.
static lg_status value_text(const lg_json *j, bool copy, lg_arena *a, lg_str *out, lg_err *err)
{
    lg_buf b;
    const char *p;

    if (lg_json_is(j, LG_JSON_STRING) && !copy) {
        *out = lg_json_str(j);
        return LG_OK;
    }
    lg_buf_init(&b, a->limit);
    if (lg_json_is(j, LG_JSON_STRING))
        (void)lg_buf_adds(&b, lg_json_str(j));
    else
        (void)lg_json_dump(j, &b);
    p = b.failed ? NULL : lg_arena_dup(a, b.p ? b.p : "", b.n);
    *out = (lg_str){p, b.n};
    lg_buf_free(&b);
    return p ? LG_OK : no_memory(a, err);
}

/* --- calls --- */

static lg_status one_argument(lg_str key, lg_str value, lg_arena *a, lg_chat_call *call, lg_err *err)
{
    lg_chat_arg *arg = LG_NEW(a, lg_chat_arg);

    if (!arg)
        return no_memory(a, err);
    *arg = (lg_chat_arg){key, value};
    call->arg = arg;
    call->n_arg = 1;
    return LG_OK;
}

// copy: the object's document ends before the result does.
static lg_status object_arguments(const lg_json *object, bool copy, lg_arena *a, lg_chat_call *call,
                                  lg_err *err)
{
    size_t n = lg_json_len(object);
    lg_chat_arg *arg = LG_NEW_N(a, lg_chat_arg, n);

    if (!arg)
        return no_memory(a, err);
    for (size_t i = 0; i < n; i++) {
        const lg_json *value = lg_json_member(object, i, &arg[i].key);
        if (copy && !(arg[i].key.p = lg_arena_dup(a, arg[i].key.p, arg[i].key.n)))
            return no_memory(a, err);
        LG_TRY(value_text(value, copy, a, &arg[i].value, err));
    }
    call->arg = arg;
    call->n_arg = n;
    return LG_OK;
}

// The arguments of a call in history. What is no JSON object becomes one argument, `input`, since a broken
// old call must not make the session unusable.
static lg_status arguments(const lg_json *j, lg_arena *a, lg_chat_call *call, lg_err *err)
{
    lg_status st;
    lg_json_doc *doc = NULL;
    lg_str text;

    if (!j)
        return LG_OK;
    if (lg_json_is(j, LG_JSON_OBJECT))
        return object_arguments(j, false, a, call, err);
    LG_TRY(value_text(j, false, a, &text, err));
    if (!lg_json_is(j, LG_JSON_STRING))
        return one_argument(LG_STR("input"), text, a, call, err);
    if (lg_is_blank(text))
        return LG_OK;
    lg_json_limits limits = {.max_bytes = text.n, .max_depth = ARGUMENTS_DEPTH, .repair = true};
    st = lg_json_parse(text, &limits, &doc, NULL);
    if (st == LG_E_NOMEM)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    if (st == LG_OK && lg_json_is(lg_json_root(doc), LG_JSON_OBJECT))
        st = object_arguments(lg_json_root(doc), true, a, call, err);
    else
        st = one_argument(LG_STR("input"), text, a, call, err);
    lg_json_free(doc);
    return st;
}

static lg_status call_name(const lg_json *holder, const char *path, lg_str *out, lg_err *err)
{
    const lg_json *name = field(holder, "name");

    if (!lg_json_is(name, LG_JSON_STRING) || lg_json_str(name).n == 0) {
        (void)lg_err_subject(err, "%s.name", path);
        return LG_FAIL(err, LG_E_INPUT, "must be a non-empty string");
    }
    *out = lg_json_str(name);
    return LG_OK;
}

static lg_status fill_call(const lg_json *holder, const lg_json *args, const lg_json *id, const char *path,
                           lg_arena *a, lg_chat_call *call, lg_err *err)
{
    *call = (lg_chat_call){.id = lg_json_str(id)};
    LG_TRY(call_name(holder, path, &call->name, err));
    return arguments(args, a, call, err);
}

/* --- content --- */

/* What one message's content comes to. */
typedef struct content {
    joiner text, reasoning;
    lg_chat_call *call;
    size_t n_call;
} content;

static lg_status bad_part(const char *path, const char *key, lg_err *err, const char *why)
{
    (void)lg_err_subject(err, "%s%s", path, key);
    return LG_FAIL(err, LG_E_INPUT, "%s", why);
}

// The text of a text part, in any of the spellings that clients use.
static bool text_part(const lg_json *part, lg_str *out)
{
    const lg_json *t = field(part, "text");

    if (field_is(part, "type", "refusal") && !t)
        t = field(part, "refusal");
    else if (!field_is(part, "type", "text") && !field_is(part, "type", "input_text") &&
             !field_is(part, "type", "output_text") && !field_is(part, "type", "refusal"))
        return false;
    *out = lg_json_str(t);
    return true;
}

// What another service's own tools left in the history; nothing that the model could use.
static bool is_foreign(const lg_json *part)
{
    static const char *const whole[] = {"server_tool_use", "mcp_tool_use", "container_upload", "compaction"};
    lg_str type = lg_json_str(field(part, "type"));

    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        if (lg_str_eqz(type, whole[i]))
            return true;
    return lg_str_ends(type, LG_STR("_tool_result"));
}

// A line and its end, unless there is nothing in it.
static void join_line(joiner *j, const lg_json *line)
{
    if (lg_json_str(line).n == 0)
        return;
    join_add(j, lg_json_str(line));
    join_add(j, LG_STR("\n"));
}

static bool join_texts(joiner *j, const lg_json *parts)
{
    lg_str s;

    if (lg_json_is(parts, LG_JSON_STRING)) {
        join_add(j, lg_json_str(parts));
        return true;
    }
    for (size_t i = 0; i < lg_json_len(parts); i++) {
        if (!text_part(lg_json_at(parts, i), &s))
            return false;
        join_add(j, s);
    }
    return lg_json_is(parts, LG_JSON_ARRAY);
}

// Documents and search results whose content is text stand in the prompt as title, source and text. False for
// anything else.
static bool quoted_text(const lg_json *part, joiner *to)
{
    const lg_json *source = field(part, "source");
    joiner j = {.a = to->a};
    bool known = false;

    if (field_is(part, "type", "document")) {
        join_line(&j, field(part, "title"));
        join_line(&j, field(part, "context"));
        if (field_is(source, "type", "text") && lg_json_is(field(source, "data"), LG_JSON_STRING))
            known = join_texts(&j, field(source, "data"));
        else if (field_is(source, "type", "content"))
            known = join_texts(&j, field(source, "content"));
    } else if (field_is(part, "type", "search_result")) {
        join_line(&j, field(part, "title"));
        join_line(&j, source);
        known = join_texts(&j, field(part, "content"));
    }
    if (!known)
        return false;
    join_add(to, joined(&j));
    to->full = to->full || j.full;
    return true;
}

static bool is_tool_result(const lg_json *part)
{
    return field_is(part, "type", "tool_result");
}

static lg_status unknown_part(const lg_json *part, const char *path, lg_err *err)
{
    lg_str type = lg_json_str(field(part, "type"));
    (void)lg_err_subject(err, "%s.type", path);
    if (type.n == 0)
        return LG_FAIL(err, LG_E_INPUT, "must name the kind of part, such as \"text\"");
    return LG_FAIL(err, LG_E_INPUT, "\"%.*s\" is not supported here; content must be text",
                   (int)(type.n < 40 ? type.n : 40), type.p);
}

static lg_status one_part(const lg_json *part, lg_role role, bool drop_images, const char *path, lg_arena *a,
                          content *to, lg_err *err)
{
    static const char *const media[] = {"image",       "image_url", "input_image", "audio",   "input_audio",
                                        "input_file",  "file",      "video_url",   "document"};
    bool assistant = role == LG_ROLE_ASSISTANT;
    lg_str s;

    if (lg_json_is(part, LG_JSON_STRING)) {
        join_add(&to->text, lg_json_str(part));
        return LG_OK;
    }
    if (!lg_json_is(part, LG_JSON_OBJECT))
        return bad_part(path, "", err, "must be an object with a type");
    if (text_part(part, &s)) {
        join_add(&to->text, s);
        return LG_OK;
    }
    if (is_foreign(part) || quoted_text(part, &to->text))
        return LG_OK;
    if (field_is(part, "type", "tool_reference")) {
        join_add(&to->text, lg_json_str(field(part, "tool_name")));
        return LG_OK;
    }
    if (assistant && (field_is(part, "type", "thinking") || field_is(part, "type", "reasoning"))) {
        const lg_json *t = field(part, "thinking");
        join_add(&to->reasoning, lg_json_str(t ? t : field(part, "text")));
        return LG_OK;
    }
    if (assistant && field_is(part, "type", "redacted_thinking"))
        return LG_OK;
    if (assistant && field_is(part, "type", "tool_use"))
        return fill_call(part, field(part, "input"), field(part, "id"), path, a, &to->call[to->n_call++],
                         err);
    for (size_t i = 0; drop_images && i < sizeof media / sizeof media[0]; i++) {
        if (field_is(part, "type", media[i])) {
            join_add(&to->text, LG_STR("[image]"));
            return LG_OK;
        }
    }
    return unknown_part(part, path, err);
}

// String, array of parts, or nothing. Tool results are left to the caller.
static lg_status read_content(const lg_json *j, lg_role role, bool drop_images, const char *path, lg_arena *a,
                              content *to, lg_err *err)
{
    char sub[160];

    if (!j)
        return LG_OK;
    if (lg_json_is(j, LG_JSON_STRING)) {
        join_add(&to->text, lg_json_str(j));
        return LG_OK;
    }
    if (!lg_json_is(j, LG_JSON_ARRAY))
        return bad_part(path, "", err, "must be a string or an array of parts");
    for (size_t i = 0; i < lg_json_len(j); i++) {
        const lg_json *part = lg_json_at(j, i);
        if (role == LG_ROLE_USER && is_tool_result(part))
            continue;
        (void)snprintf(sub, sizeof sub, "%.120s[%zu]", path, i);
        LG_TRY(one_part(part, role, drop_images, sub, a, to, err));
    }
    if (to->text.full || to->reasoning.full)
        return no_memory(a, err);
    return LG_OK;
}

lg_status lg_chat_json_content(const lg_json *j, bool drop_images, const char *path, lg_arena *a, lg_str *out,
                               lg_err *err)
{
    content c = {.text = {.a = a}, .reasoning = {.a = a}};

    // in the role in which nothing but text is read
    LG_TRY(read_content(lg_json_is(j, LG_JSON_NULL) ? NULL : j, LG_ROLE_TOOL, drop_images, path, a, &c, err));
    *out = joined(&c.text);
    return LG_OK;
}

lg_status lg_chat_json_arguments(const lg_json *j, lg_arena *a, lg_chat_call *call, lg_err *err)
{
    return arguments(lg_json_is(j, LG_JSON_NULL) ? NULL : j, a, call, err);
}

/* --- messages --- */

typedef struct reader {
    lg_arena *a;
    bool drop_images;
    lg_chat_message *message;
    size_t n;
} reader;

static bool read_role(const lg_json *m, lg_role *out)
{
    static const struct {
        const char *name;
        lg_role role;
    } roles[] = {{"system", LG_ROLE_SYSTEM},       {"developer", LG_ROLE_SYSTEM}, {"user", LG_ROLE_USER},
                 {"assistant", LG_ROLE_ASSISTANT}, {"tool", LG_ROLE_TOOL},        {"function", LG_ROLE_TOOL}};

    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (field_is(m, "role", roles[i].name)) {
            *out = roles[i].role;
            return true;
        }
    }
    return false;
}

// Reasoning of an assistant message. p is NULL when the client sent none.
static lg_str read_reasoning(const lg_json *m, lg_arena *a, const content *c, bool *full)
{
    static const char *const text_field[] = {"reasoning", "reasoning_content"};
    static const char *const list_field[] = {"reasoning_details", "thinking_blocks"};
    joiner all = {.a = a};

    for (int i = 0; i < 2; i++)
        if (lg_json_is(field(m, text_field[i]), LG_JSON_STRING))
            return lg_json_str(field(m, text_field[i]));
    for (int i = 0; i < 2 && !all.any; i++) {
        const lg_json *list = field(m, list_field[i]);
        for (size_t k = 0; lg_json_is(list, LG_JSON_ARRAY) && k < lg_json_len(list); k++) {
            const lg_json *t = field(lg_json_at(list, k), i == 0 ? "text" : "thinking");
            if (lg_json_is(t, LG_JSON_STRING))
                join_add(&all, lg_json_str(t));
        }
    }
    *full = all.full;
    return all.any ? joined(&all) : joined(&c->reasoning);
}

static size_t count_parts(const lg_json *parts, const char *type)
{
    size_t n = 0;

    for (size_t i = 0; lg_json_is(parts, LG_JSON_ARRAY) && i < lg_json_len(parts); i++)
        n += field_is(lg_json_at(parts, i), "type", type);
    return n;
}

static lg_status read_calls(const lg_json *m, size_t index, lg_arena *a, content *c, lg_err *err)
{
    const lg_json *calls = field(m, "tool_calls"), *old = field(m, "function_call");
    char path[96];

    if (calls && !lg_json_is(calls, LG_JSON_ARRAY)) {
        (void)lg_err_subject(err, "messages[%zu].tool_calls", index);
        return LG_FAIL(err, LG_E_INPUT, "must be an array");
    }
    for (size_t i = 0; i < lg_json_len(calls); i++) {
        const lg_json *call = lg_json_at(calls, i), *f = field(call, "function");
        (void)snprintf(path, sizeof path, "messages[%zu].tool_calls[%zu].function", index, i);
        LG_TRY(fill_call(f, field(f, "arguments"), field(call, "id"), path, a, &c->call[c->n_call++], err));
    }
    if (old) {
        (void)snprintf(path, sizeof path, "messages[%zu].function_call", index);
        LG_TRY(fill_call(old, field(old, "arguments"), NULL, path, a, &c->call[c->n_call++], err));
    }
    return LG_OK;
}

// Tool results inside a user message, each as a message of its own.
static lg_status read_results(reader *r, const lg_json *parts, const char *path, lg_err *err)
{
    char sub[160];

    for (size_t i = 0; i < lg_json_len(parts); i++) {
        const lg_json *part = lg_json_at(parts, i);
        content c = {.text = {.a = r->a}};
        bool failed = false;
        if (!is_tool_result(part))
            continue;
        (void)snprintf(sub, sizeof sub, "%s[%zu].content", path, i);
        LG_TRY(read_content(field(part, "content"), LG_ROLE_TOOL, true, sub, r->a, &c, err));
        lg_str text = joined(&c.text);
        if (lg_json_bool(field(part, "is_error"), &failed) && failed &&
            !lg_str_starts(text, LG_STR("Error: "))) {
            joiner marked = {.a = r->a};
            join_add(&marked, LG_STR("Error: "));
            join_add(&marked, text);
            if (marked.full)
                return no_memory(r->a, err);
            text = joined(&marked);
        }
        r->message[r->n++] = (lg_chat_message){.role = LG_ROLE_TOOL, .content = text,
                                               .call_id = lg_json_str(field(part, "tool_use_id"))};
    }
    return LG_OK;
}

static lg_status read_message(reader *r, const lg_json *m, size_t index, lg_err *err)
{
    const lg_json *parts = field(m, "content");
    lg_chat_message msg = {0};
    content c = {.text = {.a = r->a}, .reasoning = {.a = r->a}};
    size_t n_call = 0, n_results = 0;
    char path[64];
    bool full = false;

    if (!read_role(m, &msg.role)) {
        (void)lg_err_subject(err, "messages[%zu].role", index);
        return LG_FAIL(err, LG_E_INPUT, "must be system, developer, user, assistant, tool or function");
    }
    (void)snprintf(path, sizeof path, "messages[%zu].content", index);
    if (msg.role == LG_ROLE_ASSISTANT) {
        n_call = count_parts(parts, "tool_use") + lg_json_len(field(m, "tool_calls")) + 1;
        c.call = LG_NEW_N(r->a, lg_chat_call, n_call);
        if (!c.call)
            return no_memory(r->a, err);
    }
    if (msg.role == LG_ROLE_USER && (n_results = count_parts(parts, "tool_result")) > 0)
        LG_TRY(read_results(r, parts, path, err));
    LG_TRY(read_content(parts, msg.role, r->drop_images, path, r->a, &c, err));
    if (n_results > 0 && !c.text.any)
        return LG_OK; // nothing but results
    msg.content = joined(&c.text);
    if (msg.role == LG_ROLE_TOOL)
        msg.call_id = lg_json_str(field(m, "tool_call_id"));
    if (msg.role == LG_ROLE_ASSISTANT) {
        LG_TRY(read_calls(m, index, r->a, &c, err));
        msg.reasoning = read_reasoning(m, r->a, &c, &full);
        msg.call = c.call;
        msg.n_call = c.n_call;
        if (full)
            return no_memory(r->a, err);
    }
    r->message[r->n++] = msg;
    return LG_OK;
}

// Which of the calls has this id: its index, or n_call.
static size_t call_index(const lg_chat_message *m, lg_str id)
{
    size_t i = 0;

    while (i < m->n_call && (id.n == 0 || !lg_str_eq(m->call[i].id, id)))
        i++;
    return i;
}

lg_status lg_chat_order_results(lg_chat_message *message, size_t n, lg_arena *a, lg_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const lg_chat_message *m = &message[i];
        size_t k = m->n_call;
        if (k < 2 || k > n - i - 1)
            continue;
        lg_mark start = lg_arena_mark(a);
        lg_chat_message *sorted = LG_NEW_N(a, lg_chat_message, k);
        bool *taken = LG_NEW_N(a, bool, k);
        bool permutation = sorted && taken;
        if (!permutation)
            return no_memory(a, err);
        for (size_t j = 0; j < k && permutation; j++) {
            const lg_chat_message *result = &message[i + 1 + j];
            size_t at = result->role == LG_ROLE_TOOL ? call_index(m, result->call_id) : k;
            permutation = at < k && !taken[at];
            if (permutation) {
                taken[at] = true;
                sorted[at] = *result;
            }
        }
        if (permutation)
            memcpy(&message[i + 1], sorted, k * sizeof *sorted);
        lg_arena_reset(a, start);
    }
    return LG_OK;
}

lg_status lg_chat_json_messages(const lg_json *messages, bool drop_images, lg_arena *a,
                                const lg_chat_message **out, size_t *n, lg_err *err)
{
    reader r = {.a = a, .drop_images = drop_images};
    size_t room = lg_json_len(messages);

    if (!lg_json_is(messages, LG_JSON_ARRAY)) {
        (void)lg_err_subject(err, "messages");
        return LG_FAIL(err, LG_E_INPUT, "must be an array of messages");
    }
    for (size_t i = 0; i < lg_json_len(messages); i++)
        room += count_parts(field(lg_json_at(messages, i), "content"), "tool_result");
    if (room > LG_CHAT_MAX_MESSAGES) {
        (void)lg_err_subject(err, "messages");
        return LG_FAIL(err, LG_E_INPUT, "%zu messages are too many; at most %d are possible", room,
                       LG_CHAT_MAX_MESSAGES);
    }
    r.message = LG_NEW_N(a, lg_chat_message, room);
    if (!r.message)
        return no_memory(a, err);
    for (size_t i = 0; i < lg_json_len(messages); i++)
        LG_TRY(read_message(&r, lg_json_at(messages, i), i, err));
    LG_TRY(lg_chat_order_results(r.message, r.n, a, err));
    *out = r.message;
    *n = r.n;
    return LG_OK;
}

/* --- tools --- */

lg_status lg_chat_tool_text(lg_str name, lg_str description, const lg_json *parameters, lg_arena *a,
                            lg_str *out, lg_err *err)
{
    lg_buf b;
    const char *p;

    lg_buf_init(&b, a->limit);
    (void)lg_buf_addz(&b, "{\"type\": \"function\", \"function\": {\"name\": ");
    (void)lg_json_quote(name, &b);
    if (description.p) {
        (void)lg_buf_addz(&b, ", \"description\": ");
        (void)lg_json_quote(description, &b);
    }
    if (parameters) {
        (void)lg_buf_addz(&b, ", \"parameters\": ");
        (void)lg_json_dump(parameters, &b);
    }
    (void)lg_buf_addz(&b, "}}");
    p = b.failed ? NULL : lg_arena_dup(a, b.p, b.n);
    *out = (lg_str){p, b.n};
    lg_buf_free(&b);
    return p ? LG_OK : no_memory(a, err);
}

static lg_status read_tool(const lg_json *f, const char *path, lg_arena *a, lg_str *text, lg_tool *tool,
                           lg_err *err)
{
    const lg_json *description = field(f, "description"), *parameters = field(f, "parameters");

    LG_TRY(call_name(f, path, &tool->name, err));
    if (description && !lg_json_is(description, LG_JSON_STRING)) {
        (void)lg_err_subject(err, "%s.description", path);
        return LG_FAIL(err, LG_E_INPUT, "must be a string");
    }
    if (parameters && !lg_json_is(parameters, LG_JSON_OBJECT)) {
        (void)lg_err_subject(err, "%s.parameters", path);
        return LG_FAIL(err, LG_E_INPUT, "must be a JSON Schema object");
    }
    tool->parameters = parameters;
    return lg_chat_tool_text(tool->name, description ? lg_json_str(description) : (lg_str){0}, parameters, a,
                             text, err);
}

// `strict` beside the name, or on the tool around it.
static bool is_strict(const lg_json *outer, const lg_json *f)
{
    bool yes = false;

    (void)lg_json_bool(field(f, "strict") ? field(f, "strict") : field(outer, "strict"), &yes);
    return yes;
}

static lg_status check_list(const lg_json *list, const char *name, lg_err *err)
{
    if (list && !lg_json_is(list, LG_JSON_ARRAY)) {
        (void)lg_err_subject(err, "%s", name);
        return LG_FAIL(err, LG_E_INPUT, "must be an array");
    }
    return LG_OK;
}

lg_status lg_chat_json_tools(const lg_json *tools, const lg_json *functions, lg_arena *a, lg_chat_tools *out,
                             lg_err *err)
{
    size_t n_tools, n_functions, n;
    lg_str *text;
    lg_tool *tool;
    bool *strict;
    char path[64];

    tools = lg_json_is(tools, LG_JSON_NULL) ? NULL : tools;
    functions = lg_json_is(functions, LG_JSON_NULL) ? NULL : functions;
    LG_TRY(check_list(tools, "tools", err));
    LG_TRY(check_list(functions, "functions", err));
    n_tools = lg_json_len(tools);
    n_functions = lg_json_len(functions);
    n = n_tools + n_functions;
    if (n > LG_CHAT_MAX_TOOLS) {
        (void)lg_err_subject(err, "tools");
        return LG_FAIL(err, LG_E_INPUT, "%zu tools are too many; at most %d are possible", n,
                       LG_CHAT_MAX_TOOLS);
    }
    text = LG_NEW_N(a, lg_str, n);
    tool = LG_NEW_N(a, lg_tool, n);
    strict = LG_NEW_N(a, bool, n);
    if (!text || !tool || !strict)
        return no_memory(a, err);
    for (size_t i = 0; i < n_tools; i++) {
        const lg_json *t = lg_json_at(tools, i);
        if (field(t, "type") && !field_is(t, "type", "function")) {
            (void)lg_err_subject(err, "tools[%zu].type", i);
            return LG_FAIL(err, LG_E_INPUT, "must be \"function\"");
        }
        (void)snprintf(path, sizeof path, "tools[%zu].function", i);
        LG_TRY(read_tool(field(t, "function"), path, a, &text[i], &tool[i], err));
        strict[i] = is_strict(t, field(t, "function"));
    }
    for (size_t i = 0; i < n_functions; i++) {
        (void)snprintf(path, sizeof path, "functions[%zu]", i);
        LG_TRY(read_tool(lg_json_at(functions, i), path, a, &text[n_tools + i], &tool[n_tools + i], err));
    }
    *out = (lg_chat_tools){.canonical = text, .tool = tool, .n = n, .strict = strict};
    return LG_OK;
}

/* --- a whole body --- */

// A boolean field; *out keeps its value when the field is absent.
static lg_status read_switch(const lg_json *holder, const char *key, const char *path, bool *out, bool *given,
                             lg_err *err)
{
    const lg_json *j = field(holder, key);

    if (!j)
        return LG_OK;
    if (!lg_json_bool(j, out)) {
        (void)lg_err_subject(err, "%s%s", path, key);
        return LG_FAIL(err, LG_E_INPUT, "must be true or false");
    }
    if (given)
        *given = true;
    return LG_OK;
}

static lg_status read_history(const lg_json *body, lg_history *out, lg_err *err)
{
    static const char *const name[] = {[LG_HISTORY_TAIL] = "tail", [LG_HISTORY_ALL] = "all",
                                       [LG_HISTORY_NONE] = "none"};

    if (!field(body, "history_thinking"))
        return LG_OK;
    for (int i = 0; i < 3; i++) {
        if (field_is(body, "history_thinking", name[i])) {
            *out = (lg_history)i;
            return LG_OK;
        }
    }
    (void)lg_err_subject(err, "history_thinking");
    return LG_FAIL(err, LG_E_INPUT, "must be \"tail\", \"all\" or \"none\"");
}

lg_status lg_chat_json_body(const lg_json *body, const lg_chat_json_opts *o, lg_arena *a, lg_chat *c,
                            lg_chat_tools *tools, lg_err *err)
{
    const lg_json *kwargs = field(body, "chat_template_kwargs");
    bool preserve = false, preserve_given = false, go_on = false, prompt = true;
    lg_chat_tools t;
    lg_chat r = *c;

    if (!lg_json_is(body, LG_JSON_OBJECT))
        return LG_FAIL(err, LG_E_INPUT, "the body must be a JSON object");
    LG_TRY(lg_chat_json_messages(lg_json_get(body, "messages"), o->drop_images, a, &r.message, &r.n_message,
                                 err));
    LG_TRY(lg_chat_json_tools(lg_json_get(body, "tools"), lg_json_get(body, "functions"), a, &t, err));
    LG_TRY(read_switch(kwargs, "enable_thinking", "chat_template_kwargs.", &r.thinking, NULL, err));
    LG_TRY(read_switch(body, "enable_thinking", "", &r.thinking, NULL, err));
    LG_TRY(
        read_switch(kwargs, "preserve_thinking", "chat_template_kwargs.", &preserve, &preserve_given, err));
    if (preserve_given)
        r.history = preserve ? LG_HISTORY_ALL : LG_HISTORY_TAIL;
    LG_TRY(read_history(body, &r.history, err));
    LG_TRY(read_switch(body, "add_generation_prompt", "", &prompt, NULL, err));
    LG_TRY(read_switch(body, "continue_final_message", "", &go_on, NULL, err));
    const lg_chat_message *last = r.n_message > 0 ? &r.message[r.n_message - 1] : NULL;
    bool answer = last && last->role == LG_ROLE_ASSISTANT;
    if (go_on && !answer) {
        (void)lg_err_subject(err, "continue_final_message");
        return LG_FAIL(err, LG_E_INPUT, "needs an assistant message at the end of messages");
    }
    r.continue_final = go_on || (!prompt && answer && !o->template_only);
    r.continue_open_think =
        r.continue_final && last->reasoning.n > 0 && last->content.n == 0 && last->n_call == 0;
    r.generation_prompt = (prompt || !o->template_only) && !r.continue_final;
    r.tool = t.canonical;
    r.n_tool = t.n;
    *c = r;
    *tools = t;
    return LG_OK;
}
