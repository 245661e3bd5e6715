/*
 * engine/prefix_int: structs of the prefix cache, shared by prefix*.c only.
 *
 * Every node and cut is in a list of its own kind besides the tree, so that walks over all of them need no
 * recursion. Blocks of a node are listed by position / 64, from its first token's to its last one's: the
 * block of a node that begins inside a block holds the rows of its ancestors in there too, because a shared
 * block is copied before anybody writes over it.
 */
#ifndef LG_ENGINE_PREFIX_INT_H
#define LG_ENGINE_PREFIX_INT_H

#include "engine/prefix.h"

typedef struct node node;
typedef struct root root;

struct lg_prefix_cut {
    lg_kv_cut kv;
    lg_cut_kind kind;
    node *node;                    /* begin < kv.pos <= end */
    lg_prefix_cut *before, *after; /* of the same node, by position */
    lg_prefix_cut *prev, *next;    /* all */
    uint64_t hits, last_use;
    int pins;
    int32_t block[]; /* the window's, then the drafter's */
};

struct node {
    int64_t begin, end; /* tokens; the node of a root has none */
    int32_t *tok;
    int64_t cap_tok;
    int32_t *block; /* of the full class; NULL entries do not exist */
    int n_block, cap_block;
    node *parent;
    int32_t *key; /* first tokens of the children, ascending */
    node **child;
    int n_child, cap_child;
    lg_prefix_cut *first, *last; /* cuts by position */
    bool live;                   /* on the path of the live sequence */
    uint64_t last_use;           /* of the node or anything below it */
    root *root;
    node *prev, *next; /* all */
};

struct root {
    node top;
    uint64_t scope;
    root *next;
};

struct lg_prefix {
    lg_prefix_params p;
    lg_kv *kv;
    root *roots;
    node *nodes; /* without the roots */
    lg_prefix_cut *cuts;
    int32_t *full;    /* scratch: a block table */
    uint64_t clock;   /* requests */
    size_t own_bytes; /* nodes, token ids, cuts, lists */
    int n_nodes, n_cuts[LG_CUT_KINDS], n_pins;
    int64_t n_tokens;
    uint64_t evicted_cuts, evicted_slots;
    struct {
        root *root; /* NULL: nothing of the live sequence is in the tree */
        node *node; /* the deepest one on its path, perhaps the root's */
        int64_t end; /* rows of it that the tree has; node->begin < end <= node->end, or both 0 */
        int64_t prompt;
        bool detached;
    } live;
};

/* --- prefix_tree.c --- */

root *lg_prefix_root(lg_prefix *px, uint64_t scope, bool make);
node *lg_prefix_child(const node *n, int32_t tok); /* NULL: none */
/* The deepest node that shares tokens with ids, and how many of them are shared in all. */
node *lg_prefix_walk(root *r, const int32_t *ids, int64_t n, int64_t *lcp);
/* The live rows of [live.end, end) enter the tree. False: memory ran out on the way. */
bool lg_prefix_insert_live(lg_prefix *px, int64_t end);
/* Frees the rows at the end of a leaf that nothing refers to, and emptied nodes upwards; joins a node with
 * its only child. */
void lg_prefix_prune(lg_prefix *px, node *n);
/* The cut goes; the rows it kept alive are the caller's to prune. */
void lg_prefix_unlink_cut(lg_prefix *px, lg_prefix_cut *c);
void lg_prefix_link_cut(lg_prefix *px, node *n, lg_prefix_cut *c);
size_t lg_prefix_cut_bytes(const lg_kv *kv); /* of the struct */
/* Which node has position q of the path that ends in n. */
node *lg_prefix_node_at(node *n, int64_t q);
/* Blocks of the first q rows of the path through n. */
void lg_prefix_blocks(const node *n, int64_t q, int32_t *out);
/* The live path is the first `end` rows of the path to n. */
void lg_prefix_set_live(lg_prefix *px, root *r, node *n, int64_t end);
/* An empty root that is not live goes. */
void lg_prefix_free_root(lg_prefix *px, root *r);

/* --- prefix_evict.c --- */

int lg_prefix_spare_blocks(const lg_kv *kv, lg_kv_class_id c);
uint64_t lg_prefix_bytes(const lg_prefix *px);
/* Whether `bytes` more, in so many blocks, fit; evicts for it where it may. */
bool lg_prefix_reserve(lg_prefix *px, uint64_t bytes, int n_window, int n_draft, bool evict);
/* Cuts of a leaf go, as far as they lie behind `from` and are not pinned. (A node above it has other
 * children.) */
void lg_prefix_drop_leaf(lg_prefix *px, node *leaf, int64_t from);
/* Whether a conversation ends here that takes a slot. */
bool lg_prefix_is_slot(const node *n);
/* Only so many cuts of a kind stay on the live path. */
void lg_prefix_retire(lg_prefix *px, lg_cut_kind kind);
double lg_prefix_score(const lg_prefix *px, const lg_prefix_cut *c);

#endif
