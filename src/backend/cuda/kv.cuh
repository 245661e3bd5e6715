/*
 * backend/cuda/kv: where keys and values of one layer lie, and how a row of them is made: for qkv.cu and for
 * the attention that does it in passing (attn_few.cu).
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

/* The same in two halves, for heads of 128: the loads of a head and of its norm's weights (norm NULL: none),
 * and of the lane's angles; then the arithmetic. The order of operations is head_post's. */
struct head_values {
    float x[4], w[4];
};

struct head_turn {
    float c[2], s[2];
};

DEV head_values values_of(const float *src, const float *norm, int lane)
{
    head_values v;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        v.x[i] = __ldcg(src + lane + 32 * i);
        v.w[i] = norm ? __ldg(norm + lane + 32 * i) : 1.0f;
    }
    return v;
}

DEV head_turn turn_of(const float *table, int half, int lane)
{
    head_turn t = {};

#pragma unroll
    for (int i = 0; i < 2; i++)
        if (lane + 32 * i < half) {
            t.c[i] = __ldcg(table + lane + 32 * i);
            t.s[i] = __ldcg(table + half + lane + 32 * i);
        }
    return t;
}

DEV void values_post(float *x, const head_values &v, bool norm, float eps, const head_turn &t, int half,
                     int lane)
{
    float sum = 0.0f, inv = 1.0f;

#pragma unroll
    for (int i = 0; i < 4; i++)
        sum = fmaf(v.x[i], v.x[i], sum);
    if (norm)
        inv = 1.0f / sqrtf(warp_sum(sum) / 128.0f + eps);
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[lane + 32 * i] = norm ? v.x[i] * inv * v.w[i] : v.x[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int j = lane + 32 * i;
        if (j < half) {
            float u = x[j], w = x[half + j];
            x[j] = fmaf(-w, t.s[i], u * t.c[i]);
            x[half + j] = fmaf(u, t.s[i], w * t.c[i]);
        }
    }
    __syncwarp();
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
