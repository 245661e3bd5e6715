/*
 * server/store: see store.h.
 */
#include "server/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    char *text; /* id, items, response, one after the other; NULL: a free place */
    size_t n_id, n_items, n_input, n_response;
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
    free(e->text);
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

static void put_text(char **to, lg_str s)
{
    if (s.n > 0)
        memcpy(*to, s.p, s.n);
    *to += s.n;
}

void lg_store_put(lg_store *s, const lg_stored *r)
{
    entry e = {.text = malloc(r->id.n + r->items.n + r->response.n + 1), .n_id = r->id.n,
               .n_items = r->items.n, .n_input = r->n_input, .n_response = r->response.n};
    char *to = e.text;
    entry old;

    if (!e.text)
        return;
    put_text(&to, r->id);
    put_text(&to, r->items);
    put_text(&to, r->response);
    (void)pthread_mutex_lock(&s->lock);
    old = s->entry[s->next];
    s->entry[s->next] = e;
    s->next = (s->next + 1) % s->n;
    (void)pthread_mutex_unlock(&s->lock);
    clear(&old);
}

// Under the lock.
static entry *find(const lg_store *s, lg_str id)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->entry[i].text && lg_str_eq((lg_str){s->entry[i].text, s->entry[i].n_id}, id))
            return &s->entry[i];
    return NULL;
}

bool lg_store_get(lg_store *s, lg_str id, lg_store_part part, lg_buf *out)
{
    const entry *e;

    (void)pthread_mutex_lock(&s->lock);
    e = find(s, id);
    if (e && part == LG_STORE_RESPONSE)
        (void)lg_buf_add(out, e->text + e->n_id + e->n_items, e->n_response);
    else if (e)
        (void)lg_buf_add(out, e->text + e->n_id, part == LG_STORE_INPUT ? e->n_input : e->n_items);
    (void)pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

bool lg_store_drop(lg_store *s, lg_str id)
{
    entry old = {0};
    entry *e;

    (void)pthread_mutex_lock(&s->lock);
    e = find(s, id);
    if (e) {
        old = *e;
        *e = (entry){0};
    }
    (void)pthread_mutex_unlock(&s->lock);
    clear(&old);
    return e != NULL;
}
