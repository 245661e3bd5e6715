/*
 * engine/engine_int: the engine's struct, shared by the files of this directory that work on an engine.
 *
 * Every buffer that a decode step touches is made when the engine is opened; a step allocates nothing.
 */
#ifndef LG_ENGINE_ENGINE_INT_H
#define LG_ENGINE_ENGINE_INT_H

#include "engine/spec.h"

struct lg_engine {
    lg_gguf *gguf;
    bool gguf_borrowed;
    lg_vocab *vocab;
    lg_bpe *bpe;
    lg_backend *b;
    lg_hparams hp;
    lg_laguna model;
    lg_plan plan;
    lg_kv kv;
    lg_work work;
    bool prepared; /* kv and work are made */
    lg_spec *spec; /* the drafter; NULL: none */
    bool spec_off; /* not for the reply in progress */
    lg_prefix *px;
    lg_rates rates;
    lg_cache_now cache;
    lg_cache_stats cache_stats; /* without `now` */
    lg_think_tables think;
    int32_t *tokens;     /* ids of the live sequence; plan.ctx of them */
    int32_t *out_rows;   /* work.max_out */
    size_t chunk_first;  /* the last chunk: its first row in the running eval, its rows */
    int chunk_rows;
    int n_out;           /* output rows of the last step */
    /* host side of sampling; one element a vocabulary entry, unless said otherwise */
    float *row;
    int32_t *heap, *count;
    uint32_t *allowed;   /* one bit a vocabulary entry */
    uint32_t *legal;     /* as `allowed`, for the coming token of a constrained reply */
    lg_token_trie *trie; /* NULL: no_trie says why */
    lg_err no_trie;
    int32_t *cand_ids;   /* work.cand.max_cand + 1 */
    float *cand_logits;
    uint32_t *row_mask;  /* of all rows of a verification */
    void *debug_rows;    /* chunk rows of hidden floats; NULL without params.debug or routes */
    /* work for the host while the device is busy with the coming step; NULL: none */
    void (*beside)(void *ctx);
    void *beside_ctx;
};

/* A step of the live sequence's tables; the caller adds what the graph needs. */
lg_step lg_engine_step(lg_engine *e, lg_graph graph, int n_rows, atomic_bool *cancel);
/* The step is to give candidates, which `mask` (NULL: nothing) bounds. */
void lg_engine_want_candidates(int n_cand, const uint32_t *mask, lg_step *s);
/* A step has been submitted: does what is to be done beside it, once, and waits for its results. */
LG_NODISCARD lg_status lg_engine_wait(lg_engine *e, lg_err *err);

#endif
