/*
 * server/status: see status.h.
 */
#include "server/status.h"

#include <time.h>

#include "base/clock.h"
#include "server/jsonw.h"

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

static void write_slots(lg_jsonw *w, const char *key, const lg_snapshot *s)
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
        lg_jsonw_close(w, '}');
    }
    lg_jsonw_close(w, ']');
}

void lg_status_slots(const lg_snapshot *s, lg_buf *out)
{
    lg_jsonw w = lg_jsonw_start(out);

    write_slots(&w, NULL, s);
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

void lg_status_json(const lg_snapshot *s, lg_jobs *q, const char *model_id, lg_buf *out)
{
    lg_jsonw w = lg_jsonw_start(out);
    uint64_t now = lg_now_us();
    lg_job_row row[ROWS];
    size_t n = lg_jobs_list(q, row, ROWS);

    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_int(&w, "v", 1);
    lg_jsonw_int(&w, "t", (int64_t)time(NULL));
    lg_jsonw_strz(&w, "model", model_id);
    lg_jsonw_int(&w, "n_ctx", s->n_ctx);
    lg_jsonw_int(&w, "kv_tokens", s->kv_tokens);
    lg_jsonw_int(&w, "jobs", s->n_jobs);
    write_job(&w, s, now > s->since_us ? now : s->since_us);
    lg_jsonw_open(&w, "queue", '[');
    for (size_t i = 0; i < n && i < ROWS; i++) {
        if (row[i].running)
            continue;
        lg_jsonw_open(&w, NULL, '{');
        lg_jsonw_strz(&w, "id", row[i].id);
        lg_jsonw_strz(&w, "dialect", row[i].dialect);
        lg_jsonw_strz(&w, "client", row[i].client);
        lg_jsonw_int(&w, "prompt", row[i].prompt);
        lg_jsonw_int(&w, "uncached", row[i].uncached);
        lg_jsonw_num(&w, "waited_s", (double)row[i].waited_us / 1e6);
        lg_jsonw_int(&w, "priority", row[i].priority);
        lg_jsonw_bool(&w, "stream", row[i].stream);
        lg_jsonw_close(&w, '}');
    }
    lg_jsonw_close(&w, ']');
    write_slots(&w, "slots", s);
    lg_jsonw_open(&w, "cache", '{');
    lg_jsonw_int(&w, "bytes", (int64_t)s->cache.now.bytes);
    lg_jsonw_int(&w, "budget_bytes", (int64_t)s->cache.now.budget_bytes);
    lg_jsonw_int(&w, "saved_tokens", (int64_t)s->cache.saved_tokens);
    lg_jsonw_close(&w, '}');
    lg_jsonw_close(&w, '}');
}
