/*
 * app/inspect_json: `lagoon inspect --json`: one object. Numbers are raw, long arrays are counted and cut to
 * their first elements, strings are whole.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/app.h"
#include "app/inspect.h"
#include "base/json.h"
#include "engine/sampler.h"

enum { JSON_MAX = 512 << 20, ELEMENTS_WHOLE = 256, ELEMENTS_SHOWN = 8 };

static void put_float(lg_buf *b, double v, bool is_f32)
{
    char text[40];

    if (!isfinite(v)) {
        (void)lg_buf_addz(b, "null");
        return;
    }
    // the fewest digits that read back as the same number of its own type
    for (int digits = is_f32 ? 6 : 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v);
        double back = strtod(text, NULL);
        if (is_f32 ? (float)back == (float)v : back == v)
            break;
    }
    (void)lg_buf_addz(b, text);
}

static void put_element(lg_buf *b, const lg_gguf_kv *kv, uint64_t i, bool element)
{
    lg_gguf_vtype type = element ? kv->elem : kv->type;
    int64_t n;
    double f;
    lg_str s;

    if (element ? lg_kv_elem_str(kv, i, &s) : lg_kv_str(kv, &s))
        (void)lg_json_quote(s, b);
    else if ((type == LG_GV_F32 || type == LG_GV_F64) &&
             (element ? lg_kv_elem_f64(kv, i, &f) : lg_kv_f64(kv, &f)))
        put_float(b, f, type == LG_GV_F32);
    else if (element ? lg_kv_elem_i64(kv, i, &n) : lg_kv_i64(kv, &n))
        (void)(type == LG_GV_BOOL ? lg_buf_addz(b, n ? "true" : "false") : lg_buf_addf(b, "%" PRId64, n));
    else
        (void)lg_buf_addz(b, "null"); // a u64 past the range of JSON's readers
}

static void put_value(lg_buf *b, const lg_gguf_kv *kv)
{
    bool cut = kv->count > ELEMENTS_WHOLE;

    if (kv->type != LG_GV_ARRAY) {
        put_element(b, kv, 0, false);
        return;
    }
    if (cut)
        (void)lg_buf_addf(b, "{\"count\": %" PRIu64 ", \"type\": \"%s\", \"first\": ", kv->count,
                          lg_gguf_vtype_name(kv->elem));
    (void)lg_buf_addc(b, '[');
    for (uint64_t i = 0; i < (cut ? ELEMENTS_SHOWN : kv->count); i++) {
        if (i)
            (void)lg_buf_addz(b, ", ");
        put_element(b, kv, i, true);
    }
    (void)lg_buf_addz(b, cut ? "]}" : "]");
}

static void put_file(lg_buf *b, const lg_gguf *g)
{
    (void)lg_buf_addz(b, "{\"files\": [");
    for (int i = 0; i < lg_gguf_parts(g); i++) {
        if (i)
            (void)lg_buf_addz(b, ", ");
        (void)lg_json_quote(lg_str_of(lg_gguf_path(g, i)), b);
    }
    (void)lg_buf_addf(b, "], \"version\": %d, \"bytes\": %" PRIu64 ", \"metadata\": {", lg_gguf_version(g),
                      lg_gguf_file_bytes(g));
    for (size_t i = 0; i < lg_gguf_n_kv(g); i++) {
        if (i)
            (void)lg_buf_addz(b, ", ");
        (void)lg_json_quote(lg_gguf_kv_at(g, i)->key, b);
        (void)lg_buf_addz(b, ": ");
        put_value(b, lg_gguf_kv_at(g, i));
    }
    (void)lg_buf_addc(b, '}');
}

static void put_rope(lg_buf *b, const char *what, const lg_rope *r, const lg_hparams *hp, bool scaled)
{
    bool yarn = scaled && hp->yarn_factor > 1.0f;

    (void)lg_buf_addf(b,
                      "\"%s\": {\"dimensions\": %d, \"base\": %.10g, \"scaling\": \"%s\", \"factor\": ", what,
                      r->n_rot, scaled ? hp->rope_base_full : hp->rope_base_window, yarn ? "yarn" : "none");
    put_float(b, yarn ? (double)hp->yarn_factor : 1.0, true);
    if (yarn) {
        (void)lg_buf_addf(b, ", \"original_context\": %" PRId64 ", \"beta_fast\": ", hp->yarn_orig_ctx);
        put_float(b, (double)hp->yarn_beta_fast, true);
        (void)lg_buf_addz(b, ", \"beta_slow\": ");
        put_float(b, (double)hp->yarn_beta_slow, true);
    }
    (void)lg_buf_addz(b, ", \"attention_factor\": ");
    put_float(b, (double)r->magnitude, true);
    (void)lg_buf_addz(b, ", \"frequency_first\": ");
    put_float(b, r->freq[0], false);
    (void)lg_buf_addz(b, ", \"frequency_last\": ");
    put_float(b, r->freq[r->n_rot / 2 - 1], false);
    (void)lg_buf_addc(b, '}');
}

static void put_layers(lg_buf *b, const lg_hparams *hp)
{
    (void)lg_buf_addz(b, "[");
    for (int l = 0; l < hp->n_layer; l++)
        (void)lg_buf_addf(b, "%s{\"kind\": \"%s\", \"ffn\": \"%s\", \"heads\": %d, \"gate\": \"%s\"}",
                          l ? ", " : "", hp->layer[l].window ? "window" : "full",
                          hp->layer[l].dense ? "dense" : "experts", hp->layer[l].n_head,
                          hp->layer[l].elem_gate ? "element" : "head");
    (void)lg_buf_addz(b, "]");
}

static void put_configuration(lg_buf *b, const lg_inspect *in)
{
    const lg_hparams *hp = in->hp;
    lg_sampling def = lg_sampling_default();

    (void)lg_buf_addz(b, ", \"configuration\": ");
    if (!hp) {
        (void)lg_buf_addz(b, "null");
        return;
    }
    (void)lg_buf_addf(
        b, "{\"layers\": %d, \"full_layers\": %d, \"window_layers\": %d, \"window\": %d, \"hidden\": %d, ",
        hp->n_layer, hp->n_full, hp->n_window, hp->window, hp->hidden);
    (void)lg_buf_addf(b, "\"vocabulary\": %d, \"context\": %" PRId64 ", \"kv_heads\": %d, \"head_dim\": %d, ",
                      hp->vocab, hp->ctx_train, hp->n_kv_head, hp->head_dim);
    (void)lg_buf_addf(b, "\"dense_layers\": %d, \"dense_width\": %d, \"experts\": %d, \"experts_used\": %d, ",
                      hp->n_dense_lead, hp->ffn_dense, hp->n_expert, hp->n_expert_used);
    (void)lg_buf_addf(
        b, "\"expert_width\": %d, \"shared_width\": %d, \"gating\": \"%s\", \"routing_normalised\": %s, ",
        hp->ffn_expert, hp->ffn_shared, hp->gating == LG_GATE_SIGMOID ? "sigmoid" : "softmax",
        hp->route_norm ? "true" : "false");
    (void)lg_buf_addz(b, "\"routing_scale\": ");
    put_float(b, (double)hp->route_scale, true);
    (void)lg_buf_addz(b, ", \"norm_eps\": ");
    put_float(b, (double)hp->eps, true);
    (void)lg_buf_addz(b, ", \"rope\": {");
    put_rope(b, "full", &hp->rope_full, hp, true);
    if (hp->n_window) {
        (void)lg_buf_addz(b, ", ");
        put_rope(b, "window", &hp->rope_window, hp, false);
    }
    (void)lg_buf_addz(b, "}, \"sampling\": {\"temperature\": ");
    put_float(b, (double)def.temperature, true);
    (void)lg_buf_addf(b, ", \"top_k\": %d, \"top_p\": ", def.top_k);
    put_float(b, (double)def.top_p, true);
    (void)lg_buf_addz(b, ", \"min_p\": ");
    put_float(b, (double)def.min_p, true);
    (void)lg_buf_addz(b, "}, \"layer\": ");
    put_layers(b, hp);
    (void)lg_buf_addc(b, '}');
}

static void put_sum(lg_buf *b, const char *name, const lg_inspect_sum *s, bool *first, bool types)
{
    const char *between = "";

    if (!s->n)
        return;
    (void)lg_buf_addf(b, "%s\"%s\": {\"tensors\": %zu, \"bytes\": %" PRIu64 ", \"weights\": %" PRIu64,
                      *first ? "" : ", ", name, s->n, s->bytes, s->elements);
    if (types)
        (void)lg_buf_addz(b, ", \"types\": [");
    for (uint32_t t = 0; types && t < LG_QTYPE_MAX; t++)
        if (s->types >> t & 1) {
            (void)lg_buf_addf(b, "%s\"%s\"", between, lg_qtype_get(t)->name);
            between = ", ";
        }
    (void)lg_buf_addz(b, types ? "]}" : "}");
    *first = false;
}

static void put_sums(lg_buf *b, const lg_inspect *in)
{
    bool first = true;

    (void)lg_buf_addf(b, ", \"n_tensors\": %zu, \"groups\": {", lg_gguf_n_tensors(in->g));
    for (int i = 0; i < LG_N_INSPECT_PARTS; i++)
        put_sum(b, lg_inspect_part_name(i), &in->part[i], &first, true);
    (void)lg_buf_addz(b, "}, \"types\": {");
    first = true;
    for (uint32_t t = 0; t < LG_QTYPE_MAX; t++)
        if (in->type[t].n)
            put_sum(b, lg_qtype_get(t)->name, &in->type[t], &first, false);
    (void)lg_buf_addc(b, '}');
}

static void put_tensors(lg_buf *b, const lg_gguf *g)
{
    (void)lg_buf_addz(b, ", \"tensors\": [");
    for (size_t i = 0; i < lg_gguf_n_tensors(g); i++) {
        const lg_gguf_tensor *t = lg_gguf_tensor_at(g, i);

        (void)lg_buf_addz(b, i ? ", {\"name\": " : "{\"name\": ");
        (void)lg_json_quote(t->name, b);
        (void)lg_buf_addf(b, ", \"type\": \"%s\", \"shape\": [", lg_qtype_get((uint32_t)t->type)->name);
        for (int d = 0; d < t->n_dims; d++)
            (void)lg_buf_addf(b, "%s%" PRIu64, d ? ", " : "", t->ne[d]);
        (void)lg_buf_addf(b, "], \"bytes\": %zu, \"offset\": %" PRIu64 ", \"part\": %d}", t->bytes, t->offset,
                          t->part + 1);
    }
    (void)lg_buf_addc(b, ']');
}

static void put_plan(lg_buf *b, const lg_plan *p, const char *device)
{
    (void)lg_buf_addz(b, ", \"plan\": {\"device\": ");
    (void)lg_json_quote(lg_str_of(device), b);
    (void)lg_buf_addf(b, ", \"context\": %" PRId64 ", \"context_trained\": %" PRId64 ", \"chunk\": %d, ",
                      p->ctx, p->ctx_train, p->chunk);
    (void)lg_buf_addf(
        b, "\"weight_bytes\": %" PRIu64 ", \"extra_bytes\": %" PRIu64 ", \"resident_bytes\": %" PRIu64 ", ",
        p->weight_bytes, p->extra_bytes, p->resident_bytes);
    (void)lg_buf_addf(b,
                      "\"kv_bytes\": %" PRIu64 ", \"kv_bytes_per_token\": %" PRIu64
                      ", \"kv_fixed_bytes\": %" PRIu64 ", ",
                      p->kv_bytes, p->kv_bytes_per_token, p->kv_fixed_bytes);
    (void)lg_buf_addf(b,
                      "\"scratch_bytes\": %" PRIu64 ", \"draft_bytes\": %" PRIu64
                      ", \"total_bytes\": %" PRIu64 ", \"available_bytes\": %" PRIu64 ", ",
                      p->scratch_bytes, p->draft_bytes, p->total_bytes, p->available_bytes);
    (void)lg_buf_addf(b, "\"cache_slots\": %d, \"cache_bytes\": %" PRIu64 ", \"cut_bytes\": %" PRIu64 ", ",
                      p->cache_slots, p->cache_bytes, p->cut_bytes);
    (void)lg_buf_addf(b, "\"lowered\": %s, \"fits\": %s}", p->lowered ? "true" : "false",
                      p->fits ? "true" : "false");
}

lg_status lg_inspect_json(const lg_inspect *in, lg_err *err)
{
    lg_buf b;

    lg_buf_init(&b, JSON_MAX);
    put_file(&b, in->g);
    put_configuration(&b, in);
    put_sums(&b, in);
    if (in->tensors)
        put_tensors(&b, in->g);
    if (in->plan)
        put_plan(&b, in->plan, in->device);
    (void)lg_buf_addz(&b, "}\n");
    return lg_app_print(&b, "the metadata", err);
}
