/*
 * engine/kv: where the keys and values of the live sequence are: block pools, block tables, window eviction,
 * rollback.
 *
 * Each class (full attention, sliding window) has a pool of 64-token blocks and a table from position / 64 to
 * block. The memory of a pool is reserved for its worst case when it is made; the operating system commits
 * pages as rows are written. Blocks are reference-counted, so that a cache of conversations can hold some of
 * them without a copy; the live sequence writes only into blocks of its own and copies a shared one first.
 *
 * What surprises: window layers cannot be rewound without limit. A block behind the window is kept as long as
 * the pool has other free ones, so a rewind of up to about the prefill chunk is a length change. Farther back
 * the sequence can be resumed only at a cut: a position whose window blocks were retained. Elsewhere
 * lg_kv_truncate forgets all.
 */
#ifndef LG_ENGINE_KV_H
#define LG_ENGINE_KV_H

#include "backend/backend.h"

enum {
    LG_KV_VERIFY_ROWS = 16, /* rows of a verification step, which may all be taken back */
    LG_KV_CUTS = 2,         /* cuts that the pool has room for beside the live sequence */
};

/* Blocks of the window class that hold what a resume at `pos`, or at pos - 1, needs; and of the drafter's
 * context, if it was complete there. */
typedef struct lg_kv_cut {
    int64_t pos; /* 0: none */
    int first, n; /* first table entry, how many */
    int32_t *block;
    int64_t draft_from; /* -1: no rows of the drafter */
    int draft_first, draft_n;
    int32_t *draft_block;
} lg_kv_cut;

typedef struct lg_kv_pool {
    int32_t *table; /* position / 64 -> block, or -1 */
    int n_table;
    int32_t *unused; /* stack of free blocks */
    int n_unused;
    int32_t *refs; /* per block */
    int first;     /* first table entry that may be held; those before slid out of the window */
} lg_kv_pool;

typedef struct lg_kv {
    lg_backend *b;
    lg_kv_class cls[LG_KV_CLASSES]; /* n_layer 0: a class that the model lacks */
    lg_kv_pool pool[LG_KV_CLASSES];
    lg_kv_cut cut[LG_KV_CUTS]; /* the newest first */
    int64_t ctx;               /* most rows */
    int64_t pos;               /* rows held */
    /* The drafter's context has the rows of positions [draft_from, draft_to); draft_from is a multiple of
     * LG_KV_BLOCK. Its steps count positions from there, because attention sees every row back to position 0
     * or to the window: what is not there must not have a position. */
    int64_t draft_from, draft_to;
} lg_kv;

/* Blocks that a class needs for one live sequence of `ctx` positions, fed at most max_rows at a time, and its
 * cuts. */
int lg_kv_blocks(const lg_kv_class *c, int64_t ctx, int max_rows);

/* `full` and `window` as lg_laguna_kv_shape gives them. `spare`: blocks beyond what the live sequence needs,
 * a class. */
LG_NODISCARD lg_status lg_kv_create(lg_backend *b, const lg_kv_class *full, const lg_kv_class *window,
                                    int64_t ctx, int max_rows, int spare, lg_kv *out, lg_err *err);
/* Give an empty cache the class of the drafter's context (LG_KV_DRAFT, with a window). It grows and is
 * truncated with the others; its rows are a bonus, never a condition of a rewind. */
LG_NODISCARD lg_status lg_kv_add_draft(lg_kv *kv, const lg_kv_class *draft, int max_rows, int spare,
                                       lg_err *err);
void lg_kv_destroy(lg_kv *kv);

/* Make the next n rows writable; they count only after lg_kv_commit. Outside a step. LG_E_LIMIT: past the
 * context, or no block is free; nothing changed then. */
LG_NODISCARD lg_status lg_kv_grow(lg_kv *kv, int n, lg_err *err);
void lg_kv_commit(lg_kv *kv, int n);

/* Forget the rows from `pos` on. Returns how many rows are held now: `pos`, or where the window before it is
 * no longer there the last cut before it, or 0. Room made by lg_kv_grow and not committed is given back too.
 */
int64_t lg_kv_truncate(lg_kv *kv, int64_t pos);
/* Whether lg_kv_truncate(pos) would keep pos rows without a cut. */
bool lg_kv_holds(const lg_kv *kv, int64_t pos);

/* Rows of positions [pos, pos + n), which must be grown or committed, are about to enter the drafter's
 * context. Returns how many of the first of them must be left out: where the context does not reach up to
 * `pos` it starts anew at the next block. The caller adds the others and then counts them. */
int lg_kv_draft_skip(lg_kv *kv, int64_t pos, int n);
void lg_kv_draft_commit(lg_kv *kv, int n);

/* Make the end of the sequence a cut, in place of the oldest one. A cut lives until the sequence is truncated
 * below it. Does nothing where every rewind is possible anyway. */
void lg_kv_cut_here(lg_kv *kv);

/* One more, one less holder of a block. */
void lg_kv_retain(lg_kv *kv, lg_kv_class_id c, int32_t block);
void lg_kv_release(lg_kv *kv, lg_kv_class_id c, int32_t block);

/* Table entries that cover n rows, for the step. */
static inline int lg_kv_entries(int64_t n)
{
    return (int)((n + LG_KV_BLOCK - 1) / LG_KV_BLOCK);
}

/* Counts every block once; false when a free list, a table and the reference counts disagree. For tests. */
bool lg_kv_check(const lg_kv *kv);

#endif
