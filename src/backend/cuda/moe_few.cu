/*
 * backend/cuda/moe_few: the mixture of experts for up to LG_CU_EXACT_ROWS rows, any type. (One row mostly
 * goes another way, moe_one.cu; several rows of types in planes too, moe_tiles.cu.)
 *
 * One launch for gate and up of all experts and the shared one, which leaves silu(gate h) * up h quantised,
 * one for down by entries, so that each expert's weights are read once, and one for the weighted sum. Sums
 * run over the shared expert, then the ranks in order.
 */
#include "backend/cuda/gemv.cuh"

/* ---- few rows: gate and up ---- */

enum { FFN_ROWS = 32 }; // rows of gate and of up of a block: one run of the quantised result

struct moe_args {
    lg_cu_ffn routed, shared;
    bool has_routed, has_shared, quantise_routed, quantise_shared;
    gemv_in in;
    const int32_t *ids, *entry;
    const float *w;
    const lg_cu_group *group;
    const int *n_group;
    int k, rows, n_shared; // n_shared: groups of the shared expert's rows
    // results of gate and up: of entries, and of the shared expert's rows
    lg_cu_acts mid, mid_shared;
    float *mid_f32, *mid_f32_shared;
    float *expert_out; // several rows: [entry][hidden], then [row][hidden] of the shared expert
    int shared_at;     // rows of expert_out before those
    float *out;
    int out_stride;
};

// What block index y works on: rows of the shared expert (these come first), or an expert with its entries.
template <int COLS>
DEV bool get_group(const moe_args &a, const lg_cu_step *step, int y, bool *shared, lg_cu_group *g)
{
    int n = step_rows(step, a.rows);

    *shared = y < a.n_shared;
    y -= a.n_shared;
    if (*shared) {
        int first = (y + a.n_shared) * COLS;
        *g = {0, first, min(COLS, n - first), 0};
        return g->n > 0;
    }
    if (COLS == 1) {
        *g = {n > 0 ? a.ids[y] : 0, y, 1, 0};
    } else {
        if (y >= *a.n_group)
            return false;
        *g = a.group[y];
    }
    return n > 0;
}

template <int COLS, int WARPS, bool ANY>
static __global__ void __launch_bounds__(32 * WARPS)
    moe_up_kernel(__grid_constant__ const moe_args a, const lg_cu_step *step)
{
    enum { PER_WARP = FFN_ROWS / WARPS, R = 4, PASSES = PER_WARP * 2 / R };
    __shared__ float mid[COLS][FFN_ROWS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, col[COLS], slot[COLS];
    bool shared;
    lg_cu_group g;

    pdl_wait();
    if (!get_group<COLS>(a, step, blockIdx.y, &shared, &g))
        return;
    const lg_cu_ffn &f = shared ? a.shared : a.routed;
    int ffn = f.gate.n_out, first = (int)blockIdx.x * FFN_ROWS;
    if (first >= ffn)
        return;
    const uint8_t *gate = matrix_at(f.gate, g.expert), *up = matrix_at(f.up, g.expert);
    float gate_scale = matrix_scale(f.gate, g.expert), up_scale = matrix_scale(f.up, g.expert);
    gemv_in in = a.in;
    in.n_cols = g.n;
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        slot[c] = shared ? g.first + c : COLS == 1 ? g.first : c < g.n ? a.entry[g.first + c] : 0;
        col[c] = shared ? g.first + c : COLS == 1 ? 0 : slot[c] / a.k;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        int at = warp * PER_WARP + pass * (R / 2);
        float acc[R][COLS];
        int row[R];
        const uint8_t *p[R];
#pragma unroll
        for (int r = 0; r < R; r++) {
            row[r] = min(first + at + r / 2, ffn - 1);
            p[r] = r & 1 ? up : gate;
#pragma unroll
            for (int c = 0; c < COLS; c++)
                acc[r][c] = 0.0f;
        }
        if (f.gate.type == f.up.type) {
            dot_any<COLS, R, 1, ANY>(acc, f.gate, p, row, in, col, lane, 32);
        } else {
            for (int r = 0; r < R; r++) {
                float one[1][COLS] = {};
                int row1[1] = {min(first + at + r / 2, ffn - 1)};
                const uint8_t *const p1[1] = {r & 1 ? up : gate};
                dot_any<COLS, 1, 1, ANY>(one, r & 1 ? f.up : f.gate, p1, row1, in, col, lane, 32);
#pragma unroll
                for (int i = 0; i < R; i++)
#pragma unroll
                    for (int c = 0; c < COLS; c++)
                        if (i == r)
                            acc[i][c] = one[0][c];
            }
        }
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            if (COLS > 1 && c >= in.n_cols)
                break;
#pragma unroll
            for (int r = 0; r < R; r += 2) {
                float v = silu(warp_sum(acc[r][c]) * gate_scale) * (warp_sum(acc[r + 1][c]) * up_scale);
                if (lane == 0)
                    mid[c][at + r / 2] = v;
            }
        }
    }
    __syncthreads();
    lg_cu_acts to = shared ? a.mid_shared : a.mid;
    float *to_f32 = shared ? a.mid_f32_shared : a.mid_f32;
    bool quantise = shared ? a.quantise_shared : a.quantise_routed;
    for (int c = warp; c < COLS && c < in.n_cols; c += WARPS) {
        size_t s = (size_t)(shared || COLS == 1 ? g.first + c : a.entry[g.first + c]);
        if (quantise)
            store_run(to.q + s * (size_t)ffn, to.meta + s * (size_t)(ffn / 32), (int)blockIdx.x, lane,
                      mid[c][lane]);
        else if (first + lane < ffn)
            to_f32[s * (size_t)ffn + (size_t)(first + lane)] = mid[c][lane];
    }
}

/* ---- few rows: down ---- */

// Lanes that share a row: as many as it has runs, so that short rows leave none idle.
DEV int lanes_of(const lg_cu_mat &m)
{
    int pieces = is_float(m.type) ? (m.n_in + 7) / 8 : m.n_in / 32;
    return pieces > 16 ? 32 : pieces > 8 ? 16 : 8;
}

enum { DOWN_R = 4 }; // rows of a warp

// R * (32 / width) rows from `first` on of expert g; y[c] gets row `first + index` on the lanes that begin a
// group.
template <int COLS, int R, bool ANY>
DEV void down_rows(const moe_args &a, bool shared, const lg_cu_group &g, int first, int width, int lane,
                   const int *slot, float (&acc)[R][COLS])
{
    const lg_cu_ffn &f = shared ? a.shared : a.routed;
    lg_cu_acts mid = shared ? a.mid_shared : a.mid;
    gemv_in in = {mid.q, mid.meta, shared ? a.mid_f32_shared : a.mid_f32, (size_t)f.down.n_in, g.n};
    int row[R];
    const uint8_t *p[R];

#pragma unroll
    for (int r = 0; r < R; r++) {
        row[r] = min(first + lane / width * R + r, f.down.n_out - 1);
        p[r] = matrix_at(f.down, g.expert);
#pragma unroll
        for (int c = 0; c < COLS; c++)
            acc[r][c] = 0.0f;
    }
    dot_any<COLS, R, 1, ANY>(acc, f.down, p, row, in, slot, lane % width, width);
}

// Several rows: each expert's matrix once, results by entry.
enum { DOWN_WARPS = 8 };
template <int COLS, bool ANY>
static __global__ void __launch_bounds__(32 * DOWN_WARPS)
    moe_down_kernel(__grid_constant__ const moe_args a, const lg_cu_step *step)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slot[COLS];
    bool shared;
    lg_cu_group g;

    pdl_wait();
    if (!get_group<COLS>(a, step, blockIdx.y, &shared, &g))
        return;
    const lg_cu_mat &m = shared ? a.shared.down : a.routed.down;
    int width = lanes_of(m), per_warp = DOWN_R * (32 / width);
    int first = ((int)blockIdx.x * DOWN_WARPS + warp) * per_warp;
    if (first >= m.n_out)
        return;
#pragma unroll
    for (int c = 0; c < COLS; c++)
        slot[c] = shared || COLS == 1 ? g.first + c : c < g.n ? a.entry[g.first + c] : 0;
    float acc[DOWN_R][COLS], scale = matrix_scale(m, g.expert);
    down_rows<COLS, DOWN_R, ANY>(a, shared, g, first, width, lane, slot, acc);
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        if (c >= g.n)
            break;
#pragma unroll
        for (int r = 0; r < DOWN_R; r++) {
            int o = first + lane / width * DOWN_R + r;
            float v = lanes_sum(acc[r][c], width) * scale;
            if (lane % width == 0 && o < m.n_out)
                a.expert_out[(size_t)(slot[c] + (shared ? a.shared_at : 0)) * (size_t)m.n_out + (size_t)o] =
                    v;
        }
    }
}

/* ---- the op ---- */

static bool is_other(const lg_cu_ffn *f)
{
    return f && !((is_planar(f->gate.type) || is_float(f->gate.type)) &&
                  (is_planar(f->up.type) || is_float(f->up.type)) &&
                  (is_planar(f->down.type) || is_float(f->down.type)));
}

template <int COLS> static void run_up(lg_cu *c, const moe_args &a, bool any)
{
    int ffn = a.has_routed ? a.routed.gate.n_out : 0, shared = a.has_shared ? a.shared.gate.n_out : 0;
    int groups = (a.has_routed ? c->rows * a.k : 0) + a.n_shared;
    dim3 grid((unsigned)ceil_div(ffn > shared ? ffn : shared, FFN_ROWS), (unsigned)groups);

    if (any)
        launch(c, moe_up_kernel<COLS, 8, true>, grid, 256, 0, a, c->step);
    else
        launch(c, moe_up_kernel<COLS, 8, false>, grid, 256, 0, a, c->step);
}

template <int COLS> static void run_down(lg_cu *c, const moe_args &a, bool any)
{
    int hidden = a.routed.down.n_out, groups = c->rows * a.k + a.n_shared;
    dim3 grid((unsigned)ceil_div(hidden, DOWN_WARPS * DOWN_R), (unsigned)groups);

    launch(c, any ? moe_down_kernel<COLS, true> : moe_down_kernel<COLS, false>, grid, 32 * DOWN_WARPS, 0, a,
           c->step);
}

void lg_cu_moe_few(lg_cu *c, const lg_cu_moe *m)
{
    int rows = bucket_rows(c, m->h.rows);
    moe_args a = {};
    bool any = is_other(m->routed) || is_other(m->shared);

    if (lg_cu_moe_tiles(c, m))
        return;
    a.has_routed = m->routed != NULL;
    a.has_shared = m->shared != NULL;
    if (m->routed)
        a.routed = *m->routed;
    if (m->shared)
        a.shared = *m->shared;
    a.quantise_routed = m->routed && !is_float(m->routed->down.type);
    a.quantise_shared = m->shared && !is_float(m->shared->down.type);
    a.in = {c->acts.q, c->acts.meta, m->h.p, (size_t)m->h.stride, 0};
    a.ids = m->ids;
    a.w = m->w;
    take_groups(&a, c, m->routed ? m->k : 0);
    a.rows = m->h.rows;
    a.n_shared = m->shared ? rows == 1 ? 1 : ceil_div(rows, LG_CU_FEW_COLS) : 0;
    size_t at = m->routed ? (size_t)(rows * m->k) * (size_t)m->routed->gate.n_out : 0;
    a.mid = c->mid;
    a.mid_shared.q = c->mid.q + at;
    a.mid_shared.meta = c->mid.meta + at / 32;
    a.mid_f32 = c->mid_f32;
    a.mid_f32_shared = c->mid_f32 + at;
    a.expert_out = c->expert_out;
    a.shared_at = rows * a.k;
    a.out = m->out.p;
    a.out_stride = m->out.stride;
    if (m->routed && rows > 1) // the router's groups are smaller
        lg_cu_sort_entries(c, m, LG_CU_FEW_COLS);
    c->grouped = NULL;
    if (rows == 1)
        run_up<1>(c, a, any);
    else
        run_up<LG_CU_FEW_COLS>(c, a, any);
    if (!m->routed) { // dense: down is a plain product
        lg_tensor x = {a.mid_f32_shared, m->shared->down.n_in, m->shared->down.n_in, m->h.rows};
        lg_cu_part part = {};
        part.w = m->shared->down;
        part.y = m->out.p;
        part.y_stride = m->out.stride;
        lg_cu_gemv(c, &x, &a.mid_shared, &part, 1);
        return;
    }
    if (rows == 1)
        run_down<1>(c, a, any);
    else
        run_down<LG_CU_FEW_COLS>(c, a, any);
    lg_cu_moe_sum(c, m);
}
