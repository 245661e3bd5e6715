/*
 * backend/cpu/kernels_i8mm: gemm by smmla (armv8.6 int8 matrix product): two rows by two columns by eight
 * codes, 32 multiply-adds an instruction. One activation row has no second column to share it with, so gemv
 * stays with sdot.
 */
#include <arm_neon.h>

enum { OPERAND_COLS = 2 };
#define product vmmlaq_s32
static inline __attribute__((always_inline)) int8x16_t operand(const signed char *x0, const signed char *x1)
{
    return vcombine_s8(vld1_s8(x0), vld1_s8(x1));
}

#include "backend/cpu/arm_gemm.h"

static double probe_int8(int64_t rounds)
{
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    int32x4_t v[8];

    for (int i = 0; i < 8; i++)
        v[i] = vdupq_n_s32(0);
    for (int64_t r = 0; r < rounds * 8; r++)
        for (int i = 0; i < 8; i++)
            __asm__ volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(v[i]) : "w"(a), "w"(b));
    return (double)rounds * 64 * 32 * 2;
}

void lg_cpu_init_i8mm(lg_cpu_kernels *k)
{
    k->isa = "i8mm";
    set_gemm(k);
    k->probe_int8 = probe_int8;
}
