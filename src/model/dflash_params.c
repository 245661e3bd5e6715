/*
 * model/dflash_params: metadata of a drafter -> validated configuration, checked against its target
 * (dflash.md 1 to 3, 6).
 *
 * Two dialects: arch `dflash` (the publisher's) and `dflash-draft`. What they agree on is read under the
 * prefix of the arch; the rest has its row in a table of names.
 *
 * What surprises: the first published drafter lacks the window's key. Without a window it would still load
 * and draft nonsense on long prompts, so a Laguna drafter without the key has a window of 512.
 */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "model/dflash.h"

enum { WINDOW_DEFAULT = 512, FFN_MAX = 1 << 20, WINDOW_MAX = 1 << 24, HEADS_MAX = 1024 };

typedef struct reader {
    const lg_gguf *g;
    const lg_hparams *target;
    bool draft_arch; // the dialect `dflash-draft`
    lg_err *err;
} reader;

static const char *arch_of(const reader *r)
{
    return r->draft_arch ? "dflash-draft" : "dflash";
}

static const lg_gguf_kv *find(const reader *r, const char *name)
{
    char key[128];

    (void)snprintf(key, sizeof key, "%s.%s", arch_of(r), name);
    return lg_gguf_find(r->g, key);
}

static lg_status missing(const reader *r, const char *name)
{
    return LG_FAIL(r->err, LG_E_INPUT, "%s.%s is missing", arch_of(r), name);
}

static lg_status int_of(const reader *r, const lg_gguf_kv *kv, int64_t lo, int64_t hi, int *out)
{
    int64_t v;

    if (!lg_kv_i64(kv, &v))
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s is not an integer", (int)kv->key.n, kv->key.p);
    if (v < lo || v > hi)
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s is %lld; it must be %lld to %lld", (int)kv->key.n, kv->key.p,
                       (long long)v, (long long)lo, (long long)hi);
    *out = (int)v;
    return LG_OK;
}

static lg_status need_int(const reader *r, const char *name, int lo, int hi, int *out)
{
    const lg_gguf_kv *kv = find(r, name);

    return kv ? int_of(r, kv, lo, hi, out) : missing(r, name);
}

static lg_status opt_int(const reader *r, const char *name, int lo, int hi, int absent, int *out)
{
    *out = absent;
    return find(r, name) ? need_int(r, name, lo, hi, out) : LG_OK;
}

static lg_status opt_float(const reader *r, const char *name, double lo, double hi, double absent,
                           double *out)
{
    const lg_gguf_kv *kv = find(r, name);
    double v = absent;

    if (kv && !lg_kv_f64(kv, &v))
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s is not a number", (int)kv->key.n, kv->key.p);
    if (!(v >= lo && v <= hi))
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s is %g; it must be %g to %g", (int)kv->key.n, kv->key.p, v,
                       lo, hi);
    *out = v;
    return LG_OK;
}

static lg_status opt_bool(const reader *r, const char *name, bool absent, bool *out)
{
    const lg_gguf_kv *kv = find(r, name);

    *out = absent;
    if (kv && !lg_kv_bool(kv, out))
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s is not a boolean", (int)kv->key.n, kv->key.p);
    return LG_OK;
}

// A count that may be one number, or the same number for each layer.
static lg_status layer_count(const reader *r, const char *name, int n_layer, int *out)
{
    const lg_gguf_kv *kv = find(r, name);
    int64_t first = 0, v;

    if (!kv)
        return missing(r, name);
    if (kv->type != LG_GV_ARRAY)
        return int_of(r, kv, 1, HEADS_MAX, out);
    if (kv->count != (uint64_t)n_layer)
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s has %llu items; block_count needs %d", (int)kv->key.n,
                       kv->key.p, (unsigned long long)kv->count, n_layer);
    for (uint64_t i = 0; i < kv->count; i++) {
        if (!lg_kv_elem_i64(kv, i, &v) || v < 1 || v > HEADS_MAX || (i > 0 && v != first))
            return LG_FAIL(r->err, LG_E_UNSUPPORTED, "%.*s must be one number from 1 to %d for all layers",
                           (int)kv->key.n, kv->key.p, HEADS_MAX);
        first = v;
    }
    *out = (int)first;
    return LG_OK;
}

static lg_status read_arch(reader *r)
{
    lg_str arch = {0}, decoder;
    bool laguna = false;

    if (!lg_kv_str(lg_gguf_find(r->g, "general.architecture"), &arch))
        return LG_FAIL(r->err, LG_E_INPUT, "general.architecture is missing; a drafter says \"dflash\"");
    r->draft_arch = lg_str_eqz(arch, "dflash-draft");
    if (!r->draft_arch && !lg_str_eqz(arch, "dflash"))
        return LG_FAIL(r->err, LG_E_INPUT,
                       "architecture \"%.*s\" is no drafter; \"dflash\" and \"dflash-draft\" are",
                       (int)(arch.n < 64 ? arch.n : 64), arch.p);
    if (r->draft_arch)
        LG_TRY(opt_bool(r, "dflash.laguna", false, &laguna));
    else
        laguna = lg_kv_str(find(r, "decoder_arch"), &decoder) && lg_str_eqz(decoder, "laguna");
    if (!laguna)
        return LG_FAIL(r->err, LG_E_UNSUPPORTED, "%s.%s does not say that this drafter is for Laguna models",
                       arch_of(r), r->draft_arch ? "dflash.laguna" : "decoder_arch");
    return LG_OK;
}

// What must be as in the target.
static lg_status check_pairing(const reader *r, const lg_dflash_params *hp)
{
    const lg_gguf_kv *tokens = lg_gguf_find(r->g, "tokenizer.ggml.tokens");
    int vocab, layers;

    if (hp->hidden != r->target->hidden)
        return LG_FAIL(r->err, LG_E_INPUT,
                       "this drafter is for another model: its hidden size is %d, the model's %d", hp->hidden,
                       r->target->hidden);
    LG_TRY(opt_int(r, "vocab_size", 1, 1 << 24, r->target->vocab, &vocab));
    if (vocab == r->target->vocab && tokens && tokens->type == LG_GV_ARRAY && tokens->count > 0)
        vocab = tokens->count < INT32_MAX ? (int)tokens->count : INT32_MAX;
    if (vocab != r->target->vocab)
        return LG_FAIL(r->err, LG_E_INPUT,
                       "this drafter is for another model: its vocabulary has %d entries, the model's %d",
                       vocab, r->target->vocab);
    LG_TRY(opt_int(r, "num_target_layers", 1, LG_LAYERS_MAX, r->target->n_layer, &layers));
    if (layers != r->target->n_layer)
        return LG_FAIL(r->err, LG_E_INPUT,
                       "this drafter is for another model: one with %d layers, the model has %d", layers,
                       r->target->n_layer);
    return LG_OK;
}

// Tapped layers. `dflash` names the layer whose input is read, up to the layer count itself; `dflash-draft`
// the one whose output is read.
static lg_status read_taps(const reader *r, lg_dflash_params *hp)
{
    const char *name = r->draft_arch ? "dflash.target_layer_ids" : "target_layers";
    const lg_gguf_kv *kv = find(r, name);
    int shift = r->draft_arch ? 0 : 1;

    if (!kv)
        return missing(r, name);
    if (kv->type != LG_GV_ARRAY || kv->count < 1 || kv->count > LG_TAPS_MAX)
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s must list 1 to %d layers", (int)kv->key.n, kv->key.p,
                       LG_TAPS_MAX);
    hp->n_tap = (int)kv->count;
    for (int i = 0; i < hp->n_tap; i++) {
        int64_t id;
        if (!lg_kv_elem_i64(kv, (uint64_t)i, &id))
            return LG_FAIL(r->err, LG_E_INPUT, "%.*s is not an array of integers", (int)kv->key.n, kv->key.p);
        if (id < shift || id - shift >= r->target->n_layer)
            return LG_FAIL(r->err, LG_E_INPUT,
                           "%.*s names layer %lld; a model of %d layers has %d to %d (is this drafter for "
                           "another model?)",
                           (int)kv->key.n, kv->key.p, (long long)id, r->target->n_layer, shift,
                           r->target->n_layer - 1 + shift);
        hp->tap[i] = (int)id - shift;
        if (i > 0 && hp->tap[i] <= hp->tap[i - 1])
            return LG_FAIL(r->err, LG_E_INPUT, "%.*s is not in ascending order", (int)kv->key.n, kv->key.p);
    }
    return LG_OK;
}

static lg_status read_attention(const reader *r, lg_dflash_params *hp)
{
    const lg_gguf_kv *pattern = find(r, "attention.sliding_window_pattern");
    int v_dim;
    bool causal;

    LG_TRY(layer_count(r, "attention.head_count", hp->n_layer, &hp->n_head));
    LG_TRY(layer_count(r, "attention.head_count_kv", hp->n_layer, &hp->n_kv_head));
    LG_TRY(opt_int(r, "attention.key_length", 2, LG_ROT_MAX, 128, &hp->head_dim));
    LG_TRY(opt_int(r, "attention.value_length", 2, LG_ROT_MAX, hp->head_dim, &v_dim));
    if (v_dim != hp->head_dim || hp->head_dim % 2)
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "key_length %d and value_length %d; they must be equal and even", hp->head_dim, v_dim);
    if (hp->n_head % hp->n_kv_head)
        return LG_FAIL(r->err, LG_E_INPUT, "%d heads, which %d KV heads do not divide", hp->n_head,
                       hp->n_kv_head);
    LG_TRY(opt_bool(r, "attention.causal", true, &causal));
    if (!causal)
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "%s.attention.causal is false; blocks of Laguna drafters are causal", arch_of(r));
    LG_TRY(opt_int(r, "attention.sliding_window", 1, WINDOW_MAX, WINDOW_DEFAULT, &hp->window));
    if (!find(r, "attention.sliding_window"))
        LG_INFO("draft", "window", "%s.attention.sliding_window is missing; using %d", arch_of(r),
                WINDOW_DEFAULT);
    for (uint64_t i = 0; pattern && pattern->type == LG_GV_ARRAY && i < pattern->count; i++) {
        int64_t on = 0;
        if (!lg_kv_elem_i64(pattern, i, &on) || on == 0)
            return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                           "%.*s says that layer %llu has no window; all layers of a drafter must",
                           (int)pattern->key.n, pattern->key.p, (unsigned long long)i);
    }
    return LG_OK;
}

static lg_status read_rope(const reader *r, lg_dflash_params *hp)
{
    lg_str scaling;
    double base, base_draft;
    int n_rot;

    LG_TRY(opt_float(r, "rope.freq_base", 1.5, 1e12, 500000, &base));
    LG_TRY(opt_float(r, "dflash.backbone_rotary_base", 1.5, 1e12, base, &base_draft));
    if (!find(r, "rope.freq_base"))
        base = base_draft;
    LG_TRY(opt_int(r, "rope.dimension_count", 2, hp->head_dim, hp->head_dim, &n_rot));
    if (n_rot % 2)
        return LG_FAIL(r->err, LG_E_INPUT, "%s.rope.dimension_count is %d; it must be even", arch_of(r),
                       n_rot);
    if (lg_kv_str(find(r, "rope.scaling.type"), &scaling) && !lg_str_eqz(scaling, "none"))
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "%s.rope.scaling.type is \"%.*s\"; drafters have plain rotary embedding", arch_of(r),
                       (int)(scaling.n < 32 ? scaling.n : 32), scaling.p);
    lg_rope_init(&hp->rope, 2, n_rot, base, 1, 0, 32, 1);
    return LG_OK;
}

static lg_status read_block(const reader *r, lg_dflash_params *hp)
{
    const char *plain_key = "tokenizer.ggml.mask_token_id";
    const char *mask_key = r->draft_arch ? "dflash-draft.dflash.mask_token_id" : plain_key;
    const lg_gguf_kv *mask = lg_gguf_find(r->g, mask_key);
    int id = 0, features;

    LG_TRY(need_int(r, r->draft_arch ? "dflash.block_size" : "block_size", 2, 1024, &hp->block));
    if (hp->block > LG_DRAFT_ROWS_MAX)
        hp->block = LG_DRAFT_ROWS_MAX; // rows are causal: a shorter block drafts the same
    if (!mask && r->draft_arch)
        mask = lg_gguf_find(r->g, plain_key);
    if (!mask)
        return LG_FAIL(r->err, LG_E_INPUT, "%s is missing", mask_key);
    LG_TRY(int_of(r, mask, 0, r->target->vocab - 1, &id));
    hp->mask_id = id;
    LG_TRY(opt_int(r, "dflash.n_target_features", 1, 1 << 24, hp->n_tap * hp->hidden, &features));
    if (features != hp->n_tap * hp->hidden)
        return LG_FAIL(r->err, LG_E_INPUT, "%s.dflash.n_target_features is %d; %d taps of %d make %d",
                       arch_of(r), features, hp->n_tap, hp->hidden, hp->n_tap * hp->hidden);
    return LG_OK;
}

static lg_status read_all(reader *r, lg_dflash_params *hp)
{
    double eps;

    LG_TRY(read_arch(r));
    LG_TRY(need_int(r, "block_count", 1, LG_LAYERS_MAX, &hp->n_layer));
    LG_TRY(need_int(r, "embedding_length", 1, 1 << 16, &hp->hidden));
    LG_TRY(check_pairing(r, hp));
    LG_TRY(need_int(r, "feed_forward_length", 1, FFN_MAX, &hp->ffn));
    LG_TRY(opt_float(r, "attention.layer_norm_rms_epsilon", 0, 1, 1e-6, &eps));
    hp->eps = (float)eps;
    hp->vocab = r->target->vocab;
    LG_TRY(read_taps(r, hp));
    LG_TRY(read_attention(r, hp));
    LG_TRY(read_rope(r, hp));
    return read_block(r, hp);
}

lg_status lg_dflash_read(const lg_gguf *g, const lg_hparams *target, lg_dflash_params *out, lg_err *err)
{
    reader r = {.g = g, .target = target, .err = err};
    lg_dflash_params hp = {0};
    lg_status st = read_all(&r, &hp);

    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", lg_gguf_path(g, 0));
    else
        *out = hp;
    return st;
}
