/*
 * backend/cpu/avx512_float: the AVX2 level's tiles of f32 (16 rows, padded to whole vectors of 8) times f32
 * columns.
 *
 * kernels.h sums in eight lanes, so a zmm holds two columns, one a half, and the tile's eight weights are
 * broadcast to both. Each half then adds up as a ymm of the AVX2 level does. gemv stays that level's: it
 * waits for memory.
 */
#ifndef LG_BACKEND_CPU_AVX512_FLOAT_H
#define LG_BACKEND_CPU_AVX512_FLOAT_H

#include "backend/cpu/avx512_common.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "backend/cpu/avx2_float.h"
#pragma GCC diagnostic pop

enum { FLOAT_COLS = 6 };

LG_INLINE __m512 two_256_ps(__m256 low, __m256 high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/* Four tile rows from w (`pitch` floats apart) times 2 * pairs columns, of which the last may be a copy:
 * n_cols are stored, n_rows of each. */
LG_INLINE void gemm_float_4_zmm(const float *w, size_t pitch, int n_in, const float *const *x, int pairs,
                                int n_cols, int n_rows, float *y, size_t y_stride)
{
    __m512 acc[FLOAT_COLS / 2][4], v[FLOAT_COLS / 2];
    int whole = n_in / 8 * 8, rest = n_in - whole;

    for (int c = 0; c < pairs; c++)
        for (int i = 0; i < 4; i++)
            acc[c][i] = _mm512_setzero_ps();
    for (int k = 0; k < n_in; k += 8) {
        for (int c = 0; c < pairs; c++)
            v[c] = k < whole
                       ? two_256_ps(_mm256_loadu_ps(x[2 * c] + k), _mm256_loadu_ps(x[2 * c + 1] + k))
                       : two_256_ps(load_kind_tail(KIND_F32, (const uint8_t *)(x[2 * c] + k), rest),
                                    load_kind_tail(KIND_F32, (const uint8_t *)(x[2 * c + 1] + k), rest));
        for (int i = 0; i < 4; i++) {
            __m512 m = _mm512_broadcast_f32x8(_mm256_load_ps(w + (size_t)i * pitch + k));

            for (int c = 0; c < pairs; c++)
                acc[c][i] = _mm512_fmadd_ps(m, v[c], acc[c][i]);
        }
    }
    for (int c = 0; c < 2 * pairs && c < n_cols; c++) {
        __m256 half[4];

        for (int i = 0; i < 4; i++)
            half[i] =
                c % 2 ? _mm512_extractf32x8_ps(acc[c / 2][i], 1) : _mm512_castps512_ps256(acc[c / 2][i]);
        store_lanes(y + (size_t)c * y_stride, sum4_f32(half[0], half[1], half[2], half[3]), n_rows);
    }
}

static void gemm_float_zmm(const void *tile, int n_in, int n_rows, const lg_acts *x, const int32_t *idx,
                           int n_cols, float *y, size_t y_stride)
{
    size_t pitch = ((size_t)n_in + 7) / 8 * 8;
    const float *w = tile;

    for (int c = 0; c < n_cols; c += FLOAT_COLS) {
        const float *a[FLOAT_COLS];
        int n = n_cols - c < FLOAT_COLS ? n_cols - c : FLOAT_COLS;

        for (int i = 0; i < FLOAT_COLS; i++) {
            int col = c + (i < n ? i : n - 1);

            a[i] = (const float *)(const void *)(x->p + (size_t)(idx ? idx[col] : col) * x->stride);
        }
        for (int r = 0; r < n_rows; r += 4) {
            float *out = y + (size_t)c * y_stride + r;
            const float *from = w + (size_t)r * pitch;

            if (n > 4)
                gemm_float_4_zmm(from, pitch, n_in, a, 3, n, n_rows - r, out, y_stride);
            else if (n > 2)
                gemm_float_4_zmm(from, pitch, n_in, a, 2, n, n_rows - r, out, y_stride);
            else
                gemm_float_4_zmm(from, pitch, n_in, a, 1, n, n_rows - r, out, y_stride);
        }
    }
}

#endif
