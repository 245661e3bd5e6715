/*
 * backend/cpu/avx512_gemv: rows in place times one activation row, AVX-512 VNNI.
 *
 * Four rows at a time, as in the AVX2 level and with its sums across lanes. For Q6_K vpmaddubsw and
 * vpdpwssd, which multiplies by the scale of each 16 while it adds, are two instructions for 64 codes;
 * vpdpbusd would need a slow vpmulld for the scale. Loads end where a block's field ends: rows may end at an
 * unmapped page. Q4_K and Q5_K are in avx512_gemv_k.h.
 */
#ifndef LG_BACKEND_CPU_AVX512_GEMV_H
#define LG_BACKEND_CPU_AVX512_GEMV_H

#include "backend/cpu/avx512_common.h"

/* A gemv out of two, by where it fetches to. */
#define LG_BOTH_FETCHES(name, rows)                                                       \
    static void name(const lg_mat *w, int row, int n_rows, const void *x, float *y)       \
    {                                                                                     \
        if (w->to_l2)                                                                     \
            rows(true, w, row, n_rows, x, y);                                             \
        else                                                                              \
            rows(false, w, row, n_rows, x, y);                                            \
    }

/* ---- Q8_0 ---- */

/* Sums of four rows in each half: lane i = the eight int32 of that half of row i. */
LG_INLINE __m256i sum4_halves(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    __m256i low = _mm512_castsi512_si256(all), high = _mm512_extracti64x4_epi64(all, 1);

    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                            _mm256_permute2x128_si256(low, high, 0x31));
}

/* acc += d * da * (float)(dot - 128 * sum of the activations), for one block of four rows. */
LG_INLINE __m128 add_q8_0(__m128 acc, const uint8_t *const p[4], float da, const int16_t sums[2], __m128i dot)
{
    __m128i product = _mm_sub_epi32(dot, _mm_set1_epi32(128 * (sums[0] + sums[1])));

    return _mm_fmadd_ps(_mm_mul_ps(four_f16(p), _mm_set1_ps(da)), _mm_cvtepi32_ps(product), acc);
}

LG_INLINE void gemv_q8_0_rows(bool to_l2, const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const __m512i fours = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const int8_t *q = x;
    const int16_t *sums = act_sums(x, w->n_in), *steps = act_steps(x, w->n_in);
    const float *da = act_scales(x, w->n_in);
    int blocks = w->n_in / 32;
    streams ahead = streams_of(w, row, n_rows);

    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4], *next[4];
        __m128 acc = _mm_setzero_ps();
        int b = 0;

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (; b + 2 <= blocks; b += 2) { // a block in each half
            __m512i a = load512(q + 32 * b), dot[4];
            __m128i four = _mm_cvtepi16_epi32(_mm_loadl_epi64((const __m128i *)(steps + 2 * b)));
            __m512i step =
                _mm512_permutexvar_epi32(fours, _mm512_castsi128_si512(four)); // one a lane of 4 codes

            LG_UNROLL(4)
            for (int i = 0; i < 4; i++) {
                __m512i v = up_128(two_256(load256(p[i] + 2), load256(p[i] + 36)));

                dot[i] = _mm512_mullo_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), v, a), step);
                dot[i] = fetch_part_512(to_l2, &ahead, 4 * 68, i, 4, dot[i]);
                next[i] = p[i] + 34;
            }
            __m256i sum = sum4_halves(dot[0], dot[1], dot[2], dot[3]);
            acc = add_q8_0(acc, p, da[b], sums + 2 * b, _mm256_castsi256_si128(sum));
            acc = add_q8_0(acc, next, da[b + 1], sums + 2 * b + 2, _mm256_extracti128_si256(sum, 1));
            for (int i = 0; i < 4; i++)
                p[i] += 68;
            pass_on_512(to_l2, &ahead, 4 * 68);
        }
        if (b < blocks) {
            __m256i a = load256(q + 32 * b), dot[4];
            __m256i step = _mm256_setr_m128i(_mm_set1_epi32(steps[2 * b]), _mm_set1_epi32(steps[2 * b + 1]));

            for (int i = 0; i < 4; i++) {
                __m256i v = _mm256_xor_si256(load256(p[i] + 2), _mm256_set1_epi8((char)0x80));

                dot[i] = _mm256_mullo_epi32(_mm256_dpbusd_epi32(_mm256_setzero_si256(), v, a), step);
            }
            acc = add_q8_0(acc, p, da[b], sums + 2 * b, sum4_i32(dot[0], dot[1], dot[2], dot[3]));
        }
        store_lanes(y + r, acc, n_rows - r);
    }
}

LG_BOTH_FETCHES(gemv_q8_0_vnni, gemv_q8_0_rows)

/* ---- K-quants ---- */

/* acc += codes . a * scale, the scales being int16. Exact: 2 * 63 * 127 fits int16. */
LG_INLINE __m512i add_scaled_512(__m512i acc, __m512i codes, __m512i a, __m512i scale)
{
    return _mm512_dpwssd_epi32(acc, _mm512_maddubs_epi16(codes, a), scale);
}

/* One row's block of Q6_K times 256 activations: eight int32 to be summed. The codes stay unsigned; 32 times
 * the scaled activation sums are taken off at the end. 64 packed bytes are elements 0..63 (low nibbles) and
 * 64..127 (high) of a half block, so 128 bits of codes are one group of 16 with its own scale. Asks for part
 * i of a step of four rows. */
LG_INLINE __m256i dot_q6_k_vnni(bool to_l2, const uint8_t *p, const int8_t *q, __m256i sums, __m256i steps,
                                const streams *ahead, int i)
{
    const __m512i low4 = _mm512_set1_epi8(0x0F), bits = _mm512_set1_epi8(0x30);
    const __m512i left = two_256(_mm256_set1_epi16(4), _mm256_set1_epi16(2));
    const __m512i right = two_256(_mm256_setzero_si256(), _mm256_set1_epi16(2));
    const __m512i lanes = _mm512_set_epi64(0x0003000300030003, 0x0003000300030003, 0x0002000200020002,
                                           0x0002000200020002, 0x0001000100010001, 0x0001000100010001, 0, 0);
    __m256i scales = _mm256_cvtepi8_epi16(load128(p + 192));
    __m256i offset = _mm256_slli_epi32(_mm256_madd_epi16(scales, sums), 5);
    __m512i wide = _mm512_castsi256_si512(_mm256_mullo_epi16(scales, steps)), dot = _mm512_setzero_si512();

    LG_UNROLL(2)
    for (int h = 0; h < 2; h++) {
        __m512i v = load512_once(p + 64 * h), f = _mm512_broadcast_i64x4(load256(p + 128 + 32 * h));
        __m512i low =
            _mm512_or_si512(_mm512_and_si512(v, low4), _mm512_and_si512(_mm512_sllv_epi16(f, left), bits));
        __m512i high = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v, 4), low4),
                                       _mm512_and_si512(_mm512_srlv_epi16(f, right), bits));
        __m512i first = _mm512_add_epi32(lanes, _mm512_set1_epi16((short)(8 * h)));
        __m512i second = _mm512_add_epi32(lanes, _mm512_set1_epi16((short)(8 * h + 4)));

        dot = add_scaled_512(dot, low, load512(q + 128 * h), _mm512_permutexvar_epi16(first, wide));
        dot = add_scaled_512(dot, high, load512(q + 128 * h + 64), _mm512_permutexvar_epi16(second, wide));
        if (h == 0)
            dot = fetch_part_512(to_l2, ahead, 4 * 210, i, 4, dot);
    }
    return _mm256_sub_epi32(fold_i32(dot), offset);
}

LG_INLINE void gemv_q6_k_rows(bool to_l2, const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const int16_t *sums = act_sums(x, w->n_in), *steps = act_steps(x, w->n_in);
    const float *da = act_scales(x, w->n_in);
    streams ahead = streams_of(w, row, n_rows);

    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4];
        __m128 acc = _mm_setzero_ps();

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (int b = 0; b < w->n_in / 256; b++) {
            __m256i s = load256(sums + 16 * b), step = load256(steps + 16 * b), dot[4];
            const uint8_t *tail[4];

            LG_UNROLL(4)
            for (int i = 0; i < 4; i++) {
                dot[i] = dot_q6_k_vnni(to_l2, p[i], (const int8_t *)x + 256 * b, s, step, &ahead, i);
                tail[i] = p[i] + 208;
                p[i] += 210;
            }
            pass_on_512(to_l2, &ahead, 4 * 210);
            __m128 sum = _mm_cvtepi32_ps(sum4_i32(dot[0], dot[1], dot[2], dot[3]));
            acc = _mm_fmadd_ps(_mm_mul_ps(four_f16(tail), _mm_set1_ps(da[b])), sum, acc);
        }
        store_lanes(y + r, acc, n_rows - r);
    }
}

LG_BOTH_FETCHES(gemv_q6_k_vnni, gemv_q6_k_rows)

#endif
