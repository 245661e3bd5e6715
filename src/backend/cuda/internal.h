/*
 * backend/cuda/internal: the backend object, shared by the host files cuda.c, fuse.c, memory.c, images.c and
 * step.c.
 *
 * One thread (the engine's) owns all of it. A failure of the device is sticky: it is kept with its text,
 * every later call repeats it, and the process stays usable for another backend.
 */
#ifndef LG_BACKEND_CUDA_INTERNAL_H
#define LG_BACKEND_CUDA_INTERNAL_H

#include "backend/backend.h"
#include "backend/cuda/kernels.h"
#include "base/pool.h"

enum {
    LG_CUDA_GRAPHS = 64,   /* recorded lists of launches that are kept */
    LG_CUDA_HEADS = 8,     /* step heads under way before begin has to wait */
    LG_CUDA_MARKS = 4096,  /* ops timed between two waits */
    LG_CUDA_STAGES = 2,
    LG_CUDA_UNLIKE = 1 << 15, /* a flag of keys: the step is not as those that follow */
};

typedef enum lg_cuda_phase {
    LG_CUDA_EMBED, LG_CUDA_NORM, LG_CUDA_LINEAR, LG_CUDA_QKV_POST, LG_CUDA_ATTENTION, LG_CUDA_SWIGLU,
    LG_CUDA_ROUTE, LG_CUDA_MOE, LG_CUDA_FFN, LG_CUDA_SAMPLE, LG_CUDA_COPY, LG_CUDA_PHASES
} lg_cuda_phase;

typedef struct lg_cuda_graph {
    lg_key key;
    cudaGraphExec_t exec; /* NULL: free */
    uint64_t used;        /* when, for eviction */
} lg_cuda_graph;

/* Where the parts of the step block begin, and the pinned host copy of what the device has. */
typedef struct lg_cuda_step {
    uint8_t *dev;
    uint8_t *heads;  /* pinned: LG_CUDA_HEADS times head, output rows, ids */
    int32_t *table[LG_KV_CLASSES]; /* pinned */
    uint32_t *mask;  /* pinned */
    size_t head_bytes, out_rows_at, ids_at, table_at[LG_KV_CLASSES], mask_at, bytes;
    size_t n_table;  /* entries that a table has room for */
    int next_head, under_way;
    uint32_t serial; /* of the last step */
    bool lists;      /* it ends with candidates, says when they are there, and was not waited for yet */
    void *pinned;
} lg_cuda_step;

/* Ops that wait for the op behind them, which may do their work in passing (fuse.c): in steps of one row; a
 * route also of up to LG_CU_CODE_ROWS, the sum of experts, or of a product's slices, in those of several. */
typedef struct lg_cuda_later {
    bool norm, route, qkv;
    bool embedded; /* in this step */
    lg_tensor h, x, delta; /* of the norm; delta.p may be NULL. x stays when the norm is done */
    lg_tensor last;        /* is to be the same row as h; p NULL: nothing is */
    bool summed;           /* the other place of x has x + delta already */
    const float *w;
    float eps;
    lg_cu_route r;
    lg_cu_qkv q;
    lg_cu_sum sum;       /* out.p NULL: none */
    const float *away;   /* the tensor whose row is in cu.x_other; NULL: none */
    const float *sum_of; /* the op before has left x + this row in the other place of x; NULL: it has not */
} lg_cuda_later;

typedef struct lg_cuda {
    lg_backend base;
    lg_cu cu;
    int device;
    bool in_step, capturing, keeps_phases, lost;
    char lost_text[160];
    lg_limits lim;
    lg_mem scratch;
    size_t acts_cols; /* widest input that cu.acts has room for */
    float *rope_table[LG_CU_ROPES];
    bool rope_ready[LG_CU_ROPES]; /* in this step */
    lg_rope rope[LG_CU_ROPES];    /* the last one of each kind; n_rot 0: none yet */
    uint16_t unlike;              /* steps of LG_CUDA_UNLIKE: makes their keys differ */
    /* what cu.acts holds the quantised form of; NULL: nothing */
    const float *acts_of;
    int acts_cols_of;
    lg_cuda_later later;
    lg_cuda_step step;
    lg_key key;
    lg_cuda_graph graph[LG_CUDA_GRAPHS];
    uint64_t clock;
    /* loading */
    lg_pool *pool;
    void *stage[LG_CUDA_STAGES]; /* pinned */
    void *raw[LG_CUDA_STAGES];   /* device */
    cudaEvent_t stage_free[LG_CUDA_STAGES];
    int stage_next;
    /* images of KV blocks */
    struct lg_cuda_ready *ready;
    cudaStream_t copies;
    cudaEvent_t before_copy, after_copies;
    /* phases */
    cudaEvent_t *mark; /* 2 * LG_CUDA_MARKS */
    uint8_t mark_phase[LG_CUDA_MARKS];
    int n_marks;
    double phase_s[LG_CUDA_PHASES];
} lg_cuda;

/* cuda.c */
/* LG_OK for cudaSuccess; else the sticky failure, filled into err. */
LG_NODISCARD lg_status lg_cuda_check(lg_cuda *c, cudaError_t e, const char *what, lg_err *err);
/* The failure that launches left behind, or an earlier one. */
LG_NODISCARD lg_status lg_cuda_health(lg_cuda *c, lg_err *err);

/* memory.c */
lg_status lg_cuda_alloc(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err);
lg_status lg_cuda_alloc_results(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err);
void lg_cuda_release(lg_backend *b, lg_mem *m);
lg_status lg_cuda_load(lg_backend *b, const lg_source *src, lg_use use, lg_weight *out, lg_err *err);
void lg_cuda_unload(lg_backend *b, lg_weight *w);
size_t lg_cuda_load_bytes(lg_backend *b, const lg_source *src, lg_use use);
lg_status lg_cuda_upload(lg_backend *b, const lg_mem *dst, size_t off, const void *src, size_t n,
                         lg_err *err);
lg_status lg_cuda_download(lg_backend *b, const void *src, void *dst, size_t n, lg_err *err);
lg_status lg_cuda_prepare(lg_backend *b, const lg_limits *lim, lg_err *err);
size_t lg_cuda_scratch_bytes(lg_backend *b, const lg_limits *lim);
void lg_cuda_free_stages(lg_cuda *c);
/* The device's view of a weight. */
lg_cu_mat lg_cuda_mat(const lg_weight *w);

/* fuse.c: steps of one row */
void lg_cuda_later_norm(lg_cuda *c, const lg_tensor *h, const lg_tensor *x, const lg_tensor *delta,
                        const float *w, float eps);
/* x is the one row of the step, which is gathered to out; false: it has to be done. */
bool lg_cuda_later_gather(lg_cuda *c, const lg_tensor *out, const lg_tensor *x);
void lg_cuda_later_route(lg_cuda *c, const lg_cu_route *r);
void lg_cuda_later_qkv(lg_cuda *c, const lg_cu_qkv *q);
/* The op, with what waits for it; false: settle, then do it the usual way. */
bool lg_cuda_fused_linear(lg_cuda *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts);
bool lg_cuda_fused_moe(lg_cuda *c, const lg_cu_moe *m);
/* A product of one part, launched next, is to leave the residual sum besides, where there may be one. */
void lg_cuda_want_sum(lg_cuda *c, const lg_tensor *x, lg_cu_part *part);
/* What waits for an attention of these operands, or NULL; it no longer waits. */
const lg_cu_qkv *lg_cuda_fused_qkv(lg_cuda *c, const lg_attn_args *a);
/* Nothing waits any more, and rows are where their tensors say. */
void lg_cuda_settle(lg_cuda *c);
/* Somebody writes to this tensor: what was quantised of it is old. */
void lg_cuda_touch(lg_cuda *c, const float *p);
/* c->acts holds the quantised form of x; or it is made. */
void lg_cuda_quantised(lg_cuda *c, const lg_tensor *x);
void lg_cuda_want_acts(lg_cuda *c, const lg_tensor *x);

/* images.c */
/* The stream of the copies, unless the card and the host share one memory. */
LG_NODISCARD lg_status lg_cuda_images_open(lg_cuda *c, bool one_memory, lg_err *err);
void lg_cuda_images_close(lg_cuda *c);

/* step.c */
lg_status lg_cuda_step_alloc(lg_cuda *c, const lg_limits *lim, lg_err *err);
void lg_cuda_step_free(lg_cuda *c);
size_t lg_cuda_step_bytes(const lg_limits *lim);
lg_status lg_cuda_begin(lg_backend *b, lg_key key, const lg_step *s, lg_begin *how, lg_err *err);
lg_status lg_cuda_end(lg_backend *b, lg_err *err);
lg_status lg_cuda_wait(lg_backend *b, lg_err *err);
void lg_cuda_drop_graphs(lg_cuda *c);

#endif
