/*
 * engine/prefix_evict: what stays when memory is short: budgets, the value of a cut, slots, retention.
 *
 * What surprises: scores are computed anew for every victim, because removing one cut makes its neighbours
 * dearer. There are a few hundred cuts at most.
 */
#include <stdlib.h>

#include "engine/prefix_int.h"

static const double weight[LG_CUT_KINDS] = {0.5, 1, 1, 2, 2, 4};
static const double live_factor = 8;   // of a cut on the live path
static const double age_scale = 64;    // requests after which a cut is worth half
// The same of a conversation when there are too many. The end of a turn that the next one renders otherwise
// is a leaf too: it goes before another conversation, however old, that costs much more to compute.
static const double slot_age_scale = 16;
static const int most_on_path[LG_CUT_KINDS] = {
    [LG_CUT_SLOT] = 1, [LG_CUT_END] = 2, [LG_CUT_TURN] = 3}; // 0: as many as fit

// --- budget ---

int lg_prefix_spare_blocks(const lg_kv *kv, lg_kv_class_id c)
{
    return kv->cls[c].n_layer > 0 ? kv->cls[c].n_blocks - kv->pool[c].max_live - 1 : 0;
}

int lg_prefix_spare(const lg_kv_class *c, uint64_t budget, int slots, int64_t ctx, bool lazy)
{
    int64_t most = lg_kv_entries(ctx);
    uint64_t n;

    if (c->n_layer == 0)
        return 0;
    if (c->window >
        0) // blocks of a conversation: some cuts at fixed places, and one each LG_PREFIX_STEP tokens
        most = (16 + 2 * ctx / LG_PREFIX_STEP) * lg_kv_cut_room(c);
    n = budget / (lazy ? 1 : 2) / c->block_bytes;
    most *= slots;
    if (most > INT32_MAX / 4)
        most = INT32_MAX / 4;
    return n < (uint64_t)most ? (int)n : (int)most;
}

uint64_t lg_prefix_bytes(const lg_prefix *px)
{
    const lg_kv *kv = px->kv;
    const lg_kv_pool *p = kv->pool;

    return px->own_bytes +
           (uint64_t)(p[LG_KV_FULL].n_kept - p[LG_KV_FULL].n_shared) * kv->cls[LG_KV_FULL].block_bytes +
           (uint64_t)p[LG_KV_WINDOW].n_kept * kv->cls[LG_KV_WINDOW].block_bytes +
           (uint64_t)p[LG_KV_DRAFT].n_kept * kv->cls[LG_KV_DRAFT].block_bytes;
}

static bool fits(const lg_prefix *px, uint64_t bytes, int n_window, int n_draft)
{
    const lg_kv *kv = px->kv;
    const lg_kv_pool *p = kv->pool;

    return lg_prefix_bytes(px) + bytes <= px->p.budget_bytes &&
           p[LG_KV_FULL].n_kept - p[LG_KV_FULL].n_shared <= lg_prefix_spare_blocks(kv, LG_KV_FULL) &&
           p[LG_KV_WINDOW].n_kept + n_window <= lg_prefix_spare_blocks(kv, LG_KV_WINDOW) &&
           p[LG_KV_DRAFT].n_kept + n_draft <= lg_prefix_spare_blocks(kv, LG_KV_DRAFT);
}

// --- value ---

// The cut before c on its path; NULL: there is none.
static const lg_prefix_cut *previous(const lg_prefix_cut *c)
{
    const node *n = c->node;

    if (c->before)
        return c->before;
    for (n = n->parent; n; n = n->parent)
        if (n->last)
            return n->last;
    return NULL;
}

static uint64_t blocks_of_its_own(const lg_kv *kv, lg_kv_class_id c, const int32_t *block, int n)
{
    const lg_kv_pool *p = &kv->pool[c];
    uint64_t own = 0;

    for (int i = 0; i < n; i++)
        own += p->refs[block[i]] - p->in_table[block[i]] == 1;
    return own * kv->cls[c].block_bytes;
}

// Rows of the full class that only this cut keeps alive.
static int64_t rows_that_die(const lg_prefix *px, const lg_prefix_cut *c)
{
    const node *n = c->node;
    int64_t from = c->before ? c->before->kv.pos : n->begin;

    if (n->n_child > 0 || c->after)
        return 0;
    if (n->live) // a leaf on the live path is its end
        from = px->live.end > from ? px->live.end : from;
    return n->end > from ? n->end - from : 0;
}

double lg_prefix_score(const lg_prefix *px, const lg_prefix_cut *c)
{
    const lg_kv *kv = px->kv;
    const lg_prefix_cut *p = previous(c);
    double cost = lg_rates_prefill_us(px->p.rates, p ? p->kv.pos : 0, c->kv.pos);
    double age = (double)(px->clock - c->last_use) / age_scale;
    double bytes = (double)blocks_of_its_own(kv, LG_KV_WINDOW, c->kv.block, c->kv.n) +
                   (double)blocks_of_its_own(kv, LG_KV_DRAFT, c->kv.draft_block, c->kv.draft_n) +
                   (double)rows_that_die(px, c) * ((double)kv->cls[LG_KV_FULL].block_bytes / LG_KV_BLOCK) + 1;
    bool live = c->node->live && (px->live.node != c->node || c->kv.pos <= px->live.end);

    return weight[c->kind] * (1 + (double)c->hits) * cost / bytes / (1 + age) * (live ? live_factor : 1);
}

// --- eviction ---

static void remove_cut(lg_prefix *px, lg_prefix_cut *c)
{
    node *n = c->node;

    lg_prefix_unlink_cut(px, c);
    px->evicted_cuts++;
    lg_prefix_prune(px, n);
}

static bool evict_one(lg_prefix *px)
{
    lg_prefix_cut *worst = NULL;
    double least = 0;

    for (lg_prefix_cut *c = px->cuts; c; c = c->next) {
        double s = c->pins ? 0 : lg_prefix_score(px, c);
        if (c->pins == 0 && (!worst || s < least)) {
            worst = c;
            least = s;
        }
    }
    if (!worst)
        return false;
    remove_cut(px, worst);
    return true;
}

bool lg_prefix_reserve(lg_prefix *px, uint64_t bytes, int n_window, int n_draft, bool evict)
{
    // what can never fit must not cost what is there
    if (bytes > px->p.budget_bytes || n_window > lg_prefix_spare_blocks(px->kv, LG_KV_WINDOW) ||
        n_draft > lg_prefix_spare_blocks(px->kv, LG_KV_DRAFT))
        return false;
    while (!fits(px, bytes, n_window, n_draft))
        if (!evict || !evict_one(px))
            return false;
    return true;
}

void lg_prefix_drop_leaf(lg_prefix *px, node *leaf, int64_t from)
{
    lg_prefix_cut *before;

    for (lg_prefix_cut *c = leaf->last; c && c->kv.pos > from; c = before) {
        before = c->before;
        if (c->pins == 0)
            lg_prefix_unlink_cut(px, c);
    }
    lg_prefix_prune(px, leaf);
}

// A leaf is a conversation, unless it is next to another one: the end of an answer that was not taken up,
// say.
bool lg_prefix_is_slot(const node *n)
{
    return n->n_child == 0 && !n->live && (!n->parent->parent || n->end - n->begin >= LG_PREFIX_BRANCH);
}

static int slots_used(const lg_prefix *px)
{
    int used = px->live.node && px->live.node->parent ? 1 : 0;

    for (const node *n = px->nodes; n; n = n->next)
        used += lg_prefix_is_slot(n);
    return used;
}

static bool pinned(const node *n)
{
    for (const lg_prefix_cut *c = n->first; c; c = c->after)
        if (c->pins)
            return true;
    return false;
}

// What it would take to compute again what only this leaf has; less the longer nobody asked for it.
static double slot_score(const lg_prefix *px, const node *n)
{
    double age = (double)(px->clock - n->last_use) / slot_age_scale;

    return lg_rates_prefill_us(px->p.rates, n->begin, n->end) / (1 + age);
}

// A conversation goes, or as much of it as nobody else has.
static bool evict_slot(lg_prefix *px)
{
    node *worst = NULL;
    double least = 0;

    for (node *n = px->nodes; n; n = n->next) {
        if (!lg_prefix_is_slot(n) || pinned(n))
            continue;
        double s = slot_score(px, n);
        if (!worst || s < least) {
            worst = n;
            least = s;
        }
    }
    if (!worst)
        return false;
    px->evicted_slots++;
    lg_prefix_drop_leaf(px, worst, 0);
    return true;
}

void lg_prefix_settle(lg_prefix *px)
{
    // a short leaf joined with what is above it when its sibling goes may take a slot: memory first
    while (!fits(px, 0, 0, 0) && evict_one(px))
        continue;
    while (slots_used(px) > px->p.slots && evict_slot(px))
        continue;
}

// --- retention ---

void lg_prefix_retire(lg_prefix *px, lg_cut_kind kind)
{
    int left = most_on_path[kind];
    node *n = px->live.node;

    if (left == 0 || !n)
        return;
    for (; n->parent; n = n->parent) {
        if (n->n_child > 1) // what lies above belongs to others too
            return;
        lg_prefix_cut *before;
        for (lg_prefix_cut *c = n->last; c; c = before) {
            before = c->before;
            if (c->kind == kind && c->kv.pos <= px->live.end && left-- <= 0 && c->pins == 0)
                lg_prefix_unlink_cut(px, c); // its node is live: no row dies
        }
    }
}

void lg_prefix_get_stats(const lg_prefix *px, lg_prefix_stats *out)
{
    *out = (lg_prefix_stats){.bytes = lg_prefix_bytes(px),
                             .budget_bytes = px->p.budget_bytes,
                             .slots = slots_used(px),
                             .slots_max = px->p.slots,
                             .n_nodes = px->n_nodes,
                             .n_pins = px->n_pins,
                             .tokens = px->n_tokens,
                             .evicted_cuts = px->evicted_cuts,
                             .evicted_slots = px->evicted_slots};
    for (int k = 0; k < LG_CUT_KINDS; k++)
        out->n_cuts[k] = px->n_cuts[k];
}
