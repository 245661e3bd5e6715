/*
 * base/json_scan: see json_scan.h. One loop over the text with a bit for each open container; no recursion.
 *
 * Strings are copied in runs: only quotes, escapes, control characters and bytes past ASCII are looked at one
 * by one.
 */
#include "base/json_scan.h"

#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

typedef struct scan {
    const char *p, *end, *start;
    const lg_json_limits *lim;
    lg_json_scan *out;
    lg_err *err;
    size_t n_values, max_values;
    int depth, max_depth;
    uint8_t is_object[(LG_JSON_DEPTH_CAP + 7) / 8];
} scan;

typedef enum state {
    WANT_VALUE,
    WANT_VALUE_OR_END, // after [
    WANT_KEY,
    WANT_KEY_OR_END, // after {
    WANT_COLON,
    WANT_COMMA_OR_END,
    DONE,
} state;

// Reports `what` at `at`: line and column count from 1, columns in characters.
static lg_status fail_at(const scan *s, const char *at, lg_status code, const char *what)
{
    size_t line = 1, column = 1;

    for (const char *p = s->start; p < at;) {
        int32_t cp;
        int n = lg_utf8_step(p, (size_t)(s->end - p), &cp);
        p += n;
        column++;
        if (cp == '\n') {
            line++;
            column = 1;
        }
    }
    return LG_FAIL(s->err, code, "JSON line %zu, column %zu: %s", line, column, what);
}

static lg_status fail(const scan *s, const char *what)
{
    return fail_at(s, s->p, LG_E_INPUT, what);
}

static lg_status full(const scan *s)
{
    return LG_FAIL(s->err, LG_E_NOMEM, "out of memory while reading JSON");
}

static int hex4(const char *p, const char *end)
{
    int v = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

static bool replace(scan *s)
{
    s->out->repaired = true;
    return lg_buf_addz(&s->out->text, REPLACEMENT);
}

// A \uXXXX at s->p: copied, or repaired when it is half of a pair or a NUL in a key.
static lg_status unicode_escape(scan *s, bool key)
{
    const char *p = s->p;
    int unit = hex4(p + 2, s->end);
    size_t n = 6;

    if (unit < 0)
        return fail(s, "\\u needs four hexadecimal digits");
    bool lone = unit >= 0xDC00 && unit <= 0xDFFF;
    if (unit >= 0xD800 && unit <= 0xDBFF) {
        int low = s->end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, s->end) : -1;
        lone = low < 0xDC00 || low > 0xDFFF;
        n = lone ? 6 : 12;
    }
    bool bad = lone || (key && unit == 0);
    if (bad && !s->lim->repair)
        return fail(s,
                    lone ? "half of a surrogate pair; both halves are needed" : "a key may not hold \\u0000");
    s->p += n;
    return (bad ? replace(s) : lg_buf_add(&s->out->text, p, n)) ? LG_OK : full(s);
}

static lg_status escape(scan *s, bool key)
{
    if (s->end - s->p < 2)
        return fail(s, "the text ends inside a string");
    if (s->p[1] == 'u')
        return unicode_escape(s, key);
    if (!memchr("\"\\/bfnrt", s->p[1], 8))
        return fail(s, "unknown escape; \\\\ is a backslash");
    bool ok = lg_buf_add(&s->out->text, s->p, 2);
    s->p += 2;
    return ok ? LG_OK : full(s);
}

static bool plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

// A string with s->p on its opening quote.
static lg_status string(scan *s, bool key)
{
    lg_buf *out = &s->out->text;
    const char *open = s->p++;

    if (!lg_buf_addc(out, '"'))
        return full(s);
    for (;;) {
        const char *run = s->p;
        while (s->p < s->end) {
            if (plain((unsigned char)*s->p)) {
                s->p++;
                continue;
            }
            int32_t cp = -1;
            int n = (unsigned char)*s->p >= 0x80 ? lg_utf8_step(s->p, (size_t)(s->end - s->p), &cp) : 0;
            if (cp < 0)
                break;
            s->p += n;
        }
        if (!lg_buf_add(out, run, (size_t)(s->p - run)))
            return full(s);
        if (s->p == s->end)
            return fail_at(s, open, LG_E_INPUT, "a string begins here and never ends");
        unsigned char c = (unsigned char)*s->p;
        if (c == '"') {
            s->p++;
            return lg_buf_addc(out, '"') ? LG_OK : full(s);
        }
        if (c == '\\') {
            LG_TRY(escape(s, key));
        } else if (c < 0x20) {
            return fail(s, "a control character in a string must be written as an escape such as \\n");
        } else {
            if (!s->lim->repair)
                return fail(s, "these bytes are not UTF-8");
            s->p += lg_utf8_bad_len(s->p, (size_t)(s->end - s->p));
            if (!replace(s))
                return full(s);
        }
    }
}

static const char *digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

// The end of the JSON number at p, or NULL when there is none.
static const char *number_end(const char *p, const char *end)
{
    const char *from;

    if (p < end && *p == '-')
        p++;
    from = p;
    p = digits(p, end);
    if (p == from || (*from == '0' && p - from > 1))
        return NULL;
    if (p < end && *p == '.') {
        from = ++p;
        p = digits(p, end);
        if (p == from)
            return NULL;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        from = p;
        p = digits(p, end);
        if (p == from)
            return NULL;
    }
    return p;
}

static lg_status number(scan *s)
{
    const char *end = number_end(s->p, s->end);
    lg_buf *texts = &s->out->numbers;

    if (!end)
        return fail(s, "not a number in JSON's form (such as 10, -0.5, 1e-3)");
    if (!lg_buf_addf(&s->out->text, "%zu", texts->n) || !lg_buf_add(texts, s->p, (size_t)(end - s->p)) ||
        !lg_buf_addc(texts, 0))
        return full(s);
    s->p = end;
    return LG_OK;
}

static lg_status literal(scan *s)
{
    static const lg_str words[] = {{"true", 4}, {"false", 5}, {"null", 4}};
    lg_str rest = {s->p, (size_t)(s->end - s->p)};

    for (size_t i = 0; i < 3; i++)
        if (lg_str_starts(rest, words[i])) {
            s->p += words[i].n;
            return lg_buf_adds(&s->out->text, words[i]) ? LG_OK : full(s);
        }
    return fail(s, "a JSON value is needed here");
}

static bool in_object(const scan *s)
{
    int i = s->depth - 1;

    return s->is_object[i / 8] >> (i % 8) & 1;
}

static state after_value(const scan *s)
{
    return s->depth == 0 ? DONE : WANT_COMMA_OR_END;
}

static lg_status open_container(scan *s, state *st)
{
    bool object = *s->p == '{';
    int i = s->depth;

    if (s->depth >= s->max_depth)
        return fail_at(s, s->p, LG_E_LIMIT, "nested too deeply");
    s->is_object[i / 8] = (uint8_t)((s->is_object[i / 8] & ~(1u << (i % 8))) | (unsigned)object << (i % 8));
    s->depth++;
    *st = object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    return lg_buf_addc(&s->out->text, *s->p++) ? LG_OK : full(s);
}

static lg_status close_container(scan *s, state *st)
{
    s->depth--;
    *st = after_value(s);
    return lg_buf_addc(&s->out->text, *s->p++) ? LG_OK : full(s);
}

static lg_status value(scan *s, state *st)
{
    char c = *s->p;

    if (++s->n_values > s->max_values)
        return fail_at(s, s->p, LG_E_LIMIT, "too many values");
    if (c == '{' || c == '[')
        return open_container(s, st);
    *st = after_value(s);
    if (c == '"')
        return string(s, false);
    if (c == '-' || (c >= '0' && c <= '9'))
        return number(s);
    return literal(s);
}

// One token with s->p on it.
static lg_status token(scan *s, state *st)
{
    char c = *s->p;

    switch (*st) {
    case WANT_VALUE_OR_END:
        if (c == ']')
            return close_container(s, st);
        return value(s, st);
    case WANT_VALUE:
        return value(s, st);
    case WANT_KEY_OR_END:
        if (c == '}')
            return close_container(s, st);
        // fall through
    case WANT_KEY:
        if (c != '"')
            return fail(s, "a key in double quotes is needed here");
        *st = WANT_COLON;
        s->out->n_keys++;
        return string(s, true);
    case WANT_COLON:
        if (c != ':')
            return fail(s, "a colon is needed here");
        *st = WANT_VALUE;
        break;
    case WANT_COMMA_OR_END:
        if (c == (in_object(s) ? '}' : ']'))
            return close_container(s, st);
        if (c != ',')
            return fail(s, in_object(s) ? "a comma or } is needed here" : "a comma or ] is needed here");
        *st = in_object(s) ? WANT_KEY : WANT_VALUE;
        break;
    case DONE:
        return fail(s, "nothing may follow the value");
    }
    s->p++;
    return lg_buf_addc(&s->out->text, c) ? LG_OK : full(s);
}

lg_status lg_json_scan_text(lg_str in, const lg_json_limits *lim, lg_json_scan *out, lg_err *err)
{
    scan s = {.p = in.p, .start = in.p, .end = in.p + in.n, .lim = lim, .out = out, .err = err};
    state st = WANT_VALUE;

    *out = (lg_json_scan){.repaired = false};
    lg_buf_init(&out->text, SIZE_MAX / 2);
    lg_buf_init(&out->numbers, SIZE_MAX / 2);
    if (in.n > lim->max_bytes)
        return LG_FAIL(err, LG_E_LIMIT, "JSON of %zu bytes; the limit is %zu", in.n, lim->max_bytes);
    s.max_depth = lim->max_depth < LG_JSON_DEPTH_CAP ? lim->max_depth : LG_JSON_DEPTH_CAP;
    s.max_values = lim->max_values ? lim->max_values : LG_JSON_MAX_VALUES;
    if (lg_str_starts(in, LG_STR("\xEF\xBB\xBF")))
        s.p += 3;
    for (;;) {
        while (s.p < s.end && (*s.p == ' ' || *s.p == '\n' || *s.p == '\r' || *s.p == '\t'))
            s.p++;
        if (s.p == s.end)
            break;
        LG_TRY(token(&s, &st));
    }
    if (st != DONE)
        return fail(&s, "the text ends too early");
    return LG_OK;
}

void lg_json_scan_free(lg_json_scan *s)
{
    lg_buf_free(&s->text);
    lg_buf_free(&s->numbers);
}

const char *lg_json_skip_space(const char *p)
{
    while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
        p++;
    return p;
}

const char *lg_json_skip_string(const char *p)
{
    for (p++; *p != '"'; p++)
        p += *p == '\\';
    return p + 1;
}

const char *lg_json_skip_value(const char *p)
{
    int depth = 0;

    do {
        p = lg_json_skip_space(p);
        if (*p == '"') {
            p = lg_json_skip_string(p);
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            depth--;
            p++;
        } else if (*p == ',' || *p == ':') {
            p++;
        } else {
            while (*p && !strchr(" \t\r\n,]}", *p))
                p++;
        }
    } while (depth > 0);
    return p;
}
