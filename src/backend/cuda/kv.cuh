/*
 * backend/cuda/kv: where keys and values of one layer lie, and how a row of them is made: for qkv.cu, for the
 * attention that does it in passing (attn_few.cu), and for the embedding, which makes the angles.
 */
#ifndef LG_BACKEND_CUDA_KV_CUH
#define LG_BACKEND_CUDA_KV_CUH

#include "backend/cuda/common.cuh"

struct kv_args {
    const uint8_t *mem;
    const int32_t *table;
    size_t block_bytes, at_k, at_v, tile_bytes, row_bytes; // at_k, at_v: of head 0 of this layer in a block
    int type, window, n_kv_head, head_dim;
};

static inline kv_args kv_of(const lg_cu *c, const lg_kv_class *kv, int layer)
{
    kv_args a = {};

    a.mem = (const uint8_t *)kv->mem.p;
    a.table = c->table[kv->id];
    a.block_bytes = kv->block_bytes;
    a.tile_bytes = kv->tile_bytes;
    a.row_bytes = kv->row_bytes;
    a.at_k = lg_kv_offset(kv, 0, layer, 0, 0, 0);
    a.at_v = lg_kv_offset(kv, 0, layer, 1, 0, 0);
    a.type = kv->type;
    a.window = kv->window;
    a.n_kv_head = kv->n_kv_head;
    a.head_dim = kv->head_dim;
    return a;
}

DEV const uint8_t *kv_tile(const kv_args &a, long long pos, int head, bool v)
{
    int block = a.table[pos / LG_KV_BLOCK];
    return a.mem + (size_t)block * a.block_bytes + (v ? a.at_v : a.at_k) + (size_t)head * a.tile_bytes;
}

/* cos and sin of every pair of every row, once a step for each kind of layer: angles in double (position *
 * frequency passes 2^17). */
struct rope_args {
    double freq[LG_ROT_MAX / 2];
    float *table;
    float magnitude;
    int half;
};

static inline rope_args rope_of(const lg_cu_angles *angles)
{
    rope_args a = {};

    for (int j = 0; j < angles->rope->n_rot / 2; j++)
        a.freq[j] = angles->rope->freq[j];
    a.table = angles->table;
    a.magnitude = angles->rope->magnitude;
    a.half = angles->rope->n_rot / 2;
    return a;
}

/* The block: those of a row. */
DEV void make_angles(const rope_args &a, long long pos, unsigned row)
{
    float *cos = a.table + (size_t)row * 2 * (size_t)a.half;

    for (int j = threadIdx.x; j < a.half; j += blockDim.x) {
        double s, c;
        sincos((double)(pos + row) * a.freq[j], &s, &c);
        cos[j] = (float)(c * (double)a.magnitude);
        cos[a.half + j] = (float)(s * (double)a.magnitude);
    }
}

/* All lanes: one head of a row, to x (shared memory): normed if there is a norm, turned if there is a table.
 */
DEV void head_post(float *x, const float *src, const float *norm, float eps, const float *table, int half,
                   int dim, int lane)
{
    float sum = 0.0f;

    for (int i = lane; i < dim; i += 32) {
        x[i] = __ldcg(src + i);
        sum = fmaf(x[i], x[i], sum);
    }
    if (norm) {
        float inv = 1.0f / sqrtf(warp_sum(sum) / (float)dim + eps);
        for (int i = lane; i < dim; i += 32)
            x[i] = x[i] * inv * norm[i];
    }
    __syncwarp();
    for (int j = lane; table && j < half; j += 32) {
        float u = x[j], w = x[half + j], c = table[j], s = table[half + j];
        x[j] = fmaf(-w, s, u * c);
        x[half + j] = fmaf(u, s, w * c);
    }
    __syncwarp();
}

/* The same in registers, for heads of 128 of which half = 0, 32 or 64 pairs turn: half a warp a head, lane m
 * of it holds dimensions 2m + 32i and the next. The order of operations is head_post's. */
struct head_pairs {
    float2 v[4];
};

struct head_turn {
    float2 c[2], s[2];
};

DEV float2 load_pair(const float *p) // in time: not moved behind a wait
{
    float2 v;
    asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
    return v;
}

// p: of the lane, at its first two dimensions
DEV head_pairs pairs_of(const float *p)
{
    head_pairs x;

#pragma unroll
    for (int i = 0; i < 4; i++)
        x.v[i] = load_pair(p + 32 * i);
    return x;
}

DEV head_turn turn_of(const float *cos, const float *sin, int half)
{
    head_turn t = {};

#pragma unroll
    for (int i = 0; i < 2; i++)
        if (32 * i < half) {
            t.c[i] = load_pair(cos + 32 * i);
            t.s[i] = load_pair(sin + 32 * i);
        }
    return t;
}

// The same from shared memory, cosines and sines behind each other.
[[maybe_unused]] DEV head_turn turn_in(const float *cos, int half)
{
    head_turn t = {};

#pragma unroll
    for (int i = 0; i < 2; i++)
        if (32 * i < half) {
            t.c[i] = *(const float2 *)(cos + 32 * i);
            t.s[i] = *(const float2 *)(cos + half + 32 * i);
        }
    return t;
}

/* All lanes: the sum of squares. The sums of 32 columns of four are added in warp_sum's order: column c, 2m +
 * (0, 1), to c ^ 16, c ^ 8, c ^ 4, c ^ 2, c ^ 1; after the first step a lane goes on with one of its two. */
DEV float pairs_squares(const head_pairs &x, int lane)
{
    float a = 0.0f, b = 0.0f;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        a = fmaf(x.v[i].x, x.v[i].x, a);
        b = fmaf(x.v[i].y, x.v[i].y, b);
    }
    bool upper = lane & 8;
    float v = (upper ? b : a) + __shfl_xor_sync(0xFFFFFFFFu, upper ? a : b, 8);
#pragma unroll
    for (int o = 4; o > 0; o >>= 1)
        v += __shfl_xor_sync(0xFFFFFFFFu, v, o);
    return v + __shfl_xor_sync(0xFFFFFFFFu, v, 8);
}

// All lanes: the norm's factor.
[[maybe_unused]] DEV float pairs_norm(const head_pairs &x, float eps, int lane)
{
    return 1.0f / sqrtf(pairs_squares(x, lane) / 128.0f + eps);
}

// inv and w are 1 where there is no norm
DEV void pairs_scale(head_pairs &x, const head_pairs &w, float inv)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        x.v[i] = make_float2(x.v[i].x * inv * w.v[i].x, x.v[i].y * inv * w.v[i].y);
}

DEV void turn_pair(float2 &u, float2 &w, float2 c, float2 s)
{
    float2 a = u;

    u = make_float2(fmaf(-w.x, s.x, a.x * c.x), fmaf(-w.y, s.y, a.y * c.y));
    w = make_float2(fmaf(a.x, s.x, w.x * c.x), fmaf(a.y, s.y, w.y * c.y));
}

DEV void pairs_turn(head_pairs &x, const head_turn &t, int half)
{
    if (half == 64) {
        turn_pair(x.v[0], x.v[2], t.c[0], t.s[0]);
        turn_pair(x.v[1], x.v[3], t.c[1], t.s[1]);
    } else if (half == 32) {
        turn_pair(x.v[0], x.v[1], t.c[0], t.s[0]);
    }
}

/* All lanes: a head's row x of K or V in the cache's type. */
DEV void kv_row(int type, int dim, uint8_t *dst, const float *x, int lane)
{
    if (type == LG_F32) {
        for (int i = lane; i < dim; i += 32)
            ((float *)dst)[i] = x[i];
    } else if (type == LG_F16) {
        for (int i = lane; i < dim; i += 32)
            ((__half *)dst)[i] = __float2half_rn(fminf(fmaxf(x[i], -65504.0f), 65504.0f));
    } else {
        for (int run = 0; run < dim / 32; run++) { // f16 scale, then codes
            float y = x[run * 32 + lane], max = warp_max(fabsf(y)), d = max / 127.0f;
            float inverse = d > 0.0f ? 1.0f / d : 0.0f;
            uint8_t *b = dst + run * 34;
            float code = roundf(y * inverse);
            b[2 + lane] = (uint8_t)(int8_t)(int)fminf(fmaxf(code, -127.0f), 127.0f);
            if (lane < 2) {
                unsigned h = __half_as_ushort(__float2half_rn(fminf(d, 65504.0f)));
                b[lane] = (uint8_t)(h >> 8 * lane);
            }
        }
    }
}

/* ... to its place. */
DEV void store_kv(const kv_args &a, bool v, int head, long long pos, const float *x, int lane)
{
    kv_row(a.type, a.head_dim,
           (uint8_t *)kv_tile(a, pos, head, v) + (size_t)(pos % LG_KV_BLOCK) * a.row_bytes, x, lane);
}

#endif
