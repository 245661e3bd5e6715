/*
 * grammar/spell: the one spelling of literals: raw where a character may be raw, else its short escape, else
 * \u00xx.
 */
#include <stdio.h>
#include <string.h>

#include "grammar/lower.h"

lg_str lg_spell_string(lg_compiler *c, lg_str text)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    char *p = LG_PERM(c, char, text.n * 6 + 3);
    size_t n = 0;

    c->literal_bytes += text.n;
    if (c->literal_bytes > LG_MAX_LITERAL_BYTES)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "the literals of the schema have more than %d bytes",
                        LG_MAX_LITERAL_BYTES);
    p[n++] = '"';
    for (size_t i = 0; i < text.n; i++) {
        char ch = text.p[i];
        const char *at = ch ? strchr(plain, ch) : NULL;
        if (at) {
            p[n++] = '\\';
            p[n++] = letter[at - plain];
        } else if ((unsigned char)ch < 0x20) {
            n += (size_t)snprintf(p + n, 7, "\\u%04x", (unsigned)ch);
        } else {
            p[n++] = ch;
        }
    }
    p[n++] = '"';
    return (lg_str){p, n};
}

lg_str lg_spell_scalar(lg_compiler *c, const lg_json *j)
{
    lg_decimal d;

    switch (lg_json_kind_of(j)) {
    case LG_JSON_NULL: return LG_STR("null");
    case LG_JSON_FALSE: return LG_STR("false");
    case LG_JSON_TRUE: return LG_STR("true");
    case LG_JSON_NUMBER:
        d = lg_decimal_of(c, lg_json_number_text(j));
        return lg_decimal_spell(c, &d);
    default: return lg_spell_string(c, lg_json_str(j));
    }
}
