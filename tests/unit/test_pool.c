/*
 * The worker pool: every thread takes part once a job, jobs do not overlap, the barrier separates, idle costs
 * nothing, and a thread that cannot be started leaves none behind. The thread sanitizer's build runs the same
 * file.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef __linux__
#include <sched.h>
#endif

#include "base/pool.h"
#include "clock.h"

enum { MOST = 8 };

/* ---- faults: the n-th pthread_create from now fails; sleepers: who waits for a condition variable ---- */

#if LG_WRAP_THREADS
static int fail_at; // 0: never
static int created;
static atomic_int asleep;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    if (fail_at > 0 && --fail_at == 0)
        return 11;
    created++;
    return __real_pthread_create(t, a, fn, arg);
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    (void)atomic_fetch_add(&asleep, 1);
    int rc = __real_pthread_cond_wait(c, m);
    (void)atomic_fetch_sub(&asleep, 1);
    return rc;
}

// Until n workers sleep, however long the machine keeps them from it. The clock goes a microsecond a look, so
// who gives up spinning does so after some hundred looks; who never does burns processor time for ever.
static void await_sleepers(int n)
{
    uint64_t before = clock_looks();
    clock_t burnt = clock();

    while (atomic_load(&asleep) < n) {
        (void)poll(NULL, 0, 1);
        if (LG_HAVE_CLOCK)
            assert_true(clock_looks() - before < 1000);
        assert_true((clock() - burnt) / CLOCKS_PER_SEC < 20);
    }
}
#endif

static lg_pool *make(int n)
{
    lg_pool *p = NULL;

    assert_int_equal(lg_pool_create(n, &p, NULL), LG_OK);
    assert_int_equal(lg_pool_threads(p), n);
    return p;
}

typedef struct counts {
    int runs[MOST]; // written by its thread only: the pool must order it with us
    int n_threads;
    long sum;
} counts;

static void count(void *ctx, int thread, int n_threads)
{
    counts *c = ctx;

    c->runs[thread]++;
    if (thread == 0)
        c->n_threads = n_threads;
}

static void test_every_thread_once(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        lg_pool *p = make(n);
        counts c = {.sum = 0};
        for (int job = 1; job <= 300; job++) {
            lg_pool_run(p, count, &c);
            for (int t = 0; t < MOST; t++)
                assert_int_equal(c.runs[t], t < n ? job : 0);
        }
        assert_int_equal(c.n_threads, n);
        lg_pool_destroy(p);
    }
}

// A job that begins while none, one, or both of the workers sleep.
static void test_wakes_sleepers(void **state)
{
    (void)state;
#if LG_WRAP_THREADS
    lg_pool *p = make(3);
    counts c = {.sum = 0};

    for (int job = 1; job <= 60; job++) {
        await_sleepers(job % 3);
        lg_pool_run(p, count, &c);
        for (int t = 0; t < 3; t++)
            assert_int_equal(c.runs[t], job);
    }
    lg_pool_destroy(p);
#else
    skip();
#endif
}

typedef struct relay {
    lg_pool *pool;
    int rounds;
    int value[MOST]; // of the round before, read by the neighbour after the barrier
    bool wrong;
} relay;

static void pass_on(void *ctx, int thread, int n_threads)
{
    relay *r = ctx;

    for (int round = 0; round < r->rounds; round++) {
        r->value[thread] = round * MOST + thread;
        lg_pool_barrier(r->pool);
        int next = (thread + 1) % n_threads;
        if (r->value[next] != round * MOST + next)
            r->wrong = true;
        lg_pool_barrier(r->pool);
    }
}

static void test_barrier(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        relay r = {.pool = make(n), .rounds = 500};
        lg_pool_run(r.pool, pass_on, &r);
        lg_pool_run(r.pool, pass_on, &r);
        assert_false(r.wrong);
        lg_pool_destroy(r.pool);
    }
}

typedef struct shared_loop {
    lg_queue queue;
    atomic_int taken[1000];
} shared_loop;

static void take_items(void *ctx, int thread, int n_threads)
{
    shared_loop *l = ctx;

    (void)thread;
    (void)n_threads;
    for (int64_t at; (at = lg_queue_take(&l->queue, 7)) < 1000;)
        for (int64_t i = at; i < at + 7 && i < 1000; i++)
            (void)atomic_fetch_add(&l->taken[i], 1);
}

static void test_queue(void **state)
{
    static shared_loop l;
    lg_pool *p = make(4);

    (void)state;
    for (int job = 1; job <= 20; job++) {
        lg_queue_reset(&l.queue);
        lg_pool_run(p, take_items, &l);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(atomic_load(&l.taken[i]), job);
    }
    lg_pool_destroy(p);
}

// Nothing to do costs nothing: before the first job and behind each, all workers come to sleep.
static void test_idle(void **state)
{
    (void)state;
#if LG_WRAP_THREADS
    for (int n = 2; n <= 4; n++) {
        lg_pool *p = make(n);
        counts c = {.sum = 0};

        for (int job = 0; job < 5; job++) {
            await_sleepers(n - 1);
            lg_pool_run(p, count, &c);
        }
        await_sleepers(n - 1);
        lg_pool_destroy(p);
        assert_int_equal(atomic_load(&asleep), 0);
    }
#else
    skip();
#endif
}

static void test_thread_fault(void **state)
{
    (void)state;
#if LG_WRAP_THREADS
    for (int n = 1; n <= 3; n++) {
        lg_pool *p = NULL;
        lg_err err = {0};
        fail_at = n;
        assert_int_equal(lg_pool_create(4, &p, &err), LG_E_IO);
        assert_null(p);
        assert_non_null(strstr(err.msg, "cannot start thread"));
    }
    created = 0;
    fail_at = 0;
    lg_pool *p = make(4);
    assert_int_equal(created, 3);
    lg_pool_destroy(p);
#else
    skip();
#endif
}

static void test_limits(void **state)
{
    lg_pool *p = NULL;

    (void)state;
    assert_int_equal(lg_pool_create(100000, &p, NULL), LG_E_INPUT);
    assert_null(p);
    lg_pool_destroy(NULL);
}

static void test_cores(void **state)
{
    int all = lg_cpu_cores();

    (void)state;
    assert_true(all >= 1 && all <= sysconf(_SC_NPROCESSORS_ONLN));
#ifdef __linux__
    cpu_set_t before, one;
    int first = 0;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    while (!CPU_ISSET((size_t)first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET((size_t)first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(lg_cpu_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(lg_cpu_cores(), all);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_thread_once), cmocka_unit_test(test_wakes_sleepers),
        cmocka_unit_test(test_barrier),           cmocka_unit_test(test_queue),
        cmocka_unit_test(test_idle),              cmocka_unit_test(test_thread_fault),
        cmocka_unit_test(test_limits),            cmocka_unit_test(test_cores),
    };

    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
