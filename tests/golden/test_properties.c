/*
 * What must hold for any Laguna model, on small models with random weights: agreement with a double-precision
 * reference, windows that end where they should, chunks and threads that do not show, residuals of a million.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "support/maker.h"
#include "support/oracle.h"
#include "support/scratch.h"

static const char vocab_path[] = LG_TEST_DIR "/golden/vocab512.gguf";
static const char *path; // of the file that is written
enum { V = 512 };

typedef struct how {
    int threads, chunk;
    lg_qtype kv;
    bool debug;
    const char *isa;
} how;

static lg_engine *open_engine(how h)
{
    lg_engine *e;
    lg_err err = {0};

    if (lg_engine_open(
            &(lg_engine_params){
                .model_path = path,
                .backend = {.device = "cpu", .threads = h.threads ? h.threads : 1, .isa = h.isa ? h.isa : ""},
                .ctx = 2048,
                .kv_type = h.kv,
                .chunk = h.chunk,
                .debug = h.debug},
            &e, &err) != LG_OK)
        fail_msg("%s", err.msg);
    return e;
}

typedef struct rows {
    lg_engine *e;
    float *logits;
} rows;

static lg_status keep(void *ctx, size_t first, size_t n, lg_err *err)
{
    rows *r = ctx;

    for (size_t i = 0; i < n; i++) {
        const float *row;
        LG_TRY(lg_engine_logits(r->e, (int)i, &row, err));
        memcpy(r->logits + (first + i) * V, row, V * sizeof *row);
    }
    return LG_OK;
}

static void eval(lg_engine *e, const int32_t *ids, int n, unsigned flags, float *logits)
{
    rows r = {e, logits};
    lg_err err = {0};

    if (lg_engine_eval(e,
                       &(lg_eval){.ids = ids,
                                  .n = (size_t)n,
                                  .all_logits = true,
                                  .flags = flags,
                                  .chunk_done = keep,
                                  .ctx = &r},
                       &err) != LG_OK)
        fail_msg("%s", err.msg);
}

// A fresh engine, all ids, all logits.
static float *run(how h, const int32_t *ids, int n)
{
    lg_engine *e = open_engine(h);
    float *logits = malloc((size_t)n * V * sizeof *logits);

    assert_non_null(logits);
    eval(e, ids, n, 0, logits);
    lg_engine_close(e);
    return logits;
}

static int32_t *random_ids(int n, uint64_t seed)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);

    assert_non_null(ids);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(mk_uniform(&seed) * V);
    return ids;
}

static double far_apart(const float *a, const float *b, int from, int to)
{
    double max = 0;

    for (int i = from * V; i < to * V; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        max = d <= max ? max : d; // NaN wins
    }
    return max;
}

static void same_bits(const float *a, const float *b, int from, int to)
{
    for (int r = from; r < to; r++)
        if (memcmp(a + r * V, b + r * V, V * sizeof *a) != 0)
            fail_msg("row %d differs by %g", r, far_apart(a, b, r, r + 1));
}

typedef struct reference {
    double *logits, *weights, *gaps;
    int *routes;
    lg_hparams hp;
} reference;

static reference refer(const int32_t *ids, int n, bool round_acts)
{
    reference r = {0};
    lg_weights_plan plan;
    lg_gguf *g;

    assert_int_equal(lg_gguf_open(path, &g, NULL), LG_OK);
    assert_int_equal(lg_hparams_read(g, NULL, &r.hp, NULL), LG_OK);
    assert_int_equal(lg_weights_check(g, &r.hp, NULL, &plan, NULL), LG_OK);
    size_t cells = (size_t)r.hp.n_layer * (size_t)n;
    r.logits = calloc((size_t)n * V, sizeof *r.logits);
    r.weights = calloc(cells * 64, sizeof *r.weights);
    r.routes = calloc(cells * 64, sizeof *r.routes);
    r.gaps = calloc(cells, sizeof *r.gaps);
    assert_true(r.logits && r.weights && r.routes && r.gaps);
    assert_true(oracle_run(&(oracle){.g = g,
                                     .hp = &r.hp,
                                     .round_acts = round_acts,
                                     .logits = r.logits,
                                     .routes = r.routes,
                                     .weights = r.weights,
                                     .gaps = r.gaps},
                           ids, n));
    lg_gguf_close(g);
    return r;
}

static void forget(reference *r)
{
    free(r->logits);
    free(r->weights);
    free(r->routes);
    free(r->gaps);
}

// Largest error of a row over the largest logit of the row.
static double row_error(const float *got, const double *want)
{
    double diff = 0, size = 0;

    for (int i = 0; i < V; i++) {
        double d = fabs((double)got[i] - want[i]);
        diff = d > diff ? d : diff;
        size = fmax(size, fabs(want[i]));
        if (!isfinite(got[i]))
            return INFINITY;
    }
    return diff / size;
}

static double relative(const float *got, const double *want, int n)
{
    double worst = 0;

    for (int r = 0; r < n; r++)
        worst = fmax(worst, row_error(got + r * V, want + r * V));
    return worst;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// The row error that a quarter, or a half of the rows do not exceed.
static double typical(const float *got, const double *want, int n, double part)
{
    double e[64];

    assert_true(n <= 64);
    for (int r = 0; r < n; r++)
        e[r] = row_error(got + r * V, want + r * V);
    qsort(e, (size_t)n, sizeof *e, order);
    return e[(int)(n * part)];
}

// Experts and weights of all layers agree wherever the choice was not a near-tie.
static void same_routes(lg_engine *e, const reference *ref, int n, double weight_tolerance)
{
    int k = ref->hp.n_expert_used, compared = 0;

    for (int l = 0; l < ref->hp.n_layer; l++) {
        const int32_t *ids;
        const float *w;
        if (ref->hp.layer[l].dense)
            continue;
        assert_int_equal(lg_engine_route_rows(e, l, 0, (size_t)n, &ids, &w, NULL), LG_OK);
        for (int r = 0; r < n; r++) {
            if (ref->gaps[l * n + r] < 1e-4)
                continue;
            for (int j = 0; j < k; j++, compared++) {
                double want = -1;
                for (int i = 0; i < k; i++)
                    if (ref->routes[(l * n + r) * k + i] == ids[r * k + j])
                        want = ref->weights[(l * n + r) * k + i];
                if (fabs((double)w[r * k + j] - want) > weight_tolerance)
                    fail_msg("layer %d row %d expert %d: weight %g instead of %g", l, r, ids[r * k + j],
                             (double)w[r * k + j], want);
            }
        }
    }
    assert_true(compared > 0);
}

static void write_model(const mk_model *m)
{
    assert_true(mk_write(m, path));
}

// Logits and routes of a float model against the reference; prints what it saw.
static void compare_float(const mk_model *m, const char *what, int n, double tolerance)
{
    int32_t *ids = random_ids(n, 5);
    float *logits = malloc((size_t)n * V * sizeof *logits);
    lg_engine *e;

    write_model(m);
    reference ref = refer(ids, n, false);
    e = open_engine((how){.chunk = n, .kv = LG_F32, .debug = true});
    eval(e, ids, n, LG_STEP_ROUTES, logits);
    double d = relative(logits, ref.logits, n);
    print_message("%s: relative error %.2e\n", what, d);
    assert_true(d < tolerance);
    if (ref.hp.n_expert > 0)
        same_routes(e, &ref, n, 1e-4);
    lg_engine_close(e);
    forget(&ref);
    free(ids);
    free(logits);
}

static void float_models(void **state)
{
    mk_model m = mk_default(vocab_path);

    (void)state;
    compare_float(&m, "f32", 40, 1e-5);
    m.linear = m.experts = m.embed = LG_F16;
    compare_float(&m, "f16", 40, 1e-5);
    m.linear = m.experts = m.embed = LG_BF16;
    compare_float(&m, "bf16", 40, 1e-5);
    m = mk_default(vocab_path);
    m.tied = true;
    m.ffn_shared = 0;
    m.n_kv_head = 3;
    compare_float(&m, "tied head, no shared expert", 30, 1e-5);
}

// The largest checkpoint of the family: no window, three dense layers, a gate for each element.
static void element_gate(void **state)
{
    mk_model m = mk_default(vocab_path);

    (void)state;
    m.window = 0;
    m.n_dense = 3;
    m.heads_full = 8;
    m.n_kv_head = 2;
    m.elem_gate = true;
    compare_float(&m, "element gate", 40, 1e-5);
}

// Multipliers beside the matrices, as NVFP4 exports have them: of a matrix, and one for each expert of a
// stack.
static void add_scales(void *arg, lg_gguf_writer *w, bool data)
{
    static const char *const names[] = {"blk.1.attn_q.scale",
                                        "blk.1.attn_output.scale",
                                        "blk.0.ffn_down.scale",
                                        "blk.2.ffn_gate_shexp.scale",
                                        "output.scale",
                                        "blk.1.ffn_gate_exps.scale",
                                        "blk.1.ffn_up_exps.scale",
                                        "blk.2.ffn_down_exps.scale"};
    uint64_t rng = 3;

    (void)arg;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t n = strstr(names[i], "_exps") ? 8 : 1;
        float v[8];
        for (int k = 0; k < 8; k++)
            v[k] = (float)(0.5 + mk_uniform(&rng));
        if (!data)
            lg_gguf_put_tensor(w, lg_str_of(names[i]), LG_F32, 1, &n);
        else
            assert_true(lg_gguf_write_data(w, v, n * sizeof *v));
    }
}

static void scaled_matrices(void **state)
{
    mk_model m = mk_default(vocab_path);

    (void)state;
    m.more = add_scales;
    compare_float(&m, "multipliers", 40, 1e-5);
}

// A few channels of the residual carry values that no 16-bit format holds, and so do inputs of the down
// projections.
static void huge_values(void *arg, const char *name, float *v, const uint64_t *ne, size_t n)
{
    double size = *(const double *)arg;

    if (strcmp(name, "token_embd.weight") == 0)
        for (size_t r = 0; r < ne[1]; r++)
            for (size_t c = 3; c < ne[0]; c += 97)
                v[r * ne[0] + c] *= (float)size;
    if (strstr(name, "ffn_up_") || strstr(name, "ffn_up."))
        for (size_t i = 0; i < n; i++)
            v[i] *= (float)(size / 100);
    if (strstr(name, "ffn_down"))
        for (size_t i = 0; i < n; i++)
            v[i] *= 100 / (float)size;
}

static void big_activations(void **state)
{
    double size = 1e6;
    mk_model m = mk_default(vocab_path);
    int32_t *ids = random_ids(30, 5);

    (void)state;
    m.values = huge_values;
    m.arg = &size;
    compare_float(&m, "residual of 1e6", 30, 1e-4);
    m.linear = m.embed = LG_Q8_0;
    m.experts = LG_Q4_K;
    write_model(&m);
    for (int kv = 0; kv < 3; kv++) {
        float *logits = run((how){.chunk = 30, .kv = (lg_qtype[]){LG_F32, LG_F16, LG_Q8_0}[kv]}, ids, 30);
        for (int i = 0; i < 30 * V; i++)
            assert_true(isfinite(logits[i]));
        free(logits);
    }
    free(ids);
}

// Rounding noise of int8 activations grows from layer to layer, so each type is held to a reference that
// rounds alike, over two layers, where a code that falls the other way is all that can differ.
static void quantized_models(void **state)
{
    static const lg_qtype types[] = {LG_Q8_0, LG_Q4_0, LG_Q4_1, LG_Q5_0,   LG_Q5_1,   LG_Q2_K,  LG_Q3_K,
                                     LG_Q4_K, LG_Q5_K, LG_Q6_K, LG_IQ4_NL, LG_IQ4_XS, LG_MXFP4, LG_NVFP4};
    enum { N = 24, PROMPT = 4 };
    int32_t *ids = random_ids(N, 9);
    float *got = calloc((size_t)N * V, sizeof *got);
    double *rounded = calloc((size_t)N * V, sizeof *rounded), *plain = calloc((size_t)N * V, sizeof *plain);

    (void)state;
    assert_true(got && rounded && plain);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        mk_model m = mk_default(vocab_path);
        m.n_layer = 2;
        m.heads_full = m.heads_window = 8;
        m.linear = m.experts = m.embed = types[t];
        write_model(&m);
        for (int at = 0; at < N; at += PROMPT) {
            reference ref = refer(ids + at, PROMPT, true), exact = refer(ids + at, PROMPT, false);
            float *logits = run((how){.chunk = PROMPT, .kv = LG_F32}, ids + at, PROMPT);
            memcpy(got + at * V, logits, sizeof *got * PROMPT * V);
            memcpy(rounded + at * V, ref.logits, sizeof *rounded * PROMPT * V);
            memcpy(plain + at * V, exact.logits, sizeof *plain * PROMPT * V);
            forget(&ref);
            forget(&exact);
            free(logits);
        }
        double d = typical(got, rounded, N, 0.5), far = typical(got, plain, N, 0.5);
        print_message(
            "%s: relative error %.2e (best rows %.2e, worst %.2e), from unrounded activations %.2e\n",
            lg_qtype_get(types[t])->name, d, typical(got, rounded, N, 0.1), relative(got, rounded, N), far);
        assert_true(d < 1e-5);
        assert_true(far < 0.05);
    }
    free(got);
    free(rounded);
    free(plain);
    free(ids);
}

// A model needs a layer that sees everything. Layer *arg does so in vain: its attention is multiplied by 0.
static void blind(void *arg, const char *name, float *v, const uint64_t *ne, size_t n)
{
    char output[32];

    (void)ne;
    (void)snprintf(output, sizeof output, "blk.%d.attn_output", *(const int *)arg);
    if (strstr(name, output))
        memset(v, 0, n * sizeof *v);
}

// (b) in a model of one window layer, token q - W is out of sight and token q - W + 1 is not.
static void window_edge(void **state)
{
    static const bool kinds[] = {true, false};
    int last = 1;
    enum { W = 8, Q = 40 };
    mk_model m = mk_default(vocab_path);
    int32_t *ids = random_ids(Q + 1, 11);
    float *base, *out;

    (void)state;
    m.n_layer = 2;
    m.is_window = kinds;
    m.window = W;
    m.values = blind;
    m.arg = &last;
    write_model(&m);
    base = run((how){.chunk = Q + 1, .kv = LG_F32}, ids, Q + 1);
    ids[Q - W] = (ids[Q - W] + 1) % V;
    out = run((how){.chunk = Q + 1, .kv = LG_F32}, ids, Q + 1);
    same_bits(base, out, Q, Q + 1);
    assert_true(far_apart(base, out, Q - 1, Q) > 1e-3);
    free(out);
    ids[Q - W + 1] = (ids[Q - W + 1] + 1) % V;
    out = run((how){.chunk = Q + 1, .kv = LG_F32}, ids, Q + 1);
    assert_true(far_apart(base, out, Q, Q + 1) > 1e-3);
    free(out);
    free(base);
    free(ids);
}

// (a) only distances count: behind three window layers a row depends on the last 22 tokens, wherever they
// stand.
static void shifted_positions(void **state)
{
    static const bool kinds[] = {true, true, true, false};
    int last = 3;
    static const int shift[] = {1, 63, 500, 1900};
    enum { BLOCK = 60, REACH = 3 * 7 + 1, ALL = 1960 };
    mk_model m = mk_default(vocab_path);
    int32_t *block = random_ids(BLOCK, 37), *ids = random_ids(ALL, UINT64_C(41) << 50);

    (void)state;
    m.n_layer = 4;
    m.is_window = kinds;
    m.values = blind;
    m.arg = &last;
    m.hidden = 64;
    m.ffn_dense = m.ffn_expert = m.ffn_shared = 64;
    write_model(&m);
    float *base = run((how){.chunk = 64, .kv = LG_F32}, block, BLOCK);
    for (size_t i = 0; i < sizeof shift / sizeof *shift; i++) {
        memcpy(ids + shift[i], block, BLOCK * sizeof *ids);
        float *out = run((how){.chunk = 64, .kv = LG_F32}, ids, shift[i] + BLOCK);
        double d = far_apart(base + REACH * V, out + (shift[i] + REACH) * V, 0, BLOCK - REACH);
        print_message("shifted by %d: %.2e\n", shift[i], d);
        assert_true(d < 1e-4);
        assert_true(far_apart(base, out + shift[i] * V, 0, 1) > 1e-3); // row 0 does see what stands before it
        free(out);
    }
    free(base);
    free(ids);
    free(block);
}

// What a test does to all selection biases.
static void set_bias(void *arg, const char *name, float *v, const uint64_t *ne, size_t n)
{
    const float *b = arg; // [0] is added to all, [1] to expert 5

    (void)ne;
    for (size_t i = 0; strstr(name, "exp_probs_b") && i < n; i++)
        v[i] = floorf(v[i] * 1024) / 1024 + b[0] + (i == 5 ? b[1] : 0); // so that sums are exact
}

// (e) a gate without weights multiplies by softplus(0) = ln 2.
static void no_gate(void *arg, const char *name, float *v, const uint64_t *ne, size_t n)
{
    (void)arg;
    (void)ne;
    if (strstr(name, "attn_gate"))
        memset(v, 0, n * sizeof *v);
}

static void gate_of_zero(void **state)
{
    mk_model m = mk_default(vocab_path);

    (void)state;
    m.values = no_gate;
    compare_float(&m, "gate of zero", 30, 1e-5);
}

// (c) a constant on all biases changes nothing; (d) a bias forces a choice and leaves the weight alone.
static void selection_bias(void **state)
{
    float bias[2] = {0, 0};
    mk_model m = mk_default(vocab_path);
    int n = 32;
    int32_t *ids = random_ids(n, 13);
    float *base, *out;

    (void)state;
    m.values = set_bias;
    m.arg = bias;
    write_model(&m);
    base = run((how){.chunk = n, .kv = LG_F32}, ids, n);
    bias[0] = 0.25f;
    write_model(&m);
    out = run((how){.chunk = n, .kv = LG_F32}, ids, n);
    assert_true(far_apart(base, out, 0, n) < 1e-5);
    free(out);
    bias[0] = 0;
    bias[1] = 100;
    compare_float(&m, "forced expert", n, 1e-5);
    write_model(&m);
    lg_engine *e = open_engine((how){.chunk = n, .kv = LG_F32, .debug = true});
    out = malloc((size_t)n * V * sizeof *out);
    eval(e, ids, n, LG_STEP_ROUTES, out);
    for (int l = 1; l < m.n_layer; l++) {
        const int32_t *chosen;
        const float *w;
        assert_int_equal(lg_engine_route_rows(e, l, 0, (size_t)n, &chosen, &w, NULL), LG_OK);
        for (int r = 0; r < n; r++) {
            float sum = 0;
            for (int k = 0; k < m.n_used; k++)
                sum += w[r * m.n_used + k];
            assert_int_equal(chosen[r * m.n_used], 5);
            assert_true(w[r * m.n_used] < 2.4f); // a biased probability of 100 would take all of 2.5
            assert_true(fabsf(sum - 2.5f) < 1e-5f);
        }
    }
    assert_true(far_apart(base, out, 0, n) > 1e-3);
    lg_engine_close(e);
    free(out);
    free(base);
    free(ids);
}

// Experts that tie exactly: the lower index is chosen, for one row and for sixteen.
static void tie_routers(void *arg, const char *name, float *v, const uint64_t *ne, size_t n)
{
    (void)arg;
    (void)n;
    if (strstr(name, "ffn_gate_inp"))
        for (uint64_t e = 1; e < ne[1]; e++)
            memcpy(v + e * ne[0], v, ne[0] * sizeof *v);
    for (uint64_t e = 0; strstr(name, "exp_probs_b") && e < ne[0]; e++)
        v[e] = e == 6 ? 0.5f : 0.125f;
}

static void ties(void **state)
{
    mk_model m = mk_default(vocab_path);
    int32_t *ids = random_ids(16, 17);
    float one[16 * V], all[16 * V];

    (void)state;
    m.values = tie_routers;
    write_model(&m);
    for (int chunk = 1; chunk <= 16; chunk += 15) {
        lg_engine *e = open_engine((how){.chunk = chunk, .kv = LG_F32, .debug = true});
        eval(e, ids, 16, LG_STEP_ROUTES, chunk == 1 ? one : all);
        const int32_t *chosen;
        const float *w;
        assert_int_equal(lg_engine_route_rows(e, 3, 15, 1, &chosen, &w, NULL), LG_OK);
        assert_true(chosen[0] == 6 && chosen[1] == 0 && chosen[2] == 1);
        assert_true(fabsf(w[0] - 2.5f / 3) < 1e-6f && w[0] == w[1] && w[1] == w[2]);
        lg_engine_close(e);
    }
    same_bits(one, all, 0, 16);
    free(ids);
}

// (f) and (g): chunks of any size give what one chunk gives, across the window's wraps.
static void chunks(void **state)
{
    static const int sizes[] = {1, 7, 64, 511, 512, 513};
    static const int seen[][2] = {{0, 8}, {60, 70}, {505, 521}, {1020, 1031}, {1090, 1100}};
    enum { N = 1100 };
    mk_model m = mk_default(vocab_path);
    int32_t *ids = random_ids(N, 19);

    (void)state;
    m.n_layer = 5;
    m.hidden = 64;
    m.window = 512;
    m.ffn_dense = m.ffn_expert = m.ffn_shared = 64;
    write_model(&m);
    reference ref = refer(ids, N, false);
    float *whole = run((how){.chunk = N, .kv = LG_F32}, ids, N);
    double d = relative(whole, ref.logits, N);
    print_message("1100 tokens, window 512: relative error %.2e\n", d);
    assert_true(d < 1e-4);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        float *part = run((how){.threads = sizes[i] == 512 ? 2 : 1, .chunk = sizes[i], .kv = LG_F32}, ids, N);
        double worst = 0;
        for (size_t k = 0; k < sizeof seen / sizeof *seen; k++)
            worst = fmax(worst, far_apart(part, whole, seen[k][0], seen[k][1]));
        print_message("chunks of %d: %.2e from the whole\n", sizes[i], worst);
        assert_true(worst < 2e-4);
        assert_true(far_apart(part, whole, 0, N) < 1e-3);
        free(part);
    }
    forget(&ref);
    free(whole);
    free(ids);
}

// Decoding and verification steps: one row's bits do not depend on how many rows run with it, nor on threads.
static void rows_and_threads(void **state)
{
    static const lg_qtype kv[] = {LG_F16, LG_F32, LG_Q8_0}, types[] = {LG_F32, LG_Q8_0, LG_Q4_K, LG_Q6_K};
    enum { N = 48 };
    int32_t *ids = random_ids(N, 23);

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        mk_model m = mk_default(vocab_path);
        m.heads_full = m.heads_window = 8;
        m.linear = m.experts = m.embed = types[t];
        write_model(&m);
        for (size_t k = 0; k < sizeof kv / sizeof *kv; k++) {
            float *base = run((how){.threads = 1, .chunk = 1, .kv = kv[k]}, ids, N);
            for (int rows_at_once = 2; rows_at_once <= 16; rows_at_once += rows_at_once < 5 ? 1 : 11) {
                float *out = run((how){.threads = 2, .chunk = rows_at_once, .kv = kv[k]}, ids, N);
                same_bits(base, out, 0, N);
                free(out);
            }
            float *again = run((how){.threads = 3, .chunk = 16, .kv = kv[k]}, ids, N);
            same_bits(base, again, 0, N);
            free(again);
            free(base);
        }
    }
    free(ids);
}

// The same steps again on the same engine give the same bits; what a rewind left behind does not show.
static void replay(void **state)
{
    enum { N = 100 };
    mk_model m = mk_default(vocab_path);
    int32_t *ids = random_ids(N, 29), *other = random_ids(N, 31);
    float *first = malloc(N * V * sizeof *first), *second = malloc(N * V * sizeof *second);

    (void)state;
    write_model(&m);
    lg_engine *e = open_engine((how){.chunk = 16, .kv = LG_F16});
    eval(e, ids, N, 0, first);
    assert_int_equal(lg_engine_truncate(e, 0), 0);
    eval(e, other, N, 0, second);
    assert_int_equal(lg_engine_truncate(e, 0), 0);
    eval(e, ids, N, 0, second);
    same_bits(first, second, 0, N);
    assert_int_equal(lg_engine_truncate(e, N - 20), N - 20);
    eval(e, other, 20, 0, second);
    assert_int_equal(lg_engine_truncate(e, N - 20), N - 20);
    eval(e, ids + N - 20, 20, 0, second);
    // rows of a chunk of 16 at other places of the chunk: still the same bits
    for (int i = 0; i < 20; i++)
        assert_memory_equal(first + (N - 20 + i) * V, second + i * V, V * sizeof *first);
    lg_engine_close(e);
    free(first);
    free(second);
    free(ids);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_models),
        cmocka_unit_test(element_gate),
        cmocka_unit_test(scaled_matrices),
        cmocka_unit_test(big_activations),
        cmocka_unit_test(quantized_models),
        cmocka_unit_test(window_edge),
        cmocka_unit_test(shifted_positions),
        cmocka_unit_test(gate_of_zero),
        cmocka_unit_test(selection_bias),
        cmocka_unit_test(ties),
        cmocka_unit_test(chunks),
        cmocka_unit_test(rows_and_threads),
        cmocka_unit_test(replay),
    };

    path = scratch_path("properties.gguf");
    return cmocka_run_group_tests_name("properties", tests, NULL, NULL);
}
