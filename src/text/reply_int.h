/*
 * text/reply_int: what reply.c (reasoning, content, ends) and reply_tool.c (calls) share. Not for others.
 *
 * Input reaches the states as text, always whole characters, and as control symbols. A state function takes a
 * text and returns what it did not use, so that a tag in the middle of a token hands the rest to the next
 * state.
 */
#ifndef LG_TEXT_REPLY_INT_H
#define LG_TEXT_REPLY_INT_H

#include "text/reply.h"
#include "text/stop.h"
#include "text/value.h"

typedef enum state {
    ST_REASONING,
    ST_PROBE,   /* <tool_call> inside reasoning: a call or a quotation? */
    ST_CONTENT,
    ST_NAME,    /* from <tool_call> to <arg_key>, </tool_call> or { */
    ST_JSON,    /* a body in JSON instead of argument tags */
    ST_KEY,
    ST_GAP,     /* between </arg_key> and <arg_value> */
    ST_VALUE,
    ST_VALUE_CLOSED, /* </arg_value> was seen; what follows says whether it was literal */
    ST_VALUE_CALL,   /* </tool_call> was seen inside a value; the same question */
    ST_ENDED,
} state;

typedef enum symbol {
    SYM_EOG, SYM_THINK, SYM_END_THINK, SYM_ASSISTANT, SYM_TOOL_CALL, SYM_END_TOOL_CALL,
    SYM_TEXT, /* an ordinary token */
    SYM_NONE, /* any other control token: produces nothing */
} symbol;

/* How far a stream of text has matched a tag. The tag's first byte occurs in it once. */
typedef struct tag {
    lg_str text;
    size_t at;
} tag;

/* A stretch of reasoning or content whose outer white space is treated specially. */
typedef struct segment {
    lg_event_kind kind;
    bool visible; /* something other than white space was written */
    bool discard; /* nothing of it is shown */
    lg_buf held;  /* white space that waits for what follows */
} segment;

typedef struct key_span {
    size_t at, n;
} key_span;

/* The call being written. */
typedef struct tool_call {
    lg_buf markup;    /* from <tool_call> on, until it is sure that this is a call */
    size_t name_at;   /* where the name starts in it */
    size_t body_at;   /* ST_JSON: where the body starts in it */
    const lg_tool *declared;
    int index;
    size_t n_pairs;   /* written so far */
    lg_buf key;       /* the argument's name */
    lg_buf value;     /* its text, when it does not stream */
    lg_buf space;     /* white space behind what may be a closing tag */
    lg_types types;
    bool stream;      /* a plain string: passes as it comes */
    bool ignore;      /* a key that was there before */
    tag a, b;
    lg_buf keys;      /* names seen, one after the other */
    key_span *seen;
    size_t n_seen, cap_seen;
} tool_call;

struct lg_reply {
    const lg_vocab *v;
    lg_special special;
    lg_reply_params p;
    lg_event_fn fn;
    void *ctx;
    state state;
    segment reasoning, content;
    tool_call call;
    lg_stop *stop;      /* NULL without stop strings */
    lg_detok detok;
    lg_buf text;        /* of the current token */
    lg_buf scratch;     /* JSON on its way out */
    int n_started, n_completed;
    int stop_index;
    int n_reasoning;
    int n_fallback;
    bool by_eog;        /* the model ended the reply itself */
    bool lost;          /* memory or the limit ran out: something is missing */
};

/* reply.c */
/* Append to one of the reply's buffers. Failure is sticky: clearing a buffer forgets it, the reply does not.
 */
bool lg_reply_keep(lg_reply *r, lg_buf *b, lg_str text);
void lg_reply_event(lg_reply *r, lg_event_kind kind, lg_str text);
void lg_reply_segment_start(segment *s);
void lg_reply_segment_text(lg_reply *r, segment *s, lg_str text);
void lg_reply_segment_end(lg_reply *r, segment *s, bool keep_space);
lg_str lg_reply_symbol_text(symbol s);

/* reply_tool.c */
void lg_reply_call_begin(lg_reply *r, state how); /* ST_NAME or ST_PROBE */
lg_str lg_reply_call_text(lg_reply *r, lg_str text);
/* False: the state changed and the symbol is still to be handled by it. */
bool lg_reply_call_symbol(lg_reply *r, symbol s);
/* The model ended the reply inside the call; false as above. */
bool lg_reply_call_eog(lg_reply *r);
/* The reply was cut inside the call. */
void lg_reply_call_cut(lg_reply *r);
void lg_reply_call_free(lg_reply *r);

#endif
