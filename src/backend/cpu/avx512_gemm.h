/*
 * backend/cpu/avx512_gemm: the AVX2 level's tiles times columns, AVX-512 VNNI.
 *
 * A step of a tile, four codes of 16 rows, is one zmm, and one vpdpbusd multiplies it by four activations of
 * a column, broadcast from memory. Sums of a sub-block are int32 from the start: one vpmulld by the scale for
 * each 8 (or 4) steps. All integers are exact, and lanes are rows, so the f32 operations of a row are those
 * of kernels.h in their order.
 */
#ifndef LG_BACKEND_CPU_AVX512_GEMM_H
#define LG_BACKEND_CPU_AVX512_GEMM_H

#include "backend/cpu/avx512_common.h"

enum { VNNI_COLS = 4 }; /* of gemm_sliced */

/* part[c] += steps [step, step + n) of the tile times column c. Codes are unsigned, or signed with `up`. */
LG_INLINE void add_steps_vnni(bool up, const uint8_t *codes, int step, int n, const uint8_t *const *q,
                              int n_cols, __m512i *part)
{
    LG_UNROLL(8)
    for (int k = step; k < step + n; k++) {
        __m512i w = load512(codes + 64 * k);

        if (up)
            w = up_128(w);
        LG_UNROLL(4)
        for (int c = 0; c < n_cols; c++)
            part[c] = _mm512_dpbusd_epi32(part[c], w, broadcast512_i32(q[c] + 4 * k));
    }
}

/* Tiles hold a scale as an int16 pair (s, s) a row; rows of activations hold two equal steps for 32 inputs:
 * their product as int32. */
LG_INLINE __m512i scale_step(__m512i scales, const int16_t *steps)
{
    return _mm512_srai_epi32(_mm512_mullo_epi16(scales, broadcast512_i32(steps)), 16);
}

/* sum[c] = mins times the activation sums of column c, given as int16 pairs. */
LG_INLINE void min_sums_vnni(const uint8_t *mins, int n_pairs, const int16_t *const *sums, int n_cols,
                             __m512i *sum)
{
    for (int c = 0; c < n_cols; c++)
        sum[c] = _mm512_setzero_si512();
    for (int j = 0; j < n_pairs; j++) {
        __m512i m = load512(mins + 64 * j);

        for (int c = 0; c < n_cols; c++)
            sum[c] = _mm512_dpwssd_epi32(sum[c], m, broadcast512_i32(sums[c] + 2 * j));
    }
}

/* acc + d * da * (float)v, or minus it, for 16 rows; d is in the tile. */
LG_INLINE __m512 add_block_vnni(const uint8_t *d, float da, __m512i v, bool minus, __m512 acc)
{
    __m512 s = _mm512_mul_ps(_mm512_loadu_ps(d), _mm512_set1_ps(da)), f = _mm512_cvtepi32_ps(v);

    return minus ? _mm512_fnmadd_ps(s, f, acc) : _mm512_fmadd_ps(s, f, acc);
}

enum { VNNI_Q45_K, VNNI_Q6_K };

/* Unsigned codes: Q4_K and Q5_K, whose tiles are alike, and Q6_K. See gemm_sliced. */
LG_INLINE void k_cols_vnni(int form, const uint8_t *slice, int n_in, int at, int n, const uint8_t *const *x,
                           int n_cols, float *acc)
{
    const bool six = form == VNNI_Q6_K;
    const int groups = six ? 16 : 8, steps = 64 / groups;

    for (int k0 = at; k0 < at + n; k0 += 256, slice += six ? Q6_BYTES : Q45_BYTES) {
        __m512i dot[VNNI_COLS], min[VNNI_COLS];
        _Alignas(16) int16_t sums32[VNNI_COLS][8];
        const int16_t *sums[VNNI_COLS], *a[VNNI_COLS];
        const uint8_t *q[VNNI_COLS];

        for (int c = 0; c < n_cols; c++) {
            dot[c] = _mm512_setzero_si512();
            q[c] = x[c] + k0;
            a[c] = act_steps(x[c], n_in) + k0 / 16;
            sums[c] = act_sums(x[c], n_in) + k0 / 16;
            if (!six) {
                _mm_store_si128((__m128i *)sums32[c], sums_of_32(sums[c]));
                sums[c] = sums32[c];
            }
        }
        for (int g = 0; g < groups; g++) {
            __m512i s = load512(slice + TILE_SCALES + 64 * g), part[VNNI_COLS];

            for (int c = 0; c < n_cols; c++)
                part[c] = _mm512_setzero_si512();
            add_steps_vnni(false, slice, steps * g, steps, q, n_cols, part);
            for (int c = 0; c < n_cols; c++)
                dot[c] = _mm512_add_epi32(
                    dot[c], _mm512_mullo_epi32(part[c], scale_step(s, a[c] + steps * g / 8 * 2)));
        }
        min_sums_vnni(slice + (six ? Q6_MINS : Q45_MINS), groups / 2, sums, n_cols, min);
        for (int c = 0; c < n_cols; c++) {
            float da = act_scales(x[c], n_in)[k0 / 256];
            __m512 sum = _mm512_loadu_ps(acc + LG_TILE_ROWS * c);

            if (six) {
                sum = add_block_vnni(slice + Q6_D, da, _mm512_sub_epi32(dot[c], min[c]), false, sum);
            } else {
                sum = add_block_vnni(slice + Q45_D, da, dot[c], false, sum);
                sum = add_block_vnni(slice + Q45_DMIN, da, min[c], true, sum);
            }
            _mm512_storeu_ps(acc + LG_TILE_ROWS * c, sum);
        }
    }
}

/* Signed codes with scales (Q3_K, IQ4_XS; Q2_K with mins). Codes go in as code + 128; the 128 comes off as
 * the scales times the activation sums. */
LG_INLINE void signed_k_cols_vnni(int has_min, const uint8_t *slice, int n_in, int at, int n,
                                  const uint8_t *const *x, int n_cols, float *acc)
{
    for (int k0 = at; k0 < at + n; k0 += 256, slice += SIGNED_BYTES) {
        __m512i dot[VNNI_COLS], off[VNNI_COLS], min[VNNI_COLS];
        const int16_t *sums[VNNI_COLS], *a[VNNI_COLS];
        const uint8_t *q[VNNI_COLS];

        for (int c = 0; c < n_cols; c++) {
            dot[c] = off[c] = _mm512_setzero_si512();
            q[c] = x[c] + k0;
            a[c] = act_steps(x[c], n_in) + k0 / 16;
            sums[c] = act_sums(x[c], n_in) + k0 / 16;
        }
        for (int g = 0; g < 16; g++) {
            __m512i s = load512(slice + TILE_SCALES + 64 * g), part[VNNI_COLS];
            // one of the pair: sums come in pairs, too
            __m512i one = _mm512_maskz_mov_epi16(g % 2 ? 0xAAAAAAAA : 0x55555555, s);

            for (int c = 0; c < n_cols; c++)
                part[c] = _mm512_setzero_si512();
            add_steps_vnni(true, slice, 4 * g, 4, q, n_cols, part);
            for (int c = 0; c < n_cols; c++) {
                dot[c] =
                    _mm512_add_epi32(dot[c], _mm512_mullo_epi32(part[c], scale_step(s, a[c] + g / 2 * 2)));
                off[c] = _mm512_dpwssd_epi32(off[c], one, broadcast512_i32(sums[c] + g / 2 * 2));
            }
        }
        if (has_min)
            min_sums_vnni(slice + SIGNED_MINS, 8, sums, n_cols, min);
        for (int c = 0; c < n_cols; c++) {
            float da = act_scales(x[c], n_in)[k0 / 256];
            __m512i product = _mm512_sub_epi32(dot[c], _mm512_slli_epi32(off[c], 7));
            __m512 sum =
                add_block_vnni(slice + SIGNED_D, da, product, false, _mm512_loadu_ps(acc + LG_TILE_ROWS * c));

            if (has_min)
                sum = add_block_vnni(slice + SIGNED_M, da, min[c], false, sum);
            _mm512_storeu_ps(acc + LG_TILE_ROWS * c, sum);
        }
    }
}

/* Signed codes with one f32 scale a run: Q8_0, Q4_0, ... by their shape. Codes go in as code + 128. Each 16
 * are multiplied by their step in f32, which is exact: 32 * 255 * 127 * 16 < 2^24. */
LG_INLINE void run_cols_vnni(int variant, const uint8_t *slice, int n_in, int at, int n,
                             const uint8_t *const *x, int n_cols, float *sums)
{
    const int elems = variant == RUN_16 ? 16 : 32;
    const bool has_min = variant == RUN_32_MIN;
    __m512 acc[VNNI_COLS];

    for (int c = 0; c < n_cols; c++)
        acc[c] = _mm512_loadu_ps(sums + LG_TILE_ROWS * c);
    for (int k0 = at; k0 < at + n; k0 += elems, slice += run_bytes(elems, has_min)) {
        const uint8_t *d = slice + elems * LG_TILE_ROWS, *q[VNNI_COLS];
        __m512 product[VNNI_COLS];
        int sum[VNNI_COLS];

        for (int c = 0; c < n_cols; c++) {
            const int16_t *s = act_sums(x[c], n_in) + k0 / 16;

            q[c] = x[c] + k0;
            sum[c] = s[0] + (variant == RUN_16 ? 0 : s[1]);
            product[c] = _mm512_set1_ps((float)(-128 * sum[c]));
        }
        for (int g = 0; g < elems / 16; g++) {
            __m512i part[VNNI_COLS];

            for (int c = 0; c < n_cols; c++)
                part[c] = _mm512_setzero_si512();
            add_steps_vnni(true, slice, 4 * g, 4, q, n_cols, part);
            for (int c = 0; c < n_cols; c++)
                product[c] =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(part[c]),
                                    _mm512_set1_ps((float)act_steps(x[c], n_in)[k0 / 16 + g]), product[c]);
        }
        for (int c = 0; c < n_cols; c++) {
            __m512 da = _mm512_set1_ps(act_scales(x[c], n_in)[k0 / 32]);

            acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(d), da), product[c], acc[c]);
            if (has_min)
                acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(d + LG_TILE_ROWS * sizeof(float)), da),
                                         _mm512_set1_ps((float)sum[c]), acc[c]);
        }
    }
    for (int c = 0; c < n_cols; c++)
        _mm512_storeu_ps(sums + LG_TILE_ROWS * c, acc[c]);
}

LG_SLICED_GEMM(gemm_q45_k_vnni, k_cols_vnni, VNNI_Q45_K, 256, Q45_BYTES)
LG_SLICED_GEMM(gemm_q6_k_vnni, k_cols_vnni, VNNI_Q6_K, 256, Q6_BYTES)
LG_SLICED_GEMM(gemm_signed_k_vnni, signed_k_cols_vnni, 0, 256, SIGNED_BYTES)
LG_SLICED_GEMM(gemm_signed_k_min_vnni, signed_k_cols_vnni, 1, 256, SIGNED_BYTES)
LG_SLICED_GEMM(gemm_runs32_vnni, run_cols_vnni, RUN_32, 32, run_bytes(32, false))
LG_SLICED_GEMM(gemm_runs32_min_vnni, run_cols_vnni, RUN_32_MIN, 32, run_bytes(32, true))
LG_SLICED_GEMM(gemm_runs16_vnni, run_cols_vnni, RUN_16, 16, run_bytes(16, false))

#endif
