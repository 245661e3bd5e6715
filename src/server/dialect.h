/*
 * server/dialect: what a dialect is: JSON <-> lg_job, nothing else. One file a dialect.
 *
 * The server calls, on the connection's thread and in this order:
 *   parse                       body -> job: validation, rendering, tokenizing, context check; fills
 * everything of job.h above "engine". Fails with *e filled; nothing was sent yet. open      (streams) as soon
 * as the job is admitted: the opening events event     for every event   streams: frames are appended to
 * `out`; else the dialect collects in job->state finish                      streams: the closing events;
 * else the whole body fail      (streams)         instead of finish: the error inside the stream All output
 * is appended to `out`; a buffer that fails ends the connection. Nothing is sent twice.
 *
 * The two forms (stream or not) give the same content whatever the chunking.
 */
#ifndef LG_SERVER_DIALECT_H
#define LG_SERVER_DIALECT_H

#include "base/settings.h"
#include "server/job.h"
#include "server/jsonw.h"

typedef struct lg_replay lg_replay; /* replay.h */

/* What parse may look at. Immutable while the server runs, shared by all connections. */
typedef struct lg_service {
    const lg_settings *set;
    const lg_vocab *vocab;
    const lg_bpe *bpe;
    const lg_token_trie *trie; /* NULL: no constraints with this vocabulary */
    const char *model_id;      /* the served id, e.g. "laguna-s-2.1" */
    const char *model_path;
    lg_template_family family;
    int64_t n_ctx, n_ctx_train;
    int64_t n_params, model_bytes;
    int64_t created;           /* start of the server, seconds since the epoch */
    lg_replay *replay;         /* its own lock */
    struct lg_store *store;    /* store.h, its own lock; NULL: responses are not kept */
    lg_constraint_cache *constraints; /* its own lock */
} lg_service;

typedef struct lg_request lg_request; /* http.h: method, path, headers, body */

typedef enum lg_ping { LG_PING_COMMENT, LG_PING_EVENT, LG_PING_NONE } lg_ping;

struct lg_dialect {
    const char *name; /* in logs, metrics, and the setting `dialects`: chat responses completions messages
                       * native infill */
    const char *setting;   /* openai, responses, anthropic, llama, native */
    lg_error_shape shape;
    lg_ping ping;          /* keep-alive under sse_ping = auto */
    bool model_optional;   /* its requests need not name a model, also under model_policy = strict */
    lg_status (*parse)(const lg_service *s, const lg_request *rq, const lg_json *body, lg_job *job,
                       lg_api_error *e);
    void (*open)(lg_job *job, const lg_job_admission *a, lg_buf *out);
    void (*event)(lg_job *job, const lg_job_event *ev, lg_buf *out);
    void (*finish)(lg_job *job, lg_buf *out);
    void (*fail)(lg_job *job, const lg_api_error *e, lg_buf *out);
};

extern const lg_dialect lg_dialect_chat, lg_dialect_responses, lg_dialect_completions, lg_dialect_infill,
    lg_dialect_messages, lg_dialect_native;

/* Requests that are answered at once on the connection's thread, without the engine. Append the JSON body to
 * `out`; fail with *e filled. `body` is NULL for GET. */
typedef lg_status (*lg_utility_fn)(const lg_service *s, const lg_request *rq, const lg_json *body,
                                   lg_arena *a, lg_buf *out, lg_api_error *e);
/* utilities.c */
LG_NODISCARD lg_status lg_util_tokenize(const lg_service *s, const lg_request *rq, const lg_json *body,
                                        lg_arena *a, lg_buf *out, lg_api_error *e);
LG_NODISCARD lg_status lg_util_detokenize(const lg_service *s, const lg_request *rq, const lg_json *body,
                                          lg_arena *a, lg_buf *out, lg_api_error *e);
LG_NODISCARD lg_status lg_util_apply_template(const lg_service *s, const lg_request *rq, const lg_json *body,
                                              lg_arena *a, lg_buf *out, lg_api_error *e);
LG_NODISCARD lg_status lg_util_count_tokens(const lg_service *s, const lg_request *rq, const lg_json *body,
                                            lg_arena *a, lg_buf *out, lg_api_error *e);
LG_NODISCARD lg_status lg_util_models(const lg_service *s, const lg_request *rq, const lg_json *body,
                                      lg_arena *a, lg_buf *out, lg_api_error *e);
LG_NODISCARD lg_status lg_util_model(const lg_service *s, const lg_request *rq, const lg_json *body,
                                     lg_arena *a, lg_buf *out, lg_api_error *e);
LG_NODISCARD lg_status lg_util_props(const lg_service *s, const lg_request *rq, const lg_json *body,
                                     lg_arena *a, lg_buf *out, lg_api_error *e);
/* responses_stored.c */
LG_NODISCARD lg_status lg_util_response(const lg_service *s, const lg_request *rq, const lg_json *body,
                                        lg_arena *a, lg_buf *out, lg_api_error *e);
LG_NODISCARD lg_status lg_util_response_delete(const lg_service *s, const lg_request *rq, const lg_json *body,
                                               lg_arena *a, lg_buf *out, lg_api_error *e);

/* --- request.h's view of the HTTP side (implemented in http.c) --- */
lg_str lg_request_path(const lg_request *rq);                      /* without query, aliases resolved */
lg_str lg_request_header(const lg_request *rq, const char *name);  /* case-insensitive; empty when absent */

/* --- framing (sse.c) --- */
/* "event: NAME\n" when name is not NULL, then "data: JSON\n\n". */
void lg_sse_frame(lg_buf *out, const char *name, lg_str json);
/* Writing a frame in place: lg_jsonw between begin and end. */
void lg_sse_begin(lg_buf *out, const char *name);
void lg_sse_end(lg_buf *out);
/* The same for an object that begins with its own name: "event: TYPE", {"type":TYPE, ... */
lg_jsonw lg_sse_object(lg_buf *out, const char *type);
void lg_sse_object_end(lg_jsonw *w);

#endif
