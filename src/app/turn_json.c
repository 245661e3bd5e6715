/*
 * app/turn_json: an answer and its figures as one line of JSON, for generate and chat. The keys are those of
 * `lagoon generate --json`; texts are whole, thinking included. Main thread.
 */
#include "app/turn.h"

#include "base/json.h"

enum { JSON_MAX = 256 << 20 };

static const char *finish_word(const lg_gen_stats *s)
{
    if (s->end == LG_END_CANCELLED)
        return "cancelled";
    return s->finish == LG_FINISH_STOP ? "stop" : s->finish == LG_FINISH_LENGTH ? "length" : "tool_calls";
}

/* Acceptance by position ends where nothing was tried any more. */
static void put_draft(const lg_draft_stats *d, lg_buf *b)
{
    if (!d->present) {
        (void)lg_buf_addz(b, "null");
        return;
    }
    (void)lg_buf_addf(
        b,
        "{\"rounds\": %lld, \"plain\": %lld, \"made\": %lld, \"drafted\": %lld, "
        "\"accepted\": %lld, \"paused\": %s, \"draft_s\": %.6f, \"verify_s\": %.6f, \"plain_s\": %.6f, "
        "\"by_position\": [",
        (long long)d->rounds, (long long)d->plain, (long long)d->made, (long long)d->drafted,
        (long long)d->accepted, d->paused ? "true" : "false", (double)d->draft_us / 1e6,
        (double)d->verify_us / 1e6, (double)d->plain_us / 1e6);
    for (int i = 0; i < LG_DRAFT_ROWS_MAX && d->tried_at[i] > 0; i++)
        (void)lg_buf_addf(b, "%s%.4f", i ? ", " : "", (double)d->accepted_at[i] / (double)d->tried_at[i]);
    (void)lg_buf_addz(b, "]}");
}

lg_status lg_turn_json(const lg_turn *t, lg_err *err)
{
    const lg_gen_stats *s = &t->stats;
    lg_buf b;

    lg_buf_init(&b, JSON_MAX);
    (void)lg_buf_addz(&b, "{\"content\": ");
    (void)lg_json_quote(lg_buf_str(&t->show->content), &b);
    (void)lg_buf_addz(&b, ", \"reasoning\": ");
    if (t->show->reasoning.n > 0)
        (void)lg_json_quote(lg_buf_str(&t->show->reasoning), &b);
    else
        (void)lg_buf_addz(&b, "null");
    (void)lg_buf_addf(&b, ", \"finish\": \"%s\", \"prompt_tokens\": %lld, \"cached_tokens\": %lld, "
                      "\"output_tokens\": %lld, \"think_tokens\": %lld, \"seed\": %llu, ", finish_word(s),
                      (long long)s->prompt_tokens, (long long)s->cached_tokens, (long long)s->output_tokens,
                      (long long)s->think_tokens, (unsigned long long)s->seed);
    (void)lg_buf_addf(&b, "\"prefill_s\": %.6f, \"first_token_s\": %.6f, \"decode_s\": %.6f, \"device\": ",
                      (double)s->prefill_us / 1e6, (double)s->first_token_us / 1e6,
                      (double)s->decode_us / 1e6);
    (void)lg_json_quote(lg_str_of(lg_engine_backend(t->engine)->info.name), &b);
    (void)lg_buf_addz(&b, ", \"draft\": ");
    put_draft(&s->draft, &b);
    (void)lg_buf_addz(&b, "}\n");
    return lg_app_print(&b, "the answer", err);
}
