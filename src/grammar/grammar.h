/*
 * grammar/grammar: constrained decoding. A JSON Schema, or a set of tools, becomes a grammar; a matcher
 * follows one reply and says which tokens may come next.
 *
 * What is promised for everything that compiles: a finished reply is valid, every valid document in the
 * accepted spellings can be produced under any tokenization, no state is a dead end, a mask is exact, and
 * whatever cannot be enforced is refused here with a code and the place in the schema.
 *
 * Threads: any thread may compile. From then on a grammar and its matchers belong to one thread (the
 * engine's). The tables of a vocabulary (lg_token_trie) are immutable and shared.
 *
 * Surprise: a grammar grows while it is used, because states of its automaton are made when they are first
 * met. Past a bound it forgets all of them, and each matcher replays its tokens the next time it is asked.
 */
#ifndef LG_GRAMMAR_GRAMMAR_H
#define LG_GRAMMAR_GRAMMAR_H

#include "base/json.h"
#include "text/bpe.h"

typedef struct lg_grammar lg_grammar;
typedef struct lg_matcher lg_matcher;
typedef struct lg_token_trie lg_token_trie;

typedef enum lg_whitespace { LG_WS_NATURAL, LG_WS_COMPACT, LG_WS_FREE } lg_whitespace;

typedef struct lg_grammar_options {
    lg_whitespace whitespace;
    bool one_of_any;     /* read oneOf as anyOf */
    bool any_order;      /* properties in any order; else in that of the schema */
    bool ignore_formats; /* an unknown `format` is an annotation */
    bool hasty; /* a first try with a tenth of the memory and of the work: what fails with SCHEMA_TOO_LARGE or
                 * TOO_COMPLEX may compile without it */
} lg_grammar_options;

typedef enum lg_grammar_code {
    LG_GRAMMAR_OK,
    LG_GRAMMAR_INVALID_SCHEMA,
    LG_GRAMMAR_UNSUPPORTED_KEYWORD,
    LG_GRAMMAR_UNSUPPORTED_REGEX,
    LG_GRAMMAR_UNSUPPORTED_FORMAT,
    LG_GRAMMAR_REMOTE_REF,
    LG_GRAMMAR_UNRESOLVED_REF,
    LG_GRAMMAR_NONPRODUCTIVE_REF,
    LG_GRAMMAR_ONEOF_NOT_DISJOINT,
    LG_GRAMMAR_UNSATISFIABLE,
    LG_GRAMMAR_SCHEMA_TOO_LARGE,
    LG_GRAMMAR_TOO_COMPLEX,
} lg_grammar_code;

/* Why a schema was refused. `pointer` is a JSON Pointer inside the schema (with tools: from the request,
 * "/tools/0/function/parameters/..."); longer ones are cut and end in "...". */
typedef struct lg_grammar_error {
    lg_grammar_code code;
    char pointer[1024];
} lg_grammar_error;

/* The code as the API spells it, "unsupported_keyword"; "" for LG_GRAMMAR_OK. */
const char *lg_grammar_code_name(lg_grammar_code code);

/* The grammar of the JSON values that the schema admits. The text is not needed afterwards. `opt` and `why`
 * may be NULL. On failure *why says code and place (LG_GRAMMAR_OK when memory ran out), and err the sentence
 * for the user, "schema at /a/not: keyword \"not\" is not supported". */
LG_NODISCARD lg_status lg_grammar_schema(lg_str schema, const lg_grammar_options *opt, lg_grammar **out,
                                         lg_grammar_error *why, lg_err *err);
/* Any JSON object. */
LG_NODISCARD lg_status lg_grammar_json_object(const lg_grammar_options *opt, lg_grammar **out, lg_err *err);

/* The texts that the pattern matches as a whole; without quotes. The pattern is ECMA-262 with the `u` flag.
 */
LG_NODISCARD lg_status lg_grammar_regex(lg_str pattern, lg_grammar **out, lg_grammar_error *why, lg_err *err);
/* One of n texts; without quotes. */
LG_NODISCARD lg_status lg_grammar_choice(const lg_str *text, size_t n, lg_grammar **out,
                                         lg_grammar_error *why, lg_err *err);

/* TYPED: arguments follow the schema. ANY: whatever may stand between the name and the end of the call. OFF:
 * not callable; it keeps its number in pointers. */
typedef enum lg_tool_mode { LG_TOOL_TYPED, LG_TOOL_ANY, LG_TOOL_OFF } lg_tool_mode;

/* A tool that may be called. `parameters` is the text of its JSON Schema; empty: it takes none. */
typedef struct lg_grammar_tool {
    lg_str name, parameters;
    lg_tool_mode mode;
} lg_grammar_tool;

/* One call (or up to max_calls in a row) of one of the tools, or, where `schema` is not empty, a value that
 * it admits in place of the calls. A call has the model's own form: the control token tool_call, the name,
 * keys and values, the control token end_tool_call. Arguments are the declared ones, in the order of the
 * schema; an argument that is always a string is raw text, one that never is JSON, any other raw text without
 * constraint. Only the declared names are written, also where additionalProperties would admit more. Pointers
 * in *why begin with /tools/N/function/parameters, those of `schema` with nothing. A name is
 * LG_GRAMMAR_INVALID_SCHEMA when it is empty or holds '<', and so is the name of a parameter that holds '<'.
 */
LG_NODISCARD lg_status lg_grammar_tools(const lg_grammar_tool *tool, size_t n, int max_calls,
                                        const lg_special *special, lg_str schema,
                                        const lg_grammar_options *opt, lg_grammar **out,
                                        lg_grammar_error *why, lg_err *err);
void lg_grammar_destroy(lg_grammar *g); /* takes NULL; after its matchers */
/* Bytes that its automaton and masks take now. */
size_t lg_grammar_bytes(const lg_grammar *g);
/* All that it takes, as of the end of its last matcher; any thread. */
size_t lg_grammar_size(const lg_grammar *g);
/* Bound for the automaton (default 32 MiB); what has grown past it is dropped when a matcher is next asked.
 */
void lg_grammar_limit(lg_grammar *g, size_t bytes);

/* Tables over the ordinary tokens of a vocabulary, which must live as long. LG_E_INPUT when one of the bytes
 * that text can contain is no token of its own: then not every text could be written. */
LG_NODISCARD lg_status lg_token_trie_create(const lg_vocab *v, lg_token_trie **out, lg_err *err);
void lg_token_trie_destroy(lg_token_trie *t);       /* takes NULL */
size_t lg_token_trie_words(const lg_token_trie *t); /* 32-bit words of a mask */

/* FREE: nothing is constrained until <tool_call> comes; the grammar, which is one of calls, follows from
 * there to the end of the call. */
typedef enum lg_phase { LG_PHASE_THINK, LG_PHASE_ANSWER, LG_PHASE_DONE, LG_PHASE_FREE } lg_phase;

/* Grammar and tables are borrowed and outlive the matcher. `start` is THINK while the prompt leaves the
 * reasoning open, else ANSWER; or FREE. One trie a grammar: its masks are kept with it. */
LG_NODISCARD lg_status lg_matcher_create(lg_grammar *g, const lg_token_trie *t, lg_phase start,
                                         lg_matcher **out, lg_err *err);
void lg_matcher_destroy(lg_matcher *m); /* takes NULL */

lg_phase lg_matcher_phase(const lg_matcher *m);
/* Nothing but an end token may come: stop without drawing it. */
bool lg_matcher_must_stop(const lg_matcher *m);
size_t lg_matcher_n(const lg_matcher *m); /* tokens accepted so far */

/* The tokens that may come: bit id of *mask. Valid until the next call on a matcher of this grammar. In THINK
 * all but end tokens, <assistant> and <tool_call>; in DONE the end tokens; in FREE all. LG_E_LIMIT or
 * LG_E_NOMEM: this reply cannot go on. */
LG_NODISCARD lg_status lg_matcher_mask(lg_matcher *m, const uint32_t **mask, lg_err *err);
/* Appends a token. *ok false: it is not legal here and nothing has changed. The end of reasoning, and of the
 * value, take effect between two tokens of one block as well. */
LG_NODISCARD lg_status lg_matcher_accept(lg_matcher *m, int32_t token, bool *ok, lg_err *err);
/* How many of the n tokens are legal one after the other; the state stays. */
LG_NODISCARD lg_status lg_matcher_check(lg_matcher *m, const int32_t *ids, size_t n, size_t *n_ok,
                                        lg_err *err);
/* Tokens that the grammar leaves no choice about, as the tokenizer would write them, appended to *out; they
 * are not accepted yet. Where another token could take part of the forced text and more, the choice is the
 * model's and the token is left out. Possibly none. */
LG_NODISCARD lg_status lg_matcher_forced(lg_matcher *m, const lg_bpe *b, lg_ids *out, lg_err *err);
/* What may come next, for people: up to eight bytes, as in `"}", ",", byte 0xc3`, or "the end". */
LG_NODISCARD lg_status lg_matcher_expected(lg_matcher *m, lg_buf *out, lg_err *err);
/* The coming tokens spell `text` first, in whatever tokens; the last of them may go on behind it. For text
 * that was taken back, so that a better token can be chosen: it must be legal where the matcher stands, in
 * ANSWER, and have at most 65,535 bytes. Copied. End tokens are not legal before its end. At most once. */
LG_NODISCARD lg_status lg_matcher_heal(lg_matcher *m, lg_str text, lg_err *err);
/* Forgets all but the first n tokens; constant time. n is at most lg_matcher_n. */
void lg_matcher_rollback(lg_matcher *m, size_t n);

#endif
