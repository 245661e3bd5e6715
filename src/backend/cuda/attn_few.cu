/*
 * backend/cuda/attn_few: attention of up to LG_CU_EXACT_ROWS rows.
 *
 * A row's keys are shared out among some blocks, in a way that follows from its position alone. A block takes
 * one (KV head, share, row): the query heads of the KV head are the rows of a tensor core tile, and K and V
 * are read once, by cp.async, each warp KEYS keys at a time into a ring of its own. For one row the kernel
 * also does what qkv.cu does, so that a layer's attention is one launch, which asks for all old keys while
 * the projections still run. Nothing depends on how many rows a step has.
 *
 * From sm_90 on the blocks of a (KV head, row) are a cluster: KEYS keys to each in turn; the blocks send
 * their sums (max, sum, acc) to each other's shared memory, and each joins, gates and quantises some runs
 * of 32. Before, shares are nodes, as many as there are multiprocessors for a KV head, that go to scratch;
 * the last block of a KV head joins them.
 *
 * f32 caches and head sizes other than 128 take a plain kernel over spans of LG_CU_SPAN positions that gives
 * each query head a warp, and a launch that joins its nodes.
 */
#include "backend/cuda/attention.cuh"
#include "backend/cuda/stream.cuh"

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

/* What only a measurement decides; all values compile. */
#ifndef LG_ATTN_CLUSTER
#define LG_ATTN_CLUSTER 16 // 16, 8; 0: nodes in scratch, as before sm_90
#endif
#ifndef LG_ATTN_EARLY
#define LG_ATTN_EARLY 1 // 0: the launch behind attention does not come early
#endif

enum {
    FEW_WARPS = 8,
    KEYS = 16,                     // that a warp takes at a time
    NODE_KEYS = KEYS * FEW_WARPS,  // a node is a multiple of this
    NODES = 32,                    // of a row, but for a rest
    STAGES = 3,                    // of a warp's ring; 2 where shared memory is scarce
    CLUSTER = LG_ATTN_CLUSTER,     // blocks of a (KV head, row)
    SENT = 36,                     // floats that a block sends of a run: sums, max, sum, two of nothing
    STAGE = KEYS * 2 * HEAD,       // bytes of K or of V of so many keys
    NODE_FLOATS = HEAD + 4,        // max, sum, two of nothing, acc
    Q_FRAGMENTS = 8 * 32 * 16,     // bytes
    HEADS_ROOM = Q_ROWS + 2,       // heads in shared memory: the queries, K, V
};

static constexpr int few_smem(int stages)
{
    return FEW_WARPS * stages * STAGE + Q_FRAGMENTS + HEADS_ROOM * HEAD * 4;
}

// Runs of 32 results that a block of a cluster joins, at most.
static __host__ __device__ constexpr int joined_runs(int heads)
{
    return CLUSTER ? (heads * (HEAD / 32) + CLUSTER - 1) / (CLUSTER ? CLUSTER : 1) : 0;
}

static constexpr int cluster_smem(int heads) // rings, queries, heads with K and V, what others send
{
    return FEW_WARPS * STAGES * STAGE + Q_FRAGMENTS + (heads + 2) * HEAD * 4 +
           joined_runs(heads) * CLUSTER * SENT * 4;
}

struct few_args {
    attn_args a;
    // the projections' K and V of the one row, to be normed, turned and stored; k NULL: that is done
    const float *k, *v, *q_norm, *k_norm, *table;
    float eps;
    int half, nodes; // pairs that turn; how many nodes a long row is cut into
    int *arrived;    // [row][block of heads]
};

// What a row's position says: [base, p] in nodes of `keys`.
struct node_plan {
    long long p, lo, base;
    int keys, count;
};

DEV node_plan plan_of(const few_args &f, long long p)
{
    node_plan n;
    unsigned seen; // 32 bits are enough for what a row sees

    n.p = p;
    n.lo = first_visible(f.a.kv, p);
    n.base = n.lo / KEYS * KEYS;
    seen = (unsigned)(p + 1 - n.lo);
    n.keys =
        (int)(((seen + (unsigned)f.nodes - 1) / (unsigned)f.nodes + NODE_KEYS - 1) / NODE_KEYS * NODE_KEYS);
    n.count = (int)((unsigned)(p - n.base) / (unsigned)n.keys) + 1;
    return n;
}

// A row of a stage is a key; 16-byte pieces are permuted so that no load meets a bank twice.
DEV int k_piece(int key, int piece)
{
    return key * 256 + ((piece ^ (key & 1) << 2) << 4);
}

DEV int v_piece(int key, int piece)
{
    return key * 256 + ((piece ^ (key & 6)) << 4);
}

// All lanes: the KEYS keys at position s, K or V, to a stage; zeros for those not in [lo, last].
template <int TYPE>
DEV void fetch_keys(const few_args &f, long long lo, long long last, unsigned to, const uint8_t *tile,
                    long long s, bool v, int lane)
{
    const uint8_t *from = tile + (unsigned)(s % LG_KV_BLOCK) * (unsigned)f.a.kv.row_bytes;
    // keys [first, n) of these
    int first = (int)max(lo - s, 0ll), n = (int)min(last + 1 - s, (long long)KEYS);

    if (TYPE == LG_F16) {
        int key = lane / 16, piece = lane % 16;
        from += lane * 16;
        if (first == 0 && n == KEYS) {
#pragma unroll
            for (int j = 0; j < KEYS / 2; j++)
                copy16(to + (v ? v_piece(key + 2 * j, piece) : k_piece(key + 2 * j, piece)), from + j * 512);
            return;
        }
#pragma unroll
        for (int j = 0; j < KEYS / 2; j++)
            copy16_if(to + (v ? v_piece(key + 2 * j, piece) : k_piece(key + 2 * j, piece)), from + j * 512,
                      key + 2 * j >= first && key + 2 * j < n);
        return;
    }
    int pieces = (n * (HEAD / 32 * 34) + 15) / 16;
    for (int i = lane; i < pieces; i += 32)
        copy16(to + i * 16, from + i * 16);
}

// All lanes: the row x of K or V to key `key` of a stage that has come.
template <int TYPE>
DEV void stage_row(const few_args &f, uint8_t *stage, int key, bool v, const float *x, int lane)
{
    if (TYPE == LG_F16) {
        uint8_t *to = stage + (v ? v_piece(key, lane / 2) : k_piece(key, lane / 2)) + lane % 2 * 8;
        float4 y = *(const float4 *)(x + 4 * lane);
        *(uint2 *)to =
            make_uint2(pack_f16(f16_range(y.x), f16_range(y.y)), pack_f16(f16_range(y.z), f16_range(y.w)));
    } else {
        kv_row(f.a.kv.type, HEAD, stage + key * (HEAD / 32 * 34), x, lane);
    }
    __syncwarp();
}

// 8 dimensions from 8 * piece on, of key `key` of a stage.
template <int TYPE> DEV uint4 stage_at(const uint8_t *stage, int key, int piece, bool v, bool seen)
{
    if (TYPE == LG_F16)
        return *(const uint4 *)(stage + (v ? v_piece(key, piece) : k_piece(key, piece)));
    return seen ? load_kv8<TYPE>(stage + key * (HEAD / 32 * 34), piece * 8) : make_uint4(0, 0, 0, 0);
}

// The query fragment of step `s` for a lane: as load_q's.
DEV uint4 q_fragment(const float *row_a, const float *row_b, int s, int t, float scale)
{
    int d = 32 * (s / 2) + 8 * t + 4 * (s % 2);
    float4 a = row_a ? *(const float4 *)(row_a + d) : make_float4(0, 0, 0, 0);
    float4 b = row_b ? *(const float4 *)(row_b + d) : make_float4(0, 0, 0, 0);

    return make_uint4(pack_f16(f16_range(a.x * scale), f16_range(a.y * scale)),
                      pack_f16(f16_range(b.x * scale), f16_range(b.y * scale)),
                      pack_f16(f16_range(a.z * scale), f16_range(a.w * scale)),
                      pack_f16(f16_range(b.z * scale), f16_range(b.w * scale)));
}

// Running maximum, sum and values of a warp, for rows g and g + 8 of its tile.
struct few_state {
    float max_a, max_b, sum_a, sum_b, acc[16][4];
};

// Scores of KEYS keys at position s into the state; their probabilities.
DEV void few_softmax(few_state &st, float (&x)[2][4], const node_plan &n, long long s, int t,
                     unsigned (&prob)[4])
{
    float top_a = st.max_a, top_b = st.max_b;

    if (s < n.lo || s + KEYS > n.p + 1)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            long long key = s + 8 * (i / 2) + 2 * t + i % 2;
            bool seen = key >= n.lo && key <= n.p;
            x[i / 2][i % 2] = seen ? x[i / 2][i % 2] : -INFINITY;
            x[i / 2][2 + i % 2] = seen ? x[i / 2][2 + i % 2] : -INFINITY;
        }
    top_a = fmaxf(top_a, quad_max(fmaxf(fmaxf(x[0][0], x[0][1]), fmaxf(x[1][0], x[1][1]))));
    top_b = fmaxf(top_b, quad_max(fmaxf(fmaxf(x[0][2], x[0][3]), fmaxf(x[1][2], x[1][3]))));
    float base_a = top_a == -INFINITY ? 0.0f : top_a, base_b = top_b == -INFINITY ? 0.0f : top_b;
    float old_a = __expf(st.max_a - base_a), old_b = __expf(st.max_b - base_b);
    st.max_a = top_a;
    st.max_b = top_b;
    st.sum_a *= old_a;
    st.sum_b *= old_b;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        st.acc[j][0] *= old_a, st.acc[j][1] *= old_a;
        st.acc[j][2] *= old_b, st.acc[j][3] *= old_b;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float x0 = __expf(x[h][0] - base_a), x1 = __expf(x[h][1] - base_a);
        float y0 = __expf(x[h][2] - base_b), y1 = __expf(x[h][3] - base_b);
        st.sum_a += x0 + x1;
        st.sum_b += y0 + y1;
        prob[2 * h] = pack_f16(x0, x1);
        prob[2 * h + 1] = pack_f16(y0, y1);
    }
}

DEV float *few_node(const few_args &f, int row, int head, int node, int nodes)
{
    return f.a.part + (((size_t)row * (size_t)f.a.n_head + (size_t)head) * (size_t)nodes + (size_t)node) *
                          NODE_FLOATS;
}

/* ---- a cluster ---- */

DEV void cluster_arrive(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

DEV void cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The shared address `at` in block `rank` of the cluster.
[[maybe_unused]] DEV unsigned shared_of(unsigned at, unsigned rank)
{
    unsigned r = at;
#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
#endif
    return r;
}

[[maybe_unused]] DEV void send4(unsigned to, float4 v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z),
                 "f"(v.w)
                 : "memory");
#endif
}

// All lanes: four sums a lane of head h to the blocks that join them: run r of 32 to block r % CLUSTER.
template <int N> DEV void send_head(unsigned sent, int h, int me, float max, float sum, float4 acc, int lane)
{
    int run = h * (HEAD / 32) + lane / 8;
    unsigned to = shared_of(sent + (unsigned)((run / N * N + me) * SENT * 4), (unsigned)(run % N));

    send4(to + (unsigned)(lane % 8) * 16, acc);
    if (lane % 8 == 0)
        send4(to + 128, make_float4(max, sum, 0.0f, 0.0f));
}

// The gate of the lane's result of run `run` of the block's heads.
DEV float gate_of(const attn_args &a, int row, int head0, int run, int lane)
{
    const float *gate = a.gate + (size_t)row * (size_t)a.gate_stride;
    int head = head0 + run / (HEAD / 32);

    return __ldcg(gate + (a.elem_gate ? head0 * HEAD + run * 32 + lane : head));
}

// A warp: the sums of a run from N blocks, in the order of the blocks; the result, gated and quantised.
template <int N>
DEV void join_run(const attn_args &a, const float *sent, int row, int head0, int run, float gate, int lane)
{
    const float *from = sent + run / N * N * SENT;
    float2 top = lane < N ? *(const float2 *)(from + lane * SENT + 32) : make_float2(-INFINITY, 0.0f);
    float max = warp_max(top.x), weight = __expf(top.x - max), v = 0.0f;
    float sum = warp_sum(weight * top.y);

#pragma unroll
    for (int i = 0; i < N; i++)
        v = fmaf(__shfl_sync(0xFFFFFFFFu, weight, i), from[i * SENT + lane], v);
    v /= sum;
    if (a.gate)
        v *= softplus(gate);
    int at = head0 * (HEAD / 32) + run;
    size_t cols = (size_t)a.n_head * HEAD;
    a.out[(size_t)row * (size_t)a.out_stride + (size_t)(at * 32 + lane)] = v;
    if (a.quantise)
        store_run(a.acts.q + (size_t)row * cols, a.acts.meta + (size_t)row * (cols / 32), at, lane, v);
}

// The block: the states of its first `warps` warps become a node of each head, which goes to scratch or, with
// N blocks in a cluster, to those that join it. room: the rings.
template <int N>
DEV void few_merge(const few_args &f, few_state &st, float *room, int row, int head0, int heads, int warps,
                   unsigned sent, int warp, int lane)
{
    __shared__ float s_max[FEW_WARPS][Q_ROWS], s_sum[FEW_WARPS][Q_ROWS];
    int g = lane / 4, t = lane % 4;
    float top_a = -INFINITY, top_b = -INFINITY;

    st.sum_a = quad_sum(st.sum_a);
    st.sum_b = quad_sum(st.sum_b);
    if (t == 0) {
        s_max[warp][g] = st.max_a, s_max[warp][g + 8] = st.max_b;
        s_sum[warp][g] = st.sum_a, s_sum[warp][g + 8] = st.sum_b;
    }
    __syncthreads(); // and nobody reads the rings any more
    for (int w = 0; w < warps; w++) {
        top_a = fmaxf(top_a, s_max[w][g]);
        top_b = fmaxf(top_b, s_max[w][g + 8]);
    }
    float scale_a = st.max_a == -INFINITY ? 0.0f : __expf(st.max_a - top_a);
    float scale_b = st.max_b == -INFINITY ? 0.0f : __expf(st.max_b - top_b);
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int e = 0; e < 2 && warp < warps; e++) {
            int d = 64 * (j / 8) + 8 * (2 * t + e) + j % 8;
            if (g < heads)
                room[(warp * heads + g) * NODE_FLOATS + d] = st.acc[j][e] * scale_a;
            if (g + 8 < heads)
                room[(warp * heads + g + 8) * NODE_FLOATS + d] = st.acc[j][2 + e] * scale_b;
        }
    __syncthreads();
    if (N > 0)
        cluster_wait(); // the others have begun
    for (int h = warp; h < heads; h += FEW_WARPS) {
        float max = -INFINITY, sum = 0.0f;
        float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int w = 0; w < warps; w++)
            max = fmaxf(max, s_max[w][h]);
        for (int w = 0; w < warps; w++) { // in order, so that the sums are the same every time
            if (s_max[w][h] != -INFINITY)
                sum = fmaf(__expf(s_max[w][h] - max), s_sum[w][h], sum);
            acc = add4(acc, *(const float4 *)&room[(w * heads + h) * NODE_FLOATS + 4 * lane]);
        }
        if constexpr (N > 0) {
            send_head<N>(sent, h, (int)blockIdx.x, max, sum, acc, lane);
            continue;
        }
        float *node = few_node(f, row, head0 + h, (int)blockIdx.x, (int)gridDim.x);
        if (lane == 0)
            *(float2 *)node = make_float2(max, sum);
        *(float4 *)(node + 4 + 4 * lane) = acc;
    }
}

// The last block of a row's heads: half a warp joins the nodes of a head, gates the result and quantises it.
DEV void few_join(const few_args &f, int row, int head0, int heads, int count, int lane)
{
    const attn_args &a = f.a;
    int h = (int)threadIdx.x / 16, l = lane % 16, head = head0 + min(h, heads - 1), nodes = (int)gridDim.x;
    const float *node = few_node(f, row, head, 0, nodes);
    float max = -INFINITY, sum = 0.0f, weight[(NODES + 16) / 16];
    float4 v[2] = {make_float4(0.0f, 0.0f, 0.0f, 0.0f), make_float4(0.0f, 0.0f, 0.0f, 0.0f)};

#pragma unroll
    for (int j = 0; j < (NODES + 16) / 16; j++) {
        int i = l + 16 * j;
        float2 m =
            i < count ? __ldcg((const float2 *)(node + i * NODE_FLOATS)) : make_float2(-INFINITY, 0.0f);
        weight[j] = m.x;
        max = fmaxf(max, m.x);
    }
    for (int o = 8; o > 0; o >>= 1)
        max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFu, max, o));
#pragma unroll
    for (int j = 0; j < (NODES + 16) / 16; j++) {
        int i = l + 16 * j;
        weight[j] = __expf(weight[j] - max);
        if (i < count)
            sum = fmaf(weight[j], __ldcg(node + i * NODE_FLOATS + 1), sum);
    }
    for (int o = 8; o > 0; o >>= 1)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, o);
#pragma unroll
    for (int j = 0; j < (NODES + 16) / 16; j++)
#pragma unroll 4
        for (int i = 16 * j; i < min(count, 16 * j + 16); i++) {
            float w = __shfl_sync(0xFFFFFFFFu, weight[j], (lane & 16) + i % 16);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float4 x = __ldcg((const float4 *)(node + i * NODE_FLOATS + 4 + 64 * e + 4 * l));
                v[e] = make_float4(fmaf(w, x.x, v[e].x), fmaf(w, x.y, v[e].y), fmaf(w, x.z, v[e].z),
                                   fmaf(w, x.w, v[e].w));
            }
        }
    const float *gate = a.gate ? a.gate + (size_t)row * (size_t)a.gate_stride : NULL;
    float head_gate = gate && !a.elem_gate ? softplus(__ldcg(gate + head)) : 1.0f;
    size_t cols = (size_t)a.n_head * HEAD;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int col = head * HEAD + 64 * e + 4 * l;
        float y[4] = {v[e].x / sum, v[e].y / sum, v[e].z / sum, v[e].w / sum};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            y[i] *= gate && a.elem_gate ? softplus(__ldcg(gate + col + i)) : head_gate;
            if (h < heads)
                a.out[(size_t)row * (size_t)a.out_stride + (size_t)(col + i)] = y[i];
        }
        if (!a.quantise)
            continue;
        quad q = quantise4(make_float4(y[0], y[1], y[2], y[3]));
        if (h < heads)
            store_quad(a.acts.q + (size_t)row * cols, a.acts.meta + (size_t)row * (cols / 32), col / 32, lane,
                       q);
    }
}

enum { HEADS_HELD = (HEADS_ROOM + FEW_WARPS - 1) / FEW_WARPS }; // of a warp

// Queries to fragments. With f.k also what qkv.cu does: the queries normed and turned, so also the row's own
// K and V, which come to the rooms behind them and are stored, by the block that has its position. rooms:
// heads + 2. All loads come before the first use. Ends with a barrier.
DEV void few_queries(const few_args &f, const node_plan &n, int row, int kv_head, int head0, int heads,
                     bool own, float *rooms, uint4 *fragments, int warp, int lane)
{
    const float *q = f.a.q + (size_t)row * (size_t)f.a.q_stride + (size_t)head0 * HEAD;
    int g = lane / 4;

    if (f.k) {
        head_values x[HEADS_HELD];
        head_turn turn = turn_of(f.table, f.half, lane);
#pragma unroll
        for (int i = 0; i < HEADS_HELD; i++) {
            int h = warp + i * FEW_WARPS;
            if (h < heads + (own ? 2 : 0))
                x[i] = values_of(h < heads    ? q + h * HEAD
                                 : h == heads ? f.k + kv_head * HEAD
                                              : f.v + kv_head * HEAD,
                                 h < heads ? f.q_norm : h == heads ? f.k_norm : NULL, lane);
        }
#pragma unroll
        for (int i = 0; i < HEADS_HELD; i++) {
            int h = warp + i * FEW_WARPS;
            if (h >= heads + (own ? 2 : 0))
                break;
            values_post(rooms + h * HEAD, x[i], h <= heads && (h < heads ? f.q_norm : f.k_norm), f.eps, turn,
                        h <= heads ? f.half : 0, lane);
            if (h >= heads)
                store_kv(f.a.kv, h > heads, kv_head, n.p, rooms + h * HEAD, lane);
        }
        q = rooms;
        __syncthreads();
    }
    for (int s = warp; s < 8; s += FEW_WARPS)
        fragments[s * 32 + lane] =
            q_fragment(g < heads ? q + g * HEAD : NULL, g + 8 < heads ? q + (g + 8) * HEAD : NULL, s,
                       lane % 4, f.a.scale);
    __syncthreads();
}

// Scores of the queries and the KEYS keys at position s.
template <int TYPE>
DEV void few_scores(float (&x)[2][4], const uint8_t *stage, const uint4 *fragments, long long s, long long p,
                    int lane)
{
    int g = lane / 4, t = lane % 4;

#pragma unroll
    for (int c = 0; c < 4; c++) {
        uint4 q0 = fragments[2 * c * 32 + lane], q1 = fragments[(2 * c + 1) * 32 + lane];
        const unsigned f0[4] = {q0.x, q0.y, q0.z, q0.w}, f1[4] = {q1.x, q1.y, q1.z, q1.w};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 k = stage_at<TYPE>(stage, 8 * i + g, 4 * c + t, false, s + 8 * i + g <= p);
            mma_f16(x[i], f0, k.x, k.y);
            mma_f16(x[i], f1, k.z, k.w);
        }
    }
}

// What their values add.
template <int TYPE>
DEV void few_values(few_state &st, const unsigned (&prob)[4], const uint8_t *stage, const node_plan &n,
                    long long s, int lane)
{
    int g = lane / 4, t = lane % 4;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint4 vf[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = 2 * t + i % 2 + i / 2 * 8;
            vf[i] = stage_at<TYPE>(stage, key, 8 * h + g, true, s + key >= n.lo && s + key <= n.p);
        }
        pv(*(float(*)[8][4])st.acc[8 * h], prob, vf);
    }
}

// A block a (share, KV head, row); its warps take KEYS keys in turn, up to 16 query heads share them. N:
// blocks of a cluster; 0: shares are nodes.
template <int TYPE, int DEPTH, int N>
static __global__ void __launch_bounds__(32 * FEW_WARPS, 2)
    attn_few_kernel(__grid_constant__ const few_args f, const lg_cu_step *step)
{
    enum { RING = DEPTH * STAGE, STRIDE = N ? N * NODE_KEYS : (int)NODE_KEYS };
    // rings, fragments of the queries, heads, what others send
    extern __shared__ __align__(16) uint8_t smem[];
    __shared__ bool last;
    const attn_args &a = f.a;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.z, me = blockIdx.x;
    int tiles = (a.group + Q_ROWS - 1) / Q_ROWS, kv_head = (int)blockIdx.y / tiles;
    int head0 = kv_head * a.group + (int)blockIdx.y % tiles * Q_ROWS;
    int heads = min((int)Q_ROWS, (kv_head + 1) * a.group - head0);
    long long pos = step->pos;
    node_plan n = plan_of(f, pos + row);
    // the block's first key, and the end of its share
    long long start = n.base + (long long)me * (N ? (int)KEYS : n.keys);
    long long end = N ? n.p + 1 : min(start + n.keys, n.p + 1);
    bool here = row < step_rows(step, a.rows) && (N || me < n.count);
    // the warp's first key; the next are STRIDE further
    long long mine = start + warp * (N ? N * KEYS : (int)KEYS);
    int chunks = here && mine < end ? (int)((end - mine + STRIDE - 1) / STRIDE) : 0;
    // has the row's position
    bool own = N ? (int)((n.p - n.base) / KEYS) % (N ? N : 1) == me : me == n.count - 1;
    long long known = f.k ? pos - 1 : n.p; // the last key that is in memory
    uint8_t *ring = smem + warp * RING;
    uint4 *fragments = (uint4 *)(smem + FEW_WARPS * RING);
    float *rooms = (float *)(smem + FEW_WARPS * RING + Q_FRAGMENTS), *sent = rooms + (heads + 2) * HEAD;
    int block = chunks > 0 ? a.kv.table[mine / LG_KV_BLOCK] : 0;
    long long ask = mine; // the next to be asked for
    bool ask_v = false;
    int left = 2 * chunks, next = DEPTH - 1, at = 0;
    few_state st;

    auto get = [&](int stage) { // K, then V, of the next keys
        const uint8_t *tile = a.kv.mem + (size_t)block * a.kv.block_bytes + (ask_v ? a.kv.at_v : a.kv.at_k) +
                              (size_t)kv_head * a.kv.tile_bytes;
        fetch_keys<TYPE>(f, n.lo, known, shared_at(ring + stage * STAGE), tile, ask, ask_v, lane);
        if (ask_v) {
            ask += STRIDE;
            if (ask < end)
                block = a.kv.table[ask / LG_KV_BLOCK];
        }
        ask_v = !ask_v;
        left--;
    };
    auto begin = [&] {
        for (int i = 0; i < DEPTH - 1; i++) {
            if (left > 0)
                get(i);
            copies_commit();
        }
    };
    auto turn = [&] { // the next stage is there; another one is asked for
        copies_wait<DEPTH - 2>();
        __syncwarp();
        if (left > 0)
            get(next);
        copies_commit();
        next = next == DEPTH - 1 ? 0 : next + 1;
        uint8_t *stage = ring + at * STAGE;
        at = at == DEPTH - 1 ? 0 : at + 1;
        return stage;
    };
    if (f.k && warp == FEW_WARPS - 1 && lane < 8 && f.q_norm)
        prefetch_l2((lane < 4 ? f.q_norm : f.k_norm) + lane % 4 * 32);
    bool early = f.k || mine + KEYS <= pos; // older than this step, but for the row's own
    if (early)
        begin();
    pdl_wait();
    if (!here)
        return;
    if (N)
        cluster_arrive();
    if (!early)
        begin();
    // of the block's results: what the warp will join; there are at most N * FEW_WARPS
    int run = me + warp * N;
    bool joins = N && run < heads * (HEAD / 32);
    float gate = joins && a.gate ? gate_of(a, row, head0, run, lane) : 0.0f;
    few_queries(f, n, row, kv_head, head0, heads, own, rooms, fragments, warp, lane);
    st.max_a = st.max_b = -INFINITY;
    st.sum_a = st.sum_b = 0.0f;
#pragma unroll
    for (int j = 0; j < 16; j++)
        st.acc[j][0] = st.acc[j][1] = st.acc[j][2] = st.acc[j][3] = 0.0f;
    for (long long s = mine; s < end; s += STRIDE) {
        bool patch = f.k && s <= n.p && n.p < s + KEYS; // the row's own are in the rooms
        float x[2][4] = {};
        unsigned prob[4];
        uint8_t *stage = turn();
        if (patch)
            stage_row<TYPE>(f, stage, (int)(n.p - s), false, rooms + heads * HEAD, lane);
        few_scores<TYPE>(x, stage, fragments, s, n.p, lane);
        few_softmax(st, x, n, s, lane % 4, prob);
        stage = turn();
        if (patch)
            stage_row<TYPE>(f, stage, (int)(n.p - s), true, rooms + (heads + 1) * HEAD, lane);
        few_values<TYPE>(st, prob, stage, n, s, lane);
    }
    copies_wait<0>();
    int warps = (int)min((end - start + (N ? N * KEYS : (int)KEYS) - 1) / (N ? N * KEYS : (int)KEYS),
                         (long long)FEW_WARPS); // that have keys
    few_merge<N>(f, st, (float *)smem, row, head0, heads, max(warps, 0), shared_at(sent), warp, lane);
    if constexpr (N > 0) {
        cluster_arrive(); // what was sent has come
        cluster_wait();
        if (joins)
            join_run<N>(a, sent, row, head0, run, gate, lane);
        return;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int *arrived = &f.arrived[row * (int)gridDim.y + (int)blockIdx.y];
        last = arrive(arrived) == n.count - 1;
        if (last)
            *arrived = 0;
    }
    __syncthreads();
    if (last)
        few_join(f, row, head0, heads, n.count, lane);
}

static int node_target(const lg_cu *c, const attn_args &a)
{
    int n = c->sms / (a.kv.n_kv_head * ceil_div(a.group, Q_ROWS));

    return n < 1 ? 1 : n > NODES ? NODES : n;
}

// Nodes of a row that sees up to `seen` keys.
static int most_nodes(int64_t seen, int target)
{
    int64_t n = (seen + KEYS - 1 + NODE_KEYS - 1) / NODE_KEYS;

    return n > target + 1 ? target + 1 : (int)n;
}

// A cluster a (KV head, row); false: this card has none of that size, nothing was done.
template <int TYPE> static bool run_cluster(lg_cu *c, const few_args &f, unsigned groups, int rows)
{
    if constexpr (CLUSTER > 0) {
        auto kernel = attn_few_kernel<TYPE, STAGES, CLUSTER>;
        size_t smem = (size_t)cluster_smem(f.a.group < Q_ROWS ? f.a.group : (int)Q_ROWS);
        cudaLaunchConfig_t config = {};
        cudaLaunchAttribute attr[2];
        int active = 0;

        if (c->arch < 90 || smem > (size_t)c->smem)
            return false;
        share_sm(c, kernel, smem);
        if (CLUSTER > 8)
            (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        attr[0].id = cudaLaunchAttributeClusterDimension;
        attr[0].val.clusterDim.x = CLUSTER;
        attr[0].val.clusterDim.y = attr[0].val.clusterDim.z = 1;
        attr[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[1].val.programmaticStreamSerializationAllowed = 1;
        config.gridDim = dim3(CLUSTER, groups, (unsigned)rows);
        config.blockDim = dim3(32 * FEW_WARPS);
        config.dynamicSmemBytes = smem;
        config.stream = c->stream;
        config.attrs = attr;
        config.numAttrs = 1;
        if (cudaOccupancyMaxActiveClusters(&active, kernel, &config) != cudaSuccess || active < 1) {
            (void)cudaGetLastError(); // that was a question
            return false;
        }
        config.numAttrs = c->pdl && !c->uneven ? 2 : 1;
        cudaError_t e = cudaLaunchKernelEx(&config, kernel, f, c->step);
        if (e != cudaSuccess && c->error == cudaSuccess)
            c->error = e;
        c->uneven = !LG_ATTN_EARLY || CLUSTER * (int)groups * rows < c->sms * 15 / 16;
        return true;
    }
    return false;
}

template <int TYPE> static void run_few(lg_cu *c, const attn_args &a, const lg_cu_qkv *qkv, int rows)
{
    few_args f = {};
    int64_t seen = a.kv.window > 0 && a.kv.window < c->ctx ? a.kv.window : c->ctx;

    f.a = a;
    f.nodes = node_target(c, a);
    f.arrived = c->arrived;
    if (qkv) {
        f.k = qkv->k.p;
        f.v = qkv->v.p;
        f.q_norm = qkv->q_norm;
        f.k_norm = qkv->k_norm;
        f.table = qkv->table;
        f.eps = qkv->eps;
        f.half = qkv->table ? qkv->n_rot / 2 : 0;
    }
    unsigned groups = (unsigned)(a.kv.n_kv_head * ceil_div(a.group, Q_ROWS));
    if (run_cluster<TYPE>(c, f, groups, rows))
        return;
    bool roomy = c->smem >= few_smem(STAGES);
    auto kernel = roomy ? attn_few_kernel<TYPE, STAGES, 0> : attn_few_kernel<TYPE, 2, 0>;
    size_t smem = (size_t)few_smem(roomy ? STAGES : 2);
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)most_nodes(seen, f.nodes), groups, (unsigned)rows), 32 * FEW_WARPS, smem,
           f, c->step);
    c->uneven = true;
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

size_t lg_cu_attn_floats(int64_t max_ctx, int max_head, int head_dim)
{
    int64_t bucket = 1;

    while (bucket < max_ctx)
        bucket *= 2;
    size_t floats = row_floats(bucket, max_head, head_dim), plain = floats * LG_CU_EXACT_ROWS;
    size_t few =
        (size_t)LG_CU_EXACT_ROWS * (size_t)max_head * (size_t)most_nodes(bucket, NODES) * NODE_FLOATS;
    if (plain > node_room)
        plain = floats > node_room ? floats : node_room;
    return plain > few ? plain : few;
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

bool lg_cu_attn_takes_qkv(const lg_cu *c, const lg_cu_qkv *q)
{
    return c->rows == 1 && q->q.p && q->q.stride % 4 == 0 && q->kv->head_dim == HEAD &&
           q->kv->type != LG_F32 && q->n_head / q->kv->n_kv_head <= Q_ROWS && ((uintptr_t)q->q.p & 15) == 0;
}

void lg_cu_attn_few(lg_cu *c, const attn_args &a, const lg_cu_qkv *qkv, bool tensor, int rows)
{
    if (tensor && a.kv.type == LG_F16)
        run_few<LG_F16>(c, a, qkv, rows);
    else if (tensor)
        run_few<LG_Q8_0>(c, a, qkv, rows);
    else
        run_nodes(c, a, attn_plain_kernel, (unsigned)a.n_head, 32 * PLAIN_WARPS, 0, rows);
}
