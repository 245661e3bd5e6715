/*
 * engine/constraint: what a reply must look like, compiled before the request is queued and shared by the
 * requests that ask for the same.
 *
 * Made on any thread; used by the engine thread through the grammar inside. A constraint is
 * reference-counted; the cache keeps the recently used ones (hash of text and options, bytes compared), one
 * mutex held for a look-up or an insertion only. Limits of time and memory apply to compilation, which
 * happens outside the lock.
 */
#ifndef LG_ENGINE_CONSTRAINT_H
#define LG_ENGINE_CONSTRAINT_H

#include "engine/engine.h"

typedef struct lg_constraint lg_constraint;
typedef struct lg_constraint_cache lg_constraint_cache;

typedef enum lg_constraint_kind {
    LG_CONSTRAIN_SCHEMA,         /* the reply is a value of `schema` */
    LG_CONSTRAIN_JSON_OBJECT,    /* the reply is a JSON object */
    LG_CONSTRAIN_REGEX,          /* the reply matches `schema` as a pattern */
    LG_CONSTRAIN_CHOICE,         /* the reply is one of `choice` */
    LG_CONSTRAIN_CALL,           /* the reply is one call, or up to max_calls, of the tools */
    LG_CONSTRAIN_CALL_OR_SCHEMA, /* format_with_tools: calls, or a value of `schema` */
    LG_CONSTRAIN_STRICT_CALLS,   /* strict_tools = enforce: free text; a call follows its tool's schema */
} lg_constraint_kind;

typedef struct lg_constraint_spec {
    lg_constraint_kind kind;
    lg_str schema; /* raw text as the client sent it (or as dumped from its JSON) */
    const lg_str *choice;
    size_t n_choice;
    /* All tools of the request, so that pointers name the right one. Their modes: TYPED, or OFF for those
     * that tool_choice leaves out; with STRICT_CALLS ANY for those that are not strict. Copied. */
    const lg_grammar_tool *tool;
    size_t n_tool;
    int max_calls;             /* 1 unless parallel calls were asked for; then up to 8 */
    const lg_special *special; /* with tools */
    lg_grammar_options options;
    bool fast_forward;
    bool heal; /* the end of a prefix may be written in other tokens; no part of what is compiled */
} lg_constraint_spec;

/* The native API's format.options (structured.md 2.4) into *spec; NULL changes nothing. Unknown names and
 * values are LG_E_INPUT with "format.options.NAME" as subject. */
LG_NODISCARD lg_status lg_constraint_options(const lg_json *options, lg_constraint_spec *spec, lg_err *err);

LG_NODISCARD lg_status lg_constraint_cache_create(size_t max_bytes, lg_constraint_cache **out, lg_err *err);
void lg_constraint_cache_destroy(lg_constraint_cache *c); /* takes NULL; every constraint was released */

/* Compile, or find compiled. `*out` holds one reference of the caller. On refusal *why has code and place,
 * err the sentence. `cache` may be NULL (command line). Of several tools that may be called, one whose schema
 * is refused takes its declared arguments as raw text, with a warning in the log, unless all are refused (not
 * with STRICT_CALLS). */
LG_NODISCARD lg_status lg_constraint_get(lg_constraint_cache *cache, const lg_constraint_spec *spec,
                                         lg_constraint **out, lg_grammar_error *why, lg_err *err);
void lg_constraint_release(lg_constraint *c); /* takes NULL; any thread */
lg_constraint_kind lg_constraint_kind_of(const lg_constraint *c);
/* Do `n` tokens begin a value? *complete: they are one, and the reply has nothing to add. LG_E_INPUT: the
 * sentence names the token, its byte offset, and what was expected. Any thread: a grammar is compiled for
 * this call alone. */
LG_NODISCARD lg_status lg_constraint_check_prefix(const lg_constraint *c, const lg_token_trie *trie,
                                                  const lg_vocab *v, const int32_t *ids, size_t n,
                                                  bool *complete, lg_err *err);

/* For the reply: grammar, grammar_calls and fast_forward. `c` may be NULL. Engine thread, which then uses the
 * grammar until lg_generate returns. */
void lg_constraint_apply(lg_constraint *c, lg_gen_params *p);
lg_grammar *lg_constraint_grammar(lg_constraint *c);

#endif
