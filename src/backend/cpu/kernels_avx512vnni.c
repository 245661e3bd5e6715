/*
 * backend/cpu/kernels_avx512vnni: the AVX-512 VNNI level (F, BW, DQ, VL, VNNI): probes and the table entries.
 * The products are in avx512_*.h.
 *
 * What this file does not set stays the AVX2 level's, which fills the table first: quantisation, SwiGLU, and
 * unpack of all but Q4_K and Q5_K, whose tiles differ. The bits are the same at every level (kernels.h).
 */
#include "backend/cpu/avx512_float.h"
#include "backend/cpu/avx512_gemm.h"
#include "backend/cpu/avx512_gemv.h"
#include "backend/cpu/avx512_gemv_k.h"

/* ---- probes ---- */

static uint64_t probe_read(const void *p, size_t bytes)
{
    const uint8_t *at = p;
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};

    for (size_t i = 0; i < bytes; i += 256) {
        fetch(at + LG_AHEAD + i, 256);
        for (int j = 0; j < 4; j++)
            sum[j] = _mm512_xor_si512(sum[j], load512(at + i + 64 * j));
    }
    __m512i s = _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
    __m256i h = _mm256_xor_si256(_mm512_castsi512_si256(s), _mm512_extracti64x4_epi64(s, 1));
    __m128i q = _mm_xor_si128(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(q, _mm_unpackhi_epi64(q, q)));
}

#define MULTIPLY(n) "vpdpbusd %1, %0, %%zmm" #n "\n\t"

// vpdpbusd alone, 64 products each, from registers: 16 sums, enough to cover its latency.
static double probe_int8(int64_t rounds)
{
    __m512i u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(5);

    for (int64_t r = 0; r < rounds * 4; r++)
        __asm__ volatile(MULTIPLY(16) MULTIPLY(17) MULTIPLY(18) MULTIPLY(19) MULTIPLY(20) MULTIPLY(21)
                         MULTIPLY(22) MULTIPLY(23) MULTIPLY(24) MULTIPLY(25) MULTIPLY(26) MULTIPLY(27)
                         MULTIPLY(28) MULTIPLY(29) MULTIPLY(30) MULTIPLY(31)
                         :
                         : "v"(u), "v"(s)
                         : "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24",
                           "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
    return (double)rounds * 64 * 64 * 2;
}

/* ---- table ---- */

void lg_cpu_init_avx512vnni(lg_cpu_kernels *k)
{
    k->isa = "avx512vnni";
    k->type[LG_F32].gemm = gemm_float_zmm;
    k->type[LG_F16].gemm = gemm_float_zmm;
    k->type[LG_BF16].gemm = gemm_float_zmm;
    k->type[LG_Q8_0].gemm = gemm_runs32_vnni;
    k->type[LG_Q4_0].gemm = gemm_runs32_vnni;
    k->type[LG_Q5_0].gemm = gemm_runs32_vnni;
    k->type[LG_IQ4_NL].gemm = gemm_runs32_vnni;
    k->type[LG_MXFP4].gemm = gemm_runs32_vnni;
    k->type[LG_Q4_1].gemm = gemm_runs32_min_vnni;
    k->type[LG_Q5_1].gemm = gemm_runs32_min_vnni;
    k->type[LG_NVFP4].gemm = gemm_runs16_vnni;
    k->type[LG_Q4_K].unpack = unpack_q4_k_vnni;
    k->type[LG_Q4_K].gemm = gemm_q4_k_vnni;
    k->type[LG_Q5_K].unpack = unpack_q5_k_vnni;
    k->type[LG_Q5_K].gemm = gemm_q5_k_vnni;
    k->type[LG_Q6_K].gemm = gemm_q6_k_vnni;
    k->type[LG_Q2_K].gemm = gemm_signed_k_min_vnni;
    k->type[LG_Q3_K].gemm = gemm_signed_k_vnni;
    k->type[LG_IQ4_XS].gemm = gemm_signed_k_vnni;
    k->type[LG_Q4_K].rows = rows_q4_k_vnni;
    k->type[LG_Q5_K].rows = rows_q5_k_vnni;
    k->type[LG_Q6_K].rows = rows_q6_k_vnni;
    k->type[LG_Q8_0].rows = rows_q8_0_vnni;
    k->type[LG_Q8_0].gemv = gemv_q8_0_vnni;
    k->type[LG_Q4_K].gemv = gemv_q4_k_vnni;
    k->type[LG_Q5_K].gemv = gemv_q5_k_vnni;
    k->type[LG_Q6_K].gemv = gemv_q6_k_vnni;
    k->probe_read = probe_read;
    k->probe_int8 = probe_int8;
}
