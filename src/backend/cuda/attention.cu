/*
 * backend/cuda/attention: attention over block tables.
 *
 * Keys are cut into spans of LG_CU_SPAN positions at multiples of it. For up to LG_CU_EXACT_ROWS rows a block
 * takes one (KV head, span, row): the query heads of the KV head are the rows of tensor core tiles, so K and
 * V are read once, straight into fragments; its node (max, sum, acc) goes to scratch, and a second launch
 * joins the nodes of a query in a fixed order, applies the gate and quantises the result. Nothing depends
 * on how many rows a step has. More rows take a flash kernel over K and V tiles in shared memory,
 * which visits only blocks that some row of its tile can see.
 *
 * The dot products take the dimensions in an order of their own: a lane's 16-byte load of a key feeds two
 * tensor core steps, with the queries permuted to match.
 *
 * Surprise: f32 caches and head sizes other than 128 take a plain kernel that gives each query head a warp.
 * What lies behind the last visible position of a block is never used, not even times zero: it may be NaN.
 */
#include "backend/cuda/kv.cuh"

enum { HEAD = 128, Q_ROWS = 16 };

DEV float softplus(float g)
{
    return fmaxf(g, 0.0f) + log1pf(expf(-fabsf(g)));
}

/* ---- the plain kernel: any head size, any cache type ---- */

struct attn_args {
    const float *q;
    float *out, *part;
    const float *gate;
    int q_stride, out_stride, gate_stride, n_head, group, rows, max_spans;
    int row0; // first row of this launch; nodes count from it
    bool elem_gate, quantise;
    lg_cu_acts acts;
    float scale;
    kv_args kv;
};

// First visible position of the row at position p.
DEV long long first_visible(const kv_args &kv, long long p)
{
    return kv.window > 0 && p + 1 > kv.window ? p + 1 - kv.window : 0;
}

// A node: [row][head][span - first span of the row]: max, sum, then head_dim sums.
DEV float *node_at(const attn_args &a, int row, int head, int span)
{
    return a.part +
           (((size_t)(row - a.row0) * (size_t)a.n_head + (size_t)head) * (size_t)a.max_spans + (size_t)span) *
               (size_t)(a.kv.head_dim + 2);
}

DEV float kv_value(const kv_args &a, const uint8_t *row, int i)
{
    if (a.type == LG_F32)
        return ((const float *)row)[i];
    if (a.type == LG_F16)
        return __half2float(((const __half *)row)[i]);
    const uint8_t *b = row + i / 32 * 34;
    return half_bits(b[0] | (unsigned)b[1] << 8) * (float)(int8_t)b[2 + i % 32];
}

enum { PLAIN_WARPS = 8, PLAIN_DIM = 256 };

// A block a (query head, span, row); warps share the keys of the span, lanes the dimensions.
static __global__ void __launch_bounds__(32 * PLAIN_WARPS)
    attn_plain_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    __shared__ float score[LG_CU_SPAN], room[PLAIN_WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dim = a.kv.head_dim, head = blockIdx.y;
    int kv_head = head / a.group, row = a.row0 + (int)blockIdx.x;

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    long long p = step->pos + row, lo = first_visible(a.kv, p);
    long long start = (lo / LG_CU_SPAN + blockIdx.z) * LG_CU_SPAN;
    if (start > p)
        return;
    int from = (int)max(lo - start, 0ll), to = (int)min(p + 1 - start, (long long)LG_CU_SPAN);
    float q[PLAIN_DIM / 32];
#pragma unroll
    for (int i = 0; i < PLAIN_DIM / 32; i++)
        q[i] = lane + 32 * i < dim
                   ? a.q[(size_t)row * (size_t)a.q_stride + (size_t)(head * dim + lane + 32 * i)]
                   : 0.0f;
    float max = -INFINITY;
    for (int j = from + warp; j < to; j += PLAIN_WARPS) {
        const uint8_t *k =
            kv_tile(a.kv, start + j, kv_head, false) + (size_t)(j % LG_KV_BLOCK) * a.kv.row_bytes;
        float s = 0.0f;
#pragma unroll
        for (int i = 0; i < PLAIN_DIM / 32; i++)
            if (lane + 32 * i < dim)
                s = fmaf(q[i], kv_value(a.kv, k, lane + 32 * i), s);
        s = warp_sum(s) * a.scale;
        if (lane == 0)
            score[j] = s;
        max = fmaxf(max, s);
    }
    if (lane == 0)
        room[warp] = max;
    __syncthreads();
    for (int i = 0; i < PLAIN_WARPS; i++)
        max = fmaxf(max, room[i]);
    float sum = 0.0f;
    for (int j = from; j < to; j++) // every thread: the same order everywhere
        sum += expf(score[j] - max);
    float *node = node_at(a, row, head, (int)blockIdx.z);
    if (threadIdx.x == 0) {
        node[0] = max;
        node[1] = sum;
    }
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float acc = 0.0f;
        for (int j = from; j < to; j++) {
            const uint8_t *v =
                kv_tile(a.kv, start + j, kv_head, true) + (size_t)(j % LG_KV_BLOCK) * a.kv.row_bytes;
            acc = fmaf(expf(score[j] - max), kv_value(a.kv, v, i), acc);
        }
        node[2 + i] = acc;
    }
}

enum { JOIN_GROUPS = 4, JOIN_CHUNK = 256 };

/* Joins the nodes of a query head; gate; the result and its quantised form. A block a (head, row): thread (g,
 * i) adds dimension i of the nodes g, g + JOIN_GROUPS, ... in order, then the groups are added in order. */
static __global__ void attn_join_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    extern __shared__ float room[]; // [JOIN_GROUPS][dim_up]
    __shared__ float weight[JOIN_CHUNK], reduce[32];
    int dim = a.kv.head_dim, dim_up = (int)blockDim.x / JOIN_GROUPS, head = blockIdx.x,
        row = a.row0 + (int)blockIdx.y;
    int tid = threadIdx.x, i = tid % dim_up, g = tid / dim_up, lane = tid % 32, warps = (int)blockDim.x / 32;

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    long long p = step->pos + row;
    int spans = (int)(p / LG_CU_SPAN - first_visible(a.kv, p) / LG_CU_SPAN) + 1;
    const float *node = node_at(a, row, head, 0);
    size_t next = (size_t)(dim + 2);
    float max = -INFINITY, sum = 0.0f, acc = 0.0f;
    for (int s = tid; s < spans; s += (int)blockDim.x)
        max = fmaxf(max, node[(size_t)s * next]);
    max = warp_max(max);
    if (lane == 0)
        reduce[tid / 32] = max;
    __syncthreads();
    max = warp_max(lane < warps ? reduce[lane] : -INFINITY);
    for (int first = 0; first < spans; first += JOIN_CHUNK) {
        int n = min(JOIN_CHUNK, spans - first);
        __syncthreads();
        for (int s = tid; s < n; s += (int)blockDim.x)
            weight[s] = expf(node[(size_t)(first + s) * next] - max);
        __syncthreads();
#pragma unroll 4
        for (int s = g; s < n; s += JOIN_GROUPS) {
            const float *at = node + (size_t)(first + s) * next;
            sum = fmaf(weight[s], at[1], sum);
            acc = fmaf(weight[s], i < dim ? at[2 + i] : 0.0f, acc);
        }
    }
    room[g * dim_up + i] = acc;
    if (i == 0)
        reduce[g] = sum;
    __syncthreads();
    if (g > 0)
        return;
    for (int k = 1; k < JOIN_GROUPS; k++)
        acc += room[k * dim_up + i];
    float total = reduce[0];
    for (int k = 1; k < JOIN_GROUPS; k++)
        total += reduce[k];
    float v = acc / total;
    int col = head * dim + i;
    if (a.gate && i < dim)
        v *= softplus(a.gate[(size_t)row * (size_t)a.gate_stride + (size_t)(a.elem_gate ? col : head)]);
    if (i < dim)
        a.out[(size_t)row * (size_t)a.out_stride + (size_t)col] = v;
    if (a.quantise && i < dim) { // dim % 32 == 0, so warps are whole
        size_t cols = (size_t)a.n_head * (size_t)dim;
        store_run(a.acts.q + (size_t)row * cols, a.acts.meta + (size_t)row * (cols / 32), col / 32, i % 32,
                  v);
    }
}

/* ---- tensor core pieces ---- */

DEV void mma_f16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEV unsigned pack_f16(float lo, float hi)
{
    unsigned r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

DEV float f16_range(float x)
{
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}

// Fragments of 16 query rows: step 2c takes dimensions 32c + 8t + (0, 1 | 2, 3) in its slots (2t, 2t + 1 | 2t
// + 8, 2t + 9), step 2c + 1 the next four. row_a and row_b are rows g and g + 8, or NULL.
DEV void load_q(const float *row_a, const float *row_b, int lane, float scale, unsigned (&f)[8][4])
{
    int t = lane % 4;

#pragma unroll
    for (int s = 0; s < 8; s++) {
        int d = 32 * (s / 2) + 8 * t + 4 * (s % 2);
        float4 a = row_a ? *(const float4 *)(row_a + d) : make_float4(0, 0, 0, 0);
        float4 b = row_b ? *(const float4 *)(row_b + d) : make_float4(0, 0, 0, 0);
        f[s][0] = pack_f16(f16_range(a.x * scale), f16_range(a.y * scale));
        f[s][1] = pack_f16(f16_range(b.x * scale), f16_range(b.y * scale));
        f[s][2] = pack_f16(f16_range(a.z * scale), f16_range(a.w * scale));
        f[s][3] = pack_f16(f16_range(b.z * scale), f16_range(b.w * scale));
    }
}

// 8 consecutive elements, from dimension d on, of a cache row.
template <int TYPE> DEV uint4 load_kv8(const uint8_t *row, int d)
{
    if (TYPE == LG_F16)
        return *(const uint4 *)(row + 2 * d);
    const uint8_t *b = row + d / 32 * 34;
    float scale = half_bits(*(const unsigned short *)b);
    unsigned out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        unsigned w = *(const unsigned short *)(b + 2 + d % 32 + 2 * i);
        out[i] = pack_f16(scale * (float)(int8_t)(w & 0xFF), scale * (float)(int8_t)(w >> 8));
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

// scores += queries x 8 keys; k[c] holds the lane's 8 dimensions of chunk c of its key.
DEV void qk(float (&s)[4], const unsigned (&q)[8][4], const uint4 (&k)[4])
{
#pragma unroll
    for (int c = 0; c < 4; c++) {
        mma_f16(s, q[2 * c], k[c].x, k[c].y);
        mma_f16(s, q[2 * c + 1], k[c].z, k[c].w);
    }
}

// acc += probabilities of 16 keys x half the dimensions. v[i] holds, of the lane's keys 2t, 2t + 1, 2t + 8,
// 2t + 9, 8 dimensions; column g of tile j is dimension 8g + j.
DEV void pv(float (&acc)[8][4], const unsigned (&p)[4], const uint4 (&v)[4])
{
    const unsigned a[4] = {v[0].x, v[0].y, v[0].z, v[0].w}, b[4] = {v[1].x, v[1].y, v[1].z, v[1].w};
    const unsigned c[4] = {v[2].x, v[2].y, v[2].z, v[2].w}, d[4] = {v[3].x, v[3].y, v[3].z, v[3].w};

#pragma unroll
    for (int j = 0; j < 8; j++) {
        unsigned pick = j % 2 ? 0x7632 : 0x5410;
        mma_f16(acc[j], p, __byte_perm(a[j / 2], b[j / 2], pick), __byte_perm(c[j / 2], d[j / 2], pick));
    }
}

DEV float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, 2));
}

DEV float quad_sum(float v)
{
    v += __shfl_xor_sync(0xFFFFFFFFu, v, 1);
    return v + __shfl_xor_sync(0xFFFFFFFFu, v, 2);
}

/* ---- few rows ---- */

enum {
    SPAN_WARPS = 8,
    WARP_KEYS = LG_CU_SPAN / SPAN_WARPS,
    KEY_TILES = WARP_KEYS / 8,
    ACC_STRIDE = HEAD + 4
};

// Scores of a warp's keys to probabilities, each row against its own largest; keys outside [from, to) get
// none.
DEV void span_softmax(float (&s)[KEY_TILES][4], int from, int to, int t, unsigned (&prob)[KEY_TILES][2],
                      float &max_a, float &max_b, float &sum_a, float &sum_b)
{
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int key = 8 * n + 2 * t + e;
            bool seen = key >= from && key < to;
            s[n][e] = seen ? s[n][e] : -INFINITY;
            s[n][2 + e] = seen ? s[n][2 + e] : -INFINITY;
            max_a = fmaxf(max_a, s[n][e]);
            max_b = fmaxf(max_b, s[n][2 + e]);
        }
    max_a = quad_max(max_a);
    max_b = quad_max(max_b);
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) {
        float x0 = __expf(s[n][0] - max_a), x1 = __expf(s[n][1] - max_a);
        float y0 = __expf(s[n][2] - max_b), y1 = __expf(s[n][3] - max_b);
        sum_a += x0 + x1;
        sum_b += y0 + y1;
        prob[n][0] = pack_f16(x0, x1);
        prob[n][1] = pack_f16(y0, y1);
    }
    sum_a = quad_sum(sum_a);
    sum_b = quad_sum(sum_b);
}

// A block a (KV head, span, row); warps share its keys; up to 16 query heads share them.
template <int TYPE>
static __global__ void __launch_bounds__(32 * SPAN_WARPS, 2)
    attn_span_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    extern __shared__ __align__(16) float s_acc[]; // [warp][head][ACC_STRIDE]
    __shared__ float s_max[SPAN_WARPS][Q_ROWS], s_sum[SPAN_WARPS][Q_ROWS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int tiles = (a.group + Q_ROWS - 1) / Q_ROWS, kv_head = (int)blockIdx.y / tiles;
    int head0 = kv_head * a.group + (int)blockIdx.y % tiles * Q_ROWS, row = a.row0 + (int)blockIdx.x;
    int heads = min(Q_ROWS, (kv_head + 1) * a.group - head0);

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    long long p = step->pos + row, lo = first_visible(a.kv, p);
    long long span = (lo / LG_CU_SPAN + blockIdx.z) * LG_CU_SPAN, start = span + warp * WARP_KEYS;
    if (span > p)
        return;
    int from = (int)max(lo - start, 0ll), to = (int)min(p + 1 - start, (long long)WARP_KEYS);
    float max_a = -INFINITY, max_b = -INFINITY, sum_a = 0.0f, sum_b = 0.0f, acc[16][4];
    unsigned prob[KEY_TILES][2];

#pragma unroll
    for (int j = 0; j < 16; j++)
        acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.0f;
    if (from < to) {
        size_t in_tile = (size_t)(start % LG_KV_BLOCK) * a.kv.row_bytes;
        const uint8_t *k = kv_tile(a.kv, start, kv_head, false) + in_tile;
        const uint8_t *v = kv_tile(a.kv, start, kv_head, true) + in_tile;
        const float *q = a.q + (size_t)row * (size_t)a.q_stride + (size_t)head0 * HEAD;
        float s[KEY_TILES][4];
        unsigned qf[8][4];
        load_q(g < heads ? q + g * HEAD : NULL, g + 8 < heads ? q + (g + 8) * HEAD : NULL, lane, a.scale, qf);
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
            int key = 8 * n + g;
            uint4 kf[4] = {};
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
            if (key >= from && key < to)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    kf[c] = load_kv8<TYPE>(k + (size_t)key * a.kv.row_bytes, 32 * c + 8 * t);
            qk(s[n], qf, kf);
        }
        span_softmax(s, from, to, t, prob, max_a, max_b, sum_a, sum_b);
#pragma unroll
        for (int n = 0; n < KEY_TILES / 2; n++) {
            const unsigned pf[4] = {prob[2 * n][0], prob[2 * n][1], prob[2 * n + 1][0], prob[2 * n + 1][1]};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint4 vf[4] = {};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int key = 16 * n + 2 * t + i % 2 + i / 2 * 8;
                    if (key >= from && key < to)
                        vf[i] = load_kv8<TYPE>(v + (size_t)key * a.kv.row_bytes, 64 * h + 8 * g);
                }
                pv(*(float(*)[8][4])acc[8 * h], pf, vf);
            }
        }
    }
    if (t == 0) {
        s_max[warp][g] = max_a, s_max[warp][g + 8] = max_b;
        s_sum[warp][g] = sum_a, s_sum[warp][g + 8] = sum_b;
    }
    __syncthreads();
    float top_a = -INFINITY, top_b = -INFINITY;
    for (int w = 0; w < SPAN_WARPS; w++) {
        top_a = fmaxf(top_a, s_max[w][g]);
        top_b = fmaxf(top_b, s_max[w][g + 8]);
    }
    float scale_a = max_a == -INFINITY ? 0.0f : __expf(max_a - top_a);
    float scale_b = max_b == -INFINITY ? 0.0f : __expf(max_b - top_b);
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int d = 64 * (j / 8) + 8 * (2 * t + e) + j % 8;
            if (g < heads)
                s_acc[(warp * heads + g) * ACC_STRIDE + d] = acc[j][e] * scale_a;
            if (g + 8 < heads)
                s_acc[(warp * heads + g + 8) * ACC_STRIDE + d] = acc[j][2 + e] * scale_b;
        }
    __syncthreads();
    for (int h = warp; h < heads; h += SPAN_WARPS) {
        float *node = node_at(a, row, head0 + h, (int)blockIdx.z), max = -INFINITY, sum = 0.0f;
        for (int w = 0; w < SPAN_WARPS; w++)
            max = fmaxf(max, s_max[w][h]);
        for (int w = 0; w < SPAN_WARPS; w++)
            if (s_max[w][h] != -INFINITY)
                sum = fmaf(__expf(s_max[w][h] - max), s_sum[w][h], sum);
        if (lane == 0) {
            node[0] = max;
            node[1] = sum;
        }
        for (int i = lane; i < HEAD; i += 32) {
            float sum_i = 0.0f;
#pragma unroll
            for (int w = 0; w < SPAN_WARPS; w++) // in order, so that the sums are the same every time
                sum_i += s_acc[(w * heads + h) * ACC_STRIDE + i];
            node[2 + i] = sum_i;
        }
    }
}

/* ---- many rows: flash attention ---- */

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

// A block a (tile of 128 queries, KV head); query m of a KV head is head m % group of row m / group.
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
    if (has_a)
        flash_store<0>(a, row_a, col_a, t, 1.0f / sum_a, acc);
    if (has_b)
        flash_store<1>(a, row_b, col_b, t, 1.0f / sum_b, acc);
}

/* ---- the op ---- */

static int max_spans(int64_t ctx, int window)
{
    int64_t n = window > 0 && window < ctx ? window : ctx;

    return ceil_div(n, LG_CU_SPAN) + 1;
}

static size_t row_floats(int64_t ctx, int n_head, int head_dim)
{
    return (size_t)n_head * (size_t)max_spans(ctx, 0) * (size_t)(head_dim + 2);
}

// Rows whose nodes are in scratch at a time: all that may be exact, unless the context is very long.
static const size_t node_room = (size_t)40 << 20; // floats

static int node_rows(size_t floats)
{
    size_t n = node_room / floats;

    return n < 1 ? 1 : n > LG_CU_EXACT_ROWS ? LG_CU_EXACT_ROWS : (int)n;
}

size_t lg_cu_attn_floats(int64_t max_ctx, int max_head, int head_dim)
{
    int64_t bucket = 1;

    while (bucket < max_ctx)
        bucket *= 2;
    size_t floats = row_floats(bucket, max_head, head_dim);
    if (floats * LG_CU_EXACT_ROWS <= node_room)
        return floats * LG_CU_EXACT_ROWS;
    return floats > node_room ? floats : node_room;
}

// Nodes, then their join, for as many rows at a time as have room.
template <typename K>
static void run_nodes(lg_cu *c, attn_args a, K kernel, unsigned heads, int threads, size_t smem, int rows)
{
    int step = node_rows(row_floats(c->ctx, c->max_head, a.kv.head_dim)),
        dim_up = (a.kv.head_dim + 31) / 32 * 32;

    for (a.row0 = 0; a.row0 < rows; a.row0 += step) {
        unsigned n = (unsigned)(rows - a.row0 < step ? rows - a.row0 : step);
        launch(c, kernel, dim3(n, heads, (unsigned)a.max_spans), threads, smem, a, c->step);
        launch(c, attn_join_kernel, dim3((unsigned)a.n_head, n), JOIN_GROUPS * dim_up,
               JOIN_GROUPS * (size_t)dim_up * sizeof(float), a, c->step);
    }
}

// Many rows with a cache that the tensor cores do not take: a query head a block, keys in turn.
static __global__ void __launch_bounds__(32 * PLAIN_WARPS)
    attn_slow_kernel(__grid_constant__ const attn_args a, const lg_cu_step *step)
{
    __shared__ float score[LG_CU_SPAN], room[PLAIN_WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dim = a.kv.head_dim, head = blockIdx.x;
    int kv_head = head / a.group, row = blockIdx.y, i = threadIdx.x;

    pdl_wait();
    if (row >= step_rows(step, a.rows))
        return;
    long long p = step->pos + row, lo = first_visible(a.kv, p);
    float q[PLAIN_DIM / 32], top = -INFINITY, sum = 0.0f, acc = 0.0f;
#pragma unroll
    for (int d = 0; d < PLAIN_DIM / 32; d++)
        q[d] = lane + 32 * d < dim
                   ? a.q[(size_t)row * (size_t)a.q_stride + (size_t)(head * dim + lane + 32 * d)]
                   : 0.0f;
    for (long long start = lo; start <= p; start += LG_CU_SPAN) {
        int n = (int)min(p + 1 - start, (long long)LG_CU_SPAN);
        float max = top;
        for (int j = warp; j < n; j += PLAIN_WARPS) {
            const uint8_t *k = kv_tile(a.kv, start + j, kv_head, false) +
                               (size_t)((start + j) % LG_KV_BLOCK) * a.kv.row_bytes;
            float s = 0.0f;
#pragma unroll
            for (int d = 0; d < PLAIN_DIM / 32; d++)
                if (lane + 32 * d < dim)
                    s = fmaf(q[d], kv_value(a.kv, k, lane + 32 * d), s);
            s = warp_sum(s) * a.scale;
            if (lane == 0)
                score[j] = s;
            max = fmaxf(max, s);
        }
        if (lane == 0)
            room[warp] = max;
        __syncthreads();
        for (int w = 0; w < PLAIN_WARPS; w++)
            max = fmaxf(max, room[w]);
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

template <int TYPE> static void run_tensor(lg_cu *c, const attn_args &a, int rows)
{
    if (rows <= LG_CU_EXACT_ROWS) {
        unsigned heads = (unsigned)(a.kv.n_kv_head * ceil_div(a.group, Q_ROWS));
        size_t smem = SPAN_WARPS * (size_t)(a.group < Q_ROWS ? a.group : Q_ROWS) * ACC_STRIDE * sizeof(float);
        cudaError_t e = cudaFuncSetAttribute(attn_span_kernel<TYPE>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
        if (e != cudaSuccess && c->error == cudaSuccess)
            c->error = e;
        run_nodes(c, a, attn_span_kernel<TYPE>, heads, 32 * SPAN_WARPS, smem, rows);
        return;
    }
    size_t smem = 4 * LG_KV_BLOCK * 256;
    cudaError_t e =
        cudaFuncSetAttribute(attn_flash_kernel<TYPE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    if (e != cudaSuccess && c->error == cudaSuccess)
        c->error = e;
    launch(c, attn_flash_kernel<TYPE>,
           dim3((unsigned)ceil_div((int64_t)rows * a.group, FLASH_ROWS), (unsigned)a.kv.n_kv_head),
           32 * FLASH_WARPS, smem, a, c->step);
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
    a.max_spans = max_spans(c->ctx, op->kv->window);
    a.quantise = quantise && (op->n_head * op->kv->head_dim) % 32 == 0 &&
                 (rows > LG_CU_EXACT_ROWS || op->kv->head_dim % 32 == 0);
    a.acts = c->acts;
    a.scale = 1.0f / sqrtf((float)op->kv->head_dim);
    a.kv = kv_of(c, op->kv, op->kv_layer);
    bool tensor = op->kv->head_dim == HEAD && op->kv->type != LG_F32 && op->q.stride % 4 == 0 &&
                  ((uintptr_t)op->q.p & 15) == 0;
    if (tensor && op->kv->type == LG_F16)
        run_tensor<LG_F16>(c, a, rows);
    else if (tensor)
        run_tensor<LG_Q8_0>(c, a, rows);
    else if (rows <= LG_CU_EXACT_ROWS)
        run_nodes(c, a, attn_plain_kernel, (unsigned)a.n_head, 32 * PLAIN_WARPS, 0, rows);
    else
        launch(c, attn_slow_kernel, dim3((unsigned)a.n_head, (unsigned)rows), 32 * PLAIN_WARPS, 0, a,
               c->step);
}
