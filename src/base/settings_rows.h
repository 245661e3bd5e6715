/*
 * base/settings_rows: what the parts of base/settings share: the table as data, and the one parser of values.
 *
 * settings.c resolves, settings_value.c parses, settings_file.c reads lagoon.conf, settings_text.c writes for
 * people.
 */
#ifndef LG_BASE_SETTINGS_ROWS_H
#define LG_BASE_SETTINGS_ROWS_H

#include "base/settings.h"

typedef struct lg_setting_row {
    lg_option opt; /* name with underscores; offset into lg_settings */
    const char *alias, *why;
    lg_setting_group group;
} lg_setting_row;

typedef struct lg_shorthand {
    const char *flag, *value, *help;
    lg_setting_id id;
} lg_shorthand;

extern const lg_setting_row lg_setting_rows[LG_N_SETTINGS];
extern const lg_shorthand lg_shorthands[];
extern const size_t lg_n_shorthands;
extern const char *const lg_setting_titles[LG_N_GROUPS];

/* A value being stored. */
typedef struct lg_given {
    const char *text;  /* as written, NUL-terminated, living as long as the settings */
    const char *owner; /* NAME of a [client NAME] section, or NULL */
    lg_setting_source source;
    int line;
} lg_given;

/* Parse g->text by opt's type and limits into opt->offset of `base`. A list grows, in the arena. LG_E_INPUT
 * says what is wrong and what would be right, without subject. */
LG_NODISCARD lg_status lg_value_store(const lg_option *opt, const lg_given *g, void *base, lg_arena *a,
                                      lg_err *err);
/* "auto, cuda:N" for "auto|cuda:*". */
void lg_choices(const char *limits, lg_buf *out);
/* True when both values of the setting are the same; lists are never compared (true). */
bool lg_value_same(const lg_option *opt, const lg_settings *a, const lg_settings *b);
/* Store a value of a setting and note where it came from; the first element of a list from a stronger source
 * drops those of the weaker. */
LG_NODISCARD lg_status lg_setting_store(lg_settings *s, lg_setting_id id, const lg_given *g, lg_err *err);

/* Read the file at s->conf_path, if there is one, into s. */
LG_NODISCARD lg_status lg_settings_read_file(lg_settings *s, lg_err *err);

/* The setting of that name (underscores), or LG_SET_END. */
lg_setting_id lg_setting_find(lg_str name);
/* Where lagoon.conf is looked for; NULL when there is no home directory. False: out of memory. */
LG_NODISCARD bool lg_settings_conf_path(lg_arena *a, const char **out);
/* `path` with the home directory as ~, in the arena; path itself when that is not its beginning. */
const char *lg_settings_tilde(lg_arena *a, const char *path);

#endif
