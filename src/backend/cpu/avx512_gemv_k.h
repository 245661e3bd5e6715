/*
 * backend/cpu/avx512_gemv_k: rows of Q4_K and Q5_K in place times one activation row, AVX-512 VNNI.
 *
 * Sixteen blocks at a time: of four rows, four blocks in turn; of short rows, two blocks of eight. What a
 * block has once, its heads and its sums across lanes, is then done for all sixteen in whole vectors. Four of
 * them that share their activations are a quad: quad q is 128 bits of each such vector.
 *
 * vpdpbusd gives int32 sums of four codes, at most 4 * 31 * 127, so those of two sub-blocks are packed to
 * int16 and one vpdpwssd multiplies both by their scales (times the activations' steps) and adds.
 */
#ifndef LG_BACKEND_CPU_AVX512_GEMV_K_H
#define LG_BACKEND_CPU_AVX512_GEMV_K_H

#include "backend/cpu/avx512_gemv.h"

enum { LONG_ROWS = 4, SHORT_ROWS = 8 }; /* rows at a time; LONG_ROWS where a row has more than two blocks */

/* Sixteen blocks: block i of quad q at row[q][i] + off[q], its activations from block act[q] on. */
typedef struct units {
    const uint8_t *const *row[4];
    size_t off[4];
    int act[4];
} units;

/* Blocks [b, b + 4) of four rows or both blocks of eight rows; where there are none, copies of others. */
LG_INLINE units units_of(int rows, const uint8_t *const *row, int b, int n_blocks, int bytes)
{
    units u;

    LG_UNROLL(4)
    for (int q = 0; q < 4; q++) {
        int at = b + (rows == LONG_ROWS ? q : q / 2);

        u.act[q] = at < n_blocks ? at : n_blocks - 1;
        u.off[q] = (size_t)u.act[q] * (size_t)bytes;
        u.row[q] = row + (rows == LONG_ROWS ? 0 : q % 2 * 4);
    }
    return u;
}

/* Lane q of the result: eight int16 made of the sixteen of block b + q, or of block q / 2 for eight rows: one
 * of two equal steps, or their sum. */
LG_INLINE __m512i halved(int rows, bool add, const int16_t *p, int b, int n_blocks)
{
    const __m512i one = _mm512_set1_epi16(1);
    __m512i v[2];

    for (int h = 0; h < 2; h++) { // a row's parts are whole vectors of 64 bytes
        int at = b + 2 * h < n_blocks ? b + 2 * h : b;

        v[h] = load512(p + 16 * at);
        if (add)
            v[h] = _mm512_madd_epi16(v[h], one);
        if (rows == SHORT_ROWS)
            return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                            _mm512_castsi256_si512(_mm512_cvtepi32_epi16(v[0])));
    }
    return two_256(_mm512_cvtepi32_epi16(v[0]), _mm512_cvtepi32_epi16(v[1]));
}

/* Lane 4 q + i = sum of the four int32 in 128 bits q of v[i]. */
LG_INLINE __m512i sum_lanes(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));

    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Lane 4 q + i = sum over the four 128 bits of v[q] of their int32 i. */
LG_INLINE __m512i sum_quads(const __m512i v[4])
{
    __m512i a =
        _mm512_add_epi32(_mm512_shuffle_i64x2(v[0], v[1], 0x44), _mm512_shuffle_i64x2(v[0], v[1], 0xEE));
    __m512i b =
        _mm512_add_epi32(_mm512_shuffle_i64x2(v[2], v[3], 0x44), _mm512_shuffle_i64x2(v[2], v[3], 0xEE));

    return _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xDD));
}

/* What the heads of sixteen blocks say; lane 4 q + i is block i of quad q. */
typedef struct unit_heads {
    __m512 d, dmin;
    __m512i min_sum;   /* of min times the sums of the activations */
    __m512i scales[4]; /* of block i of each quad, in its 128 bits: scale times step of each sub-block */
} unit_heads;

LG_INLINE void unit_heads_of(const units *u, __m512i steps, __m512i sums, unit_heads *out)
{
    // scales of sub-blocks 0..3 are bytes 4..7 of a head, mins bytes 8..11, six bits each; sub-blocks 4..7
    // have four bits in bytes 12..15, low ones of the scale, high ones of the min, and two in the top of the
    // others
    const __m512i scale_bytes =
        _mm512_broadcast_i32x4(_mm_setr_epi8(4, -1, 5, -1, 6, -1, 7, -1, 12, 4, 13, 5, 14, 6, 15, 7));
    const __m512i min_bytes =
        _mm512_broadcast_i32x4(_mm_setr_epi8(8, -1, 9, -1, 10, -1, 11, -1, 12, 8, 13, 9, 14, 10, 15, 11));
    const __m512i low = _mm512_broadcast_i32x4(_mm_setr_epi32(0x3F003F, 0x3F003F, 0x0F000F, 0x0F000F));
    const __m512i top = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0x300030, 0x300030));
    const __m512i down = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0x40004, 0x40004));
    __m512i h[4], min[4];

    LG_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        h[i] = two_256(two_halves(u->row[0][i] + u->off[0], u->row[1][i] + u->off[1]),
                       two_halves(u->row[2][i] + u->off[2], u->row[3][i] + u->off[3]));
        __m512i s = _mm512_shuffle_epi8(h[i], scale_bytes), m = _mm512_shuffle_epi8(h[i], min_bytes);

        s = or_and(_mm512_and_si512(s, low), _mm512_srli_epi16(s, 10), top);
        m = or_and(_mm512_and_si512(_mm512_srlv_epi16(m, down), low), _mm512_srli_epi16(m, 10), top);
        out->scales[i] = _mm512_mullo_epi16(s, steps);
        min[i] = _mm512_madd_epi16(m, sums);
    }
    __m512i dm = _mm512_unpacklo_epi64(_mm512_unpacklo_epi32(h[0], h[1]), _mm512_unpacklo_epi32(h[2], h[3]));
    out->d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dm));
    out->dmin = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(dm, 16)));
    out->min_sum = sum_lanes(min);
}

/* 64 packed bytes are the low and high nibbles of sub-blocks 4h + 0 | 4h + 2 and 4h + 1 | 4h + 3. */
LG_INLINE void nibbles(bool five, const uint8_t *p, int h, __m512i *even, __m512i *odd)
{
    const __m512i low4 = _mm512_set1_epi8(0x0F), bit4 = _mm512_set1_epi8(0x10);
    __m512i v = load512_once(p + (five ? 48 : 16) + 64 * h);

    *even = _mm512_and_si512(v, low4);
    *odd = _mm512_and_si512(_mm512_srli_epi16(v, 4), low4);
    if (five) { // bit j of 32 bytes is the fifth of sub-block j
        __m512i f = _mm512_broadcast_i64x4(load256(p + 16));
        __m512i low = _mm512_set1_epi8((char)(0x01 << 4 * h)), high = _mm512_set1_epi8((char)(0x04 << 4 * h));

        *even = _mm512_mask_add_epi8(
            *even,
            _mm512_test_epi8_mask(f, two_256(_mm512_castsi512_si256(low), _mm512_castsi512_si256(high))),
            *even, bit4);
        *odd = _mm512_mask_add_epi8(
            *odd,
            _mm512_test_epi8_mask(f, two_256(_mm512_castsi512_si256(_mm512_add_epi8(low, low)),
                                             _mm512_castsi512_si256(_mm512_add_epi8(high, high)))),
            *odd, bit4);
    }
}

/* Quad q: four blocks times the same 256 activations; 128 bits of the result are sums over a part of the
 * block. */
LG_INLINE __m512i quad_dot(bool to_l2, bool five, const units *u, const unit_heads *heads, int q,
                           const int8_t *x, const streams *ahead)
{
    // where the scale of each int16 of packed sums is: of sub-blocks 0 and 1 below, 2 and 3 above
    const __m512i pairs =
        _mm512_setr_epi64(0x0000000000000000, 0x0001000100010001, 0x0000000000000000, 0x0001000100010001,
                          0x0002000200020002, 0x0003000300030003, 0x0002000200020002, 0x0003000300030003);
    const __m512i even = _mm512_add_epi16(pairs, _mm512_set1_epi16((short)(8 * q)));
    const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(4));
    const int8_t *a = x + 256 * u->act[q];
    __m512i act[4], dot[4];

    LG_UNROLL(2)
    for (int h = 0; h < 2; h++) {
        act[2 * h] = two_256(load256(a + 128 * h), load256(a + 128 * h + 64));
        act[2 * h + 1] = two_256(load256(a + 128 * h + 32), load256(a + 128 * h + 96));
    }
    LG_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        __m512i s = heads->scales[i], v[4];

        LG_UNROLL(2)
        for (int h = 0; h < 2; h++) {
            nibbles(five, u->row[q][i] + u->off[q], h, &v[2 * h], &v[2 * h + 1]);
            if (h == 0) // and so on at each quarter of a step
                v[0] = fetch_part_512(to_l2, ahead, 4 * (five ? 176 : 144), i, 4, v[0]);
            v[2 * h] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v[2 * h], act[2 * h]);
            v[2 * h + 1] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v[2 * h + 1], act[2 * h + 1]);
        }
        dot[i] = _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_packs_epi32(v[0], v[1]),
                                     _mm512_permutexvar_epi16(even, s));
        dot[i] =
            _mm512_dpwssd_epi32(dot[i], _mm512_packs_epi32(v[2], v[3]), _mm512_permutexvar_epi16(odd, s));
    }
    return sum_lanes(dot);
}

/* 128 bits of v: not by way of memory, where a store of 64 bytes takes several cycles from the loads. */
LG_INLINE __m128 quarter(__m512 v, int i)
{
    switch (i) {
    case 0: return _mm512_castps512_ps128(v);
    case 1: return _mm512_extractf32x4_ps(v, 1);
    case 2: return _mm512_extractf32x4_ps(v, 2);
    default: return _mm512_extractf32x4_ps(v, 3);
    }
}

/* acc of `rows` rows += the sixteen blocks, in their order. */
LG_INLINE void add_units(int rows, int n, const unit_heads *h, __m512 da, __m512i dot, float *acc)
{
    __m512 d = _mm512_mul_ps(h->d, da), m = _mm512_mul_ps(h->dmin, da);
    __m512 dots = _mm512_cvtepi32_ps(dot), mins = _mm512_cvtepi32_ps(h->min_sum);

    if (rows == LONG_ROWS) {
        __m128 v = _mm_load_ps(acc);

        LG_UNROLL(4)
        for (int b = 0; b < 4 && b < n; b++) {
            v = _mm_fmadd_ps(quarter(d, b), quarter(dots, b), v);
            v = _mm_fnmadd_ps(quarter(m, b), quarter(mins, b), v);
        }
        _mm_store_ps(acc, v);
    } else {
        __m256 v = _mm256_load_ps(acc);

        v = _mm256_fmadd_ps(_mm512_castps512_ps256(d), _mm512_castps512_ps256(dots), v);
        v = _mm256_fnmadd_ps(_mm512_castps512_ps256(m), _mm512_castps512_ps256(mins), v);
        if (n > 1) {
            v = _mm256_fmadd_ps(_mm512_extractf32x8_ps(d, 1), _mm512_extractf32x8_ps(dots, 1), v);
            v = _mm256_fnmadd_ps(_mm512_extractf32x8_ps(m, 1), _mm512_extractf32x8_ps(mins, 1), v);
        }
        _mm256_store_ps(acc, v);
    }
}

LG_INLINE void gemv_units(bool to_l2, bool five, int rows, const lg_mat *w, int row, int n_rows,
                          const void *x, float *y)
{
    const int bytes = five ? 176 : 144, n_blocks = w->n_in / 256;
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i block = _mm512_srli_epi32(lane, rows == LONG_ROWS ? 2 : 3);
    const int16_t *sums = act_sums(x, w->n_in), *steps = act_steps(x, w->n_in);
    const float *da = act_scales(x, w->n_in);
    streams ahead = streams_of(w, row, n_rows);

    for (int r = 0; r < n_rows; r += rows) {
        const uint8_t *p[SHORT_ROWS];
        _Alignas(32) float acc[SHORT_ROWS] = {0};

        row_pointers(w, row + r, n_rows - r, rows, p);
        for (int b = 0; b < n_blocks; b += 4) {
            units u = units_of(rows, p, b, n_blocks, bytes);
            unit_heads h;
            __m512i dot[4];
            __m512 scale = _mm512_castps128_ps512(_mm_load_ps(da + b)); // padded as well

            unit_heads_of(&u, halved(rows, false, steps, b, n_blocks), halved(rows, true, sums, b, n_blocks),
                          &h);
            for (int q = 0; q < 4; q++) {
                if (to_l2 && b + 4 < n_blocks) // and from there to L1, before its turn
                    for (int i = 0; i < 4; i++)
                        fetch(u.row[q][i] + u.off[q] + 4 * bytes, bytes);
                dot[q] = quad_dot(to_l2, five, &u, &h, q, x, &ahead);
                if (b + q < n_blocks || rows == SHORT_ROWS)
                    pass_on_512(to_l2, &ahead, 4 * bytes);
            }
            add_units(rows, n_blocks - b, &h, _mm512_permutexvar_ps(block, scale), sum_quads(dot), acc);
        }
        for (int i = 0; i < rows; i += 4)
            if (n_rows - r > i)
                store_lanes(y + r + i, _mm_load_ps(acc + i), n_rows - r - i);
    }
}

LG_INLINE void gemv_q4_k_rows(bool to_l2, const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    if (w->n_in > 512)
        gemv_units(to_l2, false, LONG_ROWS, w, row, n_rows, x, y);
    else
        gemv_units(to_l2, false, SHORT_ROWS, w, row, n_rows, x, y);
}

LG_INLINE void gemv_q5_k_rows(bool to_l2, const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    if (w->n_in > 512)
        gemv_units(to_l2, true, LONG_ROWS, w, row, n_rows, x, y);
    else
        gemv_units(to_l2, true, SHORT_ROWS, w, row, n_rows, x, y);
}

LG_BOTH_FETCHES(gemv_q4_k_vnni, gemv_q4_k_rows)
LG_BOTH_FETCHES(gemv_q5_k_vnni, gemv_q5_k_rows)

#endif
