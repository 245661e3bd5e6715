/*
 * app/app: errors, interruption and stdout, for every command.
 *
 * The interrupt flag is process-wide because a signal handler has no other way to reach it.
 */
#include "app/app.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { PRESSES_MAX = 3, PRESSES_NS = 2000000000 };

static atomic_bool interrupted;
static volatile sig_atomic_t told; /* SIGTERM or SIGHUP, once it came */
static int presses_to_end = 1;
static const char reset[] = "\033[0m\033[?2004l\n"; /* what a terminal needs after an end in the middle */
static uint64_t pressed_ns[PRESSES_MAX]; /* the last ones, oldest first; only the handler touches it */

/* Runs in a signal handler: nothing here may lock or allocate. */
static void on_interrupt(int sig)
{
    uint64_t now = lg_now_ns();

    (void)sig;
    for (int i = 1; i < PRESSES_MAX; i++)
        pressed_ns[i - 1] = pressed_ns[i];
    pressed_ns[PRESSES_MAX - 1] = now;
    atomic_store(&interrupted, true);
    if (pressed_ns[PRESSES_MAX - presses_to_end] == 0 ||
        now - pressed_ns[PRESSES_MAX - presses_to_end] > PRESSES_NS)
        return;
    // the device may hang, so nobody is waited for
    if (isatty(STDERR_FILENO))
        (void)!write(STDERR_FILENO, reset, sizeof reset - 1);
    _exit(LG_EXIT_INTERRUPTED);
}

void lg_app_catch_interrupt(lg_app *app, int presses)
{
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};

    LG_ASSERT(presses >= 2 && presses <= PRESSES_MAX);
    presses_to_end = presses;
    app->cancel = &interrupted;
    (void)sigemptyset(&sa.sa_mask);
    (void)sigaction(SIGINT, &sa, NULL);
}

static void on_termination(int sig)
{
    told = sig;
    atomic_store(&interrupted, true);
}

void lg_app_catch_termination(lg_app *app)
{
    static const int signals[] = {SIGTERM, SIGHUP};
    struct sigaction sa = {.sa_handler = on_termination, .sa_flags = SA_RESTART | SA_RESETHAND}, before;

    app->cancel = &interrupted;
    (void)sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            (void)sigaction(signals[i], &sa, NULL);
}

/* Runs in a signal handler, after libedit's own has put the terminal's modes back. */
static void on_end_of_session(int sig)
{
    if (isatty(STDERR_FILENO))
        (void)!write(STDERR_FILENO, reset, sizeof reset - 1);
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

void lg_app_tidy_terminal_at_death(void)
{
    struct sigaction sa = {.sa_handler = on_end_of_session, .sa_flags = SA_NODEFER};

    (void)sigemptyset(&sa.sa_mask);
    (void)sigaction(SIGTERM, &sa, NULL);
    (void)sigaction(SIGHUP, &sa, NULL);
}

/* Runs in a signal handler. Weights are read from the file's own pages: a model that is replaced in place, or
 * a disk that fails, is noticed by nothing else. */
static void on_lost_pages(int sig)
{
    static const char text[] =
        "lagoon: a mapped file changed or could not be read (SIGBUS): a model must not be "
        "overwritten while it is in use\n";
    static atomic_flag said = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&said))
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

void lg_app_name_lost_pages(void)
{
    struct sigaction sa = {.sa_handler = on_lost_pages};

    (void)sigemptyset(&sa.sa_mask);
    (void)sigaction(SIGBUS, &sa, NULL);
}

void lg_app_die_as_told(void)
{
    if (told == 0)
        return;
    (void)signal(told, SIG_DFL);
    (void)raise(told);
}

bool lg_app_interrupted(const lg_app *app)
{
    return app->cancel && atomic_load(app->cancel);
}

static int stdout_errno; /* of the first write that failed */

/* A pipe says so before anything is written to it. */
static bool reader_left(void)
{
    struct pollfd pfd = {.fd = STDOUT_FILENO};

    return poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLERR);
}

bool lg_app_stdout_ok(void)
{
    errno = 0;
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    int why = errno;

    if (written && !reader_left())
        return true;
    if (stdout_errno == 0)
        stdout_errno = written ? EPIPE : why;
    return false;
}

lg_status lg_app_print(lg_buf *b, const char *what, lg_err *err)
{
    bool whole = !b->failed;

    if (whole)
        (void)fwrite(b->p, 1, b->n, stdout);
    lg_buf_free(b);
    return whole ? LG_OK : LG_FAIL(err, LG_E_LIMIT, "%s is too long for --json, or memory is short", what);
}

int lg_app_stdout_judge(int rc)
{
    if (lg_app_stdout_ok() || rc != LG_EXIT_OK)
        return rc;
    // a write that failed inside printf left no errno behind: the pipe still tells, and so does one more try
    if (stdout_errno == 0 && reader_left())
        stdout_errno = EPIPE;
    if (stdout_errno == 0 && write(STDOUT_FILENO, "\n", 1) < 0)
        stdout_errno = errno;
    if (stdout_errno == EPIPE || stdout_errno == EBADF) // gone, or closed from the start
        return LG_EXIT_OK;
    lg_app_say("stdout: cannot write%s%s", stdout_errno ? ": " : "",
               stdout_errno ? strerror(stdout_errno) : "");
    return LG_EXIT_FAILED;
}

int lg_app_fail(const lg_err *err)
{
    char line[512];

    if (err->code == LG_E_CANCELLED) // whoever pressed Ctrl-C knows
        return LG_EXIT_INTERRUPTED;
    fprintf(stderr, "lagoon: %s\n", lg_err_line(err, line, sizeof line));
    return LG_EXIT_FAILED;
}

/* Words from the command line may hold anything; lg_err_set makes them fit for a terminal. */
static void say(const char *fmt, va_list ap)
{
    char text[1024];
    lg_err clean = {0};

    (void)vsnprintf(text, sizeof text, fmt, ap);
    (void)LG_FAIL(&clean, LG_E_INPUT, "%s", text);
    fprintf(stderr, "lagoon: %s\n", clean.msg);
}

int lg_app_usage(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    return LG_EXIT_USAGE;
}

void lg_app_say(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
}

void lg_app_say_guess(const lg_app *app)
{
    lg_app_say("%s: its chat template is none of the known ones; s21 is used, --chat-template names another",
               app->model_path);
}
