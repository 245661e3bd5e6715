/*
 * backend/cpu/product: weight rows times activation rows, the step below the ops that multiply.
 *
 * op_linear.c and op_moe.c split their work into blocks of at most LG_BLOCK_ROWS weight rows; a pool thread brings each
 * block through here. Which kernel runs depends on the number of columns, which changes speed and never bits.
 */
#ifndef LG_BACKEND_CPU_PRODUCT_H
#define LG_BACKEND_CPU_PRODUCT_H

#include "backend/cpu/cpu_internal.h"

/* Rows that are unpacked together: 64 rows of 2048 inputs are 128 KiB of int8, a quarter of a typical L2. */
enum { LG_BLOCK_ROWS = 64 };

/* Matrix `expert` of a weight (0 for a plain matrix). */
lg_mat lg_product_mat(const lg_weight *w, int expert);

/* How the weight wants its input. */
static inline lg_act_kind lg_product_act(const lg_cpu *c, const lg_weight *w)
{
    return c->k.type[w->type].act;
}

/* Bytes a thread needs for unpacked tiles of matrices with n_in inputs. */
size_t lg_product_tiles(int n_in);

/* Quantise rows [from, to) of x (x_stride floats apart); row r goes to out + r * lg_act_bytes. kind is not F32. */
void lg_product_quant(const lg_cpu *c, lg_act_kind kind, const float *x, size_t x_stride, int n_in, int from, int to,
                      uint8_t *out);

/* y[col * y_stride + i] = scale of m * row (row + i) of m . activation idx[col] (col when idx is NULL); m is one matrix of
 * w. n_rows is at most LG_BLOCK_ROWS unless n_cols is 1. `tiles`: lg_product_tiles(n_in) bytes of this thread, 64-byte
 * aligned. */
void lg_product(const lg_cpu *c, const lg_weight *w, const lg_mat *m, int row, int n_rows, const lg_acts *x,
                const int32_t *idx, int n_cols, float *y, size_t y_stride, void *tiles);

#endif
