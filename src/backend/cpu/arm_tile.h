/*
 * backend/cpu/arm_tile: how the arm64 kernels see weights: runs of integers, and tiles of 16 rows of them for
 * gemm.
 *
 * One tile form serves all three arm levels: 8 consecutive codes of a row side by side, then the next row.
 * Sixteen bytes are two rows by eight codes, which is what one sdot pair or one smmla takes. All codes fit a
 * signed byte.
 *
 * A run of E inputs is E / 8 steps of 128 bytes (16 rows x 8 codes); for E = 256, for each scale group, 8 row
 * pairs of int16 (s0, s0, s1, s1); for its mins, for each min group, 16 int16; then 16 f32 d; then, with
 * mins, 16 f32 m.
 */
#ifndef LG_BACKEND_CPU_ARM_TILE_H
#define LG_BACKEND_CPU_ARM_TILE_H

#include <arm_neon.h>
#include <string.h>

#include "backend/cpu/blocks.h"
#include "backend/cpu/kernels.h"

#define LG_INLINE static inline __attribute__((always_inline))

/* The shapes of a run. K: 256 inputs with integer scales for groups of 32 or 16. */
typedef enum run_form { RUN_16, RUN_32, RUN_32_MIN, RUN_K32, RUN_K32_MIN, RUN_K16, RUN_K16_MIN } run_form;

LG_INLINE run_form form_of(lg_qtype type)
{
    switch (type) {
    case LG_NVFP4: return RUN_16;
    case LG_Q4_1:
    case LG_Q5_1: return RUN_32_MIN;
    case LG_Q4_K:
    case LG_Q5_K: return RUN_K32_MIN;
    case LG_IQ4_XS: return RUN_K32;
    case LG_Q2_K: return RUN_K16_MIN;
    case LG_Q3_K:
    case LG_Q6_K: return RUN_K16;
    default: return RUN_32;
    }
}

LG_INLINE int form_elems(run_form f)
{
    return f == RUN_16 ? 16 : f == RUN_32 || f == RUN_32_MIN ? 32 : 256;
}
LG_INLINE bool form_scaled(run_form f)
{
    return f >= RUN_K32;
}
LG_INLINE bool form_has_min(run_form f)
{
    return f == RUN_32_MIN || f == RUN_K32_MIN || f == RUN_K16_MIN;
}
/* Elements under one integer scale, and under one integer min. */
LG_INLINE int form_group(run_form f)
{
    return f == RUN_K32 || f == RUN_K32_MIN ? 32 : 16;
}

/* Byte offsets inside a run. */
LG_INLINE size_t at_scales(run_form f)
{
    return (size_t)form_elems(f) * LG_TILE_ROWS;
}
LG_INLINE size_t at_mins(run_form f)
{
    return at_scales(f) + (form_scaled(f) ? (size_t)(256 / form_group(f)) * 64 : 0);
}
LG_INLINE size_t at_d(run_form f)
{
    return at_mins(f) + (form_scaled(f) && form_has_min(f) ? (size_t)(256 / form_group(f)) * 32 : 0);
}
LG_INLINE size_t form_bytes(run_form f)
{
    return at_d(f) + (form_has_min(f) ? 2 : 1) * LG_TILE_ROWS * sizeof(float);
}

/* ---- codes of the types that models are published in ---- */

LG_INLINE void put_codes(int8_t *code, uint8x16_t v)
{
    vst1q_s8(code, vreinterpretq_s8_u8(v));
}

/* Nibbles of 16 bytes, and the bit `bit` of f as bit 4. */
LG_INLINE uint8x16_t low_nibble(uint8x16_t v)
{
    return vandq_u8(v, vdupq_n_u8(15));
}
LG_INLINE uint8x16_t fifth_bit(uint8x16_t f, int bit)
{
    return vshlq_n_u8(vandq_u8(vshlq_u8(f, vdupq_n_s8((int8_t)-bit)), vdupq_n_u8(1)), 4);
}

/* Codes of sub-blocks 2g (low) and 2g + 1 (high), 16 of each from byte 16 u; qh NULL for Q4_K. */
LG_INLINE void codes_q45_k(const uint8_t *qs, const uint8_t *qh, int g, int u, uint8x16_t *low,
                           uint8x16_t *high)
{
    uint8x16_t v = vld1q_u8(qs + 32 * g + 16 * u);

    *low = low_nibble(v);
    *high = vshrq_n_u8(v, 4);
    if (qh) {
        uint8x16_t f = vld1q_u8(qh + 16 * u);
        *low = vorrq_u8(*low, fifth_bit(f, 2 * g));
        *high = vorrq_u8(*high, fifth_bit(f, 2 * g + 1));
    }
}

/* Q6_K: the 16 codes (already less 32) of elements 128 h + 32 t + 16 u on, for t = 0 .. 3. */
LG_INLINE void codes_q6_k(const uint8_t *b, int h, int u, int8x16_t code[4])
{
    uint8x16_t p = vld1q_u8(b + 64 * h + 16 * u), q = vld1q_u8(b + 64 * h + 32 + 16 * u);
    uint8x16_t f = vld1q_u8(b + 128 + 32 * h + 16 * u), two = vdupq_n_u8(0x30);
    uint8x16_t c[4] = {vorrq_u8(low_nibble(p), vandq_u8(vshlq_n_u8(f, 4), two)),
                       vorrq_u8(low_nibble(q), vandq_u8(vshlq_n_u8(f, 2), two)),
                       vorrq_u8(vshrq_n_u8(p, 4), vandq_u8(f, two)),
                       vorrq_u8(vshrq_n_u8(q, 4), vandq_u8(vshrq_n_u8(f, 2), two))};

    for (int t = 0; t < 4; t++)
        code[t] = vsubq_s8(vreinterpretq_s8_u8(c[t]), vdupq_n_s8(32));
}

/* The 8 scales and mins of a Q4_K or Q5_K block. */
LG_INLINE void scales_q45_k(const uint8_t *b, uint8x8_t *scale, uint8x8_t *min)
{
    uint32_t w[3];

    memcpy(w, b + 4, sizeof w);
    uint64_t s = (w[0] & 0x3F3F3F3F) | (uint64_t)((w[2] & 0x0F0F0F0F) | (w[0] >> 2 & 0x30303030)) << 32;
    uint64_t m = (w[1] & 0x3F3F3F3F) | (uint64_t)((w[2] >> 4 & 0x0F0F0F0F) | (w[1] >> 2 & 0x30303030)) << 32;
    *scale = vcreate_u8(s);
    *min = vcreate_u8(m);
}

LG_INLINE void terms_q45_k(const uint8_t *b, const uint8_t *qh, const uint8_t *qs, lg_terms *t)
{
    uint8x8_t s, m;

    t->d = get_f16(b);
    t->m = -get_f16(b + 2);
    scales_q45_k(b, &s, &m);
    int16x8_t s16 = vreinterpretq_s16_u16(vmovl_u8(s)), m16 = vreinterpretq_s16_u16(vmovl_u8(m));
    vst1q_s16(t->scale, vzip1q_s16(s16, s16));
    vst1q_s16(t->scale + 8, vzip2q_s16(s16, s16));
    vst1q_s16(t->min, vzip1q_s16(m16, m16));
    vst1q_s16(t->min + 8, vzip2q_s16(m16, m16));
    for (int g = 0; g < 4; g++)
        for (int u = 0; u < 2; u++) {
            uint8x16_t low, high;
            codes_q45_k(qs, qh, g, u, &low, &high);
            put_codes(t->code + 64 * g + 16 * u, low);
            put_codes(t->code + 64 * g + 32 + 16 * u, high);
        }
}

LG_INLINE void terms_q6_k(const uint8_t *b, lg_terms *t)
{
    int8x16_t scales = vld1q_s8((const int8_t *)b + 192), code[4];

    t->d = get_f16(b + 208);
    vst1q_s16(t->scale, vmovl_s8(vget_low_s8(scales)));
    vst1q_s16(t->scale + 8, vmovl_high_s8(scales));
    for (int h = 0; h < 2; h++)
        for (int u = 0; u < 2; u++) {
            codes_q6_k(b, h, u, code);
            for (int k = 0; k < 4; k++)
                vst1q_s8(t->code + 128 * h + 32 * k + 16 * u, code[k]);
        }
}

/* lg_terms_get, with vectors where it matters. */
LG_INLINE void terms_get(lg_qtype type, const uint8_t *row, int r, lg_terms *t)
{
    switch (type) {
    case LG_Q8_0:
        t->d = get_f16(row + (size_t)r * 34);
        memcpy(t->code, row + (size_t)r * 34 + 2, 32);
        break;
    case LG_Q4_K: terms_q45_k(row + (size_t)r * 144, NULL, row + (size_t)r * 144 + 16, t); break;
    case LG_Q5_K:
        terms_q45_k(row + (size_t)r * 176, row + (size_t)r * 176 + 16, row + (size_t)r * 176 + 48, t);
        break;
    case LG_Q6_K: terms_q6_k(row + (size_t)r * 210, t); break;
    default: lg_terms_get(type, row, r, t); break;
    }
}

/* ---- unpack ---- */

/* Row pointers of a tile or group of `count` rows of which n exist; the others read row 0 and are not stored.
 */
LG_INLINE void row_pointers(const lg_mat *w, int row, int n, int count, const uint8_t **p)
{
    for (int i = 0; i < count; i++)
        p[i] = w->p + (size_t)(row + (i < n ? i : 0)) * w->row_bytes;
}

/* Row i of a run into its place. */
LG_INLINE void put_terms(run_form f, const lg_terms *t, int i, uint8_t *run)
{
    int groups = 256 / form_group(f), every = form_group(f) / 16;
    float *d = (float *)(void *)(run + at_d(f));

    for (int k = 0; k < form_elems(f) / 8; k++)
        memcpy(run + 128 * k + 8 * i, t->code + 8 * k, 8);
    d[i] = t->d;
    if (form_has_min(f))
        d[LG_TILE_ROWS + i] = t->m;
    for (int g = 0; form_scaled(f) && g < groups; g++) {
        int16_t *scale = (int16_t *)(void *)(run + at_scales(f)) + 32 * g + 2 * i;
        scale[0] = scale[1] = t->scale[every * g];
        if (form_has_min(f))
            ((int16_t *)(void *)(run + at_mins(f)))[LG_TILE_ROWS * g + i] = t->min[every * g];
    }
}

LG_INLINE void unpack_runs(lg_qtype type, const lg_mat *w, int row, int n_rows, void *tile)
{
    const run_form f = form_of(type);
    const uint8_t *p[LG_TILE_ROWS];
    uint8_t *run = tile;
    lg_terms t = {0};

    row_pointers(w, row, n_rows, LG_TILE_ROWS, p);
    for (int r = 0; r < w->n_in / form_elems(f); r++, run += form_bytes(f))
        for (int i = 0; i < LG_TILE_ROWS; i++) {
            terms_get(type, p[i], r, &t);
            put_terms(f, &t, i, run);
        }
}

/* Where the parts of a quantised activation row are. */
LG_INLINE const int16_t *act_sums(const void *row, int n)
{
    return (const int16_t *)(const void *)((const uint8_t *)row + lg_act_sums_at(n));
}
LG_INLINE const int16_t *act_steps(const void *row, int n)
{
    return (const int16_t *)(const void *)((const uint8_t *)row + lg_act_steps_at(n));
}
LG_INLINE const float *act_scales(const void *row, int n)
{
    return (const float *)(const void *)((const uint8_t *)row + lg_act_scales_at(n));
}

#endif
