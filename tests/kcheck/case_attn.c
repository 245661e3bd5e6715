/*
 * kcheck: qkv_post and attention through the backend's interface, against plain loops in double.
 *
 * The cache is filled through qkv_post in steps of random width over shuffled blocks, starting from NaN, so
 * that what must not be seen is noticed. Bits across widths, cuts and threads are test_attention's subject,
 * with long contexts; here it is every ISA level and the shapes at random.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kcheck.h"

enum { DIM_MAX = 128, CTX_MAX = 700, BLOCKS = CTX_MAX / LG_KV_BLOCK + 2 };

typedef struct attn_case {
    kc *t;
    lg_backend *b;
    lg_kv_class kv;
    lg_rope rope;
    int n_head, n, gate_cols; // positions; gate columns a head: 0, 1 or dim
    int32_t table[BLOCKS];
    float *q, *k, *v, *gate, *q_norm, *k_norm, *out;
    double *keys, *values; // [position][kv head][dim] as stored
} attn_case;

static float *some_floats(kc *t, size_t n, double size)
{
    float *p = malloc(n * sizeof *p);

    LG_ASSERT(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(kc_normal(t) * size);
    return p;
}

static void setup(attn_case *a, kc *t)
{
    static const int dims[] = {16, 32, 64, 128, 24};
    static const lg_qtype types[] = {LG_F32, LG_F16, LG_Q8_0};
    lg_kv_class *kv = &a->kv;
    int dim = dims[kc_int(t, 0, 4)], n_kv = 1 << kc_int(t, 0, 3);
    lg_qtype type = types[kc_int(t, 0, dim % 32 == 0 ? 2 : 1)];

    *a = (attn_case){.t = t, .n_head = n_kv * kc_int(t, 1, 9), .n = kc_int(t, 1, n_kv > 2 ? 200 : CTX_MAX)};
    a->gate_cols = (const int[]){0, 1, 1, dim}[kc_int(t, 0, 3)];
    *kv = (lg_kv_class){.id = LG_KV_FULL, .type = type, .n_layer = 2, .n_kv_head = n_kv, .head_dim = dim,
                        .n_blocks = BLOCKS};
    if (kc_int(t, 0, 1)) {
        kv->id = LG_KV_WINDOW;
        kv->window = kc_int(t, 1, 3) == 1 ? kc_int(t, 1, 20) : kc_int(t, 1, 600);
    }
    LG_ASSERT(lg_row_bytes(type, (uint64_t)dim, &kv->row_bytes));
    kv->tile_bytes = kv->row_bytes * LG_KV_BLOCK;
    kv->layer_bytes = 2 * kv->tile_bytes * (size_t)n_kv;
    kv->block_bytes = 2 * kv->layer_bytes;
    for (int i = 0; i < BLOCKS; i++) {
        int at = kc_int(t, 0, i);
        a->table[i] = a->table[at];
        a->table[at] = i;
    }
    a->rope = (lg_rope){.id = kc_int(t, 0, 2), .n_rot = kc_int(t, 1, dim / 2) * 2, .magnitude = 1.1f};
    for (int j = 0; j < a->rope.n_rot / 2; j++)
        a->rope.freq[j] = pow(1000.0, -2.0 * j / a->rope.n_rot);
    size_t rows = (size_t)a->n, q_cols = (size_t)(a->n_head * dim), kv_cols = (size_t)(n_kv * dim);
    a->q = some_floats(t, rows * q_cols, 2);
    a->k = some_floats(t, rows * kv_cols, 2);
    a->v = some_floats(t, rows * kv_cols, 2);
    a->gate = some_floats(t, rows * q_cols, 4);
    a->q_norm = some_floats(t, (size_t)dim, 1);
    a->k_norm = some_floats(t, (size_t)dim, 1);
    a->out = some_floats(t, rows * q_cols, 0);
    a->keys = calloc(rows * kv_cols, sizeof *a->keys);
    a->values = calloc(rows * kv_cols, sizeof *a->values);
    LG_ASSERT(a->keys && a->values);
    kc_label(t, "attention/%s dim %d heads %d/%d window %d gate %d positions %d",
             lg_qtype_get((uint32_t)type)->name, dim, a->n_head, n_kv, kv->window, a->gate_cols, a->n);
}

static void teardown(attn_case *a)
{
    free(a->q);
    free(a->k);
    free(a->v);
    free(a->gate);
    free(a->q_norm);
    free(a->k_norm);
    free(a->out);
    free(a->keys);
    free(a->values);
    if (a->b) {
        a->b->ops->release(a->b, &a->kv.mem);
        lg_backend_close(a->b);
    }
}

static bool open_backend(attn_case *a, int threads, int max_rows)
{
    lg_err err = {0};
    lg_backend_params p = {.device = "cpu", .threads = threads, .isa = a->t->isa};
    lg_limits lim = {.max_rows = max_rows,
                     .max_out = 1,
                     .max_cand = 1,
                     .hidden = 32,
                     .vocab = 32,
                     .max_ffn = 32,
                     .max_head = a->n_head,
                     .max_q_cols = a->n_head * a->kv.head_dim,
                     .max_expert = 1,
                     .max_k = 1,
                     .max_ctx = CTX_MAX};
    bool ok = lg_cpu_backend_create(&p, &a->b, &err) == LG_OK &&
              a->b->ops->prepare(a->b, &lim, &err) == LG_OK &&
              a->b->ops->alloc(a->b, BLOCKS * a->kv.block_bytes, &a->kv.mem, &err) == LG_OK;

    if (ok)
        memset(a->kv.mem.p, 0xFF, a->kv.mem.bytes);
    return kc_check(a->t, ok, "backend: %s", err.msg);
}

static lg_tensor rows_of(float *p, int first, int cols)
{
    return (lg_tensor){
        .p = p + (size_t)first * (size_t)cols, .cols = cols, .stride = cols, .rows = LG_ROWS_STEP};
}

static void step(attn_case *a, int pos, int n)
{
    int dim = a->kv.head_dim, q_cols = a->n_head * dim, kv_cols = a->kv.n_kv_head * dim;
    lg_step s = {.n_rows = n, .pos = pos};
    lg_weight q_norm = {.type = LG_F32, .n_in = dim, .n_out = 1, .data = a->q_norm}, k_norm = q_norm;
    lg_tensor q = rows_of(a->q, pos, q_cols), gate = {0};
    lg_begin how;

    k_norm.data = a->k_norm;
    s.table[a->kv.id] = a->table;
    s.n_table[a->kv.id] = BLOCKS;
    if (a->gate_cols)
        gate = rows_of(a->gate, pos, a->n_head * a->gate_cols);
    kc_check(a->t, a->b->ops->begin(a->b, lg_step_key(&s), &s, &how, NULL) == LG_OK, "begin");
    a->b->ops->qkv_post(a->b, &(lg_qkv_args){.q = q,
                                             .k = rows_of(a->k, pos, kv_cols),
                                             .v = rows_of(a->v, pos, kv_cols),
                                             .q_norm = &q_norm,
                                             .k_norm = &k_norm,
                                             .eps = 1e-6f,
                                             .rope = &a->rope,
                                             .kv = &a->kv,
                                             .kv_layer = 1,
                                             .n_head = a->n_head});
    a->b->ops->attention(a->b, &(lg_attn_args){.out = rows_of(a->out, pos, q_cols), .q = q, .gate = gate,
                                               .kv = &a->kv, .kv_layer = 1, .n_head = a->n_head});
    kc_check(a->t, a->b->ops->end(a->b, NULL) == LG_OK, "end");
}

static void turn(const attn_case *a, const float *x, const float *norm, int pos, double *out)
{
    int dim = a->kv.head_dim, half = a->rope.n_rot / 2;
    double squares = 0;

    for (int d = 0; d < dim; d++)
        squares += (double)x[d] * (double)x[d];
    for (int d = 0; d < dim; d++)
        out[d] = (double)x[d] / sqrt(squares / dim + 1e-6) * (double)norm[d];
    for (int j = 0; j < half; j++) {
        double angle = pos * a->rope.freq[j], u = out[j], v = out[j + half], m = (double)a->rope.magnitude;
        out[j] = (u * cos(angle) - v * sin(angle)) * m;
        out[j + half] = (v * cos(angle) + u * sin(angle)) * m;
    }
}

// What qkv_post left in the cache, after a check that it is x to the precision of the type.
static void read_back(attn_case *a, int pos, int head, int v, const double *x, double *out)
{
    const lg_kv_class *kv = &a->kv;
    float row[DIM_MAX];
    double top = 0, tolerance = kv->type == LG_F32 ? 2e-6 : kv->type == LG_F16 ? 6e-4 : 4.5e-3;

    lg_dequant_row(kv->type,
                   (const char *)kv->mem.p +
                       lg_kv_offset(kv, a->table[pos / LG_KV_BLOCK], 1, v, head, pos % LG_KV_BLOCK),
                   row, kv->head_dim);
    for (int d = 0; d < kv->head_dim; d++)
        top = fmax(top, fabs(x[d]));
    for (int d = 0; d < kv->head_dim; d++) {
        out[d] = (double)row[d];
        kc_check(a->t, fabs(out[d] - x[d]) <= tolerance * top,
                 "%s of position %d head %d dim %d is %.9g, not %.9g", v ? "value" : "key", pos, head, d,
                 out[d], x[d]);
    }
}

static void check_cache(attn_case *a, const float *k)
{
    size_t dim = (size_t)a->kv.head_dim;

    for (int i = 0; i < a->n * a->kv.n_kv_head; i++) {
        double key[DIM_MAX], value[DIM_MAX];
        int pos = i / a->kv.n_kv_head, head = i % a->kv.n_kv_head;

        turn(a, k + (size_t)i * dim, a->k_norm, pos, key);
        for (size_t d = 0; d < dim; d++)
            value[d] = (double)a->v[(size_t)i * dim + d];
        read_back(a, pos, head, 0, key, a->keys + (size_t)i * dim);
        read_back(a, pos, head, 1, value, a->values + (size_t)i * dim);
    }
}

// One head of one position from the cache's values.
static void check_head(attn_case *a, const float *q, int pos, int h)
{
    size_t dim = (size_t)a->kv.head_dim, at = ((size_t)pos * (size_t)a->n_head + (size_t)h) * dim;
    size_t row = (size_t)a->kv.n_kv_head * dim, head = (size_t)(h / (a->n_head / a->kv.n_kv_head)) * dim;
    int first = a->kv.window > 0 && pos >= a->kv.window ? pos - a->kv.window + 1 : 0;
    double query[DIM_MAX], out[DIM_MAX] = {0}, score[CTX_MAX], max = -INFINITY, sum = 0, top = 0;

    turn(a, q + at, a->q_norm, pos, query);
    for (int j = first; j <= pos; j++) {
        score[j] = 0;
        for (size_t d = 0; d < dim; d++)
            score[j] += query[d] * a->keys[(size_t)j * row + head + d];
        score[j] /= sqrt((double)dim);
        max = fmax(max, score[j]);
    }
    for (int j = first; j <= pos; j++) {
        double e = exp(score[j] - max);
        sum += e;
        for (size_t d = 0; d < dim; d++)
            out[d] += e * a->values[(size_t)j * row + head + d];
    }
    for (size_t d = 0; d < dim; d++) {
        double g = 1;
        if (a->gate_cols)
            g = log1p(exp((double)(a->gate_cols == 1 ? a->gate[pos * a->n_head + h] : a->gate[at + d])));
        out[d] *= g / sum;
        top = fmax(top, fabs(out[d]));
    }
    for (size_t d = 0; d < dim; d++)
        kc_check(a->t, fabs((double)a->out[at + d] - out[d]) <= 4e-6 * (top + 1e-3),
                 "position %d head %d dim %zu is %.9g, not %.9g", pos, h, d, (double)a->out[at + d], out[d]);
}

void kc_case_attention(kc *t)
{
    if (t->only)
        return;
    for (int i = 0; i < 24; i++) {
        attn_case a;
        int widest = kc_int(t, 1, 3) == 1 ? 16 : kc_int(t, 1, 300);

        setup(&a, t);
        size_t q_bytes = (size_t)(a.n * a.n_head * a.kv.head_dim) * sizeof(float);
        size_t k_bytes = (size_t)(a.n * a.kv.n_kv_head * a.kv.head_dim) * sizeof(float);
        float *q = malloc(q_bytes), *k = malloc(k_bytes); // the op changes its own
        LG_ASSERT(q && k);
        memcpy(q, a.q, q_bytes);
        memcpy(k, a.k, k_bytes);
        if (open_backend(&a, 1 + i % 3, widest)) {
            for (int pos = 0; pos < a.n;) {
                int n = kc_int(t, 1, widest);
                n = n < a.n - pos ? n : a.n - pos;
                step(&a, pos, n);
                pos += n;
            }
            check_cache(&a, k);
            for (int pos = 0; pos < a.n; pos += kc_int(t, 1, 1 + a.n / 8))
                for (int h = 0; h < a.n_head; h++)
                    check_head(&a, q, pos, h);
            for (int h = 0; h < a.n_head; h++)
                check_head(&a, q, a.n - 1, h);
        }
        free(q);
        free(k);
        teardown(&a);
    }
}
