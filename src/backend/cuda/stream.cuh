/*
 * backend/cuda/stream: one activation row times weights in planes: the inner loop of decoding.
 *
 * A block of eight warps or more a multiprocessor. Each warp has a ring of slots in shared memory; a slot
 * holds a row, a slice of one of at most SLICE runs, or several short rows. One lane asks for a slot: a bulk
 * copy a plane, whose end a barrier in shared memory tells (before sm_90 all lanes copy, with cp.async); so
 * the loop has no addresses. A ring is filled before the kernel before has finished, so that the memory never
 * waits for arithmetic or for a launch. The activations of the block are in shared memory too: copied, or
 * made by the norm in front of the product (norm_in), which every block repeats for itself.
 *
 * The sums are those of gemv.cuh (lane l: runs l, l + width, ...; then warp_sum's pairing), so that a row has
 * the same bits in steps of several rows.
 *
 * Surprise: two kernels of the stream share a multiprocessor (the second fills its ring while the first
 * drains its own), so a kernel here takes at most half of the registers, and STREAM_SMEM bytes of shared
 * memory. The next kernel is let in when a warp has asked for its last bytes, or almost (ring.tell): its
 * copies are to fill the time in which this one has nothing left to ask for. streams() and plan_ring() say
 * what fits.
 *
 * Surprise: a kernel's end, and any load, comes behind the copies that are under way on its multiprocessor.
 * So before its wait a kernel asks for little, a slot of each warp at a time, and for the rest when its first
 * loads are on their way (decision 0240).
 */
#ifndef LG_BACKEND_CUDA_STREAM_CUH
#define LG_BACKEND_CUDA_STREAM_CUH

#include "backend/cuda/gemv.cuh"

enum {
    STREAM_WARPS = 8, // of a block, unless a kernel says otherwise; up to 128 registers a thread
    STREAM_THREADS = 32 * STREAM_WARPS,
    STREAM_SMEM = 115200, // and 512 bytes that are not dynamic: two blocks fill 228 KiB
    ALONE_SMEM = 116736,  // more than half: two blocks that take so much never share a multiprocessor
    SLICE = 96,           // runs of a slot, where rows are longer
    RING_LEAST = 2,       // slots of a ring
    RING_MOST = 12,
    EARLY_PACE = 1, // slots of a warp that are under way at a time before the wait
    ACT_PIECE = 32 * 44, // bytes of 32 runs of activations in shared memory
    SLICE_ACTS = SLICE / 32 * ACT_PIECE,
};

/* The warp of this thread; from a shuffle, so that the compiler knows it, and what follows from it, to be the
 * same on all lanes: addresses of bulk copies must be, and cost a loop each otherwise. */
DEV int warp_index(void)
{
    return __shfl_sync(0xFFFFFFFFu, (int)threadIdx.x / 32, 0);
}

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

DEV void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> DEV void copies_wait(void) // until at most N groups are under way
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* A barrier in shared memory at `bar`: it is passed when the bytes that one arrival announced have come. */
DEV void bar_init(unsigned bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
#endif
}

DEV void bars_ready(void) // behind the last bar_init, before the first copy
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
#endif
}

DEV void bar_expect(unsigned bar, unsigned bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
#endif
}

DEV void bar_wait(unsigned bar, unsigned parity)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
                 "@!p bra again;\n\t"
                 "}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
#endif
}

/* `bytes` (a multiple of 16, both ends aligned) to shared memory; from sm_90 on one lane calls, else all. */
DEV void copy_range(unsigned to, const uint8_t *from, unsigned bytes, unsigned bar, int lane)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(bar)
        : "memory");
#else
    for (unsigned i = (unsigned)lane * 16; i < bytes; i += 512)
        copy16(to + i, from + i);
#endif
}

/* The same, one lane, from sm_90 on: bytes that nobody needs again soon, which leave L2 before others do. */
DEV void copy_once(unsigned to, const uint8_t *from, unsigned bytes, unsigned bar)
{
#if __CUDA_ARCH__ >= 900
    uint64_t policy;

    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar), "l"(policy)
                 : "memory");
#else
    copy_range(to, from, bytes, bar, 0);
#endif
}

/* ---- rows in slots ---- */

/* Bytes of n runs (a multiple of 8), whole rows or a slice of one: planes one behind the other, as in
 * layout.cu; the f16 of Q6_K, which are aligned to two bytes, with what surrounds them. */
static __host__ __device__ constexpr int rows_bytes(int type, int n)
{
    return type == LG_Q8_0   ? 34 * n
           : type == LG_Q4_K ? 18 * n
           : type == LG_Q5_K ? 22 * n
                             : 26 * n + (n / 4 + 30) / 16 * 16;
}

template <int T> struct raw_run {
    uint4 a, b; // codes; Q8_0: the second half; Q4_K, Q5_K: scales
    unsigned c, d;
};

/* Which runs of which row a slot begins with. */
struct place {
    int row, run;
};

// Q6_K: bytes between a multiple of 16 and the f16 of the place.
DEV unsigned skew_of(const lg_cu_mat &m, place at)
{
    return (unsigned)(at.row * (m.n_in / 128) + at.run / 4) & 15;
}

template <int T> DEV unsigned copied_bytes(const lg_cu_mat &m, place at, int n)
{
    return T == LG_Q6_K ? 26u * (unsigned)n + ((skew_of(m, at) + (unsigned)n / 4 + 15) & ~15u)
                        : (unsigned)rows_bytes(T, n);
}

DEV const uint8_t *plane_at(const uint8_t *p, int row, int pitch, int off) // see streams()
{
    return p + ((unsigned)row * (unsigned)pitch + (unsigned)off);
}

/* n runs of the matrix at p, from `at` on, to a slot. whole: these are whole rows. */
template <int T>
DEV void copy_rows(unsigned to, unsigned bar, const lg_cu_mat &m, const uint8_t *p, place at, int n,
                   bool whole, int lane)
{
    unsigned u = (unsigned)n;

    if (T == LG_Q8_0) {
        const uint8_t *codes = plane_at(p, at.row, m.n_in, at.run * 16);
        copy_range(to, codes, whole ? 32 * u : 16 * u, bar, lane);
        if (!whole)
            copy_range(to + 16 * u, codes + m.n_in / 2, 16 * u, bar, lane);
        copy_range(to + 32 * u, plane_at(p + m.at[0], at.row, m.n_in / 16, at.run * 2), 2 * u, bar, lane);
        return;
    }
    copy_range(to, plane_at(p, at.row, m.n_in / 2, at.run * 16), 16 * u, bar, lane);
    if (T == LG_Q6_K) {
        unsigned skew = skew_of(m, at);
        copy_range(to + 16 * u, plane_at(p + m.at[0], at.row, m.n_in / 4, at.run * 8), 8 * u, bar, lane);
        copy_range(to + 24 * u, plane_at(p + m.at[1], at.row, m.n_in / 16, at.run * 2), 2 * u, bar, lane);
        copy_range(to + 26 * u, plane_at(p + m.at[2], at.row, m.n_in / 128, at.run / 4) - skew,
                   (skew + u / 4 + 15) & ~15u, bar, lane);
        return;
    }
    copy_range(to + 16 * u, plane_at(p + m.at[0], at.row, m.n_in / 16, at.run * 2), 2 * u, bar, lane);
    if (T == LG_Q5_K)
        copy_range(to + 18 * u, plane_at(p + m.at[1], at.row, m.n_in / 8, at.run * 4), 4 * u, bar, lane);
}

/* All lanes: does this one copy? Of a lane that was elected the compiler knows that it is alone; a bulk copy
 * under any other condition is a loop over the lanes. */
DEV bool copies(void)
{
#if __CUDA_ARCH__ >= 900
    unsigned yes;

    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "elect.sync _|p, 0xFFFFFFFF;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t"
                 "}"
                 : "=r"(yes));
    return yes != 0;
#else
    return true;
#endif
}

/* All lanes: a slot is asked for: n runs of the matrix at p. */
template <int T>
DEV void fetch(unsigned to, unsigned bar, const lg_cu_mat &m, const uint8_t *p, place at, int n, bool whole,
               int lane)
{
    if (copies()) {
        bar_expect(bar, copied_bytes<T>(m, at, n));
        copy_rows<T>(to, bar, m, p, at, n, whole, lane);
    }
}

/* The same of two matrices of one shape, one behind the other. */
template <int T>
DEV void fetch_pair(unsigned to, unsigned bar, const lg_cu_mat &m, const uint8_t *p, const uint8_t *q,
                    place at, int n, bool whole, int lane)
{
    if (copies()) {
        bar_expect(bar, 2 * copied_bytes<T>(m, at, n));
        copy_rows<T>(to, bar, m, p, at, n, whole, lane);
        copy_rows<T>(to + (unsigned)rows_bytes(T, n), bar, m, q, at, n, whole, lane);
    }
}

/* Run `run` of row `row` of a slot of `all` runs, n of a row. skew: see skew_of. */
template <int T> DEV raw_run<T> take(const uint8_t *slot, int all, int row, int n, int run, unsigned skew)
{
    raw_run<T> r;
    int at = row * n + run;

    if (T == LG_Q8_0) {
        const uint8_t *p = slot + (row * n + at) * 16;
        r.a = *(const uint4 *)p;
        r.b = *(const uint4 *)(p + n * 16);
        r.c = *(const unsigned short *)(slot + all * 32 + at * 2);
        return r;
    }
    r.a = *(const uint4 *)(slot + at * 16);
    if (T == LG_Q6_K) {
        uint2 h = *(const uint2 *)(slot + all * 16 + at * 8);
        r.b.x = h.x, r.b.y = h.y;
        r.c = *(const unsigned short *)(slot + all * 24 + at * 2);
        r.d = *(const unsigned short *)(slot + all * 26 + skew + at / 8 * 2);
    } else {
        r.b = *(const uint4 *)(slot + all * 16 + at / 8 * 16);
        if (T == LG_Q5_K)
            r.c = *(const unsigned *)(slot + all * 18 + at * 4);
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

DEV int dot16(int w0, int w1, int w2, int w3, int4 q, int sum)
{
    return __dp4a(w3, q.w, __dp4a(w2, q.z, __dp4a(w1, q.y, __dp4a(w0, q.x, sum))));
}

DEV int dot4_unsigned(unsigned w, int q, int sum)
{
    int r;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(w), "r"(q), "r"(sum));
    return r;
}

/* Sums of less than 2^22 that begin with INT_ZERO are the bits of a float, FLOAT_ZERO too large. */
enum { INT_ZERO = 0x4B400000 };
constexpr float FLOAT_ZERO = 12582912.0f;

/* Nibbles of a run times its codes. The high ones stay where they are: 16 times their sum is exact. */
DEV float dot_nibbles(uint4 w, const int4 &q0, const int4 &q1)
{
    const unsigned high = 0xF0F0F0F0, low = 0x0F0F0F0F;
    int hi = dot4_unsigned(w.x & high, q1.x, 0),
        lo = dot16((int)(w.x & low), (int)(w.y & low), (int)(w.z & low), (int)(w.w & low), q0, INT_ZERO);

    hi = dot4_unsigned(w.y & high, q1.y, hi);
    hi = dot4_unsigned(w.z & high, q1.z, hi);
    hi = dot4_unsigned(w.w & high, q1.w, hi);
    return __int_as_float((hi >> 4) + lo) - FLOAT_ZERO;
}

/* acc += run times run. lane8: the lane's place among the eight runs of a block. */
template <int T> DEV float dot_raw(const raw_run<T> &r, const act_run &a, int lane8, float acc)
{
    run_terms t;

    if (T == LG_Q8_0) {
        int lo = dot16((int)r.a.x, (int)r.a.y, (int)r.a.z, (int)r.a.w, a.q0, INT_ZERO),
            hi = dot16((int)r.b.x, (int)r.b.y, (int)r.b.z, (int)r.b.w, a.q1, 0);
        return fmaf(half_bits(r.c) * a.d, __int_as_float(lo + hi) - FLOAT_ZERO, acc);
    }
    if (T == LG_Q4_K) {
        k_scales(r.b, lane8, &t.s0, &t.m0);
        return fmaf(t.m0, a.ds, fmaf(t.s0 * a.d, dot_nibbles(r.a, a.q0, a.q1), acc));
    }
    nibbles(r.a, t.q);
    if (T == LG_Q6_K) {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            t.q[w] |= (int)((r.b.x >> 2 * w & 0x03030303) << 4);
            t.q[w + 4] |= (int)((r.b.y >> 2 * w & 0x03030303) << 4);
        }
    } else {
#pragma unroll
        for (int w = 0; w < 8; w++)
            t.q[w] |= (int)((r.c >> w & 0x01010101) << 4);
    }
    int lo = dot16(t.q[0], t.q[1], t.q[2], t.q[3], a.q0, 0),
        hi = dot16(t.q[4], t.q[5], t.q[6], t.q[7], a.q1, 0);
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

/* ---- slots times activations ---- */

/* Row `row` of a slot of `all` runs, n of a row; acts: of these n. Pieces of 32 runs from `first` on. */
template <int T, int PIECES>
DEV float pieces_dot(const uint8_t *slot, int all, int row, int n, unsigned skew, const uint8_t *acts,
                     int lane, float acc, int first = 0)
{
    raw_run<T> r[PIECES];

#pragma unroll
    for (int j = 0; j < PIECES; j++)
        r[j] = take<T>(slot, all, row, n, (first + j) * 32 + lane, skew);
#pragma unroll
    for (int j = 0; j < PIECES; j++)
        acc = dot_raw<T>(r[j], act_of(acts + (first + j) * ACT_PIECE, lane), lane & 7, acc);
    return acc;
}

/* A row of RUNS runs, a multiple of 64, that is a slot. */
template <int T, int RUNS>
DEV float row_dot(const uint8_t *slot, unsigned skew, const uint8_t *acts, int lane, float acc)
{
#pragma unroll
    for (int j = 0; j < RUNS / 32; j += 2)
        acc = pieces_dot<T, 2>(slot, RUNS, 0, RUNS, skew, acts, lane, acc, j);
    return acc;
}

template <int T>
DEV float slice_dot(const uint8_t *slot, int all, int row, int n, unsigned skew, const uint8_t *acts,
                    int lane, float acc)
{
    if (n == 96)
        return pieces_dot<T, 3>(slot, all, row, 96, skew, acts, lane, acc);
    if (n == 64)
        return pieces_dot<T, 2>(slot, all, row, 64, skew, acts, lane, acc);
#pragma unroll 1
    for (int j = lane; j < n; j += 32)
        acc = dot_raw<T>(take<T>(slot, all, row, n, j, skew), act_of(acts, j), lane & 7, acc);
    return acc;
}

/* Two rows of n runs: as fetch_pair left them, or (STACK) one behind the other in each plane. */
template <int T, bool STACK>
DEV raw_run<T> take_second(const uint8_t *slot, int n, int run, unsigned skew)
{
    return STACK ? take<T>(slot, 2 * n, 1, n, run, skew)
                 : take<T>(slot + rows_bytes(T, n), n, 0, n, run, skew);
}

template <int T, int PIECES, bool STACK>
DEV void pieces_dot2(const uint8_t *slot, int n, unsigned skew, const uint8_t *acts, int lane, float *v,
                     float *w)
{
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        raw_run<T> a = take<T>(slot, STACK ? 2 * n : n, 0, n, j * 32 + lane, skew),
                   b = take_second<T, STACK>(slot, n, j * 32 + lane, skew);
        act_run x = act_of(acts + j * ACT_PIECE, lane);
        *v = dot_raw<T>(a, x, lane & 7, *v);
        *w = dot_raw<T>(b, x, lane & 7, *w);
    }
}

template <int T, bool STACK>
DEV void slice_dot2(const uint8_t *slot, int n, unsigned skew, const uint8_t *acts, int lane, float *v,
                    float *w)
{
    if (n == 96)
        return pieces_dot2<T, 3, STACK>(slot, 96, skew, acts, lane, v, w);
    if (n == 64)
        return pieces_dot2<T, 2, STACK>(slot, 64, skew, acts, lane, v, w);
#pragma unroll 1
    for (int j = lane; j < n; j += 32) {
        act_run x = act_of(acts, j);
        *v = dot_raw<T>(take<T>(slot, STACK ? 2 * n : n, 0, n, j, skew), x, lane & 7, *v);
        *w = dot_raw<T>(take_second<T, STACK>(slot, n, j, skew), x, lane & 7, *w);
    }
}

/* A run of a quantised row on its way from global to shared memory. */
struct held_run {
    int4 a, b, meta;
};

/* Run i of n, if it is one. */
DEV void hold_run(held_run &r, const int8_t *q, const int4 *meta, int i, int n)
{
    if (i < n) {
        r.a = __ldcg((const int4 *)q + 2 * i);
        r.b = __ldcg((const int4 *)q + 2 * i + 1);
        r.meta = __ldcg(meta + i);
    }
}

DEV void put_run(uint8_t *to, const held_run &r, int i, int n)
{
    uint8_t *p = to + i / 32 * ACT_PIECE + i % 32 * 16;

    if (i < n) {
        *(int4 *)p = r.a;
        *(int4 *)(p + 512) = r.b;
        put_meta(to, i, __int_as_float(r.meta.x), __int_as_float(r.meta.y), r.meta.z);
    }
}

/* The whole block: runs [from, n) of a quantised row from global memory, two of a thread at a time. */
DEV void copy_acts(uint8_t *to, const int8_t *q, const int4 *meta, int from, int n)
{
#pragma unroll 1
    for (int i = from + (int)threadIdx.x; i < n; i += 2 * (int)blockDim.x) {
        held_run x, y;
        hold_run(x, q, meta, i, n);
        hold_run(y, q, meta, i + (int)blockDim.x, n);
        put_run(to, x, i, n);
        put_run(to, y, i + (int)blockDim.x, n);
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
#pragma unroll
    for (int far = 16 / N; far > 0; far /= 2) // no loop, whatever the width
        if (far <= o)
            v[0] += __shfl_xor_sync(0xFFFFFFFFu, v[0], far);
    *sum = v[0];
    return index;
}

/* v goes behind the values, the first one goes: so that a loop that collects values need not be unrolled
 * (code that is run once a launch has to come from memory first). */
template <int N> DEV void push(float (&values)[N], float v)
{
#pragma unroll
    for (int i = 0; i + 1 < N; i++)
        values[i] = values[i + 1];
    values[N - 1] = v;
}

/* ---- the norm in front of a product ---- */

/* What a thread of WARPS warps holds of a row between the loads and the norm: pieces of four columns. COLS:
 * all columns, where the compiler is to know them, or 0. */
template <int WARPS, int COLS> struct norm_part {
    enum { NEXT = WARPS * NORM_CHUNK, // columns from piece to piece
           PIECES = COLS ? (COLS + NEXT - 1) / NEXT : WARPS > 8 ? 2 : 4 };
    float4 v[PIECES], w[PIECES];
};

/* Is piece j of the thread, at column i, in the row? */
template <int WARPS, int COLS> DEV bool in_row(int j, int i, int cols)
{
    return (j + 1) * norm_part<WARPS, COLS>::NEXT <= COLS || i < (COLS ? COLS : cols);
}

/* Columns that it can hold, at most 4096. */
static __host__ __device__ constexpr int norm_columns(int warps)
{
    return warps * (warps > 8 ? 2 : 4) * NORM_CHUNK;
}

/* Before the kernel before has finished: the norm's weights. */
template <int WARPS, int COLS> DEV void norm_weights(norm_part<WARPS, COLS> &t, const lg_cu_normed &a)
{
#pragma unroll
    for (int j = 0; j < norm_part<WARPS, COLS>::PIECES; j++) {
        int i = ((int)threadIdx.x + j * WARPS * 32) * 4;
        if (in_row<WARPS, COLS>(j, i, a.cols))
            t.w[j] = load_f4(a.w + i);
        else
            t.w[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

/* The chunks that this block stores: every block some, so that none is late. */
DEV unsigned chunks_here(bool any)
{
    unsigned stores = 0;

    for (unsigned c = blockIdx.x; c < 32 && any; c += gridDim.x)
        stores |= 1u << c;
    return stores;
}

/* After: h = norm(x + delta), its quantised form to `acts`, and h itself to `h`, where these are not NULL.
 * sums: a float for each 128 columns. stores: of which chunks of 128 columns x + delta, h and the quantised
 * row also go to global memory, for whoever else wants them. Ends with a barrier. Pieces go in groups, so
 * that one fills the other's pauses. */
template <int WARPS, int COLS, typename Between>
DEV void norm_in(norm_part<WARPS, COLS> &t, const lg_cu_normed &a, uint8_t *acts, float *h, float *sums,
                 unsigned stores, Between between)
{
    enum { PIECES = norm_part<WARPS, COLS>::PIECES, NEXT = norm_part<WARPS, COLS>::NEXT,
           GROUP = PIECES < 4 ? PIECES : 2, SQUARES = PIECES == 3 ? 4 : PIECES };
    int lane = (int)threadIdx.x % 32, cols = COLS ? COLS : a.cols, chunks = cols / NORM_CHUNK;
    int at = (int)threadIdx.x * 4;
    float square[SQUARES] = {}, sum;
    float4 d[PIECES];

#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        int i = at + j * NEXT;
        t.v[j] = d[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (in_row<WARPS, COLS>(j, i, cols)) {
            t.v[j] = __ldcg((const float4 *)(a.x + i));
            if (a.delta)
                d[j] = __ldcg((const float4 *)(a.delta + i));
        }
    }
    between();
#pragma unroll
    for (int j = 0; j < PIECES; j++)
        if (a.delta)
            t.v[j] = add4(t.v[j], d[j]);
#pragma unroll
    for (int j = 0; j < PIECES; j++)
        square[j] = squares4(t.v[j]);
    int piece = sums_of<SQUARES>(square, 32, lane, &sum), chunk = at / NORM_CHUNK + piece * WARPS;
    if (lane % (32 / SQUARES) == 0 && chunk < chunks)
        sums[chunk] = sum;
    __syncthreads();
    float total = lane < chunks ? sums[lane] : 0.0f; // at most 32, see norm_streams
    float inv = 1.0f / sqrtf(warp_sum(total) / (float)cols + a.eps);
#pragma unroll
    for (int j = 0; j < PIECES; j += GROUP) {
        int i = at + j * NEXT;
        float4 y[GROUP];
        quad q[GROUP];
        if (!in_row<WARPS, COLS>(j, i, cols)) // whole warps
            break;
#pragma unroll
        for (int k = 0; k < GROUP; k++)
            y[k] = scale4(t.v[j + k], inv, t.w[j + k]);
        if (acts || stores) // whole blocks
#pragma unroll
            for (int k = 0; k < GROUP; k++)
                q[k] = quantise4(y[k]);
#pragma unroll
        for (int k = 0; k < GROUP; k++, i += NEXT) {
            if (!in_row<WARPS, COLS>(j + k, i, cols))
                break;
            if (h)
                *(float4 *)(h + i) = y[k];
            if (acts)
                put_run4(acts, i / 32, lane, q[k]);
            if (!(stores >> (i / NORM_CHUNK) & 1)) // whole warps
                continue;
            if (a.x_out)
                *(float4 *)(a.x_out + i) = t.v[j + k];
            *(float4 *)(a.h + i) = y[k];
            if (a.also)
                *(float4 *)(a.also + i) = y[k];
            store_quad(a.acts.q, a.acts.meta, i / 32, lane, q[k]);
        }
    }
    __syncthreads();
}

/* Q4_K or Q6_K: the mixture that published files have in one product. */
enum { LG_CU_Q4_Q6 = -2 };

/* f with the type as a constant: T, or `type`, which is one that is streamed. */
template <int T> struct type_of {
    static constexpr int type = T;
};

template <int T, typename F> DEV void by_type(int type, F f)
{
    if constexpr (T >= 0)
        f(type_of<T>());
    else if constexpr (T == LG_CU_Q4_Q6)
        type == LG_Q4_K ? f(type_of<LG_Q4_K>()) : f(type_of<LG_Q6_K>());
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

struct ring_plan {
    int slot, depth, warps; // bytes of a slot; slots of a warp; warps of a block
};

static __host__ __device__ __forceinline__ int ring_room(ring_plan p)
{
    return p.warps * p.depth * (p.slot + 8);
}

/* A warp's items in turn through its slots. get(slot, barrier) asks for the next item, on all lanes. `ahead`
 * of them are asked for and not done with, `left` are still to be asked for. */
struct row_ring {
    const uint8_t *first;
    unsigned slots, bars; // shared addresses of the warp's first slot and barrier
    int slot, depth, at, ahead, left;
    unsigned parity; // of the barrier of slot `at`
    int tell;        // the next kernel is let in when so few are left to be asked for; -1: it has been

    // smem: rings of all warps, then their barriers. n items will come.
    __device__ __forceinline__ void open(const uint8_t *smem, ring_plan p, int warp, int lane, int n,
                                         int tell_at)
    {
        first = smem + warp * p.depth * p.slot;
        slots = shared_at(first);
        bars = shared_at(smem + p.warps * p.depth * p.slot + warp * p.depth * 8);
        slot = p.slot;
        depth = p.depth;
        at = ahead = 0;
        left = n;
        parity = 0;
        tell = tell_at;
        if (lane < depth)
            bar_init(bars + (unsigned)lane * 8);
        bars_ready();
        __syncwarp();
    }
    __device__ __forceinline__ void asked(void)
    {
#if __CUDA_ARCH__ < 900
        copies_commit();
#endif
    }
    // Asks for up to `most` items, while there is room. pace: so many are under way at most; before the first
    // turn.
    template <typename Get> __device__ __forceinline__ void fill(int most, Get get, int pace = RING_MOST)
    {
#pragma unroll 1
        for (; most > 0 && left > 0 && ahead < depth; most--, left--, ahead++) {
            int i = at + ahead < depth ? at + ahead : at + ahead - depth;
#if __CUDA_ARCH__ >= 900
            if (ahead >= pace)
                bar_wait(bars + (unsigned)(ahead - pace) * 8, 0);
#endif
            get(slots + (unsigned)(i * slot), bars + (unsigned)i * 8);
            asked();
        }
    }
    // The next item's slot, once it is there. The ring is as full as it can be.
    __device__ __forceinline__ const uint8_t *turn(void)
    {
#if __CUDA_ARCH__ >= 900
        bar_wait(bars + (unsigned)at * 8, parity);
#else
        if (ahead >= 3) // a group of copies a slot
            copies_wait<2>();
        else
            copies_wait<0>();
        __syncwarp();
#endif
        return first + at * slot;
    }
    // All lanes have read it: its place is for the next. Behind griddepcontrol.wait.
    template <typename Get> __device__ __forceinline__ void done(Get get)
    {
        __syncwarp();
        if (left > 0) {
            get(slots + (unsigned)(at * slot), bars + (unsigned)at * 8);
            asked();
            left--;
        } else {
            ahead--;
        }
        if (left <= tell) {
            tell = -1;
            let_next();
        }
        if (++at == depth) {
            at = 0;
            parity ^= 1;
        }
    }
};

/* Slots of so many bytes in the room that `other` bytes leave; depth 0: they do not fit. */
static inline ring_plan plan_ring(const lg_cu *c, int slot, size_t other, int warps)
{
    size_t room = STREAM_SMEM < c->smem ? (size_t)STREAM_SMEM : (size_t)c->smem;
    ring_plan p = {slot, 0, warps};

    if (room > other)
        p.depth = (int)((room - other) / (size_t)(warps * (slot + 8)));
    if (p.depth > RING_MOST)
        p.depth = RING_MOST;
    if (p.depth < RING_LEAST)
        p.depth = 0;
    return p;
}

/* Can a matrix be streamed? Places in a plane are counted with 32 bits. */
static inline bool streams(const lg_cu_mat *m)
{
    return is_planar(m->type) && m->n_in % 256 == 0 && m->matrix_bytes < (size_t)1 << 32;
}

/* Can the norm of such a row be taken by a product? */
static inline bool norm_streams(const lg_cu_normed *a)
{
    return a->cols % 256 == 0 && a->cols <= norm_columns(STREAM_WARPS) &&
           (((uintptr_t)a->x | (uintptr_t)a->delta | (uintptr_t)a->x_out | (uintptr_t)a->h |
             (uintptr_t)a->w) &
            15) == 0;
}

#endif
