/*
 * Tests of model/mix and model/synth: recipes and shapes against the published files' types and byte counts,
 * the generator's statistics and its independence of slicing and threads, the tokenizer's consistency, and a
 * file against the same model in memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "model/mix.h"
#include "model/synth.h"
#include "support/scratch.h"

static lg_synth *create(const char *arch, const char *type, int n_layer)
{
    lg_synth *s = NULL;
    lg_err err = {0};
    lg_synth_params p = {.arch = arch, .type = type, .n_layer = n_layer, .seed = 7};

    if (lg_synth_create(&p, &s, &err) != LG_OK)
        fail_msg("%s", err.msg);
    return s;
}

static const lg_synth_tensor *find(const lg_synth *s, const char *name)
{
    for (size_t i = 0; i < lg_synth_n_tensors(s); i++)
        if (!strcmp(lg_synth_tensor_at(s, i)->name, name))
            return lg_synth_tensor_at(s, i);
    fail_msg("no tensor %s", name);
    return NULL;
}

static int count(const lg_synth *s, lg_qtype type)
{
    int n = 0;

    for (size_t i = 0; i < lg_synth_n_tensors(s); i++)
        n += lg_synth_tensor_at(s, i)->type == type;
    return n;
}

// Bytes of tensor data and tensors of each type, as computed from the published shapes and, where a file was
// published by that recipe (official S, q4_k_m XS), as in its header.
static void test_totals(void **state)
{
    static const struct {
        const char *arch, *type;
        uint64_t bytes;
        struct {
            lg_qtype type;
            int n;
        } counts[4];
    } cases[] = {
        {"s-2.1", NULL, 68245025792, {{LG_Q8_0, 386}, {LG_F32, 287}, {LG_Q4_K, 141}}},
        {"s-2.1", "q8_0", 125019124736, {{LG_Q8_0, 527}, {LG_F32, 287}}},
        {"s-2.1", "q6_k", 96556113152, {{LG_Q6_K, 527}, {LG_F32, 287}}},
        {"s-2.1", "q5_k_m", 83472917504, {{LG_Q5_K, 455}, {LG_F32, 287}, {LG_Q6_K, 72}}},
        {"s-2.1", "q5_k_s", 80988308480, {{LG_Q5_K, 526}, {LG_F32, 287}, {LG_Q6_K, 1}}},
        {"s-2.1", "q4_k_m", 71159321600, {{LG_Q4_K, 455}, {LG_F32, 287}, {LG_Q6_K, 72}}},
        {"s-2.1", "q4_k_s", 66847831040, {{LG_Q4_K, 511}, {LG_F32, 287}, {LG_Q6_K, 1}, {LG_Q5_K, 15}}},
        {"s-2.1", "q4_0", 66336257024, {{LG_Q4_0, 526}, {LG_F32, 287}, {LG_Q6_K, 1}}},
        {"s-2.1", "q3_k_m", 56213093120, {{LG_Q3_K, 335}, {LG_Q6_K, 1}, {LG_Q5_K, 7}, {LG_Q4_K, 184}}},
        {"s-2.1", "q2_k", 42888496640, {{LG_Q2_K, 335}, {LG_Q6_K, 1}, {LG_Q4_K, 48}, {LG_Q3_K, 143}}},
        {"s-2.1", "iq4_xs", 63334338560, {{LG_IQ4_XS, 467}, {LG_F32, 287}, {LG_Q6_K, 1}, {LG_Q5_K, 59}}},
        {"s-2.1", "iq4_nl", 66865132544, {{LG_IQ4_NL, 467}, {LG_F32, 287}, {LG_Q6_K, 1}, {LG_Q5_K, 59}}},
        {"s-2.1", "mxfp4_moe", 64696644608, {{LG_Q8_0, 386}, {LG_F32, 287}, {LG_MXFP4, 141}}},
        {"xs-2.1", "official", 19889916928, {{LG_Q8_0, 322}, {LG_F32, 239}, {LG_Q4_K, 117}}},
        {"xs-2.1", "q8_0", 35593391104, {{LG_Q8_0, 439}, {LG_F32, 239}}},
        {"xs-2.1", "q6_k", 27499004416, {{LG_Q6_K, 439}, {LG_F32, 239}}},
        {"xs-2.1", "q5_k_m", 23775267840, {{LG_Q5_K, 379}, {LG_F32, 239}, {LG_Q6_K, 60}}},
        {"xs-2.1", "q5_k_s", 23087442944, {{LG_Q5_K, 438}, {LG_F32, 239}, {LG_Q6_K, 1}}},
        {"xs-2.1", NULL, 20270574592, {{LG_Q4_K, 379}, {LG_F32, 239}, {LG_Q6_K, 60}}},
        {"xs-2.1", "q4_k_s", 19073272832, {{LG_Q4_K, 425}, {LG_F32, 239}, {LG_Q6_K, 1}, {LG_Q5_K, 13}}},
        {"xs-2.1", "q4_0", 18935385088, {{LG_Q4_0, 438}, {LG_F32, 239}, {LG_Q6_K, 1}}},
        {"xs-2.1", "q3_k_m", 16052901376, {{LG_Q3_K, 279}, {LG_Q6_K, 1}, {LG_Q5_K, 5}, {LG_Q4_K, 154}}},
        {"xs-2.1", "q2_k", 12302948352, {{LG_Q2_K, 279}, {LG_Q6_K, 1}, {LG_Q4_K, 40}, {LG_Q3_K, 119}}},
        {"xs-2.1", "iq4_xs", 18081526784, {{LG_IQ4_XS, 389}, {LG_F32, 239}, {LG_Q6_K, 1}, {LG_Q5_K, 49}}},
        {"xs-2.1", "iq4_nl", 19082710016, {{LG_IQ4_NL, 389}, {LG_F32, 239}, {LG_Q6_K, 1}, {LG_Q5_K, 49}}},
        {"xs-2.1", "mxfp4_moe", 18908449792, {{LG_Q8_0, 322}, {LG_F32, 239}, {LG_MXFP4, 117}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lg_synth *s = create(cases[i].arch, cases[i].type, 0);
        int counted = 0;

        if (lg_synth_tensor_bytes(s) != cases[i].bytes)
            fail_msg("%s %s: %llu bytes, want %llu", cases[i].arch, cases[i].type,
                     (unsigned long long)lg_synth_tensor_bytes(s), (unsigned long long)cases[i].bytes);
        assert_int_equal(lg_synth_n_tensors(s), cases[i].arch[0] == 's' ? 814 : 678);
        for (int k = 0; k < 4 && cases[i].counts[k].n; k++) {
            assert_int_equal(count(s, cases[i].counts[k].type), cases[i].counts[k].n);
            counted += cases[i].counts[k].n;
        }
        int f32 = cases[i].arch[0] == 's' ? 287 : 239;
        assert_true(counted == (int)lg_synth_n_tensors(s) || counted + f32 == (int)lg_synth_n_tensors(s));
        lg_synth_destroy(s);
    }
}

static uint64_t elements(const lg_synth *s)
{
    uint64_t n = 0;

    for (size_t i = 0; i < lg_synth_n_tensors(s); i++) {
        const lg_synth_tensor *t = lg_synth_tensor_at(s, i);
        n += t->ne[0] * t->ne[1] * t->ne[2];
    }
    return n;
}

static void test_parameters(void **state)
{
    static const struct {
        const char *arch;
        int n_tensors;
        double millions, gb;
    } cases[] = {{"s-2.1", 814, 117556, 235.1},
                 {"xs-2.1", 678, 33443, 66.9},
                 {"s-2.1-dflash", 76, 1114.9, 2.23},
                 {"xs-2.1-dflash", 64, 462.0, 0.92}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lg_synth *s = create(cases[i].arch, "bf16", 0);
        double m = (double)elements(s) / 1e6, gb = (double)lg_synth_tensor_bytes(s) / 1e9;

        assert_int_equal(lg_synth_n_tensors(s), cases[i].n_tensors);
        if (fabs(m - cases[i].millions) > 0.0005 * cases[i].millions ||
            fabs(gb - cases[i].gb) > 0.006 * cases[i].gb)
            fail_msg("%s: %.1f M parameters, %.3f GB", cases[i].arch, m, gb);
        lg_synth_destroy(s);
    }
}

static void test_shapes(void **state)
{
    lg_synth *s = create("s-2.1", NULL, 6), *x = create("xs-2.1", NULL, 0),
             *d = create("xs-2.1-dflash", NULL, 2);
    const lg_synth_tensor *t;

    (void)state;
    t = find(s, "blk.4.attn_q.weight"); // the pattern of the full model: 0 and 4 are full
    assert_true(t->ne[0] == 3072 && t->ne[1] == 6144 && t->type == LG_Q8_0);
    t = find(s, "blk.5.attn_output.weight");
    assert_true(t->ne[0] == 9216 && t->ne[1] == 3072);
    t = find(s, "blk.5.ffn_down_exps.weight");
    assert_true(t->ne[0] == 1024 && t->ne[1] == 3072 && t->ne[2] == 256 && t->type == LG_Q4_K &&
                t->n_dims == 3);
    assert_int_equal(lg_synth_n_tensors(s), 3 + 12 + 5 * 17);
    t = find(s, "blk.0.ffn_down.weight");
    assert_true(t->ne[0] == 12288);
    // the layers with more bits
    assert_int_equal(find(x, "blk.4.attn_v.weight")->type, LG_Q6_K);
    assert_int_equal(find(x, "blk.5.attn_v.weight")->type, LG_Q4_K);
    assert_int_equal(find(x, "blk.7.ffn_down_exps.weight")->type, LG_Q6_K);
    assert_int_equal(find(x, "blk.33.ffn_down_shexp.weight")->type, LG_Q4_K);
    assert_int_equal(find(x, "blk.34.ffn_down_shexp.weight")->type, LG_Q6_K);
    assert_int_equal(find(x, "blk.1.ffn_gate_inp.weight")->type, LG_F32);
    t = find(d, "enc.aux_norm.weight");
    assert_true(t->type == LG_F32 && t->ne[0] == 2048 && t->ne[1] == 5);
    t = find(d, "fc.weight");
    assert_true(t->type == LG_BF16 && t->ne[0] == 10240 && t->ne[1] == 2048);
    lg_synth_destroy(s);
    lg_synth_destroy(x);
    lg_synth_destroy(d);
    lg_synth_destroy(NULL);
}

static void test_refusals(void **state)
{
    static const struct {
        lg_synth_params p;
        const char *want;
    } cases[] = {{{.arch = "m-1"}, "unknown architecture m-1"},
                 {{.arch = "s-2.1", .type = "q9"}, "unknown type q9"},
                 {{.arch = "s-2.1", .n_layer = 49}, "1 to 48"},
                 {{.arch = "s-2.1", .n_layer = -1}, "1 to 48"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lg_synth *s = NULL;
        lg_err err = {0};

        assert_int_equal(lg_synth_create(&cases[i].p, &s, &err), LG_E_INPUT);
        assert_non_null(strstr(err.msg, cases[i].want));
    }
}

static void test_mix_fallback(void **state)
{
    static const struct {
        const char *mix;
        uint64_t cols;
        lg_qtype want;
    } cases[] = {{"q2_k", 96, LG_Q4_0},    {"q4_k_m", 96, LG_Q5_0}, {"q5_k_m", 96, LG_Q5_1},
                 {"q6_k", 96, LG_Q8_0},    {"Q6_K", 100, LG_F16},   {"iq4_xs", 96, LG_IQ4_NL},
                 {"q4_k_m", 256, LG_Q4_K}, {"bf16", 100, LG_BF16}};
    lg_qtype t;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lg_mix *m = lg_mix_find(lg_str_of(cases[i].mix));
        assert_non_null(m);
        assert_true(lg_mix_type(m, LG_STR("blk.20.attn_q.weight"), 2, cases[i].cols, 40, &t));
        assert_int_equal(t, cases[i].want);
    }
    const lg_mix *m = lg_mix_find(LG_STR("q4_k_m"));
    static const char *const kept[] = {"output_norm.weight", "blk.3.ffn_gate_inp.weight",
                                       "blk.1.exp_probs_b.bias", "blk.1.exp_probs_b",
                                       "blk.9.ffn_up_exps.scale"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_false(lg_mix_type(m, lg_str_of(kept[i]), 2, 256, 40, &t));
    assert_false(lg_mix_type(m, LG_STR("blk.3.attn_q.weight"), 1, 256, 40, &t));
    // a layer number that is none must not be taken for one
    assert_true(lg_mix_type(m, LG_STR("blk.x.attn_v.weight"), 2, 256, 40, &t));
    assert_true(lg_mix_type(m, LG_STR("blk.99999999999999999999.attn_v.weight"), 2, 256, 40, &t));
    assert_null(lg_mix_find(LG_STR("")));
    // every name that a message offers exists
    char names[256];
    (void)snprintf(names, sizeof names, "%s", lg_mix_names());
    for (char *z = strtok(names, " "); z; z = strtok(NULL, " "))
        assert_non_null(lg_mix_find(lg_str_of(z)));
    for (uint32_t q = 0; q < LG_QTYPE_MAX; q++)
        if (lg_qtype_get(q)->runs)
            assert_non_null(lg_mix_find(lg_str_of(lg_qtype_get(q)->name)));
}

// --- the generator ---

static const lg_qtype all_types[] = {LG_F32,  LG_F16,    LG_BF16,   LG_Q8_0,  LG_Q4_0, LG_Q4_1,
                                     LG_Q5_0, LG_Q5_1,   LG_Q2_K,   LG_Q3_K,  LG_Q4_K, LG_Q5_K,
                                     LG_Q6_K, LG_IQ4_NL, LG_IQ4_XS, LG_MXFP4, LG_NVFP4};
enum { N_TYPES = sizeof all_types / sizeof *all_types };

static void test_slices(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        enum { N = 23 };
        size_t bytes = (size_t)lg_qtype_get((uint32_t)all_types[i])->block_bytes;
        uint8_t whole[N * 256], piece[256], other[256];

        lg_synth_fill(1, 5, all_types[i], 0, 0.02f, 1000, N, whole);
        for (uint64_t b = 0; b < N; b++) { // every block by itself, backwards
            lg_synth_fill(1, 5, all_types[i], 0, 0.02f, 1000 + N - 1 - b, 1, piece);
            assert_memory_equal(piece, whole + (N - 1 - b) * bytes, bytes);
        }
        int equal = 0; // another seed, tensor or block is another block
        lg_synth_fill(2, 5, all_types[i], 0, 0.02f, 1000, 1, other);
        equal += !memcmp(other, whole, bytes);
        lg_synth_fill(1, 6, all_types[i], 0, 0.02f, 1000, 1, other);
        equal += !memcmp(other, whole, bytes);
        equal += !memcmp(whole + bytes, whole, bytes);
        assert_int_equal(equal, 0);
    }
}

// The first blocks are written down: the generator stays what it is, on every machine, in every version.
static void test_fixed(void **state)
{
    uint8_t b[256];
    uint64_t sums[N_TYPES];
    static const uint64_t want[N_TYPES] = {
        0x4690882a661ca1a2, 0x8d3277e2c07ec265, 0xc3c733154aa81afa, 0xa91b943f86db3376, 0xcb9c9699e201da61,
        0x999a1044ce2ea232, 0x87ce0a6e395200e3, 0x12acac3e5d9697d6, 0x48ce5d53a41efe2d, 0xbdf4e7dad6fe6e4f,
        0xe7b7bfa070589383, 0xb885ff214b080d43, 0x956e5be80506d1ba, 0xae350f33d948b222, 0x5379443f7c2686af,
        0xd2951e569916e7f9, 0x19f06d1c3652b752};

    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        size_t bytes = (size_t)lg_qtype_get((uint32_t)all_types[i])->block_bytes;

        sums[i] = 0xCBF29CE484222325u;
        for (uint64_t k = 0; k < 64; k++) {
            lg_synth_fill(42, 3, all_types[i], 0, 0.02f, k, 1, b);
            for (size_t j = 0; j < bytes; j++)
                sums[i] = (sums[i] ^ b[j]) * 0x100000001B3u;
        }
        if (sums[i] != want[i])
            print_message("%s: 0x%016llx\n", lg_qtype_get((uint32_t)all_types[i])->name,
                          (unsigned long long)sums[i]);
    }
    assert_memory_equal(sums, want, sizeof sums);
}

static void test_statistics(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        const lg_qtype_info *t = lg_qtype_get((uint32_t)all_types[i]);
        int64_t n = 1 << 16;
        uint8_t *b = malloc((size_t)(n / t->block_elems * t->block_bytes));
        float *y = malloc((size_t)n * sizeof *y);
        double sum = 0, square = 0;

        lg_synth_fill(3, 1, all_types[i], 0, 0.02f, 0, (uint64_t)(n / t->block_elems), b);
        lg_dequant_row(all_types[i], b, y, n);
        for (int64_t k = 0; k < n; k++) {
            assert_true(isfinite(y[k]) && fabsf(y[k]) < 1.0f);
            sum += (double)y[k];
            square += (double)y[k] * (double)y[k];
        }
        double mean = sum / (double)n, spread = sqrt(square / (double)n - mean * mean);
        if (fabs(mean) > 0.004 || spread < 0.012 || spread > 0.035)
            fail_msg("%s: mean %.4f, spread %.4f", t->name, mean, spread);
        free(b);
        free(y);
    }
    // norms and router as asked for
    float norm[4096], bias[256];
    double sum = 0, square = 0;
    lg_synth_fill(3, 1, LG_F32, 1.0f, 0.05f, 0, 4096, norm);
    for (int k = 0; k < 4096; k++) {
        sum += (double)norm[k];
        square += ((double)norm[k] - 1) * ((double)norm[k] - 1);
    }
    assert_true(fabs(sum / 4096 - 1) < 0.005 && fabs(sqrt(square / 4096) - 0.05) < 0.003);
    lg_synth_fill(3, 1, LG_F32, 0.0f, 0.0f, 0, 256, bias);
    for (int k = 0; k < 256; k++)
        assert_true(bias[k] == 0.0f);
}

// f16 scales are normal numbers: subnormal ones are slow on some machines, and trained models have none.
static void test_scales(void **state)
{
    static const struct {
        lg_qtype type;
        int at[2];
    } halves[] = {{LG_Q8_0, {0, 0}}, {LG_Q4_0, {0, 0}},     {LG_Q4_1, {0, 2}},     {LG_Q5_0, {0, 0}},
                  {LG_Q5_1, {0, 2}}, {LG_Q2_K, {80, 82}},   {LG_Q3_K, {108, 108}}, {LG_Q4_K, {0, 2}},
                  {LG_Q5_K, {0, 2}}, {LG_Q6_K, {208, 208}}, {LG_IQ4_NL, {0, 0}},   {LG_IQ4_XS, {0, 0}}};

    (void)state;
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
        for (uint64_t k = 0; k < 2000; k++) {
            uint8_t b[256];

            lg_synth_fill(9, 2, halves[i].type, 0, 0.02f, k, 1, b);
            for (int h = 0; h < 2; h++) {
                int exp = b[halves[i].at[h] + 1] >> 2 & 31;
                assert_true(exp > 0 && exp < 31);
            }
        }
}

// --- whole models ---

static void check_vocab(const lg_gguf *g)
{
    const lg_gguf_kv *tokens = lg_gguf_find(g, "tokenizer.ggml.tokens"),
                     *merges = lg_gguf_find(g, "tokenizer.ggml.merges");
    const lg_gguf_kv *types = lg_gguf_find(g, "tokenizer.ggml.token_type");
    lg_str s, left, right;
    int64_t type, id;

    assert_true(tokens && merges && types && tokens->count == 100352 && merges->count == 100026 &&
                types->count == 100352);
    assert_true(lg_kv_elem_str(tokens, 2, &s) && lg_str_eqz(s, "\u3008|EOS|\u3009"));
    assert_true(lg_kv_elem_str(tokens, 12, &s) && lg_str_eqz(s, "\u3008|MASK|\u3009"));
    assert_true(lg_kv_elem_str(tokens, 19, &s) && lg_str_eqz(s, "</think>"));
    assert_true(lg_kv_elem_str(tokens, 24, &s) && lg_str_eqz(s, "</assistant>"));
    assert_true(lg_kv_elem_str(tokens, 27, &s) && lg_str_eqz(s, "\u3008|SPECIAL_8|\u3009"));
    assert_true(lg_kv_elem_str(tokens, 69, &s) && lg_str_eqz(s, "\u3008|SPECIAL_50|\u3009"));
    assert_true(lg_kv_elem_str(tokens, 70 + ' ', &s) && lg_str_eqz(s, "\u0120"));
    assert_true(lg_kv_elem_str(tokens, 70 + 'A', &s) && lg_str_eqz(s, "A"));
    assert_true(lg_kv_elem_i64(types, 19, &type) && type == 4);
    assert_true(lg_kv_elem_i64(types, 24, &type) && type == 3);
    assert_true(lg_kv_elem_i64(types, 100351, &type) && type == 1);
    assert_true(lg_kv_i64(lg_gguf_find(g, "tokenizer.ggml.eot_token_id"), &id) && id == 24);
    // merge i makes token 326 + i of two earlier tokens; no text occurs twice
    for (uint64_t i = 0; i < merges->count; i += 97) {
        assert_true(lg_kv_elem_str(merges, i, &s));
        size_t space = lg_str_find(s, LG_STR(" "), 0);
        assert_true(space != SIZE_MAX && lg_str_find(s, LG_STR(" "), space + 1) == SIZE_MAX);
        left = (lg_str){s.p, space};
        right = (lg_str){s.p + space + 1, s.n - space - 1};
        lg_str token;
        assert_true(lg_kv_elem_str(tokens, 326 + i, &token) && token.n == left.n + right.n);
        assert_true(!memcmp(token.p, left.p, left.n) && !memcmp(token.p + left.n, right.p, right.n));
        bool found[2] = {false, false};
        for (uint64_t k = 70; k < 326 + i && !(found[0] && found[1]); k++) {
            assert_true(lg_kv_elem_str(tokens, k, &s));
            found[0] = found[0] || lg_str_eq(s, left);
            found[1] = found[1] || lg_str_eq(s, right);
        }
        assert_true(found[0] && found[1]);
    }
}

static int by_text(const void *a, const void *b)
{
    const lg_str *x = a, *y = b;
    int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

static void test_file_and_memory(void **state)
{
    lg_synth *s = create("xs-2.1-dflash", "q4_0", 1);
    lg_synth_model m;
    lg_gguf *g = NULL;
    lg_pool *one = NULL, *two = NULL;
    lg_err err = {0};
    lg_map map;
    const char *path = scratch_path("synth.gguf");

    (void)state;
    assert_int_equal(lg_pool_create(1, &one, &err), LG_OK);
    assert_int_equal(lg_pool_create(3, &two, &err), LG_OK);
    assert_int_equal(lg_synth_write(s, path, &(lg_synth_job){.pool = two}, &err), LG_OK);
    assert_int_equal(lg_synth_make(s, &(lg_synth_job){.pool = one}, &m, &err), LG_OK);
    assert_int_equal(lg_map_open(path, &map, &err), LG_OK);
    assert_int_equal(map.n, m.bytes);
    assert_memory_equal(map.p, m.mem, m.bytes);
    lg_map_close(&map);
    assert_int_equal(lg_gguf_open(path, &g, &err), LG_OK);
    assert_int_equal(lg_gguf_n_tensors(g), lg_synth_n_tensors(s));
    const lg_gguf_tensor *t = lg_gguf_find_tensor(m.gguf, LG_STR("blk.0.ffn_up.weight"));
    uint8_t block[18]; // any block of the file can be made again
    uint32_t index = 0;
    while (strcmp(lg_synth_tensor_at(s, index)->name, "blk.0.ffn_up.weight"))
        index++;
    lg_synth_fill(7, index, LG_Q4_0, 0, 0.02f, 100000, 1, block);
    assert_memory_equal(block, t->data + 100000 * 18, 18);

    check_vocab(g);
    const lg_gguf_kv *tokens = lg_gguf_find(g, "tokenizer.ggml.tokens");
    lg_str *sorted = calloc(tokens->count, sizeof *sorted);
    for (uint64_t i = 0; i < tokens->count; i++)
        assert_true(lg_kv_elem_str(tokens, i, &sorted[i]));
    qsort(sorted, tokens->count, sizeof *sorted, by_text);
    for (uint64_t i = 1; i < tokens->count; i++)
        assert_int_not_equal(by_text(&sorted[i - 1], &sorted[i]), 0);
    free(sorted);
    lg_gguf_close(g);
    lg_synth_unmake(&m);

    // interruption and a full disk leave nothing
    atomic_bool cancel = true;
    (void)unlink(path);
    assert_int_equal(lg_synth_write(s, path, &(lg_synth_job){.pool = two, .cancel = &cancel}, &err),
                     LG_E_CANCELLED);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(lg_synth_make(s, &(lg_synth_job){.pool = two, .cancel = &cancel}, &m, &err),
                     LG_E_CANCELLED);
    if (access("/dev/full", W_OK) == 0)
        assert_int_equal(lg_synth_write(s, "/dev/full", &(lg_synth_job){.pool = two}, &err), LG_E_IO);
    lg_pool_destroy(one);
    lg_pool_destroy(two);
    lg_synth_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_totals),       cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_mix_fallback), cmocka_unit_test(test_slices),
        cmocka_unit_test(test_fixed),        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_scales),       cmocka_unit_test(test_file_and_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
