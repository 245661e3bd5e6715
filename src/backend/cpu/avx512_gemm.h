/*
 * backend/cpu/avx512_gemm: tiles times columns, AVX-512 VNNI.
 *
 * One vpdpbusd multiplies 64 codes of a tile by activations of a column, broadcast from memory. Two of them
 * start each cycle and take five, and what is not one of them takes a turn away: so eight columns are summed
 * at a time, and what a sub-block costs beside its products counts (docs/decisions/0241). All integers are
 * exact, and lanes are rows, so the f32 operations of a row are those of kernels.h in their order.
 */
#ifndef LG_BACKEND_CPU_AVX512_GEMM_H
#define LG_BACKEND_CPU_AVX512_GEMM_H

#include "backend/cpu/avx512_k_tile.h"

enum { VNNI_COLS = 8 }; /* at most, of gemm_sliced */

/* part[c] += steps [step, step + n) of the tile times column c. Codes are unsigned, or signed with `up`. */
LG_INLINE void add_steps_vnni(bool up, const uint8_t *codes, int step, int n, const uint8_t *const *q,
                              int n_cols, __m512i *part)
{
    LG_UNROLL(8)
    for (int k = 0; k < n; k++) {
        __m512i w = load512(codes + 64 * (step + k));

        if (up)
            w = up_128(w);
        LG_UNROLL(8)
        for (int c = 0; c < n_cols; c++)
            part[c] = dot_bytes_at(part[c], w, q[c] + 4 * (step + k));
    }
}

/* sum[c] = mins times the activation sums of column c, given as int16 pairs. */
LG_INLINE void min_sums_vnni(const uint8_t *mins, int n_pairs, const int16_t *const *sums, int n_cols,
                             __m512i *sum)
{
    LG_UNROLL(8)
    for (int c = 0; c < n_cols; c++)
        sum[c] = zero512();
    for (int j = 0; j < n_pairs; j++) {
        __m512i m = load512(mins + 64 * j);

        LG_UNROLL(8)
        for (int c = 0; c < n_cols; c++)
            sum[c] = dot_words_at(sum[c], m, sums[c] + 2 * j);
    }
}

LG_INLINE float load_f32(const void *p)
{
    float v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* acc + d * da * (float)v, or minus it, for 16 rows; d is in the tile. */
LG_INLINE __m512 add_block_vnni(const uint8_t *d, float da, __m512i v, bool minus, __m512 acc)
{
    __m512 s = _mm512_mul_ps(_mm512_loadu_ps(d), _mm512_set1_ps(da)), f = _mm512_cvtepi32_ps(v);

    return minus ? _mm512_fnmadd_ps(s, f, acc) : _mm512_fmadd_ps(s, f, acc);
}

/* Sums of 16 activations, 16 of them, to eight of 32, beside the multipliers: the upper half of an int32
 * added to its lower one. */
LG_INLINE __m128i sums_of_32_vnni(const void *sums)
{
    __m256i s = load256(sums);

    return _mm256_cvtepi32_epi16(_mm256_add_epi16(s, _mm256_srli_epi32(s, 16)));
}

/*
 * How the scales of a sub-block meet a column's step: by a multiplication, or by an address. Steps of
 * LG_ACT_Q256 are 1 to 8 whatever the input, so a sub-block has eight such vectors, 64 bytes each. The first
 * columns that pass over a slice make them, by additions, which have units of their own beside the
 * multipliers; what follows takes them. They are 8 KiB of a slice, and stores are dear beside loads, so few
 * columns multiply (docs/decisions/0251).
 */
typedef enum scales_by { MULTIPLYING, MAKING, TAKING } scales_by;
enum { MULTIPLE_BYTES = 64, MULTIPLES_BYTES = 8 * MULTIPLE_BYTES };

LG_INLINE void put_multiples(const uint8_t *scales, uint8_t *out)
{
    __m512i s = load512(scales), sum = s;

    LG_UNROLL(8)
    for (int i = 0; i < MULTIPLES_BYTES; i += MULTIPLE_BYTES) {
        _mm512_store_si512(out + i, sum);
        sum = _mm512_add_epi16(sum, s);
    }
}

LG_INLINE size_t get_step(const uint8_t *p)
{
    uint16_t step;

    memcpy(&step, p, sizeof step);
    return step;
}

/* Q4_K, and Q5_K with `five`: tiles of avx512_k_tile.h. The two sums that a row has of 16 codes (Q5_K: 8) fit
 * int16, so one instruction packs those of all 16 rows and one multiplies them by the scale and adds. See
 * gemm_sliced. */
LG_INLINE void wide_cols_vnni(int five, scales_by by, uint8_t *multiples, const uint8_t *slice, int n_in,
                              int at, int n, const uint8_t *const *x, int n_cols, shares *ahead, float *acc)
{
    const int run = five ? 2 : 4; // 16 * 15 * 127, 8 * 31 * 127
    const uint8_t *q[VNNI_COLS];
    shares next = *ahead;

    LG_UNROLL(8)
    for (int c = 0; c < n_cols; c++)
        q[c] = x[c] + at;
    // of the parts of a row, counted from its codes, so that one register a column reaches them all
    size_t sums = lg_act_sums_at(n_in) + (size_t)at / 8 - (size_t)at,
           steps = lg_act_steps_at(n_in) + (size_t)at / 8 - (size_t)at;
    size_t scale = lg_act_scales_at(n_in) + (size_t)at / 64 - (size_t)at;
    for (int k0 = 0; k0 < n; k0 += 256, slice += WIDE_BYTES, sums += 32, steps += 32, scale += 4) {
        __m512i dot[VNNI_COLS], min[VNNI_COLS];
        _Alignas(16) int16_t sums32[VNNI_COLS][8];

        LG_UNROLL(8)
        for (int c = 0; c < n_cols; c++) {
            _mm_store_si128((__m128i *)sums32[c], sums_of_32_vnni(q[c] + sums));
            dot[c] = zero512();
        }
        for (int j = 0; j < 8; j++) {
            const uint8_t *s = slice + TILE_SCALES + 64 * j;

            fetch_shares(&next, 1);
            if (by == MAKING)
                put_multiples(s, multiples);
            LG_UNROLL(2)
            for (int h = 0; h < 4 / run; h++) {
                __m512i low[VNNI_COLS], high[VNNI_COLS];

                LG_UNROLL(8)
                for (int c = 0; c < n_cols; c++) {
                    low[c] = zero512();
                    high[c] = zero512();
                }
                LG_UNROLL(4)
                for (int k = 0; k < run; k++) {
                    int step = 4 * j + run * h + k;
                    __m512i w0 = load512(slice + 128 * step), w1 = load512(slice + 128 * step + 64);

                    LG_UNROLL(8)
                    for (int c = 0; c < n_cols; c++) {
                        __m512i a = broadcast512_i64(q[c] + k0 + 8 * step);

                        low[c] = dot_bytes(low[c], w0, a);
                        high[c] = dot_bytes(high[c], w1, a);
                    }
                }
                LG_UNROLL(8)
                for (int c = 0; c < n_cols; c++) {
                    const uint8_t *step = q[c] + steps + 4 * j;
                    __m512i sums16 = _mm512_packs_epi32(low[c], high[c]);

                    dot[c] =
                        by == MULTIPLYING
                            ? dot_words(dot[c], sums16,
                                        _mm512_mullo_epi16(load512(s), broadcast512_i32(step)))
                            : dot_words_of(dot[c], sums16, multiples + MULTIPLE_BYTES * (get_step(step) - 1));
                }
            }
            multiples += MULTIPLES_BYTES;
        }
        LG_UNROLL(8)
        for (int c = 0; c < n_cols; c++)
            min[c] = zero512();
        LG_UNROLL(4)
        for (int j = 0; j < 4; j++) {
            __m512i m = load512(slice + WIDE_MINS + 64 * j);

            LG_UNROLL(8)
            for (int c = 0; c < n_cols; c++)
                min[c] = dot_words_at(min[c], m, sums32[c] + 2 * j);
        }
        LG_UNROLL(8)
        for (int c = 0; c < n_cols; c++) {
            float da = load_f32(q[c] + scale);
            __m512 sum = _mm512_loadu_ps(acc + LG_TILE_ROWS * c);

            sum = add_block_vnni(slice + WIDE_D, da, dot[c], false, sum);
            sum = add_block_vnni(slice + WIDE_DMIN, da, min[c], true, sum);
            _mm512_storeu_ps(acc + LG_TILE_ROWS * c, sum);
        }
    }
    *ahead = next;
}

#define LG_WIDE_COLS(n) wide_cols_vnni(five, by, multiples, slice, n_in, at, inputs, a, n, ahead, acc)

/* n columns at once: up to 4, or 4 to 8 with `wide`. */
LG_INLINE void wide_turn_vnni(int five, bool wide, scales_by by, uint8_t *multiples, const uint8_t *slice,
                              int n_in, int at, int inputs, const uint8_t *const *a, int n, shares *ahead,
                              float *acc)
{
    if (wide) {
        switch (n) {
        case 8: LG_WIDE_COLS(8); break;
        case 7: LG_WIDE_COLS(7); break;
        case 6: LG_WIDE_COLS(6); break;
        case 5: LG_WIDE_COLS(5); break;
        default: LG_WIDE_COLS(4); break;
        }
        return;
    }
    switch (n) {
    case 4: LG_WIDE_COLS(4); break;
    case 3: LG_WIDE_COLS(3); break;
    case 2: LG_WIDE_COLS(2); break;
    default: LG_WIDE_COLS(1); break;
    }
}
#undef LG_WIDE_COLS

/* slice_times_columns for wide_cols_vnni: Q4_K by eight columns, Q5_K by four; up to two turns of four
 * multiply their scales. */
LG_INLINE void wide_slice_vnni(int five, const uint8_t *slice, int n_in, int at, int n,
                               const uint8_t *const *a, int n_cols, shares *ahead, float *acc)
{
    _Alignas(64) uint8_t multiples[LG_SLICE / 32 * MULTIPLES_BYTES];
    const int width = five ? 4 : 8, few = five ? 8 : 4;

    for (int c = 0, now; c < n_cols; c += now) {
        float *to = acc + LG_TILE_ROWS * c;

        now = columns_of_turn(n_cols - c, width);
        if (n_cols <= few)
            wide_turn_vnni(five, false, MULTIPLYING, multiples, slice, n_in, at, n, a + c, now, ahead, to);
        else if (c == 0)
            wide_turn_vnni(five, !five, MAKING, multiples, slice, n_in, at, n, a, now, ahead, to);
        else
            wide_turn_vnni(five, !five, TAKING, multiples, slice, n_in, at, n, a + c, now, ahead, to);
    }
}

static void gemm_q4_k_vnni_slice(const uint8_t *slice, int n_in, int at, int n, const uint8_t *const *a,
                                 int n_cols, shares *ahead, float *acc)
{
    wide_slice_vnni(0, slice, n_in, at, n, a, n_cols, ahead, acc);
}

static void gemm_q5_k_vnni_slice(const uint8_t *slice, int n_in, int at, int n, const uint8_t *const *a,
                                 int n_cols, shares *ahead, float *acc)
{
    wide_slice_vnni(1, slice, n_in, at, n, a, n_cols, ahead, acc);
}

/* The scales of a sub-block (int16 pairs (s, s), of which `one` keeps one) times the activations' step. */
LG_INLINE __m512i scale_step(__m512i one, const int16_t *steps)
{
    return _mm512_madd_epi16(one, broadcast512_i32(steps));
}

/* Q6_K: fields of avx2_k_tile.h. Two sub-blocks of 16 take the activations' step together. See gemm_sliced.
 */
LG_INLINE void q6_cols_vnni(int variant, const uint8_t *slice, int n_in, int at, int n,
                            const uint8_t *const *x, int n_cols, shares *ahead, float *acc)
{
    const uint8_t *q[VNNI_COLS];
    shares next = *ahead;

    (void)variant;
    LG_UNROLL(8)
    for (int c = 0; c < n_cols; c++)
        q[c] = step_on(x[c], (size_t)at);
    for (int k0 = at; k0 < at + n; k0 += 256, slice += Q6_BYTES) {
        _Alignas(32) int32_t steps[VNNI_COLS][8];
        __m512i dot[VNNI_COLS], min[VNNI_COLS];
        const int16_t *sums[VNNI_COLS];

        LG_UNROLL(8)
        for (int c = 0; c < n_cols; c++) {
            __m256i pairs = load256(act_steps(x[c], n_in) + k0 / 16);

            _mm256_store_si256((__m256i *)steps[c], _mm256_srli_epi32(pairs, 16));
            sums[c] = act_sums(x[c], n_in) + k0 / 16;
            dot[c] = zero512();
        }
        for (int j = 0; j < 8; j++) {
            const uint8_t *scales = slice + TILE_SCALES + 128 * j;
            __m512i s[2] = {_mm512_srai_epi32(load512(scales), 16),
                            _mm512_srai_epi32(load512(scales + 64), 16)};
            __m512i part[2][VNNI_COLS];

            fetch_shares(&next, 1);
            LG_UNROLL(2)
            for (int h = 0; h < 2; h++) {
                LG_UNROLL(8)
                for (int c = 0; c < n_cols; c++)
                    part[h][c] = zero512();
                LG_UNROLL(4)
                for (int k = 4 * h; k < 4 * h + 4; k++) {
                    __m512i w = load512(slice + 64 * (8 * j + k));

                    LG_UNROLL(8)
                    for (int c = 0; c < n_cols; c++)
                        part[h][c] = dot_bytes_at(part[h][c], w, q[c] + 4 * k);
                }
            }
            LG_UNROLL(8)
            for (int c = 0; c < n_cols; c++) {
                __m512i sum = _mm512_add_epi32(_mm512_mullo_epi32(part[0][c], s[0]),
                                               _mm512_mullo_epi32(part[1][c], s[1]));

                dot[c] = _mm512_add_epi32(dot[c], _mm512_mullo_epi32(sum, broadcast512_i32(&steps[c][j])));
                q[c] = step_on(q[c], 32);
            }
        }
        min_sums_vnni(slice + Q6_MINS, 8, sums, n_cols, min);
        LG_UNROLL(8)
        for (int c = 0; c < n_cols; c++) {
            float da = act_scales(x[c], n_in)[k0 / 256], *to = acc + LG_TILE_ROWS * c;

            _mm512_storeu_ps(to, add_block_vnni(slice + Q6_D, da, _mm512_sub_epi32(dot[c], min[c]), false,
                                                _mm512_loadu_ps(to)));
        }
    }
    *ahead = next;
}

/* Signed codes with scales (Q3_K, IQ4_XS; Q2_K with mins). Codes go in as code + 128; the 128 comes off as
 * the scales times the activation sums. */
LG_INLINE void signed_k_cols_vnni(int has_min, const uint8_t *slice, int n_in, int at, int n,
                                  const uint8_t *const *x, int n_cols, shares *ahead, float *acc)
{
    for (int k0 = at; k0 < at + n; k0 += 256, slice += SIGNED_BYTES) {
        __m512i dot[VNNI_COLS], off[VNNI_COLS], min[VNNI_COLS];
        const int16_t *sums[VNNI_COLS], *a[VNNI_COLS];
        const uint8_t *q[VNNI_COLS];

        fetch_shares(ahead, 8);
        for (int c = 0; c < n_cols; c++) {
            dot[c] = zero512();
            off[c] = zero512();
            q[c] = x[c] + k0;
            a[c] = act_steps(x[c], n_in) + k0 / 16;
            sums[c] = act_sums(x[c], n_in) + k0 / 16;
        }
        for (int g = 0; g < 16; g++) {
            __m512i s = load512(slice + TILE_SCALES + 64 * g), part[VNNI_COLS];
            __m512i even = _mm512_maskz_mov_epi16(0x55555555, s);
            // the one of the pair that meets its own sum
            __m512i one = g % 2 ? _mm512_maskz_mov_epi16(0xAAAAAAAA, s) : even;

            for (int c = 0; c < n_cols; c++)
                part[c] = zero512();
            add_steps_vnni(true, slice, 4 * g, 4, q, n_cols, part);
            for (int c = 0; c < n_cols; c++) {
                dot[c] =
                    _mm512_add_epi32(dot[c], _mm512_mullo_epi32(part[c], scale_step(even, a[c] + g / 2 * 2)));
                off[c] = dot_words_at(off[c], one, sums[c] + g / 2 * 2);
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

/* A slice of activation rows as what multiplies sums of codes + 128: the step of each 16 inputs, and of each
 * run, -128 times its sum. */
typedef struct run_acts {
    _Alignas(64) float step[VNNI_COLS][LG_SLICE / 16], offset[VNNI_COLS][LG_SLICE / 16];
} run_acts;

/* Parts of a row are padded to 64 bytes, which is what they are read by. */
LG_INLINE void run_acts_of(const uint8_t *x, int n_in, int at, int n, bool runs_of_16, float *step,
                           float *offset)
{
    const int16_t *sums = act_sums(x, n_in) + at / 16, *steps = act_steps(x, n_in) + at / 16;

    for (int i = 0; i < n / 16; i += 32) {
        __m512i s = load512(sums + i), t = load512(steps + i);

        for (int h = 0; h < 2; h++) {
            __m256i s16 = h ? _mm512_extracti64x4_epi64(s, 1) : _mm512_castsi512_si256(s);
            __m256i t16 = h ? _mm512_extracti64x4_epi64(t, 1) : _mm512_castsi512_si256(t);

            _mm512_store_ps(step + i + 16 * h, _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(t16)));
            if (runs_of_16)
                _mm512_store_ps(offset + i + 16 * h,
                                _mm512_cvtepi32_ps(_mm512_slli_epi32(_mm512_cvtepi16_epi32(s16), 7)));
        }
        if (!runs_of_16)
            _mm512_store_ps(offset + i / 2, _mm512_cvtepi32_ps(_mm512_slli_epi32(
                                                _mm512_madd_epi16(s, _mm512_set1_epi16(1)), 7)));
    }
}

/* Signed codes with one f32 scale a run: Q8_0, Q4_0, ... by their shape. Codes go in as code + 128. Each 16
 * are multiplied by their step in f32, which is exact: 32 * 255 * 127 * 16 < 2^24. */
LG_INLINE void run_cols_vnni(int variant, const uint8_t *slice, int n_in, int at, int n,
                             const uint8_t *const *x, int n_cols, shares *ahead, float *sums)
{
    const int elems = variant == RUN_16 ? 16 : 32;
    const bool has_min = variant == RUN_32_MIN;
    const uint8_t *q[VNNI_COLS];
    __m512 acc[VNNI_COLS];
    shares next = *ahead;
    run_acts a;

    LG_UNROLL(8)
    for (int c = 0; c < n_cols; c++) {
        acc[c] = _mm512_loadu_ps(sums + LG_TILE_ROWS * c);
        run_acts_of(x[c], n_in, at, n, variant == RUN_16, a.step[c], a.offset[c]);
        q[c] = step_on(x[c], (size_t)at);
    }
    for (int k0 = 0; k0 < n; k0 += elems, slice += run_bytes(elems, has_min)) {
        const uint8_t *d = slice + elems * LG_TILE_ROWS;
        __m512 product[VNNI_COLS], dw = _mm512_loadu_ps(d);

        fetch_shares(&next, 1);
        LG_UNROLL(2)
        for (int g = 0; g < elems / 16; g++) {
            __m512i part[VNNI_COLS];

            LG_UNROLL(8)
            for (int c = 0; c < n_cols; c++)
                part[c] = zero512();
            LG_UNROLL(4)
            for (int k = 4 * g; k < 4 * g + 4; k++) {
                __m512i w = up_128(load512(slice + 64 * k));

                LG_UNROLL(8)
                for (int c = 0; c < n_cols; c++)
                    part[c] = dot_bytes_at(part[c], w, q[c] + 4 * k);
            }
            LG_UNROLL(8)
            for (int c = 0; c < n_cols; c++) {
                __m512 step = _mm512_set1_ps(a.step[c][k0 / 16 + g]), sum = _mm512_cvtepi32_ps(part[c]);

                product[c] = g ? _mm512_fmadd_ps(sum, step, product[c])
                               : _mm512_fmsub_ps(sum, step, _mm512_set1_ps(a.offset[c][k0 / elems]));
            }
        }
        LG_UNROLL(8)
        for (int c = 0; c < n_cols; c++) {
            __m512 da = _mm512_set1_ps(act_scales(x[c], n_in)[(at + k0) / 32]);

            acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(dw, da), product[c], acc[c]);
            if (has_min)
                acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(d + LG_TILE_ROWS * sizeof(float)), da),
                                         _mm512_set1_ps(a.offset[c][k0 / elems] * 0x1p-7f), acc[c]);
            q[c] = step_on(q[c], (size_t)elems);
        }
    }
    LG_UNROLL(8)
    for (int c = 0; c < n_cols; c++)
        _mm512_storeu_ps(sums + LG_TILE_ROWS * c, acc[c]);
    *ahead = next;
}

LG_GEMM_OF_SLICES(gemm_q4_k_vnni, 8, 256, WIDE_BYTES)
LG_GEMM_OF_SLICES(gemm_q5_k_vnni, 4, 256, WIDE_BYTES)
LG_SLICED_GEMM(gemm_q6_k_vnni, q6_cols_vnni, 0, 8, 256, Q6_BYTES)
LG_SLICED_GEMM(gemm_signed_k_vnni, signed_k_cols_vnni, 0, 4, 256, SIGNED_BYTES)
LG_SLICED_GEMM(gemm_signed_k_min_vnni, signed_k_cols_vnni, 1, 4, 256, SIGNED_BYTES)
LG_SLICED_GEMM(gemm_runs32_vnni, run_cols_vnni, RUN_32, 8, 32, run_bytes(32, false))
LG_SLICED_GEMM(gemm_runs32_min_vnni, run_cols_vnni, RUN_32_MIN, 8, 32, run_bytes(32, true))
LG_SLICED_GEMM(gemm_runs16_vnni, run_cols_vnni, RUN_16, 8, 16, run_bytes(16, false))

/*
 * unpack and gemm in one, for the columns of one group: a slice is unpacked, multiplied, and overwritten by
 * the next, all in L1. A whole tile goes out to L2 and comes back, which takes longer than unpacking it.
 *
 * What follows is fetched beside the products of `width` columns: unpacking is too short for it.
 */
typedef void (*unpack_fn)(const lg_mat *w, int row, int n_rows, void *tile);

LG_INLINE void rows_sliced(unpack_fn unpack, slice_fn multiply, int width, int unit, const lg_mat *w,
                           int row, int n_rows, void *tile, const lg_acts *x, const int32_t *idx, int n_cols,
                           float *y, size_t y_stride)
{
    _Alignas(64) float acc[LG_GEMM_GROUP * LG_TILE_ROWS];
    const uint8_t *a[LG_GEMM_GROUP];
    size_t unit_bytes = w->row_bytes / (size_t)(w->n_in / unit);
    shares next = shares_of(&w->next, fetch_steps(w->n_in, n_cols, width));

    next.near = !w->to_l2; // Zen 5: docs/decisions/0249
    start_group(x, idx, 0, n_cols, a, acc, y, y_stride);
    for (int at = 0; at < w->n_in; at += LG_SLICE) {
        int n = w->n_in - at < LG_SLICE ? w->n_in - at : LG_SLICE;
        lg_mat part = {.p = w->p + unit_bytes * (size_t)(at / unit), .row_bytes = w->row_bytes, .n_in = n};

        unpack(&part, row, n_rows, tile);
        multiply(tile, w->n_in, at, n, a, n_cols, &next, acc);
    }
    if (n_rows < LG_TILE_ROWS) {
        store_group(acc, 0, n_cols, n_rows, y, y_stride);
        return;
    }
    // Whole vectors: 1 to 2 % of the experts. Not in gemm, whose rows of y may be 32 KiB apart: stores that
    // follow each other that closely cost it 3 %.
    for (int c = 0; c < n_cols; c++)
        _mm512_storeu_ps(y + (size_t)c * y_stride, _mm512_load_ps(acc + LG_TILE_ROWS * c));
}

/* Tile after tile. */
LG_INLINE void rows_by_tile(unpack_fn unpack, slice_fn multiply, int width, int unit, const lg_mat *w,
                            int row, int n_rows, void *tile, const lg_acts *x, const int32_t *idx,
                            int n_cols, float *y, size_t y_stride)
{
    lg_mat m = *w;

    for (int n; n_rows > 0; row += n, n_rows -= n, y += n) {
        n = n_rows < LG_TILE_ROWS ? n_rows : LG_TILE_ROWS;
        m.next = w->next;
        if (n_rows > n)
            m.next.p = w->p + (size_t)(row + n) * w->row_bytes;
        size_t rows = (size_t)(n_rows > n && n_rows - n < LG_TILE_ROWS ? n_rows - n : LG_TILE_ROWS);
        if (n_rows > n || m.next.bytes > rows * w->row_bytes)
            m.next.bytes = rows * w->row_bytes;
        rows_sliced(unpack, multiply, width, unit, &m, row, n, tile, x, idx, n_cols, y, y_stride);
    }
}

#define LG_SLICED_ROWS(name, unpack, multiply, width, unit)                                             \
    static void name(const lg_mat *w, int row, int n_rows, void *tile, const lg_acts *x, const int32_t *idx, \
                     int n_cols, float *y, size_t y_stride)                                             \
    {                                                                                                   \
        rows_by_tile(unpack, multiply, width, unit, w, row, n_rows, tile, x, idx, n_cols, y, y_stride); \
    }

LG_SLICED_ROWS(rows_q4_k_vnni, unpack_q4_k_vnni, gemm_q4_k_vnni_slice, 8, 256)
LG_SLICED_ROWS(rows_q5_k_vnni, unpack_q5_k_vnni, gemm_q5_k_vnni_slice, 4, 256)
LG_SLICED_ROWS(rows_q8_0_vnni, unpack_q8_0, gemm_runs32_vnni_slice, 8, 32)

/*
 * Q6_K by two tiles: each broadcast of activations serves 32 rows, four columns at a time, where one tile has
 * a load for each product and waits for those. Sums of 16 codes start from -32 times those of the
 * activations, so there are no mins. docs/decisions/0256.
 */
enum { PAIR_COLS = 4 };

/* A block of 256 of a column: steps of 32, and where sums of 16 codes start. */
typedef struct pair_acts {
    _Alignas(64) int32_t start[16];
    _Alignas(32) int32_t step[8];
} pair_acts;

/* The sums of a quantised row have their step in them: 1 to 8, and 32 / step is near enough to get the
 * integer back. */
LG_INLINE void pair_acts_of(const uint8_t *x, int n_in, int at, pair_acts *out)
{
    const __m512 by = _mm512_setr_ps(0, -32.0f, -32.0f / 2, -32.0f / 3, -32.0f / 4, -32.0f / 5, -32.0f / 6,
                                     -32.0f / 7, -32.0f / 8, 0, 0, 0, 0, 0, 0, 0);
    __m256i steps = load256(act_steps(x, n_in) + at / 16);
    __m512 sums = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(load256(act_sums(x, n_in) + at / 16)));
    __m512 factor = _mm512_permutexvar_ps(_mm512_cvtepi16_epi32(steps), by);

    _mm512_store_si512(out->start, _mm512_cvtps_epi32(_mm512_mul_ps(sums, factor)));
    _mm256_store_si256((__m256i *)out->step, _mm256_srli_epi32(steps, 16));
}

/* A block of 256 of both tiles, at tile[0] and tile[1], times n_cols columns; acc: 32 sums a column. */
LG_INLINE void q6_pair_cols(const uint8_t *const tile[2], int n_in, int at, const uint8_t *const *x,
                            int n_cols, shares *ahead, float *acc)
{
    const uint8_t *q[PAIR_COLS];
    __m512i dot[2][PAIR_COLS];
    pair_acts a[PAIR_COLS];
    shares next = *ahead;

    LG_UNROLL(4)
    for (int c = 0; c < n_cols; c++) {
        q[c] = step_on(x[c], (size_t)at);
        pair_acts_of(x[c], n_in, at, &a[c]);
        dot[0][c] = zero512();
        dot[1][c] = zero512();
    }
    for (int j = 0; j < 8; j++) {
        __m512i part[2][2][PAIR_COLS]; // of 16 codes; of a tile

        fetch_shares(&next, 1);
        LG_UNROLL(2)
        for (int h = 0; h < 2; h++)
            LG_UNROLL(4)
            for (int c = 0; c < n_cols; c++)
                part[h][0][c] = part[h][1][c] = broadcast512_i32(&a[c].start[2 * j + h]);
        // Both halves in turn: sixteen sums, so that none waits for its last product.
        LG_UNROLL(8)
        for (int i = 0; i < 8; i++) {
            int h = i % 2, k = 8 * j + 4 * h + i / 2;
            __m512i w0 = load512(tile[0] + 64 * k), w1 = load512(tile[1] + 64 * k);

            LG_UNROLL(4)
            for (int c = 0; c < n_cols; c++) {
                __m512i four = broadcast512_i32(q[c] + 16 * h + i / 2 * 4);

                part[h][0][c] = dot_bytes(part[h][0][c], w0, four);
                part[h][1][c] = dot_bytes(part[h][1][c], w1, four);
            }
        }
        LG_UNROLL(2)
        for (int h = 0; h < 2; h++)
            LG_UNROLL(2)
            for (int t = 0; t < 2; t++) {
                __m512i s = _mm512_srai_epi32(load512(tile[t] + TILE_SCALES + 128 * j + 64 * h), 16);

                LG_UNROLL(4)
                for (int c = 0; c < n_cols; c++)
                    part[h][t][c] = _mm512_mullo_epi32(part[h][t][c], s);
            }
        LG_UNROLL(4)
        for (int c = 0; c < n_cols; c++) {
            __m512i step = broadcast512_i32(&a[c].step[j]);

            LG_UNROLL(2)
            for (int t = 0; t < 2; t++) {
                __m512i sum = _mm512_add_epi32(part[0][t][c], part[1][t][c]);

                dot[t][c] = _mm512_add_epi32(dot[t][c], _mm512_mullo_epi32(sum, step));
            }
        }
        LG_UNROLL(4)
        for (int c = 0; c < n_cols; c++)
            q[c] = step_on(q[c], 32);
    }
    LG_UNROLL(4)
    for (int c = 0; c < n_cols; c++) {
        float da = act_scales(x[c], n_in)[at / 256], *to = acc + 2 * LG_TILE_ROWS * c;

        LG_UNROLL(2)
        for (int t = 0; t < 2; t++, to += LG_TILE_ROWS)
            _mm512_storeu_ps(to,
                             add_block_vnni(tile[t] + Q6_D, da, dot[t][c], false, _mm512_loadu_ps(to)));
    }
    *ahead = next;
}

static void rows_q6_k_pair(const lg_mat *w, int row, int n_rows, void *tile, const lg_acts *x,
                           const int32_t *idx, int n_cols, float *y, size_t y_stride)
{
    _Alignas(64) float acc[LG_GEMM_GROUP * 2 * LG_TILE_ROWS];
    uint8_t *const unpacked[2] = {tile, (uint8_t *)tile + Q6_BYTES};
    const uint8_t *const tiles[2] = {unpacked[0], unpacked[1]}, *a[LG_GEMM_GROUP];
    shares next = shares_of(&w->next, fetch_steps(w->n_in, n_cols, PAIR_COLS));

    next.near = !w->to_l2; // Zen 5: docs/decisions/0249
    start_group(x, idx, 0, n_cols, a, acc, y, y_stride);
    memset(acc + (size_t)n_cols * LG_TILE_ROWS, 0, (size_t)n_cols * LG_TILE_ROWS * sizeof *acc); // the rest
    for (int at = 0; at < w->n_in; at += 256) {
        lg_mat part = {.p = w->p + 210 * (size_t)(at / 256), .row_bytes = w->row_bytes, .n_in = 256};

        unpack_q6(false, &part, row, LG_TILE_ROWS, unpacked[0]);
        unpack_q6(false, &part, row + LG_TILE_ROWS, n_rows - LG_TILE_ROWS, unpacked[1]);
        for (int c = 0, now; c < n_cols; c += now) {
            int left = n_cols - c;
            float *sums = acc + 2 * LG_TILE_ROWS * c;

            now = left >= 2 * PAIR_COLS || left <= PAIR_COLS ? PAIR_COLS : (left + 1) / 2;
            switch (left < now ? left : now) {
            case 4: q6_pair_cols(tiles, w->n_in, at, a + c, 4, &next, sums); break;
            case 3: q6_pair_cols(tiles, w->n_in, at, a + c, 3, &next, sums); break;
            case 2: q6_pair_cols(tiles, w->n_in, at, a + c, 2, &next, sums); break;
            default: q6_pair_cols(tiles, w->n_in, at, a + c, 1, &next, sums); break;
            }
        }
    }
    for (int c = 0; c < n_cols; c++, y += y_stride)
        if (n_rows == 2 * LG_TILE_ROWS) // no call: see rows_sliced
            memcpy(y, acc + 2 * LG_TILE_ROWS * c, 2 * LG_TILE_ROWS * sizeof *acc);
        else
            memcpy(y, acc + 2 * LG_TILE_ROWS * c, (size_t)n_rows * sizeof *acc);
}

static void rows_q6_k_vnni(const lg_mat *w, int row, int n_rows, void *tile, const lg_acts *x,
                           const int32_t *idx, int n_cols, float *y, size_t y_stride)
{
    if (n_rows > LG_TILE_ROWS)
        rows_q6_k_pair(w, row, n_rows, tile, x, idx, n_cols, y, y_stride);
    else
        rows_sliced(unpack_q6_k_vnni, gemm_q6_k_vnni_slice, 8, 256, w, row, n_rows, tile, x, idx, n_cols, y,
                    y_stride);
}

#endif
