/*
 * server/snapshot: one picture of what the engine does, for /slots, /metrics, the status page and a dashboard
 * (ux.md 1.1). No prompt text is in it.
 *
 * The engine thread writes it behind a sequence lock, without allocation or system call, at most 20 times a
 * second and at each change of phase; any thread reads a copy and never makes the engine wait. The queue is
 * not in it: it is read from the queue itself (lg_jobs_list), which the engine thread touches only between
 * jobs.
 */
#ifndef LG_SERVER_SNAPSHOT_H
#define LG_SERVER_SNAPSHOT_H

#include "server/jobs.h"

enum { LG_SNAPSHOT_SLOTS = 32 };

typedef enum lg_phase_now { LG_NOW_LOADING, LG_NOW_IDLE, LG_NOW_PREFILL, LG_NOW_DECODE } lg_phase_now;

typedef struct lg_snapshot {
    lg_phase_now phase;
    uint64_t load_done, load_total;
    uint64_t since_us;              /* monotonic, when the phase began */
    int64_t n_ctx, kv_tokens;
    /* the running job, or the last one */
    char id[24], dialect[16], client[32];
    int64_t prompt, cached, prefill_done;
    int64_t tokens[3];              /* sampled: thinking, answer, tools (lg_reply_phase) */
    int n_call;
    uint64_t job_start_us, first_token_us;
    int64_t n_jobs;                 /* begun so far */
    /* the prefix cache, as of the end of the last job */
    lg_cache_stats cache;
    lg_prefix_slot slot[LG_SNAPSHOT_SLOTS];
    int n_slot;
} lg_snapshot;

typedef struct lg_snapshot_box lg_snapshot_box;

LG_NODISCARD lg_status lg_snapshot_create(lg_snapshot_box **out, lg_err *err);
void lg_snapshot_destroy(lg_snapshot_box *b); /* takes NULL */
void lg_snapshot_read(lg_snapshot_box *b, lg_snapshot *out); /* any thread */

/* --- the engine thread --- */
void lg_snapshot_load(lg_snapshot_box *b, uint64_t done, uint64_t total);
void lg_snapshot_ready(lg_snapshot_box *b, int64_t n_ctx);
void lg_snapshot_begin(lg_snapshot_box *b, const lg_job *job);
void lg_snapshot_prefill(lg_snapshot_box *b, int64_t done, int64_t total);
void lg_snapshot_token(lg_snapshot_box *b, lg_reply_phase phase);
void lg_snapshot_call(lg_snapshot_box *b);
void lg_snapshot_end(lg_snapshot_box *b, const lg_engine *e);

#endif
