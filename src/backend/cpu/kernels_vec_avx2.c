/*
 * backend/cpu/kernels_vec_avx2: the float kernels on 8 lanes (AVX2, FMA, F16C). See kernels_vec_simd.h.
 *
 * 16 registers: 6 x 2 accumulators, the keys or values of one step and one operand. Twelve independent chains
 * cover the latency of two fused multiply-adds a cycle.
 */
#include <immintrin.h>

#define VL 8
#define VEC_FIXED 0
typedef __m256 vf;
enum { VEC_Q = 6, VEC_Q_F32 = 3, VEC_K = 2, VEC_D = 2, VEC_FETCHES = 1, VEC_FAR = 0, VEC_STREAMS = 0 };
static const int vec_rows_ahead[VEC_FETCHES] = {64};

#define V_INLINE static inline __attribute__((always_inline))

V_INLINE vf v_zero(void)
{
    return _mm256_setzero_ps();
}
V_INLINE vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}
V_INLINE vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
V_INLINE void v_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}
V_INLINE vf v_load_f16(const unsigned short *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
V_INLINE void v_store_f16(unsigned short *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
V_INLINE vf v_load_i8(const signed char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
V_INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
V_INLINE vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
V_INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
V_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
V_INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
V_INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
V_INLINE vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
V_INLINE vf v_scale(vf a, vf n)
{
    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(
                                _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)));
}
V_INLINE float v_max_lanes(vf a)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
V_INLINE __m128 sums(vf a, vf b, vf c, vf d)
{
    vf halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));

    return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
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

void lg_cpu_vec_init_avx2(lg_vec_kernels *k)
{
    vec_fill(k);
}
