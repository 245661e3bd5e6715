/*
 * backend/cuda/moe: the mixture of experts. Few rows: moe_few.cu. More rows: entries are sorted by expert on
 * the device and multiplied tile by tile (moe_stream.cu, gemm_int8.cu, gemm.cu); results lie by entry and are
 * added up here.
 *
 * Sums run over the shared expert, then the ranks in order.
 */
#include "backend/cuda/common.cuh"

static __global__ void moe_sum_kernel(float *out, int out_stride, const float *y, const float *w, int k,
                                      int shared_at, int hidden, int rows, const lg_cu_step *step)
{
    pdl_wait();
    int n = step_rows(step, rows), o = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y;
    if (r >= n || o >= hidden)
        return;
    float sum = shared_at >= 0 ? y[(size_t)(shared_at + r) * (size_t)hidden + (size_t)o] : 0.0f;
    for (int i = 0; i < k; i++)
        sum = fmaf(w ? w[r * k + i] : 1.0f, y[(size_t)(r * k + i) * (size_t)hidden + (size_t)o], sum);
    out[(size_t)r * (size_t)out_stride + (size_t)o] = sum;
}

void lg_cu_sum_now(lg_cu *c, const lg_cu_sum *s)
{
    dim3 grid((unsigned)ceil_div(s->out.cols, 256), (unsigned)bucket_rows(c, s->out.rows));

    launch(c, moe_sum_kernel, grid, 256, 0, s->out.p, s->out.stride, s->y, s->w, s->k, s->shared_at,
           s->out.cols, (int)s->out.rows, c->step);
}

void lg_cu_moe_sum(lg_cu *c, const lg_cu_moe *m)
{
    const lg_cu_sum s = {m->out, c->expert_out, m->w, m->k,
                         m->shared ? bucket_rows(c, m->h.rows) * m->k : -1};

    if (m->later)
        *m->later = s;
    else
        lg_cu_sum_now(c, &s);
}

// One expert stack, or a dense expert, of more than LG_CU_EXACT_ROWS rows.
static void run_ffn(lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f, bool dense)
{
    int rows = bucket_rows(c, m->h.rows), n_expert = dense ? 1 : f->gate.n_expert, k = dense ? 1 : m->k;
    bool codes = rows <= LG_CU_CODE_ROWS && lg_cu_int8_takes_ffn(f);
    int tile = codes ? lg_cu_int8_tile_rows() : lg_cu_gemm_tile_rows(c, f, n_expert, k);
    int entries = rows * k, tiles = ceil_div(rows, tile);

    if (!dense) {
        tiles = entries / tile + (entries < n_expert ? entries : n_expert);
        tiles = tiles < LG_CU_TILES ? tiles : LG_CU_TILES;
        lg_cu_sort_entries(c, m, tile);
    }
    if (codes && dense) {
        lg_cu_int8_dense_up(c, m, f);
        lg_cu_int8_dense_down(c, m, f);
        return;
    }
    if (codes) {
        lg_cu_gemm_int8_ffn(c, m, f, tiles);
        return;
    }
    if (rows <= LG_CU_CODE_ROWS && m->h.cols % 32 == 0)
        lg_cu_to_bf16(c, &m->h);
    lg_cu_gemm_ffn(c, m, f, dense, tile, tiles);
}

// The shared expert and the routing wait for the norm alone, so each of their launches runs beside one of the
// other's.
bool lg_cu_moe_follow(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route)
{
    int rows = bucket_rows(c, m->h.rows);

    if (rows <= LG_CU_EXACT_ROWS || rows > LG_CU_CODE_ROWS || !m->routed || !m->shared ||
        !lg_cu_stream_takes(c, m->routed) || !lg_cu_int8_takes_ffn(m->shared) ||
        !lg_cu_route_halves(c, route))
        return false;
    lg_cu_int8_dense_up(c, m, m->shared);
    lg_cu_route_part(c, route, true);
    lg_cu_int8_dense_down(c, m, m->shared);
    lg_cu_route_choose(c, route, true);
    lg_cu_moe_stream(c, m, m->routed);
    lg_cu_moe_sum(c, m);
    return true;
}

void lg_cu_moe_op(lg_cu *c, const lg_cu_moe *m)
{
    if (bucket_rows(c, m->h.rows) <= LG_CU_EXACT_ROWS) {
        lg_cu_moe_few(c, m);
        return;
    }
    if (m->routed && bucket_rows(c, m->h.rows) <= LG_CU_CODE_ROWS && lg_cu_stream_takes(c, m->routed))
        lg_cu_moe_stream(c, m, m->routed);
    else if (m->routed)
        run_ffn(c, m, m->routed, false);
    if (m->shared)
        run_ffn(c, m, m->shared, true);
    if (m->routed)
        lg_cu_moe_sum(c, m);
}
