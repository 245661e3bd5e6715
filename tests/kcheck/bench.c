/*
 * kcheck --bench: one thread, each kernel of the level; best of several short passes, in CPU time of the
 * thread, so that other work on the machine shows in memory rates only.
 *
 * gemv runs over a matrix of 96 MiB (from memory) and over one of 128 KiB (from cache): where the second is
 * well above the first, decode is bound by memory. gemm runs 64 rows by 16 and by 256 columns, unpacking
 * included, as MoE and attention prefill do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kcheck.h"

enum { PASSES = 15, N_IN = 2048, COLS = 256, GEMM_ROWS = 64, BIG = 96 << 20, SMALL = 128 << 10 };

typedef struct bench {
    kc *t;
    lg_qtype type;
    lg_mat w;
    int rows, cols;
    lg_acts x;
    float *y;
    uint8_t *tile;
} bench;

static uint64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void run_gemv(bench *b)
{
    b->t->k.type[b->type].gemv(&b->w, 0, b->rows, b->x.p, b->y);
}

static void run_gemm(bench *b)
{
    const lg_type_kernels *k = &b->t->k.type[b->type];

    if (k->rows && b->cols <= LG_ROWS_COLS) {
        for (int r = 0; r < GEMM_ROWS; r += LG_ROWS_ROWS)
            k->rows(&b->w, r, LG_ROWS_ROWS, b->tile, &b->x, NULL, b->cols, b->y + r, GEMM_ROWS);
        return;
    }
    for (int r = 0; r < GEMM_ROWS; r += LG_TILE_ROWS) {
        k->unpack(&b->w, r, LG_TILE_ROWS, b->tile);
        k->gemm(b->tile, N_IN, LG_TILE_ROWS, &b->x, NULL, b->cols, b->y + r, GEMM_ROWS);
    }
}

static void run_unpack(bench *b)
{
    for (int r = 0; r < GEMM_ROWS; r += LG_TILE_ROWS)
        b->t->k.type[b->type].unpack(&b->w, r, LG_TILE_ROWS, b->tile);
}

// Seconds of one call.
static double best_time(bench *b, void (*f)(bench *))
{
    double best = 1e9;
    int calls = 1;

    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t start = cpu_ns();

        for (int i = 0; i < calls; i++)
            f(b);
        double each = (double)(cpu_ns() - start) * 1e-9 / calls;
        best = each < best ? each : best;
        if (pass == 0 && each < 2e-3)
            calls = (int)(2e-3 / each) + 1;
    }
    return best;
}

static void bench_type(kc *t, lg_qtype type)
{
    bench b = {.t = t, .type = type, .w = {.n_in = N_IN}};
    lg_act_kind act = t->k.type[type].act;
    bool whole = lg_row_bytes(type, N_IN, &b.w.row_bytes);
    int big = (int)(BIG / b.w.row_bytes) / 64 * 64, small = (int)(SMALL / b.w.row_bytes) / 4 * 4;
    bool slow = strcmp(t->isa, "c") == 0;

    LG_ASSERT(whole);
    if (slow)
        big /= 16;
    uint8_t *w = kc_guard(t, (size_t)big * b.w.row_bytes);
    kc_fill_w(t, type, w, (int64_t)(big < 512 ? big : 512) * N_IN, 0);
    for (size_t done = 512 * b.w.row_bytes, all = (size_t)big * b.w.row_bytes; done < all; done *= 2)
        memcpy(w + done, w, done < all - done ? done : all - done);
    b.w.p = w;
    b.x.stride = lg_act_bytes(act, N_IN);
    uint8_t *x = kc_guard(t, b.x.stride * COLS);
    float row[N_IN];
    for (int c = 0; c < COLS; c++) {
        kc_fill_x(t, row, N_IN, 0);
        if (act == LG_ACT_F32)
            memcpy(x + (size_t)c * b.x.stride, row, sizeof row);
        else
            t->k.quant[act](row, N_IN, x + (size_t)c * b.x.stride);
    }
    b.x.p = x;
    size_t cells = (size_t)(big > GEMM_ROWS * COLS ? big : GEMM_ROWS * COLS);
    b.y = kc_guard(t, cells * sizeof *b.y);
    b.tile = kc_guard(t, lg_tile_bytes(N_IN));

    double bytes = (double)b.w.row_bytes, macs = 2.0 * N_IN;
    b.rows = big;
    double memory = bytes * big / best_time(&b, run_gemv);
    b.rows = small;
    double cache = bytes * small / best_time(&b, run_gemv);
    double unpack = bytes * GEMM_ROWS / best_time(&b, run_unpack);
    b.cols = 16;
    double gemm16 = macs * GEMM_ROWS * 16 / best_time(&b, run_gemm);
    b.cols = COLS;
    double gemm256 = macs * GEMM_ROWS * COLS / best_time(&b, run_gemm);
    printf(
        "%-11s %-7s gemv %6.2f GB/s memory %6.2f cache   unpack %6.2f GB/s   gemm %7.1f Gop/s x16 %7.1f x256\n",
        t->isa, lg_qtype_get((uint32_t)type)->name, memory * 1e-9, cache * 1e-9, unpack * 1e-9, gemm16 * 1e-9,
        gemm256 * 1e-9);
    kc_release(t);
}

static void bench_rows(kc *t)
{
    enum { N = 4096, CALLS = 2000 };
    float *x = kc_guard(t, N * sizeof *x), *g = kc_guard(t, N * sizeof *g);
    uint8_t *row = kc_guard(t, lg_act_bytes(LG_ACT_Q32, N));
    double best[3] = {1e9, 1e9, 1e9};

    kc_fill_x(t, x, N, 0);
    kc_fill_x(t, g, N, 0);
    for (int pass = 0; pass < PASSES; pass++)
        for (int what = 0; what < 3; what++) {
            uint64_t start = cpu_ns();

            for (int i = 0; i < CALLS; i++) {
                if (what < 2)
                    t->k.quant[what ? LG_ACT_Q256 : LG_ACT_Q32](x, N, row);
                else
                    t->k.swiglu(x, g, g, N);
            }
            double each = (double)(cpu_ns() - start) / ((double)CALLS * N);
            best[what] = each < best[what] ? each : best[what];
        }
    printf("%-11s quant q32 %.3f ns/value, q256 %.3f, swiglu %.3f\n", t->isa, best[0], best[1], best[2]);
    kc_release(t);
}

static void bench_probes(kc *t)
{
    enum { BYTES = 128 << 20 };
    uint8_t *p = kc_guard(t, BYTES);
    double read = 0.0, ops = 0.0;
    volatile uint64_t sink = 0;

    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t start = cpu_ns();

        sink ^= t->k.probe_read(p, BYTES);
        double rate = BYTES / (double)(cpu_ns() - start);
        read = rate > read ? rate : read;
        start = cpu_ns();
        double done = t->k.probe_int8(100000);
        rate = done / (double)(cpu_ns() - start);
        ops = rate > ops ? rate : ops;
    }
    (void)sink; // only there so that the reads are not dropped
    printf("%-11s read %.2f GB/s, int8 multiply %.1f Gop/s (one thread)\n", t->isa, read, ops);
    kc_release(t);
}

void kc_bench(kc *t)
{
    bench_probes(t);
    bench_rows(t);
    for (int type = 0; type < LG_QTYPE_MAX; type++)
        if (t->k.type[type].gemv && (!t->only || strstr(lg_qtype_get((uint32_t)type)->name, t->only)))
            bench_type(t, (lg_qtype)type);
}
