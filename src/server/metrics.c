/*
 * server/metrics: see metrics.h.
 */
#include "server/metrics.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/route.h"

enum { N_NAME = 32, N_STATUS = 16, N_BUCKET = 16 };

static const int statuses[] = {200, 204, 400, 401, 403, 404, 405, 408,
                               413, 415, 429, 431, 499, 500, 501, 503};
_Static_assert(sizeof statuses / sizeof statuses[0] == N_STATUS, "a column for each status");

typedef struct histogram {
    atomic_ullong bucket[N_BUCKET + 1], count, sum; // sum in the unit of the bounds times 1e6
} histogram;

static const double seconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                 0.5,   1,      2.5,   5,    10,    30,   60,  300};
static const double tokens[] = {16,    64,    256,   512,   1024,  2048,  4096,   8192,
                                12288, 16384, 24576, 32768, 65536, 98304, 131072, 262144};

struct lg_metrics {
    atomic_ullong requests[N_NAME + 1][N_STATUS];
    atomic_ullong prompt, cached, generated, reasoning, prompt_us, decode_us, tool_calls, fallbacks,
        cancelled;
    atomic_ullong drafted, accepted, hits[LG_CACHE_MEMORY + 1], restored[LG_CACHE_MEMORY + 1],
        exits[LG_THINK_FORCED + 1];
    histogram ttft, between, queue, request, length;
};

lg_status lg_metrics_create(lg_metrics **out, lg_err *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? LG_OK : LG_FAIL(err, LG_E_NOMEM, "out of memory");
}

void lg_metrics_destroy(lg_metrics *m)
{
    free(m);
}

static void count(atomic_ullong *c, int64_t n)
{
    if (n > 0)
        atomic_fetch_add_explicit(c, (unsigned long long)n, memory_order_relaxed);
}

static unsigned long long get(atomic_ullong *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

static void observe(histogram *h, const double *bound, double v, int64_t times)
{
    int i = 0;

    while (i < N_BUCKET && v > bound[i])
        i++;
    count(&h->bucket[i], times);
    count(&h->count, times);
    count(&h->sum, (int64_t)(v * 1e6) * times);
}

// Rows of one name share a line; the one behind the last is of paths that are no route.
static size_t name_row(const char *name)
{
    for (size_t i = 0; name && i < N_NAME && lg_route_name(i); i++)
        if (strcmp(lg_route_name(i), name) == 0)
            return i;
    return N_NAME;
}

void lg_metrics_request(lg_metrics *m, const char *name, int status, uint64_t us)
{
    for (size_t i = 0; i < N_STATUS; i++)
        if (statuses[i] == status)
            count(&m->requests[name_row(name)][i], 1);
    if (status == 499)
        count(&m->cancelled, 1);
    observe(&m->request, seconds, (double)us / 1e6, 1);
}

void lg_metrics_queue_wait(lg_metrics *m, uint64_t us)
{
    observe(&m->queue, seconds, (double)us / 1e6, 1);
}

void lg_metrics_choice(lg_metrics *m, const lg_gen_stats *s, int n_call, bool first)
{
    if (first) {
        count(&m->prompt, s->prompt_tokens);
        count(&m->cached, s->cached_tokens);
        count(&m->prompt_us, (int64_t)s->prefill_us);
        count(&m->hits[s->found.from], 1);
        count(&m->restored[s->found.from], s->cached_tokens);
        observe(&m->length, tokens, (double)s->prompt_tokens, 1);
        if (s->output_tokens > 0)
            observe(&m->ttft, seconds, (double)s->first_token_us / 1e6, 1);
    }
    count(&m->generated, s->output_tokens);
    count(&m->reasoning, s->think_tokens);
    count(&m->decode_us, (int64_t)s->decode_us);
    count(&m->tool_calls, n_call);
    count(&m->fallbacks, s->n_fallback);
    count(&m->drafted, s->draft.drafted);
    count(&m->accepted, s->draft.accepted);
    count(&m->exits[s->think_exit], 1);
    if (s->output_tokens > 1)
        observe(&m->between, seconds, (double)s->decode_us / 1e6 / (double)(s->output_tokens - 1),
                s->output_tokens - 1);
}

// --- the text ---

static void head(lg_buf *out, const char *name, const char *type, const char *help)
{
    (void)lg_buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(lg_buf *out, const char *name, const char *type, const char *help, double v)
{
    head(out, name, type, help);
    (void)lg_buf_addf(out, "%s %.15g\n", name, v);
}

static void write_histogram(lg_buf *out, const char *name, const char *help, histogram *h,
                            const double *bound)
{
    unsigned long long sum = 0;

    head(out, name, "histogram", help);
    for (int i = 0; i < N_BUCKET; i++) {
        sum += get(&h->bucket[i]);
        (void)lg_buf_addf(out, "%s_bucket{le=\"%g\"} %llu\n", name, bound[i], sum);
    }
    sum += get(&h->bucket[N_BUCKET]);
    (void)lg_buf_addf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name, sum, name,
                      (double)get(&h->sum) / 1e6, name, sum);
}

static void write_requests(lg_metrics *m, lg_buf *out)
{
    head(out, "lagoon_requests_total", "counter",
         "responses by dialect and status; 499: the client went away");
    for (size_t i = 0; i <= N_NAME; i++)
        for (size_t k = 0; k < N_STATUS; k++)
            if (get(&m->requests[i][k]) > 0)
                (void)lg_buf_addf(out, "lagoon_requests_total{dialect=\"%s\",status=\"%d\"} %llu\n",
                                  i < N_NAME ? lg_route_name(i) : "none", statuses[k],
                                  get(&m->requests[i][k]));
}

static unsigned long long of_status(lg_metrics *m, int status)
{
    unsigned long long sum = 0;

    for (size_t k = 0; k < N_STATUS; k++)
        for (size_t i = 0; statuses[k] == status && i <= N_NAME; i++)
            sum += get(&m->requests[i][k]);
    return sum;
}

static void write_exits(lg_metrics *m, lg_buf *out)
{
    static const char *const names[] = {"none", "natural", "lifted", "wrapped", "forced"};

    head(out, "lagoon_thinking_exit_total", "counter", "replies by how their thinking ended");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)lg_buf_addf(out, "lagoon_thinking_exit_total{phase=\"%s\"} %llu\n", names[i],
                          get(&m->exits[i]));
}

// What is kept, and what had to go.
static void write_kept(const lg_prefix_stats *now, lg_buf *out)
{
    head(out, "lagoon_prefix_cache_bytes", "gauge", "memory of conversations that are not live");
    (void)lg_buf_addf(out, "lagoon_prefix_cache_bytes{tier=\"host\"} %llu\n", (unsigned long long)now->bytes);
    head(out, "lagoon_prefix_cache_budget_bytes", "gauge", "most of it");
    (void)lg_buf_addf(out, "lagoon_prefix_cache_budget_bytes{tier=\"host\"} %llu\n",
                      (unsigned long long)now->budget_bytes);
    one(out, "lagoon_prefix_cache_slots", "gauge", "conversations in memory", now->slots);
    head(out, "lagoon_prefix_cache_cuts", "gauge", "places where a conversation can go on");
    for (int k = 0; k < LG_CUT_KINDS; k++)
        (void)lg_buf_addf(out, "lagoon_prefix_cache_cuts{kind=\"%s\"} %d\n", lg_cut_name((lg_cut_kind)k),
                          now->n_cuts[k]);
    head(out, "lagoon_prefix_cache_evictions_total", "counter",
         "what went for want of memory (a place) or of slots (a conversation)");
    (void)lg_buf_addf(out,
                      "lagoon_prefix_cache_evictions_total{tier=\"host\",reason=\"memory\"} %llu\n"
                      "lagoon_prefix_cache_evictions_total{tier=\"host\",reason=\"slots\"} %llu\n",
                      (unsigned long long)now->evicted_cuts, (unsigned long long)now->evicted_slots);
}

static void write_cache(lg_metrics *m, const lg_snapshot *s, lg_buf *out)
{
    head(out, "lagoon_prefix_cache_hits_total", "counter", "prompts of which a part was cached");
    for (int i = LG_CACHE_LIVE; i <= LG_CACHE_MEMORY; i++)
        (void)lg_buf_addf(out, "lagoon_prefix_cache_hits_total{tier=\"%s\"} %llu\n",
                          lg_cache_from_name((lg_cache_from)i), get(&m->hits[i]));
    one(out, "lagoon_prefix_cache_misses_total", "counter", "prompts of which nothing was cached",
        (double)get(&m->hits[LG_CACHE_NONE]));
    head(out, "lagoon_prefix_cache_restored_tokens_total", "counter", "tokens that were not computed again");
    for (int i = LG_CACHE_LIVE; i <= LG_CACHE_MEMORY; i++)
        (void)lg_buf_addf(out, "lagoon_prefix_cache_restored_tokens_total{tier=\"%s\"} %llu\n",
                          lg_cache_from_name((lg_cache_from)i), get(&m->restored[i]));
    write_kept(&s->cache.now, out);
    one(out, "lagoon_prefix_cache_avoidable_tokens_total", "counter",
        "shared with the cache and computed all the same", (double)s->cache.avoidable_tokens);
}

// The names that dashboards made for llama-server look for.
static void write_llamacpp(lg_metrics *m, double running, double waiting, lg_buf *out)
{
    double prompt = (double)get(&m->prompt) - (double)get(&m->cached),
           prompt_s = (double)get(&m->prompt_us) / 1e6;
    double made = (double)get(&m->generated), made_s = (double)get(&m->decode_us) / 1e6;

    one(out, "llamacpp:prompt_tokens_total", "counter", "prompt tokens processed", prompt);
    one(out, "llamacpp:prompt_seconds_total", "counter", "time of prompt processing", prompt_s);
    one(out, "llamacpp:tokens_predicted_total", "counter", "generated tokens", made);
    one(out, "llamacpp:tokens_predicted_seconds_total", "counter", "time of generation", made_s);
    one(out, "llamacpp:prompt_tokens_seconds", "gauge", "mean prompt tokens a second",
        prompt_s > 0 ? prompt / prompt_s : 0);
    one(out, "llamacpp:predicted_tokens_seconds", "gauge", "mean generated tokens a second",
        made_s > 0 ? made / made_s : 0);
    one(out, "llamacpp:requests_processing", "gauge", "requests that run", running);
    one(out, "llamacpp:requests_deferred", "gauge", "requests that wait", waiting);
}

void lg_metrics_write(lg_metrics *m, const lg_snapshot *s, lg_jobs *q, lg_buf *out)
{
    lg_job_row row;
    size_t all = lg_jobs_list(q, &row, 1);
    double running = all > 0 && row.running ? 1 : 0, waiting = (double)all - running;

    write_requests(m, out);
    one(out, "lagoon_prompt_tokens_total", "counter", "tokens of prompts", (double)get(&m->prompt));
    one(out, "lagoon_prompt_tokens_cached_total", "counter", "of these, found in the cache",
        (double)get(&m->cached));
    one(out, "lagoon_generated_tokens_total", "counter", "tokens of replies", (double)get(&m->generated));
    one(out, "lagoon_reasoning_tokens_total", "counter", "of these, thinking", (double)get(&m->reasoning));
    one(out, "lagoon_prompt_seconds_total", "counter", "time of prefill", (double)get(&m->prompt_us) / 1e6);
    one(out, "lagoon_decode_seconds_total", "counter", "time of decoding", (double)get(&m->decode_us) / 1e6);
    one(out, "lagoon_tool_calls_total", "counter", "tool calls begun", (double)get(&m->tool_calls));
    one(out, "lagoon_tool_call_parse_fallback_total", "counter",
        "calls in a form that is not the model's own: read from JSON, or left as text",
        (double)get(&m->fallbacks));
    one(out, "lagoon_queue_rejected_total", "counter", "requests answered with 429",
        (double)of_status(m, 429));
    one(out, "lagoon_cancelled_total", "counter", "requests whose client went away",
        (double)get(&m->cancelled));
    one(out, "lagoon_draft_tokens_total", "counter", "drafted tokens that were verified",
        (double)get(&m->drafted));
    one(out, "lagoon_draft_accepted_total", "counter", "of these, accepted", (double)get(&m->accepted));
    write_cache(m, s, out);
    write_exits(m, out);
    one(out, "lagoon_requests_running", "gauge", "requests that the engine works on", running);
    one(out, "lagoon_requests_queued", "gauge", "requests that wait", waiting);
    one(out, "lagoon_kv_tokens_used", "gauge", "tokens of the live sequence", (double)s->kv_tokens);
    one(out, "lagoon_kv_tokens_capacity", "gauge", "context length", (double)s->n_ctx);
    one(out, "lagoon_model_loaded", "gauge", "1 when requests are served",
        lg_jobs_get_state(q) == LG_JOBS_READY);
    write_histogram(out, "lagoon_ttft_seconds", "from the start of the work to the first token", &m->ttft,
                    seconds);
    write_histogram(out, "lagoon_inter_token_seconds", "mean time between tokens of a reply", &m->between,
                    seconds);
    write_histogram(out, "lagoon_queue_wait_seconds", "time in the queue", &m->queue, seconds);
    write_histogram(out, "lagoon_request_seconds", "whole requests", &m->request, seconds);
    write_histogram(out, "lagoon_prompt_length_tokens", "prompt lengths", &m->length, tokens);
    write_llamacpp(m, running, waiting, out);
}
