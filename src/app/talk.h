/*
 * app/talk: a conversation: its messages, and answering the last of them.
 *
 * Each answer renders the whole conversation; the engine finds by itself how much of it is still in the
 * cache. Texts are the conversation's own copies. Main thread only.
 */
#ifndef LG_APP_TALK_H
#define LG_APP_TALK_H

#include "app/turn.h"

typedef struct lg_talk_msg {
    lg_role role; /* user or assistant */
    char *text, *thought; /* thought: NULL when there was none */
    size_t n_text, n_thought;
    bool stopped;      /* assistant: cut short by a person or a limit, may be continued */
    bool open_thought; /* ... inside its thinking */
} lg_talk_msg;

typedef struct lg_talk {
    lg_app *app;
    lg_engine *engine;
    lg_asking asking; /* changed by /set and /think */
    lg_show show;
    lg_turn turn;     /* of the last answer */
    char *system;     /* NULL: the model's own */
    lg_talk_msg *msg;
    size_t n_msg, cap_msg;
} lg_talk;

typedef enum lg_talk_end {
    LG_TALK_DONE,
    LG_TALK_STOPPED, /* Ctrl-C in the answer: what came is kept */
    LG_TALK_UNASKED, /* Ctrl-C before the first token: as if it had not been asked */
    LG_TALK_CLOSED,  /* stdout is gone */
} lg_talk_end;

void lg_talk_init(lg_talk *t, lg_app *app, lg_engine *e, const lg_asking *asking);
void lg_talk_free(lg_talk *t);
void lg_talk_clear(lg_talk *t); /* no messages; the system message stays */
/* text.p NULL: the model's own */
LG_NODISCARD lg_status lg_talk_set_system(lg_talk *t, lg_str text, lg_err *err);
LG_NODISCARD lg_status lg_talk_add(lg_talk *t, lg_role role, lg_str text, lg_str thought, lg_err *err);
void lg_talk_pop(lg_talk *t); /* the last message; nothing when there is none */
const lg_talk_msg *lg_talk_last(const lg_talk *t, lg_role role); /* may be NULL */

/* Add the message and answer it. On failure, and when unasked, the conversation is as before. */
LG_NODISCARD lg_status lg_talk_ask(lg_talk *t, lg_str text, lg_talk_end *end, lg_err *err);
/* Answer the last message, which is the user's. On failure and when unasked nothing is added. */
LG_NODISCARD lg_status lg_talk_answer(lg_talk *t, lg_talk_end *end, lg_err *err);
/* Go on with the last message, which is a stopped answer. On failure and when unasked it stays as it is. */
LG_NODISCARD lg_status lg_talk_go_on(lg_talk *t, lg_talk_end *end, lg_err *err);
/* The prompt as it would be sent now, as text. */
LG_NODISCARD lg_status lg_talk_prompt(const lg_talk *t, lg_buf *out, lg_err *err);
/* Tokens of a text by itself. */
LG_NODISCARD lg_status lg_talk_count(const lg_talk *t, lg_str text, size_t *out, lg_err *err);

#endif
