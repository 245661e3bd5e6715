/*
 * backend/cuda/qkv: QK-norm, rotary embedding and the KV store; moves between KV blocks.
 *
 * A warp a head, or half a warp where heads are of 128 and the cache is f16.
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

static __global__ void rope_kernel(__grid_constant__ const rope_args a, const lg_cu_step *step)
{
    pdl_wait();
    if ((int)blockIdx.x < step_rows(step, LG_ROWS_STEP))
        make_angles(a, step->pos, blockIdx.x);
}

void lg_cu_rope(lg_cu *c, const lg_cu_angles *angles)
{
    launch(c, rope_kernel, dim3((unsigned)bucket_rows(c, LG_ROWS_STEP)), 64, 0, rope_of(angles), c->step);
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

enum { WARPS = 8, PAIR_HEADS = 2 * WARPS };

// Half a warp a head of 128, f16 cache: queries, then K, then V. All loads of a head are under way at once,
// the norm's weights before the wait.
static __global__ void __launch_bounds__(32 * WARPS)
    qkv_pairs_kernel(__grid_constant__ const qkv_args a, const lg_cu_step *step)
{
    int lane = threadIdx.x % 32, m = lane % 16, half = a.n_rot / 2, n_q = a.q ? a.n_head : 0;
    int n_kv = a.kv.n_kv_head, h = (int)blockIdx.x * PAIR_HEADS + (int)threadIdx.x / 16, row = blockIdx.y;
    bool is_q = h < n_q, is_v = h >= n_q + n_kv, any = h < n_q + 2 * n_kv && row < step_rows(step, a.rows);
    int kv_head = is_v ? h - n_q - n_kv : h - n_q;
    long long pos = step->pos + row;
    const float *norm = is_q ? a.q_norm : is_v ? NULL : a.k_norm, *table = a.table;
    float *src = NULL;
    head_pairs x = {}, w = {};
    head_turn turn = {};
    uint8_t *to = NULL;

    if (any && norm)
        w = pairs_of(norm + 2 * m);
    if (any && !is_q)
        to = (uint8_t *)kv_tile(a.kv, pos, kv_head, is_v) + (size_t)(pos % LG_KV_BLOCK) * a.kv.row_bytes;
    let_next(); // attention, which has keys to ask for
    wait_for_last();
    if (any) {
        src = (is_q   ? a.q + (size_t)row * (size_t)a.q_stride + (size_t)(h * 128)
               : is_v ? (float *)a.v + (size_t)row * (size_t)a.v_stride + (size_t)(kv_head * 128)
                      : a.k + (size_t)row * (size_t)a.k_stride + (size_t)(kv_head * 128)) +
              2 * m;
        x = pairs_of(src);
    }
    if (any && table && !is_v) {
        table += (size_t)row * 2 * (size_t)half + (size_t)(2 * m);
        turn = turn_of(table, table + half, half);
    }
    float inv = pairs_norm(x, a.eps, lane);
    if (!any)
        return;
    if (norm)
        pairs_scale(x, w, inv);
    if (!is_v)
        pairs_turn(x, turn, half);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (!is_v)
            *(float2 *)(src + 32 * i) = x.v[i];
        if (!is_q)
            ((__half2 *)to)[m + 16 * i] = __floats2half2_rn(fminf(fmaxf(x.v[i].x, -65504.0f), 65504.0f),
                                                            fminf(fmaxf(x.v[i].y, -65504.0f), 65504.0f));
    }
}

// Can half warps do it?
static bool in_pairs(const qkv_args &a)
{
    uintptr_t at = (uintptr_t)a.q | (uintptr_t)a.k | (uintptr_t)a.v | (uintptr_t)a.q_norm |
                   (uintptr_t)a.k_norm | (uintptr_t)a.table;

    return a.kv.type == LG_F16 && a.kv.head_dim == 128 && a.n_rot % 64 == 0 && a.n_rot <= 128 &&
           (a.q_stride | a.k_stride | a.v_stride) % 2 == 0 && (at & 7) == 0;
}

void lg_cu_qkv_post(lg_cu *c, const lg_cu_qkv *q)
{
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
    if (in_pairs(a)) {
        launch(c, qkv_pairs_kernel,
               dim3((unsigned)ceil_div(heads + q->kv->n_kv_head, PAIR_HEADS), (unsigned)rows), 32 * WARPS, 0,
               a, c->step);
        return;
    }
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
