/*
 * base/log: see log.h. Level and sink are the process's only mutable globals. A record is formatted on the
 * caller's stack and handed over under a lock, so records of different threads never mix and a sink needs no
 * lock of its own.
 *
 * Surprise: because of that lock a sink must not log.
 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"

enum { LINE_MAX_BYTES = 1024 };

static atomic_int g_level = LG_LOG_WARN;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static lg_log_sink g_sink;
static void *g_sink_ctx;

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
    line[n] = 0;

    (void)pthread_mutex_lock(&g_lock);
    if (g_sink) {
        g_sink(g_sink_ctx, level, line);
    } else {
        line[n] = '\n';
        // a log that cannot be written has nowhere to say so
        ssize_t written = write(STDERR_FILENO, line, n + 1);
        (void)written;
    }
    (void)pthread_mutex_unlock(&g_lock);
}
