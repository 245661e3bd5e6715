/*
 * app/turn: see turn.h.
 */
#include "app/turn.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/figures.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/ban.h"

enum { REPLY_MAX_BYTES = 64 << 20, SCHEMA_MAX = 1 << 20 };

static size_t slices(const lg_list *list, lg_str *out, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < list->n && n < max; i++)
        if (*list->v[i]) // an empty text means nothing
            out[n++] = lg_str_of(list->v[i]);
    return n;
}

// What --json-schema, --json-object or --regex ask for.
static lg_status make_constraint(const lg_gen_opts *gen, lg_constraint **out, lg_err *err)
{
    lg_constraint_spec s = {.kind = gen->json_schema   ? LG_CONSTRAIN_SCHEMA
                                    : gen->json_object ? LG_CONSTRAIN_JSON_OBJECT
                                                       : LG_CONSTRAIN_REGEX};
    int n = (gen->json_schema != NULL) + gen->json_object + (gen->regex != NULL);
    char *text = NULL;
    lg_status st = LG_OK;

    if (n > 1)
        return LG_FAIL(err, LG_E_INPUT, "--json-schema, --json-object and --regex exclude each other");
    if (n == 0)
        return LG_OK;
    if (gen->json_schema)
        st = lg_read_all(gen->json_schema, SCHEMA_MAX, &text, &s.schema.n, err);
    if (gen->json_schema)
        s.schema.p = text;
    else if (gen->regex)
        s.schema = lg_str_of(gen->regex);
    if (st == LG_OK)
        st = lg_constraint_get(NULL, &s, out, NULL, err);
    if (st != LG_OK && gen->json_schema)
        (void)lg_err_subject(err, "%s", strcmp(gen->json_schema, "-") ? gen->json_schema : "standard input");
    else if (st != LG_OK && gen->regex)
        (void)lg_err_subject(err, "--regex");
    free(text);
    return st;
}

lg_status lg_asking_make(const lg_app *app, const lg_gen_opts *gen, lg_asking *out, lg_err *err)
{
    const lg_settings *s = &app->set;
    lg_asking a = {.sampling = lg_sampling_default(),
                   .max_tokens = gen->max_tokens,
                   .min_think = gen->min_think,
                   .family = s->chat_template};
    enum { N_TEXTS = sizeof a.stop / sizeof a.stop[0] };

    if (gen->stop.n > 16 || gen->ban.n > N_TEXTS)
        return LG_FAIL(err, LG_E_INPUT,
                       gen->stop.n > 16 ? "more than 16 --stop texts" : "more than %d --ban-string texts",
                       (int)N_TEXTS);
    a.sampling.temperature = (float)s->temperature;
    a.sampling.top_k = (int)s->top_k;
    a.sampling.top_p = (float)s->top_p;
    a.sampling.min_p = (float)s->min_p;
    if (s->top_p == 0) // as narrow as it gets
        a.sampling.temperature = 0, a.sampling.top_p = 1;
    a.random_seed = gen->seed < 0;
    a.sampling.seed = (uint64_t)gen->seed;
    LG_TRY(lg_sampling_check(&a.sampling, err));
    a.thinking = s->thinking;
    // a budget is a wish to think, as long as nothing said otherwise
    a.thinking_explicit =
        s->from[LG_SET_thinking].source != LG_FROM_DEFAULT || gen->max_think > 0 || gen->min_think > 0;
    a.max_think = gen->max_think == LG_BUDGET_UNSET ? s->default_budget : gen->max_think;
    if (a.max_think == 0)
        a.thinking = false;
    if (a.max_think >= 0 && a.min_think > a.max_think)
        return LG_FAIL(err, LG_E_INPUT, "--min-think %lld is more than --max-think %lld",
                       (long long)a.min_think, (long long)a.max_think);
    if (s->from[LG_SET_thinking].source == LG_FROM_FLAG && !s->thinking && a.min_think > 0)
        return LG_FAIL(err, LG_E_INPUT,
                       "--no-think and --min-think contradict each other: leave one of them out");
    a.history = strcmp(s->history_thinking, "all") == 0    ? LG_HISTORY_ALL
                : strcmp(s->history_thinking, "none") == 0 ? LG_HISTORY_NONE
                                                           : LG_HISTORY_TAIL;
    a.n_stop = slices(&gen->stop, a.stop, N_TEXTS);
    a.n_ban = slices(&gen->ban, a.ban, N_TEXTS);
    LG_TRY(make_constraint(gen, &a.constraint, err));
    *out = a;
    return LG_OK;
}

int lg_asking_fail(const lg_err *err)
{
    int rc = lg_app_fail(err);

    return err->code == LG_E_IO || err->code == LG_E_NOMEM ? rc : LG_EXIT_USAGE;
}

void lg_asking_free(lg_asking *a)
{
    lg_constraint_release(a->constraint);
    a->constraint = NULL;
}

lg_template_family lg_asking_family(const lg_asking *a, const lg_vocab *v)
{
    bool known;

    if (strcmp(a->family, "s21") == 0)
        return LG_TEMPLATE_S21;
    if (strcmp(a->family, "v2") == 0)
        return LG_TEMPLATE_V2;
    return lg_vocab_template(v, &known);
}

// What one banned text does: whether it bars a token, and how many control tokens hold it and stay.
static void warn_ban(const lg_vocab *v, lg_str text)
{
    size_t n = ((size_t)lg_vocab_size(v) + 31) / 32;
    uint32_t *allowed = malloc(n * sizeof *allowed);
    bool barred = false;
    int kept;

    if (!allowed)
        return;
    memset(allowed, 0xFF, n * sizeof *allowed);
    kept = lg_ban_mask(v, &text, 1, allowed);
    for (size_t i = 0; i < n && !barred; i++)
        barred = allowed[i] != UINT32_MAX;
    free(allowed);
    if (kept > 0)
        lg_app_say("--ban-string '%.*s': %d control token%s hold%s it and stay%s allowed", (int)text.n,
                   text.p, kept, kept == 1 ? "" : "s", kept == 1 ? "s" : "", kept == 1 ? "s" : "");
    else if (!barred)
        lg_app_say("--ban-string '%.*s': no token of this model holds it, so nothing is banned", (int)text.n,
                   text.p);
}

void lg_asking_warn(const lg_app *app, const lg_asking *a, bool raw, const lg_vocab *v)
{
    bool known = true;

    if (app->common.quiet)
        return;
    if (!raw && strcmp(a->family, "auto") == 0)
        (void)lg_vocab_template(v, &known);
    if (!known)
        lg_app_say_guess(app);
    for (size_t i = 0; i < a->n_ban; i++)
        warn_ban(v, a->ban[i]);
}

/* How much of an answer the prompt ends in: what lies behind the closed reasoning (chat goes on with a
 * stopped one). */
static size_t begun(const lg_vocab *v, const lg_ids *prompt)
{
    const lg_special *sp = lg_vocab_special(v);

    for (size_t n = 0; n < prompt->n; n++)
        if (prompt->p[prompt->n - 1 - n] == sp->end_think)
            return n;
    return 0;
}

/* Stdout takes nothing more, so nothing more is made. */
static void end_turn(lg_turn *t)
{
    t->closed = true;
    atomic_store(t->app->cancel, true);
}

static void on_event(void *ctx, const lg_event *ev)
{
    lg_turn *t = ctx;

    lg_bar_end(t->bar, true);
    if (!t->closed && !lg_show_event(t->show, ev))
        end_turn(t);
}

static void on_prefill(void *ctx, size_t done, size_t total)
{
    lg_turn *t = ctx;

    if (done >= total)
        lg_bar_end(t->bar, true);
    else
        lg_bar_update(t->bar, done, total);
    if (!t->closed && !lg_app_stdout_ok())
        end_turn(t);
}

static uint64_t new_seed(void)
{
    uint64_t seed;

    if (getentropy(&seed, sizeof seed) != 0)
        seed = lg_now_ns();
    return seed >> 1; // stays a seed that --seed takes
}

lg_status lg_turn_run(lg_turn *t, const lg_ids *prompt, lg_err *err)
{
    const lg_asking *a = t->asking;
    const lg_vocab *v = lg_engine_vocab(t->engine);
    int64_t ctx = lg_engine_plan(t->engine)->ctx, room = ctx - (int64_t)prompt->n;
    lg_gen_params p = {
        .sampling = a->sampling,
        .max_tokens = a->max_tokens > 0 && a->max_tokens < room ? a->max_tokens : room,
        .max_think = t->max_think,
        .min_think = a->min_think,
        .ban = a->ban,
        .n_ban = a->n_ban,
        .reply = {.family = lg_asking_family(a, v), .raw = t->raw, .thinking = t->thinking, .stop = a->stop,
                  .n_stop = a->n_stop},
        .max_reply_bytes = REPLY_MAX_BYTES,
        .cancel = t->app->cancel,
        .event = on_event,
        .prefill = on_prefill,
        .ctx = t,
    };
    lg_bar bar;
    lg_status st;

    t->closed = false;
    t->stats = (lg_gen_stats){0};
    if (room < 1)
        return LG_FAIL(err, LG_E_LIMIT,
                       "the prompt has %zu tokens, the context holds %lld: nothing is left for an answer;"
                       " shorten it or raise --ctx",
                       prompt->n, (long long)ctx);
    if (a->random_seed)
        p.sampling.seed = new_seed();
    p.reply.open_reasoning = !t->raw && lg_chat_ends_in_reasoning(v, prompt->p, prompt->n);
    lg_constraint_apply(a->constraint, &p);
    if (a->constraint && !t->raw && !p.reply.open_reasoning)
        p.grammar_prefix = begun(v, prompt);
    lg_show_begin(t->show);
    lg_bar_start(&bar, "reading the prompt", LG_BAR_TOKENS, t->app->set.color,
                 t->app->common.quiet || !isatty(STDERR_FILENO));
    t->bar = &bar;
    st = lg_generate(t->engine, prompt->p, prompt->n, &p, &t->stats, NULL, err);
    lg_bar_end(&bar, st == LG_OK);
    lg_show_end(t->show);
    return st;
}

double lg_turn_rate(const lg_gen_stats *s)
{
    return s->decode_us > 0 && s->output_tokens > 1
               ? (double)(s->output_tokens - 1) * 1e6 / (double)s->decode_us
               : 0;
}

void lg_turn_figures(const lg_turn *t, lg_buf *out)
{
    const lg_gen_stats *s = &t->stats;
    double rate = lg_turn_rate(s);
    lg_figure f[4];

    (void)lg_buf_addz(out, lg_fig_count(&f[0], s->output_tokens - s->think_tokens));
    if (s->think_tokens > 0)
        (void)lg_buf_addf(out, " + %s thinking", lg_fig_count(&f[1], s->think_tokens));
    else
        (void)lg_buf_addz(out, " tokens");
    (void)lg_buf_addf(out, "  %s tok/s", rate > 0 ? lg_fig_rate(&f[2], rate) : "-");
    (void)lg_buf_addf(out, "  first token %.2f s", (double)s->first_token_us / 1e6);
    (void)lg_buf_addf(out, "  cached %.0f %%",
                      s->prompt_tokens > 0 ? 100.0 * (double)s->cached_tokens / (double)s->prompt_tokens
                                           : 0.0);
    if (s->draft.present && s->draft.paused)
        (void)lg_buf_addz(out, "  drafting paused");
    else if (s->draft.rounds > 0)
        (void)lg_buf_addf(out, "  drafts +%.1f a round", (double)s->draft.accepted / (double)s->draft.rounds);
    (void)lg_buf_addf(out, "  ctx %s of %s", lg_fig_count(&f[0], lg_engine_pos(t->engine)),
                      lg_fig_count(&f[3], lg_engine_plan(t->engine)->ctx));
}
