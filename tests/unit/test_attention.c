/*
 * Attention of the CPU backend against plain loops in double, and against itself in bits.
 *
 * A run feeds a sequence in steps of given widths through qkv_post and attention and keeps every output row.
 * The cache starts full of NaN and its blocks are handed out in shuffled order and, in window layers, again
 * once they have left the window: a key that must not be seen, or a wrong block, shows at once.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"

typedef struct shape {
    int n_head, n_kv, dim, window, n_rot;
    lg_qtype type;
    int gate; // columns a head: 0 none, 1, or dim
} shape;

typedef struct sequence {
    shape s;
    int n;                  // positions
    float *q, *k, *v, *gate; // inputs, [position][columns]
    lg_rope rope;
    float q_norm[256], k_norm[256];
} sequence;

static uint64_t rng;

static double uniform(void) // -1 .. 1
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)rng / 9223372036854775808.0;
}

static float *random_floats(size_t n, double scale)
{
    float *p = malloc(n * sizeof *p + 1);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(uniform() * scale);
    return p;
}

static sequence make_sequence(shape s, int n)
{
    sequence q = {.s = s, .n = n};
    size_t rows = (size_t)n;

    q.q = random_floats(rows * (size_t)(s.n_head * s.dim), 3);
    q.k = random_floats(rows * (size_t)(s.n_kv * s.dim), 3);
    q.v = random_floats(rows * (size_t)(s.n_kv * s.dim), 3);
    q.gate = random_floats(rows * (size_t)(s.n_head * (s.gate ? s.gate : 1)), 5);
    q.rope = (lg_rope){.id = 1, .n_rot = s.n_rot, .magnitude = 1.25f};
    for (int j = 0; j < s.n_rot / 2; j++)
        q.rope.freq[j] = pow(10000.0, -2.0 * j / s.n_rot);
    for (int d = 0; d < s.dim; d++) {
        q.q_norm[d] = (float)(1 + 0.3 * uniform());
        q.k_norm[d] = (float)(1 + 0.3 * uniform());
    }
    return q;
}

static void free_sequence(sequence *q)
{
    free(q->q);
    free(q->k);
    free(q->v);
    free(q->gate);
}

/* ---- the reference ---- */

static void reference_head(const sequence *q, const float *x, const float *norm, int64_t pos, double *out)
{
    int dim = q->s.dim, half = q->s.n_rot / 2;
    double squares = 0;

    for (int d = 0; d < dim; d++)
        squares += (double)x[d] * x[d];
    for (int d = 0; d < dim; d++)
        out[d] = x[d] / sqrt(squares / dim + 1e-6) * norm[d];
    for (int j = 0; j < half; j++) {
        double angle = (double)pos * q->rope.freq[j], a = out[j], b = out[j + half];
        out[j] = (a * cos(angle) - b * sin(angle)) * q->rope.magnitude;
        out[j + half] = (b * cos(angle) + a * sin(angle)) * q->rope.magnitude;
    }
}

// What the cache is supposed to hold for one head of one position: rounded as its type rounds.
static void stored(const sequence *q, const double *x, double *out)
{
    float in[256], back[256];
    uint8_t packed[1024];

    for (int d = 0; d < q->s.dim; d++)
        in[d] = (float)x[d];
    if (q->s.type == LG_F32) {
        memcpy(back, in, sizeof back);
    } else {
        assert_true(lg_quant_row(q->s.type, in, packed, q->s.dim));
        lg_dequant_row(q->s.type, packed, back, q->s.dim);
    }
    for (int d = 0; d < q->s.dim; d++)
        out[d] = (double)back[d];
}

// All K and V as stored: [position][kv head][dim].
static void reference_cache(const sequence *q, double *keys, double *values)
{
    size_t dim = (size_t)q->s.dim;

    for (size_t i = 0; i < (size_t)(q->n * q->s.n_kv); i++) {
        double turned[256], plain[256];
        reference_head(q, q->k + i * dim, q->k_norm, (int64_t)i / q->s.n_kv, turned);
        stored(q, turned, keys + i * dim);
        for (size_t d = 0; d < dim; d++)
            plain[d] = (double)q->v[i * dim + d];
        stored(q, plain, values + i * dim);
    }
}

static void reference_row(const sequence *q, const double *keys, const double *values, int pos, int h,
                          double *out)
{
    const shape *s = &q->s;
    size_t dim = (size_t)s->dim, kv_cols = (size_t)(s->n_kv * s->dim),
           head = (size_t)(h / (s->n_head / s->n_kv));
    int first = s->window > 0 && pos - s->window + 1 > 0 ? pos - s->window + 1 : 0;
    double query[256], *p = malloc((size_t)(pos + 1) * sizeof *p), top = -INFINITY, sum = 0;

    reference_head(q, q->q + ((size_t)pos * (size_t)s->n_head + (size_t)h) * dim, q->q_norm, pos, query);
    memset(out, 0, dim * sizeof *out);
    for (int j = first; j <= pos; j++) {
        const double *key = keys + (size_t)j * kv_cols + head * dim;
        p[j] = 0;
        for (size_t d = 0; d < dim; d++)
            p[j] += query[d] * key[d];
        p[j] /= sqrt((double)s->dim);
        top = p[j] > top ? p[j] : top;
    }
    for (int j = first; j <= pos; j++) {
        const double *value = values + (size_t)j * kv_cols + head * dim;
        double e = exp(p[j] - top);
        sum += e;
        for (size_t d = 0; d < dim; d++)
            out[d] += e * value[d];
    }
    for (size_t d = 0; d < dim; d++) {
        size_t row = (size_t)pos * (size_t)s->n_head + (size_t)h;
        double g = s->gate ? (double)q->gate[row * (size_t)s->gate + (s->gate > 1 ? d : 0)] : 0;
        out[d] *= (s->gate ? log1p(exp(g)) : 1) / sum;
    }
    free(p);
}

/* ---- a run on the backend ---- */

typedef struct cache {
    lg_kv_class kv;
    int32_t *table, *spare;
    int n_table, n_spare;
} cache;

static cache make_cache(lg_backend *b, const shape *s, int n)
{
    cache c = {.n_table = n / LG_KV_BLOCK + 1};
    lg_kv_class *k = &c.kv;

    *k = (lg_kv_class){.id = s->window ? LG_KV_WINDOW : LG_KV_FULL,
                       .type = s->type,
                       .n_layer = 3,
                       .n_kv_head = s->n_kv,
                       .head_dim = s->dim,
                       .window = s->window,
                       .n_blocks = c.n_table + 3};
    assert_true(lg_row_bytes(s->type, (uint64_t)s->dim, &k->row_bytes));
    k->tile_bytes = k->row_bytes * LG_KV_BLOCK;
    k->layer_bytes = k->tile_bytes * 2 * (size_t)s->n_kv;
    k->block_bytes = k->layer_bytes * (size_t)k->n_layer;
    assert_int_equal(b->ops->alloc(b, (size_t)k->n_blocks * k->block_bytes, &k->mem, NULL), LG_OK);
    memset(k->mem.p, 0xFF, k->mem.bytes);
    c.table = malloc((size_t)c.n_table * sizeof *c.table);
    c.spare = malloc((size_t)k->n_blocks * sizeof *c.spare);
    for (int i = 0; i < c.n_table; i++)
        c.table[i] = -1;
    for (int i = 0; i < k->n_blocks; i++) {
        int at = (int)((uniform() + 1) / 2 * (i + 1)) % (i + 1);
        c.spare[i] = c.spare[at];
        c.spare[at] = i;
    }
    c.n_spare = k->n_blocks;
    return c;
}

// Blocks for [pos, pos + n), after those that no row from pos on can see were given back, filled with NaN
// again.
static void cover(cache *c, int pos, int n)
{
    for (int i = 0; i < c->n_table; i++) {
        if (c->kv.window && c->table[i] >= 0 && (i + 1) * LG_KV_BLOCK <= pos - c->kv.window + 1) {
            memset((char *)c->kv.mem.p + (size_t)c->table[i] * c->kv.block_bytes, 0xFF, c->kv.block_bytes);
            c->spare[c->n_spare++] = c->table[i];
            c->table[i] = -1;
        }
        if (c->table[i] < 0 && (i + 1) * LG_KV_BLOCK > pos && i * LG_KV_BLOCK < pos + n)
            c->table[i] = c->spare[--c->n_spare];
    }
}

static void drop_cache(lg_backend *b, cache *c)
{
    b->ops->release(b, &c->kv.mem);
    free(c->table);
    free(c->spare);
}

static lg_tensor rows_of(float *p, int cols)
{
    return (lg_tensor){.p = p, .cols = cols, .stride = cols, .rows = LG_ROWS_STEP};
}

static void step_rows(lg_backend *b, const sequence *q, cache *c, float *work_q, float *work_k, int pos,
                      int n, float *out)
{
    const shape *s = &q->s;
    size_t q_cols = (size_t)(s->n_head * s->dim), kv_cols = (size_t)(s->n_kv * s->dim);
    lg_step step = {.graph = LG_GRAPH_TARGET, .n_rows = n, .pos = pos};
    lg_weight q_norm = {.type = LG_F32, .n_in = s->dim, .n_out = 1, .data = q->q_norm}, k_norm = q_norm;
    lg_begin how;

    k_norm.data = q->k_norm;
    cover(c, pos, n);
    step.table[c->kv.id] = c->table;
    step.n_table[c->kv.id] = c->n_table;
    memcpy(work_q, q->q + (size_t)pos * q_cols, (size_t)n * q_cols * sizeof *work_q);
    memcpy(work_k, q->k + (size_t)pos * kv_cols, (size_t)n * kv_cols * sizeof *work_k);
    lg_tensor tq = rows_of(work_q, (int)q_cols), tk = rows_of(work_k, (int)kv_cols);
    lg_tensor tv = rows_of(q->v + (size_t)pos * kv_cols, (int)kv_cols), gate = {0};
    if (s->gate)
        gate = rows_of(q->gate + (size_t)pos * (size_t)(s->n_head * s->gate), s->n_head * s->gate);
    assert_int_equal(b->ops->begin(b, lg_step_key(&step), &step, &how, NULL), LG_OK);
    b->ops->qkv_post(b, &(lg_qkv_args){.q = tq,
                                       .k = tk,
                                       .v = tv,
                                       .q_norm = &q_norm,
                                       .k_norm = &k_norm,
                                       .eps = 1e-6f,
                                       .rope = &q->rope,
                                       .kv = &c->kv,
                                       .kv_layer = 1,
                                       .n_head = s->n_head});
    b->ops->attention(b, &(lg_attn_args){.out = rows_of(out + (size_t)pos * q_cols, (int)q_cols),
                                         .q = tq,
                                         .gate = gate,
                                         .kv = &c->kv,
                                         .kv_layer = 1,
                                         .n_head = s->n_head});
    assert_int_equal(b->ops->end(b, NULL), LG_OK);
}

// The whole sequence: `first` rows at once, then steps of `width`. Returns [position][n_head * dim].
static float *run(const sequence *q, const char *isa, int threads, int first, int width)
{
    const shape *s = &q->s;
    lg_backend *b = NULL;
    int most = first > width ? first : width;
    float *out = malloc((size_t)q->n * (size_t)(s->n_head * s->dim) * sizeof *out);
    float *work_q = malloc((size_t)most * (size_t)(s->n_head * s->dim) * sizeof *work_q);
    float *work_k = malloc((size_t)most * (size_t)(s->n_kv * s->dim) * sizeof *work_k);

    assert_int_equal(lg_cpu_backend_create(&(lg_backend_params){.threads = threads, .isa = isa}, &b, NULL),
                     LG_OK);
    lg_limits lim = {.max_rows = most,
                     .max_out = 1,
                     .max_cand = 1,
                     .hidden = 32,
                     .vocab = 32,
                     .max_head = s->n_head,
                     .max_q_cols = s->n_head * s->dim,
                     .max_ffn = 32,
                     .max_expert = 1,
                     .max_k = 1,
                     .max_ctx = q->n};
    assert_int_equal(b->ops->prepare(b, &lim, NULL), LG_OK);
    cache c = make_cache(b, s, q->n);
    for (int pos = 0; pos < q->n;) {
        int n = pos == 0 ? first : width;
        if (n > q->n - pos)
            n = q->n - pos;
        step_rows(b, q, &c, work_q, work_k, pos, n, out);
        pos += n;
    }
    drop_cache(b, &c);
    lg_backend_close(b);
    free(work_q);
    free(work_k);
    return out;
}

/* ---- cases ---- */

static const shape shapes[] = {
    {.n_head = 12, .n_kv = 2, .dim = 128, .window = 0, .n_rot = 64, .type = LG_F16, .gate = 1},
    {.n_head = 18, .n_kv = 2, .dim = 128, .window = 512, .n_rot = 128, .type = LG_F16, .gate = 1},
    {.n_head = 12, .n_kv = 2, .dim = 128, .window = 0, .n_rot = 64, .type = LG_F32, .gate = 1},
    {.n_head = 18, .n_kv = 2, .dim = 128, .window = 100, .n_rot = 128, .type = LG_F32, .gate = 1},
    {.n_head = 8, .n_kv = 1, .dim = 128, .window = 64, .n_rot = 128, .type = LG_Q8_0, .gate = 1},
    {.n_head = 12, .n_kv = 2, .dim = 64, .window = 0, .n_rot = 64, .type = LG_Q8_0, .gate = 64},
    {.n_head = 6, .n_kv = 2, .dim = 32, .window = 16, .n_rot = 32, .type = LG_F32, .gate = 1},
    {.n_head = 5, .n_kv = 1, .dim = 16, .window = 1, .n_rot = 16, .type = LG_F16, .gate = 0},
    {.n_head = 8, .n_kv = 8, .dim = 16, .window = 8, .n_rot = 8, .type = LG_F16, .gate = 16},
    {.n_head = 20, .n_kv = 1, .dim = 32, .window = 257, .n_rot = 16, .type = LG_F16, .gate = 1},
    {.n_head = 4, .n_kv = 2, .dim = 24, .window = 0, .n_rot = 24, .type = LG_F16, .gate = 1},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

// Instrumented code is thirty times slower, and looks for races and bad addresses: every fourth shape will
// do, and sequences that reach two spans (256 positions), so that the context is still cut into runs for
// the threads.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define INSTRUMENTED 1
#endif
#endif
#ifndef INSTRUMENTED
#define INSTRUMENTED 0
#endif
enum { SHAPE_STEP = INSTRUMENTED ? 4 : 1 };

static const char *const levels[] = {"c", "avx2", "avx512vnni", "neon"};

static bool have(const char *isa)
{
    lg_backend *b = NULL;
    bool ok = lg_cpu_backend_create(&(lg_backend_params){.threads = 1, .isa = isa}, &b, NULL) == LG_OK;

    lg_backend_close(b);
    return ok;
}

// Outputs of `got` at every position against the reference: errors relative to the largest value of the row.
static void compare(const sequence *q, const float *got, int stride, const char *isa)
{
    const shape *s = &q->s;
    size_t kv = (size_t)q->n * (size_t)(s->n_kv * s->dim);
    double *keys = malloc(kv * sizeof *keys), *values = malloc(kv * sizeof *values), want[256], worst = 0;
    // a stored value on the edge between two roundings may fall to either side, in the reference or in the op
    double tolerance = s->type == LG_F32 ? 3e-6 : s->type == LG_F16 ? 3e-4 : 4e-3;

    reference_cache(q, keys, values);
    for (int pos = 0; pos < q->n; pos += pos % 64 > 60 || pos > q->n - 20 ? 1 : stride)
        for (int h = 0; h < s->n_head; h++) {
            const float *row = got + ((size_t)pos * (size_t)s->n_head + (size_t)h) * (size_t)s->dim;
            double top = 0;
            reference_row(q, keys, values, pos, h, want);
            for (int d = 0; d < s->dim; d++)
                top = fabs(want[d]) > top ? fabs(want[d]) : top;
            for (int d = 0; d < s->dim; d++) {
                double e = fabs((double)row[d] - want[d]) / (top + 1e-3);
                if (!(e <= tolerance))
                    fail_msg("%s, window %d, dim %d, %s: position %d head %d: %g, want %g", isa, s->window,
                             s->dim, lg_qtype_get(s->type)->name, pos, h, (double)row[d], want[d]);
                worst = e > worst ? e : worst;
            }
        }
    free(keys);
    free(values);
}

static void test_reference(void **state)
{
    (void)state;
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        if (!have(levels[l]))
            continue;
        for (int i = SHAPE_STEP / 2; i < N_SHAPES; i += SHAPE_STEP) {
            rng = 1000 + (uint64_t)i;
            bool slow = INSTRUMENTED || strcmp(levels[l], "c") == 0;
            sequence q = make_sequence(shapes[i], slow ? 330 : 1100);
            float *out = run(&q, levels[l], 2, slow ? 250 : 700, 3);
            compare(&q, out, 13, levels[l]);
            free(out);
            free_sequence(&q);
        }
    }
}

static void expect_same(const sequence *q, const float *a, const float *b, const char *what, int n)
{
    size_t cols = (size_t)(q->s.n_head * q->s.dim);

    for (size_t i = 0; i < (size_t)q->n * cols; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s %d: position %zu differs: %a, %a", what, n, i / cols, (double)a[i], (double)b[i]);
}

// One row at a time, 2 .. 16 at a time, a chunk: the same bits, across the start of a span at 768 (256 where
// instrumented). Likewise 1 .. 4 threads.
static void test_bits(void **state)
{
    static const int widths[] = {2, 3, 5, 7, 8, 11, 15, 16, 33, 300};
    const int first = INSTRUMENTED ? 230 : 740, n = INSTRUMENTED ? 280 : 860;

    (void)state;
    for (int i = SHAPE_STEP / 2; i < N_SHAPES; i += SHAPE_STEP) {
        rng = 2000 + (uint64_t)i;
        sequence q = make_sequence(shapes[i], n);
        float *one = run(&q, "", 1, first, 1);
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w += INSTRUMENTED ? 3 : 1) {
            float *other = run(&q, "", 1 + (int)w % 4, first, widths[w]);
            expect_same(&q, one, other, "width", widths[w]);
            free(other);
        }
        for (int threads = 2; threads <= 4; threads++) {
            float *other = run(&q, "", threads, first, 1);
            expect_same(&q, one, other, "threads", threads);
            free(other);
        }
        free(one);
        free_sequence(&q);
    }
}

// First chunks of every awkward length give what one-row steps give.
static void test_chunks(void **state)
{
    static const int firsts[] = {1, 7, 63, 64, 65, 255, 256, 257, 511, 512, 513, 600};
    static const int picked[] = {3, 1, 9};

    (void)state;
    for (size_t i = 0; i < sizeof picked / sizeof *picked; i += SHAPE_STEP) {
        rng = 3000 + (uint64_t)i;
        sequence q = make_sequence(shapes[picked[i]], INSTRUMENTED ? 300 : 600);
        float *whole = run(&q, "", 2, 1, 1);
        for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f += INSTRUMENTED ? 2 : 1) {
            if (firsts[f] > q.n)
                break;
            float *other = run(&q, "", 2, firsts[f], 64);
            expect_same(&q, whole, other, "first chunk", firsts[f]);
            free(other);
        }
        free(whole);
        free_sequence(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_chunks),
    };

    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
