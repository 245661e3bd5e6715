/*
 * Tests of model/hparams: the numbers of the real models' rotary embedding, the order in which layer kinds
 * are derived, every older spelling, every range and refusal. Files are written by support/maker with keys
 * left out or added.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/hparams.h"
#include "support/maker.h"
#include "support/scratch.h"

static const char *path; // of the file that is written
static char warnings[4096];

static void sink(void *ctx, lg_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", line);
}

static int n_warnings(void)
{
    int n = 0;

    for (const char *p = warnings; *p; p++)
        n += *p == '\n';
    return n;
}

static mk_model small(void)
{
    mk_model m = mk_default(NULL);

    m.n_layer = 5;
    m.hidden = 32;
    m.heads_full = 4;
    m.heads_window = 6;
    m.n_kv_head = 2;
    m.ffn_dense = 48;
    m.ffn_expert = m.ffn_shared = 32;
    m.vocab = 64;
    return m;
}

static lg_status read_model(const mk_model *m, const lg_rope_override *over, lg_hparams *hp, lg_err *err)
{
    lg_gguf *g;
    lg_status st;

    warnings[0] = 0;
    *err = (lg_err){0};
    assert_true(mk_write(m, path));
    assert_int_equal(lg_gguf_open(path, &g, err), LG_OK);
    st = lg_hparams_read(g, over, hp, err);
    lg_gguf_close(g);
    return st;
}

static lg_hparams good(const mk_model *m, int want_warnings)
{
    lg_hparams hp;
    lg_err err;

    if (read_model(m, NULL, &hp, &err) != LG_OK)
        fail_msg("%s", err.msg);
    if (n_warnings() != want_warnings)
        fail_msg("%d warnings instead of %d: %s", n_warnings(), want_warnings, warnings);
    return hp;
}

static void bad(const mk_model *m, lg_status code, const char *words)
{
    lg_hparams hp;
    lg_err err;

    assert_int_equal(read_model(m, NULL, &hp, &err), code);
    if (!strstr(err.msg, words))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, words);
}

// Adds one key: mk_model.arg points to one of these, ended by an empty key.
typedef struct extra {
    const char *key;
    lg_gguf_vtype type;
    double v;
    const char *s;
    const uint32_t *array;
    uint64_t n;
} extra;

static void put_extras(void *arg, lg_gguf_writer *w)
{
    for (const extra *e = arg; e->key; e++) {
        char key[128];
        (void)snprintf(key, sizeof key, "%s%s", strchr(e->key, ':') ? "" : "laguna.", e->key);
        char *full = strchr(key, ':') ? strchr(key, ':') + 1 : key;
        if (e->array)
            lg_gguf_put_array(w, full, LG_GV_U32, e->array, e->n);
        else if (e->s)
            lg_gguf_put_str(w, full, lg_str_of(e->s));
        else if (e->type == LG_GV_F32)
            lg_gguf_put_f32(w, full, (float)e->v);
        else
            lg_gguf_put_i64(w, full, e->type, (int64_t)e->v);
    }
}

static mk_model with(mk_model m, const char *skip, extra *extras)
{
    m.skip_keys = skip;
    m.keys = put_extras;
    m.arg = extras;
    return m;
}

#define EXTRAS(...) ((extra[]){__VA_ARGS__, {0}})

static void near_number(double got, double want)
{
    if (fabs(got - want) > fabs(want) * 1e-9)
        fail_msg("%.12g instead of %.12g", got, want);
}

// The table of frequencies and magnitudes of the real models.
static void yarn_numbers(void **state)
{
    static const int pair[] = {0, 1, 7, 8, 9, 10, 13, 17, 18, 31};
    static const double s32[] = {1,
                                 6.636012377e-1,
                                 5.666962145e-2,
                                 3.760603093e-2,
                                 2.495540867e-2,
                                 1.477789271e-2,
                                 2.755781600e-3,
                                 1.303435931e-4,
                                 1.946163818e-5,
                                 9.418306725e-8};
    static const double s128[] = {1,
                                  6.636012377e-1,
                                  5.666962145e-2,
                                  3.760603093e-2,
                                  2.495540867e-2,
                                  1.473476657e-2,
                                  2.705370961e-3,
                                  1.107920541e-4,
                                  4.865409546e-6,
                                  2.354576681e-8};
    static const double xs[] = {1,
                                6.636012377e-1,
                                5.666962145e-2,
                                3.429413616e-2,
                                2.055985373e-2,
                                1.218509654e-2,
                                2.282227112e-3,
                                1.119769959e-4,
                                1.946163818e-5,
                                9.418306725e-8};
    const struct {
        double factor, fast, magnitude;
        int64_t ctx;
        const double *f;
    } row[] = {
        {32, 32, 1.3465735902799727, 8192, s32},
        {128, 32, 1.4852030263919618, 8192, s128},
        {32, 64, 1.3465735902799727, 8192, xs},
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        lg_rope r;
        lg_rope_init(&r, 0, 64, 500000, row[i].factor, row[i].ctx, row[i].fast, 1);
        assert_true(r.magnitude == (float)row[i].magnitude);
        for (size_t j = 0; j < sizeof pair / sizeof *pair; j++)
            assert_true(fabs(r.freq[pair[j]] - row[i].f[j]) < row[i].f[j] * 1e-9);
    }
    lg_rope r;
    lg_rope_init(&r, 1, 128, 10000, 1, 0, 32, 1);
    assert_true(r.magnitude == 1 && r.id == 1);
    near_number(r.freq[0], 1);
    near_number(r.freq[32], 0.01);
    // an older checkpoint: 5 <= ramp <= 16, magnitude 1.4159
    lg_rope_init(&r, 0, 64, 500000, 64, 4096, 64, 1);
    assert_true(r.magnitude == (float)1.4158883083359672);
    near_number(r.freq[5], pow(500000, -10.0 / 64));
    assert_true(r.freq[6] < pow(500000, -12.0 / 64) * 0.999);
    near_number(r.freq[16], pow(500000, -0.5) / 64);
}

static void a_healthy_file(void **state)
{
    mk_model m = small();
    lg_hparams hp = good(&m, 0);

    (void)state;
    assert_int_equal(hp.n_layer, 5);
    assert_int_equal(hp.hidden, 32);
    assert_int_equal(hp.vocab, 64);
    assert_int_equal(hp.window, 8);
    assert_int_equal(hp.n_full, 2);
    assert_int_equal(hp.n_window, 3);
    assert_int_equal(hp.ffn_shared, 32);
    assert_true(hp.route_scale == 2.5f && hp.route_norm && hp.gating == LG_GATE_SIGMOID);
    assert_int_equal(hp.ctx_train, 4096);
    assert_true(hp.yarn_factor == 32);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(hp.layer[i].window, i % 4 != 0);
        assert_int_equal(hp.layer[i].n_head, i % 4 ? 6 : 4);
        assert_int_equal(hp.layer[i].dense, i == 0);
    }
    assert_int_equal(hp.layer[3].kv_layer, 2);
    assert_int_equal(hp.layer[4].kv_layer, 1);
}

static void layer_kinds_in_order(void **state)
{
    static const uint32_t types[] = {0, 1, 1, 0, 1}, dense_counts[] = {4, 4, 6, 4, 6};
    static const bool pattern[] = {false, true, false, false, true};
    mk_model m = small(), k;
    lg_hparams hp;

    (void)state;
    m.heads_window = 4; // head counts say nothing
    m.window = 0;       // no key: all full
    hp = good(&m, 0);
    assert_int_equal(hp.n_window, 0);
    m.window = 8;
    k = with(m, "", EXTRAS({"attention.sliding_window_pattern", LG_GV_U32, 3, NULL, NULL, 0}));
    hp = good(&k, 0);
    assert_true(!hp.layer[0].window && hp.layer[1].window && hp.layer[2].window && !hp.layer[3].window);
    k = m;
    k.is_window = pattern;
    hp = good(&k, 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(hp.layer[i].window, pattern[i]);
    k = with(m, "", EXTRAS({"attention.layer_types", 0, 0, NULL, types, 5}));
    hp = good(&k, 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(hp.layer[i].window, types[i]);
    k = with(m, "|attention.head_count|", EXTRAS({"attention.head_count", 0, 0, NULL, dense_counts, 5}));
    hp = good(&k, 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(hp.layer[i].window, dense_counts[i] == 6);
    k = with(m, "|attention.head_count|", EXTRAS({"attention.head_count", LG_GV_I32, 4, NULL, NULL, 0}));
    hp = good(&k, 0); // period 4
    assert_true(!hp.layer[0].window && hp.layer[1].window && hp.layer[3].window && !hp.layer[4].window);
    k = with(m, "", EXTRAS({"attention.layer_types", 0, 0, NULL, types, 4}));
    bad(&k, LG_E_INPUT, "layer_types has 4 items; laguna.block_count needs 5");
    k = with(m, "", EXTRAS({"attention.sliding_window_pattern", LG_GV_BOOL, 1, NULL, NULL, 0}));
    hp = good(&k, 1);
    assert_int_equal(hp.n_window, 3);
}

static void older_spellings(void **state)
{
    mk_model m = small(), k;
    lg_hparams hp;

    (void)state;
    k = with(m, "|rope.dimension_count_swa|rope.freq_base_swa|",
             EXTRAS({"rope.swa.dimension_count", LG_GV_U32, 16, NULL, NULL, 0},
                    {"rope.swa.freq_base", LG_GV_F32, 20000, NULL, NULL, 0}));
    hp = good(&k, 2);
    assert_int_equal(hp.rope_window.n_rot, 16);
    near_number(hp.rope_window.freq[1], pow(20000, -2.0 / 16));
    k = with(m, "|rope.dimension_count|rope.dimension_count_swa|",
             EXTRAS({"rope.partial_rotary_factor", LG_GV_F32, 0.25, NULL, NULL, 0},
                    {"rope.swa.partial_rotary_factor", LG_GV_F32, 0.5, NULL, NULL, 0}));
    hp = good(&k, 2);
    assert_int_equal(hp.rope_full.n_rot, 8);
    assert_int_equal(hp.rope_window.n_rot, 16);
    k = with(m, "", EXTRAS({"rope.partial_rotary_factor", LG_GV_F32, 0.25, NULL, NULL, 0}));
    hp = good(&k, 0); // the count decides
    assert_int_equal(hp.rope_full.n_rot, 16);
    k = with(m, "|rope.scaling.yarn_beta_fast|rope.scaling.yarn_beta_slow|",
             EXTRAS({"rope.scaling.beta_fast", LG_GV_F32, 64, NULL, NULL, 0},
                    {"rope.scaling.beta_slow", LG_GV_F32, 2, NULL, NULL, 0}));
    hp = good(&k, 2);
    assert_true(hp.yarn_beta_fast == 64 && hp.yarn_beta_slow == 2);
    k = with(m, "|rope.scaling.yarn_beta_fast|", EXTRAS({"x", LG_GV_U32, 1, NULL, NULL, 0}));
    hp = good(&k, 1);
    assert_true(hp.yarn_beta_fast == 32);
    k = with(m, "|expert_weights_scale|", EXTRAS({"x", LG_GV_U32, 1, NULL, NULL, 0}));
    hp = good(&k, 1);
    assert_true(hp.route_scale == 1);
    k = with(m, "",
             EXTRAS({"rope.swa.scaling.type", 0, 0, "yarn", NULL, 0},
                    {"rope.swa.scaling.factor", LG_GV_F32, 4, NULL, NULL, 0}));
    (void)good(&k, 2);
    k = with(m, "",
             EXTRAS({"rope.swa.scaling.type", 0, 0, "none", NULL, 0},
                    {"rope.swa.scaling.factor", LG_GV_F32, 1, NULL, NULL, 0}));
    (void)good(&k, 0);
    k = with(m, "|expert_shared_feed_forward_length|context_length|vocab_size|",
             EXTRAS({"vocab_size", LG_GV_I64, 64, NULL, NULL, 0}));
    hp = good(&k, 1);
    assert_int_equal(hp.ffn_shared, 32);   // from the tensor's shape
    assert_int_equal(hp.ctx_train, 65536); // 2048 times 32
}

// Early conversions of a 128-wide head state half of what is rotated.
static void halved_rotation(void **state)
{
    mk_model m = small();
    lg_hparams hp;

    (void)state;
    m.head_dim = 128;
    m.n_rot = 32;
    m.n_rot_window = 64;
    hp = good(&m, 2);
    assert_int_equal(hp.rope_full.n_rot, 64);
    assert_int_equal(hp.rope_window.n_rot, 128);
    m.n_rot = 64;
    m.n_rot_window = 128;
    (void)good(&m, 0);
    m = with(m, "|rope.dimension_count|rope.dimension_count_swa|rope.freq_base_swa|",
             EXTRAS({"x", LG_GV_U32, 1, NULL, NULL, 0}));
    hp = good(&m, 1);
    assert_non_null(strstr(warnings, "laguna.rope.dimension_count, laguna.rope.freq_base_swa, "
                                     "laguna.rope.dimension_count_swa are missing; defaults are used"));
    assert_int_equal(hp.rope_full.n_rot, 64);
    assert_int_equal(hp.rope_window.n_rot, 128);
    near_number(hp.rope_window.freq[32], 0.01);
}

static void magnitudes(void **state)
{
    const float m0 = (float)(1 + 0.1 * log(32));
    mk_model m = small(), k;
    lg_hparams hp;
    lg_err err;

    (void)state;
    hp = good(&m, 0);
    assert_true(hp.rope_full.magnitude == m0 && hp.rope_window.magnitude == 1);
    k = with(m, "", EXTRAS({"rope.scaling.yarn_attn_factor", LG_GV_F32, 1.3465, NULL, NULL, 0}));
    hp = good(&k, 0); // ignored
    assert_true(hp.rope_full.magnitude == m0);
    k = with(m, "", EXTRAS({"rope.scaling.attn_factor", LG_GV_F32, 1.34657359, NULL, NULL, 0}));
    hp = good(&k, 1); // the final value, not a multiplier
    assert_true(hp.rope_full.magnitude == m0);
    k = with(m, "", EXTRAS({"rope.scaling.attn_factor", LG_GV_F32, 0.5, NULL, NULL, 0}));
    hp = good(&k, 0);
    assert_true(fabsf(hp.rope_full.magnitude - m0 / 2) < 1e-6f);
    k = with(m, "", EXTRAS({"rope.scaling.yarn_ext_factor", LG_GV_F32, 64, NULL, NULL, 0}));
    hp = good(&k, 1);
    assert_true(hp.rope_full.magnitude == m0);
    assert_int_equal(read_model(&m, &(lg_rope_override){.factor = 128}, &hp, &err), LG_OK);
    assert_true(hp.rope_full.magnitude == (float)(1 + 0.1 * log(128)) && hp.yarn_factor == 128);
    assert_int_equal(read_model(&m, &(lg_rope_override){.magnitude = 1}, &hp, &err), LG_OK);
    assert_true(hp.rope_full.magnitude == 1 && hp.yarn_factor == 32);
    k = with(m, "|rope.scaling.type|", EXTRAS({"rope.scaling.type", 0, 0, "none", NULL, 0}));
    hp = good(&k, 1); // a factor that is not used
    assert_true(hp.rope_full.magnitude == 1 && hp.yarn_factor == 1);
    near_number(hp.rope_full.freq[7], pow(500000, -14.0 / 16));
    k = with(m, "|rope.scaling.type|", EXTRAS({"x", LG_GV_U32, 1, NULL, NULL, 0}));
    hp = good(&k, 1);
    assert_true(hp.rope_full.magnitude == m0);
}

static void refusals(void **state)
{
    static const uint32_t kv_counts[] = {2, 2, 1, 2, 2}, dense[] = {0, 2};
    mk_model m = small(), k;

    (void)state;
#define ONE(skip, ...) (k = with(m, skip, EXTRAS(__VA_ARGS__)), &k)
    bad(ONE("|general.architecture|", {":general.architecture", 0, 0, "llama", NULL, 0}), LG_E_UNSUPPORTED,
        "\"llama\"");
    bad(ONE("|general.architecture|", {":general.architecture", 0, 0, "dflash", NULL, 0}), LG_E_UNSUPPORTED,
        "drafter");
    bad(ONE("|general.architecture|", {":general.architecture", 0, 0, "dflash-draft", NULL, 0}),
        LG_E_UNSUPPORTED, "--draft");
    bad(ONE("|general.architecture|", {"x", 0, 0, "", NULL, 0}), LG_E_INPUT,
        "general.architecture is missing");
    bad(ONE("|block_count|", {"x", LG_GV_U32, 0, NULL, NULL, 0}), LG_E_INPUT,
        "laguna.block_count is missing");
    bad(ONE("|block_count|", {"block_count", LG_GV_U32, 257, NULL, NULL, 0}), LG_E_INPUT,
        "257; it must be 1 to 256");
    bad(ONE("|block_count|", {"block_count", 0, 0, "five", NULL, 0}), LG_E_INPUT, "not an integer");
    bad(ONE("|block_count|", {"block_count", LG_GV_U32, 4, NULL, NULL, 0}), LG_E_INPUT, "has 5 items");
    bad(ONE("|embedding_length|", {"embedding_length", LG_GV_U64, 1e15, NULL, NULL, 0}), LG_E_INPUT,
        "embedding_length");
    bad(ONE("|attention.key_length|", {"attention.key_length", LG_GV_U32, 64, NULL, NULL, 0}),
        LG_E_UNSUPPORTED, "value_length 32 differs");
    bad(ONE("|attention.head_count_kv|", {"attention.head_count_kv", LG_GV_U32, 4, NULL, NULL, 0}),
        LG_E_INPUT, "layer 1 has 6 heads, which 4 KV heads do not divide");
    bad(ONE("|attention.head_count_kv|", {"attention.head_count_kv", 0, 0, NULL, kv_counts, 5}),
        LG_E_UNSUPPORTED, "head_count_kv is 2 for layer 0 and 1 for layer 2");
    bad(ONE("|attention.head_count|", {"x", LG_GV_U32, 0, NULL, NULL, 0}), LG_E_INPUT,
        "head_count is missing");
    bad(ONE("", {"attention.sink_enabled", LG_GV_BOOL, 1, NULL, NULL, 0}), LG_E_UNSUPPORTED, "sink_enabled");
    bad(ONE("", {"router_logit_softcapping", LG_GV_F32, 30, NULL, NULL, 0}), LG_E_UNSUPPORTED,
        "softcapping is 30");
    bad(ONE("", {"expert_group_count", LG_GV_U32, 4, NULL, NULL, 0}), LG_E_UNSUPPORTED, "expert_group_count");
    bad(ONE("|expert_gating_func|", {"expert_gating_func", LG_GV_U32, 4, NULL, NULL, 0}), LG_E_UNSUPPORTED,
        "expert_gating_func is 4");
    bad(ONE("|expert_used_count|", {"expert_used_count", LG_GV_U32, 9, NULL, NULL, 0}), LG_E_INPUT,
        "it must be 1 to 8");
    bad(ONE("|expert_count|", {"x", LG_GV_U32, 0, NULL, NULL, 0}), LG_E_INPUT, "expert_count is missing");
    bad(ONE("", {"expert_shared_count", LG_GV_U32, 2, NULL, NULL, 0}), LG_E_UNSUPPORTED,
        "expert_shared_count is 2");
    bad(ONE("", {"decoder_sparse_step", LG_GV_U32, 2, NULL, NULL, 0}), LG_E_UNSUPPORTED,
        "decoder_sparse_step");
    bad(ONE("", {"dense_layers", 0, 0, NULL, dense, 2}), LG_E_INPUT, "dense_layers has 2 items");
    bad(ONE("|leading_dense_block_count|", {"dense_layers", 0, 0, NULL, dense, 2}), LG_E_UNSUPPORTED,
        "dense_layers");
    bad(ONE("|feed_forward_length|", {"x", LG_GV_U32, 0, NULL, NULL, 0}), LG_E_INPUT,
        "feed_forward_length is missing");
    bad(ONE("|rope.scaling.type|", {"rope.scaling.type", 0, 0, "linear", NULL, 0}), LG_E_UNSUPPORTED,
        "\"linear\"");
    bad(ONE("|rope.scaling.factor|", {"rope.scaling.factor", LG_GV_F32, 0.5, NULL, NULL, 0}), LG_E_INPUT,
        "factor is 0.5");
    bad(ONE("|rope.scaling.factor|", {"rope.scaling.factor", LG_GV_F32, NAN, NULL, NULL, 0}), LG_E_INPUT,
        "factor is");
    bad(ONE("|rope.scaling.original_context_length|", {"x", LG_GV_U32, 0, NULL, NULL, 0}), LG_E_INPUT,
        "original_context_length is missing");
    bad(ONE("|rope.scaling.yarn_beta_fast|", {"rope.scaling.yarn_beta_fast", LG_GV_F32, 0.5, NULL, NULL, 0}),
        LG_E_INPUT, "must exceed");
    bad(ONE("|rope.dimension_count|", {"rope.dimension_count", LG_GV_U32, 15, NULL, NULL, 0}), LG_E_INPUT,
        "even number");
    bad(ONE("|rope.dimension_count|", {"rope.dimension_count", LG_GV_U32, 64, NULL, NULL, 0}), LG_E_INPUT,
        "2 to 32");
    bad(ONE("|vocab_size|", {"x", LG_GV_U32, 0, NULL, NULL, 0}), LG_E_INPUT, "vocab_size is missing");
    bad(ONE("|context_length|", {"context_length", LG_GV_U32, 0, NULL, NULL, 0}), LG_E_INPUT,
        "context_length is 0");
    bad(ONE("|attention.layer_norm_rms_epsilon|",
            {"attention.layer_norm_rms_epsilon", LG_GV_F32, -1, NULL, NULL, 0}),
        LG_E_INPUT, "epsilon is -1");
#undef ONE
}

// A model of all-full layers with three dense ones and no experts at all is a legal configuration.
static void all_dense(void **state)
{
    mk_model m = small();
    lg_hparams hp;

    (void)state;
    m.window = 0;
    m.n_dense = 5;
    m = with(m, "|expert_count|expert_used_count|expert_feed_forward_length|",
             EXTRAS({"x", LG_GV_U32, 0, NULL, NULL, 0}));
    hp = good(&m, 0);
    assert_int_equal(hp.n_expert, 0);
    assert_int_equal(hp.n_full, 5);
    assert_true(hp.layer[4].dense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yarn_numbers),
        cmocka_unit_test(a_healthy_file),
        cmocka_unit_test(layer_kinds_in_order),
        cmocka_unit_test(older_spellings),
        cmocka_unit_test(halved_rotation),
        cmocka_unit_test(magnitudes),
        cmocka_unit_test(refusals),
        cmocka_unit_test(all_dense),
    };

    path = scratch_path("hparams.gguf");
    lg_log_set_sink(sink, NULL);
    return cmocka_run_group_tests_name("hparams", tests, NULL, NULL);
}
