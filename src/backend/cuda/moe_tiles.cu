/*
 * backend/cuda/moe_tiles: the mixture of experts for 2 to LG_CU_EXACT_ROWS rows with weights in planes
 * (few_warp.cuh): each expert that is chosen is read once for up to LG_CU_GROUP_ROWS of its rows.
 *
 * One launch for gate and up of all experts and the shared one: a block of four warps takes 32 columns, a
 * tile a warp, and leaves a run of silu(gate) * up, quantised, for each row. One for down, results by entry;
 * then the weighted sum. A dense expert (no routing) takes as many rows a block as there are, and few.cuh's
 * tiles; in Q8_0 it is moe_dense.cu's. moe_few.cu has the other types.
 *
 * The shared expert's blocks come first in the grid; then an expert's blocks are neighbours, and a second
 * group of its rows finds the weights in L2.
 *
 * Surprise: right behind a router the shared expert's blocks of gate and up do not wait for it: what they
 * read is older, and was complete when all of the router's blocks had waited for it and let this launch in.
 * So they are done when the choice is made. In the same way `down` reads the groups, and asks for weights,
 * before it waits: it comes in when all blocks of gate and up have let it in, which those of the chosen
 * experts do when the router is over.
 */
#include "backend/cuda/few_warp.cuh"

enum {
    WARPS = 4,    // of a block
    BLOCKS = 4,   // of a multiprocessor
    UP_COLS = 32, // of a block: two tiles of gate, two of up
    UP_TILES = 4,
    DOWN_SLOTS = 8, // of a warp, about
    GROUP_MOST = 4, // rows of a group, of the shared expert
    DENSE_WARPS = 8,
    // bytes of a warp's ring: four quads of Q8_0, six of Q4_K, or, where the rows need the room, half of it
    DENSE_RING = 8704,
    DENSE_LEAST = DENSE_RING / 2,
};

struct tiles_args {
    lg_cu_ffn routed, shared;
    lg_cu_acts in, mid, mid_shared; // mid: by entry; of the shared expert's rows
    const lg_cu_group *group;
    const int *n_group;
    int k, rows, n_shared; // n_shared: groups of the shared expert's rows
    unsigned by_k;         // 2^32 / k, rounded up: an entry's row is the upper half of their product
    int shared_at;         // rows of expert_out before those
    int down_tiles;        // of a block
    bool early;            // the input was complete before the launch before, which is a router's
    float *expert_out;
};

// Pairs of the shared expert's rows in a group of gate and up: what a warp has registers for. Down has one.
template <int S> static __host__ __device__ constexpr int shared_pairs(void)
{
    return S == LG_Q8_0 ? 2 : 1;
}

// The rows of group y of the shared expert. False: none.
template <int PAIRS> DEV bool shared_group(const tiles_args &a, const lg_cu_step *step, int y, lg_cu_group *g)
{
    int first = y * 2 * PAIRS;

    *g = {0, first, min(2 * PAIRS, step_rows(step, a.rows) - first), 0};
    return g->n > 0;
}

// The group of the block's row of the grid: behind those of the shared expert. False: nothing to do.
DEV bool routed_group(const tiles_args &a, const lg_cu_step *step, lg_cu_group *g)
{
    int y = (int)blockIdx.y - a.n_shared, n = __ldcg(a.n_group); // both loads at once
    int4 v = __ldcg((const int4 *)a.group + y);

    *g = {v.x, v.y, v.z, v.w};
    return step_rows(step, a.rows) > 0 && y < n;
}

/* The group's token: its entry, or its row of the shared expert. */
DEV int slot_of(bool shared, const lg_cu_group &g, int token)
{
    return shared ? g.first + token : g.both >> 16 * token & 0xFFFF;
}

/* A warp: value `lane` of a run of the token's result, which becomes a run of the input of down. mid: of the
 * token, [tile][row]. */
DEV void store_up(const tiles_args &a, bool shared, const lg_cu_group &g, int token, int first,
                  const float *mid, int lane)
{
    const lg_cu_ffn &f = shared ? a.shared : a.routed;
    const lg_cu_acts &to = shared ? a.mid_shared : a.mid;
    const float *m = mid + lane / 16 * 2 * TILE_ROWS + lane % 16;
    float v = silu(m[0] * matrix_scale(f.gate, g.expert)) * (m[TILE_ROWS] * matrix_scale(f.up, g.expert));
    size_t slot = (size_t)slot_of(shared, g, token), ffn = (size_t)f.gate.n_out;

    store_run(to.q + slot * ffn, to.meta + slot * (ffn / 32), first / 32, lane, v);
}

/* Tile i of a block's gate and up. */
DEV few_place up_place(const lg_cu_ffn &f, const lg_cu_group &g, int first, int i)
{
    few_place at = {matrix_at(i & 1 ? f.up : f.gate, g.expert), first + i / 2 * TILE_ROWS};
    return at;
}

/* ---- gate and up ---- */

template <int T, int PAIRS, bool SHARED>
DEV void up_tile(const tiles_args &a, const lg_cu_group &g, int first, uint8_t *room, uint8_t *tokens,
                 float *mid)
{
    const lg_cu_ffn &f = SHARED ? a.shared : a.routed;
    int warp = (int)threadIdx.x / 32;

    auto row_of = [&](int token) {
        int slot = slot_of(SHARED, g, token);
        return SHARED || a.k == 1 ? slot : (int)__umulhi((unsigned)slot, a.by_k);
    };
    auto ready = [&] {
        copy_tokens<T, 3>(tokens, a.in.q, a.in.meta, f.gate.n_in, g.n, row_of);
        __syncthreads();
    };
    auto place = [&](int) { return up_place(f, g, first, warp); };
    auto put = [&](int, int r, int token, float sum) {
        mid[token * UP_TILES * TILE_ROWS + warp * TILE_ROWS + r] = sum;
    };
    warp_tiles<T, PAIRS, true>(f.gate, 1, shared_at(tokens), shared_at(room), place, ready, put);
}

// T: the type of the experts, S: of the shared one.
template <int T, int S>
static __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    moe_up_tiles_kernel(__grid_constant__ const tiles_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[]; // rings, rows
    __shared__ float mid[GROUP_MOST * UP_TILES * TILE_ROWS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = (int)blockIdx.x * UP_COLS;
    bool shared = (int)blockIdx.y < a.n_shared, any;
    uint8_t *room = smem + warp * warp_ring<T, S>(), *tokens = smem + WARPS * warp_ring<T, S>();
    lg_cu_group g;

    if (shared && a.early)
        let_next();
    else
        pdl_wait();
    if (shared)
        any = shared_group<shared_pairs<S>()>(a, step, (int)blockIdx.y, &g);
    else
        any = routed_group(a, step, &g);
    if (!any || first >= (shared ? a.shared : a.routed).gate.n_out)
        return;
    if (shared)
        up_tile<S, shared_pairs<S>(), true>(a, g, first, room, tokens, mid);
    else
        up_tile<T, 1, false>(a, g, first, room, tokens, mid);
    __syncthreads();
    if (warp < g.n)
        store_up(a, shared, g, warp, first, mid + warp * UP_TILES * TILE_ROWS, lane);
}

static_assert((int)GROUP_MOST <= (int)WARPS && (int)UP_TILES == (int)WARPS, "a warp a row, and a tile");
static_assert((int)LG_CU_GROUP_ROWS <= 2, "a pair");

/* ---- gate and up of a dense expert ---- */

template <int T, int PAIRS, int RING>
static __global__ void __launch_bounds__(32 * DENSE_WARPS, 1)
    moe_up_dense_kernel(__grid_constant__ const tiles_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[]; // rows, sums, rings
    __shared__ float mid[2 * PAIRS * UP_TILES * TILE_ROWS];
    const lg_cu_ffn &f = a.shared;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = (int)blockIdx.x * UP_COLS, index, teams;
    uint8_t *parts = smem + PAIRS * pair_bytes<T>(f.gate.n_in), *rings = parts + PAIRS * PART_BYTES;
    few_team team = team_of<PAIRS>(parts, few_sharers(f.gate.n_in), &index, &teams);
    lg_cu_group g;

    if (!shared_group<PAIRS>(a, step, (int)blockIdx.y, &g) || first >= f.gate.n_out) {
        pdl_wait();
        return;
    }
    auto ready = [&] {
        pdl_wait();
        copy_tokens<T, 3>(smem, a.in.q, a.in.meta, f.gate.n_in, g.n,
                          [&](int token) { return g.first + token; });
        __syncthreads();
    };
    auto place = [&](int i) { return up_place(f, g, first, index + i * teams); };
    auto put = [&](int i, int r, int token, float sum) {
        mid[token * UP_TILES * TILE_ROWS + (index + i * teams) * TILE_ROWS + r] = sum;
    };
    int n = index < UP_TILES ? (UP_TILES - index + teams - 1) / teams : 0;
    few_tiles<T, PAIRS, RING>(f.gate, n, shared_at(smem), rings + warp * RING, team, place, ready, put);
    __syncthreads();
    for (int token = warp; token < g.n; token += DENSE_WARPS)
        store_up(a, true, g, token, first, mid + token * UP_TILES * TILE_ROWS, lane);
}

/* ---- down ---- */

template <int T, bool SHARED>
DEV void down_tiles(const tiles_args &a, const lg_cu_group &g, int first, uint8_t *room, uint8_t *tokens)
{
    const lg_cu_mat &m = SHARED ? a.shared.down : a.routed.down;
    const lg_cu_acts &mid = SHARED ? a.mid_shared : a.mid;
    int all = (m.n_out + TILE_ROWS - 1) / TILE_ROWS, tile0 = first + (int)threadIdx.x / 32;
    int n = (min(first + a.down_tiles, all) - tile0 + WARPS - 1) / WARPS;
    float scale = matrix_scale(m, g.expert);

    auto slot_at = [&](int token) { return slot_of(SHARED, g, token); };
    auto ready = [&] {
        pdl_wait();
        copy_tokens<T, 3>(tokens, mid.q, mid.meta, m.n_in, g.n, slot_at);
        __syncthreads();
    };
    // the last tile may have rows of the one before
    auto row_of = [&](int i) { return min((tile0 + i * WARPS) * TILE_ROWS, m.n_out - TILE_ROWS); };
    auto place = [&](int i) {
        few_place at = {matrix_at(m, g.expert), row_of(i)};
        return at;
    };
    auto put = [&](int i, int r, int token, float sum) {
        if (token < g.n)
            a.expert_out[(size_t)(slot_at(token) + (SHARED ? a.shared_at : 0)) * (size_t)m.n_out +
                         (size_t)(row_of(i) + r)] = sum * scale;
    };
    warp_tiles<T, 1, false>(m, max(n, 0), shared_at(tokens), shared_at(room), place, ready, put);
}

template <int T, int S>
static __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    moe_down_tiles_kernel(__grid_constant__ const tiles_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[]; // rings, rows
    int warp = threadIdx.x / 32, first = (int)blockIdx.x * a.down_tiles;
    bool shared = (int)blockIdx.y < a.n_shared, any;
    uint8_t *room = smem + warp * warp_ring<T, S>(), *tokens = smem + WARPS * warp_ring<T, S>();
    lg_cu_group g;

    if (shared)
        any = shared_group<1>(a, step, (int)blockIdx.y, &g);
    else
        any = routed_group(a, step, &g);
    if (!any) {
        pdl_wait();
        return;
    }
    if (shared)
        down_tiles<S, true>(a, g, first, room, tokens);
    else
        down_tiles<T, false>(a, g, first, room, tokens);
}

/* ---- the op ---- */

// Of a launch for groups, and of one for a dense expert.
template <int T, int S> static size_t group_smem(int n_in)
{
    return (size_t)(WARPS * warp_ring<T, S>()) + GROUP_MOST / 2 * (size_t)pair_bytes<LG_Q4_K>(n_in);
}

static size_t dense_smem(int pairs, int ring, int n_in)
{
    return (size_t)pairs * (pair_bytes<LG_Q4_K>(n_in) + PART_BYTES) + (size_t)(DENSE_WARPS * ring);
}

static bool takes(const lg_cu_ffn *f)
{
    return few_takes(&f->gate) && few_takes(&f->up) && few_takes(&f->down) && f->gate.type == f->up.type &&
           f->gate.n_out % UP_COLS == 0;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

// Tiles of a block of down: a warp's are about DOWN_SLOTS slots, and no block has fewer than others, if that
// can be.
static int tiles_of_down(const lg_cu_mat *m)
{
    int slots = m->n_in / (m->type == LG_Q8_0 ? 128 : 256), all = ceil_div(m->n_out, TILE_ROWS);
    int most = slots < DOWN_SLOTS ? DOWN_SLOTS / slots : 1;

    for (int i = most; i > most / 2; i--)
        if (all % (WARPS * i) == 0)
            return WARPS * i;
    return WARPS * most;
}

// rows: of the shared expert, or 0; entries: of the others.
template <int T, int S> static void run_up(lg_cu *c, tiles_args &a, int rows, int entries, int n_in, int ffn)
{
    size_t smem = group_smem<T, S>(n_in);
    auto kernel = moe_up_tiles_kernel<T, S>;

    a.n_shared = ceil_div(rows, 2 * shared_pairs<S>());
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)ceil_div(ffn, UP_COLS), (unsigned)(a.n_shared + entries)), 32 * WARPS,
           smem, a, c->step);
}

template <int T, int S>
static void run_down(lg_cu *c, tiles_args &a, int rows, int entries, int n_in, int hidden)
{
    size_t smem = group_smem<T, S>(n_in);
    auto kernel = moe_down_tiles_kernel<T, S>;

    a.n_shared = ceil_div(rows, 2);
    share_sm(c, kernel, smem);
    launch(c, kernel,
           dim3((unsigned)ceil_div(hidden, a.down_tiles * TILE_ROWS), (unsigned)(a.n_shared + entries)),
           32 * WARPS, smem, a, c->step);
}

// Experts of type t, the shared one of s (or none): what there are kernels for.
static bool is_pair(int t, int s)
{
    return s == t || s == LG_Q8_0;
}

// do(T, S) with both types as constants.
#define BY_PAIR(t, s, run, ...)                                          \
    ((t) == LG_Q8_0                 ? run<LG_Q8_0, LG_Q8_0>(__VA_ARGS__) \
     : (t) == LG_Q4_K && (s) == (t) ? run<LG_Q4_K, LG_Q4_K>(__VA_ARGS__) \
     : (t) == LG_Q4_K               ? run<LG_Q4_K, LG_Q8_0>(__VA_ARGS__) \
     : (s) == (t)                   ? run<LG_Q6_K, LG_Q6_K>(__VA_ARGS__) \
                                    : run<LG_Q6_K, LG_Q8_0>(__VA_ARGS__))

template <int T, int PAIRS, int RING> static void run_dense_ring(lg_cu *c, const tiles_args &a)
{
    size_t smem = dense_smem(PAIRS, RING, a.shared.gate.n_in);
    auto kernel = moe_up_dense_kernel<T, PAIRS, RING>;

    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)ceil_div(a.shared.gate.n_out, UP_COLS), (unsigned)a.n_shared),
           32 * DENSE_WARPS, smem, a, c->step);
}

// Does a block have room for so many rows?
static bool dense_fits(const lg_cu *c, int pairs, int ring, int n_in)
{
    return dense_smem(pairs, ring, n_in) + 8192 <= (size_t)c->smem;
}

template <int T, int PAIRS> static void run_dense_pairs(lg_cu *c, const tiles_args &a)
{
    if (dense_fits(c, PAIRS, DENSE_RING, a.shared.gate.n_in))
        run_dense_ring<T, PAIRS, DENSE_RING>(c, a);
    else
        run_dense_ring<T, PAIRS, DENSE_LEAST>(c, a);
}

template <int T> static void run_dense_up(lg_cu *c, const tiles_args &a, int pairs)
{
    switch (pairs) {
    case 8: run_dense_pairs<T, 8>(c, a); break;
    case 4: run_dense_pairs<T, 4>(c, a); break;
    case 2: run_dense_pairs<T, 2>(c, a); break;
    default: run_dense_pairs<T, 1>(c, a); break;
    }
}

// A dense expert: gate and up in blocks of as many rows as have room; down is a plain product.
static bool run_dense(lg_cu *c, const lg_cu_moe *m, tiles_args &a, int rows)
{
    int pairs = rows > 8 ? 8 : rows > 4 ? 4 : rows > 2 ? 2 : 1, type = m->shared->gate.type;
    lg_tensor x = {c->mid_f32, m->shared->down.n_in, m->shared->down.n_in, m->h.rows}; // quantised already
    lg_cu_part part = {};

    while (pairs > 0 && !dense_fits(c, pairs, DENSE_LEAST, m->shared->gate.n_in))
        pairs /= 2;
    if (pairs == 0)
        return false;
    a.n_shared = ceil_div(rows, 2 * pairs);
    if (lg_cu_dense_up(c, m->shared, &a.mid_shared, m->h.rows))
        ;
    else if (type == LG_Q8_0)
        run_dense_up<LG_Q8_0>(c, a, pairs);
    else if (type == LG_Q4_K)
        run_dense_up<LG_Q4_K>(c, a, pairs);
    else
        run_dense_up<LG_Q6_K>(c, a, pairs);
    part.w = m->shared->down;
    part.y = m->out.p;
    part.y_stride = m->out.stride;
    lg_cu_gemv(c, &x, &a.mid_shared, &part, 1);
    return true;
}

static tiles_args args_of(lg_cu *c, const lg_cu_moe *m, int rows)
{
    tiles_args a = {};
    size_t at = m->routed ? (size_t)(rows * m->k) * (size_t)m->routed->gate.n_out : 0;

    if (m->routed)
        a.routed = *m->routed;
    if (m->shared)
        a.shared = *m->shared;
    a.in = c->acts;
    a.mid = a.mid_shared = c->mid;
    a.mid_shared.q += at;
    a.mid_shared.meta += at / 32;
    a.group = c->group;
    a.n_group = c->n_group;
    a.k = m->routed ? m->k : 0;
    a.by_k = a.k > 1 ? (unsigned)(((1ull << 32) + (unsigned)a.k - 1) / (unsigned)a.k) : 0;
    a.rows = m->h.rows;
    a.shared_at = rows * a.k;
    a.expert_out = c->expert_out;
    return a;
}

bool lg_cu_moe_tiles(lg_cu *c, const lg_cu_moe *m)
{
    const lg_cu_ffn *r = m->routed, *s = m->shared;
    int rows = bucket_rows(c, m->h.rows);

    if (rows < 2 || (r && !takes(r)) || (s && !takes(s)))
        return false;
    tiles_args a = args_of(c, m, rows);
    if (!r)
        return run_dense(c, m, a, rows);
    const lg_cu_ffn *other = s ? s : r;
    int n_in = larger(r->gate.n_in, other->gate.n_in), n_mid = larger(r->down.n_in, other->down.n_in);
    int entries = rows * m->k, shared = s ? rows : 0, up = r->gate.type, down = r->down.type;
    if (!is_pair(up, other->gate.type) || !is_pair(down, other->down.type) ||
        group_smem<LG_Q6_K, LG_Q8_0>(larger(n_in, n_mid)) + 2048 > (size_t)c->smem)
        return false;
    a.early = c->routed == c->launches;
    if (c->grouped != m->ids)
        lg_cu_sort_entries(c, m, LG_CU_GROUP_ROWS);
    c->grouped = NULL;
    a.down_tiles = tiles_of_down(&r->down);
    BY_PAIR(up, other->gate.type, run_up, c, a, shared, entries, n_in,
            larger(r->gate.n_out, s ? s->gate.n_out : 0));
    BY_PAIR(down, other->down.type, run_down, c, a, shared, entries, n_mid, m->out.cols);
    lg_cu_moe_sum(c, m);
    return true;
}
