/*
 * backend/cpu/kernels_c: the reference kernels, plain loops in the order that kernels.h fixes. Clarity only.
 *
 * gemm's tile is a copy of the rows; every run is spelled out as integers once and used for all columns, with
 * y itself as the accumulators. The one thing that is not naive: fmaf, because the contract rounds once per
 * multiply-add.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/blocks.h"
#include "backend/cpu/kernels.h"

// Where the parts of a quantised activation row of n are.
typedef struct act_row {
    const int8_t *code;
    const int16_t *sum, *step;
    const float *scale;
} act_row;

static act_row act_parts(const uint8_t *row, int n)
{
    return (act_row){.code = (const int8_t *)row,
                     .sum = (const int16_t *)(const void *)(row + lg_act_sums_at(n)),
                     .step = (const int16_t *)(const void *)(row + lg_act_steps_at(n)),
                     .scale = (const float *)(const void *)(row + lg_act_scales_at(n))};
}

// A run of a weight row times inputs [at, at + elems) of an activation row, added to acc.
static float add_run(const lg_terms *t, const act_row *a, int at, int elems, float da, bool has_min,
                     float acc)
{
    int32_t product = 0, min = 0;

    for (int g = 0; g < elems / 16; g++) {
        int32_t dot = 0;

        for (int i = 16 * g; i < 16 * g + 16; i++)
            dot += t->code[i] * a->code[at + i];
        product += t->scale[g] * a->step[at / 16 + g] * dot;
        min += t->min[g] * a->sum[at / 16 + g];
    }
    acc = fmaf(t->d * da, (float)product, acc);
    return has_min ? fmaf(t->m * da, (float)min, acc) : acc;
}

static void quant_product(lg_qtype type, const uint8_t *rows, size_t row_bytes, int n_in, int n_rows,
                          const lg_acts *x, const int32_t *idx, int n_cols, float *y, size_t y_stride)
{
    int elems = lg_run_elems(type), scale_every = lg_qtype_get((uint32_t)type)->block_elems == 256 ? 256 : 32;
    bool has_min = lg_run_has_min(type);
    lg_terms t = {0};

    for (int i = 0; i < n_rows; i++) {
        for (int c = 0; c < n_cols; c++)
            y[(size_t)c * y_stride + (size_t)i] = 0.0f;
        for (int r = 0; r < n_in / elems; r++) {
            lg_terms_get(type, rows + (size_t)i * row_bytes, r, &t);
            for (int c = 0; c < n_cols; c++) {
                act_row a = act_parts(x->p + (size_t)(idx ? idx[c] : c) * x->stride, n_in);
                float *acc = &y[(size_t)c * y_stride + (size_t)i];

                *acc = add_run(&t, &a, r * elems, elems, a.scale[r * elems / scale_every], has_min, *acc);
            }
        }
    }
}

static float float_weight(lg_qtype type, const uint8_t *row, int i)
{
    if (type == LG_F32) {
        float f;

        memcpy(&f, row + (size_t)i * 4, sizeof f);
        return f;
    }
    uint16_t h = get16(row + (size_t)i * 2);
    return type == LG_F16 ? lg_f16_to_f32(h) : lg_bf16_to_f32(h);
}

static void float_product(lg_qtype type, const uint8_t *rows, size_t row_bytes, int n_in, int n_rows,
                          const lg_acts *x, const int32_t *idx, int n_cols, float *y, size_t y_stride)
{
    for (int c = 0; c < n_cols; c++) {
        const float *a = (const float *)(const void *)(x->p + (size_t)(idx ? idx[c] : c) * x->stride);

        for (int i = 0; i < n_rows; i++) {
            const uint8_t *row = rows + (size_t)i * row_bytes;
            float lane[8] = {0};

            for (int j = 0; j < n_in; j++)
                lane[j % 8] = fmaf(float_weight(type, row, j), a[j], lane[j % 8]);
            for (int j = 0; j < 4; j++)
                lane[j] += lane[j + 4];
            y[(size_t)c * y_stride + (size_t)i] = (lane[0] + lane[2]) + (lane[1] + lane[3]);
        }
    }
}

static size_t row_bytes_of(lg_qtype type, int n_in)
{
    size_t bytes = 0;
    bool whole = lg_row_bytes(type, (uint64_t)n_in, &bytes);

    LG_ASSERT(whole);
    return bytes;
}

static void copy_rows(const lg_mat *w, int row, int n_rows, void *tile)
{
    memcpy(tile, w->p + (size_t)row * w->row_bytes, (size_t)n_rows * w->row_bytes);
}

#define TYPE_KERNELS(id, product)                                                                            \
    static void gemv_##id(const lg_mat *w, int row, int n_rows, const void *x, float *y)                     \
    {                                                                                                        \
        lg_acts one = {.p = x};                                                                              \
        product(LG_##id, w->p + (size_t)row * w->row_bytes, w->row_bytes, w->n_in, n_rows, &one, NULL, 1, y, \
                0);                                                                                          \
    }                                                                                                        \
    static void gemm_##id(const void *tile, int n_in, int n_rows, const lg_acts *x, const int32_t *idx,      \
                          int n_cols, float *y, size_t y_stride)                                             \
    {                                                                                                        \
        product(LG_##id, tile, row_bytes_of(LG_##id, n_in), n_in, n_rows, x, idx, n_cols, y, y_stride);      \
    }

TYPE_KERNELS(F32, float_product)
TYPE_KERNELS(F16, float_product)
TYPE_KERNELS(BF16, float_product)
TYPE_KERNELS(Q8_0, quant_product)
TYPE_KERNELS(Q4_0, quant_product)
TYPE_KERNELS(Q4_1, quant_product)
TYPE_KERNELS(Q5_0, quant_product)
TYPE_KERNELS(Q5_1, quant_product)
TYPE_KERNELS(IQ4_NL, quant_product)
TYPE_KERNELS(MXFP4, quant_product)
TYPE_KERNELS(NVFP4, quant_product)
TYPE_KERNELS(Q2_K, quant_product)
TYPE_KERNELS(Q3_K, quant_product)
TYPE_KERNELS(Q4_K, quant_product)
TYPE_KERNELS(Q5_K, quant_product)
TYPE_KERNELS(Q6_K, quant_product)
TYPE_KERNELS(IQ4_XS, quant_product)

static float largest(const float *x, int n)
{
    float max = 0.0f;

    for (int i = 0; i < n; i++)
        max = fmaxf(max, fabsf(x[i]));
    return max;
}

static void quant_row(lg_act_kind kind, const float *x, int n, uint8_t *row)
{
    int block = lg_act_block(kind), group = lg_act_group(kind);
    float steps = (float)lg_act_steps(kind);
    int8_t *q = (int8_t *)row;
    int16_t *sums = (int16_t *)(void *)(row + lg_act_sums_at(n));
    int16_t *step = (int16_t *)(void *)(row + lg_act_steps_at(n));
    float *scales = (float *)(void *)(row + lg_act_scales_at(n));

    for (int at = 0; at < n; at += group) {
        float max = largest(x + at / block * block, block);
        bool zero = !(max >= 0x1p-100f);
        float s = zero ? 0.0f : ceilf(largest(x + at, group) * (steps / max));
        s = s >= 1.0f ? fminf(s, steps) : 1.0f; // also for NaN
        float inverse = zero ? 0.0f : 127.0f * steps / max / s;

        scales[at / block] = zero ? 0.0f : max / (127.0f * steps);
        for (int g = at; g < at + group; g += 16) {
            int sum = 0;

            for (int i = g; i < g + 16; i++) {
                float code = rintf(x[i] * inverse);

                q[i] =
                    code >= -127.0f && code <= 127.0f ? (int8_t)code : 0; // the guard is for NaN and infinity
                sum += q[i];
            }
            step[g / 16] = (int16_t)s;
            sums[g / 16] = (int16_t)((int)s * sum);
        }
    }
}

static void quant_q32(const float *x, int n, void *row)
{
    quant_row(LG_ACT_Q32, x, n, row);
}

static void quant_q256(const float *x, int n, void *row)
{
    quant_row(LG_ACT_Q256, x, n, row);
}

static void swiglu(const float *gate, const float *up, float *out, int n)
{
    for (int i = 0; i < n; i++) {
        float g = gate[i], e = expf(-fabsf(g)); // never overflows; sigmoid(g) = 1 / (1 + e) or e / (1 + e)

        out[i] = g * ((g < 0.0f ? e : 1.0f) / (1.0f + e)) * up[i];
    }
}

static uint64_t probe_read(const void *p, size_t bytes)
{
    const uint64_t *w = p;
    uint64_t sum[4] = {0};

    for (size_t i = 0; i < bytes / 8; i += 4)
        for (int j = 0; j < 4; j++)
            sum[j] ^= w[i + (size_t)j];
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

static double probe_int8(int64_t rounds)
{
    enum { N = 64 };
    volatile int8_t seed = 3;
    int32_t acc[N];
    int8_t a = seed;

    for (int i = 0; i < N; i++)
        acc[i] = i;
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < N; i++)
            acc[i] = (int32_t)((uint32_t)acc[i] + (uint32_t)(a * (int8_t)acc[i]));
    for (int i = 1; i < N; i++)
        acc[0] ^= acc[i];
    seed = (int8_t)acc[0];
    return (double)rounds * N * 2;
}

#define ENTRY(id, kind)                             \
    k->type[LG_##id] = (lg_type_kernels)            \
    {                                               \
        kind, gemv_##id, copy_rows, gemm_##id, NULL \
    }

void lg_cpu_init_c(lg_cpu_kernels *k)
{
    k->isa = "c";
    ENTRY(F32, LG_ACT_F32);
    ENTRY(F16, LG_ACT_F32);
    ENTRY(BF16, LG_ACT_F32);
    ENTRY(Q8_0, LG_ACT_Q32);
    ENTRY(Q4_0, LG_ACT_Q32);
    ENTRY(Q4_1, LG_ACT_Q32);
    ENTRY(Q5_0, LG_ACT_Q32);
    ENTRY(Q5_1, LG_ACT_Q32);
    ENTRY(IQ4_NL, LG_ACT_Q32);
    ENTRY(MXFP4, LG_ACT_Q32);
    ENTRY(NVFP4, LG_ACT_Q32);
    ENTRY(Q2_K, LG_ACT_Q256);
    ENTRY(Q3_K, LG_ACT_Q256);
    ENTRY(Q4_K, LG_ACT_Q256);
    ENTRY(Q5_K, LG_ACT_Q256);
    ENTRY(Q6_K, LG_ACT_Q256);
    ENTRY(IQ4_XS, LG_ACT_Q256);
    k->quant[LG_ACT_Q32] = quant_q32;
    k->quant[LG_ACT_Q256] = quant_q256;
    k->swiglu = swiglu;
    k->probe_read = probe_read;
    k->probe_int8 = probe_int8;
}
