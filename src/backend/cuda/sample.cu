/*
 * backend/cuda/sample: masks, and the best candidates of a row of logits with its log-sum-exp.
 *
 * A row is cut into LG_CU_SEGMENTS segments, a warp each; the last block of a row to end goes on with their
 * maxima and sums. A bound that the maxima of k segments or more reach is one that k logits reach; those who
 * reach it are in just these segments, are collected and put in their order. Should too many reach it (equal
 * logits by the thousand), the k-th key is found bit by bit instead.
 *
 * A key orders as (logit, lower id first); NaN counts as minus infinity.
 */
#include "backend/cuda/common.cuh"

enum { THREADS = 1024, WARPS = THREADS / 32, BLOCKS = LG_CU_SEGMENTS / WARPS, MOST = 1024, ROOM = 2 * MOST };

static_assert((int)LG_CU_SEGMENTS == (int)THREADS, "a thread has a segment's maximum");

static __global__ void mask_kernel(float *logits, int stride, int cols, const uint32_t *mask, int rows,
                                   const lg_cu_step *step)
{
    pdl_wait();
    int n = step_rows(step, rows), words = (cols + 31) / 32, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int r = (int)blockIdx.y;
    if (r >= n || i >= cols)
        return;
    if (!(mask[(size_t)r * (size_t)words + (size_t)(i / 32)] >> i % 32 & 1))
        logits[(size_t)r * (size_t)stride + (size_t)i] = -INFINITY;
}

void lg_cu_mask(lg_cu *c, const lg_tensor *logits)
{
    dim3 grid((unsigned)ceil_div(logits->cols, 256), (unsigned)bucket_rows(c, logits->rows));

    if (grid.y > 0)
        launch(c, mask_kernel, grid, 256, 0, logits->p, logits->stride, logits->cols, c->mask,
               (int)logits->rows, c->step);
}

typedef unsigned long long key64;

// Orders as the logit.
DEV unsigned order_of(float v)
{
    unsigned u = __float_as_uint(v == v ? v : -INFINITY);

    return u == 0x80000000u ? 0x80000000u : u & 0x80000000u ? ~u : u | 0x80000000u; // -0 equals +0
}

static const unsigned SMALLEST = 0x00800000u; // of those above minus infinity

DEV float logit_of(unsigned order)
{
    return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

DEV key64 key_of(float v, int id)
{
    return (key64)order_of(v) << 32 | (0xFFFFFFFFu - (unsigned)id);
}

// The k-th largest key of the row, a byte at a time.
DEV key64 kth_key(const float *x, int cols, int k, int *count)
{
    __shared__ int s_byte, s_left;
    key64 prefix = 0;

    for (int shift = 56; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += blockDim.x)
            count[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < cols; i += blockDim.x) {
            key64 key = key_of(x[i], i);
            if (shift == 56 || key >> (shift + 8) == prefix)
                atomicAdd(&count[key >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int left = k, b = 255;
            for (; b > 0 && count[b] < left; b--)
                left -= count[b];
            s_byte = b;
            s_left = left;
        }
        __syncthreads();
        prefix = prefix << 8 | (key64)s_byte;
        k = s_left;
    }
    return prefix;
}

struct topk_args {
    const float *logits;
    int stride, cols, segment, max_cand, rows; // segment: logits of one
    lg_cu_segments seg;
    int32_t *ids;
    float *out, *lse;
    uint32_t *listed;
};

// All threads: a row's results are written; those of the step, when it was the last.
DEV void tell_row(const topk_args &a, const lg_cu_step *step)
{
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    __threadfence_system();
    if (atomicAdd(a.seg.rows_done, 1) == step_rows(step, a.rows) - 1) {
        *a.seg.rows_done = 0;
        __threadfence_system();
        *(volatile uint32_t *)a.listed = step->serial;
    }
}

// Maximum of some logits, and the sum of their exponentials over its own. NaN makes the sum NaN.
struct soft_sum {
    float max, sum;
};

DEV float scaled(soft_sum s, float max)
{
    return s.max == -INFINITY && s.sum == 0.0f ? 0.0f : s.sum * expf(s.max - max);
}

// A warp: its segment's share of the result, to memory.
DEV void sum_segment(const topk_args &a, int row, int segment, int lane)
{
    const float *x = a.logits + (size_t)row * (size_t)a.stride;
    int from = segment * a.segment, to = min(from + a.segment, a.cols);
    unsigned best = 0;
    soft_sum s = {-INFINITY, 0.0f};

    for (int i = from + lane; i < to; i += 4 * 32) {
        float v[4], top = s.max;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[j] = i + j * 32 < to ? x[i + j * 32] : -INFINITY;
            best = max(best, i + j * 32 < to ? order_of(v[j]) : 0);
            top = fmaxf(top, v[j]);
        }
        s.sum = scaled(s, top);
        s.max = top;
#pragma unroll
        for (int j = 0; j < 4; j++)
            s.sum += v[j] == -INFINITY ? 0.0f : v[j] == v[j] ? expf(v[j] - top) : v[j];
    }
    best = __reduce_max_sync(~0u, best);
    float max = warp_max(s.max), part = warp_sum(scaled(s, max));
    if (lane == 0) {
        a.seg.best[(size_t)row * LG_CU_SEGMENTS + (size_t)segment] = best;
        ((float2 *)a.seg.sums)[(size_t)row * LG_CU_SEGMENTS + (size_t)segment] = make_float2(max, part);
    }
}

// All threads: is this the last block of the row, which then sees what all of them have left?
DEV bool last_of_row(const topk_args &a, int row)
{
    __shared__ bool s_last;

    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        s_last = atomicAdd(&a.seg.done[row], 1) == BLOCKS - 1;
        if (s_last)
            a.seg.done[row] = 0;
        __threadfence();
    }
    __syncthreads();
    return s_last;
}

// All threads, of the segments' maxima each its own: a bound that k of them reach, and not many more, or the
// smallest finite one.
DEV unsigned find_bound(unsigned best, int k)
{
    __shared__ unsigned s_low[WARPS], s_high[WARPS];
    int tid = (int)threadIdx.x;
    unsigned low = __reduce_min_sync(~0u, best), high = __reduce_max_sync(~0u, best);

    if (tid % 32 == 0) {
        s_low[tid / 32] = low;
        s_high[tid / 32] = high;
    }
    __syncthreads();
    low = max(__reduce_min_sync(~0u, s_low[tid % 32]), SMALLEST);
    high = __reduce_max_sync(~0u, s_high[tid % 32]);
    while (low < high) { // k reach low, or it is the least; which of (low, high] is the greatest such?
        unsigned mid = high - (high - low) / 2;
        int n = __syncthreads_count(best >= mid);
        if (n < k) {
            high = mid - 1;
            continue;
        }
        low = mid;
        if (n < 2 * k)
            break;
    }
    return low;
}

// All threads: the log-sum-exp of the row, from the segments' sums, each its own.
DEV float join_sums(soft_sum s)
{
    __shared__ float s_max[WARPS], s_sum[WARPS];
    int tid = (int)threadIdx.x;
    float max = warp_max(s.max);

    if (tid % 32 == 0)
        s_max[tid / 32] = max;
    __syncthreads();
    max = warp_max(s_max[tid % 32]);
    float sum = warp_sum(scaled(s, max));
    if (tid % 32 == 0)
        s_sum[tid / 32] = sum;
    __syncthreads();
    sum = warp_sum(s_sum[tid % 32]);
    return max == -INFINITY && sum == 0.0f ? max : max + logf(sum);
}

// All threads: what reaches the bound, in the segments whose maximum does; *n of them, ROOM are kept.
DEV void collect(const topk_args &a, const float *x, unsigned best, unsigned bound, key64 *key, int *n)
{
    __shared__ int s_segment[LG_CU_SEGMENTS], s_n;
    int tid = (int)threadIdx.x;

    if (tid == 0)
        s_n = *n = 0;
    __syncthreads();
    if (best >= bound)
        s_segment[atomicAdd(&s_n, 1)] = tid;
    __syncthreads();
    for (int s = tid / 32; s < s_n; s += WARPS) {
        int from = s_segment[s] * a.segment, to = min(from + a.segment, a.cols);
#pragma unroll 4
        for (int i = from + tid % 32; i < to; i += 32) {
            float v = x[i];
            if (order_of(v) < bound)
                continue;
            int at = atomicAdd(n, 1);
            if (at < ROOM)
                key[at] = key_of(v, i);
        }
    }
    __syncthreads();
}

/* All threads: the n keys in descending order, of which k are wanted, to `to`. A key's rank is the number of
 * those above it; `parts` threads count for one. */
DEV void rank_keys(const key64 *key, int n, int k, key64 *to)
{
    int tid = (int)threadIdx.x, parts = 1;

    while (parts < 32 && 2 * parts * n <= THREADS)
        parts *= 2;
    for (int first = 0; first < n; first += THREADS / parts) {
        int i = first + tid / parts, rank = 0;
        key64 mine = key[min(i, n - 1)];
        for (int j = tid % parts; j < n; j += parts)
            rank += key[j] > mine;
        for (int d = 1; d < parts; d *= 2)
            rank += __shfl_xor_sync(~0u, rank, d);
        if (tid % parts == 0 && i < n && rank < k)
            to[rank] = mine;
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(THREADS) topk_kernel(__grid_constant__ const topk_args a,
                                                              const lg_cu_step *step)
{
    __shared__ key64 key[ROOM], best_first[MOST];
    __shared__ int s_n;
    int tid = (int)threadIdx.x, row = (int)blockIdx.y;

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    sum_segment(a, row, (int)blockIdx.x * WARPS + tid / 32, tid % 32);
    if (!last_of_row(a, row))
        return;
    size_t mine = (size_t)row * LG_CU_SEGMENTS + (size_t)tid;
    unsigned best = __ldcg(a.seg.best + mine);
    float2 sum = __ldcg((const float2 *)a.seg.sums + mine);
    int n_cand = step->n_cand, k = min(min(n_cand, a.max_cand), min(a.cols, (int)MOST));
    const float *x = a.logits + (size_t)row * (size_t)a.stride;

    unsigned bound = find_bound(best, k);
    collect(a, x, best, bound, key, &s_n);
    float lse = join_sums({sum.x, sum.y});
    if (s_n > ROOM) {
        key64 kth = kth_key(x, a.cols, k, (int *)key);
        if (tid == 0)
            s_n = 0;
        __syncthreads();
        for (int i = tid; i < a.cols; i += THREADS) {
            key64 of = key_of(x[i], i);
            if (of >= kth)
                key[atomicAdd(&s_n, 1)] = of;
        }
        __syncthreads();
    } else if (s_n < k) { // all finite ones are there; the first others are among the first k
        __syncthreads();
        for (int i = tid; i < k; i += THREADS)
            if (order_of(x[i]) < SMALLEST)
                key[atomicAdd(&s_n, 1)] = key_of(x[i], i);
        __syncthreads();
    }
    rank_keys(key, s_n, k, best_first);
    if (tid < k) {
        a.ids[(size_t)row * (size_t)n_cand + (size_t)tid] = (int)(0xFFFFFFFFu - (unsigned)best_first[tid]);
        a.out[(size_t)row * (size_t)n_cand + (size_t)tid] = logit_of((unsigned)(best_first[tid] >> 32));
    }
    if (tid == 0)
        a.lse[row] = lse;
    tell_row(a, step);
}

void lg_cu_topk(lg_cu *c, const lg_tensor *logits, int32_t *ids, float *out, float *lse, int max_cand)
{
    topk_args a = {logits->p, logits->stride, logits->cols, ceil_div(logits->cols, LG_CU_SEGMENTS), max_cand,
                   (int)logits->rows, c->segments, ids, out, lse, c->listed};
    dim3 grid(BLOCKS, (unsigned)bucket_rows(c, logits->rows));

    if (grid.y > 0)
        launch(c, topk_kernel, grid, THREADS, 0, a, c->step);
}
