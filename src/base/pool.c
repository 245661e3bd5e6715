/*
 * base/pool: see pool.h.
 *
 * A job is announced by a new ticket number. Workers wait for it in two stages: spinning for SPIN_NS, then
 * asleep on a condition variable, which the runner signals only when somebody sleeps. Waiting inside a job
 * (end of the job, barrier) spins and then yields, because the others are known to be at work.
 *
 * Surprise: a pool with more threads than usable cores never spins; there, a spinning thread would keep the
 * very thread it waits for off the core.
 */
#include "base/pool.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "base/cgroup.h"
#include "base/clock.h"

enum {
    SPIN_NS = 100 * 1000, // longer than the gaps between ops of a step, far shorter than a token
    SPINS_PER_LOOK = 64,  // pauses between looks at the clock
    SPINS_IN_JOB = 4096,  // pauses before yielding inside a job
    THREADS_MAX = 1024,
};

typedef struct worker {
    lg_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct lg_pool {
    int n_threads;
    bool spins;
    worker *workers; // n_threads - 1
    lg_pool_fn fn;   // of the current job; written before the ticket, read after it
    void *ctx;

    _Alignas(64) atomic_uint ticket; // number of the current job
    atomic_bool stop;
    _Alignas(64) atomic_int running; // workers that have not finished it
    _Alignas(64) atomic_int arrived; // barrier
    atomic_uint phase;
    _Alignas(64) atomic_int sleepers;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

// Wait inside a job, where the other side is running or runnable.
static void back_off(const lg_pool *p, int *spins)
{
    if (p->spins && ++*spins < SPINS_IN_JOB)
        pause_cpu();
    else
        (void)sched_yield();
}

// The next job's ticket, or `seen` when the pool stops.
static unsigned await_ticket(lg_pool *p, unsigned seen)
{
    unsigned now = atomic_load_explicit(&p->ticket, memory_order_acquire);

    if (p->spins && now == seen) {
        uint64_t until = lg_now_ns() + SPIN_NS;
        do {
            for (int i = 0; i < SPINS_PER_LOOK && now == seen; i++) {
                pause_cpu();
                now = atomic_load_explicit(&p->ticket, memory_order_acquire);
            }
        } while (now == seen && lg_now_ns() < until);
    }
    if (now != seen)
        return now;
    // The runner publishes the ticket, then looks for sleepers; we count ourselves, then look at the ticket:
    // with both sequentially consistent one of the two sees the other.
    (void)pthread_mutex_lock(&p->lock);
    (void)atomic_fetch_add(&p->sleepers, 1);
    while ((now = atomic_load(&p->ticket)) == seen)
        (void)pthread_cond_wait(&p->wake, &p->lock);
    (void)atomic_fetch_sub(&p->sleepers, 1);
    (void)pthread_mutex_unlock(&p->lock);
    return now;
}

static void announce(lg_pool *p)
{
    (void)atomic_fetch_add(&p->ticket, 1);
    if (atomic_load(&p->sleepers) > 0) {
        (void)pthread_mutex_lock(&p->lock);
        (void)pthread_cond_broadcast(&p->wake);
        (void)pthread_mutex_unlock(&p->lock);
    }
}

static void *work(void *arg)
{
    worker *w = arg;
    lg_pool *p = w->pool;

    for (unsigned seen = 0;;) {
        seen = await_ticket(p, seen);
        if (atomic_load_explicit(&p->stop, memory_order_relaxed))
            return NULL;
        p->fn(p->ctx, w->index, p->n_threads);
        (void)atomic_fetch_sub_explicit(&p->running, 1, memory_order_release);
    }
}

static void stop_workers(lg_pool *p, int n)
{
    atomic_store_explicit(&p->stop, true, memory_order_relaxed);
    announce(p);
    for (int i = 0; i < n; i++)
        (void)pthread_join(p->workers[i].thread, NULL);
}

static void free_pool(lg_pool *p)
{
    (void)pthread_cond_destroy(&p->wake);
    (void)pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}

// Signals belong to the threads that know what to do with them: workers are started with all of them blocked.
static int start_workers(lg_pool *p)
{
    sigset_t all, old;
    int started = 0;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    for (; started < p->n_threads - 1; started++) {
        worker *w = &p->workers[started];
        w->pool = p;
        w->index = started + 1;
        int rc = pthread_create(&w->thread, NULL, work, w);
        if (rc != 0) {
            errno = rc;
            break;
        }
    }
    int saved = errno;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = saved;
    return started;
}

lg_status lg_pool_create(int n_threads, lg_pool **out, lg_err *err)
{
    LG_ASSERT(n_threads >= 1);
    if (n_threads > THREADS_MAX)
        return LG_FAIL(err, LG_E_INPUT, "%d threads: at most %d are possible", n_threads, THREADS_MAX);
    size_t bytes = (sizeof(lg_pool) + 63) / 64 * 64;
    lg_pool *p = aligned_alloc(64, bytes);
    worker *workers = calloc((size_t)n_threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        return LG_FAIL(err, LG_E_NOMEM, "no memory for a pool of %d threads", n_threads);
    }
    memset(p, 0, bytes);
    p->n_threads = n_threads;
    p->workers = workers;
    p->spins = n_threads <= lg_cpu_cores();
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->wake, NULL);

    int started = start_workers(p);
    if (started < n_threads - 1) {
        lg_status st = LG_FAIL(err, LG_E_IO, "cannot start thread %d of %d: %s", started + 2, n_threads,
                               strerror(errno));
        stop_workers(p, started);
        free_pool(p);
        return st;
    }
    *out = p;
    return LG_OK;
}

void lg_pool_destroy(lg_pool *pool)
{
    if (!pool)
        return;
    stop_workers(pool, pool->n_threads - 1);
    free_pool(pool);
}

int lg_pool_threads(const lg_pool *pool)
{
    return pool->n_threads;
}

void lg_pool_run(lg_pool *pool, lg_pool_fn fn, void *ctx)
{
    int spins = 0;

    if (pool->n_threads == 1) {
        fn(ctx, 0, 1);
        return;
    }
    pool->fn = fn;
    pool->ctx = ctx;
    atomic_store_explicit(&pool->running, pool->n_threads - 1, memory_order_relaxed);
    announce(pool);
    fn(ctx, 0, pool->n_threads);
    while (atomic_load_explicit(&pool->running, memory_order_acquire) > 0)
        back_off(pool, &spins);
}

void lg_pool_barrier(lg_pool *pool)
{
    unsigned phase = atomic_load_explicit(&pool->phase, memory_order_relaxed);
    int spins = 0;

    if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1 == pool->n_threads) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&pool->phase, phase + 1, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&pool->phase, memory_order_acquire) == phase)
        back_off(pool, &spins);
}

#ifdef __linux__

// Keeps the tightest quota in *ctx (0: none seen): whole cores, rounded up, that it pays for.
static void look_at_quota(void *ctx, const char *dir, bool v2)
{
    int *tightest = ctx;
    char line[64];
    long long quota = 0, period = 0;
    bool found;

    if (v2) {
        found = lg_read_line(dir, "cpu.max", line, sizeof line) &&
                sscanf(line, "%lld %lld", &quota, &period) == 2;
    } else {
        found =
            lg_read_line(dir, "cpu.cfs_quota_us", line, sizeof line) && sscanf(line, "%lld", &quota) == 1 &&
            lg_read_line(dir, "cpu.cfs_period_us", line, sizeof line) && sscanf(line, "%lld", &period) == 1;
    }
    if (!found || quota <= 0 || period <= 0)
        return;
    long long cores = (quota + period - 1) / period;
    if (cores < INT_MAX && (*tightest == 0 || cores < *tightest))
        *tightest = (int)cores;
}

// Does an allowed CPU with a lower number share this one's core?
static bool has_lower_sibling(int cpu, const cpu_set_t *allowed)
{
    char dir[96], line[256];

    (void)snprintf(dir, sizeof dir, "/sys/devices/system/cpu/cpu%d/topology", cpu);
    if (!lg_read_line(dir, "thread_siblings_list", line, sizeof line))
        return false;
    for (char *p = line; *p;) { // "0,64" or "0-1"
        char *end;
        long first = strtol(p, &end, 10), last = first;
        if (end == p)
            break;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long c = first; c <= last && c < cpu; c++)
            if (c >= 0 && c < CPU_SETSIZE && CPU_ISSET((size_t)c, allowed))
                return true;
        p = *end == ',' ? end + 1 : end;
    }
    return false;
}

int lg_cpu_cores(void)
{
    cpu_set_t allowed;
    int cores = 0, quota = 0;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) { // more CPUs than the set holds
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        return online > 0 ? (int)online : 1;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &allowed) && !has_lower_sibling(cpu, &allowed))
            cores++;
    lg_cgroup_each("cpu", look_at_quota, &quota);
    if (quota > 0 && quota < cores)
        cores = quota;
    return cores > 0 ? cores : 1;
}

#else

int lg_cpu_cores(void)
{
    int n = 0;
    size_t size = sizeof n;

    // Efficiency cores would hold up every barrier, so only the performance level counts where there are two.
    if (sysctlbyname("hw.perflevel0.physicalcpu", &n, &size, NULL, 0) == 0 && n > 0)
        return n;
    size = sizeof n;
    return sysctlbyname("hw.physicalcpu", &n, &size, NULL, 0) == 0 && n > 0 ? n : 1;
}

#endif
