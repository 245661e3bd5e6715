/*
 * base/json: thin layer over jansson that keeps what jansson loses (number texts, lone surrogates,
 * ill-formed UTF-8, big integers, key order) and writes Python's json.dumps form.
 *
 * A document is immutable after parsing and owned by lg_json_doc; nodes borrow from it. Numbers keep their
 * text.
 */
#ifndef LG_BASE_JSON_H
#define LG_BASE_JSON_H

#include "base/buf.h"

typedef enum lg_json_kind {
    LG_JSON_NULL, LG_JSON_FALSE, LG_JSON_TRUE, LG_JSON_NUMBER, LG_JSON_STRING, LG_JSON_ARRAY, LG_JSON_OBJECT,
} lg_json_kind;

enum { LG_JSON_MAX_VALUES = 1 << 21 }; /* a value takes up to 350 bytes */

typedef struct lg_json lg_json;         /* a node; opaque */
typedef struct lg_json_doc lg_json_doc; /* owns the tree */

typedef struct lg_json_limits {
    size_t max_bytes;
    int max_depth;
    /* ill-formed UTF-8 and lone surrogates become U+FFFD; else they are errors. NUL in strings is kept */
    bool repair;
    /* 0: LG_JSON_MAX_VALUES; bounds the memory that a hostile text of max_bytes can take */
    size_t max_values;
} lg_json_limits;

/* Errors say line and column. Duplicate keys: last value, first position. Trailing garbage is an error; a
 * UTF-8 byte order mark in front is skipped. The text is not needed afterwards; the document keeps a copy of
 * one that it changed. NUL in a key becomes U+FFFD
 * like ill-formed UTF-8. Nesting beyond max_depth, and beyond 2000 in any case, is LG_E_LIMIT, as are the
 * other limits. */
LG_NODISCARD lg_status lg_json_parse(lg_str text, const lg_json_limits *lim, lg_json_doc **out, lg_err *err);
void lg_json_free(lg_json_doc *doc); /* takes NULL */
const lg_json *lg_json_root(const lg_json_doc *doc);
/* True when repair changed anything. */
bool lg_json_repaired(const lg_json_doc *doc);
/* What was written for node j of a document that is not as it was written, because it was repaired or names
 * were repeated in it: the text of j. Of other documents, and for a node of another one, an empty slice. As
 * slow as looking at the whole document. */
lg_str lg_json_written(const lg_json_doc *doc, const lg_json *j);

lg_json_kind lg_json_kind_of(const lg_json *j); /* NULL gives LG_JSON_NULL */
bool lg_json_is(const lg_json *j, lg_json_kind kind);
size_t lg_json_len(const lg_json *j); /* array elements or object members; 0 for others */
const lg_json *lg_json_at(const lg_json *array, size_t i);
const lg_json *lg_json_get(const lg_json *object, const char *key); /* NULL when absent or not an object */
const lg_json *lg_json_getn(const lg_json *object, lg_str key);
/* Member i in document order, in constant time: value and key (may be NULL). NULL when there is none. */
const lg_json *lg_json_member(const lg_json *object, size_t i, lg_str *key);
lg_str lg_json_str(const lg_json *j);         /* string content (NUL behind it), or an empty slice */
lg_str lg_json_number_text(const lg_json *j); /* as written (NUL behind it), or an empty slice */
/* integers and integral floats (20.0, 1e3); false out of range */
bool lg_json_i64(const lg_json *j, int64_t *out);
bool lg_json_f64(const lg_json *j, double *out);
bool lg_json_bool(const lg_json *j, bool *out);

/* Writers return false when `out` is full (its failed flag is then set). */

/* Python's json.dumps(x, ensure_ascii=False): ", " and ": ", repr floats, order kept. */
bool lg_json_dump(const lg_json *j, lg_buf *out);
/* A JSON string literal with that escaping, quotes included. Ill-formed UTF-8 becomes U+FFFD. */
bool lg_json_quote(lg_str s, lg_buf *out);
/* Python's repr of a double (Infinity and NaN spelled as json.dumps does), and of a JSON number text
 * (integers kept digit by digit, "-0" -> "0"). */
bool lg_json_float(double v, lg_buf *out);
bool lg_json_number(lg_str text, lg_buf *out);

#endif
