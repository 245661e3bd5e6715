/*
 * backend/cuda/route: routing of few rows in one launch.
 *
 * ROUTE_WARPS warps an expert; a block has one expert, or for several rows four, which share the loads of the
 * rows. The last block to finish chooses the experts, a warp a row, and for several rows groups the entries
 * by expert. More rows: route_many.cu.
 */
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/route.cuh"

template <int COLS> static __host__ __device__ constexpr int block_experts(void)
{
    return COLS == 1 ? 1 : 4;
}

template <int COLS>
static __global__ void __launch_bounds__(32 * ROUTE_WARPS * block_experts<COLS>())
    route_kernel(__grid_constant__ const lg_cu_route a, float *logits, int32_t *entry, lg_cu_group *group,
                 int *n_group, const lg_cu_step *step)
{
    enum { EXPERTS = block_experts<COLS>(), WARPS = ROUTE_WARPS * EXPERTS };
    extern __shared__ float shared[];
    __shared__ bool last;
    __shared__ float part[WARPS][COLS];
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, first = (int)blockIdx.x * EXPERTS, col[COLS];
    int row[1] = {min(first + warp / ROUTE_WARPS, a.n_expert - 1)};
    float acc[1][COLS];
    lg_cu_mat m = {};
    gemv_in in = {};

    m.type = LG_F32;
    m.n_in = a.h.cols;
    if (warp % ROUTE_WARPS == 0)
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
        dot_floats<COLS, 1, COLS == 1 ? 4 : 2>(acc, m, p, row, in, col, tid % (32 * ROUTE_WARPS),
                                               32 * ROUTE_WARPS);
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        if (c >= in.n_cols)
            break;
        float v = warp_sum(acc[0][c]);
        if (lane == 0)
            part[warp][c] = v;
    }
    __syncthreads();
    int mine = tid / COLS, c0 = tid % COLS; // an expert of the block, and a row
    if (mine < EXPERTS && c0 < in.n_cols && first + mine < a.n_expert) {
        float v = part[mine * ROUTE_WARPS][c0];
        for (int w = 1; w < ROUTE_WARPS; w++)
            v += part[mine * ROUTE_WARPS + w][c0];
        logits[c0 * a.n_expert + first + mine] = v;
        __threadfence();
    }
    __syncthreads();
    if (tid == 0) {
        last = atomicAdd(&n_group[1], 1) == (int)gridDim.x - 1;
        if (last)
            n_group[1] = 0;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    for (int c = warp; c < in.n_cols; c += WARPS) {
        float *room = shared + (size_t)warp * (size_t)a.n_expert;
        for (int e = lane; e < a.n_expert; e += 32)
            room[e] = __ldcg(&logits[c * a.n_expert + e]);
        __syncwarp();
        if (a.n_expert <= 256)
            choose<8>(a, room, c, lane);
        else
            choose(a, room, c, lane);
        __syncwarp();
    }
    if (COLS == 1)
        return;
    __syncthreads();
    group_entries(a.ids, in.n_cols * a.k, a.n_expert, LG_CU_GROUP_ROWS, entry, group, n_group, (int *)shared);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

template <int COLS> static void run(lg_cu *c, const lg_cu_route *a)
{
    enum { EXPERTS = block_experts<COLS>(), WARPS = ROUTE_WARPS * EXPERTS };
    size_t n = (size_t)a->n_expert, chosen = WARPS * n * sizeof(float);
    size_t sorted = (2 * n + 2 * 32 * WARPS) * sizeof(int);

    launch(c, route_kernel<COLS>, dim3((unsigned)ceil_div(a->n_expert, EXPERTS)), 32 * WARPS,
           most(chosen, sorted), *a, c->route_logits, c->entry, c->group, c->n_group, c->step);
}

void lg_cu_route_op(lg_cu *c, const lg_cu_route *a)
{
    int rows = bucket_rows(c, a->h.rows);

    if (rows > LG_CU_EXACT_ROWS) {
        lg_cu_route_many(c, a);
        return;
    }
    if (rows == 1)
        run<1>(c, a);
    else if (rows <= 4)
        run<4>(c, a);
    else
        run<16>(c, a);
    c->grouped = rows > 1 ? a->ids : NULL;
}
