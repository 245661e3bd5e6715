/*
 * backend/cuda/attn_wgmma: flash attention on the tensor cores of sm_90a; operands and results as the kernel
 * of attention.cu, which takes what this one does not.
 *
 * A block takes 192 queries of a KV head (all heads of its group for neighbouring rows), 64 a warpgroup; K
 * and V come block by block, two ahead, into shared memory, as two panels of 64 dimensions. Probabilities are
 * the first operand of the second product, in registers. The product with V of one block runs while the
 * scores of the next are asked for.
 */
#include "backend/cuda/attn_wgmma.cuh"

enum {
    GROUPS = 3,
    THREADS = 128 * GROUPS,
    QUERIES = 64 * GROUPS,
    STAGES = 4
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int TYPE>
DEV void load_block(const attn_args &a, int kv_head, long long start, uint8_t *to, long long end)
{
    const uint8_t *k = kv_tile(a.kv, start, kv_head, false), *v = kv_tile(a.kv, start, kv_head, true);

    for (int i = threadIdx.x; i < LG_KV_BLOCK * 32; i += THREADS) {
        int key = i / 32, c = i % 16;
        bool is_v = i % 32 >= 16, valid = start + key < end;
        uint8_t *dst =
            to + (is_v ? 2 * PANEL : 0) + panel_chunk(key, c);
        const uint8_t *src = is_v ? v : k;
        if (TYPE == LG_F16) {
            int n = valid ? 16 : 0;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                             (unsigned)__cvta_generic_to_shared(dst)),
                         "l"(src + (size_t)key * 256 + c * 16), "r"(n)
                         : "memory");
        } else {
            *(uint4 *)dst =
                valid ? load_kv8<TYPE>(src + (size_t)key * a.kv.row_bytes, c * 8) : make_uint4(0, 0, 0, 0);
        }
    }
}

// Queries m0 .. m0 + QUERIES - 1, scaled, as f16: [warpgroup][panel][64 rows].
DEV void load_queries(const attn_args &a, int kv_head, int m0, int rows, uint8_t *to)
{
    for (int i = threadIdx.x; i < QUERIES * 16; i += THREADS) {
        int m = i / 16, c = i % 16, row = (m0 + m) / a.group, head = kv_head * a.group + (m0 + m) % a.group;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f), y = x;
        if (row < rows) {
            const float *q = a.q + (size_t)row * (size_t)a.q_stride + (size_t)(head * HEAD + c * 8);
            x = *(const float4 *)q;
            y = *(const float4 *)(q + 4);
        }
        auto pair = [&](float u, float v) {
            return pack_f16(f16_range(u * a.scale), f16_range(v * a.scale));
        };
        *(uint4 *)(to + m / 64 * 2 * PANEL + panel_chunk(m % 64, c)) =
            make_uint4(pair(x.x, x.y), pair(x.z, x.w), pair(y.x, y.y), pair(y.z, y.w));
    }
}

// One row's half (0: g, 1: g + 8) of the sums.
template <int HALF>
DEV void store_row(const attn_args &a, int row, int col, int t, float inverse, const float (&acc)[64])
{
    const float *gate = a.gate ? a.gate + (size_t)row * (size_t)a.gate_stride : NULL;
    float head_gate = gate && !a.elem_gate ? softplus(gate[col / HEAD]) : 1.0f;
    float *out = a.out + (size_t)row * (size_t)a.out_stride + (size_t)col;
    unsigned *bf16 = (unsigned *)(a.acts.bf16 + (size_t)row * (size_t)(a.n_head * HEAD) + col);

#pragma unroll
    for (int j = 0; j < 16; j++) {
        int d = 8 * j + 2 * t;
        float x = acc[4 * j + 2 * HALF] * inverse, y = acc[4 * j + 2 * HALF + 1] * inverse;
        x *= gate && a.elem_gate ? softplus(gate[col + d]) : head_gate;
        y *= gate && a.elem_gate ? softplus(gate[col + d + 1]) : head_gate;
        out[d] = x;
        out[d + 1] = y;
        if (a.quantise) {
            __nv_bfloat162 b = __floats2bfloat162_rn(x, y);
            bf16[d / 2] = *(unsigned *)&b;
        }
    }
}

template <int HALF> DEV void store_node(float *node, int t, float max, float sum, const float (&acc)[64])
{
    if (t == 0)
        *(float2 *)node = make_float2(max, sum);
#pragma unroll
    for (int j = 0; j < 16; j++)
        *(float2 *)(node + SPLIT_AT + 8 * j + 2 * t) =
            make_float2(acc[4 * j + 2 * HALF], acc[4 * j + 2 * HALF + 1]);
}

#endif

template <int TYPE>
static __global__ void __launch_bounds__(THREADS, 1)
    attn_wg_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t smem[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, kv_head = blockIdx.y;

    // the step block and keys of earlier steps are older than the kernel before
    int rows = step_rows(step, a.rows), m0 = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES; // longest first
    if (m0 >= rows * a.group) {
        pdl_wait();
        return;
    }
    int last_row = min((m0 + QUERIES - 1) / a.group, rows - 1), m_a = m0 + warp * 16 + g, m_b = m_a + 8;
    int row_a = min(m_a / a.group, rows - 1), row_b = min(m_b / a.group, rows - 1);
    int col_a = (kv_head * a.group + m_a % a.group) * HEAD,
        col_b = (kv_head * a.group + m_b % a.group) * HEAD;
    bool has_a = m_a < rows * a.group, has_b = m_b < rows * a.group;
    long long pos = step->pos, end = pos + last_row + 1;
    long long block0 = first_visible(a.kv, pos + m0 / a.group) / LG_KV_BLOCK,
              blocks = (end - 1) / LG_KV_BLOCK + 1;
    cut_blocks(a, &block0, &blocks);
    int n_blocks = (int)(blocks - block0);
    // what the rows of this warpgroup can see, from the first block on, to leave out whole blocks and masks
    long long origin = block0 * LG_KV_BLOCK;
    int wg_first = min((m0 + warp / 4 * 64) / a.group, rows - 1),
        wg_last = min((m0 + warp / 4 * 64 + 63) / a.group, rows - 1);
    int wg_lo = (int)max(first_visible(a.kv, pos + wg_first) - origin, 0ll);
    int wg_full = (int)max(first_visible(a.kv, pos + wg_last) - origin, 0ll);
    int wg_from = (int)(pos + wg_first - origin), wg_to = (int)(pos + wg_last - origin);
    int p_a = (int)(pos + row_a - origin), p_b = (int)(pos + row_b - origin);
    int lo_a = (int)max(first_visible(a.kv, pos + row_a) - origin, 0ll);
    int lo_b = (int)max(first_visible(a.kv, pos + row_b) - origin, 0ll);
    unsigned base = (unsigned)__cvta_generic_to_shared(smem);
    unsigned long long q = wgmma_desc(base + (unsigned)(STAGES * STAGE_BYTES + warp / 4 * 2 * PANEL));
    float acc[64], s[32], max_a = -INFINITY, max_b = -INFINITY, sum_a = 0.0f, sum_b = 0.0f;

    auto load = [&](int block) {
        if (block < n_blocks)
            load_block<TYPE>(a, kv_head, origin + (long long)block * LG_KV_BLOCK,
                             smem + block % STAGES * STAGE_BYTES, end);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    int early = (int)max(min((pos - origin) / LG_KV_BLOCK, 2ll), 0ll); // of the first two blocks
    for (int i = 0; i < early; i++)
        load(i);
    pdl_wait();
    for (int i = early; i < 2; i++)
        load(i);
    load_queries(a, kv_head, m0, rows, smem + STAGES * STAGE_BYTES);
#pragma unroll
    for (int i = 0; i < 64; i++)
        acc[i] = 0.0f;
    for (int block = 0; block < n_blocks; block++) {
        int start = block * LG_KV_BLOCK;
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        proxy_fence();
        __syncthreads();
        load(block + 2); // over the block before the last, whose products are done
        if (start > wg_to || start + LG_KV_BLOCK <= wg_lo) {
            wgmma_wait<0>(); // the promise above holds
            continue;
        }
        unsigned k_at = base + (unsigned)(block % STAGES) * STAGE_BYTES, v_at = k_at + 2 * PANEL;
        unsigned long long k = wgmma_desc(k_at), v = wgmma_desc_columns(v_at, PANEL);
        unsigned p[4][4];
        float old_a, old_b;
        block_scores(s, q, k);
        wgmma_wait<0>(); // these, and the sums of the block before
        hold(s);
        hold(acc);
        if (start + LG_KV_BLOCK > wg_from + 1 || start < wg_full)
            hide_scores(s, start, t, lo_a, p_a, lo_b, p_b);
        softmax<0>(s, max_a, sum_a, old_a, p);
        softmax<1>(s, max_b, sum_b, old_b, p);
        scale_sums(acc, old_a, old_b);
        block_values(acc, p, v);
    }
    wgmma_wait<0>();
    hold(acc);
    sum_a = quad_sum(sum_a);
    sum_b = quad_sum(sum_b);
    if (a.splits > 0) {
        if (has_a)
            store_node<0>(split_at(a, row_a, col_a / HEAD, blockIdx.z), t, max_a, sum_a, acc);
        if (has_b)
            store_node<1>(split_at(a, row_b, col_b / HEAD, blockIdx.z), t, max_b, sum_b, acc);
        return;
    }
    if (has_a)
        store_row<0>(a, row_a, col_a, t, 1.0f / sum_a, acc);
    if (has_b)
        store_row<1>(a, row_b, col_b, t, 1.0f / sum_b, acc);
#endif
}

int lg_cu_attn_wgmma_queries(const lg_cu *c)
{
#ifdef LG_CUDA_SM90A
    return c->arch == 90 ? QUERIES : 0;
#else
    (void)c;
    return 0;
#endif
}

void lg_cu_attn_wgmma(lg_cu *c, const attn_args &a, int rows)
{
    auto kernel = a.kv.type == LG_F16 ? attn_wg_kernel<LG_F16> : attn_wg_kernel<LG_Q8_0>;
    size_t smem = STAGES * STAGE_BYTES + 2 * GROUPS * PANEL;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);

    if (e != cudaSuccess && c->error == cudaSuccess)
        c->error = e;
    launch(c, kernel,
           dim3((unsigned)ceil_div((int64_t)rows * a.group, QUERIES), (unsigned)a.kv.n_kv_head,
                a.splits > 0 ? (unsigned)a.splits : 1u),
           THREADS, smem, a, c->step);
}
