/*
 * backend/cuda/moe_tiles: the mixture of experts for 2 to LG_CU_EXACT_ROWS rows with weights in planes
 * (few.cuh): each expert that is chosen is read once for up to LG_CU_FEW_COLS of its rows.
 *
 * One launch for gate and up of all experts and the shared one: a block takes 32 columns and leaves a run of
 * silu(gate) * up, quantised, for each row. One for down, results by entry; then the weighted sum. A dense
 * expert (no routing) takes as many rows a block as there are. moe_few.cu has the other types.
 *
 * Groups of an expert's rows are neighbours in the grid, so that a second group finds the weights in L2.
 */
#include "backend/cuda/few.cuh"

enum {
    MOE_WARPS = 8,
    UP_COLS = 32, // of a block: two tiles of gate, two of up
    UP_TILES = 4,
    DOWN_TILES = 8, // of a block
    BLOCKS = 3,     // of a multiprocessor
    GROUP_PAIRS = LG_CU_FEW_COLS / 2,
    RING = 4352, // bytes of a warp's: two quads of Q8_0, three of Q4_K
};

struct tiles_args {
    lg_cu_ffn routed, shared;
    lg_cu_acts in, mid, mid_shared; // mid: by entry; of the shared expert's rows
    const int32_t *entry;
    const lg_cu_group *group;
    const int *n_group;
    int k, rows, n_shared; // n_shared: groups of the shared expert's rows
    int shared_at;         // rows of expert_out before those
    float *expert_out;
};

// The block's expert and its rows: those of the shared expert come first. False: nothing to do.
template <int PAIRS>
DEV bool block_group(const tiles_args &a, const lg_cu_step *step, bool *shared, lg_cu_group *g)
{
    int y = (int)blockIdx.x, n = step_rows(step, a.rows);

    *shared = y < a.n_shared;
    if (*shared) {
        int first = y * 2 * PAIRS;
        *g = {0, first, min(2 * PAIRS, n - first), 0};
        return g->n > 0;
    }
    y -= a.n_shared;
    if (n <= 0 || y >= *a.n_group)
        return false;
    *g = a.group[y];
    return true;
}

/* The group's token: its entry, or its row of the shared expert. */
DEV int slot_of(const tiles_args &a, bool shared, const lg_cu_group &g, int token)
{
    return shared ? g.first + token : a.entry[g.first + token];
}

DEV uint8_t *my_ring(uint8_t *rings)
{
    return rings + threadIdx.x / 32 * RING;
}

/* ---- gate and up ---- */

template <int T, int PAIRS>
DEV void up_tiles(const tiles_args &a, const lg_cu_ffn &f, bool shared, const lg_cu_group &g, int first,
                  uint8_t *smem, float *mid)
{
    int index, teams;
    uint8_t *parts = smem + PAIRS * pair_bytes<T>(f.gate.n_in), *mine = my_ring(parts + PAIRS * PART_BYTES);
    few_team team = team_of<PAIRS>(parts, few_sharers(f.gate.n_in), &index, &teams);
    const uint8_t *gate = matrix_at(f.gate, g.expert), *up = matrix_at(f.up, g.expert);

    auto ready = [&] {
        copy_tokens<T>(smem, a.in.q, a.in.meta, f.gate.n_in, g.n, [&](int token) {
            int slot = slot_of(a, shared, g, token);
            return shared ? slot : slot / a.k;
        });
        __syncthreads();
    };
    auto place = [&](int i) {
        int tile = index + i * teams;
        few_place at = {tile & 1 ? up : gate, first + tile / 2 * TILE_ROWS};
        return at;
    };
    auto put = [&](int i, int r, int token, float sum) {
        mid[token * UP_TILES * TILE_ROWS + (index + i * teams) * TILE_ROWS + r] = sum;
    };
    int n = index < UP_TILES ? (UP_TILES - index + teams - 1) / teams : 0;
    few_tiles<T, PAIRS, RING>(f.gate, n, shared_at(smem), mine, team, place, ready, put);
}

// T: the type of the experts, S: of the shared one. DENSE: there is only that.
template <int T, int S, int PAIRS, bool DENSE>
static __global__ void __launch_bounds__(32 * MOE_WARPS, DENSE ? 1 : BLOCKS)
    moe_up_tiles_kernel(__grid_constant__ const tiles_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[]; // rows, sums, rings
    __shared__ float mid[2 * PAIRS * UP_TILES * TILE_ROWS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = (int)blockIdx.y * UP_COLS;
    bool shared;
    lg_cu_group g;

    pdl_wait();
    if (!block_group<PAIRS>(a, step, &shared, &g))
        return;
    const lg_cu_ffn &f = shared ? a.shared : a.routed;
    int ffn = f.gate.n_out;
    if (first >= ffn)
        return;
    if (DENSE || (S != T && shared))
        up_tiles<S, PAIRS>(a, a.shared, true, g, first, smem, mid);
    else if (g.n <= 2)
        up_tiles<T, 1>(a, f, shared, g, first, smem, mid);
    else
        up_tiles<T, PAIRS>(a, f, shared, g, first, smem, mid);
    __syncthreads();
    float gate_scale = matrix_scale(f.gate, g.expert), up_scale = matrix_scale(f.up, g.expert);
    const lg_cu_acts &to = shared ? a.mid_shared : a.mid;
    for (int token = warp; token < g.n; token += MOE_WARPS) {
        const float *m = mid + token * UP_TILES * TILE_ROWS + lane / 16 * 2 * TILE_ROWS + lane % 16;
        float v = silu(m[0] * gate_scale) * (m[TILE_ROWS] * up_scale);
        size_t slot = (size_t)slot_of(a, shared, g, token);
        store_run(to.q + slot * (size_t)ffn, to.meta + slot * (size_t)(ffn / 32), first / 32, lane, v);
    }
}

/* ---- down ---- */

template <int T, int PAIRS>
DEV void down_tiles(const tiles_args &a, const lg_cu_mat &m, bool shared, const lg_cu_group &g, int first,
                    uint8_t *smem, int *slot)
{
    int index, teams, tiles = min((int)DOWN_TILES, (m.n_out - first + TILE_ROWS - 1) / TILE_ROWS);
    uint8_t *parts = smem + PAIRS * pair_bytes<T>(m.n_in), *mine = my_ring(parts + PAIRS * PART_BYTES);
    few_team team = team_of<PAIRS>(parts, few_sharers(m.n_in), &index, &teams);
    const lg_cu_acts &mid = shared ? a.mid_shared : a.mid;
    const uint8_t *p = matrix_at(m, g.expert);
    float scale = matrix_scale(m, g.expert);

    auto ready = [&] {
        if ((int)threadIdx.x < g.n)
            slot[threadIdx.x] = slot_of(a, shared, g, (int)threadIdx.x);
        copy_tokens<T>(smem, mid.q, mid.meta, m.n_in, g.n,
                       [&](int token) { return slot_of(a, shared, g, token); });
        __syncthreads();
    };
    auto row_of = [&](int i) { return min(first + (index + i * teams) * TILE_ROWS, m.n_out - TILE_ROWS); };
    auto place = [&](int i) {
        few_place at = {p, row_of(i)};
        return at;
    };
    auto put = [&](int i, int r, int token, float sum) {
        if (token < g.n)
            a.expert_out[(size_t)(slot[token] + (shared ? a.shared_at : 0)) * (size_t)m.n_out +
                         (size_t)(row_of(i) + r)] = sum * scale;
    };
    int n = index < tiles ? (tiles - index + teams - 1) / teams : 0;
    few_tiles<T, PAIRS, RING>(m, n, shared_at(smem), mine, team, place, ready, put);
}

template <int T, int S, int PAIRS>
static __global__ void __launch_bounds__(32 * MOE_WARPS, BLOCKS)
    moe_down_tiles_kernel(__grid_constant__ const tiles_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[]; // rows, sums, rings
    __shared__ int slot[2 * PAIRS];
    bool shared;
    lg_cu_group g;

    pdl_wait();
    if (!block_group<PAIRS>(a, step, &shared, &g))
        return;
    const lg_cu_mat &m = shared ? a.shared.down : a.routed.down;
    int first = (int)blockIdx.y * DOWN_TILES * TILE_ROWS;
    if (first >= m.n_out)
        return;
    if (S != T && shared)
        down_tiles<S, PAIRS>(a, m, true, g, first, smem, slot);
    else if (g.n <= 2)
        down_tiles<T, 1>(a, m, shared, g, first, smem, slot);
    else
        down_tiles<T, PAIRS>(a, m, shared, g, first, smem, slot);
}

/* ---- the op ---- */

static size_t tiles_smem(int pairs, int n_in)
{
    return (size_t)pairs * (pair_bytes<LG_Q4_K>(n_in) + PART_BYTES) + MOE_WARPS * RING;
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

template <int T, int S, int PAIRS, bool DENSE>
static void run_up(lg_cu *c, const tiles_args &a, int groups, int n_in, int ffn)
{
    size_t smem = tiles_smem(PAIRS, n_in);
    auto kernel = moe_up_tiles_kernel<T, S, PAIRS, DENSE>;

    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)groups, (unsigned)ceil_div(ffn, UP_COLS)), 32 * MOE_WARPS, smem, a,
           c->step);
}

template <int T, int S> static void run_down(lg_cu *c, const tiles_args &a, int groups, int n_in, int hidden)
{
    size_t smem = tiles_smem(GROUP_PAIRS, n_in);
    auto kernel = moe_down_tiles_kernel<T, S, GROUP_PAIRS>;

    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)groups, (unsigned)ceil_div(hidden, DOWN_TILES * TILE_ROWS)),
           32 * MOE_WARPS, smem, a, c->step);
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

template <int T, int S> static void run_group_up(lg_cu *c, const tiles_args &a, int groups, int n_in, int ffn)
{
    run_up<T, S, GROUP_PAIRS, false>(c, a, groups, n_in, ffn);
}

template <int T> static void run_dense_up(lg_cu *c, const tiles_args &a, int pairs)
{
    int n_in = a.shared.gate.n_in, ffn = a.shared.gate.n_out;

    switch (pairs) {
    case 8: run_up<T, T, 8, true>(c, a, a.n_shared, n_in, ffn); break;
    case 4: run_up<T, T, 4, true>(c, a, a.n_shared, n_in, ffn); break;
    case 2: run_up<T, T, 2, true>(c, a, a.n_shared, n_in, ffn); break;
    default: run_up<T, T, 1, true>(c, a, a.n_shared, n_in, ffn); break;
    }
}

// A dense expert: gate and up in blocks of as many rows as have room; down is a plain product.
static bool run_dense(lg_cu *c, const lg_cu_moe *m, tiles_args &a, int rows)
{
    int pairs = rows > 8 ? 8 : rows > 4 ? 4 : rows > 2 ? 2 : 1, type = m->shared->gate.type;
    lg_tensor x = {c->mid_f32, m->shared->down.n_in, m->shared->down.n_in, m->h.rows}; // quantised already
    lg_cu_part part = {};

    while (pairs > 0 && tiles_smem(pairs, m->shared->gate.n_in) + 8192 > (size_t)c->smem)
        pairs /= 2;
    if (pairs == 0)
        return false;
    a.n_shared = ceil_div(rows, 2 * pairs);
    if (type == LG_Q8_0)
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

    if (m->routed) {
        a.routed = *m->routed;
        a.n_shared = m->shared ? ceil_div(rows, LG_CU_FEW_COLS) : 0;
    }
    if (m->shared)
        a.shared = *m->shared;
    a.in = c->acts;
    a.mid = a.mid_shared = c->mid;
    a.mid_shared.q += at;
    a.mid_shared.meta += at / 32;
    take_groups(&a, c, m->routed ? m->k : 0);
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
    int groups = rows * m->k + a.n_shared, up = r->gate.type, down = r->down.type;
    if (!is_pair(up, other->gate.type) || !is_pair(down, other->down.type) ||
        tiles_smem(GROUP_PAIRS, larger(n_in, n_mid)) + 8192 > (size_t)c->smem)
        return false;
    if (c->grouped != m->ids)
        lg_cu_sort_entries(c, m, LG_CU_FEW_COLS);
    c->grouped = NULL;
    BY_PAIR(up, other->gate.type, run_group_up, c, a, groups, n_in,
            larger(r->gate.n_out, s ? s->gate.n_out : 0));
    BY_PAIR(down, other->down.type, run_down, c, a, groups, n_mid, m->out.cols);
    lg_cu_moe_sum(c, m);
    return true;
}
