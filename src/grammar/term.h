/*
 * grammar/term: one byte of a terminal. Pure functions over the program; the engine's thread, on the path
 * that is taken once for each new pair of configuration and byte.
 *
 * Every state that a step answers is live: some bytes lead from it to the end of the terminal, and the guards
 * allow what the terminal would then lead to.
 */
#ifndef LG_GRAMMAR_TERM_H
#define LG_GRAMMAR_TERM_H

#include "grammar/program.h"

/* Where a terminal stands. WORDS: words [a, b) share c bytes. BYTES: a is the state. STRING, RAW: a is the
 * state, b the front end, c the characters so far. KEY: a and b alike, c the bytes so far as a node of the
 * tree of key bytes. */
typedef struct lg_tstate {
    uint32_t a, b, c;
} lg_tstate;

/* The names that an object has used, and the tree of key bytes that spells them. */
typedef struct lg_keys {
    void *tree;
    uint32_t (*child)(void *tree, uint32_t node, uint8_t byte); /* makes it; LG_NONE when memory ends */
    void (*node)(void *tree, uint32_t node, uint32_t *parent, uint8_t *byte, uint32_t *depth);
    const uint32_t *used;
    uint32_t n;
} lg_keys;

/* What guards look at. */
typedef struct lg_where {
    const lg_program *p;
    uint32_t reg;
    uint32_t depth; /* values around this one */
    lg_keys keys;
} lg_where;

typedef struct lg_tresult {
    bool live;     /* *s is where the terminal stands */
    bool done;     /* it may also end here */
    uint32_t word; /* WORDS that is done: its index */
} lg_tresult;

lg_tstate lg_term_start(const lg_term *t);
/* May the terminal match nothing at all? */
bool lg_term_nullable(const lg_term *t);
lg_tresult lg_term_step(const lg_term *t, const lg_edge *e, const lg_where *w, lg_tstate *s, uint8_t byte);
/* Do all the guards of an edge hold? */
bool lg_edge_open(const lg_edge *e, const lg_where *w);
/* A state of STRING, KEY or RAW between characters where any run of safe characters (no quote, backslash or
 * control) of at most *room code points is live. */
bool lg_term_wide(const lg_term *t, const lg_tstate *s, uint32_t *room);

#endif
