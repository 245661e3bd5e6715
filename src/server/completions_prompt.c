/*
 * server/completions_prompt: raw prompts and fill-in-the-middle prompts -> ids (api.md 6, chat.md 1.5, 1.6).
 *
 * What a client writes around the place to fill is text: no control token in it means anything.
 */
#include <stdio.h>
#include <string.h>

#include "server/completions_int.h"

enum { FIM_STOPS = 3 };

static lg_status no_memory(const lg_job *job, lg_api_error *e)
{
    return lg_api_fail(e, LG_API_INVALID, "prompt", "the request needs more than %zu bytes of memory",
                       job->arena.limit);
}

static lg_status from_err(lg_status st, const lg_err *err, lg_api_error *e)
{
    if (st != LG_OK)
        (void)lg_api_from_err(e, err);
    return st;
}

static lg_status take_ids(const lg_service *s, const lg_json *list, lg_ids *out, lg_api_error *e)
{
    lg_err err = {0};

    for (size_t i = 0; i < lg_json_len(list); i++) {
        int64_t id;
        if (!lg_json_i64(lg_json_at(list, i), &id) || id < 0 || id >= lg_vocab_size(s->vocab))
            return lg_api_fail(e, LG_API_INVALID, "prompt", "prompt must hold ids between 0 and %d",
                               (int)lg_vocab_size(s->vocab) - 1);
        LG_TRY(from_err(lg_ids_add(out, (int32_t)id, &err), &err, e));
    }
    return out->n > 0 ? LG_OK : lg_request_raw_text(s, LG_STR(""), out, e);
}

// One prompt: a string or an array of ids.
static lg_status one_prompt(const lg_service *s, const lg_json *j, lg_ids *out, lg_api_error *e)
{
    if (lg_json_is(j, LG_JSON_STRING))
        return lg_request_raw_text(s, lg_json_str(j), out, e);
    if (lg_json_is(j, LG_JSON_ARRAY))
        return take_ids(s, j, out, e);
    return lg_api_fail(e, LG_API_INVALID, "prompt", "prompt must be text, ids, or an array of either");
}

// The prompts behind the first, in the arena.
static lg_status more_prompts(const lg_service *s, const lg_json *list, lg_job *job, lg_api_error *e)
{
    size_t n = lg_json_len(list) - 1;
    lg_prompt_ids *more = LG_NEW_N(&job->arena, lg_prompt_ids, n);
    lg_status st = more ? LG_OK : no_memory(job, e);

    for (size_t i = 0; i < n && st == LG_OK; i++) {
        lg_ids ids = {0};
        int32_t *p = NULL;
        st = one_prompt(s, lg_json_at(list, i + 1), &ids, e);
        if (st == LG_OK) {
            p = LG_NEW_N(&job->arena, int32_t, ids.n);
            st = p ? LG_OK : no_memory(job, e);
        }
        if (p)
            memcpy(p, ids.p, ids.n * sizeof *p);
        more[i] = (lg_prompt_ids){p, ids.n};
        lg_ids_free(&ids);
    }
    job->more = more;
    job->n_more = n;
    return st;
}

lg_status lg_completion_prompts(const lg_service *s, const lg_json *prompt, lg_job *job, lg_api_error *e)
{
    const lg_json *first = lg_json_at(prompt, 0);
    size_t n = lg_json_len(prompt);

    if (!prompt || lg_json_is(prompt, LG_JSON_NULL))
        return lg_request_raw_text(s, LG_STR(""), &job->prompt, e);
    if (!lg_json_is(prompt, LG_JSON_ARRAY) || n == 0 || lg_json_is(first, LG_JSON_NUMBER))
        return one_prompt(s, prompt, &job->prompt, e);
    if (n > LG_MAX_PROMPTS)
        return lg_api_fail(e, LG_API_INVALID, "prompt", "%zu prompts are too many; at most %d are possible",
                           n, LG_MAX_PROMPTS);
    LG_TRY(one_prompt(s, first, &job->prompt, e));
    return n > 1 ? more_prompts(s, prompt, job, e) : LG_OK;
}

lg_status lg_completion_fim(const lg_service *s, lg_str prefix, lg_str suffix, const char *param,
                            lg_api_kind off, lg_job *job, lg_api_error *e)
{
    const lg_special *sp = lg_vocab_special(s->vocab);
    bool spm = strcmp(s->set->fim_order, "spm") == 0;
    int32_t *stop = LG_NEW_N(&job->arena, int32_t, FIM_STOPS);
    lg_ids *out = &job->prompt;
    lg_err err = {0};
    lg_status st;

    if (strcmp(s->set->fim_order, "off") == 0 || sp->fim_start < 0 || sp->fim_suffix < 0 ||
        sp->fim_middle < 0)
        return lg_api_fail(e, off, param, "model does not support suffix");
    if (!stop)
        return no_memory(job, e);
    out->n = 0;
    st = sp->bos >= 0 ? lg_ids_add(out, sp->bos, &err) : LG_OK;
    if (st == LG_OK)
        st = lg_ids_add(out, sp->fim_start, &err);
    if (st == LG_OK && !spm)
        st = lg_bpe_encode(s->bpe, prefix, false, out, &err);
    if (st == LG_OK)
        st = lg_ids_add(out, sp->fim_suffix, &err);
    if (st == LG_OK)
        st = lg_bpe_encode(s->bpe, suffix, false, out, &err);
    if (st == LG_OK)
        st = lg_ids_add(out, sp->fim_middle, &err);
    if (st == LG_OK && spm)
        st = lg_bpe_encode(s->bpe, prefix, false, out, &err);
    stop[0] = sp->fim_start;
    stop[1] = sp->fim_suffix;
    stop[2] = sp->fim_middle;
    job->stop_id = stop;
    job->n_stop_id = FIM_STOPS;
    return from_err(st, &err, e);
}

lg_status lg_completion_sampling(const lg_service *s, const lg_json *body, bool fim, lg_job *job,
                                 lg_api_error *e)
{
    const lg_json *temperature = lg_json_get(body, "temperature");

    LG_TRY(lg_request_sampling(s, body, "", LG_SAMPLE_ALL, job, e));
    if (fim && (!temperature || lg_json_is(temperature, LG_JSON_NULL)))
        job->sampling.temperature = 0;
    return LG_OK;
}
