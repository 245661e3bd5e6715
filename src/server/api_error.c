/*
 * server/api_error: see api_error.h. The one table of kinds; everything that depends on the kind of an error
 * is in it.
 */
#include "server/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/jsonw.h"

typedef struct kind_row {
    int status;
    const char *type, *code; // OpenAI; code NULL: null
    const char *anthropic;
} kind_row;

static const kind_row kinds[] = {
    [LG_API_INVALID] = {400, "invalid_request_error", NULL, "invalid_request_error"},
    [LG_API_KEY] = {401, "invalid_request_error", "invalid_api_key", "authentication_error"},
    [LG_API_FORBIDDEN] = {403, "permission_error", NULL, "permission_error"},
    [LG_API_NOT_FOUND] = {404, "invalid_request_error", "not_found", "not_found_error"},
    [LG_API_METHOD] = {405, "invalid_request_error", "method_not_allowed", "invalid_request_error"},
    [LG_API_TIMEOUT] = {408, "invalid_request_error", "request_timeout", "invalid_request_error"},
    [LG_API_TOO_LARGE] = {413, "invalid_request_error", "request_too_large", "request_too_large"},
    [LG_API_MEDIA_TYPE] = {415, "invalid_request_error", "unsupported_media_type", "invalid_request_error"},
    [LG_API_QUEUE_FULL] = {429, "rate_limit_error", "queue_full", "rate_limit_error"},
    [LG_API_HEADERS] = {431, "invalid_request_error", "headers_too_large", "invalid_request_error"},
    [LG_API_INTERNAL] = {500, "server_error", "internal_error", "api_error"},
    [LG_API_LOADING] = {503, "unavailable_error", "model_loading", "overloaded_error"},
    [LG_API_STOPPING] = {503, "unavailable_error", "shutting_down", "overloaded_error"},
    [LG_API_UNAVAILABLE] = {503, "unavailable_error", "model_unavailable", "overloaded_error"},
    [LG_API_UNSUPPORTED_SERVICE] = {501, "invalid_request_error", "not_supported", "invalid_request_error"},
};

lg_status lg_api_fail(lg_api_error *e, lg_api_kind kind, const char *param, const char *fmt, ...)
{
    char text[sizeof e->message];
    size_t n;
    va_list ap;

    *e = (lg_api_error){.kind = kind};
    if (param)
        (void)snprintf(e->param, sizeof e->param, "%s", param);
    va_start(ap, fmt);
    int len = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    n = len < 0 ? 0 : (size_t)len < sizeof text ? (size_t)len : sizeof text - 1;
    n = lg_utf8_complete(text, n);
    // what came from a client may hold anything; a message is one line
    for (size_t i = 0; i < n;) {
        int32_t cp;
        int step = lg_utf8_step(text + i, n - i, &cp);

        if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0))
            memset(text + i, '?', (size_t)step);
        i += (size_t)step;
    }
    memcpy(e->message, text, n);
    return LG_E_INPUT;
}

lg_status lg_api_from_err(lg_api_error *e, const lg_err *err)
{
    bool client = err->code == LG_E_INPUT || err->code == LG_E_UNSUPPORTED || err->code == LG_E_LIMIT;
    lg_api_kind kind = client                     ? LG_API_INVALID
                       : err->code == LG_E_DEVICE ? LG_API_UNAVAILABLE
                                                  : LG_API_INTERNAL;

    (void)lg_api_fail(e, kind, client ? err->subject : NULL, "%s%s%s", err->subject,
                      err->subject[0] ? ": " : "", err->msg);
    return err->code;
}

int lg_api_status(const lg_api_error *e)
{
    return e->status ? e->status : kinds[e->kind].status;
}

const char *lg_api_word(const lg_api_error *e)
{
    return e->code[0] ? e->code : kinds[e->kind].code ? kinds[e->kind].code : kinds[e->kind].type;
}

void lg_api_error_json(const lg_api_error *e, lg_error_shape shape, const char *request_id, lg_buf *out)
{
    const kind_row *k = &kinds[e->kind];
    lg_jsonw w = lg_jsonw_start(out);

    lg_jsonw_open(&w, NULL, '{');
    if (shape == LG_SHAPE_ANTHROPIC)
        lg_jsonw_strz(&w, "type", "error");
    lg_jsonw_open(&w, "error", '{');
    if (shape == LG_SHAPE_ANTHROPIC) {
        lg_jsonw_strz(&w, "type", k->anthropic);
        lg_jsonw_strz(&w, "message", e->message);
        lg_jsonw_close(&w, '}');
        lg_jsonw_strz(&w, "request_id", request_id);
    } else {
        lg_jsonw_strz(&w, "message", e->message);
        lg_jsonw_strz(&w, "type", k->type);
        lg_jsonw_strz(&w, "param", e->param[0] ? e->param : NULL);
        lg_jsonw_strz(&w, "code", e->code[0] ? e->code : k->code);
        if (e->n_prompt_tokens > 0 && e->n_ctx > 0) {
            lg_jsonw_int(&w, "n_prompt_tokens", e->n_prompt_tokens);
            lg_jsonw_int(&w, "n_ctx", e->n_ctx);
        }
        lg_jsonw_close(&w, '}');
    }
    lg_jsonw_close(&w, '}');
}
