/*
 * unit/test_log: the form of a record, levels, cleaning, length, and records of many threads that must not
 * mix.
 */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"

typedef struct seen {
    char line[2048];
    lg_log_level level;
    int n, broken;
} seen;

static void keep(void *ctx, lg_log_level level, const char *line)
{
    seen *s = ctx;

    (void)snprintf(s->line, sizeof s->line, "%s", line);
    s->level = level;
    s->n++;
}

static void record(void **state)
{
    seen s = {0};
    int h, m, sec, ms;

    (void)state;
    lg_log_set_sink(keep, &s);
    lg_log_set_level(LG_LOG_INFO);
    LG_INFO("kv", "evict", "seq=%d blocks=%d", 7, 12);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.level, LG_LOG_INFO);
    assert_int_equal(sscanf(s.line, "%2d:%2d:%2d.%3d ", &h, &m, &sec, &ms), 4);
    assert_string_equal(s.line + strlen("12:04:05.123 "), "info kv evict seq=7 blocks=12");
    LG_WARN("a", "b", "%s", "");
    assert_string_equal(s.line + strlen("12:04:05.123 "), "warn a b ");
    lg_log_set_sink(NULL, NULL);
}

static void levels(void **state)
{
    seen s = {0};
    int evaluated = 0;

    (void)state;
    lg_log_set_sink(keep, &s);
    lg_log_set_level(LG_LOG_WARN);
    LG_ERROR("a", "b", "x");
    LG_WARN("a", "b", "x");
    LG_INFO("a", "b", "x");
    LG_DEBUG("a", "b", "%d", ++evaluated);
    assert_int_equal(s.n, 2);
    assert_int_equal(evaluated, 0);
    lg_log_set_level(LG_LOG_OFF);
    LG_ERROR("a", "b", "x");
    assert_int_equal(s.n, 2);
    lg_log_set_level(LG_LOG_DEBUG);
    assert_true(lg_log_on(LG_LOG_DEBUG));
    LG_DEBUG("a", "b", "%d", ++evaluated);
    assert_int_equal(s.n, 3);
    lg_log_set_sink(NULL, NULL);
    lg_log_set_level(LG_LOG_WARN);
}

static void cleaned(void **state)
{
    seen s = {0};

    (void)state;
    lg_log_set_sink(keep, &s);
    LG_WARN("a", "b", "%s", "x\x1b[2J\ny\xC2\x9Bz\xFF\xC3\xA9\xE2\x82");
    assert_string_equal(s.line + strlen("12:04:05.123 "), "warn a b x?[2J?y??z?\xC3\xA9");
    lg_log_set_sink(NULL, NULL);
}

static void long_record(void **state)
{
    seen s = {0};
    char text[3000];

    (void)state;
    lg_log_set_sink(keep, &s);
    for (size_t lead = 0; lead < 3; lead++) {
        memset(text, 'x', sizeof text);
        for (size_t i = lead; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\xE2\x82\xAC", 3);
        text[sizeof text - 1] = 0;
        LG_WARN("a", "b", "%s", text);
        size_t n = strlen(s.line);
        assert_true(n > 1000 && n < 1025);
        assert_int_equal(lg_utf8_complete(s.line, n), n);
    }
    lg_log_set_sink(NULL, NULL);
}

// Every record of this test ends in "<digit> * 40".
static void check_whole(void *ctx, lg_log_level level, const char *line)
{
    seen *s = ctx;
    size_t n = strlen(line);

    (void)level;
    s->n++;
    for (size_t i = n - 40; i < n; i++)
        if (line[i] != line[n - 1])
            s->broken++;
}

static void *chatter(void *arg)
{
    char text[41];

    memset(text, '0' + (int)(intptr_t)arg, 40);
    text[40] = 0;
    for (int i = 0; i < 2000; i++)
        LG_WARN("t", "e", "%s", text);
    return NULL;
}

static void threads(void **state)
{
    pthread_t t[4];
    seen s = {0};

    (void)state;
    lg_log_set_sink(check_whole, &s);
    for (intptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, chatter, (void *)i), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    lg_log_set_sink(NULL, NULL);
    assert_int_equal(s.n, 8000);
    assert_int_equal(s.broken, 0);
}

static void standard_error(void **state)
{
    char text[200];
    int fds[2], saved = dup(2);

    (void)state;
    assert_true(saved >= 0);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(dup2(fds[1], 2), 2);
    LG_WARN("a", "b", "%s", "to stderr");
    assert_int_equal(dup2(saved, 2), 2);
    (void)close(fds[1]);
    ssize_t n = read(fds[0], text, sizeof text - 1);
    assert_true(n > 13);
    text[n] = 0;
    assert_string_equal(text + strlen("12:04:05.123 "), "warn a b to stderr\n");
    (void)close(fds[0]);
    (void)close(saved);
}

// A reader that does not read costs a moment once, not the process; and hears of it later.
static void nobody_reads(void **state)
{
    static char text[1 << 20];
    int ends[2], saved = dup(STDERR_FILENO), lines = 0;
    size_t got = 0;
    ssize_t r;
    unsigned lost = 0;

    (void)state;
    assert_true(saved >= 0 && pipe(ends) == 0);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    lg_log_set_level(LG_LOG_INFO);
    for (int i = 0; i < 4000; i++)
        LG_INFO("a", "b", "number=%d %0100d", i, 0);
    assert_true(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    while ((r = read(ends[0], text + got, sizeof text - 1 - got)) > 0)
        got += (size_t)r;
    LG_INFO("a", "b", "number=%d", 4000);
    while ((r = read(ends[0], text + got, sizeof text - 1 - got)) > 0)
        got += (size_t)r;
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)close(ends[0]);
    (void)close(ends[1]);
    text[got] = '\0';
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    assert_non_null(strstr(text, " warn log lost records="));
    assert_int_equal(sscanf(strstr(text, " lost "), " lost records=%u", &lost), 1);
    assert_int_equal(lines + (int)lost, 4000 + 2); // the last record, and the one that tells
    assert_non_null(strstr(text, "number=4000\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record),      cmocka_unit_test(levels),  cmocka_unit_test(cleaned),
        cmocka_unit_test(long_record), cmocka_unit_test(threads), cmocka_unit_test(standard_error),
        cmocka_unit_test(nobody_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
