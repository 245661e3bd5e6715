/*
 * grammar/body: what the members of an alternative say together about each type: literals, numbers, strings,
 * arrays. Objects are in object.c.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/lower.h"

enum { MAX_LENGTH_BYTES = 4 << 20, WIDE_DIGITS = 128 };

uint32_t lg_lower_term(lg_compiler *c, const lg_term *t)
{
    lg_program *p = c->prog;

    if (p->n_term == p->cap_term) {
        size_t cap = p->cap_term ? p->cap_term * 2 : 32;
        lg_term *bigger = LG_PERM(c, lg_term, cap);
        if (p->n_term)
            memcpy(bigger, p->term, p->n_term * sizeof *bigger);
        p->term = bigger;
        p->cap_term = cap;
    }
    p->term[p->n_term] = *t;
    return p->n_term++;
}

typedef struct numbered {
    lg_str text;
    uint32_t payload;
} numbered;

static int compare_words(const void *a, const void *b)
{
    const numbered *x = a, *y = b;
    int r = memcmp(x->text.p, y->text.p, x->text.n < y->text.n ? x->text.n : y->text.n);

    return r ? r : (x->text.n > y->text.n) - (x->text.n < y->text.n);
}

uint32_t lg_lower_words(lg_compiler *c, lg_str *text, uint32_t n, uint32_t *payload)
{
    numbered *w = LG_TMP(c, numbered, n + 1);
    lg_str *sorted = LG_PERM(c, lg_str, n + 1);
    uint32_t *numbers = payload ? LG_PERM(c, uint32_t, n + 1) : NULL, m = 0;
    lg_term t = {.kind = LG_TERM_WORDS, .word = sorted, .payload = numbers};

    for (uint32_t i = 0; i < n; i++)
        w[i] = (numbered){text[i], payload ? payload[i] : 0};
    qsort(w, n, sizeof *w, compare_words);
    for (uint32_t i = 0; i < n; i++) {
        if (m && lg_str_eq(sorted[m - 1], w[i].text))
            continue;
        sorted[m] = w[i].text;
        if (numbers)
            numbers[m] = w[i].payload;
        m++;
    }
    t.n_word = m;
    return lg_lower_term(c, &t);
}

static lg_body *new_body(lg_compiler *c, lg_body_kind kind)
{
    lg_body *b = LG_PERM(c, lg_body, 1);

    b->kind = kind;
    b->max = LG_NONE;
    return b;
}

static void push(lg_body **list, lg_body *b)
{
    if (!b)
        return;
    b->next = *list;
    *list = b;
}

static lg_body *term_body(lg_compiler *c, uint32_t term)
{
    lg_body *b;

    if (term == LG_NONE)
        return NULL;
    b = new_body(c, LG_BODY_TERM);
    b->term = term;
    return b;
}

static lg_body *literal(lg_compiler *c, const char *text)
{
    lg_str w = lg_str_of(text);

    return term_body(c, lg_lower_words(c, &w, 1, NULL));
}

// --- literal values ---

bool lg_lower_values(lg_compiler *c, const lg_alternative *a, const lg_json ***value, uint32_t *n)
{
    const lg_json *one = NULL, *list = NULL;
    size_t all;

    for (uint32_t i = 0; i < a->n && !one && !list; i++) {
        one = lg_schema_get(c, a->member[i], "const");
        list = one ? NULL : lg_schema_get(c, a->member[i], "enum");
    }
    if (!one && !list)
        return false;
    all = one ? 1 : lg_json_len(list);
    c->n_enum += all;
    if (c->n_enum > LG_MAX_ENUM)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "the schema has more than %d literal values", LG_MAX_ENUM);
    *value = LG_TMP(c, const lg_json *, all + 1);
    *n = 0;
    for (size_t i = 0; i < all; i++) {
        const lg_json *v = one ? one : lg_json_at(list, i);
        bool ok = (lg_schema_type_of(c, v) & a->types) != 0;
        for (uint32_t k = 0; k < a->n && ok; k++) {
            // the list itself need not be searched for each of its own values
            bool own = !one && lg_schema_get(c, a->member[k], "enum") == list &&
                       lg_json_len(c->node[a->member[k]].j) == 1;
            ok = own || lg_eval_own(c, a->member[k], v, 0);
        }
        if (ok)
            (*value)[(*n)++] = v;
    }
    return true;
}

static bool has_end_tag(const lg_json *j)
{
    bool found = lg_str_find(lg_json_str(j), LG_STR("</"), 0) != SIZE_MAX;

    for (size_t i = 0; i < lg_json_len(j) && !found; i++) {
        lg_str key = {0};
        const lg_json *v = lg_json_is(j, LG_JSON_ARRAY) ? lg_json_at(j, i) : lg_json_member(j, i, &key);
        found = lg_str_find(key, LG_STR("</"), 0) != SIZE_MAX || has_end_tag(v);
    }
    return found;
}

static void value_bodies(lg_compiler *c, const lg_json **value, uint32_t n, lg_body **list)
{
    lg_str *word = LG_TMP(c, lg_str, n + 1);
    uint32_t n_word = 0;

    for (uint32_t i = 0; i < n; i++) {
        lg_json_kind kind = lg_json_kind_of(value[i]);
        if (c->no_end_tag && has_end_tag(value[i]))
            continue;
        if (kind == LG_JSON_ARRAY || kind == LG_JSON_OBJECT) {
            lg_body *b = new_body(c, LG_BODY_VALUE);
            b->value = value[i];
            push(list, b);
        } else {
            word[n_word++] = lg_spell_scalar(c, value[i]);
        }
    }
    if (n_word)
        push(list, term_body(c, lg_lower_words(c, word, n_word, NULL)));
}

// --- numbers ---

static void bound(lg_compiler *c, uint32_t node, lg_number *n, bool low)
{
    const lg_json *plain = lg_schema_get(c, node, low ? "minimum" : "maximum");
    const lg_json *open = lg_schema_get(c, node, low ? "exclusiveMinimum" : "exclusiveMaximum");
    void (*set)(lg_number *, const lg_decimal *, bool) = low ? lg_number_min : lg_number_max;
    lg_decimal d;

    if (plain) {
        d = lg_decimal_of(c, lg_json_number_text(plain));
        set(n, &d, lg_json_is(open, LG_JSON_TRUE));
    }
    if (lg_json_is(open, LG_JSON_NUMBER)) {
        d = lg_decimal_of(c, lg_json_number_text(open));
        set(n, &d, true);
    }
}

lg_number lg_lower_number(lg_compiler *c, const lg_alternative *a)
{
    lg_number n = {.integer = !(a->types & LG_TYPE_FRAC)};
    lg_decimal d;

    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t node = a->member[i];
        const lg_json *multiple = lg_schema_get(c, node, "multipleOf");
        const char *min, *max;
        bound(c, node, &n, true);
        bound(c, node, &n, false);
        if (multiple) {
            lg_compile_at(c, node, "multipleOf", NULL);
            d = lg_decimal_of(c, lg_json_number_text(multiple));
            lg_number_multiple(c, &n, &d);
        }
        if (lg_format_is_number(lg_json_str(lg_schema_get(c, node, "format")), &min, &max)) {
            d = lg_decimal_of(c, lg_str_of(min));
            lg_number_min(&n, &d, false);
            d = lg_decimal_of(c, lg_str_of(max));
            lg_number_max(&n, &d, false);
        }
    }
    return n;
}

static bool same_dfa(const lg_dfa *a, const lg_dfa *b)
{
    return a->n == b->n && a->first[a->n] == b->first[b->n] &&
           memcmp(a->first, b->first, (a->n + 1) * sizeof *a->first) == 0 &&
           (a->first[a->n] == 0 || memcmp(a->edge, b->edge, a->first[a->n] * sizeof *a->edge) == 0) &&
           memcmp(a->accept, b->accept, a->n * sizeof *a->accept) == 0;
}

// The alternatives of `list` are united anyway: one that is there already adds nothing.
// --- terminals that were made before ---

// What the members say in some keywords: for each keyword that is there its number, kind and text; and the
// type that they are asked about.
static lg_str memo_key(lg_compiler *c, const lg_alternative *a, const char *const *keyword, unsigned type)
{
    char *p = NULL;
    size_t n = 0;

    for (int pass = 0; pass < 2; pass++) { // sizes, then texts
        n = 0;
        for (uint32_t i = 0; i < a->n; i++)
            for (int k = 0; keyword[k]; k++) {
                const lg_json *j = lg_schema_get(c, a->member[i], keyword[k]);
                lg_str text = lg_json_is(j, LG_JSON_STRING) ? lg_json_str(j) : lg_json_number_text(j);
                uint32_t head[3] = {(uint32_t)k, (uint32_t)lg_json_kind_of(j), (uint32_t)text.n};
                if (!j)
                    continue;
                if (pass) {
                    memcpy(p + n, head, sizeof head);
                    if (text.n)
                        memcpy(p + n + sizeof head, text.p, text.n);
                }
                n += sizeof head + text.n;
            }
        if (pass == 0)
            p = LG_TMP(c, char, n + sizeof type);
    }
    memcpy(p + n, &type, sizeof type);
    return (lg_str){p, n + sizeof type};
}

static uint32_t memo_hash(lg_str key)
{
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < key.n; i++)
        h = (h ^ (unsigned char)key.p[i]) * 1099511628211u;
    return (uint32_t)(h >> 32);
}

// The entry of a key, or the free one where it belongs.
static lg_memo *memo_at(lg_lower *l, lg_str key)
{
    uint32_t at = memo_hash(key) & (l->cap_memo - 1);

    while (l->memo[at].key.p && !lg_str_eq(l->memo[at].key, key))
        at = (at + 1) & (l->cap_memo - 1);
    return &l->memo[at];
}

// The terminal of a key, if it was made before.
static bool memo_find(lg_compiler *c, lg_str key, uint32_t *term)
{
    const lg_memo *m = c->lower->cap_memo ? memo_at(c->lower, key) : NULL;

    if (!m || !m->key.p)
        return false;
    lg_compile_work(c, key.n);
    *term = m->term;
    return true;
}

static void memo_keep(lg_compiler *c, lg_str key, uint32_t term)
{
    lg_lower *l = c->lower;
    char *own = LG_PERM(c, char, key.n);

    if (l->n_memo * 2 >= l->cap_memo) {
        lg_memo *old = l->memo;
        uint32_t n = l->cap_memo;
        l->cap_memo = n ? n * 2 : 64;
        l->memo = LG_PERM(c, lg_memo, l->cap_memo);
        for (uint32_t i = 0; i < n; i++)
            if (old[i].key.p)
                *memo_at(l, old[i].key) = old[i];
    }
    memcpy(own, key.p, key.n);
    *memo_at(l, key) = (lg_memo){{own, key.n}, term};
    l->n_memo++;
}

static uint32_t number_term(lg_compiler *c, const lg_alternative *a)
{
    static const char *const keyword[] = {"minimum",    "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                          "multipleOf", "format",  NULL};
    lg_str key = memo_key(c, a, keyword, a->types & LG_TYPE_NUMBER);
    lg_term t = {.kind = LG_TERM_BYTES};
    uint32_t term = LG_NONE;
    lg_number n;
    lg_dfa d;

    if (memo_find(c, key, &term))
        return term;
    n = lg_lower_number(c, a);
    d = lg_number_dfa(c, &n);
    if (d.n > 0) {
        t.dfa = lg_dfa_keep(c, &d);
        term = lg_lower_term(c, &t);
    }
    memo_keep(c, key, term);
    return term;
}

static lg_body *number_body(lg_compiler *c, const lg_alternative *a, const lg_body *list)
{
    uint32_t term = number_term(c, a);

    for (; list && term != LG_NONE; list = list->next) {
        const lg_term *other = list->kind == LG_BODY_TERM ? &c->prog->term[list->term] : NULL;
        if (other && other->kind == LG_TERM_BYTES && same_dfa(&other->dfa, &c->prog->term[term].dfa))
            return NULL;
    }
    return term_body(c, term);
}

// --- strings ---

lg_dfa lg_lower_patterns(lg_compiler *c, const lg_alternative *a, bool *any, uint32_t *min, uint32_t *max)
{
    lg_dfa all = {0}, one;

    *any = true;
    *min = 0;
    *max = LG_NONE;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t node = a->member[i], least = lg_schema_count(c, node, "minLength", 0), own = LG_NONE;
        const lg_json *pattern = lg_schema_get(c, node, "pattern"),
                      *format = lg_schema_get(c, node, "format");
        uint32_t most = lg_schema_count(c, node, "maxLength", LG_NONE);
        *min = least > *min ? least : *min;
        *max = most < *max ? most : *max;
        for (int k = 0; k < 2; k++) {
            if (!(k ? format : pattern))
                continue;
            lg_compile_at(c, node, k ? "format" : "pattern", NULL);
            if (k == 0)
                one = lg_regex_dfa(c, lg_json_str(pattern));
            else if (!lg_format_dfa(c, lg_json_str(format), &one, &own))
                continue;
            *max = own < *max ? own : *max;
            all = *any ? one : lg_dfa_product(c, &all, &one, LG_DFA_AND);
            *any = false;
        }
    }
    return all;
}

// Fills what a string terminal with a length bound needs to know about its automaton.
static void find_lengths(lg_compiler *c, lg_term *t)
{
    const lg_dfa *d = &t->dfa;
    uint32_t *shortest = LG_PERM(c, uint32_t, d->n), *longest = LG_PERM(c, uint32_t, d->n);
    bool changed = true;

    memset(shortest, 0xff, d->n * sizeof *shortest);
    while (changed) {
        changed = false;
        lg_compile_work(c, d->first[d->n]);
        for (uint32_t s = d->n; s-- > 0;) {
            uint32_t low = d->accept[s] ? 0 : LG_NONE, high = 0;
            for (uint32_t i = d->first[s]; i < d->first[s + 1]; i++) {
                uint32_t to = d->edge[i].to;
                if (shortest[to] != LG_NONE && shortest[to] + 1 < low)
                    low = shortest[to] + 1;
                if (longest[to] + 1 > high)
                    high = longest[to] + 1;
            }
            high = high > d->n ? LG_NONE - 1 : high; // longer than any path without a cycle
            if (low != shortest[s] || high != longest[s]) {
                shortest[s] = low;
                longest[s] = high;
                changed = true;
            }
        }
    }
    t->shortest = shortest;
    t->longest = longest;
}

// Bit k of row s: k characters lead from s to acceptance.
static void find_exact_lengths(lg_compiler *c, lg_term *t)
{
    const lg_dfa *d = &t->dfa;
    uint32_t words = t->max / 64 + 1;
    uint64_t *row;

    if (t->max > LG_MAX_PATTERN_LENGTH)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "maxLength beside a pattern may be at most %d",
                        LG_MAX_PATTERN_LENGTH);
    if ((size_t)words * 8 * d->n > MAX_LENGTH_BYTES)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "the pattern is too large for its length bounds");
    row = LG_PERM(c, uint64_t, (size_t)words * d->n);
    for (uint32_t s = 0; s < d->n; s++)
        row[(size_t)s * words] = d->accept[s];
    for (uint32_t k = 1; k <= t->max; k++) {
        lg_compile_work(c, d->first[d->n] / 4 + 1);
        for (uint32_t s = 0; s < d->n; s++)
            for (uint32_t i = d->first[s]; i < d->first[s + 1]; i++)
                if (row[(size_t)d->edge[i].to * words + (k - 1) / 64] >> (k - 1) % 64 & 1) {
                    row[(size_t)s * words + k / 64] |= (uint64_t)1 << k % 64;
                    break;
                }
    }
    t->lengths = row;
    t->length_words = words;
}

// Is some length of the whole text inside the bounds?
static bool any_length(const lg_term *t)
{
    for (uint32_t k = t->min; k <= t->max; k++)
        if (t->lengths[k / 64] >> k % 64 & 1)
            return true;
    return false;
}

// States from where any safe characters lead on: the largest set that its members do not leave.
static const bool *find_open(lg_compiler *c, const lg_dfa *d)
{
    static const lg_range safe[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0xd7ff}, {0xe000, 0x10ffff}};
    bool *open = LG_PERM(c, bool, d->n), changed = true;

    memset(open, 1, d->n);
    while (changed) {
        changed = false;
        lg_compile_work(c, d->first[d->n] + 1);
        for (uint32_t s = d->n; s-- > 0;) {
            uint32_t i = d->first[s], end = d->first[s + 1];
            bool ok = open[s];
            for (int k = 0; k < 4 && ok; k++) {
                uint32_t at = safe[k].lo;
                while (ok && at <= safe[k].hi) {
                    while (i < end && d->edge[i].hi < at)
                        i++;
                    ok = i < end && d->edge[i].lo <= at && open[d->edge[i].to];
                    at = ok ? d->edge[i].hi + 1 : at;
                }
            }
            if (ok != open[s]) {
                open[s] = ok;
                changed = true;
            }
        }
    }
    return open;
}

uint32_t lg_lower_string(lg_compiler *c, lg_term_kind kind, const lg_dfa *d, uint32_t min, uint32_t max)
{
    lg_term t = {.kind = kind, .min = min, .max = max, .canonical = d != NULL || kind == LG_TERM_KEY};

    if (min > max || (d && d->n == 0))
        return LG_NONE;
    t.no_end_tag = c->no_end_tag && !t.canonical && kind == LG_TERM_STRING;
    if (d) {
        lg_dfa any = lg_dfa_any(c), both;
        if (c->no_end_tag && kind != LG_TERM_RAW) { // a canonical slash is raw
            lg_dfa tag = lg_dfa_containing(c, LG_STR("</"));
            both = lg_dfa_product(c, d, &tag, LG_DFA_AND_NOT);
        } else {
            both = lg_dfa_product(c, d, &any, LG_DFA_AND);
        }
        if (both.n == 0)
            return LG_NONE;
        t.dfa = lg_dfa_keep(c, &both);
        t.open = find_open(c, &t.dfa);
        if (kind == LG_TERM_KEY) {
            uint32_t *count = LG_PERM(c, uint32_t, t.dfa.n);
            lg_dfa_count(c, &t.dfa, count);
            t.count = count;
        } else if (min > 0 || max != LG_NONE) {
            find_lengths(c, &t);
            if (t.shortest[0] > max || t.longest[0] < min)
                return LG_NONE;
            if (min > 0 && max != LG_NONE) {
                find_exact_lengths(c, &t);
                if (!any_length(&t))
                    return LG_NONE;
            }
        }
    }
    return lg_lower_term(c, &t);
}

static uint32_t string_term(lg_compiler *c, const lg_alternative *a)
{
    static const char *const keyword[] = {"pattern", "format", "minLength", "maxLength", NULL};
    lg_str key = memo_key(c, a, keyword, LG_TYPE_STRING);
    uint32_t term, min, max;
    bool any;
    lg_dfa d;

    if (memo_find(c, key, &term))
        return term;
    d = lg_lower_patterns(c, a, &any, &min, &max);
    term = lg_lower_string(c, LG_TERM_STRING, any ? NULL : &d, min, max);
    memo_keep(c, key, term);
    return term;
}

// --- arrays ---

// The schema for item i of a member, or LG_NONE.
static uint32_t item_schema(lg_compiler *c, uint32_t node, uint32_t i, uint32_t *n_tuple)
{
    const lg_json *prefix = lg_schema_get(c, node, "prefixItems"), *items = lg_schema_get(c, node, "items");
    const char *rest = "items", *tuple = prefix ? "prefixItems" : "items";

    if (!prefix && lg_json_is(items, LG_JSON_ARRAY)) {
        prefix = items;
        rest = "additionalItems";
    } else if (prefix && lg_json_is(items, LG_JSON_ARRAY)) {
        rest = "additionalItems";
    }
    *n_tuple = (uint32_t)lg_json_len(prefix);
    if (i < *n_tuple)
        return lg_schema_at(c, lg_schema_child(c, node, tuple), i);
    if (!lg_schema_get(c, node, rest))
        rest = "unevaluatedItems";
    return lg_schema_get(c, node, rest) ? lg_schema_child(c, node, rest) : LG_NONE;
}

static lg_body *array_body(lg_compiler *c, const lg_alternative *a)
{
    lg_body *b = new_body(c, LG_BODY_ARRAY);
    uint32_t *id = LG_TMP(c, uint32_t, a->n + 1), n_tuple, unique = LG_NONE;

    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t node = a->member[i], min = lg_schema_count(c, node, "minItems", 0);
        uint32_t max = lg_schema_count(c, node, "maxItems", LG_NONE);
        b->min = min > b->min ? min : b->min;
        b->max = max < b->max ? max : b->max;
        (void)item_schema(c, node, 0, &n_tuple);
        b->n = n_tuple > b->n ? n_tuple : b->n;
        if (lg_json_is(lg_schema_get(c, node, "uniqueItems"), LG_JSON_TRUE))
            unique = node;
    }
    b->n = b->n < b->max ? b->n : b->max;
    b->child = LG_PERM(c, uint32_t, b->n + 1);
    for (uint32_t i = 0; i <= b->n; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < a->n; k++) {
            uint32_t s = item_schema(c, a->member[k], i, &n_tuple);
            if (s != LG_NONE)
                id[n++] = LG_WHOLE(s);
        }
        b->child[i] = lg_lower_conj(c, id, n, a->proof);
        for (uint32_t k = 0; k < n && i >= b->min; k++)
            if (lg_json_is(c->node[id[k] >> 1].j, LG_JSON_FALSE) && i < b->max)
                b->max = i; // nothing can stand here
    }
    b->n = b->n < b->max ? b->n : b->max;
    if (unique != LG_NONE && b->max > 1) {
        lg_compile_at(c, unique, "uniqueItems", NULL);
        lg_compile_fail(c, LG_GRAMMAR_UNSUPPORTED_KEYWORD,
                        "keyword \"uniqueItems\" is not supported for arrays of more "
                        "than one item");
    }
    return b;
}

// The texts of a scalar. `by_value` gives every spelling of its numbers, else those that may be written;
// neither has exponents, which are a second spelling of what a bounded branch writes in digits.
static lg_dfa scalar_texts(lg_compiler *c, const lg_alternative *a, bool by_value)
{
    lg_number n;
    bool every;
    lg_dfa d;

    if (a->types == LG_TYPE_STRING) {
        d = lg_lower_texts(c, a, &every);
        return every ? lg_dfa_any(c) : d;
    }
    n = lg_lower_number(c, a);
    if ((n.has_min && n.min.digits.n + (size_t)llabs((long long)n.min.exp) > WIDE_DIGITS / 2) ||
        (n.has_max && n.max.digits.n + (size_t)llabs((long long)n.max.exp) > WIDE_DIGITS / 2))
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "bounds inside \"oneOf\" may have at most %d digits",
                        WIDE_DIGITS / 2);
    n.by_value = by_value || !n.integer;
    if (by_value)
        n.int_digits = n.frac_digits = WIDE_DIGITS; // more than any branch can write
    return lg_number_dfa(c, &n);
}

// What exactly one of the branches holds for.
lg_dfa lg_lower_exclusive(lg_compiler *c, const lg_alternative *a)
{
    lg_dfa all = {0};

    for (uint32_t i = 0; i < a->n_one_of; i++) {
        lg_dfa own = scalar_texts(c, &a->one_of[i], false);
        for (uint32_t k = 0; k < a->n_one_of && own.n; k++)
            if (k != i) {
                lg_dfa other = scalar_texts(c, &a->one_of[k], true);
                own = lg_dfa_product(c, &own, &other, LG_DFA_AND_NOT);
            }
        all = lg_dfa_product(c, &all, &own, LG_DFA_OR);
    }
    return all;
}

static lg_body *exclusive_body(lg_compiler *c, const lg_alternative *a)
{
    lg_dfa d = lg_lower_exclusive(c, a);
    lg_term t = {.kind = LG_TERM_BYTES};

    if (a->types == LG_TYPE_STRING)
        return term_body(c, lg_lower_string(c, LG_TERM_STRING, &d, 0, LG_NONE));
    if (d.n == 0)
        return NULL;
    t.dfa = lg_dfa_keep(c, &d);
    return term_body(c, lg_lower_term(c, &t));
}

void lg_lower_bodies(lg_compiler *c, const lg_alternative *a, lg_body **list)
{
    const lg_json **value;
    uint32_t n;

    if (a->n_one_of) {
        push(list, exclusive_body(c, a));
        return;
    }

    if (lg_lower_values(c, a, &value, &n)) {
        value_bodies(c, value, n, list);
        return;
    }
    if (a->types & LG_TYPE_OBJECT)
        push(list, lg_lower_object(c, a));
    if (a->types & LG_TYPE_ARRAY)
        push(list, array_body(c, a));
    if (a->types & LG_TYPE_STRING)
        push(list, term_body(c, string_term(c, a)));
    if (a->types & LG_TYPE_NUMBER)
        push(list, number_body(c, a, *list));
    if (a->types & LG_TYPE_BOOL) {
        push(list, literal(c, "true"));
        push(list, literal(c, "false"));
    }
    if (a->types & LG_TYPE_NULL)
        push(list, literal(c, "null"));
}
