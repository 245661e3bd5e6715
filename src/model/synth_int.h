/*
 * model/synth_int: what the files of synth share. Private to model/.
 */
#ifndef LG_MODEL_SYNTH_INT_H
#define LG_MODEL_SYNTH_INT_H

#include "gguf/gguf_write.h"
#include "model/mix.h"
#include "model/synth.h"

enum { LG_SYNTH_TAPS_MAX = 8, LG_SYNTH_VOCAB = 100352, LG_SYNTH_HEAD_DIM = 128, LG_SYNTH_KV_HEADS = 8 };

/* A published model or drafter. */
typedef struct lg_synth_arch {
    const char *arch;  /* the name on the command line */
    const char *title; /* general.name */
    const char *type;  /* recipe of the published file */
    bool draft;
    int n_layer, hidden, ffn;
    int n_head_full, n_head_window;
    int n_used, ffn_expert; /* experts of a token; their width */
    float yarn_beta_fast;
    int n_taps, taps[LG_SYNTH_TAPS_MAX]; /* drafters: layers whose input is tapped */
} lg_synth_arch;

struct lg_synth {
    const lg_synth_arch *arch;
    const lg_mix *mix;
    int n_layer, target_layers;
    uint64_t seed;
    lg_synth_tensor *tensor;
    size_t n_tensors, cap_tensors;
    uint64_t tensor_bytes;
};

/* Metadata, tokenizer and tensor list into a writer; memory failure is the writer's. */
LG_NODISCARD lg_status lg_synth_describe(const lg_synth *s, lg_gguf_writer *w, lg_err *err);
/* Only the tokenizer's keys. */
LG_NODISCARD lg_status lg_synth_put_vocab(lg_gguf_writer *w, lg_err *err);

#endif
