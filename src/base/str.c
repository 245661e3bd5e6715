/*
 * base/str: see str.h. Nothing here allocates except the parser of very long decimal numbers, and nothing
 * depends on the locale: strtod is handed the decimal point that the process's locale wants.
 */
#include "base/str.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

lg_str lg_str_of(const char *z)
{
    return (lg_str){z, z ? strlen(z) : 0};
}

bool lg_str_eq(lg_str a, lg_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool lg_str_eqz(lg_str a, const char *z)
{
    return lg_str_eq(a, lg_str_of(z));
}

bool lg_str_starts(lg_str a, lg_str prefix)
{
    return a.n >= prefix.n && (prefix.n == 0 || memcmp(a.p, prefix.p, prefix.n) == 0);
}

bool lg_str_ends(lg_str a, lg_str suffix)
{
    return a.n >= suffix.n && (suffix.n == 0 || memcmp(a.p + a.n - suffix.n, suffix.p, suffix.n) == 0);
}

size_t lg_str_find(lg_str hay, lg_str needle, size_t from)
{
    if (from > hay.n || needle.n > hay.n - from)
        return SIZE_MAX;
    if (needle.n == 0)
        return from;
    const char *at = memmem(hay.p + from, hay.n - from, needle.p, needle.n);
    return at ? (size_t)(at - hay.p) : SIZE_MAX;
}

// Digits of s from *i on, added to *v and bounded by max; false when there is none or the bound is passed.
static bool digits_u64(lg_str s, size_t *i, uint64_t max, uint64_t *v)
{
    size_t start = *i;

    for (*v = 0; *i < s.n && s.p[*i] >= '0' && s.p[*i] <= '9'; (*i)++) {
        uint64_t d = (uint64_t)(s.p[*i] - '0');
        if (*v > (max - d) / 10)
            return false;
        *v = *v * 10 + d;
    }
    return *i > start;
}

bool lg_str_i64(lg_str s, int64_t *out)
{
    size_t i = s.n > 0 && (s.p[0] == '-' || s.p[0] == '+');
    bool neg = i && s.p[0] == '-';
    uint64_t v;

    if (!digits_u64(s, &i, (uint64_t)INT64_MAX + neg, &v) || i != s.n)
        return false;
    *out = neg ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

// Matches [+-] digits [. digits] [e [+-] digits] with a digit on at least one side of the point. Gives the
// place of the point, or s.n. Keeps hexadecimal, "inf", "nan" and blanks away from strtod.
static bool decimal_shape(lg_str s, size_t *point)
{
    size_t i = s.n > 0 && (s.p[0] == '-' || s.p[0] == '+');
    size_t n_digits = 0;

    *point = s.n;
    for (; i < s.n; i++) {
        if (s.p[i] >= '0' && s.p[i] <= '9')
            n_digits++;
        else if (s.p[i] == '.' && *point == s.n)
            *point = i;
        else
            break;
    }
    if (n_digits == 0)
        return false;
    if (i < s.n && (s.p[i] == 'e' || s.p[i] == 'E')) {
        i++;
        if (i < s.n && (s.p[i] == '-' || s.p[i] == '+'))
            i++;
        size_t start = i;
        while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
            i++;
        if (i == start)
            return false;
    }
    return i == s.n;
}

bool lg_str_f64(lg_str s, double *out)
{
    char local[128];
    size_t point;

    if (!decimal_shape(s, &point))
        return false;

    const char *dp = localeconv()->decimal_point;
    size_t dp_n = strlen(dp);
    char *z = s.n + dp_n < sizeof local ? local : malloc(s.n + dp_n + 1);
    if (!z)
        return false;
    memcpy(z, s.p, point);
    size_t n = point;
    if (point < s.n) {
        memcpy(z + n, dp, dp_n);
        n += dp_n;
        memcpy(z + n, s.p + point + 1, s.n - point - 1);
        n += s.n - point - 1;
    }
    z[n] = 0;
    double v = strtod(z, NULL);
    if (z != local)
        free(z);
    if (!isfinite(v))
        return false;
    *out = v;
    return true;
}

// What Unicode table 3-7 says of a sequence that begins with `lead`: its length (0 for a byte that begins
// none) and the range of its second byte; later bytes are 80..BF.
static int sequence(unsigned char lead, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    if (lead < 0xE0)
        return 2;
    if (lead < 0xF0) {
        if (lead == 0xE0)
            *lo = 0xA0;
        if (lead == 0xED)
            *hi = 0x9F;
        return 3;
    }
    if (lead == 0xF0)
        *lo = 0x90;
    if (lead == 0xF4)
        *hi = 0x8F;
    return 4;
}

// How many bytes at p belong to one sequence, complete or not; *want is the length it would have (0: none
// begins).
static int matched(const unsigned char *p, size_t n, int *want)
{
    unsigned char lo, hi;
    int i = 1;

    *want = sequence(p[0], &lo, &hi);
    for (; i < *want && (size_t)i < n && p[i] >= lo && p[i] <= hi; i++) {
        lo = 0x80;
        hi = 0xBF;
    }
    return i;
}

int lg_utf8_step(const char *p, size_t n, int32_t *cp)
{
    const unsigned char *u = (const unsigned char *)p;
    int want;

    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    if (matched(u, n, &want) != want) {
        *cp = -1;
        return 1;
    }
    int32_t c = u[0] & (0x7F >> want);
    for (int i = 1; i < want; i++)
        c = c << 6 | (u[i] & 0x3F);
    *cp = c;
    return want;
}

size_t lg_utf8_complete(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;

    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char *lead = u + n - back;
        int want;
        if ((*lead & 0xC0) == 0x80)
            continue;
        // held back only if every byte so far fits and more are to come
        return matched(lead, back, &want) == (int)back && want > (int)back ? n - back : n;
    }
    return n;
}

int lg_utf8_put(int32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

int lg_utf8_bad_len(const char *p, size_t n)
{
    int want;

    return matched((const unsigned char *)p, n, &want);
}
