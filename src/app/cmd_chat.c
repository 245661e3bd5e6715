/*
 * app/cmd_chat: `lagoon chat`: the loop of messages, and what happens around an answer.
 *
 * At a terminal a message comes from the line editor; in a pipe each line is one. Ctrl-C stops the answer,
 * three of them within two seconds end the process even when the device hangs.
 */
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/chat_files.h"
#include "app/commands.h"
#include "app/console.h"
#include "app/figures.h"

typedef struct own {
    lg_common common;
    lg_gen_opts gen;
    const char *system, *load;
    bool no_footer, plain;
} own;

static const lg_option options[] = {
    LG_OPTION(own, system, "system", 0, str, "TEXT", NULL, NULL,
              "system message in place of the model's own"),
    LG_OPTION(own, load, "load", 0, str, "NAME", NULL, NULL, "begin with a saved chat"),
    LG_OPTION(own, plain, "plain", 0, bool, "", NULL, NULL, "no bold, no marked code in answers"),
    LG_OPTION(own, no_footer, "no-stats", 0, bool, "", NULL, NULL, "no figures behind answers"),
    LG_GEN_OPTIONS(own),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_setting_id settings[] = {LG_MODEL_SETTINGS, LG_GEN_SETTINGS, LG_SET_chat_history, LG_SET_END};

static void init(void *p)
{
    ((own *)p)->gen.max_think = LG_BUDGET_UNSET;
}

void lg_console_error(lg_console *c, const lg_err *err)
{
    (void)lg_app_fail(err);
    c->failed = true;
}

void lg_console_say(lg_console *c, const char *fmt, ...)
{
    va_list ap;

    (void)c;
    va_start(ap, fmt);
    char text[2048];
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0)
        lg_term_text(stderr, (lg_str){text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1});
    (void)fputc('\n', stderr);
}

static void print_footer(lg_console *c)
{
    lg_buf b;

    lg_buf_init(&b, 1024);
    lg_turn_figures(&c->talk.turn, &b);
    lg_term_style(stderr, &c->term, LG_STYLE_DIM);
    (void)fprintf(stderr, "%.*s", (int)b.n, b.p);
    if (c->term.color)
        lg_term_style(stderr, &c->term, LG_STYLE_PLAIN);
    (void)fputc('\n', stderr);
    lg_buf_free(&b);
}

/* From 80 % of the context on. */
static void warn_when_full(lg_console *c)
{
    int64_t pos = lg_engine_pos(c->talk.engine), ctx = lg_engine_plan(c->talk.engine)->ctx;
    lg_figure f[2];

    if (pos * 5 >= ctx * 4)
        lg_console_say(c, "the context is %lld %% full (%s of %s tokens); /reset or /undo makes room",
                       (long long)(pos * 100 / ctx), lg_fig_count(&f[0], pos), lg_fig_count(&f[1], ctx));
}

void lg_console_turn(lg_console *c, lg_console_ask ask)
{
    lg_talk_end end = LG_TALK_DONE;
    lg_err err = {0};
    lg_status st;

    atomic_store(c->app->cancel, false);
    st = ask(&c->talk, &end, &err);
    if (st != LG_OK) {
        lg_console_error(c, &err);
        if (st == LG_E_LIMIT && c->talk.n_msg > 0)
            lg_console_say(c, "nothing was sent; /undo or /reset makes room");
        return;
    }
    if (end == LG_TALK_CLOSED) {
        c->quit = true;
        return;
    }
    if (c->talk.show.silent && end != LG_TALK_UNASKED && lg_turn_json(&c->talk.turn, &err) != LG_OK)
        lg_console_error(c, &err);
    if (!c->talk.show.silent && !c->talk.show.term.tty)
        (void)fputc('\n', stdout);
    if (!lg_app_stdout_ok())
        c->quit = true;
    if (!c->person) {
        c->quit = c->quit || lg_app_interrupted(c->app);
        return;
    }
    if (end == LG_TALK_UNASKED)
        lg_console_say(c, "cancelled");
    else if (end == LG_TALK_STOPPED)
        lg_console_say(c, "[stopped]  /continue goes on");
    else if (c->talk.turn.stats.end == LG_END_LENGTH)
        lg_console_say(c, "[limit reached]  /continue goes on");
    if (end != LG_TALK_UNASKED && c->footer)
        print_footer(c);
    if (end != LG_TALK_UNASKED)
        warn_when_full(c);
}

static lg_status ask_scratch(lg_talk *t, lg_talk_end *end, lg_err *err)
{
    lg_console *c = (lg_console *)((char *)t - offsetof(lg_console, talk));
    lg_status st = lg_talk_ask(t, lg_buf_str(&c->scratch), end, err);

    // a message that was not asked is back in the editor, and what /read added stays for it; one that cannot
    // be asked is there, too, but without: it may be what made it too long
    if (st != LG_OK || *end == LG_TALK_UNASKED)
        lg_input_again(c->input);
    if (st != LG_OK || *end != LG_TALK_UNASKED)
        lg_buf_clear(&c->attached);
    return st;
}

void lg_console_send(lg_console *c, lg_str text)
{
    lg_err err = {0};

    lg_buf_clear(&c->scratch);
    (void)lg_buf_adds(&c->scratch, lg_buf_str(&c->attached));
    if (!lg_buf_adds(&c->scratch, text)) {
        (void)LG_FAIL(&err, LG_E_LIMIT, "the message is too long");
        lg_console_error(c, &err);
        return;
    }
    lg_console_turn(c, ask_scratch);
}

static bool blank(lg_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!strchr(" \t\r\n", s.p[i]))
            return false;
    return true;
}

/* Messages until the end; the exit status. */
static int loop(lg_console *c)
{
    lg_err err = {0};
    lg_buf line;
    int rc = LG_EXIT_OK;

    lg_buf_init(&line, LG_INPUT_MAX);
    while (!c->quit) {
        lg_input_kind kind = lg_input_get(c->input, "> ", &line, &err);
        lg_str text = lg_buf_str(&line);

        if (c->person && (kind == LG_INPUT_END || kind == LG_INPUT_LEAVE))
            (void)fputc('\n', stderr);
        if (kind == LG_INPUT_LEAVE)
            rc = LG_EXIT_INTERRUPTED;
        if (kind == LG_INPUT_FAILED)
            lg_console_error(c, &err);
        if (kind != LG_INPUT_TEXT)
            break;
        if (lg_str_starts(text, LG_STR("//")))
            lg_console_send(c, (lg_str){text.p + 1, text.n - 1});
        else if (lg_str_starts(text, LG_STR("/")))
            lg_console_command(c, text);
        else if (!blank(text))
            lg_console_send(c, text);
    }
    lg_buf_free(&line);
    if (!c->person && lg_app_interrupted(c->app) && !c->talk.turn.closed)
        rc = LG_EXIT_INTERRUPTED;
    return rc == LG_EXIT_OK && c->failed && !c->person ? LG_EXIT_FAILED : rc;
}

static lg_status begin(lg_console *c, const own *o, lg_err *err)
{
    char history[LG_PATH_BYTES], path[LG_PATH_BYTES];
    lg_input_params in = {.editor = c->person, .escapes = c->term.attrs, .words = c->words};

    if (o->system)
        LG_TRY(lg_talk_set_system(&c->talk, lg_str_of(o->system), err));
    if (o->load) {
        LG_TRY(lg_chat_path(lg_str_of(o->load), path, err));
        LG_TRY(lg_chat_load(&c->talk, path, err));
    }
    in.n_words = lg_console_words(c->words);
    if (c->person && c->app->set.chat_history && lg_chat_history_path(history))
        in.history = history;
    return lg_input_open(&in, &c->input, err);
}

static void greet(lg_console *c)
{
    const char *slash = strrchr(c->app->model_path, '/');
    lg_figure f;

    if (c->person && !c->app->common.quiet)
        lg_console_say(c, "%s on %s, context %s tokens; /help lists the commands",
                       slash ? slash + 1 : c->app->model_path, lg_engine_backend(c->talk.engine)->info.name,
                       lg_fig_count(&f, lg_engine_plan(c->talk.engine)->ctx));
}

/* libedit and the bar need to know how wide characters are; a plain C locale would make UTF-8 unreadable. */
static void set_locale(void)
{
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
}

static int run(lg_app *app)
{
    own *o = app->own;
    lg_console c = {.app = app, .person = isatty(STDIN_FILENO) == 1, .footer = !o->no_footer};
    lg_engine_params params;
    lg_engine *e = NULL;
    lg_asking asking;
    lg_err err = {0};
    int rc;

    set_locale();
    if (lg_asking_make(app, &o->gen, &asking, &err) != LG_OK)
        return lg_asking_fail(&err);
    if (lg_app_engine_params(app, &params, &err) != LG_OK ||
        lg_app_engine_open(app, &params, &e, &err) != LG_OK) {
        lg_asking_free(&asking);
        return lg_app_fail(&err);
    }
    lg_asking_warn(app, &asking, false, lg_engine_vocab(e));
    c.term = lg_term_of(stderr, app->set.color);
    lg_buf_init(&c.attached, LG_INPUT_MAX);
    lg_buf_init(&c.scratch, 2 * LG_INPUT_MAX);
    lg_talk_init(&c.talk, app, e, &asking);
    c.talk.show.markdown = !o->plain;
    c.talk.show.silent = app->common.json;
    lg_app_catch_interrupt(app, 3);
    if (c.person && c.term.attrs)
        lg_app_tidy_terminal_at_death();
    if (begin(&c, o, &err) != LG_OK) {
        rc = lg_app_fail(&err);
    } else {
        greet(&c);
        rc = loop(&c);
    }
    lg_input_close(c.input);
    lg_talk_free(&c.talk);
    lg_asking_free(&asking);
    lg_buf_free(&c.attached);
    lg_buf_free(&c.scratch);
    lg_engine_close(e);
    return rc;
}

const lg_cmd lg_cmd_chat = {
    .words =
        {.name = "chat",
         .usage = "chat [flags]",
         .summary = "talk to the model",
         .settings = settings,
         .options = options,
         .notes =
             "At a terminal: Enter sends, Alt-Enter or a backslash before Enter begins a new line, Ctrl-C stops the\n"
             "answer, Ctrl-D leaves, /help lists the commands. In a pipe each line of stdin is one message and\n"
             "stdout holds the answers only; --json makes each of them one line of JSON, thinking included."},
    .own_bytes = sizeof(own),
    .init = init,
    .run = run,
};
