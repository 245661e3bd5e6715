/*
 * server/request: the fields that the dialects share: sampling, limits, thinking, stop strings, tool choice,
 * response format (api.md 1.9, 1.10, 2, 3.5, 3.6), and the last step of every parse.
 *
 * All readers take the JSON object that holds the fields, treat null as absent, accept integral floats as
 * integers, and fail with the field's name in e->param.
 */
#ifndef LG_SERVER_REQUEST_H
#define LG_SERVER_REQUEST_H

#include "server/dialect.h"
#include "text/chat_json.h"

/* Typed access. `*out` keeps its value when the field is absent or null. `at` is the path of the object (""
 * at the top, "sampling." inside), for messages. */
LG_NODISCARD lg_status lg_field_int(const lg_json *o, const char *at, const char *key, int64_t low,
                                    int64_t high, int64_t *out, lg_api_error *e);
/* A bound from above, in tokens: at least `low`, and as large as the client likes. What no context can hold
 * is LG_LIMIT_MOST, so that "as many as possible" has no wrong spelling. */
enum { LG_LIMIT_MOST = 1 << 30 };
LG_NODISCARD lg_status lg_field_limit(const lg_json *o, const char *at, const char *key, int64_t low,
                                      int64_t *out, lg_api_error *e);
LG_NODISCARD lg_status lg_field_num(const lg_json *o, const char *at, const char *key, double low,
                                    double high, double *out, lg_api_error *e);
LG_NODISCARD lg_status lg_field_bool(const lg_json *o, const char *at, const char *key, bool *out,
                                     lg_api_error *e);
LG_NODISCARD lg_status lg_field_str(const lg_json *o, const char *at, const char *key, lg_str *out,
                                    lg_api_error *e);

/* temperature ... logit_bias; a dialect that lacks some passes the mask of those it has. */
enum {
    LG_SAMPLE_BASIC = 1,     /* temperature, top_p, top_k */
    LG_SAMPLE_MIN_P = 2,
    LG_SAMPLE_SEED = 4,
    LG_SAMPLE_PENALTIES = 8, /* frequency, presence, repetition (and repeat_penalty, repeat_last_n) */
    LG_SAMPLE_BIAS = 16,
    LG_SAMPLE_ALL = 31,
};
LG_NODISCARD lg_status lg_request_sampling(const lg_service *s, const lg_json *o, const char *at,
                                           unsigned have, lg_job *job, lg_api_error *e);
/* A string or up to 16 strings; empty ones dropped. */
LG_NODISCARD lg_status lg_request_stop(const lg_json *o, const char *at, const char *key, lg_job *job,
                                       lg_api_error *e);

/* What the request says about thinking, before limits. */
typedef struct lg_think_ask {
    bool explicitly;      /* the request asked for it on, off, or for an effort or budget */
    bool on;
    int64_t budget;       /* < 0: none */
    lg_history history;
    bool hide;            /* reasoning is not returned */
} lg_think_ask;
/* Server defaults, then all spellings of api.md 2 that stand in `body` (reasoning_effort, reasoning{},
 * thinking{}, enable_thinking, think, thinking_budget..., chat_template_kwargs, output_config.effort). */
LG_NODISCARD lg_status lg_request_thinking(const lg_service *s, const lg_json *body, lg_think_ask *out,
                                           lg_api_error *e);

typedef enum lg_choice_mode { LG_CHOICE_AUTO, LG_CHOICE_NONE, LG_CHOICE_REQUIRED } lg_choice_mode;
typedef struct lg_tool_choice {
    lg_choice_mode mode;
    lg_str only;          /* REQUIRED: this tool; empty: any */
    const lg_str *allowed; /* REQUIRED: one of these; n_allowed 0: any */
    size_t n_allowed;
    bool parallel;        /* more than one call may be made; else the reply ends with the first */
    int max_calls;        /* REQUIRED: most forced calls; 0 counts as 1 */
} lg_tool_choice;
typedef enum lg_format_kind {
    LG_FORMAT_TEXT,
    LG_FORMAT_JSON_OBJECT,
    LG_FORMAT_JSON_SCHEMA,
    LG_FORMAT_REGEX,  /* native */
    LG_FORMAT_CHOICE, /* native */
} lg_format_kind;
typedef struct lg_format {
    lg_format_kind kind;
    const lg_json *schema;   /* JSON_SCHEMA; also the optional one of json_object. REGEX: the string; CHOICE:
                              * the   array of strings */
    const char *param;       /* the field that carries it: "response_format.json_schema.schema",
                              * "text.format.schema",       "output_config.format.schema" */
    const lg_json *options;  /* native: format.options; else NULL */
} lg_format;
/* Chat's tool_choice (also the older function_call), Chat's response_format and its aliases. Other dialects
 * fill the structs themselves. */
LG_NODISCARD lg_status lg_request_tool_choice(const lg_json *body, const lg_chat_tools *tools, lg_arena *a,
                                              lg_tool_choice *out, lg_api_error *e);
LG_NODISCARD lg_status lg_request_format(const lg_json *body, lg_format *out, lg_api_error *e);
/* One format object {"type": ...} (may be NULL), called `param` in messages; `holder` is the object that has
 * name and schema of a json_schema, `schema_param` what its schema is called. */
LG_NODISCARD lg_status lg_request_format_of(const lg_json *f, const char *param, const lg_json *holder,
                                            const char *schema_param, lg_format *out, lg_api_error *e);

/* The common end of every parse of a chat-like request. `c`: messages and tools as the dialect translated
 * them (its family, thinking, history, generation_prompt and tool fields are set here). Resolves limit,
 * small-limit and fit rules, looks calls up in the replay memory, compiles what is constrained, renders,
 * encodes, checks the context (api.md 1.8) and fills the job. limit <= 0: absent. With count_only only the
 * prompt is made. */
typedef struct lg_chat_request {
    lg_chat *chat;
    const lg_chat_tools *tools;
    lg_tool_choice choice;
    lg_format format;
    lg_think_ask think;
    int64_t limit;
    bool limit_given;
    bool count_only;
    const char *param; /* the field that holds the conversation; NULL: messages */
    lg_str prefix; /* native: bytes that the grammar must accept first; empty: none */
} lg_chat_request;
LG_NODISCARD lg_status lg_request_chat(const lg_service *s, const lg_chat_request *r, lg_job *job,
                                       lg_api_error *e);
/* Raw text with its control tokens, behind a begin token where the vocabulary has one. What comes to no token
 * at all is refused. */
LG_NODISCARD lg_status lg_request_raw_text(const lg_service *s, lg_str text, lg_ids *out, lg_api_error *e);
/* The same for a raw prompt: context check and limits on job->prompt. */
LG_NODISCARD lg_status lg_request_raw(const lg_service *s, int64_t limit, lg_job *job, lg_api_error *e);

/* model_policy, aliases (api.md 1.4). Sets job->model. */
LG_NODISCARD lg_status lg_request_model(const lg_service *s, const lg_json *body, lg_job *job,
                                        lg_api_error *e);

/* "PREFIX" and 96 random bits in base62-like text, NUL-terminated. */
void lg_random_id(const char *prefix, char *out, size_t n);

#endif
