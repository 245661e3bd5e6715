/*
 * backend/cpu/avx2_q32: types with blocks of 32 signed codes and one f32 scale, AVX2. Q8_0 is read in place;
 * the others (and NVFP4, whose runs are 16) come through blocks.h.
 *
 * vpmaddubsw takes an unsigned and a signed operand and saturates at int16. |w| is the unsigned one and a *
 * sign(w) the signed one: at most 2 * 128 * 127 = 32512, exact.
 *
 * Tile of gemm, for each run of E (32 or 16) inputs: E / 4 steps of 64 bytes, a step holding 4 consecutive
 * codes of each of the 16 rows; then 16 f32 scales; then, for types with mins, 16 f32 mins.
 */
#ifndef LG_BACKEND_CPU_AVX2_Q32_H
#define LG_BACKEND_CPU_AVX2_Q32_H

#include "backend/cpu/avx2_common.h"

/* Eight int32, each the sum of four products of signed bytes times their steps (int16): w is given as |w| and
 * w. The multiplication by the step is the addition of two that vpmaddwd does anyway. */
LG_INLINE __m256i dot_signed(__m256i abs_w, __m256i w, __m256i a, __m256i steps)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(abs_w, _mm256_sign_epi8(a, w)), steps);
}

static void gemv_q8_0(const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const __m256i spread = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3,
                                            2, 3, 2, 3, 2, 3, 2, 3, 2, 3);
    const int8_t *q = x;
    const int16_t *steps = act_steps(x, w->n_in);
    const float *scales = act_scales(x, w->n_in);
    stream ahead = stream_of(w, row, n_rows, 0);

    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4];
        __m128 acc = _mm_setzero_ps();

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (int b = 0; b < w->n_in / 32; b++) {
            __m256i a = load256(q + 32 * b), dot[4];
            __m256i step = _mm256_shuffle_epi8(broadcast_i32(steps + 2 * b), spread);

            LG_UNROLL(4)
            for (int i = 0; i < 4; i++) {
                __m256i v = load256_once(p[i] + 2);

                dot[i] = fetch_part(&ahead, 4 * 34, i, 4, dot_signed(_mm256_abs_epi8(v), v, a, step));
            }
            __m128 sum = _mm_cvtepi32_ps(sum4_i32(dot[0], dot[1], dot[2], dot[3]));
            acc = _mm_fmadd_ps(_mm_mul_ps(four_f16(p), _mm_set1_ps(scales[b])), sum, acc);
            for (int i = 0; i < 4; i++)
                p[i] += 34;
            pass_on(&ahead, 4 * 34);
        }
        store_lanes(y + r, acc, n_rows - r);
    }
}

/* ---- tiles ---- */

LG_INLINE size_t run_bytes(int elems, bool has_min)
{
    return (size_t)elems * LG_TILE_ROWS + (has_min ? 2 : 1) * LG_TILE_ROWS * sizeof(float);
}

static void unpack_q8_0(const lg_mat *w, int row, int n_rows, void *tile)
{
    const uint8_t *p[LG_TILE_ROWS];
    uint8_t *out = tile;
    shares next = shares_of(&w->next, w->n_in / 32);

    row_pointers(w, row, n_rows, LG_TILE_ROWS, p);
    for (int b = 0; b < w->n_in / 32; b++, out += run_bytes(32, false)) {
        fetch_shares(&next, 1);
        for (int half = 0; half < 2; half++) {
            __m256i t[8];

            transpose_rows(p + 8 * half, 2, t);
            for (int i = 0; i < 8; i++)
                _mm256_store_si256((__m256i *)(out + 64 * i + 32 * half), t[i]);
            float *d = (float *)(void *)(out + 512) + 8 * half;
            _mm_store_ps(d, four_f16(p + 8 * half));
            _mm_store_ps(d + 4, four_f16(p + 8 * half + 4));
        }
        for (int i = 0; i < LG_TILE_ROWS; i++)
            p[i] += 34;
    }
}

/* Any other type of this family. */
LG_INLINE void unpack_runs(lg_qtype type, const lg_mat *w, int row, int n_rows, void *tile)
{
    const uint8_t *p[LG_TILE_ROWS];
    int elems = lg_run_elems(type);
    bool has_min = lg_run_has_min(type);
    uint8_t *out = tile;
    lg_terms t;

    row_pointers(w, row, n_rows, LG_TILE_ROWS, p);
    for (int r = 0; r < w->n_in / elems; r++, out += run_bytes(elems, has_min))
        for (int i = 0; i < LG_TILE_ROWS; i++) {
            float *d = (float *)(void *)(out + (size_t)elems * LG_TILE_ROWS);

            lg_terms_get(type, p[i], r, &t);
            for (int k = 0; k < elems; k += 4)
                memcpy(out + 16 * k + 4 * i, t.code + k, 4);
            d[i] = t.d;
            if (has_min)
                d[LG_TILE_ROWS + i] = t.m;
        }
}

/* The three shapes of a run. */
enum { RUN_32, RUN_32_MIN, RUN_16 };

/* See gemm_sliced. */
LG_INLINE void run_cols(int variant, const uint8_t *slice, int n_in, int at, int n, const uint8_t *const *x,
                        int n_cols, shares *ahead, float *sums)
{
    const int elems = variant == RUN_16 ? 16 : 32;
    const bool has_min = variant == RUN_32_MIN;
    __m256 acc[2 * 4];

    for (int i = 0; i < 2 * n_cols; i++)
        acc[i] = _mm256_load_ps(sums + 8 * i);
    for (int k0 = at; k0 < at + n; k0 += elems, slice += run_bytes(elems, has_min)) {
        const float *d = (const float *)(const void *)(slice + (size_t)elems * LG_TILE_ROWS);
        __m256i dot[2 * 4];

        fetch_shares(ahead, 1);
        for (int i = 0; i < 2 * n_cols; i++)
            dot[i] = _mm256_setzero_si256();
        LG_UNROLL(8)
        for (int k = 0; k < elems / 4; k++) {
            __m256i w0 = load256(slice + 64 * k), w1 = load256(slice + 64 * k + 32);
            __m256i u0 = _mm256_abs_epi8(w0), u1 = _mm256_abs_epi8(w1);

            for (int c = 0; c < n_cols; c++) {
                __m256i a = broadcast_i32(x[c] + k0 + 4 * k);
                __m256i step = _mm256_set1_epi16(act_steps(x[c], n_in)[(k0 + 4 * k) / 16]);

                dot[2 * c] = _mm256_add_epi32(dot[2 * c], dot_signed(u0, w0, a, step));
                dot[2 * c + 1] = _mm256_add_epi32(dot[2 * c + 1], dot_signed(u1, w1, a, step));
                keep(&dot[2 * c]);
                keep(&dot[2 * c + 1]);
            }
        }
        for (int c = 0; c < n_cols; c++) {
            __m256 da = _mm256_set1_ps(act_scales(x[c], n_in)[k0 / 32]);

            for (int h = 0; h < 2; h++)
                acc[2 * c + h] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(d + 8 * h), da),
                                                 _mm256_cvtepi32_ps(dot[2 * c + h]), acc[2 * c + h]);
            if (has_min) {
                const int16_t *s = act_sums(x[c], n_in) + k0 / 16;
                __m256 sum = _mm256_set1_ps((float)(s[0] + s[1]));

                for (int h = 0; h < 2; h++)
                    acc[2 * c + h] = _mm256_fmadd_ps(
                        _mm256_mul_ps(_mm256_load_ps(d + LG_TILE_ROWS + 8 * h), da), sum, acc[2 * c + h]);
            }
        }
    }
    for (int i = 0; i < 2 * n_cols; i++)
        _mm256_store_ps(sums + 8 * i, acc[i]);
}

LG_SLICED_GEMM(gemm_runs32, run_cols, RUN_32, 4, 32, run_bytes(32, false))
LG_SLICED_GEMM(gemm_runs32_min, run_cols, RUN_32_MIN, 4, 32, run_bytes(32, true))
LG_SLICED_GEMM(gemm_runs16, run_cols, RUN_16, 4, 16, run_bytes(16, false))

#define RUN_UNPACK(id)                                                        \
    static void unpack_##id(const lg_mat *w, int row, int n_rows, void *tile) \
    {                                                                         \
        unpack_runs(LG_##id, w, row, n_rows, tile);                           \
    }

RUN_UNPACK(Q4_0)
RUN_UNPACK(Q4_1)
RUN_UNPACK(Q5_0)
RUN_UNPACK(Q5_1)
RUN_UNPACK(IQ4_NL)
RUN_UNPACK(MXFP4)
RUN_UNPACK(NVFP4)

#endif
