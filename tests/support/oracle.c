/*
 * tests/support/oracle: see oracle.h. Every matrix is dequantized when it is used; speed does not matter
 * here.
 */
#include "support/oracle.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct matrix {
    float *v; // rows of n_in
    int n_in, n_out;
    lg_qtype type;
    float scale; // of every product
} matrix;

// Matrix `slice` of a stack; v is NULL when the tensor is missing.
static matrix load(const oracle *o, int layer, const char *name, int slice)
{
    char full[96];
    matrix m = {0};

    if (layer >= 0)
        (void)snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    else
        (void)snprintf(full, sizeof full, "%s", name);
    const lg_gguf_tensor *t = lg_gguf_find_tensor(o->g, lg_str_of(full));
    if (!t) {
        (void)fprintf(stderr, "oracle: no tensor %s\n", full);
        return m;
    }
    m = (matrix){.scale = 1, .n_in = (int)t->ne[0], .n_out = (int)t->ne[1], .type = t->type};
    size_t n = (size_t)m.n_in * (size_t)m.n_out, bytes = t->bytes / t->ne[2];
    m.v = malloc(n * sizeof *m.v);
    if (!m.v)
        return m;
    lg_dequant_row(t->type, t->data + (size_t)slice * bytes, m.v, (int64_t)n);
    char *end = strstr(full, ".weight");
    if (end)
        (void)snprintf(end, 8, ".scale");
    if (end && (t = lg_gguf_find_tensor(o->g, lg_str_of(full))))
        m.scale = ((const float *)(const void *)t->data)[t->ne[0] > 1 ? slice : 0];
    return m;
}

static int act_block(lg_qtype type)
{
    if (type == LG_F32 || type == LG_F16 || type == LG_BF16)
        return 0;
    return lg_qtype_get(type)->block_elems == 256 ? 256 : 32;
}

// Largest magnitude of n values as f32.
static float largest(const double *x, int n)
{
    float max = 0;

    for (int i = 0; i < n; i++)
        max = fmaxf(max, fabsf((float)x[i]));
    return max;
}

// int8 codes with an integer step for each 16 (blocks of 32) or 32 (blocks of 256), one f32 scale a block:
// the activations of quantized matrices.
static void round_row(const double *x, int n, int block, double *out)
{
    int group = block == 32 ? 16 : 32;
    float top = block == 32 ? 16 : 8;

    for (int b = 0; b < n; b += group) {
        float max = largest(x + b / block * block, block);
        float step = max < 0x1p-100f ? 1 : fminf(top, fmaxf(1, ceilf(largest(x + b, group) * (top / max))));

        for (int i = b; i < b + group; i++)
            out[i] = max < 0x1p-100f ? 0
                                     : (double)rintf((float)x[i] * (127.0f * top / max / step)) *
                                           (double)step * (double)(max / (127.0f * top));
    }
}

// y[r] = M x[r] for n rows, x rows of n_in at stride x_stride
static bool multiply(const oracle *o, const matrix *m, const double *x, int n, double *y)
{
    int block = o->round_acts ? act_block(m->type) : 0;
    double *in = malloc((size_t)m->n_in * sizeof *in);

    if (!in || !m->v) {
        free(in);
        return false;
    }
    for (int r = 0; r < n; r++) {
        const double *row = x + (size_t)r * (size_t)m->n_in;
        if (block) {
            round_row(row, m->n_in, block, in);
            row = in;
        }
        for (int j = 0; j < m->n_out; j++) {
            const float *w = m->v + (size_t)j * (size_t)m->n_in;
            double sum = 0;
            for (int i = 0; i < m->n_in; i++)
                sum += (double)w[i] * row[i];
            y[(size_t)r * (size_t)m->n_out + (size_t)j] = sum * (double)m->scale;
        }
    }
    free(in);
    return true;
}

static bool project(const oracle *o, int layer, const char *name, int slice, const double *x, int n,
                    double *y)
{
    matrix m = load(o, layer, name, slice);
    bool ok = multiply(o, &m, x, n, y);

    free(m.v);
    return ok;
}

static bool norm(const oracle *o, int layer, const char *name, const double *x, int n, int cols, double *y)
{
    matrix w = load(o, layer, name, 0);

    for (int r = 0; w.v && r < n; r++) {
        double sum = 0;
        for (int i = 0; i < cols; i++)
            sum += x[r * cols + i] * x[r * cols + i];
        for (int i = 0; i < cols; i++)
            y[r * cols + i] = x[r * cols + i] / sqrt(sum / cols + (double)o->hp->eps) * (double)w.v[i];
    }
    free(w.v);
    return w.v != NULL;
}

static void rotate(const lg_rope *rope, double *v, int64_t pos)
{
    int half = rope->n_rot / 2;

    for (int j = 0; j < half; j++) {
        double angle = (double)pos * rope->freq[j], c = cos(angle) * (double)rope->magnitude;
        double s = sin(angle) * (double)rope->magnitude, a = v[j], b = v[j + half];
        v[j] = a * c - b * s;
        v[j + half] = b * c + a * s;
    }
}

static double softplus(double g)
{
    return fmax(g, 0) + log1p(exp(-fabs(g)));
}

static double silu(double z)
{
    return z < 0 ? z * exp(z) / (1 + exp(z)) : z / (1 + exp(-z));
}

typedef struct buffers {
    double *x, *h, *q, *k, *v, *gate, *att, *y, *up, *act;
} buffers;

static void attend(const oracle *o, const lg_layer_params *l, int n, const buffers *t, double *score)
{
    int D = o->hp->head_dim, group = l->n_head / o->hp->n_kv_head, kv_cols = o->hp->n_kv_head * D;
    int gate_cols = l->elem_gate ? l->n_head * D : l->n_head;

    for (int r = 0; r < n; r++)
        for (int head = 0; head < l->n_head; head++) {
            const double *q = t->q + ((size_t)r * (size_t)l->n_head + (size_t)head) * (size_t)D;
            double *out = t->att + ((size_t)r * (size_t)l->n_head + (size_t)head) * (size_t)D, max = -DBL_MAX,
                   sum = 0;
            int first = l->window && r - o->hp->window + 1 > 0 ? r - o->hp->window + 1 : 0;
            for (int p = first; p <= r; p++) {
                const double *k = t->k + (size_t)p * (size_t)kv_cols + (size_t)(head / group * D);
                score[p] = 0;
                for (int i = 0; i < D; i++)
                    score[p] += q[i] * k[i];
                score[p] /= sqrt(D);
                max = fmax(max, score[p]);
            }
            memset(out, 0, (size_t)D * sizeof *out);
            for (int p = first; p <= r; p++) {
                const double *v = t->v + (size_t)p * (size_t)kv_cols + (size_t)(head / group * D);
                double e = exp(score[p] - max);
                sum += e;
                for (int i = 0; i < D; i++)
                    out[i] += e * v[i];
            }
            for (int i = 0; i < D; i++) {
                int g = l->elem_gate ? head * D + i : head;
                out[i] = out[i] / sum * softplus(t->gate[(size_t)r * (size_t)gate_cols + (size_t)g]);
            }
        }
}

static bool attention(const oracle *o, int i, int n, const buffers *t, double *score)
{
    const lg_layer_params *l = &o->hp->layer[i];
    const lg_rope *rope = l->window ? &o->hp->rope_window : &o->hp->rope_full;
    int D = o->hp->head_dim, nk = o->hp->n_kv_head;

    if (!norm(o, i, "attn_norm.weight", t->x, n, o->hp->hidden, t->h) ||
        !project(o, i, "attn_q.weight", 0, t->h, n, t->q) ||
        !project(o, i, "attn_k.weight", 0, t->h, n, t->k) ||
        !project(o, i, "attn_v.weight", 0, t->h, n, t->v) ||
        !project(o, i, "attn_gate.weight", 0, t->h, n, t->gate) ||
        !norm(o, i, "attn_q_norm.weight", t->q, n * l->n_head, D, t->q) ||
        !norm(o, i, "attn_k_norm.weight", t->k, n * nk, D, t->k))
        return false;
    for (int r = 0; r < n; r++) {
        for (int head = 0; head < l->n_head; head++)
            rotate(rope, t->q + ((size_t)r * (size_t)l->n_head + (size_t)head) * (size_t)D, r);
        for (int head = 0; head < nk; head++)
            rotate(rope, t->k + ((size_t)r * (size_t)nk + (size_t)head) * (size_t)D, r);
    }
    attend(o, l, n, t, score);
    return project(o, i, "attn_output.weight", 0, t->att, n, t->y);
}

// y += weight * down(silu(gate h) * up h) for one row or for all
static bool swiglu(const oracle *o, int i, const char *const name[3], int slice, const double *h, int n,
                   double weight, const buffers *t, double *y)
{
    matrix gate = load(o, i, name[0], slice), up = load(o, i, name[1], slice),
           down = load(o, i, name[2], slice);
    bool ok = gate.v && up.v && down.v && multiply(o, &gate, h, n, t->act) && multiply(o, &up, h, n, t->up);

    for (int k = 0; ok && k < n * gate.n_out; k++)
        t->act[k] = silu(t->act[k]) * t->up[k];
    ok = ok && multiply(o, &down, t->act, n, t->up);
    for (int k = 0; ok && k < n * down.n_out; k++)
        y[k] += weight * t->up[k];
    free(gate.v);
    free(up.v);
    free(down.v);
    return ok;
}

// The k best experts of one row, by repeated search; ties to the lower index.
static double choose(const lg_hparams *hp, const double *z, const float *bias, int *ids, double *w)
{
    double p[4096], sum = 0, total = 0, last = 0, best_left = -DBL_MAX;
    bool taken[4096] = {false};

    for (int e = 0; e < hp->n_expert; e++) {
        p[e] = hp->gating == LG_GATE_SIGMOID ? 1 / (1 + exp(-z[e])) : exp(z[e]);
        total += p[e];
    }
    for (int e = 0; hp->gating == LG_GATE_SOFTMAX && e < hp->n_expert; e++)
        p[e] /= total;
    for (int k = 0; k < hp->n_expert_used; k++) {
        int best = -1;
        for (int e = 0; e < hp->n_expert; e++)
            if (!taken[e] && (best < 0 || p[e] + (double)bias[e] > p[best] + (double)bias[best]))
                best = e;
        taken[best] = true;
        ids[k] = best;
        w[k] = p[best];
        sum += p[best];
        last = p[best] + (double)bias[best];
    }
    for (int k = 0; k < hp->n_expert_used; k++)
        w[k] = (hp->route_norm ? w[k] / fmax(sum, 0x1p-14) : w[k]) * (double)hp->route_scale;
    for (int e = 0; e < hp->n_expert; e++) {
        double score = p[e] + (double)bias[e];
        if (!taken[e] && score > best_left)
            best_left = score;
    }
    return last - best_left;
}

static bool experts(const oracle *o, int i, int n, const buffers *t)
{
    static const char *const routed[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight",
                                         "ffn_down_exps.weight"};
    static const char *const shared[] = {"ffn_gate_shexp.weight", "ffn_up_shexp.weight",
                                         "ffn_down_shexp.weight"};
    const lg_hparams *hp = o->hp;
    double *z = malloc((size_t)n * (size_t)hp->n_expert * sizeof *z);
    matrix bias = load(o, i, "exp_probs_b.bias", 0);
    bool ok = z && bias.v && project(o, i, "ffn_gate_inp.weight", 0, t->h, n, z);

    if (ok && hp->ffn_shared > 0)
        ok = swiglu(o, i, shared, 0, t->h, n, 1, t, t->y);
    for (int r = 0; ok && r < n; r++) {
        int ids[64];
        double w[64], gap = choose(hp, z + (size_t)r * (size_t)hp->n_expert, bias.v, ids, w);
        size_t at = (size_t)i * (size_t)n + (size_t)r;
        for (int k = 0; ok && k < hp->n_expert_used; k++) {
            ok = swiglu(o, i, routed, ids[k], t->h + (size_t)r * (size_t)hp->hidden, 1, w[k], t,
                        t->y + (size_t)r * (size_t)hp->hidden);
            if (o->routes)
                o->routes[at * (size_t)hp->n_expert_used + (size_t)k] = ids[k];
            if (o->weights)
                o->weights[at * (size_t)hp->n_expert_used + (size_t)k] = w[k];
        }
        if (o->gaps)
            o->gaps[at] = gap;
    }
    free(z);
    free(bias.v);
    return ok;
}

static bool layer(const oracle *o, int i, int n, const buffers *t, double *score)
{
    static const char *const dense[] = {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"};
    size_t cells = (size_t)n * (size_t)o->hp->hidden;

    if (!attention(o, i, n, t, score))
        return false;
    for (size_t k = 0; k < cells; k++)
        t->x[k] += t->y[k];
    memset(t->y, 0, cells * sizeof *t->y);
    if (!norm(o, i, "ffn_norm.weight", t->x, n, o->hp->hidden, t->h))
        return false;
    if (o->hp->layer[i].dense ? !swiglu(o, i, dense, 0, t->h, n, 1, t, t->y) : !experts(o, i, n, t))
        return false;
    for (size_t k = 0; k < cells; k++)
        t->x[k] += t->y[k];
    if (o->layers)
        memcpy(o->layers + (size_t)i * cells, t->x, cells * sizeof *t->x);
    return true;
}

static bool forward(const oracle *o, const int32_t *ids, int n, const buffers *t, double *score)
{
    const lg_hparams *hp = o->hp;
    matrix embed = load(o, -1, "token_embd.weight", 0);
    const char *head =
        lg_gguf_find_tensor(o->g, LG_STR("output.weight")) ? "output.weight" : "token_embd.weight";
    bool ok = embed.v != NULL;

    for (int r = 0; ok && r < n; r++)
        for (int i = 0; i < hp->hidden; i++)
            t->x[(size_t)r * (size_t)hp->hidden + (size_t)i] =
                (double)embed.v[(size_t)ids[r] * (size_t)hp->hidden + (size_t)i];
    free(embed.v);
    for (int i = 0; ok && i < hp->n_layer; i++)
        ok = layer(o, i, n, t, score);
    return ok && norm(o, -1, "output_norm.weight", t->x, n, hp->hidden, t->h) &&
           (!o->logits || project(o, -1, head, 0, t->h, n, o->logits));
}

bool oracle_run(const oracle *o, const int32_t *ids, int n)
{
    const lg_hparams *hp = o->hp;
    int q = 0, wide = hp->hidden;
    buffers t = {0};
    double **all[] = {&t.x, &t.h, &t.q, &t.k, &t.v, &t.gate, &t.att, &t.y, &t.up, &t.act};
    double *score = malloc((size_t)n * sizeof *score);
    bool ok = score != NULL;

    for (int i = 0; i < hp->n_layer; i++)
        q = hp->layer[i].n_head > q ? hp->layer[i].n_head : q;
    q *= hp->head_dim;
    wide = q > wide ? q : wide;
    wide = hp->ffn_dense > wide ? hp->ffn_dense : wide;
    wide = hp->ffn_expert > wide ? hp->ffn_expert : wide;
    wide = hp->ffn_shared > wide ? hp->ffn_shared : wide;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i] = calloc((size_t)n * (size_t)wide, sizeof(double));
        ok = ok && *all[i];
    }
    ok = ok && forward(o, ids, n, &t, score);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(*all[i]);
    free(score);
    return ok;
}
