/*
 * backend/cpu/avx2_k_tile: tiles of K-quants: 16 rows, unpacked and interleaved. Used by the AVX2 gemm
 * and, for Q6_K, Q2_K, Q3_K and IQ4_XS, the VNNI gemm.
 *
 * For each block of 256 inputs:
 *   codes   64 steps of 64 bytes: 4 consecutive unsigned codes of each of the 16 rows
 *   scales  one int16 pair (s, s) a row, 64 bytes, for each sub-block (8 of 32: Q4_K, Q5_K; 16 of 16: Q6_K)
 *   mins    one int16 pair a row for each two sub-blocks; what the activation sums are multiplied by. Q6_K:
 * 32 * scale, because its codes are stored without the -32 d       16 f32; and dmin, 16 f32, for Q4_K and
 * Q5_K Rows are turned into lanes by 8 x 8 transposes of dwords while the codes are still packed.
 */
#ifndef LG_BACKEND_CPU_AVX2_K_TILE_H
#define LG_BACKEND_CPU_AVX2_K_TILE_H

#include "backend/cpu/avx2_k.h"

enum {
    TILE_CODES = 0,
    TILE_SCALES = 256 * LG_TILE_ROWS,
    Q45_MINS = TILE_SCALES + 8 * 64,
    Q45_D = Q45_MINS + 4 * 64,
    Q45_DMIN = Q45_D + 64,
    Q45_BYTES = Q45_DMIN + 64,
    Q6_MINS = TILE_SCALES + 16 * 64,
    Q6_D = Q6_MINS + 8 * 64,
    Q6_BYTES = Q6_D + 64,
};

LG_INLINE void put_codes(uint8_t *out, int step, int half, __m256i v)
{
    _mm256_store_si256((__m256i *)(out + TILE_CODES + 64 * step + 32 * half), v);
}

LG_INLINE void put_head_fields(uint8_t *out, int half, __m256i dm, k_heads h)
{
    for (int j = 0; j < 4; j++) {
        _mm256_store_si256((__m256i *)(out + TILE_SCALES + 64 * j + 32 * half), pair_same(h.scale_low, j));
        _mm256_store_si256((__m256i *)(out + TILE_SCALES + 64 * (4 + j) + 32 * half),
                           pair_same(h.scale_high, j));
    }
    for (int j = 0; j < 2; j++) {
        _mm256_store_si256((__m256i *)(out + Q45_MINS + 64 * j + 32 * half), pair_next(h.min_low, 2 * j));
        _mm256_store_si256((__m256i *)(out + Q45_MINS + 64 * (2 + j) + 32 * half),
                           pair_next(h.min_high, 2 * j));
    }
    _mm256_store_ps((float *)(void *)(out + Q45_D) + 8 * half, f16_of_lanes(dm));
    _mm256_store_ps((float *)(void *)(out + Q45_DMIN) + 8 * half, f16_of_lanes(_mm256_srli_epi32(dm, 16)));
}

/* One block of eight rows of Q4_K, or Q5_K with `five`. */
LG_INLINE void unpack_q45_k_8(bool five, const uint8_t *const p[8], uint8_t *out, int half)
{
    const __m256i low4 = _mm256_set1_epi8(0x0F), bit4 = _mm256_set1_epi8(0x10);
    __m256i head[4], fifth[8];

    transpose_half_rows(p, 0, head);
    put_head_fields(out, half, head[0], unpack_heads(head[1], head[2], head[3]));
    if (five)
        transpose_rows(p, 16, fifth);
    LG_UNROLL(4)
    for (int g = 0; g < 4; g++) {
        __m256i t[8];

        transpose_rows(p, (size_t)(five ? 48 : 16) + 32 * (size_t)g, t);
        for (int i = 0; i < 8; i++) {
            __m256i low = _mm256_and_si256(t[i], low4),
                    high = _mm256_and_si256(_mm256_srli_epi16(t[i], 4), low4);

            if (five) {
                __m256i f = fifth[i];
                __m256i f0 = g < 2 ? _mm256_slli_epi16(f, 4 - 2 * g) : _mm256_srli_epi16(f, 2 * g - 4);
                __m256i f1 = g < 2 ? _mm256_slli_epi16(f, 3 - 2 * g) : _mm256_srli_epi16(f, 2 * g - 3);
                low = _mm256_or_si256(low, _mm256_and_si256(f0, bit4));
                high = _mm256_or_si256(high, _mm256_and_si256(f1, bit4));
            }
            put_codes(out, 16 * g + i, half, low);
            put_codes(out, 16 * g + 8 + i, half, high);
        }
    }
}

LG_INLINE void unpack_q45_k(bool five, const lg_mat *w, int row, int n_rows, void *tile)
{
    const uint8_t *p[LG_TILE_ROWS];
    uint8_t *out = tile;
    shares next = shares_of(&w->next, w->n_in / 256);

    row_pointers(w, row, n_rows, LG_TILE_ROWS, p);
    for (int b = 0; b < w->n_in / 256; b++, out += Q45_BYTES) {
        fetch_shares(&next, 1);
        for (int half = 0; half < 2; half++)
            unpack_q45_k_8(five, p + 8 * half, out, half);
        for (int i = 0; i < LG_TILE_ROWS; i++)
            p[i] += five ? 176 : 144;
    }
}

static void unpack_q4_k(const lg_mat *w, int row, int n_rows, void *tile)
{
    unpack_q45_k(false, w, row, n_rows, tile);
}

static void unpack_q5_k(const lg_mat *w, int row, int n_rows, void *tile)
{
    unpack_q45_k(true, w, row, n_rows, tile);
}

/* The same for signed bytes, times 2^(8 - shift). */
LG_INLINE __m256i pair_same_signed(__m256i v, int j, int shift)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(pair_same(v, j), 8), shift);
}
LG_INLINE __m256i pair_next_signed(__m256i v, int j, int shift)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(pair_next(v, j), 8), shift);
}

LG_INLINE void unpack_q6_k_8(const uint8_t *const p[8], uint8_t *out, int half)
{
    const __m256i low4 = _mm256_set1_epi8(0x0F), bits = _mm256_set1_epi8(0x30);
    __m256i scale[4];
    const uint8_t *tail[8];

    for (int h = 0; h < 2; h++) {
        __m256i a[8], b[8], f[8];
        int step = 32 * h;

        transpose_rows(p, 64 * (size_t)h, a);
        transpose_rows(p, 64 * (size_t)h + 32, b);
        transpose_rows(p, 128 + 32 * (size_t)h, f);
        for (int i = 0; i < 8; i++) {
            __m256i f0 = _mm256_and_si256(_mm256_slli_epi16(f[i], 4), bits);
            __m256i f1 = _mm256_and_si256(_mm256_slli_epi16(f[i], 2), bits),
                    f2 = _mm256_and_si256(f[i], bits);
            __m256i f3 = _mm256_and_si256(_mm256_srli_epi16(f[i], 2), bits);

            put_codes(out, step + i, half, _mm256_or_si256(_mm256_and_si256(a[i], low4), f0));
            put_codes(out, step + 8 + i, half, _mm256_or_si256(_mm256_and_si256(b[i], low4), f1));
            put_codes(out, step + 16 + i, half,
                      _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a[i], 4), low4), f2));
            put_codes(out, step + 24 + i, half,
                      _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b[i], 4), low4), f3));
        }
    }
    transpose_half_rows(p, 192, scale);
    for (int g = 0; g < 16; g++)
        _mm256_store_si256((__m256i *)(out + TILE_SCALES + 64 * g + 32 * half),
                           pair_same_signed(scale[g / 4], g % 4, 8));
    for (int g = 0; g < 16; g += 2) // shifted down by 3 only: 32 times the scale
        _mm256_store_si256((__m256i *)(out + Q6_MINS + 32 * g + 32 * half),
                           pair_next_signed(scale[g / 4], g % 4, 3));
    for (int i = 0; i < 8; i++)
        tail[i] = p[i] + 208;
    _mm_store_ps((float *)(void *)(out + Q6_D) + 8 * half, four_f16(tail));
    _mm_store_ps((float *)(void *)(out + Q6_D) + 8 * half + 4, four_f16(tail + 4));
}

static void unpack_q6_k(const lg_mat *w, int row, int n_rows, void *tile)
{
    const uint8_t *p[LG_TILE_ROWS];
    uint8_t *out = tile;
    shares next = shares_of(&w->next, w->n_in / 256);

    row_pointers(w, row, n_rows, LG_TILE_ROWS, p);
    for (int b = 0; b < w->n_in / 256; b++, out += Q6_BYTES) {
        fetch_shares(&next, 1);
        for (int half = 0; half < 2; half++)
            unpack_q6_k_8(p + 8 * half, out, half);
        for (int i = 0; i < LG_TILE_ROWS; i++)
            p[i] += 210;
    }
}

/* Q2_K, Q3_K, IQ4_XS: signed codes from blocks.h, 16 scales, 8 pairs of mins, d and m (already with their
 * signs). */
enum {
    SIGNED_MINS = TILE_SCALES + 16 * 64,
    SIGNED_D = SIGNED_MINS + 8 * 64,
    SIGNED_M = SIGNED_D + 64,
    SIGNED_BYTES = SIGNED_M + 64,
};

LG_INLINE void unpack_signed_k(lg_qtype type, const lg_mat *w, int row, int n_rows, void *tile)
{
    const uint8_t *p[LG_TILE_ROWS];
    uint8_t *out = tile;
    lg_terms t = {0};

    row_pointers(w, row, n_rows, LG_TILE_ROWS, p);
    for (int b = 0; b < w->n_in / 256; b++, out += SIGNED_BYTES)
        for (int i = 0; i < LG_TILE_ROWS; i++) {
            lg_terms_get(type, p[i], b, &t);
            for (int k = 0; k < 64; k++)
                memcpy(out + 64 * k + 4 * i, t.code + 4 * k, 4);
            for (int g = 0; g < 16; g++) {
                int16_t pair[2] = {t.scale[g], t.scale[g]};

                memcpy(out + TILE_SCALES + 64 * g + 4 * i, pair, 4);
                memcpy(out + SIGNED_MINS + 64 * (g / 2) + 4 * i + 2 * (g % 2), &t.min[g], 2);
            }
            memcpy(out + SIGNED_D + 4 * i, &t.d, 4);
            memcpy(out + SIGNED_M + 4 * i, &t.m, 4);
        }
}

#define SIGNED_UNPACK(id)                                                     \
    static void unpack_##id(const lg_mat *w, int row, int n_rows, void *tile) \
    {                                                                         \
        unpack_signed_k(LG_##id, w, row, n_rows, tile);                       \
    }

SIGNED_UNPACK(Q2_K)
SIGNED_UNPACK(Q3_K)
SIGNED_UNPACK(IQ4_XS)

#endif
