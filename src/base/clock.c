/*
 * base/clock: see clock.h. CLOCK_MONOTONIC exists on every system we build for and cannot fail there.
 */
#include "base/clock.h"

#include <time.h>

uint64_t lg_now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
