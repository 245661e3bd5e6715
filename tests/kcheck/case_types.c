/*
 * kcheck: gemv, unpack and gemm of every weight type, against the reference's bits; and the reference itself
 * against a double-precision product of the decoded weights.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/blocks.h"
#include "kcheck.h"

enum { MAX_COLS = 19, MAX_ROWS = 37 };

typedef struct problem {
    lg_qtype type;
    const lg_qtype_info *info;
    lg_act_kind act;
    lg_mat w;
    int n_rows, n_cols;
    lg_acts x; // n_cols rows
} problem;

static const float *scales_of(const problem *p, int col)
{
    return (const float *)(const void *)(p->x.p + (size_t)col * p->x.stride + lg_act_scales_at(p->w.n_in));
}

static double activation(const problem *p, int col, int i)
{
    const uint8_t *row = p->x.p + (size_t)col * p->x.stride;

    if (p->act == LG_ACT_F32) {
        float v;

        memcpy(&v, row + 4 * (size_t)i, 4);
        return (double)v;
    }
    const int16_t *steps = (const int16_t *)(const void *)(row + lg_act_steps_at(p->w.n_in));
    return (double)(int8_t)row[i] * steps[i / 16] * (double)scales_of(p, col)[i / lg_act_block(p->act)];
}

// The largest part that a min takes of any weight of run r: what cancels in the decoded value still rounds.
static double min_part(const problem *p, const uint8_t *row, int r)
{
    lg_terms terms = {0};
    double most = 0.0;

    if (!lg_run_has_min(p->type))
        return 0.0;
    lg_terms_get(p->type, row, r, &terms);
    for (int g = 0; g < (lg_run_elems(p->type) + 15) / 16; g++) {
        double part = fabs((double)terms.m * terms.min[g]);
        most = part > most ? part : most;
    }
    return most;
}

static void check_reference(kc *t, const problem *p, const float *want)
{
    float decoded[4096];
    bool plain = p->act == LG_ACT_F32;
    int run = plain ? 1 : lg_run_elems(p->type), terms = plain ? p->w.n_in / 8 : p->w.n_in / run;
    // A product of scales may be subnormal; its error is then absolute and grows with the integers it
    // multiplies.
    double subnormal = 0x1p-149 * p->w.n_in *
                       (plain        ? 1.0
                        : run == 256 ? 8192.0 * 127.0 * 8.0
                                     : 128.0 * 127.0 * 16.0);

    for (int i = 0; i < p->n_rows; i++) {
        const uint8_t *row = p->w.p + (size_t)i * p->w.row_bytes;

        lg_dequant_row(p->type, row, decoded, p->w.n_in);
        for (int c = 0; c < p->n_cols; c++) {
            double sum = 0.0, size = 0.0, min = 0.0;

            for (int k = 0; k < p->w.n_in; k++) {
                double a = activation(p, c, k);

                if (!plain && k % run == 0)
                    min = min_part(p, row, k / run);
                sum += (double)decoded[k] * a;
                size += (fabs((double)decoded[k]) + 2.0 * min) * fabs(a);
            }
            double got = (double)want[(size_t)c * (size_t)p->n_rows + (size_t)i];
            double tolerance = (terms + 16) * 0x1p-24 * size + subnormal;
            if (isfinite(got))
                kc_check(t, fabs(got - sum) <= tolerance,
                         "reference row %d column %d: %.9g, in double %.9g +- %.3g", i, c, got, sum,
                         tolerance);
            else
                kc_check(t, size > 1e37,
                         "reference row %d column %d is not finite, but its terms sum to %.3g", i, c, size);
        }
    }
}

static void check_gemv(kc *t, const problem *p, const float *want)
{
    int from = kc_int(t, 0, p->n_rows - 1), n = p->n_rows - from;

    for (int c = 0; c < p->n_cols; c++) {
        const uint8_t *x = p->x.p + (size_t)c * p->x.stride;
        float *y = kc_guard(t, (size_t)p->n_rows * sizeof *y);

        t->k.type[p->type].gemv(&p->w, 0, p->n_rows, x, y);
        kc_same(t, y, want + (size_t)c * (size_t)p->n_rows, p->n_rows, "gemv");
        y = kc_guard(t, (size_t)n * sizeof *y);
        t->k.type[p->type].gemv(&p->w, from, n, x, y);
        kc_same(t, y, want + (size_t)c * (size_t)p->n_rows + from, n, "gemv of the last rows");
    }
}

// unpack and gemm, or both in one.
static void check_gemm(kc *t, const problem *p, const float *want, bool in_one)
{
    const lg_type_kernels *k = &t->k.type[p->type];
    uint8_t *tile = kc_guard(t, lg_tile_bytes(p->w.n_in));
    int32_t idx[MAX_COLS];
    bool gather = kc_u64(t) & 1;

    for (int c = 0; c < p->n_cols; c++)
        idx[c] = kc_int(t, 0, p->n_cols - 1);
    int step = in_one ? LG_ROWS_ROWS : LG_TILE_ROWS;

    for (int row = 0; row < p->n_rows; row += step) {
        int n = p->n_rows - row < step ? p->n_rows - row : step;
        size_t stride = (size_t)n + (size_t)kc_int(t, 0, 5),
               cells = (size_t)(p->n_cols - 1) * stride + (size_t)n;
        float *y = kc_guard(t, cells * sizeof *y);

        if (in_one) {
            k->rows(&p->w, row, n, tile, &p->x, gather ? idx : NULL, p->n_cols, y, stride);
        } else {
            k->unpack(&p->w, row, n, tile);
            k->gemm(tile, p->w.n_in, n, &p->x, gather ? idx : NULL, p->n_cols, y, stride);
        }
        for (int c = 0; c < p->n_cols; c++) {
            int from = gather ? idx[c] : c;

            kc_same(t, y + (size_t)c * stride, want + (size_t)from * (size_t)p->n_rows + row, n,
                    in_one ? "rows" : "gemm");
            for (size_t i = (size_t)n; c + 1 < p->n_cols && i < stride; i++) {
                uint32_t u;

                memcpy(&u, y + (size_t)c * stride + i, sizeof u);
                kc_check(t, u == 0xA5A5A5A5, "gemm wrote between columns");
            }
        }
    }
}

static void make_problem(kc *t, problem *p, int w_mode, int x_mode)
{
    size_t row_bytes = 0;
    bool whole = lg_row_bytes(p->type, (uint64_t)p->w.n_in, &row_bytes);

    LG_ASSERT(whole);
    uint8_t *w = kc_guard(t, row_bytes * (size_t)p->n_rows);
    kc_fill_w(t, p->type, w, (int64_t)p->n_rows * p->w.n_in, w_mode);
    p->w.p = w;
    p->w.row_bytes = row_bytes;
    // the hint names an unmapped page: it may be fetched, never read
    p->w.next = (lg_span){w + row_bytes * (size_t)p->n_rows, (size_t)kc_int(t, 0, 20000)};

    size_t floats = (size_t)p->w.n_in * sizeof(float);
    p->x.stride = p->act == LG_ACT_F32 ? floats : lg_act_bytes(p->act, p->w.n_in);
    uint8_t *rows = kc_guard(t, p->x.stride * (size_t)p->n_cols);
    float x[4096];
    for (int c = 0; c < p->n_cols; c++) {
        kc_fill_x(t, x, p->w.n_in, x_mode);
        if (p->act == LG_ACT_F32)
            memcpy(rows + (size_t)c * p->x.stride, x, floats);
        else
            t->ref.quant[p->act](x, p->w.n_in, rows + (size_t)c * p->x.stride);
    }
    p->x.p = rows;
}

static void run_one(kc *t, problem *p, int w_mode, int x_mode)
{
    float want[MAX_COLS * MAX_ROWS];

    kc_label(t, "types/%s n_in %d rows %d columns %d weights %d inputs %d", p->info->name, p->w.n_in,
             p->n_rows, p->n_cols, w_mode, x_mode);
    make_problem(t, p, w_mode, x_mode);
    for (int c = 0; c < p->n_cols; c++)
        t->ref.type[p->type].gemv(&p->w, 0, p->n_rows, p->x.p + (size_t)c * p->x.stride,
                                  want + (size_t)c * (size_t)p->n_rows);
    if (strcmp(t->isa, "c") == 0)
        check_reference(t, p, want);
    check_gemv(t, p, want);
    check_gemm(t, p, want, false);
    if (t->k.type[p->type].rows)
        check_gemm(t, p, want, true);
    kc_release(t);
}

void kc_case_types(kc *t)
{
    for (int type = 0; type < LG_QTYPE_MAX; type++) {
        problem p = {
            .type = (lg_qtype)type, .info = lg_qtype_get((uint32_t)type), .act = t->k.type[type].act};
        int block = p.info->block_elems;

        if (!t->k.type[type].gemv)
            continue;
        if (t->only && !strstr(p.info->name, t->only))
            continue;
        kc_check(t, p.info->runs && t->ref.type[type].act == p.act, "types/%s: levels disagree on its input",
                 p.info->name);
        for (int blocks = 1; blocks <= (block == 1 ? 40 : 5); blocks++)
            for (int w_mode = 0; w_mode < KC_W_MODES; w_mode++) {
                p.w.n_in = blocks * block;
                p.n_rows = kc_int(t, 1, MAX_ROWS);
                p.n_cols = kc_int(t, 1, MAX_COLS);
                run_one(t, &p, w_mode, kc_int(t, 0, KC_X_MODES - 1));
            }
        for (int i = 0; i < 12; i++) { // longer rows, each row and column count
            p.w.n_in = (block == 1 ? kc_int(t, 41, 1500) : kc_int(t, 1, 2048 / block) * block);
            p.n_rows = i < 4 ? i + 1 : kc_int(t, 1, MAX_ROWS);
            p.n_cols = i < 8 ? i + 1 : kc_int(t, 1, MAX_COLS);
            run_one(t, &p, kc_int(t, 0, KC_W_MODES - 1), kc_int(t, 0, KC_X_MODES - 1));
        }
    }
}
