/*
 * server/completions_int: what the files of Completions and /infill share. Not for others.
 */
#ifndef LG_SERVER_COMPLETIONS_INT_H
#define LG_SERVER_COMPLETIONS_INT_H

#include "server/openai.h"
#include "server/request.h"

enum { LG_MAX_PROMPTS = 8 };

/* A string, strings, ids, or arrays of ids -> job->prompt and job->more. Strings are read with control tokens
 * and get the beginning-of-text id; ids are taken as they are. */
LG_NODISCARD lg_status lg_completion_prompts(const lg_service *s, const lg_json *prompt, lg_job *job,
                                             lg_api_error *e);
/* Fill in the middle: job->prompt and the ids that end the reply. `param` names the field that asked for it;
 * `off`: what kind of error it is when this server does not do it. */
LG_NODISCARD lg_status lg_completion_fim(const lg_service *s, lg_str prefix, lg_str suffix, const char *param,
                                         lg_api_kind off, lg_job *job, lg_api_error *e);
/* Sampling of a raw prompt; without a temperature in `body` a fill in the middle is greedy. */
LG_NODISCARD lg_status lg_completion_sampling(const lg_service *s, const lg_json *body, bool fim, lg_job *job,
                                              lg_api_error *e);

#endif
