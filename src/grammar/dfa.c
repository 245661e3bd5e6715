/*
 * grammar/dfa: see dfa.h. Everything is built by breadth-first numbering: a state is closed after its
 * successors have numbers, so edges lie in order of states without a second pass.
 */
#include "grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/compile.h"

enum { MINIMIZE_BELOW = 1500, CODE_POINTS = 0x110000 };

void lg_index_init(lg_index *x, lg_compiler *c, uint32_t width)
{
    *x = (lg_index){.c = c, .width = width, .n_slot = 64};
    x->slot = LG_TMP(c, uint32_t, x->n_slot);
}

static uint64_t mix(const uint64_t *key, uint32_t width)
{
    uint64_t h = 0x9e3779b97f4a7c15u;

    for (uint32_t i = 0; i < width; i++) {
        h = (h ^ key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static void index_rehash(lg_index *x)
{
    x->n_slot *= 2;
    x->slot = LG_TMP(x->c, uint32_t, x->n_slot);
    for (size_t i = 0; i < x->n; i++) {
        uint32_t at = (uint32_t)mix(x->key + i * x->width, x->width) & (x->n_slot - 1);
        while (x->slot[at])
            at = (at + 1) & (x->n_slot - 1);
        x->slot[at] = (uint32_t)i + 1;
    }
}

uint32_t lg_index_get(lg_index *x, const uint64_t *key, bool *added)
{
    uint32_t at = (uint32_t)mix(key, x->width) & (x->n_slot - 1);

    for (; x->slot[at]; at = (at + 1) & (x->n_slot - 1))
        if (memcmp(x->key + (size_t)(x->slot[at] - 1) * x->width, key, x->width * sizeof *key) == 0) {
            *added = false;
            return x->slot[at] - 1;
        }
    if ((x->n + 1) * x->width > x->cap_key) {
        size_t cap = x->cap_key ? x->cap_key * 2 : (size_t)x->width * 32;
        uint64_t *bigger = LG_TMP(x->c, uint64_t, cap);
        if (x->n)
            memcpy(bigger, x->key, x->n * x->width * sizeof *key);
        x->key = bigger;
        x->cap_key = cap;
    }
    memcpy(x->key + x->n * x->width, key, x->width * sizeof *key);
    x->slot[at] = (uint32_t)++x->n;
    *added = true;
    if (x->n * 2 > x->n_slot)
        index_rehash(x);
    return (uint32_t)x->n - 1;
}

void lg_dfa_begin(lg_dfa_maker *m, lg_compiler *c)
{
    *m = (lg_dfa_maker){.c = c};
    LG_GROW(c, m->first, 0, &m->cap_first);
    m->first[0] = 0;
}

void lg_dfa_edge_add(lg_dfa_maker *m, uint32_t lo, uint32_t hi, uint32_t to)
{
    if (m->n_edge > m->first[m->n] && m->edge[m->n_edge - 1].to == to &&
        m->edge[m->n_edge - 1].hi + 1 == lo) {
        m->edge[m->n_edge - 1].hi = hi;
        return;
    }
    LG_GROW(m->c, m->edge, m->n_edge, &m->cap_edge);
    m->edge[m->n_edge++] = (lg_dfa_edge){lo, hi, to};
    lg_compile_work(m->c, 1);
}

void lg_dfa_state_end(lg_dfa_maker *m, bool accept)
{
    LG_GROW(m->c, m->accept, m->n, &m->cap_accept);
    m->accept[m->n++] = accept;
    LG_GROW(m->c, m->first, m->n, &m->cap_first);
    m->first[m->n] = (uint32_t)m->n_edge;
    lg_compile_work(m->c, 1);
}

// Marks the states from which acceptance can be reached.
static bool *live_states(lg_compiler *c, const lg_dfa *d)
{
    uint32_t n_edge = d->first[d->n], n_todo = 0;
    uint32_t *start = LG_TMP(c, uint32_t, d->n + 2), *from = LG_TMP(c, uint32_t, n_edge + 1);
    uint32_t *todo = LG_TMP(c, uint32_t, d->n + 1);
    bool *live = LG_TMP(c, bool, d->n + 1);

    for (uint32_t i = 0; i < n_edge; i++)
        start[d->edge[i].to + 2]++;
    for (uint32_t s = 0; s < d->n; s++)
        start[s + 2] += start[s + 1];
    for (uint32_t s = 0; s < d->n; s++)
        for (uint32_t i = d->first[s]; i < d->first[s + 1]; i++)
            from[start[d->edge[i].to + 1]++] = s;
    for (uint32_t s = 0; s < d->n; s++)
        if (d->accept[s]) {
            live[s] = true;
            todo[n_todo++] = s;
        }
    while (n_todo) {
        uint32_t s = todo[--n_todo];
        for (uint32_t i = start[s]; i < start[s + 1]; i++)
            if (!live[from[i]]) {
                live[from[i]] = true;
                todo[n_todo++] = from[i];
            }
    }
    return live;
}

// The automaton whose states are classes: those of class[s] = LG_NONE are left out. Renumbers breadth first.
static lg_dfa renumber(lg_compiler *c, const lg_dfa *d, const uint32_t *class, uint32_t n_class)
{
    lg_dfa_maker m;
    uint32_t *number = LG_TMP(c, uint32_t, n_class + 1), *queue = LG_TMP(c, uint32_t, n_class + 1), n = 0;

    if (d->n == 0 || class[0] == LG_NONE)
        return (lg_dfa){0};
    lg_dfa_begin(&m, c);
    queue[n++] = 0;
    number[class[0]] = n;
    for (uint32_t q = 0; q < n; q++) {
        uint32_t s = queue[q];
        for (uint32_t i = d->first[s]; i < d->first[s + 1]; i++) {
            uint32_t to = d->edge[i].to;
            if (class[to] == LG_NONE)
                continue;
            if (!number[class[to]]) {
                queue[n++] = to;
                number[class[to]] = n;
            }
            lg_dfa_edge_add(&m, d->edge[i].lo, d->edge[i].hi, number[class[to]] - 1);
        }
        lg_dfa_state_end(&m, d->accept[s]);
    }
    return (lg_dfa){(uint32_t)m.n, m.first, m.edge, m.accept};
}

// Two states with these classes of their successors cannot be told apart yet.
static bool same_moves(const lg_dfa *d, const uint32_t *class, uint32_t a, uint32_t b)
{
    uint32_t i = d->first[a], j = d->first[b], ie = d->first[a + 1], je = d->first[b + 1];

    while (i < ie && j < je) {
        uint32_t lo = d->edge[i].lo, hi = d->edge[i].hi, to = class[d->edge[i].to];
        uint32_t lo2 = d->edge[j].lo, hi2 = d->edge[j].hi, to2 = class[d->edge[j].to];
        for (i++; i < ie && d->edge[i].lo == hi + 1 && class[d->edge[i].to] == to; i++)
            hi = d->edge[i].hi;
        for (j++; j < je && d->edge[j].lo == hi2 + 1 && class[d->edge[j].to] == to2; j++)
            hi2 = d->edge[j].hi;
        if (lo != lo2 || hi != hi2 || to != to2)
            return false;
    }
    return i == ie && j == je;
}

static uint64_t moves_hash(const lg_dfa *d, const uint32_t *class, uint32_t s)
{
    uint64_t h = class[s];

    for (uint32_t i = d->first[s]; i < d->first[s + 1];) {
        uint64_t part[3] = {d->edge[i].lo, d->edge[i].hi, class[d->edge[i].to]};
        for (i++; i < d->first[s + 1] && d->edge[i].lo == part[1] + 1 && class[d->edge[i].to] == part[2]; i++)
            part[1] = d->edge[i].hi;
        h = h * 31 + mix(part, 3);
    }
    return h;
}

// Splits classes of states until none can be told apart by one step (Moore).
static lg_dfa minimize(lg_compiler *c, const lg_dfa *d)
{
    uint32_t n_class = 1, before = 0, size = 4;
    uint32_t *class = LG_TMP(c, uint32_t, d->n + 1), *next = LG_TMP(c, uint32_t, d->n + 1), *slot;

    while (size < 2 * d->n)
        size *= 2;
    slot = LG_TMP(c, uint32_t, size);
    for (uint32_t s = 0; s < d->n; s++) {
        class[s] = d->accept[s];
        if (class[s] != class[0])
            n_class = 2;
    }
    while (n_class != before) {
        before = n_class;
        n_class = 0;
        memset(slot, 0, size * sizeof *slot);
        lg_compile_work(c, d->first[d->n] + d->n);
        for (uint32_t s = 0; s < d->n; s++) {
            uint32_t at = (uint32_t)(moves_hash(d, class, s) >> 7) & (size - 1);
            while (slot[at] && (class[slot[at] - 1] != class[s] || !same_moves(d, class, slot[at] - 1, s)))
                at = (at + 1) & (size - 1);
            if (!slot[at]) {
                slot[at] = s + 1;
                next[s] = n_class++;
            } else {
                next[s] = next[slot[at] - 1];
            }
        }
        uint32_t *swap = class;
        class = next;
        next = swap;
    }
    return renumber(c, d, class, n_class);
}

lg_dfa lg_dfa_end(lg_dfa_maker *m)
{
    lg_compiler *c = m->c;
    lg_dfa d = {(uint32_t)m->n, m->first, m->edge, m->accept};
    bool *live = live_states(c, &d);
    uint32_t *class = LG_TMP(c, uint32_t, d.n + 1);

    for (uint32_t s = 0; s < d.n; s++)
        class[s] = live[s] ? s : LG_NONE;
    d = renumber(c, &d, class, d.n);
    return d.n > 1 && d.n <= MINIMIZE_BELOW ? minimize(c, &d) : d;
}

lg_dfa lg_dfa_keep(lg_compiler *c, const lg_dfa *d)
{
    uint32_t n_edge = d->n ? d->first[d->n] : 0;
    uint32_t *first = LG_PERM(c, uint32_t, d->n + 1);
    lg_dfa_edge *edge = LG_PERM(c, lg_dfa_edge, n_edge + 1);
    bool *accept = LG_PERM(c, bool, d->n + 1);

    if (d->n) {
        memcpy(first, d->first, (d->n + 1) * sizeof *first);
        if (n_edge) // one state without edges: the empty text
            memcpy(edge, d->edge, n_edge * sizeof *edge);
        memcpy(accept, d->accept, d->n * sizeof *accept);
    }
    return (lg_dfa){d->n, first, edge, accept};
}

uint32_t lg_dfa_step(const lg_dfa *d, uint32_t s, uint32_t symbol)
{
    uint32_t lo = d->first[s], hi = d->first[s + 1];

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (d->edge[mid].hi < symbol)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < d->first[s + 1] && d->edge[lo].lo <= symbol ? d->edge[lo].to : LG_NONE;
}

bool lg_dfa_match(const lg_dfa *d, lg_str text)
{
    uint32_t s = 0;

    if (d->n == 0)
        return false;
    for (size_t i = 0; i < text.n;) {
        int32_t cp;
        i += (size_t)lg_utf8_step(text.p + i, text.n - i, &cp);
        s = cp < 0 ? LG_NONE : lg_dfa_step(d, s, (uint32_t)cp);
        if (s == LG_NONE)
            return false;
    }
    return d->accept[s];
}

typedef struct product {
    const lg_dfa *a, *b;
    lg_dfa_op op;
    lg_index pairs;
} product;

static uint32_t pair(product *p, uint32_t a, uint32_t b)
{
    uint64_t key = (uint64_t)a << 32 | b;
    bool added;
    uint32_t id = lg_index_get(&p->pairs, &key, &added);

    if (p->pairs.n > LG_MAX_PAIRS)
        lg_compile_fail(p->pairs.c, LG_GRAMMAR_TOO_COMPLEX,
                        "the combination of patterns needs too many states");
    return id;
}

static bool useful(lg_dfa_op op, uint32_t a, uint32_t b)
{
    if (op == LG_DFA_AND)
        return a != LG_NONE && b != LG_NONE;
    return op == LG_DFA_AND_NOT ? a != LG_NONE : a != LG_NONE || b != LG_NONE;
}

static bool accepts(const product *p, uint32_t a, uint32_t b)
{
    bool x = a != LG_NONE && p->a->accept[a], y = b != LG_NONE && p->b->accept[b];

    switch (p->op) {
    case LG_DFA_AND: return x && y;
    case LG_DFA_AND_NOT: return x && !y;
    case LG_DFA_XOR: return x != y;
    case LG_DFA_OR: return x || y;
    }
    return false;
}

// Edges of a pair: both edge lists, cut wherever one of them begins or ends.
static void pair_edges(product *p, lg_dfa_maker *m, uint32_t a, uint32_t b)
{
    uint32_t i = a == LG_NONE ? 0 : p->a->first[a], ie = a == LG_NONE ? 0 : p->a->first[a + 1];
    uint32_t j = b == LG_NONE ? 0 : p->b->first[b], je = b == LG_NONE ? 0 : p->b->first[b + 1];

    for (uint32_t x = 0; x < CODE_POINTS && (i < ie || j < je);) {
        uint32_t ta = LG_NONE, tb = LG_NONE, end = CODE_POINTS - 1;
        if (i < ie) {
            bool in = p->a->edge[i].lo <= x;
            ta = in ? p->a->edge[i].to : LG_NONE;
            end = in ? p->a->edge[i].hi : p->a->edge[i].lo - 1;
        }
        if (j < je) {
            bool in = p->b->edge[j].lo <= x;
            uint32_t stop = in ? p->b->edge[j].hi : p->b->edge[j].lo - 1;
            tb = in ? p->b->edge[j].to : LG_NONE;
            end = stop < end ? stop : end;
        }
        if (useful(p->op, ta, tb) && (ta != LG_NONE || tb != LG_NONE))
            lg_dfa_edge_add(m, x, end, pair(p, ta, tb));
        if (i < ie && p->a->edge[i].hi == end)
            i++;
        if (j < je && p->b->edge[j].hi == end)
            j++;
        x = end + 1;
    }
}

lg_dfa lg_dfa_product(lg_compiler *c, const lg_dfa *a, const lg_dfa *b, lg_dfa_op op)
{
    product p = {.a = a, .b = b, .op = op};
    lg_dfa_maker m;
    uint32_t sa = a->n ? 0 : LG_NONE, sb = b->n ? 0 : LG_NONE;

    if (!useful(op, sa, sb))
        return (lg_dfa){0};
    lg_index_init(&p.pairs, c, 1);
    lg_dfa_begin(&m, c);
    (void)pair(&p, sa, sb);
    for (size_t k = 0; k < p.pairs.n; k++) {
        uint32_t x = (uint32_t)(p.pairs.key[k] >> 32), y = (uint32_t)p.pairs.key[k];
        pair_edges(&p, &m, x, y);
        lg_dfa_state_end(&m, accepts(&p, x, y));
    }
    return lg_dfa_end(&m);
}

bool lg_dfa_meet(lg_compiler *c, const lg_dfa *a, const lg_dfa *b)
{
    lg_mark mark = lg_arena_mark(&c->tmp);
    bool meet = lg_dfa_product(c, a, b, LG_DFA_AND).n > 0;

    lg_arena_reset(&c->tmp, mark);
    return meet;
}

static void any_edges(lg_dfa_maker *m, uint32_t to)
{
    lg_dfa_edge_add(m, 0, 0xd7ff, to);
    lg_dfa_edge_add(m, 0xe000, CODE_POINTS - 1, to);
}

lg_dfa lg_dfa_any(lg_compiler *c)
{
    lg_dfa_maker m;

    lg_dfa_begin(&m, c);
    any_edges(&m, 0);
    lg_dfa_state_end(&m, true);
    return lg_dfa_end(&m);
}

lg_dfa lg_dfa_length(lg_compiler *c, uint32_t min, uint32_t max)
{
    lg_dfa_maker m;
    uint32_t last = max == LG_NONE ? min : max;

    if (min > last)
        return (lg_dfa){0};
    if (last > LG_MAX_DFA)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "a length bound for names may be at most %d", LG_MAX_DFA);
    lg_dfa_begin(&m, c);
    for (uint32_t s = 0; s <= last; s++) {
        if (s < last || max == LG_NONE)
            any_edges(&m, s < last ? s + 1 : s);
        lg_dfa_state_end(&m, s >= min);
    }
    return lg_dfa_end(&m);
}

static int compare_words(const void *a, const void *b)
{
    const lg_str *x = a, *y = b;
    int r = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return r ? r : (x->n > y->n) - (x->n < y->n);
}

// A state stands for words [lo, hi) that share their first `depth` bytes.
lg_dfa lg_dfa_words(lg_compiler *c, const lg_str *word, size_t n)
{
    lg_str *w = LG_TMP(c, lg_str, n + 1);
    lg_dfa_maker m;
    lg_index ranges;
    uint64_t key[3] = {0, n, 0};
    bool added;

    if (n == 0)
        return (lg_dfa){0};
    memcpy(w, word, n * sizeof *w);
    qsort(w, n, sizeof *w, compare_words);
    lg_index_init(&ranges, c, 3);
    (void)lg_index_get(&ranges, key, &added);
    lg_dfa_begin(&m, c);
    for (size_t s = 0; s < ranges.n; s++) {
        size_t lo = ranges.key[3 * s], hi = ranges.key[3 * s + 1], depth = ranges.key[3 * s + 2];
        bool accept = false;
        for (; lo < hi && w[lo].n == depth; lo++)
            accept = true;
        while (lo < hi) { // bytes of UTF-8 sort like code points
            int32_t cp, cp2;
            size_t len = (size_t)lg_utf8_step(w[lo].p + depth, w[lo].n - depth, &cp), end = lo + 1;
            while (end < hi && (lg_utf8_step(w[end].p + depth, w[end].n - depth, &cp2), cp2 == cp))
                end++;
            key[0] = lo;
            key[1] = end;
            key[2] = depth + len;
            lg_dfa_edge_add(&m, (uint32_t)cp, (uint32_t)cp, lg_index_get(&ranges, key, &added));
            lo = end;
        }
        lg_dfa_state_end(&m, accept);
    }
    return lg_dfa_end(&m);
}

// State k: the last k characters are the longest beginning of the word that they end with.
lg_dfa lg_dfa_containing(lg_compiler *c, lg_str word)
{
    lg_dfa_maker m;

    lg_dfa_begin(&m, c);
    for (uint32_t k = 0; k < word.n; k++) {
        for (uint32_t b = 0; b < 128; b++) {
            char text[64];
            uint32_t to = k + 1;
            LG_ASSERT(word.n < sizeof text);
            memcpy(text, word.p, k);
            text[k] = (char)b;
            while (to > 0 && memcmp(text + k + 1 - to, word.p, to) != 0)
                to--;
            lg_dfa_edge_add(&m, b, b, to);
        }
        lg_dfa_edge_add(&m, 128, 0xd7ff, 0);
        lg_dfa_edge_add(&m, 0xe000, CODE_POINTS - 1, 0);
        lg_dfa_state_end(&m, false);
    }
    any_edges(&m, (uint32_t)word.n);
    lg_dfa_state_end(&m, true);
    return lg_dfa_end(&m);
}

// States leave the queue when all successors have a count; those on the way to a cycle never do.
void lg_dfa_count(lg_compiler *c, const lg_dfa *d, uint32_t *count)
{
    uint32_t n_edge = d->n ? d->first[d->n] : 0, n_todo = 0;
    uint32_t *left = LG_TMP(c, uint32_t, d->n + 1), *todo = LG_TMP(c, uint32_t, d->n + 1);
    uint32_t *start = LG_TMP(c, uint32_t, d->n + 2), *from = LG_TMP(c, uint32_t, n_edge + 1);

    for (uint32_t i = 0; i < n_edge; i++)
        start[d->edge[i].to + 2]++;
    for (uint32_t s = 0; s < d->n; s++)
        start[s + 2] += start[s + 1];
    for (uint32_t s = 0; s < d->n; s++) {
        count[s] = LG_COUNT_MANY;
        left[s] = d->first[s + 1] - d->first[s];
        if (!left[s])
            todo[n_todo++] = s;
        for (uint32_t i = d->first[s]; i < d->first[s + 1]; i++)
            from[start[d->edge[i].to + 1]++] = s;
    }
    while (n_todo) {
        uint32_t s = todo[--n_todo];
        uint64_t sum = d->accept[s];
        for (uint32_t i = d->first[s]; i < d->first[s + 1]; i++) {
            sum += (uint64_t)(d->edge[i].hi - d->edge[i].lo + 1) * count[d->edge[i].to];
            sum = sum < LG_COUNT_MANY ? sum : LG_COUNT_MANY;
        }
        count[s] = (uint32_t)sum;
        for (uint32_t i = start[s]; i < start[s + 1]; i++)
            if (--left[from[i]] == 0)
                todo[n_todo++] = from[i];
    }
}
