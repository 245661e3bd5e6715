/*
 * backend/cpu/kernels_vec: the float half of the kernel table: attention, norms, rotary embedding, softmax,
 * KV types.
 *
 * kernels.h embeds this struct as `vec`. kernels_vec_c.c defines every entry; kernels_vec_simd.h is one
 * implementation over a vector of 4, 8 or 16 floats that the ISA files instantiate. Entries keep no state and
 * may run on any thread.
 *
 * What surprises, and what callers lean on: the result for one query and one key (qk) or one query and one
 * dim (pv) never depends on how many queries and keys the call has, nor on which of the types holds the same
 * values. So blocking is free to follow the cache, and a row of 16 gets the bits of a row alone. One ISA
 * level against another agrees within the tolerances below, not in bits.
 *
 * Exactness against double, tested by kcheck:
 *   qk, rmsnorm  rel 1e-6 of the sum of |terms|      pv    rel 2e-6 of the sum of |terms| for 256 keys
 *   exp_sum      each term rel 4e-7 + abs 1e-37      rope, axpby  rel 3e-7 of the sum of |terms|
 *   max, conversions: exact
 */
#ifndef LG_BACKEND_CPU_KERNELS_VEC_H
#define LG_BACKEND_CPU_KERNELS_VEC_H

#include <stddef.h>
#include <stdint.h>

typedef struct lg_vec_kernels {
    /* s[i * s_stride + j] = q_i . k_j for nq queries and nk keys of dim floats; queries lie dim apart, keys
     * dim apart. dim is a multiple of 16. `ahead` (may be NULL): what is read next, rows of the same type of
     * which up to 64 are asked for meanwhile; where there are fewer, what lies behind is, too. */
    void (*qk_f32)(const float *q, int nq, const float *k, int nk, int dim, float *s, int s_stride,
                   const void *ahead);
    void (*qk_f16)(const float *q, int nq, const uint16_t *k, int nk, int dim, float *s, int s_stride,
                   const void *ahead);
    /* acc[i * dim + d] += sum_j p[i * p_stride + j] * v_j[d], j ascending, one fused multiply-add each. */
    void (*pv_f32)(const float *p, int p_stride, int nq, const float *v, int nv, int dim, float *acc,
                   const void *ahead);
    void (*pv_f16)(const float *p, int p_stride, int nq, const uint16_t *v, int nv, int dim, float *acc,
                   const void *ahead);

    float (*max)(const float *x, int n);                 /* n >= 1; a NaN is passed over or is the result */
    float (*exp_sum)(float *x, int n, float max);        /* x = exp(x - max), x <= max; returns the sum */
    float (*exp_sum_of)(const float *x, int n, float max); /* the sum alone, x untouched */
    /* y = a y + b x, b x rounded first: with a = 1 the bits of a multiplication and an addition */
    void (*axpby)(float *y, float a, const float *x, float b, int n);
    void (*add)(float *y, const float *x, int n);                     /* y += x */
    void (*scale)(float *y, float a, const float *x, int n);          /* y = a x */

    void (*rmsnorm)(float *out, const float *x, const float *w, int n, float eps); /* out may be x */
    /* Pairs (x[j], x[j + half]) turn by the angle of (cos[j], sin[j]), j < half. */
    void (*rope)(float *x, const float *cos, const float *sin, int half);

    /* n floats to f16, nearest even. Values beyond +-65504 become +-65504: an infinite key would turn the
     * scores of all later rows into NaN, a large one does what it meant. NaN stays NaN. */
    void (*f16_from_f32)(uint16_t *dst, const float *src, int n);
    void (*f32_from_f16)(float *dst, const uint16_t *src, int n);
    void (*f32_from_q8_0)(float *dst, const void *src, int n); /* n a multiple of 32 */
} lg_vec_kernels;

/* Each fills the entries it has; called from the weakest level to the strongest by lg_cpu_kernels_init. */
void lg_cpu_vec_init_c(lg_vec_kernels *k);
void lg_cpu_vec_init_avx2(lg_vec_kernels *k);   /* AVX2, FMA, F16C */
void lg_cpu_vec_init_avx512(lg_vec_kernels *k); /* AVX-512 F, BW, DQ, VL; called for the avx512vnni level */
void lg_cpu_vec_init_avx512_l2(lg_vec_kernels *k); /* the same with LG_CPU_TO_L2 */
void lg_cpu_vec_init_neon(lg_vec_kernels *k);

#endif
