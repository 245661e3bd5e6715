/*
 * engine/spec: see spec.h. Engine thread. After opening nothing allocates.
 *
 * What surprises: while drafting rests, the taps of single steps are kept on the host and enter the context
 * many at a time: making context row by row for nobody costs a plain step up to a twentieth. Where even that
 * is dear, only the newest are kept until a draft is near, and none while it is far; the context then begins
 * anew with them.
 */
#include "engine/spec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_int.h"

#define DEAR 0.002 /* of a plain step, for a row of context that may never be used */

enum {
    HELD_MAX = 128, // rows that wait on the host: two blocks, of which a new context loses less than one
    TIMED_MIN = 32, // rows whose time says what one among many costs
};

struct lg_spec {
    lg_gguf *gguf;
    bool borrowed;
    lg_dflash draft;
    lg_dflash_work work;
    int64_t max_ctx; // no drafting past this many tokens; 0: no bound
    float *held; // taps of rows [held_pos, held_pos + n_held)
    int64_t held_pos;
    int n_held, max_held;
    bool holding;  // taps of single rows wait there
    bool skipping; // or are not kept: before the next draft newer ones will be enough
    double row_us; // of one row among many that enter the context; 0: not measured yet
    uint64_t context_ns; // of all since the last ask
    int32_t out_rows[LG_DRAFT_ROWS_MAX];
    lg_pace pace;
};

static lg_status examine(const lg_engine_params *p, const lg_hparams *target, lg_backend *b,
                         lg_spec_plan *out, lg_err *err)
{
    out->borrowed = p->draft_gguf != NULL;
    out->gguf = p->draft_gguf;
    if (!out->borrowed)
        LG_TRY(lg_gguf_open(p->draft_path, &out->gguf, err));
    out->type = p->draft.type;
    out->kv_type = p->kv_type == LG_F32 ? LG_F32 : LG_F16;
    LG_TRY(lg_dflash_read(out->gguf, target, &out->hp, err));
    if (target->vocab < LG_KV_BLOCK)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "drafting needs a vocabulary of %d entries or more",
                       LG_KV_BLOCK);
    return lg_dflash_check(out->gguf, &out->hp, out->type, b, &out->weights, err);
}

lg_status lg_spec_examine(const lg_engine_params *p, const lg_hparams *target, lg_backend *b,
                          lg_spec_plan *out, lg_err *err)
{
    lg_err why = {0};
    lg_status st;

    *out = (lg_spec_plan){0};
    if (!p->draft_path && !p->draft_gguf)
        return LG_OK;
    st = examine(p, target, b, out, &why);
    if (st == LG_OK)
        return LG_OK;
    lg_spec_plan_free(out);
    if (p->draft_required) {
        (void)lg_err_subject(&why, "drafter %s", p->draft_path ? p->draft_path : "");
        *err = why;
        return st;
    }
    LG_WARN("draft", "unusable", "%s: %s; decoding goes on without a drafter",
            *why.subject ? why.subject : (p->draft_path ? p->draft_path : "drafter"), why.msg);
    return LG_OK;
}

void lg_spec_plan_free(lg_spec_plan *s)
{
    if (!s->borrowed)
        lg_gguf_close(s->gguf);
    *s = (lg_spec_plan){0};
}

static size_t tap_floats(const lg_spec *s)
{
    return (size_t)s->draft.hp.n_tap * (size_t)s->draft.hp.hidden;
}

static void configure(lg_spec *s, const lg_draft_params *set)
{
    int most = s->draft.hp.block - 1;

    s->max_ctx = set->ctx;
    lg_pace_init(&s->pace, &(lg_pace_settings){.max = set->max > 0 && set->max < most ? set->max : most,
                                               .p_min = set->p_min,
                                               .pause_margin = set->pause_margin});
}

void lg_engine_set_draft(lg_engine *e, const lg_draft_params *set)
{
    if (e->spec)
        configure(e->spec, set);
}

lg_status lg_spec_open(lg_engine *e, lg_spec_plan *plan, const lg_draft_params *set, lg_spec **out,
                       lg_err *err)
{
    lg_spec *s = calloc(1, sizeof *s);
    lg_status st;

    if (!s)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the drafter");
    s->gguf = plan->gguf;
    s->borrowed = plan->borrowed;
    plan->gguf = NULL;
    st = lg_dflash_load(s->gguf, &plan->hp, plan->type, e->b, &s->draft, err);
    if (st == LG_OK)
        st = lg_dflash_work_create(e->b, &plan->hp, e->work.max_rows, &s->work, err);
    s->max_held = e->work.max_rows < HELD_MAX ? e->work.max_rows : HELD_MAX;
    s->held = st == LG_OK ? malloc((size_t)s->max_held * tap_floats(s) * sizeof *s->held) : NULL;
    if (st == LG_OK && !s->held)
        st = LG_FAIL(err, LG_E_NOMEM, "no memory for the taps of %d rows", s->max_held);
    if (st != LG_OK) {
        lg_spec_close(e, s);
        return st;
    }
    configure(s, set);
    for (int i = 0; i < LG_DRAFT_ROWS_MAX; i++)
        s->out_rows[i] = i;
    *out = s;
    return LG_OK;
}

void lg_spec_close(lg_engine *e, lg_spec *s)
{
    if (!s)
        return;
    lg_dflash_work_release(e->b, &s->work);
    lg_dflash_unload(e->b, &s->draft);
    if (!s->borrowed)
        lg_gguf_close(s->gguf);
    free(s->held);
    free(s);
}

const lg_dflash_params *lg_spec_params(const lg_spec *s)
{
    return &s->draft.hp;
}

lg_pace *lg_spec_pace(lg_spec *s)
{
    return &s->pace;
}

// A step of the drafter's graphs: positions count from the start of its context.
static lg_step draft_step(const lg_engine *e, lg_graph graph, int64_t pos, int n)
{
    int from = (int)(e->kv.draft_from / LG_KV_BLOCK);
    lg_step s = {.graph = graph, .n_rows = n, .pos = pos - e->kv.draft_from};

    s.table[LG_KV_DRAFT] = lg_kv_where(&e->kv, LG_KV_DRAFT) + from;
    s.n_table[LG_KV_DRAFT] = lg_kv_entries(s.pos + n);
    return s;
}

bool lg_spec_wants(const lg_spec *s, int64_t end)
{
    return s && !s->skipping && (s->max_ctx <= 0 || end <= s->max_ctx);
}

// The n rows of taps on the device enter the context at pos.
static lg_status inject(lg_engine *e, int64_t pos, int n, lg_err *err)
{
    lg_spec *s = e->spec;
    uint64_t start = lg_now_ns();
    int skip = lg_kv_draft_skip(&e->kv, pos, n), rows = n - skip;

    if (rows > 0) {
        lg_step step = draft_step(e, LG_GRAPH_INJECT, pos + skip, rows);
        step.n_cand = skip;
        LG_TRY(lg_dflash_inject(e->b, &s->draft, e->kv.cls, &e->work, &s->work, &step, err));
    }
    lg_kv_draft_commit(&e->kv, rows);
    uint64_t ns = lg_now_ns() - start;
    s->context_ns += ns;
    if (rows >= TIMED_MIN && rows <= s->max_held) {
        double us = (double)ns / 1e3 / rows;
        s->row_us = s->row_us == 0 || us < s->row_us ? us : s->row_us + 0.1 * (us - s->row_us);
    }
    return LG_OK;
}

uint64_t lg_spec_context_us(lg_spec *s)
{
    uint64_t us = s->context_ns / 1000;

    s->context_ns = 0;
    return us;
}

// Whether a row of context costs more than it is worth while it may never be used.
static bool are_dear(const lg_spec *s)
{
    return s->pace.set.pause_margin > 0 && s->row_us > DEAR * s->pace.plain_us;
}

void lg_spec_hold(lg_spec *s)
{
    s->holding = true;
    s->skipping = are_dear(s) && lg_pace_rest(&s->pace) > s->max_held;
    if (s->skipping)
        s->n_held = 0;
}

static lg_status inject_held(lg_engine *e, lg_err *err)
{
    lg_spec *s = e->spec;
    int n = s->n_held;
    lg_mem taps = {.p = e->work.taps.p, .bytes = (size_t)n * tap_floats(s) * sizeof(float)};

    s->n_held = 0;
    LG_TRY(e->b->ops->upload(e->b, &taps, 0, s->held, taps.bytes, err));
    return inject(e, s->held_pos, n, err);
}

lg_status lg_spec_flush(lg_engine *e, lg_err *err)
{
    if (!e->spec)
        return LG_OK;
    e->spec->holding = e->spec->skipping = false;
    return e->spec->n_held > 0 ? inject_held(e, err) : LG_OK;
}

lg_status lg_spec_end(lg_engine *e, lg_err *err)
{
    if (e->spec && e->spec->holding && are_dear(e->spec))
        e->spec->n_held = 0;
    return lg_spec_flush(e, err);
}

// The oldest rows that wait make room for newer ones.
static void drop_oldest(lg_spec *s)
{
    int n = (s->n_held + 1) / 2;
    size_t row = tap_floats(s);

    s->n_held -= n;
    s->held_pos += n;
    memmove(s->held, s->held + (size_t)n * row, (size_t)s->n_held * row * sizeof *s->held);
}

lg_status lg_spec_absorb(lg_engine *e, int64_t pos, int n, lg_err *err)
{
    lg_spec *s = e->spec;
    size_t row = tap_floats(s);

    LG_ASSERT(s->n_held == 0 || s->held_pos + s->n_held == pos);
    if (n > 1 || (!s->holding && s->n_held == 0)) {
        LG_ASSERT(s->n_held == 0);
        return inject(e, pos, n, err);
    }
    if (s->n_held == 0)
        s->held_pos = pos;
    LG_TRY(e->b->ops->download(e->b, e->work.taps.p, s->held + (size_t)s->n_held * row,
                               (size_t)n * row * sizeof(float), err));
    s->n_held += n;
    if (s->holding && s->n_held < s->max_held)
        return LG_OK;
    if (s->holding && (are_dear(s) || isinf(lg_pace_rest(&s->pace)))) {
        drop_oldest(s);
        return LG_OK;
    }
    return inject_held(e, err);
}

// Whether a draft would see rows before it: those of the context and on the host, which continue it or,
// behind a gap, begin another one with the next block.
static bool has_context(const lg_engine *e)
{
    const lg_spec *s = e->spec;
    const lg_kv *kv = &e->kv;

    if ((s->n_held > 0 ? s->held_pos : kv->pos) == kv->draft_to && kv->draft_from <= kv->draft_to)
        return true;
    return s->n_held > 0 && (int64_t)lg_kv_entries(s->held_pos) * LG_KV_BLOCK < kv->pos;
}

int lg_spec_room(const lg_engine *e, int64_t room)
{
    const lg_spec *s = e->spec;
    int64_t left = e->plan.ctx - e->kv.pos - 1;
    int rows = e->work.max_rows < e->work.max_out ? e->work.max_rows : e->work.max_out;

    if (!s || !lg_spec_wants(s, e->kv.pos + 1))
        return 0;
    if (!has_context(e))
        return 0;
    if (room > left)
        room = left;
    if (room > rows - 1)
        room = rows - 1;
    if (room > s->draft.hp.block - 1)
        room = s->draft.hp.block - 1;
    return room > 0 ? (int)room : 0;
}

lg_status lg_spec_draft(lg_engine *e, int n, int32_t *ids, float *confidence, atomic_bool *cancel,
                        lg_err *err)
{
    lg_spec *s = e->spec;
    lg_step step;

    LG_TRY(lg_spec_flush(e, err));
    LG_ASSERT(e->kv.draft_to == e->kv.pos && n >= 1 && n < LG_DRAFT_ROWS_MAX);
    LG_TRY(lg_kv_grow(&e->kv, n + 1, err));
    step = draft_step(e, LG_GRAPH_DRAFT, e->kv.pos, n + 1);
    for (int i = 1; i <= n; i++)
        ids[i] = s->draft.hp.mask_id;
    step.ids = ids;
    step.out_rows = s->out_rows + 1; // the first row holds the newest token: it predicts nothing new
    step.n_out = n;
    step.n_cand = 1;
    step.cancel = cancel;
    LG_TRY(lg_dflash_draft(e->b, &s->draft, &e->model, e->kv.cls, &e->work, &s->work, &step, err));
    LG_TRY(e->b->ops->wait(e->b, err));
    e->n_out = 0; // the logits are the drafter's
    memcpy(ids + 1, e->work.cand.ids, (size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++)
        confidence[i] = expf(e->work.cand.logits[i] - e->work.cand.lse[i]);
    return LG_OK;
}

lg_status lg_spec_verify(lg_engine *e, const int32_t *ids, int n, int n_cand, atomic_bool *cancel,
                         lg_err *err)
{
    lg_step step;

    LG_TRY(lg_kv_grow(&e->kv, n, err));
    step = lg_engine_step(e, LG_GRAPH_TARGET, n, cancel);
    step.ids = ids;
    step.out_rows = e->spec->out_rows;
    step.n_out = n;
    step.flags = LG_STEP_TAPS;
    lg_engine_want_candidates(n_cand, NULL, &step);
    e->n_out = 0;
    LG_TRY(lg_laguna_forward(e->b, &e->model, e->kv.cls, &e->work, &step, err));
    LG_TRY(lg_engine_wait(e, err));
    memcpy(e->tokens + e->kv.pos, ids, (size_t)n * sizeof *ids);
    lg_kv_commit(&e->kv, 1);
    e->n_out = n;
    return LG_OK;
}
