/*
 * fuzz/body: a request body of one dialect: any bytes that are JSON go through parse; what is accepted must
 * be a job that the engine could run, and a reply to it must come out as well-formed JSON in both forms.
 */
#ifndef FUZZ_BODY_H
#define FUZZ_BODY_H

#include "support/dialects.h"

enum { BODY_MAX = 1 << 16 };

static inline void body_check_frame(void *ctx, lg_str name, lg_str data)
{
    const lg_json_limits lim = {.max_bytes = 1 << 24, .max_depth = 600};
    lg_json_doc *doc = NULL;

    (void)name;
    (void)ctx;
    if (lg_str_eqz(data, "[DONE]"))
        return;
    LG_ASSERT(lg_json_parse(data, &lim, &doc, NULL) == LG_OK);
    lg_json_free(doc);
}

static inline void body_check_job(const lg_job *job)
{
    const lg_service *s = dk_service();

    LG_ASSERT(job->prompt.n > 0 && job->max_tokens > 0);
    LG_ASSERT((int64_t)job->prompt.n + job->max_tokens <= s->n_ctx);
    for (size_t i = 0; i < job->prompt.n; i++)
        LG_ASSERT(job->prompt.p[i] >= 0 && job->prompt.p[i] < lg_vocab_size(s->vocab));
    LG_ASSERT(job->n_choice >= 1 && job->n_choice <= 8 && job->min_think >= 0);
    LG_ASSERT(job->sampling.temperature >= 0 && job->sampling.top_p >= 0 && job->sampling.top_p <= 1);
}

// One body, in one form. Returns whether it was accepted.
static inline bool body_run(const lg_dialect *d, const uint8_t *data, size_t n, bool stream)
{
    // reasoning, text, a call with a value of each kind, text again; then the end
    static const dk_script script = {
        .text =
            "r\xC3\xA9\x13 text \x19ls<arg_key>path</arg_key><arg_value>\"/a\\\n</arg_value><arg_key>n</arg_key>"
            "<arg_value>12</arg_value>\x1A"
            "more STOP\x18",
        .end = LG_END_EOG};
    const lg_json_limits lim = {.max_bytes = BODY_MAX, .max_depth = 512, .repair = true};
    lg_request rq = {.method = LG_STR("POST")};
    lg_api_error e = {0};
    lg_job *job = NULL;
    lg_buf out;
    bool accepted;

    LG_ASSERT(lg_job_create((size_t)1 << 24, &job, NULL) == LG_OK);
    job->dialect = d;
    if (lg_json_parse((lg_str){(const char *)data, n}, &lim, &job->doc, NULL) != LG_OK ||
        !lg_json_is(lg_json_root(job->doc), LG_JSON_OBJECT)) {
        lg_job_release(job);
        return false;
    }
    accepted = d->parse(dk_service(), &rq, lg_json_root(job->doc), job, &e) == LG_OK;
    LG_ASSERT(accepted || (e.message[0] && lg_api_status(&e) >= 400 && lg_api_status(&e) < 500));
    lg_buf_init(&out, 1 << 24);
    if (accepted) {
        body_check_job(job);
        job->stream = stream;
        dk_play(job, &script, &out);
        if (stream)
            (void)dk_each_event(lg_buf_str(&out), body_check_frame, NULL);
        else
            body_check_frame(NULL, LG_STR(""), lg_buf_str(&out));
    } else {
        lg_api_error_json(&e, d->shape, "req_0", &out);
        body_check_frame(NULL, LG_STR(""), lg_buf_str(&out));
    }
    lg_buf_free(&out);
    lg_job_release(job);
    return accepted;
}

#endif
