/*
 * server/parts: see parts.h.
 */
#include "server/parts.h"

#include <string.h>

static lg_reply_part *add_part(lg_parts *c, lg_job *job, lg_event_kind kind)
{
    lg_reply_part *p = LG_NEW(&job->arena, lg_reply_part);

    if (!p) {
        c->full = true;
        return NULL;
    }
    p->kind = kind;
    *(c->last ? &c->last->next : &c->first) = p;
    c->last = p;
    return p;
}

static void add_text(lg_parts *c, lg_job *job, lg_reply_part *p, lg_str s)
{
    if (s.n > p->cap - p->text.n) {
        size_t cap = 2 * (p->text.n + s.n) + 64;
        char *bytes = lg_arena_alloc(&job->arena, cap);
        if (!bytes) {
            c->full = true;
            return;
        }
        if (p->text.n > 0)
            memcpy(bytes, p->text.p, p->text.n);
        p->text.p = bytes;
        p->cap = cap;
    }
    if (s.n > 0)
        memcpy((char *)p->text.p + p->text.n, s.p, s.n);
    p->text.n += s.n;
}

void lg_parts_add(lg_parts *c, lg_job *job, int choice, const lg_event *ev)
{
    lg_reply_part *p = c->last;

    if (c->full)
        return;
    switch (ev->kind) {
    case LG_EV_TOOL_START:
        if (!(p = add_part(c, job, LG_EV_TOOL_START)))
            return;
        p->id = lg_job_call_id(job, choice, ev->call);
        p->name = (lg_str){lg_arena_dup(&job->arena, ev->text.p, ev->text.n), ev->text.n};
        c->full = p->name.p == NULL;
        return;
    case LG_EV_TOOL_ARGS:
    case LG_EV_TOOL_END:
        LG_ASSERT(p && p->kind == LG_EV_TOOL_START);
        p->ended = ev->kind == LG_EV_TOOL_END;
        break;
    default:
        if (!p || p->kind != ev->kind)
            p = add_part(c, job, ev->kind);
    }
    if (p)
        add_text(c, job, p, ev->text);
}
