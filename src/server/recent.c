/*
 * server/recent: see recent.h.
 */
#include "server/recent.h"

#include <pthread.h>
#include <stdlib.h>

struct lg_recent {
    pthread_mutex_t lock;
    lg_recent_row row[LG_RECENT]; // a ring
    int n, next;
    lg_recent_sum sum;
};

lg_status lg_recent_create(lg_recent **out, lg_err *err)
{
    lg_recent *r = calloc(1, sizeof *r);

    if (!r || pthread_mutex_init(&r->lock, NULL) != 0) {
        free(r);
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    }
    *out = r;
    return LG_OK;
}

void lg_recent_destroy(lg_recent *r)
{
    if (!r)
        return;
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

void lg_recent_add(lg_recent *r, const lg_recent_row *row)
{
    (void)pthread_mutex_lock(&r->lock);
    r->row[r->next] = *row;
    r->next = (r->next + 1) % LG_RECENT;
    r->n += r->n < LG_RECENT;
    r->sum.ok += row->status < 400;
    r->sum.cancelled += row->status == 499;
    r->sum.failed += row->status >= 400 && row->status != 499;
    (void)pthread_mutex_unlock(&r->lock);
}

int lg_recent_get(lg_recent *r, lg_recent_row *out, lg_recent_sum *sum)
{
    int n;

    (void)pthread_mutex_lock(&r->lock);
    n = r->n;
    for (int i = 0; i < n; i++)
        out[i] = r->row[(r->next - 1 - i + LG_RECENT) % LG_RECENT];
    *sum = r->sum;
    (void)pthread_mutex_unlock(&r->lock);
    return n;
}
