/*
 * server/native_int: what the files of the native dialect share. native.c reads the body, native_write.c
 * writes the answer, strict.c knows which fields there are.
 */
#ifndef LG_SERVER_NATIVE_INT_H
#define LG_SERVER_NATIVE_INT_H

#include "server/request.h"

/* Fails with the path of the first field, at any depth, that a native body does not have. */
LG_NODISCARD lg_status lg_native_check_fields(const lg_json *body, lg_api_error *e);

/* The dialect's state in a job; `model` is what the answer shows. */
LG_NODISCARD lg_status lg_native_state(const lg_service *s, lg_job *job, lg_str model, bool echo_ids,
                                       lg_api_error *e);

void lg_native_open(lg_job *job, const lg_job_admission *a, lg_buf *out);
void lg_native_event(lg_job *job, const lg_job_event *ev, lg_buf *out);
void lg_native_finish(lg_job *job, lg_buf *out);
void lg_native_fail(lg_job *job, const lg_api_error *e, lg_buf *out);

#endif
