/*
 * tests/cuda: linear, moe, ffn and route.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu.h"

static bool fits(lg_qtype type, int n_in)
{
    return n_in % lg_qtype_get((uint32_t)type)->block_elems == 0;
}

static lg_qtype any_type(gpu *g, int n_in)
{
    for (;;) {
        lg_qtype type = gpu_types[kc_int(&g->k, 0, 16)];
        if (fits(type, n_in))
            return type;
    }
}

// Bounds: f32 sums, and in prefill the rounding of weights, which may fall the other way now and then.
static double bound_of(int rows, double size)
{
    return (rows > EXACT_ROWS ? 1e-4 : 1e-5) * size + 1e-30;
}

/* ---- linear ---- */

static void check_linear(gpu *g, const dev *x, const dev *y, const wt *w, int rows)
{
    double *a = malloc((size_t)x->t.cols * sizeof *a);

    LG_ASSERT(a);
    for (int r = 0; r < rows; r++) {
        round_acts(w, rows, dev_row(x, r), x->t.cols, a);
        for (int i = 0; i < w->w.n_out; i++) {
            double size, want = product(w, rows, 0, i, a, &size);
            if (!kc_check(&g->k, fabs((double)dev_row(y, r)[i] - want) <= bound_of(rows, size),
                          "%s row %d column %d is %.9g, not %.9g (size %.3g)",
                          lg_qtype_get((uint32_t)w->type)->name, r, i, (double)dev_row(y, r)[i], want,
                          size)) {
                r = rows;
                break;
            }
        }
    }
    free(a);
    dev_check_pad(g, y, "linear");
}

// One row of the same product in a step of its own must have the same bits.
static void check_alone(gpu *g, const dev *x, const dev *y, const wt *w, int rows)
{
    int r = kc_int(&g->k, 0, rows - 1);
    dev one = dev_new(g, 1, w->w.n_out, LG_ROWS_STEP);
    lg_tensor xr = x->t;
    lg_step s = {.n_rows = 1};

    xr.p += (size_t)r * (size_t)xr.stride;
    gpu_begin(g, &s);
    g->b->ops->linear(g->b, &xr, &(lg_part){one.t, &w->w}, 1);
    gpu_end(g);
    dev_fetch(g, &one);
    kc_check(&g->k, memcmp(one.host, dev_row(y, r), (size_t)w->w.n_out * sizeof(float)) == 0,
             "row %d of %d has other bits alone", r, rows);
    dev_free(g, &one);
}

/* A step of x with all the weights, into fresh y. */
static void run_linear(gpu *g, const lg_tensor *x, const wt *w, int n_parts, int rows, dev *y)
{
    lg_part part[LG_PARTS_MAX];
    lg_step s = {.n_rows = rows};

    for (int p = 0; p < n_parts; p++) {
        y[p] = dev_new(g, rows, w[p].w.n_out, LG_ROWS_STEP);
        part[p] = (lg_part){y[p].t, &w[p].w};
    }
    gpu_begin(g, &s);
    g->b->ops->linear(g->b, x, part, n_parts);
    gpu_end(g);
    for (int p = 0; p < n_parts; p++)
        dev_fetch(g, &y[p]);
}

static void linear_once(gpu *g, int n_in, int rows, const lg_qtype *types, int n_parts, int x_mode,
                        int w_mode)
{
    dev x = dev_random(g, rows, n_in, LG_ROWS_STEP, x_mode), y[LG_PARTS_MAX];
    wt w[LG_PARTS_MAX];

    for (int p = 0; p < n_parts; p++)
        w[p] = wt_random(g, types[p], LG_USE_LINEAR, n_in, kc_int(&g->k, 1, p ? 40 : 200), 1, w_mode);
    run_linear(g, &x.t, w, n_parts, rows, y);
    for (int p = 0; p < n_parts; p++) {
        check_linear(g, &x, &y[p], &w[p], rows);
        if (rows <= EXACT_ROWS && p == 0)
            check_alone(g, &x, &y[p], &w[p], rows);
        dev_free(g, &y[p]);
        wt_free(g, &w[p]);
    }
    dev_free(g, &x);
}

// Weights of every size modulo the pieces in which threads copy them: the last row is there, too.
static void every_size(gpu *g)
{
    kc_label(&g->k, "linear/every size");
    for (int n = 1; n <= 160; n++) {
        dev x = dev_random(g, 1, 7, LG_ROWS_STEP, 0), y;
        wt w = wt_random(g, LG_BF16, LG_USE_LINEAR, 7, n, 1, 0);
        run_linear(g, &x.t, &w, 1, 1, &y);
        check_linear(g, &x, &y, &w, 1);
        dev_free(g, &y);
        wt_free(g, &w);
        dev_free(g, &x);
    }
}

// Follow-ups whose rows come to whole slices: one, several, and parts of the same and of another type.
static void linear_follow(gpu *g)
{
    static const struct {
        int n_in, rows, n_out[3], n_parts;
        lg_qtype type[3];
    } cases[] = {
        {3072, 32, {72, 8, 40}, 3, {LG_Q8_0, LG_Q8_0, LG_Q8_0}},
        {3072, 57, {1200, 8, 40}, 3, {LG_Q8_0, LG_Q8_0, LG_F32}},
        {9216, 32, {3072}, 1, {LG_Q8_0}},
        {6144, 17, {200}, 1, {LG_Q8_0}},
        {12288, 64, {72}, 1, {LG_Q8_0}},
        {2048, 31, {1600, 48, 16}, 3, {LG_Q4_K, LG_Q4_K, LG_Q6_K}},
        {2048, 40, {96, 48}, 2, {LG_Q8_0, LG_Q8_0}},
        {8192, 32, {2048}, 1, {LG_Q4_K}},
        {6144, 63, {96}, 1, {LG_Q4_K}},
        {1024, 32, {1000}, 1, {LG_Q8_0}},
        {512, 33, {136}, 1, {LG_Q8_0}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n_parts = cases[i].n_parts, rows = cases[i].rows, n_in = cases[i].n_in;
        dev x = dev_random(g, rows, n_in, LG_ROWS_STEP, 0), y[LG_PARTS_MAX];
        wt w[LG_PARTS_MAX];

        kc_label(&g->k, "linear/follow %s n_in %d rows %d", lg_qtype_get((uint32_t)cases[i].type[0])->name,
                 n_in, rows);
        for (int p = 0; p < n_parts; p++)
            w[p] = wt_random(g, cases[i].type[p], LG_USE_LINEAR, n_in, cases[i].n_out[p], 1, 0);
        run_linear(g, &x.t, w, n_parts, rows, y);
        for (int p = 0; p < n_parts; p++) {
            check_linear(g, &x, &y[p], &w[p], rows);
            dev_free(g, &y[p]);
            wt_free(g, &w[p]);
        }
        dev_free(g, &x);
    }
}

void gpu_case_linear(gpu *g)
{
    static const int rows[] = {1, 2, 4, 5, 16, 17, 33, 64, 65, 97, 130, 161, 192, 400},
                     widths[] = {256, 768, 1024, 3072};
    enum { ROWS = sizeof rows / sizeof *rows };
    lg_qtype types[LG_PARTS_MAX];

    for (int t = 0; t < 17; t++)
        for (int i = 0; i < ROWS; i++) {
            int n_in = widths[(t + i) % 4];
            types[0] = gpu_types[t];
            kc_label(&g->k, "linear/%s n_in %d rows %d", lg_qtype_get((uint32_t)types[0])->name, n_in,
                     rows[i]);
            linear_once(g, n_in, rows[i], types, 1,
                        i % 3 == 1 ? 1
                        : i == 6   ? 5
                                   : 0,
                        i % 4 == 3 ? 3
                        : i == 4   ? 2
                                   : 0);
        }
    for (int i = 0; i < 30; i++) {
        static const int odd[] = {32, 96, 288, 512, 7, 100};
        int n_in = odd[kc_int(&g->k, 0, 5)], n = kc_int(&g->k, 1, 4), r = rows[kc_int(&g->k, 0, ROWS - 1)];
        for (int p = 0; p < n; p++)
            types[p] = any_type(g, n_in);
        kc_label(&g->k, "linear/mixed n_in %d rows %d parts %d", n_in, r, n);
        linear_once(g, n_in, r, types, n, 0, 0);
    }
    every_size(g);
    linear_follow(g);
}

/* Rows [first, first + n) of the product of 16 rows, in a step of their own, have the same bits. */
static void check_width(gpu *g, const dev *x, const dev *all, const wt *w, int n_parts, int first, int n)
{
    dev y[LG_PARTS_MAX];
    lg_tensor xr = x->t;

    xr.p += (size_t)first * (size_t)xr.stride;
    run_linear(g, &xr, w, n_parts, n, y);
    for (int p = 0; p < n_parts; p++) {
        for (int r = 0; r < n; r++)
            if (!kc_check(&g->k,
                          memcmp(dev_row(&y[p], r), dev_row(&all[p], first + r),
                                 (size_t)w[p].w.n_out * sizeof(float)) == 0,
                          "part %d row %d has other bits in a step of %d", p, first + r, n))
                break;
        dev_check_pad(g, &y[p], "linear");
        dev_free(g, &y[p]);
    }
}

// Widths of verification: every bucket, full and not, at every place among 16 rows.
static void linear_widths(gpu *g, int n_in, const lg_qtype *types, const int *n_out, int n_parts)
{
    static const int widths[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16};
    dev x = dev_random(g, EXACT_ROWS, n_in, LG_ROWS_STEP, 0), y[LG_PARTS_MAX];
    wt w[LG_PARTS_MAX];

    for (int p = 0; p < n_parts; p++)
        w[p] = wt_random(g, types[p], LG_USE_LINEAR, n_in, n_out[p], 1, 0);
    run_linear(g, &x.t, w, n_parts, EXACT_ROWS, y);
    for (int p = 0; p < n_parts; p++)
        check_linear(g, &x, &y[p], &w[p], EXACT_ROWS);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        check_width(g, &x, y, w, n_parts, kc_int(&g->k, 0, EXACT_ROWS - widths[i]), widths[i]);
    for (int p = 0; p < n_parts; p++) {
        dev_free(g, &y[p]);
        wt_free(g, &w[p]);
    }
    dev_free(g, &x);
}

void gpu_case_widths(gpu *g)
{
    static const struct {
        int n_in, n_out[4];
        lg_qtype t[4];
    } shapes[] = {
        {3072, {400, 48, 33, 72}, {LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0}},  // S: with the gate of the heads
        {2048, {200, 40, 40, 5}, {LG_Q4_K, LG_Q4_K, LG_Q6_K, LG_Q4_K}},   // XS
        {9216, {150, 16, 17, 15}, {LG_Q8_0, LG_Q4_K, LG_Q6_K, LG_Q8_0}},  // sixteen rows have no room
        {12288, {64, 16, 31, 32}, {LG_Q8_0, LG_Q4_K, LG_Q6_K, LG_Q5_K}},
        {128, {20, 16, 100, 3}, {LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0}},    // one warp a tile
        {256, {20, 40, 100, 3}, {LG_Q4_K, LG_Q6_K, LG_Q8_0, LG_F32}},
        {640, {20, 16, 50, 90}, {LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q4_0}},    // warps without a quad
        {768, {60, 40, 20, 33}, {LG_Q4_K, LG_Q6_K, LG_Q8_0, LG_Q5_K}},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int parts = 1; parts <= 4; parts += 3) {
            kc_label(&g->k, "widths/%s n_in %d parts %d", lg_qtype_get((uint32_t)shapes[i].t[0])->name,
                     shapes[i].n_in, parts);
            linear_widths(g, shapes[i].n_in, shapes[i].t, shapes[i].n_out, parts);
        }
}

/* ---- moe ---- */

typedef struct moe_run {
    int hidden, ffn, ffn_shared, n_expert, k, rows;
    wt w[6];
    int32_t *ids;
    float *weight;
    dev h, out;
} moe_run;

// How far the results are moved, as a row, by the one value of the middle that counts most when it is rounded
// the other way: by a code of its run of 32, or by the last bit of bf16. exact: the middle before; 0 when
// nothing of it was rounded.
static double rounded_away(const wt *w, int rows, int expert, const float *exact, const double *mid)
{
    int n = w->w.n_in, hidden = w->w.n_out;
    const float *f = w->f + (size_t)expert * (size_t)hidden * (size_t)n;
    double most = 0, scale = (double)w->w.scale * (w->scale ? (double)w->scale[expert] : 1.0);
    bool rounded = false;

    for (int i = 0; i < n; i++)
        rounded = rounded || mid[i] != (double)exact[i];
    for (int i = 0; rounded && i < n; i++) {
        double step = fabs(mid[i]) * 0x1p-7, col = 0;
        for (int j = i / 32 * 32; rows <= CODE_ROWS && j < i / 32 * 32 + 32 && j < n; j++)
            step = fmax(step, fabs(mid[j]) / 127);
        for (int o = 0; o < hidden; o++)
            col +=
                (double)f[(size_t)o * (size_t)n + (size_t)i] * (double)f[(size_t)o * (size_t)n + (size_t)i];
        most = fmax(most, step * sqrt(col));
    }
    return most * fabs(scale);
}

// gate, up, silu, down of one expert; *slack grows with what rounding of the middle may cost, *away is that
// of rounded_away.
static void ffn_row(const moe_run *m, const wt *w, int expert, int r, double *y, double *slack, double *away)
{
    int ffn = w[0].w.n_out;
    // int8 codes between EXACT_ROWS and CODE_ROWS: all three, or none
    bool codes = takes_codes(&w[0]) && w[1].type == w[0].type && takes_codes(&w[2]);
    int rows = m->rows > EXACT_ROWS && !codes ? CODE_ROWS + 1 : m->rows;
    double *a = malloc((size_t)(m->hidden + ffn) * 2 * sizeof *a), *b = a + m->hidden, size, up_size;
    double *mid = b + m->hidden;
    float *f = malloc((size_t)ffn * sizeof *f);

    LG_ASSERT(a && f);
    round_acts(&w[0], rows, dev_row(&m->h, r), m->hidden, a);
    round_acts(&w[1], rows, dev_row(&m->h, r), m->hidden, b);
    for (int i = 0; i < ffn; i++) {
        double gate = product(&w[0], rows, expert, i, a, &size),
               up = product(&w[1], rows, expert, i, b, &up_size);
        f[i] = (float)(gate / (1.0 + exp(-gate)) * up);
    }
    round_acts(&w[2], rows, f, ffn, mid);
    for (int o = 0; o < m->hidden; o++) {
        y[o] = product(&w[2], rows, expert, o, mid, &size);
        slack[o] = size;
    }
    *away = rounded_away(&w[2], rows, expert, f, mid);
    free(a);
    free(f);
}

static void check_moe_row(gpu *g, const moe_run *m, bool routed, bool shared, int r)
{
    double *y = calloc((size_t)m->hidden * 4, sizeof *y), *sum = y + m->hidden, *size = sum + m->hidden,
           *bound = size + m->hidden, diff = 0, norm = 0, room = 0, one, away = 0;

    LG_ASSERT(y);
    if (shared)
        ffn_row(m, m->w + 3, 0, r, sum, bound, &away);
    for (int i = 0; routed && i < m->k; i++) {
        double w = (double)m->weight[r * m->k + i];
        ffn_row(m, m->w, m->ids[r * m->k + i], r, y, size, &one);
        away = fmax(away, fabs(w) * one);
        for (int o = 0; o < m->hidden; o++) {
            sum[o] += w * y[o];
            bound[o] += fabs(w) * size[o];
        }
    }
    // One value of the middle may round the other way, so single columns have room for that and the row as a
    // whole must be close but for that.
    for (int o = 0; o < m->hidden; o++) {
        double got = (double)dev_row(&m->out, r)[o];
        diff += (got - sum[o]) * (got - sum[o]);
        norm += sum[o] * sum[o];
        room += bound[o] * bound[o];
        if (!kc_check(&g->k, fabs(got - sum[o]) <= 1e-2 * bound[o] + 1e-30,
                      "row %d column %d is %.9g, not %.9g", r, o, got, sum[o]))
            break;
    }
    kc_check(&g->k,
             sqrt(diff) <=
                 (m->rows > EXACT_ROWS ? 5e-3 : 2e-3) * sqrt(norm) + 2e-4 * sqrt(room) + away + 1e-30,
             "row %d is off by %.3g of %.3g, one value's rounding by %.3g", r, sqrt(diff), sqrt(norm), away);
    free(y);
}

static void random_routes(gpu *g, moe_run *m)
{
    for (int r = 0; r < m->rows; r++)
        for (int i = 0; i < m->k; i++) {
            int32_t *id = &m->ids[r * m->k + i];
            bool taken = true;
            while (taken) {
                *id = kc_int(&g->k, 0, m->n_expert - 1);
                taken = false;
                for (int j = 0; j < i; j++)
                    taken = taken || m->ids[r * m->k + j] == *id;
            }
            m->weight[r * m->k + i] = (float)kc_uniform(&g->k, 0.0, 1.0);
        }
}

// The op on rows [first, first + n), with routes that `route` of the same rows would have made.
static void run_moe(gpu *g, const moe_run *m, bool routed, bool shared, int first, int n, const dev *out)
{
    lg_mem ids = mem_of(g, m->ids + first * m->k, (size_t)(n * m->k) * sizeof *m->ids);
    lg_mem w = mem_of(g, m->weight + first * m->k, (size_t)(n * m->k) * sizeof *m->weight);
    lg_moe_args a = {.out = out->t, .h = m->h.t, .routes = {.ids = ids.p, .w = w.p, .k = m->k}};
    lg_step s = {.n_rows = n};

    a.h.p += (size_t)first * (size_t)a.h.stride;
    if (routed)
        a.gate = &m->w[0].w, a.up = &m->w[1].w, a.down = &m->w[2].w;
    if (shared)
        a.shared_gate = &m->w[3].w, a.shared_up = &m->w[4].w, a.shared_down = &m->w[5].w;
    gpu_begin(g, &s);
    if (routed)
        g->b->ops->moe(g->b, &a);
    else
        g->b->ops->ffn(g->b, &(lg_ffn_args){a.out, a.h, a.shared_gate, a.shared_up, a.shared_down});
    gpu_end(g);
    g->b->ops->release(g->b, &ids);
    g->b->ops->release(g->b, &w);
}

// Rows of the step m->out in steps of other widths: the same bits.
static void moe_widths(gpu *g, const moe_run *m, bool routed, bool shared)
{
    static const int widths[] = {2, 3, 4, 5, 8, 9, 15};

    for (size_t i = 0; i < sizeof widths / sizeof *widths && widths[i] < m->rows; i++) {
        int n = widths[i], first = kc_int(&g->k, 0, m->rows - n);
        dev some = dev_new(g, n, m->hidden, LG_ROWS_STEP);
        run_moe(g, m, routed, shared, first, n, &some);
        dev_fetch(g, &some);
        for (int r = 0; r < n; r++)
            if (!kc_check(&g->k,
                          memcmp(dev_row(&some, r), dev_row(&m->out, first + r),
                                 (size_t)m->hidden * sizeof(float)) == 0,
                          "row %d of %d has other bits in a step of %d", first + r, m->rows, n))
                break;
        dev_check_pad(g, &some, "moe");
        dev_free(g, &some);
    }
}

static void moe_once(gpu *g, moe_run *m, const lg_qtype *types, bool routed, bool shared)
{
    m->ids = malloc((size_t)(m->rows * m->k) * sizeof *m->ids);
    m->weight = malloc((size_t)(m->rows * m->k) * sizeof *m->weight);
    LG_ASSERT(m->ids && m->weight);
    random_routes(g, m);
    for (int r = 0; r < m->rows && m->rows == EXACT_ROWS; r += 2) { // an expert that many rows want
        int32_t *id = m->ids + r * m->k, had = id[0];
        for (int i = 1; i < m->k; i++)
            id[i] = id[i] == 0 ? had : id[i];
        id[0] = 0;
    }
    m->h = dev_random(g, m->rows, m->hidden, LG_ROWS_STEP, 0);
    m->out = dev_new(g, m->rows, m->hidden, LG_ROWS_STEP);
    for (int i = 0; i < 3 && routed; i++)
        m->w[i] = wt_random(g, types[i], LG_USE_EXPERTS, i == 2 ? m->ffn : m->hidden,
                            i == 2 ? m->hidden : m->ffn, m->n_expert, 0);
    for (int i = 0; i < 3 && shared; i++)
        m->w[3 + i] = wt_random(g, types[3 + i], LG_USE_LINEAR, i == 2 ? m->ffn_shared : m->hidden,
                                i == 2 ? m->hidden : m->ffn_shared, 1, 0);
    run_moe(g, m, routed, shared, 0, m->rows, &m->out);
    dev_fetch(g, &m->out);
    for (int r = 0; r < m->rows; r += m->rows > 200 ? 37 : m->rows > 20 ? 7 : 1)
        check_moe_row(g, m, routed, shared, r);
    dev_check_pad(g, &m->out, "moe");
    if (m->rows <= EXACT_ROWS) {
        int r = kc_int(&g->k, 0, m->rows - 1);
        dev one = dev_new(g, 1, m->hidden, LG_ROWS_STEP);
        run_moe(g, m, routed, shared, r, 1, &one);
        dev_fetch(g, &one);
        kc_check(&g->k, memcmp(one.host, dev_row(&m->out, r), (size_t)m->hidden * sizeof(float)) == 0,
                 "row %d of %d has other bits alone", r, m->rows);
        dev_free(g, &one);
        moe_widths(g, m, routed, shared);
    }
    for (int i = 0; i < 6; i++)
        wt_free(g, &m->w[i]);
    dev_free(g, &m->h);
    dev_free(g, &m->out);
    free(m->ids);
    free(m->weight);
}

void gpu_case_moe(gpu *g)
{
    static const int rows[] = {1, 2, 4, 5, 16, 17, 40, 64, 150, 400}, widths[] = {256, 512, 96, 1024};
    static const lg_qtype fast[] = {LG_Q4_K, LG_Q8_0, LG_Q6_K, LG_Q5_K, LG_F16, LG_F32};

    for (int i = 0; i < 50; i++) {
        moe_run m = {.hidden = widths[kc_int(&g->k, 0, 2)], .ffn = widths[kc_int(&g->k, 0, 2)],
                     .ffn_shared = widths[kc_int(&g->k, 0, 3)], .n_expert = kc_int(&g->k, 6, 40),
                     .k = kc_int(&g->k, 1, 6), .rows = rows[i % 10]};
        lg_qtype types[6];
        int parts = kc_int(&g->k, 0, 3);

        for (int t = 0; t < 6; t++) {
            int n_in = t == 2 ? m.ffn : t == 5 ? m.ffn_shared : m.hidden;
            types[t] = any_type(g, n_in);
            if (i < 30 && fits(fast[i / 10 * 2], n_in)) // the mixes of published files
                types[t] = fast[i / 10 * 2 + (t == 2 && fits(fast[i / 10 * 2 + 1], n_in))];
            if (t % 3 == 1 && kc_int(&g->k, 0, 3))
                types[t] = types[t - 1]; // gate and up are mostly of one type
        }
        kc_label(&g->k,
                 "moe/hidden %d ffn %d shared %d experts %d of %d rows %d parts %d types %s %s %s, %s %s %s",
                 m.hidden, m.ffn, m.ffn_shared, m.k, m.n_expert, m.rows, parts,
                 lg_qtype_get((uint32_t)types[0])->name, lg_qtype_get((uint32_t)types[1])->name,
                 lg_qtype_get((uint32_t)types[2])->name, lg_qtype_get((uint32_t)types[3])->name,
                 lg_qtype_get((uint32_t)types[4])->name, lg_qtype_get((uint32_t)types[5])->name);
        moe_once(g, &m, types, parts != 0, parts != 1);
    }
    static const lg_qtype files[][6] = {{LG_Q4_K, LG_Q4_K, LG_Q4_K, LG_Q8_0, LG_Q8_0, LG_Q8_0},  // S
                                        {LG_Q4_K, LG_Q4_K, LG_Q6_K, LG_Q4_K, LG_Q4_K, LG_Q6_K},  // XS
                                        {LG_Q6_K, LG_Q6_K, LG_Q4_K, LG_Q8_0, LG_Q8_0, LG_Q8_0},
                                        {LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0, LG_Q8_0}};
    for (int i = 0; i < 8; i++) {
        bool whole = i == 0; // the shape of S
        moe_run m = {.hidden = whole ? 3072 : 1024, .ffn = whole ? 1024 : 256 << i % 2,
                     .ffn_shared = whole ? 1024 : 512, .n_expert = whole ? 3 : 8, .k = whole ? 2 : 3,
                     .rows = i < 4 ? EXACT_ROWS : 2 + i};
        kc_label(&g->k, "moe/widths of file %d hidden %d rows %d", i % 4, m.hidden, m.rows);
        moe_once(g, &m, files[i % 4], i != 7, true);
    }
    for (int i = 0; i < 6; i++) { // follow-ups, in the shapes of S and XS
        bool whole = i % 2 == 0;
        static const int many[] = {EXACT_ROWS + 1, 32, CODE_ROWS};
        int ffn = whole ? 1024 : 512;
        moe_run m = {.hidden = whole ? 3072 : 2048, .ffn = ffn, .ffn_shared = ffn,
                     .n_expert = i < 4 ? 5 : 30, .k = 2, .rows = many[i / 2]};
        kc_label(&g->k, "moe/follow-up of %d rows hidden %d", m.rows, m.hidden);
        moe_once(g, &m, files[i % 2], true, true);
    }
}

/* ---- route ---- */

static void check_routes(gpu *g, const wt *router, const float *bias, const float *h, const lg_route_args *a,
                         const int32_t *ids, const float *w, int r)
{
    int n = router->w.n_out;
    double p[300], slack[300], sum = 0, total = 0, worst = INFINITY;
    double *x = malloc((size_t)router->w.n_in * sizeof *x);

    LG_ASSERT(x && n <= 300);
    for (int i = 0; i < router->w.n_in; i++)
        x[i] = (double)h[i];
    for (int e = 0; e < n; e++) {
        double z = product(router, 1, 0, e, x, &slack[e]);
        p[e] = a->gating == LG_GATE_SIGMOID ? 1 / (1 + exp(-z)) : exp(z);
        total += p[e];
    }
    free(x);
    for (int e = 0; e < n && a->gating == LG_GATE_SOFTMAX; e++)
        p[e] /= total;
    for (int i = 0; i < a->out.k; i++) {
        int id = ids[i];
        if (!kc_check(&g->k, id >= 0 && id < n, "row %d rank %d chose expert %d of %d", r, i, id, n))
            return;
        double score = p[id] + (bias ? (double)bias[id] : 0);
        kc_check(&g->k, score <= worst + 2e-6, "row %d: rank %d is above rank %d", r, i, i - 1);
        for (int j = 0; j < i; j++)
            kc_check(&g->k, ids[j] != id, "row %d: expert %d twice", r, id);
        if (i > 0 &&
            memcmp(router->f + (size_t)id * (size_t)router->w.n_in,
                   router->f + (size_t)ids[i - 1] * (size_t)router->w.n_in,
                   (size_t)router->w.n_in * sizeof(float)) == 0 &&
            (!bias || bias[id] == bias[ids[i - 1]]))
            kc_check(&g->k, id > ids[i - 1], "row %d: of two equal scores %d came before %d", r, ids[i - 1],
                     id);
        worst = score;
        sum += p[id];
    }
    for (int e = 0; e < n; e++) {
        bool chosen = false;
        for (int i = 0; i < a->out.k; i++)
            chosen = chosen || ids[i] == e;
        kc_check(&g->k, chosen || p[e] + (bias ? (double)bias[e] : 0) <= worst + 2e-6,
                 "row %d: %d was left out", r, e);
    }
    for (int i = 0; i < a->out.k; i++) {
        double want = p[ids[i]] / (a->norm ? fmax(sum, 0x1p-14) : 1) * (double)a->scale;
        kc_check(&g->k, fabs((double)w[i] - want) <= (1e-5 + 1e-6 * slack[ids[i]]) * want + 1e-37,
                 "row %d: weight %d is %.9g, not %.9g", r, i, (double)w[i], want);
    }
}

void gpu_case_route(gpu *g)
{
    static const int rows[] = {1, 2, 5, 16, 17, 100};

    for (int i = 0; i < 24; i++) {
        int n_rows = rows[i % 6], n = i % 5 == 0 ? 256 : kc_int(&g->k, 12, 90), k = kc_int(&g->k, 1, 12);
        int hidden = i % 3 ? 768 : kc_int(&g->k, 1, 200);
        wt router = wt_random(g, LG_F32, LG_USE_ROUTER, hidden, n, 1, 0), bias = wt_vector(g, n, 0, 0.1);
        dev h = dev_random(g, n_rows, hidden, LG_ROWS_STEP, 0);
        int32_t *ids = malloc((size_t)(n_rows * k) * sizeof *ids);
        float *w = malloc((size_t)(n_rows * k) * sizeof *w);
        lg_step s = {.n_rows = n_rows};

        LG_ASSERT(ids && w);
        for (int e = 1; e < n; e++) // exact ties
            if (kc_int(&g->k, 0, 3) == 0) {
                memcpy(router.f + (size_t)e * (size_t)hidden, router.f + (size_t)(e - 1) * (size_t)hidden,
                       (size_t)hidden * sizeof(float));
                bias.f[e] = bias.f[e - 1];
            }
        for (int r = 0; r < n_rows; r++)
            for (int c = 0; c < hidden; c++)
                dev_row(&h, r)[c] *= r % 3 == 2 ? 3.0f : 0.1f;
        dev_send(g, &h);
        memset(ids, 0xFF, (size_t)(n_rows * k) * sizeof *ids);
        lg_mem d_ids = mem_of(g, ids, (size_t)(n_rows * k) * sizeof *ids);
        lg_mem d_w = mem_of(g, ids, (size_t)(n_rows * k) * sizeof *w);
        (void)g->b->ops->upload(g->b, &router.w.mem, 0, router.f, (size_t)n * (size_t)hidden * sizeof(float),
                                NULL);
        (void)g->b->ops->upload(g->b, &bias.w.mem, 0, bias.f, (size_t)n * sizeof(float), NULL);
        lg_route_args a = {.h = h.t, .router = &router.w, .bias = i % 4 ? &bias.w : NULL,
                           .gating = i % 7 == 3 ? LG_GATE_SOFTMAX : LG_GATE_SIGMOID, .norm = i % 3 != 1,
                           .scale = 2.5f, .out = {.ids = d_ids.p, .w = d_w.p, .k = k}};
        kc_label(&g->k, "route/hidden %d experts %d of %d rows %d", hidden, k, n, n_rows);
        gpu_begin(g, &s);
        g->b->ops->route(g->b, &a);
        gpu_end(g);
        (void)g->b->ops->download(g->b, d_ids.p, ids, (size_t)(n_rows * k) * sizeof *ids, NULL);
        (void)g->b->ops->download(g->b, d_w.p, w, (size_t)(n_rows * k) * sizeof *w, NULL);
        for (int r = 0; r < n_rows; r++)
            check_routes(g, &router, a.bias ? bias.f : NULL, dev_row(&h, r), &a, ids + r * k, w + r * k, r);
        g->b->ops->release(g->b, &d_ids);
        g->b->ops->release(g->b, &d_w);
        dev_free(g, &h);
        wt_free(g, &router);
        wt_free(g, &bias);
        free(ids);
        free(w);
    }
}
