/*
 * engine/think: see think.h. The phases only ever advance; a reply that goes back into its reasoning goes on
 * counting where it stopped.
 */
#include "engine/think.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL_LIMIT = 256, BUDGET_MIN = 64 }; // api.md 1.10, 2

static const char wrap_text[] = "\nI have thought about this enough; now I will answer.\n";
static const char *const cue_text[] = {"wait", "but", "hmm", "actually", "alternatively", "however"};

static bool space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

// Whether the text, trimmed and in lower case, is one of the cues.
static bool is_cue(lg_str s)
{
    while (s.n > 0 && space(s.p[0]))
        s = (lg_str){s.p + 1, s.n - 1};
    while (s.n > 0 && space(s.p[s.n - 1]))
        s.n--;
    for (size_t i = 0; i < sizeof cue_text / sizeof *cue_text; i++) {
        size_t k = 0;
        if (strlen(cue_text[i]) != s.n)
            continue;
        while (k < s.n && ((s.p[k] >= 'A' && s.p[k] <= 'Z') ? s.p[k] + 32 : s.p[k]) == cue_text[i][k])
            k++;
        if (k == s.n)
            return true;
    }
    return false;
}

static lg_status find_cues(const lg_vocab *v, lg_think_tables *t, lg_err *err)
{
    lg_ids ids = {0};

    for (int32_t id = 0; id < lg_vocab_size(v); id++) {
        if (lg_vocab_is_added(v, id) || !is_cue(lg_vocab_bytes(v, id)))
            continue;
        lg_status st = lg_ids_add(&ids, id, err);
        if (st != LG_OK) {
            lg_ids_free(&ids);
            return st;
        }
    }
    t->cue = ids.p;
    t->n_cue = (int)ids.n;
    return LG_OK;
}

lg_status lg_think_tables_make(const lg_bpe *b, lg_think_tables *out, lg_err *err)
{
    const lg_vocab *v = lg_bpe_vocab(b);
    const lg_special *sp = lg_vocab_special(v);
    lg_think_tables t = {.end_think = sp->end_think};
    lg_ids ids = {0};
    lg_status st;

    if (sp->eos >= 0)
        t.eog[t.n_eog++] = sp->eos;
    if (sp->eot >= 0 && sp->eot != sp->eos)
        t.eog[t.n_eog++] = sp->eot;
    st = lg_bpe_encode(b, LG_STR(wrap_text), false, &ids, err);
    if (st == LG_OK && ids.n > LG_THINK_WRAP_MAX)
        st = LG_FAIL(err, LG_E_UNSUPPORTED, "this vocabulary needs %zu tokens for one sentence", ids.n);
    if (st == LG_OK) {
        memcpy(t.wrap, ids.p, ids.n * sizeof *ids.p);
        t.n_wrap = (int)ids.n;
        st = find_cues(v, &t, err);
    }
    lg_ids_free(&ids);
    if (st == LG_OK)
        *out = t;
    return st;
}

void lg_think_tables_free(lg_think_tables *t)
{
    free(t->cue);
    *t = (lg_think_tables){0};
}

// What a reply of `limit` tokens keeps for its answer.
static int64_t reserve(int64_t limit)
{
    return limit / 4 > BUDGET_MIN ? limit / 4 : BUDGET_MIN;
}

void lg_think_rules(bool explicitly, int64_t limit, bool *thinking, int64_t *budget)
{
    int64_t keep;

    if (!*thinking || limit <= 0)
        return;
    if (!explicitly && limit < SMALL_LIMIT) {
        *thinking = false;
        return;
    }
    if (*budget < 0)
        return;
    keep = reserve(limit);
    if (*budget + keep <= limit)
        return;
    *budget = limit - keep;
    if (*budget < BUDGET_MIN)
        *budget = -1;
}

void lg_think_init(lg_think *k, const lg_think_tables *t, const lg_vocab *v, int64_t max, int64_t min)
{
    *k = (lg_think){.t = t, .v = v, .max = max, .min = max >= 0 && min > max ? max : min};
}

void lg_think_limit(lg_think *k, int64_t limit)
{
    if (k->max > 0 && limit > reserve(limit))
        k->close_at = limit - reserve(limit) / 2;
}

// Position of n on the way from `from` to `to`, 0 to 1.
static float ramp(int64_t n, double from, double to)
{
    double x = to > from ? ((double)n - from) / (to - from) : 1;

    return (float)(x < 0 ? 0 : x > 1 ? 1 : x);
}

static void mask_eog(const lg_think *k, lg_edit *e, bool to_heir)
{
    // masked ids whose chance goes to the heir must come first
    LG_ASSERT(e->n_left == 0 && e->n_mask + k->t->n_eog < LG_EDIT_MASKS);
    memmove(e->mask + k->t->n_eog, e->mask, (size_t)e->n_mask * sizeof *e->mask);
    memcpy(e->mask, k->t->eog, (size_t)k->t->n_eog * sizeof *e->mask);
    e->n_mask += k->t->n_eog;
    if (to_heir) {
        e->heir = k->t->end_think;
        e->n_left = k->t->n_eog;
    }
}

// Damping and lift of a bound that is coming near.
static void approach(const lg_think *k, lg_edit *e)
{
    double b = (double)k->max, n = (double)k->n;

    if (n >= 0.75 * b) {
        e->damp = k->t->cue;
        e->n_damp = k->t->n_cue;
        e->damp_by = 4.0f * ramp(k->n, 0.75 * b, b);
    }
    if (n >= 0.9 * b) {
        e->lift = k->t->end_think;
        e->gap = 12.0f - 11.0f * ramp(k->n, 0.9 * b, b);
    }
}

// Moves on to the phase that the coming token belongs to.
static void advance(lg_think *k)
{
    if (k->phase == LG_THINK_FREE && k->n >= k->max) {
        k->phase = LG_THINK_WAITING;
        k->step = 0;
    }
    if (k->phase == LG_THINK_WAITING && (k->boundary || k->step >= LG_THINK_WAIT)) {
        k->phase = LG_THINK_WRAPPING;
        k->step = 0;
    }
    if (k->phase == LG_THINK_WRAPPING && k->step >= k->t->n_wrap) {
        k->phase = LG_THINK_GRACING;
        k->step = 0;
    }
}

int32_t lg_think_before(lg_think *k, bool inside, lg_edit *e)
{
    k->forcing = false;
    k->was_inside = inside;
    if (!inside || k->t->end_think < 0)
        return -1;
    if (k->max == 0 || (k->close_at > 0 && k->seen >= k->close_at)) {
        k->forcing = true;
        return k->t->end_think;
    }
    if (k->max > 0)
        advance(k);
    if (k->phase == LG_THINK_WRAPPING || (k->phase == LG_THINK_GRACING && k->step >= LG_THINK_GRACE)) {
        k->forcing = true;
        return k->phase == LG_THINK_WRAPPING ? k->t->wrap[k->step] : k->t->end_think;
    }
    if (k->n < k->min) {
        mask_eog(k, e, false);
        e->mask[e->n_mask++] = k->t->end_think;
        return -1;
    }
    mask_eog(k, e, true);
    if (k->phase == LG_THINK_GRACING) {
        e->lift = k->t->end_think;
        e->gap = 0;
    } else if (k->max > 0 && k->phase == LG_THINK_FREE) {
        approach(k, e);
    }
    return -1;
}

static bool ends_sentence(lg_str s)
{
    return s.n > 0 && strchr(".!?\n", s.p[s.n - 1]) && s.p[s.n - 1];
}

static lg_think_exit how(const lg_think *k, int32_t id, bool lifted)
{
    if (id != k->t->end_think)
        return LG_THINK_NATURAL;
    if (k->forcing)
        return LG_THINK_FORCED;
    if (k->phase == LG_THINK_GRACING)
        return LG_THINK_WRAPPED;
    return lifted ? LG_THINK_LIFTED : LG_THINK_NATURAL;
}

void lg_think_after(lg_think *k, int32_t id, bool lifted, bool inside)
{
    k->seen++;
    if (!k->was_inside)
        return;
    if (k->forcing)
        k->injected++;
    if (!inside) {
        k->exit = how(k, id, lifted);
        return;
    }
    lg_str s = lg_vocab_bytes(k->v, id);
    if (s.n > 0 && !lg_vocab_is_added(k->v, id))
        k->boundary = ends_sentence(s);
    if (k->phase == LG_THINK_FREE || k->phase == LG_THINK_WAITING)
        k->n++;
    if (k->phase != LG_THINK_FREE)
        k->step++;
}
