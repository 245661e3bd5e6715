/*
 * model/synth: see synth.h. This file holds the shapes and the metadata of the published models; synth_fill.c
 * makes weights, synth_vocab.c the tokenizer, synth_write.c files and memory.
 */
#include "model/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/synth_int.h"

enum { EXPERTS = 256, WINDOW = 512, BLOCK_ROWS = 16 };

static const float spread_weights = LG_SYNTH_SPREAD, spread_norms = 0.05f;
// Wide embeddings keep each token's own direction in the residual through all layers. At the spread of the
// weights the layers' common output drowns it and routing collapses: 38 % of the experts in use after 5
// layers of XS.
static const float spread_embeddings = 4.0f;

static const lg_synth_arch archs[] = {
    {.arch = "s-2.1",
     .title = "Laguna S 2.1 synthetic",
     .type = "official",
     .n_layer = 48,
     .hidden = 3072,
     .ffn = 12288,
     .n_head_full = 48,
     .n_head_window = 72,
     .n_used = 10,
     .ffn_expert = 1024,
     .yarn_beta_fast = 32},
    {.arch = "xs-2.1",
     .title = "Laguna XS 2.1 synthetic",
     .type = "q4_k_m",
     .n_layer = 40,
     .hidden = 2048,
     .ffn = 8192,
     .n_head_full = 48,
     .n_head_window = 64,
     .n_used = 8,
     .ffn_expert = 512,
     .yarn_beta_fast = 64},
    {.arch = "s-2.1-dflash",
     .title = "Laguna S 2.1 DFlash synthetic",
     .type = "bf16",
     .draft = true,
     .n_layer = 6,
     .hidden = 3072,
     .ffn = 12288,
     .n_head_window = 72,
     .n_taps = 6,
     .taps = {2, 11, 20, 30, 39, 48}},
    {.arch = "xs-2.1-dflash",
     .title = "Laguna XS 2.1 DFlash synthetic",
     .type = "bf16",
     .draft = true,
     .n_layer = 5,
     .hidden = 2048,
     .ffn = 8192,
     .n_head_window = 64,
     .n_taps = 5,
     .taps = {2, 14, 26, 34, 40}},
};

static bool full_layer(int l)
{
    return l % 4 == 0;
}

// --- the list of tensors ---

// Appends a tensor; cols 0 ends the shape. The recipe decides the type of what it may touch, the rest is F32.
static bool add(lg_synth *s, const char *name, float mean, float spread, int cols, int rows, int count)
{
    lg_synth_tensor t = {
        .type = LG_F32, .mean = mean, .spread = spread, .ne = {(uint64_t)cols, 1, 1, 1}, .n_dims = 1};
    size_t row_bytes;

    if (rows) {
        t.n_dims = 2;
        t.ne[1] = (uint64_t)rows;
    }
    if (count) {
        t.n_dims = 3;
        t.ne[2] = (uint64_t)count;
    }
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    (void)lg_mix_type(s->mix, lg_str_of(name), t.n_dims, t.ne[0], s->n_layer, &t.type);
    LG_ASSERT(lg_row_bytes(t.type, t.ne[0], &row_bytes));
    t.bytes = row_bytes * (size_t)t.ne[1] * (size_t)t.ne[2];
    if (s->n_tensors == s->cap_tensors) {
        size_t cap = s->cap_tensors ? s->cap_tensors * 2 : 128;
        lg_synth_tensor *p = realloc(s->tensor, cap * sizeof *p);
        if (!p)
            return false;
        s->tensor = p;
        s->cap_tensors = cap;
    }
    s->tensor[s->n_tensors++] = t;
    s->tensor_bytes += t.bytes;
    return true;
}

static bool add_norm(lg_synth *s, const char *name, int n)
{
    return add(s, name, 1.0f, spread_norms, n, 0, 0);
}

static bool add_matrix(lg_synth *s, const char *name, int cols, int rows)
{
    return add(s, name, 0.0f, spread_weights, cols, rows, 0);
}

static const char *in_layer(char *buf, size_t n, int l, const char *what)
{
    (void)snprintf(buf, n, "blk.%d.%s", l, what);
    return buf;
}

static bool add_attention(lg_synth *s, int l)
{
    const lg_synth_arch *a = s->arch;
    int h = a->hidden, heads = !a->draft && full_layer(l) ? a->n_head_full : a->n_head_window;
    int q = heads * LG_SYNTH_HEAD_DIM, k = LG_SYNTH_KV_HEADS * LG_SYNTH_HEAD_DIM;
    char b[48];

    return add_norm(s, in_layer(b, sizeof b, l, "attn_norm.weight"), h) &&
           add_matrix(s, in_layer(b, sizeof b, l, "attn_q.weight"), h, q) &&
           add_matrix(s, in_layer(b, sizeof b, l, "attn_k.weight"), h, k) &&
           add_matrix(s, in_layer(b, sizeof b, l, "attn_v.weight"), h, k) &&
           add_matrix(s, in_layer(b, sizeof b, l, "attn_output.weight"), q, h) &&
           add_norm(s, in_layer(b, sizeof b, l, "attn_q_norm.weight"), LG_SYNTH_HEAD_DIM) &&
           add_norm(s, in_layer(b, sizeof b, l, "attn_k_norm.weight"), LG_SYNTH_HEAD_DIM) &&
           add_matrix(s, in_layer(b, sizeof b, l, "attn_gate.weight"), h, heads) &&
           add_norm(s, in_layer(b, sizeof b, l, "ffn_norm.weight"), h);
}

static bool add_dense_ffn(lg_synth *s, int l)
{
    int h = s->arch->hidden, f = s->arch->ffn;
    char b[48];

    return add_matrix(s, in_layer(b, sizeof b, l, "ffn_gate.weight"), h, f) &&
           add_matrix(s, in_layer(b, sizeof b, l, "ffn_up.weight"), h, f) &&
           add_matrix(s, in_layer(b, sizeof b, l, "ffn_down.weight"), f, h);
}

static bool add_experts(lg_synth *s, int l)
{
    int h = s->arch->hidden, f = s->arch->ffn_expert;
    // router logits of spread 1 for a normed input: close races between experts, as in a trained model
    float router = h == 3072 ? 0.018042196f : 0.022097087f; // 1 / sqrt(h)
    float w = spread_weights;
    char b[48];

    return add(s, in_layer(b, sizeof b, l, "ffn_gate_inp.weight"), 0.0f, router, h, EXPERTS, 0) &&
           add(s, in_layer(b, sizeof b, l, "exp_probs_b.bias"), 0.0f, 0.0f, EXPERTS, 0, 0) &&
           add(s, in_layer(b, sizeof b, l, "ffn_gate_exps.weight"), 0.0f, w, h, f, EXPERTS) &&
           add(s, in_layer(b, sizeof b, l, "ffn_up_exps.weight"), 0.0f, w, h, f, EXPERTS) &&
           add(s, in_layer(b, sizeof b, l, "ffn_down_exps.weight"), 0.0f, w, f, h, EXPERTS) &&
           add_matrix(s, in_layer(b, sizeof b, l, "ffn_gate_shexp.weight"), h, f) &&
           add_matrix(s, in_layer(b, sizeof b, l, "ffn_up_shexp.weight"), h, f) &&
           add_matrix(s, in_layer(b, sizeof b, l, "ffn_down_shexp.weight"), f, h);
}

static bool add_all(lg_synth *s)
{
    const lg_synth_arch *a = s->arch;
    bool ok;

    if (a->draft)
        ok = add(s, "enc.aux_norm.weight", 1.0f, spread_norms, a->hidden, a->n_taps, 0) &&
             add_matrix(s, "fc.weight", a->hidden * a->n_taps, a->hidden) &&
             add_norm(s, "enc.output_norm.weight", a->hidden) && add_norm(s, "output_norm.weight", a->hidden);
    else
        ok = add(s, "token_embd.weight", 0.0f, spread_embeddings, a->hidden, LG_SYNTH_VOCAB, 0) &&
             add_norm(s, "output_norm.weight", a->hidden) &&
             add_matrix(s, "output.weight", a->hidden, LG_SYNTH_VOCAB);
    for (int l = 0; l < s->n_layer && ok; l++)
        ok = add_attention(s, l) && (a->draft || l == 0 ? add_dense_ffn(s, l) : add_experts(s, l));
    return ok;
}

lg_status lg_synth_create(const lg_synth_params *p, lg_synth **out, lg_err *err)
{
    const lg_synth_arch *a = NULL;
    const lg_mix *mix;

    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (!strcmp(archs[i].arch, p->arch))
            a = &archs[i];
    if (!a)
        return LG_FAIL(err, LG_E_INPUT,
                       "unknown architecture %s; known are s-2.1, xs-2.1, s-2.1-dflash and"
                       " xs-2.1-dflash",
                       p->arch);
    mix = lg_mix_find(lg_str_of(p->type ? p->type : a->type));
    if (!mix)
        return LG_FAIL(err, LG_E_INPUT, "unknown type %s; known are %s", p->type, lg_mix_names());
    if (p->n_layer < 0 || p->n_layer > a->n_layer)
        return LG_FAIL(err, LG_E_INPUT, "%d layers; %s has 1 to %d", p->n_layer, a->arch, a->n_layer);
    if (a->draft && p->target_layers != 0 && p->target_layers < a->n_taps)
        return LG_FAIL(err, LG_E_INPUT, "%s taps %d layers; a model of %d has too few", a->arch, a->n_taps,
                       p->target_layers);
    lg_synth *s = calloc(1, sizeof *s);
    if (!s)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    s->arch = a;
    s->mix = mix;
    s->n_layer = p->n_layer ? p->n_layer : a->n_layer;
    s->target_layers = p->target_layers;
    s->seed = p->seed;
    if (!add_all(s)) {
        lg_synth_destroy(s);
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    }
    *out = s;
    return LG_OK;
}

void lg_synth_destroy(lg_synth *s)
{
    if (!s)
        return;
    free(s->tensor);
    free(s);
}

size_t lg_synth_n_tensors(const lg_synth *s)
{
    return s->n_tensors;
}

const lg_synth_tensor *lg_synth_tensor_at(const lg_synth *s, size_t i)
{
    return &s->tensor[i];
}

uint64_t lg_synth_tensor_bytes(const lg_synth *s)
{
    return s->tensor_bytes;
}

const char *lg_synth_name(const lg_synth *s)
{
    return s->arch->title;
}

// --- metadata ---

// Puts keys with a prefix in front of the name.
typedef struct prefixed {
    lg_gguf_writer *w;
    const char *prefix;
    char key[96];
} prefixed;

static const char *key(prefixed *p, const char *name)
{
    (void)snprintf(p->key, sizeof p->key, "%s.%s", p->prefix, name);
    return p->key;
}

static void put_u32(prefixed *p, const char *name, int v)
{
    lg_gguf_put_u32(p->w, key(p, name), (uint32_t)v);
}

static void put_f32(prefixed *p, const char *name, float v)
{
    lg_gguf_put_f32(p->w, key(p, name), v);
}

static void put_general(const lg_synth *s, lg_gguf_writer *w)
{
    lg_gguf_put_str(w, "general.architecture", s->arch->draft ? LG_STR("dflash") : LG_STR("laguna"));
    lg_gguf_put_str(w, "general.type", LG_STR("model"));
    lg_gguf_put_str(w, "general.name", lg_str_of(s->arch->title));
    lg_gguf_put_u32(w, "general.file_type", lg_mix_file_type(s->mix));
    lg_gguf_put_u32(w, "general.quantization_version", 2);
    lg_gguf_put_i64(w, "lagoon.synth.seed", LG_GV_U64, (int64_t)s->seed);
    if (!s->arch->draft) { // as in the published files
        lg_gguf_put_f32(w, "general.sampling.temp", 0.7f);
        lg_gguf_put_f32(w, "general.sampling.top_p", 0.9f);
    }
}

static void put_shape(const lg_synth *s, prefixed *p)
{
    const lg_synth_arch *a = s->arch;

    put_u32(p, "vocab_size", LG_SYNTH_VOCAB);
    put_u32(p, "context_length", a->draft ? 1048576 : 262144);
    put_u32(p, "embedding_length", a->hidden);
    put_u32(p, "block_count", s->n_layer);
    put_u32(p, "feed_forward_length", a->ffn);
    put_u32(p, "attention.head_count_kv", LG_SYNTH_KV_HEADS);
    put_u32(p, "attention.key_length", LG_SYNTH_HEAD_DIM);
    put_u32(p, "attention.value_length", LG_SYNTH_HEAD_DIM);
    put_f32(p, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_u32(p, "attention.sliding_window", WINDOW);
}

static void put_target(const lg_synth *s, prefixed *p)
{
    const lg_synth_arch *a = s->arch;
    int32_t heads[LG_LAYERS_MAX];
    uint8_t window[LG_LAYERS_MAX];

    for (int l = 0; l < s->n_layer; l++) {
        heads[l] = full_layer(l) ? a->n_head_full : a->n_head_window;
        window[l] = !full_layer(l);
    }
    lg_gguf_put_array(p->w, key(p, "attention.head_count"), LG_GV_I32, heads, (uint64_t)s->n_layer);
    lg_gguf_put_array(p->w, key(p, "attention.sliding_window_pattern"), LG_GV_BOOL, window,
                      (uint64_t)s->n_layer);
    put_u32(p, "rope.dimension_count", LG_SYNTH_HEAD_DIM / 2);
    put_u32(p, "rope.dimension_count_swa", LG_SYNTH_HEAD_DIM);
    put_f32(p, "rope.freq_base", 500000.0f);
    put_f32(p, "rope.freq_base_swa", 10000.0f);
    lg_gguf_put_str(p->w, key(p, "rope.scaling.type"), LG_STR("yarn"));
    put_f32(p, "rope.scaling.factor", 32.0f);
    put_u32(p, "rope.scaling.original_context_length", 8192);
    put_f32(p, "rope.scaling.yarn_ext_factor", 1.0f);
    put_f32(p, "rope.scaling.yarn_attn_factor", 1.0f);
    put_f32(p, "rope.scaling.yarn_beta_fast", a->yarn_beta_fast);
    put_f32(p, "rope.scaling.yarn_beta_slow", 1.0f);
    put_u32(p, "expert_count", EXPERTS);
    put_u32(p, "expert_used_count", a->n_used);
    put_u32(p, "expert_feed_forward_length", a->ffn_expert);
    put_u32(p, "expert_shared_feed_forward_length", a->ffn_expert);
    put_u32(p, "expert_shared_count", 1);
    put_f32(p, "expert_weights_scale", 2.5f);
    lg_gguf_put_bool(p->w, key(p, "expert_weights_norm"), true);
    put_u32(p, "expert_gating_func", 2); // sigmoid
    put_u32(p, "leading_dense_block_count", 1);
}

static void put_draft(const lg_synth *s, prefixed *p)
{
    const lg_synth_arch *a = s->arch;
    int32_t taps[LG_SYNTH_TAPS_MAX];
    uint8_t window[LG_LAYERS_MAX];

    for (int i = 0; i < a->n_taps; i++)
        taps[i] = s->target_layers ? 1 + i * (s->target_layers - 1) / (a->n_taps - 1) : a->taps[i];
    memset(window, 1, sizeof window);
    put_u32(p, "attention.head_count", a->n_head_window);
    lg_gguf_put_bool(p->w, key(p, "attention.causal"), true);
    lg_gguf_put_array(p->w, key(p, "attention.sliding_window_pattern"), LG_GV_BOOL, window,
                      (uint64_t)s->n_layer);
    put_u32(p, "rope.dimension_count", LG_SYNTH_HEAD_DIM);
    put_f32(p, "rope.freq_base", 500000.0f);
    lg_gguf_put_str(p->w, key(p, "rope.scaling.type"), LG_STR("none"));
    put_u32(p, "block_size", BLOCK_ROWS);
    lg_gguf_put_array(p->w, key(p, "target_layers"), LG_GV_I32, taps, (uint64_t)a->n_taps);
    lg_gguf_put_str(p->w, key(p, "decoder_arch"), LG_STR("laguna"));
}

lg_status lg_synth_describe(const lg_synth *s, lg_gguf_writer *w, lg_err *err)
{
    prefixed p = {.w = w, .prefix = s->arch->draft ? "dflash" : "laguna"};

    put_general(s, w);
    put_shape(s, &p);
    if (s->arch->draft)
        put_draft(s, &p);
    else
        put_target(s, &p);
    LG_TRY(lg_synth_put_vocab(w, err));
    for (size_t i = 0; i < s->n_tensors; i++)
        lg_gguf_put_tensor(w, lg_str_of(s->tensor[i].name), s->tensor[i].type, s->tensor[i].n_dims,
                           s->tensor[i].ne);
    return LG_OK;
}
