/*
 * server/metrics: counters and histograms, and their Prometheus text (api.md 7; docs/formats/metrics.md).
 *
 * Atomics only: any thread counts, any thread reads, nobody waits.
 */
#ifndef LG_SERVER_METRICS_H
#define LG_SERVER_METRICS_H

#include "engine/engine.h"
#include "server/jobs.h"
#include "server/snapshot.h"

typedef struct lg_metrics lg_metrics;

LG_NODISCARD lg_status lg_metrics_create(lg_metrics **out, lg_err *err);
void lg_metrics_destroy(lg_metrics *m); /* takes NULL */

/* A response went out. `name` is that of its route (NULL: no route); 499: the client was gone. */
void lg_metrics_request(lg_metrics *m, const char *name, int status, uint64_t us);
void lg_metrics_queue_wait(lg_metrics *m, uint64_t us);
/* One choice of a job is complete. `first`: its prefill counts. */
void lg_metrics_choice(lg_metrics *m, const lg_gen_stats *s, int n_call, bool first);

/* `tokens_used` and the like come from the snapshot, the queue's length from the queue. */
void lg_metrics_write(lg_metrics *m, const lg_snapshot *s, lg_jobs *q, lg_buf *out);

#endif
