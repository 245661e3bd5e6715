/*
 * server/request_int: what the files of request share. Not for others.
 */
#ifndef LG_SERVER_REQUEST_INT_H
#define LG_SERVER_REQUEST_INT_H

#include "server/request.h"
#include "server/replay.h"

/* What the reply must look like: response format, forced calls, strict tools. Compiles job->constraint, or
 * refuses with the field that asked for it. */
LG_NODISCARD lg_status lg_request_constrain(const lg_service *s, const lg_chat_request *r, lg_job *job,
                                            lg_api_error *e);
/* After rendering: r->prefix is the beginning of the constrained value. Fills job->grammar_prefix,
 * and with job->heal takes back its last token. */
LG_NODISCARD lg_status lg_request_prefix(const lg_service *s, const lg_chat_request *r, lg_job *job,
                                         lg_api_error *e);

#endif
