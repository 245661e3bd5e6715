/*
 * grammar/emit: writing states and edges of a program; shared with the grammar of tool calls.
 */
#ifndef LG_GRAMMAR_EMIT_H
#define LG_GRAMMAR_EMIT_H

#include "grammar/lower.h"

enum { GAP_OPEN, GAP_COLON, GAP_BEFORE, N_GAPS };

typedef struct lg_writer {
    lg_compiler *c;
    lg_program *p;
    uint32_t gap[N_GAPS];   /* terminals of whitespace, LG_NONE where there is none */
    uint32_t mark[128];     /* terminals of single characters + 1 */
    uint32_t *todo, n_todo; /* conjunctions whose rule is to be written */
    size_t cap_todo;
} lg_writer;

/* The names of an object that can be written. */
typedef struct lg_members {
    uint32_t n, *child, object;
    lg_str *word;
    bool *required;
    bool counted;
    uint32_t top;
} lg_members;

/* Room for one more element in an array of the grammar's memory; past `limit` the schema is too complex. */
void *lg_emit_more(lg_writer *w, void *p, uint32_t n, size_t *cap, size_t size, uint32_t limit,
                   const char *what);
uint32_t lg_emit_state(lg_writer *w);
/* The edge may be completed until the next one is made. */
lg_edge *lg_emit_edge(lg_writer *w, uint32_t from, uint32_t to, lg_edge_kind kind, uint32_t arg);
void lg_emit_word(lg_writer *w, uint32_t from, uint32_t to, lg_str text);
void lg_emit_gaps(lg_writer *w); /* makes the terminals of whitespace */
uint32_t lg_emit_rule(lg_writer *w, uint32_t conj); /* its rule, written by the next lg_emit_rules */
void lg_emit_rules(lg_writer *w);
bool lg_emit_fits(const lg_writer *w, uint32_t conj);
/* The object that an object body needs for its guards; targets are still to be filled. */
uint32_t lg_emit_new_object(lg_writer *w, const lg_body *b, lg_members *m);
/* A state where a name is due, those below i being done; hi: the first required one from i on, or LG_NONE. */
uint32_t lg_emit_names(lg_writer *w, const lg_members *m, uint32_t i, uint32_t hi, uint32_t names,
                       const uint32_t *behind_key);

#endif
