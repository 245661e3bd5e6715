/*
 * server/status: see status.h.
 */
#include "server/status.h"

#include <time.h>

#include "base/clock.h"
#include "server/jsonw.h"
#include "server/server_int.h"

enum { ROWS = 64 };

void lg_status_health(lg_jobs_state state, lg_buf *out)
{
    static const char *const words[] = {"loading", "ok", "stopping", "failed"};
    static const char *const texts[] = {"Loading model", "", "the server is shutting down",
                                        "the model is not available; see the log"};
    lg_jsonw w = lg_jsonw_start(out);

    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_strz(&w, "status", words[state]);
    if (state != LG_JOBS_READY) {
        lg_jsonw_open(&w, "error", '{');
        lg_jsonw_int(&w, "code", 503);
        lg_jsonw_strz(&w, "message", texts[state]);
        lg_jsonw_strz(&w, "type", "unavailable_error");
        lg_jsonw_close(&w, '}');
    }
    lg_jsonw_close(&w, '}');
}

static bool working(const lg_snapshot *s)
{
    return s->phase == LG_NOW_PREFILL || s->phase == LG_NOW_DECODE;
}

void lg_status_keep_prompt(lg_server *s, const lg_job *job)
{
    if (!s->set->slots_debug)
        return;
    (void)pthread_mutex_lock(&s->shown_lock);
    lg_buf_clear(&s->shown_prompt);
    for (size_t i = 0; i < job->prompt.n; i++)
        (void)lg_buf_adds(&s->shown_prompt, lg_vocab_bytes(s->loaded.vocab, job->prompt.p[i]));
    (void)pthread_mutex_unlock(&s->shown_lock);
}

static void write_prompt(lg_jsonw *w, lg_server *s)
{
    (void)pthread_mutex_lock(&s->shown_lock);
    lg_jsonw_str(w, "prompt", lg_buf_str(&s->shown_prompt));
    (void)pthread_mutex_unlock(&s->shown_lock);
}

// `of` not NULL: with the text of the live one's prompt, where that is wanted.
static void write_slots(lg_jsonw *w, const char *key, const lg_snapshot *s, lg_server *of)
{
    lg_jsonw_open(w, key, '[');
    for (int i = 0; i < s->n_slot || i < 1; i++) {
        bool live = i >= s->n_slot || s->slot[i].live;

        lg_jsonw_open(w, NULL, '{');
        lg_jsonw_int(w, "id", i);
        lg_jsonw_int(w, "n_ctx", s->n_ctx);
        lg_jsonw_bool(w, "is_processing", live && working(s));
        lg_jsonw_int(w, "n_past", live ? s->kv_tokens : s->slot[i].tokens);
        if (i < s->n_slot) {
            lg_jsonw_bool(w, "live", live);
            lg_jsonw_int(w, "n_cuts", s->slot[i].n_cuts);
            lg_jsonw_int(w, "bytes", (int64_t)s->slot[i].bytes);
            lg_jsonw_int(w, "hits", (int64_t)s->slot[i].hits);
            lg_jsonw_int(w, "age", (int64_t)s->slot[i].age);
        }
        if (live && of && of->set->slots_debug)
            write_prompt(w, of);
        lg_jsonw_close(w, '}');
    }
    lg_jsonw_close(w, ']');
}

void lg_status_slots(lg_server *s, lg_buf *out)
{
    lg_jsonw w = lg_jsonw_start(out);
    lg_snapshot now;

    lg_snapshot_read(s->snapshot, &now);
    write_slots(&w, NULL, &now, s);
}

static void write_job(lg_jsonw *w, const lg_snapshot *s, uint64_t now)
{
    static const char *const phases[] = {"loading", "idle", "prefill", "decode"};

    lg_jsonw_open(w, "job", '{');
    lg_jsonw_strz(w, "phase", phases[s->phase]);
    lg_jsonw_num(w, "phase_s", (double)(now - s->since_us) / 1e6);
    if (s->phase == LG_NOW_LOADING) {
        lg_jsonw_int(w, "load_done", (int64_t)s->load_done);
        lg_jsonw_int(w, "load_total", (int64_t)s->load_total);
    }
    if (working(s)) {
        lg_jsonw_strz(w, "id", s->id);
        lg_jsonw_strz(w, "dialect", s->dialect);
        lg_jsonw_strz(w, "client", s->client);
        lg_jsonw_num(w, "running_s", (double)(now - s->job_start_us) / 1e6);
        lg_jsonw_int(w, "prompt", s->prompt);
        lg_jsonw_int(w, "cached", s->cached);
        lg_jsonw_int(w, "prefill_done", s->prefill_done);
        lg_jsonw_int(w, "think", s->tokens[LG_PHASE_REASONING]);
        lg_jsonw_int(w, "answer", s->tokens[LG_PHASE_CONTENT]);
        lg_jsonw_int(w, "tools", s->tokens[LG_PHASE_TOOL]);
        lg_jsonw_int(w, "calls", s->n_call);
    }
    lg_jsonw_close(w, '}');
}

static void write_queue(lg_jsonw *w, lg_jobs *q)
{
    lg_job_row row[ROWS];
    size_t n = lg_jobs_list(q, row, ROWS);

    lg_jsonw_open(w, "queue", '[');
    for (size_t i = 0; i < n && i < ROWS; i++) {
        if (row[i].running)
            continue;
        lg_jsonw_open(w, NULL, '{');
        lg_jsonw_strz(w, "id", row[i].id);
        lg_jsonw_strz(w, "dialect", row[i].dialect);
        lg_jsonw_strz(w, "client", row[i].client);
        lg_jsonw_int(w, "prompt", row[i].prompt);
        lg_jsonw_int(w, "uncached", row[i].uncached);
        lg_jsonw_num(w, "waited_s", (double)row[i].waited_us / 1e6);
        lg_jsonw_int(w, "priority", row[i].priority);
        lg_jsonw_bool(w, "stream", row[i].stream);
        lg_jsonw_close(w, '}');
    }
    lg_jsonw_close(w, ']');
}

static void write_cache(lg_jsonw *w, const lg_cache_stats *c)
{
    lg_jsonw_open(w, "cache", '{');
    lg_jsonw_int(w, "bytes", (int64_t)c->now.bytes);
    lg_jsonw_int(w, "budget_bytes", (int64_t)c->now.budget_bytes);
    lg_jsonw_int(w, "saved_tokens", (int64_t)c->saved_tokens);
    lg_jsonw_open(w, "cuts", '{');
    for (int k = 0; k < LG_CUT_KINDS; k++)
        lg_jsonw_int(w, lg_cut_name((lg_cut_kind)k), c->now.n_cuts[k]);
    lg_jsonw_close(w, '}');
    lg_jsonw_close(w, '}');
}

// What the plan at the start reckoned with, and on what it runs; nothing before the model is there.
static void write_machine(lg_jsonw *w, const lg_server *s)
{
    const lg_plan *p;

    if (atomic_load(&s->service) != &s->loaded)
        return;
    p = lg_engine_plan(s->engine);
    lg_jsonw_open(w, "mem", '{');
    lg_jsonw_int(w, "weights", (int64_t)p->resident_bytes);
    lg_jsonw_int(w, "kv", (int64_t)p->kv_bytes);
    lg_jsonw_int(w, "scratch", (int64_t)p->scratch_bytes);
    lg_jsonw_int(w, "draft", (int64_t)p->draft_bytes);
    lg_jsonw_int(w, "planned", (int64_t)p->total_bytes);
    lg_jsonw_int(w, "available", (int64_t)p->available_bytes);
    lg_jsonw_close(w, '}');
    lg_jsonw_open(w, "device", '{');
    lg_jsonw_strz(w, "name", lg_engine_backend(s->engine)->info.name);
    lg_jsonw_close(w, '}');
}

static void write_recent(lg_jsonw *w, lg_recent *recent)
{
    lg_recent_row row[LG_RECENT];
    lg_recent_sum sum;
    int n = lg_recent_get(recent, row, &sum);

    lg_jsonw_open(w, "ended", '{');
    lg_jsonw_int(w, "ok", (int64_t)sum.ok);
    lg_jsonw_int(w, "cancelled", (int64_t)sum.cancelled);
    lg_jsonw_int(w, "failed", (int64_t)sum.failed);
    lg_jsonw_close(w, '}');
    lg_jsonw_open(w, "requests", '[');
    for (int i = 0; i < n; i++) {
        const lg_recent_row *r = &row[i];

        lg_jsonw_open(w, NULL, '{');
        lg_jsonw_int(w, "t", r->t);
        lg_jsonw_strz(w, "id", r->id[0] ? r->id : NULL);
        lg_jsonw_strz(w, "dialect", r->dialect);
        lg_jsonw_strz(w, "client", r->client);
        lg_jsonw_int(w, "status", r->status);
        lg_jsonw_strz(w, "finish", r->finish);
        lg_jsonw_num(w, "s", (double)r->ms / 1e3);
        if (r->id[0]) {
            lg_jsonw_int(w, "prompt", r->prompt);
            lg_jsonw_int(w, "cached", r->cached);
            lg_jsonw_int(w, "think", r->think);
            lg_jsonw_int(w, "out", r->out);
            lg_jsonw_int(w, "calls", r->calls);
            lg_jsonw_num(w, "queue_s", (double)r->queue_ms / 1e3);
            lg_jsonw_num(w, "ttft_s", (double)r->ttft_ms / 1e3);
            lg_jsonw_num(w, "tok_s", r->tok_s);
            if (r->accept >= 0)
                lg_jsonw_num(w, "accept", r->accept);
        }
        lg_jsonw_close(w, '}');
    }
    lg_jsonw_close(w, ']');
}

void lg_status_json(lg_server *s, lg_buf *out)
{
    static const char *const states[] = {"loading", "ready", "stopping", "failed"};
    lg_jsonw w = lg_jsonw_start(out);
    uint64_t now = lg_now_us();
    lg_snapshot n;

    lg_snapshot_read(s->snapshot, &n);
    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_int(&w, "v", 1);
    lg_jsonw_int(&w, "t", (int64_t)time(NULL));
    lg_jsonw_strz(&w, "version", LG_VERSION);
    lg_jsonw_int(&w, "started", s->loading.created);
    lg_jsonw_strz(&w, "state", states[lg_jobs_get_state(s->jobs)]);
    lg_jsonw_strz(&w, "model", s->p.model_id);
    lg_jsonw_int(&w, "n_ctx", n.n_ctx);
    lg_jsonw_int(&w, "kv_tokens", n.kv_tokens);
    lg_jsonw_int(&w, "jobs", n.n_jobs);
    write_job(&w, &n, now > n.since_us ? now : n.since_us);
    lg_jsonw_int(&w, "queue_capacity", s->set->queue_capacity);
    write_queue(&w, s->jobs);
    write_slots(&w, "slots", &n, NULL);
    write_cache(&w, &n.cache);
    write_machine(&w, s);
    write_recent(&w, s->recent);
    lg_jsonw_close(&w, '}');
}
