/*
 * base/buf: growable byte buffer with a mandatory maximum.
 *
 * Owned by whoever initialised it. After a failed append (maximum or memory) the content is unchanged and
 * `failed` is set and stays set, so that a writer may append many times and look once at the end.
 */
#ifndef LG_BASE_BUF_H
#define LG_BASE_BUF_H

#include "base/err.h"
#include "base/str.h"

typedef struct lg_buf {
    char *p;
    size_t n, cap, max;
    bool failed;
} lg_buf;

void lg_buf_init(lg_buf *b, size_t max);
void lg_buf_free(lg_buf *b); /* back to the state after init */
void lg_buf_clear(lg_buf *b); /* n = 0, memory kept, failed reset */
bool lg_buf_add(lg_buf *b, const void *p, size_t n);
bool lg_buf_adds(lg_buf *b, lg_str s);
bool lg_buf_addz(lg_buf *b, const char *z);
bool lg_buf_addc(lg_buf *b, char c);
bool lg_buf_addf(lg_buf *b, const char *fmt, ...) LG_PRINTF(2, 3);
/* Room for n more bytes without moving n; NULL on failure. The caller writes there and raises b->n. */
char *lg_buf_room(lg_buf *b, size_t n);
/* The content with a NUL behind it (not counted in n); NULL when that did not fit. */
const char *lg_buf_z(lg_buf *b);
lg_str lg_buf_str(const lg_buf *b);

#endif
