/*
 * server/runner: the engine thread: loads the model, then runs one job after the other (run.c), and between
 * them what may be prepared (idle.c).
 */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/server_int.h"
#include "server/status.h"

enum { IDLE_MS = 2000 }; // from the end of a turn to the prefill of what follows

static void on_load(void *ctx, uint64_t done, uint64_t total)
{
    lg_server *s = ctx;

    lg_snapshot_load(s->snapshot, done, total);
}

static int64_t count_params(const lg_gguf *g)
{
    int64_t sum = 0;

    for (size_t i = 0; i < lg_gguf_n_tensors(g); i++) {
        const lg_gguf_tensor *t = lg_gguf_tensor_at(g, i);

        // the container reader bounds the product
        sum += (int64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    }
    return sum;
}

static lg_status load(lg_server *s, lg_err *err)
{
    lg_engine_params p = s->p.engine;
    lg_err trie_err = {0};
    lg_service *v = &s->loaded;
    char value[LG_LOG_VALUE];
    bool known = true;

    p.progress = on_load;
    p.progress_ctx = s;
    LG_TRY(lg_engine_open(&p, &s->engine, err));
    *v = s->loading;
    if (lg_engine_trie(s->engine, &v->trie, &trie_err) != LG_OK) {
        LG_WARN("engine", "no-constraints", "reason=%s",
                lg_log_value(lg_str_of(trie_err.msg), value, sizeof value));
        v->trie = NULL;
    }
    v->vocab = lg_engine_vocab(s->engine);
    v->bpe = lg_engine_bpe(s->engine);
    v->family = strcmp(s->set->chat_template, "s21") == 0  ? LG_TEMPLATE_S21
                : strcmp(s->set->chat_template, "v2") == 0 ? LG_TEMPLATE_V2
                                                           : lg_vocab_template(v->vocab, &known);
    if (!known)
        LG_WARN("model", "template",
                "the chat template is none of the known ones; s21 is used, chat_template names another");
    v->n_ctx = lg_engine_plan(s->engine)->ctx;
    v->n_ctx_train = lg_engine_plan(s->engine)->ctx_train;
    v->model_bytes = (int64_t)lg_engine_plan(s->engine)->weight_bytes;
    v->n_params = count_params(lg_engine_gguf(s->engine));
    atomic_store(&s->service, v);
    lg_snapshot_ready(s->snapshot, v->n_ctx);
    atomic_store(&s->last_request_us, lg_now_us()); // idle_exit begins when there is something to ask
    lg_jobs_ready(s->jobs);
    return LG_OK;
}

static int64_t cached_tokens(void *ctx, const lg_job *job, double *work_us)
{
    lg_server *s = ctx;
    const lg_rates *rates = lg_engine_rates(s->engine);
    lg_cache_ask ask = lg_job_ask(job);
    lg_peek peek;

    lg_engine_peek(s->engine, &ask, &peek, s->n_pin < SERVER_PINS ? &s->pin[s->n_pin++] : NULL);
    *work_us = 0;
    if (peek.measured)
        *work_us = peek.prefill_us;
    if (lg_rates_measured(&rates->decode))
        *work_us += (double)job->max_tokens * job->n_choice *
                    lg_rates_decode_us(rates, (int64_t)job->prompt.n + job->max_tokens);
    return peek.cached;
}

static void unpin(lg_server *s)
{
    while (s->n_pin > 0)
        lg_engine_unpin(s->engine, &s->pin[--s->n_pin]);
}

static void forget_last(lg_server *s)
{
    lg_job_release(s->last);
    s->last = NULL;
}

static void serve_jobs(lg_server *s)
{
    bool stop = false;

    while (!stop) {
        unpin(s);
        lg_job *job = lg_jobs_next(s->jobs, s->last ? IDLE_MS : -1, cached_tokens, s, &stop);

        if (!job) {
            if (s->last && !stop)
                lg_idle_prefill(s);
            forget_last(s); // the same history is not prefilled twice
            continue;
        }
        forget_last(s);
        lg_job_hold(job);
        lg_status_keep_prompt(s, job);
        if (lg_run_job(s, job) && s->set->idle_prefill)
            s->last = job;
        else
            lg_job_release(job);
        lg_jobs_done(s->jobs, job);
    }
}

void *lg_runner_main(void *arg)
{
    lg_server *s = arg;
    uint64_t start = lg_now_us();
    char model[LG_LOG_VALUE], device[LG_LOG_VALUE];
    ssize_t n;

    if (load(s, &s->load_err) == LG_OK) {
        LG_INFO("engine", "ready", "model=%s ctx=%lld seconds=%.1f device=%s draft=%s",
                lg_log_value(lg_str_of(s->p.model_id), model, sizeof model), (long long)s->loaded.n_ctx,
                (double)(lg_now_us() - start) / 1e6,
                lg_log_value(lg_str_of(lg_engine_backend(s->engine)->info.name), device, sizeof device),
                lg_engine_drafter(s->engine) ? "yes" : "no");
        serve_jobs(s);
    } else {
        lg_jobs_fail(s->jobs);
    }
    n = write(s->ended_pipe[1], "", 1);
    (void)n;
    return NULL;
}
