/*
 * engine/prefix: what is kept of conversations in memory, and how a new prompt finds it.
 *
 * One tree of token ids per scope: an edge is a run of tokens, and siblings never begin with the same token.
 * Nodes hold blocks of the full-attention layers; *cuts* hold the window blocks of one position, because a
 * sequence goes on only where both are there. The prefix cache decides by comparing ids, so a hit never
 * changes an answer.
 *
 * The life of a block. lg_kv_grow takes it from the pool for the live sequence, which alone writes into it.
 * When the rows of a step are complete, lg_prefix_commit hangs the tokens into the tree, and their node holds
 * the block too; a window block gets its second holder from a cut. The live sequence moves on or becomes
 * another conversation, and lets go; now the block counts against the budget. A later prompt that walks
 * through the node brings it back into the block table: here a page-in is this change of holders, and whether
 * a device has to copy is kv_page.c's business. Its next row goes into the same block if nobody has written
 * there yet, else into a copy. When the last cut below it goes (lowest value first), no request can use its
 * rows any more: the node shrinks, and the block is free.
 *
 * Engine thread only. No I/O, and no backend call. Failed allocations cost a cut or a node, never more.
 *
 * What surprises: a cut at q serves a resume at q - 1 too, which is what an identical prompt needs, whose
 * last token is evaluated again.
 */
#ifndef LG_ENGINE_PREFIX_H
#define LG_ENGINE_PREFIX_H

#include "engine/kv.h"
#include "engine/rates.h"

typedef struct lg_prefix lg_prefix;
typedef struct lg_prefix_cut lg_prefix_cut;

/* In the order of their weights; a position that is cut twice keeps the higher one. */
typedef enum lg_cut_kind {
    LG_CUT_STEP,   /* regular distance */
    LG_CUT_SLOT,   /* end of a sequence that stopped being live */
    LG_CUT_END,    /* end of a prompt */
    LG_CUT_BRANCH, /* where a prompt left a cached path */
    LG_CUT_TURN,   /* behind <assistant> and the think tag after the last user message */
    LG_CUT_SYS,    /* behind system text and tools */
    LG_CUT_KINDS,
} lg_cut_kind;
const char *lg_cut_name(lg_cut_kind k);

enum {
    LG_PREFIX_SLOTS = 16,        /* conversations, unless said otherwise */
    LG_PREFIX_MIN_TOKENS = 1024, /* shorter prompts are kept only while live */
    LG_PREFIX_STEP = 8192,       /* most tokens between two cuts */
    LG_PREFIX_BRANCH = 256,      /* rows that a cut of kind BRANCH must save; a shorter leaf takes no slot */
};

typedef struct lg_prefix_params {
    lg_kv *kv;
    int32_t *tokens;       /* ids of the live sequence, kv->pos of them; room for kv->ctx */
    const lg_rates *rates;
    int slots;             /* the live conversation is one of them */
    uint64_t budget_bytes; /* of all that the live sequence does not use itself */
    int min_tokens, step;  /* 0: LG_PREFIX_MIN_TOKENS, LG_PREFIX_STEP */
} lg_prefix_params;

/* kv must have been made with room for the budget (lg_prefix_spare) and outlive the cache. */
LG_NODISCARD lg_status lg_prefix_create(const lg_prefix_params *p, lg_prefix **out, lg_err *err);
void lg_prefix_destroy(lg_prefix *px); /* takes NULL */

/* Blocks of a class that the pool needs beside the live sequence's for a budget. `lazy`: memory is committed
 * as it is written, so that each class may have room for all of it; else the classes divide it. */
int lg_prefix_spare(const lg_kv_class *c, uint64_t budget, int slots, int64_t ctx, bool lazy);

/* Where a prompt can resume. */
typedef struct lg_prefix_match {
    int64_t lcp;        /* tokens that a cached path shares with the prompt */
    int64_t k;          /* rows that are reused */
    lg_prefix_cut *cut; /* from here; NULL: from the live sequence, or k is 0 */
    bool live;          /* the live sequence, cut short to k rows */
    int64_t beyond;     /* length of the newest cached path through lcp */
} lg_prefix_match;

/* Walks the tree; no side effects. most: rows that may be reused, n - 1 when the last token's logits are
 * wanted. */
void lg_prefix_find(const lg_prefix *px, uint64_t scope, const int32_t *ids, int64_t n, int64_t most,
                    lg_prefix_match *out);
/* What that will find once lg_prefix_park has been called, unless room for it pushes something out. */
void lg_prefix_find_parked(const lg_prefix *px, uint64_t scope, const int32_t *ids, int64_t n, int64_t most,
                           lg_prefix_match *out);

/* Keeps what a match needs from being evicted until lg_prefix_unpin; zero: nothing is pinned. The caller owns
 * it and unpins before he forgets it or destroys the cache. */
typedef struct lg_prefix_pin {
    lg_prefix_cut *cut;
} lg_prefix_pin;
/* In place of what is pinned already. A match with the live sequence is made a cut first, so that it lasts.
 */
void lg_prefix_pin_match(lg_prefix *px, const lg_prefix_match *m, lg_prefix_pin *pin);
void lg_prefix_unpin(lg_prefix *px, lg_prefix_pin *pin); /* does nothing where nothing is pinned */

/* The live sequence leaves (with a cut at its end where that saves work) and the match becomes live, m->k
 * rows long. n_prompt: tokens of the prompt that comes. */
void lg_prefix_adopt(lg_prefix *px, uint64_t scope, const lg_prefix_match *m, int64_t n_prompt);
/* Hang the live sequence's rows before `end`, which are complete, into the tree. */
void lg_prefix_commit(lg_prefix *px, int64_t end);
/* A cut at position q of the live sequence, if q is committed, its window is still held and there is room.
 * False when none was made. */
bool lg_prefix_cut_at(lg_prefix *px, int64_t q, lg_cut_kind kind);
lg_cut_kind lg_prefix_cut_kind(const lg_prefix_cut *c);
/* Most tokens between two cuts. */
int64_t lg_prefix_step(const lg_prefix *px);
/* Position of the last cut on the live path at or before `pos`; 0: none. */
int64_t lg_prefix_last_cut(const lg_prefix *px, int64_t pos);
/* Evict what went over the budget, and conversations beyond the slots. After every growth or truncation. */
void lg_prefix_settle(lg_prefix *px);

/* The live sequence forgets what follows `pos`, cuts and rows. Returns how many rows are held: pos, the last
 * cut before it, or 0. */
int64_t lg_prefix_truncate(lg_prefix *px, int64_t pos);
/* What the live sequence holds is none of the cache's business any more (rows of no real text, a request that
 * must not be stored): its rows are not hung into the tree, and nothing resumes from them. Until the next
 * lg_prefix_adopt or lg_prefix_unpark. */
void lg_prefix_detach(lg_prefix *px);
/* For a request that leaves no trace: keep the live sequence as it is, pinned at its end, whatever its
 * length; then detach. lg_prefix_unpark makes it live again. */
void lg_prefix_park(lg_prefix *px, lg_prefix_pin *pin);
void lg_prefix_unpark(lg_prefix *px, lg_prefix_pin *pin);
/* Forget everything that is not pinned and not live. */
void lg_prefix_clear(lg_prefix *px);

typedef struct lg_prefix_stats {
    uint64_t bytes, budget_bytes; /* what only the live sequence holds does not count */
    int slots, slots_max;  /* conversations, the live one included */
    int n_cuts[LG_CUT_KINDS], n_nodes, n_pins;
    int64_t tokens;        /* in the tree */
    uint64_t evicted_cuts, evicted_slots;
} lg_prefix_stats;
void lg_prefix_get_stats(const lg_prefix *px, lg_prefix_stats *out);

/* One conversation: a leaf of the tree, or the live path. */
typedef struct lg_prefix_slot {
    bool live;
    int64_t tokens;
    int n_cuts;     /* on its path */
    uint64_t bytes; /* blocks on its path, shared ones included */
    uint64_t hits;
    uint64_t age;   /* requests since it was used */
} lg_prefix_slot;
/* At most `max` of them, the live one first, then the most recently used. Returns how many. */
int lg_prefix_slots(const lg_prefix *px, lg_prefix_slot *out, int max);

/* Whether every invariant holds, all counters recomputed from scratch; prints the one that does not. For
 * tests. */
bool lg_prefix_check(const lg_prefix *px);

#endif
