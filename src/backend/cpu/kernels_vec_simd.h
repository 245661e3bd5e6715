/*
 * backend/cpu/kernels_vec_simd: the float kernels over a vector of VL floats, instantiated by one ISA file
 * each.
 *
 * The includer defines, before the include:
 *   VL, vf                 lanes (4, 8 or 16) and the vector type
 *   VEC_Q VEC_K VEC_D      register blocks: VEC_Q queries x VEC_K keys in qk, VEC_Q queries x VEC_D vectors
 *                          in pv
 *   VEC_FIXED              1: heads of HEAD_DIM have unrolled code of their own, and 8 queries are one block
 *                          of pv; 0: code is the same for all dims (a macro)
 *   VEC_Q_F32              queries at a time with f32 keys, which cost no conversion when read again: VEC_Q
 *                          or 3
 *   VEC_FETCHES,           how often what follows is asked for, and how many rows before its turn each time:
 *   vec_rows_ahead[]       some processors drop what they have no room for among their misses
 *   VEC_FAR                how many of these, from the first, go to L2; the others to L1
 *   VEC_STREAMS            1: values are asked for in the order of memory instead, see value_streams
 *   v_zero v_set1 v_load v_store v_load_f16 v_store_f16 v_load_i8       (unaligned memory)
 *   v_add v_sub v_mul      a + b, a - b, a b
 *   v_fma(a, b, c)         a b + c; v_fnma: c - a b
 *   v_max(a, b)            a > b ? a : b, so b when one is NaN; v_min likewise
 *   v_scale(a, n)          a 2^n for integral n in [-127, 128); with n = -127 it is 0
 *   v_max_lanes(a)         the greatest lane; a NaN is passed over or is the result
 *   v_round                to the nearest integer
 *   v_sum4(a, b, c, d, out)            four lane sums to out[4]; the order of a sum's terms is the same for
 *                                      all four
 *   v_sum22(a, b, c, d, p, q)          the same sums to p[2] and q[2]
 *   f16_scalar(h)          one f16 to float
 *
 * Surprise: blocks of every size run the same sequence of operations per result, which is what makes results
 * independent of the blocking (see kernels_vec.h). A change here must keep that.
 */
#ifndef LG_BACKEND_CPU_KERNELS_VEC_SIMD_H
#define LG_BACKEND_CPU_KERNELS_VEC_SIMD_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "backend/cpu/kernels_vec.h"

#define VEC_INLINE static inline __attribute__((always_inline))
#define VEC_APART __attribute__((noinline))
enum { HEAD_DIM = 128, LINE = 64, Q8_BYTES = 34, Q8_ELEMS = 32 };

#define VEC_PRAGMA(x) _Pragma(#x)
#if defined(__clang__)
#define VEC_UNROLL(n) VEC_PRAGMA(clang loop unroll_count(n))
#else
#define VEC_UNROLL(n) VEC_PRAGMA(GCC unroll n)
#endif

/* ---- queries x keys ---- */

VEC_INLINE vf load_elem(const void *p, size_t i, bool f16)
{
    return f16 ? v_load_f16((const uint16_t *)p + i) : v_load((const float *)p + i);
}

// Rows as far ahead of row j of a tile as vec_rows_ahead says, in this tile of n rows or, past its end, in
// the next; NULL without a next one.
VEC_INLINE void find_ahead(const void *tile, const char *next, size_t row_bytes, int j, int n,
                           const char *ahead[VEC_FETCHES])
{
    for (int i = 0; i < VEC_FETCHES; i++) {
        int r = j + vec_rows_ahead[i];

        ahead[i] = !next   ? NULL
                   : r < n ? (const char *)tile + (size_t)r * row_bytes
                           : next + (size_t)(r - n) * row_bytes;
    }
}

// Fetches some bytes of these rows. Called with a little at a time between the arithmetic: in one burst the
// requests would queue up before the loads of the tile at work (measured: 14 % of decode at depth 8192).
VEC_INLINE void fetch(const char *const ahead[VEC_FETCHES], size_t from, size_t bytes)
{
    for (int i = 0; i < VEC_FETCHES && ahead[0]; i++)
        for (size_t b = 0; b < bytes; b += LINE) {
            if (i < VEC_FAR)
                __builtin_prefetch(ahead[i] + from + b, 0, 2);
            else
                __builtin_prefetch(ahead[i] + from + b);
        }
}

// Lane sums of query i, and where a block has two keys of i + 1, of a block that left its accumulators at
// `acc`.
VEC_INLINE void qk_sums(const float *acc, float *s, int s_stride, int i, int nq, int nk)
{
    const float *a = acc + i * nk * VL;
    float sum[4];

    if (nk == 4)
        v_sum4(v_load(a), v_load(a + VL), v_load(a + 2 * VL), v_load(a + 3 * VL), s + i * s_stride);
    else if (nk == 2 && i + 1 < nq)
        v_sum22(v_load(a), v_load(a + VL), v_load(a + 2 * VL), v_load(a + 3 * VL), s + i * s_stride,
                s + (i + 1) * s_stride);
    else {
        vf last = v_load(a + (nk - 1) * VL);
        v_sum4(v_load(a), last, last, last, sum);
        memcpy(s + i * s_stride, sum, (size_t)nk * sizeof *sum);
    }
}

// One block: one accumulator a pair, terms in the order of the dims; they end in `acc`, for qk_sums. As many
// bytes as it reads of the keys are fetched from each of `ahead`. Where the block before left its
// accumulators in `acc`, its sums go to `before`, in turns with the products, from the third step on, when
// what was stored can be loaded.
VEC_INLINE void qk_block(const float *q, const void *k, bool f16, int dim, float *restrict acc, float *before,
                         int s_stride, const char *const ahead[VEC_FETCHES], int nq, int nk)
{
    size_t step = (size_t)nk * VL * (f16 ? sizeof(uint16_t) : sizeof(float));
    int sums = nk == 2 ? 2 : 1; // queries a step
    vf pair[VEC_Q][4];

    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nk; j++)
            pair[i][j] = v_zero();
    VEC_UNROLL(VEC_FIXED ? 8 : 4) // the loop is short; unrolled, its end is predicted
    for (int d = 0; d < dim; d += VL) {
        vf key[4], query[4];
        fetch(ahead, (size_t)(d / VL) * step, step);
        // the fewer of the two wait in registers: 3 x 4 sums, 3 queries and a key are all that 16 can hold
        if (nq < nk) {
            for (int i = 0; i < nq; i++)
                query[i] = v_load(q + (size_t)(i * dim + d));
            for (int j = 0; j < nk; j++) {
                key[0] = load_elem(k, (size_t)(j * dim + d), f16);
                for (int i = 0; i < nq; i++)
                    pair[i][j] = v_fma(query[i], key[0], pair[i][j]);
            }
        } else {
            for (int j = 0; j < nk; j++)
                key[j] = load_elem(k, (size_t)(j * dim + d), f16);
            for (int i = 0; i < nq; i++) {
                query[0] = v_load(q + (size_t)(i * dim + d));
                for (int j = 0; j < nk; j++)
                    pair[i][j] = v_fma(query[0], key[j], pair[i][j]);
            }
        }
        int done = (d / VL - 2) * sums;
        if (before && done >= 0 && done < nq)
            qk_sums(acc, before, s_stride, done, nq, nk);
    }
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nk; j++)
            v_store(acc + (i * nk + j) * VL, pair[i][j]);
}

// One block of queries against nk >= width keys. `next`: the tile that follows, fetched while these are
// computed. The last block reaches back over keys that are done, whose sums come out the same. `weave`: dim
// is a constant, and a block's lane sums are computed during the next one's products; in one piece they take
// the multipliers' ports.
VEC_INLINE void qk_queries(const float *q, const void *k, bool f16, int nk, int dim, float *s, int s_stride,
                           const char *next, int nq, int width, bool weave)
{
    size_t key_bytes = (size_t)dim * (f16 ? sizeof(uint16_t) : sizeof(float));
    const char *ahead[VEC_FETCHES];
    float *before = NULL;
    _Alignas(LINE) float acc[VEC_Q * 4 * VL];

    for (int j = 0; j < nk; j += width) {
        int first = j + width <= nk ? j : nk - width;

        find_ahead(k, next, key_bytes, first, nk, ahead);
        qk_block(q, (const char *)k + (size_t)first * key_bytes, f16, dim, acc, before, s_stride, ahead, nq,
                 width);
        if (weave)
            before = s + first;
        for (int i = 0; !weave && i < nq; i += width == 2 ? 2 : 1)
            qk_sums(acc, s + first, s_stride, i, nq, width);
    }
    for (int i = 0; weave && i < nq; i += width == 2 ? 2 : 1)
        qk_sums(acc, before, s_stride, i, nq, width);
}

// How many of nq queries go next, `most` at most. Blocks with few accumulators wait for each other, so that
// 8 are not 6 and 2.
VEC_INLINE int next_queries(int nq, int most)
{
    if (nq == 5)
        return 3;
    if (VEC_K == 4 && (nq == 7 || nq == 8))
        return 4;
    return nq < most ? nq : most;
}

// n queries against at least 4 keys, a function each: where one function holds them all, gcc keeps
// accumulators in memory. Lane sums are woven where keys are f32: blocks that stay in a cache are read 5 %
// faster (AVX-512), but from memory, as f16 is, 3 % slower.
#define QK_PART(n, width, f16)                                                                               \
    static VEC_APART void qk_##n##_##f16(const float *q, const void *k, int nk, int dim, float *s,           \
                                         int s_stride, const char *next)                                     \
    {                                                                                                        \
        if (VEC_FIXED && dim == HEAD_DIM)                                                                    \
            qk_queries(q, k, f16, nk, HEAD_DIM, s, s_stride, next, n, width, !f16 && (n) >= 4);              \
        else                                                                                                 \
            qk_queries(q, k, f16, nk, dim, s, s_stride, next, n, width, false);                              \
    }
#define QK_PARTS(f16)                                                                                        \
    QK_PART(1, 4, f16) QK_PART(2, 4, f16) QK_PART(3, 4, f16) QK_PART(4, VEC_K, f16) QK_PART(6, VEC_K, f16)
QK_PARTS(0)
QK_PARTS(1)

VEC_INLINE void qk(const float *q, int nq, const void *k, bool f16, int nk, int dim, float *s, int s_stride,
                   const void *ahead)
{
    typedef void part(const float *q, const void *k, int nk, int dim, float *s, int s_stride,
                      const char *next);
    static part *const parts[2][VEC_Q + 1] = {{NULL, qk_1_0, qk_2_0, qk_3_0, qk_4_0, NULL, qk_6_0},
                                              {NULL, qk_1_1, qk_2_1, qk_3_1, qk_4_1, NULL, qk_6_1}};
    const char *next = ahead;

    while (nq > 0) {
        int n = next_queries(nq, f16 ? VEC_Q : VEC_Q_F32);
        parts[f16][n](q, k, nk, dim, s, s_stride, next);
        q += (size_t)n * (size_t)dim;
        s += (size_t)n * (size_t)s_stride;
        nq -= n;
        next = NULL;
    }
}

// Fewer than 4 keys.
VEC_INLINE void qk_few(const float *q, int nq, const void *k, bool f16, int nk, int dim, float *s,
                       int s_stride)
{
    while (nq > 0) {
        int n = nq >= VEC_Q ? VEC_Q : nq >= 2 ? 2 : 1;
        if (n == VEC_Q && nk >= 2)
            qk_queries(q, k, f16, nk, dim, s, s_stride, NULL, VEC_Q, 2, false);
        else if (n == VEC_Q)
            qk_queries(q, k, f16, nk, dim, s, s_stride, NULL, VEC_Q, 1, false);
        else if (n == 2 && nk >= 2)
            qk_queries(q, k, f16, nk, dim, s, s_stride, NULL, 2, 2, false);
        else {
            n = 1;
            qk_queries(q, k, f16, nk, dim, s, s_stride, NULL, 1, 1, false);
        }
        q += (size_t)n * (size_t)dim;
        s += (size_t)n * (size_t)s_stride;
        nq -= n;
    }
}

VEC_INLINE void qk_all(const float *q, int nq, const void *k, bool f16, int nk, int dim, float *s,
                       int s_stride, const void *ahead)
{
    if (nk < 4)
        qk_few(q, nq, k, f16, nk, dim, s, s_stride);
    else
        qk(q, nq, k, f16, nk, dim, s, s_stride, ahead);
}

static void vec_qk_f32(const float *q, int nq, const float *k, int nk, int dim, float *s, int s_stride,
                       const void *ahead)
{
    qk_all(q, nq, k, false, nk, dim, s, s_stride, ahead);
}

static void vec_qk_f16(const float *q, int nq, const uint16_t *k, int nk, int dim, float *s, int s_stride,
                       const void *ahead)
{
    qk_all(q, nq, k, true, nk, dim, s, s_stride, ahead);
}

/* ---- probabilities x values ---- */

// One value's share of nq queries by nd vectors of dims.
VEC_INLINE void pv_row(const float *p, int p_stride, const void *v, size_t at, bool f16, vf (*sum)[4], int nq,
                       int nd)
{
    vf value[4];

    for (int d = 0; d < nd; d++)
        value[d] = load_elem(v, at + (size_t)(d * VL), f16);
    for (int i = 0; i < nq; i++) {
        vf weight = v_set1(p[i * p_stride]);
        for (int d = 0; d < nd; d++)
            sum[i][d] = v_fma(weight, value[d], sum[i][d]);
    }
}

// Where a pass over some dims of a tile of values, `bytes` of `all`, asks for as many bytes in the order of
// memory, after the `done` bytes of the passes before it: a tile ahead, and again a pass later, so that the
// first pass asks for the end of its own tile. In the order in which passes read, half a row, then the next
// row's, memory gives 7 to 10 % less.
VEC_INLINE void value_streams(const char *tile, const char *next, size_t done, size_t bytes, size_t all,
                              const char *streams[2])
{
    streams[0] = done == 0 ? tile + all - bytes : next + done - bytes;
    streams[1] = next + done;
}

// nq queries by nd vectors of dims from `dim0` on, all values in turn. As much of the values that follow is
// fetched meanwhile, from `next` past the end of these, unless that is NULL.
VEC_INLINE void pv_block(const float *p, int p_stride, const void *v, bool f16, int nv, int dim, int dim0,
                         float *acc, const char *next, int nq, int nd)
{
    size_t elem = f16 ? sizeof(uint16_t) : sizeof(float), step = (size_t)nd * VL * elem;
    size_t row_bytes = (size_t)dim * elem;
    const char *ahead[VEC_FETCHES] = {NULL}, *streams[2] = {NULL};
    vf sum[8][4];

    acc += dim0;
    for (int i = 0; i < nq; i++)
        for (int d = 0; d < nd; d++)
            sum[i][d] = v_load(acc + i * dim + d * VL);
    if (VEC_STREAMS && next)
        value_streams(v, next, (size_t)(dim0 * nv) * elem, (size_t)nv * step, (size_t)nv * row_bytes,
                      streams);
    VEC_UNROLL(VEC_FIXED ? 4 : 1)
    for (int j = 0; j < nv; j++) {
        if (!VEC_STREAMS && j % 4 == 0) // each row would cost 4 % of the whole
            find_ahead(v, next, row_bytes, j, nv, ahead);
        if (!VEC_STREAMS)
            fetch(ahead, (size_t)(j % 4) * row_bytes + (size_t)dim0 * elem, step);
        for (size_t b = 0; VEC_STREAMS && next && b < step; b += LINE) {
            __builtin_prefetch(streams[0] + (size_t)j * step + b);
            __builtin_prefetch(streams[1] + (size_t)j * step + b);
        }
        pv_row(p + j, p_stride, v, (size_t)(j * dim + dim0), f16, sum, nq, nd);
    }
    for (int i = 0; i < nq; i++)
        for (int d = 0; d < nd; d++)
            v_store(acc + i * dim + d * VL, sum[i][d]);
}

// One block of queries over all dims, nd vectors at a time, then as many as are left.
VEC_INLINE void pv_queries(const float *p, int p_stride, const void *v, bool f16, int nv, int dim, float *acc,
                           const char *next, int nq, int nd)
{
    int d = 0;

    for (; d + nd * VL <= dim; d += nd * VL)
        pv_block(p, p_stride, v, f16, nv, dim, d, acc, next, nq, nd);
    if (nd == 3 && d + 2 * VL == dim)
        pv_block(p, p_stride, v, f16, nv, dim, d, acc, next, nq, 2);
}

#define PV_PART(n, nd, f16)                                                                                  \
    static VEC_APART void pv_##n##_##f16(const float *p, int p_stride, const void *v, int nv, int dim,       \
                                         float *acc, const char *next)                                       \
    {                                                                                                        \
        if (VEC_FIXED && dim == HEAD_DIM)                                                                    \
            pv_queries(p, p_stride, v, f16, nv, HEAD_DIM, acc, next, n, nd);                                 \
        else                                                                                                 \
            pv_queries(p, p_stride, v, f16, nv, dim, acc, next, n, nd);                                      \
    }
#define PV_PARTS(f16)                                                                                        \
    PV_PART(1, 1, f16) PV_PART(2, 4, f16) PV_PART(3, 4, f16) PV_PART(4, VEC_D, f16) PV_PART(6, VEC_D, f16)
PV_PARTS(0)
PV_PARTS(1)
#if VEC_FIXED
PV_PART(8, 3, 0)
PV_PART(8, 3, 1)
#else
#define pv_8_0 NULL
#define pv_8_1 NULL
#endif

VEC_INLINE void pv(const float *p, int p_stride, int nq, const void *v, bool f16, int nv, int dim, float *acc,
                   const void *ahead)
{
    typedef void part(const float *p, int p_stride, const void *v, int nv, int dim, float *acc,
                      const char *next);
    static part *const parts[2][9] = {{NULL, pv_1_0, pv_2_0, pv_3_0, pv_4_0, NULL, pv_6_0, NULL, pv_8_0},
                                      {NULL, pv_1_1, pv_2_1, pv_3_1, pv_4_1, NULL, pv_6_1, NULL, pv_8_1}};
    const char *next = ahead;

    while (nq > 0) {
        int n = next_queries(nq, VEC_Q), vectors = n >= 4 ? VEC_D : 4;
        if (VEC_FIXED && nq == 8 && dim == HEAD_DIM)
            n = 8;
        else if (dim % (vectors * VL) != 0)
            n = 1;
        parts[f16][n](p, p_stride, v, nv, dim, acc, next);
        p += (size_t)n * (size_t)p_stride;
        acc += (size_t)n * (size_t)dim;
        nq -= n;
        next = NULL;
    }
}

static void vec_pv_f32(const float *p, int p_stride, int nq, const float *v, int nv, int dim, float *acc,
                       const void *ahead)
{
    pv(p, p_stride, nq, v, false, nv, dim, acc, ahead);
}

static void vec_pv_f16(const float *p, int p_stride, int nq, const uint16_t *v, int nv, int dim, float *acc,
                       const void *ahead)
{
    pv(p, p_stride, nq, v, true, nv, dim, acc, ahead);
}

/* ---- rows ---- */

VEC_INLINE float lane_sum(vf a)
{
    float out[4];

    v_sum4(a, a, a, a, out);
    return out[0];
}

static float vec_max(const float *x, int n)
{
    float m;
    vf best = v_set1(x[0]), other = best;
    int i = 0;

    for (; i + 2 * VL <= n; i += 2 * VL) {
        best = v_max(v_load(x + i), best);
        other = v_max(v_load(x + i + VL), other);
    }
    if (i + VL <= n) {
        best = v_max(v_load(x + i), best);
        i += VL;
    }
    m = v_max_lanes(v_max(best, other));
    for (; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

enum { SIDE_BY_SIDE = 4 }; // vectors of exponentials

// e^x of `count` vectors for x <= 0: x = n ln 2 + r, |r| <= ln 2 / 2, e^r by its Taylor series to r^7
// (remainder 3e-9). Below -87.7 the result is 0, so minus infinity gives exactly 0. Each is one long chain.
// In steps that all vectors take together, operations wait less and the processor sees more of them.
VEC_INLINE void exp_neg(vf *x, int count)
{
    static const float inverse[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                    1.0f / 6,    1.0f / 2,   1.0f,       1.0f};
    vf n[SIDE_BY_SIDE], e[SIDE_BY_SIDE];

    for (int i = 0; i < count; i++)
        x[i] = v_max(v_set1(-88.0f), x[i]);
    for (int i = 0; i < count; i++)
        n[i] = v_round(v_mul(x[i], v_set1(1.44269504f)));
    // ln 2 in two parts, the first with 9 bits: n times it is exact
    for (int i = 0; i < count; i++)
        x[i] = v_fnma(n[i], v_set1(0.693359375f), x[i]);
    for (int i = 0; i < count; i++)
        x[i] = v_fnma(n[i], v_set1(-2.12194440e-4f), x[i]);
    for (int i = 0; i < count; i++)
        e[i] = v_set1(inverse[0]);
    VEC_UNROLL(7)
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < count; i++)
            e[i] = v_fma(e[i], x[i], v_set1(inverse[t]));
    for (int i = 0; i < count; i++)
        x[i] = v_scale(e[i], n[i]);
}

// exp(x - max) of `count` vectors to `out` unless that is NULL, added to `sum` one after the other.
VEC_INLINE vf exp_and_add(const float *x, float *out, vf top, vf sum, int count)
{
    vf e[SIDE_BY_SIDE];

    for (int i = 0; i < count; i++)
        e[i] = v_sub(v_load(x + i * VL), top);
    exp_neg(e, count);
    for (int i = 0; i < count; i++) {
        if (out)
            v_store(out + i * VL, e[i]);
        sum = v_add(sum, e[i]);
    }
    return sum;
}

VEC_INLINE float exp_sum(const float *x, float *out, int n, float max)
{
    vf top = v_set1(max), sum = v_zero();
    float tail[VL];
    int i = 0;

    for (; i + SIDE_BY_SIDE * VL <= n; i += SIDE_BY_SIDE * VL)
        sum = exp_and_add(x + i, out ? out + i : NULL, top, sum, SIDE_BY_SIDE);
    for (; i + VL <= n; i += VL)
        sum = exp_and_add(x + i, out ? out + i : NULL, top, sum, 1);
    if (i < n) {
        for (int l = 0; l < VL; l++)
            tail[l] = i + l < n ? x[i + l] : -INFINITY;
        sum = exp_and_add(tail, tail, top, sum, 1);
        for (int l = 0; out && i + l < n; l++)
            out[i + l] = tail[l];
    }
    return lane_sum(sum);
}

static float vec_exp_sum(float *x, int n, float max)
{
    return exp_sum(x, x, n, max);
}

static float vec_exp_sum_of(const float *x, int n, float max)
{
    return exp_sum(x, NULL, n, max);
}

static void vec_axpby(float *y, float a, const float *x, float b, int n)
{
    vf va = v_set1(a), vb = v_set1(b);
    int i = 0;

    for (; i + VL <= n; i += VL)
        v_store(y + i, v_fma(va, v_load(y + i), v_mul(vb, v_load(x + i))));
    for (; i < n; i++)
        y[i] = fmaf(a, y[i], b * x[i]);
}

static void vec_add(float *y, const float *x, int n)
{
    int i = 0;

    for (; i + VL <= n; i += VL)
        v_store(y + i, v_add(v_load(y + i), v_load(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
}

static void vec_scale(float *y, float a, const float *x, int n)
{
    vf va = v_set1(a);
    int i = 0;

    for (; i + VL <= n; i += VL)
        v_store(y + i, v_mul(va, v_load(x + i)));
    for (; i < n; i++)
        y[i] = a * x[i];
}

static void vec_rmsnorm(float *out, const float *x, const float *w, int n, float eps)
{
    vf sum[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    int i = 0;

    for (; i + 4 * VL <= n; i += 4 * VL)
        for (int a = 0; a < 4; a++) {
            vf v = v_load(x + i + a * VL);
            sum[a] = v_fma(v, v, sum[a]);
        }
    for (; i + VL <= n; i += VL) {
        vf v = v_load(x + i);
        sum[0] = v_fma(v, v, sum[0]);
    }
    double squares = (double)lane_sum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
    for (; i < n; i++)
        squares += (double)x[i] * (double)x[i];

    float inv = (float)(1.0 / sqrt(squares / n + (double)eps));
    vf scale = v_set1(inv);
    for (i = 0; i + VL <= n; i += VL)
        v_store(out + i, v_mul(v_mul(v_load(x + i), scale), v_load(w + i)));
    for (; i < n; i++)
        out[i] = x[i] * inv * w[i];
}

static void vec_rope(float *x, const float *cos, const float *sin, int half)
{
    int j = 0;

    for (; j + VL <= half; j += VL) {
        vf a = v_load(x + j), b = v_load(x + half + j), c = v_load(cos + j), s = v_load(sin + j);
        v_store(x + j, v_fnma(b, s, v_mul(a, c)));
        v_store(x + half + j, v_fma(a, s, v_mul(b, c)));
    }
    for (; j < half; j++) {
        float a = x[j], b = x[half + j];
        x[j] = fmaf(-b, sin[j], a * cos[j]);
        x[half + j] = fmaf(a, sin[j], b * cos[j]);
    }
}

static void vec_f16_from_f32(uint16_t *dst, const float *src, int n)
{
    vf top = v_set1(65504.0f), bottom = v_set1(-65504.0f);
    float in[VL];
    uint16_t out[VL];
    int i = 0;

    for (; i + VL <= n; i += VL)
        v_store_f16(dst + i, v_min(top, v_max(bottom, v_load(src + i))));
    if (i < n) {
        memset(in, 0, sizeof in);
        memcpy(in, src + i, (size_t)(n - i) * sizeof *src);
        v_store_f16(out, v_min(top, v_max(bottom, v_load(in))));
        memcpy(dst + i, out, (size_t)(n - i) * sizeof *dst);
    }
}

static void vec_f32_from_f16(float *dst, const uint16_t *src, int n)
{
    int i = 0;

    for (; i + VL <= n; i += VL)
        v_store(dst + i, v_load_f16(src + i));
    for (; i < n; i++)
        dst[i] = f16_scalar(src[i]);
}

static void vec_f32_from_q8_0(float *dst, const void *src, int n)
{
    const uint8_t *block = src;

    for (int i = 0; i < n; i += Q8_ELEMS, block += Q8_BYTES) {
        uint16_t h;
        memcpy(&h, block, sizeof h);
        vf d = v_set1(f16_scalar(h));
        for (int l = 0; l < Q8_ELEMS; l += VL)
            v_store(dst + i + l, v_mul(d, v_load_i8((const int8_t *)block + 2 + l)));
    }
}

VEC_INLINE void vec_fill(lg_vec_kernels *k)
{
    *k = (lg_vec_kernels){.qk_f32 = vec_qk_f32,
                          .qk_f16 = vec_qk_f16,
                          .pv_f32 = vec_pv_f32,
                          .pv_f16 = vec_pv_f16,
                          .max = vec_max,
                          .exp_sum = vec_exp_sum,
                          .exp_sum_of = vec_exp_sum_of,
                          .axpby = vec_axpby,
                          .scale = vec_scale,
                          .add = vec_add,
                          .rmsnorm = vec_rmsnorm,
                          .rope = vec_rope,
                          .f16_from_f32 = vec_f16_from_f32,
                          .f32_from_f16 = vec_f32_from_f16,
                          .f32_from_q8_0 = vec_f32_from_q8_0};
}

#endif
