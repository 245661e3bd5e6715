/*
 * base/log: one-line records "12:04:05.123 info kv evict seq=7 blocks=12" on a replaceable sink (default
 * stderr).
 *
 * Error: a human must act. Warn: degraded but served. Info: a handful a request. Debug: compiled in, off.
 * Never from kernels, never from a function that also returns the error; never prompt or completion text.
 * Control characters in the formatted text are replaced. Thread-safe: one write per record.
 */
#ifndef LG_BASE_LOG_H
#define LG_BASE_LOG_H

#include "base/err.h"
#include "base/str.h"

typedef enum lg_log_level {
    LG_LOG_ERROR,
    LG_LOG_WARN,
    LG_LOG_INFO,
    LG_LOG_DEBUG,
    LG_LOG_OFF = -1
} lg_log_level;

/* Receives one complete record without newline. */
typedef void (*lg_log_sink)(void *ctx, lg_log_level level, const char *line);

void lg_log_set_level(lg_log_level level); /* default LG_LOG_WARN */
void lg_log_set_sink(lg_log_sink sink, void *ctx); /* NULL restores stderr */
/* For a sink: writes a whole line, newline included, and returns what was taken. When nothing is taken for a
 * moment (a stopped terminal, a pipe that nobody reads) the record is counted as lost instead; the next one
 * that gets through is preceded by their number. */
size_t lg_log_write(int fd, const char *text, size_t n);
bool lg_log_on(lg_log_level level);
void lg_log(lg_log_level level, const char *area, const char *event, const char *fmt, ...) LG_PRINTF(4, 5);

/* A text from outside as the value of a key=value, in out[n]: as it is, or in double quotes with \" and \\
 * inside when it holds a blank, a quote or a backslash, is empty, or looks like a number. What does not fit
 * is cut. Returns out. */
enum { LG_LOG_VALUE = 256 };
const char *lg_log_value(lg_str text, char *out, size_t n);

#define LG_ERROR(area, event, ...) lg_log(LG_LOG_ERROR, area, event, __VA_ARGS__)
#define LG_WARN(area, event, ...) lg_log(LG_LOG_WARN, area, event, __VA_ARGS__)
#define LG_INFO(area, event, ...) lg_log(LG_LOG_INFO, area, event, __VA_ARGS__)
#define LG_DEBUG(area, event, ...)                          \
    do {                                                    \
        if (lg_log_on(LG_LOG_DEBUG))                        \
            lg_log(LG_LOG_DEBUG, area, event, __VA_ARGS__); \
    } while (0)

#endif
