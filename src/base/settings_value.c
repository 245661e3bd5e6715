/*
 * base/settings_value: the one parser of numbers, sizes, durations, booleans and choices, wherever they
 * stand.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings_rows.h"

// Takes a decimal number off the front of s; *rest is what follows it.
static bool leading_number(lg_str s, double *v, lg_str *rest)
{
    size_t n = 0;

    while (n < s.n && ((s.p[n] >= '0' && s.p[n] <= '9') || s.p[n] == '.'))
        n++;
    *rest = (lg_str){s.p + n, s.n - n};
    return lg_str_f64((lg_str){s.p, n}, v);
}

bool lg_parse_size(lg_str s, size_t unit, size_t *out)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {
        {"B", 1},
        {"K", 0x1p10}, {"k", 0x1p10}, {"KiB", 0x1p10}, {"kB", 1e3}, {"KB", 1e3},
        {"M", 0x1p20}, {"m", 0x1p20}, {"MiB", 0x1p20}, {"MB", 1e6},
        {"G", 0x1p30}, {"g", 0x1p30}, {"GiB", 0x1p30}, {"GB", 1e9},
        {"T", 0x1p40}, {"t", 0x1p40}, {"TiB", 0x1p40}, {"TB", 1e12},
    };
    lg_str rest;
    double v, scale = (double)unit;

    if (!leading_number(s, &v, &rest))
        return false;
    if (rest.n > 0) {
        scale = 0;
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
            if (lg_str_eqz(rest, units[i].name))
                scale = units[i].bytes;
        if (scale == 0)
            return false;
    }
    // below 2^53 bytes a double is exact; that is also far more than any machine has
    if (v * scale > 0x1p53)
        return false;
    *out = (size_t)(v * scale);
    return true;
}

bool lg_parse_secs(lg_str s, double *out)
{
    static const struct {
        const char *name;
        double secs;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"min", 60}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    lg_str rest;
    double v;

    if (!leading_number(s, &v, &rest))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (lg_str_eqz(rest, units[i].name)) {
            *out = v * units[i].secs;
            return true;
        }
    return false;
}

static bool parse_bool(lg_str s, bool *out)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (lg_str_eqz(s, words[i])) {
            *out = i % 2;
            return true;
        }
    return false;
}

// The bounds of "low..high"; false when limits say nothing.
static bool bounds(const char *limits, double *lo, double *hi)
{
    lg_str s = lg_str_of(limits);
    size_t dots = lg_str_find(s, LG_STR(".."), 0);

    return dots != SIZE_MAX && lg_str_f64((lg_str){s.p, dots}, lo) &&
           lg_str_f64((lg_str){s.p + dots + 2, s.n - dots - 2}, hi);
}

// True when limits are empty or one of "a|b|c*" is s.
static bool allowed(const char *limits, lg_str s)
{
    lg_str all = lg_str_of(limits);

    if (all.n == 0)
        return true;
    for (size_t from = 0; from <= all.n;) {
        size_t bar = lg_str_find(all, LG_STR("|"), from);
        size_t end = bar == SIZE_MAX ? all.n : bar;
        lg_str choice = {all.p + from, end - from};
        if (choice.n > 0 && choice.p[choice.n - 1] == '*') {
            choice.n--;
            if (lg_str_starts(s, choice) && s.n > choice.n)
                return true;
        } else if (lg_str_eq(s, choice)) {
            return true;
        }
        from = end + 1;
    }
    return false;
}

void lg_choices(const char *limits, lg_buf *out)
{
    for (const char *p = limits; *p; p++) {
        if (*p == '|')
            (void)lg_buf_addz(out, ", ");
        else
            (void)lg_buf_addc(out, *p == '*' ? 'N' : *p);
    }
}

static lg_status wrong(const lg_option *opt, const char *text, lg_err *err)
{
    const char *limits = opt->limits ? opt->limits : "";
    double lo, hi;
    bool bounded = bounds(limits, &lo, &hi);
    char range[64] = "";

    if (bounded && opt->type == LG_TYPE_int) // as written: a double has not all the digits of the largest
        (void)snprintf(range, sizeof range, " from %.*s to %s", (int)(strstr(limits, "..") - limits), limits,
                       strstr(limits, "..") + 2);
    else if (bounded)
        (void)snprintf(range, sizeof range, " from %.15g to %.15g", lo, hi);
    switch (opt->type) {
    case LG_TYPE_bool: return LG_FAIL(err, LG_E_INPUT, "'%s' is not yes or no", text);
    case LG_TYPE_int: return LG_FAIL(err, LG_E_INPUT, "'%s' is not a whole number%s", text, range);
    case LG_TYPE_num: return LG_FAIL(err, LG_E_INPUT, "'%s' is not a number%s", text, range);
    case LG_TYPE_size:
        return LG_FAIL(err, LG_E_INPUT, "'%s' is not a size such as 24GB or 512MiB%s", text,
                       strstr(limits, "auto") ? ", or auto" : "");
    case LG_TYPE_secs: {
        char most[64] = "";
        if (bounded)
            (void)snprintf(most, sizeof most, ", from %.15g to %.15g s", lo, hi);
        return LG_FAIL(err, LG_E_INPUT, "'%s' is not a duration such as 90s, 5min or 2h%s", text, most);
    }
    case LG_TYPE_str:
    case LG_TYPE_list: break;
    }
    lg_buf words;
    lg_buf_init(&words, 256);
    lg_choices(limits, &words);
    const char *z = lg_buf_z(&words);
    lg_status st = LG_FAIL(err, LG_E_INPUT, "'%s' is none of %s", text, z ? z : limits);
    lg_buf_free(&words);
    return st;
}

static lg_status append(lg_list *list, const lg_given *g, lg_arena *a, lg_err *err)
{
    if ((list->n & (list->n - 1)) == 0) { // full at every power of two
        size_t cap = list->n ? list->n * 2 : 1;
        const char **v = LG_NEW_N(a, const char *, cap), **owner = LG_NEW_N(a, const char *, cap);
        if (!v || !owner)
            return LG_FAIL(err, LG_E_LIMIT, "too many values");
        if (list->n) {
            memcpy(v, list->v, list->n * sizeof *v);
            memcpy(owner, list->owner, list->n * sizeof *owner);
        }
        list->v = v;
        list->owner = owner;
    }
    ((const char **)(uintptr_t)list->v)[list->n] = g->text;
    ((const char **)(uintptr_t)list->owner)[list->n] = g->owner;
    list->n++;
    return LG_OK;
}

lg_status lg_value_store(const lg_option *opt, const lg_given *g, void *base, lg_arena *a, lg_err *err)
{
    void *at = (char *)base + opt->offset;
    const char *limits = opt->limits ? opt->limits : "";
    lg_str s = lg_str_of(g->text);
    double lo, hi, v;
    bool bounded = bounds(limits, &lo, &hi);
    int64_t i;
    size_t n;
    bool b;

    switch (opt->type) {
    case LG_TYPE_bool:
        if (!parse_bool(s, &b))
            return wrong(opt, g->text, err);
        *(bool *)at = b;
        return LG_OK;
    case LG_TYPE_int:
        if (!lg_str_i64(s, &i) || (bounded && ((double)i < lo || (double)i > hi)))
            return wrong(opt, g->text, err);
        *(int64_t *)at = i;
        return LG_OK;
    case LG_TYPE_num:
        if (!lg_str_f64(s, &v) || (bounded && (v < lo || v > hi)))
            return wrong(opt, g->text, err);
        *(double *)at = v;
        return LG_OK;
    case LG_TYPE_secs:
        if (!lg_parse_secs(s, &v) || (bounded && (v < lo || v > hi)))
            return wrong(opt, g->text, err);
        *(double *)at = v;
        return LG_OK;
    case LG_TYPE_size:
        if (strstr(limits, "auto") && lg_str_eqz(s, "auto"))
            n = LG_SIZE_AUTO;
        else if (!lg_parse_size(s, strstr(limits, "MiB") ? 1 << 20 : 1, &n))
            return wrong(opt, g->text, err);
        *(size_t *)at = n;
        return LG_OK;
    case LG_TYPE_str:
        if (!allowed(limits, s))
            return wrong(opt, g->text, err);
        *(const char **)at = g->text;
        return LG_OK;
    case LG_TYPE_list:
        if (s.n == 0) // "key =" names no element
            return LG_OK;
        if (!allowed(limits, s))
            return wrong(opt, g->text, err);
        return append(at, g, a, err);
    }
    return LG_OK;
}

static bool same_list(const lg_list *a, const lg_list *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->v[i], b->v[i]) != 0)
            return false;
    return true;
}

bool lg_value_same(const lg_option *opt, const lg_settings *a, const lg_settings *b)
{
    const void *x = (const char *)a + opt->offset, *y = (const char *)b + opt->offset;

    switch (opt->type) {
    case LG_TYPE_bool: return *(const bool *)x == *(const bool *)y;
    case LG_TYPE_int: return *(const int64_t *)x == *(const int64_t *)y;
    case LG_TYPE_size: return *(const size_t *)x == *(const size_t *)y;
    case LG_TYPE_num:
    case LG_TYPE_secs: return *(const double *)x == *(const double *)y;
    case LG_TYPE_str: return strcmp(*(const char *const *)x, *(const char *const *)y) == 0;
    case LG_TYPE_list: return same_list(x, y);
    }
    return true;
}

// Edit distance in which two neighbours that changed places count once; words longer than the table are
// "far".
static int distance(const char *a, const char *b)
{
    enum { LONGEST = 48 };
    int d[LONGEST + 1][LONGEST + 1];
    int na = (int)strnlen(a, LONGEST + 1), nb = (int)strnlen(b, LONGEST + 1);

    if (na > LONGEST || nb > LONGEST)
        return INT_MAX;
    for (int i = 0; i <= na; i++)
        d[i][0] = i;
    for (int j = 0; j <= nb; j++)
        d[0][j] = j;
    for (int i = 1; i <= na; i++) {
        for (int j = 1; j <= nb; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[na][nb];
}

const char *lg_nearest(const char *word, const char *const *known, size_t n)
{
    const char *best = NULL;
    int best_d = 1 + (int)(strlen(word) / 4) + 1; // one slip, and one more for every four letters

    for (size_t i = 0; i < n; i++) {
        int d = distance(word, known[i]);
        if (d < best_d) {
            best_d = d;
            best = known[i];
        }
    }
    return best;
}
