/*
 * backend/cuda/moe_stream: the experts of LG_CU_EXACT_ROWS + 1 to LG_CU_CODE_ROWS rows, from sm_90 on, with
 * the instruction of few.cuh: most experts are chosen by one to three of the rows, and their weights are to
 * come as fast as the memory gives them.
 *
 * BLOCKS blocks a multiprocessor stay for the whole launch. A block has a range of items (32 columns of gate
 * and of up, or some rows of down, of a group of at most GROUP rows of an expert), which lie in one expert or
 * two; groups of more than two rows count for more. The last groups are taken by turns instead, since
 * multiprocessors are not equally fast. Whole rows come through a ring that does not end with an item: a slot
 * is 16, 32 or 64 rows, contiguous in every plane, so one lane asks for it with a bulk copy a plane (two
 * where gate and up share a slot).
 *
 * The eight warps of a block share a slot: kw of them a tile of 16 rows, each every kw-th quad of runs. One
 * barrier a slot says that its sums are there and that its place is free; while a warp adds those up, the
 * others go on. Sums do not run in the order of up to LG_CU_EXACT_ROWS rows.
 */
#include "backend/cuda/few.cuh"

enum {
    WARPS = 8,
    BLOCKS = 3,         // of a multiprocessor
    BLOCK_SMEM = 76800, // and 1 KiB of the system's: three times in 228 KiB
    GROUP = LG_CU_FEW_COLS,
    MOST_PAIRS = GROUP / 2,
    UP_COLS = 32,
    UP_TILES = 4, // of an item: two of gate, two of up
    MOST_DEPTH = 8,
    LIGHT = 8,  // what an item costs with two tokens at most,
    HEAVY = 10, // and with more
    SHARED = 8, // a group in so many is shared out by turns
    TURNS = 16, // of a block that are asked for and not begun, and some
    PARTS = WARPS * MOST_PAIRS * 32, // sums of a slot: [warp][pair][lane]
};

/* ---- shared memory ---- */

// Where the next row of an expert's matrix is, in each plane.
struct row_at {
    const uint8_t *codes, *high, *scales, *block;
};

// One thread's: what is still to be asked for. Rows are asked for in the order in which they lie, matrix by
// matrix.
struct __align__(16) asked_items
{
    row_at next[2];  // of gate and up, or down
    int left, group; // slots of the block; the group that is asked for, and
    int ready, slot; // how many of its items are not begun, and which slot of an item is next
    int first, end;  // the block's own items
    int4 group_first; // the group of the first of them
    int turns;       // that have been taken; below 0: there are no more
    int turn[TURNS]; // their first items; below 0: none
};

// The group in turn: its tokens, and the scales of its matrices.
struct __align__(16) group_now
{
    int first, n, entry[GROUP];
    float scale[2];
};

// What is behind the slots: tokens, sums of two slots, sums of an item and a slot, barriers, the group in
// turn, a run of zeros, and what is asked for.
struct rooms {
    unsigned tokens, parts, columns, bars, group, zeros, asked, bytes;
};

// Bytes of a row in each plane.
struct row_planes {
    unsigned codes, high, scales, block;
};

// How a matrix goes through slots.
struct stream_plan {
    int kw, tiles, quads;          // warps of a tile, tiles of a slot; quads of a row for each warp
    int depth, slot, slots, items; // slots; bytes of one; slots of an item, items of a group
    int step;                      // items of a turn
    rooms room;
    row_planes row;
};

struct stream_args {
    lg_cu_mat m[2]; // gate and up; or down
    stream_plan plan;
    lg_cu_acts in;  // by row; of down: by sorted entry
    lg_cu_acts mid; // of gate and up: by sorted entry
    float *out;     // of down: by entry
    const lg_cu_group *group;
    int *n_group;
    const int32_t *entry;
    int k;
};

// A shape in the form that the loops want: constants, if N_IN is not 0. KW: plan.kw then.
struct shape {
    int n_in, kw, tiles, quads;
    row_planes row;
};

template <int T> static __host__ __device__ __forceinline__ row_planes planes_of_row(unsigned n)
{
    row_planes r = {T == LG_Q8_0 ? n : n / 2, T == LG_Q6_K ? n / 4 : 0, n / 16, T == LG_Q6_K ? n / 128 : 0};
    return r;
}

template <int T, int N_IN, int KW> DEV shape shape_of(const stream_args &a)
{
    shape s = {a.m[0].n_in, a.plan.kw, a.plan.tiles, a.plan.quads, a.plan.row};

    if constexpr (N_IN > 0)
        s = {N_IN, KW, WARPS / KW, N_IN / 128 / KW, planes_of_row<T>(N_IN)};
    return s;
}

/* ---- weights ---- */

// The next n rows of a matrix to row `to_row` of a slot of `rows` rows.
template <int T>
DEV void copy_planes(unsigned to, unsigned rows, unsigned to_row, row_at &from, const row_planes &b,
                     unsigned n, unsigned bar)
{
    auto copy = [&](const uint8_t *&plane, unsigned bytes) { // bytes of a row
        copy_once(to + to_row * bytes, plane, n * bytes, bar);
        plane += n * bytes;
        to += rows * bytes;
    };
    copy(from.codes, b.codes);
    if (T == LG_Q6_K)
        copy(from.high, b.high);
    copy(from.scales, b.scales);
    if (T == LG_Q6_K)
        copy(from.block, b.block);
}

template <int T> DEV row_at row_of(const lg_cu_mat &m, const row_planes &b, int expert, int row)
{
    const uint8_t *p = matrix_at(m, expert);
    size_t n = (size_t)row;
    row_at r = {p + n * b.codes, p + m.at[0] + n * b.high, p + m.at[T == LG_Q6_K ? 1 : 0] + n * b.scales,
                p + m.at[2] + n * b.block};
    return r;
}

// One thread: item `within` of the group, which is of `expert`, is the next, and `items` of the group are
// left.
template <int T, bool UP>
DEV void ask_group(const stream_args &a, asked_items &s, int expert, int within, int items)
{
    int row = within * (UP ? (int)UP_COLS : a.plan.tiles * (int)TILE_ROWS);

    s.next[0] = row_of<T>(a.m[0], a.plan.row, expert, row);
    if (UP)
        s.next[1] = row_of<T>(a.m[1], a.plan.row, expert, row);
    s.ready = items;
}

DEV int expert_of(const stream_args &a, int group)
{
    return __ldcg(&a.group[group].expert);
}

// Groups of n that are not taken by turns.
DEV int own_groups(int n)
{
    return n - n / SHARED;
}

// One thread: the next turn is the block's, if there is one. n_group[3], [4]: turns taken of gate and up, of
// down.
template <int T, bool UP> DEV bool take_turn(const stream_args &a, asked_items &s)
{
    int items = a.plan.items, *taken = a.n_group + (UP ? 3 : 4);

    if (s.turns < 0)
        return false;
    int n = __ldcg(&a.n_group[0]), first = own_groups(n) * items + atomicAdd(taken, 1) * a.plan.step;
    if (first >= n * items) {
        s.turn[s.turns % TURNS] = -1;
        s.turns = -1;
        return false;
    }
    s.turn[s.turns++ % TURNS] = first;
    s.left = a.plan.step * a.plan.slots;
    s.group = first / items;
    first -= s.group * items;
    ask_group<T, UP>(a, s, expert_of(a, s.group), first, items - first);
    return true;
}

// One thread: the next slot, if there is one, to `to`.
template <int T, bool UP> DEV void ask(const stream_args &a, asked_items &s, unsigned to, unsigned bar)
{
    unsigned rows = (unsigned)(a.plan.tiles * TILE_ROWS), n = UP ? min(rows, (unsigned)UP_COLS) : rows;

    if (s.left == 0 && !take_turn<T, UP>(a, s))
        return;
    bar_expect(bar, (unsigned)a.plan.slot);
    // 32 rows of gate, then 32 of up, in slots of 16, 32 or 64
    bool up = UP && (unsigned)s.slot * rows >= UP_COLS;
    copy_planes<T>(to, rows, 0, s.next[up], a.plan.row, n, bar);
    if (n < rows)
        copy_planes<T>(to, rows, n, s.next[1], a.plan.row, n, bar);
    s.left--;
    if (++s.slot < a.plan.slots)
        return;
    s.slot = 0;
    if (--s.ready == 0 && s.left > 0) {
        s.group++;
        ask_group<T, UP>(a, s, expert_of(a, s.group), 0, a.plan.items);
    }
}

/* ---- products ---- */

// Where the lane's part of its warp's first quad is: offsets in a slot, and addresses of tokens. Lanes beside
// the diagonal read zeros, all the time.
template <int T> struct lane_place {
    unsigned codes, high, scales, block, q, meta;
    int run8;
    bool mine; // on the diagonal
};

template <int T> DEV lane_place<T> lane_place_of(const stream_args &a, const shape &s, unsigned base)
{
    int lane = threadIdx.x % 32, warp = warp_index(), g = lane / 4, t = lane % 4;
    int part = warp & (s.kw - 1), run = 4 * part + t;
    unsigned tokens = base + a.plan.room.tokens;
    unsigned rows = (unsigned)(s.tiles * TILE_ROWS), row = (unsigned)(warp / s.kw * TILE_ROWS + g);
    const row_planes &b = s.row;
    lane_place<T> p;

    p.codes = row * b.codes + (unsigned)run * 16;
    p.high = rows * b.codes + row * b.high + (unsigned)run * 8;
    p.scales = rows * (b.codes + b.high) + row * b.scales + (unsigned)(T == LG_Q4_K ? run / 8 * 16 : run * 2);
    p.block = rows * (b.codes + b.high + b.scales) + row * b.block + (unsigned)(run / 8 * 2);
    p.mine = g / 2 == t;
    p.q = p.mine ? tokens + (unsigned)((g & 1) * (s.n_in + 16) + run * 32) : base + a.plan.room.zeros;
    p.meta = tokens + (unsigned)run * 8;
    p.run8 = run & 7;
    return p;
}

template <int T>
DEV void take_quad(few_quad<T> &k, const uint8_t *slot, const lane_place<T> &p, const row_planes &b)
{
#pragma unroll
    for (unsigned r = 0; r < 2; r++) {
        const uint8_t *codes = slot + p.codes + 8 * r * b.codes, *scales = slot + p.scales + 8 * r * b.scales;
        uint4 y = {};
        uint2 h = {};
        if (T == LG_Q8_0)
            y = *(const uint4 *)(codes + b.codes / 2);
        if (T == LG_Q6_K)
            h = *(const uint2 *)(slot + p.high + 8 * r * b.high);
        few_codes<T>(k, (int)r, *(const uint4 *)codes, y, h);
        if (T == LG_Q4_K) {
            k_scales(*(const uint4 *)scales, p.run8, &k.s[r], &k.m[r]);
        } else {
            unsigned s = *(const unsigned short *)scales;
            k.s[r] = half_bits(s);
            if (T == LG_Q6_K) {
                float f = half_bits(*(const unsigned short *)(slot + p.block + 8 * r * b.block));
                k.s[r] = f * (float)(int8_t)(s & 0xFF);
                k.m[r] = f * (float)(int8_t)(s >> 8);
            }
        }
    }
}

DEV void shared_run(unsigned (&b)[8], unsigned at)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%8];\n\t"
                 "ld.shared.v4.u32 {%4, %5, %6, %7}, [%8 + 16];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]), "=r"(b[4]), "=r"(b[5]), "=r"(b[6]),
                   "=r"(b[7])
                 : "r"(at));
}

// The warp's quads of a slot times its tokens.
template <int T, int PAIRS, bool KNOWN>
DEV void slot_products(float (&acc)[PAIRS][4], const shape &s, const uint8_t *slot, lane_place<T> p)
{
    unsigned kw = (unsigned)s.kw, pair = pair_bytes<T>(s.n_in), q_pair = p.mine ? pair : 0,
             q_next = p.mine ? kw * 128 : 0;
    const pair_planes plane = planes_of(s.n_in);

#pragma unroll(KNOWN ? 4 : 1)
    for (int n = s.quads; n > 0; n--) {
        few_quad<T> k;
        take_quad<T>(k, slot, p, s.row);
#pragma unroll
        for (int c = 0; c < PAIRS; c++) {
            unsigned b[8];
            shared_run(b, p.q + (unsigned)c * q_pair);
            few_dot<T>(acc[c], k, b, p.meta + (unsigned)c * pair, plane);
        }
        p.codes += kw * 64;
        p.high += kw * 32;
        p.scales += kw * 8;
        p.block += kw;
        p.q += q_next;
        p.meta += kw * 32;
    }
}

/* ---- the kernel ---- */

// The slot in turn, and its barrier's parity.
struct ring_place {
    int at, parity;
};

// The sums of an item, of which the last tile is before `end`: silu(gate) * up, quantised.
DEV void put_columns(const stream_args &a, const shape &s, const uint8_t *smem, int item, int end)
{
    const group_now &g = *(const group_now *)(smem + a.plan.room.group);
    int lane = threadIdx.x % 32, token = WARPS - 1 - (int)threadIdx.x / 32, ring = UP_TILES + s.tiles;
    int ffn = a.m[0].n_out, gate = end - UP_TILES + lane / 16, up = gate + UP_TILES / 2;

    if (token >= g.n)
        return;
    gate += gate < 0 ? ring : 0;
    up += up < 0 ? ring : 0;
    const float *v = (const float *)(smem + a.plan.room.columns) + token * ring * TILE_ROWS + lane % 16;
    float x = v[gate * TILE_ROWS] * g.scale[0], y = v[up * TILE_ROWS] * g.scale[1];
    size_t line = (size_t)(g.first + token);
    store_run(a.mid.q + line * (size_t)ffn, a.mid.meta + line * (size_t)(ffn / 32), item, lane, silu(x) * y);
}

// What the warps left of a slot, in order of the warps of a tile: a warp a (tile, pair).
template <int PAIRS, typename Put>
DEV void join_parts(const shape &s, const float *part, unsigned count, Put put)
{
    int lane = threadIdx.x % 32, jobs = s.tiles * PAIRS;
    int job = (int)((threadIdx.x / 32 - count * (unsigned)jobs) % WARPS), tile = job / PAIRS, c = job % PAIRS;

    if (job >= jobs)
        return;
    part += (tile * s.kw * PAIRS + c) * 32 + lane;
    float v[WARPS], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        v[i] = i < s.kw ? part[i * PAIRS * 32] : 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        sum += v[i];
    put(tile, lane / 4 + lane % 4 / 2 * 8, 2 * c + lane % 2, sum);
}

// Items [from, to) of the group in turn.
template <int T, bool UP, int PAIRS, bool KNOWN>
DEV void group_items(const stream_args &a, const shape &sh, uint8_t *smem, ring_place &s, int from, int to)
{
    const rooms &room = a.plan.room;
    const group_now &g = *(const group_now *)(smem + room.group);
    int lane = threadIdx.x % 32, warp = warp_index(), tiles = sh.tiles, ring = UP_TILES + tiles;
    int first = from * a.plan.slots, n = to * a.plan.slots - first, column = 0; // of the slot's first tile
    unsigned base = shared_at(smem);
    const lane_place<T> place = lane_place_of<T>(a, sh, base);
    float *columns = (float *)(smem + room.columns);

#pragma unroll 1
    for (int i = 0; i < n; i++) {
        float acc[PAIRS][4] = {}, *part = (float *)(smem + room.parts) + (i & 1) * PARTS;
        unsigned bar = base + room.bars + (unsigned)s.at * 8, slot = base + (unsigned)(s.at * a.plan.slot);
        bar_wait(bar, (unsigned)s.parity);
        slot_products<T, PAIRS, KNOWN>(acc, sh, smem + s.at * a.plan.slot, place);
#pragma unroll
        for (int c = 0; c < PAIRS; c++) {
            float sum;
            sums_of<4>(acc[c], 4, lane, &sum);
            part[(warp * PAIRS + c) * 32 + lane] = sum;
        }
        __syncthreads(); // sums are there, and all have read the slot
        if (warp == 0 && copies()) {
            asked_items &asked = *(asked_items *)(smem + room.asked);
            ask<T, UP>(a, asked, slot, bar);
            if (asked.turns < 0)
                let_next();
        }
        join_parts<PAIRS>(sh, part, (unsigned)i, [&](int tile, int row, int token, float sum) {
            if (UP)
                columns[(token * ring + column + tile) * TILE_ROWS + row] = sum;
            else if (token < g.n)
                a.out[(size_t)g.entry[token] * (size_t)a.m[0].n_out +
                      (size_t)(((first + i) * tiles + tile) * TILE_ROWS + row)] = sum * g.scale[0];
        });
        if (UP && i > 0 && i * tiles % UP_TILES == 0)
            put_columns(a, sh, smem, (first + i) * tiles / UP_TILES - 1, column);
        if (UP)
            column = column + tiles == ring ? 0 : column + tiles;
        if (++s.at == a.plan.depth) {
            s.at = 0;
            s.parity ^= 1;
        }
    }
    __syncthreads();
    if (UP)
        put_columns(a, sh, smem, to - 1, column);
}

// The whole block: the group at `w` becomes the one in turn, but for its tokens.
template <bool UP> DEV void next_group(const stream_args &a, uint8_t *smem, int4 w)
{
    group_now &now = *(group_now *)(smem + a.plan.room.group);
    const lg_cu_group g = {w.x, w.y, w.z, w.w};

    if ((int)threadIdx.x < g.n)
        now.entry[threadIdx.x] = __ldcg(&a.entry[g.first + (int)threadIdx.x]);
    if (threadIdx.x == 0) {
        now.first = g.first;
        now.n = g.n;
        now.scale[0] = matrix_scale(a.m[0], g.expert);
        now.scale[1] = UP ? matrix_scale(a.m[1], g.expert) : 0.0f;
    }
    __syncthreads();
}

// The whole block: the tokens of the group in turn.
template <int T, bool UP> DEV void take_tokens(const stream_args &a, const shape &sh, uint8_t *smem)
{
    const group_now &now = *(const group_now *)(smem + a.plan.room.group);

    copy_tokens<T, 1>(smem + a.plan.room.tokens, a.in.q, a.in.meta, sh.n_in, now.n,
                      [&](int token) { return UP ? now.entry[token] / a.k : now.first + token; });
    __syncthreads();
}

// The whole block: its own items, so that all blocks have about the same to do. What an item costs depends on
// its group's tokens. All that is needed is asked for at once. heavy: an int of shared memory.
DEV void share_items(const stream_args &a, asked_items &asked, int *heavy)
{
    enum { HELD = 2, HELD_GROUPS = HELD * 32 * WARPS };
    int4 counts = __ldcg((const int4 *)a.n_group), held[HELD];

#pragma unroll
    for (int j = 0; j < HELD; j++)
        held[j] = __ldcg((const int4 *)&a.group[threadIdx.x + j * 32 * WARPS]);
    unsigned items = (unsigned)a.plan.items, n = (unsigned)own_groups(counts.x);
    // the group behind them, if there is one, says how many of them are heavy
    bool behind = n < (unsigned)counts.x, here = behind && n < HELD_GROUPS;
    if (here && threadIdx.x == n % (32 * WARPS))
        *heavy = n < 32 * WARPS ? held[0].w : held[1].w;
    if (!here && threadIdx.x == 0)
        *heavy = behind ? __ldcg(&a.group[n].heavy) : counts.z;
    __syncthreads();
    unsigned all = (LIGHT * n + (HEAVY - LIGHT) * (unsigned)*heavy) * items;
    unsigned at = all * blockIdx.x / gridDim.x, to = all * (blockIdx.x + 1) / gridDim.x;

    for (unsigned i = threadIdx.x; i < n; i += 32 * WARPS) {
        int4 g = i < 32 * WARPS ? held[0] : i < HELD_GROUPS ? held[1] : __ldcg((const int4 *)&a.group[i]);
        unsigned cost = g.z > 2 ? HEAVY : LIGHT,
                 start = (LIGHT * i + (HEAVY - LIGHT) * (unsigned)g.w) * items;
        if (at - start < cost * items) { // these are below 2^31, or wrap
            asked.first = (int)(i * items + (at - start) / cost);
            asked.group_first = g;
        }
        if (to - start < cost * items)
            asked.end = (int)(i * items + (to - start) / cost);
    }
    if (threadIdx.x == 0 && to == all)
        asked.end = (int)(n * items);
    if (threadIdx.x == 0 && at == all)
        asked.first = (int)(n * items);
    __syncthreads();
}

// N_IN, KW: see shape_of.
template <int T, bool UP, int N_IN, int KW>
static __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    moe_stream_kernel(__grid_constant__ const stream_args a)
{
    extern __shared__ __align__(128) uint8_t smem[]; // slots, then rooms
    const rooms &room = a.plan.room;
    int items = a.plan.items;
    unsigned base = shared_at(smem);
    ring_place s = {};
    int warp = warp_index();
    const shape sh = shape_of<T, N_IN, KW>(a);

    if (threadIdx.x < 8)
        ((int *)(smem + room.zeros))[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < a.plan.depth; i++)
            bar_init(base + room.bars + (unsigned)i * 8);
        bars_ready();
    }
    __syncthreads();
    // down's weights need the groups alone, which are older than the kernel before
    if (UP)
        wait_for_last();
    asked_items &asked = *(asked_items *)(smem + room.asked);
    share_items(a, asked, (int *)(smem + room.parts));
    int first = asked.first, group_here = first < asked.end ? first / items : -1;
    auto ask_slots = [&](int from, int to) {
        if (warp == 0 && copies())
            for (int i = from; i < to; i++)
                ask<T, UP>(a, asked, base + (unsigned)(i * a.plan.slot), base + room.bars + (unsigned)i * 8);
    };
    if (warp == 0 && copies()) {
        asked.left = (asked.end - first) * a.plan.slots;
        asked.slot = asked.turns = 0;
        asked.group = first / items;
        int within = first - asked.group * items;
        if (group_here >= 0)
            ask_group<T, UP>(a, asked, asked.group_first.x, within, items - within);
    }
    // not more than memory is busy with until the first tokens are here, which come behind it
    int early = UP ? 1 : a.plan.depth;
    ask_slots(0, early);
    if (group_here >= 0)
        next_group<UP>(a, smem, asked.group_first);
    if (!UP)
        wait_for_last();
    __syncthreads();
#pragma unroll 1
    for (int end = asked.end, turn = 0; first >= 0;) {
        if (first >= end) {
            first = asked.turn[turn++ % TURNS];
            end = first + a.plan.step;
            continue;
        }
        int group = first / items, from = first - group * items, to = min(end - group * items, items);
        if (group != group_here) {
            int4 w = __ldcg((const int4 *)&a.group[group]);
            __syncthreads(); // nobody needs the one before
            next_group<UP>(a, smem, w);
        }
        take_tokens<T, UP>(a, sh, smem);
        group_here = -1;
        ask_slots(early, a.plan.depth);
        early = a.plan.depth;
        if (((const group_now *)(smem + room.group))->n <= 2)
            group_items<T, UP, 1, N_IN != 0>(a, sh, smem, s, from, to);
        else
            group_items<T, UP, MOST_PAIRS, N_IN != 0>(a, sh, smem, s, from, to);
        first += to - from;
    }
}

/* ---- launches ---- */

template <int T> static rooms rooms_of(int slots, int n_in, int tiles)
{
    rooms r;

    r.tokens = (unsigned)slots;
    r.parts = r.tokens + MOST_PAIRS * pair_bytes<T>(n_in);
    r.columns = r.parts + 2 * PARTS * 4;
    r.bars = r.columns + (unsigned)(GROUP * (UP_TILES + tiles) * TILE_ROWS * 4);
    r.group = r.bars + MOST_DEPTH * 8;
    r.zeros = r.group + (unsigned)sizeof(group_now);
    r.asked = r.zeros + 32; // a multiple of 16
    r.bytes = r.asked + (unsigned)sizeof(asked_items);
    return r;
}

// The most rows a slot that leave room for three slots, or for two.
template <int T> static bool plan_type(const lg_cu_mat *m, bool up, stream_plan *p)
{
    unsigned n = (unsigned)m->n_in;
    const row_planes row = planes_of_row<T>(n);
    int bytes = (int)(row.codes + row.high + row.scales + row.block);

    p->depth = 0;
    for (int kw = 2; kw <= WARPS && p->depth < 3; kw *= 2) {
        int tiles = WARPS / kw, rows = tiles * TILE_ROWS, slot = rows * bytes;
        int depth = (BLOCK_SMEM - (int)rooms_of<T>(0, m->n_in, tiles).bytes) / slot;
        if (m->n_in / 128 % kw || m->n_out % (up ? (int)UP_COLS : rows) || depth < 2)
            continue;
        depth = depth < MOST_DEPTH ? depth : (int)MOST_DEPTH;
        *p = {kw,
              tiles,
              m->n_in / 128 / kw,
              depth,
              slot,
              up ? UP_TILES / tiles : 1,
              m->n_out / (up ? (int)UP_COLS : rows),
              up || m->n_out / rows % 4 ? 1 : 4,
              rooms_of<T>(depth * slot, m->n_in, tiles),
              row};
    }
    return p->depth > 0;
}

static bool plan_of(const lg_cu_mat *m, bool up, stream_plan *p)
{
    if (m->n_in % 256)
        return false;
    switch (m->type) {
    case LG_Q8_0: return plan_type<LG_Q8_0>(m, up, p);
    case LG_Q4_K: return plan_type<LG_Q4_K>(m, up, p);
    case LG_Q6_K: return plan_type<LG_Q6_K>(m, up, p);
    default: return false;
    }
}

bool lg_cu_stream_takes(const lg_cu *c, const lg_cu_ffn *f)
{
    stream_plan up, down;

    return c->arch >= 90 && c->smem >= BLOCK_SMEM && f->gate.type == f->up.type &&
           plan_of(&f->gate, true, &up) && plan_of(&f->down, false, &down);
}

template <int T, bool UP> static void run(lg_cu *c, stream_args &a)
{
    auto kernel = moe_stream_kernel<T, UP, 0, 0>;

    if (!plan_type<T>(&a.m[0], UP, &a.plan))
        return;
    // shapes of published models, of which the compiler is to know all
    int n_in = a.m[0].n_in, kw = a.plan.kw;
    if constexpr (T == LG_Q4_K && UP)
        kernel = n_in == 3072 && kw == 8   ? moe_stream_kernel<T, UP, 3072, 8>
                 : n_in == 2048 && kw == 8 ? moe_stream_kernel<T, UP, 2048, 8>
                                           : kernel;
    if constexpr (T == LG_Q4_K && !UP)
        kernel = n_in == 1024 && kw == 4  ? moe_stream_kernel<T, UP, 1024, 4>
                 : n_in == 512 && kw == 2 ? moe_stream_kernel<T, UP, 512, 2>
                                          : kernel;
    if constexpr (T == LG_Q6_K && !UP)
        kernel = n_in == 1024 && kw == 8  ? moe_stream_kernel<T, UP, 1024, 8>
                 : n_in == 512 && kw == 4 ? moe_stream_kernel<T, UP, 512, 4>
                                          : kernel;
    share_sm(c, kernel, a.plan.room.bytes);
    launch(c, kernel, dim3((unsigned)(BLOCKS * c->sms)), 32 * WARPS, a.plan.room.bytes, a);
}

template <bool UP> static void run_type(lg_cu *c, stream_args &a)
{
    switch (a.m[0].type) {
    case LG_Q8_0: run<LG_Q8_0, UP>(c, a); break;
    case LG_Q4_K: run<LG_Q4_K, UP>(c, a); break;
    default: run<LG_Q6_K, UP>(c, a); break;
    }
}

void lg_cu_moe_stream(lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f)
{
    stream_args a = {};

    if (c->grouped != m->ids)
        lg_cu_sort_entries(c, m, GROUP);
    c->grouped = NULL;
    take_groups(&a, c, m->k);
    a.m[0] = f->gate;
    a.m[1] = f->up;
    a.in = c->acts;
    a.mid = c->mid;
    run_type<true>(c, a);
    a.m[0] = f->down;
    a.in = c->mid;
    a.out = c->expert_out;
    run_type<false>(c, a);
}
