/*
 * tests/cuda/layer: what the cases of whole layers share: shapes with their weights and inputs, the choice of
 * experts beside the outputs, and a comparison of rows bit for bit.
 */
#ifndef LG_TESTS_CUDA_LAYER_H
#define LG_TESTS_CUDA_LAYER_H

#include "cuda/gpu.h"

enum { ATTN = 512, PROJ = 2 }; /* columns of the attention's result; projections */

typedef struct layer {
    int hidden, ffn, n_expert, k, rows;
    /* w: gate, up, down of the experts and of the shared one */
    wt norm[2], router, bias, w[6], proj[PROJ], o;
    dev x, delta, other, attn;                     /* as they are before */
} layer;

int layer_shapes(void); /* how many there are */
/* Shape i, labelled, with random weights and so many rows of input; the caller closes it. */
void layer_open(gpu *g, layer *l, int i, int rows);
void layer_close(gpu *g, layer *l);

/* Experts and their weights, `n` entries: on the device, and here once fetched. */
typedef struct choice {
    lg_mem ids, weights;
    int32_t *id;
    float *weight;
    size_t n;
} choice;

void choice_open(gpu *g, choice *c, int n);
void choice_fetch(gpu *g, choice *c);
void choice_close(gpu *g, choice *c);
/* Checks k entries from a_first of a against those from b_first of b. */
void choice_same(gpu *g, const choice *a, int a_first, const choice *b, int b_first, int k, const char *what);

/* Checks all columns of a row, bit for bit; NaNs too: what nobody wrote. */
void row_same(gpu *g, const dev *a, int a_row, const dev *b, int b_row, const char *what, const char *where);

#endif
