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

// One warp: the k best of n logits at p (shared memory, which is used up), by probability + bias (or NULL); n
// is at most 32 * N. ids: of the row; also: NULL, or a second place for them.
template <int N = CHOICES>
DEV void choose(const lg_cu_route &a, float *p, const float *bias, int row, int lane, int32_t *also = NULL)
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
        key[i] = e < n ? key_of(bias ? p[e] + bias[e] : p[e]) : 0u;
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
                if (also)
                    also[rank] = mine_id;
                a.w[row * a.k + rank] = mine;
            }
        }
    }
    if (a.k > 32)
        __syncwarp();
    for (int rank = lane; rank < a.k; rank += 32) {
        float w = a.k > 32 ? a.w[row * a.k + rank] : mine;
        if (a.norm)
            w /= sum > 0x1p-14f ? sum : 0x1p-14f;
        a.w[row * a.k + rank] = w * a.scale;
    }
}

/* The whole block: *a and *b become the sums of those of all threads up to this one. room: two ints a warp.
 */
DEV void sums_so_far(int *a, int *b, int *room)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;

    for (int o = 1; o < 32; o *= 2) {
        int x = __shfl_up_sync(0xFFFFFFFFu, *a, (unsigned)o),
            y = __shfl_up_sync(0xFFFFFFFFu, *b, (unsigned)o);
        *a += lane >= o ? x : 0;
        *b += lane >= o ? y : 0;
    }
    if (lane == 31)
        room[2 * warp] = *a, room[2 * warp + 1] = *b;
    __syncthreads();
    *a += (int)__reduce_add_sync(0xFFFFFFFFu, lane < warp && lane < warps ? (unsigned)room[2 * lane] : 0u);
    *b +=
        (int)__reduce_add_sync(0xFFFFFFFFu, lane < warp && lane < warps ? (unsigned)room[2 * lane + 1] : 0u);
}

// The whole block: entries [0, n) sorted by expert, and tiles of at most tile_rows of them. shared: 2 *
// experts + 64 ints.
DEV void group_entries(const int32_t *ids, int n, int n_expert, int tile_rows, int32_t *entry,
                       lg_cu_group *group, int *n_group, int *shared)
{
    int tid = threadIdx.x, threads = blockDim.x, per = (n_expert + threads - 1) / threads;
    int *count = shared, *at = shared + n_expert, my_sum = 0, my_tiles = 0, held = 0;
    enum { HEAVY = 1 << 18 }; // more than 2^14 of them are miscounted, where nobody asks

    for (int e = tid; e < n_expert; e += threads)
        count[e] = 0;
    __syncthreads();
    for (int i = tid; i < n; i += threads) {
        int id = ids[i];
        held = i == tid ? id : held;
        atomicAdd(&count[id], 1);
    }
    __syncthreads();
    for (int e = tid * per; e < min(tid * per + per, n_expert); e++) {
        my_sum += count[e];
        for (int i = 0; i < count[e]; i += tile_rows)
            my_tiles += 1 + (min(tile_rows, count[e] - i) > 2 ? (int)HEAVY : 0);
    }
    int first = my_sum, tile = my_tiles;
    sums_so_far(&first, &tile, at + n_expert);
    first -= my_sum;
    tile -= my_tiles;
    for (int e = tid * per; e < min(tid * per + per, n_expert); e++) {
        at[e] = first;
        for (int i = 0; i < count[e]; i += tile_rows) {
            lg_cu_group g = {e, first + i, min(tile_rows, count[e] - i), (int)((unsigned)tile / HEAVY)};
            if ((tile & (HEAVY - 1)) < LG_CU_TILES)
                group[tile & (HEAVY - 1)] = g;
            tile += 1 + (g.n > 2 ? (int)HEAVY : 0);
        }
        first += count[e];
    }
    if (tid == threads - 1) {
        n_group[0] = min(tile & (HEAVY - 1), (int)LG_CU_TILES);
        n_group[2] = (int)((unsigned)tile / HEAVY);
        n_group[3] = n_group[4] = 0;
    }
    __syncthreads();
    for (int i = tid; i < n; i += threads)
        entry[atomicAdd(&at[i == tid ? held : ids[i]], 1)] = i;
    if (tile_rows != LG_CU_GROUP_ROWS)
        return;
    __syncthreads();
    tile -= my_tiles;
    for (int e = tid * per; e < min(tid * per + per, n_expert); e++)
        for (int i = at[e] - count[e]; i < at[e]; i += tile_rows, tile++)
            if (tile < LG_CU_TILES)
                group[tile].both = entry[i] | (i + 1 < at[e] ? entry[i + 1] << 16 : 0);
}

#endif
