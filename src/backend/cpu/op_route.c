/*
 * backend/cpu/op_route: the router (f32 weights, f32 arithmetic) and SwiGLU on its own.
 *
 * A score decides which expert a token sees, so nothing is rounded here: the products use the F32 kernels,
 * the sigmoid is the stable form, and ties go to the lower index. The order of the result is the order of
 * every later sum.
 */
#include <math.h>

#include "backend/cpu/product.h"

enum { ROUTE_ROWS = 16 }; // router rows of an item
enum { SERIAL_CHOICE = 4 }; // rows up to which the caller chooses alone, without a barrier

typedef struct route_job {
    const lg_cpu *c;
    const lg_route_args *a;
    const float *bias; // or NULL
    int n_rows, n_expert;
    float *logits;     // [row][expert]; becomes probabilities
    lg_queue queue;
    char *tiles;
    size_t tiles_bytes;
} route_job;

static float sigmoid(float z)
{
    float e = expf(-fabsf(z));

    return z < 0.0f ? e / (1.0f + e) : 1.0f / (1.0f + e);
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

// The k largest p + bias, descending, ties to the lower index. NaN counts as the smallest.
static void choose(const route_job *j, const float *p, int32_t *ids, float *w)
{
    const lg_route_args *a = j->a;
    int k = a->out.k, held = 0;
    float sum = 0.0f;

    for (int e = 0; e < j->n_expert; e++) {
        float score = j->bias ? p[e] + j->bias[e] : p[e];
        int at = held;

        if (score != score)
            score = -INFINITY;
        while (at > 0 && score > w[at - 1])
            at--;
        if (at == k)
            continue;
        held += held < k;
        for (int i = held - 1; i > at; i--) {
            ids[i] = ids[i - 1];
            w[i] = w[i - 1];
        }
        ids[at] = e;
        w[at] = score;
    }
    for (int i = 0; i < k; i++) {
        w[i] = p[ids[i]];
        sum += w[i];
    }
    if (a->norm)
        for (int i = 0; i < k; i++)
            w[i] /= sum > 0x1p-14f ? sum : 0x1p-14f;
    for (int i = 0; i < k; i++)
        w[i] *= a->scale;
}

static void choose_rows(const route_job *j, int from, int to)
{
    for (int r = from; r < to; r++) {
        float *p = j->logits + (size_t)r * (size_t)j->n_expert;
        size_t at = (size_t)r * (size_t)j->a->out.k;

        if (j->a->gating == LG_GATE_SOFTMAX)
            softmax(p, j->n_expert);
        else
            for (int e = 0; e < j->n_expert; e++)
                p[e] = sigmoid(p[e]);
        choose(j, p, j->a->out.ids + at, j->a->out.w + at);
    }
}

static void work(void *ctx, int thread, int n_threads)
{
    route_job *j = ctx;
    lg_acts x = {.p = (const uint8_t *)j->a->h.p, .stride = (size_t)j->a->h.stride * sizeof(float)};

    // Taken one ahead, so that the start of the next item is on its way while this one is read.
    for (int64_t next, r = lg_queue_take(&j->queue, ROUTE_ROWS); r < j->n_expert; r = next) {
        int n = j->n_expert - (int)r < ROUTE_ROWS ? j->n_expert - (int)r : ROUTE_ROWS;

        next = lg_queue_take(&j->queue, ROUTE_ROWS);
        lg_product(j->c, &(lg_product_args){.w = j->a->router,
                                            .row = (int)r,
                                            .n_rows = n,
                                            .x = &x,
                                            .n_cols = j->n_rows,
                                            .y = j->logits + r,
                                            .y_stride = (size_t)j->n_expert,
                                            .next = lg_product_span(j->a->router, 0, next, ROUTE_ROWS),
                                            .tiles = j->tiles + (size_t)thread * j->tiles_bytes});
    }
    if (j->n_rows > SERIAL_CHOICE) {
        int64_t from, to;

        lg_pool_barrier(j->c->pool);
        lg_cpu_share(j->n_rows, 1, thread, n_threads, &from, &to);
        choose_rows(j, (int)from, (int)to);
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
    j.tiles_bytes = lg_product_tiles(a->h.cols);
    j.tiles = lg_cpu_carve(&at, j.tiles_bytes * (size_t)c->n_threads);
    (void)lg_cpu_scratch(c, (size_t)(at - (char *)c->scratch.p));

    lg_queue_reset(&j.queue);
    lg_pool_run(c->pool, work, &j);
    if (j.n_rows <= SERIAL_CHOICE)
        choose_rows(&j, 0, j.n_rows);
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
