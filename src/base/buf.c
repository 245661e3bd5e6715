/*
 * base/buf: see buf.h. Capacity doubles from 64 bytes; one byte beyond `max` may be allocated, for the NUL of
 * lg_buf_z. Once an append has failed, later ones are refused as well: the content stays a prefix of what was
 * meant.
 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAP_MIN = 64 };

void lg_buf_init(lg_buf *b, size_t max)
{
    *b = (lg_buf){.max = max};
}

void lg_buf_free(lg_buf *b)
{
    free(b->p);
    lg_buf_init(b, b->max);
}

void lg_buf_clear(lg_buf *b)
{
    b->n = 0;
    b->failed = false;
}

// Makes the capacity at least `need`; `need` is at most max + 1.
static bool reserve(lg_buf *b, size_t need)
{
    if (need <= b->cap)
        return true;
    if (need > PTRDIFF_MAX) // no object is that large
        return false;

    size_t cap = b->cap < CAP_MIN ? CAP_MIN : b->cap;
    while (cap < need)
        cap = cap > PTRDIFF_MAX / 2 ? need : cap * 2;
    if (b->max < SIZE_MAX && cap > b->max + 1)
        cap = b->max + 1;
    char *p = realloc(b->p, cap);
    if (!p)
        return false;
    b->p = p;
    b->cap = cap;
    return true;
}

char *lg_buf_room(lg_buf *b, size_t n)
{
    if (b->failed || n > b->max - b->n || !reserve(b, b->n + n)) {
        b->failed = true;
        return NULL;
    }
    if (!b->p && !reserve(b, 1)) { // n = 0 on an empty buffer still gives a place
        b->failed = true;
        return NULL;
    }
    return b->p + b->n;
}

bool lg_buf_add(lg_buf *b, const void *p, size_t n)
{
    char *to = lg_buf_room(b, n);

    if (!to)
        return false;
    if (n)
        memcpy(to, p, n);
    b->n += n;
    return true;
}

bool lg_buf_adds(lg_buf *b, lg_str s)
{
    return lg_buf_add(b, s.p, s.n);
}

bool lg_buf_addz(lg_buf *b, const char *z)
{
    return lg_buf_adds(b, lg_str_of(z));
}

bool lg_buf_addc(lg_buf *b, char c)
{
    return lg_buf_add(b, &c, 1);
}

bool lg_buf_addf(lg_buf *b, const char *fmt, ...)
{
    char local[256];
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(local, sizeof local, fmt, ap);
    va_end(ap);
    bool ok = n >= 0;
    if (ok && (size_t)n < sizeof local) {
        ok = lg_buf_add(b, local, (size_t)n);
    } else if (ok) {
        // vsnprintf wants room for its NUL, which must not count against the maximum
        char *to = lg_buf_room(b, (size_t)n);
        ok = to && reserve(b, b->n + (size_t)n + 1);
        if (ok) {
            (void)vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
            b->n += (size_t)n;
        }
    }
    va_end(again);
    if (!ok)
        b->failed = true;
    return ok;
}

const char *lg_buf_z(lg_buf *b)
{
    if (b->failed || b->n == SIZE_MAX || !reserve(b, b->n + 1))
        return NULL;
    b->p[b->n] = 0;
    return b->p;
}

lg_str lg_buf_str(const lg_buf *b)
{
    return (lg_str){b->p, b->n};
}
