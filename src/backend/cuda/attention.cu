/*
 * backend/cuda/attention: attention over block tables. Few rows: attn_few.cu; follow-ups on sm_90a:
 * attn_follow.cu. More rows take a flash kernel over K and V tiles in shared memory, which visits only blocks
 * that some row of its tile can see; on sm_90a that of attn_wgmma.cu. When the queries are too few to fill
 * the card the keys are cut into splits, whose results a second launch joins.
 *
 * Surprise: f32 caches and head sizes other than 128 take a plain kernel that gives each query head a block.
 */
#include "backend/cuda/attention.cuh"

enum { FLASH_WARPS = 8, FLASH_ROWS = 16 * FLASH_WARPS };

// Tiles of 64 rows of 256 bytes; 16-byte chunks are swizzled so that neither pattern of reading meets a bank
// twice.
DEV int k_chunk(int key, int chunk)
{
    return key * 256 + ((chunk ^ (key & 1) << 2) << 4);
}
DEV int v_chunk(int key, int chunk)
{
    return key * 256 + ((chunk ^ (key & 6)) << 4);
}

template <int TYPE>
DEV void load_tile(const attn_args &a, int kv_head, long long start, uint8_t *sk, uint8_t *sv, long long end)
{
    const uint8_t *k = kv_tile(a.kv, start, kv_head, false), *v = kv_tile(a.kv, start, kv_head, true);

    for (int i = threadIdx.x; i < LG_KV_BLOCK * 16; i += 32 * FLASH_WARPS) {
        int key = i / 16, chunk = i % 16;
        bool valid = start + key < end;
        if (TYPE == LG_F16) {
            int n = valid ? 16 : 0;
            unsigned to_k = (unsigned)__cvta_generic_to_shared(sk + k_chunk(key, chunk));
            unsigned to_v = (unsigned)__cvta_generic_to_shared(sv + v_chunk(key, chunk));
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_k),
                         "l"(k + (size_t)key * 256 + chunk * 16), "r"(n)
                         : "memory");
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_v),
                         "l"(v + (size_t)key * 256 + chunk * 16), "r"(n)
                         : "memory");
        } else {
            uint4 zero = make_uint4(0, 0, 0, 0);
            *(uint4 *)(sk + k_chunk(key, chunk)) =
                valid ? load_kv8<TYPE>(k + (size_t)key * a.kv.row_bytes, chunk * 8) : zero;
            *(uint4 *)(sv + v_chunk(key, chunk)) =
                valid ? load_kv8<TYPE>(v + (size_t)key * a.kv.row_bytes, chunk * 8) : zero;
        }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// A finished query, of rows g (HALF 0) or g + 8 of the accumulators: the gate, f32, and bf16 for the next
// product.
template <int HALF>
DEV void flash_store(const attn_args &a, int row, int col, int t, float inverse, const float (&acc)[16][4])
{
    const float *gate = a.gate ? a.gate + (size_t)row * (size_t)a.gate_stride : NULL;
    float head_gate = gate && !a.elem_gate ? softplus(gate[col / HEAD]) : 1.0f;
    float *out = a.out + (size_t)row * (size_t)a.out_stride + (size_t)col;
    __nv_bfloat16 *bf16 = (__nv_bfloat16 *)a.acts.bf16 + (size_t)row * (size_t)(a.n_head * HEAD) + col;

#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int d = 64 * (j / 8) + 8 * (2 * t + e) + j % 8;
            float v = acc[j][2 * HALF + e] * inverse;
            v *= gate && a.elem_gate ? softplus(gate[col + d]) : head_gate;
            out[d] = v;
            if (a.quantise)
                bf16[d] = __float2bfloat16_rn(v);
        }
}

template <int HALF> DEV void split_store(float *node, int t, float max, float sum, const float (&acc)[16][4])
{
    if (t == 0)
        *(float2 *)node = make_float2(max, sum);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int k = 0; k < 8; k += 4)
                *(float4 *)(node + SPLIT_AT + 64 * i + 8 * (2 * t + e) + k) =
                    make_float4(acc[8 * i + k][2 * HALF + e], acc[8 * i + k + 1][2 * HALF + e],
                                acc[8 * i + k + 2][2 * HALF + e], acc[8 * i + k + 3][2 * HALF + e]);
}

// A block a (query head, row), a thread a dimension: the nodes of a query in order, the gate, and the result,
// also as the next product wants it.
enum { JOINED = 8 }; // nodes under way at a time
static __global__ void __launch_bounds__(HEAD)
    attn_split_join_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    int head = blockIdx.x, row = blockIdx.y, i = threadIdx.x, col = head * HEAD + i;
    float max = -INFINITY, sum = 0.0f, acc = 0.0f, gate = 0.0f;

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    const float *node = split_at(a, row, head, 0);
    if (a.gate)
        gate = a.gate[(size_t)row * (size_t)a.gate_stride + (size_t)(a.elem_gate ? col : head)];
    for (int s = 0; s < a.splits; s += JOINED) {
        float top[JOINED];
#pragma unroll
        for (int k = 0; k < JOINED; k++)
            top[k] = s + k < a.splits ? node[(s + k) * SPLIT_FLOATS] : -INFINITY;
#pragma unroll
        for (int k = 0; k < JOINED; k++)
            max = fmaxf(max, top[k]);
    }
    for (int s = 0; s < a.splits; s += JOINED) {
        float top[JOINED], sums[JOINED], v[JOINED];
#pragma unroll
        for (int k = 0; k < JOINED; k++) {
            const float *p = node + min(s + k, a.splits - 1) * SPLIT_FLOATS;
            top[k] = s + k < a.splits ? p[0] : -INFINITY;
            sums[k] = p[1];
            v[k] = p[SPLIT_AT + i];
        }
#pragma unroll
        for (int k = 0; k < JOINED; k++) {
            float w = __expf(top[k] - max); // 0 for a split that the row does not see
            sum = fmaf(w, sums[k], sum);
            acc = fmaf(w, v[k], acc);
        }
    }
    float v = acc / sum;
    if (a.gate)
        v *= softplus(gate);
    a.out[(size_t)row * (size_t)a.out_stride + (size_t)col] = v;
    size_t cols = (size_t)a.n_head * HEAD;
    if (a.quantise && !a.codes)
        ((__nv_bfloat16 *)a.acts.bf16)[(size_t)row * cols + (size_t)col] = __float2bfloat16_rn(v);
    else if (a.quantise)
        store_run(a.acts.q + (size_t)row * cols, a.acts.meta + (size_t)row * (cols / 32), col / 32, i % 32,
                  v);
}

// A block a (tile of 128 queries, KV head, split); query m of a KV head is head m % group of row m / group.
template <int TYPE>
static __global__ void __launch_bounds__(32 * FLASH_WARPS, 1)
    attn_flash_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(16) uint8_t smem[]; // K, V; two stages of each
    enum { TILE = LG_KV_BLOCK * 256 };
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, kv_head = blockIdx.y;

    pdl_wait();
    int rows = step_rows(step, a.rows), m0 = (int)(gridDim.x - 1 - blockIdx.x) * FLASH_ROWS; // longest first
    if (m0 >= rows * a.group)
        return;
    int last_row = min((m0 + FLASH_ROWS - 1) / a.group, rows - 1), m_a = m0 + warp * 16 + g, m_b = m_a + 8;
    int row_a = min(m_a / a.group, rows - 1), row_b = min(m_b / a.group, rows - 1);
    long long pos = step->pos, p_a = pos + row_a, p_b = pos + row_b;
    long long lo_a = first_visible(a.kv, p_a), lo_b = first_visible(a.kv, p_b), end = pos + last_row + 1;
    int col_a = (kv_head * a.group + m_a % a.group) * HEAD,
        col_b = (kv_head * a.group + m_b % a.group) * HEAD;
    bool has_a = m_a < rows * a.group, has_b = m_b < rows * a.group;
    long long tile0 = first_visible(a.kv, pos + m0 / a.group) / LG_KV_BLOCK,
              tiles = (end - 1) / LG_KV_BLOCK + 1;
    cut_blocks(a, &tile0, &tiles);
    // what the rows of this warp can see, to leave out whole tiles and masks
    int w_first = min((m0 + warp * 16) / a.group, rows - 1),
        w_last = min((m0 + warp * 16 + 15) / a.group, rows - 1);
    long long w_lo = first_visible(a.kv, pos + w_first), w_full = first_visible(a.kv, pos + w_last);
    unsigned qf[8][4];
    float acc[16][4], max_a = -INFINITY, max_b = -INFINITY, sum_a = 0.0f, sum_b = 0.0f;

    load_q(has_a ? a.q + (size_t)row_a * (size_t)a.q_stride + (size_t)col_a : NULL,
           has_b ? a.q + (size_t)row_b * (size_t)a.q_stride + (size_t)col_b : NULL, lane, a.scale, qf);
#pragma unroll
    for (int j = 0; j < 16; j++)
        acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.0f;
    if (tile0 < tiles)
        load_tile<TYPE>(a, kv_head, tile0 * LG_KV_BLOCK, smem, smem + 2 * TILE, end);
    for (long long tile = tile0; tile < tiles; tile++) {
        int stage = (int)(tile - tile0) & 1;
        uint8_t *sk = smem + stage * TILE, *sv = smem + 2 * TILE + stage * TILE;
        long long start = tile * LG_KV_BLOCK;
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        if (tile + 1 < tiles)
            load_tile<TYPE>(a, kv_head, start + LG_KV_BLOCK, smem + (stage ^ 1) * TILE,
                            smem + 2 * TILE + (stage ^ 1) * TILE, end);
        if (start > pos + w_last || start + LG_KV_BLOCK <= w_lo)
            continue;
        float s[8][4];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            uint4 kf[4];
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
            for (int c = 0; c < 4; c++)
                kf[c] = *(const uint4 *)(sk + k_chunk(8 * n + g, 4 * c + t));
            qk(s[n], qf, kf);
        }
        if (start + LG_KV_BLOCK > pos + w_first + 1 || start < w_full)
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    long long key = start + 8 * n + 2 * t + e;
                    s[n][e] = key >= lo_a && key <= p_a ? s[n][e] : -INFINITY;
                    s[n][2 + e] = key >= lo_b && key <= p_b ? s[n][2 + e] : -INFINITY;
                }
        float top_a = max_a, top_b = max_b;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            top_a = fmaxf(top_a, fmaxf(s[n][0], s[n][1]));
            top_b = fmaxf(top_b, fmaxf(s[n][2], s[n][3]));
        }
        top_a = quad_max(top_a);
        top_b = quad_max(top_b);
        float base_a = top_a == -INFINITY ? 0.0f : top_a, base_b = top_b == -INFINITY ? 0.0f : top_b;
        float old_a = __expf(max_a - base_a), old_b = __expf(max_b - base_b);
        max_a = top_a;
        max_b = top_b;
        sum_a *= old_a;
        sum_b *= old_b;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            acc[j][0] *= old_a, acc[j][1] *= old_a;
            acc[j][2] *= old_b, acc[j][3] *= old_b;
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            unsigned pf[4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float x0 = __expf(s[2 * n + h][0] - base_a), x1 = __expf(s[2 * n + h][1] - base_a);
                float y0 = __expf(s[2 * n + h][2] - base_b), y1 = __expf(s[2 * n + h][3] - base_b);
                sum_a += x0 + x1;
                sum_b += y0 + y1;
                pf[2 * h] = pack_f16(x0, x1);
                pf[2 * h + 1] = pack_f16(y0, y1);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint4 vf[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    vf[i] = *(const uint4 *)(sv + v_chunk(16 * n + 2 * t + i % 2 + i / 2 * 8, 8 * h + g));
                pv(*(float(*)[8][4])acc[8 * h], pf, vf);
            }
        }
    }
    sum_a = quad_sum(sum_a);
    sum_b = quad_sum(sum_b);
    if (a.splits > 0) {
        if (has_a)
            split_store<0>(split_at(a, row_a, col_a / HEAD, blockIdx.z), t, max_a, sum_a, acc);
        if (has_b)
            split_store<1>(split_at(a, row_b, col_b / HEAD, blockIdx.z), t, max_b, sum_b, acc);
        return;
    }
    if (has_a)
        flash_store<0>(a, row_a, col_a, t, 1.0f / sum_a, acc);
    if (has_b)
        flash_store<1>(a, row_b, col_b, t, 1.0f / sum_b, acc);
}

/* ---- the plain kernel ---- */

// Many rows with a cache that the tensor cores do not take: a query head a block, keys in turn.
static __global__ void __launch_bounds__(32 * PLAIN_WARPS)
    attn_slow_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    __shared__ float score[LG_CU_SPAN], room[PLAIN_WARPS];
    int lane = threadIdx.x % 32, dim = a.kv.head_dim, head = blockIdx.x;
    int kv_head = head / a.group, row = blockIdx.y, i = threadIdx.x;

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    long long p = step->pos + row, lo = first_visible(a.kv, p);
    float q[PLAIN_DIM / 32], top = -INFINITY, sum = 0.0f, acc = 0.0f;
    plain_query(q, a, row, head, lane);
    for (long long start = lo; start <= p; start += LG_CU_SPAN) {
        int n = (int)min(p + 1 - start, (long long)LG_CU_SPAN);
        float max = plain_scores(q, a, kv_head, start, 0, n, top, score, room);
        float old = expf(top - max);
        sum *= old;
        acc *= old;
        top = max;
        for (int j = 0; j < n; j++) {
            float w = expf(score[j] - max);
            sum += w;
            if (i < dim)
                acc = fmaf(w,
                           kv_value(a.kv,
                                    kv_tile(a.kv, start + j, kv_head, true) +
                                        (size_t)((start + j) % LG_KV_BLOCK) * a.kv.row_bytes,
                                    i),
                           acc);
        }
        __syncthreads();
    }
    if (i >= dim)
        return;
    float v = acc / sum;
    int col = head * dim + i;
    if (a.gate)
        v *= softplus(a.gate[(size_t)row * (size_t)a.gate_stride + (size_t)(a.elem_gate ? col : head)]);
    a.out[(size_t)row * (size_t)a.out_stride + (size_t)col] = v;
    if (a.quantise)
        ((__nv_bfloat16 *)a.acts.bf16)[(size_t)row * (size_t)(a.n_head * dim) + (size_t)col] =
            __float2bfloat16_rn(v);
}

// How many pieces the keys are cut into, so that few rows at a long context fill the card; 0: none.
static int splits_of(const lg_cu *c, const attn_args &a, int rows)
{
    int tile = lg_cu_attn_wgmma_queries(c) > 0 ? lg_cu_attn_wgmma_queries(c) : (int)FLASH_ROWS;
    int blocks = ceil_div((int64_t)rows * a.group, tile) * a.kv.n_kv_head;
    int64_t keys = a.kv.window > 0 && a.kv.window + rows < c->ctx ? a.kv.window + rows : c->ctx;
    int splits = c->sms / blocks, most = ceil_div(keys, 4 * LG_KV_BLOCK);
    size_t each = (size_t)rows * (size_t)a.n_head * SPLIT_FLOATS;
    size_t room = lg_cu_attn_floats(c->ctx, c->max_head, HEAD) / each;

    splits = splits < most ? splits : most;
    splits = (size_t)splits < room ? splits : (int)room;
    return splits > 1 ? splits : rows <= LG_CU_CODE_ROWS && room > 0 ? 1 : 0;
}

template <int TYPE> static void run_flash(lg_cu *c, const attn_args &a, int rows)
{
    size_t smem = 4 * LG_KV_BLOCK * 256;
    cudaError_t e =
        cudaFuncSetAttribute(attn_flash_kernel<TYPE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    int tiles = ceil_div((int64_t)rows * a.group, FLASH_ROWS);

    if (e != cudaSuccess && c->error == cudaSuccess)
        c->error = e;
    launch(c, attn_flash_kernel<TYPE>,
           dim3((unsigned)tiles, (unsigned)a.kv.n_kv_head, a.splits > 0 ? (unsigned)a.splits : 1u),
           32 * FLASH_WARPS, smem, a, c->step);
}

/* ---- the op ---- */

int lg_cu_max_spans(int64_t ctx, int window)
{
    int64_t n = window > 0 && window < ctx ? window : ctx;

    return ceil_div(n, LG_CU_SPAN) + 1;
}

void lg_cu_attention(lg_cu *c, const lg_cu_attn *op, bool quantise)
{
    attn_args a = {};
    int rows = bucket_rows(c, op->q.rows);

    a.q = op->q.p;
    a.out = op->out.p;
    a.gate = op->gate.p;
    a.part = c->attn_part;
    a.q_stride = op->q.stride;
    a.out_stride = op->out.stride;
    a.gate_stride = op->gate.stride;
    a.elem_gate = op->gate.p && op->gate.cols != op->n_head;
    a.n_head = op->n_head;
    a.group = op->n_head / op->kv->n_kv_head;
    a.rows = op->q.rows;
    a.max_spans = lg_cu_max_spans(c->ctx, op->kv->window);
    a.quantise = quantise && (op->n_head * op->kv->head_dim) % 32 == 0 &&
                 (rows > LG_CU_EXACT_ROWS || op->kv->head_dim % 32 == 0);
    a.acts = c->acts;
    a.scale = 1.0f / sqrtf((float)op->kv->head_dim);
    a.kv = kv_of(c, op->kv, op->kv_layer);
    bool tensor = op->kv->head_dim == HEAD && op->kv->type != LG_F32 && op->q.stride % 4 == 0 &&
                  ((uintptr_t)op->q.p & 15) == 0;
    if (rows <= LG_CU_EXACT_ROWS) {
        lg_cu_attn_few(c, a, op->qkv, tensor, rows);
        return;
    }
    a.codes = rows <= LG_CU_CODE_ROWS;
    if (op->qkv) {
        lg_cu_attn_follow(c, a, op->qkv, rows);
        return;
    }
    a.splits = tensor ? splits_of(c, a, rows) : 0;
    bool later = a.quantise && a.codes && a.splits == 0; // only the join makes codes
    a.quantise = a.quantise && !later;
    if (tensor && lg_cu_attn_wgmma_queries(c) > 0)
        lg_cu_attn_wgmma(c, a, rows);
    else if (tensor && op->kv->type == LG_F16)
        run_flash<LG_F16>(c, a, rows);
    else if (tensor)
        run_flash<LG_Q8_0>(c, a, rows);
    else
        launch(c, attn_slow_kernel, dim3((unsigned)a.n_head, (unsigned)rows), 32 * PLAIN_WARPS, 0, a,
               c->step);
    if (a.splits > 0)
        launch(c, attn_split_join_kernel, dim3((unsigned)a.n_head, (unsigned)rows), HEAD, 0, a, c->step);
    if (later)
        lg_cu_quantise(c, &op->out);
}
