/*
 * model/dflash: the DFlash drafter of a Laguna model: configuration, weights, and its two graphs.
 *
 * The drafter has neither embedding nor head: it borrows the target's. It reads a context of keys and values
 * made from the target's own residuals at a few layers ("taps", one row a committed token), and a block [last
 * token, MASK, MASK, ...]; row i of the block predicts the token at row i's own position.
 *
 * What surprises: the two kinds of container count tapped layers differently (`dflash`: the layer whose input
 * is read, `dflash-draft`: the layer whose output is read). Here a tap is always the residual after a layer,
 * both adds done, before any norm.
 */
#ifndef LG_MODEL_DFLASH_H
#define LG_MODEL_DFLASH_H

#include "model/laguna.h"

enum { LG_TAPS_MAX = 16, LG_DRAFT_ROWS_MAX = 16 };

typedef struct lg_dflash_params {
    int n_layer, hidden, vocab, ffn;
    int n_head, n_kv_head, head_dim;
    int window;
    int block; /* rows of a block with its anchor: at most block - 1 drafts */
    int32_t mask_id;
    int n_tap, tap[LG_TAPS_MAX]; /* residual after these layers of the target, ascending */
    float eps;
    lg_rope rope;
} lg_dflash_params;

/* How matrices are kept that the file has as 16- or 32-bit floats. */
typedef enum lg_draft_type {
    LG_DRAFT_Q8_0,   /* rounded to Q8_0 at load: half the bytes of BF16, the same drafts */
    LG_DRAFT_STORED, /* as the file has them */
} lg_draft_type;

typedef struct lg_dflash {
    lg_dflash_params hp;
    lg_weight aux_norm[LG_TAPS_MAX], fc, fused_norm, output_norm;
    lg_layer *layer; /* hp.n_layer; the fields of a dense layer */
    void **copy;     /* matrices rounded at load that the backend reads in place */
    int n_copy;
} lg_dflash;

/* Work tensors of a drafter beside those of its target (lg_work), which it also uses. */
typedef struct lg_dflash_work {
    lg_tensor k, v;          /* [rows, KV columns] */
    lg_tensor q, gate, attn; /* [block rows, ...] */
    int max_rows;
    lg_mem mem[5];
    int n_mem;
} lg_dflash_work;

/* Metadata of a drafter, checked against the target it is for. Errors name the key and what the target has.
 * They carry the file as subject. */
LG_NODISCARD lg_status lg_dflash_read(const lg_gguf *g, const lg_hparams *target, lg_dflash_params *out,
                                      lg_err *err);
/* Check all names, shapes and types; nothing is loaded. b may be NULL. */
LG_NODISCARD lg_status lg_dflash_check(const lg_gguf *g, const lg_dflash_params *hp, lg_draft_type type,
                                       lg_backend *b, lg_weights_plan *plan, lg_err *err);
/* Load all; `g` must stay open while the weights live. */
LG_NODISCARD lg_status lg_dflash_load(const lg_gguf *g, const lg_dflash_params *hp, lg_draft_type type,
                                      lg_backend *b, lg_dflash *out, lg_err *err);
void lg_dflash_unload(lg_backend *b, lg_dflash *d);

/* Widens the limits of a target so that they hold for the drafter too. */
void lg_dflash_limits(const lg_dflash_params *hp, lg_limits *lim);
/* The KV class of the context; its blocks also hold the rows of a block while it is drafted. */
lg_kv_class lg_dflash_kv_shape(const lg_dflash_params *hp, lg_qtype type);
size_t lg_dflash_work_bytes(const lg_dflash_params *hp, int max_rows);
LG_NODISCARD lg_status lg_dflash_work_create(lg_backend *b, const lg_dflash_params *hp, int max_rows,
                                             lg_dflash_work *out, lg_err *err);
void lg_dflash_work_release(lg_backend *b, lg_dflash_work *w);

/* One step of LG_GRAPH_INJECT: keys and values of s->n_rows positions from s->pos on, from the taps of the
 * target's last step (t->taps, of which the first s->n_cand rows are passed over). The taps are changed. */
LG_NODISCARD lg_status lg_dflash_inject(lg_backend *b, const lg_dflash *d, const lg_kv_class *kv, lg_work *t,
                                        lg_dflash_work *w, const lg_step *s, lg_err *err);
/* One step of LG_GRAPH_DRAFT over the block s->ids at s->pos: for each of s->out_rows the s->n_cand largest
 * logits and the log of the sum, in t->cand; the logits in t->logits. */
LG_NODISCARD lg_status lg_dflash_draft(lg_backend *b, const lg_dflash *d, const lg_laguna *m,
                                       const lg_kv_class *kv, lg_work *t, lg_dflash_work *w, const lg_step *s,
                                       lg_err *err);

#endif
