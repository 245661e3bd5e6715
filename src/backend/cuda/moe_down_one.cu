/*
 * backend/cuda/moe_down_one: the last launch of a mixture of experts for one row (moe_one.cu): the products
 * with all downs, and their weighted sum.
 *
 * Every block quantises the values between the products for itself, and multiplies them with its rows of each
 * expert, then of the shared one. An item is some rows of one matrix; the block's items go to its warps in
 * turn, each with slots in shared memory that bulk copies fill (stream.cuh), before the launch before has
 * finished; what has no room there is brought to L2 until then.
 *
 * Numbers are those of moe_few.cu, bit for bit.
 *
 * Surprise: what counts here is not bytes but how many instructions a warp runs through one after the other.
 * So there are more warps than in the other kernels of the stream, with half of the registers, and nothing is
 * divided behind the wait.
 */
#include "backend/cuda/route.cuh"
#include "backend/cuda/stream.cuh"

enum {
    DOWN_WARPS = 16, // a multiple of four
    DOWN_THREADS = 32 * DOWN_WARPS,
    DOWN_SMEM = 105600,   // with the rest of a block 107,000 bytes: the next kernel may have 126,000
    DOWN_ROWS = 4,        // of an item, one behind the other, at most; or 2
    DOWN_SHARED_ROWS = 2, // of the shared expert, at most; or 1
    MID_UNIT = 256,       // values that a warp quantises at a time
    MID_AHEAD = 3,        // so often under way
};

struct down_args {
    lg_cu_mat routed, shared;
    bool has_shared;
    const int32_t *ids;
    const float *w, *mid; // mid: [k][n_in], then of the shared expert
    lg_cu_route route;    // router NULL: ids and w are there; else the launch before leaves ids
    const float *logits;
    float *out;
    lg_cu_residual add;
    int k, rows;
    int shift;                  // 2^shift lanes share a row
    int item_rows, shared_rows; // of an item, times the rows that lie side by side in a warp
    int slot, slots;            // bytes of a slot; slots of a block
    int early;                  // slots of a warp before the wait; as a constant it costs registers
};

/* ---- the values between the products ---- */

// A unit: eight runs. Four lanes hold one, each four values of both halves.
struct mid_unit {
    float4 lo, hi;
};

DEV mid_unit load_unit(const float *p)
{
    mid_unit u = {__ldcg((const float4 *)p), __ldcg((const float4 *)p + 4)};
    return u;
}

// Bits whose low bytes are code_of's codes plus 128: 1.5 * 2^23 + 128 is added, so that ties go as there.
DEV unsigned code_bits(float a, float inverse)
{
    return __float_as_uint(__fadd_rn(__fmul_rn(a, inverse), 12583040.0f));
}

// The codes of a lane. Only where a NaN or an infinity is among the run's values, code_of has to look at
// each.
DEV void codes_of(const mid_unit &u, float inverse, int *lo, int *hi)
{
    const unsigned base = 0x4B400000;
    unsigned b[8] = {code_bits(u.lo.x, inverse), code_bits(u.lo.y, inverse), code_bits(u.lo.z, inverse),
                     code_bits(u.lo.w, inverse), code_bits(u.hi.x, inverse), code_bits(u.hi.y, inverse),
                     code_bits(u.hi.z, inverse), code_bits(u.hi.w, inverse)};
    unsigned odd = 0;

#pragma unroll
    for (int i = 0; i < 8; i++)
        odd |= b[i] ^ base;
    *lo = (int)(low_bytes(b[0], b[1], b[2], b[3]) ^ 0x80808080);
    *hi = (int)(low_bytes(b[4], b[5], b[6], b[7]) ^ 0x80808080);
    if (odd > 255) {
        *lo = codes4(u.lo, inverse);
        *hi = codes4(u.hi, inverse);
    }
}

// The numbers of quantise4, with eight values on each of four lanes. codes, meta: the lane's places.
DEV void put_unit(const mid_unit &u, uint8_t *codes, uint8_t *meta, int lane)
{
    float max = fmaxf(abs_max4(u.lo), abs_max4(u.hi));

    max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFu, max, 2));
    max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFu, max, 1));
    bool zero = !(max >= 0x1p-100f);
    float inverse = zero ? 0.0f : inverse_of(max);
    int lo, hi;
    codes_of(u, inverse, &lo, &hi);
    int sums = __dp4a(hi, 0x01010101, 0) * 65536 + __dp4a(lo, 0x01010101, 0); // exact: both halves are small
    *(int *)codes = lo;
    *(int *)(codes + 512) = hi;
    sums += __shfl_xor_sync(0xFFFFFFFFu, sums, 2);
    sums += __shfl_xor_sync(0xFFFFFFFFu, sums, 1);
    if (lane % 4 == 0) {
        int low = (int)(short)(sums & 0xFFFF), high = (sums + 0x8000) >> 16;
        float scale = zero ? 0.0f : scale_of(max);
        *(float *)meta = scale;
        *(float *)(meta + 128) = __fmul_rn(scale, (float)(low + high));
        *(int *)(meta + 256) = (sums & 0xFFFF) | high << 16;
    }
}

// What a lane quantises: units that it loads from `from` on; where codes and numbers go (bytes from the
// activations).
struct mid_plan {
    const float *from;
    int n; // values behind the warp's first one, in units
    unsigned codes, meta;
};

DEV mid_plan plan_mid(const float *mid, int units, int warp, int lane)
{
    unsigned run = (unsigned)(warp % 4 * 8 + lane / 4), piece = (unsigned)warp / 4 * ACT_PIECE;
    mid_plan p = {mid + warp * MID_UNIT + lane / 4 * 32 + lane % 4 * 4, units - warp,
                  piece + run * 16 + (unsigned)lane % 4 * 4, piece + 1024 + run * 4};

    // known before the wait, not when they are used
    asm volatile("" : "+l"(p.from), "+r"(p.n), "+r"(p.codes), "+r"(p.meta));
    return p;
}

// The next loads of a lane, all at once.
DEV void load_units(const mid_plan &p, mid_unit (&u)[MID_AHEAD])
{
#pragma unroll
    for (int j = 0; j < MID_AHEAD; j++)
        if (p.n > j * DOWN_WARPS)
            u[j] = load_unit(p.from + j * DOWN_WARPS * MID_UNIT);
}

// All values, those of the experts and the shared one's behind them, quantised. u: the first ones. One unit
// after the other, because warps enough hide each other's latencies.
DEV void quantise_mid(mid_plan p, mid_unit (&u)[MID_AHEAD], uint8_t *acts, int lane)
{
    enum { STEP = DOWN_WARPS / 4 * ACT_PIECE }; // from one unit of a warp to its next

    while (p.n > 0) {
#pragma unroll 1
        for (int left = min(p.n, MID_AHEAD * DOWN_WARPS); left > 0; left -= DOWN_WARPS) {
            put_unit(u[0], acts + p.codes, acts + p.meta, lane);
            p.codes += STEP;
            p.meta += STEP;
#pragma unroll
            for (int j = 0; j + 1 < MID_AHEAD; j++)
                u[j] = u[j + 1];
        }
        p.n -= MID_AHEAD * DOWN_WARPS;
        p.from += MID_AHEAD * DOWN_WARPS * MID_UNIT;
        load_units(p, u);
    }
}

/* ---- the items ---- */

// What the products look like. R: runs of a row, where the compiler is to know them (items then have all
// their rows), or 0.
template <int R> struct down_shape {
    int runs, shift, side, item_rows; // 2^shift lanes share a row; side: rows side by side

    __device__ __forceinline__ explicit down_shape(const down_args &a)
    {
        runs = R ? R : a.routed.n_in / 32;
        shift = R ? R > 16 ? 5 : R > 8 ? 4 : 3 : a.shift;
        side = 32 >> shift;
        item_rows = R ? (int)DOWN_ROWS : a.item_rows;
    }
};

// What a block multiplies: `units` units of its rows of each expert, then smaller ones of the shared expert.
struct down_share {
    int row0, rows, unit, units, unit_s; // rows of the block are [row0, row0 + rows)
    int routed, items;                   // items of the experts; all
};

template <int R> DEV down_share share_of(const down_args &a, const down_shape<R> &s)
{
    unsigned per = (unsigned)(s.item_rows * s.side), all = (unsigned)a.routed.n_out / per; // exact
    int u0 = (int)(all * blockIdx.x / gridDim.x);
    down_share p;

    p.unit = (int)per;
    p.unit_s = a.shared_rows * s.side;
    p.units = (int)(all * (blockIdx.x + 1) / gridDim.x) - u0;
    p.row0 = u0 * p.unit;
    p.rows = p.units * p.unit;
    p.routed = a.k * p.units;
    p.items = p.routed;
    if (a.has_shared)
        p.items += p.units * (a.shared_rows == 1 ? s.item_rows : s.item_rows / 2);
    return p;
}

// An item of a warp. The next one is DOWN_WARPS further: over_e experts and over_u units.
struct item_at {
    int item, e, u; // expert's rank and unit, of items below `routed`

    __device__ __forceinline__ void advance(const down_share &p, int over_e, int over_u)
    {
        item += DOWN_WARPS;
        e += over_e;
        u += over_u;
        if (u >= p.units) {
            u -= p.units;
            e++;
        }
    }
};

// A warp's slots: every DOWN_WARPS-th of the block's, so that some warps may have one more.
struct slot_ring {
    unsigned base, first, at, end, step; // base: shared address; others: bytes from there
    unsigned bar0, bar, parity;
    int depth, asked, left; // slots asked for; items still to be asked for

    __device__ __forceinline__ void open(const uint8_t *smem, const down_args &a, int warp, int lane, int n)
    {
        depth = (a.slots - warp + DOWN_WARPS - 1) / DOWN_WARPS;
        left = n;
        asked = 0;
        base = shared_at(smem);
        first = at = (unsigned)(warp * a.slot);
        step = (unsigned)(DOWN_WARPS * a.slot);
        end = first + (unsigned)depth * step;
        bar0 = bar = base + (unsigned)(a.slots * a.slot + warp * 8);
        parity = 0;
        if (lane < depth)
            bar_init(bar + (unsigned)(lane * DOWN_WARPS * 8));
        bars_ready();
        __syncwarp();
    }
    // Up to `most` slots, before the first turn. ask(slot, barrier) asks for the next item, on all lanes.
    template <typename Ask> __device__ __forceinline__ void fill(int most, Ask ask)
    {
#pragma unroll 1
        for (; asked < most && asked < depth && left > 0; asked++, left--) {
            ask(base + first + (unsigned)asked * step, bar0 + (unsigned)(asked * DOWN_WARPS * 8));
            commit();
        }
    }
    __device__ __forceinline__ void commit(void) // before sm_90: a group of copies an item, and one more
    {
#if __CUDA_ARCH__ < 900
        copies_commit();
#endif
    }
    // The next item's slot, once it is there.
    __device__ __forceinline__ const uint8_t *turn(const uint8_t *smem)
    {
#if __CUDA_ARCH__ >= 900
        bar_wait(bar, parity);
#else
        if (depth > 1)
            copies_wait<1>();
        else
            copies_wait<0>();
        __syncwarp();
#endif
        return smem + at;
    }
    // All lanes have read it.
    template <typename Ask> __device__ __forceinline__ void done(Ask ask)
    {
        __syncwarp();
        if (left > 0) {
            ask(base + at, bar);
            left--;
        }
        commit();
        at += step;
        bar += DOWN_WARPS * 8;
        if (at == end) {
            at = first;
            bar = bar0;
            parity ^= 1;
        }
    }
};

// A lane's first run of a slot: runs, blocks of runs, and (Q8_0) half runs in front of it.
struct lane_place {
    unsigned run, at, block, half;
};

template <int R> DEV lane_place place_of(const down_shape<R> &s, int lane)
{
    unsigned row = (unsigned)lane >> s.shift, run = (unsigned)lane & ((1u << s.shift) - 1);
    lane_place p = {run, row * (unsigned)s.runs + run, 0, 0};

    if (R == 1 << s.shift)
        p.at = (unsigned)lane;
    p.block = p.at / 8;
    p.half = p.at + row * (unsigned)s.runs;
    return p;
}

// take() of a slot of `all` runs, `more` runs (whole rows) behind the place; n: of a row.
template <int T>
DEV raw_run<T> take_at(const uint8_t *slot, unsigned all, unsigned n, const lane_place &p, unsigned more,
                       unsigned skew)
{
    raw_run<T> r;

    if (T == LG_Q8_0) {
        const uint8_t *q = slot + p.half * 16 + more * 32;
        r.a = *(const uint4 *)q;
        r.b = *(const uint4 *)(q + n * 16);
        r.c = *(const unsigned short *)(slot + p.at * 2 + (all * 32 + more * 2));
        return r;
    }
    r.a = *(const uint4 *)(slot + p.at * 16 + more * 16);
    if (T == LG_Q6_K) {
        uint2 h = *(const uint2 *)(slot + p.at * 8 + (all * 16 + more * 8));
        r.b.x = h.x, r.b.y = h.y;
        r.c = *(const unsigned short *)(slot + p.at * 2 + (all * 24 + more * 2));
        r.d = *(const unsigned short *)(slot + skew + p.block * 2 + (all * 26 + more / 4));
    } else {
        r.b = *(const uint4 *)(slot + p.block * 16 + (all * 16 + more * 2));
        if (T == LG_Q5_K)
            r.c = *(const unsigned *)(slot + p.at * 4 + (all * 18 + more * 4));
    }
    return r;
}

// N rows of an item, or half of them. x: activations of the item's expert begin with run x.
template <int T, int N, int R>
DEV void item_dots(const uint8_t *slot, const down_shape<R> &s, lane_place p, unsigned skew,
                   const uint8_t *acts, unsigned x, int lane, int n_rows, float (&v)[N])
{
    unsigned n = (unsigned)s.runs, all = n * (unsigned)(n_rows * s.side), more = n * (unsigned)s.side;

#pragma unroll 1
    for (unsigned j = p.run; R == 1 << s.shift || j < n; j += 32) {
        unsigned at = x + j;
        const uint8_t *q = acts + at / 32 * ACT_PIECE + at % 32 * 16,
                      *meta = acts + at / 32 * ACT_PIECE + 1024 + at % 32 * 4;
        act_run y = {*(const int4 *)q, *(const int4 *)(q + 512), *(const float *)meta,
                     *(const float *)(meta + 128), *(const int *)(meta + 256)};
#pragma unroll
        for (unsigned r = 0; r < N / 2; r++)
            v[r] = dot_raw<T>(take_at<T>(slot, all, n, p, r * more, skew), y, lane & 7, v[r]);
        if (n_rows > N / 2)
#pragma unroll
            for (unsigned r = N / 2; r < N; r++)
                v[r] = dot_raw<T>(take_at<T>(slot, all, n, p, r * more, skew), y, lane & 7, v[r]);
        if (R == 1 << s.shift)
            break;
        p.at += 32;
        p.block += 4;
        p.half += 32;
    }
}

// Which of N sums sums_of leaves with a lane; -1: one that another lane has as well.
template <int N> DEV int sum_of(int lane, int shift)
{
    int least = shift - (N == 4 ? 2 : 1); // lanes that have the same: 2^least

    return lane & ((1 << least) - 1) ? -1
           : N == 4                  ? (lane >> (shift - 1) & 1) * 2 + (lane >> least & 1)
                                     : lane >> least & 1;
}

/* ---- the kernel ---- */

// T, S: types of the experts and of the shared one (or LG_CU_ANY). R: see down_shape.
template <int T, int S, int R>
static __global__ void __launch_bounds__(DOWN_THREADS, 2)
    moe_down_one_kernel(__grid_constant__ const down_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(16) uint8_t smem[]; // slots, barriers, quantised rows, results
    __shared__ float weights[32];
    int lane = threadIdx.x % 32, warp = warp_index();
    asm volatile("" : "+r"(lane)); // kept, instead of read from the special register where it is used
    const down_shape<R> s(a);
    bool any = step_rows(step, a.rows) > 0;
    lg_cu_mat routed = a.routed, shared = a.shared;
    if (R)
        routed.n_in = shared.n_in = 32 * R; // as it is, and a constant
    // The ids were written by the launch before the last, for which the last has waited before it let this
    // one in; or the last leaves them when it knows them (moe_one.cu).
    int mine = 0;
    if (lane < a.k && any)
        mine = a.route.router ? await_shared_id(&a.ids[lane]) : __ldcg(&a.ids[lane]);
    const down_share p = share_of(a, s);
    int over_e = DOWN_WARPS / max(p.units, 1), over_u = DOWN_WARPS - over_e * p.units;
    item_at asked = {warp, warp / max(p.units, 1), 0};
    asked.u = warp - asked.e * p.units;
    item_at now = asked;
    uint8_t *acts = smem + a.slots * (a.slot + 8);
    float *part = (float *)(acts + act_room((a.k + a.has_shared) * s.runs * 32)); // [entry][p.rows]
    int o = (int)threadIdx.x; // the row that the thread finishes, of the block's
    slot_ring slots;

    auto ask_shared = [&](unsigned to, unsigned bar) {
        by_type<S>(shared.type, [&](auto t) {
            fetch<t.type>(to, bar, shared, shared.p, {p.row0 + (asked.item - p.routed) * p.unit_s, 0},
                          p.unit_s * s.runs, true, lane);
        });
        asked.item += DOWN_WARPS;
    };
    auto ask = [&](unsigned to, unsigned bar) {
        if (asked.item >= p.routed) {
            ask_shared(to, bar);
            return;
        }
        fetch<T>(to, bar, routed, matrix_at(routed, __shfl_sync(0xFFFFFFFFu, mine, asked.e)),
                 {p.row0 + asked.u * p.unit, 0}, p.unit * s.runs, true, lane);
        asked.advance(p, over_e, over_u);
    };
    slots.open(smem, a, warp, lane, warp < p.items ? (p.items - warp + DOWN_WARPS - 1) / DOWN_WARPS : 0);
    slots.fill(a.early, ask);
    float scale = matrix_scale(routed, mine), weight = 0.0f; // of the expert of rank `lane`
    const lane_place at = place_of(s, lane);
    const mid_plan mid = plan_mid(a.mid, (a.k + a.has_shared) * s.runs / (MID_UNIT / 32), warp, lane);
    mid_unit units[MID_AHEAD];
    if (a.route.router && warp == DOWN_WARPS - 1 && any)
        weight = weights_of(a.route, score_of(__ldcg(&a.logits[mine])), lane);
    let_next(); // it has weights to ask for at once, and needs nothing of this step before its wait
    pdl_wait();
    load_units(mid, units);
    if (!a.route.router && warp == DOWN_WARPS - 1 && lane < a.k && any)
        weight = __ldcg(&a.w[lane]);
    slots.fill(RING_MOST, ask);
    slots.commit();
    quantise_mid(mid, units, acts, lane);
    if (warp == DOWN_WARPS - 1) {
        weights[lane] = weight;
        if (a.route.router && blockIdx.x == 0 && lane < a.k && any)
            a.route.w[lane] = weight;
    }
    __syncthreads();
    int mine_at = sum_of<DOWN_ROWS>(lane, s.shift), row_at = lane >> s.shift;
    float *to = part + mine_at * s.side + row_at;
#pragma unroll 1
    for (; now.item < p.routed; now.advance(p, over_e, over_u)) {
        float v[DOWN_ROWS] = {}, sum;
        unsigned skew = T == LG_Q6_K ? skew_of(routed, {p.row0 + now.u * p.unit, 0}) : 0;
        item_dots<T>(slots.turn(smem), s, at, skew, acts, (unsigned)(now.e * s.runs), lane, s.item_rows, v);
        slots.done(ask);
        (void)sums_of<DOWN_ROWS>(v, 1 << s.shift, lane, &sum);
        sum *= __shfl_sync(0xFFFFFFFFu, scale, now.e);
        if (mine_at >= 0 && mine_at < s.item_rows)
            to[now.e * p.rows + now.u * p.unit] = sum;
    }
    float residual = o < p.rows && any && a.add.x ? __ldcg(&a.add.x[p.row0 + o]) : 0.0f;
    mine_at = sum_of<DOWN_SHARED_ROWS>(lane, s.shift);
    to = part + a.k * p.rows + mine_at * s.side + row_at;
#pragma unroll 1
    for (int item = now.item; item < p.items; item += DOWN_WARPS) {
        float v[DOWN_SHARED_ROWS] = {}, sum;
        int row = (item - p.routed) * p.unit_s;
        const uint8_t *slot = slots.turn(smem);
        by_type<S>(shared.type, [&](auto t) {
            unsigned skew = t.type == LG_Q6_K ? skew_of(shared, {p.row0 + row, 0}) : 0;
            item_dots<t.type>(slot, s, at, skew, acts, (unsigned)(a.k * s.runs), lane, a.shared_rows, v);
        });
        slots.done(ask_shared);
        (void)sums_of<DOWN_SHARED_ROWS>(v, 1 << s.shift, lane, &sum);
        if (mine_at >= 0 && mine_at < a.shared_rows)
            to[row] = sum * shared.scale;
    }
    __syncthreads();
    if (o < p.rows && any) {
        float total = a.has_shared ? part[a.k * p.rows + o] : 0.0f;
#pragma unroll 1
        for (int i = 0; i < a.k; i += 4)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (i + j < a.k)
                    total = fmaf(weights[i + j], part[(i + j) * p.rows + o], total);
        a.out[p.row0 + o] = total;
        if (a.add.sum)
            a.add.sum[p.row0 + o] = __fadd_rn(residual, total);
    }
}

/* ---- the launch ---- */

// Rows of a block, at most.
static int rows_of(const lg_cu *c, const lg_cu_mat *d, int unit)
{
    return ceil_div(d->n_out / unit, c->sms) * unit;
}

// Slots, and all bytes of shared memory; 0: it does not fit.
static size_t plan_down(const lg_cu *c, const lg_cu_moe *m, down_args *a)
{
    const lg_cu_mat *d = &m->routed->down;
    size_t most = DOWN_SMEM < c->smem ? (size_t)DOWN_SMEM : (size_t)c->smem, other = 0;
    int runs = d->n_in / 32, entries = m->k + (m->shared != NULL), side, rows;

    a->shift = runs > 16 ? 5 : runs > 8 ? 4 : 3;
    side = 32 >> a->shift;
    for (a->item_rows = DOWN_ROWS;; a->item_rows /= 2) {
        a->slot = rows_bytes(d->type, a->item_rows * side * runs);
        a->shared_rows = 1;
        if (m->shared) {
            int type = m->shared->down.type, n = side * runs;
            // small items level the warps' work, if there are few
            if (rows_bytes(type, 2 * n) <= a->slot &&
                m->k * d->n_out >= 2 * DOWN_WARPS * c->sms * a->item_rows * side)
                a->shared_rows = 2;
            if (rows_bytes(type, a->shared_rows * n) > a->slot)
                a->slot = rows_bytes(type, a->shared_rows * n);
        }
        rows = rows_of(c, d, a->item_rows * side);
        other = act_room(entries * d->n_in) + (size_t)(entries * rows) * sizeof(float);
        a->slots = most > other ? (int)((most - other) / (size_t)(2 * a->slot + 16)) * 2 : 0; // even
        if (a->slots >= 2 * DOWN_WARPS || a->item_rows == DOWN_ROWS / 2)
            break;
    }
    if (a->slots > RING_MOST * DOWN_WARPS)
        a->slots = RING_MOST * DOWN_WARPS;
    // each thread finishes one row at most
    return a->slots >= DOWN_WARPS && rows <= DOWN_THREADS ? (size_t)(a->slots * (a->slot + 8)) + other : 0;
}

template <int T, int S, int R> static void run_as(lg_cu *c, const down_args &a, size_t smem)
{
    share_sm(c, moe_down_one_kernel<T, S, R>, smem);
    launch(c, moe_down_one_kernel<T, S, R>, dim3((unsigned)c->sms), DOWN_THREADS, smem, a, c->step);
}

template <int T> static void run_down(lg_cu *c, const down_args &a, size_t smem)
{
    int runs = a.item_rows == DOWN_ROWS ? a.routed.n_in / 32 : 0, other = a.has_shared ? a.shared.type : T;

    // what published models have
    if (T == LG_Q4_K && other == LG_Q8_0 && runs == 32)
        run_as<LG_Q4_K, LG_Q8_0, 32>(c, a, smem);
    else if (T == LG_Q4_K && other == LG_Q4_K && runs == 16)
        run_as<LG_Q4_K, LG_Q4_K, 16>(c, a, smem);
    else if (T == LG_Q6_K && other == LG_Q6_K && runs == 16)
        run_as<LG_Q6_K, LG_Q6_K, 16>(c, a, smem);
    else if (other == T)
        run_as<T, T, 0>(c, a, smem);
    else
        run_as<T, LG_CU_ANY, 0>(c, a, smem);
}

bool lg_cu_moe_down_fits(const lg_cu *c, const lg_cu_moe *m)
{
    const lg_cu_mat *d = &m->routed->down;
    down_args a;

    return m->k <= 31 && streams(d) && d->n_out % 256 == 0 &&
           (!m->shared || (streams(&m->shared->down) && m->shared->down.n_in == d->n_in)) &&
           plan_down(c, m, &a) > 0;
}

void lg_cu_moe_down_one(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route)
{
    down_args a = {};
    size_t smem = plan_down(c, m, &a);

    a.routed = m->routed->down;
    a.has_shared = m->shared != NULL;
    if (m->shared)
        a.shared = m->shared->down;
    a.ids = route ? route->ids : m->ids;
    a.w = route ? route->w : m->w;
    if (route)
        a.route = *route;
    a.logits = c->route_logits;
    a.mid = c->mid_f32;
    a.out = m->out.p;
    a.add = m->add;
    a.k = m->k;
    a.rows = m->h.rows;
    a.early = 1; // more would delay the end of the launch before (stream.cuh)
    if (a.routed.type == LG_Q8_0)
        run_down<LG_Q8_0>(c, a, smem);
    else if (a.routed.type == LG_Q4_K)
        run_down<LG_Q4_K>(c, a, smem);
    else if (a.routed.type == LG_Q5_K)
        run_down<LG_Q5_K>(c, a, smem);
    else
        run_down<LG_Q6_K>(c, a, smem);
}
