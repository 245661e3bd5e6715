/*
 * unit/clock: see clock.h. The linker's --wrap sends each call of lg_now_ns to __wrap_lg_now_ns.
 */
#include "clock.h"

#include <stdatomic.h>

uint64_t __wrap_lg_now_ns(void);

static _Atomic uint64_t now_us = 1000000, step_us = 1, looks;

void clock_add(uint64_t us)
{
    (void)atomic_fetch_add(&now_us, us);
}

void clock_step(uint64_t us)
{
    atomic_store(&step_us, us);
}

uint64_t clock_looks(void)
{
    return atomic_load(&looks);
}

uint64_t __wrap_lg_now_ns(void)
{
    (void)atomic_fetch_add(&looks, 1);
    return atomic_fetch_add(&now_us, atomic_load(&step_us)) * 1000;
}
