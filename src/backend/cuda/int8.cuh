/*
 * backend/cuda/int8: what gemm_int8.cu and gemm_stream.cu share: the instruction that multiplies int8 codes,
 * a run at a time.
 */
#ifndef LG_BACKEND_CUDA_INT8_CUH
#define LG_BACKEND_CUDA_INT8_CUH

#include "backend/cuda/cluster.cuh"

// Sums are kept on top of 1.5 * 2^23, whose bits make them floats at once.
enum { SUM_ZERO = 0x4B400000 };

/* 16 rows of a times 8 columns of b, 32 deep. */
DEV void mma_s8(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"((int)SUM_ZERO));
}

DEV float sum_of(int d)
{
    return __int_as_float(d) - 12582912.0f;
}

/* Codes 0..63 to -32..31. */
DEV unsigned less32(unsigned v)
{
    return ((v | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
}

#endif
