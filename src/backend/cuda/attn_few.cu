/*
 * backend/cuda/attn_few: attention of up to LG_CU_EXACT_ROWS rows.
 *
 * A row's keys are shared out among some blocks, in a way that follows from its position alone. A block takes
 * one (KV head, share, row): the query heads of the KV head are the rows of a tensor core tile, or its
 * columns where there are no more than eight and keys are f16 (attn_narrow.cuh), and K and V are read once,
 * by cp.async, each warp KEYS keys at a time into a ring of its own. For one row the kernel also does what
 * qkv.cu does, so that a layer's attention is one launch, which asks for all old keys while the projections
 * still run. Nothing depends on how many rows a step has.
 *
 * From sm_90 on the blocks of a (KV head, row) are a cluster: KEYS keys to each in turn; the blocks send
 * their sums (max, sum, acc) to each other's shared memory, where a barrier counts the bytes, and each joins,
 * gates and quantises some runs of 32 (attn_cluster.cuh). Before, shares are nodes, as many as there are
 * multiprocessors for a KV head, that go to scratch; the last block of a KV head joins them.
 *
 * f32 caches and head sizes other than 128: attn_plain.cu.
 */
#include "backend/cuda/attn_cluster.cuh"
#include "backend/cuda/attn_narrow.cuh"

enum { Q_ROWS = 16 };

/* ---- tensor cores ---- */

enum {
    NODE_KEYS = KEYS * FEW_WARPS, // a node is a multiple of this
    NODES = 32,                   // of a row, but for a rest
    UNIT_KEYS = KEYS / 2,
    UNIT = UNIT_KEYS * 2 * HEAD, // bytes of K or of V of so many keys; a chunk is four: K, K, V, V
    DEPTH = 5,                   // units of a warp's ring
    RING = DEPTH * UNIT,
    NODE_FLOATS = HEAD + 4,    // max, sum, two of nothing, acc
    Q_FRAGMENTS = 8 * 32 * 16, // bytes
    OWN_ROOM = 2 * HEAD * 4,   // bytes of the row's own K and V
};

// Scores are logarithms to base 2: e^x = 2^(x * LOG2_E).
#define LOG2_E 1.4426950408889634f

enum { FEW_SMEM = FEW_WARPS * RING + Q_FRAGMENTS + OWN_ROOM };

/* What others send: [run][block][32] sums, [run][block] (max, sum), the barrier. The whole is below 107,000
 * bytes, static and reserved ones included, so that a block of the product behind it (linear.cu) fits beside.
 */
static constexpr int cluster_smem(int heads)
{
    return FEW_SMEM + joined_runs(heads) * CLUSTER * SENT + 16;
}

struct few_args {
    attn_args a;
    // the projections' K and V of the one row, to be normed, turned and stored; k NULL: that is done
    const float *k, *v, *q_norm, *k_norm, *table;
    float eps, scale; // scale: of scores, which are logarithms to base 2
    int half, nodes;  // pairs that turn: 0, 32 or 64; how many nodes a long row is cut into
    int *arrived;     // [row][block of heads]
};

template <int N> DEV node_plan plan_of(const few_args &f, int p)
{
    node_plan n = {p, (int)first_visible(f.a.kv, p), 0, 0, 0};

    n.base = n.lo / KEYS * KEYS;
    if (N == 0) {
        unsigned seen = (unsigned)(p + 1 - n.lo), nodes = (unsigned)f.nodes;
        n.keys = (int)(((seen + nodes - 1) / nodes + NODE_KEYS - 1) / NODE_KEYS * NODE_KEYS);
        n.count = (p - n.base) / n.keys + 1;
    }
    return n;
}

// A row of a unit is a key; 16-byte pieces are permuted so that no load meets a bank twice.
DEV int k_piece(int key, int piece)
{
    return key * 256 + ((piece ^ (key & 1) << 2) << 4);
}

DEV int v_piece(int key, int piece)
{
    return key * 256 + ((piece ^ ((key & 2) << 1 | (key & 4) >> 1)) << 4);
}

/* A lane copies of a unit of f16 the pieces lane % 4 + 4j of one key; keys are in an order in which eight
 * lanes meet all banks, for K and for V. */
DEV int copied_key(int lane)
{
    return (lane >> 2 & 4) | (lane >> 1 & 2) | ((lane >> 2 ^ lane >> 3) & 1);
}

template <bool FEW8> DEV int copied_of(int lane)
{
    return FEW8 ? narrow_copied(lane) : copied_key(lane);
}

// Where a piece of a key lies in a unit of f16.
template <bool FEW8> DEV int piece_at(int key, int piece, bool v)
{
    return FEW8 ? narrow_piece(key, piece) : v ? v_piece(key, piece) : k_piece(key, piece);
}

// What a lane copies begins so many bytes behind the unit's.
template <int TYPE, bool FEW8> DEV int copy_from(int lane)
{
    return TYPE == LG_F16 ? copied_of<FEW8>(lane) * 256 + lane % 4 * 16 : lane * 16;
}

// All lanes: the UNIT_KEYS keys at position s to a unit; zeros for those not in [lo, last]. from: of the
// lane.
template <int TYPE, bool FEW8>
DEV void fetch_unit(unsigned to, const uint8_t *from, bool v, int s, int lo, int last, int lane)
{
    if (TYPE == LG_F16) {
        int key = copied_of<FEW8>(lane), first = piece_at<FEW8>(key, lane % 4, v);
        bool seen = s + key >= lo && s + key <= last;
#pragma unroll
        for (int j = 0; j < 4; j++) // the order of pieces differs in bits 1 and 2
            copy16_if(to + (unsigned)(first ^ j % 2 * 64) + (unsigned)(j / 2 * 128), from + j * 64, seen);
        return;
    }
    int pieces = (min(last + 1 - s, (int)UNIT_KEYS) * (HEAD / 32 * 34) + 15) / 16;
#pragma unroll
    for (int i = 0; i < UNIT_KEYS * (HEAD / 32 * 34) / 16; i += 32)
        if (lane + i < pieces)
            copy16(to + (unsigned)(lane + i) * 16, from + i * 16);
}

// All lanes: the row x of K or V to key `key` of a unit that has come.
template <int TYPE, bool FEW8>
DEV void unit_row(const few_args &f, uint8_t *unit, int key, bool v, const float *x, int lane)
{
    if (TYPE == LG_F16) {
        uint8_t *to = unit + piece_at<FEW8>(key, lane / 2, v) + lane % 2 * 8;
        float4 y = *(const float4 *)(x + 4 * lane);
        *(uint2 *)to =
            make_uint2(pack_f16(f16_range(y.x), f16_range(y.y)), pack_f16(f16_range(y.z), f16_range(y.w)));
    } else {
        kv_row(f.a.kv.type, HEAD, unit + key * (HEAD / 32 * 34), x, lane);
    }
    __syncwarp();
}

// Of key g of a unit of K, dimensions 32c + 8t on.
template <int TYPE> DEV uint4 k_at(const uint8_t *unit, int g, int t, int c, bool seen)
{
    if (TYPE == LG_F16) { // piece 4c + t, permuted
        int odd = g & 1;
        const uint8_t *even_c = unit + g * 256 + t * 16 + odd * 64,
                      *odd_c = unit + g * 256 + t * 16 + 64 - odd * 64;
        return *(const uint4 *)((c % 2 ? odd_c : even_c) + c / 2 * 128);
    }
    return seen ? load_kv8<TYPE>(unit + g * (HEAD / 32 * 34), 32 * c + 8 * t) : make_uint4(0, 0, 0, 0);
}

// Of key 2t + i of a unit of V, i < 2, dimensions 64h + 8g on.
template <int TYPE> DEV uint4 v_at(const uint8_t *unit, int g, int t, int i, int h, bool seen)
{
    if (TYPE == LG_F16)
        return *(const uint4 *)(unit + v_piece(2 * t, g) + i * 256 + h * 128);
    return seen ? load_kv8<TYPE>(unit + (2 * t + i) * (HEAD / 32 * 34), 64 * h + 8 * g)
                : make_uint4(0, 0, 0, 0);
}

// Running maximum, sum and values of a warp, for rows g and g + 8 of its tile.
struct few_state {
    enum { PITCH = HEAD + 16 }; // floats of a head in shared memory: no bank twice
    float max_a, max_b, sum_a, sum_b, acc[16][4];
};

static_assert(Q_ROWS * few_state::PITCH * 4 <= RING && NARROW * narrow_state::PITCH * 4 <= RING,
              "a warp's sums take the place of its keys");

// Scores of KEYS keys at position s into the state; their probabilities. first: the state is empty.
DEV void few_softmax(few_state &st, float (&x)[2][4], const node_plan &n, int s, bool first, int t,
                     unsigned (&prob)[4])
{
    float top_a = st.max_a, top_b = st.max_b;

    if (s < n.lo || s + KEYS > n.p + 1)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = s + 8 * (i / 2) + 2 * t + i % 2;
            bool seen = key >= n.lo && key <= n.p;
            x[i / 2][i % 2] = seen ? x[i / 2][i % 2] : -INFINITY;
            x[i / 2][2 + i % 2] = seen ? x[i / 2][2 + i % 2] : -INFINITY;
        }
    top_a = fmaxf(top_a, quad_max(fmaxf(fmaxf(x[0][0], x[0][1]), fmaxf(x[1][0], x[1][1]))));
    top_b = fmaxf(top_b, quad_max(fmaxf(fmaxf(x[0][2], x[0][3]), fmaxf(x[1][2], x[1][3]))));
    float base_a = top_a == -INFINITY ? 0.0f : top_a, base_b = top_b == -INFINITY ? 0.0f : top_b;
    if (!first && !__all_sync(0xFFFFFFFFu, top_a == st.max_a && top_b == st.max_b)) {
        float old_a = power_of_2(st.max_a - base_a), old_b = power_of_2(st.max_b - base_b);
        st.sum_a *= old_a;
        st.sum_b *= old_b;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            st.acc[j][0] *= old_a, st.acc[j][1] *= old_a;
            st.acc[j][2] *= old_b, st.acc[j][3] *= old_b;
        }
    }
    st.max_a = top_a;
    st.max_b = top_b;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float x0 = power_of_2(x[h][0] - base_a), x1 = power_of_2(x[h][1] - base_a);
        float y0 = power_of_2(x[h][2] - base_b), y1 = power_of_2(x[h][3] - base_b);
        st.sum_a += x0 + x1;
        st.sum_b += y0 + y1;
        prob[2 * h] = pack_f16(x0, x1);
        prob[2 * h + 1] = pack_f16(y0, y1);
    }
}

DEV float *few_node(const few_args &f, int row, int head, int node, int nodes)
{
    return f.a.part +
           (((size_t)row * (size_t)f.a.n_head + (size_t)head) * (size_t)nodes + (size_t)node) * NODE_FLOATS;
}

/* ---- from keys to sums ---- */

// A warp's maxima and sums of its heads, and its results.
DEV void put_state(few_state &st, float2 (*top)[FEW_WARPS], float *room, int heads, int warp, int lane)
{
    int g = lane / 4, t = lane % 4;

    st.sum_a = quad_sum(st.sum_a);
    st.sum_b = quad_sum(st.sum_b);
    if (t == 0) {
        top[g][warp] = make_float2(st.max_a, st.sum_a);
        top[g + 8][warp] = make_float2(st.max_b, st.sum_b);
    }
    __syncwarp(); // nobody reads the ring any more
    if (!room)
        return;
    float4 *to = (float4 *)room + g * (few_state::PITCH / 4) + t;
#pragma unroll
    for (int i = 0; i < 8; i++) { // dimensions 64 * (i / 4) + 16t + 8 * (i / 2 % 2) + 4 * (i % 2)
        int j = 8 * (i / 4) + 4 * (i % 2), e = i / 2 % 2;
        if (g < heads)
            to[4 * i] = make_float4(st.acc[j][e], st.acc[j + 1][e], st.acc[j + 2][e], st.acc[j + 3][e]);
    }
#pragma unroll
    for (int i = 0; i < 8 && heads > 8; i++) {
        int j = 8 * (i / 4) + 4 * (i % 2), e = 2 + i / 2 % 2;
        if (g + 8 < heads)
            to[4 * i + 8 * (few_state::PITCH / 4)] =
                make_float4(st.acc[j][e], st.acc[j + 1][e], st.acc[j + 2][e], st.acc[j + 3][e]);
    }
}

// The dimensions of a head, four a lane, in the order in which a state holds them.
DEV int state_dim(const few_state &, int lane)
{
    return merged_dim(lane);
}

/* The block: the states of its first `warps` warps become a node of each head, which goes to scratch or, with
 * N blocks in a cluster, to those that join it. A warp's sums take the place of its ring; smem: the rings. */
template <int N, typename State>
DEV void few_merge(const few_args &f, State &st, uint8_t *smem, const mailbox &m, int row, int head0,
                   int heads, int warps, int me, int warp, int lane)
{
    __shared__ float2 s_top[Q_ROWS][FEW_WARPS]; // max, sum

    // zeros of those that have no keys
    put_state(st, s_top, warp < (warps + 3) / 4 * 4 ? (float *)(smem + warp * RING) : NULL, heads, warp,
              lane);
    // run `run` of head `warp` goes to block run % N; those of the next head of the warp also
    int d = state_dim(st, lane), run = warp * (HEAD / 32) + d / 32, place = run / (N ? N : 1) * N + me;
    unsigned there = 0, to_bar = 0, to_top = 0;
    if constexpr (N > 0) {
        static_assert(FEW_WARPS * (HEAD / 32) % N == 0, "");
        unsigned base = shared_of(m.at, (unsigned)(run % N));
        there = base + (unsigned)(place * 128 + d % 32 * 4);
        to_top = base + (m.tops - m.at) + (unsigned)place * 8;
        to_bar = base + (m.bar - m.at);
    }
    __syncthreads();
#pragma unroll 1
    for (int h = warp; h < heads; h += FEW_WARPS) {
        const float4 *from = (const float4 *)smem + h * (State::PITCH / 4) + lane;
        float2 top[FEW_WARPS];
        float max = -INFINITY, sum = 0.0f;
        float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < FEW_WARPS; w++)
            top[w] = s_top[h][w];
#pragma unroll
        for (int w = 0; w < FEW_WARPS; w += 4)
            max = fmaxf(max, fmaxf(fmaxf(top[w].x, top[w + 1].x), fmaxf(top[w + 2].x, top[w + 3].x)));
        float base = max == -INFINITY ? 0.0f : max;
#pragma unroll
        for (int w = 0; w < FEW_WARPS; w++) { // in order, so that the sums are the same every time
            if (w % 4 == 0 && w >= warps)
                break;
            float weight = power_of_2(top[w].x - base);
            sum = fmaf(weight, top[w].y, sum);
            acc = fma4(weight, from[w * (RING / 16)], acc);
        }
        if constexpr (N > 0) {
            send4(there, acc, to_bar);
            if (d % 32 == 0)
                send2(to_top, make_float2(max, sum), to_bar);
            there += FEW_WARPS * (HEAD / 32) * 128;
            to_top += FEW_WARPS * (HEAD / 32) * 8;
            continue;
        }
        float *node = few_node(f, row, head0 + h, me, (int)gridDim.x);
        if (lane == 0)
            *(float2 *)node = make_float2(max, sum);
        *(float4 *)(node + 4 + d) = acc;
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
        weight[j] = power_of_2(weight[j] - max);
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

/* A lane's part of a head that few_queries makes: one of the `heads` queries, then the row's own K and V;
 * half a warp a head. What does not depend on the kernel before. */
struct head_part {
    const float *src, *cos, *sin;
    head_pairs w; // of the norm
    bool normed;
};

DEV head_part part_of(const few_args &f, int row, int kv_head, int head0, int heads, int h, int m)
{
    const float *norm = h < heads ? f.q_norm : h == heads ? f.k_norm : NULL;
    head_part p;

    p.src = (h < heads    ? f.a.q + (size_t)row * (size_t)f.a.q_stride + (size_t)(head0 + h) * HEAD
             : h == heads ? f.k + kv_head * HEAD
                          : f.v + kv_head * HEAD) +
            2 * m;
    p.cos = f.table + 2 * m;
    p.sin = p.cos + f.half;
    p.normed = f.k && norm;
    if (p.normed)
        p.w = pairs_of(norm + 2 * m);
    else
        for (int i = 0; i < 4; i++)
            p.w.v[i] = make_float2(1.0f, 1.0f);
    return p;
}

/* What is loaded of it, behind the wait. */
struct head_loads {
    head_pairs x;
    head_turn turn;
};

DEV head_loads loads_of(const few_args &f, const head_part &part, bool any)
{
    head_loads l = {};

    if (any)
        l.x = pairs_of(part.src);
    if (f.k)
        l.turn = turn_of(part.cos, part.sin, f.half);
    return l;
}

/* The queries to fragments: half a warp a head, two neighbouring dimensions a lane and step of 32. With f.k
 * also what qkv.cu does: they are normed and turned, so also the row's own K and V, which come to `own_rows`,
 * and go to the cache, by the last two warps, at own_at. part, l: of head 2 * warp + lane / 16. to: where in
 * the fragments its values go. Ends with a barrier. */
template <int TYPE, bool FEW8>
DEV void few_queries(const few_args &f, head_part &part, head_loads &l, uint8_t *own_at, int row, int kv_head,
                     int head0, int heads, bool own, unsigned to, float *own_rows, unsigned *fragments,
                     int warp, int lane)
{
    int m = lane % 16, all = heads + (own ? 2 : 0);

#pragma unroll 1
    for (int h = 2 * warp + lane / 16, first = 2 * warp; first < all;) {
        head_pairs x = l.x;
        if (f.k) {
            float inv = pairs_norm(x, f.eps, lane);
            pairs_scale(x, part.w, part.normed ? inv : 1.0f);
            if (h <= heads)
                pairs_turn(x, l.turn, f.half);
        }
        if (h < heads) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                fragments[to + (unsigned)i * (FEW8 ? (unsigned)NARROW_NEXT : 256u)] =
                    pack_f16_range(x.v[i].x * f.scale, x.v[i].y * f.scale);
        } else if (h < all) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(float2 *)(own_rows + (h - heads) * HEAD + 2 * m + 32 * i) = x.v[i];
        }
        first += 2 * FEW_WARPS;
        h += 2 * FEW_WARPS; // no query any more
        if (first < all) {
            part = part_of(f, row, kv_head, head0, heads, h, m);
            l = loads_of(f, part, h < all);
        }
    }
    __syncthreads();
    if (own && warp >= FEW_WARPS - 2)
        kv_row(TYPE, HEAD, own_at, own_rows + (warp == FEW_WARPS - 1 ? HEAD : 0), lane);
}

// Scores of the queries and the KEYS keys at position s.
template <int TYPE>
DEV void few_scores(float (&x)[2][4], const uint8_t *const (&unit)[2], const uint4 *fragments, int s, int p,
                    int lane)
{
    float y[2][4] = {}; // two sums, so that fewer steps wait for each other
    int g = lane / 4, t = lane % 4;

#pragma unroll
    for (int c = 0; c < 4; c++) {
        uint4 q0 = fragments[2 * c * 32 + lane], q1 = fragments[(2 * c + 1) * 32 + lane];
        const unsigned f0[4] = {q0.x, q0.y, q0.z, q0.w}, f1[4] = {q1.x, q1.y, q1.z, q1.w};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 k = k_at<TYPE>(unit[i], g, t, c, s + 8 * i + g <= p);
            mma_f16(x[i], f0, k.x, k.y);
            mma_f16(y[i], f1, k.z, k.w);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i / 4][i % 4] += y[i / 4][i % 4];
}

// What their values add.
template <int TYPE>
DEV void few_values(few_state &st, const unsigned (&prob)[4], const uint8_t *const (&unit)[2],
                    const node_plan &n, int s, int lane)
{
    int g = lane / 4, t = lane % 4;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint4 vf[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = s + 2 * t + i % 2 + i / 2 * 8;
            vf[i] = v_at<TYPE>(unit[i / 2], g, t, i % 2, h, at >= n.lo && at <= n.p);
        }
        pv(*(float(*)[8][4])st.acc[8 * h], prob, vf);
    }
}

/* A warp's ring of units: K, K, V, V of each of its chunks, which are STRIDE keys apart and end before
 * `until`. A group of copies each, also where nothing is left to be asked for. */
template <int TYPE, int STRIDE, bool FEW8> struct key_ring {
    uint8_t *first;
    const uint8_t *keys, *from; // of the lane: in block 0 of the cache; K of the chunk that is asked for
    int ask, until, block;      // that chunk; `block`: of the cache, of the chunk behind it
    int lo, last;               // keys that are visible, and in memory
    int put, at;                // units of the ring: the next to be filled, to be read

    __device__ __forceinline__ void open(const kv_args &kv, uint8_t *ring, int kv_head, int start, int end,
                                         int lane)
    {
        first = ring;
        from = keys = kv.mem + kv.at_k + (size_t)kv_head * kv.tile_bytes + copy_from<TYPE, FEW8>(lane);
        block = start < end ? kv.table[start / LG_KV_BLOCK] : 0;
        ask = start - STRIDE;
        until = end;
        put = at = 0;
    }
    __device__ __forceinline__ void advance(const kv_args &kv) // to the next chunk
    {
        ask += STRIDE;
        if (ask >= until)
            return;
        from = keys + (size_t)block * kv.block_bytes + (unsigned)(ask % LG_KV_BLOCK) * (unsigned)kv.row_bytes;
        if (ask + STRIDE < until)
            block = kv.table[(ask + STRIDE) / LG_KV_BLOCK];
    }
    // The first or second unit of K or V.
    __device__ __forceinline__ void get(const kv_args &kv, bool v, int half, int lane)
    {
        if (ask < until) {
            fetch_unit<TYPE, FEW8>(shared_at(first) + (unsigned)(put * UNIT),
                             from + (v ? kv.at_v - kv.at_k : 0) +
                                 half * (TYPE == LG_F16 ? UNIT : UNIT_KEYS * (HEAD / 32 * 34)),
                             v, ask + half * UNIT_KEYS, lo, last, lane);
            put = put == DEPTH - 1 ? 0 : put + 1;
        }
        copies_commit();
    }
    __device__ __forceinline__ void begin(const kv_args &kv, int lane) // a ring full of K, K, V, V, K
    {
        advance(kv);
        get(kv, false, 0, lane);
        get(kv, false, 1, lane);
        get(kv, true, 0, lane);
        get(kv, true, 1, lane);
        advance(kv);
        get(kv, false, 0, lane);
    }
    __device__ __forceinline__ void wait(void) // for the next two units
    {
        copies_wait<DEPTH - 2>();
        __syncwarp();
    }
    __device__ __forceinline__ uint8_t *take(void) // one of them
    {
        uint8_t *p = first + at * UNIT;
        at = at == DEPTH - 1 ? 0 : at + 1;
        return p;
    }
};

// Where one of the last two warps stores the row's own K or V.
DEV uint8_t *own_place(const kv_args &kv, int p, int kv_head, int warp)
{
    return (uint8_t *)kv_tile(kv, p, kv_head, warp == FEW_WARPS - 1) +
           (size_t)(p % LG_KV_BLOCK) * kv.row_bytes;
}

// A chunk's scores; its values times probabilities.
template <int TYPE>
DEV void chunk_scores(float (&x)[2][4], uint8_t *const (&unit)[2], const uint4 *fragments,
                      const narrow_queries &, int s, int p, int lane)
{
    few_scores<TYPE>(x, {unit[0], unit[1]}, fragments, s, p, lane);
}

template <int TYPE>
DEV void chunk_scores(float (&x)[4], uint8_t *const (&unit)[2], const uint4 *, const narrow_queries &q, int,
                      int, int lane)
{
    narrow_scores(x, shared_at(narrow_key_unit(lane) ? unit[1] : unit[0]) + narrow_key_at(lane), q);
}

template <int TYPE>
DEV void chunk_values(few_state &st, const unsigned (&prob)[4], uint8_t *const (&unit)[2], const node_plan &n,
                      int s, int lane)
{
    few_values<TYPE>(st, prob, {unit[0], unit[1]}, n, s, lane);
}

template <int TYPE>
DEV void chunk_values(narrow_state &st, const unsigned (&prob)[2], uint8_t *const (&unit)[2],
                      const node_plan &, int, int lane)
{
    narrow_values(st, prob, shared_at(narrow_value_unit(lane) ? unit[1] : unit[0]) + narrow_value_at(lane));
}

// What differs between up to eight queries of f16 keys and the rest.
template <bool FEW8> struct few_kind;

template <> struct few_kind<false> {
    using state = few_state;
    using scores = float[2][4];
    using probs = unsigned[4];
};

template <> struct few_kind<true> {
    using state = narrow_state;
    using scores = float[4];
    using probs = unsigned[2];
};

// A block a (share, KV head, row); its warps take KEYS keys in turn, up to 16 query heads share them. N:
// blocks of a cluster; 0: shares are nodes. FEW8: up to eight query heads, and f16.
template <int TYPE, int N, bool FEW8>
static __global__ void __launch_bounds__(32 * FEW_WARPS, 2)
    attn_few_kernel(__grid_constant__ const few_args f, const lg_cu_step *step)
{
    enum { STEP = (N ? N : 1) * KEYS, STRIDE = STEP * FEW_WARPS };
    // rings, fragments of the queries, the row's own K and V, the mailbox
    extern __shared__ __align__(1024) uint8_t smem[];
    using kind = few_kind<FEW8>;
    __shared__ float4 s_gate[(joined_runs(Q_ROWS) + 3) / 4][32]; // what gates are made of
    const attn_args &a = f.a;
    // from a shuffle: else the special register is read again and again, which takes long
    int lane = __shfl_sync(0xFFFFFFFFu, (int)threadIdx.x % 32, (int)threadIdx.x % 32);
    int warp = warp_index(), row = blockIdx.z, me = blockIdx.x;
    int tiles = (a.group + Q_ROWS - 1) / Q_ROWS, kv_head = (int)blockIdx.y / tiles;
    int head0 = kv_head * a.group + (int)blockIdx.y % tiles * Q_ROWS;
    int heads = min((int)Q_ROWS, (kv_head + 1) * a.group - head0);
    int pos = (int)step->pos;
    node_plan n = plan_of<N>(f, pos + row);
    // the block's first key, and the end of its share
    int start = n.base + me * (N ? (int)KEYS : n.keys), end = N ? n.p + 1 : min(start + n.keys, n.p + 1);
    bool here = row < step_rows(step, a.rows) && (N || me < n.count); // the same in a cluster
    // the warp's first key; the next are STRIDE further
    int mine = start + warp * STEP;
    // has the row's position, whose K and V are still to be made
    bool own = f.k && (N ? (n.p - n.base) / KEYS % (N ? N : 1) == me : me == n.count - 1);

    uint4 *fragments = (uint4 *)(smem + FEW_WARPS * RING);
    float *own_rows = (float *)((uint8_t *)fragments + Q_FRAGMENTS);
    int h = 2 * warp + lane / 16, m = lane % 16; // of few_queries
    // dimensions 2m + 32i: step 2i + m % 4 / 2, quarter m / 4, place m % 2 of the row
    unsigned place = FEW8 ? narrow_query_at(h, m)
                          : (unsigned)(((m % 4 / 2 * 32 + h % 8 * 4 + m / 4) * 4) + m % 2 * 2 + h / 8);
    typename kind::state st = {};
    mailbox box;
    key_ring<TYPE, STRIDE, FEW8> ring;

    ring.lo = n.lo;
    ring.last = f.k ? pos - 1 : n.p;
    ring.open(a.kv, smem + warp * RING, kv_head, mine, here ? end : 0, lane);
    // what a full ring asks for, of the first chunk and of the second, is older than this step, or it is the
    // row's own
    bool early = f.k || (mine + STRIDE < end ? mine + STRIDE : mine) + KEYS <= pos;
    if (early)
        ring.begin(a.kv, lane);
    head_part part = part_of(f, row, kv_head, head0, heads, h, m);
    uint8_t *own_at = own && warp >= FEW_WARPS - 2 ? own_place(a.kv, n.p, kv_head, warp) : NULL;
    static_assert(Q_FRAGMENTS == 16 * 32 * FEW_WARPS, "");
    fragments[threadIdx.x] = make_uint4(0, 0, 0, 0);
    if (N > 0 && here)
        box = open_mailbox<(N > 0 ? N : 1)>(smem + FEW_SMEM, heads, me);
    st.max_a = st.max_b = -INFINITY;
    // all of these now, not behind the wait
    asm volatile("" : "+l"(part.src), "+l"(part.cos), "+l"(part.sin), "+r"(place), "+l"(own_at));
    if (N > 0)
#pragma unroll
        for (auto j = sizeof st.acc / sizeof st.acc[0]; j-- > 0;)
            asm volatile("" : "+f"(st.acc[j][0]), "+f"(st.acc[j][1]), "+f"(st.acc[j][2]), "+f"(st.acc[j][3]));
    __syncthreads();
    if (f.k)
        let_next(); // a product, which has weights to ask for
    pdl_wait();
    head_loads loads = loads_of(f, part, here && h < heads + (own ? 2 : 0));
    if (!here)
        return;
    bool joins = N > 0 && joined_by(warp, 0) < box.runs;
    float4 gate = {};
    if (joins)
        gate = gate_inputs(a, row, head0, me + N * min(joined_by(warp, lane), box.runs - 1), lane);
    if (!early)
        ring.begin(a.kv, lane);
    few_queries<TYPE, FEW8>(f, part, loads, own_at, row, kv_head, head0, heads, own, place, own_rows,
                      (unsigned *)fragments, warp, lane);
    if (joins) // of this thread alone: for registers
        s_gate[FEW_WARPS - 1 - warp][lane] = gate;
    narrow_queries queries = {};
    if (FEW8)
        queries = narrow_load(fragments, lane);
#pragma unroll 1
    for (int s = mine; s < end; s += STRIDE) {
        int key = own ? n.p - s : KEYS; // the row's own, whose K and V are not in memory
        typename kind::scores x = {};
        typename kind::probs prob;
        ring.wait();
        uint8_t *k0 = ring.take(), *k1 = ring.take();
        if (key < KEYS)
            unit_row<TYPE, FEW8>(f, key < UNIT_KEYS ? k0 : k1, key % UNIT_KEYS, false, own_rows, lane);
        chunk_scores<TYPE>(x, {k0, k1}, fragments, queries, s, n.p, lane);
        __syncwarp();
        ring.get(a.kv, false, 1, lane); // of the next chunk
        ring.get(a.kv, true, 0, lane);
        few_softmax(st, x, n, s, s == mine, FEW8 ? lane / 4 : lane % 4, prob);
        ring.wait();
        uint8_t *v0 = ring.take(), *v1 = ring.take();
        if (key < KEYS)
            unit_row<TYPE, FEW8>(f, key < UNIT_KEYS ? v0 : v1, key % UNIT_KEYS, true, own_rows + HEAD, lane);
        chunk_values<TYPE>(st, prob, {v0, v1}, n, s, lane);
        __syncwarp();
        ring.get(a.kv, true, 1, lane);
        ring.advance(a.kv);
        ring.get(a.kv, false, 0, lane);
    }
    copies_wait<0>();
    int warps = end > start ? min((end - start + STEP - 1) / STEP, (int)FEW_WARPS) : 0; // that have keys
    if constexpr (N > 0) {
        few_merge<N>(f, st, smem, box, row, head0, heads, warps, me, warp, lane);
        if (joins)
            join_runs<N>(a, box, row, head0, s_gate[FEW_WARPS - 1 - warp][lane], me, warp, lane);
    } else {
        __shared__ bool last;
        few_merge<N>(f, st, smem, box, row, head0, heads, warps, me, warp, lane);
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
template <int TYPE, bool FEW8>
static bool run_cluster(lg_cu *c, const few_args &f, unsigned groups, int rows)
{
    auto kernel = attn_few_kernel<TYPE, CLUSTER, FEW8>;
    size_t smem = (size_t)cluster_smem(f.a.group < Q_ROWS ? f.a.group : (int)Q_ROWS);
    dim3 grid(CLUSTER, groups, (unsigned)rows);
    cudaLaunchConfig_t config = {}; // for the question only
    cudaLaunchAttribute attr[1];
    int active = 0;

    if (c->arch < 90 || smem > (size_t)c->smem)
        return false;
    share_sm(c, kernel, smem);
    attr[0].id = cudaLaunchAttributeClusterDimension;
    attr[0].val.clusterDim.x = CLUSTER;
    attr[0].val.clusterDim.y = attr[0].val.clusterDim.z = 1;
    config.gridDim = grid;
    config.blockDim = dim3(32 * FEW_WARPS);
    config.dynamicSmemBytes = smem;
    config.attrs = attr;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&active, kernel, &config) != cudaSuccess || active < 1) {
        (void)cudaGetLastError(); // that was a question
        return false;
    }
    launch_clusters(c, kernel, grid, 32 * FEW_WARPS, smem, CLUSTER, f, c->step);
    // blocks of a product that takes more than half of a multiprocessor land evenly in any case
    c->uneven = c->smem < ALONE_SMEM && CLUSTER * (int)groups * rows < c->sms * 15 / 16;
    return true;
}

template <int TYPE, bool FEW8>
static void run_few(lg_cu *c, const attn_args &a, const lg_cu_qkv *qkv, int rows)
{
    few_args f = {};
    int64_t seen = a.kv.window > 0 && a.kv.window < c->ctx ? a.kv.window : c->ctx;

    f.a = a;
    f.scale = a.scale * LOG2_E;
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
    if (run_cluster<TYPE, FEW8>(c, f, groups, rows))
        return;
    auto kernel = attn_few_kernel<TYPE, 0, FEW8>;
    share_sm(c, kernel, FEW_SMEM);
    launch(c, kernel, dim3((unsigned)most_nodes(seen, f.nodes), groups, (unsigned)rows), 32 * FEW_WARPS,
           FEW_SMEM, f, c->step);
    c->uneven = true;
}

/* ---- the op ---- */

size_t lg_cu_attn_floats(int64_t max_ctx, int max_head, int head_dim)
{
    int64_t bucket = 1;

    while (bucket < max_ctx)
        bucket *= 2;
    size_t plain = lg_cu_attn_plain_floats(bucket, max_head, head_dim);
    size_t few =
        (size_t)LG_CU_EXACT_ROWS * (size_t)max_head * (size_t)most_nodes(bucket, NODES) * NODE_FLOATS;
    return plain > few ? plain : few;
}

bool lg_cu_attn_takes_qkv(const lg_cu *c, const lg_cu_qkv *q)
{
    uintptr_t all = (uintptr_t)q->q.p | (uintptr_t)q->k.p | (uintptr_t)q->v.p | (uintptr_t)q->q_norm |
                    (uintptr_t)q->k_norm | (uintptr_t)q->table;

    return c->rows == 1 && q->q.p && q->q.stride % 4 == 0 && q->kv->head_dim == HEAD &&
           q->kv->type != LG_F32 && q->n_head / q->kv->n_kv_head <= Q_ROWS && (all & 15) == 0 &&
           (!q->table || q->n_rot == HEAD / 2 || q->n_rot == HEAD);
}

void lg_cu_attn_few(lg_cu *c, const attn_args &a, const lg_cu_qkv *qkv, bool tensor, int rows)
{
    if (tensor && a.kv.type == LG_F16 && a.group <= NARROW)
        run_few<LG_F16, true>(c, a, qkv, rows);
    else if (tensor && a.kv.type == LG_F16)
        run_few<LG_F16, false>(c, a, qkv, rows);
    else if (tensor)
        run_few<LG_Q8_0, false>(c, a, qkv, rows);
    else
        lg_cu_attn_plain(c, a, rows);
}
