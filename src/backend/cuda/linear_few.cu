/*
 * backend/cuda/linear_few: products of 2 to LG_CU_EXACT_ROWS rows with weights in planes (few.cuh; Q8_0:
 * few_cols.cuh).
 *
 * A block a multiprocessor, with its share of all tiles and the rows in shared memory. Where those have no
 * room, as of sixteen rows of 9,216, their columns come in turns, or, for other types than Q8_0, launches
 * take some rows each.
 */
#include "backend/cuda/few_cols.cuh"

enum { LINEAR_WARPS = 16 };

// Bytes of a warp's ring: three quads of Q8_0, or two where the rows need the room.
enum { WIDE_RING = 6528, NARROW_RING = 4352 };

struct few_args {
    lg_cu_part part[LG_CU_PARTS];            // first_group: the first tile, counted through all parts
    int n_parts, n_tiles, n_in, first, rows; // first: of the rows that this launch takes
    lg_cu_acts acts;
};

template <int T, int PAIRS, int RING>
static __global__ void __launch_bounds__(32 * LINEAR_WARPS, 1)
    linear_few_kernel(__grid_constant__ const few_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[]; // rows, sums, rings
    unsigned blocks = gridDim.x, total = (unsigned)a.n_tiles;
    int first = (int)(total * blockIdx.x / blocks), end = (int)(total * (blockIdx.x + 1) / blocks);
    int index, teams, n_rows = -1;
    uint8_t *parts = smem + PAIRS * pair_bytes<T>(a.n_in),
            *rings = parts + LINEAR_WARPS / SHARERS * PAIRS * PART_BYTES;
    uint8_t *mine = rings + threadIdx.x / 32 * RING;
    few_team team = team_of<PAIRS>(parts, few_sharers(a.n_in), &index, &teams);

    auto ready = [&] {
        if (n_rows >= 0)
            return;
        pdl_wait();
        n_rows = max(0, min(step_rows(step, a.rows) - a.first, 2 * PAIRS));
        copy_tokens<T, T == LG_Q8_0 ? 2 : 1>(smem, a.acts.q, a.acts.meta, a.n_in, n_rows,
                                             [&](int token) { return a.first + token; });
        __syncthreads();
    };
    for (int p = 0; p < a.n_parts; p++) {
        const lg_cu_part &part = a.part[p];
        int from = max(first, part.first_group),
            to = min(end, part.first_group + (part.w.n_out + TILE_ROWS - 1) / TILE_ROWS);
        if (from >= to) // for all of the block
            continue;
        int tile0 = from - part.first_group + index, n = (to - from - index + teams - 1) / teams;
        auto row_of = [&](int i) { // the last tile may have rows of the one before
            return min((tile0 + i * teams) * TILE_ROWS, part.w.n_out - TILE_ROWS);
        };
        auto place = [&](int i) {
            few_place at = {part.w.p, row_of(i)};
            return at;
        };
        auto put = [&](int i, int r, int token, float sum) {
            if (token < n_rows)
                part.y[(size_t)(a.first + token) * (size_t)part.y_stride + (size_t)(row_of(i) + r)] =
                    sum * part.w.scale;
        };
        few_tiles<T, PAIRS, RING>(part.w, max(n, 0), shared_at(smem), mine, team, place, ready, put);
    }
}

/* ---- Q8_0 ---- */

struct cols_args {
    few_args few;
    int kw; // warps of a team
};

// The part that has tile i.
DEV const lg_cu_part &part_of(const few_args &a, int i)
{
    int p = 0;

    while (p + 1 < a.n_parts && i >= a.part[p + 1].first_group)
        p++;
    return a.part[p];
}

// The first row of tile i of a part; the last tile may have rows of the one before.
DEV int row_of(const lg_cu_part &part, int i)
{
    return min((i - part.first_group) * TILE_ROWS, part.w.n_out - TILE_ROWS);
}

// STREAM: the tokens' columns come in turns.
template <int NT, int DEPTH, bool STREAM>
static __global__ void __launch_bounds__(32 * LINEAR_WARPS, 1)
    linear_cols_kernel(__grid_constant__ const cols_args args, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[]; // tokens, sums (STREAM: in their place), rings
    const few_args &a = args.few;
    unsigned blocks = gridDim.x, total = (unsigned)a.n_tiles;
    int first = (int)(total * blockIdx.x / blocks), end = (int)(total * (blockIdx.x + 1) / blocks);
    int rows = min(step_rows(step, a.rows), NT * (int)COLS_EIGHT), index = (int)threadIdx.x / 32 / args.kw,
        teams = LINEAR_WARPS / args.kw;
    unsigned room = STREAM ? 2 * cols_bytes<NT>(COLS_CHUNK) : cols_bytes<NT>(a.n_in);
    uint8_t *parts = STREAM ? smem : smem + room,
            *rings = STREAM ? parts + room : parts + (unsigned)teams * cols_parts<NT>(args.kw);
    uint8_t *ring = rings + threadIdx.x / 32 * (DEPTH * COLS_SLOT);
    few_team team = {args.kw, (int)threadIdx.x / 32 % args.kw, 1 + index, 0,
                     (float4 *)(parts + (unsigned)index * cols_parts<NT>(args.kw))};
    int n = max((end - first - index + teams - 1) / teams, 0);

    auto place = [&](int i) {
        int tile = first + index + i * teams;
        const lg_cu_part &part = part_of(a, tile);
        cols_place at = {&part.w, part.w.p, row_of(part, tile)};
        return at;
    };
    auto put = [&](int i, int r, int token, float sum) {
        int tile = first + index + i * teams;
        const lg_cu_part &part = part_of(a, tile);
        if (token < rows)
            part.y[(size_t)token * (size_t)part.y_stride + (size_t)(row_of(part, tile) + r)] =
                sum * part.w.scale;
    };
    if (STREAM) {
        auto stage = [&](unsigned to, int from, int columns) {
            cols_stage<NT>(to, a.acts, a.n_in, from, columns, rows);
        };
        cols_stream<NT, DEPTH>(
            a.n_in, n, (end - first + teams - 1) / teams, shared_at(smem), ring, team, place,
            [] { pdl_wait(); }, stage, put);
        return;
    }
    auto ready = [&] {
        pdl_wait();
        cols_stage<NT>(shared_at(smem), a.acts, a.n_in, 0, a.n_in, rows);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
    };
    cols_tiles<NT, DEPTH>(a.n_in, n, shared_at(smem), ring, team, place, ready, put, [](int) {});
}

template <int NT, int DEPTH, bool STREAM> static size_t cols_smem(int n_in, int kw)
{
    size_t rings = (size_t)(LINEAR_WARPS * DEPTH * COLS_SLOT);

    if (STREAM)
        return 2 * (size_t)cols_bytes<NT>(COLS_CHUNK) + rings;
    return (size_t)cols_bytes<NT>(n_in) + (size_t)(LINEAR_WARPS / kw) * cols_parts<NT>(kw) + rings;
}

template <int NT, int DEPTH, bool STREAM> static bool run_cols(lg_cu *c, const few_args &few)
{
    cols_args a = {few, few_sharers(few.n_in)};
    size_t smem = cols_smem<NT, DEPTH, STREAM>(few.n_in, a.kw);
    auto kernel = linear_cols_kernel<NT, DEPTH, STREAM>;

    if (smem + 1024 > (size_t)c->smem || (STREAM && few.n_in <= COLS_CHUNK))
        return false;
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)(few.n_tiles < c->sms ? few.n_tiles : c->sms)), 32 * LINEAR_WARPS, smem,
           a, c->step);
    return true;
}

// False: no room; nothing was done.
static bool run_q8(lg_cu *c, const few_args &a, int rows)
{
    if (rows <= COLS_EIGHT)
        return run_cols<1, 4, false>(c, a) || run_cols<1, 3, false>(c, a) || run_cols<1, 4, true>(c, a);
    return run_cols<2, 3, false>(c, a) || run_cols<2, 4, true>(c, a);
}

static_assert(2 * COLS_EIGHT >= (int)LG_CU_EXACT_ROWS, "twice eight columns");

/* ---- the op ---- */

template <int T> static size_t few_smem(int pairs, int ring, int n_in)
{
    return (size_t)pairs * (pair_bytes<T>(n_in) + LINEAR_WARPS / SHARERS * PART_BYTES) +
           (size_t)(LINEAR_WARPS * ring);
}

template <int T, int PAIRS, int RING> static void run(lg_cu *c, few_args &a, int rows)
{
    size_t smem = few_smem<T>(PAIRS, RING, a.n_in);
    dim3 grid((unsigned)(a.n_tiles < c->sms ? a.n_tiles : c->sms));
    auto kernel = linear_few_kernel<T, PAIRS, RING>;

    share_sm(c, kernel, smem);
    for (a.first = 0; a.first < rows; a.first += 2 * PAIRS)
        launch(c, kernel, grid, 32 * LINEAR_WARPS, smem, a, c->step);
}

// As many rows a launch as have room; false: none.
template <int T> static bool run_pairs(lg_cu *c, few_args &a, int rows)
{
    auto fits = [&](int pairs, int ring) { return few_smem<T>(pairs, ring, a.n_in) <= (size_t)c->smem; };

    if (rows > 8 && fits(8, WIDE_RING))
        run<T, 8, WIDE_RING>(c, a, rows);
    else if (rows > 8 && fits(8, NARROW_RING))
        run<T, 8, NARROW_RING>(c, a, rows);
    else if (rows > 4 && fits(4, WIDE_RING))
        run<T, 4, WIDE_RING>(c, a, rows);
    else if (rows > 4 && fits(4, NARROW_RING))
        run<T, 4, NARROW_RING>(c, a, rows);
    else if (rows > 2 && fits(2, WIDE_RING))
        run<T, 2, WIDE_RING>(c, a, rows);
    else if (fits(1, WIDE_RING))
        run<T, 1, WIDE_RING>(c, a, rows);
    else
        return false;
    return true;
}

// The parts of one type; those that are not taken go to rest.
template <int T>
static int run_type(lg_cu *c, few_args &a, const lg_cu_part *parts, int n_parts, int rows, lg_cu_part *rest)
{
    int n_rest = 0;

    a.n_parts = a.n_tiles = 0;
    for (int p = 0; p < n_parts; p++) {
        if (parts[p].w.type != T || !few_takes(&parts[p].w))
            continue;
        a.part[a.n_parts] = parts[p];
        a.part[a.n_parts++].first_group = a.n_tiles;
        a.n_tiles += ceil_div(parts[p].w.n_out, TILE_ROWS);
    }
    if (a.n_parts > 0 && !(T == LG_Q8_0 && run_q8(c, a, rows)) && !run_pairs<T>(c, a, rows))
        for (; n_rest < a.n_parts; n_rest++)
            rest[n_rest] = a.part[n_rest];
    return n_rest;
}

int lg_cu_linear_few(lg_cu *c, const lg_cu_acts *acts, lg_rows kind, const lg_cu_part *parts, int n_parts,
                     lg_cu_part *rest)
{
    few_args a = {};
    int rows = bucket_rows(c, kind), n = 0;

    a.n_in = parts[0].w.n_in;
    a.rows = kind;
    a.acts = *acts;
    for (int p = 0; p < n_parts; p++)
        if (!few_takes(&parts[p].w))
            rest[n++] = parts[p];
    n += run_type<LG_Q8_0>(c, a, parts, n_parts, rows, rest + n);
    n += run_type<LG_Q4_K>(c, a, parts, n_parts, rows, rest + n);
    n += run_type<LG_Q6_K>(c, a, parts, n_parts, rows, rest + n);
    return n;
}
