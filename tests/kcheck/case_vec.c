/*
 * kcheck: the float kernels of kernels_vec.h against double, at the tolerances that its header states, and
 * the promise that a query's and a key's result does not depend on the size of the call nor on f16 against
 * f32.
 */
#include <math.h>
#include <string.h>

#include "kcheck.h"

enum { KEYS_MAX = 70, QUERIES_MAX = 20, DIM_MAX = 128 };

static float *random_floats(kc *t, int n, double size)
{
    float *p = kc_guard(t, (size_t)n * sizeof *p);

    for (int i = 0; i < n; i++)
        p[i] = (float)(kc_normal(t) * size);
    return p;
}

// n values in f16 and the same in f32.
static uint16_t *random_halves(kc *t, int n, float **as_f32)
{
    uint16_t *h = kc_guard(t, (size_t)n * sizeof *h);

    *as_f32 = kc_guard(t, (size_t)n * sizeof(float));
    for (int i = 0; i < n; i++) {
        h[i] = lg_f32_to_f16(kc_normal(t) * (i % 50 == 0 ? 1e-6f : 1.0f)); // some subnormal
        (*as_f32)[i] = lg_f16_to_f32(h[i]);
    }
    return h;
}

/* ---- qk, pv ---- */

static void check_qk(kc *t, int nq, int nk, int dim)
{
    int stride = nk + kc_int(t, 0, 5);
    float *keys, *q = random_floats(t, nq * dim, 2), one;
    uint16_t *halves = random_halves(t, nk * dim, &keys);
    size_t cells = (size_t)(nq - 1) * (size_t)stride + (size_t)nk;
    float *got = kc_guard(t, cells * sizeof *got), *same = kc_guard(t, cells * sizeof *same);

    kc_label(t, "vec/qk queries %d keys %d dim %d", nq, nk, dim);
    t->k.vec.qk_f16(q, nq, halves, nk, dim, got, stride, nk % 2 ? halves : NULL);
    t->k.vec.qk_f32(q, nq, keys, nk, dim, same, stride, nk % 2 ? keys : NULL);
    kc_check(t, memcmp(got, same, cells * sizeof *got) == 0, "f16 and f32 keys of the same values differ");
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nk; j++) {
            double want = 0, terms = 0, s = (double)got[i * stride + j];

            for (int d = 0; d < dim; d++) {
                double term = (double)q[i * dim + d] * (double)keys[j * dim + d];
                want += term;
                terms += fabs(term);
            }
            kc_check(t, fabs(s - want) <= 1e-6 * terms, "query %d key %d is %.9g, not %.9g", i, j, s, want);
            t->k.vec.qk_f32(q + i * dim, 1, keys + j * dim, 1, dim, &one, 1, NULL);
            kc_check(t, one == got[i * stride + j], "query %d key %d depends on the call's size", i, j);
        }
    kc_release(t);
}

static void check_pv(kc *t, int nq, int nv, int dim)
{
    int stride = nv + kc_int(t, 0, 5);
    float *values, *p = kc_guard(t, ((size_t)(nq - 1) * (size_t)stride + (size_t)nv) * sizeof *p),
                   one[DIM_MAX];
    uint16_t *halves = random_halves(t, nv * dim, &values);
    float *start = random_floats(t, nq * dim, 1);
    size_t bytes = (size_t)(nq * dim) * sizeof *start;
    float *got = kc_guard(t, bytes), *same = kc_guard(t, bytes);

    kc_label(t, "vec/pv queries %d values %d dim %d", nq, nv, dim);
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nv; j++)
            p[i * stride + j] = (float)kc_uniform(t, 0, 1);
    memcpy(got, start, bytes);
    memcpy(same, start, bytes);
    t->k.vec.pv_f16(p, stride, nq, halves, nv, dim, got, nv % 2 ? halves : NULL);
    t->k.vec.pv_f32(p, stride, nq, values, nv, dim, same, nv % 2 ? values : NULL);
    kc_check(t, memcmp(got, same, bytes) == 0, "f16 and f32 values that are the same differ");
    for (int i = 0; i < nq; i++) {
        memcpy(one, start + i * dim, (size_t)dim * sizeof *one);
        for (int j = 0; j < nv; j++) // one value a call: the same operations
            t->k.vec.pv_f32(p + i * stride + j, stride, 1, values + j * dim, 1, dim, one, NULL);
        kc_same(t, got + i * dim, one, dim, "one value a call");
        for (int d = 0; d < dim; d++) {
            double want = (double)start[i * dim + d], terms = fabs(want);

            for (int j = 0; j < nv; j++) {
                double term = (double)p[i * stride + j] * (double)values[j * dim + d];
                want += term;
                terms += fabs(term);
            }
            kc_check(t, fabs((double)got[i * dim + d] - want) <= 2e-6 * terms,
                     "query %d dim %d is %.9g, not %.9g", i, d, (double)got[i * dim + d], want);
        }
    }
    kc_release(t);
}

/* ---- rows ---- */

static void check_softmax(kc *t, int n, double size)
{
    float *x = random_floats(t, n, size), *e = kc_guard(t, (size_t)n * sizeof *e), max;
    double want = -INFINITY, sum = 0, terms = 0;

    kc_label(t, "vec/softmax n %d size %g", n, size);
    for (int i = 0; i < n; i++)
        want = (double)x[i] > want ? (double)x[i] : want;
    max = t->k.vec.max(x, n);
    kc_check(t, (double)max == want, "max is %.9g, not %.9g", (double)max, want);
    memcpy(e, x, (size_t)n * sizeof *e);
    if (n > 1)
        x[n / 2] = e[n / 2] = -INFINITY; // a masked logit
    float got = t->k.vec.exp_sum(e, n, max), alone = t->k.vec.exp_sum_of(x, n, max);
    kc_check(t, got == alone, "exp_sum_of %.9g, exp_sum %.9g", (double)alone, (double)got);
    for (int i = 0; i < n; i++) {
        double term = exp((double)x[i] - (double)max); // the difference is rounded to a float first
        double slack =
            term * (fabs((double)x[i] - (double)max) < 200 ? fabs((double)x[i] - (double)max) * 0x1p-24 : 0);

        kc_check(t, fabs((double)e[i] - term) <= 4e-7 * term + slack + 1e-37, "exp(%.9g) is %.9g, not %.9g",
                 (double)x[i] - (double)max, (double)e[i], term);
        sum += (double)e[i];
        terms += (double)e[i];
    }
    if (n > 1)
        kc_check(t, e[n / 2] == 0.0f || max == -INFINITY, "exp(-inf) is %.9g", (double)e[n / 2]);
    kc_check(t, fabs((double)got - sum) <= 1e-5 * terms, "sum is %.9g, not %.9g", (double)got, sum);
    kc_release(t);
}

static void check_norm(kc *t, int n, double size)
{
    float *x = random_floats(t, n, size), *w = random_floats(t, n, 1),
          *out = kc_guard(t, (size_t)n * sizeof *out);
    double squares = 0;

    kc_label(t, "vec/rmsnorm n %d size %g", n, size);
    x[n / 2] *= 1000; // a massive activation
    for (int i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    t->k.vec.rmsnorm(out, x, w, n, 1e-6f);
    for (int i = 0; i < n; i++) {
        double want = (double)x[i] / sqrt(squares / n + (double)1e-6f) * (double)w[i];
        kc_check(t, fabs((double)out[i] - want) <= 1e-6 * fabs(want) + 1e-37, "element %d is %.9g, not %.9g",
                 i, (double)out[i], want);
    }
    t->k.vec.rmsnorm(x, x, w, n, 1e-6f);
    kc_same(t, x, out, n, "in place");
    kc_release(t);
}

static void check_rows(kc *t, int n)
{
    float *x = random_floats(t, n, 3), *y = random_floats(t, n, 3), *z = kc_guard(t, (size_t)n * sizeof *z);
    float a = kc_normal(t), b = kc_normal(t);

    kc_label(t, "vec/rows n %d", n);
    memcpy(z, y, (size_t)n * sizeof *z);
    t->k.vec.add(z, x, n);
    for (int i = 0; i < n; i++)
        kc_check(t, z[i] == y[i] + x[i], "sum %d is %.9g", i, (double)z[i]);
    t->k.vec.scale(z, a, x, n);
    for (int i = 0; i < n; i++)
        kc_check(t, z[i] == a * x[i], "product %d is %.9g", i, (double)z[i]);
    memcpy(z, y, (size_t)n * sizeof *z);
    t->k.vec.axpby(z, a, x, b, n);
    for (int i = 0; i < n; i++) {
        double p = (double)a * (double)y[i], q = (double)b * (double)x[i];
        kc_check(t, fabs((double)z[i] - p - q) <= 3e-7 * (fabs(p) + fabs(q)), "axpby %d is %.9g, not %.9g", i,
                 (double)z[i], p + q);
    }
    kc_release(t);
}

static void check_rope(kc *t, int half)
{
    float *x = random_floats(t, 2 * half, 3), *got = kc_guard(t, (size_t)(2 * half) * sizeof *got);
    float *c = kc_guard(t, (size_t)half * sizeof *c), *s = kc_guard(t, (size_t)half * sizeof *s);

    kc_label(t, "vec/rope half %d", half);
    for (int j = 0; j < half; j++) {
        double angle = kc_uniform(t, -4, 4);
        c[j] = (float)(1.3 * cos(angle));
        s[j] = (float)(1.3 * sin(angle));
    }
    memcpy(got, x, (size_t)(2 * half) * sizeof *got);
    t->k.vec.rope(got, c, s, half);
    for (int j = 0; j < half; j++) {
        double u = (double)x[j], v = (double)x[half + j], cj = (double)c[j], sj = (double)s[j];
        double limit = 3e-7 * (fabs(u) + fabs(v)) * 1.3;
        kc_check(t, fabs((double)got[j] - (u * cj - v * sj)) <= limit, "first of pair %d is %.9g", j,
                 (double)got[j]);
        kc_check(t, fabs((double)got[half + j] - (v * cj + u * sj)) <= limit, "second of pair %d is %.9g", j,
                 (double)got[half + j]);
    }
    kc_release(t);
}

static void check_halves(kc *t, int n)
{
    static const float edge[] = {0.0f,      -0.0f, 65504.0f, 65519.9f, 65520.0f, 1e9f,   -1e9f,  INFINITY,
                                 -INFINITY, 6e-8f, 5.9e-8f,  3e-8f,    2.9e-8f,  1e-30f, -6e-5f, 6.1e-5f};
    float *x = random_floats(t, n, 100), *back = kc_guard(t, (size_t)n * sizeof *back);
    uint16_t *h = kc_guard(t, (size_t)n * sizeof *h);

    kc_label(t, "vec/f16 n %d", n);
    for (int i = 0; i < n; i++)
        if (kc_int(t, 0, 2) == 0)
            x[i] = edge[kc_int(t, 0, sizeof edge / sizeof *edge - 1)];
    t->k.vec.f16_from_f32(h, x, n);
    t->k.vec.f32_from_f16(back, h, n);
    for (int i = 0; i < n; i++) {
        float v = x[i] > 65504.0f ? 65504.0f : x[i] < -65504.0f ? -65504.0f : x[i];
        kc_check(t, h[i] == lg_f32_to_f16(v), "%.9g became %#x", (double)x[i], h[i]);
        kc_check(t, back[i] == lg_f16_to_f32(h[i]), "%#x became %.9g", h[i], (double)back[i]);
    }
    if (n >= 3) {
        x[2] = NAN;
        t->k.vec.f16_from_f32(h, x, n);
        kc_check(t, (h[2] & 0x7C00) == 0x7C00 && (h[2] & 0x3FF), "NaN became %#x", h[2]);
    }
    kc_release(t);
}

static void check_q8_0(kc *t, int n)
{
    size_t bytes = (size_t)n / 32 * 34;
    uint8_t *w = kc_guard(t, bytes);
    float *got = kc_guard(t, (size_t)n * sizeof *got), *want = kc_guard(t, (size_t)n * sizeof *want);

    kc_label(t, "vec/q8_0 n %d", n);
    kc_fill_w(t, LG_Q8_0, w, n, n / 32 % KC_W_MODES);
    t->k.vec.f32_from_q8_0(got, w, n);
    lg_dequant_row(LG_Q8_0, w, want, n);
    kc_same(t, got, want, n, "values");
    kc_release(t);
}

void kc_case_vec(kc *t)
{
    static const int dims[] = {16, 32, 48, 64, 80, 128};

    if (t->only)
        return;
    for (int i = 0; i < 60; i++) {
        int dim = dims[kc_int(t, 0, 5)];
        check_qk(t, i < QUERIES_MAX ? i + 1 : kc_int(t, 1, QUERIES_MAX), kc_int(t, 1, KEYS_MAX), dim);
        check_pv(t, i < QUERIES_MAX ? i + 1 : kc_int(t, 1, QUERIES_MAX), kc_int(t, 1, KEYS_MAX), dim);
    }
    check_qk(t, 9, 64, 128);
    check_pv(t, 9, 64, 128);
    for (int n = 1; n <= 70; n++) {
        check_softmax(t, n, n % 3 == 0 ? 1 : n % 3 == 1 ? 30 : 1000);
        check_norm(t, n, n % 2 ? 1 : 1e4);
        check_rows(t, n);
        check_rope(t, n);
        check_halves(t, n);
    }
    check_norm(t, 3072, 1);
    check_softmax(t, 1024, 10);
    for (int blocks = 1; blocks <= 8; blocks++)
        check_q8_0(t, 32 * blocks);
}
