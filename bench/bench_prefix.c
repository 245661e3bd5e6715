/*
 * bench/bench_prefix: how long the prefix cache takes to find, switch, commit and evict.
 *
 * Conversations of 262,144 tokens, no device: the pools have no memory behind them. Before each look-up 64
 * MiB are written, so that ids come from memory and not from the caches.
 *
 *     bench_prefix [conversations]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/prefix.h"

enum { CTX = 262144, CHUNK = 2048, RUNS = 64, FLUSH = 64 << 20, SHARED = 20000 };

static lg_status no_alloc(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err)
{
    static char nothing[64];

    (void)b;
    (void)err;
    *out = (lg_mem){.p = nothing, .bytes = bytes};
    return LG_OK;
}

static void no_release(lg_backend *b, lg_mem *m)
{
    (void)b;
    (void)m;
}

static void no_move(lg_backend *b, const lg_kv_class *c, const lg_kv_copy *m, int n)
{
    (void)b;
    (void)c;
    (void)m;
    (void)n;
}

static void no_discard(lg_backend *b, const lg_mem *m, size_t off, size_t bytes)
{
    (void)b;
    (void)m;
    (void)off;
    (void)bytes;
}

static const lg_ops ops = {.alloc = no_alloc, .release = no_release, .kv_move = no_move};
static lg_backend backend = {.ops = &ops, .discard = no_discard};

static lg_kv kv;
static lg_prefix *px;
static lg_rates rates;
static int32_t live[CTX], prompt[CTX];
static char *flush;

typedef struct timing {
    const char *name;
    uint64_t sum, max, n;
} timing;

static void timed(timing *t, uint64_t us)
{
    t->sum += us;
    t->max = us > t->max ? us : t->max;
    t->n++;
}

static void show(const timing *t)
{
    (void)printf("  %-44s mean %8.3f ms   max %8.3f ms   (%llu)\n", t->name,
                 (double)t->sum / 1e3 / (double)(t->n ? t->n : 1), (double)t->max / 1e3,
                 (unsigned long long)t->n);
}

static void must(bool ok, const char *what)
{
    if (!ok) {
        (void)fprintf(stderr, "bench_prefix: %s\n", what);
        exit(1);
    }
}

// Conversation i: what all begin with, then its own.
static void make_prompt(int i)
{
    uint32_t x = 12345;

    for (int t = 0; t < CTX; t++) {
        if (t == SHARED)
            x = 777u + (uint32_t)i * 7919u;
        x = x * 1664525u + 1013904223u;
        prompt[t] = (int32_t)(x >> 15) % 100000;
    }
    prompt[SHARED] = i;
}

static uint64_t find_us(const int32_t *ids, lg_prefix_match *m)
{
    memset(flush, (int)(rand() & 255), FLUSH);
    uint64_t start = lg_now_us();
    lg_prefix_find(px, 0, ids, CTX, CTX - 1, m);
    return lg_now_us() - start;
}

static void fill(int n, timing *commit, timing *swap)
{
    for (int i = 0; i < n; i++) {
        lg_prefix_match m;
        make_prompt(i);
        lg_prefix_find(px, 0, prompt, CTX, CTX - 1, &m);
        uint64_t start = lg_now_us();
        lg_prefix_adopt(px, 0, &m, CTX);
        timed(swap, lg_now_us() - start);
        while (kv.pos < CTX - 64) {
            int64_t left = CTX - 64 - kv.pos;
            int rows = left < CHUNK ? (int)left : CHUNK;
            must(lg_kv_grow(&kv, rows, NULL) == LG_OK, "no room");
            memcpy(live + kv.pos, prompt + kv.pos, (size_t)rows * sizeof *live);
            lg_kv_commit(&kv, rows);
            start = lg_now_us();
            lg_prefix_commit(px, kv.pos);
            if (kv.pos % 8192 < CHUNK)
                (void)lg_prefix_cut_at(px, kv.pos, LG_CUT_STEP);
            lg_prefix_settle(px);
            timed(commit, lg_now_us() - start);
        }
        (void)lg_prefix_cut_at(px, kv.pos, LG_CUT_END);
    }
}

static void make(int n, uint64_t budget)
{
    lg_kv_class full = {.id = LG_KV_FULL, .n_layer = 12, .block_bytes = 3145728};
    lg_kv_class win = {.id = LG_KV_WINDOW, .n_layer = 36, .window = 512, .block_bytes = 9437184};
    lg_hparams hp = {.n_layer = 1, .hidden = 3072, .vocab = 100352, .n_kv_head = 8, .head_dim = 128};

    lg_rates_init(&rates, &hp);
    must(lg_kv_create(&backend, &full, &win, CTX, CHUNK, lg_prefix_spare(&full, budget, n, CTX, true),
                      lg_prefix_spare(&win, budget, n, CTX, true), &kv, NULL) == LG_OK,
         "no memory");
    must(lg_prefix_create(&(lg_prefix_params){.kv = &kv, .tokens = live, .rates = &rates, .slots = n,
                                              .budget_bytes = budget},
                          &px, NULL) == LG_OK,
         "no memory");
}

static void look(int n)
{
    timing whole = {.name = "find, whole prompt"}, last = {.name = "find, differs at the last token"};
    timing early = {.name = "find, differs where all part"},
           swap = {.name = "switch to a cached conversation"};
    lg_prefix_match m;

    for (int i = 0; i < RUNS; i++) {
        make_prompt(rand() % n);
        timed(&whole, find_us(prompt, &m));
        must(m.lcp == CTX - 64, "it was there");
        prompt[CTX - 65]++;
        timed(&last, find_us(prompt, &m));
        must(m.lcp == CTX - 65, "all but one token was there");
        uint64_t start = lg_now_us();
        lg_prefix_adopt(px, 0, &m, CTX);
        timed(&swap, lg_now_us() - start);
        prompt[SHARED] = 99999;
        timed(&early, find_us(prompt, &m));
        must(m.lcp == SHARED, "the beginning was there");
    }
    show(&whole);
    show(&last);
    show(&early);
    show(&swap);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 64;
    timing commit = {.name = "commit a chunk, cut, settle"}, swap = {.name = "a new conversation"};
    timing tight = {.name = "the same with memory for half of them"}, evict = {.name = "a new one, same"};

    flush = malloc(FLUSH);
    must(flush && n > 0 && n <= 4096, "usage: bench_prefix [conversations]");
    (void)printf("%d conversations of %d tokens, %d in common\n", n, CTX, SHARED);
    make(n, UINT64_C(1) << 50);
    fill(n, &commit, &swap);
    show(&commit);
    show(&swap);
    look(n);
    lg_prefix_destroy(px);
    lg_kv_destroy(&kv);
    make(n, (uint64_t)n * 8000000000u);
    fill(n, &tight, &evict);
    show(&tight);
    show(&evict);
    lg_prefix_destroy(px);
    lg_kv_destroy(&kv);
    free(flush);
    return 0;
}
