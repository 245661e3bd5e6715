/*
 * grammar/mask: from a configuration to the set of tokens that may come: a walk over the tree of all tokens,
 * with the tokens that are plain text taken as ready-made slices where a string admits all of them.
 */
#ifndef LG_GRAMMAR_MASK_H
#define LG_GRAMMAR_MASK_H

#include "grammar/automaton.h"
#include "grammar/grammar.h"

enum { LG_SLICES = 17 }; /* of at most 0..16 code points */

/* A tree in depth-first order. */
typedef struct lg_trie {
    uint32_t n;
    uint8_t *byte;
    int32_t *token; /* that ends here, or -1 */
    uint32_t *size; /* nodes of the subtree */
    uint16_t *pops; /* levels to leave behind the subtree */
} lg_trie;

struct lg_token_trie {
    const lg_vocab *vocab;
    size_t n_vocab, words, longest; /* longest token in bytes */
    size_t n_quotes;                /* nodes of `all` that are a quote */
    /* every ordinary token; those that are not safe; safe ones of more than 16 */
    lg_trie all, rest, long_safe;
    int32_t *same;                     /* another token of the same bytes, or -1 */
    uint32_t *slice[LG_SLICES], *safe; /* bit sets */
    uint32_t longest_safe;             /* in code points */
    uint32_t *think, *done, *free;
};

/* Work space of a walk: `stack` holds longest + 2 configurations, `later` n_quotes + 1 nodes. */
typedef struct lg_mask_walk {
    uint32_t *stack, *later, n_later;
    uint64_t nodes; /* visited so far */
} lg_mask_walk;

/* The tokens whose bytes lead on from cfg, plus end tokens and control tokens where it admits them. Without
 * `slices` every token is walked; the answer is the same. */
void lg_mask_compute(const lg_token_trie *t, lg_auto *a, uint32_t cfg, bool slices, lg_mask_walk *w,
                     uint32_t *mask);

/* The tokens that begin `text`, are it, or go on behind it with bytes that lead on from cfg, where the text
 * ends. */
void lg_mask_spell(const lg_token_trie *t, lg_auto *a, uint32_t cfg, lg_str text, lg_mask_walk *w,
                   uint32_t *mask);

/* Is there a token that begins with `text`, is longer, and whose further bytes lead on from cfg? */
bool lg_mask_extends(const lg_token_trie *t, lg_auto *a, uint32_t cfg, lg_str text, uint32_t *stack);

#endif
