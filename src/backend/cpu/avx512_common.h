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
/* What goes to L1 is asked for once more, LG_AGAIN later, and before the rows of the call begin just as
 * within them: Zen 5 drops what it has no room for among its misses (docs/decisions/0250). `to_l2` is a
 * constant where these are inlined. */
enum { LG_AGAIN = 2048 };
typedef struct streams {
    stream first, again;
} streams;

LG_INLINE streams streams_of(const lg_mat *w, int row, int n_rows)
{
    return (streams){stream_of(w, row, n_rows, 0), stream_of(w, row, n_rows, LG_AGAIN)};
}

/* Part i of `parts` of a step. v comes back as it is: compilers would gather requests that hang on nothing.
 */
LG_INLINE __m512i fetch_part_512(bool to_l2, const streams *s, int bytes, int i, int parts, __m512i v)
{
    for (int l = first_line(bytes, i, parts); l < first_line(bytes, i + 1, parts); l++) {
        if (to_l2) {
            __asm__ volatile("prefetcht1 %1" : "+v"(v) : "m"(s->first.at[64 * l]));
        } else {
            __asm__ volatile("prefetcht0 %1" : "+v"(v) : "m"(s->first.at[64 * l]));
            __asm__ volatile("prefetcht0 %1" : "+v"(v) : "m"(s->again.at[64 * l]));
        }
    }
    return v;
}

LG_INLINE void pass_on_512(bool to_l2, streams *s, int bytes)
{
    pass_on(&s->first, bytes);
    if (!to_l2)
        pass_on(&s->again, bytes);
}
/*
 * Sums start from a zero of their own, and are added to in place. Compilers copy one zero, and copy sums
 * around their loops: thirty-two vmovdqa64 beside 64 products, each of which waits for a multiplier where the
 * renamer does not take it (docs/decisions/0245). vpxor of an xmm costs no execution; its name ends at
 * register 15.
 */
LG_INLINE __m512i zero512(void)
{
    __m512i v;

    __asm__ volatile("vpxor %x0, %x0, %x0" : "=x"(v));
    return v;
}
/* acc + unsigned bytes of w times signed bytes of a, by fours. */
LG_INLINE __m512i dot_bytes(__m512i acc, __m512i w, __m512i a)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(a));
    return acc;
}
/* The same, the four bytes at p in every lane: part of the instruction. */
LG_INLINE __m512i dot_bytes_at(__m512i acc, __m512i w, const void *p)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const int32_t *)p));
    return acc;
}
/* p + n in a register of its own: with an index beside it the address would take an instruction's place in
 * the queue (Intel's processors split an operand from memory off when its address has two registers). */
LG_INLINE const uint8_t *step_on(const uint8_t *p, size_t n)
{
    p += n;
    __asm__("" : "+r"(p));
    return p;
}
/* acc + int16 of a times int16 of b, by twos. */
LG_INLINE __m512i dot_words(__m512i acc, __m512i a, __m512i b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}
/* The same, b in memory: part of the instruction. */
LG_INLINE __m512i dot_words_of(__m512i acc, __m512i a, const void *p)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "m"(*(const __m512i *)p));
    return acc;
}
LG_INLINE __m512i dot_words_at(__m512i acc, __m512i a, const void *p)
{
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(a), "m"(*(const int32_t *)p));
    return acc;
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
