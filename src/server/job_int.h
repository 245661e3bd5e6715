/*
 * server/job_int: the inner part of a job, shared by jobs.c and events.c only.
 */
#ifndef LG_SERVER_JOB_INT_H
#define LG_SERVER_JOB_INT_H

#include <pthread.h>

#include "server/jobs.h"

typedef enum lg_job_state { LG_JOB_NEW, LG_JOB_WAITS, LG_JOB_RUNS, LG_JOB_ENDED } lg_job_state;

typedef struct lg_job_call_name lg_job_call_name;

struct lg_job_private {
    atomic_int refs;
    char tag[24];        /* of the log: "r-7f3a" */
    /* the queue's, under its lock */
    lg_job *next;
    lg_job_state state;
    int64_t uncached;
    double work_us; /* 0: no estimate */
    uint64_t submit_us, start_us, deadline_us;
    bool deadline_stops; /* the deadline is that of a stop, not the job's own */
    atomic_int why;      /* lg_job_why of a cancelled job */
    lg_prompt_mark *mark; /* job->mark as the cache wants them; made by submit */
    /* events, under `lock`: the engine appends to `in`; the reader swaps it for its own empty `out` */
    pthread_mutex_t lock;
    lg_buf in, out;
    atomic_ullong first_us; /* of the reply's first event; 0: none yet */
    atomic_llong cached, output, thinking; /* lg_job_so_far */
    size_t at;           /* the reader's place in out */
    size_t last_progress; /* place in `in` of a progress record that nothing followed, + 1 */
    bool progressed;     /* the first of them is out: it tells what was cached, and is never replaced */
    bool wanted;         /* the reader waits */
    bool collects;       /* it waits for the end */
    atomic_bool broken;  /* an event was lost */
    bool lost_end;       /* and then the one that ends the job: the reader gets `no_memory` in its place */
    lg_api_error no_memory;
    int wake[2];         /* read and write end; the same descriptor where there is an eventfd */
    lg_job_call_name *call;
    size_t n_call;
};

#endif
