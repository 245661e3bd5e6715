/*
 * backend/cuda/gemm_int8: products of LG_CU_EXACT_ROWS + 1 to LG_CU_CODE_ROWS rows: a follow-up turn. Weights
 * are read once, as stored; int8 tensor cores multiply their codes by the activations'.
 *
 * A block takes 64 (or 32) weight rows and all of its tokens. Eight runs a stage come by cp.async, two stages
 * ahead: codes, scales, and the tokens' codes. A warp has 16 weight rows (the M of the instruction) and half
 * or a quarter of the runs; one instruction is a run's 32 products, exact, and its sum is scaled into f32.
 * Warps that share rows are added up at the end, in order.
 *
 * Where a product of all rows has few blocks, a cluster of them shares the inputs and adds up through shared
 * memory. Such a product asks for its first weights before the kernel before it is done.
 *
 * Gate and up: a warp's rows are 8 of gate and the same 8 of up, so a block ends with one run of 32 columns
 * of silu(gate) * up, quantised for down. 16-byte chunks are swizzled by the row: no bank is met twice.
 *
 * Surprise: Q6_K has a scale for 16 elements, so it takes two instructions of half the depth.
 */
#include "backend/cuda/int8.cuh"

enum {
    WARPS = 8,
    ROWS = 64,      // weight rows of a block, at most
    STAGE_RUNS = 8, // 256 inputs
    STAGES = 3,
    CODE_BYTES = 128, // of 8 runs of 4 bits in a row
    MOST_CLUSTER = 8
};
enum mode { PLAIN, GATE_UP, DOWN };

struct int8_args {
    lg_cu_part part[LG_CU_PARTS]; // GATE_UP: gate and up; DOWN: one
    int n_parts;
    const int8_t *q;
    const int4 *meta;
    const lg_cu_group *group; // NULL: one group of all rows
    const int *n_group;
    const int32_t *entry;
    int k;
    int8_t *mid_q; // GATE_UP
    int4 *mid_meta;
    int rows;
    int cluster; // blocks that share the inputs
};

struct place {
    int expert, first, n; // tokens, as gemm.cu's tile
    int row0;             // first weight row (of gate)
};

/* ---- shared memory of a stage ---- */

// Bytes of a weight row in a stage: codes, then a second plane, then scales.
template <int T> struct raw {
    enum { SECOND = T == LG_Q8_0 ? 128 : T == LG_Q6_K ? 64 : 0, ROW = CODE_BYTES + SECOND + 16 };
};

struct areas {
    unsigned codes, second, scales, q, meta, bytes; // offsets in a stage
};

template <int T> DEV areas areas_of(int rows, int tokens)
{
    areas s;
    s.codes = 0;
    s.second = (unsigned)rows * CODE_BYTES;
    s.scales = s.second + (unsigned)(rows * raw<T>::SECOND);
    s.q = s.scales + (unsigned)rows * 16;
    s.meta = s.q + (unsigned)tokens * 256;
    s.bytes = s.meta + (unsigned)tokens * STAGE_RUNS * 8;
    return s;
}

DEV void copy16(unsigned dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}

DEV void copy8(unsigned dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(dst), "l"(src) : "memory");
}

template <int N> DEV void wait_stages(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Row r of the block: which matrix, which row of it.
template <int MODE> DEV const lg_cu_mat &matrix_of(const int8_args &a, int part, int r, int row0, int *row)
{
    const lg_cu_mat &m = a.part[MODE == GATE_UP ? r >> 3 & 1 : part].w;
    *row = min(MODE == GATE_UP ? row0 + (r >> 4) * 8 + (r & 7) : row0 + r, m.n_out - 1);
    return m;
}

// What a thread copies into every stage: where from (of stage 0), where to.
template <int T, int MODE, int NT> struct copies {
    enum { GATHERS = MODE == GATE_UP && NT <= 2 }; // rows of tokens lie anywhere
    const uint8_t *codes[2], *second, *scales;     // NULL: nothing
    unsigned to_codes, to_second, to_scales, to_q, to_meta;
    size_t half; // Q8_0: from the first codes of a run to the others
    const int8_t *q[GATHERS ? NT : 1];
    const int4 *meta[GATHERS ? NT : 1];
    size_t row; // bytes of a row of tokens
    int n;      // tokens of this thread

    __device__ __forceinline__ void weights(const int8_args &a, const areas &s, int part, const place &at,
                                            int rows)
    {
        int tid = threadIdx.x, c = tid % 8, row;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int r = tid / 8 + 32 * i;
            const lg_cu_mat &m = matrix_of<MODE>(a, part, r, at.row0, &row);
            half = (size_t)m.n_in / 2;
            codes[i] = r < rows
                           ? matrix_at(m, at.expert) + (size_t)row * (T == LG_Q8_0 ? 2 * half : half) + c * 16
                           : NULL;
        }
        to_codes = s.codes + (unsigned)(tid / 8 * CODE_BYTES + ((c ^ (tid / 8 & 7)) << 4));
        second = scales = NULL;
        if (T == LG_Q6_K && tid / 4 < rows) {
            const lg_cu_mat &m = matrix_of<MODE>(a, part, tid / 4, at.row0, &row);
            second = matrix_at(m, at.expert) + m.at[0] + (size_t)row * (half / 2) + tid % 4 * 16;
            to_second = s.second + (unsigned)(tid / 4 * 64 + ((tid % 4 ^ (tid / 8 & 3)) << 4));
        }
        if (tid < rows) {
            const lg_cu_mat &m = matrix_of<MODE>(a, part, tid, at.row0, &row);
            scales = matrix_at(m, at.expert) + m.at[T == LG_Q6_K ? 1 : 0] + (size_t)row * (half / 8);
            to_scales = s.scales + (unsigned)tid * 16;
        }
    }
    // A warp copies a token: 16 chunks of codes, and of 8 runs the scale and the scaled sum.
    __device__ __forceinline__ void tokens(const int8_args &a, const areas &s, const place &at, int n_in)
    {
        int c = threadIdx.x % 32, tok = threadIdx.x / 32;
        row = (size_t)n_in;
        n = c < 24 ? (at.n - tok + WARPS - 1) / WARPS : 0;
#pragma unroll
        for (int i = 0; i < (GATHERS ? NT : 1); i++) {
            size_t line = (size_t)at.first + (size_t)min(tok + WARPS * i, at.n - 1);
            if (a.group && MODE == GATE_UP)
                line = (size_t)(a.entry[line] / a.k);
            q[i] = a.q + line * row + c * 16;
            meta[i] = a.meta + line * (row / 32) + (c - 16);
        }
        to_q = s.q + (unsigned)(tok * 256 + ((c ^ (tok & 7)) << 4));
        to_meta = s.meta + (unsigned)(((c - 16) * 8 * NT + tok) * 8);
    }
    __device__ __forceinline__ void copy_weights(const areas &s, int stage, unsigned smem) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (codes[i]) {
                unsigned to = smem + to_codes + (unsigned)(i * 32 * CODE_BYTES);
                copy16(to, codes[i] + stage * 128);
                if (T == LG_Q8_0)
                    copy16(to + s.second, codes[i] + half + stage * 128);
            }
        if (T == LG_Q6_K && second)
            copy16(smem + to_second, second + stage * 64);
        if (scales)
            copy16(smem + to_scales, scales + stage * 16);
    }
    __device__ __forceinline__ void copy_tokens(int stage, unsigned smem) const
    {
#pragma unroll
        for (int i = 0; i < NT; i++)
            if (i < n) {
                size_t off = GATHERS ? 0 : (size_t)i * WARPS * row;
                if (threadIdx.x % 32 < 16)
                    copy16(smem + to_q + (unsigned)(i * WARPS * 256), q[GATHERS ? i : 0] + off + stage * 256);
                else
                    copy8(smem + to_meta + (unsigned)(i * WARPS * 8),
                          meta[GATHERS ? i : 0] + off / 32 + stage * STAGE_RUNS);
            }
    }
};

/* ---- products ---- */

DEV void mma_s8_half(int (&d)[4], unsigned a0, unsigned a1, unsigned b0)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b0), "r"((int)SUM_ZERO));
}

// The lane's part of a warp's RUNS runs of a stage, from `first` on, spelled out: [run - first][row] of
// (scale, minimum); Q6_K: the scales of both halves. Two lanes share a row.
template <int T, int RUNS>
DEV void decode_scales(const uint8_t *scales, int first, int lane, float d6, float2 *out)
{
    enum { MINE = RUNS / 2 };
    int row = lane >> 1, at = MINE * (lane & 1), run = first + at;

    if (T == LG_Q4_K) {
        uint4 w = *(const uint4 *)(scales + row * 16);
        float d = half_bits(w.x & 0xFFFF), less = -half_bits(w.x >> 16);
        int bit = 12 * run; // the fields of one or two runs end within 32 bits
        unsigned lo = bit < 32 ? w.y : bit < 64 ? w.z : w.w, hi = bit < 32 ? w.z : w.w;
        unsigned field = __funnelshift_r(lo, hi, (unsigned)bit & 31u);
#pragma unroll
        for (int i = 0; i < MINE; i++, field >>= 12)
            out[(at + i) * 16 + row] = make_float2(d * (float)(field & 63), less * (float)(field >> 6 & 63));
        return;
    }
    unsigned w = MINE == 2 ? *(const unsigned *)(scales + row * 16 + 2 * run)
                           : *(const unsigned short *)(scales + row * 16 + 2 * run);
#pragma unroll
    for (int i = 0; i < MINE; i++, w >>= 16)
        out[(at + i) * 16 + row] =
            T == LG_Q8_0 ? make_float2(half_bits(w & 0xFFFF), 0.0f)
                         : make_float2(d6 * (float)(int8_t)(w & 0xFF), d6 * (float)(int8_t)(w >> 8 & 0xFF));
}

// A warp's places in a stage; runs differ by a few bits that are turned.
struct places {
    unsigned codes, q, meta, high;
};

DEV unsigned word_at(const uint8_t *smem, unsigned at)
{
    return *(const unsigned *)(smem + at);
}

template <int T>
DEV void load_codes(const uint8_t *smem, const areas &s, const places &p, int first, int i, int t,
                    unsigned (&a)[4])
{
    enum { NEXT8 = 8 * CODE_BYTES };
    unsigned at = p.codes ^ (unsigned)(i << 4), w0 = word_at(smem, at), w1 = word_at(smem, at + NEXT8);

    if (T == LG_Q8_0) {
        a[0] = w0;
        a[1] = w1;
        a[2] = word_at(smem, at + s.second);
        a[3] = word_at(smem, at + s.second + NEXT8);
        return;
    }
    a[0] = w0 & 0x0F0F0F0F, a[2] = w0 >> 4 & 0x0F0F0F0F;
    a[1] = w1 & 0x0F0F0F0F, a[3] = w1 >> 4 & 0x0F0F0F0F;
    if (T == LG_Q6_K) {
        int run = first + i;
        unsigned high = (p.high ^ (unsigned)((run >> 1) << 4)) + (unsigned)(8 * (run & 1));
        uint2 h0 = *(const uint2 *)(smem + high), h1 = *(const uint2 *)(smem + high + 8 * 64);
        a[0] = less32(a[0] | (h0.x >> 2 * t & 0x03030303) << 4);
        a[2] = less32(a[2] | (h0.y >> 2 * t & 0x03030303) << 4);
        a[1] = less32(a[1] | (h1.x >> 2 * t & 0x03030303) << 4);
        a[3] = less32(a[3] | (h1.y >> 2 * t & 0x03030303) << 4);
    }
}

// Run first + i of 16 weight rows times 8 * NT tokens.
template <int T, int NT>
DEV void run_products(float (&acc)[NT][4], const uint8_t *smem, const areas &s, const places &p, int first,
                      int i, int t, float2 s0, float2 s1)
{
    unsigned a[4], q0 = p.q ^ (unsigned)((2 * i) << 4), q1 = p.q ^ (unsigned)((2 * i + 1) << 4);

    load_codes<T>(smem, s, p, first, i, t, a);
#pragma unroll
    for (int j = 0; j < NT; j++) {
        unsigned b0 = word_at(smem, q0 + (unsigned)(j * 8 * 256)),
                 b1 = word_at(smem, q1 + (unsigned)(j * 8 * 256));
        // scale and scale times sum of the tokens 2t and 2t + 1
        float4 m = *(const float4 *)(smem + p.meta + (i * NT + j) * 64);
        int d[4];
        if (T == LG_Q6_K) {
            int e[4];
            mma_s8_half(d, a[0], a[1], b0);
            mma_s8_half(e, a[2], a[3], b1);
            acc[j][0] = fmaf(m.x, fmaf(s0.y, sum_of(e[0]), s0.x * sum_of(d[0])), acc[j][0]);
            acc[j][1] = fmaf(m.z, fmaf(s0.y, sum_of(e[1]), s0.x * sum_of(d[1])), acc[j][1]);
            acc[j][2] = fmaf(m.x, fmaf(s1.y, sum_of(e[2]), s1.x * sum_of(d[2])), acc[j][2]);
            acc[j][3] = fmaf(m.z, fmaf(s1.y, sum_of(e[3]), s1.x * sum_of(d[3])), acc[j][3]);
            continue;
        }
        mma_s8(d, a, b0, b1);
        acc[j][0] = fmaf(s0.x * m.x, sum_of(d[0]), acc[j][0]);
        acc[j][1] = fmaf(s0.x * m.z, sum_of(d[1]), acc[j][1]);
        acc[j][2] = fmaf(s1.x * m.x, sum_of(d[2]), acc[j][2]);
        acc[j][3] = fmaf(s1.x * m.z, sum_of(d[3]), acc[j][3]);
        if (T == LG_Q4_K) {
            acc[j][0] = fmaf(s0.y, m.y, acc[j][0]);
            acc[j][1] = fmaf(s0.y, m.w, acc[j][1]);
            acc[j][2] = fmaf(s1.y, m.y, acc[j][2]);
            acc[j][3] = fmaf(s1.y, m.w, acc[j][3]);
        }
    }
}

/* ---- results ---- */

// Row r, token tok: what the warps that share the row have, in order. part: [part][row][tokens + 1].
DEV float total_at(const float *part, int parts, int rows, int stride, int r, int tok)
{
    float v = part[r * stride + tok];
    for (int i = 1; i < parts; i++)
        v += part[(i * rows + r) * stride + tok];
    return v;
}

// This block is `rank` of `n` that share the results; get(row, token) has a sum.
template <int MODE, typename Get>
DEV void put_results(const int8_args &a, int p, const place &at, int rows, int rank, int n, Get get)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const lg_cu_mat &m = a.part[p].w;
    float scale = matrix_scale(m, at.expert);

    if (MODE == GATE_UP) { // a warp a token: 32 columns, one run
        float up_scale = matrix_scale(a.part[1].w, at.expert);
        int r = lane / 8 * 16 + lane % 8;
        for (int tok = warp * n + rank; tok < at.n; tok += WARPS * n) {
            float v = silu(get(r, tok) * scale) * (get(r + 8, tok) * up_scale);
            size_t line = (size_t)(at.first + tok);
            store_run(a.mid_q + line * (size_t)m.n_out, a.mid_meta + line * (size_t)(m.n_out / 32),
                      at.row0 / 32, lane, v);
        }
    } else {
        for (int i = (int)threadIdx.x + 32 * WARPS * rank; i < at.n * rows; i += 32 * WARPS * n) {
            int tok = i / rows, r = i % rows;
            size_t line = (size_t)(a.group && MODE == DOWN ? a.entry[at.first + tok] : at.first + tok);
            if (at.row0 + r < m.n_out)
                a.part[p].y[line * (size_t)a.part[p].y_stride + (size_t)(at.row0 + r)] = get(r, tok) * scale;
        }
    }
}

/* ---- a cluster ---- */

DEV unsigned cluster_rank(void)
{
    unsigned r = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
#endif
    return r;
}

/* ---- the kernel ---- */

// ready() is called when the first weights are under way: it waits for the tokens and says how many they are.
template <int T, int MODE, int NT, int ROW_WARPS, bool CLUSTERS, typename Ready>
DEV void block_products(const int8_args &a, int p, place at, uint8_t *smem, float2 *scales, Ready ready)
{
    enum { ROWS_HERE = 16 * ROW_WARPS, RUNS = STAGE_RUNS * ROW_WARPS / WARPS };
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = ROWS_HERE, g = lane / 4, t = lane % 4;
    int r = warp % ROW_WARPS * 16, k_part = warp / ROW_WARPS, first = k_part * RUNS;
    const lg_cu_mat &m = a.part[p].w;
    int n_in = m.n_in, all = n_in / (32 * STAGE_RUNS);
    int rank = CLUSTERS ? (int)cluster_rank() : 0, blocks = CLUSTERS ? a.cluster : 1;
    int stage0 = all * rank / blocks, stages = all * (rank + 1) / blocks - stage0;
    areas s = areas_of<T>(rows, 8 * NT);
    unsigned base = (unsigned)__cvta_generic_to_shared(smem);
    float acc[NT][4] = {};
    float2 *mine = scales + warp * (STAGE_RUNS / 2) * 16;
    copies<T, MODE, NT> in;
    // Q6_K: the scale of the 256 elements, of the row whose scales this lane decodes
    int d_row;
    const lg_cu_mat &d_mat = matrix_of<MODE>(a, p, r + (lane >> 1), at.row0, &d_row);
    const unsigned short *d_at = (const unsigned short *)(matrix_at(d_mat, at.expert) + d_mat.at[2]) +
                                 (size_t)d_row * (size_t)(n_in / 256) + (size_t)stage0;
    unsigned d_next = T == LG_Q6_K ? __ldg(d_at) : 0;

    auto load = [&](int stage, bool weights) {
        unsigned to = base + (unsigned)(stage % STAGES) * s.bytes;
        if (stage < stages && weights)
            in.copy_weights(s, stage0 + stage, to);
        if (stage < stages)
            in.copy_tokens(stage0 + stage, to);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    // rows g and g + 8 have the same turns
    const places p0 = {
        s.codes + (unsigned)((r + g) * CODE_BYTES + ((first ^ g) << 4) + 4 * t),
        s.q + (unsigned)(g * 256 + (((2 * first) ^ g) << 4) + 4 * t),
        s.meta + (unsigned)((first * 8 * NT + 2 * t) * 8),
        s.second + (unsigned)((r + g) * 64 + ((g >> 1 & 3) << 4)),
    };
    in.weights(a, s, p, at, rows);
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        if (i < stages)
            in.copy_weights(s, stage0 + i, base + (unsigned)i * s.bytes);
    at.n = ready();
    if (at.n > 0)
        in.tokens(a, s, at, n_in);
    else
        stages = 0;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        load(i, false);
    for (int stage = 0; stage < stages; stage++) {
        float d6 = half_bits(d_next);
        if (T == LG_Q6_K && stage + 1 < stages)
            d_next = __ldg(d_at + stage + 1);
        wait_stages<STAGES - 2>();
        __syncthreads(); // this stage is here; the one before has been used by all
        load(stage + STAGES - 1, true);
        unsigned now = (unsigned)(stage % STAGES) * s.bytes;
        places p_now = {now + p0.codes, now + p0.q, now + p0.meta, now + p0.high};
        decode_scales<T, RUNS>(smem + now + s.scales + r * 16, first, lane, d6, mine);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < RUNS; i++)
            run_products<T, NT>(acc, smem, s, p_now, first, i, t, mine[i * 16 + g], mine[i * 16 + g + 8]);
        __syncwarp();
    }
    wait_stages<0>();
    __syncthreads();
    float *part = (float *)smem;
    int stride = 8 * NT + 1;
    float *to = part + (k_part * rows + r + g) * stride + 2 * t;
#pragma unroll
    for (int j = 0; j < NT; j++) {
        to[8 * j] = acc[j][0];
        to[8 * j + 1] = acc[j][1];
        to[8 * stride + 8 * j] = acc[j][2];
        to[8 * stride + 8 * j + 1] = acc[j][3];
    }
    __syncthreads();
    int parts = WARPS * 16 / rows;
    if (blocks == 1) {
        put_results<MODE>(a, p, at, rows, 0, 1,
                          [&](int row, int tok) { return total_at(part, parts, rows, stride, row, tok); });
        return;
    }
    for (int i = threadIdx.x; i < rows * 8 * NT; i += 32 * WARPS) { // each in place, by one thread
        int row = i / (8 * NT), tok = i % (8 * NT);
        part[row * stride + tok] = total_at(part, parts, rows, stride, row, tok);
    }
    cluster_meet();
    put_results<MODE>(a, p, at, rows, rank, blocks, [&](int row, int tok) {
        float v = 0.0f;
        for (int i = 0; i < blocks; i++)
            v += float_of(base + (unsigned)(row * stride + tok) * 4, (unsigned)i);
        return v;
    });
    cluster_meet(); // nobody ends while others read
}

static constexpr int blocks_of(int nt)
{
    return nt == 0 ? 4 : 2;
}

// A block (weight rows, group), or a cluster of them for all rows. NT: eights of tokens; 0: groups.
template <int T, int MODE, int NT, int ROW_WARPS>
static __global__ void __launch_bounds__(32 * WARPS, blocks_of(NT))
    int8_kernel(__grid_constant__ const int8_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ __align__(16) float2 scales[WARPS * (STAGE_RUNS / 2) * 16];
    int block = NT == 0 ? (int)blockIdx.x : (int)blockIdx.x / a.cluster, p = 0;
    place at = {};

    if (MODE == PLAIN)
        while (p + 1 < a.n_parts && block >= a.part[p + 1].first_group)
            p++;
    at.row0 = MODE == GATE_UP ? block * 32 : (block - a.part[p].first_group) * 16 * ROW_WARPS;
    if constexpr (NT == 0) {
        pdl_wait();
        if ((int)blockIdx.y >= *a.n_group)
            return;
        lg_cu_group g = a.group[blockIdx.y];
        at.expert = g.expert;
        at.first = g.first;
        auto ready = [&] { return g.n; };
        if (g.n <= 8)
            block_products<T, MODE, 1, ROW_WARPS, false>(a, p, at, smem, scales, ready);
        else
            block_products<T, MODE, 2, ROW_WARPS, false>(a, p, at, smem, scales, ready);
    } else {
        block_products<T, MODE, NT, ROW_WARPS, true>(a, p, at, smem, scales, [&] {
            pdl_wait();
            return step_rows(step, a.rows);
        });
    }
}

/* ---- launches ---- */

enum { GROUP_TOKENS = 16 };

template <int T> static size_t smem_bytes(int rows, int tokens)
{
    size_t stage = (size_t)rows * raw<T>::ROW + (size_t)tokens * (256 + STAGE_RUNS * 8);
    size_t part = (size_t)WARPS * 16 * (size_t)(tokens + 1) * sizeof(float);

    return STAGES * stage > part ? STAGES * stage : part;
}

// With clusters where there are any; the grid's x is a multiple of them.
template <int T, int MODE, int NT, int ROW_WARPS>
static void run(lg_cu *c, int8_args &a, dim3 grid, int tokens)
{
    size_t smem = smem_bytes<T>(16 * ROW_WARPS, tokens);
    auto kernel = int8_kernel<T, MODE, NT, ROW_WARPS>;
    int room = c->sms * blocks_of(NT) / (int)grid.x, stages = a.part[0].w.n_in / (32 * STAGE_RUNS);

    a.cluster = 1;
    while (NT > 0 && c->arch >= 90 && a.cluster < MOST_CLUSTER && 2 * a.cluster <= room &&
           4 * a.cluster <= stages)
        a.cluster *= 2;
    grid.x *= (unsigned)a.cluster;
    share_sm(c, kernel, smem);
    launch_clusters(c, kernel, grid, 32 * WARPS, smem, a.cluster, a, c->step);
}

template <int MODE, int NT, int ROW_WARPS> static void run_type(lg_cu *c, int8_args &a, dim3 grid, int tokens)
{
    switch (a.part[0].w.type) {
    case LG_Q8_0: run<LG_Q8_0, MODE, NT, ROW_WARPS>(c, a, grid, tokens); break;
    case LG_Q4_K: run<LG_Q4_K, MODE, NT, ROW_WARPS>(c, a, grid, tokens); break;
    default: run<LG_Q6_K, MODE, NT, ROW_WARPS>(c, a, grid, tokens); break;
    }
}

// All rows.
template <int MODE, int ROW_WARPS> static void run_all(lg_cu *c, int8_args &a, dim3 grid, int tokens)
{
    if (tokens <= 32)
        run_type<MODE, 4, ROW_WARPS>(c, a, grid, tokens);
    else
        run_type<MODE, 8, ROW_WARPS>(c, a, grid, tokens);
}

// Parts that share their input: blocks of 32 rows, so that there are enough of them.
static void run_plain(lg_cu *c, int8_args &a, int tokens)
{
    int blocks = 0;

    for (int p = 0; p < a.n_parts; p++) {
        a.part[p].first_group = blocks;
        blocks += ceil_div(a.part[p].w.n_out, 32);
    }
    run_all<PLAIN, 2>(c, a, dim3((unsigned)blocks), tokens);
}

static bool takes(const lg_cu_mat *m)
{
    return (m->type == LG_Q8_0 || m->type == LG_Q4_K || m->type == LG_Q6_K) &&
           m->n_in % (32 * STAGE_RUNS) == 0;
}

static int tokens_of(int rows)
{
    return rows <= 32 ? 32 : 64;
}

int lg_cu_gemm_int8(lg_cu *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts)
{
    int8_args a = {};

    for (; a.n_parts < n_parts; a.n_parts++) {
        const lg_cu_part &p = parts[a.n_parts];
        if (!takes(&p.w) || p.w.type != parts[0].w.type)
            break;
        a.part[a.n_parts] = p;
    }
    if (a.n_parts == 0)
        return 0;
    a.q = c->acts.q;
    a.meta = c->acts.meta;
    a.rows = x->rows;
    run_plain(c, a, tokens_of(bucket_rows(c, x->rows)));
    return a.n_parts;
}

bool lg_cu_int8_takes_ffn(const lg_cu_ffn *f)
{
    return takes(&f->gate) && takes(&f->down) && f->up.type == f->gate.type && f->gate.n_out % 32 == 0;
}

int lg_cu_int8_tile_rows(void)
{
    return GROUP_TOKENS;
}

static int8_args up_args(const lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f)
{
    int8_args a = {};

    a.part[0].w = f->gate;
    a.part[1].w = f->up;
    a.n_parts = 1;
    a.q = c->acts.q;
    a.meta = c->acts.meta;
    a.rows = m->h.rows;
    a.mid_q = c->mid.q;
    a.mid_meta = c->mid.meta;
    return a;
}

static int8_args down_args(const lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f)
{
    int8_args a = {};

    a.part[0].w = f->down;
    a.part[0].y = c->expert_out;
    a.part[0].y_stride = m->out.cols;
    a.n_parts = 1;
    a.q = c->mid.q;
    a.meta = c->mid.meta;
    a.rows = m->h.rows;
    return a;
}

void lg_cu_int8_dense_up(lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f)
{
    int8_args a = up_args(c, m, f);

    if (lg_cu_stream_up(c, m, f))
        return;
    run_all<GATE_UP, 4>(c, a, dim3((unsigned)ceil_div(f->gate.n_out, 32)),
                        tokens_of(bucket_rows(c, m->h.rows)));
}

void lg_cu_int8_dense_down(lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f)
{
    int rows = bucket_rows(c, m->h.rows);
    int8_args a = down_args(c, m, f);

    if (m->routed) {
        a.part[0].y += (size_t)rows * (size_t)m->k * (size_t)m->out.cols;
    } else {
        a.part[0].y = m->out.p;
        a.part[0].y_stride = m->out.stride;
    }
    if (!lg_cu_stream_down(c, m, a.part))
        run_plain(c, a, tokens_of(rows));
}

void lg_cu_gemm_int8_ffn(lg_cu *c, const lg_cu_moe *m, const lg_cu_ffn *f, int n_tiles)
{
    int8_args up = up_args(c, m, f), down = down_args(c, m, f);

    take_groups(&up, c, m->k);
    take_groups(&down, c, m->k);
    run_type<GATE_UP, 0, 4>(c, up, dim3((unsigned)ceil_div(f->gate.n_out, 32), (unsigned)n_tiles),
                            GROUP_TOKENS);
    run_type<DOWN, 0, 4>(c, down, dim3((unsigned)ceil_div(f->down.n_out, ROWS), (unsigned)n_tiles),
                         GROUP_TOKENS);
}
