/*
 * kcheck: the small ops through the backend's interface: embed, norms, row copies, logits masking,
 * candidates, moves between KV blocks. Expected values come from plain loops; where bits are promised, bits
 * are compared.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kcheck.h"

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

static void begin(kc *t, lg_backend *b, const lg_step *s)
{
    lg_begin how;
    lg_err err = {0};

    kc_check(t, b->ops->begin(b, lg_step_key(s), s, &how, &err) == LG_OK && how == LG_RECORD, "begin: %s",
             err.msg);
}

static void end(kc *t, lg_backend *b)
{
    kc_check(t, b->ops->end(b, NULL) == LG_OK, "end");
}

static lg_tensor tensor(kc *t, int n_rows, int cols, lg_rows rows)
{
    int stride = cols + kc_int(t, 0, 3);
    size_t cells = (size_t)(n_rows - 1) * (size_t)stride + (size_t)cols;

    return (lg_tensor){.p = kc_guard(t, cells * sizeof(float)), .cols = cols, .stride = stride, .rows = rows};
}

static float *row_of(const lg_tensor *x, int r)
{
    return x->p + (size_t)r * (size_t)x->stride;
}

static void fill(kc *t, const lg_tensor *x, int rows, float size)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < x->cols; i++)
            row_of(x, r)[i] = kc_normal(t) * size;
}

/* ---- embed ---- */

static void embed_once(kc *t, lg_qtype type, int n_in, lg_use use)
{
    enum { VOCAB = 37, ROWS = 40 };
    lg_limits lim = {
        .max_rows = ROWS, .max_out = 1, .max_cand = 1, .hidden = n_in, .vocab = VOCAB, .max_ctx = 64};
    lg_backend *b = open_backend(t, kc_int(t, 1, 3), &lim);
    lg_source src = {.name = LG_STR("embd"), .type = type, .ne = {(uint64_t)n_in, VOCAB, 1, 1},
                     .scale = kc_int(t, 0, 1) ? 1.0f : 0.5f};
    lg_weight w = {0};
    lg_err err = {0};
    size_t row = 0;
    int32_t ids[ROWS];
    int rows = kc_int(t, 1, ROWS);
    lg_tensor out = tensor(t, rows, n_in, LG_ROWS_STEP);
    float *want = malloc((size_t)n_in * sizeof *want);

    LG_ASSERT(want && lg_row_bytes(type, (uint64_t)n_in, &row));
    kc_label(t, "misc/embed %s n %d rows %d", lg_qtype_get((uint32_t)type)->name, n_in, rows);
    src.bytes = row * VOCAB;
    uint8_t *data = kc_guard(t, src.bytes);
    kc_fill_w(t, type, data, (int64_t)n_in * VOCAB, 0);
    src.data = data;
    kc_check(t, b->ops->load(b, &src, use, &w, &err) == LG_OK, "load: %s", err.msg);
    for (int i = 0; i < rows; i++)
        ids[i] = kc_int(t, 0, VOCAB - 1);
    begin(t, b, &(lg_step){.n_rows = rows, .ids = ids});
    b->ops->embed(b, &out, &w);
    end(t, b);
    for (int r = 0; r < rows; r++) {
        lg_dequant_row(type, data + row * (size_t)ids[r], want, n_in);
        for (int i = 0; i < n_in; i++)
            want[i] *= src.scale;
        kc_same(t, row_of(&out, r), want, n_in, "row");
    }
    b->ops->unload(b, &w);
    lg_backend_close(b);
    free(want);
    kc_release(t);
}

/* ---- norms ---- */

static void norm_once(kc *t, int rows, int cols)
{
    lg_limits lim = {
        .max_rows = rows, .max_out = 1, .max_cand = 1, .hidden = cols, .vocab = 32, .max_ctx = 64};
    lg_backend *b = open_backend(t, kc_int(t, 1, 3), &lim);
    lg_tensor x = tensor(t, rows, cols, LG_ROWS_STEP), delta = tensor(t, rows, cols, LG_ROWS_STEP);
    lg_tensor out = tensor(t, rows, cols, LG_ROWS_STEP);
    float *w = kc_guard(t, (size_t)cols * sizeof *w), *want = malloc((size_t)cols * sizeof *want);
    float *sum = malloc((size_t)(rows * cols) * sizeof *sum);
    lg_weight weight = {.type = LG_F32, .n_in = cols, .n_out = 1, .data = w};

    LG_ASSERT(want && sum);
    kc_label(t, "misc/norm rows %d cols %d", rows, cols);
    for (int i = 0; i < cols; i++)
        w[i] = kc_normal(t);
    fill(t, &x, rows, 1e3f);
    fill(t, &delta, rows, 1e3f);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < cols; i++)
            sum[r * cols + i] = row_of(&x, r)[i] + row_of(&delta, r)[i];
    begin(t, b, &(lg_step){.n_rows = rows});
    b->ops->rmsnorm(b, &out, &x, &weight, 1e-6f);
    for (int r = 0; r < rows; r++) {
        t->k.vec.rmsnorm(want, row_of(&x, r), w, cols, 1e-6f);
        kc_same(t, row_of(&out, r), want, cols, "rmsnorm");
    }
    b->ops->add_rmsnorm(b, &out, &x, &delta, &weight, 1e-6f);
    end(t, b);
    for (int r = 0; r < rows; r++) {
        kc_same(t, row_of(&x, r), sum + r * cols, cols, "residual");
        t->k.vec.rmsnorm(want, sum + r * cols, w, cols, 1e-6f);
        kc_same(t, row_of(&out, r), want, cols, "add_rmsnorm");
    }
    lg_backend_close(b);
    free(want);
    free(sum);
    kc_release(t);
}

/* ---- gather_rows, copy, tap ---- */

static void copies_once(kc *t)
{
    enum { ROWS = 50, COLS = 33, TAPS = 3 };
    lg_limits lim = {
        .max_rows = ROWS, .max_out = ROWS, .max_cand = 1, .hidden = COLS, .vocab = 32, .max_ctx = 64};
    lg_backend *b = open_backend(t, kc_int(t, 1, 3), &lim);
    int rows = kc_int(t, 1, ROWS), n_out = 0;
    int32_t out_rows[ROWS];
    lg_tensor x = tensor(t, rows, COLS, LG_ROWS_STEP), taps = tensor(t, rows, TAPS * COLS, LG_ROWS_STEP);

    kc_label(t, "misc/copies rows %d", rows);
    for (int r = 0; r < rows; r++)
        if (kc_int(t, 0, 2) == 0 || (r == rows - 1 && n_out == 0))
            out_rows[n_out++] = r;
    fill(t, &x, rows, 1);
    fill(t, &taps, rows, 1);
    lg_tensor out = tensor(t, n_out, COLS, LG_ROWS_OUT), slice = taps;
    slice.p += COLS;
    slice.cols = COLS;
    size_t bytes = COLS * sizeof(float);
    char *debug = kc_guard(t, bytes * (size_t)rows);
    float before = taps.p[0], after = taps.p[2 * COLS];

    begin(t, b, &(lg_step){.n_rows = rows, .n_out = n_out, .out_rows = out_rows});
    b->ops->gather_rows(b, &out, &x);
    b->ops->copy(b, debug, x.p, bytes, bytes, (size_t)x.stride * sizeof(float), LG_ROWS_STEP);
    b->ops->tap(b, &slice, &x);
    end(t, b);
    for (int i = 0; i < n_out; i++)
        kc_same(t, row_of(&out, i), row_of(&x, out_rows[i]), COLS, "gathered row");
    for (int r = 0; r < rows; r++) {
        kc_check(t, memcmp(debug + (size_t)r * bytes, row_of(&x, r), bytes) == 0, "copied row %d differs", r);
        kc_same(t, row_of(&slice, r), row_of(&x, r), COLS, "tapped row");
    }
    kc_check(t, taps.p[0] == before && taps.p[2 * COLS] == after, "tap wrote beside its slice");
    lg_backend_close(b);
    kc_release(t);
}

/* ---- mask_logits, topk ---- */

typedef struct pick {
    float logit;
    int32_t id;
} pick;

static int by_rank(const void *a, const void *b)
{
    const pick *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

// Logits: mode 0 ordinary, 1 many ties, 2 all equal, 3 ascending, 4 huge, 5 some NaN and infinities.
static void fill_logits(kc *t, const lg_tensor *x, int rows, int mode)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < x->cols; i++) {
            float v = kc_normal(t) * 4;
            if (mode == 1)
                v = (float)kc_int(t, 0, 3);
            else if (mode == 2)
                v = 1.5f;
            else if (mode == 3)
                v = (float)i * 0.01f;
            else if (mode == 4)
                v *= 1e6f;
            else if (mode == 5)
                v = i % 7 == 0 ? NAN : i % 5 == 0 ? -INFINITY : v;
            row_of(x, r)[i] = v;
        }
}

static void check_candidates(kc *t, const float *x, int n, const int32_t *ids, const float *logits, float lse,
                             int k)
{
    pick *all = malloc((size_t)n * sizeof *all);
    double top = -INFINITY, sum = 0;
    bool nan = false;

    LG_ASSERT(all);
    for (int i = 0; i < n; i++) {
        nan = nan || isnan(x[i]);
        all[i] = (pick){isnan(x[i]) ? -INFINITY : x[i], i};
        top = (double)all[i].logit > top ? (double)all[i].logit : top;
    }
    qsort(all, (size_t)n, sizeof *all, by_rank);
    for (int i = 0; i < k; i++)
        kc_check(t, ids[i] == all[i].id && logits[i] == all[i].logit,
                 "candidate %d of %d is %d (%.9g), not %d (%.9g)", i, k, ids[i], (double)logits[i], all[i].id,
                 (double)all[i].logit);
    for (int i = 0; i < n; i++)
        sum += exp((double)all[i].logit - top);
    if (!nan && top > -INFINITY) // a NaN logit has no sum
        kc_check(t, fabs((double)lse - top - log(sum)) <= 2e-6 * (1 + fabs(top)), "lse is %.9g, not %.9g",
                 (double)lse, top + log(sum));
    free(all);
}

static void sample_once(kc *t, int n_out, int vocab, int k, int mode)
{
    lg_limits lim = {
        .max_rows = 32, .max_out = n_out, .max_cand = k, .hidden = 32, .vocab = vocab, .max_ctx = 64};
    lg_backend *b = open_backend(t, kc_int(t, 1, 3), &lim);
    int words = (vocab + 31) / 32;
    lg_tensor x = tensor(t, n_out, vocab, LG_ROWS_OUT), raw = tensor(t, n_out, vocab, LG_ROWS_OUT);
    uint32_t *mask = kc_guard(t, (size_t)(n_out * words) * sizeof *mask);
    lg_candidates c = {.max_cand = k};

    kc_label(t, "misc/topk %d of %d rows %d logits %d", k, vocab, n_out, mode);
    c.ids = kc_guard(t, (size_t)(n_out * k) * sizeof *c.ids);
    c.logits = kc_guard(t, (size_t)(n_out * k) * sizeof *c.logits);
    c.lse = kc_guard(t, (size_t)n_out * sizeof *c.lse);
    fill_logits(t, &x, n_out, mode);
    for (int r = 0; r < n_out; r++)
        memcpy(row_of(&raw, r), row_of(&x, r), (size_t)vocab * sizeof(float));
    for (int i = 0; i < n_out * words; i++)
        mask[i] = i % 3 == 0 ? UINT32_MAX : i % 3 == 1 ? 0 : (uint32_t)kc_u64(t);
    lg_step s = {.graph = LG_GRAPH_SAMPLE, .n_out = n_out, .n_cand = k, .mask = mask};

    begin(t, b, &s);
    b->ops->topk(b, &x, &c);
    end(t, b);
    for (int r = 0; r < n_out; r++)
        check_candidates(t, row_of(&x, r), vocab, c.ids + r * k, c.logits + r * k, c.lse[r], k);
    begin(t, b, &s);
    b->ops->mask_logits(b, &x);
    b->ops->topk(b, &x, &c);
    end(t, b);
    for (int r = 0; r < n_out; r++) {
        for (int i = 0; i < vocab; i++) {
            bool allowed = mask[r * words + i / 32] >> (i % 32) & 1;
            float was = row_of(&raw, r)[i], want = allowed ? was : -INFINITY;
            kc_check(t, memcmp(&row_of(&x, r)[i], &want, sizeof want) == 0, "masked logit %d is %.9g", i,
                     (double)row_of(&x, r)[i]);
        }
        check_candidates(t, row_of(&x, r), vocab, c.ids + r * k, c.logits + r * k, c.lse[r], k);
    }
    lg_backend_close(b);
    kc_release(t);
}

/* ---- kv_move ---- */

static void move_once(kc *t)
{
    lg_limits lim = {.max_rows = 1, .max_out = 1, .max_cand = 1, .hidden = 32, .vocab = 32, .max_ctx = 64};
    lg_backend *b = open_backend(t, 1, &lim);
    lg_kv_class c = {
        .type = LG_F16, .n_layer = 2, .n_kv_head = 3, .head_dim = 16, .n_blocks = 4, .row_bytes = 32};
    lg_err err = {0};

    kc_label(t, "misc/kv_move");
    c.tile_bytes = c.row_bytes * LG_KV_BLOCK;
    c.layer_bytes = 2 * 3 * c.tile_bytes;
    c.block_bytes = 2 * c.layer_bytes;
    kc_check(t, b->ops->alloc(b, 4 * c.block_bytes, &c.mem, &err) == LG_OK, "alloc: %s", err.msg);
    for (size_t i = 0; i < c.mem.bytes; i++)
        ((uint8_t *)c.mem.p)[i] = (uint8_t)kc_u64(t);
    uint8_t *before = malloc(c.mem.bytes);
    LG_ASSERT(before);
    memcpy(before, c.mem.p, c.mem.bytes);
    const lg_kv_copy moves[] = {{.src_block = 0, .src_row = 5, .dst_block = 2, .dst_row = 0, .rows = 40},
                                {.src_block = 1, .src_row = 0, .dst_block = 3, .dst_row = 10, .rows = 54},
                                {.src_block = 1, .src_row = 3, .dst_block = 2, .dst_row = 60, .rows = 0}};
    b->ops->kv_move(b, &c, moves, 3);
    for (int block = 0; block < 4; block++)
        for (int tile = 0; tile < 12; tile++)
            for (int r = 0; r < LG_KV_BLOCK; r++) {
                int from = block, row = r;
                if (block == 2 && r < 40) {
                    from = 0;
                    row = r + 5;
                } else if (block == 3 && r >= 10) {
                    from = 1;
                    row = r - 10;
                }
                size_t at = lg_kv_offset(&c, block, tile / 6, tile / 3 % 2, tile % 3, r);
                size_t was = lg_kv_offset(&c, from, tile / 6, tile / 3 % 2, tile % 3, row);
                kc_check(t, memcmp((uint8_t *)c.mem.p + at, before + was, c.row_bytes) == 0,
                         "block %d tile %d row %d", block, tile, r);
            }
    free(before);
    b->ops->release(b, &c.mem);
    lg_backend_close(b);
}

void kc_case_misc(kc *t)
{
    static const lg_qtype types[] = {LG_F32,  LG_F16,  LG_BF16,   LG_Q8_0,  LG_Q4_0,  LG_Q4_1,
                                     LG_Q5_0, LG_Q5_1, LG_IQ4_NL, LG_MXFP4, LG_NVFP4, LG_Q2_K,
                                     LG_Q3_K, LG_Q4_K, LG_Q5_K,   LG_Q6_K,  LG_IQ4_XS};

    if (t->only)
        return;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        embed_once(t, types[i], 512, LG_USE_EMBED);
        embed_once(t, types[i], 256, LG_USE_EMBED_LINEAR);
    }
    for (int i = 0; i < 12; i++)
        norm_once(t, i < 6 ? i + 1 : kc_int(t, 1, 90),
                  i % 3 == 0 ? kc_int(t, 1, 100) : 32 * kc_int(t, 1, 60));
    for (int i = 0; i < 8; i++)
        copies_once(t);
    for (int mode = 0; mode < 6; mode++) {
        sample_once(t, 1, 1000, 1, mode);
        sample_once(t, kc_int(t, 1, 5), kc_int(t, 40, 3000), kc_int(t, 1, 40), mode);
        sample_once(t, 3, 300, 300, mode);
        sample_once(t, 2, kc_int(t, 5000, 20000), 64, mode);
    }
    move_once(t);
}
