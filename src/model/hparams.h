/*
 * model/hparams: metadata of a `laguna` GGUF -> validated configuration (model.md 1, 3, 6).
 *
 * Every number is checked against the ranges the engine supports; older spellings are repaired with one
 * warning; an unknown combination is refused by name. Nothing here touches tensor data; shapes are
 * cross-checked in weights.c.
 */
#ifndef LG_MODEL_HPARAMS_H
#define LG_MODEL_HPARAMS_H

#include "backend/backend.h"
#include "gguf/gguf.h"

enum { LG_LAYERS_MAX = 256 };

typedef struct lg_layer_params {
    bool window;    /* sliding-window layer; else full attention */
    bool dense;     /* dense FFN; else experts */
    bool elem_gate; /* attention gate per element (decided by the gate tensor's shape); else per head */
    int n_head;
    int kv_layer; /* index among the layers of its KV class */
} lg_layer_params;

typedef struct lg_hparams {
    int n_layer, hidden, vocab;
    int n_kv_head, head_dim;
    int window;           /* 0: every layer is full */
    int n_full, n_window; /* layers of each kind */
    int n_dense_lead, ffn_dense;
    int n_expert, n_expert_used, ffn_expert, ffn_shared; /* ffn_shared 0: no shared expert */
    lg_gating gating;
    bool route_norm;
    float route_scale;
    float eps;
    int64_t ctx_train;
    lg_rope rope_full, rope_window; /* ids 0 and 1; effective frequencies and magnitude */
    double rope_base_full, rope_base_window;
    float yarn_factor;              /* 1: none */
    int64_t yarn_orig_ctx;
    float yarn_beta_fast, yarn_beta_slow;
    lg_layer_params layer[LG_LAYERS_MAX];
} lg_hparams;

typedef struct lg_rope_override {
    float factor;    /* 0: as the file says */
    float magnitude; /* 0: as computed */
} lg_rope_override;

/* `over` may be NULL. Errors name the key and what would be right. Warnings go to the log, each once. */
LG_NODISCARD lg_status lg_hparams_read(const lg_gguf *g, const lg_rope_override *over, lg_hparams *out,
                                       lg_err *err);

/* YaRN frequencies and magnitude (model.md 6.3); factor 1 gives plain rotary embedding. */
void lg_rope_init(lg_rope *r, int id, int n_rot, double base, double factor, int64_t orig_ctx,
                  double beta_fast, double beta_slow);

#endif
