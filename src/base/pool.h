/*
 * base/pool: a fixed crew of worker threads for data-parallel loops.
 *
 * The caller takes part as thread 0, so a pool of 1 starts no thread. Workers spin for a short while after a
 * job and then sleep, so an idle process uses no CPU while back-to-back jobs start within a microsecond. One
 * pool is driven by one thread at a time.
 *
 * Surprise: lg_pool_barrier may be called only inside a job, and then by every thread of it.
 */
#ifndef LG_BASE_POOL_H
#define LG_BASE_POOL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"

typedef struct lg_pool lg_pool;
typedef void (*lg_pool_fn)(void *ctx, int thread, int n_threads);

/* n_threads >= 1. Fails with LG_E_NOMEM / LG_E_IO when a thread cannot be started; none is left behind then.
 */
LG_NODISCARD lg_status lg_pool_create(int n_threads, lg_pool **out, lg_err *err);
void lg_pool_destroy(lg_pool *pool); /* takes NULL */
int lg_pool_threads(const lg_pool *pool);

/* Run fn once on every thread of the pool (caller included) and return when all are done. */
void lg_pool_run(lg_pool *pool, lg_pool_fn fn, void *ctx);
/* All threads of the running job meet here. */
void lg_pool_barrier(lg_pool *pool);

/* A shared work counter, for loops whose items differ in cost: lg_queue_reset before the job, then each
 * thread takes the next `step` items until the start is >= the total. */
typedef struct lg_queue {
    _Alignas(64) atomic_llong next;
} lg_queue;
static inline void lg_queue_reset(lg_queue *q)
{
    atomic_store_explicit(&q->next, 0, memory_order_relaxed);
}
/* The thread will take from the queue in a moment: what other threads wrote there is on its way meanwhile. */
static inline void lg_queue_soon(const lg_queue *q)
{
    __builtin_prefetch(&q->next, 1);
}
static inline int64_t lg_queue_take(lg_queue *q, int64_t step)
{
    return atomic_fetch_add_explicit(&q->next, step, memory_order_relaxed);
}

/* The same, in shrinking steps: takes 1 / `parts` of what is left of `total`, at least `least`. Returns the
 * start and the number in *n (0 when nothing is left). Long steps first, short ones to end together. */
static inline int64_t lg_queue_take_part(lg_queue *q, int64_t total, int64_t parts, int64_t least, int64_t *n)
{
    long long at = atomic_load_explicit(&q->next, memory_order_relaxed); // the type that q->next is of

    do {
        *n = (total - at) / parts;
        if (*n < least)
            *n = total - at < least ? total - at : least;
    } while (*n > 0 && !atomic_compare_exchange_weak_explicit(&q->next, &at, at + *n, memory_order_relaxed,
                                                              memory_order_relaxed));
    return at;
}

/* Physical cores this process may use (affinity and cgroup quota respected), at least 1. */
int lg_cpu_cores(void);

#endif
