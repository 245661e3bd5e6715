/*
 * model/hparams: see hparams.h. One function a group of keys; each number is checked where it is read, and
 * the error names the key, the value and the range.
 *
 * What surprises: writers disagree about spellings, about scalar or per-layer values and about integer
 * widths, so every read goes through the accessors below, and a repaired spelling leaves one warning in the
 * log.
 */
#include "model/hparams.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum {
    HIDDEN_MAX = 1 << 16,
    FFN_MAX = 1 << 20,
    VOCAB_MAX = 1 << 24,
    HEADS_MAX = 1024,
    EXPERTS_MAX = 4096,
    USED_MAX = 64
};
enum { CTX_MAX = 1 << 30 };

// What a reader carries along: the file and where faults go.
typedef struct reader {
    const lg_gguf *g;
    lg_err *err;
} reader;

static const lg_gguf_kv *find(const reader *r, const char *name)
{
    char key[128];

    (void)snprintf(key, sizeof key, "laguna.%s", name);
    return lg_gguf_find(r->g, key);
}

// The key under its present name, else under an older one, with a warning.
static const lg_gguf_kv *find_either(const reader *r, const char *name, const char *old)
{
    const lg_gguf_kv *kv = find(r, name);

    if (!kv && (kv = find(r, old)))
        LG_WARN("model", "metadata", "laguna.%s is an older spelling; read as laguna.%s", old, name);
    return kv;
}

static lg_status int_of(const reader *r, const lg_gguf_kv *kv, int64_t lo, int64_t hi, int64_t *out)
{
    int64_t v;

    if (!lg_kv_i64(kv, &v))
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s is not an integer", (int)kv->key.n, kv->key.p);
    if (v < lo || v > hi)
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s is %lld; it must be %lld to %lld", (int)kv->key.n, kv->key.p,
                       (long long)v, (long long)lo, (long long)hi);
    *out = v;
    return LG_OK;
}

static lg_status missing(const reader *r, const char *name)
{
    return LG_FAIL(r->err, LG_E_INPUT, "laguna.%s is missing", name);
}

static lg_status need_int(const reader *r, const char *name, int lo, int hi, int *out)
{
    const lg_gguf_kv *kv = find(r, name);
    int64_t v = 0;

    if (!kv)
        return missing(r, name);
    LG_TRY(int_of(r, kv, lo, hi, &v));
    *out = (int)v;
    return LG_OK;
}

static lg_status opt_int(const reader *r, const char *name, int lo, int hi, int absent, int *out)
{
    if (find(r, name))
        return need_int(r, name, lo, hi, out);
    *out = absent;
    return LG_OK;
}

static bool number_of(const lg_gguf_kv *kv, double *out)
{
    int64_t i;

    if (lg_kv_f64(kv, out))
        return true;
    if (!lg_kv_i64(kv, &i))
        return false;
    *out = (double)i;
    return true;
}

static lg_status float_of(const reader *r, const lg_gguf_kv *kv, double lo, double hi, double absent,
                          double *out)
{
    double v;

    if (!kv) {
        *out = absent;
        return LG_OK;
    }
    if (!number_of(kv, &v))
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
        return LG_FAIL(r->err, LG_E_INPUT, "laguna.%s is not a boolean", name);
    return LG_OK;
}

// Value of a key that may be one number or one number a layer.
static lg_status layer_int(const reader *r, const lg_gguf_kv *kv, int n_layer, int i, int lo, int hi,
                           int *out)
{
    int64_t v;

    if (kv->type != LG_GV_ARRAY || kv->count == 1) {
        bool ok = kv->type == LG_GV_ARRAY ? lg_kv_elem_i64(kv, 0, &v) : lg_kv_i64(kv, &v);
        if (!ok)
            return LG_FAIL(r->err, LG_E_INPUT, "%.*s is not an integer", (int)kv->key.n, kv->key.p);
    } else if (kv->count != (uint64_t)n_layer) {
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s has %llu items; laguna.block_count needs %d", (int)kv->key.n,
                       kv->key.p, (unsigned long long)kv->count, n_layer);
    } else if (!lg_kv_elem_i64(kv, (uint64_t)i, &v)) {
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s is not an array of integers", (int)kv->key.n, kv->key.p);
    }
    if (v < lo || v > hi)
        return LG_FAIL(r->err, LG_E_INPUT, "%.*s is %lld for layer %d; it must be %d to %d", (int)kv->key.n,
                       kv->key.p, (long long)v, i, lo, hi);
    *out = (int)v;
    return LG_OK;
}

static lg_status check_arch(const reader *r)
{
    lg_str arch;

    if (!lg_kv_str(lg_gguf_find(r->g, "general.architecture"), &arch))
        return LG_FAIL(r->err, LG_E_INPUT, "general.architecture is missing; a Laguna file says \"laguna\"");
    if (lg_str_eqz(arch, "dflash") || lg_str_eqz(arch, "dflash-draft"))
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "this is a DFlash drafter, not a model; give it with --draft, and the "
                       "model it belongs to with --model");
    if (!lg_str_eqz(arch, "laguna"))
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "architecture \"%.*s\" is not supported; lagoon runs \"laguna\"",
                       (int)(arch.n < 64 ? arch.n : 64), arch.p);
    return LG_OK;
}

// Features that no published checkpoint uses and that would change the result if they were ignored.
static lg_status check_unused(const reader *r)
{
    static const char *const softcap[] = {"router_logit_softcapping", "attn_logit_softcapping",
                                          "final_logit_softcapping"};
    bool sink;
    int groups;

    LG_TRY(opt_bool(r, "attention.sink_enabled", false, &sink));
    if (sink)
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "laguna.attention.sink_enabled is true; attention sinks are not supported");
    for (size_t i = 0; i < sizeof softcap / sizeof *softcap; i++) {
        double v;
        LG_TRY(float_of(r, find(r, softcap[i]), 0, 1e9, 0, &v));
        if (v != 0)
            return LG_FAIL(r->err, LG_E_UNSUPPORTED, "laguna.%s is %g; soft caps are not supported",
                           softcap[i], v);
    }
    LG_TRY(opt_int(r, "expert_group_count", 0, EXPERTS_MAX, 0, &groups));
    if (groups > 1)
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "laguna.expert_group_count is %d; expert groups are not supported", groups);
    return LG_OK;
}

static lg_status read_vocab(const reader *r, int *out)
{
    const lg_gguf_kv *tokens = lg_gguf_find(r->g, "tokenizer.ggml.tokens");
    uint64_t n_tokens = tokens && tokens->type == LG_GV_ARRAY ? tokens->count : 0;
    int vocab;

    LG_TRY(opt_int(r, "vocab_size", 1, VOCAB_MAX, 0, &vocab));
    if (vocab == 0) {
        if (n_tokens == 0 || n_tokens > VOCAB_MAX)
            return LG_FAIL(r->err, LG_E_INPUT,
                           "laguna.vocab_size is missing and tokenizer.ggml.tokens has %llu items",
                           (unsigned long long)n_tokens);
        vocab = (int)n_tokens;
    }
    if (n_tokens > (uint64_t)vocab)
        return LG_FAIL(r->err, LG_E_INPUT,
                       "tokenizer.ggml.tokens has %llu items; laguna.vocab_size allows %d",
                       (unsigned long long)n_tokens, vocab);
    *out = vocab;
    return LG_OK;
}

// Head counts and dimensions. Head dimensions are never derived from the hidden size.
static lg_status read_heads(const reader *r, lg_hparams *hp)
{
    const lg_gguf_kv *heads = find(r, "attention.head_count"), *kv_heads = find(r, "attention.head_count_kv");
    int v_dim;

    LG_TRY(opt_int(r, "attention.key_length", 2, LG_ROT_MAX, 128, &hp->head_dim));
    LG_TRY(opt_int(r, "attention.value_length", 2, LG_ROT_MAX, hp->head_dim, &v_dim));
    if (v_dim != hp->head_dim)
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "laguna.attention.value_length %d differs from key_length %d; they must be equal",
                       v_dim, hp->head_dim);
    if (hp->head_dim % 2)
        return LG_FAIL(r->err, LG_E_UNSUPPORTED, "laguna.attention.key_length is %d; it must be even",
                       hp->head_dim);
    if (!heads)
        return missing(r, "attention.head_count");
    hp->n_kv_head = 8;
    for (int i = 0; i < hp->n_layer; i++) {
        int n = hp->n_kv_head;

        LG_TRY(layer_int(r, heads, hp->n_layer, i, 1, HEADS_MAX, &hp->layer[i].n_head));
        if (kv_heads)
            LG_TRY(layer_int(r, kv_heads, hp->n_layer, i, 1, HEADS_MAX, &n));
        if (i > 0 && n != hp->n_kv_head)
            return LG_FAIL(
                r->err, LG_E_UNSUPPORTED,
                "laguna.attention.head_count_kv is %d for layer 0 and %d for layer %d; it must be the same",
                hp->n_kv_head, n, i);
        hp->n_kv_head = n;
        if (hp->layer[i].n_head % n)
            return LG_FAIL(r->err, LG_E_INPUT, "layer %d has %d heads, which %d KV heads do not divide", i,
                           hp->layer[i].n_head, n);
    }
    return LG_OK;
}

static bool heads_vary(const lg_hparams *hp)
{
    for (int i = 1; i < hp->n_layer; i++)
        if (hp->layer[i].n_head != hp->layer[0].n_head)
            return true;
    return false;
}

// Which layers have a sliding window: the first rule of model.md 3 that applies.
static lg_status read_kinds(const reader *r, lg_hparams *hp)
{
    const lg_gguf_kv *pattern = find(r, "attention.sliding_window_pattern"),
                     *types = find(r, "attention.layer_types");
    int period = 0;

    LG_TRY(opt_int(r, "attention.sliding_window", 0, CTX_MAX, 0, &hp->window));
    if (hp->window == 0)
        return LG_OK;
    if (pattern && pattern->type == LG_GV_BOOL) {
        LG_WARN("model", "metadata", "laguna.attention.sliding_window_pattern is a single boolean; ignored");
        pattern = NULL;
    }
    if (pattern && pattern->type != LG_GV_ARRAY) {
        LG_TRY(need_int(r, "attention.sliding_window_pattern", 1, CTX_MAX, &period));
    } else if (pattern || types) {
        const lg_gguf_kv *kv = pattern ? pattern : types;
        if (kv->type != LG_GV_ARRAY || kv->count != (uint64_t)hp->n_layer)
            return LG_FAIL(r->err, LG_E_INPUT, "%.*s has %llu items; laguna.block_count needs %d",
                           (int)kv->key.n, kv->key.p,
                           (unsigned long long)(kv->type == LG_GV_ARRAY ? kv->count : 1), hp->n_layer);
        if (!pattern)
            LG_WARN("model", "metadata",
                    "laguna.attention.layer_types is an older spelling of sliding_window_pattern");
        for (int i = 0; i < hp->n_layer; i++) {
            int v;
            LG_TRY(layer_int(r, kv, hp->n_layer, i, 0, 1, &v));
            hp->layer[i].window = v != 0;
        }
        return LG_OK;
    }
    bool vary = heads_vary(hp);
    for (int i = 0; i < hp->n_layer; i++) {
        if (period == 0 && vary)
            hp->layer[i].window = hp->layer[i].n_head != hp->layer[0].n_head;
        else
            hp->layer[i].window = i % (period ? period : 4) != 0;
    }
    return LG_OK;
}

// Leading dense layers: the key, cross-checked with two older ways to say it.
static lg_status read_dense(const reader *r, lg_hparams *hp)
{
    const lg_gguf_kv *list = find(r, "dense_layers"), *ffn = find(r, "feed_forward_length");
    int step, by_list = list && list->type == LG_GV_ARRAY && list->count <= (uint64_t)hp->n_layer
                            ? (int)list->count
                            : 1;

    LG_TRY(opt_int(r, "leading_dense_block_count", 0, hp->n_layer, by_list, &hp->n_dense_lead));
    LG_TRY(opt_int(r, "decoder_sparse_step", 1, INT_MAX, 1, &step));
    if (step != 1)
        return LG_FAIL(
            r->err, LG_E_UNSUPPORTED,
            "laguna.decoder_sparse_step is %d; only models whose dense layers come first are supported",
            step);
    if (list && list->type == LG_GV_ARRAY && list->count != (uint64_t)hp->n_dense_lead)
        return LG_FAIL(r->err, LG_E_INPUT,
                       "laguna.dense_layers has %llu items, but laguna.leading_dense_block_count is %d",
                       (unsigned long long)list->count, hp->n_dense_lead);
    for (int i = 0; i < hp->n_dense_lead; i++) {
        int64_t at;
        if (list && (!lg_kv_elem_i64(list, (uint64_t)i, &at) || at != i))
            return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                           "laguna.dense_layers is not 0 to %d; dense layers must come first",
                           hp->n_dense_lead - 1);
        int width = 0;
        if (!ffn)
            return missing(r, "feed_forward_length");
        LG_TRY(layer_int(r, ffn, hp->n_layer, i, 1, FFN_MAX, &width));
        if (i > 0 && width != hp->ffn_dense)
            return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                           "laguna.feed_forward_length differs between dense layers 0 and %d", i);
        hp->ffn_dense = width;
        hp->layer[i].dense = true;
    }
    return LG_OK;
}

// Width of the shared expert: the key, else what the first tensor of its kind says; 0 when there is none.
static lg_status read_shared(const reader *r, lg_hparams *hp)
{
    char name[64];
    int count;

    LG_TRY(opt_int(r, "expert_shared_count", 0, EXPERTS_MAX, 1, &count));
    if (count > 1)
        return LG_FAIL(r->err, LG_E_UNSUPPORTED, "laguna.expert_shared_count is %d; 0 or 1 is supported",
                       count);
    if (count == 0)
        return LG_OK;
    LG_TRY(opt_int(r, "expert_shared_feed_forward_length", 0, FFN_MAX, 0, &hp->ffn_shared));
    if (hp->ffn_shared > 0)
        return LG_OK;
    (void)snprintf(name, sizeof name, "blk.%d.ffn_gate_shexp.weight", hp->n_dense_lead);
    const lg_gguf_tensor *t = lg_gguf_find_tensor(r->g, lg_str_of(name));
    if (!t)
        return LG_OK;
    if (t->ne[1] < 1 || t->ne[1] > FFN_MAX)
        return LG_FAIL(r->err, LG_E_INPUT, "tensor %s has %llu rows; a shared expert has 1 to %d", name,
                       (unsigned long long)t->ne[1], FFN_MAX);
    hp->ffn_shared = (int)t->ne[1];
    return LG_OK;
}

static lg_status read_experts(const reader *r, lg_hparams *hp)
{
    int gating;
    double scale;

    LG_TRY(read_dense(r, hp));
    if (hp->n_dense_lead == hp->n_layer)
        return LG_OK;
    LG_TRY(need_int(r, "expert_count", 1, EXPERTS_MAX, &hp->n_expert));
    LG_TRY(need_int(r, "expert_used_count", 1, hp->n_expert < USED_MAX ? hp->n_expert : USED_MAX,
                    &hp->n_expert_used));
    LG_TRY(need_int(r, "expert_feed_forward_length", 1, FFN_MAX, &hp->ffn_expert));
    LG_TRY(read_shared(r, hp));
    LG_TRY(opt_int(r, "expert_gating_func", 0, INT_MAX, 0, &gating));
    if (gating > 2)
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "laguna.expert_gating_func is %d; 1 (softmax) and 2 (sigmoid) are supported", gating);
    hp->gating = gating == 1 ? LG_GATE_SOFTMAX : LG_GATE_SIGMOID;
    LG_TRY(opt_bool(r, "expert_weights_norm", true, &hp->route_norm));
    if (!find(r, "expert_weights_scale"))
        LG_WARN("model", "metadata",
                "laguna.expert_weights_scale is missing; using 1.0 (published files say 2.5)");
    LG_TRY(float_of(r, find(r, "expert_weights_scale"), 1e-6, 1e6, 1.0, &scale));
    hp->route_scale = (float)scale;
    return LG_OK;
}

// Rotated dimensions of one layer kind: the count, else a fraction of the head, else the default.
static lg_status read_n_rot(const reader *r, const lg_gguf_kv *count, const char *fraction, int head_dim,
                            int absent, int *out)
{
    int64_t n = absent;

    if (count) {
        LG_TRY(int_of(r, count, 2, head_dim, &n));
    } else if (find(r, fraction)) {
        double f;
        LG_TRY(float_of(r, find(r, fraction), 1e-3, 1, 1, &f));
        n = (int64_t)lrint(f * head_dim);
        LG_WARN("model", "metadata", "laguna.%s is an older spelling; %d dimensions are rotated", fraction,
                (int)n);
    }
    if (count && head_dim == 128 && n * 2 == absent) {
        LG_WARN("model", "metadata", "%.*s is %d, half of what this model has; using %d", (int)count->key.n,
                count->key.p, (int)n, absent);
        n = absent;
    }
    if (n < 2 || n % 2 || n > head_dim)
        return LG_FAIL(r->err, LG_E_INPUT, "%d rotated dimensions; an even number from 2 to %d is needed",
                       (int)n, head_dim);
    *out = (int)n;
    return LG_OK;
}

// Scaling factor of the full layers: 1 when the file says there is none.
static lg_status read_yarn_factor(const reader *r, double *factor)
{
    const lg_gguf_kv *type = find(r, "rope.scaling.type"), *kv = find(r, "rope.scaling.factor");
    lg_str name = {0};

    LG_TRY(float_of(r, kv, 1.0, 65536.0, 1.0, factor));
    if (type && !lg_kv_str(type, &name))
        return LG_FAIL(r->err, LG_E_INPUT, "laguna.rope.scaling.type is not a string");
    if (type && lg_str_eqz(name, "yarn")) {
        if (!kv)
            return missing(r, "rope.scaling.factor");
        return LG_OK;
    }
    if (type && !lg_str_eqz(name, "none"))
        return LG_FAIL(r->err, LG_E_UNSUPPORTED,
                       "laguna.rope.scaling.type \"%.*s\" is not supported; yarn and none are",
                       (int)(name.n < 32 ? name.n : 32), name.p);
    if (*factor != 1.0 && type) {
        LG_WARN("model", "metadata", "laguna.rope.scaling.factor %g is ignored: the type is none", *factor);
        *factor = 1.0;
    } else if (*factor != 1.0) {
        LG_WARN("model", "metadata", "laguna.rope.scaling.type is missing; factor %g is read as yarn",
                *factor);
    }
    return LG_OK;
}

static double yarn_magnitude(double factor)
{
    return factor > 1 ? 1.0 + 0.1 * log(factor) : 1.0;
}

// What attn_factor multiplies the magnitude by: exporters disagree whether it is a multiplier or the final
// value.
static lg_status read_attn_factor(const reader *r, double factor, double *out)
{
    double ext;

    LG_TRY(float_of(r, find(r, "rope.scaling.attn_factor"), 1e-3, 1e3, 1.0, out));
    if (*out != 1.0 && fabs(*out - yarn_magnitude(factor)) < 1e-3) {
        LG_WARN("model", "metadata", "laguna.rope.scaling.attn_factor %g is taken as the final magnitude",
                *out);
        *out = 1.0;
    }
    LG_TRY(float_of(r, find(r, "rope.scaling.yarn_ext_factor"), -1e6, 1e6, 1.0, &ext));
    if (ext != 1.0 && factor > 1)
        LG_WARN("model", "metadata", "laguna.rope.scaling.yarn_ext_factor %g is ignored; it is 1 for yarn",
                ext);
    return LG_OK;
}

static lg_status read_yarn(const reader *r, const lg_rope_override *over, lg_hparams *hp, double base,
                           int n_rot)
{
    const lg_gguf_kv *fast = find_either(r, "rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast");
    const lg_gguf_kv *slow = find_either(r, "rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow");
    double factor, attn_factor, beta_fast, beta_slow;
    int orig;

    LG_TRY(read_yarn_factor(r, &factor));
    LG_TRY(read_attn_factor(r, factor, &attn_factor));
    LG_TRY(float_of(r, fast, 1e-3, 1e6, 32.0, &beta_fast));
    LG_TRY(float_of(r, slow, 1e-6, 1e6, 1.0, &beta_slow));
    if (beta_fast <= beta_slow)
        return LG_FAIL(r->err, LG_E_INPUT, "yarn_beta_fast %g must exceed yarn_beta_slow %g", beta_fast,
                       beta_slow);
    LG_TRY(opt_int(r, "rope.scaling.original_context_length", 1, CTX_MAX, 0, &orig));
    if (over && over->factor > 0 && (double)over->factor != factor) {
        LG_INFO("model", "rope", "scaling factor %g instead of the file's %g", (double)over->factor, factor);
        factor = over->factor;
    }
    if (factor > 1 && orig == 0)
        return missing(r, "rope.scaling.original_context_length");
    if (factor > 1 && !fast)
        LG_WARN("model", "metadata",
                "laguna.rope.scaling.yarn_beta_fast is missing; using 32 (XS models need 64)");
    hp->yarn_factor = (float)factor;
    hp->yarn_orig_ctx = orig;
    hp->yarn_beta_fast = (float)beta_fast;
    hp->yarn_beta_slow = (float)beta_slow;
    lg_rope_init(&hp->rope_full, 0, n_rot, base, factor, orig, beta_fast, beta_slow);
    hp->rope_full.magnitude = (float)(yarn_magnitude(factor) * attn_factor);
    if (over && over->magnitude > 0)
        hp->rope_full.magnitude = over->magnitude;
    return LG_OK;
}

// Window layers have plain rotary embedding; a file that says otherwise is no Laguna we know.
static void warn_window_scaling(const reader *r)
{
    lg_str type;
    double factor = 1;

    if (lg_kv_str(find(r, "rope.swa.scaling.type"), &type) && !lg_str_eqz(type, "none"))
        LG_WARN("model", "metadata", "laguna.rope.swa.scaling.type is ignored: window layers are not scaled");
    const lg_gguf_kv *kv = find(r, "rope.swa.scaling.factor");
    if (kv && number_of(kv, &factor) && factor != 1)
        LG_WARN("model", "metadata",
                "laguna.rope.swa.scaling.factor %g is ignored: window layers are not scaled", factor);
}

// Defaults are guesses when the file leaves rotation open: one warning names what is missing.
static void warn_missing_rope(const reader *r, bool windows)
{
    const struct {
        const char *key, *or_key, *or_fraction;
        bool wanted;
    } row[] = {
        {"rope.freq_base", NULL, NULL, true},
        {"rope.dimension_count", NULL, "rope.partial_rotary_factor", true},
        {"rope.scaling.type", "rope.scaling.factor", NULL, true},
        {"rope.freq_base_swa", "rope.swa.freq_base", NULL, windows},
        {"rope.dimension_count_swa", "rope.swa.dimension_count", "rope.swa.partial_rotary_factor", windows},
    };
    char names[160] = "";
    size_t at = 0;
    int n = 0;

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        if (!row[i].wanted || find(r, row[i].key) || (row[i].or_key && find(r, row[i].or_key)) ||
            (row[i].or_fraction && find(r, row[i].or_fraction)))
            continue;
        at += (size_t)snprintf(names + at, sizeof names - at, "%slaguna.%s", n++ ? ", " : "", row[i].key);
    }
    if (n > 0)
        LG_WARN("model", "metadata", "%s %s missing; defaults are used, 'lagoon inspect' shows them", names,
                n == 1 ? "is" : "are");
}

static lg_status read_rope(const reader *r, const lg_rope_override *over, lg_hparams *hp)
{
    const lg_gguf_kv *count_window = find_either(r, "rope.dimension_count_swa", "rope.swa.dimension_count");
    const lg_gguf_kv *base_window = find_either(r, "rope.freq_base_swa", "rope.swa.freq_base");
    double base, base_w;
    int n_rot, n_rot_w;

    LG_TRY(float_of(r, find(r, "rope.freq_base"), 1.5, 1e12, 500000, &base));
    LG_TRY(float_of(r, base_window, 1.5, 1e12, 10000, &base_w));
    LG_TRY(read_n_rot(r, find(r, "rope.dimension_count"), "rope.partial_rotary_factor", hp->head_dim,
                      hp->head_dim / 2, &n_rot));
    LG_TRY(
        read_n_rot(r, count_window, "rope.swa.partial_rotary_factor", hp->head_dim, hp->head_dim, &n_rot_w));
    warn_window_scaling(r);
    warn_missing_rope(r, hp->window > 0);
    hp->rope_base_full = base;
    hp->rope_base_window = base_w;
    lg_rope_init(&hp->rope_window, 1, n_rot_w, base_w, 1, 0, 32, 1);
    return read_yarn(r, over, hp, base, n_rot);
}

static lg_status read_context(const reader *r, lg_hparams *hp)
{
    const lg_gguf_kv *kv = find(r, "context_length");

    if (kv)
        return int_of(r, kv, 1, CTX_MAX, &hp->ctx_train);
    double ctx = (double)hp->yarn_orig_ctx * (double)hp->yarn_factor;
    if (ctx < 1 || ctx > CTX_MAX)
        return missing(r, "context_length");
    hp->ctx_train = (int64_t)ctx;
    LG_WARN("model", "metadata",
            "laguna.context_length is missing; using %lld, the original context times the factor",
            (long long)hp->ctx_train);
    return LG_OK;
}

// Index of each layer among the layers of its KV class.
static void count_kinds(lg_hparams *hp)
{
    for (int i = 0; i < hp->n_layer; i++)
        hp->layer[i].kv_layer = hp->layer[i].window ? hp->n_window++ : hp->n_full++;
}

lg_status lg_hparams_read(const lg_gguf *g, const lg_rope_override *over, lg_hparams *out, lg_err *err)
{
    reader r = {g, err};
    lg_hparams hp = {0};
    double eps;

    LG_TRY(check_arch(&r));
    LG_TRY(need_int(&r, "block_count", 1, LG_LAYERS_MAX, &hp.n_layer));
    LG_TRY(need_int(&r, "embedding_length", 1, HIDDEN_MAX, &hp.hidden));
    LG_TRY(read_vocab(&r, &hp.vocab));
    LG_TRY(check_unused(&r));
    LG_TRY(float_of(&r, find(&r, "attention.layer_norm_rms_epsilon"), 0, 1, 1e-6, &eps));
    hp.eps = (float)eps;
    LG_TRY(read_heads(&r, &hp));
    LG_TRY(read_kinds(&r, &hp));
    LG_TRY(read_experts(&r, &hp));
    LG_TRY(read_rope(&r, over, &hp));
    LG_TRY(read_context(&r, &hp));
    count_kinds(&hp);
    *out = hp;
    return LG_OK;
}

// Pair index at which a rotation makes `turns` turns over the original context.
static double yarn_pair(int n_rot, double base, int64_t orig_ctx, double turns)
{
    const double two_pi = 6.283185307179586476925286766559;

    return n_rot * log((double)orig_ctx / (two_pi * turns)) / (2.0 * log(base));
}

void lg_rope_init(lg_rope *r, int id, int n_rot, double base, double factor, int64_t orig_ctx,
                  double beta_fast, double beta_slow)
{
    double low = 0, high = 0;

    LG_ASSERT(n_rot >= 2 && n_rot <= LG_ROT_MAX && n_rot % 2 == 0);
    *r = (lg_rope){.id = id, .n_rot = n_rot, .magnitude = (float)yarn_magnitude(factor)};
    if (factor > 1) {
        low = fmax(0, floor(yarn_pair(n_rot, base, orig_ctx, beta_fast)));
        high = fmin(n_rot - 1, ceil(yarn_pair(n_rot, base, orig_ctx, beta_slow)));
    }
    for (int j = 0; j < n_rot / 2; j++) {
        double f = pow(base, -2.0 * j / n_rot);
        if (factor > 1) {
            // pairs below `low` turn often within the original context and stay; those past `high` are
            // interpolated
            double ramp = fmin(1, fmax(0, (j - low) / fmax(0.001, high - low)));
            f = f * (1 - ramp) + f / factor * ramp;
        }
        r->freq[j] = f;
    }
}
