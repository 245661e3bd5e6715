/*
 * model/weights: see weights.h. Each group of tensors is a table of wants: name, older name, shape with the
 * reason for each dimension, use, and where the handle goes. Checking and loading walk the same tables, so
 * what was checked is what is loaded.
 *
 * What surprises: some exporters leave a singleton dimension on the gate and on the selection bias, and NVFP4
 * exports carry the multiplier of a matrix in a tensor of its own, NAME.scale.
 */
#include "model/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { WANTS_MAX = 20, NAME_MAX_BYTES = 96 };

// A dimension and why it must be so: "the head count 48".
typedef struct dim {
    uint64_t n;
    const char *what;
    int value;
} dim;

typedef struct want {
    const char *name;    // with ".weight" or ".bias"; without "blk.N."
    const char *old[3];  // older names of the same, as many as there are
    int n_dims;
    dim d[3];
    lg_use use;
    size_t at;    // offset in lg_layer or lg_laguna
    bool loose;   // singleton dimensions are tolerated
    bool is_gate; // d[1] may also be head count * head_dim
} want;

typedef struct found {
    const lg_gguf_tensor *t;
    lg_source src; // ne without singletons, as the want has them
    const char *older; // the older name that it was found under, or NULL
} found;

static dim plain(int n, const char *what)
{
    return (dim){(uint64_t)n, what, n};
}

static want vector(const char *name, dim n, size_t at)
{
    return (want){.name = name, .n_dims = 1, .d = {n}, .use = LG_USE_VECTOR, .at = at};
}

static want matrix(const char *name, dim in, dim out, lg_use use, size_t at)
{
    return (want){.name = name, .n_dims = 2, .d = {in, out}, .use = use, .at = at};
}

static want linear(const char *name, dim in, dim out, size_t at)
{
    return matrix(name, in, out, LG_USE_LINEAR, at);
}

static want stack(const char *name, dim in, dim out, dim experts, size_t at)
{
    return (want){.name = name, .n_dims = 3, .d = {in, out, experts}, .use = LG_USE_EXPERTS, .at = at};
}

#define AT(field) offsetof(lg_layer, field)

static int attention_wants(const lg_hparams *hp, const lg_layer_params *lp, want *w)
{
    dim hidden = plain(hp->hidden, "the hidden size"), head = plain(hp->head_dim, "the head size");
    dim heads = plain(lp->n_head, "the head count");
    dim q = {(uint64_t)(lp->n_head * hp->head_dim), "the head count", lp->n_head};
    dim kv = {(uint64_t)(hp->n_kv_head * hp->head_dim), "the KV head count", hp->n_kv_head};
    int n = 0;

    w[n++] = vector("attn_norm.weight", hidden, AT(attn_norm));
    w[n++] = linear("attn_q.weight", hidden, q, AT(q));
    w[n++] = linear("attn_k.weight", hidden, kv, AT(k));
    w[n++] = linear("attn_v.weight", hidden, kv, AT(v));
    w[n] = linear("attn_gate.weight", hidden, heads, AT(gate));
    w[n].old[0] = "attn_g.weight";
    w[n].loose = w[n].is_gate = true;
    n++;
    w[n++] = linear("attn_output.weight", q, hidden, AT(o));
    w[n++] = vector("attn_q_norm.weight", head, AT(q_norm));
    w[n++] = vector("attn_k_norm.weight", head, AT(k_norm));
    w[n++] = vector("ffn_norm.weight", hidden, AT(ffn_norm));
    return n;
}

static int dense_wants(const lg_hparams *hp, want *w)
{
    dim hidden = plain(hp->hidden, "the hidden size"), wide = plain(hp->ffn_dense, "the feed-forward length");
    int n = 0;

    w[n++] = linear("ffn_gate.weight", hidden, wide, AT(ffn_gate));
    w[n++] = linear("ffn_up.weight", hidden, wide, AT(ffn_up));
    w[n++] = linear("ffn_down.weight", wide, hidden, AT(ffn_down));
    return n;
}

static int expert_wants(const lg_hparams *hp, want *w)
{
    dim hidden = plain(hp->hidden, "the hidden size"), experts = plain(hp->n_expert, "the expert count");
    dim narrow = plain(hp->ffn_expert, "the expert width");
    dim shared = plain(hp->ffn_shared, "the shared expert's width");
    int n = 0;

    w[n++] = matrix("ffn_gate_inp.weight", hidden, experts, LG_USE_ROUTER, AT(router));
    w[n] = vector("exp_probs_b.bias", experts, AT(router_bias));
    w[n].old[0] = "exp_probs_b";
    w[n].old[1] = "e_score_correction_bias"; // as in the checkpoint
    w[n].old[2] = "e_score_correction";
    w[n].loose = true;
    n++;
    w[n++] = stack("ffn_gate_exps.weight", hidden, narrow, experts, AT(exp_gate));
    w[n++] = stack("ffn_up_exps.weight", hidden, narrow, experts, AT(exp_up));
    w[n++] = stack("ffn_down_exps.weight", narrow, hidden, experts, AT(exp_down));
    if (hp->ffn_shared > 0) {
        w[n++] = linear("ffn_gate_shexp.weight", hidden, shared, AT(shared_gate));
        w[n++] = linear("ffn_up_shexp.weight", hidden, shared, AT(shared_up));
        w[n++] = linear("ffn_down_shexp.weight", shared, hidden, AT(shared_down));
    }
    return n;
}

#undef AT

static int layer_wants(const lg_hparams *hp, int i, want *w)
{
    int n = attention_wants(hp, &hp->layer[i], w);

    return n + (hp->layer[i].dense ? dense_wants(hp, w + n) : expert_wants(hp, w + n));
}

static int global_wants(const lg_hparams *hp, bool tied, want *w)
{
    dim hidden = plain(hp->hidden, "the hidden size"), vocab = plain(hp->vocab, "the vocabulary size");
    lg_use embed = tied ? LG_USE_EMBED_LINEAR : LG_USE_EMBED;
    int n = 0;

    w[n++] = matrix("token_embd.weight", hidden, vocab, embed, offsetof(lg_laguna, embed));
    w[n++] = vector("output_norm.weight", hidden, offsetof(lg_laguna, output_norm));
    if (!tied)
        w[n++] = linear("output.weight", hidden, vocab, offsetof(lg_laguna, output));
    return n;
}

static bool is_tied(const lg_gguf *g)
{
    return !lg_gguf_find_tensor(g, LG_STR("output.weight"));
}

static const lg_gguf_tensor *find_name(const lg_gguf *g, int layer, const char *name)
{
    char full[NAME_MAX_BYTES + 16];

    if (layer < 0)
        return lg_gguf_find_tensor(g, lg_str_of(name));
    (void)snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return lg_gguf_find_tensor(g, lg_str_of(full));
}

// "[2048, 6144]"
static const char *shape_text(char *out, size_t n, const uint64_t *ne, int n_dims)
{
    size_t at = 0;

    for (int i = 0; i < n_dims && at < n; i++)
        at += (size_t)snprintf(out + at, n - at, "%s%llu", i ? ", " : "[", (unsigned long long)ne[i]);
    if (at < n)
        (void)snprintf(out + at, n - at, "]");
    return out;
}

// Compare the shape with the want; *ne gets the dimensions as the want has them.
static lg_status check_shape(const want *w, const lg_gguf_tensor *t, int head_dim, uint64_t ne[4],
                             lg_err *err)
{
    uint64_t have[4] = {1, 1, 1, 1}, need[4] = {1, 1, 1, 1};
    char a[100], b[100];
    int n = 0, bad = -1;

    for (int i = 0; i < 4; i++)
        if (!w->loose || t->ne[i] != 1)
            have[n++] = t->ne[i];
    for (int i = 0; i < w->n_dims; i++)
        need[i] = w->d[i].n;
    if (w->is_gate && have[1] == need[1] * (uint64_t)head_dim)
        need[1] = have[1];
    for (int i = 3; i >= 0; i--)
        if (have[i] != need[i])
            bad = i;
    memcpy(ne, need, sizeof need);
    if (bad < 0)
        return LG_OK;
    const dim *why = &w->d[bad < w->n_dims ? bad : w->n_dims - 1];
    return LG_FAIL(err, LG_E_INPUT, "tensor %.*s has shape %s; %s %d needs %s", (int)t->name.n, t->name.p,
                   shape_text(a, sizeof a, t->ne, t->n_dims), why->what, why->value,
                   shape_text(b, sizeof b, need, w->n_dims));
}

static bool is_float(lg_qtype type)
{
    return type == LG_F32 || type == LG_F16 || type == LG_BF16;
}

static lg_status check_type(const want *w, const lg_gguf_tensor *t, lg_err *err)
{
    const char *name = lg_qtype_get(t->type)->name;

    if (w->use == LG_USE_VECTOR || w->use == LG_USE_ROUTER) {
        if (!is_float(t->type))
            return LG_FAIL(err, LG_E_UNSUPPORTED, "tensor %.*s has type %s; F32, F16 or BF16 is needed there",
                           (int)t->name.n, t->name.p, name ? name : "unknown");
    } else if (!lg_qtype_get(t->type)->runs) {
        return LG_FAIL(err, LG_E_UNSUPPORTED, "tensor %.*s has type %s, which cannot be a weight matrix",
                       (int)t->name.n, t->name.p, name ? name : "unknown");
    }
    return LG_OK;
}

// The multiplier of a matrix, if the file has one: NAME.scale with one value, or one for each expert.
static lg_status read_scale(const lg_gguf *g, int layer, const want *w, lg_source *src, lg_err *err)
{
    char name[NAME_MAX_BYTES];
    size_t stem = strlen(w->name) - strlen(".weight");

    src->scale = 1.0f;
    if (!lg_str_ends(lg_str_of(w->name), LG_STR(".weight")))
        return LG_OK;
    (void)snprintf(name, sizeof name, "%.*s.scale", (int)stem, w->name);
    const lg_gguf_tensor *t = find_name(g, layer, name);
    if (!t)
        return LG_OK;
    size_t n = t->bytes / sizeof(float);
    const float *v = (const float *)(const void *)t->data; // tensors are aligned to 8 bytes at least
    if (t->type != LG_F32 || n < 1 || (n != 1 && (w->use != LG_USE_EXPERTS || n != w->d[2].n)))
        return LG_FAIL(err, LG_E_INPUT, "tensor %.*s must hold one F32 value, or one for each expert",
                       (int)t->name.n, t->name.p);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return LG_FAIL(err, LG_E_INPUT, "tensor %.*s holds a value that is not finite", (int)t->name.n,
                           t->name.p);
    if (n == 1)
        src->scale = v[0];
    else
        src->expert_scale = v;
    return LG_OK;
}

static lg_status not_there(const lg_gguf *g, int layer, const want *w, lg_err *err)
{
    if (layer < 0)
        return LG_FAIL(err, LG_E_INPUT, "tensor %s is missing", w->name);
    if (w->use == LG_USE_EXPERTS &&
        (find_name(g, layer, "ffn_up_gate_exps.weight") || find_name(g, layer, "ffn_gate_up_exps.weight")))
        return LG_FAIL(err, LG_E_UNSUPPORTED,
                       "the experts of layer %d are stored with gate and up merged; write the file with "
                       "separate ffn_gate_exps and ffn_up_exps",
                       layer);
    return LG_FAIL(err, LG_E_INPUT, "tensor blk.%d.%s is missing", layer, w->name);
}

// The tensor of a want, checked; layer < 0: a global one.
static lg_status resolve(const lg_gguf *g, const lg_hparams *hp, int layer, const want *w, found *out,
                         lg_err *err)
{
    const lg_gguf_tensor *t = find_name(g, layer, w->name);
    found f = {0};

    for (size_t i = 0; !t && i < sizeof w->old / sizeof w->old[0] && w->old[i]; i++) {
        t = find_name(g, layer, w->old[i]);
        f.older = w->old[i];
    }
    if (!t)
        return not_there(g, layer, w, err);
    f.t = t;
    LG_TRY(check_shape(w, t, hp->head_dim, f.src.ne, err));
    LG_TRY(check_type(w, t, err));
    f.src.name = t->name;
    f.src.type = t->type;
    f.src.data = t->data;
    f.src.bytes = t->bytes;
    f.src.made = t->made;
    LG_TRY(read_scale(g, layer, w, &f.src, err));
    *out = f;
    return LG_OK;
}

// Which tensors of the file belong to the model; index as in lg_gguf_tensor_at.
typedef struct claims {
    const lg_gguf *g;
    bool *taken;
} claims;

static void claim(const claims *c, const lg_gguf_tensor *t)
{
    if (t)
        c->taken[t - lg_gguf_tensor_at(c->g, 0)] = true;
}

// A matrix may come with NAME.scale (used) and NAME.input_scale (for engines that round activations to FP4).
static void claim_scales(const claims *c, int layer, const want *w)
{
    char name[NAME_MAX_BYTES];

    if (!lg_str_ends(lg_str_of(w->name), LG_STR(".weight")))
        return;
    int stem = (int)(strlen(w->name) - strlen(".weight"));
    (void)snprintf(name, sizeof name, "%.*s.scale", stem, w->name);
    claim(c, find_name(c->g, layer, name));
    (void)snprintf(name, sizeof name, "%.*s.input_scale", stem, w->name);
    claim(c, find_name(c->g, layer, name));
}

static lg_status all_claimed(const claims *c, lg_err *err)
{
    for (size_t i = 0; i < lg_gguf_n_tensors(c->g); i++) {
        const lg_gguf_tensor *t = lg_gguf_tensor_at(c->g, i);
        if (!c->taken[i])
            return LG_FAIL(err, LG_E_UNSUPPORTED,
                           "tensor %.*s is not part of a Laguna model with this configuration",
                           (int)(t->name.n < 128 ? t->name.n : 128), t->name.p);
    }
    return LG_OK;
}

// Walks the wants of the globals (layer -1) and of all layers, and calls `each` for every tensor.
typedef lg_status (*each_fn)(void *ctx, int layer, const want *w, const found *f, lg_err *err);
static lg_status walk(const lg_gguf *g, const lg_hparams *hp, each_fn each, void *ctx, lg_err *err)
{
    want w[WANTS_MAX];
    found f;

    for (int i = -1; i < hp->n_layer; i++) {
        int n = i < 0 ? global_wants(hp, is_tied(g), w) : layer_wants(hp, i, w);
        for (int k = 0; k < n; k++) {
            LG_TRY(resolve(g, hp, i, &w[k], &f, err));
            LG_TRY(each(ctx, i, &w[k], &f, err));
        }
    }
    return LG_OK;
}

typedef struct checker {
    claims claims;
    lg_hparams *hp;
    lg_backend *b;
    lg_weights_plan plan;
} checker;

static lg_status check_one(void *ctx, int layer, const want *w, const found *f, lg_err *err)
{
    checker *c = ctx;
    size_t extra = c->b ? c->b->load_bytes(c->b, &f->src, w->use) : 0;

    (void)err;
    claim(&c->claims, f->t);
    if (f->older && c->plan.n_older++ == 0) {
        c->plan.older = f->older;
        c->plan.now = w->name;
    }
    claim_scales(&c->claims, layer, w);
    if (w->is_gate)
        c->hp->layer[layer].elem_gate = f->src.ne[1] != (uint64_t)c->hp->layer[layer].n_head;
    c->plan.stored_bytes += f->src.bytes;
    c->plan.extra_bytes += extra;
    // a copy made for the device is what stays in use; without one the file's own pages are
    c->plan.resident_bytes += extra > 0 ? extra : f->src.bytes;
    return LG_OK;
}

lg_status lg_weights_check(const lg_gguf *g, lg_hparams *hp, lg_backend *b, lg_weights_plan *plan,
                           lg_err *err)
{
    size_t n = lg_gguf_n_tensors(g);
    checker c = {.claims = {.g = g, .taken = calloc(n ? n : 1, sizeof(bool))}, .hp = hp, .b = b};
    lg_status st;

    if (!c.claims.taken)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for a table of %zu tensors", n);
    st = walk(g, hp, check_one, &c, err);
    if (st == LG_OK)
        st = all_claimed(&c.claims, err);
    free(c.claims.taken);
    if (st == LG_OK)
        *plan = c.plan;
    else
        (void)lg_err_subject(err, "%s", lg_gguf_path(g, 0));
    return st;
}

void lg_weights_warn(const lg_weights_plan *plan)
{
    if (plan->n_older > 0)
        LG_WARN("model", "tensors", "%s is an older name of %s; %d tensor%s read that way", plan->older,
                plan->now, plan->n_older, plan->n_older == 1 ? " is" : "s are");
}

typedef struct loader {
    lg_laguna *m;
    lg_backend *b;
    lg_progress progress;
    void *progress_ctx;
    uint64_t done, total;
} loader;

static lg_status load_one(void *ctx, int layer, const want *w, const found *f, lg_err *err)
{
    loader *l = ctx;
    char *base = layer < 0 ? (char *)l->m : (char *)&l->m->layer[layer];

    LG_TRY(l->b->ops->load(l->b, &f->src, w->use, (lg_weight *)(void *)(base + w->at), err));
    l->done += f->src.bytes;
    if (l->progress)
        l->progress(l->progress_ctx, l->done, l->total);
    return LG_OK;
}

lg_status lg_weights_load(const lg_gguf *g, const lg_hparams *hp, lg_backend *b, lg_progress progress,
                          void *ctx, lg_laguna *out, lg_err *err)
{
    lg_laguna m = {.hp = *hp, .tied = is_tied(g)};
    loader l = {.m = &m, .b = b, .progress = progress, .progress_ctx = ctx};
    lg_status st;

    for (size_t i = 0; i < lg_gguf_n_tensors(g); i++)
        l.total += lg_gguf_tensor_at(g, i)->bytes;
    m.layer = calloc((size_t)hp->n_layer, sizeof *m.layer);
    if (!m.layer)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for %d layers", hp->n_layer);
    st = walk(g, hp, load_one, &l, err);
    if (st != LG_OK) {
        lg_weights_unload(b, &m);
        (void)lg_err_subject(err, "%s", lg_gguf_path(g, 0));
        return st;
    }
    if (m.tied) {
        m.output = m.embed;
        m.output.mem = (lg_mem){0}; // the embedding owns it
    }
    *out = m;
    return LG_OK;
}

void lg_weights_unload(lg_backend *b, lg_laguna *m)
{
    want w[WANTS_MAX];

    if (!m->layer)
        return;
    for (int i = -1; i < m->hp.n_layer; i++) {
        char *base = i < 0 ? (char *)m : (char *)&m->layer[i];
        int n = i < 0 ? global_wants(&m->hp, m->tied, w) : layer_wants(&m->hp, i, w);
        for (int k = 0; k < n; k++)
            b->ops->unload(b, (lg_weight *)(void *)(base + w[k].at));
    }
    free(m->layer);
    *m = (lg_laguna){0};
}
