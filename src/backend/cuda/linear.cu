/*
 * backend/cuda/linear: products of at most LG_CU_EXACT_ROWS rows, bound by the bandwidth of the memory.
 *
 * A warp computes two weight rows times all activation rows; up to four matrices that share their input are one
 * launch. While the kernel before still runs, warps bring their first rows into L2.
 */
#include "backend/cuda/gemv.cuh"

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
    dot_any<COLS, ROWS, COLS == 1 ? (ROWS == 1 ? 5 : 3) : COLS == 4 ? 2 : 1, ANY>(acc, part.w, p_row, row, in, col, lane, 32);
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

template <int COLS> static void run(lg_cu *c, linear_args &a, bool any)
{
    int total = 0;

    for (int p = 0; p < a.n_parts; p++)
        total += a.part[p].w.n_out;
    // two rows a warp share the loads of the input; one where warps are few
    int rows = 2;
    for (int p = 0; p < a.n_parts; p++) {
        a.part[p].first_group = a.n_groups;
        a.n_groups += ceil_div(a.part[p].w.n_out, rows);
    }
    launch(c, any           ? linear_kernel<COLS, 2, true>
              : rows == 1   ? linear_kernel<COLS, COLS == 1 ? 1 : 2, false>
                            : linear_kernel<COLS, 2, false>,
           dim3((unsigned)ceil_div(a.n_groups, WARPS)), 32 * WARPS, 0, a, c->step);
}

void lg_cu_gemv(lg_cu *c, const lg_tensor *x, const lg_cu_acts *acts, lg_cu_part *parts, int n_parts)
{
    linear_args a = {};
    int rows = bucket_rows(c, x->rows);
    bool any = false;

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
