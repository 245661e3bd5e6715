/*
 * server/status: state as JSON: /health, /slots, /lagoon/v1/status (docs/formats/status.md). Pure functions.
 */
#ifndef LG_SERVER_STATUS_H
#define LG_SERVER_STATUS_H

#include "server/jobs.h"
#include "server/snapshot.h"

void lg_status_health(lg_jobs_state state, lg_buf *out);
void lg_status_slots(const lg_snapshot *s, lg_buf *out);
void lg_status_json(const lg_snapshot *s, lg_jobs *q, const char *model_id, lg_buf *out);

#endif
