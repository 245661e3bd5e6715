/*
 * server/messages_tools: the tools of a Messages request (api.md 4.1).
 *
 * A tool with a schema is rendered as it is. A typed one that the client runs itself (bash, text editor,
 * memory) comes without a schema and gets the public parameters of its type. One that the original service
 * would run (web search, code execution, ...) cannot be called here and is left out, which is no error.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/messages_int.h"

static const char schemas[] =
    "{\"bash\":{\"type\":\"object\",\"properties\":{"
    "\"command\":{\"type\":\"string\",\"description\":\"the command line to run\"},"
    "\"restart\":{\"type\":\"boolean\",\"description\":\"true starts the shell anew; no command is needed then\"}}},"
    "\"editor\":{\"type\":\"object\",\"properties\":{"
    "\"command\":{\"type\":\"string\",\"enum\":[\"view\",\"create\",\"str_replace\",\"insert\"]},"
    "\"path\":{\"type\":\"string\",\"description\":\"the file or folder\"},"
    "\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},"
    "\"description\":\"view: first and last line, from 1; -1 is the end\"},"
    "\"file_text\":{\"type\":\"string\",\"description\":\"create: the content\"},"
    "\"old_str\":{\"type\":\"string\",\"description\":\"str_replace: text that occurs exactly once\"},"
    "\"new_str\":{\"type\":\"string\",\"description\":\"str_replace: what stands there afterwards\"},"
    "\"insert_line\":{\"type\":\"integer\",\"description\":\"insert: the line to insert behind; 0 is the top\"},"
    "\"insert_text\":{\"type\":\"string\",\"description\":\"insert: the text\"}},"
    "\"required\":[\"command\",\"path\"]},"
    "\"editor_old\":{\"type\":\"object\",\"properties\":{"
    "\"command\":{\"type\":\"string\",\"enum\":[\"view\",\"create\",\"str_replace\",\"insert\",\"undo_edit\"]},"
    "\"path\":{\"type\":\"string\",\"description\":\"the file or folder\"},"
    "\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},"
    "\"description\":\"view: first and last line, from 1; -1 is the end\"},"
    "\"file_text\":{\"type\":\"string\",\"description\":\"create: the content\"},"
    "\"old_str\":{\"type\":\"string\",\"description\":\"str_replace: text that occurs exactly once\"},"
    "\"new_str\":{\"type\":\"string\",\"description\":\"str_replace, insert: the new text\"},"
    "\"insert_line\":{\"type\":\"integer\",\"description\":\"insert: the line to insert behind; 0 is the top\"}},"
    "\"required\":[\"command\",\"path\"]},"
    "\"memory\":{\"type\":\"object\",\"properties\":{"
    "\"command\":{\"type\":\"string\","
    "\"enum\":[\"view\",\"create\",\"str_replace\",\"insert\",\"delete\",\"rename\"]},"
    "\"path\":{\"type\":\"string\",\"description\":\"a path below /memories\"},"
    "\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},"
    "\"file_text\":{\"type\":\"string\"},\"old_str\":{\"type\":\"string\"},\"new_str\":{\"type\":\"string\"},"
    "\"insert_line\":{\"type\":\"integer\"},\"insert_text\":{\"type\":\"string\"},"
    "\"old_path\":{\"type\":\"string\"},\"new_path\":{\"type\":\"string\"}},"
    "\"required\":[\"command\"]}}";

/* By the beginning of the type; the first row that fits. */
static const struct {
    const char *type, *schema, *name, *description;
} typed[] = {
    {"bash_", "bash", "bash", "Run a command in a shell that keeps its state between calls."},
    {"text_editor_2024", "editor_old", "str_replace_editor", "View, create and edit text files."},
    {"text_editor_20250124", "editor_old", "str_replace_editor", "View, create and edit text files."},
    {"text_editor_", "editor", "str_replace_based_edit_tool", "View, create and edit text files."},
    {"memory_", "memory", "memory", "Read and keep notes in files below /memories."},
};

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static lg_status wrong(lg_api_error *e, size_t index, const char *key, const char *must)
{
    char path[64];

    (void)snprintf(path, sizeof path, "tools[%zu]%s%s", index, key[0] ? "." : "", key);
    return lg_api_fail(e, LG_API_INVALID, path, "%s must be %s", path, must);
}

static lg_status no_memory(const lg_arena *a, lg_api_error *e)
{
    return lg_api_fail(e, LG_API_INVALID, "tools", "the tools need more than %zu bytes of memory", a->limit);
}

/* What is rendered of one tool. */
typedef struct tool_parts {
    lg_str name, description; /* p NULL: none */
    const lg_json *parameters;
    bool strict;
} tool_parts;

static lg_status with_schema(const lg_json *t, size_t index, tool_parts *out, lg_api_error *e)
{
    const lg_json *description = field(t, "description"), *schema = field(t, "input_schema");

    *out = (tool_parts){.name = lg_json_str(field(t, "name")), .parameters = schema};
    if (out->name.n == 0)
        return wrong(e, index, "name", "a non-empty string");
    if (description && !lg_json_is(description, LG_JSON_STRING))
        return wrong(e, index, "description", "a string");
    if (schema && !lg_json_is(schema, LG_JSON_OBJECT))
        return wrong(e, index, "input_schema", "a JSON Schema object");
    if (description)
        out->description = lg_json_str(description);
    (void)lg_json_bool(field(t, "strict"), &out->strict);
    return LG_OK;
}

// A tool known by its type alone; false when it is none of ours.
static bool by_type(const lg_json *t, lg_json_doc **made, tool_parts *out)
{
    const lg_json_limits lim = {.max_bytes = sizeof schemas, .max_depth = 8};
    lg_str type = lg_json_str(field(t, "type")), name = lg_json_str(field(t, "name"));

    for (size_t i = 0; i < sizeof typed / sizeof typed[0]; i++) {
        if (!lg_str_starts(type, lg_str_of(typed[i].type)))
            continue;
        if (!*made && lg_json_parse(LG_STR(schemas), &lim, made, NULL) != LG_OK)
            return false; // no memory: one tool less
        *out = (tool_parts){.name = name.n > 0 ? name : lg_str_of(typed[i].name),
                            .description = lg_str_of(typed[i].description),
                            .parameters = lg_json_get(lg_json_root(*made), typed[i].schema)};
        return true;
    }
    return false;
}

lg_status lg_messages_tools(const lg_json *tools, lg_arena *a, lg_json_doc **made, lg_chat_tools *out,
                            lg_api_error *e)
{
    size_t n = lg_json_len(tools), n_kept = 0;
    lg_str *text;
    lg_tool *tool;
    bool *strict;
    lg_err err = {0};

    if (tools && !lg_json_is(tools, LG_JSON_NULL) && !lg_json_is(tools, LG_JSON_ARRAY))
        return lg_api_fail(e, LG_API_INVALID, "tools", "tools must be an array");
    if (n > LG_CHAT_MAX_TOOLS)
        return lg_api_fail(e, LG_API_INVALID, "tools", "%zu tools are too many; at most %d are possible", n,
                           LG_CHAT_MAX_TOOLS);
    text = LG_NEW_N(a, lg_str, n);
    tool = LG_NEW_N(a, lg_tool, n);
    strict = LG_NEW_N(a, bool, n);
    if (!text || !tool || !strict)
        return no_memory(a, e);
    for (size_t i = 0; i < n; i++) {
        const lg_json *t = lg_json_at(tools, i);
        lg_str type = lg_json_str(field(t, "type"));
        char shown[64];
        tool_parts parts;
        if (!lg_json_is(t, LG_JSON_OBJECT))
            return wrong(e, i, "", "an object");
        if (field(t, "type") && !lg_json_is(field(t, "type"), LG_JSON_STRING))
            return wrong(e, i, "type", "a string");
        if (type.n == 0 || lg_str_eqz(type, "custom") || field(t, "input_schema")) {
            LG_TRY(with_schema(t, i, &parts, e));
        } else if (!by_type(t, made, &parts)) {
            LG_INFO("messages", "tool-left-out", "type=%s", lg_log_value(type, shown, sizeof shown));
            continue;
        }
        if (lg_chat_tool_text(parts.name, parts.description, parts.parameters, a, &text[n_kept], &err) !=
            LG_OK)
            return no_memory(a, e);
        strict[n_kept] = parts.strict;
        tool[n_kept++] = (lg_tool){parts.name, parts.parameters};
    }
    *out = (lg_chat_tools){.canonical = text, .tool = tool, .strict = strict, .n = n_kept};
    return LG_OK;
}
