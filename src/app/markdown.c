/*
 * app/markdown: see markdown.h. A byte machine: the markers are ASCII, so UTF-8 passes through untouched and
 * stretches without markers go out in one call.
 */
#include "app/markdown.h"

#include <string.h>

void lg_markdown_begin(lg_markdown *m)
{
    *m = (lg_markdown){.line_start = true};
}

static lg_style wanted(const lg_markdown *m)
{
    if (m->fence_line)
        return LG_STYLE_DIM;
    if (m->fence)
        return LG_STYLE_PLAIN;
    if (m->code)
        return LG_STYLE_CODE;
    return m->heading || m->bold ? LG_STYLE_BOLD : LG_STYLE_PLAIN;
}

static void put(lg_markdown *m, FILE *f, const lg_term *t, const char *p, size_t n)
{
    lg_style style = wanted(m);

    if (n == 0)
        return;
    if (style != m->style) {
        if (m->style != LG_STYLE_PLAIN)
            lg_term_style(f, t, LG_STYLE_PLAIN);
        if (style != LG_STYLE_PLAIN)
            lg_term_style(f, t, style);
        m->style = style;
    }
    lg_term_text(f, (lg_str){p, n});
}

/* The held run is complete: what did it mean? Markers look like what they enclose. */
static void release(lg_markdown *m, FILE *f, const lg_term *t)
{
    char run[3] = {m->mark, m->mark, m->mark};
    size_t n = (size_t)m->n_mark;
    bool *inline_mark = NULL;

    m->n_mark = 0;
    if (m->mark == '`' && n == 3 && m->mark_line_start) {
        m->fence = !m->fence;
        m->fence_line = true;
    } else if (m->mark == '`' && n == 1 && !m->fence) {
        inline_mark = &m->code;
    } else if (m->mark == '*' && n == 2 && !m->fence && !m->code) {
        inline_mark = &m->bold;
    }
    if (inline_mark && !*inline_mark) {
        *inline_mark = true;
        put(m, f, t, run, n);
    } else {
        put(m, f, t, run, n);
        if (inline_mark)
            *inline_mark = false;
    }
}

static void end_line(lg_markdown *m)
{
    m->line_start = true;
    m->heading = m->fence_line = m->code = m->bold = false;
}

void lg_markdown_feed(lg_markdown *m, FILE *f, const lg_term *t, lg_str text)
{
    size_t plain = 0; // start of the stretch that has the style in force

    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        bool marker = c == '`' || c == '*';

        if (m->n_mark > 0 && c == m->mark && m->n_mark < 3) {
            m->n_mark++;
            plain = i + 1;
            continue;
        }
        if (m->n_mark > 0) {
            release(m, f, t);
            plain = i;
        }
        if (marker || c == '\n' || (c == '#' && m->line_start)) {
            put(m, f, t, text.p + plain, i - plain);
            plain = i;
        }
        if (marker) {
            m->mark = c;
            m->n_mark = 1;
            m->mark_line_start = m->line_start;
            plain = i + 1;
        } else if (c == '#' && m->line_start && !m->fence) {
            m->heading = true;
        }
        if (c == '\n') {
            end_line(m);
            put(m, f, t, "\n", 1);
            plain = i + 1;
        } else if (c != ' ') {
            m->line_start = false;
        }
    }
    put(m, f, t, text.p + plain, text.n - plain);
}

void lg_markdown_end(lg_markdown *m, FILE *f, const lg_term *t)
{
    if (m->n_mark > 0)
        release(m, f, t);
    if (m->style != LG_STYLE_PLAIN)
        lg_term_style(f, t, LG_STYLE_PLAIN);
    m->style = LG_STYLE_PLAIN;
}
