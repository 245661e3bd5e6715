/*
 * tests/cuda: tensors, weights and references. See gpu.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu.h"

const lg_qtype gpu_types[17] = {LG_F32,  LG_F16,  LG_BF16,   LG_Q8_0,  LG_Q4_0,  LG_Q4_1,
                                LG_Q5_0, LG_Q5_1, LG_IQ4_NL, LG_MXFP4, LG_NVFP4, LG_Q2_K,
                                LG_Q3_K, LG_Q4_K, LG_Q5_K,   LG_Q6_K,  LG_IQ4_XS};

static void must(gpu *g, lg_status st, const lg_err *err)
{
    if (!kc_check(&g->k, st == LG_OK, "%s", err->msg))
        exit(1);
}

lg_mem mem_of(gpu *g, const void *p, size_t n)
{
    lg_err err = {0};
    lg_mem m = {0};

    must(g, g->b->ops->alloc(g->b, n, &m, &err), &err);
    must(g, g->b->ops->upload(g->b, &m, 0, p, n, &err), &err);
    return m;
}

dev dev_new(gpu *g, int rows, int cols, lg_rows kind)
{
    int stride = cols + PAD;
    size_t n = (size_t)rows * (size_t)stride;
    dev d = {.host = malloc(n * sizeof(float)), .rows = rows};

    LG_ASSERT(d.host);
    for (size_t i = 0; i < n; i++)
        d.host[i] = NAN;
    d.mem = mem_of(g, d.host, n * sizeof(float));
    d.t = (lg_tensor){.p = d.mem.p, .cols = cols, .stride = stride, .rows = kind};
    return d;
}

float *dev_row(const dev *d, int r)
{
    return d->host + (size_t)r * (size_t)d->t.stride;
}

void dev_send(gpu *g, dev *d)
{
    lg_err err = {0};

    must(g, g->b->ops->upload(g->b, &d->mem, 0, d->host, d->mem.bytes, &err), &err);
}

dev dev_random(gpu *g, int rows, int cols, lg_rows kind, int mode)
{
    dev d = dev_new(g, rows, cols, kind);

    for (int r = 0; r < rows; r++)
        kc_fill_x(&g->k, dev_row(&d, r), cols, mode);
    dev_send(g, &d);
    return d;
}

void dev_fetch(gpu *g, dev *d)
{
    lg_err err = {0};

    must(g, g->b->ops->download(g->b, d->mem.p, d->host, d->mem.bytes, &err), &err);
}

void dev_free(gpu *g, dev *d)
{
    g->b->ops->release(g->b, &d->mem);
    free(d->host);
    d->host = NULL;
}

void dev_check_pad(gpu *g, const dev *d, const char *what)
{
    int bad = 0;

    for (int r = 0; r < d->rows; r++)
        for (int i = d->t.cols; i < d->t.stride; i++)
            bad += !isnan(dev_row(d, r)[i]);
    kc_check(&g->k, bad == 0, "%s: %d floats behind the rows were written", what, bad);
}

wt wt_random(gpu *g, lg_qtype type, lg_use use, int n_in, int n_out, int n_expert, int mode)
{
    size_t row = 0, n = (size_t)n_in * (size_t)n_out * (size_t)n_expert;
    wt w = {.type = type, .f = malloc(n * sizeof(float))};
    bool whole = lg_row_bytes(type, (uint64_t)n_in, &row);
    lg_source src = {.name = LG_STR("w"), .type = type, .scale = kc_int(&g->k, 0, 3) ? 1.0f : 0.75f,
                     .ne = {(uint64_t)n_in, (uint64_t)n_out, (uint64_t)n_expert, 1}};
    lg_err err = {0};

    LG_ASSERT(whole && w.f);
    src.bytes = row * (size_t)n_out * (size_t)n_expert;
    w.stored = malloc(src.bytes);
    LG_ASSERT(w.stored);
    kc_fill_w(&g->k, type, w.stored, (int64_t)n, mode);
    src.data = w.stored;
    if (use == LG_USE_EXPERTS && kc_int(&g->k, 0, 3) == 0) {
        w.scale = malloc((size_t)n_expert * sizeof(float));
        LG_ASSERT(w.scale);
        for (int e = 0; e < n_expert; e++)
            w.scale[e] = (float)kc_uniform(&g->k, 0.5, 2.0);
        src.expert_scale = w.scale;
    }
    must(g, g->b->ops->load(g->b, &src, use, &w.w, &err), &err);
    lg_dequant_row(type, w.stored, w.f, (int64_t)n);
    if (use == LG_USE_ROUTER) // its scale is applied at load
        for (size_t i = 0; i < n; i++)
            w.f[i] *= src.scale;
    return w;
}

wt wt_vector(gpu *g, int n, double mean, double spread)
{
    wt w = {.type = LG_F32, .f = malloc((size_t)n * sizeof(float))};
    lg_source src = {.name = LG_STR("v"), .type = LG_F32, .scale = 1.0f, .ne = {(uint64_t)n, 1, 1, 1},
                     .bytes = (size_t)n * sizeof(float)};
    lg_err err = {0};

    LG_ASSERT(w.f);
    for (int i = 0; i < n; i++)
        w.f[i] = (float)(mean + spread * kc_normal(&g->k));
    src.data = w.f;
    must(g, g->b->ops->load(g->b, &src, LG_USE_VECTOR, &w.w, &err), &err);
    return w;
}

void wt_free(gpu *g, wt *w)
{
    if (w->f)
        g->b->ops->unload(g->b, &w->w);
    free(w->f);
    free(w->stored);
    free(w->scale);
    *w = (wt){0};
}

void gpu_begin(gpu *g, lg_step *s)
{
    lg_key key = lg_step_key(s);
    lg_begin how;
    lg_err err = {0};

    key.graph = (uint16_t)++g->n_key;
    must(g, g->b->ops->begin(g->b, key, s, &how, &err), &err);
    LG_ASSERT(how == LG_RECORD);
}

void gpu_end(gpu *g)
{
    lg_err err = {0};

    must(g, g->b->ops->end(g->b, &err), &err);
    must(g, g->b->ops->wait(g->b, &err), &err);
}

static bool is_f32(const wt *w)
{
    return w->type == LG_F32;
}

static bool is_float_type(lg_qtype t)
{
    return t == LG_F32 || t == LG_F16 || t == LG_BF16;
}

bool takes_codes(const wt *w)
{
    return (w->type == LG_Q8_0 || w->type == LG_Q4_K || w->type == LG_Q6_K) && w->w.n_in % 256 == 0;
}

static bool is_codes(const wt *w, int rows)
{
    return rows <= EXACT_ROWS || (rows <= CODE_ROWS && takes_codes(w));
}

void round_acts(const wt *w, int rows, const float *x, int n, double *out)
{
    bool exact = is_codes(w, rows);

    for (int i = 0; i < n; i++)
        out[i] = (double)x[i];
    if (exact ? is_float_type(w->type) : is_f32(w) || n % 32 != 0)
        return;
    for (int i = 0; !exact && i < n; i++)
        out[i] = (double)lg_bf16_to_f32(lg_f32_to_bf16(x[i]));
    for (int b = 0; exact && b < n; b += 32) {
        float max = 0.0f;
        for (int i = b; i < b + 32; i++)
            max = fmaxf(max, fabsf(x[i]));
        bool zero = !(max >= 0x1p-100f);
        float inverse = zero ? 0.0f : 127.0f / max;
        for (int i = b; i < b + 32; i++)
            out[i] = (double)rintf(x[i] * inverse) * (double)(zero ? 0.0f : max / 127.0f);
    }
}

double product(const wt *w, int rows, int expert, int out, const double *x, double *size)
{
    const float *f = w->f + ((size_t)expert * (size_t)w->w.n_out + (size_t)out) * (size_t)w->w.n_in;
    bool bf16 = !is_codes(w, rows) && !is_f32(w) && w->w.n_in % 32 == 0;
    double sum = 0.0, total = 0.0, scale = (double)w->w.scale * (w->scale ? (double)w->scale[expert] : 1.0);

    for (int i = 0; i < w->w.n_in; i++) {
        double term = (double)(bf16 ? lg_bf16_to_f32(lg_f32_to_bf16(f[i])) : f[i]) * x[i];
        sum += term;
        total += fabs(term);
    }
    *size = total * fabs(scale);
    return sum * scale;
}

void check_near(gpu *g, double got, double want, double bound, const char *what, int r, int i)
{
    kc_check(&g->k, fabs(got - want) <= bound,
             "%s: row %d column %d is %.9g, not %.9g (off by %.2g, bound %.2g)", what, r, i, got, want,
             fabs(got - want), bound);
}
