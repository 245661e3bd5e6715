/*
 * stress/leap: a clock that leaps, put before the system's by LD_PRELOAD (tools/stress.py). What a program
 * measures with it may be anything from nothing to seconds; only the order of moments is kept.
 *
 * LEAP_SEED chooses how: rarely, often, at every fifth look, or a clock that moves every 50 ms only. All
 * leaps of a process together are a minute at most, because a wait whose end was reckoned with a leaped clock
 * lasts that much longer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define SECOND 1000000000ll
#define ALL_LEAPS (60 * SECOND)
#define LONGEST_LEAP (2 * SECOND)
#define COARSE (SECOND / 20)

static int (*real)(clockid_t, struct timespec *);
static _Atomic int64_t ahead;
static _Atomic uint64_t state;
static double chance;
static int coarse;

__attribute__((constructor)) static void choose(void)
{
    static const double chances[] = {0.002, 0.02, 0.2, 0};
    const char *text = getenv("LEAP_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 0;

    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    state = seed;
    chance = chances[seed % 4];
    coarse = seed % 4 == 3;
}

static double uniform(void) // splitmix64; threads may share a step, which is one more way to be random
{
    uint64_t x = atomic_fetch_add(&state, 0x9E3779B97F4A7C15ull);

    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

int clock_gettime(clockid_t which, struct timespec *t)
{
    int failed;
    int64_t ns;

    if (!real)
        choose();
    failed = real(which, t);
    if (failed || (which != CLOCK_MONOTONIC && which != CLOCK_REALTIME))
        return failed;
    if (chance > 0 && uniform() < chance && atomic_load(&ahead) < ALL_LEAPS) {
        double u = uniform();
        atomic_fetch_add(&ahead, (int64_t)(u * u * u * (double)LONGEST_LEAP));
    }
    ns = t->tv_sec * SECOND + t->tv_nsec + atomic_load(&ahead);
    if (coarse)
        ns -= ns % COARSE;
    t->tv_sec = ns / SECOND;
    t->tv_nsec = ns % SECOND;
    return 0;
}
