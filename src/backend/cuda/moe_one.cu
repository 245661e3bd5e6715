/*
 * backend/cuda/moe_one: routing and the mixture of experts for one row, in three launches.
 *
 * The first norms the row and multiplies it with the router. In the second every warp chooses the experts
 * from the logits for itself, while the shared expert's gate and up, which need no choice, are on their way;
 * then it multiplies gate and up of the chosen ones. The third multiplies all downs and adds them up. In
 * between lie f32 values; the third quantises them for itself.
 *
 * Numbers are those of route.cu and moe_few.cu, bit for bit.
 *
 * Surprise: the third chooses as well, before it waits for the second: the logits are of the first, for which
 * the second has waited before it let the third begin.
 */
#include "backend/cuda/route.cuh"
#include "backend/cuda/stream.cuh"

/* ---- pairs of gate and up ---- */

DEV float swiglu(float gate, float up)
{
    return silu(gate) * up;
}

/* ---- the first launch ---- */

enum {
    ROUTERS = STREAM_WARPS / 4, // experts of a block at a time, four warps each
    ROUNDS = 16,                // so often, at most
    AHEAD = 3,                  // loads of eight weights under way
};

struct first_args {
    lg_cu_route route;
    lg_cu_normed norm; // of NORM; else h
    const float *h;
    float *logits;
    int n_in, rows;
};

struct eight {
    float4 a, b;
};

DEV eight weights8(const float *p)
{
    eight w = {load_f4(p), load_f4(p + 4)};
    return w;
}

DEV float dot8(const eight &w, const float *h, float acc)
{
    float4 x = *(const float4 *)h, y = *(const float4 *)(h + 4);

    acc = fmaf(w.a.x, x.x, acc);
    acc = fmaf(w.a.y, x.y, acc);
    acc = fmaf(w.a.z, x.z, acc);
    acc = fmaf(w.a.w, x.w, acc);
    acc = fmaf(w.b.x, y.x, acc);
    acc = fmaf(w.b.y, y.y, acc);
    acc = fmaf(w.b.z, y.z, acc);
    return fmaf(w.b.w, y.w, acc);
}

// Logits of the block's experts. Four warps share a row as the warps of route.cu do: group g of eight columns
// goes to warp g / 32 % 4.
DEV void router_ahead(const first_args &a, int warp, int lane, eight (&w)[AHEAD])
{
    int expert = (int)(blockIdx.x + (unsigned)(warp / 4) * gridDim.x), at = (warp % 4 * 32 + lane) * 8;

#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        if (expert < a.route.n_expert && at + u * 1024 < a.n_in)
            w[u] = weights8(a.route.router + (size_t)expert * (size_t)a.n_in + (size_t)(at + u * 1024));
}

DEV void router_sums(const first_args &a, int warp, int lane, const eight (&w)[AHEAD], const float *h,
                     float (*part)[STREAM_WARPS])
{
    int expert = (int)(blockIdx.x + (unsigned)(warp / 4) * gridDim.x), at = (warp % 4 * 32 + lane) * 8;

    for (int round = 0; expert < a.route.n_expert; round++, expert += ROUTERS * (int)gridDim.x) {
        const float *row = a.route.router + (size_t)expert * (size_t)a.n_in;
        float acc = 0.0f;
        int from = at;
        if (round == 0) {
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (at + u * 1024 < a.n_in)
                    acc = dot8(w[u], h + at + u * 1024, acc);
            from += AHEAD * 1024;
        }
#pragma unroll 2
        for (int i = from; i < a.n_in; i += 1024)
            acc = dot8(weights8(row + i), h + i, acc);
        acc = warp_sum(acc);
        if (lane == 0)
            part[round][warp] = acc;
    }
}

// The last block has no expert, or no more than others: it leaves the norm's results for everybody.
template <bool NORM>
static __global__ void __launch_bounds__(STREAM_THREADS, 2)
    moe_first_kernel(__grid_constant__ const first_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(16) uint8_t smem[]; // the row, sums of the norm
    __shared__ float part[ROUNDS][STREAM_WARPS];
    int lane = threadIdx.x % 32, warp = warp_index();
    float *h = (float *)smem, *sums = h + a.n_in;
    bool any = step_rows(step, a.rows) > 0;
    eight w[AHEAD];
    norm_part norm;

    if (NORM)
        norm_weights(norm, a.norm);
    router_ahead(a, warp, lane, w);
    if (warp == 0 && blockIdx.x == 0 && a.route.bias && lane * 32 < a.route.n_expert)
        prefetch_l2(a.route.bias + lane * 32);
    pdl_wait(); // the next one has weights to ask for at once
    if (NORM) {
        norm_in(norm, a.norm, NULL, h, sums, any && blockIdx.x == gridDim.x - 1);
    } else {
        for (int i = (int)threadIdx.x * 4; i < a.n_in; i += STREAM_THREADS * 4)
            *(float4 *)(h + i) = __ldcg((const float4 *)(a.h + i));
        __syncthreads();
    }
    router_sums(a, warp, lane, w, h, part);
    __syncthreads();
    for (int t = (int)threadIdx.x; t < ROUTERS * ROUNDS; t += STREAM_THREADS) {
        int expert = (int)blockIdx.x + t * (int)gridDim.x;
        if (expert >= a.route.n_expert || !any)
            break;
        const float *p = &part[t / ROUTERS][t % ROUTERS * 4];
        a.logits[expert] = p[0] + p[1] + p[2] + p[3];
    }
}

/* ---- the choice ---- */

// One warp: which experts, rank i on lane i, and their weights: the numbers of choose() in route.cuh, without
// shared memory. n is at most 32 * N, k at most 32.
template <int N, bool SOFTMAX>
DEV int choose_here(const lg_cu_route &r, const float *logits, int lane, float *weight)
{
    float p[N], mine = 0.0f, sum = 0.0f;
    unsigned key[N];
    int at[N], id = 0;

#pragma unroll
    for (int j = 0; j < N; j++)
        p[j] = lane + 32 * j < r.n_expert ? __ldcg(&logits[lane + 32 * j]) : -INFINITY;
    if (SOFTMAX && r.softmax) {
        float max = -INFINITY, total = 0.0f;
#pragma unroll
        for (int j = 0; j < N; j++)
            max = fmaxf(max, p[j]);
        max = warp_max(max);
#pragma unroll
        for (int j = 0; j < N; j++)
            if (lane + 32 * j < r.n_expert)
                total += p[j] = expf(p[j] - max);
        total = warp_sum(total);
#pragma unroll
        for (int j = 0; j < N; j++)
            p[j] /= total;
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) {
            float x = expf(-fabsf(p[j]));
            p[j] = p[j] < 0.0f ? x / (1.0f + x) : 1.0f / (1.0f + x);
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) { // a key orders as the score; 0 is no expert, or one that was taken
        int e = lane + 32 * j;
        float x = e < r.n_expert ? r.bias ? p[j] + __ldg(&r.bias[e]) : p[j] : 0.0f;
        unsigned u = __float_as_uint(x == x ? x + 0.0f : -INFINITY);
        key[j] = e < r.n_expert ? (u & 0x80000000u ? ~u : u | 0x80000000u) : 0u;
        at[j] = e;
    }
#pragma unroll
    for (int pass = 0; pass < N; pass++) // a lane's experts, the best first; among equals the lower one
#pragma unroll
        for (int j = pass & 1; j + 1 < N; j += 2) {
            bool less = key[j] < key[j + 1];
            unsigned hi = less ? key[j + 1] : key[j], lo = less ? key[j] : key[j + 1];
            int hi_at = less ? at[j + 1] : at[j], lo_at = less ? at[j] : at[j + 1];
            key[j] = hi, key[j + 1] = lo, at[j] = hi_at, at[j + 1] = lo_at;
        }
    for (int i = 0; i < r.k; i++) {
        unsigned best = __reduce_max_sync(0xFFFFFFFFu, key[0]);
        int won = (int)__reduce_min_sync(0xFFFFFFFFu, key[0] == best ? (unsigned)at[0] : 0x7FFFFFFFu);
        id = lane == i ? won : id;
        if (at[0] == won) { // taken
#pragma unroll
            for (int j = 0; j + 1 < N; j++)
                key[j] = key[j + 1], at[j] = at[j + 1];
            key[N - 1] = 0;
            at[N - 1] = 0x7FFFFFFF;
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        float v = __shfl_sync(0xFFFFFFFFu, p[j], id % 32);
        mine = id / 32 == j ? v : mine;
    }
    for (int i = 0; i < r.k; i++)
        sum += __shfl_sync(0xFFFFFFFFu, mine, i);
    if (r.norm)
        mine /= sum > 0x1p-14f ? sum : 0x1p-14f;
    *weight = mine * r.scale;
    return id;
}

// Apart, because its code is long.
static __device__ __noinline__ int choose_many(const lg_cu_route *r, const float *logits, int lane,
                                               float *weight)
{
    return choose_here<CHOICES, true>(*r, logits, lane, weight);
}

DEV int choice_of(const lg_cu_route &r, const float *logits, int lane, float *weight)
{
    return r.n_expert <= 256 && !r.softmax ? choose_here<8, false>(r, logits, lane, weight)
                                           : choose_many(&r, logits, lane, weight);
}

/* ---- the second launch ---- */

struct up_args {
    lg_cu_mat gate, up, shared_gate, shared_up;
    int n_shared, k, rows; // rows of the shared expert; experts, or 1
    lg_cu_route route;     // router NULL: the choice is in ids
    const float *logits;
    const int32_t *ids; // NULL: one matrix
    lg_cu_acts acts;
    float *mid, *mid_shared; // [k][ffn]
    ring_plan ring;
};

#ifndef LG_UP_TELL
#define LG_UP_TELL 4 // slots left to be asked for when the third launch is let in: it has to choose first
#endif
enum { UP_PAIRS = 4 }; // of a warp between two reductions

// A slot holds a slice of a row of gate and of up, or, of a shared expert in another type, of one of them.
// S: the type of the shared expert; T, another one, or LG_CU_ANY.
template <int T, int S>
static __global__ void __launch_bounds__(STREAM_THREADS, 2)
    moe_up_one_kernel(__grid_constant__ const up_args a, const lg_cu_step *step)
{
    constexpr bool PAIRS = S == T;
    extern __shared__ __align__(16) uint8_t smem[]; // rings, quantised row
    int lane = threadIdx.x % 32, warp = warp_index(), runs = a.gate.n_in / 32,
        slices = (runs + SLICE - 1) / SLICE;
    int ffn = a.gate.n_out, mine = 0;
    unsigned total = (unsigned)(a.k * ffn), shared = (unsigned)a.n_shared;
    int first = (int)(total * blockIdx.x / gridDim.x) + warp,
        end = (int)(total * (blockIdx.x + 1) / gridDim.x);
    int first_s = (int)(shared * blockIdx.x / gridDim.x) + warp,
        end_s = (int)(shared * (blockIdx.x + 1) / gridDim.x);
    int n_s =
        first_s < end_s ? (end_s - first_s + STREAM_WARPS - 1) / STREAM_WARPS * slices * (PAIRS ? 1 : 2) : 0;
    int n = first < end ? (end - first + STREAM_WARPS - 1) / STREAM_WARPS * slices : 0;
    uint8_t *acts = smem + ring_room(a.ring);
    bool any = step_rows(step, a.rows) > 0;
    int e = first / ffn, ask = first % ffn, ask_s = first_s, slice = 0, second = 0, e_now = -1;
    const uint8_t *gate_now = NULL, *up_now = NULL; // of the expert in turn, e_now
    row_ring slots;

    auto get = [&](unsigned to, unsigned bar) {
        const place at = {ask, slice * SLICE};
        if (e != e_now) {
            int expert = __shfl_sync(0xFFFFFFFFu, mine, e);
            e_now = e;
            gate_now = matrix_at(a.gate, expert);
            up_now = matrix_at(a.up, expert);
        }
        fetch_pair<T>(to, bar, a.gate, gate_now, up_now, at, min((int)SLICE, runs - at.run), slices == 1,
                      lane);
        slice = slice + 1 == slices ? 0 : slice + 1;
        ask += slice == 0 ? STREAM_WARPS : 0;
        for (; ask >= ffn; ask -= ffn)
            e++;
    };
    auto get_shared = [&](unsigned to, unsigned bar) {
        const place at = {ask_s, slice * SLICE};
        by_type<S>(a.shared_gate.type, [&](auto t) {
            if (PAIRS)
                fetch_pair<t.type>(to, bar, a.shared_gate, a.shared_gate.p, a.shared_up.p, at,
                                   min((int)SLICE, runs - at.run), slices == 1, lane);
            else
                fetch<t.type>(to, bar, a.shared_gate, second ? a.shared_up.p : a.shared_gate.p, at,
                              min((int)SLICE, runs - at.run), slices == 1, lane);
        });
        second = PAIRS ? 0 : second ^ 1;
        if (second)
            return;
        slice = slice + 1 == slices ? 0 : slice + 1;
        ask_s += slice == 0 ? STREAM_WARPS : 0;
    };
    auto get_any = [&](unsigned to, unsigned bar) {
        if (ask_s < end_s)
            get_shared(to, bar);
        else
            get(to, bar);
    };
    slots.open(smem, a.ring, warp, lane, n_s + n, LG_UP_TELL);
    slots.fill(n_s, get_shared);
    stream_wait(); // nothing else to ask for before the choice is known
    float weight = 0.0f;
    if (a.route.router)
        mine = choice_of(a.route, a.logits, lane, &weight);
    else if (a.ids)
        mine = lane < a.k && any ? __ldcg(&a.ids[lane]) : 0;
    slots.fill(RING_MOST, get_any);
    if (a.route.router && blockIdx.x == 0 && warp == 0 && lane < a.k && any) {
        a.route.ids[lane] = mine;
        a.route.w[lane] = weight;
    }
    copy_acts(acts, a.acts.q, a.acts.meta, runs);
    __syncthreads();
    for (int row = first_s; row < end_s; row += STREAM_WARPS) {
        float v[2] = {}, sum;
#pragma unroll 1
        for (int s = 0; s < slices; s++) {
            const uint8_t *x = acts + s * SLICE_ACTS;
            int n_runs = min((int)SLICE, runs - s * SLICE);
            unsigned skew = skew_of(a.shared_gate, {row, s * SLICE});
#pragma unroll 1
            for (int i = 0; i < (PAIRS ? 1 : 2); i++) {
                const uint8_t *slot = slots.turn();
                by_type<S>(a.shared_gate.type, [&](auto t) {
                    if (PAIRS)
                        slice_dot2<t.type>(slot, n_runs, skew, x, lane, &v[0], &v[1]);
                    else
                        // v[1] is now the first
                        push(v, slice_dot<t.type>(slot, n_runs, 0, n_runs, skew, x, lane, v[0]));
                });
                slots.done(get_any);
            }
        }
        (void)sums_of<2>(v, 32, lane, &sum);
        float up = __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
        if (lane == 0 && any)
            a.mid_shared[row] = swiglu(sum * a.shared_gate.scale, up * a.shared_up.scale);
    }
    for (int at = first; at < end; at += UP_PAIRS * STREAM_WARPS) {
        float acc[2 * UP_PAIRS] = {}, sum;
#pragma unroll 1
        for (int i = 0; i < UP_PAIRS; i++) {
            int pair = at + i * STREAM_WARPS, n_slots = pair < end ? slices : 0;
            float v = 0.0f, w = 0.0f;
#pragma unroll 1
            for (int s = 0; s < n_slots; s++) {
                unsigned skew = T == LG_Q6_K ? skew_of(a.gate, {pair % ffn, s * SLICE}) : 0;
                slice_dot2<T>(slots.turn(), min((int)SLICE, runs - s * SLICE), skew, acts + s * SLICE_ACTS,
                              lane, &v, &w);
                slots.done(get);
            }
            push(acc, v);
            push(acc, w);
        }
        int index = sums_of<2 * UP_PAIRS>(acc, 32, lane, &sum), pair = at + index / 2 * STREAM_WARPS;
        int expert = __shfl_sync(0xFFFFFFFFu, mine, min(pair, end - 1) / ffn);
        float up = __shfl_xor_sync(0xFFFFFFFFu, sum, 16 / UP_PAIRS);
        if (lane % (16 / UP_PAIRS) == 0 && index % 2 == 0 && pair < end && any)
            a.mid[pair] = swiglu(sum * matrix_scale(a.gate, expert), up * matrix_scale(a.up, expert));
    }
}

/* ---- the third launch ---- */

#ifndef LG_DOWN_ROWS
#define LG_DOWN_ROWS 4 // one behind the other in a slot: 2 or 4
#endif
enum {
    DOWN_R = LG_DOWN_ROWS,
    DOWN_ITEMS = 8 / DOWN_R, // of a warp between two reductions
    MID_BATCH = 4            // loads of 128 values under way, and as many that are being quantised
};

struct down_args {
    lg_cu_mat routed, shared;
    bool has_shared;
    lg_cu_route route; // router NULL: the choice is in ids and w
    const float *logits;
    const int32_t *ids;
    const float *w, *mid; // mid: [k][n_in], then of the shared expert
    float *out;
    // width: lanes that share a row; shared_rows: DOWN_R of the shared expert
    int k, rows, width, shared_rows;
    ring_plan ring;
};

// The values between the products, quantised: those of the experts, then the shared expert's, which follow
// them.
DEV void quantise_mid(const down_args &a, uint8_t *acts, int warp, int lane)
{
    enum { CHUNKS = 1024 / NORM_CHUNK, STEP = STREAM_WARPS / CHUNKS }; // of a piece of activations
    int all = (a.k + a.has_shared) * a.routed.n_in / NORM_CHUNK, at = warp % CHUNKS * 4 + lane / 8;
    uint8_t *codes = acts + (lane & 4) * 128 + at * 16 + (lane & 3) * 4;
    float4 next[MID_BATCH], v[MID_BATCH];
    auto load = [&](int piece) {
#pragma unroll
        for (int j = 0; j < MID_BATCH; j++) // past the end the last chunk once more
            next[j] =
                __ldcg((const float4 *)a.mid +
                       min((piece + j * STEP) * CHUNKS + warp % CHUNKS, all - 1) * (NORM_CHUNK / 4) + lane);
    };

    load(warp / CHUNKS);
#pragma unroll 1
    for (int piece = warp / CHUNKS; piece * CHUNKS < all; piece += MID_BATCH * STEP) {
#pragma unroll
        for (int j = 0; j < MID_BATCH; j++)
            v[j] = next[j];
        load(piece + MID_BATCH * STEP);
#pragma unroll
        for (int j = 0; j < MID_BATCH; j++) {
            quad q = quantise4(v[j]);
            if ((piece + j * STEP) * CHUNKS + warp % CHUNKS >= all)
                continue;
            *(int *)(codes + (piece + j * STEP) * ACT_PIECE) = q.codes;
            if (lane % 8 == 0)
                put_meta(acts + (piece + j * STEP) * ACT_PIECE, at, q.scale, q.scale_sum, q.sums);
        }
    }
}

// What a block multiplies: `units` units of its rows of each expert, then smaller ones of the shared expert.
struct down_plan {
    int row0, rows, unit, units, unit_s, units_s, items; // rows of the block are [row0, row0 + rows)
};

DEV down_plan plan_down(const down_args &a)
{
    int side = 32 / a.width, hidden = a.routed.n_out;
    down_plan p;

    p.unit = DOWN_R * side;
    p.unit_s = a.shared_rows * side;
    unsigned all = (unsigned)(hidden / p.unit); // 256 divides hidden
    int u0 = (int)(all * blockIdx.x / gridDim.x);
    p.units = (int)(all * (blockIdx.x + 1) / gridDim.x) - u0;
    p.row0 = u0 * p.unit;
    p.rows = p.units * p.unit;
    p.units_s = a.has_shared ? p.units * (DOWN_R / a.shared_rows) : 0;
    p.items = a.k * p.units + p.units_s;
    return p;
}

// T, S: types of the experts and of the shared one (or LG_CU_ANY).
template <int T, int S>
static __global__ void __launch_bounds__(STREAM_THREADS, 2)
    moe_down_one_kernel(__grid_constant__ const down_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(16) uint8_t smem[]; // rings, quantised rows, results
    __shared__ float weights[32];
    int lane = threadIdx.x % 32, warp = warp_index(), runs = a.routed.n_in / 32, side = 32 / a.width;
    int at_run = lane % a.width, at_row = lane / a.width;
    const down_plan p = plan_down(a);
    int routed = a.k * p.units;
    uint8_t *acts = smem + ring_room(a.ring);
    float *part = (float *)(acts + act_room((a.k + a.has_shared) * a.routed.n_in)); // [entry][p.rows]
    bool any = step_rows(step, a.rows) > 0;
    float weight = 0.0f;
    int mine = a.route.router ? choice_of(a.route, a.logits, lane, &weight) // see above
               : lane < a.k && any ? __ldcg(&a.ids[lane])
                                   : 0;
    int ask = warp, ask_e = 0, ask_u = warp;
    row_ring slots;

    auto get = [&](unsigned to, unsigned bar) {
        for (; ask_e < a.k && ask_u >= p.units; ask_u -= p.units)
            ask_e++;
        if (ask < routed) {
            int row = p.row0 + ask_u * p.unit;
            fetch<T>(to, bar, a.routed, matrix_at(a.routed, __shfl_sync(0xFFFFFFFFu, mine, ask_e)), {row, 0},
                     p.unit * runs, true, lane);
        } else {
            int row = p.row0 + (ask - routed) * p.unit_s;
            by_type<S>(a.shared.type, [&](auto t) {
                fetch<t.type>(to, bar, a.shared, a.shared.p, {row, 0}, p.unit_s * runs, true, lane);
            });
        }
        ask += STREAM_WARPS;
        ask_u += STREAM_WARPS;
    };
    slots.open(smem, a.ring, warp, lane,
               warp < p.items ? (p.items - warp + STREAM_WARPS - 1) / STREAM_WARPS : 0, 0);
    slots.fill(RING_MOST, get);
    stream_wait();
    if (!a.route.router && lane < a.k && any)
        weight = __ldcg(&a.w[lane]);
    if (warp == 0)
        weights[lane] = weight;
    quantise_mid(a, acts, warp, lane);
    __syncthreads();
    int e = 0, u = warp;
    for (int at = warp; at < p.items; at += DOWN_ITEMS * STREAM_WARPS) {
        float acc[DOWN_R * DOWN_ITEMS] = {}, sum;
#pragma unroll 1
        for (int i = 0; i < DOWN_ITEMS; i++) {
            int item = at + i * STREAM_WARPS;
            float v[DOWN_R] = {};
            for (; e < a.k && u >= p.units && item < p.items; u -= p.units)
                e++;
            u += STREAM_WARPS;
            const uint8_t *slot = item < p.items ? slots.turn() : smem;
#pragma unroll 1
            for (int j = item < p.items ? at_run : runs; j < runs; j += 32) {
                act_run x = act_of(acts, e * runs + j);
                if (item < routed) {
                    int all = p.unit * runs, row = p.row0 + (item - e * p.units) * p.unit;
                    unsigned skew = T == LG_Q6_K ? skew_of(a.routed, {row, 0}) : 0;
#pragma unroll
                    for (int r = 0; r < DOWN_R; r++)
                        v[r] = dot_raw<T>(take<T>(slot, all, r * side + at_row, runs, j, skew), x, lane & 7,
                                          v[r]);
                } else {
                    int all = p.unit_s * runs, row = p.row0 + (item - routed) * p.unit_s;
                    by_type<S>(a.shared.type, [&](auto t) {
                        unsigned skew = t.type == LG_Q6_K ? skew_of(a.shared, {row, 0}) : 0;
#pragma unroll
                        for (int r = 0; r < DOWN_R; r++)
                            if (r < a.shared_rows)
                                v[r] =
                                    dot_raw<t.type>(take<t.type>(slot, all, r * side + at_row, runs, j, skew),
                                                    x, lane & 7, v[r]);
                    });
                }
            }
            if (item < p.items)
                slots.done(get);
#pragma unroll
            for (int r = 0; r < DOWN_R; r++)
                push(acc, v[r]);
        }
        int index = sums_of<DOWN_R * DOWN_ITEMS>(acc, a.width, lane, &sum), r = index % DOWN_R;
        int item = at + index / DOWN_R * STREAM_WARPS, entry = item < routed ? item / p.units : a.k;
        int expert = __shfl_sync(0xFFFFFFFFu, mine, min(entry, a.k - 1));
        if (lane % a.width % (a.width / (DOWN_R * DOWN_ITEMS)) != 0 || item >= p.items ||
            (entry == a.k && r >= a.shared_rows))
            continue;
        int row = entry < a.k ? (item - entry * p.units) * p.unit : (item - routed) * p.unit_s;
        part[entry * p.rows + row + r * side + at_row] =
            sum * (entry < a.k ? matrix_scale(a.routed, expert) : a.shared.scale);
    }
    __syncthreads();
    for (int o = (int)threadIdx.x; o < p.rows && any; o += STREAM_THREADS) {
        float total = a.has_shared ? part[a.k * p.rows + o] : 0.0f;
        for (int i = 0; i < a.k; i++)
            total = fmaf(weights[i], part[i * p.rows + o], total);
        a.out[p.row0 + o] = total;
    }
}

/* ---- the op ---- */

static bool one_type(const lg_cu_ffn *f)
{
    return streams(&f->gate) && streams(&f->up) && f->gate.type == f->up.type;
}

static void run_first(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route, const lg_cu_normed *norm)
{
    first_args a = {};
    size_t smem = ((size_t)m->h.cols + (size_t)m->h.cols / NORM_CHUNK) * sizeof(float);
    auto kernel = norm ? moe_first_kernel<true> : moe_first_kernel<false>;

    a.route = *route;
    if (norm)
        a.norm = *norm;
    a.h = m->h.p;
    a.logits = c->route_logits;
    a.n_in = m->h.cols;
    a.rows = m->h.rows;
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)c->sms), STREAM_THREADS, smem, a, c->step);
}

static int slice_runs(const lg_cu_mat *m)
{
    return m->n_in / 32 < SLICE ? m->n_in / 32 : (int)SLICE;
}

// gate, up: of the experts, or of a dense one; shared or NULL.
static ring_plan plan_up(const lg_cu *c, const lg_cu_mat *gate, const lg_cu_ffn *shared)
{
    int slot = 2 * rows_bytes(gate->type, slice_runs(gate));
    int other =
        shared && shared->gate.type != gate->type ? rows_bytes(shared->gate.type, slice_runs(gate)) : 0;

    return plan_ring(c, slot > other ? slot : other, act_room(gate->n_in));
}

template <int T> static void run_up(lg_cu *c, up_args &a)
{
    auto kernel = a.n_shared == 0 || a.shared_gate.type == T ? moe_up_one_kernel<T, T>
                                                             : moe_up_one_kernel<T, LG_CU_ANY>;
    size_t smem = (size_t)ring_room(a.ring) + act_room(a.gate.n_in);

    if (T == LG_Q4_K && a.n_shared > 0 && a.shared_gate.type == LG_Q8_0)
        kernel = moe_up_one_kernel<LG_Q4_K, LG_Q8_0>;
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)c->sms), STREAM_THREADS, smem, a, c->step);
}

// f: the experts, or a dense one (ids and route NULL, k 1).
static void launch_up(lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f, const lg_cu_ffn *shared,
                      const lg_cu_route *route, const int32_t *ids, int k)
{
    up_args a = {};

    a.gate = f->gate;
    a.up = f->up;
    if (shared) {
        a.shared_gate = shared->gate;
        a.shared_up = shared->up;
        a.n_shared = shared->gate.n_out;
    }
    a.k = k;
    a.rows = m->h.rows;
    if (route)
        a.route = *route;
    a.logits = c->route_logits;
    a.ids = ids;
    a.acts = c->acts;
    a.mid = c->mid_f32;
    a.mid_shared = c->mid_f32 + (size_t)k * (size_t)f->gate.n_out;
    a.ring = plan_up(c, &f->gate, shared);
    if (f->gate.type == LG_Q8_0)
        run_up<LG_Q8_0>(c, a);
    else if (f->gate.type == LG_Q4_K)
        run_up<LG_Q4_K>(c, a);
    else if (f->gate.type == LG_Q5_K)
        run_up<LG_Q5_K>(c, a);
    else
        run_up<LG_Q6_K>(c, a);
}

// Lanes that share a row of down.
static int down_width(const lg_cu_mat *m)
{
    int runs = m->n_in / 32;
    return runs > 16 ? 32 : runs > 8 ? 16 : 8;
}

// Bytes of shared memory behind the rings.
static size_t down_other(const lg_cu *c, const lg_cu_moe *m)
{
    const lg_cu_mat *d = &m->routed->down;
    size_t entries = (size_t)m->k + (m->shared != NULL);
    int unit = DOWN_R * 32 / down_width(d);

    return act_room((int)entries * d->n_in) +
           entries * (size_t)(ceil_div(d->n_out / unit, c->sms) * unit) * sizeof(float);
}

static ring_plan plan_down(const lg_cu *c, const lg_cu_moe *m, int *shared_rows)
{
    const lg_cu_mat *d = &m->routed->down;
    int runs = d->n_in / 32 * (32 / down_width(d)), slot = rows_bytes(d->type, DOWN_R * runs), other = 0;

    *shared_rows = 1;
    if (m->shared) {
        int type = m->shared->down.type;
        while (*shared_rows < DOWN_R && rows_bytes(type, 2 * *shared_rows * runs) <= slot)
            *shared_rows *= 2;
        other = rows_bytes(type, *shared_rows * runs);
    }
    return plan_ring(c, slot > other ? slot : other, down_other(c, m));
}

template <int T> static void run_down(lg_cu *c, const down_args &a, size_t smem)
{
    auto kernel = !a.has_shared || a.shared.type == T ? moe_down_one_kernel<T, T>
                                                      : moe_down_one_kernel<T, LG_CU_ANY>;

    if (T == LG_Q4_K && a.has_shared && a.shared.type == LG_Q8_0)
        kernel = moe_down_one_kernel<LG_Q4_K, LG_Q8_0>;
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)c->sms), STREAM_THREADS, smem, a, c->step);
}

static void launch_down(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route)
{
    down_args a = {};

    a.routed = m->routed->down;
    a.has_shared = m->shared != NULL;
    if (m->shared)
        a.shared = m->shared->down;
    if (route)
        a.route = *route;
    a.logits = c->route_logits;
    a.ids = m->ids;
    a.w = m->w;
    a.mid = c->mid_f32;
    a.out = m->out.p;
    a.k = m->k;
    a.rows = m->h.rows;
    a.width = down_width(&m->routed->down);
    a.ring = plan_down(c, m, &a.shared_rows);
    size_t smem = (size_t)ring_room(a.ring) + down_other(c, m);
    if (a.routed.type == LG_Q8_0)
        run_down<LG_Q8_0>(c, a, smem);
    else if (a.routed.type == LG_Q4_K)
        run_down<LG_Q4_K>(c, a, smem);
    else if (a.routed.type == LG_Q5_K)
        run_down<LG_Q5_K>(c, a, smem);
    else
        run_down<LG_Q6_K>(c, a, smem);
}

// Does everything fit these kernels?
static bool fits(const lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route, const lg_cu_normed *norm)
{
    const lg_cu_ffn *f = m->routed ? m->routed : m->shared, *shared = m->routed ? m->shared : NULL;
    int rows;

    if (!one_type(f) || (shared && !one_type(shared)) || (norm && !norm_streams(norm)) ||
        (((uintptr_t)m->h.p & 15) != 0))
        return false;
    if (route && (route->n_expert > ROUTERS * ROUNDS * c->sms || ((uintptr_t)route->router & 15) != 0))
        return false;
    if (plan_up(c, &f->gate, shared).depth == 0)
        return false;
    if (!m->routed)
        return f->down.n_in % 32 == 0;
    return m->k <= 31 && streams(&f->down) && f->down.n_out % 256 == 0 &&
           (!shared || (streams(&shared->down) && shared->down.n_in == f->down.n_in)) &&
           plan_down(c, m, &rows).depth > 0;
}

bool lg_cu_moe_one(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route, const lg_cu_normed *norm)
{
    if (!fits(c, m, route, norm))
        return false;
    if (m->routed) {
        if (route)
            run_first(c, m, route, norm);
        launch_up(c, m, m->routed, m->shared, route, m->ids, m->k);
        launch_down(c, m, route);
        return true;
    }
    launch_up(c, m, m->shared, NULL, NULL, NULL, 1); // dense: down is a plain product
    float *mid = c->mid_f32;
    lg_tensor x = {mid, m->shared->down.n_in, m->shared->down.n_in, m->h.rows};
    lg_cu_part part = {};
    part.w = m->shared->down;
    part.y = m->out.p;
    part.y_stride = m->out.stride;
    lg_cu_quantise_to(c, &x, &c->mid);
    lg_cu_gemv(c, &x, &c->mid, &part, 1);
    return true;
}
