/*
 * engine/generate: a whole reply: prompt, then one token after the other until it ends (engine.h).
 *
 * A token is chosen from the few largest logits that the device returns, when these provably decide the
 * choice after all edits, else from the full row; both ways give the same token. A decode step allocates
 * nothing.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/ban.h"
#include "engine/engine_int.h"

enum { EDIT_ROOM = 32 }; // candidates beyond those that decide, so that edits rarely need the full row

typedef struct gen {
    lg_engine *e;
    const lg_gen_params *p;
    lg_gen_stats *stats;
    lg_reply *reply;
    lg_think think;
    int need;    // candidates that decide; 0: the full row is needed
    int n_cand;  // candidates asked for
    bool masked; // e->allowed holds banned tokens
    int32_t last;
    uint64_t t_start, t_first;
} gen;

static bool cancelled(const gen *g)
{
    return g->p->cancel && atomic_load(g->p->cancel);
}

static bool inside(const gen *g)
{
    return !g->p->reply.raw && lg_reply_now(g->reply) == LG_PHASE_REASONING;
}

static bool penalized(const lg_sampling *s)
{
    return s->frequency_penalty != 0 || s->presence_penalty != 0;
}

static lg_status nothing_to_choose(const gen *g, lg_err *err)
{
    return LG_FAIL(err, LG_E_DEVICE,
                   "no token can be chosen at position %lld: every logit is masked or not finite",
                   (long long)g->e->kv.pos);
}

// The choice from the device's candidates; *id stays -1 when they do not decide it.
static lg_status from_candidates(gen *g, const lg_edit *edit, double u, int32_t *id, bool *lifted,
                                 lg_err *err)
{
    lg_engine *e = g->e;
    size_t n = (size_t)g->n_cand;
    lg_step s = lg_engine_step(e, LG_GRAPH_SAMPLE, 1, g->p->cancel);

    s.pos--; // the row whose logits these are
    s.out_rows = NULL; // of the logits, the first
    s.n_out = 1;
    s.n_cand = g->n_cand;
    if (g->masked) {
        s.flags |= LG_STEP_MASK;
        s.mask = e->allowed;
    }
    LG_TRY(lg_laguna_sample(e->b, &e->work, &s, err));
    LG_TRY(e->b->ops->wait(e->b, err));
    LG_TRY(e->b->ops->download(e->b, e->work.cand.ids, e->cand_ids, n * sizeof *e->cand_ids, err));
    LG_TRY(e->b->ops->download(e->b, e->work.cand.logits, e->cand_logits, n * sizeof *e->cand_logits, err));
    int sure = lg_edit_empty(edit) ? g->n_cand
                                   : lg_edit_list(edit, e->cand_ids, e->cand_logits, g->n_cand, lifted);
    if (sure < g->need)
        return LG_OK;
    *id = lg_sample_pick(&g->p->sampling,
                         &(lg_cand_list){.ids = e->cand_ids, .logits = e->cand_logits, .n = sure}, u);
    return *id >= 0 ? LG_OK : nothing_to_choose(g, err);
}

static lg_status from_row(gen *g, const lg_edit *edit, double u, int32_t *id, bool *lifted, lg_err *err)
{
    lg_engine *e = g->e;
    const float *row; // e->row, which may be changed here
    int n = e->hp.vocab;

    LG_TRY(lg_engine_logits(e, 0, &row, err));
    lg_sample_penalize(&g->p->sampling, e->tokens, e->kv.pos, e->count, e->row, n);
    for (int i = 0; g->masked && i < n; i++)
        if (!(e->allowed[i / 32] >> (i % 32) & 1))
            e->row[i] = -INFINITY;
    *lifted = lg_edit_row(edit, e->row, n);
    *id = lg_sample_row(&g->p->sampling, row, n, e->heap, u);
    return *id >= 0 ? LG_OK : nothing_to_choose(g, err);
}

static lg_status choose(gen *g, int32_t *id, bool *lifted, lg_err *err)
{
    const lg_special *sp = lg_vocab_special(g->e->vocab);
    uint64_t index = (uint64_t)g->stats->output_tokens;
    double u = lg_sample_uniform(g->p->sampling.seed, index);
    lg_edit edit;

    lg_edit_init(&edit);
    *lifted = false;
    *id = lg_think_before(&g->think, inside(g), &edit);
    if (*id >= 0)
        return LG_OK;
    // a turn with thinking off must not begin with <think>
    if (index == 0 && !g->p->reply.raw && !g->p->reply.thinking && sp->think >= 0)
        edit.mask[edit.n_mask++] = sp->think;
    if (g->need > 0)
        LG_TRY(from_candidates(g, &edit, u, id, lifted, err));
    return *id >= 0 ? LG_OK : from_row(g, &edit, u, id, lifted, err);
}

static lg_status check_params(const lg_engine *e, const lg_gen_params *p, size_t n, lg_err *err)
{
    LG_TRY(lg_sampling_check(&p->sampling, err));
    for (int i = 0; i < p->sampling.n_bias; i++)
        if (p->sampling.bias[i].id >= e->hp.vocab)
            return LG_FAIL(err, LG_E_INPUT, "logit_bias of token %d; the vocabulary has 0 to %d",
                           (int)p->sampling.bias[i].id, e->hp.vocab - 1);
    if (n == 0)
        return LG_FAIL(err, LG_E_INPUT, "the prompt has no tokens");
    if (n >= (size_t)e->plan.ctx)
        return LG_FAIL(err, LG_E_LIMIT, "prompt is too long: %zu tokens > %lld maximum", n,
                       (long long)(e->plan.ctx - 1));
    return LG_OK;
}

static void start(gen *g)
{
    lg_engine *e = g->e;
    const lg_gen_params *p = g->p;
    int max = e->work.cand.max_cand, need = lg_sampling_cands(&p->sampling);

    if (need > e->hp.vocab)
        need = e->hp.vocab;
    g->need = need <= max ? need : 0;
    g->n_cand = p->reply.raw ? need : need + EDIT_ROOM;
    if (g->n_cand > max)
        g->n_cand = max;
    if (penalized(&p->sampling))
        memset(e->count, 0, (size_t)e->hp.vocab * sizeof *e->count);
    if (p->n_ban > 0) {
        memset(e->allowed, 0xff, ((size_t)e->hp.vocab + 31) / 32 * sizeof *e->allowed);
        g->stats->n_ban_skipped = lg_ban_mask(e->vocab, p->ban, p->n_ban, e->allowed);
        g->masked = true;
    }
    lg_think_init(&g->think, &e->think, e->vocab, p->max_think, p->min_think);
}

static size_t common_prefix(const lg_engine *e, const int32_t *ids, size_t n)
{
    size_t i = 0, held = (size_t)e->kv.pos;

    while (i < n && i < held && e->tokens[i] == ids[i])
        i++;
    return i;
}

// Progress of the prompt: `first` counts from the end of what was reused.
static lg_status on_chunk(void *ctx, size_t first, size_t n, lg_err *err)
{
    gen *g = ctx;
    size_t cached = (size_t)g->stats->cached_tokens;

    (void)err;
    if (g->p->prefill)
        g->p->prefill(g->p->ctx, cached + first + n, (size_t)g->stats->prompt_tokens);
    return LG_OK;
}

static lg_status prefill(gen *g, const int32_t *prompt, size_t n, lg_err *err)
{
    // the last token is always evaluated: its logits choose the first token of the reply
    int64_t keep = lg_engine_truncate(g->e, (int64_t)common_prefix(g->e, prompt, n - 1));
    lg_status st;

    g->stats->cached_tokens = keep;
    g->stats->prompt_tokens = (int64_t)n;
    if (g->p->prefill)
        g->p->prefill(g->p->ctx, (size_t)keep, n);
    st = lg_engine_eval(g->e,
                        &(lg_eval){.ids = prompt + keep,
                                   .n = n - (size_t)keep,
                                   .cancel = g->p->cancel,
                                   .chunk_done = on_chunk,
                                   .ctx = g},
                        err);
    if (st == LG_OK)
        lg_kv_cut_here(&g->e->kv); // a retry and the next turn go on from here
    g->stats->prefill_us = lg_now_us() - g->t_start;
    return st;
}

// One token: choose, count, parse. *done: it ended the reply.
static lg_status one_token(gen *g, int32_t *id, bool *done, lg_err *err)
{
    bool lifted;

    LG_TRY(choose(g, id, &lifted, err));
    if (g->stats->output_tokens++ == 0) {
        g->t_first = lg_now_us();
        g->stats->first_token_us = g->t_first - g->t_start;
    }
    if (penalized(&g->p->sampling))
        g->e->count[*id]++;
    LG_TRY(lg_reply_feed(g->reply, *id, done, err));
    lg_think_after(&g->think, *id, lifted, inside(g) && !*done);
    *done = *done || lg_vocab_is_eog(g->e->vocab, *id);
    if (*done)
        g->stats->end = lg_reply_stop(g->reply) >= 0 ? LG_END_STOP_STRING : LG_END_EOG;
    return LG_OK;
}

static lg_status decode(gen *g, size_t n_prompt, lg_err *err)
{
    int64_t limit = g->e->plan.ctx - (int64_t)n_prompt;
    bool done = false;

    if (g->p->max_tokens > 0 && g->p->max_tokens < limit)
        limit = g->p->max_tokens;
    g->stats->end = LG_END_LENGTH;
    while (!done && g->stats->output_tokens < limit) {
        if (cancelled(g))
            return LG_FAIL(err, LG_E_CANCELLED, "cancelled");
        if (g->stats->output_tokens > 0)
            LG_TRY(lg_engine_eval(g->e, &(lg_eval){.ids = &g->last, .n = 1, .cancel = g->p->cancel}, err));
        LG_TRY(one_token(g, &g->last, &done, err));
    }
    return LG_OK;
}

// The reply's ids: those in the cache, and the newest one if it was not evaluated any more.
static lg_status hand_out(const gen *g, size_t n_prompt, lg_ids *ids, lg_err *err)
{
    int64_t held = g->e->kv.pos - (int64_t)n_prompt;

    for (int64_t i = 0; i < g->stats->output_tokens; i++)
        LG_TRY(lg_ids_add(ids, i < held ? g->e->tokens[(int64_t)n_prompt + i] : g->last, err));
    return LG_OK;
}

lg_status lg_generate(lg_engine *e, const int32_t *prompt, size_t n, const lg_gen_params *p,
                      lg_gen_stats *stats, lg_ids *ids_out, lg_err *err)
{
    gen g = {.e = e, .p = p, .stats = stats, .t_start = lg_now_us()};
    lg_status st;

    *stats = (lg_gen_stats){.seed = p->sampling.seed};
    LG_TRY(check_params(e, p, n, err));
    LG_TRY(lg_reply_create(e->vocab, &p->reply, p->max_reply_bytes, p->event, p->ctx, &g.reply, err));
    start(&g);
    st = prefill(&g, prompt, n, err);
    if (st == LG_OK)
        st = decode(&g, n, err);
    if (st == LG_E_CANCELLED) {
        stats->end = LG_END_CANCELLED;
        st = LG_OK;
    }
    if (g.t_first)
        stats->decode_us = lg_now_us() - g.t_first;
    stats->think_tokens = lg_reply_reasoning_tokens(g.reply);
    stats->think_exit = g.think.exit;
    stats->injected_tokens = g.think.injected;
    if (st == LG_OK)
        st = lg_reply_end(g.reply, stats->end, &stats->finish, err);
    if (st == LG_OK && ids_out)
        st = hand_out(&g, n, ids_out, err);
    lg_reply_destroy(g.reply);
    return st;
}
