/*
 * text/value: the text of a tool argument -> JSON, by what the tool's schema allows (chat.md 4.3).
 *
 * The model writes every argument as bare text; the schema decides whether `42` is a number or a string.
 * Texts that are JSON already pass as they are, character by character; numbers never go through a double.
 */
#ifndef LG_TEXT_VALUE_H
#define LG_TEXT_VALUE_H

#include "base/json.h"

/* A set of JSON types; a number is an integer or a fraction. */
typedef unsigned lg_types;
enum {
    LG_T_UNKNOWN = 0,
    LG_T_NULL = 1 << 0,
    LG_T_BOOLEAN = 1 << 1,
    LG_T_INTEGER = 1 << 2,
    LG_T_FRACTION = 1 << 3,
    LG_T_NUMBER = LG_T_INTEGER | LG_T_FRACTION,
    LG_T_STRING = 1 << 4,
    LG_T_ARRAY = 1 << 5,
    LG_T_OBJECT = 1 << 6,
};

/* Types that the schema `parameters` (may be NULL) allows for its property `key`. */
lg_types lg_value_types(const lg_json *parameters, lg_str key);

/* Append `raw` as one JSON value. `raw` is well-formed UTF-8. A failure shows in out->failed. */
void lg_value_write(lg_types types, lg_str raw, lg_buf *out);

/* Strict JSON (RFC 8259, no lone surrogates, nesting up to 512), blanks around it allowed. *kind may be NULL.
 */
bool lg_value_is_json(lg_str text, lg_json_kind *kind);

/* The text of a member of the object `text`, which must be strict JSON: the last one of that name, in *out;
 * false when there is none. Names written with escapes are not recognised. */
bool lg_value_member(lg_str text, const char *name, lg_str *out);

/* A Python literal (list, tuple, dict, string, number, True, False, None, nested up to 64) as JSON appended
 * to `out`; *kind tells what it is. On false `out` is as before. */
bool lg_value_python(lg_str text, lg_json_kind *kind, lg_buf *out);

#endif
