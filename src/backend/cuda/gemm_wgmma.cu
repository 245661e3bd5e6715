/*
 * backend/cuda/gemm_wgmma: products of many rows on the tensor cores of sm_90a, plain and grouped by expert.
 *
 * A block computes 192 weight rows times up to 192 tokens. Weights are the first operand: codes come by
 * cp.async as stored, and each thread turns those of its places in the fragment into bf16 registers while the
 * product of the ones before runs. Tokens (bf16) are the second operand, in shared memory. Three warpgroups
 * share them, each with 64 weight rows; sums are f32. The width of the instruction follows the number of
 * tokens.
 *
 * Gate and up: every 8 rows of gate are followed by the same 8 of up, so that a thread holds both of a
 * product. Weights are bf16 as in gemm.cu: codes times scale plus minimum in f32, rounded once.
 */
#include "backend/cuda/wgmma.cuh"

enum {
    GROUPS = 3,
    THREADS = 128 * GROUPS,
    ROWS = 64 * GROUPS, // weight rows of a block
    TOKENS = 192,       // at most
    STAGES = 4,
    DEPTH = 64, // inputs of a stage: two runs
};
enum mode { PLAIN, GATE_UP, DOWN };

struct wg_args {
    lg_cu_part part[LG_CU_PARTS]; // GATE_UP: gate and up
    int n_parts;
    const uint16_t *x;        // bf16 rows
    const lg_cu_group *group; // NULL: one group of all rows
    const int *n_group;
    const int32_t *entry;
    int k;
    uint16_t *mid; // GATE_UP
    int rows;
};

struct place {
    int expert, first, n; // tokens
    int part, row0;       // matrix, first row of it
};

/* Planes of a stage of weights: [plane][row][16 bytes]: codes of both runs, then what else the type has. */
template <int T> struct planes_n {
    enum { N = T == LG_Q8_0 ? 4 : T == LG_Q6_K ? 3 : 2 };
};
enum { TOKEN_BYTES = TOKENS * 128 };
template <int T> struct stage_size {
    enum { BYTES = TOKEN_BYTES + planes_n<T>::N * ROWS * 16 };
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

DEV void copy16(unsigned dst, const void *src, bool valid)
{
    int n = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(n)
                 : "memory");
}

template <int MODE> DEV const lg_cu_mat &matrix_of(const wg_args &a, const place &at, int r, int *row)
{
    const lg_cu_mat &m = a.part[MODE == GATE_UP ? r >> 3 & 1 : at.part].w;
    *row = min(MODE == GATE_UP ? at.row0 + (r >> 4) * 8 + (r & 7) : at.row0 + r, m.n_out - 1);
    return m;
}

// What a thread copies into every stage.
template <int T, int MODE, int NT> struct copies {
    enum { WEIGHTS = T == LG_Q4_K ? 1 : 2, X = (NT * 8 + THREADS - 1) / THREADS };
    const uint8_t *w[WEIGHTS];
    const uint16_t *x[X];
    unsigned to_w, to_x;

    __device__ __forceinline__ void set(const wg_args &a, const place &at)
    {
        int tid = threadIdx.x, r = tid / 2, c = tid % 2, row;
        const lg_cu_mat &m = matrix_of<MODE>(a, at, r, &row);
        const uint8_t *p = matrix_at(m, at.expert);
        size_t n = (size_t)m.n_in, line = (size_t)row;
        // run c of row r
        w[0] = p + line * (T == LG_Q8_0 ? n : n / 2) + c * 16;
        if (T == LG_Q8_0)
            w[1] = w[0] + n / 2;
        to_w = TOKEN_BYTES + (unsigned)((c * ROWS + r) * 16);
        if (T == LG_Q6_K) { // both runs of row tid
            const lg_cu_mat &h = matrix_of<MODE>(a, at, min(tid, ROWS - 1), &row);
            w[WEIGHTS - 1] = matrix_at(h, at.expert) + h.at[0] + (size_t)row * (n / 4);
        }
#pragma unroll
        for (int i = 0; i < X; i++) {
            int t = tid / 8 + i * (THREADS / 8);
            size_t line_x = (size_t)(at.first + min(t, at.n - 1));
            if (MODE == GATE_UP && a.group)
                line_x = (size_t)(a.entry[line_x] / a.k);
            x[i] = a.x + line_x * n + (size_t)(tid % 8 * 8);
        }
        to_x = (unsigned)(tid / 8 * 128 + ((tid % 8 ^ (tid / 8 & 7)) << 4));
    }
    __device__ __forceinline__ void copy(int stage, unsigned to, int tokens) const
    {
        int tid = threadIdx.x;
        copy16(to + to_w, w[0] + (size_t)stage * 32, true);
        if (T == LG_Q8_0)
            copy16(to + to_w + 2 * ROWS * 16, w[1] + (size_t)stage * 32, true);
        if (T == LG_Q6_K && tid < ROWS)
            copy16(to + TOKEN_BYTES + 2 * ROWS * 16 + (unsigned)tid * 16, w[WEIGHTS - 1] + (size_t)stage * 16,
                   true);
#pragma unroll
        for (int i = 0; i < X; i++) {
            int t = tid / 8 + i * (THREADS / 8);
            if (NT % (THREADS / 8) == 0 || t < NT)
                copy16(to + to_x + (unsigned)(i * (THREADS / 8) * 128), x[i] + (size_t)stage * DEPTH,
                       t < tokens);
        }
    }
};

/* ---- weights to fragments ---- */

// Scales of 8 runs of one row.
struct row_scales {
    uint4 w;
    unsigned d; // Q6_K
};

template <int T> DEV void load_scales(row_scales &s, const uint8_t *at, const uint8_t *d_at, int block)
{
    s.w = __ldg((const uint4 *)at + block);
    if (T == LG_Q6_K)
        s.d = __ldg((const unsigned short *)d_at + block);
}

DEV unsigned bf16_pair(float lo, float hi)
{
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

DEV unsigned short_at(const uint8_t *p)
{
    return *(const unsigned short *)p;
}

// Codes in bytes 0 and 1 of v to s * (code - less) + m; MASK picks a code's bits (at most 7).
template <unsigned MASK> DEV unsigned small_pair(unsigned v, float s, float less, float m)
{
    float lo = __uint_as_float(__byte_perm(v, 0x43, 0x4077) & (MASK << 16 | 0xFF000000u)); // 2^7 + code
    float hi = __uint_as_float(__byte_perm(v, 0x43, 0x4177) & (MASK << 16 | 0xFF000000u));
    return bf16_pair(fmaf(s, lo - (128.0f + less), m), fmaf(s, hi - (128.0f + less), m));
}

// Codes 0..255: s * (2^15 + code) + c.
DEV unsigned byte_pair(unsigned v, float s, float c)
{
    float lo = __uint_as_float(__byte_perm(v, 0x47, 0x4707)),
          hi = __uint_as_float(__byte_perm(v, 0x47, 0x4717));
    return bf16_pair(fmaf(s, lo, c), fmaf(s, hi, c));
}

// Run `run` (of 8; which = run % 2 of the stage) of rows g and g + 8: fragments of two steps.
template <int T>
DEV void fragments(unsigned (&a)[2][4], const uint8_t *w, int row, int t, int run, const row_scales (&sc)[2])
{
    const uint8_t *p = w + (run % 2 * ROWS + row) * 16 + 2 * t;

#pragma unroll
    for (int h = 0; h < 2; h++) { // rows g, g + 8
        const uint8_t *q = p + h * 128;
        unsigned u = short_at(q), v = short_at(q + 8);
        if (T == LG_Q8_0) {
            unsigned word = run < 2 ? sc[h].w.x : run < 4 ? sc[h].w.y : run < 6 ? sc[h].w.z : sc[h].w.w;
            float s = half_bits(run % 2 ? word >> 16 : word & 0xFFFF), c = -32896.0f * s;
            unsigned x = short_at(q + 2 * ROWS * 16), y = short_at(q + 2 * ROWS * 16 + 8);
            a[0][h] = byte_pair(u ^ 0x8080, s, c);
            a[0][2 + h] = byte_pair(v ^ 0x8080, s, c);
            a[1][h] = byte_pair(x ^ 0x8080, s, c);
            a[1][2 + h] = byte_pair(y ^ 0x8080, s, c);
        } else if (T == LG_Q4_K) {
            float s, m;
            k_scales(sc[h].w, run, &s, &m);
            a[0][h] = small_pair<15>(u, s, 0.0f, m);
            a[0][2 + h] = small_pair<15>(v, s, 0.0f, m);
            a[1][h] = small_pair<15>(u >> 4, s, 0.0f, m);
            a[1][2 + h] = small_pair<15>(v >> 4, s, 0.0f, m);
        } else {
            const uint8_t *hp = w + (2 * ROWS + row + 8 * h) * 16 + run % 2 * 8 + 2 * (t & 1);
            unsigned hx = short_at(hp) >> 2 * (t >> 1), hy = short_at(hp + 4) >> 2 * (t >> 1);
            unsigned word = run < 2 ? sc[h].w.x : run < 4 ? sc[h].w.y : run < 6 ? sc[h].w.z : sc[h].w.w;
            float d = half_bits(sc[h].d), s0 = d * (float)(int8_t)(word >> 16 * (run % 2) & 0xFF),
                  s1 = d * (float)(int8_t)(word >> 16 * (run % 2) + 8 & 0xFF);
            a[0][h] = small_pair<63>((u & 0x0F0F) | (hx & 0x0303) << 4, s0, 32.0f, 0.0f);
            a[0][2 + h] = small_pair<63>((v & 0x0F0F) | (hx >> 4 & 0x0303) << 4, s0, 32.0f, 0.0f);
            a[1][h] = small_pair<63>((u >> 4 & 0x0F0F) | (hy & 0x0303) << 4, s1, 32.0f, 0.0f);
            a[1][2 + h] = small_pair<63>((v >> 4 & 0x0F0F) | (hy >> 4 & 0x0303) << 4, s1, 32.0f, 0.0f);
        }
    }
}

/* ---- results ---- */

template <int MODE, int NT>
DEV void put_results(const wg_args &a, const place &at, const float (&acc)[NT / 2], uint8_t *smem)
{
    enum { STRIDE = ROWS / 2 + 8 };
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const lg_cu_mat &m = a.part[at.part].w;
    float scale = matrix_scale(m, at.expert);

    if (MODE != GATE_UP) { // 8 lanes write 32 bytes of a row
#pragma unroll
        for (int j = 0; j < NT / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int tok = 8 * j + 2 * t + (e & 1), row = at.row0 + warp * 16 + g + 8 * (e >> 1);
                if (tok >= at.n || row >= m.n_out)
                    continue;
                size_t line = (size_t)(MODE == DOWN && a.group ? a.entry[at.first + tok] : at.first + tok);
                a.part[at.part].y[line * (size_t)a.part[at.part].y_stride + (size_t)row] =
                    acc[4 * j + e] * scale;
            }
        return;
    }
    float up_scale = matrix_scale(a.part[1].w, at.expert);
    __nv_bfloat16 *out = (__nv_bfloat16 *)smem; // [token][STRIDE]
    __syncthreads();
#pragma unroll
    for (int j = 0; j < NT / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            out[(8 * j + 2 * t + e) * STRIDE + warp * 8 + g] =
                __float2bfloat16_rn(silu(acc[4 * j + e] * scale) * (acc[4 * j + 2 + e] * up_scale));
    __syncthreads();
    for (int i = threadIdx.x; i < at.n * (ROWS / 16); i += THREADS) {
        int tok = i / (ROWS / 16), c = i % (ROWS / 16);
        if (at.row0 + c * 8 < m.n_out)
            *(uint4 *)(a.mid + (size_t)(at.first + tok) * (size_t)m.n_out + (size_t)(at.row0 + c * 8)) =
                *(const uint4 *)(out + tok * STRIDE + c * 8);
    }
}

/* ---- the kernel ---- */

template <int T, int MODE, int NT> DEV void block_products(const wg_args &a, const place &at, uint8_t *smem)
{
    enum { BYTES = stage_size<T>::BYTES };
    int tid = threadIdx.x, lane = tid % 32, t = lane % 4, my_row = tid / 32 * 16 + lane / 4;
    int stages = a.part[at.part].w.n_in / DEPTH;
    unsigned base = (unsigned)__cvta_generic_to_shared(smem);
    float acc[NT / 2];
    unsigned frag[2][2][4];
    copies<T, MODE, NT> in;
    row_scales now[2], then[2];
    const uint8_t *scales[2], *d_at[2];

#pragma unroll
    for (int i = 0; i < NT / 2; i++)
        acc[i] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row;
        const lg_cu_mat &m = matrix_of<MODE>(a, at, my_row + 8 * h, &row);
        scales[h] =
            matrix_at(m, at.expert) + m.at[T == LG_Q6_K ? 1 : 0] + (size_t)row * (size_t)(m.n_in / 16);
        d_at[h] =
            T == LG_Q6_K ? matrix_at(m, at.expert) + m.at[2] + (size_t)row * (size_t)(m.n_in / 128) : NULL;
        load_scales<T>(then[h], scales[h], d_at[h], 0);
    }
    in.set(a, at);
    auto load = [&](int stage) {
        if (stage < stages)
            in.copy(stage, base + (unsigned)(stage % STAGES) * BYTES, at.n);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int i = 0; i < STAGES - 2; i++)
        load(i);
    for (int block = 0; block < stages / 4; block++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            now[h] = then[h];
            if (block + 1 < stages / 4)
                load_scales<T>(then[h], scales[h], d_at[h], block + 1);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int stage = block * 4 + i;
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 3) : "memory");
            proxy_fence();
            // the products of stage - 2 are done: only the last half of stage - 1 may be under way
            __syncthreads();
            load(stage + STAGES - 2);
            unsigned here = base + (unsigned)(i % STAGES) * BYTES;
            const uint8_t *w = smem + (i % STAGES) * BYTES + TOKEN_BYTES;
            unsigned long long desc = wgmma_desc(here);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                wgmma_wait<1>(); // frag[h] is free
                fragments<T>(frag[h], w, my_row, t, 2 * i + h, now);
                wgmma_fence();
                wgmma(acc, frag[h][0], desc + 4 * h);
                wgmma(acc, frag[h][1], desc + 4 * h + 2);
                wgmma_commit();
            }
        }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < NT / 2; i++) // not to be read before
        asm volatile("" : "+f"(acc[i])::"memory");
    put_results<MODE, NT>(a, at, acc, smem);
}

#endif

template <int T, int MODE>
static __global__ void __launch_bounds__(THREADS, 1)
    wg_kernel(__grid_constant__ const wg_args a, const lg_cu_step *step)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t smem[];
    int block = MODE == PLAIN ? blockIdx.y : blockIdx.x;
    place at = {};

    if (MODE == PLAIN)
        while (at.part + 1 < a.n_parts && block >= a.part[at.part + 1].first_group)
            at.part++;
    at.row0 = MODE == GATE_UP ? block * (ROWS / 2) : (block - a.part[at.part].first_group) * ROWS;
    pdl_wait();
    if (a.group) {
        if ((int)blockIdx.y >= *a.n_group)
            return;
        lg_cu_group g = a.group[blockIdx.y];
        at.expert = g.expert;
        at.first = g.first;
        at.n = g.n;
    } else {
        at.first = (int)(MODE == PLAIN ? blockIdx.x : blockIdx.y) * TOKENS;
        at.n = min(step_rows(step, a.rows) - at.first, (int)TOKENS);
    }
    if (at.n <= 0)
        return;
    if (at.n <= 64)
        block_products<T, MODE, 64>(a, at, smem);
    else if (at.n <= 96)
        block_products<T, MODE, 96>(a, at, smem);
    else if (at.n <= 128)
        block_products<T, MODE, 128>(a, at, smem);
    else if (at.n <= 160)
        block_products<T, MODE, 160>(a, at, smem);
    else
        block_products<T, MODE, 192>(a, at, smem);
#endif
}

/* ---- launches ---- */

template <int T, int MODE> static void run(lg_cu *c, const wg_args &a, dim3 grid)
{
    size_t smem = STAGES * stage_size<T>::BYTES;
    cudaError_t e =
        cudaFuncSetAttribute(wg_kernel<T, MODE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);

    if (e != cudaSuccess && c->error == cudaSuccess)
        c->error = e;
    launch(c, wg_kernel<T, MODE>, grid, THREADS, smem, a, c->step);
}

template <int MODE> static void run_type(lg_cu *c, const wg_args &a, dim3 grid)
{
    switch (a.part[0].w.type) {
    case LG_Q8_0: run<LG_Q8_0, MODE>(c, a, grid); break;
    case LG_Q4_K: run<LG_Q4_K, MODE>(c, a, grid); break;
    default: run<LG_Q6_K, MODE>(c, a, grid); break;
    }
}

static bool takes(const lg_cu *c, const lg_cu_mat *m)
{
#ifdef LG_CUDA_SM90A
    return c->arch == 90 && m->n_in % 256 == 0 &&
           (m->type == LG_Q8_0 || m->type == LG_Q4_K || m->type == LG_Q6_K);
#else
    (void)c, (void)m;
    return false;
#endif
}

int lg_cu_gemm_wgmma(lg_cu *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts)
{
    wg_args a = {};
    int blocks = 0;

    while (a.n_parts < n_parts && takes(c, &parts[a.n_parts].w) &&
           parts[a.n_parts].w.type == parts[0].w.type) {
        a.part[a.n_parts] = parts[a.n_parts];
        a.part[a.n_parts].first_group = blocks;
        blocks += ceil_div(parts[a.n_parts].w.n_out, ROWS);
        a.n_parts++;
    }
    if (a.n_parts == 0)
        return 0;
    a.x = c->acts.bf16;
    a.rows = x->rows;
    run_type<PLAIN>(c, a, dim3((unsigned)ceil_div(bucket_rows(c, x->rows), TOKENS), (unsigned)blocks));
    return a.n_parts;
}

int lg_cu_wgmma_tile_rows(const lg_cu *c, const lg_cu_ffn *f)
{
    return takes(c, &f->gate) && takes(c, &f->down) && f->up.type == f->gate.type ? TOKENS : 0;
}

void lg_cu_gemm_wgmma_ffn(lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f, bool dense, float *y,
                          int y_stride, int n_tiles)
{
    wg_args a = {};

    a.part[0].w = f->gate;
    a.part[1].w = f->up;
    a.n_parts = 1;
    a.x = c->acts.bf16;
    a.rows = m->h.rows;
    a.mid = c->mid.bf16;
    if (!dense)
        take_groups(&a, c, m->k);
    run_type<GATE_UP>(c, a, dim3((unsigned)ceil_div(f->gate.n_out, ROWS / 2), (unsigned)n_tiles));
    a.part[0].w = f->down;
    a.part[0].y = y;
    a.part[0].y_stride = y_stride;
    a.x = c->mid.bf16;
    run_type<DOWN>(c, a, dim3((unsigned)ceil_div(f->down.n_out, ROWS), (unsigned)n_tiles));
}
