/*
 * app/chat_command: the slash commands of `lagoon chat`.
 *
 * One row of the table is one command; its function gets the rest of the line without surrounding spaces.
 * Everything is printed to stderr. An unknown word sends nothing.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/chat_files.h"
#include "app/console.h"
#include "app/figures.h"
#include "base/file.h"

enum { READ_MAX = 64 << 20, OUT_MAX = 256 << 20 };

typedef struct command {
    const char *word, *args, *help;
    void (*run)(lg_console *c, lg_str arg);
} command;

static void fail(lg_console *c, const char *text)
{
    lg_err err = {0};

    (void)LG_FAIL(&err, LG_E_INPUT, "%s", text);
    lg_console_error(c, &err);
}

static lg_str trim(lg_str s)
{
    while (s.n > 0 && strchr(" \t\r\n", s.p[0])) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && strchr(" \t\r\n", s.p[s.n - 1]))
        s.n--;
    return s;
}

/* The first word of *rest, which is then what follows it. */
static lg_str next_word(lg_str *rest)
{
    lg_str s = trim(*rest), word;
    size_t n = 0;

    while (n < s.n && !strchr(" \t\r\n", s.p[n]))
        n++;
    word = (lg_str){s.p, n};
    *rest = trim((lg_str){s.p + n, s.n - n});
    return word;
}

static void print_text(lg_str text)
{
    lg_term_text(stderr, text);
    if (text.n > 0 && text.p[text.n - 1] != '\n')
        (void)fputc('\n', stderr);
}

static bool is_text(lg_str s)
{
    for (size_t i = 0; i < s.n;) {
        int32_t cp;

        i += (size_t)lg_utf8_step(s.p + i, s.n - i, &cp);
        if (cp <= 0)
            return false;
    }
    return true;
}

static void not_text(const char *path, lg_err *err)
{
    (void)lg_err_subject(err, "%s", path);
    (void)LG_FAIL(err, LG_E_INPUT, "is not UTF-8 text");
}

/* --- the conversation --- */

static void do_quit(lg_console *c, lg_str arg)
{
    (void)arg;
    c->quit = true;
}

static void do_system(lg_console *c, lg_str arg)
{
    lg_err err = {0};
    char path[LG_PATH_BYTES];
    char *text = NULL;
    size_t n = 0;

    if (arg.n == 0) {
        print_text(lg_str_of(c->talk.system ? c->talk.system : "(the model's own)"));
        return;
    }
    if (arg.p[0] == '@') {
        (void)snprintf(path, sizeof path, "%.*s", (int)arg.n - 1, arg.p + 1);
        if (lg_read_all(path, READ_MAX, &text, &n, &err) == LG_OK && !is_text((lg_str){text, n}))
            not_text(path, &err);
        arg = (lg_str){text, n};
    }
    if (err.code != LG_OK || lg_talk_set_system(&c->talk, arg, &err) != LG_OK)
        lg_console_error(c, &err);
    free(text);
}

static void do_think(lg_console *c, lg_str arg)
{
    lg_asking *a = &c->talk.asking;
    int64_t n;

    if (lg_str_eqz(arg, "on") || lg_str_eqz(arg, "off")) {
        a->thinking = lg_str_eqz(arg, "on");
        a->thinking_explicit = true;
        if (a->thinking && a->max_think == 0)
            a->max_think = -1;
    } else if (lg_str_eqz(arg, "dim")) {
        c->talk.show.think = LG_SHOW_DIM;
    } else if (lg_str_eqz(arg, "show")) {
        c->talk.show.think = LG_SHOW_FULL;
    } else if (lg_str_eqz(arg, "hide")) {
        c->talk.show.think = LG_SHOW_HIDE;
    } else if (lg_str_i64(arg, &n) && n >= -1 && n <= 1 << 24) {
        a->max_think = n;
        a->thinking = n != 0;
        a->thinking_explicit = true;
    } else if (arg.n > 0) {
        fail(c, "/think takes on, off, dim, show, hide or a number of tokens (-1 = no bound)");
        return;
    }
    if (!c->person)
        return;
    if (!a->thinking)
        lg_console_say(c, "thinking off");
    else if (a->max_think < 0)
        lg_console_say(c, "thinking on, no bound");
    else
        lg_console_say(c, "thinking on, at most %" PRId64 " tokens", a->max_think);
}

static void do_retry(lg_console *c, lg_str arg)
{
    lg_talk *t = &c->talk;

    (void)arg;
    if (t->n_msg > 0 && t->msg[t->n_msg - 1].role == LG_ROLE_ASSISTANT)
        lg_talk_pop(t);
    if (t->n_msg == 0)
        fail(c, "/retry: there is no message to answer");
    else
        lg_console_turn(c, lg_talk_answer);
}

static void do_continue(lg_console *c, lg_str arg)
{
    lg_talk *t = &c->talk;

    (void)arg;
    if (t->n_msg == 0 || !t->msg[t->n_msg - 1].stopped)
        fail(c, "/continue: the last answer was not cut short");
    else
        lg_console_turn(c, lg_talk_go_on);
}

static void do_undo(lg_console *c, lg_str arg)
{
    lg_talk *t = &c->talk;

    (void)arg;
    if (t->n_msg == 0) {
        fail(c, "/undo: the conversation is empty");
        return;
    }
    while (t->n_msg > 0 && t->msg[t->n_msg - 1].role == LG_ROLE_ASSISTANT)
        lg_talk_pop(t);
    if (t->n_msg > 0) {
        const lg_talk_msg *m = &t->msg[t->n_msg - 1];

        lg_input_preset(c->input, (lg_str){m->text, m->n_text});
        lg_talk_pop(t);
    }
}

static void do_reset(lg_console *c, lg_str arg)
{
    (void)arg;
    lg_talk_clear(&c->talk);
    lg_buf_clear(&c->attached);
}

/* --- files --- */

/* FILE or FILE:10-80; false when the range is not one. */
static bool split_range(lg_str word, char *path, int64_t *first, int64_t *last)
{
    size_t colon = word.n;

    *first = 1;
    *last = INT64_MAX;
    while (colon > 0 && word.p[colon - 1] != ':')
        colon--;
    if (colon > 1) {
        lg_str range = {word.p + colon, word.n - colon};
        size_t dash = lg_str_find(range, LG_STR("-"), 0);

        if (dash != SIZE_MAX && lg_str_i64((lg_str){range.p, dash}, first) &&
            lg_str_i64((lg_str){range.p + dash + 1, range.n - dash - 1}, last)) {
            if (*first < 1 || *last < *first)
                return false;
            word.n = colon - 1;
        }
    }
    return word.n < LG_PATH_BYTES && snprintf(path, LG_PATH_BYTES, "%.*s", (int)word.n, word.p) > 0;
}

static lg_str lines_of(lg_str text, int64_t first, int64_t last)
{
    size_t at = 0, begin = text.n;

    for (int64_t line = 1; at < text.n && line <= last; line++) {
        size_t nl = lg_str_find(text, LG_STR("\n"), at);

        if (line == first)
            begin = at;
        at = nl == SIZE_MAX ? text.n : nl + 1;
    }
    return begin < at ? (lg_str){text.p + begin, at - begin} : (lg_str){text.p, 0};
}

/* A fence longer than any run of backquotes in the text. */
static void add_fenced(lg_buf *b, const char *name, lg_str text)
{
    size_t longest = 2, run = 0;

    for (size_t i = 0; i < text.n; i++) {
        run = text.p[i] == '`' ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    (void)lg_buf_addf(b, "%s\n", name);
    for (size_t i = 0; i <= longest; i++)
        (void)lg_buf_addc(b, '`');
    (void)lg_buf_addc(b, '\n');
    (void)lg_buf_adds(b, text);
    if (text.n == 0 || text.p[text.n - 1] != '\n')
        (void)lg_buf_addc(b, '\n');
    for (size_t i = 0; i <= longest; i++)
        (void)lg_buf_addc(b, '`');
    (void)lg_buf_addz(b, "\n\n");
}

/* Large files are added only when a person says so. */
static bool consent(lg_console *c, const char *path, size_t tokens)
{
    int64_t ctx = lg_engine_plan(c->talk.engine)->ctx;
    lg_figure f;

    if ((int64_t)tokens * 4 <= ctx)
        return true;
    lg_console_say(c, "%s has %s tokens, more than a quarter of the context", path,
                   lg_fig_count(&f, (int64_t)tokens));
    if (!c->person) {
        fail(c, "/read: not added");
        return false;
    }
    return lg_input_yes(c->input, "add it? [y/N] ");
}

static void read_one(lg_console *c, lg_str word)
{
    char path[LG_PATH_BYTES];
    int64_t first, last;
    char *text = NULL;
    size_t n = 0, tokens = 0;
    lg_err err = {0};
    lg_str part;
    lg_figure f;

    if (!split_range(word, path, &first, &last)) {
        fail(c, "/read wants FILE or FILE:FIRST-LAST");
        return;
    }
    if (lg_read_all(path, READ_MAX, &text, &n, &err) != LG_OK)
        goto out;
    part = lines_of((lg_str){text, n}, first, last);
    if (!is_text(part)) {
        not_text(path, &err);
        goto out;
    }
    if (part.n == 0) {
        (void)lg_err_subject(&err, "%s", path);
        (void)LG_FAIL(&err, LG_E_INPUT, "has nothing there to read");
        goto out;
    }
    if (lg_talk_count(&c->talk, part, &tokens, &err) != LG_OK || !consent(c, path, tokens))
        goto out;
    add_fenced(&c->attached, path, part);
    if (c->attached.failed)
        (void)LG_FAIL(&err, LG_E_LIMIT, "the message is too long");
    else if (c->person)
        lg_console_say(c, "%s: %s tokens with the next message", path, lg_fig_count(&f, (int64_t)tokens));
out:
    free(text);
    if (err.code != LG_OK)
        lg_console_error(c, &err);
}

static void do_read(lg_console *c, lg_str arg)
{
    if (arg.n == 0)
        fail(c, "/read wants FILE or FILE:FIRST-LAST");
    while (arg.n > 0)
        read_one(c, next_word(&arg));
}

static void do_save(lg_console *c, lg_str arg)
{
    char path[LG_PATH_BYTES];
    lg_err err = {0};

    if (lg_chat_path(arg, path, &err) != LG_OK || lg_chat_save(&c->talk, path, &err) != LG_OK)
        lg_console_error(c, &err);
    else if (c->person)
        lg_console_say(c, "%s", path);
}

static void do_load(lg_console *c, lg_str arg)
{
    char path[LG_PATH_BYTES];
    lg_err err = {0};

    if (lg_chat_path(arg, path, &err) != LG_OK || lg_chat_load(&c->talk, path, &err) != LG_OK)
        lg_console_error(c, &err);
    else if (c->person)
        lg_console_say(c, "%zu messages", c->talk.n_msg);
}

static void do_list(lg_console *c, lg_str arg)
{
    lg_err err = {0};
    lg_buf b;

    (void)arg;
    lg_buf_init(&b, OUT_MAX);
    if (lg_chat_list(&b, &err) != LG_OK)
        lg_console_error(c, &err);
    else
        print_text(lg_buf_str(&b));
    lg_buf_free(&b);
}

static void do_export(lg_console *c, lg_str arg)
{
    char path[LG_PATH_BYTES];
    lg_err err = {0};

    (void)snprintf(path, sizeof path, "%.*s", (int)arg.n, arg.p);
    if (arg.n >= sizeof path || lg_chat_export(&c->talk, path, &err) != LG_OK) {
        if (err.code == LG_OK)
            (void)LG_FAIL(&err, LG_E_INPUT, "the path is too long");
        lg_console_error(c, &err);
    }
}

/* --- looking --- */

static void do_tokens(lg_console *c, lg_str arg)
{
    const lg_talk *t = &c->talk;
    lg_figure f[2];
    lg_err err = {0};

    (void)arg;
    for (size_t i = 0; i < t->n_msg; i++) {
        size_t n = 0;

        if (lg_talk_count(t, (lg_str){t->msg[i].text, t->msg[i].n_text}, &n, &err) != LG_OK) {
            lg_console_error(c, &err);
            return;
        }
        lg_console_say(c, "%3zu  %-9s %9s", i + 1, t->msg[i].role == LG_ROLE_USER ? "you" : "answer",
                       lg_fig_count(&f[0], (int64_t)n));
    }
    lg_console_say(c, "in the context: %s of %s tokens", lg_fig_count(&f[0], lg_engine_pos(t->engine)),
                   lg_fig_count(&f[1], lg_engine_plan(t->engine)->ctx));
}

static void do_raw(lg_console *c, lg_str arg)
{
    lg_err err = {0};
    lg_buf b;

    (void)arg;
    lg_buf_init(&b, OUT_MAX);
    if (lg_talk_prompt(&c->talk, &b, &err) != LG_OK)
        lg_console_error(c, &err);
    else
        print_text(lg_buf_str(&b));
    lg_buf_free(&b);
}

static const lg_talk_msg *last_answer(lg_console *c)
{
    const lg_talk_msg *m = lg_talk_last(&c->talk, LG_ROLE_ASSISTANT);

    if (!m)
        fail(c, "there is no answer yet");
    return m;
}

static void do_copy(lg_console *c, lg_str arg)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const lg_talk_msg *m = last_answer(c);

    (void)arg;
    if (!m)
        return;
    if (!c->term.attrs) {
        fail(c, "/copy needs a terminal");
        return;
    }
    (void)fputs("\033]52;c;", stderr);
    for (size_t i = 0; i < m->n_text; i += 3) {
        uint32_t v = 0;

        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < m->n_text ? (unsigned char)m->text[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            (void)fputc(k > 1 && i + k - 1 >= m->n_text ? '=' : digits[v >> (18 - 6 * k) & 63], stderr);
    }
    (void)fputs("\a", stderr);
    lg_console_say(c, "copied, if the terminal allows it");
}

/* Run `shell` with `arg` as $1 and wait. The terminal is the program's meanwhile, and so are Ctrl-C and
 * Ctrl-\: three of them in a pager are no wish to leave the chat. */
static void run_shell(lg_console *c, const char *shell, const char *arg)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
    int status = 0;
    pid_t pid;

    (void)fflush(NULL);
    (void)sigaction(SIGINT, &ignore, &interrupt);
    (void)sigaction(SIGQUIT, &ignore, &quit);
    pid = fork();
    if (pid == 0) {
        (void)signal(SIGINT, SIG_DFL);
        (void)sigaction(SIGQUIT, &quit, NULL);
        (void)signal(SIGPIPE, SIG_DFL);
        (void)signal(SIGXFSZ, SIG_DFL);
        (void)execl("/bin/sh", "sh", "-c", shell, "sh", arg, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail(c, "the program did not end well");
    (void)sigaction(SIGINT, &interrupt, NULL);
    (void)sigaction(SIGQUIT, &quit, NULL);
}

/* A file of our own with this text; its name goes to `path`. */
static bool temporary(lg_console *c, lg_str text, char path[32])
{
    int fd;
    bool ok;

    (void)snprintf(path, 32, "/tmp/lagoon-XXXXXX");
    fd = mkstemp(path);
    ok = fd >= 0 && (text.n == 0 || write(fd, text.p, text.n) == (ssize_t)text.n);
    if (fd >= 0)
        (void)close(fd);
    if (!ok)
        fail(c, "/tmp: cannot write a file there");
    return ok;
}

static void do_last(lg_console *c, lg_str arg)
{
    const lg_talk_msg *m = last_answer(c);
    const char *pager = lg_env(LG_ENV_PAGER);
    char path[32], shell[1024];

    (void)arg;
    if (!m)
        return;
    if (!c->person) {
        print_text((lg_str){m->text, m->n_text});
        return;
    }
    if (!temporary(c, (lg_str){m->text, m->n_text}, path))
        return;
    (void)snprintf(shell, sizeof shell, "%s \"$1\"", pager ? pager : "less");
    run_shell(c, shell, path);
    (void)unlink(path);
}

static void do_edit(lg_console *c, lg_str arg)
{
    const char *editor = lg_env(LG_ENV_EDITOR);
    char path[32], shell[1024];
    lg_err err = {0};
    char *text = NULL;
    size_t n = 0;

    if (!c->person) {
        fail(c, "/edit needs a terminal");
        return;
    }
    if (!temporary(c, arg, path))
        return;
    (void)snprintf(shell, sizeof shell, "%s \"$1\"", editor ? editor : "vi");
    run_shell(c, shell, path);
    if (lg_read_all(path, READ_MAX, &text, &n, &err) != LG_OK)
        lg_console_error(c, &err);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    if (n > 0)
        lg_input_preset(c->input, (lg_str){text, n});
    free(text);
    (void)unlink(path);
}

/* --- settings --- */

static void do_stats(lg_console *c, lg_str arg)
{
    lg_buf b;

    if (lg_str_eqz(arg, "on") || lg_str_eqz(arg, "off")) {
        c->footer = lg_str_eqz(arg, "on");
        return;
    }
    if (arg.n > 0) {
        fail(c, "/stats takes on or off; alone it shows the last answer's figures");
        return;
    }
    lg_buf_init(&b, 1024);
    if (c->talk.turn.engine)
        lg_turn_figures(&c->talk.turn, &b);
    print_text(b.n > 0 ? lg_buf_str(&b) : LG_STR("no answer yet"));
    lg_buf_free(&b);
}

static void show_set(lg_console *c)
{
    const lg_asking *a = &c->talk.asking;
    char seed[32] = "new for each answer";

    if (!a->random_seed)
        (void)snprintf(seed, sizeof seed, "%" PRIu64, a->sampling.seed);
    lg_console_say(
        c,
        "temp        %g\ntop_k       %d\ntop_p       %g\nmin_p       %g\nseed        %s\nmax_tokens  %" PRId64
        "\nmax_think   %" PRId64 "\nmin_think   %" PRId64,
        (double)a->sampling.temperature, a->sampling.top_k, (double)a->sampling.top_p,
        (double)a->sampling.min_p, seed, a->max_tokens, a->max_think, a->min_think);
}

/* Put `value` where `key` says in *a; false for an unknown key. *good: the value is of the right kind. */
static bool set_one(lg_asking *a, lg_str key, lg_str value, bool *good)
{
    double real = 0;
    int64_t whole = 0;
    bool is_real = lg_str_f64(value, &real), is_whole = lg_str_i64(value, &whole);

    *good = is_whole;
    if (lg_str_eqz(key, "temp") || lg_str_eqz(key, "temperature"))
        a->sampling.temperature = (float)real, *good = is_real;
    else if (lg_str_eqz(key, "top_p"))
        a->sampling.top_p = (float)real, *good = is_real;
    else if (lg_str_eqz(key, "min_p"))
        a->sampling.min_p = (float)real, *good = is_real;
    else if (lg_str_eqz(key, "top_k"))
        *good = is_whole && whole >= -1 && whole <= 1 << 30, a->sampling.top_k = *good ? (int)whole : 0;
    else if (lg_str_eqz(key, "seed"))
        a->random_seed = whole < 0, a->sampling.seed = (uint64_t)whole;
    else if (lg_str_eqz(key, "max_tokens"))
        a->max_tokens = whole;
    else if (lg_str_eqz(key, "max_think"))
        a->max_think = whole < -1 ? -1 : whole;
    else if (lg_str_eqz(key, "min_think"))
        a->min_think = whole, *good = is_whole && whole >= 0;
    else
        return false;
    return true;
}

static void do_set(lg_console *c, lg_str arg)
{
    static const char *const keys[] = {"temp", "top_k", "top_p", "min_p", "seed", "max_tokens", "max_think",
                                       "min_think"};
    lg_asking changed = c->talk.asking;
    lg_str key = next_word(&arg), value = next_word(&arg);
    lg_err err = {0};
    bool good;

    if (key.n == 0) {
        show_set(c);
        return;
    }
    if (!set_one(&changed, key, value, &good)) {
        char word[32];
        const char *near;

        (void)snprintf(word, sizeof word, "%.*s", (int)(key.n < 31 ? key.n : 31), key.p);
        near = lg_nearest(word, keys, sizeof keys / sizeof keys[0]);
        (void)LG_FAIL(&err, LG_E_INPUT, "/set: unknown setting '%s'%s%s%s", word,
                      near ? "; did you mean '" : "", near ? near : "",
                      near ? "'?" : "; /set alone lists them");
    } else if (!good || arg.n > 0) {
        (void)LG_FAIL(&err, LG_E_INPUT, "/set %.*s wants one number", (int)key.n, key.p);
    } else if (changed.max_think >= 0 && changed.min_think > changed.max_think) {
        (void)LG_FAIL(&err, LG_E_INPUT, "/set: min_think %" PRId64 " is more than max_think %" PRId64,
                      changed.min_think, changed.max_think);
    } else if (lg_sampling_check(&changed.sampling, &err) == LG_OK) {
        c->talk.asking = changed;
        return;
    }
    lg_console_error(c, &err);
}

/* --- the table --- */

static void do_help(lg_console *c, lg_str arg);

static const command commands[] = {
    {"/help", "", "this list", do_help},
    {"/quit", "", "leave (also Ctrl-D)", do_quit},
    {"/read", "FILE[:10-80] ...", "add files to the next message", do_read},
    {"/edit", "[TEXT]", "write the next message in $EDITOR", do_edit},
    {"/system", "[TEXT|@FILE]", "show or set the system message", do_system},
    {"/think", "on|off|show|dim|hide|N", "thinking: whether, how it looks, how much", do_think},
    {"/retry", "", "answer the last message again", do_retry},
    {"/continue", "", "go on with an answer that was cut short", do_continue},
    {"/undo", "", "take the last message and its answer back", do_undo},
    {"/reset", "", "begin a new conversation", do_reset},
    {"/save", "NAME", "keep the conversation", do_save},
    {"/load", "NAME", "go back to a kept one", do_load},
    {"/list", "", "list the kept ones", do_list},
    {"/export", "FILE.md|.json|.jsonl", "write the conversation to a file", do_export},
    {"/set", "[NAME VALUE]", "show or change how answers are sampled", do_set},
    {"/tokens", "", "how full the context is, by message", do_tokens},
    {"/copy", "", "the last answer to the clipboard", do_copy},
    {"/last", "", "the last answer in $PAGER", do_last},
    {"/raw", "", "the prompt as the model sees it", do_raw},
    {"/stats", "[on|off]", "figures of the last answer; behind every answer", do_stats},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void do_help(lg_console *c, lg_str arg)
{
    (void)arg;
    for (int i = 0; i < N_COMMANDS; i++)
        lg_console_say(c, "  %-10s%-24s%s", commands[i].word, commands[i].args, commands[i].help);
    lg_console_say(
        c, "A message that begins with // is sent with one slash. Enter sends; Alt-Enter, Ctrl-J or a\n"
           "backslash before Enter begins a new line. Ctrl-C stops an answer.");
}

int lg_console_words(const char *words[LG_CONSOLE_WORDS_MAX])
{
    _Static_assert((int)N_COMMANDS <= (int)LG_CONSOLE_WORDS_MAX, "console.h: LG_CONSOLE_WORDS_MAX");
    for (int i = 0; i < N_COMMANDS; i++)
        words[i] = commands[i].word;
    return N_COMMANDS;
}

void lg_console_command(lg_console *c, lg_str line)
{
    lg_str rest = line, word = next_word(&rest);
    lg_err err = {0};
    const char *near;
    const char *words[LG_CONSOLE_WORDS_MAX];
    char shown[48];

    for (int i = 0; i < N_COMMANDS; i++) {
        if (lg_str_eqz(word, commands[i].word)) {
            commands[i].run(c, rest);
            return;
        }
    }
    (void)snprintf(shown, sizeof shown, "%.*s", (int)(word.n < sizeof shown ? word.n : sizeof shown - 1),
                   word.p);
    near = lg_nearest(shown, words, (size_t)lg_console_words(words));
    if (near)
        (void)LG_FAIL(&err, LG_E_INPUT, "unknown command '%s'; did you mean '%s'? nothing was sent", shown,
                      near);
    else
        (void)LG_FAIL(&err, LG_E_INPUT, "unknown command '%s'; /help lists them; nothing was sent", shown);
    lg_console_error(c, &err);
}
