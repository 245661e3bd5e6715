/*
 * server/store: the last N conversations of the Responses API, for previous_response_id (setting
 * responses_store).
 *
 * An entry is the items of a whole conversation up to and including one response, as JSON text, and the
 * response itself, for those who fetch it. One mutex, held for a look-up or an insertion. In memory only: a
 * restart forgets them.
 */
#ifndef LG_SERVER_STORE_H
#define LG_SERVER_STORE_H

#include "base/buf.h"

typedef struct lg_store lg_store;

LG_NODISCARD lg_status lg_store_create(size_t n, lg_store **out, lg_err *err);
void lg_store_destroy(lg_store *s); /* takes NULL */

/* One response; texts are borrowed. */
typedef struct lg_stored {
    lg_str id;
    lg_str items;    /* values with commas between them */
    size_t n_input;  /* bytes of `items` that the request came with */
    lg_str response; /* the response object */
} lg_stored;
/* Keep a copy; the oldest entry makes room. Without memory nothing is kept. */
void lg_store_put(lg_store *s, const lg_stored *r);

typedef enum lg_store_part { LG_STORE_ITEMS, LG_STORE_INPUT, LG_STORE_RESPONSE } lg_store_part;
/* Append that part of `id`. False when it is not kept (any more). */
bool lg_store_get(lg_store *s, lg_str id, lg_store_part part, lg_buf *out);
/* Forget it. False when there was nothing to forget. */
bool lg_store_drop(lg_store *s, lg_str id);

#endif
