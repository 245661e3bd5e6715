/*
 * backend/cpu/avx512_common: what the AVX-512 VNNI kernels share, on top of the AVX2 level's headers.
 *
 * This level reads the AVX2 level's tiles (a step of four codes of 16 rows is one zmm), except for Q4_K and
 * Q5_K (avx512_k_tile.h). vpdpbusd multiplies unsigned by signed bytes and does not saturate: signed codes
 * w go in as w + 128, which is w ^ 0x80, and 128 times the sum of the activations, known from quantisation,
 * comes off.
 */
#ifndef LG_BACKEND_CPU_AVX512_COMMON_H
#define LG_BACKEND_CPU_AVX512_COMMON_H

#include "backend/cpu/avx2_common.h"

// Entry points of the AVX2 level: in the table already, from its own object.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "backend/cpu/avx2_k_tile.h"
#include "backend/cpu/avx2_q32.h"
#pragma GCC diagnostic pop

LG_INLINE __m512i load512(const void *p)
{
    return _mm512_loadu_si512(p);
}
/* The same, once: for values used twice, which the compiler would rather load twice. A row's loads mostly
 * touch two cache lines. */
LG_INLINE __m512i load512_once(const void *p)
{
    __m512i v = load512(p);

    __asm__("" : "+v"(v));
    return v;
}
/* The four bytes at p in every lane: an operand from memory, no arithmetic unit. */
LG_INLINE __m512i broadcast512_i32(const void *p)
{
    return _mm512_set1_epi32(load_i32(p));
}
LG_INLINE __m512i two_256(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
LG_INLINE __m512i broadcast512_i64(const void *p)
{
    int64_t v;

    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi64(v);
}
/* Lane j of the low half plus lane j of the high half. */
LG_INLINE __m256i fold_i32(__m512i v)
{
    return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}
/* a | (b & c). */
LG_INLINE __m512i or_and(__m512i a, __m512i b, __m512i c)
{
    return _mm512_ternarylogic_epi32(a, b, c, 0xF8);
}
/* Signed bytes plus 128, as unsigned bytes. */
LG_INLINE __m512i up_128(__m512i v)
{
    return _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80));
}

#endif
