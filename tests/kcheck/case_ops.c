/*
 * kcheck: linear, moe and route through the backend's interface, against the same arithmetic done serially.
 *
 * Expected values are built row by row from the level's own kernels (which case_types holds to the
 * reference), so an op must give those very bits for any number of rows and threads. That is the promise of
 * backend.h, tested as written.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kcheck.h"

static const lg_qtype all_types[] = {LG_F32,  LG_F16,  LG_BF16,   LG_Q8_0,  LG_Q4_0,  LG_Q4_1,
                                     LG_Q5_0, LG_Q5_1, LG_IQ4_NL, LG_MXFP4, LG_NVFP4, LG_Q2_K,
                                     LG_Q3_K, LG_Q4_K, LG_Q5_K,   LG_Q6_K,  LG_IQ4_XS};
enum { N_TYPES = sizeof all_types / sizeof all_types[0] };

static lg_qtype any_type(kc *t, int n_in)
{
    for (;;) {
        lg_qtype type = all_types[kc_int(t, 0, N_TYPES - 1)];

        if (n_in % lg_qtype_get((uint32_t)type)->block_elems == 0)
            return type;
    }
}

static lg_backend *open_backend(kc *t, int threads, const lg_limits *lim)
{
    lg_backend *b = NULL;
    lg_backend_params p = {.device = "cpu", .threads = threads, .isa = t->isa};
    lg_err err = {0};
    bool ok = lg_cpu_backend_create(&p, &b, &err) == LG_OK && b->ops->prepare(b, lim, &err) == LG_OK;

    if (!kc_check(t, ok, "backend: %s", err.msg))
        exit(1);
    return b;
}

static void begin(kc *t, lg_backend *b, int rows)
{
    lg_step s = {.n_rows = rows};
    lg_begin how;

    kc_check(t, b->ops->begin(b, lg_step_key(&s), &s, &how, NULL) == LG_OK && how == LG_RECORD, "begin");
}

static void end(kc *t, lg_backend *b)
{
    kc_check(t, b->ops->end(b, NULL) == LG_OK && b->ops->wait(b, NULL) == LG_OK, "end");
}

// A random weight in guarded memory.
static lg_weight make_weight(kc *t, lg_backend *b, lg_qtype type, lg_use use, int n_in, int n_out,
                             int n_expert)
{
    lg_source src = {.name = LG_STR("w"),
                     .type = type,
                     .ne = {(uint64_t)n_in, (uint64_t)n_out, (uint64_t)n_expert, 1},
                     .scale = kc_int(t, 0, 3) ? 1.0f : 0.75f};
    lg_weight w = {0};
    size_t row = 0;
    lg_err err = {0};
    bool whole = lg_row_bytes(type, (uint64_t)n_in, &row);

    LG_ASSERT(whole);
    src.bytes = row * (size_t)n_out * (size_t)n_expert;
    uint8_t *data = kc_guard(t, src.bytes);
    kc_fill_w(t, type, data, (int64_t)n_in * n_out * n_expert, 0);
    src.data = data;
    kc_check(t, b->ops->load(b, &src, use, &w, &err) == LG_OK, "load: %s", err.msg);
    return w;
}

// One row of x through a matrix of w, serially.
static void product(kc *t, const lg_weight *w, int expert, const float *x, float *y)
{
    static _Alignas(64) uint8_t row[1 << 16];
    const lg_type_kernels *k = &t->k.type[w->type];
    size_t bytes = 0;
    bool whole = lg_row_bytes(w->type, (uint64_t)w->n_in, &bytes);
    lg_mat m = {.p = (const uint8_t *)w->data + bytes * (size_t)w->n_out * (size_t)expert,
                .row_bytes = bytes,
                .n_in = w->n_in};

    LG_ASSERT(whole && lg_act_bytes(LG_ACT_F32, w->n_in) <= sizeof row);
    if (k->act == LG_ACT_F32)
        memcpy(row, x, (size_t)w->n_in * sizeof *x);
    else
        t->k.quant[k->act](x, w->n_in, row);
    k->gemv(&m, 0, w->n_out, row, y);
    for (int i = 0; i < w->n_out && w->scale != 1.0f; i++)
        y[i] *= w->scale;
}

static lg_tensor tensor(kc *t, int rows, int cols)
{
    int stride = cols + kc_int(t, 0, 3);
    size_t cells = (size_t)(rows - 1) * (size_t)stride + (size_t)cols;

    return (lg_tensor){
        .p = kc_guard(t, cells * sizeof(float)), .cols = cols, .stride = stride, .rows = LG_ROWS_STEP};
}

static float *row_of(const lg_tensor *x, int r)
{
    return x->p + (size_t)r * (size_t)x->stride;
}

static void fill_tensor(kc *t, const lg_tensor *x, int rows)
{
    for (int r = 0; r < rows; r++)
        kc_fill_x(t, row_of(x, r), x->cols, r % 4 == 3);
}

static int any_rows(kc *t, int i)
{
    static const int rows[] = {1, 2, 3, 4, 5, 7, 15, 16, 17, 33};

    return i < 10 ? rows[i] : kc_int(t, 1, 150);
}

/* ---- linear ---- */

static void linear_once(kc *t, lg_backend *b, int n_in, int rows)
{
    lg_weight w[LG_PARTS_MAX];
    lg_part part[LG_PARTS_MAX];
    int n_parts = kc_int(t, 1, LG_PARTS_MAX);
    lg_tensor x = tensor(t, rows, n_in);
    float want[400];

    fill_tensor(t, &x, rows);
    for (int p = 0; p < n_parts; p++) {
        w[p] = make_weight(t, b, any_type(t, n_in), LG_USE_LINEAR, n_in, kc_int(t, 1, p ? 90 : 400), 1);
        part[p] = (lg_part){tensor(t, rows, w[p].n_out), &w[p]};
    }
    begin(t, b, rows);
    b->ops->linear(b, &x, part, n_parts);
    end(t, b);
    for (int p = 0; p < n_parts; p++)
        for (int r = 0; r < rows; r++) {
            product(t, &w[p], 0, row_of(&x, r), want);
            kc_same(t, row_of(&part[p].y, r), want, w[p].n_out, lg_qtype_get((uint32_t)w[p].type)->name);
        }
    for (int p = 0; p < n_parts; p++)
        b->ops->unload(b, &w[p]);
}

void kc_case_linear(kc *t)
{
    static const int widths[] = {32, 96, 128, 256, 512, 768, 1024};
    lg_limits lim = {
        .max_rows = 150, .max_out = 150, .hidden = 1024, .max_q_cols = 1024, .max_ffn = 1024, .vocab = 1};

    if (t->only)
        return;
    for (int threads = 1; threads <= 3; threads++) {
        lg_backend *b = open_backend(t, threads, &lim);

        for (int i = 0; i < 24; i++) {
            int n_in = widths[kc_int(t, 0, 6)], rows = any_rows(t, i);

            kc_label(t, "linear/n_in %d rows %d threads %d", n_in, rows, threads);
            linear_once(t, b, n_in, rows);
            kc_release(t);
        }
        b->destroy(b);
    }
}

/* ---- moe ---- */

typedef struct moe_shape {
    int hidden, ffn, ffn_shared, n_expert, k, rows;
} moe_shape;

static void ffn_row(kc *t, const lg_weight *gate, const lg_weight *up, const lg_weight *down, int expert,
                    const float *h, float *out)
{
    float g[1024], u[1024];

    product(t, gate, expert, h, g);
    product(t, up, expert, h, u);
    t->k.swiglu(g, u, g, gate->n_out);
    product(t, down, expert, g, out);
}

static void moe_row(kc *t, const lg_moe_args *a, int r, float *want)
{
    int hidden = a->out.cols;
    float y[1024];

    memset(want, 0, (size_t)hidden * sizeof *want);
    if (a->shared_gate)
        ffn_row(t, a->shared_gate, a->shared_up, a->shared_down, 0, row_of(&a->h, r), want);
    for (int i = 0; a->gate && i < a->routes.k; i++) {
        float w = a->routes.w[r * a->routes.k + i];

        ffn_row(t, a->gate, a->up, a->down, a->routes.ids[r * a->routes.k + i], row_of(&a->h, r), y);
        for (int o = 0; o < hidden; o++)
            want[o] += w * y[o];
    }
}

static void random_routes(kc *t, lg_routes *routes, int rows, int n_expert)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < routes->k; i++) {
            int32_t *id = &routes->ids[r * routes->k + i];
            bool taken = true;

            while (taken) {
                *id = kc_int(t, 0, n_expert - 1);
                taken = false;
                for (int j = 0; j < i; j++)
                    taken = taken || routes->ids[r * routes->k + j] == *id;
            }
            routes->w[r * routes->k + i] = (float)kc_uniform(t, 0.0, 1.0);
        }
}

static void moe_once(kc *t, lg_backend *b, const moe_shape *s, bool routed, bool shared)
{
    lg_weight w[6] = {0};
    float want[1024];
    lg_moe_args a = {.out = tensor(t, s->rows, s->hidden), .h = tensor(t, s->rows, s->hidden)};

    fill_tensor(t, &a.h, s->rows);
    if (routed) {
        w[0] = make_weight(t, b, any_type(t, s->hidden), LG_USE_EXPERTS, s->hidden, s->ffn, s->n_expert);
        w[1] = make_weight(t, b, any_type(t, s->hidden), LG_USE_EXPERTS, s->hidden, s->ffn, s->n_expert);
        w[2] = make_weight(t, b, any_type(t, s->ffn), LG_USE_EXPERTS, s->ffn, s->hidden, s->n_expert);
        a.gate = &w[0], a.up = &w[1], a.down = &w[2];
        a.routes = (lg_routes){.ids = kc_guard(t, (size_t)(s->rows * s->k) * sizeof(int32_t)),
                               .w = kc_guard(t, (size_t)(s->rows * s->k) * sizeof(float)),
                               .k = s->k};
        random_routes(t, &a.routes, s->rows, s->n_expert);
    }
    if (shared) {
        w[3] = make_weight(t, b, any_type(t, s->hidden), LG_USE_LINEAR, s->hidden, s->ffn_shared, 1);
        w[4] = make_weight(t, b, any_type(t, s->hidden), LG_USE_LINEAR, s->hidden, s->ffn_shared, 1);
        w[5] = make_weight(t, b, any_type(t, s->ffn_shared), LG_USE_LINEAR, s->ffn_shared, s->hidden, 1);
        a.shared_gate = &w[3], a.shared_up = &w[4], a.shared_down = &w[5];
    }
    begin(t, b, s->rows);
    b->ops->moe(b, &a);
    end(t, b);
    for (int r = 0; r < s->rows; r++) {
        moe_row(t, &a, r, want);
        kc_same(t, row_of(&a.out, r), want, s->hidden, "row");
    }
    for (int i = 0; i < 6; i++)
        b->ops->unload(b, &w[i]);
}

void kc_case_moe(kc *t)
{
    static const int widths[] = {32, 64, 96, 128, 256, 288, 512};
    lg_limits lim = {.max_rows = 150,
                     .max_out = 1,
                     .hidden = 512,
                     .max_ffn = 512,
                     .max_expert = 20,
                     .max_k = 6,
                     .vocab = 1};

    if (t->only)
        return;
    for (int threads = 1; threads <= 3; threads++) {
        lg_backend *b = open_backend(t, threads, &lim);

        for (int i = 0; i < 24; i++) {
            moe_shape s = {.hidden = widths[kc_int(t, 0, 6)],
                           .ffn = widths[kc_int(t, 0, 6)],
                           .ffn_shared = widths[kc_int(t, 0, 6)],
                           .n_expert = kc_int(t, 6, 20),
                           .k = kc_int(t, 1, 6),
                           .rows = any_rows(t, i)};
            int parts = kc_int(t, 0, 3);

            kc_label(t, "moe/hidden %d ffn %d shared %d experts %d of %d rows %d threads %d parts %d",
                     s.hidden, s.ffn, s.ffn_shared, s.k, s.n_expert, s.rows, threads, parts);
            moe_once(t, b, &s, parts != 0, parts != 1);
            kc_release(t);
        }
        b->destroy(b);
    }
}

/* ---- route ---- */

// The order that kernels and ops owe: score descending, lower index first; NaN last.
static void check_row_routes(kc *t, const lg_route_args *a, int r, const float *logits, const float *bias,
                             int n_expert)
{
    const int32_t *ids = a->out.ids + r * a->out.k;
    const float *w = a->out.w + r * a->out.k;
    double p[64], sum = 0.0, total = 0.0, worst = 1e30;

    for (int e = 0; e < n_expert; e++) {
        p[e] = a->gating == LG_GATE_SIGMOID ? 1.0 / (1.0 + exp(-(double)logits[e])) : exp((double)logits[e]);
        total += p[e];
    }
    for (int e = 0; e < n_expert && a->gating == LG_GATE_SOFTMAX; e++)
        p[e] /= total;
    for (int i = 0; i < a->out.k; i++) {
        double score = p[ids[i]] + (bias ? (double)bias[ids[i]] : 0.0);
        bool in_order = i == 0 || score < worst + 1e-6;

        if (i > 0 && logits[ids[i]] == logits[ids[i - 1]] && (!bias || bias[ids[i]] == bias[ids[i - 1]]))
            kc_check(t, ids[i] > ids[i - 1], "row %d: of two equal scores %d came before %d", r, ids[i - 1],
                     ids[i]);
        kc_check(t, in_order, "row %d: rank %d (expert %d, %.9g) is above rank %d", r, i, ids[i], score,
                 i - 1);
        worst = score;
        sum += p[ids[i]];
    }
    for (int e = 0; e < n_expert; e++) {
        bool chosen = false;

        for (int i = 0; i < a->out.k; i++)
            chosen = chosen || ids[i] == e;
        double score = p[e] + (bias ? (double)bias[e] : 0.0);
        kc_check(t, chosen || score <= worst + 1e-6, "row %d: expert %d (%.9g) was left out, %.9g taken", r,
                 e, score, worst);
    }
    for (int i = 0; i < a->out.k; i++) {
        double want = p[ids[i]] / (a->norm ? fmax(sum, 0x1p-14) : 1.0) * (double)a->scale;

        kc_check(t, fabs((double)w[i] - want) <= 4e-6 * want + 1e-37, "row %d: weight %d is %.9g, not %.9g",
                 r, i, (double)w[i], want);
    }
}

static void route_once(kc *t, lg_backend *b, int rows, int hidden)
{
    int n_expert = kc_int(t, 4, 64), k = kc_int(t, 1, n_expert < 16 ? n_expert : 16);
    lg_weight router = make_weight(t, b, LG_F32, LG_USE_ROUTER, hidden, n_expert, 1);
    lg_route_args a = {.h = tensor(t, rows, hidden),
                       .router = &router,
                       .gating = kc_int(t, 0, 3) ? LG_GATE_SIGMOID : LG_GATE_SOFTMAX,
                       .norm = kc_u64(t) & 1,
                       .scale = 2.5f,
                       .out = {.ids = kc_guard(t, (size_t)(rows * k) * sizeof(int32_t)),
                               .w = kc_guard(t, (size_t)(rows * k) * sizeof(float)),
                               .k = k}};
    float *bias = kc_guard(t, (size_t)n_expert * sizeof *bias), logits[64];
    lg_weight bias_w = {
        .type = LG_F32, .use = LG_USE_VECTOR, .n_in = n_expert, .n_out = 1, .scale = 1.0f, .data = bias};
    float *matrix = (float *)(uintptr_t)router.data;

    for (int e = 0; e < n_expert; e++)
        bias[e] = (float)kc_uniform(t, -0.3, 0.3);
    for (int e = 1; e < n_expert; e++) // exact ties
        if (kc_int(t, 0, 3) == 0) {
            memcpy(matrix + (size_t)e * (size_t)hidden, matrix + (size_t)(e - 1) * (size_t)hidden,
                   (size_t)hidden * sizeof(float));
            bias[e] = bias[e - 1];
        }
    if (kc_int(t, 0, 2))
        a.bias = &bias_w;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < hidden; i++)
            row_of(&a.h, r)[i] = kc_normal(t) * (r % 3 == 2 ? 8.0f : 0.1f);
    begin(t, b, rows);
    b->ops->route(b, &a);
    end(t, b);
    for (int r = 0; r < rows; r++) {
        product(t, &router, 0, row_of(&a.h, r), logits);
        check_row_routes(t, &a, r, logits, a.bias ? bias : NULL, n_expert);
    }
    // A row alone gets the same choice and the same bits.
    int r = kc_int(t, 0, rows - 1);
    int32_t id[16];
    float w[16];
    lg_route_args one = a;
    one.h.p = row_of(&a.h, r);
    one.out = (lg_routes){id, w, k};
    begin(t, b, 1);
    b->ops->route(b, &one);
    end(t, b);
    kc_check(t, memcmp(id, a.out.ids + r * k, (size_t)k * sizeof *id) == 0, "row %d alone chooses others", r);
    kc_same(t, w, a.out.w + r * k, k, "weights of a row alone");
    b->ops->unload(b, &router);
}

void kc_case_route(kc *t)
{
    lg_limits lim = {.max_rows = 150,
                     .max_out = 1,
                     .hidden = 256,
                     .max_expert = 64,
                     .max_k = 16,
                     .max_ffn = 1,
                     .vocab = 1};

    if (t->only)
        return;
    for (int threads = 1; threads <= 3; threads += 2) {
        lg_backend *b = open_backend(t, threads, &lim);

        for (int i = 0; i < 20; i++) {
            int rows = any_rows(t, i), hidden = i % 2 ? 96 : kc_int(t, 1, 256);

            kc_label(t, "route/hidden %d rows %d threads %d", hidden, rows, threads);
            route_once(t, b, rows, hidden);
            kc_release(t);
        }
        b->destroy(b);
    }
}
