/*
 * base/hash: XXH3, for checksums and look-up keys.
 *
 * Pure functions; a hasher belongs to one thread at a time. The values are those of the published algorithm
 * on every machine, so they may be written to disk.
 *
 * Surprise: not collision-resistant. A hit is a hint: compare the bytes before they are used.
 */
#ifndef LG_BASE_HASH_H
#define LG_BASE_HASH_H

#include <stdint.h>

#include "base/err.h"

typedef struct lg_hash128 {
    uint64_t lo, hi;
} lg_hash128;

uint64_t lg_hash_64(const void *p, size_t n, uint64_t seed);
lg_hash128 lg_hash_128(const void *p, size_t n, uint64_t seed);
bool lg_hash128_eq(lg_hash128 a, lg_hash128 b);

/* The same over data that comes in pieces; both widths can be asked for, at any time and repeatedly. */
typedef struct lg_hasher lg_hasher;
LG_NODISCARD lg_status lg_hasher_create(uint64_t seed, lg_hasher **out, lg_err *err);
void lg_hasher_destroy(lg_hasher *h); /* takes NULL */
void lg_hasher_reset(lg_hasher *h, uint64_t seed);
void lg_hasher_add(lg_hasher *h, const void *p, size_t n);
uint64_t lg_hasher_64(const lg_hasher *h);
lg_hash128 lg_hasher_128(const lg_hasher *h);

#endif
