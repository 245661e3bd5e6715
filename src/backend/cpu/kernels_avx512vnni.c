/*
 * backend/cpu/kernels_avx512vnni: the AVX-512 VNNI level (F, BW, DQ, VL, VNNI): quantisation, SwiGLU, probes
 * and the table entries. The products are in avx512_*.h.
 *
 * What this file does not set stays the AVX2 level's, which fills the table first: quantisation by blocks of
 * 32, and unpack of all but Q4_K, Q5_K (whose tiles differ) and Q6_K. The bits are the same at every level
 * (kernels.h).
 */
#include "backend/cpu/avx2_quant.h"
#include "backend/cpu/avx512_float.h"
#include "backend/cpu/avx512_gemm.h"
#include "backend/cpu/avx512_gemv.h"
#include "backend/cpu/avx512_gemv_k.h"

/* ---- activations ---- */

// Lane g = the largest lane of m[g].
LG_INLINE __m256 max_of_8(const __m512 m[8])
{
    const __m512i groups = _mm512_castsi256_si512(_mm256_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13));
    __m512 two[4], four[2], v;

    LG_UNROLL(4)
    for (int i = 0; i < 4; i++)
        two[i] = _mm512_max_ps(_mm512_shuffle_f32x4(m[2 * i], m[2 * i + 1], 0x44),
                               _mm512_shuffle_f32x4(m[2 * i], m[2 * i + 1], 0xEE));
    LG_UNROLL(2)
    for (int i = 0; i < 2; i++)
        four[i] = _mm512_max_ps(_mm512_shuffle_f32x4(two[2 * i], two[2 * i + 1], 0x88),
                                _mm512_shuffle_f32x4(two[2 * i], two[2 * i + 1], 0xDD));
    v = _mm512_max_ps(_mm512_unpacklo_ps(four[0], four[1]), _mm512_unpackhi_ps(four[0], four[1]));
    v = _mm512_max_ps(v, _mm512_permute_ps(v, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm512_castps512_ps256(_mm512_permutexvar_ps(groups, v));
}

// Lane 4 a + b of v to lane 4 b + a.
LG_INLINE __m512i transpose_4x4(__m512i v)
{
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}

// Codes of 64 values, each 32 with a factor of their own.
LG_INLINE __m512i quant_64(const __m512 v[4], const float inverse[2])
{
    __m512i c[4];

    LG_UNROLL(4)
    for (int i = 0; i < 4; i++)
        c[i] = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], _mm512_set1_ps(inverse[i / 2])));
    return transpose_4x4(
        _mm512_packs_epi16(_mm512_packs_epi32(c[0], c[1]), _mm512_packs_epi32(c[2], c[3])));
}

// Lane i = the sum of the 16 codes 16 i and on, from the sums of four codes each.
LG_INLINE __m512i sums_of_16(const __m512i four[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(four[0], four[1]),
                                 _mm512_unpackhi_epi32(four[0], four[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(four[2], four[3]),
                                 _mm512_unpackhi_epi32(four[2], four[3]));

    return transpose_4x4(_mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)));
}

// A block of 256 stays in registers from its maximum to its codes.
static void quant_q256(const float *x, int n, void *row)
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    uint8_t *q = row, *sums = q + lg_act_sums_at(n), *steps = q + lg_act_steps_at(n);
    float *scale = (float *)(void *)(q + lg_act_scales_at(n));

    for (; n > 0; n -= 256, x += 256, q += 256, sums += 32, steps += 32) {
        __m512 v[16], m[8];
        __m512i four[4];
        float inverse[8];

        LG_UNROLL(8)
        for (int g = 0; g < 8; g++) {
            v[2 * g] = _mm512_loadu_ps(x + 32 * g);
            v[2 * g + 1] = _mm512_loadu_ps(x + 32 * g + 16);
            m[g] = _mm512_max_ps(_mm512_abs_ps(v[2 * g]), _mm512_abs_ps(v[2 * g + 1]));
        }
        group8 s = group_steps(LG_ACT_Q256, max_of_8(m));
        _mm256_storeu_ps(inverse, s.inverse);
        LG_UNROLL(4)
        for (int i = 0; i < 4; i++) {
            __m512i codes = quant_64(v + 4 * i, inverse + 2 * i);

            _mm512_storeu_si512(q + 64 * i, codes);
            four[i] = dot_bytes(_mm512_setzero_si512(), _mm512_set1_epi8(1), codes);
        }
        __m512i step = _mm512_permutexvar_epi32(twice, _mm512_castsi256_si512(s.step));
        __m512i sum = _mm512_mullo_epi32(sums_of_16(four), step);
        _mm256_storeu_si256((__m256i *)(void *)sums, _mm512_cvtepi32_epi16(sum));
        _mm256_storeu_si256((__m256i *)(void *)steps, _mm512_cvtepi32_epi16(step));
        *scale++ = _mm256_cvtss_f32(s.scale);
    }
}

/* ---- SwiGLU ---- */

// The AVX2 level's arithmetic on 16 lanes.
LG_INLINE __m512 exp_not_positive(__m512 x)
{
    const __m512 least = _mm512_set1_ps(-87.0f);
    __mmask16 inside = _mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ); // true for NaN, which then goes through
    __m512 from = _mm512_max_ps(least, x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(from, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), from);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    __m512i two_n = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_maskz_mul_ps(inside, p, _mm512_castsi512_ps(two_n));
}

LG_INLINE __m512 swiglu_16(__m512 g, __m512 u)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 e = exp_not_positive(_mm512_or_ps(g, _mm512_set1_ps(-0.0f)));
    __m512 top = _mm512_mask_mov_ps(one, _mm512_movepi32_mask(_mm512_castps_si512(g)), e); // e where negative

    return _mm512_mul_ps(_mm512_mul_ps(g, _mm512_div_ps(top, _mm512_add_ps(one, e))), u);
}

static void swiglu(const float *gate, const float *up, float *out, int n)
{
    for (int i = 0; i < n; i += 16) {
        __mmask16 some = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xFFFF;

        _mm512_mask_storeu_ps(
            out + i, some,
            swiglu_16(_mm512_maskz_loadu_ps(some, gate + i), _mm512_maskz_loadu_ps(some, up + i)));
    }
}

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
    k->type[LG_F32].unpack = unpack_f32_pairs;
    k->type[LG_F32].gemm = gemm_float_zmm;
    k->type[LG_F16].unpack = unpack_f16_pairs;
    k->type[LG_F16].gemm = gemm_float_zmm;
    k->type[LG_BF16].unpack = unpack_bf16_pairs;
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
    k->type[LG_Q6_K].unpack = unpack_q6_k_vnni;
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
    k->quant[LG_ACT_Q256] = quant_q256;
    k->swiglu = swiglu;
    k->probe_read = probe_read;
    k->probe_int8 = probe_int8;
}
