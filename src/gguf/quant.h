/*
 * gguf/quant: tensor element types, their block layouts, and the C reference (de)quantizers.
 *
 * Type numbers are those of the GGUF container. The decoders are the definition that every kernel is held to:
 * plain loops, f32 results, byte-wise access (blocks need no alignment). Sources: the container's published
 * block layouts. Pure functions without state; any thread.
 *
 * Surprise: the info table also knows formats that we cannot run, so that inspect can size and name them.
 * Only types with `runs` may be handed to the (de)quantizers; the loader refuses the others by name.
 */
#ifndef LG_GGUF_QUANT_H
#define LG_GGUF_QUANT_H

#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

typedef enum lg_qtype {
    LG_F32 = 0,
    LG_F16 = 1,
    LG_Q4_0 = 2,
    LG_Q4_1 = 3,
    LG_Q5_0 = 6,
    LG_Q5_1 = 7,
    LG_Q8_0 = 8,
    LG_Q2_K = 10,
    LG_Q3_K = 11,
    LG_Q4_K = 12,
    LG_Q5_K = 13,
    LG_Q6_K = 14,
    LG_IQ4_NL = 20,
    LG_IQ4_XS = 23,
    LG_I32 = 26, /* metadata-like tensors only, never a matrix */
    LG_BF16 = 30,
    LG_MXFP4 = 39,
    LG_NVFP4 = 40,
    LG_QTYPE_MAX = 41,
} lg_qtype;

typedef struct lg_qtype_info {
    const char *name; /* "Q4_K"; NULL: number not known to us */
    int block_elems;  /* elements in a block; rows are whole blocks */
    int block_bytes;
    bool runs; /* may be a weight matrix */
} lg_qtype_info;

/* Never NULL; an unknown number gives an entry whose name is NULL. */
const lg_qtype_info *lg_qtype_get(uint32_t type);
/* By name, case-insensitive ("q4_k", "BF16"), among the types that run. */
bool lg_qtype_find(lg_str name, lg_qtype *out);
/* Bytes of a row of n elements; false when n is not a multiple of the block or the product overflows. */
LG_NODISCARD bool lg_row_bytes(lg_qtype type, uint64_t n, size_t *out);

/* n elements (a multiple of the block) of a type that runs, from src to dst. */
void lg_dequant_row(lg_qtype type, const void *src, float *dst, int64_t n);
/* The same in the other direction, as each format's plain quantizer (no importance) does; n as above, finite
 * values. False for types without one (F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K MXFP4 NVFP4 have
 * one), and when a scale does not fit the format; dst is then unspecified. */
LG_NODISCARD bool lg_quant_row(lg_qtype type, const float *src, void *dst, int64_t n);

/* A float's bits, and back. */
static inline uint32_t lg_f32_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}
static inline float lg_f32_of_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* Scalar conversions, IEEE round to nearest even; infinity is kept, a NaN becomes or stays a quiet NaN. */
float lg_f16_to_f32(uint16_t h);
uint16_t lg_f32_to_f16(float f);
float lg_bf16_to_f32(uint16_t h);
uint16_t lg_f32_to_bf16(float f);

#endif
