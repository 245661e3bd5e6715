/*
 * app/markdown: marks headings, bold, inline code and fences of a text that arrives in pieces.
 *
 * Attributes only: the characters that go out are the characters that came in, in order, none added, dropped
 * or re-wrapped. What is not understood is plain. At most three characters are held back, those of a run of `
 * or *; lg_markdown_end lets them go.
 */
#ifndef LG_APP_MARKDOWN_H
#define LG_APP_MARKDOWN_H

#include "app/term.h"

typedef struct lg_markdown {
    bool line_start;      /* only spaces were seen on this line */
    bool fence;           /* inside a fenced block */
    bool fence_line;      /* on a line that opens or closes one */
    bool heading, code, bold;
    char mark;            /* a run of ` or * is held back */
    int n_mark;
    bool mark_line_start; /* ... that began at the start of a line */
    lg_style style;       /* in force on the terminal */
} lg_markdown;

void lg_markdown_begin(lg_markdown *m);
void lg_markdown_feed(lg_markdown *m, FILE *f, const lg_term *t, lg_str text);
/* Lets go what was held back and turns attributes off. */
void lg_markdown_end(lg_markdown *m, FILE *f, const lg_term *t);

#endif
