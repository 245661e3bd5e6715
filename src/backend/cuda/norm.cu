/*
 * backend/cuda/norm: embedding, norms, quantisation of inputs, SwiGLU, row copies.
 *
 * One block a row. A norm leaves the input of the products that follow in c->acts, in the form that they
 * want: int8 runs for up to LG_CU_EXACT_ROWS rows, bf16 above. The sum of squares is taken in an order that
 * depends on the number of columns alone.
 */
#include "backend/cuda/common.cuh"

enum { NORM_THREADS = 1024 };

static __global__ void embed_kernel(lg_cu_mat m, const int32_t *ids, const lg_cu_step *step, float *out,
                                    int stride)
{
    pdl_wait();
    int row = blockIdx.x;
    if (row >= step->n_rows)
        return;
    int id = ids[row];
    float *y = out + (size_t)row * (size_t)stride;
    if (is_float(m.type)) {
        const uint8_t *p = m.p + (size_t)id * (size_t)m.n_in * float_bytes(m.type);
        for (int i = threadIdx.x; i < m.n_in; i += blockDim.x)
            y[i] = float_at(m.type, p, (size_t)i) * m.scale;
        return;
    }
    for (int run = threadIdx.x; run < m.n_in / 32; run += blockDim.x) {
        run_terms t;
        run_of(m, m.p, id, run, &t);
        for (int e = 0; e < 32; e++)
            y[run * 32 + e] = run_value(t, e) * m.scale;
    }
}

void lg_cu_embed(lg_cu *c, const lg_tensor *out, const lg_cu_mat *table)
{
    launch(c, embed_kernel, dim3((unsigned)c->rows), 128, 0, *table, c->ids, c->step, out->p, out->stride);
}

// Sum over the block, on every thread. `room` holds a float for each warp.
DEV float block_sum(float v, float *room)
{
    int warps = blockDim.x / 32;

    v = warp_sum(v);
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < warps ? room[threadIdx.x % 32] : 0.0f;
    return warp_sum(v);
}

// What becomes of a row's value: int8 runs (FORM 1), bf16 (FORM 2), or nothing.
template <int FORM> DEV void put_act(lg_cu_acts a, int row, int cols, int i, float v)
{
    if (FORM == 1)
        store_run(a.q + (size_t)row * (size_t)cols, a.meta + (size_t)row * (size_t)(cols / 32), i / 32,
                  i % 32, v);
    else if (FORM == 2)
        ((__nv_bfloat16 *)a.bf16)[(size_t)row * (size_t)cols + (size_t)i] = __float2bfloat16_rn(v);
}

// Columns a thread holds in registers; wider rows are read again.
enum { NORM_HELD = 4 };

template <int FORM>
static __global__ void __launch_bounds__(NORM_THREADS)
    norm_kernel(float *out, int out_stride, float *x, int x_stride, const float *delta, int delta_stride,
                const float *w, float eps, int cols, int rows, const lg_cu_step *step, lg_cu_acts acts)
{
    __shared__ float room[32];
    float held[NORM_HELD], sum = 0.0f;

    pdl_wait();
    int row = blockIdx.x;
    if (row >= step_rows(step, rows))
        return;
    x += (size_t)row * (size_t)x_stride;
    out += (size_t)row * (size_t)out_stride;
    if (delta)
        delta += (size_t)row * (size_t)delta_stride;
#pragma unroll
    for (int j = 0; j < NORM_HELD; j++) {
        int i = (int)threadIdx.x + j * NORM_THREADS;
        held[j] = i < cols ? x[i] : 0.0f;
        if (delta && i < cols)
            held[j] += delta[i];
    }
#pragma unroll
    for (int j = 0; j < NORM_HELD; j++) {
        int i = (int)threadIdx.x + j * NORM_THREADS;
        if (delta && i < cols)
            x[i] = held[j];
        sum = fmaf(held[j], held[j], sum);
    }
    for (int i = (int)threadIdx.x + NORM_HELD * NORM_THREADS; i < cols; i += NORM_THREADS) {
        float v = x[i];
        if (delta)
            x[i] = v += delta[i];
        sum = fmaf(v, v, sum);
    }
    float inv = 1.0f / sqrtf(block_sum(sum, room) / (float)cols + eps);
#pragma unroll
    for (int j = 0; j < NORM_HELD; j++) {
        int i = (int)threadIdx.x + j * NORM_THREADS;
        if (i - (int)threadIdx.x % 32 < cols) {
            float v = i < cols ? held[j] * inv * w[i] : 0.0f;
            if (i < cols)
                out[i] = v;
            if (FORM == 1 || i < cols)
                put_act<FORM>(acts, row, cols, i, v);
        }
    }
    for (int i = (int)threadIdx.x + NORM_HELD * NORM_THREADS; i < cols; i += NORM_THREADS) {
        float v = x[i] * inv * w[i];
        out[i] = v;
        put_act<FORM>(acts, row, cols, i, v);
    }
}

static int act_form(const lg_cu *c, lg_rows rows, int cols)
{
    if (bucket_rows(c, rows) > LG_CU_EXACT_ROWS)
        return cols % 32 == 0 ? 2 : 0;
    return cols % 32 == 0 ? 1 : 0;
}

void lg_cu_norm(lg_cu *c, const lg_tensor *out, const lg_tensor *x, const lg_tensor *delta, const float *w,
                float eps, bool quantise)
{
    int form = quantise ? act_form(c, out->rows, out->cols) : 0;
    auto kernel = form == 1 ? norm_kernel<1> : form == 2 ? norm_kernel<2> : norm_kernel<0>;

    launch(c, kernel, dim3((unsigned)bucket_rows(c, out->rows)), NORM_THREADS, 0, out->p, out->stride, x->p,
           x->stride, (const float *)(delta ? delta->p : NULL), delta ? delta->stride : 0, w, eps, x->cols,
           (int)out->rows, c->step, c->acts);
}

template <int FORM>
static __global__ void quantise_kernel(const float *x, int stride, int cols, int rows, const lg_cu_step *step,
                                       lg_cu_acts acts)
{
    pdl_wait();
    int row = blockIdx.x;
    if (row >= step_rows(step, rows))
        return;
    for (int i = (int)threadIdx.x; i < cols; i += (int)blockDim.x)
        put_act<FORM>(acts, row, cols, i, x[(size_t)row * (size_t)stride + (size_t)i]);
}

void lg_cu_quantise(lg_cu *c, const lg_tensor *x)
{
    int form = act_form(c, x->rows, x->cols);

    if (form == 0)
        return;
    launch(c, form == 1 ? quantise_kernel<1> : quantise_kernel<2>, dim3((unsigned)bucket_rows(c, x->rows)),
           256, 0, (const float *)x->p, x->stride, x->cols, (int)x->rows, c->step, c->acts);
}

static __global__ void swiglu_kernel(float *out, int out_stride, const float *gate, int gate_stride,
                                     const float *up, int up_stride, int cols, int rows,
                                     const lg_cu_step *step)
{
    pdl_wait();
    int n = step_rows(step, rows), i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= cols)
        return;
    for (int r = blockIdx.y; r < n; r += (int)gridDim.y)
        out[(size_t)r * (size_t)out_stride + (size_t)i] =
            silu(gate[(size_t)r * (size_t)gate_stride + (size_t)i]) *
            up[(size_t)r * (size_t)up_stride + (size_t)i];
}

void lg_cu_swiglu(lg_cu *c, const lg_tensor *out, const lg_tensor *gate, const lg_tensor *up)
{
    int rows = bucket_rows(c, out->rows);
    dim3 grid((unsigned)ceil_div(out->cols, 256), (unsigned)(rows < 4096 ? rows : 4096));

    launch(c, swiglu_kernel, grid, 256, 0, out->p, out->stride, (const float *)gate->p, gate->stride,
           (const float *)up->p, up->stride, out->cols, (int)out->rows, c->step);
}

static __global__ void copy_kernel(uint8_t *dst, const uint8_t *src, size_t row_bytes, size_t dst_pitch,
                                   size_t src_pitch, int rows, const lg_cu_step *step)
{
    pdl_wait();
    int n = step_rows(step, rows);
    for (int r = blockIdx.x; r < n; r += (int)gridDim.x) {
        uint8_t *d = dst + (size_t)r * dst_pitch;
        const uint8_t *s = src + (size_t)r * src_pitch;
        bool words = (((uintptr_t)d | (uintptr_t)s | row_bytes) & 3) == 0;
        if (words)
            for (size_t i = threadIdx.x; i < row_bytes / 4; i += blockDim.x)
                ((uint32_t *)d)[i] = ((const uint32_t *)s)[i];
        else
            for (size_t i = threadIdx.x; i < row_bytes; i += blockDim.x)
                d[i] = s[i];
    }
}

void lg_cu_copy(lg_cu *c, void *dst, const void *src, size_t row_bytes, size_t dst_pitch, size_t src_pitch,
                lg_rows rows)
{
    launch(c, copy_kernel, dim3((unsigned)bucket_rows(c, rows)), 256, 0, (uint8_t *)dst, (const uint8_t *)src,
           row_bytes, dst_pitch, src_pitch, (int)rows, c->step);
}

static __global__ void gather_kernel(float *out, int out_stride, const float *x, int x_stride, int cols,
                                     const int32_t *out_rows, const lg_cu_step *step)
{
    pdl_wait();
    int r = blockIdx.x;
    if (r >= step->n_out)
        return;
    const float *s = x + (size_t)out_rows[r] * (size_t)x_stride;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[(size_t)r * (size_t)out_stride + (size_t)i] = s[i];
}

void lg_cu_gather(lg_cu *c, const lg_tensor *out, const lg_tensor *x)
{
    if (c->outs > 0)
        launch(c, gather_kernel, dim3((unsigned)c->outs), 256, 0, out->p, out->stride, (const float *)x->p,
               x->stride, out->cols, c->out_rows, c->step);
}
