/*
 * kcheck: activation quantisation (bit for bit) and SwiGLU (against double, and the same bits at every
 * place).
 */
#include <math.h>
#include <string.h>

#include "kcheck.h"

// Parts of a quantised row of n.
typedef struct parts {
    const int8_t *code;
    const int16_t *sum, *step;
    const float *scale;
} parts;

static parts parts_of(const uint8_t *row, int n)
{
    return (parts){(const int8_t *)row, (const int16_t *)(const void *)(row + lg_act_sums_at(n)),
                   (const int16_t *)(const void *)(row + lg_act_steps_at(n)),
                   (const float *)(const void *)(row + lg_act_scales_at(n))};
}

static double largest(const float *x, int n)
{
    double max = 0.0;

    for (int i = 0; i < n; i++)
        max = fabs((double)x[i]) > max ? fabs((double)x[i]) : max; // fmax crashes gcc 12 for arm64 here
    return max;
}

// The reference itself: each group's step the smallest that holds its largest value, codes half a unit from
// the input, and sums that are sums.
static void check_meaning(kc *t, lg_act_kind kind, const float *x, int n, const parts *p)
{
    int block = lg_act_block(kind), group = lg_act_group(kind), top = lg_act_steps(kind);

    for (int at = 0; at < n; at += group) {
        double max = largest(x + at / block * block, block), most = largest(x + at, group);
        double unit = (double)p->scale[at / block];
        int step = p->step[at / 16];
        bool zero = max < 0x1p-100;

        kc_check(t,
                 step >= 1 && step <= top &&
                     (zero || (step * (max / top) >= most * (1 - 1e-6) &&
                               (step - 1) * (max / top) <= most * (1 + 1e-6))),
                 "step of group %d is %d for %.9g of %.9g", at / group, step, most, max);
        kc_check(t, zero ? unit == 0.0 : fabs(unit * 127.0 * top - max) <= 1e-6 * max, "scale %d",
                 at / block);
        for (int i = at; i < at + group; i++)
            kc_check(t, fabs(p->code[i] * step * unit - (zero ? 0.0 : (double)x[i])) <= step * unit * 0.5001,
                     "code %d is %d for %.9g with step %d of %.9g", i, p->code[i], (double)x[i], step, unit);
        for (int g = at / 16; g < (at + group) / 16; g++) {
            int sum = 0;

            for (int i = 0; i < 16; i++)
                sum += p->code[16 * g + i];
            kc_check(t, step * sum == p->sum[g] && step == p->step[g], "sum %d is %d, not %d", g, p->sum[g],
                     step * sum);
        }
    }
}

static void check_row(kc *t, lg_act_kind kind, int n, int mode)
{
    size_t bytes = lg_act_bytes(kind, n), per_16 = (size_t)n / 16 * sizeof(int16_t);
    float *x = kc_guard(t, (size_t)n * sizeof *x);
    uint8_t *got = kc_guard(t, bytes), *want = kc_guard(t, bytes);

    kc_label(t, "quant/%s n %d inputs %d", kind == LG_ACT_Q32 ? "q32" : "q256", n, mode);
    kc_fill_x(t, x, n, mode);
    t->k.quant[kind](x, n, got);
    t->ref.quant[kind](x, n, want);
    parts a = parts_of(got, n), b = parts_of(want, n);
    kc_check(t, memcmp(a.code, b.code, (size_t)n) == 0, "codes differ from the reference's");
    kc_check(t, memcmp(a.sum, b.sum, per_16) == 0, "sums differ from the reference's");
    kc_check(t, memcmp(a.step, b.step, per_16) == 0, "steps differ from the reference's");
    kc_check(t, memcmp(a.scale, b.scale, (size_t)(n / lg_act_block(kind)) * sizeof(float)) == 0,
             "scales differ from the reference's");
    check_meaning(t, kind, x, n, &b);
    kc_release(t);
}

void kc_case_quant(kc *t)
{
    if (t->only)
        return;
    for (int mode = 0; mode < KC_X_MODES; mode++)
        for (int i = 0; i < 6; i++) {
            check_row(t, LG_ACT_Q32, 32 * (i < 4 ? i + 1 : kc_int(t, 1, 100)), mode);
            check_row(t, LG_ACT_Q256, 256 * (i < 3 ? i + 1 : kc_int(t, 1, 12)), mode);
        }
    // Infinity and NaN may give anything, but must not fault.
    float *x = kc_guard(t, 512 * sizeof *x);
    uint8_t *row = kc_guard(t, lg_act_bytes(LG_ACT_Q32, 512));
    kc_label(t, "quant/not finite");
    for (int i = 0; i < 512; i++)
        x[i] = i % 3 ? (i % 2 ? INFINITY : -INFINITY) : NAN;
    t->k.quant[LG_ACT_Q32](x, 512, row);
    t->k.quant[LG_ACT_Q256](x, 512, row);
    kc_check(t, true, "no fault");
    kc_release(t);
}

void kc_case_swiglu(kc *t)
{
    if (t->only)
        return;
    for (int n = 1; n <= 67; n++) {
        float *g = kc_guard(t, (size_t)n * sizeof *g), *u = kc_guard(t, (size_t)n * sizeof *u);
        float *out = kc_guard(t, (size_t)n * sizeof *out), one;
        float size = n % 4 == 0 ? 1.0f : n % 4 == 1 ? 20.0f : n % 4 == 2 ? 150.0f : 3e6f;

        kc_label(t, "swiglu/n %d", n);
        for (int i = 0; i < n; i++) {
            g[i] = kc_normal(t) * size;
            u[i] = kc_normal(t) * (n % 3 ? 1.0f : 1e6f);
        }
        t->k.swiglu(g, u, out, n);
        for (int i = 0; i < n; i++) {
            double z = (double)g[i], want = z / (1.0 + exp(-z)) * (double)u[i];
            double tolerance = 0x1p-20 * fabs(want) + 0x1p-118 * fabs((double)u[i]);

            kc_check(t, fabs((double)out[i] - want) <= tolerance, "silu(%.9g) * %.9g is %.9g, not %.9g", z,
                     (double)u[i], (double)out[i], want);
            t->k.swiglu(g + i, u + i, &one, 1);
            kc_check(t, one == out[i], "element %d depends on its place", i);
        }
        t->k.swiglu(g, u, g, n);
        kc_same(t, g, out, n, "in place");
        kc_release(t);
    }
    kc_label(t, "swiglu/limits");
    float g[4] = {-1e30f, -200.0f, 200.0f, NAN}, u[4] = {1.0f, 1.0f, 1.0f, 1.0f}, out[4];
    t->k.swiglu(g, u, out, 4);
    kc_check(t, out[0] == 0.0f && out[1] == 0.0f && out[2] == 200.0f && out[3] != out[3],
             "limits are %g %g %g %g", (double)out[0], (double)out[1], (double)out[2], (double)out[3]);
}
