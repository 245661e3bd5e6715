/*
 * app/app: what the commands share.
 *
 * main() finds the command in its table, fills an lg_app from the command line and the settings
 * (base/settings), and calls run. Products go to stdout with stdio, everything else to stderr. A command
 * returns the process's exit status: 0 done, 1 the work failed, 2 the words were wrong, 130 interrupted.
 *
 * How to add a command: write cmd_x.c that defines one `const lg_cmd lg_cmd_x`, add it to src/app/meson.build
 * and to the list in commands.h. Its own struct begins with an lg_common, whose flags LG_COMMON_OPTIONS adds
 * to its table.
 *
 * Surprise: SIGPIPE is ignored; main() looks at stdout after run and turns a reader that went away into a
 * quiet 0. A command that streams asks lg_app_stdout_ok now and then and stops early.
 */
#ifndef LG_APP_APP_H
#define LG_APP_APP_H

#include <stdatomic.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/settings.h"
#include "engine/engine.h"

typedef struct lg_app lg_app;

enum { LG_EXIT_OK = 0, LG_EXIT_FAILED = 1, LG_EXIT_USAGE = 2, LG_EXIT_INTERRUPTED = 130 };

/* Flags of every command: first member of its own struct. */
typedef struct lg_common {
    bool json, quiet;
} lg_common;

#define LG_COMMON_OPTIONS(own)                                                                 \
    LG_OPTION(own, common.json, "json", 0, bool, "", NULL, NULL, "print the product as JSON"), \
        LG_OPTION(own, common.quiet, "quiet", 'q', bool, "", NULL, NULL, "no logs and no progress")

/* Settings of a command that loads a model, and of one that needs only the file. */
#define LG_FILE_SETTINGS LG_SET_model, LG_SET_models, LG_SET_color, LG_SET_log_level
#define LG_MODEL_SETTINGS                                                                         \
    LG_FILE_SETTINGS, LG_SET_device, LG_SET_threads, LG_SET_ctx, LG_SET_kv_type, LG_SET_isa,      \
        LG_SET_crlf_compat, LG_SET_draft, LG_SET_draft_max, LG_SET_draft_p_min, LG_SET_draft_ctx, \
        LG_SET_draft_pause_margin, LG_SET_draft_type

typedef struct lg_cmd {
    lg_command words; /* name, usage, settings, options: what base/settings reads */
    size_t own_bytes; /* size of the struct that words.options point into; zeroed before the flags are read */
    void (*init)(void *own); /* values of options without default; may be NULL */
    int (*run)(lg_app *app); /* NULL: known, but not in this version */
} lg_cmd;

struct lg_app {
    const lg_cmd *cmd;
    lg_settings set;
    lg_words words; /* positional words */
    void *own;      /* the command's own struct */
    lg_common common;
    atomic_bool *cancel;   /* set by Ctrl-C once lg_app_catch_interrupt was called */
    char model_path[4096]; /* filled by lg_app_model_path */
    char draft_path[4096]; /* filled by lg_app_choose_drafter */
};

/* --- errors --- */

/* Prints "lagoon: subject: msg" and returns 1; for LG_E_CANCELLED prints nothing and returns 130. */
int lg_app_fail(const lg_err *err);
/* Prints "lagoon: ..." and returns 2. */
int lg_app_usage(const char *fmt, ...) LG_PRINTF(1, 2);
/* "lagoon: ..." on stderr. Not silenced by --quiet. */
void lg_app_say(const char *fmt, ...) LG_PRINTF(1, 2);

/* The line about a chat template that is none of the known ones. */
void lg_app_say_guess(const lg_app *app);

/* --- stdout and interruption --- */

/* Puts b, the object of --json, on stdout and frees it. LG_E_LIMIT, and nothing printed, when b failed: the
 * error says that `what` is too long. */
LG_NODISCARD lg_status lg_app_print(lg_buf *b, const char *what, lg_err *err);
/* False once the reader of stdout is gone or a write failed, and for a stdout that came closed as soon as
 * something was printed. Flushes. */
bool lg_app_stdout_ok(void);
/* For main: after success, what became of stdout decides. A reader that left or a closed stdout is fine,
 * another write error prints its line and makes 1. */
int lg_app_stdout_judge(int rc);
/* From now on Ctrl-C sets *app->cancel; `presses` of them within two seconds end the process at once. Without
 * this call the first one does. */
void lg_app_catch_interrupt(lg_app *app, int presses);
/* For commands that write files: SIGTERM and SIGHUP too set *app->cancel, so that nothing half-written stays;
 * a second one ends the process at once. */
void lg_app_catch_termination(lg_app *app);
/* For chat at a terminal that knows escapes: after SIGTERM or SIGHUP it is as it was before. */
void lg_app_tidy_terminal_at_death(void);
/* From here on SIGBUS says in one line what it means here (the model's file was overwritten) before it ends
 * the process. */
void lg_app_name_lost_pages(void);
/* For main: after such a signal, end by it; else nothing. */
void lg_app_die_as_told(void);
bool lg_app_interrupted(const lg_app *app);

/* --- the model --- */

/* Resolve the model setting (FILE or NAME) to a file: app->model_path. LG_E_INPUT says where a name was
 * looked for. */
LG_NODISCARD lg_status lg_app_model_path(lg_app *app, lg_err *err);
/* The same for any word, into `out` of `n` bytes: for commands that take the file as a positional word. */
LG_NODISCARD lg_status lg_app_find_model(const lg_app *app, const char *word, char *out, size_t n,
                                         lg_err *err);
/* Engine parameters of the settings but for the model. */
lg_engine_params lg_app_engine_settings(const lg_app *app);
/* The same with the model path resolved; pointers live as long as app. */
LG_NODISCARD lg_status lg_app_engine_params(lg_app *app, lg_engine_params *out, lg_err *err);
/* The drafter file that belongs to a model file: beside it, with its name. False: there is none. */
bool lg_app_find_drafter(const char *model_path, char *out, size_t n);
/* Engine parameters of the drafting settings; the drafter itself by the setting `draft`: a file, none, or the
 * one that belongs to app->model_path. lg_app_engine_params calls both; a command that never decodes clears
 * p->draft_path. */
void lg_app_draft_settings(const lg_app *app, lg_engine_params *p);
void lg_app_choose_drafter(lg_app *app, lg_engine_params *p);
/* Open the engine with a load bar when it takes long. `p` comes from lg_app_engine_params, changed as needed.
 */
LG_NODISCARD lg_status lg_app_engine_open(lg_app *app, const lg_engine_params *p, lg_engine **out,
                                          lg_err *err);

#endif
