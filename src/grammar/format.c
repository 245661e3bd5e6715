/*
 * grammar/format: the texts of each `format`, as patterns of our own dialect. Each language lies inside what
 * the usual validators accept: real dates with leap years, a mandatory time zone, no leap second.
 */
#include <string.h>

#include "grammar/lower.h"

#define DATE                                                                                        \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
    "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME       "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:[Zz]|[+\\-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,61}[A-Za-z0-9])?"
#define N "\\d{1,9}"
#define H "[0-9A-Fa-f]{1,4}"
#define UNRESERVED "A-Za-z0-9\\-._~"
#define SUB "!$&'()*+,;="
#define PCT "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[" UNRESERVED SUB ":@]|" PCT ")"
#define AUTHORITY \
    "(?:(?:[" UNRESERVED SUB ":]|" PCT ")*@)?(?:\\[" IPV6 "\\]|(?:[" UNRESERVED SUB "]|" PCT ")*)(?::\\d*)?"
#define TAIL "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define SEGMENT "[" UNRESERVED SUB "@]|" PCT
#define URI                                                                                                  \
    "[A-Za-z][A-Za-z0-9+\\-.]*:(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR    \
    "+(?:/" PCHAR "*)*)" TAIL
// an address without a scheme: its first part holds no colon
#define RELATIVE                                                                                             \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|(?:" SEGMENT ")+(?:/" PCHAR "*)*)?" TAIL
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
// all placements of "::", by the number of groups before it
#define LS32 "(?:" H ":" H "|" IPV4 ")"
#define IPV6                                                                                           \
    "(?:(?:" H ":){6}" LS32 "|::(?:" H ":){5}" LS32 "|(?:" H ")?::(?:" H ":){4}" LS32 "|(?:(?:" H      \
    ":){0,1}" H ")?::(?:" H ":){3}" LS32 "|(?:(?:" H ":){0,2}" H ")?::(?:" H ":){2}" LS32 "|(?:(?:" H  \
    ":){0,3}" H ")?::" H ":" LS32 "|(?:(?:" H ":){0,4}" H ")?::" LS32 "|(?:(?:" H ":){0,5}" H ")?::" H \
    "|(?:(?:" H ":){0,6}" H ")?::)"

static const struct {
    const char *name, *pattern;
    uint32_t max; // characters; 0: no bound
    const char *also; // a second pattern that must hold
} formats[] = {
    {"date", DATE, 0, NULL},
    {"time", TIME, 0, NULL},
    {"date-time", DATE "[Tt]" TIME, 0, NULL},
    {"duration",
     "P(?:" N "W|(?:" N "Y(?:" N "M(?:" N "D)?)?|" N "M(?:" N "D)?|" N "D)"
     "(?:T(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S))?"
     "|T(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S))",
     0, NULL},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}", 0, NULL},
    {"email",
     "[A-Za-z0-9!#$%&'*+/=?\\^_`{|}~\\-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?\\^_`{|}~\\-]+)*@" LABEL "(?:\\." LABEL
     ")+",
     254, "[^@]{1,64}@[^@]+"},
    {"hostname", LABEL "(?:\\." LABEL ")*", 253, NULL},
    {"ipv4", IPV4, 0, NULL},
    {"ipv6", IPV6, 0, NULL},
    {"uri", URI, 0, NULL},
    {"uri-reference", URI "|" RELATIVE, 0, NULL},
    {"json-pointer", POINTER, 0, NULL},
    {"relative-json-pointer", "(?:0|[1-9]\\d{0,8})(?:#|" POINTER ")", 0, NULL},
    {"byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", 0, NULL},
};

static const char *const notes[] = {"float", "double", "password", "binary", "int32", "int64"};

static lg_dfa whole(lg_compiler *c, const char *pattern)
{
    size_t n = strlen(pattern);
    char *p = LG_TMP(c, char, n + 8);

    memcpy(p, "^(?:", 4);
    memcpy(p + 4, pattern, n);
    memcpy(p + 4 + n, ")$", 2);
    return lg_regex_dfa(c, (lg_str){p, n + 6});
}

bool lg_format_dfa(lg_compiler *c, lg_str name, lg_dfa *out, uint32_t *max)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!lg_str_eqz(name, formats[i].name))
            continue;
        *out = whole(c, formats[i].pattern);
        if (formats[i].also) {
            lg_dfa also = whole(c, formats[i].also);
            *out = lg_dfa_product(c, out, &also, LG_DFA_AND);
        }
        *max = formats[i].max ? formats[i].max : LG_NONE;
        return true;
    }
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (lg_str_eqz(name, notes[i]))
            return false;
    if (!c->opt->ignore_formats)
        lg_compile_fail(c, LG_GRAMMAR_UNSUPPORTED_FORMAT, "format \"%.*s\" is not supported", (int)name.n,
                        name.p);
    return false;
}

bool lg_format_is_number(lg_str name, const char **min, const char **max)
{
    bool wide = lg_str_eqz(name, "int64");

    *min = wide ? "-9223372036854775808" : "-2147483648";
    *max = wide ? "9223372036854775807" : "2147483647";
    return wide || lg_str_eqz(name, "int32");
}
