/*
 * engine/logprob: log-probabilities of a token and of the likeliest ones, from a row of logits as the model
 * gave them: before temperature and truncation (api.md 1.9).
 */
#ifndef LG_ENGINE_LOGPROB_H
#define LG_ENGINE_LOGPROB_H

#include <stdint.h>

enum { LG_LOGPROBS_MAX = 20 };

typedef struct lg_logprob {
    int32_t id;
    float logprob;
} lg_logprob;

typedef struct lg_logprobs {
    float logprob; /* of the token itself */
    int n_top;
    lg_logprob top[LG_LOGPROBS_MAX]; /* descending; ties to the lower id */
} lg_logprobs;

/* `top` entries (at most LG_LOGPROBS_MAX) beside that of `id`; entries that are not finite are left out. */
void lg_logprobs_of(const float *row, int n, int32_t id, int top, lg_logprobs *out);

#endif
