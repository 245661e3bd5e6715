/*
 * backend/cuda/moe: the mixture of experts. Few rows: moe_few.cu. More rows: entries are sorted by expert on
 * the device and gemm.cu multiplies tile by tile; results lie by entry and are added up here.
 *
 * Sums run over the shared expert, then the ranks in order.
 */
#include "backend/cuda/common.cuh"

static __global__ void moe_sum_kernel(float *out, int out_stride, const float *y, const float *w, int k,
                                      int shared_at, int hidden, int rows, const lg_cu_step *step)
{
    pdl_wait();
    int n = step_rows(step, rows), o = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y;
    if (r >= n || o >= hidden)
        return;
    float sum = shared_at >= 0 ? y[(size_t)(shared_at + r) * (size_t)hidden + (size_t)o] : 0.0f;
    for (int i = 0; i < k; i++)
        sum = fmaf(w[r * k + i], y[(size_t)(r * k + i) * (size_t)hidden + (size_t)o], sum);
    out[(size_t)r * (size_t)out_stride + (size_t)o] = sum;
}

void lg_cu_moe_sum(lg_cu *c, const lg_cu_moe *m)
{
    int rows = bucket_rows(c, m->h.rows);
    dim3 grid((unsigned)ceil_div(m->out.cols, 256), (unsigned)rows);

    launch(c, moe_sum_kernel, grid, 256, 0, m->out.p, m->out.stride, (const float *)c->expert_out, m->w, m->k,
           m->shared ? rows * m->k : -1, m->out.cols, (int)m->h.rows, c->step);
}

static void many_rows(lg_cu *c, const lg_cu_moe *m)
{
    int rows = bucket_rows(c, m->h.rows);

    if (m->routed) {
        int n_expert = m->routed->gate.n_expert, entries = rows * m->k;
        int tile = lg_cu_gemm_tile_rows(c, m->routed, n_expert, m->k);
        int tiles = entries / tile + (entries < n_expert ? entries : n_expert);
        lg_cu_sort_entries(c, m, tile);
        lg_cu_gemm_ffn(c, m, m->routed, false, tile, tiles < LG_CU_TILES ? tiles : LG_CU_TILES);
    }
    if (m->shared) {
        int tile = lg_cu_gemm_tile_rows(c, m->shared, 1, 1);
        lg_cu_gemm_ffn(c, m, m->shared, true, tile, ceil_div(rows, tile));
    }
    if (m->routed)
        lg_cu_moe_sum(c, m);
}

void lg_cu_moe_op(lg_cu *c, const lg_cu_moe *m)
{
    if (bucket_rows(c, m->h.rows) <= LG_CU_EXACT_ROWS)
        lg_cu_moe_few(c, m);
    else
        many_rows(c, m);
}
