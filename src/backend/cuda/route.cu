/*
 * backend/cuda/route: routing of few rows in one launch.
 *
 * ROUTE_WARPS warps an expert; a block has one expert, or for several rows four. Several rows are brought to
 * shared memory first, where they fit (STAGED): there every load of a product would wait for the one before.
 * The last block to finish chooses the experts, a warp a row, and for several rows groups the entries by
 * expert. More rows: route_many.cu.
 */
#include "backend/cuda/route.cuh"
#include "backend/cuda/stream.cuh"

enum {
    AHEAD = 3,         // groups of eight weights of a lane that come before the wait
    FEW_EXPERTS = 256, // whose bias has a place in shared memory
};

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

/* A lane's first weights of a router's row, before the wait. */
struct router_ahead {
    float4 w[AHEAD][2];

    __device__ __forceinline__ void load(const float *row, int at, int n_in)
    {
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (at + u * 32 * ROUTE_WARPS * 8 < n_in) {
                w[u][0] = load_f4(row + at + u * 32 * ROUTE_WARPS * 8);
                w[u][1] = load_f4(row + at + u * 32 * ROUTE_WARPS * 8 + 4);
            }
    }
};

/* Eight columns of each of COLS rows in shared memory, `cols` apart, in dot_floats' order. (Of rows that are
 * not there come sums that nobody uses.) */
template <int COLS> DEV void dot_staged(float (&acc)[COLS], float4 a, float4 b, const float *x, int cols)
{
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        float4 u = *(const float4 *)(x + c * cols), v = *(const float4 *)(x + c * cols + 4);
        acc[c] = fmaf(a.x, u.x, acc[c]);
        acc[c] = fmaf(a.y, u.y, acc[c]);
        acc[c] = fmaf(a.z, u.z, acc[c]);
        acc[c] = fmaf(a.w, u.w, acc[c]);
        acc[c] = fmaf(b.x, v.x, acc[c]);
        acc[c] = fmaf(b.y, v.y, acc[c]);
        acc[c] = fmaf(b.z, v.z, acc[c]);
        acc[c] = fmaf(b.w, v.w, acc[c]);
    }
}

/* The whole block: n rows of h to shared memory. Ends with a barrier. */
DEV void stage_rows(float *to, const lg_tensor &h, int n)
{
    int per = h.cols / 4, row = 0;

    for (int i = (int)threadIdx.x; row < n; i += (int)blockDim.x) {
        while (i >= per)
            i -= per, row++;
        if (row < n)
            copy16(shared_at(to + row * h.cols + 4 * i),
                   h.p + (size_t)row * (size_t)h.stride + (size_t)(4 * i));
    }
    copies_commit();
    copies_wait<0>();
    __syncthreads();
}

/* The last block: all rows' experts, from the logits, and the groups. room: WARPS rows of logits, then ids.
 */
template <int COLS, int WARPS>
DEV void choose_rows(const lg_cu_route &a, const router_out &out, float *room, const float *bias, int rows)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float *mine = room + warp * a.n_expert;
    int32_t *ids = (int32_t *)(room + WARPS * a.n_expert);

    for (int c = warp; c < rows; c += WARPS) {
        for (int e = lane; e < a.n_expert; e += 32)
            mine[e] = __ldcg(&out.logits[c * a.n_expert + e]);
        __syncwarp();
        if (a.n_expert <= 256)
            choose<8>(a, mine, bias, c, lane, COLS == 1 ? NULL : ids + c * a.k);
        else
            choose(a, mine, bias, c, lane, COLS == 1 ? NULL : ids + c * a.k);
        __syncwarp();
    }
    if (COLS == 1)
        return;
    __syncthreads();
    group_entries(ids, rows * a.k, a.n_expert, LG_CU_GROUP_ROWS, out.entry, out.group, out.n_group,
                  (int *)room);
}

template <int COLS, bool STAGED>
static __global__ void __launch_bounds__(32 * ROUTE_WARPS * block_experts<COLS>(), 1)
    route_kernel(__grid_constant__ const lg_cu_route a, const router_out out, const lg_cu_step *step)
{
    enum { EXPERTS = block_experts<COLS>(), WARPS = ROUTE_WARPS * EXPERTS, STEP = 32 * ROUTE_WARPS };
    extern __shared__ __align__(16) float shared[]; // STAGED: rows; then what choose_rows wants
    __shared__ bool last;
    __shared__ float part[WARPS][COLS], biases[COLS == 1 ? 1 : FEW_EXPERTS];
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, first = (int)blockIdx.x * EXPERTS, col[COLS];
    int row[1] = {min(first + warp / ROUTE_WARPS, a.n_expert - 1)}, at = tid % STEP * 8;
    const float *weights = a.router + (size_t)row[0] * (size_t)a.h.cols, *bias = a.bias;
    float acc[1][COLS];
    lg_cu_mat m = {};
    gemv_in in = {};
    router_ahead ahead;

    m.type = LG_F32;
    m.n_in = a.h.cols;
    if (STAGED)
        ahead.load(weights, at, m.n_in);
    else if (warp % ROUTE_WARPS == 0)
        prefetch_row(m, (const uint8_t *)a.router, row[0], lane);
    if (COLS > 1 && a.bias && a.n_expert <= FEW_EXPERTS) { // the last block wants it
        for (int e = tid; e < a.n_expert; e += 32 * WARPS)
            biases[e] = __ldg(&a.bias[e]);
        bias = biases;
    }
    pdl_wait();
    in.x = a.h.p;
    in.x_stride = (size_t)a.h.stride;
    in.n_cols = step_rows(step, a.h.rows);
#pragma unroll
    for (int c = 0; c < COLS; c++)
        col[c] = c, acc[0][c] = 0.0f;
    if (STAGED) {
        stage_rows(shared, a.h, in.n_cols);
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (at + u * STEP * 8 < m.n_in)
                dot_staged<COLS>(acc[0], ahead.w[u][0], ahead.w[u][1], shared + at + u * STEP * 8, m.n_in);
        for (int i = at + AHEAD * STEP * 8; i < m.n_in; i += STEP * 8)
            dot_staged<COLS>(acc[0], load_f4(weights + i), load_f4(weights + i + 4), shared + i, m.n_in);
    } else {
        const uint8_t *const p[1] = {(const uint8_t *)a.router};
        if (in.n_cols > 0)
            dot_floats<COLS, 1, COLS == 1 ? 4 : 2>(acc, m, p, row, in, col, tid % STEP, STEP);
    }
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
    choose_rows<COLS, WARPS>(a, out, shared, bias, in.n_cols);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

template <int COLS> static void run(lg_cu *c, const lg_cu_route *a, int rows)
{
    enum { EXPERTS = block_experts<COLS>(), WARPS = ROUTE_WARPS * EXPERTS };
    size_t n = (size_t)a->n_expert, chosen = (WARPS * n + (size_t)(rows * a->k)) * sizeof(float);
    size_t room = most(chosen, (2 * n + 64) * sizeof(int));
    size_t staged = most(room, COLS * (size_t)a->h.cols * sizeof(float));
    dim3 grid((unsigned)ceil_div(a->n_expert, EXPERTS));
    router_out out = {c->route_logits, c->entry, c->group, c->n_group};
    bool aligned =
        a->h.cols % 8 == 0 && a->h.stride % 4 == 0 && (((uintptr_t)a->h.p | (uintptr_t)a->router) & 15) == 0;

    if constexpr (COLS > 1)
        if (aligned && staged + 4096 <= (size_t)c->smem) {
            share_sm(c, route_kernel<COLS, true>, staged);
            launch(c, route_kernel<COLS, true>, grid, 32 * WARPS, staged, *a, out, c->step);
            return;
        }
    launch(c, route_kernel<COLS, false>, grid, 32 * WARPS, room, *a, out, c->step);
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
    else if (rows <= 4)
        run<4>(c, a, rows);
    else if (rows <= 8)
        run<8>(c, a, rows);
    else
        run<16>(c, a, rows);
    c->grouped = rows > 1 ? a->ids : NULL;
    c->routed = c->launches;
}
