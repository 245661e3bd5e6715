/*
 * grammar/automaton: see automaton.h. Tables are arrays that only grow, with hash chains whose newest element
 * comes first: undoing is taking elements off the ends again.
 */
#include "grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_ITEMS = 1024, // of a configuration
    MAX_CLOSURE = 8192,
    ROW = 256,
};

#define BOTTOM    UINT32_MAX // state of the frame under everything
#define SOME_NAME 1u         // node of key bytes: the beginning of an unknown name

typedef struct frame {
    uint32_t state, reg, keys, below;
} frame;

typedef struct node { // a set of stacks: each of its frames on each stack of the node below
    uint32_t frame, n, depth;
} node;

typedef struct key_set {
    uint32_t first, n;
} key_set;

typedef struct key_byte {
    uint32_t parent, depth;
    uint8_t byte;
} key_byte;

typedef struct table { // a growing array of elements that may be found by content
    void *p;
    size_t size;
    uint32_t n, cap;
    uint32_t *chain;        // next element with this hash, + 1
    uint32_t *head, n_head; // + 1
    uint32_t *hash;
} table;

typedef struct undo { // an entry of a row; or, with byte = ROW, the row of a configuration
    uint32_t row, byte;
} undo;

typedef enum { T_FRAME, T_NODE, T_KEY, T_KEY_SET, T_KEY_BYTE, T_ITEM, T_CFG, T_ROW, N_TABLES } table_id;

struct lg_auto {
    const lg_program *p;
    table t[N_TABLES];
    uint32_t start;
    lg_status failed;
    uint64_t slow;
    bool marked, vague;
    bool unknown_name; // the step at hand has ended one
    uint32_t mark[N_TABLES];
    undo *undo; // what was written into older elements since the mark
    size_t n_undo, cap_undo;
    // work space of one step
    lg_cfg_item *out;
    uint32_t n_out;
    struct pending *todo;
    uint32_t n_todo, n_seen;
    bool accept;
};

typedef struct pending {
    uint32_t state, reg, keys, node;
} pending;

static uint32_t hash_words(const uint32_t *w, size_t n)
{
    uint64_t h = 0x243f6a8885a308d3u + n;

    for (size_t i = 0; i < n; i++)
        h = ((h ^ w[i]) * 0x9e3779b97f4a7c15u) ^ (h >> 31);
    return (uint32_t)(h ^ h >> 32);
}

static uint32_t fail(lg_auto *a, lg_status why)
{
    if (a->failed == LG_OK)
        a->failed = why;
    return LG_NONE;
}

static void *at(const lg_auto *a, table_id id, uint32_t i)
{
    return (char *)a->t[id].p + (size_t)i * a->t[id].size;
}

// Appends n elements; LG_NONE when memory ends. Those of tables without a hash are found by number only.
static uint32_t append(lg_auto *a, table_id id, const void *p, uint32_t n)
{
    table *t = &a->t[id];
    uint32_t first = t->n;

    if (n == 0)
        return first;
    if (n > UINT32_MAX / 2 - t->n)
        return fail(a, LG_E_LIMIT);
    if (t->n + n > t->cap) {
        uint32_t cap = t->cap ? t->cap : 64;
        void *bigger;
        while (cap < t->n + n)
            cap *= 2;
        bigger = realloc(t->p, cap * t->size);
        if (!bigger)
            return fail(a, LG_E_NOMEM);
        t->p = bigger;
        if (t->head) {
            uint32_t *chain = realloc(t->chain, cap * sizeof *chain), *hash;
            if (!chain)
                return fail(a, LG_E_NOMEM);
            t->chain = chain;
            hash = realloc(t->hash, cap * sizeof *hash);
            if (!hash)
                return fail(a, LG_E_NOMEM);
            t->hash = hash;
        }
        t->cap = cap;
    }
    if (p)
        memcpy((char *)t->p + t->n * t->size, p, n * t->size);
    else
        memset((char *)t->p + t->n * t->size, 0, n * t->size);
    t->n += n;
    return first;
}

static void link(table *t, uint32_t i)
{
    uint32_t *head = &t->head[t->hash[i] & (t->n_head - 1)];

    t->chain[i] = *head;
    *head = i + 1;
}

static bool enter(lg_auto *a, table_id id, uint32_t i, uint32_t hash)
{
    table *t = &a->t[id];

    t->hash[i] = hash;
    link(t, i);
    if (t->n > 2 * t->n_head) {
        uint32_t *head = calloc((size_t)t->n_head * 4, sizeof *head);
        if (!head) {
            (void)fail(a, LG_E_NOMEM);
            return false;
        }
        free(t->head);
        t->head = head;
        t->n_head *= 4;
        for (uint32_t k = 0; k < t->n; k++)
            link(t, k);
    }
    return true;
}

static uint32_t found(const lg_auto *a, table_id id, uint32_t hash)
{
    const table *t = &a->t[id];

    return t->head[hash & (t->n_head - 1)];
}

// Frames must be ascending and different.
static uint32_t node_of(lg_auto *a, const frame *f, uint32_t n)
{
    uint32_t hash = hash_words((const uint32_t *)f, 4 * (size_t)n), i;
    node made = {0, n, 0};

    for (i = found(a, T_NODE, hash); i; i = a->t[T_NODE].chain[i - 1]) {
        const node *o = at(a, T_NODE, i - 1);
        if (o->n == n && memcmp(at(a, T_FRAME, o->frame), f, n * sizeof *f) == 0)
            return i - 1;
    }
    for (uint32_t k = 0; k < n; k++)
        if (f[k].state != BOTTOM) {
            const node *below = at(a, T_NODE, f[k].below);
            made.depth = below->depth + 1 > made.depth ? below->depth + 1 : made.depth;
        }
    made.frame = append(a, T_FRAME, f, n);
    i = made.frame == LG_NONE ? LG_NONE : append(a, T_NODE, &made, 1);
    return i != LG_NONE && enter(a, T_NODE, i, hash) ? i : LG_NONE;
}

static int compare_frames(const frame *x, const frame *y)
{
    if (x->state != y->state)
        return x->state < y->state ? -1 : 1;
    if (x->reg != y->reg)
        return x->reg < y->reg ? -1 : 1;
    return (x->keys > y->keys) - (x->keys < y->keys);
}

// The union of two sets of stacks; as deep as the stacks are.
static uint32_t unite(lg_auto *a, uint32_t x, uint32_t y)
{
    frame small[32], *f = small;
    uint32_t i = 0, j = 0, n = 0, nx, ny, out;

    if (x == y || x == LG_NONE || y == LG_NONE)
        return x == y ? x : LG_NONE;
    a->slow++;
    nx = ((node *)at(a, T_NODE, x))->n;
    ny = ((node *)at(a, T_NODE, y))->n;
    if (nx + ny > 32 && !(f = malloc((nx + ny) * sizeof *f)))
        return fail(a, LG_E_NOMEM);
    while (i < nx || j < ny) {
        // appending moves the tables: copies
        frame p = {0}, q = {0};
        int c;
        if (i < nx)
            p = *(frame *)at(a, T_FRAME, ((node *)at(a, T_NODE, x))->frame + i);
        if (j < ny)
            q = *(frame *)at(a, T_FRAME, ((node *)at(a, T_NODE, y))->frame + j);
        c = i == nx ? 1 : j == ny ? -1 : compare_frames(&p, &q);
        f[n] = c <= 0 ? p : q;
        if (c == 0 && p.state != BOTTOM)
            f[n].below = unite(a, p.below, q.below);
        i += c <= 0;
        j += c >= 0;
        n++;
        if (a->failed != LG_OK)
            break;
    }
    out = a->failed == LG_OK ? node_of(a, f, n) : LG_NONE;
    if (f != small)
        free(f);
    return out;
}

static uint32_t keys_with(lg_auto *a, uint32_t keys, uint32_t name)
{
    key_set old = *(key_set *)at(a, T_KEY_SET, keys), made;
    uint32_t list[LG_MAX_USED_KEYS + 1], n = 0, hash, i;

    if (old.n >= LG_MAX_USED_KEYS)
        return fail(a, LG_E_LIMIT);
    if (old.n)
        memcpy(list, at(a, T_KEY, old.first), old.n * sizeof *list);
    for (n = old.n; n > 0 && list[n - 1] > name; n--)
        list[n] = list[n - 1];
    list[n] = name;
    n = old.n + 1;
    hash = hash_words(list, n);
    for (i = found(a, T_KEY_SET, hash); i; i = a->t[T_KEY_SET].chain[i - 1]) {
        const key_set *o = at(a, T_KEY_SET, i - 1);
        if (o->n == n && memcmp(at(a, T_KEY, o->first), list, n * sizeof *list) == 0)
            return i - 1;
    }
    made = (key_set){append(a, T_KEY, list, n), n};
    i = made.first == LG_NONE ? LG_NONE : append(a, T_KEY_SET, &made, 1);
    return i != LG_NONE && enter(a, T_KEY_SET, i, hash) ? i : LG_NONE;
}

static uint32_t key_child(void *tree, uint32_t parent, uint8_t byte)
{
    lg_auto *a = tree;
    uint32_t word[2] = {parent, byte}, hash = hash_words(word, 2), i;
    key_byte made = {parent, ((key_byte *)at(a, T_KEY_BYTE, parent))->depth + 1, byte};

    if (parent == SOME_NAME)
        return SOME_NAME;
    for (i = found(a, T_KEY_BYTE, hash); i; i = a->t[T_KEY_BYTE].chain[i - 1]) {
        const key_byte *o = at(a, T_KEY_BYTE, i - 1);
        if (o->parent == parent && o->byte == byte && o->depth)
            return i - 1;
    }
    if (a->vague)
        return SOME_NAME;
    i = append(a, T_KEY_BYTE, &made, 1);
    return i != LG_NONE && enter(a, T_KEY_BYTE, i, hash) ? i : LG_NONE;
}

static void key_node(void *tree, uint32_t i, uint32_t *parent, uint8_t *byte, uint32_t *depth)
{
    static const key_byte known; // no bytes: no beginning of an additional name
    const key_byte *k = i & LG_KNOWN_NAME ? &known : at(tree, T_KEY_BYTE, i);

    *parent = k->parent;
    *byte = k->byte;
    *depth = k->depth;
}

static lg_where where(lg_auto *a, uint32_t reg, uint32_t keys, uint32_t in)
{
    const key_set *set = at(a, T_KEY_SET, keys);

    return (lg_where){.p = a->p,
                      .reg = reg,
                      .depth = ((node *)at(a, T_NODE, in))->depth,
                      .keys = {a, key_child, key_node, set->n ? at(a, T_KEY, set->first) : NULL, set->n}};
}

static void pend(lg_auto *a, uint32_t state, uint32_t reg, uint32_t keys, uint32_t in)
{
    pending p = {state, reg, keys, in};

    for (uint32_t i = 0; i < a->n_todo; i++)
        if (memcmp(&a->todo[i], &p, sizeof p) == 0)
            return;
    if (a->n_todo == MAX_CLOSURE || in == LG_NONE || keys == LG_NONE) {
        (void)fail(a, LG_E_LIMIT);
        return;
    }
    a->todo[a->n_todo++] = p;
}

static void emit(lg_auto *a, const lg_cfg_item *item)
{
    for (uint32_t i = 0; i < a->n_out; i++)
        if (memcmp(&a->out[i], item, offsetof(lg_cfg_item, node)) == 0) {
            a->out[i].node = unite(a, a->out[i].node, item->node);
            return;
        }
    if (a->n_out == MAX_ITEMS) {
        (void)fail(a, LG_E_LIMIT);
        return;
    }
    a->out[a->n_out++] = *item;
}

// What stands behind an edge that matched.
static void arrive(lg_auto *a, const lg_edge *e, uint32_t to, uint32_t reg, uint32_t keys, uint32_t in)
{
    if (e->count && reg < e->top)
        reg++;
    pend(a, to, reg, keys, in);
}

static void call(lg_auto *a, const lg_edge *e, const pending *from)
{
    frame f = {e->to, from->reg, from->keys, from->node};

    if (e->count && f.reg < e->top)
        f.reg++;
    pend(a, a->p->rule[e->arg].start, 0, 0, node_of(a, &f, 1));
}

static void leave(lg_auto *a, uint32_t in)
{
    node n = *(node *)at(a, T_NODE, in);

    for (uint32_t i = 0; i < n.n; i++) {
        frame f = *(frame *)at(a, T_FRAME, n.frame + i);
        if (f.state == BOTTOM)
            a->accept = true;
        else
            pend(a, f.state, f.reg, f.keys, f.below);
    }
}

// Follows everything that takes no byte, until edges with terminals are left.
static void closure(lg_auto *a)
{
    for (; a->n_seen < a->n_todo && a->failed == LG_OK; a->n_seen++) {
        pending from = a->todo[a->n_seen];
        const lg_state *st = &a->p->state[from.state];
        if (st->final)
            leave(a, from.node);
        for (uint32_t i = st->edge; i != LG_NONE; i = a->p->edge[i].next) {
            const lg_edge *e = &a->p->edge[i];
            lg_where w = where(a, from.reg, from.keys, from.node);
            lg_cfg_item item = {i, {0, 0, 0}, from.reg, from.keys, from.node};
            a->slow++;
            if (!lg_edge_open(e, &w))
                continue;
            switch ((lg_edge_kind)e->kind) {
            case LG_EDGE_EPS: arrive(a, e, e->to, from.reg, from.keys, from.node); break;
            case LG_EDGE_CALL: call(a, e, &from); break;
            case LG_EDGE_TERM:
                item.s = lg_term_start(&a->p->term[e->arg]);
                if (lg_term_nullable(&a->p->term[e->arg]))
                    arrive(a, e, e->to, from.reg, from.keys, from.node);
                emit(a, &item);
                break;
            case LG_EDGE_TOKEN: emit(a, &item); break;
            }
        }
    }
}

static int compare_items(const void *x, const void *y)
{
    return memcmp(x, y, sizeof(lg_cfg_item));
}

static uint32_t intern_cfg(lg_auto *a)
{
    lg_cfg made = {.n_item = a->n_out, .accept = a->accept};
    uint32_t hash, i;

    if (a->failed != LG_OK || (a->n_out == 0 && !a->accept))
        return LG_CFG_DEAD;
    qsort(a->out, a->n_out, sizeof *a->out, compare_items);
    hash = hash_words((const uint32_t *)a->out, a->n_out * sizeof *a->out / 4) + a->accept;
    for (i = found(a, T_CFG, hash); i; i = a->t[T_CFG].chain[i - 1]) {
        const lg_cfg *o = at(a, T_CFG, i - 1);
        if (o->n_item == a->n_out && o->accept == a->accept && i > 3 &&
            (a->n_out == 0 || memcmp(at(a, T_ITEM, o->item), a->out, a->n_out * sizeof *a->out) == 0))
            return i - 1;
    }
    made.item = append(a, T_ITEM, a->out, a->n_out);
    i = made.item == LG_NONE ? LG_NONE : append(a, T_CFG, &made, 1);
    return i != LG_NONE && enter(a, T_CFG, i, hash) ? i : LG_CFG_DEAD;
}

static void begin(lg_auto *a)
{
    a->n_out = a->n_todo = a->n_seen = 0;
    a->accept = false;
}

static void step_item(lg_auto *a, lg_cfg_item item, uint8_t byte)
{
    const lg_edge *e = &a->p->edge[item.edge];
    const lg_term *t = &a->p->term[e->arg];
    lg_where w = where(a, item.reg, item.keys, item.node);
    uint32_t keys = item.keys, to = e->to;
    lg_tresult r;

    if (e->kind != LG_EDGE_TERM)
        return;
    r = lg_term_step(t, e, &w, &item.s, byte);
    a->slow++;
    if (r.live)
        emit(a, &item);
    if (!r.done)
        return;
    if (t->kind == LG_TERM_KEY && item.s.c == SOME_NAME) {
        a->unknown_name = true;
        return;
    }
    if (t->kind == LG_TERM_KEY)
        keys = keys_with(a, keys, item.s.c);
    if (t->kind == LG_TERM_WORDS && t->payload) {
        to = a->p->object[e->object].target[t->payload[r.word]];
        if (a->p->object[e->object].any_order)
            keys = keys_with(a, keys, LG_KNOWN_NAME | t->payload[r.word]);
    }
    arrive(a, e, to, item.reg, keys, item.node);
}

static uint32_t compute(lg_auto *a, uint32_t cfg, uint8_t byte)
{
    lg_cfg c = *lg_auto_cfg(a, cfg);

    begin(a);
    a->unknown_name = false;
    for (uint32_t i = 0; i < c.n_item && a->failed == LG_OK; i++)
        step_item(a, *lg_auto_item(a, c.item + i), byte);
    if (a->unknown_name)
        return LG_CFG_EXACT;
    closure(a);
    return intern_cfg(a);
}

static bool remember(lg_auto *a, uint32_t row, uint32_t byte)
{
    if (a->n_undo == a->cap_undo) {
        size_t cap = a->cap_undo ? a->cap_undo * 2 : 256;
        undo *bigger = realloc(a->undo, cap * sizeof *bigger);
        if (!bigger) {
            (void)fail(a, LG_E_NOMEM);
            return false;
        }
        a->undo = bigger;
        a->cap_undo = cap;
    }
    a->undo[a->n_undo++] = (undo){row, byte};
    return true;
}

// The row of a configuration, made when it is missing; LG_NONE when memory ends.
static uint32_t row_of(lg_auto *a, uint32_t cfg)
{
    uint32_t row = lg_auto_cfg(a, cfg)->row;

    if (row)
        return row;
    if (a->marked && cfg < a->mark[T_CFG] && !remember(a, cfg, ROW))
        return LG_NONE;
    row = append(a, T_ROW, NULL, 1);
    if (row != LG_NONE)
        lg_auto_cfg(a, cfg)->row = row;
    return row;
}

uint32_t lg_auto_next(lg_auto *a, uint32_t cfg, uint8_t byte)
{
    uint32_t row = lg_auto_cfg(a, cfg)->row, to;

    if (cfg == LG_CFG_DEAD)
        return LG_CFG_DEAD;
    if (row && (to = ((uint32_t *)at(a, T_ROW, row))[byte]))
        return to;
    if (a->failed != LG_OK || (row = row_of(a, cfg)) == LG_NONE)
        return LG_CFG_DEAD;
    to = compute(a, cfg, byte);
    if (a->failed != LG_OK)
        return LG_CFG_DEAD;
    if (a->marked && row < a->mark[T_ROW] && (to >= a->mark[T_CFG] || to == LG_CFG_EXACT) &&
        !remember(a, row, byte))
        return LG_CFG_DEAD;
    ((uint32_t *)at(a, T_ROW, row))[byte] = to;
    return to;
}

uint32_t lg_auto_token(lg_auto *a, uint32_t cfg, uint32_t token)
{
    lg_cfg c = *lg_auto_cfg(a, cfg);

    begin(a);
    for (uint32_t i = 0; i < c.n_item; i++) {
        const lg_cfg_item *item = lg_auto_item(a, c.item + i);
        const lg_edge *e = &a->p->edge[item->edge];
        if (e->kind == LG_EDGE_TOKEN && e->arg == token)
            arrive(a, e, e->to, item->reg, item->keys, item->node);
    }
    closure(a);
    return intern_cfg(a);
}

lg_auto_view lg_auto_look(const lg_auto *a)
{
    return (lg_auto_view){a->t[T_CFG].p, a->t[T_ROW].p};
}

void lg_auto_mark(lg_auto *a, bool vague)
{
    for (int i = 0; i < N_TABLES; i++)
        a->mark[i] = a->t[i].n;
    a->n_undo = 0;
    a->marked = true;
    a->vague = vague;
}

void lg_auto_back(lg_auto *a)
{
    for (size_t i = 0; i < a->n_undo; i++) {
        if (a->undo[i].byte == ROW)
            lg_auto_cfg(a, a->undo[i].row)->row = 0;
        else
            ((uint32_t *)at(a, T_ROW, a->undo[i].row))[a->undo[i].byte] = 0;
    }
    for (int id = 0; id < N_TABLES; id++) {
        table *t = &a->t[id];
        for (; t->head && t->n > a->mark[id]; t->n--) // the newest is the first of its chain
            t->head[t->hash[t->n - 1] & (t->n_head - 1)] = t->chain[t->n - 1];
        t->n = a->mark[id];
    }
    a->marked = a->vague = false;
}

static bool set_up(lg_auto *a)
{
    static const uint32_t sizes[N_TABLES] = {sizeof(frame),   sizeof(node),          sizeof(uint32_t),
                                             sizeof(key_set), sizeof(key_byte),      sizeof(lg_cfg_item),
                                             sizeof(lg_cfg),  ROW * sizeof(uint32_t)};
    static const bool hashed[N_TABLES] = {
        [T_NODE] = true, [T_KEY_SET] = true, [T_KEY_BYTE] = true, [T_CFG] = true};

    for (int i = 0; i < N_TABLES; i++) {
        a->t[i].size = sizes[i];
        if (hashed[i]) {
            a->t[i].n_head = 64;
            a->t[i].head = calloc(64, sizeof(uint32_t));
            if (!a->t[i].head)
                return false;
        }
    }
    return true;
}

static void fill_start(lg_auto *a)
{
    frame bottom = {.state = BOTTOM};
    key_set none = {0, 0};
    key_byte names[] = {{0}, {SOME_NAME, UINT32_MAX / 2, 0}}; // the root; longer than any known name
    lg_cfg unused[3] = {{0}};

    (void)node_of(a, &bottom, 1);
    if (append(a, T_KEY_SET, &none, 1) == LG_NONE || append(a, T_KEY_BYTE, names, 2) == LG_NONE ||
        append(a, T_CFG, unused, 3) == LG_NONE || append(a, T_ROW, NULL, 1) == LG_NONE ||
        !enter(a, T_KEY_SET, 0, 0) || !enter(a, T_KEY_BYTE, 0, 0) || !enter(a, T_KEY_BYTE, 1, 0) ||
        !enter(a, T_CFG, 0, 0) || !enter(a, T_CFG, 1, 0) || !enter(a, T_CFG, 2, 0)) {
        (void)fail(a, LG_E_NOMEM);
        return;
    }
    begin(a);
    pend(a, a->p->rule[a->p->root].start, 0, 0, 0);
    closure(a);
    a->start = intern_cfg(a);
}

lg_status lg_auto_create(const lg_program *p, lg_auto **out, lg_err *err)
{
    lg_auto *a = calloc(1, sizeof *a);
    lg_status st = LG_OK;

    if (a) {
        a->p = p;
        a->out = calloc(MAX_ITEMS, sizeof *a->out);
        a->todo = calloc(MAX_CLOSURE, sizeof *a->todo);
    }
    if (!a || !a->out || !a->todo || !set_up(a)) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory while setting up a grammar");
        goto out;
    }
    fill_start(a);
    if (a->failed != LG_OK) {
        st = LG_FAIL(err, a->failed, "the grammar cannot be started");
        goto out;
    }
    *out = a;
    a = NULL;
out:
    lg_auto_destroy(a);
    return st;
}

void lg_auto_destroy(lg_auto *a)
{
    if (!a)
        return;
    for (int i = 0; i < N_TABLES; i++) {
        free(a->t[i].p);
        free(a->t[i].chain);
        free(a->t[i].head);
        free(a->t[i].hash);
    }
    free(a->out);
    free(a->todo);
    free(a->undo);
    free(a);
}

void lg_auto_clear(lg_auto *a)
{
    for (int i = 0; i < N_TABLES; i++) {
        table *t = &a->t[i];
        if (t->head)
            memset(t->head, 0, t->n_head * sizeof *t->head);
        t->n = 0;
    }
    a->failed = LG_OK;
    a->marked = a->vague = false;
    fill_start(a);
}

size_t lg_auto_bytes(const lg_auto *a)
{
    size_t n = 0;

    for (int i = 0; i < N_TABLES; i++)
        n += a->t[i].n * (a->t[i].size + (a->t[i].head ? 2 * sizeof(uint32_t) : 0));
    return n;
}

uint32_t lg_auto_start(lg_auto *a)
{
    return a->failed == LG_OK ? a->start : LG_CFG_DEAD;
}

lg_status lg_auto_failed(const lg_auto *a)
{
    return a->failed;
}

lg_cfg *lg_auto_cfg(lg_auto *a, uint32_t cfg)
{
    return at(a, T_CFG, cfg);
}

const lg_cfg_item *lg_auto_item(const lg_auto *a, uint32_t item)
{
    return at(a, T_ITEM, item);
}

const lg_program *lg_auto_program(const lg_auto *a)
{
    return a->p;
}

uint64_t lg_auto_slow_steps(const lg_auto *a)
{
    return a->slow;
}
