/*
 * engine/prefix_tree: nodes of the prefix cache: walking, growing with the live sequence, splitting, pruning.
 *
 * What surprises: an operation allocates all it needs before it changes anything, so that a failed allocation
 * leaves the tree as it was.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/prefix_int.h"

// --- nodes ---

static size_t node_bytes(const node *n)
{
    return sizeof *n + (size_t)n->cap_tok * sizeof *n->tok + (size_t)n->cap_block * sizeof *n->block +
           (size_t)n->cap_child * (sizeof *n->key + sizeof *n->child);
}

static int first_block(const node *n)
{
    return (int)(n->begin / LG_KV_BLOCK);
}

static bool is_leaf(const node *n)
{
    return n->n_child == 0 && n->parent;
}

static void node_free(node *n)
{
    if (!n)
        return;
    free(n->tok);
    free(n->block);
    free(n->key);
    free(n->child);
    free(n);
}

static node *node_new(int64_t n_tok, int n_block, int n_child)
{
    node *n = calloc(1, sizeof *n);

    if (!n)
        return NULL;
    n->tok = malloc((size_t)n_tok * sizeof *n->tok);
    n->block = malloc((size_t)n_block * sizeof *n->block);
    if (n_child > 0) {
        n->key = malloc((size_t)n_child * sizeof *n->key);
        n->child = malloc((size_t)n_child * sizeof *n->child);
    }
    if (!n->tok || !n->block || (n_child > 0 && (!n->key || !n->child))) {
        node_free(n);
        return NULL;
    }
    n->cap_tok = n_tok;
    n->cap_block = n_block;
    n->cap_child = n_child;
    return n;
}

static void node_list(lg_prefix *px, node *n)
{
    n->next = px->nodes;
    n->prev = NULL;
    if (n->next)
        n->next->prev = n;
    px->nodes = n;
    px->n_nodes++;
    px->own_bytes += node_bytes(n);
}

static void node_unlist(lg_prefix *px, node *n)
{
    if (n->prev)
        n->prev->next = n->next;
    else
        px->nodes = n->next;
    if (n->next)
        n->next->prev = n->prev;
    px->n_nodes--;
    px->own_bytes -= node_bytes(n);
}

// --- children, sorted by first token ---

static int child_slot(const node *n, int32_t tok)
{
    int a = 0, b = n->n_child;

    while (a < b) {
        int mid = (a + b) / 2;
        if (n->key[mid] < tok)
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

node *lg_prefix_child(const node *n, int32_t tok)
{
    int at = child_slot(n, tok);

    return at < n->n_child && n->key[at] == tok ? n->child[at] : NULL;
}

// Room for one child more.
static bool room_for_child(lg_prefix *px, node *n)
{
    int cap = n->cap_child ? 2 * n->cap_child : 2;

    if (n->n_child < n->cap_child)
        return true;
    int32_t *key = realloc(n->key, (size_t)cap * sizeof *key);
    if (!key)
        return false;
    n->key = key;
    node **child = realloc(n->child, (size_t)cap * sizeof(node *));
    if (!child)
        return false; // the longer list of keys does no harm
    n->child = child;
    px->own_bytes += (size_t)(cap - n->cap_child) * (sizeof *key + sizeof(node *));
    n->cap_child = cap;
    return true;
}

static void add_child(node *n, node *child)
{
    int at = child_slot(n, child->tok[0]);

    memmove(n->key + at + 1, n->key + at, (size_t)(n->n_child - at) * sizeof *n->key);
    memmove(n->child + at + 1, n->child + at, (size_t)(n->n_child - at) * sizeof(node *));
    n->key[at] = child->tok[0];
    n->child[at] = child;
    n->n_child++;
    child->parent = n;
}

static void remove_child(node *n, const node *child)
{
    int at = child_slot(n, child->tok[0]);

    LG_ASSERT(n->child[at] == child);
    memmove(n->key + at, n->key + at + 1, (size_t)(n->n_child - at - 1) * sizeof *n->key);
    memmove(n->child + at, n->child + at + 1, (size_t)(n->n_child - at - 1) * sizeof(node *));
    n->n_child--;
}

// --- roots ---

root *lg_prefix_root(lg_prefix *px, uint64_t scope, bool make)
{
    root *r = px->roots;

    while (r && r->scope != scope)
        r = r->next;
    if (r || !make)
        return r;
    r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->scope = scope;
    r->top.root = r;
    r->next = px->roots;
    px->roots = r;
    px->own_bytes += sizeof *r;
    return r;
}

void lg_prefix_free_root(lg_prefix *px, root *r)
{
    root **at = &px->roots;

    if (!r || r->top.n_child > 0 || r == px->live.root)
        return;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    px->own_bytes -= sizeof *r + node_bytes(&r->top) - sizeof r->top;
    free(r->top.key);
    free(r->top.child);
    free(r);
}

// --- walking ---

// How many of n tokens are equal: runs of 256 at once, then one by one.
static int64_t common(const int32_t *a, const int32_t *b, int64_t n)
{
    int64_t i = 0;

    while (n - i >= 256 && memcmp(a + i, b + i, 256 * sizeof *a) == 0)
        i += 256;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

node *lg_prefix_walk(root *r, const int32_t *ids, int64_t n, int64_t *lcp)
{
    node *at = &r->top;
    int64_t m = 0;

    for (;;) {
        node *c = m < n ? lg_prefix_child(at, ids[m]) : NULL;
        if (!c)
            break;
        at = c;
        int64_t most = (n < c->end ? n : c->end) - m, same = common(c->tok, ids + m, most);
        m += same;
        if (m < c->end)
            break;
    }
    *lcp = m;
    return at;
}

node *lg_prefix_node_at(node *n, int64_t q)
{
    while (n->parent && n->begin >= q)
        n = n->parent;
    return n;
}

void lg_prefix_blocks(const node *n, int64_t q, int32_t *out)
{
    int have = lg_kv_entries(q); // entries from here on are listed

    for (; n->parent && have > 0; n = n->parent) {
        int end = lg_kv_entries(n->end < q ? n->end : q);
        for (int i = first_block(n); i < end && i < have; i++)
            out[i] = n->block[i - first_block(n)];
        if (first_block(n) < have)
            have = first_block(n);
    }
    LG_ASSERT(have == 0);
}

void lg_prefix_set_live(lg_prefix *px, root *r, node *n, int64_t end)
{
    root *old = px->live.root;

    for (node *a = px->live.node; a; a = a->parent)
        a->live = false;
    px->live.root = r;
    px->live.node = n;
    px->live.end = end;
    for (node *a = n; a; a = a->parent) {
        a->live = true;
        a->last_use = px->clock;
    }
    if (old && old != r)
        lg_prefix_free_root(px, old);
}

// --- cuts of nodes ---

size_t lg_prefix_cut_bytes(const lg_kv *kv)
{
    return sizeof(lg_prefix_cut) + (size_t)(lg_kv_cut_room(&kv->cls[LG_KV_WINDOW]) +
                                            lg_kv_cut_room(&kv->cls[LG_KV_DRAFT])) *
                                       sizeof(int32_t);
}

// Into the node's list, in order.
static void hang_cut(node *n, lg_prefix_cut *c)
{
    lg_prefix_cut *before = n->last;

    while (before && before->kv.pos > c->kv.pos)
        before = before->before;
    c->node = n;
    c->before = before;
    c->after = before ? before->after : n->first;
    *(before ? &before->after : &n->first) = c;
    *(c->after ? &c->after->before : &n->last) = c;
}

static void unhang_cut(lg_prefix_cut *c)
{
    node *n = c->node;

    *(c->before ? &c->before->after : &n->first) = c->after;
    *(c->after ? &c->after->before : &n->last) = c->before;
}

void lg_prefix_link_cut(lg_prefix *px, node *n, lg_prefix_cut *c)
{
    hang_cut(n, c);
    c->prev = NULL;
    c->next = px->cuts;
    if (c->next)
        c->next->prev = c;
    px->cuts = c;
    px->n_cuts[c->kind]++;
    px->own_bytes += lg_prefix_cut_bytes(px->kv);
}

void lg_prefix_unlink_cut(lg_prefix *px, lg_prefix_cut *c)
{
    LG_ASSERT(c->pins == 0);
    unhang_cut(c);
    *(c->prev ? &c->prev->next : &px->cuts) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    px->n_cuts[c->kind]--;
    px->own_bytes -= lg_prefix_cut_bytes(px->kv);
    lg_kv_cut_drop(px->kv, &c->kv);
    free(c);
}

// --- splitting and joining ---

// n becomes the rows from `at` on; a new node above it gets those before. NULL: no memory.
static node *split(lg_prefix *px, node *n, int64_t at)
{
    int n_upper = lg_kv_entries(at) - first_block(n), shared = at % LG_KV_BLOCK ? 1 : 0;
    int64_t len = at - n->begin;
    node *u = node_new(len, n_upper, 1);

    if (!u)
        return NULL;
    u->begin = n->begin;
    u->end = at;
    u->root = n->root;
    u->last_use = n->last_use;
    u->live = n->live;
    memcpy(u->tok, n->tok, (size_t)len * sizeof *u->tok);
    memcpy(u->block, n->block, (size_t)n_upper * sizeof *u->block);
    u->n_block = n_upper;
    if (shared)
        lg_kv_retain(px->kv, LG_KV_FULL, u->block[n_upper - 1]);
    node_list(px, u);
    u->parent = n->parent;
    n->parent->child[child_slot(n->parent, n->tok[0])] = u; // its key stays
    memmove(n->tok, n->tok + len, (size_t)(n->end - at) * sizeof *n->tok);
    n->n_block -= n_upper - shared;
    memmove(n->block, n->block + n_upper - shared, (size_t)n->n_block * sizeof *n->block);
    n->begin = at;
    u->key[0] = n->tok[0];
    u->child[0] = n;
    u->n_child = 1;
    n->parent = u;
    for (lg_prefix_cut *c = n->first, *after; c && c->kv.pos <= at; c = after) {
        after = c->after;
        unhang_cut(c);
        hang_cut(u, c);
    }
    if (px->live.node == n && px->live.end <= at) {
        px->live.node = u;
        n->live = false;
    }
    return u;
}

// The only child takes in its parent. Where memory is short they stay apart, which does no harm.
static void join(lg_prefix *px, node *p)
{
    node *c = p->child[0];
    int64_t len = p->end - p->begin;
    int shared = p->end % LG_KV_BLOCK ? 1 : 0, n_upper = p->n_block - shared;
    int32_t *tok = malloc((size_t)(c->end - p->begin) * sizeof *tok);
    int32_t *block = malloc((size_t)(n_upper + c->n_block) * sizeof *block);

    if (!tok || !block) {
        free(tok);
        free(block);
        return;
    }
    memcpy(tok, p->tok, (size_t)len * sizeof *tok);
    memcpy(tok + len, c->tok, (size_t)(c->end - c->begin) * sizeof *tok);
    memcpy(block, p->block, (size_t)n_upper * sizeof *block);
    memcpy(block + n_upper, c->block, (size_t)c->n_block * sizeof *block);
    if (shared) // the child's block has those rows too
        lg_kv_release(px->kv, LG_KV_FULL, p->block[n_upper]);
    px->own_bytes -= node_bytes(c);
    free(c->tok);
    free(c->block);
    c->tok = tok;
    c->cap_tok = c->end - p->begin;
    c->block = block;
    c->n_block = c->cap_block = n_upper + c->n_block;
    px->own_bytes += node_bytes(c);
    c->begin = p->begin;
    c->parent = p->parent;
    c->parent->child[child_slot(c->parent, tok[0])] = c;
    while (p->first) {
        lg_prefix_cut *cut = p->first;
        unhang_cut(cut);
        hang_cut(c, cut);
    }
    c->live = p->live;
    c->last_use = p->last_use;
    if (px->live.node == p)
        px->live.node = c;
    node_unlist(px, p);
    node_free(p);
}

// --- pruning ---

static void release_blocks(lg_prefix *px, node *n, int from)
{
    for (int i = from; i < n->n_block; i++)
        lg_kv_release(px->kv, LG_KV_FULL, n->block[i]);
    n->n_block = from;
}

static void remove_leaf(lg_prefix *px, node *n)
{
    release_blocks(px, n, 0);
    px->n_tokens -= n->end - n->begin;
    remove_child(n->parent, n);
    node_unlist(px, n);
    node_free(n);
}

// The leaf ends at `end`. What can be given back of its lists is.
static void shorten(lg_prefix *px, node *n, int64_t end)
{
    release_blocks(px, n, lg_kv_entries(end) - first_block(n));
    px->n_tokens -= n->end - end;
    n->end = end;
    px->own_bytes -= node_bytes(n);
    int32_t *tok = realloc(n->tok, (size_t)(end - n->begin) * sizeof *tok);
    if (tok) {
        n->tok = tok;
        n->cap_tok = end - n->begin;
    }
    px->own_bytes += node_bytes(n);
}

void lg_prefix_prune(lg_prefix *px, node *n)
{
    while (is_leaf(n)) {
        int64_t keep = n->last ? n->last->kv.pos : 0;
        if (n->live) {
            int64_t live = px->live.node == n ? px->live.end : n->end;
            keep = live > keep ? live : keep;
        }
        if (keep > n->begin) {
            if (keep < n->end)
                shorten(px, n, keep);
            return;
        }
        node *parent = n->parent;
        remove_leaf(px, n);
        n = parent;
    }
    if (n->parent && n->n_child == 1)
        join(px, n);
    else if (!n->parent)
        lg_prefix_free_root(px, n->root);
}

// --- growing with the live sequence ---

// Room for the rows up to `end` in a leaf.
static bool room_for_rows(lg_prefix *px, node *n, int64_t end)
{
    int64_t cap = end - n->begin;
    int cap_block = lg_kv_entries(end) - first_block(n);
    bool ok = true;

    px->own_bytes -= node_bytes(n);
    if (cap > n->cap_tok) {
        int64_t want = cap < n->cap_tok + n->cap_tok / 4 ? n->cap_tok + n->cap_tok / 4 : cap;
        int32_t *tok = realloc(n->tok, (size_t)want * sizeof *tok);
        ok = tok != NULL;
        if (tok) {
            n->tok = tok;
            n->cap_tok = want;
        }
    }
    if (ok && cap_block > n->cap_block) {
        int32_t *block = realloc(n->block, (size_t)cap_block * sizeof *block);
        ok = block != NULL;
        if (block) {
            n->block = block;
            n->cap_block = cap_block;
        }
    }
    px->own_bytes += node_bytes(n);
    return ok;
}

// The live rows from live.end on become the end of leaf n.
static void append_rows(lg_prefix *px, node *n, int64_t end)
{
    const int32_t *table = px->kv->pool[LG_KV_FULL].table;
    int64_t from = px->live.end;

    memcpy(n->tok + (from - n->begin), px->p.tokens + from, (size_t)(end - from) * sizeof *n->tok);
    for (int i = (int)(from / LG_KV_BLOCK); i < lg_kv_entries(end); i++) {
        int at = i - first_block(n);
        lg_kv_retain(px->kv, LG_KV_FULL, table[i]);
        if (at < n->n_block) // begun by the leaf, perhaps copied since
            lg_kv_release(px->kv, LG_KV_FULL, n->block[at]);
        else
            n->n_block = at + 1;
        n->block[at] = table[i];
    }
    px->n_tokens += end - from;
    n->end = end;
    px->live.end = end;
    n->last_use = px->clock;
}

static bool new_leaf(lg_prefix *px, node *parent, int64_t end)
{
    int64_t from = px->live.end;
    node *n = node_new(end - from, lg_kv_entries(end) - (int)(from / LG_KV_BLOCK), 0);

    if (!n || !room_for_child(px, parent)) {
        node_free(n);
        return false;
    }
    n->begin = n->end = from;
    n->root = parent->root;
    n->live = true;
    n->tok[0] = px->p.tokens[from];
    add_child(parent, n);
    node_list(px, n);
    px->live.node = n;
    append_rows(px, n, end);
    return true;
}

// One step along the live path: over what the tree has already, or into new rows.
static bool advance(lg_prefix *px, int64_t end)
{
    node *n = px->live.node;
    const int32_t *ids = px->p.tokens + px->live.end;

    if (px->live.end < n->end) {
        int64_t most = (end < n->end ? end : n->end) - px->live.end;
        int64_t same = common(n->tok + (px->live.end - n->begin), ids, most);
        px->live.end += same;
        return same > 0 || split(px, n, px->live.end) != NULL; // where n begins further up than it did
    }
    node *c = lg_prefix_child(n, *ids);
    if (c) {
        px->live.node = c;
        px->live.end++;
        c->live = true;
        c->last_use = px->clock;
        return true;
    }
    if (is_leaf(n) && room_for_rows(px, n, end)) {
        append_rows(px, n, end);
        return true;
    }
    return !is_leaf(n) && new_leaf(px, n, end);
}

bool lg_prefix_insert_live(lg_prefix *px, int64_t end)
{
    if (!px->live.root) {
        root *r = lg_prefix_root(px, 0, true);
        if (!r)
            return false;
        lg_prefix_set_live(px, r, &r->top, 0);
    }
    while (px->live.end < end)
        if (!advance(px, end))
            return false;
    return true;
}
