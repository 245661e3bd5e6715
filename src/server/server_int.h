/*
 * server/server_int: the server's struct, shared by server.c, answer.c and runner.c.
 */
#ifndef LG_SERVER_SERVER_INT_H
#define LG_SERVER_SERVER_INT_H

#include <pthread.h>

#include "server/guard.h"
#include "server/http.h"
#include "server/jobs.h"
#include "server/metrics.h"
#include "server/recent.h"
#include "server/replay.h"
#include "server/store.h"
#include "server/route.h"
#include "server/server.h"
#include "server/snapshot.h"
#include "server/unknown.h"

enum { SERVER_PINS = 64 };

struct lg_server {
    lg_server_params p;
    const lg_settings *set;
    lg_guard *guard;
    lg_http *http;
    lg_jobs *jobs;
    lg_metrics *metrics;
    lg_snapshot_box *snapshot;
    lg_recent *recent;
    bool tls;
    char *cert, *cert_key;
    size_t job_arena_bytes;
    /* two: while loading, and with the model; connections read through the pointer */
    lg_service loading, loaded;
    _Atomic(const lg_service *) service;
    lg_replay *replay;
    lg_store *store;     /* NULL: responses are not kept */
    lg_constraint_cache *constraints;
    atomic_ullong last_request_us; /* for idle_exit */
    atomic_int unknown_paths;
    atomic_bool doubled;  /* a base URL with /v1 too much was told */
    atomic_int watchers;  /* of /lagoon/v1/events */
    atomic_bool over;     /* watchers leave */
    lg_unknown unknown;   /* fields of requests that were told */
    pthread_mutex_t shown_lock;
    lg_buf shown_prompt;  /* slots_debug: the last job's prompt */
    pthread_mutex_t large; /* held while a utility works on a large body */
    /* the engine thread's */
    pthread_t runner;
    bool runner_started;
    lg_engine *engine;
    lg_prefix_pin pin[SERVER_PINS]; /* what waiting jobs can reuse, while another one runs */
    int n_pin;
    lg_job *last;        /* whose history may be prefilled while idle; NULL: none */
    lg_buf last_content, last_reasoning; /* the answer to it */
    lg_err load_err;     /* why the model could not be loaded; written before ended */
    int ended_pipe[2];   /* the engine thread says that it ended */
};

/* The engine thread (runner.c); arg is the server. */
void *lg_runner_main(void *arg);

/* One job, from its start to its end (run.c). True: it may be followed by an idle prefill, and the answer's
 * texts are in s->last_content and s->last_reasoning. */
bool lg_run_job(lg_server *s, lg_job *job);
/* Prefill the history of s->last as it will be when the user speaks next (idle.c). */
void lg_idle_prefill(lg_server *s);

/* Look on (watch.c): a stream of the status. LG_E_INPUT with *e filled when too many do. */
LG_NODISCARD lg_status lg_watch_open(lg_server *s, lg_request *rq, lg_stream *out, lg_api_error *e);

/* Requests (answer.c): the functions of lg_http_handler; ctx is the server. */
void lg_answer_begin(void *ctx, lg_request *rq, lg_response *out);
void lg_answer_handle(void *ctx, lg_request *rq, lg_response *out);
void lg_answer_refuse(void *ctx, const lg_request *rq, int status, lg_response *out);
void lg_answer_done(void *ctx, lg_request *rq, int status);

#endif
