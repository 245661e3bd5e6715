/*
 * server/unknown: a line in the log, once for each name, when a request has a field that its dialect does not
 * know (api.md 1.12). The field is ignored; whoever looks for the reason finds it here.
 */
#ifndef LG_SERVER_UNKNOWN_H
#define LG_SERVER_UNKNOWN_H

#include <pthread.h>

#include "server/dialect.h"

enum { LG_UNKNOWN_MAX = 256 }; /* names that are told apart; further ones are not logged */

typedef struct lg_unknown {
    pthread_mutex_t lock;
    uint64_t seen[LG_UNKNOWN_MAX]; /* hashes of dialect and name */
    int n;
} lg_unknown;

/* Does nothing unless the log shows debug lines, and for dialects that refuse what they do not know. */
void lg_unknown_log(lg_unknown *u, const lg_dialect *d, const lg_json *body);
/* Whether the dialect called `dialect` knows the top-level field; false for a dialect that is not listed. */
bool lg_unknown_is_known(const char *dialect, lg_str field);

#endif
