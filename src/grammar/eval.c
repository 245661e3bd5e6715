/*
 * grammar/eval: does a parsed value satisfy a schema? Used for the values of `enum` and `const`, which the
 * keywords beside them may rule out, and by tests for finished replies.
 */
#include <string.h>

#include "grammar/lower.h"

enum { MAX_DEPTH = 400 };

bool lg_json_same(lg_compiler *c, const lg_json *a, const lg_json *b)
{
    lg_decimal x, y;

    if (lg_json_kind_of(a) != lg_json_kind_of(b) || lg_json_len(a) != lg_json_len(b))
        return false;
    lg_compile_work(c, 1);
    switch (lg_json_kind_of(a)) {
    case LG_JSON_NUMBER:
        x = lg_decimal_of(c, lg_json_number_text(a));
        y = lg_decimal_of(c, lg_json_number_text(b));
        return lg_decimal_cmp(&x, &y) == 0;
    case LG_JSON_STRING: return lg_str_eq(lg_json_str(a), lg_json_str(b));
    case LG_JSON_ARRAY:
        for (size_t i = 0; i < lg_json_len(a); i++)
            if (!lg_json_same(c, lg_json_at(a, i), lg_json_at(b, i)))
                return false;
        return true;
    case LG_JSON_OBJECT:
        for (size_t i = 0; i < lg_json_len(a); i++) {
            lg_str key;
            const lg_json *v = lg_json_member(a, i, &key), *w = lg_json_getn(b, key);
            if (!w || !lg_json_same(c, v, w))
                return false;
        }
        return true;
    default: return true;
    }
}

unsigned lg_schema_type_of(lg_compiler *c, const lg_json *v)
{
    lg_decimal d;

    switch (lg_json_kind_of(v)) {
    case LG_JSON_NULL: return LG_TYPE_NULL;
    case LG_JSON_FALSE:
    case LG_JSON_TRUE: return LG_TYPE_BOOL;
    case LG_JSON_NUMBER:
        d = lg_decimal_of(c, lg_json_number_text(v));
        return lg_decimal_integral(&d) ? LG_TYPE_INT : LG_TYPE_FRAC;
    case LG_JSON_STRING: return LG_TYPE_STRING;
    case LG_JSON_ARRAY: return LG_TYPE_ARRAY;
    case LG_JSON_OBJECT: return LG_TYPE_OBJECT;
    }
    return 0;
}

static uint32_t characters(lg_str s)
{
    uint32_t n = 0;

    for (size_t i = 0; i < s.n; n++) {
        int32_t cp;
        i += (size_t)lg_utf8_step(s.p + i, s.n - i, &cp);
    }
    return n;
}

static bool number_holds(lg_compiler *c, uint32_t node, const lg_json *v)
{
    lg_alternative own = {.member = &node, .n = 1, .types = LG_TYPE_NUMBER};
    lg_number n = lg_lower_number(c, &own);
    lg_decimal d = lg_decimal_of(c, lg_json_number_text(v)), m = {0};
    const lg_json *multiple = lg_schema_get(c, node, "multipleOf");

    if (n.has_min && (lg_decimal_cmp(&d, &n.min) < 0 || (n.min_open && lg_decimal_cmp(&d, &n.min) == 0)))
        return false;
    if (n.has_max && (lg_decimal_cmp(&d, &n.max) > 0 || (n.max_open && lg_decimal_cmp(&d, &n.max) == 0)))
        return false;
    if (!multiple)
        return true;
    m = lg_decimal_of(c, lg_json_number_text(multiple));
    return lg_decimal_multiple(c, &d, &m);
}

static bool string_holds(lg_compiler *c, uint32_t node, lg_str s)
{
    lg_alternative own = {.member = &node, .n = 1, .types = LG_TYPE_STRING};
    lg_mark mark = lg_arena_mark(&c->tmp);
    bool any, ok;
    uint32_t min, max, n = characters(s);
    lg_dfa d = lg_lower_patterns(c, &own, &any, &min, &max);

    ok = n >= min && n <= max && (any || lg_dfa_match(&d, s));
    lg_arena_reset(&c->tmp, mark);
    return ok;
}

static bool array_holds(lg_compiler *c, uint32_t node, const lg_json *v, int depth)
{
    const char *tuple = lg_schema_get(c, node, "prefixItems") ? "prefixItems" : "items";
    const char *rest = tuple[0] == 'p' ? "items" : "additionalItems";
    const lg_json *list = lg_schema_get(c, node, tuple);
    size_t n = lg_json_len(v), n_tuple;

    if (n < lg_schema_count(c, node, "minItems", 0) || n > lg_schema_count(c, node, "maxItems", LG_NONE))
        return false;
    if (lg_json_is(lg_schema_get(c, node, "uniqueItems"), LG_JSON_TRUE))
        for (size_t i = 0; i < n; i++)
            for (size_t k = i + 1; k < n; k++)
                if (lg_json_same(c, lg_json_at(v, i), lg_json_at(v, k)))
                    return false;
    if (!lg_json_is(list, LG_JSON_ARRAY)) {
        rest = "items";
        list = NULL;
    }
    if (!lg_schema_get(c, node, rest))
        rest = "unevaluatedItems";
    n_tuple = lg_json_len(list);
    for (size_t i = 0; i < n; i++) {
        if (i < n_tuple
                ? !lg_eval(c, lg_schema_at(c, lg_schema_child(c, node, tuple), i), lg_json_at(v, i), depth)
                : lg_schema_get(c, node, rest) &&
                      !lg_eval(c, lg_schema_child(c, node, rest), lg_json_at(v, i), depth))
            return false;
    }
    return true;
}

static bool member_holds(lg_compiler *c, uint32_t node, lg_str key, const lg_json *v, int depth)
{
    const lg_json *props = lg_schema_get(c, node, "properties"),
                  *patterns = lg_schema_get(c, node, "patternProperties");
    const char *rest =
        lg_schema_get(c, node, "additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
    bool known = false;

    for (size_t i = 0; i < lg_json_len(props); i++) {
        lg_str name;
        (void)lg_json_member(props, i, &name);
        if (!lg_str_eq(name, key))
            continue;
        known = true;
        if (!lg_eval(c, lg_schema_at(c, lg_schema_child(c, node, "properties"), i), v, depth))
            return false;
    }
    for (size_t i = 0; i < lg_json_len(patterns); i++) {
        lg_mark mark = lg_arena_mark(&c->tmp);
        lg_str pattern;
        bool match;
        (void)lg_json_member(patterns, i, &pattern);
        lg_compile_at(c, node, "patternProperties", &pattern);
        lg_dfa d = lg_regex_dfa(c, pattern);
        match = lg_dfa_match(&d, key);
        lg_arena_reset(&c->tmp, mark);
        known |= match;
        if (match && !lg_eval(c, lg_schema_at(c, lg_schema_child(c, node, "patternProperties"), i), v, depth))
            return false;
    }
    return known || !lg_schema_get(c, node, rest) || lg_eval(c, lg_schema_child(c, node, rest), v, depth);
}

static bool object_holds(lg_compiler *c, uint32_t node, const lg_json *v, int depth)
{
    const lg_json *required = lg_schema_get(c, node, "required");
    size_t n = lg_json_len(v);

    if (n < lg_schema_count(c, node, "minProperties", 0) ||
        n > lg_schema_count(c, node, "maxProperties", LG_NONE))
        return false;
    for (size_t i = 0; i < lg_json_len(required); i++)
        if (!lg_json_getn(v, lg_json_str(lg_json_at(required, i))))
            return false;
    for (size_t i = 0; i < n; i++) {
        lg_str key;
        const lg_json *child = lg_json_member(v, i, &key);
        if (lg_schema_get(c, node, "propertyNames")) {
            // a name is a string value
            lg_json_limits lim = {.max_bytes = 1 << 20, .max_depth = 2};
            lg_json_doc *doc;
            lg_str text = lg_spell_string(c, key);
            if (lg_json_parse(text, &lim, &doc, NULL) != LG_OK)
                return false;
            lg_compile_own(c, doc);
            if (!lg_eval(c, lg_schema_child(c, node, "propertyNames"), lg_json_root(doc), depth))
                return false;
        }
        if (!member_holds(c, node, key, child, depth))
            return false;
    }
    return true;
}

bool lg_eval_own(lg_compiler *c, uint32_t node, const lg_json *v, int depth)
{
    unsigned type = lg_schema_type_of(c, v);
    const lg_json *list = lg_schema_get(c, node, "enum"), *one = lg_schema_get(c, node, "const");
    bool found = !list;

    lg_compile_work(c, 10);
    if (depth > MAX_DEPTH)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "references are nested too deep around a literal value");
    if (!(lg_schema_types(c, node) & type))
        return false;
    for (size_t i = 0; i < lg_json_len(list) && !found; i++)
        found = lg_json_same(c, lg_json_at(list, i), v);
    if (!found || (one && !lg_json_same(c, one, v)))
        return false;
    if (type & LG_TYPE_NUMBER)
        return number_holds(c, node, v);
    if (type == LG_TYPE_STRING)
        return string_holds(c, node, lg_json_str(v));
    if (type == LG_TYPE_ARRAY)
        return array_holds(c, node, v, depth + 1);
    return type != LG_TYPE_OBJECT || object_holds(c, node, v, depth + 1);
}

static bool eval_whole(lg_compiler *c, uint32_t node, const lg_json *v, int depth)
{
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    const lg_json *j = c->node[node].j;

    if (!lg_eval_own(c, node, v, depth))
        return false;
    if (lg_json_get(j, "$ref") && !lg_eval(c, lg_schema_ref(c, node), v, depth + 1))
        return false;
    for (int k = 0; k < 3; k++) {
        size_t n = lg_json_len(lg_json_get(j, lists[k])), hold = 0;
        for (size_t i = 0; i < n; i++)
            hold += lg_eval(c, lg_schema_at(c, lg_schema_child(c, node, lists[k]), i), v, depth + 1);
        if (n && (k == 0 ? hold < n : k == 1 ? hold == 0 : c->opt->one_of_any ? hold == 0 : hold != 1))
            return false;
    }
    return true;
}

bool lg_eval(lg_compiler *c, uint32_t node, const lg_json *v, int depth)
{
    bool holds;

    lg_schema_check(c, node);
    if (!lg_json_is(c->node[node].j, LG_JSON_OBJECT))
        return lg_json_is(c->node[node].j, LG_JSON_TRUE);
    for (uint32_t i = c->n_trail; i > 0 && c->trail[i - 1].value == v; i--)
        if (c->trail[i - 1].node == node) // asked for its own sake: no reason to hold
            return false;
    if (c->n_trail == LG_MAX_TRAIL)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "references are nested too deep around a literal value");
    c->trail[c->n_trail].node = node;
    c->trail[c->n_trail++].value = v;
    holds = eval_whole(c, node, v, depth);
    c->n_trail--;
    return holds;
}
