/*
 * tests/support/maker: writes small valid Laguna models with random weights, for tests that need a certain
 * shape.
 *
 * The tokenizer is copied from a vocabulary file. Hooks let a test change keys, names, shapes, types and
 * values, so that one writer serves both healthy and damaged models.
 */
#ifndef MAKER_H
#define MAKER_H

#include "gguf/gguf_write.h"

typedef struct mk_model {
    int n_layer, hidden, head_dim, n_kv_head, vocab;
    int heads_full, heads_window;
    int n_rot, n_rot_window;
    int window;            /* 0: the key is left out */
    const bool *is_window; /* n_layer; NULL: full iff layer % 4 == 0, and no pattern key */
    int n_dense, ffn_dense;
    int n_expert, n_used, ffn_expert, ffn_shared;
    bool elem_gate, tied;
    int64_t ctx;
    lg_qtype linear, experts, embed;
    uint64_t seed;
    const char *vocab_from;                     /* GGUF whose tokenizer keys are copied */
    const char *skip_keys;                      /* "|a|b|": keys that are left out, without prefix */
    void (*keys)(void *arg, lg_gguf_writer *w); /* further keys */
    /* before a tensor is declared; n_dims 0 leaves it out. name has room for 96 bytes */
    void (*shape)(void *arg, char *name, lg_qtype *type, int *n_dims, uint64_t ne[4]);
    /* its values before they are quantized; ne as in the container, n values */
    void (*values)(void *arg, const char *name, float *v, const uint64_t *ne, size_t n);
    void (*more)(void *arg, lg_gguf_writer *w, bool data); /* further tensors: declare, then write */
    void *arg;
} mk_model;

/* Nine layers, window 8, 8 experts: the smallest model that has everything (see the file for the numbers). */
mk_model mk_default(const char *vocab_from);
/* False with a line on stderr. */
bool mk_write(const mk_model *m, const char *path);

/* Random numbers: uniform in [0, 1), and about normal. */
double mk_uniform(uint64_t *state);
double mk_normal(uint64_t *state);

#endif
