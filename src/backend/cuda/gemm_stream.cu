/*
 * backend/cuda/gemm_stream: dense products of LG_CU_EXACT_ROWS + 1 to LG_CU_CODE_ROWS rows from sm_90 on,
 * with the rows in registers.
 *
 * A block a multiprocessor stays for the whole launch. It has a slice of the inputs, 32 tokens, and a range
 * of units of eight weight rows. Each of its warps has RUNS runs of the slice, and holds the codes of those
 * of all tokens as the instruction's A (they come by way of slots that are not used yet); weights are B:
 * eight rows come to a slot of a ring by bulk copies, and a lane takes a run with one load. So nothing but
 * weights goes through shared memory, and the ring takes nearly all of it. A warp leaves its sums of a unit
 * and goes on to the next; behind that half of the warps look whether all have left theirs of the unit
 * before, ask for weights to its place, and two of them add up, in order of the warps. Which ones these are
 * changes with every unit. So nobody waits for the slowest warp, and nothing is a barrier of the block.
 *
 * Rows that are longer than a slice have several blocks. Their sums are left apart (lg_cu_sum) and added up
 * by the norm that comes behind, or by a launch. More than 32 rows: another block reads the weights again,
 * from L2.
 *
 * Gate and up: the units of 32 columns of both are one behind the other; behind them come 32 columns of
 * silu(gate) * up, quantised for down. Where columns are few, the blocks of a cluster share them.
 */
#include "backend/cuda/int8.cuh"
#include "backend/cuda/stream.cuh"

enum {
    WARPS = 16,
    UNIT = 8,    // weight rows
    TOKENS = 32, // of a block
    COLS = 32,   // of gate and of up: an item
    MOST_DEPTH = 12,
    EARLY = 2, // units that are asked for before the wait
    UNIT_SUMS = UNIT * TOKENS,
    PARTS = WARPS * UNIT_SUMS, // sums of a unit: [warp][sum]
    BUFFERS = 3, // units whose sums are there at the same time
    JOINERS = 2, // warps that add up those of a unit
    COL_PITCH = COLS + 1,
    MOST_CLUSTER = 4,
    TOKEN_PAD = 32 // bytes between tokens in shared memory: four rows fill the banks
};

// A row in a slot: its planes, and a pad that puts eight rows into different banks.
struct row_planes {
    unsigned second, scales, block, bytes; // where codes go on, and the others are; all of it
};

// Barriers: [MOST_DEPTH] of slots, of the tokens, [BUFFERS] sums are there, [BUFFERS] they are added up.
struct stream_rooms {
    unsigned tokens, parts, scales, columns, bars, bytes; // tokens: in the slots
};

enum { TOKEN_BAR = MOST_DEPTH, LEFT_BAR, JOINED_BAR = LEFT_BAR + BUFFERS, BARS = JOINED_BAR + BUFFERS };

struct dense_args {
    lg_cu_part part[LG_CU_PARTS]; // first_group: the first unit; GATE_UP: gate and up
    int n_parts, units;           // of a row of blocks
    int slices, halves, groups, depth;
    int cluster; // GATE_UP: blocks that share an item
    row_planes row;
    stream_rooms room;
    lg_cu_acts in, mid; // mid: GATE_UP
    float *sums;        // [row][slice][n_out], with several slices
    lg_rows rows;
};

// Floats from run to run of tokens: scales; Q4_K: then scaled sums; and some that put the lanes which write
// runs into different banks.
template <int T> struct run_numbers {
    enum { PITCH = (T == LG_Q4_K ? 2 * TOKENS : TOKENS) + 4 };
};

/* ---- barriers ---- */

DEV void bar_init_for(unsigned bar, unsigned count)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
#endif
}

DEV void bar_arrive(unsigned bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
#endif
}

/* ---- weights ---- */

// Units of an item that a block has.
static __host__ __device__ __forceinline__ int item_units(const dense_args &a)
{
    return 2 * COLS / UNIT / a.cluster;
}

// Unit u of the block's range: which matrix, which row of it. rank: of a block that shares items.
template <bool GATE_UP> DEV int unit_at(const dense_args &a, int u, int rank, int *part)
{
    if (GATE_UP) {
        int per = item_units(a);
        *part = u & 1;
        return u / per * COLS + (rank * per + u % per) / 2 * UNIT;
    }
    int p = 0;
    while (p + 1 < a.n_parts && u >= a.part[p + 1].first_group)
        p++;
    *part = p;
    return (u - a.part[p].first_group) * UNIT;
}

// Eight warps: unit u to the slot at `to`, a warp a row.
template <int T, bool GATE_UP>
DEV void ask(const dense_args &a, int u, int slice, int rank, int slice_runs, unsigned to, unsigned bar)
{
    int p, row0 = unit_at<GATE_UP>(a, u, rank, &p), mine = warp_index() % UNIT;
    const lg_cu_mat &m = a.part[p].w;
    unsigned runs = (unsigned)slice_runs, codes = runs * 16, scales = runs * 2, block = runs / 4;
    unsigned second = T == LG_Q8_0 ? codes : T == LG_Q6_K ? codes / 2 : 0;

    if (!copies())
        return;
    bar_expect(bar, codes + second + scales + (T == LG_Q6_K ? block : 0));
    size_t row = (size_t)(row0 + mine), n = (size_t)m.n_in, s = (size_t)slice;
    const uint8_t *from = m.p + row * (T == LG_Q8_0 ? n : n / 2) + s * codes;
    to += (unsigned)mine * a.row.bytes;
    copy_range(to, from, codes, bar, 0);
    if (T == LG_Q8_0)
        copy_range(to + a.row.second, from + n / 2, second, bar, 0);
    if (T == LG_Q6_K) {
        copy_range(to + a.row.second, m.p + m.at[0] + row * (n / 4) + s * second, second, bar, 0);
        copy_range(to + a.row.block, m.p + m.at[2] + row * (n / 128) + s * block, block, bar, 0);
    }
    copy_range(to + a.row.scales, m.p + m.at[T == LG_Q6_K ? 1 : 0] + row * (n / 16) + s * scales, scales, bar,
               0);
}

/* ---- tokens ---- */

// What a warp holds: of each run the codes of tokens g, g + 8 and g + 16, g + 24, as two A operands. The
// words of a run that lane t has are 2t and 2t + 1, of weights too.
template <int RUNS> struct held_tokens {
    unsigned a[RUNS][2][4];
};

// The token of the block that stands where token i is: beyond the last one, another.
DEV size_t line_of(int token, int i, int n)
{
    return (size_t)(token + max(min(i, n - 1), 0));
}

// All warps: the slice of the block's tokens to shared memory; a warp takes some of them.
DEV void ask_tokens(const dense_args &a, int slice, int slice_runs, int token, int n, unsigned to,
                    unsigned bar)
{
    enum { EACH = TOKENS / WARPS };
    unsigned bytes = (unsigned)slice_runs * 32;
    int first = warp_index() * EACH;

    if (!copies())
        return;
    bar_expect(bar, EACH * bytes);
#pragma unroll
    for (int i = first; i < first + EACH; i++) {
        const int8_t *from = a.in.q + line_of(token, i, n) * (size_t)a.part[0].w.n_in + (size_t)slice * bytes;
        copy_range(to + (unsigned)i * (bytes + TOKEN_PAD), (const uint8_t *)from, bytes, bar, 0);
    }
}

// Scales (and scaled sums) of a warp's tokens, on their way to [run][g][which of a lane's four tokens].
template <int T, int SLICE_RUNS> struct held_numbers {
    enum { EACH = TOKENS / WARPS, PIECES = (SLICE_RUNS + 31) / 32 };
    float2 m[EACH][PIECES];
};

template <int T, int SLICE_RUNS>
DEV void load_numbers(held_numbers<T, SLICE_RUNS> &k, const dense_args &a, int slice, int token, int n)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
    for (int i = 0; i < k.EACH; i++) {
        const int4 *p = a.in.meta + line_of(token, warp * k.EACH + i, n) * (size_t)(a.part[0].w.n_in / 32) +
                        (size_t)(slice * SLICE_RUNS);
#pragma unroll
        for (int j = 0; j < k.PIECES; j++)
            if (j * 32 + lane < SLICE_RUNS)
                k.m[i][j] = __ldcg((const float2 *)(p + j * 32 + lane));
    }
}

template <int T, int SLICE_RUNS> DEV void put_numbers(const held_numbers<T, SLICE_RUNS> &k, float *scales)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
    for (int i = 0; i < k.EACH; i++)
#pragma unroll
        for (int j = 0; j < k.PIECES; j++) {
            int tok = warp * k.EACH + i;
            float *to = scales + (j * 32 + lane) * run_numbers<T>::PITCH + tok % 8 * 4 + tok / 8;
            if (j * 32 + lane >= SLICE_RUNS)
                break;
            to[0] = k.m[i][j].x;
            if (T == LG_Q4_K)
                to[TOKENS] = k.m[i][j].y;
        }
}

// at: the lane's part of the warp's first run of token g.
template <int RUNS> DEV void hold_tokens(held_tokens<RUNS> &k, const uint8_t *at, unsigned pitch)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int r = 0; r < RUNS; r++) {
            uint2 v = *(const uint2 *)(at + (unsigned)(8 * i) * pitch + r * 32);
            k.a[r][i / 2][i % 2] = v.x;
            k.a[r][i / 2][i % 2 + 2] = v.y;
        }
}

/* ---- products ---- */

// Scale and minimum (Q6_K: the scales of both halves) of runs [first, first + RUNS) of the row whose scales
// are at p; `first` is a multiple of RUNS.
template <int T, int RUNS>
DEV void row_scales(const uint8_t *p, const row_planes &row, int first, float (&s)[RUNS], float (&m)[RUNS])
{
    if constexpr (T == LG_Q4_K) {
#pragma unroll
        for (int r = 0; r < RUNS; r++)
            k_scales(*(const uint4 *)(p + (first + r) / 8 * 16), first + r, &s[r], &m[r]);
    } else if constexpr (T == LG_Q6_K) {
        float f = half_bits(*(const unsigned short *)(p + row.block - row.scales + first / 8 * 2));
        uint2 w = *(const uint2 *)(p + 2 * first);
#pragma unroll
        for (int r = 0; r < RUNS; r++) { // four
            unsigned v = (r & 2 ? w.y : w.x) >> 16 * (r & 1);
            s[r] = f * (float)(int8_t)(v & 0xFF);
            m[r] = f * (float)(int8_t)(v >> 8 & 0xFF);
        }
    } else if constexpr (RUNS == 1) {
        s[0] = half_bits(*(const unsigned short *)(p + 2 * first));
    } else {
#pragma unroll
        for (int r = 0; r < RUNS; r += 2) {
            unsigned w = *(const unsigned *)(p + 2 * (first + r));
            s[r] = half_bits(w & 0xFFFF);
            s[r + 1] = half_bits(w >> 16);
        }
    }
}

// The lane's words 2t and 2t + 1 of run r. p: of the first run; high: Q6_K, the word with their high bits.
template <int T> DEV uint2 codes_of(const uint8_t *p, const uint8_t *high, int r, int t)
{
    uint2 b = *(const uint2 *)(p + r * 16);

    if (T == LG_Q8_0)
        return b;
    unsigned shift = (unsigned)(t & 2) * 2;
    b.x = b.x >> shift & 0x0F0F0F0F;
    b.y = b.y >> shift & 0x0F0F0F0F;
    if (T == LG_Q6_K) {
        unsigned h = *(const unsigned *)(high + r * 8) >> (t & 1) * 4;
        b.x = less32(b.x | (h & 0x03030303) << 4);
        b.y = less32(b.y | (h >> 2 & 0x03030303) << 4);
    }
    return b;
}

// acc += what the runs' codes b and four words of tokens come to. s, m: of two weight rows; d, e: of two
// tokens. A weight's scale has so few bits that its product with what sums begin with is exact: one
// instruction takes that away and scales.
template <int T>
DEV void run_products(float (&acc)[4], const unsigned (&a)[4], uint2 b, const float (&s)[2],
                      const float (&m)[2], const float *d, const float *e, int t)
{
    int v[4], u[4];

    if (T == LG_Q6_K) { // a scale for either half, which two of the lanes have
        mma_s8(v, a, t < 2 ? b.x : 0, t < 2 ? b.y : 0);
        mma_s8(u, a, t < 2 ? 0 : b.x, t < 2 ? 0 : b.y);
    } else {
        mma_s8(v, a, b.x, b.y);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = fmaf(__int_as_float(v[i]), s[i % 2], __int_as_float(SUM_ZERO) * -s[i % 2]);
        if (T == LG_Q6_K)
            sum = fmaf(m[i % 2], sum_of(u[i]), sum);
        acc[i] = fmaf(d[i / 2], sum, acc[i]);
        if (T == LG_Q4_K)
            acc[i] = fmaf(m[i % 2], e[i / 2], acc[i]);
    }
}

// The warp's runs of a unit times its tokens; codes, high: of the lane's row, its part of the first run;
// rows: the scales of the lane's first result.
template <int T, int RUNS>
DEV void unit_products(float (&acc)[2][4], const held_tokens<RUNS> &k, const float *scales,
                       const row_planes &row, const uint8_t *codes, const uint8_t *high, const uint8_t *rows,
                       int first)
{
    float s[2][RUNS], m[2][RUNS] = {};
    int lane = threadIdx.x % 32, t = lane % 4;

    row_scales<T, RUNS>(rows, row, first, s[0], m[0]);
    row_scales<T, RUNS>(rows + row.bytes, row, first, s[1], m[1]);
#pragma unroll
    for (int r = 0; r < RUNS; r++) {
        uint2 b = codes_of<T>(codes, high, r, t);
        const float *by = scales + r * run_numbers<T>::PITCH + lane / 4 * 4;
        float4 d4 = *(const float4 *)by, e4 = T == LG_Q4_K ? *(const float4 *)(by + TOKENS) : d4;
        const float d[4] = {d4.x, d4.y, d4.z, d4.w}, e[4] = {e4.x, e4.y, e4.z, e4.w};
        const float s2[2] = {s[0][r], s[1][r]}, m2[2] = {m[0][r], m[1][r]};
#pragma unroll
        for (int j = 0; j < 2; j++)
            run_products<T>(acc[j], k.a[r][j], b, s2, m2, d + 2 * j, e + 2 * j, t);
    }
}

/* ---- results ---- */

// What the warps have of sums i to i + 3 of a unit, in order.
DEV float4 joined(const float *part, int i)
{
    float4 v[WARPS], sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

#pragma unroll
    for (int w = 0; w < WARPS; w++)
        v[w] = *(const float4 *)(part + w * UNIT_SUMS + i);
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum = add4(sum, v[w]);
    return sum;
}

// silu(gate) * up of an item, quantised; columns: [gate, up][token][column], of which each block of a cluster
// has some. It takes every cluster-th token.
DEV void put_columns(const dense_args &a, const float *columns, int item, int rank, int token, int n)
{
    int lane = threadIdx.x % 32, ffn = a.part[0].w.n_out;

    for (int t = (int)threadIdx.x / 32 * a.cluster + rank; t < min(n, (int)TOKENS); t += WARPS * a.cluster) {
        const float *gate = columns + t * COL_PITCH + lane, *up = gate + TOKENS * COL_PITCH;
        float x, y;
        if (a.cluster > 1) {
            unsigned from = (unsigned)lane / (COLS / (unsigned)a.cluster);
            x = float_of(shared_at(gate), from), y = float_of(shared_at(up), from);
        } else {
            x = *gate, y = *up;
        }
        size_t line = (size_t)(token + t);
        store_run(a.mid.q + line * (size_t)ffn, a.mid.meta + line * (size_t)(ffn / 32), item, lane,
                  silu(x * a.part[0].w.scale) * (y * a.part[1].w.scale));
    }
}

/* ---- the kernel ---- */

// Where a unit is: its slot, the buffer of its sums, and which time these are taken.
struct unit_place {
    int slot, buffer;
    unsigned slot_parity, buffer_parity;
};

DEV void go_on(unit_place &p, int depth)
{
    if (++p.slot == depth) {
        p.slot = 0;
        p.slot_parity ^= 1;
    }
    if (++p.buffer == BUFFERS) {
        p.buffer = 0;
        p.buffer_parity ^= 1;
    }
}

template <int T, int RUNS, bool GATE_UP>
static __global__ void __launch_bounds__(32 * WARPS, 1)
    dense_stream_kernel(__grid_constant__ const dense_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[]; // slots, then rooms
    enum { SLICE_RUNS = RUNS * WARPS };
    int inner = GATE_UP ? a.cluster : a.slices, slice = GATE_UP ? 0 : (int)blockIdx.x % inner;
    int rank = GATE_UP ? (int)blockIdx.x % inner : 0, token = (int)blockIdx.x / inner % a.halves * TOKENS;
    int group = (int)blockIdx.x / (inner * a.halves), per = GATE_UP ? item_units(a) : 1, all = a.units / per;
    int from = all * group / a.groups * per, end = all * (group + 1) / a.groups * per;
    int warp = warp_index(), lane = threadIdx.x % 32;
    unsigned base = shared_at(smem), slot_bytes = UNIT * a.row.bytes;
    unsigned bars = base + a.room.bars, left = bars + LEFT_BAR * 8, joined_bar = bars + JOINED_BAR * 8;
    auto ask_unit = [&](int u, int at) {
        ask<T, GATE_UP>(a, u, slice, rank, SLICE_RUNS, base + (unsigned)at * slot_bytes,
                        bars + (unsigned)at * 8);
    };

    if (threadIdx.x == 0) {
        for (int i = 0; i < a.depth; i++)
            bar_init_for(bars + (unsigned)i * 8, UNIT);
        bar_init_for(bars + TOKEN_BAR * 8, WARPS);
        for (unsigned i = 0; i < BUFFERS; i++) {
            bar_init_for(left + i * 8, WARPS);
            bar_init_for(joined_bar + i * 8, JOINERS);
        }
        bars_ready();
    }
    __syncthreads();
    for (int i = warp / UNIT; i < min(end - from, (int)EARLY); i += WARPS / UNIT)
        ask_unit(from + i, i);
    pdl_wait();
    int n = step_rows(step, a.rows) - token, first = warp * RUNS, g = lane / 4, t = lane % 4;
    float *scales = (float *)(smem + a.room.scales);
    enum { TOKEN_PITCH = SLICE_RUNS * 32 + TOKEN_PAD };
    held_tokens<RUNS> k;
    held_numbers<T, SLICE_RUNS> numbers;
    load_numbers(numbers, a, slice, token, n);
    __syncthreads(); // those of all warps come before the codes, which take longer
    ask_tokens(a, slice, SLICE_RUNS, token, n, base + a.room.tokens, bars + TOKEN_BAR * 8);
    put_numbers(numbers, scales);
    bar_wait(bars + TOKEN_BAR * 8, 0);
    hold_tokens<RUNS>(k, smem + a.room.tokens + g * TOKEN_PITCH + first * 32 + t * 8, TOKEN_PITCH);
    __syncthreads(); // all numbers are there, and nobody needs the tokens' place
    for (int i = EARLY + warp / UNIT; i < min(end - from, a.depth); i += WARPS / UNIT)
        ask_unit(from + i, i);
    scales += first * run_numbers<T>::PITCH;
    unsigned codes = (unsigned)g * a.row.bytes + (unsigned)(first * 16 + (t & 1) * 8) +
                     (T == LG_Q8_0 ? (unsigned)(t >> 1) * a.row.second : 0);
    unsigned high = (unsigned)g * a.row.bytes + a.row.second + (unsigned)(first * 8 + (t >> 1) * 4);
    unsigned rows = (unsigned)(2 * t) * a.row.bytes + a.row.scales;
    float *columns = (float *)(smem + a.room.columns);
    unit_place now = {}, before = {};
    // Half of the warps, when all have left their sums of unit u: another one to its slot, and two of them
    // add up.
    auto join = [&](int u, const unit_place &p) {
        if (warp / UNIT != (u & 1))
            return;
        bar_wait(left + (unsigned)p.buffer * 8, p.buffer_parity);
        if (u + a.depth < end)
            ask_unit(u + a.depth, p.slot);
        if (warp % UNIT / JOINERS != (u >> 1) % (UNIT / JOINERS))
            return;
        // the lane's four: rows 2t and 2t + 1 with tokens g and g + 8 of one of the instruction's operands
        int i = warp % JOINERS, part, row = unit_at<GATE_UP>(a, u, rank, &part) + 2 * t;
        float4 sum = joined((const float *)(smem + a.room.parts) + p.buffer * PARTS, i * 128 + lane * 4);
        __syncwarp();
        if (lane == 0)
            bar_arrive(joined_bar + (unsigned)p.buffer * 8);
        const lg_cu_part &to = a.part[part];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int tok = i * 16 + h * 8 + g;
            float x = h ? sum.z : sum.x, y = h ? sum.w : sum.y, *at;
            if (GATE_UP) {
                at = columns + (part * TOKENS + tok) * COL_PITCH + row % COLS;
            } else {
                if (tok >= n)
                    break;
                size_t line = (size_t)(token + tok);
                at = a.slices > 1
                         ? a.sums + (line * (size_t)a.slices + (size_t)slice) * (size_t)to.w.n_out + row
                         : to.y + line * (size_t)to.y_stride + row;
                x *= to.w.scale, y *= to.w.scale;
            }
            at[0] = x, at[1] = y;
        }
    };

#pragma unroll 1
    for (int u = from; u < end; u++) {
        float acc[2][4] = {}, *part = (float *)(smem + a.room.parts) + now.buffer * PARTS;
        const uint8_t *slot = smem + (unsigned)now.slot * slot_bytes;
        bool last = GATE_UP && u % per == per - 1; // of an item
        bar_wait(bars + (unsigned)now.slot * 8, now.slot_parity);
        unit_products<T, RUNS>(acc, k, scales, a.row, slot + codes, slot + high, slot + rows, first);
        if (u - from >= BUFFERS)
            bar_wait(joined_bar + (unsigned)now.buffer * 8, now.buffer_parity ^ 1);
#pragma unroll
        for (int j = 0; j < 2; j++)
            *(float4 *)(part + warp * UNIT_SUMS + j * 128 + lane * 4) =
                make_float4(acc[j][0], acc[j][1], acc[j][2], acc[j][3]);
        __syncwarp();
        if (lane == 0)
            bar_arrive(left + (unsigned)now.buffer * 8);
        // the one before, so that nobody waits for the slowest
        if (u > from && !(GATE_UP && u % per == 0))
            join(u - 1, before);
        before = now;
        go_on(now, a.depth);
        if (last) {
            join(u, before);
            if (a.cluster > 1) // then it is the block's only item
                cluster_meet();
            else
                __syncthreads();
            put_columns(a, columns, u / per, rank, token, n);
        }
    }
    if (!GATE_UP && from < end)
        join(end - 1, before);
    if (GATE_UP && a.cluster > 1)
        cluster_meet(); // nobody ends while others read
}

/* ---- launches ---- */

// Runs of a warp; 0: rows do not come to whole slices.
static int runs_of(const lg_cu_mat *m)
{
    for (int r = 6; r > 0; r = r > 2 ? r - 2 : r - 1)
        if (m->n_in % (32 * WARPS * r) == 0 && (m->type == LG_Q8_0 || r == 4))
            return r;
    return 0;
}

static bool takes(const lg_cu *c, const lg_cu_mat *m)
{
    return c->arch >= 90 && m->n_out % UNIT == 0 &&
           (m->type == LG_Q8_0 || m->type == LG_Q4_K || m->type == LG_Q6_K) && runs_of(m) > 0;
}

static int slices_of(const lg_cu_mat *m)
{
    return m->n_in / (32 * WARPS * runs_of(m));
}

// A pitch that is an odd number of times 16; the other halves of the same rows are in the other banks.
template <int T> static row_planes planes_of(unsigned runs)
{
    row_planes r;

    r.second = runs * 16 + (T == LG_Q8_0 ? 64 : 0);
    r.scales = r.second + (T == LG_Q8_0 ? runs * 16 : T == LG_Q6_K ? runs * 8 : 0);
    r.block = r.scales + runs * 2;
    r.bytes = (r.block + (T == LG_Q6_K ? runs / 4 : 0) + 31) / 32 * 32 + 16;
    return r;
}

// spare: multiprocessors that are left to others.
template <int T, int RUNS, bool GATE_UP> static void run(lg_cu *c, dense_args &a, int spare)
{
    auto kernel = dense_stream_kernel<T, RUNS, GATE_UP>;
    int items = GATE_UP ? a.units * UNIT / (2 * COLS) : a.units;
    int scales = WARPS * RUNS * run_numbers<T>::PITCH * 4;
    int columns = GATE_UP ? 2 * TOKENS * COL_PITCH * 4 : 0;
    stream_rooms &r = a.room;

    a.halves = ceil_div(bucket_rows(c, a.rows), TOKENS);
    a.slices = slices_of(&a.part[0].w);
    a.groups = (c->sms - spare) / (a.slices * a.halves);
    a.groups = a.groups < items ? a.groups : items;
    a.row = planes_of<T>(RUNS * WARPS);
    // few columns: more blocks, on half of the card where the routing runs beside them
    a.cluster = 1;
    while (GATE_UP && a.groups == items && a.cluster < MOST_CLUSTER &&
           2 * a.cluster * items * a.halves <= (a.halves > 1 ? c->sms : c->sms / 2))
        a.cluster *= 2;
    int most = ceil_div(items, a.groups) * (GATE_UP ? item_units(a) : 1), slot = UNIT * (int)a.row.bytes;
    int tokens = TOKENS * (RUNS * WARPS * 32 + TOKEN_PAD);
    int room = c->smem - BUFFERS * PARTS * 4 - scales - columns - BARS * 8, depth = room / slot;
    a.depth = depth < MOST_DEPTH ? depth : (int)MOST_DEPTH;
    a.depth = a.depth < most ? a.depth : most;
    a.units = GATE_UP ? items * item_units(a) : a.units;
    r.tokens = (unsigned)((a.depth < EARLY ? a.depth : (int)EARLY) * slot + 127) / 128 * 128;
    r.parts = r.tokens + (unsigned)tokens;
    if (r.parts < (unsigned)(a.depth * slot))
        r.parts = (unsigned)(a.depth * slot);
    r.scales = r.parts + BUFFERS * PARTS * 4;
    r.columns = r.scales + (unsigned)scales;
    r.bars = r.columns + (unsigned)columns;
    r.bytes = r.bars + BARS * 8;
    share_sm(c, kernel, r.bytes);
    launch_clusters(c, kernel, dim3((unsigned)(a.groups * a.slices * a.halves * a.cluster)), 32 * WARPS,
                    r.bytes, a.cluster, a, c->step);
}

template <bool GATE_UP> static void run_type(lg_cu *c, dense_args &a, int spare)
{
    if (a.part[0].w.type == LG_Q4_K) {
        run<LG_Q4_K, 4, GATE_UP>(c, a, spare);
        return;
    }
    if (a.part[0].w.type == LG_Q6_K) {
        run<LG_Q6_K, 4, GATE_UP>(c, a, spare);
        return;
    }
    switch (runs_of(&a.part[0].w)) {
    case 6: run<LG_Q8_0, 6, GATE_UP>(c, a, spare); break;
    case 4: run<LG_Q8_0, 4, GATE_UP>(c, a, spare); break;
    case 2: run<LG_Q8_0, 2, GATE_UP>(c, a, spare); break;
    default: run<LG_Q8_0, 1, GATE_UP>(c, a, spare); break;
    }
}

// Where the slices of a's one part are added up: the sum, if there is room for it.
static bool leave_sum(const lg_cu *c, dense_args &a, lg_cu_sum *sum)
{
    const lg_cu_part &p = a.part[0];
    int slices = slices_of(&p.w);

    if ((size_t)bucket_rows(c, a.rows) * (size_t)slices * (size_t)p.w.n_out > c->expert_floats)
        return false;
    a.sums = c->expert_out;
    *sum = {};
    sum->out.p = p.y;
    sum->out.cols = p.w.n_out;
    sum->out.stride = p.y_stride;
    sum->out.rows = a.rows;
    sum->y = a.sums;
    sum->k = slices;
    sum->shared_at = -1;
    return true;
}

// The parts of one type; those that are not taken go to rest.
static int run_parts(lg_cu *c, dense_args &a, const lg_cu_part *parts, int n_parts, int type,
                     lg_cu_part *rest)
{
    int n_rest = 0;

    a.n_parts = a.units = 0;
    for (int p = 0; p < n_parts; p++) {
        if (parts[p].w.type != type)
            continue;
        if (!takes(c, &parts[p].w) || slices_of(&parts[p].w) > 1) {
            rest[n_rest++] = parts[p];
            continue;
        }
        a.part[a.n_parts] = parts[p];
        a.part[a.n_parts++].first_group = a.units;
        a.units += parts[p].w.n_out / UNIT;
    }
    if (a.n_parts > 0)
        run_type<false>(c, a, 0);
    return n_rest;
}

// A product whose rows are several slices.
static bool run_slices(lg_cu *c, dense_args &a, const lg_cu_part *part, lg_cu_sum *later)
{
    lg_cu_sum sum;

    a.part[0] = *part;
    a.part[0].first_group = 0;
    a.n_parts = 1;
    a.units = part->w.n_out / UNIT;
    if (!leave_sum(c, a, &sum))
        return false;
    run_type<false>(c, a, 0);
    if (later)
        *later = sum;
    else
        lg_cu_sum_now(c, &sum);
    return true;
}

int lg_cu_gemm_stream(lg_cu *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts, lg_cu_part *rest)
{
    static const int types[] = {LG_Q8_0, LG_Q4_K, LG_Q6_K};
    dense_args a = {};
    int n = 0;

    a.in = c->acts;
    a.rows = x->rows;
    if (n_parts == 1 && takes(c, &parts->w) && slices_of(&parts->w) > 1 &&
        run_slices(c, a, parts, parts->later))
        return 0;
    for (int type : types)
        n += run_parts(c, a, parts, n_parts, type, rest + n);
    for (int p = 0; p < n_parts; p++)
        if (parts[p].w.type != LG_Q8_0 && parts[p].w.type != LG_Q4_K && parts[p].w.type != LG_Q6_K)
            rest[n++] = parts[p];
    return n;
}

bool lg_cu_stream_up(lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f)
{
    dense_args a = {};

    if (!takes(c, &f->gate) || f->up.type != f->gate.type || slices_of(&f->gate) > 1 || f->gate.n_out % COLS)
        return false;
    a.part[0].w = f->gate;
    a.part[1].w = f->up;
    a.n_parts = 2;
    a.units = 2 * f->gate.n_out / UNIT;
    a.in = c->acts;
    a.mid = c->mid;
    a.rows = m->h.rows;
    run_type<true>(c, a, 0);
    return true;
}

bool lg_cu_stream_down(lg_cu *c, const lg_cu_moe *m, const lg_cu_part *part)
{
    enum { CHOOSERS = 36 }; // multiprocessors for the choice of experts, which runs beside the shared one
    dense_args a = {};

    if (!takes(c, &part->w))
        return false;
    a.in = c->mid;
    a.rows = m->h.rows;
    if (slices_of(&part->w) > 1)
        return !m->routed && run_slices(c, a, part, m->later);
    a.part[0] = *part;
    a.part[0].first_group = 0;
    a.n_parts = 1;
    a.units = part->w.n_out / UNIT;
    run_type<false>(c, a, m->routed ? (int)CHOOSERS : 0);
    return true;
}
