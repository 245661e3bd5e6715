/*
 * server/job: one request on its way through the engine: what a dialect made of the body, the events that
 * come back, and the account that the log line shows.
 *
 * Life: the connection's thread makes a job, the dialect fills it (parse), lg_jobs_submit queues it, the
 * engine thread runs it and adds events, the connection's thread takes them (lg_job_take) and hands them to
 * the dialect, and frees the job after the last one. Everything a job refers to lives in its arena, in its
 * JSON document, or in the server, until then.
 *
 * Threads: fields above the line "engine" belong to the connection's thread before submit and are read-only
 * afterwards. `cancel` may be set by any thread at any time; the engine then ends the job with a result whose
 * end is LG_END_CANCELLED. A job is never freed before its result was taken or its submit failed.
 */
#ifndef LG_SERVER_JOB_H
#define LG_SERVER_JOB_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/json.h"
#include "engine/constraint.h"
#include "engine/engine.h"
#include "server/api_error.h"
#include "text/chat.h"

typedef struct lg_dialect lg_dialect;

/* The log-probabilities of one generated token, when the request asked for them (pre-temperature,
 * api.md 1.9). */
typedef struct lg_top_logprob {
    int32_t id;
    float logprob;
} lg_top_logprob;
enum { LG_TOP_LOGPROBS_MAX = 20 };

typedef enum lg_job_event_kind {
    LG_JOB_PROGRESS,    /* prefill: done of total prompt tokens */
    LG_JOB_REPLY,       /* a parser event: reasoning, content, call start / arguments / end */
    LG_JOB_TOKEN,       /* log-probabilities of one content token; only when job->n_logprobs >= 0 */
    LG_JOB_CHOICE_END,  /* choice `choice` is complete: `stats` is its account */
    LG_JOB_END,         /* the last event: the whole job is complete */
    LG_JOB_ERROR,       /* the last event instead of END: `error` */
} lg_job_event_kind;

typedef struct lg_job_event {
    lg_job_event_kind kind;
    int choice;               /* 0 .. n_choice - 1 */
    int64_t done, total;      /* PROGRESS */
    lg_event reply; /* REPLY; the text is valid until the next lg_job_take. reply.call counts from 0 in each
                     * choice. Calls get their id from lg_job_call_id. */
    int32_t token;            /* TOKEN */
    float logprob;
    int n_top;
    lg_top_logprob top[LG_TOP_LOGPROBS_MAX];
    const lg_gen_stats *stats; /* CHOICE_END */
    int stop;                  /* CHOICE_END: index in job->stop of the stop string that ended it, or -1 */
    const lg_api_error *error; /* ERROR */
} lg_job_event;

typedef struct lg_prompt_ids {
    const int32_t *p;
    size_t n;
} lg_prompt_ids;

typedef struct lg_job {
    /* --- filled by the dialect's parse, read by all --- */
    const lg_dialect *dialect;
    void *state;           /* the dialect's own, in the arena */
    /* the dialect's object id: "chatcmpl-...", "msg_...", "resp_...", 96 random bits */
    char id[40];
    char request_id[132];  /* x-request-id */
    lg_str model;          /* as the client wrote it; empty: the served id is shown */
    bool stream;
    int64_t created;       /* seconds since the epoch */

    lg_ids prompt;         /* ids, malloc'ed; freed with the job */
    const lg_prompt_ids *more; /* completions: prompts after the first, in the arena. The choices are then
                                * divided evenly: choice i belongs to prompt i / (n_choice / (1 + n_more)) */
    size_t n_more;
    const lg_chat_mark *mark; /* of the renderer, with token positions */
    size_t n_mark;
    int64_t ctx;           /* context of the engine */

    lg_sampling sampling;
    bool random_seed;      /* the server draws it at submit; reported */
    int n_choice;          /* n; choice i has seed + i */
    int64_t max_tokens;    /* new tokens, > 0, already clamped to the room left */
    bool thinking;
    int64_t max_think;     /* < 0: no bound */
    int64_t min_think;
    const lg_str *stop;
    size_t n_stop;
    const int32_t *stop_id; /* further ids that end the reply (FIM) */
    size_t n_stop_id;
    const lg_str *ban;
    size_t n_ban;
    bool raw;              /* no parsing of the reply: completions, FIM, native prompt */
    lg_template_family family;
    const lg_tool *tool;   /* enabled tools, for typing arguments */
    size_t n_tool;
    bool one_call;         /* the reply ends with its first complete call (no parallel calls) */
    int n_logprobs;        /* -1: none; else 0..20 top entries beside the chosen one */
    lg_constraint *constraint; /* compiled, shared; NULL: free. Released with the job */
    size_t grammar_prefix; /* the last tokens of the prompt that are the beginning of the constrained value */
    bool heal;             /* the value's beginning may go on in another token than its last one ... */
    lg_str grammar_heal;   /* ... whose text, in the arena, is no part of the prompt then */
    int priority;          /* -1, 0, 1 (native) */
    lg_cache_mode cache;
    uint64_t scope;        /* cache salt of the API key; 0 = shared */
    lg_str client;         /* for log lines: User-Agent's first word or the key's name; may be empty */
    /* idle prefill (cache.md 11): everything needed to render the history as it will be when the user speaks
     * next; NULL when the dialect has no history or it is off */
    const lg_chat *history;

    lg_arena arena;        /* limit from settings */
    lg_json_doc *doc;      /* the body */
    /* schemas of the dialect's own, for tools that a client names by type only; may be NULL */
    lg_json_doc *made;

    /* --- engine --- */
    atomic_bool cancel;
    struct lg_job_private *priv; /* event queue, times, pins: jobs.c */
} lg_job;

/* The id of call `call` of choice `choice`, in the dialect's spelling ("call_...", "toolu_...", "fc..."):
 * prefix plus 96 random bits, the same for every ask. Made on the engine thread when the call starts; valid
 * as long as the job. */
const char *lg_job_call_id(const lg_job *job, int choice, int call);

/* What the scheduler found at admission (after submit): estimates that opening events show. */
typedef struct lg_job_admission {
    int64_t prompt_tokens, cached_tokens; /* K is the estimate of the look-up */
    int queue_position;                   /* 0: runs next or now */
} lg_job_admission;

#endif
