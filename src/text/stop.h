/*
 * text/stop: finds the first of several stop strings in a stream of bytes, holding back what might become
 * one.
 *
 * One Knuth-Morris-Pratt automaton a string, so the work is linear and independent of how the stream is cut.
 * The match that ends first wins, and of those that end together the longest.
 */
#ifndef LG_TEXT_STOP_H
#define LG_TEXT_STOP_H

#include "base/buf.h"

typedef struct lg_stop lg_stop;

/* The strings are copied; empty ones never match. max_bytes bounds what is held back. */
LG_NODISCARD lg_status lg_stop_create(const lg_str *stop, size_t n, size_t max_bytes, lg_stop **out,
                                      lg_err *err);
void lg_stop_destroy(lg_stop *s); /* takes NULL */

/* Take more bytes. *ready is what can no longer be part of a match (valid until the next call on s; on a
 * match, what comes before it). Returns the index of the string that matched, or -1; after a match everything
 * is forgotten. */
int lg_stop_feed(lg_stop *s, lg_str bytes, lg_str *ready);
/* What is held back; the stream starts anew. Valid until the next call on s. */
lg_str lg_stop_flush(lg_stop *s);
/* Memory or max_bytes ran out: bytes were lost. Stays true. */
bool lg_stop_failed(const lg_stop *s);

#endif
