/*
 * backend/cuda: the CUDA backend: finding a card, failures, and the table of ops.
 *
 * Ops only check their operands and enqueue (kernels.h); memory.c has the resources, step.c records and
 * replays. A norm or an attention leaves its result quantised beside the f32 rows; `acts_of` says whose, so
 * that the product that follows need not do it again.
 *
 * Surprise: everything is host C; CUDA C++ is in the .cu files alone. The runtime is linked statically and
 * looks for the driver when it is first used, so this file runs, and says what is missing, on a machine
 * without one.
 */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/internal.h"

enum {
    LEAST_ARCH = 80,
    RESERVE_BYTES = 768 << 20, // context, graphs, staging: not ours to plan with
    PROBE_BYTES = 1 << 30,     // four of them are read to measure bandwidth
};

static const char *const phase_names[LG_CUDA_PHASES] = {
    [LG_CUDA_EMBED] = "embed",       [LG_CUDA_NORM] = "norm",           [LG_CUDA_LINEAR] = "linear",
    [LG_CUDA_QKV_POST] = "qkv_post", [LG_CUDA_ATTENTION] = "attention", [LG_CUDA_SWIGLU] = "swiglu",
    [LG_CUDA_ROUTE] = "route",       [LG_CUDA_MOE] = "moe",             [LG_CUDA_FFN] = "ffn",
    [LG_CUDA_SAMPLE] = "sample",     [LG_CUDA_COPY] = "copy",
};

/* ---- failures ---- */

lg_status lg_cuda_check(lg_cuda *c, cudaError_t e, const char *what, lg_err *err)
{
    if (e == cudaSuccess)
        return LG_OK;
    if (e == cudaErrorMemoryAllocation) { // the device is well
        (void)cudaGetLastError();
        return LG_FAIL(err, LG_E_NOMEM, "%s: out of memory (%s)", c->base.info.name, what);
    }
    if (!c->lost) {
        c->lost = true;
        (void)snprintf(c->lost_text, sizeof c->lost_text, "%s: %s (%s failed)", c->base.info.name,
                       cudaGetErrorString(e), what);
    }
    return LG_FAIL(err, LG_E_DEVICE, "%s", c->lost_text);
}

lg_status lg_cuda_health(lg_cuda *c, lg_err *err)
{
    if (c->lost)
        return LG_FAIL(err, LG_E_DEVICE, "%s", c->lost_text);
    (void)cudaSetDevice(c->device); // a thread starts with the first card; cheap when nothing changes
    return lg_cuda_check(c, c->cu.error, "starting a kernel", err);
}

/* ---- ops ---- */

// enter for an op that looks after what waits for it itself.
static bool enter_fused(lg_cuda *c)
{
    LG_ASSERT(c->in_step);
    if (c->keeps_phases && c->n_marks < LG_CUDA_MARKS)
        (void)cudaEventRecord(c->mark[2 * c->n_marks], c->cu.stream);
    return !c->lost && c->cu.error == cudaSuccess;
}

static bool enter(lg_cuda *c)
{
    bool well = enter_fused(c);

    if (well)
        lg_cuda_settle(c);
    return well;
}

static void leave(lg_cuda *c, lg_cuda_phase phase)
{
    if (c->keeps_phases && c->n_marks < LG_CUDA_MARKS) {
        (void)cudaEventRecord(c->mark[2 * c->n_marks + 1], c->cu.stream);
        c->mark_phase[c->n_marks++] = (uint8_t)phase;
    }
}

void lg_cuda_touch(lg_cuda *c, const float *p)
{
    if (c->acts_of == p)
        c->acts_of = NULL;
}

static bool fits_acts(lg_cuda *c, int cols)
{
    if (cols % 32 != 0)
        return false;
    LG_ASSERT((size_t)cols <= c->acts_cols);
    return true;
}

void lg_cuda_quantised(lg_cuda *c, const lg_tensor *x)
{
    c->acts_of = fits_acts(c, x->cols) ? x->p : NULL;
    c->acts_cols_of = x->cols;
}

void lg_cuda_want_acts(lg_cuda *c, const lg_tensor *x)
{
    if (!fits_acts(c, x->cols) || (c->acts_of == x->p && c->acts_cols_of == x->cols))
        return;
    lg_cu_quantise(&c->cu, x);
    lg_cuda_quantised(c, x);
}

static int op_rows(const lg_cuda *c, lg_rows rows)
{
    return rows == LG_ROWS_OUT ? c->cu.outs : c->cu.rows;
}

static void op_embed(lg_backend *b, const lg_tensor *out, const lg_weight *table)
{
    lg_cuda *c = (lg_cuda *)b;
    lg_cu_mat m = lg_cuda_mat(table);
    lg_cu_angles angles[LG_CU_ROPES];
    int n = 0;

    if (!enter(c))
        return;
    lg_cuda_touch(c, out->p);
    for (int i = 0; i < LG_CU_ROPES; i++)
        if (c->rope[i].n_rot > 0 && !c->rope_ready[i]) {
            angles[n++] = (lg_cu_angles){&c->rope[i], c->rope_table[i]};
            c->rope_ready[i] = true;
        }
    lg_cu_embed(&c->cu, out, &m, angles, n);
    c->later.embedded = true;
    leave(c, LG_CUDA_EMBED);
}

static void norm(lg_cuda *c, const lg_tensor *out, const lg_tensor *x, const lg_tensor *delta,
                 const lg_weight *w, float eps)
{
    LG_ASSERT(out->cols == x->cols && w->n_in == x->cols && w->type == LG_F32);
    if (op_rows(c, out->rows) == 1 && out->rows == LG_ROWS_STEP && out->p != x->p) {
        if (!enter_fused(c))
            return;
        lg_cuda_later_norm(c, out, x, delta, w->data, eps);
        return;
    }
    if (!enter_fused(c))
        return;
    lg_cu_sum sum = c->later.sum;
    bool takes = delta && out->p != delta->p && out->rows == x->rows && lg_cu_norm_takes(&sum, x, delta);
    if (takes)
        c->later.sum.out.p = NULL;
    lg_cuda_settle(c);
    lg_cuda_touch(c, x->p);
    lg_cu_norm(&c->cu, out, x, x->p, delta, w->data, eps, fits_acts(c, out->cols), takes ? &sum : NULL);
    lg_cuda_quantised(c, out);
    leave(c, LG_CUDA_NORM);
}

static void op_rmsnorm(lg_backend *b, const lg_tensor *out, const lg_tensor *x, const lg_weight *w, float eps)
{
    norm((lg_cuda *)b, out, x, NULL, w, eps);
}

static void op_add_rmsnorm(lg_backend *b, const lg_tensor *out, const lg_tensor *x, const lg_tensor *delta,
                           const lg_weight *w, float eps)
{
    norm((lg_cuda *)b, out, x, delta, w, eps);
}

static void op_linear(lg_backend *b, const lg_tensor *x, const lg_part *parts, int n_parts)
{
    lg_cuda *c = (lg_cuda *)b;
    lg_cu_part part[LG_PARTS_MAX];
    lg_cu_sum sum = {0};

    LG_ASSERT(n_parts >= 1 && n_parts <= LG_PARTS_MAX);
    for (int i = 0; i < n_parts; i++) {
        LG_ASSERT(parts[i].w->n_in == x->cols);
        part[i] =
            (lg_cu_part){.w = lg_cuda_mat(parts[i].w), .y = parts[i].y.p, .y_stride = parts[i].y.stride};
    }
    if (!enter_fused(c))
        return;
    if (!lg_cuda_fused_linear(c, x, part, n_parts)) {
        lg_cuda_settle(c);
        lg_cuda_want_acts(c, x);
        if (n_parts == 1)
            lg_cuda_want_sum(c, x, part);
        if (n_parts == 1 && x->rows == LG_ROWS_STEP)
            part->later = &sum;
        if (op_rows(c, x->rows) <= LG_CU_EXACT_ROWS)
            lg_cu_gemv(&c->cu, x, &c->cu.acts, part, n_parts);
        else
            lg_cu_gemm(&c->cu, x, part, n_parts);
    }
    for (int i = 0; i < n_parts; i++)
        lg_cuda_touch(c, parts[i].y.p);
    if (sum.out.p)
        c->later.sum = sum;
    leave(c, LG_CUDA_LINEAR);
}

static bool same_rope(const lg_rope *a, const lg_rope *b)
{
    return a->n_rot == b->n_rot && a->magnitude == b->magnitude &&
           memcmp(a->freq, b->freq, (size_t)(a->n_rot / 2) * sizeof a->freq[0]) == 0;
}

// Angles are made with the embedding, if they are known then. A step that meets others has a launch for them,
// and is recorded under a key that no other step asks for: the next one knows them.
static void want_angles(lg_cuda *c, const lg_rope *rope)
{
    if (c->rope_ready[rope->id] && same_rope(&c->rope[rope->id], rope))
        return;
    c->rope[rope->id] = *rope;
    c->rope_ready[rope->id] = true;
    if (c->later.embedded && !(c->key.flags & LG_CUDA_UNLIKE)) {
        c->key.flags |= LG_CUDA_UNLIKE;
        c->key.ctx_bucket = ++c->unlike;
    }
    lg_cu_rope(&c->cu, &(lg_cu_angles){rope, c->rope_table[rope->id]});
}

static void op_qkv_post(lg_backend *b, const lg_qkv_args *a)
{
    lg_cuda *c = (lg_cuda *)b;
    lg_cu_qkv q = {.q = a->q, .k = a->k, .v = a->v, .eps = a->eps, .kv = a->kv, .kv_layer = a->kv_layer,
                   .n_head = a->n_head};

    if (!enter(c))
        return;
    q.q_norm = a->q_norm ? a->q_norm->data : NULL;
    q.k_norm = a->k_norm ? a->k_norm->data : NULL;
    if (a->rope) {
        LG_ASSERT(a->rope->id >= 0 && a->rope->id < LG_CU_ROPES && a->rope->n_rot <= a->kv->head_dim);
        q.table = c->rope_table[a->rope->id];
        q.n_rot = a->rope->n_rot;
        want_angles(c, a->rope);
    }
    lg_cuda_touch(c, a->q.p);
    lg_cuda_touch(c, a->k.p);
    if (lg_cu_attn_takes_qkv(&c->cu, &q) || lg_cu_attn_follows(&c->cu, &q))
        lg_cuda_later_qkv(c, &q);
    else
        lg_cu_qkv_post(&c->cu, &q);
    leave(c, LG_CUDA_QKV_POST);
}

static void op_attention(lg_backend *b, const lg_attn_args *a)
{
    lg_cuda *c = (lg_cuda *)b;
    int cols = a->n_head * a->kv->head_dim;
    bool few = op_rows(c, a->q.rows) <= LG_CU_EXACT_ROWS;
    bool quantise = few ? a->kv->head_dim % 32 == 0 : cols % 32 == 0;

    LG_ASSERT(a->n_head <= c->lim.max_head && a->n_head % a->kv->n_kv_head == 0 && a->kv->head_dim <= 256);
    if (!enter_fused(c))
        return;
    const lg_cu_qkv *qkv = lg_cuda_fused_qkv(c, a);
    lg_cuda_settle(c);
    quantise = quantise && fits_acts(c, cols);
    lg_cu_attention(&c->cu,
                    &(lg_cu_attn){.out = a->out,
                                  .q = a->q,
                                  .gate = a->gate,
                                  .qkv = qkv,
                                  .kv = a->kv,
                                  .kv_layer = a->kv_layer,
                                  .n_head = a->n_head},
                    quantise);
    lg_cuda_touch(c, a->out.p);
    if (quantise) {
        c->acts_of = a->out.p;
        c->acts_cols_of = cols;
    }
    leave(c, LG_CUDA_ATTENTION);
}

static void op_swiglu(lg_backend *b, const lg_tensor *out, const lg_tensor *gate, const lg_tensor *up)
{
    lg_cuda *c = (lg_cuda *)b;

    if (!enter(c))
        return;
    lg_cuda_touch(c, out->p);
    lg_cu_swiglu(&c->cu, out, gate, up);
    leave(c, LG_CUDA_SWIGLU);
}

static void op_route(lg_backend *b, const lg_route_args *a)
{
    lg_cuda *c = (lg_cuda *)b;

    LG_ASSERT(a->router->type == LG_F32 && a->router->n_in == a->h.cols && a->out.k <= a->router->n_out);
    if (!enter_fused(c))
        return;
    lg_cu_route r = {.h = a->h,
                     .router = a->router->data,
                     .bias = a->bias ? a->bias->data : NULL,
                     .n_expert = a->router->n_out,
                     .k = a->out.k,
                     .softmax = a->gating == LG_GATE_SOFTMAX,
                     .norm = a->norm,
                     .scale = a->scale,
                     .ids = a->out.ids,
                     .w = a->out.w};
    if (op_rows(c, a->h.rows) == 1 || (a->h.rows == LG_ROWS_STEP && lg_cu_route_halves(&c->cu, &r))) {
        lg_cuda_later_route(c, &r);
        return;
    }
    lg_cuda_settle(c);
    lg_cu_route_op(&c->cu, &r);
    leave(c, LG_CUDA_ROUTE);
}

static lg_cu_ffn ffn_of(const lg_weight *gate, const lg_weight *up, const lg_weight *down)
{
    LG_ASSERT(gate->n_out == up->n_out && down->n_in == gate->n_out && gate->n_in == up->n_in);
    return (lg_cu_ffn){.gate = lg_cuda_mat(gate), .up = lg_cuda_mat(up), .down = lg_cuda_mat(down)};
}

static void moe(lg_cuda *c, const lg_moe_args *a, lg_cuda_phase phase)
{
    lg_cu_moe m = {.out = a->out, .h = a->h, .ids = a->routes.ids, .w = a->routes.w, .k = a->routes.k};
    lg_cu_ffn routed, shared;
    lg_cu_sum sum = {0};

    if (a->gate) {
        routed = ffn_of(a->gate, a->up, a->down);
        m.routed = &routed;
    }
    if (a->shared_gate) {
        shared = ffn_of(a->shared_gate, a->shared_up, a->shared_down);
        m.shared = &shared;
    }
    if (!enter_fused(c) || (!a->gate && !a->shared_gate))
        return;
    lg_cuda_touch(c, a->out.p);
    m.later = c->cu.rows <= LG_CU_CODE_ROWS ? &sum : NULL;
    if (!lg_cuda_fused_moe(c, &m)) {
        lg_cuda_settle(c);
        lg_cuda_want_acts(c, &a->h);
        lg_cu_moe_op(&c->cu, &m);
    }
    if (sum.out.p)
        c->later.sum = sum;
    leave(c, phase);
}

static void op_moe(lg_backend *b, const lg_moe_args *a)
{
    moe((lg_cuda *)b, a, LG_CUDA_MOE);
}

static void op_ffn(lg_backend *b, const lg_ffn_args *a)
{
    const lg_moe_args dense = {
        .out = a->out, .h = a->h, .shared_gate = a->gate, .shared_up = a->up, .shared_down = a->down};

    moe((lg_cuda *)b, &dense, LG_CUDA_FFN);
}

static void op_gather_rows(lg_backend *b, const lg_tensor *out, const lg_tensor *x)
{
    lg_cuda *c = (lg_cuda *)b;

    if (!enter_fused(c) || lg_cuda_later_gather(c, out, x))
        return;
    lg_cuda_settle(c);
    lg_cuda_touch(c, out->p);
    lg_cu_gather(&c->cu, out, x);
    leave(c, LG_CUDA_COPY);
}

static void op_mask_logits(lg_backend *b, const lg_tensor *logits)
{
    lg_cuda *c = (lg_cuda *)b;

    if (!enter(c))
        return;
    lg_cu_mask(&c->cu, logits);
    leave(c, LG_CUDA_SAMPLE);
}

static void op_topk(lg_backend *b, const lg_tensor *logits, const lg_candidates *out)
{
    lg_cuda *c = (lg_cuda *)b;

    if (!enter(c))
        return;
    lg_cu_topk(&c->cu, logits, out->ids, out->logits, out->lse, out->max_cand);
    leave(c, LG_CUDA_SAMPLE);
}

static void op_copy(lg_backend *b, void *dst, const void *src, size_t row_bytes, size_t dst_pitch,
                    size_t src_pitch, lg_rows rows)
{
    lg_cuda *c = (lg_cuda *)b;

    if (!enter(c))
        return;
    lg_cuda_touch(c, dst);
    lg_cu_copy(&c->cu, dst, src, row_bytes, dst_pitch, src_pitch, rows);
    leave(c, LG_CUDA_COPY);
}

static void op_kv_move(lg_backend *b, const lg_kv_class *k, const lg_kv_copy *moves, int n)
{
    lg_cuda *c = (lg_cuda *)b;

    LG_ASSERT(!c->in_step);
    if (lg_cuda_health(c, NULL) != LG_OK) // comes out of the next begin
        return;
    for (int i = 0; i < n; i++) {
        const lg_kv_copy *m = &moves[i];
        LG_ASSERT(m->rows >= 0 && m->src_row >= 0 && m->src_row + m->rows <= LG_KV_BLOCK);
        LG_ASSERT(m->dst_row >= 0 && m->dst_row + m->rows <= LG_KV_BLOCK);
        LG_ASSERT(m->src_block >= 0 && m->src_block < k->n_blocks && m->dst_block >= 0 &&
                  m->dst_block < k->n_blocks);
        lg_cu_kv_move(&c->cu, k, m->src_block, m->src_row, m->dst_block, m->dst_row, m->rows);
    }
}

/* ---- the device ---- */

static double cuda_measure_bandwidth(lg_backend *b)
{
    lg_cuda *c = (lg_cuda *)b;
    size_t bytes = 4 * (size_t)PROBE_BYTES;
    void *p = NULL;

    while (cudaMalloc(&p, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        bytes /= 2;
        if (bytes < PROBE_BYTES / 4)
            return 0.0;
    }
    double rate = lg_cu_measure_read(&c->cu, p, bytes);
    (void)cudaFree(p);
    return rate;
}

static double cuda_measure_compute(lg_backend *b)
{
    return lg_cu_measure_mma(&((lg_cuda *)b)->cu);
}

static void cuda_phases(lg_backend *b, bool reset, void (*each)(void *ctx, const char *op, double seconds),
                        void *ctx)
{
    lg_cuda *c = (lg_cuda *)b;

    for (int i = 0; each && i < LG_CUDA_PHASES; i++)
        if (c->phase_s[i] > 0)
            each(ctx, phase_names[i], c->phase_s[i]);
    if (reset)
        memset(c->phase_s, 0, sizeof c->phase_s);
}

static void cuda_destroy(lg_backend *b)
{
    lg_cuda *c = (lg_cuda *)b;

    if (c->cu.stream) {
        (void)cudaSetDevice(c->device);
        (void)cudaStreamSynchronize(c->cu.stream);
    }
    lg_cuda_images_close(c);
    lg_cuda_drop_graphs(c);
    lg_cuda_free_stages(c);
    lg_cuda_step_free(c);
    if (c->scratch.p)
        (void)cudaFree(c->scratch.p);
    for (int i = 0; c->mark && i < 2 * LG_CUDA_MARKS; i++)
        if (c->mark[i])
            (void)cudaEventDestroy(c->mark[i]);
    free(c->mark);
    if (c->cu.stream)
        (void)cudaStreamDestroy(c->cu.stream);
    free(c);
}

static lg_ops make_ops(void)
{
    lg_ops ops = {
        .prepare = lg_cuda_prepare,
        .alloc = lg_cuda_alloc,
        .alloc_results = lg_cuda_alloc_results,
        .release = lg_cuda_release,
        .load = lg_cuda_load,
        .unload = lg_cuda_unload,
        .upload = lg_cuda_upload,
        .download = lg_cuda_download,
        .begin = lg_cuda_begin,
        .end = lg_cuda_end,
        .wait = lg_cuda_wait,
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

// The card that p->device names; what is missing in one line.
static lg_status find_device(const char *device, int *index, lg_err *err)
{
    int driver = 0, runtime = 0, count = 0;

    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return LG_FAIL(err, LG_E_DEVICE, "no NVIDIA driver is installed");
    (void)cudaRuntimeGetVersion(&runtime);
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaErrorInsufficientDriver)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "the NVIDIA driver supports CUDA %d.%d; this build needs %d.%d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (e == cudaErrorNoDevice || (e == cudaSuccess && count == 0))
        return LG_FAIL(err, LG_E_DEVICE, "no NVIDIA card is visible");
    if (e != cudaSuccess)
        return LG_FAIL(err, LG_E_DEVICE, "CUDA does not start: %s", cudaGetErrorString(e));
    *index = 0;
    if (strncmp(device, "cuda:", 5) == 0) {
        char *end;
        long n = strtol(device + 5, &end, 10);
        if (end == device + 5 || *end || n < 0)
            return LG_FAIL(err, LG_E_INPUT, "device \"%s\": a card's number must follow cuda:", device);
        if (n >= count)
            return LG_FAIL(err, LG_E_DEVICE, "there is no card %ld; %d are visible, counted from 0", n,
                           count);
        *index = (int)n;
    }
    return LG_OK;
}

static lg_status describe(lg_cuda *c, lg_err *err)
{
    struct cudaDeviceProp prop;
    size_t free_bytes = 0, total = 0;
    int code = 0;

    LG_TRY(lg_cuda_check(c, cudaGetDeviceProperties(&prop, c->device), "asking the card", err));
    (void)snprintf(c->base.info.name, sizeof c->base.info.name, "%.95s", prop.name);
    c->cu.arch = prop.major * 10 + prop.minor;
    if (c->cu.arch < LEAST_ARCH)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "%s has compute capability %d.%d; 8.0 is needed", prop.name,
                       prop.major, prop.minor);
    cudaError_t e = lg_cu_has_code(&code);
    if (e != cudaSuccess)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "this build has no code for %s (compute capability %d.%d): %s",
                       prop.name, prop.major, prop.minor, cudaGetErrorString(e));
    if (code < c->cu.arch) // compiled by the driver: without what the card can do besides
        c->cu.arch = code;
    c->cu.sms = prop.multiProcessorCount;
    c->cu.pdl = c->cu.arch >= 90;
    c->cu.smem = (int)prop.sharedMemPerBlockOptin;
    LG_TRY(lg_cuda_check(c, cudaMemGetInfo(&free_bytes, &total), "asking for free memory", err));
    c->base.info.total_bytes = total;
    c->base.info.free_bytes = free_bytes > RESERVE_BYTES ? free_bytes - RESERVE_BYTES : 0;
    c->base.info.max_rows = total > (size_t)60 << 30 ? 4096 : total > (size_t)20 << 30 ? 2048 : 1024;
    return lg_cuda_images_open(c, prop.integrated != 0, err);
}

static lg_status make_marks(lg_cuda *c, lg_err *err)
{
    c->keeps_phases = true;
    c->mark = calloc(2 * LG_CUDA_MARKS, sizeof *c->mark);
    if (!c->mark)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for %d events", 2 * LG_CUDA_MARKS);
    for (int i = 0; i < 2 * LG_CUDA_MARKS; i++)
        LG_TRY(lg_cuda_check(c, cudaEventCreate(&c->mark[i]), "an event", err));
    return LG_OK;
}

lg_status lg_cuda_backend_create(const lg_backend_params *p, lg_backend **out, lg_err *err)
{
    static lg_ops ops;
    lg_cuda *c = calloc(1, sizeof *c);
    lg_status st;

    if (!c)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the CUDA backend");
    ops = make_ops();
    c->base.ops = &ops;
    c->base.info.kind = "cuda";
    c->base.destroy = cuda_destroy;
    c->base.load_bytes = lg_cuda_load_bytes;
    c->base.scratch_bytes = lg_cuda_scratch_bytes;
    c->base.measure_bandwidth = cuda_measure_bandwidth;
    c->base.measure_compute = cuda_measure_compute;
    c->base.phases = p->phases ? cuda_phases : NULL;
    (void)snprintf(c->base.info.name, sizeof c->base.info.name, "CUDA");
    st = find_device(p->device ? p->device : "cuda", &c->device, err);
    if (st == LG_OK)
        st = lg_cuda_check(c, cudaSetDevice(c->device), "taking the card", err);
    if (st == LG_OK)
        st = lg_cuda_check(c, cudaStreamCreateWithFlags(&c->cu.stream, cudaStreamNonBlocking), "a stream",
                           err);
    if (st == LG_OK)
        st = describe(c, err);
    if (st == LG_OK && p->phases)
        st = make_marks(c, err);
    if (st != LG_OK) {
        cuda_destroy(&c->base);
        return st;
    }
    *out = &c->base;
    return LG_OK;
}
