/*
 * tests/support/maker: see maker.h. Tensors are made one at a time, in the order in which they were declared.
 */
#include "support/maker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS_MAX = 1024, MAX_NAME = 96 };

typedef struct made {
    char name[MAX_NAME];
    lg_qtype type;
    int n_dims;
    uint64_t ne[4];
    double scale, mean; // values are mean + scale * normal
} made;

typedef struct list {
    const mk_model *m;
    made *t;
    int n;
} list;

double mk_uniform(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) * 0x1.0p-53;
}

double mk_normal(uint64_t *state)
{
    double sum = 0;

    for (int i = 0; i < 12; i++)
        sum += mk_uniform(state);
    return sum - 6;
}

mk_model mk_default(const char *vocab_from)
{
    return (mk_model){.n_layer = 9,
                      .hidden = 256,
                      .head_dim = 32,
                      .n_kv_head = 1,
                      .vocab = 512,
                      .heads_full = 6,
                      .heads_window = 9,
                      .n_rot = 16,
                      .n_rot_window = 32,
                      .window = 8,
                      .n_dense = 1,
                      .ffn_dense = 512,
                      .n_expert = 8,
                      .n_used = 3,
                      .ffn_expert = 256,
                      .ffn_shared = 256,
                      .ctx = 4096,
                      .linear = LG_F32,
                      .experts = LG_F32,
                      .embed = LG_F32,
                      .seed = 1,
                      .vocab_from = vocab_from};
}

static bool is_window(const mk_model *m, int layer)
{
    if (m->window == 0)
        return false;
    return m->is_window ? m->is_window[layer] : layer % 4 != 0;
}

static int heads(const mk_model *m, int layer)
{
    return is_window(m, layer) ? m->heads_window : m->heads_full;
}

static bool skipped(const mk_model *m, const char *key)
{
    char what[128];

    (void)snprintf(what, sizeof what, "|%s|", key);
    return m->skip_keys && strstr(m->skip_keys, what);
}

static void put_int(const mk_model *m, lg_gguf_writer *w, const char *key, int64_t v)
{
    char full[128];

    (void)snprintf(full, sizeof full, "laguna.%s", key);
    if (!skipped(m, key))
        lg_gguf_put_u32(w, full, (uint32_t)v);
}

static void put_float(const mk_model *m, lg_gguf_writer *w, const char *key, float v)
{
    char full[128];

    (void)snprintf(full, sizeof full, "laguna.%s", key);
    if (!skipped(m, key))
        lg_gguf_put_f32(w, full, v);
}

static void put_keys(const mk_model *m, lg_gguf_writer *w)
{
    int32_t n_head[256];

    for (int i = 0; i < m->n_layer; i++)
        n_head[i] = heads(m, i);
    if (!skipped(m, "general.architecture"))
        lg_gguf_put_str(w, "general.architecture", LG_STR("laguna"));
    put_int(m, w, "vocab_size", m->vocab);
    put_int(m, w, "context_length", m->ctx);
    put_int(m, w, "embedding_length", m->hidden);
    put_int(m, w, "block_count", m->n_layer);
    put_int(m, w, "feed_forward_length", m->ffn_dense);
    if (!skipped(m, "attention.head_count"))
        lg_gguf_put_array(w, "laguna.attention.head_count", LG_GV_I32, n_head, (uint64_t)m->n_layer);
    put_int(m, w, "attention.head_count_kv", m->n_kv_head);
    put_int(m, w, "attention.key_length", m->head_dim);
    put_int(m, w, "attention.value_length", m->head_dim);
    put_float(m, w, "attention.layer_norm_rms_epsilon", 1e-6f);
    if (m->window)
        put_int(m, w, "attention.sliding_window", m->window);
    if (m->is_window && !skipped(m, "attention.sliding_window_pattern"))
        lg_gguf_put_array(w, "laguna.attention.sliding_window_pattern", LG_GV_BOOL, m->is_window,
                          (uint64_t)m->n_layer);
    put_int(m, w, "rope.dimension_count", m->n_rot);
    put_int(m, w, "rope.dimension_count_swa", m->n_rot_window);
    put_float(m, w, "rope.freq_base", 500000.0f);
    put_float(m, w, "rope.freq_base_swa", 10000.0f);
    if (!skipped(m, "rope.scaling.type"))
        lg_gguf_put_str(w, "laguna.rope.scaling.type", LG_STR("yarn"));
    put_float(m, w, "rope.scaling.factor", 32.0f);
    put_int(m, w, "rope.scaling.original_context_length", 2048);
    put_float(m, w, "rope.scaling.yarn_beta_fast", 32.0f);
    put_float(m, w, "rope.scaling.yarn_beta_slow", 1.0f);
    put_int(m, w, "expert_count", m->n_expert);
    put_int(m, w, "expert_used_count", m->n_used);
    put_int(m, w, "expert_feed_forward_length", m->ffn_expert);
    put_int(m, w, "expert_shared_feed_forward_length", m->ffn_shared);
    put_float(m, w, "expert_weights_scale", 2.5f);
    if (!skipped(m, "expert_weights_norm"))
        lg_gguf_put_bool(w, "laguna.expert_weights_norm", true);
    put_int(m, w, "expert_gating_func", 2);
    put_int(m, w, "leading_dense_block_count", m->n_dense);
}

static bool copy_vocab(const mk_model *m, lg_gguf_writer *w)
{
    lg_gguf *g;
    lg_err err = {0};
    char line[512];

    if (!m->vocab_from)
        return true;
    if (lg_gguf_open(m->vocab_from, &g, &err) != LG_OK) {
        (void)fprintf(stderr, "maker: %s\n", lg_err_line(&err, line, sizeof line));
        return false;
    }
    for (size_t i = 0; i < lg_gguf_n_kv(g); i++)
        if (lg_str_starts(lg_gguf_kv_at(g, i)->key, LG_STR("tokenizer.")))
            lg_gguf_put_copy(w, lg_gguf_kv_at(g, i));
    lg_gguf_close(g);
    return true;
}

static void add(list *l, lg_gguf_writer *w, int layer, const char *name, lg_qtype type, int n_dims,
                const int *ne, double scale, double mean)
{
    made t = {.type = type, .n_dims = n_dims, .scale = scale, .mean = mean};

    if (layer >= 0)
        (void)snprintf(t.name, sizeof t.name, "blk.%d.%s", layer, name);
    else
        (void)snprintf(t.name, sizeof t.name, "%s", name);
    for (int i = 0; i < 4; i++)
        t.ne[i] = i < n_dims ? (uint64_t)ne[i] : 1;
    if (l->m->shape)
        l->m->shape(l->m->arg, t.name, &t.type, &t.n_dims, t.ne);
    if (t.n_dims == 0 || l->n == TENSORS_MAX)
        return;
    lg_gguf_put_tensor(w, lg_str_of(t.name), t.type, t.n_dims, t.ne);
    l->t[l->n++] = t;
}

static void matrix(list *l, lg_gguf_writer *w, int layer, const char *name, lg_qtype type, int in, int out,
                   double gain)
{
    add(l, w, layer, name, type, 2, (int[]){in, out}, gain / sqrt(in), 0);
}

static void vector(list *l, lg_gguf_writer *w, int layer, const char *name, int n, double scale, double mean)
{
    add(l, w, layer, name, LG_F32, 1, &n, scale, mean);
}

static void declare_layer(list *l, lg_gguf_writer *w, int i)
{
    const mk_model *m = l->m;
    int h = m->hidden, q = heads(m, i) * m->head_dim, kv = m->n_kv_head * m->head_dim;
    int e = m->n_expert, fe = m->ffn_expert;

    vector(l, w, i, "attn_norm.weight", h, 0.1, 1);
    matrix(l, w, i, "attn_q.weight", m->linear, h, q, 1.5);
    matrix(l, w, i, "attn_k.weight", m->linear, h, kv, 1.5);
    matrix(l, w, i, "attn_v.weight", m->linear, h, kv, 1);
    matrix(l, w, i, "attn_gate.weight", m->linear, h, m->elem_gate ? q : heads(m, i), 1);
    matrix(l, w, i, "attn_output.weight", m->linear, q, h, 1);
    vector(l, w, i, "attn_q_norm.weight", m->head_dim, 0.1, 1.2);
    vector(l, w, i, "attn_k_norm.weight", m->head_dim, 0.1, 1.2);
    vector(l, w, i, "ffn_norm.weight", h, 0.1, 1);
    if (i < m->n_dense) {
        matrix(l, w, i, "ffn_gate.weight", m->linear, h, m->ffn_dense, 1);
        matrix(l, w, i, "ffn_up.weight", m->linear, h, m->ffn_dense, 1);
        matrix(l, w, i, "ffn_down.weight", m->linear, m->ffn_dense, h, 1);
        return;
    }
    matrix(l, w, i, "ffn_gate_inp.weight", LG_F32, h, e, 1.5);
    vector(l, w, i, "exp_probs_b.bias", e, 0.05, 0);
    add(l, w, i, "ffn_gate_exps.weight", m->experts, 3, (int[]){h, fe, e}, 1 / sqrt(h), 0);
    add(l, w, i, "ffn_up_exps.weight", m->experts, 3, (int[]){h, fe, e}, 1 / sqrt(h), 0);
    add(l, w, i, "ffn_down_exps.weight", m->experts, 3, (int[]){fe, h, e}, 1 / sqrt(fe), 0);
    if (m->ffn_shared == 0)
        return;
    matrix(l, w, i, "ffn_gate_shexp.weight", m->linear, h, m->ffn_shared, 1);
    matrix(l, w, i, "ffn_up_shexp.weight", m->linear, h, m->ffn_shared, 1);
    matrix(l, w, i, "ffn_down_shexp.weight", m->linear, m->ffn_shared, h, 1);
}

static void put_f16(unsigned char *at, double v)
{
    uint16_t h = lg_f32_to_f16((float)v);

    memcpy(at, &h, sizeof h);
}

// Blocks of a type that has no plain quantizer: random codes, scales that give values of about the wanted
// size.
static bool random_blocks(lg_qtype type, double scale, uint64_t *rng, unsigned char *out, size_t bytes)
{
    size_t block = (size_t)lg_qtype_get(type)->block_bytes;

    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(mk_uniform(rng) * 256);
    for (unsigned char *b = out; b < out + bytes; b += block) {
        switch (type) {
        case LG_Q2_K: // the min takes the mean away
            put_f16(b + 80, scale / 8);
            put_f16(b + 82, scale / 8 * 1.5);
            break;
        case LG_Q3_K:
            put_f16(b + 108, scale / 43);
            break;
        case LG_IQ4_NL:
            put_f16(b, scale / 70);
            break;
        case LG_IQ4_XS:
            put_f16(b, scale / 1290);
            break;
        case LG_MXFP4:
            b[0] = (unsigned char)(128 + floor(log2(scale / 5)));
            break;
        case LG_NVFP4:
            for (int i = 0; i < 4; i++)
                b[i] = (unsigned char)(8 * (8 + floor(log2(scale / 5))) + b[i] % 8);
            break;
        default:
            return false;
        }
    }
    return true;
}

static bool write_tensor(const mk_model *m, lg_gguf_writer *w, const made *t, uint64_t *rng)
{
    size_t n = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]), row;
    float *v = malloc(n * sizeof *v);
    unsigned char *packed = NULL;
    bool ok = false;

    if (!v || !lg_row_bytes(t->type, n, &row) || !(packed = malloc(row)))
        goto out;
    for (size_t i = 0; i < n; i++)
        v[i] = (float)(t->mean + t->scale * mk_normal(rng));
    if (m->values)
        m->values(m->arg, t->name, v, t->ne, n);
    if (!lg_quant_row(t->type, v, packed, (int64_t)n) &&
        !random_blocks(t->type, t->scale, rng, packed, row)) {
        (void)fprintf(stderr, "maker: no quantizer for %s\n", t->name);
        goto out;
    }
    ok = lg_gguf_write_data(w, packed, row);
out:
    free(v);
    free(packed);
    return ok;
}

static bool write_all(list *l, lg_gguf_writer *w)
{
    const mk_model *m = l->m;
    uint64_t rng = m->seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    lg_err err = {0};
    char line[512];

    put_keys(m, w);
    if (m->keys)
        m->keys(m->arg, w);
    if (!copy_vocab(m, w))
        goto abort;
    matrix(l, w, -1, "token_embd.weight", m->embed, m->hidden, m->vocab, sqrt(m->hidden));
    for (int i = 0; i < m->n_layer; i++)
        declare_layer(l, w, i);
    vector(l, w, -1, "output_norm.weight", m->hidden, 0.1, 1);
    if (!m->tied)
        matrix(l, w, -1, "output.weight", m->linear, m->hidden, m->vocab, 2);
    if (m->more)
        m->more(m->arg, w, false);
    if (lg_gguf_write_begin(w, &err) != LG_OK) {
        (void)fprintf(stderr, "maker: %s\n", lg_err_line(&err, line, sizeof line));
        goto abort;
    }
    for (int i = 0; i < l->n; i++)
        if (!write_tensor(m, w, &l->t[i], &rng))
            goto abort;
    if (m->more)
        m->more(m->arg, w, true);
    return lg_gguf_write_finish(w, &err) == LG_OK;
abort:
    lg_gguf_write_abort(w);
    return false;
}

bool mk_write(const mk_model *m, const char *path)
{
    list l = {.m = m, .t = calloc(TENSORS_MAX, sizeof(made))};
    lg_gguf_writer *w;
    lg_err err = {0};
    bool ok = l.t && lg_gguf_write_open(path, &w, &err) == LG_OK && write_all(&l, w);

    free(l.t);
    return ok;
}
