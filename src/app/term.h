/*
 * app/term: what a terminal can do, and text from outside made harmless for it.
 *
 * Nothing outside app/term, app/progress and the chat's line editor knows escape codes. Model output may hold
 * any byte; on a terminal its control characters are shown (^[), in a file they are kept.
 */
#ifndef LG_APP_TERM_H
#define LG_APP_TERM_H

#include <stdio.h>

#include "base/str.h"

typedef struct lg_term {
    bool tty;   /* the stream is a terminal */
    bool attrs; /* escape sequences may be sent to it */
    bool color; /* colours and dimming too */
    bool utf8;  /* the locale's characters are UTF-8 */
} lg_term;

/* For `f` (stdout or stderr). `color` is the flag's value: auto, always or never. Precedence: the flag,
 * NO_COLOR (not empty), CLICOLOR_FORCE / FORCE_COLOR, then a terminal whose TERM is not dumb. */
lg_term lg_term_of(FILE *f, const char *color);
/* Columns of the terminal behind `f`, 80 when unknown. */
int lg_term_width(FILE *f);

/* Write text to `f` with control characters spelled: ESC as ^[, DEL as ^?, U+009B as ^[[; newline and tab
 * stay. */
void lg_term_text(FILE *f, lg_str text);

/* Attributes; nothing is written where the terminal (or the user) does not want them. */
typedef enum lg_style { LG_STYLE_PLAIN, LG_STYLE_DIM, LG_STYLE_BOLD, LG_STYLE_CODE } lg_style;
void lg_term_style(FILE *f, const lg_term *t, lg_style style);

#endif
