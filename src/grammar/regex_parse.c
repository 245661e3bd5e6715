/*
 * grammar/regex_parse: the syntax of patterns, into a tree.
 *
 * Accepted: literals, `.`, classes, \d \D \w \W \s \S, \p and \P with general categories, scripts,
 * Alphabetic, White_Space, Any and ASCII, the escapes of ECMA-262 including surrogate pairs, identity escapes
 * of ASCII punctuation, groups (plain, (?:, named), alternatives, quantifiers and their lazy forms, ^ and $.
 * Refused: lookaround, back-references, \b, \B, inline flags, other properties, escapes of other letters.
 */
#include <string.h>

#include "grammar/regex.h"

enum { MAX_DEPTH = 64, MAX_BYTES = 4096, MAX_REPEAT = 10000, LAST = 0x10ffff };

typedef struct parser {
    lg_compiler *c;
    const char *p, *end;
    int depth;
} parser;

typedef struct set {
    lg_range *r;
    size_t n, cap;
} set;

LG_NORETURN static void bad(parser *s, const char *what)
{
    lg_compile_fail(s->c, LG_GRAMMAR_INVALID_SCHEMA, "the pattern is malformed: %s", what);
}

LG_NORETURN static void refuse(parser *s, const char *what)
{
    lg_compile_fail(s->c, LG_GRAMMAR_UNSUPPORTED_REGEX, "%s is not supported in a pattern", what);
}

static int peek(const parser *s)
{
    return s->p < s->end ? (unsigned char)*s->p : -1;
}

static bool take(parser *s, const char *z)
{
    size_t n = strlen(z);

    if ((size_t)(s->end - s->p) < n || memcmp(s->p, z, n) != 0)
        return false;
    s->p += n;
    return true;
}

static void add(parser *s, set *x, uint32_t lo, uint32_t hi)
{
    LG_GROW(s->c, x->r, x->n, &x->cap);
    x->r[x->n++] = (lg_range){lo, hi};
}

// Sorts and joins; then, if asked, takes the complement. Surrogates are no characters.
static void settle(parser *s, set *x, bool negate)
{
    set out = {0};
    uint32_t from = 0;
    size_t n = 0;

    for (size_t i = 1; i < x->n; i++) // mostly sorted already
        for (size_t k = i; k > 0 && x->r[k].lo < x->r[k - 1].lo; k--) {
            lg_range t = x->r[k];
            x->r[k] = x->r[k - 1];
            x->r[k - 1] = t;
            lg_compile_work(s->c, 1);
        }
    for (size_t i = 0; i < x->n; i++) {
        if (n && x->r[i].lo <= x->r[n - 1].hi + 1)
            x->r[n - 1].hi = x->r[i].hi > x->r[n - 1].hi ? x->r[i].hi : x->r[n - 1].hi;
        else
            x->r[n++] = x->r[i];
    }
    x->n = n;
    if (negate) {
        for (size_t i = 0; i < n; i++) {
            if (x->r[i].lo > from)
                add(s, &out, from, x->r[i].lo - 1);
            from = x->r[i].hi + 1;
        }
        if (from <= LAST)
            add(s, &out, from, LAST);
        *x = out;
    }
    out = (set){0};
    for (size_t i = 0; i < x->n; i++) {
        uint32_t lo = x->r[i].lo, hi = x->r[i].hi;
        if (lo < 0xd800)
            add(s, &out, lo, hi < 0xd800 ? hi : 0xd7ff);
        if (hi > 0xdfff)
            add(s, &out, lo > 0xdfff ? lo : 0xe000, hi);
    }
    *x = out;
}

static lg_re *new_re(parser *s, lg_re_kind kind)
{
    lg_re *re = LG_TMP(s->c, lg_re, 1);

    re->kind = kind;
    lg_compile_work(s->c, 1);
    return re;
}

static lg_re *chars(parser *s, set *x, bool negate)
{
    lg_re *re = new_re(s, LG_RE_CHARS);

    settle(s, x, negate);
    re->range = x->r;
    re->n_range = (uint32_t)x->n;
    return re;
}

static void add_digits(parser *s, set *x)
{
    add(s, x, '0', '9');
}

static void add_word(parser *s, set *x)
{
    add_digits(s, x);
    add(s, x, 'A', 'Z');
    add(s, x, '_', '_');
    add(s, x, 'a', 'z');
}

static void add_space(parser *s, set *x)
{
    static const lg_range space[] = {{9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680},
                                     {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                     {0x3000, 0x3000}, {0xfeff, 0xfeff}};

    for (size_t i = 0; i < sizeof space / sizeof *space; i++)
        add(s, x, space[i].lo, space[i].hi);
}

static bool add_category(parser *s, set *x, lg_str name)
{
    static const char *const long_names[][2] = {{"Letter", "L"},
                                                {"Cased_Letter", "LC"},
                                                {"Uppercase_Letter", "Lu"},
                                                {"Lowercase_Letter", "Ll"},
                                                {"Titlecase_Letter", "Lt"},
                                                {"Modifier_Letter", "Lm"},
                                                {"Other_Letter", "Lo"},
                                                {"Mark", "M"},
                                                {"Combining_Mark", "M"},
                                                {"Nonspacing_Mark", "Mn"},
                                                {"Spacing_Mark", "Mc"},
                                                {"Enclosing_Mark", "Me"},
                                                {"Number", "N"},
                                                {"Decimal_Number", "Nd"},
                                                {"digit", "Nd"},
                                                {"Letter_Number", "Nl"},
                                                {"Other_Number", "No"},
                                                {"Punctuation", "P"},
                                                {"punct", "P"},
                                                {"Connector_Punctuation", "Pc"},
                                                {"Dash_Punctuation", "Pd"},
                                                {"Open_Punctuation", "Ps"},
                                                {"Close_Punctuation", "Pe"},
                                                {"Initial_Punctuation", "Pi"},
                                                {"Final_Punctuation", "Pf"},
                                                {"Other_Punctuation", "Po"},
                                                {"Symbol", "S"},
                                                {"Math_Symbol", "Sm"},
                                                {"Currency_Symbol", "Sc"},
                                                {"Modifier_Symbol", "Sk"},
                                                {"Other_Symbol", "So"},
                                                {"Separator", "Z"},
                                                {"Space_Separator", "Zs"},
                                                {"Line_Separator", "Zl"},
                                                {"Paragraph_Separator", "Zp"},
                                                {"Other", "C"},
                                                {"Control", "Cc"},
                                                {"cntrl", "Cc"},
                                                {"Format", "Cf"},
                                                {"Surrogate", "Cs"},
                                                {"Private_Use", "Co"},
                                                {"Unassigned", "Cn"}};
    bool any = false;

    for (size_t i = 0; i < sizeof long_names / sizeof *long_names; i++)
        if (lg_str_eqz(name, long_names[i][0]))
            name = lg_str_of(long_names[i][1]);
    if (name.n < 1 || name.n > 2)
        return false;
    for (uint32_t i = 0; i < lg_n_unicode_ranges; i++) {
        const char *cat = lg_unicode_category[lg_unicode_ranges[i].category];
        bool cased = lg_str_eqz(name, "LC") && cat[0] == 'L' && cat[1] != 'm' && cat[1] != 'o';
        if (cased || (cat[0] == name.p[0] && (name.n == 1 || cat[1] == name.p[1]))) {
            add(s, x, lg_unicode_ranges[i].lo,
                i + 1 < lg_n_unicode_ranges ? lg_unicode_ranges[i + 1].lo - 1u : (uint32_t)LAST);
            any = true;
        }
    }
    return any;
}

static void add_alphabetic(parser *s, set *x)
{
    for (uint32_t i = 0; i < lg_n_alphabetic; i += 2)
        add(s, x, lg_alphabetic[i], i + 1 < lg_n_alphabetic ? lg_alphabetic[i + 1] - 1 : (uint32_t)LAST);
}

static bool is_of(uint32_t number, uint32_t script)
{
    if (number < lg_n_scripts)
        return number == script;
    for (const uint8_t *one = lg_script_set[number - lg_n_scripts]; *one != 255; one++)
        if (*one == script)
            return true;
    return false;
}

// The characters of a script; `wide`: those that it shares with others as well.
static bool add_script(parser *s, set *x, lg_str name, bool wide)
{
    const lg_unicode_range *r = wide ? lg_scripts_ranges : lg_script_ranges;
    uint32_t n = wide ? lg_n_scripts_ranges : lg_n_script_ranges, script = 0;

    while (script < lg_n_scripts && !lg_str_eqz(name, lg_script_name[script][0]) &&
           !lg_str_eqz(name, lg_script_name[script][1]))
        script++;
    for (uint32_t i = 0; script < lg_n_scripts && i < n; i++)
        if (is_of(r[i].category, script))
            add(s, x, r[i].lo, i + 1 < n ? r[i + 1].lo - 1u : (uint32_t)LAST);
    return script < lg_n_scripts;
}

// Cuts a beginning off.
static bool cut(lg_str *s, const char *z)
{
    lg_str front = lg_str_of(z);

    if (!lg_str_starts(*s, front))
        return false;
    *s = (lg_str){s->p + front.n, s->n - front.n};
    return true;
}

// \p{...} or \P{...}; the letter is read.
static void property(parser *s, set *x, bool negate)
{
    const char *close;
    lg_str name;
    set own = {0};

    if (!take(s, "{") || !(close = memchr(s->p, '}', (size_t)(s->end - s->p))))
        bad(s, "\\p needs a property in braces");
    name = (lg_str){s->p, (size_t)(close - s->p)};
    s->p = close + 1;
    if (lg_str_eqz(name, "Any")) {
        add(s, &own, 0, LAST);
    } else if (lg_str_eqz(name, "ASCII")) {
        add(s, &own, 0, 127);
    } else if (lg_str_eqz(name, "White_Space") || lg_str_eqz(name, "space")) {
        add_space(s, &own);
        own.n--; // all but the byte order mark
        add(s, &own, 0x85, 0x85);
    } else if (lg_str_eqz(name, "Alphabetic") || lg_str_eqz(name, "Alpha")) {
        add_alphabetic(s, &own);
    } else if (cut(&name, "Script=") || cut(&name, "sc=")) {
        if (!add_script(s, &own, name, false))
            refuse(s, "this script");
    } else if (cut(&name, "Script_Extensions=") || cut(&name, "scx=")) {
        if (!add_script(s, &own, name, true))
            refuse(s, "this script");
    } else {
        if (!cut(&name, "General_Category="))
            (void)cut(&name, "gc=");
        if (!add_category(s, &own, name))
            refuse(s, "this Unicode property");
    }
    settle(s, &own, negate);
    for (size_t i = 0; i < own.n; i++)
        add(s, x, own.r[i].lo, own.r[i].hi);
}

static bool hex(parser *s, int n, uint32_t *v)
{
    if (s->end - s->p < n)
        return false;
    *v = 0;
    for (int i = 0; i < n; i++) {
        char ch = s->p[i];
        int d = ch >= '0' && ch <= '9'   ? ch - '0'
                : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
                : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                         : -1;
        if (d < 0)
            return false;
        *v = *v * 16 + (uint32_t)d;
    }
    s->p += n;
    return true;
}

// What follows "\u".
static uint32_t unicode_escape(parser *s)
{
    uint32_t v = 0, low;

    if (take(s, "{")) {
        int n = 0;
        for (uint32_t d; n < 8 && hex(s, 1, &d); n++)
            v = v * 16 + d;
        if (n == 0 || v > LAST || !take(s, "}"))
            bad(s, "\\u{...} needs a code point");
        return v;
    }
    if (!hex(s, 4, &v))
        bad(s, "\\u needs four hex digits");
    if (v >= 0xd800 && v < 0xdc00) {
        const char *back = s->p;
        if (take(s, "\\u") && hex(s, 4, &low) && low >= 0xdc00 && low < 0xe000)
            return 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
        s->p = back;
    }
    return v;
}

// An escape, behind its backslash. Either a set is added to x (answer false), or one character is in *cp.
static bool escape(parser *s, set *x, bool in_class, uint32_t *cp)
{
    int ch = peek(s);
    set own = {0};

    if (ch < 0)
        bad(s, "it ends in a backslash");
    s->p++;
    switch (ch) {
    case 't': *cp = '\t'; return true;
    case 'n': *cp = '\n'; return true;
    case 'v': *cp = '\v'; return true;
    case 'f': *cp = '\f'; return true;
    case 'r': *cp = '\r'; return true;
    case '0':
        if (peek(s) >= '0' && peek(s) <= '9')
            bad(s, "\\0 may not be followed by a digit");
        *cp = 0;
        return true;
    case 'c':
        ch = peek(s) | 32;
        if (ch < 'a' || ch > 'z')
            bad(s, "\\c needs a letter");
        s->p++;
        *cp = (uint32_t)ch & 31;
        return true;
    case 'x':
        if (!hex(s, 2, cp))
            bad(s, "\\x needs two hex digits");
        return true;
    case 'u': *cp = unicode_escape(s); return true;
    case 'd':
    case 'D': add_digits(s, &own); break;
    case 'w':
    case 'W': add_word(s, &own); break;
    case 's':
    case 'S': add_space(s, &own); break;
    case 'p':
    case 'P': property(s, x, ch == 'P'); return false;
    case 'b':
        if (in_class) {
            *cp = '\b';
            return true;
        }
        refuse(s, "\\b");
    case 'B': refuse(s, "\\B");
    case 'k': refuse(s, "a back-reference");
    default:
        if (ch >= '1' && ch <= '9')
            refuse(s, "a back-reference");
        if (ch >= 128 || ch <= ' ' || ((ch | 32) >= 'a' && (ch | 32) <= 'z'))
            refuse(s, "an escape of this character");
        *cp = (uint32_t)ch;
        return true;
    }
    settle(s, &own, ch == 'D' || ch == 'W' || ch == 'S');
    for (size_t i = 0; i < own.n; i++)
        add(s, x, own.r[i].lo, own.r[i].hi);
    return false;
}

static uint32_t literal(parser *s)
{
    int32_t cp;

    s->p += lg_utf8_step(s->p, (size_t)(s->end - s->p), &cp);
    if (cp < 0)
        bad(s, "it is not UTF-8");
    return (uint32_t)cp;
}

// One member of a class: a character (true) or a set that is added.
static bool class_atom(parser *s, set *x, uint32_t *cp)
{
    if (take(s, "\\"))
        return escape(s, x, true, cp);
    *cp = literal(s);
    return true;
}

static lg_re *class(parser *s)
{
    bool negate = take(s, "^");
    set x = {0};

    while (!take(s, "]")) {
        uint32_t lo, hi;
        if (s->p == s->end)
            bad(s, "a class is not closed");
        if (!class_atom(s, &x, &lo)) {
            if (s->end - s->p > 1 && s->p[0] == '-' && s->p[1] != ']')
                bad(s, "a range ends in a class");
            continue;
        }
        if (s->end - s->p > 1 && s->p[0] == '-' && s->p[1] != ']') {
            s->p++;
            if (!class_atom(s, &x, &hi) || hi < lo)
                bad(s, "a range of a class is not in order");
            add(s, &x, lo, hi);
        } else {
            add(s, &x, lo, lo);
        }
    }
    return chars(s, &x, negate);
}

static lg_re *alternatives(parser *s);

// Behind "(".
static lg_re *group(parser *s)
{
    lg_re *re;

    if (take(s, "?=") || take(s, "?!") || take(s, "?<=") || take(s, "?<!"))
        refuse(s, "lookaround");
    if (take(s, "?<")) {
        const char *close = memchr(s->p, '>', (size_t)(s->end - s->p));
        if (!close || close == s->p)
            bad(s, "the name of a group is not closed");
        s->p = close + 1;
    } else if (!take(s, "?:") && peek(s) == '?') {
        refuse(s, "this kind of group");
    }
    if (++s->depth > MAX_DEPTH)
        lg_compile_fail(s->c, LG_GRAMMAR_TOO_COMPLEX, "the groups of a pattern may be nested %d deep",
                        MAX_DEPTH);
    re = alternatives(s);
    s->depth--;
    if (!take(s, ")"))
        bad(s, "a group is not closed");
    return re;
}

static lg_re *atom(parser *s)
{
    set x = {0};
    uint32_t cp;

    switch (peek(s)) {
    case '(': s->p++; return group(s);
    case '[': s->p++; return class(s);
    case '^': s->p++; return new_re(s, LG_RE_START);
    case '$': s->p++; return new_re(s, LG_RE_END);
    case '.':
        s->p++;
        add(s, &x, '\n', '\n');
        add(s, &x, '\r', '\r');
        add(s, &x, 0x2028, 0x2029);
        return chars(s, &x, true);
    case '*':
    case '+':
    case '?':
    case '{': bad(s, "nothing to repeat");
    case ']':
    case '}': bad(s, "a bracket is not open");
    case '\\':
        s->p++;
        if (escape(s, &x, false, &cp))
            add(s, &x, cp, cp);
        return chars(s, &x, false);
    default:
        cp = literal(s);
        add(s, &x, cp, cp);
        return chars(s, &x, false);
    }
}

static uint32_t number(parser *s)
{
    uint32_t v = 0;

    if (peek(s) < '0' || peek(s) > '9')
        bad(s, "a repetition needs a number");
    while (peek(s) >= '0' && peek(s) <= '9') {
        v = v * 10 + (uint32_t)(*s->p++ - '0');
        if (v > MAX_REPEAT)
            lg_compile_fail(s->c, LG_GRAMMAR_TOO_COMPLEX, "a pattern may repeat at most %d times",
                            MAX_REPEAT);
    }
    return v;
}

static lg_re *quantified(parser *s)
{
    lg_re *re = atom(s), *rep;
    uint32_t min, max = LG_NONE;

    if (take(s, "*")) {
        min = 0;
    } else if (take(s, "+")) {
        min = 1;
    } else if (take(s, "?")) {
        min = 0;
        max = 1;
    } else if (take(s, "{")) {
        min = max = number(s);
        if (take(s, ","))
            max = peek(s) == '}' ? LG_NONE : number(s);
        if (!take(s, "}") || max < min)
            bad(s, "a repetition is not {m}, {m,} or {m,n}");
    } else {
        return re;
    }
    (void)take(s, "?"); // lazy: the language is the same
    rep = new_re(s, LG_RE_REPEAT);
    rep->child = re;
    rep->min = min;
    rep->max = max;
    return rep;
}

static lg_re *alternatives(parser *s)
{
    lg_re *alt = new_re(s, LG_RE_ALT), **last = &alt->child;

    do {
        lg_re *seq = new_re(s, LG_RE_SEQ), **end = &seq->child;
        while (s->p < s->end && *s->p != '|' && *s->p != ')') {
            *end = quantified(s);
            end = &(*end)->next;
        }
        *last = seq;
        last = &seq->next;
    } while (take(s, "|"));
    return alt;
}

const lg_re *lg_regex_parse(lg_compiler *c, lg_str pattern)
{
    parser s = {.c = c, .p = pattern.p, .end = pattern.p + pattern.n};
    const lg_re *re;

    if (pattern.n > MAX_BYTES)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "a pattern may have at most %d bytes", MAX_BYTES);
    re = alternatives(&s);
    if (s.p < s.end)
        bad(&s, "a parenthesis is not open");
    return re;
}
