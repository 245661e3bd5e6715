/*
 * backend/cuda/attn_wgmma: pieces of the attentions on the tensor cores of sm_90a (attn_wgmma.cu,
 * attn_follow.cu): tiles of 64 rows of f16 (queries, keys, values) in shared memory, as two panels of 64
 * dimensions, and what becomes of the scores of 64 queries and 64 keys.
 */
#ifndef LG_BACKEND_CUDA_ATTN_WGMMA_CUH
#define LG_BACKEND_CUDA_ATTN_WGMMA_CUH

#include "backend/cuda/attention.cuh"
#include "backend/cuda/wgmma.cuh"

enum {
    PANEL = LG_KV_BLOCK * 128,
    STAGE_BYTES = 4 * PANEL // K, V
};

// Where 16-byte chunk c of a row of a tile lies.
[[maybe_unused]] DEV int panel_chunk(int row, int c)
{
    return (c >> 3) * PANEL + row * 128 + (((c & 7) ^ (row & 7)) << 4);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

DEV float exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Scores to probabilities, in f16 fragments; *old is what earlier sums of the row are worth now.
template <int HALF> DEV void softmax(float (&s)[32], float &max, float &sum, float &old, unsigned (&p)[4][4])
{
    const float log2e = 1.44269504f;
    float top = max;

#pragma unroll
    for (int j = 0; j < 8; j++)
        top = fmaxf(top, fmaxf(s[4 * j + 2 * HALF], s[4 * j + 2 * HALF + 1]));
    top = quad_max(top);
    float base = top == -INFINITY ? 0.0f : top * log2e;
    old = exp2_of(fmaf(max, log2e, -base));
    max = top;
    sum *= old;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float x = exp2_of(fmaf(s[4 * j + 2 * HALF], log2e, -base));
        float y = exp2_of(fmaf(s[4 * j + 2 * HALF + 1], log2e, -base));
        sum += x + y;
        p[j / 2][2 * (j % 2) + HALF] = pack_f16(x, y);
    }
}

template <int N> DEV void hold(float (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(v[i])::"memory");
}

// Scores of a warpgroup's 64 queries and a block's keys.
DEV void block_scores(float (&s)[32], unsigned long long q, unsigned long long k)
{
    wgmma_fence();
    wgmma_f16_first(s, q, k);
#pragma unroll
    for (int i = 1; i < 8; i++)
        wgmma_f16(s, q + (unsigned)(i / 4 * PANEL + i % 4 * 32) / 16,
                  k + (unsigned)(i / 4 * PANEL + i % 4 * 32) / 16);
    wgmma_commit();
}

// Sums of rows g and g + 8, to what they are worth now.
DEV void scale_sums(float (&acc)[64], float old_a, float old_b)
{
#pragma unroll
    for (int i = 0; i < 64; i++)
        acc[i] *= i & 2 ? old_b : old_a;
}

// No scores for keys that rows g and g + 8 of the warp do not see: [lo_a, p_a], [lo_b, p_b]; the block begins
// at start.
DEV void hide_scores(float (&s)[32], int start, int t, int lo_a, int p_a, int lo_b, int p_b)
{
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int key = start + 8 * (i / 4) + 2 * t + (i & 1);
        bool seen = i & 2 ? key >= lo_b && key <= p_b : key >= lo_a && key <= p_a;
        s[i] = seen ? s[i] : -INFINITY;
    }
}

// acc += probabilities times the block's values.
DEV void block_values(float (&acc)[64], const unsigned (&p)[4][4], unsigned long long v)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma_f16_columns(acc, p[i], v + (unsigned)(i * 16 * 128) / 16);
    wgmma_commit();
}

#endif
#endif
