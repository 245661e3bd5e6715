/*
 * backend/cuda/route: routing of few rows in one launch, whatever their shape; of several rows it is mostly
 * route_few.cu that does it.
 *
 * ROUTE_WARPS warps an expert; a block has one expert, or for several rows four. The last block to finish
 * chooses the experts, a warp a row, and for several rows groups the entries by expert. More rows:
 * route_many.cu.
 */
#include "backend/cuda/route.cuh"
#include "backend/cuda/stream.cuh"

template <int COLS> static __host__ __device__ constexpr int block_experts(void)
{
    return COLS == 1 ? 1 : 4;
}

struct router_out {
    float *logits;
    int32_t *entry;
    lg_cu_group *group;
    int *n_group;
};

/* The last block: all rows' experts, from the logits, and the groups. room: WARPS rows of logits, then ids.
 */
template <int COLS, int WARPS>
DEV void choose_rows(const lg_cu_route &a, const router_out &out, float *room, int rows)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float *mine = room + warp * a.n_expert;
    int32_t *ids = (int32_t *)(room + WARPS * a.n_expert);

    for (int c = warp; c < rows; c += WARPS) {
        for (int e = lane; e < a.n_expert; e += 32)
            mine[e] = __ldcg(&out.logits[c * a.n_expert + e]);
        __syncwarp();
        if (a.n_expert <= 256)
            choose<8>(a, mine, a.bias, c, lane, COLS == 1 ? NULL : ids + c * a.k);
        else
            choose(a, mine, a.bias, c, lane, COLS == 1 ? NULL : ids + c * a.k);
        __syncwarp();
    }
    if (COLS == 1)
        return;
    __syncthreads();
    group_entries(ids, rows * a.k, a.n_expert, LG_CU_GROUP_ROWS, out.entry, out.group, out.n_group,
                  (int *)room);
}

template <int COLS>
static __global__ void __launch_bounds__(32 * ROUTE_WARPS * block_experts<COLS>(), 1)
    route_kernel(__grid_constant__ const lg_cu_route a, const router_out out, const lg_cu_step *step)
{
    enum { EXPERTS = block_experts<COLS>(), WARPS = ROUTE_WARPS * EXPERTS, STEP = 32 * ROUTE_WARPS };
    extern __shared__ __align__(16) float shared[]; // what choose_rows wants
    __shared__ bool last;
    __shared__ float part[WARPS][COLS];
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, first = (int)blockIdx.x * EXPERTS, col[COLS];
    int row[1] = {min(first + warp / ROUTE_WARPS, a.n_expert - 1)};
    const uint8_t *const p[1] = {(const uint8_t *)a.router};
    float acc[1][COLS];
    lg_cu_mat m = {};
    gemv_in in = {};

    m.type = LG_F32;
    m.n_in = a.h.cols;
    if (warp % ROUTE_WARPS == 0)
        prefetch_row(m, p[0], row[0], lane);
    pdl_wait();
    in.x = a.h.p;
    in.x_stride = (size_t)a.h.stride;
    in.n_cols = step_rows(step, a.h.rows);
#pragma unroll
    for (int c = 0; c < COLS; c++)
        col[c] = c, acc[0][c] = 0.0f;
    if (in.n_cols > 0)
        dot_floats<COLS, 1, COLS == 1 ? 4 : 2>(acc, m, p, row, in, col, tid % STEP, STEP);
    float sum;
    int index = sums_of<COLS>(acc[0], 32, lane, &sum);
    if (lane % (32 / COLS) == 0)
        part[warp][index] = sum;
    __syncthreads();
    int mine = tid / COLS, c0 = tid % COLS; // an expert of the block, and a row
    if (mine < EXPERTS && c0 < in.n_cols && first + mine < a.n_expert) {
        float v = part[mine * ROUTE_WARPS][c0];
        for (int w = 1; w < ROUTE_WARPS; w++)
            v += part[mine * ROUTE_WARPS + w][c0];
        out.logits[c0 * a.n_expert + first + mine] = v;
        __threadfence();
    }
    __syncthreads();
    if (tid == 0) {
        last = atomicAdd(&out.n_group[1], 1) == (int)gridDim.x - 1;
        if (last)
            out.n_group[1] = 0;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    choose_rows<COLS, WARPS>(a, out, shared, in.n_cols);
}

template <int COLS> static void run(lg_cu *c, const lg_cu_route *a, int rows)
{
    enum { EXPERTS = block_experts<COLS>(), WARPS = ROUTE_WARPS * EXPERTS };
    size_t n = (size_t)a->n_expert, chosen = (WARPS * n + (size_t)(rows * a->k)) * sizeof(float);
    size_t groups = (2 * n + 64) * sizeof(int);
    router_out out = {c->route_logits, c->entry, c->group, c->n_group};

    launch(c, route_kernel<COLS>, dim3((unsigned)ceil_div(a->n_expert, EXPERTS)), 32 * WARPS,
           chosen > groups ? chosen : groups, *a, out, c->step);
}

void lg_cu_route_op(lg_cu *c, const lg_cu_route *a)
{
    int rows = bucket_rows(c, a->h.rows);

    if (rows > LG_CU_EXACT_ROWS) {
        lg_cu_route_many(c, a);
        return;
    }
    if (rows == 1)
        run<1>(c, a, rows);
    else if (!lg_cu_route_few(c, a)) {
        if (rows <= 4)
            run<4>(c, a, rows);
        else if (rows <= 8)
            run<8>(c, a, rows);
        else
            run<16>(c, a, rows);
    }
    c->grouped = rows > 1 ? a->ids : NULL;
    c->routed = c->launches;
}
