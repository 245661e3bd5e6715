/*
 * backend/cpu/op_moe: the mixture of experts, and a dense FFN as one with no routed experts.
 *
 * One pool job, two halves with a barrier between. First half: rows are bucketed by expert; a queue of
 * (expert, block of gate and up rows, block of columns) produces silu(gate h) * up h, quantised for the down
 * product as soon as a quantisation block is complete. Second half: a queue of blocks of output rows; the
 * thread that owns a block runs every expert's down rows over the columns that chose it, then adds the
 * results per column, shared expert first, then in the order of the routes. Nobody else touches those
 * outputs, so there are no atomics on floats and no ties to the number of threads or rows.
 *
 * Surprise: with at most LG_CPU_EXACT_ROWS columns blocks are small, for balance, and the thread that
 * completes a quantisation block (a counter tells) quantises it.
 */
#include <string.h>

#include "backend/cpu/product.h"

enum {
    // gate and up rows of an item with few columns, at least; doubled while items remain enough
    FINE_ROWS = 32,
    FINE_ITEMS = 8,   // of a thread
    COARSE_ROWS = 256, // with many columns: a whole quantisation block
    COARSE_COLS = 128, // so that a block of activations and its tiles share L2
    OUT_ROWS = 64, // down rows of an item, at most
    OUT_ITEMS = 4, // of a thread, at least
};

// The routed experts, or the shared one.
typedef struct side {
    const lg_weight *gate, *up, *down;
    int ffn;
    lg_act_kind mid_kind; // how `down` wants its input
    int first_entry;      // entries of this side count from here
    uint8_t *mid;         // the input of `down`, one row an entry
    size_t mid_stride;
    float *raw; // fine items: before quantisation, ffn floats an entry
} side;

// An expert and the entries (column, rank) that chose it: entries [first, first + n).
typedef struct group {
    const side *of;
    int expert, first, n;
    int64_t first_item; // in the queue of the first half
    int first_block;    // in `done`
} group;

typedef struct moe_job {
    const lg_cpu *c;
    const lg_moe_args *a;
    int n_cols, k;
    bool fine;
    int item_rows; // gate and up rows of an item
    side routed, shared;
    group *groups;
    int n_groups, n_entries;
    int32_t *column;    // of each entry
    int32_t *entry;     // of each (column, rank)
    int n_shared_first; // entry of the shared expert's column 0, or -1
    lg_acts acts[LG_ACT_KINDS];
    uint8_t *quantised[LG_ACT_KINDS];
    bool quantises;   // in the job, before the first half
    atomic_int *done; // fine items done of each quantisation block
    int64_t n_items;
    int out_rows;
    lg_queue first_half, second_half;
    float *down; // with one column: [entry][hidden]
    char *thread_scratch;
    size_t thread_bytes, tiles_bytes;
} moe_job;

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

static void quantise_input(const moe_job *j, int from, int to)
{
    const lg_tensor *h = &j->a->h;

    for (int kind = LG_ACT_Q32; kind < LG_ACT_KINDS; kind++)
        if (j->quantised[kind])
            lg_product_quant(j->c, (lg_act_kind)kind, h->p, (size_t)h->stride, h->cols, from, to,
                             j->quantised[kind]);
}

// Elements [at, at + n) of an activation row of `width` elements, from x.
static void quantise_part(const lg_cpu *c, lg_act_kind kind, const float *x, int n, uint8_t *row, int width,
                          int at)
{
    _Alignas(64) uint8_t part[COARSE_ROWS * 2];
    size_t per_16 = (size_t)n / 16 * sizeof(int16_t), at_16 = (size_t)at / 16 * sizeof(int16_t);
    size_t block = (size_t)lg_act_block(kind);

    LG_ASSERT(n <= COARSE_ROWS && lg_act_bytes(kind, n) <= sizeof part);
    c->k.quant[kind](x, n, part);
    memcpy(row + at, part, (size_t)n);
    memcpy(row + lg_act_sums_at(width) + at_16, part + lg_act_sums_at(n), per_16);
    memcpy(row + lg_act_steps_at(width) + at_16, part + lg_act_steps_at(n), per_16);
    memcpy(row + lg_act_scales_at(width) + (size_t)at / block * sizeof(float), part + lg_act_scales_at(n),
           (size_t)n / block * sizeof(float));
}

// silu(gate h) * up h for rows [row, row + n) of a group, columns [col, col + n_cols) of its entries, to
// out[column * out_stride + i]. `next`: what this thread reads afterwards.
static void gate_up(const moe_job *j, const group *g, int row, int n, int col, int n_cols, float *out,
                    size_t out_stride, lg_span next, char *scratch)
{
    const lg_cpu *c = j->c;
    const side *s = g->of;
    int step = n_cols == 1 ? n : LG_BLOCK_ROWS;
    lg_product_args p = {.expert = g->expert,
                         .idx = j->column + g->first + col,
                         .n_cols = n_cols,
                         .y_stride = (size_t)step,
                         .tiles = lg_cpu_carve(&scratch, j->tiles_bytes)};
    float *gate = lg_cpu_carve(&scratch, (size_t)n_cols * (size_t)step * sizeof(float));
    float *up = lg_cpu_carve(&scratch, (size_t)n_cols * (size_t)step * sizeof(float));

    for (int at = 0; at < n; at += step) {
        bool last = n - at <= step;

        p.row = row + at;
        p.n_rows = last ? n - at : step;
        p.w = s->gate;
        p.x = &j->acts[lg_product_act(c, p.w)];
        p.y = gate;
        p.next = lg_product_span(s->up, g->expert, p.row, p.n_rows);
        lg_product(c, &p);
        p.w = s->up;
        p.x = &j->acts[lg_product_act(c, p.w)];
        p.y = up;
        p.next = last ? next : lg_product_span(s->gate, g->expert, p.row + p.n_rows, step);
        lg_product(c, &p);
        for (int i = 0; i < n_cols; i++)
            c->k.swiglu(gate + (size_t)i * (size_t)step, up + (size_t)i * (size_t)step,
                        out + (size_t)i * out_stride + at, p.n_rows);
    }
}

static uint8_t *mid_row(const group *g, int col)
{
    return g->of->mid + (size_t)(g->first - g->of->first_entry + col) * g->of->mid_stride;
}

static float *raw_row(const group *g, int col)
{
    return g->of->raw + (size_t)(g->first - g->of->first_entry + col) * (size_t)g->of->ffn;
}

// Rows [row, row + n), which are whole quantisation blocks, for n_cols entries of the group from `col` on.
static void whole_item(const moe_job *j, const group *g, int row, int n, int col, int n_cols, lg_span next,
                        char *scratch)
{
    const side *s = g->of;

    if (s->mid_kind == LG_ACT_F32) {
        gate_up(j, g, row, n, col, n_cols, (float *)(void *)mid_row(g, col) + row,
                s->mid_stride / sizeof(float), next, scratch);
        return;
    }
    float *raw = lg_cpu_carve(&scratch, (size_t)COARSE_COLS * COARSE_ROWS * sizeof(float));
    gate_up(j, g, row, n, col, n_cols, raw, COARSE_ROWS, next, scratch);
    lg_queue_soon(&j->first_half);
    for (int i = 0; i < n_cols; i++)
        quantise_part(j->c, s->mid_kind, raw + (size_t)i * COARSE_ROWS, n, mid_row(g, col + i), s->ffn, row);
}

// A fine item: rows [row, row + n) for all columns of the group. Whoever completes a quantisation block that
// several items share quantises it.
static void fine_item(moe_job *j, const group *g, int row, int n, lg_span next, char *scratch)
{
    const side *s = g->of;
    int block = s->mid_kind == LG_ACT_Q256 ? 256 : j->item_rows, start = row / block * block;
    int rows = s->ffn - start < block ? s->ffn - start : block;
    atomic_int *done = &j->done[g->first_block + row / block];

    if (n == rows || s->mid_kind == LG_ACT_F32) {
        whole_item(j, g, row, n, 0, g->n, next, scratch);
        return;
    }
    gate_up(j, g, row, n, 0, g->n, raw_row(g, 0) + row, (size_t)s->ffn, next, scratch);
    if (atomic_fetch_add_explicit(done, 1, memory_order_acq_rel) + 1 < ceil_div(rows, j->item_rows))
        return;
    for (int col = 0; col < g->n; col++)
        quantise_part(j->c, s->mid_kind, raw_row(g, col) + start, rows, mid_row(g, col), s->ffn, start);
}

// The group, first row and first column of an item of the first half.
typedef struct place {
    const group *of;
    int row, col;
} place;

static place find_item(const moe_job *j, int64_t item)
{
    int low = 0, high = j->n_groups - 1;

    while (low < high) {
        int mid = (low + high + 1) / 2;

        if (j->groups[mid].first_item <= item)
            low = mid;
        else
            high = mid - 1;
    }
    const group *g = &j->groups[low];
    int blocks = ceil_div(g->of->ffn, j->item_rows), nth = (int)(item - g->first_item);

    return (place){g, nth % blocks * j->item_rows, nth / blocks * COARSE_COLS};
}

static lg_span item_span(const moe_job *j, int64_t item)
{
    if (item >= j->n_items)
        return (lg_span){0};
    place p = find_item(j, item);
    return lg_product_span(p.of->of->gate, p.of->expert, p.row, LG_BLOCK_ROWS);
}

static void first_half_item(moe_job *j, int64_t item, lg_span next, char *scratch)
{
    place p = find_item(j, item);
    const group *g = p.of;
    int n = g->of->ffn - p.row < j->item_rows ? g->of->ffn - p.row : j->item_rows;

    if (j->fine)
        fine_item(j, g, p.row, n, next, scratch);
    else
        whole_item(j, g, p.row, n, p.col, g->n - p.col < COARSE_COLS ? g->n - p.col : COARSE_COLS, next,
                   scratch);
}

static lg_span down_span(const moe_job *j, int group_no, int64_t row)
{
    const group *g = &j->groups[group_no];

    return lg_product_span(g->of->down, g->expert, row, j->out_rows);
}

// out = shared + sum of weight * expert for n rows, in the order of the routes; entry e's are at
// down + e * stride.
static void add_experts(const moe_job *j, int col, const float *down, size_t stride, float *out, int n)
{
    if (j->n_shared_first >= 0)
        memcpy(out, down + (size_t)(j->n_shared_first + col) * stride, (size_t)n * sizeof(float));
    else
        memset(out, 0, (size_t)n * sizeof(float));
    for (int r = 0; r < j->k; r++) {
        size_t at = (size_t)col * (size_t)j->k + (size_t)r;
        const float *y = down + (size_t)j->entry[at] * stride;

        if (col + 1 < j->n_cols) { // entries of a column are anywhere
            const float *later = down + (size_t)j->entry[at + (size_t)j->k] * stride;

            for (int i = 0; i < n; i += 64 / (int)sizeof *later)
                __builtin_prefetch(later + i);
        }
        j->c->k.vec.axpby(out, 1.0f, y, j->a->routes.w[at], n); // out + w * y, each rounded
    }
}

// Output rows [row, row + n), all columns; this thread goes on at next_row.
static void second_half_item(const moe_job *j, int row, int n, int64_t next_row, char *scratch)
{
    const lg_cpu *c = j->c;
    size_t stride = (size_t)j->out_rows;
    void *tiles = lg_cpu_carve(&scratch, j->tiles_bytes);
    float *down = lg_cpu_carve(&scratch, (size_t)j->n_entries * stride * sizeof(float));

    for (int i = 0; i < j->n_groups; i++) {
        const group *g = &j->groups[i];
        lg_acts mid = {.p = mid_row(g, 0), .stride = g->of->mid_stride};
        bool last = i + 1 == j->n_groups;

        lg_product(c, &(lg_product_args){.w = g->of->down,
                                         .expert = g->expert,
                                         .row = row,
                                         .n_rows = n,
                                         .x = &mid,
                                         .n_cols = g->n,
                                         .y = down + (size_t)g->first * stride,
                                         .y_stride = stride,
                                         .next = last ? down_span(j, 0, next_row) : down_span(j, i + 1, row),
                                         .tiles = tiles});
    }
    for (int col = 0; col < j->n_cols; col++)
        add_experts(j, col, down, stride, lg_cpu_row(&j->a->out, col) + row, n);
}

// With one column: down rows of all groups, one after the other, in units of LG_TILE_ROWS. A thread takes
// long runs of them, as in op_linear: rows are short there, and jumps from expert to expert cost a tenth of
// the time.
typedef struct run {
    int64_t at, n;
} run;

static run take_run(moe_job *j)
{
    int64_t total = (int64_t)j->n_groups * ceil_div(j->a->out.cols, LG_TILE_ROWS);
    run r;

    r.at = lg_queue_take_part(&j->second_half, total, (int64_t)j->c->n_threads * LG_RUN_PART, 1, &r.n);
    return r;
}

// Down rows from unit `at` of the queue on, at most n of them, to the end of their group; none past the
// queue's end.
static lg_span run_span(const moe_job *j, int64_t at, int n)
{
    int64_t units = ceil_div(j->a->out.cols, LG_TILE_ROWS);

    if (at >= j->n_groups * units)
        return (lg_span){0};
    const group *g = &j->groups[at / units];
    return lg_product_span(g->of->down, g->expert, at % units * LG_TILE_ROWS, n);
}

static void do_run(const moe_job *j, run r, run next)
{
    int hidden = j->a->out.cols;
    int64_t units = ceil_div(hidden, LG_TILE_ROWS), end = r.at + r.n;

    for (int64_t at = r.at, to; at < end; at = to) {
        const group *g = &j->groups[at / units];
        int row = (int)(at % units) * LG_TILE_ROWS;
        lg_acts mid = {.p = mid_row(g, 0), .stride = g->of->mid_stride};

        to = (at / units + 1) * units < end ? (at / units + 1) * units : end;
        int n = (int)(to - at) * LG_TILE_ROWS;
        lg_product(j->c, &(lg_product_args){.w = g->of->down,
                                            .expert = g->expert,
                                            .row = row,
                                            .n_rows = hidden - row < n ? hidden - row : n,
                                            .x = &mid,
                                            .n_cols = 1,
                                            .y = j->down + (size_t)g->first * (size_t)hidden + row,
                                            .next = run_span(j, to < end ? to : next.at, hidden)});
    }
}

// With one column. The thread begins with run r, which it took before the barrier.
static void second_half_of_one(moe_job *j, run r, int thread, int n_threads)
{
    int64_t from, to;

    while (r.n > 0) {
        run next = take_run(j);

        do_run(j, r, next);
        r = next;
    }
    lg_pool_barrier(j->c->pool);
    lg_cpu_share(j->a->out.cols, LG_TILE_ROWS, thread, n_threads, &from, &to);
    add_experts(j, 0, j->down + from, (size_t)j->a->out.cols, lg_cpu_row(&j->a->out, 0) + from,
                (int)(to - from));
}

static void work(void *ctx, int thread, int n_threads)
{
    moe_job *j = ctx;
    char *scratch = j->thread_scratch + (size_t)thread * j->thread_bytes;
    int hidden = j->a->out.cols;

    if (j->quantises) {
        int64_t from, to;

        lg_cpu_share(j->n_cols, 1, thread, n_threads, &from, &to);
        quantise_input(j, (int)from, (int)to);
        lg_pool_barrier(j->c->pool);
    }
    // Items are taken one ahead, so that the start of the next is on its way while this one runs.
    int64_t item = lg_queue_take(&j->first_half, 1);
    run first = {0};
    while (item < j->n_items) {
        int64_t next = lg_queue_take(&j->first_half, 1);
        lg_span after = item_span(j, next);

        if (next >= j->n_items && j->n_cols == 1) {
            first = take_run(j);
            after = run_span(j, first.at, hidden);
        }
        first_half_item(j, item, after, scratch);
        item = next;
    }
    if (j->n_cols == 1) {
        if (first.n == 0)
            first = take_run(j);
        lg_pool_barrier(j->c->pool);
        second_half_of_one(j, first, thread, n_threads);
        return;
    }
    int64_t row = lg_queue_take(&j->second_half, j->out_rows);
    lg_pool_barrier(j->c->pool);
    while (row < hidden) {
        int64_t next = lg_queue_take(&j->second_half, j->out_rows);

        second_half_item(j, (int)row, hidden - (int)row < j->out_rows ? hidden - (int)row : j->out_rows, next,
                         scratch);
        row = next;
    }
}

static void add_group(moe_job *j, const side *s, int expert, int first, int n, int *blocks)
{
    group *g = &j->groups[j->n_groups++];

    *g = (group){
        .of = s, .expert = expert, .first = first, .n = n, .first_item = j->n_items, .first_block = *blocks};
    j->n_items += (int64_t)ceil_div(s->ffn, j->item_rows) * (j->fine ? 1 : ceil_div(n, COARSE_COLS));
    *blocks += ceil_div(s->ffn, FINE_ROWS);
}

// Buckets the entries by expert, columns ascending in each bucket; the shared expert, the largest, goes first
// in the queue and last in the entries.
static void make_groups(moe_job *j, int n_expert, int32_t *count)
{
    int n = j->n_cols * j->k, blocks = 0;
    const int32_t *ids = j->a->routes.ids;

    j->n_entries = n + (j->shared.gate ? j->n_cols : 0);
    j->n_shared_first = j->shared.gate ? n : -1;
    if (j->shared.gate)
        add_group(j, &j->shared, 0, n, j->n_cols, &blocks);
    for (int col = 0; col < j->n_cols && j->shared.gate; col++)
        j->column[n + col] = col;

    memset(count, 0, (size_t)(n_expert + 1) * sizeof *count);
    for (int i = 0; i < n; i++) {
        LG_ASSERT(ids[i] >= 0 && ids[i] < n_expert);
        count[ids[i] + 1]++;
    }
    for (int e = 0; e < n_expert; e++) {
        if (count[e + 1] > 0)
            add_group(j, &j->routed, e, count[e], count[e + 1], &blocks);
        count[e + 1] += count[e];
    }
    for (int i = 0; i < n; i++) {
        int at = count[ids[i]]++;

        j->entry[i] = at;
        j->column[at] = i / j->k;
    }
    for (int b = 0; j->fine && b < blocks; b++)
        atomic_init(&j->done[b], 0);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Long items stream better, short ones share out better.
static void choose_item_rows(moe_job *j, int n_experts, int n_threads)
{
    int64_t rows = (int64_t)n_experts * j->routed.ffn + j->shared.ffn;

    j->item_rows = COARSE_ROWS;
    while (j->fine && j->item_rows > FINE_ROWS && rows / j->item_rows < (int64_t)FINE_ITEMS * n_threads)
        j->item_rows /= 2;
    j->out_rows = OUT_ROWS;
    while (j->out_rows > LG_TILE_ROWS && j->a->out.cols / j->out_rows < OUT_ITEMS * n_threads)
        j->out_rows /= 2;
}

static size_t thread_bytes(int hidden, int ffn, int n_entries, int out_rows)
{
    size_t tiles = lg_product_tiles(hidden > ffn ? hidden : ffn);
    size_t first =
        ((size_t)COARSE_COLS * LG_BLOCK_ROWS * 2 + (size_t)COARSE_COLS * COARSE_ROWS) * sizeof(float);
    size_t second = (size_t)n_entries * (size_t)out_rows * sizeof(float);

    return tiles + larger(first, second) + 1024;
}

static void make_side(side *s, const lg_cpu *c, const lg_weight *gate, const lg_weight *up,
                      const lg_weight *down)
{
    if (!gate)
        return;
    LG_ASSERT(gate->n_out == up->n_out && down->n_in == gate->n_out);
    *s =
        (side){.gate = gate, .up = up, .down = down, .ffn = gate->n_out, .mid_kind = lg_product_act(c, down)};
    s->mid_stride = lg_act_bytes(s->mid_kind, s->ffn);
}

static void place_side(side *s, const moe_job *j, int n_entries, int first_entry, char **at)
{
    if (!s->gate)
        return;
    s->first_entry = first_entry;
    s->mid = lg_cpu_carve(at, (size_t)n_entries * s->mid_stride);
    if (j->fine && s->mid_kind != LG_ACT_F32)
        s->raw = lg_cpu_carve(at, (size_t)n_entries * (size_t)s->ffn * sizeof(float));
}

static void place_input(moe_job *j, const side *s, char **at)
{
    const lg_tensor *h = &j->a->h;
    const lg_weight *w[2] = {s->gate, s->up};

    for (int i = 0; i < 2 && s->gate; i++) {
        lg_act_kind kind = lg_product_act(j->c, w[i]);

        LG_ASSERT(w[i]->n_in == h->cols);
        if (kind == LG_ACT_F32 || j->quantised[kind])
            continue;
        j->quantised[kind] = lg_cpu_carve(at, lg_act_bytes(kind, h->cols) * (size_t)j->n_cols);
        j->acts[kind] = (lg_acts){.p = j->quantised[kind], .stride = lg_act_bytes(kind, h->cols)};
        j->quantises = j->n_cols > LG_CPU_EXACT_ROWS;
    }
}

void lg_cpu_moe(lg_cpu *c, const lg_moe_args *a)
{
    moe_job j = {.c = c, .a = a, .n_cols = lg_cpu_rows(c, a->h.rows), .k = a->gate ? a->routes.k : 0};
    int n_expert = a->gate ? a->gate->n_expert : 0, entries = j.n_cols * j.k;
    char *at = c->scratch.p;

    if (j.n_cols == 0)
        return;
    j.fine = j.n_cols <= LG_CPU_EXACT_ROWS;
    make_side(&j.routed, c, a->gate, a->up, a->down);
    make_side(&j.shared, c, a->shared_gate, a->shared_up, a->shared_down);

    j.acts[LG_ACT_F32] =
        (lg_acts){.p = (const uint8_t *)a->h.p, .stride = (size_t)a->h.stride * sizeof(float)};
    place_input(&j, &j.routed, &at);
    place_input(&j, &j.shared, &at);
    place_side(&j.routed, &j, entries, 0, &at);
    place_side(&j.shared, &j, j.n_cols, entries, &at);
    j.column = lg_cpu_carve(&at, (size_t)(entries + j.n_cols) * sizeof *j.column);
    j.entry = lg_cpu_carve(&at, (size_t)entries * sizeof *j.entry);
    int most = (n_expert < entries ? n_expert : entries) + 1;
    choose_item_rows(&j, most - 1, c->n_threads);
    j.groups = lg_cpu_carve(&at, (size_t)most * sizeof *j.groups);
    int widest = j.routed.ffn > j.shared.ffn ? j.routed.ffn : j.shared.ffn;
    j.done =
        lg_cpu_carve(&at, j.fine ? (size_t)most * (size_t)ceil_div(widest, FINE_ROWS) * sizeof *j.done : 0);
    int32_t *count = lg_cpu_carve(&at, (size_t)(n_expert + 1) * sizeof *count);
    make_groups(&j, n_expert, count);

    j.tiles_bytes = lg_product_tiles(a->h.cols > widest ? a->h.cols : widest);
    j.thread_bytes = (thread_bytes(a->h.cols, widest, j.n_entries, j.out_rows) + 63) / 64 * 64;
    j.thread_scratch = lg_cpu_carve(&at, j.thread_bytes * (size_t)c->n_threads);
    j.down =
        lg_cpu_carve(&at, j.n_cols == 1 ? (size_t)j.n_entries * (size_t)a->out.cols * sizeof *j.down : 0);
    (void)lg_cpu_scratch(c, (size_t)(at - (char *)c->scratch.p));

    lg_queue_reset(&j.first_half);
    lg_queue_reset(&j.second_half);
    if (!j.quantises)
        quantise_input(&j, 0, j.n_cols);
    lg_pool_run(c->pool, work, &j);
}

size_t lg_cpu_moe_scratch(const lg_cpu *c, const lg_limits *lim)
{
    size_t rows = (size_t)lim->max_rows, k = (size_t)lim->max_k, entries = rows * (k + 1);
    size_t fine = rows < LG_CPU_EXACT_ROWS ? rows : LG_CPU_EXACT_ROWS, most = fine * k + 1;
    size_t dense = (size_t)lim->max_ffn,
           narrow = (size_t)(lim->max_ffn_expert ? lim->max_ffn_expert : lim->max_ffn);
    size_t mid =
        larger(rows * lg_act_bytes(LG_ACT_F32, (int)dense), entries * lg_act_bytes(LG_ACT_F32, (int)narrow));
    size_t raw = larger(fine * dense, fine * (k + 1) * narrow) * sizeof(float);

    return (lg_act_bytes(LG_ACT_Q32, lim->hidden) + lg_act_bytes(LG_ACT_Q256, lim->hidden)) * rows +
           mid + raw + entries * 2 * sizeof(int32_t) + (entries + 1) * sizeof(group) +
           most * (dense / FINE_ROWS + 1) * sizeof(atomic_int) +
           ((size_t)lim->max_expert + 1) * sizeof(int32_t) +
           (thread_bytes(lim->hidden, lim->max_ffn, (int)entries, OUT_ROWS) + 64) * (size_t)c->n_threads +
           (k + 1) * (size_t)lim->hidden * sizeof(float) + 17 * 64;
}
