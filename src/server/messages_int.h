/*
 * server/messages_int: what the files of the Messages dialect share. messages.c reads the body,
 * messages_tools.c its tools, messages_write.c writes the answer.
 */
#ifndef LG_SERVER_MESSAGES_INT_H
#define LG_SERVER_MESSAGES_INT_H

#include "server/request.h"

/* Declared tools in canonical form; those that only the original service can run are left out. `*made`
 * becomes the document behind the schemas of typed tools, if there are any. */
LG_NODISCARD lg_status lg_messages_tools(const lg_json *tools, lg_arena *a, lg_json_doc **made,
                                         lg_chat_tools *out, lg_api_error *e);

/* The dialect's state in a job. `model` is what the answer shows; hide: reasoning is not returned. */
LG_NODISCARD lg_status lg_messages_state(lg_job *job, lg_str model, bool hide, lg_api_error *e);

void lg_messages_open(lg_job *job, const lg_job_admission *a, lg_buf *out);
void lg_messages_event(lg_job *job, const lg_job_event *ev, lg_buf *out);
void lg_messages_finish(lg_job *job, lg_buf *out);
void lg_messages_fail(lg_job *job, const lg_api_error *e, lg_buf *out);

#endif
