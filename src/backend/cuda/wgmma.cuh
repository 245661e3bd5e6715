/*
 * backend/cuda/wgmma: the asynchronous tensor core instruction of sm_90a: d += a b for 64 rows of a in
 * registers (bf16; the lanes hold what mma.m16n8k16 gives them, warp w rows 16w to 16w + 15) and 16 inputs; b
 * lies in shared memory: N rows of 128 bytes, 16-byte chunks swizzled by the row, at a multiple of 1024
 * bytes.
 *
 * Surprise: registers of d and of a are in use until wgmma_wait says otherwise.
 */
#ifndef LG_BACKEND_CUDA_WGMMA_CUH
#define LG_BACKEND_CUDA_WGMMA_CUH

#include "backend/cuda/common.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

DEV unsigned long long wgmma_desc(unsigned smem) // 128-byte swizzle, 1024 bytes from 8 rows to the next 8
{
    return (unsigned long long)((smem & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

/* The same rows when they are the 16 inputs and their 64-element pieces, `next` bytes apart, the columns. */
DEV unsigned long long wgmma_desc_columns(unsigned smem, unsigned next)
{
    return (unsigned long long)((smem & 0x3FFFF) >> 4) | (unsigned long long)(next >> 4) << 16 | 64ull << 32 |
           1ull << 62;
}

DEV void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

DEV void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> DEV void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Generic writes to shared memory become visible to the tensor cores (then a barrier). */
DEV void proxy_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The operands of an instruction with 32 to 96 sums: their places in its text, and the sums themselves. */
#define WGMMA_32                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_48 \
    WGMMA_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_64 \
    WGMMA_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_80 \
    WGMMA_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_96 \
    WGMMA_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

#define WGMMA_SUMS_8(d, i)                                                                      \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define WGMMA_SUMS_16(d, i) WGMMA_SUMS_8(d, i), WGMMA_SUMS_8(d, i + 8)
#define WGMMA_SUMS_32(d) WGMMA_SUMS_16(d, 0), WGMMA_SUMS_16(d, 16)
#define WGMMA_SUMS_48(d) WGMMA_SUMS_32(d), WGMMA_SUMS_16(d, 32)
#define WGMMA_SUMS_64(d) WGMMA_SUMS_48(d), WGMMA_SUMS_16(d, 48)
#define WGMMA_SUMS_80(d) WGMMA_SUMS_64(d), WGMMA_SUMS_16(d, 64)
#define WGMMA_SUMS_96(d) WGMMA_SUMS_80(d), WGMMA_SUMS_16(d, 80)

/* A function for 2 * SUMS columns; A0 to B: the places of its other operands. */
#define WGMMA_BF16(SUMS, COLS, A0, A1, A2, A3, B)                                                       \
    DEV void wgmma(float (&d)[SUMS], const unsigned (&a)[4], unsigned long long b)                      \
    {                                                                                                   \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLS "k16.f32.bf16.bf16 {" WGMMA_##SUMS "}, " \
                     "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", 1, 1, 1, 0;"                   \
                     : WGMMA_SUMS_##SUMS(d)                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                             \
    }

WGMMA_BF16(32, 64, 32, 33, 34, 35, 36)
WGMMA_BF16(48, 96, 48, 49, 50, 51, 52)
WGMMA_BF16(64, 128, 64, 65, 66, 67, 68)
WGMMA_BF16(80, 160, 80, 81, 82, 83, 84)
WGMMA_BF16(96, 192, 96, 97, 98, 99, 100)

/* f16: 64 columns, a in shared memory as well; and 128 columns of wgmma_desc_columns */
DEV void wgmma_f16(float (&d)[32], unsigned long long a, unsigned long long b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WGMMA_32 "}, %32, %33, 1, 1, 1, 0, 0;"
                 : WGMMA_SUMS_32(d)
                 : "l"(a), "l"(b));
}

DEV void wgmma_f16_first(float (&d)[32], unsigned long long a, unsigned long long b) // d = a b
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WGMMA_32 "}, %32, %33, 0, 1, 1, 0, 0;"
                 : WGMMA_SUMS_32(d)
                 : "l"(a), "l"(b));
}

DEV void wgmma_f16_columns(float (&d)[64], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" WGMMA_64
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : WGMMA_SUMS_64(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif
#endif
