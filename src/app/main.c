/*
 * app/main: finds the command, reads its words, runs it, and turns the outcome into an exit status.
 *
 * Owns the lg_app of the process. Everything here runs on the main thread.
 *
 * Surprise: stdout is judged after the command returned, once for all commands: a reader that went away is a quiet 0,
 * any other write error is one line and 1.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/commands.h"
#include "base/log.h"
#include "commit.h"

/* Known words whose work is not in this version; they are refused by name. */
#define LG_ABSENT(ident, word, text) static const lg_command absent_##ident = {.name = word, .summary = text};
LG_ABSENT(serve, "serve", "the HTTP server")
LG_ABSENT(fetch, "fetch", "download a model")
LG_ABSENT(convert, "convert", "Hugging Face safetensors to GGUF")
LG_ABSENT(quantize, "quantize", "requantize a GGUF")
LG_ABSENT(imatrix, "imatrix", "collect an importance matrix")
LG_ABSENT(top, "top", "the dashboard of a running server")
LG_ABSENT(connect, "connect", "point a client at a server")
LG_ABSENT(doctor, "doctor", "check this machine")
LG_ABSENT(bug_report, "bug-report", "collect what a bug report needs")
LG_ABSENT(config, "config", "show the effective settings")
LG_ABSENT(cache, "cache", "look after stored conversations")
LG_ABSENT(service, "service", "run as a service")
LG_ABSENT(completion, "completion", "shell completions")

#define LG_COMMAND_ROW(name) &lg_cmd_##name,
static const lg_command *const commands[] = {
    LG_COMMANDS(LG_COMMAND_ROW) &absent_serve, &absent_fetch, &absent_convert, &absent_quantize, &absent_imatrix,
    &absent_top, &absent_connect, &absent_doctor, &absent_bug_report, &absent_config, &absent_cache, &absent_service,
    &absent_completion,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const lg_option common_table[] = {
    {.name = "json", .kind = LG_OPT_SWITCH, .at = offsetof(lg_common_opts, json), .help = "print the product as JSON"},
    {.name = "quiet", .letter = 'q', .kind = LG_OPT_SWITCH, .at = offsetof(lg_common_opts, quiet),
     .help = "no logs and no progress"},
    {.name = "color", .kind = LG_OPT_TEXT, .at = offsetof(lg_common_opts, color), .def = "auto",
     .choices = "auto|always|never", .help = "colours and dimming"},
    {.name = "help", .letter = 'h', .kind = LG_OPT_SWITCH, .at = offsetof(lg_common_opts, help),
     .help = "print this and end"},
    {0},
};

static void print_version(void)
{
    printf("lagoon %s (commit %s)\ndevices: %s\n", LG_VERSION, LG_COMMIT, lg_backend_list());
}

static void print_commands(void)
{
    printf("usage: lagoon COMMAND [FLAGS] [WORDS]\n\nRuns Laguna models on this machine.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i]->run)
            printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    printf("\nnot in this version:");
    for (int i = 0; i < N_COMMANDS; i++)
        if (!commands[i]->run)
            printf(" %s", commands[i]->name);
    printf("\n\n'lagoon COMMAND --help' lists a command's flags; 'lagoon --version' says what this build contains.\n"
           "exit status: 0 done, 1 the work failed, 2 the words were wrong, 130 interrupted\n");
}

static void print_help(const lg_app *app)
{
    const lg_command *c = app->cmd;

    printf("usage: lagoon %s [FLAGS]%s%s\n\n%s\n", c->name, c->args ? " " : "", c->args ? c->args : "", c->summary);
    if (c->about)
        printf("\n%s\n", c->about);
    lg_opts_help(&app->parse, stdout);
}

static int unknown_command(const char *word)
{
    const char *names[N_COMMANDS];
    const char *near;

    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i]->name;
    near = lg_nearest(word, names, N_COMMANDS);
    if (near)
        return lg_app_usage("unknown command '%s'; did you mean '%s'?", word, near);
    return lg_app_usage("unknown command '%s'; 'lagoon --help' lists the commands", word);
}

static int wrong_count(const lg_app *app)
{
    const lg_command *c = app->cmd;

    if (app->n_args > c->max_args && c->max_args == 0)
        return lg_app_usage("unexpected word '%s'; usage: lagoon %s [FLAGS]", app->args[0], c->name);
    if (app->n_args > c->max_args)
        return lg_app_usage("unexpected word '%s'; usage: lagoon %s [FLAGS] %s", app->args[c->max_args], c->name,
                            c->args);
    return lg_app_usage("%s wants %s; 'lagoon %s --help' says more", c->name, c->args, c->name);
}

/* Read the words of app->cmd and run it. */
static int run_command(lg_app *app, int argc, char **argv)
{
    const lg_command *c = app->cmd;
    lg_err err = {0};
    int rc;

    app->opts = calloc(1, c->opts_bytes ? c->opts_bytes : 1);
    if (!app->opts)
        return lg_app_fail(&(lg_err){.code = LG_E_NOMEM, .msg = "out of memory"});
    app->parse.command = c->name;
    if (c->options)
        app->parse.set[app->parse.n_set++] = (lg_opt_set){"flags", c->options, app->opts};
    lg_app_add_groups(app, c->uses);
    app->parse.set[app->parse.n_set++] = (lg_opt_set){"common flags", common_table, &app->common};
    lg_opts_defaults(&app->parse);
    app->args = argv;
    if (lg_opts_parse(&app->parse, argc, argv, &app->n_args, &err) != LG_OK) {
        (void)lg_app_fail(&err);
        rc = LG_EXIT_USAGE;
    } else if (app->common.help) {
        print_help(app);
        rc = LG_EXIT_OK;
    } else if (app->n_args < c->min_args || app->n_args > c->max_args) {
        rc = wrong_count(app);
    } else {
        if (app->common.quiet)
            lg_log_set_level(LG_LOG_OFF);
        rc = c->run(app);
    }
    free(app->opts);
    return rc;
}

static int dispatch(lg_app *app, int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "serve";

    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_commands();
        return LG_EXIT_OK;
    }
    if (strcmp(word, "--version") == 0) {
        print_version();
        return LG_EXIT_OK;
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(word, commands[i]->name) != 0)
            continue;
        if (!commands[i]->run)
            return lg_app_usage("%s is not in this version yet; 'lagoon --help' lists the commands", word);
        app->cmd = commands[i];
        return run_command(app, argc - 2, argv + 2);
    }
    if (word[0] == '-')
        return lg_app_usage("the command comes first: lagoon COMMAND %s ...; 'lagoon --help' lists them", word);
    return unknown_command(word);
}

/* What became of stdout decides over success: the reader may have left, or the disk may be full. */
static int judge_stdout(int rc)
{
    struct pollfd pfd = {.fd = STDOUT_FILENO, .events = POLLOUT};
    int why = 0;

    errno = 0;
    if (fflush(stdout) != 0)
        why = errno;
    else if (!ferror(stdout))
        return rc;
    if (why == EPIPE || (poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLERR)))
        return rc == LG_EXIT_INTERRUPTED ? rc : LG_EXIT_OK;
    if (rc == LG_EXIT_OK) {
        lg_app_say("stdout: cannot write%s%s", why ? ": " : "", why ? strerror(why) : "");
        rc = LG_EXIT_FAILED;
    }
    return rc;
}

int main(int argc, char **argv)
{
    static lg_app app; // a page of path buffer and the option tables: too much for a frame, one per process
    int rc;

    (void)signal(SIGPIPE, SIG_IGN);
    rc = judge_stdout(dispatch(&app, argc, argv));
    return rc;
}
