/*
 * server/sse: framing of server-sent events (api.md 1.1). JSON written by lg_jsonw has no raw line ends, so
 * one data line holds it whole.
 */
#include "server/dialect.h"

void lg_sse_begin(lg_buf *out, const char *name)
{
    if (name)
        (void)lg_buf_addf(out, "event: %s\n", name);
    (void)lg_buf_addz(out, "data: ");
}

void lg_sse_end(lg_buf *out)
{
    (void)lg_buf_addz(out, "\n\n");
}

void lg_sse_frame(lg_buf *out, const char *name, lg_str json)
{
    lg_sse_begin(out, name);
    (void)lg_buf_adds(out, json);
    lg_sse_end(out);
}

lg_jsonw lg_sse_object(lg_buf *out, const char *type)
{
    lg_jsonw w;

    lg_sse_begin(out, type);
    w = lg_jsonw_start(out);
    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_strz(&w, "type", type);
    return w;
}

void lg_sse_object_end(lg_jsonw *w)
{
    lg_jsonw_close(w, '}');
    lg_sse_end(w->out);
}
