/*
 * backend/cpu/kernels_dotprod: products by sdot (armv8.2 dot product): 16 multiply-adds an instruction, exact
 * in int32. Tiles, activations and the rest are the NEON level's.
 */
#include <arm_neon.h>

static inline __attribute__((always_inline)) int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t a)
{
    return vdotq_s32(acc, w, a);
}

enum { OPERAND_COLS = 1 };
#define product dot16
static inline __attribute__((always_inline)) int8x16_t operand(const signed char *x0, const signed char *x1)
{
    int8x8_t a = vld1_s8(x0);

    (void)x1;
    return vcombine_s8(a, a);
}

#include "backend/cpu/arm_gemm.h"
#include "backend/cpu/arm_gemv.h"

static double probe_int8(int64_t rounds)
{
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    int32x4_t v[8];

    for (int i = 0; i < 8; i++)
        v[i] = vdupq_n_s32(0);
    for (int64_t r = 0; r < rounds * 8; r++)
        for (int i = 0; i < 8; i++)
            __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(v[i]) : "w"(a), "w"(b));
    return (double)rounds * 64 * 16 * 2;
}

void lg_cpu_init_dotprod(lg_cpu_kernels *k)
{
    k->isa = "dotprod";
    set_gemv(k);
    set_gemm(k);
    k->probe_int8 = probe_int8;
}
