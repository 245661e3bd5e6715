/*
 * app/talk: see talk.h.
 */
#include "app/talk.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA_SPARE = 4 << 20 };

void lg_talk_init(lg_talk *t, lg_app *app, lg_engine *e, const lg_asking *asking)
{
    *t = (lg_talk){.app = app, .engine = e, .asking = *asking};
    lg_show_init(&t->show, app->set.color);
}

static void free_msg(lg_talk_msg *m)
{
    free(m->text);
    free(m->thought);
    *m = (lg_talk_msg){0};
}

void lg_talk_clear(lg_talk *t)
{
    while (t->n_msg > 0)
        lg_talk_pop(t);
}

void lg_talk_free(lg_talk *t)
{
    lg_talk_clear(t);
    free(t->msg);
    free(t->system);
    lg_show_free(&t->show);
}

void lg_talk_pop(lg_talk *t)
{
    if (t->n_msg > 0)
        free_msg(&t->msg[--t->n_msg]);
}

static char *copy(lg_str s)
{
    char *p = malloc(s.n + 1);

    if (p) {
        if (s.n > 0)
            memcpy(p, s.p, s.n);
        p[s.n] = '\0';
    }
    return p;
}

lg_status lg_talk_set_system(lg_talk *t, lg_str text, lg_err *err)
{
    char *p = text.p ? copy(text) : NULL;

    if (text.p && !p)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    free(t->system);
    t->system = p;
    return LG_OK;
}

lg_status lg_talk_add(lg_talk *t, lg_role role, lg_str text, lg_str thought, lg_err *err)
{
    lg_talk_msg m = {.role = role, .n_text = text.n, .n_thought = thought.n};

    if (t->n_msg == t->cap_msg) {
        size_t cap = t->cap_msg ? 2 * t->cap_msg : 16;
        lg_talk_msg *grown = realloc(t->msg, cap * sizeof *grown);

        if (!grown)
            return LG_FAIL(err, LG_E_NOMEM, "out of memory");
        t->msg = grown;
        t->cap_msg = cap;
    }
    m.text = copy(text);
    m.thought = thought.p ? copy(thought) : NULL;
    if (!m.text || (thought.p && !m.thought)) {
        free_msg(&m);
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    }
    t->msg[t->n_msg++] = m;
    return LG_OK;
}

const lg_talk_msg *lg_talk_last(const lg_talk *t, lg_role role)
{
    for (size_t i = t->n_msg; i-- > 0;)
        if (t->msg[i].role == role)
            return &t->msg[i];
    return NULL;
}

static size_t total_bytes(const lg_talk *t)
{
    size_t n = t->system ? strlen(t->system) : 0;

    for (size_t i = 0; i < t->n_msg; i++)
        n += t->msg[i].n_text + t->msg[i].n_thought;
    return n;
}

/* The conversation as items; with `go_on` the last answer stays open. All of it lives in the arena. */
static lg_status render(const lg_talk *t, bool thinking, bool go_on, lg_arena *a, lg_rendered *out,
                        lg_err *err)
{
    lg_chat_message *m = LG_NEW_N(a, lg_chat_message, t->n_msg + 1);
    size_t n = 0;

    if (!m)
        return LG_FAIL(err, LG_E_LIMIT, "the conversation is too long");
    if (t->system)
        m[n++] = (lg_chat_message){.role = LG_ROLE_SYSTEM, .content = lg_str_of(t->system)};
    for (size_t i = 0; i < t->n_msg; i++) {
        const lg_talk_msg *from = &t->msg[i];

        m[n++] = (lg_chat_message){.role = from->role, .content = {from->text, from->n_text},
                                   .reasoning = {from->thought, from->n_thought}};
    }
    return lg_chat_render(&(lg_chat){.family = lg_asking_family(&t->asking, lg_engine_vocab(t->engine)),
                                     .thinking = thinking,
                                     .history = t->asking.history,
                                     .generation_prompt = !go_on,
                                     .continue_final = go_on,
                                     .continue_open_think = go_on && t->msg[t->n_msg - 1].open_thought,
                                     .message = m,
                                     .n_message = n},
                          a, out, err);
}

/* Render, encode and run; the answer is in t->show afterwards. */
static lg_status run(lg_talk *t, bool go_on, lg_talk_end *end, lg_err *err)
{
    bool thinking = t->asking.thinking;
    int64_t budget = t->asking.max_think;
    lg_ids ids = {0};
    lg_rendered r;
    lg_arena a;
    lg_status st;

    if (go_on) // as the answer began
        thinking = t->msg[t->n_msg - 1].thought != NULL;
    lg_think_rules(go_on || t->asking.thinking_explicit, t->asking.max_tokens, &thinking, &budget);
    lg_arena_init(&a, ARENA_SPARE + 4 * total_bytes(t));
    st = render(t, thinking, go_on, &a, &r, err);
    if (st == LG_OK)
        st = lg_chat_encode(lg_engine_bpe(t->engine), &r, &ids, err);
    lg_arena_free(&a);
    if (st == LG_OK) {
        t->turn = (lg_turn){.app = t->app, .engine = t->engine, .asking = &t->asking, .thinking = thinking,
                            .max_think = budget, .show = &t->show};
        st = lg_turn_run(&t->turn, &ids, err);
    }
    lg_ids_free(&ids);
    if (st != LG_OK)
        return st;
    if (t->turn.closed)
        *end = LG_TALK_CLOSED;
    else if (t->turn.stats.end != LG_END_CANCELLED)
        *end = LG_TALK_DONE;
    else
        *end = t->turn.stats.output_tokens > 0 ? LG_TALK_STOPPED : LG_TALK_UNASKED;
    return LG_OK;
}

/* thinking: whether the answer began, or went on, inside its thinking; nothing may have come of it yet. */
static void mark_end(lg_talk *t, bool thinking)
{
    lg_talk_msg *m = &t->msg[t->n_msg - 1];

    m->stopped = t->turn.stats.end == LG_END_CANCELLED || t->turn.stats.end == LG_END_LENGTH;
    m->open_thought = m->stopped && (t->show.now == LG_SHOW_THINKING ||
                                     (t->show.now == LG_SHOW_NOTHING && thinking));
}

static lg_str thoughts(const lg_talk *t)
{
    return t->show.reasoning.n > 0 ? lg_buf_str(&t->show.reasoning) : (lg_str){0};
}

lg_status lg_talk_answer(lg_talk *t, lg_talk_end *end, lg_err *err)
{
    LG_TRY(run(t, false, end, err));
    if (*end == LG_TALK_UNASKED)
        return LG_OK;
    LG_TRY(lg_talk_add(t, LG_ROLE_ASSISTANT, lg_buf_str(&t->show.content), thoughts(t), err));
    mark_end(t, false);
    return LG_OK;
}

lg_status lg_talk_ask(lg_talk *t, lg_str text, lg_talk_end *end, lg_err *err)
{
    lg_status st;

    LG_TRY(lg_talk_add(t, LG_ROLE_USER, text, (lg_str){0}, err));
    st = lg_talk_answer(t, end, err);
    if (st != LG_OK || *end == LG_TALK_UNASKED)
        lg_talk_pop(t);
    return st;
}

/* text + more, in memory of its own; NULL without memory. */
static char *joined(const char *text, size_t n, lg_str more, size_t *out)
{
    char *p = malloc(n + more.n + 1);

    if (!p)
        return NULL;
    if (n > 0)
        memcpy(p, text, n);
    if (more.n > 0)
        memcpy(p + n, more.p, more.n);
    p[n + more.n] = '\0';
    *out = n + more.n;
    return p;
}

lg_status lg_talk_go_on(lg_talk *t, lg_talk_end *end, lg_err *err)
{
    lg_talk_msg *m = &t->msg[t->n_msg - 1];
    bool thinking = m->open_thought;
    char *text, *thought;
    size_t n_text, n_thought = 0;

    LG_TRY(run(t, true, end, err));
    if (*end == LG_TALK_UNASKED)
        return LG_OK;
    text = joined(m->text, m->n_text, lg_buf_str(&t->show.content), &n_text);
    thought = m->thought || t->show.reasoning.n > 0
                  ? joined(m->thought, m->n_thought, lg_buf_str(&t->show.reasoning), &n_thought)
                  : NULL;
    if (!text) {
        free(thought);
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    }
    free_msg(m);
    *m = (lg_talk_msg){.role = LG_ROLE_ASSISTANT, .text = text, .n_text = n_text, .thought = thought,
                       .n_thought = n_thought};
    mark_end(t, thinking);
    return LG_OK;
}

lg_status lg_talk_prompt(const lg_talk *t, lg_buf *out, lg_err *err)
{
    lg_rendered r;
    lg_arena a;
    lg_status st;

    lg_arena_init(&a, ARENA_SPARE + 4 * total_bytes(t));
    st = render(t, t->asking.thinking, false, &a, &r, err);
    if (st == LG_OK)
        st = lg_chat_text(&r, lg_engine_vocab(t->engine), out, err);
    lg_arena_free(&a);
    return st;
}

lg_status lg_talk_count(const lg_talk *t, lg_str text, size_t *out, lg_err *err)
{
    lg_ids ids = {0};
    lg_status st = lg_bpe_encode(lg_engine_bpe(t->engine), text, false, &ids, err);

    if (st == LG_OK)
        *out = ids.n;
    lg_ids_free(&ids);
    return st;
}
