/*
 * server/idle: what the engine does while nobody asks: it evaluates the last conversation as it will be
 * rendered when the user speaks next (cache.md 11). Thinking of finished turns is not part of that, so those
 * rows are new.
 *
 * Engine thread. Gives way within a chunk to any request (lg_jobs_idle_cancel).
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/server_int.h"

enum { ARENA_BYTES = 256 << 20 };

/* The history, the answer, and a message of the user's behind it; *cut is where that message starts,
 * in tokens. */
static lg_status render_next(lg_server *s, lg_arena *a, lg_ids *ids, lg_rendered *r, size_t *cut, lg_err *err)
{
    const lg_chat *h = s->last->history;
    size_t n = h->n_message;
    lg_chat_message *m = LG_NEW_N(a, lg_chat_message, n + 2);
    lg_chat c = *h;

    if (!m)
        return LG_FAIL(err, LG_E_LIMIT, "the history is too long");
    memcpy(m, h->message, n * sizeof *m);
    m[n] = (lg_chat_message){.role = LG_ROLE_ASSISTANT, .content = lg_buf_str(&s->last_content)};
    if (s->last_reasoning.n > 0)
        m[n].reasoning = lg_buf_str(&s->last_reasoning);
    m[n + 1] = (lg_chat_message){.role = LG_ROLE_USER, .content = LG_STR(".")}; // an empty one is no turn
    c.message = m;
    c.n_message = n + 2;
    c.generation_prompt = false;
    LG_TRY(lg_chat_render(&c, a, r, err));
    LG_TRY(lg_chat_encode(lg_engine_bpe(s->engine), r, ids, err));
    *cut = 0;
    for (size_t i = 0; i < r->n_mark; i++)
        if (r->mark[i].kind == LG_MARK_MESSAGE && r->mark[i].message == (int)n + 1)
            *cut = r->mark[i].token;
    return LG_OK;
}

static lg_status prefill(lg_server *s, lg_arena *a, const lg_ids *ids, const lg_rendered *r, size_t cut,
                         int64_t *evaluated, lg_err *err)
{
    lg_prompt_mark *mark = LG_NEW_N(a, lg_prompt_mark, r->n_mark);
    lg_cache_ask ask = {.ids = ids->p, .n = cut, .mark = mark, .mode = LG_CACHE_USE, .scope = s->last->scope};

    if (!mark)
        return LG_FAIL(err, LG_E_LIMIT, "the history is too long");
    lg_prompt_marks(r->mark, r->n_mark, mark);
    while (ask.n_mark < r->n_mark && mark[ask.n_mark].token <= (int64_t)cut)
        ask.n_mark++;
    return lg_engine_prefill(s->engine, &ask, lg_jobs_idle_cancel(s->jobs), NULL, NULL, evaluated, err);
}

void lg_idle_prefill(lg_server *s)
{
    uint64_t start = lg_now_us();
    int64_t evaluated = 0;
    lg_rendered r;
    lg_ids ids = {0};
    lg_err err = {0};
    char value[LG_LOG_VALUE];
    lg_arena a;
    size_t cut = 0;
    lg_status st;

    lg_arena_init(&a, ARENA_BYTES);
    st = render_next(s, &a, &ids, &r, &cut, &err);
    if (st == LG_OK && cut > 0)
        st = prefill(s, &a, &ids, &r, cut, &evaluated, &err);
    if (st != LG_OK && st != LG_E_CANCELLED)
        LG_DEBUG("engine", "idle-prefill", "id=%s error=%s", lg_job_tag(s->last),
                 lg_log_value(lg_str_of(err.msg), value, sizeof value));
    else if (evaluated > 0)
        LG_DEBUG("engine", "idle-prefill", "id=%s tokens=%lld of=%zu ms=%llu%s", lg_job_tag(s->last),
                 (long long)evaluated, cut, (unsigned long long)((lg_now_us() - start) / 1000),
                 st == LG_E_CANCELLED ? " gave way" : "");
    lg_ids_free(&ids);
    lg_arena_free(&a);
    lg_snapshot_end(s->snapshot, s->engine);
}
