/*
 * backend/cuda/memory: device memory, weights on their way there, scratch.
 *
 * A weight goes through pinned staging in pieces: threads of a pool copy from the file's pages, the bus takes
 * one piece while the next is copied, and a kernel brings block types into planes. Synthetic sources are made
 * on the device and never read.
 */
#include <limits.h>
#include <string.h>

#include "backend/cuda/internal.h"

enum { STAGE_BYTES = 32 << 20, COPY_THREADS = 8 };

/* ---- plain memory ---- */

static const double mb = 1e6;

lg_status lg_cuda_alloc(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;
    lg_mem m = {.bytes = bytes};
    size_t free_bytes = 0, total = 0;

    LG_TRY(lg_cuda_health(c, err));
    cudaError_t e = cudaMalloc(&m.p, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); // not sticky: the device is well
        (void)cudaMemGetInfo(&free_bytes, &total);
        return LG_FAIL(err, LG_E_NOMEM, "the device has %.1f MB free of %.1f MB; %.1f MB more were needed",
                       (double)free_bytes / mb, (double)total / mb, (double)bytes / mb);
    }
    LG_TRY(lg_cuda_check(c, e, "taking memory", err));
    lg_status st = lg_cuda_check(c, cudaMemsetAsync(m.p, 0, bytes, c->cu.stream), "clearing memory", err);
    if (st != LG_OK)
        (void)cudaFree(m.p);
    else
        *out = m;
    return st;
}

// Pinned memory, to which kernels write over the bus.
lg_status lg_cuda_alloc_results(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;
    lg_mem m = {.bytes = bytes, .results = true};

    LG_TRY(lg_cuda_health(c, err));
    LG_TRY(
        lg_cuda_check(c, cudaHostAlloc(&m.p, bytes ? bytes : 1, cudaHostAllocMapped), "pinned memory", err));
    memset(m.p, 0, bytes);
    *out = m;
    return LG_OK;
}

void lg_cuda_release(lg_backend *b, lg_mem *m)
{
    lg_cuda *c = (lg_cuda *)b;

    if (m->p) {
        (void)cudaSetDevice(c->device);
        (void)cudaStreamSynchronize(c->cu.stream);
        lg_cuda_drop_graphs(c); // they hold its address
        (void)(m->results ? cudaFreeHost(m->p) : cudaFree(m->p));
    }
    *m = (lg_mem){0};
}

lg_status lg_cuda_upload(lg_backend *b, const lg_mem *dst, size_t off, const void *src, size_t n, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;

    LG_ASSERT(off <= dst->bytes && n <= dst->bytes - off);
    LG_TRY(lg_cuda_health(c, err));
    if (n == 0)
        return LG_OK;
    LG_TRY(lg_cuda_check(c,
                         cudaMemcpyAsync((char *)dst->p + off, src, n, cudaMemcpyHostToDevice, c->cu.stream),
                         "sending data", err));
    return lg_cuda_check(c, cudaStreamSynchronize(c->cu.stream), "sending data", err);
}

lg_status lg_cuda_download(lg_backend *b, const void *src, void *dst, size_t n, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;

    LG_TRY(lg_cuda_health(c, err));
    if (n > 0)
        LG_TRY(lg_cuda_check(c, cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToHost, c->cu.stream),
                             "fetching data", err));
    LG_TRY(lg_cuda_check(c, cudaStreamSynchronize(c->cu.stream), "fetching data", err));
    c->step.under_way = 0;
    return LG_OK;
}

/* ---- staging ---- */

void lg_cuda_free_stages(lg_cuda *c)
{
    for (int i = 0; i < LG_CUDA_STAGES; i++) {
        if (c->stage[i])
            (void)cudaFreeHost(c->stage[i]);
        if (c->raw[i])
            (void)cudaFree(c->raw[i]);
        if (c->stage_free[i])
            (void)cudaEventDestroy(c->stage_free[i]);
        c->stage[i] = c->raw[i] = NULL;
        c->stage_free[i] = NULL;
    }
    lg_pool_destroy(c->pool);
    c->pool = NULL;
}

static lg_status make_stages(lg_cuda *c, lg_err *err)
{
    if (c->pool)
        return LG_OK;
    for (int i = 0; i < LG_CUDA_STAGES; i++) {
        LG_TRY(lg_cuda_check(c, cudaHostAlloc(&c->stage[i], STAGE_BYTES, cudaHostAllocDefault),
                             "pinned memory", err));
        LG_TRY(lg_cuda_check(c, cudaMalloc(&c->raw[i], STAGE_BYTES), "memory for loading", err));
        LG_TRY(lg_cuda_check(c, cudaEventCreateWithFlags(&c->stage_free[i], cudaEventDisableTiming),
                             "an event", err));
    }
    int threads = lg_cpu_cores();
    return lg_pool_create(threads < COPY_THREADS ? threads : COPY_THREADS, &c->pool, err);
}

typedef struct copy_job {
    char *dst;
    const char *src;
    size_t n;
} copy_job;

static void copy_part(void *ctx, int thread, int n_threads)
{
    const copy_job *j = ctx;
    size_t each = (j->n + (size_t)n_threads - 1) / (size_t)n_threads, piece = (each + 63) / 64 * 64;
    size_t from = piece * (size_t)thread;

    if (from < j->n)
        memcpy(j->dst + from, j->src + from, j->n - from < piece ? j->n - from : piece);
}

// Bytes [at, at + n) of a source, or its blocks when it is synthetic, to raw memory of the device; returns
// which.
static lg_status stage_piece(lg_cuda *c, const lg_source *src, size_t at, size_t n, int *which, lg_err *err)
{
    int i = c->stage_next;
    size_t block = (size_t)lg_qtype_get((uint32_t)src->type)->block_bytes;

    c->stage_next = (i + 1) % LG_CUDA_STAGES;
    *which = i;
    if (src->made) {
        lg_cu_synth(&c->cu, src->made->seed, src->made->index, src->type, src->made->mean, src->made->spread,
                    at / block, n / block, c->raw[i]);
        return lg_cuda_health(c, err);
    }
    LG_TRY(lg_cuda_check(c, cudaEventSynchronize(c->stage_free[i]), "loading", err));
    copy_job j = {.dst = c->stage[i], .src = (const char *)src->data + at, .n = n};
    lg_pool_run(c->pool, copy_part, &j);
    LG_TRY(lg_cuda_check(c, cudaMemcpyAsync(c->raw[i], c->stage[i], n, cudaMemcpyHostToDevice, c->cu.stream),
                         "loading", err));
    return lg_cuda_check(c, cudaEventRecord(c->stage_free[i], c->cu.stream), "loading", err);
}

/* ---- weights ---- */

// Numbers of a source: elements of a row, rows of a matrix, matrices; whether they make its bytes.
typedef struct shape {
    int n_in, n_out, n_expert;
    size_t row_bytes, n;
} shape;

static lg_status shape_of(const lg_source *src, lg_use use, shape *s, lg_err *err)
{
    const lg_qtype_info *info = lg_qtype_get((uint32_t)src->type);
    size_t rows = 1, bytes = 0;
    bool ok = info->name && info->runs;

    if (!ok)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "type %s (%u) cannot be a weight",
                       info->name ? info->name : "?", (unsigned)src->type);
    ok = lg_row_bytes(src->type, src->ne[0], &s->row_bytes);
    for (int d = 0; ok && d < 4; d++)
        ok = src->ne[d] > 0 && src->ne[d] <= INT_MAX;
    for (int d = 1; ok && d < 4; d++)
        ok = lg_mul_size(rows, (size_t)src->ne[d], &rows);
    ok = ok && lg_mul_size(s->row_bytes, rows, &bytes) && lg_mul_size((size_t)src->ne[0], rows, &s->n);
    if (!ok || bytes != src->bytes || s->row_bytes > STAGE_BYTES)
        return LG_FAIL(err, LG_E_INPUT, "shape [%llu, %llu, %llu, %llu] of type %s does not make %zu bytes",
                       (unsigned long long)src->ne[0], (unsigned long long)src->ne[1],
                       (unsigned long long)src->ne[2], (unsigned long long)src->ne[3], info->name,
                       src->bytes);
    if (use == LG_USE_VECTOR && s->n > INT_MAX)
        return LG_FAIL(err, LG_E_INPUT, "%zu elements are too many for a vector", s->n);
    s->n_in = use == LG_USE_VECTOR ? (int)s->n : (int)src->ne[0];
    s->n_out = use == LG_USE_VECTOR ? 1 : (int)src->ne[1];
    s->n_expert = use == LG_USE_EXPERTS ? (int)src->ne[2] : 1;
    if (use == LG_USE_ROUTER && s->n_out > LG_CU_EXPERTS)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "%d experts; the CUDA backend chooses among at most %d",
                       s->n_out, LG_CU_EXPERTS);
    return LG_OK;
}

static bool is_plain(lg_use use)
{
    return use == LG_USE_VECTOR || use == LG_USE_ROUTER;
}

// Bytes of the matrices on the device, and of the whole with the experts' multipliers behind them.
static size_t device_bytes(const lg_source *src, lg_use use, const shape *s, size_t *matrices)
{
    lg_cu_mat m = {0};

    if (is_plain(use)) {
        *matrices = s->n * sizeof(float);
        return *matrices;
    }
    (void)lg_cu_layout(src->type, s->n_in, s->n_out, &m);
    *matrices = (m.matrix_bytes * (size_t)s->n_expert + 255) / 256 * 256;
    return *matrices + (src->expert_scale ? (size_t)s->n_expert * sizeof(float) : 0);
}

size_t lg_cuda_load_bytes(lg_backend *b, const lg_source *src, lg_use use)
{
    shape s;
    size_t matrices;

    (void)b;
    return shape_of(src, use, &s, NULL) == LG_OK ? device_bytes(src, use, &s, &matrices) : 0;
}

lg_cu_mat lg_cuda_mat(const lg_weight *w)
{
    lg_cu_mat m = {0};
    bool ok = lg_cu_layout(w->type, w->n_in, w->n_out, &m);

    LG_ASSERT(ok);
    m.p = w->data;
    m.n_expert = w->n_expert;
    m.scale = w->scale;
    m.expert_scale = w->expert_scale;
    return m;
}

// Piece by piece through the stages.
static lg_status load_rows(lg_cuda *c, const lg_source *src, const lg_weight *w, const shape *s, lg_err *err)
{
    int64_t rows = (int64_t)(src->bytes / s->row_bytes), piece = (int64_t)(STAGE_BYTES / s->row_bytes);
    int64_t n_in_rows = (int64_t)s->row_bytes; // bytes of a row
    bool plain = is_plain(w->use);
    lg_cu_mat m = plain ? (lg_cu_mat){0} : lg_cuda_mat(w);

    for (int64_t row = 0; row < rows; row += piece) {
        int64_t n = rows - row < piece ? rows - row : piece;
        int which = 0;

        LG_TRY(stage_piece(c, src, (size_t)(row * n_in_rows), (size_t)(n * n_in_rows), &which, err));
        if (plain)
            lg_cu_to_f32(&c->cu, src->type, c->raw[which],
                         (float *)w->mem.p + (size_t)row * (size_t)src->ne[0], n * (int64_t)src->ne[0],
                         src->scale);
        else
            lg_cu_repack(&c->cu, &m, c->raw[which], row, n);
        LG_TRY(lg_cuda_health(c, err));
    }
    return LG_OK;
}

lg_status lg_cuda_load(lg_backend *b, const lg_source *src, lg_use use, lg_weight *out, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;
    lg_weight w = {.type = src->type, .use = use, .scale = src->scale};
    shape s = {0};
    size_t matrices = 0;
    lg_status st = lg_cuda_health(c, err);

    if (st == LG_OK)
        st = shape_of(src, use, &s, err);
    if (st == LG_OK)
        st = make_stages(c, err);
    if (st == LG_OK)
        st = lg_cuda_alloc(b, device_bytes(src, use, &s, &matrices), &w.mem, err);
    if (st == LG_OK) {
        w.n_in = s.n_in;
        w.n_out = s.n_out;
        w.n_expert = s.n_expert;
        w.data = w.mem.p;
        w.bytes = is_plain(use) ? matrices : src->bytes;
        st = load_rows(c, src, &w, &s, err);
    }
    if (st == LG_OK && is_plain(use)) {
        w.type = LG_F32;
        w.scale = 1.0f;
    } else if (st == LG_OK && src->expert_scale) {
        w.expert_scale = (const float *)(const void *)((const char *)w.mem.p + matrices);
        st = lg_cuda_upload(b, &w.mem, matrices, src->expert_scale, (size_t)s.n_expert * sizeof(float), err);
    }
    if (st != LG_OK) {
        if (w.mem.p)
            (void)cudaFree(w.mem.p);
        (void)lg_err_subject(err, "%.*s", (int)src->name.n, src->name.p);
        return st;
    }
    *out = w;
    return LG_OK;
}

void lg_cuda_unload(lg_backend *b, lg_weight *w)
{
    lg_cuda_release(b, &w->mem);
    *w = (lg_weight){0};
}

/* ---- scratch ---- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

static lg_limits widen(const lg_limits *a, const lg_limits *b)
{
    return (lg_limits){.max_rows = most(a->max_rows, b->max_rows),
                       .max_out = most(a->max_out, b->max_out),
                       .max_cand = most(a->max_cand, b->max_cand),
                       .hidden = most(a->hidden, b->hidden),
                       .vocab = most(a->vocab, b->vocab),
                       .max_head = most(a->max_head, b->max_head),
                       .max_q_cols = most(a->max_q_cols, b->max_q_cols),
                       .max_ffn = most(a->max_ffn, b->max_ffn),
                       .max_ffn_expert = most(a->max_ffn_expert, b->max_ffn_expert),
                       .max_expert = most(a->max_expert, b->max_expert),
                       .max_k = most(a->max_k, b->max_k),
                       .max_ctx = a->max_ctx > b->max_ctx ? a->max_ctx : b->max_ctx};
}

// Addresses in the scratch at `base`, or with base NULL only its size.
static size_t lay_scratch(lg_cuda *c, const lg_limits *lim, char *base)
{
    size_t at = 0, rows = larger((size_t)lim->max_rows, (size_t)lim->max_out), few = LG_CU_CODE_ROWS;
    size_t out = (size_t)lim->max_out, k = (size_t)lim->max_k, ffn = (size_t)lim->max_ffn;
    size_t narrow = lim->max_ffn_expert ? (size_t)lim->max_ffn_expert : ffn;
    size_t cols = larger(larger((size_t)lim->hidden, (size_t)lim->max_q_cols), ffn);
    size_t bucket = 1;
    void *p[19];
    int n = 0, dim = lim->max_head > 0 ? (lim->max_q_cols + lim->max_head - 1) / lim->max_head : 0;

    while (bucket < rows) // launches are sized by the bucket
        bucket *= 2;
    size_t mid = larger(few * ffn, few * (k + 1) * narrow);
    size_t mid_f32 = larger(larger(rows, few) * ffn, larger(bucket, few) * (k + 1) * narrow);
    const size_t bytes[] = {
        few * cols,                                           // acts.q
        few * (cols / 32 + 1) * sizeof(int4),                 // acts.meta
        rows > LG_CU_EXACT_ROWS ? rows * cols * sizeof(uint16_t) : 0, // acts.bf16
        mid,                                                  // mid.q
        (mid / 32 + 1) * sizeof(int4),                        // mid.meta
        mid_f32 * sizeof(float),                              // mid.f32, mid.bf16
        larger(rows, few) * (size_t)lim->max_expert * sizeof(float),
        larger(rows, few) * k * sizeof(int32_t),              // entry
        LG_CU_TILES * sizeof(lg_cu_group),
        256,                                                  // n_group
        k ? larger(bucket, few) * (k + 1) * (size_t)lim->hidden * sizeof(float) : 0,
        (lim->max_head ? lg_cu_attn_floats(lim->max_ctx, lim->max_head, dim) : 64) * sizeof(float),
        larger(rows, few) * LG_ROT_MAX * sizeof(float) * LG_CU_ROPES,
        few * (size_t)lim->max_head * sizeof(int),            // arrived
        (size_t)lim->hidden * sizeof(float),                  // x_other
        few * LG_CU_EXPERTS * sizeof(uint32_t),               // route_keys
        out * LG_CU_SEGMENTS * sizeof(uint32_t),              // segments.best
        out * LG_CU_SEGMENTS * 2 * sizeof(float),             // segments.sums
        (out + 1) * sizeof(int),                              // segments.done, segments.rows_done
    };
    for (; n < (int)(sizeof bytes / sizeof *bytes); n++) {
        p[n] = base ? base + at : NULL;
        at += (bytes[n] + 255) / 256 * 256;
    }
    if (!base)
        return at;
    c->cu.acts = (lg_cu_acts){.q = p[0], .meta = p[1], .bf16 = p[2]};
    c->cu.mid = (lg_cu_acts){.q = p[3], .meta = p[4], .bf16 = p[5]};
    c->cu.mid_f32 = p[5];
    c->cu.route_logits = p[6];
    c->cu.entry = p[7];
    c->cu.group = p[8];
    c->cu.n_group = p[9];
    c->cu.expert_out = p[10];
    c->cu.expert_floats = bytes[10] / sizeof(float);
    c->cu.attn_part = p[11];
    for (size_t i = 0; i < LG_CU_ROPES; i++)
        c->rope_table[i] = (float *)p[12] + i * larger(rows, few) * LG_ROT_MAX;
    c->cu.arrived = p[13];
    c->cu.x_other = p[14];
    c->cu.route_keys = p[15];
    c->cu.segments = (lg_cu_segments){.best = p[16], .sums = p[17], .done = p[18]};
    c->cu.segments.rows_done = c->cu.segments.done + out;
    c->acts_cols = cols;
    c->cu.max_head = lim->max_head;
    return at;
}

size_t lg_cuda_scratch_bytes(lg_backend *b, const lg_limits *lim)
{
    lg_limits both = widen(&((lg_cuda *)b)->lim, lim);

    return lay_scratch((lg_cuda *)b, &both, NULL) + lg_cuda_step_bytes(&both);
}

lg_status lg_cuda_prepare(lg_backend *b, const lg_limits *lim, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;
    lg_limits both = widen(&c->lim, lim);
    lg_mem scratch = {0};

    if (both.max_rows > LG_CU_ROWS)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "a chunk of %d tokens; CUDA takes at most %d", both.max_rows,
                       LG_CU_ROWS);
    lg_cuda_free_stages(c); // loading is over; a later load makes them again
    LG_TRY(lg_cuda_alloc(b, lay_scratch(c, &both, NULL), &scratch, err));
    lg_status st = lg_cuda_step_alloc(c, &both, err);
    if (st != LG_OK) {
        (void)cudaFree(scratch.p);
        return st;
    }
    lg_cuda_release(b, &c->scratch);
    lg_cuda_drop_graphs(c);
    c->scratch = scratch;
    c->lim = both;
    (void)lay_scratch(c, &both, scratch.p);
    return lg_cuda_wait(b, err);
}
