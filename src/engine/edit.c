/*
 * engine/edit: see edit.h. Pure functions; order of work: heir, masks, damping, lift.
 */
#include "engine/edit.h"

#include <math.h>

void lg_edit_init(lg_edit *e)
{
    *e = (lg_edit){.heir = -1, .lift = -1};
}

bool lg_edit_empty(const lg_edit *e)
{
    return e->n_mask == 0 && e->n_damp == 0 && e->lift < 0;
}

static bool among(const int32_t *ids, int n, int32_t id)
{
    for (int i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

bool lg_edit_row(const lg_edit *e, float *row, int n)
{
    float max = -INFINITY;

    for (int i = 0; e->heir >= 0 && i < e->n_left; i++)
        if (row[e->mask[i]] > row[e->heir])
            row[e->heir] = row[e->mask[i]];
    for (int i = 0; i < e->n_mask; i++)
        row[e->mask[i]] = -INFINITY;
    for (int i = 0; i < e->n_damp; i++)
        row[e->damp[i]] -= e->damp_by;
    if (e->lift < 0)
        return false;
    for (int i = 0; i < n; i++)
        if (row[i] > max)
            max = row[i];
    if (!(row[e->lift] < max - e->gap))
        return false;
    row[e->lift] = max - e->gap;
    return true;
}

// Puts (id, logit) in its place in a descending list of n entries with room for one more; ties to the lower
// id.
static int insert(int32_t *ids, float *logits, int n, int32_t id, float logit)
{
    int at = n;

    while (at > 0 && (logits[at - 1] < logit || (logits[at - 1] == logit && ids[at - 1] > id))) {
        ids[at] = ids[at - 1];
        logits[at] = logits[at - 1];
        at--;
    }
    ids[at] = id;
    logits[at] = logit;
    return n + 1;
}

// Takes an id out of the list; *logit is -inf when it was not there.
static int take(int32_t *ids, float *logits, int n, int32_t id, float *logit)
{
    int at = 0;

    *logit = -INFINITY;
    while (at < n && ids[at] != id)
        at++;
    if (at == n)
        return n;
    *logit = logits[at];
    for (; at + 1 < n; at++) {
        ids[at] = ids[at + 1];
        logits[at] = logits[at + 1];
    }
    return n - 1;
}

// Raises `id` to at least `to`. An entry at or below the floor would tie with unknown tokens: it is left out.
static int raise(int32_t *ids, float *logits, int n, int32_t id, float to, float floor, bool *raised)
{
    float have;

    n = take(ids, logits, n, id, &have);
    *raised = have < to && to > floor;
    if (have < to)
        have = to;
    return have > floor ? insert(ids, logits, n, id, have) : n;
}

int lg_edit_list(const lg_edit *e, int32_t *ids, float *logits, int n, bool *lifted)
{
    float floor = n > 0 ? logits[n - 1] : -INFINITY, left = -INFINITY;
    bool raised;

    *lifted = false;
    for (int i = 0; i < n; i++)
        if (e->heir >= 0 && among(e->mask, e->n_left, ids[i]) && logits[i] > left)
            left = logits[i];
    if (left > -INFINITY)
        n = raise(ids, logits, n, e->heir, left, floor, &raised);
    for (int i = 0; i < e->n_mask; i++) {
        float gone;
        n = take(ids, logits, n, e->mask[i], &gone);
    }
    for (int i = 0; i < e->n_damp; i++) {
        float have;
        n = take(ids, logits, n, e->damp[i], &have);
        if (have - e->damp_by > floor)
            n = insert(ids, logits, n, e->damp[i], have - e->damp_by);
    }
    if (n > 0 && e->lift >= 0)
        n = raise(ids, logits, n, e->lift, logits[0] - e->gap, floor, lifted);
    while (n > 0 && logits[n - 1] <= floor) // their order among tokens outside the list is no longer known
        n--;
    return n;
}
