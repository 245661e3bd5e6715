/*
 * server/route: from method and path to what answers (api.md 0).
 */
#ifndef LG_SERVER_ROUTE_H
#define LG_SERVER_ROUTE_H

#include "server/dialect.h"
#include "server/http.h"

typedef enum lg_route_kind {
    LG_ROUTE_JOB,     /* a dialect's: through the engine */
    LG_ROUTE_UTIL,    /* answered at once by `util`; POST with a body */
    LG_ROUTE_HEALTH, LG_ROUTE_METRICS, LG_ROUTE_SLOTS, LG_ROUTE_STATUS, LG_ROUTE_EVENTS,
} lg_route_kind;

typedef enum lg_method { LG_GET = 1, LG_POST = 2, LG_DELETE = 4 } lg_method; /* GET: HEAD, too */

typedef struct lg_route {
    const char *path;     /* one that ends in a star takes any longer path */
    const char *name;     /* in logs and metrics */
    lg_route_kind kind;
    lg_method method;     /* 0: GET */
    bool open;            /* needs no key */
    bool loading;         /* answers while the model loads */
    const char *setting;  /* of `dialects`; NULL: always on */
    bool stored;          /* only where responses are stored */
    lg_error_shape shape;
    const lg_dialect *dialect;
    lg_utility_fn util;
} lg_route;

typedef enum lg_found { LG_FOUND, LG_FOUND_METHOD, LG_FOUND_NOTHING } lg_found;

/* Path as it is compared: no trailing slash, a doubled /v1 once, short forms in full. *doubled: it was. In
 * the arena of the request; NULL: out of memory. */
const char *lg_route_path(lg_request *rq, bool *doubled);
/* The row for rq->path and rq->method. With METHOD *out is a row of that path; lg_route_allow says what it
 * takes. */
lg_found lg_route_find(const lg_settings *set, const lg_request *rq, const lg_route **out);
/* The value of an Allow header for rq->path. */
const char *lg_route_allow(const lg_settings *set, const lg_request *rq);
/* Every name that lg_route rows have, for metrics. */
const char *lg_route_name(size_t i); /* NULL past the last */
size_t lg_route_index(const lg_route *r);

#endif
