/*
 * grammar/object: the members of an object: known names with their children, and classes of additional keys.
 *
 * A class is the set of keys that match exactly a given set of the patternProperties; its automaton leaves
 * out the known names and what propertyNames refuses, so that every key belongs to one class and one child.
 */
#include <string.h>

#include "grammar/lower.h"

typedef struct pattern {
    uint32_t member, node, schema; // index of the member, node of patternProperties, schema for the value
    lg_dfa dfa;
} pattern;

typedef struct shape {
    lg_compiler *c;
    const lg_alternative *a;
    pattern pattern[LG_MAX_KEY_PATTERNS];
    uint32_t n_pattern;
    bool bounded; // propertyNames say something
    lg_dfa names; // what they allow
} shape;

static void find_patterns(shape *s)
{
    lg_compiler *c = s->c;

    for (uint32_t i = 0; i < s->a->n; i++) {
        const lg_json *j = lg_schema_get(c, s->a->member[i], "patternProperties");
        for (size_t k = 0; k < lg_json_len(j); k++) {
            uint32_t list = lg_schema_child(c, s->a->member[i], "patternProperties");
            lg_str text;
            (void)lg_json_member(j, k, &text);
            lg_compile_at(c, s->a->member[i], "patternProperties", &text);
            if (s->n_pattern == LG_MAX_KEY_PATTERNS)
                lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX,
                                "more than %d patterns apply to the keys of one object", LG_MAX_KEY_PATTERNS);
            s->pattern[s->n_pattern++] = (pattern){i, list, lg_schema_at(c, list, k), lg_regex_dfa(c, text)};
        }
    }
}

typedef struct texts {
    lg_dfa dfa;
    bool every;
} texts;

static void add_texts(lg_compiler *c, const lg_alternative *a, void *ctx)
{
    texts *t = ctx;
    bool every;
    lg_dfa own = lg_lower_texts(c, a, &every);

    t->every |= every;
    t->dfa = lg_dfa_product(c, &t->dfa, &own, LG_DFA_OR);
}

lg_dfa lg_lower_texts(lg_compiler *c, const lg_alternative *a, bool *every)
{
    const lg_json **value;
    uint32_t n, n_text = 0, min, max;
    bool any;
    lg_dfa d, length;

    *every = false;
    if (a->n_one_of)
        return a->types == LG_TYPE_STRING ? lg_lower_exclusive(c, a) : (lg_dfa){0};
    if (lg_lower_values(c, a, &value, &n)) {
        lg_str *text = LG_TMP(c, lg_str, n + 1);
        for (uint32_t i = 0; i < n; i++)
            if (lg_json_is(value[i], LG_JSON_STRING))
                text[n_text++] = lg_json_str(value[i]);
        return lg_dfa_words(c, text, n_text);
    }
    if (!(a->types & LG_TYPE_STRING))
        return (lg_dfa){0};
    d = lg_lower_patterns(c, a, &any, &min, &max);
    if (min == 0 && max == LG_NONE) {
        *every = any;
        return d;
    }
    length = lg_dfa_length(c, min, max);
    return any ? length : lg_dfa_product(c, &d, &length, LG_DFA_AND);
}

static void find_names(shape *s)
{
    lg_compiler *c = s->c;
    uint32_t *id = LG_TMP(c, uint32_t, s->a->n + 1), n = 0;
    texts t = {0};

    for (uint32_t i = 0; i < s->a->n; i++)
        if (lg_schema_get(c, s->a->member[i], "propertyNames"))
            id[n++] = LG_WHOLE(lg_schema_child(c, s->a->member[i], "propertyNames"));
    if (n == 0)
        return;
    lg_lower_expand(c, id, n, s->a->proof, add_texts, &t);
    s->bounded = !t.every;
    s->names = t.dfa;
}

// What holds for the value of key `name`; `mask` says which patterns match it. False when it may not be there
// at all.
static bool child_of(shape *s, const lg_str *name, uint32_t mask, uint32_t *conj)
{
    lg_compiler *c = s->c;
    uint32_t *id = LG_TMP(c, uint32_t, s->a->n + s->n_pattern + 1), n = 0;
    bool ok = true;

    for (uint32_t i = 0; i < s->a->n; i++) {
        uint32_t node = s->a->member[i];
        const lg_json *own = name ? lg_json_getn(lg_schema_get(c, node, "properties"), *name) : NULL;
        const char *rest =
            lg_schema_get(c, node, "additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
        bool judged = own != NULL;
        if (own)
            id[n++] = LG_WHOLE(lg_schema_node(c, own, lg_schema_child(c, node, "properties"), *name, 0));
        for (uint32_t k = 0; k < s->n_pattern; k++)
            if (s->pattern[k].member == i && mask >> k & 1) {
                id[n++] = LG_WHOLE(s->pattern[k].schema);
                judged = true;
            }
        if (!judged && lg_schema_get(c, node, rest)) {
            uint32_t schema = lg_schema_child(c, node, rest);
            if (!name || !lg_json_is(c->node[schema].j, LG_JSON_FALSE)) {
                id[n++] = LG_WHOLE(schema);
            } else { // only this one is named, so that the report can say why the name cannot be there
                id[0] = LG_WHOLE(schema);
                n = 1;
                ok = false;
                break;
            }
        }
    }
    for (uint32_t k = 0; k < n && ok; k++)
        ok = !lg_json_is(c->node[id[k] >> 1].j, LG_JSON_FALSE);
    if (!ok && !name)
        return false;
    *conj = lg_lower_conj(c, id, n, s->a->proof);
    return ok;
}

static void collect_names(shape *s, lg_body *b)
{
    lg_compiler *c = s->c;
    lg_str *name;
    uint32_t n_slot = 64, *slot;
    size_t total = 0;

    for (uint32_t i = 0; i < s->a->n; i++)
        total += lg_json_len(lg_schema_get(c, s->a->member[i], "properties")) +
                 lg_json_len(lg_schema_get(c, s->a->member[i], "required"));
    while (n_slot < 2 * total)
        n_slot *= 2;
    slot = LG_TMP(c, uint32_t, n_slot);
    name = LG_PERM(c, lg_str, total + 1);
    b->required = LG_PERM(c, bool, total + 1);
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < s->a->n; i++) {
            const lg_json *j = lg_schema_get(c, s->a->member[i], round ? "required" : "properties");
            for (size_t k = 0; k < lg_json_len(j); k++) {
                lg_str key;
                uint32_t h = 2166136261u, at;
                if (round)
                    key = lg_json_str(lg_json_at(j, k));
                else
                    (void)lg_json_member(j, k, &key);
                for (size_t x = 0; x < key.n; x++)
                    h = (h ^ (unsigned char)key.p[x]) * 16777619u;
                for (at = (h ^ h >> 15) & (n_slot - 1); slot[at]; at = (at + 1) & (n_slot - 1))
                    if (lg_str_eq(name[slot[at] - 1], key))
                        break;
                if (!slot[at]) {
                    name[b->n] = key;
                    slot[at] = ++b->n;
                }
                b->required[slot[at] - 1] |= round != 0;
            }
        }
    b->name = name;
    if (b->n > LG_MAX_NAMES)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "an object may have at most %d known properties",
                        LG_MAX_NAMES);
}

static void known_names(shape *s, lg_body *b)
{
    lg_compiler *c = s->c;

    b->child = LG_PERM(c, uint32_t, b->n + 1);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t mask = 0;
        for (uint32_t k = 0; k < s->n_pattern; k++)
            mask |= (uint32_t)lg_dfa_match(&s->pattern[k].dfa, b->name[i]) << k;
        lg_compile_work(c, b->name[i].n + s->a->n);
        if (!child_of(s, &b->name[i], mask, &b->child[i]))
            continue;
        if ((s->bounded && !lg_dfa_match(&s->names, b->name[i])) ||
            (c->no_end_tag && lg_str_find(b->name[i], LG_STR("</"), 0) != SIZE_MAX))
            b->child[i] = LG_NEVER;
    }
}

// May there be keys that no pattern matches? The usual refusal, found before any automaton is made.
static bool rest_allowed(const shape *s)
{
    for (uint32_t i = 0; i < s->a->n; i++) {
        const lg_json *rest = lg_schema_get(s->c, s->a->member[i], "additionalProperties");
        rest = rest ? rest : lg_schema_get(s->c, s->a->member[i], "unevaluatedProperties");
        if (lg_json_is(rest, LG_JSON_FALSE))
            return false;
    }
    return true;
}

static void key_classes(shape *s, lg_body *b)
{
    lg_compiler *c = s->c;
    lg_dfa known, base = s->names;
    uint32_t n_mask = 1u << s->n_pattern;
    bool every = !s->bounded && b->n == 0, rest = rest_allowed(s);

    if (s->n_pattern == 0 && !rest)
        return;
    b->class_term = LG_PERM(c, uint32_t, n_mask);
    b->class_child = LG_PERM(c, uint32_t, n_mask);
    if (!s->bounded)
        base = lg_dfa_any(c);
    if (b->n) {
        known = lg_dfa_words(c, b->name, b->n);
        base = lg_dfa_product(c, &base, &known, LG_DFA_AND_NOT);
    }
    for (uint32_t mask = 0; mask < n_mask; mask++) {
        lg_dfa d = base;
        uint32_t child, term;
        if (mask == 0 && !rest)
            continue;
        if (!child_of(s, NULL, mask, &child))
            continue;
        for (uint32_t k = 0; k < s->n_pattern && d.n; k++)
            d = lg_dfa_product(c, &d, &s->pattern[k].dfa, mask >> k & 1 ? LG_DFA_AND : LG_DFA_AND_NOT);
        term = lg_lower_string(c, LG_TERM_KEY, every && s->n_pattern == 0 && !c->no_end_tag ? NULL : &d, 0,
                               LG_NONE);
        if (term == LG_NONE)
            continue;
        b->class_term[b->n_class] = term;
        b->class_child[b->n_class++] = child;
    }
}

lg_body *lg_lower_object(lg_compiler *c, const lg_alternative *a)
{
    lg_body *b = LG_PERM(c, lg_body, 1);
    shape s = {.c = c, .a = a};

    b->kind = LG_BODY_OBJECT;
    b->max = LG_NONE;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t min = lg_schema_count(c, a->member[i], "minProperties", 0);
        uint32_t max = lg_schema_count(c, a->member[i], "maxProperties", LG_NONE);
        b->min = min > b->min ? min : b->min;
        b->max = max < b->max ? max : b->max;
    }
    collect_names(&s, b);
    if (b->min > b->n + LG_MAX_USED_KEYS && b->min <= b->max)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "minProperties may be at most %d", LG_MAX_USED_KEYS);
    if (c->opt->any_order && (b->n > LG_MAX_FREE_NAMES || (b->min > LG_MAX_USED_KEYS && b->min <= b->max)))
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX,
                        "with properties in any order an object has at most %d known ones and %d in all",
                        LG_MAX_FREE_NAMES, LG_MAX_USED_KEYS);
    find_patterns(&s);
    find_names(&s);
    known_names(&s, b);
    if (!c->closed)
        key_classes(&s, b);
    return b;
}
