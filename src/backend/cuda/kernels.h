/*
 * backend/cuda/kernels: what the host part (cuda.c) and the kernel files share: plain structs and one
 * launcher an op.
 *
 * Launchers enqueue on lg_cu.stream and never wait; a launch that fails is kept in lg_cu.error by the first
 * one that sees it. All numbers that change from step to step are read on the device from lg_cu_step, so a
 * captured list of launches can be replayed. `rows`, `outs` and `ctx` below are upper bounds that belong to
 * the key.
 *
 * Surprise: included by C and by CUDA C++, so it holds nothing that only one of them understands.
 */
#ifndef LG_BACKEND_CUDA_KERNELS_H
#define LG_BACKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "backend/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LG_CU_EXACT_ROWS = 16, /* up to here a row's bits do not depend on the number of rows */
    LG_CU_CODE_ROWS = 64,  /* up to here inputs of products are int8 codes, above bf16 */
    LG_CU_PARTS = 4,
    LG_CU_GROUP_ROWS = 2,  /* entries of a group when there are few rows */
    LG_CU_FEW_COLS = 4,    /* the same for types that moe_tiles.cu does not take */
    LG_CU_SPAN = 256,      /* positions of an attention node, at multiples of itself */
    LG_CU_TILES = 65535,   /* grouped products: most tiles of a launch (a grid's limit) */
    LG_CU_ROWS = 65535,    /* of a step, for the same reason */
    LG_CU_ROPES = 4,
    LG_CU_EXPERTS = 512,   /* that a router can choose among */
    LG_CU_SEGMENTS = 1024, /* of a row of logits, when candidates are looked for */
};

/* The head of the step block on the device. */
typedef struct lg_cu_step {
    int n_rows, n_out, n_cand;
    uint32_t serial; /* of the step; candidates that are there say whose they are */
    long long pos;
} lg_cu_step;

/* A weight on the device. Block types are stored in planes (layout.cu); at[i] is where plane i of a matrix
 * begins. */
typedef struct lg_cu_mat {
    const uint8_t *p;
    const float *expert_scale; /* or NULL */
    size_t matrix_bytes;       /* from one matrix of a stack to the next */
    size_t at[3];
    int type, n_in, n_out, n_expert;
    float scale;
} lg_cu_mat;

/* Quantised input of a product: int8 codes, and for each 32 of them the scale, the scale times the sum of the
 * codes, and the sums of both halves as int16. */
typedef struct lg_cu_acts {
    int8_t *q;      /* [rows][n_in] */
    int4 *meta;     /* [rows][n_in / 32] */
    uint16_t *bf16; /* [rows][n_in], for more than LG_CU_CODE_ROWS rows */
} lg_cu_acts;

/* An expert and its entries: sorted entries [first, first + n). */
typedef struct lg_cu_group {
    int expert, first, n;
    union {
        int both;  /* of at most LG_CU_GROUP_ROWS: the entries, 16 bits each */
        int heavy; /* of more: groups before this one that have more than two entries */
    };
} lg_cu_group;

/* What the segments of rows of logits have: the greatest logit, as sample.cu orders them, [row][segment];
 * maximum and sum of exponentials, [row][segment][2]; blocks that are done, [row], and rows, 0 between
 * launches. */
typedef struct lg_cu_segments {
    uint32_t *best;
    float *sums;
    int *done, *rows_done; /* rows_done: [1], of the step */
} lg_cu_segments;

typedef struct lg_cu {
    cudaStream_t stream;
    cudaError_t error;
    int sms, arch; /* multiprocessors; compute capability times 10, of the card or of older code for it */
    bool pdl;      /* programmatic dependent launch */
    /* the last launch left multiprocessors empty: the next would land unevenly if it came early */
    bool uneven;
    int rows, outs;
    int64_t ctx;   /* positions that the step can see, at most */
    int max_head;  /* of any layer */
    /* the step block */
    const lg_cu_step *step;
    const int32_t *ids, *out_rows;
    const int32_t *table[LG_KV_CLASSES];
    const uint32_t *mask;
    /* scratch */
    lg_cu_acts acts, mid;   /* inputs of products; of the down products */
    float *mid_f32;         /* the same, for float weights */
    float *route_logits;    /* [rows][experts] */
    /* [up to LG_CU_CODE_ROWS rows][experts]: moe_one.cu, route_few.cu, route_many.cu */
    uint32_t *route_keys;
    int32_t *entry;         /* [rows * k]: entries sorted by expert */
    lg_cu_group *group;     /* [LG_CU_TILES] */
    const int32_t *grouped; /* expert ids that entry and group hold, for few rows; NULL: none */
    unsigned launches, routed; /* kernels so far, and how many there were behind the last router */
    /* [0]: groups (tiles); [1]: a counter of finished blocks, 0 between launches; [2]: groups of more than
     * two entries */
    int *n_group;
    float *expert_out;      /* [rows * (k + 1)][hidden] */
    size_t expert_floats;   /* in it */
    float *attn_part;       /* nodes of attention */
    /* [LG_CU_EXACT_ROWS * max_head]: blocks of attention that are done; 0 between launches */
    int *arrived;
    float *x_other;         /* [hidden]: the other place of the residual row (fuse.c) */
    lg_cu_segments segments;
    uint32_t *listed;       /* pinned: the step whose candidates were the last to be all there */
    int smem;               /* bytes of shared memory that a block may have */
} lg_cu;

/* layout.cu */
/* Of this build for the current card; *arch: what it was compiled for, as lg_cu.arch. */
cudaError_t lg_cu_has_code(int *arch);
bool lg_cu_layout(lg_qtype type, int n_in, int n_out, lg_cu_mat *m); /* matrix_bytes, at, from the shape */
/* `rows` rows of the stored form at src (device) into matrix rows [row, row + rows) of m, counted through all
 * matrices of a stack. */
void lg_cu_repack(lg_cu *c, const lg_cu_mat *m, const void *src, int64_t row, int64_t rows);
/* The twin of lg_synth_fill: stored blocks [block0, block0 + n) to dst (device). */
void lg_cu_synth(lg_cu *c, uint64_t seed, uint32_t index, lg_qtype type, float mean, float spread,
                 uint64_t block0, uint64_t n, void *dst);
void lg_cu_to_f32(lg_cu *c, lg_qtype type, const void *src, float *dst, int64_t n, float scale);

/* The input of a product of one row that is still to be normed: h = norm(x + delta). x + delta goes to x_out,
 * which is not x: other blocks may still read that. */
typedef struct lg_cu_normed {
    const float *x, *delta; /* delta or NULL */
    float *x_out;           /* NULL with delta */
    float *h, *also; /* also: a second place for h, or NULL */
    const float *w;
    float eps;
    int cols;
    lg_cu_acts acts; /* h quantised */
} lg_cu_normed;

/* A product of one row may also leave x + y at `sum`, where y is its result: the f32 sum that the norm behind
 * it would take. x is not written meanwhile. NULL, NULL: it does not. */
typedef struct lg_cu_residual {
    const float *x;
    float *sum;
} lg_cu_residual;

/* The weighted sum of a mixture, while it is still to be done: out = the shared expert's row, where there is
 * one, plus w times each of the k entries. Or that of a product's slices, with no weights. */
typedef struct lg_cu_sum {
    lg_tensor out;
    const float *y, *w; /* [entry][hidden], then rows of the shared expert; [row][k], or NULL: all are 1 */
    int k, shared_at;   /* entries before those; -1: no shared expert */
} lg_cu_sum;

/* norm.cu */
/* cos and sin of every row of the step and pair: [rows][2][n_rot / 2] */
typedef struct lg_cu_angles {
    const lg_rope *rope;
    float *table;
} lg_cu_angles;
/* Also makes n kinds of angles. */
void lg_cu_embed(lg_cu *c, const lg_tensor *out, const lg_cu_mat *table, const lg_cu_angles *angles, int n);
/* x + delta goes to x_out (x or another row of its stride); delta may be NULL. Also leaves out's quantised
 * form in c->acts when `quantise` is set. sum: delta is made on the way, as its out; or NULL. */
void lg_cu_norm(lg_cu *c, const lg_tensor *out, const lg_tensor *x, float *x_out, const lg_tensor *delta,
                const float *w, float eps, bool quantise, const lg_cu_sum *sum);
bool lg_cu_norm_takes(const lg_cu_sum *sum, const lg_tensor *x, const lg_tensor *delta);
void lg_cu_quantise(lg_cu *c, const lg_tensor *x); /* to c->acts */
void lg_cu_quantise_to(lg_cu *c, const lg_tensor *x, const lg_cu_acts *to);
void lg_cu_to_bf16(lg_cu *c, const lg_tensor *x); /* to c->acts.bf16, whatever the number of rows */
void lg_cu_swiglu(lg_cu *c, const lg_tensor *out, const lg_tensor *gate, const lg_tensor *up);
void lg_cu_copy(lg_cu *c, void *dst, const void *src, size_t row_bytes, size_t dst_pitch, size_t src_pitch,
                lg_rows rows);
void lg_cu_gather(lg_cu *c, const lg_tensor *out, const lg_tensor *x);

/* linear.cu: at most LG_CU_EXACT_ROWS rows */
typedef struct lg_cu_part {
    lg_cu_mat w;
    float *y;
    int y_stride, first_group;
    lg_cu_residual add; /* lg_cu_gemv with one row and one part; else absent */
    /* lg_cu_gemm: where the sum is left to be done, if y comes to one; out.p stays NULL when y is there.
     * NULL: it is done */
    lg_cu_sum *later;
} lg_cu_part;
/* acts: x quantised */
void lg_cu_gemv(lg_cu *c, const lg_tensor *x, const lg_cu_acts *acts, lg_cu_part *parts, int n_parts);
/* linear_few.cu: the same for several rows; the parts that it does not take go to rest: how many. */
int lg_cu_linear_few(lg_cu *c, const lg_cu_acts *acts, lg_rows kind, const lg_cu_part *parts, int n_parts,
                     lg_cu_part *rest);
/* One row, a norm and its products in one launch; false: not these, nothing was done. */
bool lg_cu_normed_gemv(lg_cu *c, const lg_cu_normed *x, const lg_cu_part *parts, int n_parts);
/* gemm.cu: any number of rows */
void lg_cu_gemm(lg_cu *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts);
/* an f32 product in slices of its inputs, [slice][rows of the bucket][y_stride] at part->y, to be added up */
void lg_cu_gemm_f32_slices(lg_cu *c, const lg_tensor *x, const lg_cu_part *part, int slices);
/* gemm_int8.cu: up to LG_CU_CODE_ROWS rows of c->acts: the leading parts that it takes, and how many */
int lg_cu_gemm_int8(lg_cu *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts);

/* gemm_stream.cu, from sm_90 on: the same; the parts that it does not take go to rest: how many. */
int lg_cu_gemm_stream(lg_cu *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts, lg_cu_part *rest);

/* route.cu */
typedef struct lg_cu_route {
    lg_tensor h;
    const float *router, *bias; /* bias or NULL */
    int n_expert, k;
    bool softmax, norm;
    float scale;
    int32_t *ids;
    float *w;
} lg_cu_route;
void lg_cu_route_op(lg_cu *c, const lg_cu_route *a);
bool lg_cu_route_few(lg_cu *c, const lg_cu_route *a); /* route_few.cu; false: not this, nothing was done */
void lg_cu_route_many(lg_cu *c, const lg_cu_route *a); /* route_many.cu: more than LG_CU_EXACT_ROWS rows */
/* The two launches of that for up to LG_CU_CODE_ROWS rows, where they take them. late: the launch before is
 * no matter of this one, and runs beside it; the one before that is over when it lets this one in. */
bool lg_cu_route_halves(const lg_cu *c, const lg_cu_route *a);
void lg_cu_route_part(lg_cu *c, const lg_cu_route *a, bool late);
void lg_cu_route_choose(lg_cu *c, const lg_cu_route *a, bool late);
/* moe.cu */
typedef struct lg_cu_ffn {
    lg_cu_mat gate, up, down;
} lg_cu_ffn;
typedef struct lg_cu_moe {
    lg_tensor out, h;
    const lg_cu_ffn *routed, *shared; /* or NULL */
    const int32_t *ids;
    const float *w;
    int k;
    lg_cu_residual add; /* of lg_cu_moe_one */
    lg_cu_sum *later; /* where the sum is left to be done, if it comes to one; NULL: it is done */
} lg_cu_moe;
void lg_cu_moe_op(lg_cu *c, const lg_cu_moe *a);
/* LG_CU_EXACT_ROWS + 1 to LG_CU_CODE_ROWS rows with the routing in front of it; false: not these, nothing was
 * done. */
bool lg_cu_moe_follow(lg_cu *c, const lg_cu_moe *a, const lg_cu_route *route);
void lg_cu_moe_few(lg_cu *c, const lg_cu_moe *a); /* moe_few.cu: at most LG_CU_EXACT_ROWS rows */
/* moe_tiles.cu: 2 to LG_CU_EXACT_ROWS rows, types in planes; false: not these, nothing was done. */
bool lg_cu_moe_tiles(lg_cu *c, const lg_cu_moe *a);
/* moe_dense.cu: gate and up of a dense expert, for the same rows; false: not these, nothing was done. */
bool lg_cu_dense_up(lg_cu *c, const lg_cu_ffn *f, const lg_cu_acts *mid, lg_rows kind);
/* moe_one.cu: one row, with the routing (or NULL: ids and w are there) and the norm in front of it (or NULL:
 * h is, and is quantised in c->acts); false: not these, nothing was done. m->add.x is there before, or is the
 * norm's x or x_out. */
bool lg_cu_moe_one(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route, const lg_cu_normed *norm);
/* moe_down_one.cu, for moe_one.cu: the last launch. The values between the products are in c->mid_f32, the
 * choice in m's ids and w; with a route the launch before leaves the ids, where the one before that has left
 * -1, and this one the weights. It lets this one in when it has waited. */
bool lg_cu_moe_down_fits(const lg_cu *c, const lg_cu_moe *m);
void lg_cu_moe_down_one(lg_cu *c, const lg_cu_moe *m, const lg_cu_route *route);
/* route_many.cu: entries by expert to c->entry, groups of at most tile_rows of them to c->group */
void lg_cu_sort_entries(lg_cu *c, const lg_cu_moe *a, int tile_rows);
/* out = the shared expert's rows of c->expert_out, where there are such, plus the weighted entries; or
 * later. */
void lg_cu_moe_sum(lg_cu *c, const lg_cu_moe *a);
void lg_cu_sum_now(lg_cu *c, const lg_cu_sum *s);
/* gemm.cu, for moe.cu: silu(gate x) * up x of the tiles in c->group (dense: of all rows) to c->mid, then
 * down to c->expert_out + out_at * hidden; tile_rows as the tiles were cut. */
int lg_cu_gemm_tile_rows(const lg_cu *c, const lg_cu_ffn *f, int n_expert, int k);
void lg_cu_gemm_ffn(lg_cu *c, const lg_cu_moe *a, const lg_cu_ffn *f, bool dense, int tile_rows, int n_tiles);
/* gemm_wgmma.cu, on sm_90a: the leading parts that it takes, and how many */
int lg_cu_gemm_wgmma(lg_cu *c, const lg_tensor *x, const lg_cu_part *parts, int n_parts);
/* 0: not for it */
int lg_cu_wgmma_tile_rows(const lg_cu *c, const lg_cu_ffn *f);
void lg_cu_gemm_wgmma_ffn(lg_cu *c, const lg_cu_moe *a, const lg_cu_ffn *f, bool dense, float *y,
                          int y_stride, int n_tiles);
/* moe_stream.cu, from sm_90 on: the experts of up to LG_CU_CODE_ROWS rows of c->acts: entries sorted, results
 * by entry in c->expert_out. */
bool lg_cu_stream_takes(const lg_cu *c, const lg_cu_ffn *f);
void lg_cu_moe_stream(lg_cu *c, const lg_cu_moe *a, const lg_cu_ffn *f);
/* gemm_int8.cu: the same for up to LG_CU_CODE_ROWS rows of c->acts, groups of lg_cu_int8_tile_rows() */
bool lg_cu_int8_takes_ffn(const lg_cu_ffn *f);
int lg_cu_int8_tile_rows(void);
void lg_cu_gemm_int8_ffn(lg_cu *c, const lg_cu_moe *a, const lg_cu_ffn *f, int n_tiles);
/* gemm_stream.cu: gate and up of a dense expert to c->mid; down of it, as the part says. false: not these,
 * nothing was done. */
bool lg_cu_stream_up(lg_cu *c, const lg_cu_moe *a, const lg_cu_ffn *f);
bool lg_cu_stream_down(lg_cu *c, const lg_cu_moe *a, const lg_cu_part *part);
/* Both halves of a dense expert: to c->mid; to a's out, or behind the entries of routed experts. */
void lg_cu_int8_dense_up(lg_cu *c, const lg_cu_moe *a, const lg_cu_ffn *f);
void lg_cu_int8_dense_down(lg_cu *c, const lg_cu_moe *a, const lg_cu_ffn *f);

/* qkv.cu */
void lg_cu_rope(lg_cu *c, const lg_cu_angles *angles);
typedef struct lg_cu_qkv {
    lg_tensor q, k, v;
    const float *q_norm, *k_norm;
    float eps;
    const float *table; /* of lg_cu_rope; NULL: no rotation */
    int n_rot;
    const lg_kv_class *kv;
    int kv_layer, n_head;
} lg_cu_qkv;
void lg_cu_qkv_post(lg_cu *c, const lg_cu_qkv *a);
void lg_cu_kv_move(lg_cu *c, const lg_kv_class *k, int src_block, int src_row, int dst_block, int dst_row,
                   int rows);
/* attention.cu */
typedef struct lg_cu_attn {
    lg_tensor out, q, gate;
    const lg_cu_qkv *qkv; /* what lg_cu_qkv_post would have to do before, or NULL */
    const lg_kv_class *kv;
    int kv_layer, n_head;
} lg_cu_attn;
/* Does attention also do what lg_cu_qkv_post would? Of one row (attn_few.cu), of a follow-up
 * (attn_follow.cu). */
bool lg_cu_attn_takes_qkv(const lg_cu *c, const lg_cu_qkv *q);
bool lg_cu_attn_follows(const lg_cu *c, const lg_cu_qkv *q);
void lg_cu_attention(lg_cu *c, const lg_cu_attn *a, bool quantise);
int lg_cu_max_spans(int64_t ctx, int window); /* that a row of attention can see */
size_t lg_cu_attn_floats(int64_t max_ctx, int max_head, int head_dim);

/* sample.cu */
void lg_cu_mask(lg_cu *c, const lg_tensor *logits);
/* When all is written, c->listed has the step's serial number. */
void lg_cu_topk(lg_cu *c, const lg_tensor *logits, int32_t *ids, float *out, float *lse, int max_cand);

/* measure.cu: read bandwidth in bytes/s over `bytes` at p; operations/s of the matrix units */
double lg_cu_measure_read(lg_cu *c, const void *p, size_t bytes);
double lg_cu_measure_mma(lg_cu *c);

#ifdef __cplusplus
}
#endif

#endif
