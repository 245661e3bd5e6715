/*
 * base/clock: monotonic time. Names of values that hold it end in _us or _ns.
 */
#ifndef LG_BASE_CLOCK_H
#define LG_BASE_CLOCK_H

#include <stdint.h>

uint64_t lg_now_ns(void); /* monotonic, arbitrary origin */
static inline uint64_t lg_now_us(void)
{
    return lg_now_ns() / 1000;
}

#endif
