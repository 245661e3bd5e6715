/*
 * backend/cuda/linear: products of at most LG_CU_EXACT_ROWS rows, bound by the bandwidth of the memory.
 *
 * Up to four matrices that share their input are one launch. For one activation row a warp streams 2, 4 or 8
 * weight rows, as many as leave enough warps; for more it computes two weight rows times all of them. While
 * the kernel before still runs, warps ask for their first weights.
 */
#include "backend/cuda/stream.cuh"

enum { WARPS = 4 };

struct linear_args {
    lg_cu_part part[LG_CU_PARTS];
    int n_parts, n_groups;
    gemv_in in;
    int rows; // which count of the step
};

template <int COLS, int ROWS, bool ANY>
static __global__ void __launch_bounds__(32 * WARPS) linear_kernel(__grid_constant__ const linear_args a,
                                                                   const lg_cu_step *step)
{
    int lane = threadIdx.x % 32, group = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32, p = 0;
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
            if (lane == 0 && first + r < part.w.n_out)
                part.y[(size_t)c * (size_t)part.y_stride + (size_t)(first + r)] = v;
        }
    }
}

template <int ROWS>
static __global__ void __launch_bounds__(32 * WARPS, 4)
    linear_one_kernel(__grid_constant__ const linear_args a, const lg_cu_step *step)
{
    int lane = threadIdx.x % 32, group = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32, p = 0;
    float acc[ROWS], sum;

    if (group >= a.n_groups) // the rest of the block does not wait for this warp
        return;
    while (p + 1 < a.n_parts && group >= a.part[p + 1].first_group)
        p++;
    const lg_cu_part &part = a.part[p];
    int first = (group - part.first_group) * ROWS;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        acc[r] = 0.0f;
    stream_any<ROWS, 3>(acc, part.w, first, a.in, lane);
    int row = first + sums_of<ROWS>(acc, 32, lane, &sum);
    if (lane % (32 / ROWS) == 0 && row < part.w.n_out && step_rows(step, a.rows) > 0)
        part.y[row] = sum * part.w.scale;
}

template <int ROWS> static void run_one(lg_cu *c, linear_args &a)
{
    for (int p = 0; p < a.n_parts; p++) {
        a.part[p].first_group = a.n_groups;
        a.n_groups += ceil_div(a.part[p].w.n_out, ROWS);
    }
    launch(c, linear_one_kernel<ROWS>, dim3((unsigned)ceil_div(a.n_groups, WARPS)), 32 * WARPS, 0, a,
           c->step);
}

template <int COLS> static void run(lg_cu *c, linear_args &a, bool any)
{
    enum { ROWS = 2 }; // share the loads of the input

    for (int p = 0; p < a.n_parts; p++) {
        a.part[p].first_group = a.n_groups;
        a.n_groups += ceil_div(a.part[p].w.n_out, ROWS);
    }
    launch(c, any ? linear_kernel<COLS, ROWS, true> : linear_kernel<COLS, ROWS, false>,
           dim3((unsigned)ceil_div(a.n_groups, WARPS)), 32 * WARPS, 0, a, c->step);
}

void lg_cu_gemv(lg_cu *c, const lg_tensor *x, const lg_cu_acts *acts, lg_cu_part *parts, int n_parts)
{
    linear_args a = {};
    int rows = bucket_rows(c, x->rows);
    bool any = false, planar = true;
    int total = 0;

    for (int p = 0; p < n_parts; p++) {
        a.part[p] = parts[p];
        planar = planar && is_planar(parts[p].w.type);
        total += parts[p].w.n_out;
        any = any || !(is_planar(parts[p].w.type) || is_float(parts[p].w.type));
    }
    a.n_parts = n_parts;
    a.in.q = acts->q;
    a.in.meta = acts->meta;
    a.in.x = x->p;
    a.in.x_stride = (size_t)x->stride;
    a.rows = x->rows;
    if (rows == 1 && planar && total >= 80 * c->sms)
        run_one<8>(c, a);
    else if (rows == 1 && planar && total >= 40 * c->sms)
        run_one<4>(c, a);
    else if (rows == 1 && planar)
        run_one<2>(c, a);
    else if (rows == 1)
        run<1>(c, a, any);
    else if (rows <= 4)
        run<4>(c, a, any);
    else if (rows <= 8)
        run<8>(c, a, any);
    else
        run<16>(c, a, any);
}
