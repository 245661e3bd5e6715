/*
 * backend/cuda/attn_cluster: how the blocks of a cluster join what each has summed over its keys
 * (attn_few.cu).
 *
 * Each block has a mailbox in its shared memory. A block sends the sums of a run of 32 results to the block
 * that joins it, asynchronously; a barrier beside them counts the bytes, so that nobody waits for the
 * cluster.
 *
 * The only barrier of the cluster, before the kernel's wait, says that the mailboxes are open.
 */
#ifndef LG_BACKEND_CUDA_ATTN_CLUSTER_CUH
#define LG_BACKEND_CUDA_ATTN_CLUSTER_CUH

#include "backend/cuda/attention.cuh"
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/stream.cuh"

enum {
    FEW_WARPS = 8,
    KEYS = 16,         // that a warp takes at a time: a chunk
    CLUSTER = 8,       // blocks of a (KV head, row)
    SENT = 32 * 4 + 8, // bytes that a block sends of a run: sums; max and sum
};

// Runs of 32 results that a block of a cluster joins, at most.
static __host__ __device__ constexpr int joined_runs(int heads)
{
    return (heads * (HEAD / 32) + CLUSTER - 1) / CLUSTER;
}

/* What a row's position says: it sees [lo, p]; base: lo, down to a multiple of KEYS; without a cluster
 * `count` nodes of `keys`. Positions fit 31 bits. */
struct node_plan {
    int p, lo, base, keys, count;
};

/* ---- between blocks ---- */

// What a block gets from others: for `runs` runs of 32 results, which are me, me + N, ...
struct mailbox {
    const float *sums;
    unsigned at, tops, bar; // shared addresses of the sums, of max and sum, of the barrier
    int runs;
};

/* All threads: the mailbox at p is opened; the others' are too at the end. */
template <int N> DEV mailbox open_mailbox(const uint8_t *p, int heads, int me)
{
    mailbox m;
    int all = joined_runs(heads);

    m.sums = (const float *)p;
    m.at = shared_at(p);
    m.tops = m.at + (unsigned)(all * N * 128);
    m.bar = m.tops + (unsigned)(all * N * 8);
    m.runs = (heads * (HEAD / 32) - me + N - 1) / N;
    if (threadIdx.x == 0) {
        bar_init(m.bar);
        if (m.runs > 0)
            bar_expect(m.bar, (unsigned)(m.runs * N * SENT));
        bars_ready();
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    return m;
}

/* The dimensions of a head, four a lane, in the order in which merges hold them: that of the fragments. */
DEV int merged_dim(int lane)
{
    return 64 * (lane / 16) + 16 * (lane % 4) + 4 * (lane % 16 / 4);
}

// Of the runs that a block joins each takes eight lanes, from the last warp on: warps that have keys are
// first.
DEV int joined_by(int warp, int lane)
{
    return 4 * (FEW_WARPS - 1 - warp) + lane / 8;
}

// Of a lane's four results of run `run` of the block's heads: what the gates are made of.
DEV float4 gate_inputs(const attn_args &a, int row, int head0, int run, int lane)
{
    const float *gate = a.gate + (size_t)row * (size_t)a.gate_stride;
    float4 g = {};

    if (!a.gate)
        return g;
    if (!a.elem_gate) {
        g.x = __ldcg(gate + head0 + run / (HEAD / 32));
        return g;
    }
    gate += head0 * HEAD + run * 32 + lane % 8 * 4;
    return make_float4(__ldcg(gate), __ldcg(gate + 1), __ldcg(gate + 2), __ldcg(gate + 3));
}

DEV float4 gates_of(const attn_args &a, float4 g)
{
    if (!a.gate)
        return make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    if (a.elem_gate)
        return make_float4(softplus(g.x), softplus(g.y), softplus(g.z), softplus(g.w));
    float all = softplus(g.x);
    return make_float4(all, all, all, all);
}

DEV float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

[[maybe_unused]] DEV float one_by(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEV float4 fma4(float w, float4 x, float4 acc)
{
    return make_float4(fmaf(w, x.x, acc.x), fmaf(w, x.y, acc.y), fmaf(w, x.z, acc.z), fmaf(w, x.w, acc.w));
}

/* A warp: the sums of its runs from N blocks, when they have come, in the order of the blocks; the results,
 * gated and quantised. inputs: of the gates. */
template <int N>
DEV void join_runs(const attn_args &a, const mailbox &m, int row, int head0, float4 inputs, int me, int warp,
                   int lane)
{
    int mine = joined_by(warp, lane), j = min(mine, m.runs - 1);
    const float *from = m.sums + j * N * 32 + lane % 8 * 4;
    const float4 *tops = (const float4 *)((const uint8_t *)m.sums + (m.tops - m.at)) + j * N / 2;
    int at = head0 * (HEAD / 32) + me + N * j;
    size_t cols = (size_t)a.n_head * HEAD;
    float *out = a.out + (size_t)row * (size_t)a.out_stride + (size_t)(at * 32 + lane % 8 * 4);
    int8_t *codes = a.acts.q + (size_t)row * cols + at * 32;
    int4 *meta = a.acts.meta + (size_t)row * (cols / 32) + at;
    float4 top[N / 2], v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float max = -INFINITY, sum = 0.0f;

    float4 gates = gates_of(a, inputs);
    // now, not behind the wait
    asm volatile("" : "+l"(out), "+l"(codes), "+l"(meta));
    asm volatile("" : "+f"(gates.x), "+f"(gates.y), "+f"(gates.z), "+f"(gates.w));
    sent_wait(m.bar);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        top[i] = tops[i];
        max = fmaxf(max, fmaxf(top[i].x, top[i].z));
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        float weight = power_of_2((i % 2 ? top[i / 2].z : top[i / 2].x) - max);
        sum = fmaf(weight, i % 2 ? top[i / 2].w : top[i / 2].y, sum);
        v = fma4(weight, *(const float4 *)(from + i * 32), v);
    }
    float part = one_by(sum);
    v = make_float4(v.x * (part * gates.x), v.y * (part * gates.y), v.z * (part * gates.z),
                    v.w * (part * gates.w));
    if (mine < m.runs)
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    if (!a.quantise)
        return;
    quad q = quantise4(v);
    if (mine < m.runs)
        store_quad(codes, meta, 0, lane, q);
}

#endif
