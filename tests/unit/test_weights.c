/*
 * Tests of model/weights: every shape is checked with a reason, every tensor is claimed or refused by name,
 * older names and stray singleton dimensions are accepted, and a load that fails half-way gives everything
 * back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/laguna.h"
#include "support/maker.h"
#include "support/scratch.h"

static const char *path; // of the file that is written

static mk_model small(void)
{
    mk_model m = mk_default(NULL);

    m.n_layer = 4;
    m.hidden = 64;
    m.heads_full = 4;
    m.heads_window = 6;
    m.n_kv_head = 2;
    m.ffn_dense = 96;
    m.ffn_expert = m.ffn_shared = 64;
    m.vocab = 64;
    return m;
}

// One change to one tensor; ne 0 keeps a dimension.
typedef struct change {
    const char *name, *rename;
    int n_dims; // -1: leave it out; 0: keep
    uint64_t ne[4];
    int type; // -1: keep
} change;

static void apply(void *arg, char *name, lg_qtype *type, int *n_dims, uint64_t ne[4])
{
    const change *c = arg;

    if (strcmp(name, c->name) != 0)
        return;
    if (c->rename)
        (void)snprintf(name, 96, "%s", c->rename);
    if (c->type >= 0)
        *type = (lg_qtype)c->type;
    if (c->n_dims < 0)
        *n_dims = 0;
    if (c->n_dims > 0)
        *n_dims = c->n_dims;
    for (int i = 0; i < 4; i++)
        if (c->ne[i])
            ne[i] = c->ne[i];
}

static mk_model changed(mk_model m, change *c)
{
    m.shape = apply;
    m.arg = c;
    return m;
}

static lg_status check_file(const mk_model *m, lg_hparams *hp, lg_weights_plan *plan, lg_err *err)
{
    lg_gguf *g;
    lg_status st;

    *err = (lg_err){0};
    assert_true(mk_write(m, path));
    assert_int_equal(lg_gguf_open(path, &g, err), LG_OK);
    assert_int_equal(lg_hparams_read(g, NULL, hp, err), LG_OK);
    st = lg_weights_check(g, hp, NULL, plan, err);
    lg_gguf_close(g);
    return st;
}

static lg_hparams good(const mk_model *m)
{
    lg_hparams hp;
    lg_weights_plan plan;
    lg_err err;

    if (check_file(m, &hp, &plan, &err) != LG_OK)
        fail_msg("%s", err.msg);
    return hp;
}

static char warning[512];

static void on_log(void *ctx, lg_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)snprintf(warning + strlen(warning), sizeof warning - strlen(warning), "%s\n", line);
}

// The file loads, and what is said about its names is one line with these words; NULL: nothing is said.
static void older(const mk_model *m, const char *words)
{
    lg_hparams hp;
    lg_weights_plan plan;
    lg_err err;

    if (check_file(m, &hp, &plan, &err) != LG_OK)
        fail_msg("%s", err.msg);
    warning[0] = 0;
    lg_log_set_sink(on_log, NULL);
    lg_weights_warn(&plan);
    lg_log_set_sink(NULL, NULL);
    if (!words)
        assert_string_equal(warning, "");
    else if (!strstr(warning, words) || strchr(warning, '\n') != strrchr(warning, '\n'))
        fail_msg("\"%s\" is not one line with \"%s\"", warning, words);
}

static void bad(change c, lg_status code, const char *words)
{
    mk_model m = changed(small(), &c);
    lg_hparams hp;
    lg_weights_plan plan;
    lg_err err;

    assert_int_equal(check_file(&m, &hp, &plan, &err), code);
    assert_string_equal(err.subject, path);
    if (!strstr(err.msg, words))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, words);
}

static void healthy(void **state)
{
    mk_model m = small();
    lg_hparams hp;
    lg_weights_plan plan;
    lg_err err;

    (void)state;
    assert_int_equal(check_file(&m, &hp, &plan, &err), LG_OK);
    assert_false(hp.layer[1].elem_gate);
    // one MoE layer's experts alone: 3 stacks of 8 matrices of 64 x 64
    assert_true(plan.stored_bytes > 3 * 3 * 8 * 64 * 64 * 4);
    assert_int_equal(plan.extra_bytes, 0);
    assert_int_equal(plan.resident_bytes, plan.stored_bytes);
    m.tied = true;
    (void)good(&m);
    m.tied = false;
    m.ffn_shared = 0;
    (void)good(&m);
    m.ffn_shared = 64;
    m.elem_gate = true;
    hp = good(&m);
    assert_true(hp.layer[0].elem_gate && hp.layer[3].elem_gate);
}

static void shapes(void **state)
{
    (void)state;
    bad((change){"blk.3.attn_q.weight", NULL, 0, {0, 200}, -1}, LG_E_INPUT,
        "tensor blk.3.attn_q.weight has shape [64, 200]; the head count 6 needs [64, 192]");
    bad((change){"blk.0.attn_q.weight", NULL, 0, {0, 192}, -1}, LG_E_INPUT,
        "the head count 4 needs [64, 128]");
    bad((change){"blk.1.attn_k.weight", NULL, 0, {0, 96}, -1}, LG_E_INPUT,
        "the KV head count 2 needs [64, 64]");
    bad((change){"blk.1.attn_v.weight", NULL, 0, {32, 0}, -1}, LG_E_INPUT,
        "the hidden size 64 needs [64, 64]");
    bad((change){"blk.1.attn_gate.weight", NULL, 0, {0, 7}, -1}, LG_E_INPUT,
        "the head count 6 needs [64, 6]");
    bad((change){"blk.1.attn_q_norm.weight", NULL, 0, {64}, -1}, LG_E_INPUT, "the head size 32 needs [32]");
    bad((change){"blk.2.ffn_gate_exps.weight", NULL, 0, {0, 0, 7}, -1}, LG_E_INPUT,
        "the expert count 8 needs [64, 64, 8]");
    bad((change){"blk.2.ffn_gate_exps.weight", NULL, 2, {0, 512, 1}, -1}, LG_E_INPUT, "has shape [64, 512]");
    bad((change){"blk.2.ffn_gate_inp.weight", NULL, 0, {0, 9}, -1}, LG_E_INPUT, "the expert count 8");
    bad((change){"blk.2.exp_probs_b.bias", NULL, 0, {9}, -1}, LG_E_INPUT, "the expert count 8 needs [8]");
    bad((change){"blk.2.ffn_up_shexp.weight", NULL, 0, {0, 32}, -1}, LG_E_INPUT,
        "the shared expert's width 64");
    bad((change){"blk.0.ffn_down.weight", NULL, 0, {32, 0}, -1}, LG_E_INPUT, "the feed-forward length 96");
    bad((change){"output.weight", NULL, 0, {0, 65}, -1}, LG_E_INPUT, "the vocabulary size 64 needs [64, 64]");
    bad((change){"token_embd.weight", NULL, 3, {0, 0, 2}, -1}, LG_E_INPUT, "has shape [64, 64, 2]");
    bad((change){"output_norm.weight", NULL, 0, {32}, -1}, LG_E_INPUT, "the hidden size 64 needs [64]");
}

static void types(void **state)
{
    mk_model m = small(), k;
    change c = {"blk.1.attn_norm.weight", NULL, 0, {0}, LG_F16};

    (void)state;
    k = changed(m, &c);
    (void)good(&k);
    c = (change){"blk.1.exp_probs_b.bias", NULL, 0, {0}, LG_BF16};
    k = changed(m, &c);
    (void)good(&k);
    c = (change){"blk.1.ffn_gate_inp.weight", NULL, 0, {0}, LG_BF16};
    k = changed(m, &c);
    (void)good(&k);
    bad((change){"blk.1.ffn_norm.weight", NULL, 0, {0}, LG_Q8_0}, LG_E_UNSUPPORTED,
        "blk.1.ffn_norm.weight has type Q8_0; F32, F16 or BF16 is needed there");
    bad((change){"blk.1.ffn_gate_inp.weight", NULL, 0, {0}, LG_Q8_0}, LG_E_UNSUPPORTED,
        "ffn_gate_inp.weight has type Q8_0");
}

static void names(void **state)
{
    mk_model m = small(), k;
    change c = {"blk.1.attn_gate.weight", "blk.1.attn_g.weight", 0, {0}, -1};

    (void)state;
    k = changed(m, &c);
    older(&k, "attn_g.weight is an older name of attn_gate.weight; 1 tensor is read that way");
    c = (change){"blk.1.exp_probs_b.bias", "blk.1.exp_probs_b", 0, {0}, -1};
    k = changed(m, &c);
    older(&k, "exp_probs_b is an older name of exp_probs_b.bias;");
    c = (change){"blk.1.exp_probs_b.bias", "blk.1.e_score_correction_bias", 0, {0}, -1};
    k = changed(m, &c);
    older(&k, "e_score_correction_bias is an older name of exp_probs_b.bias;");
    c = (change){"blk.1.exp_probs_b.bias", "blk.1.e_score_correction", 0, {0}, -1};
    k = changed(m, &c);
    older(&k, "e_score_correction is an older name of exp_probs_b.bias;");
    older(&m, NULL);
    c = (change){"blk.1.attn_gate.weight", NULL, 3, {64, 1, 6}, -1}; // a stray singleton dimension
    k = changed(m, &c);
    (void)good(&k);
    c = (change){"blk.1.exp_probs_b.bias", NULL, 2, {1, 8}, -1};
    k = changed(m, &c);
    (void)good(&k);
    bad((change){"blk.2.attn_v.weight", NULL, -1, {0}, -1}, LG_E_INPUT,
        "tensor blk.2.attn_v.weight is missing");
    bad((change){"token_embd.weight", NULL, -1, {0}, -1}, LG_E_INPUT, "tensor token_embd.weight is missing");
    bad((change){"blk.2.exp_probs_b.bias", NULL, -1, {0}, -1}, LG_E_INPUT,
        "tensor blk.2.exp_probs_b.bias is missing");
    bad((change){"blk.2.attn_v.weight", "blk.2.attn_vv.weight", 0, {0}, -1}, LG_E_INPUT,
        "attn_v.weight is missing");
    bad((change){"blk.2.ffn_gate_exps.weight", "blk.2.ffn_up_gate_exps.weight", 0, {0}, -1}, LG_E_UNSUPPORTED,
        "the experts of layer 2 are stored with gate and up merged");
}

static float scales[8];
static uint64_t n_scales;

static void add_scale(void *arg, lg_gguf_writer *w, bool data)
{
    const char *const *names = arg;

    for (int i = 0; names[i]; i++) {
        if (data)
            assert_true(lg_gguf_write_data(w, scales, n_scales * sizeof *scales));
        else
            lg_gguf_put_tensor(w, lg_str_of(names[i]), LG_F32, 1, &n_scales);
    }
}

static void strangers_and_scales(void **state)
{
    const char *alien[] = {"blk.1.attn_sinks.weight", NULL}, *beyond[] = {"blk.4.attn_norm.weight", NULL};
    const char *ok[] = {"blk.1.attn_q.scale", "blk.1.attn_q.input_scale", "output.scale", NULL};
    const char *stack[] = {"blk.1.ffn_up_exps.scale", NULL};
    mk_model m = small();
    lg_hparams hp;
    lg_weights_plan plan;
    lg_err err;

    (void)state;
    n_scales = 1;
    m.more = add_scale;
    m.arg = alien;
    assert_int_equal(check_file(&m, &hp, &plan, &err), LG_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "tensor blk.1.attn_sinks.weight is not part of"));
    m.arg = beyond;
    assert_int_equal(check_file(&m, &hp, &plan, &err), LG_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "blk.4.attn_norm.weight"));
    scales[0] = 0.5f;
    m.arg = ok;
    (void)good(&m);
    n_scales = 8;
    m.arg = stack;
    for (int i = 0; i < 8; i++)
        scales[i] = 2;
    (void)good(&m);
    scales[7] = 3; // experts may differ
    (void)good(&m);
    scales[7] = INFINITY;
    assert_int_equal(check_file(&m, &hp, &plan, &err), LG_E_INPUT);
    assert_non_null(strstr(err.msg, "ffn_up_exps.scale holds a value that is not finite"));
    m.arg = ok; // a plain matrix has one
    assert_int_equal(check_file(&m, &hp, &plan, &err), LG_E_INPUT);
    m.arg = stack;
    n_scales = 2;
    assert_int_equal(check_file(&m, &hp, &plan, &err), LG_E_INPUT);
}

// A backend that can load a given number of weights, and counts what is held.
static int held, loads_left;

static lg_status fake_load(lg_backend *b, const lg_source *src, lg_use use, lg_weight *out, lg_err *err)
{
    (void)b;
    if (loads_left-- == 0)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for %.*s", (int)src->name.n, src->name.p);
    held++;
    *out = (lg_weight){.type = src->type,
                       .use = use,
                       .n_in = (int)src->ne[0],
                       .n_out = (int)src->ne[1],
                       .n_expert = (int)src->ne[2],
                       .scale = src->scale,
                       .data = src->data,
                       .mem = {.p = malloc(1), .bytes = 1}};
    return LG_OK;
}

static void fake_unload(lg_backend *b, lg_weight *w)
{
    (void)b;
    held -= w->mem.p != NULL;
    free(w->mem.p);
    *w = (lg_weight){0};
}

static void count_progress(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *last = ctx;

    assert_true(done >= *last && done <= total);
    *last = done;
}

static void loading(void **state)
{
    static const lg_ops ops = {.load = fake_load, .unload = fake_unload};
    lg_backend b = {.ops = &ops};
    mk_model m = small();
    lg_hparams hp;
    lg_weights_plan plan;
    lg_laguna model;
    lg_gguf *g;
    lg_err err = {0};
    uint64_t last = 0;

    (void)state;
    assert_true(mk_write(&m, path));
    assert_int_equal(lg_gguf_open(path, &g, &err), LG_OK);
    assert_int_equal(lg_hparams_read(g, NULL, &hp, &err), LG_OK);
    assert_int_equal(lg_weights_check(g, &hp, NULL, &plan, &err), LG_OK);
    int n = (int)lg_gguf_n_tensors(g);
    for (int i = 0; i < n; i++) {
        loads_left = i;
        err = (lg_err){0};
        assert_int_equal(lg_weights_load(g, &hp, &b, NULL, NULL, &model, &err), LG_E_NOMEM);
        assert_int_equal(held, 0);
    }
    loads_left = -1;
    assert_int_equal(lg_weights_load(g, &hp, &b, count_progress, &last, &model, &err), LG_OK);
    assert_int_equal(held, n);
    assert_int_equal(last, plan.stored_bytes);
    assert_int_equal(model.layer[2].exp_down.n_in, 64);
    assert_int_equal(model.layer[2].router.use, LG_USE_ROUTER);
    assert_null(model.layer[2].ffn_gate.data);
    assert_null(model.layer[0].exp_gate.data);
    lg_weights_unload(&b, &model);
    assert_int_equal(held, 0);
    lg_gguf_close(g);
}

static void tied_head(void **state)
{
    static const lg_ops ops = {.load = fake_load, .unload = fake_unload};
    lg_backend b = {.ops = &ops};
    mk_model m = small();
    lg_hparams hp;
    lg_weights_plan plan;
    lg_laguna model;
    lg_gguf *g;

    (void)state;
    m.tied = true;
    loads_left = -1;
    assert_true(mk_write(&m, path));
    assert_int_equal(lg_gguf_open(path, &g, NULL), LG_OK);
    assert_int_equal(lg_hparams_read(g, NULL, &hp, NULL), LG_OK);
    assert_int_equal(lg_weights_check(g, &hp, NULL, &plan, NULL), LG_OK);
    assert_int_equal(lg_weights_load(g, &hp, &b, NULL, NULL, &model, NULL), LG_OK);
    assert_ptr_equal(model.output.data, model.embed.data);
    assert_int_equal(model.embed.use, LG_USE_EMBED_LINEAR);
    lg_weights_unload(&b, &model);
    assert_int_equal(held, 0);
    lg_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy),
        cmocka_unit_test(shapes),
        cmocka_unit_test(types),
        cmocka_unit_test(names),
        cmocka_unit_test(strangers_and_scales),
        cmocka_unit_test(loading),
        cmocka_unit_test(tied_head),
    };

    path = scratch_path("weights.gguf");
    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
