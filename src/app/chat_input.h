/*
 * app/chat_input: one message at a time from a person at a terminal (libedit) or from a pipe.
 *
 * At a terminal: emacs keys; Enter sends; Alt-Enter, Ctrl-J or a backslash before Enter begins a new line;
 * pasted text never sends, and more than three lines of it appear as one word that expands when sent; Tab
 * completes commands; Ctrl-C clears the line, Ctrl-D on an empty one leaves. In a pipe: one message a line,
 * bytes as they are.
 *
 * Surprise: until a terminal has shown that it brackets pastes, text that arrives together with an Enter is
 * taken for one, so the Enter is a new line.
 */
#ifndef LG_APP_CHAT_INPUT_H
#define LG_APP_CHAT_INPUT_H

#include "base/buf.h"

enum { LG_INPUT_MAX = 64 << 20 };

typedef struct lg_input lg_input;

typedef enum lg_input_kind {
    LG_INPUT_TEXT,
    LG_INPUT_END,    /* end of file, Ctrl-D */
    LG_INPUT_LEAVE,  /* three Ctrl-C within two seconds */
    LG_INPUT_FAILED, /* too long, or the stream broke: *err says it */
} lg_input_kind;

typedef struct lg_input_params {
    bool editor;               /* stdin is a terminal */
    bool escapes;              /* the terminal knows escape sequences */
    const char *history;       /* file, or NULL; copied */
    const char *const *words;  /* what Tab completes at the start of a line; outlive the input */
    int n_words;
} lg_input_params;

LG_NODISCARD lg_status lg_input_open(const lg_input_params *p, lg_input **out, lg_err *err);
/* Takes NULL. */
void lg_input_close(lg_input *in);

/* The next message into `out` (cleared first), without the newline that sent it; it is in the history's file
 * when this returns. */
lg_input_kind lg_input_get(lg_input *in, const char *prompt, lg_buf *out, lg_err *err);
/* Whether a person answers the question with yes. It is no message: neither the history nor lg_input_again
 * know it. In a pipe nobody is asked. */
bool lg_input_yes(lg_input *in, const char *question);
/* What the editor holds when it opens next time: a text, or the last message as it was typed. Nothing in a
 * pipe. */
void lg_input_preset(lg_input *in, lg_str text);
void lg_input_again(lg_input *in);

#endif
