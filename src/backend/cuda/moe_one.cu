/*
 * backend/cuda/moe_one: routing and the mixture of experts for one row, in three launches.
 *
 * The first norms the row, multiplies it with the router and leaves a key for each expert. In the second a
 * warp of every block takes the experts with the greatest keys, while the shared expert's gate and up, which
 * need no choice, are on their way; then all multiply gate and up of the chosen ones. The third
 * (moe_down_one.cu) multiplies all downs and adds them up. In between lie f32 values; the third quantises
 * them for itself.
 *
 * Numbers are those of route.cu and moe_few.cu, bit for bit.
 *
 * Surprise: the third reads the ids of the chosen while the second is still at work: the first leaves -1 in
 * their places, and block 0 of the second the ids as soon as it knows them. No fence is needed, which would
 * come behind all copies that are under way.
 */
#include "backend/cuda/route_keys.cuh"
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
    AHEAD = 3,                  // loads of eight weights under way, unless the compiler knows the columns
};

struct first_args {
    lg_cu_route route;
    lg_cu_normed norm; // of NORM; else h
    const float *h;
    float *logits;
    uint32_t *keys;
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
template <int N> DEV void router_ahead(const first_args &a, int n_in, int warp, int lane, eight (&w)[N])
{
    int expert = (int)(blockIdx.x + (unsigned)(warp / 4) * gridDim.x), at = (warp % 4 * 32 + lane) * 8;

#pragma unroll
    for (int u = 0; u < N; u++)
        if (expert < a.route.n_expert && at + u * 1024 < n_in)
            w[u] = weights8(a.route.router + (size_t)expert * (size_t)n_in + (size_t)(at + u * 1024));
}

template <int N>
DEV void router_sums(const first_args &a, int n_in, int warp, int lane, const eight (&w)[N], const float *h,
                     float (*part)[STREAM_WARPS])
{
    int expert = (int)(blockIdx.x + (unsigned)(warp / 4) * gridDim.x), at = (warp % 4 * 32 + lane) * 8;

    for (int round = 0; expert < a.route.n_expert; round++, expert += ROUTERS * (int)gridDim.x) {
        const float *row = a.route.router + (size_t)expert * (size_t)n_in;
        float acc = 0.0f;
        int from = at;
        if (round == 0) {
#pragma unroll
            for (int u = 0; u < N; u++)
                if (at + u * 1024 < n_in)
                    acc = dot8(w[u], h + at + u * 1024, acc);
            from += N * 1024;
        }
#pragma unroll 2
        for (int i = from; i < n_in; i += 1024)
            acc = dot8(weights8(row + i), h + i, acc);
        acc = warp_sum(acc);
        if (lane == 0)
            part[round][warp] = acc;
    }
}

// Of a normed row, 128 columns for everybody.
DEV void leave_chunk(const lg_cu_normed &a, const float *h, int chunk, int lane)
{
    int i = chunk * NORM_CHUNK + lane * 4;
    float4 y = *(const float4 *)(h + i);

    *(float4 *)(a.h + i) = y;
    store_quad(a.acts.q, a.acts.meta, i / 32, lane, quantise4(y));
}

// All blocks norm the row. Warps that have no expert leave the results for everybody; if there are none, each
// block leaves some. COLS: of the row, where the compiler is to know them, or 0.
template <bool NORM, int COLS>
static __global__ void __launch_bounds__(STREAM_THREADS, 2)
    moe_first_kernel(__grid_constant__ const first_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(16) uint8_t smem[]; // the row, sums of the norm
    __shared__ float part[ROUNDS][STREAM_WARPS];
    int lane = threadIdx.x % 32, warp = warp_index(), n_in = COLS ? COLS : a.n_in;
    float *h = (float *)smem, *sums = h + n_in;
    bool any = step_rows(step, a.rows) > 0;
    int first = (int)(blockIdx.x + (unsigned)(warp / 4) * gridDim.x); // the warp's first expert
    int idle = ROUTERS * (int)gridDim.x - a.route.n_expert;           // fours of warps without any
    int expert = (int)(blockIdx.x + threadIdx.x * gridDim.x); // whose sums the thread finishes
    bool finishes = threadIdx.x < ROUTERS * ROUNDS && expert < a.route.n_expert && any;
    bool idle_leave = NORM && idle > 0 && !a.norm.x_out;
    unsigned stores = chunks_here(any && !idle_leave);
    float bias = 0.0f;
    eight w[COLS ? (COLS + 1023) / 1024 : (int)AHEAD];
    norm_part<STREAM_WARPS, COLS> norm;

    if (NORM)
        norm_weights(norm, a.norm);
    router_ahead(a, n_in, warp, lane, w);
    if (finishes && a.route.bias)
        bias = __ldg(&a.route.bias[expert]);
    let_next(); // it has weights to ask for at once
    pdl_wait();
    if (blockIdx.x == 0 && (int)threadIdx.x < a.route.k && any)
        a.route.ids[threadIdx.x] = -1; // the third launch waits until the second has them
    if (NORM) {
        norm_in(norm, a.norm, NULL, h, sums, stores, [] {});
    } else {
        for (int i = (int)threadIdx.x * 4; i < n_in; i += STREAM_THREADS * 4)
            *(float4 *)(h + i) = __ldcg((const float4 *)(a.h + i));
        __syncthreads();
    }
    if (idle_leave && any) // of the warps with experts nobody
        for (int c = (first - a.route.n_expert) * 4 + warp % 4; c >= 0 && c < n_in / NORM_CHUNK;
             c += idle * 4)
            leave_chunk(a.norm, h, c, lane);
    router_sums(a, n_in, warp, lane, w, h, part);
    __syncthreads();
    if (finishes) {
        const float *p = &part[threadIdx.x / ROUTERS][threadIdx.x % ROUTERS * 4];
        float logit = p[0] + p[1] + p[2] + p[3];
        a.logits[expert] = logit;
        a.keys[expert] = key_of(score_of(logit) + bias); // a score is not negative, so + 0 changes nothing
    }
}

/* ---- the second launch ---- */

struct up_args {
    lg_cu_mat gate, up, shared_gate, shared_up;
    int n_shared, k, rows; // rows of the shared expert; experts, or 1
    lg_cu_route route;     // router NULL: the choice is in ids
    const uint32_t *keys;
    const int32_t *ids; // NULL: one matrix
    lg_cu_acts acts;
    float *mid, *mid_shared; // [k][ffn]
    ring_plan ring;
};

enum {
    UP_MORE = 12, // warps of a block, where all of its rows fit the rings; UP_WARPS elsewhere
    UP_WARPS = STREAM_WARPS,
    UP_PAIRS = 4, // of a warp between two reductions
    UP_TELL = 4,  // slots left to be asked for when the third launch is let in
};

// All warps wait for the first launch. Then the first warp finds the experts, and the others copy the
// activations. Ends with a barrier.
template <int WARPS>
DEV void await_choice(const up_args &a, int *experts, uint8_t *acts, int warp, int lane, bool any)
{
    bool chooses = a.route.router && warp == 0;
    int id = -1, runs = a.gate.n_in / 32;

    wait_for_last();
    if (WARPS == UP_MORE)
        let_next(); // all is asked for, or will be at once
    if (warp > 0) {
#pragma unroll 1
        for (int i = (int)threadIdx.x - 32; i < runs; i += 32 * (WARPS - 1)) {
            held_run held;
            hold_run(held, a.acts.q, a.acts.meta, i, runs);
            put_run(acts, held, i, runs);
        }
    } else {
        if (chooses) {
            const key_set keys = load_keys(a.keys, lane);
            id = choose_keys(keys, a.route.n_expert, a.route.k, lane);
            if (id < 0)
                id = choose_among(keys, a.route.n_expert, a.route.k, lane);
        } else {
            id = a.ids && lane < a.k && any ? __ldcg(&a.ids[lane]) : 0;
        }
        experts[lane] = id;
        if (chooses && blockIdx.x == 0 && lane < a.k && any)
            put_shared_id(&a.route.ids[lane], id);
    }
    __syncthreads();
}

// Rows of a shared expert in another type than the others'.
template <int S, int WARPS, typename Get>
DEV void other_rows(const up_args &a, row_ring &slots, const uint8_t *acts, int first, int end, int runs,
                    int lane, bool any, Get get)
{
    for (int row = first; row < end; row += WARPS) {
        float v[2] = {}, sum;
#pragma unroll 1
        for (int run = 0; run < runs; run += SLICE) {
            const uint8_t *x = acts + run / 32 * ACT_PIECE;
            int n = min((int)SLICE, runs - run);
            unsigned skew = skew_of(a.shared_gate, {row, run});
#pragma unroll 1
            for (int i = 0; i < 2; i++) {
                const uint8_t *slot = slots.turn();
                by_type<S>(a.shared_gate.type, [&](auto t) { // v[1] is now the first
                    push(v, slice_dot<t.type>(slot, n, 0, n, skew, x, lane, v[0]));
                });
                slots.done(get);
            }
        }
        (void)sums_of<2>(v, 32, lane, &sum);
        float up = __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
        if (lane == 0 && any)
            a.mid_shared[row] = swiglu(sum * a.shared_gate.scale, up * a.shared_up.scale);
    }
}

// What a warp multiplies: pairs of the shared expert, every WARPS-th of the block's, then of the chosen ones.
template <int WARPS> struct up_share {
    int first_s, end_s, n_s; // rows of the shared expert, and how many
    int first, n;            // pairs, counted through all experts
    int e, row;              // the first one's expert and row

    __device__ __forceinline__ up_share(const up_args &a, int warp)
    {
        unsigned total = (unsigned)(a.k * a.gate.n_out), shared = (unsigned)a.n_shared;
        int end = (int)(total * (blockIdx.x + 1) / gridDim.x);

        first = (int)(total * blockIdx.x / gridDim.x) + warp;
        n = first < end ? (end - first + WARPS - 1) / WARPS : 0;
        first_s = (int)(shared * blockIdx.x / gridDim.x) + WARPS - 1 - warp; // the last have fewer pairs
        end_s = (int)(shared * (blockIdx.x + 1) / gridDim.x);
        n_s = first_s < end_s ? (end_s - first_s + WARPS - 1) / WARPS : 0;
        e = first / a.gate.n_out;
        row = first - e * a.gate.n_out;
    }
};

// Where the value of a pair goes, and the scales of its products.
struct up_place {
    float *mid;
    float scale, scale_up;
};

// Of a warp's item, at least -UP_PAIRS; the first `ahead` are of the shared expert. Made before the product,
// which waits for bytes, not behind it.
template <typename Share>
DEV up_place place_of(const up_args &a, const Share &p, const int *experts, int item, int ahead, int warps)
{
    up_place t = {a.mid_shared + p.first_s + item * warps, a.shared_gate.scale, a.shared_up.scale};

    if (item >= ahead) {
        int e = p.e;
        for (int row = p.row + (item - ahead) * warps; row >= a.gate.n_out; row -= a.gate.n_out)
            e++;
        t.mid = a.mid + p.first + (item - ahead) * warps;
        t.scale = matrix_scale(a.gate, experts[e]);
        t.scale_up = matrix_scale(a.up, experts[e]);
    }
    asm volatile("" : "+l"(t.mid), "+f"(t.scale), "+f"(t.scale_up));
    return t;
}

// What a warp asks for next: a slice of a row of gate and of up.
struct pair_cursor {
    const uint8_t *gate, *up; // of the matrices in turn
    int row, end, slice;      // from `end` on the row is one of the next matrix
    int e;                    // the expert's rank
    lg_cu_mat m;              // where planes lie

    __device__ __forceinline__ void planes_of(const lg_cu_mat &of)
    {
#pragma unroll
        for (int i = 0; i < 3; i++)
            m.at[i] = of.at[i];
    }
};

// A slot holds a slice of a row of gate and of up, or, of a shared expert in another type, of one of them.
// S: the type of the shared expert; T, another one, or LG_CU_ANY. R: runs of a row, where the compiler is to
// know them, at most SLICE; or 0.
template <int T, int S, int WARPS, int R>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    moe_up_one_kernel(__grid_constant__ const up_args a, const lg_cu_step *step)
{
    constexpr bool PAIRS = S == T;
    extern __shared__ __align__(16) uint8_t smem[]; // rings, quantised row
    __shared__ int experts[32];
    int lane = threadIdx.x % 32, warp = warp_index(), runs = R ? R : a.gate.n_in / 32,
        slices = (runs + SLICE - 1) / SLICE, ffn = a.gate.n_out;
    const up_share<WARPS> p(a, warp);
    uint8_t *acts = smem + ring_room(a.ring);
    bool any = step_rows(step, a.rows) > 0;
    pair_cursor next = {NULL, NULL, p.row + ffn, ffn, 0, p.e - 1, a.gate}; // one before the first
    int ask_s = p.first_s, slice_s = 0, second = 0, ahead = PAIRS ? p.n_s : 0;
    row_ring slots;
    if (R)
        next.m.n_in = 32 * R; // as it is, and a constant

    auto get = [&](unsigned to, unsigned bar) {
        if (next.row >= next.end) {
            if (PAIRS && next.e < p.e - 1) { // the shared expert was in turn
                next.row = p.row + ffn;
                next.end = ffn;
                next.e = p.e - 1;
                next.planes_of(a.gate);
            }
            for (; next.row >= ffn; next.row -= ffn)
                next.e++;
            unsigned expert = (unsigned)experts[next.e];
            next.gate = a.gate.p + (uint64_t)expert * (unsigned)a.gate.matrix_bytes;
            next.up = a.up.p + (uint64_t)expert * (unsigned)a.up.matrix_bytes;
        }
        const place at = {next.row, next.slice * SLICE};
        fetch_pair<T>(to, bar, next.m, next.gate, next.up, at, min((int)SLICE, runs - at.run), slices == 1,
                      lane);
        if (++next.slice == slices) {
            next.slice = 0;
            next.row += WARPS;
        }
    };
    auto get_any = [&](unsigned to, unsigned bar) {
        if (PAIRS || ask_s >= p.end_s) {
            get(to, bar);
            return;
        }
        const place at = {ask_s, slice_s * SLICE};
        lg_cu_mat m = a.shared_gate;
        m.n_in = next.m.n_in;
        by_type<S>(m.type, [&](auto t) {
            fetch<t.type>(to, bar, m, second ? a.shared_up.p : a.shared_gate.p, at,
                          min((int)SLICE, runs - at.run), slices == 1, lane);
        });
        second ^= 1;
        if (second)
            return;
        slice_s = slice_s + 1 == slices ? 0 : slice_s + 1;
        ask_s += slice_s == 0 ? WARPS : 0;
    };
    if (ahead > 0) {
        next.gate = a.shared_gate.p;
        next.up = a.shared_up.p;
        next.row = p.first_s;
        next.end = p.end_s;
        next.e = p.e - 2;
        next.planes_of(a.shared_gate);
    }
    slots.open(smem, a.ring, warp, lane, (p.n + (PAIRS ? p.n_s : 2 * p.n_s)) * slices,
               WARPS == UP_MORE ? -1 : UP_TELL);
#pragma unroll 1
    for (bool known = false;; known = true) { // one code for what can be asked for early and for the rest
        slots.fill(known ? (int)RING_MOST : (PAIRS ? p.n_s : 2 * p.n_s) * slices, get_any);
        if (known)
            break;
        await_choice<WARPS>(a, experts, acts, warp, lane, any);
    }
    if (!PAIRS)
        other_rows<S, WARPS>(a, slots, acts, p.first_s, p.end_s, runs, lane, any, get_any);
    for (int at = 0; at < ahead + p.n; at += UP_PAIRS) {
        float acc[2 * UP_PAIRS] = {}, sum;
        int behind = min(at + UP_PAIRS, ahead + p.n);
        const up_place to = place_of(a, p, experts, behind - UP_PAIRS + lane / (32 / UP_PAIRS), ahead, WARPS);
#pragma unroll 1
        for (int i = at; i < behind; i++) {
            float v = 0.0f, w = 0.0f;
#pragma unroll 1
            for (int s = 0; s < slices; s++) {
                int row = i < ahead ? p.first_s + i * WARPS : p.row + (i - ahead) * WARPS;
                unsigned skew = T == LG_Q6_K ? skew_of(a.gate, {i < ahead ? row : row % ffn, s * SLICE}) : 0;
                slice_dot2<T, false>(slots.turn(), min((int)SLICE, runs - s * SLICE), skew,
                                     acts + s * SLICE_ACTS, lane, &v, &w);
                slots.done(get);
            }
            push(acc, v);
            push(acc, w);
        }
        (void)sums_of<2 * UP_PAIRS>(acc, 32, lane, &sum);
        float up = __shfl_xor_sync(0xFFFFFFFFu, sum, 16 / UP_PAIRS);
        if (lane % (32 / UP_PAIRS) == 0 && behind - UP_PAIRS + lane / (32 / UP_PAIRS) >= at && any)
            *to.mid = swiglu(sum * to.scale, up * to.scale_up);
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
    auto kernel = !norm               ? moe_first_kernel<false, 0>
                  : m->h.cols == 3072 ? moe_first_kernel<true, 3072> // what published models have
                  : m->h.cols == 2048 ? moe_first_kernel<true, 2048>
                                      : moe_first_kernel<true, 0>;

    a.route = *route;
    if (norm)
        a.norm = *norm;
    a.h = m->h.p;
    a.logits = c->route_logits;
    a.keys = c->route_keys;
    a.n_in = m->h.cols;
    a.rows = m->h.rows;
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)c->sms), STREAM_THREADS, smem, a, c->step);
}

static int slice_runs(const lg_cu_mat *m)
{
    return m->n_in / 32 < SLICE ? m->n_in / 32 : (int)SLICE;
}

// gate, up: of the experts, or of a dense one; shared or NULL. k: experts, or 1.
static ring_plan plan_up(const lg_cu *c, const lg_cu_mat *gate, const lg_cu_ffn *shared, int k)
{
    int slot = 2 * rows_bytes(gate->type, slice_runs(gate)), rows = k * gate->n_out;
    size_t other = act_room(gate->n_in), all;
    ring_plan p = {};

    if (!shared || shared->gate.type == gate->type) {
        rows += shared ? shared->gate.n_out : 0;
        all = (size_t)ceil_div(rows, c->sms) * (size_t)(2 * rows_bytes(gate->type, gate->n_in / 32));
        if (all + other <= STREAM_SMEM) // it waits for instructions, not for bytes
            p = plan_ring(c, slot, other, UP_MORE);
        return p.depth > 0 ? p : plan_ring(c, slot, other, UP_WARPS);
    }
    int single = rows_bytes(shared->gate.type, slice_runs(gate));
    return plan_ring(c, slot > single ? slot : single, other, UP_WARPS);
}

template <int T, int S, int WARPS, int R> static void run_up_as(lg_cu *c, const up_args &a)
{
    size_t smem = (size_t)ring_room(a.ring) + act_room(a.gate.n_in);

    share_sm(c, moe_up_one_kernel<T, S, WARPS, R>, smem);
    launch(c, moe_up_one_kernel<T, S, WARPS, R>, dim3((unsigned)c->sms), 32 * WARPS, smem, a, c->step);
}

template <int T> static void run_up(lg_cu *c, const up_args &a)
{
    int other = a.n_shared > 0 ? a.shared_gate.type : T, runs = a.gate.n_in / 32;
    bool more = a.ring.warps == UP_MORE;

    // what published models have
    if (T == LG_Q4_K && other == LG_Q8_0 && runs == 96)
        run_up_as<LG_Q4_K, LG_Q8_0, UP_WARPS, 96>(c, a);
    else if (T == LG_Q4_K && other == LG_Q4_K && runs == 64 && more)
        run_up_as<LG_Q4_K, LG_Q4_K, UP_MORE, 64>(c, a);
    else if (other != T)
        run_up_as<T, LG_CU_ANY, UP_WARPS, 0>(c, a);
    else if (more)
        run_up_as<T, T, UP_MORE, 0>(c, a);
    else
        run_up_as<T, T, UP_WARPS, 0>(c, a);
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
    a.keys = c->route_keys;
    a.ids = ids;
    a.acts = c->acts;
    a.mid = c->mid_f32;
    a.mid_shared = c->mid_f32 + (size_t)k * (size_t)f->gate.n_out;
    a.ring = plan_up(c, &f->gate, shared, k);
    if (f->gate.type == LG_Q8_0)
        run_up<LG_Q8_0>(c, a);
    else if (f->gate.type == LG_Q4_K)
        run_up<LG_Q4_K>(c, a);
    else if (f->gate.type == LG_Q5_K)
        run_up<LG_Q5_K>(c, a);
    else
        run_up<LG_Q6_K>(c, a);
}

// Does everything fit these kernels?
static bool fits(const lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route, const lg_cu_normed *norm)
{
    const lg_cu_ffn *f = m->routed ? m->routed : m->shared, *shared = m->routed ? m->shared : NULL;

    if (!one_type(f) || (shared && !one_type(shared)) || (norm && !norm_streams(norm)) ||
        (((uintptr_t)m->h.p & 15) != 0))
        return false;
    if (route && (route->softmax || route->n_expert > KEY_EXPERTS ||
                  route->n_expert > ROUTERS * ROUNDS * c->sms || ((uintptr_t)route->router & 15) != 0))
        return false;
    if (plan_up(c, &f->gate, shared, m->routed ? m->k : 1).depth == 0)
        return false;
    if (!m->routed)
        return f->down.n_in % 32 == 0;
    return lg_cu_moe_down_fits(c, m);
}

bool lg_cu_moe_one(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route, const lg_cu_normed *norm)
{
    if (!fits(c, m, route, norm))
        return false;
    if (m->routed) {
        if (route)
            run_first(c, m, route, norm);
        launch_up(c, m, m->routed, m->shared, route, m->ids, m->k);
        lg_cu_moe_down_one(c, m, route);
        return true;
    }
    launch_up(c, m, m->shared, NULL, NULL, NULL, 1); // dense: down is a plain product
    float *mid = c->mid_f32;
    lg_tensor x = {mid, m->shared->down.n_in, m->shared->down.n_in, m->h.rows};
    lg_cu_part part = {};
    part.w = m->shared->down;
    part.y = m->out.p;
    part.y_stride = m->out.stride;
    part.add = m->add;
    lg_cu_quantise_to(c, &x, &c->mid);
    lg_cu_gemv(c, &x, &c->mid, &part, 1);
    return true;
}
