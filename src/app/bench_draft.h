/*
 * app/bench_draft: what `lagoon bench` says about a drafter: the cost of a round by width, the acceptance
 * from which it pays on this device, and, with a trained pair, acceptance and speed-up on a few requests.
 *
 * Plain and speculative replies alternate, so that a machine whose speed drifts treats them alike.
 */
#ifndef LG_APP_BENCH_DRAFT_H
#define LG_APP_BENCH_DRAFT_H

#include "engine/spec.h"

/* A round of n drafts: medians, and the tokens a round from which it beats plain decoding. */
typedef struct lg_bench_width {
    int n;
    double draft_us, verify_us;
    double break_even;
} lg_bench_width;

typedef struct lg_bench_draft {
    lg_engine *engine;
    int64_t depth, gen;
    int reps;
    bool trained; /* weights are real: acceptance means something */
    lg_draft_params set; /* of the engine, put back at the end */
    atomic_bool *cancel;
    /* results */
    double plain_us; /* one step of one row, and its row of context */
    lg_bench_width width[LG_DRAFTS_MAX];
    int n_width;
    int n;             /* drafts a round in what follows: all that the drafter makes */
    double al;         /* tokens a round; 0: not measured */
    double by_position[LG_DRAFTS_MAX]; /* of the drafts that were looked at */
    int n_position;
    double plain_tok_s, fixed_tok_s, policy_tok_s;
} lg_bench_draft;

LG_NODISCARD lg_status lg_bench_drafter(lg_bench_draft *b, lg_err *err);
void lg_bench_draft_table(const lg_bench_draft *b);
/* The value of the key `draft`. */
void lg_bench_draft_json(const lg_bench_draft *b, lg_buf *out);

#endif
