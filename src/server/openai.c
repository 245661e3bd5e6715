/*
 * server/openai: see openai.h.
 */
#include "server/openai.h"

#include <string.h>
#include <time.h>

#include "server/request.h"

enum { FIRST_CAP = 256 };

bool lg_text_add(lg_text *t, lg_arena *a, lg_str s)
{
    if (s.n == 0)
        return true;
    if (s.n > t->cap - t->n) {
        size_t want, cap;
        char *p;
        if (!lg_add_size(t->n, s.n, &want) || !lg_mul_size(want, 2, &cap))
            return false;
        cap = cap > FIRST_CAP ? cap : FIRST_CAP;
        p = lg_arena_alloc(a, cap);
        if (!p)
            return false;
        if (t->n > 0)
            memcpy(p, t->p, t->n);
        t->p = p;
        t->cap = cap;
    }
    memcpy(t->p + t->n, s.p, s.n);
    t->n += s.n;
    return true;
}

lg_str lg_text_str(const lg_text *t)
{
    return (lg_str){t->p ? t->p : "", t->n};
}

bool lg_openai_joined(const lg_parts *c, lg_event_kind kind, lg_arena *a, lg_str *out)
{
    lg_text all = {0};
    const lg_reply_part *only = NULL;
    int n = 0;

    for (const lg_reply_part *p = c->first; p; p = p->next)
        if (p->kind == kind)
            only = p, n++;
    *out = n == 1 ? only->text : LG_STR("");
    if (n < 2)
        return true;
    for (const lg_reply_part *p = c->first; p; p = p->next)
        if (p->kind == kind && !lg_text_add(&all, a, p->text))
            return false;
    *out = lg_text_str(&all);
    return true;
}

size_t lg_openai_calls(const lg_parts *c)
{
    size_t n = 0;

    for (const lg_reply_part *p = c->first; p; p = p->next)
        n += p->kind == LG_EV_TOOL_START && p->ended;
    return n;
}

void lg_openai_count(lg_openai_usage *u, const lg_gen_stats *s, int choice)
{
    if (choice == 0) {
        u->prompt = s->prompt_tokens;
        u->cached = s->cached_tokens;
    }
    u->output += s->output_tokens;
    u->thinking += s->think_tokens;
}

void lg_openai_usage_json(lg_jsonw *w, const char *key, const lg_openai_usage *u)
{
    lg_jsonw_open(w, key, '{');
    lg_jsonw_int(w, "prompt_tokens", u->prompt);
    lg_jsonw_int(w, "completion_tokens", u->output);
    lg_jsonw_int(w, "total_tokens", u->prompt + u->output);
    lg_jsonw_open(w, "prompt_tokens_details", '{');
    lg_jsonw_int(w, "cached_tokens", u->cached);
    lg_jsonw_close(w, '}');
    lg_jsonw_open(w, "completion_tokens_details", '{');
    lg_jsonw_int(w, "reasoning_tokens", u->thinking);
    lg_jsonw_close(w, '}');
    lg_jsonw_close(w, '}');
}

void lg_openai_usage_end(lg_jsonw *w, const lg_openai_usage *u)
{
    lg_jsonw_close(w, ']');
    lg_openai_usage_json(w, "usage", u);
    lg_jsonw_close(w, '}');
    lg_sse_end(w->out);
}

static void rate(lg_jsonw *w, int64_t n, uint64_t us, const char *ms, const char *each, const char *second)
{
    lg_jsonw_num(w, ms, (double)us / 1e3);
    lg_jsonw_num(w, each, n > 0 ? (double)us / 1e3 / (double)n : 0);
    lg_jsonw_num(w, second, us > 0 ? (double)n * 1e6 / (double)us : 0);
}

void lg_openai_timings_json(lg_jsonw *w, const lg_gen_stats *s)
{
    int64_t fresh = s->prompt_tokens - s->cached_tokens;

    lg_jsonw_open(w, "timings", '{');
    lg_jsonw_int(w, "cache_n", s->cached_tokens);
    lg_jsonw_strz(w, "cache_tier", lg_cache_from_name(s->found.from));
    lg_jsonw_int(w, "prompt_n", fresh);
    rate(w, fresh, s->prefill_us, "prompt_ms", "prompt_per_token_ms", "prompt_per_second");
    lg_jsonw_int(w, "predicted_n", s->output_tokens);
    rate(w, s->output_tokens, s->decode_us, "predicted_ms", "predicted_per_token_ms", "predicted_per_second");
    if (s->draft.drafted > 0) {
        lg_jsonw_int(w, "draft_n", s->draft.drafted);
        lg_jsonw_int(w, "draft_n_accepted", s->draft.accepted);
    }
    lg_jsonw_close(w, '}');
    lg_jsonw_open(w, "x_lagoon", '{');
    lg_jsonw_int(w, "seed", (int64_t)s->seed);
    lg_jsonw_close(w, '}');
}

const char *lg_openai_finish(lg_finish f)
{
    switch (f) {
    case LG_FINISH_LENGTH: return "length";
    case LG_FINISH_TOOL_CALLS: return "tool_calls";
    default: return "stop";
    }
}

lg_str lg_openai_model(const lg_job *job, const char *served)
{
    return job->model.n > 0 ? job->model : lg_str_of(served);
}

lg_status lg_openai_refuse(const char *param, lg_api_error *e)
{
    return lg_api_fail(e, LG_API_INVALID, param, "%s is not supported", param);
}

double lg_openai_logprob(float v)
{
    return v > -9999.0f ? (double)v : -9999.0; // the smallest that the API knows; also for NaN
}

static void token_json(lg_jsonw *w, const lg_vocab *v, int32_t id, float logprob)
{
    lg_str text = lg_vocab_bytes(v, id);

    lg_jsonw_str(w, "token", text);
    lg_jsonw_open(w, "bytes", '[');
    for (size_t i = 0; i < text.n; i++)
        lg_jsonw_int(w, NULL, (unsigned char)text.p[i]);
    lg_jsonw_close(w, ']');
    lg_jsonw_num(w, "logprob", lg_openai_logprob(logprob));
}

void lg_openai_logprob_json(lg_jsonw *w, const lg_vocab *v, const lg_job_event *token)
{
    lg_jsonw_open(w, NULL, '{');
    token_json(w, v, token->token, token->logprob);
    lg_jsonw_open(w, "top_logprobs", '[');
    for (int i = 0; i < token->n_top; i++) {
        lg_jsonw_open(w, NULL, '{');
        token_json(w, v, token->top[i].id, token->top[i].logprob);
        lg_jsonw_close(w, '}');
    }
    lg_jsonw_close(w, ']');
    lg_jsonw_close(w, '}');
}

bool lg_openai_add_logprob(lg_text *list, lg_arena *a, const lg_vocab *v, const lg_job_event *token)
{
    bool ok;
    lg_buf b;
    lg_jsonw w;

    lg_buf_init(&b, 1 << 20);
    w = lg_jsonw_start(&b);
    w.more = list->n > 0;
    lg_openai_logprob_json(&w, v, token);
    ok = !b.failed && lg_text_add(list, a, lg_buf_str(&b));
    lg_buf_free(&b);
    return ok;
}

void lg_openai_fail(lg_job *job, const lg_api_error *e, lg_buf *out)
{
    lg_sse_begin(out, NULL);
    lg_api_error_json(e, LG_SHAPE_OPENAI, job->request_id, out);
    lg_sse_end(out);
    lg_sse_frame(out, NULL, LG_STR("[DONE]"));
}

lg_status lg_openai_limit(const lg_json *body, int64_t *limit, bool *given, lg_api_error *e)
{
    static const char *const key[] = {"max_output_tokens", "max_tokens", "max_completion_tokens"};
    int64_t v = INT64_MIN;

    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        LG_TRY(lg_field_limit(body, "", key[i], -1, &v, e));
    *given = v != INT64_MIN;
    *limit = *given ? v : 0;
    return LG_OK;
}

lg_status lg_openai_start(const lg_json *body, const char *prefix, lg_job *job, lg_api_error *e)
{
    LG_TRY(lg_field_bool(body, "", "stream", &job->stream, e));
    lg_random_id(prefix, job->id, sizeof job->id);
    job->created = (int64_t)time(NULL);
    return LG_OK;
}
