/*
 * app/bench_count: what a token costs, counted from the loaded tensors: bytes read and operations done.
 *
 * Pure functions of the model's weights and shapes. Operations are two per multiply-add, of the matrices and
 * of attention's two products; element-wise work is left out.
 */
#ifndef LG_APP_BENCH_COUNT_H
#define LG_APP_BENCH_COUNT_H

#include "engine/engine.h"

typedef struct lg_cost {
    double weight_bytes, kv_bytes; /* a token, on average */
    double ops;                    /* a token, on average */
} lg_cost;

/* Tokens decoded one at a time, the first of them at position `depth`. */
lg_cost lg_cost_decode(const lg_engine *e, int64_t depth, int64_t n);
/* A prompt of n tokens behind `depth` tokens, in the engine's chunks; logits of the last one only. A chunk
 * reads each expert that it is expected to touch once, as if routing were uniform and independent. */
lg_cost lg_cost_prefill(const lg_engine *e, int64_t depth, int64_t n);
/* Distinct experts that n tokens touch then, of E with k chosen each. */
double lg_expert_union(int n_expert, int k, double n);

#endif
