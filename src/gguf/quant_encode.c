/*
 * gguf/quant_encode: the plain quantizer of each format, one block at a time.
 *
 * The rounding types (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, MXFP4, NVFP4) give the same bytes as the field's
 * reference tools and are tested for that; their codes come from the scale before it is rounded to f16. The K
 * types search each sub-block's scale in the weighted least-squares sense and assign codes against what a
 * reader will compute. A block is a function of its own values only: any cut among threads will do.
 */
#include "gguf/quant_blocks.h"

enum { K4_CODES = 15, K5_CODES = 31, SCALES_MAX = 63, SUB = 32 };

static bool put_f16(uint8_t *p, float v)
{
    uint16_t h = lg_f32_to_f16(v);

    put16(p, h);
    return (h & 0x7C00) != 0x7C00; // an infinity is a scale that does not fit
}

static float clampf(float v, float lo, float hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

// The multiplier that stands for a division by d; 0 for a scale that is zero or as good as zero in f16.
static float inverse(float d)
{
    float inv = 1.0f / d;

    return isfinite(inv) ? inv : 0.0f;
}

// The first element of largest magnitude, with its sign.
static float extreme(const float *x, int n)
{
    float m = 0.0f;

    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(m))
            m = x[i];
    return m;
}

static bool encode_f32(const float *x, uint8_t *b)
{
    uint32_t u;

    memcpy(&u, x, sizeof u);
    put32(b, u);
    return true;
}

static bool encode_f16(const float *x, uint8_t *b)
{
    return put_f16(b, *x);
}

static bool encode_bf16(const float *x, uint8_t *b)
{
    put16(b, lg_f32_to_bf16(*x));
    return true;
}

static bool encode_q8_0(const float *x, uint8_t *b)
{
    float d = fabsf(extreme(x, QK)) / 127.0f, inv = inverse(d);

    for (int i = 0; i < QK; i++)
        b[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inv);
    return put_f16(b, d);
}

// Codes of Q4_0 and Q5_0: the extreme element becomes -half exactly, so one more step exists on its side.
static float signed_codes(const float *x, int half, int *code)
{
    float d = extreme(x, QK) / (float)-half, inv = inverse(d);

    for (int i = 0; i < QK; i++) {
        int c = (int)(x[i] * inv + (float)half + 0.5f);
        code[i] = c < 2 * half - 1 ? c : 2 * half - 1;
    }
    return d;
}

// Codes of Q4_1 and Q5_1: 0 is the minimum, `top` the maximum.
static float ranged_codes(const float *x, int top, int *code, float *min)
{
    float lo = x[0], hi = x[0];

    for (int i = 1; i < QK; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    float d = (hi - lo) / (float)top, inv = inverse(d);
    for (int i = 0; i < QK; i++) {
        int c = (int)((x[i] - lo) * inv + 0.5f);
        code[i] = c < top ? c : top;
    }
    *min = lo;
    return d;
}

static void pack_nibbles(const int *code, uint8_t *q)
{
    for (int i = 0; i < QK / 2; i++)
        q[i] = (uint8_t)((code[i] & 15) | (code[i + 16] & 15) << 4);
}

static uint32_t fifth_bits(const int *code)
{
    uint32_t qh = 0;

    for (int i = 0; i < QK; i++)
        qh |= (uint32_t)(code[i] >> 4) << i;
    return qh;
}

static bool encode_q4_0(const float *x, uint8_t *b)
{
    int code[QK];
    float d = signed_codes(x, 8, code);

    pack_nibbles(code, b + 2);
    return put_f16(b, d);
}

static bool encode_q4_1(const float *x, uint8_t *b)
{
    int code[QK];
    float min, d = ranged_codes(x, 15, code, &min);

    pack_nibbles(code, b + 4);
    return put_f16(b, d) && put_f16(b + 2, min);
}

static bool encode_q5_0(const float *x, uint8_t *b)
{
    int code[QK];
    float d = signed_codes(x, 16, code);

    put32(b + 2, fifth_bits(code));
    pack_nibbles(code, b + 6);
    return put_f16(b, d);
}

static bool encode_q5_1(const float *x, uint8_t *b)
{
    int code[QK];
    float min, d = ranged_codes(x, 31, code, &min);

    put32(b + 4, fifth_bits(code));
    pack_nibbles(code, b + 8);
    return put_f16(b, d) && put_f16(b + 2, min);
}

// Nearest E2M1 code of x for a scale; the lower magnitude on ties, and never minus zero.
static int fp4_code(float x, float scale)
{
    float mag = fabsf(x), best = mag;
    int code = 0;

    for (int i = 1; i < 8; i++) {
        float e = fabsf((float)fp4_levels[i] * scale - mag);
        if (e < best) {
            best = e;
            code = i;
        }
    }
    return code && x < 0.0f ? code | 8 : code;
}

static bool encode_mxfp4(const float *x, uint8_t *b)
{
    float m = fabsf(extreme(x, QK));
    int e = m > 0.0f ? ilogbf(m) - 2 + 127 : 0;

    b[0] = (uint8_t)(e < 0 ? 0 : e > 254 ? 254 : e);
    for (int i = 0; i < QK / 2; i++) {
        float scale = mxfp4_scale(b[0]);
        b[1 + i] = (uint8_t)(fp4_code(x[i], scale) | fp4_code(x[i + 16], scale) << 4);
    }
    return true;
}

// Unsigned E4M3, mantissa rounded half up, at most 448.
static uint8_t e4m3(float v)
{
    if (!(v > 0.0f))
        return 0;
    int exp = ilogbf(v);
    if (exp < -6) { // subnormal: units of 2^-9; the reference tools do not carry into the smallest normal
        int units = (int)(ldexpf(v, 9) + 0.5f);
        return (uint8_t)(units < 7 ? units : 7);
    }
    int man = (int)(ldexpf(v, 3 - exp) + 0.5f); // 8..16
    int byte = (exp + 7) * 8 + man - 8;
    return (uint8_t)(byte < 0x7E ? byte : 0x7E);
}

static bool encode_nvfp4(const float *x, uint8_t *b)
{
    bool fits = true;

    for (int s = 0; s < 4; s++) {
        const float *y = x + 16 * s;
        float m = fabsf(extreme(y, 16));

        fits = fits && m <= 448.0f * 6.0f;
        b[s] = e4m3(m / 6.0f);
        float scale = nvfp4_scale(b[s]);
        for (int j = 0; j < 8; j++)
            b[4 + 8 * s + j] = (uint8_t)(fp4_code(y[j], scale) | fp4_code(y[j + 8], scale) << 4);
    }
    return fits;
}

// y = scale * code - min for one sub-block; min >= 0.
typedef struct affine {
    float scale, min;
} affine;

static double affine_error(const float *x, const float *w, int n, float top, float inv, double scale,
                           double offset, double origin)
{
    double e = 0.0;

    for (int i = 0; i < n; i++) {
        double y = scale * (double)clampf(rintf(inv * (float)((double)x[i] - origin)), 0.0f, top) + offset;
        e += (double)w[i] * (y - (double)x[i]) * (y - (double)x[i]);
    }
    return e;
}

// Weighted least squares for fixed codes; false when the system is singular. The offset may not be positive.
static bool affine_solve(const float *x, const float *w, int n, float top, float inv, double origin,
                         double *scale, double *offset)
{
    double s = 0, sx = 0, sl = 0, sll = 0, sxl = 0;

    for (int i = 0; i < n; i++) {
        double l = (double)clampf(rintf(inv * (float)((double)x[i] - origin)), 0.0f, top), wi = (double)w[i];
        s += wi;
        sx += wi * (double)x[i];
        sl += wi * l;
        sll += wi * l * l;
        sxl += wi * (double)x[i] * l;
    }
    double det = s * sll - sl * sl;
    if (!(det > 0.0))
        return false;
    *scale = (s * sxl - sx * sl) / det;
    *offset = (sll * sx - sl * sxl) / det;
    if (*offset > 0.0) {
        *offset = 0.0;
        *scale = sxl / sll;
    }
    return true;
}

// Scale and min of one sub-block with codes 0..top: start from the range, then try inverse scales around it.
// Each try codes against the best offset so far; without that feedback the result is up to 4 % worse.
static affine affine_fit(const float *x, const float *w, int n, int top, float first, float step, int tries)
{
    float lo = 0.0f, hi = x[0];

    for (int i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    if (hi - lo < 1e-10f)
        return (affine){0.0f, -lo};
    float inv = (float)top / (hi - lo);
    double scale = 1.0 / (double)inv, offset = (double)lo;
    double best = affine_error(x, w, n, (float)top, inv, scale, offset, offset);

    for (int c = 0; c <= tries; c++) {
        double s, o;

        inv = ((float)top + first + step * (float)c) / (float)((double)hi - offset);
        if (!affine_solve(x, w, n, (float)top, inv, offset, &s, &o))
            continue;
        double e = affine_error(x, w, n, (float)top, inv, s, o, offset);
        if (e < best) {
            best = e;
            scale = s;
            offset = o;
        }
    }
    return (affine){(float)scale, (float)-offset};
}

// Nearest codes for the scale and min that a reader computes; returns the weighted squared error.
static float assign(const float *x, const float *w, float scale, float min, int top, uint8_t *code)
{
    float e = 0.0f, inv = scale != 0.0f ? 1.0f / scale : 0.0f;

    for (int i = 0; i < SUB; i++) {
        float l = clampf(rintf((x[i] + min) * inv), 0.0f, (float)top), y = scale * l - min;
        code[i] = (uint8_t)l;
        e += w[i] * (y - x[i]) * (y - x[i]);
    }
    return e;
}

// Integer scale and min of a sub-block: the rounded pair or one of its eight neighbours, whichever fits best.
static void refine(const float *x, const float *w, float d, float dmin, int top, int *scale, int *min,
                   uint8_t *code)
{
    int s0 = *scale, m0 = *min;
    float best = assign(x, w, d * (float)s0, dmin * (float)m0, top, code);

    for (int s = s0 - 1; s <= s0 + 1; s++)
        for (int m = m0 - 1; m <= m0 + 1; m++) {
            uint8_t trial[SUB];

            if (s < 0 || s > SCALES_MAX || m < 0 || m > SCALES_MAX || (s == s0 && m == m0))
                continue;
            float e = assign(x, w, d * (float)s, dmin * (float)m, top, trial);
            if (e < best) {
                best = e;
                *scale = s;
                *min = m;
                memcpy(code, trial, SUB);
            }
        }
}

static int rounded_ratio(float v, float unit, int top)
{
    return unit > 0.0f ? (int)clampf(rintf(v / unit), 0.0f, (float)top) : 0;
}

static void pack_scale_min(uint8_t *b, const int *scale, const int *min)
{
    for (int j = 0; j < 4; j++) {
        b[j] = (uint8_t)(scale[j] | scale[j + 4] >> 4 << 6);
        b[j + 4] = (uint8_t)(min[j] | min[j + 4] >> 4 << 6);
        b[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

// A block whose scales underflow f16 can come out worse than nothing at all: then it is written as zeros.
static void zero_if_worse(lg_qtype type, const float *x, uint8_t *b)
{
    float y[QK_K];
    double e = 0.0, energy = 0.0;

    lg_dequant_row(type, b, y, QK_K);
    for (int i = 0; i < QK_K; i++) {
        e += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
        energy += (double)x[i] * (double)x[i];
    }
    if (e > energy)
        memset(b, 0, (size_t)lg_qtype_get((uint32_t)type)->block_bytes);
}

// The head shared by Q4_K and Q5_K: d, dmin, packed scales, and one code an element.
static bool affine_block(const float *x, int top, float first, float step, int tries, uint8_t *b,
                         uint8_t *code)
{
    affine fit[8];
    float w[QK_K], max_scale = 0.0f, max_min = 0.0f;
    int scale[8], min[8];

    for (int j = 0; j < 8; j++) {
        const float *xs = x + SUB * j;
        float sum = 0.0f;

        for (int i = 0; i < SUB; i++)
            sum += xs[i] * xs[i];
        float rms = sqrtf(sum / SUB);
        for (int i = 0; i < SUB; i++)
            w[SUB * j + i] = rms + fabsf(xs[i]);
        fit[j] = affine_fit(xs, w + SUB * j, SUB, top, first, step, tries);
        max_scale = fmaxf(max_scale, fit[j].scale);
        max_min = fmaxf(max_min, fit[j].min);
    }
    if (!put_f16(b, max_scale / SCALES_MAX) || !put_f16(b + 2, max_min / SCALES_MAX))
        return false;
    float d = get_f16(b), dmin = get_f16(b + 2);
    for (int j = 0; j < 8; j++) {
        scale[j] = rounded_ratio(fit[j].scale, d, SCALES_MAX);
        min[j] = rounded_ratio(fit[j].min, dmin, SCALES_MAX);
        refine(x + SUB * j, w + SUB * j, d, dmin, top, &scale[j], &min[j], code + SUB * j);
    }
    pack_scale_min(b + 4, scale, min);
    return true;
}

static bool encode_q4_k(const float *x, uint8_t *b)
{
    uint8_t code[QK_K];

    if (!affine_block(x, K4_CODES, -1.0f, 0.1f, 20, b, code))
        return false;
    for (int g = 0; g < 4; g++)
        for (int l = 0; l < 32; l++)
            b[16 + 32 * g + l] = (uint8_t)(code[64 * g + l] | code[64 * g + 32 + l] << 4);
    zero_if_worse(LG_Q4_K, x, b);
    return true;
}

static bool encode_q5_k(const float *x, uint8_t *b)
{
    uint8_t code[QK_K];

    if (!affine_block(x, K5_CODES, -0.5f, 0.1f, 15, b, code))
        return false;
    memset(b + 16, 0, 32);
    for (int j = 0; j < 8; j++)
        for (int l = 0; l < 32; l++)
            b[16 + l] |= (uint8_t)(code[32 * j + l] >> 4 << j);
    for (int g = 0; g < 4; g++)
        for (int l = 0; l < 32; l++)
            b[48 + 32 * g + l] = (uint8_t)((code[64 * g + l] & 15) | (code[64 * g + 32 + l] & 15) << 4);
    zero_if_worse(LG_Q5_K, x, b);
    return true;
}

// One symmetric fit under construction: integer codes in [-half, half - 1], and the two sums that say how
// good they are. The best scale for fixed codes is a / b and leaves the error sum(w x^2) - a^2 / b.
typedef struct symmetric {
    int code[16];
    float a, b;
} symmetric;

// Whether a fit explains more than another. In double: with weights x^2 the products pass the f32 range.
static bool better(float a, float b, float best_a, float best_b)
{
    return b > 0.0f && (double)a * (double)a * (double)best_b > (double)best_a * (double)best_a * (double)b;
}

static symmetric symmetric_try(const float *x, const float *w, int half, float inv)
{
    symmetric f = {.a = 0.0f};

    for (int i = 0; i < 16; i++) {
        float l = clampf(rintf(inv * x[i]), (float)-half, (float)(half - 1));
        f.code[i] = (int)l;
        f.a += w[i] * x[i] * l;
        f.b += w[i] * l * l;
    }
    return f;
}

// Moves single codes by one step, the one with the steepest gradient first, while that helps.
static void symmetric_polish(const float *x, const float *w, int half, symmetric *f)
{
    for (int n = 16 * (2 * half - 1); n > 0 && f->b > 0.0f; n--) {
        float s = f->a / f->b, steepest = 0.0f;
        int at = -1, to = 0;

        for (int i = 0; i < 16; i++) {
            float g = s * w[i] * (x[i] - s * (float)f->code[i]);
            int l = f->code[i] + (g > 0.0f ? 1 : -1);
            if (fabsf(g) > steepest && l >= -half && l < half) {
                steepest = fabsf(g);
                at = i;
                to = l;
            }
        }
        if (at < 0)
            return;
        float l0 = (float)f->code[at], l1 = (float)to;
        float a = f->a + w[at] * x[at] * (l1 - l0), b = f->b + w[at] * (l1 * l1 - l0 * l0);
        if (!better(a, b, f->a, f->b))
            return;
        f->code[at] = to;
        f->a = a;
        f->b = b;
    }
}

static float symmetric_fit(const float *x, const float *w, int half)
{
    float m = extreme(x, 16);
    symmetric best;

    if (fabsf(m) < 1e-15f)
        return 0.0f;
    best = symmetric_try(x, w, half, (float)-half / m);
    for (int k = -9; k <= 9; k++)
        for (int side = 0; side < 2; side++) {
            float top = (float)(half - side) + 0.1f * (float)k;
            symmetric f = symmetric_try(x, w, half, side ? top / m : -top / m);
            if (better(f.a, f.b, best.a, best.b))
                best = f;
        }
    symmetric_polish(x, w, half, &best);
    return best.b > 0.0f ? best.a / best.b : 0.0f;
}

static bool encode_q6_k(const float *x, uint8_t *b)
{
    float scale[16];
    int code[QK_K];

    for (int j = 0; j < 16; j++) {
        float w[16];

        for (int i = 0; i < 16; i++)
            w[i] = x[16 * j + i] * x[16 * j + i];
        scale[j] = symmetric_fit(x + 16 * j, w, 32);
    }
    if (!put_f16(b + 208, extreme(scale, 16) / -128.0f))
        return false;
    float d = get_f16(b + 208);
    for (int j = 0; j < 16; j++) {
        int s = d != 0.0f ? (int)clampf(rintf(scale[j] / d), -128.0f, 127.0f) : 0;
        float inv = s ? 1.0f / (d * (float)s) : 0.0f;

        b[192 + j] = (uint8_t)(int8_t)s;
        for (int i = 0; i < 16; i++)
            code[16 * j + i] = (int)clampf(rintf(x[16 * j + i] * inv), -32.0f, 31.0f) + 32;
    }
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const int *c = code + 128 * h + l;
            b[64 * h + l] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
            b[64 * h + 32 + l] = (uint8_t)((c[32] & 15) | (c[96] & 15) << 4);
            b[128 + 32 * h + l] = (uint8_t)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
        }
    zero_if_worse(LG_Q6_K, x, b);
    return true;
}

typedef bool (*encode_fn)(const float *x, uint8_t *block);

static const encode_fn encoders[LG_QTYPE_MAX] = {
    [LG_F32] = encode_f32,     [LG_F16] = encode_f16,   [LG_BF16] = encode_bf16, [LG_Q8_0] = encode_q8_0,
    [LG_Q4_0] = encode_q4_0,   [LG_Q4_1] = encode_q4_1, [LG_Q5_0] = encode_q5_0, [LG_Q5_1] = encode_q5_1,
    [LG_Q4_K] = encode_q4_k,   [LG_Q5_K] = encode_q5_k, [LG_Q6_K] = encode_q6_k, [LG_MXFP4] = encode_mxfp4,
    [LG_NVFP4] = encode_nvfp4,
};

bool lg_quant_row(lg_qtype type, const float *src, void *dst, int64_t n)
{
    const lg_qtype_info *t = lg_qtype_get((uint32_t)type);
    uint8_t *b = dst;

    if (!t->runs || !encoders[type])
        return false;
    LG_ASSERT(n % t->block_elems == 0);
    for (int64_t i = 0; i < n; i += t->block_elems, b += t->block_bytes)
        if (!encoders[type](src + i, b))
            return false;
    return true;
}
