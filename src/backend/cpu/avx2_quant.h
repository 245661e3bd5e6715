/*
 * backend/cpu/avx2_quant: steps and scales of quantised activations, for the AVX2 and AVX-512 levels.
 *
 * The order of the divisions is the contract's (`quant` in kernels.h): the bits depend on it.
 */
#ifndef LG_BACKEND_CPU_AVX2_QUANT_H
#define LG_BACKEND_CPU_AVX2_QUANT_H

#include "backend/cpu/avx2_common.h"

// Steps, factors and scales of eight groups; lane g of `max` is the largest magnitude of group g.
typedef struct group8 {
    __m256 inverse, scale; // of each group
    __m256i step;
} group8;

LG_INLINE group8 group_steps(lg_act_kind kind, __m256 max)
{
    const __m256 one = _mm256_set1_ps(1.0f), top = _mm256_set1_ps((float)lg_act_steps(kind));
    const __m256 all = _mm256_set1_ps(127.0f * (float)lg_act_steps(kind));
    __m256 block = _mm256_max_ps(max, _mm256_permute_ps(max, _MM_SHUFFLE(2, 3, 0, 1)));

    if (kind == LG_ACT_Q256) { // all eight groups are one block
        block = _mm256_max_ps(block, _mm256_permute_ps(block, _MM_SHUFFLE(1, 0, 3, 2)));
        block = _mm256_max_ps(block, _mm256_permute2f128_ps(block, block, 1));
    }
    __m256 some = _mm256_cmp_ps(block, _mm256_set1_ps(0x1p-100f), _CMP_GE_OQ);
    __m256 step = _mm256_and_ps(_mm256_ceil_ps(_mm256_mul_ps(max, _mm256_div_ps(top, block))), some);
    step = _mm256_min_ps(_mm256_max_ps(step, one), top); // the second operand where the first is NaN
    return (group8){
        .inverse = _mm256_and_ps(_mm256_div_ps(_mm256_div_ps(all, block), step), some),
        .scale = _mm256_and_ps(_mm256_div_ps(block, all), some),
        .step = _mm256_cvtps_epi32(step),
    };
}

#endif
