/*
 * backend/cpu/blocks: any quantised block as plain integers.
 *
 * Every format says the same thing in its own bits: small integer codes, an integer scale for each 16 of
 * them, now and then an integer min, and one or two f32 scales over all. lg_terms_get spells it out; the
 * reference kernels are loops over it, and ISA files use it for the formats they have no faster way for.
 * Static inline: included by kernel files.
 *
 * Surprise: one "run" is what shares f32 scales, which is not always the container's block (NVFP4: 16 of its
 * 64).
 */
#ifndef LG_BACKEND_CPU_BLOCKS_H
#define LG_BACKEND_CPU_BLOCKS_H

#include "gguf/quant_blocks.h"

enum { LG_RUN_MAX = 256 };

/* value[i] = d * scale[i / 16] * code[i] + m * min[i / 16]; m is 0 and min unset for types without mins. */
typedef struct lg_terms {
    float d, m;
    int8_t code[LG_RUN_MAX];
    int16_t scale[LG_RUN_MAX / 16], min[LG_RUN_MAX / 16];
} lg_terms;

/* Elements that share f32 scales. */
static inline int lg_run_elems(lg_qtype type)
{
    return type == LG_NVFP4 ? 16 : lg_qtype_get((uint32_t)type)->block_elems;
}

static inline bool lg_run_has_min(lg_qtype type)
{
    return type == LG_Q4_1 || type == LG_Q5_1 || type == LG_Q2_K || type == LG_Q4_K || type == LG_Q5_K;
}

static inline void lg_terms_fill(int16_t *p, int n, int v)
{
    for (int i = 0; i < n; i++)
        p[i] = (int16_t)v;
}

static inline int lg_fp4_code(int nibble)
{
    return nibble & 8 ? -fp4_levels[nibble & 7] : fp4_levels[nibble & 7];
}

/* Types with blocks of 32, and the runs of NVFP4: `b` is the container block, `sub` the run inside it. */
static inline void lg_terms_get32(lg_qtype type, const uint8_t *b, int sub, lg_terms *t)
{
    lg_terms_fill(t->scale, 2, 1);
    lg_terms_fill(t->min, 2, 1);
    t->m = 0.0f;
    if (type == LG_NVFP4) {
        t->d = nvfp4_scale(b[sub]);
        for (int j = 0; j < 8; j++) {
            t->code[j] = (int8_t)lg_fp4_code(b[4 + 8 * sub + j] & 15);
            t->code[j + 8] = (int8_t)lg_fp4_code(b[4 + 8 * sub + j] >> 4);
        }
        return;
    }
    t->d = type == LG_MXFP4 ? mxfp4_scale(b[0]) : get_f16(b);
    if (type == LG_Q4_1 || type == LG_Q5_1)
        t->m = get_f16(b + 2);
    if (type == LG_Q8_0) {
        memcpy(t->code, b + 2, 32);
        return;
    }
    const uint8_t *q = b + lg_qtype_get((uint32_t)type)->block_bytes - 16; // nibbles end every other format
    uint32_t qh = type == LG_Q5_0 || type == LG_Q5_1 ? get32(q - 4) : 0;
    for (int i = 0; i < 32; i++) {
        int nibble = i < 16 ? q[i] & 15 : q[i - 16] >> 4, code = nibble;

        switch (type) {
        case LG_Q4_0: code = nibble - 8; break;
        case LG_Q5_0: code = (nibble | (int)(qh >> i & 1) << 4) - 16; break;
        case LG_Q5_1: code = nibble | (int)(qh >> i & 1) << 4; break;
        case LG_IQ4_NL: code = iq4_levels[nibble]; break;
        case LG_MXFP4: code = lg_fp4_code(nibble); break;
        default: break; // Q4_1
        }
        t->code[i] = (int8_t)code;
    }
}

/* Q2_K and Q3_K: the 2-bit code of element i. */
static inline int lg_code2(const uint8_t *q, int i)
{
    return q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
}

static inline void lg_terms_get_q2_k(const uint8_t *b, lg_terms *t)
{
    t->d = get_f16(b + 80);
    t->m = -get_f16(b + 82);
    for (int g = 0; g < 16; g++) {
        t->scale[g] = b[g] & 15;
        t->min[g] = b[g] >> 4;
    }
    for (int i = 0; i < 256; i++)
        t->code[i] = (int8_t)lg_code2(b + 16, i);
}

static inline void lg_terms_get_q3_k(const uint8_t *b, lg_terms *t)
{
    const uint8_t *sc = b + 96;

    t->d = get_f16(b + 108);
    for (int g = 0; g < 16; g++) {
        int low = g < 8 ? sc[g] & 15 : sc[g - 8] >> 4;

        t->scale[g] = (int16_t)((low | (sc[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32);
    }
    for (int i = 0; i < 256; i++)
        t->code[i] = (int8_t)(lg_code2(b + 32, i) - (b[i % 32] >> i / 32 & 1 ? 0 : 4));
}

/* Q4_K and, with a fifth bit from qh, Q5_K. */
static inline void lg_terms_get_q45_k(const uint8_t *b, const uint8_t *qh, const uint8_t *q, lg_terms *t)
{
    t->d = get_f16(b);
    t->m = -get_f16(b + 2);
    for (int j = 0; j < 8; j++) {
        int s, m;

        k_scale_min(b + 4, j, &s, &m);
        lg_terms_fill(t->scale + 2 * j, 2, s);
        lg_terms_fill(t->min + 2 * j, 2, m);
        for (int l = 0; l < 32; l++) {
            int code = q[32 * (j / 2) + l] >> 4 * (j & 1) & 15;

            t->code[32 * j + l] = (int8_t)(qh ? code | (qh[l] >> j & 1) << 4 : code);
        }
    }
}

static inline void lg_terms_get_q6_k(const uint8_t *b, lg_terms *t)
{
    t->d = get_f16(b + 208);
    for (int g = 0; g < 16; g++)
        t->scale[g] = (int8_t)b[192 + g];
    for (int i = 0; i < 256; i++) {
        int h = i / 128, s = i % 128 / 32, l = i % 32;
        int low = b[64 * h + 32 * (s & 1) + l] >> 4 * (s / 2) & 15;

        t->code[i] = (int8_t)((low | (b[128 + 32 * h + l] >> 2 * s & 3) << 4) - 32);
    }
}

static inline void lg_terms_get_iq4_xs(const uint8_t *b, lg_terms *t)
{
    int sh = get16(b + 2);

    t->d = get_f16(b);
    for (int j = 0; j < 8; j++) {
        const uint8_t *q = b + 8 + 16 * j;
        int s = (b[4 + j / 2] >> 4 * (j & 1) & 15) | (sh >> 2 * j & 3) << 4;

        lg_terms_fill(t->scale + 2 * j, 2, s - 32);
        for (int l = 0; l < 16; l++) {
            t->code[32 * j + l] = iq4_levels[q[l] & 15];
            t->code[32 * j + l + 16] = iq4_levels[q[l] >> 4];
        }
    }
}

/* Run r of a row. */
static inline void lg_terms_get(lg_qtype type, const uint8_t *row, int r, lg_terms *t)
{
    const lg_qtype_info *info = lg_qtype_get((uint32_t)type);
    int per_block = info->block_elems / lg_run_elems(type);
    const uint8_t *b = row + (size_t)(r / per_block) * (size_t)info->block_bytes;

    switch (type) {
    case LG_Q2_K: lg_terms_get_q2_k(b, t); break;
    case LG_Q3_K: lg_terms_get_q3_k(b, t); break;
    case LG_Q4_K: lg_terms_get_q45_k(b, NULL, b + 16, t); break;
    case LG_Q5_K: lg_terms_get_q45_k(b, b + 16, b + 48, t); break;
    case LG_Q6_K: lg_terms_get_q6_k(b, t); break;
    case LG_IQ4_XS: lg_terms_get_iq4_xs(b, t); break;
    default: lg_terms_get32(type, b, r % per_block, t); break;
    }
}

#endif
