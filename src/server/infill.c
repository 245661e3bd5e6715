/*
 * server/infill: the dialect of POST /infill (api.md 6.2), llama-server's form of fill in the middle. Editors
 * send the text on both sides of the cursor and pieces of other files.
 */
#include <string.h>

#include "server/completions_int.h"

enum { DEFAULT_LIMIT = 128 };

typedef struct state {
    const lg_service *s;
    lg_text text;
    lg_gen_stats *stats;
    bool failed;
} state;

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

// The other files, each behind its name, then the text before the cursor.
static lg_status read_prefix(const lg_json *body, lg_job *job, lg_str *out, lg_api_error *e)
{
    const lg_json *extra = field(body, "input_extra");
    lg_str prefix = {0}, prompt = {0};
    lg_text all = {0};
    bool ok = true;

    LG_TRY(lg_field_str(body, "", "input_prefix", &prefix, e));
    LG_TRY(lg_field_str(body, "", "prompt", &prompt, e));
    if (extra && !lg_json_is(extra, LG_JSON_ARRAY))
        return lg_api_fail(e, LG_API_INVALID, "input_extra", "input_extra must be an array of files");
    for (size_t i = 0; i < lg_json_len(extra); i++) {
        const lg_json *file = lg_json_at(extra, i);
        ok = ok && lg_text_add(&all, &job->arena, lg_json_str(field(file, "filename"))) &&
             lg_text_add(&all, &job->arena, LG_STR("\n")) &&
             lg_text_add(&all, &job->arena, lg_json_str(field(file, "text"))) &&
             lg_text_add(&all, &job->arena, LG_STR("\n\n"));
    }
    ok = ok && lg_text_add(&all, &job->arena, prefix) && lg_text_add(&all, &job->arena, prompt);
    *out = lg_text_str(&all);
    return ok ? LG_OK : lg_api_fail(e, LG_API_INVALID, "input_extra", "the request needs too much memory");
}

static lg_status parse(const lg_service *s, const lg_request *rq, const lg_json *body, lg_job *job,
                       lg_api_error *e)
{
    state *t = LG_NEW(&job->arena, state);
    lg_str prefix, suffix = {0};
    int64_t limit = DEFAULT_LIMIT;

    (void)rq;
    if (!t)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs too much memory");
    t->s = s;
    job->state = t;
    LG_TRY(lg_request_model(s, body, job, e));
    LG_TRY(lg_openai_start(body, "infill-", job, e));
    LG_TRY(lg_completion_sampling(s, body, true, job, e));
    LG_TRY(lg_request_stop(body, "", "stop", job, e));
    LG_TRY(lg_field_limit(body, "", "n_predict", -1, &limit, e));
    LG_TRY(lg_field_str(body, "", "input_suffix", &suffix, e));
    LG_TRY(read_prefix(body, job, &prefix, e));
    LG_TRY(lg_completion_fim(s, prefix, suffix, NULL, LG_API_UNSUPPORTED_SERVICE, job, e));
    return lg_request_raw(s, limit, job, e);
}

static void frame(lg_job *job, lg_str text, bool last, lg_buf *out)
{
    const state *t = job->state;
    lg_jsonw w = lg_jsonw_start(out);

    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_str(&w, "content", text);
    lg_jsonw_bool(&w, "stop", last);
    lg_jsonw_str(&w, "model", lg_openai_model(job, t->s->model_id));
    if (last && t->stats) {
        lg_jsonw_int(&w, "tokens_predicted", t->stats->output_tokens);
        lg_jsonw_int(&w, "tokens_evaluated", t->stats->prompt_tokens);
        lg_jsonw_int(&w, "tokens_cached", t->stats->cached_tokens);
        lg_jsonw_bool(&w, "truncated", false);
        lg_openai_timings_json(&w, t->stats);
    }
    lg_jsonw_close(&w, '}');
}

static void open_stream(lg_job *job, const lg_job_admission *a, lg_buf *out)
{
    (void)job;
    (void)a;
    (void)out; // the first piece of text opens it
}

static void event(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    state *t = job->state;

    if (ev->kind == LG_JOB_CHOICE_END) {
        t->stats = LG_NEW(&job->arena, lg_gen_stats);
        t->failed = t->failed || !t->stats;
        if (t->stats)
            *t->stats = *ev->stats;
    } else if (ev->kind == LG_JOB_REPLY && job->stream) {
        lg_sse_begin(out, NULL);
        frame(job, ev->reply.text, false, out);
        lg_sse_end(out);
    } else if (ev->kind == LG_JOB_REPLY) {
        t->failed = !lg_text_add(&t->text, &job->arena, ev->reply.text) || t->failed;
    }
}

static void finish(lg_job *job, lg_buf *out)
{
    const state *t = job->state;

    out->failed = out->failed || t->failed;
    if (job->stream)
        lg_sse_begin(out, NULL);
    frame(job, lg_text_str(&t->text), true, out);
    if (job->stream)
        lg_sse_end(out);
}

const lg_dialect lg_dialect_infill = {.name = "infill",
                                      .setting = "llama",
                                      .shape = LG_SHAPE_OPENAI,
                                      .ping = LG_PING_COMMENT,
                                      .model_optional = true,
                                      .parse = parse,
                                      .open = open_stream,
                                      .event = event,
                                      .finish = finish,
                                      .fail = lg_openai_fail};
