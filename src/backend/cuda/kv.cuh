/*
 * backend/cuda/kv: where keys and values of one layer lie: what qkv.cu writes and attention.cu reads.
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

#endif
