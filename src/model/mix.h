/*
 * model/mix: named recipes that give each tensor of a model its type ("q4_k_m"), used by synth and quantize.
 *
 * A recipe is a table of rules over a tensor's name and layer; the first match wins. Pure; any thread.
 */
#ifndef LG_MODEL_MIX_H
#define LG_MODEL_MIX_H

#include "gguf/quant.h"

typedef struct lg_mix lg_mix;

/* By name, case-insensitive; every type that runs is also the name of a recipe that uses nothing else. May
 * return NULL. */
const lg_mix *lg_mix_find(lg_str name);
const char *lg_mix_name(const lg_mix *m);
/* The names of the recipes proper, for messages: "official q4_k_m ...". */
const char *lg_mix_names(void);
/* Value for general.file_type: the field's number of the nearest known recipe. */
uint32_t lg_mix_file_type(const lg_mix *m);

/* The type that the recipe gives a tensor whose rows have `cols` elements, in a model of n_layer layers. When
 * rows are no multiple of the type's block, a wider type is taken (Q4_K -> Q5_0, ...; F16 in the end). False
 * for tensors that are never quantized: vectors, norms, router, selection bias, scales. */
bool lg_mix_type(const lg_mix *m, lg_str name, int n_dims, uint64_t cols, int n_layer, lg_qtype *out);

#endif
