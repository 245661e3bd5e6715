/*
 * server/jsonw: writes JSON text into a buffer, commas by itself.
 *
 * Values are written in the order of the calls; the caller opens and closes. Strings may be any bytes:
 * ill-formed UTF-8 becomes U+FFFD. Failure (maximum, memory) is the buffer's sticky flag.
 *
 *     lg_jsonw w = lg_jsonw_start(out);
 *     lg_jsonw_open(&w, NULL, '{');
 *     lg_jsonw_str(&w, "id", id);
 *     lg_jsonw_open(&w, "choices", '[');
 *     ...
 *     lg_jsonw_close(&w, ']');
 *     lg_jsonw_close(&w, '}');
 */
#ifndef LG_SERVER_JSONW_H
#define LG_SERVER_JSONW_H

#include "base/json.h"

typedef struct lg_jsonw {
    lg_buf *out;
    bool more; /* a value stands before this place: a comma is due */
} lg_jsonw;

/* `key` is NULL inside arrays and at the top. */
lg_jsonw lg_jsonw_start(lg_buf *out);
void lg_jsonw_open(lg_jsonw *w, const char *key, char bracket);
void lg_jsonw_close(lg_jsonw *w, char bracket);
void lg_jsonw_str(lg_jsonw *w, const char *key, lg_str s);
void lg_jsonw_strz(lg_jsonw *w, const char *key, const char *z); /* z NULL: null */
void lg_jsonw_int(lg_jsonw *w, const char *key, int64_t v);
void lg_jsonw_num(lg_jsonw *w, const char *key, double v); /* NaN and infinities: null */
void lg_jsonw_bool(lg_jsonw *w, const char *key, bool v);
void lg_jsonw_null(lg_jsonw *w, const char *key);
/* Text that is JSON already. */
void lg_jsonw_raw(lg_jsonw *w, const char *key, lg_str json);
/* A parsed value; NULL: null. */
void lg_jsonw_value(lg_jsonw *w, const char *key, const lg_json *v);

#endif
