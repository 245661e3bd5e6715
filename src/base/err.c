/*
 * base/err: see err.h. Formatting cleans what it prints, because subjects and messages quote bytes from files
 * and requests: a tensor name with an escape sequence in it must not reach a terminal.
 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void clean(char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            s[i] = '?';
    // vsnprintf may have cut a character in half: drop an incomplete sequence at the end
    size_t back = 0;
    while (back < n && back < 3 && ((unsigned char)s[n - 1 - back] & 0xC0) == 0x80)
        back++;
    if (back < n) {
        unsigned char lead = (unsigned char)s[n - 1 - back];
        size_t want = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
        if (want > back)
            s[n - 1 - back] = 0;
    }
}

lg_status lg_err_set(lg_err *err, lg_status code, const char *file, int line, const char *fmt, ...)
{
    if (err) {
        va_list ap;

        err->code = code;
        err->file = file;
        err->line = line;
        va_start(ap, fmt);
        (void)vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
        clean(err->msg);
    }
    return code;
}

lg_status lg_err_subject(lg_err *err, const char *fmt, ...)
{
    if (!err)
        return LG_OK;
    if (!err->subject[0]) {
        va_list ap;

        va_start(ap, fmt);
        (void)vsnprintf(err->subject, sizeof err->subject, fmt, ap);
        va_end(ap);
        clean(err->subject);
    }
    return err->code;
}

char *lg_err_line(const lg_err *err, char *out, size_t n)
{
    if (err->subject[0])
        (void)snprintf(out, n, "%s: %s", err->subject, err->msg);
    else
        (void)snprintf(out, n, "%s", err->msg);
    return out;
}

void lg_assert_fail(const char *cond, const char *file, int line)
{
    (void)fprintf(stderr, "lagoon: internal error at %s:%d: %s\n", file, line, cond);
    abort();
}

bool lg_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;

    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool lg_add_size(size_t a, size_t b, size_t *out)
{
    size_t r;

    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}
