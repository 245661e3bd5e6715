/*
 * backend/cuda/route_many: routing of many rows: a product, a choice a row, and one block that sorts the
 * entries by expert and cuts them into tiles.
 *
 * Up to LG_CU_CODE_ROWS rows have two launches, each short enough to end beside one of the shared expert's
 * (moe.cu): the product, which leaves keys, and one block that chooses from them and groups the entries, a
 * thread an expert.
 */
#include "backend/cuda/route_keys.cuh"

// A block takes PART_EXPERTS experts, PART_ROWS rows and a slice of the inputs; a warp every eighth four of
// them, a lane four experts and four rows. The last block of some experts and rows adds the slices up, in
// order.
enum {
    PART_EXPERTS = 16,
    PART_ROWS = 32,
    PART_WARPS = 8,
    PART_THREADS = 32 * PART_WARPS,
    PART_SLICES = 8, // 128 blocks for 256 experts: all at once, beside a product (moe.cu)
    PART_DEPTH = 192,
    PART_FOURS = PART_DEPTH / 4,
    PART_PITCH = PART_DEPTH + 4, // rows begin in different banks
    PART_W = PART_EXPERTS * PART_FOURS / PART_THREADS,
    PART_X = PART_ROWS * PART_FOURS / PART_THREADS,
    PART_SUMS = PART_EXPERTS * PART_ROWS
};

// The thread's fours of a chunk of rows at p, zeros past row n or column `to`. WEIGHTS: no kernel writes
// them.
template <bool WEIGHTS, int N>
DEV void load_fours(float4 (&v)[N], const float *p, size_t stride, int n, int from, int to)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        int i = (int)threadIdx.x + j * PART_THREADS, r = i / PART_FOURS, k = from + i % PART_FOURS * 4;
        v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (r < n && k < to)
            v[j] = WEIGHTS ? load_f4(p + (size_t)r * stride + (size_t)k)
                           : __ldcg((const float4 *)(p + (size_t)r * stride + (size_t)k));
    }
}

template <int N> DEV void store_fours(float *to, const float4 (&v)[N])
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        int i = (int)threadIdx.x + j * PART_THREADS;
        *(float4 *)(to + i / PART_FOURS * PART_PITCH + i % PART_FOURS * 4) = v[j];
    }
}

DEV float dot4(float4 a, float4 b, float sum)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// acc += the lane's products of the warp's fours of a chunk.
DEV void part_products(float (&acc)[4][4], const float *w, const float *x)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    w += lane / 8 * PART_PITCH + warp * 4;
    x += lane % 8 * PART_PITCH + warp * 4;
#pragma unroll
    for (int k = 0; k < PART_DEPTH; k += 4 * PART_WARPS) {
        float4 a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = *(const float4 *)(w + 4 * i * PART_PITCH + k);
            b[i] = *(const float4 *)(x + 8 * i * PART_PITCH + k);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                acc[i][j] = dot4(a[i], b[j], acc[i][j]);
    }
}

// late: the kernel before is no matter of this one, only of those behind it.
DEV void wait_unless(bool late)
{
    if (late)
        let_next();
    else
        pdl_wait();
}

struct many_out {
    float *part;   // [slice][bucket][expert]
    float *logits; // [row][expert]
    uint32_t *keys; // [row][KEY_EXPERTS]
    int32_t *entry;
    lg_cu_group *group;
    int *n_group; // from PART_COUNTERS on: slices that are done, of each block of experts and rows
};

enum { PART_COUNTERS = 16 };

static_assert((PART_COUNTERS + KEY_EXPERTS / PART_EXPERTS * LG_CU_CODE_ROWS / PART_ROWS) * 4 <= 256,
              "n_group has room");

// The last block of its experts and rows: their logits and keys.
DEV void part_logits(const lg_cu_route &a, const many_out &out, int bucket, int e0, int row0, int rows)
{
    size_t stride = (size_t)bucket * (size_t)a.n_expert;
    enum { MINE = PART_SUMS / PART_THREADS };
    float v[MINE][PART_SLICES], bias[MINE];

#pragma unroll
    for (int j = 0; j < MINE; j++) {
        int i = (int)threadIdx.x + j * PART_THREADS, e = e0 + i % PART_EXPERTS, r = i / PART_EXPERTS;
        bool any = r < rows && e < a.n_expert;
        const float *p = out.part + (size_t)(row0 + r) * (size_t)a.n_expert + (size_t)e;
        bias[j] = any && a.bias ? __ldg(&a.bias[e]) : 0.0f;
#pragma unroll
        for (int s = 0; s < PART_SLICES; s++)
            v[j][s] = any && s < (int)gridDim.y ? __ldcg(p + (size_t)s * stride) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < MINE; j++) {
        int i = (int)threadIdx.x + j * PART_THREADS, e = e0 + i % PART_EXPERTS, r = i / PART_EXPERTS;
        float logit = 0.0f;
#pragma unroll
        for (int s = 0; s < PART_SLICES; s++)
            logit += v[j][s];
        if (r >= rows || e >= a.n_expert)
            continue;
        out.logits[(row0 + r) * a.n_expert + e] = logit;
        out.keys[(row0 + r) * KEY_EXPERTS + e] = key_of(score_of(logit) + bias[j]);
    }
}

static __global__ void __launch_bounds__(PART_THREADS)
    route_part_kernel(__grid_constant__ const lg_cu_route a, const many_out out, int bucket, int slice,
                      bool late, const lg_cu_step *step)
{
    __shared__ __align__(16) float room[(PART_EXPERTS + PART_ROWS) * PART_PITCH];
    __shared__ bool last;
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, e0 = (int)blockIdx.x * PART_EXPERTS;
    int from = (int)blockIdx.y * slice, to = min(from + slice, a.h.cols), row0 = (int)blockIdx.z * PART_ROWS;
    float *w = room, *x = room + PART_EXPERTS * PART_PITCH, acc[4][4] = {};
    const float *router = a.router + (size_t)e0 * (size_t)a.h.cols;
    const float *h = a.h.p + (size_t)row0 * (size_t)a.h.stride;
    float4 w4[PART_W], x4[PART_X];

    load_fours<true>(w4, router, (size_t)a.h.cols, a.n_expert - e0, from, to);
    int rows = min(step_rows(step, a.h.rows) - row0, (int)PART_ROWS);
    wait_unless(late);
    load_fours<false>(x4, h, (size_t)a.h.stride, rows, from, to);
    for (int k = from; k < to; k += PART_DEPTH) {
        __syncthreads();
        store_fours(w, w4);
        store_fours(x, x4);
        __syncthreads();
        if (k + PART_DEPTH < to) {
            load_fours<true>(w4, router, (size_t)a.h.cols, a.n_expert - e0, k + PART_DEPTH, to);
            load_fours<false>(x4, h, (size_t)a.h.stride, rows, k + PART_DEPTH, to);
        }
        part_products(acc, w, x);
    }
    __syncthreads();
    float *sums = room; // [warp][expert][row]
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            sums[warp * PART_SUMS + (lane / 8 + 4 * i) * PART_ROWS + lane % 8 + 8 * j] = acc[i][j];
    __syncthreads();
    for (int i = tid; i < PART_SUMS; i += PART_THREADS) {
        int e = i % PART_EXPERTS, r = i / PART_EXPERTS;
        float sum = 0.0f;
#pragma unroll
        for (int v = 0; v < PART_WARPS; v++)
            sum += sums[v * PART_SUMS + e * PART_ROWS + r];
        if (r < rows && e0 + e < a.n_expert)
            out.part[((size_t)blockIdx.y * (size_t)bucket + (size_t)(row0 + r)) * (size_t)a.n_expert +
                 (size_t)(e0 + e)] = sum;
    }
    __syncthreads();
    if (tid == 0) {
        int *done = &out.n_group[PART_COUNTERS + blockIdx.z * gridDim.x + blockIdx.x];
        last = arrive(done) == (int)gridDim.y - 1;
        if (last)
            *done = 0;
    }
    __syncthreads();
    if (last)
        part_logits(a, out, bucket, e0, row0, rows);
    if (late)
        wait_for_last();
}

/* What the block that chooses knows, in shared memory. */
struct many_choice {
    unsigned long long rows[KEY_EXPERTS];       // that chose the expert, a bit each
    uint8_t rank[LG_CU_CODE_ROWS][KEY_EXPERTS]; // of the expert in the row
    unsigned sums[KEY_EXPERTS / 32];
};

enum {
    CHOOSE_WARPS = 16,
    CHOOSE_THREADS = 32 * CHOOSE_WARPS,
    CHOOSE_TURNS = LG_CU_CODE_ROWS / CHOOSE_WARPS // rows of a warp
};

static_assert((int)CHOOSE_THREADS >= (int)KEY_EXPERTS, "a thread an expert");

// The block: entries by expert, and groups of up to LG_CU_FEW_COLS of them.
DEV void many_groups(const lg_cu_route &a, const many_out &out, many_choice &c)
{
    // entries, groups, groups of more than two: together in 12, 10 and 10 bits
    enum { MOST = LG_CU_FEW_COLS, GROUP_BIT = 12, HEAVY_BIT = 22 };
    int e = (int)threadIdx.x, warp = e / 32, lane = e % 32;
    unsigned long long rows = e < a.n_expert ? c.rows[e] : 0;
    unsigned n = (unsigned)__popcll(rows), heavy = (n + MOST - 3) / MOST;
    unsigned mine = n | (n + MOST - 1) / MOST << GROUP_BIT | heavy << HEAVY_BIT, sum = mine;

#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        unsigned v = __shfl_up_sync(0xFFFFFFFFu, sum, (unsigned)o);
        sum += lane >= o ? v : 0;
    }
    if (lane == 31 && e < KEY_EXPERTS)
        c.sums[warp] = sum;
    __syncthreads();
    if (e >= KEY_EXPERTS)
        return;
    sum += __reduce_add_sync(0xFFFFFFFFu, lane < warp ? c.sums[lane] : 0u);
    if (e == KEY_EXPERTS - 1) {
        out.n_group[0] = (int)(sum >> GROUP_BIT & 1023);
        out.n_group[2] = (int)(sum >> HEAVY_BIT);
        out.n_group[3] = out.n_group[4] = 0;
    }
    sum -= mine;
    int at = (int)(sum & 4095), tile = (int)(sum >> GROUP_BIT & 1023), before = (int)(sum >> HEAVY_BIT);
    for (; rows != 0; tile++) {
        lg_cu_group g = {e, at, min((int)__popcll(rows), (int)MOST), before};
        before += g.n > 2;
        out.group[tile] = g;
        for (int i = 0; i < g.n; i++, rows &= rows - 1) {
            int row = __ffsll((long long)rows) - 1;
            out.entry[at++] = row * a.k + c.rank[row][e];
        }
    }
}

static_assert((int)LG_CU_FEW_COLS == 4, "a rest of three is heavy, one of two is not");

// One block: a warp a row.
static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose_rows_kernel(__grid_constant__ const lg_cu_route a, const many_out out, bool late,
                       const lg_cu_step *step)
{
    __shared__ many_choice c;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, rows = step_rows(step, a.h.rows);
    int id[CHOOSE_TURNS] = {};
    float logit[CHOOSE_TURNS] = {};
    key_set keys[CHOOSE_TURNS];

    if (threadIdx.x < KEY_EXPERTS)
        c.rows[threadIdx.x] = 0;
    __syncthreads();
    wait_unless(late);
#pragma unroll
    for (int i = 0; i < CHOOSE_TURNS; i++)
        if (warp + i * CHOOSE_WARPS < rows)
            keys[i] = load_keys(out.keys + (warp + i * CHOOSE_WARPS) * KEY_EXPERTS, lane);
    choose_turns<CHOOSE_WARPS>(a, out.logits, keys, c, rows, warp, lane, id, logit);
    __syncthreads();
    many_groups(a, out, c);
    store_turns<CHOOSE_WARPS>(a, rows, warp, lane, id, logit);
    if (late)
        wait_for_last();
}

// logits: [slice][bucket][expert]
static __global__ void __launch_bounds__(32 * ROUTE_WARPS)
    choose_kernel(__grid_constant__ const lg_cu_route a, const float *logits, int slices, int bucket,
                  const lg_cu_step *step)
{
    extern __shared__ float shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = (int)blockIdx.x * ROUTE_WARPS + warp;

    pdl_wait();
    if (row >= step_rows(step, a.h.rows))
        return;
    float *mine = shared + (size_t)warp * 2 * (size_t)a.n_expert;
    for (int e = lane; e < a.n_expert; e += 32) {
        float sum = 0.0f;
        for (int i = 0; i < slices; i++)
            sum += logits[((size_t)i * (size_t)bucket + (size_t)row) * (size_t)a.n_expert + (size_t)e];
        mine[e] = sum;
    }
    __syncwarp();
    choose(a, mine, a.bias, row, lane);
}

enum { SORT_THREADS = 1024, MANY_SLICES = 2 };

static __global__ void __launch_bounds__(SORT_THREADS)
    sort_kernel(const int32_t *ids, int k, int n_expert, int tile_rows, int32_t *entry, lg_cu_group *group,
                int *n_group, int rows, const lg_cu_step *step)
{
    extern __shared__ int room[];

    pdl_wait();
    group_entries(ids, step_rows(step, rows) * k, n_expert, tile_rows, entry, group, n_group, room);
}

// Slices lie where the entries' results will: how many have room.
static int slices_room(const lg_cu_route *a)
{
    return a->k * a->h.cols / a->n_expert;
}

static int slice_of(const lg_cu_route *a)
{
    return ceil_div(ceil_div(a->h.cols, PART_SLICES), 32) * 32;
}

bool lg_cu_route_halves(const lg_cu *c, const lg_cu_route *a)
{
    int rows = bucket_rows(c, a->h.rows);

    return rows > LG_CU_EXACT_ROWS && rows <= LG_CU_CODE_ROWS && PART_SLICES <= slices_room(a) &&
           a->n_expert <= KEY_EXPERTS && a->k <= 32 && !a->softmax &&
           a->h.cols % 4 == 0 && a->h.stride % 4 == 0 &&
           (((uintptr_t)a->h.p | (uintptr_t)a->router) & 15) == 0;
}

static many_out out_of(const lg_cu *c)
{
    return {c->expert_out, c->route_logits, c->route_keys, c->entry, c->group, c->n_group};
}

void lg_cu_route_part(lg_cu *c, const lg_cu_route *a, bool late)
{
    int rows = bucket_rows(c, a->h.rows), slice = slice_of(a);
    dim3 grid((unsigned)ceil_div(a->n_expert, PART_EXPERTS), (unsigned)ceil_div(a->h.cols, slice),
              (unsigned)ceil_div(rows, PART_ROWS));

    launch(c, route_part_kernel, grid, PART_THREADS, 0, *a, out_of(c), rows, slice, late, c->step);
}

// Groups are as for few rows.
void lg_cu_route_choose(lg_cu *c, const lg_cu_route *a, bool late)
{
    launch(c, choose_rows_kernel, dim3(1), CHOOSE_THREADS, 0, *a, out_of(c), late, c->step);
    c->grouped = a->ids;
}

void lg_cu_route_many(lg_cu *c, const lg_cu_route *a)
{
    int rows = bucket_rows(c, a->h.rows), slices = MANY_SLICES <= slices_room(a) ? (int)MANY_SLICES : 1;
    size_t chosen = (size_t)ROUTE_WARPS * 2 * (size_t)a->n_expert * sizeof(float);

    c->grouped = NULL;
    if (lg_cu_route_halves(c, a)) {
        lg_cu_route_part(c, a, false);
        lg_cu_route_choose(c, a, false);
        return;
    }
    lg_cu_part part = {};
    part.w.p = (const uint8_t *)a->router;
    part.w.type = LG_F32;
    part.w.n_in = a->h.cols;
    part.w.n_out = a->n_expert;
    part.w.n_expert = 1;
    part.w.scale = 1.0f;
    part.y_stride = a->n_expert;
    part.y = slices > 1 ? c->expert_out : c->route_logits;
    lg_cu_gemm_f32_slices(c, &a->h, &part, slices);
    launch(c, choose_kernel, dim3((unsigned)ceil_div(rows, ROUTE_WARPS)), 32 * ROUTE_WARPS, chosen, *a,
           (const float *)part.y, slices, rows, c->step);
}

void lg_cu_sort_entries(lg_cu *c, const lg_cu_moe *m, int tile_rows)
{
    int n_expert = m->routed->gate.n_expert;

    int threads = bucket_rows(c, m->h.rows) * m->k <= 2048 ? 256 : SORT_THREADS;

    c->grouped = NULL;
    launch(c, sort_kernel, dim3(1), threads, (2 * (size_t)n_expert + 64) * sizeof(int), m->ids, m->k,
           n_expert, tile_rows, c->entry, c->group, c->n_group, (int)m->h.rows, c->step);
}
