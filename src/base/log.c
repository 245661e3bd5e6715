/*
 * base/log: see log.h. Level and sink are the process's only mutable globals. A record is formatted on the
 * caller's stack and handed over under a lock, so records of different threads never mix and a sink needs no
 * lock of its own.
 *
 * Surprise: because of that lock a sink must not log, and one that waits makes all threads wait. So nobody
 * waits long for whoever reads the log: a terminal that was stopped with Ctrl-S must not stop a server.
 */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_MAX_BYTES = 1024,
    PATIENCE_MS = 200, // with a pipe or a terminal that takes nothing, before records are left out
};

static atomic_int g_level = LG_LOG_WARN;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static lg_log_sink g_sink;
static void *g_sink_ctx;
static size_t g_lost; // records since the last that was written
static bool g_stuck;

void lg_log_set_level(lg_log_level level)
{
    atomic_store_explicit(&g_level, (int)level, memory_order_relaxed);
}

void lg_log_set_sink(lg_log_sink sink, void *ctx)
{
    (void)pthread_mutex_lock(&g_lock);
    g_sink = sink;
    g_sink_ctx = ctx;
    (void)pthread_mutex_unlock(&g_lock);
}

bool lg_log_on(lg_log_level level)
{
    return (int)level <= atomic_load_explicit(&g_level, memory_order_relaxed);
}

// Puts '?' in place of control characters (C0, DEL and the two-byte C1 ones, which some terminals obey) and
// of bytes that are not UTF-8, and cuts a character that vsnprintf left in half.
static size_t clean(char *s, size_t n)
{
    n = lg_utf8_complete(s, n);
    for (size_t i = 0; i < n;) {
        int32_t cp;
        int len = lg_utf8_step(s + i, n - i, &cp);
        if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0))
            memset(s + i, '?', (size_t)len);
        i += (size_t)len;
    }
    return n;
}

static bool is_plain(lg_str s)
{
    double number;

    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || s.p[i] == '"' || s.p[i] == '\\')
            return false;
    return s.n > 0 && !lg_str_f64(s, &number);
}

const char *lg_log_value(lg_str text, char *out, size_t n)
{
    bool quoted = !is_plain(text);
    size_t w = quoted, i = 0;

    LG_ASSERT(n > 4);
    out[0] = '"';
    for (; i < text.n; i++) {
        bool mark = text.p[i] == '"' || text.p[i] == '\\';

        if (w + mark + quoted + 2 > n)
            break;
        if (mark)
            out[w++] = '\\';
        out[w++] = (unsigned char)text.p[i] < ' ' ? '?' : text.p[i]; // a NUL would end it
    }
    if (i < text.n)
        w = quoted + lg_utf8_complete(out + quoted, w - quoted);
    if (quoted)
        out[w++] = '"';
    out[w] = 0;
    return out;
}

static size_t prefix(char *out, size_t size, lg_log_level level, const char *area, const char *event)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    struct timespec now;
    struct tm tm;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)localtime_r(&now.tv_sec, &tm);
    int n = snprintf(out, size, "%02d:%02d:%02d.%03d %s %s %s", tm.tm_hour, tm.tm_min, tm.tm_sec,
                     (int)(now.tv_nsec / 1000000), names[level], area, event);
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

size_t lg_log_write(int fd, const char *text, size_t n)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    ssize_t written;
    int ready;

    do // a pipe that is ready takes a page at once
        ready = poll(&p, 1, g_stuck ? 0 : PATIENCE_MS);
    while (ready < 0 && errno == EINTR);
    g_stuck = ready == 0;
    if (g_stuck) {
        g_lost++;
        return 0;
    }
    written = write(fd, text, n); // a log that cannot be written has nowhere to say so
    return written > 0 ? (size_t)written : 0;
}

// `line` has room for a newline. Under the lock.
static void hand_over(lg_log_level level, char *line, size_t n)
{
    if (g_sink) {
        line[n] = 0;
        g_sink(g_sink_ctx, level, line);
    } else {
        line[n] = '\n';
        (void)lg_log_write(STDERR_FILENO, line, n + 1);
    }
}

static void tell_lost(void)
{
    char line[128];
    size_t lost = g_lost, n = prefix(line, sizeof line - 1, LG_LOG_WARN, "log", "lost");

    (void)snprintf(line + n, sizeof line - 1 - n, " records=%zu", lost);
    g_lost = 0;
    hand_over(LG_LOG_WARN, line, strlen(line));
    g_lost = g_stuck ? lost : 0;
}

void lg_log(lg_log_level level, const char *area, const char *event, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES + 1]; // one more for the newline of the default sink
    va_list ap;

    if (level < LG_LOG_ERROR || !lg_log_on(level))
        return;
    size_t n = prefix(line, LINE_MAX_BYTES, level, area, event);
    if (fmt[0] && n + 1 < LINE_MAX_BYTES) {
        line[n++] = ' ';
        va_start(ap, fmt);
        int more = vsnprintf(line + n, LINE_MAX_BYTES - n, fmt, ap);
        va_end(ap);
        if (more > 0)
            n = (size_t)more < LINE_MAX_BYTES - n ? n + (size_t)more : LINE_MAX_BYTES - 1;
    }
    n = clean(line, n);

    (void)pthread_mutex_lock(&g_lock);
    if (g_lost > 0)
        tell_lost();
    hand_over(level, line, n);
    (void)pthread_mutex_unlock(&g_lock);
}
