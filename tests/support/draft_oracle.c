/*
 * tests/support/draft_oracle: see draft_oracle.h. Every matrix is dequantized when it is used; speed does not
 * matter here.
 */
#include "support/draft_oracle.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double theta = 500000; // of every Laguna drafter

typedef struct buffers {
    double *c, *z, *x, *h, *q, *k, *v, *gate, *att, *y, *up, *act; // c and z: of the context
    double *score;
} buffers;

// All values of a tensor as floats; NULL when it is missing.
static float *load(const lg_gguf *g, uint64_t ne[2], const char *form, ...)
{
    char name[96];
    va_list args;

    va_start(args, form);
    (void)vsnprintf(name, sizeof name, form, args);
    va_end(args);
    const lg_gguf_tensor *t = lg_gguf_find_tensor(g, lg_str_of(name));
    if (!t) {
        (void)fprintf(stderr, "draft_oracle: no tensor %s\n", name);
        return NULL;
    }
    ne[0] = t->ne[0], ne[1] = t->ne[1];
    float *v = malloc(ne[0] * ne[1] * sizeof *v);
    if (v)
        lg_dequant_row(t->type, t->data, v, (int64_t)(ne[0] * ne[1]));
    return v;
}

// y[r] = W x[r] for n rows; layer < 0: the name is whole
static bool project(const lg_gguf *g, int layer, const char *name, const double *x, int n, double *y)
{
    uint64_t ne[2];
    float *w = layer < 0 ? load(g, ne, "%s", name) : load(g, ne, "blk.%d.%s", layer, name);

    for (size_t r = 0; w && r < (size_t)n; r++)
        for (size_t j = 0; j < ne[1]; j++) {
            double sum = 0;
            for (size_t i = 0; i < ne[0]; i++)
                sum += (double)w[j * ne[0] + i] * x[r * ne[0] + i];
            y[r * ne[1] + j] = sum;
        }
    free(w);
    return w != NULL;
}

// n rows as wide as the tensor, whose row `at` holds the weights; x and y may be the same
static bool norm(const draft_oracle *o, int layer, const char *name, size_t at, const double *x, int n,
                 double *y)
{
    uint64_t ne[2];
    float *w = layer < 0 ? load(o->draft, ne, "%s", name) : load(o->draft, ne, "blk.%d.%s", layer, name);

    for (size_t r = 0; w && r < (size_t)n; r++) {
        double sum = 0;
        for (size_t i = 0; i < ne[0]; i++)
            sum += x[r * ne[0] + i] * x[r * ne[0] + i];
        for (size_t i = 0; i < ne[0]; i++)
            y[r * ne[0] + i] = x[r * ne[0] + i] / sqrt(sum / (double)ne[0] + (double)o->hp->eps) *
                               (double)w[at * ne[0] + i];
    }
    free(w);
    return w != NULL;
}

// Heads of n rows, the first of them at position `pos`.
static void rotate(const draft_oracle *o, double *x, int n, int n_head, int pos)
{
    int D = o->hp->head_dim, half = D / 2;

    for (int r = 0; r < n; r++)
        for (int head = 0; head < n_head; head++)
            for (int j = 0; j < half; j++) {
                double *v = x + ((size_t)r * (size_t)n_head + (size_t)head) * (size_t)D + j;
                double angle = (pos + r - o->from) * pow(theta, -2.0 * j / D), a = v[0], b = v[half];
                v[0] = a * cos(angle) - b * sin(angle);
                v[half] = b * cos(angle) + a * sin(angle);
            }
}

// The context vector of every token: a norm for each tap, the product with all of them side by side, a norm.
static bool fuse(const draft_oracle *o, const buffers *t)
{
    size_t H = (size_t)o->hp->hidden, m = (size_t)o->hp->n_tap, n = (size_t)o->n;

    for (size_t i = 0; i < m; i++) {
        if (!norm(o, -1, "enc.aux_norm.weight", i, o->taps + i * n * H, o->n, t->z))
            return false;
        for (size_t r = 0; r < n; r++)
            memcpy(t->act + (r * m + i) * H, t->z + r * H, H * sizeof *t->z);
    }
    return project(o->draft, -1, "fc.weight", t->act, o->n, t->c) &&
           norm(o, -1, "enc.output_norm.weight", 0, t->c, o->n, t->c);
}

static bool keys_and_values(const draft_oracle *o, int l, const double *h, int n, int pos, double *k,
                            double *v)
{
    int heads = n * o->hp->n_kv_head;

    if (!project(o->draft, l, "attn_k.weight", h, n, k) ||
        !norm(o, l, "attn_k_norm.weight", 0, k, heads, k) || !project(o->draft, l, "attn_v.weight", h, n, v))
        return false;
    rotate(o, k, n, o->hp->n_kv_head, pos);
    return true;
}

// Row r of the block sees the context inside its window, and the rows of the block up to itself.
static void attend(const draft_oracle *o, int l, const buffers *t)
{
    size_t D = (size_t)o->hp->head_dim, cols = (size_t)o->hp->n_kv_head * D, n = (size_t)o->n;
    int group = o->hp->n_head / o->hp->n_kv_head;

    for (int r = 0; r < o->rows; r++)
        for (int head = 0; head < o->hp->n_head; head++) {
            size_t at = ((size_t)r * (size_t)o->hp->n_head + (size_t)head), kv = (size_t)(head / group) * D;
            int end = o->n + r, from = end - o->hp->window + 1 > 0 ? end - o->hp->window + 1 : 0;
            double max = -DBL_MAX, sum = 0, *out = t->att + at * D;
            for (int pass = 0; pass < 2; pass++)
                for (int p = from; p <= end; p++) {
                    bool own = p >= o->n;
                    size_t row = (own ? (size_t)(p - o->n) : (size_t)l * n + (size_t)p) * cols + kv;
                    const double *k = (own ? t->k : o->k) + row, *v = (own ? t->v : o->v) + row;
                    if (pass == 0) {
                        t->score[p] = 0;
                        for (size_t i = 0; i < D; i++)
                            t->score[p] += t->q[at * D + i] * k[i] / sqrt((double)D);
                        max = fmax(max, t->score[p]);
                        continue;
                    }
                    double e = exp(t->score[p] - max);
                    sum += e;
                    for (size_t i = 0; i < D; i++)
                        out[i] = (p == from ? 0 : out[i]) + e * v[i];
                }
            double gate = t->gate[at];
            for (size_t i = 0; i < D; i++)
                out[i] *= (fmax(gate, 0) + log1p(exp(-fabs(gate)))) / sum;
        }
}

static void add(double *x, const double *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

static bool layer(const draft_oracle *o, int l, const buffers *t)
{
    const lg_gguf *g = o->draft;
    int n = o->rows, cells = n * o->hp->hidden, ctx = l * o->n * o->hp->n_kv_head * o->hp->head_dim;

    if (!norm(o, l, "attn_norm.weight", 0, t->c, o->n, t->z) ||
        !keys_and_values(o, l, t->z, o->n, 0, o->k + ctx, o->v + ctx) ||
        !norm(o, l, "attn_norm.weight", 0, t->x, n, t->h) ||
        !keys_and_values(o, l, t->h, n, o->n, t->k, t->v) || !project(g, l, "attn_q.weight", t->h, n, t->q) ||
        !norm(o, l, "attn_q_norm.weight", 0, t->q, n * o->hp->n_head, t->q) ||
        !project(g, l, "attn_gate.weight", t->h, n, t->gate))
        return false;
    rotate(o, t->q, n, o->hp->n_head, o->n);
    attend(o, l, t);
    if (!project(g, l, "attn_output.weight", t->att, n, t->y))
        return false;
    add(t->x, t->y, cells);
    if (!norm(o, l, "ffn_norm.weight", 0, t->x, n, t->h) ||
        !project(g, l, "ffn_gate.weight", t->h, n, t->act) || !project(g, l, "ffn_up.weight", t->h, n, t->up))
        return false;
    for (int i = 0; i < n * o->hp->ffn; i++)
        t->act[i] = t->act[i] / (1 + exp(-t->act[i])) * t->up[i];
    if (!project(g, l, "ffn_down.weight", t->act, n, t->y))
        return false;
    add(t->x, t->y, cells);
    return true;
}

static bool forward(const draft_oracle *o, const buffers *t)
{
    size_t H = (size_t)o->hp->hidden;
    uint64_t ne[2];
    float *embed = load(o->target, ne, "token_embd.weight");
    bool ok = embed && fuse(o, t);

    for (size_t r = 0; ok && r < (size_t)o->rows; r++)
        for (size_t i = 0; i < H; i++)
            t->x[r * H + i] = (double)embed[(size_t)(r == 0 ? o->last : o->hp->mask_id) * H + i];
    free(embed);
    for (int l = 0; ok && l < o->hp->n_layer; l++)
        ok = layer(o, l, t);
    return ok && norm(o, -1, "output_norm.weight", 0, t->x, o->rows, t->h) &&
           project(o->target, -1, "output.weight", t->h + H, o->rows - 1, o->logits);
}

bool draft_oracle_run(const draft_oracle *o)
{
    const lg_dflash_params *hp = o->hp;
    size_t wide = (size_t)(hp->hidden * hp->n_tap + hp->ffn + hp->n_head * hp->head_dim);
    size_t rows = (size_t)(o->n > o->rows ? o->n : o->rows);
    buffers t = {0};
    double **all[] = {&t.c, &t.z, &t.x, &t.h, &t.q, &t.k, &t.v, &t.gate, &t.att, &t.y, &t.up, &t.act};
    bool ok = (t.score = malloc((size_t)(o->n + o->rows) * sizeof *t.score)) != NULL;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i] = malloc(rows * wide * sizeof(double));
        ok = ok && *all[i];
    }
    ok = ok && forward(o, &t);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(*all[i]);
    free(t.score);
    return ok;
}
