/*
 * backend/cuda/gemv: dot products of a warp: R weight rows with up to COLS activation rows.
 *
 * Lane l takes the runs l, l + 32, ... in ascending order; integer dots of a run are exact, f32 sums follow
 * that order, and warp_sum joins the lanes. So a result does not depend on COLS, on R, or on where the row
 * stands: that is what the exactness of small steps rests on.
 */
#ifndef LG_BACKEND_CUDA_GEMV_CUH
#define LG_BACKEND_CUDA_GEMV_CUH

#include "backend/cuda/common.cuh"

/* Activation rows: quantised, and as floats for float weights. Row c of column list i is idx[i]. */
struct gemv_in {
    const int8_t *q;
    const int4 *meta;
    const float *x;
    size_t x_stride;
    int n_cols;
};

template <int T, int COLS>
DEV void dot_run(float acc[COLS], const run_terms &t, const gemv_in &in, const int *col, int n_in, int run)
{
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        if (COLS > 1 && c >= in.n_cols)
            break;
        const int4 *q = (const int4 *)(in.q + (size_t)col[c] * (size_t)n_in) + 2 * run;
        int4 meta = in.meta[(size_t)col[c] * (size_t)(n_in / 32) + (size_t)run], a = q[0], b = q[1];
        float da = __int_as_float(meta.x), ds = __int_as_float(meta.y);
        int lo = __dp4a(t.q[0], a.x, 0), hi = __dp4a(t.q[4], b.x, 0);
        lo = __dp4a(t.q[1], a.y, lo), hi = __dp4a(t.q[5], b.y, hi);
        lo = __dp4a(t.q[2], a.z, lo), hi = __dp4a(t.q[6], b.z, hi);
        lo = __dp4a(t.q[3], a.w, lo), hi = __dp4a(t.q[7], b.w, hi);
        if (!fmt<T>::HALVES) { // as stream.cuh's dot_raw, to the bit
            acc[c] = fmaf(t.s0 * da, (float)(lo + hi), acc[c]);
            if (fmt<T>::MINS)
                acc[c] = fmaf(t.m0, ds, acc[c]);
            continue;
        }
        int sum0 = (int)(short)(meta.z & 0xFFFF), sum1 = meta.z >> 16;
        if (fmt<T>::OFFSET) {
            lo -= fmt<T>::OFFSET * sum0;
            hi -= fmt<T>::OFFSET * sum1;
        }
        float v = fmaf(t.s1, (float)hi, t.s0 * (float)lo);
        if (fmt<T>::MINS)
            v = fmaf(t.m0, (float)sum0, fmaf(t.m1, (float)sum1, v));
        acc[c] = fmaf(da, v, acc[c]);
    }
}

/* Runs first, first + step, ... of R rows, row[r] of the matrix at p[r]; acc is added to. U runs are loaded
 * before the first is used. */
template <int T, int COLS, int R, int U>
DEV void dot_rows(float (&acc)[R][COLS], const lg_cu_mat &m, const uint8_t *const (&p)[R],
                  const int (&row)[R], const gemv_in &in, const int *col, int first, int step)
{
    int n = m.n_in / 32;

    for (int base = first; base < n; base += step * U) {
        fmt<T> f[U][R];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (base + u * step < n)
#pragma unroll
                for (int r = 0; r < R; r++)
                    f[u][r].load(m, p[r], row[r], base + u * step);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (base + u * step < n)
#pragma unroll
                for (int r = 0; r < R; r++) {
                    run_terms t;
                    f[u][r].get(base + u * step, &t);
                    dot_run<T, COLS>(acc[r], t, in, col, m.n_in, base + u * step);
                }
    }
}

/* Eight weights of group g of a row; `vec`: aligned, and all there. */
DEV void load_weights8(const lg_cu_mat &m, const uint8_t *p, int row, int g, bool vec, float (&w)[8])
{
    const uint8_t *at = p + ((size_t)row * (size_t)m.n_in + (size_t)g * 8) * float_bytes(m.type);

    if (!vec) {
        for (int i = 0; i < 8; i++)
            w[i] = g * 8 + i < m.n_in ? float_at(m.type, at, (size_t)i) : 0.0f;
    } else if (m.type == LG_F32) {
        uint4 a = load16(at), b = load16(at + 16);
        w[0] = __uint_as_float(a.x), w[1] = __uint_as_float(a.y), w[2] = __uint_as_float(a.z);
        w[3] = __uint_as_float(a.w), w[4] = __uint_as_float(b.x), w[5] = __uint_as_float(b.y);
        w[6] = __uint_as_float(b.z), w[7] = __uint_as_float(b.w);
    } else {
        uint4 a = load16(at);
        const unsigned h[4] = {a.x, a.y, a.z, a.w};
        bool f16 = m.type == LG_F16;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            w[2 * i] = f16 ? half_bits(h[i] & 0xFFFF) : __uint_as_float(h[i] << 16);
            w[2 * i + 1] = f16 ? half_bits(h[i] >> 16) : __uint_as_float(h[i] & 0xFFFF0000u);
        }
    }
}

/* Float weights: lane l takes the groups of 8 elements l, l + step, ...; U groups are loaded before the first
 * use. */
template <int COLS, int R, int U>
DEV void dot_floats(float (&acc)[R][COLS], const lg_cu_mat &m, const uint8_t *const (&p)[R],
                    const int (&row)[R], const gemv_in &in, const int *col, int lane, int step)
{
    bool vec = m.n_in % 8 == 0 && in.x_stride % 4 == 0 && ((uintptr_t)in.x & 15) == 0;

    for (int base = lane; base * 8 < m.n_in; base += step * U) {
        float w[U][R][8];
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int r = 0; r < R; r++)
                if ((base + u * step) * 8 < m.n_in)
                    load_weights8(m, p[r], row[r], base + u * step, vec, w[u][r]);
#pragma unroll
        for (int u = 0; u < U; u++) {
            int g = base + u * step;
            if (g * 8 >= m.n_in)
                break;
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                if (COLS > 1 && c >= in.n_cols)
                    break;
                const float *x = in.x + (size_t)col[c] * in.x_stride + (size_t)g * 8;
                float v[8];
                if (vec) {
                    float4 a = *(const float4 *)x, b = *(const float4 *)(x + 4);
                    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z,
                    v[7] = b.w;
                } else {
                    for (int i = 0; i < 8; i++)
                        v[i] = g * 8 + i < m.n_in ? x[i] : 0.0f;
                }
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int i = 0; i < 8; i++)
                        acc[r][c] = fmaf(w[u][r][i], v[i], acc[r][c]);
            }
        }
    }
}

/* warp_sum over `width` lanes. */
DEV float lanes_sum(float v, int width)
{
    for (int o = width / 2; o > 0; o >>= 1)
        v += __shfl_xor_sync(0xFFFFFFFFu, v, o);
    return v;
}

/* Any type; ANY also those that are read as stored. Which types a kernel can meet decides its registers. */
template <int COLS, int R, int U, bool ANY>
DEV void dot_any(float (&acc)[R][COLS], const lg_cu_mat &m, const uint8_t *const (&p)[R], const int (&row)[R],
                 const gemv_in &in, const int *col, int lane, int step)
{
    switch (m.type) {
    case LG_Q8_0: dot_rows<LG_Q8_0, COLS, R, U>(acc, m, p, row, in, col, lane, step); break;
    case LG_Q4_K: dot_rows<LG_Q4_K, COLS, R, U>(acc, m, p, row, in, col, lane, step); break;
    case LG_Q5_K: dot_rows<LG_Q5_K, COLS, R, U>(acc, m, p, row, in, col, lane, step); break;
    case LG_Q6_K: dot_rows<LG_Q6_K, COLS, R, U>(acc, m, p, row, in, col, lane, step); break;
    case LG_F32:
    case LG_F16:
    case LG_BF16: dot_floats<COLS, R, 1>(acc, m, p, row, in, col, lane, step); break;
    default:
        if (ANY)
            dot_rows<LG_CU_ANY, COLS, R, 1>(acc, m, p, row, in, col, lane, step);
        break;
    }
}

/* Bytes that a warp reads first of a row, into L2, while an earlier kernel still runs. */
DEV void prefetch_row(const lg_cu_mat &m, const uint8_t *p, int row, int lane)
{
    size_t bytes = is_planar(m.type) ? (size_t)m.n_in / (m.type == LG_Q8_0 ? 1 : 2)
                   : is_float(m.type) ? (size_t)m.n_in * float_bytes(m.type)
                                      : 0;

    for (size_t at = (size_t)lane * 128; at < bytes; at += 32 * 128)
        prefetch_l2(p + (size_t)row * bytes + at);
}

#endif
