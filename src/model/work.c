/*
 * model/work: work tensors of a step, the limits a backend must hold scratch for, and the shape of the KV
 * classes.
 *
 * One table lists every buffer with its size, so that the plan printed at load and what is taken cannot
 * differ.
 */
#include "model/laguna.h"

#include <string.h>

// The widest layer of each kind of column.
typedef struct widths {
    int head, q, kv, gate, ffn;
} widths;

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static widths widest(const lg_hparams *hp)
{
    widths w = {.kv = hp->n_kv_head * hp->head_dim, .ffn = hp->ffn_shared};

    for (int i = 0; i < hp->n_layer; i++) {
        const lg_layer_params *l = &hp->layer[i];
        int q = l->n_head * hp->head_dim;
        w.head = larger(w.head, l->n_head);
        w.q = larger(w.q, q);
        w.gate = larger(w.gate, l->elem_gate ? q : l->n_head);
        w.ffn = larger(w.ffn, l->dense ? hp->ffn_dense : hp->ffn_expert);
    }
    return w;
}

lg_limits lg_laguna_limits(const lg_hparams *hp, const lg_work_params *p, int64_t max_ctx)
{
    widths w = widest(hp);

    return (lg_limits){.max_rows = p->max_rows,
                       .max_out = p->max_out,
                       .max_cand = p->max_cand,
                       .hidden = hp->hidden,
                       .vocab = hp->vocab,
                       .max_head = w.head,
                       .max_q_cols = w.q,
                       .max_ffn = w.ffn,
                       .max_ffn_expert = larger(hp->ffn_expert, hp->ffn_shared),
                       .max_expert = hp->n_expert,
                       .max_k = hp->n_expert_used,
                       .max_ctx = max_ctx};
}

// One buffer of the work area: the pointer that gets its address (of whatever type), how many 4-byte elements
// it has (0 = absent), and whether the host reads it.
typedef struct buffer {
    void *at;
    size_t n;
    bool results;
} buffer;

enum { BUFFERS = 19 };

static buffer plain(void *at, size_t n)
{
    return (buffer){.at = at, .n = n};
}

static buffer results(void *at, size_t n)
{
    return (buffer){.at = at, .n = n, .results = true};
}

static lg_tensor shaped(int cols, lg_rows rows)
{
    return (lg_tensor){.cols = cols, .stride = cols, .rows = rows};
}

// Fills in the shapes of t and lists its buffers.
static void describe(const lg_hparams *hp, const lg_work_params *p, lg_work *t, buffer buf[BUFFERS])
{
    widths w = widest(hp);
    size_t rows = (size_t)p->max_rows, out = (size_t)p->max_out, k = (size_t)hp->n_expert_used;
    size_t all = (size_t)hp->n_layer * rows;
    size_t debug = p->debug ? all : 0, routes = p->debug || p->routes ? all : 0;
    int n = 0;
    lg_tensor *const row[] = {&t->x, &t->h, &t->delta, &t->q, &t->k, &t->v, &t->gate, &t->attn, &t->taps};
    const int cols[] = {hp->hidden, hp->hidden, hp->hidden,           w.q, w.kv, w.kv,
                        w.gate,     w.q,        p->n_tap * hp->hidden};

    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        *row[i] = shaped(cols[i], LG_ROWS_STEP);
        buf[n++] = plain(&row[i]->p, rows * (size_t)cols[i]);
    }
    t->last = shaped(hp->hidden, LG_ROWS_OUT);
    t->logits = shaped(hp->vocab, LG_ROWS_OUT);
    t->routes.k = hp->n_expert_used;
    t->cand.max_cand = p->max_cand;
    buf[n++] = plain(&t->last.p, out * (size_t)hp->hidden);
    buf[n++] = plain(&t->logits.p, out * (size_t)hp->vocab);
    buf[n++] = plain(&t->routes.ids, rows * k);
    buf[n++] = plain(&t->routes.w, rows * k);
    buf[n++] = results(&t->cand.ids, out * (size_t)p->max_cand);
    buf[n++] = results(&t->cand.logits, out * (size_t)p->max_cand);
    buf[n++] = results(&t->cand.lse, p->max_cand ? out : 0);
    buf[n++] = plain(&t->dbg_layers, debug * (size_t)hp->hidden);
    buf[n++] = plain(&t->dbg_route_ids, routes * k);
    buf[n++] = plain(&t->dbg_route_w, routes * k);
    LG_ASSERT(n == BUFFERS);
    t->max_rows = p->max_rows;
    t->max_out = p->max_out;
    t->n_tap = p->n_tap;
    if (p->n_tap > 0)
        memcpy(t->tap_layer, p->tap_layer, (size_t)p->n_tap * sizeof *p->tap_layer);
}

size_t lg_work_bytes(const lg_hparams *hp, const lg_work_params *p)
{
    lg_work t = {0};
    buffer buf[BUFFERS];
    size_t n = 0;

    describe(hp, p, &t, buf);
    for (int i = 0; i < BUFFERS; i++)
        n += buf[i].n * sizeof(float);
    return n;
}

lg_status lg_work_create(lg_backend *b, const lg_hparams *hp, const lg_work_params *p, lg_work *out,
                         lg_err *err)
{
    lg_work t = {0};
    buffer buf[BUFFERS];

    LG_ASSERT(p->n_tap >= 0 && p->n_tap <= (int)(sizeof t.tap_layer / sizeof *t.tap_layer));
    describe(hp, p, &t, buf);
    for (int i = 0; i < BUFFERS; i++) {
        lg_mem m;
        if (buf[i].n == 0)
            continue;
        lg_status st =
            (buf[i].results ? b->ops->alloc_results : b->ops->alloc)(b, buf[i].n * sizeof(float), &m, err);
        if (st != LG_OK) {
            lg_work_release(b, &t);
            return st;
        }
        t.mem[t.n_mem++] = m;
        memcpy(buf[i].at, &m.p, sizeof m.p);
    }
    *out = t;
    return LG_OK;
}

void lg_work_release(lg_backend *b, lg_work *t)
{
    for (int i = 0; i < t->n_mem; i++)
        b->ops->release(b, &t->mem[i]);
    *t = (lg_work){0};
}

static lg_kv_class kv_class(const lg_hparams *hp, lg_kv_class_id id, lg_qtype type, int n_layer, int window)
{
    lg_kv_class c = {.id = id,
                     .type = type,
                     .n_layer = n_layer,
                     .n_kv_head = hp->n_kv_head,
                     .head_dim = hp->head_dim,
                     .window = window};
    bool whole = lg_row_bytes(type, (uint64_t)hp->head_dim, &c.row_bytes);

    LG_ASSERT(whole); // the engine checked the type against the head size
    c.tile_bytes = c.row_bytes * LG_KV_BLOCK;
    c.layer_bytes = c.tile_bytes * 2 * (size_t)c.n_kv_head;
    c.block_bytes = c.layer_bytes * (size_t)n_layer;
    return c;
}

void lg_laguna_kv_shape(const lg_hparams *hp, lg_qtype type, lg_kv_class *full, lg_kv_class *window)
{
    *full = kv_class(hp, LG_KV_FULL, type, hp->n_full, 0);
    *window = kv_class(hp, LG_KV_WINDOW, type, hp->n_window, hp->window);
}
