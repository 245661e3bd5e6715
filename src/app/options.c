/*
 * app/options: see options.h.
 *
 * Runs on the main thread before anything else exists; it allocates nothing, so there is nothing to free when a word
 * is wrong.
 */
#include "app/options.h"

#include <string.h>

/* Edit distance with neighbouring transpositions, for words of at most WORD_MAX bytes. */
enum { WORD_MAX = 40 };

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

static int distance(const char *a, const char *b)
{
    int d[3][WORD_MAX + 1];
    int na = (int)strlen(a), nb = (int)strlen(b);

    for (int j = 0; j <= nb; j++)
        d[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *row = d[i % 3], *up = d[(i - 1) % 3], *up2 = d[(i + 1) % 3];

        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            row[j] = min3(up[j] + 1, row[j - 1] + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < row[j])
                row[j] = up2[j - 2] + 1;
        }
    }
    return d[na % 3][nb];
}

const char *lg_nearest(const char *word, const char *const *names, int n)
{
    const char *best = NULL;
    size_t len = strlen(word);
    int best_d = 0;

    if (len == 0 || len > WORD_MAX)
        return NULL;
    for (int i = 0; i < n; i++) {
        int d;

        if (strlen(names[i]) > WORD_MAX)
            continue;
        d = distance(word, names[i]);
        // a third of the letters may differ; and something must be left of the word
        if (d <= (int)(len + 2) / 3 && d < (int)len && (!best || d < best_d)) {
            best = names[i];
            best_d = d;
        }
    }
    return best;
}

static void *place(const lg_option *o, void *base)
{
    return (char *)base + o->at;
}

static bool is_switch(const lg_option *o)
{
    return o->kind == LG_OPT_BOOL || o->kind == LG_OPT_SWITCH;
}

static bool in_choices(const char *choices, const char *value)
{
    size_t n = strlen(value);

    for (const char *p = choices; *p;) {
        size_t w = strcspn(p, "|");

        if (w == n && memcmp(p, value, n) == 0)
            return true;
        p += w;
        if (*p == '|')
            p++;
    }
    return false;
}

static lg_status store_number(const lg_option *o, void *base, const char *how, const char *value, lg_err *err)
{
    bool bounded = o->min != 0 || o->max != 0;
    int64_t i = 0;
    double r = 0;
    bool ok = o->kind == LG_OPT_INT ? lg_str_i64(lg_str_of(value), &i) : lg_str_f64(lg_str_of(value), &r);

    if (o->kind == LG_OPT_INT)
        r = (double)i;
    if (!ok)
        return LG_FAIL(err, LG_E_INPUT, "%s wants %s, not '%s'", how,
                       o->kind == LG_OPT_INT ? "an integer" : "a number", value);
    // written so that NaN fails
    if (!(r - r == 0) || (bounded && !(r >= o->min && r <= o->max)))
        return LG_FAIL(err, LG_E_INPUT, "%s must be from %g to %g, not %s", how, o->min, o->max, value);
    if (o->kind == LG_OPT_INT)
        *(int64_t *)place(o, base) = i;
    else
        *(double *)place(o, base) = r;
    return LG_OK;
}

lg_status lg_opt_store(const lg_option *o, void *base, const char *how, const char *value, lg_err *err)
{
    lg_opt_list *list;

    switch (o->kind) {
    case LG_OPT_BOOL:
    case LG_OPT_SWITCH:
        *(bool *)place(o, base) = true;
        return LG_OK;
    case LG_OPT_TEXT:
        if (o->choices && !in_choices(o->choices, value))
            return LG_FAIL(err, LG_E_INPUT, "%s must be one of %s, not '%s'", how, o->choices, value);
        *(const char **)place(o, base) = value;
        return LG_OK;
    case LG_OPT_INT:
    case LG_OPT_REAL:
        return store_number(o, base, how, value, err);
    case LG_OPT_LIST:
        list = place(o, base);
        if (list->n == LG_OPT_LIST_MAX)
            return LG_FAIL(err, LG_E_INPUT, "%s may be given at most %d times", how, LG_OPT_LIST_MAX);
        list->v[list->n++] = value;
        return LG_OK;
    case LG_OPT_ABSENT:
        break;
    }
    return LG_FAIL(err, LG_E_UNSUPPORTED, "%s is not in this version yet", how);
}

void lg_opts_defaults(const lg_parse *p)
{
    for (int s = 0; s < p->n_set; s++) {
        for (const lg_option *o = p->set[s].table; o && o->name; o++) {
            if (!o->def)
                continue;
            if (is_switch(o))
                *(bool *)place(o, p->set[s].base) = strcmp(o->def, "yes") == 0;
            else
                LG_ASSERT(lg_opt_store(o, p->set[s].base, o->name, o->def, NULL) == LG_OK);
        }
    }
}

bool lg_opts_given(const lg_parse *p, const char *name)
{
    for (int i = 0; i < p->n_given; i++)
        if (strcmp(p->given[i]->name, name) == 0)
            return true;
    return false;
}

static const lg_option *find_long(const lg_parse *p, lg_str name, void **base)
{
    for (int s = 0; s < p->n_set; s++) {
        for (const lg_option *o = p->set[s].table; o && o->name; o++) {
            if (lg_str_eqz(name, o->name)) {
                *base = p->set[s].base;
                return o;
            }
        }
    }
    return NULL;
}

static const lg_option *find_letter(const lg_parse *p, char letter, void **base)
{
    for (int s = 0; s < p->n_set; s++) {
        for (const lg_option *o = p->set[s].table; o && o->name; o++) {
            if (o->letter == letter) {
                *base = p->set[s].base;
                return o;
            }
        }
    }
    return NULL;
}

static lg_status unknown_flag(const lg_parse *p, lg_str flag, lg_err *err)
{
    const char *names[LG_OPT_GIVEN_MAX * 2];
    char word[WORD_MAX + 1] = "";
    const char *near = NULL;
    int n = 0;

    for (int s = 0; s < p->n_set; s++)
        for (const lg_option *o = p->set[s].table; o && o->name && n < LG_OPT_GIVEN_MAX * 2; o++)
            names[n++] = o->name;
    if (lg_str_starts(flag, LG_STR("--")) && flag.n - 2 <= WORD_MAX) {
        memcpy(word, flag.p + 2, flag.n - 2);
        near = lg_nearest(word, names, n);
    }
    if (near)
        return LG_FAIL(err, LG_E_INPUT, "unknown flag '%.*s' of %s; did you mean '--%s'?", (int)flag.n, flag.p,
                       p->command, near);
    return LG_FAIL(err, LG_E_INPUT, "unknown flag '%.*s' of %s; 'lagoon %s --help' lists them",
                   (int)(flag.n < 80 ? flag.n : 80), flag.p, p->command, p->command);
}

static void note_given(lg_parse *p, const lg_option *o)
{
    if (!lg_opts_given(p, o->name) && p->n_given < LG_OPT_GIVEN_MAX)
        p->given[p->n_given++] = o;
}

/* One "--name", "--name=value" or "--no-name" at argv[*i]; *i moves to the last word it used. */
static lg_status parse_long(lg_parse *p, int argc, char **argv, int *i, lg_err *err)
{
    const char *word = argv[*i];
    const char *eq = strchr(word, '=');
    lg_str flag = {word, eq ? (size_t)(eq - word) : strlen(word)};
    lg_str name = {word + 2, flag.n - 2};
    void *base = NULL;
    const lg_option *o = find_long(p, name, &base);
    bool off = false;
    char how[WORD_MAX + 4];
    const char *value = eq ? eq + 1 : NULL;

    if (!o && lg_str_starts(name, LG_STR("no-"))) {
        o = find_long(p, (lg_str){name.p + 3, name.n - 3}, &base);
        off = o && o->kind == LG_OPT_BOOL;
        if (!off)
            o = NULL;
    }
    if (!o)
        return unknown_flag(p, flag, err);
    (void)snprintf(how, sizeof how, "--%s%s", off ? "no-" : "", o->name);
    note_given(p, o);
    if (o->kind == LG_OPT_ABSENT)
        return lg_opt_store(o, base, how, NULL, err);
    if (is_switch(o)) {
        if (value)
            return LG_FAIL(err, LG_E_INPUT, "%s takes no value", how);
        *(bool *)place(o, base) = !off;
        return LG_OK;
    }
    if (!value) {
        if (*i + 1 >= argc)
            return LG_FAIL(err, LG_E_INPUT, "%s wants a value (%s)", how, o->arg ? o->arg : "VALUE");
        value = argv[++*i];
    }
    return lg_opt_store(o, base, how, value, err);
}

/* One "-n 5" or "-n5" at argv[*i]. */
static lg_status parse_short(lg_parse *p, int argc, char **argv, int *i, lg_err *err)
{
    const char *word = argv[*i];
    void *base = NULL;
    const lg_option *o = find_letter(p, word[1], &base);
    char how[] = {'-', word[1], '\0'};
    const char *value = word[2] ? word + 2 : NULL;

    if (!o)
        return unknown_flag(p, lg_str_of(word), err);
    note_given(p, o);
    if (o->kind == LG_OPT_ABSENT)
        return lg_opt_store(o, base, how, NULL, err);
    if (is_switch(o)) {
        if (value)
            return LG_FAIL(err, LG_E_INPUT, "%s takes no value, yet '%s' follows it", how, value);
        *(bool *)place(o, base) = true;
        return LG_OK;
    }
    if (!value) {
        if (*i + 1 >= argc)
            return LG_FAIL(err, LG_E_INPUT, "%s wants a value (%s)", how, o->arg ? o->arg : "VALUE");
        value = argv[++*i];
    }
    return lg_opt_store(o, base, how, value, err);
}

lg_status lg_opts_parse(lg_parse *p, int argc, char **argv, int *n_args, lg_err *err)
{
    bool flags = true;
    int n = 0;

    for (int i = 0; i < argc; i++) {
        char *word = argv[i];

        if (!flags || word[0] != '-' || !word[1])
            argv[n++] = word;
        else if (strcmp(word, "--") == 0)
            flags = false;
        else if (word[1] == '-')
            LG_TRY(parse_long(p, argc, argv, &i, err));
        else
            LG_TRY(parse_short(p, argc, argv, &i, err));
    }
    *n_args = n;
    return LG_OK;
}

static void help_row(const lg_option *o, FILE *out)
{
    char left[64];
    char letter[5] = "    ";
    const char *arg = o->choices ? o->choices : o->arg;
    int n;

    if (o->letter)
        (void)snprintf(letter, sizeof letter, "-%c, ", o->letter);
    n = snprintf(left, sizeof left, "%s--%s%s%s%s", letter, o->kind == LG_OPT_BOOL ? "[no-]" : "", o->name,
                 arg ? " " : "", arg ? arg : "");
    // a flag too wide for its column pushes the text to the next line
    if (n > 28)
        fprintf(out, "  %s\n  %28s", left, "");
    else
        fprintf(out, "  %-28s", left);
    fprintf(out, "  %s", o->help);
    if (o->def)
        fprintf(out, " (default %s)", o->def);
    fputc('\n', out);
}

void lg_opts_help(const lg_parse *p, FILE *out)
{
    for (int s = 0; s < p->n_set; s++) {
        bool any = false;

        for (const lg_option *o = p->set[s].table; o && o->name; o++) {
            if (o->kind == LG_OPT_ABSENT)
                continue;
            if (!any)
                fprintf(out, "\n%s:\n", p->set[s].title);
            any = true;
            help_row(o, out);
        }
    }
}
