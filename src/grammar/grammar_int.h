/*
 * grammar/grammar_int: what a grammar is made of; shared by the compiler (which fills it) and the matcher
 * (which runs it).
 */
#ifndef LG_GRAMMAR_GRAMMAR_INT_H
#define LG_GRAMMAR_GRAMMAR_INT_H

#include <stdatomic.h>

#include "base/arena.h"
#include "grammar/automaton.h"
#include "grammar/mask.h"

enum { LG_GRAMMAR_BYTES = 32 << 20, LG_MASK_CACHE_BYTES = 8 << 20 };

struct lg_grammar {
    lg_arena memory; /* the program's */
    lg_program program;
    lg_auto *automaton;
    size_t limit;
    uint32_t generation; /* counts how often the automaton was cleared */
    /* masks of configurations, replaced in turn; allocated when the first matcher comes */
    _Atomic size_t size; /* lg_grammar_size */
    size_t mask_words;
    uint32_t n_mask, cap_mask, next_mask;
    uint32_t *mask_cfg;
    uint32_t **mask;
};

/* With the program in place: makes the automaton. */
LG_NODISCARD lg_status lg_grammar_start(lg_grammar *g, lg_err *err);
void lg_grammar_clear(lg_grammar *g);

/* For tests and measurements: whether a JSON text is a value that the schema admits, by the evaluator alone.
 */
LG_NODISCARD lg_status lg_schema_evaluate(lg_str schema, lg_str value, bool *holds, lg_err *err);
void lg_matcher_caches(lg_matcher *m, bool slices, bool cache);
uint64_t lg_matcher_nodes(const lg_matcher *m); /* nodes of the token tree visited so far */

#endif
