/*
 * base/settings_file: lagoon.conf through inih.
 *
 * Surprise: inih tells its handler neither the line nor that a line was too long for its buffer, so the
 * reader that feeds it lines keeps count, checks sections and lengths, and strips indentation (which inih
 * would take for the continuation of the line before).
 */
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/settings_rows.h"

enum { FILE_MAX_BYTES = 1 << 20 };

typedef struct reading {
    lg_settings *s;
    const char *name; // for errors: the file without its folder
    const char *at, *end;
    int line;
    const char *section; // NAME of the [client NAME] we are in, or NULL
    lg_status st;
    lg_err *err;
} reading;

// Keeps the first failure only; inih goes on after it.
#define FAIL_LINE(r, code, ...)                                            \
    do {                                                                   \
        if ((r)->st == LG_OK) {                                            \
            (r)->st = LG_FAIL((r)->err, code, __VA_ARGS__);                \
            (void)lg_err_subject((r)->err, "%s:%d", (r)->name, (r)->line); \
        }                                                                  \
    } while (0)

static void enter_section(reading *r, const char *line, size_t n)
{
    static const char head[] = "[client ";
    size_t head_n = sizeof head - 1;

    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t' || line[n - 1] == '\r'))
        n--;
    if (n <= head_n + 1 || memcmp(line, head, head_n) != 0 || line[n - 1] != ']') {
        FAIL_LINE(r, LG_E_INPUT, "unknown section '%.*s'; only [client NAME] is one", (int)(n < 64 ? n : 64),
                  line);
        return;
    }
    r->section = lg_arena_dup(&r->s->arena, line + head_n, n - head_n - 1);
    if (!r->section)
        FAIL_LINE(r, LG_E_LIMIT, "the file takes too much memory");
}

// fgets for inih over the text in memory.
static char *next_line(char *out, int size, void *ctx)
{
    reading *r = ctx;

    if (r->at == r->end || r->st != LG_OK)
        return NULL;
    r->line++;
    const char *nl = memchr(r->at, '\n', (size_t)(r->end - r->at));
    const char *line = r->at, *stop = nl ? nl : r->end;
    r->at = nl ? nl + 1 : r->end;
    while (line < stop && (*line == ' ' || *line == '\t'))
        line++;
    size_t n = (size_t)(stop - line);
    out[0] = 0;
    if (n > 0 && *line != '#' && *line != ';') {
        if (memchr(line, 0, n)) {
            FAIL_LINE(r, LG_E_INPUT, "holds a NUL byte; is this a text file?");
        } else if (n >= (size_t)size) {
            FAIL_LINE(r, LG_E_INPUT, "has %zu bytes; a line may have %d", n, size - 1);
        } else if (*line == '[') {
            enter_section(r, line, n); // ours alone: inih would cut long names
        } else {
            memcpy(out, line, n);
            out[n] = 0;
        }
    }
    return out;
}

static void unknown_key(reading *r, const char *name)
{
    const char *names[LG_N_SETTINGS];

    for (int i = 0; i < LG_N_SETTINGS; i++)
        names[i] = lg_setting_rows[i].opt.name;
    const char *near = lg_nearest(name, names, LG_N_SETTINGS);
    if (near)
        FAIL_LINE(r, LG_E_INPUT, "unknown setting '%s'; did you mean '%s'?", name, near);
    else
        FAIL_LINE(r, LG_E_INPUT, "unknown setting '%s'; 'lagoon --init' writes a file with all of them",
                  name);
}

static int handle(void *ctx, const char *unused, const char *name, const char *value)
{
    reading *r = ctx;
    lg_setting_id id = lg_setting_find(lg_str_of(name));

    (void)unused;
    if (r->st != LG_OK)
        return 1;
    if (id == LG_SET_END) {
        unknown_key(r, name);
        return 1;
    }
    if (r->section && id != LG_SET_api_key) {
        FAIL_LINE(r, LG_E_INPUT, "'%s' inside [client %s]; only api_key may stand there, settings come first",
                  name, r->section);
        return 1;
    }
    if (r->s->from[id].source == LG_FROM_FILE && lg_setting_rows[id].opt.type != LG_TYPE_list) {
        FAIL_LINE(r, LG_E_INPUT, "'%s' was set before, in line %d", name, r->s->from[id].line);
        return 1;
    }
    lg_given g = {.text = lg_arena_dup(&r->s->arena, value, strlen(value)), .owner = r->section,
                  .source = LG_FROM_FILE, .line = r->line};
    if (!g.text) {
        FAIL_LINE(r, LG_E_LIMIT, "the file takes too much memory");
        return 1;
    }
    r->st = lg_setting_store(r->s, id, &g, r->err);
    if (r->st != LG_OK)
        (void)lg_err_subject(r->err, "%s:%d: %s", r->name, r->line, name);
    return 1;
}

static lg_status check_utf8(reading *r, const char *text, size_t n)
{
    int line = 1;

    for (size_t i = 0; i < n;) {
        int32_t cp;
        int len = lg_utf8_step(text + i, n - i, &cp);
        if (cp < 0) {
            r->line = line;
            FAIL_LINE(r, LG_E_INPUT, "is not UTF-8");
            return r->st;
        }
        line += cp == '\n';
        i += (size_t)len;
    }
    return LG_OK;
}

lg_status lg_settings_read_file(lg_settings *s, lg_err *err)
{
    const char *slash = strrchr(s->conf_path, '/');
    reading r = {.s = s, .name = slash ? slash + 1 : s->conf_path, .err = err};
    struct stat sb;
    char *text = NULL;
    size_t n = 0;

    if (stat(s->conf_path, &sb) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return LG_OK;
    LG_TRY(lg_read_all(s->conf_path, FILE_MAX_BYTES, &text, &n, err));
    r.st = check_utf8(&r, text, n);
    if (r.st == LG_OK) {
        r.at = text;
        r.end = text + n;
        if (lg_str_starts((lg_str){text, n}, LG_STR("\xEF\xBB\xBF")))
            r.at += 3;
        int bad = ini_parse_stream(next_line, &r, handle, &r);
        if (bad != 0 && (r.st == LG_OK || bad < r.line)) {
            if (err)
                *err = (lg_err){0};
            r.st = LG_OK;
            r.line = bad;
            FAIL_LINE(&r, LG_E_INPUT, "is not of the form 'key = value'");
        }
        s->conf_read = true;
    }
    free(text);
    return r.st;
}
