/*
 * server/request_chat: the common end of every parse: what a chat-like request or a raw prompt becomes as a
 * job.
 *
 * Surprise: a prompt may be rendered twice. Whether the model thinks depends on the output limit, the limit
 * on the room that the prompt leaves, and the prompt says whether the model thinks.
 */
#include <stdio.h>
#include <string.h>

#include "server/request.h"
#include "server/request_int.h"

enum { DEFAULT_LIMIT = 32768 }; /* max_new_tokens of the checkpoint's generation_config */

/* --- the replay memory --- */

// What the client left out of an assistant turn, or spelled in another way than the model: its reasoning, and
// the ids of its calls.
static lg_status recall_message(const lg_service *s, lg_chat_message *m, lg_arena *a)
{
    lg_chat_call *call = NULL;

    for (size_t i = 0; i < m->n_call; i++) {
        size_t n = 0;
        const int32_t *ids = m->call[i].replay ? NULL : lg_replay_ids(s->replay, &m->call[i], a, &n);
        if (!ids)
            continue;
        if (!call) {
            call = LG_NEW_N(a, lg_chat_call, m->n_call);
            if (!call)
                return LG_E_LIMIT;
            memcpy(call, m->call, m->n_call * sizeof *call);
        }
        call[i].replay = ids;
        call[i].n_replay = n;
    }
    if (call)
        m->call = call;
    if (!m->reasoning.p)
        for (size_t i = 0; i < m->n_call && !m->reasoning.p; i++)
            m->reasoning = lg_replay_reasoning(s->replay, m->call[i].id, a);
    return LG_OK;
}

static lg_status recall(const lg_service *s, lg_chat *c, lg_arena *a)
{
    lg_chat_message *message;

    if (!s->replay || c->n_message == 0)
        return LG_OK;
    message = LG_NEW_N(a, lg_chat_message, c->n_message);
    if (!message)
        return LG_E_LIMIT;
    memcpy(message, c->message, c->n_message * sizeof *message);
    for (size_t i = 0; i < c->n_message; i++)
        if (message[i].role == LG_ROLE_ASSISTANT)
            LG_TRY(recall_message(s, &message[i], a));
    c->message = message;
    return LG_OK;
}

/* --- limits --- */

static lg_status context_exceeded(int64_t n_prompt, int64_t n_ctx, const char *param, lg_api_error *e)
{
    long long p = (long long)n_prompt, n = (long long)n_ctx;

    // agents match on these words to decide that they must compact (api.md 1.8)
    (void)lg_api_fail(
        e, LG_API_INVALID, param,
        "This model's maximum context length is %lld tokens. However, your prompt contains %lld tokens "
        "(prompt is too long: %lld tokens > %lld maximum; the request exceeds the available context "
        "size).",
        n, p, p, n);
    (void)snprintf(e->code, sizeof e->code, "context_length_exceeded");
    e->n_prompt_tokens = n_prompt;
    e->n_ctx = n_ctx;
    return LG_E_INPUT;
}

// The prompt's size against the context; the limit is lowered to what is left. `param`: what made the prompt.
static lg_status fit(const lg_service *s, int64_t limit, const char *param, lg_job *job, lg_api_error *e)
{
    int64_t n = (int64_t)job->prompt.n, room = s->n_ctx - n;

    if (room < 1)
        return context_exceeded(n, s->n_ctx, param, e);
    job->ctx = s->n_ctx;
    job->family = s->family;
    job->max_tokens = limit > 0 && limit < room ? limit : room;
    return LG_OK;
}

static lg_status render(const lg_service *s, const lg_chat *c, lg_job *job, lg_api_error *e)
{
    lg_err err = {0};
    lg_rendered r = {0};
    lg_status st = lg_chat_render(c, &job->arena, &r, &err);

    job->prompt.n = 0;
    if (st == LG_OK)
        st = lg_chat_encode(s->bpe, &r, &job->prompt, &err);
    if (st != LG_OK)
        return lg_api_from_err(e, &err);
    job->mark = r.mark;
    job->n_mark = r.n_mark;
    return LG_OK;
}

// Rendering, limits and thinking, each of which depends on the others.
static lg_status make_prompt(const lg_service *s, const lg_chat_request *r, lg_job *job, lg_api_error *e)
{
    lg_chat *c = r->chat;
    int64_t limit = !r->limit_given ? DEFAULT_LIMIT : r->limit > 0 ? r->limit : 0;
    int64_t budget = r->think.budget;
    bool think = r->think.on && budget != 0;

    lg_think_rules(r->think.explicitly, limit, &think, &budget);
    for (;;) {
        c->thinking = think;
        LG_TRY(render(s, c, job, e));
        if (r->count_only)
            return LG_OK;
        LG_TRY(fit(s, limit, r->param ? r->param : "messages", job, e));
        budget = r->think.budget;
        lg_think_rules(r->think.explicitly, job->max_tokens, &think, &budget);
        if (think == c->thinking)
            break; // else there is too little room to think, and the second prompt says so
    }
    job->thinking = think;
    job->max_think = budget;
    return LG_OK;
}

/* --- tools --- */

// tool_choice none: the tools stay in the prompt, for the prefix cache, but no call can begin.
static lg_status forbid_calls(const lg_service *s, lg_job *job, lg_api_error *e)
{
    int32_t id = lg_vocab_special(s->vocab)->tool_call;
    lg_logit_bias *bias;
    size_t n = (size_t)job->sampling.n_bias;

    if (id < 0)
        return LG_OK;
    bias = LG_NEW_N(&job->arena, lg_logit_bias, n + 1);
    if (!bias)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs more than %zu bytes of memory",
                           job->arena.limit);
    if (n > 0)
        memcpy(bias, job->sampling.bias, n * sizeof *bias);
    bias[n] = (lg_logit_bias){id, -100};
    job->sampling.bias = bias;
    job->sampling.n_bias = (int)(n + 1);
    return LG_OK;
}

static lg_status take_tools(const lg_service *s, const lg_chat_request *r, lg_job *job, lg_api_error *e)
{
    bool none = r->choice.mode == LG_CHOICE_NONE;

    r->chat->tool = r->tools ? r->tools->canonical : NULL;
    r->chat->n_tool = r->tools ? r->tools->n : 0;
    job->one_call = !r->choice.parallel;
    if (r->chat->n_tool == 0)
        return LG_OK;
    if (none)
        return r->count_only ? LG_OK : forbid_calls(s, job, e);
    job->tool = r->tools->tool;
    job->n_tool = r->tools->n;
    return LG_OK;
}

lg_status lg_request_chat(const lg_service *s, const lg_chat_request *r, lg_job *job, lg_api_error *e)
{
    lg_chat *c = r->chat;

    c->family = s->family;
    c->history = r->think.history;
    LG_TRY(take_tools(s, r, job, e));
    if (!r->count_only)
        LG_TRY(lg_request_constrain(s, r, job, e));
    if (recall(s, c, &job->arena) != LG_OK)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs more than %zu bytes of memory",
                           job->arena.limit);
    LG_TRY(make_prompt(s, r, job, e));
    if (r->count_only)
        return LG_OK;
    job->history = c;
    return lg_request_prefix(s, r, job, e);
}

lg_status lg_request_raw_text(const lg_service *s, lg_str text, lg_ids *out, lg_api_error *e)
{
    int32_t bos = lg_vocab_special(s->vocab)->bos;
    lg_err err = {0};

    if (lg_bpe_encode(s->bpe, text, true, out, &err) != LG_OK)
        return lg_api_from_err(e, &err);
    if (bos >= 0 && (out->n == 0 || out->p[0] != bos)) {
        if (lg_ids_add(out, bos, &err) != LG_OK)
            return lg_api_from_err(e, &err);
        memmove(out->p + 1, out->p, (out->n - 1) * sizeof *out->p);
        out->p[0] = bos;
    }
    return out->n > 0 ? LG_OK
                      : lg_api_fail(e, LG_API_INVALID, "prompt",
                                    "prompt must not be empty: this vocabulary has no begin token");
}

lg_status lg_request_raw(const lg_service *s, int64_t limit, lg_job *job, lg_api_error *e)
{
    LG_TRY(fit(s, limit, "prompt", job, e));
    job->raw = true;
    job->max_think = -1;
    return LG_OK;
}
