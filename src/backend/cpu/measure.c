/*
 * backend/cpu/measure: the ceilings of this machine, measured with the threads and the kernel table in use.
 *
 * Bandwidth: all threads read one buffer, much larger than the last-level cache, front to back in pieces from
 * a queue, and do nothing else with it. Compute: the multiply instruction of the integer gemm (AVX2:
 * vpmaddubsw, 32 products of bytes) from registers on all threads, two operations a product. That is the peak
 * of one instruction, not of a product of matrices: loads, additions, scales and unpacking take issue slots
 * beside it, so no gemm reaches it.
 *
 * Virtual machines drift. So there are two questions, and bench asks both: the best of several short passes
 * is what the machine can give, the mean over a second or so is what it gives now.
 */
#include <unistd.h>

#include "backend/cpu/cpu_internal.h"
#include "base/clock.h"

enum {
    READ_PASSES = 9,
    COMPUTE_PASSES = 5,
    SLICE = 1 << 20, // bytes a thread reads per queue turn, so that a slow thread does not set the time
    COMPUTE_NS = 50 * 1000 * 1000,     // of a pass of the best
    COMPUTE_TURN_NS = 5 * 1000 * 1000, // of a turn of the mean, which so ends in time
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

static double seconds_since(uint64_t start)
{
    return (double)(lg_now_ns() - start) * 1e-9;
}

// The time of one pass over c->probe.
static double read_pass(lg_cpu *c)
{
    read_job j = {.c = c, .p = c->probe.p, .bytes = c->probe.bytes};
    uint64_t start = lg_now_ns();

    lg_queue_reset(&j.queue);
    lg_pool_run(c->pool, read_work, &j);
    return seconds_since(start);
}

static bool has_buffer(lg_cpu *c)
{
    size_t bytes = buffer_bytes();

    if (c->probe.p)
        return true;
    while (lg_cpu_mem_alloc(bytes, &c->probe, NULL) != LG_OK) {
        bytes = bytes / 2 / SLICE * SLICE;
        if (bytes < ((size_t)16 << 20))
            return false;
    }
    fill(c->probe.p, bytes);
    return true;
}

double lg_cpu_measure_bandwidth(lg_cpu *c)
{
    double least = 0.0;

    if (!has_buffer(c))
        return 0.0;
    for (int pass = 0; pass < READ_PASSES; pass++) {
        double s = read_pass(c);
        if (pass == 1 || (pass > 1 && s < least)) // the first pass warms up
            least = s;
    }
    return (double)c->probe.bytes / least;
}

double lg_cpu_sustained_bandwidth(lg_cpu *c, double seconds)
{
    double spent = 0.0, bytes = 0.0;

    if (!has_buffer(c))
        return 0.0;
    do {
        spent += read_pass(c);
        bytes += (double)c->probe.bytes;
    } while (spent < seconds);
    return bytes / spent;
}

typedef struct compute_job {
    const lg_cpu *c;
    int64_t rounds;
    double seconds; // 0: `rounds` once; else again and again until they are over
    _Atomic double ops;
} compute_job;

static void compute_work(void *ctx, int thread, int n_threads)
{
    compute_job *j = ctx;
    uint64_t start = lg_now_ns();
    double done = 0.0, sum = atomic_load(&j->ops);

    (void)thread, (void)n_threads;
    do
        done += j->c->k.probe_int8(j->rounds);
    while (seconds_since(start) < j->seconds);
    while (!atomic_compare_exchange_weak(&j->ops, &sum, sum + done))
        continue;
}

// Rounds that take one thread at least `ns`: long enough that starting the threads does not count.
static int64_t rounds_of(const lg_cpu *c, uint64_t ns)
{
    for (int64_t rounds = 1000;; rounds *= 2) {
        uint64_t start = lg_now_ns();

        (void)c->k.probe_int8(rounds);
        if (lg_now_ns() - start > ns)
            return rounds;
    }
}

static double compute_pass(lg_cpu *c, int64_t rounds, double seconds)
{
    compute_job j = {.c = c, .rounds = rounds, .seconds = seconds};
    uint64_t start;

    atomic_init(&j.ops, 0.0);
    start = lg_now_ns();
    lg_pool_run(c->pool, compute_work, &j);
    return atomic_load(&j.ops) / seconds_since(start);
}

double lg_cpu_measure_compute(lg_cpu *c)
{
    int64_t rounds = rounds_of(c, COMPUTE_NS);
    double best = 0.0;

    for (int pass = 0; pass < COMPUTE_PASSES; pass++) {
        double rate = compute_pass(c, rounds, 0.0);
        best = rate > best ? rate : best;
    }
    return best;
}

double lg_cpu_sustained_compute(lg_cpu *c, double seconds)
{
    return compute_pass(c, rounds_of(c, COMPUTE_TURN_NS), seconds);
}
