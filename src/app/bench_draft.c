/*
 * app/bench_draft: see bench_draft.h. Wall clock around whole steps and whole replies.
 *
 * What surprises: the requests are few and plain on purpose. Acceptance depends on the text more than on
 * anything else, so the figure to carry away is the break-even, which does not.
 */
#include "app/bench_draft.h"

#include <stdio.h>
#include <stdlib.h>

#include "app/figures.h"
#include "base/clock.h"
#include "text/chat.h"

enum { WIDTHS = 8, REQUESTS = 4, REPLY_MAX = 1 << 20 };

static const int widths[WIDTHS] = {1, 2, 3, 4, 5, 7, 11, 15};
static const char *const requests[REQUESTS] = {
    "Write a Python function that returns the sum of the squares of a list of numbers.",
    "What can you do? Answer in a few sentences.",
    "Write a C function that counts the spaces in a string.",
    "Explain in a few sentences why a cache makes a program faster.",
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

// One round of n drafts at the depth; 0: a plain step, timed with the row of context that it makes.
static lg_status time_round(lg_bench_draft *b, int n, double *draft_us, double *verify_us, lg_err *err)
{
    lg_engine *e = b->engine;
    int vocab = lg_engine_hparams(e)->vocab;
    int32_t ids[LG_DRAFT_ROWS_MAX] = {(int32_t)(lg_now_ns() % (uint64_t)vocab)};
    float sure[LG_DRAFT_ROWS_MAX];
    uint64_t t0, t1;

    if (lg_engine_pos(e) != b->depth && lg_engine_truncate(e, b->depth) != b->depth)
        LG_TRY(lg_engine_fill(e, b->depth, 1, err));
    t0 = lg_now_ns();
    if (n > 0)
        LG_TRY(lg_spec_draft(e, n, ids, sure, b->cancel, err));
    t1 = lg_now_ns();
    // an untrained drafter repeats itself; other tokens spread over the experts
    for (int i = 1; !b->trained && i <= n; i++)
        ids[i] = (int32_t)((uint64_t)(ids[0] + 7919 * i) % (uint64_t)vocab);
    if (n > 0)
        LG_TRY(lg_spec_verify(e, ids, n + 1, 0, b->cancel, err));
    else
        LG_TRY(lg_engine_eval(e, &(lg_eval){.ids = ids, .n = 1, .cancel = b->cancel}, err));
    *draft_us = (double)(t1 - t0) / 1e3;
    *verify_us = (double)(lg_now_ns() - t1) / 1e3;
    return LG_OK;
}

static lg_status measure_widths(lg_bench_draft *b, lg_err *err)
{
    double draft[WIDTHS + 1][2 * 100], verify[WIDTHS + 1][2 * 100];
    int most = lg_engine_drafter(b->engine)->block - 1, room, times = 2 * (b->reps < 100 ? b->reps : 100);

    LG_TRY(lg_engine_fill(b->engine, b->depth, 1, err));
    room = lg_spec_room(b->engine, most);
    for (int rep = -1; rep < times; rep++)
        for (int i = 0; i <= WIDTHS; i++) {
            int n = i == 0 ? 0 : widths[i - 1], at = rep < 0 ? 0 : rep;
            if (n <= room)
                LG_TRY(time_round(b, n, &draft[i][at], &verify[i][at], err));
        }
    b->plain_us = median(verify[0], times);
    b->n_width = 0;
    for (int i = 0; i < WIDTHS && widths[i] <= room; i++) {
        lg_bench_width *w = &b->width[b->n_width++];
        *w = (lg_bench_width){.n = widths[i],
                              .draft_us = median(draft[i + 1], times),
                              .verify_us = median(verify[i + 1], times)};
        w->break_even = (w->draft_us + w->verify_us) / b->plain_us;
    }
    return LG_OK;
}

static void ignore(void *ctx, const lg_event *ev)
{
    (void)ctx;
    (void)ev;
}

static lg_status encode(lg_engine *e, const char *text, lg_ids *ids, lg_err *err)
{
    const lg_chat_message msg = {.role = LG_ROLE_USER, .content = lg_str_of(text)};
    bool known;
    lg_rendered rendered;
    lg_arena arena;

    lg_arena_init(&arena, 1 << 16);
    lg_status st = lg_chat_render(&(lg_chat){.family = lg_vocab_template(lg_engine_vocab(e), &known),
                                             .generation_prompt = true,
                                             .message = &msg,
                                             .n_message = 1},
                                  &arena, &rendered, err);
    if (st == LG_OK)
        st = lg_chat_encode(lg_engine_bpe(e), &rendered, ids, err);
    lg_arena_free(&arena);
    return st;
}

// Plain, with fixed blocks, and with the policy in force.
enum { PLAIN, FIXED, POLICY, WAYS };

typedef struct tally {
    double seconds[WAYS];
    int64_t tokens[WAYS];
    lg_draft_stats fixed;
} tally;

static void add(tally *t, int way, const lg_gen_stats *s)
{
    t->tokens[way] += s->output_tokens - 1;
    t->seconds[way] += (double)s->decode_us / 1e6;
    if (way != FIXED)
        return;
    t->fixed.rounds += s->draft.rounds;
    t->fixed.accepted += s->draft.accepted;
    for (int i = 0; i < LG_DRAFTS_MAX; i++) {
        t->fixed.tried_at[i] += s->draft.tried_at[i];
        t->fixed.accepted_at[i] += s->draft.accepted_at[i];
    }
}

static lg_status answer(lg_bench_draft *b, const lg_ids *ids, int way, tally *t, lg_err *err)
{
    const lg_draft_params fixed = {.max = b->n};
    lg_gen_params p = {.sampling = lg_sampling_default(),
                       .max_tokens = b->gen,
                       .max_think = -1,
                       .no_draft = way == PLAIN,
                       .cache = LG_CACHE_OFF, // each way makes the drafter's context itself, or none
                       .max_reply_bytes = REPLY_MAX,
                       .cancel = b->cancel,
                       .event = ignore};
    lg_gen_stats s;

    p.sampling.temperature = 0;
    lg_engine_set_draft(b->engine, way == FIXED ? &fixed : &b->set);
    LG_TRY(lg_generate(b->engine, ids->p, ids->n, &p, &s, NULL, err));
    if (s.end == LG_END_CANCELLED)
        return LG_FAIL(err, LG_E_CANCELLED, "cancelled");
    add(t, way, &s);
    return LG_OK;
}

static lg_status measure_replies(lg_bench_draft *b, lg_err *err)
{
    tally t = {0};
    lg_status st = LG_OK;

    b->n = lg_engine_drafter(b->engine)->block - 1;
    for (int rep = 0; rep < b->reps && st == LG_OK; rep++)
        for (int i = 0; i < REQUESTS && st == LG_OK; i++) {
            lg_ids ids = {0};
            st = encode(b->engine, requests[i], &ids, err);
            for (int way = 0; way < WAYS && st == LG_OK; way++)
                st = answer(b, &ids, way, &t, err);
            lg_ids_free(&ids);
        }
    lg_engine_set_draft(b->engine, &b->set);
    if (st != LG_OK || t.fixed.rounds == 0)
        return st;
    b->al = 1 + (double)t.fixed.accepted / (double)t.fixed.rounds;
    for (b->n_position = 0; b->n_position < b->n && t.fixed.tried_at[b->n_position] > 0; b->n_position++)
        b->by_position[b->n_position] =
            (double)t.fixed.accepted_at[b->n_position] / (double)t.fixed.tried_at[b->n_position];
    b->plain_tok_s = (double)t.tokens[PLAIN] / t.seconds[PLAIN];
    b->fixed_tok_s = (double)t.tokens[FIXED] / t.seconds[FIXED];
    b->policy_tok_s = (double)t.tokens[POLICY] / t.seconds[POLICY];
    return LG_OK;
}

lg_status lg_bench_drafter(lg_bench_draft *b, lg_err *err)
{
    LG_TRY(measure_widths(b, err));
    return b->trained && b->gen > 1 ? measure_replies(b, err) : LG_OK;
}

void lg_bench_draft_table(const lg_bench_draft *b)
{
    lg_figure f[3];

    printf("\ndrafting at depth %lld; a plain step takes %.0f us\n%-8s %12s %12s %24s\n",
           (long long)b->depth, b->plain_us, "drafts", "draft us", "verify us", "pays from tokens/round");
    for (int i = 0; i < b->n_width; i++) {
        const lg_bench_width *w = &b->width[i];
        printf("%-8d %12.0f %12.0f %24.2f\n", w->n, w->draft_us, w->verify_us, w->break_even);
    }
    if (b->al == 0)
        return;
    printf("%d drafts: %.2f tokens a round, accepted by position", b->n, b->al);
    for (int i = 0; i < b->n_position; i++)
        printf(" %.0f", 100 * b->by_position[i]);
    printf(" %%\nspeed    %s tok/s plain, %s (x %.2f) with %d drafts, %s (x %.2f) with the policy\n",
           lg_fig_rate(&f[0], b->plain_tok_s), lg_fig_rate(&f[1], b->fixed_tok_s),
           b->fixed_tok_s / b->plain_tok_s, b->n, lg_fig_rate(&f[2], b->policy_tok_s),
           b->policy_tok_s / b->plain_tok_s);
}

void lg_bench_draft_json(const lg_bench_draft *b, lg_buf *out)
{
    if (!b->engine || !lg_engine_drafter(b->engine)) {
        (void)lg_buf_addz(out, "null");
        return;
    }
    (void)lg_buf_addf(out, "{\"n\": %d, ", lg_engine_drafter(b->engine)->block - 1);
    if (b->al > 0)
        (void)lg_buf_addf(out, "\"al\": %.6g, ", b->al);
    else
        (void)lg_buf_addz(out, "\"al\": null, ");
    (void)lg_buf_addz(out, "\"by_position\": [");
    for (int i = 0; i < b->n_position; i++)
        (void)lg_buf_addf(out, "%s%.6g", i ? ", " : "", b->by_position[i]);
    if (b->al > 0)
        (void)lg_buf_addf(out, "], \"speedup\": %.6g, \"speedup_fixed\": %.6g",
                          b->policy_tok_s / b->plain_tok_s, b->fixed_tok_s / b->plain_tok_s);
    else
        (void)lg_buf_addz(out, "], \"speedup\": null, \"speedup_fixed\": null");
    (void)lg_buf_addf(out, ", \"plain_us\": %.6g, \"widths\": [", b->plain_us);
    for (int i = 0; i < b->n_width; i++)
        (void)lg_buf_addf(out,
                          "%s{\"n\": %d, \"draft_us\": %.6g, \"verify_us\": %.6g, \"break_even\": %.6g}",
                          i ? ", " : "", b->width[i].n, b->width[i].draft_us, b->width[i].verify_us,
                          b->width[i].break_even);
    (void)lg_buf_addz(out, "]}");
}
