/*
 * backend/cuda/moe_dense: gate and up of a dense expert in Q8_0 for 2 to LG_CU_EXACT_ROWS rows
 * (few_cols.cuh).
 *
 * A block a multiprocessor, with the rows in shared memory. It takes units of 32 columns, of which each team
 * has a tile of gate and one of up: what comes out is a run of silu(gate) * up, quantised, for each row.
 */
#include "backend/cuda/few_cols.cuh"

enum {
    DENSE_WARPS = 16,
    DENSE_TEAMS = DENSE_WARPS / SHARERS,
    UNIT_COLS = DENSE_TEAMS * TILE_ROWS,
};

struct dense_args {
    lg_cu_mat gate, up;
    lg_cu_acts in, mid;
    int rows, units;
};

template <int NT, int DEPTH>
static __global__ void __launch_bounds__(32 * DENSE_WARPS, 1)
    dense_up_kernel(__grid_constant__ const dense_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[];         // tokens, sums, rings
    __shared__ float mid[2][NT * COLS_EIGHT][UNIT_COLS + 1]; // of a unit, and of the one before
    int lane = threadIdx.x % 32, warp = warp_index(), index = warp / SHARERS, n_in = a.gate.n_in;
    int rows = min(step_rows(step, a.rows), NT * (int)COLS_EIGHT);
    unsigned blocks = gridDim.x, total = (unsigned)a.units;
    int first = (int)(total * blockIdx.x / blocks), n = (int)(total * (blockIdx.x + 1) / blocks) - first;
    uint8_t *parts = smem + cols_bytes<NT>(n_in), *rings = parts + DENSE_TEAMS * cols_parts<NT>(SHARERS);
    few_team team = {SHARERS, warp % SHARERS, 1 + index, 0,
                     (float4 *)(parts + (unsigned)index * cols_parts<NT>(SHARERS))};
    float gate_scale = matrix_scale(a.gate, 0), up_scale = matrix_scale(a.up, 0), gate = 0.0f;

    auto place = [&](int i) {
        const lg_cu_mat &m = i & 1 ? a.up : a.gate;
        cols_place at = {&m, m.p, ((first + i / 2) * DENSE_TEAMS + index) * TILE_ROWS};
        return at;
    };
    auto ready = [&] {
        pdl_wait();
        cols_stage<NT>(shared_at(smem), a.in, n_in, 0, n_in, rows);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
    };
    auto put = [&](int i, int r, int token, float sum) { // of both tiles the same, one for a thread
        if (i & 1)
            mid[i / 2 & 1][token][index * TILE_ROWS + r] = silu(gate * gate_scale) * (sum * up_scale);
        else
            gate = sum;
    };
    auto after = [&](int i) {
        if (!(i & 1))
            return;
        __syncthreads();
        for (int row = warp; row < rows; row += DENSE_WARPS) {
            size_t ffn = (size_t)a.gate.n_out;
            store_run(a.mid.q + (size_t)row * ffn, a.mid.meta + (size_t)row * (ffn / 32), first + i / 2, lane,
                      mid[i / 2 & 1][row][lane]);
        }
    };
    cols_tiles<NT, DEPTH>(n_in, 2 * n, shared_at(smem), rings + warp * (DEPTH * COLS_SLOT), team, place,
                          ready, put, after);
}

static_assert((int)UNIT_COLS == 32, "a run");
static_assert(SHARERS * 32 >= LG_CU_EXACT_ROWS * (int)TILE_ROWS, "a sum a thread");

template <int NT, int DEPTH> static bool run(lg_cu *c, const dense_args &a)
{
    size_t smem = (size_t)cols_bytes<NT>(a.gate.n_in) + DENSE_TEAMS * (size_t)cols_parts<NT>(SHARERS) +
                  (size_t)(DENSE_WARPS * DEPTH * COLS_SLOT);
    size_t fixed = 2 * NT * COLS_EIGHT * (UNIT_COLS + 1) * sizeof(float);
    auto kernel = dense_up_kernel<NT, DEPTH>;

    if (smem + fixed + 1024 > (size_t)c->smem)
        return false;
    share_sm(c, kernel, smem);
    launch(c, kernel, dim3((unsigned)(a.units < c->sms ? a.units : c->sms)), 32 * DENSE_WARPS, smem, a,
           c->step);
    return true;
}

bool lg_cu_dense_up(lg_cu *c, const lg_cu_ffn *f, const lg_cu_acts *mid, lg_rows kind)
{
    dense_args a = {};

    if (f->gate.type != LG_Q8_0 || f->up.type != LG_Q8_0 || f->gate.n_in % 128 != 0 ||
        few_sharers(f->gate.n_in) != SHARERS || f->gate.n_out % UNIT_COLS != 0)
        return false;
    a.gate = f->gate;
    a.up = f->up;
    a.in = c->acts;
    a.mid = *mid;
    a.rows = kind;
    a.units = f->gate.n_out / UNIT_COLS;
    return bucket_rows(c, kind) <= COLS_EIGHT ? run<1, 4>(c, a) : run<2, 3>(c, a) || run<2, 2>(c, a);
}
