/*
 * app/options: one parser for the words of every command, driven by tables.
 *
 * A table row names a flag, where its value goes (an offset in the caller's struct), its default as text (parsed by
 * the same code, shown by --help) and its bounds. Several tables can be in force at once (the command's own, model,
 * generation, common). Positional words may stand between flags; `--` ends flags; `-` is a positional word.
 *
 * Surprise: a flag that this version lacks has a row of kind LG_OPT_ABSENT, so that it is refused by name and not as
 * unknown.
 */
#ifndef LG_APP_OPTIONS_H
#define LG_APP_OPTIONS_H

#include <stdio.h>

#include "base/str.h"
#include "base/err.h"

typedef enum lg_opt_kind {
    LG_OPT_BOOL,   /* bool; --x gives true, --no-x false */
    LG_OPT_SWITCH, /* bool; --x gives true, there is no --no-x */
    LG_OPT_TEXT,   /* const char *, borrowed from argv; NULL without default */
    LG_OPT_INT,    /* int64_t */
    LG_OPT_REAL,   /* double */
    LG_OPT_LIST,   /* lg_opt_list; the flag may be repeated */
    LG_OPT_ABSENT, /* nothing is stored: "not in this version" */
} lg_opt_kind;

enum { LG_OPT_LIST_MAX = 64 };
typedef struct lg_opt_list {
    const char *v[LG_OPT_LIST_MAX];
    int n;
} lg_opt_list;

typedef struct lg_option {
    const char *name; /* without dashes; NULL ends a table */
    char letter;      /* 0: no short form */
    lg_opt_kind kind;
    size_t at;           /* offset in the struct that belongs to this table */
    const char *arg;     /* the value's name in --help; NULL for switches */
    const char *def;     /* default as text, or NULL: false, 0, no text */
    double min, max;     /* INT and REAL: inclusive bounds; both 0: any */
    const char *choices; /* TEXT: "f16|q8_0|f32", or NULL */
    const char *help;    /* one line, lower case, no full stop */
} lg_option;

typedef struct lg_opt_set {
    const char *title; /* heading in --help */
    const lg_option *table;
    void *base; /* the struct that offsets refer to */
} lg_opt_set;

enum { LG_OPT_SETS_MAX = 6, LG_OPT_GIVEN_MAX = 128 };
typedef struct lg_parse {
    const char *command; /* for messages: "unknown flag '--x' of <command>" */
    lg_opt_set set[LG_OPT_SETS_MAX];
    int n_set;
    const lg_option *given[LG_OPT_GIVEN_MAX]; /* rows that the command line named */
    int n_given;
} lg_parse;

/* Put every row's default in place. A default that does not parse is a mistake of ours (assert). */
void lg_opts_defaults(const lg_parse *p);
/* Read argv[0..argc); positional words are moved to the front of argv and counted in *n_args. Errors are LG_E_INPUT
 * with the exact line to print; nearest names are offered. */
LG_NODISCARD lg_status lg_opts_parse(lg_parse *p, int argc, char **argv, int *n_args, lg_err *err);
/* Store `value` (a text from a flag or a setting; NULL for switches) in row `o`. `how` names the source in errors. */
LG_NODISCARD lg_status lg_opt_store(const lg_option *o, void *base, const char *how, const char *value, lg_err *err);
/* True when the command line named this flag (in either form). */
bool lg_opts_given(const lg_parse *p, const char *name);
/* The option part of --help, with defaults. */
void lg_opts_help(const lg_parse *p, FILE *out);

/* The nearest of n names to `word` when it is near enough to be a slip of the keys, else NULL. */
const char *lg_nearest(const char *word, const char *const *names, int n);

#endif
