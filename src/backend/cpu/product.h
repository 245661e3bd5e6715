/*
 * backend/cpu/product: weight rows times activation rows, the step below the ops that multiply.
 *
 * op_linear.c and op_moe.c split their work into blocks of at most LG_BLOCK_ROWS weight rows; a pool thread
 * brings each block through here. Which kernel runs depends on the number of columns, which changes speed and
 * never bits.
 */
#ifndef LG_BACKEND_CPU_PRODUCT_H
#define LG_BACKEND_CPU_PRODUCT_H

#include "backend/cpu/cpu_internal.h"

/* Rows that are unpacked together: 64 rows of 2048 inputs are 128 KiB of int8, a quarter of a typical L2. */
enum { LG_BLOCK_ROWS = 64 };

/* A run of rows that a thread takes from a queue, with one column, is 1 / LG_RUN_PART of what is left for it:
 * long runs first, since a jump costs as much as 8 to 20 KiB, short ones to end together
 * (docs/decisions/0254). */
enum { LG_RUN_PART = 2 };

/* How the weight wants its input. */
static inline lg_act_kind lg_product_act(const lg_cpu *c, const lg_weight *w)
{
    return c->k.type[w->type].act;
}

/* Bytes a thread needs for unpacked tiles of matrices with n_in inputs. */
size_t lg_product_tiles(int n_in);

/* Quantise rows [from, to) of x (x_stride floats apart); row r goes to out + r * lg_act_bytes. kind is not
 * F32. */
void lg_product_quant(const lg_cpu *c, lg_act_kind kind, const float *x, size_t x_stride, int n_in, int from,
                      int to, uint8_t *out);

/* Rows [row, row + n_rows) of a matrix, as bytes; clipped to the matrix. Empty when row is past its end. */
lg_span lg_product_span(const lg_weight *w, int expert, int64_t row, int n_rows);

/* y[col * y_stride + i] = scale * row (row + i) of matrix `expert` of w . activation idx[col] (col when idx
 * is NULL). n_rows is at most LG_BLOCK_ROWS unless n_cols is 1. */
typedef struct lg_product_args {
    const lg_weight *w;
    int expert, row, n_rows;
    const lg_acts *x;
    const int32_t *idx;
    int n_cols;
    float *y;
    size_t y_stride;
    /* weights that this thread reads afterwards: the jump to them costs as much as reading a short piece */
    lg_span next;
    void *tiles;  /* lg_product_tiles(n_in) bytes of this thread, 64-byte aligned */
} lg_product_args;
void lg_product(const lg_cpu *c, const lg_product_args *a);

#endif
