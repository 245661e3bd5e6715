/*
 * backend/cuda/route: routing of few rows in one launch.
 *
 * A block an expert; the last block to finish chooses the experts and, for more than one row, groups the
 * entries by expert. More rows: route_many.cu.
 */
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/route.cuh"

template <int COLS>
static __global__ void __launch_bounds__(32 * ROUTE_WARPS)
    route_kernel(__grid_constant__ const lg_cu_route a, float *logits, int32_t *entry, lg_cu_group *group,
                 int *n_group, const lg_cu_step *step)
{
    extern __shared__ float shared[];
    __shared__ bool last;
    __shared__ float part[ROUTE_WARPS][COLS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, expert = blockIdx.x, row[1] = {expert}, col[COLS];
    float acc[1][COLS];
    lg_cu_mat m = {};
    gemv_in in = {};

    m.type = LG_F32;
    m.n_in = a.h.cols;
    if (warp == 0)
        prefetch_row(m, (const uint8_t *)a.router, row[0], lane);
    pdl_wait();
    in.x = a.h.p;
    in.x_stride = (size_t)a.h.stride;
    in.n_cols = step_rows(step, a.h.rows);
#pragma unroll
    for (int c = 0; c < COLS; c++)
        col[c] = c, acc[0][c] = 0.0f;
    const uint8_t *const p[1] = {(const uint8_t *)a.router};
    if (in.n_cols > 0)
        dot_floats<COLS, 1, COLS == 1 ? 4 : 2>(acc, m, p, row, in, col, (int)threadIdx.x, 32 * ROUTE_WARPS);
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        if (c >= in.n_cols)
            break;
        float v = warp_sum(acc[0][c]);
        if (lane == 0)
            part[warp][c] = v;
    }
    __syncthreads();
    if ((int)threadIdx.x < in.n_cols && threadIdx.x < COLS) {
        float v = part[0][threadIdx.x];
        for (int w = 1; w < ROUTE_WARPS; w++)
            v += part[w][threadIdx.x];
        logits[(int)threadIdx.x * a.n_expert + expert] = v;
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&n_group[1], 1) == (int)gridDim.x - 1;
        if (last)
            n_group[1] = 0;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    for (int c = warp; c < in.n_cols; c += ROUTE_WARPS) {
        float *mine = shared + (size_t)warp * 2 * (size_t)a.n_expert;
        for (int e = lane; e < a.n_expert; e += 32)
            mine[e] = __ldcg(&logits[c * a.n_expert + e]);
        __syncwarp();
        choose(a, mine, c, lane);
        __syncwarp();
    }
    if (COLS == 1)
        return;
    __syncthreads();
    group_entries(a.ids, in.n_cols * a.k, a.n_expert, LG_CU_FEW_COLS, entry, group, n_group, (int *)shared);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

void lg_cu_route_op(lg_cu *c, const lg_cu_route *a)
{
    int rows = bucket_rows(c, a->h.rows);
    size_t chosen = (size_t)ROUTE_WARPS * 2 * (size_t)a->n_expert * sizeof(float);
    size_t sorted = (2 * (size_t)a->n_expert + 2 * 32 * ROUTE_WARPS) * sizeof(int);
    dim3 grid((unsigned)a->n_expert);

    if (rows > LG_CU_EXACT_ROWS) {
        lg_cu_route_many(c, a);
        return;
    }
    auto kernel = rows == 1 ? route_kernel<1> : rows <= 4 ? route_kernel<4> : route_kernel<16>;
    launch(c, kernel, grid, 32 * ROUTE_WARPS, most(chosen, sorted), *a, c->route_logits, c->entry, c->group,
           c->n_group, c->step);
    c->grouped = rows > 1 ? a->ids : NULL;
}
