/*
 * gguf/quant: see quant.h. This file holds the type table and the scalar conversions; the block decoders are
 * in quant_decode.c, the plain quantizers in quant_encode.c.
 */
#include "gguf/quant.h"

#include <string.h>

// The types that do not run are here so that a file using them can be listed, and refused by name.
static const lg_qtype_info types[LG_QTYPE_MAX] = {
    [LG_F32] = {"F32", 1, 4, true},
    [LG_F16] = {"F16", 1, 2, true},
    [LG_Q4_0] = {"Q4_0", 32, 18, true},
    [LG_Q4_1] = {"Q4_1", 32, 20, true},
    [LG_Q5_0] = {"Q5_0", 32, 22, true},
    [LG_Q5_1] = {"Q5_1", 32, 24, true},
    [LG_Q8_0] = {"Q8_0", 32, 34, true},
    [9] = {"Q8_1", 32, 36, false},
    [LG_Q2_K] = {"Q2_K", 256, 84, true},
    [LG_Q3_K] = {"Q3_K", 256, 110, true},
    [LG_Q4_K] = {"Q4_K", 256, 144, true},
    [LG_Q5_K] = {"Q5_K", 256, 176, true},
    [LG_Q6_K] = {"Q6_K", 256, 210, true},
    [15] = {"Q8_K", 256, 292, false},
    [16] = {"IQ2_XXS", 256, 66, false},
    [17] = {"IQ2_XS", 256, 74, false},
    [18] = {"IQ3_XXS", 256, 98, false},
    [19] = {"IQ1_S", 256, 50, false},
    [LG_IQ4_NL] = {"IQ4_NL", 32, 18, true},
    [21] = {"IQ3_S", 256, 110, false},
    [22] = {"IQ2_S", 256, 82, false},
    [LG_IQ4_XS] = {"IQ4_XS", 256, 136, true},
    [24] = {"I8", 1, 1, false},
    [25] = {"I16", 1, 2, false},
    [LG_I32] = {"I32", 1, 4, false},
    [27] = {"I64", 1, 8, false},
    [28] = {"F64", 1, 8, false},
    [29] = {"IQ1_M", 256, 56, false},
    [LG_BF16] = {"BF16", 1, 2, true},
    [34] = {"TQ1_0", 256, 54, false},
    [35] = {"TQ2_0", 256, 66, false},
    [LG_MXFP4] = {"MXFP4", 32, 17, true},
    [LG_NVFP4] = {"NVFP4", 64, 36, true},
};

const lg_qtype_info *lg_qtype_get(uint32_t type)
{
    static const lg_qtype_info unknown = {NULL, 1, 1, false};

    return type < LG_QTYPE_MAX && types[type].name ? &types[type] : &unknown;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool lg_qtype_find(lg_str name, lg_qtype *out)
{
    for (int t = 0; t < LG_QTYPE_MAX; t++) {
        const char *z = types[t].name;
        size_t i = 0;

        if (!types[t].runs || strlen(z) != name.n)
            continue;
        while (i < name.n && lower(z[i]) == lower(name.p[i]))
            i++;
        if (i == name.n) {
            *out = (lg_qtype)t;
            return true;
        }
    }
    return false;
}

bool lg_row_bytes(lg_qtype type, uint64_t n, size_t *out)
{
    const lg_qtype_info *t = lg_qtype_get((uint32_t)type);

    if (!t->name || n % (uint64_t)t->block_elems || n / (uint64_t)t->block_elems > SIZE_MAX)
        return false;
    return lg_mul_size((size_t)(n / (uint64_t)t->block_elems), (size_t)t->block_bytes, out);
}

float lg_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3FF;

    if (exp == 31) // infinity, or NaN made quiet as the hardware does
        return lg_f32_of_bits(sign | 0x7F800000 | man << 13 | (man ? 0x400000 : 0));
    if (exp)
        return lg_f32_of_bits(sign | (exp + 112) << 23 | man << 13);
    float f = (float)man * 0x1p-24f; // zero or subnormal, exact
    return sign ? -f : f;
}

uint16_t lg_f32_to_f16(float f)
{
    uint32_t u = lg_f32_bits(f), sign = u >> 16 & 0x8000, abs = u & 0x7FFFFFFF;

    if (abs > 0x7F800000)
        return (uint16_t)(sign | 0x7E00 | (abs >> 13 & 0x1FF));
    if (abs >= 0x477FF000) // 65520 and up round to infinity
        return (uint16_t)(sign | 0x7C00);
    if (abs >= 0x38800000) { // normal: round the 13 bits that go, a carry moves into the exponent by itself
        abs += 0xFFF + (abs >> 13 & 1);
        return (uint16_t)(sign | (abs - 0x38000000) >> 13);
    }
    // Subnormal: adding 0.5 puts the ulp of the f32 sum at 2^-24, so that the sum is rounded as we need it.
    uint32_t sum = lg_f32_bits(lg_f32_of_bits(abs) + 0.5f);
    return (uint16_t)(sign | (sum - 0x3F000000));
}

float lg_bf16_to_f32(uint16_t h)
{
    return lg_f32_of_bits((uint32_t)h << 16);
}

uint16_t lg_f32_to_bf16(float f)
{
    uint32_t u = lg_f32_bits(f);

    if ((u & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}
