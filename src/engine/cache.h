/*
 * engine/cache: the prefix cache as the engine's callers see it: what a request says about its prompt, what a
 * look-up found, and numbers for people. How it works: prefix.h.
 *
 * All calls on the engine thread, between steps or between requests.
 */
#ifndef LG_ENGINE_CACHE_H
#define LG_ENGINE_CACHE_H

#include <stdatomic.h>

#include "engine/prefix.h"
#include "text/chat.h"

typedef struct lg_engine lg_engine;

/* What a request may do with cached conversations: reuse and keep; reuse only; neither. */
typedef enum lg_cache_mode { LG_CACHE_USE, LG_CACHE_NO_STORE, LG_CACHE_OFF } lg_cache_mode;

/* A place in the prompt that the cache cares about, as the renderer saw it (chat.h), in tokens from the
 * start. */
typedef struct lg_prompt_mark {
    lg_mark_kind kind;
    int message; /* LG_MARK_MESSAGE: index; else -1 */
    int64_t token;
} lg_prompt_mark;
/* The renderer's marks after lg_chat_encode; out has room for n. */
void lg_prompt_marks(const lg_chat_mark *mark, size_t n, lg_prompt_mark *out);

/* A prompt and whose cache it may use. */
typedef struct lg_cache_ask {
    const int32_t *ids;
    size_t n;
    const lg_prompt_mark *mark; /* ascending; none: cuts are made at the prompt's end and at distances only */
    size_t n_mark;
    lg_cache_mode mode;
    uint64_t scope; /* salt: prompts of different scopes never meet; 0: shared */
} lg_cache_ask;

typedef enum lg_cache_from { LG_CACHE_NONE, LG_CACHE_LIVE, LG_CACHE_MEMORY } lg_cache_from;
const char *lg_cache_from_name(lg_cache_from f); /* "none", "live", "host" */

/* Where a prompt left what was cached, when that cost much: less than nine tenths of the conversation was
 * reused. */
typedef enum lg_diverge {
    LG_DIVERGE_NO,
    LG_DIVERGE_SYSTEM,
    LG_DIVERGE_MESSAGE,
    LG_DIVERGE_UNKNOWN
} lg_diverge;

typedef struct lg_cache_found {
    int64_t lcp;    /* tokens shared with what is cached */
    int64_t cached; /* of them reused */
    lg_cache_from from;
    lg_cut_kind cut; /* from MEMORY: the kind of the cut */
    lg_diverge diverge;
    int64_t diverge_pos; /* first token that differs */
    int diverge_message; /* MESSAGE: which one it lies in; UNKNOWN means that there were no marks */
} lg_cache_found;

/* What a prompt would cost now. */
typedef struct lg_peek {
    int64_t lcp, cached, new_tokens;
    double prefill_us; /* estimated */
    bool measured;     /* the estimate rests on measurements; else it only tells long from short */
} lg_peek;
/* No side effects, except: pin, when it is not NULL, afterwards keeps what was found until lg_engine_unpin
 * (it replaces what it kept before). About 0.1 ms for 256k tokens. */
void lg_engine_peek(lg_engine *e, const lg_cache_ask *ask, lg_peek *out, lg_prefix_pin *pin);
void lg_engine_unpin(lg_engine *e, lg_prefix_pin *pin);

/* Evaluate a prompt without sampling, so that a later request finds it: the history as it will be rendered
 * when the user speaks next. Does nothing where all of it is cached already. A cancel, also in the middle of
 * a chunk, is LG_E_CANCELLED; finished chunks stay, and the next call goes on behind them. *evaluated (may be
 * NULL): rows computed by this call. `progress`, which may be NULL, is called before the first chunk and
 * after each. */
LG_NODISCARD lg_status lg_engine_prefill(lg_engine *e, const lg_cache_ask *ask, atomic_bool *cancel,
                                         void (*progress)(void *ctx, size_t done, size_t total), void *ctx,
                                         int64_t *evaluated, lg_err *err);

typedef struct lg_cache_stats {
    lg_prefix_stats now;
    uint64_t hits[LG_CACHE_MEMORY + 1]; /* by lg_cache_from; [LG_CACHE_NONE] are the misses */
    uint64_t saved_tokens;              /* reused in all */
    uint64_t avoidable_tokens;          /* shared with a cached path and computed all the same */
} lg_cache_stats;
void lg_engine_cache_stats(const lg_engine *e, lg_cache_stats *out);
/* Conversations in memory, the live one first; returns how many of at most `max`. */
int lg_engine_cache_slots(const lg_engine *e, lg_prefix_slot *out, int max);
/* Forget all but the live sequence and what is pinned. */
void lg_engine_cache_clear(lg_engine *e);

/* Measured speed: lg_rates_prefill_us, lg_rates_decode_us. */
const lg_rates *lg_engine_rates(const lg_engine *e);

/* --- for the engine's own files --- */

/* The request in progress. */
typedef struct lg_cache_now {
    bool active, stores;
    lg_cache_ask ask;
    lg_cache_found found;
    bool end_cut;      /* the prompt's end is cut */
    int64_t branch;    /* a cut is wanted here; 0: none */
    int64_t next_step; /* a cut is due from here on */
    lg_prefix_pin parked; /* the sequence that was live, for requests that leave no trace */
} lg_cache_now;

/* Makes live what the prompt can reuse; returns how many rows. `most`: at most so many. Every begin needs an
 * end, which without a begin does nothing. */
int64_t lg_cache_begin(lg_engine *e, const lg_cache_ask *ask, int64_t most, bool end_cut);
/* n rows were committed. */
void lg_cache_rows(lg_engine *e, int n);
/* They took so long. */
void lg_cache_time(lg_engine *e, int n, uint64_t us);
void lg_cache_end(lg_engine *e);

#endif
