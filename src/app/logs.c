/*
 * app/logs: see logs.h. A record comes as the text line that base/log made; JSON is made from it, since
 * values are written as key=value, those from outside as lg_log_value has them. Words of prose become one
 * note.
 */
#include "app/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"

enum { OLD_FILES = 4, LINE_BYTES = 8192 };

typedef struct sink {
    int fd;
    bool file, json;
    atomic_bool reopen; /* asked for by a signal */
    char path[4096];
    size_t size, max;
} sink;

static sink the_sink = {.fd = -1}; /* the log's sink is process-wide, as base/log is */

// --- JSON ---

static lg_str next_word(lg_str *rest)
{
    lg_str w;
    size_t i = 0;
    bool quoted = false;

    while (rest->n > 0 && rest->p[0] == ' ') {
        rest->p++;
        rest->n--;
    }
    while (i < rest->n && (quoted || rest->p[i] != ' ')) {
        if (rest->p[i] == '"')
            quoted = !quoted;
        else if (quoted && rest->p[i] == '\\' && i + 1 < rest->n)
            i++;
        i++;
    }
    w = (lg_str){rest->p, i};
    rest->p += i;
    rest->n -= i;
    return w;
}

// What lg_log_value put into quotes.
static void add_unquoted(lg_str v, lg_buf *out)
{
    lg_buf b;

    lg_buf_init(&b, LINE_BYTES);
    for (size_t i = 0; i < v.n; i++) {
        i += v.p[i] == '\\' && i + 1 < v.n;
        (void)lg_buf_addc(&b, v.p[i]);
    }
    (void)lg_json_quote(lg_buf_str(&b), out);
    lg_buf_free(&b);
}

static void add_value(lg_str v, lg_buf *out)
{
    double number;

    if (v.n >= 2 && v.p[0] == '"' && v.p[v.n - 1] == '"')
        add_unquoted((lg_str){v.p + 1, v.n - 2}, out);
    else if (lg_str_f64(v, &number))
        (void)lg_json_number(v, out);
    else
        (void)lg_json_quote(v, out);
}

// Bytes of the key of a key=value; 0: a word of prose.
static size_t key_of(lg_str w)
{
    size_t n = 0;

    while (n < w.n && ((w.p[n] >= 'a' && w.p[n] <= 'z') || (w.p[n] >= '0' && w.p[n] <= '9') || w.p[n] == '_'))
        n++;
    return n < w.n && w.p[n] == '=' ? n : 0;
}

void lg_logs_json(lg_str line, const char *ts, lg_buf *out)
{
    static const char *const first[] = {"level", "mod", "event"};
    lg_buf note;

    lg_buf_init(&note, LINE_BYTES);
    (void)next_word(&line); // the time of day
    (void)lg_buf_addf(out, "{\"ts\":\"%s\"", ts);
    for (int i = 0; i < 3; i++) {
        (void)lg_buf_addf(out, ",\"%s\":", first[i]);
        (void)lg_json_quote(next_word(&line), out);
    }
    while (line.n > 0) {
        lg_str w = next_word(&line);
        size_t key = key_of(w);

        if (w.n == 0)
            break;
        if (key == 0) {
            if (note.n > 0)
                (void)lg_buf_addc(&note, ' ');
            (void)lg_buf_adds(&note, w);
            continue;
        }
        (void)lg_buf_addc(out, ',');
        (void)lg_json_quote((lg_str){w.p, key}, out);
        (void)lg_buf_addc(out, ':');
        add_value((lg_str){w.p + key + 1, w.n - key - 1}, out);
    }
    if (note.n > 0) {
        (void)lg_buf_addz(out, ",\"note\":");
        (void)lg_json_quote(lg_buf_str(&note), out);
    }
    lg_buf_free(&note);
    (void)lg_buf_addc(out, '}');
}

// --- the file ---

static void open_file(sink *s)
{
    struct stat sb;

    s->fd = open(s->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    s->size = s->fd >= 0 && fstat(s->fd, &sb) == 0 ? (size_t)sb.st_size : 0;
}

// file -> file.1 -> ... -> file.4, the oldest is dropped.
static void rotate(sink *s)
{
    char from[4200], to[4200];

    (void)close(s->fd);
    for (int i = OLD_FILES - 1; i >= 0; i--) {
        (void)snprintf(to, sizeof to, "%s.%d", s->path, i + 1);
        if (i > 0)
            (void)snprintf(from, sizeof from, "%s.%d", s->path, i);
        else
            (void)snprintf(from, sizeof from, "%s", s->path);
        (void)rename(from, to);
    }
    open_file(s);
}

void lg_logs_reopen(void)
{
    atomic_store(&the_sink.reopen, true);
}

static void utc(char out[40])
{
    struct timespec now;
    struct tm tm;
    size_t n;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &tm);
    n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + n, 40 - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

static void on_record(void *ctx, lg_log_level level, const char *line)
{
    sink *s = ctx;
    char ts[40];
    lg_buf b;

    (void)level;
    lg_buf_init(&b, LINE_BYTES);
    if (s->json) {
        utc(ts);
        lg_logs_json(lg_str_of(line), ts, &b);
    } else {
        (void)lg_buf_addz(&b, line);
    }
    (void)lg_buf_addc(&b, '\n');
    if (s->file && atomic_exchange(&s->reopen, false)) {
        (void)close(s->fd);
        open_file(s);
    }
    if (s->file && s->fd >= 0 && s->size > 0 && s->size + b.n > s->max)
        rotate(s);
    s->size += lg_log_write(s->fd >= 0 ? s->fd : STDERR_FILENO, b.p, b.n);
    lg_buf_free(&b);
}

lg_status lg_logs_open(const lg_settings *set, lg_err *err)
{
    sink *s = &the_sink;
    size_t n = strlen(set->log_file);
    bool jsonl = n > 6 && strcmp(set->log_file + n - 6, ".jsonl") == 0;

    s->json = strcmp(set->log_format, "json") == 0 || (strcmp(set->log_format, "auto") == 0 && jsonl);
    s->file = n > 0;
    s->fd = STDERR_FILENO;
    s->max = set->log_max;
    if (s->file) {
        (void)snprintf(s->path, sizeof s->path, "%s", set->log_file);
        open_file(s);
        if (s->fd < 0) {
            (void)lg_err_subject(err, "%s", set->log_file);
            return LG_FAIL(err, LG_E_IO, "cannot open the log: %s", strerror(errno));
        }
    }
    if (s->file || s->json)
        lg_log_set_sink(on_record, s);
    return LG_OK;
}

void lg_logs_close(void)
{
    lg_log_set_sink(NULL, NULL);
    if (the_sink.file && the_sink.fd >= 0)
        (void)close(the_sink.fd);
    the_sink.fd = -1;
}
