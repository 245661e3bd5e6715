/*
 * base/settings: command line, environment and lagoon.conf, resolved as flag > variable > file > default from
 * the one table in settings_table.h; the same parser reads the options that belong to a single command. The
 * only module that reads the environment.
 *
 * Used by the main thread at start; the result is constant afterwards and may be shared. Strings borrow from
 * the arena in lg_settings and from argv.
 *
 * Surprise: a command line or file that cannot be understood is LG_E_INPUT, for which the exit status is 2.
 */
#ifndef LG_BASE_SETTINGS_H
#define LG_BASE_SETTINGS_H

#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/settings_table.h"

/* --- values --- */

/* The C type behind each type of the table. Options of a command use the same types. */
typedef struct lg_list {
    const char *const *v;
    /* NAME of the [client NAME] section that v[i] came from, or NULL; same length */
    const char *const *owner;
    size_t n;
} lg_list;

typedef bool lg_value_bool;        /* yes no true false on off 1 0; the flag is --x or --no-x */
typedef int64_t lg_value_int;
typedef double lg_value_num;
typedef const char *lg_value_str;  /* never NULL */
/* bytes: 64MiB, 64MB, 1.5GB, 4096; LG_SIZE_AUTO where the row allows auto */
typedef size_t lg_value_size;
typedef double lg_value_secs;      /* seconds: 60, 60s, 500ms, 30min, 2h, 1d */
/* one element each time it is given; a stronger source replaces a weaker one's */
typedef lg_list lg_value_list;

#define LG_SIZE_AUTO SIZE_MAX

typedef enum lg_value_type {
    LG_TYPE_bool, LG_TYPE_int, LG_TYPE_num, LG_TYPE_str, LG_TYPE_size, LG_TYPE_secs, LG_TYPE_list,
} lg_value_type;

/* --- the settings --- */

typedef enum lg_setting_group {
#define LG_ROW(name, title) LG_GROUP_##name,
    LG_SETTING_GROUPS(LG_ROW)
#undef LG_ROW
    LG_N_GROUPS,
} lg_setting_group;

/* LG_SET_ctx, LG_SET_kv_type, ...; LG_SET_END closes a command's list. */
typedef enum lg_setting_id {
#define LG_ROW(group, name, ...) LG_SET_##name,
    LG_SETTINGS(LG_ROW)
#undef LG_ROW
    LG_SET_END,
    LG_N_SETTINGS = LG_SET_END,
} lg_setting_id;

typedef enum lg_setting_source { LG_FROM_DEFAULT, LG_FROM_FILE, LG_FROM_ENV, LG_FROM_FLAG } lg_setting_source;

typedef struct lg_settings {
#define LG_ROW(group, name, type, ...) lg_value_##type name;
    LG_SETTINGS(LG_ROW)
#undef LG_ROW
    struct {
        lg_setting_source source;
        int line;         /* of lagoon.conf, when source is LG_FROM_FILE; else 0 */
        const char *text; /* the value as written; of a list, its last element */
    } from[LG_N_SETTINGS];
    const char *conf_path; /* the lagoon.conf that was looked for; NULL when there is no home directory */
    bool conf_read;        /* it was there */
    lg_arena arena;
} lg_settings;

/* --- a command's own options --- */

/* One option that is no setting: --max-tokens N, -n N. The value goes to `offset` in the command's own
 * struct, in the C type of `type`. A list member must be a zeroed lg_list. */
typedef struct lg_option {
    const char *name;    /* "max-tokens"; a bool is also --no-max-tokens. NULL ends the table */
    char letter;         /* 'n', or 0 */
    lg_value_type type;
    const char *arg;     /* "N"; "" for bool */
    /* default as text, shown in --help; NULL leaves the member as the caller initialised it */
    const char *def;
    const char *limits;  /* as in settings_table.h; NULL or "" = none */
    const char *help;
    size_t offset;
} lg_option;

#define LG_OPTION(own, member, name, letter, type, arg, def, limits, help)                  \
    {                                                                                       \
        (name), (letter), LG_TYPE_##type, (arg), (def), (limits), (help),                   \
            offsetof(own, member) + 0 * sizeof((lg_value_##type *)0 == &((own *)0)->member) \
    }
#define LG_OPTION_END {NULL, 0, LG_TYPE_bool, NULL, NULL, NULL, NULL, 0}

typedef struct lg_command {
    const char *name;              /* "generate" */
    const char *usage;             /* what follows "lagoon ": "generate -p TEXT [options]" */
    const char *summary;           /* one sentence, for the command list and the top of --help */
    const lg_setting_id *settings; /* those it takes, closed by LG_SET_END; NULL = none */
    const lg_option *options;      /* its own, closed by LG_OPTION_END; NULL = none */
    int min_args, max_args;        /* positional words; max_args < 0 = any number */
    const char *args_help;         /* names the positional words in errors: "IN OUT TYPE"; may be NULL */
    const char *notes;             /* printed below the options by --help; may be NULL */
} lg_command;

/* What remains of a command line. */
typedef struct lg_words {
    const char **arg; /* positional words, in order; "-" is one */
    int n_arg;
    bool help;        /* -h or --help was there: nothing else was checked after it */
    bool version;     /* --version was there */
    const char **warning; /* lines for the user, each to be printed behind "lagoon: " */
    int n_warning;
} lg_words;

/* Resolve everything for one command. argv[0] is skipped (program or command name). `own` is the struct that
 * cmd->options point into (NULL when there are none). lagoon.conf is read whole and checked whole, also the
 * keys that this command does not take; a missing file is no error. On success and on failure
 * lg_settings_free is due once. A value that does not fit has the flag, the variable, or file and line as its
 * subject. */
LG_NODISCARD lg_status lg_settings_load(lg_settings *s, const lg_command *cmd, int argc, char **argv,
                                        void *own, lg_words *out, lg_err *err);
void lg_settings_free(lg_settings *s);

/* The text of --help for one command: usage, summary, options by group with defaults, notes. */
void lg_settings_help(const lg_command *cmd, lg_buf *out);

/* The annotated lagoon.conf with every setting of `ids` (closed by LG_SET_END; NULL = all) commented out. */
void lg_settings_template(const lg_setting_id *ids, lg_buf *out);
/* Write that text to the path where lg_settings_load looks, folders included, without overwriting; the path
 * goes to `path` of `n` bytes. LG_E_INPUT when the file exists. */
LG_NODISCARD lg_status lg_settings_init(const lg_setting_id *ids, char *path, size_t n, lg_err *err);

/* Name, effective value as text and origin ("flag", "LAGOON_CTX", "lagoon.conf:9", "default"), for listings.
 * Secret values (API keys) are not for showing: lg_setting_secret says which. */
const char *lg_setting_name(lg_setting_id id);
bool lg_setting_secret(lg_setting_id id);
void lg_setting_value(const lg_settings *s, lg_setting_id id, lg_buf *out);
void lg_setting_origin(const lg_settings *s, lg_setting_id id, lg_buf *out);

/* --- helpers --- */

/* The word of `known` (n of them) nearest to `word`, or NULL when none is near enough to be meant. */
const char *lg_nearest(const char *word, const char *const *known, size_t n);
/* "64MiB" and "64MB" and "1.5GB" -> bytes; `unit` is the unit of a bare number (1 = bytes). */
bool lg_parse_size(lg_str s, size_t unit, size_t *out);
/* "60", "60s", "500ms", "30min", "2h", "1d" -> seconds. */
bool lg_parse_secs(lg_str s, double *out);

/* Variables that belong to others. NULL when unset or empty. */
typedef enum lg_env_var {
    LG_ENV_HOME, LG_ENV_XDG_CONFIG_HOME, LG_ENV_XDG_CACHE_HOME, LG_ENV_XDG_STATE_HOME, LG_ENV_HF_HOME,
    LG_ENV_HF_HUB_CACHE, LG_ENV_HF_TOKEN, LG_ENV_TERM, LG_ENV_NO_COLOR, LG_ENV_CLICOLOR_FORCE,
    LG_ENV_FORCE_COLOR, LG_ENV_EDITOR, LG_ENV_PAGER,
} lg_env_var;
const char *lg_env(lg_env_var var);

#endif
