/*
 * backend/cuda/route: choosing experts and grouping entries by them: what the routers for few
 * and for many rows share.
 *
 * An entry is row * k + rank.
 */
#ifndef LG_BACKEND_CUDA_ROUTE_CUH
#define LG_BACKEND_CUDA_ROUTE_CUH

#include "backend/cuda/common.cuh"

enum {
    ROUTE_WARPS = 4,
    CHOICES = LG_CU_EXPERTS / 32, // experts of a lane, at most
};

// The score of a logit, without softmax.
DEV float score_of(float logit)
{
    float x = expf(-fabsf(logit));

    return logit < 0.0f ? x / (1.0f + x) : 1.0f / (1.0f + x);
}

// Orders as the score plus its bias; never 0.
DEV unsigned key_of(float x)
{
    unsigned u = __float_as_uint(x == x ? x + 0.0f : -INFINITY);

    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// The scores of the chosen as their weights, rank i on lane i.
DEV float weights_of(const lg_cu_route &r, float score, int lane)
{
    float sum = 0.0f;

    for (int i = 0; i < r.k; i++)
        sum += __shfl_sync(0xFFFFFFFFu, score, i);
    return (r.norm ? score / (sum > 0x1p-14f ? sum : 0x1p-14f) : score) * r.scale;
}

// One warp: the k best of n logits at p (shared memory, which is used up), by probability + bias; n is at
// most 32 * N.
template <int N = CHOICES> DEV void choose(const lg_cu_route &a, float *p, int row, int lane)
{
    int n = a.n_expert;
    float sum = 0.0f, mine = 0.0f;
    int mine_id = 0;

    if (a.softmax) {
        float max = -INFINITY, total = 0.0f;
        for (int e = lane; e < n; e += 32)
            max = fmaxf(max, p[e]);
        max = warp_max(max);
        for (int e = lane; e < n; e += 32)
            total += p[e] = expf(p[e] - max);
        total = warp_sum(total);
        for (int e = lane; e < n; e += 32)
            p[e] /= total;
    } else {
        for (int e = lane; e < n; e += 32)
            p[e] = score_of(p[e]);
    }
    __syncwarp(); // any lane may read any score below
    // a key orders as the score; 0 is no expert, or one that was taken
    unsigned key[N], best_here = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int e = lane + 32 * i;
        key[i] = e < n ? key_of(a.bias ? p[e] + a.bias[e] : p[e]) : 0u;
        best_here = max(best_here, key[i]);
    }
    for (int i = 0; i < a.k; i++) {
        unsigned best = __reduce_max_sync(0xFFFFFFFFu, best_here), at = 0xFFFFFFFFu;
        if (best_here == best)
#pragma unroll
            for (int j = N - 1; j >= 0; j--)
                at = key[j] == best ? (unsigned)(lane + 32 * j) : at;
        at = __reduce_min_sync(0xFFFFFFFFu, at);
        float w = p[at];
        sum += w;
        if (lane == i % 32)
            mine = w, mine_id = (int)at;
        if (lane == (int)at % 32) { // taken
            best_here = 0;
#pragma unroll
            for (int j = 0; j < N; j++) {
                key[j] = at == (unsigned)(lane + 32 * j) ? 0u : key[j];
                best_here = max(best_here, key[j]);
            }
        }
        if (i % 32 == 31 || i == a.k - 1) { // a full set of ranks
            int rank = i / 32 * 32 + lane;
            if (rank <= i) {
                a.ids[row * a.k + rank] = mine_id;
                a.w[row * a.k + rank] = mine;
            }
        }
    }
    __syncwarp();
    for (int rank = lane; rank < a.k; rank += 32) {
        float w = a.w[row * a.k + rank];
        if (a.norm)
            w /= sum > 0x1p-14f ? sum : 0x1p-14f;
        a.w[row * a.k + rank] = w * a.scale;
    }
}

// The whole block: entries [0, n) sorted by expert, and tiles of at most tile_rows of them. shared: 2 *
// experts + 2 * threads ints.
DEV void group_entries(const int32_t *ids, int n, int n_expert, int tile_rows, int32_t *entry,
                       lg_cu_group *group, int *n_group, int *shared)
{
    int tid = threadIdx.x, threads = blockDim.x, per = (n_expert + threads - 1) / threads;
    int *count = shared, *at = shared + n_expert, *sum = at + n_expert, *tiles = sum + threads;
    int my_sum = 0, my_tiles = 0;

    for (int e = tid; e < n_expert; e += threads)
        count[e] = 0;
    __syncthreads();
    for (int i = tid; i < n; i += threads)
        atomicAdd(&count[ids[i]], 1);
    __syncthreads();
    for (int e = tid * per; e < min(tid * per + per, n_expert); e++) {
        my_sum += count[e];
        my_tiles += (count[e] + tile_rows - 1) / tile_rows;
    }
    sum[tid] = my_sum;
    tiles[tid] = my_tiles;
    for (int o = 1; o < threads; o *= 2) { // inclusive sums
        __syncthreads();
        int a = tid >= o ? sum[tid - o] : 0, b = tid >= o ? tiles[tid - o] : 0;
        __syncthreads();
        sum[tid] += a;
        tiles[tid] += b;
    }
    __syncthreads();
    int first = sum[tid] - my_sum, tile = tiles[tid] - my_tiles;
    for (int e = tid * per; e < min(tid * per + per, n_expert); e++) {
        at[e] = first;
        for (int i = 0; i < count[e]; i += tile_rows) {
            lg_cu_group g = {e, first + i, min(tile_rows, count[e] - i), 0};
            if (tile < LG_CU_TILES)
                group[tile] = g;
            tile++;
        }
        first += count[e];
    }
    if (tid == threads - 1)
        *n_group = min(tile, (int)LG_CU_TILES);
    __syncthreads();
    for (int i = tid; i < n; i += threads)
        entry[atomicAdd(&at[ids[i]], 1)] = i;
}

#endif
