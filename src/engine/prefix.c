/*
 * engine/prefix: see prefix.h. Matching, the live sequence's coming and going, cuts, pins; the tree itself is
 * in prefix_tree.c, what must go in prefix_evict.c.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/prefix_int.h"

const char *lg_cut_name(lg_cut_kind k)
{
    static const char *const name[LG_CUT_KINDS] = {"step", "slot", "end", "branch", "turn", "sys"};

    return name[k];
}

lg_status lg_prefix_create(const lg_prefix_params *p, lg_prefix **out, lg_err *err)
{
    lg_prefix *px = calloc(1, sizeof *px);
    size_t n = (size_t)lg_kv_entries(p->kv->ctx);

    LG_ASSERT(p->slots >= 1);
    if (!px)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the prefix cache");
    px->p = *p;
    px->kv = p->kv;
    if (px->p.min_tokens <= 0)
        px->p.min_tokens = LG_PREFIX_MIN_TOKENS;
    if (px->p.step <= 0)
        px->p.step = LG_PREFIX_STEP;
    px->full = malloc(n * sizeof *px->full);
    if (!px->full) {
        free(px);
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the prefix cache");
    }
    *out = px;
    return LG_OK;
}

void lg_prefix_destroy(lg_prefix *px)
{
    if (!px)
        return;
    lg_prefix_set_live(px, NULL, NULL, 0);
    for (lg_prefix_cut *c = px->cuts; c; c = c->next)
        c->pins = 0;
    while (px->nodes) { // any leaf
        node *n = px->nodes;
        while (n->n_child > 0)
            n = n->child[0];
        lg_prefix_drop_leaf(px, n, 0);
    }
    LG_ASSERT(!px->roots && px->own_bytes == 0);
    free(px->full);
    free(px);
}

// --- matching ---

// The deepest cut of the path to n from which a prompt can resume that shares lcp tokens with it.
static lg_prefix_cut *deepest_cut(node *n, int64_t lcp, int64_t most)
{
    int64_t end = (lcp < most ? lcp : most) + 1; // a cut serves the row before it too

    for (int i = 0; lcp == n->end && end > lcp && i < n->n_child; i++)
        if (n->child[i]->first && n->child[i]->first->kv.pos == end)
            return n->child[i]->first;
    for (; n; n = n->parent)
        for (lg_prefix_cut *c = n->last; c; c = c->before)
            if (c->kv.pos <= end)
                return c;
    return NULL;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// How many tokens of the prompt the live sequence begins with.
static int64_t live_common(const lg_prefix *px, uint64_t scope, const int32_t *ids, int64_t n)
{
    int64_t i = 0, held = min64(px->kv->pos, n);

    if (px->live.detached || (px->live.root ? px->live.root->scope : 0) != scope)
        return 0;
    while (held - i >= 256 && memcmp(px->p.tokens + i, ids + i, 256 * sizeof *ids) == 0)
        i += 256;
    while (i < held && px->p.tokens[i] == ids[i])
        i++;
    return i;
}

// parked: as it will be when the live sequence has been parked, which can then be resumed at its end only.
static void find(const lg_prefix *px, uint64_t scope, const int32_t *ids, int64_t n, int64_t most,
                 bool parked, lg_prefix_match *out)
{
    root *r = lg_prefix_root((lg_prefix *)px, scope, false);
    lg_prefix_match m = {0};
    int64_t live = live_common(px, scope, ids, n);

    if (r) {
        node *at = lg_prefix_walk(r, ids, n, &m.lcp);
        m.cut = deepest_cut(at, m.lcp, most);
        m.k = m.cut ? min64(m.cut->kv.pos, min64(m.lcp, most)) : 0;
        for (m.beyond = at->end; at->n_child > 0; m.beyond = at->end) {
            node *newest = at->child[0];
            for (int i = 1; i < at->n_child; i++)
                if (at->child[i]->last_use > newest->last_use)
                    newest = at->child[i];
            at = newest;
        }
    }
    if (live > m.lcp)
        m.lcp = live;
    if (live > 0 && px->kv->pos > m.beyond)
        m.beyond = px->kv->pos;
    if (parked && live + 1 < px->kv->pos) // a cut serves the row before it too
        live = 0;
    live = min64(live, most);
    if (live > 0 && live >= m.k && lg_kv_holds(px->kv, live)) { // at the same depth a length change is less
        m.cut = NULL;
        m.live = true;
        m.k = live;
    }
    *out = m;
}

void lg_prefix_find(const lg_prefix *px, uint64_t scope, const int32_t *ids, int64_t n, int64_t most,
                    lg_prefix_match *out)
{
    find(px, scope, ids, n, most, false, out);
}

void lg_prefix_find_parked(const lg_prefix *px, uint64_t scope, const int32_t *ids, int64_t n, int64_t most,
                           lg_prefix_match *out)
{
    find(px, scope, ids, n, most, true, out);
}

// --- pins ---

void lg_prefix_unpin(lg_prefix *px, lg_prefix_pin *pin)
{
    if (!pin->cut)
        return;
    LG_ASSERT(pin->cut->pins > 0);
    pin->cut->pins--;
    px->n_pins--;
    pin->cut = NULL;
}

static void pin_cut(lg_prefix *px, lg_prefix_pin *pin, lg_prefix_cut *c)
{
    c->pins++;
    px->n_pins++;
    pin->cut = c;
}

// The cut at position q of the live path, or NULL.
static lg_prefix_cut *live_cut(const lg_prefix *px, int64_t q)
{
    if (!px->live.node || q > px->live.end)
        return NULL;
    for (lg_prefix_cut *c = lg_prefix_node_at(px->live.node, q)->first; c; c = c->after)
        if (c->kv.pos == q)
            return c;
    return NULL;
}

// --- cuts ---

// Blocks of a class that only the table holds and that a cut at q keeps.
static int new_blocks(const lg_kv *kv, lg_kv_class_id c, int64_t q)
{
    const lg_kv_pool *p = &kv->pool[c];
    int64_t from = q - kv->cls[c].window;
    int n = 0;

    for (int64_t i = from > 0 ? from / LG_KV_BLOCK : 0; kv->cls[c].n_layer > 0 && i < lg_kv_entries(q); i++)
        n += p->table[i] >= 0 && p->refs[p->table[i]] == 1;
    return n;
}

// force: for a sequence of any length.
static lg_prefix_cut *take_cut(lg_prefix *px, int64_t q, lg_cut_kind kind, bool force)
{
    lg_kv *kv = px->kv;
    int room = lg_kv_cut_room(&kv->cls[LG_KV_WINDOW]);
    bool evict = force || px->live.prompt >= px->p.min_tokens, draft = true;
    lg_prefix_cut *c = live_cut(px, q);

    if (c) {
        px->n_cuts[c->kind]--;
        if (kind > c->kind)
            c->kind = kind;
        px->n_cuts[c->kind]++;
        c->last_use = px->clock;
        return c;
    }
    if (px->live.detached || q > px->live.end || !lg_kv_can_cut(kv, q))
        return NULL;
    int n_w = new_blocks(kv, LG_KV_WINDOW, q), n_d = new_blocks(kv, LG_KV_DRAFT, q);
    uint64_t bytes = lg_prefix_cut_bytes(kv) + (uint64_t)n_w * kv->cls[LG_KV_WINDOW].block_bytes,
             more = (uint64_t)n_d * kv->cls[LG_KV_DRAFT].block_bytes;
    if (!lg_prefix_reserve(px, bytes + more, n_w, n_d, evict)) {
        draft = false; // the drafter's rows are a bonus
        if (n_d == 0 || !lg_prefix_reserve(px, bytes, n_w, 0, evict))
            return NULL;
    }
    c = calloc(1, lg_prefix_cut_bytes(kv));
    if (!c)
        return NULL;
    c->kind = kind;
    c->last_use = px->clock;
    c->kv.block = c->block;
    c->kv.draft_block = c->block + room;
    lg_kv_cut_at(kv, q, draft, &c->kv);
    lg_prefix_link_cut(px, lg_prefix_node_at(px->live.node, q), c);
    return c;
}

bool lg_prefix_cut_at(lg_prefix *px, int64_t q, lg_cut_kind kind)
{
    lg_prefix_cut *c = take_cut(px, q, kind, false);

    if (c)
        lg_prefix_retire(px, c->kind);
    return c != NULL;
}

lg_cut_kind lg_prefix_cut_kind(const lg_prefix_cut *c)
{
    return c->kind;
}

int64_t lg_prefix_step(const lg_prefix *px)
{
    return px->p.step;
}

int64_t lg_prefix_last_cut(const lg_prefix *px, int64_t pos)
{
    const node *n = px->live.node;

    if (px->live.detached)
        return 0;
    for (; n; n = n->parent)
        for (const lg_prefix_cut *c = n->last; c; c = c->before)
            if (c->kv.pos <= pos && c->kv.pos <= px->live.end)
                return c->kv.pos;
    return 0;
}

void lg_prefix_pin_match(lg_prefix *px, const lg_prefix_match *m, lg_prefix_pin *pin)
{
    lg_prefix_cut *c = m->cut;

    if (c)
        c->pins++; // not lost while another is let go or made
    lg_prefix_unpin(px, pin);
    if (!c && m->live && m->k > 0) {
        lg_prefix_commit(px, px->kv->pos);
        c = take_cut(px, m->k, LG_CUT_SLOT, true);
        if (c)
            c->pins++;
    }
    if (c) {
        c->pins--;
        pin_cut(px, pin, c);
    }
}

// --- the live sequence ---

void lg_prefix_commit(lg_prefix *px, int64_t end)
{
    LG_ASSERT(end <= px->kv->pos);
    if (!px->live.detached)
        (void)lg_prefix_insert_live(px, end); // where memory is short the rows stay out of the tree
}

// The cut that lets the sequence be resumed at its end, where that saves at least so many rows.
static void cut_end(lg_prefix *px, int64_t least)
{
    int64_t end = px->live.end;

    if (px->live.prompt >= px->p.min_tokens && end - lg_prefix_last_cut(px, end) >= least &&
        take_cut(px, end, LG_CUT_SLOT, false))
        lg_prefix_retire(px, LG_CUT_SLOT);
}

// The live path is another one now; what nobody needs of its old end goes.
static void change_path(lg_prefix *px, root *r, node *n, int64_t end)
{
    node *old = px->live.node && px->live.node->parent ? px->live.node : NULL;
    int64_t old_end = px->live.end;
    bool was_short = px->live.prompt < px->p.min_tokens;

    lg_prefix_set_live(px, r, n, end);
    if (!old)
        return;
    // a short one goes whole, unless it is the beginning of a longer one
    if (was_short && old->n_child == 0 && !(old->last && old->last->kv.pos > old_end))
        lg_prefix_drop_leaf(px, old, old->live ? end : 0);
    else
        lg_prefix_prune(px, old);
}

static void resume_at(lg_prefix *px, const lg_prefix_cut *c, int64_t k)
{
    lg_prefix_blocks(lg_prefix_node_at(c->node, k), k, px->full);
    lg_kv_resume(px->kv, k, px->full, &c->kv);
    for (const node *n = lg_prefix_node_at(c->node, k); n->parent; n = n->parent)
        memcpy(px->p.tokens + n->begin, n->tok, (size_t)(min64(n->end, k) - n->begin) * sizeof *n->tok);
}

void lg_prefix_adopt(lg_prefix *px, uint64_t scope, const lg_prefix_match *m, int64_t n_prompt)
{
    lg_prefix_cut *c = m->cut;
    bool stays = m->live && m->k == px->kv->pos;

    if (c)
        c->pins++; // the cut at the old end must not push it out
    if (!px->live.detached && !stays) {
        lg_prefix_commit(px, px->kv->pos);
        // a small step back is a retry or an edit of what was just written: nobody returns to it
        cut_end(px, m->live ? LG_PREFIX_BRANCH : 1);
    }
    px->clock++;
    if (m->live && !px->live.detached) {
        (void)lg_kv_truncate(px->kv, m->k);
        if (px->live.node)
            change_path(px, px->live.root, lg_prefix_node_at(px->live.node, m->k), min64(px->live.end, m->k));
    } else if (c) {
        resume_at(px, c, m->k);
        c->hits++;
        c->last_use = px->clock;
        change_path(px, c->node->root, lg_prefix_node_at(c->node, m->k), m->k);
        px->live.detached = false;
    } else {
        root *r = lg_prefix_root(px, scope, true);
        (void)lg_kv_truncate(px->kv, 0);
        change_path(px, r, r ? &r->top : NULL, 0);
        px->live.detached = !r; // no memory for a root: nothing can be stored
    }
    px->live.prompt = n_prompt;
    if (c)
        c->pins--;
    lg_prefix_settle(px);
}

int64_t lg_prefix_truncate(lg_prefix *px, int64_t pos)
{
    node *old;

    if (px->live.detached)
        return lg_kv_truncate(px->kv, pos);
    lg_prefix_commit(px, px->kv->pos);
    old = px->live.node;
    if (!lg_kv_holds(px->kv, pos)) {
        lg_prefix_cut *c = old ? deepest_cut(old, min64(pos, px->live.end), pos) : NULL;
        pos = c ? min64(c->kv.pos, pos) : 0;
        if (c)
            resume_at(px, c, pos);
    }
    pos = lg_kv_truncate(px->kv, pos);
    if (!old)
        return pos;
    for (node *n = old; n->parent && n->end > pos; n = n->parent)
        for (lg_prefix_cut *c = n->last, *before; c && c->kv.pos > pos; c = before) {
            before = c->before;
            if (c->pins == 0 &&
                c->kv.pos <= px->live.end) // what lies behind the end is another conversation's
                lg_prefix_unlink_cut(px, c);
        }
    change_path(px, px->live.root, lg_prefix_node_at(old, pos), min64(px->live.end, pos));
    lg_prefix_settle(px);
    return pos;
}

void lg_prefix_detach(lg_prefix *px)
{
    if (px->live.detached)
        return;
    lg_prefix_commit(px, px->kv->pos);
    change_path(px, NULL, NULL, 0);
    px->live.detached = true;
    lg_prefix_settle(px);
}

void lg_prefix_park(lg_prefix *px, lg_prefix_pin *pin)
{
    lg_prefix_unpin(px, pin);
    if (px->live.detached)
        return;
    lg_prefix_commit(px, px->kv->pos);
    lg_prefix_cut *c = px->live.end > 0 ? take_cut(px, px->live.end, LG_CUT_SLOT, true) : NULL;
    if (c)
        pin_cut(px, pin, c);
    lg_prefix_detach(px);
}

void lg_prefix_unpark(lg_prefix *px, lg_prefix_pin *pin)
{
    lg_prefix_match m = {.cut = pin->cut, .k = pin->cut ? pin->cut->kv.pos : 0};
    int64_t prompt = px->live.prompt;
    uint64_t scope = pin->cut ? pin->cut->node->root->scope : 0;

    if (pin->cut)
        pin->cut->hits--; // coming back to where it was is no hit
    lg_prefix_adopt(px, scope, &m, prompt);
    lg_prefix_unpin(px, pin);
}

void lg_prefix_clear(lg_prefix *px)
{
    for (bool more = true; more;) {
        more = false;
        for (lg_prefix_cut *c = px->cuts; c && !more; c = c->next)
            if (c->pins == 0 && !(c->node->live && c->kv.pos <= px->live.end)) {
                node *n = c->node;
                lg_prefix_unlink_cut(px, c);
                lg_prefix_prune(px, n);
                more = true;
            }
    }
}

// --- for people ---

static void describe(const lg_prefix *px, const node *n, int64_t end, lg_prefix_slot *out)
{
    const lg_kv *kv = px->kv;

    *out = (lg_prefix_slot){.tokens = end, .age = px->clock - n->last_use};
    out->bytes = (uint64_t)lg_kv_entries(end) * kv->cls[LG_KV_FULL].block_bytes;
    for (; n; n = n->parent)
        for (const lg_prefix_cut *c = n->last; c; c = c->before)
            if (c->kv.pos <= end) {
                out->n_cuts++;
                out->hits += c->hits;
                out->bytes += (uint64_t)c->kv.n * kv->cls[LG_KV_WINDOW].block_bytes +
                              (uint64_t)c->kv.draft_n * kv->cls[LG_KV_DRAFT].block_bytes;
            }
}

int lg_prefix_slots(const lg_prefix *px, lg_prefix_slot *out, int max)
{
    int n = 0;

    if (max > 0 && px->live.node && px->kv->pos > 0) {
        describe(px, px->live.node, px->live.end, &out[n]);
        out[n].tokens = px->kv->pos;
        out[n++].live = true;
    }
    for (const node *l = px->nodes; l; l = l->next) {
        lg_prefix_slot s;
        int at = n;
        if (!lg_prefix_is_slot(l))
            continue;
        describe(px, l, l->end, &s);
        while (at > 0 && !out[at - 1].live && out[at - 1].age > s.age)
            at--;
        if (at >= max)
            continue;
        n = n < max ? n + 1 : max;
        memmove(out + at + 1, out + at, (size_t)(n - 1 - at) * sizeof *out);
        out[at] = s;
    }
    return n;
}
