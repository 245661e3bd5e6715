/*
 * tests/grammar/feed: what the programs of this folder share: a vocabulary with its tables, texts fed into a
 * grammar byte by byte, and random walks through it.
 */
#ifndef FEED_H
#define FEED_H

#include "grammar/grammar.h"

typedef struct fd_world {
    lg_vocab *vocab;
    lg_bpe *bpe;
    lg_token_trie *trie;
    int32_t byte[256]; /* the token of each byte */
    uint64_t rng;
} fd_world;

void fd_open(fd_world *w, const char *gguf); /* ends the process on failure */
void fd_close(fd_world *w);
uint32_t fd_pick(fd_world *w, uint32_t n); /* below n */

/* Is the text, fed in bytes, a whole value? */
bool fd_accepts(const fd_world *w, lg_grammar *g, lg_str text);
/* The same, fed in tokens chosen at random among those that the text goes on with; each must be in its mask.
 */
bool fd_accepts_cut(fd_world *w, lg_grammar *g, lg_str text);

/* How a walk chooses: among all tokens alike; or the longest first, none that ends the value. */
typedef enum fd_chooser { FD_UNIFORM, FD_GREEDY } fd_chooser;
/* Masked tokens at random; after `free` of them those that close something come first. *done: the value was
 * finished within `most` tokens. False, with a line on stderr: no token was allowed, or one of the mask was
 * refused. */
bool fd_walk(fd_world *w, lg_grammar *g, fd_chooser how, int free, int most, lg_buf *out, bool *done);

#endif
