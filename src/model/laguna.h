/*
 * model/laguna: the forward pass, once, for every backend (model.md 5).
 *
 * Straight-line code over ops of meaning; no allocation, no reading of device results, no branch on the
 * backend.
 */
#ifndef LG_MODEL_LAGUNA_H
#define LG_MODEL_LAGUNA_H

#include "model/weights.h"

/* Work tensors of one step; rows <= max_rows, output rows <= max_out. Owned by the backend it was made on. */
typedef struct lg_work {
    lg_tensor x;      /* residual stream [rows, hidden] */
    lg_tensor h;      /* normed input of the current sub-block [rows, hidden] */
    lg_tensor delta;  /* output of the current sub-block [rows, hidden] */
    lg_tensor q, k, v, gate, attn; /* [rows, columns of the widest layer]; narrowed per layer */
    lg_routes routes; /* [rows, k] */
    lg_tensor last, logits; /* [out rows, hidden], [out rows, vocab] */
    lg_candidates cand;     /* [out rows, max_cand] */
    lg_tensor taps;         /* [rows, n_tap * hidden], or absent */
    int n_tap;
    int tap_layer[16];      /* residual after this layer is tap i */
    float *dbg_layers;      /* LG_STEP_LAYERS: [n_layer][max_rows][hidden], or NULL */
    int32_t *dbg_route_ids; /* LG_STEP_ROUTES: [n_layer][max_rows][k], or NULL */
    float *dbg_route_w;
    int max_rows, max_out;
    lg_mem mem[24]; /* what release gives back */
    int n_mem;
} lg_work;

typedef struct lg_work_params {
    int max_rows, max_out, max_cand;
    bool debug;  /* room for layer outputs and routes */
    bool routes; /* room for routes */
    int n_tap;
    const int *tap_layer;
} lg_work_params;

lg_limits lg_laguna_limits(const lg_hparams *hp, const lg_work_params *p, int64_t max_ctx);
/* Bytes lg_work_create would take. */
size_t lg_work_bytes(const lg_hparams *hp, const lg_work_params *p);
LG_NODISCARD lg_status lg_work_create(lg_backend *b, const lg_hparams *hp, const lg_work_params *p,
                                      lg_work *out, lg_err *err);
void lg_work_release(lg_backend *b, lg_work *t);

/* The two KV classes of the model; kv[LG_KV_FULL].mem and kv[LG_KV_WINDOW].mem are theirs to fill. */
void lg_laguna_kv_shape(const lg_hparams *hp, lg_qtype type, lg_kv_class *full, lg_kv_class *window);

/* One step of LG_GRAPH_TARGET: logits of step->out_rows in t->logits; with step->n_cand candidates, too, as
 * lg_laguna_sample leaves them. kv: array of LG_KV_CLASSES. */
LG_NODISCARD lg_status lg_laguna_forward(lg_backend *b, const lg_laguna *m, const lg_kv_class *kv, lg_work *t,
                                         const lg_step *s, lg_err *err);
/* One step of LG_GRAPH_HEAD: the logits of further rows of the step before, so that the logits of a whole
 * chunk need room for max_out rows only. */
LG_NODISCARD lg_status lg_laguna_head(lg_backend *b, const lg_laguna *m, lg_work *t, const lg_step *s,
                                      lg_err *err);
/* One step of LG_GRAPH_SAMPLE over the logits of the step before: mask (if flagged), then candidates in
 * t->cand. */
LG_NODISCARD lg_status lg_laguna_sample(lg_backend *b, lg_work *t, const lg_step *s, lg_err *err);

#endif
