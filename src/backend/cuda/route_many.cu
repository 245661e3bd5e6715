/*
 * backend/cuda/route_many: routing of many rows: a product, a choice a row, and one block that sorts the
 * entries by expert and cuts them into tiles.
 */
#include "backend/cuda/route.cuh"

// Up to LG_CU_CODE_ROWS rows: a block takes PART_EXPERTS experts, PART_ROWS rows and a slice of the inputs, a
// thread an expert and two rows; the slices are added up, in order, where the choice is made.
enum {
    PART_EXPERTS = 16,
    PART_THREADS = 256,
    PART_TOKENS = PART_THREADS / PART_EXPERTS,
    PART_SLICES = 16,
    PART_ROWS = 2 * PART_TOKENS,
    PART_DEPTH = 192
};

static __global__ void __launch_bounds__(PART_THREADS)
    route_part_kernel(__grid_constant__ const lg_cu_route a, float *part, int bucket, int slice,
                      const lg_cu_step *step)
{
    __shared__ float x[PART_ROWS][PART_DEPTH + 1], w[PART_EXPERTS][PART_DEPTH + 1];
    int tid = threadIdx.x, e = tid / PART_TOKENS, tok = tid % PART_TOKENS,
        e0 = (int)blockIdx.x * PART_EXPERTS;
    int from = (int)blockIdx.y * slice, to = min(from + slice, a.h.cols);
    float acc[PART_ROWS / PART_TOKENS] = {};

    pdl_wait();
    int row0 = (int)blockIdx.z * PART_ROWS, rows = min(step_rows(step, a.h.rows) - row0, (int)PART_ROWS);
    for (int k0 = from; k0 < to; k0 += PART_DEPTH) {
        for (int i = tid; i < rows * PART_DEPTH; i += PART_THREADS) {
            int r = i / PART_DEPTH, k = i % PART_DEPTH;
            x[r][k] = k0 + k < to ? a.h.p[(size_t)(row0 + r) * (size_t)a.h.stride + (size_t)(k0 + k)] : 0.0f;
        }
        for (int i = tid; i < PART_EXPERTS * PART_DEPTH; i += PART_THREADS) {
            int r = i / PART_DEPTH, k = i % PART_DEPTH;
            bool valid = e0 + r < a.n_expert && k0 + k < to;
            w[r][k] = valid ? __ldg(a.router + (size_t)(e0 + r) * (size_t)a.h.cols + (size_t)(k0 + k)) : 0.0f;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < PART_DEPTH; k++)
#pragma unroll
            for (int i = 0; i < PART_ROWS / PART_TOKENS; i++)
                acc[i] = fmaf(w[e][k], x[tok + i * PART_TOKENS][k], acc[i]);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PART_ROWS / PART_TOKENS; i++)
        if (tok + i * PART_TOKENS < rows && e0 + e < a.n_expert)
            part[((size_t)blockIdx.y * (size_t)bucket + (size_t)(row0 + tok + i * PART_TOKENS)) *
                     (size_t)a.n_expert +
                 (size_t)(e0 + e)] = acc[i];
}

// logits: [slice][bucket][expert]
static __global__ void __launch_bounds__(32 * ROUTE_WARPS)
    choose_kernel(__grid_constant__ const lg_cu_route a, const float *logits, int slices, int bucket,
                  const lg_cu_step *step)
{
    extern __shared__ float shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = (int)blockIdx.x * ROUTE_WARPS + warp;

    pdl_wait();
    if (row >= step_rows(step, a.h.rows))
        return;
    float *mine = shared + (size_t)warp * 2 * (size_t)a.n_expert;
    for (int e = lane; e < a.n_expert; e += 32) {
        float sum = 0.0f;
        for (int i = 0; i < slices; i++)
            sum += logits[((size_t)i * (size_t)bucket + (size_t)row) * (size_t)a.n_expert + (size_t)e];
        mine[e] = sum;
    }
    __syncwarp();
    choose(a, mine, row, lane);
}

enum { SORT_THREADS = 1024, MANY_SLICES = 2 };

static __global__ void __launch_bounds__(SORT_THREADS)
    sort_kernel(const int32_t *ids, int k, int n_expert, int tile_rows, int32_t *entry, lg_cu_group *group,
                int *n_group, int rows, const lg_cu_step *step)
{
    extern __shared__ int room[];

    pdl_wait();
    group_entries(ids, step_rows(step, rows) * k, n_expert, tile_rows, entry, group, n_group, room);
}

void lg_cu_route_many(lg_cu *c, const lg_cu_route *a)
{
    int rows = bucket_rows(c, a->h.rows), slices = 1;
    size_t chosen = (size_t)ROUTE_WARPS * 2 * (size_t)a->n_expert * sizeof(float);
    const float *logits = c->route_logits;

    // slices lie where the experts' results will
    int room = (a->k + 1) * a->h.cols / a->n_expert; // slices that expert_out holds
    if (rows <= LG_CU_CODE_ROWS && PART_SLICES <= room) {
        int slice = ceil_div(ceil_div(a->h.cols, PART_SLICES), 32) * 32;
        slices = ceil_div(a->h.cols, slice);
        launch(c, route_part_kernel,
               dim3((unsigned)ceil_div(a->n_expert, PART_EXPERTS), (unsigned)slices,
                    (unsigned)ceil_div(rows, PART_ROWS)),
               PART_THREADS, 0, *a, c->expert_out, rows, slice, c->step);
        logits = c->expert_out;
    } else {
        lg_cu_part part = {};
        part.w.p = (const uint8_t *)a->router;
        part.w.type = LG_F32;
        part.w.n_in = a->h.cols;
        part.w.n_out = a->n_expert;
        part.w.n_expert = 1;
        part.w.scale = 1.0f;
        part.y_stride = a->n_expert;
        slices = MANY_SLICES <= room ? (int)MANY_SLICES : 1;
        part.y = slices > 1 ? c->expert_out : c->route_logits;
        logits = part.y;
        lg_cu_gemm_f32_slices(c, &a->h, &part, slices);
    }
    launch(c, choose_kernel, dim3((unsigned)ceil_div(rows, ROUTE_WARPS)), 32 * ROUTE_WARPS, chosen, *a,
           logits, slices, rows, c->step);
}

void lg_cu_sort_entries(lg_cu *c, const lg_cu_moe *m, int tile_rows)
{
    int n_expert = m->routed->gate.n_expert;

    int threads = bucket_rows(c, m->h.rows) * m->k <= 2048 ? 256 : SORT_THREADS;

    launch(c, sort_kernel, dim3(1), threads, (2 * (size_t)n_expert + 2 * (size_t)threads) * sizeof(int),
           m->ids, m->k, n_expert, tile_rows, c->entry, c->group, c->n_group, (int)m->h.rows, c->step);
}
