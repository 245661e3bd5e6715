/*
 * text/value_python: Python literals as JSON, for models that write ['x', 'y'] or {'a': None} where JSON was
 * wanted.
 *
 * Accepts what ast.literal_eval would, as far as JSON can say it, and JSON's own true, false and null. The
 * output is spaced like json.dumps. Sets, bytes, complex numbers and keys that are no strings make it fail.
 */
#include <string.h>

#include "text/value.h"

enum { PYTHON_DEPTH = 64 };

typedef struct reader {
    lg_str s;
    size_t at;
    lg_buf *out;
    int depth;
} reader;

static bool value(reader *r, lg_json_kind *kind);

static void skip(reader *r)
{
    while (r->at < r->s.n && memchr(" \t\r\n\f", r->s.p[r->at], 5))
        r->at++;
}

static char peek(const reader *r)
{
    return r->at < r->s.n ? r->s.p[r->at] : 0;
}

static bool take(reader *r, char want)
{
    if (r->at == r->s.n || r->s.p[r->at] != want)
        return false;
    r->at++;
    return true;
}

/* --- strings --- */

// `n` digits of the base, at least `min` of them.
static bool number_escape(reader *r, int min, int max, int base, int32_t *cp)
{
    int n = 0;

    for (*cp = 0; n < max && r->at < r->s.n; n++, r->at++) {
        char c = r->s.p[r->at];
        int d = c >= '0' && c <= '9'                     ? c - '0'
                : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                         : 99;
        if (d >= base)
            break;
        *cp = *cp * base + d;
        if (*cp > 0x10FFFF)
            return false;
    }
    return n >= min;
}

// Behind a backslash. *cp is -1 when the escape stands for nothing.
static bool escape(reader *r, int32_t *cp)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = peek(r);
    const char *simple = c ? strchr(from, c) : NULL;

    if (c >= '0' && c <= '7')
        return number_escape(r, 1, 3, 8, cp);
    r->at++;
    if (simple) {
        *cp = to[simple - from];
        return true;
    }
    switch (c) {
    case '\n': *cp = -1; return true;
    case 'x': return number_escape(r, 2, 2, 16, cp);
    case 'u': return number_escape(r, 4, 4, 16, cp);
    case 'U': return number_escape(r, 8, 8, 16, cp);
    default: r->at--; *cp = '\\'; return true; // Python keeps an unknown escape as it is
    }
}

// The other half of a surrogate pair, if it follows; U+FFFD stands for a half without its other one.
static int32_t join_surrogates(reader *r, int32_t cp)
{
    size_t back = r->at;
    int32_t low;

    if (cp < 0xD800 || cp > 0xDFFF)
        return cp;
    if (cp < 0xDC00 && take(r, '\\') && take(r, 'u') && number_escape(r, 4, 4, 16, &low) && low >= 0xDC00 &&
        low <= 0xDFFF)
        return 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    r->at = back;
    return 0xFFFD;
}

// Characters of a string between its quotes, as UTF-8 in `text`.
static bool string_body(reader *r, lg_buf *text)
{
    char quote = r->s.p[r->at];
    lg_str triple = {r->s.p + r->at, 3};
    bool is_triple = r->s.n - r->at >= 6 && triple.p[1] == quote && triple.p[2] == quote;

    r->at += is_triple ? 3 : 1;
    while (r->at < r->s.n) {
        char c = r->s.p[r->at];
        int32_t cp;
        char utf8[4];
        if (is_triple ? lg_str_starts((lg_str){r->s.p + r->at, r->s.n - r->at}, triple) : c == quote) {
            r->at += is_triple ? 3 : 1;
            return true;
        }
        if (c == '\n' && !is_triple)
            return false;
        r->at++;
        if (c != '\\') {
            (void)lg_buf_addc(text, c);
            continue;
        }
        if (r->at == r->s.n || !escape(r, &cp))
            return false;
        if (cp >= 0)
            (void)lg_buf_add(text, utf8, (size_t)lg_utf8_put(join_surrogates(r, cp), utf8));
    }
    return false;
}

static bool string(reader *r)
{
    lg_buf text;
    bool ok;

    lg_buf_init(&text, r->out->max);
    ok = string_body(r, &text);
    if (text.failed)
        r->out->failed = true;
    else if (ok)
        (void)lg_json_quote(lg_buf_str(&text), r->out);
    lg_buf_free(&text);
    return ok;
}

/* --- numbers and words --- */

static bool number(reader *r)
{
    size_t from = r->at, digits = 0;
    bool plain = true;
    double v;

    if (peek(r) == '-' || peek(r) == '+')
        r->at++;
    for (; r->at < r->s.n; r->at++) {
        char c = r->s.p[r->at];
        bool sign = (c == '-' || c == '+') && (r->s.p[r->at - 1] | 0x20) == 'e';
        if (c >= '0' && c <= '9')
            digits++;
        else if (c == '.' || c == 'e' || c == 'E' || sign)
            plain = false;
        else
            break;
    }
    lg_str t = {r->s.p + from, r->at - from};
    if (digits == 0)
        return false;
    if (t.p[0] == '+') {
        t.p++;
        t.n--;
    }
    if (lg_value_is_json(t, NULL)) { // keeps its text
        (void)lg_buf_adds(r->out, t);
        return true;
    }
    return !plain && lg_str_f64(t, &v) && lg_json_float(v, r->out); // 1. and .5
}

static bool word(reader *r, lg_json_kind *kind)
{
    static const struct {
        const char *python;
        lg_json_kind kind;
        const char *json;
    } words[] = {{"True", LG_JSON_TRUE, "true"},    {"False", LG_JSON_FALSE, "false"},
                 {"None", LG_JSON_NULL, "null"},    {"true", LG_JSON_TRUE, "true"},
                 {"false", LG_JSON_FALSE, "false"}, {"null", LG_JSON_NULL, "null"}};
    size_t n = 0;

    while (n < r->s.n - r->at && ((r->s.p[r->at + n] | 0x20) >= 'a' && (r->s.p[r->at + n] | 0x20) <= 'z'))
        n++;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!lg_str_eqz((lg_str){r->s.p + r->at, n}, words[i].python))
            continue;
        r->at += n;
        *kind = words[i].kind;
        (void)lg_buf_addz(r->out, words[i].json);
        return true;
    }
    return false;
}

/* --- containers --- */

// Elements up to `close`. In parentheses one element without a comma is not a tuple.
static bool sequence(reader *r, char close)
{
    bool first = true, comma = true;
    lg_json_kind kind;

    (void)lg_buf_addc(r->out, '[');
    for (skip(r); !take(r, close); skip(r)) {
        if (!comma)
            return false;
        if (!first)
            (void)lg_buf_addz(r->out, ", ");
        if (!value(r, &kind))
            return false;
        skip(r);
        comma = take(r, ',');
        if (close == ')' && first && !comma)
            return false;
        first = false;
    }
    (void)lg_buf_addc(r->out, ']');
    return true;
}

static bool dict(reader *r)
{
    bool first = true, comma = true;
    lg_json_kind kind;

    (void)lg_buf_addc(r->out, '{');
    for (skip(r); !take(r, '}'); skip(r)) {
        if (!comma)
            return false;
        if (!first)
            (void)lg_buf_addz(r->out, ", ");
        first = false;
        if ((peek(r) != '\'' && peek(r) != '"') || !string(r))
            return false;
        skip(r);
        if (!take(r, ':'))
            return false;
        (void)lg_buf_addz(r->out, ": ");
        if (!value(r, &kind))
            return false;
        skip(r);
        comma = take(r, ',');
    }
    (void)lg_buf_addc(r->out, '}');
    return true;
}

static bool value(reader *r, lg_json_kind *kind)
{
    bool ok;
    char c;

    skip(r);
    if (r->depth == PYTHON_DEPTH || r->at == r->s.n)
        return false;
    r->depth++;
    c = peek(r);
    if (c == '[' || c == '(') {
        r->at++;
        *kind = LG_JSON_ARRAY;
        ok = sequence(r, c == '[' ? ']' : ')');
    } else if (c == '{') {
        r->at++;
        *kind = LG_JSON_OBJECT;
        ok = dict(r);
    } else if (c == '\'' || c == '"') {
        *kind = LG_JSON_STRING;
        ok = string(r);
    } else if (c == '-' || c == '+' || c == '.' || (c >= '0' && c <= '9')) {
        *kind = LG_JSON_NUMBER;
        ok = number(r);
    } else {
        ok = word(r, kind);
    }
    r->depth--;
    return ok;
}

bool lg_value_python(lg_str text, lg_json_kind *kind, lg_buf *out)
{
    reader r = {.s = text, .out = out};
    size_t before = out->n;

    if (value(&r, kind)) {
        skip(&r);
        if (r.at == text.n)
            return true;
    }
    out->n = before;
    return false;
}
