/*
 * backend/cpu/kernels_avx2: the AVX2 level (with FMA and F16C): quantisation, SwiGLU, probes, and the table
 * entries. The products are in avx2_*.h, one file a family.
 *
 * gemv reads rows in place for the types that models are published in; for the others the reference stays,
 * since their bits are the same, while their gemm multiplies here after blocks.h has unpacked a tile.
 */
#include "backend/cpu/avx2_float.h"
#include "backend/cpu/avx2_k_gemm.h"
#include "backend/cpu/avx2_q32.h"
#include "backend/cpu/avx2_quant.h"

/* ---- activations ---- */

// Lane i = the largest lane of v[i].
LG_INLINE __m256 max_of_8(const __m256 v[8])
{
    __m256 two[4], four[2];

    for (int i = 0; i < 4; i++)
        two[i] = _mm256_max_ps(_mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                               _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        four[i] = _mm256_max_ps(_mm256_shuffle_ps(two[2 * i], two[2 * i + 1], _MM_SHUFFLE(1, 0, 1, 0)),
                                _mm256_shuffle_ps(two[2 * i], two[2 * i + 1], _MM_SHUFFLE(3, 2, 3, 2)));
    return _mm256_max_ps(_mm256_permute2f128_ps(four[0], four[1], 0x20),
                         _mm256_permute2f128_ps(four[0], four[1], 0x31));
}

// 32 values to codes, and their two sums of 16. Each 16 have a factor of their own.
LG_INLINE void quant_32(const float *x, __m256 first, __m256 second, int8_t *q, int sums[2])
{
    __m256i v[4];

    for (int i = 0; i < 4; i++)
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), i < 2 ? first : second));
    __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, packed);

    // vpsadbw sums unsigned bytes: shift the codes up by 128 and take 8 * 128 off each sum of eight.
    __m256i up =
        _mm256_sad_epu8(_mm256_xor_si256(packed, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
    __m256i sum = _mm256_add_epi64(up, _mm256_unpackhi_epi64(up, up));
    sums[0] = _mm_extract_epi16(_mm256_castsi256_si128(sum), 0) - 16 * 128;
    sums[1] = _mm_extract_epi16(_mm256_extracti128_si256(sum, 1), 0) - 16 * 128;
}

LG_INLINE void quant_row(lg_act_kind kind, const float *x, int n, uint8_t *row)
{
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    const int group = lg_act_group(kind), per_32 = 32 / group;
    int8_t *q = (int8_t *)row;
    int16_t *sums = (int16_t *)(void *)(row + lg_act_sums_at(n));
    int16_t *steps = (int16_t *)(void *)(row + lg_act_steps_at(n));
    float *scales = (float *)(void *)(row + lg_act_scales_at(n));

    for (int at = 0; at < n; at += 8 * group) {
        int groups = n - at < 8 * group ? (n - at) / group : 8;
        float inverse[8], scale[8];
        int32_t step[8];
        __m256 m[8];

        for (int g = 0; g < 8; g++) {
            m[g] = _mm256_setzero_ps();
            for (int i = 0; g < groups && i < group; i += 8)
                m[g] = _mm256_max_ps(m[g], _mm256_and_ps(_mm256_loadu_ps(x + at + group * g + i), no_sign));
        }
        group8 s = group_steps(kind, max_of_8(m));
        _mm256_storeu_ps(inverse, s.inverse);
        _mm256_storeu_ps(scale, s.scale);
        _mm256_storeu_si256((__m256i *)step, s.step);
        for (int i = 0; i < groups * group / 32; i++, sums += 2, steps += 2, q += 32) {
            int first = per_32 * i, second = first + per_32 - 1, sum[2];

            quant_32(x + at + 32 * i, _mm256_set1_ps(inverse[first]), _mm256_set1_ps(inverse[second]), q,
                     sum);
            steps[0] = (int16_t)step[first];
            steps[1] = (int16_t)step[second];
            sums[0] = (int16_t)(step[first] * sum[0]);
            sums[1] = (int16_t)(step[second] * sum[1]);
            if (i % (lg_act_block(kind) / 32) == 0)
                *scales++ = scale[first];
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

// exp(x) for x <= 0: 2^n times a polynomial in r, |r| <= ln(2) / 2; 0 below the smallest normal.
LG_INLINE __m256 exp_not_positive(__m256 x)
{
    const __m256 least = _mm256_set1_ps(-87.0f);
    __m256 inside = _mm256_cmp_ps(x, least, _CMP_NLT_UQ); // true for NaN, which then goes through
    __m256 n = _mm256_round_ps(_mm256_mul_ps(_mm256_max_ps(least, x), _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), _mm256_max_ps(least, x));
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i two_n = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(two_n)), inside);
}

LG_INLINE __m256 swiglu_8(__m256 g, __m256 u)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    __m256 e = exp_not_positive(_mm256_or_ps(g, sign));
    __m256 top = _mm256_blendv_ps(one, e, g); // e where g is negative

    return _mm256_mul_ps(_mm256_mul_ps(g, _mm256_div_ps(top, _mm256_add_ps(one, e))), u);
}

static void swiglu(const float *gate, const float *up, float *out, int n)
{
    int i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, swiglu_8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
    if (i < n) { // the same arithmetic on padded copies
        size_t rest = (size_t)(n - i) * sizeof(float);
        float g[8] = {0}, u[8] = {0};

        memcpy(g, gate + i, rest);
        memcpy(u, up + i, rest);
        _mm256_storeu_ps(g, swiglu_8(_mm256_loadu_ps(g), _mm256_loadu_ps(u)));
        memcpy(out + i, g, rest);
    }
}

/* ---- probes ---- */

static uint64_t probe_read(const void *p, size_t bytes)
{
    const uint8_t *at = p;
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};

    for (size_t i = 0; i < bytes; i += 256) {
        fetch(at + LG_AHEAD + i, 256);
        for (int j = 0; j < 4; j++)
            sum[j] = _mm256_xor_si256(
                sum[j], _mm256_xor_si256(load256(at + i + 64 * j), load256(at + i + 64 * j + 32)));
    }
    __m256i s = _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
    __m128i h = _mm_xor_si128(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(h, _mm_unpackhi_epi64(h, h)));
}

// vpmaddubsw alone, 32 products each, eight at a time from registers. The asm keeps the compiler from folding
// them.
static double probe_int8(int64_t rounds)
{
    __m256i u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(5), v[8];

    for (int64_t r = 0; r < rounds * 8; r++) {
        for (int i = 0; i < 8; i++)
            __asm__ volatile("vpmaddubsw %2, %1, %0" : "=x"(v[i]) : "x"(u), "x"(s));
    }
    return (double)rounds * 64 * 32 * 2;
}

/* ---- table ---- */

static void set(lg_cpu_kernels *k, lg_qtype type, void (*unpack)(const lg_mat *, int, int, void *),
                void (*gemm)(const void *, int, int, const lg_acts *, const int32_t *, int, float *, size_t),
                void (*gemv)(const lg_mat *, int, int, const void *, float *))
{
    k->type[type].unpack = unpack;
    k->type[type].gemm = gemm;
    if (gemv)
        k->type[type].gemv = gemv;
}

void lg_cpu_init_avx2(lg_cpu_kernels *k)
{
    k->isa = "avx2";
    set(k, LG_F32, unpack_f32, gemm_float, gemv_f32);
    set(k, LG_F16, unpack_f16, gemm_float, gemv_f16);
    set(k, LG_BF16, unpack_bf16, gemm_float, gemv_bf16);
    set(k, LG_Q8_0, unpack_q8_0, gemm_runs32, gemv_q8_0);
    set(k, LG_Q4_K, unpack_q4_k, gemm_q4_k, gemv_q4_k);
    set(k, LG_Q5_K, unpack_q5_k, gemm_q5_k, gemv_q5_k);
    set(k, LG_Q6_K, unpack_q6_k, gemm_q6_k, gemv_q6_k);
    set(k, LG_Q4_0, unpack_Q4_0, gemm_runs32, NULL);
    set(k, LG_Q5_0, unpack_Q5_0, gemm_runs32, NULL);
    set(k, LG_IQ4_NL, unpack_IQ4_NL, gemm_runs32, NULL);
    set(k, LG_MXFP4, unpack_MXFP4, gemm_runs32, NULL);
    set(k, LG_Q4_1, unpack_Q4_1, gemm_runs32_min, NULL);
    set(k, LG_Q5_1, unpack_Q5_1, gemm_runs32_min, NULL);
    set(k, LG_NVFP4, unpack_NVFP4, gemm_runs16, NULL);
    set(k, LG_Q2_K, unpack_Q2_K, gemm_signed_k_min, NULL);
    set(k, LG_Q3_K, unpack_Q3_K, gemm_signed_k, NULL);
    set(k, LG_IQ4_XS, unpack_IQ4_XS, gemm_signed_k, NULL);
    k->quant[LG_ACT_Q32] = quant_q32;
    k->quant[LG_ACT_Q256] = quant_q256;
    k->swiglu = swiglu;
    k->probe_read = probe_read;
    k->probe_int8 = probe_int8;
}
