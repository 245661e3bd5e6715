/*
 * app/show: an answer as it arrives, on stdout.
 *
 * On a terminal: thinking dimmed between `thinking` and `thought ~1,204 tokens, 0:39`, control characters
 * spelled, and markdown marked with attributes only, so that the screen's text is the model's text.
 * Elsewhere: the answer's bytes and nothing else. Texts are collected too, up to a limit, for history and
 * JSON.
 *
 * Surprise: without dimming (NO_COLOR, dumb terminals) the lines of thinking begin with `| `.
 */
#ifndef LG_APP_SHOW_H
#define LG_APP_SHOW_H

#include "app/markdown.h"
#include "base/buf.h"
#include "text/reply.h"

typedef enum lg_show_think { LG_SHOW_DIM, LG_SHOW_FULL, LG_SHOW_HIDE } lg_show_think;

typedef struct lg_show {
    lg_term term;        /* of stdout */
    lg_show_think think; /* how thinking looks on a terminal */
    bool silent;         /* collect only */
    bool markdown;
    lg_buf content, reasoning; /* this answer's texts; tool calls are part of content, as text */
    enum { LG_SHOW_NOTHING, LG_SHOW_THINKING, LG_SHOW_CONTENT } now; /* what the last event was */
    /* private */
    lg_markdown md;
    bool line_start;      /* the cursor is at the start of a line */
    int64_t think_pieces; /* about one a token */
    uint64_t think_start_us, counted_us;
} lg_show;

void lg_show_init(lg_show *s, const char *color);
void lg_show_free(lg_show *s);
/* Before each answer: forget the last one's texts. */
void lg_show_begin(lg_show *s);
/* An lg_event_fn body. False once stdout takes nothing more: the caller stops the answer. */
bool lg_show_event(lg_show *s, const lg_event *ev);
/* After the answer: attributes off, and on a terminal the cursor at the start of a line. */
void lg_show_end(lg_show *s);

#endif
