/*
 * tests/cuda: embed, norms, swiglu, copies, masks, candidates, synthetic weights, replay.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu.h"
#include "model/synth.h"

static void case_embed(gpu *g)
{
    for (int t = 0; t < 17; t++) {
        int n_in = 512, rows = t % 2 ? 3 : 40;
        int32_t ids[40];
        wt w = wt_random(g, gpu_types[t], t % 3 ? LG_USE_EMBED : LG_USE_EMBED_LINEAR, n_in, 60, 1, 3);
        dev out = dev_new(g, rows, n_in, LG_ROWS_STEP);
        lg_step s = {.n_rows = rows, .ids = ids};

        kc_label(&g->k, "embed/%s", lg_qtype_get((uint32_t)gpu_types[t])->name);
        for (int i = 0; i < rows; i++)
            ids[i] = kc_int(&g->k, 0, 59);
        gpu_begin(g, &s);
        g->b->ops->embed(g->b, &out.t, &w.w);
        gpu_end(g);
        dev_fetch(g, &out);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < n_in; i++) {
                double want = (double)w.f[ids[r] * n_in + i] * (double)w.w.scale;
                check_near(g, (double)dev_row(&out, r)[i], want, 1e-6 * fabs(want) + 2e-3 * 1e-3, "embed", r,
                           i);
            }
        dev_check_pad(g, &out, "embed");
        dev_free(g, &out);
        wt_free(g, &w);
    }
}

static void norm_once(gpu *g, int cols, int rows, bool add, int mode)
{
    dev x = dev_random(g, rows, cols, LG_ROWS_STEP, mode), d = dev_random(g, rows, cols, LG_ROWS_STEP, mode);
    dev out = dev_new(g, rows, cols, LG_ROWS_STEP), y = dev_new(g, rows, 64, LG_ROWS_STEP);
    wt w = wt_vector(g, cols, 1, 0.1), m = {0};
    lg_step s = {.n_rows = rows};
    bool follow = cols % 256 == 0 && mode == 0;

    kc_label(&g->k, "norm/cols %d rows %d add %d mode %d", cols, rows, add, mode);
    if (follow)
        m = wt_random(g, LG_Q4_K, LG_USE_LINEAR, cols, 64, 1, 0);
    float *before = malloc(x.mem.bytes);
    LG_ASSERT(before);
    memcpy(before, x.host, x.mem.bytes);
    gpu_begin(g, &s);
    if (add)
        g->b->ops->add_rmsnorm(g->b, &out.t, &x.t, &d.t, &w.w, 1e-6f);
    else
        g->b->ops->rmsnorm(g->b, &out.t, &x.t, &w.w, 1e-6f);
    if (follow) // what the norm quantised in passing is what the product would
        g->b->ops->linear(g->b, &out.t, &(lg_part){y.t, &m.w}, 1);
    gpu_end(g);
    dev_fetch(g, &out);
    dev_fetch(g, &x);
    dev_fetch(g, &y);
    for (int r = 0; r < rows; r++) {
        double squares = 0;
        for (int i = 0; i < cols; i++) {
            float want =
                before[(size_t)r * (size_t)x.t.stride + (size_t)i] + (add ? dev_row(&d, r)[i] : 0.0f);
            kc_check(&g->k, dev_row(&x, r)[i] == want, "x row %d column %d", r, i);
            squares += (double)want * (double)want;
        }
        for (int i = 0; i < cols; i++) {
            double want = (double)dev_row(&x, r)[i] / sqrt(squares / cols + 1e-6) * (double)w.f[i];
            check_near(g, (double)dev_row(&out, r)[i], want, 3e-6 * fabs(want) + 1e-30, "norm", r, i);
        }
        double *a = malloc((size_t)cols * sizeof *a);
        LG_ASSERT(a);
        if (follow)
            round_acts(&m, rows, dev_row(&out, r), cols, a);
        for (int i = 0; follow && i < 64; i++) {
            double size, want = product(&m, rows, 0, i, a, &size);
            check_near(g, (double)dev_row(&y, r)[i], want, 1e-4 * size, "product behind a norm", r, i);
        }
        free(a);
    }
    dev_check_pad(g, &out, "norm");
    dev_check_pad(g, &x, "norm's x");
    free(before);
    dev_free(g, &x);
    dev_free(g, &d);
    dev_free(g, &out);
    dev_free(g, &y);
    wt_free(g, &w);
    if (follow)
        wt_free(g, &m);
}

static void case_swiglu_and_copies(gpu *g)
{
    int rows = 37, cols = 130;
    int32_t picked[5] = {0, 3, 4, 20, 36};
    dev a = dev_random(g, rows, cols, LG_ROWS_STEP, 1), b = dev_random(g, rows, cols, LG_ROWS_STEP, 0);
    dev out = dev_new(g, rows, cols, LG_ROWS_STEP), few = dev_new(g, 5, cols, LG_ROWS_OUT);
    dev copy = dev_new(g, rows, cols, LG_ROWS_STEP), tap = dev_new(g, rows, cols, LG_ROWS_STEP);
    lg_step s = {.n_rows = rows, .n_out = 5, .out_rows = picked};

    kc_label(&g->k, "swiglu, gather, copy, tap");
    gpu_begin(g, &s);
    g->b->ops->swiglu(g->b, &out.t, &a.t, &b.t);
    g->b->ops->gather_rows(g->b, &few.t, &a.t);
    g->b->ops->copy(g->b, copy.t.p, a.t.p, (size_t)cols * 4, (size_t)copy.t.stride * 4,
                    (size_t)a.t.stride * 4, LG_ROWS_STEP);
    g->b->ops->tap(g->b, &tap.t, &b.t);
    gpu_end(g);
    dev_fetch(g, &out);
    dev_fetch(g, &few);
    dev_fetch(g, &copy);
    dev_fetch(g, &tap);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < cols; i++) {
            double x = (double)dev_row(&a, r)[i], want = x / (1 + exp(-x)) * (double)dev_row(&b, r)[i];
            check_near(g, (double)dev_row(&out, r)[i], want, 2e-6 * fabs(want) + 1e-30, "swiglu", r, i);
            kc_check(&g->k,
                     dev_row(&copy, r)[i] == dev_row(&a, r)[i] && dev_row(&tap, r)[i] == dev_row(&b, r)[i],
                     "copy row %d column %d", r, i);
        }
    for (int r = 0; r < 5; r++)
        kc_check(&g->k, memcmp(dev_row(&few, r), dev_row(&a, picked[r]), (size_t)cols * 4) == 0,
                 "gathered row %d", r);
    dev_check_pad(g, &out, "swiglu");
    dev_check_pad(g, &few, "gather");
    dev_check_pad(g, &copy, "copy");
    dev_free(g, &a);
    dev_free(g, &b);
    dev_free(g, &out);
    dev_free(g, &few);
    dev_free(g, &copy);
    dev_free(g, &tap);
}

static const float *order_row;
static int by_logit(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    float u = isnan(order_row[x]) ? -INFINITY : order_row[x],
          v = isnan(order_row[y]) ? -INFINITY : order_row[y];

    return u > v ? -1 : u < v ? 1 : x - y;
}

// style 0 ordinary, 1 all equal, 2 few levels, 3 masked but some, 4 but fewer than k, 5 but a range of ids
static void topk_once(gpu *g, int vocab, int rows, int k, int style)
{
    dev x = dev_new(g, rows, vocab, LG_ROWS_OUT);
    int words = (vocab + 31) / 32, *order = malloc((size_t)vocab * sizeof *order);
    uint32_t *mask = malloc((size_t)(rows * words) * sizeof *mask);
    int32_t *ids = malloc((size_t)(rows * k) * sizeof *ids),
            *out_rows = malloc((size_t)rows * sizeof *out_rows);
    float *logits = malloc((size_t)(rows * k + rows) * sizeof *logits), *lse = logits + rows * k;
    lg_step s = {.n_rows = rows,
                 .n_out = rows,
                 .out_rows = out_rows,
                 .n_cand = k,
                 .mask = mask,
                 .flags = LG_STEP_MASK};

    LG_ASSERT(order && mask && ids && logits && out_rows);
    kc_label(&g->k, "topk/vocab %d rows %d k %d style %d", vocab, rows, k, style);
    for (int r = 0; r < rows; r++) {
        out_rows[r] = r;
        for (int i = 0; i < vocab; i++) {
            float v = kc_normal(&g->k) * 4;
            dev_row(&x, r)[i] = style == 1 ? 2.5f : style == 2 ? floorf(v / 4) : v;
        }
    }
    for (int i = 0; i < rows * words; i++)
        mask[i] = style >= 3 ? 0 : UINT32_MAX;
    for (int r = 0; style >= 3 && r < rows; r++)
        for (int i = 0; i < (style == 3 ? k + 5 : style == 4 ? k / 2 : vocab / 20); i++) {
            int id = style == 5 ? vocab / 3 + i : kc_int(&g->k, 0, vocab - 1);
            mask[r * words + id / 32] |= 1u << id % 32;
        }
    dev_send(g, &x);
    lg_mem d_ids = mem_of(g, ids, (size_t)(rows * k) * 4),
           d_logits = mem_of(g, logits, (size_t)(rows * k) * 4), d_lse = mem_of(g, lse, (size_t)rows * 4);
    gpu_begin(g, &s);
    g->b->ops->mask_logits(g->b, &x.t);
    g->b->ops->topk(g->b, &x.t,
                    &(lg_candidates){.ids = d_ids.p, .logits = d_logits.p, .lse = d_lse.p, .max_cand = k});
    gpu_end(g);
    (void)g->b->ops->download(g->b, d_ids.p, ids, (size_t)(rows * k) * 4, NULL);
    (void)g->b->ops->download(g->b, d_logits.p, logits, (size_t)(rows * k) * 4, NULL);
    (void)g->b->ops->download(g->b, d_lse.p, lse, (size_t)rows * 4, NULL);
    for (int r = 0; r < rows; r++) {
        float *row = dev_row(&x, r);
        double sum = 0, max = -INFINITY;
        for (int i = 0; i < vocab; i++) {
            if (!(mask[r * words + i / 32] >> i % 32 & 1))
                row[i] = -INFINITY;
            max = (double)row[i] > max ? (double)row[i] : max;
            order[i] = i;
        }
        for (int i = 0; i < vocab; i++)
            sum += exp((double)row[i] - max);
        check_near(g, (double)lse[r], max + log(sum), 2e-5, "log-sum-exp", r, 0);
        order_row = row;
        qsort(order, (size_t)vocab, sizeof *order, by_logit);
        for (int i = 0; i < k; i++)
            if (!kc_check(&g->k, ids[r * k + i] == order[i] && logits[r * k + i] == row[order[i]],
                          "row %d candidate %d is %d (%g), not %d (%g)", r, i, ids[r * k + i],
                          (double)logits[r * k + i], order[i], (double)row[order[i]]))
                break;
    }
    g->b->ops->release(g->b, &d_ids);
    g->b->ops->release(g->b, &d_logits);
    g->b->ops->release(g->b, &d_lse);
    dev_free(g, &x);
    free(order);
    free(mask);
    free(ids);
    free(logits);
    free(out_rows);
}

/* A recorded step, replayed with another input, does what recording it anew would. */
static void case_replay(gpu *g)
{
    enum { ROWS = 4, IN = 512, OUT = 100 };
    dev x = dev_random(g, ROWS, IN, LG_ROWS_STEP, 0), y = dev_new(g, ROWS, OUT, LG_ROWS_STEP), first;
    wt w = wt_random(g, LG_Q6_K, LG_USE_LINEAR, IN, OUT, 1, 0);
    lg_step s = {.n_rows = ROWS};
    lg_key key = lg_step_key(&s);
    lg_begin how;

    kc_label(&g->k, "replay");
    key.graph = (uint16_t)++g->n_key;
    for (int i = 0; i < 3; i++) {
        s.n_rows = i == 2 ? 3 : ROWS; // the same key, fewer rows
        (void)g->b->ops->begin(g->b, key, &s, &how, NULL);
        kc_check(&g->k, how == (i ? LG_REPLAY : LG_RECORD), "step %d: %s", i,
                 how == LG_REPLAY ? "replay" : "record");
        if (how == LG_RECORD)
            g->b->ops->linear(g->b, &x.t, &(lg_part){y.t, &w.w}, 1);
        gpu_end(g);
        dev_fetch(g, &y);
        if (i == 0) {
            first = y;
            first.host = malloc(y.mem.bytes);
            LG_ASSERT(first.host);
            memcpy(first.host, y.host, y.mem.bytes);
        }
        for (int r = 0; r < s.n_rows; r++)
            kc_check(&g->k, memcmp(dev_row(&first, r), dev_row(&y, r), OUT * sizeof(float)) == 0,
                     "run %d row %d", i, r);
        for (size_t k = 0; k < y.mem.bytes / 4; k++)
            y.host[k] = NAN;
        dev_send(g, &y);
    }
    free(first.host);
    dev_free(g, &x);
    dev_free(g, &y);
    wt_free(g, &w);
}

void gpu_case_small(gpu *g)
{
    static const int cols[] = {256, 768, 3072, 100, 5120, 33}, rows[] = {1, 5, 16, 17, 70};

    case_embed(g);
    for (int i = 0; i < 24; i++)
        norm_once(g, cols[i % 6], rows[i % 5], i % 4 != 0, i % 7 == 6 ? 1 : 0);
    case_swiglu_and_copies(g);
    topk_once(g, 512, 3, 20, 0);
    topk_once(g, 100352, 1, 128, 0);
    topk_once(g, 100352, 2, 64, 1);
    topk_once(g, 100352, 1, 100, 2);
    topk_once(g, 3000, 16, 40, 3);
    topk_once(g, 100352, 2, 52, 4);
    topk_once(g, 600, 3, 40, 4);
    topk_once(g, 100352, 2, 52, 5);
    topk_once(g, 77, 2, 77, 2);
    case_replay(g);
}

/* The device's generator gives the host's bits. */
void gpu_case_synth(gpu *g)
{
    for (int t = 0; t < 17; t++) {
        lg_qtype type = gpu_types[t];
        int n_in = 1024, n_out = 40;
        lg_made made = {.seed = 7, .index = (uint32_t)t + 3, .mean = t == 0 ? 1.0f : 0.0f, .spread = 0.02f};
        size_t row;
        bool whole = lg_row_bytes(type, (uint64_t)n_in, &row);
        lg_source src = {.name = LG_STR("s"), .type = type, .scale = 1.0f, .ne = {1024, 40, 1, 1},
                         .bytes = row * (size_t)n_out, .made = &made};
        uint8_t *host = malloc(src.bytes), *got = malloc(src.bytes * 2 + 4096),
                *want = malloc(src.bytes * 2 + 4096);
        lg_weight a = {0}, b = {0};

        LG_ASSERT(whole && host && got && want);
        kc_label(&g->k, "synth/%s", lg_qtype_get((uint32_t)type)->name);
        lg_synth_fill(made.seed, made.index, type, made.mean, made.spread, 0,
                      src.bytes / (size_t)lg_qtype_get((uint32_t)type)->block_bytes, host);
        bool ok = g->b->ops->load(g->b, &src, LG_USE_LINEAR, &a, NULL) == LG_OK;
        src.made = NULL;
        src.data = host;
        ok = ok && g->b->ops->load(g->b, &src, LG_USE_LINEAR, &b, NULL) == LG_OK;
        if (kc_check(&g->k, ok && a.mem.bytes == b.mem.bytes && a.mem.bytes <= src.bytes * 2 + 4096,
                     "load")) {
            (void)g->b->ops->download(g->b, a.mem.p, got, a.mem.bytes, NULL);
            (void)g->b->ops->download(g->b, b.mem.p, want, b.mem.bytes, NULL);
            size_t at = 0;
            while (at < a.mem.bytes && got[at] == want[at])
                at++;
            kc_check(&g->k, at == a.mem.bytes, "byte %zu of %zu is %02x, the host's %02x", at, a.mem.bytes,
                     got[at], want[at]);
        }
        g->b->ops->unload(g->b, &a);
        g->b->ops->unload(g->b, &b);
        free(host);
        free(got);
        free(want);
    }
}
