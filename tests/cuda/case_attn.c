/*
 * tests/cuda: qkv_post and attention, with a cache that starts from NaN in shuffled blocks, and moves of its
 * rows.
 *
 * The first `lead` positions of a window case that begins far up are zeros: what lies before them is in no
 * block. Cases from FOLLOWS on have shapes of published models, and steps of follow-ups above all.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu.h"

enum { DIM_MAX = 128, CTX_MAX = 1400, BLOCKS = CTX_MAX / LG_KV_BLOCK + 3, FAR = 1562 * LG_KV_BLOCK };
enum { FOLLOWS = 24, CASES = 40, OUT_COLS = 48 };

typedef struct attn {
    gpu *g;
    lg_kv_class kv;
    lg_rope rope;
    int n_head, n, lead, base, gate_cols;
    int32_t *table;
    wt q_norm, k_norm, product; // product: of out, in FOLLOWS
    dev q, k, v, gate, out;     // [position]
    float *k0, *q0;             // as drawn
    uint8_t *cache;
    double *keys, *values;
} attn;

static void setup(attn *a, gpu *g, int i)
{
    static const int dims[] = {128, 128, 128, 32, 64, 24};
    static const lg_qtype types[] = {LG_F16, LG_Q8_0, LG_F32};
    kc *t = &g->k;
    lg_kv_class *kv = &a->kv;
    bool follows = i >= FOLLOWS;
    int dim = follows ? 128 : dims[i % 6], n_kv = kc_int(t, 1, follows ? 6 : 3);
    lg_qtype type = types[follows ? 0 : i % 4 == 3 ? 2 : i % 4 == 2 && dim % 32 == 0 ? 1 : 0];

    *a = (attn){.g = g, .n_head = n_kv * (i % 5 == 0 ? 9 : i % 5 == 1 ? 6 : kc_int(t, 1, follows ? 10 : 20)),
                .n = kc_int(t, 1, i % 3 ? CTX_MAX : 300)};
    a->gate_cols = (const int[]){1, 0, 1, dim}[kc_int(t, 0, 3)];
    *kv = (lg_kv_class){.id = LG_KV_FULL, .type = type, .n_layer = 2, .n_kv_head = n_kv, .head_dim = dim,
                        .n_blocks = BLOCKS};
    if (i % 2) {
        kv->id = LG_KV_WINDOW;
        kv->window = i % 4 == 1 ? 512 : kc_int(t, 1, 700);
        if (i % 8 > 3) {
            a->base = FAR;
            a->lead = (kv->window + 63) / 64 * 64;
            a->n = a->n < CTX_MAX - a->lead ? a->n + a->lead : CTX_MAX;
        }
    }
    LG_ASSERT(lg_row_bytes(type, (uint64_t)dim, &kv->row_bytes));
    kv->tile_bytes = kv->row_bytes * LG_KV_BLOCK;
    kv->layer_bytes = 2 * kv->tile_bytes * (size_t)n_kv;
    kv->block_bytes = 2 * kv->layer_bytes;
    a->table = malloc((size_t)(a->base / LG_KV_BLOCK + BLOCKS) * sizeof *a->table);
    LG_ASSERT(a->table);
    for (int b = 0; b < a->base / LG_KV_BLOCK; b++)
        a->table[b] = -1;
    for (int b = 0; b < BLOCKS; b++) {
        int32_t *mine = a->table + a->base / LG_KV_BLOCK;
        int at = kc_int(t, 0, b);
        mine[b] = mine[at];
        mine[at] = b;
    }
    int n_rot = follows ? dim >> kc_int(t, 0, 1) : kc_int(t, 1, dim / 2) * 2;
    a->rope = (lg_rope){.id = kc_int(t, 0, 2), .n_rot = n_rot, .magnitude = 1.1f};
    for (int j = 0; j < a->rope.n_rot / 2; j++)
        a->rope.freq[j] = pow(1000.0, -2.0 * j / a->rope.n_rot);
    a->q_norm = wt_vector(g, dim, 0, 1);
    a->k_norm = wt_vector(g, dim, 0, 1);
    int rows = a->n;
    a->q = dev_random(g, rows, a->n_head * dim + 1, LG_ROWS_STEP, 0); // + PAD: a multiple of 4
    a->q.t.cols--;
    a->k = dev_random(g, rows, n_kv * dim + follows, LG_ROWS_STEP, 0);
    a->v = dev_random(g, rows, n_kv * dim + follows, LG_ROWS_STEP, 0);
    a->k.t.cols = a->v.t.cols = n_kv * dim;
    if (follows)
        a->product = wt_random(g, LG_Q8_0, LG_USE_LINEAR, a->n_head * dim, OUT_COLS, 1, 0);
    a->gate = dev_random(g, rows, a->n_head * (a->gate_cols ? a->gate_cols : 1), LG_ROWS_STEP, 0);
    a->out = dev_new(g, rows, a->n_head * dim, LG_ROWS_STEP);
    size_t bytes = BLOCKS * kv->block_bytes;
    a->cache = malloc(bytes);
    a->k0 = malloc(a->k.mem.bytes);
    a->q0 = malloc(a->q.mem.bytes);
    a->keys = calloc((size_t)(rows * n_kv * dim) * 2, sizeof *a->keys);
    LG_ASSERT(a->cache && a->k0 && a->q0 && a->keys);
    a->values = a->keys + (size_t)(rows * n_kv * dim);
    memcpy(a->k0, a->k.host, a->k.mem.bytes);
    memcpy(a->q0, a->q.host, a->q.mem.bytes);
    memset(a->cache, 0xFF, bytes);
    for (int b = 0; b < a->lead / LG_KV_BLOCK; b++)
        memset(a->cache + (size_t)a->table[a->base / LG_KV_BLOCK + b] * kv->block_bytes, 0, kv->block_bytes);
    kv->mem = mem_of(g, a->cache, bytes);
    kc_label(t, "attention/%s dim %d heads %d/%d window %d gate %d positions %d from %d",
             lg_qtype_get((uint32_t)type)->name, dim, a->n_head, n_kv, kv->window, a->gate_cols, a->n,
             a->base);
}

static void teardown(attn *a)
{
    gpu *g = a->g;

    g->b->ops->release(g->b, &a->kv.mem);
    wt_free(g, &a->q_norm);
    wt_free(g, &a->k_norm);
    if (a->product.stored)
        wt_free(g, &a->product);
    dev_free(g, &a->q);
    dev_free(g, &a->k);
    dev_free(g, &a->v);
    dev_free(g, &a->gate);
    dev_free(g, &a->out);
    free(a->table);
    free(a->cache);
    free(a->k0);
    free(a->q0);
    free(a->keys);
}

static lg_tensor from_row(const dev *d, int r)
{
    lg_tensor t = d->t;

    t.p += (size_t)r * (size_t)t.stride;
    return t;
}

static lg_step step_at(attn *a, int at, int n)
{
    lg_step s = {.n_rows = n, .pos = a->base + at};

    s.table[a->kv.id] = a->table;
    s.n_table[a->kv.id] = a->base / LG_KV_BLOCK + BLOCKS;
    return s;
}

static lg_attn_args attn_args(attn *a, int at, const dev *out, int out_row)
{
    lg_attn_args args = {.out = from_row(out, out_row), .q = from_row(&a->q, at), .kv = &a->kv, .kv_layer = 1,
                         .n_head = a->n_head};

    if (a->gate_cols)
        args.gate = from_row(&a->gate, at);
    return args;
}

// The product of the rows' results once more, in a step of its own, must have the bits of y.
static void check_codes(attn *a, int at, int n, dev *y)
{
    lg_step s = step_at(a, at, n);
    lg_tensor out = from_row(&a->out, at);
    dev again = dev_new(a->g, n, OUT_COLS, LG_ROWS_STEP);

    gpu_begin(a->g, &s);
    a->g->b->ops->linear(a->g->b, &out, &(lg_part){again.t, &a->product.w}, 1);
    gpu_end(a->g);
    dev_fetch(a->g, y);
    dev_fetch(a->g, &again);
    for (int r = 0; r < n; r++)
        if (!kc_check(&a->g->k, memcmp(dev_row(y, r), dev_row(&again, r), OUT_COLS * sizeof(float)) == 0,
                      "position %d of a step of %d is quantised otherwise than it is", at + r, n))
            break;
    dev_free(a->g, &again);
}

static void run_step(attn *a, int at, int n)
{
    lg_step s = step_at(a, at, n);
    lg_attn_args args = attn_args(a, at, &a->out, at);
    dev y = {0};

    if (a->product.stored)
        y = dev_new(a->g, n, OUT_COLS, LG_ROWS_STEP);
    gpu_begin(a->g, &s);
    a->g->b->ops->qkv_post(a->g->b, &(lg_qkv_args){.q = args.q,
                                                   .k = from_row(&a->k, at),
                                                   .v = from_row(&a->v, at),
                                                   .q_norm = &a->q_norm.w,
                                                   .k_norm = &a->k_norm.w,
                                                   .eps = 1e-6f,
                                                   .rope = &a->rope,
                                                   .kv = &a->kv,
                                                   .kv_layer = 1,
                                                   .n_head = a->n_head});
    a->g->b->ops->attention(a->g->b, &args);
    if (a->product.stored)
        a->g->b->ops->linear(a->g->b, &args.out, &(lg_part){y.t, &a->product.w}, 1);
    gpu_end(a->g);
    if (a->product.stored) {
        check_codes(a, at, n, &y);
        dev_free(a->g, &y);
    }
}

static void turn(const attn *a, const float *x, const float *norm, int pos, double *out)
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

static void read_back(attn *a, int at, int head, int v, const double *x, double *out)
{
    const lg_kv_class *kv = &a->kv;
    float row[DIM_MAX];
    double top = 0, tolerance = kv->type == LG_F32 ? 2e-6 : kv->type == LG_F16 ? 6e-4 : 5e-3;
    int pos = a->base + at;

    lg_dequant_row(kv->type,
                   a->cache + lg_kv_offset(kv, a->table[pos / LG_KV_BLOCK], 1, v, head, pos % LG_KV_BLOCK),
                   row, kv->head_dim);
    for (int d = 0; d < kv->head_dim; d++)
        top = fmax(top, fabs(x[d]));
    for (int d = 0; d < kv->head_dim; d++) {
        out[d] = (double)row[d];
        if (!kc_check(&a->g->k, fabs(out[d] - x[d]) <= tolerance * top,
                      "%s of position %d head %d dim %d: %.9g, not %.9g", v ? "value" : "key", at, head, d,
                      out[d], x[d]))
            return;
    }
}

static void check_cache(attn *a)
{
    int dim = a->kv.head_dim, n_kv = a->kv.n_kv_head;

    (void)a->g->b->ops->download(a->g->b, a->kv.mem.p, a->cache, BLOCKS * a->kv.block_bytes, NULL);
    for (int at = a->lead; at < a->n; at++)
        for (int h = 0; h < n_kv; h++) {
            double key[DIM_MAX], value[DIM_MAX];
            size_t to = ((size_t)at * (size_t)n_kv + (size_t)h) * (size_t)dim;
            turn(a, a->k0 + (size_t)at * (size_t)a->k.t.stride + h * dim, a->k_norm.f, a->base + at, key);
            for (int d = 0; d < dim; d++)
                value[d] = (double)dev_row(&a->v, at)[h * dim + d];
            read_back(a, at, h, 0, key, a->keys + to);
            read_back(a, at, h, 1, value, a->values + to);
        }
}

// f16 tensor cores round the scaled query and the probabilities; the rest is f32.
static void check_head(attn *a, int at, int h)
{
    int dim = a->kv.head_dim, n_kv = a->kv.n_kv_head, pos = a->base + at, head = h / (a->n_head / n_kv);
    int first = a->kv.window > 0 && pos >= a->kv.window ? pos - a->kv.window + 1 - a->base : 0;
    bool tensor = dim == 128 && a->kv.type != LG_F32;
    double query[DIM_MAX], out[DIM_MAX] = {0}, score[CTX_MAX], max = -INFINITY, sum = 0, top = 0;

    turn(a, a->q0 + (size_t)at * (size_t)a->q.t.stride + h * dim, a->q_norm.f, pos, query);
    for (int d = 0; tensor && d < dim; d++)
        query[d] =
            (double)lg_f16_to_f32(lg_f32_to_f16((float)query[d] / sqrtf((float)dim))) * sqrt((double)dim);
    for (int j = first; j <= at; j++) {
        score[j] = 0;
        for (int d = 0; d < dim; d++)
            score[j] +=
                query[d] * a->keys[((size_t)j * (size_t)n_kv + (size_t)head) * (size_t)dim + (size_t)d];
        score[j] /= sqrt((double)dim);
        max = fmax(max, score[j]);
    }
    for (int j = first; j <= at; j++) {
        double e = exp(score[j] - max);
        sum += e;
        for (int d = 0; d < dim; d++)
            out[d] += e * a->values[((size_t)j * (size_t)n_kv + (size_t)head) * (size_t)dim + (size_t)d];
    }
    for (int d = 0; d < dim; d++) {
        double g = 1;
        if (a->gate_cols)
            g = log1p(exp((double)dev_row(&a->gate, at)[a->gate_cols == 1 ? h : h * dim + d]));
        out[d] *= g / sum;
        top = fmax(top, fabs(out[d]));
    }
    for (int d = 0; d < dim; d++) {
        double got = (double)dev_row(&a->out, at)[h * dim + d], bound = (tensor ? 3e-3 : 2e-5) * (top + 1e-3);
        if (!kc_check(&a->g->k, fabs(got - out[d]) <= bound,
                      "position %d head %d dim %d is %.9g, not %.9g (bound %.2g)", at, h, d, got, out[d],
                      bound))
            return;
    }
}

// Attention of the last rows again, alone and as 16: the same bits.
static void check_widths(attn *a)
{
    int n = a->n - a->lead < EXACT_ROWS ? a->n - a->lead : EXACT_ROWS, at = a->n - n;
    dev wide = dev_new(a->g, n, a->out.t.cols, LG_ROWS_STEP),
        one = dev_new(a->g, 1, a->out.t.cols, LG_ROWS_STEP);
    lg_step s = step_at(a, at, n);
    lg_attn_args args = attn_args(a, at, &wide, 0);
    int r = kc_int(&a->g->k, 0, n - 1);

    gpu_begin(a->g, &s);
    a->g->b->ops->attention(a->g->b, &args);
    gpu_end(a->g);
    s = step_at(a, at + r, 1);
    args = attn_args(a, at + r, &one, 0);
    gpu_begin(a->g, &s);
    a->g->b->ops->attention(a->g->b, &args);
    gpu_end(a->g);
    dev_fetch(a->g, &wide);
    dev_fetch(a->g, &one);
    kc_check(&a->g->k, memcmp(one.host, dev_row(&wide, r), (size_t)one.t.cols * sizeof(float)) == 0,
             "row %d of %d has other bits alone", r, n);
    dev_check_pad(a->g, &wide, "attention");
    dev_free(a->g, &wide);
    dev_free(a->g, &one);
}

// Rows of one block to another and, overlapping, within one.
static void check_moves(attn *a)
{
    const lg_kv_class *kv = &a->kv;
    size_t bytes = BLOCKS * kv->block_bytes;
    uint8_t *want = malloc(bytes), *got = malloc(bytes);
    lg_kv_copy moves[3] = {{0, 3, 2, 10, 20}, {1, 0, 1, 5, 50}, {2, 10, 0, 0, 54}};

    LG_ASSERT(want && got);
    (void)a->g->b->ops->download(a->g->b, kv->mem.p, want, bytes, NULL);
    for (int i = 0; i < 3; i++)
        for (int layer = 0; layer < 2; layer++)
            for (int v = 0; v < 2; v++)
                for (int h = 0; h < kv->n_kv_head; h++)
                    memmove(want + lg_kv_offset(kv, moves[i].dst_block, layer, v, h, moves[i].dst_row),
                            want + lg_kv_offset(kv, moves[i].src_block, layer, v, h, moves[i].src_row),
                            (size_t)moves[i].rows * kv->row_bytes);
    a->g->b->ops->kv_move(a->g->b, kv, moves, 3);
    (void)a->g->b->ops->download(a->g->b, kv->mem.p, got, bytes, NULL);
    kc_check(&a->g->k, memcmp(want, got, bytes) == 0, "rows moved wrongly");
    free(want);
    free(got);
}

void gpu_case_attention(gpu *g)
{
    for (int i = 0; i < CASES; i++) {
        attn a;
        int widest = i >= FOLLOWS ? CODE_ROWS : i % 3 == 0 ? EXACT_ROWS : kc_int(&g->k, 1, 400);

        setup(&a, g, i);
        for (int at = a.lead; at < a.n;) {
            int n = kc_int(&g->k, 1, widest);
            n = n < a.n - at ? n : a.n - at;
            run_step(&a, at, n);
            at += n;
        }
        dev_fetch(g, &a.out);
        check_cache(&a);
        for (int at = a.lead; at < a.n; at += kc_int(&g->k, 1, 1 + a.n / 8))
            for (int h = 0; h < a.n_head; h++)
                check_head(&a, at, h);
        for (int h = 0; h < a.n_head; h++)
            check_head(&a, a.n - 1, h);
        check_widths(&a);
        check_moves(&a);
        teardown(&a);
    }
}
