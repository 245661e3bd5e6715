/*
 * engine/engine: see engine.h. Opening, the plan, and the live sequence; whole replies are in generate.c.
 *
 * What surprises: the rows of a chunk count (lg_kv_commit) only after the backend said that all work is done,
 * so that a failed or cancelled step leaves the sequence as it was.
 */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_int.h"

static lg_status check_kv_type(const lg_hparams *hp, lg_qtype type, lg_err *err)
{
    size_t row;

    if (type != LG_F16 && type != LG_F32 && type != LG_Q8_0)
        return LG_FAIL(err, LG_E_INPUT, "the KV type must be f16, f32 or q8_0");
    if (!lg_row_bytes(type, (uint64_t)hp->head_dim, &row))
        return LG_FAIL(err, LG_E_UNSUPPORTED,
                       "a %s KV cache needs a head size that 32 divides; this model has %d",
                       lg_qtype_get(type)->name, hp->head_dim);
    return LG_OK;
}

// Reads the configurations and checks all tensors; *f refers to hp and draft.
static lg_status examine(const lg_gguf *g, const lg_engine_params *p, lg_backend *b, lg_hparams *hp,
                         lg_spec_plan *draft, lg_plan_for *f, lg_err *err)
{
    lg_status st = lg_hparams_read(g, &p->rope, hp, err);

    *f = (lg_plan_for){.hp = hp, .b = b, .kv_type = p->kv_type, .chunk = p->chunk, .debug = p->debug,
                       .routes = p->routes, .cache_slots = p->cache_slots, .cache_ram = p->cache_ram,
                       .cache_near = p->cache_near};
    if (st == LG_OK)
        st = lg_weights_check(g, hp, b, &f->weights, err);
    if (st == LG_OK)
        st = check_kv_type(hp, p->kv_type, err);
    if (st == LG_OK && p->ctx < 0)
        st = LG_FAIL(err, LG_E_INPUT, "the context length must not be negative");
    if (st == LG_OK && p->ctx > INT64_C(1) << 30)
        st = LG_FAIL(err, LG_E_INPUT, "a context of %lld is more than lagoon supports", (long long)p->ctx);
    if (st != LG_OK) {
        (void)lg_err_subject(err, "%s", lg_gguf_path(g, 0));
        return st;
    }
    LG_TRY(lg_spec_examine(p, hp, b, draft, err));
    if (draft->gguf) {
        f->draft = &draft->hp;
        f->draft_weights = draft->weights;
        f->draft_kv_type = draft->kv_type;
    }
    return LG_OK;
}

lg_status lg_plan_make(const lg_gguf *g, const lg_engine_params *p, lg_backend *b, lg_plan *out, lg_err *err)
{
    lg_hparams hp;
    lg_spec_plan draft = {0};
    lg_plan_for f;

    LG_TRY(examine(g, p, b, &hp, &draft, &f, err));
    lg_plan_choose(&f, p->ctx, out);
    lg_spec_plan_free(&draft);
    return LG_OK;
}

static void tell_plan(const lg_plan *p)
{
    char need[32], have[32];

    if (p->lowered)
        LG_WARN("context", "lowered",
                "from %lld to %lld: the plan needs %s of %s device memory at that length; --ctx sets it",
                (long long)p->ctx_train, (long long)p->ctx, lg_plan_size(p->total_bytes, need, sizeof need),
                lg_plan_size(p->available_bytes, have, sizeof have));
    if (p->ctx > p->ctx_train)
        LG_WARN("context", "beyond", "what the model was trained for: %lld instead of %lld",
                (long long)p->ctx, (long long)p->ctx_train);
}

static lg_status make_host_buffers(lg_engine *e, bool debug, lg_err *err)
{
    size_t vocab = (size_t)e->hp.vocab, cand = (size_t)e->work.cand.max_cand + 1;
    size_t rows = e->spec ? LG_DRAFT_ROWS_MAX : 1;

    e->tokens = malloc((size_t)e->plan.ctx * sizeof *e->tokens);
    e->out_rows = malloc((size_t)e->work.max_out * sizeof *e->out_rows);
    e->row = malloc(vocab * sizeof *e->row);
    e->heap = malloc(vocab * sizeof *e->heap);
    e->count = calloc(vocab, sizeof *e->count);
    e->allowed = malloc((vocab + 31) / 32 * sizeof *e->allowed);
    e->legal = calloc((vocab + 31) / 32, sizeof *e->legal);
    e->cand_ids = malloc(cand * sizeof *e->cand_ids);
    e->cand_logits = malloc(cand * sizeof *e->cand_logits);
    e->row_mask = malloc(rows * ((vocab + 31) / 32) * sizeof *e->row_mask);
    if (debug) {
        size_t k = 2 * (size_t)e->hp.n_expert_used, hidden = (size_t)e->hp.hidden;
        e->debug_rows = malloc((size_t)e->work.max_rows * (k > hidden ? k : hidden) * sizeof(float));
    }
    if (!e->tokens || !e->out_rows || !e->row || !e->heap || !e->count || !e->allowed || !e->legal ||
        !e->cand_ids || !e->cand_logits || !e->row_mask || (debug && !e->debug_rows))
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the engine's buffers");
    return LG_OK;
}

// A vocabulary without a token for each byte serves all but constrained replies.
static lg_status make_trie(lg_engine *e, lg_err *err)
{
    lg_status st = lg_token_trie_create(e->vocab, &e->trie, &e->no_trie);

    return st == LG_E_NOMEM ? LG_FAIL(err, st, "%s", e->no_trie.msg) : LG_OK;
}

// Blocks beside the live sequence's. With images a class may have as many as the budget holds, like one whose
// memory is committed as it is written; slots on the device are divided in advance.
static lg_kv_spare spare_of(const lg_engine *e, const lg_kv_class *c)
{
    const lg_plan *p = &e->plan;
    bool lazy = e->b->discard != NULL;

    return (lg_kv_spare){
        .blocks = lg_prefix_spare(c, p->cache_bytes, p->cache_slots, p->ctx, lazy || e->b->images),
        .slots = lg_prefix_spare(c, p->near_bytes, p->cache_slots, p->ctx, lazy)};
}

// Room for the live sequence and for the conversations that the plan has memory for.
static lg_status make_kv(lg_engine *e, const lg_kv_class *full, const lg_kv_class *window, lg_err *err)
{
    lg_kv_spare f = spare_of(e, full), w = spare_of(e, window);

    return lg_kv_create_paged(e->b, full, window, e->plan.ctx, e->plan.chunk, &f, &w, e->plan.cache_bytes,
                              &e->kv, err);
}

// After all classes of the KV cache are there. The tree of conversations hangs on the blocks of layers that
// see everything, and every Laguna model has such layers.
static lg_status make_cache(lg_engine *e, const lg_engine_params *p, lg_err *err)
{
    if (e->kv.cls[LG_KV_FULL].n_layer == 0)
        return LG_FAIL(err, LG_E_UNSUPPORTED,
                       "every layer has a sliding window; at least one must see the whole context");
    lg_rates_init(&e->rates, &e->hp);
    for (int c = 0; c < LG_KV_CLASSES; c++)
        if (e->kv.cls[c].n_layer > 0)
            e->kv.max_bytes += (uint64_t)(e->kv.pool[c].max_live + 1) * e->kv.cls[c].block_bytes;
    e->kv.max_bytes += e->plan.cache_bytes;
    return lg_prefix_create(&(lg_prefix_params){.kv = &e->kv,
                                                .tokens = e->tokens,
                                                .rates = &e->rates,
                                                .slots = e->plan.cache_slots,
                                                .budget_bytes = e->plan.cache_bytes,
                                                .min_tokens = p->cache_min,
                                                .step = p->cache_step},
                            &e->px, err);
}

// Everything behind the plan: weights, KV cache, scratch, drafter.
static lg_status load(lg_engine *e, const lg_engine_params *p, const lg_plan_for *f, lg_spec_plan *draft,
                      lg_err *err)
{
    lg_kv_class full, window;
    lg_work_params work = lg_plan_work(f, &e->plan);
    lg_limits lim = lg_plan_limits(f, &work, e->plan.ctx);

    LG_TRY(lg_weights_load(e->gguf, &e->hp, e->b, p->progress, p->progress_ctx, &e->model, err));
    lg_laguna_kv_shape(&e->hp, p->kv_type, &full, &window);
    LG_TRY(make_kv(e, &full, &window, err));
    LG_TRY(e->b->ops->prepare(e->b, &lim, err));
    LG_TRY(lg_work_create(e->b, &e->hp, &work, &e->work, err));
    e->prepared = true;
    if (draft->gguf) {
        lg_kv_class context = lg_dflash_kv_shape(&draft->hp, draft->kv_type);
        LG_TRY(lg_kv_add_draft(&e->kv, &context, e->plan.chunk, -1, err));
        LG_TRY(lg_spec_open(e, draft, &p->draft, &e->spec, err));
    }
    LG_TRY(make_host_buffers(e, p->debug || p->routes, err));
    LG_TRY(make_cache(e, p, err));
    LG_TRY(make_trie(e, err));
    return lg_think_tables_make(e->bpe, &e->think, err);
}

// Nobody asked for the device that has no room for the model.
static bool may_move(const lg_engine *e, const lg_engine_params *p)
{
    const char *device = p->backend.device;

    return (!device || strcmp(device, "auto") == 0) && strcmp(e->b->info.kind, "cpu") != 0;
}

// The plan again, on the CPU.
static lg_status move_to_cpu(lg_engine *e, const lg_engine_params *p, lg_spec_plan *draft, lg_plan_for *f,
                             lg_err *err)
{
    lg_backend_params cpu = p->backend;
    char need[32], have[32];

    LG_WARN("device", "cpu", "the model needs %s; %s has %s free",
            lg_plan_size(e->plan.total_bytes, need, sizeof need), e->b->info.name,
            lg_plan_size(e->plan.available_bytes, have, sizeof have));
    cpu.device = "cpu";
    lg_spec_plan_free(draft);
    *draft = (lg_spec_plan){0};
    lg_backend_close(e->b);
    e->b = NULL;
    LG_TRY(lg_backend_open(&cpu, &e->b, err));
    LG_TRY(examine(e->gguf, p, e->b, &e->hp, draft, f, err));
    lg_plan_choose(f, p->ctx, &e->plan);
    return LG_OK;
}

lg_status lg_engine_open(const lg_engine_params *p, lg_engine **out, lg_err *err)
{
    lg_engine *e = calloc(1, sizeof *e);
    lg_spec_plan draft = {0};
    lg_plan_for f;
    lg_status st;

    if (!e)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the engine");
    st = lg_backend_open(&p->backend, &e->b, err);
    if (st != LG_OK) {
        lg_engine_close(e);
        return st; // not about the file
    }
    e->gguf = p->gguf;
    e->gguf_borrowed = p->gguf != NULL;
    st = p->gguf ? LG_OK : lg_gguf_open(p->model_path, &e->gguf, err);
    if (st == LG_OK)
        st = examine(e->gguf, p, e->b, &e->hp, &draft, &f, err);
    if (st == LG_OK)
        st = lg_vocab_load(e->gguf, &e->vocab, err);
    if (st == LG_OK)
        st = lg_bpe_create(e->vocab, p->crlf, &e->bpe, err);
    if (st == LG_OK) {
        lg_plan_choose(&f, p->ctx, &e->plan);
        if (!e->plan.fits && may_move(e, p))
            st = move_to_cpu(e, p, &draft, &f, err);
        if (st == LG_OK && !e->plan.fits)
            st = lg_plan_refuse(&f, &e->plan, err);
    }
    if (st == LG_OK) {
        lg_weights_warn(&f.weights);
        tell_plan(&e->plan);
        st = load(e, p, &f, &draft, err);
        if (st == LG_E_NOMEM)
            st = lg_plan_broken(&e->plan, err);
    }
    lg_spec_plan_free(&draft);
    if (st != LG_OK) {
        (void)lg_err_subject(err, "%s", p->model_path);
        lg_engine_close(e);
        return st;
    }
    *out = e;
    return LG_OK;
}

void lg_engine_close(lg_engine *e)
{
    if (!e)
        return;
    lg_spec_close(e, e->spec);
    if (e->prepared)
        lg_work_release(e->b, &e->work);
    lg_prefix_destroy(e->px);
    if (e->kv.b)
        lg_kv_destroy(&e->kv);
    if (e->b)
        lg_weights_unload(e->b, &e->model);
    lg_backend_close(e->b);
    lg_think_tables_free(&e->think);
    free(e->tokens);
    free(e->out_rows);
    free(e->row);
    free(e->heap);
    free(e->count);
    free(e->allowed);
    free(e->legal);
    lg_token_trie_destroy(e->trie);
    free(e->cand_ids);
    free(e->cand_logits);
    free(e->row_mask);
    free(e->debug_rows);
    lg_bpe_destroy(e->bpe);
    lg_vocab_destroy(e->vocab);
    if (!e->gguf_borrowed)
        lg_gguf_close(e->gguf);
    free(e);
}

const lg_gguf *lg_engine_gguf(const lg_engine *e)
{
    return e->gguf;
}

const lg_vocab *lg_engine_vocab(const lg_engine *e)
{
    return e->vocab;
}

const lg_bpe *lg_engine_bpe(const lg_engine *e)
{
    return e->bpe;
}

const lg_hparams *lg_engine_hparams(const lg_engine *e)
{
    return &e->hp;
}

const lg_laguna *lg_engine_model(const lg_engine *e)
{
    return &e->model;
}

lg_backend *lg_engine_backend(const lg_engine *e)
{
    return e->b;
}

lg_status lg_engine_trie(const lg_engine *e, const lg_token_trie **out, lg_err *err)
{
    if (!e->trie)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "this model cannot write constrained answers: %s",
                       e->no_trie.msg);
    *out = e->trie;
    return LG_OK;
}

const lg_plan *lg_engine_plan(const lg_engine *e)
{
    return &e->plan;
}

const lg_dflash_params *lg_engine_drafter(const lg_engine *e)
{
    return e->spec ? lg_spec_params(e->spec) : NULL;
}

int64_t lg_engine_pos(const lg_engine *e)
{
    return e->kv.pos;
}

const int32_t *lg_engine_tokens(const lg_engine *e)
{
    return e->tokens;
}

int64_t lg_engine_truncate(lg_engine *e, int64_t pos)
{
    if (pos > e->kv.pos)
        pos = e->kv.pos;
    return lg_prefix_truncate(e->px, pos < 0 ? 0 : pos);
}

lg_step lg_engine_step(lg_engine *e, lg_graph graph, int n_rows, atomic_bool *cancel)
{
    lg_step s = {
        .graph = graph, .n_rows = n_rows, .pos = e->kv.pos, .out_rows = e->out_rows, .cancel = cancel};

    for (int c = 0; c < LG_KV_CLASSES; c++) {
        s.table[c] = lg_kv_where(&e->kv, (lg_kv_class_id)c);
        s.n_table[c] = e->kv.cls[c].n_layer > 0 ? lg_kv_entries(e->kv.pos + n_rows) : 0;
    }
    return s;
}

lg_status lg_engine_wait(lg_engine *e, lg_err *err)
{
    if (e->beside)
        e->beside(e->beside_ctx);
    e->beside = NULL;
    return e->b->ops->wait(e->b, err);
}

void lg_engine_want_candidates(int n_cand, const uint32_t *mask, lg_step *s)
{
    s->n_cand = n_cand;
    if (n_cand > 0 && mask) {
        s->flags |= LG_STEP_MASK;
        s->mask = mask;
    }
}

// The step is to give logits of n rows from `first` on. Until it has, there are none.
static void want_rows(lg_engine *e, int first, int n, lg_step *s)
{
    for (int i = 0; i < n; i++)
        e->out_rows[i] = first + i;
    s->n_out = n;
    e->n_out = 0;
}

// Whether the drafter wants the taps of a chunk: nothing before its window at the eval's end will be seen.
static bool keeps_taps(const lg_engine *e, const lg_eval *v, size_t first, int n)
{
    size_t left = v->n - first - (size_t)n;

    return e->spec && !e->spec_off && left < (size_t)e->kv.cls[LG_KV_DRAFT].window &&
           lg_spec_wants(e->spec, e->kv.pos + n);
}

// The chunk's first pass: its rows enter the cache; logits of its last row, or of its first slice, or none.
static lg_status run_chunk(lg_engine *e, const lg_eval *v, size_t first, int n, lg_err *err)
{
    bool last = first + (size_t)n == v->n, taps = keeps_taps(e, v, first, n);
    lg_step s;

    LG_TRY(lg_kv_grow(&e->kv, n, err));
    s = lg_engine_step(e, LG_GRAPH_TARGET, n, v->cancel);
    if (v->all_logits && !v->no_logits)
        want_rows(e, 0, n < e->work.max_out ? n : e->work.max_out, &s);
    else
        want_rows(e, n - 1, last && !v->no_logits ? 1 : 0, &s);
    s.flags = v->flags | (s.n_out == 0 ? LG_STEP_NO_HEAD : 0) | (taps ? LG_STEP_TAPS : 0);
    if (s.n_out > 0)
        lg_engine_want_candidates(v->n_cand, v->mask, &s);
    if (e->spec && n > 1)
        LG_TRY(lg_spec_flush(e, err));
    s.ids = v->ids + first;
    LG_TRY(lg_laguna_forward(e->b, &e->model, e->kv.cls, &e->work, &s, err));
    LG_TRY(lg_engine_wait(e, err));
    memcpy(e->tokens + e->kv.pos, s.ids, (size_t)n * sizeof *e->tokens);
    lg_kv_commit(&e->kv, n);
    e->chunk_first = first;
    e->chunk_rows = n;
    e->n_out = s.n_out;
    return taps ? lg_spec_absorb(e, e->kv.pos - n, n, err) : LG_OK;
}

// Logits of the chunk's rows behind the first slice.
static lg_status run_head(lg_engine *e, int first, int n, atomic_bool *cancel, lg_err *err)
{
    lg_step s = lg_engine_step(e, LG_GRAPH_HEAD, e->chunk_rows, cancel);

    want_rows(e, first, n, &s);
    s.pos -= e->chunk_rows;
    LG_TRY(lg_laguna_head(e->b, &e->model, &e->work, &s, err));
    LG_TRY(e->b->ops->wait(e->b, err));
    e->n_out = n;
    return LG_OK;
}

static lg_status report(const lg_eval *v, size_t first, int n, lg_err *err)
{
    return v->chunk_done ? v->chunk_done(v->ctx, first, (size_t)n, err) : LG_OK;
}

static lg_status check_eval(const lg_engine *e, const lg_eval *v, lg_err *err)
{
    if ((v->flags & LG_STEP_LAYERS && !e->work.dbg_layers) ||
        (v->flags & LG_STEP_ROUTES && !e->work.dbg_route_ids))
        return LG_FAIL(err, LG_E_INPUT, "layer outputs and routes need an engine opened for debugging");
    if (v->n > (size_t)(e->plan.ctx - e->kv.pos))
        return LG_FAIL(err, LG_E_LIMIT, "%zu tokens after %lld exceed the context of %lld", v->n,
                       (long long)e->kv.pos, (long long)e->plan.ctx);
    for (size_t i = 0; i < v->n; i++)
        if (v->ids[i] < 0 || v->ids[i] >= e->hp.vocab)
            return LG_FAIL(err, LG_E_INPUT, "token %zu is %d; the vocabulary has 0 to %d", i, (int)v->ids[i],
                           e->hp.vocab - 1);
    return LG_OK;
}

lg_status lg_engine_eval(lg_engine *e, const lg_eval *v, lg_err *err)
{
    LG_TRY(check_eval(e, v, err));
    for (size_t first = 0; first < v->n;) {
        size_t left = v->n - first;
        int n = left < (size_t)e->work.max_rows ? (int)left : e->work.max_rows;

        if (v->cancel && atomic_load(v->cancel))
            return LG_FAIL(err, LG_E_CANCELLED, "cancelled");
        uint64_t start = lg_now_us();
        LG_TRY(run_chunk(e, v, first, n, err));
        if (v->flags == 0)
            lg_cache_time(e, n, lg_now_us() - start);
        lg_cache_rows(e, n);
        int done = v->all_logits && !v->no_logits ? e->n_out : n;
        LG_TRY(report(v, first, done, err));
        while (done < n) {
            int slice = n - done < e->work.max_out ? n - done : e->work.max_out;
            LG_TRY(run_head(e, done, slice, v->cancel, err));
            LG_TRY(report(v, first + (size_t)done, slice, err));
            done += slice;
        }
        first += (size_t)n;
    }
    return LG_OK;
}

lg_status lg_engine_logits(lg_engine *e, int i, const float **out, lg_err *err)
{
    size_t vocab = (size_t)e->hp.vocab;

    if (i < 0 || i >= e->n_out)
        return LG_FAIL(err, LG_E_INPUT, "the last step has logits of %d rows, not of row %d", e->n_out, i);
    LG_TRY(
        e->b->ops->download(e->b, e->work.logits.p + (size_t)i * vocab, e->row, vocab * sizeof(float), err));
    *out = e->row;
    return LG_OK;
}

// Index in the last chunk of row `first` of the running eval.
static lg_status in_chunk(const lg_engine *e, const void *buffer, int layer, size_t first, size_t n,
                          size_t *at, lg_err *err)
{
    if (!buffer || layer < 0 || layer >= e->hp.n_layer)
        return LG_FAIL(err, LG_E_INPUT, "no debug output of layer %d is kept", layer);
    if (first < e->chunk_first || first - e->chunk_first > (size_t)e->chunk_rows ||
        n > (size_t)e->chunk_rows - (first - e->chunk_first))
        return LG_FAIL(err, LG_E_INPUT, "rows %zu to %zu are not in the last chunk", first, first + n);
    *at = first - e->chunk_first;
    return LG_OK;
}

lg_status lg_engine_layer_rows(lg_engine *e, int layer, size_t first, size_t n, const float **out,
                               lg_err *err)
{
    size_t hidden = (size_t)e->hp.hidden, at = 0;

    LG_TRY(in_chunk(e, e->work.dbg_layers, layer, first, n, &at, err));
    at += (size_t)layer * (size_t)e->work.max_rows;
    LG_TRY(e->b->ops->download(e->b, e->work.dbg_layers + at * hidden, e->debug_rows,
                               n * hidden * sizeof(float), err));
    *out = e->debug_rows;
    return LG_OK;
}

lg_status lg_engine_route_rows(lg_engine *e, int layer, size_t first, size_t n, const int32_t **ids,
                               const float **w, lg_err *err)
{
    size_t k = (size_t)e->hp.n_expert_used, at = 0;
    int32_t *host_ids = e->debug_rows;
    float *host_w = (float *)e->debug_rows + n * k;

    LG_TRY(in_chunk(e, e->work.dbg_route_ids, layer, first, n, &at, err));
    if (e->hp.layer[layer].dense)
        return LG_FAIL(err, LG_E_INPUT, "layer %d is dense; it has no routes", layer);
    at += (size_t)layer * (size_t)e->work.max_rows;
    LG_TRY(
        e->b->ops->download(e->b, e->work.dbg_route_ids + at * k, host_ids, n * k * sizeof *host_ids, err));
    LG_TRY(e->b->ops->download(e->b, e->work.dbg_route_w + at * k, host_w, n * k * sizeof *host_w, err));
    *ids = host_ids;
    *w = host_w;
    return LG_OK;
}
