/*
 * bench/bench_paging: how fast a conversation's keys and values come back from images on the host.
 *
 * Blocks of the S shape without a model: two conversations take turns on a device whose slots hold one, so
 * that every switch pages the one out and the other in. A page-in ends when the device has all of it; the bus
 * is measured in the same run with copies of 256 MiB.
 *
 *     bench_paging [DEVICE [TOKENS...]]     (cuda, 13000 65536 262144)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/registry.h"
#include "base/clock.h"
#include "engine/kv.h"

enum { CHUNK = 4096, SWITCHES = 6, PROBE = 256 << 20, TOKENS_MAX = 8, LAYERS_FULL = 12, LAYERS_WINDOW = 36 };

static lg_kv_class class_of(lg_kv_class_id id, int layers, int window)
{
    size_t row = 128 * 2, tile = row * LG_KV_BLOCK, layer = tile * 2 * 8;

    return (lg_kv_class){.id = id, .type = LG_F16, .n_layer = layers, .n_kv_head = 8, .head_dim = 128,
                         .window = window, .row_bytes = row, .tile_bytes = tile, .layer_bytes = layer,
                         .block_bytes = layer * (size_t)layers};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// Seconds until every copy that was enqueued is done.
static double done_since(lg_backend *b, uint64_t start)
{
    lg_err err = {0};

    b->images->fence(b);
    if (b->ops->wait(b, &err) != LG_OK)
        (void)printf("FAIL %s\n", err.msg);
    return (double)(lg_now_ns() - start) / 1e9;
}

static lg_status probe(lg_backend *b, double *out_rate, double *in_rate, lg_err *err)
{
    lg_mem m = {0};
    void *image = NULL;
    lg_status st = b->ops->alloc(b, PROBE, &m, err);

    if (st == LG_OK)
        st = b->images->alloc(b, PROBE, &image, err);
    for (int i = 0; st == LG_OK && i < 3; i++) { // the last counts
        (void)done_since(b, 0);
        uint64_t start = lg_now_ns();
        b->images->out(b, &m, 0, image, PROBE);
        *out_rate = PROBE / done_since(b, start);
        start = lg_now_ns();
        b->images->in(b, &m, 0, image, PROBE);
        *in_rate = PROBE / done_since(b, start);
    }
    b->images->release(b, image);
    b->ops->release(b, &m);
    return st;
}

typedef struct talk {
    lg_kv_cut cut;
    int32_t *full;
} talk;

// A conversation of n rows, held at its end.
static lg_status make_talk(lg_kv *kv, int64_t n, talk *t, lg_err *err)
{
    int room = lg_kv_cut_room(&kv->cls[LG_KV_WINDOW]), blocks = lg_kv_entries(n);

    (void)lg_kv_truncate(kv, 0);
    for (int64_t left = n; left > 0; left -= CHUNK) {
        int rows = left < CHUNK ? (int)left : CHUNK;
        LG_TRY(lg_kv_grow(kv, rows, err));
        lg_kv_commit(kv, rows);
        lg_kv_page_ahead(kv, rows);
    }
    t->full = malloc((size_t)blocks * sizeof *t->full);
    t->cut.block = malloc((size_t)room * sizeof *t->cut.block);
    if (!t->full || !t->cut.block)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    memcpy(t->full, kv->pool[LG_KV_FULL].table, (size_t)blocks * sizeof *t->full);
    for (int i = 0; i < blocks; i++)
        lg_kv_retain(kv, LG_KV_FULL, t->full[i]);
    lg_kv_cut_at(kv, n, false, &t->cut);
    return LG_OK;
}

static lg_status measure(lg_backend *b, int64_t n, double bus, lg_err *err)
{
    lg_kv_class full = class_of(LG_KV_FULL, LAYERS_FULL, 0), win = class_of(LG_KV_WINDOW, LAYERS_WINDOW, 512);
    lg_kv_spare blocks = {.blocks = 2 * (lg_kv_entries(n) + 16)}, cuts = {.blocks = 64};
    double first[SWITCHES], s[SWITCHES];
    talk t[2] = {0};
    lg_kv kv = {0};

    LG_TRY(lg_kv_create_paged(b, &full, &win, n + CHUNK, CHUNK, &blocks, &cuts, UINT64_MAX, &kv, err));
    lg_status st = make_talk(&kv, n, &t[0], err);
    if (st == LG_OK)
        st = make_talk(&kv, n, &t[1], err);
    lg_kv_moved before = kv.moved;
    int done = 0;
    for (; st == LG_OK && done < SWITCHES; done++) {
        talk *to = &t[done % 2];
        before = kv.moved;
        (void)done_since(b, 0);
        uint64_t start = lg_now_ns();
        lg_kv_resume(&kv, n, to->full, &to->cut);
        st = lg_kv_grow(&kv, 1, err);
        first[done] = (double)(lg_now_ns() - start) / 1e9;
        s[done] = done_since(b, start);
        (void)lg_kv_truncate(&kv, n);
    }
    if (st == LG_OK) {
        double in = (double)(kv.moved.in_bytes - before.in_bytes);
        double out = (double)(kv.moved.out_bytes - before.out_bytes);
        qsort(s + 2, SWITCHES - 2, sizeof *s, by_value); // the first two make images
        qsort(first + 2, SWITCHES - 2, sizeof *first, by_value);
        (void)printf("page-in %8lld tokens: %7.1f MB in, %6.1f MB out, %7.2f ms (enqueued in %.2f), "
                     "%5.1f GB/s, %.0f %% of the bus; making images %.1f ms\n",
                     (long long)n, in / 1e6, out / 1e6, s[3] * 1e3, first[3] * 1e3, in / s[3] / 1e9,
                     100 * in / s[3] / bus, s[0] * 1e3);
    }
    lg_kv_destroy(&kv);
    for (int i = 0; i < 2; i++) {
        free(t[i].full);
        free(t[i].cut.block);
    }
    return st;
}

int main(int argc, char **argv)
{
    int64_t tokens[TOKENS_MAX] = {13000, 65536, 262144};
    int n = argc > 2 ? 0 : 3;
    double out = 0, in = 0;
    lg_backend *b = NULL;
    lg_err err = {0};

    for (int i = 2; i < argc && n < TOKENS_MAX; i++)
        tokens[n++] = strtoll(argv[i], NULL, 10);
    if (lg_backend_open(&(lg_backend_params){.device = argc > 1 ? argv[1] : "cuda"}, &b, &err) != LG_OK ||
        !b->images) {
        (void)printf("skipped: %s\n", b ? "this device and the host share one memory" : err.msg);
        lg_backend_close(b);
        return 77;
    }
    lg_status st = probe(b, &out, &in, &err);
    if (st == LG_OK)
        (void)printf("bus, pinned memory: %.1f GB/s out, %.1f GB/s in\n", out / 1e9, in / 1e9);
    for (int i = 0; st == LG_OK && i < n; i++)
        st = measure(b, tokens[i], in, &err);
    if (st != LG_OK)
        (void)printf("FAIL %s\n", err.msg);
    lg_backend_close(b);
    return st != LG_OK;
}
