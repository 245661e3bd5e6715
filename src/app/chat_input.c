/*
 * app/chat_input: see chat_input.h. Main thread only.
 *
 * libedit works in wide characters, so text is converted at its edges. While it edits, the terminal sends
 * Ctrl-C as a character (isig off), which makes interruption a key like others and leaves no signal to race
 * with.
 */
#include "app/chat_input.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "app/figures.h"
#include "base/clock.h"

/* Key sequences of our own, never sent by a terminal: the real newline, and "insert the preset". */
#define KEY_SEND L"\033[901~"
#define KEY_PRESET L"\033[902~"

enum {
    HISTORY_MAX = 2000,
    PASTE_LINES = 3,
    INTERRUPTS = 3,
    INTERRUPT_US = 2000 * 1000,
    PIPE_CHUNK = 64 << 10
};

typedef struct paste {
    char mark[64]; /* "[paste 1: 5,001 lines, 63.9 kB]" as it stands in the line */
    char *text;
    size_t n;
} paste;

struct lg_input {
    lg_input_params p;
    EditLine *el;
    HistoryW *history;
    FILE *out; /* the terminal */
    char *history_path; /* or NULL */
    wchar_t prompt[32];
    wchar_t *preset;
    wchar_t *last; /* the last message as it was typed */
    bool again;    /* the preset is `last`, with its pastes */
    paste *pastes;
    int n_paste;
    uint64_t interrupt_us[INTERRUPTS]; /* the last Ctrl-C's, oldest first */
    lg_buf raw;           /* a pipe's bytes: those before `taken` were handed out, */
    size_t taken, looked; /* and of the rest the first `looked` hold no newline */
    bool ended;
    bool leave;
    bool brackets; /* the terminal has shown that it brackets what is pasted */
    bool pasted; /* the line holds pasted text itself: it is not for the history */
};

/* --- conversion --- */

/* UTF-8 to a wide string on the heap; ill-formed bytes become U+FFFD, NUL is left out. NULL without memory.
 */
static wchar_t *widen(lg_str s)
{
    wchar_t *w = malloc((s.n + 1) * sizeof *w);
    size_t n = 0;

    for (size_t i = 0; w && i < s.n;) {
        int32_t cp;

        i += (size_t)lg_utf8_step(s.p + i, s.n - i, &cp);
        if (cp != 0)
            w[n++] = cp < 0 ? (wchar_t)0xFFFD : (wchar_t)cp;
    }
    if (w)
        w[n] = L'\0';
    return w;
}

static void narrow(const wchar_t *w, size_t n, lg_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        char c[4];
        uint32_t cp = (uint32_t)w[i];
        bool scalar = cp < 0x110000 && (cp < 0xD800 || cp > 0xDFFF);

        (void)lg_buf_add(out, c, (size_t)lg_utf8_put(scalar ? (int32_t)cp : 0xFFFD, c));
    }
}

/* --- keys --- */

static lg_input *self(EditLine *el)
{
    lg_input *in = NULL;

    (void)el_wget(el, EL_CLIENTDATA, &in);
    return in;
}

static void show_brackets(const lg_input *in, bool on)
{
    if (in->p.escapes)
        (void)fputs(on ? "\033[?2004h" : "\033[?2004l", in->out);
}

static wchar_t *prompt_of(EditLine *el)
{
    return self(el)->prompt;
}

static unsigned char insert(EditLine *el, const wchar_t *text)
{
    return el_winsertstr(el, text) == 0 ? CC_REFRESH : CC_REFRESH_BEEP;
}

static unsigned char key_newline(EditLine *el, wint_t c)
{
    (void)c;
    return insert(el, L"\n");
}

static unsigned char key_enter(EditLine *el, wint_t c)
{
    const LineInfoW *li = el_wline(el);
    int waiting = 0;

    (void)c;
    if (li->cursor == li->lastchar && li->cursor > li->buffer && li->cursor[-1] == L'\\') {
        el_wdeletestr(el, 1);
        return insert(el, L"\n");
    }
    if (!self(el)->brackets && ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > 0)
        return insert(el, L"\n");
    el_wpush(el, KEY_SEND);
    return CC_NORM;
}

static unsigned char key_interrupt(EditLine *el, wint_t c)
{
    lg_input *in = self(el);
    const LineInfoW *li = el_wline(el);
    uint64_t now = lg_now_us();

    (void)c;
    memmove(in->interrupt_us, in->interrupt_us + 1, sizeof in->interrupt_us - sizeof in->interrupt_us[0]);
    in->interrupt_us[INTERRUPTS - 1] = now;
    if (in->interrupt_us[0] > 0 && now - in->interrupt_us[0] < INTERRUPT_US) {
        in->leave = true;
        return CC_EOF;
    }
    if (li->lastchar > li->buffer) {
        el_wpush(el, L"\025"); // em-kill-line
        return CC_NORM;
    }
    (void)fputs("\nCtrl-D or /quit leaves\n", in->out);
    return CC_REDISPLAY;
}

static unsigned char key_suspend(EditLine *el, wint_t c)
{
    const lg_input *in = self(el);

    (void)c;
    show_brackets(in, false); // for whoever has the terminal meanwhile
    (void)fflush(in->out);
    (void)el_wset(el, EL_PREP_TERM, 0);
    (void)kill(0, SIGTSTP);
    (void)el_wset(el, EL_PREP_TERM, 1);
    show_brackets(in, true);
    return CC_REDISPLAY;
}

static unsigned char key_preset(EditLine *el, wint_t c)
{
    lg_input *in = self(el);
    wchar_t *text = in->preset;
    unsigned char rc;

    (void)c;
    if (!text)
        return CC_NORM;
    in->preset = NULL;
    rc = insert(el, text);
    free(text);
    return rc;
}

/* The paste whose mark ends at the cursor, or NULL. */
static const paste *paste_before(const lg_input *in, const LineInfoW *li, size_t *len)
{
    for (int i = 0; i < in->n_paste; i++) {
        const char *mark = in->pastes[i].mark; // ASCII
        size_t n = strlen(mark), k = 0;

        if ((size_t)(li->cursor - li->buffer) < n)
            continue;
        while (k < n && li->cursor[k - n] == (wchar_t)(unsigned char)mark[k])
            k++;
        if (k == n) {
            *len = n;
            return &in->pastes[i];
        }
    }
    return NULL;
}

static unsigned char key_backspace(EditLine *el, wint_t c)
{
    const LineInfoW *li = el_wline(el);
    size_t n = 1;

    (void)c;
    if (li->cursor == li->buffer)
        return CC_ERROR;
    (void)paste_before(self(el), li, &n);
    el_wdeletestr(el, (int)n);
    return CC_REFRESH;
}

static unsigned char key_complete(EditLine *el, wint_t c)
{
    lg_input *in = self(el);
    const LineInfoW *li = el_wline(el);
    size_t n = (size_t)(li->cursor - li->buffer), found = 0;
    const char *match = NULL;
    char word[32] = "";

    (void)c;
    if (n == 0 || n >= sizeof word || li->buffer[0] != L'/')
        return CC_ERROR;
    for (size_t i = 0; i < n; i++)
        word[i] = li->buffer[i] < 0x80 ? (char)li->buffer[i] : '?';
    for (int i = 0; i < in->p.n_words; i++) {
        if (strncmp(in->p.words[i], word, n) != 0)
            continue;
        match = in->p.words[i];
        found++;
    }
    if (found == 1) {
        wchar_t *rest = widen(lg_str_of(match + n));

        if (rest && *rest)
            (void)el_winsertstr(el, rest);
        free(rest);
        return insert(el, L" ");
    }
    if (found == 0)
        return CC_REFRESH_BEEP;
    (void)fputc('\n', in->out);
    for (int i = 0; i < in->p.n_words; i++)
        if (strncmp(in->p.words[i], word, n) == 0)
            (void)fprintf(in->out, "%s  ", in->p.words[i]);
    (void)fputc('\n', in->out);
    return CC_REDISPLAY;
}

/* --- paste --- */

static bool add_paste(lg_input *in, const lg_buf *text, int lines)
{
    paste *grown = realloc(in->pastes, (size_t)(in->n_paste + 1) * sizeof *grown);
    lg_figure f[2];
    paste *p;

    if (!grown)
        return false;
    in->pastes = grown;
    p = &in->pastes[in->n_paste];
    p->text = malloc(text->n + 1);
    if (!p->text)
        return false;
    memcpy(p->text, text->p, text->n);
    p->n = text->n;
    (void)snprintf(p->mark, sizeof p->mark, "[paste %d: %s lines, %s]", in->n_paste + 1,
                   lg_fig_count(&f[0], lines), lg_fig_bytes(&f[1], (double)text->n));
    in->n_paste++;
    return true;
}

/* Everything up to ESC [201~. Line ends arrive as CR, LF or both; the text gets LF. The terminal driver swaps
 * CR and LF while libedit edits, so a pair counts once in either order. */
static bool read_paste(EditLine *el, lg_buf *text, int *lines)
{
    static const wchar_t end[] = L"\033[201~";
    size_t matched = 0;
    wchar_t c, last = 0;

    *lines = 1;
    for (;;) {
        if (el_wgetc(el, &c) != 1)
            return false;
        if (c == end[matched]) {
            if (++matched == wcslen(end))
                return true;
            continue;
        }
        narrow(end, matched, text);
        matched = 0;
        if (c == end[0]) {
            matched = 1;
            continue;
        }
        if (c == L'\r' || c == L'\n') {
            bool pair = (last == L'\r' || last == L'\n') && last != c;

            last = pair ? 0 : c;
            if (pair)
                continue;
            (*lines)++;
            (void)lg_buf_addc(text, '\n');
            continue;
        }
        last = c;
        narrow(&c, 1, text);
    }
}

static unsigned char key_paste(EditLine *el, wint_t c)
{
    lg_input *in = self(el);
    wchar_t *wide = NULL;
    unsigned char rc = CC_REFRESH_BEEP;
    lg_buf text;
    int lines;

    (void)c;
    in->brackets = true;
    lg_buf_init(&text, LG_INPUT_MAX);
    if (!read_paste(el, &text, &lines)) {
        rc = CC_EOF;
    } else if (!text.failed && lines > PASTE_LINES && add_paste(in, &text, lines)) {
        wide = widen(lg_str_of(in->pastes[in->n_paste - 1].mark));
    } else if (!text.failed && lines <= PASTE_LINES) {
        wide = widen(lg_buf_str(&text));
        in->pasted = true;
    }
    if (wide)
        rc = insert(el, wide);
    free(wide);
    lg_buf_free(&text);
    return rc;
}

/* --- opening and closing --- */

typedef unsigned char (*key_fn)(EditLine *, wint_t);

static void bind_keys(EditLine *el)
{
    static const struct {
        const wchar_t *name;
        key_fn fn;
        const wchar_t *keys[3];
    } table[] = {
        // while editing the driver swaps CR and LF: Enter is LF, Ctrl-J is CR
        {L"lg-enter", key_enter, {L"\n"}},
        {L"lg-newline", key_newline, {L"\r", L"\033\n", L"\033\r"}},
        {L"lg-interrupt", key_interrupt, {L"\003"}},
        {L"lg-suspend", key_suspend, {L"\032"}},
        {L"lg-backspace", key_backspace, {L"\b", L"\177"}},
        {L"lg-complete", key_complete, {L"\t"}},
        {L"lg-paste", key_paste, {L"\033[200~"}},
        {L"lg-preset", key_preset, {KEY_PRESET}},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        (void)el_wset(el, EL_ADDFN, table[i].name, L"lagoon", table[i].fn);
        for (size_t k = 0; k < 3 && table[i].keys[k]; k++)
            (void)el_wset(el, EL_BIND, table[i].keys[k], table[i].name, NULL);
    }
    (void)el_wset(el, EL_BIND, KEY_SEND, L"ed-newline", NULL);
    (void)el_wset(el, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
}

static void open_history(lg_input *in)
{
    HistEventW ev;

    in->history = history_winit();
    if (!in->history)
        return;
    (void)history_w(in->history, &ev, H_SETSIZE, HISTORY_MAX);
    (void)history_w(in->history, &ev, H_SETUNIQUE, 1);
    if (in->history_path)
        (void)history_w(in->history, &ev, H_LOAD, in->history_path); // not there yet: an empty history
    (void)el_wset(in->el, EL_HIST, history_w, in->history);
}

lg_status lg_input_open(const lg_input_params *p, lg_input **out, lg_err *err)
{
    lg_input *in = calloc(1, sizeof *in);

    if (!in)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    in->p = *p;
    in->history_path = p->history ? strdup(p->history) : NULL;
    lg_buf_init(&in->raw, LG_INPUT_MAX);
    in->out = isatty(STDERR_FILENO) ? stderr : stdout;
    if (p->editor) {
        in->el = el_init("lagoon", stdin, in->out, in->out);
        if (!in->el) {
            free(in->history_path);
            free(in);
            return LG_FAIL(err, LG_E_IO, "the line editor does not start on this terminal");
        }
        (void)el_wset(in->el, EL_CLIENTDATA, in);
        (void)el_wset(in->el, EL_PROMPT, prompt_of);
        (void)el_wset(in->el, EL_EDITOR, L"emacs");
        (void)el_wset(in->el, EL_SIGNAL, 1);
        (void)el_wset(in->el, EL_SETTY, L"-d", L"-isig", NULL);
        bind_keys(in->el);
        open_history(in);
    }
    *out = in;
    return LG_OK;
}

static void forget_pastes(lg_input *in)
{
    for (int i = 0; i < in->n_paste; i++)
        free(in->pastes[i].text);
    free(in->pastes);
    in->pastes = NULL;
    in->n_paste = 0;
}

void lg_input_close(lg_input *in)
{
    if (!in)
        return;
    if (in->el)
        el_end(in->el);
    if (in->history)
        history_wend(in->history);
    forget_pastes(in);
    free(in->preset);
    free(in->last);
    free(in->history_path);
    lg_buf_free(&in->raw);
    free(in);
}

void lg_input_preset(lg_input *in, lg_str text)
{
    if (!in->el)
        return;
    free(in->preset);
    in->preset = widen(text);
}

/* --- reading --- */

/* One line of a pipe. A signal ends the wait (poll is never resumed after one), and with it the input. */
static lg_input_kind get_line(lg_input *in, lg_buf *out, lg_err *err)
{
    for (;;) {
        lg_str have = {in->raw.p + in->taken, in->raw.n - in->taken};
        size_t nl = lg_str_find(have, LG_STR("\n"), in->looked);
        struct pollfd pfd = {.fd = STDIN_FILENO, .events = POLLIN};
        ssize_t n = 0;
        char *room;

        if (nl != SIZE_MAX || (in->ended && have.n > 0)) {
            (void)lg_buf_add(out, have.p, nl != SIZE_MAX ? nl : have.n);
            in->taken += nl != SIZE_MAX ? nl + 1 : have.n;
            in->looked = 0;
            return LG_INPUT_TEXT;
        }
        if (in->ended)
            return LG_INPUT_END;
        in->looked = have.n;
        if (in->taken > 0) {
            memmove(in->raw.p, have.p, have.n);
            in->raw.n = have.n;
            in->taken = 0;
        }
        room = lg_buf_room(&in->raw, PIPE_CHUNK);
        if (!room) {
            (void)LG_FAIL(err, LG_E_LIMIT, "stdin: a line is longer than %d MiB", LG_INPUT_MAX >> 20);
            return LG_INPUT_FAILED;
        }
        if (poll(&pfd, 1, -1) < 0 || (n = read(STDIN_FILENO, room, PIPE_CHUNK)) < 0) {
            if (errno == EINTR)
                return LG_INPUT_END;
            (void)LG_FAIL(err, LG_E_IO, "stdin: cannot read: %s", strerror(errno));
            return LG_INPUT_FAILED;
        }
        in->ended = n == 0;
        in->raw.n += (size_t)n;
    }
}

/* The line with each mark replaced by what was pasted. */
static void expand(const lg_input *in, lg_str line, lg_buf *out)
{
    for (size_t at = 0; at < line.n;) {
        const paste *first = NULL;
        size_t where = SIZE_MAX;

        for (int i = 0; i < in->n_paste; i++) {
            size_t k = lg_str_find(line, lg_str_of(in->pastes[i].mark), at);

            if (k < where) {
                where = k;
                first = &in->pastes[i];
            }
        }
        if (!first) {
            (void)lg_buf_add(out, line.p + at, line.n - at);
            return;
        }
        (void)lg_buf_add(out, line.p + at, where - at);
        (void)lg_buf_add(out, first->text, first->n);
        at = where + strlen(first->mark);
    }
}

void lg_input_again(lg_input *in)
{
    if (!in->el || !in->last)
        return;
    free(in->preset);
    in->preset = in->last;
    in->last = NULL;
    in->again = true;
}

/* Keep the line for the history and for lg_input_again. */
static void remember(lg_input *in, const wchar_t *line, size_t n)
{
    wchar_t *copy = malloc((n + 1) * sizeof *copy);
    HistEventW ev;

    free(in->last);
    in->last = copy;
    if (!copy)
        return;
    wmemcpy(copy, line, n);
    copy[n] = L'\0';
    if (!in->history || n == 0 || line[0] == L' ' || in->pasted)
        return;
    (void)history_w(in->history, &ev, H_ENTER, copy);
    if (in->history_path) // at once: a window that is closed leaves no time at the end
        (void)history_w(in->history, &ev, H_SAVE, in->history_path);
}

/* What is typed until Enter, without it. NULL at the end. */
static const wchar_t *edit(lg_input *in, const char *prompt, size_t *n)
{
    const wchar_t *line;
    int got = 0;

    (void)swprintf(in->prompt, sizeof in->prompt / sizeof in->prompt[0], L"%s", prompt);
    memset(in->interrupt_us, 0, sizeof in->interrupt_us);
    el_resize(in->el);
    // libedit would do it after showing the prompt, and lose what is typed in between
    (void)el_wset(in->el, EL_PREP_TERM, 1);
    show_brackets(in, true);
    line = el_wgets(in->el, &got);
    show_brackets(in, false);
    (void)fflush(in->out);
    if (!line || got <= 0)
        return NULL;
    *n = (size_t)got - (line[got - 1] == L'\n');
    return line;
}

bool lg_input_yes(lg_input *in, const char *question)
{
    size_t n = 0;
    const wchar_t *line = in->el ? edit(in, question, &n) : NULL;

    return line && n > 0 && (line[0] == L'y' || line[0] == L'Y');
}

lg_input_kind lg_input_get(lg_input *in, const char *prompt, lg_buf *out, lg_err *err)
{
    const wchar_t *line;
    lg_buf typed;
    size_t n = 0;

    lg_buf_clear(out);
    if (!in->el)
        return get_line(in, out, err);
    if (in->leave) // at a question
        return LG_INPUT_LEAVE;
    if (!in->again) {
        forget_pastes(in);
        in->pasted = false;
    }
    in->again = false;
    if (in->preset)
        el_wpush(in->el, KEY_PRESET);
    line = edit(in, prompt, &n);
    if (in->leave)
        return LG_INPUT_LEAVE;
    if (!line)
        return LG_INPUT_END;
    remember(in, line, n);
    lg_buf_init(&typed, LG_INPUT_MAX);
    narrow(line, n, &typed);
    expand(in, lg_buf_str(&typed), out);
    if (typed.failed || out->failed) {
        lg_buf_free(&typed);
        (void)LG_FAIL(err, LG_E_LIMIT, "the message is longer than %d MiB", LG_INPUT_MAX >> 20);
        return LG_INPUT_FAILED;
    }
    lg_buf_free(&typed);
    return LG_INPUT_TEXT;
}
