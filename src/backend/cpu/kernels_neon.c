/*
 * backend/cpu/kernels_neon: the arm64 baseline: quantisation, SwiGLU, probes, tiles, and products by smull
 * and pairwise adds. kernels_dotprod.c and kernels_i8mm.c replace the products; the tiles stay.
 */
#include <arm_neon.h>

// Lane i of acc += the products of bytes 4 i .. 4 i + 3. An int16 holds two products: 2 * 128 * 127.
static inline __attribute__((always_inline)) int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t a)
{
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(a)), high = vmull_high_s8(w, a);

    return vpadalq_s16(acc, vpaddq_s16(low, high));
}

enum { OPERAND_COLS = 1 };
#define product dot16
static inline __attribute__((always_inline)) int8x16_t operand(const signed char *x0, const signed char *x1)
{
    int8x8_t a = vld1_s8(x0);

    (void)x1;
    return vcombine_s8(a, a);
}

#include "backend/cpu/arm_float.h"
#include "backend/cpu/arm_gemm.h"
#include "backend/cpu/arm_gemv.h"

/* ---- activations ---- */

// 16 values to codes and their sum.
LG_INLINE int quant_16(const float *x, float inverse, int8_t *q)
{
    int16x4_t h[4];

    for (int i = 0; i < 4; i++)
        h[i] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), inverse)));
    int8x16_t v = vcombine_s8(vqmovn_s16(vcombine_s16(h[0], h[1])), vqmovn_s16(vcombine_s16(h[2], h[3])));
    vst1q_s8(q, v);
    return vaddlvq_s8(v);
}

LG_INLINE float largest(const float *x, int n)
{
    float32x4_t m = vdupq_n_f32(0.0f);

    for (int i = 0; i < n; i += 4)
        m = vmaxq_f32(m, vabsq_f32(vld1q_f32(x + i)));
    return vmaxvq_f32(m);
}

LG_INLINE void quant_row(lg_act_kind kind, const float *x, int n, uint8_t *row)
{
    const int block = lg_act_block(kind), group = lg_act_group(kind);
    const float top = (float)lg_act_steps(kind);
    int8_t *q = (int8_t *)row;
    int16_t *sums = (int16_t *)(void *)(row + lg_act_sums_at(n));
    int16_t *steps = (int16_t *)(void *)(row + lg_act_steps_at(n));
    float *scales = (float *)(void *)(row + lg_act_scales_at(n));

    for (int b = 0; b < n; b += block) {
        float most[8], max = 0.0f;
        for (int g = 0; g < block / group; g++) {
            most[g] = largest(x + b + group * g, group);
            max = most[g] > max || most[g] != most[g] ? most[g] : max;
        }
        bool zero = !(max >= 0x1p-100f);
        float unit = zero ? 0.0f : top / max, inverse = zero ? 0.0f : 127.0f * top / max;
        scales[b / block] = zero ? 0.0f : max / (127.0f * top);
        for (int i = b; i < b + block; i += 16) {
            float step = __builtin_ceilf(most[(i - b) / group] * unit);
            step = step >= 1.0f ? (step <= top ? step : top) : 1.0f; // 1 for NaN
            steps[i / 16] = (int16_t)step;
            sums[i / 16] = (int16_t)((int)step * quant_16(x + i, inverse / step, q + i));
        }
    }
}

static void quant_q32(const float *x, int n, void *row)
{
    quant_row(LG_ACT_Q32, x, n, row);
}

static void quant_q256(const float *x, int n, void *row)
{
    quant_row(LG_ACT_Q256, x, n, row);
}

/* ---- SwiGLU ---- */

// e^x for x <= 0: 2^n times the Taylor series of e^r, |r| <= ln 2 / 2; 0 below the smallest normal.
LG_INLINE float32x4_t exp_not_positive(float32x4_t x)
{
    uint32x4_t below = vcltq_f32(x, vdupq_n_f32(-87.0f));
    float32x4_t v = vmaxq_f32(x, vdupq_n_f32(-87.0f)), n = vrndnq_f32(vmulq_n_f32(v, 1.44269504f));
    float32x4_t r = vfmsq_f32(vfmsq_f32(v, n, vdupq_n_f32(0.693359375f)), n, vdupq_n_f32(-2.12194440e-4f));
    float32x4_t p = vdupq_n_f32(1.0f / 5040);

    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    int32x4_t two_n = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    float32x4_t e = vmulq_f32(p, vreinterpretq_f32_s32(two_n));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(e), below));
}

LG_INLINE float32x4_t swiglu_4(float32x4_t g, float32x4_t u)
{
    float32x4_t one = vdupq_n_f32(1.0f), e = exp_not_positive(vnegq_f32(vabsq_f32(g)));
    float32x4_t top = vbslq_f32(vcltzq_f32(g), e, one);

    return vmulq_f32(vmulq_f32(g, vdivq_f32(top, vaddq_f32(one, e))), u);
}

static void swiglu(const float *gate, const float *up, float *out, int n)
{
    int i = 0;

    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, swiglu_4(vld1q_f32(gate + i), vld1q_f32(up + i)));
    if (i < n) { // the same arithmetic on padded copies
        size_t rest = (size_t)(n - i) * sizeof(float);
        float g[4] = {0}, u[4] = {0};

        memcpy(g, gate + i, rest);
        memcpy(u, up + i, rest);
        vst1q_f32(g, swiglu_4(vld1q_f32(g), vld1q_f32(u)));
        memcpy(out + i, g, rest);
    }
}

/* ---- probes ---- */

static uint64_t probe_read(const void *p, size_t bytes)
{
    const uint8_t *at = p;
    uint8x16_t sum[8];

    for (int j = 0; j < 8; j++)
        sum[j] = vdupq_n_u8(0);
    for (size_t i = 0; i < bytes; i += 128)
        for (int j = 0; j < 8; j++)
            sum[j] = veorq_u8(sum[j], vld1q_u8(at + i + 16 * j));
    for (int j = 1; j < 8; j++)
        sum[0] = veorq_u8(sum[0], sum[j]);
    uint64x2_t v = vreinterpretq_u64_u8(sum[0]);
    return vgetq_lane_u64(v, 0) ^ vgetq_lane_u64(v, 1);
}

// smull: 8 products an instruction. The asm keeps the compiler from folding them.
static double probe_int8(int64_t rounds)
{
    int8x8_t a = vdup_n_s8(3), b = vdup_n_s8(5);
    int16x8_t v[8];

    for (int64_t r = 0; r < rounds * 8; r++)
        for (int i = 0; i < 8; i++)
            __asm__ volatile("smull %0.8h, %1.8b, %2.8b" : "=w"(v[i]) : "w"(a), "w"(b));
    return (double)rounds * 64 * 8 * 2;
}

/* ---- table ---- */

#define RUN_UNPACK(id)                                                        \
    static void unpack_##id(const lg_mat *w, int row, int n_rows, void *tile) \
    {                                                                         \
        unpack_runs(LG_##id, w, row, n_rows, tile);                           \
    }

RUN_UNPACK(Q8_0)
RUN_UNPACK(Q4_0)
RUN_UNPACK(Q4_1)
RUN_UNPACK(Q5_0)
RUN_UNPACK(Q5_1)
RUN_UNPACK(IQ4_NL)
RUN_UNPACK(MXFP4)
RUN_UNPACK(NVFP4)
RUN_UNPACK(Q2_K)
RUN_UNPACK(Q3_K)
RUN_UNPACK(Q4_K)
RUN_UNPACK(Q5_K)
RUN_UNPACK(Q6_K)
RUN_UNPACK(IQ4_XS)

static void set_float(lg_type_kernels *t, void (*gemv)(const lg_mat *, int, int, const void *, float *),
                      void (*unpack)(const lg_mat *, int, int, void *))
{
    t->gemv = gemv;
    t->unpack = unpack;
    t->gemm = gemm_float;
}

void lg_cpu_init_neon(lg_cpu_kernels *k)
{
    k->isa = "neon";
    set_float(&k->type[LG_F32], gemv_f32, unpack_f32);
    set_float(&k->type[LG_F16], gemv_f16, unpack_f16);
    set_float(&k->type[LG_BF16], gemv_bf16, unpack_bf16);
    set_gemv(k);
    set_gemm(k);
    k->type[LG_Q8_0].unpack = unpack_Q8_0;
    k->type[LG_Q4_0].unpack = unpack_Q4_0;
    k->type[LG_Q4_1].unpack = unpack_Q4_1;
    k->type[LG_Q5_0].unpack = unpack_Q5_0;
    k->type[LG_Q5_1].unpack = unpack_Q5_1;
    k->type[LG_IQ4_NL].unpack = unpack_IQ4_NL;
    k->type[LG_MXFP4].unpack = unpack_MXFP4;
    k->type[LG_NVFP4].unpack = unpack_NVFP4;
    k->type[LG_Q2_K].unpack = unpack_Q2_K;
    k->type[LG_Q3_K].unpack = unpack_Q3_K;
    k->type[LG_Q4_K].unpack = unpack_Q4_K;
    k->type[LG_Q5_K].unpack = unpack_Q5_K;
    k->type[LG_Q6_K].unpack = unpack_Q6_K;
    k->type[LG_IQ4_XS].unpack = unpack_IQ4_XS;
    k->quant[LG_ACT_Q32] = quant_q32;
    k->quant[LG_ACT_Q256] = quant_q256;
    k->swiglu = swiglu;
    k->probe_read = probe_read;
    k->probe_int8 = probe_int8;
}
