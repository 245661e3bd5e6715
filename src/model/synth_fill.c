/*
 * model/synth_fill: the counter-based generator of synthetic weights.
 *
 * Word k of block b of tensor t is splitmix64 of (seed, t) at counter b * W + k, W words a block. Quants are
 * those words as bytes; scales are then set to values that give weights a spread of about 0.02, as trained
 * ones have, and that are normal numbers in f16. A float element is the sum of the four 16-bit quarters of
 * its word, near enough to a normal distribution.
 *
 * Surprise: written so that any IEEE machine gives the same bits: integer arithmetic and single f32
 * operations. The one addition behind a multiplication, in gauss, must not be contracted.
 */
#include <string.h>

#include "model/synth.h"

// Weyl increment and finalizer of splitmix64.
static const uint64_t golden = 0x9E3779B97F4A7C15u;

static uint64_t mix64(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static uint64_t word(uint64_t key, uint64_t counter)
{
    return mix64(key + golden * (counter + 1));
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are stored as they lie in memory");

// Random bytes of a block, 8 a word; the word behind them is returned for its scales.
static uint64_t fill_bytes(uint64_t key, uint64_t counter, uint8_t *b, int n)
{
    for (; n > 0; n -= 8, b += 8) {
        uint64_t w = word(key, counter++);
        memcpy(b, &w, n < 8 ? (size_t)n : 8);
    }
    return word(key, counter);
}

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

// Sets an f16 to `centre` times a number in [0.7, 1.3) taken from 16 random bits; returns what a reader sees.
static float put_scale(uint8_t *p, float centre, uint64_t random)
{
    uint32_t n = 45875 + (uint32_t)((random & 0xFFFF) * 39322 >> 16); // of 65536
    uint16_t h = lg_f32_to_f16(centre * 0x1p-16f * (float)n);

    put16(p, h);
    return lg_f16_to_f32(h);
}

// The minimum that centres the codes: a multiple of the scale, negative where the format adds it.
static void put_min(uint8_t *p, float scale, float factor)
{
    put16(p, lg_f32_to_f16(scale * factor));
}

// `gain` widens the spread of 0.02; MXFP4 and NVFP4, whose scales are not f16, have no other spread.
static void set_scales(lg_qtype type, uint8_t *b, uint64_t r, float gain)
{
    switch (type) {
    case LG_Q8_0:
        put_scale(b, 2.7e-4f * gain, r);
        for (int i = 2; i < 34; i++)
            b[i] = b[i] == 0x80 ? 0x81 : b[i]; // quantizers never write -128
        break;
    case LG_Q4_0:
        put_scale(b, 4.3e-3f * gain, r);
        break;
    case LG_Q4_1:
        put_min(b + 2, put_scale(b, 4.3e-3f * gain, r), -7.5f);
        break;
    case LG_Q5_0:
        put_scale(b, 2.2e-3f * gain, r);
        break;
    case LG_Q5_1:
        put_min(b + 2, put_scale(b, 2.2e-3f * gain, r), -15.5f);
        break;
    case LG_Q2_K:
        put_min(b + 82, put_scale(b + 80, 1.4e-3f * gain, r), 1.5f);
        break;
    case LG_Q3_K:
        put_scale(b + 108, 4.6e-4f * gain, r);
        break;
    case LG_Q4_K:
        put_min(b + 2, put_scale(b, 1.2e-4f * gain, r), 7.5f);
        break;
    case LG_Q5_K: // 5 of the 6 bits of scales and mins, so that d need not be subnormal
        put_min(b + 2, put_scale(b, 1.2e-4f * gain, r), 15.5f);
        for (int i = 4; i < 12; i++)
            b[i] &= 0x5F;
        break;
    case LG_Q6_K: // scales in [-10, 10], for the same reason
        put_scale(b + 208, 1.4e-4f * gain, r);
        for (int i = 192; i < 208; i++)
            b[i] = (uint8_t)((b[i] * 21 >> 8) - 10);
        break;
    case LG_IQ4_NL:
        put_scale(b, 3.1e-4f * gain, r);
        break;
    case LG_IQ4_XS: { // scales 28 + t for t in 0..7, that is -4..3 after the offset of 32
        uint16_t high = 0;

        put_scale(b, 1.3e-4f * gain, r);
        for (int j = 0; j < 8; j++) {
            unsigned t = 28 + (unsigned)(r >> (16 + 3 * j) & 7);
            high |= (uint16_t)((t >> 4) << 2 * j);
            b[4 + j / 2] = (uint8_t)(j & 1 ? (b[4 + j / 2] & 15) | (t & 15) << 4 : t & 15);
        }
        put16(b + 2, high);
        break;
    }
    case LG_MXFP4:
        b[0] = (uint8_t)(119 + (r & 1) + (r >> 1 & 1));
        break;
    case LG_NVFP4: // E4M3 codes of 2/512 to 5/512
        for (int i = 0; i < 4; i++)
            b[i] = (uint8_t)(2 + (r >> 2 * i & 3));
        break;
    default:
        LG_ASSERT(!"a block type");
    }
}

// The sum of four uniform 16-bit numbers has mean 131070 and standard deviation 37837.
static float gauss(uint64_t w, float mean, float spread)
{
    int32_t sum = (int32_t)((w & 0xFFFF) + (w >> 16 & 0xFFFF) + (w >> 32 & 0xFFFF) + (w >> 48)) - 131070;

    return mean + spread * (1.0f / 37837.0f) * (float)sum;
}

static void fill_floats(uint64_t key, lg_qtype type, float mean, float spread, uint64_t first, uint64_t n,
                        uint8_t *p)
{
    for (uint64_t i = 0; i < n; i++) {
        float v = gauss(word(key, first + i), mean, spread);
        uint32_t u;

        memcpy(&u, &v, sizeof u);
        if (type == LG_F32)
            memcpy(p + 4 * i, &u, sizeof u);
        else if (type == LG_BF16) // finite, so rounding to nearest even is this alone
            put16(p + 2 * i, (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16));
        else
            put16(p + 2 * i, lg_f32_to_f16(v));
    }
}

void lg_synth_fill(uint64_t seed, uint32_t index, lg_qtype type, float mean, float spread, uint64_t block0,
                   uint64_t n_blocks, void *dst)
{
    const lg_qtype_info *t = lg_qtype_get((uint32_t)type);
    uint64_t key = mix64(seed + golden * ((uint64_t)index + 1));
    uint64_t words = ((uint64_t)t->block_bytes + 7) / 8 + 1;
    uint8_t *b = dst;

    LG_ASSERT(t->runs);
    if (t->block_elems == 1) {
        fill_floats(key, type, mean, spread, block0, n_blocks, b);
        return;
    }
    for (uint64_t i = 0; i < n_blocks; i++, b += t->block_bytes)
        set_scales(type, b, fill_bytes(key, (block0 + i) * words, b, t->block_bytes),
                   spread / LG_SYNTH_SPREAD);
}
