/*
 * engine/engine: owns model, backend, KV cache and the live sequence; the only module that calls a backend.
 *
 * Used by one thread at a time (the engine thread). Everything above it speaks in token ids and parser
 * events. A drafter may come with the model (spec.h); it never changes a token, only when tokens come.
 */
#ifndef LG_ENGINE_ENGINE_H
#define LG_ENGINE_ENGINE_H

#include "backend/registry.h"
#include "engine/cache.h"
#include "engine/logprob.h"
#include "engine/plan.h"
#include "engine/sampler.h"
#include "engine/think.h"
#include "grammar/grammar.h"
#include "text/reply.h"

typedef struct lg_engine lg_engine;

/* How drafting behaves where a drafter is present. All zero: the longest blocks, every draft verified, never
 * paused. */
typedef struct lg_draft_params {
    int max;            /* most drafts a round; 0: as many as the drafter's block has */
    float p_min;        /* drafts are cut before the first one less sure than this */
    int64_t ctx;        /* plain decoding past this many tokens; 0: never */
    /* above 0: measured times choose the length of blocks, and drafting pauses while a token costs more than
     * this times a plain one */
    float pause_margin;
    lg_draft_type type;
} lg_draft_params;

typedef struct lg_engine_params {
    const char *model_path;
    lg_gguf *gguf; /* not NULL: this open file in place of the one at model_path, which then only names it;
                    * borrowed, outlives the engine */
    lg_backend_params backend;
    /* 0: what the model was trained for, lowered with a printed reason when memory does not allow it */
    int64_t ctx;
    lg_qtype kv_type; /* LG_F16, LG_F32, LG_Q8_0 */
    int chunk;        /* prefill chunk; 0: the device's choice */
    bool debug;       /* room for layer outputs and routes */
    bool routes;      /* room for routes */
    lg_rope_override rope;
    lg_crlf crlf;
    const char *draft_path; /* a DFlash drafter of the model; NULL: none */
    lg_gguf *draft_gguf;    /* as `gguf`, of the drafter */
    bool draft_required;    /* a drafter that cannot be used is an error; else a warning, and none is used */
    lg_draft_params draft;
    /* conversations kept in memory, the live one included, and most memory for them (cache.h); 0: 16, and
     * what the plan finds sensible (plan.h) */
    int cache_slots;
    uint64_t cache_ram;
    uint64_t cache_near; /* most of it that a device with images keeps at hand; 0: the plan's */
    int cache_min, cache_step; /* shorter prompts are not kept; most tokens between two cuts; 0: prefix.h's */
    lg_progress progress; /* loading; may be NULL */
    void *progress_ctx;
} lg_engine_params;

LG_NODISCARD lg_status lg_engine_open(const lg_engine_params *p, lg_engine **out, lg_err *err);
void lg_engine_close(lg_engine *e); /* takes NULL */

/* The plan for a file on a backend without loading it (inspect --plan). */
LG_NODISCARD lg_status lg_plan_make(const lg_gguf *g, const lg_engine_params *p, lg_backend *b, lg_plan *out,
                                    lg_err *err);

const lg_gguf *lg_engine_gguf(const lg_engine *e);
const lg_vocab *lg_engine_vocab(const lg_engine *e);
const lg_bpe *lg_engine_bpe(const lg_engine *e);
const lg_hparams *lg_engine_hparams(const lg_engine *e);
const lg_laguna *lg_engine_model(const lg_engine *e);
lg_backend *lg_engine_backend(const lg_engine *e);
/* The vocabulary's tables for constraints, made when the engine is opened and immutable since: any thread.
 * LG_E_UNSUPPORTED, with the reason, for a vocabulary that cannot write every text. */
LG_NODISCARD lg_status lg_engine_trie(const lg_engine *e, const lg_token_trie **out, lg_err *err);
const lg_plan *lg_engine_plan(const lg_engine *e);
const lg_dflash_params *lg_engine_drafter(const lg_engine *e); /* NULL: none */
/* Other drafting settings from now on (all but the type); what was measured is forgotten. Does nothing
 * without a drafter. */
void lg_engine_set_draft(lg_engine *e, const lg_draft_params *set);

/* --- the live sequence: low level, for logits, perplexity, bench and generate --- */

int64_t lg_engine_pos(const lg_engine *e);                      /* tokens in the cache */
const int32_t *lg_engine_tokens(const lg_engine *e);            /* their ids */
/* Forget what follows `pos`, in the cache of conversations too. Returns how many tokens are kept: `pos` (at
 * most what was there), or where the window before `pos` is no longer held the last cut before it, or 0
 * (prefix.h): the caller evaluates from there. */
int64_t lg_engine_truncate(lg_engine *e, int64_t pos);
/* Forget all, then hold n tokens whose ids, keys and values are random: for measuring at a depth. LG_E_LIMIT
 * past the context. */
LG_NODISCARD lg_status lg_engine_fill(lg_engine *e, int64_t n, uint64_t seed, lg_err *err);

typedef struct lg_eval {
    const int32_t *ids;
    size_t n;
    bool all_logits;      /* else only the last row's */
    bool no_logits;       /* none at all */
    int n_cand;           /* without all_logits: so many candidates of the last row, too; 0: none */
    const uint32_t *mask; /* what candidates may be, or NULL: all */
    unsigned flags;       /* LG_STEP_LAYERS | LG_STEP_ROUTES: needs params.debug, or routes */
    atomic_bool *cancel;  /* may be NULL */
    /* after each chunk (with all_logits after each slice of at most 64 rows of it): rows [first, first + n)
     * are done; their logits, if wanted, are readable through lg_engine_logits meanwhile. A non-OK answer
     * stops. May be NULL. */
    lg_status (*chunk_done)(void *ctx, size_t first, size_t n, lg_err *err);
    void *ctx;
} lg_eval;
/* Append ids to the sequence, in chunks. LG_E_LIMIT when the context would overflow; LG_E_CANCELLED leaves
 * the rows of finished chunks in the cache. Ids out of range: LG_E_INPUT. */
LG_NODISCARD lg_status lg_engine_eval(lg_engine *e, const lg_eval *v, lg_err *err);
/* Logits of output row i of the last step (with all_logits: row i of the slice), host-readable f32[vocab].
 * The memory is the engine's and is overwritten by the next call. */
LG_NODISCARD lg_status lg_engine_logits(lg_engine *e, int i, const float **out, lg_err *err);
/* Rows [first, first + n) of the running eval, which must lie in its last chunk: residual after a layer, [n,
 * hidden]; experts and weights of an expert layer, [n, k]. Needs the flag in the eval. Overwritten by the
 * next call. */
LG_NODISCARD lg_status lg_engine_layer_rows(lg_engine *e, int layer, size_t first, size_t n,
                                            const float **out, lg_err *err);
LG_NODISCARD lg_status lg_engine_route_rows(lg_engine *e, int layer, size_t first, size_t n,
                                            const int32_t **ids, const float **w, lg_err *err);

/* --- a whole reply --- */

/* A token of a reply, before its events. */
typedef struct lg_gen_token {
    int32_t id;
    lg_reply_phase phase;    /* of the parser, before the token */
    const lg_logprobs *logprobs; /* asked for and known, else NULL */
} lg_gen_token;

typedef struct lg_gen_params {
    lg_sampling sampling;
    int64_t max_tokens;   /* <= 0: up to the context */
    int64_t max_think;    /* < 0: no bound; 0: close at once (api.md 2, graduated exit) */
    int64_t min_think;
    const lg_str *ban;    /* banned strings */
    size_t n_ban;
    /* What the answer must be; NULL: free. Borrowed, and used by nobody else meanwhile. It holds after the
     * reasoning, and the reply ends with it; stop strings are not looked for. */
    lg_grammar *grammar;
    bool grammar_calls;   /* the grammar is one of tool calls and holds only inside each call */
    size_t grammar_prefix; /* the last tokens of the prompt that are the beginning of the value */
    lg_str grammar_heal;  /* what follows them: the reply spells it first, in tokens of its own, untold */
    bool fast_forward;    /* tokens without a choice are evaluated together, not drawn one by one */
    bool no_draft;        /* decode this reply without the engine's drafter */
    lg_reply_params reply;
    size_t max_reply_bytes;
    atomic_bool *cancel;
    lg_event_fn event;
    void (*prefill)(void *ctx, size_t done, size_t total); /* may be NULL */
    void (*token)(void *ctx, const lg_gen_token *token);   /* may be NULL */
    /* with token: log-probabilities of content, at the cost of a look at each whole row */
    bool logprobs;
    int top_logprobs;     /* of them, the likeliest besides the chosen one; at most LG_LOGPROBS_MAX */
    void *ctx;
    const int32_t *stop_id; /* further ids that end the reply; they are no part of it */
    size_t n_stop_id;
    bool one_call;        /* the reply ends with its first complete call */
    /* the prefix cache (cache.h) */
    const lg_prompt_mark *mark; /* places in the prompt, ascending */
    size_t n_mark;
    lg_cache_mode cache;
    uint64_t scope; /* 0: shared */
} lg_gen_params;

/* Rounds of one reply (dflash.md 0): a speculative round commits its accepted drafts and one token more. */
typedef struct lg_draft_stats {
    bool present;        /* the engine has a drafter, and this reply did not refuse it */
    bool paused;         /* at the end of the reply */
    int64_t rounds;      /* speculative ones */
    int64_t plain;       /* steps of one row */
    int64_t drafted, accepted; /* drafts that were verified; of them accepted */
    int64_t made;        /* drafts in all: not all of them were worth verifying */
    /* by position in the block: how many were looked at, how many of them were accepted */
    int64_t tried_at[LG_DRAFT_ROWS_MAX], accepted_at[LG_DRAFT_ROWS_MAX];
    uint64_t draft_us, verify_us, plain_us;
} lg_draft_stats;

typedef struct lg_gen_stats {
    int64_t prompt_tokens, cached_tokens, output_tokens;
    int64_t think_tokens;    /* of the output: inside the reasoning */
    int64_t injected_tokens; /* of the output: put there by the thinking bounds */
    int64_t forced_tokens;   /* of the output: not drawn, because the grammar left no choice */
    uint64_t prefill_us, first_token_us, decode_us;
    lg_think_exit think_exit;
    lg_end end;
    lg_finish finish;
    int stop; /* index in reply.stop of the stop string that ended the reply, or -1 */
    uint64_t seed;
    int n_fallback;    /* lg_reply_fallbacks */
    int n_ban_skipped; /* added tokens that a banned string would have hit */
    lg_draft_stats draft;
    lg_cache_found found; /* cached_tokens is found.cached */
} lg_gen_stats;

/* Evaluate the prompt (reusing the longest cached prefix of any conversation), then sample until the reply
 * ends. Cancellation is LG_OK with end = LG_END_CANCELLED. Generated ids are appended to `ids_out` when it is
 * not NULL. */
LG_NODISCARD lg_status lg_generate(lg_engine *e, const int32_t *prompt, size_t n, const lg_gen_params *p,
                                   lg_gen_stats *stats, lg_ids *ids_out, lg_err *err);

#endif
