/*
 * grammar/regex: from the tree of a pattern to an automaton, by way of Thompson's construction and subsets.
 *
 * Anchors are moves that consume nothing: ^ may be taken before the first character only, $ only when nothing
 * follows. So the start state is closed over ^, and a set of states accepts when $ and empty moves lead to
 * acceptance.
 *
 * Surprise: the automaton is made completely, here; a pattern whose subsets explode is refused instead of
 * being followed lazily (decision 0071). In return every question about it is settled before the first token.
 */
#include "grammar/regex.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_POSITIONS = 16384, MAX_SYMBOL_CUTS = 20000 };

typedef enum move { M_SPLIT, M_CHARS, M_START, M_END, M_ACCEPT, M_REST } move;

typedef struct nfa_state {
    move kind;
    uint32_t out[2]; // LG_NONE: no move
    uint32_t set;    // of CHARS
} nfa_state;

typedef struct nfa {
    lg_compiler *c;
    nfa_state *state;
    size_t n, cap, n_chars;
    const lg_re **set; // the CHARS nodes
    size_t n_set, cap_set;
    uint32_t accept;
    // symbols: elementary intervals begin at cut[i], and those of equal symbol[i] cannot be told apart
    uint32_t *cut, *symbol, n_cut, n_symbol;
    uint64_t **member; // of each symbol: bit set of the sets it is in
    // marks of the closure
    uint32_t *seen, now, *stack;
} nfa;

static uint32_t state(nfa *x, move kind, uint32_t a, uint32_t b)
{
    LG_GROW(x->c, x->state, x->n, &x->cap);
    x->n_chars += kind == M_CHARS;
    if (x->n_chars > MAX_POSITIONS || x->n > 8 * MAX_POSITIONS)
        lg_compile_fail(x->c, LG_GRAMMAR_TOO_COMPLEX, "the pattern needs more than %d positions",
                        MAX_POSITIONS);
    x->state[x->n] = (nfa_state){kind, {a, b}, 0};
    lg_compile_work(x->c, 1);
    return (uint32_t)x->n++;
}

static uint32_t emit(nfa *x, const lg_re *re, uint32_t to);

static uint32_t emit_repeat(nfa *x, const lg_re *re, uint32_t to)
{
    uint32_t at = to;

    if (re->max == LG_NONE) {
        uint32_t loop = state(x, M_SPLIT, LG_NONE, to), body = emit(x, re->child, loop);
        x->state[loop].out[0] = body;
        at = loop;
    } else {
        for (uint32_t i = re->min; i < re->max; i++) {
            uint32_t body = emit(x, re->child, at);
            at = state(x, M_SPLIT, body, to);
        }
    }
    for (uint32_t i = 0; i < re->min; i++)
        at = emit(x, re->child, at);
    return at;
}

static uint32_t emit_sequence(nfa *x, const lg_re *first, uint32_t to)
{
    size_t n = 0;
    const lg_re **part;

    for (const lg_re *p = first; p; p = p->next)
        n++;
    part = LG_TMP(x->c, const lg_re *, n + 1);
    n = 0;
    for (const lg_re *p = first; p; p = p->next)
        part[n++] = p;
    while (n)
        to = emit(x, part[--n], to);
    return to;
}

// States that match `re` and then go to `to`; returns the first. As deep as the groups are nested.
static uint32_t emit(nfa *x, const lg_re *re, uint32_t to)
{
    uint32_t at;

    switch (re->kind) {
    case LG_RE_EMPTY: return to;
    case LG_RE_START: return state(x, M_START, to, LG_NONE);
    case LG_RE_END: return state(x, M_END, to, LG_NONE);
    case LG_RE_SEQ: return emit_sequence(x, re->child, to);
    case LG_RE_REPEAT: return emit_repeat(x, re, to);
    case LG_RE_CHARS:
        at = state(x, M_CHARS, to, LG_NONE);
        for (size_t i = x->n_set; i-- > 0;)
            if (x->set[i] == re) {
                x->state[at].set = (uint32_t)i;
                return at;
            }
        LG_GROW(x->c, x->set, x->n_set, &x->cap_set);
        x->set[x->n_set] = re;
        x->state[at].set = (uint32_t)x->n_set++;
        return at;
    case LG_RE_ALT:
        at = LG_NONE;
        for (const lg_re *p = re->child; p; p = p->next) {
            uint32_t branch = emit(x, p, to);
            at = at == LG_NONE ? branch : state(x, M_SPLIT, at, branch);
        }
        return at;
    }
    return to;
}

static int compare_u32(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

// Cuts the code space where a set begins or ends, and gives intervals with equal membership one symbol.
static void make_symbols(nfa *x)
{
    size_t n = 0, words = x->n_set / 64 + 1;
    uint32_t *at = LG_TMP(x->c, uint32_t, x->n_set + 1);
    lg_index members;
    bool added;

    for (size_t i = 0; i < x->n_set; i++)
        n += 2 * (size_t)x->set[i]->n_range;
    if (n > MAX_SYMBOL_CUTS)
        lg_compile_fail(x->c, LG_GRAMMAR_TOO_COMPLEX, "the classes of the pattern have too many ranges");
    x->cut = LG_TMP(x->c, uint32_t, n + 4);
    for (size_t i = 0; i < x->n_set; i++)
        for (uint32_t k = 0; k < x->set[i]->n_range; k++) {
            x->cut[x->n_cut++] = x->set[i]->range[k].lo;
            x->cut[x->n_cut++] = x->set[i]->range[k].hi + 1;
        }
    x->cut[x->n_cut++] = 0;
    x->cut[x->n_cut++] = 0xd800;
    x->cut[x->n_cut++] = 0xe000;
    x->cut[x->n_cut++] = 0x110000;
    qsort(x->cut, x->n_cut, sizeof *x->cut, compare_u32);
    n = 0;
    for (uint32_t i = 0; i < x->n_cut; i++)
        if (i == 0 || x->cut[i] != x->cut[i - 1])
            x->cut[n++] = x->cut[i];
    x->n_cut = (uint32_t)n - 1; // the last cut is the end
    x->symbol = LG_TMP(x->c, uint32_t, x->n_cut);
    lg_index_init(&members, x->c, (uint32_t)words);
    for (uint32_t i = 0; i < x->n_cut; i++) {
        uint64_t *bits = LG_TMP(x->c, uint64_t, words);
        for (size_t k = 0; k < x->n_set; k++) {
            const lg_re *set = x->set[k];
            while (at[k] < set->n_range && set->range[at[k]].hi < x->cut[i])
                at[k]++;
            if (at[k] < set->n_range && set->range[at[k]].lo <= x->cut[i])
                bits[k / 64] |= (uint64_t)1 << k % 64;
        }
        lg_compile_work(x->c, x->n_set);
        x->symbol[i] = x->cut[i] == 0xd800 ? LG_NONE : lg_index_get(&members, bits, &added);
    }
    x->n_symbol = (uint32_t)members.n;
    x->member = LG_TMP(x->c, uint64_t *, x->n_symbol + 1);
    for (uint32_t i = 0; i < x->n_symbol; i++)
        x->member[i] = members.key + i * words;
}

// Adds to out[] what `from` reaches without a character: states that consume one, $ and acceptance.
static size_t close_over(nfa *x, uint32_t from, bool at_start, bool at_end, uint32_t *out, size_t n)
{
    size_t top = 0;

    if (x->seen[from] == x->now)
        return n;
    x->stack[top++] = from;
    x->seen[from] = x->now;
    while (top) {
        uint32_t s = x->stack[--top];
        const nfa_state *st = &x->state[s];
        bool go = st->kind == M_SPLIT || (st->kind == M_START && at_start) || (st->kind == M_END && at_end);
        if (st->kind != M_SPLIT && st->kind != M_START)
            out[n++] = s;
        for (int i = 0; go && i < 2; i++)
            if (st->out[i] != LG_NONE && x->seen[st->out[i]] != x->now) {
                x->seen[st->out[i]] = x->now;
                x->stack[top++] = st->out[i];
            }
        lg_compile_work(x->c, 1);
    }
    return n;
}

typedef struct subsets {
    nfa *x;
    uint32_t **set; // each ascending, the first word its length
    size_t n, cap;
    uint32_t *slot, n_slot;
    uint32_t *work;
} subsets;

static uint64_t set_hash(const uint32_t *set, size_t n)
{
    uint64_t h = n + 1;

    for (size_t i = 0; i < n; i++)
        h = (h ^ set[i]) * 0x9e3779b97f4a7c15u ^ h >> 29;
    return h ^ h >> 32;
}

static uint32_t subset_add(subsets *q, const uint32_t *set, size_t n)
{
    LG_GROW(q->x->c, q->set, q->n, &q->cap);
    q->set[q->n] = LG_TMP(q->x->c, uint32_t, n + 1);
    q->set[q->n][0] = (uint32_t)n;
    memcpy(q->set[q->n] + 1, set, n * sizeof *set);
    if (q->n >= LG_MAX_DFA)
        lg_compile_fail(q->x->c, LG_GRAMMAR_TOO_COMPLEX, "the pattern needs more than %d states", LG_MAX_DFA);
    return (uint32_t)q->n++;
}

// The number of a set of states. One that may accept whatever follows needs nothing else.
static uint32_t subset_get(subsets *q, uint32_t *set, size_t n)
{
    uint32_t at;

    for (size_t i = 0; i < n; i++)
        if (q->x->state[set[i]].kind == M_REST) {
            set[0] = set[i];
            n = 1;
        }
    qsort(set, n, sizeof *set, compare_u32);
    at = (uint32_t)set_hash(set, n) & (q->n_slot - 1);
    for (; q->slot[at]; at = (at + 1) & (q->n_slot - 1)) {
        const uint32_t *other = q->set[q->slot[at] - 1];
        if (other[0] == n && memcmp(other + 1, set, n * sizeof *set) == 0)
            return q->slot[at] - 1;
    }
    q->slot[at] = subset_add(q, set, n) + 1;
    return q->slot[at] - 1;
}

static bool subset_accepts(subsets *q, const uint32_t *set, bool at_start)
{
    nfa *x = q->x;
    size_t n = 0;

    x->now++;
    for (uint32_t i = 1; i <= set[0]; i++)
        n = close_over(x, set[i], at_start, true, q->work, n);
    while (n)
        if (x->state[q->work[--n]].kind >= M_ACCEPT)
            return true;
    return false;
}

static void subset_edges(subsets *q, lg_dfa_maker *m, size_t k, uint32_t *next)
{
    nfa *x = q->x;

    for (uint32_t y = 0; y < x->n_symbol; y++) {
        const uint32_t *set = q->set[k];
        size_t n = 0;
        x->now++;
        for (uint32_t i = 1; i <= set[0]; i++) {
            const nfa_state *st = &x->state[set[i]];
            if (st->kind == M_REST)
                n = close_over(x, set[i], false, false, q->work, n);
            else if (st->kind == M_CHARS && x->member[y][st->set / 64] >> st->set % 64 & 1)
                n = close_over(x, st->out[0], false, false, q->work, n);
        }
        lg_compile_work(x->c, set[0]);
        next[y] = n ? subset_get(q, q->work, n) : LG_NONE;
    }
    for (uint32_t i = 0; i < x->n_cut; i++)
        if (x->symbol[i] != LG_NONE && next[x->symbol[i]] != LG_NONE)
            lg_dfa_edge_add(m, x->cut[i], x->cut[i + 1] - 1, next[x->symbol[i]]);
}

static lg_dfa determinize(nfa *x, uint32_t start)
{
    subsets q = {.x = x, .n_slot = 1 << 16};
    uint32_t *next = LG_TMP(x->c, uint32_t, x->n_symbol + 1);
    lg_dfa_maker m;
    size_t n;

    q.slot = LG_TMP(x->c, uint32_t, q.n_slot);
    q.work = LG_TMP(x->c, uint32_t, x->n + 1);
    x->seen = LG_TMP(x->c, uint32_t, x->n + 1);
    x->stack = LG_TMP(x->c, uint32_t, x->n + 1);
    lg_dfa_begin(&m, x->c);
    x->now = 1;
    n = close_over(x, start, true, false, q.work, 0);
    (void)subset_add(&q, q.work, n); // never found again: only here ^ holds
    for (size_t k = 0; k < q.n; k++) {
        subset_edges(&q, &m, k, next);
        lg_dfa_state_end(&m, subset_accepts(&q, q.set[k], k == 0));
    }
    return lg_dfa_end(&m);
}

lg_dfa lg_regex_dfa(lg_compiler *c, lg_str pattern)
{
    nfa x = {.c = c};
    const lg_re *re = lg_regex_parse(c, pattern);
    lg_re *all = LG_TMP(c, lg_re, 1);
    lg_range *range = LG_TMP(c, lg_range, 2);
    uint32_t start, skip, loop;

    range[0] = (lg_range){0, 0xd7ff};
    range[1] = (lg_range){0xe000, 0x10ffff};
    *all = (lg_re){.kind = LG_RE_CHARS, .range = range, .n_range = 2};
    x.accept = state(&x, M_REST, LG_NONE, LG_NONE); // accepts, and goes on accepting
    start = emit(&x, re, x.accept);
    loop = state(&x, M_SPLIT, LG_NONE, start); // the match may begin anywhere
    skip = emit(&x, all, loop);
    x.state[loop].out[0] = skip;
    make_symbols(&x);
    return determinize(&x, loop);
}
