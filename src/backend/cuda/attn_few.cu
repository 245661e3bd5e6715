/*
 * backend/cuda/attn_few: attention of up to LG_CU_EXACT_ROWS rows.
 *
 * Keys are cut into spans of LG_CU_SPAN positions at multiples of it. A block takes one (KV head, span, row):
 * the query heads of the KV head are the rows of tensor core tiles, so K and V are read once, straight into
 * fragments; its node (max, sum, acc) goes to scratch, and a second launch joins the nodes of a query in a fixed order,
 * applies the gate and quantises the result. Nothing depends on how many rows a step has. f32 caches and head
 * sizes other than 128 take a plain kernel that gives each query head a warp.
 */
#include "backend/cuda/attention.cuh"

enum { Q_ROWS = 16 };

// A node: [row][head][span - first span of the row]: max, sum, then head_dim sums.
DEV float *node_at(const attn_args &a, int row, int head, int span)
{
    return a.part +
           (((size_t)(row - a.row0) * (size_t)a.n_head + (size_t)head) * (size_t)a.max_spans + (size_t)span) *
               (size_t)(a.kv.head_dim + 2);
}

/* ---- the plain kernel: any head size, any cache type ---- */

// A block a (query head, span, row); warps share the keys of the span, lanes the dimensions.
static __global__ void __launch_bounds__(32 * PLAIN_WARPS)
    attn_plain_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    __shared__ float score[LG_CU_SPAN], room[PLAIN_WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dim = a.kv.head_dim, head = blockIdx.y;
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
#pragma unroll
    for (int i = 0; i < PLAIN_DIM / 32; i++)
        q[i] = lane + 32 * i < dim
                   ? a.q[(size_t)row * (size_t)a.q_stride + (size_t)(head * dim + lane + 32 * i)]
                   : 0.0f;
    float max = -INFINITY;
    for (int j = from + warp; j < to; j += PLAIN_WARPS) {
        const uint8_t *k =
            kv_tile(a.kv, start + j, kv_head, false) + (size_t)(j % LG_KV_BLOCK) * a.kv.row_bytes;
        float s = 0.0f;
#pragma unroll
        for (int i = 0; i < PLAIN_DIM / 32; i++)
            if (lane + 32 * i < dim)
                s = fmaf(q[i], kv_value(a.kv, k, lane + 32 * i), s);
        s = warp_sum(s) * a.scale;
        if (lane == 0)
            score[j] = s;
        max = fmaxf(max, s);
    }
    if (lane == 0)
        room[warp] = max;
    __syncthreads();
    for (int i = 0; i < PLAIN_WARPS; i++)
        max = fmaxf(max, room[i]);
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

/* ---- tensor cores ---- */

enum {
    SPAN_WARPS = 8,
    WARP_KEYS = LG_CU_SPAN / SPAN_WARPS,
    KEY_TILES = WARP_KEYS / 8,
    ACC_STRIDE = HEAD + 4
};

// Scores of a warp's keys to probabilities, each row against its own largest; keys outside [from, to) get
// none.
DEV void span_softmax(float (&s)[KEY_TILES][4], int from, int to, int t, unsigned (&prob)[KEY_TILES][2],
                      float &max_a, float &max_b, float &sum_a, float &sum_b)
{
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int key = 8 * n + 2 * t + e;
            bool seen = key >= from && key < to;
            s[n][e] = seen ? s[n][e] : -INFINITY;
            s[n][2 + e] = seen ? s[n][2 + e] : -INFINITY;
            max_a = fmaxf(max_a, s[n][e]);
            max_b = fmaxf(max_b, s[n][2 + e]);
        }
    max_a = quad_max(max_a);
    max_b = quad_max(max_b);
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) {
        float x0 = __expf(s[n][0] - max_a), x1 = __expf(s[n][1] - max_a);
        float y0 = __expf(s[n][2] - max_b), y1 = __expf(s[n][3] - max_b);
        sum_a += x0 + x1;
        sum_b += y0 + y1;
        prob[n][0] = pack_f16(x0, x1);
        prob[n][1] = pack_f16(y0, y1);
    }
    sum_a = quad_sum(sum_a);
    sum_b = quad_sum(sum_b);
}

// A block a (KV head, span, row); warps share its keys; up to 16 query heads share them.
template <int TYPE>
static __global__ void __launch_bounds__(32 * SPAN_WARPS, 2)
    attn_span_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(16) float s_acc[]; // [warp][head][ACC_STRIDE]
    __shared__ float s_max[SPAN_WARPS][Q_ROWS], s_sum[SPAN_WARPS][Q_ROWS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int tiles = (a.group + Q_ROWS - 1) / Q_ROWS, kv_head = (int)blockIdx.y / tiles;
    int head0 = kv_head * a.group + (int)blockIdx.y % tiles * Q_ROWS, row = a.row0 + (int)blockIdx.x;
    int heads = min(Q_ROWS, (kv_head + 1) * a.group - head0);

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    long long p = step->pos + row, lo = first_visible(a.kv, p);
    long long span = (lo / LG_CU_SPAN + blockIdx.z) * LG_CU_SPAN, start = span + warp * WARP_KEYS;
    if (span > p)
        return;
    int from = (int)max(lo - start, 0ll), to = (int)min(p + 1 - start, (long long)WARP_KEYS);
    float max_a = -INFINITY, max_b = -INFINITY, sum_a = 0.0f, sum_b = 0.0f, acc[16][4];
    unsigned prob[KEY_TILES][2];

#pragma unroll
    for (int j = 0; j < 16; j++)
        acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.0f;
    if (from < to) {
        size_t in_tile = (size_t)(start % LG_KV_BLOCK) * a.kv.row_bytes;
        const uint8_t *k = kv_tile(a.kv, start, kv_head, false) + in_tile;
        const uint8_t *v = kv_tile(a.kv, start, kv_head, true) + in_tile;
        const float *q = a.q + (size_t)row * (size_t)a.q_stride + (size_t)head0 * HEAD;
        float s[KEY_TILES][4];
        unsigned qf[8][4];
        load_q(g < heads ? q + g * HEAD : NULL, g + 8 < heads ? q + (g + 8) * HEAD : NULL, lane, a.scale, qf);
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
            int key = 8 * n + g;
            uint4 kf[4] = {};
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
            if (key >= from && key < to)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    kf[c] = load_kv8<TYPE>(k + (size_t)key * a.kv.row_bytes, 32 * c + 8 * t);
            qk(s[n], qf, kf);
        }
        span_softmax(s, from, to, t, prob, max_a, max_b, sum_a, sum_b);
#pragma unroll
        for (int n = 0; n < KEY_TILES / 2; n++) {
            const unsigned pf[4] = {prob[2 * n][0], prob[2 * n][1], prob[2 * n + 1][0], prob[2 * n + 1][1]};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint4 vf[4] = {};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int key = 16 * n + 2 * t + i % 2 + i / 2 * 8;
                    if (key >= from && key < to)
                        vf[i] = load_kv8<TYPE>(v + (size_t)key * a.kv.row_bytes, 64 * h + 8 * g);
                }
                pv(*(float(*)[8][4])acc[8 * h], pf, vf);
            }
        }
    }
    if (t == 0) {
        s_max[warp][g] = max_a, s_max[warp][g + 8] = max_b;
        s_sum[warp][g] = sum_a, s_sum[warp][g + 8] = sum_b;
    }
    __syncthreads();
    float top_a = -INFINITY, top_b = -INFINITY;
    for (int w = 0; w < SPAN_WARPS; w++) {
        top_a = fmaxf(top_a, s_max[w][g]);
        top_b = fmaxf(top_b, s_max[w][g + 8]);
    }
    float scale_a = max_a == -INFINITY ? 0.0f : __expf(max_a - top_a);
    float scale_b = max_b == -INFINITY ? 0.0f : __expf(max_b - top_b);
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int d = 64 * (j / 8) + 8 * (2 * t + e) + j % 8;
            if (g < heads)
                s_acc[(warp * heads + g) * ACC_STRIDE + d] = acc[j][e] * scale_a;
            if (g + 8 < heads)
                s_acc[(warp * heads + g + 8) * ACC_STRIDE + d] = acc[j][2 + e] * scale_b;
        }
    __syncthreads();
    for (int h = warp; h < heads; h += SPAN_WARPS) {
        float *node = node_at(a, row, head0 + h, (int)blockIdx.z), max = -INFINITY, sum = 0.0f;
        for (int w = 0; w < SPAN_WARPS; w++)
            max = fmaxf(max, s_max[w][h]);
        for (int w = 0; w < SPAN_WARPS; w++)
            if (s_max[w][h] != -INFINITY)
                sum = fmaf(__expf(s_max[w][h] - max), s_sum[w][h], sum);
        if (lane == 0) {
            node[0] = max;
            node[1] = sum;
        }
        for (int i = lane; i < HEAD; i += 32) {
            float sum_i = 0.0f;
#pragma unroll
            for (int w = 0; w < SPAN_WARPS; w++) // in order, so that the sums are the same every time
                sum_i += s_acc[(w * heads + h) * ACC_STRIDE + i];
            node[2 + i] = sum_i;
        }
    }
}

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

size_t lg_cu_attn_floats(int64_t max_ctx, int max_head, int head_dim)
{
    int64_t bucket = 1;

    while (bucket < max_ctx)
        bucket *= 2;
    size_t floats = row_floats(bucket, max_head, head_dim);
    if (floats * LG_CU_EXACT_ROWS <= node_room)
        return floats * LG_CU_EXACT_ROWS;
    return floats > node_room ? floats : node_room;
}

// Nodes, then their join, for as many rows at a time as have room.
template <typename K>
static void run_nodes(lg_cu *c, attn_args a, K kernel, unsigned heads, int threads, size_t smem, int rows)
{
    int step = node_rows(row_floats(c->ctx, c->max_head, a.kv.head_dim)),
        dim_up = (a.kv.head_dim + 31) / 32 * 32;

    for (a.row0 = 0; a.row0 < rows; a.row0 += step) {
        unsigned n = (unsigned)(rows - a.row0 < step ? rows - a.row0 : step);
        launch(c, kernel, dim3(n, heads, (unsigned)a.max_spans), threads, smem, a, c->step);
        launch(c, attn_join_kernel, dim3((unsigned)a.n_head, n), JOIN_GROUPS * dim_up,
               JOIN_GROUPS * (size_t)dim_up * sizeof(float), a, c->step);
    }
}

template <int TYPE> static void run_spans(lg_cu *c, const attn_args &a, int rows)
{
    unsigned heads = (unsigned)(a.kv.n_kv_head * ceil_div(a.group, Q_ROWS));
    size_t smem = SPAN_WARPS * (size_t)(a.group < Q_ROWS ? a.group : Q_ROWS) * ACC_STRIDE * sizeof(float);
    cudaError_t e = cudaFuncSetAttribute(attn_span_kernel<TYPE>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         (int)smem);

    if (e != cudaSuccess && c->error == cudaSuccess)
        c->error = e;
    run_nodes(c, a, attn_span_kernel<TYPE>, heads, 32 * SPAN_WARPS, smem, rows);
}

void lg_cu_attn_few(lg_cu *c, const attn_args &a, bool tensor, int rows)
{
    if (tensor && a.kv.type == LG_F16)
        run_spans<LG_F16>(c, a, rows);
    else if (tensor)
        run_spans<LG_Q8_0>(c, a, rows);
    else
        run_nodes(c, a, attn_plain_kernel, (unsigned)a.n_head, 32 * PLAIN_WARPS, 0, rows);
}
