/*
 * engine/sampler: from logits to one token (api.md 1.9).
 *
 * Order: penalties and bias, banned tokens and grammar mask, temperature, top-k, top-p, min-p, draw. Exactly
 * one random number per generated token, a function of (seed, index of the token in the reply) from a
 * counter-based generator, so drafts, rollbacks and restores cannot shift them; forced tokens count.
 * Temperature 0 is greedy: the largest logit, ties to the lower id.
 */
#ifndef LG_ENGINE_SAMPLER_H
#define LG_ENGINE_SAMPLER_H

#include <stdint.h>

#include "base/err.h"

typedef struct lg_logit_bias {
    int32_t id;
    float bias; /* -100: never */
} lg_logit_bias;

typedef struct lg_sampling {
    float temperature; /* 0 = greedy */
    int top_k;         /* <= 0 = off */
    float top_p, min_p;
    uint64_t seed;
    float frequency_penalty, presence_penalty; /* over generated tokens only */
    float repetition_penalty;                  /* 1 = off; window repeat_last_n */
    int repeat_last_n;
    const lg_logit_bias *bias;
    int n_bias;
} lg_sampling;

lg_sampling lg_sampling_default(void); /* temperature 1, top_k 20, top_p 1, min_p 0 */
/* LG_E_INPUT naming the parameter that is out of range. */
LG_NODISCARD lg_status lg_sampling_check(const lg_sampling *s, lg_err *err);

/* Uniform in [0, 1) for token `index` of a reply: pure function. */
double lg_sample_uniform(uint64_t seed, uint64_t index);

/* Candidates: ids and logits in descending order (ties to the lower id). `complete`: they are the whole
 * vocabulary. */
typedef struct lg_cand_list {
    const int32_t *ids;
    const float *logits;
    int n;
    bool complete;
    float lse; /* log(sum exp) over the whole row */
} lg_cand_list;

/* The choice after temperature, top-k, top-p, min-p with the given uniform number. When the list is not
 * complete it must hold at least lg_sampling_cands entries. -1 when the largest logit is not finite (nothing
 * is allowed, or the model computed nonsense). */
int32_t lg_sample_pick(const lg_sampling *s, const lg_cand_list *c, double u);
/* How many of the largest logits decide the choice, or 0: the full row is needed. */
int lg_sampling_cands(const lg_sampling *s);

/* The same choice from a full row of n logits; `heap` is scratch of n elements. NaN counts as -inf. */
int32_t lg_sample_row(const lg_sampling *s, const float *row, int n, int32_t *heap, double u);

/* Penalties and bias on a full row. `recent`: the newest tokens of the sequence, of which the last
 * repeat_last_n count for the repetition penalty. `count[id]`: how often the reply has it. Bias ids must be
 * below n. */
void lg_sample_penalize(const lg_sampling *s, const int32_t *recent, int64_t n_recent, const int32_t *count,
                        float *row, int n);

#endif
