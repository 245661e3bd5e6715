/*
 * backend/cuda/stream: one activation row times weights in planes: the inner loop of decoding.
 *
 * A block of STREAM_WARPS warps a multiprocessor. Each warp has a ring of slots in shared memory; a slot
 * holds a piece of a row or of several: a run for each lane. cp.async fills the ring far ahead, and before
 * the kernel before has finished, so that the memory never waits for arithmetic or for a launch. The
 * activations of the block are in shared memory too: copied, or made by the norm in front of the product
 * (norm_in), which every block repeats for itself.
 *
 * The sums are those of gemv.cuh (lane l: runs l, l + width, ...; then warp_sum's pairing), so that a row has
 * the same bits in steps of several rows.
 *
 * Surprise: two kernels of the stream share a multiprocessor (the second fills its ring while the first
 * works), so a kernel here takes at most half of the registers, and STREAM_SMEM bytes of shared memory.
 * streams() and has_room() say what fits.
 */
#ifndef LG_BACKEND_CUDA_STREAM_CUH
#define LG_BACKEND_CUDA_STREAM_CUH

#include "backend/cuda/gemv.cuh"

enum {
    STREAM_WARPS = 16,
    STREAM_THREADS = 32 * STREAM_WARPS,
    STREAM_SMEM = 112 << 10,
    ACT_PIECE = 32 * 44, // bytes of 32 runs of activations in shared memory
};

/* ---- copies to shared memory ---- */

DEV unsigned shared_at(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

DEV void copy16(unsigned to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

DEV void copy16_if(unsigned to, const void *from, bool yes) // or zeros
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(yes ? 16 : 0)
                 : "memory");
}

DEV void copy4(unsigned to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

DEV void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> DEV void copies_wait(void) // until at most N groups are under way
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- pieces of rows ---- */

/* Bytes of a slot that holds a run for each lane. */
static __host__ __device__ constexpr int piece_bytes(int type)
{
    return type == LG_Q8_0 ? 1088 : type == LG_Q4_K ? 576 : type == LG_Q5_K ? 704 : 848;
}

template <int T> struct raw_run {
    uint4 a, b;     // codes; Q8_0: the second half; Q4_K, Q5_K: scales
    unsigned c, d;
};

/* Where the lane's next run is, in each plane; only of the lanes that copy from it. Runs of a group of eight
 * lanes are eight in a row, of one row. */
struct reader {
    const uint8_t *a, *b, *c, *d;
    unsigned half; // Q8_0: from the first codes of a run to the last
};

template <int T> DEV reader reader_at(const lg_cu_mat &m, const uint8_t *p, int row, int run)
{
    size_t n = (size_t)m.n_in, r = (size_t)row;
    unsigned at = (unsigned)run;
    reader x = {};

    x.a = p + r * (T == LG_Q8_0 ? n : n / 2) + at * 16;
    if (T == LG_Q6_K) {
        x.b = p + m.at[0] + r * (n / 4) + at * 8;
        x.c = p + m.at[1] + r * (n / 16) + at * 2;
        x.d = p + m.at[2] + r * (n / 128) + at / 4;
    } else {
        x.b = p + m.at[0] + r * (n / 16) + at * 2;
        if (T == LG_Q5_K)
            x.c = p + m.at[1] + r * (n / 8) + at * 4;
    }
    x.half = (unsigned)m.n_in / 2;
    return x;
}

/* A run a lane to the slot, from `off` bytes behind where the reader is. */
template <int T> DEV void fetch(unsigned slot, const reader &x, ptrdiff_t off, int lane)
{
    copy16(slot + lane * 16, x.a + off);
    if (T == LG_Q8_0) {
        copy16(slot + 512 + lane * 16, x.a + off + x.half);
        if (lane % 8 == 0)
            copy16(slot + 1024 + lane * 2, x.b + off);
    } else if (T == LG_Q6_K) {
        if (lane % 2 == 0)
            copy16(slot + 512 + lane * 8, x.b + off);
        if (lane % 8 == 0)
            copy16(slot + 768 + lane * 2, x.c + off);
        if (lane % 16 == 0)
            copy4(slot + 832 + lane / 4, x.d + off);
    } else {
        if (lane % 8 == 0)
            copy16(slot + 512 + lane * 2, x.b + off);
        if (T == LG_Q5_K && lane % 4 == 0)
            copy16(slot + 576 + lane * 4, x.c + off);
    }
}

/* The reader 32 runs further. */
template <int T> DEV void advance(reader &x)
{
    x.a += 512;
    if (T == LG_Q6_K) {
        x.b += 256;
        x.c += 64;
        x.d += 8;
    } else {
        x.b += 64;
        if (T == LG_Q5_K)
            x.c += 128;
    }
}

template <int T> DEV raw_run<T> take(const uint8_t *slot, int lane)
{
    raw_run<T> r;

    r.a = *(const uint4 *)(slot + lane * 16);
    if (T == LG_Q8_0) {
        r.b = *(const uint4 *)(slot + 512 + lane * 16);
        r.c = *(const unsigned short *)(slot + 1024 + lane * 2);
    } else if (T == LG_Q6_K) {
        uint2 h = *(const uint2 *)(slot + 512 + lane * 8);
        r.b.x = h.x, r.b.y = h.y;
        r.c = *(const unsigned short *)(slot + 768 + lane * 2);
        r.d = *(const unsigned short *)(slot + 832 + lane / 8 * 2);
    } else {
        r.b = *(const uint4 *)(slot + 512 + lane / 8 * 16);
        if (T == LG_Q5_K)
            r.c = *(const unsigned *)(slot + 576 + lane * 4);
    }
    return r;
}

/* ---- activations in shared memory ---- */

/* A run of the activation row, in registers. */
struct act_run {
    int4 q0, q1;
    float d, ds; // scale; scale times the sum of the codes
    int sums;
};

/* Activations lie in pieces of 32 runs: codes 0-15 of each, codes 16-31, scales, scales times sums, sums. Run
 * `run` of the row at p: */
DEV act_run act_of(const uint8_t *p, int run)
{
    const uint8_t *a = p + run / 32 * ACT_PIECE + run % 32 * 16,
                  *b = p + run / 32 * ACT_PIECE + 1024 + run % 32 * 4;
    act_run x = {*(const int4 *)a, *(const int4 *)(a + 512), *(const float *)b, *(const float *)(b + 128),
                 *(const int *)(b + 256)};
    return x;
}

DEV void put_meta(uint8_t *p, int run, float d, float ds, int sums)
{
    uint8_t *b = p + run / 32 * ACT_PIECE + 1024 + run % 32 * 4;

    *(float *)b = d;
    *(float *)(b + 128) = ds;
    *(int *)(b + 256) = sums;
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

/* The whole block: a quantised row of n runs from global memory. */
DEV void copy_acts(uint8_t *to, const int8_t *q, const int4 *meta, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        int4 a = __ldcg((const int4 *)q + 2 * i), b = __ldcg((const int4 *)q + 2 * i + 1),
             m = __ldcg(meta + i);
        uint8_t *p = to + i / 32 * ACT_PIECE + i % 32 * 16;
        *(int4 *)p = a;
        *(int4 *)(p + 512) = b;
        put_meta(to, i, __int_as_float(m.x), __int_as_float(m.y), m.z);
    }
}

/* Eight lanes hold a run, four values each. */
DEV void put_run4(uint8_t *to, int run, int lane, const quad &q)
{
    int l = lane & 7;

    *(int *)(to + run / 32 * ACT_PIECE + (l & 4) * 128 + run % 32 * 16 + (l & 3) * 4) = q.codes;
    if (l == 0)
        put_meta(to, run, q.scale, q.scale_sum, q.sums);
}

/* Bytes of the activations of n_in inputs. */
static __host__ __device__ __forceinline__ size_t act_room(int n_in)
{
    return (size_t)((n_in + 1023) / 1024) * ACT_PIECE;
}

/* Sums of N values over `width` lanes, in warp_sum's pairing; each lane gets that of one value, whose index
 * is returned; values 2i and 2i + 1 are on lanes that differ by width / N. N is a power of two, at most
 * width. */
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

/* ---- the norm in front of a product ---- */

enum { NORM_PIECES = 2 }; // of four columns a thread: 4096 columns at most

/* What a thread holds of a row between the loads and the norm. */
struct norm_part {
    float4 v[NORM_PIECES], w[NORM_PIECES];
};

/* Before the kernel before has finished: the norm's weights. */
DEV void norm_weights(norm_part &t, const lg_cu_normed &a)
{
#pragma unroll
    for (int j = 0; j < NORM_PIECES; j++) {
        int i = ((int)threadIdx.x + j * STREAM_THREADS) * 4;
        if (i < a.cols)
            t.w[j] = load_f4(a.w + i);
    }
}

/* After: h = norm(x + delta), its quantised form to `acts`, and h itself to `h` where that is not NULL. sums:
 * a float for each 128 columns. The first block also leaves x + delta, h and the quantised row in global
 * memory, for whoever else wants them. Ends with a barrier. */
DEV void norm_in(norm_part &t, const lg_cu_normed &a, uint8_t *acts, float *h, float *sums, bool store)
{
    int lane = (int)threadIdx.x % 32, chunks = a.cols / NORM_CHUNK;
    float total = 0.0f;

#pragma unroll
    for (int j = 0; j < NORM_PIECES; j++) {
        int i = ((int)threadIdx.x + j * STREAM_THREADS) * 4;
        float4 d = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        t.v[j] = d;
        if (i < a.cols) {
            t.v[j] = __ldcg((const float4 *)(a.x + i));
            if (a.delta)
                d = __ldcg((const float4 *)(a.delta + i));
        }
        if (a.delta)
            t.v[j] = add4(t.v[j], d);
    }
#pragma unroll
    for (int j = 0; j < NORM_PIECES; j++) {
        int i = (int)threadIdx.x + j * STREAM_THREADS;
        if (i * 4 < a.cols) { // whole warps
            float s = warp_sum(squares4(t.v[j]));
            if (lane == 0)
                sums[i / 32] = s;
        }
    }
    __syncthreads();
    for (int c = lane; c < chunks; c += 32)
        total += sums[c];
    float inv = 1.0f / sqrtf(warp_sum(total) / (float)a.cols + a.eps);
#pragma unroll
    for (int j = 0; j < NORM_PIECES; j++) {
        int i = ((int)threadIdx.x + j * STREAM_THREADS) * 4;
        if (i >= a.cols)
            continue;
        float4 y = scale4(t.v[j], inv, t.w[j]);
        quad q = quantise4(y);
        put_run4(acts, i / 32, lane, q);
        if (h)
            *(float4 *)(h + i) = y;
        if (store) {
            if (a.x_out)
                *(float4 *)(a.x_out + i) = t.v[j];
            *(float4 *)(a.h + i) = y;
            store_quad(a.acts.q, a.acts.meta, i / 32, lane, q);
        }
    }
    __syncthreads();
}

/* f with the type as a constant: T, or `type`, which is one that is streamed. */
template <int T> struct type_of {
    static constexpr int type = T;
};

template <int T, typename F> DEV void by_type(int type, F f)
{
    if constexpr (T != LG_CU_ANY)
        f(type_of<T>());
    else if (type == LG_Q8_0)
        f(type_of<LG_Q8_0>());
    else if (type == LG_Q4_K)
        f(type_of<LG_Q4_K>());
    else if (type == LG_Q5_K)
        f(type_of<LG_Q5_K>());
    else
        f(type_of<LG_Q6_K>());
}

/* ---- the ring ---- */

/* A warp's items in turn through DEPTH slots of SLOT bytes. start asks for the first; turn returns the slot
 * of the next one and asks for another. get(slot) starts the copies of the next item, while `left` says there
 * are some. */
template <int DEPTH, int SLOT> struct ring {
    uint8_t *first, *now;
    int left;

    template <typename Get> __device__ __forceinline__ void start(uint8_t *p, int n, Get get)
    {
        first = p;
        now = p + (DEPTH - 1) * SLOT; // the slot before the first one
        left = n;
#pragma unroll 1
        for (int i = 0; i < DEPTH - 1; i++) {
            if (left > 0) {
                get(shared_at(p + i * SLOT));
                left--;
            }
            copies_commit();
        }
    }
    template <typename Get> __device__ __forceinline__ const uint8_t *turn(Get get)
    {
        copies_wait<DEPTH - 2>();
        __syncwarp(); // all lanes are done with the slot before, and see this one
        if (left > 0) {
            get(shared_at(now));
            left--;
        }
        copies_commit();
        now = now == first + (DEPTH - 1) * SLOT ? first : now + SLOT;
        return now;
    }
};

/* May a block have so much shared memory? Two of them share a multiprocessor that has 228 KiB; where there is
 * less, a kernel waits for the room of the one before. */
static inline bool has_room(const lg_cu *c, size_t smem)
{
    return smem <= STREAM_SMEM && smem <= (size_t)c->smem;
}

/* Can a matrix be streamed? (Q6_K: the copies of its block scales are four bytes wide.) */
static inline bool streams(const lg_cu_mat *m)
{
    return is_planar(m->type) && m->n_in % (m->type == LG_Q6_K ? 512 : 256) == 0;
}

/* Can the norm of such a row be taken by a product? */
static inline bool norm_streams(const lg_cu_normed *a)
{
    return a->cols % 256 == 0 && a->cols <= NORM_PIECES * NORM_CHUNK * STREAM_WARPS &&
           (((uintptr_t)a->x | (uintptr_t)a->delta | (uintptr_t)a->x_out | (uintptr_t)a->h |
             (uintptr_t)a->w) &
            15) == 0;
}

#endif
