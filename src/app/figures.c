/*
 * app/figures: see figures.h. Pure functions, any thread.
 */
#include "app/figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *lg_fig_count(lg_figure *f, int64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
    char *o = f->s;

    if (n < 0)
        *o++ = '-';
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            *o++ = ',';
        *o++ = digits[i];
    }
    *o = '\0';
    return f->s;
}

const char *lg_fig_bytes(lg_figure *f, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int u = 0;

    while (bytes >= 999.95 && u < 5) {
        bytes /= 1000;
        u++;
    }
    (void)snprintf(f->s, sizeof f->s, u == 0 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
    return f->s;
}

const char *lg_fig_time(lg_figure *f, double seconds)
{
    int64_t s;

    if (!(seconds >= 0) || seconds > 1e9) {
        (void)snprintf(f->s, sizeof f->s, "-");
        return f->s;
    }
    s = llround(seconds);
    if (s < 3600)
        (void)snprintf(f->s, sizeof f->s, "%" PRId64 ":%02d", s / 60, (int)(s % 60));
    else
        (void)snprintf(f->s, sizeof f->s, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60),
                       (int)(s % 60));
    return f->s;
}

const char *lg_fig_rate(lg_figure *f, double per_second)
{
    if (!(per_second >= 0) || per_second > 1e15)
        (void)snprintf(f->s, sizeof f->s, "-");
    else if (per_second >= 99.95)
        (void)lg_fig_count(f, llround(per_second));
    else
        (void)snprintf(f->s, sizeof f->s, per_second >= 9.995 ? "%.1f" : "%.2f", per_second);
    return f->s;
}
