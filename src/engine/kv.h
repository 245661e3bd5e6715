/*
 * engine/kv: where the keys and values of the live sequence are: block pools, block tables, window eviction,
 * rollback.
 *
 * Each class (full attention, sliding window, drafter) has a pool of 64-token blocks and a table from
 * position / 64 to block. The memory of a pool is reserved for its worst case when it is made; where the
 * backend commits pages lazily, they count as they are written and can be given back. Blocks are
 * reference-counted, so that the prefix cache (prefix.h) keeps conversations without a copy.
 *
 * On a device with memory of its own a pool has more blocks than the device has slots for (kv_page.c): what
 * is in the table has a slot, other blocks may have only an image in host memory. Everybody but the step
 * speaks of blocks; the step gets slots (lg_kv_where).
 *
 * What surprises: a block that others hold too may still be appended to, because each holder knows how many
 * of its rows are his: only a row that somebody may have written already makes a copy first. And window
 * layers cannot be rewound without limit: farther back than the window blocks in the table, a sequence goes
 * on only at a cut, whose window blocks were retained.
 */
#ifndef LG_ENGINE_KV_H
#define LG_ENGINE_KV_H

#include "backend/backend.h"

enum { LG_KV_VERIFY_ROWS = 16 }; /* rows of a verification step, which may all be taken back */

/* What a resume at `pos`, or at pos - 1, needs beside the blocks of the full class: window blocks, and those
 * of the drafter if its context was complete there. Storage of the lists is the caller's (lg_kv_cut_room). */
typedef struct lg_kv_cut {
    int64_t pos;
    int first, n; /* first table entry, how many */
    int32_t *block;
    int64_t draft_from; /* -1: no rows of the drafter */
    int draft_first, draft_n;
    int32_t *draft_block;
} lg_kv_cut;

/* Where the blocks of a pool are, when it has more of them than the device has slots. */
typedef struct lg_kv_pages {
    int n_slots;
    int32_t *slot;      /* per block: its place on the device, or -1 */
    int32_t *where;     /* as the pool's table, but slots */
    int32_t *free_slot; /* n_free_slot of them */
    int n_free_slot;
    int n_away;         /* blocks of the table without a slot */
    void **image;       /* per block, or NULL */
    uint8_t *saved;     /* per block: rows that its image has; 0 once a row was written */
    void **free_image;  /* n_free_image of them */
    int n_free_image;
    /* blocks with a slot that are not in the table, in the order in which they left it; -1: none */
    int32_t *older, *newer;
    int32_t oldest, newest;
} lg_kv_pages;

typedef struct lg_kv_pool {
    int32_t *table; /* position / 64 -> block, or -1 */
    int n_table;
    int first;       /* first table entry that may be held; those before slid out of the window */
    int32_t *unused; /* n_dirty free blocks from the front; from the rear n_clean whose memory went back */
    int n_dirty, n_clean;
    int n_fresh;      /* blocks from here on were never used */
    int32_t *refs;    /* per block: holders, the table being one */
    uint8_t *fill;    /* per block: rows that somebody may refer to */
    bool *in_table;   /* per block */
    int n_live, max_live; /* blocks in the table; most that the live sequence may take */
    int n_kept, n_shared; /* blocks with a holder beside the table; of them those in the table too */
    lg_kv_pages pages;    /* n_slots 0: every block is its own slot */
} lg_kv_pool;

/* What was copied between device and host so far. */
typedef struct lg_kv_moved {
    uint64_t out_blocks, out_bytes, in_blocks, in_bytes;
} lg_kv_moved;

typedef struct lg_kv {
    lg_backend *b;
    lg_kv_class cls[LG_KV_CLASSES]; /* n_layer 0: a class that the model lacks */
    lg_kv_pool pool[LG_KV_CLASSES];
    int64_t ctx; /* most rows */
    int64_t pos; /* rows held */
    /* The drafter's context has the rows of positions [draft_from, draft_to); draft_from is a multiple of
     * LG_KV_BLOCK. Its steps count positions from there, because attention sees every row back to position 0
     * or to the window: what is not there must not have a position. */
    int64_t draft_from, draft_to;
    /* most bytes that are committed at once in all pools: before more are, free blocks of other classes give
     * theirs back. 0, or a backend without `discard`: no bound */
    uint64_t max_bytes;
    uint64_t image_bytes, max_image_bytes; /* of images, and most of them */
    bool copying; /* slots may be read by copies that steps do not wait for yet */
    lg_kv_moved moved;
} lg_kv;

/* Blocks that a class needs for one live sequence of `ctx` positions, fed at most max_rows at a time; one of
 * them is for the copy of a block that the sequence shares. */
int lg_kv_blocks(const lg_kv_class *c, int64_t ctx, int max_rows);

/* `full` and `window` as lg_laguna_kv_shape gives them. spare_*: blocks beyond what the live sequence needs.
 */
LG_NODISCARD lg_status lg_kv_create(lg_backend *b, const lg_kv_class *full, const lg_kv_class *window,
                                    int64_t ctx, int max_rows, int spare_full, int spare_window, lg_kv *out,
                                    lg_err *err);
/* The same on a device with memory of its own: slots_* blocks of the spare ones have room there at once, the
 * others as images of at most image_bytes. */
typedef struct lg_kv_spare {
    int blocks, slots;
} lg_kv_spare;
LG_NODISCARD lg_status lg_kv_create_paged(lg_backend *b, const lg_kv_class *full, const lg_kv_class *window,
                                          int64_t ctx, int max_rows, const lg_kv_spare *spare_full,
                                          const lg_kv_spare *spare_window, uint64_t image_bytes, lg_kv *out,
                                          lg_err *err);
/* Give an empty cache the class of the drafter's context (LG_KV_DRAFT, with a window). It grows and is
 * truncated with the others; its rows are a bonus, never a condition of a rewind. spare < 0: as many as the
 * window class has, so that every cut can keep them. */
LG_NODISCARD lg_status lg_kv_add_draft(lg_kv *kv, const lg_kv_class *draft, int max_rows, int spare,
                                       lg_err *err);
void lg_kv_destroy(lg_kv *kv);

/* Make the next n rows writable; they count only after lg_kv_commit. Outside a step. Blocks of the table that
 * are not on the device come back first (copies that the next step waits for). LG_E_LIMIT: past the context,
 * or no block is free; LG_E_NOMEM: no memory for an image; no row was lost then. */
LG_NODISCARD lg_status lg_kv_grow(lg_kv *kv, int n, lg_err *err);
void lg_kv_commit(lg_kv *kv, int n);

/* Forget the rows from `pos` on. Returns how many rows are held now: `pos`, or 0 where the window before it
 * is no longer in the table. Room made by lg_kv_grow and not committed is given back too. */
int64_t lg_kv_truncate(lg_kv *kv, int64_t pos);
/* Whether lg_kv_truncate(pos) would keep pos rows. */
bool lg_kv_holds(const lg_kv *kv, int64_t pos);

/* Rows of positions [pos, pos + n), which must be grown or committed, are about to enter the drafter's
 * context. Returns how many of the first of them must be left out: where the context does not reach up to
 * `pos` it starts anew at the next block. The caller adds the others and then counts them. */
int lg_kv_draft_skip(lg_kv *kv, int64_t pos, int n);
void lg_kv_draft_commit(lg_kv *kv, int n);

/* --- cuts --- */

/* Most blocks that a cut holds of a class. */
int lg_kv_cut_room(const lg_kv_class *c);
/* Whether the table still has what a cut at `pos` needs (0 < pos <= kv->pos). */
bool lg_kv_can_cut(const lg_kv *kv, int64_t pos);
/* Retain it; cut->block and draft_block (may be NULL: no rows of the drafter) have room for lg_kv_cut_room.
 */
void lg_kv_cut_at(lg_kv *kv, int64_t pos, bool draft, lg_kv_cut *cut);
/* Let go of it; the storage stays the caller's. */
void lg_kv_cut_drop(lg_kv *kv, lg_kv_cut *cut);
/* The live sequence becomes `pos` rows long: `full` lists the blocks of the full class from position 0 on
 * (lg_kv_entries(pos) of them), and the others are the cut's, at its position or one before it. cut NULL:
 * pos is 0 or the model has no window layers. The table retains what it takes, and lets go of what it had. */
void lg_kv_resume(lg_kv *kv, int64_t pos, const int32_t *full, const lg_kv_cut *cut);

/* One more, one less holder of a block beside the table. */
void lg_kv_retain(lg_kv *kv, lg_kv_class_id c, int32_t block);
void lg_kv_release(lg_kv *kv, lg_kv_class_id c, int32_t block);

/* The table as the device needs it. */
const int32_t *lg_kv_where(const lg_kv *kv, lg_kv_class_id c);
/* Slots that the next rows will need are made ready: the blocks which have them get images, without waiting.
 * After a commit, when there is nothing more urgent; `rows` are expected next. */
void lg_kv_page_ahead(lg_kv *kv, int rows);

/* Blocks that nobody holds. */
int lg_kv_free_blocks(const lg_kv *kv, lg_kv_class_id c);

/* Table entries that cover n rows, for the step. */
static inline int lg_kv_entries(int64_t n)
{
    return (int)((n + LG_KV_BLOCK - 1) / LG_KV_BLOCK);
}

/* Counts every block once; false when a free list, a table and the reference counts disagree. For tests. */
bool lg_kv_check(const lg_kv *kv);

#endif
