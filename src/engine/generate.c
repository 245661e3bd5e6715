/*
 * engine/generate: a whole reply: prompt, then one token after the other until it ends (engine.h).
 *
 * A token is chosen from the few largest logits that the device returns, when these provably decide the
 * choice after all edits, else from the full row; both ways give the same token. Under a grammar the row is
 * masked first, and every token of the reply goes through the guide (guide.h) before the parser. A decode
 * step of a free reply allocates nothing.
 *
 * With a drafter (spec.h) a step evaluates the newest token and drafts behind it; then tokens are chosen row
 * by row, in the same way and with the same random numbers, until one differs from the draft there.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
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
    const int32_t *draft; // of the step that is under way, n_draft of them
    int n_draft;
    size_t n_known; // bytes of the answer that the prompt has
    int row;        // of the logits of the last step, the one that the coming token is chosen from
    int n_listed;   // rows whose candidates the device has left, all at once
    bool has_logprobs; // `logprobs` are those of the token that comes next
    lg_logprobs logprobs;
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

// The request forbids all, or the logits are no numbers. Neither means that the device is lost.
static lg_status nothing_to_choose(const gen *g, lg_err *err)
{
    long long at = (long long)g->stats->output_tokens;
    const float *row;

    LG_TRY(lg_engine_logits(g->e, g->row, &row, err));
    for (int i = 0; i < g->e->hp.vocab; i++)
        if (isfinite(row[i]))
            return LG_FAIL(err, LG_E_INPUT,
                           "bans and biases leave no token to choose, %lld tokens into the reply", at);
    return LG_FAIL(err, LG_E_INTERNAL, "no logit is finite, %lld tokens into the reply", at);
}

// Masks depend on past tokens only: they are made while the device works.
static void prepare_masks(void *ctx)
{
    gen *g = ctx;

    lg_guide_prepare(&g->guide, g->draft, (size_t)g->n_draft);
}

// The coming step leaves the host time; behind its newest token it evaluates n drafts.
static void prepare_beside(gen *g, const int32_t *draft, int n)
{
    g->draft = draft;
    g->n_draft = n;
    g->e->beside = prepare_masks;
    g->e->beside_ctx = g;
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

// The coming eval lists candidates of its last row itself: what may come is known before it, but to a
// grammar, whose mask is made beside it.
static void list_early(const gen *g, lg_eval *v)
{
    if (g->need == 0 || v->no_logits || lg_guide_active(&g->guide))
        return;
    v->n_cand = g->n_cand;
    v->mask = g->banned ? g->e->allowed : NULL;
}

// The largest logits of the first `rows` rows. mask: one row each, or NULL.
static lg_status list_candidates(gen *g, int rows, const uint32_t *mask, lg_err *err)
{
    lg_engine *e = g->e;
    lg_step s = lg_engine_step(e, LG_GRAPH_SAMPLE, rows - 1, g->p->cancel);

    s.pos--; // the row whose logits these are, or the first of them
    s.n_rows = rows;
    s.out_rows = NULL; // of the logits, the first
    s.n_out = rows;
    lg_engine_want_candidates(g->n_cand, mask, &s);
    LG_TRY(lg_laguna_sample(e->b, &e->work, &s, err));
    LG_TRY(e->b->ops->wait(e->b, err));
    g->n_listed = rows;
    return LG_OK;
}

// The choice from the device's candidates; *id stays -1 when they do not decide it.
static lg_status from_candidates(gen *g, const uint32_t *mask, const lg_edit *edit, double u, int32_t *id,
                                 bool *lifted, lg_err *err)
{
    lg_engine *e = g->e;
    size_t n = (size_t)g->n_cand, at = (size_t)g->row * n;

    if (g->row >= g->n_listed)
        LG_TRY(list_candidates(g, 1, mask, err));
    memcpy(e->cand_ids, e->work.cand.ids + at, n * sizeof *e->cand_ids);
    memcpy(e->cand_logits, e->work.cand.logits + at, n * sizeof *e->cand_logits);
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

    LG_TRY(lg_engine_logits(e, g->row, &row, err));
    lg_sample_penalize(&g->p->sampling, e->tokens, e->kv.pos, e->count, e->row, n);
    if (mask)
        mask_row(e->row, n, mask);
    *lifted = lg_edit_row(edit, e->row, n);
    *id = lg_sample_row(&g->p->sampling, row, n, e->heap, u);
    // a bias forbids all that the grammar wants: the grammar wins
    if (*id < 0 && lg_guide_active(&g->guide)) {
        LG_TRY(lg_engine_logits(e, g->row, &row, err));
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
    if (p->grammar_prefix > n || (p->grammar_prefix + p->grammar_heal.n > 0 &&
                                  (p->reply.open_reasoning || p->grammar_calls)))
        return LG_FAIL(err, LG_E_INPUT, "the beginning of a value must follow closed reasoning");
    LG_TRY(lg_guide_start(&g->guide, p->grammar, trie, p->reply.open_reasoning && !p->reply.raw,
                          p->grammar_calls, err));
    prompt += n - p->grammar_prefix;
    LG_TRY(lg_guide_check(&g->guide, prompt, p->grammar_prefix, &n_ok, err));
    if (n_ok < p->grammar_prefix)
        return LG_FAIL(err, LG_E_INPUT, "token %zu of the prefix is not legal under the constraint", n_ok);
    for (size_t i = 0; i < n_ok; i++)
        LG_TRY(lg_guide_take(&g->guide, prompt[i], err));
    g->n_known = p->grammar_heal.n;
    return lg_guide_heal(&g->guide, p->grammar_heal, err);
}

static void start_drafting(gen *g)
{
    g->e->spec_off = g->p->no_draft;
    g->stats->draft.present = g->e->spec && !g->p->no_draft;
    if (g->stats->draft.present)
        lg_pace_start(lg_spec_pace(g->e->spec));
}

static void count_round(lg_draft_stats *d, const lg_pace_round *r)
{
    d->rounds += r->kept > 0;
    d->plain += r->kept == 0;
    d->made += r->drafted;
    d->drafted += r->kept;
    d->accepted += r->accepted;
    for (int i = 0; i < r->compared; i++) {
        d->tried_at[i]++;
        d->accepted_at[i] += i < r->accepted;
    }
    d->draft_us += r->draft_us;
    *(r->kept > 0 ? &d->verify_us : &d->plain_us) += r->verify_us;
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
    const lg_gen_params *p = g->p;
    lg_cache_ask ask = {.ids = prompt, .n = n, .mark = p->mark, .n_mark = p->n_mark, .mode = p->cache,
                        .scope = p->scope};
    // the last token is always evaluated: its logits choose the first token of the reply
    int64_t keep = lg_cache_begin(g->e, &ask, (int64_t)n - 1, true);
    lg_status st;

    g->stats->found = g->e->cache.found;
    g->stats->cached_tokens = keep;
    g->stats->prompt_tokens = (int64_t)n;
    if (g->p->prefill)
        g->p->prefill(g->p->ctx, (size_t)keep, n);
    prepare_beside(g, NULL, 0);
    lg_eval v = {.ids = prompt + keep,
                 .n = n - (size_t)keep,
                 .cancel = g->p->cancel,
                 .chunk_done = on_chunk,
                 .ctx = g};
    list_early(g, &v);
    st = lg_engine_eval(g->e, &v, err);
    g->n_listed = v.n_cand > 0;
    g->stats->prefill_us = lg_now_us() - g->t_start;
    return st;
}

static bool is_stop_id(const lg_gen_params *p, int32_t id)
{
    for (size_t i = 0; i < p->n_stop_id; i++)
        if (p->stop_id[i] == id)
            return true;
    return false;
}

// What the reply says, without what the prompt says already.
static void on_event(void *ctx, const lg_event *ev)
{
    gen *g = ctx;
    lg_event rest = *ev;

    if (ev->kind == LG_EV_CONTENT && g->n_known > 0) {
        size_t n = ev->text.n < g->n_known ? ev->text.n : g->n_known;
        g->n_known -= n;
        rest.text = (lg_str){ev->text.p + n, ev->text.n - n};
        if (rest.text.n == 0)
            return;
    }
    if (g->p->event)
        g->p->event(g->p->ctx, &rest);
}

static void tell_token(gen *g, int32_t id)
{
    if (g->p->token)
        g->p->token(g->p->ctx, &(lg_gen_token){.id = id,
                                               .phase = lg_reply_now(g->reply),
                                               .logprobs = g->has_logprobs ? &g->logprobs : NULL});
    g->has_logprobs = false;
}

// Whether the token ends the reply for a reason of the caller's. `phase`: of the parser, before it.
static bool caller_ends(const gen *g, lg_reply_phase phase)
{
    return g->p->one_call && phase == LG_PHASE_TOOL && lg_reply_now(g->reply) != LG_PHASE_TOOL;
}

// A token of the reply: count, follow, parse. *done: it ended the reply.
static lg_status take(gen *g, int32_t id, bool lifted, bool *done, lg_err *err)
{
    lg_reply_phase phase = lg_reply_now(g->reply);

    if (g->stats->output_tokens++ == 0) {
        g->t_first = lg_now_us();
        g->stats->first_token_us = g->t_first - g->t_start;
    }
    if (penalized(&g->p->sampling))
        g->e->count[id]++;
    LG_TRY(lg_ids_add(&g->pending, id, err));
    LG_TRY(lg_guide_take(&g->guide, id, err));
    if (is_stop_id(g->p, id)) {
        g->stats->end = LG_END_EOG;
        *done = true;
        return LG_OK;
    }
    tell_token(g, id);
    LG_TRY(lg_reply_feed(g->reply, id, done, err));
    lg_think_after(&g->think, id, lifted, inside(g) && !*done);
    *done = *done || lg_vocab_is_eog(g->e->vocab, id) || lg_guide_done(&g->guide) || caller_ends(g, phase);
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

    prepare_beside(g, NULL, 0);
    for (size_t i = 0; i < n; i += BLOCK) {
        lg_eval v = {.ids = g->pending.p + i,
                     .n = n - i < BLOCK ? n - i : BLOCK,
                     .no_logits = n - i > BLOCK,
                     .cancel = g->p->cancel};
        list_early(g, &v);
        LG_TRY(lg_engine_eval(g->e, &v, err));
        g->n_listed = v.n_cand > 0;
    }
    g->pending.n = 0;
    g->row = 0;
    return LG_OK;
}

// One choice and what follows from it.
static lg_status next_token(gen *g, bool *done, lg_err *err)
{
    bool lifted;
    int32_t id;

    LG_TRY(choose(g, &id, &lifted, err));
    if (g->p->logprobs && lg_reply_now(g->reply) == LG_PHASE_CONTENT) {
        const float *row;

        LG_TRY(lg_engine_logits(g->e, g->row, &row, err));
        lg_logprobs_of(row, g->e->hp.vocab, id, g->p->top_logprobs, &g->logprobs);
        g->has_logprobs = true;
    }
    return take(g, id, lifted, done, err);
}

// Cuts drafts that cannot be accepted or whose followers are of no use: what the grammar forbids, what comes
// after an end.
static lg_status cut_drafts(gen *g, const int32_t *draft, int *n, lg_err *err)
{
    size_t legal = (size_t)*n;

    LG_TRY(lg_guide_check(&g->guide, draft, (size_t)*n, &legal, err));
    for (size_t i = 0; i < legal; i++)
        if (lg_vocab_is_eog(g->e->vocab, draft[i]))
            legal = i + 1;
    *n = (int)legal;
    return LG_OK;
}

// Candidates of all rows of a verification at once. Row i is masked as it would be behind the first i drafts.
static lg_status list_rows(gen *g, const int32_t *draft, int n, lg_err *err)
{
    lg_engine *e = g->e;
    size_t words = ((size_t)e->hp.vocab + 31) / 32, before = lg_guide_n(&g->guide);
    bool any = false;

    for (int i = 0; i <= n; i++) {
        uint32_t *row = e->row_mask + (size_t)i * words;
        const uint32_t *mask;

        LG_TRY(mask_now(g, &mask, err));
        if (mask)
            memcpy(row, mask, words * sizeof *row);
        else
            memset(row, 0xff, words * sizeof *row);
        any = any || mask;
        if (i < n)
            LG_TRY(lg_guide_take(&g->guide, draft[i], err));
    }
    lg_guide_back(&g->guide, before);
    return list_candidates(g, n + 1, any ? e->row_mask : NULL, err);
}

// The rows of a round. Their candidates come with the step where no mask can bound one of them.
static lg_status verify(gen *g, const int32_t *ids, int n, lg_err *err)
{
    int n_cand = g->need > 0 && !g->p->grammar && !g->banned ? g->n_cand : 0;

    LG_TRY(lg_spec_verify(g->e, ids, n, n_cand, g->p->cancel, err));
    g->n_listed = n_cand > 0 ? n : 0;
    g->row = 0;
    return LG_OK;
}

// Drafts that turned out right become rows of the sequence. True while the next token can be chosen from a
// row of this verification.
static bool accept_drafts(gen *g, const int32_t *draft, int n)
{
    size_t k = 0;

    for (; k < g->pending.n && g->row < n && g->pending.p[k] == draft[g->row]; k++) {
        lg_kv_commit(&g->e->kv, 1);
        g->row++;
    }
    memmove(g->pending.p, g->pending.p + k, (g->pending.n - k) * sizeof *g->pending.p);
    g->pending.n -= k;
    return g->pending.n == 0;
}

// Tokens from the rows of a verification of n drafts, until one differs from its draft or the rows end.
static lg_status choose_rows(gen *g, const int32_t *draft, int n, int64_t limit, bool *done, lg_err *err)
{
    g->pending.n = 0;
    if (g->need > 0 && g->n_listed == 0)
        LG_TRY(list_rows(g, draft, n, err));
    do {
        LG_TRY(next_token(g, done, err));
        if (!*done && g->p->fast_forward)
            LG_TRY(take_forced(g, limit, done, err));
    } while (!*done && g->stats->output_tokens < limit && accept_drafts(g, draft, n));
    return LG_OK;
}

// A draft, its verification, the tokens that come of it. `ids[0]` is the newest token.
static lg_status speculate(gen *g, int32_t *ids, int n, int64_t limit, bool *done, lg_err *err)
{
    lg_engine *e = g->e;
    lg_draft_stats *d = &g->stats->draft;
    lg_pace *pace = lg_spec_pace(e->spec);
    float confidence[LG_DRAFTS_MAX];
    int64_t pos = e->kv.pos, before = g->stats->output_tokens;
    uint64_t t0 = lg_now_us(), t1, t2, flush_us, absorb_us;
    lg_pace_round r = {.drafted = n, .confidence = confidence};

    (void)lg_spec_context_us(e->spec);
    LG_TRY(lg_spec_draft(e, n, ids, confidence, g->p->cancel, err));
    flush_us = lg_spec_context_us(e->spec);
    n = lg_pace_keep(pace, confidence, n);
    LG_TRY(cut_drafts(g, ids + 1, &n, err));
    t1 = lg_now_us();
    prepare_beside(g, ids + 1, g->need > 0 ? n : 0); // of a full row, only what is chosen from
    LG_TRY(n > 0 ? verify(g, ids, n + 1, err) : evaluate(g, err));
    t2 = lg_now_us();
    absorb_us = lg_spec_context_us(e->spec); // of a plain step; a round with drafts has its own behind it
    LG_TRY(choose_rows(g, ids + 1, n, limit, done, err));
    if (n > 0) {
        LG_TRY(lg_spec_absorb(e, pos, (int)(e->kv.pos - pos), err));
        lg_cache_rows(e, (int)(e->kv.pos - pos));
    }
    r.kept = n;
    r.accepted = g->row;
    // the last choice disagreed with a draft, unless the rows or the reply ended with it
    r.compared = g->row + (g->row < n && !*done && g->stats->output_tokens < limit);
    r.tokens = (int)(g->stats->output_tokens - before);
    r.context_us = flush_us + absorb_us;
    r.draft_us = t1 - t0 - flush_us;
    r.verify_us = t2 - t1 - absorb_us;
    r.total_us = lg_now_us() - t0 - r.context_us;
    if (lg_pace_record(pace, &r))
        LG_WARN("draft", "barren",
                "no draft was accepted in this reply: is the drafter one for this very model and precision?");
    count_round(d, &r);
    return LG_OK;
}

// One step: plain, or with drafts.
static lg_status step(gen *g, int64_t limit, bool *done, lg_err *err)
{
    lg_engine *e = g->e;
    int32_t ids[LG_DRAFT_ROWS_MAX];
    uint64_t t0 = lg_now_us();
    lg_pace_round r = {.tokens = 1};
    int n = 0;

    if (g->pending.n == 1 && e->spec && !e->spec_off) {
        // of n drafts and one token more at most `left` can be used
        int64_t left = limit - g->stats->output_tokens;
        n = lg_pace_plan(lg_spec_pace(e->spec), lg_spec_room(e, left - 1));
        if (n == 0 && lg_pace_rests(lg_spec_pace(e->spec)))
            lg_spec_hold(e->spec);
    }
    if (n > 0) {
        ids[0] = g->pending.p[0];
        return speculate(g, ids, n, limit, done, err);
    }
    bool judged = g->pending.n == 1 && e->spec && !e->spec_off;
    if (judged)
        (void)lg_spec_context_us(e->spec);
    LG_TRY(evaluate(g, err));
    if (judged)
        r.context_us = lg_spec_context_us(e->spec);
    r.verify_us = lg_now_us() - t0 - r.context_us;
    LG_TRY(next_token(g, done, err));
    r.total_us = lg_now_us() - t0 - r.context_us;
    if (judged) {
        (void)lg_pace_record(lg_spec_pace(e->spec), &r);
        count_round(&g->stats->draft, &r);
    }
    return LG_OK;
}

static lg_status decode(gen *g, size_t n_prompt, lg_err *err)
{
    int64_t limit = g->e->plan.ctx - (int64_t)n_prompt;
    bool done = false;

    if (g->p->max_tokens > 0 && g->p->max_tokens < limit)
        limit = g->p->max_tokens;
    lg_think_limit(&g->think, limit);
    g->stats->end = LG_END_LENGTH;
    while (!done && g->stats->output_tokens < limit) {
        if (cancelled(g))
            return LG_FAIL(err, LG_E_CANCELLED, "cancelled");
        if (g->p->fast_forward)
            LG_TRY(take_forced(g, limit, &done, err));
        if (done || g->stats->output_tokens == limit)
            break;
        LG_TRY(g->pending.n > 0 ? step(g, limit, &done, err) : next_token(g, &done, err));
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
    if (p->grammar && !p->grammar_calls) {
        parser.n_stop = 0;
        parser.verbatim = true;
    }
    LG_TRY(lg_reply_create(e->vocab, &parser, p->max_reply_bytes, on_event, &g, &g.reply, err));
    start_sampling(&g);
    start_drafting(&g);
    st = reply(&g, prompt, n, err);
    lg_status flushed = lg_spec_end(e, st == LG_OK ? err : NULL);
    if (st == LG_OK)
        st = flushed;
    if (st == LG_E_CANCELLED) {
        stats->end = LG_END_CANCELLED;
        st = LG_OK;
    }
    if (g.t_first)
        stats->decode_us = lg_now_us() - g.t_first;
    stats->think_tokens = lg_reply_reasoning_tokens(g.reply);
    stats->stop = lg_reply_stop(g.reply);
    stats->think_exit = g.think.exit;
    stats->injected_tokens = g.think.injected;
    stats->draft.paused = stats->draft.present && lg_spec_pace(e->spec)->paused;
    if (st == LG_OK)
        st = lg_reply_end(g.reply, stats->end, &stats->finish, err);
    stats->n_fallback = lg_reply_fallbacks(g.reply);
    if (st == LG_OK && ids_out)
        st = hand_out(&g, n, ids_out, err);
    lg_cache_end(e);
    e->beside = NULL;
    lg_guide_end(&g.guide);
    lg_ids_free(&g.pending);
    lg_reply_destroy(g.reply);
    return st;
}
