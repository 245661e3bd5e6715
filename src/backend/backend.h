/*
 * backend/backend: THE interface between the forward passes and a device.
 *
 * The model is written once against these ops of meaning; a backend fuses inside an op. Compute ops return
 * void: they enqueue, and a failure is sticky and comes out of `end` or `wait`. Between begin and end there
 * is no allocation, no download, and no branch on anything outside the key. One thread (the engine's) calls a
 * backend.
 *
 * begin answers LG_RECORD (call the ops) or LG_REPLAY (a recorded list of launches for this key exists; skip
 * them).
 *
 * Exactness: a step of 1 to 16 rows gives each row the same bits whatever the number of rows. Sums over
 * experts run in descending order of the selection score. Two runs of one build on one device give the same
 * bits.
 *
 * Operands that are absent have p == NULL (tensors) or are NULL (weights).
 */
#ifndef LG_BACKEND_BACKEND_H
#define LG_BACKEND_BACKEND_H

#include "backend/step.h"

typedef struct lg_backend lg_backend;

typedef enum lg_begin { LG_RECORD, LG_REPLAY } lg_begin;

/* Data that is a pure function of its place (model/synth): a backend may make it where it is needed. */
typedef struct lg_made {
    uint64_t seed;
    uint32_t index;
    float mean, spread;
} lg_made;

/* A weight as the file has it. `ne` as in the container: ne[0] inputs, ne[1] outputs, ne[2] experts. */
typedef struct lg_source {
    lg_str name;
    lg_qtype type;
    uint64_t ne[4];
    const void *data;
    size_t bytes;
    float scale;
    const float *expert_scale; /* of a stack: ne[2] more multipliers (host, lives as long as data), or NULL */
    /* how data is made; then it may be unreadable where the backend makes it. Or NULL */
    const lg_made *made;
} lg_source;

/* One of up to LG_PARTS_MAX products that share their input. */
enum { LG_PARTS_MAX = 4 };
typedef struct lg_part {
    lg_tensor y;
    const lg_weight *w;
} lg_part;

/* After the projections: QK-norm per head, rotary embedding, K and V stored at the rows' positions. q is
 * changed in place; k may be changed. q.p == NULL: only K/V (drafter context). */
typedef struct lg_qkv_args {
    lg_tensor q, k, v;
    const lg_weight *q_norm, *k_norm; /* [head_dim] */
    float eps;
    const lg_rope *rope;
    const lg_kv_class *kv;
    int kv_layer; /* index of the layer inside its class */
    int n_head;
} lg_qkv_args;

/* out[h] = softplus(gate[h]) * softmax_j(q[h].k_j / sqrt(head_dim)) v_j over the visible positions j <= p
 * (and p - j < kv->window when that is not 0). gate has n_head columns, or n_head * head_dim (per element),
 * or is absent. */
typedef struct lg_attn_args {
    lg_tensor out, q, gate;
    const lg_kv_class *kv;
    int kv_layer;
    int n_head;
} lg_attn_args;

/* Device arrays [rows, k]: experts in descending order of score + bias, ties to the lower index; their
 * weights. */
typedef struct lg_routes {
    int32_t *ids;
    float *w;
    int k;
} lg_routes;

typedef enum lg_gating { LG_GATE_SIGMOID, LG_GATE_SOFTMAX } lg_gating;
typedef struct lg_route_args {
    lg_routes out;
    lg_tensor h;
    const lg_weight *router; /* [hidden, n_expert] f32 */
    const lg_weight *bias;   /* [n_expert] or NULL; selects, does not weigh */
    lg_gating gating;
    bool norm;   /* divide the chosen weights by max(sum, 2^-14) */
    float scale; /* then multiply by this */
} lg_route_args;

/* out = down(silu(gate h) * up h) */
typedef struct lg_ffn_args {
    lg_tensor out, h;
    const lg_weight *gate, *up, *down;
} lg_ffn_args;

/* out = shared(h) + sum_i w_i expert_i(h); `shared` weights may be NULL. */
typedef struct lg_moe_args {
    lg_tensor out, h;
    lg_routes routes;
    const lg_weight *gate, *up, *down;                      /* expert stacks */
    const lg_weight *shared_gate, *shared_up, *shared_down; /* or NULL */
} lg_moe_args;

/* Per output row: the n_cand largest logits in descending order (ties to the lower id), their ids, and
 * log(sum exp) over the whole row. Arrays [n_out, n_cand] and [n_out], of alloc_results. */
typedef struct lg_candidates {
    int32_t *ids;
    float *logits;
    float *lse;
    int max_cand;
} lg_candidates;

/* `rows` rows of every layer of a class from one block to another. */
typedef struct lg_kv_copy {
    int src_block, src_row, dst_block, dst_row, rows;
} lg_kv_copy;

/* Largest shapes a backend must hold scratch for; given once before the first step. */
typedef struct lg_limits {
    int max_rows, max_out, max_cand;
    int hidden, vocab;
    /* head counts, q columns, widest FFN, experts, top-k */
    int max_head, max_q_cols, max_ffn, max_expert, max_k;
    int max_ffn_expert; /* widest routed or shared expert; 0: as max_ffn */
    int64_t max_ctx;
} lg_limits;

typedef struct lg_ops {
    /* resources: these may allocate, block and fail, and are called outside begin/end */
    lg_status (*prepare)(lg_backend *b, const lg_limits *lim, lg_err *err); /* scratch for these limits */
    lg_status (*alloc)(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err); /* zeroed, 64-byte aligned */
    /* the same for a few results: ops write to it, and the host reads it once they are done, without a
     * download */
    lg_status (*alloc_results)(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err);
    void (*release)(lg_backend *b, lg_mem *m);
    lg_status (*load)(lg_backend *b, const lg_source *src, lg_use use, lg_weight *out, lg_err *err);
    void (*unload)(lg_backend *b, lg_weight *w);
    lg_status (*upload)(lg_backend *b, const lg_mem *dst, size_t off, const void *src, size_t n, lg_err *err);
    lg_status (*download)(lg_backend *b, const void *src, void *dst, size_t n, lg_err *err); /* waits first */
    lg_status (*begin)(lg_backend *b, lg_key key, const lg_step *s, lg_begin *how, lg_err *err);
    lg_status (*end)(lg_backend *b, lg_err *err);  /* all ops are enqueued */
    lg_status (*wait)(lg_backend *b, lg_err *err); /* all ops are done */

    /* compute */
    void (*embed)(lg_backend *b, const lg_tensor *out, const lg_weight *table); /* rows of step->ids */
    /* out may be x */
    void (*rmsnorm)(lg_backend *b, const lg_tensor *out, const lg_tensor *x, const lg_weight *w, float eps);
    void (*add_rmsnorm)(lg_backend *b, const lg_tensor *out, const lg_tensor *x, const lg_tensor *delta,
                        const lg_weight *w, float eps); /* x += delta; out = norm(x) */
    void (*linear)(lg_backend *b, const lg_tensor *x, const lg_part *parts, int n_parts);
    void (*qkv_post)(lg_backend *b, const lg_qkv_args *a);
    void (*attention)(lg_backend *b, const lg_attn_args *a);
    void (*swiglu)(lg_backend *b, const lg_tensor *out, const lg_tensor *gate, const lg_tensor *up);
    void (*route)(lg_backend *b, const lg_route_args *a);
    void (*moe)(lg_backend *b, const lg_moe_args *a);
    void (*gather_rows)(lg_backend *b, const lg_tensor *out, const lg_tensor *x); /* step->out_rows */
    /* step->mask: 0 bit -> -inf */
    void (*mask_logits)(lg_backend *b, const lg_tensor *logits);
    void (*topk)(lg_backend *b, const lg_tensor *logits, const lg_candidates *out); /* step->n_cand */
    void (*copy)(lg_backend *b, void *dst, const void *src, size_t row_bytes, size_t dst_pitch,
                 size_t src_pitch, lg_rows rows); /* debug outputs: as many rows as the step has */
    /* outside begin/end */
    void (*kv_move)(lg_backend *b, const lg_kv_class *c, const lg_kv_copy *moves, int n);

    /* optional: NULL means compose.c spells them with the ops above */
    void (*ffn)(lg_backend *b, const lg_ffn_args *a);
    /* x rows -> a column slice of the taps */
    void (*tap)(lg_backend *b, const lg_tensor *dst, const lg_tensor *x);
} lg_ops;

/* Copies of KV blocks in memory of the host, for a device with memory of its own. They run beside the steps,
 * in the order in which they were enqueued; a failure is sticky like an op's. */
typedef struct lg_images {
    /* memory that the device copies to and from at the speed of the bus */
    lg_status (*alloc)(lg_backend *b, size_t bytes, void **out, lg_err *err);
    void (*release)(lg_backend *b, void *p); /* waits for the copies */
    /* n bytes at `off` of device memory, as the work enqueued before leaves them, to an image */
    void (*out)(lg_backend *b, const lg_mem *m, size_t off, void *image, size_t n);
    void (*in)(lg_backend *b, const lg_mem *m, size_t off, const void *image, size_t n);
    void (*fence)(lg_backend *b); /* work enqueued from now on waits for the copies enqueued before */
} lg_images;

typedef struct lg_device_info {
    char name[96];         /* "CPU, AVX2, 8 threads", "NVIDIA H200" */
    const char *kind;      /* "cpu", "cuda", "metal" */
    uint64_t total_bytes;  /* memory that weights, KV and scratch may use in all */
    uint64_t free_bytes;   /* of it, free now */
    uint64_t image_bytes;  /* host memory that images may use; 0 without them */
    bool maps_weights;     /* weights may stay in the file map */
    bool reserved_counts;  /* memory counts when it is reserved, not when it is used */
    int max_rows;          /* preferred prefill chunk */
} lg_device_info;

struct lg_backend {
    const lg_ops *ops;
    lg_device_info info;
    void (*destroy)(lg_backend *b);
    /* bytes that `load` would add beside the file map for this weight, for the plan */
    size_t (*load_bytes)(lg_backend *b, const lg_source *src, lg_use use);
    /* bytes of scratch that `prepare` would take */
    size_t (*scratch_bytes)(lg_backend *b, const lg_limits *lim);
    /* `bytes` at `off` of an allocation are not needed until they are written again: their memory may go back
     * to the system. NULL: memory is taken when it is allocated, not when it is written, and never given
     * back. */
    void (*discard)(lg_backend *b, const lg_mem *m, size_t off, size_t bytes);
    const lg_images *images; /* NULL: what the host and the device use is one memory */
    /* this device's ceilings, measured now (about a second each), the best of several short passes: read
     * bandwidth in bytes/s, and operations/s (two per multiply-add) of the instruction that prefill kernels
     * use */
    double (*measure_bandwidth)(lg_backend *b);
    double (*measure_compute)(lg_backend *b);
    /* the same two as a mean over `seconds`: what a device that others share gives at this time. NULL: it
     * does not drift, and the two above tell enough */
    double (*sustained_bandwidth)(lg_backend *b, double seconds);
    double (*sustained_compute)(lg_backend *b, double seconds);
    /* time spent per kind of op since the last reset, or NULL when the backend cannot tell */
    void (*phases)(lg_backend *b, bool reset, void (*each)(void *ctx, const char *op, double seconds),
                   void *ctx);
};

/* Fills optional entries that are NULL with compositions of required ones (backend/compose.c). */
void lg_backend_compose(lg_ops *ops);

#endif
