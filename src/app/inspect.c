/*
 * app/inspect: sums over a file's tensors; see inspect.h.
 */
#include "app/inspect.h"

static bool has(lg_str name, const char *piece)
{
    return lg_str_find(name, lg_str_of(piece), 0) != SIZE_MAX;
}

static lg_inspect_part part_of(lg_str name)
{
    if (lg_str_eqz(name, "token_embd.weight"))
        return LG_PART_EMBEDDING;
    if (lg_str_eqz(name, "output.weight"))
        return LG_PART_HEAD;
    if (has(name, "_norm."))
        return LG_PART_NORMS;
    if (has(name, "_exps"))
        return LG_PART_EXPERTS;
    if (has(name, "_shexp"))
        return LG_PART_SHARED;
    if (has(name, "ffn_gate_inp") || has(name, "exp_probs_b"))
        return LG_PART_ROUTER;
    if (has(name, ".attn_"))
        return LG_PART_ATTENTION;
    if (has(name, ".ffn_"))
        return LG_PART_DENSE;
    return LG_PART_OTHER;
}

const char *lg_inspect_part_name(lg_inspect_part part)
{
    static const char *const names[LG_N_INSPECT_PARTS] = {
        "embedding", "attention", "dense", "shared", "experts", "router", "norms", "head", "other"};

    return names[part];
}

static void add(lg_inspect_sum *s, const lg_gguf_tensor *t)
{
    s->n++;
    s->bytes += t->bytes;
    s->elements += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; // fits: the bytes of the tensor did
    s->types |= UINT64_C(1) << t->type;
}

void lg_inspect_count(lg_inspect *in)
{
    for (size_t i = 0; i < lg_gguf_n_tensors(in->g); i++) {
        const lg_gguf_tensor *t = lg_gguf_tensor_at(in->g, i);

        add(&in->part[part_of(t->name)], t);
        add(&in->type[t->type], t);
    }
}
