/*
 * server/strict: the fields of POST /lagoon/v1/generate, as a tree of names (api.md 8). A field that is not
 * in it is refused with its path, so that nothing a client asks for is dropped in silence.
 *
 * JSON Schemas, call arguments and the options of a format are the client's own and are not looked into;
 * whoever reads them checks them.
 */
#include <stdio.h>
#include <string.h>

#include "server/native_int.h"

typedef struct shape {
    const char *key;           /* NULL ends the list */
    const struct shape *inner; /* of an object, or of each object in an array; NULL: anything */
} shape;

static const shape part[] = {{"type", NULL}, {"text", NULL}, {NULL, NULL}};
static const shape function_call[] = {{"name", NULL}, {"arguments", NULL}, {NULL, NULL}};
static const shape call[] = {
    {"id", NULL}, {"type", NULL}, {"index", NULL}, {"function", function_call}, {NULL, NULL}};
static const shape message[] = {
    {"role", NULL},      {"content", part},     {"name", NULL},       {"reasoning_content", NULL},
    {"reasoning", NULL}, {"tool_calls", call}, {"tool_call_id", NULL}, {NULL, NULL},
};
static const shape function[] = {
    {"name", NULL}, {"description", NULL}, {"parameters", NULL}, {"strict", NULL}, {NULL, NULL},
};
static const shape tool[] = {{"type", NULL}, {"function", function}, {NULL, NULL}};
static const shape choice[] = {{"name", NULL}, {NULL, NULL}};
static const shape go_on[] = {{"thinking", NULL}, {"close_thinking", NULL}, {"prefix", NULL}, {NULL, NULL}};
static const shape format[] = {{"type", NULL},    {"schema", NULL},  {"pattern", NULL},
                               {"choices", NULL}, {"options", NULL}, {NULL, NULL}};
static const shape sampling[] = {
    {"temperature", NULL},       {"top_p", NULL},            {"top_k", NULL},
    {"min_p", NULL},             {"seed", NULL},             {"frequency_penalty", NULL},
    {"presence_penalty", NULL},  {"repetition_penalty", NULL}, {"logit_bias", NULL},
    {NULL, NULL},
};
static const shape top[] = {
    {"model", NULL},
    {"messages", message},
    {"prompt", NULL},
    {"tools", tool},
    {"tool_choice", choice},
    {"thinking", NULL},
    {"max_thinking_tokens", NULL},
    {"min_thinking_tokens", NULL},
    {"history_thinking", NULL},
    {"continue", go_on},
    {"format", format},
    {"max_tokens", NULL},
    {"stop", NULL},
    {"stream", NULL},
    {"logprobs", NULL},
    {"sampling", sampling},
    {"ban_strings", NULL},
    {"cache", NULL},
    {"priority", NULL},
    {"echo_prompt_ids", NULL},
    {NULL, NULL},
};

enum { PATH_MAX_BYTES = 150 };

static lg_status check(const lg_json *j, const shape *known, const char *path, lg_api_error *e);

static lg_status check_member(const lg_json *value, lg_str key, const shape *known, const char *path,
                              lg_api_error *e)
{
    char sub[PATH_MAX_BYTES];
    const shape *s = known;

    (void)snprintf(sub, sizeof sub, "%s%s%.*s", path, path[0] ? "." : "", (int)(key.n < 60 ? key.n : 60),
                   key.p);
    while (s->key && !lg_str_eqz(key, s->key))
        s++;
    if (!s->key)
        return lg_api_fail(e, LG_API_INVALID, sub, "unknown field \"%s\"", sub);
    return s->inner ? check(value, s->inner, sub, e) : LG_OK;
}

static lg_status check(const lg_json *j, const shape *known, const char *path, lg_api_error *e)
{
    char sub[PATH_MAX_BYTES];

    if (lg_json_is(j, LG_JSON_ARRAY)) {
        for (size_t i = 0; i < lg_json_len(j); i++) {
            (void)snprintf(sub, sizeof sub, "%s[%zu]", path, i);
            if (lg_json_is(lg_json_at(j, i), LG_JSON_OBJECT))
                LG_TRY(check(lg_json_at(j, i), known, sub, e));
        }
    } else if (lg_json_is(j, LG_JSON_OBJECT)) {
        for (size_t i = 0; i < lg_json_len(j); i++) {
            lg_str key;
            const lg_json *value = lg_json_member(j, i, &key);
            LG_TRY(check_member(value, key, known, path, e));
        }
    }
    return LG_OK;
}

lg_status lg_native_check_fields(const lg_json *body, lg_api_error *e)
{
    return check(body, top, "", e);
}
