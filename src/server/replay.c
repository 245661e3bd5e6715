/*
 * server/replay: see replay.h.
 *
 * An entry is one block of memory, reference-counted, in a hash table and in a list from most to least
 * recently used. A look-up takes a reference under the lock and compares outside it, since comparing parses
 * JSON.
 *
 * Surprise: arguments are compared by meaning, not by spelling. A client that parses and prints them again
 * may change key order, spaces and the form of numbers (1.0, 1); what the model wrote is replayed all the
 * same. A string is compared byte for byte.
 */
#include "server/replay.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"

enum { ARGUMENTS_DEPTH = 512, FIRST_BUCKETS = 256, ENTRY_OVERHEAD = 64 };

typedef struct argument {
    lg_str key, value; /* value: a string's own text, else the canonical JSON */
    bool is_string;
} argument;

typedef struct entry {
    struct entry *next;              /* in its bucket */
    struct entry *newer, *older;     /* in the list of use */
    uint64_t hash;
    size_t bytes, n_ref;             /* n_ref under the lock; the table holds one */
    lg_str id, name, reasoning;
    const argument *arg;
    size_t n_arg;
    const int32_t *ids;
    size_t n_ids;
} entry;

struct lg_replay {
    pthread_mutex_t lock;
    entry **bucket;
    size_t n_bucket, n_entry;
    size_t bytes, max_bytes;
    entry *newest, *oldest;
};

/* --- canonical arguments --- */

static int by_key(const void *a, const void *b)
{
    const lg_str *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int order = n > 0 ? memcmp(x->p, y->p, n) : 0;

    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

static bool canonical(const lg_json *j, lg_buf *out);

static bool canonical_object(const lg_json *j, lg_buf *out)
{
    size_t n = lg_json_len(j);
    lg_str *key = malloc((n ? n : 1) * sizeof *key);
    bool ok = key != NULL;

    for (size_t i = 0; ok && i < n; i++)
        (void)lg_json_member(j, i, &key[i]);
    if (ok)
        qsort(key, n, sizeof *key, by_key);
    (void)lg_buf_addc(out, '{');
    for (size_t i = 0; ok && i < n; i++) {
        (void)lg_json_quote(key[i], out);
        (void)lg_buf_addc(out, ':');
        ok = canonical(lg_json_getn(j, key[i]), out) && lg_buf_addc(out, ',');
    }
    (void)lg_buf_addc(out, '}');
    free(key);
    return ok;
}

// Numbers by value where a double holds it exactly, else digit by digit: 1, 1.0 and 1e0 are one number.
static bool canonical_number(const lg_json *j, lg_buf *out)
{
    int64_t i;
    double v;

    if (lg_json_i64(j, &i))
        return lg_buf_addf(out, "%lld", (long long)i);
    return lg_json_f64(j, &v) ? lg_buf_addf(out, "%.17g", v) : lg_buf_adds(out, lg_json_number_text(j));
}

// Appends a text that is equal for values of equal meaning. It is for comparing only, not quite JSON.
static bool canonical(const lg_json *j, lg_buf *out)
{
    switch (lg_json_kind_of(j)) {
    case LG_JSON_NUMBER: return canonical_number(j, out);
    case LG_JSON_OBJECT: return canonical_object(j, out);
    case LG_JSON_ARRAY:
        (void)lg_buf_addc(out, '[');
        for (size_t i = 0; i < lg_json_len(j); i++)
            if (!canonical(lg_json_at(j, i), out) || !lg_buf_addc(out, ','))
                return false;
        return lg_buf_addc(out, ']');
    default: return lg_json_dump(j, out);
    }
}

static lg_json_doc *parse(lg_str text)
{
    const lg_json_limits lim = {.max_bytes = text.n, .max_depth = ARGUMENTS_DEPTH, .repair = true};
    lg_json_doc *doc = NULL;

    return text.n > 0 && lg_json_parse(text, &lim, &doc, NULL) == LG_OK ? doc : NULL;
}

/* --- entries --- */

static void copy_to(char **at, lg_str *s)
{
    if (s->n > 0)
        memcpy(*at, s->p, s->n);
    if (s->p)
        s->p = *at;
    *at += s->n;
}

// One block: the entry, its arguments, ids, then all text. `text` is the size of the text of all arguments.
static entry *pack(const entry *from, const argument *arg, size_t text)
{
    size_t bytes = sizeof(entry) + from->n_arg * sizeof(argument) + from->n_ids * sizeof(int32_t) + text +
                   from->id.n + from->name.n + from->reasoning.n;
    entry *e = malloc(bytes);

    if (!e)
        return NULL;
    argument *args = (argument *)(e + 1);
    int32_t *ids = (int32_t *)(args + from->n_arg);
    char *at = (char *)(ids + from->n_ids);
    *e = *from;
    e->bytes = bytes + ENTRY_OVERHEAD;
    copy_to(&at, &e->id);
    copy_to(&at, &e->name);
    copy_to(&at, &e->reasoning);
    for (size_t i = 0; i < from->n_arg; i++) {
        args[i] = arg[i];
        copy_to(&at, &args[i].key);
        copy_to(&at, &args[i].value);
    }
    if (from->n_ids > 0)
        memcpy(ids, from->ids, from->n_ids * sizeof *ids);
    e->arg = args;
    e->ids = ids;
    return e;
}

// NULL when the arguments are no JSON object, do not fit or memory is short.
static entry *make(entry *e, lg_str arguments, size_t max_bytes)
{
    lg_json_doc *doc = parse(arguments);
    const lg_json *object = doc ? lg_json_root(doc) : NULL;
    entry *out = NULL;
    argument *arg = NULL;
    size_t text = 0;
    lg_buf b;

    lg_buf_init(&b, max_bytes);
    if (!lg_json_is(object, LG_JSON_OBJECT))
        goto out;
    e->n_arg = lg_json_len(object);
    arg = calloc(e->n_arg + 1, sizeof *arg);
    for (size_t i = 0; arg && i < e->n_arg; i++) { // the buffer may move: note lengths first
        const lg_json *value = lg_json_member(object, i, &arg[i].key);
        size_t before = b.n;
        arg[i].is_string = lg_json_is(value, LG_JSON_STRING);
        if (!(arg[i].is_string ? lg_buf_adds(&b, lg_json_str(value)) : canonical(value, &b)))
            goto out;
        arg[i].value.n = b.n - before;
        text += arg[i].key.n + arg[i].value.n;
    }
    size_t at = 0;
    for (size_t i = 0; arg && i < e->n_arg; i++) {
        arg[i].value.p = b.p ? b.p + at : "";
        at += arg[i].value.n;
    }
    if (arg && !b.failed && e->n_ids < max_bytes / sizeof(int32_t) && e->reasoning.n < max_bytes)
        out = pack(e, arg, text);
out:
    free(arg);
    lg_buf_free(&b);
    lg_json_free(doc);
    return out;
}

/* --- the table, under the lock --- */

static entry **slot(lg_replay *r, uint64_t hash)
{
    return &r->bucket[hash & (r->n_bucket - 1)];
}

static void unlink_use(lg_replay *r, entry *e)
{
    *(e->newer ? &e->newer->older : &r->newest) = e->older;
    *(e->older ? &e->older->newer : &r->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(lg_replay *r, entry *e)
{
    e->older = r->newest;
    *(r->newest ? &r->newest->newer : &r->oldest) = e;
    r->newest = e;
}

static void unref(entry *e)
{
    if (--e->n_ref == 0)
        free(e);
}

static void drop(lg_replay *r, entry *e)
{
    entry **at = slot(r, e->hash);

    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    unlink_use(r, e);
    r->bytes -= e->bytes;
    r->n_entry--;
    unref(e);
}

static entry *find(lg_replay *r, lg_str id)
{
    uint64_t hash = lg_hash_64(id.p, id.n, 0);

    for (entry *e = *slot(r, hash); e; e = e->next)
        if (e->hash == hash && lg_str_eq(e->id, id))
            return e;
    return NULL;
}

// Twice the buckets; without memory chains grow longer instead.
static void spread(lg_replay *r)
{
    size_t n = 2 * r->n_bucket;
    entry **bucket = calloc(n, sizeof(entry *)), **old = r->bucket;

    if (!bucket)
        return;
    r->bucket = bucket;
    r->n_bucket = n;
    for (size_t i = 0; i < n / 2; i++) {
        for (entry *e = old[i], *next; e; e = next) {
            next = e->next;
            e->next = *slot(r, e->hash);
            *slot(r, e->hash) = e;
        }
    }
    free(old);
}

/* --- the interface --- */

lg_status lg_replay_create(size_t max_bytes, lg_replay **out, lg_err *err)
{
    lg_replay *r = calloc(1, sizeof *r);
    entry **bucket = calloc(FIRST_BUCKETS, sizeof(entry *));

    if (!r || !bucket || pthread_mutex_init(&r->lock, NULL) != 0) {
        free(r);
        free(bucket);
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the replay memory's table");
    }
    r->bucket = bucket;
    r->n_bucket = FIRST_BUCKETS;
    r->max_bytes = max_bytes;
    *out = r;
    return LG_OK;
}

void lg_replay_destroy(lg_replay *r)
{
    if (!r)
        return;
    while (r->oldest)
        drop(r, r->oldest);
    (void)pthread_mutex_destroy(&r->lock);
    free(r->bucket);
    free(r);
}

void lg_replay_put(lg_replay *r, lg_str call_id, lg_str name, lg_str arguments, const int32_t *ids,
                   size_t n_ids, lg_str reasoning)
{
    entry from = {
        .n_ref = 1, .id = call_id, .name = name, .reasoning = reasoning, .ids = ids, .n_ids = n_ids};
    entry *e = call_id.n > 0 ? make(&from, arguments, r->max_bytes) : NULL, *old;

    if (!e || e->bytes > r->max_bytes) {
        free(e);
        return;
    }
    e->hash = lg_hash_64(call_id.p, call_id.n, 0);
    (void)pthread_mutex_lock(&r->lock);
    old = find(r, call_id);
    if (old)
        drop(r, old);
    while (r->bytes + e->bytes > r->max_bytes)
        drop(r, r->oldest);
    if (r->n_entry >= r->n_bucket)
        spread(r);
    e->next = *slot(r, e->hash);
    *slot(r, e->hash) = e;
    link_newest(r, e);
    r->bytes += e->bytes;
    r->n_entry++;
    (void)pthread_mutex_unlock(&r->lock);
}

// The entry with a reference of the caller's, now the most recently used; NULL when there is none.
static entry *take(lg_replay *r, lg_str id)
{
    entry *e;

    if (id.n == 0)
        return NULL;
    (void)pthread_mutex_lock(&r->lock);
    e = find(r, id);
    if (e) {
        e->n_ref++;
        unlink_use(r, e);
        link_newest(r, e);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return e;
}

static void give(lg_replay *r, entry *e)
{
    (void)pthread_mutex_lock(&r->lock);
    unref(e);
    (void)pthread_mutex_unlock(&r->lock);
}

static bool same_value(const argument *kept, lg_str sent)
{
    lg_json_doc *doc;
    lg_buf b;
    bool same;

    if (kept->is_string)
        return lg_str_eq(kept->value, sent);
    doc = parse(sent);
    if (!doc)
        return false;
    lg_buf_init(&b, 2 * (kept->value.n + 64));
    same = canonical(lg_json_root(doc), &b) && lg_str_eq(lg_buf_str(&b), kept->value);
    lg_buf_free(&b);
    lg_json_free(doc);
    return same;
}

static const argument *argument_named(const entry *e, lg_str key, size_t guess)
{
    if (guess < e->n_arg && lg_str_eq(e->arg[guess].key, key))
        return &e->arg[guess];
    for (size_t i = 0; i < e->n_arg; i++)
        if (lg_str_eq(e->arg[i].key, key))
            return &e->arg[i];
    return NULL;
}

// Keys are unique on both sides, so equal counts and each key found make equal sets.
static bool same_call(const entry *e, const lg_chat_call *call)
{
    if (!lg_str_eq(e->name, call->name) || e->n_arg != call->n_arg)
        return false;
    for (size_t i = 0; i < call->n_arg; i++) {
        const argument *kept = argument_named(e, call->arg[i].key, i);
        if (!kept || !same_value(kept, call->arg[i].value))
            return false;
    }
    return true;
}

const int32_t *lg_replay_ids(lg_replay *r, const lg_chat_call *call, lg_arena *a, size_t *n)
{
    entry *e = take(r, call->id);
    int32_t *copy = NULL;

    if (!e)
        return NULL;
    if (e->n_ids > 0 && same_call(e, call) && (copy = LG_NEW_N(a, int32_t, e->n_ids))) {
        memcpy(copy, e->ids, e->n_ids * sizeof *copy);
        *n = e->n_ids;
    }
    give(r, e);
    return copy;
}

lg_str lg_replay_reasoning(lg_replay *r, lg_str call_id, lg_arena *a)
{
    entry *e = take(r, call_id);
    lg_str out = {0};

    if (!e)
        return out;
    if (e->reasoning.p) {
        out.p = lg_arena_dup(a, e->reasoning.p, e->reasoning.n);
        out.n = out.p ? e->reasoning.n : 0;
    }
    give(r, e);
    return out;
}

bool lg_replay_knows(lg_replay *r, lg_str call_id)
{
    entry *e = take(r, call_id);

    if (e)
        give(r, e);
    return e != NULL;
}
