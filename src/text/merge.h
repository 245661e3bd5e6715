/*
 * text/merge: the table of merge rules and the merging of one pre-token (chat.md 1.4).
 *
 * A symbol is a piece of text that takes part in merging: a token, or, when a file's rules name a text that
 * is no token, a number past the vocabulary, which is written as byte tokens in the end. The table is
 * immutable after create.
 *
 * Surprise: long pre-tokens take another path than short ones, linear but for a heap of distinct ranks,
 * because a megabyte of one letter is a single pre-token.
 */
#ifndef LG_TEXT_MERGE_H
#define LG_TEXT_MERGE_H

#include "text/vocab.h"

typedef struct lg_merge_table lg_merge_table;

/* The vocabulary is borrowed. LG_E_INPUT when it lacks a token for some byte. */
LG_NODISCARD lg_status lg_merge_table_create(const lg_vocab *v, lg_merge_table **out, lg_err *err);
void lg_merge_table_destroy(lg_merge_table *t); /* takes NULL */

/* Scratch memory of one thread; starts zeroed. */
typedef struct lg_merge_room {
    struct lg_merge_symbol *symbol;
    size_t n_symbol;
    struct lg_merge_bucket *bucket; /* by rank */
    int32_t *heap;
    size_t n_heap;
} lg_merge_room;
void lg_merge_room_free(lg_merge_room *room);
/* Give back what a very long pre-token made it grow to. */
void lg_merge_room_trim(lg_merge_room *room);

/* Well-mixed hash of a short text. */
uint32_t lg_merge_hash(lg_str text);
/* The token that merging `text` gives when that is a single token, from a table; -1 when it is not known to
 * be one. `hash` is lg_merge_hash(text). */
int32_t lg_merge_whole(const lg_merge_table *t, lg_str text, uint32_t hash);
/* Ids of one pre-token by rank order. `out` has room for text.n ids; *n_out says how many came. */
LG_NODISCARD lg_status lg_merge(const lg_merge_table *t, lg_merge_room *room, lg_str text, int32_t *out,
                                size_t *n_out, lg_err *err);

#endif
