/*
 * engine/prefix_check: every invariant of the prefix cache, from scratch. For tests and debugging: slow, and
 * the only place that allocates without being asked to store anything.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine/prefix_int.h"

#define CHECK(cond)                                                                             \
    do {                                                                                        \
        if (!(cond)) {                                                                          \
            (void)fprintf(stderr, "prefix_check: line %d: %s does not hold\n", __LINE__, #cond); \
            return false;                                                                       \
        }                                                                                       \
    } while (0)

typedef struct sums {
    int32_t *held[LG_KV_CLASSES]; // per block, how often the tree holds it
    size_t own;
    int64_t tokens;
    int nodes, cuts[LG_CUT_KINDS], pins;
} sums;

static bool check_cuts(const lg_prefix *px, const node *n, sums *s)
{
    const lg_prefix_cut *before = NULL;

    for (const lg_prefix_cut *c = n->first; c; before = c, c = c->after) {
        CHECK(c->node == n && c->before == before);
        CHECK(c->kv.pos > (before ? before->kv.pos : n->begin) && c->kv.pos <= n->end);
        CHECK(c->kv.block == c->block && c->pins >= 0);
        for (int i = 0; i < c->kv.n; i++)
            s->held[LG_KV_WINDOW][c->kv.block[i]]++;
        for (int i = 0; i < c->kv.draft_n; i++)
            s->held[LG_KV_DRAFT][c->kv.draft_block[i]]++;
        s->cuts[c->kind]++;
        s->pins += c->pins;
        s->own += lg_prefix_cut_bytes(px->kv);
    }
    CHECK(n->last == before);
    return true;
}

static bool check_children(const node *n)
{
    for (int i = 0; i < n->n_child; i++) {
        const node *c = n->child[i];
        CHECK(c->parent == n && c->begin == n->end && c->root == n->root);
        CHECK(c->tok[0] == n->key[i] && (i == 0 || n->key[i - 1] < n->key[i]));
        CHECK(c->last_use <= n->last_use || !n->parent);
        CHECK(n->live || !c->live);
    }
    CHECK(n->n_child <= n->cap_child);
    return true;
}

static bool check_node(const lg_prefix *px, const node *n, sums *s)
{
    const lg_kv *kv = px->kv;
    int64_t kept = n->last ? n->last->kv.pos : 0, live = 0;

    CHECK(n->begin < n->end && n->cap_tok >= n->end - n->begin && n->end <= kv->ctx);
    CHECK(n->n_block == lg_kv_entries(n->end) - (int)(n->begin / LG_KV_BLOCK) && n->cap_block >= n->n_block);
    for (int i = 0; i < n->n_block; i++) {
        int64_t rows = n->end - ((int64_t)n->begin / LG_KV_BLOCK + i) * LG_KV_BLOCK;
        CHECK(n->block[i] >= 0 && n->block[i] < kv->pool[LG_KV_FULL].n_fresh);
        CHECK(kv->pool[LG_KV_FULL].fill[n->block[i]] >= (rows < LG_KV_BLOCK ? rows : LG_KV_BLOCK));
        s->held[LG_KV_FULL][n->block[i]]++;
    }
    if (n->live)
        live = px->live.node == n ? px->live.end : n->end;
    // no dead rows: a leaf ends with a cut or with the live sequence
    CHECK(n->n_child > 0 || n->end == (live > kept ? live : kept));
    s->nodes++;
    s->tokens += n->end - n->begin;
    s->own += sizeof *n + (size_t)n->cap_tok * sizeof *n->tok + (size_t)n->cap_block * sizeof *n->block +
              (size_t)n->cap_child * (sizeof *n->key + sizeof(node *));
    return check_children(n) && check_cuts(px, n, s);
}

static bool check_live(const lg_prefix *px)
{
    const node *n = px->live.node;
    int64_t end = px->live.end;

    CHECK(end <= px->kv->pos || px->live.detached);
    CHECK(!n == !px->live.root);
    CHECK(!px->live.detached || !n);
    if (!n)
        return true;
    CHECK(n->live && n->root == px->live.root);
    CHECK(n->parent ? n->begin < end && end <= n->end : end == 0);
    for (; n->parent; n = n->parent) {
        CHECK(n->live);
        for (int64_t i = n->begin; i < n->end && i < end; i++)
            CHECK(n->tok[i - n->begin] == px->p.tokens[i]);
    }
    CHECK(n == &px->live.root->top && n->live);
    return true;
}

static bool check_sums(const lg_prefix *px, const sums *s)
{
    const lg_kv *kv = px->kv;
    uint64_t bytes = s->own;

    for (int c = 0; c < LG_KV_CLASSES; c++) {
        const lg_kv_pool *p = &kv->pool[c];
        for (int i = 0; kv->cls[c].n_layer > 0 && i < p->n_fresh; i++) {
            CHECK(p->refs[i] == s->held[c][i] + p->in_table[i]);
            if (s->held[c][i] > 0 && (c != LG_KV_FULL || !p->in_table[i]))
                bytes += kv->cls[c].block_bytes;
        }
    }
    CHECK(s->own == px->own_bytes && bytes == lg_prefix_bytes(px));
    CHECK(s->nodes == px->n_nodes && s->tokens == px->n_tokens);
    CHECK(s->pins == px->n_pins);
    for (int k = 0; k < LG_CUT_KINDS; k++)
        CHECK(s->cuts[k] == px->n_cuts[k]);
    return true;
}

static bool check_all(const lg_prefix *px, sums *s)
{
    int listed = 0;

    for (const root *r = px->roots; r; r = r->next) {
        CHECK(!r->top.parent && r->top.n_block == 0 && !r->top.first);
        CHECK(r->top.n_child > 0 || r == px->live.root);
        CHECK(check_children(&r->top));
        s->own += sizeof *r + (size_t)r->top.cap_child * (sizeof *r->top.key + sizeof(node *));
    }
    for (const node *n = px->nodes; n; n = n->next)
        if (!check_node(px, n, s))
            return false;
    for (const lg_prefix_cut *c = px->cuts; c; c = c->next)
        listed++;
    for (int k = 0; k < LG_CUT_KINDS; k++)
        listed -= s->cuts[k];
    CHECK(listed == 0);
    return check_live(px) && check_sums(px, s);
}

bool lg_prefix_check(const lg_prefix *px)
{
    sums s = {0};
    bool ok = lg_kv_check(px->kv);

    for (int c = 0; c < LG_KV_CLASSES; c++)
        s.held[c] = calloc((size_t)px->kv->pool[c].n_fresh + 1, sizeof *s.held[c]);
    if (ok && s.held[LG_KV_FULL] && s.held[LG_KV_WINDOW] && s.held[LG_KV_DRAFT])
        ok = check_all(px, &s);
    for (int c = 0; c < LG_KV_CLASSES; c++)
        free(s.held[c]);
    return ok;
}
