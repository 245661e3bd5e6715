/*
 * backend/cuda/attn_narrow: a chunk of 16 keys in f16 times up to eight queries (attn_few.cu).
 *
 * Keys, and dimensions of values, are the long side of a tensor core's tile, the queries the narrow one: half
 * as many steps and sums as with queries on the long side, where half of them would be nobody's. Keys and
 * values come as ldmatrix gives them, queries stay in registers, and probabilities are turned by movmatrix.
 *
 * Surprise: a 16-byte piece of a key lies where its number xor the key's (of eight) says, so that neither
 * copies nor ldmatrix meet a bank twice; units of keys begin at multiples of 256, so a lane's next piece is
 * one xor away.
 */
#ifndef LG_BACKEND_CUDA_ATTN_NARROW_CUH
#define LG_BACKEND_CUDA_ATTN_NARROW_CUH

#include "backend/cuda/attn_cluster.cuh"

enum { NARROW = 8 }; // queries, at most

/* Of a lane's two heads, 2t and 2t + 1, where lane = 4g + t. acc[m]: dimension 16m + g of both, then 16m + g
 * + 8 of both. */
struct narrow_state {
    enum { PITCH = HEAD + 4 }; // floats of a head in shared memory: no bank twice
    float max_a, max_b, sum_a, sum_b, acc[8][4];
};

DEV int narrow_piece(int key, int piece)
{
    return key * 256 + ((piece ^ (key & 7)) << 4);
}

/* Where a lane's row of the four matrices of a ldmatrix lies in its unit: of keys, of values. The unit is
 * that of the lane's key: the second one of a chunk for half of the lanes. */
DEV unsigned narrow_key_at(int lane)
{
    return (unsigned)narrow_piece(lane & 7, lane >> 4);
}

DEV bool narrow_key_unit(int lane)
{
    return lane & 8;
}

DEV unsigned narrow_value_at(int lane)
{
    return (unsigned)narrow_piece(lane & 7, lane >> 3 & 1);
}

DEV bool narrow_value_unit(int lane)
{
    return lane & 16;
}

DEV void load_matrices(unsigned (&r)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

DEV void load_matrices_turned(unsigned (&r)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

DEV unsigned turned(unsigned x) // of 8 x 8
{
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* Word of the queries in shared memory for dimensions 2m and 2m + 1 of head h; those 32 further are
 * NARROW_NEXT words further. */
enum { NARROW_NEXT = 128 };

DEV unsigned narrow_query_at(int h, int m)
{
    return (unsigned)((h % NARROW * 4 + m % 4) * 4 + m / 4);
}

/* Two registers for each step of 16 dimensions. */
struct narrow_queries {
    uint4 f[4];
};

DEV narrow_queries narrow_load(const uint4 *fragments, int lane)
{
    narrow_queries q;

#pragma unroll
    for (int i = 0; i < 4; i++)
        q.f[i] = fragments[i * 32 + lane];
    return q;
}

/* Scores: of key g with both heads, then of key g + 8. at: the lane's row of the keys. */
DEV void narrow_scores(float (&x)[4], unsigned at, const narrow_queries &q)
{
    float y[4] = {}; // two sums, so that fewer steps wait for each other

#pragma unroll
    for (int h = 0; h < 2; h++) {
        unsigned k[4][4];
#pragma unroll
        for (int s = 0; s < 4; s++)
            load_matrices(k[s], at ^ (unsigned)((4 * h + s) * 32));
#pragma unroll
        for (int s = 0; s < 4; s += 2) {
            const uint4 &f = q.f[2 * h + s / 2];
            mma_f16(x, k[s], f.x, f.y);
            mma_f16(y, k[s + 1], f.z, f.w);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] += y[i];
}

DEV float over_keys_max(float v) // lanes of the same heads
{
    for (int o = 4; o < 32; o *= 2)
        v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, o));
    return v;
}

DEV float over_keys_sum(float v)
{
    for (int o = 4; o < 32; o *= 2)
        v += __shfl_xor_sync(0xFFFFFFFFu, v, o);
    return v;
}

/* Scores of the keys at position s into the state; their probabilities. first: the state is empty. g: lane
 * / 4. */
DEV void few_softmax(narrow_state &st, float (&x)[4], const node_plan &n, int s, bool first, int g,
                     unsigned (&prob)[2])
{
    if (s < n.lo || s + KEYS > n.p + 1)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = s + g + 8 * (i / 2);
            x[i] = key >= n.lo && key <= n.p ? x[i] : -INFINITY;
        }
    float top_a = fmaxf(st.max_a, over_keys_max(fmaxf(x[0], x[2])));
    float top_b = fmaxf(st.max_b, over_keys_max(fmaxf(x[1], x[3])));
    float base_a = top_a == -INFINITY ? 0.0f : top_a, base_b = top_b == -INFINITY ? 0.0f : top_b;
    if (!first && !__all_sync(0xFFFFFFFFu, top_a == st.max_a && top_b == st.max_b)) {
        float old_a = power_of_2(st.max_a - base_a), old_b = power_of_2(st.max_b - base_b);
        st.sum_a *= old_a;
        st.sum_b *= old_b;
#pragma unroll
        for (int m = 0; m < 8; m++) {
            st.acc[m][0] *= old_a, st.acc[m][1] *= old_b;
            st.acc[m][2] *= old_a, st.acc[m][3] *= old_b;
        }
    }
    st.max_a = top_a;
    st.max_b = top_b;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float a = power_of_2(x[2 * h] - base_a), b = power_of_2(x[2 * h + 1] - base_b);
        st.sum_a += a;
        st.sum_b += b;
        prob[h] = turned(pack_f16(a, b));
    }
}

/* What the values of 16 keys add. at: the lane's row of the values. */
DEV void narrow_values(narrow_state &st, const unsigned (&prob)[2], unsigned at)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        unsigned v[4][4];
#pragma unroll
        for (int m = 0; m < 4; m++)
            load_matrices_turned(v[m], at ^ (unsigned)((4 * h + m) * 32));
#pragma unroll
        for (int m = 0; m < 4; m++)
            mma_f16(st.acc[4 * h + m], v[m], prob[0], prob[1]);
    }
}

/* A warp's maxima and sums of its heads; its results to `room`, unless that is NULL. */
DEV void put_state(narrow_state &st, float2 (*top)[FEW_WARPS], float *room, int heads, int warp, int lane)
{
    int g = lane / 4, t = lane % 4;

    st.sum_a = over_keys_sum(st.sum_a);
    st.sum_b = over_keys_sum(st.sum_b);
    if (g == 0) {
        top[2 * t][warp] = make_float2(st.max_a, st.sum_a);
        top[2 * t + 1][warp] = make_float2(st.max_b, st.sum_b);
    }
    __syncwarp(); // nobody reads the ring any more
    if (!room)
        return;
    float *a = room + 2 * t * narrow_state::PITCH + g, *b = a + narrow_state::PITCH;
#pragma unroll
    for (int m = 0; m < 8; m++) {
        a[16 * m] = st.acc[m][0], b[16 * m] = st.acc[m][1];
        a[16 * m + 8] = st.acc[m][2], b[16 * m + 8] = st.acc[m][3];
    }
}

/* The dimensions of a head, four a lane, as they lie there. */
DEV int state_dim(const narrow_state &, int lane)
{
    return 4 * lane;
}

/* A key's place among those that a warp copies at a time, four lanes a key: see attn_few.cu. */
DEV int narrow_copied(int lane)
{
    return (lane & 4) | lane >> 3;
}

#endif
