/*
 * backend/cuda/step: the life of a step: its block goes to a fixed address of the device, then its launches
 * are recorded into a graph or replayed.
 *
 * Only what changed of a block table is sent; the pinned copy here is what the device has. Heads (counts,
 * output rows, ids) rotate, so a step may begin while the one before it runs.
 *
 * Surprise: with phases kept, nothing is recorded; ops run one by one between pairs of events.
 */
#include <string.h>

#include "backend/cuda/internal.h"

enum { SPINS = 1 << 16 };

static size_t up(size_t n)
{
    return (n + 255) / 256 * 256;
}

// Offsets of the parts for these limits.
static void lay(lg_cuda_step *s, const lg_limits *lim)
{
    size_t rows = (size_t)lim->max_rows, out = (size_t)lim->max_out, words = ((size_t)lim->vocab + 31) / 32;

    s->out_rows_at = up(sizeof(lg_cu_step));
    s->ids_at = up(s->out_rows_at + out * sizeof(int32_t));
    s->head_bytes = up(s->ids_at + rows * sizeof(int32_t));
    s->n_table = (size_t)(lim->max_ctx / LG_KV_BLOCK) + rows / LG_KV_BLOCK + 2;
    size_t at = s->head_bytes;
    for (int i = 0; i < LG_KV_CLASSES; i++) {
        s->table_at[i] = at;
        at = up(at + s->n_table * sizeof(int32_t));
    }
    s->mask_at = at;
    s->bytes = up(at + out * words * sizeof(uint32_t));
}

size_t lg_cuda_step_bytes(const lg_limits *lim)
{
    lg_cuda_step s = {0};

    lay(&s, lim);
    return s.bytes;
}

void lg_cuda_step_free(lg_cuda *c)
{
    if (c->step.pinned)
        (void)cudaFreeHost(c->step.pinned);
    if (c->step.dev)
        (void)cudaFree(c->step.dev);
    c->step = (lg_cuda_step){0};
}

lg_status lg_cuda_step_alloc(lg_cuda *c, const lg_limits *lim, lg_err *err)
{
    lg_cuda_step s = {0};
    lg_status st;
    uint8_t *p;

    lay(&s, lim);
    size_t host = s.bytes - s.head_bytes + LG_CUDA_HEADS * s.head_bytes, listed = up(host);
    st = lg_cuda_check(c, cudaMalloc((void **)&s.dev, s.bytes), "memory of the step block", err);
    if (st == LG_OK)
        st = lg_cuda_check(c, cudaMemset(s.dev, 0, s.bytes), "clearing the step block", err);
    if (st == LG_OK)
        st = lg_cuda_check(c, cudaHostAlloc(&s.pinned, listed + sizeof(uint32_t), cudaHostAllocMapped),
                           "pinned memory", err);
    if (st != LG_OK) {
        (void)cudaFree(s.dev);
        return st;
    }
    lg_cuda_step_free(c);
    memset(s.pinned, 0, listed + sizeof(uint32_t));
    s.heads = s.pinned;
    p = s.heads + LG_CUDA_HEADS * s.head_bytes;
    for (int i = 0; i < LG_KV_CLASSES; i++)
        s.table[i] = (int32_t *)(void *)(p + (s.table_at[i] - s.head_bytes));
    s.mask = (uint32_t *)(void *)(p + (s.mask_at - s.head_bytes));
    c->step = s;
    c->cu.listed = (uint32_t *)(void *)((uint8_t *)s.pinned + listed);
    c->cu.step = (const lg_cu_step *)(const void *)s.dev;
    c->cu.out_rows = (const int32_t *)(const void *)(s.dev + s.out_rows_at);
    c->cu.ids = (const int32_t *)(const void *)(s.dev + s.ids_at);
    for (int i = 0; i < LG_KV_CLASSES; i++)
        c->cu.table[i] = (const int32_t *)(const void *)(s.dev + s.table_at[i]);
    c->cu.mask = (const uint32_t *)(const void *)(s.dev + s.mask_at);
    return LG_OK;
}

static cudaError_t send(lg_cuda *c, size_t at, const void *src, size_t n)
{
    return cudaMemcpyAsync(c->step.dev + at, src, n, cudaMemcpyHostToDevice, c->cu.stream);
}

// The entries of a block table that differ from what the device has.
static cudaError_t send_table(lg_cuda *c, int id, const int32_t *table, int n)
{
    int32_t *have = c->step.table[id];
    int from = 0, to = n;

    while (from < n && have[from] == table[from])
        from++;
    while (to > from && have[to - 1] == table[to - 1])
        to--;
    if (from == to)
        return cudaSuccess;
    if (c->step.under_way > 0) { // the last copy may still be reading
        cudaError_t e = cudaStreamSynchronize(c->cu.stream);
        if (e != cudaSuccess)
            return e;
        c->step.under_way = 0;
    }
    memcpy(have + from, table + from, (size_t)(to - from) * sizeof *have);
    return send(c, c->step.table_at[id] + (size_t)from * sizeof *have, have + from,
                (size_t)(to - from) * sizeof *have);
}

static cudaError_t send_step(lg_cuda *c, const lg_step *s)
{
    lg_cuda_step *t = &c->step;
    cudaError_t e = cudaSuccess;

    if (t->under_way >= LG_CUDA_HEADS) {
        e = cudaStreamSynchronize(c->cu.stream);
        t->under_way = 0;
    }
    for (int i = 0; i < LG_KV_CLASSES && e == cudaSuccess; i++)
        if (s->table[i] && s->n_table[i] > 0)
            e = send_table(c, i, s->table[i], s->n_table[i]);
    uint8_t *head = t->heads + (size_t)t->next_head * t->head_bytes;
    lg_cu_step h = {
        .n_rows = s->n_rows, .n_out = s->n_out, .n_cand = s->n_cand, .serial = ++t->serial, .pos = s->pos};
    size_t n = t->out_rows_at;
    memcpy(head, &h, sizeof h);
    if (s->out_rows && s->n_out > 0) {
        memcpy(head + t->out_rows_at, s->out_rows, (size_t)s->n_out * sizeof(int32_t));
        n = t->ids_at;
    }
    if (s->ids && s->n_rows > 0) {
        memcpy(head + t->ids_at, s->ids, (size_t)s->n_rows * sizeof(int32_t));
        n = t->ids_at + (size_t)s->n_rows * sizeof(int32_t);
    }
    if (e == cudaSuccess)
        e = send(c, 0, head, n);
    t->next_head = (t->next_head + 1) % LG_CUDA_HEADS;
    t->under_way++;
    if (e == cudaSuccess && (s->flags & LG_STEP_MASK) && s->mask) {
        size_t bytes = (size_t)s->n_out * (((size_t)c->lim.vocab + 31) / 32) * sizeof(uint32_t);
        memcpy(t->mask, s->mask, bytes); // masks come one step at a time: the step before was waited for
        e = send(c, t->mask_at, t->mask, bytes);
    }
    return e;
}

/* ---- graphs ---- */

static bool same_key(const lg_key *a, const lg_key *b)
{
    return a->graph == b->graph && a->flags == b->flags && a->rows_bucket == b->rows_bucket &&
           a->ctx_bucket == b->ctx_bucket && a->out_bucket == b->out_bucket && a->n_cand == b->n_cand;
}

static lg_cuda_graph *find_graph(lg_cuda *c, const lg_key *key)
{
    for (int i = 0; i < LG_CUDA_GRAPHS; i++)
        if (c->graph[i].exec && same_key(&c->graph[i].key, key))
            return &c->graph[i];
    return NULL;
}

// A free place, or that of the graph unused for longest.
static lg_cuda_graph *place_graph(lg_cuda *c)
{
    lg_cuda_graph *oldest = &c->graph[0];

    for (int i = 0; i < LG_CUDA_GRAPHS; i++) {
        if (!c->graph[i].exec)
            return &c->graph[i];
        if (c->graph[i].used < oldest->used)
            oldest = &c->graph[i];
    }
    (void)cudaGraphExecDestroy(oldest->exec);
    oldest->exec = NULL;
    return oldest;
}

void lg_cuda_drop_graphs(lg_cuda *c)
{
    for (int i = 0; i < LG_CUDA_GRAPHS; i++)
        if (c->graph[i].exec)
            (void)cudaGraphExecDestroy(c->graph[i].exec);
    memset(c->graph, 0, sizeof c->graph);
}

static lg_status check_step(const lg_cuda *c, const lg_step *s, lg_err *err)
{
    LG_ASSERT(s->n_rows >= 0 && s->n_rows <= c->lim.max_rows && s->pos >= 0);
    LG_ASSERT(s->n_out >= 0 && s->n_out <= c->lim.max_out && s->n_cand <= c->lim.max_cand);
    for (int i = 0; i < LG_KV_CLASSES; i++)
        LG_ASSERT(!s->table[i] || s->n_table[i] == 0 ||
                  ((int64_t)s->n_table[i] * LG_KV_BLOCK >= s->pos + s->n_rows &&
                   (size_t)s->n_table[i] <= c->step.n_table));
    for (int i = 0; s->ids && i < s->n_rows; i++)
        if (s->ids[i] < 0 || s->ids[i] >= c->lim.vocab)
            return LG_FAIL(err, LG_E_INPUT, "token id %d is not in the vocabulary of %d", s->ids[i],
                           c->lim.vocab);
    for (int i = 0; s->out_rows && i < s->n_out; i++)
        LG_ASSERT(s->out_rows[i] >= 0 && s->out_rows[i] < s->n_rows);
    return LG_OK;
}

lg_status lg_cuda_begin(lg_backend *b, lg_key key, const lg_step *s, lg_begin *how, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;

    LG_ASSERT(!c->in_step);
    LG_TRY(lg_cuda_health(c, err));
    LG_TRY(check_step(c, s, err));
    LG_TRY(lg_cuda_check(c, send_step(c, s), "sending a step", err));
    c->key = key;
    c->cu.rows = key.rows_bucket;
    c->cu.outs = key.out_bucket;
    c->cu.ctx = INT64_C(1) << key.ctx_bucket;
    c->acts_of = NULL;
    c->cu.grouped = NULL;
    memset(&c->later, 0, sizeof c->later);
    for (int i = 0; i < LG_CU_ROPES; i++)
        c->rope_ready[i] = false;
    *how = !c->keeps_phases && find_graph(c, &key) ? LG_REPLAY : LG_RECORD;
    c->capturing = !c->keeps_phases && *how == LG_RECORD;
    if (c->capturing)
        LG_TRY(lg_cuda_check(c, cudaStreamBeginCapture(c->cu.stream, cudaStreamCaptureModeRelaxed),
                             "recording a step", err));
    c->in_step = true;
    return LG_OK;
}

static lg_status keep_graph(lg_cuda *c, lg_err *err)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    lg_status st = lg_cuda_check(c, cudaStreamEndCapture(c->cu.stream, &graph), "recording a step", err);

    c->capturing = false;
    if (st == LG_OK)
        st = lg_cuda_health(c, err);
    if (st == LG_OK)
        st = lg_cuda_check(c, cudaGraphInstantiate(&exec, graph, 0), "preparing a recorded step", err);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (st == LG_OK)
        *place_graph(c) = (lg_cuda_graph){.key = c->key, .exec = exec};
    return st;
}

lg_status lg_cuda_end(lg_backend *b, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;

    LG_ASSERT(c->in_step);
    if (!c->lost && c->cu.error == cudaSuccess)
        lg_cuda_settle(c);
    c->in_step = false;
    if (c->capturing)
        LG_TRY(keep_graph(c, err));
    if (!c->keeps_phases) {
        lg_cuda_graph *g = find_graph(c, &c->key);
        LG_ASSERT(g);
        g->used = ++c->clock;
        LG_TRY(lg_cuda_check(c, cudaGraphLaunch(g->exec, c->cu.stream), "starting a step", err));
    }
    c->step.lists = !c->keeps_phases && c->key.n_cand > 0 && c->key.graph != LG_GRAPH_INJECT;
    return lg_cuda_health(c, err);
}

// Until the candidates of the last step are there, which is some microseconds before the stream has noticed
// that all is over; or until it has ended otherwise.
static cudaError_t wait_listed(lg_cuda *c)
{
    const volatile uint32_t *listed = c->cu.listed;

    for (unsigned i = 1; *listed != c->step.serial; i++)
        if (i % SPINS == 0) {
            cudaError_t e = cudaStreamQuery(c->cu.stream);
            if (e != cudaErrorNotReady)
                return e;
        }
    atomic_thread_fence(memory_order_acquire);
    return cudaSuccess;
}

// Elapsed times of the ops since the last wait.
static void take_marks(lg_cuda *c)
{
    for (int i = 0; i < c->n_marks; i++) {
        float ms = 0.0f;
        if (cudaEventElapsedTime(&ms, c->mark[2 * i], c->mark[2 * i + 1]) == cudaSuccess)
            c->phase_s[c->mark_phase[i]] += (double)ms * 1e-3;
    }
    c->n_marks = 0;
}

lg_status lg_cuda_wait(lg_backend *b, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;

    LG_TRY(lg_cuda_health(c, err));
    bool listed = c->step.lists;
    c->step.lists = false; // what is enqueued from now on, outside a step, tells nobody
    LG_TRY(lg_cuda_check(c, listed ? wait_listed(c) : cudaStreamSynchronize(c->cu.stream),
                         "waiting for the device", err));
    c->step.under_way = 0;
    take_marks(c);
    return LG_OK;
}
