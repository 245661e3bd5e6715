/*
 * Tests of gguf/quant: recorded bytes of the reference tools, decoders against an independent per-element
 * decoder in double precision on random bytes (extreme scales included), and the scalar conversions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "gguf/quant.h"

#define GOLDEN LG_TEST_DIR "/golden/quant/"

static uint64_t rng_state = 20261129;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    return rng_state ^= rng_state << 17;
}

static char *slurp(const char *path, size_t *n)
{
    char *p = NULL;

    assert_int_equal(lg_read_all(path, 64 << 20, &p, n, NULL), LG_OK);
    return p;
}

// --- recorded cases ---

typedef struct golden_tensor {
    char name[16];
    int matrices, rows, cols;
    long offset, importance_offset;
} golden_tensor;

typedef struct golden_case {
    char tensor[16], type[16], kind[16], expect[16];
    long offset, bytes;
    double rel_rmse, limit;
} golden_case;

typedef struct golden {
    char *text, *sources, *reference;
    size_t n_text, n_sources, n_reference;
    golden_tensor tensors[16];
    int n_tensors;
} golden;

static double rel_rmse(const float *x, const float *y, size_t n)
{
    double e = 0, s = 0;

    for (size_t i = 0; i < n; i++) {
        e += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        s += (double)x[i] * (double)x[i];
    }
    return sqrt(e / s);
}

static void check_case(const golden *g, const golden_case *c)
{
    const golden_tensor *t = NULL;
    lg_qtype type;
    size_t row_bytes, n;

    for (int i = 0; i < g->n_tensors; i++)
        if (!strcmp(g->tensors[i].name, c->tensor))
            t = &g->tensors[i];
    assert_non_null(t);
    assert_true(lg_qtype_find(lg_str_of(c->type), &type));
    assert_true(lg_row_bytes(type, (uint64_t)t->cols, &row_bytes));
    size_t rows = (size_t)t->matrices * (size_t)t->rows;
    n = rows * (size_t)t->cols;
    const float *x = (const float *)(const void *)(g->sources + t->offset);
    float *y = malloc(n * sizeof *y);
    uint8_t *b = malloc(rows * row_bytes);

    // every recorded block run decodes to what was recorded about it
    if (c->offset >= 0) {
        assert_int_equal(c->bytes, rows * row_bytes);
        lg_dequant_row(type, g->reference + c->offset, y, (int64_t)n);
        double e = rel_rmse(x, y, n);
        if (fabs(e - c->rel_rmse) > 1e-5 * c->rel_rmse)
            fail_msg("%s %s %s decodes with error %.9g, recorded %.9g", c->tensor, c->type, c->kind, e,
                     c->rel_rmse);
    }
    bool plain = !strcmp(c->kind, "plain");
    bool done = plain && lg_quant_row(type, x, b, (int64_t)n);
    if (plain && !strcmp(c->expect, "refuse")) {
        assert_false(done);
    } else if (done) {
        lg_dequant_row(type, b, y, (int64_t)n);
        double e = rel_rmse(x, y, n);
        if (!strcmp(c->expect, "equal") && memcmp(b, g->reference + c->offset, rows * row_bytes))
            fail_msg("%s %s differs from the recorded bytes", c->tensor, c->type);
        if (!strcmp(c->expect, "error") && !(e <= c->limit))
            fail_msg("%s %s has error %.6g, limit %.6g", c->tensor, c->type, e, c->limit);
        if (!strcmp(c->expect, "bounded") && !(e <= 1.0))
            fail_msg("%s %s has error %.6g", c->tensor, c->type, e);
    }
    free(y);
    free(b);
}

static void test_golden(void **state)
{
    golden g = {0};
    int n_cases = 0, n_equal = 0;

    (void)state;
    g.text = slurp(GOLDEN "cases.txt", &g.n_text);
    g.sources = slurp(GOLDEN "sources.bin", &g.n_sources);
    g.reference = slurp(GOLDEN "reference.bin", &g.n_reference);
    for (char *line = strtok(g.text, "\n"); line; line = strtok(NULL, "\n")) {
        golden_tensor t;
        golden_case c;

        if (sscanf(line, "tensor %15s %d %d %d %ld %ld", t.name, &t.matrices, &t.rows, &t.cols, &t.offset,
                   &t.importance_offset) == 6) {
            assert_true(g.n_tensors < 16);
            g.tensors[g.n_tensors++] = t;
        } else if (sscanf(line, "case %15s %15s %15s %15s %ld %ld %lf %lf", c.tensor, c.type, c.kind,
                          c.expect, &c.offset, &c.bytes, &c.rel_rmse, &c.limit) == 8) {
            check_case(&g, &c);
            n_cases++;
            n_equal += !strcmp(c.expect, "equal");
        } else {
            assert_int_equal(line[0], '#');
        }
    }
    assert_int_equal(g.n_tensors, 7);
    assert_int_equal(n_cases, 175);
    assert_int_equal(n_equal, 39);
    free(g.text);
    free(g.sources);
    free(g.reference);
}

// --- decoders against a second one: element by element from the layout tables, in double precision ---

static unsigned bits(const uint8_t *b, int bit, int n)
{
    unsigned v = 0;

    for (int i = 0; i < n; i++)
        v |= (unsigned)(b[(bit + i) / 8] >> (bit + i) % 8 & 1) << i;
    return v;
}

static double half_at(const uint8_t *b)
{
    unsigned man = bits(b, 0, 10), exp = bits(b, 10, 5);
    double v = exp == 31 ? (man ? (double)NAN : (double)INFINITY)
               : exp     ? ldexp(1024.0 + man, (int)exp - 25)
                         : ldexp(man, -24);

    return bits(b, 15, 1) ? -v : v;
}

// scale/min pair j of Q4_K, Q5_K: 6-bit fields whose upper part of the second half is spread over the first
static void pair_at(const uint8_t *b, int j, double *s, double *m)
{
    *s = j < 4 ? bits(b, 8 * j, 6) : bits(b, 8 * (j + 4), 4) + 16 * bits(b, 8 * (j - 4) + 6, 2);
    *m = j < 4 ? bits(b, 8 * (j + 4), 6) : bits(b, 8 * (j + 4) + 4, 4) + 16 * bits(b, 8 * j + 6, 2);
}

static double level(unsigned i)
{
    static const double t[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

    return t[i];
}

static double e2m1(unsigned c)
{
    static const double t[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

    return c & 8 ? -t[c & 7] : t[c];
}

// Nibble of element i where runs of `run` elements have the first half in low, the second in high nibbles.
static unsigned nib(const uint8_t *q, int i, int run)
{
    int r = i / run, k = i % run, half = run / 2;

    return bits(q, 8 * (r * half + k % half) + 4 * (k / half), 4);
}

static double element(lg_qtype type, const uint8_t *b, int i)
{
    double s, m;

    switch (type) {
    case LG_Q8_0:
        return half_at(b) * (bits(b, 16 + 8 * i, 8) - 256.0 * bits(b, 16 + 8 * i + 7, 1));
    case LG_Q4_0:
        return half_at(b) * (nib(b + 2, i, 32) - 8.0);
    case LG_Q4_1:
        return half_at(b) * nib(b + 4, i, 32) + half_at(b + 2);
    case LG_Q5_0:
        return half_at(b) * (nib(b + 6, i, 32) + 16.0 * bits(b + 2, i, 1) - 16.0);
    case LG_Q5_1:
        return half_at(b) * (nib(b + 8, i, 32) + 16.0 * bits(b + 4, i, 1)) + half_at(b + 2);
    case LG_Q2_K:
        return half_at(b + 80) * bits(b, 8 * (i / 16), 4) *
                   bits(b + 16, 8 * (i / 128 * 32 + i % 32) + i % 128 / 32 * 2, 2) -
               half_at(b + 82) * bits(b, 8 * (i / 16) + 4, 4);
    case LG_Q3_K: {
        int k = i / 16;
        double scale = bits(b + 96, 8 * (k % 8) + 4 * (k / 8), 4) +
                       16.0 * bits(b + 104, 8 * (k % 4) + 2 * (k / 4), 2) - 32.0;
        double code = bits(b + 32, 8 * (i / 128 * 32 + i % 32) + i % 128 / 32 * 2, 2) +
                      4.0 * bits(b, 8 * (i % 32) + i / 32, 1) - 4.0;
        return half_at(b + 108) * scale * code;
    }
    case LG_Q4_K:
        pair_at(b + 4, i / 32, &s, &m);
        return half_at(b) * s * nib(b + 16, i, 64) - half_at(b + 2) * m;
    case LG_Q5_K:
        pair_at(b + 4, i / 32, &s, &m);
        return half_at(b) * s * (nib(b + 48, i, 64) + 16.0 * bits(b + 16, 8 * (i % 32) + i / 32, 1)) -
               half_at(b + 2) * m;
    case LG_Q6_K: {
        int h = i / 128, t = i % 128 / 32, l = i % 32;
        double code = bits(b + 64 * h, 8 * (32 * (t % 2) + l) + 4 * (t / 2), 4) +
                      16.0 * bits(b + 128 + 32 * h, 8 * l + 2 * t, 2) - 32.0;
        const uint8_t *sc = b + 192 + i / 16;
        return half_at(b + 208) * (bits(sc, 0, 8) - 256.0 * bits(sc, 7, 1)) * code;
    }
    case LG_IQ4_NL:
        return half_at(b) * level(nib(b + 2, i, 32));
    case LG_IQ4_XS:
        return half_at(b) * (bits(b + 4, 4 * (i / 32), 4) + 16.0 * bits(b + 2, 2 * (i / 32), 2) - 32.0) *
               level(nib(b + 8, i, 32));
    case LG_MXFP4:
        return ldexp(e2m1(nib(b + 1, i, 32)), (int)b[0] - 127);
    case LG_NVFP4: {
        unsigned exp = bits(b + i / 16, 3, 4), man = bits(b + i / 16, 0, 3);
        double scale = b[i / 16] == 0x7F ? 0.0 : exp ? ldexp(1.0 + man / 8.0, (int)exp - 7) : ldexp(man, -9);
        return scale * e2m1(nib(b + 4, i, 16));
    }
    case LG_F16:
        return half_at(b);
    default:
        fail();
        return 0;
    }
}

static bool same(double want, float got)
{
    float w = (float)want;

    if (isnan(want))
        return isnan(got);
    // one rounding at most separates the two: the f32 decoder's subtraction of the minimum
    return w == got || nextafterf(w, INFINITY) == got || nextafterf(w, -INFINITY) == got;
}

static void test_random_blocks(void **state)
{
    static const lg_qtype all[] = {LG_F16,  LG_Q8_0,   LG_Q4_0,   LG_Q4_1,  LG_Q5_0,
                                   LG_Q5_1, LG_Q2_K,   LG_Q3_K,   LG_Q4_K,  LG_Q5_K,
                                   LG_Q6_K, LG_IQ4_NL, LG_IQ4_XS, LG_MXFP4, LG_NVFP4};
    // offsets of the f16 fields of each type; they get extreme values in part of the blocks
    static const struct {
        lg_qtype type;
        int at[2];
    } halves[] = {{LG_Q8_0, {0, 0}}, {LG_Q4_0, {0, 0}},     {LG_Q4_1, {0, 2}},     {LG_Q5_0, {0, 0}},
                  {LG_Q5_1, {0, 2}}, {LG_Q2_K, {80, 82}},   {LG_Q3_K, {108, 108}}, {LG_Q4_K, {0, 2}},
                  {LG_Q5_K, {0, 2}}, {LG_Q6_K, {208, 208}}, {LG_IQ4_NL, {0, 0}},   {LG_IQ4_XS, {0, 0}}};
    static const uint16_t extremes[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400,
                                        0x8400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xBC00};

    (void)state;
    for (size_t a = 0; a < sizeof all / sizeof *all; a++) {
        const lg_qtype_info *t = lg_qtype_get((uint32_t)all[a]);
        long nonzero = 0;

        for (int round = 0; round < 3000; round++) {
            uint8_t b[256];
            float y[256];

            for (int i = 0; i < t->block_bytes; i++)
                b[i] = (uint8_t)(rng() >> 24);
            for (size_t h = 0; round % 3 == 0 && h < sizeof halves / sizeof *halves; h++)
                for (int k = 0; k < 2 && halves[h].type == all[a]; k++) {
                    uint16_t v = extremes[rng() % (sizeof extremes / sizeof *extremes)];
                    b[halves[h].at[k]] = (uint8_t)v;
                    b[halves[h].at[k] + 1] = (uint8_t)(v >> 8);
                }
            lg_dequant_row(all[a], b, y, t->block_elems);
            for (int i = 0; i < t->block_elems; i++) {
                double want = element(all[a], b, i);
                if (!same(want, y[i]))
                    fail_msg("%s round %d element %d: got %.9g, want %.9g", t->name, round, i, (double)y[i],
                             want);
                nonzero += y[i] != 0.0f;
            }
        }
        assert_true(nonzero > 2000);
    }
}

static void test_round_trip(void **state)
{
    // what was written and read once is a fixed point, for types whose grid must be hit
    static const lg_qtype exact[] = {LG_F32, LG_F16, LG_BF16, LG_MXFP4};

    (void)state;
    for (size_t a = 0; a < sizeof exact / sizeof *exact; a++)
        for (int round = 0; round < 200; round++) {
            float x[64], y[64], z[64];
            uint8_t b[256];

            for (int i = 0; i < 64; i++)
                x[i] = ldexpf((float)(int16_t)(rng() >> 20), (int)(rng() >> 40 & 7) - 20);
            assert_true(lg_quant_row(exact[a], x, b, 64));
            lg_dequant_row(exact[a], b, y, 64);
            assert_true(lg_quant_row(exact[a], y, b, 64));
            lg_dequant_row(exact[a], b, z, 64);
            assert_memory_equal(y, z, sizeof y);
            if (exact[a] == LG_F32)
                assert_memory_equal(x, y, sizeof y);
        }
}

// --- scalars and table ---

static void test_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint8_t b[2] = {(uint8_t)h, (uint8_t)(h >> 8)};
        double want = half_at(b);
        float got = lg_f16_to_f32((uint16_t)h);

        if (isnan(want)) {
            assert_true(isnan(got));
            assert_int_equal(lg_f32_to_f16(got), h | 0x200);
            continue;
        }
        assert_true((double)got == want && !!signbit(got) == !!signbit(want));
        assert_int_equal(lg_f32_to_f16(got), h);
        if (h & 0x8000 || h >= 0x7BFF)
            continue;
        // around the midpoint to the next value: below goes down, above up, the tie to the even code
        float next = lg_f16_to_f32((uint16_t)(h + 1)), mid = (got + next) / 2;
        assert_int_equal(lg_f32_to_f16(mid), h + (h & 1));
        assert_int_equal(lg_f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(lg_f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(lg_f32_to_f16(-mid), 0x8000 | (h + (h & 1)));
    }
    assert_int_equal(lg_f32_to_f16(65519.996f), 0x7BFF);
    assert_int_equal(lg_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(lg_f32_to_f16(-1e30f), 0xFC00);
    assert_int_equal(lg_f32_to_f16(1e-30f), 0);
}

static void test_casts(void **state)
{
    size_t n;
    char *p = slurp(GOLDEN "casts.bin", &n);
    const float *x = (const float *)(void *)p;
    const uint16_t *f16 = (const uint16_t *)(void *)(p + 1024), *bf16 = f16 + 256;

    (void)state;
    assert_int_equal(n, 3072);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(lg_f32_to_f16(x[i]), f16[i]);
        assert_int_equal(lg_f32_to_bf16(x[i]), bf16[i]);
        uint32_t u;
        float back = lg_bf16_to_f32(bf16[i]);
        memcpy(&u, &back, 4);
        assert_int_equal(u, (uint32_t)bf16[i] << 16);
    }
    free(p);
}

static void test_types(void **state)
{
    lg_qtype t;
    size_t n;

    (void)state;
    assert_string_equal(lg_qtype_get(12)->name, "Q4_K");
    assert_null(lg_qtype_get(4)->name);
    assert_null(lg_qtype_get(41)->name);
    assert_null(lg_qtype_get(UINT32_MAX)->name);
    assert_false(lg_qtype_get(16)->runs); // IQ2_XXS: listed, not run
    assert_false(lg_qtype_get(LG_I32)->runs);
    assert_true(lg_qtype_find(LG_STR("bF16"), &t) && t == LG_BF16);
    assert_false(lg_qtype_find(LG_STR("IQ2_XXS"), &t));
    assert_false(lg_qtype_find(LG_STR("q4_"), &t));
    assert_false(lg_qtype_find(LG_STR(""), &t));
    assert_true(lg_row_bytes(LG_Q6_K, 3072, &n) && n == 2520);
    assert_true(lg_row_bytes(LG_Q6_K, 0, &n) && n == 0);
    assert_false(lg_row_bytes(LG_Q6_K, 3073, &n));
    assert_false(lg_row_bytes((lg_qtype)4, 32, &n));
    assert_false(lg_row_bytes(LG_F32, UINT64_MAX / 2, &n));
    assert_false(lg_quant_row(LG_Q2_K, (float[256]){0}, (uint8_t[84]){0}, 256));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),      cmocka_unit_test(test_f16),
        cmocka_unit_test(test_casts),      cmocka_unit_test(test_random_blocks),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
