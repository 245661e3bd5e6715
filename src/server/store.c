/*
 * server/store: see store.h.
 */
#include "server/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    char *id, *items; /* NULL: a free place */
    size_t n_id, n_items;
} entry;

struct lg_store {
    pthread_mutex_t lock;
    entry *entry; /* a ring: the next place holds the oldest */
    size_t n, next;
};

lg_status lg_store_create(size_t n, lg_store **out, lg_err *err)
{
    lg_store *s = calloc(1, sizeof *s);
    entry *ring = calloc(n ? n : 1, sizeof *ring);

    if (!s || !ring || pthread_mutex_init(&s->lock, NULL) != 0) {
        free(ring);
        free(s);
        return LG_FAIL(err, LG_E_NOMEM, "no memory for %zu stored responses", n);
    }
    s->entry = ring;
    s->n = n ? n : 1;
    *out = s;
    return LG_OK;
}

static void clear(entry *e)
{
    free(e->id);
    free(e->items);
    *e = (entry){0};
}

void lg_store_destroy(lg_store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        clear(&s->entry[i]);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->entry);
    free(s);
}

void lg_store_put(lg_store *s, lg_str id, lg_str items)
{
    entry e = {.id = malloc(id.n + 1), .items = malloc(items.n + 1), .n_id = id.n, .n_items = items.n};
    entry old;

    if (!e.id || !e.items) {
        clear(&e);
        return;
    }
    memcpy(e.id, id.p, id.n);
    memcpy(e.items, items.p, items.n);
    (void)pthread_mutex_lock(&s->lock);
    old = s->entry[s->next];
    s->entry[s->next] = e;
    s->next = (s->next + 1) % s->n;
    (void)pthread_mutex_unlock(&s->lock);
    clear(&old);
}

bool lg_store_get(lg_store *s, lg_str id, lg_buf *out)
{
    bool found = false;

    (void)pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n && !found; i++) {
        const entry *e = &s->entry[i];
        found = e->id && lg_str_eq((lg_str){e->id, e->n_id}, id);
        if (found)
            (void)lg_buf_adds(out, (lg_str){e->items, e->n_items});
    }
    (void)pthread_mutex_unlock(&s->lock);
    return found;
}
