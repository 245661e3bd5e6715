/*
 * base/hash: see hash.h. One state serves both widths: XXH3's 64- and 128-bit forms share it, so pieces are
 * read once.
 */
#include "base/hash.h"

#include <xxhash.h>

static lg_hash128 from(XXH128_hash_t h)
{
    return (lg_hash128){.lo = h.low64, .hi = h.high64};
}

uint64_t lg_hash_64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

lg_hash128 lg_hash_128(const void *p, size_t n, uint64_t seed)
{
    return from(XXH3_128bits_withSeed(p, n, seed));
}

bool lg_hash128_eq(lg_hash128 a, lg_hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

// lg_hasher is XXH3_state_t under our name; the library allocates it, because it needs 64-byte alignment.
static XXH3_state_t *state(lg_hasher *h)
{
    return (XXH3_state_t *)(void *)h;
}

lg_status lg_hasher_create(uint64_t seed, lg_hasher **out, lg_err *err)
{
    XXH3_state_t *s = XXH3_createState();

    if (!s)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    *out = (lg_hasher *)(void *)s;
    lg_hasher_reset(*out, seed);
    return LG_OK;
}

void lg_hasher_destroy(lg_hasher *h)
{
    (void)XXH3_freeState(state(h));
}

void lg_hasher_reset(lg_hasher *h, uint64_t seed)
{
    (void)XXH3_64bits_reset_withSeed(state(h), seed);
}

void lg_hasher_add(lg_hasher *h, const void *p, size_t n)
{
    if (n)
        (void)XXH3_64bits_update(state(h), p, n);
}

uint64_t lg_hasher_64(const lg_hasher *h)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)h);
}

lg_hash128 lg_hasher_128(const lg_hasher *h)
{
    return from(XXH3_128bits_digest((const XXH3_state_t *)(const void *)h));
}
