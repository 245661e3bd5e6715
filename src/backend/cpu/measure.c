/*
 * backend/cpu/measure: the ceilings of this machine, measured with the threads and the kernel table in use.
 *
 * Bandwidth: all threads read parts of a buffer much larger than the last-level cache, best of several
 * passes; the threads start together and each reads its share front to back, as decode does. Compute: the
 * multiply instruction of the integer gemm, from registers, on all threads. Virtual machines drift, so a pass
 * is short and the best one counts.
 */
#include <unistd.h>

#include "backend/cpu/cpu_internal.h"
#include "base/clock.h"

enum {
    READ_PASSES = 9,
    COMPUTE_PASSES = 5,
    SLICE = 1 << 20, // bytes a thread reads per queue turn, so that a slow thread does not set the time
    COMPUTE_NS = 50 * 1000 * 1000,
};

typedef struct read_job {
    const lg_cpu *c;
    const uint8_t *p;
    size_t bytes;
    lg_queue queue;
    atomic_ullong seen; // makes the reads count
} read_job;

static void read_work(void *ctx, int thread, int n_threads)
{
    read_job *j = ctx;
    uint64_t x = 0;

    (void)thread, (void)n_threads;
    for (int64_t at = lg_queue_take(&j->queue, SLICE); (size_t)at < j->bytes;
         at = lg_queue_take(&j->queue, SLICE))
        x ^= j->c->k.probe_read(j->p + at, SLICE);
    atomic_fetch_xor_explicit(&j->seen, x, memory_order_relaxed);
}

// Different contents in every line: equal pages could be merged by a host.
static void fill(uint8_t *p, size_t bytes)
{
    uint64_t x = 0x9E3779B97F4A7C15;

    for (size_t i = 0; i < bytes / 8; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        ((uint64_t *)(void *)p)[i] = x;
    }
}

static size_t buffer_bytes(void)
{
    size_t bytes = (size_t)256 << 20;
#ifdef _SC_LEVEL3_CACHE_SIZE
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);

    if (l3 > 0 && (size_t)l3 * 8 > bytes)
        bytes = (size_t)l3 * 8;
#endif
    return bytes / SLICE * SLICE;
}

double lg_cpu_measure_bandwidth(lg_cpu *c)
{
    read_job j = {.c = c, .bytes = buffer_bytes()};
    lg_mem mem = {0};
    double best = 0.0;

    while (lg_cpu_mem_alloc(j.bytes, &mem, NULL) != LG_OK) {
        j.bytes = j.bytes / 2 / SLICE * SLICE;
        if (j.bytes < ((size_t)16 << 20))
            return 0.0;
    }
    j.p = mem.p;
    fill(mem.p, j.bytes);
    for (int pass = 0; pass < READ_PASSES; pass++) {
        lg_queue_reset(&j.queue);
        uint64_t start = lg_now_ns();
        lg_pool_run(c->pool, read_work, &j);
        double rate = (double)j.bytes / ((double)(lg_now_ns() - start) * 1e-9);
        if (pass > 0 && rate > best) // the first pass warms up
            best = rate;
    }
    lg_cpu_mem_free(&mem);
    return best;
}

typedef struct compute_job {
    const lg_cpu *c;
    int64_t rounds;
    _Atomic double ops;
} compute_job;

static void compute_work(void *ctx, int thread, int n_threads)
{
    compute_job *j = ctx;
    double done = j->c->k.probe_int8(j->rounds), sum = atomic_load(&j->ops);

    (void)thread, (void)n_threads;
    while (!atomic_compare_exchange_weak(&j->ops, &sum, sum + done))
        continue;
}

double lg_cpu_measure_compute(lg_cpu *c)
{
    double best = 0.0;
    int64_t rounds = 1000;

    // Long enough that starting the threads does not count.
    for (;;) {
        uint64_t start = lg_now_ns();
        (void)c->k.probe_int8(rounds);
        if (lg_now_ns() - start > COMPUTE_NS)
            break;
        rounds *= 2;
    }
    for (int pass = 0; pass < COMPUTE_PASSES; pass++) {
        compute_job j = {.c = c, .rounds = rounds};

        atomic_init(&j.ops, 0.0);
        uint64_t start = lg_now_ns();
        lg_pool_run(c->pool, compute_work, &j);
        double rate = atomic_load(&j.ops) / ((double)(lg_now_ns() - start) * 1e-9);
        best = rate > best ? rate : best;
    }
    return best;
}
