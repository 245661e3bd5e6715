/*
 * backend/cpu/op_attn: QK-norm, rotary embedding and the KV store; attention over block tables.
 *
 * One algorithm serves decode, verification and prefill. Keys are cut into spans of SPAN positions at
 * multiples of SPAN. A query's scores over the part of a span that it sees, softmax with that part's own
 * maximum, and the weighted values make a node (max, sum, acc); nodes are joined along the binary tree over
 * absolute span numbers. Neither the number of rows in the step, nor how rows are tiled, nor where the
 * context is cut for threads, nor the number of threads enters any operation, so none shows in the bits.
 *
 * Work items are (tile of rows, some KV heads, aligned run of spans); all query heads of a KV head share one
 * read of K and V, and KV heads that lie beside each other are read in one stream. When a step has too few
 * items for the threads, the context is cut into several runs, whose nodes go through scratch and are joined
 * by a second pass.
 *
 * Surprise: keys that a query may not see are never read for it, not even to be masked. What lies beyond the
 * last row of a block is whatever an earlier sequence left there.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_internal.h"

enum {
    SPAN = 256,           // keys a node: scores of a tile stay in L2, joins cost one operation in 256
    SPAN_BLOCKS = SPAN / LG_KV_BLOCK,
    SCORES_STRIDE = SPAN + 16, // queries do not fall on the same cache sets
    TILE_ROWS = 32,       // rows of a work item at most
    TILE_QUERIES = 192,   // and queries, except that one row's heads of a KV head always go together
    F32_QUERIES = 13,     // from here on unpacking a block of f16 once beats converting it in each pass
    UNITS_MAX = 32,       // runs that a row's context is cut into, at most
    CUT_ROWS = 16,        // more rows are cut into fewer
    FEWEST_ITEMS = 4,     // of a thread, where shares are not equal: a cut costs a pass that joins, 6 us
    MOST_ITEMS = 32,      // enough to even out what runs cost
    RUN_SPANS = 4,        // shorter runs only where threads would have too few
    LEVELS = 40,          // of the tree: 2^40 spans
    HEADS_A_JOB = 32,     // qkv_post: below this it costs less than waking the pool
};

/* ---- qkv_post ---- */

typedef struct qkv_job {
    const lg_cpu *c;
    const lg_qkv_args *a;
    const lg_cpu_rope *rope;
    int rows, half;
} qkv_job;

// Row r of the rotary table: angles in double, since position * frequency passes 2^17 where a float has 7
// bits left.
static void rope_row(const lg_cpu *c, const lg_rope *rope, lg_cpu_rope *table, int r)
{
    int half = rope->n_rot / 2;
    double pos = (double)(c->step.pos + r);

    for (int j = 0; j < half; j++) {
        double angle = pos * rope->freq[j];
        table->cos[(size_t)r * (size_t)half + (size_t)j] = (float)(cos(angle) * (double)rope->magnitude);
        table->sin[(size_t)r * (size_t)half + (size_t)j] = (float)(sin(angle) * (double)rope->magnitude);
    }
}

typedef struct rope_job {
    const lg_cpu *c;
    const lg_rope *rope;
    lg_cpu_rope *table;
} rope_job;

static void rope_rows(void *ctx, int t, int n_threads)
{
    const rope_job *j = ctx;
    int64_t from, to;

    lg_cpu_share(j->c->step.n_rows, 1, t, n_threads, &from, &to);
    for (int64_t r = from; r < to; r++)
        rope_row(j->c, j->rope, j->table, (int)r);
}

static const lg_cpu_rope *rope_table(lg_cpu *c, const lg_rope *rope)
{
    LG_ASSERT(rope->id >= 0 && rope->id < LG_CPU_ROPES && rope->n_rot <= LG_ROT_MAX);
    lg_cpu_rope *table = &c->rope[rope->id];

    if (!table->ready) {
        rope_job j = {.c = c, .rope = rope, .table = table};
        if (c->step.n_rows > 1)
            lg_pool_run(c->pool, rope_rows, &j);
        else
            rope_rows(&j, 0, 1);
        table->ready = true;
    }
    return table;
}

// Address of head `head` of K (v = 0) or V (v = 1) at a position that the step's table covers.
static char *kv_row(const lg_cpu *c, const lg_kv_class *kv, int layer, int v, int head, int64_t pos)
{
    int32_t block = c->step.table[kv->id][pos / LG_KV_BLOCK];

    LG_ASSERT(block >= 0 && block < kv->n_blocks);
    return (char *)kv->mem.p + lg_kv_offset(kv, block, layer, v, head, (int)(pos % LG_KV_BLOCK));
}

static void store_row(const lg_cpu *c, const lg_kv_class *kv, char *dst, const float *src)
{
    if (kv->type == LG_F32)
        memcpy(dst, src, (size_t)kv->head_dim * sizeof(float));
    else if (kv->type == LG_F16)
        c->k.vec.f16_from_f32((uint16_t *)(void *)dst, src, kv->head_dim);
    else
        LG_ASSERT(lg_quant_row(LG_Q8_0, src, dst, kv->head_dim));
}

static void norm_and_turn(const qkv_job *j, float *head, const lg_weight *norm, int r)
{
    const lg_vec_kernels *k = &j->c->k.vec;
    int dim = j->a->kv->head_dim;

    if (norm)
        k->rmsnorm(head, head, norm->data, dim, j->a->eps);
    if (j->rope) {
        size_t at = (size_t)r * (size_t)j->half;
        k->rope(head, j->rope->cos + at, j->rope->sin + at, j->half);
    }
}

// Items of a row: its query heads, then its KV heads.
static void qkv_items(void *ctx, int t, int n_threads)
{
    const qkv_job *j = ctx;
    const lg_qkv_args *a = j->a;
    const lg_kv_class *kv = a->kv;
    int n_q = a->q.p ? a->n_head : 0, per_row = n_q + kv->n_kv_head;
    int64_t from, to;

    lg_cpu_share((int64_t)j->rows * per_row, 1, t, n_threads, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int r = (int)(i / per_row), h = (int)(i % per_row);
        if (h < n_q) {
            norm_and_turn(j, lg_cpu_row(&a->q, r) + (size_t)h * (size_t)kv->head_dim, a->q_norm, r);
            continue;
        }
        h -= n_q;
        float *key = lg_cpu_row(&a->k, r) + (size_t)h * (size_t)kv->head_dim;
        int64_t pos = j->c->step.pos + r;
        norm_and_turn(j, key, a->k_norm, r);
        store_row(j->c, kv, kv_row(j->c, kv, a->kv_layer, 0, h, pos), key);
        store_row(j->c, kv, kv_row(j->c, kv, a->kv_layer, 1, h, pos),
                  lg_cpu_row(&a->v, r) + (size_t)h * (size_t)kv->head_dim);
    }
}

void lg_cpu_qkv_post(lg_cpu *c, const lg_qkv_args *a)
{
    qkv_job j = {.c = c, .a = a, .rows = lg_cpu_rows(c, a->k.rows)};

    if (a->rope) {
        j.rope = rope_table(c, a->rope);
        j.half = a->rope->n_rot / 2;
        LG_ASSERT(a->rope->n_rot <= a->kv->head_dim);
    }
    if ((int64_t)j.rows * ((a->q.p ? a->n_head : 0) + a->kv->n_kv_head) >= HEADS_A_JOB)
        lg_pool_run(c->pool, qkv_items, &j);
    else
        qkv_items(&j, 0, 1);
}

/* ---- attention: nodes ---- */

// Softmax-weighted values of n queries over some keys: largest score, sum of exp(score - max), sum of
// exp(score - max) * value. max = -inf: no key was seen; sum and acc are then undefined.
typedef struct node {
    float *max, *sum, *acc;
} node;

// left = join(left, right), query by query. An empty side changes nothing.
static void join(const lg_vec_kernels *k, const node *left, const node *right, int n, int dim)
{
    for (int i = 0; i < n; i++) {
        float *l = left->acc + (size_t)i * (size_t)dim;
        const float *r = right->acc + (size_t)i * (size_t)dim;

        if (right->max[i] == -INFINITY)
            continue;
        if (left->max[i] == -INFINITY) {
            left->max[i] = right->max[i];
            left->sum[i] = right->sum[i];
            memcpy(l, r, (size_t)dim * sizeof *l);
            continue;
        }
        // one of the two factors is 1
        float rise = right->max[i] - left->max[i], small = expf(-fabsf(rise));
        float a = rise > 0.0f ? small : 1.0f, b = rise > 0.0f ? 1.0f : small;
        left->sum[i] = a * left->sum[i] + b * right->sum[i];
        left->max[i] = rise > 0.0f ? right->max[i] : left->max[i];
        k->axpby(l, a, r, b, dim);
    }
}

// The tree under construction: at each level at most one node, the left child that waits for its sibling.
// Buffers are swapped, never copied.
typedef struct tree {
    node at[LEVELS], current;
    bool full[LEVELS];
    int queries, dim;
} tree;

static void swap_current(tree *t, int level)
{
    node n = t->at[level];

    t->at[level] = t->current;
    t->current = n;
}

// Adds t->current as node `number` of the lowest level, counted from the start of the context whether or not
// earlier ones exist. t->current is then a buffer that is free.
static void tree_add(tree *t, const lg_vec_kernels *k, int64_t number)
{
    int level = 0;

    for (; number >> level & 1; level++)
        if (t->full[level]) {
            join(k, &t->at[level], &t->current, t->queries, t->dim);
            swap_current(t, level);
            t->full[level] = false;
        }
    swap_current(t, level);
    t->full[level] = true;
}

// Joins what is left, the right edge of the tree, into t->current.
static void tree_close(tree *t, const lg_vec_kernels *k)
{
    bool any = false;

    for (int level = 0; level < LEVELS; level++) {
        if (!t->full[level])
            continue;
        if (any)
            join(k, &t->at[level], &t->current, t->queries, t->dim);
        swap_current(t, level);
        any = true;
        t->full[level] = false;
    }
}

/* ---- attention: one work item ---- */

typedef struct attn_job {
    const lg_cpu *c;
    const lg_attn_args *a;
    const lg_vec_kernels *k;
    int rows, dim, group; // query heads of a KV head
    int tile_rows, n_tiles;
    int heads;   // KV heads of a tile
    int n_whole; // of so many runs, the first, a tile has all KV heads
    bool unpacks;    // K and V are converted to f32 block by block
    int run_log2;    // a run is 2^run_log2 spans
    int64_t run0;    // number of the first run
    int n_runs;      // 1: items write their rows themselves
    int64_t n_items;
    float *part;     // [run][row][head] nodes: max, sum, then acc
    char *threads;   // scratch of the threads
    size_t thread_bytes;
    int buffers; // nodes of a thread
    lg_queue queue;
} attn_job;

// What a thread has of its own.
typedef struct desk {
    float *q;      // [query][dim], scaled
    float *scores; // [query][SCORES_STRIDE]
    float *block;  // [LG_KV_BLOCK][dim], unpacked
    tree tree;
} desk;

// Rows r0 .. r0 + n - 1 of the step under KV heads head .. head + heads - 1; row i sees positions
// [lo[i], hi[i]). Both ascend. Queries are in the order of KV heads, then rows.
typedef struct tile {
    int r0, n, head, heads, queries;
    int64_t lo[TILE_ROWS], hi[TILE_ROWS];
    int run;
    int64_t first, stop; // spans of this run that some row sees
    int64_t end;         // positions of them that some row sees end here
    const char *after;   // what the thread reads after these spans, or NULL
} tile;

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

// Heads, or groups of them, in an order that puts neighbours apart: threads that read tiles beside each
// other, in step, get 4 to 17 % less from memory (Zen 5).
static int nth_head(int i, int n)
{
    return i % 2 * ((n + 1) / 2) + i / 2;
}

// Work item `item`. The last rows see most, so they go first; the last run may be a short one, so it goes
// last.
static tile make_tile(const attn_job *j, int64_t item)
{
    const lg_kv_class *kv = j->a->kv;
    int groups = kv->n_kv_head / j->heads, n_runs = j->n_runs - j->n_whole;
    tile t = {.heads = kv->n_kv_head, .run = (int)item};

    if (item >= j->n_whole) {
        item -= j->n_whole;
        t = (tile){.head = nth_head((int)(item % groups), groups) * j->heads,
                   .heads = j->heads,
                   .run = j->n_whole + (int)(item / groups % n_runs),
                   .r0 = (j->n_tiles - 1 - (int)(item / groups / n_runs)) * j->tile_rows};
    }

    t.n = j->rows - t.r0 < j->tile_rows ? j->rows - t.r0 : j->tile_rows;
    t.queries = t.heads * t.n * j->group;
    for (int r = 0; r < t.n; r++) {
        int64_t pos = j->c->step.pos + t.r0 + r;
        t.hi[r] = pos + 1;
        t.lo[r] = kv->window > 0 && pos + 1 > kv->window ? pos + 1 - kv->window : 0;
    }
    int64_t first = (j->run0 + t.run) << j->run_log2, stop = first + (INT64_C(1) << j->run_log2);
    int64_t end = t.hi[t.n - 1];
    t.first = first > t.lo[0] / SPAN ? first : t.lo[0] / SPAN;
    t.stop = stop < (end + SPAN - 1) / SPAN ? stop : (end + SPAN - 1) / SPAN;
    t.end = t.stop * SPAN < end ? t.stop * SPAN : end;
    return t;
}

// Rows that see the same part of [first, first + n): from *row on, *n_rows of them, keys [*from, *to) counted
// from first. Rows that see nothing are passed over. False when there are no more.
static bool next_group(const tile *t, int64_t first, int n, int *row, int *n_rows, int *from, int *to)
{
    for (int r = *row + *n_rows; r < t->n; r++) {
        int64_t a = clamp(t->lo[r] - first, 0, n), b = clamp(t->hi[r] - first, 0, n);
        if (a >= b)
            continue;
        *row = r;
        *from = (int)a;
        *to = (int)b;
        for (r++; r < t->n; r++)
            if (clamp(t->lo[r] - first, 0, n) != a || clamp(t->hi[r] - first, 0, n) != b)
                break;
        *n_rows = r - *row;
        return true;
    }
    return false;
}

static const char *stored_block(const attn_job *j, const tile *t, int64_t first, int v, int h)
{
    return kv_row(j->c, j->a->kv, j->a->kv_layer, v, t->head + h, first);
}

// What is read of the block that begins at `first`, for the kernels to fetch.
static const char *seen_part(const attn_job *j, const tile *t, int64_t first, int v, int h)
{
    return stored_block(j, t, first > t->lo[0] ? first : t->lo[0], v, h);
}

// What an item reads first; NULL when that is nothing, and when blocks are converted.
static const char *first_part(const attn_job *j, int64_t item)
{
    tile t = make_tile(j, item);

    return j->unpacks || t.first >= t.stop ? NULL : seen_part(j, &t, t.first * SPAN, 0, 0);
}

// Does any row see part of the block that begins at `first`?
static bool is_seen(const tile *t, int64_t first)
{
    return first < t->hi[t->n - 1] && first + LG_KV_BLOCK > t->lo[0];
}

// The block that will be read after (first, v) of head h, for the kernels to fetch: after the item's last,
// the first of the thread's next item. NULL when there is none, and when blocks are converted, which reads
// them ahead of the arithmetic anyway.
static const char *block_after(const attn_job *j, const tile *t, int64_t first, int v, int h)
{
    int64_t span_end = (first / SPAN + 1) * SPAN, next = first + LG_KV_BLOCK;

    if (j->unpacks)
        return NULL;
    if (h + 1 < t->heads)
        return seen_part(j, t, first, v, h + 1);
    if (next >= span_end || !is_seen(t, next)) {
        if (v == 0) { // the span's values follow its keys
            next = first / SPAN * SPAN;
            while (!is_seen(t, next))
                next += LG_KV_BLOCK;
            return seen_part(j, t, next, 1, 0);
        }
        v = 0;
    }
    return next < t->end ? seen_part(j, t, next, v, 0) : t->after;
}

// K or V of a block as the kernels take it: where it is, or converted, of which only the visible rows are
// touched.
static const char *readable_block(const attn_job *j, const desk *d, const tile *t, int64_t first, int v,
                                  int h)
{
    const lg_kv_class *kv = j->a->kv;
    const char *src = stored_block(j, t, first, v, h);

    if (!j->unpacks)
        return src;
    int from = (int)clamp(t->lo[0] - first, 0, LG_KV_BLOCK),
        to = (int)clamp(t->hi[t->n - 1] - first, 0, LG_KV_BLOCK);
    src += (size_t)from * kv->row_bytes;
    float *dst = d->block + from * j->dim;
    if (kv->type == LG_F16)
        j->k->f32_from_f16(dst, (const uint16_t *)(const void *)src, (to - from) * j->dim);
    else
        j->k->f32_from_q8_0(dst, src, (to - from) * j->dim);
    return (const char *)d->block;
}

static size_t readable_row_bytes(const attn_job *j)
{
    return j->unpacks ? (size_t)j->dim * sizeof(float) : j->a->kv->row_bytes;
}

static bool reads_f16(const attn_job *j)
{
    return !j->unpacks && j->a->kv->type == LG_F16;
}

// Number of the first query of row r under head h of the tile.
static size_t query_at(const attn_job *j, const tile *t, int h, int r)
{
    return (size_t)(h * t->n + r) * (size_t)j->group;
}

static void block_scores(const attn_job *j, const desk *d, const tile *t, int64_t first, int h)
{
    const char *keys = readable_block(j, d, t, first, 0, h), *ahead = block_after(j, t, first, 0, h);

    for (int r = 0, n = 0, from, to; next_group(t, first, LG_KV_BLOCK, &r, &n, &from, &to); ahead = NULL) {
        size_t query = query_at(j, t, h, r);
        const float *q = d->q + query * (size_t)j->dim;
        const void *k = keys + (size_t)from * readable_row_bytes(j);
        float *s = d->scores + query * SCORES_STRIDE + first % SPAN + from;
        if (reads_f16(j))
            j->k->qk_f16(q, n * j->group, k, to - from, j->dim, s, SCORES_STRIDE, ahead);
        else
            j->k->qk_f32(q, n * j->group, k, to - from, j->dim, s, SCORES_STRIDE, ahead);
    }
}

static void span_softmax(const attn_job *j, const desk *d, const tile *t, int64_t span, int h)
{
    size_t query0 = query_at(j, t, h, 0);
    float *max = d->tree.current.max + query0, *sum = d->tree.current.sum + query0;
    float *scores = d->scores + query0 * SCORES_STRIDE;

    for (int i = 0; i < t->n * j->group; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    for (int r = 0, n = 0, from, to; next_group(t, span * SPAN, SPAN, &r, &n, &from, &to);) {
        float *s = scores + from;
        int i0 = r * j->group, end = (r + n) * j->group;
        // one after the other, so that a processor can begin a query before the last one's sum is complete
        for (int i = i0; i < end; i++)
            max[i] = j->k->max(s + (size_t)i * SCORES_STRIDE, to - from);
        for (int i = i0; i < end; i++)
            sum[i] = j->k->exp_sum(s + (size_t)i * SCORES_STRIDE, to - from, max[i]);
    }
}

static void block_values(const attn_job *j, const desk *d, const tile *t, int64_t first, int h)
{
    const char *values = readable_block(j, d, t, first, 1, h), *ahead = block_after(j, t, first, 1, h);

    for (int r = 0, n = 0, from, to; next_group(t, first, LG_KV_BLOCK, &r, &n, &from, &to); ahead = NULL) {
        size_t query = query_at(j, t, h, r);
        const float *p = d->scores + query * SCORES_STRIDE + first % SPAN + from;
        const void *v = values + (size_t)from * readable_row_bytes(j);
        float *acc = d->tree.current.acc + query * (size_t)j->dim;
        if (reads_f16(j))
            j->k->pv_f16(p, SCORES_STRIDE, n * j->group, v, to - from, j->dim, acc, ahead);
        else
            j->k->pv_f32(p, SCORES_STRIDE, n * j->group, v, to - from, j->dim, acc, ahead);
    }
}

// The node of a span. A block is read for all heads of the tile before the next, in the order in which they
// lie in memory. Softmax of a head comes before its first values, not before everybody's: memory has work in
// between.
static void span_node(const attn_job *j, const desk *d, const tile *t, int64_t span)
{
    int64_t first = span * SPAN, end = first + SPAN;
    bool weighed = false;

    for (int64_t b = first; b < end; b += LG_KV_BLOCK)
        for (int h = 0; h < t->heads && is_seen(t, b); h++)
            block_scores(j, d, t, b, h);
    memset(d->tree.current.acc, 0, (size_t)t->queries * (size_t)j->dim * sizeof(float));
    for (int64_t b = first; b < end; b += LG_KV_BLOCK) {
        if (!is_seen(t, b))
            continue;
        for (int h = 0; h < t->heads; h++) {
            if (!weighed)
                span_softmax(j, d, t, span, h);
            block_values(j, d, t, b, h);
        }
        weighed = true;
    }
}

static void load_queries(const attn_job *j, const desk *d, const tile *t)
{
    float scale = 1.0f / sqrtf((float)j->dim);
    int n = j->group * j->dim;

    for (int i = 0; i < t->heads * t->n; i++) {
        int h = i / t->n, r = i % t->n;
        const float *src = lg_cpu_row(&j->a->q, t->r0 + r) + (size_t)(t->head + h) * (size_t)n;
        const float *after = r + 1 < t->n ? src + j->a->q.stride : src;

        // rows are far apart, so nothing else would have asked for them
        for (int x = 0; x < n; x += 16)
            __builtin_prefetch(after + x);
        j->k->scale(d->q + (size_t)i * (size_t)n, scale, src, n);
    }
}

/* ---- attention: results ---- */

static float softplus(float x)
{
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}

static void write_head(const attn_job *j, int row, int head, float sum, const float *acc)
{
    const lg_tensor *gate = &j->a->gate;
    float *out = lg_cpu_row(&j->a->out, row) + (size_t)head * (size_t)j->dim;
    float scale = 1.0f / sum;

    if (gate->p && gate->cols != j->a->n_head) { // per element
        const float *g = lg_cpu_row(gate, row) + (size_t)head * (size_t)j->dim;
        for (int d = 0; d < j->dim; d++)
            out[d] = acc[d] * scale * softplus(g[d]);
        return;
    }
    if (gate->p)
        scale *= softplus(lg_cpu_row(gate, row)[head]);
    j->k->scale(out, scale, acc, j->dim);
}

static float *part_at(const attn_job *j, int run, int row, int head)
{
    size_t index = ((size_t)run * (size_t)j->rows + (size_t)row) * (size_t)j->a->n_head + (size_t)head;

    return j->part + index * (size_t)(j->dim + 2);
}

static void put_results(const attn_job *j, const tile *t, const node *n, int run)
{
    for (int i = 0; i < t->queries; i++) {
        int row = t->r0 + i / j->group % t->n, kv_head = t->head + i / j->group / t->n;
        int head = kv_head * j->group + i % j->group;
        const float *acc = n->acc + (size_t)i * (size_t)j->dim;
        if (j->n_runs == 1) {
            write_head(j, row, head, n->sum[i], acc);
            continue;
        }
        float *part = part_at(j, run, row, head);
        part[0] = n->max[i];
        part[1] = n->sum[i];
        memcpy(part + 2, acc, (size_t)j->dim * sizeof *acc);
    }
}

// Where a thread goes on, which may be past the last item. What it reads first there is fetched at t's end.
static int64_t take_next(attn_job *j, tile *t, int n_threads)
{
    int64_t next = n_threads + lg_queue_take(&j->queue, 1);

    t->after = next < j->n_items ? first_part(j, next) : NULL;
    return next;
}

// Work item `item`. Returns the thread's next, which is taken when the last span begins: early enough for its
// first block to be on its way, and no earlier, since who takes an item long before its turn keeps it from a
// thread that is free.
static int64_t do_item(attn_job *j, desk *d, int64_t item, int n_threads)
{
    tile t = make_tile(j, item);
    int64_t next = 0;

    d->tree.queries = t.queries;
    load_queries(j, d, &t);
    for (int i = 0; i < t.queries; i++)
        d->tree.current.max[i] = -INFINITY; // what tree_close leaves when this run has no span of the tile's
    if (t.first >= t.stop)
        next = take_next(j, &t, n_threads);
    for (int64_t span = t.first; span < t.stop; span++) {
        if (span + 1 == t.stop)
            next = take_next(j, &t, n_threads);
        span_node(j, d, &t, span);
        tree_add(&d->tree, j->k, span);
    }
    tree_close(&d->tree, j->k);
    put_results(j, &t, &d->tree.current, t.run);
    return next;
}

static void join_runs(const attn_job *j, int row, int head)
{
    tree t = {.queries = 1, .dim = j->dim};

    for (int run = 0; run < j->n_runs; run++) {
        float *part = part_at(j, run, row, head);
        t.current = (node){.max = part, .sum = part + 1, .acc = part + 2};
        tree_add(&t, j->k, j->run0 + run);
    }
    tree_close(&t, j->k);
    write_head(j, row, head, *t.current.sum, t.current.acc);
}

/* ---- attention: the op ---- */

static int max_queries(int max_head)
{
    return max_head > TILE_QUERIES ? max_head : TILE_QUERIES;
}

// Levels of the tree that a context of n positions can fill, and one buffer more for the node in hand.
static int tree_buffers(int64_t n)
{
    int levels = 2;

    while (levels < LEVELS && (int64_t)SPAN << (levels - 2) < n)
        levels++;
    return levels + 1;
}

static size_t node_floats(int queries, int dim)
{
    return (size_t)queries * (size_t)(dim + 2);
}

// n floats at *at of base, which may be NULL when only the size is wanted.
static float *take_floats(char *base, size_t *at, size_t n)
{
    float *p = base ? (float *)(void *)(base + *at) : NULL;

    *at += (n * sizeof(float) + 63) / 64 * 64;
    return p;
}

// The desk of a thread, laid out in its scratch at `base`, or only its size when base is NULL.
static size_t lay_desk(char *base, int max_query, int dim, int buffers, desk *d)
{
    size_t at = 0, queries = (size_t)max_query;

    d->q = take_floats(base, &at, queries * (size_t)dim);
    d->scores = take_floats(base, &at, queries * SCORES_STRIDE);
    d->block = take_floats(base, &at, LG_KV_BLOCK * (size_t)dim);
    for (int i = 0; i < buffers; i++) {
        node *n = i < buffers - 1 ? &d->tree.at[i] : &d->tree.current;
        n->max = take_floats(base, &at, queries);
        n->sum = take_floats(base, &at, queries);
        n->acc = take_floats(base, &at, queries * (size_t)dim);
    }
    return at;
}

static void attend(void *ctx, int thread, int n_threads)
{
    attn_job *j = ctx;
    desk d = {.tree = {.dim = j->dim}};

    (void)lay_desk(j->threads + (size_t)thread * j->thread_bytes, max_queries(j->c->lim.max_head), j->dim,
                   j->buffers, &d);
    // The first is everybody's own: a thread that comes early would take two of few.
    for (int64_t i = thread; i < j->n_items;)
        i = do_item(j, &d, i, n_threads);
    if (j->n_runs == 1)
        return;
    lg_pool_barrier(j->c->pool);
    int64_t from, to;
    lg_cpu_share((int64_t)j->rows * j->a->n_head, 1, thread, n_threads, &from, &to);
    for (int64_t i = from; i < to; i++)
        join_runs(j, (int)(i / j->a->n_head), (int)(i % j->a->n_head));
}

// How heads and context are cut into items that keep the threads even. Affects speed and scratch, never bits.
static void plan_items(attn_job *j)
{
    int64_t pos = j->c->step.pos, window = j->a->kv->window;
    int64_t first = window > 0 && pos + 1 > window ? (pos + 1 - window) / SPAN : 0;
    int64_t last = (pos + j->rows - 1) / SPAN;
    int64_t items = (int64_t)j->n_tiles * j->a->kv->n_kv_head, threads = j->c->n_threads;
    int64_t room = UNITS_MAX * CUT_ROWS / j->rows;

    // As many KV heads as leave the threads equal shares: the longer what is read in one stream, the more
    // memory gives (Zen 5: 0.85 of a flat read by single heads, 0.915 by four). A short context is then not
    // cut.
    j->heads = j->a->kv->n_kv_head;
    while (j->heads > 1 && (j->a->kv->n_kv_head % j->heads != 0 || items / j->heads % threads != 0 ||
                            j->heads * j->tile_rows * j->group > TILE_QUERIES))
        j->heads--;
    items /= j->heads;
    int64_t least = items % threads == 0 ? 1 : (FEWEST_ITEMS * threads + items - 1) / items;
    int64_t want = clamp((last - first + 1) / RUN_SPANS, least, (MOST_ITEMS * threads + items - 1) / items);

    want = clamp(want, 1, room < 1 ? 1 : room < UNITS_MAX ? room : UNITS_MAX);
    j->run_log2 = 0;
    while ((last >> j->run_log2) - (first >> j->run_log2) + 1 > want)
        j->run_log2++;
    j->run0 = first >> j->run_log2;
    j->n_runs = (int)((last >> j->run_log2) - j->run0 + 1);
    // The first runs of a long context go with all heads. Threads then end up to a run apart, so the last
    // runs go in smaller groups.
    bool whole = j->n_tiles == 1 && j->a->kv->n_kv_head * j->tile_rows * j->group <= TILE_QUERIES;
    j->n_whole = whole && j->heads > 1 && j->n_runs > 2 * threads ? j->n_runs - (int)threads : 0;
    if (j->n_whole > 0 && j->heads % 2 == 0) {
        j->heads /= 2;
        items *= 2;
    }
    j->n_items = j->n_whole + items * (j->n_runs - j->n_whole);
}

static size_t part_bytes(int max_head, int dim)
{
    return UNITS_MAX * CUT_ROWS * node_floats(max_head, dim) * sizeof(float);
}

void lg_cpu_attention(lg_cpu *c, const lg_attn_args *a)
{
    const lg_kv_class *kv = a->kv;
    attn_job j = {.c = c, .a = a, .rows = lg_cpu_rows(c, a->q.rows), .dim = kv->head_dim};
    desk size = {0};

    if (j.rows == 0)
        return;
    LG_ASSERT(a->n_head <= c->lim.max_head && a->n_head % kv->n_kv_head == 0 &&
              c->step.pos + j.rows <= c->lim.max_ctx);
    j.k = j.dim % 16 == 0 ? &c->k.vec : &c->plain;
    j.group = a->n_head / kv->n_kv_head;
    j.tile_rows = (int)clamp(TILE_QUERIES / j.group, 1, j.rows < TILE_ROWS ? j.rows : TILE_ROWS);
    j.n_tiles = (j.rows + j.tile_rows - 1) / j.tile_rows;
    j.unpacks = kv->type == LG_Q8_0 || (kv->type == LG_F16 && j.tile_rows * j.group >= F32_QUERIES);
    plan_items(&j);
    j.buffers = tree_buffers(c->lim.max_ctx);
    j.thread_bytes = lay_desk(NULL, max_queries(c->lim.max_head), j.dim, j.buffers, &size);
    j.part = lg_cpu_scratch(c, part_bytes(c->lim.max_head, j.dim) + (size_t)c->n_threads * j.thread_bytes);
    j.threads = (char *)j.part + part_bytes(c->lim.max_head, j.dim);
    lg_queue_reset(&j.queue);
    lg_pool_run(c->pool, attend, &j);
}

size_t lg_cpu_attn_scratch(const lg_cpu *c, const lg_limits *lim)
{
    desk size = {0};

    if (lim->max_head == 0)
        return 0;
    int dim = (lim->max_q_cols + lim->max_head - 1) / lim->max_head;
    return part_bytes(lim->max_head, dim) + (size_t)c->n_threads * lay_desk(NULL, max_queries(lim->max_head),
                                                                            dim, tree_buffers(lim->max_ctx),
                                                                            &size);
}
