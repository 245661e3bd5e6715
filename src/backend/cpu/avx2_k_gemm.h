/*
 * backend/cpu/avx2_k_gemm: tiles of K-quants times columns, AVX2.
 *
 * 16 rows are the lanes, so a product needs no horizontal sum: four activations are broadcast to all rows,
 * vpmaddubsw gives int16 sums of two, and these are added up as int16 for as long as they cannot overflow
 * (Q4_K: 8 steps of at most 2 * 15 * 127; Q5_K: 4; Q6_K: 2) before one vpmaddwd multiplies by the sub-block's
 * scale (and the activations' step) and widens. That makes two cheap instructions for 32 products, against
 * three with a scale each.
 */
#ifndef LG_BACKEND_CPU_AVX2_K_GEMM_H
#define LG_BACKEND_CPU_AVX2_K_GEMM_H

#include "backend/cpu/avx2_k_tile.h"

enum { GEMM_COLS = 4 };

/* Sum of n steps of the tile from `step` on, times the scale pair and the step of the activations (an int16
 * pair at `a`), for 16 rows and n_cols columns, added to dot. */
LG_INLINE void add_steps(const uint8_t *codes, int step, int n, const __m256i scale[2],
                         const uint8_t *const *q, const int16_t *const *a, int n_cols, __m256i *dot)
{
    __m256i part[2 * GEMM_COLS];

    LG_UNROLL(8)
    for (int k = 0; k < n; k++) {
        __m256i w0 = _mm256_load_si256((const __m256i *)(codes + 64 * (step + k)));
        __m256i w1 = _mm256_load_si256((const __m256i *)(codes + 64 * (step + k) + 32));

        LG_UNROLL(4)
        for (int c = 0; c < n_cols; c++) {
            __m256i x = broadcast_i32(q[c] + 4 * (step + k));
            __m256i m0 = _mm256_maddubs_epi16(w0, x), m1 = _mm256_maddubs_epi16(w1, x);

            part[2 * c] = k ? _mm256_add_epi16(part[2 * c], m0) : m0;
            part[2 * c + 1] = k ? _mm256_add_epi16(part[2 * c + 1], m1) : m1;
            keep(&part[2 * c]);
            keep(&part[2 * c + 1]);
        }
    }
    LG_UNROLL(8)
    for (int i = 0; i < 2 * n_cols; i++) {
        __m256i s = _mm256_mullo_epi16(scale[i & 1], broadcast_i32(a[i / 2] + step / 8 * 2));

        dot[i] = _mm256_add_epi32(dot[i], _mm256_madd_epi16(part[i], s));
    }
}

LG_INLINE void load_pair(const uint8_t *p, __m256i v[2])
{
    v[0] = _mm256_load_si256((const __m256i *)p);
    v[1] = _mm256_load_si256((const __m256i *)(p + 32));
}

/* sum[2 c + h] = mins times the activation sums of column c, given as int16 pairs. */
LG_INLINE void min_sums(const uint8_t *mins, int n_pairs, const int16_t *const *sums, int n_cols,
                        __m256i *sum)
{
    for (int i = 0; i < 2 * n_cols; i++)
        sum[i] = _mm256_setzero_si256();
    for (int j = 0; j < n_pairs; j++) {
        __m256i m[2];

        load_pair(mins + 64 * j, m);
        for (int c = 0; c < n_cols; c++) {
            __m256i s = broadcast_i32(sums[c] + 2 * j);

            sum[2 * c] = _mm256_add_epi32(sum[2 * c], _mm256_madd_epi16(m[0], s));
            sum[2 * c + 1] = _mm256_add_epi32(sum[2 * c + 1], _mm256_madd_epi16(m[1], s));
        }
    }
}

/* acc += d * da * (float)v, or minus it, for 16 rows. */
LG_INLINE void add_block(const uint8_t *d, float da, const __m256i v[2], bool minus, float *acc)
{
    for (int h = 0; h < 2; h++) {
        __m256 s = _mm256_mul_ps(_mm256_load_ps((const float *)(const void *)d + 8 * h), _mm256_set1_ps(da));
        __m256 f = _mm256_cvtepi32_ps(v[h]), sum = _mm256_load_ps(acc + 8 * h);

        _mm256_store_ps(acc + 8 * h, minus ? _mm256_fnmadd_ps(s, f, sum) : _mm256_fmadd_ps(s, f, sum));
    }
}

enum { FORM_Q4_K, FORM_Q5_K };

/* Q4_K and Q5_K. See gemm_sliced. */
LG_INLINE void k_cols(int form, const uint8_t *slice, int n_in, int at, int n, const uint8_t *const *x,
                      int n_cols, shares *ahead, float *acc)
{
    for (int k0 = at; k0 < at + n; k0 += 256, slice += Q45_BYTES) {
        __m256i dot[2 * GEMM_COLS], min[2 * GEMM_COLS], s[2];
        _Alignas(16) int16_t sums32[GEMM_COLS][8];
        const int16_t *sums[GEMM_COLS], *a[GEMM_COLS];
        const uint8_t *q[GEMM_COLS];

        fetch_shares(ahead, 8);
        for (int c = 0; c < n_cols; c++) {
            q[c] = x[c] + k0;
            a[c] = act_steps(x[c], n_in) + k0 / 16;
            _mm_store_si128((__m128i *)sums32[c], sums_of_32(act_sums(x[c], n_in) + k0 / 16));
            sums[c] = sums32[c];
        }
        for (int i = 0; i < 2 * n_cols; i++)
            dot[i] = _mm256_setzero_si256();
        for (int j = 0; j < 8; j++) {
            load_pair(slice + TILE_SCALES + 64 * j, s);
            if (form == FORM_Q4_K) {
                add_steps(slice, 8 * j, 8, s, q, a, n_cols, dot);
            } else {
                add_steps(slice, 8 * j, 4, s, q, a, n_cols, dot);
                add_steps(slice, 8 * j + 4, 4, s, q, a, n_cols, dot);
            }
        }
        min_sums(slice + Q45_MINS, 4, sums, n_cols, min);
        for (int c = 0; c < n_cols; c++) {
            float da = act_scales(x[c], n_in)[k0 / 256];

            add_block(slice + Q45_D, da, dot + 2 * c, false, acc + 16 * c);
            add_block(slice + Q45_DMIN, da, min + 2 * c, true, acc + 16 * c);
        }
    }
}

/* Q6_K, whose int16 sums must be widened every second step: eight rows at a time, so that the sums of a
 * sub-block of 32 stay in registers and take the activations' step once. See gemm_sliced. */
LG_INLINE void q6_cols(int variant, const uint8_t *slice, int n_in, int at, int n, const uint8_t *const *x,
                       int n_cols, shares *ahead, float *acc)
{
    (void)variant;
    for (int k0 = at; k0 < at + n; k0 += 256, slice += Q6_BYTES)
        for (int half = 0; half < 2; half++) {
            const uint8_t *codes = slice + 32 * half, *scales = codes + TILE_SCALES, *mins = codes + Q6_MINS;
            __m256i dot[GEMM_COLS];

            fetch_shares(ahead, 4);
            for (int c = 0; c < n_cols; c++)
                dot[c] = _mm256_setzero_si256();
            for (int j = 0; j < 8; j++) {
                __m256i sum[GEMM_COLS];

                LG_UNROLL(4)
                for (int k = 0; k < 8; k += 2) { // two steps fit int16: 4 * 63 * 127
                    __m256i s = load256(scales + 64 * (2 * j + k / 4));
                    __m256i w0 = load256(codes + 64 * (8 * j + k)),
                            w1 = load256(codes + 64 * (8 * j + k + 1));

                    LG_UNROLL(4)
                    for (int c = 0; c < n_cols; c++) {
                        const uint8_t *q = x[c] + k0 + 32 * j + 4 * k;
                        __m256i part = _mm256_add_epi16(_mm256_maddubs_epi16(w0, broadcast_i32(q)),
                                                        _mm256_maddubs_epi16(w1, broadcast_i32(q + 4)));

                        part = _mm256_madd_epi16(part, s);
                        sum[c] = k ? _mm256_add_epi32(sum[c], part) : part;
                        keep(&sum[c]);
                    }
                }
                LG_UNROLL(4)
                for (int c = 0; c < n_cols; c++) {
                    __m256i step =
                        _mm256_srli_epi32(broadcast_i32(act_steps(x[c], n_in) + k0 / 16 + 2 * j), 16);

                    dot[c] = _mm256_add_epi32(dot[c], _mm256_mullo_epi32(sum[c], step));
                }
            }
            for (int c = 0; c < n_cols; c++) {
                const int16_t *sums = act_sums(x[c], n_in) + k0 / 16;
                __m256i min = _mm256_setzero_si256();
                float *out = acc + LG_TILE_ROWS * c + 8 * half;

                for (int j = 0; j < 8; j++)
                    min = _mm256_add_epi32(
                        min, _mm256_madd_epi16(load256(mins + 64 * j), broadcast_i32(sums + 2 * j)));
                __m256 d =
                    _mm256_mul_ps(_mm256_load_ps((const float *)(const void *)(slice + Q6_D) + 8 * half),
                                  _mm256_set1_ps(act_scales(x[c], n_in)[k0 / 256]));
                __m256 f = _mm256_cvtepi32_ps(_mm256_sub_epi32(dot[c], min));
                _mm256_store_ps(out, _mm256_fmadd_ps(d, f, _mm256_load_ps(out)));
            }
        }
}

/* Signed codes with scales (Q3_K, IQ4_XS; Q2_K with mins). */
LG_INLINE void signed_k_cols(int has_min, const uint8_t *slice, int n_in, int at, int n,
                             const uint8_t *const *x, int n_cols, shares *ahead, float *acc)
{
    for (int k0 = at; k0 < at + n; k0 += 256, slice += SIGNED_BYTES) {
        __m256i dot[2 * GEMM_COLS], min[2 * GEMM_COLS];
        const int16_t *sums[GEMM_COLS];

        fetch_shares(ahead, 8);
        for (int i = 0; i < 2 * n_cols; i++)
            dot[i] = _mm256_setzero_si256();
        for (int k = 0; k < 64; k++) {
            __m256i w[2], u[2], s[2];

            load_pair(slice + 64 * k, w);
            load_pair(slice + TILE_SCALES + 64 * (k / 4), s);
            u[0] = _mm256_abs_epi8(w[0]);
            u[1] = _mm256_abs_epi8(w[1]);
            for (int i = 0; i < 2 * n_cols; i++) {
                __m256i a = broadcast_i32(x[i / 2] + k0 + 4 * k);
                __m256i m = _mm256_maddubs_epi16(u[i & 1], _mm256_sign_epi8(a, w[i & 1]));
                __m256i step = broadcast_i32(act_steps(x[i / 2], n_in) + (k0 + 4 * k) / 32 * 2);

                dot[i] = _mm256_add_epi32(dot[i], _mm256_madd_epi16(m, _mm256_mullo_epi16(s[i & 1], step)));
                keep(&dot[i]);
            }
        }
        for (int c = 0; c < n_cols; c++)
            sums[c] = act_sums(x[c], n_in) + k0 / 16;
        if (has_min)
            min_sums(slice + SIGNED_MINS, 8, sums, n_cols, min);
        for (int c = 0; c < n_cols; c++) {
            float da = act_scales(x[c], n_in)[k0 / 256];

            add_block(slice + SIGNED_D, da, dot + 2 * c, false, acc + 16 * c);
            if (has_min)
                add_block(slice + SIGNED_M, da, min + 2 * c, false, acc + 16 * c);
        }
    }
}

LG_SLICED_GEMM(gemm_q4_k, k_cols, FORM_Q4_K, 4, 256, Q45_BYTES)
LG_SLICED_GEMM(gemm_q5_k, k_cols, FORM_Q5_K, 4, 256, Q45_BYTES)
LG_SLICED_GEMM(gemm_q6_k, q6_cols, 0, 4, 256, Q6_BYTES)
LG_SLICED_GEMM(gemm_signed_k, signed_k_cols, 0, 4, 256, SIGNED_BYTES)
LG_SLICED_GEMM(gemm_signed_k_min, signed_k_cols, 1, 4, 256, SIGNED_BYTES)

#endif
