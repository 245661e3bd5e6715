/*
 * model/dflash_weights: tensors of a drafter -> weights on a backend (dflash.md 2).
 *
 * One walk over all sources serves checking and loading, so what was checked is what is loaded. A source is
 * a tensor, or a slice of one: norms of taps may be stacked, and q, k and v may be one matrix. Whatever the
 * walk did not ask for is refused by name: a loader that ignores a tensor drafts nonsense.
 *
 * What surprises: 16-bit matrices are rounded to Q8_0 here and not in the file, because a drafter's cost is
 * the bytes it reads, and a rounded one drafts the same.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/dflash.h"

enum { NAME_BYTES = 96 };

// One weight: where it comes from and where it goes.
typedef struct item {
    lg_source src;
    lg_use use;
    lg_weight *to; // in the drafter of the walk
} item;

typedef struct walker {
    const lg_gguf *g;
    const lg_dflash_params *hp;
    lg_dflash *d; // the place of each weight; a check has one of its own
    bool *taken;  // by tensor index
    lg_status (*each)(struct walker *w, const item *it);
    lg_err *err;
    // checking
    lg_backend *b;
    lg_draft_type type;
    lg_weights_plan plan;
} walker;

static const lg_gguf_tensor *find_any(const lg_gguf *g, int layer, const char *const *names)
{
    char full[NAME_BYTES];

    for (; *names; names++) {
        if (layer >= 0)
            (void)snprintf(full, sizeof full, "blk.%d.%s", layer, *names);
        else
            (void)snprintf(full, sizeof full, "%s", *names);
        const lg_gguf_tensor *t = lg_gguf_find_tensor(g, lg_str_of(full));
        if (t)
            return t;
    }
    return NULL;
}

static void claim(const walker *w, const lg_gguf_tensor *t)
{
    w->taken[t - lg_gguf_tensor_at(w->g, 0)] = true;
}

static lg_status not_there(const walker *w, int layer, const char *name)
{
    return layer < 0 ? LG_FAIL(w->err, LG_E_INPUT, "tensor %s is missing", name)
                     : LG_FAIL(w->err, LG_E_INPUT, "tensor blk.%d.%s is missing", layer, name);
}

static lg_status check(const walker *w, const lg_gguf_tensor *t, lg_use use, int n_in, int n_out)
{
    const lg_qtype_info *info = lg_qtype_get(t->type);
    bool plain = t->type == LG_F32 || t->type == LG_F16 || t->type == LG_BF16;

    if (t->ne[0] != (uint64_t)n_in || t->ne[1] != (uint64_t)n_out || t->ne[2] != 1 || t->ne[3] != 1)
        return LG_FAIL(w->err, LG_E_INPUT, "tensor %.*s has shape [%llu, %llu]; [%d, %d] is needed",
                       (int)t->name.n, t->name.p, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                       n_in, n_out);
    if (use == LG_USE_VECTOR ? !plain : !info->runs)
        return LG_FAIL(w->err, LG_E_UNSUPPORTED, "tensor %.*s has type %s, which cannot be a %s",
                       (int)t->name.n, t->name.p, info->name ? info->name : "unknown",
                       use == LG_USE_VECTOR ? "norm; F32, F16 and BF16 can" : "weight matrix");
    return LG_OK;
}

// Rows [first, first + n) of a tensor whose rows have n_in values.
static lg_status give(walker *w, const lg_gguf_tensor *t, lg_use use, int n_in, int first, int n,
                      lg_weight *to)
{
    size_t row = 0;
    item it = {.use = use, .to = to};

    if (!lg_row_bytes(t->type, (uint64_t)n_in, &row))
        return LG_FAIL(w->err, LG_E_INPUT, "tensor %.*s: %d values are no whole blocks of type %s",
                       (int)t->name.n, t->name.p, n_in, lg_qtype_get(t->type)->name);
    it.src = (lg_source){.name = t->name,
                         .type = t->type,
                         .ne = {(uint64_t)n_in, (uint64_t)n, 1, 1},
                         .data = t->data + row * (size_t)first,
                         .bytes = row * (size_t)n,
                         .scale = 1.0f};
    return w->each(w, &it);
}

static lg_status whole(walker *w, int layer, const char *const *names, lg_use use, int n_in, int n_out,
                       lg_weight *to)
{
    const lg_gguf_tensor *t = find_any(w->g, layer, names);

    if (!t)
        return not_there(w, layer, names[0]);
    LG_TRY(check(w, t, use, n_in, n_out));
    claim(w, t);
    return give(w, t, use, n_in, 0, n_out, to);
}

#define NAMES(...) (const char *const[]){__VA_ARGS__, NULL}

// The norms of the taps: one stacked tensor, or one each.
static lg_status tap_norms(walker *w)
{
    const lg_gguf_tensor *t = find_any(w->g, -1, NAMES("enc.aux_norm.weight"));
    int hidden = w->hp->hidden, n = w->hp->n_tap;
    char a[NAME_BYTES], b[NAME_BYTES];

    if (t) {
        LG_TRY(check(w, t, LG_USE_VECTOR, hidden, n));
        claim(w, t);
        for (int i = 0; i < n; i++)
            LG_TRY(give(w, t, LG_USE_VECTOR, hidden, i, 1, &w->d->aux_norm[i]));
        return LG_OK;
    }
    for (int i = 0; i < n; i++) {
        (void)snprintf(a, sizeof a, "dflash_aux_hidden_norm.%d.weight", i);
        (void)snprintf(b, sizeof b, "enc.aux_norm.%d.weight", i);
        if (i == 0 && !find_any(w->g, -1, NAMES(a, b)))
            return not_there(w, -1, "enc.aux_norm.weight");
        LG_TRY(whole(w, -1, NAMES(a, b), LG_USE_VECTOR, hidden, 1, &w->d->aux_norm[i]));
    }
    return LG_OK;
}

// q, k and v: three matrices, or one with their rows in this order.
static lg_status projections(walker *w, int i)
{
    const lg_gguf_tensor *t = find_any(w->g, i, NAMES("attn_qkv.weight"));
    int hidden = w->hp->hidden, q = w->hp->n_head * w->hp->head_dim, kv = w->hp->n_kv_head * w->hp->head_dim;
    lg_layer *l = &w->d->layer[i];

    if (t) {
        LG_TRY(check(w, t, LG_USE_LINEAR, hidden, q + 2 * kv));
        claim(w, t);
        LG_TRY(give(w, t, LG_USE_LINEAR, hidden, 0, q, &l->q));
        LG_TRY(give(w, t, LG_USE_LINEAR, hidden, q, kv, &l->k));
        return give(w, t, LG_USE_LINEAR, hidden, q + kv, kv, &l->v);
    }
    LG_TRY(whole(w, i, NAMES("attn_q.weight"), LG_USE_LINEAR, hidden, q, &l->q));
    LG_TRY(whole(w, i, NAMES("attn_k.weight"), LG_USE_LINEAR, hidden, kv, &l->k));
    return whole(w, i, NAMES("attn_v.weight"), LG_USE_LINEAR, hidden, kv, &l->v);
}

static lg_status layer(walker *w, int i)
{
    const lg_dflash_params *hp = w->hp;
    int hidden = hp->hidden, q = hp->n_head * hp->head_dim;
    lg_layer *l = &w->d->layer[i];

    LG_TRY(whole(w, i, NAMES("attn_norm.weight"), LG_USE_VECTOR, hidden, 1, &l->attn_norm));
    LG_TRY(projections(w, i));
    LG_TRY(whole(w, i, NAMES("attn_gate.weight", "attn_g.weight"), LG_USE_LINEAR, hidden, hp->n_head,
                 &l->gate));
    LG_TRY(whole(w, i, NAMES("attn_output.weight"), LG_USE_LINEAR, q, hidden, &l->o));
    LG_TRY(whole(w, i, NAMES("attn_q_norm.weight"), LG_USE_VECTOR, hp->head_dim, 1, &l->q_norm));
    LG_TRY(whole(w, i, NAMES("attn_k_norm.weight"), LG_USE_VECTOR, hp->head_dim, 1, &l->k_norm));
    LG_TRY(whole(w, i, NAMES("ffn_norm.weight", "post_attention_norm.weight"), LG_USE_VECTOR, hidden, 1,
                 &l->ffn_norm));
    LG_TRY(whole(w, i, NAMES("ffn_gate.weight"), LG_USE_LINEAR, hidden, hp->ffn, &l->ffn_gate));
    LG_TRY(whole(w, i, NAMES("ffn_up.weight"), LG_USE_LINEAR, hidden, hp->ffn, &l->ffn_up));
    return whole(w, i, NAMES("ffn_down.weight"), LG_USE_LINEAR, hp->ffn, hidden, &l->ffn_down);
}

static lg_status all_claimed(const walker *w)
{
    for (size_t i = 0; i < lg_gguf_n_tensors(w->g); i++) {
        const lg_gguf_tensor *t = lg_gguf_tensor_at(w->g, i);
        if (!w->taken[i])
            return LG_FAIL(w->err, LG_E_UNSUPPORTED, "tensor %.*s is not part of a drafter for Laguna",
                           (int)(t->name.n < 128 ? t->name.n : 128), t->name.p);
    }
    return LG_OK;
}

static lg_status walk_all(walker *w)
{
    int hidden = w->hp->hidden;

    LG_TRY(tap_norms(w));
    LG_TRY(whole(w, -1, NAMES("fc.weight", "dflash_fc.weight"), LG_USE_LINEAR, w->hp->n_tap * hidden, hidden,
                 &w->d->fc));
    LG_TRY(whole(w, -1, NAMES("enc.output_norm.weight", "dflash_hidden_norm.weight"), LG_USE_VECTOR, hidden,
                 1, &w->d->fused_norm));
    LG_TRY(whole(w, -1, NAMES("output_norm.weight"), LG_USE_VECTOR, hidden, 1, &w->d->output_norm));
    for (int i = 0; i < w->hp->n_layer; i++)
        LG_TRY(layer(w, i));
    return all_claimed(w);
}

#undef NAMES

// Walks with a table of claims that lives as long as the walk.
static lg_status walk(walker *w)
{
    size_t n = lg_gguf_n_tensors(w->g);
    lg_status st;

    w->taken = calloc(n ? n : 1, sizeof *w->taken);
    if (!w->taken)
        return LG_FAIL(w->err, LG_E_NOMEM, "no memory for a table of %zu tensors", n);
    st = walk_all(w);
    free(w->taken);
    if (st != LG_OK)
        (void)lg_err_subject(w->err, "%s", lg_gguf_path(w->g, 0));
    return st;
}

// The source as Q8_0, without its data, when that is how it is to be kept.
static bool rounded(const lg_source *src, lg_use use, lg_draft_type type, lg_source *out)
{
    size_t row;

    if (type != LG_DRAFT_Q8_0 || use != LG_USE_LINEAR ||
        (src->type != LG_F32 && src->type != LG_F16 && src->type != LG_BF16) ||
        !lg_row_bytes(LG_Q8_0, src->ne[0], &row))
        return false;
    *out = *src;
    out->type = LG_Q8_0;
    out->bytes = row * (size_t)src->ne[1];
    out->data = NULL;
    return true;
}

static lg_status check_one(walker *w, const item *it)
{
    lg_source q8;
    bool copies = rounded(&it->src, it->use, w->type, &q8);
    size_t extra = w->b ? w->b->load_bytes(w->b, copies ? &q8 : &it->src, it->use) : 0;

    if (copies && (!w->b || w->b->info.maps_weights))
        extra += q8.bytes;
    w->plan.stored_bytes += it->src.bytes;
    w->plan.extra_bytes += extra;
    w->plan.resident_bytes += extra > 0 ? extra : it->src.bytes;
    return LG_OK;
}

lg_status lg_dflash_check(const lg_gguf *g, const lg_dflash_params *hp, lg_draft_type type, lg_backend *b,
                          lg_weights_plan *plan, lg_err *err)
{
    lg_dflash d = {.hp = *hp, .layer = calloc((size_t)hp->n_layer, sizeof *d.layer)};
    walker w = {.g = g, .hp = hp, .d = &d, .each = check_one, .err = err, .b = b, .type = type};
    lg_status st;

    if (!d.layer)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for %d layers", hp->n_layer);
    st = walk(&w);
    free(d.layer);
    if (st == LG_OK)
        *plan = w.plan;
    return st;
}

// The rows of src as Q8_0 in *out, to be freed.
static lg_status make_rounded(const lg_source *src, size_t bytes, void **out, lg_err *err)
{
    int64_t n = (int64_t)src->ne[0];
    size_t from = src->bytes / (size_t)src->ne[1], to = bytes / (size_t)src->ne[1];
    float *row = malloc((size_t)n * sizeof *row);
    uint8_t *copy = aligned_alloc(64, (bytes + 63) / 64 * 64);
    lg_status st = LG_OK;

    if (!row || !copy)
        st = LG_FAIL(err, LG_E_NOMEM, "no memory for %zu bytes of a drafter's weights", bytes);
    for (uint64_t i = 0; st == LG_OK && i < src->ne[1]; i++) {
        lg_dequant_row(src->type, (const uint8_t *)src->data + i * from, row, n);
        if (!lg_quant_row(LG_Q8_0, row, copy + i * to, n))
            st = LG_FAIL(err, LG_E_INPUT, "tensor %.*s holds values that Q8_0 cannot hold", (int)src->name.n,
                         src->name.p);
    }
    free(row);
    if (st == LG_OK)
        *out = copy;
    else
        free(copy);
    return st;
}

static lg_status load_one(walker *w, const item *it)
{
    lg_source q8;
    void *copy = NULL;
    lg_status st;

    if (!rounded(&it->src, it->use, w->type, &q8))
        return w->b->ops->load(w->b, &it->src, it->use, it->to, w->err);
    LG_TRY(make_rounded(&it->src, q8.bytes, &copy, w->err));
    q8.data = copy;
    st = w->b->ops->load(w->b, &q8, it->use, it->to, w->err);
    if (st == LG_OK && w->b->info.maps_weights)
        w->d->copy[w->d->n_copy++] = copy; // the backend reads it there
    else
        free(copy);
    return st;
}

lg_status lg_dflash_load(const lg_gguf *g, const lg_dflash_params *hp, lg_draft_type type, lg_backend *b,
                         lg_dflash *out, lg_err *err)
{
    lg_dflash d = {.hp = *hp, .layer = calloc((size_t)hp->n_layer, sizeof *d.layer)};
    walker w = {.g = g, .hp = hp, .d = &d, .each = load_one, .err = err, .b = b, .type = type};
    lg_status st;

    d.copy = calloc((size_t)hp->n_layer * 8 + 1, sizeof *d.copy); // matrices of a layer, and fc
    if (!d.layer || !d.copy) {
        free(d.layer);
        free(d.copy);
        return LG_FAIL(err, LG_E_NOMEM, "no memory for %d layers", hp->n_layer);
    }
    st = walk(&w);
    if (st != LG_OK)
        lg_dflash_unload(b, &d);
    else
        *out = d;
    return st;
}

void lg_dflash_unload(lg_backend *b, lg_dflash *d)
{
    if (!d->layer)
        return;
    for (int i = 0; i < d->hp.n_tap; i++)
        b->ops->unload(b, &d->aux_norm[i]);
    b->ops->unload(b, &d->fc);
    b->ops->unload(b, &d->fused_norm);
    b->ops->unload(b, &d->output_norm);
    for (int i = 0; i < d->hp.n_layer; i++) {
        lg_layer *l = &d->layer[i];
        lg_weight *all[] = {&l->attn_norm, &l->q,        &l->k,        &l->v,      &l->gate,    &l->o,
                            &l->q_norm,    &l->k_norm,   &l->ffn_norm, &l->ffn_gate, &l->ffn_up,
                            &l->ffn_down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            b->ops->unload(b, all[k]);
    }
    for (int i = 0; i < d->n_copy; i++)
        free(d->copy[i]);
    free(d->copy);
    free(d->layer);
    *d = (lg_dflash){0};
}
