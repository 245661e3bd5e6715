/*
 * unit/fault: makes the n-th call of an allocating or I/O function fail, in code linked into the test.
 *
 *     for (long n = 1; !done; n++) {
 *         fault_arm(FAULT_ALLOC, n);
 *         st = call_under_test();
 *         done = fault_disarm() == 0;     // fewer than n calls happened: nothing failed
 *         if (!done) assert the error, and that nothing leaked (address sanitizer) or changed
 *     }
 *
 * Surprise: only calls from statically linked code are seen; shared libraries call the C library directly.
 */
#ifndef LG_TEST_FAULT_H
#define LG_TEST_FAULT_H

#include <stdlib.h>

typedef enum fault_kind {
    FAULT_ALLOC,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_FSYNC,
    FAULT_RENAME,
    FAULT_KINDS
} fault_kind;

/* From now on the n-th call (from 1) of that kind fails: NULL, or -1 with errno EIO (ENOSPC for writes). */
void fault_arm(fault_kind kind, long n);
/* Ends that. Returns how many calls were made to fail (0 or 1). */
long fault_disarm(void);
/* Calls of that kind since the start of the process. */
long fault_calls(fault_kind kind);
/* For libraries that take an allocator: malloc and free with the same counting. */
void *fault_malloc(size_t n);

#endif
