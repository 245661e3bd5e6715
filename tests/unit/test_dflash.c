/*
 * Tests of model/dflash beside the recorded logits (tests/golden/test_drafter.c): what the drafter must not
 * depend on (the scale of a tap, the number of drafts, how its context came in), what it must depend on (the
 * order of taps), the exact edge of the window, containers that are spelled otherwise, and files that are
 * refused.
 *
 * Variants of a drafter are made by writing the recorded file again with keys and tensors changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/registry.h"
#include "gguf/gguf_write.h"
#include "model/dflash.h"
#include "support/maker.h"
#include "support/scratch.h"

enum { CTX = 1024, ROWS = 128, VOCAB = 512, HIDDEN = 128, TAPS = 4, WINDOW = 512 };

static const char target_path[] = LG_TEST_DIR "/golden/laguna-tiny-s.gguf";
static const char plain_path[] = LG_TEST_DIR "/golden/laguna-tiny-s-dflash.gguf";
static const char nowin_path[] = LG_TEST_DIR "/golden/laguna-tiny-s-dflash-nowin.gguf";
static const char *path; // of the file that is written

// --- variants of a file ---

typedef struct variant {
    const char *skip_keys, *skip_tensors; // "|a|b|"
    void (*keys)(lg_gguf_writer *w);
    int layers;       // of the drafter; 0: all
    bool packed;      // q, k and v as one matrix, norms of taps one by one
    const char *more; // a tensor of one value that belongs nowhere
} variant;

static bool listed(const char *list, lg_str name)
{
    char what[128];

    (void)snprintf(what, sizeof what, "|%.*s|", (int)name.n, name.p);
    return list && strstr(list, what);
}

static bool left_out(const variant *v, const lg_gguf_tensor *t)
{
    char layer[16];

    for (int i = v->layers; v->layers > 0 && i < 8; i++) {
        (void)snprintf(layer, sizeof layer, "blk.%d.", i);
        if (lg_str_starts(t->name, lg_str_of(layer)))
            return true;
    }
    return listed(v->skip_tensors, t->name);
}

// The tensors of a packed file: each of them from one or more of the plain one.
static void packed_tensors(const lg_gguf *g, lg_gguf_writer *w, bool data)
{
    static const char *const part[] = {"attn_q", "attn_k", "attn_v"};
    char name[64];

    for (int l = 0; l < 3; l++) {
        uint64_t rows = 0, n_in = 0;
        for (int i = 0; i < 3; i++) {
            (void)snprintf(name, sizeof name, "blk.%d.%s.weight", l, part[i]);
            const lg_gguf_tensor *t = lg_gguf_find_tensor(g, lg_str_of(name));
            rows += t->ne[1];
            n_in = t->ne[0];
            if (data)
                assert_true(lg_gguf_write_data(w, t->data, t->bytes));
        }
        (void)snprintf(name, sizeof name, "blk.%d.attn_qkv.weight", l);
        if (!data)
            lg_gguf_put_tensor(w, lg_str_of(name), LG_BF16, 2, (uint64_t[]){n_in, rows});
    }
    const lg_gguf_tensor *t = lg_gguf_find_tensor(g, LG_STR("enc.aux_norm.weight"));
    for (int i = 0; i < TAPS; i++) {
        (void)snprintf(name, sizeof name, "enc.aux_norm.%d.weight", i);
        if (data)
            assert_true(lg_gguf_write_data(w, t->data + (size_t)i * HIDDEN * 4, HIDDEN * 4));
        else
            lg_gguf_put_tensor(w, lg_str_of(name), LG_F32, 1, (uint64_t[]){HIDDEN});
    }
}

static void write_variant(const char *from, const variant *v)
{
    variant with = *v;
    lg_gguf *g;
    lg_gguf_writer *w;
    const float one = 1;

    if (v->packed)
        with.skip_tensors = "|blk.0.attn_q.weight|blk.0.attn_k.weight|blk.0.attn_v.weight|blk.1.attn_q.weight"
                            "|blk.1.attn_k.weight|blk.1.attn_v.weight|blk.2.attn_q.weight|blk.2.attn_k.weight"
                            "|blk.2.attn_v.weight|enc.aux_norm.weight|";
    assert_int_equal(lg_gguf_open(from, &g, NULL), LG_OK);
    assert_int_equal(lg_gguf_write_open(path, &w, NULL), LG_OK);
    for (size_t i = 0; i < lg_gguf_n_kv(g); i++)
        if (!listed(v->skip_keys, lg_gguf_kv_at(g, i)->key))
            lg_gguf_put_copy(w, lg_gguf_kv_at(g, i));
    if (v->keys)
        v->keys(w);
    for (int data = 0; data < 2; data++) {
        for (size_t i = 0; i < lg_gguf_n_tensors(g); i++) {
            const lg_gguf_tensor *t = lg_gguf_tensor_at(g, i);
            if (left_out(&with, t))
                continue;
            if (data)
                assert_true(lg_gguf_write_data(w, t->data, t->bytes));
            else
                lg_gguf_put_tensor(w, t->name, t->type, t->n_dims, t->ne);
        }
        if (v->packed)
            packed_tensors(g, w, data);
        if (v->more && data)
            assert_true(lg_gguf_write_data(w, &one, sizeof one));
        else if (v->more)
            lg_gguf_put_tensor(w, lg_str_of(v->more), LG_F32, 1, (uint64_t[]){1});
        if (!data)
            assert_int_equal(lg_gguf_write_begin(w, NULL), LG_OK);
    }
    assert_int_equal(lg_gguf_write_finish(w, NULL), LG_OK);
    lg_gguf_close(g);
}

// --- a drafter with its target's embedding and head ---

typedef struct rig {
    lg_backend *b;
    lg_gguf *target_file, *file;
    lg_hparams thp;
    lg_dflash_params hp;
    lg_laguna target;
    lg_dflash draft;
    lg_kv_class kv[LG_KV_CLASSES];
    lg_work work;
    lg_dflash_work dwork;
    int32_t table[CTX / LG_KV_BLOCK];
    float *taps; // [CTX][TAPS][HIDDEN]
} rig;

static rig set_up(const char *file)
{
    lg_work_params work = {.max_rows = ROWS, .max_out = 16, .max_cand = LG_KV_BLOCK};
    uint64_t seed = 11;
    rig r = {0};

    assert_int_equal(
        lg_backend_open(&(lg_backend_params){.device = "cpu", .threads = 1, .isa = ""}, &r.b, NULL), LG_OK);
    assert_int_equal(lg_gguf_open(target_path, &r.target_file, NULL), LG_OK);
    assert_int_equal(lg_gguf_open(file, &r.file, NULL), LG_OK);
    assert_int_equal(lg_hparams_read(r.target_file, NULL, &r.thp, NULL), LG_OK);
    assert_int_equal(lg_weights_load(r.target_file, &r.thp, r.b, NULL, NULL, &r.target, NULL), LG_OK);
    assert_int_equal(lg_dflash_read(r.file, &r.thp, &r.hp, NULL), LG_OK);
    assert_int_equal(lg_dflash_load(r.file, &r.hp, LG_DRAFT_STORED, r.b, &r.draft, NULL), LG_OK);
    work.n_tap = r.hp.n_tap;
    work.tap_layer = r.hp.tap;
    lg_limits lim = lg_laguna_limits(&r.thp, &work, CTX);
    lg_dflash_limits(&r.hp, &lim);
    assert_int_equal(r.b->ops->prepare(r.b, &lim, NULL), LG_OK);
    assert_int_equal(lg_work_create(r.b, &r.thp, &work, &r.work, NULL), LG_OK);
    assert_int_equal(lg_dflash_work_create(r.b, &r.hp, ROWS, &r.dwork, NULL), LG_OK);
    lg_kv_class *c = &r.kv[LG_KV_DRAFT];
    *c = lg_dflash_kv_shape(&r.hp, LG_F32);
    c->n_blocks = CTX / LG_KV_BLOCK;
    for (int i = 0; i < c->n_blocks; i++)
        r.table[i] = i;
    assert_int_equal(r.b->ops->alloc(r.b, c->block_bytes * (size_t)c->n_blocks, &c->mem, NULL), LG_OK);
    r.taps = malloc(sizeof(float) * CTX * TAPS * HIDDEN);
    for (size_t i = 0; i < (size_t)CTX * TAPS * HIDDEN; i++)
        r.taps[i] = (float)mk_normal(&seed) * (i / HIDDEN % TAPS == TAPS - 1 ? 300.0f : 1.0f);
    return r;
}

static void tear_down(rig *r)
{
    free(r->taps);
    r->b->ops->release(r->b, &r->kv[LG_KV_DRAFT].mem);
    lg_dflash_work_release(r->b, &r->dwork);
    lg_work_release(r->b, &r->work);
    lg_dflash_unload(r->b, &r->draft);
    lg_weights_unload(r->b, &r->target);
    lg_gguf_close(r->file);
    lg_gguf_close(r->target_file);
    lg_backend_close(r->b);
}

static lg_step step_at(const rig *r, lg_graph graph, int pos, int n)
{
    lg_step s = {.graph = graph, .n_rows = n, .pos = pos};

    s.table[LG_KV_DRAFT] = r->table;
    s.n_table[LG_KV_DRAFT] = CTX / LG_KV_BLOCK;
    return s;
}

static void inject(rig *r, int from, int to, int piece)
{
    size_t row = sizeof(float) * TAPS * HIDDEN;
    lg_mem taps = {.p = r->work.taps.p, .bytes = ROWS * row};

    for (int at = from; at < to; at += piece) {
        int n = to - at < piece ? to - at : piece;
        lg_step s = step_at(r, LG_GRAPH_INJECT, at, n);
        assert_int_equal(r->b->ops->upload(r->b, &taps, 0, r->taps + (size_t)at * TAPS * HIDDEN,
                                           (size_t)n * row, NULL),
                         LG_OK);
        assert_int_equal(lg_dflash_inject(r->b, &r->draft, r->kv, &r->work, &r->dwork, &s, NULL), LG_OK);
    }
}

// Logits of rows 1 .. n of a block at `pos`.
static void draft(rig *r, int pos, int n, float *logits)
{
    int32_t ids[16], out[16];
    lg_step s = step_at(r, LG_GRAPH_DRAFT, pos, n + 1);

    for (int i = 0; i <= n; i++) {
        ids[i] = i == 0 ? 77 : r->hp.mask_id;
        out[i] = i + 1;
    }
    s.ids = ids;
    s.out_rows = out;
    s.n_out = n;
    s.n_cand = 1;
    assert_int_equal(lg_dflash_draft(r->b, &r->draft, &r->target, r->kv, &r->work, &r->dwork, &s, NULL),
                     LG_OK);
    memcpy(logits, r->work.logits.p, sizeof(float) * VOCAB * (size_t)n);
}

static double distance(const float *a, const float *b, int n)
{
    double max = 0;

    for (int i = 0; i < n * VOCAB; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        max = d <= max ? max : d; // NaN wins
    }
    return max;
}

static float la[15 * VOCAB], lb[15 * VOCAB];

// --- what must not and what must matter ---

static void scale_of_a_tap(void **state)
{
    rig r = set_up(plain_path);

    (void)state;
    inject(&r, 0, 60, ROWS);
    draft(&r, 60, 7, la);
    for (int tap = 0; tap < TAPS; tap++) {
        for (int i = 0; i < 60; i++)
            for (int k = 0; k < HIDDEN; k++)
                r.taps[(i * TAPS + tap) * HIDDEN + k] *= 0x1p20f;
        inject(&r, 0, 60, ROWS);
        draft(&r, 60, 7, lb);
        assert_true(distance(la, lb, 7) < 1e-4);
    }
    tear_down(&r);
}

static void order_of_taps(void **state)
{
    rig r = set_up(plain_path);

    (void)state;
    inject(&r, 0, 60, ROWS);
    draft(&r, 60, 7, la);
    for (int i = 0; i < 60; i++)
        for (int k = 0; k < HIDDEN; k++) {
            float *row = r.taps + (size_t)i * TAPS * HIDDEN, keep = row[k];
            row[k] = row[HIDDEN + k];
            row[HIDDEN + k] = keep;
        }
    inject(&r, 0, 60, ROWS);
    draft(&r, 60, 7, lb);
    assert_true(distance(la, lb, 7) > 1e-2);
    // and a context that is one position late
    draft(&r, 61, 7, la);
    assert_true(distance(la, lb, 7) > 1e-2);
    tear_down(&r);
}

static void number_of_drafts(void **state)
{
    rig r = set_up(plain_path);

    (void)state;
    inject(&r, 0, 90, ROWS);
    draft(&r, 90, 15, la);
    for (int n = 1; n < 15; n++) {
        draft(&r, 90, n, lb);
        assert_memory_equal(la, lb, sizeof(float) * VOCAB * (size_t)n);
    }
    tear_down(&r);
}

// A block leaves nothing behind, and pieces of whatever size make the same context.
static void pieces(void **state)
{
    static const int sizes[] = {1, 5, 16};
    rig r = set_up(plain_path);
    size_t bytes = r.kv[LG_KV_DRAFT].block_bytes * 2;
    void *want = malloc(bytes);

    (void)state;
    inject(&r, 0, 80, 16);
    draft(&r, 80, 15, la);
    inject(&r, 80, 128, 16);
    memcpy(want, r.kv[LG_KV_DRAFT].mem.p, bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(r.kv[LG_KV_DRAFT].mem.p, 0x7f, bytes);
        inject(&r, 0, 128, sizes[i]);
        assert_memory_equal(want, r.kv[LG_KV_DRAFT].mem.p, bytes);
    }
    // more than 16 rows at once need not have the same bits
    inject(&r, 0, 128, 64);
    draft(&r, 80, 15, lb);
    assert_true(distance(la, lb, 15) < 1e-3);
    free(want);
    tear_down(&r);
}

static void change_row(rig *r, int pos)
{
    for (int k = 0; k < TAPS * HIDDEN; k++)
        r->taps[(size_t)pos * TAPS * HIDDEN + (size_t)k] += (float)(k % 7) - 3.0f;
    inject(r, pos, pos + 1, 1);
}

static bool row_changed(int row)
{
    return memcmp(la + (size_t)(row - 1) * VOCAB, lb + (size_t)(row - 1) * VOCAB, sizeof(float) * VOCAB) != 0;
}

// Without the window's keys the window is 512. Row r at P + r sees the position P + r - 511 and none before.
static void window_edge(void **state)
{
    const int p = 600;
    rig r = set_up(nowin_path);

    (void)state;
    assert_int_equal(r.hp.window, WINDOW);
    inject(&r, 0, p, ROWS);
    draft(&r, p, 15, la);
    change_row(&r, p - WINDOW); // the oldest viewer, row 0, is past it
    draft(&r, p, 15, lb);
    for (int row = 1; row <= 15; row++)
        assert_false(row_changed(row));
    change_row(&r, p - WINDOW + 1); // row 0 sees it, and through row 0 the later ones of a deep drafter
    draft(&r, p, 15, lb);
    assert_true(row_changed(1));
    tear_down(&r);
}

static void one_layer_keys(lg_gguf_writer *w)
{
    lg_gguf_put_u32(w, "dflash.block_count", 1);
}

static void window_edge_by_row(void **state)
{
    const int p = 600;

    (void)state;
    write_variant(nowin_path, &(variant){.layers = 1, .keys = one_layer_keys,
                                         .skip_keys = "|dflash.block_count|"});
    rig r = set_up(path);
    inject(&r, 0, p, ROWS);
    for (int row = 1; row <= 15; row += 7) {
        draft(&r, p, 15, la);
        change_row(&r, p + row - WINDOW);
        draft(&r, p, 15, lb);
        assert_false(row_changed(row));
        draft(&r, p, 15, la);
        change_row(&r, p + row - WINDOW + 1);
        draft(&r, p, 15, lb);
        assert_true(row_changed(row));
    }
    tear_down(&r);
}

static void other_spellings(void **state)
{
    rig r = set_up(plain_path);

    (void)state;
    inject(&r, 0, 60, ROWS);
    draft(&r, 60, 7, la);
    tear_down(&r);
    write_variant(plain_path, &(variant){.packed = true});
    r = set_up(path);
    inject(&r, 0, 60, ROWS);
    draft(&r, 60, 7, lb);
    tear_down(&r);
    assert_memory_equal(la, lb, sizeof(float) * VOCAB * 7);
}

// --- refused files ---

static void refused(const variant *v, const char *part)
{
    lg_gguf *g, *target;
    lg_hparams thp;
    lg_dflash_params hp;
    lg_weights_plan plan;
    lg_err err = {0};

    write_variant(plain_path, v);
    assert_int_equal(lg_gguf_open(target_path, &target, NULL), LG_OK);
    assert_int_equal(lg_hparams_read(target, NULL, &thp, NULL), LG_OK);
    assert_int_equal(lg_gguf_open(path, &g, NULL), LG_OK);
    lg_status st = lg_dflash_read(g, &thp, &hp, &err);
    if (st == LG_OK)
        st = lg_dflash_check(g, &hp, LG_DRAFT_Q8_0, NULL, &plan, &err);
    assert_true(st == LG_E_INPUT || st == LG_E_UNSUPPORTED);
    assert_string_equal(err.subject, path);
    if (!strstr(err.msg, part))
        fail_msg("'%s' does not hold '%s'", err.msg, part);
    lg_gguf_close(g);
    lg_gguf_close(target);
}

static void taps_of(lg_gguf_writer *w, const int32_t *id, uint64_t n)
{
    lg_gguf_put_array(w, "dflash.target_layers", LG_GV_I32, id, n);
}

static void taps_past_the_end(lg_gguf_writer *w)
{
    taps_of(w, (int32_t[]){1, 3, 6, 9}, 4);
}

static void taps_not_ascending(lg_gguf_writer *w)
{
    taps_of(w, (int32_t[]){1, 6, 3, 8}, 4);
}

static void taps_from_zero(lg_gguf_writer *w)
{
    taps_of(w, (int32_t[]){0, 2, 5, 7}, 4);
}

static void too_few_taps(lg_gguf_writer *w)
{
    taps_of(w, (int32_t[]){1, 3, 6}, 3);
}

static void wide(lg_gguf_writer *w)
{
    lg_gguf_put_u32(w, "dflash.embedding_length", 256);
}

static void more_words(lg_gguf_writer *w)
{
    lg_gguf_put_u32(w, "dflash.vocab_size", 513);
}

static void more_layers(lg_gguf_writer *w)
{
    lg_gguf_put_u32(w, "dflash.num_target_layers", 48);
}

static void not_causal(lg_gguf_writer *w)
{
    lg_gguf_put_bool(w, "dflash.attention.causal", false);
}

static void mask_of(lg_gguf_writer *w)
{
    lg_gguf_put_u32(w, "tokenizer.ggml.mask_token_id", 512);
}

static void other_decoder(lg_gguf_writer *w)
{
    lg_gguf_put_str(w, "dflash.decoder_arch", LG_STR("mimo"));
}

static void other_arch(lg_gguf_writer *w)
{
    lg_gguf_put_str(w, "general.architecture", LG_STR("eagle"));
}

static void refused_files(void **state)
{
    static const struct {
        variant v;
        const char *part;
    } row[] = {
        {{.skip_tensors = "|enc.aux_norm.weight|"}, "tensor enc.aux_norm.weight is missing"},
        {{.skip_tensors = "|blk.2.attn_gate.weight|"}, "tensor blk.2.attn_gate.weight is missing"},
        {{.more = "blk.0.attn_sink"}, "tensor blk.0.attn_sink is not part"},
        {{.skip_keys = "|dflash.target_layers|"}, "dflash.target_layers is missing"},
        {{.skip_keys = "|dflash.target_layers|", .keys = taps_past_the_end}, "names layer 9"},
        {{.skip_keys = "|dflash.target_layers|", .keys = taps_from_zero}, "names layer 0"},
        {{.skip_keys = "|dflash.target_layers|", .keys = taps_not_ascending}, "ascending"},
        {{.skip_keys = "|dflash.target_layers|", .keys = too_few_taps}, "enc.aux_norm.weight has shape"},
        {{.skip_keys = "|dflash.embedding_length|", .keys = wide}, "hidden size is 256, the model's 128"},
        {{.skip_keys = "|dflash.vocab_size|", .keys = more_words}, "513 entries, the model's 512"},
        {{.keys = more_layers}, "48 layers, the model has 8"},
        {{.keys = not_causal}, "causal"},
        {{.skip_keys = "|tokenizer.ggml.mask_token_id|"}, "mask_token_id is missing"},
        {{.skip_keys = "|tokenizer.ggml.mask_token_id|", .keys = mask_of}, "mask_token_id is 512"},
        {{.skip_keys = "|dflash.decoder_arch|", .keys = other_decoder}, "decoder_arch"},
        {{.skip_keys = "|general.architecture|", .keys = other_arch}, "\"eagle\" is no drafter"},
        {{.skip_keys = "|dflash.block_size|"}, "block_size is missing"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        refused(&row[i].v, row[i].part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale_of_a_tap),     cmocka_unit_test(order_of_taps),
        cmocka_unit_test(number_of_drafts),   cmocka_unit_test(pieces),
        cmocka_unit_test(window_edge),        cmocka_unit_test(window_edge_by_row),
        cmocka_unit_test(other_spellings),    cmocka_unit_test(refused_files),
    };

    path = scratch_path("dflash.gguf");
    return cmocka_run_group_tests_name("dflash", tests, NULL, NULL);
}
