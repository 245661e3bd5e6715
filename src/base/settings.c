/*
 * base/settings: see settings.h. This file owns the table's data, the environment and the command line.
 *
 * Sources are applied from weakest to strongest, each over the one before, so that no rule of precedence is
 * spelled anywhere; what the file said is kept aside only for the warning about contradictions.
 */
#include "base/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/settings_rows.h"

#ifdef __APPLE__
extern char **environ;
#endif

enum { ARENA_LIMIT = 32 << 20 };

const lg_setting_row lg_setting_rows[LG_N_SETTINGS] = {
#define LG_ROW(group_, name_, type_, letter_, alias_, arg_, def_, limits_, help_, why_) \
    {.opt = {.name = #name_,                                                            \
             .letter = letter_,                                                         \
             .type = LG_TYPE_##type_,                                                   \
             .arg = arg_,                                                               \
             .def = def_,                                                               \
             .limits = limits_,                                                         \
             .help = help_,                                                             \
             .offset = offsetof(lg_settings, name_)},                                   \
     .alias = alias_,                                                                   \
     .why = why_,                                                                       \
     .group = LG_GROUP_##group_},
    LG_SETTINGS(LG_ROW)
#undef LG_ROW
};

const lg_shorthand lg_shorthands[] = {
#define LG_ROW(flag_, setting_, value_, help_) \
    {.flag = flag_, .value = value_, .help = help_, .id = LG_SET_##setting_},
    LG_SHORTHANDS(LG_ROW)
#undef LG_ROW
};
const size_t lg_n_shorthands = sizeof lg_shorthands / sizeof lg_shorthands[0];

const char *const lg_setting_titles[LG_N_GROUPS] = {
#define LG_ROW(name, title) title,
    LG_SETTING_GROUPS(LG_ROW)
#undef LG_ROW
};

const char *lg_env(lg_env_var var)
{
    static const char *const names[] = {
        [LG_ENV_HOME] = "HOME",
        [LG_ENV_XDG_CONFIG_HOME] = "XDG_CONFIG_HOME",
        [LG_ENV_XDG_CACHE_HOME] = "XDG_CACHE_HOME",
        [LG_ENV_XDG_STATE_HOME] = "XDG_STATE_HOME",
        [LG_ENV_HF_HOME] = "HF_HOME",
        [LG_ENV_HF_HUB_CACHE] = "HF_HUB_CACHE",
        [LG_ENV_HF_TOKEN] = "HF_TOKEN",
        [LG_ENV_TERM] = "TERM",
        [LG_ENV_NO_COLOR] = "NO_COLOR",
        [LG_ENV_CLICOLOR_FORCE] = "CLICOLOR_FORCE",
        [LG_ENV_FORCE_COLOR] = "FORCE_COLOR",
        [LG_ENV_EDITOR] = "EDITOR",
        [LG_ENV_PAGER] = "PAGER",
    };
    const char *v = getenv(names[var]);

    return v && v[0] ? v : NULL;
}

lg_setting_id lg_setting_find(lg_str name)
{
    for (int i = 0; i < LG_N_SETTINGS; i++)
        if (lg_str_eqz(name, lg_setting_rows[i].opt.name))
            return (lg_setting_id)i;
    return LG_SET_END;
}

bool lg_settings_conf_path(lg_arena *a, const char **out)
{
    static const char tail[] = "/lagoon/lagoon.conf";
    const char *base = lg_env(LG_ENV_XDG_CONFIG_HOME), *middle = "";

    if (!base || base[0] != '/') { // a relative one is to be ignored, says its specification
        base = lg_env(LG_ENV_HOME);
        middle = "/.config";
    }
    *out = NULL;
    if (!base)
        return true;
    size_t n = strlen(base) + strlen(middle) + sizeof tail;
    char *path = lg_arena_alloc(a, n);
    if (!path)
        return false;
    (void)snprintf(path, n, "%s%s%s", base, middle, tail);
    *out = path;
    return true;
}

const char *lg_settings_tilde(lg_arena *a, const char *path)
{
    const char *home = lg_env(LG_ENV_HOME);
    size_t n = home ? strlen(home) : 0;

    if (n == 0 || strncmp(path, home, n) != 0 || path[n] != '/')
        return path;
    char *out = lg_arena_alloc(a, strlen(path) - n + 2);
    if (!out)
        return path;
    out[0] = '~';
    memcpy(out + 1, path + n, strlen(path) - n + 1);
    return out;
}

lg_status lg_setting_store(lg_settings *s, lg_setting_id id, const lg_given *g, lg_err *err)
{
    const lg_option *opt = &lg_setting_rows[id].opt;

    if (opt->type == LG_TYPE_list && g->source != s->from[id].source)
        *(lg_list *)(void *)((char *)s + opt->offset) = (lg_list){0};
    LG_TRY(lg_value_store(opt, g, s, &s->arena, err));
    s->from[id].source = g->source;
    s->from[id].line = g->line;
    s->from[id].text = g->text;
    return LG_OK;
}

// --- one command line ---

typedef struct loading {
    lg_settings *s;
    const lg_command *cmd;
    void *own;
    lg_words *out;
    const char *flag[LG_N_SETTINGS]; // as the user will recognise it: "--ctx 65536"
    lg_err *err;
} loading;

// What a flag turned out to be.
typedef struct flag {
    const lg_option *opt;
    lg_setting_id id;   // LG_SET_END: an option of the command
    const char *preset; // the value that the flag itself stands for: "no" of --no-x, that of a shorthand
} flag;

static lg_status no_memory(lg_err *err)
{
    return LG_FAIL(err, LG_E_NOMEM, "out of memory while reading the settings");
}

static const char *joined(lg_arena *a, const char *x, const char *y, const char *z)
{
    size_t n = strlen(x) + strlen(y) + strlen(z) + 1;
    char *out = lg_arena_alloc(a, n);

    if (out)
        (void)snprintf(out, n, "%s%s%s", x, y, z);
    return out;
}

// kv-type for kv_type
static const char *dashed(lg_arena *a, const char *name)
{
    char *out = lg_arena_dup(a, name, strlen(name));

    for (char *p = out; p && *p; p++)
        if (*p == '_')
            *p = '-';
    return out;
}

static bool spelled(lg_str word, const char *name)
{
    size_t n = strlen(name);

    if (word.n != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (word.p[i] != (name[i] == '_' ? '-' : name[i]))
            return false;
    return true;
}

// Matches --name and, for a bool, --no-name.
static bool matches(lg_str word, const char *name, const lg_option *opt, flag *f)
{
    f->opt = opt;
    f->preset = opt->type == LG_TYPE_bool ? "yes" : NULL;
    if (name && spelled(word, name))
        return true;
    if (!name || opt->type != LG_TYPE_bool || !lg_str_starts(word, LG_STR("no-")))
        return false;
    f->preset = "no";
    return spelled((lg_str){word.p + 3, word.n - 3}, name);
}

static bool takes(const lg_command *cmd, lg_setting_id id)
{
    for (const lg_setting_id *i = cmd->settings; i && *i != LG_SET_END; i++)
        if (*i == id)
            return true;
    return false;
}

static bool find_long(const lg_command *cmd, lg_str word, flag *f)
{
    f->id = LG_SET_END;
    for (const lg_option *o = cmd->options; o && o->name; o++)
        if (matches(word, o->name, o, f))
            return true;
    for (const lg_setting_id *i = cmd->settings; i && *i != LG_SET_END; i++) {
        const lg_setting_row *row = &lg_setting_rows[*i];
        f->id = *i;
        if (matches(word, row->opt.name, &row->opt, f) || matches(word, row->alias, &row->opt, f))
            return true;
    }
    for (size_t i = 0; i < lg_n_shorthands; i++)
        if (takes(cmd, lg_shorthands[i].id) && lg_str_eqz(word, lg_shorthands[i].flag)) {
            *f = (flag){&lg_setting_rows[lg_shorthands[i].id].opt, lg_shorthands[i].id,
                        lg_shorthands[i].value};
            return true;
        }
    return false;
}

static bool find_letter(const lg_command *cmd, char letter, flag *f)
{
    f->id = LG_SET_END;
    f->opt = NULL;
    for (const lg_option *o = cmd->options; o && o->name && !f->opt; o++)
        if (o->letter == letter)
            f->opt = o;
    for (const lg_setting_id *i = cmd->settings; i && *i != LG_SET_END && !f->opt; i++)
        if (lg_setting_rows[*i].opt.letter == letter) {
            f->id = *i;
            f->opt = &lg_setting_rows[*i].opt;
        }
    f->preset = f->opt && f->opt->type == LG_TYPE_bool ? "yes" : NULL;
    return f->opt != NULL;
}

static lg_status unknown_flag(loading *l, lg_str word)
{
    enum { MOST = 2 * LG_N_SETTINGS + 256 };
    const char *known[MOST];
    lg_arena *a = &l->s->arena;
    size_t n = 0;

    for (const lg_option *o = l->cmd->options; o && o->name && n < MOST; o++)
        known[n++] = o->name;
    for (const lg_setting_id *i = l->cmd->settings; i && *i != LG_SET_END && n + 2 < MOST; i++) {
        const char *name = dashed(a, lg_setting_rows[*i].opt.name);
        if (name)
            known[n++] = name;
        if (lg_setting_rows[*i].alias)
            known[n++] = lg_setting_rows[*i].alias;
    }
    for (size_t i = 0; i < lg_n_shorthands && n < MOST; i++)
        if (takes(l->cmd, lg_shorthands[i].id))
            known[n++] = lg_shorthands[i].flag;

    const char *name = lg_arena_dup(a, word.p, word.n);
    if (!name)
        return no_memory(l->err);
    const char *near = lg_nearest(name, known, n);
    if (near)
        return LG_FAIL(l->err, LG_E_INPUT, "unknown flag '--%s' of %s; did you mean '--%s'?", name,
                       l->cmd->name, near);
    return LG_FAIL(l->err, LG_E_INPUT, "unknown flag '--%s' of %s; 'lagoon %s --help' lists them", name,
                   l->cmd->name, l->cmd->name);
}

// Stores the value of a flag. `shown` is how an error names it: "--ctx".
static lg_status store_flag(loading *l, const flag *f, const char *shown, const char *text)
{
    lg_given g = {.text = text, .source = LG_FROM_FLAG};
    lg_status st;

    if (f->id == LG_SET_END) {
        st = lg_value_store(f->opt, &g, l->own, &l->s->arena, l->err);
    } else {
        st = lg_setting_store(l->s, f->id, &g, l->err);
        l->flag[f->id] = f->preset ? shown : joined(&l->s->arena, shown, " ", text);
    }
    if (st == LG_E_INPUT)
        (void)lg_err_subject(l->err, "%s", shown);
    return st;
}

// argv[*i] is "--name" or "--name=value"; takes the next word when a value is due.
static lg_status long_flag(loading *l, int argc, char **argv, int *i)
{
    const char *word = argv[*i] + 2;
    const char *equals = strchr(word, '=');
    lg_str name = {word, equals ? (size_t)(equals - word) : strlen(word)};
    flag f;

    if (lg_str_eqz(name, "help") || lg_str_eqz(name, "version")) {
        l->out->help = word[0] == 'h';
        l->out->version = word[0] == 'v';
        return LG_OK;
    }
    if (!find_long(l->cmd, name, &f))
        return unknown_flag(l, name);
    const char *shown = lg_arena_dup(&l->s->arena, argv[*i], name.n + 2);
    if (!shown)
        return no_memory(l->err);
    if (f.preset && equals) {
        // --x=no is fine, --no-x=... and --mini=... say two things at once
        if (f.opt->type != LG_TYPE_bool || lg_str_starts(name, LG_STR("no-")))
            return LG_FAIL(l->err, LG_E_INPUT, "%s takes no value", shown);
        f.preset = NULL;
    }
    if (f.preset)
        return store_flag(l, &f, shown, f.preset);
    if (equals)
        return store_flag(l, &f, shown, equals + 1);
    if (*i + 1 >= argc)
        return LG_FAIL(l->err, LG_E_INPUT, "%s needs a value: %s %s", shown, shown, f.opt->arg);
    return store_flag(l, &f, shown, argv[++*i]);
}

// argv[*i] is "-abc": letters of bools, the last of which may take the rest or the next word as its value.
static lg_status short_flags(loading *l, int argc, char **argv, int *i)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        char shown[3] = {'-', *p, 0};
        flag f;

        if (*p == 'h') {
            l->out->help = true;
            return LG_OK;
        }
        if (!find_letter(l->cmd, *p, &f))
            return LG_FAIL(l->err, LG_E_INPUT, "unknown flag '%s' of %s; 'lagoon %s --help' lists them",
                           shown, l->cmd->name, l->cmd->name);
        const char *name = joined(&l->s->arena, "--", f.opt->name, "");
        const char *full = name ? dashed(&l->s->arena, name) : NULL;
        if (!full)
            return no_memory(l->err);
        if (f.preset) {
            LG_TRY(store_flag(l, &f, full, f.preset));
            continue;
        }
        if (p[1])
            return store_flag(l, &f, full, p + 1);
        if (*i + 1 >= argc)
            return LG_FAIL(l->err, LG_E_INPUT, "%s needs a value: %s %s", shown, shown, f.opt->arg);
        return store_flag(l, &f, full, argv[++*i]);
    }
    return LG_OK;
}

static lg_status check_words(loading *l)
{
    const lg_command *cmd = l->cmd;
    int n = l->out->n_arg;

    if (n < cmd->min_args)
        return LG_FAIL(l->err, LG_E_INPUT, "%s needs %s; see 'lagoon %s --help'", cmd->name,
                       cmd->args_help ? cmd->args_help : "more words", cmd->name);
    if (cmd->max_args >= 0 && n > cmd->max_args)
        return LG_FAIL(l->err, LG_E_INPUT, "unexpected word '%s' after %s; see 'lagoon %s --help'",
                       l->out->arg[cmd->max_args], cmd->name, cmd->name);
    return LG_OK;
}

static lg_status read_words(loading *l, int argc, char **argv)
{
    bool only_words = false;

    l->out->arg = LG_NEW_N(&l->s->arena, const char *, (size_t)argc + 1);
    if (!l->out->arg)
        return no_memory(l->err);
    for (int i = 1; i < argc; i++) {
        const char *w = argv[i];
        if (only_words || w[0] != '-' || w[1] == 0)
            l->out->arg[l->out->n_arg++] = w;
        else if (strcmp(w, "--") == 0)
            only_words = true;
        else
            LG_TRY(w[1] == '-' ? long_flag(l, argc, argv, &i) : short_flags(l, argc, argv, &i));
        if (l->out->help || l->out->version)
            return LG_OK;
    }
    return check_words(l);
}

// --- the other sources ---

static lg_status apply_defaults(loading *l)
{
    for (int i = 0; i < LG_N_SETTINGS; i++) {
        lg_given g = {.text = lg_setting_rows[i].opt.def, .source = LG_FROM_DEFAULT};
        LG_TRY(lg_setting_store(l->s, (lg_setting_id)i, &g, l->err));
    }
    for (const lg_option *o = l->cmd->options; o && o->name; o++) {
        lg_given g = {.text = o->def, .source = LG_FROM_DEFAULT};
        if (o->def)
            LG_TRY(lg_value_store(o, &g, l->own, &l->s->arena, l->err));
    }
    return LG_OK;
}

static void variable_name(lg_setting_id id, char *out, size_t n)
{
    (void)snprintf(out, n, "LAGOON_%s", lg_setting_rows[id].opt.name);
    for (char *p = out; *p; p++)
        if (*p >= 'a' && *p <= 'z')
            *p = (char)(*p - 'a' + 'A');
}

static lg_status apply_environment(loading *l)
{
    char name[64];

    for (const lg_setting_id *i = l->cmd->settings; i && *i != LG_SET_END; i++) {
        variable_name(*i, name, sizeof name);
        const char *v = getenv(name);
        if (!v || !v[0])
            continue;
        lg_given g = {.text = lg_arena_dup(&l->s->arena, v, strlen(v)), .source = LG_FROM_ENV};
        if (!g.text)
            return no_memory(l->err);
        lg_status st = lg_setting_store(l->s, *i, &g, l->err);
        if (st != LG_OK) {
            (void)lg_err_subject(l->err, "%s", name);
            return st;
        }
    }
    return LG_OK;
}

// --- warnings ---

static lg_status warn(loading *l, const char *text)
{
    lg_words *w = l->out;

    if (!text)
        return no_memory(l->err);
    if ((w->n_warning & (w->n_warning - 1)) == 0) { // full at every power of two
        size_t n = (size_t)w->n_warning;
        const char **grown = LG_NEW_N(&l->s->arena, const char *, n ? n * 2 : 1);
        if (!grown)
            return no_memory(l->err);
        if (n)
            memcpy(grown, w->warning, n * sizeof *grown);
        w->warning = grown;
    }
    w->warning[w->n_warning++] = text;
    return LG_OK;
}

// A flag that contradicts what the file says; `file` is how things stood before the environment and the
// flags.
static lg_status warn_contradictions(loading *l, const lg_settings *file)
{
    lg_arena *a = &l->s->arena;

    if (!file->conf_read || !file->conf_path)
        return LG_OK;
    for (int i = 0; i < LG_N_SETTINGS; i++) {
        const lg_option *opt = &lg_setting_rows[i].opt;
        if (!l->flag[i] || file->from[i].source != LG_FROM_FILE || lg_value_same(opt, l->s, file))
            continue;
        const char *path = lg_settings_tilde(a, file->conf_path);
        size_t n = strlen(l->flag[i]) + strlen(opt->name) + strlen(file->from[i].text) + strlen(path) + 48;
        char *text = lg_arena_alloc(a, n);
        if (text && opt->type == LG_TYPE_list) // without its values, which may be keys
            (void)snprintf(text, n, "%.*s overrides %s of %s:%d", (int)strcspn(l->flag[i], " "), l->flag[i],
                           opt->name, path, file->from[i].line);
        else if (text)
            (void)snprintf(text, n, "%s overrides %s = %s of %s:%d", l->flag[i], opt->name,
                           file->from[i].text, path, file->from[i].line);
        LG_TRY(warn(l, text));
    }
    return LG_OK;
}

static lg_status warn_open_keys(loading *l)
{
    struct stat sb;
    lg_arena *a = &l->s->arena;

    // only the file was read so far
    if (!l->s->conf_path || l->s->api_key.n == 0 || stat(l->s->conf_path, &sb) != 0 ||
        !(sb.st_mode & (S_IRGRP | S_IROTH)))
        return LG_OK;
    const char *path = lg_settings_tilde(a, l->s->conf_path);
    return warn(
        l,
        joined(a, path, " holds an API key and others can read it; run chmod 600, or use api_key_file", ""));
}

static lg_status warn_unknown_variables(loading *l)
{
    char names[LG_N_SETTINGS][64];
    const char *known[LG_N_SETTINGS];
    lg_arena *a = &l->s->arena;

    for (int i = 0; i < LG_N_SETTINGS; i++) {
        variable_name((lg_setting_id)i, names[i], sizeof names[i]);
        known[i] = names[i];
    }
    for (char **e = environ; e && *e; e++) {
        if (strncmp(*e, "LAGOON_", 7) != 0)
            continue;
        const char *name = lg_arena_dup(a, *e, strcspn(*e, "="));
        bool is_known = false;
        for (int i = 0; name && i < LG_N_SETTINGS; i++)
            is_known = is_known || strcmp(name, known[i]) == 0;
        if (!name || is_known)
            continue;
        const char *near = lg_nearest(name, known, LG_N_SETTINGS);
        const char *end = near ? joined(a, "; did you mean ", near, "?") : "";
        LG_TRY(warn(l, end ? joined(a, name, " is set but is no setting", end) : NULL));
    }
    return LG_OK;
}

// Everything weaker than the command line; *file is how things stand after lagoon.conf.
static lg_status apply_weaker(loading *l, lg_settings *file)
{
    lg_settings *s = l->s;

    if (s->conf_path)
        LG_TRY(lg_settings_read_file(s, l->err));
    LG_TRY(warn_open_keys(l));
    *file = *s;
    LG_TRY(apply_environment(l));
    return warn_unknown_variables(l);
}

lg_status lg_settings_load(lg_settings *s, const lg_command *cmd, int argc, char **argv, void *own,
                           lg_words *out, lg_err *err)
{
    lg_err weaker_err = {0};
    loading l = {.s = s, .cmd = cmd, .own = own, .out = out, .err = err};
    lg_settings file;

    *s = (lg_settings){0};
    *out = (lg_words){0};
    lg_arena_init(&s->arena, ARENA_LIMIT);
    if (!lg_settings_conf_path(&s->arena, &s->conf_path))
        return no_memory(err);
    LG_TRY(apply_defaults(&l));
    l.err = &weaker_err;
    lg_status weaker = apply_weaker(&l, &file);
    l.err = err;
    LG_TRY(read_words(&l, argc, argv));
    if (out->help || out->version) // these must work beside a broken file
        return LG_OK;
    if (weaker != LG_OK) {
        if (err)
            *err = weaker_err;
        return weaker;
    }
    return warn_contradictions(&l, &file);
}

void lg_settings_free(lg_settings *s)
{
    lg_arena_free(&s->arena);
}
