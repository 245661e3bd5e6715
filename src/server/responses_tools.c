/*
 * server/responses_tools: the tools of a Responses request -> the one canonical form, and back from the name
 * that the model calls to the tool as the client knows it (api.md 5.3).
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/responses_int.h"

/* The members of an object. */
static const char schemas[] =
    "\"custom\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"
    "\"required\":[\"input\"]},"
    "\"shell\":{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"array\","
    "\"items\":{\"type\":\"string\"},\"description\":\"program and arguments\"},"
    "\"working_directory\":{\"type\":\"string\"},\"timeout_ms\":{\"type\":\"integer\"}},"
    "\"required\":[\"command\"]}";

typedef struct reader {
    lg_arena *a;
    lg_json_doc **made;
    lg_rtool *tool;
    lg_str *text;
    lg_tool *typed;
    bool *strict;
    size_t n;
} reader;

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static bool type_is(const lg_json *t, const char *type)
{
    return lg_str_eqz(lg_json_str(field(t, "type")), type);
}

static lg_status wrong(lg_api_error *e, const char *path, const char *key, const char *must)
{
    char param[96];

    (void)snprintf(param, sizeof param, "%s%s", path, key);
    return lg_api_fail(e, LG_API_INVALID, param, "%s must be %s", param, must);
}

static lg_status no_memory(const lg_arena *a, lg_api_error *e)
{
    return lg_api_fail(e, LG_API_INVALID, "tools", "the tools need more than %zu bytes of memory", a->limit);
}

lg_str lg_responses_flat(lg_str space, lg_str name, lg_arena *a)
{
    lg_str sep = LG_STR("__");
    char *p;

    if (space.n == 0 || (lg_str_starts(name, space) && name.n > space.n + sep.n &&
                         memcmp(name.p + space.n, sep.p, sep.n) == 0))
        return name;
    p = lg_arena_alloc(a, space.n + sep.n + name.n + 1);
    if (!p)
        return (lg_str){0};
    memcpy(p, space.p, space.n);
    memcpy(p + space.n, sep.p, sep.n);
    memcpy(p + space.n + sep.n, name.p, name.n);
    return (lg_str){p, space.n + sep.n + name.n};
}

lg_status lg_responses_made(lg_str items, lg_json_doc **made, lg_err *err)
{
    lg_json_limits lim = {.max_depth = 600};
    lg_status st = LG_OK;
    lg_buf b;

    lg_buf_init(&b, SIZE_MAX);
    (void)lg_buf_addf(&b, "{%s,\"items\":[", schemas);
    (void)lg_buf_adds(&b, items);
    (void)lg_buf_addz(&b, "]}");
    lim.max_bytes = b.n;
    if (b.failed)
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
    else
        st = lg_json_parse(lg_buf_str(&b), &lim, made, err);
    lg_buf_free(&b);
    return st;
}

// One of our own schemas; NULL when memory ran out.
static const lg_json *own_schema(reader *r, const char *which)
{
    if (!*r->made && lg_responses_made((lg_str){0}, r->made, NULL) != LG_OK)
        return NULL;
    return lg_json_get(lg_json_root(*r->made), which);
}

static lg_status add(reader *r, lg_rtool tool, lg_str description, const lg_json *parameters, bool strict,
                     lg_api_error *e)
{
    lg_err err = {0};

    if (!tool.flat.p ||
        lg_chat_tool_text(tool.flat, description, parameters, r->a, &r->text[r->n], &err) != LG_OK)
        return no_memory(r->a, e);
    r->tool[r->n] = tool;
    r->typed[r->n] = (lg_tool){.name = tool.flat, .parameters = parameters};
    r->strict[r->n++] = strict;
    return LG_OK;
}

static lg_status text_field(const lg_json *t, const char *path, const char *key, lg_str *out, lg_api_error *e)
{
    const lg_json *j = field(t, key);

    if (j && !lg_json_is(j, LG_JSON_STRING))
        return wrong(e, path, key, "a string");
    *out = j ? lg_json_str(j) : (lg_str){0};
    return LG_OK;
}

static lg_status read_function(reader *r, const lg_json *t, lg_str space, const char *path, lg_api_error *e)
{
    const lg_json *f = field(t, "function") ? field(t, "function") : t; // Chat's form is taken as well
    const lg_json *parameters = field(f, "parameters");
    lg_str name, description;
    bool strict = false;

    LG_TRY(text_field(f, path, "name", &name, e));
    LG_TRY(text_field(f, path, "description", &description, e));
    if (name.n == 0)
        return wrong(e, path, "name", "a non-empty string");
    if (parameters && !lg_json_is(parameters, LG_JSON_OBJECT))
        return wrong(e, path, "parameters", "a JSON Schema object");
    (void)lg_json_bool(field(f, "strict"), &strict);
    return add(r, (lg_rtool){LG_RTOOL_FUNCTION, lg_responses_flat(space, name, r->a), space, name},
               description, parameters, strict, e);
}

// A tool of free text: one string, with the grammar that it follows in the description.
static lg_status read_custom(reader *r, const lg_json *t, const char *path, lg_api_error *e)
{
    lg_str name, description, grammar = lg_json_str(field(field(t, "format"), "definition"));
    const lg_json *schema = own_schema(r, "custom");
    lg_text all = {0};

    LG_TRY(text_field(t, path, "name", &name, e));
    LG_TRY(text_field(t, path, "description", &description, e));
    if (name.n == 0)
        return wrong(e, path, "name", "a non-empty string");
    if (grammar.n > 0) {
        if (!lg_text_add(&all, r->a, description) ||
            (description.n > 0 && !lg_text_add(&all, r->a, LG_STR("\n\n"))) ||
            !lg_text_add(&all, r->a, grammar))
            return no_memory(r->a, e);
        description = lg_text_str(&all);
    }
    if (!schema)
        return no_memory(r->a, e);
    return add(r, (lg_rtool){LG_RTOOL_CUSTOM, name, {0}, name}, description, schema, false, e);
}

static lg_status read_tool(reader *r, const lg_json *t, const char *path, lg_api_error *e)
{
    lg_str type = lg_json_str(field(t, "type"));
    char shown[64];

    if (type_is(t, "function"))
        return read_function(r, t, (lg_str){0}, path, e);
    if (type_is(t, "custom"))
        return read_custom(r, t, path, e);
    if (type_is(t, "local_shell") || type_is(t, "shell")) {
        const lg_json *schema = own_schema(r, "shell");
        lg_str name = LG_STR("local_shell");
        return schema ? add(r, (lg_rtool){LG_RTOOL_SHELL, name, {0}, name}, LG_STR("Run a command."), schema,
                            false, e)
                      : no_memory(r->a, e);
    }
    LG_DEBUG("responses", "tool-left-out", "type=%s", lg_log_value(type, shown, sizeof shown));
    return LG_OK;
}

static lg_status read_space(reader *r, const lg_json *t, size_t index, lg_api_error *e)
{
    const lg_json *inner = field(t, "tools");
    lg_str space = lg_json_str(field(t, "name"));
    char path[96];

    for (size_t i = 0; i < lg_json_len(inner); i++) {
        (void)snprintf(path, sizeof path, "tools[%zu].tools[%zu].", index, i);
        if (type_is(lg_json_at(inner, i), "function"))
            LG_TRY(read_function(r, lg_json_at(inner, i), space, path, e));
        else
            LG_TRY(read_tool(r, lg_json_at(inner, i), path, e));
    }
    return LG_OK;
}

// How many tools there can be at most.
static size_t count(const lg_json *tools)
{
    size_t n = lg_json_len(tools);

    for (size_t i = 0; i < lg_json_len(tools); i++)
        n += lg_json_len(field(lg_json_at(tools, i), "tools"));
    return n;
}

lg_status lg_responses_tools(const lg_json *tools, lg_arena *a, lg_json_doc **made, lg_rtools *out,
                             lg_api_error *e)
{
    size_t n = count(tools);
    reader r = {.a = a, .made = made};
    char path[32];

    if (tools && !lg_json_is(tools, LG_JSON_NULL) && !lg_json_is(tools, LG_JSON_ARRAY))
        return lg_api_fail(e, LG_API_INVALID, "tools", "tools must be an array");
    if (n > LG_CHAT_MAX_TOOLS)
        return lg_api_fail(e, LG_API_INVALID, "tools", "%zu tools are too many; at most %d are possible", n,
                           LG_CHAT_MAX_TOOLS);
    r.tool = LG_NEW_N(a, lg_rtool, n);
    r.text = LG_NEW_N(a, lg_str, n);
    r.typed = LG_NEW_N(a, lg_tool, n);
    r.strict = LG_NEW_N(a, bool, n);
    if (!r.tool || !r.text || !r.typed || !r.strict)
        return no_memory(a, e);
    for (size_t i = 0; i < lg_json_len(tools); i++) {
        const lg_json *t = lg_json_at(tools, i);
        (void)snprintf(path, sizeof path, "tools[%zu].", i);
        if (!lg_json_is(t, LG_JSON_OBJECT))
            return wrong(e, path, "type", "there; a tool is an object");
        if (type_is(t, "namespace"))
            LG_TRY(read_space(&r, t, i, e));
        else
            LG_TRY(read_tool(&r, t, path, e));
    }
    *out = (lg_rtools){.tool = r.tool,
                       .chat = {.canonical = r.text, .tool = r.typed, .n = r.n, .strict = r.strict}};
    return LG_OK;
}

const lg_rtool *lg_responses_tool(const lg_rtools *t, lg_str name)
{
    for (size_t i = 0; i < t->chat.n; i++)
        if (lg_str_eq(t->tool[i].flat, name))
            return &t->tool[i];
    return NULL;
}
