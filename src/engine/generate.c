/*
 * engine/generate: a whole reply: prompt, then one token after the other until it ends (engine.h).
 *
 * A token is chosen from the few largest logits that the device returns, when these provably decide the
 * choice after all edits, else from the full row; both ways give the same token. Under a grammar the row is
 * masked first, and every token of the reply goes through the guide (guide.h) before the parser. A decode step
 * of a free reply allocates nothing.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/ban.h"
#include "engine/engine_int.h"
#include "engine/guide.h"

enum {
    EDIT_ROOM = 32, // candidates beyond those that decide, so that edits rarely need the full row
    BLOCK = 16,     // a step of so many rows gives each row the bits that it has alone
};

typedef struct gen {
    lg_engine *e;
    const lg_gen_params *p;
    lg_gen_stats *stats;
    lg_reply *reply;
    lg_think think;
    int need;    // candidates that decide; 0: the full row is needed
    int n_cand;  // candidates asked for
    bool banned; // e->allowed holds banned tokens
    lg_guide guide;
    lg_ids pending; // chosen or forced, not evaluated yet
    uint64_t t_start, t_first;
} gen;

static bool cancelled(const gen *g)
{
    return g->p->cancel && atomic_load(g->p->cancel);
}

// In the reasoning, and not in a call there that follows a grammar.
static bool inside(const gen *g)
{
    return !g->p->reply.raw && lg_reply_now(g->reply) == LG_PHASE_REASONING && !lg_guide_active(&g->guide);
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

// What may come, by bans and grammar; NULL: everything.
static lg_status mask_now(gen *g, const uint32_t **mask, lg_err *err)
{
    *mask = g->banned ? g->e->allowed : NULL;
    if (!lg_guide_active(&g->guide))
        return LG_OK;
    LG_TRY(lg_guide_mask(&g->guide, *mask, g->e->legal, err));
    *mask = g->e->legal;
    return LG_OK;
}

// The choice from the device's candidates; *id stays -1 when they do not decide it.
static lg_status from_candidates(gen *g, const uint32_t *mask, const lg_edit *edit, double u, int32_t *id,
                                 bool *lifted, lg_err *err)
{
    lg_engine *e = g->e;
    size_t n = (size_t)g->n_cand;
    lg_step s = lg_engine_step(e, LG_GRAPH_SAMPLE, 1, g->p->cancel);

    s.pos--; // the row whose logits these are
    s.out_rows = NULL; // of the logits, the first
    s.n_out = 1;
    s.n_cand = g->n_cand;
    if (mask) {
        s.flags |= LG_STEP_MASK;
        s.mask = mask;
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

static void mask_row(float *row, int n, const uint32_t *mask)
{
    for (int i = 0; i < n; i++)
        if (!(mask[i / 32] >> (i % 32) & 1))
            row[i] = -INFINITY;
}

static lg_status from_row(gen *g, const uint32_t *mask, const lg_edit *edit, double u, int32_t *id,
                          bool *lifted, lg_err *err)
{
    lg_engine *e = g->e;
    const float *row; // e->row, which may be changed here
    int n = e->hp.vocab;

    LG_TRY(lg_engine_logits(e, 0, &row, err));
    lg_sample_penalize(&g->p->sampling, e->tokens, e->kv.pos, e->count, e->row, n);
    if (mask)
        mask_row(e->row, n, mask);
    *lifted = lg_edit_row(edit, e->row, n);
    *id = lg_sample_row(&g->p->sampling, row, n, e->heap, u);
    if (*id < 0 && lg_guide_active(&g->guide)) { // a bias forbids all that the grammar wants: the grammar wins
        LG_TRY(lg_engine_logits(e, 0, &row, err));
        mask_row(e->row, n, mask);
        *id = lg_sample_row(&g->p->sampling, row, n, e->heap, u);
    }
    return *id >= 0 ? LG_OK : nothing_to_choose(g, err);
}

static void never(lg_edit *e, int32_t id)
{
    if (id >= 0)
        e->mask[e->n_mask++] = id;
}

static lg_status choose(gen *g, int32_t *id, bool *lifted, lg_err *err)
{
    const lg_special *sp = lg_vocab_special(g->e->vocab);
    uint64_t index = (uint64_t)g->stats->output_tokens;
    double u = lg_sample_uniform(g->p->sampling.seed, index);
    const uint32_t *mask;
    lg_edit edit;

    lg_edit_init(&edit);
    *lifted = false;
    *id = lg_think_before(&g->think, inside(g), &edit);
    if (*id >= 0)
        return LG_OK;
    if (lg_guide_thinking(&g->guide)) { // the answer is still owed: reasoning ends with its tag alone
        never(&edit, sp->tool_call);
        never(&edit, sp->assistant);
    } else if (index == 0 && !g->p->reply.raw && !g->p->reply.thinking && !lg_guide_active(&g->guide)) {
        never(&edit, sp->think); // a turn with thinking off must not begin with <think>
    }
    LG_TRY(mask_now(g, &mask, err));
    if (g->need > 0)
        LG_TRY(from_candidates(g, mask, &edit, u, id, lifted, err));
    return *id >= 0 ? LG_OK : from_row(g, mask, &edit, u, id, lifted, err);
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

static void start_sampling(gen *g)
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
        g->banned = true;
    }
    lg_think_init(&g->think, &e->think, e->vocab, p->max_think, p->min_think);
}

// The grammar, and the beginning of the value that the prompt ends in.
static lg_status start_guide(gen *g, const int32_t *prompt, size_t n, lg_err *err)
{
    const lg_gen_params *p = g->p;
    const lg_token_trie *trie;
    size_t n_ok;

    if (!p->grammar)
        return LG_OK;
    LG_TRY(lg_engine_trie(g->e, &trie, err));
    if (p->grammar_prefix > n || (p->grammar_prefix > 0 && (p->reply.open_reasoning || p->grammar_calls)))
        return LG_FAIL(err, LG_E_INPUT, "the beginning of a value must follow closed reasoning");
    LG_TRY(lg_guide_start(&g->guide, p->grammar, trie, p->reply.open_reasoning && !p->reply.raw,
                          p->grammar_calls, err));
    prompt += n - p->grammar_prefix;
    LG_TRY(lg_guide_check(&g->guide, prompt, p->grammar_prefix, &n_ok, err));
    if (n_ok < p->grammar_prefix)
        return LG_FAIL(err, LG_E_INPUT, "token %zu of the prefix is not legal under the constraint", n_ok);
    for (size_t i = 0; i < n_ok; i++)
        LG_TRY(lg_guide_take(&g->guide, prompt[i], err));
    return LG_OK;
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

// A token of the reply: count, follow, parse. *done: it ended the reply.
static lg_status take(gen *g, int32_t id, bool lifted, bool *done, lg_err *err)
{
    if (g->stats->output_tokens++ == 0) {
        g->t_first = lg_now_us();
        g->stats->first_token_us = g->t_first - g->t_start;
    }
    if (penalized(&g->p->sampling))
        g->e->count[id]++;
    LG_TRY(lg_ids_add(&g->pending, id, err));
    LG_TRY(lg_guide_take(&g->guide, id, err));
    LG_TRY(lg_reply_feed(g->reply, id, done, err));
    lg_think_after(&g->think, id, lifted, inside(g) && !*done);
    *done = *done || lg_vocab_is_eog(g->e->vocab, id) || lg_guide_done(&g->guide);
    if (lg_guide_done(&g->guide))
        g->stats->end = LG_END_SCHEMA;
    else if (*done)
        g->stats->end = lg_reply_stop(g->reply) >= 0 ? LG_END_STOP_STRING : LG_END_EOG;
    return LG_OK;
}

// Tokens that the grammar leaves no choice about.
static lg_status take_forced(gen *g, int64_t limit, bool *done, lg_err *err)
{
    lg_ids ids = {0};
    lg_status st = lg_guide_forced(&g->guide, g->e->bpe, &ids, err);

    for (size_t i = 0; st == LG_OK && i < ids.n && !*done && g->stats->output_tokens < limit; i++) {
        (void)lg_think_before(&g->think, false, &(lg_edit){0});
        st = take(g, ids.p[i], false, done, err);
        g->stats->forced_tokens += st == LG_OK;
    }
    lg_ids_free(&ids);
    return st;
}

// Evaluates the tokens that are only chosen so far; the last one's logits choose the next.
static lg_status evaluate(gen *g, lg_err *err)
{
    size_t n = g->pending.n;

    for (size_t i = 0; i < n; i += BLOCK) {
        lg_eval v = {.ids = g->pending.p + i,
                     .n = n - i < BLOCK ? n - i : BLOCK,
                     .no_logits = n - i > BLOCK,
                     .cancel = g->p->cancel};
        LG_TRY(lg_engine_eval(g->e, &v, err));
    }
    g->pending.n = 0;
    return LG_OK;
}

static lg_status decode(gen *g, size_t n_prompt, lg_err *err)
{
    int64_t limit = g->e->plan.ctx - (int64_t)n_prompt;
    bool done = false, lifted;
    int32_t id;

    if (g->p->max_tokens > 0 && g->p->max_tokens < limit)
        limit = g->p->max_tokens;
    g->stats->end = LG_END_LENGTH;
    while (!done && g->stats->output_tokens < limit) {
        if (cancelled(g))
            return LG_FAIL(err, LG_E_CANCELLED, "cancelled");
        if (g->p->fast_forward)
            LG_TRY(take_forced(g, limit, &done, err));
        if (done || g->stats->output_tokens == limit)
            break;
        LG_TRY(evaluate(g, err));
        LG_TRY(choose(g, &id, &lifted, err));
        LG_TRY(take(g, id, lifted, &done, err));
    }
    return LG_OK;
}

// The reply's ids: those in the cache, and those that were not evaluated any more.
static lg_status hand_out(const gen *g, size_t n_prompt, lg_ids *ids, lg_err *err)
{
    int64_t held = g->stats->output_tokens - (int64_t)g->pending.n;

    for (int64_t i = 0; i < g->stats->output_tokens; i++)
        LG_TRY(lg_ids_add(ids, i < held ? g->e->tokens[(int64_t)n_prompt + i] : g->pending.p[i - held], err));
    return LG_OK;
}

// A reply whose value the prompt completes has no tokens, and its prompt is not even evaluated.
static lg_status reply(gen *g, const int32_t *prompt, size_t n, lg_err *err)
{
    LG_TRY(start_guide(g, prompt, n, err));
    if (lg_guide_done(&g->guide)) {
        g->stats->prompt_tokens = (int64_t)n;
        g->stats->end = LG_END_SCHEMA;
        return LG_OK;
    }
    LG_TRY(prefill(g, prompt, n, err));
    return decode(g, n, err);
}

lg_status lg_generate(lg_engine *e, const int32_t *prompt, size_t n, const lg_gen_params *p,
                      lg_gen_stats *stats, lg_ids *ids_out, lg_err *err)
{
    gen g = {.e = e, .p = p, .stats = stats, .t_start = lg_now_us()};
    lg_reply_params parser = p->reply;
    lg_status st;

    *stats = (lg_gen_stats){.seed = p->sampling.seed};
    LG_TRY(check_params(e, p, n, err));
    if (p->grammar && !p->grammar_calls)
        parser.n_stop = 0;
    LG_TRY(lg_reply_create(e->vocab, &parser, p->max_reply_bytes, p->event, p->ctx, &g.reply, err));
    start_sampling(&g);
    st = reply(&g, prompt, n, err);
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
    lg_guide_end(&g.guide);
    lg_ids_free(&g.pending);
    lg_reply_destroy(g.reply);
    return st;
}
