/*
 * app/inspect_text: `lagoon inspect` for people. One fact a line, columns aligned, nothing wider than it
 * needs to be.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/figures.h"
#include "app/inspect.h"
#include "engine/sampler.h"

enum { TEXT_SHOWN = 60, ELEMENTS_SHOWN = 8 };

// Text from the file: at most `max` bytes, without what a terminal would act on.
static void put_clean(lg_str s, size_t max)
{
    size_t shown = s.n < max ? s.n : max;

    for (size_t i = 0; i < shown;) {
        int32_t cp;
        int n = lg_utf8_step(s.p + i, s.n - i, &cp);

        if (cp == '\n')
            (void)fputs("\\n", stdout);
        else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 ||
                 (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069))
            (void)putchar('?');
        else
            (void)fwrite(s.p + i, 1, (size_t)n, stdout);
        i += (size_t)n;
    }
    if (s.n > shown)
        (void)printf("... (%zu bytes)", s.n);
}

static void put_number(const lg_gguf_kv *kv, uint64_t i, bool element)
{
    lg_gguf_vtype type = element ? kv->elem : kv->type;
    int64_t n;
    double f;

    if (type == LG_GV_F32 || type == LG_GV_F64) {
        if (element ? lg_kv_elem_f64(kv, i, &f) : lg_kv_f64(kv, &f))
            (void)printf("%.*g", type == LG_GV_F32 ? 7 : 15, f);
    } else if (element ? lg_kv_elem_i64(kv, i, &n) : lg_kv_i64(kv, &n)) {
        if (type == LG_GV_BOOL)
            (void)fputs(n ? "true" : "false", stdout);
        else
            (void)printf("%" PRId64, n);
    } else {
        (void)fputs("more than 2^63", stdout);
    }
}

static void put_value(const lg_gguf_kv *kv)
{
    lg_str s;

    if (lg_kv_str(kv, &s)) {
        put_clean(s, TEXT_SHOWN);
        return;
    }
    if (kv->type != LG_GV_ARRAY) {
        put_number(kv, 0, false);
        return;
    }
    (void)printf("%" PRIu64 " x %s:", kv->count, lg_gguf_vtype_name(kv->elem));
    for (uint64_t i = 0; i < kv->count && i < ELEMENTS_SHOWN; i++) {
        (void)putchar(' ');
        if (lg_kv_elem_str(kv, i, &s))
            put_clean(s, TEXT_SHOWN / 3);
        else
            put_number(kv, i, true);
    }
    if (kv->count > ELEMENTS_SHOWN)
        (void)fputs(" ...", stdout);
}

static void put_file(const lg_gguf *g)
{
    lg_figure bytes;

    for (int i = 0; i < lg_gguf_parts(g); i++)
        (void)printf("%s\n", lg_gguf_path(g, i));
    (void)printf("GGUF version %d, %s, %zu metadata keys, %zu tensors\n", lg_gguf_version(g),
                 lg_fig_bytes(&bytes, (double)lg_gguf_file_bytes(g)), lg_gguf_n_kv(g), lg_gguf_n_tensors(g));
}

static void put_metadata(const lg_gguf *g)
{
    (void)puts("\nMetadata");
    for (size_t i = 0; i < lg_gguf_n_kv(g); i++) {
        const lg_gguf_kv *kv = lg_gguf_kv_at(g, i);

        (void)fputs("  ", stdout);
        put_clean(kv->key, TEXT_SHOWN);
        for (size_t k = kv->key.n; k < 46; k++)
            (void)putchar(' ');
        (void)putchar(' ');
        put_value(kv);
        (void)putchar('\n');
    }
}

static void put_rope(const char *what, const lg_rope *r, const lg_hparams *hp, bool scaled)
{
    (void)printf("  rope, %-13s %d of %d dimensions, base %.0f", what, r->n_rot, hp->head_dim,
                 scaled ? hp->rope_base_full : hp->rope_base_window);
    if (scaled && hp->yarn_factor > 1.0f)
        (void)printf(", YaRN factor %g from %" PRId64 ", beta %g and %g, magnitude %.6f",
                     (double)hp->yarn_factor, hp->yarn_orig_ctx, (double)hp->yarn_beta_fast,
                     (double)hp->yarn_beta_slow, (double)r->magnitude);
    else
        (void)fputs(", not scaled", stdout);
    (void)putchar('\n');
}

// Head counts, one number where all layers of a kind agree, else the range.
static void put_heads(const lg_hparams *hp, bool window)
{
    int lo = 0, hi = 0;

    for (int l = 0; l < hp->n_layer; l++)
        if (hp->layer[l].window == window) {
            int n = hp->layer[l].n_head;
            lo = lo == 0 || n < lo ? n : lo;
            hi = n > hi ? n : hi;
        }
    if (lo == hi)
        (void)printf("%d", lo);
    else
        (void)printf("%d to %d", lo, hi);
}

static void put_configuration(const lg_inspect *in)
{
    const lg_hparams *hp = in->hp;
    lg_sampling def = lg_sampling_default();
    lg_figure n;

    (void)puts("\nConfiguration");
    if (!hp) {
        (void)printf("  %s\n", in->note ? in->note : "not understood");
        return;
    }
    (void)printf("  layers              %d: %d full, %d with a window", hp->n_layer, hp->n_full,
                 hp->n_window);
    (void)printf(hp->n_window ? " of %d\n" : "\n", hp->window);
    (void)printf("  context             %s tokens\n", lg_fig_count(&n, hp->ctx_train));
    (void)printf("  hidden, vocabulary  %d, %s\n", hp->hidden, lg_fig_count(&n, hp->vocab));
    (void)fputs("  query heads         ", stdout);
    put_heads(hp, false);
    if (hp->n_window) {
        (void)fputs(" in full layers, ", stdout);
        put_heads(hp, true);
        (void)fputs(" in window layers", stdout);
    }
    (void)printf("; %d KV heads of %d\n", hp->n_kv_head, hp->head_dim);
    (void)printf("  attention gate      per %s\n", hp->layer[0].elem_gate ? "element" : "head");
    if (hp->n_dense_lead)
        (void)printf("  dense layers        %d, width %d\n", hp->n_dense_lead, hp->ffn_dense);
    if (hp->n_expert) {
        (void)printf("  experts             %d of %d a token, width %d; shared width %d\n", hp->n_expert_used,
                     hp->n_expert, hp->ffn_expert, hp->ffn_shared);
        (void)printf("  routing             %s, %snormalised, scale %g\n",
                     hp->gating == LG_GATE_SIGMOID ? "sigmoid" : "softmax", hp->route_norm ? "" : "not ",
                     (double)hp->route_scale);
    }
    put_rope("full layers", &hp->rope_full, hp, true);
    if (hp->n_window)
        put_rope("window layers", &hp->rope_window, hp, false);
    (void)printf("  sampling defaults   temperature %g, top_k %d, top_p %g, min_p %g",
                 (double)def.temperature, def.top_k, (double)def.top_p, (double)def.min_p);
    (void)puts(lg_gguf_find(in->g, "general.sampling.temp") || lg_gguf_find(in->g, "general.sampling.top_p")
                   ? " (the file's general.sampling.* are not used)"
                   : "");
}

static void put_types(uint64_t types)
{
    const char *between = "";

    for (uint32_t t = 0; t < LG_QTYPE_MAX; t++)
        if (types >> t & 1) {
            (void)printf("%s%s", between, lg_qtype_get(t)->name);
            between = " ";
        }
}

static void put_sums(const lg_inspect *in)
{
    lg_figure bytes;

    (void)puts("\nTensors by use");
    for (int i = 0; i < LG_N_INSPECT_PARTS; i++) {
        const lg_inspect_sum *s = &in->part[i];

        if (!s->n)
            continue;
        (void)printf("  %-12s %5zu %10s %6.2f bits a weight  ", lg_inspect_part_name(i), s->n,
                     lg_fig_bytes(&bytes, (double)s->bytes), 8.0 * (double)s->bytes / (double)s->elements);
        put_types(s->types);
        (void)putchar('\n');
    }
    (void)puts("\nTensors by type");
    for (uint32_t t = 0; t < LG_QTYPE_MAX; t++)
        if (in->type[t].n)
            (void)printf("  %-12s %5zu %10s%s\n", lg_qtype_get(t)->name, in->type[t].n,
                         lg_fig_bytes(&bytes, (double)in->type[t].bytes),
                         lg_qtype_get(t)->runs ? "" : "  cannot be run");
}

static void put_tensors(const lg_gguf *g)
{
    (void)puts("\nTensors: name, type, shape, bytes, offset, part");
    for (size_t i = 0; i < lg_gguf_n_tensors(g); i++) {
        const lg_gguf_tensor *t = lg_gguf_tensor_at(g, i);
        char shape[96];
        int n = 0;

        for (int d = 0; d < t->n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRIu64, d ? ", " : "[", t->ne[d]);
        (void)snprintf(shape + n, sizeof shape - (size_t)n, "]");
        (void)fputs("  ", stdout);
        put_clean(t->name, TEXT_SHOWN);
        for (size_t k = t->name.n; k < 32; k++)
            (void)putchar(' ');
        (void)printf(" %-8s %-20s %12zu %14" PRIu64 " %3d\n", lg_qtype_get((uint32_t)t->type)->name, shape,
                     t->bytes, t->offset, t->part + 1);
    }
}

static void put_plan(const lg_plan *p, const char *device)
{
    lg_figure a, b;

    (void)printf("\nPlan on %s\n", device);
    (void)printf("  weights             %s", lg_fig_bytes(&a, (double)p->weight_bytes));
    if (p->extra_bytes)
        (void)printf(" in the file, %s copied; %s stay in use", lg_fig_bytes(&a, (double)p->extra_bytes),
                     lg_fig_bytes(&b, (double)p->resident_bytes));
    (void)printf("\n  KV cache            %s for %s tokens", lg_fig_bytes(&a, (double)p->kv_bytes),
                 lg_fig_count(&b, p->ctx));
    (void)printf(" (%s a token, %s fixed)\n", lg_fig_bytes(&a, (double)p->kv_bytes_per_token),
                 lg_fig_bytes(&b, (double)p->kv_fixed_bytes));
    (void)printf("  scratch             %s\n", lg_fig_bytes(&a, (double)p->scratch_bytes));
    if (p->draft_bytes)
        (void)printf("  drafter             %s\n", lg_fig_bytes(&a, (double)p->draft_bytes));
    (void)printf("  total               %s of %s available: %s\n", lg_fig_bytes(&a, (double)p->total_bytes),
                 lg_fig_bytes(&b, (double)p->available_bytes), p->fits ? "fits" : "does not fit");
    (void)printf("  prefix cache        %d slots, %s; one 13k conversation = %s", p->cache_slots,
                 lg_fig_bytes(&a, (double)p->cache_bytes),
                 lg_fig_bytes(&b, (double)lg_plan_conversation_bytes(p, 13000)));
    (void)printf(", one of %s = %s\n", lg_fig_count(&a, p->ctx),
                 lg_fig_bytes(&b, (double)lg_plan_conversation_bytes(p, p->ctx)));
    if (p->lowered)
        (void)printf("  context             lowered from %s, so that it fits\n",
                     lg_fig_count(&a, p->ctx_train));
}

void lg_inspect_text(const lg_inspect *in)
{
    put_file(in->g);
    put_metadata(in->g);
    put_configuration(in);
    put_sums(in);
    if (in->tensors)
        put_tensors(in->g);
    if (in->plan)
        put_plan(in->plan, in->device);
}
