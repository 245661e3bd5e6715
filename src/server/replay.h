/*
 * server/replay: what the model wrote, by call id, so that a resent turn gives back the exact ids that were
 * sampled (chat.md 2.7).
 *
 * An entry: call id -> name, canonical arguments, ids from <tool_call> to </tool_call>, and the reasoning of
 * the turn it belongs to (for clients that do not send it back). Bounded (64 MiB), least recently used out
 * first. One mutex, held for a look-up or an insertion. An optimisation only: a miss renders normally.
 */
#ifndef LG_SERVER_REPLAY_H
#define LG_SERVER_REPLAY_H

#include "base/arena.h"
#include "text/chat.h"

typedef struct lg_replay lg_replay;

LG_NODISCARD lg_status lg_replay_create(size_t max_bytes, lg_replay **out, lg_err *err);
void lg_replay_destroy(lg_replay *r); /* takes NULL */

/* Copies everything. `arguments` is the JSON object as it was streamed. Failure to store is silent. */
void lg_replay_put(lg_replay *r, lg_str call_id, lg_str name, lg_str arguments, const int32_t *ids,
                   size_t n_ids, lg_str reasoning);
/* The stored ids of a call whose name and canonical arguments are equal to what the client sent: copied into
 * the arena, *n of them; NULL on a miss. */
const int32_t *lg_replay_ids(lg_replay *r, const lg_chat_call *call, lg_arena *a, size_t *n);
/* The reasoning of the turn that made this call, copied into the arena; p NULL when unknown. */
lg_str lg_replay_reasoning(lg_replay *r, lg_str call_id, lg_arena *a);
/* True when a call of that id is remembered. */
bool lg_replay_knows(lg_replay *r, lg_str call_id);

#endif
