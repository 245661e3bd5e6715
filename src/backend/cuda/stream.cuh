/*
 * backend/cuda/stream: a warp streams rows of a weight past one activation row: the inner loop of decoding.
 *
 * The same sums as gemv.cuh takes for several rows (lane l: runs l, l + step, ...; then warp_sum's pairing),
 * so that the bits are the same; what differs is the order of loads. Activations of a chunk of runs stay in
 * registers, the weights of the next item are on their way while the item at hand is computed, and addresses
 * are an offset each.
 *
 * Only types in planes; everything else goes through gemv.cuh.
 */
#ifndef LG_BACKEND_CUDA_STREAM_CUH
#define LG_BACKEND_CUDA_STREAM_CUH

#include "backend/cuda/gemv.cuh"

/* Where a lane's first run of row 0 is in each plane, and bytes from one row to the next. */
struct planes {
    const uint8_t *a, *b, *c, *d;
    unsigned ra, rb, rc, rd;
};

template <int T> DEV planes planes_of(const lg_cu_mat &m, const uint8_t *p, int lane)
{
    unsigned n = (unsigned)m.n_in, l = (unsigned)lane;
    planes s = {};

    s.a = p + l * 16;
    s.ra = T == LG_Q8_0 ? n : n / 2;
    if (T == LG_Q8_0) {
        s.b = p + m.at[0] + l * 2;
        s.rb = n / 16;
    } else if (T == LG_Q6_K) {
        s.b = p + m.at[0] + l * 8;
        s.rb = n / 4;
        s.c = p + m.at[1] + l * 2;
        s.rc = n / 16;
        s.d = p + m.at[2] + l / 8 * 2;
        s.rd = n / 128;
    } else {
        s.b = p + m.at[0] + l / 8 * 16;
        s.rb = n / 16;
        s.c = p + m.at[1] + l * 4;
        s.rc = n / 8;
    }
    return s;
}

template <int T> struct raw_run {
    uint4 a, b;     // codes; Q8_0: the second half; Q4_K, Q5_K: scales
    unsigned c, d;
};

/* Run `off` (a multiple of the lanes) of row `row`, of the matrix that lies `matrix` bytes behind. */
template <int T>
DEV void load_raw(raw_run<T> &r, const planes &s, ptrdiff_t matrix, unsigned row, unsigned off, unsigned half)
{
    const uint8_t *a = s.a + matrix + row * (size_t)s.ra + off * 16, *b = s.b + matrix + row * (size_t)s.rb;

    r.a = load16(a);
    if (T == LG_Q8_0) {
        r.b = load16(a + half);
        r.c = __ldg((const unsigned short *)(b + off * 2));
    } else if (T == LG_Q6_K) {
        uint2 h = load8(b + off * 8);
        r.b.x = h.x, r.b.y = h.y;
        r.c = __ldg((const unsigned short *)(s.c + matrix + row * (size_t)s.rc + off * 2));
        r.d = __ldg((const unsigned short *)(s.d + matrix + row * (size_t)s.rd + off / 4));
    } else {
        r.b = __ldg((const uint4 *)(b + off * 2));
        if (T == LG_Q5_K)
            r.c = __ldg((const unsigned *)(s.c + matrix + row * (size_t)s.rc + off * 4));
    }
}

/* A run of the activation row, in registers. */
struct act_run {
    int4 q0, q1;
    float d, ds; // scale; scale times the sum of the codes
    int sums;
};

DEV act_run load_act(const gemv_in &in, int run)
{
    const int4 *q = (const int4 *)in.q + 2 * run;
    int4 meta = in.meta[run];
    act_run a = {q[0], q[1], __int_as_float(meta.x), __int_as_float(meta.y), meta.z};
    return a;
}

DEV int dot16(int w0, int w1, int w2, int w3, int4 q)
{
    return __dp4a(w3, q.w, __dp4a(w2, q.z, __dp4a(w1, q.y, __dp4a(w0, q.x, 0))));
}

/* acc += run times run. lane8: the lane's place among the eight runs of a block. */
template <int T> DEV float dot_raw(const raw_run<T> &r, const act_run &a, int lane8, float acc)
{
    run_terms t;

    if (T == LG_Q8_0) {
        int i = dot16((int)r.a.x, (int)r.a.y, (int)r.a.z, (int)r.a.w, a.q0) +
                dot16((int)r.b.x, (int)r.b.y, (int)r.b.z, (int)r.b.w, a.q1);
        return fmaf(half_bits(r.c) * a.d, (float)i, acc);
    }
    nibbles(r.a, t.q);
    if (T == LG_Q6_K) {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            t.q[w] |= (int)((r.b.x >> 2 * w & 0x03030303) << 4);
            t.q[w + 4] |= (int)((r.b.y >> 2 * w & 0x03030303) << 4);
        }
    } else if (T == LG_Q5_K) {
#pragma unroll
        for (int w = 0; w < 8; w++)
            t.q[w] |= (int)((r.c >> w & 0x01010101) << 4);
    }
    int lo = dot16(t.q[0], t.q[1], t.q[2], t.q[3], a.q0), hi = dot16(t.q[4], t.q[5], t.q[6], t.q[7], a.q1);
    if (T == LG_Q6_K) {
        float f = half_bits(r.d);
        lo -= 32 * (int)(short)(a.sums & 0xFFFF);
        hi -= 32 * (a.sums >> 16);
        float s0 = f * (float)(int8_t)(r.c & 0xFF), s1 = f * (float)(int8_t)(r.c >> 8);
        return fmaf(a.d, fmaf(s1, (float)hi, s0 * (float)lo), acc);
    }
    k_scales(r.b, lane8, &t.s0, &t.m0);
    return fmaf(t.m0, a.ds, fmaf(t.s0 * a.d, (float)(lo + hi), acc));
}

/* acc[i] += row `first` + i of the matrix at p0, for ROWS rows; rows past the last are the last again. The
 * first weights are asked for before the kernel before has finished. */
template <int T, int ROWS, int U>
DEV void stream_rows(float (&acc)[ROWS], const lg_cu_mat &m, const uint8_t *p0, int first, const gemv_in &in,
                     int lane)
{
    planes p = planes_of<T>(m, p0, lane);
    int n = m.n_in / 32, lane8 = lane & 7;
    unsigned half = (unsigned)m.n_in / 2;
    raw_run<T> cur[U], nxt[U];

    auto load = [&](raw_run<T>(&r)[U], int i, int base) {
        int row = min(first + i, m.n_out - 1);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (lane + base + u * 32 < n)
                load_raw<T>(r[u], p, 0, (unsigned)row, (unsigned)(base + u * 32), half);
    };

    load(cur, 0, 0);
    pdl_wait(); // the activations are of the kernel before
    for (int base = 0; base < n; base += 32 * U) {
        act_run a[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (lane + base + u * 32 < n)
                a[u] = load_act(in, lane + base + u * 32);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (i + 1 < ROWS)
                load(nxt, i + 1, base);
            else if (base + 32 * U < n)
                load(nxt, 0, base + 32 * U);
#pragma unroll
            for (int u = 0; u < U; u++)
                if (lane + base + u * 32 < n)
                    acc[i] = dot_raw<T>(cur[u], a[u], lane8, acc[i]);
#pragma unroll
            for (int u = 0; u < U; u++)
                cur[u] = nxt[u];
        }
    }
}

template <int ROWS, int U>
DEV void stream_any(float (&acc)[ROWS], const lg_cu_mat &m, int first, const gemv_in &in, int lane)
{
    switch (m.type) {
    case LG_Q8_0: stream_rows<LG_Q8_0, ROWS, U>(acc, m, m.p, first, in, lane); break;
    case LG_Q4_K: stream_rows<LG_Q4_K, ROWS, U>(acc, m, m.p, first, in, lane); break;
    case LG_Q5_K: stream_rows<LG_Q5_K, ROWS, U>(acc, m, m.p, first, in, lane); break;
    default: stream_rows<LG_Q6_K, ROWS, U>(acc, m, m.p, first, in, lane); break;
    }
}

/* Sums of N values over `width` lanes, in warp_sum's pairing; each lane gets that of one value, whose index
 * is returned. N is a power of two, at most width. */
template <int N> DEV int sums_of(float (&v)[N], int width, int lane, float *sum)
{
    int index = 0, o = width / 2;

#pragma unroll
    for (int n = N; n > 1; n /= 2, o /= 2) {
        bool upper = lane & o;
#pragma unroll
        for (int i = 0; i < n / 2; i++) {
            float give = upper ? v[i] : v[i + n / 2], keep = upper ? v[i + n / 2] : v[i];
            v[i] = keep + __shfl_xor_sync(0xFFFFFFFFu, give, o);
        }
        index += upper ? n / 2 : 0;
    }
    for (; o > 0; o /= 2)
        v[0] += __shfl_xor_sync(0xFFFFFFFFu, v[0], o);
    *sum = v[0];
    return index;
}

/* The same for n_items items of B rows (no more than one at a time is spelled out, so registers stay few),
 * each with its sum handed to emit(index of the row, sum) on the lanes that have one. */
template <int T, int B, int U, bool PAIRS, typename F>
DEV void stream_items(const lg_cu_mat &m, const uint8_t *even, const uint8_t *odd, int first, int n_items,
                      const gemv_in &in, int lane, int step, F emit)
{
    planes p = planes_of<T>(m, even, lane);
    ptrdiff_t to_odd = PAIRS ? odd - even : 0;
    int n = m.n_in / 32, lane8 = lane & 7, item = 0, base = 0;
    unsigned half = (unsigned)m.n_in / 2;
    raw_run<T> cur[B][U], nxt[B][U];
    float acc[B] = {};

    auto load = [&](raw_run<T>(&r)[B][U], int at_item, int at_base) {
#pragma unroll
        for (int b = 0; b < B; b++) {
            int i = at_item * B + b, row = min(first + (PAIRS ? i / 2 : i), m.n_out - 1);
#pragma unroll
            for (int u = 0; u < U; u++)
                if (lane + at_base + u * step < n)
                    load_raw<T>(r[b][u], p, PAIRS && i % 2 ? to_odd : 0, (unsigned)row,
                                (unsigned)(at_base + u * step), half);
        }
    };
    auto compute = [&](const raw_run<T>(&r)[B][U]) {
#pragma unroll
        for (int u = 0; u < U; u++)
            if (lane + base + u * step < n) {
                act_run a = load_act(in, lane + base + u * step);
#pragma unroll
                for (int b = 0; b < B; b++)
                    acc[b] = dot_raw<T>(r[b][u], a, lane8, acc[b]);
            }
    };
    // the place after this one; false behind the last
    auto advance = [&](int *at_item, int *at_base) {
        *at_base += step * U;
        if (*at_base >= n) {
            *at_base = 0;
            ++*at_item;
        }
        return *at_item < n_items;
    };
    auto turn = [&](const raw_run<T>(&now)[B][U], raw_run<T>(&then)[B][U]) {
        int next_item = item, next_base = base;
        bool more = advance(&next_item, &next_base);

        if (more)
            load(then, next_item, next_base);
        compute(now);
        if (next_item != item) {
            float sum;
            int i = sums_of<B>(acc, step, lane, &sum);
            if (lane % (step / B) == 0)
                emit(item * B + i, sum);
#pragma unroll
            for (int b = 0; b < B; b++)
                acc[b] = 0.0f;
        }
        item = next_item;
        base = next_base;
        return more;
    };

    load(cur, 0, 0);
    while (turn(cur, nxt) && turn(nxt, cur))
        continue;
}

template <int B, int U, bool PAIRS, typename F>
DEV void items_any(const lg_cu_mat &m, const uint8_t *even, const uint8_t *odd, int first, int n_items,
                   const gemv_in &in, int lane, int step, F emit)
{
    switch (m.type) {
    case LG_Q8_0:
        stream_items<LG_Q8_0, B, U, PAIRS>(m, even, odd, first, n_items, in, lane, step, emit);
        break;
    case LG_Q4_K:
        stream_items<LG_Q4_K, B, U, PAIRS>(m, even, odd, first, n_items, in, lane, step, emit);
        break;
    case LG_Q5_K:
        stream_items<LG_Q5_K, B, U, PAIRS>(m, even, odd, first, n_items, in, lane, step, emit);
        break;
    default: stream_items<LG_Q6_K, B, U, PAIRS>(m, even, odd, first, n_items, in, lane, step, emit); break;
    }
}

#endif
