/*
 * text/reply: incremental parser of what the model writes: reasoning, content, tool calls (chat.md 4).
 *
 * Runs on the engine's thread, one pass a token. Control tokens are recognised by id only; argument tags by
 * text. Events are equal under concatenation, and concatenated arguments of a call that ended are one valid
 * JSON object.
 */
#ifndef LG_TEXT_REPLY_H
#define LG_TEXT_REPLY_H

#include "base/json.h"
#include "text/bpe.h"
#include "text/chat.h"

typedef enum lg_event_kind {
    LG_EV_REASONING,
    LG_EV_CONTENT,
    LG_EV_TOOL_START, /* text = name */
    LG_EV_TOOL_ARGS,  /* text = JSON fragment */
    LG_EV_TOOL_END,
} lg_event_kind;

typedef struct lg_event {
    lg_event_kind kind;
    int call; /* index of the call in this reply */
    lg_str text;
} lg_event;
typedef void (*lg_event_fn)(void *ctx, const lg_event *ev);

typedef enum lg_finish { LG_FINISH_STOP, LG_FINISH_LENGTH, LG_FINISH_TOOL_CALLS } lg_finish;
typedef enum lg_end { LG_END_EOG, LG_END_LENGTH, LG_END_STOP_STRING, LG_END_CANCELLED, LG_END_SCHEMA } lg_end;
typedef enum lg_reply_phase { LG_PHASE_REASONING, LG_PHASE_CONTENT, LG_PHASE_TOOL } lg_reply_phase;

/* A declared tool: its name and the JSON Schema of its parameters (json_t object or NULL), borrowed. */
typedef struct lg_tool {
    lg_str name;
    const lg_json *parameters;
} lg_tool;

typedef struct lg_reply_params {
    lg_template_family family;
    bool verbatim;         /* white space around the content belongs to it, whatever the family */
    bool raw;              /* no parsing at all: every token is content (completions, --raw) */
    bool thinking;         /* thinking is on for this turn */
    bool open_reasoning;   /* the prompt ends inside the reasoning */
    const lg_tool *tool;   /* n_tool > 0: tools are enabled */
    size_t n_tool;
    const lg_str *stop;    /* stop strings, content only */
    size_t n_stop;
    const int32_t *stop_id; /* further ids that end the reply like an end-of-generation id */
    size_t n_stop_id;
    bool one_call;         /* the reply ends with the first call that is complete */
} lg_reply_params;

typedef struct lg_reply lg_reply;
LG_NODISCARD lg_status lg_reply_create(const lg_vocab *v, const lg_reply_params *p, size_t max_bytes,
                                       lg_event_fn fn, void *ctx, lg_reply **out, lg_err *err);
void lg_reply_destroy(lg_reply *r); /* takes NULL */

/* One generated id. *done becomes true when the reply ended: an end-of-generation or stop id, <assistant>, a
 * stop string, or with one_call a complete call. */
LG_NODISCARD lg_status lg_reply_feed(lg_reply *r, int32_t id, bool *done, lg_err *err);
/* Flush what was held back; how generation ended when the last id did not end it itself. */
LG_NODISCARD lg_status lg_reply_end(lg_reply *r, lg_end how, lg_finish *finish, lg_err *err);
lg_reply_phase lg_reply_now(const lg_reply *r);
/* Index in params.stop of the stop string that ended the reply, or -1. */
int lg_reply_stop(const lg_reply *r);
/* Tokens consumed in the REASONING state so far. */
int lg_reply_reasoning_tokens(const lg_reply *r);
/* Calls so far that the model did not write in its own form: read from a body in JSON, or left as text. */
int lg_reply_fallbacks(const lg_reply *r);

#endif
