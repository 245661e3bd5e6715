/*
 * engine/rates: how long this model takes on this machine, a token, at several depths of context.
 *
 * Fed with the time of every chunk and every decode step; asked by the prefix cache (what would it cost to
 * compute these rows again?), the queue (which job is the shortest?) and the time limit of a request. Plain
 * data, engine thread.
 *
 * What surprises: before anything was measured the answers are proportions only, from counting operations, on
 * a nominal machine; what was measured at one depth scales the answers at the others.
 */
#ifndef LG_ENGINE_RATES_H
#define LG_ENGINE_RATES_H

#include "model/hparams.h"

enum { LG_RATE_POINTS = 5 }; /* contexts of 1k, 4k, 16k, 64k, 256k */

typedef struct lg_rate {
    double us[LG_RATE_POINTS]; /* a token; 0: not measured at this depth */
} lg_rate;

typedef struct lg_rates {
    double cost[LG_RATE_POINTS]; /* microseconds a token on the nominal machine */
    lg_rate prefill, decode;
} lg_rates;

void lg_rates_init(lg_rates *r, const lg_hparams *hp);

/* `n` rows from position `pos` on took `us`: as one chunk, or as one decode step. */
void lg_rates_add_prefill(lg_rates *r, int64_t pos, int64_t n, uint64_t us);
void lg_rates_add_decode(lg_rates *r, int64_t pos, uint64_t us);

/* Estimated time to evaluate rows [from, to), and of the decode step at `pos`, in microseconds. */
double lg_rates_prefill_us(const lg_rates *r, int64_t from, int64_t to);
double lg_rates_decode_us(const lg_rates *r, int64_t pos);
/* Whether the answers rest on at least one measurement. */
bool lg_rates_measured(const lg_rate *r);

#endif
