/*
 * text/stop: see stop.h.
 */
#include "text/stop.h"

#include <stdlib.h>
#include <string.h>

typedef struct needle {
    char *text;
    size_t n;
    size_t *fall; /* fall[i]: longest proper border of the first i bytes */
    size_t at;    /* bytes matched so far */
} needle;

struct lg_stop {
    needle *needle;
    size_t n;
    lg_buf held;
    size_t given; /* bytes at the front of `held` that the last call handed out */
};

static bool make_needle(needle *k, lg_str text)
{
    size_t border = 0;

    k->text = malloc(text.n + 1);
    k->fall = calloc(text.n + 1, sizeof *k->fall);
    if (!k->text || !k->fall)
        return false;
    k->n = text.n;
    if (text.n > 0)
        memcpy(k->text, text.p, text.n);
    for (size_t i = 1; i < k->n; i++) {
        while (border > 0 && k->text[i] != k->text[border])
            border = k->fall[border];
        border += k->text[i] == k->text[border];
        k->fall[i + 1] = border;
    }
    return true;
}

lg_status lg_stop_create(const lg_str *stop, size_t n, size_t max_bytes, lg_stop **out, lg_err *err)
{
    lg_stop *s = calloc(1, sizeof *s);

    if (s)
        s->needle = calloc(n + 1, sizeof *s->needle);
    if (!s || !s->needle)
        goto out;
    lg_buf_init(&s->held, max_bytes);
    for (s->n = 0; s->n < n; s->n++)
        if (!make_needle(&s->needle[s->n], stop[s->n])) {
            s->n++;
            goto out;
        }
    *out = s;
    return LG_OK;
out:
    lg_stop_destroy(s);
    return LG_FAIL(err, LG_E_NOMEM, "out of memory for the stop strings");
}

void lg_stop_destroy(lg_stop *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        free(s->needle[i].text);
        free(s->needle[i].fall);
    }
    free(s->needle);
    lg_buf_free(&s->held);
    free(s);
}

// One byte; true when the whole needle has been seen.
static bool step(needle *k, char c)
{
    if (k->n == 0)
        return false;
    while (k->at > 0 && (k->at == k->n || k->text[k->at] != c))
        k->at = k->fall[k->at];
    k->at += k->text[k->at] == c;
    return k->at == k->n;
}

static void drop_given(lg_stop *s)
{
    if (s->given == 0)
        return;
    s->held.n -= s->given;
    memmove(s->held.p, s->held.p + s->given, s->held.n);
    s->given = 0;
}

static void forget(lg_stop *s)
{
    s->given = s->held.n;
    for (size_t k = 0; k < s->n; k++)
        s->needle[k].at = 0;
}

int lg_stop_feed(lg_stop *s, lg_str bytes, lg_str *ready)
{
    size_t from, hold = 0;

    drop_given(s);
    from = s->held.n;
    if (!lg_buf_adds(&s->held, bytes))
        bytes.n = 0;
    for (size_t i = 0; i < bytes.n; i++) {
        int found = -1;
        for (size_t k = 0; k < s->n; k++)
            if (step(&s->needle[k], bytes.p[i]) && (found < 0 || s->needle[k].n > s->needle[found].n))
                found = (int)k;
        if (found >= 0) {
            *ready = (lg_str){s->held.p, from + i + 1 - s->needle[found].n};
            forget(s);
            return found;
        }
    }
    for (size_t k = 0; k < s->n; k++)
        if (s->needle[k].at > hold)
            hold = s->needle[k].at;
    s->given = s->held.n - hold;
    *ready = (lg_str){s->held.p, s->given};
    return -1;
}

lg_str lg_stop_flush(lg_stop *s)
{
    drop_given(s);
    forget(s);
    return lg_buf_str(&s->held);
}

bool lg_stop_failed(const lg_stop *s)
{
    return s->held.failed;
}
