/*
 * base/arena: see arena.h. Chunks double from 4 KiB to 1 MiB, so a small request stays small and a large one
 * makes few calls; an allocation larger than that gets a chunk of its own size.
 */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct lg_arena_chunk {
    lg_arena_chunk *next;
    size_t size, pos;
    _Alignas(16) unsigned char data[];
};

enum { CHUNK_MIN = 4096, CHUNK_MAX = 1 << 20, ALIGN = 16 };

void lg_arena_init(lg_arena *a, size_t limit)
{
    *a = (lg_arena){.limit = limit};
}

void lg_arena_free(lg_arena *a)
{
    for (lg_arena_chunk *c = a->first; c;) {
        lg_arena_chunk *next = c->next;
        free(c);
        c = next;
    }
    lg_arena_init(a, a->limit);
}

// Makes a->cur a chunk with n free bytes: a kept one if it is large enough, else a new one behind the
// current.
static int next_chunk(lg_arena *a, size_t n)
{
    lg_arena_chunk *next = a->cur ? a->cur->next : a->first;

    if (next && next->size >= n) {
        next->pos = 0;
        a->cur = next;
        return 1;
    }
    size_t size = a->cur ? a->cur->size * 2 : CHUNK_MIN;
    if (size > CHUNK_MAX)
        size = CHUNK_MAX;
    if (size < n)
        size = n;
    lg_arena_chunk *c = malloc(sizeof *c + size);
    if (!c)
        return 0;
    *c = (lg_arena_chunk){.next = next, .size = size};
    if (a->cur)
        a->cur->next = c;
    else
        a->first = c;
    a->cur = c;
    return 1;
}

void *lg_arena_alloc(lg_arena *a, size_t n)
{
    if (n > SIZE_MAX - ALIGN)
        return NULL;
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    if (n == 0)
        n = ALIGN;
    if (n > a->limit || a->used > a->limit - n)
        return NULL;
    if ((!a->cur || a->cur->size - a->cur->pos < n) && !next_chunk(a, n))
        return NULL;
    void *p = a->cur->data + a->cur->pos;
    a->cur->pos += n;
    a->used += n;
    return memset(p, 0, n);
}

void *lg_arena_alloc_n(lg_arena *a, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size)
        return NULL;
    return lg_arena_alloc(a, n * size);
}

char *lg_arena_dup(lg_arena *a, const char *p, size_t n)
{
    if (n == SIZE_MAX)
        return NULL;
    char *s = lg_arena_alloc(a, n + 1);
    if (s && n)
        memcpy(s, p, n);
    return s;
}

lg_mark lg_arena_mark(const lg_arena *a)
{
    return (lg_mark){.chunk = a->cur, .pos = a->cur ? a->cur->pos : 0, .used = a->used};
}

void lg_arena_reset(lg_arena *a, lg_mark m)
{
    a->cur = m.chunk;
    if (a->cur)
        a->cur->pos = m.pos;
    a->used = m.used;
}
