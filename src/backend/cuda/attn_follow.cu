/*
 * backend/cuda/attn_follow: attention of a follow-up of up to MOST_ROWS rows, on sm_90a, with what qkv.cu
 * does in front of it: one launch instead of three.
 *
 * A cluster takes some rows of a KV head (up to 64 queries), its blocks the keys in equal shares. Old keys
 * are asked for before the wait. Behind it half warps norm and turn the queries and those rows of the step's
 * own K and V that lie in the block's share; both go to shared memory as f16 and, from the cluster whose rows
 * they are, to the cache. Each warpgroup multiplies all queries with every third 64 keys of the share. What
 * the three have summed up is joined, and sent to the block of the cluster that joins those of all blocks,
 * gates and quantises: shared memory of another block takes 14 bytes a cycle, so only one sum in place of
 * three goes there.
 *
 * Surprise: a warp here issues an instruction every six cycles or so, and most phases are a few hundred of
 * them; so work is spread over all warps in every phase, and what a warp does for several heads or queries is
 * without branches between them. Keys go from the last to the first, so that the own ones, which nobody
 * copies, have their place in the ring from the start.
 */
#include "backend/cuda/attn_cluster.cuh"
#include "backend/cuda/attn_wgmma.cuh"

enum {
    MOST_ROWS = 32,
    GROUPS = 3,
    QUERIES = 64,
    WARPS = 4 * GROUPS,
    THREADS = 32 * WARPS,
    HALVES = THREADS / 16,
    TURNS = 2,                   // 64 keys of each warpgroup in the ring
    STAGES = TURNS * GROUPS,
    RING = STAGES * STAGE_BYTES,
    FIRST = 2,                   // heads of half a warp, of queries: so many, and then one more
    OWN = 3,                     // ... of own rows
    NODE = HEAD + 8,             // floats from a query's sums (acc, max, sum) to the next: no bank twice
    JOINED = 2,                  // queries that a warp joins at a time
    SHORT = 8192,                // a longer context has better use of larger tiles: attn_wgmma.cu
    MOST_SPLITS = 8,
    ANGLES = RING + 2 * PANEL    // where they are in shared memory: behind the queries
};

static_assert(QUERIES <= HALVES * (FIRST + 1) && 2 * MOST_ROWS <= HALVES * OWN, "all heads at once");
static_assert(GROUPS * QUERIES * NODE * 4 <= RING && GROUPS + MOST_SPLITS <= 32,
              "sums take the place of keys");

struct follow_args {
    attn_args a;
    const float *k, *v, *q_norm, *k_norm, *table;
    int k_stride, v_stride, tile_rows;
    float eps;
    unsigned by_group; // 2^16 / group, rounded up: for queries below 2^7
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The row of a tile's query.
DEV int row_of(const follow_args &f, int query)
{
    return (int)((unsigned)query * f.by_group >> 16);
}

// Of a block: the rows of its cluster, from row0 on, and its share of the keys, 64 each.
struct share {
    int row0, rows, queries, pos; // pos: of the step
    int from, blocks, old;        // blocks of keys; old: keys before pos, of which none is to be made
    int own, n_own;               // the step's rows whose keys are in the share: from own on
};

DEV share share_of(const follow_args &f, int all_rows, int pos, int tile, int split, int splits)
{
    share s;

    s.pos = pos;
    s.row0 = tile * f.tile_rows;
    s.rows = max(min(f.tile_rows, all_rows - s.row0), 0);
    s.queries = s.rows * f.a.group;
    int end = pos + s.row0 + s.rows, lo = (int)first_visible(f.a.kv, pos + s.row0) / LG_KV_BLOCK;
    int all = s.rows > 0 ? (end - 1) / LG_KV_BLOCK + 1 - lo : 0;
    s.from = lo + (all * split + splits - 1) / splits; // the last has the own keys, so no more than others
    s.blocks = lo + (all * (split + 1) + splits - 1) / splits - s.from;
    s.own = max(s.from * LG_KV_BLOCK, pos) - pos;
    s.n_own = max(min((s.from + s.blocks) * LG_KV_BLOCK, end) - pos - s.own, 0);
    return s;
}

// Keys of a block that are older than the step to their place, zeros to the others'.
DEV void load_keys(const kv_args &kv, int kv_head, int block, int pos, uint8_t *to)
{
    const uint8_t *k = kv_tile(kv, (long long)block * LG_KV_BLOCK, kv_head, false);
    size_t v = kv.at_v - kv.at_k;
    int old = pos - block * LG_KV_BLOCK;

    for (int i = threadIdx.x; i < LG_KV_BLOCK * 32; i += THREADS) {
        int key = i / 32, c = i % 16;
        bool is_v = i % 32 >= 16;
        copy16_if(shared_at(to) + (unsigned)((is_v ? 2 * PANEL : 0) + panel_chunk(key, c)),
                  k + (is_v ? v : 0) + key * 256 + c * 16, key < old);
    }
}

// Half a warp's head of 128.
struct own_head {
    const float *from; // NULL: none
    uint8_t *tile;     // where it goes: row `line` of a tile,
    __half2 *cache;    // and of the cache, if it is ours to store
    int line, row;
    bool value; // neither normed nor turned
};

DEV own_head query_head(const follow_args &f, const share &s, int item, int kv_head, int m, uint8_t *smem)
{
    int r = row_of(f, item);
    own_head h = {NULL, smem + RING, NULL, item, s.row0 + r, false};

    if (item < s.queries)
        h.from = f.a.q + (size_t)h.row * (size_t)f.a.q_stride +
                 (size_t)((kv_head * f.a.group + item - r * f.a.group) * HEAD + 2 * m);
    else
        h.row = s.row0;
    return h;
}

// Of the rows of K, then of V.
DEV own_head own_kv_head(const follow_args &f, const share &s, int item, int kv_head, int m, uint8_t *smem)
{
    bool v = item >= s.n_own;
    own_head h = {NULL, NULL, NULL, 0, s.own + item - (v ? s.n_own : 0), v};

    if (item >= 2 * s.n_own) {
        h.row = s.row0;
        return h;
    }
    int p = s.pos + h.row, place = s.from + s.blocks - 1 - p / LG_KV_BLOCK; // of the ring
    h.line = p % LG_KV_BLOCK;
    h.tile = smem + place * STAGE_BYTES + (v ? 2 * PANEL : 0);
    h.from = (v ? f.v + (size_t)h.row * (size_t)f.v_stride : f.k + (size_t)h.row * (size_t)f.k_stride) +
             kv_head * HEAD + 2 * m;
    if (h.row >= s.row0)
        h.cache = (__half2 *)(kv_tile(f.a.kv, p, kv_head, v) + (size_t)h.line * f.a.kv.row_bytes) + m;
    return h;
}

template <int N> DEV void load_heads(head_pairs (&x)[N], const own_head (&h)[N])
{
#pragma unroll
    for (int j = 0; j < N; j++)
        if (h[j].from)
            x[j] = pairs_of(h[j].from);
}

// Normed, turned and rounded, all at the same time. angles: of row `turned` on.
template <int HALF, int N>
DEV void put_heads(const follow_args &f, const own_head (&h)[N], const head_pairs (&x)[N],
                   const head_pairs &norm, const float *angles, int turned, int lane)
{
    int m = lane % 16;

#pragma unroll
    for (int j = 0; j < N; j++) {
        float inv = rsqrtf(fmaf(pairs_squares(x[j], lane), 1.0f / HEAD, f.eps));
        head_pairs y = x[j];
        pairs_scale(y, norm, inv);
        if (HALF > 0)
            pairs_turn(y, turn_in(angles + (h[j].row - turned) * 2 * HALF + 2 * m, HALF), HALF);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool as_is = h[j].value;
            unsigned to = pack_f16_range(as_is ? x[j].v[i].x : y.v[i].x, as_is ? x[j].v[i].y : y.v[i].y);
            if (h[j].from)
                *(unsigned *)(h[j].tile + panel_chunk(h[j].line, m / 4 + 4 * i) + m % 4 * 4) = to;
            if (h[j].cache)
                *(unsigned *)(h[j].cache + 16 * i) = to;
        }
    }
}

// A warp's sums of rows g and g + 8 of its sixteen, of which n are queries, to their nodes.
DEV void put_sums(float *to, int n, const float (&acc)[64], float max_a, float sum_a, float max_b,
                  float sum_b, int g, int t)
{
    float *a = to + g * NODE, *b = a + 8 * NODE;
    bool has_a = g < n, has_b = g + 8 < n;

#pragma unroll
    for (int j = 0; j < 16; j++) {
        if (has_a)
            *(float2 *)(a + 8 * j + 2 * t) = make_float2(acc[4 * j], acc[4 * j + 1]);
        if (has_b)
            *(float2 *)(b + 8 * j + 2 * t) = make_float2(acc[4 * j + 2], acc[4 * j + 3]);
    }
    if (t == 0 && has_a)
        *(float2 *)(a + HEAD) = make_float2(max_a, sum_a);
    if (t == 0 && has_b)
        *(float2 *)(b + HEAD) = make_float2(max_b, sum_b);
}

// A warp: the three nodes of a query at `from` as one, to a place in another block.
DEV void send_query(unsigned to, const float *from, int lane)
{
    const float log2e = 1.44269504f;
    float max = -INFINITY, sum = 0.0f;
    float2 top[GROUPS];
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        top[k] = *(const float2 *)(from + k * QUERIES * NODE + HEAD);
        max = fmaxf(max, top[k].x);
    }
    float base = max == -INFINITY ? 0.0f : max * log2e;
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        float weight = power_of_2(fmaf(top[k].x, log2e, -base));
        sum = fmaf(weight, top[k].y, sum);
        v = fma4(weight, *(const float4 *)(from + k * QUERIES * NODE + 4 * lane), v);
    }
    put_fours(to + (unsigned)lane * 16, v);
    if (lane == 0)
        put_fours(to + HEAD * 4, make_float4(max, sum, 0.0f, 0.0f));
}

// What the gates of a lane's four results are made of.
DEV float4 query_gate(const attn_args &a, int row, int head, int lane)
{
    const float *gate = a.gate + (size_t)row * (size_t)a.gate_stride;

    if (!a.gate)
        return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (!a.elem_gate)
        return make_float4(__ldcg(gate + head), 0.0f, 0.0f, 0.0f);
    gate += head * HEAD + 4 * lane;
    return make_float4(__ldcg(gate), __ldcg(gate + 1), __ldcg(gate + 2), __ldcg(gate + 3));
}

// Queries that a warp joins: rows, heads, places among the block's, what the gates are made of. Behind the
// first n they are the last again.
struct joined {
    int row[JOINED], head[JOINED], at[JOINED], n;
    float4 gate[JOINED];
};

// ... of which the first is `first` of n, from query `base` on.
DEV joined joined_from(const follow_args &f, const share &s, int kv_head, int base, int first, int n,
                       int lane)
{
    joined q;

    q.n = (n - first + WARPS - 1) / WARPS;
#pragma unroll
    for (int j = 0; j < JOINED; j++) {
        q.at[j] = min(first + j * WARPS, n - 1);
        int i = base + q.at[j], r = row_of(f, i);
        q.row[j] = s.row0 + r;
        q.head[j] = kv_head * f.a.group + i - r * f.a.group;
        q.gate[j] = query_gate(f.a, q.row[j], q.head[j], lane);
    }
    return q;
}

// The nodes of this block's queries at `here`, then those of `others`, `pitch` floats apart; results, gated
// and quantised.
DEV void join_queries(const attn_args &a, const joined &q, const float *here, const float *mail, int others,
                      int pitch, int lane)
{
    const float log2e = 1.44269504f;
    float weight[JOINED], part[JOINED];
    float4 v[JOINED] = {};

#pragma unroll
    for (int j = 0; j < JOINED; j++) { // a node a lane
        float2 top = make_float2(-INFINITY, 0.0f);
        if (lane < GROUPS + others)
            top = *(const float2 *)((lane < GROUPS ? here + (q.at[j] + lane * QUERIES) * NODE
                                                   : mail + q.at[j] * NODE + (lane - GROUPS) * pitch) +
                                    HEAD);
        float max = warp_max(top.x);
        weight[j] = power_of_2((top.x - max) * log2e);
        part[j] = one_by(warp_sum(weight[j] * top.y));
    }
#pragma unroll
    for (int k = 0; k < GROUPS; k++)
#pragma unroll
        for (int j = 0; j < JOINED; j++)
            v[j] = fma4(__shfl_sync(0xFFFFFFFFu, weight[j], k),
                        *(const float4 *)(here + (q.at[j] + k * QUERIES) * NODE + 4 * lane), v[j]);
#pragma unroll 1
    for (int i = 0; i < others; i++)
#pragma unroll
        for (int j = 0; j < JOINED; j++)
            v[j] = fma4(__shfl_sync(0xFFFFFFFFu, weight[j], GROUPS + i),
                        *(const float4 *)(mail + q.at[j] * NODE + i * pitch + 4 * lane), v[j]);
    size_t cols = (size_t)a.n_head * HEAD;
#pragma unroll
    for (int j = 0; j < JOINED; j++) {
        float4 by = gates_of(a, q.gate[j]);
        v[j] = make_float4(v[j].x * (part[j] * by.x), v[j].y * (part[j] * by.y), v[j].z * (part[j] * by.z),
                           v[j].w * (part[j] * by.w));
        quad codes = quantise4(v[j]);
        float *out = a.out + (size_t)q.row[j] * (size_t)a.out_stride + (size_t)(q.head[j] * HEAD + 4 * lane);
        if (j >= q.n)
            continue;
        if (((uintptr_t)out & 15) == 0)
            *(float4 *)out = v[j];
        else
            out[0] = v[j].x, out[1] = v[j].y, out[2] = v[j].z, out[3] = v[j].w;
        if (a.quantise)
            store_quad(a.acts.q + (size_t)q.row[j] * cols, a.acts.meta + (size_t)q.row[j] * (cols / 32),
                       q.head[j] * (HEAD / 32) + lane / 8, lane, codes);
    }
}

#endif

// Blocks (share of the keys, rows, KV head), clusters along x. HALF: pairs that turn: 0, 32 or 64.
template <int HALF>
static __global__ void __launch_bounds__(THREADS, 1)
    attn_follow_kernel(__grid_constant__ const follow_args f, const lg_cu_step *step)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t smem[]; // ring (then sums), queries, angles (then mail)
    const attn_args &a = f.a;
    int lane = threadIdx.x % 32, warp = warp_index(), g = lane / 4, t = lane % 4, kv_head = blockIdx.z;
    int me = blockIdx.x, splits = gridDim.x, wg = warp / 4;
    const share s = share_of(f, step_rows(step, a.rows), (int)step->pos, (int)blockIdx.y, me, splits);
    unsigned base = shared_at(smem);
    int each = (s.queries + splits - 1) / splits; // queries [mine, mine + joins) are joined here
    int mine = each * me, joins = min(each, s.queries - mine);

    auto load = [&](int from, int to) {
        for (int i = from; i < min(s.blocks, to); i++)
            load_keys(a.kv, kv_head, s.from + s.blocks - 1 - i, s.pos, smem + i % STAGES * STAGE_BYTES);
        copies_commit();
    };
    load(0, STAGES);
    int m = lane % 16, half_warp = 2 * warp + lane / 16;
    int turned = s.n_own > 0 ? min(s.own, s.row0) : s.row0; // the first row whose angles are wanted
    head_pairs q_norm = pairs_of(f.q_norm + 2 * m), k_norm = pairs_of(f.k_norm + 2 * m);
    head_pairs x[FIRST] = {}, last_x[1] = {}, own_x[OWN] = {};
    own_head h[FIRST], last[1] = {query_head(f, s, half_warp + FIRST * HALVES, kv_head, m, smem)}, own[OWN];
    bool more = s.queries > FIRST * HALVES;
#pragma unroll
    for (int i = 0; i < 4; i++)
        q_norm.v[i].x *= a.scale, q_norm.v[i].y *= a.scale;
#pragma unroll
    for (int j = 0; j < FIRST; j++)
        h[j] = query_head(f, s, half_warp + j * HALVES, kv_head, m, smem);
#pragma unroll
    for (int j = 0; j < OWN; j++)
        own[j] = own_kv_head(f, s, half_warp + j * HALVES, kv_head, m, smem);
    pdl_wait();
    if (s.rows == 0)
        return;
    load_heads(x, h);
    if (more)
        load_heads(last_x, last);
    if (s.n_own > 0)
        load_heads(own_x, own);
    float *angles = (float *)(smem + ANGLES);
    const float *table = f.table + (size_t)turned * 2 * HALF;
    for (int i = 4 * (int)threadIdx.x; i < (s.row0 + s.rows - turned) * 2 * HALF; i += 4 * THREADS)
        copy16(shared_at(angles + i), table + i);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    put_heads<HALF>(f, h, x, q_norm, angles, turned, lane);
    if (more)
        put_heads<HALF>(f, last, last_x, q_norm, angles, turned, lane);
    if (s.n_own > 0)
        put_heads<HALF>(f, own, own_x, k_norm, angles, turned, lane);
    proxy_fence();
    __syncthreads();
    cluster_arrive(); // mail may come to the place of angles
    // rows g and g + 8 of the warp's sixteen
    int m_a = warp % 4 * 16 + g, p_first = s.pos + s.row0, p_last = p_first + s.rows - 1;
    auto position = [&](int query) { return p_first + min(row_of(f, query), s.rows - 1); };
    auto lowest = [&](int p) { return (int)first_visible(a.kv, p); };
    int p_a = position(m_a), p_b = position(m_a + 8), lo_a = lowest(p_a), lo_b = lowest(p_b);
    int full = lowest(p_last), rounds = (s.blocks + GROUPS - 1) / GROUPS;
    float acc[64], max_a = -INFINITY, max_b = -INFINITY, sum_a = 0.0f, sum_b = 0.0f;
#pragma unroll
    for (int i = 0; i < 64; i++)
        acc[i] = 0.0f;
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
        int i = round * GROUPS + wg, start = (s.from + s.blocks - 1 - i) * LG_KV_BLOCK;
        if (round > 0 && rounds > TURNS) { // the round's keys are there, all are done with the one before
            copies_wait<0>();
            proxy_fence();
            __syncthreads();
            if (round + 1 >= TURNS)
                load((round + 1) * GROUPS, (round + 2) * GROUPS);
        }
        if (i >= s.blocks)
            continue;
        unsigned k_at = base + (unsigned)(i % STAGES * STAGE_BYTES);
        float scores[32], old_a = 1.0f, old_b = 1.0f;
        unsigned p[4][4] = {};
        block_scores(scores, wgmma_desc(base + RING), wgmma_desc(k_at));
        wgmma_wait<0>();
        hold(scores);
        if (warp % 4 * 16 < s.queries) {
            if (start + LG_KV_BLOCK > p_first + 1 || start < full)
                hide_scores(scores, start, t, lo_a, p_a, lo_b, p_b);
            softmax<0>(scores, max_a, sum_a, old_a, p);
            softmax<1>(scores, max_b, sum_b, old_b, p);
            if (round > 0)
                scale_sums(acc, old_a, old_b);
        }
        block_values(acc, p, wgmma_desc_columns(k_at + 2 * PANEL, PANEL));
        wgmma_wait<0>();
        hold(acc);
    }
    sum_a = quad_sum(sum_a);
    sum_b = quad_sum(sum_b);
    __syncthreads(); // nobody reads keys any more
    put_sums((float *)smem + (wg * QUERIES + warp % 4 * 16) * NODE, s.queries - warp % 4 * 16, acc, max_a,
             sum_a, max_b, sum_b, g, t);
    const float *sums = (const float *)smem, *mail = (const float *)(smem + ANGLES);
    joined q = {};
    if (warp < joins)
        q = joined_from(f, s, kv_head, mine, warp, joins, lane);
    cluster_wait();
    __syncthreads();
    for (int i = warp; i < s.queries - max(joins, 0); i += WARPS) { // those that others join
        int query = i < mine ? i : i + joins, to = query / each;
        int place = (me < to ? me : me - 1) * each + query - to * each;
        send_query(shared_of(shared_at(mail + place * NODE), (unsigned)to), sums + query * NODE, lane);
    }
    __syncwarp();
    cluster_meet();
    for (int i = warp; i < joins;) {
        join_queries(a, q, sums + mine * NODE, mail, splits - 1, each * NODE, lane);
        i += JOINED * WARPS;
        if (i < joins)
            q = joined_from(f, s, kv_head, mine, i, joins, lane);
    }
#endif
}

/* ---- the launch ---- */

bool lg_cu_attn_follows(const lg_cu *c, const lg_cu_qkv *q)
{
    uintptr_t in = (uintptr_t)q->q.p | (uintptr_t)q->k.p | (uintptr_t)q->v.p | (uintptr_t)q->q_norm |
                   (uintptr_t)q->k_norm | (uintptr_t)q->table;
    bool near = (q->kv->window > 0 && q->kv->window <= SHORT) || c->ctx <= SHORT;

    return lg_cu_attn_wgmma_queries(c) > 0 && c->rows > LG_CU_EXACT_ROWS && c->rows <= MOST_ROWS && near &&
           q->q.p && q->q.rows == LG_ROWS_STEP && q->q_norm && q->k_norm && q->kv->head_dim == HEAD &&
           q->kv->type == LG_F16 && q->n_head / q->kv->n_kv_head <= QUERIES &&
           (q->q.stride | q->k.stride | q->v.stride) % 2 == 0 && (in & 15) == 0 &&
           (!q->table || q->n_rot == HEAD / 2 || q->n_rot == HEAD);
}

// How many such clusters the card holds at a time.
template <int HALF> static int clusters_at_once(int splits, size_t smem)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attr[1];
    int n = 0;

    attr[0].id = cudaLaunchAttributeClusterDimension;
    attr[0].val.clusterDim.x = (unsigned)splits;
    attr[0].val.clusterDim.y = attr[0].val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)splits);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = smem;
    config.attrs = attr;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&n, attn_follow_kernel<HALF>, &config) == cudaSuccess)
        return n;
    (void)cudaGetLastError(); // that was a question
    return 0;
}

// Rows of a cluster, clusters of a KV head, blocks of a cluster.
struct follow_shape {
    int rows, tiles, splits;
};

// Bytes of shared memory.
template <int HALF> static size_t bytes_of(const follow_args &f, const follow_shape &s, int rows)
{
    size_t angles = (size_t)rows * 2 * HALF * sizeof(float);
    size_t mail = (size_t)((s.splits - 1) * ceil_div(s.rows * f.a.group, s.splits) * NODE) * sizeof(float);

    return ANGLES + (angles > mail ? angles : mail);
}

/* The shape that is over first, by what phases take (cycles, measured on an H200): a round of three blocks of
 * keys, more if they have no place in the ring before it; half warps' heads; warps' queries for others. */
template <int HALF> static follow_shape shape_of(const lg_cu *c, const follow_args &f, int rows)
{
    const kv_args &kv = f.a.kv;
    int most = QUERIES / f.a.group, least = 0;
    follow_shape best = {};

    for (int splits = 1; splits <= MOST_SPLITS; splits++) {
        int room = clusters_at_once<HALF>(splits, ANGLES) / kv.n_kv_head,
            each = ceil_div(rows, room < 1 ? 1 : room);
        follow_shape s = {each < most ? each : most, 0, splits};
        s.tiles = ceil_div(rows, s.rows);
        if (bytes_of<HALF>(f, s, rows) > (size_t)c->smem || (s.tiles > room && splits > 1))
            continue;
        int64_t keys = kv.window > 0 && kv.window + s.rows < c->ctx ? kv.window + s.rows : c->ctx;
        int rounds = ceil_div(ceil_div(ceil_div(keys, LG_KV_BLOCK), splits), GROUPS),
            queries = s.rows * f.a.group;
        int cost = 2500 * rounds + (rounds > TURNS ? 2000 * (rounds - TURNS) : 0) +
                   450 * ceil_div(queries, HALVES) + 400 * ceil_div(queries - queries / splits, WARPS);
        cost *= room < 1 ? 1 : ceil_div(s.tiles, room);
        if (best.splits == 0 || cost < least) {
            best = s;
            least = cost;
        }
    }
    return best;
}

template <int HALF> static void run(lg_cu *c, follow_args &f, int rows)
{
    share_sm(c, attn_follow_kernel<HALF>, (size_t)c->smem);
    follow_shape s = shape_of<HALF>(c, f, rows);
    f.tile_rows = s.rows;
    launch_clusters(c, attn_follow_kernel<HALF>,
                    dim3((unsigned)s.splits, (unsigned)s.tiles, (unsigned)f.a.kv.n_kv_head), THREADS,
                    bytes_of<HALF>(f, s, rows), s.splits, f, c->step);
}

void lg_cu_attn_follow(lg_cu *c, const attn_args &a, const lg_cu_qkv *q, int rows)
{
    follow_args f = {};
    int half = q->table ? q->n_rot / 2 : 0;

    f.a = a;
    f.k = q->k.p;
    f.v = q->v.p;
    f.k_stride = q->k.stride;
    f.v_stride = q->v.stride;
    f.q_norm = q->q_norm;
    f.k_norm = q->k_norm;
    f.table = q->table;
    f.eps = q->eps;
    f.by_group = (unsigned)((1 << 16) / a.group + 1);
    if (half == 64)
        run<64>(c, f, rows);
    else if (half == 32)
        run<32>(c, f, rows);
    else
        run<0>(c, f, rows);
}
