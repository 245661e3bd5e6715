/*
 * base/settings_text: what people read of the settings: --help, the annotated lagoon.conf, listings.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/settings_rows.h"

enum { HELP_WIDTH = 100, HELP_COLUMN = 30, FILE_WIDTH = 100, TEMPLATE_MAX = 1 << 20 };

const char *lg_setting_name(lg_setting_id id)
{
    return lg_setting_rows[id].opt.name;
}

bool lg_setting_secret(lg_setting_id id)
{
    return id == LG_SET_api_key;
}

void lg_setting_value(const lg_settings *s, lg_setting_id id, lg_buf *out)
{
    const lg_option *opt = &lg_setting_rows[id].opt;

    if (opt->type != LG_TYPE_list) {
        (void)lg_buf_addz(out, s->from[id].text);
        return;
    }
    const lg_list *list = (const void *)((const char *)s + opt->offset);
    for (size_t i = 0; i < list->n; i++)
        if ((i > 0 && !lg_buf_addz(out, ", ")) || !lg_buf_addz(out, list->v[i]))
            return;
}

void lg_setting_origin(const lg_settings *s, lg_setting_id id, lg_buf *out)
{
    switch (s->from[id].source) {
    case LG_FROM_DEFAULT: (void)lg_buf_addz(out, "default"); break;
    case LG_FROM_FILE: (void)lg_buf_addf(out, "lagoon.conf:%d", s->from[id].line); break;
    case LG_FROM_FLAG: (void)lg_buf_addz(out, "flag"); break;
    case LG_FROM_ENV:
        (void)lg_buf_addz(out, "LAGOON_");
        for (const char *p = lg_setting_rows[id].opt.name; *p; p++)
            (void)lg_buf_addc(out, *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p);
        break;
    }
}

// Appends text in lines of at most `width`, broken at blanks; `column` is where the first line stands
// already, and later ones begin with `head`.
static void wrapped(lg_buf *out, const char *text, size_t column, size_t width, const char *head)
{
    bool first = true;

    while (*text) {
        size_t n = strcspn(text, " ");
        if (!first && column + 1 + n > width) {
            (void)lg_buf_addf(out, "\n%s", head);
            column = strlen(head);
            first = true;
        }
        if (!first) {
            (void)lg_buf_addc(out, ' ');
            column++;
        }
        (void)lg_buf_add(out, text, n);
        column += n;
        first = false;
        text += n + strspn(text + n, " ");
    }
}

// --- --help ---

// "  -c, --ctx N" with dashes for underscores; a bool shows its two forms.
static void flag_column(const lg_option *opt, const char *alias, lg_buf *out)
{
    size_t start = out->n;

    if (opt->letter)
        (void)lg_buf_addf(out, "  -%c, ", opt->letter);
    else
        (void)lg_buf_addz(out, "      ");
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? opt->name : alias;
        if (!name)
            continue;
        (void)lg_buf_addf(out, "%s--%s%s", i ? ", " : "",
                          opt->type == LG_TYPE_bool && opt->def ? "[no-]" : "", name);
    }
    for (size_t i = start; i < out->n; i++)
        if (out->p[i] == '_')
            out->p[i] = '-';
    if (opt->arg && opt->arg[0])
        (void)lg_buf_addf(out, " %s", opt->arg);
}

static void help_line(const lg_option *opt, const char *alias, lg_buf *out)
{
    char head[HELP_COLUMN + 1];
    lg_buf text;
    size_t start = out->n;
    const char *def = opt->def && opt->def[0] ? opt->def : NULL;
    const char *limits = opt->limits ? opt->limits : "";
    bool chosen = strchr(limits, '|') != NULL;

    memset(head, ' ', HELP_COLUMN);
    head[HELP_COLUMN] = 0;
    flag_column(opt, alias, out);
    size_t column = out->n - start;
    if (column + 2 > HELP_COLUMN) {
        (void)lg_buf_addf(out, "\n%s", head);
    } else {
        (void)lg_buf_addf(out, "%.*s", (int)(HELP_COLUMN - column), head);
    }

    lg_buf_init(&text, 4096);
    (void)lg_buf_addz(&text, opt->help);
    if (chosen || def)
        (void)lg_buf_addz(&text, " (");
    if (chosen)
        lg_choices(limits, &text);
    if (chosen && def)
        (void)lg_buf_addz(&text, "; ");
    if (def)
        (void)lg_buf_addf(&text, "default %s", def);
    if (chosen || def)
        (void)lg_buf_addc(&text, ')');
    const char *z = lg_buf_z(&text);
    if (z)
        wrapped(out, z, HELP_COLUMN, HELP_WIDTH, head);
    else
        out->failed = true;
    lg_buf_free(&text);
    (void)lg_buf_addc(out, '\n');
}

static void help_group(const lg_command *cmd, lg_setting_group group, lg_buf *out)
{
    bool titled = false;

    for (const lg_setting_id *i = cmd->settings; i && *i != LG_SET_END; i++) {
        const lg_setting_row *row = &lg_setting_rows[*i];
        if (row->group != group)
            continue;
        if (!titled)
            (void)lg_buf_addf(out, "\n%s:\n", lg_setting_titles[group]);
        titled = true;
        help_line(&row->opt, row->alias, out);
        for (size_t k = 0; k < lg_n_shorthands; k++)
            if (lg_shorthands[k].id == *i)
                help_line(&(lg_option){.name = lg_shorthands[k].flag, .help = lg_shorthands[k].help}, NULL,
                          out);
    }
}

void lg_settings_help(const lg_command *cmd, lg_buf *out)
{
    (void)lg_buf_addf(out, "usage: lagoon %s\n\n%s\n\nOptions:\n", cmd->usage, cmd->summary);
    for (const lg_option *o = cmd->options; o && o->name; o++)
        help_line(o, NULL, out);
    help_line(&(lg_option){.name = "help", .letter = 'h', .help = "print this and end"}, NULL, out);
    for (int g = 0; g < LG_N_GROUPS; g++)
        help_group(cmd, (lg_setting_group)g, out);
    if (cmd->settings)
        (void)lg_buf_addz(
            out, "\nA setting --some-name can also be the variable LAGOON_SOME_NAME or the line\n"
                 "'some_name = value' of lagoon.conf; 'lagoon --init' writes that file with all of them.\n");
    if (cmd->notes)
        (void)lg_buf_addf(out, "\n%s\n", cmd->notes);
}

// --- the annotated file ---

// What a value may look like: "A whole number from 0 to 65535."
static void describe_values(const lg_option *opt, lg_buf *out)
{
    const char *limits = opt->limits;
    const char *dots = strstr(limits, "..");
    int lo_n = dots ? (int)(dots - limits) : 0;

    switch (opt->type) {
    case LG_TYPE_bool: (void)lg_buf_addz(out, " yes or no."); break;
    case LG_TYPE_int:
        (void)lg_buf_addf(out, " A whole number from %.*s to %s.", lo_n, limits, dots + 2);
        break;
    case LG_TYPE_num: (void)lg_buf_addf(out, " A number from %.*s to %s.", lo_n, limits, dots + 2); break;
    case LG_TYPE_secs:
        (void)lg_buf_addf(out, " A duration (90s, 5min, 2h; seconds when bare) from %.*s to %s s.", lo_n,
                          limits, dots + 2);
        break;
    case LG_TYPE_size:
        (void)lg_buf_addf(out, " A size (24GB, 24GiB; %s when bare)%s.",
                          strstr(limits, "MiB") ? "MiB" : "bytes", strstr(limits, "auto") ? " or auto" : "");
        break;
    case LG_TYPE_str:
    case LG_TYPE_list:
        if (!limits[0])
            break;
        (void)lg_buf_addz(out, " One of ");
        lg_choices(limits, out);
        (void)lg_buf_addc(out, '.');
        break;
    }
    if (opt->type == LG_TYPE_list)
        (void)lg_buf_addz(out, " The line may be repeated.");
}

static void template_entry(const lg_setting_row *row, lg_buf *out)
{
    lg_buf text;

    lg_buf_init(&text, 4096);
    (void)lg_buf_addf(&text, "%s: %s.", row->opt.name, row->opt.help);
    describe_values(&row->opt, &text);
    if (row->opt.def[0])
        (void)lg_buf_addf(&text, " Default %s.", row->opt.def);
    if (row->why[0])
        (void)lg_buf_addf(&text, " %s", row->why);
    const char *z = lg_buf_z(&text);
    (void)lg_buf_addz(out, "\n# ");
    if (z)
        wrapped(out, z, 2, FILE_WIDTH, "# ");
    else
        out->failed = true;
    lg_buf_free(&text);
    (void)lg_buf_addf(out, "\n#%s =%s%s\n", row->opt.name, row->opt.def[0] ? " " : "", row->opt.def);
}

static bool wanted(const lg_setting_id *ids, lg_setting_id id)
{
    bool found = ids == NULL;

    for (; ids && *ids != LG_SET_END; ids++)
        found = found || *ids == id;
    return found;
}

void lg_settings_template(const lg_setting_id *ids, lg_buf *out)
{
    int group = -1;

    (void)lg_buf_addz(
        out,
        "# lagoon.conf: settings of lagoon, one 'key = value' a line. Take the # off a line to change its\n"
        "# value. A flag (--kv-type) beats a variable (LAGOON_KV_TYPE), which beats this file, which beats\n"
        "# the default.\n"
        "#\n"
        "# Lines that begin with # are comments. A line may have 199 bytes. What follows a space and ; is a\n"
        "# comment too, so no value can hold that. [client NAME] at the end of the file, followed by\n"
        "# api_key = KEY, gives a key's owner a name. yes, true, on and 1 mean the same, and so do no,\n"
        "# false, off and 0.\n");
    for (int i = 0; i < LG_N_SETTINGS; i++) {
        const lg_setting_row *row = &lg_setting_rows[i];
        if (!wanted(ids, (lg_setting_id)i))
            continue;
        if ((int)row->group != group)
            (void)lg_buf_addf(out, "\n# --- %s ---\n", lg_setting_titles[row->group]);
        group = (int)row->group;
        template_entry(row, out);
    }
}

// Creates the folders above `path`, mode 0755 less umask.
static lg_status make_folders(char *path, lg_err *err)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        bool ok = mkdir(path, 0777) == 0 || errno == EEXIST;
        int why = errno;
        *p = '/';
        if (!ok)
            return LG_FAIL(err, LG_E_IO, "cannot create its folder: %s", strerror(why));
    }
    return LG_OK;
}

static lg_status write_new(const char *path, const lg_buf *text, lg_err *err)
{
    lg_status st = LG_OK;
    size_t done = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); // it is where keys will go

    if (fd < 0 && errno == EEXIST)
        return LG_FAIL(err, LG_E_INPUT,
                       "exists and is left as it is; 'lagoon --init --stdout' prints a fresh one");
    if (fd < 0)
        return LG_FAIL(err, LG_E_IO, "cannot create: %s", strerror(errno));
    while (done < text->n && st == LG_OK) {
        ssize_t n = write(fd, text->p + done, text->n - done);
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            st = LG_FAIL(err, LG_E_IO, "cannot write: %s", strerror(errno));
    }
    if (close(fd) != 0 && st == LG_OK)
        st = LG_FAIL(err, LG_E_IO, "cannot write: %s", strerror(errno));
    if (st != LG_OK)
        (void)unlink(path);
    return st;
}

lg_status lg_settings_init(const lg_setting_id *ids, char *path, size_t n, lg_err *err)
{
    lg_status st = LG_OK;
    lg_arena arena;
    lg_buf text;

    lg_arena_init(&arena, 1 << 16);
    lg_buf_init(&text, TEMPLATE_MAX);
    const char *where = NULL;
    if (!lg_settings_conf_path(&arena, &where)) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
        goto out;
    }
    if (!where) {
        st = LG_FAIL(err, LG_E_INPUT, "no home directory; set HOME or XDG_CONFIG_HOME");
        goto out;
    }
    if ((size_t)snprintf(path, n, "%s", where) >= n) {
        st = LG_FAIL(err, LG_E_LIMIT, "the name of the file is too long");
        goto out;
    }
    lg_settings_template(ids, &text);
    if (text.failed) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
        goto out;
    }
    st = make_folders(path, err);
    if (st == LG_OK)
        st = write_new(path, &text, err);
out:
    if (st != LG_OK && where)
        (void)lg_err_subject(err, "%s", lg_settings_tilde(&arena, where));
    lg_buf_free(&text);
    lg_arena_free(&arena);
    return st;
}
