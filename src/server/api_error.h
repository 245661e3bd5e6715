/*
 * server/api_error: an error as an HTTP client sees it, and its two spellings (api.md 1.11).
 *
 * Whoever detects the fault fills one lg_api_error; the dialect's shape decides how it is written, as a body
 * or as an event inside a stream. Owns nothing.
 */
#ifndef LG_SERVER_API_ERROR_H
#define LG_SERVER_API_ERROR_H

#include <stdint.h>

#include "base/buf.h"

/* OPENAI: {"error":{message,type,param,code}}. ANTHROPIC:
 * {"type":"error","error":{type,message},"request_id"}. */
typedef enum lg_error_shape { LG_SHAPE_OPENAI, LG_SHAPE_ANTHROPIC } lg_error_shape;

/* A kind fixes the status and the type words of both shapes. */
typedef enum lg_api_kind {
    LG_API_INVALID,      /* 400 invalid_request_error */
    LG_API_KEY,          /* 401, code invalid_api_key; Anthropic authentication_error */
    LG_API_FORBIDDEN,    /* 403 permission_error */
    LG_API_NOT_FOUND,    /* 404, code not_found or model_not_found */
    LG_API_METHOD,       /* 405 */
    LG_API_TIMEOUT,      /* 408 */
    LG_API_TOO_LARGE,    /* 413 request_too_large */
    LG_API_MEDIA_TYPE,   /* 415 */
    LG_API_QUEUE_FULL,   /* 429 rate_limit_error, code queue_full; Retry-After: 1 */
    LG_API_HEADERS,      /* 431 */
    LG_API_INTERNAL,     /* 500 server_error, api_error */
    LG_API_LOADING,      /* 503, code model_loading; Retry-After: 5 */
    LG_API_STOPPING,     /* 503, code shutting_down */
    LG_API_UNAVAILABLE,  /* 503, code model_unavailable: it was not loaded, or its device is lost */
    LG_API_UNSUPPORTED_SERVICE, /* 501: a switched-off extension such as /infill */
} lg_api_kind;

typedef struct lg_api_error {
    lg_api_kind kind;
    int status;         /* 0: that of the kind (strict_status replaces it) */
    char code[40];      /* "": that of the kind; else e.g. "context_length_exceeded", "unsupported_keyword" */
    char param[160];    /* field with its path, "messages[3].content[0].type"; "" = null */
    char message[1536]; /* one line, no prompt text */
    int64_t n_prompt_tokens, n_ctx; /* context overflow: both > 0; the OpenAI shape shows them */
} lg_api_error;

/* Fill *e and return LG_E_INPUT (so that a parser can `return lg_api_fail(...)`). param may be NULL.
 * Ill-formed UTF-8 and control characters in the result are replaced. */
lg_status lg_api_fail(lg_api_error *e, lg_api_kind kind, const char *param, const char *fmt, ...)
    LG_PRINTF(4, 5);
/* From a lower layer's error: INPUT, UNSUPPORTED and LIMIT are the client's (400), the rest is INTERNAL. The
 * subject of a field error becomes param. Returns err->code. */
lg_status lg_api_from_err(lg_api_error *e, const lg_err *err);

int lg_api_status(const lg_api_error *e);
/* The code, else the type: a word for logs, never text of a client's. */
const char *lg_api_word(const lg_api_error *e);
/* The error object in its shape, no newline. request_id is used by the Anthropic shape only. */
void lg_api_error_json(const lg_api_error *e, lg_error_shape shape, const char *request_id, lg_buf *out);

#endif
