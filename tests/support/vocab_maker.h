/*
 * tests/support/vocab_maker: small vocabularies made by a test: GGUF files without tensors, whose tokenizer
 * keys the test chooses. Normal tokens and merges are given in bytes; the maker spells them in the byte
 * alphabet.
 */
#ifndef VOCAB_MAKER_H
#define VOCAB_MAKER_H

#include "gguf/gguf_write.h"
#include "text/vocab.h"

typedef struct vm_merge {
    const char *left, *right;
} vm_merge;

typedef struct vm_vocab {
    const char *model, *pre, *chat_template; /* NULL: left out */
    bool no_tokens, no_types, no_merges;     /* leave the key out */
    const char *const *added; /* NULL-terminated, literal; NULL: none */
    int added_class;          /* of all of them; 0: CONTROL */
    bool no_bytes;            /* leave out the 256 byte tokens that follow */
    const char *const *tokens; /* NULL-terminated, behind them */
    const vm_merge *merges;
    size_t n_merges;
    void (*more)(lg_gguf_writer *w); /* further keys; may be NULL */
} vm_vocab;

/* The spelling of bytes in the byte alphabet. */
void vm_spell(lg_str bytes, lg_buf *out);
/* Writes the file. Aborts on failure. */
void vm_write(const vm_vocab *v, const char *path);
/* Writes a temporary file and loads it; the error is the loader's. */
lg_status vm_load(const vm_vocab *v, lg_vocab **out, lg_err *err);

#endif
