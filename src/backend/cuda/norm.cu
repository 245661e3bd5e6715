/*
 * backend/cuda/norm: embedding (with the angles of the step), norms, quantisation of inputs, SwiGLU, row
 * copies.
 *
 * One block a row, or a cluster where what is normed is still to be added up. (The norm of a single row is
 * mostly part of the product behind it: stream.cuh.) A norm leaves the input of the products that follow in
 * c->acts, in the form that they want: int8 runs for up to LG_CU_CODE_ROWS rows, bf16 above. The sum of
 * squares is taken in an order that depends on the number of columns alone.
 */
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/kv.cuh"
#include "backend/cuda/stream.cuh"

enum { NORM_THREADS = 512, EMBED_THREADS = 256 };

struct embed_args {
    lg_cu_mat m;
    const int32_t *ids;
    float *out;
    int stride;
    rope_args angles[LG_CU_ROPES];
};

// Blocks (row, 0): a row of the table, four columns a thread; (row, 1 + i): its angles.
static __global__ void __launch_bounds__(EMBED_THREADS)
    embed_kernel(__grid_constant__ const embed_args a, const lg_cu_step *step)
{
    pdl_wait();
    int row = blockIdx.x;
    if (row >= step->n_rows)
        return;
    if (blockIdx.y > 0) {
        make_angles(a.angles[blockIdx.y - 1], step->pos, (unsigned)row);
        return;
    }
    const lg_cu_mat &m = a.m;
    int id = a.ids[row];
    float *y = a.out + (size_t)row * (size_t)a.stride;
    if (is_float(m.type)) {
        const uint8_t *p = m.p + (size_t)id * (size_t)m.n_in * float_bytes(m.type);
        for (int i = threadIdx.x; i < m.n_in; i += blockDim.x)
            y[i] = float_at(m.type, p, (size_t)i) * m.scale;
        return;
    }
    for (int i = threadIdx.x * 4; i < m.n_in; i += EMBED_THREADS * 4) {
        run_terms t;
        run_of(m, m.p, id, i / 32, &t);
#pragma unroll
        for (int e = 0; e < 32; e += 4)
            if (i % 32 == e)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    y[i + j] = run_value(t, e + j) * m.scale;
    }
}

void lg_cu_embed(lg_cu *c, const lg_tensor *out, const lg_cu_mat *table, const lg_cu_angles *angles, int n)
{
    embed_args a = {*table, c->ids, out->p, out->stride, {}};

    for (int i = 0; i < n; i++)
        a.angles[i] = rope_of(&angles[i]);
    launch(c, embed_kernel, dim3((unsigned)c->rows, (unsigned)(1 + n)), EMBED_THREADS, 0, a, c->step);
}

// Four columns of a row; past the last column zeros.
DEV float4 get4(const float *p, int i, int cols, bool whole)
{
    if (whole && i + 4 <= cols)
        return *(const float4 *)(p + i);
    return make_float4(i < cols ? p[i] : 0.0f, i + 1 < cols ? p[i + 1] : 0.0f, i + 2 < cols ? p[i + 2] : 0.0f,
                       i + 3 < cols ? p[i + 3] : 0.0f);
}

DEV void put4(float *p, int i, int cols, bool whole, float4 v)
{
    if (whole && i + 4 <= cols) {
        *(float4 *)(p + i) = v;
        return;
    }
    const float a[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (i + e < cols)
            p[i + e] = a[e];
}

// All lanes: what becomes of four columns of a row: int8 runs (FORM 1), bf16 (FORM 2), or nothing.
template <int FORM> DEV void put_act4(const lg_cu_acts &a, int row, int cols, int i, float4 v)
{
    if (FORM == 1) {
        quad q = quantise4(v);
        if (i < cols)
            store_quad(a.q + (size_t)row * (size_t)cols, a.meta + (size_t)row * (size_t)(cols / 32), i / 32,
                       (int)threadIdx.x, q);
    } else if (FORM == 2 && i < cols) {
        __nv_bfloat162 lo = __floats2bfloat162_rn(v.x, v.y), hi = __floats2bfloat162_rn(v.z, v.w);
        __nv_bfloat162 *to =
            (__nv_bfloat162 *)((__nv_bfloat16 *)a.bf16 + (size_t)row * (size_t)cols + (size_t)i);
        to[0] = lo;
        to[1] = hi;
    }
}

enum {
    SUM_THREADS = 768, // four columns a thread, all there are
    SUMMED = 10        // entries under way at a time
};

// All lanes: four columns of moe.cu's sum.
DEV float4 sum_entries(const lg_cu_sum &s, int row, int i)
{
    size_t hidden = (size_t)s.out.cols;
    const float *y = s.y + (size_t)(row * s.k) * hidden + (size_t)i, *w = s.w + row * s.k;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    if (s.shared_at >= 0)
        sum = __ldcg((const float4 *)(s.y + (size_t)(s.shared_at + row) * hidden + (size_t)i));
#pragma unroll 1
    for (int e = 0; e < s.k; e += SUMMED) {
        int lane = threadIdx.x % 32;
        float4 v[SUMMED];
        float mine = e + lane >= s.k ? 0.0f : s.w ? __ldcg(w + e + lane) : 1.0f;
#pragma unroll
        for (int j = 0; j < SUMMED; j++)
            if (e + j < s.k)
                v[j] = __ldcg((const float4 *)(y + (size_t)(e + j) * hidden));
#pragma unroll
        for (int j = 0; j < SUMMED; j++) {
            float by = __shfl_sync(0xFFFFFFFFu, mine, j);
            if (e + j < s.k)
                sum = make_float4(fmaf(by, v[j].x, sum.x), fmaf(by, v[j].y, sum.y), fmaf(by, v[j].z, sum.z),
                                  fmaf(by, v[j].w, sum.w));
        }
    }
    return sum;
}

struct norm_args {
    lg_cu_sum sum; // of which delta is made, if it is
    float *out, *x_out;
    const float *x, *delta, *w;
    int out_stride, x_stride, delta_stride, cols, rows;
    float eps;
    lg_cu_acts acts;
};

template <int FORM, bool SUM>
static __global__ void __launch_bounds__(SUM ? SUM_THREADS : NORM_THREADS)
    norm_kernel(__grid_constant__ const norm_args a, const lg_cu_step *step)
{
    extern __shared__ float sums[]; // of each NORM_CHUNK columns
    int lane = threadIdx.x % 32, cols = a.cols, first = ((int)threadIdx.x - lane) * 4, row = blockIdx.x;
    enum { HELD = SUM ? 1 : NORM_HELD };
    const int stride = (SUM ? SUM_THREADS : NORM_THREADS) * 4;
    float4 held[HELD], w[HELD];
    float total = 0.0f;

    bool whole_w = ((uintptr_t)a.w & 15) == 0;
#pragma unroll
    for (int j = 0; j < HELD; j++) // weights are older than the kernel before
        w[j] = get4(a.w, first + j * stride + lane * 4, cols, whole_w);
    int rows = step_rows(step, a.rows);
    pdl_wait();
    if (row >= rows)
        return;
    const float *x = a.x + (size_t)row * (size_t)a.x_stride;
    const float *delta = a.delta ? a.delta + (size_t)row * (size_t)a.delta_stride : NULL;
    float *x_out = a.x_out + (size_t)row * (size_t)a.x_stride,
          *out = a.out + (size_t)row * (size_t)a.out_stride;
    bool whole = (((uintptr_t)x | (uintptr_t)delta | (uintptr_t)x_out | (uintptr_t)out) & 15) == 0;
    auto load = [&](int at) {
        int i = at + lane * 4;
        float4 v = get4(x, i, cols, whole);
        if (SUM) { // in fours, see lg_cu_norm_takes
            float4 d = sum_entries(a.sum, row, min(i, cols - 4));
            if (i >= cols)
                return v;
            *(float4 *)(a.sum.out.p + (size_t)row * (size_t)a.sum.out.stride + (size_t)i) = d;
            return add4(v, d);
        }
        return delta ? add4(v, get4(delta, i, cols, whole)) : v;
    };
    auto square = [&](int at, float4 v) {
        float s = warp_sum(squares4(v));
        if (delta)
            put4(x_out, at + lane * 4, cols, whole, v);
        if (lane == 0)
            sums[at / NORM_CHUNK] = s;
    };
#pragma unroll
    for (int j = 0; j < HELD; j++)
        held[j] = load(first + j * stride);
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (first + j * stride < cols)
            square(first + j * stride, held[j]);
    for (int at = first + HELD * stride; !SUM && at < cols; at += stride)
        square(at, load(at));
    __syncthreads();
    for (int c = lane; c < (cols + NORM_CHUNK - 1) / NORM_CHUNK; c += 32)
        total += sums[c];
    float inv = 1.0f / sqrtf(warp_sum(total) / (float)cols + a.eps);
    auto store = [&](int at, float4 v, float4 by) {
        int i = at + lane * 4;
        float4 y = scale4(v, inv, by);
        put4(out, i, cols, whole, y);
        put_act4<FORM>(a.acts, row, cols, i, y);
    };
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (first + j * stride < cols)
            store(first + j * stride, held[j], w[j]);
    for (int at = first + HELD * stride; !SUM && at < cols; at += stride)
        store(at, get4(delta ? x_out : x, at + lane * 4, cols, whole),
              get4(a.w, at + lane * 4, cols, whole_w));
}

/* The same with a sum, for rows that are a whole number of fours for each thread of a cluster: a block has a
 * part of the columns, and the chunks' sums of all. One multiprocessor alone takes more than a microsecond
 * for the entries of a row. */
enum { NORM_CLUSTER = 4, NORM_PART = 256, NORM_CHUNKS = NORM_CLUSTER * NORM_PART * 4 / NORM_CHUNK };

template <int FORM>
static __global__ void __launch_bounds__(NORM_PART)
    norm_cluster_kernel(__grid_constant__ const norm_args a, const lg_cu_step *step)
{
    __shared__ __align__(8) unsigned long long bar;
    __shared__ float sums[NORM_CHUNKS];
    int lane = threadIdx.x % 32, row = (int)blockIdx.x / NORM_CLUSTER, rows = step_rows(step, a.rows);
    int i = (int)(blockIdx.x % NORM_CLUSTER * blockDim.x + threadIdx.x) * 4, chunks = a.cols / NORM_CHUNK;
    float4 w = *(const float4 *)(a.w + i); // older than the kernel before
    float total = 0.0f;

    if (threadIdx.x == 0) {
        bar_init(shared_at(&bar));
        bar_expect(shared_at(&bar), (unsigned)chunks * 4);
        bars_ready();
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    pdl_wait();
    if (row >= rows)
        return;
    float4 v = __ldcg((const float4 *)(a.x + (size_t)row * (size_t)a.x_stride + (size_t)i));
    float4 d = sum_entries(a.sum, row, i);
    v = add4(v, d);
    float part = warp_sum(squares4(v));
    if (lane < NORM_CLUSTER)
        send1(shared_of(shared_at(&sums[i / NORM_CHUNK]), (unsigned)lane), part,
              shared_of(shared_at(&bar), (unsigned)lane));
    *(float4 *)(a.sum.out.p + (size_t)row * (size_t)a.sum.out.stride + (size_t)i) = d;
    *(float4 *)(a.x_out + (size_t)row * (size_t)a.x_stride + (size_t)i) = v;
    sent_wait(shared_at(&bar));
    for (int c = lane; c < chunks; c += 32)
        total += sums[c];
    float inv = 1.0f / sqrtf(warp_sum(total) / (float)a.cols + a.eps);
    float4 y = scale4(v, inv, w);
    *(float4 *)(a.out + (size_t)row * (size_t)a.out_stride + (size_t)i) = y;
    put_act4<FORM>(a.acts, row, a.cols, i, y);
}

// Threads of a block of such a cluster; 0: not this norm. For follow-ups; more rows fill the card as they
// are.
static int cluster_threads(const lg_cu *c, const norm_args &a, int rows)
{
    uintptr_t all = (uintptr_t)a.x | (uintptr_t)a.x_out | (uintptr_t)a.out | (uintptr_t)a.w;

    if (c->arch < 90 || rows <= LG_CU_EXACT_ROWS || NORM_CLUSTER * rows > c->sms ||
        a.cols % (NORM_CLUSTER * NORM_CHUNK) || a.cols > NORM_CLUSTER * NORM_PART * 4 ||
        (a.x_stride | a.out_stride) % 4 || (all & 15))
        return 0;
    return a.cols / (NORM_CLUSTER * 4);
}

static int act_form(const lg_cu *c, lg_rows rows, int cols)
{
    if (bucket_rows(c, rows) > LG_CU_CODE_ROWS)
        return cols % 32 == 0 ? 2 : 0;
    return cols % 32 == 0 ? 1 : 0;
}

bool lg_cu_norm_takes(const lg_cu_sum *sum, const lg_tensor *x, const lg_tensor *delta)
{
    const lg_tensor *s = &sum->out;

    return s->p && s->p == delta->p && s->cols == x->cols && s->stride == delta->stride &&
           s->rows == x->rows && s->cols <= 4 * SUM_THREADS && s->cols % 4 == 0 && s->stride % 4 == 0 &&
           (((uintptr_t)s->p | (uintptr_t)sum->y) & 15) == 0;
}

template <bool SUM> static auto kernel_of(int form)
{
    return form == 1 ? norm_kernel<1, SUM> : form == 2 ? norm_kernel<2, SUM> : norm_kernel<0, SUM>;
}

void lg_cu_norm(lg_cu *c, const lg_tensor *out, const lg_tensor *x, float *x_out, const lg_tensor *delta,
                const float *w, float eps, bool quantise, const lg_cu_sum *sum)
{
    int form = quantise ? act_form(c, out->rows, out->cols) : 0;
    norm_args a = {};

    a.out = out->p;
    a.x_out = x_out;
    a.x = x->p;
    a.delta = delta ? delta->p : NULL;
    a.w = w;
    a.out_stride = out->stride;
    a.x_stride = x->stride;
    a.delta_stride = delta ? delta->stride : 0;
    a.cols = x->cols;
    a.rows = out->rows;
    a.eps = eps;
    a.acts = c->acts;
    if (sum)
        a.sum = *sum;
    int part = sum ? cluster_threads(c, a, bucket_rows(c, out->rows)) : 0;
    if (part > 0) {
        launch_clusters(c,
                        form == 1   ? norm_cluster_kernel<1>
                        : form == 2 ? norm_cluster_kernel<2>
                                    : norm_cluster_kernel<0>,
                        dim3((unsigned)(NORM_CLUSTER * bucket_rows(c, out->rows))), part, 0, NORM_CLUSTER, a,
                        c->step);
        return;
    }
    launch(c, sum ? kernel_of<true>(form) : kernel_of<false>(form), dim3((unsigned)bucket_rows(c, out->rows)),
           sum ? (int)SUM_THREADS : (int)NORM_THREADS, (size_t)ceil_div(x->cols, NORM_CHUNK) * sizeof(float),
           a, c->step);
}

template <int FORM>
static __global__ void quantise_kernel(const float *x, int stride, int cols, int rows, const lg_cu_step *step,
                                       lg_cu_acts acts)
{
    pdl_wait();
    int row = blockIdx.x;
    if (row >= step_rows(step, rows))
        return;
    x += (size_t)row * (size_t)stride;
    for (int at = (int)(threadIdx.x / 32) * NORM_CHUNK; at < cols; at += (int)blockDim.x * 4) {
        int i = at + (int)threadIdx.x % 32 * 4;
        put_act4<FORM>(acts, row, cols, i, get4(x, i, cols, ((uintptr_t)x & 15) == 0));
    }
}

void lg_cu_quantise_to(lg_cu *c, const lg_tensor *x, const lg_cu_acts *to)
{
    int form = act_form(c, x->rows, x->cols);

    if (form == 0)
        return;
    launch(c, form == 1 ? quantise_kernel<1> : quantise_kernel<2>, dim3((unsigned)bucket_rows(c, x->rows)),
           512, 0, (const float *)x->p, x->stride, x->cols, (int)x->rows, c->step, *to);
}

void lg_cu_quantise(lg_cu *c, const lg_tensor *x)
{
    lg_cu_quantise_to(c, x, &c->acts);
}

void lg_cu_to_bf16(lg_cu *c, const lg_tensor *x)
{
    launch(c, quantise_kernel<2>, dim3((unsigned)bucket_rows(c, x->rows)), 256, 0, (const float *)x->p,
           x->stride, x->cols, (int)x->rows, c->step, c->acts);
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
