/*
 * gguf/quant_decode: one function a block format, from bytes to f32. These are the definition of what a
 * weight is; clarity only. Products are formed left to right in f32 (scale times integer scale, then times
 * code), which every format's published decoder does too.
 */
#include "gguf/quant_blocks.h"

static void decode_f32(const uint8_t *b, float *y)
{
    uint32_t u = get32(b);

    memcpy(y, &u, sizeof *y);
}

static void decode_f16(const uint8_t *b, float *y)
{
    *y = get_f16(b);
}

static void decode_bf16(const uint8_t *b, float *y)
{
    *y = lg_bf16_to_f32(get16(b));
}

static void decode_q8_0(const uint8_t *b, float *y)
{
    float d = get_f16(b);

    for (int i = 0; i < QK; i++)
        y[i] = d * (float)(int8_t)b[2 + i];
}

static void decode_q4_0(const uint8_t *b, float *y)
{
    float d = get_f16(b);

    for (int i = 0; i < QK / 2; i++) {
        y[i] = d * (float)((b[2 + i] & 15) - 8);
        y[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

static void decode_q4_1(const uint8_t *b, float *y)
{
    float d = get_f16(b), m = get_f16(b + 2);

    for (int i = 0; i < QK / 2; i++) {
        y[i] = d * (float)(b[4 + i] & 15) + m;
        y[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

// The 5-bit code of element i < 32 of Q5_0 and Q5_1: a nibble of q and bit i of qh.
static int code5(const uint8_t *q, uint32_t qh, int i)
{
    int nibble = i < 16 ? q[i] & 15 : q[i - 16] >> 4;

    return nibble | (int)(qh >> i & 1) << 4;
}

static void decode_q5_0(const uint8_t *b, float *y)
{
    float d = get_f16(b);
    uint32_t qh = get32(b + 2);

    for (int i = 0; i < QK; i++)
        y[i] = d * (float)(code5(b + 6, qh, i) - 16);
}

static void decode_q5_1(const uint8_t *b, float *y)
{
    float d = get_f16(b), m = get_f16(b + 2);
    uint32_t qh = get32(b + 4);

    for (int i = 0; i < QK; i++)
        y[i] = d * (float)code5(b + 8, qh, i) + m;
}

// Q2_K and Q3_K keep the 2-bit code of element i at bits 2s of byte l of half h.
static int code2(const uint8_t *q, int i)
{
    int h = i / 128, s = i % 128 / 32, l = i % 32;

    return q[32 * h + l] >> 2 * s & 3;
}

static void decode_q2_k(const uint8_t *b, float *y)
{
    const uint8_t *sc = b, *q = b + 16;
    float d = get_f16(b + 80), dmin = get_f16(b + 82);

    for (int i = 0; i < QK_K; i++) {
        int s = sc[i / 16];
        y[i] = d * (float)(s & 15) * (float)code2(q, i) - dmin * (float)(s >> 4);
    }
}

// Six-bit scale k < 16 of Q3_K: low four bits in nibbles of a[0..7], high two in a[8..11].
static int q3_scale(const uint8_t *a, int k)
{
    int low = k < 8 ? a[k] & 15 : a[k - 8] >> 4;
    int high = a[8 + k % 4] >> 2 * (k / 4) & 3;

    return (low | high << 4) - 32;
}

static void decode_q3_k(const uint8_t *b, float *y)
{
    const uint8_t *hmask = b, *q = b + 32, *sc = b + 96;
    float d = get_f16(b + 108);

    for (int i = 0; i < QK_K; i++) {
        int high = hmask[i % 32] >> i / 32 & 1;
        y[i] = d * (float)q3_scale(sc, i / 16) * (float)(code2(q, i) - (high ? 0 : 4));
    }
}

static void decode_q4_k(const uint8_t *b, float *y)
{
    const uint8_t *q = b + 16;
    float d = get_f16(b), dmin = get_f16(b + 2);

    for (int j = 0; j < 8; j++) {
        int s, m;

        k_scale_min(b + 4, j, &s, &m);
        float scale = d * (float)s, min = dmin * (float)m;
        for (int l = 0; l < 32; l++)
            y[32 * j + l] = scale * (float)(q[32 * (j / 2) + l] >> 4 * (j & 1) & 15) - min;
    }
}

static void decode_q5_k(const uint8_t *b, float *y)
{
    const uint8_t *qh = b + 16, *q = b + 48;
    float d = get_f16(b), dmin = get_f16(b + 2);

    for (int j = 0; j < 8; j++) {
        int s, m;

        k_scale_min(b + 4, j, &s, &m);
        float scale = d * (float)s, min = dmin * (float)m;
        for (int l = 0; l < 32; l++) {
            int code = (q[32 * (j / 2) + l] >> 4 * (j & 1) & 15) | (qh[l] >> j & 1) << 4;
            y[32 * j + l] = scale * (float)code - min;
        }
    }
}

static void decode_q6_k(const uint8_t *b, float *y)
{
    float d = get_f16(b + 208);

    for (int h = 0; h < 2; h++) {
        const uint8_t *ql = b + 64 * h, *qh = b + 128 + 32 * h, *sc = b + 192 + 8 * h;

        for (int t = 0; t < 4; t++)
            for (int l = 0; l < 32; l++) {
                int low = ql[32 * (t & 1) + l] >> 4 * (t / 2) & 15;
                int code = low | (qh[l] >> 2 * t & 3) << 4;
                y[128 * h + 32 * t + l] = d * (float)(int8_t)sc[l / 16 + 2 * t] * (float)(code - 32);
            }
    }
}

static void decode_iq4_nl(const uint8_t *b, float *y)
{
    float d = get_f16(b);

    for (int i = 0; i < QK / 2; i++) {
        y[i] = d * (float)iq4_levels[b[2 + i] & 15];
        y[i + 16] = d * (float)iq4_levels[b[2 + i] >> 4];
    }
}

static void decode_iq4_xs(const uint8_t *b, float *y)
{
    const uint8_t *sl = b + 4, *q = b + 8;
    float d = get_f16(b);
    int sh = get16(b + 2);

    for (int j = 0; j < 8; j++) {
        int s = (sl[j / 2] >> 4 * (j & 1) & 15) | (sh >> 2 * j & 3) << 4;
        float scale = d * (float)(s - 32);

        for (int l = 0; l < 16; l++) {
            y[32 * j + l] = scale * (float)iq4_levels[q[16 * j + l] & 15];
            y[32 * j + l + 16] = scale * (float)iq4_levels[q[16 * j + l] >> 4];
        }
    }
}

static float fp4(float scale, int code)
{
    float v = scale * (float)fp4_levels[code & 7];

    return code & 8 ? -v : v;
}

static void decode_mxfp4(const uint8_t *b, float *y)
{
    float scale = mxfp4_scale(b[0]);

    for (int i = 0; i < QK / 2; i++) {
        y[i] = fp4(scale, b[1 + i] & 15);
        y[i + 16] = fp4(scale, b[1 + i] >> 4);
    }
}

static void decode_nvfp4(const uint8_t *b, float *y)
{
    for (int s = 0; s < 4; s++) {
        float scale = nvfp4_scale(b[s]);

        for (int j = 0; j < 8; j++) {
            y[16 * s + j] = fp4(scale, b[4 + 8 * s + j] & 15);
            y[16 * s + j + 8] = fp4(scale, b[4 + 8 * s + j] >> 4);
        }
    }
}

typedef void (*decode_fn)(const uint8_t *block, float *y);

static const decode_fn decoders[LG_QTYPE_MAX] = {
    [LG_F32] = decode_f32,     [LG_F16] = decode_f16,       [LG_BF16] = decode_bf16,
    [LG_Q8_0] = decode_q8_0,   [LG_Q4_0] = decode_q4_0,     [LG_Q4_1] = decode_q4_1,
    [LG_Q5_0] = decode_q5_0,   [LG_Q5_1] = decode_q5_1,     [LG_Q2_K] = decode_q2_k,
    [LG_Q3_K] = decode_q3_k,   [LG_Q4_K] = decode_q4_k,     [LG_Q5_K] = decode_q5_k,
    [LG_Q6_K] = decode_q6_k,   [LG_IQ4_NL] = decode_iq4_nl, [LG_IQ4_XS] = decode_iq4_xs,
    [LG_MXFP4] = decode_mxfp4, [LG_NVFP4] = decode_nvfp4,
};

void lg_dequant_row(lg_qtype type, const void *src, float *dst, int64_t n)
{
    const lg_qtype_info *t = lg_qtype_get((uint32_t)type);
    const uint8_t *b = src;

    LG_ASSERT(t->runs && n % t->block_elems == 0);
    decode_fn decode = decoders[type];
    for (int64_t i = 0; i < n; i += t->block_elems, b += t->block_bytes)
        decode(b, dst + i);
}
