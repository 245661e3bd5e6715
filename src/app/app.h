/*
 * app/app: what the commands share.
 *
 * main() finds the command in its table, fills an lg_app from the command line and the settings, and calls run.
 * Products go to stdout with stdio, everything else to stderr. A command returns the process's exit status: 0 done,
 * 1 the work failed, 2 the words were wrong, 130 interrupted.
 *
 * How to add a command: write cmd_x.c that exports one `const lg_command lg_cmd_x`, add it to src/app/meson.build and
 * to the list in commands.h.
 *
 * Surprise: SIGPIPE is ignored; main() looks at stdout after run and turns a reader that went away into a quiet 0.
 * A command that streams asks lg_app_stdout_ok now and then and stops early.
 */
#ifndef LG_APP_APP_H
#define LG_APP_APP_H

#include <stdatomic.h>

#include "app/options.h"
#include "engine/engine.h"

typedef struct lg_app lg_app;

enum { LG_EXIT_OK = 0, LG_EXIT_FAILED = 1, LG_EXIT_USAGE = 2, LG_EXIT_INTERRUPTED = 130 };

/* Groups of flags a command takes beside its own. */
enum {
    LG_USES_MODEL = 1 << 0,      /* --model --mini --device --threads --ctx --kv-type --isa ... -> app->model */
    LG_USES_GENERATION = 1 << 1, /* --max-tokens --temp ... -> app->gen */
    LG_USES_VOCAB = 1 << 2,      /* only --model and --mini: the file's vocabulary is all that is needed */
};

typedef struct lg_command {
    const char *name;
    const char *args;    /* positional words as usage shows them: "FILE", "IN OUT TYPE"; NULL: none */
    const char *summary; /* one line for the list of commands */
    const char *about;   /* what `--help` says besides; NULL: the summary is enough */
    unsigned uses;
    const lg_option *options; /* own flags, or NULL */
    size_t opts_bytes;        /* size of the struct that the rows' offsets refer to */
    int min_args, max_args;
    int (*run)(lg_app *app); /* NULL: known, but not in this version */
} lg_command;

typedef struct lg_model_opts {
    const char *model; /* FILE or NAME */
    bool mini;
    const char *device, *kv_type, *isa;
    int64_t threads, ctx;
    bool no_draft; /* accepted; there is no drafter to turn off yet */
} lg_model_opts;

typedef struct lg_gen_opts {
    int64_t max_tokens; /* <= 0: what fits the context */
    double temp, top_p, min_p;
    int64_t top_k, seed;
    bool think;
    int64_t max_think, min_think; /* max_think -1: no budget */
    lg_opt_list stop, ban;
} lg_gen_opts;

typedef struct lg_common_opts {
    bool help, quiet, json;
    const char *color; /* auto, always, never */
} lg_common_opts;

struct lg_app {
    const lg_command *cmd;
    lg_parse parse; /* lg_opts_given(&app->parse, "ctx") */
    lg_model_opts model;
    lg_gen_opts gen;
    lg_common_opts common;
    void *opts;  /* the command's own struct */
    char **args; /* positional words */
    int n_args;
    atomic_bool *cancel;   /* set by Ctrl-C once lg_app_catch_interrupt was called */
    char model_path[4096]; /* filled by lg_app_model_path */
};

/* For main: put the tables of the groups in force. */
void lg_app_add_groups(lg_app *app, unsigned uses);

/* --- errors --- */

/* Prints "lagoon: subject: msg" and returns the exit status that belongs to the code (130 for LG_E_CANCELLED). */
int lg_app_fail(const lg_err *err);
/* Prints "lagoon: ..." and returns 2. */
int lg_app_usage(const char *fmt, ...) LG_PRINTF(1, 2);
/* "lagoon: ..." on stderr, exit status untouched. Not silenced by --quiet. */
void lg_app_say(const char *fmt, ...) LG_PRINTF(1, 2);

/* --- stdout and interruption --- */

/* False once the reader of stdout is gone or a write failed. Flushes. */
bool lg_app_stdout_ok(void);
/* From now on Ctrl-C sets *app->cancel; without this call, and at the second Ctrl-C, the process ends at once. */
void lg_app_catch_interrupt(lg_app *app);
bool lg_app_interrupted(const lg_app *app);

/* --- the model --- */

/* Resolve -m NAME|FILE / --mini to a file: app->model_path. LG_E_INPUT says where a name was looked for. */
LG_NODISCARD lg_status lg_app_model_path(lg_app *app, lg_err *err);
/* Engine parameters of the flags, model path resolved; pointers live as long as app. */
LG_NODISCARD lg_status lg_app_engine_params(lg_app *app, lg_engine_params *out, lg_err *err);
/* Open the engine with a load bar when stderr is a terminal. `p` comes from lg_app_engine_params, changed as needed. */
LG_NODISCARD lg_status lg_app_engine_open(lg_app *app, const lg_engine_params *p, lg_engine **out, lg_err *err);

#endif
