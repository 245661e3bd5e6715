/*
 * grammar/mask: see mask.h. A token is safe when it is made of complete characters none of which is a quote,
 * a backslash or a control character: inside a string it is one step of the length and nothing else.
 */
#include "grammar/mask.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    lg_str text;
    int32_t id;
    uint32_t chars; // code points of a safe token, 0 of others
} entry;

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int r = memcmp(x->text.p, y->text.p, x->text.n < y->text.n ? x->text.n : y->text.n);

    if (r)
        return r;
    return x->text.n != y->text.n ? (x->text.n > y->text.n) - (x->text.n < y->text.n)
                                  : (x->id > y->id) - (x->id < y->id);
}

static uint32_t safe_chars(lg_str t)
{
    uint32_t n = 0;

    for (size_t i = 0; i < t.n; n++) {
        int32_t cp;
        i += (size_t)lg_utf8_step(t.p + i, t.n - i, &cp);
        if (cp < 0x20 || cp == '"' || cp == '\\')
            return 0;
    }
    return n;
}

static size_t common(lg_str a, lg_str b)
{
    size_t n = 0;

    while (n < a.n && n < b.n && a.p[n] == b.p[n])
        n++;
    return n;
}

static void free_trie(lg_trie *x)
{
    free(x->byte);
    free(x->token);
    free(x->size);
    free(x->pops);
    *x = (lg_trie){0};
}

// Entries are sorted and different. The path of open nodes is kept in `open`, which holds the longest text.
static bool build(lg_trie *x, const entry *e, size_t n, uint32_t *open)
{
    size_t nodes = 0, depth = 0;

    for (size_t i = 0; i < n; i++)
        nodes += e[i].text.n - (i ? common(e[i - 1].text, e[i].text) : 0);
    x->byte = calloc(nodes + 1, sizeof *x->byte);
    x->token = calloc(nodes + 1, sizeof *x->token);
    x->size = calloc(nodes + 1, sizeof *x->size);
    x->pops = calloc(nodes + 1, sizeof *x->pops);
    if (!x->byte || !x->token || !x->size || !x->pops)
        return false;
    for (size_t i = 0; i <= n; i++) {
        size_t keep = i > 0 && i < n ? common(e[i - 1].text, e[i].text) : 0;
        for (; depth > keep; depth--) {
            x->size[open[depth - 1]] = x->n - open[depth - 1];
            x->pops[open[depth - 1]] = (uint16_t)(depth - keep);
        }
        for (; i < n && depth < e[i].text.n; depth++) {
            x->byte[x->n] = (uint8_t)e[i].text.p[depth];
            x->token[x->n] = -1;
            open[depth] = x->n++;
        }
        if (i < n)
            x->token[x->n - 1] = e[i].id;
    }
    return true;
}

static void set_bit(uint32_t *mask, int32_t id)
{
    mask[id / 32] |= (uint32_t)1 << id % 32;
}

static lg_status check_bytes(const lg_token_trie *t, lg_err *err)
{
    bool have[256] = {false};

    for (uint32_t i = 0; i < t->all.n; i += t->all.size[i])
        have[t->all.byte[i]] = t->all.token[i] >= 0;
    for (int b = 0; b < 256; b++)
        if (!have[b] && b != 0xc0 && b != 0xc1 && b < 0xf5)
            return LG_FAIL(err, LG_E_INPUT,
                           "the vocabulary has no token for byte 0x%02x, so not every text can be "
                           "constrained",
                           b);
    return LG_OK;
}

// Sorts the ordinary tokens into the trees and slices.
static bool fill(lg_token_trie *t, entry *e, size_t n, entry *part, uint32_t *open)
{
    size_t n_all = 0, n_rest = 0, n_long = 0;

    qsort(e, n, sizeof *e, compare_entries);
    for (size_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < LG_SLICES; k++)
            if (e[i].chars && e[i].chars <= k)
                set_bit(t->slice[k], e[i].id);
        if (e[i].chars)
            set_bit(t->safe, e[i].id);
        t->longest_safe = e[i].chars > t->longest_safe ? e[i].chars : t->longest_safe;
        if (n_all && lg_str_eq(e[n_all - 1].text, e[i].text)) {
            t->same[e[i].id] = t->same[e[n_all - 1].id];
            t->same[e[n_all - 1].id] = e[i].id;
        } else {
            e[n_all++] = e[i];
        }
    }
    for (size_t i = 0; i < n_all; i++)
        if (!e[i].chars)
            part[n_rest++] = e[i];
    if (!build(&t->all, e, n_all, open) || !build(&t->rest, part, n_rest, open))
        return false;
    for (size_t i = 0; i < n_all; i++)
        if (e[i].chars >= LG_SLICES)
            part[n_long++] = e[i];
    for (uint32_t i = 0; i < t->all.n; i++)
        t->n_quotes += t->all.byte[i] == '"';
    return build(&t->long_safe, part, n_long, open);
}

static bool alloc_masks(lg_token_trie *t)
{
    bool ok = true;

    for (int i = 0; i < LG_SLICES; i++)
        ok &= (t->slice[i] = calloc(t->words, sizeof(uint32_t))) != NULL;
    ok &= (t->safe = calloc(t->words, sizeof(uint32_t))) != NULL;
    ok &= (t->think = calloc(t->words, sizeof(uint32_t))) != NULL;
    ok &= (t->done = calloc(t->words, sizeof(uint32_t))) != NULL;
    ok &= (t->free = calloc(t->words, sizeof(uint32_t))) != NULL;
    ok &= (t->same = calloc(t->n_vocab + 1, sizeof *t->same)) != NULL;
    return ok;
}

lg_status lg_token_trie_create(const lg_vocab *v, lg_token_trie **out, lg_err *err)
{
    lg_token_trie *t = calloc(1, sizeof *t);
    const lg_special *sp = lg_vocab_special(v);
    size_t n_vocab = (size_t)lg_vocab_size(v), n = 0;
    entry *e = calloc(n_vocab + 1, sizeof *e), *part = calloc(n_vocab + 1, sizeof *part);
    uint32_t *open = NULL;
    lg_status st = LG_OK;

    if (!t || !e || !part) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory while preparing the vocabulary for constraints");
        goto out;
    }
    t->vocab = v;
    t->n_vocab = n_vocab;
    t->words = (n_vocab + 31) / 32;
    for (size_t i = 0; i < n_vocab; i++) {
        int32_t id = (int32_t)i;
        lg_tok_class class = lg_vocab_class(v, id);
        lg_str text = lg_vocab_bytes(v, id);
        if (lg_vocab_is_added(v, id) || (class != LG_TOK_NORMAL && class != LG_TOK_BYTE) || text.n == 0 ||
            text.n > UINT16_MAX)
            continue;
        e[n++] = (entry){text, id, safe_chars(text)};
        t->longest = text.n > t->longest ? text.n : t->longest;
    }
    open = calloc(t->longest + 1, sizeof *open);
    if (!open || !alloc_masks(t)) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory while preparing the vocabulary for constraints");
        goto out;
    }
    for (size_t i = 0; i < n_vocab; i++) {
        int32_t id = (int32_t)i;
        t->same[i] = -1;
        if (lg_vocab_class(v, id) != LG_TOK_UNUSED)
            set_bit(t->free, id);
        if (lg_vocab_is_eog(v, id))
            set_bit(t->done, id);
        else if (id != sp->tool_call && id != sp->assistant && lg_vocab_class(v, id) != LG_TOK_UNUSED)
            set_bit(t->think, id);
    }
    if (!fill(t, e, n, part, open)) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory while preparing the vocabulary for constraints");
        goto out;
    }
    st = check_bytes(t, err);
    if (st != LG_OK)
        goto out;
    *out = t;
    t = NULL;
out:
    free(open);
    free(e);
    free(part);
    lg_token_trie_destroy(t);
    return st;
}

void lg_token_trie_destroy(lg_token_trie *t)
{
    if (!t)
        return;
    free_trie(&t->all);
    free_trie(&t->rest);
    free_trie(&t->long_safe);
    for (int i = 0; i < LG_SLICES; i++)
        free(t->slice[i]);
    free(t->safe);
    free(t->think);
    free(t->done);
    free(t->free);
    free(t->same);
    free(t);
}

size_t lg_token_trie_words(const lg_token_trie *t)
{
    return t->words;
}

// Follows the tokens of the nodes [p, end), the first of them `depth` bytes deep, as long as the automaton
// lives; stack[d] is the configuration d bytes deep. What needs an exact walk is left for later.
static void walk(const lg_token_trie *t, const lg_trie *x, lg_auto *a, lg_mask_walk *w, uint32_t p,
                 uint32_t end, uint32_t depth, uint32_t *mask)
{
    lg_auto_view v = lg_auto_look(a);
    uint64_t nodes = 0;

    while (p < end) {
        uint32_t from = w->stack[depth], row = v.cfg[from].row, to = row ? v.row[row * 256 + x->byte[p]] : 0;
        nodes++;
        if (to == 0) {
            to = lg_auto_next(a, from, x->byte[p]);
            v = lg_auto_look(a);
        }
        if (to <= LG_CFG_EXACT) {
            if (to == LG_CFG_EXACT)
                w->later[w->n_later++] = p;
            depth -= x->pops[p] - 1u;
            p += x->size[p];
            continue;
        }
        for (int32_t id = x->token[p]; id >= 0; id = t->same[id])
            set_bit(mask, id);
        w->stack[++depth] = to;
        if (x->size[p] == 1)
            depth -= x->pops[p];
        p++;
    }
    w->nodes += nodes;
}

// The tokens of one node and below, from the beginning of their text on.
static void walk_exactly(const lg_token_trie *t, const lg_trie *x, lg_auto *a, lg_mask_walk *w, uint32_t node,
                         uint32_t *mask)
{
    uint32_t depth = 0;

    for (uint32_t p = 0; p < node && w->stack[depth] != LG_CFG_DEAD;) { // down to the node
        if (node >= p + x->size[p]) {
            p += x->size[p];
            continue;
        }
        w->stack[depth + 1] = lg_auto_next(a, w->stack[depth], x->byte[p]);
        depth++;
        p++;
    }
    if (w->stack[depth] != LG_CFG_DEAD)
        walk(t, x, a, w, node, node + x->size[node], depth, mask);
}

/* All of a tree. Where names may come that nobody has written yet, nothing that the walk makes is kept; it is
 * vague first, and what that leaves open is walked exactly: the few tokens in which such a name ends. */
static void walk_tree(const lg_token_trie *t, const lg_trie *x, lg_auto *a, lg_mask_walk *w, uint32_t *mask)
{
    w->n_later = 0;
    if (!lg_auto_program(a)->has_keys) {
        walk(t, x, a, w, 0, x->n, 0, mask);
        return;
    }
    lg_auto_mark(a, true);
    walk(t, x, a, w, 0, x->n, 0, mask);
    lg_auto_back(a);
    if (w->n_later == 0)
        return;
    lg_auto_mark(a, false);
    for (uint32_t i = 0, n = w->n_later; i < n; i++)
        walk_exactly(t, x, a, w, w->later[i], mask);
    lg_auto_back(a);
}

void lg_mask_compute(const lg_token_trie *t, lg_auto *a, uint32_t cfg, bool slices, lg_mask_walk *w,
                     uint32_t *mask)
{
    lg_cfg c = *lg_auto_cfg(a, cfg);
    const lg_program *p = lg_auto_program(a);
    const uint32_t *slice = NULL;
    uint32_t widest = 0;
    bool any = false;

    memset(mask, 0, t->words * sizeof *mask);
    for (uint32_t i = 0; i < c.n_item; i++) {
        const lg_cfg_item *item = lg_auto_item(a, c.item + i);
        const lg_edge *e = &p->edge[item->edge];
        uint32_t room;
        if (e->kind == LG_EDGE_TOKEN) {
            set_bit(mask, (int32_t)e->arg);
        } else if (slices && e->kind == LG_EDGE_TERM && lg_term_wide(&p->term[e->arg], &item->s, &room)) {
            widest = room > widest ? room : widest;
            any = true;
        }
    }
    w->stack[0] = cfg;
    if (any) {
        slice = widest >= t->longest_safe ? t->safe : t->slice[widest < LG_SLICES ? widest : LG_SLICES - 1];
        for (size_t i = 0; i < t->words; i++)
            mask[i] |= slice[i];
    }
    if (!any || (widest < LG_SLICES - 1 && c.n_item > 1)) {
        walk_tree(t, &t->all, a, w, mask);
    } else {
        walk_tree(t, &t->rest, a, w, mask);
        if (slice != t->safe && widest >= LG_SLICES - 1)
            walk_tree(t, &t->long_safe, a, w, mask);
    }
    if (c.accept)
        for (size_t i = 0; i < t->words; i++)
            mask[i] |= t->done[i];
}

// One level down from the nodes [*from, *end): to the one of `byte`, which is at *from - 1, and what lies
// below.
static bool descend(const lg_trie *x, char byte, uint32_t *from, uint32_t *end)
{
    while (*from < *end && x->byte[*from] != (uint8_t)byte)
        *from += x->size[*from];
    if (*from >= *end)
        return false;
    *end = *from + x->size[*from];
    (*from)++;
    return true;
}

void lg_mask_spell(const lg_token_trie *t, lg_auto *a, uint32_t cfg, lg_str text, lg_mask_walk *w,
                   uint32_t *mask)
{
    const lg_trie *x = &t->all;
    uint32_t from = 0, end = x->n;

    memset(mask, 0, t->words * sizeof *mask);
    for (size_t i = 0; i < text.n; i++) {
        if (!descend(x, text.p[i], &from, &end))
            return;
        for (int32_t id = x->token[from - 1]; id >= 0; id = t->same[id])
            set_bit(mask, id);
    }
    w->stack[0] = cfg;
    if (lg_auto_program(a)->has_keys)
        lg_auto_mark(a, false);
    walk(t, x, a, w, from, end, 0, mask);
    if (lg_auto_program(a)->has_keys)
        lg_auto_back(a);
}

bool lg_mask_extends(const lg_token_trie *t, lg_auto *a, uint32_t cfg, lg_str text, uint32_t *stack)
{
    const lg_trie *x = &t->all;
    uint32_t from = 0, end = x->n, depth = 0;

    for (size_t i = 0; i < text.n; i++)
        if (!descend(x, text.p[i], &from, &end))
            return false;
    stack[0] = cfg;
    for (uint32_t p = from; p < end;) {
        uint32_t to = lg_auto_next(a, stack[depth], x->byte[p]);
        if (to == LG_CFG_DEAD) {
            depth -= x->pops[p] - 1u;
            p += x->size[p];
            continue;
        }
        if (x->token[p] >= 0)
            return true;
        stack[++depth] = to;
        p++; // no leaf: leaves have tokens
    }
    return false;
}
