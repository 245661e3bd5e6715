/*
 * model/mix: see mix.h. The rules are those by which the published files were made, so that a file made by
 * recipe has the published file's types tensor by tensor.
 */
#include "model/mix.h"

#include <string.h>

typedef enum part { OUTPUT, ATTN_V, ATTN_OUTPUT, DOWN, EXPERTS } part;
typedef enum when { ALWAYS, MORE, EIGHTH, SIXTEENTH, FIRST_4, FIRST_2 } when;

typedef struct rule {
    part part;
    when when;
    lg_qtype type;
} rule;

struct lg_mix {
    const char *name;
    lg_qtype base;
    uint32_t file_type;
    rule rules[6]; // up to the first entry of type F32
};

// clang-format off
static const lg_mix mixes[] = {
    {"official", LG_Q8_0, 15, {{EXPERTS, ALWAYS, LG_Q4_K}}},
    {"q4_k_m", LG_Q4_K, 15, {{OUTPUT, ALWAYS, LG_Q6_K}, {ATTN_V, MORE, LG_Q6_K}, {DOWN, MORE, LG_Q6_K}}},
    {"q4_k_s", LG_Q4_K, 14, {{OUTPUT, ALWAYS, LG_Q6_K}, {ATTN_V, FIRST_4, LG_Q5_K}, {DOWN, EIGHTH, LG_Q5_K}}},
    {"q5_k_m", LG_Q5_K, 17, {{OUTPUT, ALWAYS, LG_Q6_K}, {ATTN_V, MORE, LG_Q6_K}, {DOWN, MORE, LG_Q6_K}}},
    {"q5_k_s", LG_Q5_K, 16, {{OUTPUT, ALWAYS, LG_Q6_K}}},
    {"q3_k_m", LG_Q3_K, 12, {{OUTPUT, ALWAYS, LG_Q6_K}, {ATTN_V, FIRST_2, LG_Q5_K}, {ATTN_V, ALWAYS, LG_Q4_K},
                             {DOWN, SIXTEENTH, LG_Q5_K}, {DOWN, ALWAYS, LG_Q4_K},
                             {ATTN_OUTPUT, ALWAYS, LG_Q4_K}}},
    {"q2_k", LG_Q2_K, 10, {{OUTPUT, ALWAYS, LG_Q6_K}, {ATTN_V, ALWAYS, LG_Q4_K}, {DOWN, ALWAYS, LG_Q3_K},
                           {ATTN_OUTPUT, ALWAYS, LG_Q3_K}}},
    {"iq4_xs", LG_IQ4_XS, 30, {{OUTPUT, ALWAYS, LG_Q6_K}, {ATTN_V, ALWAYS, LG_Q5_K},
                               {DOWN, EIGHTH, LG_Q5_K}}},
    {"iq4_nl", LG_IQ4_NL, 25, {{OUTPUT, ALWAYS, LG_Q6_K}, {ATTN_V, ALWAYS, LG_Q5_K},
                               {DOWN, EIGHTH, LG_Q5_K}}},
    {"mxfp4_moe", LG_Q8_0, 38, {{EXPERTS, ALWAYS, LG_MXFP4}}},
    {"q6_k", LG_Q6_K, 18, {{0}}},
    {"q8_0", LG_Q8_0, 7, {{0}}},
    {"q4_0", LG_Q4_0, 2, {{OUTPUT, ALWAYS, LG_Q6_K}}},
    {"f16", LG_F16, 1, {{0}}},
    {"bf16", LG_BF16, 32, {{0}}},
    {"f32", LG_F32, 0, {{0}}},
    // types that no recipe is named after
    {"q4_1", LG_Q4_1, 3, {{0}}},
    {"q5_0", LG_Q5_0, 8, {{0}}},
    {"q5_1", LG_Q5_1, 9, {{0}}},
    {"q3_k", LG_Q3_K, 12, {{0}}},
    {"q4_k", LG_Q4_K, 14, {{0}}},
    {"q5_k", LG_Q5_K, 16, {{0}}},
    {"mxfp4", LG_MXFP4, 38, {{0}}},
    {"nvfp4", LG_NVFP4, 38, {{0}}},
};
// clang-format on
enum { N_MIXES = sizeof mixes / sizeof *mixes };

// Whether two names are the same but for the case of ASCII letters; `low` has none in upper case.
static bool same_name(lg_str name, const char *low)
{
    if (name.n != strlen(low))
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != low[i])
            return false;
    }
    return true;
}

const lg_mix *lg_mix_find(lg_str name)
{
    for (int i = 0; i < N_MIXES; i++)
        if (same_name(name, mixes[i].name))
            return &mixes[i];
    return NULL;
}

const char *lg_mix_name(const lg_mix *m)
{
    return m->name;
}

const char *lg_mix_names(void)
{
    return "official q4_k_m q4_k_s q5_k_m q5_k_s q6_k q8_0 q4_0 q3_k_m q2_k iq4_xs iq4_nl mxfp4_moe f16 bf16 "
           "f32";
}

uint32_t lg_mix_file_type(const lg_mix *m)
{
    return m->file_type;
}

static bool has(lg_str name, const char *piece)
{
    return lg_str_find(name, lg_str_of(piece), 0) != SIZE_MAX;
}

static bool is_part(lg_str name, part p)
{
    switch (p) {
    case OUTPUT:
        return lg_str_eqz(name, "output.weight");
    case ATTN_V:
        return has(name, ".attn_v.");
    case ATTN_OUTPUT:
        return has(name, ".attn_output.");
    case DOWN:
        return has(name, ".ffn_down");
    case EXPERTS:
        return has(name, "_exps.");
    }
    return false;
}

// Layer number of "blk.N.something", or -1.
static int64_t layer_of(lg_str name)
{
    lg_str prefix = LG_STR("blk.");
    int64_t l;

    if (!lg_str_starts(name, prefix))
        return -1;
    size_t dot = lg_str_find(name, LG_STR("."), prefix.n);
    if (dot == SIZE_MAX || !lg_str_i64((lg_str){name.p + prefix.n, dot - prefix.n}, &l))
        return -1;
    return l;
}

// The layers at both ends and every third between them get more bits.
static bool more_bits(int64_t l, int n)
{
    return l < n / 8 || l >= 7 * n / 8 || (l - n / 8) % 3 == 2;
}

static bool applies(when w, int64_t l, int n)
{
    switch (w) {
    case ALWAYS:
        return true;
    case MORE:
        return more_bits(l, n);
    case EIGHTH:
        return l < n / 8;
    case SIXTEENTH:
        return l < n / 16;
    case FIRST_4:
        return l < 4;
    case FIRST_2:
        return l < 2;
    }
    return false;
}

// A type for rows that are no whole number of blocks: the next one that other engines read as well.
static lg_qtype fitting(lg_qtype t, uint64_t cols)
{
    while (cols % (uint64_t)lg_qtype_get((uint32_t)t)->block_elems)
        switch (t) {
        case LG_Q2_K:
        case LG_Q3_K:
            t = LG_Q4_0;
            break;
        case LG_Q4_K:
            t = LG_Q5_0;
            break;
        case LG_Q5_K:
            t = LG_Q5_1;
            break;
        case LG_Q6_K:
            t = LG_Q8_0;
            break;
        case LG_IQ4_XS:
            t = LG_IQ4_NL;
            break;
        default:
            t = LG_F16;
            break;
        }
    return t;
}

bool lg_mix_type(const lg_mix *m, lg_str name, int n_dims, uint64_t cols, int n_layer, lg_qtype *out)
{
    lg_qtype t = m->base;
    int64_t l = layer_of(name);

    if (n_dims < 2 || has(name, "_norm.") || has(name, ".ffn_gate_inp.") || has(name, "exp_probs_b") ||
        lg_str_ends(name, LG_STR(".scale")))
        return false;
    for (size_t i = 0; i < sizeof m->rules / sizeof *m->rules && m->rules[i].type != LG_F32; i++)
        if (is_part(name, m->rules[i].part) && applies(m->rules[i].when, l, n_layer)) {
            t = m->rules[i].type;
            break;
        }
    *out = fitting(t, cols);
    return true;
}
