/*
 * server/jsonw: see jsonw.h.
 */
#include "server/jsonw.h"

#include <math.h>

lg_jsonw lg_jsonw_start(lg_buf *out)
{
    return (lg_jsonw){.out = out};
}

// What stands before a value: comma and key. The caller writes the value next.
static void before(lg_jsonw *w, const char *key)
{
    if (w->more)
        (void)lg_buf_addz(w->out, ",");
    w->more = true;
    if (!key)
        return;
    (void)lg_json_quote(lg_str_of(key), w->out);
    (void)lg_buf_addc(w->out, ':');
}

void lg_jsonw_open(lg_jsonw *w, const char *key, char bracket)
{
    before(w, key);
    (void)lg_buf_addc(w->out, bracket);
    w->more = false;
}

void lg_jsonw_close(lg_jsonw *w, char bracket)
{
    (void)lg_buf_addc(w->out, bracket);
    w->more = true;
}

void lg_jsonw_str(lg_jsonw *w, const char *key, lg_str s)
{
    before(w, key);
    (void)lg_json_quote(s, w->out);
}

void lg_jsonw_strz(lg_jsonw *w, const char *key, const char *z)
{
    if (z)
        lg_jsonw_str(w, key, lg_str_of(z));
    else
        lg_jsonw_null(w, key);
}

void lg_jsonw_int(lg_jsonw *w, const char *key, int64_t v)
{
    before(w, key);
    (void)lg_buf_addf(w->out, "%lld", (long long)v);
}

void lg_jsonw_num(lg_jsonw *w, const char *key, double v)
{
    if (!isfinite(v)) {
        lg_jsonw_null(w, key);
        return;
    }
    before(w, key);
    (void)lg_json_float(v, w->out);
}

void lg_jsonw_bool(lg_jsonw *w, const char *key, bool v)
{
    before(w, key);
    (void)lg_buf_addz(w->out, v ? "true" : "false");
}

void lg_jsonw_null(lg_jsonw *w, const char *key)
{
    before(w, key);
    (void)lg_buf_addz(w->out, "null");
}

void lg_jsonw_raw(lg_jsonw *w, const char *key, lg_str json)
{
    before(w, key);
    (void)lg_buf_adds(w->out, json);
}

void lg_jsonw_value(lg_jsonw *w, const char *key, const lg_json *v)
{
    before(w, key);
    (void)lg_json_dump(v, w->out);
}
