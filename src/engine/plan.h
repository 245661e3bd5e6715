/*
 * engine/plan: what a model takes on a device, computed before anything is loaded, and the context that fits.
 */
#ifndef LG_ENGINE_PLAN_H
#define LG_ENGINE_PLAN_H

#include "engine/kv.h"
#include "model/dflash.h"

/* A context shorter than this (or than the trained one) is not worth starting with. */
enum { LG_CTX_MIN_USEFUL = 2048, LG_CTX_STEP = 1024 };

typedef struct lg_plan {
    uint64_t weight_bytes, extra_bytes; /* as stored; copies made beside the map */
    uint64_t resident_bytes;            /* of both, what stays in use */
    uint64_t kv_bytes, kv_bytes_per_token, kv_fixed_bytes;
    uint64_t scratch_bytes;
    uint64_t draft_bytes; /* the drafter's weights, context and work area; 0: none */
    uint64_t total_bytes, available_bytes; /* total = resident + kv + scratch + draft */
    int64_t ctx, ctx_train;
    int chunk;    /* prefill chunk */
    int cache_slots;      /* conversations in memory */
    uint64_t cache_bytes; /* for all but the live one; taken as it is needed, not part of the total */
    uint64_t near_bytes;  /* of it, what the device has room for at once; the rest are images on the host */
    uint64_t cut_bytes;   /* a position where a conversation can resume, beside kv_bytes_per_token */
    bool lowered; /* ctx is less than the trained one because of memory */
    bool fits;
} lg_plan;

/* What a plan is made from. */
typedef struct lg_plan_for {
    const lg_hparams *hp;
    lg_weights_plan weights;
    lg_backend *b;
    lg_qtype kv_type;
    int chunk; /* 0: the device's choice */
    bool debug, routes;
    const lg_dflash_params *draft; /* NULL: no drafter */
    lg_weights_plan draft_weights;
    lg_qtype draft_kv_type;
    int cache_slots;    /* 0: LG_PREFIX_SLOTS */
    uint64_t cache_ram; /* 0: a share of what is left */
    uint64_t cache_near; /* most of it on a device that has images; 0: a share of what is left there */
} lg_plan_for;

/* The plan at a given context length. */
lg_plan lg_plan_at(const lg_plan_for *f, int64_t ctx);
/* Shapes of the work area at that plan, and the limits of the backend's scratch. */
lg_limits lg_plan_limits(const lg_plan_for *f, const lg_work_params *work, int64_t ctx);
lg_work_params lg_plan_work(const lg_plan_for *f, const lg_plan *p);
/* The plan to load with. ctx 0: the trained context, or the longest that fits, down to the least useful one;
 * else exactly that. When it does not fit, out->fits is false and out holds the numbers. */
void lg_plan_choose(const lg_plan_for *f, int64_t ctx, lg_plan *out);
/* What a conversation of n tokens that can be resumed at its end takes in memory. */
uint64_t lg_plan_conversation_bytes(const lg_plan *p, int64_t n);
/* The error for a plan that does not fit: the sum, and what the plan proves would help. */
lg_status lg_plan_refuse(const lg_plan_for *f, const lg_plan *p, lg_err *err);
/* The error when memory that the plan counted on was refused. */
lg_status lg_plan_broken(const lg_plan *p, lg_err *err);
/* "85.0 GB", or MB below 1 GB; returns out. */
const char *lg_plan_size(uint64_t bytes, char *out, size_t n);

#endif
