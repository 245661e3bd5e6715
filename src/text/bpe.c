/*
 * text/bpe: see bpe.h. Cuts text at added tokens (when asked to), then into pre-tokens, and looks each one
 * up: among the whole tokens, in the word cache, and only then by merging.
 *
 * A workspace (word cache, merge scratch) belongs to one call at a time. Idle ones wait in a few atomic
 * slots, so that threads neither share a cache nor lock one.
 */
#include "text/bpe.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "text/merge.h"

/* One pre-token of several tokens; 128 bytes. */
typedef struct word {
    uint32_t hash;
    uint8_t n_text, n_ids; /* n_text 0: free */
    char text[42];
    int32_t id[20];
} word;

enum { CACHE_WORDS = 1 << 14, N_IDLE = 8 };

typedef struct workspace {
    lg_merge_room room;
    word cache[CACHE_WORDS]; /* direct-mapped: a new word replaces the one in its place */
} workspace;

typedef struct idle_workspaces {
    _Atomic(workspace *) slot[N_IDLE];
} idle_workspaces;

/* Tree of the added tokens' texts: `child` is the first node one byte on, `next` a sibling. Node 0 is the
 * root. */
typedef struct trie_node {
    int32_t child, next;
    int32_t id; /* token that ends here, or -1 */
    unsigned char byte;
} trie_node;

struct lg_bpe {
    const lg_vocab *v;
    lg_split *split;
    lg_merge_table *merges;
    trie_node *trie;
    size_t n_trie;
    bool starts_added[256]; /* bytes that some added token begins with */
    idle_workspaces *idle;
};

/* --- id lists --- */

void lg_ids_free(lg_ids *ids)
{
    free(ids->p);
    *ids = (lg_ids){0};
}

static lg_status ids_reserve(lg_ids *ids, size_t more, lg_err *err)
{
    size_t cap = ids->cap ? ids->cap : 64;
    int32_t *p;

    if (more <= ids->cap - ids->n)
        return LG_OK;
    if (more > SIZE_MAX / 2 / sizeof *p - ids->n)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for the token ids");
    while (cap < ids->n + more)
        cap *= 2;
    p = realloc(ids->p, cap * sizeof *p);
    if (!p)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for %zu token ids", cap);
    ids->p = p;
    ids->cap = cap;
    return LG_OK;
}

lg_status lg_ids_add(lg_ids *ids, int32_t id, lg_err *err)
{
    LG_TRY(ids_reserve(ids, 1, err));
    ids->p[ids->n++] = id;
    return LG_OK;
}

/* --- added tokens --- */

static void trie_add(lg_bpe *b, lg_str text, int32_t id)
{
    int32_t at = 0;

    for (size_t i = 0; i < text.n; i++) {
        unsigned char byte = (unsigned char)text.p[i];
        int32_t child = b->trie[at].child;
        while (child >= 0 && b->trie[child].byte != byte)
            child = b->trie[child].next;
        if (child < 0) {
            child = (int32_t)b->n_trie++;
            b->trie[child] = (trie_node){.child = -1, .next = b->trie[at].child, .id = -1, .byte = byte};
            b->trie[at].child = child;
        }
        at = child;
    }
    if (b->trie[at].id < 0)
        b->trie[at].id = id;
}

static lg_status make_trie(lg_bpe *b, lg_err *err)
{
    size_t nodes = 1;

    for (size_t i = 0; i < lg_vocab_n_added(b->v); i++)
        nodes += lg_vocab_bytes(b->v, lg_vocab_added_at(b->v, i)).n;
    if (nodes > INT32_MAX || !(b->trie = malloc(nodes * sizeof *b->trie)))
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for the added tokens");
    b->trie[b->n_trie++] = (trie_node){.child = -1, .next = -1, .id = -1};
    for (size_t i = 0; i < lg_vocab_n_added(b->v); i++) {
        int32_t id = lg_vocab_added_at(b->v, i);
        lg_str text = lg_vocab_bytes(b->v, id);
        if (text.n == 0)
            continue;
        b->starts_added[(unsigned char)text.p[0]] = true;
        trie_add(b, text, id);
    }
    return LG_OK;
}

// The longest added token that `text` starts with, or -1; *len is its length.
static int32_t added_at(const lg_bpe *b, lg_str text, size_t *len)
{
    int32_t at = 0, found = -1;

    for (size_t i = 0; i < text.n; i++) {
        at = b->trie[at].child;
        while (at >= 0 && b->trie[at].byte != (unsigned char)text.p[i])
            at = b->trie[at].next;
        if (at < 0)
            break;
        if (b->trie[at].id >= 0) {
            found = b->trie[at].id;
            *len = i + 1;
        }
    }
    return found;
}

/* --- the encoder --- */

lg_status lg_bpe_create(const lg_vocab *v, lg_crlf crlf, lg_bpe **out, lg_err *err)
{
    lg_status st;
    lg_bpe *b = calloc(1, sizeof *b);

    if (!b)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    b->v = v;
    b->idle = calloc(1, sizeof *b->idle);
    if (!b->idle) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
        goto out;
    }
    for (int i = 0; i < N_IDLE; i++)
        atomic_init(&b->idle->slot[i], NULL);
    st = lg_split_create(crlf, &b->split, err);
    if (st == LG_OK)
        st = lg_merge_table_create(v, &b->merges, err);
    if (st == LG_OK)
        st = make_trie(b, err);
    if (st != LG_OK)
        goto out;
    *out = b;
    b = NULL;
out:
    lg_bpe_destroy(b);
    return st;
}

static void workspace_free(workspace *w)
{
    if (w)
        lg_merge_room_free(&w->room);
    free(w);
}

void lg_bpe_destroy(lg_bpe *b)
{
    if (!b)
        return;
    for (int i = 0; b->idle && i < N_IDLE; i++)
        workspace_free(atomic_load(&b->idle->slot[i]));
    free(b->idle);
    lg_split_destroy(b->split);
    lg_merge_table_destroy(b->merges);
    free(b->trie);
    free(b);
}

const lg_vocab *lg_bpe_vocab(const lg_bpe *b)
{
    return b->v;
}

static workspace *workspace_take(const lg_bpe *b)
{
    for (int i = 0; i < N_IDLE; i++) {
        workspace *w = atomic_exchange(&b->idle->slot[i], NULL);
        if (w)
            return w;
    }
    return calloc(1, sizeof(workspace));
}

static void workspace_give(const lg_bpe *b, workspace *w)
{
    lg_merge_room_trim(&w->room);
    for (int i = 0; i < N_IDLE; i++) {
        workspace *none = NULL;
        if (atomic_compare_exchange_strong(&b->idle->slot[i], &none, w))
            return;
    }
    workspace_free(w);
}

static lg_status encode_word(const lg_bpe *b, workspace *w, lg_str text, lg_ids *out, lg_err *err)
{
    uint32_t hash = lg_merge_hash(text);
    int32_t id = lg_merge_whole(b->merges, text, hash);
    word *slot = &w->cache[hash % CACHE_WORDS];
    size_t n;

    LG_TRY(ids_reserve(out, text.n, err));
    if (id >= 0) {
        out->p[out->n++] = id;
        return LG_OK;
    }
    if (slot->hash == hash && lg_str_eq((lg_str){slot->text, slot->n_text}, text)) {
        memcpy(out->p + out->n, slot->id, slot->n_ids * sizeof *slot->id);
        out->n += slot->n_ids;
        return LG_OK;
    }
    LG_TRY(lg_merge(b->merges, &w->room, text, out->p + out->n, &n, err));
    if (text.n <= sizeof slot->text && n <= sizeof slot->id / sizeof *slot->id) {
        slot->hash = hash;
        slot->n_text = (uint8_t)text.n;
        slot->n_ids = (uint8_t)n;
        memcpy(slot->text, text.p, text.n);
        memcpy(slot->id, out->p + out->n, n * sizeof *slot->id);
    }
    out->n += n;
    return LG_OK;
}

// A run of plain text.
static lg_status encode_run(const lg_bpe *b, workspace *w, lg_str text, lg_ids *out, lg_err *err)
{
    lg_status st = LG_OK, end;
    lg_split_run run;
    lg_str piece;

    LG_TRY(lg_split_begin(b->split, text, &run, err));
    while (st == LG_OK && lg_split_next(&run, &piece))
        st = encode_word(b, w, piece, out, err);
    end = lg_split_end(&run, st == LG_OK ? err : NULL);
    return st != LG_OK ? st : end;
}

lg_status lg_bpe_encode(const lg_bpe *b, lg_str text, bool special, lg_ids *out, lg_err *err)
{
    lg_status st = LG_OK;
    size_t n_before = out->n, from = 0, at = 0;
    workspace *w;

    if (text.n == 0)
        return LG_OK;
    w = workspace_take(b);
    if (!w)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    while (special && st == LG_OK && at < text.n) {
        size_t len = 0;
        int32_t id = -1;
        if (b->starts_added[(unsigned char)text.p[at]])
            id = added_at(b, (lg_str){text.p + at, text.n - at}, &len);
        if (id < 0) {
            at++;
            continue;
        }
        st = encode_run(b, w, (lg_str){text.p + from, at - from}, out, err);
        if (st == LG_OK)
            st = lg_ids_add(out, id, err);
        from = at += len;
    }
    if (st == LG_OK)
        st = encode_run(b, w, (lg_str){text.p + from, text.n - from}, out, err);
    workspace_give(b, w);
    if (st != LG_OK)
        out->n = n_before;
    return st;
}

/* --- streaming ids to text --- */

static const lg_str replacement = {"\xEF\xBF\xBD", 3};

// Appends the characters of p..p+n, U+FFFD for each ill-formed part, up to a tail that may still become a
// character. Returns the bytes used.
static size_t detok_append(const char *p, size_t n, lg_buf *out)
{
    size_t end = lg_utf8_complete(p, n), from = 0, at = 0;

    while (at < end) {
        int32_t c;
        int len = lg_utf8_step(p + at, end - at, &c);
        if (c < 0) {
            (void)lg_buf_add(out, p + from, at - from);
            (void)lg_buf_adds(out, replacement);
            len = lg_utf8_bad_len(p + at, end - at);
            from = at + (size_t)len;
        }
        at += (size_t)len;
    }
    (void)lg_buf_add(out, p + from, end - from);
    return end;
}

void lg_detok_feed(lg_detok *d, lg_str bytes, lg_buf *out)
{
    char join[sizeof d->held + 4];
    size_t held = (size_t)d->n_held, used;

    if (bytes.n == 0)
        return;
    if (held > 0) { // finish what is held; four more bytes always settle it
        size_t more = bytes.n < 4 ? bytes.n : 4;
        memcpy(join, d->held, held);
        memcpy(join + held, bytes.p, more);
        used = detok_append(join, held + more, out);
        if (used < held) { // all of it is still one unfinished character
            memcpy(d->held, join, held + more);
            d->n_held = (int)(held + more);
            return;
        }
        bytes.p += used - held;
        bytes.n -= used - held;
    }
    used = detok_append(bytes.p, bytes.n, out);
    d->n_held = (int)(bytes.n - used);
    memcpy(d->held, bytes.p + used, bytes.n - used);
}

void lg_detok_end(lg_detok *d, lg_buf *out)
{
    if (d->n_held > 0)
        (void)lg_buf_adds(out, replacement);
    d->n_held = 0;
}
