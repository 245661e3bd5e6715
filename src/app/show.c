/*
 * app/show: see show.h. Runs inside the engine's event callback, on the same thread.
 */
#include "app/show.h"

#include "app/app.h"
#include "app/figures.h"
#include "base/clock.h"

enum { TEXT_MAX = 64 << 20, RECOUNT_US = 100 * 1000 };

void lg_show_init(lg_show *s, const char *color)
{
    *s = (lg_show){.term = lg_term_of(stdout, color), .markdown = true, .line_start = true};
    lg_buf_init(&s->content, TEXT_MAX);
    lg_buf_init(&s->reasoning, TEXT_MAX);
}

void lg_show_free(lg_show *s)
{
    lg_buf_free(&s->content);
    lg_buf_free(&s->reasoning);
}

void lg_show_begin(lg_show *s)
{
    lg_buf_clear(&s->content);
    lg_buf_clear(&s->reasoning);
    lg_markdown_begin(&s->md);
    s->now = LG_SHOW_NOTHING;
    s->line_start = true;
    s->think_pieces = 0;
}

static void new_line(lg_show *s)
{
    if (!s->line_start)
        (void)fputc('\n', stdout);
    s->line_start = true;
}

/* Thinking: dimmed, or with a bar in front of each line. */
static void put_thought(lg_show *s, lg_str text)
{
    if (s->term.color || s->think == LG_SHOW_FULL) {
        lg_term_text(stdout, text);
    } else {
        for (size_t at = 0; at < text.n;) {
            size_t nl = lg_str_find(text, LG_STR("\n"), at);
            size_t end = nl == SIZE_MAX ? text.n : nl + 1;

            if (at > 0 ? text.p[at - 1] == '\n' : s->line_start)
                (void)fputs("| ", stdout);
            lg_term_text(stdout, (lg_str){text.p + at, end - at});
            at = end;
        }
    }
    if (text.n > 0)
        s->line_start = text.p[text.n - 1] == '\n';
}

static void count_thoughts(lg_show *s, uint64_t now)
{
    lg_figure f;

    if (!s->term.attrs || now - s->counted_us < RECOUNT_US)
        return;
    s->counted_us = now;
    (void)fprintf(stdout, "\rthinking ~%s tokens\033[K", lg_fig_count(&f, s->think_pieces));
    s->line_start = false;
}

static void begin_thinking(lg_show *s)
{
    s->think_start_us = lg_now_us();
    s->counted_us = 0;
    if (s->think == LG_SHOW_HIDE)
        return;
    if (s->think == LG_SHOW_DIM)
        lg_term_style(stdout, &s->term, LG_STYLE_DIM);
    (void)fputs("thinking\n", stdout);
    s->line_start = true;
}

static void end_thinking(lg_show *s)
{
    lg_figure f[2];

    if (s->think == LG_SHOW_HIDE && s->term.attrs)
        (void)fputs("\r\033[K", stdout);
    else
        new_line(s);
    if (s->think == LG_SHOW_HIDE)
        lg_term_style(stdout, &s->term, LG_STYLE_DIM);
    (void)fprintf(stdout, "thought ~%s tokens, %s", lg_fig_count(&f[0], s->think_pieces),
                  lg_fig_time(&f[1], (double)(lg_now_us() - s->think_start_us) / 1e6));
    if (s->think != LG_SHOW_FULL && s->term.color)
        lg_term_style(stdout, &s->term, LG_STYLE_PLAIN);
    (void)fputs("\n\n", stdout);
    s->line_start = true;
}

static void put_content(lg_show *s, lg_str text)
{
    if (!s->term.tty)
        (void)fwrite(text.p, 1, text.n, stdout);
    else if (s->markdown && s->term.attrs)
        lg_markdown_feed(&s->md, stdout, &s->term, text);
    else
        lg_term_text(stdout, text);
    if (text.n > 0)
        s->line_start = text.p[text.n - 1] == '\n';
}

/* A call that nobody asked for is shown, and kept, as the text it stands for. */
static void put_call(lg_show *s, const lg_event *ev)
{
    lg_str open = LG_STR("\n[tool call] "), close = LG_STR("\n");

    if (ev->kind == LG_EV_TOOL_START) {
        (void)lg_buf_adds(&s->content, open);
        if (!s->silent)
            put_content(s, open);
    }
    (void)lg_buf_adds(&s->content, ev->text);
    if (!s->silent)
        put_content(s, ev->text);
    if (ev->kind == LG_EV_TOOL_START || ev->kind == LG_EV_TOOL_END) {
        lg_str rest = ev->kind == LG_EV_TOOL_START ? LG_STR(" ") : close;

        (void)lg_buf_adds(&s->content, rest);
        if (!s->silent)
            put_content(s, rest);
    }
}

static void thought(lg_show *s, lg_str text)
{
    (void)lg_buf_adds(&s->reasoning, text);
    s->think_pieces++;
    if (s->silent || !s->term.tty)
        return;
    if (s->now != LG_SHOW_THINKING)
        begin_thinking(s);
    if (s->think == LG_SHOW_HIDE)
        count_thoughts(s, lg_now_us());
    else
        put_thought(s, text);
}

bool lg_show_event(lg_show *s, const lg_event *ev)
{
    bool thinking = ev->kind == LG_EV_REASONING;

    if (!thinking && s->now == LG_SHOW_THINKING && !s->silent && s->term.tty)
        end_thinking(s);
    switch (ev->kind) {
    case LG_EV_REASONING:
        thought(s, ev->text);
        break;
    case LG_EV_CONTENT:
        (void)lg_buf_adds(&s->content, ev->text);
        if (!s->silent)
            put_content(s, ev->text);
        break;
    case LG_EV_TOOL_START:
    case LG_EV_TOOL_ARGS:
    case LG_EV_TOOL_END:
        put_call(s, ev);
        break;
    }
    s->now = thinking ? LG_SHOW_THINKING : LG_SHOW_CONTENT;
    return lg_app_stdout_ok();
}

void lg_show_end(lg_show *s)
{
    if (s->silent || !s->term.tty)
        return;
    if (s->now == LG_SHOW_THINKING)
        end_thinking(s);
    lg_markdown_end(&s->md, stdout, &s->term);
    new_line(s);
    (void)fflush(stdout);
}
