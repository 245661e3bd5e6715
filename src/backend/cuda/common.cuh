/*
 * backend/cuda/common: what all kernel files share: launches, loads, warp sums, and the block formats as runs
 * of 32 elements.
 *
 * A run is the unit of every product: 32 int8 codes (in the order of the elements) with a scale, and for some
 * formats a minimum, for each half: value[i] = s[i / 16] * code[i] + m[i / 16]. The formats of published
 * files have planes of their own (layout.cu) and are read with aligned 16-byte loads; the rest is read as
 * stored.
 *
 * Surprise: griddepcontrol.wait must come before the first read of anything that an earlier kernel of the
 * step wrote. Where it also comes before launch_dependents, at most two kernels overlap, and nothing of the
 * one before them; only behind such a launch may a kernel read earlier what that launch has waited for (ids,
 * groups, a router's input). Some let the next one in before they wait: it may then do nothing but ask for
 * weights.
 */
#ifndef LG_BACKEND_CUDA_COMMON_CUH
#define LG_BACKEND_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/kernels.h"

#define DEV static __device__ __forceinline__

/* ---- launches ---- */

DEV void wait_for_last(void) // until the kernel before has finished
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEV void let_next(void) // the next kernel may start, when all blocks have said so
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

DEV void pdl_wait(void)
{
    wait_for_last();
    let_next();
}

/* A value that another launch, which need not have finished, leaves where -1 is. */
DEV void put_shared_id(int32_t *p, int id)
{
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(id) : "memory");
}

DEV int await_shared_id(const int32_t *p)
{
    int id;
    do
        asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(id) : "l"(p) : "memory");
    while (id < 0);
    return id;
}

/* For a kernel that shares a multiprocessor with the next one: room for the shared memory of both. */
template <typename... Params> static void share_sm(lg_cu *c, void (*kernel)(Params...), size_t smem)
{
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared);

    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    if (e != cudaSuccess && c->error == cudaSuccess)
        c->error = e;
}

/* cluster: blocks of a cluster, along x; 1: none. */
template <typename... Params, typename... Args>
static void launch_clusters(lg_cu *c, void (*kernel)(Params...), dim3 grid, int threads, size_t smem,
                            int cluster, Args... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attr[2];
    int n = 0;

    config.gridDim = grid;
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = smem;
    config.stream = c->stream;
    if (c->pdl && !c->uneven) {
        attr[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attr[n].id = cudaLaunchAttributeClusterDimension;
        attr[n].val.clusterDim.x = (unsigned)cluster;
        attr[n].val.clusterDim.y = attr[n].val.clusterDim.z = 1;
        n++;
    }
    config.attrs = attr;
    config.numAttrs = (unsigned)n;
    c->uneven = false;
    c->launches++;
    cudaError_t e = cudaLaunchKernelEx(&config, kernel, Params(args)...);
    if (e != cudaSuccess && c->error == cudaSuccess)
        c->error = e;
}

template <typename... Params, typename... Args>
static void launch(lg_cu *c, void (*kernel)(Params...), dim3 grid, int threads, size_t smem, Args... args)
{
    launch_clusters(c, kernel, grid, threads, smem, 1, args...);
}

static inline int ceil_div(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}

static inline int bucket_rows(const lg_cu *c, lg_rows rows)
{
    return rows == LG_ROWS_OUT ? c->outs : c->rows;
}

/* The groups of an expert's entries, into the arguments of a kernel. */
template <typename Args> static void take_groups(Args *a, const lg_cu *c, int k)
{
    a->group = c->group;
    a->n_group = c->n_group;
    a->entry = c->entry;
    a->k = k;
}

DEV int step_rows(const lg_cu_step *s, int rows)
{
    return rows == LG_ROWS_OUT ? s->n_out : s->n_rows;
}

/* ---- loads and warps ---- */

// Weights: read once, so they need no place in L1.
DEV uint4 load16(const void *p)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}

DEV uint2 load8(const void *p)
{
    uint2 v;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

DEV void prefetch_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* One more has come: how many had before. What the block's threads wrote before a barrier in front of it is
 * seen by those who find themselves last. */
DEV int arrive(int *counter)
{
    int n;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(n) : "l"(counter) : "memory");
    return n;
}

DEV float warp_sum(float v)
{
    for (int o = 16; o > 0; o >>= 1)
        v += __shfl_xor_sync(0xFFFFFFFFu, v, o);
    return v;
}

DEV float warp_max(float v)
{
    for (int o = 16; o > 0; o >>= 1)
        v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, o));
    return v;
}

DEV float half_bits(unsigned h)
{
    return __half2float(__ushort_as_half((unsigned short)h));
}

DEV float silu(float g)
{
    float e = expf(-fabsf(g)); // never overflows
    return g * ((g < 0.0f ? e : 1.0f) / (1.0f + e));
}

/* 127 / max and max / 127, rounded to nearest, for max >= 2^-100; without branches, so that several go on at
 * a time: a quotient is corrected twice by what it leaves. */
DEV float inverse_of(float max)
{
    bool big = max > 0x1p100f; // whose reciprocal may be too small for a normal number
    float m = big ? max * 0x1p-64f : max, y, q;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(m));
    y = fmaf(y, fmaf(-m, y, 1.0f), y);
    q = __fmul_rn(127.0f, y);
    q = fmaf(fmaf(-m, q, 127.0f), y, q);
    q = fmaf(fmaf(-m, q, 127.0f), y, q);
    return big ? q * 0x1p-64f : q;
}

DEV float scale_of(float max)
{
    float q = __fmul_rn(max, 1.0f / 127.0f), s = fmaf(fmaf(-127.0f, q, max), 1.0f / 127.0f, q);

    return s == s ? s : q; // infinite
}

/* quantise32's code. 1.5 * 2^23 is added, so that the sum's low bits are the product's nearest integer. */
DEV int code_of(float a, float inverse)
{
    int bits = __float_as_int(__fadd_rn(__fmul_rn(a, inverse), 12582912.0f));

    return (unsigned)(bits - 0x4B400000 + 127) <= 254u ? bits : 0x4B400000; // its low byte is the code
}

/* The activation `a` to a code and, on every lane, the scale of the 32 lanes' values (kernels.h of the CPU).
 */
DEV int quantise32(float a, float *scale)
{
    float max = warp_max(fabsf(a));
    bool zero = !(max >= 0x1p-100f);

    *scale = zero ? 0.0f : scale_of(max);
    return code_of(a, zero ? 0.0f : inverse_of(max)) - 0x4B400000;
}

/* All lanes: store one run of a quantised row. */
DEV void store_run(int8_t *q, int4 *meta, int run, int lane, float a)
{
    float scale;
    int code = quantise32(a, &scale), sum = code;

    for (int o = 8; o > 0; o >>= 1)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, o);
    int other = __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
    q[run * 32 + lane] = (int8_t)code;
    if (lane == 0)
        meta[run] = make_int4(__float_as_int(scale), __float_as_int(__fmul_rn(scale, (float)(sum + other))),
                              (sum & 0xFFFF) | other << 16, 0);
}

/* ---- four values a lane ---- */

DEV float4 load_f4(const float *p) // of weights, in time: not moved behind a wait
{
    float4 v;
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p));
    return v;
}

DEV float4 add4(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

DEV float squares4(float4 v)
{
    return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, v.x * v.x)));
}

DEV float4 scale4(float4 v, float inv, float4 w)
{
    return make_float4(v.x * inv * w.x, v.y * inv * w.y, v.z * inv * w.z, v.w * inv * w.w);
}

DEV float abs_max4(float4 v)
{
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

DEV unsigned low_bytes(unsigned a, unsigned b, unsigned c, unsigned d)
{
    return __byte_perm(__byte_perm(a, b, 0x40), __byte_perm(c, d, 0x40), 0x5410);
}

/* code_of of four values, packed. */
DEV int codes4(float4 v, float inverse)
{
    return (int)low_bytes((unsigned)code_of(v.x, inverse), (unsigned)code_of(v.y, inverse),
                          (unsigned)code_of(v.z, inverse), (unsigned)code_of(v.w, inverse));
}

/* A lane's four codes of a run that eight lanes share, and on all of them the run's numbers. */
struct quad {
    int codes, sums;
    float scale, scale_sum;
};

/* store_run's numbers, with four values on each of eight lanes. */
DEV quad quantise4(float4 v)
{
    float max = abs_max4(v);

    for (int o = 4; o > 0; o >>= 1)
        max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFu, max, o));
    bool zero = !(max >= 0x1p-100f);
    float inverse = zero ? 0.0f : inverse_of(max);
    int codes = codes4(v, inverse), sum = __dp4a(codes, 0x01010101, 0);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    int other = __shfl_xor_sync(0xFFFFFFFFu, sum, 4), low = threadIdx.x & 4 ? other : sum;
    int high = threadIdx.x & 4 ? sum : other;
    quad q = {codes, (low & 0xFFFF) | high << 16, zero ? 0.0f : scale_of(max), 0.0f};
    q.scale_sum = __fmul_rn(q.scale, (float)(low + high));
    return q;
}

DEV void store_quad(int8_t *q, int4 *meta, int run, int lane, const quad &a)
{
    ((int *)q)[run * 8 + (lane & 7)] = a.codes;
    if ((lane & 7) == 0)
        meta[run] = make_int4(__float_as_int(a.scale), __float_as_int(a.scale_sum), a.sums, 0);
}

/* The sum of squares of a row: four columns a lane, 128 a warp, then over those chunks (chunk c on lane c %
 * 32, ascending), then warp_sum. A thread holds NORM_HELD pieces; wider rows are read again. */
enum { NORM_CHUNK = 128, NORM_HELD = 4 };

/* ---- runs ---- */

struct run_terms {
    int q[8];
    float s0, s1, m0, m1;
};

DEV unsigned byte_at(const uint8_t *p)
{
    return __ldg(p);
}

DEV unsigned word16(const uint8_t *p)
{
    return byte_at(p) | byte_at(p + 1) << 8;
}

DEV float pow2(int e) // e >= -149
{
    return e >= -126 ? __int_as_float((e + 127) << 23) : __int_as_float(1 << (e + 149));
}

__device__ static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                1,    13,   25,  38,  53,  69,  89,  113};

DEV int fp4_value(int nibble)
{
    const unsigned long long levels = 0x0C08060403020100ull; // 12 8 6 4 3 2 1 0
    int v = (int)(levels >> 8 * (nibble & 7) & 0xFF);
    return nibble & 8 ? -v : v;
}

DEV float nvfp4_value(unsigned b)
{
    int exp = (int)(b >> 3 & 15), man = (int)(b & 7);
    if (b == 0x7F)
        return 0.0f;
    return exp ? (float)(8 + man) * pow2(exp - 11) : (float)man * pow2(-10);
}

DEV int block_bytes_of(int type)
{
    switch (type) {
    case LG_Q4_0: case LG_IQ4_NL: return 18;
    case LG_Q4_1: return 20;
    case LG_Q5_0: return 22;
    case LG_Q5_1: return 24;
    case LG_MXFP4: return 17;
    case LG_NVFP4: return 36;
    case LG_Q2_K: return 84;
    case LG_Q3_K: return 110;
    default: return 136; // IQ4_XS
    }
}

// Types with blocks of 32: nibbles end the block, a fifth bit stands before them.
static __device__ __noinline__ void any_run32(int type, const uint8_t *b, run_terms *t)
{
    const uint8_t *q = b + block_bytes_of(type) - 16;
    unsigned qh = type == LG_Q5_0 || type == LG_Q5_1 ? word16(q - 4) | word16(q - 2) << 16 : 0;

    t->s0 = type == LG_MXFP4 ? pow2((int)byte_at(b) - 128) : half_bits(word16(b));
    t->m0 = type == LG_Q4_1 || type == LG_Q5_1 ? half_bits(word16(b + 2)) : 0.0f;
    t->s1 = t->s0;
    t->m1 = t->m0;
    for (int w = 0; w < 8; w++) {
        unsigned word = 0;
        for (int i = 0; i < 4; i++) {
            int e = 4 * w + i, byte = (int)byte_at(q + (e & 15)), nibble = e < 16 ? byte & 15 : byte >> 4;
            int high = (int)(qh >> e & 1) << 4, code = nibble;
            switch (type) {
            case LG_Q4_0: code = nibble - 8; break;
            case LG_Q5_0: code = (nibble | high) - 16; break;
            case LG_Q5_1: code = nibble | high; break;
            case LG_IQ4_NL: code = iq4_values[nibble]; break;
            case LG_MXFP4: code = fp4_value(nibble); break;
            default: break; // Q4_1
            }
            word |= (unsigned)(code & 0xFF) << 8 * i;
        }
        t->q[w] = (int)word;
    }
}

// Run r (of 8, or of 2 for NVFP4) of a block of 256 (64) elements.
static __device__ __noinline__ void any_run_k(int type, const uint8_t *b, int r, run_terms *t)
{
    float d = 0.0f;

    t->m0 = t->m1 = 0.0f;
    if (type == LG_NVFP4) {
        t->s0 = nvfp4_value(byte_at(b + 2 * r));
        t->s1 = nvfp4_value(byte_at(b + 2 * r + 1));
    } else if (type == LG_Q2_K) {
        unsigned a0 = byte_at(b + 2 * r), a1 = byte_at(b + 2 * r + 1);
        float dmin = half_bits(word16(b + 82));
        d = half_bits(word16(b + 80));
        t->s0 = d * (float)(a0 & 15), t->s1 = d * (float)(a1 & 15);
        t->m0 = -dmin * (float)(a0 >> 4), t->m1 = -dmin * (float)(a1 >> 4);
    } else if (type == LG_Q3_K) {
        d = half_bits(word16(b + 108));
        for (int h = 0; h < 2; h++) {
            int k = 2 * r + h;
            int low = k < 8 ? (int)byte_at(b + 96 + k) & 15 : (int)byte_at(b + 96 + k - 8) >> 4;
            int high = (int)byte_at(b + 104 + k % 4) >> 2 * (k / 4) & 3;
            (h ? t->s1 : t->s0) = d * (float)((low | high << 4) - 32);
        }
    } else { // IQ4_XS
        int s = (int)(byte_at(b + 4 + r / 2) >> 4 * (r & 1) & 15) | (int)(word16(b + 2) >> 2 * r & 3) << 4;
        t->s0 = t->s1 = half_bits(word16(b)) * (float)(s - 32);
    }
    for (int w = 0; w < 8; w++) {
        unsigned word = 0;
        for (int i = 0; i < 4; i++) {
            int e = 4 * w + i, code;
            if (type == LG_NVFP4) {
                int byte = (int)byte_at(b + 4 + 8 * (2 * r + e / 16) + e % 8);
                code = fp4_value(e % 16 < 8 ? byte & 15 : byte >> 4);
            } else if (type == LG_IQ4_XS) {
                int byte = (int)byte_at(b + 8 + 16 * r + (e & 15));
                code = iq4_values[e < 16 ? byte & 15 : byte >> 4];
            } else {
                const uint8_t *q = b + (type == LG_Q2_K ? 16 : 32);
                code = (int)byte_at(q + 32 * (r / 4) + e) >> 2 * (r % 4) & 3;
                if (type == LG_Q3_K && !(byte_at(b + e) >> r & 1))
                    code -= 4;
            }
            word |= (unsigned)(code & 0xFF) << 8 * i;
        }
        t->q[w] = (int)word;
    }
}

DEV void any_run(const lg_cu_mat *m, const uint8_t *matrix, int row, int run, run_terms *t)
{
    int type = m->type, bytes = block_bytes_of(type);
    int per_block = type == LG_NVFP4 ? 2 : type == LG_Q2_K || type == LG_Q3_K || type == LG_IQ4_XS ? 8 : 1;
    const uint8_t *b =
        matrix +
        ((size_t)row * (size_t)(m->n_in / 32 / per_block) + (size_t)(run / per_block)) * (size_t)bytes;

    if (per_block == 1)
        any_run32(type, b, t);
    else
        any_run_k(type, b, run % per_block, t);
}

/* a & mask | bits in one instruction (of two constants the compiler makes two). */
DEV unsigned and_or(unsigned a, unsigned mask, unsigned bits)
{
    unsigned r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(a), "r"(mask), "r"(bits));
    return r;
}

/* Scale and minimum of run `run` of Q4_K and Q5_K: d, dmin, then eight fields of 6 + 6 bits. */
DEV void k_scales(uint4 w, int run, float *s, float *m)
{
    int j = run & 7, bit = 12 * j;
    unsigned lo = bit < 32 ? w.y : bit < 64 ? w.z : w.w, hi = bit < 32 ? w.z : w.w;
    unsigned field = __funnelshift_r(lo, hi, (unsigned)bit & 31u);

    // floats made of bits: a number of six bits below 2^23, or, six bits further up, below 2^17
    *s = half_bits(w.x & 0xFFFF) * (__uint_as_float(and_or(field, 63u, 0x4B000000u)) - 8388608.0f);
    *m = -half_bits(w.x >> 16) * (__uint_as_float(and_or(field, 0xFC0u, 0x48000000u)) - 131072.0f);
}

/* What a lane holds of a run between the load and its use; how codes and scales come out of it. */
template <int T> struct fmt;

template <> struct fmt<LG_Q8_0> {
    enum { HALVES = 0, MINS = 0, OFFSET = 0 };
    uint4 a, b;
    unsigned d;
    __device__ __forceinline__ void load(const lg_cu_mat &m, const uint8_t *p, int row, int run)
    {
        const uint8_t *q = p + (size_t)row * (size_t)m.n_in + (size_t)run * 16;
        a = load16(q);
        b = load16(q + m.n_in / 2);
        d = __ldg((const unsigned short *)(p + m.at[0]) + (size_t)row * (size_t)(m.n_in / 32) + run);
    }
    __device__ __forceinline__ void get(int run, run_terms *t) const
    {
        t->q[0] = (int)a.x, t->q[1] = (int)a.y, t->q[2] = (int)a.z, t->q[3] = (int)a.w;
        t->q[4] = (int)b.x, t->q[5] = (int)b.y, t->q[6] = (int)b.z, t->q[7] = (int)b.w;
        t->s0 = t->s1 = half_bits(d);
        t->m0 = t->m1 = 0.0f;
    }
};

DEV void nibbles(uint4 a, int *q)
{
    q[0] = (int)(a.x & 0x0F0F0F0F), q[1] = (int)(a.y & 0x0F0F0F0F);
    q[2] = (int)(a.z & 0x0F0F0F0F), q[3] = (int)(a.w & 0x0F0F0F0F);
    q[4] = (int)(a.x >> 4 & 0x0F0F0F0F), q[5] = (int)(a.y >> 4 & 0x0F0F0F0F);
    q[6] = (int)(a.z >> 4 & 0x0F0F0F0F), q[7] = (int)(a.w >> 4 & 0x0F0F0F0F);
}

template <> struct fmt<LG_Q4_K> {
    enum { HALVES = 0, MINS = 1, OFFSET = 0 };
    uint4 a, s;
    __device__ __forceinline__ void load(const lg_cu_mat &m, const uint8_t *p, int row, int run)
    {
        a = load16(p + (size_t)row * (size_t)(m.n_in / 2) + (size_t)run * 16);
        s = __ldg((const uint4 *)(p + m.at[0]) + (size_t)row * (size_t)(m.n_in / 256) + run / 8);
    }
    __device__ __forceinline__ void get(int run, run_terms *t) const
    {
        nibbles(a, t->q);
        k_scales(s, run, &t->s0, &t->m0);
        t->s1 = t->s0, t->m1 = t->m0;
    }
};

template <> struct fmt<LG_Q5_K> {
    enum { HALVES = 0, MINS = 1, OFFSET = 0 };
    uint4 a, s;
    unsigned h;
    __device__ __forceinline__ void load(const lg_cu_mat &m, const uint8_t *p, int row, int run)
    {
        a = load16(p + (size_t)row * (size_t)(m.n_in / 2) + (size_t)run * 16);
        s = __ldg((const uint4 *)(p + m.at[0]) + (size_t)row * (size_t)(m.n_in / 256) + run / 8);
        h = __ldg((const unsigned *)(p + m.at[1]) + (size_t)row * (size_t)(m.n_in / 32) + run);
    }
    __device__ __forceinline__ void get(int run, run_terms *t) const
    {
        nibbles(a, t->q);
        for (int w = 0; w < 8; w++)
            t->q[w] |= (int)((h >> w & 0x01010101) << 4);
        k_scales(s, run, &t->s0, &t->m0);
        t->s1 = t->s0, t->m1 = t->m0;
    }
};

template <> struct fmt<LG_Q6_K> {
    enum { HALVES = 1, MINS = 0, OFFSET = 32 }; // codes are 32 too large; the dot product takes it back
    uint4 a;
    uint2 h;
    unsigned s, d;
    __device__ __forceinline__ void load(const lg_cu_mat &m, const uint8_t *p, int row, int run)
    {
        a = load16(p + (size_t)row * (size_t)(m.n_in / 2) + (size_t)run * 16);
        h = load8(p + m.at[0] + (size_t)row * (size_t)(m.n_in / 4) + (size_t)run * 8);
        s = __ldg((const unsigned short *)(p + m.at[1]) + (size_t)row * (size_t)(m.n_in / 32) + run);
        d = __ldg((const unsigned short *)(p + m.at[2]) + (size_t)row * (size_t)(m.n_in / 256) + run / 8);
    }
    __device__ __forceinline__ void get(int run, run_terms *t) const
    {
        nibbles(a, t->q);
        for (int w = 0; w < 4; w++) {
            t->q[w] |= (int)((h.x >> 2 * w & 0x03030303) << 4);
            t->q[w + 4] |= (int)((h.y >> 2 * w & 0x03030303) << 4);
        }
        float f = half_bits(d);
        t->s0 = f * (float)(int8_t)(s & 0xFF);
        t->s1 = f * (float)(int8_t)(s >> 8);
        t->m0 = t->m1 = 0.0f;
    }
};

enum { LG_CU_ANY = -1 }; // every other block type, as stored
template <> struct fmt<LG_CU_ANY> {
    enum { HALVES = 1, MINS = 1, OFFSET = 0 };
    run_terms t_;
    __device__ __forceinline__ void load(const lg_cu_mat &m, const uint8_t *p, int row, int run)
    {
        any_run(&m, p, row, run, &t_);
    }
    __device__ __forceinline__ void get(int run, run_terms *t) const
    {
        *t = t_;
    }
};

/* Is this type held in planes (or as floats)? */
static __host__ __device__ __forceinline__ bool is_planar(int type)
{
    return type == LG_Q8_0 || type == LG_Q4_K || type == LG_Q5_K || type == LG_Q6_K;
}

static __host__ __device__ __forceinline__ bool is_float(int type)
{
    return type == LG_F32 || type == LG_F16 || type == LG_BF16;
}

DEV float float_at(int type, const uint8_t *p, size_t i)
{
    if (type == LG_F32)
        return __ldg((const float *)p + i);
    unsigned h = __ldg((const unsigned short *)p + i);
    return type == LG_F16 ? half_bits(h) : __int_as_float((int)(h << 16));
}

DEV size_t float_bytes(int type)
{
    return type == LG_F32 ? 4 : 2;
}

DEV const uint8_t *matrix_at(const lg_cu_mat &m, int expert)
{
    return m.p + (size_t)expert * m.matrix_bytes;
}

DEV float matrix_scale(const lg_cu_mat &m, int expert)
{
    return m.expert_scale ? m.scale * m.expert_scale[expert] : m.scale;
}

/* 32 values of a row of any block type, for look-ups and tiles. */
DEV void run_of(const lg_cu_mat &m, const uint8_t *p, int row, int run, run_terms *t)
{
    switch (m.type) {
    case LG_Q8_0: { fmt<LG_Q8_0> f; f.load(m, p, row, run); f.get(run, t); break; }
    case LG_Q4_K: { fmt<LG_Q4_K> f; f.load(m, p, row, run); f.get(run, t); break; }
    case LG_Q5_K: { fmt<LG_Q5_K> f; f.load(m, p, row, run); f.get(run, t); break; }
    case LG_Q6_K: {
        fmt<LG_Q6_K> f;
        f.load(m, p, row, run);
        f.get(run, t);
        t->m0 = -32.0f * t->s0, t->m1 = -32.0f * t->s1;
        break;
    }
    default: any_run(&m, p, row, run, t); break;
    }
}

DEV float run_value(const run_terms &t, int e)
{
    int code = (int8_t)(t.q[e / 4] >> 8 * (e % 4) & 0xFF);
    return fmaf(e < 16 ? t.s0 : t.s1, (float)code, e < 16 ? t.m0 : t.m1);
}

#endif
