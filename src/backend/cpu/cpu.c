/*
 * backend/cpu: the CPU backend: resources, the life of a step, and the table of ops.
 *
 * Owns the pool, the kernel table, scratch and rotary tables. Ops run at once, on the engine's thread and the
 * pool, so begin always answers LG_RECORD and there is nothing to wait for. Each op first looks at the step's
 * cancel flag; once it is seen, the rest of the step does nothing and `end` says LG_E_CANCELLED.
 *
 * Surprise: weights whose layout fits stay in the caller's file map; the map must outlive the backend's use
 * of them.
 */
#include "backend/cpu/cpu.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/cpu_internal.h"
#include "base/clock.h"
#include "base/memory.h"

enum { PREFILL_ROWS = 1024 }; // enough rows an expert; more only adds scratch

static const char *const phase_names[LG_CPU_PHASES] = {
    [LG_CPU_EMBED] = "embed",         [LG_CPU_NORM] = "norm",     [LG_CPU_LINEAR] = "linear",
    [LG_CPU_QKV_POST] = "qkv_post",   [LG_CPU_ATTENTION] = "attention", [LG_CPU_SWIGLU] = "swiglu",
    [LG_CPU_ROUTE] = "route",         [LG_CPU_MOE] = "moe",       [LG_CPU_FFN] = "ffn",
    [LG_CPU_SAMPLE] = "sample",       [LG_CPU_COPY] = "copy",
};

/* ---- resources ---- */

static int larger(int a, int b)
{
    return a > b ? a : b;
}

// Limits that cover both.
static lg_limits widen(const lg_limits *a, const lg_limits *b)
{
    return (lg_limits){.max_rows = larger(a->max_rows, b->max_rows),
                       .max_out = larger(a->max_out, b->max_out),
                       .max_cand = larger(a->max_cand, b->max_cand),
                       .hidden = larger(a->hidden, b->hidden),
                       .vocab = larger(a->vocab, b->vocab),
                       .max_head = larger(a->max_head, b->max_head),
                       .max_q_cols = larger(a->max_q_cols, b->max_q_cols),
                       .max_ffn = larger(a->max_ffn, b->max_ffn),
                       .max_ffn_expert = larger(a->max_ffn_expert, b->max_ffn_expert),
                       .max_expert = larger(a->max_expert, b->max_expert),
                       .max_k = larger(a->max_k, b->max_k),
                       .max_ctx = a->max_ctx > b->max_ctx ? a->max_ctx : b->max_ctx};
}

// Ops use scratch one after the other, so the hungriest decides.
static size_t op_scratch_bytes(const lg_cpu *c, const lg_limits *lim)
{
    const size_t need[] = {lg_cpu_misc_scratch(c, lim), lg_cpu_attn_scratch(c, lim),
                           lg_cpu_linear_scratch(c, lim), lg_cpu_route_scratch(c, lim),
                           lg_cpu_moe_scratch(c, lim)};
    size_t most = 0;

    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        most = need[i] > most ? need[i] : most;
    return most;
}

// cos and sin of up to LG_ROT_MAX / 2 pairs a row.
static size_t rope_table_floats(const lg_limits *lim)
{
    return (size_t)lim->max_rows * LG_ROT_MAX / 2;
}

static size_t rope_bytes(const lg_limits *lim)
{
    return LG_CPU_ROPES * 2 * rope_table_floats(lim) * sizeof(float);
}

static size_t cpu_scratch_bytes(lg_backend *b, const lg_limits *lim)
{
    return op_scratch_bytes((lg_cpu *)b, lim) + rope_bytes(lim);
}

static lg_status cpu_prepare(lg_backend *b, const lg_limits *lim, lg_err *err)
{
    lg_cpu *c = (lg_cpu *)b;
    lg_limits both = widen(&c->lim, lim);
    lg_mem scratch = {0}, rope = {0};
    lg_status st = lg_cpu_mem_alloc(op_scratch_bytes(c, &both), &scratch, err);

    if (st == LG_OK)
        st = lg_cpu_mem_alloc(rope_bytes(&both), &rope, err);
    if (st != LG_OK) {
        lg_cpu_mem_free(&scratch);
        return st;
    }
    lg_cpu_mem_free(&c->scratch);
    lg_cpu_mem_free(&c->rope_mem);
    lg_cpu_mem_free(&c->probe);
    c->scratch = scratch;
    c->rope_mem = rope;
    c->lim = both;
    for (int i = 0; i < LG_CPU_ROPES; i++) {
        c->rope[i].cos = (float *)rope.p + (size_t)i * 2 * rope_table_floats(&both);
        c->rope[i].sin = c->rope[i].cos + rope_table_floats(&both);
    }
    return LG_OK;
}

static lg_status cpu_alloc(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err)
{
    (void)b;
    return lg_cpu_mem_alloc(bytes, out, err);
}

static void cpu_release(lg_backend *b, lg_mem *m)
{
    (void)b;
    lg_cpu_mem_free(m);
}

static bool is_plain(lg_use use)
{
    return use == LG_USE_VECTOR || use == LG_USE_ROUTER;
}

// Vectors and routers: f32 with the scale applied. Stays in the map when it is that already.
static lg_status load_plain(const lg_source *src, size_t n, lg_weight *out, lg_err *err)
{
    if (src->type == LG_F32 && src->scale == 1.0f && (uintptr_t)src->data % sizeof(float) == 0) {
        out->data = src->data;
        out->bytes = src->bytes;
        return LG_OK;
    }
    LG_TRY(lg_cpu_mem_alloc(n * sizeof(float), &out->mem, err));
    float *dst = out->mem.p;
    lg_dequant_row(src->type, src->data, dst, (int64_t)n);
    for (size_t i = 0; i < n; i++)
        dst[i] *= src->scale;
    out->type = LG_F32;
    out->scale = 1.0f;
    out->data = dst;
    out->bytes = n * sizeof(float);
    return LG_OK;
}

// The shape of a source as ints, and that its bytes are what shape and type say.
static lg_status check_source(const lg_source *src, size_t *n_elems, lg_err *err)
{
    size_t row = 0, rows = 1, bytes = 0, n = 0;
    const lg_qtype_info *info = lg_qtype_get((uint32_t)src->type);

    if (!info->name || !info->runs)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "type %s (%u) cannot be a weight",
                       info->name ? info->name : "?", (unsigned)src->type);
    bool ok = lg_row_bytes(src->type, src->ne[0], &row);
    for (int d = 0; ok && d < 4; d++)
        ok = src->ne[d] > 0 && src->ne[d] <= INT_MAX;
    for (int d = 1; ok && d < 4; d++)
        ok = lg_mul_size(rows, (size_t)src->ne[d], &rows);
    ok = ok && lg_mul_size(row, rows, &bytes) && lg_mul_size((size_t)src->ne[0], rows, &n) &&
         n <= INT64_MAX / 4;
    if (!ok || bytes != src->bytes)
        return LG_FAIL(err, LG_E_INPUT, "shape [%llu, %llu, %llu, %llu] of type %s does not make %zu bytes",
                       (unsigned long long)src->ne[0], (unsigned long long)src->ne[1],
                       (unsigned long long)src->ne[2], (unsigned long long)src->ne[3], info->name,
                       src->bytes);
    *n_elems = n;
    return LG_OK;
}

static lg_status cpu_load(lg_backend *b, const lg_source *src, lg_use use, lg_weight *out, lg_err *err)
{
    size_t n = 0;
    lg_weight w = {.type = src->type, .use = use, .scale = src->scale, .expert_scale = src->expert_scale};
    lg_status st = check_source(src, &n, err);

    if (st == LG_OK && use == LG_USE_VECTOR && n > INT_MAX)
        st = LG_FAIL(err, LG_E_INPUT, "%zu elements are too many for a vector", n);
    if (st == LG_OK) {
        w.n_in = use == LG_USE_VECTOR ? (int)n : (int)src->ne[0];
        w.n_out = use == LG_USE_VECTOR ? 1 : (int)src->ne[1];
        w.n_expert = use == LG_USE_EXPERTS ? (int)src->ne[2] : 1;
        st = is_plain(use) ? load_plain(src, n, &w, err) : lg_cpu_pack((lg_cpu *)b, src, &w, err);
    }
    if (st != LG_OK)
        (void)lg_err_subject(err, "%.*s", (int)src->name.n, src->name.p);
    else
        *out = w;
    return st;
}

static size_t cpu_load_bytes(lg_backend *b, const lg_source *src, lg_use use)
{
    size_t n = 0;

    if (!is_plain(use))
        return lg_cpu_pack_bytes((lg_cpu *)b, src, use);
    if (src->type == LG_F32 && src->scale == 1.0f && (uintptr_t)src->data % sizeof(float) == 0)
        return 0;
    return check_source(src, &n, NULL) == LG_OK ? n * sizeof(float) : 0;
}

static void cpu_unload(lg_backend *b, lg_weight *w)
{
    (void)b;
    lg_cpu_mem_free(&w->mem);
    *w = (lg_weight){0};
}

static lg_status cpu_upload(lg_backend *b, const lg_mem *dst, size_t off, const void *src, size_t n,
                            lg_err *err)
{
    (void)b;
    (void)err;
    LG_ASSERT(off <= dst->bytes && n <= dst->bytes - off);
    if (n > 0)
        memcpy((char *)dst->p + off, src, n);
    return LG_OK;
}

static lg_status cpu_download(lg_backend *b, const void *src, void *dst, size_t n, lg_err *err)
{
    (void)b;
    (void)err;
    if (n > 0)
        memcpy(dst, src, n);
    return LG_OK;
}

/* ---- the life of a step ---- */

static void check_tables(const lg_step *s)
{
    for (int i = 0; i < LG_KV_CLASSES; i++)
        LG_ASSERT(!s->table[i] || (int64_t)s->n_table[i] * LG_KV_BLOCK >= s->pos + s->n_rows);
}

static lg_status cpu_begin(lg_backend *b, lg_key key, const lg_step *s, lg_begin *how, lg_err *err)
{
    lg_cpu *c = (lg_cpu *)b;

    (void)key;
    LG_ASSERT(!c->in_step);
    LG_ASSERT(s->n_rows >= 0 && s->n_rows <= c->lim.max_rows && s->pos >= 0);
    LG_ASSERT(s->n_out >= 0 && s->n_out <= c->lim.max_out && s->n_cand <= c->lim.max_cand);
    check_tables(s);
    for (int i = 0; s->ids && i < s->n_rows; i++)
        if (s->ids[i] < 0 || s->ids[i] >= c->lim.vocab)
            return LG_FAIL(err, LG_E_INPUT, "token id %d is not in the vocabulary of %d", s->ids[i],
                           c->lim.vocab);
    for (int i = 0; s->out_rows && i < s->n_out; i++)
        LG_ASSERT(s->out_rows[i] >= 0 && s->out_rows[i] < s->n_rows);
    c->step = *s;
    c->in_step = true;
    c->cancelled = false;
    for (int i = 0; i < LG_CPU_ROPES; i++)
        c->rope[i].ready = false;
    *how = LG_RECORD;
    return LG_OK;
}

static lg_status cpu_end(lg_backend *b, lg_err *err)
{
    lg_cpu *c = (lg_cpu *)b;

    LG_ASSERT(c->in_step);
    c->in_step = false;
    return c->cancelled ? LG_FAIL(err, LG_E_CANCELLED, "cancelled") : LG_OK;
}

static lg_status cpu_wait(lg_backend *b, lg_err *err)
{
    (void)b;
    (void)err;
    return LG_OK;
}

/* ---- ops ---- */

// Before an op: false when the step was cancelled.
static bool enter(lg_cpu *c)
{
    LG_ASSERT(c->in_step);
    if (!c->cancelled && c->step.cancel)
        c->cancelled = atomic_load_explicit(c->step.cancel, memory_order_relaxed);
    if (c->keeps_phases && !c->cancelled)
        c->phase_start_ns = lg_now_ns();
    return !c->cancelled;
}

static void leave(lg_cpu *c, lg_cpu_phase phase)
{
    if (c->keeps_phases)
        c->phase_ns[phase] += lg_now_ns() - c->phase_start_ns;
}

#define RUN_OP(phase, call)      \
    do {                         \
        lg_cpu *c = (lg_cpu *)b; \
        if (enter(c)) {          \
            call;                \
            leave(c, phase);     \
        }                        \
    } while (0)

static void op_embed(lg_backend *b, const lg_tensor *out, const lg_weight *table)
{
    RUN_OP(LG_CPU_EMBED, lg_cpu_embed(c, out, table));
}

static void op_rmsnorm(lg_backend *b, const lg_tensor *out, const lg_tensor *x, const lg_weight *w, float eps)
{
    RUN_OP(LG_CPU_NORM, lg_cpu_rmsnorm(c, out, x, w, eps));
}

static void op_add_rmsnorm(lg_backend *b, const lg_tensor *out, const lg_tensor *x, const lg_tensor *delta,
                           const lg_weight *w, float eps)
{
    RUN_OP(LG_CPU_NORM, lg_cpu_add_rmsnorm(c, out, x, delta, w, eps));
}

static void op_linear(lg_backend *b, const lg_tensor *x, const lg_part *parts, int n_parts)
{
    RUN_OP(LG_CPU_LINEAR, lg_cpu_linear(c, x, parts, n_parts));
}

static void op_qkv_post(lg_backend *b, const lg_qkv_args *a)
{
    RUN_OP(LG_CPU_QKV_POST, lg_cpu_qkv_post(c, a));
}

static void op_attention(lg_backend *b, const lg_attn_args *a)
{
    RUN_OP(LG_CPU_ATTENTION, lg_cpu_attention(c, a));
}

static void op_swiglu(lg_backend *b, const lg_tensor *out, const lg_tensor *gate, const lg_tensor *up)
{
    RUN_OP(LG_CPU_SWIGLU, lg_cpu_swiglu(c, out, gate, up));
}

static void op_route(lg_backend *b, const lg_route_args *a)
{
    RUN_OP(LG_CPU_ROUTE, lg_cpu_route(c, a));
}

static void op_moe(lg_backend *b, const lg_moe_args *a)
{
    RUN_OP(LG_CPU_MOE, lg_cpu_moe(c, a));
}

static void op_ffn(lg_backend *b, const lg_ffn_args *a)
{
    const lg_moe_args dense = {
        .out = a->out, .h = a->h, .shared_gate = a->gate, .shared_up = a->up, .shared_down = a->down};

    RUN_OP(LG_CPU_FFN, lg_cpu_moe(c, &dense));
}

static void op_gather_rows(lg_backend *b, const lg_tensor *out, const lg_tensor *x)
{
    RUN_OP(LG_CPU_COPY, lg_cpu_gather_rows(c, out, x));
}

static void op_mask_logits(lg_backend *b, const lg_tensor *logits)
{
    RUN_OP(LG_CPU_SAMPLE, lg_cpu_mask_logits(c, logits));
}

static void op_topk(lg_backend *b, const lg_tensor *logits, const lg_candidates *out)
{
    RUN_OP(LG_CPU_SAMPLE, lg_cpu_topk(c, logits, out));
}

static void op_copy(lg_backend *b, void *dst, const void *src, size_t row_bytes, size_t dst_pitch,
                    size_t src_pitch, lg_rows rows)
{
    RUN_OP(LG_CPU_COPY, lg_cpu_copy(c, dst, src, row_bytes, dst_pitch, src_pitch, rows));
}

static void op_kv_move(lg_backend *b, const lg_kv_class *k, const lg_kv_copy *moves, int n)
{
    LG_ASSERT(!((lg_cpu *)b)->in_step);
    lg_cpu_kv_move((lg_cpu *)b, k, moves, n);
}

/* ---- the device ---- */

static void cpu_discard(lg_backend *b, const lg_mem *m, size_t off, size_t bytes)
{
    (void)b;
    lg_cpu_mem_discard(m, off, bytes);
}

static double cpu_measure_bandwidth(lg_backend *b)
{
    return lg_cpu_measure_bandwidth((lg_cpu *)b);
}

static double cpu_sustained_bandwidth(lg_backend *b, double seconds)
{
    return lg_cpu_sustained_bandwidth((lg_cpu *)b, seconds);
}

static double cpu_measure_compute(lg_backend *b)
{
    return lg_cpu_measure_compute((lg_cpu *)b);
}

static double cpu_sustained_compute(lg_backend *b, double seconds)
{
    return lg_cpu_sustained_compute((lg_cpu *)b, seconds);
}

static void cpu_phases(lg_backend *b, bool reset, void (*each)(void *ctx, const char *op, double seconds),
                       void *ctx)
{
    lg_cpu *c = (lg_cpu *)b;

    for (int i = 0; each && i < LG_CPU_PHASES; i++)
        if (c->phase_ns[i] > 0)
            each(ctx, phase_names[i], (double)c->phase_ns[i] * 1e-9);
    if (reset)
        memset(c->phase_ns, 0, sizeof c->phase_ns);
}

static void cpu_destroy(lg_backend *b)
{
    lg_cpu *c = (lg_cpu *)b;

    lg_pool_destroy(c->pool);
    lg_cpu_mem_free(&c->scratch);
    lg_cpu_mem_free(&c->rope_mem);
    lg_cpu_mem_free(&c->probe);
    free(c);
}

static lg_ops make_ops(void)
{
    lg_ops ops = {
        .prepare = cpu_prepare,
        .alloc = cpu_alloc,
        .alloc_results = cpu_alloc,
        .release = cpu_release,
        .load = cpu_load,
        .unload = cpu_unload,
        .upload = cpu_upload,
        .download = cpu_download,
        .begin = cpu_begin,
        .end = cpu_end,
        .wait = cpu_wait,
        .embed = op_embed,
        .rmsnorm = op_rmsnorm,
        .add_rmsnorm = op_add_rmsnorm,
        .linear = op_linear,
        .qkv_post = op_qkv_post,
        .attention = op_attention,
        .swiglu = op_swiglu,
        .route = op_route,
        .moe = op_moe,
        .gather_rows = op_gather_rows,
        .mask_logits = op_mask_logits,
        .topk = op_topk,
        .copy = op_copy,
        .kv_move = op_kv_move,
        .ffn = op_ffn,
    };

    lg_backend_compose(&ops);
    return ops;
}

// As the system says, within reason; some say nothing.
static size_t l2_bytes(void)
{
    long n = 0;

#ifdef _SC_LEVEL2_CACHE_SIZE
    n = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    if (n < 512 << 10)
        return (size_t)512 << 10;
    return n > 2 << 20 ? (size_t)2 << 20 : (size_t)n;
}

// Products of one row were 4 to 5 % faster with it there and 4 to 6 % slower on Zen 5, attention 6 % faster
// and 7 to 11 % slower (docs/decisions/0245).
static bool fetches_to_l2(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

// The levels of lg_cpu_isa_list that this machine has, separated by spaces.
static void usable_levels(char *out, size_t n)
{
    char name[32];
    size_t used = 0;

    out[0] = 0;
    for (const char *p = lg_cpu_isa_list(); *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        unsigned flags;
        (void)snprintf(name, sizeof name, "%.*s", (int)len, p);
        if (lg_cpu_isa_find(name, &flags) && used + len + 2 < n)
            used += (size_t)snprintf(out + used, n - used, "%s%s", used ? " " : "", name);
        p += len;
    }
}

static void describe(lg_cpu *c)
{
    lg_device_info *d = &c->base.info;
    char isa[16];

    (void)snprintf(isa, sizeof isa, "%s", c->k.isa);
    for (char *p = isa; *p; p++)
        *p = (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
    (void)snprintf(d->name, sizeof d->name, "CPU, %s, %d thread%s", isa, c->n_threads,
                   c->n_threads == 1 ? "" : "s");
    d->kind = "cpu";
    lg_memory_info(&d->total_bytes, &d->free_bytes);
    d->maps_weights = true;
    d->reserved_counts = lg_memory_reserved_counts();
    d->max_rows = PREFILL_ROWS;
}

lg_status lg_cpu_backend_create(const lg_backend_params *p, lg_backend **out, lg_err *err)
{
    const char *isa = p->isa ? p->isa : "";
    unsigned flags = 0;
    char usable[64];

    if (!lg_cpu_isa_find(isa, &flags)) {
        usable_levels(usable, sizeof usable);
        return LG_FAIL(err, LG_E_INPUT, "isa \"%s\" is not available; this machine has %s", isa, usable);
    }
    if (p->threads < 0)
        return LG_FAIL(err, LG_E_INPUT, "threads = %d; use 0 (as many as cores) or more", p->threads);
    lg_cpu *c = calloc(1, sizeof *c);
    if (!c)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the CPU backend");
    c->n_threads = p->threads > 0 ? p->threads : lg_cpu_cores();
    c->l2_bytes = l2_bytes();
    c->fetch_to_l2 = fetches_to_l2();
    lg_status st = lg_pool_create(c->n_threads, &c->pool, err);
    if (st != LG_OK) {
        free(c);
        return st;
    }
    lg_cpu_kernels_init(&c->k, flags | (c->fetch_to_l2 ? LG_CPU_TO_L2 : 0));
    lg_cpu_vec_init_c(&c->plain);
    c->keeps_phases = p->phases;
    c->ops = make_ops();
    c->base = (lg_backend){.ops = &c->ops,
                           .destroy = cpu_destroy,
                           .load_bytes = cpu_load_bytes,
                           .scratch_bytes = cpu_scratch_bytes,
                           .discard = cpu_discard,
                           .measure_bandwidth = cpu_measure_bandwidth,
                           .measure_compute = cpu_measure_compute,
                           .sustained_bandwidth = cpu_sustained_bandwidth,
                           .sustained_compute = cpu_sustained_compute,
                           .phases = cpu_phases};
    describe(c);
    *out = &c->base;
    return LG_OK;
}
