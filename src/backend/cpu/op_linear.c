/*
 * backend/cpu/op_linear: up to four products that share their input, as one piece of parallel work.
 *
 * The input is quantised once for each form that the weights want. Then the rows of all parts are one queue
 * of units; threads take runs of units, so a short part next to a long one costs nothing. A row's value
 * depends on nothing but the row, so neither the split nor the number of threads shows in the bits.
 */
#include "backend/cpu/product.h"

// Up to here the calling thread quantises alone: cheaper than a barrier (2048 values take half a
// microsecond).
enum { SERIAL_QUANT = 16384 };
// Blocks that a thread takes in prefill, at least: enough to even out a slow thread, few enough to keep them
// tall.
enum { BLOCKS_PER_THREAD = 8 };

typedef struct linear_job {
    const lg_cpu *c;
    const lg_tensor *x;
    const lg_part *parts;
    int n_parts, n_cols;
    lg_acts acts[LG_ACT_KINDS];     // what the products read
    uint8_t *quantised[LG_ACT_KINDS]; // where it is written; NULL for forms that no part wants
    bool quantises;                 // in the job, before the products
    int unit_rows;
    int64_t first_unit[LG_PARTS_MAX + 1]; // of each part; the last entry is the total
    int64_t run_parts; // of the units that are left, a run takes one part
    lg_queue queue;
    char *tiles;
    size_t tiles_bytes; // of one thread
} linear_job;

static void quantise(const linear_job *j, int from, int to)
{
    for (int kind = LG_ACT_Q32; kind < LG_ACT_KINDS; kind++)
        if (j->quantised[kind])
            lg_product_quant(j->c, (lg_act_kind)kind, j->x->p, (size_t)j->x->stride, j->x->cols, from, to,
                             j->quantised[kind]);
}

// Rows of a part from unit `unit` on, as bytes: what a thread that has taken the run reads first.
static lg_span unit_span(const linear_job *j, int64_t unit)
{
    for (int p = 0; p < j->n_parts; p++)
        if (unit < j->first_unit[p + 1])
            return lg_product_span(j->parts[p].w, 0, (unit - j->first_unit[p]) * j->unit_rows, j->unit_rows);
    return (lg_span){0};
}

// Units [from, to) of one part, counted from its first row.
static void part_units(const linear_job *j, const lg_part *part, int64_t from, int64_t to, lg_span next,
                       void *tiles)
{
    int row = (int)(from * j->unit_rows), end = (int)(to * j->unit_rows);
    int step = j->n_cols == 1 ? end - row : j->unit_rows;

    if (end > part->w->n_out)
        end = part->w->n_out;
    for (; row < end; row += step) {
        bool last = end - row <= step;

        lg_product(j->c,
                   &(lg_product_args){.w = part->w,
                                      .row = row,
                                      .n_rows = last ? end - row : step,
                                      .x = &j->acts[lg_product_act(j->c, part->w)],
                                      .n_cols = j->n_cols,
                                      .y = part->y.p + row,
                                      .y_stride = (size_t)part->y.stride,
                                      .next = last ? next : lg_product_span(part->w, 0, row + step, step),
                                      .tiles = tiles});
    }
}

// A run of n units, through all parts that it touches; `next` is where this thread goes on.
static void run_units(const linear_job *j, int64_t at, int64_t n, int64_t next, void *tiles)
{
    int64_t end = at + n;

    for (int p = 0; p < j->n_parts; p++) {
        int64_t first = j->first_unit[p], last = j->first_unit[p + 1];
        int64_t from = at > first ? at : first, to = end < last ? end : last;

        if (from < to)
            part_units(j, &j->parts[p], from - first, to - first, unit_span(j, to < end ? to : next), tiles);
    }
}

static void work(void *ctx, int thread, int n_threads)
{
    linear_job *j = ctx;
    void *tiles = j->tiles + (size_t)thread * j->tiles_bytes;
    int64_t total = j->first_unit[j->n_parts];

    if (j->quantises) {
        int64_t from, to;

        lg_cpu_share(j->n_cols, 1, thread, n_threads, &from, &to);
        quantise(j, (int)from, (int)to);
        lg_pool_barrier(j->c->pool);
    }
    // Taken one ahead, so that the start of the next run is on its way while this one is read.
    int64_t n, at = lg_queue_take_part(&j->queue, total, j->run_parts, 1, &n);
    while (n > 0) {
        int64_t n_next, next = lg_queue_take_part(&j->queue, total, j->run_parts, 1, &n_next);

        run_units(j, at, n, next, tiles);
        at = next;
        n = n_next;
    }
}

// Rows of a unit and units of a run: long runs for a few columns, which stream from memory; for many columns
// blocks that share unpacked tiles, smaller where there are many threads to feed.
static void split(linear_job *j)
{
    int64_t rows = 0, threads = j->c->n_threads;

    for (int p = 0; p < j->n_parts; p++)
        rows += j->parts[p].w->n_out;
    j->unit_rows = LG_TILE_ROWS;
    if (j->n_cols > 1)
        while (j->unit_rows < LG_BLOCK_ROWS && rows / (2 * j->unit_rows) >= BLOCKS_PER_THREAD * threads)
            j->unit_rows *= 2;
    for (int p = 0; p < j->n_parts; p++)
        j->first_unit[p + 1] = j->first_unit[p] + (j->parts[p].w->n_out + j->unit_rows - 1) / j->unit_rows;
    j->run_parts = j->n_cols == 1 ? threads * LG_RUN_PART : j->first_unit[j->n_parts] + 1;
}

void lg_cpu_linear(lg_cpu *c, const lg_tensor *x, const lg_part *parts, int n_parts)
{
    linear_job j = {.c = c, .x = x, .parts = parts, .n_parts = n_parts, .n_cols = lg_cpu_rows(c, x->rows)};
    char *at = c->scratch.p;
    bool wants[LG_ACT_KINDS] = {false};

    if (j.n_cols == 0)
        return;
    for (int p = 0; p < n_parts; p++) {
        LG_ASSERT(parts[p].w->n_in == x->cols);
        wants[lg_product_act(c, parts[p].w)] = true;
    }
    j.acts[LG_ACT_F32] = (lg_acts){.p = (const uint8_t *)x->p, .stride = (size_t)x->stride * sizeof(float)};
    for (int kind = LG_ACT_Q32; kind < LG_ACT_KINDS; kind++) {
        size_t stride = lg_act_bytes((lg_act_kind)kind, x->cols);

        if (!wants[kind])
            continue;
        j.quantised[kind] = lg_cpu_carve(&at, stride * (size_t)j.n_cols);
        j.acts[kind] = (lg_acts){.p = j.quantised[kind], .stride = stride};
    }
    j.tiles_bytes = lg_product_tiles(x->cols);
    j.tiles = lg_cpu_carve(&at, j.tiles_bytes * (size_t)c->n_threads);
    (void)lg_cpu_scratch(c, (size_t)(at - (char *)c->scratch.p));

    split(&j);
    lg_queue_reset(&j.queue);
    j.quantises = (int64_t)j.n_cols * x->cols > SERIAL_QUANT && (wants[LG_ACT_Q32] || wants[LG_ACT_Q256]);
    if (!j.quantises)
        quantise(&j, 0, j.n_cols);
    lg_pool_run(c->pool, work, &j);
}

size_t lg_cpu_linear_scratch(const lg_cpu *c, const lg_limits *lim)
{
    int widest = lim->hidden, rows = lim->max_rows > lim->max_out ? lim->max_rows : lim->max_out;

    if (lim->max_q_cols > widest)
        widest = lim->max_q_cols;
    if (lim->max_ffn > widest)
        widest = lim->max_ffn;
    return (lg_act_bytes(LG_ACT_Q32, widest) + lg_act_bytes(LG_ACT_Q256, widest)) * (size_t)rows +
           lg_product_tiles(widest) * (size_t)c->n_threads + 4096;
}
