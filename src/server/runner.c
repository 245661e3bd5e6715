/*
 * server/runner: the engine thread: loads the model, then runs one job after the other through lg_generate and turns
 * what happens into the job's events.
 *
 * Surprise: a job whose connection has let go runs on only until its cancel flag is seen; nobody reads its events then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/server_int.h"

enum { REPLY_MAX_BYTES = 64 << 20, PROGRESS_US = 500000 };

typedef struct run {
    lg_server *s;
    lg_job *job;
    int choice;
    int64_t uncached;
    uint64_t progress_us;
    lg_buf reasoning; // of the choice, for the replay memory
    struct {
        lg_buf name, args;
        int call;
    } call;           // the one that is being written
    int n_call;
} run;

// --- events ---

static void on_event(void *ctx, const lg_event *ev)
{
    run *r = ctx;

    lg_job_put_reply(r->job, r->choice, ev);
    switch (ev->kind) {
    case LG_EV_REASONING:
        (void)lg_buf_adds(&r->reasoning, ev->text);
        break;
    case LG_EV_TOOL_START:
        r->n_call++;
        break;
    case LG_EV_CONTENT:
    case LG_EV_TOOL_ARGS:
    case LG_EV_TOOL_END: break;
    }
    lg_snapshot_reply(r->s->snapshot, ev->kind);
}

static void on_prefill(void *ctx, size_t done, size_t total)
{
    run *r = ctx;
    uint64_t now = lg_now_us();

    lg_snapshot_prefill(r->s->snapshot, (int64_t)done, (int64_t)total);
    if (r->choice > 0 || (r->progress_us != 0 && done < total && now - r->progress_us < PROGRESS_US))
        return;
    r->progress_us = now;
    lg_job_put_progress(r->job, r->choice, (int64_t)done, (int64_t)total);
}

// --- one job ---

static lg_gen_params params_of(run *r)
{
    const lg_job *job = r->job;
    lg_gen_params p = {
        .sampling = job->sampling,
        .max_tokens = job->max_tokens,
        .max_think = job->max_think,
        .min_think = job->min_think,
        .ban = job->ban,
        .n_ban = job->n_ban,
        .reply = {.family = job->family, .raw = job->raw, .thinking = job->thinking, .tool = job->tool,
                  .n_tool = job->n_tool, .stop = job->stop, .n_stop = job->n_stop, .stop_id = job->stop_id,
                  .n_stop_id = job->n_stop_id, .one_call = job->one_call},
        .max_reply_bytes = REPLY_MAX_BYTES,
        .cancel = &r->job->cancel,
        .event = on_event,
        .prefill = on_prefill,
        .ctx = r,
    };

    p.sampling.seed += (uint64_t)r->choice;
    p.reply.open_reasoning =
        !job->raw && lg_chat_ends_in_reasoning(lg_engine_vocab(r->s->engine), job->prompt.p, job->prompt.n);
    lg_constraint_apply(job->constraint, &p);
    p.grammar_prefix = job->grammar_prefix;
    return p;
}

/* What a cancelled choice ends as. False: as an error. */
static bool settle(const lg_job *job, lg_gen_stats *stats, lg_api_error *e)
{
    if (stats->end != LG_END_CANCELLED)
        return true;
    if (!lg_job_sound(job)) {
        (void)lg_api_fail(e, LG_API_INTERNAL, NULL, "out of memory");
        return false;
    }
    switch (lg_job_cancelled_why(job)) {
    case LG_WHY_TIME:
        LG_WARN("engine", "ceiling", "id=%s out=%lld", lg_job_tag(job), (long long)stats->output_tokens);
        stats->end = LG_END_LENGTH;
        stats->finish = LG_FINISH_LENGTH;
        break;
    case LG_WHY_STOP:
        (void)lg_api_fail(e, LG_API_STOPPING, NULL, "the server is shutting down");
        return false;
    case LG_WHY_CLIENT: break;
    }
    return true;
}

// The prompt of the choice that runs.
static lg_prompt_ids prompt_of(const run *r)
{
    const lg_job *job = r->job;
    size_t each = (size_t)job->n_choice / (1 + job->n_more), which = (size_t)r->choice / each;

    return which > 0 ? job->more[which - 1] : (lg_prompt_ids){job->prompt.p, job->prompt.n};
}

static lg_status run_choice(run *r, lg_gen_stats *stats, lg_api_error *e)
{
    lg_gen_params p = params_of(r);
    lg_prompt_ids prompt = prompt_of(r);
    lg_err err = {0};
    lg_status st;

    lg_buf_clear(&r->reasoning);
    r->n_call = 0;
    st = lg_generate(r->s->engine, prompt.p, prompt.n, &p, stats, NULL, &err);
    if (st != LG_OK) {
        LG_ERROR("engine", "failed", "id=%s error=\"%s%s%s\"", lg_job_tag(r->job), err.subject,
                 err.subject[0] ? ": " : "", err.msg);
        (void)lg_api_from_err(e, &err);
        return st;
    }
    if (!settle(r->job, stats, e))
        return LG_E_CANCELLED;
    if (r->choice == 0) {
        int64_t fresh = stats->prompt_tokens - stats->cached_tokens;
        double prefill = 0, decode = 0;

        if (fresh >= 64 && stats->prefill_us > 0 && stats->end != LG_END_CANCELLED)
            prefill = (double)fresh * 1e6 / (double)stats->prefill_us;
        if (stats->output_tokens >= 8 && stats->decode_us > 0)
            decode = (double)(stats->output_tokens - 1) * 1e6 / (double)stats->decode_us;
        lg_jobs_measured(r->s->jobs, prefill, decode);
    }
    lg_metrics_choice(r->s->metrics, stats, r->n_call, r->choice == 0);
    lg_job_put_choice(r->job, r->choice, stats, -1);
    return LG_OK;
}

static void run_job(lg_server *s, lg_job *job)
{
    run r = {.s = s, .job = job};
    lg_api_error e;
    lg_status st = LG_OK;

    lg_buf_init(&r.reasoning, REPLY_MAX_BYTES);
    lg_snapshot_begin(s->snapshot, job);
    lg_metrics_queue_wait(s->metrics, lg_job_queue_us(job));
    for (r.choice = 0; r.choice < job->n_choice && st == LG_OK; r.choice++) {
        lg_gen_stats stats;

        st = run_choice(&r, &stats, &e);
        if (st == LG_OK && stats.end == LG_END_CANCELLED)
            break;
    }
    if (st == LG_OK)
        lg_job_put_end(job);
    else
        lg_job_put_error(job, &e);
    lg_snapshot_end(s->snapshot, lg_engine_pos(s->engine));
    lg_buf_free(&r.reasoning);
    lg_jobs_done(s->jobs, job);
}

// --- loading ---

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

        sum += (int64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]); // the container reader bounds the product
    }
    return sum;
}

static lg_status load(lg_server *s, lg_err *err)
{
    lg_engine_params p = s->p.engine;
    lg_err trie_err = {0};
    lg_service *v = &s->loaded;
    bool known;

    p.progress = on_load;
    p.progress_ctx = s;
    LG_TRY(lg_engine_open(&p, &s->engine, err));
    if (lg_token_trie_create(lg_engine_vocab(s->engine), &s->trie, &trie_err) != LG_OK) {
        LG_WARN("engine", "no-constraints", "reason=\"%s\"", trie_err.msg);
        s->trie = NULL;
    }
    *v = s->loading;
    v->vocab = lg_engine_vocab(s->engine);
    v->bpe = lg_engine_bpe(s->engine);
    v->trie = s->trie;
    v->family = strcmp(s->set->chat_template, "s21") == 0  ? LG_TEMPLATE_S21
                : strcmp(s->set->chat_template, "v2") == 0 ? LG_TEMPLATE_V2
                                                           : lg_vocab_template(v->vocab, &known);
    v->n_ctx = lg_engine_plan(s->engine)->ctx;
    v->n_ctx_train = lg_engine_plan(s->engine)->ctx_train;
    v->model_bytes = (int64_t)lg_engine_plan(s->engine)->weight_bytes;
    v->n_params = count_params(lg_engine_gguf(s->engine));
    atomic_store(&s->service, v);
    lg_snapshot_ready(s->snapshot, v->n_ctx);
    lg_jobs_ready(s->jobs);
    return LG_OK;
}

static int64_t cached_tokens(void *ctx, const lg_job *job)
{
    lg_server *s = ctx;
    const int32_t *held = lg_engine_tokens(s->engine);
    int64_t n = lg_engine_pos(s->engine), i = 0;

    while (i < n && (size_t)i + 1 < job->prompt.n && held[i] == job->prompt.p[i])
        i++;
    return i;
}

void *lg_runner_main(void *arg)
{
    lg_server *s = arg;
    uint64_t start = lg_now_us();
    bool stop = false;
    ssize_t n;

    if (load(s, &s->load_err) != LG_OK) {
        lg_jobs_fail(s->jobs);
        goto out;
    }
    LG_INFO("engine", "ready", "model=%s ctx=%lld seconds=%.1f device=\"%s\"", s->p.model_id,
            (long long)s->loaded.n_ctx, (double)(lg_now_us() - start) / 1e6,
            lg_engine_backend(s->engine)->info.name);
    while (!stop) {
        lg_job *job = lg_jobs_next(s->jobs, -1, cached_tokens, s, &stop);

        if (job)
            run_job(s, job);
    }
out:
    n = write(s->ended_pipe[1], "", 1);
    (void)n;
    return NULL;
}
