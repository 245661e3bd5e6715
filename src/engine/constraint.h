/*
 * engine/constraint: what a reply must look like, compiled before the request is queued and shared by the requests
 * that ask for the same.
 *
 * Made on any thread; used by the engine thread through the grammar inside. A constraint is reference-counted; the
 * cache keeps the recently used ones (hash of text and options, bytes compared), one mutex held for a look-up or an
 * insertion only. Limits of time and memory apply to compilation, which happens outside the lock.
 */
#ifndef LG_ENGINE_CONSTRAINT_H
#define LG_ENGINE_CONSTRAINT_H

#include "grammar/grammar.h"

typedef struct lg_constraint lg_constraint;
typedef struct lg_constraint_cache lg_constraint_cache;

typedef enum lg_constraint_kind {
    LG_CONSTRAIN_SCHEMA,      /* the reply is a value of `schema` */
    LG_CONSTRAIN_JSON_OBJECT, /* the reply is a JSON object */
    LG_CONSTRAIN_REGEX,       /* the reply matches `schema` as a pattern */
    LG_CONSTRAIN_CALL,        /* the reply is one call, or up to max_calls, of the tools */
    LG_CONSTRAIN_CALL_OR_SCHEMA, /* format_with_tools: calls, or a value of `schema` */
    LG_CONSTRAIN_STRICT_CALLS, /* free text; a call, once begun, follows its tool's schema (strict_tools = enforce) */
} lg_constraint_kind;

typedef struct lg_constraint_spec {
    lg_constraint_kind kind;
    lg_str schema;               /* raw text as the client sent it (or as dumped from its JSON) */
    const lg_grammar_tool *tool;
    size_t n_tool;
    int max_calls;
    const lg_special *special;   /* with tools */
    lg_grammar_options options;
} lg_constraint_spec;

LG_NODISCARD lg_status lg_constraint_cache_create(size_t max_bytes, lg_constraint_cache **out, lg_err *err);
void lg_constraint_cache_destroy(lg_constraint_cache *c); /* takes NULL; every constraint was released */

/* Compile, or find compiled. `*out` holds one reference of the caller. On refusal *why has code and place, err the
 * sentence. `cache` may be NULL (command line). */
LG_NODISCARD lg_status lg_constraint_get(lg_constraint_cache *cache, const lg_constraint_spec *spec,
                                         lg_constraint **out, lg_grammar_error *why, lg_err *err);
void lg_constraint_release(lg_constraint *c); /* takes NULL; any thread */
/* For lg_gen_params: engine thread. */
lg_grammar *lg_constraint_grammar(lg_constraint *c);
lg_constraint_kind lg_constraint_kind_of(const lg_constraint *c);

#endif
