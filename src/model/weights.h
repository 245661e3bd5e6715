/*
 * model/weights: tensor names -> struct of weights on a backend (model.md 4).
 *
 * Every tensor of the file is claimed or the load fails by name; every shape is checked against the
 * configuration before anything is loaded.
 */
#ifndef LG_MODEL_WEIGHTS_H
#define LG_MODEL_WEIGHTS_H

#include "model/hparams.h"

typedef struct lg_layer {
    lg_weight attn_norm, q, k, v, gate, o, q_norm, k_norm, ffn_norm;
    lg_weight ffn_gate, ffn_up, ffn_down;                    /* dense layers */
    lg_weight router, router_bias;                           /* expert layers */
    lg_weight exp_gate, exp_up, exp_down;
    lg_weight shared_gate, shared_up, shared_down;           /* data NULL without a shared expert */
} lg_layer;

typedef struct lg_laguna {
    lg_hparams hp;
    lg_weight embed, output, output_norm; /* output may share the embedding's data (tied) */
    bool tied;
    lg_layer *layer; /* hp.n_layer */
} lg_laguna;

typedef void (*lg_progress)(void *ctx, uint64_t done, uint64_t total);

typedef struct lg_weights_plan {
    uint64_t stored_bytes;   /* one full read of the file's tensors */
    uint64_t extra_bytes;    /* copies that loading makes beside the file map */
    uint64_t resident_bytes; /* what stays in use: the copy where one is made, else the file's own pages */
    int n_older;             /* tensors found under an older name; for those who open the file to say once */
    const char *older, *now; /* of the first of them: "attn_g.weight", "attn_gate.weight" */
} lg_weights_plan;

/* Check all names, shapes and types and fill hp.layer[].elem_gate; nothing is loaded. b may be NULL: the plan
 * then counts no copies. Errors carry the file as subject. */
LG_NODISCARD lg_status lg_weights_check(const lg_gguf *g, lg_hparams *hp, lg_backend *b,
                                        lg_weights_plan *plan, lg_err *err);
/* The one warning about tensors under older names; nothing when there are none. */
void lg_weights_warn(const lg_weights_plan *plan);
/* Load all; `g` must stay open while the weights live. On failure everything taken is given back. */
LG_NODISCARD lg_status lg_weights_load(const lg_gguf *g, const lg_hparams *hp, lg_backend *b,
                                       lg_progress progress, void *ctx, lg_laguna *out, lg_err *err);
void lg_weights_unload(lg_backend *b, lg_laguna *m);

#endif
