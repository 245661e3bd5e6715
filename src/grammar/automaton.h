/*
 * grammar/automaton: the program executed as a push-down automaton that is made deterministic while it runs.
 *
 * Everything is interned: sets of stacks, sets of used keys, configurations. Equal situations have equal
 * numbers wherever in the document they occur, so transitions and masks are found again. One thread.
 *
 * Surprise: lg_auto_mark and lg_auto_back undo interning; a mask's walk over a grammar with free keys would
 * otherwise leave thousands of beginnings of names behind. Between the two a walk may be vague: beginnings of
 * names that are no beginning of a known one then count as one and the same, until such a name ends.
 */
#ifndef LG_GRAMMAR_AUTOMATON_H
#define LG_GRAMMAR_AUTOMATON_H

#include "base/err.h"
#include "grammar/term.h"

#define LG_CFG_DEAD  1u
#define LG_CFG_EXACT 2u /* of a vague walk: only an exact one can tell */

typedef struct lg_cfg_item {
    uint32_t edge;
    lg_tstate s;
    uint32_t reg, keys, node;
} lg_cfg_item;

typedef struct lg_cfg {
    uint32_t item, n_item;
    uint32_t row;  /* its transitions: row number, or 0 */
    uint32_t mask; /* of the mask cache, or 0 */
    bool accept;
} lg_cfg;

typedef struct lg_auto lg_auto;

LG_NODISCARD lg_status lg_auto_create(const lg_program *p, lg_auto **out, lg_err *err);
void lg_auto_destroy(lg_auto *a); /* takes NULL */
/* Forgets everything but the start. */
void lg_auto_clear(lg_auto *a);
size_t lg_auto_bytes(const lg_auto *a);

uint32_t lg_auto_start(lg_auto *a); /* the configuration before the first byte; LG_CFG_DEAD after a failure */
/* The configuration behind a byte, or LG_CFG_DEAD. After memory or a limit ended, everything is dead; then
 * lg_auto_failed says why. */
uint32_t lg_auto_next(lg_auto *a, uint32_t cfg, uint8_t byte);
uint32_t lg_auto_token(lg_auto *a, uint32_t cfg, uint32_t token); /* a control token */
lg_status lg_auto_failed(const lg_auto *a);

lg_cfg *lg_auto_cfg(lg_auto *a, uint32_t cfg); /* valid until the next call */
const lg_cfg_item *lg_auto_item(const lg_auto *a, uint32_t item);
const lg_program *lg_auto_program(const lg_auto *a);
uint64_t lg_auto_slow_steps(const lg_auto *a); /* transitions computed so far */

/* What a walk looks at by itself: configurations, and rows of 256 transitions (0: not known yet, ask
 * lg_auto_next). Valid until the next call that may compute. */
typedef struct lg_auto_view {
    const lg_cfg *cfg;
    const uint32_t *row;
} lg_auto_view;
lg_auto_view lg_auto_look(const lg_auto *a);

void lg_auto_mark(lg_auto *a, bool vague);
void lg_auto_back(lg_auto *a);

#endif
