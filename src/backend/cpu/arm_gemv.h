/*
 * backend/cpu/arm_gemv: one activation row times rows in place, for the level of the including file, which
 * defines dot16(acc, w, a)   lane i of acc += the products of bytes 4 i .. 4 i + 3
 *
 * Four rows at a time, so that their sums end as lanes of one vector. Types without a function of their own
 * go through runs of integers (arm_tile.h), which costs the decoder's scalar code and gives the same bits.
 */
#ifndef LG_BACKEND_CPU_ARM_GEMV_H
#define LG_BACKEND_CPU_ARM_GEMV_H

#include "backend/cpu/arm_tile.h"

/* Lane i = sum of the lanes of row i. */
LG_INLINE int32x4_t sum_rows(const int32x4_t v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

LG_INLINE float32x4_t four_f16(const uint8_t *const p[4], size_t at)
{
    uint16_t h[4];

    for (int i = 0; i < 4; i++)
        memcpy(&h[i], p[i] + at, sizeof h[i]);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
}

LG_INLINE void store_rows(float *y, float32x4_t v, int n)
{
    float lane[4];

    vst1q_f32(lane, v);
    memcpy(y, lane, (size_t)(n < 4 ? n : 4) * sizeof *lane);
}

static void gemv_q8_0(const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const int8_t *q = x;
    const int16_t *steps = act_steps(x, w->n_in);
    const float *da = act_scales(x, w->n_in);

    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4];
        float32x4_t acc = vdupq_n_f32(0.0f);

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (int b = 0; b < w->n_in / 32; b++) {
            int8x16_t a0 = vld1q_s8(q + 32 * b), a1 = vld1q_s8(q + 32 * b + 16);
            int32x4_t dot[4];
            for (int i = 0; i < 4; i++) {
                const int8_t *c = (const int8_t *)p[i] + (size_t)b * 34 + 2;
                int32x4_t first = dot16(vdupq_n_s32(0), vld1q_s8(c), a0);
                int32x4_t second = dot16(vdupq_n_s32(0), vld1q_s8(c + 16), a1);
                dot[i] = vmlaq_n_s32(vmulq_n_s32(first, steps[2 * b]), second, steps[2 * b + 1]);
            }
            acc =
                vfmaq_f32(acc, vmulq_n_f32(four_f16(p, (size_t)b * 34), da[b]), vcvtq_f32_s32(sum_rows(dot)));
        }
        store_rows(y + r, acc, n_rows - r);
    }
}

/* Products of one block of Q4_K, or Q5_K with `five`, and of its mins with the activation sums of 32. */
LG_INLINE void block_q45_k(bool five, const uint8_t *b, const int8_t *q, int16x8_t sums32, int16x8_t steps32,
                           int32x4_t *dot, int32x4_t *min)
{
    uint8x8_t s8, m8;
    int32_t scale[8];

    scales_q45_k(b, &s8, &m8);
    int16x8_t s16 = vmulq_s16(vreinterpretq_s16_u16(vmovl_u8(s8)), steps32);
    vst1q_s32(scale, vmovl_s16(vget_low_s16(s16)));
    vst1q_s32(scale + 4, vmovl_high_s16(s16));
    int16x8_t m16 = vreinterpretq_s16_u16(vmovl_u8(m8));
    *min = vmlal_high_s16(vmull_s16(vget_low_s16(m16), vget_low_s16(sums32)), m16, sums32);
    *dot = vdupq_n_s32(0);
    for (int g = 0; g < 4; g++) {
        int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
        for (int u = 0; u < 2; u++) {
            uint8x16_t c0, c1;
            codes_q45_k(b + (five ? 48 : 16), five ? b + 16 : NULL, g, u, &c0, &c1);
            low = dot16(low, vreinterpretq_s8_u8(c0), vld1q_s8(q + 64 * g + 16 * u));
            high = dot16(high, vreinterpretq_s8_u8(c1), vld1q_s8(q + 64 * g + 32 + 16 * u));
        }
        *dot = vmlaq_n_s32(vmlaq_n_s32(*dot, low, scale[2 * g]), high, scale[2 * g + 1]);
    }
}

LG_INLINE void gemv_q45_k(bool five, const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const size_t bytes = five ? 176 : 144;
    const int16_t *sums = act_sums(x, w->n_in), *steps = act_steps(x, w->n_in);
    const float *da = act_scales(x, w->n_in);

    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4];
        float32x4_t acc = vdupq_n_f32(0.0f);

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (int b = 0; b < w->n_in / 256; b++) {
            int16x8_t sums32 = vpaddq_s16(vld1q_s16(sums + 16 * b), vld1q_s16(sums + 16 * b + 8));
            int16x8_t steps32 = vuzp1q_s16(vld1q_s16(steps + 16 * b), vld1q_s16(steps + 16 * b + 8));
            int32x4_t dot[4], min[4];
            for (int i = 0; i < 4; i++)
                block_q45_k(five, p[i] + (size_t)b * bytes, (const int8_t *)x + 256 * b, sums32, steps32,
                            &dot[i], &min[i]);
            float32x4_t d = vmulq_n_f32(four_f16(p, (size_t)b * bytes), da[b]);
            float32x4_t m = vmulq_n_f32(four_f16(p, (size_t)b * bytes + 2), da[b]);
            acc = vfmaq_f32(acc, d, vcvtq_f32_s32(sum_rows(dot)));
            acc = vfmsq_f32(acc, m, vcvtq_f32_s32(sum_rows(min)));
        }
        store_rows(y + r, acc, n_rows - r);
    }
}

static void gemv_q4_k(const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    gemv_q45_k(false, w, row, n_rows, x, y);
}

static void gemv_q5_k(const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    gemv_q45_k(true, w, row, n_rows, x, y);
}

static void gemv_q6_k(const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const int16_t *steps = act_steps(x, w->n_in);
    const float *da = act_scales(x, w->n_in);

    for (int r = 0; r < n_rows; r += 4) {
        const uint8_t *p[4];
        float32x4_t acc = vdupq_n_f32(0.0f);

        row_pointers(w, row + r, n_rows - r, 4, p);
        for (int b = 0; b < w->n_in / 256; b++) {
            const int8_t *q = (const int8_t *)x + 256 * b;
            int32x4_t dot[4];
            for (int i = 0; i < 4; i++) {
                const uint8_t *block = p[i] + (size_t)b * 210;
                int8x16_t scales = vld1q_s8((const int8_t *)block + 192);
                int16_t scale[16];
                vst1q_s16(scale, vmulq_s16(vmovl_s8(vget_low_s8(scales)), vld1q_s16(steps + 16 * b)));
                vst1q_s16(scale + 8, vmulq_s16(vmovl_high_s8(scales), vld1q_s16(steps + 16 * b + 8)));
                dot[i] = vdupq_n_s32(0);
                for (int hu = 0; hu < 4; hu++) {
                    int h = hu / 2, u = hu % 2;
                    int8x16_t code[4];
                    codes_q6_k(block, h, u, code);
                    for (int t = 0; t < 4; t++)
                        dot[i] = vmlaq_n_s32(
                            dot[i], dot16(vdupq_n_s32(0), code[t], vld1q_s8(q + 128 * h + 32 * t + 16 * u)),
                            scale[8 * h + 2 * t + u]);
                }
            }
            acc = vfmaq_f32(acc, vmulq_n_f32(four_f16(p, (size_t)b * 210 + 208), da[b]),
                            vcvtq_f32_s32(sum_rows(dot)));
        }
        store_rows(y + r, acc, n_rows - r);
    }
}

/* Any quantised type, a run at a time. */
LG_INLINE void gemv_runs(lg_qtype type, const lg_mat *w, int row, int n_rows, const void *x, float *y)
{
    const run_form f = form_of(type);
    const int elems = form_elems(f), groups = elems / 16;
    const float *da = act_scales(x, w->n_in);
    lg_terms t = {0};

    for (int i = 0; i < n_rows; i++) {
        float acc = 0.0f;
        for (int r = 0; r < w->n_in / elems; r++) {
            const int8_t *q = (const int8_t *)x + r * elems;
            const int16_t *sums = act_sums(x, w->n_in) + r * groups,
                          *steps = act_steps(x, w->n_in) + r * groups;
            int32x4_t dot = vdupq_n_s32(0);
            int32_t min = 0;
            terms_get(type, w->p + (size_t)(row + i) * w->row_bytes, r, &t);
            for (int g = 0; g < groups; g++) {
                int32x4_t part = dot16(vdupq_n_s32(0), vld1q_s8(t.code + 16 * g), vld1q_s8(q + 16 * g));
                dot = vmlaq_n_s32(dot, part, form_scaled(f) ? t.scale[g] * steps[g] : steps[g]);
                if (form_has_min(f))
                    min += t.min[g] * sums[g];
            }
            float a = da[r * elems / (elems == 256 ? 256 : 32)];
            acc = __builtin_fmaf(t.d * a, (float)vaddvq_s32(dot), acc);
            if (form_has_min(f))
                acc = __builtin_fmaf(t.m * a, (float)min, acc);
        }
        y[i] = acc;
    }
}

#define RUN_GEMV(id)                                                                     \
    static void gemv_##id(const lg_mat *w, int row, int n_rows, const void *x, float *y) \
    {                                                                                    \
        gemv_runs(LG_##id, w, row, n_rows, x, y);                                        \
    }

RUN_GEMV(Q4_0)
RUN_GEMV(Q4_1)
RUN_GEMV(Q5_0)
RUN_GEMV(Q5_1)
RUN_GEMV(IQ4_NL)
RUN_GEMV(MXFP4)
RUN_GEMV(NVFP4)
RUN_GEMV(Q2_K)
RUN_GEMV(Q3_K)
RUN_GEMV(IQ4_XS)

static void set_gemv(lg_cpu_kernels *k)
{
    k->type[LG_Q8_0].gemv = gemv_q8_0;
    k->type[LG_Q4_K].gemv = gemv_q4_k;
    k->type[LG_Q5_K].gemv = gemv_q5_k;
    k->type[LG_Q6_K].gemv = gemv_q6_k;
    k->type[LG_Q4_0].gemv = gemv_Q4_0;
    k->type[LG_Q4_1].gemv = gemv_Q4_1;
    k->type[LG_Q5_0].gemv = gemv_Q5_0;
    k->type[LG_Q5_1].gemv = gemv_Q5_1;
    k->type[LG_IQ4_NL].gemv = gemv_IQ4_NL;
    k->type[LG_MXFP4].gemv = gemv_MXFP4;
    k->type[LG_NVFP4].gemv = gemv_NVFP4;
    k->type[LG_Q2_K].gemv = gemv_Q2_K;
    k->type[LG_Q3_K].gemv = gemv_Q3_K;
    k->type[LG_IQ4_XS].gemv = gemv_IQ4_XS;
}

#endif
