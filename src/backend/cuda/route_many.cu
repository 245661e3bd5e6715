/*
 * backend/cuda/route_many: routing of many rows: a product, a choice a row, and one block that sorts the
 * entries by expert and cuts them into tiles.
 */
#include "backend/cuda/route.cuh"

static __global__ void __launch_bounds__(32 * ROUTE_WARPS)
    choose_kernel(__grid_constant__ const lg_cu_route a, const float *logits, const lg_cu_step *step)
{
    extern __shared__ float shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = (int)blockIdx.x * ROUTE_WARPS + warp;

    pdl_wait();
    if (row >= step_rows(step, a.h.rows))
        return;
    float *mine = shared + (size_t)warp * 2 * (size_t)a.n_expert;
    for (int e = lane; e < a.n_expert; e += 32)
        mine[e] = logits[(size_t)row * (size_t)a.n_expert + (size_t)e];
    __syncwarp();
    choose(a, mine, row, lane);
}

enum { SORT_THREADS = 1024 };

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
    int rows = bucket_rows(c, a->h.rows);
    size_t chosen = (size_t)ROUTE_WARPS * 2 * (size_t)a->n_expert * sizeof(float);
    lg_cu_part part = {};

    part.w.p = (const uint8_t *)a->router;
    part.w.type = LG_F32;
    part.w.n_in = a->h.cols;
    part.w.n_out = a->n_expert;
    part.w.n_expert = 1;
    part.w.scale = 1.0f;
    part.y = c->route_logits;
    part.y_stride = a->n_expert;
    lg_cu_gemm(c, &a->h, &part, 1);
    launch(c, choose_kernel, dim3((unsigned)ceil_div(rows, ROUTE_WARPS)), 32 * ROUTE_WARPS, chosen, *a,
           (const float *)c->route_logits, c->step);
}

void lg_cu_sort_entries(lg_cu *c, const lg_cu_moe *m, int tile_rows)
{
    int n_expert = m->routed->gate.n_expert;

    launch(c, sort_kernel, dim3(1), SORT_THREADS, (2 * (size_t)n_expert + 2 * SORT_THREADS) * sizeof(int),
           m->ids, m->k, n_expert, tile_rows, c->entry, c->group, c->n_group, (int)m->h.rows, c->step);
}
