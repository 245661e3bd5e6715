/*
 * grammar/program: a compiled grammar: rules as small automata whose edges match terminals, call rules, or
 * take one control token. Written by the compiler, read-only afterwards.
 *
 * A rule instance owns a register (members or items so far) and a set of keys (the additional names that an
 * object has used; where the order of properties is free, all names). Guards look at them and at the depth,
 * so nothing is unrolled and nothing leads to a dead end.
 */
#ifndef LG_GRAMMAR_PROGRAM_H
#define LG_GRAMMAR_PROGRAM_H

#include "grammar/dfa.h"

enum {
    LG_MAX_OUTPUT_DEPTH = 256, /* values around one another, the innermost counted */
    LG_MAX_USED_KEYS = 256,    /* additional members of one object; all of them where the order is free */
    LG_MAX_FREE_NAMES = 64,    /* known names of an object whose order is free */
};

#define LG_KNOWN_NAME 0x80000000u /* in a set of used keys: known name j is LG_KNOWN_NAME | j */

typedef enum lg_term_kind {
    /* one of a sorted list of byte strings; each leads to a target of its own if `target` is set */
    LG_TERM_WORDS,
    LG_TERM_BYTES,  /* an automaton over bytes */
    LG_TERM_STRING, /* a JSON string whose decoded text an automaton over code points accepts */
    LG_TERM_KEY,    /* a JSON string that is no used key of its object; becomes one */
    LG_TERM_RAW,    /* text without quotes and escapes */
} lg_term_kind;

typedef struct lg_term {
    lg_term_kind kind;
    /* WORDS */
    uint32_t n_word;
    const lg_str *word;
    const uint32_t *payload; /* number of each word in its object; NULL: none */
    /* the others */
    lg_dfa dfa;                         /* n = 0 with STRING: every text */
    bool canonical;                     /* one spelling a character */
    bool no_end_tag;                    /* no raw "</" */
    uint32_t min, max;                  /* code points; max LG_NONE: no bound */
    const uint32_t *shortest, *longest; /* of each state with a length bound: code points to acceptance */
    const uint64_t *lengths; /* with both bounds: bit k of row s: k code points lead from s to acceptance */
    uint32_t length_words;
    /* states from where every run of safe characters stays live; NULL with dfa.n = 0 */
    const bool *open;
    const uint32_t *count; /* KEY: words from each state on */
} lg_term;

/* An object's rule: what its guards need. */
typedef struct lg_object {
    uint32_t n;                /* known names */
    const uint32_t *target;    /* state behind each name */
    const uint32_t *req_after; /* required names behind each name */
    const uint16_t *height;    /* of each name's value */
    uint32_t min, max;         /* members; max LG_NONE: no bound */
    bool any_order;            /* known names are used keys as well, and may come in any order */
    const bool *required;
    uint32_t n_class; /* classes of additional keys */
    const uint32_t *class_term;
    const uint16_t *class_height;
} lg_object;

typedef enum lg_edge_kind { LG_EDGE_EPS, LG_EDGE_TERM, LG_EDGE_CALL, LG_EDGE_TOKEN } lg_edge_kind;

typedef enum lg_guard {
    LG_GUARD_NONE,
    LG_GUARD_NAME,  /* a name in [lo, hi] can come */
    LG_GUARD_KEY,   /* an additional key of class `hi` can come */
    LG_GUARD_MORE,  /* either; `any_key` says whether additional keys may come */
    LG_GUARD_CLOSE, /* enough members */
} lg_guard;

typedef struct lg_edge {
    uint32_t next; /* edge of the same state, or LG_NONE */
    uint32_t to;
    uint32_t arg;            /* terminal, rule or token */
    uint32_t below;          /* register < below */
    uint32_t least;          /* register >= least */
    uint32_t object, lo, hi; /* for object guards, and for WORDS with targets */
    int16_t height;          /* >= 0: a value of this height must fit below here */
    uint8_t kind, guard;
    bool any_key;
    bool count; /* increases the register, up to `top` */
    uint32_t top;
} lg_edge;

typedef struct lg_state {
    uint32_t edge; /* first, or LG_NONE */
    bool final;
} lg_state;

typedef struct lg_rule {
    uint32_t start;
    uint16_t height; /* nesting needed to finish */
} lg_rule;

typedef struct lg_program {
    lg_term *term;
    lg_state *state;
    lg_edge *edge;
    lg_rule *rule;
    lg_object *object;
    uint32_t n_term, n_state, n_edge, n_rule, n_object;
    size_t cap_term, cap_state, cap_edge, cap_rule, cap_object;
    uint32_t root;
    bool has_keys; /* some object admits additional keys */
} lg_program;

#endif
