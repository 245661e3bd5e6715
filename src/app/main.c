/*
 * app/main: finds the command, reads its words, runs it, and turns the outcome into an exit status.
 *
 * Owns the lg_app of the process. Everything here runs on the main thread.
 *
 * Surprise: stdout is judged after the command returned, once for all commands: a reader that went away, or a
 * stdout that came closed, is a quiet 0; any other write error is one line and 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/commands.h"
#include "base/log.h"
#include "commit.h"

/* Known words whose work is not in this version; they are refused by name. */
#define LG_ABSENT_COMMANDS(X)                                                                           \
    X(fetch, "fetch") X(convert, "convert") X(quantize, "quantize") X(imatrix, "imatrix") X(top, "top") \
        X(connect, "connect") X(doctor, "doctor") X(bug_report, "bug-report") X(config, "config")       \
            X(cache, "cache") X(service, "service") X(completion, "completion")
#define LG_ABSENT_DEFINE(ident, word) static const lg_cmd absent_##ident = {.words = {.name = word}};
LG_ABSENT_COMMANDS(LG_ABSENT_DEFINE)

#define LG_COMMAND_ROW(name) &lg_cmd_##name,
#define LG_ABSENT_ROW(ident, word) &absent_##ident,
static const lg_cmd *const commands[] = {LG_COMMANDS(LG_COMMAND_ROW) LG_ABSENT_COMMANDS(LG_ABSENT_ROW)};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

/* Whether some command of this version does anything with a setting. */
static bool is_used(lg_setting_id id)
{
    for (int i = 0; i < N_COMMANDS; i++)
        for (const lg_setting_id *s = commands[i]->words.settings; s && *s != LG_SET_END; s++)
            if (*s == id)
                return true;
    return false;
}

static void print_version(void)
{
    printf("lagoon %s (commit %s)\ndevices: %s\n", LG_VERSION, LG_COMMIT, lg_backend_list());
}

static void print_commands(void)
{
    printf("usage: lagoon COMMAND [FLAGS] [WORDS]\n\nRuns Laguna models on this machine.\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i]->run)
            printf("  %-12s %s\n", commands[i]->words.name, commands[i]->words.summary);
    printf("\nnot in this version:");
    for (int i = 0; i < N_COMMANDS; i++)
        if (!commands[i]->run)
            printf(" %s", commands[i]->words.name);
    printf(
        "\n\n'lagoon COMMAND --help' lists a command's flags; 'lagoon --version' says what this build contains;\n"
        "'lagoon --init' writes an annotated configuration file ('--init --stdout' prints it).\n"
        "Exit status: 0 done, 1 the work failed, 2 the words were wrong, 130 interrupted.\n");
}

static int unknown_command(const char *word)
{
    const char *names[N_COMMANDS];
    const char *near;

    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i]->words.name;
    near = lg_nearest(word, names, N_COMMANDS);
    if (near)
        return lg_app_usage("unknown command '%s'; did you mean '%s'?", word, near);
    return lg_app_usage("unknown command '%s'; 'lagoon --help' lists the commands", word);
}

static int print_help(const lg_cmd *cmd)
{
    lg_buf text;
    int rc = LG_EXIT_OK;

    lg_buf_init(&text, 1 << 20);
    lg_settings_help(&cmd->words, &text);
    if (text.failed)
        rc = lg_app_fail(&(lg_err){.code = LG_E_NOMEM, .msg = "out of memory"});
    else
        (void)fwrite(text.p, 1, text.n, stdout);
    lg_buf_free(&text);
    return rc;
}

static void set_log_level(const lg_app *app)
{
    static const struct {
        const char *name;
        lg_log_level level;
    } levels[] = {
        {"error", LG_LOG_ERROR}, {"warn", LG_LOG_WARN}, {"info", LG_LOG_INFO}, {"debug", LG_LOG_DEBUG}};

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(app->set.log_level, levels[i].name) == 0)
            lg_log_set_level(levels[i].level);
    if (app->common.quiet)
        lg_log_set_level(LG_LOG_OFF);
}

/* A line of lagoon.conf that changes nothing is no error: it may be there for another version. */
static void warn_about_idle_settings(const lg_settings *set)
{
    for (int i = 0; i < LG_N_SETTINGS; i++)
        if (set->from[i].source == LG_FROM_FILE && !is_used((lg_setting_id)i))
            lg_app_say("lagoon.conf:%d: %s does nothing in this version", set->from[i].line,
                       lg_setting_name((lg_setting_id)i));
}

/* Read the words of app->cmd and run it. argv[0] is the command's name. */
static int run_command(lg_app *app, int argc, char **argv)
{
    lg_err err = {0};
    int rc = LG_EXIT_USAGE;

    app->own = calloc(1, app->cmd->own_bytes + sizeof app->common);
    if (!app->own)
        return lg_app_fail(&(lg_err){.code = LG_E_NOMEM, .msg = "out of memory"});
    if (app->cmd->init)
        app->cmd->init(app->own);
    if (lg_settings_load(&app->set, &app->cmd->words, argc, argv, app->own, &app->words, &err) != LG_OK) {
        rc = lg_app_fail(&err);
        rc = err.code == LG_E_INPUT || err.code == LG_E_UNSUPPORTED ? LG_EXIT_USAGE : rc;
        goto out;
    }
    if (app->words.help) {
        rc = print_help(app->cmd);
        goto out;
    }
    if (app->words.version) {
        print_version();
        rc = LG_EXIT_OK;
        goto out;
    }
    memcpy(&app->common, app->own, sizeof app->common);
    set_log_level(app);
    for (int i = 0; i < app->words.n_warning && !app->common.quiet; i++)
        lg_app_say("%s", app->words.warning[i]);
    if (app->cmd == &lg_cmd_serve && !app->common.quiet)
        warn_about_idle_settings(&app->set);
    rc = app->cmd->run(app);
out:
    lg_settings_free(&app->set);
    free(app->own);
    return rc;
}

/* lagoon --init: the annotated file, with the settings that this version has. */
static int write_config(bool to_stdout)
{
    lg_setting_id ids[LG_N_SETTINGS + 1];
    char path[4096];
    lg_err err = {0};
    lg_buf text;
    int n = 0;

    for (int i = 0; i < LG_N_SETTINGS; i++)
        if (is_used((lg_setting_id)i))
            ids[n++] = (lg_setting_id)i;
    ids[n] = LG_SET_END;
    if (to_stdout) {
        lg_buf_init(&text, 1 << 20);
        lg_settings_template(ids, &text);
        return lg_app_print(&text, "the file", &err) == LG_OK ? LG_EXIT_OK : lg_app_fail(&err);
    }
    if (lg_settings_init(ids, path, sizeof path, &err) != LG_OK)
        return lg_app_fail(&err);
    printf("%s\n", path);
    return LG_EXIT_OK;
}

static int dispatch(lg_app *app, int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "serve";

    if (strcmp(word, "help") == 0 && argc == 3) {
        char flag[] = "--help", *words[] = {argv[0], argv[2], flag, NULL};

        return dispatch(app, 3, words);
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_commands();
        return LG_EXIT_OK;
    }
    if (strcmp(word, "--version") == 0) {
        print_version();
        return LG_EXIT_OK;
    }
    if (strcmp(word, "--init") == 0) {
        bool to_stdout = argc == 3 && strcmp(argv[2], "--stdout") == 0;

        return argc > 2 && !to_stdout ? lg_app_usage("--init stands alone, or before --stdout")
                                      : write_config(to_stdout);
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(word, commands[i]->words.name) != 0)
            continue;
        if (!commands[i]->run)
            return lg_app_usage("%s is not in this version yet; 'lagoon --help' lists the commands", word);
        app->cmd = commands[i];
        return run_command(app, argc - 1, argv + 1);
    }
    if (word[0] == '-') { // flags of the bare command are those of serve
        app->cmd = &lg_cmd_serve;
        return run_command(app, argc, argv);
    }
    return unknown_command(word);
}

/* A standard descriptor that came closed would be the next file's, and what is printed would go into it. It
 * is taken by something that refuses the direction it is used in, so that using it still fails. */
static void hold_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    static lg_app app; // the settings are too much for a frame, and there is one per process
    int rc;

    hold_standard_descriptors();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); // a file that may not grow is a write error like others
    lg_app_name_lost_pages();
    rc = lg_app_stdout_judge(dispatch(&app, argc, argv));
    lg_app_die_as_told();
    return rc;
}
