/*
 * server/parts: the reply of one choice, gathered for an answer that is not streamed: its parts in the order
 * in which the model wrote them, neighbours of one kind joined.
 *
 * Used on the connection's thread; everything lives in the job's arena.
 */
#ifndef LG_SERVER_PARTS_H
#define LG_SERVER_PARTS_H

#include "server/job.h"

typedef struct lg_reply_part {
    lg_event_kind kind; /* LG_EV_REASONING, LG_EV_CONTENT, or LG_EV_TOOL_START for a call */
    lg_str text;        /* of a call: its arguments, one JSON object when `ended` */
    lg_str name;        /* of a call */
    const char *id;
    bool ended;         /* the call is complete */
    size_t cap;
    struct lg_reply_part *next;
} lg_reply_part;

typedef struct lg_parts {
    lg_reply_part *first, *last;
    bool full; /* the arena was too small; parts are missing */
} lg_parts;

void lg_parts_add(lg_parts *c, lg_job *job, int choice, const lg_event *ev);

#endif
