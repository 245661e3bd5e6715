/*
 * app/bench_run: the measurements of `lagoon bench`.
 *
 * Repetitions go round all measurements, so that a machine whose speed drifts shows it in the spread of each.
 * A repetition is held to two ceilings of the same process: the best that the device gave in short passes at
 * the start, before each round and at the end, and what it gave on average just before and just after this
 * repetition, for about as long together (docs/decisions/0185). Token ids are fresh random ones at each step,
 * so that routing moves; depth comes from a cache filled with random rows.
 */
#ifndef LG_APP_BENCH_RUN_H
#define LG_APP_BENCH_RUN_H

#include "app/bench_count.h"

enum { LG_BENCH_DEPTHS = 16, LG_BENCH_REPS = 100, LG_BENCH_OPS = 24 };

typedef struct lg_bench_op {
    const char *name;
    double seconds; /* in all repetitions */
} lg_bench_op;

typedef struct lg_bench_rep {
    double tok_s;
    double ceiling; /* around it: bytes a second (decode), operations a second (prefill) */
    double ratio;   /* of what it achieved to that */
} lg_bench_rep;

typedef struct lg_bench_run {
    bool prefill; /* else decode */
    int64_t depth, tokens;
    lg_bench_rep rep[LG_BENCH_REPS]; /* in the order of time */
    int n_rep;
    double guess_s; /* how long the next repetition will take */
    double median, min, max; /* tokens a second */
    lg_cost cost;
    double gbs, gops; /* at the median */
    double roofline;  /* decode: gbs over bandwidth; prefill: gops over compute */
    double around, around_min, around_max; /* of the repetitions' ratios; the median first */
    lg_bench_op op[LG_BENCH_OPS];
    int n_op;
} lg_bench_run;

/* How evenly a batch of random tokens spread over the experts; 0 experts in a model without any. */
typedef struct lg_bench_routing {
    int n_expert;
    double distinct;  /* distinct experts that 8 tokens touch, over what independent routing gives; mean */
    double effective; /* exp(entropy) of the experts' shares over n_expert; the worst layer */
    int worst_layer;
} lg_bench_routing;

typedef struct lg_bench {
    lg_engine *engine;
    int64_t prompt, gen; /* 0: not measured */
    int64_t depth[LG_BENCH_DEPTHS];
    int n_depth, reps;
    double warmup_s;
    bool phases;
    atomic_bool *cancel; /* may be NULL */
    void (*step)(void *ctx, int done, int total); /* after each measurement; may be NULL */
    void *ctx;
    /* results */
    lg_bench_run run[2 * LG_BENCH_DEPTHS];
    int n_run;
    double bandwidth, compute; /* the best: bytes a second, operations a second */
    /* private */
    int32_t *ids;
    uint64_t seed;
} lg_bench;

LG_NODISCARD lg_status lg_bench_measure(lg_bench *b, lg_err *err);
/* Needs an engine with room for routes. */
LG_NODISCARD lg_status lg_bench_route(lg_engine *e, lg_bench_routing *out, lg_err *err);

#endif
