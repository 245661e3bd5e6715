/*
 * The forward pass alone against recorded logits, for builds that have no engine (scope=kernels: other
 * processors under emulation): every ISA level that this machine has, one and two threads, steps of 1, 7, 64
 * rows and of all rows. It links no third-party library. test_model.c does more of it, above the engine.
 *
 * Float models are held to the recording; a quantized one, whose activations the kernels round, to a
 * reference in double precision that rounds alike (decision 0050), over prompts of 8 tokens.
 *
 * usage: test_forward tiny-s|tiny-xs|tiny-s-q
 * Prints a line a run with the distance it measured; exit 1 when one is too large.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "backend/registry.h"
#include "model/laguna.h"
#include "support/npy.h"
#include "support/oracle.h"

enum {
    ROWS = 72, // more than a KV block and more than the windows of these models
    CTX = 128,
    PROMPT = 8,
    PROMPTS = 3
};

// What each level runs: emulation is slow, so the rows of the narrow steps are fewer.
static const struct {
    int threads, batch, rows;
} runs[] = {{2, 1, 12}, {1, 7, 21}, {2, 64, ROWS}, {1, ROWS, ROWS}};

typedef struct rig {
    lg_backend *b;
    lg_gguf *file;
    lg_hparams hp;
    lg_laguna model;
    lg_kv_class kv[LG_KV_CLASSES];
    lg_work work;
    int32_t table[CTX / LG_KV_BLOCK];
    float *logits; // [ROWS][vocab]
} rig;

typedef struct recording {
    char path[512];
    bool quantized;
    npy tokens, logits;
    double *rounded; // quantized: [PROMPTS * PROMPT][vocab]
} recording;

static lg_status alloc_kv(rig *r, lg_err *err)
{
    lg_laguna_kv_shape(&r->hp, LG_F32, &r->kv[LG_KV_FULL], &r->kv[LG_KV_WINDOW]);
    for (int i = 0; i < CTX / LG_KV_BLOCK; i++)
        r->table[i] = CTX / LG_KV_BLOCK - 1 - i; // not in order
    for (int id = LG_KV_FULL; id <= LG_KV_WINDOW; id++) {
        lg_kv_class *c = &r->kv[id];
        c->n_blocks = CTX / LG_KV_BLOCK;
        if (c->n_layer > 0)
            LG_TRY(r->b->ops->alloc(r->b, c->block_bytes * (size_t)c->n_blocks, &c->mem, err));
    }
    return LG_OK;
}

static lg_status set_up(rig *r, const recording *g, const char *isa, int threads, lg_err *err)
{
    lg_work_params work = {.max_rows = ROWS, .max_out = ROWS, .max_cand = LG_KV_BLOCK};
    lg_weights_plan plan;

    LG_TRY(lg_backend_open(&(lg_backend_params){.device = "cpu", .threads = threads, .isa = isa}, &r->b,
                           err));
    LG_TRY(lg_gguf_open(g->path, &r->file, err));
    LG_TRY(lg_hparams_read(r->file, NULL, &r->hp, err));
    LG_TRY(lg_weights_check(r->file, &r->hp, r->b, &plan, err));
    LG_TRY(lg_weights_load(r->file, &r->hp, r->b, NULL, NULL, &r->model, err));
    lg_limits lim = lg_laguna_limits(&r->hp, &work, CTX);
    LG_TRY(r->b->ops->prepare(r->b, &lim, err));
    LG_TRY(lg_work_create(r->b, &r->hp, &work, &r->work, err));
    r->logits = calloc((size_t)ROWS * (size_t)r->hp.vocab, sizeof *r->logits);
    return r->logits ? alloc_kv(r, err) : LG_FAIL(err, LG_E_NOMEM, "no memory for logits");
}

static void tear_down(rig *r)
{
    if (r->b) {
        for (int id = LG_KV_FULL; id <= LG_KV_WINDOW; id++)
            r->b->ops->release(r->b, &r->kv[id].mem);
        lg_work_release(r->b, &r->work);
        lg_weights_unload(r->b, &r->model);
    }
    lg_gguf_close(r->file);
    lg_backend_close(r->b);
    free(r->logits);
}

// Tokens [0, n) of a prompt in steps of `batch` rows; their logits go to `out`.
static lg_status evaluate(rig *r, const int32_t *ids, int n, int batch, float *out, lg_err *err)
{
    int32_t all[ROWS];
    size_t row = (size_t)r->hp.vocab * sizeof *out;

    for (int i = 0; i < ROWS; i++)
        all[i] = i;
    for (int at = 0; at < n; at += batch) {
        lg_step s = {.graph = LG_GRAPH_TARGET, .pos = at, .ids = ids + at, .out_rows = all};
        s.n_rows = s.n_out = n - at < batch ? n - at : batch;
        for (int id = LG_KV_FULL; id <= LG_KV_WINDOW; id++) {
            s.table[id] = r->table;
            s.n_table[id] = CTX / LG_KV_BLOCK;
        }
        LG_TRY(lg_laguna_forward(r->b, &r->model, r->kv, &r->work, &s, err));
        LG_TRY(r->b->ops->wait(r->b, err));
        LG_TRY(r->b->ops->download(r->b, r->work.logits.p, out + (size_t)at * (size_t)r->hp.vocab,
                                   row * (size_t)s.n_out, err));
    }
    return LG_OK;
}

static int argmax(const float *row, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        best = row[i] > row[best] ? i : best;
    return best;
}

// Largest distance of the logits from the recorded ones; how many rows have the same largest logit.
static double distance(const rig *r, const recording *g, int rows, int *same)
{
    int vocab = r->hp.vocab;
    double max = 0;

    *same = 0;
    for (int i = 0; i < rows; i++) {
        const float *got = r->logits + i * vocab, *want = g->logits.f + i * vocab;
        for (int v = 0; v < vocab; v++) {
            double d = fabs((double)got[v] - (double)want[v]);
            max = d <= max ? max : d; // NaN wins
        }
        *same += argmax(got, vocab) == argmax(want, vocab);
    }
    return max;
}

// Rows within 1e-4 of the reference that rounds alike, over PROMPTS prompts.
static lg_status equal_rows(rig *r, const recording *g, int batch, int *same, lg_err *err)
{
    int vocab = r->hp.vocab;

    *same = 0;
    for (int p = 0; p < PROMPTS; p++) {
        LG_TRY(evaluate(r, g->tokens.i + p * PROMPT, PROMPT, batch, r->logits, err));
        for (int i = 0; i < PROMPT; i++) {
            const double *want = g->rounded + (p * PROMPT + i) * vocab;
            double max = 0;
            for (int v = 0; v < vocab; v++) {
                double d = fabs((double)r->logits[i * vocab + v] - want[v]);
                max = d <= max ? max : d;
            }
            *same += max < 1e-4;
        }
    }
    return LG_OK;
}

static bool run(const recording *g, const char *isa, int threads, int batch, int rows)
{
    rig r = {0};
    lg_err err = {0};
    double max = INFINITY;
    int same = 0;
    bool ok = false;
    lg_status st = set_up(&r, g, isa, threads, &err);

    if (st == LG_OK && g->quantized) {
        st = equal_rows(&r, g, batch, &same, &err);
        ok = st == LG_OK && same >= PROMPTS * PROMPT * 3 / 4;
        (void)printf(
            "%s isa %-8s threads %d batch %-3d: %d of %d rows equal to a reference that rounds alike%s\n",
            ok ? "ok  " : "FAIL", isa, threads, batch, same, PROMPTS * PROMPT, err.msg);
    } else {
        if (st == LG_OK)
            st = evaluate(&r, g->tokens.i, rows, batch, r.logits, &err);
        if (st == LG_OK)
            max = distance(&r, g, rows, &same);
        ok = st == LG_OK && max < 1e-3 && same == rows;
        (void)printf("%s isa %-8s threads %d batch %-3d: %d rows, max %.2e, argmax %d%s\n",
                     ok ? "ok  " : "FAIL", isa, threads, batch, rows, max, same, err.msg);
    }
    tear_down(&r);
    return ok;
}

static bool make_reference(recording *g)
{
    lg_gguf *file = NULL;
    lg_hparams hp;
    lg_weights_plan plan;
    bool ok = lg_gguf_open(g->path, &file, NULL) == LG_OK &&
              lg_hparams_read(file, NULL, &hp, NULL) == LG_OK &&
              lg_weights_check(file, &hp, NULL, &plan, NULL) == LG_OK;

    g->rounded = ok ? calloc((size_t)(PROMPTS * PROMPT * hp.vocab), sizeof *g->rounded) : NULL;
    ok = g->rounded != NULL;
    for (int p = 0; ok && p < PROMPTS; p++)
        ok = oracle_run(&(oracle){.g = file,
                                  .hp = &hp,
                                  .round_acts = true,
                                  .logits = g->rounded + p * PROMPT * hp.vocab},
                        g->tokens.i + p * PROMPT, PROMPT);
    lg_gguf_close(file);
    return ok;
}

static bool load(const char *name, recording *g)
{
    char path[512];

    (void)snprintf(g->path, sizeof g->path, "%s/golden/laguna-%s.gguf", LG_TEST_DIR, name);
    (void)snprintf(path, sizeof path, "%s/golden/tokens200.npy", LG_TEST_DIR);
    bool ok = npy_read(path, &g->tokens);
    (void)snprintf(path, sizeof path, "%s/golden/%s.logits.npy", LG_TEST_DIR, name);
    ok = ok && npy_read(path, &g->logits);
    g->quantized = strcmp(name, "tiny-s-q") == 0;
    return ok && (!g->quantized || make_reference(g));
}

int main(int argc, char **argv)
{
    recording g = {0};
    int levels = 0;
    char isa[32];

    if (argc != 2 || !load(argv[1], &g))
        return 2;
    bool ok = true;
    for (const char *p = lg_cpu_isa_list(); *p; p += strspn(p, " ")) {
        unsigned flags;
        size_t len = strcspn(p, " ");
        (void)snprintf(isa, sizeof isa, "%.*s", (int)len, p);
        p += len;
        if (!lg_cpu_isa_find(isa, &flags))
            continue;
        levels++;
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
            ok = run(&g, isa, runs[i].threads, runs[i].batch, runs[i].rows) && ok;
    }
    free(g.rounded);
    npy_free(&g.tokens);
    npy_free(&g.logits);
    return ok && levels > 0 ? 0 : 1;
}
