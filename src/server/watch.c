/*
 * server/watch: GET /lagoon/v1/events: the status as it changes, for those who look on (ux.md 1.1).
 *
 * A stream of `status` events, at most four a second: one at once, one when something changed, else one a
 * second, so that clocks go on. It ends when the server does. A watcher is a connection with its thread; it
 * reads what everybody reads and takes nothing from the engine.
 */
#include <string.h>

#include "base/clock.h"
#include "server/server_int.h"
#include "server/status.h"

enum { MOST_WATCHERS = 8, STEP_MS = 250, QUIET_US = 1000000 };

typedef struct watcher {
    lg_server *s;
    lg_request *rq;
    lg_snapshot last;
    size_t waiting;
    uint64_t wrote_us; // 0: nothing yet
} watcher;

static bool changed(watcher *w)
{
    lg_job_row row;
    lg_snapshot now;
    size_t waiting = lg_jobs_list(w->s->jobs, &row, 1);
    bool is;

    lg_snapshot_read(w->s->snapshot, &now);
    is = w->wrote_us == 0 || waiting != w->waiting || memcmp(&now, &w->last, sizeof now) != 0;
    w->last = now;
    w->waiting = waiting;
    return is || lg_now_us() - w->wrote_us >= QUIET_US;
}

static lg_stream_state next_status(void *ctx, lg_buf *out)
{
    watcher *w = ctx;

    while (!atomic_load(&w->s->over)) {
        if (w->wrote_us > 0)
            switch (lg_http_wait(w->rq, -1, STEP_MS)) {
            case LG_WAIT_GONE: return LG_STREAM_BROKEN;
            case LG_WAIT_HALF: // a peer that is gone meets the next event with a reset
            case LG_WAIT_TIME:
            case LG_WAIT_WOKEN: break;
            }
        if (!changed(w))
            continue;
        lg_sse_begin(out, "status");
        lg_status_json(w->s, out);
        lg_sse_end(out);
        w->wrote_us = lg_now_us();
        return out->failed ? LG_STREAM_BROKEN : LG_STREAM_MORE;
    }
    return LG_STREAM_END;
}

static void leave(void *ctx)
{
    watcher *w = ctx;

    atomic_fetch_sub(&w->s->watchers, 1);
}

lg_status lg_watch_open(lg_server *s, lg_request *rq, lg_stream *out, lg_api_error *e)
{
    watcher *w;

    if (atomic_fetch_add(&s->watchers, 1) >= MOST_WATCHERS) {
        atomic_fetch_sub(&s->watchers, 1);
        return lg_api_fail(e, LG_API_QUEUE_FULL, NULL, "%d connections watch already; no more can",
                           MOST_WATCHERS);
    }
    w = LG_NEW(&rq->arena, watcher);
    if (!w) {
        atomic_fetch_sub(&s->watchers, 1);
        return lg_api_fail(e, LG_API_INTERNAL, NULL, "out of memory");
    }
    *w = (watcher){.s = s, .rq = rq};
    *out = (lg_stream){.next = next_status, .free = leave, .ctx = w};
    return LG_OK;
}
