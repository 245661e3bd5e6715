/*
 * backend/cpu/kernels_vec_neon: the float kernels on 4 lanes (armv8-a). See kernels_vec_simd.h.
 *
 * 32 registers: 6 x 4 accumulators, enough chains for cores that start four fused multiply-adds a cycle.
 */
#include <arm_neon.h>
#include <string.h>

#define VL 4
#define VEC_FIXED 0
typedef float32x4_t vf;
enum { VEC_Q = 6, VEC_Q_F32 = 6, VEC_K = 4, VEC_D = 4, VEC_FETCHES = 1, VEC_FAR = 0, VEC_STREAMS = 0 };
static const int vec_rows_ahead[VEC_FETCHES] = {64};

#define V_INLINE static inline __attribute__((always_inline))

V_INLINE vf v_zero(void)
{
    return vdupq_n_f32(0.0f);
}
V_INLINE vf v_set1(float x)
{
    return vdupq_n_f32(x);
}
V_INLINE vf v_load(const float *p)
{
    return vld1q_f32(p);
}
V_INLINE void v_store(float *p, vf a)
{
    vst1q_f32(p, a);
}
V_INLINE vf v_load_f16(const unsigned short *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
V_INLINE void v_store_f16(unsigned short *p, vf a)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}
V_INLINE vf v_load_i8(const signed char *p)
{
    unsigned four; // no more than the lanes need: a row may end where the mapping does

    memcpy(&four, p, sizeof four);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four))))));
}
V_INLINE vf v_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}
V_INLINE vf v_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}
V_INLINE vf v_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}
V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
V_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return vfmsq_f32(c, a, b);
}
V_INLINE vf v_max(vf a, vf b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b); // fmax would let a NaN through to every lane after it
}
V_INLINE vf v_min(vf a, vf b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
V_INLINE vf v_round(vf a)
{
    return vrndnq_f32(a);
}
V_INLINE vf v_scale(vf a, vf n)
{
    return vmulq_f32(
        a, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23)));
}
V_INLINE float v_max_lanes(vf a)
{
    return vmaxvq_f32(a);
}
V_INLINE void v_sum4(vf a, vf b, vf c, vf d, float *out)
{
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}
V_INLINE void v_sum22(vf a, vf b, vf c, vf d, float *p, float *q)
{
    vf s = vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d));

    vst1_f32(p, vget_low_f32(s));
    vst1_f32(q, vget_high_f32(s));
}
V_INLINE float f16_scalar(unsigned short h)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

#include "backend/cpu/kernels_vec_simd.h"

void lg_cpu_vec_init_neon(lg_vec_kernels *k)
{
    vec_fill(k);
}
