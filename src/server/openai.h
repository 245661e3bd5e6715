/*
 * server/openai: what the three OpenAI dialects write alike: model name, counts, times, finish reasons,
 * log-probabilities, and errors inside a stream.
 */
#ifndef LG_SERVER_OPENAI_H
#define LG_SERVER_OPENAI_H

#include "server/dialect.h"
#include "server/jsonw.h"
#include "server/parts.h"

/* A text that grows in an arena. */
typedef struct lg_text {
    char *p;
    size_t n, cap;
} lg_text;
/* False when the arena is full. */
bool lg_text_add(lg_text *t, lg_arena *a, lg_str s);
lg_str lg_text_str(const lg_text *t);

/* The texts of all parts of one kind, joined in the arena; an empty one when there are none. False when the
 * arena is full. */
bool lg_openai_joined(const lg_parts *c, lg_event_kind kind, lg_arena *a, lg_str *out);
/* Calls that ended. */
size_t lg_openai_calls(const lg_parts *c);

/* What a whole job used: the prompt once, the output of all choices. */
typedef struct lg_openai_usage {
    int64_t prompt, cached, output, thinking;
} lg_openai_usage;
/* Add one choice, in the order of their ends. */
void lg_openai_count(lg_openai_usage *u, const lg_gen_stats *s, int choice);

/* "usage": prompt_tokens ... as Chat and Completions spell it. */
void lg_openai_usage_json(lg_jsonw *w, const char *key, const lg_openai_usage *u);
/* The end of the chunk that carries the usage, from inside its "choices", which stay empty. */
void lg_openai_usage_end(lg_jsonw *w, const lg_openai_usage *u);
/* "timings" under the names of llama-server, and "x_lagoon" with the seed that was used. */
void lg_openai_timings_json(lg_jsonw *w, const lg_gen_stats *s);
/* "stop", "length", "tool_calls" */
const char *lg_openai_finish(lg_finish f);
/* The model as the client named it, else the served one. */
lg_str lg_openai_model(const lg_job *job, const char *served);
/* LG_API_INVALID naming a field that we do not serve. */
lg_status lg_openai_refuse(const char *param, lg_api_error *e);
/* One entry of Chat's logprobs.content. */
void lg_openai_logprob_json(lg_jsonw *w, const lg_vocab *v, const lg_job_event *token);
/* One more such entry to a list of them with commas between. False when the arena
 * is full. */
bool lg_openai_add_logprob(lg_text *list, lg_arena *a, const lg_vocab *v, const lg_job_event *token);
/* A log-probability as JSON can carry it. */
double lg_openai_logprob(float v);
/* The error as an event, then the end of the stream (Chat, Completions). */
void lg_openai_fail(lg_job *job, const lg_api_error *e, lg_buf *out);
/* max_completion_tokens > max_tokens > max_output_tokens. *given tells whether one was there. */
LG_NODISCARD lg_status lg_openai_limit(const lg_json *body, int64_t *limit, bool *given, lg_api_error *e);
/* Fields that begin every object: id, created, and whether it streams. */
LG_NODISCARD lg_status lg_openai_start(const lg_json *body, const char *prefix, lg_job *job, lg_api_error *e);

#endif
