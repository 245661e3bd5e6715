/*
 * backend/cuda/linear: products of at most LG_CU_EXACT_ROWS rows, bound by the bandwidth of the memory.
 *
 * Up to four matrices that share their input are one launch. One activation row: stream.cuh, with the norm in
 * front of it where there is one. Several: linear_few.cu; for the types and shapes that it does not take, a
 * warp computes two weight rows times all of them, and asks for its first weights while the kernel before
 * still runs.
 */
#include "backend/cuda/stream.cuh"

enum { ROW_WARPS = 4 };

struct linear_args {
    lg_cu_part part[LG_CU_PARTS];
    int n_parts, n_groups;
    gemv_in in;
    int rows; // which count of the step
};

template <int COLS, int ROWS, bool ANY>
static __global__ void __launch_bounds__(32 * ROW_WARPS)
    linear_kernel(__grid_constant__ const linear_args a, const lg_cu_step *step)
{
    int lane = threadIdx.x % 32, group = (int)blockIdx.x * ROW_WARPS + (int)threadIdx.x / 32, p = 0;
    int col[COLS], row[ROWS];
    const uint8_t *p_row[ROWS];
    float acc[ROWS][COLS];

    if (group >= a.n_groups)
        return;
    while (p + 1 < a.n_parts && group >= a.part[p + 1].first_group)
        p++;
    const lg_cu_part &part = a.part[p];
    int first = (group - part.first_group) * ROWS;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        row[r] = min(first + r, part.w.n_out - 1);
        p_row[r] = part.w.p;
        prefetch_row(part.w, part.w.p, row[r], lane);
    }
    pdl_wait();
    gemv_in in = a.in;
    in.n_cols = step_rows(step, a.rows);
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        col[c] = c;
        for (int r = 0; r < ROWS; r++)
            acc[r][c] = 0.0f;
    }
    if (in.n_cols == 0)
        return;
    dot_any<COLS, ROWS, COLS == 1 ? 3 : COLS == 4 ? 2 : 1, ANY>(acc, part.w, p_row, row, in, col, lane, 32);
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        if (COLS > 1 && c >= in.n_cols)
            break;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float v = warp_sum(acc[r][c]) * part.w.scale;
            if (lane != 0 || first + r >= part.w.n_out)
                continue;
            part.y[(size_t)c * (size_t)part.y_stride + (size_t)(first + r)] = v;
            if (COLS == 1 && part.add.sum)
                part.add.sum[first + r] = __fadd_rn(part.add.x[first + r], v);
        }
    }
}

/* ---- one row ---- */

struct one_args {
    lg_cu_part part[LG_CU_PARTS]; // first_group: the first row, counted through all parts
    int n_parts, total, n_in, rows;
    int stack; // rows of a slot, 1 or 2: 2 where they are short; all parts have an even number then
    ring_plan ring, lean; // lean: of a block whose rows are all Q4_K, in a mixture of Q4_K and Q6_K
    int early; // slots of a warp that are asked for before the wait
    lg_cu_acts acts;
    lg_cu_normed norm;
    lg_cu_residual add; // of one part
};

enum {
    MORE_WARPS = 12,    // of a block, where all of its rows fit the rings; or
    MOST_WARPS = 16,    // where no warp has so many rows then
    ONE_ROWS = 8,       // of a warp between two reductions, behind a norm
    OUT_ROWS = 4,       // elsewhere, where rows are few
    STACK_BYTES = 3456, // rows that fit twice come in pairs: larger copies
};

// Row `row`, counted through all parts, as a row of one of them.
DEV int one_part(const one_args &a, int *row)
{
    int p = 0;

    while (p + 1 < a.n_parts && *row >= a.part[p + 1].first_group)
        p++;
    *row -= a.part[p].first_group;
    return p;
}

// Are the rows from `from` to `to`, counted through all parts, Q4_K? All of a part's are, or none.
DEV bool all_q4(const one_args &a, int from, int to)
{
    bool all = true;

#pragma unroll
    for (int p = 0; p < LG_CU_PARTS; p++)
        if (p < a.n_parts && a.part[p].w.type != LG_Q4_K)
            all = all && (to <= a.part[p].first_group || from >= a.part[p].first_group + a.part[p].w.n_out);
    return all;
}

// T: the type of all parts, or LG_CU_ANY for a mixture, or LG_CU_Q4_Q6. A warp takes every WARPS-th unit of
// its block's; a unit is `stack` rows. R: runs of a row, where the compiler is to know them; or 0. With more
// than SLICE a slot is a row nevertheless.
template <int T, bool NORM, int WARPS, int R>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    linear_one_kernel(__grid_constant__ const one_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(16) uint8_t smem[]; // rings, activations, sums of the norm
    constexpr int MOST = R > SLICE ? R : (int)SLICE; // runs of a slot
    int lane = threadIdx.x % 32, warp = warp_index(), runs = R ? R : a.n_in / 32,
        slices = (runs + MOST - 1) / MOST, two = R > SLICE ? 0 : a.stack - 1; // a shift
    unsigned blocks = gridDim.x, total = (unsigned)(a.total >> two);
    int first = (int)(total * blockIdx.x / blocks) + warp, end = (int)(total * (blockIdx.x + 1) / blocks);
    int units = first < end ? (end - first + WARPS - 1) / WARPS : 0;
    const ring_plan ring =
        T == LG_CU_Q4_Q6 && all_q4(a, (first - warp) << two, end << two) ? a.lean : a.ring;
    uint8_t *acts = smem + ring_room(ring);
    bool any = step_rows(step, a.rows) > 0;
    constexpr int ROWS = NORM ? ONE_ROWS : OUT_ROWS;
    row_ring slots;
    int ask = first, slice = 0, part_now = 0; // parts come in order
    norm_part<WARPS, 32 * R> norm;
    unsigned stores = chunks_here(any);

    auto get = [&](unsigned to, unsigned bar) {
        int row = ask << two;
        while (part_now + 1 < a.n_parts && row >= a.part[part_now + 1].first_group)
            part_now++;
        lg_cu_mat m = a.part[part_now].w;
        if (R)
            m.n_in = 32 * R; // as it is, and a constant
        row -= a.part[part_now].first_group;
        by_type<T>(m.type, [&](auto t) {
            fetch<t.type>(to, bar, m, m.p, {row, slice * MOST}, min(MOST, runs - slice * MOST) << two,
                          slices == 1, lane);
        });
        slice = slice + 1 == slices ? 0 : slice + 1;
        ask += slice == 0 ? WARPS : 0;
    };
    slots.open(smem, ring, warp, lane, units * slices, 0);
    slots.fill(a.early, get, EARLY_PACE);
    if (NORM)
        norm_weights(norm, a.norm);
    wait_for_last(); // the activations are of the kernel before
    if (NORM) {
        norm_in(norm, a.norm, acts, NULL, (float *)(acts + act_room(a.n_in)), stores,
                [&] { slots.fill(RING_MOST, get); });
    } else {
        held_run held;
        hold_run(held, a.acts.q, a.acts.meta, (int)threadIdx.x, runs);
        slots.fill(RING_MOST, get);
        put_run(acts, held, (int)threadIdx.x, runs);
        copy_acts(acts, a.acts.q, a.acts.meta, 32 * WARPS, runs);
        __syncthreads();
    }
    for (int at = first; at < end; at += (ROWS >> two) * WARPS) {
        float acc[ROWS] = {}, sum, residual = 0.0f, *y = NULL, scale = 0.0f;
        int n = min(ROWS >> two, (end - at + WARPS - 1) / WARPS); // units
        // the row whose sum comes to this lane, and where it goes: known while they are multiplied
        int index = lane / (32 / ROWS) - ROWS + (n << two), mine = 0;
        if (index >= 0) {
            mine = ((at + (index >> two) * WARPS) << two) + (index & two);
            if (!NORM && a.add.x)
                residual = __ldcg(a.add.x + mine);
            const lg_cu_part &part = a.part[one_part(a, &mine)];
            scale = part.w.scale;
            y = part.y + mine;
        }
        asm volatile("" : "+l"(y), "+f"(scale));
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            int row = (at + i * WARPS) << two;
            float v = 0.0f, w = 0.0f;
            const lg_cu_mat &m = a.part[one_part(a, &row)].w;
#pragma unroll 1
            for (int s = 0; s < slices; s++) {
                const uint8_t *slot = slots.turn(), *x = acts + s * SLICE_ACTS;
                int n_runs = min(MOST, runs - s * MOST);
                if (R > SLICE)
                    let_next(); // now: it is the only slot, and done() comes late
                by_type<T>(m.type, [&](auto t) {
                    unsigned skew = t.type == LG_Q6_K ? skew_of(m, {row, s * MOST}) : 0;
                    if constexpr (R > SLICE)
                        v = row_dot<t.type, R>(slot, skew, x, lane, v);
                    else if (two)
                        slice_dot2<t.type, true>(slot, n_runs, skew, x, lane, &v, &w);
                    else
                        v = slice_dot<t.type>(slot, n_runs, 0, n_runs, skew, x, lane, v);
                });
                slots.done(get);
            }
            push(acc, v);
            if (two)
                push(acc, w);
        }
        (void)sums_of<ROWS>(acc, 32, lane, &sum); // the last ones
        if (index >= 0 && lane % (32 / ROWS) == 0 && any) {
            *y = sum * scale;
            if (!NORM && a.add.sum)
                a.add.sum[mine] = __fadd_rn(residual, sum * scale);
        }
    }
}

template <bool NORM, int WARPS> static auto kernel_of(int type)
{
    return type == LG_Q8_0   ? linear_one_kernel<LG_Q8_0, NORM, WARPS, 0>
           : type == LG_Q4_K ? linear_one_kernel<LG_Q4_K, NORM, WARPS, 0>
                             : linear_one_kernel<LG_CU_ANY, NORM, WARPS, 0>;
}

// whole: see run_one.
template <bool NORM> static auto kernel_with(int type, int warps, int n_in, bool whole)
{
    if (NORM && type == LG_Q8_0 && warps == STREAM_WARPS && n_in == 3072)
        return linear_one_kernel<LG_Q8_0, true, STREAM_WARPS, 96>; // what published models have
    if (NORM && type == LG_Q4_K && warps == MOST_WARPS && n_in == 2048)
        return linear_one_kernel<LG_Q4_K, true, MOST_WARPS, 64>;
    if (NORM && type == LG_CU_Q4_Q6 && warps == MOST_WARPS)
        return linear_one_kernel<LG_CU_Q4_Q6, true, MOST_WARPS, 64>;
    if (NORM && type == LG_Q6_K && warps == STREAM_WARPS && n_in == 2048)
        return linear_one_kernel<LG_Q6_K, true, STREAM_WARPS, 64>; // a head
    if (!NORM && whole)
        return n_in == 8192 ? linear_one_kernel<LG_Q4_K, false, MOST_WARPS, 256>
                            : linear_one_kernel<LG_Q4_K, false, MOST_WARPS, 192>;
    return warps == MOST_WARPS   ? linear_one_kernel<LG_Q4_K, NORM, MOST_WARPS, 0> // see plan_one
           : warps == MORE_WARPS ? kernel_of<NORM, MORE_WARPS>(type)
                                 : kernel_of<NORM, STREAM_WARPS>(type);
}

// Slots, and warps. all: bytes of all rows. What fits the rings at once waits for instructions, not for
// bytes: so many warps then that the longest share is short. (Of 16 other types have too many registers.)
static ring_plan plan_one(const lg_cu *c, const one_args &a, int type, int slot, size_t other, size_t all,
                          const lg_cu_normed *norm)
{
    int units = ceil_div(a.total / a.stack, c->sms);
    ring_plan best = plan_ring(c, slot, other, STREAM_WARPS);

    if (all / (size_t)c->sms + other > STREAM_SMEM)
        return best;
    for (int warps = MORE_WARPS; warps <= MOST_WARPS; warps += MOST_WARPS - MORE_WARPS) {
        ring_plan p = plan_ring(c, slot, other, warps);
        if (p.depth > 0 && (!norm || norm->cols <= norm_columns(warps)) &&
            (warps < MOST_WARPS || type == LG_Q4_K || type == LG_CU_Q4_Q6) &&
            (best.depth == 0 || ceil_div(units, warps) < ceil_div(units, best.warps)))
            best = p;
    }
    return best;
}

// False: something does not fit; nothing was done.
static bool run_one(lg_cu *c, const lg_cu_normed *norm, const lg_cu_acts *acts, int rows,
                    const lg_cu_part *parts, int n_parts)
{
    one_args a = {};
    int type = parts[0].w.type, n_in = parts[0].w.n_in, slot = 0;
    bool q4_q6 = norm && n_in == 2048;
    size_t other = act_room(n_in) + (size_t)n_in / NORM_CHUNK * sizeof(float), all = 0;

    a.stack = n_in / 32 <= SLICE ? 2 : 1;
    for (int p = 0; p < n_parts; p++) {
        if (!streams(&parts[p].w))
            return false;
        a.part[p] = parts[p];
        a.part[p].first_group = a.total;
        a.total += parts[p].w.n_out;
        type = parts[p].w.type == type ? type : LG_CU_ANY;
        q4_q6 = q4_q6 && (parts[p].w.type == LG_Q4_K || parts[p].w.type == LG_Q6_K);
        a.stack = parts[p].w.n_out % 2 == 0 ? a.stack : 1;
        int bytes = rows_bytes(parts[p].w.type, n_in / 32 < SLICE ? n_in / 32 : (int)SLICE);
        slot = bytes > slot ? bytes : slot;
        all += (size_t)parts[p].w.n_out * (size_t)rows_bytes(parts[p].w.type, n_in / 32);
    }
    if (2 * slot > STACK_BYTES)
        a.stack = 1;
    slot *= a.stack; // at least what so many rows take: rows_bytes rounds up
    if (type == LG_CU_ANY && q4_q6)
        type = LG_CU_Q4_Q6;
    a.ring = a.lean = plan_one(c, a, type, slot, other, all, norm);
    if (type == LG_CU_Q4_Q6)
        a.lean = plan_ring(c, a.stack * rows_bytes(LG_Q4_K, n_in / 32), other, a.ring.warps);
    // a long row for each warp, and one slot for it
    int row_slot = rows_bytes(LG_Q4_K, n_in / 32);
    bool whole = !norm && type == LG_Q4_K && (n_in == 8192 || n_in == 6144) && a.stack == 1 &&
                 ceil_div(a.total, c->sms) <= MOST_WARPS &&
                 (size_t)(MOST_WARPS * (row_slot + 8)) + other <=
                     (size_t)(c->smem < STREAM_SMEM ? c->smem : (int)STREAM_SMEM);
    if (whole)
        a.ring = a.lean = {row_slot, 1, MOST_WARPS};
    if (a.ring.depth == 0 || (norm && !norm_streams(norm)))
        return false;
    // behind attention memory has time
    int slots = ceil_div(a.total / a.stack, c->sms) * (whole ? 1 : ceil_div(n_in / 32, SLICE));
    a.early = norm || slots <= a.ring.depth * a.ring.warps ? 1 : a.ring.depth;
    a.n_parts = n_parts;
    a.n_in = n_in;
    a.rows = rows;
    a.add = parts[0].add;
    if (norm)
        a.norm = *norm;
    else
        a.acts = *acts;
    auto kernel = norm ? kernel_with<true>(type, a.ring.warps, n_in, false)
                       : kernel_with<false>(type, a.ring.warps, n_in, whole);
    int room = ring_room(a.ring), lean = ring_room(a.lean);
    size_t smem = other + (size_t)(lean > room ? lean : room);
    if (smem < ALONE_SMEM && c->smem >= ALONE_SMEM) // behind attention, which leaves multiprocessors empty
        smem = ALONE_SMEM;
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)(a.total / a.stack < c->sms ? a.total / a.stack : c->sms)),
           32 * a.ring.warps, smem, a, c->step);
    return true;
}

bool lg_cu_normed_gemv(lg_cu *c, const lg_cu_normed *x, const lg_cu_part *parts, int n_parts)
{
    return run_one(c, x, NULL, LG_ROWS_STEP, parts, n_parts);
}

/* ---- several rows ---- */

template <int COLS> static void run(lg_cu *c, linear_args &a, bool any)
{
    enum { ROWS = 2 }; // share the loads of the input

    for (int p = 0; p < a.n_parts; p++) {
        a.part[p].first_group = a.n_groups;
        a.n_groups += ceil_div(a.part[p].w.n_out, ROWS);
    }
    launch(c, any ? linear_kernel<COLS, ROWS, true> : linear_kernel<COLS, ROWS, false>,
           dim3((unsigned)ceil_div(a.n_groups, ROW_WARPS)), 32 * ROW_WARPS, 0, a, c->step);
}

void lg_cu_gemv(lg_cu *c, const lg_tensor *x, const lg_cu_acts *acts, lg_cu_part *parts, int n_parts)
{
    linear_args a = {};
    lg_cu_part rest[LG_CU_PARTS];
    int rows = bucket_rows(c, x->rows);
    bool any = false;

    if (rows == 1 && run_one(c, NULL, acts, x->rows, parts, n_parts))
        return;
    if (rows > 1) {
        n_parts = lg_cu_linear_few(c, acts, x->rows, parts, n_parts, rest);
        parts = rest;
    }
    if (n_parts == 0)
        return;
    for (int p = 0; p < n_parts; p++) {
        a.part[p] = parts[p];
        any = any || !(is_planar(parts[p].w.type) || is_float(parts[p].w.type));
    }
    a.n_parts = n_parts;
    a.in.q = acts->q;
    a.in.meta = acts->meta;
    a.in.x = x->p;
    a.in.x_stride = (size_t)x->stride;
    a.rows = x->rows;
    if (rows == 1)
        run<1>(c, a, any);
    else if (rows <= 4)
        run<4>(c, a, any);
    else if (rows <= 8)
        run<8>(c, a, any);
    else
        run<16>(c, a, any);
}
