/*
 * backend/cpu/avx512_k_tile: tiles of Q4_K, Q5_K and Q6_K for the AVX-512 VNNI gemm.
 *
 * Fields and sizes are those of avx2_k_tile.h; only the codes of Q4_K and Q5_K lie differently. A step is 8
 * consecutive codes of 16 rows in two zmm, 8 codes of 8 rows each, so that one broadcast of 8 activations
 * serves both, and the two int32 that a row has in each can be packed to a pair of int16 beside each other.
 * The halves hold rows 0 1 4 5 8 9 12 13 and 2 3 6 7 10 11 14 15: packed, that is the order of the rows.
 *
 * Rows become lanes by 8 x 8 transposes of quadwords while the codes are still packed.
 */
#ifndef LG_BACKEND_CPU_AVX512_K_TILE_H
#define LG_BACKEND_CPU_AVX512_K_TILE_H

#include "backend/cpu/avx512_common.h"

enum {
    WIDE_MINS = TILE_SCALES + 8 * 64,
    WIDE_D = WIDE_MINS + 4 * 64,
    WIDE_DMIN = WIDE_D + 64,
    WIDE_BYTES = WIDE_DMIN + 64,
};

/* Row of lane i of half `half` of a step. */
LG_INLINE int step_row(int half, int i)
{
    return 4 * (i / 2) + 2 * half + i % 2;
}

/* 32 bytes of each of two rows. */
LG_INLINE __m512i two_rows(const uint8_t *a, const uint8_t *b)
{
    return _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(load256(a)), 0xF0, load256(b));
}

/* Pointers to 16 rows of which n exist; the last one stands for the others. One addition after the other: for
 * products of row numbers compilers take vpmullq, and each slice of each tile waited for those. */
LG_INLINE void tile_pointers(const lg_mat *w, int row, int n, const uint8_t *p[LG_TILE_ROWS])
{
    const uint8_t *at = w->p + (size_t)row * w->row_bytes;

    LG_UNROLL(16)
    for (int i = 0; i < LG_TILE_ROWS; i++) {
        p[i] = at;
        at += i + 1 < n ? w->row_bytes : 0;
        __asm__("" : "+r"(at));
    }
}

/* r[j] lane i = quadword j of the 64 bytes at row i of p + at, where p holds rows 0 1 4 5 2 3 6 7. Rows i and
 * i + 4 of p share a register from the start, 32 bytes of each: two thirds of the shuffles that whole lines
 * would take, and fewer loads that touch two. */
LG_INLINE void transpose_quads(const uint8_t *const p[8], size_t at, __m512i r[8])
{
    LG_UNROLL(2)
    for (int h = 0; h < 2; h++, at += 32, r += 4) {
        __m512i t[4];

        LG_UNROLL(4)
        for (int i = 0; i < 4; i++)
            t[i] = two_rows(p[i] + at, p[4 + i] + at);
        __m512i even01 = _mm512_unpacklo_epi64(t[0], t[1]), even23 = _mm512_unpacklo_epi64(t[2], t[3]);
        __m512i odd01 = _mm512_unpackhi_epi64(t[0], t[1]), odd23 = _mm512_unpackhi_epi64(t[2], t[3]);
        r[0] = _mm512_shuffle_i64x2(even01, even23, 0x88);
        r[1] = _mm512_shuffle_i64x2(odd01, odd23, 0x88);
        r[2] = _mm512_shuffle_i64x2(even01, even23, 0xDD);
        r[3] = _mm512_shuffle_i64x2(odd01, odd23, 0xDD);
    }
}

/* r[j] lane i = dword j of the 16 bytes at p[i] + at. */
LG_INLINE void transpose_16_rows(const uint8_t *const p[LG_TILE_ROWS], size_t at, __m512i r[4])
{
    __m512i t[4];

    LG_UNROLL(4)
    for (int i = 0; i < 4; i++) { // rows i, 4 + i, 8 + i, 12 + i
        t[i] = _mm512_castsi128_si512(load128(p[i] + at));
        t[i] = _mm512_mask_broadcast_i32x4(t[i], 0x00F0, load128(p[4 + i] + at));
        t[i] = _mm512_mask_broadcast_i32x4(t[i], 0x0F00, load128(p[8 + i] + at));
        t[i] = _mm512_mask_broadcast_i32x4(t[i], 0xF000, load128(p[12 + i] + at));
    }
    __m512i a = _mm512_unpacklo_epi32(t[0], t[1]), b = _mm512_unpackhi_epi32(t[0], t[1]);
    __m512i c = _mm512_unpacklo_epi32(t[2], t[3]), d = _mm512_unpackhi_epi32(t[2], t[3]);
    r[0] = _mm512_unpacklo_epi64(a, c);
    r[1] = _mm512_unpackhi_epi64(a, c);
    r[2] = _mm512_unpacklo_epi64(b, d);
    r[3] = _mm512_unpackhi_epi64(b, d);
}

/* The same of 32 bytes: r[0] of the first 16 and r[1] of the others. Half as many loads, for which unpacking
 * waits: they share L1 with its stores. */
LG_INLINE void transpose_32_rows(const uint8_t *const p[LG_TILE_ROWS], size_t at, __m512i r[2][4])
{
    __m512i t[2][4];

    LG_UNROLL(2)
    for (int g = 0; g < 2; g++) {
        __m512i u[4];

        LG_UNROLL(4)
        for (int i = 0; i < 4; i++)
            u[i] = two_rows(p[8 * g + i] + at, p[8 * g + 4 + i] + at);
        __m512i a = _mm512_unpacklo_epi32(u[0], u[1]), b = _mm512_unpackhi_epi32(u[0], u[1]);
        __m512i c = _mm512_unpacklo_epi32(u[2], u[3]), d = _mm512_unpackhi_epi32(u[2], u[3]);
        t[g][0] = _mm512_unpacklo_epi64(a, c);
        t[g][1] = _mm512_unpackhi_epi64(a, c);
        t[g][2] = _mm512_unpacklo_epi64(b, d);
        t[g][3] = _mm512_unpackhi_epi64(b, d);
    }
    LG_UNROLL(4)
    for (int j = 0; j < 4; j++) {
        r[0][j] = _mm512_shuffle_i64x2(t[0][j], t[1][j], 0x88);
        r[1][j] = _mm512_shuffle_i64x2(t[0][j], t[1][j], 0xDD);
    }
}

/* Byte j of each dword of v as a pair of equal int16. */
LG_INLINE __m512i byte_pair(__m512i v, int j)
{
    const __m512i lane =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 0, 4, 0, 8, 0, 8, 0, 12, 0, 12, 0));

    return _mm512_shuffle_epi8(v, _mm512_add_epi8(lane, _mm512_set1_epi32((j << 16) | j | (int)0x80008000u)));
}

/* Bytes j and j + 1 of each dword of v as int16. */
LG_INLINE __m512i byte_pair_next(__m512i v, int j)
{
    const __m512i lane =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 1, 0, 4, 0, 5, 0, 8, 0, 9, 0, 12, 0, 13, 0));

    return _mm512_shuffle_epi8(v, _mm512_add_epi8(lane, _mm512_set1_epi32((j << 16) | j | (int)0x80008000u)));
}

/* Scales, mins, d and dmin of 16 rows. */
LG_INLINE void put_heads_of_16(const uint8_t *const p[LG_TILE_ROWS], size_t at, uint8_t *out)
{
    const __m512i low6 = _mm512_set1_epi8(0x3F), low4 = _mm512_set1_epi8(0x0F),
                  high2 = _mm512_set1_epi8(0x30);
    __m512i h[4], scale[2], min[2];

    transpose_16_rows(p, at, h);
    scale[0] = _mm512_and_si512(h[1], low6);
    min[0] = _mm512_and_si512(h[2], low6);
    scale[1] = or_and(_mm512_and_si512(h[3], low4), _mm512_srli_epi32(h[1], 2), high2);
    min[1] = or_and(_mm512_and_si512(_mm512_srli_epi32(h[3], 4), low4), _mm512_srli_epi32(h[2], 2), high2);
    LG_UNROLL(8)
    for (int j = 0; j < 8; j++)
        _mm512_store_si512(out + TILE_SCALES + 64 * j, byte_pair(scale[j / 4], j % 4));
    LG_UNROLL(4)
    for (int j = 0; j < 4; j++)
        _mm512_store_si512(out + WIDE_MINS + 64 * j, byte_pair_next(min[j / 2], j % 2 * 2));
    _mm512_store_ps(out + WIDE_D, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(h[0])));
    _mm512_store_ps(out + WIDE_DMIN, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(h[0], 16))));
}

/* Bit j of the bytes of v to bit 4. */
LG_INLINE __m512i bit_to_4(__m512i v, int j)
{
    return j < 4 ? _mm512_slli_epi16(v, 4 - j) : _mm512_srli_epi16(v, j - 4);
}

/* The codes of the blocks at p[i] + at of eight rows of Q4_K, or Q5_K with `five`. */
LG_INLINE void unpack_wide_8(bool five, const uint8_t *const p[8], size_t at, uint8_t *out, int half)
{
    const __m512i low4 = _mm512_set1_epi8(0x0F), bit4 = _mm512_set1_epi8(0x10);
    const size_t codes_at = at + (five ? 48 : 16);
    __m512i fifth[8];

    if (five)
        transpose_quads(p, at + 16, fifth); // of which four are used
    LG_UNROLL(2)
    for (int h = 0; h < 2; h++) {
        __m512i t[8];

        transpose_quads(p, codes_at + 64 * (size_t)h, t);
        LG_UNROLL(8)
        for (int i = 0; i < 8; i++) { // a step of sub-block 2g and one of 2g + 1
            int g = 2 * h + i / 4, step = 8 * g + i % 4;
            __m512i low = _mm512_and_si512(t[i], low4);
            __m512i high = _mm512_and_si512(_mm512_srli_epi16(t[i], 4), low4);

            if (five) {
                low = or_and(low, bit_to_4(fifth[i % 4], 2 * g), bit4);
                high = or_and(high, bit_to_4(fifth[i % 4], 2 * g + 1), bit4);
            }
            _mm512_store_si512(out + 128 * step + 64 * half, low);
            _mm512_store_si512(out + 128 * (step + 4) + 64 * half, high);
        }
    }
}

LG_INLINE void unpack_wide(bool five, const lg_mat *w, int row, int n_rows, void *tile)
{
    const uint8_t *p[LG_TILE_ROWS], *q[2][8];
    uint8_t *out = tile;
    size_t at = 0;
    shares next = shares_of(&w->next, w->n_in / 256);

    tile_pointers(w, row, n_rows, p);
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 8; i++) // in the order of transpose_quads
            q[half][i] = p[step_row(half, (i & 1) | (i & 2) << 1 | (i & 4) >> 1)];
    for (int b = 0; b < w->n_in / 256; b++, out += WIDE_BYTES, at += five ? 176 : 144) {
        fetch_shares(&next, 1);
        put_heads_of_16(p, at, out);
        for (int half = 0; half < 2; half++)
            unpack_wide_8(five, q[half], at, out, half);
    }
}

static void unpack_q4_k_vnni(const lg_mat *w, int row, int n_rows, void *tile)
{
    unpack_wide(false, w, row, n_rows, tile);
}

static void unpack_q5_k_vnni(const lg_mat *w, int row, int n_rows, void *tile)
{
    unpack_wide(true, w, row, n_rows, tile);
}

/* ---- Q6_K: the fields of avx2_k_tile.h, 16 rows at a time ---- */

/* Byte j of each dword of v as a pair of equal int16 with its sign, times 2^(8 - shift). */
LG_INLINE __m512i signed_pair(__m512i v, int j, int shift)
{
    return _mm512_srai_epi16(_mm512_slli_epi16(byte_pair(v, j), 8), shift);
}
/* The same of bytes j and j + 1. */
LG_INLINE __m512i signed_pair_next(__m512i v, int j, int shift)
{
    return _mm512_srai_epi16(_mm512_slli_epi16(byte_pair_next(v, j), 8), shift);
}

/* Scales, d and, `mins`, mins of the blocks at p[i] + at. */
LG_INLINE void put_tails_of_16(bool mins, const uint8_t *const p[LG_TILE_ROWS], size_t at, uint8_t *out)
{
    _Alignas(32) uint16_t d[LG_TILE_ROWS];
    __m512i scale[4];

    transpose_16_rows(p, at + 192, scale);
    LG_UNROLL(16)
    for (int g = 0; g < 16; g++)
        _mm512_store_si512(out + TILE_SCALES + 64 * g, signed_pair(scale[g / 4], g % 4, 8));
    LG_UNROLL(8)
    for (int g = 0; mins && g < 16; g += 2) // shifted down by 3 only: 32 times the scale
        _mm512_store_si512(out + Q6_MINS + 32 * g, signed_pair_next(scale[g / 4], g % 4, 3));
    LG_UNROLL(16)
    for (int i = 0; i < LG_TILE_ROWS; i++)
        d[i] = (uint16_t)get16(p[i] + at + 208);
    _mm512_store_ps(out + Q6_D, _mm512_cvtph_ps(load256(d)));
}

LG_INLINE void unpack_q6(bool mins, const lg_mat *w, int row, int n_rows, void *tile)
{
    const __m512i low4 = _mm512_set1_epi8(0x0F), bits = _mm512_set1_epi8(0x30);
    const uint8_t *p[LG_TILE_ROWS];
    uint8_t *out = tile;
    size_t at = 0;
    shares next = shares_of(&w->next, w->n_in / 256);

    tile_pointers(w, row, n_rows, p);
    for (int b = 0; b < w->n_in / 256; b++, out += Q6_BYTES, at += 210) {
        fetch_shares(&next, 1);
        put_tails_of_16(mins, p, at, out);
        for (size_t h = 0; h < 2; h++) { // 32 codes of each of four sub-blocks
            __m512i f[2][4];

            transpose_32_rows(p, at + 128 + 32 * h, f);
            LG_UNROLL(2)
            for (int of = 0; of < 2; of++) { // low nibbles are those of sub-block `of`, high ones of 2 + of
                __m512i x[2][4];

                transpose_32_rows(p, at + 64 * h + 32 * (size_t)of, x);
                LG_UNROLL(8)
                for (int i = 0; i < 8; i++) {
                    uint8_t *to = out + 64 * (32 * h + 8 * (size_t)of + (size_t)i);
                    __m512i v = x[i / 4][i % 4], high = f[i / 4][i % 4];
                    __m512i low_bits = _mm512_slli_epi16(high, of ? 2 : 4),
                            high_bits = of ? _mm512_srli_epi16(high, 2) : high;

                    _mm512_store_si512(to, or_and(_mm512_and_si512(v, low4), low_bits, bits));
                    _mm512_store_si512(
                        to + 64 * 16,
                        or_and(_mm512_and_si512(_mm512_srli_epi16(v, 4), low4), high_bits, bits));
                }
            }
        }
    }
}

static void unpack_q6_k_vnni(const lg_mat *w, int row, int n_rows, void *tile)
{
    unpack_q6(true, w, row, n_rows, tile);
}

#endif
