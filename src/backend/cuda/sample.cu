/*
 * backend/cuda/sample: masks, and the best candidates of a row of logits with its log-sum-exp.
 *
 * One block a row. The k-th largest of the threads' own maxima is a bound that at least k logits reach; what
 * reaches it is collected and sorted. Should too many reach it (equal logits by the thousand), the k-th key
 * is found bit by bit instead.
 *
 * A key orders as (logit, lower id first); NaN counts as minus infinity.
 */
#include "backend/cuda/common.cuh"

enum { THREADS = 1024, ROOM = 2048 };

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

DEV key64 key_of(float v, int id)
{
    unsigned u = __float_as_uint(v == v ? v : -INFINITY);

    u = u == 0x80000000u ? 0x80000000u : u & 0x80000000u ? ~u : u | 0x80000000u; // -0 equals +0
    return (key64)u << 32 | (0xFFFFFFFFu - (unsigned)id);
}

// Descending bitonic sort of n (a power of two) keys by the whole block.
DEV void sort_keys(key64 *key, int n)
{
    for (int size = 2; size <= n; size *= 2)
        for (int half = size / 2; half > 0; half /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
                int a = i / half * 2 * half + i % half, b = a + half;
                bool down = (a & size) == 0;
                key64 x = key[a], y = key[b];
                if ((x < y) == down) {
                    key[a] = y;
                    key[b] = x;
                }
            }
        }
    __syncthreads();
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
    int stride, cols, max_cand, rows;
    int32_t *ids;
    float *out, *lse;
};

static __global__ void __launch_bounds__(THREADS) topk_kernel(__grid_constant__ const topk_args a,
                                                              const lg_cu_step *step)
{
    __shared__ key64 key[ROOM];
    __shared__ float s_max[32], s_sum[32];
    __shared__ int s_n;
    int tid = threadIdx.x, row = blockIdx.x;

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    int k = min(min(step->n_cand, a.max_cand), min(a.cols, (int)ROOM));
    const float *x = a.logits + (size_t)row * (size_t)a.stride;
    // one pass: this thread's best key; maximum and sum of exponentials
    key64 best = 0;
    float max = -INFINITY, sum = 0.0f;
    for (int i = tid; i < a.cols; i += THREADS) {
        float v = x[i];
        key64 mine = key_of(v, i);
        best = mine > best ? mine : best;
        if (v > max) {
            sum = max == -INFINITY ? 0.0f : sum * expf(max - v);
            max = v;
        }
        sum += v == -INFINITY ? 0.0f : v == v ? expf(v - max) : v;
    }
    float top = warp_max(max), part = max == -INFINITY && sum == 0.0f ? 0.0f : sum * expf(max - top);
    part = warp_sum(part);
    if (tid % 32 == 0) {
        s_max[tid / 32] = top;
        s_sum[tid / 32] = part;
    }
    key[tid] = best;
    if (tid == 0)
        s_n = 0;
    __syncthreads();
    if (tid < 32) {
        float m = warp_max(s_max[tid]);
        float s = warp_sum(s_max[tid] == -INFINITY && s_sum[tid] == 0.0f ? 0.0f
                                                                         : s_sum[tid] * expf(s_max[tid] - m));
        if (tid == 0)
            a.lse[row] = m == -INFINITY && s == 0.0f ? m : m + logf(s);
    }
    sort_keys(key, THREADS);
    key64 bound = k <= THREADS ? key[k - 1] : 0;
    __syncthreads();
    for (int i = tid; i < a.cols; i += THREADS) {
        key64 mine = key_of(x[i], i);
        if (mine >= bound) {
            int at = atomicAdd(&s_n, 1);
            if (at < ROOM)
                key[at] = mine;
        }
    }
    __syncthreads();
    if (s_n > ROOM) {
        bound = kth_key(x, a.cols, k, (int *)key);
        if (tid == 0)
            s_n = 0;
        __syncthreads();
        for (int i = tid; i < a.cols; i += THREADS) {
            key64 mine = key_of(x[i], i);
            if (mine >= bound)
                key[atomicAdd(&s_n, 1)] = mine;
        }
        __syncthreads();
    }
    int n = s_n, room = 1;
    while (room < n)
        room *= 2;
    for (int i = n + tid; i < room; i += THREADS)
        key[i] = 0;
    sort_keys(key, room);
    for (int i = tid; i < k; i += THREADS) {
        int id = (int)(0xFFFFFFFFu - (unsigned)(key[i] & 0xFFFFFFFFu));
        float v = x[id];
        a.ids[(size_t)row * (size_t)step->n_cand + (size_t)i] = id;
        a.out[(size_t)row * (size_t)step->n_cand + (size_t)i] = v == v ? v : -INFINITY;
    }
}

void lg_cu_topk(lg_cu *c, const lg_tensor *logits, int32_t *ids, float *out, float *lse, int max_cand)
{
    topk_args a = {logits->p, logits->stride, logits->cols, max_cand, (int)logits->rows, ids, out, lse};

    if (bucket_rows(c, logits->rows) > 0)
        launch(c, topk_kernel, dim3((unsigned)bucket_rows(c, logits->rows)), THREADS, 0, a, c->step);
}
