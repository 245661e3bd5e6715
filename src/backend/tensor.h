/*
 * backend/tensor: what ops work on. Activations are f32 rows; weights stay in their stored types.
 *
 * Memory belongs to the backend that allocated it; `p` is an address on that device and may be unreadable by
 * the host.
 */
#ifndef LG_BACKEND_TENSOR_H
#define LG_BACKEND_TENSOR_H

#include "gguf/quant.h"

typedef struct lg_mem {
    void *p;
    size_t bytes;
    bool results; /* of alloc_results */
} lg_mem;

/* How many rows of a tensor an op works on is a number of the step, read by the op when it runs, never a
 * constant of the launch: that is what lets one captured graph serve many steps. */
typedef enum lg_rows {
    LG_ROWS_STEP, /* step->n_rows: every token of the step */
    LG_ROWS_OUT,  /* step->n_out: the rows whose logits are wanted */
} lg_rows;

/* [rows, cols] f32, row r at p + r * stride. */
typedef struct lg_tensor {
    float *p; /* NULL: this operand is absent */
    int cols;
    int stride; /* elements */
    lg_rows rows;
} lg_tensor;

/* How a weight is used; decides its layout on the device. */
typedef enum lg_use {
    LG_USE_VECTOR,  /* norms, biases: converted to f32 whatever the file has */
    LG_USE_ROUTER,  /* f32 matrix, f32 arithmetic */
    LG_USE_LINEAR,  /* matrix of `linear`, `ffn` */
    LG_USE_EXPERTS, /* stack of matrices of `moe` */
    LG_USE_EMBED,   /* rows are looked up, never multiplied */
    LG_USE_EMBED_LINEAR, /* both: a head tied to the embedding */
} lg_use;

/* y[o] = scale * sum_i M[o][i] x[i]; an expert stack holds n_expert such matrices one after the other. A
 * vector has n_out = 1. `type` is the stored type. The rest is the backend's. */
typedef struct lg_weight {
    lg_qtype type;
    lg_use use;
    int n_in, n_out, n_expert;
    float scale;      /* per-tensor multiplier (NVFP4 exports), else 1 */
    const float *expert_scale; /* n_expert more multipliers, one a matrix, where `data` is; NULL: none */
    const void *data; /* device address of the layout below */
    size_t bytes;     /* what one full read of it moves */
    int layout;       /* backend-private: how `data` is arranged */
    /* owned memory, if the backend made a copy; p is NULL when `data` points into the file map */
    lg_mem mem;
} lg_weight;

/* Rotary embedding of one layer kind (model.md 6): pair j of n_rot/2 turns by position * freq[j]; cos and sin
 * are multiplied by `magnitude`; dims past n_rot pass unchanged. Frequencies and angles are f64, cos and sin
 * f32. */
enum { LG_ROT_MAX = 256 };
typedef struct lg_rope {
    int id; /* 0, 1, ...: lets a backend keep one cos/sin table per kind and step */
    int n_rot;
    float magnitude;
    double freq[LG_ROT_MAX / 2];
} lg_rope;

/* One class of KV cache: all layers of one kind, in blocks of 64 tokens (cache.md 2). A block holds, for each
 * layer of the class in ascending order, K then V, each [kv head][64 rows][head_dim]; a row is `row_bytes`, a
 * head's 64 rows are one contiguous tile. Block tables in the step say where a position lives, so a rollback
 * is a length change and a cut is a reference. */
enum { LG_KV_BLOCK = 64 };
typedef enum lg_kv_class_id { LG_KV_FULL, LG_KV_WINDOW, LG_KV_DRAFT, LG_KV_CLASSES } lg_kv_class_id;
typedef struct lg_kv_class {
    lg_kv_class_id id;
    lg_qtype type; /* LG_F16, LG_F32 or LG_Q8_0 */
    int n_layer, n_kv_head, head_dim;
    int window; /* 0: every earlier position is visible */
    int n_blocks;
    size_t row_bytes, tile_bytes, layer_bytes, block_bytes;
    lg_mem mem; /* n_blocks * block_bytes */
} lg_kv_class;

/* Byte offset, inside the class's memory, of row r of (block, layer, K or V, head). */
static inline size_t lg_kv_offset(const lg_kv_class *c, int block, int layer, int v, int head, int r)
{
    return (size_t)block * c->block_bytes + (size_t)layer * c->layer_bytes +
           ((size_t)v * (size_t)c->n_kv_head + (size_t)head) * c->tile_bytes + (size_t)r * c->row_bytes;
}

#endif
