/*
 * app/console: the state of `lagoon chat`, shared by its loop (cmd_chat) and its slash commands
 * (chat_command).
 *
 * Everything that is not an answer goes to stderr, so that stdout of a chat in a pipe holds answers only.
 */
#ifndef LG_APP_CONSOLE_H
#define LG_APP_CONSOLE_H

#include "app/chat_input.h"
#include "app/talk.h"

enum { LG_CONSOLE_WORDS_MAX = 32 };

typedef struct lg_console {
    lg_app *app;
    lg_talk talk;
    lg_input *input;
    const char *words[LG_CONSOLE_WORDS_MAX]; /* for completion */
    lg_term term;   /* of stderr */
    bool person;    /* stdin is a terminal: questions may be asked */
    bool footer;    /* figures behind each answer */
    bool quit;
    bool failed;    /* something went wrong in a pipe: exit status 1 */
    lg_buf attached; /* what /read put aside for the next message */
    lg_buf scratch;
} lg_console;

/* A line that begins with one slash. Errors are printed; the conversation goes on. */
void lg_console_command(lg_console *c, lg_str line);
/* Send a message, print what there is to print behind the answer. */
void lg_console_send(lg_console *c, lg_str text);
/* Run `ask` (an answer of some kind) and finish the turn: figures, marks, errors. */
typedef lg_status (*lg_console_ask)(lg_talk *t, lg_talk_end *end, lg_err *err);
void lg_console_turn(lg_console *c, lg_console_ask ask);

void lg_console_error(lg_console *c, const lg_err *err);
/* A line for the person, on stderr, control characters spelled. */
void lg_console_say(lg_console *c, const char *fmt, ...) LG_PRINTF(2, 3);

/* The words of the commands, with slash, for completion; returns how many. */
int lg_console_words(const char *words[LG_CONSOLE_WORDS_MAX]);

#endif
