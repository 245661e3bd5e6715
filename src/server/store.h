/*
 * server/store: the last N conversations of the Responses API, for previous_response_id (setting
 * responses_store).
 *
 * An entry is the items of a whole conversation up to and including one response, as JSON text. One mutex,
 * held for a look-up or an insertion. In memory only: a restart forgets them.
 */
#ifndef LG_SERVER_STORE_H
#define LG_SERVER_STORE_H

#include "base/buf.h"

typedef struct lg_store lg_store;

LG_NODISCARD lg_status lg_store_create(size_t n, lg_store **out, lg_err *err);
void lg_store_destroy(lg_store *s); /* takes NULL */

/* Keep a copy of both; the oldest entry makes room. Without memory nothing is kept. */
void lg_store_put(lg_store *s, lg_str id, lg_str items);
/* Append the items of `id`. False when it is not kept (any more). */
bool lg_store_get(lg_store *s, lg_str id, lg_buf *out);

#endif
