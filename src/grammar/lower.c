/*
 * grammar/lower: conjunctions: their expansion into alternatives, and which of them no value satisfies.
 */
#include "grammar/lower.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = 3000 };

static int compare_u32(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static uint32_t conj_hash(const uint32_t *id, uint32_t n, bool proof)
{
    uint64_t h = 77u + proof;

    for (uint32_t i = 0; i < n; i++)
        h = (h ^ id[i]) * 0x9e3779b97f4a7c15u ^ h >> 32;
    return (uint32_t)(h >> 16);
}

static void conj_rehash(lg_compiler *c, lg_lower *l)
{
    l->n_slot = l->n_slot ? l->n_slot * 2 : 256;
    l->slot = LG_PERM(c, uint32_t, l->n_slot);
    for (size_t i = 1; i < l->n_conj; i++) { // LG_NEVER is not searched for
        uint32_t at = conj_hash(l->conj[i].id, l->conj[i].n, l->conj[i].proof) & (l->n_slot - 1);
        while (l->slot[at])
            at = (at + 1) & (l->n_slot - 1);
        l->slot[at] = (uint32_t)i + 1;
    }
}

// An array that outlives the temporary arena: doubled by copying.
static void *grow_perm(lg_compiler *c, void *p, size_t n, size_t *cap, size_t size)
{
    void *bigger;

    if (n < *cap)
        return p;
    *cap = *cap ? *cap * 2 : 64;
    bigger = lg_compile_perm(c, *cap, size);
    if (n)
        memcpy(bigger, p, n * size);
    return bigger;
}

uint32_t lg_lower_conj(lg_compiler *c, const uint32_t *id, uint32_t n, bool proof)
{
    lg_lower *l = c->lower;
    uint32_t *own = LG_PERM(c, uint32_t, n + 1), m = 0, at;

    if (n)
        memcpy(own, id, n * sizeof *own);
    qsort(own, n, sizeof *own, compare_u32);
    for (uint32_t i = 0; i < n; i++)
        if (!lg_json_is(c->node[own[i] >> 1].j, LG_JSON_TRUE) && (m == 0 || own[m - 1] != own[i]))
            own[m++] = own[i];
    if (l->n_conj * 2 >= l->n_slot)
        conj_rehash(c, l);
    for (at = conj_hash(own, m, proof) & (l->n_slot - 1); l->slot[at]; at = (at + 1) & (l->n_slot - 1)) {
        const lg_conj *o = &l->conj[l->slot[at] - 1];
        if (o->n == m && o->proof == proof && memcmp(o->id, own, m * sizeof *own) == 0)
            return l->slot[at] - 1;
    }
    if (l->n_conj >= LG_MAX_RULES)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "the schema needs more than %d rules", LG_MAX_RULES);
    l->conj = grow_perm(c, l->conj, l->n_conj, &l->cap_conj, sizeof *l->conj);
    l->conj[l->n_conj] =
        (lg_conj){.id = own, .n = m, .proof = proof, .height = LG_NO_HEIGHT, .rule = LG_NONE};
    l->slot[at] = (uint32_t)l->n_conj + 1;
    l->todo = grow_perm(c, l->todo, l->n_todo, &l->cap_todo, sizeof *l->todo);
    l->todo[l->n_todo++] = (uint32_t)l->n_conj;
    return (uint32_t)l->n_conj++;
}

typedef struct member {
    uint32_t node, parent; // parent: what led here, LG_NONE for an element of the conjunction
    bool chosen;           // by way of a branch
} member;

typedef struct choice {
    uint32_t owner, list; // member; node of the list of branches
    bool one_of;
} choice;

typedef struct expansion {
    lg_compiler *c;
    member *m;
    size_t n, cap;
    choice *choice;
    size_t n_choice, cap_choice;
    unsigned types;
    bool proof;
    uint32_t closes; // node whose $ref led back, LG_NONE
    uint32_t branches;
    lg_alternative_fn fn;
    void *ctx;
} expansion;

static bool add(expansion *x, uint32_t node, uint32_t parent, bool chosen, bool own);

// A node is there already. By way of a branch, an ancestor cannot be its own reason.
static bool met_again(expansion *x, uint32_t seen, uint32_t parent, bool chosen)
{
    for (uint32_t i = parent; i != LG_NONE; i = x->m[i].parent) {
        if (i == seen) {
            if (lg_schema_get(x->c, x->m[parent].node, "$ref"))
                x->closes = x->m[parent].node;
            return !chosen;
        }
        chosen |= x->m[i].chosen;
    }
    return true;
}

static bool add_keywords(expansion *x, uint32_t node, uint32_t self)
{
    lg_compiler *c = x->c;
    const lg_json *j = c->node[node].j;

    for (size_t i = 0; i < lg_json_len(j); i++) {
        lg_str key;
        const lg_json *v = lg_json_member(j, i, &key);
        if (lg_str_eqz(key, "$ref")) {
            if (!add(x, lg_schema_ref(c, node), self, false, false))
                return false;
        } else if (lg_str_eqz(key, "allOf")) {
            uint32_t list = lg_schema_at(c, node, i);
            for (size_t k = 0; k < lg_json_len(v); k++)
                if (!add(x, lg_schema_at(c, list, k), self, false, false))
                    return false;
        } else if (lg_str_eqz(key, "anyOf") || lg_str_eqz(key, "oneOf")) {
            LG_GROW(c, x->choice, x->n_choice, &x->cap_choice);
            x->choice[x->n_choice++] = (choice){self, lg_schema_at(c, node, i), key.p[0] == 'o'};
        }
    }
    return true;
}

// Adds a node and what holds with it; false when nothing can satisfy the whole.
static bool add(expansion *x, uint32_t node, uint32_t parent, bool chosen, bool own)
{
    lg_compiler *c = x->c;

    lg_compile_work(c, 1 + x->n / 16);
    for (size_t i = 0; i < x->n; i++)
        if (x->m[i].node == node)
            return met_again(x, (uint32_t)i, parent, chosen);
    lg_schema_check(c, node);
    if (lg_json_is(c->node[node].j, LG_JSON_FALSE))
        return false;
    if (lg_json_is(c->node[node].j, LG_JSON_TRUE))
        return true;
    if (x->n >= MAX_MEMBERS)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "more than %d schemas apply to one value", MAX_MEMBERS);
    LG_GROW(c, x->m, x->n, &x->cap);
    x->m[x->n] = (member){node, parent, chosen};
    x->types &= lg_schema_types(c, node);
    return own ? x->n++ > 0 || true : add_keywords(x, node, (uint32_t)x->n++);
}

// Every two branches of a oneOf, with all that holds beside them, must be empty together.
static void demand_proofs(expansion *x, const choice *ch)
{
    lg_compiler *c = x->c;
    size_t n = lg_json_len(c->node[ch->list].j);
    uint32_t *id = LG_TMP(c, uint32_t, x->n + 2);

    for (size_t i = 0; i < x->n; i++)
        id[i] = LG_OWN(x->m[i].node);
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n; b++) {
            lg_lower *l = c->lower;
            id[x->n] = LG_WHOLE(lg_schema_at(c, ch->list, a));
            id[x->n + 1] = LG_WHOLE(lg_schema_at(c, ch->list, b));
            if (lg_json_is(c->node[id[x->n] >> 1].j, LG_JSON_FALSE) ||
                lg_json_is(c->node[id[x->n + 1] >> 1].j, LG_JSON_FALSE))
                continue;
            lg_compile_work(c, 50 + x->n);
            l->proof = grow_perm(c, l->proof, l->n_proof, &l->cap_proof, sizeof *l->proof);
            l->proof[l->n_proof].node = x->m[ch->owner].node;
            l->proof[l->n_proof].conj = lg_lower_conj(c, id, (uint32_t)x->n + 2, true);
            l->n_proof++;
        }
}

static void finish(expansion *x)
{
    uint32_t *node = LG_TMP(x->c, uint32_t, x->n + 1);

    for (size_t i = 0; i < x->n; i++)
        node[i] = x->m[i].node;
    x->fn(x->c, &(lg_alternative){node, (uint32_t)x->n, x->types, x->proof, NULL, 0}, x->ctx);
}

static bool literal_values(const expansion *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (lg_schema_get(x->c, x->m[i].node, "enum") || lg_schema_get(x->c, x->m[i].node, "const"))
            return true;
    return false;
}

// The branches of a oneOf that are all numbers, or all strings, may overlap: what is in exactly one of them
// is an automaton again. False when these are no such branches; nothing has changed then.
static bool exclusive_scalars(expansion *x, size_t k)
{
    lg_compiler *c = x->c;
    choice ch = x->choice[k];
    size_t n = x->n, n_choice = x->n_choice, n_branch = lg_json_len(c->node[ch.list].j);
    unsigned types = x->types, all = 0;
    lg_alternative *alt = LG_TMP(c, lg_alternative, n_branch),
                   whole = {.types = 0, .proof = x->proof, .one_of = alt};
    bool ok = k + 1 == n_choice;

    for (size_t i = 0; i < n_branch && ok; i++) {
        if (add(x, lg_schema_at(c, ch.list, i), ch.owner, true, false) && x->types) {
            uint32_t *node = LG_TMP(c, uint32_t, x->n + 1);
            for (size_t m = 0; m < x->n; m++)
                node[m] = x->m[m].node;
            ok = x->n_choice == n_choice && !literal_values(x);
            all |= x->types;
            alt[whole.n_one_of++] = (lg_alternative){node, (uint32_t)x->n, x->types, x->proof, NULL, 0};
        }
        x->n = n;
        x->n_choice = n_choice;
        x->types = types;
    }
    if (!ok || whole.n_one_of < 2 || ((all & ~(unsigned)LG_TYPE_NUMBER) && all != LG_TYPE_STRING))
        return false;
    whole.types = all;
    x->fn(c, &whole, x->ctx);
    return true;
}

// Takes each branch of choice k in turn. As deep as there are choices.
static void choose(expansion *x, size_t k)
{
    lg_compiler *c = x->c;
    size_t n = x->n, n_choice = x->n_choice, n_branch;
    unsigned types = x->types;
    choice ch;

    if (!types)
        return;
    if (k == n_choice) {
        if (++x->branches > LG_MAX_BRANCHES)
            lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "one value has more than %d alternatives",
                            LG_MAX_BRANCHES);
        finish(x);
        return;
    }
    ch = x->choice[k];
    n_branch = lg_json_len(c->node[ch.list].j);
    if (ch.one_of && !x->proof && !c->opt->one_of_any) {
        if (exclusive_scalars(x, k))
            return;
        demand_proofs(x, &ch);
    }
    for (size_t i = 0; i < n_branch; i++) {
        lg_compile_work(c, 20);
        if (add(x, lg_schema_at(c, ch.list, i), ch.owner, true, false))
            choose(x, k + 1);
        x->n = n;
        x->n_choice = n_choice;
        x->types = types;
    }
}

// Does a node say anything but where it points?
static bool only_refers(const lg_json *j)
{
    static const char *const names[] = {"$ref",    "$defs",   "definitions", "$id",   "id",
                                        "$schema", "$anchor", "$comment",    "title", "description"};

    for (size_t i = 0; i < lg_json_len(j); i++) {
        lg_str key;
        bool known = false;
        (void)lg_json_member(j, i, &key);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            known |= lg_str_eqz(key, names[k]);
        if (!known)
            return false;
    }
    return true;
}

void lg_lower_expand(lg_compiler *c, const uint32_t *id, uint32_t n, bool proof, lg_alternative_fn fn,
                     void *ctx)
{
    expansion x = {.c = c, .types = LG_TYPE_ALL, .proof = proof, .closes = LG_NONE, .fn = fn, .ctx = ctx};
    bool empty_cycle = true;

    for (uint32_t i = 0; i < n; i++)
        if (!add(&x, id[i] >> 1, LG_NONE, false, id[i] & 1))
            return;
    for (size_t i = 0; i < x.n; i++)
        empty_cycle = empty_cycle && only_refers(c->node[x.m[i].node].j);
    if (x.closes != LG_NONE && empty_cycle) {
        lg_compile_at(c, x.closes, "$ref", NULL);
        lg_compile_fail(c, LG_GRAMMAR_NONPRODUCTIVE_REF, "the references only lead back to themselves");
    }
    choose(&x, 0);
}

// --- emptiness ---

static uint16_t child_height(const lg_lower *l, uint32_t conj)
{
    uint16_t h = l->conj[conj].height;

    return h == LG_NO_HEIGHT || h >= LG_MAX_OUTPUT_DEPTH ? LG_NO_HEIGHT : (uint16_t)(h + 1);
}

static uint16_t array_height(const lg_lower *l, const lg_body *b)
{
    uint16_t h = 0;

    if (b->max != LG_NONE && b->min > b->max)
        return LG_NO_HEIGHT;
    for (uint32_t i = 0; i < b->min; i++) {
        uint16_t own = child_height(l, b->child[i < b->n ? i : b->n]);
        if (own == LG_NO_HEIGHT)
            return own;
        h = own > h ? own : h;
        if (i >= b->n)
            break; // the others are like this one
    }
    return h;
}

static int compare_u16(const void *a, const void *b)
{
    const uint16_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

// The required members, and the lowest others until there are enough.
static uint16_t object_height(lg_compiler *c, const lg_body *b)
{
    const lg_lower *l = c->lower;
    lg_mark mark = lg_arena_mark(&c->tmp);
    uint16_t h = 0, *other = LG_TMP(c, uint16_t, b->n + b->n_class * (LG_MAX_USED_KEYS + 1) + 1), own;
    uint32_t n_req = 0, n = 0;

    for (uint32_t i = 0; i < b->n && h != LG_NO_HEIGHT; i++) {
        own = child_height(l, b->child[i]);
        if (b->required[i]) {
            n_req++;
            h = own > h ? own : h; // LG_NO_HEIGHT is the largest
        } else if (own != LG_NO_HEIGHT) {
            other[n++] = own;
        }
    }
    for (uint32_t i = 0; i < b->n_class && b->min > n_req; i++) {
        const lg_term *t = &c->prog->term[b->class_term[i]];
        uint32_t most = t->dfa.n ? t->count[0] : LG_COUNT_MANY;
        own = child_height(l, b->class_child[i]);
        for (uint32_t k = 0; own != LG_NO_HEIGHT && k < most && k < LG_MAX_USED_KEYS; k++)
            other[n++] = own;
    }
    if (h != LG_NO_HEIGHT && (n_req > b->max || b->min > b->max))
        h = LG_NO_HEIGHT;
    if (h != LG_NO_HEIGHT && b->min > n_req) {
        qsort(other, n, sizeof *other, compare_u16);
        if (b->min - n_req > n)
            h = LG_NO_HEIGHT;
        else if (other[b->min - n_req - 1] > h)
            h = other[b->min - n_req - 1];
    }
    lg_arena_reset(&c->tmp, mark);
    return h;
}

uint16_t lg_lower_height(lg_compiler *c, const lg_body *b)
{
    if (b->kind == LG_BODY_ARRAY)
        return array_height(c->lower, b);
    return b->kind == LG_BODY_OBJECT ? object_height(c, b) : 0;
}

static void find_heights(lg_compiler *c)
{
    lg_lower *l = c->lower;

    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = l->n_conj; i-- > 0;) { // children come after their parents mostly
            lg_conj *k = &l->conj[i];
            uint16_t best = LG_NO_HEIGHT, h;
            for (const lg_body *b = k->body; b; b = b->next) {
                h = lg_lower_height(c, b);
                best = h < best ? h : best;
                lg_compile_work(c, 1 + b->n / 4);
            }
            if (best < k->height) {
                k->height = best;
                changed = true;
            }
        }
    }
}

static void make_bodies(lg_compiler *c, const lg_alternative *a, void *list)
{
    lg_lower_bodies(c, a, list);
}

// The node that a conjunction of one reference stands for, or its first node.
static uint32_t resolved(lg_compiler *c, const lg_conj *k)
{
    uint32_t node = k->id[0] >> 1;

    for (int i = 0; i < LG_SCHEMA_MAX_DEPTH && k->n == 1 && lg_schema_get(c, node, "$ref"); i++) {
        if (!only_refers(c->node[node].j))
            break;
        node = lg_schema_ref(c, node);
    }
    return node;
}

// Part of a body that must be there and cannot; LG_NONE when there is none.
static uint32_t impossible_part(const lg_lower *l, const lg_body *b)
{
    uint32_t n = b->kind == LG_BODY_OBJECT ? b->n : b->kind == LG_BODY_ARRAY ? b->n + 1 : 0;

    for (uint32_t i = 0; i < n; i++)
        if ((b->kind == LG_BODY_OBJECT ? b->required[i] : i < b->min) &&
            l->conj[b->child[i]].height == LG_NO_HEIGHT)
            return i;
    return LG_NONE;
}

// The place to blame for an empty conjunction: down to the innermost part that must be there and cannot.
static void blame(lg_compiler *c, uint32_t conj)
{
    lg_lower *l = c->lower;
    uint32_t seen[LG_SCHEMA_MAX_DEPTH], n = 0;

    while (l->conj[conj].n && n < LG_SCHEMA_MAX_DEPTH) {
        const lg_conj *k = &l->conj[conj], *child;
        const lg_body *b = k->body;
        uint32_t node = resolved(c, k), part;
        for (uint32_t i = 0; i < n; i++)
            if (seen[i] == node) // a part that needs the whole: the whole is to blame
                return;
        seen[n++] = node;
        lg_compile_at(c, n == 1 ? node : k->id[0] >> 1, NULL, NULL);
        if (!b || b->next || (part = impossible_part(l, b)) == LG_NONE)
            return;
        child = &l->conj[b->child[part]];
        if (b->child[part] == LG_NEVER || (b->kind == LG_BODY_OBJECT && child->n == 1 &&
                                           lg_json_is(c->node[child->id[0] >> 1].j, LG_JSON_FALSE))) {
            for (uint32_t i = 0; i < k->n; i++)
                if (lg_schema_get(c, k->id[i] >> 1, "required"))
                    lg_compile_at(c, k->id[i] >> 1, "required", NULL);
            return;
        }
        conj = b->child[part];
    }
}

void lg_lower_all(lg_compiler *c, uint32_t root)
{
    lg_lower *l = c->lower;

    // the first conjunction is LG_NEVER and stays without a body
    while (l->n_todo) {
        uint32_t i = l->todo[--l->n_todo];
        size_t before = l->n_todo;
        lg_body *list = NULL;
        lg_mark mark = lg_arena_mark(&c->tmp);
        c->closed = c->tools && i == root;
        lg_lower_expand(c, l->conj[i].id, l->conj[i].n, l->conj[i].proof, make_bodies, &list);
        c->closed = false;
        l->conj[i].body = list;
        l->conj[i].expanded = true;
        lg_arena_reset(&c->tmp, mark);
        for (size_t a = before, b = l->n_todo; a + 1 < b; a++) { // children in the order of the document
            uint32_t t = l->todo[a];
            l->todo[a] = l->todo[--b];
            l->todo[b] = t;
        }
    }
    find_heights(c);
    for (size_t i = 0; i < l->n_proof; i++)
        if (l->conj[l->proof[i].conj].height != LG_NO_HEIGHT) {
            lg_compile_at(c, l->proof[i].node, "oneOf", NULL);
            lg_compile_fail(c, LG_GRAMMAR_ONEOF_NOT_DISJOINT,
                            "the branches of \"oneOf\" could hold at the same time");
        }
    if (l->conj[root].height == LG_NO_HEIGHT) {
        lg_compile_at(c, c->root, NULL, NULL);
        blame(c, root);
        lg_compile_fail(c, LG_GRAMMAR_UNSATISFIABLE, "no value satisfies this");
    }
}
