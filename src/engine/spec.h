/*
 * engine/spec: the drafter of an engine: opening it, feeding its context, one draft, one verification.
 *
 * A round drafts n tokens behind the newest one, evaluates the newest one and the drafts in one step of n + 1
 * rows, and samples row after row as plain decoding would; a draft is accepted while it equals the sample.
 * Rows of a step of up to 16 rows have the bits that they have alone, so drafting never changes a token.
 * Rows count (lg_kv_commit) as their tokens are accepted: there is nothing to roll back.
 *
 * The loop itself, which chooses tokens, is in generate.c. Engine thread.
 */
#ifndef LG_ENGINE_SPEC_H
#define LG_ENGINE_SPEC_H

#include "engine/engine.h"
#include "engine/pace.h"
#include "model/dflash.h"

typedef struct lg_spec lg_spec;

/* A drafter's file, checked against its target; nothing is loaded. */
typedef struct lg_spec_plan {
    lg_gguf *gguf; /* NULL: no drafter */
    bool borrowed;
    lg_dflash_params hp;
    lg_draft_type type;
    lg_qtype kv_type;
    lg_weights_plan weights;
} lg_spec_plan;

/* Opens and checks what p->draft_path or p->draft_gguf name; out->gguf stays NULL without either. A drafter
 * that cannot be used is an error when p->draft_required, else a warning in the log. */
LG_NODISCARD lg_status lg_spec_examine(const lg_engine_params *p, const lg_hparams *target, lg_backend *b,
                                       lg_spec_plan *out, lg_err *err);
void lg_spec_plan_free(lg_spec_plan *s);

/* Loads it; takes the plan's file. Work and KV class of the engine must exist. */
LG_NODISCARD lg_status lg_spec_open(lg_engine *e, lg_spec_plan *plan, const lg_draft_params *set,
                                    lg_spec **out, lg_err *err);
void lg_spec_close(lg_engine *e, lg_spec *s); /* takes NULL */

const lg_dflash_params *lg_spec_params(const lg_spec *s);

/* Whether rows up to `end` are to enter the context: then the target's step must keep its taps. */
bool lg_spec_wants(const lg_spec *s, int64_t end);
/* The step before kept the taps of rows [pos, pos + n), which are committed now: into the context with them.
 */
LG_NODISCARD lg_status lg_spec_absorb(lg_engine *e, int64_t pos, int n, lg_err *err);
/* The pace rests before the coming single row: its taps may wait on the host, or are not wanted at all. */
void lg_spec_hold(lg_spec *s);
/* What waits there enters the context, and nothing waits any more. */
LG_NODISCARD lg_status lg_spec_flush(lg_engine *e, lg_err *err);
/* The reply has ended: the same, unless rows are dear and no draft is near; then they are dropped. */
LG_NODISCARD lg_status lg_spec_end(lg_engine *e, lg_err *err);

/* How many tokens could be drafted now, at most `room`: 0 where context, step size or the drafter's own
 * context do not allow any. */
int lg_spec_room(const lg_engine *e, int64_t room);
/* ids[0] is the newest token, not evaluated yet; ids[1 .. n] become drafts, confidence[0 .. n-1] how sure the
 * drafter is of each. */
LG_NODISCARD lg_status lg_spec_draft(lg_engine *e, int n, int32_t *ids, float *confidence,
                                     atomic_bool *cancel, lg_err *err);
/* Evaluate n rows whose logits are all wanted, and n_cand candidates of each; the first of them counts at
 * once, the others as the caller commits them (lg_kv_commit). */
LG_NODISCARD lg_status lg_spec_verify(lg_engine *e, const int32_t *ids, int n, int n_cand,
                                      atomic_bool *cancel, lg_err *err);

lg_pace *lg_spec_pace(lg_spec *s);
/* Time that rows took on their way into the context since the last ask, as far as the host waited for it. */
uint64_t lg_spec_context_us(lg_spec *s);

#endif
