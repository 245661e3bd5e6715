/*
 * app/cmd_generate: `lagoon generate`: one prompt, one answer.
 *
 * The product is the answer's text on stdout; on a terminal thinking is shown there too, dimmed, and in a
 * pipe or file it is left out (--json has it). Figures go to stderr.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/commands.h"
#include "app/turn.h"
#include "base/file.h"

enum { PROMPT_MAX = 256 << 20, ARENA_MAX = 1 << 20 };

typedef struct own {
    lg_common common;
    lg_gen_opts gen;
    const char *prompt, *file, *system;
    bool raw, stats;
} own;

static const lg_option options[] = {
    LG_OPTION(own, prompt, "prompt", 'p', str, "TEXT", NULL, NULL, "the prompt"),
    LG_OPTION(own, file, "file", 'f', str, "FILE", NULL, NULL,
              "read the prompt from a file, or from stdin (-)"),
    LG_OPTION(own, raw, "raw", 0, bool, "", NULL, NULL,
              "no template: the text itself, control tokens included, behind a begin token"),
    LG_OPTION(own, system, "system", 0, str, "TEXT", NULL, NULL,
              "system message in place of the model's own"),
    LG_OPTION(own, stats, "stats", 0, bool, "", NULL, NULL, "figures of the run, on stderr"),
    LG_GEN_OPTIONS(own),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_setting_id settings[] = {LG_MODEL_SETTINGS, LG_GEN_SETTINGS, LG_SET_END};

static void init(void *p)
{
    ((own *)p)->gen.max_think = LG_BUDGET_UNSET;
}

/* The prompt's bytes, whatever they are. *heap is what to free. */
static lg_status read_prompt(const own *o, lg_str *out, char **heap, lg_err *err)
{
    size_t n;

    if (o->prompt) {
        *out = lg_str_of(o->prompt);
        return LG_OK;
    }
    LG_TRY(lg_read_all(o->file, PROMPT_MAX, heap, &n, err));
    *out = (lg_str){*heap, n};
    return LG_OK;
}

static lg_status encode_raw(const lg_engine *e, lg_str text, lg_ids *ids, lg_err *err)
{
    const lg_special *sp = lg_vocab_special(lg_engine_vocab(e));

    LG_TRY(lg_bpe_encode(lg_engine_bpe(e), text, true, ids, err));
    if (sp->bos < 0 || (ids->n > 0 && ids->p[0] == sp->bos))
        return LG_OK;
    LG_TRY(lg_ids_add(ids, sp->bos, err));
    memmove(ids->p + 1, ids->p, (ids->n - 1) * sizeof ids->p[0]);
    ids->p[0] = sp->bos;
    return LG_OK;
}

static lg_status encode_chat(const own *o, const lg_asking *a, bool thinking, const lg_engine *e, lg_str text,
                             lg_ids *ids, lg_err *err)
{
    lg_chat_message msg[2];
    size_t n = 0;
    lg_rendered rendered;
    lg_arena arena;
    lg_status st;

    if (o->system)
        msg[n++] = (lg_chat_message){.role = LG_ROLE_SYSTEM, .content = lg_str_of(o->system)};
    msg[n++] = (lg_chat_message){.role = LG_ROLE_USER, .content = text};
    lg_arena_init(&arena, ARENA_MAX + 4 * text.n);
    st = lg_chat_render(&(lg_chat){.family = lg_asking_family(a, lg_engine_vocab(e)),
                                   .thinking = thinking,
                                   .history = a->history,
                                   .generation_prompt = true,
                                   .message = msg,
                                   .n_message = n},
                        &arena, &rendered, err);
    if (st == LG_OK)
        st = lg_chat_encode(lg_engine_bpe(e), &rendered, ids, err);
    lg_arena_free(&arena);
    return st;
}

static void add_draft(const lg_draft_stats *d, lg_buf *b)
{
    double rounds = d->rounds > 0 ? (double)d->rounds : 1;

    (void)lg_buf_addf(
        b, "\ndrafting  %lld rounds and %lld plain steps  %.2f drafts verified a round, %.2f accepted",
        (long long)d->rounds, (long long)d->plain, (double)d->drafted / rounds, (double)d->accepted / rounds);
    for (int i = 0; i < LG_DRAFT_ROWS_MAX && d->tried_at[i] > 0; i++)
        (void)lg_buf_addf(b, "%s%.0f", i ? " " : "  by position ",
                          100.0 * (double)d->accepted_at[i] / (double)d->tried_at[i]);
    (void)lg_buf_addz(b, d->rounds > 0 ? " %" : "");
    if (d->paused)
        (void)lg_buf_addz(b, "  paused at the end");
}

static void print_stats(const lg_turn *t)
{
    lg_buf b;

    lg_buf_init(&b, 1024);
    (void)lg_buf_addf(&b, "prompt %lld tokens  answer ", (long long)t->stats.prompt_tokens);
    lg_turn_figures(t, &b);
    (void)lg_buf_addf(&b, "  seed %llu", (unsigned long long)t->stats.seed);
    if (t->stats.draft.present)
        add_draft(&t->stats.draft, &b);
    fprintf(stderr, "%.*s\n", (int)b.n, b.p);
    lg_buf_free(&b);
}

/* With the engine open: encode, run, report. */
static lg_status answer(lg_app *app, const own *o, const lg_asking *a, lg_engine *e, lg_str prompt,
                        lg_turn *t, lg_err *err)
{
    int64_t limit = a->max_tokens;
    bool thinking = a->thinking;
    lg_ids ids = {0};
    lg_status st;

    t->max_think = a->max_think;
    lg_think_rules(a->thinking_explicit, limit, &thinking, &t->max_think);
    t->app = app;
    t->engine = e;
    t->asking = a;
    t->raw = o->raw;
    t->thinking = thinking && !o->raw;
    st = o->raw ? encode_raw(e, prompt, &ids, err) : encode_chat(o, a, thinking, e, prompt, &ids, err);
    if (st == LG_OK)
        st = lg_turn_run(t, &ids, err);
    lg_ids_free(&ids);
    if (st != LG_OK)
        return st;
    if (app->common.json)
        st = lg_turn_json(t, err);
    if (o->stats)
        print_stats(t);
    return st;
}

static int run(lg_app *app)
{
    own *o = app->own;
    lg_engine_params params;
    lg_engine *e = NULL;
    lg_asking asking = {0};
    lg_str prompt;
    lg_err err = {0};
    char *heap = NULL;
    lg_show show;
    lg_turn turn = {.show = &show};
    int rc = LG_EXIT_OK;

    if (app->words.n_arg > 0 && strcmp(app->words.arg[0], "-") != 0)
        return lg_app_usage("unexpected word '%s' after generate; -p TEXT gives the prompt",
                            app->words.arg[0]);
    if ((o->prompt != NULL) + (o->file != NULL) + app->words.n_arg != 1)
        return lg_app_usage("generate wants one of -p TEXT and -f FILE ('-' reads stdin)");
    if (app->words.n_arg > 0)
        o->file = app->words.arg[0];
    if (o->raw && o->system)
        return lg_app_usage("--raw uses no template, so --system has no place in it");
    if (lg_asking_make(app, &o->gen, &asking, &err) != LG_OK)
        return lg_asking_fail(&err);
    lg_show_init(&show, app->set.color);
    show.silent = app->common.json;
    if (read_prompt(o, &prompt, &heap, &err) != LG_OK || lg_app_engine_params(app, &params, &err) != LG_OK ||
        lg_app_engine_open(app, &params, &e, &err) != LG_OK) {
        rc = lg_app_fail(&err);
        goto out;
    }
    lg_asking_warn(app, &asking, o->raw, lg_engine_vocab(e));
    // until here Ctrl-C may simply end the process
    lg_app_catch_interrupt(app, 2);
    if (answer(app, o, &asking, e, prompt, &turn, &err) != LG_OK)
        rc = lg_app_fail(&err);
    else if (lg_app_interrupted(app) && !turn.closed)
        rc = LG_EXIT_INTERRUPTED;
out:
    lg_engine_close(e);
    lg_show_free(&show);
    lg_asking_free(&asking);
    free(heap);
    return rc;
}

const lg_cmd lg_cmd_generate = {
    .words =
        {.name = "generate",
         .usage = "generate -p TEXT|-f FILE|- [flags]",
         .summary = "answer one prompt",
         .settings = settings,
         .options = options,
         .max_args = 1,
         .args_help = "-",
         .notes =
             "On a terminal thinking is shown dimmed before the answer; in a pipe or a file only the answer is written.\n"
             "With a limit below 256 tokens and no --think the model does not think."},
    .own_bytes = sizeof(own),
    .init = init,
    .run = run,
};
