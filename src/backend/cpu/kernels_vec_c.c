/*
 * backend/cpu/kernels_vec_c: the float kernels as plain loops: the definition, and the fallback on any
 * machine.
 *
 * Sums run in double, except where the contract in kernels_vec.h fixes the operations (pv).
 */
#include "backend/cpu/kernels_vec.h"

#include <math.h>
#include <string.h>

#include "gguf/quant.h"

static void qk_f32(const float *q, int nq, const float *k, int nk, int dim, float *s, int s_stride,
                   const void *ahead)
{
    (void)ahead;
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nk; j++) {
            double sum = 0;
            for (int d = 0; d < dim; d++)
                sum += (double)q[i * dim + d] * (double)k[j * dim + d];
            s[i * s_stride + j] = (float)sum;
        }
}

static void qk_f16(const float *q, int nq, const uint16_t *k, int nk, int dim, float *s, int s_stride,
                   const void *ahead)
{
    (void)ahead;
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nk; j++) {
            double sum = 0;
            for (int d = 0; d < dim; d++)
                sum += (double)q[i * dim + d] * (double)lg_f16_to_f32(k[j * dim + d]);
            s[i * s_stride + j] = (float)sum;
        }
}

static void pv_f32(const float *p, int p_stride, int nq, const float *v, int nv, int dim, float *acc,
                   const void *ahead)
{
    (void)ahead;
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nv; j++)
            for (int d = 0; d < dim; d++)
                acc[i * dim + d] = fmaf(p[i * p_stride + j], v[j * dim + d], acc[i * dim + d]);
}

static void pv_f16(const float *p, int p_stride, int nq, const uint16_t *v, int nv, int dim, float *acc,
                   const void *ahead)
{
    (void)ahead;
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nv; j++)
            for (int d = 0; d < dim; d++)
                acc[i * dim + d] = fmaf(p[i * p_stride + j], lg_f16_to_f32(v[j * dim + d]), acc[i * dim + d]);
}

static float max_of(const float *x, int n)
{
    float m = x[0];

    for (int i = 1; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

static float exp_sum(float *x, int n, float max)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += (double)x[i];
    }
    return (float)sum;
}

static float exp_sum_of(const float *x, int n, float max)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)expf(x[i] - max);
    return (float)sum;
}

static void axpby(float *y, float a, const float *x, float b, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = a * y[i] + b * x[i];
}

static void add(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += x[i];
}

static void scale(float *y, float a, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = a * x[i];
}

static void rmsnorm(float *out, const float *x, const float *w, int n, float eps)
{
    double squares = 0;

    for (int i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    double inv = 1.0 / sqrt(squares / n + (double)eps);
    for (int i = 0; i < n; i++)
        out[i] = (float)((double)x[i] * inv * (double)w[i]);
}

static void rope(float *x, const float *cos, const float *sin, int half)
{
    for (int j = 0; j < half; j++) {
        float a = x[j], b = x[half + j];
        x[j] = a * cos[j] - b * sin[j];
        x[half + j] = b * cos[j] + a * sin[j];
    }
}

static void f16_from_f32(uint16_t *dst, const float *src, int n)
{
    for (int i = 0; i < n; i++) {
        float v = src[i] > 65504.0f ? 65504.0f : src[i] < -65504.0f ? -65504.0f : src[i];
        dst[i] = lg_f32_to_f16(v);
    }
}

static void f32_from_f16(float *dst, const uint16_t *src, int n)
{
    for (int i = 0; i < n; i++)
        dst[i] = lg_f16_to_f32(src[i]);
}

static void f32_from_q8_0(float *dst, const void *src, int n)
{
    lg_dequant_row(LG_Q8_0, src, dst, n);
}

void lg_cpu_vec_init_c(lg_vec_kernels *k)
{
    *k = (lg_vec_kernels){.qk_f32 = qk_f32,
                          .qk_f16 = qk_f16,
                          .pv_f32 = pv_f32,
                          .pv_f16 = pv_f16,
                          .max = max_of,
                          .exp_sum = exp_sum,
                          .exp_sum_of = exp_sum_of,
                          .axpby = axpby,
                          .scale = scale,
                          .add = add,
                          .rmsnorm = rmsnorm,
                          .rope = rope,
                          .f16_from_f32 = f16_from_f32,
                          .f32_from_f16 = f32_from_f16,
                          .f32_from_q8_0 = f32_from_q8_0};
}
