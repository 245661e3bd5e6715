/*
 * backend/cpu/avx2_float: F32, F16 and BF16 weights times f32 activations, AVX2 and FMA.
 *
 * One ymm accumulator an output, as kernels.h fixes: lane j sums the inputs j, j + 8, ... The tile of gemm is
 * 16 rows of f32, padded with zeros to whole vectors; four rows by three columns share the loads of twelve
 * multiply-adds. `kind` is a constant where these are inlined: 0 F32, 1 F16, 2 BF16.
 */
#ifndef LG_BACKEND_CPU_AVX2_FLOAT_H
#define LG_BACKEND_CPU_AVX2_FLOAT_H

#include "backend/cpu/avx2_common.h"

enum { KIND_F32, KIND_F16, KIND_BF16 };

LG_INLINE size_t kind_bytes(int kind)
{
    return kind == KIND_F32 ? 4 : 2;
}

/* Eight weights from p. */
LG_INLINE __m256 load_kind(int kind, const uint8_t *p)
{
    if (kind == KIND_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    if (kind == KIND_F16)
        return _mm256_cvtph_ps(load128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

/* n < 8 weights, the rest zero. */
LG_INLINE __m256 load_kind_tail(int kind, const uint8_t *p, int n)
{
    uint8_t padded[32] = {0};

    memcpy(padded, p, (size_t)n * kind_bytes(kind));
    return load_kind(kind, padded);
}

LG_INLINE void gemv_float(int kind, const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const float *a = x;
    size_t bytes = kind_bytes(kind);
    int whole = w->n_in / 8 * 8, rest = w->n_in - whole;
    stream ahead = stream_of(w, row, n_rows, 0);

    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4];
        __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (int k = 0; k < whole; k += 8) {
            __m256 v = _mm256_loadu_ps(a + k);

            fetch(ahead.at, (int)bytes * 32);
            pass_on(&ahead, (int)bytes * 32);
            for (int i = 0; i < 4; i++)
                acc[i] = _mm256_fmadd_ps(load_kind(kind, p[i] + (size_t)k * bytes), v, acc[i]);
        }
        if (rest) {
            __m256 v = load_kind_tail(KIND_F32, (const uint8_t *)(a + whole), rest);

            for (int i = 0; i < 4; i++)
                acc[i] = _mm256_fmadd_ps(load_kind_tail(kind, p[i] + (size_t)whole * bytes, rest), v, acc[i]);
        }
        store_lanes(y + r, sum4_f32(acc[0], acc[1], acc[2], acc[3]), n_rows - r);
    }
}

LG_INLINE void unpack_float(int kind, const lg_mat *w, int row, int n_rows, void *tile)
{
    size_t bytes = kind_bytes(kind);
    int whole = w->n_in / 8 * 8, rest = w->n_in - whole;
    float *out = tile;
    const uint8_t *p[LG_TILE_ROWS];

    row_pointers(w, row, n_rows, LG_TILE_ROWS, p);
    for (int i = 0; i < LG_TILE_ROWS; i++) {
        for (int k = 0; k < whole; k += 8, out += 8)
            _mm256_store_ps(out, load_kind(kind, p[i] + (size_t)k * bytes));
        if (rest) {
            _mm256_store_ps(out, load_kind_tail(kind, p[i] + (size_t)whole * bytes, rest));
            out += 8;
        }
    }
}

/* Four tile rows from w (`pitch` floats apart) times n_cols <= 3 columns. */
LG_INLINE void gemm_float_4(const float *w, size_t pitch, int n_in, const float *const *x, int n_cols,
                            int n_rows, float *y, size_t y_stride)
{
    __m256 acc[3][4];
    int whole = n_in / 8 * 8, rest = n_in - whole;

    for (int c = 0; c < n_cols; c++)
        for (int i = 0; i < 4; i++)
            acc[c][i] = _mm256_setzero_ps();
    for (int k = 0; k < whole; k += 8) {
        __m256 v[3];

        for (int c = 0; c < n_cols; c++)
            v[c] = _mm256_loadu_ps(x[c] + k);
        for (int i = 0; i < 4; i++) {
            __m256 m = _mm256_load_ps(w + (size_t)i * pitch + k);

            for (int c = 0; c < n_cols; c++)
                acc[c][i] = _mm256_fmadd_ps(m, v[c], acc[c][i]);
        }
    }
    for (int c = 0; c < n_cols; c++) {
        if (rest) {
            __m256 v = load_kind_tail(KIND_F32, (const uint8_t *)(x[c] + whole), rest);

            for (int i = 0; i < 4; i++)
                acc[c][i] = _mm256_fmadd_ps(_mm256_load_ps(w + (size_t)i * pitch + whole), v, acc[c][i]);
        }
        store_lanes(y + (size_t)c * y_stride, sum4_f32(acc[c][0], acc[c][1], acc[c][2], acc[c][3]), n_rows);
    }
}

static void gemm_float(const void *tile, int n_in, int n_rows, const lg_acts *x, const int32_t *idx,
                       int n_cols, float *y, size_t y_stride)
{
    size_t pitch = ((size_t)n_in + 7) / 8 * 8;
    const float *w = tile;

    for (int c = 0; c < n_cols; c += 3) {
        const float *a[3];
        int n = n_cols - c < 3 ? n_cols - c : 3;

        for (int i = 0; i < n; i++)
            a[i] = (const float *)(const void *)(x->p + (size_t)(idx ? idx[c + i] : c + i) * x->stride);
        for (int r = 0; r < n_rows; r += 4) {
            float *out = y + (size_t)c * y_stride + r;
            const float *from = w + (size_t)r * pitch;

            if (n == 3)
                gemm_float_4(from, pitch, n_in, a, 3, n_rows - r, out, y_stride);
            else if (n == 2)
                gemm_float_4(from, pitch, n_in, a, 2, n_rows - r, out, y_stride);
            else
                gemm_float_4(from, pitch, n_in, a, 1, n_rows - r, out, y_stride);
        }
    }
}

#define FLOAT_KERNELS(id, kind)                                                          \
    static void gemv_##id(const lg_mat *w, int row, int n_rows, const void *x, float *y) \
    {                                                                                    \
        gemv_float(kind, w, row, n_rows, x, y);                                          \
    }                                                                                    \
    static void unpack_##id(const lg_mat *w, int row, int n_rows, void *tile)            \
    {                                                                                    \
        unpack_float(kind, w, row, n_rows, tile);                                        \
    }

FLOAT_KERNELS(f32, KIND_F32)
FLOAT_KERNELS(f16, KIND_F16)
FLOAT_KERNELS(bf16, KIND_BF16)

#endif
