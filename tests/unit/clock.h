/*
 * unit/clock: a clock that the test owns, in place of the machine's, for what the code under test decides by
 * time (base/clock.h: lg_now_ns, lg_now_us). Waits and sleeps of the system are not concerned.
 *
 * It begins at a second. Every look moves it on by a step, a microsecond unless the test says otherwise: who
 * waits for a moment without sleeping gets there, after a number of looks that does not depend on the
 * machine.
 */
#ifndef LG_TEST_CLOCK_H
#define LG_TEST_CLOCK_H

#include <stdint.h>

void clock_add(uint64_t us);   /* that much later */
void clock_step(uint64_t us);  /* by which a look moves it from now on; 0: it stands still */
uint64_t clock_looks(void);    /* since the start of the process */

#endif
