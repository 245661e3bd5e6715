/*
 * backend/cpu/cpu_internal: what the CPU backend's op files share.
 *
 * cpu.c owns the table of ops: each entry looks at the cancel flag, starts the clock of its phase and calls
 * one of the lg_cpu_* functions below, so op files contain neither. All of them run on the engine's thread,
 * which is thread 0 of the pool; inside a pool job every thread reads this struct and none writes it.
 *
 * Surprise: scratch is one region that every op reuses from its start. Nothing in it survives an op; what
 * must live for a step (rotary tables) has memory of its own.
 */
#ifndef LG_BACKEND_CPU_CPU_INTERNAL_H
#define LG_BACKEND_CPU_CPU_INTERNAL_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/pool.h"

enum {
    LG_CPU_ROPES = 4,        /* rotary kinds: full, window, drafter, one to spare */
    LG_CPU_EXACT_ROWS = 16,  /* up to here each row has the same bits whatever the number of rows */
};

/* What op times are kept by. */
typedef enum lg_cpu_phase {
    LG_CPU_EMBED,
    LG_CPU_NORM,
    LG_CPU_LINEAR,
    LG_CPU_QKV_POST,
    LG_CPU_ATTENTION,
    LG_CPU_SWIGLU,
    LG_CPU_ROUTE,
    LG_CPU_MOE,
    LG_CPU_FFN,
    LG_CPU_SAMPLE, /* mask_logits, topk */
    LG_CPU_COPY,   /* gather_rows, copy, tap */
    LG_CPU_PHASES,
} lg_cpu_phase;

/* Rotary tables of one kind for the rows of the current step: [row][n_rot / 2] each. */
typedef struct lg_cpu_rope {
    bool ready; /* computed for this step */
    float *cos, *sin;
} lg_cpu_rope;

typedef struct lg_cpu {
    lg_backend base; /* first member: a backend pointer is a pointer to this */
    lg_ops ops;      /* base.ops points here */
    lg_cpu_kernels k;
    lg_vec_kernels plain; /* the C level, for head sizes that are no multiple of 16 */
    lg_pool *pool;
    int n_threads;
    size_t l2_bytes; /* of a core */
    bool fetch_to_l2; /* lg_mat.to_l2 of all matrices */

    lg_limits lim;    /* zero before prepare */
    lg_mem scratch;   /* 64-byte aligned; see lg_cpu_scratch */
    lg_mem rope_mem;
    lg_mem probe;     /* measure.c's buffer; empty until something is measured */
    lg_cpu_rope rope[LG_CPU_ROPES];

    lg_step step;     /* copy of the step between begin and end */
    bool in_step;
    bool cancelled;   /* this step: every later op returns at once */

    bool keeps_phases;
    uint64_t phase_start_ns, phase_ns[LG_CPU_PHASES];
} lg_cpu;

/* Rows of this step that a tensor of kind `rows` has. */
static inline int lg_cpu_rows(const lg_cpu *c, lg_rows rows)
{
    return rows == LG_ROWS_OUT ? c->step.n_out : c->step.n_rows;
}

/* Row r of a tensor. */
static inline float *lg_cpu_row(const lg_tensor *t, int r)
{
    return t->p + (size_t)r * (size_t)t->stride;
}

/* Items of n that thread t of n_threads takes in a static split: [*from, *to), multiples of `unit` except at
 * the end. */
static inline void lg_cpu_share(int64_t n, int64_t unit, int t, int n_threads, int64_t *from, int64_t *to)
{
    int64_t units = (n + unit - 1) / unit;

    *from = units * t / n_threads * unit;
    *to = units * (t + 1) / n_threads * unit;
    if (*from > n)
        *from = n;
    if (*to > n)
        *to = n;
}

/* The scratch region, which must hold `bytes` (stated to prepare by one of the *_scratch functions). */
static inline void *lg_cpu_scratch(const lg_cpu *c, size_t bytes)
{
    LG_ASSERT(bytes <= c->scratch.bytes);
    return c->scratch.p;
}

/* A bump over scratch: n bytes rounded up to 64 from *at. */
static inline void *lg_cpu_carve(char **at, size_t bytes)
{
    void *p = *at;

    *at += (bytes + 63) / 64 * 64;
    return p;
}

/* ---- cpu_mem.c ---- */
/* Zeroed, 64-byte aligned, with huge pages asked for from 2 MiB on. 0 bytes give a NULL pointer. */
LG_NODISCARD lg_status lg_cpu_mem_alloc(size_t bytes, lg_mem *out, lg_err *err);
void lg_cpu_mem_free(lg_mem *m); /* *m is empty afterwards */
/* The whole pages of a part give their memory back; what they hold is lost. */
void lg_cpu_mem_discard(const lg_mem *m, size_t off, size_t bytes);

/* ---- op_misc.c ---- */
void lg_cpu_embed(lg_cpu *c, const lg_tensor *out, const lg_weight *table);
void lg_cpu_rmsnorm(lg_cpu *c, const lg_tensor *out, const lg_tensor *x, const lg_weight *w, float eps);
void lg_cpu_add_rmsnorm(lg_cpu *c, const lg_tensor *out, const lg_tensor *x, const lg_tensor *delta,
                        const lg_weight *w, float eps);
void lg_cpu_gather_rows(lg_cpu *c, const lg_tensor *out, const lg_tensor *x);
void lg_cpu_mask_logits(lg_cpu *c, const lg_tensor *logits);
void lg_cpu_topk(lg_cpu *c, const lg_tensor *logits, const lg_candidates *out);
void lg_cpu_copy(lg_cpu *c, void *dst, const void *src, size_t row_bytes, size_t dst_pitch, size_t src_pitch,
                 lg_rows rows);
void lg_cpu_kv_move(lg_cpu *c, const lg_kv_class *k, const lg_kv_copy *moves, int n);
size_t lg_cpu_misc_scratch(const lg_cpu *c, const lg_limits *lim);

/* ---- op_attn.c ---- */
void lg_cpu_qkv_post(lg_cpu *c, const lg_qkv_args *a);
void lg_cpu_attention(lg_cpu *c, const lg_attn_args *a);
size_t lg_cpu_attn_scratch(const lg_cpu *c, const lg_limits *lim);

/* ---- op_linear.c ---- */
void lg_cpu_linear(lg_cpu *c, const lg_tensor *x, const lg_part *parts, int n_parts);
size_t lg_cpu_linear_scratch(const lg_cpu *c, const lg_limits *lim);

/* ---- op_route.c ---- */
void lg_cpu_swiglu(lg_cpu *c, const lg_tensor *out, const lg_tensor *gate, const lg_tensor *up);
void lg_cpu_route(lg_cpu *c, const lg_route_args *a);
size_t lg_cpu_route_scratch(const lg_cpu *c, const lg_limits *lim);

/* ---- op_moe.c ---- */
/* The routed part is absent when a->gate is NULL: then this is a dense FFN, out = shared(h). */
void lg_cpu_moe(lg_cpu *c, const lg_moe_args *a);
size_t lg_cpu_moe_scratch(const lg_cpu *c, const lg_limits *lim);

/* ---- pack.c: LG_USE_LINEAR, _EXPERTS, _EMBED, _EMBED_LINEAR (vectors and routers are cpu.c's) ---- */
/* Fills data, bytes, layout, mem; the other fields are set already. */
LG_NODISCARD lg_status lg_cpu_pack(lg_cpu *c, const lg_source *src, lg_weight *out, lg_err *err);
/* Bytes lg_cpu_pack would allocate; 0 when the weight stays in the file map. */
size_t lg_cpu_pack_bytes(const lg_cpu *c, const lg_source *src, lg_use use);
/* Elements of row `row` of a loaded LG_USE_EMBED or LG_USE_EMBED_LINEAR weight, w->scale applied: n_in
 * floats. */
void lg_cpu_unpack_row(const lg_cpu *c, const lg_weight *w, int row, float *dst);

/* ---- measure.c ---- */
/* The best of several passes of a few milliseconds; the mean over so many seconds, at least one pass. 0 when
 * there is no memory for the buffer, which stays in c->probe. */
double lg_cpu_measure_bandwidth(lg_cpu *c);
double lg_cpu_sustained_bandwidth(lg_cpu *c, double seconds);
double lg_cpu_measure_compute(lg_cpu *c);
double lg_cpu_sustained_compute(lg_cpu *c, double seconds);

#endif
