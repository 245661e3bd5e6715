/*
 * server/jobs: the queue in front of the engine, and the event queue of each job.
 *
 * Owns the jobs from submit on: a job has two holders, the connection and the engine; the last one to let go
 * frees it. So a connection whose client is gone leaves at once and the engine ends the job when it sees the
 * cancel flag.
 *
 * Threads: one mutex for the queue, held for a look or a change only, and one for each job's events.
 * Connections reserve, submit, take and cancel; the engine thread takes the next job, puts events and ends
 * it; the watching thread calls lg_jobs_tick.
 *
 * Surprise: an event queue has no bound but the reply's own: a slow reader costs memory, never engine time.
 */
#ifndef LG_SERVER_JOBS_H
#define LG_SERVER_JOBS_H

#include "server/job.h"

typedef struct lg_jobs lg_jobs;

typedef enum lg_jobs_state { LG_JOBS_LOADING, LG_JOBS_READY, LG_JOBS_STOPPING, LG_JOBS_FAILED } lg_jobs_state;

enum { LG_AGE_GUARD_US = 20 * 1000 * 1000 };

typedef struct lg_jobs_params {
    int capacity;  /* that may wait beside the one that runs */
    bool fifo;
} lg_jobs_params;

LG_NODISCARD lg_status lg_jobs_create(const lg_jobs_params *p, lg_jobs **out, lg_err *err);
void lg_jobs_destroy(lg_jobs *q); /* takes NULL; no job is left in it */

/* --- a connection's side --- */

/* A place in the queue, before the body is parsed: 429, or 503 while loading or stopping. It ends with
 * lg_jobs_unreserve, or with a job that was submitted in it. */
LG_NODISCARD lg_status lg_jobs_reserve(lg_jobs *q, lg_api_error *e);
void lg_jobs_unreserve(lg_jobs *q);

/* An empty job with its arena. */
LG_NODISCARD lg_status lg_job_create(size_t arena_limit, lg_job **out, lg_err *err);
void lg_job_release(lg_job *job); /* takes NULL; one holder less */

/* Into the queue, on success with the engine as second holder. Draws the seed when the job wants that.
 * LG_E_INPUT with *e filled when the server is stopping. The reservation is used up either way. */
LG_NODISCARD lg_status lg_jobs_submit(lg_jobs *q, lg_job *job, lg_job_admission *a, lg_api_error *e);
/* The next event, or false: none yet, and lg_job_fd becomes readable when there is one. */
bool lg_job_take(lg_job *job, lg_job_event *ev);
/* The same, but when there is none lg_job_fd becomes readable for the last event only. */
bool lg_job_take_more(lg_job *job, lg_job_event *ev);
/* Whether an event has been fetched already and waits for lg_job_take: lg_job_fd says nothing of those. */
bool lg_job_at_hand(const lg_job *job);
/* Before submit: nobody looks at the answer before it is complete, so lg_job_fd becomes readable with the
 * last event, and now and then before it. */
void lg_job_collect(lg_job *job);
int lg_job_fd(const lg_job *job);
/* The client is gone. A job that waits leaves the queue; one that runs ends soon. */
void lg_jobs_cancel(lg_jobs *q, lg_job *job);

/* --- the engine thread's side --- */

/* Estimate of the tokens of a prompt that need no prefill, and into *work_us of the time that the whole job
 * takes by what was measured at its depths of context; 0 there: nothing was. Engine thread. */
typedef int64_t (*lg_jobs_cached_fn)(void *ctx, const lg_job *job, double *work_us);
/* The next job, which then runs. NULL after `idle_ms` without one (< 0: wait for ever), or with *stop when
 * the server stops and nothing is left. */
lg_job *lg_jobs_next(lg_jobs *q, int idle_ms, lg_jobs_cached_fn cached, void *ctx, bool *stop);
/* True when a job waits: idle work gives way. */
bool lg_jobs_waiting(lg_jobs *q);
/* The flag of idle work: raised by every submit and by a stop, so that the work ends within a chunk. */
atomic_bool *lg_jobs_idle_cancel(lg_jobs *q);

/* What the engine has done for the job; for those who cannot wait for its end. */
typedef struct lg_job_account {
    int64_t cached, output, thinking; /* tokens; output counts the thinking, too */
} lg_job_account;
void lg_job_count_cached(lg_job *job, int64_t tokens); /* of its first prompt */
void lg_job_count_token(lg_job *job, bool thinking);
lg_job_account lg_job_so_far(const lg_job *job); /* any thread */

void lg_job_put_progress(lg_job *job, int choice, int64_t done, int64_t total);
void lg_job_put_reply(lg_job *job, int choice, const lg_event *ev);
void lg_job_put_token(lg_job *job, int choice, const lg_job_event *token);
void lg_job_put_choice(lg_job *job, int choice, const lg_gen_stats *stats, int stop);
void lg_job_put_end(lg_job *job);
void lg_job_put_error(lg_job *job, const lg_api_error *e);
/* Why a cancelled job was cancelled. */
typedef enum lg_job_why { LG_WHY_CLIENT, LG_WHY_TIME, LG_WHY_STOP } lg_job_why;
lg_job_why lg_job_cancelled_why(const lg_job *job);
/* False once an event could not be stored (memory): the job must end. */
bool lg_job_sound(const lg_job *job);
/* What the prefix cache is asked about the job's (first) prompt. */
lg_cache_ask lg_job_ask(const lg_job *job);
/* One holder more. */
void lg_job_hold(lg_job *job);
/* The running job is over: the engine lets go of it. */
void lg_jobs_done(lg_jobs *q, lg_job *job);

/* --- state --- */

void lg_jobs_ready(lg_jobs *q);  /* the model is loaded */
void lg_jobs_fail(lg_jobs *q);   /* it could not be loaded, or the device is lost: 503 from now on */
lg_jobs_state lg_jobs_get_state(lg_jobs *q);
/* Stop: what waits gets its error; the running job has until `grace_us` from now, then is cut. Again with a
 * smaller grace to cut it earlier. */
void lg_jobs_stop(lg_jobs *q, uint64_t grace_us);
/* True when nothing waits, runs or is being prepared. */
bool lg_jobs_empty(lg_jobs *q);
/* Wall-clock ceilings, once a second. `paused_us`: of the time since the last tick, what the process was
 * stopped or asleep; it counts for nobody. */
void lg_jobs_tick(lg_jobs *q, uint64_t paused_us);

/* Measured rates, tokens a second, for ceilings and estimates. 0: not measured. */
void lg_jobs_measured(lg_jobs *q, double prefill, double decode);
void lg_jobs_rates(lg_jobs *q, double *prefill, double *decode);

/* What waits and what runs, for those who show it. */
typedef struct lg_job_row {
    char id[24], dialect[16], client[32];
    int64_t prompt, uncached;  /* tokens */
    uint64_t waited_us;
    int priority;
    bool running, stream;
} lg_job_row;
/* Up to `max` rows in the order in which they will run (the running one first); returns how many there are.
 */
size_t lg_jobs_list(lg_jobs *q, lg_job_row *out, size_t max);

/* Short id of the log, "r-7f3a"; times of the job's life. */
const char *lg_job_tag(const lg_job *job);
uint64_t lg_job_queue_us(const lg_job *job); /* from submit to the start of the work, or until now */
uint64_t lg_job_first_us(const lg_job *job); /* when its reply began, on lg_now_us's clock; 0: not yet */

/* --- pure --- */

typedef struct lg_pick {
    int priority;
    uint64_t waited_us;
    int64_t uncached;
} lg_pick;
/* Index of the one that runs next, out of n > 0 in order of arrival. */
size_t lg_jobs_pick(const lg_pick *p, size_t n, bool fifo);
/* api.md 1.5: 60 s + uncached / (prefill / 4) + tokens / (decode / 4), or 60 s and four times the estimate
 * work_us, whichever is longer: the rates are of the last requests, a long context is slower. */
uint64_t lg_jobs_ceiling_us(int64_t uncached, int64_t max_tokens, double prefill, double decode,
                            double work_us);

#endif
