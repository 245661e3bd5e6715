/*
 * server/guard: who may call: API keys, foreign web pages, names that are not ours (api.md 1.2, 1.3).
 *
 * Made once from the settings, immutable afterwards; any thread.
 */
#ifndef LG_SERVER_GUARD_H
#define LG_SERVER_GUARD_H

#include "base/settings.h"
#include "server/api_error.h"
#include "server/http.h"

typedef struct lg_guard lg_guard;

/* Reads api_key_file. */
LG_NODISCARD lg_status lg_guard_create(const lg_settings *set, lg_guard **out, lg_err *err);
void lg_guard_destroy(lg_guard *g); /* takes NULL */
bool lg_guard_has_keys(const lg_guard *g);
bool lg_guard_loopback(const lg_guard *g);

/* Host and Origin; LG_E_INPUT with *e filled: refused. */
LG_NODISCARD lg_status lg_guard_site(const lg_guard *g, const lg_request *rq, lg_api_error *e);
/* The key. Fills rq->key and, for a named key, rq->client. */
LG_NODISCARD lg_status lg_guard_key(const lg_guard *g, lg_request *rq, lg_api_error *e);
/* Headers that let an allowed origin read the response. `preflight`: also those that OPTIONS asks for. */
void lg_guard_cors(const lg_guard *g, const lg_request *rq, bool preflight, lg_response *out);

/* The client as shown: product and major.minor of User-Agent, at most 31 bytes; empty when unknown. */
void lg_guard_client(const lg_request *rq, char out[32]);

#endif
