/*
 * backend/cpu/avx512_vec: the float kernels on 16 lanes (AVX-512 F, DQ), of which there are two, by where
 * they fetch to. See kernels_vec_simd.h.
 *
 * 32 registers: 6 x 4 accumulators.
 */
#include <immintrin.h>

#define VL 16
#define VEC_FIXED 1
typedef __m512 vf;
enum { VEC_Q = 6, VEC_Q_F32 = 6, VEC_K = 4, VEC_D = 4 };

#define V_INLINE static inline __attribute__((always_inline))

V_INLINE vf v_zero(void)
{
    return _mm512_setzero_ps();
}
V_INLINE vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
V_INLINE vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
V_INLINE void v_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
V_INLINE vf v_load_f16(const unsigned short *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
V_INLINE void v_store_f16(unsigned short *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
V_INLINE vf v_load_i8(const signed char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
V_INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
V_INLINE vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
V_INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
V_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
V_INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
V_INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
V_INLINE vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
V_INLINE vf v_scale(vf a, vf n)
{
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, _mm512_set1_ps(-126.0f), _CMP_GE_OQ), a, n);
}
V_INLINE float v_max_lanes(vf a)
{
    return _mm512_reduce_max_ps(a);
}
// Lane i: the sum of vector i. Transposing adds in whole vectors: eight shuffles, all on one port, in place
// of the eleven that adding halves first takes.
V_INLINE __m128 sums(vf a, vf b, vf c, vf d)
{
    vf ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    vf cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    vf all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                           _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));

    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
V_INLINE void v_sum4(vf a, vf b, vf c, vf d, float *out)
{
    _mm_storeu_ps(out, sums(a, b, c, d));
}
V_INLINE void v_sum22(vf a, vf b, vf c, vf d, float *p, float *q)
{
    __m128 s = sums(a, b, c, d);

    _mm_storel_pi((__m64 *)p, s);
    _mm_storeh_pi((__m64 *)q, s);
}
V_INLINE float f16_scalar(unsigned short h)
{
    return _cvtsh_ss(h);
}

#include "backend/cpu/kernels_vec_simd.h"
