/*
 * backend/cpu/arm_gemm: tiles of arm_tile.h times columns, for the level of the including file, which defines
 *   OPERAND_COLS           1 or 2: columns that one product instruction takes
 *   operand(x0, x1)        16 activations: 8 of one column twice, or 8 of each of two columns
 *   product(acc, w, a)     acc += two rows by eight codes times an operand:
 *                          OPERAND_COLS 1: lanes (row 0 in two parts, row 1 in two parts)
 *                          OPERAND_COLS 2: lanes (row 0 col 0, row 0 col 1, row 1 col 0, row 1 col 1)
 *
 * Eight rows (four row pairs) by two operands at a time: eight sums of a scale group and eight of the block
 * fit the 32 registers beside what is loaded. A slice of SLICE inputs of the tile stays in L1 while the
 * columns pass.
 */
#ifndef LG_BACKEND_CPU_ARM_GEMM_H
#define LG_BACKEND_CPU_ARM_GEMM_H

#include "backend/cpu/arm_tile.h"

enum { OPERANDS = 2, STEP_COLS = OPERANDS * OPERAND_COLS, PAIRS = 4, SLICE = 512, COL_GROUP = 64 };

/* Steps [step, step + n) of 8 codes of a half tile, added to sum[operand][pair]. */
LG_INLINE void add_steps(const uint8_t *codes, int step, int n, const uint8_t *const *x, int n_operands,
                         int32x4_t sum[OPERANDS][PAIRS])
{
    for (int k = step; k < step + n; k++) {
        int8x16_t w[PAIRS];

        for (int p = 0; p < PAIRS; p++)
            w[p] = vld1q_s8((const int8_t *)codes + 128 * k + 16 * p);
        for (int o = 0; o < n_operands; o++) {
            int8x16_t a = operand((const int8_t *)x[o * OPERAND_COLS] + 8 * k,
                                  (const int8_t *)x[(o + 1) * OPERAND_COLS - 1] + 8 * k);
            for (int p = 0; p < PAIRS; p++)
                sum[o][p] = product(sum[o][p], w[p], a);
        }
    }
}

/* Step `at` of the columns of an operand, as the product's lanes hold them. */
LG_INLINE int32x4_t step_of(const uint8_t *x0, const uint8_t *x1, int n_in, int at)
{
    int32_t two[2] = {act_steps(x0, n_in)[at], act_steps(x1, n_in)[at]};
    int32x2_t v = vld1_s32(two);

    return vcombine_s32(v, v);
}

/* Rows of column c of an operand, rows 4 v .. 4 v + 3 of the half tile in the lanes. */
LG_INLINE int32x4_t rows_of(const int32x4_t sum[PAIRS], int c, int v)
{
    if (OPERAND_COLS == 1)
        return vpaddq_s32(sum[2 * v], sum[2 * v + 1]);
    return c == 0 ? vuzp1q_s32(sum[2 * v], sum[2 * v + 1]) : vuzp2q_s32(sum[2 * v], sum[2 * v + 1]);
}

/* acc + d * da * (float)i, as kernels.h orders it. */
LG_INLINE float32x4_t add_term(float32x4_t acc, const float *d, float da, int32x4_t i)
{
    return vfmaq_f32(acc, vmulq_n_f32(vld1q_f32(d), da), vcvtq_f32_s32(i));
}

/* Sum of min * activation sum for four rows of a block of 256. */
LG_INLINE int32x4_t min_terms(run_form f, const int16_t *mins, const int16_t *sums)
{
    int32x4_t m = vdupq_n_s32(0);

    for (int g = 0; g < 256 / form_group(f); g++) {
        int s = form_group(f) == 32 ? sums[2 * g] + sums[2 * g + 1] : sums[g];
        m = vmlal_n_s16(m, vld1_s16(mins + LG_TILE_ROWS * g), (int16_t)s);
    }
    return m;
}

/* Rows 8 half .. 8 half + 7 of a tile slice, inputs [at, at + n), n_cols <= STEP_COLS columns, added to
 * acc[16 * column + row]. */
LG_INLINE void cols_of_half(run_form f, const uint8_t *slice, int n_in, int at, int n,
                            const uint8_t *const *x, int n_cols, int half, float *acc)
{
    const uint8_t *col[STEP_COLS];
    int n_operands = (n_cols + OPERAND_COLS - 1) / OPERAND_COLS, elems = form_elems(f);
    const int group = form_scaled(f) ? form_group(f) : 16;

    for (int k0 = at; k0 < at + n; k0 += elems, slice += form_bytes(f)) {
        const uint8_t *codes = slice + 64 * half;
        int32x4_t sum[OPERANDS][PAIRS];

        for (int c = 0; c < n_operands * OPERAND_COLS; c++)
            col[c] = x[c < n_cols ? c : n_cols - 1] + k0; // an odd last column is its own partner
        for (int o = 0; o < n_operands; o++)
            for (int p = 0; p < PAIRS; p++)
                sum[o][p] = vdupq_n_s32(0);
        for (int g = 0; g < elems / group; g++) {
            const int16_t *scale = (const int16_t *)(const void *)(slice + at_scales(f)) + 32 * g + 16 * half;
            int32x4_t part[OPERANDS][PAIRS];

            for (int o = 0; o < n_operands; o++)
                for (int p = 0; p < PAIRS; p++)
                    part[o][p] = vdupq_n_s32(0);
            add_steps(codes, group / 8 * g, group / 8, col, n_operands, part);
            for (int o = 0; o < n_operands; o++) {
                int32x4_t step = step_of(col[o * OPERAND_COLS] - k0, col[(o + 1) * OPERAND_COLS - 1] - k0,
                                         n_in, (k0 + group * g) / 16);
                for (int p = 0; p < PAIRS; p++) {
                    int32x4_t s = step;
                    if (form_scaled(f))
                        s = vmulq_s32(s, vmovl_s16(vld1_s16(scale + 4 * p)));
                    sum[o][p] = vmlaq_s32(sum[o][p], part[o][p], s);
                }
            }
        }
        const float *d = (const float *)(const void *)(slice + at_d(f)) + 8 * half;
        for (int c = 0; c < n_cols; c++) {
            float da = act_scales(x[c], n_in)[k0 / (elems == 256 ? 256 : 32)];
            const int16_t *sums = act_sums(x[c], n_in) + k0 / 16;
            float *out = acc + LG_TILE_ROWS * c + 8 * half;
            for (int v = 0; v < 2; v++) {
                int32x4_t rows = rows_of(sum[c / OPERAND_COLS], c % OPERAND_COLS, v);
                float32x4_t y = add_term(vld1q_f32(out + 4 * v), d + 4 * v, da, rows);
                if (f == RUN_32_MIN) {
                    y = add_term(y, d + LG_TILE_ROWS + 4 * v, da, vdupq_n_s32(sums[0] + sums[1]));
                } else if (form_has_min(f)) {
                    const int16_t *mins =
                        (const int16_t *)(const void *)(slice + at_mins(f)) + 8 * half + 4 * v;
                    y = add_term(y, d + LG_TILE_ROWS + 4 * v, da, min_terms(f, mins, sums));
                }
                vst1q_f32(out + 4 * v, y);
            }
        }
    }
}

LG_INLINE void gemm_runs(run_form f, const void *tile, int n_in, int n_rows, const lg_acts *x,
                         const int32_t *idx, int n_cols, float *y, size_t y_stride)
{
    float acc[COL_GROUP * LG_TILE_ROWS];
    const uint8_t *a[COL_GROUP];

    for (int first = 0; first < n_cols; first += COL_GROUP) {
        int group = n_cols - first < COL_GROUP ? n_cols - first : COL_GROUP;
        const uint8_t *slice = tile;

        for (int c = 0; c < group; c++)
            a[c] = x->p + (size_t)(idx ? idx[first + c] : first + c) * x->stride;
        memset(acc, 0, (size_t)group * LG_TILE_ROWS * sizeof *acc);
        for (int at = 0; at < n_in; at += SLICE) {
            int n = n_in - at < SLICE ? n_in - at : SLICE, c = 0;
            for (int half = 0; half < (n_rows > 8 ? 2 : 1); half++) {
                for (c = 0; c + STEP_COLS <= group; c += STEP_COLS)
                    cols_of_half(f, slice, n_in, at, n, a + c, STEP_COLS, half, acc + LG_TILE_ROWS * c);
                for (; c < group; c++)
                    cols_of_half(f, slice, n_in, at, n, a + c, 1, half, acc + LG_TILE_ROWS * c);
            }
            slice += (size_t)(n / form_elems(f)) * form_bytes(f);
        }
        for (int c = 0; c < group; c++)
            memcpy(y + (size_t)(first + c) * y_stride, acc + LG_TILE_ROWS * c, (size_t)n_rows * sizeof *acc);
    }
}

#define ARM_GEMM(name, form)                                                                       \
    static void name(const void *tile, int n_in, int n_rows, const lg_acts *x, const int32_t *idx, \
                     int n_cols, float *y, size_t y_stride)                                        \
    {                                                                                              \
        gemm_runs(form, tile, n_in, n_rows, x, idx, n_cols, y, y_stride);                          \
    }

ARM_GEMM(gemm_run_16, RUN_16)
ARM_GEMM(gemm_run_32, RUN_32)
ARM_GEMM(gemm_run_32_min, RUN_32_MIN)
ARM_GEMM(gemm_k32, RUN_K32)
ARM_GEMM(gemm_k32_min, RUN_K32_MIN)
ARM_GEMM(gemm_k16, RUN_K16)
ARM_GEMM(gemm_k16_min, RUN_K16_MIN)

static void set_gemm(lg_cpu_kernels *k)
{
    for (int type = 0; type < LG_QTYPE_MAX; type++) {
        if (!k->type[type].gemv || k->type[type].act == LG_ACT_F32)
            continue;
        switch (form_of((lg_qtype)type)) {
        case RUN_16: k->type[type].gemm = gemm_run_16; break;
        case RUN_32: k->type[type].gemm = gemm_run_32; break;
        case RUN_32_MIN: k->type[type].gemm = gemm_run_32_min; break;
        case RUN_K32: k->type[type].gemm = gemm_k32; break;
        case RUN_K32_MIN: k->type[type].gemm = gemm_k32_min; break;
        case RUN_K16: k->type[type].gemm = gemm_k16; break;
        case RUN_K16_MIN: k->type[type].gemm = gemm_k16_min; break;
        }
    }
}

#endif
