/*
 * What the commands share: figures, bars, the rules for thinking, markdown, interruption, costs of a token.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/figures.h"
#include "app/markdown.h"
#include "app/progress.h"
#include "app/turn.h"
#include "check.h"
#include "clock.h"

static void figures(void **state)
{
    lg_figure f;

    (void)state;
    assert_string_equal(lg_fig_count(&f, 0), "0");
    assert_string_equal(lg_fig_count(&f, 999), "999");
    assert_string_equal(lg_fig_count(&f, -85914), "-85,914");
    assert_string_equal(lg_fig_count(&f, INT64_MIN), "-9,223,372,036,854,775,808");
    assert_string_equal(lg_fig_bytes(&f, 0), "0 B");
    assert_string_equal(lg_fig_bytes(&f, 999), "999 B");
    assert_string_equal(lg_fig_bytes(&f, 999.96), "1.0 kB");
    assert_string_equal(lg_fig_bytes(&f, 68.25e9), "68.2 GB");
    assert_string_equal(lg_fig_time(&f, 21), "0:21");
    assert_string_equal(lg_fig_time(&f, 59.6), "1:00");
    assert_string_equal(lg_fig_time(&f, 3 * 3600 + 12 * 60 + 15), "3:12:15");
    assert_string_equal(lg_fig_time(&f, -1), "-");
    assert_string_equal(lg_fig_time(&f, 0.0 / 0.0), "-");
    assert_string_equal(lg_fig_rate(&f, 30.66), "30.7");
    assert_string_equal(lg_fig_rate(&f, 4.117), "4.12");
    assert_string_equal(lg_fig_rate(&f, 1102.4), "1,102");
    assert_string_equal(lg_fig_rate(&f, 1.0 / 0.0), "-");
}

static void bar_line(void **state)
{
    lg_bar b = {.what = "loading x.gguf",
                .unit = LG_BAR_BYTES,
                .start_us = 1000000,
                .done = 23400000000,
                .total = 68200000000};
    char line[512];

    (void)state;
    lg_bar_line(&b, 6000000, 100, line, sizeof line);
    assert_string_equal(
        line,
        "loading x.gguf  ##############..........................  34 %  23.4 of 68.2 GB  4.7 GB/s  ETA 0:10");
    for (int width = 20; width < 200; width++) {
        lg_bar_line(&b, 6000000, width, line, sizeof line);
        assert_true((int)strlen(line) < width);
    }
    b.term.utf8 = true;
    lg_bar_line(&b, 6000000, 100, line, sizeof line);
    assert_non_null(strstr(line, "█░"));
}

/* A name from outside: whole characters, one column each, and none that the terminal obeys. */
static void bar_of_odd_names(void **state)
{
    lg_bar b;
    char line[512], *tail;

    (void)state;
    lg_bar_start(&b, "loading \033[31mred\n\xC2\x9B\xFF.gguf", LG_BAR_BYTES, "never", true);
    assert_string_equal(b.what, "loading ?[31mred???.gguf");
    lg_bar_start(&b, "loading \xD0\xBC\xD0\xBE\xD0\xB4\xD0\xB5\xD0\xBB\xD1\x8C.gguf", LG_BAR_BYTES, "never",
                 true);
    b.total = 1000;
    lg_bar_line(&b, b.start_us, 90, line, sizeof line);
    tail = strstr(line, ".gguf  ........");
    assert_non_null(tail);
    assert_int_equal(strlen(tail), 90 - 1 - 14); // of the columns, "loading " and six letters are taken
    for (int width = 20; width < 60; width++) {
        lg_bar_line(&b, b.start_us, width, line, sizeof line);
        assert_int_equal(lg_utf8_complete(line, strlen(line)), strlen(line));
    }
    lg_bar_start(&b, "loading 3456789012345678901234567890123456789012345678901234\xD0\xBC\xD0\xBC",
                 LG_BAR_BYTES, "never", true);
    assert_int_equal(strlen(b.what), 60 + 2); // of 64 bytes with the NUL, no half of a letter
}

static void check_rules(bool explicitly, int64_t limit, bool thinking, int64_t budget, bool want,
                        int64_t want_budget)
{
    lg_think_rules(explicitly, limit, &thinking, &budget);
    assert_int_equal(thinking, want);
    assert_int_equal(budget, want_budget);
}

static void think_rules(void **state)
{
    (void)state;
    check_rules(false, 255, true, 4096, false, 4096); // a small limit, nobody asked
    check_rules(true, 255, true, 4096, true, 255 - 64);
    check_rules(false, 256, true, 4096, true, 256 - 64);
    check_rules(true, 1000, true, 4096, true, 750); // a quarter is kept for the answer
    check_rules(true, 8192, true, 4096, true, 4096);
    check_rules(true, 100, true, 4096, true, -1); // 36 would be no budget
    check_rules(true, 0, true, 4096, true, 4096); // no limit
    check_rules(true, 300, true, -1, true, -1);   // no budget
    check_rules(false, 100, false, 4096, false, 4096);
}

/* What markdown makes of a text that arrives in pieces of n bytes. */
static char *marked(const char *text, size_t n, bool color)
{
    lg_term t = {.tty = true, .attrs = true, .color = color};
    size_t size = 0, len = strlen(text);
    char *out = NULL;
    FILE *f = open_memstream(&out, &size);
    lg_markdown m;

    assert_non_null(f);
    lg_markdown_begin(&m);
    for (size_t at = 0; at < len; at += n)
        lg_markdown_feed(&m, f, &t, (lg_str){text + at, len - at < n ? len - at : n});
    lg_markdown_end(&m, f, &t);
    (void)fclose(f);
    return out;
}

static void check_marked(const char *text, const char *want)
{
    for (size_t n = 1; n <= strlen(text); n++) {
        char *got = marked(text, n, true);

        assert_string_equal(got, want);
        free(got);
    }
}

static void markdown(void **state)
{
    (void)state;
    check_marked("plain", "plain");
    check_marked("# Head\nbody", "\033[1m# Head\033[0m\nbody");
    check_marked("a **b** c", "a \033[1m**b**\033[0m c");
    check_marked("a `b*c` d", "a \033[36m`b*c`\033[0m d");
    check_marked("2 * 3 ** 4", "2 * 3 \033[1m** 4\033[0m"); // cut off by the end of the line
    check_marked("a\n```c\n# x **y** `z`\n```\nb",
                 "a\n\033[2m```c\033[0m\n# x **y** `z`\n\033[2m```\033[0m\nb");
    check_marked("x ``` y", "x ``` y"); // not at the start of a line
    check_marked("`open\nnext", "\033[36m`open\033[0m\nnext");
}

/* Whatever comes, the characters that go out are those that came in. */
static void markdown_keeps_every_character(void **state)
{
    static const char pool[] = "`*# \nab";
    uint32_t r = 1;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        char text[41] = "", kept[400] = "";
        size_t k = 0;
        char *got;

        for (int i = 0; i < 40; i++) {
            r = r * 1664525 + 1013904223;
            text[i] = pool[(r >> 16) % (sizeof pool - 1)];
        }
        got = marked(text, 1 + (size_t)round % 7, true);
        for (const char *p = got; *p; p++) {
            if (*p == '\033')
                p = strchr(p, 'm');
            else
                kept[k++] = *p;
        }
        assert_string_equal(kept, text);
        free(got);
    }
}

static void terminal_text(void **state)
{
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);

    (void)state;
    lg_term_text(f, LG_STR("a\033[31mb\007\r\n\tc\302\233m\177\303\251\xff\0z"));
    (void)fclose(f);
    assert_string_equal(out, "a^[[31mb^G^M\n\tc^[[m^?\303\251\357\277\275^@z");
    free(out);
}

/* In a child: `presses` interrupts, `apart` microseconds from one to the next; its exit status, 0 when it
 * survived them. */
static int interrupted(int to_end, int presses, uint64_t apart)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        static lg_app app;

        if (!freopen("/dev/null", "w", stderr))
            _exit(99);
        clock_step(0);
        lg_app_catch_interrupt(&app, to_end);
        for (int i = 0; i < presses; i++) {
            clock_add(apart);
            (void)raise(SIGINT);
        }
        _exit(lg_app_interrupted(&app) ? 0 : 98);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void interruption(void **state)
{
    (void)state;
    if (!LG_HAVE_CLOCK)
        skip();
    assert_int_equal(interrupted(2, 1, 0), 0);
    assert_int_equal(interrupted(2, 2, 0), 130);
    assert_int_equal(interrupted(2, 2, 2000000), 130);
    assert_int_equal(interrupted(2, 9, 2000001), 0); // the first is forgotten after two seconds
    assert_int_equal(interrupted(3, 2, 0), 0);
    assert_int_equal(interrupted(3, 3, 1000000), 130);
    assert_int_equal(interrupted(3, 9, 1000001), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures),       cmocka_unit_test(bar_line), cmocka_unit_test(bar_of_odd_names),
        cmocka_unit_test(think_rules),   cmocka_unit_test(markdown),
        cmocka_unit_test(terminal_text), cmocka_unit_test(markdown_keeps_every_character),
        cmocka_unit_test(interruption),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
