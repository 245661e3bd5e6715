/*
 * Tests of what a drafter gets from its target and makes of it, end to end: the prompt goes through the
 * target, taps enter the drafter's context, a block is drafted; context and logits are held to the same
 * computation in double precision (support/oracle, support/draft_oracle). And that these tests would see the
 * usual faults: other layers tapped, taps in another order, drafts read a row early or late.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_int.h"
#include "support/draft_oracle.h"
#include "support/oracle.h"

enum { N = 100, CTX = 256, LAST = 77, LAYERS = 8, HIDDEN = 128, VOCAB = 512, KV = 64, ROWS = 8, TAPS = 4,
       DRAFT_LAYERS = 3 };

static const char target_path[] = LG_TEST_DIR "/golden/laguna-tiny-s.gguf";
static const char draft_path[] = LG_TEST_DIR "/golden/laguna-tiny-s-dflash.gguf"; // a window of 24
static const char nowin_path[] = LG_TEST_DIR "/golden/laguna-tiny-s-dflash-nowin.gguf";

static int32_t prompt[N];
static double residual[LAYERS][N][HIDDEN]; // of the target behind each layer
static double want[(ROWS - 1) * VOCAB], want_k[DRAFT_LAYERS * N * KV], want_v[DRAFT_LAYERS * N * KV];
static float got[(ROWS - 1) * VOCAB];

// The residuals of the prompt, once for all tests.
static int make_residuals(void **state)
{
    lg_gguf *g;
    lg_hparams hp;
    unsigned seed = 7;

    (void)state;
    for (int i = 0; i < N; i++) {
        seed = seed * 1103515245u + 12345u;
        prompt[i] = 70 + (int32_t)(seed >> 16) % (VOCAB - 70);
    }
    assert_int_equal(lg_gguf_open(target_path, &g, NULL), LG_OK);
    assert_int_equal(lg_hparams_read(g, NULL, &hp, NULL), LG_OK);
    assert_true(hp.n_layer == LAYERS && hp.hidden == HIDDEN && hp.vocab == VOCAB);
    assert_true(oracle_run(&(oracle){.g = g, .hp = &hp, .layers = &residual[0][0][0]}, prompt, N));
    lg_gguf_close(g);
    return 0;
}

static lg_engine *open_engine(const char *draft, int chunk)
{
    lg_engine *e;

    assert_int_equal(lg_engine_open(&(lg_engine_params){.model_path = target_path,
                                                        .backend = {.device = "cpu", .threads = 1, .isa = ""},
                                                        .ctx = CTX,
                                                        .kv_type = LG_F32,
                                                        .chunk = chunk,
                                                        .draft_path = draft,
                                                        .draft_required = true,
                                                        .draft = {.type = LG_DRAFT_STORED}},
                                    &e, NULL),
                     LG_OK);
    return e;
}

// Prompt and one block through the engine: `ids` are the drafts, `got` their logits.
static void draft(lg_engine *e, int32_t ids[LG_DRAFT_ROWS_MAX])
{
    float sure[LG_DRAFT_ROWS_MAX];

    ids[0] = LAST;
    assert_int_equal(lg_engine_eval(e, &(lg_eval){.ids = prompt, .n = N}, NULL), LG_OK);
    assert_int_equal(lg_spec_draft(e, ROWS - 1, ids, sure, NULL, NULL), LG_OK);
    memcpy(got, e->work.logits.p, sizeof got);
}

// The same in double precision from the residuals behind the layers `tap`.
static void draft_in_double(const lg_engine *e, const char *path, const int tap[TAPS])
{
    static double taps[TAPS][N][HIDDEN];
    lg_gguf *draft_file;

    assert_int_equal(lg_gguf_open(path, &draft_file, NULL), LG_OK);
    for (int i = 0; i < TAPS; i++)
        memcpy(taps[i], residual[tap[i]], sizeof taps[i]);
    assert_true(draft_oracle_run(&(draft_oracle){.draft = draft_file,
                                                 .target = e->gguf,
                                                 .hp = lg_spec_params(e->spec),
                                                 .taps = &taps[0][0][0],
                                                 .n = N,
                                                 .from = (int)e->kv.draft_from,
                                                 .last = LAST,
                                                 .rows = ROWS,
                                                 .k = want_k,
                                                 .v = want_v,
                                                 .logits = want}));
    lg_gguf_close(draft_file);
}

// Largest distance of logits, as a share of the largest logit.
static double distance(void)
{
    double max = 0, top = 0;

    for (int i = 0; i < (ROWS - 1) * VOCAB; i++) {
        double d = fabs((double)got[i] - want[i]);
        max = d <= max ? max : d; // NaN wins
        top = fmax(top, fabs(want[i]));
    }
    return max / top;
}

// The same of the rows of a context.
static double context_distance(const lg_engine *e)
{
    const lg_kv_class *c = &e->kv.cls[LG_KV_DRAFT];
    double max = 0, top = 0;

    int from = N - c->window + 1 > 0 ? N - c->window + 1 : 0; // older rows need not be there any more

    for (int layer = 0; layer < DRAFT_LAYERS; layer++)
        for (int p = from; p < N; p++)
            for (int i = 0; i < 2 * KV; i++) {
                int v = i / KV, head = i % KV / c->head_dim, k = i % c->head_dim;
                size_t at = lg_kv_offset(c, e->kv.pool[LG_KV_DRAFT].table[p / LG_KV_BLOCK], layer, v, head,
                                         p % LG_KV_BLOCK);
                float x;
                memcpy(&x, (const char *)c->mem.p + at + (size_t)k * sizeof x, sizeof x);
                double w = (v ? want_v : want_k)[((size_t)layer * N + (size_t)p) * KV + (size_t)(i % KV)];
                double d = fabs((double)x - w);
                max = d <= max ? max : d;
                top = fmax(top, fabs(w));
            }
    return max / top;
}

static void as_in_double(void **state)
{
    static const char *const file[] = {draft_path, nowin_path};

    (void)state;
    for (int i = 0; i < 2; i++) {
        lg_engine *e = open_engine(file[i], 64);
        int32_t ids[LG_DRAFT_ROWS_MAX];

        assert_int_equal(lg_spec_params(e->spec)->n_layer, DRAFT_LAYERS);
        assert_int_equal(lg_spec_params(e->spec)->n_tap, TAPS);
        draft(e, ids);
        draft_in_double(e, file[i], lg_spec_params(e->spec)->tap);
        assert_true(distance() < 1e-5);
        assert_true(context_distance(e) < 1e-5);
        for (int r = 1; r < ROWS; r++) // a draft is the best of its own row
            for (int v = 0; v < VOCAB; v++)
                assert_true(got[(r - 1) * VOCAB + v] <= got[(r - 1) * VOCAB + ids[r]]);
        lg_engine_close(e);
    }
}

// Every tap one layer early or late, and every two of them exchanged.
static void other_taps_are_seen(void **state)
{
    lg_engine *e = open_engine(draft_path, 64);
    const int *own = lg_spec_params(e->spec)->tap;
    int32_t ids[LG_DRAFT_ROWS_MAX];
    int tap[TAPS];

    (void)state;
    draft(e, ids);
    for (int i = 0; i < TAPS; i++) {
        for (int to = own[i] - 1; to <= own[i] + 1; to += 2) {
            memcpy(tap, own, sizeof tap);
            tap[i] = to;
            if (to < 0 || to >= LAYERS)
                continue;
            draft_in_double(e, draft_path, tap);
            assert_true(distance() > 1e-2);
        }
        for (int j = 0; j < i; j++) {
            memcpy(tap, own, sizeof tap);
            tap[i] = own[j], tap[j] = own[i];
            draft_in_double(e, draft_path, tap);
            assert_true(distance() > 1e-2);
        }
    }
    lg_engine_close(e);
}

static void other_rows_are_seen(void **state)
{
    lg_engine *e = open_engine(draft_path, 64);
    int32_t ids[LG_DRAFT_ROWS_MAX];

    (void)state;
    draft(e, ids);
    draft_in_double(e, draft_path, lg_spec_params(e->spec)->tap);
    memmove(got + VOCAB, got, sizeof got - VOCAB * sizeof *got); // drafts read a row early
    assert_true(distance() > 1e-2);
    lg_engine_close(e);
}

// How the prompt was cut into chunks changes no draft.
static void chunks(void **state)
{
    static const int chunk[] = {9, 16, 64, 128};
    int32_t first[LG_DRAFT_ROWS_MAX], ids[LG_DRAFT_ROWS_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++) {
        lg_engine *e = open_engine(nowin_path, chunk[i]);

        draft(e, ids);
        if (i == 0) {
            memcpy(first, ids, sizeof first);
            draft_in_double(e, nowin_path, lg_spec_params(e->spec)->tap);
        }
        assert_memory_equal(first, ids, ROWS * sizeof *ids);
        assert_true(distance() < 1e-5);
        lg_engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_in_double),
        cmocka_unit_test(other_taps_are_seen),
        cmocka_unit_test(other_rows_are_seen),
        cmocka_unit_test(chunks),
    };

    return cmocka_run_group_tests_name("drafts", tests, make_residuals, NULL);
}
