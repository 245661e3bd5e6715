/*
 * server/head: what others may see of a request (dialect.h), and the small things a response is made of.
 * Knows nothing of the transport.
 */
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "server/dialect.h"
#include "server/http.h"

lg_str lg_request_path(const lg_request *rq)
{
    return rq->path;
}

lg_str lg_request_header(const lg_request *rq, const char *name)
{
    lg_str want = lg_str_of(name);

    for (size_t i = 0; i < rq->n_header; i++)
        if (rq->header[i].name.n == want.n && strncasecmp(rq->header[i].name.p, name, want.n) == 0)
            return rq->header[i].value;
    return (lg_str){0};
}

void lg_response_init(lg_response *r)
{
    *r = (lg_response){.type = "application/json"};
    lg_buf_init(&r->body, (size_t)1 << 30);
}

void lg_response_header(lg_response *r, const char *name, const char *fmt, ...)
{
    LG_ASSERT(r->n_header < LG_RESPONSE_HEADERS);
    char *v = r->header[r->n_header].value, *to = v;
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(v, sizeof r->header[0].value, fmt, ap);
    va_end(ap);
    for (const char *from = v; *from; from++)
        if ((unsigned char)*from >= 0x20 && *from != 0x7F)
            *to++ = *from;
    *to = '\0';
    r->header[r->n_header++].name = name;
}
