/*
 * server/status: state as JSON: /health, /slots, /lagoon/v1/status (docs/formats/status.md). Any thread;
 * nothing waits for the engine.
 */
#ifndef LG_SERVER_STATUS_H
#define LG_SERVER_STATUS_H

#include "server/jobs.h"
#include "server/server.h"
#include "server/snapshot.h"

void lg_status_health(lg_jobs_state state, lg_buf *out);
void lg_status_slots(lg_server *s, lg_buf *out);
void lg_status_json(lg_server *s, lg_buf *out);

/* The text of the prompt that the live sequence began with, for /slots; the engine thread's, before a job
 * runs. Does nothing unless the setting slots_debug is on. */
void lg_status_keep_prompt(lg_server *s, const lg_job *job);

#endif
