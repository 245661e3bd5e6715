/*
 * backend/cuda/qkv: QK-norm, rotary embedding and the KV store; moves between KV blocks.
 *
 * A warp a head. Angles are made once a step for each kind of layer, in double.
 */
#include "backend/cuda/kv.cuh"

struct qkv_args {
    float *q, *k;
    const float *v;
    int q_stride, k_stride, v_stride, n_head;
    const float *q_norm, *k_norm;
    const float *table; // [row][cos, sin of n_rot / 2 pairs], or NULL
    float eps;
    int n_rot, rows;
    kv_args kv;
};

/* cos and sin of every pair of every row, once a step: angles in double (position * frequency passes 2^17).
 */
struct rope_args {
    double freq[LG_ROT_MAX / 2];
    float *table;
    float magnitude;
    int half, rows;
};

static __global__ void rope_kernel(__grid_constant__ const rope_args a, const lg_cu_step *step)
{
    pdl_wait();
    int row = blockIdx.x, n = step_rows(step, a.rows);
    if (row >= n)
        return;
    for (int j = threadIdx.x; j < a.half; j += blockDim.x) {
        double s, c;
        sincos((double)(step->pos + row) * a.freq[j], &s, &c);
        a.table[(size_t)row * 2 * (size_t)a.half + (size_t)j] = (float)(c * (double)a.magnitude);
        a.table[((size_t)row * 2 + 1) * (size_t)a.half + (size_t)j] = (float)(s * (double)a.magnitude);
    }
}

void lg_cu_rope(lg_cu *c, const lg_rope *rope, lg_rows rows, float *table)
{
    rope_args a = {};

    for (int j = 0; j < rope->n_rot / 2; j++)
        a.freq[j] = rope->freq[j];
    a.table = table;
    a.magnitude = rope->magnitude;
    a.half = rope->n_rot / 2;
    a.rows = rows;
    launch(c, rope_kernel, dim3((unsigned)bucket_rows(c, rows)), 64, 0, a, c->step);
}

// A warp a head.
static __global__ void qkv_post_kernel(__grid_constant__ const qkv_args a, const lg_cu_step *step)
{
    extern __shared__ float room[]; // a head for each warp
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, half = a.n_rot / 2;
    int dim = a.kv.head_dim, n_q = a.q ? a.n_head : 0, heads = n_q + a.kv.n_kv_head;

    pdl_wait();
    int row = blockIdx.y;
    if (row >= step_rows(step, a.rows))
        return;
    long long pos = step->pos + row;
    const float *table = a.table + (size_t)row * 2 * (size_t)half;
    float *x = room + warp * dim;
    for (int h = (int)blockIdx.x * warps + warp; h < heads; h += (int)gridDim.x * warps) {
        bool is_q = h < n_q;
        int kv_head = h - n_q;
        float *src = is_q ? a.q + (size_t)row * (size_t)a.q_stride + (size_t)h * (size_t)dim
                          : a.k + (size_t)row * (size_t)a.k_stride + (size_t)kv_head * (size_t)dim;
        __syncwarp();
        head_post(x, src, is_q ? a.q_norm : a.k_norm, a.eps, a.table ? table : NULL, half, dim, lane);
        for (int i = lane; i < dim; i += 32)
            src[i] = x[i];
        if (is_q)
            continue;
        store_kv(a.kv, false, kv_head, pos, x, lane);
        __syncwarp();
        const float *v = a.v + (size_t)row * (size_t)a.v_stride + (size_t)kv_head * (size_t)dim;
        for (int i = lane; i < dim; i += 32)
            x[i] = v[i];
        __syncwarp();
        store_kv(a.kv, true, kv_head, pos, x, lane);
    }
}

void lg_cu_qkv_post(lg_cu *c, const lg_cu_qkv *q)
{
    enum { WARPS = 8 };
    qkv_args a = {};
    int rows = bucket_rows(c, q->k.rows), heads = (q->q.p ? q->n_head : 0) + q->kv->n_kv_head;

    a.q = q->q.p;
    a.k = q->k.p;
    a.v = q->v.p;
    a.q_stride = q->q.stride;
    a.k_stride = q->k.stride;
    a.v_stride = q->v.stride;
    a.n_head = q->n_head;
    a.q_norm = q->q_norm;
    a.k_norm = q->k_norm;
    a.table = q->table;
    a.eps = q->eps;
    a.n_rot = q->table ? q->n_rot : 0;
    a.rows = q->k.rows;
    a.kv = kv_of(c, q->kv, q->kv_layer);
    launch(c, qkv_post_kernel, dim3((unsigned)ceil_div(heads, WARPS), (unsigned)rows), 32 * WARPS,
           WARPS * (size_t)q->kv->head_dim * sizeof(float), a, c->step);
}

/* ---- block moves ---- */

// A block a tile (layer, K or V, head); rows go through shared memory, so a move may overlap itself.
static __global__ void kv_move_kernel(uint8_t *mem, size_t block_bytes, size_t tile_bytes, size_t row_bytes,
                                      int src_block, int src_row, int dst_block, int dst_row, int rows)
{
    extern __shared__ __align__(16) uint8_t smem[];
    size_t n = (size_t)rows * row_bytes, tile = (size_t)blockIdx.x * tile_bytes;
    const uint8_t *src = mem + (size_t)src_block * block_bytes + tile + (size_t)src_row * row_bytes;
    uint8_t *dst = mem + (size_t)dst_block * block_bytes + tile + (size_t)dst_row * row_bytes;

    for (size_t i = threadIdx.x * 2; i < n; i += blockDim.x * 2) // rows are of even size
        *(uint16_t *)(smem + i) = *(const uint16_t *)(src + i);
    __syncthreads();
    for (size_t i = threadIdx.x * 2; i < n; i += blockDim.x * 2)
        *(uint16_t *)(dst + i) = *(const uint16_t *)(smem + i);
}

void lg_cu_kv_move(lg_cu *c, const lg_kv_class *k, int src_block, int src_row, int dst_block, int dst_row,
                   int rows)
{
    size_t smem = (size_t)rows * k->row_bytes;
    bool pdl = c->pdl;

    if (rows == 0)
        return;
    if (smem > 48 * 1024) {
        cudaError_t e =
            cudaFuncSetAttribute(kv_move_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
        if (e != cudaSuccess && c->error == cudaSuccess)
            c->error = e;
    }
    c->pdl = false;
    launch(c, kv_move_kernel, dim3((unsigned)(k->n_layer * 2 * k->n_kv_head)), 256, smem, (uint8_t *)k->mem.p,
           k->block_bytes, k->tile_bytes, k->row_bytes, src_block, src_row, dst_block, dst_row, rows);
    c->pdl = pdl;
}
