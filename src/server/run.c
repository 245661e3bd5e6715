/*
 * server/run: one job on the engine thread: its choices through lg_generate, and what happens as the job's
 * events.
 *
 * Beside the events a run keeps what outlives it: the ids of each tool call for the replay memory, and the
 * answer's texts for the idle prefill.
 *
 * Surprise: a job whose connection has let go runs on only until its cancel flag is seen; nobody reads its
 * events then.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/server_int.h"

enum { REPLY_MAX_BYTES = 64 << 20, PROGRESS_US = 500000, LOGGED_CONTENT = 700 };

typedef struct run {
    lg_server *s;
    lg_job *job;
    int choice;
    const int32_t *prompt; // of the choice
    size_t n_prompt;
    bool first_of_prompt;
    uint64_t progress_us;
    lg_buf content, reasoning; // of the choice
    // the call that is being written
    lg_buf name, args;
    lg_ids ids;   // from <tool_call> to </tool_call>
    bool in_call; // ids grows
    int n_call;
} run;

// --- what lg_generate reports ---

static void remember_call(run *r, int call)
{
    const char *id = lg_job_call_id(r->job, r->choice, call);
    int32_t end = lg_vocab_special(lg_engine_vocab(r->s->engine))->end_tool_call;

    if (r->ids.n > 0 && r->ids.p[r->ids.n - 1] == end && !r->name.failed && !r->args.failed)
        lg_replay_put(r->s->replay, lg_str_of(id), lg_buf_str(&r->name), lg_buf_str(&r->args), r->ids.p,
                      r->ids.n, lg_buf_str(&r->reasoning));
}

static void on_event(void *ctx, const lg_event *ev)
{
    run *r = ctx;

    lg_job_put_reply(r->job, r->choice, ev);
    switch (ev->kind) {
    case LG_EV_REASONING:
        (void)lg_buf_adds(&r->reasoning, ev->text);
        break;
    case LG_EV_CONTENT:
        (void)lg_buf_adds(&r->content, ev->text);
        break;
    case LG_EV_TOOL_START:
        r->n_call++;
        lg_buf_clear(&r->name);
        lg_buf_clear(&r->args);
        (void)lg_buf_adds(&r->name, ev->text);
        lg_snapshot_call(r->s->snapshot);
        break;
    case LG_EV_TOOL_ARGS:
        (void)lg_buf_adds(&r->args, ev->text);
        break;
    case LG_EV_TOOL_END:
        remember_call(r, ev->call);
        break;
    }
}

static void put_logprobs(run *r, const lg_gen_token *t)
{
    lg_job_event ev = {.kind = LG_JOB_TOKEN, .token = t->id, .logprob = t->logprobs->logprob,
                       .n_top = t->logprobs->n_top};

    for (int i = 0; i < ev.n_top; i++)
        ev.top[i] = (lg_top_logprob){.id = t->logprobs->top[i].id, .logprob = t->logprobs->top[i].logprob};
    lg_job_put_token(r->job, r->choice, &ev);
}

static void on_token(void *ctx, const lg_gen_token *t)
{
    run *r = ctx;
    const lg_vocab *v = lg_engine_vocab(r->s->engine);
    const lg_special *sp = lg_vocab_special(v);

    lg_snapshot_token(r->s->snapshot, t->phase);
    lg_job_count_token(r->job, t->phase == LG_PHASE_REASONING);
    if (t->id == sp->tool_call) {
        r->ids.n = 0;
        r->in_call = true;
    }
    if (r->in_call && lg_ids_add(&r->ids, t->id, NULL) != LG_OK) {
        r->ids.n = 0; // without memory the call is rendered anew when it comes back
        r->in_call = false;
    }
    if (t->id == sp->end_tool_call)
        r->in_call = false;
    if (t->logprobs && !lg_vocab_is_added(v, t->id))
        put_logprobs(r, t);
}

static void on_prefill(void *ctx, size_t done, size_t total)
{
    run *r = ctx;
    uint64_t now = lg_now_us();

    lg_snapshot_prefill(r->s->snapshot, (int64_t)done, (int64_t)total);
    if (r->choice > 0 || (r->progress_us != 0 && done < total && now - r->progress_us < PROGRESS_US))
        return;
    if (r->progress_us == 0) // the first report: nothing has been evaluated yet
        lg_job_count_cached(r->job, (int64_t)done);
    r->progress_us = now;
    lg_job_put_progress(r->job, r->choice, (int64_t)done, (int64_t)total);
}

// --- one choice ---

// Choices are divided evenly among the prompts.
static void take_prompt(run *r)
{
    const lg_job *job = r->job;
    size_t each = (size_t)job->n_choice / (1 + job->n_more), at = (size_t)r->choice / (each ? each : 1);

    r->first_of_prompt = each == 0 || (size_t)r->choice % each == 0;
    if (at == 0 || at > job->n_more) {
        r->prompt = job->prompt.p;
        r->n_prompt = job->prompt.n;
    } else {
        r->prompt = job->more[at - 1].p;
        r->n_prompt = job->more[at - 1].n;
    }
}

static lg_gen_params params_of(run *r)
{
    const lg_job *job = r->job;
    lg_cache_ask ask = lg_job_ask(job);
    bool first_prompt = r->prompt == job->prompt.p;
    lg_gen_params p = {
        .sampling = job->sampling,
        .max_tokens = job->max_tokens,
        .max_think = job->max_think,
        .min_think = job->min_think,
        .ban = job->ban,
        .n_ban = job->n_ban,
        .grammar_prefix = job->grammar_prefix,
        .grammar_heal = job->grammar_heal,
        .reply = {.family = job->family, .raw = job->raw, .thinking = job->thinking, .tool = job->tool,
                  .n_tool = job->n_tool, .stop = job->stop, .n_stop = job->n_stop},
        .max_reply_bytes = REPLY_MAX_BYTES,
        .cancel = &r->job->cancel,
        .event = on_event,
        .prefill = on_prefill,
        .token = on_token,
        .logprobs = job->n_logprobs >= 0,
        .top_logprobs = job->n_logprobs > 0 ? job->n_logprobs : 0,
        .ctx = r,
        .stop_id = job->stop_id,
        .n_stop_id = job->n_stop_id,
        .one_call = job->one_call,
        .mark = first_prompt ? ask.mark : NULL,
        .n_mark = first_prompt ? ask.n_mark : 0,
        .cache = job->cache,
        .scope = job->scope,
    };

    p.sampling.seed += (uint64_t)r->choice;
    p.reply.open_reasoning =
        !job->raw && lg_chat_ends_in_reasoning(lg_engine_vocab(r->s->engine), r->prompt, r->n_prompt);
    lg_constraint_apply(job->constraint, &p);
    p.fast_forward = p.fast_forward && !p.logprobs; // each token needs its own row then
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

// Rates of this choice, for ceilings. Few tokens say little.
static void measure(run *r, const lg_gen_stats *s)
{
    int64_t fresh = s->prompt_tokens - s->cached_tokens;
    double prefill = 0, decode = 0;

    if (fresh >= 64 && s->prefill_us > 0 && s->output_tokens > 0) // else the prefill may have been cut
        prefill = (double)fresh * 1e6 / (double)s->prefill_us;
    if (s->output_tokens >= 8 && s->decode_us > 0)
        decode = (double)(s->output_tokens - 1) * 1e6 / (double)s->decode_us;
    lg_jobs_measured(r->s->jobs, prefill, decode);
}

// Only where log_content asks for it.
static void log_content(const run *r)
{
    char text[LOGGED_CONTENT];

    if (r->s->set->log_content)
        LG_INFO("engine", "content", "id=%s choice=%d answer=%s", lg_job_tag(r->job), r->choice,
                lg_log_value(lg_buf_str(&r->content), text, sizeof text));
}

static lg_status run_choice(run *r, lg_gen_stats *stats, lg_api_error *e)
{
    char line[512], value[600];
    lg_gen_params p;
    lg_err err = {0};
    lg_status st;

    take_prompt(r);
    p = params_of(r);
    lg_buf_clear(&r->content);
    lg_buf_clear(&r->reasoning);
    r->n_call = 0;
    r->ids.n = 0;
    r->in_call = false;
    st = lg_generate(r->s->engine, r->prompt, r->n_prompt, &p, stats, NULL, &err);
    if (st != LG_OK) {
        (void)lg_log_value(lg_str_of(lg_err_line(&err, line, sizeof line)), value, sizeof value);
        if (st == LG_E_INPUT) // the client's to mend
            LG_INFO("engine", "refused", "id=%s error=%s", lg_job_tag(r->job), value);
        else
            LG_ERROR("engine", "failed", "id=%s error=%s", lg_job_tag(r->job), value);
        (void)lg_api_from_err(e, &err);
        if (st == LG_E_DEVICE) // for good: whoever comes is told so at once
            lg_jobs_fail(r->s->jobs);
        return st;
    }
    if (!settle(r->job, stats, e))
        return LG_E_CANCELLED;
    measure(r, stats);
    log_content(r);
    lg_metrics_choice(r->s->metrics, stats, r->n_call, r->first_of_prompt);
    lg_job_put_choice(r->job, r->choice, stats, stats->end == LG_END_STOP_STRING ? stats->stop : -1);
    return LG_OK;
}

// --- the job ---

/* A turn that ended by itself, without calls: the user speaks next. */
static bool user_is_next(const lg_job *job, const lg_gen_stats *s, int n_call)
{
    return job->history && job->n_choice == 1 && !job->history->continue_final &&
           job->cache == LG_CACHE_USE && n_call == 0 && s->end != LG_END_CANCELLED &&
           s->finish == LG_FINISH_STOP;
}

static void keep_texts(run *r)
{
    lg_buf swap = r->s->last_content;

    r->s->last_content = r->content;
    r->content = swap;
    swap = r->s->last_reasoning;
    r->s->last_reasoning = r->reasoning;
    r->reasoning = swap;
}

bool lg_run_job(lg_server *s, lg_job *job)
{
    run r = {.s = s, .job = job};
    lg_gen_stats stats = {.end = LG_END_CANCELLED};
    lg_status st = LG_OK;
    lg_buf *const bufs[] = {&r.content, &r.reasoning, &r.name, &r.args};
    lg_api_error e;
    bool next;

    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        lg_buf_init(bufs[i], REPLY_MAX_BYTES);
    lg_snapshot_begin(s->snapshot, job);
    lg_metrics_queue_wait(s->metrics, lg_job_queue_us(job));
    for (r.choice = 0; r.choice < job->n_choice && st == LG_OK; r.choice++) {
        st = run_choice(&r, &stats, &e);
        if (st == LG_OK && stats.end == LG_END_CANCELLED)
            break;
    }
    if (st == LG_OK)
        lg_job_put_end(job);
    else
        lg_job_put_error(job, &e);
    next = st == LG_OK && user_is_next(job, &stats, r.n_call);
    if (next)
        keep_texts(&r);
    lg_snapshot_end(s->snapshot, s->engine);
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        lg_buf_free(bufs[i]);
    lg_ids_free(&r.ids);
    return next;
}
