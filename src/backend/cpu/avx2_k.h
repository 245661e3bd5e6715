/*
 * backend/cpu/avx2_k: K-quants on AVX2, rows in place (gemv). The tiles for gemm are in avx2_k_tile.h.
 *
 * Four rows at a time. The 16-byte heads of Q4_K and Q5_K blocks are transposed so that one vector operation
 * works on the same field of all four rows: scales come out as int16 pairs a dword, to be broadcast from
 * memory for the products, mins as pairs that multiply the activation sums directly. Codes are unsigned, so
 * vpmaddubsw never saturates: 2 * 31 * 127 and 2 * 63 * 127 fit int16.
 */
#ifndef LG_BACKEND_CPU_AVX2_K_H
#define LG_BACKEND_CPU_AVX2_K_H

#include "backend/cpu/avx2_common.h"

/* For each run of 256 activations: sums of 32 (at most 8 * 32 * 127) as int16, eight a run, so that dword j
 * holds sums 2j and 2j
 * + 1. */
LG_INLINE __m128i sums_of_32(const int16_t *sums)
{
    __m256i s = _mm256_madd_epi16(load256(sums), _mm256_set1_epi16(1));

    return _mm_packs_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* Scales and mins of Q4_K and Q5_K heads, already transposed: b0, b1, b2 hold bytes 0..3, 4..7, 8..11 of the
 * 12 scale bytes in each dword lane. */
typedef struct k_heads {
    __m256i scale_low, scale_high; /* byte j of a lane: scale of sub-block j, 4 + j */
    __m256i min_low, min_high;
} k_heads;

LG_INLINE k_heads unpack_heads(__m256i b0, __m256i b1, __m256i b2)
{
    const __m256i low6 = _mm256_set1_epi8(0x3F), low4 = _mm256_set1_epi8(0x0F),
                  high2 = _mm256_set1_epi8(0x30);

    return (k_heads){
        .scale_low = _mm256_and_si256(b0, low6),
        .scale_high =
            _mm256_or_si256(_mm256_and_si256(b2, low4), _mm256_and_si256(_mm256_srli_epi32(b0, 2), high2)),
        .min_low = _mm256_and_si256(b1, low6),
        .min_high = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(b2, 4), low4),
                                    _mm256_and_si256(_mm256_srli_epi32(b1, 2), high2)),
    };
}

/* Byte j of each dword lane as an int16 pair (v, v). */
LG_INLINE __m256i pair_same(__m256i v, int j)
{
    return _mm256_shuffle_epi8(
        v, _mm256_add_epi8(_mm256_set1_epi32((j << 16) | j | (int)0x80008000u),
                           _mm256_setr_epi8(0, 0, 0, 0, 4, 0, 4, 0, 8, 0, 8, 0, 12, 0, 12, 0, 0, 0, 0, 0, 4,
                                            0, 4, 0, 8, 0, 8, 0, 12, 0, 12, 0)));
}

/* Bytes j and j + 1 of each dword lane as an int16 pair. */
LG_INLINE __m256i pair_next(__m256i v, int j)
{
    return _mm256_shuffle_epi8(
        v, _mm256_add_epi8(_mm256_set1_epi32(((j + 1) << 16) | j | (int)0x80008000u),
                           _mm256_setr_epi8(0, 0, 0, 0, 4, 0, 4, 0, 8, 0, 8, 0, 12, 0, 12, 0, 0, 0, 0, 0, 4,
                                            0, 4, 0, 8, 0, 8, 0, 12, 0, 12, 0)));
}

/* A broadcast from memory costs no arithmetic unit; without this the compiler takes the value it stored from
 * a register, with two shuffles. */
LG_INLINE void in_memory(const int32_t scales[32])
{
    __asm__("" : : "m"(*(const int32_t(*)[32])scales) : "memory");
}

/* Heads of four rows: scales[4 j + i] = (s, s) of sub-block j of row i times the step of its activations;
 * returns the four rows' sums of min * activation sum, and their d and dmin. */
typedef struct head4 {
    __m128 d, dmin;
    __m128i min_sum;
} head4;

LG_INLINE head4 heads_of_4(const uint8_t *const p[4], __m128i sums32, const int16_t *steps,
                           int32_t scales[32])
{
    // The transposes work on pairs of rows in the halves of a ymm; only the low halves of the results are
    // rows.
    __m128i r0 = load128(p[0]), r1 = load128(p[1]), r2 = load128(p[2]), r3 = load128(p[3]);
    __m128i u0 = _mm_unpacklo_epi32(r0, r1), u1 = _mm_unpackhi_epi32(r0, r1);
    __m128i u2 = _mm_unpacklo_epi32(r2, r3), u3 = _mm_unpackhi_epi32(r2, r3);
    __m128i dm = _mm_unpacklo_epi64(u0, u2);
    k_heads h = unpack_heads(_mm256_castsi128_si256(_mm_unpackhi_epi64(u0, u2)),
                             _mm256_castsi128_si256(_mm_unpacklo_epi64(u1, u3)),
                             _mm256_castsi128_si256(_mm_unpackhi_epi64(u1, u3)));
    __m128i sum = _mm_setzero_si128();

    for (int j = 0; j < 4; j++) {
        __m128i low = _mm256_castsi256_si128(pair_same(h.scale_low, j));
        __m128i high = _mm256_castsi256_si128(pair_same(h.scale_high, j));

        _mm_store_si128((__m128i *)&scales[4 * j],
                        _mm_mullo_epi16(low, _mm_set1_epi32(load_i32(steps + 2 * j))));
        _mm_store_si128((__m128i *)&scales[16 + 4 * j],
                        _mm_mullo_epi16(high, _mm_set1_epi32(load_i32(steps + 8 + 2 * j))));
    }
    in_memory(scales);
    for (int j = 0; j < 2; j++) {
        __m128i low = _mm256_castsi256_si128(pair_next(h.min_low, 2 * j));
        __m128i high = _mm256_castsi256_si128(pair_next(h.min_high, 2 * j));

        sum = _mm_add_epi32(
            sum, _mm_madd_epi16(low, j ? _mm_shuffle_epi32(sums32, 0x55) : _mm_shuffle_epi32(sums32, 0)));
        sum = _mm_add_epi32(
            sum, _mm_madd_epi16(high, j ? _mm_shuffle_epi32(sums32, 0xFF) : _mm_shuffle_epi32(sums32, 0xAA)));
    }
    // d in the low, dmin in the high half of each dword: as eight f16 the even ones are d.
    __m256 f = _mm256_cvtph_ps(dm);
    __m128 low = _mm256_castps256_ps128(f), high = _mm256_extractf128_ps(f, 1);
    return (head4){_mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)),
                   _mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)), sum};
}

/* acc += a row's codes . a * scale, over sub-blocks 2g (low) and 2g + 1 (high). */
LG_INLINE __m256i add_scaled(__m256i acc, __m256i codes, __m256i a, const int32_t *scale)
{
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, a), broadcast_i32(scale)));
    keep(&acc);
    return acc;
}

/* Q4_K, and Q5_K with `five`. */
LG_INLINE void gemv_q45_k(bool five, const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const int bytes = five ? 176 : 144, codes_at = five ? 48 : 16;
    const __m256i low4 = _mm256_set1_epi8(0x0F), bit4 = _mm256_set1_epi8(0x10);
    const int16_t *sums = act_sums(x, w->n_in), *steps = act_steps(x, w->n_in);
    const float *da = act_scales(x, w->n_in);
    stream ahead = stream_of(w, row, n_rows, 0);

    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4];
        __m128 acc = _mm_setzero_ps();

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (int b = 0; b < w->n_in / 256; b++) {
            _Alignas(16) int32_t scales[32];
            const int8_t *q = (const int8_t *)x + 256 * b;
            __m256i dot[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                              _mm256_setzero_si256()};
            head4 h = heads_of_4(p, sums_of_32(sums + 16 * b), steps + 16 * b, scales);

            LG_UNROLL(4)
            for (int g = 0; g < 4; g++) {
                __m256i a0 = load256(q + 64 * g), a1 = load256(q + 64 * g + 32);

                dot[0] = fetch_part(&ahead, 4 * bytes, g, 4, dot[0]);
                for (int i = 0; i < 4; i++) {
                    __m256i v = load256_once(p[i] + codes_at + 32 * g);
                    __m256i low = _mm256_and_si256(v, low4),
                            high = _mm256_and_si256(_mm256_srli_epi16(v, 4), low4);

                    if (five) {
                        __m256i f = load256_once(p[i] + 16);
                        __m256i f0 =
                            g < 2 ? _mm256_slli_epi16(f, 4 - 2 * g) : _mm256_srli_epi16(f, 2 * g - 4);
                        __m256i f1 =
                            g < 2 ? _mm256_slli_epi16(f, 3 - 2 * g) : _mm256_srli_epi16(f, 2 * g - 3);
                        low = _mm256_or_si256(low, _mm256_and_si256(f0, bit4));
                        high = _mm256_or_si256(high, _mm256_and_si256(f1, bit4));
                    }
                    dot[i] = add_scaled(dot[i], low, a0, &scales[8 * g + i]);
                    dot[i] = add_scaled(dot[i], high, a1, &scales[8 * g + 4 + i]);
                }
            }
            pass_on(&ahead, 4 * bytes);
            __m128 d = _mm_set1_ps(da[b]);
            __m128 sum = _mm_cvtepi32_ps(sum4_i32(dot[0], dot[1], dot[2], dot[3]));
            acc = _mm_fmadd_ps(_mm_mul_ps(h.d, d), sum, acc);
            acc = _mm_fnmadd_ps(_mm_mul_ps(h.dmin, d), _mm_cvtepi32_ps(h.min_sum), acc);
            for (int i = 0; i < 4; i++)
                p[i] += bytes;
        }
        store_lanes(y + r, acc, n_rows - r);
    }
}

static void gemv_q4_k(const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    gemv_q45_k(false, w, row, n_rows, x, y);
}

static void gemv_q5_k(const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    gemv_q45_k(true, w, row, n_rows, x, y);
}

/* One row's block of Q6_K times 256 activations: eight int32 to be summed. The codes stay unsigned; 32 times
 * the scaled activation sums are taken off at the end. */
LG_INLINE __m256i dot_q6_k(const uint8_t *p, const int8_t *q, __m256i sums, __m256i steps)
{
    const __m256i low4 = _mm256_set1_epi8(0x0F), bits = _mm256_set1_epi8(0x30);
    __m256i scales = _mm256_cvtepi8_epi16(load128(p + 192)), dot = _mm256_setzero_si256();
    __m256i offset = _mm256_slli_epi32(_mm256_madd_epi16(scales, sums), 5);
    scales = _mm256_mullo_epi16(scales, steps);
    // Scales of the even groups in the low half, of the odd ones in the high half: group 2t and 2t + 1 are
    // the halves of one vector of codes.
    __m256i even_odd =
        _mm256_shuffle_epi8(scales, _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0,
                                                     1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    even_odd = _mm256_permute4x64_epi64(even_odd, _MM_SHUFFLE(3, 1, 2, 0));

    for (int h = 0; h < 2; h++) {
        __m256i a = load256_once(p + 64 * h), b = load256_once(p + 64 * h + 32);
        __m256i f = load256_once(p + 128 + 32 * h), code[4];

        code[0] = _mm256_or_si256(_mm256_and_si256(a, low4), _mm256_and_si256(_mm256_slli_epi16(f, 4), bits));
        code[1] = _mm256_or_si256(_mm256_and_si256(b, low4), _mm256_and_si256(_mm256_slli_epi16(f, 2), bits));
        code[2] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a, 4), low4), _mm256_and_si256(f, bits));
        code[3] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b, 4), low4),
                                  _mm256_and_si256(_mm256_srli_epi16(f, 2), bits));
        for (int t = 0; t < 4; t++) {
            __m256i s =
                _mm256_shuffle_epi8(even_odd, _mm256_set1_epi16((short)(0x0100 + 0x0202 * (4 * h + t))));
            __m256i m = _mm256_maddubs_epi16(code[t], load256(q + 128 * h + 32 * t));

            dot = _mm256_add_epi32(dot, _mm256_madd_epi16(m, s));
            keep(&dot);
        }
    }
    return _mm256_sub_epi32(dot, offset);
}

static void gemv_q6_k(const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const int16_t *sums = act_sums(x, w->n_in), *steps = act_steps(x, w->n_in);
    const float *da = act_scales(x, w->n_in);
    stream ahead = stream_of(w, row, n_rows, 0);

    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4];
        __m128 acc = _mm_setzero_ps();

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (int b = 0; b < w->n_in / 256; b++) {
            const int8_t *q = (const int8_t *)x + 256 * b;
            __m256i s = load256(sums + 16 * b), step = load256(steps + 16 * b), dot[4];
            const uint8_t *tail[4];

            LG_UNROLL(4)
            for (int i = 0; i < 4; i++) {
                dot[i] = fetch_part(&ahead, 4 * 210, i, 4, dot_q6_k(p[i], q, s, step));
                tail[i] = p[i] + 208;
                p[i] += 210;
            }
            pass_on(&ahead, 4 * 210);
            __m128 sum = _mm_cvtepi32_ps(sum4_i32(dot[0], dot[1], dot[2], dot[3]));
            acc = _mm_fmadd_ps(_mm_mul_ps(four_f16(tail), _mm_set1_ps(da[b])), sum, acc);
        }
        store_lanes(y + r, acc, n_rows - r);
    }
}

#endif
