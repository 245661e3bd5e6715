/*
 * text/value: see value.h. Types from the schema, the strict recogniser, and the order in which readings are
 * tried.
 */
#include "text/value.h"

#include <stdlib.h>
#include <string.h>

enum { REF_DEPTH = 16, SCHEMA_BUDGET = 4096, JSON_DEPTH = 512, EXPONENT_MAX = 400 };

/* --- types --- */

/* A walk through a schema; the budget bounds what branches of branches can cost. */
typedef struct walk {
    const lg_json *root;
    int budget;
} walk;

static lg_types type_named(lg_str name)
{
    static const struct {
        const char *name;
        lg_types types;
    } table[] = {{"string", LG_T_STRING},   {"integer", LG_T_INTEGER}, {"number", LG_T_NUMBER},
                 {"boolean", LG_T_BOOLEAN}, {"object", LG_T_OBJECT},   {"array", LG_T_ARRAY},
                 {"null", LG_T_NULL}};

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (lg_str_eqz(name, table[i].name))
            return table[i].types;
    return LG_T_UNKNOWN;
}

static lg_types type_of_value(const lg_json *v)
{
    switch (lg_json_kind_of(v)) {
    case LG_JSON_FALSE:
    case LG_JSON_TRUE: return LG_T_BOOLEAN;
    case LG_JSON_NUMBER: return LG_T_NUMBER;
    case LG_JSON_STRING: return LG_T_STRING;
    case LG_JSON_ARRAY: return LG_T_ARRAY;
    case LG_JSON_OBJECT: return LG_T_OBJECT;
    default: return LG_T_NULL;
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// One step of a JSON Pointer in a URI fragment: %xx, ~0 and ~1 are undone. False when it does not fit.
static bool pointer_step(lg_str step, char *out, size_t room, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < step.n; i++) {
        char c = step.p[i];
        if (c == '%' && step.n - i > 2 && hex_digit(step.p[i + 1]) >= 0 && hex_digit(step.p[i + 2]) >= 0) {
            c = (char)(hex_digit(step.p[i + 1]) << 4 | hex_digit(step.p[i + 2]));
            i += 2;
        }
        if (c == '~' && step.n - i > 1 && (step.p[i + 1] == '0' || step.p[i + 1] == '1'))
            c = step.p[++i] == '0' ? '~' : '/';
        if (*n == room)
            return false;
        out[(*n)++] = c;
    }
    return true;
}

static const lg_json *pointer_child(const lg_json *at, lg_str name)
{
    int64_t index;

    if (lg_json_is(at, LG_JSON_ARRAY))
        return lg_str_i64(name, &index) && index >= 0 ? lg_json_at(at, (size_t)index) : NULL;
    return lg_json_getn(at, name);
}

// What "#/a/b" points at, or NULL.
static const lg_json *resolve(const lg_json *root, lg_str ref)
{
    char name[256];
    size_t n;

    if (ref.n == 0 || ref.p[0] != '#')
        return NULL;
    for (size_t from = 1; root && from < ref.n;) {
        if (ref.p[from] != '/')
            return NULL;
        size_t end = lg_str_find(ref, LG_STR("/"), from + 1);
        if (end == SIZE_MAX)
            end = ref.n;
        if (!pointer_step((lg_str){ref.p + from + 1, end - from - 1}, name, sizeof name, &n))
            return NULL;
        root = pointer_child(root, (lg_str){name, n});
        from = end;
    }
    return root;
}

static lg_types types_of(walk *w, const lg_json *schema, int refs);

// Union of the branches; one unknown branch makes it unknown.
static lg_types types_any(walk *w, const lg_json *branches, int refs)
{
    lg_types all = 0;

    for (size_t i = 0; i < lg_json_len(branches); i++) {
        lg_types t = types_of(w, lg_json_at(branches, i), refs);
        if (t == LG_T_UNKNOWN)
            return LG_T_UNKNOWN;
        all |= t;
    }
    return all;
}

static lg_types types_all(walk *w, const lg_json *branches, int refs)
{
    lg_types all = LG_T_UNKNOWN;

    for (size_t i = 0; i < lg_json_len(branches); i++) {
        lg_types t = types_of(w, lg_json_at(branches, i), refs);
        if (t != LG_T_UNKNOWN)
            all = all == LG_T_UNKNOWN ? t : all & t;
    }
    return all;
}

static lg_types types_listed(const lg_json *type)
{
    lg_types all = 0;

    if (lg_json_is(type, LG_JSON_STRING))
        return type_named(lg_json_str(type));
    for (size_t i = 0; i < lg_json_len(type); i++)
        all |= type_named(lg_json_str(lg_json_at(type, i)));
    return all;
}

static lg_types types_bare(walk *w, const lg_json *s, int refs)
{
    const lg_json *j;

    if ((j = lg_json_get(s, "$ref")) && refs < REF_DEPTH)
        return types_of(w, resolve(w->root, lg_json_str(j)), refs + 1);
    if ((j = lg_json_get(s, "type")))
        return types_listed(j);
    if ((j = lg_json_get(s, "anyOf")) || (j = lg_json_get(s, "oneOf")))
        return types_any(w, j, refs);
    if ((j = lg_json_get(s, "allOf")))
        return types_all(w, j, refs);
    if ((j = lg_json_get(s, "const")))
        return type_of_value(j);
    if ((j = lg_json_get(s, "enum"))) {
        lg_types all = 0;
        for (size_t i = 0; i < lg_json_len(j); i++)
            all |= type_of_value(lg_json_at(j, i));
        return all;
    }
    if (lg_json_get(s, "properties"))
        return LG_T_OBJECT;
    return lg_json_get(s, "items") ? LG_T_ARRAY : LG_T_UNKNOWN;
}

static lg_types types_of(walk *w, const lg_json *schema, int refs)
{
    bool nullable = false;
    lg_types t;

    if (!lg_json_is(schema, LG_JSON_OBJECT) || --w->budget < 0)
        return LG_T_UNKNOWN;
    t = types_bare(w, schema, refs);
    if (t != LG_T_UNKNOWN && lg_json_bool(lg_json_get(schema, "nullable"), &nullable) && nullable)
        t |= LG_T_NULL;
    return t;
}

lg_types lg_value_types(const lg_json *parameters, lg_str key)
{
    walk w = {.root = parameters, .budget = SCHEMA_BUDGET};
    const lg_json *ref = lg_json_get(parameters, "$ref"), *holder = parameters;

    for (int depth = 0; ref && depth < REF_DEPTH; depth++) {
        holder = resolve(parameters, lg_json_str(ref));
        ref = lg_json_get(holder, "$ref");
    }
    return types_of(&w, lg_json_getn(lg_json_get(holder, "properties"), key), 0);
}

/* --- strict JSON --- */

typedef struct scan {
    lg_str s;
    size_t at;
} scan;

static void skip_blanks(scan *c)
{
    while (c->at < c->s.n && memchr(" \t\r\n", c->s.p[c->at], 4))
        c->at++;
}

static bool take(scan *c, char want)
{
    if (c->at == c->s.n || c->s.p[c->at] != want)
        return false;
    c->at++;
    return true;
}

static bool take_word(scan *c, lg_str word)
{
    if (!lg_str_starts((lg_str){c->s.p + c->at, c->s.n - c->at}, word))
        return false;
    c->at += word.n;
    return true;
}

// uXXXX behind a backslash.
static bool scan_unit(scan *c, unsigned *unit)
{
    if (!take(c, 'u') || c->s.n - c->at < 4)
        return false;
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(c->s.p[c->at++]);
        if (d < 0)
            return false;
        *unit = *unit << 4 | (unsigned)d;
    }
    return true;
}

static bool scan_string(scan *c)
{
    unsigned unit;

    if (!take(c, '"'))
        return false;
    while (c->at < c->s.n) {
        unsigned char ch = (unsigned char)c->s.p[c->at++];
        if (ch == '"')
            return true;
        if (ch < 0x20)
            return false;
        if (ch != '\\')
            continue;
        if (c->at < c->s.n && memchr("\"\\/bfnrt", c->s.p[c->at], 8)) {
            c->at++;
            continue;
        }
        if (!scan_unit(c, &unit) || (unit >= 0xDC00 && unit < 0xE000))
            return false;
        if (unit >= 0xD800 && unit < 0xDC00 &&
            (!take(c, '\\') || !scan_unit(c, &unit) || unit < 0xDC00 || unit > 0xDFFF))
            return false;
    }
    return false;
}

static bool scan_digits(scan *c)
{
    size_t from = c->at;

    while (c->at < c->s.n && c->s.p[c->at] >= '0' && c->s.p[c->at] <= '9')
        c->at++;
    return c->at > from;
}

static bool scan_number(scan *c)
{
    (void)take(c, '-');
    if (!take(c, '0') && !scan_digits(c))
        return false;
    if (take(c, '.') && !scan_digits(c))
        return false;
    if (take(c, 'e') || take(c, 'E')) {
        if (!take(c, '+'))
            (void)take(c, '-');
        return scan_digits(c);
    }
    return true;
}

static bool scan_scalar(scan *c, lg_json_kind *kind)
{
    char first = c->at < c->s.n ? c->s.p[c->at] : 0;

    switch (first) {
    case '"': *kind = LG_JSON_STRING; return scan_string(c);
    case 't': *kind = LG_JSON_TRUE; return take_word(c, LG_STR("true"));
    case 'f': *kind = LG_JSON_FALSE; return take_word(c, LG_STR("false"));
    case 'n': *kind = LG_JSON_NULL; return take_word(c, LG_STR("null"));
    default: *kind = LG_JSON_NUMBER; return scan_number(c);
    }
}

// Name and colon of a member; the cursor ends before its value.
static bool scan_name(scan *c, lg_str *name)
{
    size_t from;

    skip_blanks(c);
    from = c->at + 1;
    if (!scan_string(c))
        return false;
    *name = (lg_str){c->s.p + from, c->at - 1 - from};
    skip_blanks(c);
    return take(c, ':');
}

// One value with everything inside it, without recursion: `open` remembers the brackets.
static bool scan_value(scan *c, lg_json_kind *kind)
{
    char open[JSON_DEPTH];
    int depth = 0;
    lg_json_kind k;
    lg_str name;

    for (;;) {
        skip_blanks(c);
        bool array = take(c, '['), object = !array && take(c, '{');
        if (array || object) {
            k = array ? LG_JSON_ARRAY : LG_JSON_OBJECT;
            if (depth == 0)
                *kind = k;
            if (depth == JSON_DEPTH)
                return false;
            open[depth++] = array ? ']' : '}';
            skip_blanks(c);
            if (!take(c, open[depth - 1])) {
                if (object && !scan_name(c, &name))
                    return false;
                continue;
            }
            depth--;
        } else {
            if (!scan_scalar(c, &k))
                return false;
            if (depth == 0)
                *kind = k;
        }
        // a value is complete: close what ends here, or go on behind a comma
        for (;;) {
            if (depth == 0)
                return true;
            skip_blanks(c);
            if (take(c, ','))
                break;
            if (!take(c, open[--depth]))
                return false;
        }
        if (open[depth - 1] == '}' && !scan_name(c, &name))
            return false;
    }
}

bool lg_value_is_json(lg_str text, lg_json_kind *kind)
{
    scan c = {.s = text};
    lg_json_kind k;

    if (!scan_value(&c, &k))
        return false;
    skip_blanks(&c);
    if (c.at != text.n)
        return false;
    if (kind)
        *kind = k;
    return true;
}

bool lg_value_member(lg_str text, const char *name, lg_str *out)
{
    scan c = {.s = text};
    bool found = false;
    lg_json_kind kind;
    lg_str key;

    skip_blanks(&c);
    if (!take(&c, '{'))
        return false;
    do {
        if (!scan_name(&c, &key))
            break;
        skip_blanks(&c);
        size_t from = c.at;
        if (!scan_value(&c, &kind))
            break;
        if (lg_str_eqz(key, name)) {
            *out = (lg_str){text.p + from, c.at - from};
            found = true;
        }
        skip_blanks(&c);
    } while (take(&c, ','));
    return found;
}

/* --- writing --- */

static lg_str trim_blanks(lg_str s)
{
    while (s.n > 0 && memchr(" \t\r\n", s.p[0], 4)) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && memchr(" \t\r\n", s.p[s.n - 1], 4))
        s.n--;
    return s;
}

// Digit i of a number written as `whole` digits, perhaps a point, and digits behind it.
static char digit_at(lg_str number, size_t whole, size_t i)
{
    return number.p[i < whole ? i : i + 1];
}

// A JSON number that is integral (20.0, 1e3) as an integer, digit by digit.
static bool write_integer(lg_str t, lg_buf *out)
{
    lg_str s = t;
    size_t whole = 0, digits, end;
    int64_t exponent = 0;
    bool negative = s.p[0] == '-', some = false;

    s.p += negative;
    s.n -= negative;
    while (whole < s.n && s.p[whole] >= '0' && s.p[whole] <= '9')
        whole++;
    if (whole == s.n) {
        (void)lg_buf_adds(out, t);
        return true;
    }
    for (end = whole; end < s.n && (s.p[end] | 0x20) != 'e'; end++)
        ;
    if (end < s.n && !lg_str_i64((lg_str){s.p + end + 1, s.n - end - 1}, &exponent))
        return false;
    if (exponent > EXPONENT_MAX || exponent < -EXPONENT_MAX)
        return false;
    digits = end > whole ? end - 1 : end; // without the point
    int64_t point = (int64_t)whole + exponent;
    for (size_t i = 0; i < digits; i++)
        if ((int64_t)i >= point && digit_at(s, whole, i) != '0')
            return false;
    for (int64_t i = 0; i < point; i++) {
        char d = (size_t)i < digits ? digit_at(s, whole, (size_t)i) : '0';
        if (d == '0' && !some)
            continue;
        if (!some && negative)
            (void)lg_buf_addc(out, '-');
        some = true;
        (void)lg_buf_addc(out, d);
    }
    if (!some)
        (void)lg_buf_addc(out, '0');
    return true;
}

static bool write_python(lg_types types, lg_str t, lg_buf *out)
{
    size_t before = out->n;
    lg_json_kind kind;

    if (!lg_value_python(t, &kind, out))
        return false;
    if ((kind == LG_JSON_ARRAY && (types & LG_T_ARRAY)) || (kind == LG_JSON_OBJECT && (types & LG_T_OBJECT)))
        return true;
    out->n = before;
    return false;
}

void lg_value_write(lg_types types, lg_str raw, lg_buf *out)
{
    lg_str t = trim_blanks(raw);
    lg_json_kind kind = LG_JSON_NULL;
    bool json;

    if (types == LG_T_STRING) {
        (void)lg_json_quote(raw, out);
        return;
    }
    json = lg_value_is_json(t, &kind);
    if (types == LG_T_UNKNOWN) {
        (void)(json && kind != LG_JSON_STRING ? lg_buf_adds(out, t) : lg_json_quote(raw, out));
        return;
    }
    if ((lg_str_eqz(t, "null") || lg_str_eqz(t, "None")) && ((types & LG_T_NULL) || !(types & LG_T_STRING))) {
        (void)lg_buf_addz(out, "null");
    } else if ((types & LG_T_BOOLEAN) && (lg_str_eqz(t, "true") || lg_str_eqz(t, "True"))) {
        (void)lg_buf_addz(out, "true");
    } else if ((types & LG_T_BOOLEAN) && (lg_str_eqz(t, "false") || lg_str_eqz(t, "False"))) {
        (void)lg_buf_addz(out, "false");
    } else if (json && kind == LG_JSON_NUMBER && (types & LG_T_FRACTION)) {
        (void)lg_buf_adds(out, t);
    } else if (json && kind == LG_JSON_NUMBER && (types & LG_T_INTEGER) && write_integer(t, out)) {
        return;
    } else if (json && ((kind == LG_JSON_ARRAY && (types & LG_T_ARRAY)) ||
                        (kind == LG_JSON_OBJECT && (types & LG_T_OBJECT)))) {
        (void)lg_buf_adds(out, t);
    } else if (write_python(types, t, out)) {
        return;
    } else if (!(types & LG_T_STRING) && json) {
        (void)lg_buf_adds(out, t);
    } else {
        (void)lg_json_quote(raw, out);
    }
}
