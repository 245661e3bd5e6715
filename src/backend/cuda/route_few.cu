/*
 * backend/cuda/route_few: routing of 2 to LG_CU_EXACT_ROWS rows in one launch, among up to KEY_EXPERTS
 * experts, without softmax; route.cu has the rest.
 *
 * A block takes FEW_ROWS rows and two sets of experts, four warps a set, which share a row as the warps of
 * route.cu do. A thread has its weights before the wait and all of its activations at once behind it, in
 * registers; what grows with the rows is the number of experts of a set, so that there are always about as
 * many blocks. The last block to finish chooses, a warp a row, and groups the entries by expert, a thread an
 * expert.
 */
#include "backend/cuda/route_keys.cuh"
#include "backend/cuda/stream.cuh"

enum {
    FEW_ROWS = 4, // of a block
    SETS = 2,
    FEW_WARPS = SETS * ROUTE_WARPS,
    FEW_THREADS = 32 * FEW_WARPS,
    FEW_STEP = 32 * ROUTE_WARPS * 8, // columns of a set at a time
    FEW_HELD = 3,                    // times that, before the wait
};

static_assert((int)FEW_THREADS >= (int)KEY_EXPERTS, "a thread an expert");

struct few_out {
    uint32_t *keys; // [row][KEY_EXPERTS]
    float *logits;
    int32_t *entry;
    lg_cu_group *group;
    int *n_group;
};

// Eight columns of a row.
struct eight {
    float4 a, b;
};

DEV float dot_eight(const eight &w, const eight &x, float acc)
{
    acc = fmaf(w.a.x, x.a.x, acc);
    acc = fmaf(w.a.y, x.a.y, acc);
    acc = fmaf(w.a.z, x.a.z, acc);
    acc = fmaf(w.a.w, x.a.w, acc);
    acc = fmaf(w.b.x, x.b.x, acc);
    acc = fmaf(w.b.y, x.b.y, acc);
    acc = fmaf(w.b.z, x.b.z, acc);
    return fmaf(w.b.w, x.b.w, acc);
}

/* What the block knows of the choice, in shared memory. */
struct few_choice {
    unsigned rows[KEY_EXPERTS];                  // that chose the expert, a bit each
    uint8_t rank[LG_CU_EXACT_ROWS][KEY_EXPERTS]; // of the expert in the row
    int sums[FEW_WARPS];
};

// The weights of FEW_HELD times FEW_STEP columns from `at` on, of E experts from `first` on.
template <int E> DEV void few_weights(eight (&w)[E][FEW_HELD], const lg_cu_route &a, int first, int at)
{
#pragma unroll
    for (int e = 0; e < E; e++) {
        const float *p = a.router + (size_t)min(first + e, a.n_expert - 1) * (size_t)a.h.cols + at;
#pragma unroll
        for (int u = 0; u < FEW_HELD; u++)
            if (at + u * FEW_STEP < a.h.cols)
                w[e][u] = {load_f4(p + u * FEW_STEP), load_f4(p + u * FEW_STEP + 4)};
    }
}

enum { FEW_TURNS = LG_CU_EXACT_ROWS / FEW_WARPS }; // rows of a warp

// The last block: the experts of all rows, rank i on lane i, and their logits, which are still to come. Ends
// with a barrier.
DEV void few_choose(const lg_cu_route &a, const few_out &out, few_choice &c, int rows, int warp, int lane,
                    int (&id)[FEW_TURNS], float (&logit)[FEW_TURNS])
{
    key_set keys[FEW_TURNS];

#pragma unroll
    for (int i = 0; i < FEW_TURNS; i++)
        keys[i] = load_keys(out.keys + min(warp + i * FEW_WARPS, rows - 1) * KEY_EXPERTS, lane);
    choose_turns<FEW_WARPS>(a, out.logits, keys, c, rows, warp, lane, id, logit);
    __syncthreads();
}

// The block's threads: entries by expert, and pairs of them, from the choice.
DEV void few_groups(const lg_cu_route &a, const few_out &out, few_choice &c, int warp, int lane)
{
    int e = (int)threadIdx.x;
    unsigned rows = e < a.n_expert ? c.rows[e] : 0u;
    int n = __popc(rows), mine = n | (n + 1) / LG_CU_GROUP_ROWS << 16, sum = mine; // entries, groups

#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        int v = __shfl_up_sync(0xFFFFFFFFu, sum, (unsigned)o);
        sum += lane >= o ? v : 0;
    }
    if (lane == 31)
        c.sums[warp] = sum;
    __syncthreads();
    sum += (int)__reduce_add_sync(0xFFFFFFFFu, lane < warp ? (unsigned)c.sums[lane] : 0u);
    if (e == FEW_THREADS - 1)
        out.n_group[0] = sum >> 16;
    sum -= mine;
    for (int at = sum & 0xFFFF, tile = sum >> 16; rows != 0; tile++) {
        lg_cu_group g = {e, at, 0, 0};
#pragma unroll
        for (int i = 0; i < LG_CU_GROUP_ROWS; i++) {
            if (rows == 0)
                break;
            int row = __ffs((int)rows) - 1, entry = row * a.k + c.rank[row][e];
            rows &= rows - 1;
            out.entry[at++] = entry;
            g.both |= entry << 16 * i;
            g.n++;
        }
        out.group[tile] = g;
    }
}

static_assert((int)LG_CU_GROUP_ROWS == 2, "both");

// E: experts of a set.
template <int E>
static __global__ void __launch_bounds__(FEW_THREADS, 1)
    route_few_kernel(__grid_constant__ const lg_cu_route a, const few_out out, const lg_cu_step *step)
{
    enum { SUMS = FEW_ROWS * (E > 2 ? 2 : E) }; // at a time; of 16 the compiler makes an array in memory
    __shared__ float part[FEW_WARPS][FEW_ROWS * E];
    __shared__ few_choice choice;
    __shared__ bool last;
    int tid = (int)threadIdx.x, lane = tid % 32, warp = warp_index(), n_in = a.h.cols;
    int block = (int)blockIdx.x * SETS * E, at = tid % (32 * ROUTE_WARPS) * 8,
        row0 = (int)blockIdx.y * FEW_ROWS;
    // the sum that the thread finishes: of a row and an expert
    int index = tid % (FEW_ROWS * E), set = tid / (FEW_ROWS * E), expert = block + set * E + index % E;
    bool finishes = set < SETS && expert < a.n_expert;
    int rows = step_rows(step, a.h.rows), n = min(rows - row0, (int)FEW_ROWS),
        first = block + warp / ROUTE_WARPS * E;
    float bias = finishes && a.bias ? __ldg(&a.bias[expert]) : 0.0f, acc[FEW_ROWS * E / SUMS][SUMS] = {};
    eight w[E][FEW_HELD];

    few_weights<E>(w, a, first, at);
    choice.rows[tid] = 0;
    pdl_wait();
    if (n <= 0)
        return;
#pragma unroll 1
    for (int from = at;; few_weights<E>(w, a, first, from)) {
        eight x[FEW_ROWS][FEW_HELD];
#pragma unroll
        for (int r = 0; r < FEW_ROWS; r++) {
            const float *p = a.h.p + (size_t)(row0 + min(r, n - 1)) * (size_t)a.h.stride + from;
#pragma unroll
            for (int u = 0; u < FEW_HELD; u++)
                if (from + u * FEW_STEP < n_in)
                    x[r][u] = {__ldcg((const float4 *)(p + u * FEW_STEP)),
                               __ldcg((const float4 *)(p + u * FEW_STEP + 4))};
        }
#pragma unroll
        for (int u = 0; u < FEW_HELD; u++)
            if (from + u * FEW_STEP < n_in)
#pragma unroll
                for (int r = 0; r < FEW_ROWS; r++)
#pragma unroll
                    for (int e = 0; e < E; e++) {
                        float &sum = acc[(r * E + e) / SUMS][(r * E + e) % SUMS];
                        sum = dot_eight(w[e][u], x[r][u], sum);
                    }
        from += FEW_HELD * FEW_STEP;
        if (from - at >= n_in)
            break;
    }
#pragma unroll
    for (int j = 0; j < FEW_ROWS * E / SUMS; j++) {
        float sum;
        int i = sums_of<SUMS>(acc[j], 32, lane, &sum);
        if (lane % (32 / SUMS) == 0)
            part[warp][j * SUMS + i] = sum;
    }
    __syncthreads();
    if (finishes && index / E < n) {
        float logit = part[set * ROUTE_WARPS][index];
#pragma unroll
        for (int p = 1; p < ROUTE_WARPS; p++)
            logit += part[set * ROUTE_WARPS + p][index];
        int row = row0 + index / E;
        out.logits[row * a.n_expert + expert] = logit;
        out.keys[row * KEY_EXPERTS + expert] = key_of(score_of(logit) + bias);
    }
    __syncthreads();
    if (tid == 0) {
        last = arrive(&out.n_group[1]) == (int)gridDim.x * ((rows + FEW_ROWS - 1) / FEW_ROWS) - 1;
        if (last)
            out.n_group[1] = 0;
    }
    __syncthreads();
    if (!last)
        return;
    int id[FEW_TURNS] = {};
    float logit[FEW_TURNS] = {};
    few_choose(a, out, choice, rows, warp, lane, id, logit);
    few_groups(a, out, choice, warp, lane);
    store_turns<FEW_WARPS>(a, rows, warp, lane, id, logit);
}

template <int E> static void run(lg_cu *c, const lg_cu_route *a, int rows)
{
    const few_out out = {c->route_keys, c->route_logits, c->entry, c->group, c->n_group};

    share_sm(c, route_few_kernel<E>, 0);
    launch(c, route_few_kernel<E>,
           dim3((unsigned)ceil_div(a->n_expert, SETS * E), (unsigned)ceil_div(rows, FEW_ROWS)), FEW_THREADS,
           0, *a, out, c->step);
}

bool lg_cu_route_few(lg_cu *c, const lg_cu_route *a)
{
    int rows = bucket_rows(c, a->h.rows);

    if (rows < 2 || rows > LG_CU_EXACT_ROWS || a->n_expert > KEY_EXPERTS || a->k > 32 || a->softmax ||
        a->h.cols % 8 != 0 || a->h.stride % 4 != 0 || (((uintptr_t)a->h.p | (uintptr_t)a->router) & 15) != 0)
        return false;
    if (rows <= 4)
        run<1>(c, a, rows);
    else if (rows <= 8)
        run<2>(c, a, rows);
    else
        run<4>(c, a, rows);
    return true;
}
