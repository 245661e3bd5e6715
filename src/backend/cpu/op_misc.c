/*
 * backend/cpu/op_misc: embedding, norms, row copies, logits masking and candidates, moves between KV blocks.
 *
 * All run on the engine's thread; those with enough rows spread over the pool. Rows are independent, so a
 * row's bits depend neither on the number of rows nor on the threads.
 *
 * Surprise: topk takes the log-sum-exp over chunks of a fixed size, each against its own maximum, so one pass
 * over the logits does and the result is the same for any number of threads.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_internal.h"

enum {
    CHUNK = 256,          // logits a chunk
    SMALL_CHUNK = 32,     // of a small vocabulary: more chunks than candidates are needed
    SMALL_VOCAB = 16384,
    FLOATS_A_JOB = 16384, // below this an op costs less than waking the pool
};

// Calls fn for each row: on the pool when it pays.
typedef struct row_job {
    void (*fn)(const struct row_job *j, int row);
    const lg_cpu *c;
    int rows;
    const lg_tensor *out, *x, *delta;
    const lg_weight *w;
    float eps;
} row_job;

static void run_rows(void *ctx, int t, int n_threads)
{
    const row_job *j = ctx;
    int64_t from, to;

    lg_cpu_share(j->rows, 1, t, n_threads, &from, &to);
    for (int64_t r = from; r < to; r++)
        j->fn(j, (int)r);
}

static void each_row(row_job *j, int cols)
{
    if (j->rows > 1 && (int64_t)j->rows * cols >= FLOATS_A_JOB)
        lg_pool_run(j->c->pool, run_rows, j);
    else
        run_rows(j, 0, 1);
}

static void embed_row(const row_job *j, int r)
{
    lg_cpu_unpack_row(j->c, j->w, j->c->step.ids[r], lg_cpu_row(j->out, r));
}

void lg_cpu_embed(lg_cpu *c, const lg_tensor *out, const lg_weight *table)
{
    LG_ASSERT(c->step.ids && out->cols == table->n_in && c->lim.vocab <= table->n_out);
    each_row(&(row_job){.fn = embed_row, .c = c, .rows = lg_cpu_rows(c, out->rows), .out = out, .w = table},
             out->cols);
}

static void norm_row(const row_job *j, int r)
{
    float *x = lg_cpu_row(j->x, r);

    if (j->delta)
        j->c->k.vec.add(x, lg_cpu_row(j->delta, r), j->x->cols);
    j->c->k.vec.rmsnorm(lg_cpu_row(j->out, r), x, j->w->data, j->x->cols, j->eps);
}

static void norm(lg_cpu *c, const lg_tensor *out, const lg_tensor *x, const lg_tensor *delta,
                 const lg_weight *w, float eps)
{
    LG_ASSERT(out->cols == x->cols && w->n_in == x->cols && w->type == LG_F32);
    each_row(&(row_job){.fn = norm_row,
                        .c = c,
                        .rows = lg_cpu_rows(c, out->rows),
                        .out = out,
                        .x = x,
                        .delta = delta,
                        .w = w,
                        .eps = eps},
             x->cols);
}

void lg_cpu_rmsnorm(lg_cpu *c, const lg_tensor *out, const lg_tensor *x, const lg_weight *w, float eps)
{
    norm(c, out, x, NULL, w, eps);
}

void lg_cpu_add_rmsnorm(lg_cpu *c, const lg_tensor *out, const lg_tensor *x, const lg_tensor *delta,
                        const lg_weight *w, float eps)
{
    norm(c, out, x, delta, w, eps);
}

void lg_cpu_gather_rows(lg_cpu *c, const lg_tensor *out, const lg_tensor *x)
{
    for (int i = 0; i < c->step.n_out; i++)
        memcpy(lg_cpu_row(out, i), lg_cpu_row(x, c->step.out_rows[i]), (size_t)out->cols * sizeof(float));
}

typedef struct copy_job {
    char *dst;
    const char *src;
    size_t row_bytes, dst_pitch, src_pitch;
    int rows;
} copy_job;

static void copy_rows(void *ctx, int t, int n_threads)
{
    const copy_job *j = ctx;
    int64_t from, to;

    lg_cpu_share(j->rows, 1, t, n_threads, &from, &to);
    for (int64_t r = from; r < to; r++)
        memcpy(j->dst + (size_t)r * j->dst_pitch, j->src + (size_t)r * j->src_pitch, j->row_bytes);
}

void lg_cpu_copy(lg_cpu *c, void *dst, const void *src, size_t row_bytes, size_t dst_pitch, size_t src_pitch,
                 lg_rows rows)
{
    copy_job j = {.dst = dst,
                  .src = src,
                  .row_bytes = row_bytes,
                  .dst_pitch = dst_pitch,
                  .src_pitch = src_pitch,
                  .rows = lg_cpu_rows(c, rows)};

    if ((size_t)j.rows * row_bytes >= FLOATS_A_JOB * sizeof(float))
        lg_pool_run(c->pool, copy_rows, &j);
    else
        copy_rows(&j, 0, 1);
}

/* ---- sampling ---- */

void lg_cpu_mask_logits(lg_cpu *c, const lg_tensor *logits)
{
    int words = (logits->cols + 31) / 32;

    LG_ASSERT(c->step.mask);
    for (int r = 0; r < lg_cpu_rows(c, logits->rows); r++) {
        const uint32_t *mask = c->step.mask + (size_t)r * (size_t)words;
        float *row = lg_cpu_row(logits, r);
        for (int w = 0; w < words; w++) {
            int n = logits->cols - w * 32 < 32 ? logits->cols - w * 32 : 32;
            for (int i = 0; mask[w] != UINT32_MAX && i < n; i++)
                if (!(mask[w] >> i & 1))
                    row[w * 32 + i] = -INFINITY;
        }
    }
}

typedef struct topk_job {
    const lg_cpu *c;
    const lg_tensor *logits;
    const lg_candidates *out;
    int rows, chunk, chunks, k; // logits of a chunk, chunks of a row, candidates
    float *max, *sum; // [rows][chunks]: largest logit, sum of exp(logit - largest)
    float *order;     // [rows][chunks]: room to sort the maxima
} topk_job;

static void scan_chunks(void *ctx, int t, int n_threads)
{
    const topk_job *j = ctx;
    int64_t from, to;

    lg_cpu_share((int64_t)j->rows * j->chunks, 1, t, n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int first = (int)(i % j->chunks) * j->chunk;
        int n = j->logits->cols - first < j->chunk ? j->logits->cols - first : j->chunk;
        const float *x = lg_cpu_row(j->logits, (int)(i / j->chunks)) + first;
        j->max[i] = j->c->k.vec.max(x, n);
        j->sum[i] = j->max[i] == -INFINITY ? 0.0f : j->c->k.vec.exp_sum_of(x, n, j->max[i]);
    }
}

// Does candidate a come after b? Smaller logit, or the same and a higher id. NaN counts as minus infinity.
static bool is_after(float a, int32_t a_id, float b, int32_t b_id)
{
    return a < b || (a == b && a_id > b_id);
}

// Sink element `at` of the heap of n whose root comes last.
static void sink(float *logit, int32_t *id, int n, int at)
{
    for (;;) {
        int last = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++)
            if (is_after(logit[child], id[child], logit[last], id[last]))
                last = child;
        if (last == at)
            return;
        float l = logit[at];
        int32_t i = id[at];
        logit[at] = logit[last];
        id[at] = id[last];
        logit[last] = l;
        id[last] = i;
        at = last;
    }
}

// The k-th largest of n values, which are reordered (quickselect; NaN has been replaced).
static float kth_largest(float *v, int n, int k)
{
    int from = 0, to = n - 1;

    while (from < to) {
        float pivot = v[from + (to - from) / 2];
        int i = from, j = to;
        while (i <= j) {
            while (v[i] > pivot)
                i++;
            while (v[j] < pivot)
                j--;
            if (i <= j) {
                float swap = v[i];
                v[i++] = v[j];
                v[j--] = swap;
            }
        }
        if (k - 1 <= j)
            to = j;
        else if (k - 1 >= i)
            from = i;
        else
            break;
    }
    return v[k - 1];
}

// A value that at least k logits of the row reach: the k-th largest chunk maximum. Most chunks lie below it
// whole.
static float row_threshold(const topk_job *j, const float *max, float *order)
{
    if (j->k > j->chunks)
        return -INFINITY;
    for (int i = 0; i < j->chunks; i++)
        order[i] = isnan(max[i]) ? -INFINITY : max[i];
    return kth_largest(order, j->chunks, j->k);
}

static void choose(const topk_job *j, int r)
{
    const float *x = lg_cpu_row(j->logits, r), *max = j->max + (size_t)r * (size_t)j->chunks;
    float *logit = j->out->logits + (size_t)r * (size_t)j->c->step.n_cand;
    int32_t *id = j->out->ids + (size_t)r * (size_t)j->c->step.n_cand;
    float least = row_threshold(j, max, j->order + (size_t)r * (size_t)j->chunks);
    int n = 0;

    for (int c = 0; c < j->chunks; c++) {
        if (max[c] < least)
            continue;
        int stop = (c + 1) * j->chunk < j->logits->cols ? (c + 1) * j->chunk : j->logits->cols;
        for (int i = c * j->chunk; i < stop; i++) {
            float v = isnan(x[i]) ? -INFINITY : x[i];
            if (v < least)
                continue;
            if (n < j->k) {
                logit[n] = v;
                id[n++] = i;
                for (int h = n == j->k ? n / 2 - 1 : -1; h >= 0; h--)
                    sink(logit, id, n, h);
            } else if (v > logit[0]) { // an equal one has a higher id
                logit[0] = v;
                id[0] = i;
                sink(logit, id, n, 0);
            }
            if (n == j->k)
                least = logit[0];
        }
    }
    LG_ASSERT(n == j->k);
    for (int last = n - 1; last > 0; last--) { // heap sort: the root goes last
        float l = logit[last];
        int32_t i = id[last];
        logit[last] = logit[0];
        id[last] = id[0];
        logit[0] = l;
        id[0] = i;
        sink(logit, id, last, 0);
    }
}

static float log_sum_exp(const float *max, const float *sum, int n)
{
    float top = -INFINITY;
    double total = 0;

    for (int i = 0; i < n; i++)
        top = max[i] > top || isnan(max[i]) ? max[i] : top;
    if (top == -INFINITY)
        return top;
    for (int i = 0; i < n; i++)
        total += (double)sum[i] * exp((double)max[i] - (double)top);
    return (float)((double)top + log(total));
}

static void choose_rows(void *ctx, int t, int n_threads)
{
    const topk_job *j = ctx;
    int64_t from, to;

    lg_cpu_share(j->rows, 1, t, n_threads, &from, &to);
    for (int64_t r = from; r < to; r++) {
        choose(j, (int)r);
        j->out->lse[r] = log_sum_exp(j->max + r * j->chunks, j->sum + r * j->chunks, j->chunks);
    }
}

static int chunk_of(int cols)
{
    return cols > SMALL_VOCAB ? CHUNK : SMALL_CHUNK;
}

static size_t topk_bytes(int rows, int cols)
{
    size_t chunk = (size_t)chunk_of(cols), chunks = ((size_t)cols + chunk - 1) / chunk;

    return 3 * ((size_t)rows * chunks * sizeof(float) + 64);
}

void lg_cpu_topk(lg_cpu *c, const lg_tensor *logits, const lg_candidates *out)
{
    topk_job j = {
        .c = c, .logits = logits, .out = out, .rows = lg_cpu_rows(c, logits->rows), .k = c->step.n_cand};
    char *at = lg_cpu_scratch(c, topk_bytes(j.rows, logits->cols));

    LG_ASSERT(j.k >= 1 && j.k <= out->max_cand && j.k <= logits->cols);
    j.chunk = chunk_of(logits->cols);
    j.chunks = (logits->cols + j.chunk - 1) / j.chunk;
    size_t bytes = (size_t)j.rows * (size_t)j.chunks * sizeof(float);
    j.max = lg_cpu_carve(&at, bytes);
    j.sum = lg_cpu_carve(&at, bytes);
    j.order = lg_cpu_carve(&at, bytes);
    if ((int64_t)j.rows * logits->cols >= FLOATS_A_JOB)
        lg_pool_run(c->pool, scan_chunks, &j);
    else
        scan_chunks(&j, 0, 1);
    if (j.rows > 1)
        lg_pool_run(c->pool, choose_rows, &j);
    else
        choose_rows(&j, 0, 1);
}

size_t lg_cpu_misc_scratch(const lg_cpu *c, const lg_limits *lim)
{
    size_t all = topk_bytes(lim->max_out, lim->vocab), small = topk_bytes(lim->max_out, SMALL_VOCAB);

    (void)c;
    return lim->vocab > SMALL_VOCAB && small > all ? small : all; // fewer logits can be more chunks
}

/* ---- KV blocks ---- */

void lg_cpu_kv_move(lg_cpu *c, const lg_kv_class *k, const lg_kv_copy *moves, int n)
{
    (void)c;
    for (int i = 0; i < n; i++) {
        const lg_kv_copy *m = &moves[i];
        LG_ASSERT(m->rows >= 0 && m->src_row >= 0 && m->src_row + m->rows <= LG_KV_BLOCK);
        LG_ASSERT(m->dst_row >= 0 && m->dst_row + m->rows <= LG_KV_BLOCK);
        LG_ASSERT(m->src_block >= 0 && m->src_block < k->n_blocks && m->dst_block >= 0 &&
                  m->dst_block < k->n_blocks);
        for (int tile = 0; tile < k->n_layer * 2 * k->n_kv_head; tile++) {
            int layer = tile / (2 * k->n_kv_head), v = tile / k->n_kv_head % 2, head = tile % k->n_kv_head;
            memmove((char *)k->mem.p + lg_kv_offset(k, m->dst_block, layer, v, head, m->dst_row),
                    (const char *)k->mem.p + lg_kv_offset(k, m->src_block, layer, v, head, m->src_row),
                    (size_t)m->rows * k->row_bytes);
        }
    }
}
