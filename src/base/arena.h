/*
 * base/arena: bump allocator with a mandatory limit, mark and reset.
 *
 * One arena belongs to one request or one parse; it is used by one thread at a time. Memory comes zeroed, is
 * never freed piece by piece and goes back whole. Reaching the limit or the end of memory gives NULL, which
 * the caller turns into LG_E_LIMIT.
 *
 * Surprise: lg_arena_reset keeps the chunks for reuse; lg_arena_free returns them.
 */
#ifndef LG_BASE_ARENA_H
#define LG_BASE_ARENA_H

#include <stddef.h>

typedef struct lg_arena_chunk lg_arena_chunk;

typedef struct lg_arena {
    lg_arena_chunk *first, *cur;
    size_t used;  /* bytes handed out, including alignment */
    size_t limit; /* most bytes `used` may reach */
} lg_arena;

typedef struct lg_mark {
    lg_arena_chunk *chunk;
    size_t pos, used;
} lg_mark;

void lg_arena_init(lg_arena *a, size_t limit);
void lg_arena_free(lg_arena *a); /* back to the state after init */

/* Zeroed bytes aligned to 16, or NULL. n = 0 gives a unique pointer. */
void *lg_arena_alloc(lg_arena *a, size_t n);
/* n elements of `size` bytes; NULL also when the product overflows. */
void *lg_arena_alloc_n(lg_arena *a, size_t n, size_t size);
/* NUL-terminated copy of n bytes. */
char *lg_arena_dup(lg_arena *a, const char *p, size_t n);

#define LG_NEW(a, type) ((type *)lg_arena_alloc((a), sizeof(type)))
#define LG_NEW_N(a, type, n) ((type *)lg_arena_alloc_n((a), (n), sizeof(type)))

lg_mark lg_arena_mark(const lg_arena *a);
void lg_arena_reset(lg_arena *a, lg_mark m);

#endif
