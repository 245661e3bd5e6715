/*
 * base/str: string slices, number parsing and UTF-8 stepping.
 *
 * A slice borrows its bytes and need not end in NUL; the bytes may be anything. Parsers take the whole slice
 * or fail.
 */
#ifndef LG_BASE_STR_H
#define LG_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lg_str {
    const char *p;
    size_t n;
} lg_str;

#define LG_STR(lit) ((lg_str){(lit), sizeof(lit) - 1})

lg_str lg_str_of(const char *z); /* from a NUL-terminated string; NULL gives an empty slice */
bool lg_str_eq(lg_str a, lg_str b);
bool lg_str_eqz(lg_str a, const char *z);
bool lg_str_starts(lg_str a, lg_str prefix);
bool lg_str_ends(lg_str a, lg_str suffix);
/* Index of the first `needle` in `hay` at or after `from`, or SIZE_MAX. */
size_t lg_str_find(lg_str hay, lg_str needle, size_t from);

/* Whole slice as a decimal number with optional sign; false on anything else or out of range. Locale plays no
 * part. */
bool lg_str_i64(lg_str s, int64_t *out);
bool lg_str_f64(lg_str s, double *out);

/* Step over one character at p (n > 0 bytes left). A well-formed sequence gives its length 1..4 and code
 * point; any other byte gives 1 and *cp = -1 (Unicode table 3-7: no surrogates, no overlong forms, nothing
 * past U+10FFFF). */
int lg_utf8_step(const char *p, size_t n, int32_t *cp);
/* Length of the longest prefix of p..p+n that ends on a complete sequence, holding back only a possibly
 * unfinished tail of at most 3 bytes (chat.md 1.7). */
size_t lg_utf8_complete(const char *p, size_t n);
/* Encode cp (a scalar value) into out[4]; returns the length. */
int lg_utf8_put(int32_t cp, char out[4]);
/* Bytes of the maximal subpart of an ill-formed sequence at p: how many one U+FFFD replaces (1..3). */
int lg_utf8_bad_len(const char *p, size_t n);

#endif
