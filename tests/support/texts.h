/*
 * tests/support/texts: what the tests of tokenizer, templates and reply parser share: the 512-token
 * vocabulary, recorded cases (one JSON object a line), and transcripts of replies that can be compared as
 * text.
 *
 * A broken fixture ends the process; there is nothing to test then.
 */
#ifndef TEXTS_H
#define TEXTS_H

#include "text/reply.h"

/* The vocabulary of tests/golden/vocab512.gguf and an encoder for it; they live as long as the process. */
const lg_vocab *tt_vocab(void);
const lg_bpe *tt_bpe(void);

/* Calls fn for each case of tests/golden/FILE whose `kind` is `kind` (NULL: for all). Returns how many there
 * were. */
typedef void (*tt_case_fn)(void *ctx, const lg_json *c);
size_t tt_each(const char *file, const char *kind, tt_case_fn fn, void *ctx);

lg_json_doc *tt_parse(lg_str text);
void tt_unhex(lg_str hex, lg_buf *out);
/* The array of numbers, or an empty list for NULL. */
lg_ids tt_ids(const lg_json *array);
void tt_print_ids(const char *what, const lg_ids *ids);

/* A reply written down as lines "reasoning TEXT", "start I NAME", "args I TEXT", "end I", "finish REASON",
 * neighbours of one kind joined, with line breaks and backslashes escaped. */
typedef struct tt_transcript {
    lg_buf out;
    int kind, call; /* of the open line; kind -1: none */
} tt_transcript;
void tt_transcript_init(tt_transcript *t);
void tt_transcript_event(void *transcript, const lg_event *ev); /* an lg_event_fn */
void tt_transcript_finish(tt_transcript *t, const char *reason);
const char *tt_finish_name(lg_finish f);

/* Feed text as ordinary tokens: cut into `step` bytes each (0: one call of the encoder), never as control
 * tokens. */
bool tt_feed(lg_reply *r, lg_str text, size_t step);

#endif
