/*
 * grammar/dfa: deterministic automata over ranges of symbols (bytes, or code points) and what can be done
 * with them.
 *
 * Immutable once made. Every automaton that a function here returns is trimmed: each state is reachable and
 * live, so "a step exists" and "a word can still be completed" are the same question. The empty language has
 * no states.
 */
#ifndef LG_GRAMMAR_DFA_H
#define LG_GRAMMAR_DFA_H

#include "base/arena.h"
#include "base/str.h"

#define LG_NONE UINT32_MAX

typedef struct lg_dfa_edge {
    uint32_t lo, hi, to;
} lg_dfa_edge;

typedef struct lg_dfa {
    uint32_t n;              /* states; 0 is the start */
    const uint32_t *first;   /* n + 1: edges of state s are [first[s], first[s + 1]) */
    const lg_dfa_edge *edge; /* ascending and disjoint within a state */
    const bool *accept;
} lg_dfa;

struct lg_compiler;

/* An automaton in the making: states are numbered as they are met and closed in that order. */
typedef struct lg_dfa_maker {
    struct lg_compiler *c;
    size_t n, cap_first, cap_accept, n_edge, cap_edge;
    uint32_t *first;
    lg_dfa_edge *edge;
    bool *accept;
} lg_dfa_maker;

void lg_dfa_begin(lg_dfa_maker *m, struct lg_compiler *c);
/* An edge of the state that is open; neighbours with one target are joined. */
void lg_dfa_edge_add(lg_dfa_maker *m, uint32_t lo, uint32_t hi, uint32_t to);
/* Closes the open state and opens the next. */
void lg_dfa_state_end(lg_dfa_maker *m, bool accept);
/* Trimmed, and minimal when it is small enough for that to be cheap. In temporary memory, like all results
 * here. */
lg_dfa lg_dfa_end(lg_dfa_maker *m);
lg_dfa lg_dfa_keep(struct lg_compiler *c, const lg_dfa *d); /* a copy in the grammar's memory */

/* The state behind a symbol, or LG_NONE. */
uint32_t lg_dfa_step(const lg_dfa *d, uint32_t s, uint32_t symbol);
/* Is a UTF-8 text a word of an automaton over code points? */
bool lg_dfa_match(const lg_dfa *d, lg_str text);

typedef enum lg_dfa_op { LG_DFA_AND, LG_DFA_AND_NOT, LG_DFA_XOR, LG_DFA_OR } lg_dfa_op;
lg_dfa lg_dfa_product(struct lg_compiler *c, const lg_dfa *a, const lg_dfa *b, lg_dfa_op op);
/* Whether a word is in both. */
bool lg_dfa_meet(struct lg_compiler *c, const lg_dfa *a, const lg_dfa *b);
lg_dfa lg_dfa_any(struct lg_compiler *c); /* every text of code points */
/* Texts of min to max code points (max LG_NONE: no bound). */
lg_dfa lg_dfa_length(struct lg_compiler *c, uint32_t min, uint32_t max);
/* The UTF-8 words. */
lg_dfa lg_dfa_words(struct lg_compiler *c, const lg_str *word, size_t n);
/* Texts that contain the ASCII word. */
lg_dfa lg_dfa_containing(struct lg_compiler *c, lg_str word);

enum { LG_COUNT_MANY = 1 << 20 };
/* Words from each state on, saturating at LG_COUNT_MANY. */
void lg_dfa_count(struct lg_compiler *c, const lg_dfa *d, uint32_t *count);

/* An open-addressing table from keys of `width` words to dense numbers, in temporary memory. */
typedef struct lg_index {
    struct lg_compiler *c;
    uint32_t width;
    size_t n, cap_key;
    uint64_t *key;
    uint32_t *slot, n_slot;
} lg_index;
void lg_index_init(lg_index *x, struct lg_compiler *c, uint32_t width);
/* The number of a key; *added says that it is new. */
uint32_t lg_index_get(lg_index *x, const uint64_t *key, bool *added);

#endif
