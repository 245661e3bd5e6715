/*
 * backend/step: everything that changes from one step to the next, in one block.
 *
 * A step is one pass of a graph over n_rows consecutive positions of the one live sequence. `begin` uploads
 * it to a fixed device address; ops read ids, positions, tables and counts from there, so a recorded list of
 * launches can be replayed with other numbers. Rollback after a rejected draft is a smaller `pos` in the next
 * step, nothing else.
 */
#ifndef LG_BACKEND_STEP_H
#define LG_BACKEND_STEP_H

#include <stdatomic.h>
#include <stdint.h>

#include "backend/tensor.h"

typedef enum lg_graph {
    LG_GRAPH_TARGET, /* the model: embed ... logits, and candidates if they are asked for */
    LG_GRAPH_SAMPLE, /* mask_logits, topk over the logits of the step before */
    LG_GRAPH_INJECT, /* drafter: taps of committed rows -> context K/V */
    LG_GRAPH_DRAFT,  /* drafter: one block */
    LG_GRAPH_HEAD,   /* logits of further rows of the step before */
} lg_graph;

enum {
    LG_STEP_LAYERS = 1 << 0, /* copy the residual after each layer to work->dbg_layers */
    LG_STEP_ROUTES = 1 << 1, /* copy the router's choice to work->dbg_routes */
    LG_STEP_TAPS = 1 << 2,   /* copy the drafter's taps to work->taps */
    LG_STEP_MASK = 1 << 3,   /* step->mask is applied before candidates are taken */
    LG_STEP_NO_HEAD = 1 << 4, /* no logits wanted at all: prefill chunk before the last */
};

typedef struct lg_step {
    lg_graph graph;
    unsigned flags;
    int n_rows;
    int64_t pos;        /* position of row 0; row r is at pos + r and sees positions <= pos + r */
    const int32_t *ids; /* n_rows token ids (host) */
    int n_out;
    const int32_t *out_rows; /* n_out row indices, ascending */
    /* table[c][p / 64] = block of class c that holds position p, or -1 where none is held; covers pos +
     * n_rows */
    const int32_t *table[LG_KV_CLASSES];
    int n_table[LG_KV_CLASSES];
    const uint32_t *mask; /* LG_STEP_MASK: n_out rows of ceil(vocab/32) words, bit set = allowed */
    /* how many candidates topk returns, 0: none; INJECT: rows of the taps that are passed over */
    int n_cand;
    atomic_bool *cancel;  /* NULL, or looked at between ops where the backend can */
} lg_step;

/* All that may change the list of launches. Equal keys -> equal launches. */
typedef struct lg_key {
    uint16_t graph, flags;
    uint16_t rows_bucket; /* 1, 2, 4, 8, 16, then the chunk size */
    uint16_t ctx_bucket;  /* log2 of the visible context, for attention split counts */
    uint16_t out_bucket;
    uint16_t n_cand; /* of INJECT; else whether there are any */
} lg_key;
lg_key lg_step_key(const lg_step *s);

#endif
