/*
 * base/json_write: the writing half of json.h, in the form of Python's json.dumps(x, ensure_ascii=False),
 * because that form is what the models were trained on.
 *
 * Surprise: the shortest digits of a double are searched with printf and strtod instead of a table-driven
 * algorithm; floats are rare in what we write, and the C library gets every rounding right.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

// The digits of |v| with `precision` significant ones, correctly rounded, and the decimal exponent of the
// first.
static void render(double v, int precision, char digit[18], int *exp10)
{
    char text[40];
    int n = 0;
    const char *p = text;

    (void)snprintf(text, sizeof text, "%.*e", precision - 1, v);
    for (; *p && *p != 'e'; p++) // what is no digit here is the locale's point
        if (*p >= '0' && *p <= '9' && n < 17)
            digit[n++] = *p;
    digit[n] = 0;
    *exp10 = (int)strtol(p + (*p == 'e'), NULL, 10);
}

static bool round_trips(double v, const char *digit, int exp10)
{
    char text[40];
    double back;

    (void)snprintf(text, sizeof text, "%se%d", digit, exp10 - (int)strlen(digit) + 1);
    return lg_str_f64(lg_str_of(text), &back) && back == v;
}

// Adds one to the last digit; false when that carries out of the first.
static bool increment(char *digit)
{
    for (size_t i = strlen(digit); i-- > 0;) {
        if (digit[i] != '9') {
            digit[i]++;
            return true;
        }
        digit[i] = '0';
    }
    return false;
}

// The shortest digits that read back as v (finite, > 0), nearest to v among those, without trailing zeros.
static void shortest(double v, char digit[18], int *exp10)
{
    int unused;
    // just above a power of two doubles lie farther apart than below: there the neighbour above may read back
    // although the nearest does not
    bool lopsided = frexp(v, &unused) == 0.5;
    // 15 digits survive the way through a normal double, so nothing shorter needs trying before them
    int precision = v < 2.2250738585072014e-308 ? 1 : 15;

    for (;; precision++) {
        render(v, precision, digit, exp10);
        if (precision == 17 || round_trips(v, digit, *exp10))
            break;
        if (lopsided && increment(digit) && round_trips(v, digit, *exp10))
            break;
    }
    for (size_t n = strlen(digit); n > 1 && digit[n - 1] == '0'; n--)
        digit[n - 1] = 0;
}

bool lg_json_float(double v, lg_buf *out)
{
    char digit[18];
    int exp10;

    if (isnan(v))
        return lg_buf_addz(out, "NaN");
    if (signbit(v) && !lg_buf_addc(out, '-'))
        return false;
    v = fabs(v);
    if (isinf(v))
        return lg_buf_addz(out, "Infinity");
    if (v == 0)
        return lg_buf_addz(out, "0.0");
    shortest(v, digit, &exp10);
    int n = (int)strlen(digit);
    if (exp10 < -4 || exp10 >= 16) {
        return lg_buf_addf(out, "%c%s%se%c%02d", digit[0], n > 1 ? "." : "", digit + 1, exp10 < 0 ? '-' : '+',
                           abs(exp10));
    }
    if (exp10 < 0)
        return lg_buf_addf(out, "0.%.*s%s", -exp10 - 1, "0000", digit);
    if (n <= exp10 + 1)
        return lg_buf_addf(out, "%s%.*s.0", digit, exp10 + 1 - n, "0000000000000000");
    return lg_buf_addf(out, "%.*s.%s", exp10 + 1, digit, digit + exp10 + 1);
}

bool lg_json_number(lg_str text, lg_buf *out)
{
    bool integer = true;
    double v;

    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] == '.' || text.p[i] == 'e' || text.p[i] == 'E')
            integer = false;
    if (integer)
        return lg_str_eqz(text, "-0") ? lg_buf_addc(out, '0') : lg_buf_adds(out, text);
    if (!lg_str_f64(text, &v)) // past the range of a double, where Python reads infinity
        v = text.p[0] == '-' ? -INFINITY : INFINITY;
    return lg_json_float(v, out);
}

bool lg_json_quote(lg_str s, lg_buf *out)
{
    size_t from = 0;

    if (s.n == 0) // p may be NULL
        return lg_buf_addz(out, "\"\"");
    if (!lg_buf_addc(out, '"'))
        return false;
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.p[i];
        size_t n = 1;
        char small[8] = "\\";
        const char *instead = small;

        if (c >= 0x80) {
            int32_t cp;
            n = (size_t)lg_utf8_step(s.p + i, s.n - i, &cp);
            if (cp >= 0) {
                i += n;
                continue;
            }
            n = (size_t)lg_utf8_bad_len(s.p + i, s.n - i);
            instead = "\xEF\xBF\xBD";
        } else if (c == '"' || c == '\\') {
            small[1] = (char)c;
        } else if (c >= 0x20) {
            i++;
            continue;
        } else {
            const char *at = strchr("\nn\rr\tt\bb\ff", c);
            if (c && at)
                small[1] = at[1];
            else
                (void)snprintf(small, sizeof small, "\\u%04x", c);
        }
        if (!lg_buf_add(out, s.p + from, i - from) || !lg_buf_addz(out, instead))
            return false;
        i += n;
        from = i;
    }
    return lg_buf_add(out, s.p + from, s.n - from) && lg_buf_addc(out, '"');
}

static bool dump_items(const lg_json *j, lg_buf *out)
{
    bool object = lg_json_is(j, LG_JSON_OBJECT);

    if (!lg_buf_addc(out, object ? '{' : '['))
        return false;
    for (size_t i = 0; i < lg_json_len(j); i++) {
        lg_str key;
        const lg_json *value = object ? lg_json_member(j, i, &key) : lg_json_at(j, i);
        if ((i > 0 && !lg_buf_addz(out, ", ")) ||
            (object && (!lg_json_quote(key, out) || !lg_buf_addz(out, ": "))) || !lg_json_dump(value, out))
            return false;
    }
    return lg_buf_addc(out, object ? '}' : ']');
}

bool lg_json_dump(const lg_json *j, lg_buf *out)
{
    switch (lg_json_kind_of(j)) {
    case LG_JSON_NULL: return lg_buf_addz(out, "null");
    case LG_JSON_TRUE: return lg_buf_addz(out, "true");
    case LG_JSON_FALSE: return lg_buf_addz(out, "false");
    case LG_JSON_NUMBER: return lg_json_number(lg_json_number_text(j), out);
    case LG_JSON_STRING: return lg_json_quote(lg_json_str(j), out);
    case LG_JSON_ARRAY:
    case LG_JSON_OBJECT: return dump_items(j, out);
    }
    return false;
}
