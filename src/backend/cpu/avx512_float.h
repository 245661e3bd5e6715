/*
 * backend/cpu/avx512_float: F32, F16 and BF16 weights times many columns of f32, AVX-512.
 *
 * kernels.h sums in eight lanes, so a zmm holds two weight rows, one a half, and eight activations are
 * broadcast to both. A tile is two blocks of eight rows; eight inputs of a block are four zmm, side by side,
 * so that a slice of them lies in one piece: rows 8 KiB apart would share the same few sets of L1. Sums wait
 * in memory while other columns pass over the slice. gemv stays the AVX2 level's: it waits for memory.
 */
#ifndef LG_BACKEND_CPU_AVX512_FLOAT_H
#define LG_BACKEND_CPU_AVX512_FLOAT_H

#include "backend/cpu/avx512_common.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "backend/cpu/avx2_float.h"
#pragma GCC diagnostic pop

enum {
    FLOAT_ROWS = 8,       /* of a block */
    FLOAT_PAIRS = FLOAT_ROWS / 2,
    FLOAT_COLS = 6,       /* at once, at most: 24 sums, 4 weights, an activation */
    FLOAT_GROUP = 32,     /* columns that pass over a slice: their sums are 8 KiB */
    FLOAT_SLICE = 512,    /* inputs: 16 KiB of weights, 2 KiB of each column */
};

/* Inputs in whole vectors of eight. */
LG_INLINE size_t float_pitch(int n_in)
{
    return ((size_t)n_in + 7) / 8 * 8;
}

/* Eight inputs from k on, zeros from n on. */
LG_INLINE __m256 eight_of(int kind, const uint8_t *row, int k, int n)
{
    const uint8_t *p = row + (size_t)k * kind_bytes(kind);

    return n - k >= 8 ? load_kind(kind, p) : load_kind_tail(kind, p, n - k);
}

LG_INLINE void unpack_float_pairs(int kind, const lg_mat *w, int row, int n_rows, void *tile)
{
    const uint8_t *p[LG_TILE_ROWS];

    row_pointers(w, row, n_rows, LG_TILE_ROWS, p);
    for (int r = 0; r < LG_TILE_ROWS; r += 2) {
        float *out = (float *)tile + (size_t)(r / FLOAT_ROWS) * FLOAT_ROWS * float_pitch(w->n_in) +
                     (size_t)(r % FLOAT_ROWS) * 8;

        for (int k = 0; k < w->n_in; k += 8, out += 8 * FLOAT_ROWS) {
            _mm256_store_ps(out, eight_of(kind, p[r], k, w->n_in));
            _mm256_store_ps(out + 8, eight_of(kind, p[r + 1], k, w->n_in));
        }
    }
}

/* Inputs [k, k + n) of a block, at w, times n_cols columns; sums of a column are FLOAT_PAIRS zmm at acc. */
LG_INLINE void float_cols(const float *w, int n_in, int k, int n, const float *const *x, int n_cols,
                          float *acc)
{
    __m512 sum[FLOAT_COLS][FLOAT_PAIRS];

    for (int c = 0; c < n_cols; c++)
        for (int i = 0; i < FLOAT_PAIRS; i++)
            sum[c][i] = _mm512_load_ps(acc + 16 * (FLOAT_PAIRS * c + i));
    for (int end = k + n; k < end; k += 8, w += 8 * FLOAT_ROWS) {
        __m512 m[FLOAT_PAIRS];

        for (int i = 0; i < FLOAT_PAIRS; i++)
            m[i] = _mm512_load_ps(w + 16 * i);
        for (int c = 0; c < n_cols; c++) {
            __m512 v = _mm512_broadcast_f32x8(
                eight_of(KIND_F32, (const uint8_t *)x[c], k, n_in));

            for (int i = 0; i < FLOAT_PAIRS; i++)
                sum[c][i] = _mm512_fmadd_ps(m[i], v, sum[c][i]);
        }
    }
    for (int c = 0; c < n_cols; c++)
        for (int i = 0; i < FLOAT_PAIRS; i++)
            _mm512_store_ps(acc + 16 * (FLOAT_PAIRS * c + i), sum[c][i]);
}

/* As few turns as there can be, of the same number of columns or nearly. */
LG_INLINE void float_slice(const float *w, int n_in, int k, int n, const float *const *x, int n_cols,
                           float *acc)
{
    int turns = (n_cols + FLOAT_COLS - 1) / FLOAT_COLS;

    for (int c = 0; turns > 0; turns--) {
        int now = (n_cols - c + turns - 1) / turns;
        float *at = acc + 16 * FLOAT_PAIRS * c;

        switch (now) {
        case 6: float_cols(w, n_in, k, n, x + c, 6, at); break;
        case 5: float_cols(w, n_in, k, n, x + c, 5, at); break;
        case 4: float_cols(w, n_in, k, n, x + c, 4, at); break;
        case 3: float_cols(w, n_in, k, n, x + c, 3, at); break;
        case 2: float_cols(w, n_in, k, n, x + c, 2, at); break;
        default: float_cols(w, n_in, k, n, x + c, 1, at); break;
        }
        c += now;
    }
}

/* y of four rows, whose sums are two zmm. */
LG_INLINE void store_float_rows(const float *acc, float *y, int n_rows)
{
    store_lanes(y,
                sum4_f32(_mm256_load_ps(acc), _mm256_load_ps(acc + 8), _mm256_load_ps(acc + 16),
                         _mm256_load_ps(acc + 24)),
                n_rows);
}

static void gemm_float_zmm(const void *tile, int n_in, int n_rows, const lg_acts *x, const int32_t *idx,
                           int n_cols, float *y, size_t y_stride)
{
    _Alignas(64) float acc[FLOAT_GROUP * FLOAT_PAIRS * 16];
    const float *a[FLOAT_GROUP];

    for (int c = 0; c < n_cols; c += FLOAT_GROUP) {
        int n = n_cols - c < FLOAT_GROUP ? n_cols - c : FLOAT_GROUP;

        for (int i = 0; i < n; i++)
            a[i] = (const float *)(const void *)(x->p + (size_t)(idx ? idx[c + i] : c + i) * x->stride);
        for (int r = 0; r < n_rows; r += FLOAT_ROWS) {
            const float *w = (const float *)tile + (size_t)r * float_pitch(n_in);

            memset(acc, 0, (size_t)n * FLOAT_PAIRS * 16 * sizeof *acc);
            for (int k = 0; k < n_in; k += FLOAT_SLICE)
                float_slice(w + (size_t)k * FLOAT_ROWS, n_in, k,
                            n_in - k < FLOAT_SLICE ? n_in - k : FLOAT_SLICE, a, n, acc);
            for (int i = 0; i < n; i++)
                for (int half = 0; half < FLOAT_ROWS && r + half < n_rows; half += 4)
                    store_float_rows(acc + 16 * FLOAT_PAIRS * i + 8 * half,
                                     y + (size_t)(c + i) * y_stride + r + half, n_rows - r - half);
        }
    }
}

#define FLOAT_UNPACK(id, kind)                                                           \
    static void unpack_##id##_pairs(const lg_mat *w, int row, int n_rows, void *tile)    \
    {                                                                                    \
        unpack_float_pairs(kind, w, row, n_rows, tile);                                  \
    }

FLOAT_UNPACK(f32, KIND_F32)
FLOAT_UNPACK(f16, KIND_F16)
FLOAT_UNPACK(bf16, KIND_BF16)

#endif
