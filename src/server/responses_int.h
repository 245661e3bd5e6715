/*
 * server/responses_int: what the files of the Responses dialect share. Not for others.
 */
#ifndef LG_SERVER_RESPONSES_INT_H
#define LG_SERVER_RESPONSES_INT_H

#include "server/openai.h"
#include "server/request.h"

/* --- tools (responses_tools.c) --- */

typedef enum lg_rtool_kind { LG_RTOOL_FUNCTION, LG_RTOOL_CUSTOM, LG_RTOOL_SHELL } lg_rtool_kind;

/* A tool as the client knows it; the model knows `flat`. */
typedef struct lg_rtool {
    lg_rtool_kind kind;
    lg_str flat, space, name; /* space: the namespace it was in; empty: none */
} lg_rtool;

typedef struct lg_rtools {
    lg_rtool *tool; /* parallel to chat.tool */
    lg_chat_tools chat;
} lg_rtools;

/* Reads `tools`. What the model cannot use is left out with a line in the log. *made receives a document with
 * the schemas of tools that come without one; it outlives the tools. */
LG_NODISCARD lg_status lg_responses_tools(const lg_json *tools, lg_arena *a, lg_json_doc **made,
                                          lg_rtools *out, lg_api_error *e);
/* Makes *made, with an array "items" of the JSON values in `items`. */
LG_NODISCARD lg_status lg_responses_made(lg_str items, lg_json_doc **made, lg_err *err);
/* The tool that the model calls `name`; NULL when it was not declared. */
const lg_rtool *lg_responses_tool(const lg_rtools *t, lg_str name);
/* "SPACE__NAME", or NAME when it begins so already or there is no namespace. p NULL: the arena is full. */
lg_str lg_responses_flat(lg_str space, lg_str name, lg_arena *a);

/* --- input (responses_input.c) --- */

/* `input` and `instructions` -> messages. `before`: items of earlier turns, or NULL. */
LG_NODISCARD lg_status lg_responses_input(const lg_service *s, const lg_json *body, const lg_json *before,
                                          lg_arena *a, lg_chat *c, lg_api_error *e);

/* Reasoning that a stateless client carries: base64 of the text and a tag that tells a damaged one. */
void lg_responses_seal(lg_str text, lg_buf *out);
/* p NULL when the text was not sealed by us, or the arena is full. */
lg_str lg_responses_unseal(lg_str sealed, lg_arena *a);

/* --- output (responses_items.c, responses.c) --- */

typedef enum lg_ritem_kind { LG_RITEM_REASONING, LG_RITEM_MESSAGE, LG_RITEM_CALL } lg_ritem_kind;

typedef struct lg_ritem {
    lg_ritem_kind kind;
    int index;           /* output_index */
    char id[32];
    lg_text text;        /* reasoning, message; call: arguments as the model's JSON */
    lg_text raw;         /* custom call: the input */
    lg_text logprobs;    /* message: those of its tokens, as JSON with commas between */
    bool open;           /* of the items, at most the last one */
    bool cut;            /* ended by a limit */
    bool part;           /* its parts were announced */
    const char *call_id;
    lg_str name;         /* as the model wrote it */
    const lg_rtool *tool; /* NULL: an unknown name */
    size_t scanned;      /* custom call: arguments looked at so far */
    bool direct;         /* ... they begin with the string "input", which streams */
    struct lg_ritem *next;
} lg_ritem;

typedef struct lg_rstate {
    const lg_service *s;
    const lg_json *body;
    lg_rtools tools;
    lg_ritem *first, *last;
    int n_item;
    int64_t sequence;
    bool summary;        /* reasoning is also shown as a summary */
    bool sealed;         /* ... and given to the client to carry */
    lg_text logprobs;    /* of tokens whose text has not come yet */
    bool hide;
    bool keep;           /* the response goes into the store */
    const lg_json *before; /* items of earlier turns, from the store; NULL: none */
    bool parallel;
    bool failed;         /* the arena was too small: something is missing */
    lg_openai_usage usage;
    const lg_gen_stats *stats; /* once complete */
} lg_rstate;

/* An event of the stream: {"type","sequence_number", ... until lg_rframe_end. Streams only. */
lg_jsonw lg_rframe_begin(lg_rstate *t, const char *type, lg_buf *out);
void lg_rframe_end(lg_jsonw *w);

/* One parser event: opens, extends and closes items; writes their events when the job streams. */
void lg_responses_reply(lg_job *job, const lg_job_event *ev, lg_buf *out);
/* Close what is open. `cut`: by a limit. */
void lg_responses_close(lg_job *job, bool cut, lg_buf *out);
/* The item as it stands in `output` and in output_item.done. */
void lg_ritem_json(lg_jsonw *w, const char *key, const lg_rstate *t, const lg_ritem *it);

#endif
