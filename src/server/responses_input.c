/*
 * server/responses_input: the items of a Responses request -> messages (api.md 5.1).
 *
 * Reasoning, text and calls of the model that follow one another are one assistant turn. Items of an unknown
 * kind are left out with a line in the log: clients send kinds that we have never seen.
 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "server/replay.h"
#include "server/responses_int.h"

/* The assistant turn that is being put together. */
typedef struct turn {
    lg_text reasoning, content;
    bool reasoned;
    lg_chat_call *call;
    size_t n_call, cap_call;
    bool any;
} turn;

typedef struct reader {
    const lg_service *s;
    lg_arena *a;
    lg_chat_message *message;
    size_t n;
    turn turn;
    lg_api_error *e;
} reader;

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static bool is(const lg_json *o, const char *key, const char *value)
{
    return lg_str_eqz(lg_json_str(field(o, key)), value);
}

static lg_status no_memory(const reader *r)
{
    return lg_api_fail(r->e, LG_API_INVALID, "input", "the request needs more than %zu bytes of memory",
                       r->a->limit);
}

static lg_status wrong(const reader *r, size_t index, const char *key, const char *must)
{
    char path[96];

    (void)snprintf(path, sizeof path, "input[%zu]%s", index, key);
    return lg_api_fail(r->e, LG_API_INVALID, path, "%s must be %s", path, must);
}

/* --- sealed reasoning --- */

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char seal_head[] = "lg1.";
enum { SEAL_TAG = 16 };

static void seal_tag(lg_str text, char out[SEAL_TAG + 1])
{
    (void)snprintf(out, SEAL_TAG + 1, "%016llx",
                   (unsigned long long)lg_hash_64(text.p, text.n, 0x6C61676F6F6E));
}

void lg_responses_seal(lg_str text, lg_buf *out)
{
    char tag[SEAL_TAG + 1];

    seal_tag(text, tag);
    (void)lg_buf_addf(out, "%s%s.", seal_head, tag);
    for (size_t i = 0; i < text.n; i += 3) {
        size_t n = text.n - i < 3 ? text.n - i : 3;
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (k < n ? (unsigned char)text.p[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            (void)lg_buf_addc(out, k <= n ? digits64[v >> (18 - 6 * k) & 63] : '=');
    }
}

static int digit64(char c)
{
    const char *at = c ? strchr(digits64, c) : NULL;

    return at ? (int)(at - digits64) : -1;
}

lg_str lg_responses_unseal(lg_str sealed, lg_arena *a)
{
    const size_t head = sizeof seal_head - 1 + SEAL_TAG + 1;
    char tag[SEAL_TAG + 1], *p;
    size_t n = 0;
    uint32_t v = 0;
    int bits = 0;

    if (!lg_str_starts(sealed, lg_str_of(seal_head)) || sealed.n < head || sealed.p[head - 1] != '.')
        return (lg_str){0};
    p = lg_arena_alloc(a, sealed.n);
    if (!p)
        return (lg_str){0};
    for (size_t i = head; i < sealed.n && sealed.p[i] != '='; i++) {
        int d = digit64(sealed.p[i]);
        if (d < 0)
            return (lg_str){0};
        v = (v << 6 | (uint32_t)d) & 0xFFFFFF;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            p[n++] = (char)(v >> bits & 0xFF);
        }
    }
    seal_tag((lg_str){p, n}, tag);
    return memcmp(tag, sealed.p + sizeof seal_head - 1, SEAL_TAG) == 0 ? (lg_str){p, n} : (lg_str){0};
}

/* --- the assistant turn --- */

static void flush(reader *r)
{
    turn *t = &r->turn;

    if (t->any)
        r->message[r->n++] =
            (lg_chat_message){.role = LG_ROLE_ASSISTANT,
                              .content = lg_text_str(&t->content),
                              .reasoning = t->reasoned ? lg_text_str(&t->reasoning) : (lg_str){0},
                              .call = t->call,
                              .n_call = t->n_call};
    *t = (turn){0};
}

static lg_status add_call(reader *r, const lg_chat_call *call)
{
    turn *t = &r->turn;

    if (t->n_call == t->cap_call) {
        size_t cap = t->cap_call ? 2 * t->cap_call : 4;
        lg_chat_call *more = LG_NEW_N(r->a, lg_chat_call, cap);
        if (!more)
            return no_memory(r);
        if (t->n_call > 0)
            memcpy(more, t->call, t->n_call * sizeof *more);
        t->call = more;
        t->cap_call = cap;
    }
    t->call[t->n_call++] = *call;
    t->any = true;
    return LG_OK;
}

// The texts in an array of parts, appended.
static bool add_parts(reader *r, const lg_json *parts, lg_text *to)
{
    for (size_t i = 0; i < lg_json_len(parts); i++)
        if (!lg_text_add(to, r->a, lg_json_str(field(lg_json_at(parts, i), "text"))))
            return false;
    return true;
}

static lg_status read_reasoning(reader *r, const lg_json *item)
{
    const lg_json *content = field(item, "content"), *summary = field(item, "summary");
    lg_str sealed = lg_json_str(field(item, "encrypted_content"));
    turn *t = &r->turn;
    size_t before = t->reasoning.n;
    bool ok = true;

    if (lg_json_is(content, LG_JSON_STRING))
        ok = lg_text_add(&t->reasoning, r->a, lg_json_str(content));
    else if (lg_json_is(content, LG_JSON_ARRAY))
        ok = add_parts(r, content, &t->reasoning);
    if (t->reasoning.n == before && sealed.n > 0)
        ok = ok && lg_text_add(&t->reasoning, r->a, lg_responses_unseal(sealed, r->a));
    if (t->reasoning.n == before && lg_json_is(summary, LG_JSON_ARRAY))
        ok = ok && add_parts(r, summary, &t->reasoning);
    if (t->reasoning.n > before)
        t->any = t->reasoned = true; // an item without text says nothing: the replay memory may know more
    return ok ? LG_OK : no_memory(r);
}

/* --- calls and their outputs --- */

static lg_status call_id(const reader *r, const lg_json *item, size_t index, lg_str *out)
{
    const lg_json *id = field(item, "call_id") ? field(item, "call_id") : field(item, "id");

    if (!lg_json_is(id, LG_JSON_STRING) || lg_json_str(id).n == 0)
        return wrong(r, index, ".call_id", "a non-empty string");
    *out = lg_json_str(id);
    return LG_OK;
}

static lg_status read_arguments(reader *r, const lg_json *j, lg_chat_call *call)
{
    lg_err err = {0};

    if (lg_chat_json_arguments(j, r->a, call, &err) != LG_OK)
        return lg_api_from_err(r->e, &err);
    return LG_OK;
}

static lg_status read_function_call(reader *r, const lg_json *item, size_t index)
{
    lg_chat_call call = {0};
    lg_str name = lg_json_str(field(item, "name"));

    LG_TRY(call_id(r, item, index, &call.id));
    if (name.n == 0)
        return wrong(r, index, ".name", "a non-empty string");
    call.name = lg_responses_flat(lg_json_str(field(item, "namespace")), name, r->a);
    if (!call.name.p)
        return no_memory(r);
    if (is(item, "type", "custom_tool_call")) {
        lg_chat_arg *arg = LG_NEW(r->a, lg_chat_arg);
        if (!arg)
            return no_memory(r);
        *arg = (lg_chat_arg){LG_STR("input"), lg_json_str(field(item, "input"))};
        call.arg = arg;
        call.n_arg = 1;
    } else {
        LG_TRY(read_arguments(r, field(item, "arguments"), &call));
    }
    return add_call(r, &call);
}

// A call whose arguments are the members of an object; its type, what is null and what is empty say nothing.
static lg_status read_object_call(reader *r, const lg_json *item, size_t index, const char *name,
                                  const char *key)
{
    const lg_json *object = field(item, key);
    lg_chat_call call = {.name = lg_str_of(name)};
    lg_chat_arg *arg;
    size_t n = 0;

    LG_TRY(call_id(r, item, index, &call.id));
    LG_TRY(read_arguments(r, lg_json_is(object, LG_JSON_OBJECT) ? object : NULL, &call));
    arg = LG_NEW_N(r->a, lg_chat_arg, call.n_arg);
    if (!arg)
        return no_memory(r);
    for (size_t i = 0; i < call.n_arg; i++) {
        lg_str value = call.arg[i].value;
        if (!lg_str_eqz(call.arg[i].key, "type") && !lg_str_eqz(value, "null") && !lg_str_eqz(value, "{}"))
            arg[n++] = call.arg[i];
    }
    call.arg = arg;
    call.n_arg = n;
    return add_call(r, &call);
}

static bool has_call(const reader *r, lg_str id)
{
    for (size_t i = r->n; i-- > 0;) // most likely the last turn
        for (size_t k = 0; k < r->message[i].n_call; k++)
            if (lg_str_eq(r->message[i].call[k].id, id))
                return true;
    return r->s->replay && lg_replay_knows(r->s->replay, id);
}

static lg_status read_output(reader *r, const lg_json *item, size_t index)
{
    const lg_json *output = field(item, "output");
    lg_chat_message m = {.role = LG_ROLE_TOOL};
    bool parts =
        lg_json_is(output, LG_JSON_ARRAY) && lg_json_len(output) > 0 && field(lg_json_at(output, 0), "type");
    char path[64];
    lg_err err = {0};

    LG_TRY(call_id(r, item, index, &m.call_id));
    flush(r);
    if (!has_call(r, m.call_id)) {
        (void)snprintf(path, sizeof path, "input[%zu].call_id", index);
        return lg_api_fail(r->e, LG_API_INVALID, path, "No tool call found for call_id %.*s",
                           (int)(m.call_id.n < 100 ? m.call_id.n : 100), m.call_id.p);
    }
    (void)snprintf(path, sizeof path, "input[%zu].output", index);
    if (!output || lg_json_is(output, LG_JSON_STRING) || parts) {
        if (lg_chat_json_content(output, true, path, r->a, &m.content, &err) != LG_OK)
            return lg_api_from_err(r->e, &err);
    } else { // the result of a shell: an object or a list of them
        lg_buf b;
        lg_buf_init(&b, r->a->limit);
        (void)lg_json_dump(output, &b);
        m.content = (lg_str){b.failed ? NULL : lg_arena_dup(r->a, b.p, b.n), b.n};
        lg_buf_free(&b);
        if (!m.content.p)
            return no_memory(r);
    }
    r->message[r->n++] = m;
    return LG_OK;
}

/* --- messages --- */

static lg_status read_message(reader *r, const lg_json *item, size_t index)
{
    char path[64];
    lg_str text;
    lg_err err = {0};

    (void)snprintf(path, sizeof path, "input[%zu].content", index);
    if (lg_chat_json_content(field(item, "content"), r->s->set->drop_images, path, r->a, &text, &err) !=
        LG_OK)
        return lg_api_from_err(r->e, &err);
    if (is(item, "role", "assistant")) {
        r->turn.any = true;
        return lg_text_add(&r->turn.content, r->a, text) ? LG_OK : no_memory(r);
    }
    flush(r);
    if (is(item, "role", "user"))
        r->message[r->n++] = (lg_chat_message){.role = LG_ROLE_USER, .content = text};
    else if (is(item, "role", "system") || is(item, "role", "developer"))
        r->message[r->n++] = (lg_chat_message){.role = LG_ROLE_SYSTEM, .content = text};
    else
        return wrong(r, index, ".role", "user, assistant, system or developer");
    return LG_OK;
}

static lg_status read_item(reader *r, const lg_json *item, size_t index)
{
    lg_str type = lg_json_str(field(item, "type"));
    char shown[64];

    if (!lg_json_is(item, LG_JSON_OBJECT))
        return wrong(r, index, "", "an object");
    if (lg_str_eqz(type, "message") || (type.n == 0 && field(item, "role")))
        return read_message(r, item, index);
    if (lg_str_eqz(type, "reasoning"))
        return read_reasoning(r, item);
    if (lg_str_eqz(type, "function_call") || lg_str_eqz(type, "custom_tool_call"))
        return read_function_call(r, item, index);
    if (lg_str_eqz(type, "local_shell_call") || lg_str_eqz(type, "shell_call"))
        return read_object_call(r, item, index, "local_shell", "action");
    if (lg_str_eqz(type, "apply_patch_call"))
        return read_object_call(r, item, index, "apply_patch", "operation");
    if (lg_str_eqz(type, "function_call_output") || lg_str_eqz(type, "custom_tool_call_output") ||
        lg_str_eqz(type, "local_shell_call_output") || lg_str_eqz(type, "shell_call_output") ||
        lg_str_eqz(type, "apply_patch_call_output"))
        return read_output(r, item, index);
    LG_INFO("responses", "item-left-out", "type=%s", lg_log_value(type, shown, sizeof shown));
    return LG_OK;
}

lg_status lg_responses_input(const lg_service *s, const lg_json *body, const lg_json *before, lg_arena *a,
                             lg_chat *c, lg_api_error *e)
{
    const lg_json *input = field(body, "input"), *instructions = field(body, "instructions");
    bool text = lg_json_is(input, LG_JSON_STRING);
    reader r = {.s = s, .a = a, .e = e};
    size_t n = lg_json_len(input), n_before = lg_json_len(before);
    lg_err err = {0};

    if (!text && !lg_json_is(input, LG_JSON_ARRAY))
        return lg_api_fail(e, LG_API_INVALID, "input", "input must be a string or an array of items");
    if (instructions && !lg_json_is(instructions, LG_JSON_STRING))
        return lg_api_fail(e, LG_API_INVALID, "instructions", "instructions must be a string");
    if (n + n_before > LG_CHAT_MAX_MESSAGES)
        return lg_api_fail(e, LG_API_INVALID, "input", "%zu items are too many; at most %d are possible",
                           n + n_before, LG_CHAT_MAX_MESSAGES);
    // instructions, an open turn, an empty user turn
    r.message = LG_NEW_N(a, lg_chat_message, n + n_before + 3);
    if (!r.message)
        return no_memory(&r);
    if (instructions)
        r.message[r.n++] = (lg_chat_message){.role = LG_ROLE_SYSTEM, .content = lg_json_str(instructions)};
    for (size_t i = 0; i < n_before; i++)
        LG_TRY(read_item(&r, lg_json_at(before, i), i));
    if (text || n == 0) { // no items at all: a probe
        flush(&r);
        r.message[r.n++] = (lg_chat_message){.role = LG_ROLE_USER, .content = lg_json_str(input)};
    }
    for (size_t i = 0; i < n; i++)
        LG_TRY(read_item(&r, lg_json_at(input, i), i));
    flush(&r);
    if (lg_chat_order_results(r.message, r.n, a, &err) != LG_OK)
        return lg_api_from_err(e, &err);
    c->message = r.message;
    c->n_message = r.n;
    c->generation_prompt = true;
    return LG_OK;
}
