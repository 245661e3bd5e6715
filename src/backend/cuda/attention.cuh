/*
 * backend/cuda/attention: what the kernels for few and for many rows share: operands, and fragments of
 * queries, keys and values.
 *
 * The dot products take the dimensions in an order of their own: a lane's 16-byte load of a key feeds two
 * tensor core steps, with the queries permuted to match.
 *
 * Surprise: what lies behind the last visible position of a block is never used, not even times zero: it may
 * be NaN.
 */
#ifndef LG_BACKEND_CUDA_ATTENTION_CUH
#define LG_BACKEND_CUDA_ATTENTION_CUH

#include "backend/cuda/kv.cuh"

enum { HEAD = 128, PLAIN_WARPS = 8, PLAIN_DIM = 256 };

DEV float softplus(float g)
{
    return fmaxf(g, 0.0f) + log1pf(expf(-fabsf(g)));
}

struct attn_args {
    const float *q;
    float *out, *part;
    const float *gate;
    int q_stride, out_stride, gate_stride, n_head, group, rows, max_spans;
    int row0;                        // first row of this launch; nodes count from it
    int splits;                      // of the keys in attention.cu; 0: none, results are written at once
    bool elem_gate, quantise, codes; // codes: to int8 runs rather than to bf16 (attention.cu)
    lg_cu_acts acts;
    float scale;
    kv_args kv;
};

// First visible position of the row at position p.
DEV long long first_visible(const kv_args &kv, long long p)
{
    return kv.window > 0 && p + 1 > kv.window ? p + 1 - kv.window : 0;
}

DEV float kv_value(const kv_args &a, const uint8_t *row, int i)
{
    if (a.type == LG_F32)
        return ((const float *)row)[i];
    if (a.type == LG_F16)
        return __half2float(((const __half *)row)[i]);
    const uint8_t *b = row + i / 32 * 34;
    return half_bits(b[0] | (unsigned)b[1] << 8) * (float)(int8_t)b[2 + i % 32];
}

/* ---- pieces of the plain kernels: a lane has dimensions lane + 32i ---- */

DEV void plain_query(float (&q)[PLAIN_DIM / 32], const attn_args &a, int row, int head, int lane)
{
    int dim = a.kv.head_dim;

#pragma unroll
    for (int i = 0; i < PLAIN_DIM / 32; i++)
        q[i] = lane + 32 * i < dim
                   ? a.q[(size_t)row * (size_t)a.q_stride + (size_t)(head * dim + lane + 32 * i)]
                   : 0.0f;
}

// The score of the key at k, on all lanes.
DEV float plain_score(const float (&q)[PLAIN_DIM / 32], const attn_args &a, const uint8_t *k, int lane)
{
    float s = 0.0f;

#pragma unroll
    for (int i = 0; i < PLAIN_DIM / 32; i++)
        if (lane + 32 * i < a.kv.head_dim)
            s = fmaf(q[i], kv_value(a.kv, k, lane + 32 * i), s);
    return warp_sum(s) * a.scale;
}

/* The block: the scores of the keys at positions start + j, j in [from, to), to score[j]. Returns the
 * greatest of them and of max. room: a float for each warp. Ends with a barrier. */
DEV float plain_scores(const float (&q)[PLAIN_DIM / 32], const attn_args &a, int kv_head, long long start,
                       int from, int to, float max, float *score, float *room)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    for (int j = from + warp; j < to; j += PLAIN_WARPS) {
        const uint8_t *k = kv_tile(a.kv, start + j, kv_head, false) +
                           (size_t)((start + j) % LG_KV_BLOCK) * a.kv.row_bytes;
        float s = plain_score(q, a, k, lane);
        if (lane == 0)
            score[j] = s;
        max = fmaxf(max, s);
    }
    if (lane == 0)
        room[warp] = max;
    __syncthreads();
    for (int w = 0; w < PLAIN_WARPS; w++)
        max = fmaxf(max, room[w]);
    return max;
}

/* ---- tensor core pieces ---- */

DEV void mma_f16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEV unsigned pack_f16(float lo, float hi)
{
    unsigned r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

DEV float f16_range(float x)
{
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}

// Two values, in f16's range.
[[maybe_unused]] DEV unsigned pack_f16_range(float lo, float hi)
{
    unsigned r = pack_f16(lo, hi); // what is larger is infinite
    asm("{\n\t"
        ".reg .b32 t;\n\t"
        "max.f16x2 t, %0, %1;\n\t"
        "min.f16x2 %0, t, %2;\n\t"
        "}"
        : "+r"(r)
        : "r"(0xFBFFFBFFu), "r"(0x7BFF7BFFu));
    return r;
}

// Fragments of 16 query rows: step 2c takes dimensions 32c + 8t + (0, 1 | 2, 3) in its slots (2t, 2t + 1 | 2t
// + 8, 2t + 9), step 2c + 1 the next four. row_a and row_b are rows g and g + 8, or NULL.
DEV void load_q(const float *row_a, const float *row_b, int lane, float scale, unsigned (&f)[8][4])
{
    int t = lane % 4;

#pragma unroll
    for (int s = 0; s < 8; s++) {
        int d = 32 * (s / 2) + 8 * t + 4 * (s % 2);
        float4 a = row_a ? *(const float4 *)(row_a + d) : make_float4(0, 0, 0, 0);
        float4 b = row_b ? *(const float4 *)(row_b + d) : make_float4(0, 0, 0, 0);
        f[s][0] = pack_f16(f16_range(a.x * scale), f16_range(a.y * scale));
        f[s][1] = pack_f16(f16_range(b.x * scale), f16_range(b.y * scale));
        f[s][2] = pack_f16(f16_range(a.z * scale), f16_range(a.w * scale));
        f[s][3] = pack_f16(f16_range(b.z * scale), f16_range(b.w * scale));
    }
}

// 8 consecutive elements, from dimension d on, of a cache row.
template <int TYPE> DEV uint4 load_kv8(const uint8_t *row, int d)
{
    if (TYPE == LG_F16)
        return *(const uint4 *)(row + 2 * d);
    const uint8_t *b = row + d / 32 * 34;
    float scale = half_bits(*(const unsigned short *)b);
    unsigned out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        unsigned w = *(const unsigned short *)(b + 2 + d % 32 + 2 * i);
        out[i] = pack_f16(scale * (float)(int8_t)(w & 0xFF), scale * (float)(int8_t)(w >> 8));
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

// scores += queries x 8 keys; k[c] holds the lane's 8 dimensions of chunk c of its key.
DEV void qk(float (&s)[4], const unsigned (&q)[8][4], const uint4 (&k)[4])
{
#pragma unroll
    for (int c = 0; c < 4; c++) {
        mma_f16(s, q[2 * c], k[c].x, k[c].y);
        mma_f16(s, q[2 * c + 1], k[c].z, k[c].w);
    }
}

// acc += probabilities of 16 keys x half the dimensions. v[i] holds, of the lane's keys 2t, 2t + 1, 2t + 8,
// 2t + 9, 8 dimensions; column g of tile j is dimension 8g + j.
DEV void pv(float (&acc)[8][4], const unsigned (&p)[4], const uint4 (&v)[4])
{
    const unsigned a[4] = {v[0].x, v[0].y, v[0].z, v[0].w}, b[4] = {v[1].x, v[1].y, v[1].z, v[1].w};
    const unsigned c[4] = {v[2].x, v[2].y, v[2].z, v[2].w}, d[4] = {v[3].x, v[3].y, v[3].z, v[3].w};

#pragma unroll
    for (int j = 0; j < 8; j++) {
        unsigned pick = j % 2 ? 0x7632 : 0x5410;
        mma_f16(acc[j], p, __byte_perm(a[j / 2], b[j / 2], pick), __byte_perm(c[j / 2], d[j / 2], pick));
    }
}

DEV float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, 2));
}

DEV float quad_sum(float v)
{
    v += __shfl_xor_sync(0xFFFFFFFFu, v, 1);
    return v + __shfl_xor_sync(0xFFFFFFFFu, v, 2);
}

// The node of a query's keys in one split: max, sum, two unused, then HEAD sums.
enum { SPLIT_AT = 4, SPLIT_FLOATS = HEAD + SPLIT_AT };

DEV float *split_at(const attn_args &a, int row, int head, int split)
{
    return a.part + (((size_t)row * (size_t)a.n_head + (size_t)head) * (size_t)a.splits + (size_t)split) *
                        SPLIT_FLOATS;
}

// Blocks [from, to) of keys to the part that blockIdx.z takes.
DEV void cut_blocks(const attn_args &a, long long *from, long long *to)
{
    long long first = *from, n = *to - first;

    if (a.splits > 0) {
        *from = first + n * blockIdx.z / a.splits;
        *to = first + n * (blockIdx.z + 1) / a.splits;
    }
}

extern "C" {
// attn_wgmma.cu: queries of a block; 0: not on this card
int lg_cu_attn_wgmma_queries(const lg_cu *c);
void lg_cu_attn_wgmma(lg_cu *c, const attn_args &a, int rows);
// attn_follow.cu: where lg_cu_attn_follows
void lg_cu_attn_follow(lg_cu *c, const attn_args &a, const lg_cu_qkv *qkv, int rows);
// attn_few.cu; qkv: q, k and v are as projected, or NULL
void lg_cu_attn_few(lg_cu *c, const attn_args &a, const lg_cu_qkv *qkv, bool tensor, int rows);
// attn_plain.cu, and the floats of scratch that it wants
void lg_cu_attn_plain(lg_cu *c, attn_args a, int rows);
size_t lg_cu_attn_plain_floats(int64_t max_ctx, int max_head, int head_dim);
}

#endif
