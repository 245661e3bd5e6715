/*
 * backend/cpu/arm_float: F32, F16 and BF16 weights times f32 activations (armv8-a).
 *
 * The eight lanes that kernels.h fixes are two vectors: inputs j, j + 8, ... for j < 4 and for j >= 4. The
 * tile of gemm is 16 rows of f32, padded with zeros to whole eights; four rows by three columns share the
 * loads. `kind` is a constant where these are inlined.
 */
#ifndef LG_BACKEND_CPU_ARM_FLOAT_H
#define LG_BACKEND_CPU_ARM_FLOAT_H

#include "backend/cpu/arm_tile.h"

enum { KIND_F32, KIND_F16, KIND_BF16, FLOAT_COLS = 3 };

typedef struct lanes8 {
    float32x4_t low, high;
} lanes8;

LG_INLINE size_t kind_bytes(int kind)
{
    return kind == KIND_F32 ? 4 : 2;
}

LG_INLINE float32x4_t load_kind4(int kind, const uint8_t *p)
{
    if (kind == KIND_F32)
        return vreinterpretq_f32_u8(vld1q_u8(p));
    uint16x4_t h = vreinterpret_u16_u8(vld1_u8(p));
    if (kind == KIND_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(h));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

/* The first n <= 8 weights from p, the rest zero. */
LG_INLINE lanes8 load_kind(int kind, const uint8_t *p, int n)
{
    uint8_t padded[32] = {0};

    if (n < 8) {
        memcpy(padded, p, (size_t)n * kind_bytes(kind));
        p = padded;
    }
    return (lanes8){load_kind4(kind, p), load_kind4(kind, p + 4 * kind_bytes(kind))};
}

LG_INLINE lanes8 add_products(lanes8 acc, lanes8 w, lanes8 x)
{
    return (lanes8){vfmaq_f32(acc.low, w.low, x.low), vfmaq_f32(acc.high, w.high, x.high)};
}

/* (s_0 + s_2) + (s_1 + s_3), s_j = acc_j + acc_(j + 4). */
LG_INLINE float lane_total(lanes8 a)
{
    float32x4_t s = vaddq_f32(a.low, a.high);
    float32x2_t pair = vadd_f32(vget_low_f32(s), vget_high_f32(s));

    return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}

LG_INLINE lanes8 no_lanes(void)
{
    return (lanes8){vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
}

LG_INLINE int eight_or(int rest)
{
    return rest < 8 ? rest : 8;
}

LG_INLINE void gemv_float(int kind, const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4];
        lanes8 acc[4] = {no_lanes(), no_lanes(), no_lanes(), no_lanes()};

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (int k = 0; k < w->n_in; k += 8) {
            int n = eight_or(w->n_in - k);
            lanes8 a = load_kind(KIND_F32, (const uint8_t *)x + (size_t)k * 4, n);
            for (int i = 0; i < 4; i++)
                acc[i] = add_products(acc[i], load_kind(kind, p[i] + (size_t)k * kind_bytes(kind), n), a);
        }
        for (int i = 0; i < 4 && r + i < n_rows; i++)
            y[r + i] = lane_total(acc[i]);
    }
}

LG_INLINE void unpack_float(int kind, const lg_mat *w, int row, int n_rows, void *tile)
{
    const uint8_t *p[LG_TILE_ROWS];
    float *out = tile;

    row_pointers(w, row, n_rows, LG_TILE_ROWS, p);
    for (int i = 0; i < LG_TILE_ROWS; i++)
        for (int k = 0; k < w->n_in; k += 8, out += 8) {
            lanes8 v = load_kind(kind, p[i] + (size_t)k * kind_bytes(kind), eight_or(w->n_in - k));
            vst1q_f32(out, v.low);
            vst1q_f32(out + 4, v.high);
        }
}

/* Four tile rows, `pitch` floats apart, times n_cols columns. */
LG_INLINE void gemm_float_4(const float *w, size_t pitch, int n_in, const float *const *x, int n_cols,
                            int n_rows, float *y, size_t y_stride)
{
    lanes8 acc[FLOAT_COLS][4];

    for (int c = 0; c < n_cols; c++)
        for (int i = 0; i < 4; i++)
            acc[c][i] = no_lanes();
    for (int k = 0; k < n_in; k += 8) {
        lanes8 a[FLOAT_COLS];
        for (int c = 0; c < n_cols; c++)
            a[c] = load_kind(KIND_F32, (const uint8_t *)(x[c] + k), eight_or(n_in - k));
        for (int i = 0; i < 4; i++) {
            const float *m = w + (size_t)i * pitch + k;
            for (int c = 0; c < n_cols; c++)
                acc[c][i] = add_products(acc[c][i], (lanes8){vld1q_f32(m), vld1q_f32(m + 4)}, a[c]);
        }
    }
    for (int c = 0; c < n_cols; c++)
        for (int i = 0; i < 4 && i < n_rows; i++)
            y[(size_t)c * y_stride + (size_t)i] = lane_total(acc[c][i]);
}

static void gemm_float(const void *tile, int n_in, int n_rows, const lg_acts *x, const int32_t *idx,
                       int n_cols, float *y, size_t y_stride)
{
    size_t pitch = ((size_t)n_in + 7) / 8 * 8;

    for (int c = 0; c < n_cols; c += FLOAT_COLS) {
        const float *a[FLOAT_COLS];
        int n = n_cols - c < FLOAT_COLS ? n_cols - c : FLOAT_COLS;

        for (int i = 0; i < n; i++)
            a[i] = (const float *)(const void *)(x->p + (size_t)(idx ? idx[c + i] : c + i) * x->stride);
        for (int r = 0; r < n_rows; r += 4) {
            const float *w = (const float *)tile + (size_t)r * pitch;
            float *out = y + (size_t)c * y_stride + r;

            if (n == FLOAT_COLS)
                gemm_float_4(w, pitch, n_in, a, FLOAT_COLS, n_rows - r, out, y_stride);
            else
                for (int i = 0; i < n; i++)
                    gemm_float_4(w, pitch, n_in, a + i, 1, n_rows - r, out + (size_t)i * y_stride, y_stride);
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
