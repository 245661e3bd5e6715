/*
 * backend/cpu/op_route: the router (f32 weights, f32 arithmetic) and SwiGLU on its own.
 *
 * A score decides which expert a token sees, so nothing is rounded here: the products use the F32 kernels,
 * the sigmoid is the stable form, with an exponential of our own that is the same on every system, and ties
 * go to the lower index. The order of the result is the order of every later sum.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/product.h"

enum {
    SERIAL_CHOICE = 4, // rows up to which the caller chooses alone, without a barrier
    CHUNK = 16,        // experts of a chunk, of which the largest score is kept
    TAKEN = INT32_MIN, // below the key of every score
    THREAD_ITEMS = 2,  // of a thread, at least: more would each read all activations once more
    ONE_ROWS = 4,      // of a unit with one column, which gemv takes together
};

typedef struct route_job {
    const lg_cpu *c;
    const lg_route_args *a;
    const float *bias; // or NULL
    int n_rows, n_expert;
    int unit_rows;     // router rows of a unit
    float *logits;     // [row][expert]; becomes probabilities
    int32_t *keys;     // of each thread: scores of a row, then the largest of each chunk
    lg_queue queue;
    char *tiles;
    size_t tiles_bytes;
} route_job;

static int n_chunks(int n_expert)
{
    return (n_expert + CHUNK - 1) / CHUNK;
}

static size_t key_count(int n_expert)
{
    return (size_t)n_chunks(n_expert) * (CHUNK + 1);
}

// exp(-a) for 0 <= a <= 110, to 2^-42: rounded to float it was the nearest one for each of 160 million tried
// (every seventh float).
static double exp_minus(double a)
{
    const double shift = 0x1.8p52; // added, leaves the nearest integer in the low bits
    double n = a * -0x1.71547652b82fep0 + shift, r = -a - (n - shift) * 0x1.62e42fefa39efp-1;
    double p = 1.0 / 3628800;
    uint64_t bits, power;

    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &n, sizeof power);
    bits += power << 52;
    memcpy(&p, &bits, sizeof p);
    return p;
}

// Choices on bits, so that the loop has no branches and compilers make vectors of it.
static void sigmoid(float *z, int n)
{
    const int32_t most = 0x42DC0000, infinity = 0x7F800000; // 110 as a float, beyond which exp(-z) is 0

    for (int i = 0; i < n; i++) {
        uint32_t bits = lg_f32_bits(z[i]), negative = 0u - (bits >> 31);
        int32_t size = (int32_t)(bits & INT32_MAX), a = size < most ? size : most;
        float e = (float)exp_minus((double)lg_f32_of_bits((uint32_t)a));
        float top = lg_f32_of_bits((lg_f32_bits(e) & negative) | (lg_f32_bits(1.0f) & ~negative));

        z[i] = lg_f32_of_bits(lg_f32_bits(top / (1.0f + e)) | (uint32_t)-(size > infinity)); // NaN stays NaN
    }
}

static void softmax(float *z, int n)
{
    float max = -INFINITY, sum = 0.0f;

    for (int i = 0; i < n; i++)
        max = z[i] > max ? z[i] : max;
    for (int i = 0; i < n; i++) {
        z[i] = expf(z[i] - max);
        sum += z[i];
    }
    for (int i = 0; i < n; i++)
        z[i] /= sum;
}

// Scores as integers of the same order, -inf for NaN, and TAKEN up to a whole number of chunks.
static void fill_keys(const route_job *j, const float *p, int32_t *key)
{
    const int32_t infinity = 0x7F800000;
    int n = j->n_expert;

    for (int e = 0; e < n; e++)
        key[e] = (int32_t)lg_f32_bits((j->bias ? p[e] + j->bias[e] : p[e]) + 0.0f); // no -0
    for (int e = 0; e < n; e++) {
        int32_t nan = -((key[e] & INT32_MAX) > infinity);
        int32_t v = (key[e] & ~nan) | ((infinity | INT32_MIN) & nan);

        key[e] = v ^ (v >> 31 & INT32_MAX);
    }
    for (int e = n; e < n_chunks(n) * CHUNK; e++)
        key[e] = TAKEN;
}

static int32_t largest(const int32_t *v, int n)
{
    int32_t most = TAKEN;

    for (int i = 0; i < n; i++)
        most = v[i] > most ? v[i] : most;
    return most;
}

static int first_of(const int32_t *v, int32_t wanted)
{
    int i = 0;

    while (v[i] != wanted)
        i++;
    return i;
}

// The k largest p + bias, descending, ties to the lower index. NaN counts as the smallest.
static void choose(const route_job *j, const float *p, int32_t *key, int32_t *ids, float *w)
{
    const lg_route_args *a = j->a;
    int k = a->out.k, chunks = n_chunks(j->n_expert);
    int32_t *most = key + chunks * CHUNK; // of each chunk
    float sum = 0.0f;

    fill_keys(j, p, key);
    for (int c = 0; c < chunks; c++)
        most[c] = largest(key + c * CHUNK, CHUNK);
    for (int i = 0; i < k; i++) {
        int c = first_of(most, largest(most, chunks)), at = first_of(key + c * CHUNK, most[c]);

        ids[i] = c * CHUNK + at;
        w[i] = p[ids[i]];
        sum += w[i];
        key[ids[i]] = TAKEN;
        most[c] = largest(key + c * CHUNK, CHUNK);
    }
    if (a->norm)
        for (int i = 0; i < k; i++)
            w[i] /= sum > 0x1p-14f ? sum : 0x1p-14f;
    for (int i = 0; i < k; i++)
        w[i] *= a->scale;
}

static void choose_rows(const route_job *j, int thread, int from, int to)
{
    int32_t *key = j->keys + (size_t)thread * key_count(j->n_expert);

    for (int r = from; r < to; r++) {
        float *p = j->logits + (size_t)r * (size_t)j->n_expert;
        size_t at = (size_t)r * (size_t)j->a->out.k;

        if (j->a->gating == LG_GATE_SOFTMAX)
            softmax(p, j->n_expert);
        else
            sigmoid(p, j->n_expert);
        choose(j, p, key, j->a->out.ids + at, j->a->out.w + at);
    }
}

// The first of the next *n router rows: one unit, or with one column a run of them.
static int64_t take_rows(route_job *j, int64_t *n)
{
    int64_t units = (j->n_expert + j->unit_rows - 1) / j->unit_rows;
    int64_t parts = j->n_rows == 1 ? LG_RUN_PART * j->c->n_threads : units + 1;
    int64_t row = lg_queue_take_part(&j->queue, units, parts, 1, n) * j->unit_rows;

    *n *= j->unit_rows;
    if (*n > j->n_expert - row)
        *n = j->n_expert - row;
    return row;
}

static void work(void *ctx, int thread, int n_threads)
{
    route_job *j = ctx;
    lg_acts x = {.p = (const uint8_t *)j->a->h.p, .stride = (size_t)j->a->h.stride * sizeof(float)};
    int64_t r, next, n, n_next;

    // Taken one ahead, so that the start of the next item is on its way while this one is read.
    for (r = take_rows(j, &n); n > 0; r = next, n = n_next) {
        next = take_rows(j, &n_next);
        lg_product(j->c, &(lg_product_args){.w = j->a->router,
                                            .row = (int)r,
                                            .n_rows = (int)n,
                                            .x = &x,
                                            .n_cols = j->n_rows,
                                            .y = j->logits + r,
                                            .y_stride = (size_t)j->n_expert,
                                            .next = lg_product_span(j->a->router, 0, next, (int)n_next),
                                            .tiles = j->tiles + (size_t)thread * j->tiles_bytes});
    }
    if (j->n_rows > SERIAL_CHOICE) {
        int64_t from, to;

        lg_pool_barrier(j->c->pool);
        lg_cpu_share(j->n_rows, 1, thread, n_threads, &from, &to);
        choose_rows(j, thread, (int)from, (int)to);
    }
}

void lg_cpu_route(lg_cpu *c, const lg_route_args *a)
{
    route_job j = {.c = c, .a = a, .n_rows = lg_cpu_rows(c, a->h.rows), .n_expert = a->router->n_out};
    char *at = c->scratch.p;

    if (j.n_rows == 0)
        return;
    LG_ASSERT(a->router->type == LG_F32 && a->router->n_in == a->h.cols && a->out.k <= j.n_expert);
    j.bias = a->bias ? a->bias->data : NULL;
    j.logits = lg_cpu_carve(&at, (size_t)j.n_rows * (size_t)j.n_expert * sizeof(float));
    j.keys = lg_cpu_carve(&at, key_count(j.n_expert) * sizeof(int32_t) * (size_t)c->n_threads);
    j.tiles_bytes = lg_product_tiles(a->h.cols);
    j.tiles = lg_cpu_carve(&at, j.tiles_bytes * (size_t)c->n_threads);
    (void)lg_cpu_scratch(c, (size_t)(at - (char *)c->scratch.p));

    j.unit_rows = j.n_rows == 1 ? ONE_ROWS : LG_TILE_ROWS;
    while (j.n_rows > LG_CPU_EXACT_ROWS && j.unit_rows < LG_BLOCK_ROWS &&
           j.n_expert / (2 * j.unit_rows) >= THREAD_ITEMS * c->n_threads)
        j.unit_rows *= 2;
    lg_queue_reset(&j.queue);
    lg_pool_run(c->pool, work, &j);
    if (j.n_rows <= SERIAL_CHOICE)
        choose_rows(&j, 0, 0, j.n_rows);
}

size_t lg_cpu_route_scratch(const lg_cpu *c, const lg_limits *lim)
{
    size_t threads = (size_t)c->n_threads;

    return (size_t)lim->max_rows * (size_t)lim->max_expert * sizeof(float) +
           (key_count(lim->max_expert) * sizeof(int32_t) + lg_product_tiles(lim->hidden)) * threads + 3 * 64;
}

typedef struct swiglu_job {
    const lg_cpu *c;
    const lg_tensor *out, *gate, *up;
    int n_rows;
} swiglu_job;

static void swiglu_work(void *ctx, int thread, int n_threads)
{
    const swiglu_job *j = ctx;
    int64_t from, to;

    // One row is split over the threads too: columns count through all rows.
    lg_cpu_share((int64_t)j->n_rows * j->out->cols, 64, thread, n_threads, &from, &to);
    while (from < to) {
        int r = (int)(from / j->out->cols), col = (int)(from % j->out->cols);
        int n = j->out->cols - col < to - from ? j->out->cols - col : (int)(to - from);

        j->c->k.swiglu(lg_cpu_row(j->gate, r) + col, lg_cpu_row(j->up, r) + col, lg_cpu_row(j->out, r) + col,
                       n);
        from += n;
    }
}

void lg_cpu_swiglu(lg_cpu *c, const lg_tensor *out, const lg_tensor *gate, const lg_tensor *up)
{
    swiglu_job j = {.c = c, .out = out, .gate = gate, .up = up, .n_rows = lg_cpu_rows(c, out->rows)};

    if (j.n_rows > 0)
        lg_pool_run(c->pool, swiglu_work, &j);
}
