/*
 * backend/cuda/gemm: products of many rows on the tensor cores, plain and grouped by expert.
 *
 * A block computes BM activation rows times 128 weight rows. Activations are bf16 (range of f32, so nothing
 * overflows) and come by cp.async; weights are read as stored, one run of 32 a thread, turned into bf16 on
 * their way to shared memory while the products of the step before run; sums are f32. F32 weights, and float
 * weights whose rows are no multiple of 32, take a plain f32 kernel instead.
 *
 * Grouped: a list of tiles (expert, first entry, count) made on the device says which rows a block gathers.
 * Shared memory rows are 128 bytes, 16-byte chunks swizzled by the row so that ldmatrix meets no bank twice.
 */
#include "backend/cuda/common.cuh"

enum { BN = 128, BK = 64, THREADS = 256 };
enum mode { PLAIN, GATE_UP, DOWN };

struct gemm_args {
    lg_cu_mat w, up;
    const uint16_t *a; // bf16 rows
    const float *af;   // f32 rows, for the f32 kernel
    size_t a_stride, af_stride;
    const lg_cu_group *group; // NULL: one group of all rows
    const int *n_group;
    const int32_t *entry; // sorted entries
    int k;                // entry / k is its row
    float *y;
    size_t y_stride;
    uint16_t *mid;
    float *mid_f32; // written in place of mid when it is not NULL
    int rows;
    int slice; // inputs of a slice of gemm_f32_kernel, grid.z of them, sums slice_floats apart; 0: one
    size_t slice_floats;
};

/* ---- which rows ---- */

struct tile {
    int expert, first, n;
};

DEV bool get_tile(const gemm_args &a, const lg_cu_step *step, int index, int bm, tile *t)
{
    if (!a.group) {
        int n = step_rows(step, a.rows);
        t->expert = 0;
        t->first = index * bm;
        t->n = min(n - t->first, bm);
        return t->n > 0;
    }
    if (index >= *a.n_group)
        return false;
    lg_cu_group g = a.group[index];
    t->expert = g.expert;
    t->first = g.first;
    t->n = g.n;
    return true;
}

template <int MODE> DEV size_t a_row(const gemm_args &a, int at)
{
    return a.group && MODE == GATE_UP ? (size_t)(a.entry[at] / a.k) : (size_t)at;
}

template <int MODE> DEV size_t y_row(const gemm_args &a, int at)
{
    return a.group && MODE == DOWN ? (size_t)a.entry[at] : (size_t)at;
}

/* ---- pieces of the tensor core kernel ---- */

DEV unsigned smem_of(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

DEV void copy16(unsigned dst, const void *src, bool valid)
{
    int n = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(n) : "memory");
}

DEV void ldmatrix4(unsigned (&r)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

DEV void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEV unsigned pack_bf16(float lo, float hi)
{
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

/* Four codes of a word to two words of bf16. */
DEV void word_bf16(int q, float s, float m, unsigned *out)
{
    unsigned u = (unsigned)q ^ 0x80808080u;
    float f[4];
#pragma unroll
    for (int i = 0; i < 4; i++) // 2^23 + (code + 128), exactly
        f[i] = fmaf(s, __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7440 + i)) - 8388736.0f, m);
    out[0] = pack_bf16(f[0], f[1]);
    out[1] = pack_bf16(f[2], f[3]);
}

DEV void terms_bf16(const run_terms &t, unsigned *out)
{
#pragma unroll
    for (int w = 0; w < 8; w++)
        word_bf16(t.q[w], w < 4 ? t.s0 : t.s1, w < 4 ? t.m0 : t.m1, out + 2 * w);
}

DEV void floats_bf16(int type, const uint4 (&raw)[4], unsigned *out)
{
    const unsigned h[16] = {raw[0].x, raw[0].y, raw[0].z, raw[0].w, raw[1].x, raw[1].y, raw[1].z, raw[1].w,
                            raw[2].x, raw[2].y, raw[2].z, raw[2].w, raw[3].x, raw[3].y, raw[3].z, raw[3].w};
#pragma unroll
    for (int i = 0; i < 16; i++)
        out[i] = type == LG_BF16 ? h[i] : pack_bf16(half_bits(h[i] & 0xFFFF), half_bits(h[i] >> 16));
}

/* A run in flight. T: a planar type, LG_F16 (also BF16), or LG_CU_ANY (decided at run time). */
template <int T> struct weight_run {
    fmt<T> f;
    __device__ __forceinline__ void load(const lg_cu_mat &m, const uint8_t *p, int row, int run)
    {
        f.load(m, p, row, run);
    }
    __device__ __forceinline__ void get(const lg_cu_mat &m, int run, unsigned *out) const
    {
        run_terms t;
        (void)m;
        f.get(run, &t);
        if (fmt<T>::OFFSET)
            t.m0 = -(float)fmt<T>::OFFSET * t.s0, t.m1 = -(float)fmt<T>::OFFSET * t.s1;
        terms_bf16(t, out);
    }
};

DEV void load_floats(const lg_cu_mat &m, const uint8_t *p, int row, int run, uint4 (&raw)[4])
{
    const uint8_t *at = p + ((size_t)row * (size_t)m.n_in + (size_t)run * 32) * 2;
#pragma unroll
    for (int i = 0; i < 4; i++)
        raw[i] = load16(at + 16 * i);
}

template <> struct weight_run<LG_F16> {
    uint4 raw[4];
    __device__ __forceinline__ void load(const lg_cu_mat &m, const uint8_t *p, int row, int run)
    {
        load_floats(m, p, row, run, raw);
    }
    __device__ __forceinline__ void get(const lg_cu_mat &m, int run, unsigned *out) const
    {
        (void)run;
        floats_bf16(m.type, raw, out);
    }
};

template <> struct weight_run<LG_CU_ANY> {
    unsigned bf16[16];
    __device__ __forceinline__ void load(const lg_cu_mat &m, const uint8_t *p, int row, int run)
    {
        if (is_float(m.type)) {
            const uint8_t *at = p + ((size_t)row * (size_t)m.n_in + (size_t)run * 32) * float_bytes(m.type);
            for (int i = 0; i < 16; i++)
                bf16[i] =
                    pack_bf16(float_at(m.type, at, 2 * (size_t)i), float_at(m.type, at, 2 * (size_t)i + 1));
        } else {
            run_terms t;
            run_of(m, p, row, run, &t);
            terms_bf16(t, bf16);
        }
    }
    __device__ __forceinline__ void get(const lg_cu_mat &m, int run, unsigned *out) const
    {
        (void)m, (void)run;
        for (int i = 0; i < 16; i++)
            out[i] = bf16[i];
    }
};

DEV int chunk_at(int row, int chunk) // byte offset in a tile of 128-byte rows
{
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

template <int MODE> DEV int weight_row(int b, int n0)
{
    return MODE == GATE_UP ? n0 + (b >> 4) * 8 + (b & 7) : n0 + b;
}

/* ---- the tensor core kernel ---- */

template <int BM, int MODE>
DEV void epilogue(const gemm_args &a, const tile &t, float (&acc)[BM / 32][4][4], int n0, int m_at, int n_at)
{
    int lane = threadIdx.x % 32, n_out = a.w.n_out;
    float scale = matrix_scale(a.w, t.expert),
          up_scale = MODE == GATE_UP ? matrix_scale(a.up, t.expert) : 0.0f;

#pragma unroll
    for (int i = 0; i < BM / 32; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = m_at + i * 16 + lane / 4 + 8 * h;
            if (r >= t.n)
                continue;
            if (MODE == GATE_UP) {
#pragma unroll
                for (int j = 0; j < 4; j += 2)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        int n = n0 + n_at / 2 + j * 4 + 2 * (lane % 4) + e;
                        float v = silu(acc[i][j][2 * h + e] * scale) * (acc[i][j + 1][2 * h + e] * up_scale);
                        size_t at = (size_t)(t.first + r) * (size_t)n_out + (size_t)n;
                        if (n < n_out && a.mid_f32)
                            a.mid_f32[at] = v;
                        else if (n < n_out)
                            ((__nv_bfloat16 *)a.mid)[at] = __float2bfloat16_rn(v);
                    }
                continue;
            }
            float *y = a.y + y_row<MODE>(a, t.first + r) * a.y_stride;
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int n = n0 + n_at + j * 8 + 2 * (lane % 4) + e;
                    if (n < n_out)
                        y[n] = acc[i][j][2 * h + e] * scale;
                }
        }
}

template <int BM, int MODE, int T>
static __global__ void __launch_bounds__(THREADS, BM == 128 ? 1 : 2)
    gemm_kernel(__grid_constant__ const gemm_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(1024) uint8_t smem[];
    enum { A_BYTES = BM * 128, B_BYTES = BN * 128, MT = BM / 32, A_CHUNKS = BM * 8 / THREADS };
    uint8_t *sa = smem, *sb = smem + 2 * A_BYTES;
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, m_at = warp / 4 * (BM / 2), n_at = warp % 4 * 32;
    tile t;

    pdl_wait();
    int tile_index = MODE == PLAIN ? blockIdx.x : blockIdx.y,
        n_index = MODE == PLAIN ? blockIdx.y : blockIdx.x;
    if (!get_tile(a, step, tile_index, BM, &t))
        return;
    int n0 = n_index * (MODE == GATE_UP ? BN / 2 : BN), n_in = a.w.n_in, runs = n_in / 32;
    int steps = (runs + 1) / 2;
    // this thread's part of the weights: a row of the tile, and every second run
    int b = tid / 2, b_run = tid % 2, row = weight_row<MODE>(b, n0);
    bool is_up = MODE == GATE_UP && (b >> 3 & 1);
    const lg_cu_mat &w = is_up ? a.up : a.w;
    const uint8_t *wp = matrix_at(w, t.expert);
    bool row_valid = row < w.n_out;
    // and of the activations: chunk tid % 8 of rows tid / 8, + 32, ...
    const uint16_t *src[A_CHUNKS];
#pragma unroll
    for (int i = 0; i < A_CHUNKS; i++) {
        int r = tid / 8 + i * 32;
        src[i] = r < t.n ? a.a + a_row<MODE>(a, t.first + r) * a.a_stride + (tid % 8) * 8 : NULL;
    }
    float acc[MT][4][4] = {};
    weight_run<T> held;

    auto load_a = [&](int s) {
#pragma unroll
        for (int i = 0; i < A_CHUNKS; i++) {
            bool valid = src[i] && s * BK + (tid % 8) * 8 < n_in;
            copy16(smem_of(sa + (s & 1) * A_BYTES) + (unsigned)chunk_at(tid / 8 + i * 32, tid % 8),
                   valid ? (const void *)(src[i] + (size_t)s * BK) : (const void *)a.a, valid);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    auto load_b = [&](int s) {
        if (row_valid && 2 * s + b_run < runs)
            held.load(w, wp, row, 2 * s + b_run);
    };
    auto store_b = [&](int s) {
        unsigned v[16];
        if (row_valid && 2 * s + b_run < runs) {
            held.get(w, 2 * s + b_run, v);
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++)
                v[i] = 0;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(uint4 *)(sb + (s & 1) * B_BYTES + chunk_at(b, b_run * 4 + i)) =
                make_uint4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
    };

    load_a(0);
    load_b(0);
    store_b(0);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (int s = 0; s < steps; s++) {
        if (s + 1 < steps) {
            load_a(s + 1);
            load_b(s + 1);
        }
        unsigned a_at = smem_of(sa + (s & 1) * A_BYTES), b_at = smem_of(sb + (s & 1) * B_BYTES);
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {
            unsigned af[MT][4], bf[2][4];
#pragma unroll
            for (int i = 0; i < MT; i++)
                ldmatrix4(af[i], a_at + (unsigned)chunk_at(m_at + i * 16 + lane % 16, 2 * kk + lane / 16));
#pragma unroll
            for (int j = 0; j < 2; j++)
                ldmatrix4(bf[j], b_at + (unsigned)chunk_at(n_at + j * 16 + lane / 16 * 8 + lane % 8,
                                                           2 * kk + (lane / 8 & 1)));
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    mma(acc[i][j], af[i], bf[j / 2][2 * (j % 2)], bf[j / 2][2 * (j % 2) + 1]);
        }
        if (s + 1 < steps)
            store_b(s + 1);
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
    }
    epilogue<BM, MODE>(a, t, acc, n0, m_at, n_at);
}

/* ---- the f32 kernel: 64 rows times 64 weight rows, 16 inputs a step ---- */

enum { FM = 64, FN = 64, FK = 16 };

template <int MODE>
static __global__ void __launch_bounds__(THREADS, MODE == GATE_UP ? 2 : 4)
    gemm_f32_kernel(__grid_constant__ const gemm_args a, const lg_cu_step *step)
{
    enum { MATS = MODE == GATE_UP ? 2 : 1, PER = FM * FK / THREADS };
    __shared__ float sx[FK][FM + 4], sw[MATS][FK][FN + 4];
    int tid = threadIdx.x, tx = tid % 16, ty = tid / 16;
    float acc[MATS][4][4] = {};
    tile t;

    pdl_wait();
    int tile_index = MODE == PLAIN ? blockIdx.x : blockIdx.y,
        n_index = MODE == PLAIN ? blockIdx.y : blockIdx.x;
    if (!get_tile(a, step, tile_index, FM, &t))
        return;
    int n0 = n_index * FN, n_in = a.w.n_in, k = tid % FK, r0 = tid / FK;
    int from = MODE == PLAIN ? (int)blockIdx.z * a.slice : 0;
    int to = MODE == PLAIN && a.slice > 0 ? min(from + a.slice, n_in) : n_in;
    const float *px[PER];
    const uint8_t *pw[MATS];
    float hx[PER], hw[MATS][PER]; // the step after this one
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int r = r0 + i * (THREADS / FK);
        px[i] = r < t.n ? a.af + a_row<MODE>(a, t.first + r) * a.af_stride : NULL;
    }
#pragma unroll
    for (int m = 0; m < MATS; m++)
        pw[m] = matrix_at(m ? a.up : a.w, t.expert);
    auto load = [&](int k0) {
#pragma unroll
        for (int i = 0; i < PER; i++) {
            int r = n0 + r0 + i * (THREADS / FK);
            hx[i] = px[i] && k0 + k < to ? px[i][k0 + k] : 0.0f;
#pragma unroll
            for (int m = 0; m < MATS; m++) {
                const lg_cu_mat &w = m ? a.up : a.w;
                hw[m][i] = r < w.n_out && k0 + k < to
                               ? float_at(w.type, pw[m], (size_t)r * (size_t)n_in + (size_t)(k0 + k))
                               : 0.0f;
            }
        }
    };
    load(from);
    for (int k0 = from; k0 < to; k0 += FK) {
#pragma unroll
        for (int i = 0; i < PER; i++) {
            sx[k][r0 + i * (THREADS / FK)] = hx[i];
#pragma unroll
            for (int m = 0; m < MATS; m++)
                sw[m][k][r0 + i * (THREADS / FK)] = hw[m][i];
        }
        if (k0 + FK < to)
            load(k0 + FK);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < FK; d++)
#pragma unroll
            for (int m = 0; m < MATS; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        acc[m][i][j] = fmaf(sx[d][ty * 4 + i], sw[m][d][tx * 4 + j], acc[m][i][j]);
        __syncthreads();
    }
    float scale = matrix_scale(a.w, t.expert),
          up_scale = MODE == GATE_UP ? matrix_scale(a.up, t.expert) : 0.0f;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            int r = ty * 4 + i, n = n0 + tx * 4 + j;
            if (r >= t.n || n >= a.w.n_out)
                continue;
            if (MODE == GATE_UP) {
                float v = silu(acc[0][i][j] * scale) * (acc[MATS - 1][i][j] * up_scale);
                size_t at = (size_t)(t.first + r) * (size_t)a.w.n_out + (size_t)n;
                if (a.mid_f32)
                    a.mid_f32[at] = v;
                else
                    ((__nv_bfloat16 *)a.mid)[at] = __float2bfloat16_rn(v);
            } else {
                a.y[(MODE == PLAIN ? blockIdx.z * a.slice_floats : 0) +
                    y_row<MODE>(a, t.first + r) * a.y_stride + (size_t)n] = acc[0][i][j] * scale;
            }
        }
}

/* ---- launches ---- */

static bool wants_f32(const lg_cu_mat *w)
{
    return w->type == LG_F32 || w->n_in % 32 != 0;
}

template <int BM, int MODE, int T> static void run(lg_cu *c, const gemm_args &a, int tiles)
{
    size_t smem = 2 * (BM + BN) * 128;
    int n = ceil_div(a.w.n_out, MODE == GATE_UP ? BN / 2 : BN);
    dim3 grid = MODE == PLAIN ? dim3((unsigned)tiles, (unsigned)n) : dim3((unsigned)n, (unsigned)tiles);
    cudaError_t e = cudaFuncSetAttribute(gemm_kernel<BM, MODE, T>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);

    if (e != cudaSuccess && c->error == cudaSuccess)
        c->error = e;
    launch(c, gemm_kernel<BM, MODE, T>, grid, THREADS, smem, a, c->step);
}

template <int BM, int MODE> static void run_type(lg_cu *c, const gemm_args &a, int tiles)
{
    int type = MODE == GATE_UP && a.up.type != a.w.type ? (int)LG_CU_ANY : a.w.type;

    switch (type) {
    case LG_Q8_0: run<BM, MODE, LG_Q8_0>(c, a, tiles); break;
    case LG_Q4_K: run<BM, MODE, LG_Q4_K>(c, a, tiles); break;
    case LG_Q5_K: run<BM, MODE, LG_Q5_K>(c, a, tiles); break;
    case LG_Q6_K: run<BM, MODE, LG_Q6_K>(c, a, tiles); break;
    case LG_F16:
    case LG_BF16: run<BM, MODE, LG_F16>(c, a, tiles); break;
    default: run<BM, MODE, LG_CU_ANY>(c, a, tiles); break;
    }
}

template <int MODE> static void run_f32(lg_cu *c, const gemm_args &a, int tiles)
{
    unsigned n = (unsigned)ceil_div(a.w.n_out, FN);

    launch(c, gemm_f32_kernel<MODE>, MODE == PLAIN ? dim3((unsigned)tiles, n) : dim3(n, (unsigned)tiles),
           THREADS, 0, a, c->step);
}

void lg_cu_gemm(lg_cu *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts)
{
    int rows = bucket_rows(c, x->rows);
    bool codes = rows <= LG_CU_CODE_ROWS; // no bf16 yet
    lg_cu_part rest[LG_CU_PARTS];

    if (codes) {
        n_parts = lg_cu_gemm_stream(c, x, parts, n_parts, rest);
        parts = rest;
    }
    for (int p = 0; p < n_parts; p++) {
        int done = rows <= LG_CU_CODE_ROWS ? lg_cu_gemm_int8(c, x, parts + p, n_parts - p) : 0;
        if (done == 0 && codes && !wants_f32(&parts[p].w)) {
            lg_cu_to_bf16(c, x);
            codes = false;
        }
        if (done == 0)
            done = lg_cu_gemm_wgmma(c, x, parts + p, n_parts - p);
        if (done > 0) {
            p += done - 1;
            continue;
        }
        gemm_args a = {};
        a.w = parts[p].w;
        a.a = c->acts.bf16;
        a.a_stride = (size_t)x->cols;
        a.af = x->p;
        a.af_stride = (size_t)x->stride;
        a.y = parts[p].y;
        a.y_stride = (size_t)parts[p].y_stride;
        a.rows = x->rows;
        if (wants_f32(&a.w))
            run_f32<PLAIN>(c, a, ceil_div(rows, FM));
        else if (rows > 64)
            run_type<128, PLAIN>(c, a, ceil_div(rows, 128));
        else if (rows > 32)
            run_type<64, PLAIN>(c, a, 1);
        else
            run_type<32, PLAIN>(c, a, 1);
    }
}

void lg_cu_gemm_f32_slices(lg_cu *c, const lg_tensor *x, const lg_cu_part *part, int slices)
{
    int rows = bucket_rows(c, x->rows);
    gemm_args a = {};

    a.w = part->w;
    a.af = x->p;
    a.af_stride = (size_t)x->stride;
    a.y = part->y;
    a.y_stride = (size_t)part->y_stride;
    a.rows = x->rows;
    a.slice = ceil_div(ceil_div(x->cols, slices), FK) * FK;
    a.slice_floats = (size_t)rows * a.y_stride;
    launch(c, gemm_f32_kernel<PLAIN>,
           dim3((unsigned)ceil_div(rows, FM), (unsigned)ceil_div(a.w.n_out, FN), (unsigned)slices), THREADS,
           0, a, c->step);
}

/* Both products of a step into one kernel: f32 only when both are floats. */
static bool pair_wants_f32(const lg_cu_ffn *f)
{
    return is_float(f->gate.type) && is_float(f->up.type) && (wants_f32(&f->gate) || wants_f32(&f->up));
}

int lg_cu_gemm_tile_rows(const lg_cu *c, const lg_cu_ffn *f, int n_expert, int k)
{
    int mean = c->rows * k / (n_expert > 0 ? n_expert : 1);

    if (lg_cu_wgmma_tile_rows(c, f) > 0)
        return lg_cu_wgmma_tile_rows(c, f);
    if (pair_wants_f32(f) || wants_f32(&f->down))
        return FM;
    return mean >= 24 ? 64 : 32; // S at 4096 rows, H200: 8,340 tok/s; with 128 rows a tile 7,840
}

template <int MODE> static void run_tiles(lg_cu *c, const gemm_args &a, bool f32, int tile_rows, int tiles)
{
    if (f32)
        run_f32<MODE>(c, a, tiles);
    else if (tile_rows == 128)
        run_type<128, MODE>(c, a, tiles);
    else if (tile_rows == 64)
        run_type<64, MODE>(c, a, tiles);
    else
        run_type<32, MODE>(c, a, tiles);
}

void lg_cu_gemm_ffn(lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f, bool dense, int tile_rows, int n_tiles)
{
    bool up_f32 = pair_wants_f32(f), down_f32 = wants_f32(&f->down);
    gemm_args a = {};

    // dense rows of a mixture stand behind the entries
    a.y = dense && m->routed ? c->expert_out + (size_t)c->rows * (size_t)m->k * (size_t)m->out.cols
          : dense            ? m->out.p
                             : c->expert_out;
    a.y_stride = dense && !m->routed ? (size_t)m->out.stride : (size_t)m->out.cols;
    if (lg_cu_wgmma_tile_rows(c, f) > 0) {
        lg_cu_gemm_wgmma_ffn(c, m, f, dense, a.y, (int)a.y_stride, n_tiles);
        return;
    }
    a.w = f->gate;
    a.up = f->up;
    a.a = c->acts.bf16;
    a.a_stride = (size_t)m->h.cols;
    a.af = m->h.p;
    a.af_stride = (size_t)m->h.stride;
    a.rows = m->h.rows;
    a.mid = c->mid.bf16;
    a.mid_f32 = down_f32 ? c->mid_f32 : NULL;
    if (!dense)
        take_groups(&a, c, m->k);
    run_tiles<GATE_UP>(c, a, up_f32, tile_rows, n_tiles);
    a.w = f->down;
    a.a = c->mid.bf16;
    a.af = c->mid_f32;
    a.a_stride = a.af_stride = (size_t)f->down.n_in;
    run_tiles<DOWN>(c, a, down_f32, tile_rows, n_tiles);
}
