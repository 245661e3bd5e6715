/*
 * backend/cuda/moe_one: routing and the mixture of experts for one row, in three launches.
 *
 * The first norms the row, routes it and multiplies the shared expert's gate and up; half of a block's warps
 * take the router, the last block to finish with it chooses the experts while the others still stream. The
 * second multiplies gate and up of the chosen experts; the third multiplies all downs and adds them up. In
 * between lie f32 values; the third quantises them for itself.
 *
 * Numbers are those of route.cu and moe_few.cu, bit for bit.
 *
 * Surprise: the third reads the choice before it waits for the second: the second has waited for the first,
 * and lets the third begin only after that.
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
    ROUTERS = STREAM_WARPS / 2,       // warps of a block at the router: two experts at a time
    ROUNDS = 16,                      // experts of a block, in twos
    PAIRERS = STREAM_WARPS - ROUTERS, // at the shared expert
    AHEAD = 3,                        // loads of eight weights under way
    PAIR_SLOT = 2 * piece_bytes(LG_Q8_0),
    PAIR_DEPTH = 4,
    PAIR_RINGS = PAIRERS * PAIR_SLOT * PAIR_DEPTH,
};

struct first_args {
    lg_cu_route route; // router NULL: only the shared expert
    lg_cu_normed norm; // of NORM; else h
    const float *h;
    lg_cu_acts acts;
    lg_cu_mat gate, up; // of the shared expert
    bool has_shared;
    float *mid, *logits;
    int *arrived;
    int n_in, rows;
};

DEV void routers_sync(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(32 * ROUTERS) : "memory");
}

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

// The router's warps: logits of the block's experts. Four warps share a row as the warps of route.cu do:
// group g of eight columns goes to warp g / 32 % 4.
DEV void router_ahead(const first_args &a, int warp, int lane, eight (&w)[AHEAD])
{
    int expert = (int)(blockIdx.x + (unsigned)(warp / 4) * gridDim.x), at = (warp % 4 * 32 + lane) * 8;

#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        if (expert < a.route.n_expert && at + u * 1024 < a.n_in)
            w[u] = weights8(a.route.router + (size_t)expert * (size_t)a.n_in + (size_t)(at + u * 1024));
}

DEV void router_sums(const first_args &a, int warp, int lane, const eight (&w)[AHEAD], const float *h,
                     float (*part)[ROUTERS])
{
    int expert = (int)(blockIdx.x + (unsigned)(warp / 4) * gridDim.x), at = (warp % 4 * 32 + lane) * 8;

    for (int round = 0; expert < a.route.n_expert; round++, expert += 2 * (int)gridDim.x) {
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

// The router's warps: the last block to come here chooses.
DEV void route_last(const first_args &a, int tid, const float (*part)[ROUTERS], float *room, bool *last)
{
    routers_sync();
    for (int t = tid; t < 2 * ROUNDS; t += 32 * ROUTERS) {
        int expert = (int)blockIdx.x + t * (int)gridDim.x;
        if (expert >= a.route.n_expert)
            break;
        const float *p = &part[t / 2][t % 2 * 4];
        a.logits[expert] = p[0] + p[1] + p[2] + p[3];
    }
    routers_sync();
    if (tid == 0) {
        *last = arrive(a.arrived) == (int)gridDim.x - 1;
        if (*last)
            *a.arrived = 0;
    }
    routers_sync();
    if (!*last || tid >= 32)
        return;
    for (int e = tid; e < a.route.n_expert; e += 32)
        room[e] = __ldcg(&a.logits[e]);
    __syncwarp();
    if (a.route.n_expert <= 256)
        choose<8>(a.route, room, 0, tid);
    else
        choose<CHOICES>(a.route, room, 0, tid);
}

template <bool NORM>
static __global__ void __launch_bounds__(STREAM_THREADS, 2)
    moe_first_kernel(__grid_constant__ const first_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(16) uint8_t smem[]; // rings, quantised row, f32 row, sums of the norm, logits
    __shared__ float part[ROUNDS][ROUTERS];
    __shared__ bool last;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, runs = a.n_in / 32, pieces = (runs + 31) / 32;
    uint8_t *acts = smem + PAIR_RINGS;
    float *h = (float *)(acts + act_room(a.n_in)), *sums = h + a.n_in, *room = sums + a.n_in / NORM_CHUNK;
    bool any = step_rows(step, a.rows) > 0, routes = warp < ROUTERS;
    int ffn = a.has_shared && !routes ? a.gate.n_out : 0,
        first = (int)((unsigned)ffn * blockIdx.x / gridDim.x);
    int end = (int)((unsigned)ffn * (blockIdx.x + 1) / gridDim.x);
    int ask = first + warp - ROUTERS, piece = 0;
    int n = ask < end ? (end - ask + PAIRERS - 1) / PAIRERS * pieces : 0;
    ring<PAIR_DEPTH, PAIR_SLOT> slots;
    reader from;
    eight w[AHEAD];
    norm_part norm;

    auto get = [&](unsigned slot) {
        by_type<LG_CU_ANY>(a.gate.type, [&](auto t) {
            if (piece == 0)
                from = reader_at<t.type>(a.gate, a.gate.p, ask, lane);
            if (piece * 32 + lane < runs) {
                fetch<t.type>(slot, from, 0, lane);
                fetch<t.type>(slot + PAIR_SLOT / 2, from, a.up.p - a.gate.p, lane);
            }
            advance<t.type>(from);
        });
        ask += piece + 1 == pieces ? PAIRERS : 0;
        piece = piece + 1 == pieces ? 0 : piece + 1;
    };
    if (NORM)
        norm_weights(norm, a.norm);
    if (routes && a.route.router)
        router_ahead(a, warp, lane, w);
    if (warp == 0 && blockIdx.x == 0 && a.route.bias && lane * 32 < a.route.n_expert)
        prefetch_l2(a.route.bias + lane * 32);
    if (!routes)
        slots.start(smem + (warp - ROUTERS) * PAIR_SLOT * PAIR_DEPTH, n, get);
    pdl_wait();
    if (NORM) {
        norm_in(norm, a.norm, acts, h, sums, any && blockIdx.x == 0);
    } else {
        copy_acts(acts, a.acts.q, a.acts.meta, runs);
        for (int i = (int)threadIdx.x * 4; a.route.router && i < a.n_in; i += STREAM_THREADS * 4)
            *(float4 *)(h + i) = __ldcg((const float4 *)(a.h + i));
        __syncthreads();
    }
    for (int row = routes ? end : first + warp - ROUTERS; row < end; row += PAIRERS) { // the other warps
        float v[2] = {}, sum;
        for (int j = 0; j < pieces; j++) {
            const uint8_t *slot = slots.turn(get);
            if (j * 32 + lane < runs)
                by_type<LG_CU_ANY>(a.gate.type, [&](auto t) {
                    act_run x = act_of(acts + j * ACT_PIECE, lane);
                    v[0] = dot_raw<t.type>(take<t.type>(slot, lane), x, lane & 7, v[0]);
                    v[1] = dot_raw<t.type>(take<t.type>(slot + PAIR_SLOT / 2, lane), x, lane & 7, v[1]);
                });
        }
        (void)sums_of<2>(v, 32, lane, &sum);
        float up = __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
        if (lane == 0 && any)
            a.mid[row] = swiglu(sum * a.gate.scale, up * a.up.scale);
    }
    if (routes && a.route.router && any) {
        router_sums(a, warp, lane, w, h, part);
        route_last(a, (int)threadIdx.x, part, room, &last);
    }
}

/* ---- the second launch ---- */

struct up_args {
    lg_cu_mat gate, up;
    const int32_t *ids; // NULL: one matrix
    int k, rows;
    lg_cu_acts acts;
    float *mid; // [k][ffn]
};

static __host__ __device__ constexpr int up_depth(int type) // slots of a warp
{
    return (104 << 10) / STREAM_WARPS / (2 * piece_bytes(type));
}

enum { UP_PAIRS = 4 }; // of a warp between two reductions

template <int T>
static __global__ void __launch_bounds__(STREAM_THREADS, 2)
    moe_up_one_kernel(__grid_constant__ const up_args a, const lg_cu_step *step)
{
    enum { SLOT = 2 * piece_bytes(T), DEPTH = up_depth(T) };
    extern __shared__ __align__(16) uint8_t smem[]; // rings, quantised row
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, runs = a.gate.n_in / 32, pieces = (runs + 31) / 32;
    int ffn = a.gate.n_out, mine = 0;
    unsigned total = (unsigned)(a.k * ffn);
    int first = (int)(total * blockIdx.x / gridDim.x) + warp,
        end = (int)(total * (blockIdx.x + 1) / gridDim.x);
    int n = first < end ? (end - first + STREAM_WARPS - 1) / STREAM_WARPS * pieces : 0;
    uint8_t *acts = smem + STREAM_WARPS * DEPTH * SLOT;
    bool any = step_rows(step, a.rows) > 0;
    int e = first / ffn, ask = first % ffn, piece = 0;
    ring<DEPTH, SLOT> slots;
    reader from;

    auto get = [&](unsigned slot) {
        if (piece == 0) {
            for (; ask >= ffn; ask -= ffn)
                e++;
            from = reader_at<T>(a.gate, matrix_at(a.gate, __shfl_sync(0xFFFFFFFFu, mine, e)), ask, lane);
            ask += STREAM_WARPS;
        }
        if (piece * 32 + lane < runs) {
            fetch<T>(slot, from, 0, lane);
            fetch<T>(slot + SLOT / 2, from, a.up.p - a.gate.p, lane);
        }
        advance<T>(from);
        piece = piece + 1 == pieces ? 0 : piece + 1;
    };
    if (a.ids) { // nothing to ask for before the choice is known
        pdl_wait();
        mine = lane < a.k && any ? __ldcg(&a.ids[lane]) : 0;
    }
    slots.start(smem + warp * DEPTH * SLOT, n, get);
    if (!a.ids)
        pdl_wait();
    copy_acts(acts, a.acts.q, a.acts.meta, runs);
    __syncthreads();
    for (int at = first; at < end; at += UP_PAIRS * STREAM_WARPS) {
        float acc[2 * UP_PAIRS] = {}, sum;
#pragma unroll
        for (int i = 0; i < UP_PAIRS; i++) {
            if (at + i * STREAM_WARPS >= end)
                break;
            for (int j = 0; j < pieces; j++) {
                const uint8_t *slot = slots.turn(get);
                if (j * 32 + lane < runs) {
                    act_run x = act_of(acts + j * ACT_PIECE, lane);
                    acc[2 * i] = dot_raw<T>(take<T>(slot, lane), x, lane & 7, acc[2 * i]);
                    acc[2 * i + 1] = dot_raw<T>(take<T>(slot + SLOT / 2, lane), x, lane & 7, acc[2 * i + 1]);
                }
            }
        }
        int index = sums_of<2 * UP_PAIRS>(acc, 32, lane, &sum), pair = at + index / 2 * STREAM_WARPS;
        int expert = __shfl_sync(0xFFFFFFFFu, mine, min(pair, end - 1) / ffn);
        float up = __shfl_xor_sync(0xFFFFFFFFu, sum, 16 / UP_PAIRS);
        if (lane % (16 / UP_PAIRS) == 0 && index % 2 == 0 && pair < end && any)
            a.mid[pair] = swiglu(sum * matrix_scale(a.gate, expert), up * matrix_scale(a.up, expert));
    }
}

/* ---- the third launch ---- */

enum { DOWN_DEPTH = 5, DOWN_LEAST = 3 }; // slots of a warp

static __host__ __device__ constexpr int down_rows_of(int type) // stacked in a slot
{
    return type == LG_Q4_K ? 2 : 1;
}

static __host__ __device__ constexpr int down_slot(int type)
{
    return type == LG_Q4_K ? 2 * piece_bytes(LG_Q4_K) : (int)piece_bytes(LG_Q8_0);
}

struct down_args {
    lg_cu_mat routed, shared;
    bool has_shared;
    const int32_t *ids;
    const float *w, *mid; // mid: [k][n_in], then of the shared expert
    float *out;
    int k, rows, width; // width: lanes that share a row
};

// The values between the products, quantised: those of the experts, then the shared expert's, which follow
// them.
DEV void quantise_mid(const down_args &a, uint8_t *acts, int warp, int lane)
{
    enum { BATCH = 6 };
    int all = (a.k + a.has_shared) * a.routed.n_in / NORM_CHUNK;
    const float *from = a.mid + lane * 4;

    for (int base = warp; base < all; base += BATCH * STREAM_WARPS) {
        float4 v[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            if (base + j * STREAM_WARPS < all)
                v[j] = __ldcg((const float4 *)(from + (base + j * STREAM_WARPS) * NORM_CHUNK));
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            if (base + j * STREAM_WARPS < all)
                put_run4(acts, (base + j * STREAM_WARPS) * 4 + lane / 8, lane, quantise4(v[j]));
    }
}

enum { DOWN_ITEMS = 4 }; // of a warp between two reductions

// An item is a unit of the block's rows of one expert, or a smaller unit of the shared expert's; those come
// last.
template <int T, int DEPTH>
static __global__ void __launch_bounds__(STREAM_THREADS, 2)
    moe_down_one_kernel(__grid_constant__ const down_args a, const lg_cu_step *step)
{
    enum { R = down_rows_of(T), SLOT = down_slot(T) };
    extern __shared__ __align__(16) uint8_t smem[]; // rings, quantised rows, results
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, runs = a.routed.n_in / 32,
        pieces = (runs + a.width - 1) / a.width;
    int side = 32 / a.width, unit = R * side, hidden = a.routed.n_out, at_run = lane % a.width,
        at_row = lane / a.width;
    unsigned all = (unsigned)((hidden + unit - 1) / unit);
    int u0 = (int)(all * blockIdx.x / gridDim.x), units = (int)(all * (blockIdx.x + 1) / gridDim.x) - u0;
    int rows = units * unit, row0 = u0 * unit, routed = a.k * units;
    int items = routed + (a.has_shared ? units * R : 0);
    uint8_t *acts = smem + STREAM_WARPS * DEPTH * SLOT;
    float *part = (float *)(acts + act_room((a.k + a.has_shared) * a.routed.n_in)); // [entry][rows]
    bool any = step_rows(step, a.rows) > 0;
    int mine = lane < a.k && any ? __ldcg(&a.ids[lane]) : 0; // see above
    int ask = warp, ask_e = 0, ask_u = warp, piece = 0;
    ring<DEPTH, SLOT> slots;
    reader from[R];

    auto get = [&](unsigned slot) {
        if (piece == 0)
            for (; ask_e < a.k && ask_u >= units; ask_u -= units)
                ask_e++;
        if (ask < routed) {
            if (piece == 0) {
                const uint8_t *p = matrix_at(a.routed, __shfl_sync(0xFFFFFFFFu, mine, ask_e));
#pragma unroll
                for (int r = 0; r < R; r++)
                    from[r] = reader_at<T>(a.routed, p,
                                           min(row0 + ask_u * unit + r * side + at_row, hidden - 1), at_run);
            }
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (piece * 32 + at_run < runs)
                    fetch<T>(slot + r * piece_bytes(T), from[r], 0, lane);
                advance<T>(from[r]);
            }
        } else {
            by_type<LG_CU_ANY>(a.shared.type, [&](auto t) {
                if (piece == 0)
                    from[0] = reader_at<t.type>(a.shared, a.shared.p,
                                                min(row0 + ask_u * side + at_row, hidden - 1), at_run);
                if (piece * 32 + at_run < runs)
                    fetch<t.type>(slot, from[0], 0, lane);
                advance<t.type>(from[0]);
            });
        }
        if (++piece == pieces) {
            piece = 0;
            ask += STREAM_WARPS;
            ask_u += STREAM_WARPS;
        }
    };
    slots.start(smem + warp * DEPTH * SLOT,
                warp < items ? (items - warp + STREAM_WARPS - 1) / STREAM_WARPS * pieces : 0, get);
    pdl_wait();
    quantise_mid(a, acts, warp, lane);
    __syncthreads();
    int e = 0, u = warp;
    for (int at = warp; at < items; at += DOWN_ITEMS * STREAM_WARPS) {
        float acc[R * DOWN_ITEMS] = {}, sum;
#pragma unroll
        for (int i = 0; i < DOWN_ITEMS; i++) {
            int item = at + i * STREAM_WARPS;
            if (item >= items)
                break;
            for (; e < a.k && u >= units; u -= units)
                e++;
            u += STREAM_WARPS;
            for (int j = 0; j < pieces; j++) {
                const uint8_t *slot = slots.turn(get);
                if (j * 32 + at_run >= runs)
                    continue;
                act_run x = act_of(acts, e * runs + j * 32 + at_run);
                if (item < routed) {
#pragma unroll
                    for (int r = 0; r < R; r++)
                        acc[i * R + r] =
                            dot_raw<T>(take<T>(slot + r * piece_bytes(T), lane), x, lane & 7, acc[i * R + r]);
                } else {
                    by_type<LG_CU_ANY>(a.shared.type, [&](auto t) {
                        acc[i * R] = dot_raw<t.type>(take<t.type>(slot, lane), x, lane & 7, acc[i * R]);
                    });
                }
            }
        }
        int index = sums_of<R * DOWN_ITEMS>(acc, a.width, lane, &sum), r = index % R;
        int item = at + index / R * STREAM_WARPS, entry = item < routed ? item / units : a.k;
        int expert = __shfl_sync(0xFFFFFFFFu, mine, min(entry, a.k - 1));
        if (at_run % (a.width / (R * DOWN_ITEMS)) != 0 || item >= items || (entry == a.k && r > 0))
            continue;
        int row = entry < a.k ? (item - entry * units) * unit + r * side : (item - routed) * side;
        part[entry * rows + row + at_row] =
            sum * (entry < a.k ? matrix_scale(a.routed, expert) : a.shared.scale);
    }
    __syncthreads();
    for (int o = (int)threadIdx.x; o < rows && row0 + o < hidden && any; o += STREAM_THREADS) {
        float total = a.has_shared ? part[a.k * rows + o] : 0.0f;
        for (int i = 0; i < a.k; i++)
            total = fmaf(__ldcg(&a.w[i]), part[i * rows + o], total);
        a.out[row0 + o] = total;
    }
}

/* ---- the op ---- */

static bool one_type(const lg_cu_ffn *f)
{
    return streams(&f->gate) && streams(&f->up) && f->gate.type == f->up.type && f->gate.n_in % 256 == 0;
}

static size_t first_smem(const lg_cu_route *route, int n_in)
{
    return PAIR_RINGS + act_room(n_in) + (size_t)n_in * sizeof(float) +
           (size_t)n_in / NORM_CHUNK * sizeof(float) + (route ? (size_t)route->n_expert : 0) * sizeof(float);
}

static void run_first(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route, const lg_cu_normed *norm,
                      float *mid)
{
    first_args a = {};
    size_t smem = first_smem(route, m->h.cols);
    auto kernel = norm ? moe_first_kernel<true> : moe_first_kernel<false>;

    if (route)
        a.route = *route;
    if (norm)
        a.norm = *norm;
    a.h = m->h.p;
    a.acts = c->acts;
    a.has_shared = m->shared != NULL;
    if (m->shared) {
        a.gate = m->shared->gate;
        a.up = m->shared->up;
    }
    a.mid = mid;
    a.logits = c->route_logits;
    a.arrived = &c->n_group[1];
    a.n_in = m->h.cols;
    a.rows = m->h.rows;
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)c->sms), STREAM_THREADS, smem, a, c->step);
}

static size_t up_smem(const lg_cu_mat *gate)
{
    return (size_t)STREAM_WARPS * (size_t)up_depth(gate->type) * 2 * (size_t)piece_bytes(gate->type) +
           act_room(gate->n_in);
}

static void run_up(lg_cu *c, const lg_cu_ffn *f, const int32_t *ids, int k, int rows, float *mid)
{
    up_args a = {f->gate, f->up, ids, k, rows, c->acts, mid};
    auto kernel = f->gate.type == LG_Q8_0   ? moe_up_one_kernel<LG_Q8_0>
                  : f->gate.type == LG_Q4_K ? moe_up_one_kernel<LG_Q4_K>
                  : f->gate.type == LG_Q5_K ? moe_up_one_kernel<LG_Q5_K>
                                            : moe_up_one_kernel<LG_Q6_K>;

    share_sm(c, kernel, up_smem(&f->gate));
    launch(c, kernel, dim3((unsigned)c->sms), STREAM_THREADS, up_smem(&f->gate), a, c->step);
}

static int down_width(const lg_cu_mat *m)
{
    int runs = m->n_in / 32;
    return runs > 16 ? 32 : runs > 8 ? 16 : 8;
}

static size_t down_smem(const lg_cu *c, const lg_cu_moe *m, int depth)
{
    const lg_cu_mat *d = &m->routed->down;
    size_t slots = (size_t)m->k + (m->shared != NULL),
           unit = (size_t)(down_rows_of(d->type) * 32 / down_width(d));
    size_t rows = ((size_t)ceil_div(ceil_div(d->n_out, (int64_t)unit), c->sms) + 1) * unit;

    return (size_t)(STREAM_WARPS * depth * down_slot(d->type)) + act_room((int)slots * d->n_in) +
           slots * rows * sizeof(float);
}

template <int DEPTH> static void run_down(lg_cu *c, const lg_cu_moe *m, const float *mid)
{
    down_args a = {};
    size_t smem = down_smem(c, m, DEPTH);
    auto kernel = m->routed->down.type == LG_Q8_0   ? moe_down_one_kernel<LG_Q8_0, DEPTH>
                  : m->routed->down.type == LG_Q4_K ? moe_down_one_kernel<LG_Q4_K, DEPTH>
                  : m->routed->down.type == LG_Q5_K ? moe_down_one_kernel<LG_Q5_K, DEPTH>
                                                    : moe_down_one_kernel<LG_Q6_K, DEPTH>;

    a.routed = m->routed->down;
    a.has_shared = m->shared != NULL;
    if (m->shared)
        a.shared = m->shared->down;
    a.ids = m->ids;
    a.w = m->w;
    a.mid = mid;
    a.out = m->out.p;
    a.k = m->k;
    a.rows = m->h.rows;
    a.width = down_width(&m->routed->down);
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)c->sms), STREAM_THREADS, smem, a, c->step);
}

// Does everything fit these kernels?
static bool fits(const lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route, const lg_cu_normed *norm)
{
    const lg_cu_ffn *f = m->routed ? m->routed : m->shared;

    if ((m->routed && !one_type(m->routed)) || (m->shared && !one_type(m->shared)) ||
        (norm && !norm_streams(norm)) || (((uintptr_t)m->h.p & 15) != 0))
        return false;
    if (route && (route->n_expert > 2 * ROUNDS * c->sms || ((uintptr_t)route->router & 15) != 0))
        return false;
    if (!has_room(c, first_smem(route, m->h.cols)) || !has_room(c, up_smem(&f->gate)))
        return false;
    if (!m->routed)
        return f->down.n_in % 32 == 0;
    return m->k <= 31 && streams(&f->down) && has_room(c, down_smem(c, m, DOWN_LEAST)) &&
           (!m->shared || (streams(&m->shared->down) && m->shared->down.n_in == f->down.n_in));
}

bool lg_cu_moe_one(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route, const lg_cu_normed *norm)
{
    size_t at = m->routed ? (size_t)m->k * (size_t)m->routed->gate.n_out : 0;
    float *mid = c->mid_f32, *mid_shared = c->mid_f32 + at;

    if (!fits(c, m, route, norm))
        return false;
    if (m->routed) {
        if (route || m->shared)
            run_first(c, m, route, norm, mid_shared);
        run_up(c, m->routed, m->ids, m->k, m->h.rows, mid);
        if (has_room(c, down_smem(c, m, DOWN_DEPTH)))
            run_down<DOWN_DEPTH>(c, m, mid);
        else
            run_down<DOWN_LEAST>(c, m, mid);
        return true;
    }
    run_up(c, m->shared, NULL, 1, m->h.rows, mid); // dense: down is a plain product
    lg_tensor x = {mid, m->shared->down.n_in, m->shared->down.n_in, m->h.rows};
    lg_cu_part part = {};
    part.w = m->shared->down;
    part.y = m->out.p;
    part.y_stride = m->out.stride;
    lg_cu_quantise_to(c, &x, &c->mid);
    lg_cu_gemv(c, &x, &c->mid, &part, 1);
    return true;
}
