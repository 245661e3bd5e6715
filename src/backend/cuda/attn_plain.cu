/*
 * backend/cuda/attn_plain: attention of up to LG_CU_EXACT_ROWS rows, for what attn_few.cu does not take: f32
 * caches and head sizes other than 128.
 *
 * A block takes a (query head, span of LG_CU_SPAN positions, row) and leaves a node: max, sum, sums of
 * values. A second launch joins the nodes of a query head.
 */
#include "backend/cuda/attention.cuh"

// A node: [row][head][span - first span of the row]: max, sum, then head_dim sums.
DEV float *node_at(const attn_args &a, int row, int head, int span)
{
    return a.part +
           (((size_t)(row - a.row0) * (size_t)a.n_head + (size_t)head) * (size_t)a.max_spans + (size_t)span) *
               (size_t)(a.kv.head_dim + 2);
}

// A block a (query head, span, row); warps share the keys of the span, lanes the dimensions.
static __global__ void __launch_bounds__(32 * PLAIN_WARPS)
    attn_plain_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    __shared__ float score[LG_CU_SPAN], room[PLAIN_WARPS];
    int lane = threadIdx.x % 32, dim = a.kv.head_dim, head = blockIdx.y;
    int kv_head = head / a.group, row = a.row0 + (int)blockIdx.x;

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    long long p = step->pos + row, lo = first_visible(a.kv, p);
    long long start = (lo / LG_CU_SPAN + blockIdx.z) * LG_CU_SPAN;
    if (start > p)
        return;
    int from = (int)max(lo - start, 0ll), to = (int)min(p + 1 - start, (long long)LG_CU_SPAN);
    float q[PLAIN_DIM / 32];
    plain_query(q, a, row, head, lane);
    float max = plain_scores(q, a, kv_head, start, from, to, -INFINITY, score, room);
    float sum = 0.0f;
    for (int j = from; j < to; j++) // every thread: the same order everywhere
        sum += expf(score[j] - max);
    float *node = node_at(a, row, head, (int)blockIdx.z);
    if (threadIdx.x == 0) {
        node[0] = max;
        node[1] = sum;
    }
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float acc = 0.0f;
        for (int j = from; j < to; j++) {
            const uint8_t *v =
                kv_tile(a.kv, start + j, kv_head, true) + (size_t)(j % LG_KV_BLOCK) * a.kv.row_bytes;
            acc = fmaf(expf(score[j] - max), kv_value(a.kv, v, i), acc);
        }
        node[2 + i] = acc;
    }
}

enum { JOIN_GROUPS = 4, JOIN_CHUNK = 256 };

/* Joins the nodes of a query head; gate; the result and its quantised form. A block a (head, row): thread (g,
 * i) adds dimension i of the nodes g, g + JOIN_GROUPS, ... in order, then the groups are added in order. */
static __global__ void attn_join_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    extern __shared__ float room[]; // [JOIN_GROUPS][dim_up]
    __shared__ float weight[JOIN_CHUNK], reduce[32];
    int dim = a.kv.head_dim, dim_up = (int)blockDim.x / JOIN_GROUPS, head = blockIdx.x,
        row = a.row0 + (int)blockIdx.y;
    int tid = threadIdx.x, i = tid % dim_up, g = tid / dim_up, lane = tid % 32, warps = (int)blockDim.x / 32;

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    long long p = step->pos + row;
    int spans = (int)(p / LG_CU_SPAN - first_visible(a.kv, p) / LG_CU_SPAN) + 1;
    const float *node = node_at(a, row, head, 0);
    size_t next = (size_t)(dim + 2);
    float max = -INFINITY, sum = 0.0f, acc = 0.0f;
    for (int s = tid; s < spans; s += (int)blockDim.x)
        max = fmaxf(max, node[(size_t)s * next]);
    max = warp_max(max);
    if (lane == 0)
        reduce[tid / 32] = max;
    __syncthreads();
    max = warp_max(lane < warps ? reduce[lane] : -INFINITY);
    for (int first = 0; first < spans; first += JOIN_CHUNK) {
        int n = min(JOIN_CHUNK, spans - first);
        __syncthreads();
        for (int s = tid; s < n; s += (int)blockDim.x)
            weight[s] = expf(node[(size_t)(first + s) * next] - max);
        __syncthreads();
#pragma unroll 4
        for (int s = g; s < n; s += JOIN_GROUPS) {
            const float *at = node + (size_t)(first + s) * next;
            sum = fmaf(weight[s], at[1], sum);
            acc = fmaf(weight[s], i < dim ? at[2 + i] : 0.0f, acc);
        }
    }
    room[g * dim_up + i] = acc;
    if (i == 0)
        reduce[g] = sum;
    __syncthreads();
    if (g > 0)
        return;
    for (int k = 1; k < JOIN_GROUPS; k++)
        acc += room[k * dim_up + i];
    float total = reduce[0];
    for (int k = 1; k < JOIN_GROUPS; k++)
        total += reduce[k];
    float v = acc / total;
    int col = head * dim + i;
    if (a.gate && i < dim)
        v *= softplus(a.gate[(size_t)row * (size_t)a.gate_stride + (size_t)(a.elem_gate ? col : head)]);
    if (i < dim)
        a.out[(size_t)row * (size_t)a.out_stride + (size_t)col] = v;
    if (a.quantise && i < dim) { // dim % 32 == 0, so warps are whole
        size_t cols = (size_t)a.n_head * (size_t)dim;
        store_run(a.acts.q + (size_t)row * cols, a.acts.meta + (size_t)row * (cols / 32), col / 32, i % 32,
                  v);
    }
}

/* ---- the op ---- */

static size_t row_floats(int64_t ctx, int n_head, int head_dim)
{
    return (size_t)n_head * (size_t)lg_cu_max_spans(ctx, 0) * (size_t)(head_dim + 2);
}

// Rows whose nodes are in scratch at a time: all that may be exact, unless the context is very long.
static const size_t node_room = (size_t)40 << 20; // floats

static int node_rows(size_t floats)
{
    size_t n = node_room / floats;

    return n < 1 ? 1 : n > LG_CU_EXACT_ROWS ? LG_CU_EXACT_ROWS : (int)n;
}

size_t lg_cu_attn_plain_floats(int64_t max_ctx, int max_head, int head_dim)
{
    size_t floats = row_floats(max_ctx, max_head, head_dim), all = floats * LG_CU_EXACT_ROWS;

    return all <= node_room ? all : floats > node_room ? floats : node_room;
}

void lg_cu_attn_plain(lg_cu *c, attn_args a, int rows)
{
    int step = node_rows(row_floats(c->ctx, c->max_head, a.kv.head_dim)),
        dim_up = (a.kv.head_dim + 31) / 32 * 32;

    for (a.row0 = 0; a.row0 < rows; a.row0 += step) {
        unsigned n = (unsigned)(rows - a.row0 < step ? rows - a.row0 : step);
        launch(c, attn_plain_kernel, dim3(n, (unsigned)a.n_head, (unsigned)a.max_spans), 32 * PLAIN_WARPS, 0,
               a, c->step);
        launch(c, attn_join_kernel, dim3((unsigned)a.n_head, n), JOIN_GROUPS * dim_up,
               JOIN_GROUPS * (size_t)dim_up * sizeof(float), a, c->step);
    }
}
