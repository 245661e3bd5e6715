/*
 * gguf/quant_blocks: what the decoders, the quantizers and the CPU kernels share and nobody else needs: value
 * tables, little-endian access, and the small floating point scales. Included by gguf/quant*.c and
 * backend/cpu/blocks.h only.
 */
#ifndef LG_GGUF_QUANT_BLOCKS_H
#define LG_GGUF_QUANT_BLOCKS_H

#include <math.h>
#include <string.h>

#include "gguf/quant.h"

enum { QK = 32, QK_K = 256, QK_NVFP4 = 64 }; /* elements of a block: legacy types, K types, NVFP4 */

/* IQ4_NL and IQ4_XS: the 16 levels, denser around zero. */
static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* MXFP4 and NVFP4: twice the E2M1 magnitudes, so that they are integers; scales are halved to match. Code bit
 * 3 is the sign. */
static const int8_t fp4_levels[8] = {0, 1, 2, 3, 4, 6, 8, 12};

static inline uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)v);
    put16(p + 2, (uint16_t)(v >> 16));
}

static inline float get_f16(const uint8_t *p)
{
    return lg_f16_to_f32(get16(p));
}

/* Half of 2^(e - 127). e = 0 and 1 give subnormals; ldexpf is exact there. */
static inline float mxfp4_scale(uint8_t e)
{
    return ldexpf(1.0f, (int)e - 128);
}

/* Half of an unsigned E4M3 value; 0x7F, a NaN there, counts as zero. */
static inline float nvfp4_scale(uint8_t b)
{
    int exp = b >> 3 & 15, man = b & 7;

    if (b == 0x7F)
        return 0.0f;
    return exp ? ldexpf((float)(8 + man), exp - 11) : ldexpf((float)man, -10);
}

/* The eight 6-bit (scale, min) pairs of Q4_K and Q5_K from their 12 bytes. */
static inline void k_scale_min(const uint8_t *b, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = b[j] & 63;
        *min = b[j + 4] & 63;
    } else {
        *scale = (b[j + 4] & 15) | (b[j - 4] >> 6) << 4;
        *min = b[j + 4] >> 4 | (b[j] >> 6) << 4;
    }
}

#endif
