/*
 * grammar/lower: from schema nodes to rules. A rule is a set of schema nodes that must all hold (a
 * conjunction); it is expanded into alternatives, each with one type and everything its members say about it
 * (a body). Bodies name their children by conjunction, so recursion needs nothing special. emit.c then writes
 * the program.
 */
#ifndef LG_GRAMMAR_LOWER_H
#define LG_GRAMMAR_LOWER_H

#include "grammar/number.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#define LG_NO_HEIGHT UINT16_MAX
#define LG_NEVER 0u /* the conjunction that no value satisfies */

/* An element of a conjunction: a schema node, whole or with its own keywords only (without $ref, allOf,
 * anyOf, oneOf). */
#define LG_WHOLE(node) ((uint32_t)(node) << 1)
#define LG_OWN(node) ((uint32_t)(node) << 1 | 1)

typedef enum lg_body_kind { LG_BODY_TERM, LG_BODY_VALUE, LG_BODY_ARRAY, LG_BODY_OBJECT } lg_body_kind;

typedef struct lg_body lg_body;
struct lg_body {
    lg_body *next;
    lg_body_kind kind;
    uint32_t term;        /* TERM */
    const lg_json *value; /* VALUE: an array or object, written as it is */
    uint32_t min, max;    /* items or members; max LG_NONE: no bound */
    /* ARRAY: child[i] of item i below n, child[n] of the others. OBJECT: child[i] of name i */
    uint32_t n, *child;
    lg_str *name;
    bool *required;
    uint32_t n_class, *class_term, *class_child;
};

typedef struct lg_conj {
    const uint32_t *id; /* elements, ascending */
    uint32_t n;
    bool proof;       /* only asked whether it is empty: oneOf is read as anyOf */
    bool expanded;
    uint16_t height;  /* LG_NO_HEIGHT: no value satisfies it */
    lg_body *body;
    uint32_t rule;    /* LG_NONE until emitted */
} lg_conj;

/* A pair of oneOf branches that must exclude each other. */
typedef struct lg_proof {
    uint32_t conj, node;
} lg_proof;

/* The terminal that some keywords describe, by their text. */
typedef struct lg_memo {
    lg_str key; /* p NULL: free */
    uint32_t term;
} lg_memo;

typedef struct lg_lower {
    lg_conj *conj;
    size_t n_conj, cap_conj;
    uint32_t *slot, n_slot; /* hash of conjunctions */
    uint32_t *todo;
    size_t n_todo, cap_todo;
    lg_proof *proof;
    size_t n_proof, cap_proof;
    lg_memo *memo; /* hash table */
    uint32_t n_memo, cap_memo;
} lg_lower;

/* The number of a conjunction of n elements (in any order, repeats allowed). */
uint32_t lg_lower_conj(lg_compiler *c, const uint32_t *id, uint32_t n, bool proof);
/* Expands everything that hangs on a conjunction, finds what is empty, and proves what oneOf needs. */
void lg_lower_all(lg_compiler *c, uint32_t root);

/* Nesting that a body needs to be finished, or LG_NO_HEIGHT; once lg_lower_all is done. */
uint16_t lg_lower_height(lg_compiler *c, const lg_body *b);

/* One alternative of an expansion. */
typedef struct lg_alternative {
    const uint32_t *member; /* nodes, in the order of the document */
    uint32_t n;
    unsigned types;
    bool proof;
    const struct lg_alternative *one_of; /* of these exactly one must hold; all are numbers, or all strings */
    uint32_t n_one_of;
} lg_alternative;
typedef void (*lg_alternative_fn)(lg_compiler *c, const lg_alternative *a, void *ctx);
void lg_lower_expand(lg_compiler *c, const uint32_t *id, uint32_t n, bool proof, lg_alternative_fn fn,
                     void *ctx);

/* body.c: the bodies of an alternative, put in front of *list. */
void lg_lower_bodies(lg_compiler *c, const lg_alternative *a, lg_body **list);
/* adds a terminal; its automaton must be kept memory */
uint32_t lg_lower_term(lg_compiler *c, const lg_term *t);
/* sorts; payload may be NULL */
uint32_t lg_lower_words(lg_compiler *c, lg_str *word, uint32_t n, uint32_t *payload);
/* A string terminal over an automaton (NULL: every text) in temporary memory; LG_NONE when nothing matches.
 */
uint32_t lg_lower_string(lg_compiler *c, lg_term_kind kind, const lg_dfa *d, uint32_t min, uint32_t max);
/* The texts that the members allow a string to be, lengths included; *every: all of them (then the answer is
 * empty). */
lg_dfa lg_lower_texts(lg_compiler *c, const lg_alternative *a, bool *every);
/* What the members say about a string: pattern and format into one automaton (n = 0 with *any), and lengths.
 */
lg_dfa lg_lower_patterns(lg_compiler *c, const lg_alternative *a, bool *any, uint32_t *min, uint32_t *max);
lg_number lg_lower_number(lg_compiler *c, const lg_alternative *a);
/* The texts that exactly one of a's `one_of` admits. */
lg_dfa lg_lower_exclusive(lg_compiler *c, const lg_alternative *a);
/* The values that enum and const leave, or false when no member has either. */
bool lg_lower_values(lg_compiler *c, const lg_alternative *a, const lg_json ***value, uint32_t *n);

/* object.c */
lg_body *lg_lower_object(lg_compiler *c, const lg_alternative *a);

/* spell.c: canonical JSON of a scalar; a quoted name; both in the grammar's memory. */
lg_str lg_spell_scalar(lg_compiler *c, const lg_json *j);
lg_str lg_spell_string(lg_compiler *c, lg_str text);

/* eval.c: does a value satisfy a node: its own keywords, or all of it? */
bool lg_eval_own(lg_compiler *c, uint32_t node, const lg_json *v, int depth);
bool lg_eval(lg_compiler *c, uint32_t node, const lg_json *v, int depth);
bool lg_json_same(lg_compiler *c, const lg_json *a, const lg_json *b);

/* format.c: the texts of a format and a length bound of its own; false when it is an annotation. */
bool lg_format_dfa(lg_compiler *c, lg_str name, lg_dfa *out, uint32_t *max);
bool lg_format_is_number(lg_str name, const char **min, const char **max);

/* emit.c */
void lg_emit_program(lg_compiler *c, uint32_t root);

#endif
