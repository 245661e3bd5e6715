/*
 * text/merge: see merge.h. Two open-addressing tables: texts of symbols, and pairs of symbols with their
 * rank.
 *
 * Merging takes the lowest rank first and the leftmost pair on ties. Up to SHORT bytes that is a scan over an
 * array. Beyond, each adjacent pair that has a rank is a member of that rank's bucket, and a heap holds the
 * ranks whose bucket is in use. A bucket is a list in order of position; it is built out of a few ascending
 * runs, so sorting it when its turn comes costs little. Twelve bytes of scratch a byte of text keep even
 * megabytes in the allocator's reach.
 */
#include "text/merge.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT = 64, NONE = -1, OUTSIDE = INT32_MIN, KEEP_SYMBOLS = 1 << 17 };

typedef struct text_slot {
    uint32_t hash;
    int32_t symbol; /* NONE: free */
} text_slot;

typedef struct pair_slot {
    int32_t left, right;
    int32_t rank; /* NONE: free */
} pair_slot;

struct lg_merge_table {
    const lg_vocab *v;
    int32_t n_vocab;
    text_slot *text;
    size_t text_mask, n_text;
    pair_slot *pair;
    size_t pair_mask;
    int32_t *product; /* symbol by rank */
    size_t n_ranks;
    lg_str *extra; /* texts of the symbols past the vocabulary */
    size_t n_extra, extra_cap;
    int32_t *length; /* bytes, by symbol */
    uint8_t *whole;  /* tokens that merging their own text gives back */
    int32_t byte_token[256];
};

/* One byte of a long pre-token. A symbol is known by its first byte; `symbol` of its last one, when that is
 * another, holds the length, negated, so that the way to the left is as short as the way to the right. The
 * pair that starts with the symbol is a member of a bucket unless `up` is OUTSIDE; at either end of the
 * bucket's list stands ~rank. */
struct lg_merge_symbol {
    int32_t symbol;
    int32_t up, down;
};

struct lg_merge_bucket {
    int32_t head, tail;
    bool sorted, queued;
};

typedef struct lg_merge_symbol symbol;
typedef struct lg_merge_bucket bucket;

/* --- hashing --- */

uint32_t lg_merge_hash(lg_str text)
{
    const uint64_t k = 0x9E3779B97F4A7C15u;
    uint64_t h = text.n * k, w;
    const char *p = text.p;
    size_t n = text.n;

    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * k;
        h ^= h >> 32;
    }
    w = 0;
    if (n >= 4) { // two overlapping words cover 4 to 7 bytes
        uint32_t lo, hi;
        memcpy(&lo, p, 4);
        memcpy(&hi, p + n - 4, 4);
        w = (uint64_t)hi << 32 | lo;
    } else if (n > 0) { // three bytes, perhaps the same ones, cover 1 to 3
        w = (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[n / 2] << 8 |
            (unsigned char)p[n - 1];
    }
    h = (h ^ w) * k;
    h ^= h >> 29;
    return (uint32_t)((h * k) >> 32);
}

static size_t pair_hash(int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    return (size_t)((key * 0x9E3779B97F4A7C15u) >> 33);
}

static lg_str symbol_text(const lg_merge_table *t, int32_t sym)
{
    return sym < t->n_vocab ? lg_vocab_bytes(t->v, sym) : t->extra[sym - t->n_vocab];
}

// The slot that holds `text`, or the free one where it belongs.
static text_slot *find_text(const lg_merge_table *t, lg_str text, uint32_t hash)
{
    for (size_t i = hash & t->text_mask;; i = (i + 1) & t->text_mask) {
        text_slot *s = &t->text[i];
        if (s->symbol == NONE || (s->hash == hash && lg_str_eq(symbol_text(t, s->symbol), text)))
            return s;
    }
}

static int32_t rank_of(const lg_merge_table *t, int32_t left, int32_t right)
{
    for (size_t i = pair_hash(left, right) & t->pair_mask;; i = (i + 1) & t->pair_mask) {
        const pair_slot *s = &t->pair[i];
        if (s->rank == NONE || (s->left == left && s->right == right))
            return s->rank;
    }
}

/* --- building --- */

static size_t table_size(size_t n)
{
    size_t size = 64;

    while (size < 2 * n)
        size *= 2;
    return size;
}

static bool size_text(lg_merge_table *t, size_t size)
{
    text_slot *old = t->text;
    size_t n_old = old ? t->text_mask + 1 : 0;
    text_slot *p = malloc(size * sizeof *p);

    if (!p)
        return false;
    t->text = p;
    t->text_mask = size - 1;
    for (size_t i = 0; i < size; i++)
        p[i].symbol = NONE;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].symbol != NONE)
            *find_text(t, symbol_text(t, old[i].symbol), old[i].hash) = old[i];
    free(old);
    return true;
}

static bool make_tables(lg_merge_table *t)
{
    size_t n_pair = table_size(t->n_ranks);

    t->pair = malloc(n_pair * sizeof *t->pair);
    t->product = malloc((t->n_ranks + 1) * sizeof *t->product);
    t->whole = calloc((size_t)t->n_vocab, 1);
    if (!t->pair || !t->product || !t->whole)
        return false;
    t->pair_mask = n_pair - 1;
    for (size_t i = 0; i < n_pair; i++)
        t->pair[i].rank = NONE;
    return size_text(t, table_size((size_t)t->n_vocab));
}

// Number of the symbol with this text, a new one if there is none yet; NONE when memory ran out.
static int32_t intern(lg_merge_table *t, lg_str text)
{
    uint32_t hash = lg_merge_hash(text);
    text_slot *s = find_text(t, text, hash);

    if (s->symbol != NONE)
        return s->symbol;
    if (2 * t->n_text > t->text_mask) {
        if (!size_text(t, 2 * (t->text_mask + 1)))
            return NONE;
        s = find_text(t, text, hash);
    }
    if (t->n_extra == t->extra_cap) {
        size_t cap = t->extra_cap ? 2 * t->extra_cap : 64;
        lg_str *p = realloc(t->extra, cap * sizeof *p);
        if (!p)
            return NONE;
        t->extra = p;
        t->extra_cap = cap;
    }
    t->extra[t->n_extra] = text;
    *s = (text_slot){hash, t->n_vocab + (int32_t)t->n_extra};
    t->n_extra++;
    t->n_text++;
    return s->symbol;
}

static lg_status add_tokens(lg_merge_table *t, lg_err *err)
{
    for (int32_t id = 0; id < t->n_vocab; id++) {
        lg_str text = lg_vocab_bytes(t->v, id);
        if (text.n == 0 || lg_vocab_class(t->v, id) != LG_TOK_NORMAL || lg_vocab_is_added(t->v, id))
            continue;
        uint32_t hash = lg_merge_hash(text);
        text_slot *s = find_text(t, text, hash);
        if (s->symbol == NONE) {
            *s = (text_slot){hash, id};
            t->n_text++;
        }
    }
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        lg_str text = {&c, 1};
        t->byte_token[b] = find_text(t, text, lg_merge_hash(text))->symbol;
        if (t->byte_token[b] == NONE)
            return LG_FAIL(err, LG_E_INPUT, "tokenizer.ggml.tokens has no token for byte 0x%02X",
                           (unsigned)b);
    }
    return LG_OK;
}

static lg_status add_rules(lg_merge_table *t, lg_err *err)
{
    for (size_t rank = 0; rank < t->n_ranks; rank++) {
        lg_str l, r;
        lg_vocab_merge(t->v, rank, &l, &r);
        int32_t left = intern(t, l), right = intern(t, r), product = intern(t, (lg_str){l.p, l.n + r.n});
        if (left == NONE || right == NONE || product == NONE)
            return LG_FAIL(err, LG_E_NOMEM, "out of memory for %zu merges", t->n_ranks);
        t->product[rank] = product;
        if (rank_of(t, left, right) != NONE)
            continue; // a repeated rule: the first one counts
        size_t i = pair_hash(left, right) & t->pair_mask;
        while (t->pair[i].rank != NONE)
            i = (i + 1) & t->pair_mask;
        t->pair[i] = (pair_slot){left, right, (int32_t)rank};
    }
    return LG_OK;
}

static lg_status measure(lg_merge_table *t, lg_err *err)
{
    size_t n = (size_t)t->n_vocab + t->n_extra;

    t->length = malloc(n * sizeof *t->length);
    if (!t->length)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for %zu symbols", n);
    for (size_t i = 0; i < n; i++) {
        size_t len = symbol_text(t, (int32_t)i).n;
        t->length[i] = len < INT32_MAX ? (int32_t)len : INT32_MAX; // no text that is merged is as long
    }
    return LG_OK;
}

// Whole-token look-up may stand in for merging only where merging would give the same: find out for each
// token.
static lg_status check_whole(lg_merge_table *t, lg_err *err)
{
    lg_status st = LG_OK;
    lg_merge_room room = {0};
    int32_t *ids = NULL;
    size_t cap = 0;

    for (size_t i = 0; i <= t->text_mask && st == LG_OK; i++) {
        int32_t id = t->text[i].symbol;
        if (id == NONE || id >= t->n_vocab)
            continue;
        lg_str text = lg_vocab_bytes(t->v, id);
        size_t n = 0;
        if (text.n > cap) {
            free(ids);
            cap = text.n < SHORT ? SHORT : text.n;
            ids = malloc(cap * sizeof *ids);
            if (!ids) {
                st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
                break;
            }
        }
        st = lg_merge(t, &room, text, ids, &n, err);
        t->whole[id] = st == LG_OK && n == 1 && ids[0] == id;
    }
    free(ids);
    lg_merge_room_free(&room);
    return st;
}

lg_status lg_merge_table_create(const lg_vocab *v, lg_merge_table **out, lg_err *err)
{
    lg_status st;
    lg_merge_table *t = calloc(1, sizeof *t);

    if (!t)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    t->v = v;
    t->n_vocab = lg_vocab_size(v);
    t->n_ranks = lg_vocab_n_merges(v);
    if (make_tables(t))
        st = add_tokens(t, err);
    else
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory for %zu merges", t->n_ranks);
    if (st == LG_OK)
        st = add_rules(t, err);
    if (st == LG_OK)
        st = measure(t, err);
    if (st == LG_OK)
        st = check_whole(t, err);
    if (st != LG_OK) {
        lg_merge_table_destroy(t);
        return st;
    }
    *out = t;
    return LG_OK;
}

void lg_merge_table_destroy(lg_merge_table *t)
{
    if (!t)
        return;
    free(t->text);
    free(t->pair);
    free(t->product);
    free(t->extra);
    free(t->length);
    free(t->whole);
    free(t);
}

int32_t lg_merge_whole(const lg_merge_table *t, lg_str text, uint32_t hash)
{
    int32_t id = find_text(t, text, hash)->symbol;

    return id != NONE && id < t->n_vocab && t->whole[id] ? id : NONE;
}

/* --- merging --- */

// Writes a symbol as tokens behind the first n of out; returns the new count.
static size_t emit(const lg_merge_table *t, int32_t sym, int32_t *out, size_t n)
{
    if (sym < t->n_vocab) {
        out[n++] = sym;
        return n;
    }
    lg_str text = symbol_text(t, sym);
    for (size_t i = 0; i < text.n; i++)
        out[n++] = t->byte_token[(unsigned char)text.p[i]];
    return n;
}

static size_t merge_short(const lg_merge_table *t, lg_str text, int32_t *out)
{
    int32_t sym[SHORT], rank[SHORT]; // rank[i] belongs to the pair (i, i + 1)
    size_t n = text.n, n_out = 0;

    for (size_t i = 0; i < n; i++)
        sym[i] = t->byte_token[(unsigned char)text.p[i]];
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(t, sym[i], sym[i + 1]);
    while (n > 1) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++)
            if (rank[i] != NONE && (best == n || rank[i] < rank[best]))
                best = i;
        if (best == n)
            break;
        sym[best] = t->product[rank[best]];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            sym[i] = sym[i + 1];
            rank[i - 1] = rank[i];
        }
        if (best > 0)
            rank[best - 1] = rank_of(t, sym[best - 1], sym[best]);
        if (best + 1 < n)
            rank[best] = rank_of(t, sym[best], sym[best + 1]);
    }
    for (size_t i = 0; i < n; i++)
        n_out = emit(t, sym[i], out, n_out);
    return n_out;
}

static void heap_push(lg_merge_room *r, int32_t rank)
{
    size_t i = r->n_heap++;

    for (; i > 0 && r->heap[(i - 1) / 2] > rank; i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = rank;
}

static void heap_pop(lg_merge_room *r)
{
    int32_t last = r->heap[--r->n_heap];
    size_t i = 0;

    for (size_t child = 1; child < r->n_heap; child = 2 * i + 1) {
        if (child + 1 < r->n_heap && r->heap[child + 1] < r->heap[child])
            child++;
        if (r->heap[child] >= last)
            break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    r->heap[i] = last;
}

// Enter the pair that starts at `at` into the bucket of its rank.
static void bucket_add(lg_merge_room *r, int32_t at, int32_t rank)
{
    symbol *s = &r->symbol[at];

    s->up = OUTSIDE;
    if (rank == NONE)
        return;
    bucket *b = &r->bucket[rank];
    s->up = b->tail == NONE ? ~rank : b->tail;
    s->down = ~rank;
    if (b->tail == NONE) {
        b->head = at;
        b->sorted = true;
    } else {
        r->symbol[b->tail].down = at;
        b->sorted = b->sorted && b->tail < at;
    }
    b->tail = at;
    if (!b->queued) {
        b->queued = true;
        heap_push(r, rank);
    }
}

static void bucket_remove(lg_merge_room *r, int32_t at)
{
    symbol *s = &r->symbol[at];

    if (s->up == OUTSIDE)
        return;
    if (s->up < 0)
        r->bucket[~s->up].head = s->down < 0 ? NONE : s->down;
    else
        r->symbol[s->up].down = s->down;
    if (s->down < 0)
        r->bucket[~s->down].tail = s->up < 0 ? NONE : s->up;
    else
        r->symbol[s->down].up = s->up;
    s->up = OUTSIDE;
}

// Two ascending lists into one; only `down` is kept.
static int32_t join_lists(symbol *s, int32_t a, int32_t b)
{
    int32_t head = NONE, *to = &head;

    while (a >= 0 && b >= 0) {
        int32_t *least = a < b ? &a : &b;
        *to = *least;
        to = &s[*least].down;
        *least = *to;
    }
    *to = a >= 0 ? a : b;
    return head;
}

// Natural merge sort: level k of `run` holds the union of 2^k ascending runs.
static void bucket_sort(symbol *s, bucket *b, int32_t rank)
{
    int32_t run[32], at = b->head;

    for (int k = 0; k < 32; k++)
        run[k] = NONE;
    while (at >= 0) {
        int32_t first = at, last = at;
        while (s[last].down > last)
            last = s[last].down;
        at = s[last].down;
        s[last].down = NONE;
        int k = 0;
        for (; k < 31 && run[k] != NONE; k++) {
            first = join_lists(s, run[k], first);
            run[k] = NONE;
        }
        run[k] = k == 31 ? join_lists(s, run[k], first) : first;
    }
    for (int k = 0; k < 32; k++)
        at = join_lists(s, at, run[k]);
    b->head = at;
    for (int32_t up = ~rank; at >= 0; up = at, at = s[at].down) {
        s[at].up = up;
        b->tail = at;
    }
    s[b->tail].down = ~rank;
    b->sorted = true;
}

// The pair at the head of a rank's bucket becomes its product. `n` is the length of the text.
static void merge_pair(const lg_merge_table *t, lg_merge_room *r, int32_t rank, int32_t n)
{
    symbol *s = r->symbol;
    int32_t at = r->bucket[rank].head, product = t->product[rank];
    int32_t right = at + t->length[s[at].symbol], next = right + t->length[s[right].symbol];

    bucket_remove(r, at);
    bucket_remove(r, right);
    s[at].symbol = product;
    s[next - 1].symbol = at - next;
    if (next < n)
        bucket_add(r, at, rank_of(t, product, s[next].symbol));
    if (at > 0) {
        int32_t left = s[at - 1].symbol < 0 ? at + s[at - 1].symbol : at - 1;
        bucket_remove(r, left);
        bucket_add(r, left, rank_of(t, s[left].symbol, product));
    }
}

static bool make_room(const lg_merge_table *t, lg_merge_room *r, size_t n)
{
    if (n > r->n_symbol) {
        free(r->symbol);
        r->symbol = malloc(n * sizeof *r->symbol);
        r->n_symbol = r->symbol ? n : 0;
    }
    if (!r->bucket) {
        r->bucket = malloc((t->n_ranks + 1) * sizeof *r->bucket);
        for (size_t i = 0; r->bucket && i < t->n_ranks; i++)
            r->bucket[i] = (bucket){.head = NONE, .tail = NONE};
    }
    if (!r->heap)
        r->heap = malloc((t->n_ranks + 1) * sizeof *r->heap);
    return r->symbol && r->bucket && r->heap;
}

static size_t merge_long(const lg_merge_table *t, lg_merge_room *r, lg_str text, int32_t *out)
{
    int32_t n = (int32_t)text.n;
    symbol *s = r->symbol;
    size_t n_out = 0;

    for (int32_t i = 0; i < n; i++)
        s[i] = (symbol){.symbol = t->byte_token[(unsigned char)text.p[i]], .up = OUTSIDE};
    for (int32_t i = 0; i + 1 < n; i++)
        bucket_add(r, i, rank_of(t, s[i].symbol, s[i + 1].symbol));
    while (r->n_heap > 0) {
        int32_t rank = r->heap[0];
        bucket *b = &r->bucket[rank];
        if (b->head == NONE) {
            b->queued = false;
            heap_pop(r);
            continue;
        }
        if (!b->sorted)
            bucket_sort(s, b, rank);
        merge_pair(t, r, rank, n);
    }
    for (int32_t i = 0; i < n; i += t->length[s[i].symbol])
        n_out = emit(t, s[i].symbol, out, n_out);
    return n_out;
}

lg_status lg_merge(const lg_merge_table *t, lg_merge_room *room, lg_str text, int32_t *out, size_t *n_out,
                   lg_err *err)
{
    if (text.n <= SHORT) {
        *n_out = merge_short(t, text, out);
        return LG_OK;
    }
    if (text.n > INT32_MAX)
        return LG_FAIL(err, LG_E_LIMIT, "a word of %zu bytes; at most %d are possible", text.n, INT32_MAX);
    if (!make_room(t, room, text.n))
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for a word of %zu bytes", text.n);
    *n_out = merge_long(t, room, text, out);
    return LG_OK;
}

void lg_merge_room_trim(lg_merge_room *room)
{
    if (room->n_symbol <= KEEP_SYMBOLS)
        return;
    free(room->symbol);
    room->symbol = NULL;
    room->n_symbol = 0;
}

void lg_merge_room_free(lg_merge_room *room)
{
    free(room->symbol);
    free(room->bucket);
    free(room->heap);
    *room = (lg_merge_room){0};
}
