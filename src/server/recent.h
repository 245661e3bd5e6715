/*
 * server/recent: the last requests that ended, for the status and a dashboard (ux.md 1.1). What the log line
 * of a request says, as numbers; no text of a prompt or an answer.
 *
 * One mutex, held for a copy. Connections write, whoever shows the status reads; the engine thread does
 * neither.
 */
#ifndef LG_SERVER_RECENT_H
#define LG_SERVER_RECENT_H

#include <stdint.h>

#include "base/err.h"

enum { LG_RECENT = 50 };

typedef struct lg_recent_row {
    int64_t t;             /* when it ended, seconds since the epoch */
    char id[24];           /* of the log; empty: refused before it had one */
    char dialect[16], client[32];
    const char *finish;    /* static text */
    int status, calls;
    int64_t prompt, cached, think, out; /* tokens; out: besides thinking */
    uint64_t queue_ms, ttft_ms, ms;
    double tok_s, accept;  /* accept < 0: nothing was drafted */
} lg_recent_row;

typedef struct lg_recent_sum {
    uint64_t ok, cancelled, failed; /* since the start */
} lg_recent_sum;

typedef struct lg_recent lg_recent;

LG_NODISCARD lg_status lg_recent_create(lg_recent **out, lg_err *err);
void lg_recent_destroy(lg_recent *r); /* takes NULL */
void lg_recent_add(lg_recent *r, const lg_recent_row *row);
/* Copies, the newest first; `out` has room for LG_RECENT. Returns how many. */
int lg_recent_get(lg_recent *r, lg_recent_row *out, lg_recent_sum *sum);

#endif
