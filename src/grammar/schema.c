/*
 * grammar/schema: see schema.h.
 */
#include "grammar/schema.h"

#include <string.h>

#include "base/json_scan.h"

typedef enum kind {
    K_NOTE, // annotation, or not ours
    K_TYPE,
    K_SCHEMA,
    K_SCHEMAS,
    K_MAP,
    K_STRING,
    K_NAMES,
    K_COUNT,
    K_NUMBER,
    K_POSITIVE,
    K_BOUND,
    K_BOOL,
    K_ARRAY,
    K_ITEMS,
    K_IF,
    K_CONTAINS,
    K_UNEVALUATED,
    K_REFUSED,
} kind;

static const struct {
    const char *name;
    kind kind;
} keywords[] = {
    {"type", K_TYPE},
    {"enum", K_ARRAY},
    {"properties", K_MAP},
    {"patternProperties", K_MAP},
    {"$defs", K_NOTE},
    {"required", K_NAMES},
    {"additionalProperties", K_SCHEMA},
    {"propertyNames", K_SCHEMA},
    {"items", K_ITEMS},
    {"prefixItems", K_SCHEMAS},
    {"additionalItems", K_SCHEMA},
    {"minItems", K_COUNT},
    {"maxItems", K_COUNT},
    {"minProperties", K_COUNT},
    {"maxProperties", K_COUNT},
    {"minLength", K_COUNT},
    {"maxLength", K_COUNT},
    {"uniqueItems", K_BOOL},
    {"pattern", K_STRING},
    {"format", K_STRING},
    {"minimum", K_NUMBER},
    {"maximum", K_NUMBER},
    {"exclusiveMinimum", K_BOUND},
    {"exclusiveMaximum", K_BOUND},
    {"multipleOf", K_POSITIVE},
    {"allOf", K_SCHEMAS},
    {"anyOf", K_SCHEMAS},
    {"oneOf", K_SCHEMAS},
    {"$ref", K_STRING},
    {"nullable", K_BOOL},
    {"not", K_REFUSED},
    {"if", K_IF},
    {"contains", K_CONTAINS},
    {"dependentRequired", K_REFUSED},
    {"dependentSchemas", K_REFUSED},
    {"dependencies", K_REFUSED},
    {"unevaluatedProperties", K_UNEVALUATED},
    {"unevaluatedItems", K_UNEVALUATED},
    {"$dynamicRef", K_REFUSED},
    {"$recursiveRef", K_REFUSED},
    {"extends", K_REFUSED},
    {"disallow", K_REFUSED},
};

void lg_schema_pointer(const lg_compiler *c, uint32_t node, const lg_str key[2], char *out, size_t size)
{
    enum { MOST = 512 };
    lg_str part[MOST + 2];
    char digits[MOST][12];
    uint32_t n = 0;
    lg_buf b;

    for (int i = 1; i >= 0; i--)
        if (key && key[i].p)
            part[n++] = key[i];
    for (uint32_t i = node; i != LG_NONE && c->node && c->node[i].parent != LG_NONE && n < MOST;
         i = c->node[i].parent) {
        part[n] = c->node[i].key;
        if (!part[n].p) {
            uint32_t v = c->node[i].index;
            char *d = digits[n] + sizeof digits[n];
            do {
                *--d = (char)('0' + v % 10);
            } while (v /= 10);
            part[n] = (lg_str){d, (size_t)(digits[n] + sizeof digits[n] - d)};
        }
        n++;
    }
    lg_buf_init(&b, 1 << 20);
    (void)lg_buf_addz(&b, c->prefix);
    while (n-- > 0) {
        (void)lg_buf_addc(&b, '/');
        for (size_t i = 0; i < part[n].n; i++) {
            char ch = part[n].p[i];
            (void)(ch == '~'   ? lg_buf_addz(&b, "~0")
                   : ch == '/' ? lg_buf_addz(&b, "~1")
                               : lg_buf_addc(&b, ch));
        }
    }
    if (b.n < size) {
        if (b.n)
            memcpy(out, b.p, b.n);
        out[b.n] = 0;
    } else {
        size_t keep = lg_utf8_complete(b.p, size - 4);
        memcpy(out, b.p, keep);
        memcpy(out + keep, "...", 4);
    }
    lg_buf_free(&b);
}

static uint32_t pointer_hash(const lg_json *j)
{
    uint64_t v = (uint64_t)(uintptr_t)j * 0x9e3779b97f4a7c15u;

    return (uint32_t)(v >> 32);
}

static void map_add(lg_compiler *c, uint32_t node)
{
    uint32_t at = pointer_hash(c->node[node].j) & (c->node_map_size - 1);

    while (c->node_map[at])
        at = (at + 1) & (c->node_map_size - 1);
    c->node_map[at] = node + 1;
}

uint32_t lg_schema_node(lg_compiler *c, const lg_json *j, uint32_t parent, lg_str key, uint32_t index)
{
    uint32_t at;

    if (!c->node_map) {
        c->node_map_size = 256;
        c->node_map = LG_PERM(c, uint32_t, c->node_map_size);
    }
    for (at = pointer_hash(j) & (c->node_map_size - 1); c->node_map[at];
         at = (at + 1) & (c->node_map_size - 1))
        if (c->node[c->node_map[at] - 1].j == j)
            return c->node_map[at] - 1;
    if (c->n_node == c->cap_node) {
        uint32_t cap = c->cap_node ? c->cap_node * 2 : 128;
        lg_snode *bigger = LG_PERM(c, lg_snode, cap);
        if (c->n_node >= LG_SCHEMA_MAX_NODES)
            lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "the schema has more than %d parts",
                            LG_SCHEMA_MAX_NODES);
        if (c->n_node)
            memcpy(bigger, c->node, c->n_node * sizeof *bigger);
        c->node = bigger;
        c->cap_node = cap;
    }
    c->node[c->n_node] = (lg_snode){j, parent, key, index, false};
    map_add(c, c->n_node++);
    if (c->n_node * 2 > c->node_map_size) {
        c->node_map_size *= 2;
        c->node_map = LG_PERM(c, uint32_t, c->node_map_size);
        for (uint32_t i = 0; i < c->n_node; i++)
            map_add(c, i);
    }
    return c->n_node - 1;
}

const lg_json *lg_schema_get(const lg_compiler *c, uint32_t node, const char *keyword)
{
    return lg_json_get(c->node[node].j, keyword);
}

uint32_t lg_schema_child(lg_compiler *c, uint32_t node, const char *keyword)
{
    return lg_schema_node(c, lg_schema_get(c, node, keyword), node, lg_str_of(keyword), 0);
}

uint32_t lg_schema_at(lg_compiler *c, uint32_t node, size_t i)
{
    const lg_json *j = c->node[node].j;
    lg_str key = {0};

    if (lg_json_is(j, LG_JSON_ARRAY))
        return lg_schema_node(c, lg_json_at(j, i), node, key, (uint32_t)i);
    j = lg_json_member(j, i, &key);
    return lg_schema_node(c, j, node, key, 0);
}

static bool is_schema(const lg_json *j)
{
    return lg_json_is(j, LG_JSON_OBJECT) || lg_json_is(j, LG_JSON_TRUE) || lg_json_is(j, LG_JSON_FALSE);
}

static unsigned type_named(lg_str name)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"null", LG_TYPE_NULL},     {"boolean", LG_TYPE_BOOL},  {"integer", LG_TYPE_INT},
                 {"number", LG_TYPE_NUMBER}, {"string", LG_TYPE_STRING}, {"array", LG_TYPE_ARRAY},
                 {"object", LG_TYPE_OBJECT}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (lg_str_eqz(name, types[i].name))
            return types[i].bits;
    return 0;
}

unsigned lg_schema_types(const lg_compiler *c, uint32_t node)
{
    const lg_json *type = lg_schema_get(c, node, "type");
    unsigned bits = 0;

    if (!type)
        return LG_TYPE_ALL;
    if (lg_json_is(type, LG_JSON_STRING))
        bits = type_named(lg_json_str(type));
    for (size_t i = 0; lg_json_is(type, LG_JSON_ARRAY) && i < lg_json_len(type); i++)
        bits |= type_named(lg_json_str(lg_json_at(type, i)));
    if (lg_json_is(lg_schema_get(c, node, "nullable"), LG_JSON_TRUE))
        bits |= LG_TYPE_NULL;
    return bits;
}

uint32_t lg_schema_count(const lg_compiler *c, uint32_t node, const char *keyword, uint32_t other)
{
    const lg_json *j = lg_schema_get(c, node, keyword);
    int64_t v;

    if (!j)
        return other;
    if (!lg_json_i64(j, &v) || v > LG_NONE - 1)
        v = LG_NONE - 1; // beyond what any reply can hold
    return (uint32_t)v;
}

static bool valid_type(const lg_json *j)
{
    if (lg_json_is(j, LG_JSON_STRING))
        return type_named(lg_json_str(j)) != 0;
    for (size_t i = 0; i < lg_json_len(j); i++)
        if (!lg_json_is(lg_json_at(j, i), LG_JSON_STRING) || !type_named(lg_json_str(lg_json_at(j, i))))
            return false;
    return lg_json_is(j, LG_JSON_ARRAY) && lg_json_len(j) > 0;
}

static bool integral_text(lg_str t) // whole numbers of any size; the rest is refused by lg_json_i64 already
{
    for (size_t i = 0; i < t.n; i++)
        if (t.p[i] < '0' || t.p[i] > '9')
            return false;
    return t.n > 0;
}

static bool has_applicator(const lg_json *j)
{
    static const char *const names[] = {"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lg_json_get(j, names[i]))
            return true;
    return false;
}

static void check_children(lg_compiler *c, uint32_t node, lg_str key, const lg_json *v)
{
    for (size_t i = 0; i < lg_json_len(v); i++) {
        lg_str name = {0};
        const lg_json *child = lg_json_is(v, LG_JSON_ARRAY) ? lg_json_at(v, i) : lg_json_member(v, i, &name);
        if (is_schema(child))
            continue;
        c->at = lg_schema_at(c, lg_schema_node(c, v, node, key, 0), i);
        c->at_key[0] = c->at_key[1] = (lg_str){0};
        lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "a schema must be an object or a boolean");
    }
}

LG_NORETURN static void wants(lg_compiler *c, lg_str key, const char *what)
{
    lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "keyword \"%.*s\" must be %s", (int)key.n, key.p, what);
}

// Is a JSON number above zero, however large or small?
static bool is_positive(lg_str number)
{
    for (size_t i = 0; i < number.n && number.p[i] != '-' && number.p[i] != 'e' && number.p[i] != 'E'; i++)
        if (number.p[i] >= '1' && number.p[i] <= '9')
            return true;
    return false;
}

static void check_value(lg_compiler *c, uint32_t node, lg_str key, const lg_json *v, kind k)
{
    const lg_json *owner = c->node[node].j;
    int64_t n;

    switch (k) {
    case K_NOTE: return;
    case K_TYPE:
        if (!valid_type(v))
            wants(c, key, "the name of a type or a list of such names");
        return;
    case K_SCHEMA:
        if (!is_schema(v))
            wants(c, key, "a schema");
        return;
    case K_ITEMS:
        if (is_schema(v))
            return;
        if (!lg_json_is(v, LG_JSON_ARRAY))
            wants(c, key, "a schema or a list of schemas");
        check_children(c, node, key, v);
        return;
    case K_SCHEMAS:
        if (!lg_json_is(v, LG_JSON_ARRAY) || lg_json_len(v) == 0)
            wants(c, key, "a list of schemas that is not empty");
        check_children(c, node, key, v);
        return;
    case K_MAP:
        if (!lg_json_is(v, LG_JSON_OBJECT))
            wants(c, key, "an object of schemas");
        check_children(c, node, key, v);
        return;
    case K_STRING:
        if (!lg_json_is(v, LG_JSON_STRING))
            wants(c, key, "a string");
        return;
    case K_NAMES:
        // draft-03 and some authors write a boolean here; it says nothing about members
        for (size_t i = 0; i < lg_json_len(v); i++)
            if (!lg_json_is(lg_json_at(v, i), LG_JSON_STRING))
                wants(c, key, "a list of names");
        if (!lg_json_is(v, LG_JSON_ARRAY))
            wants(c, key, "a list of names");
        return;
    case K_COUNT:
        if (!(lg_json_i64(v, &n) && n >= 0) && !integral_text(lg_json_number_text(v)))
            wants(c, key, "a whole number that is not negative");
        return;
    case K_NUMBER:
        if (!lg_json_is(v, LG_JSON_NUMBER))
            wants(c, key, "a number");
        return;
    case K_POSITIVE:
        if (!is_positive(lg_json_number_text(v)))
            wants(c, key, "a number greater than 0");
        return;
    case K_BOUND:
        if (!lg_json_is(v, LG_JSON_NUMBER) && !lg_json_is(v, LG_JSON_TRUE) && !lg_json_is(v, LG_JSON_FALSE))
            wants(c, key, "a number");
        return;
    case K_BOOL:
        if (!lg_json_is(v, LG_JSON_TRUE) && !lg_json_is(v, LG_JSON_FALSE))
            wants(c, key, "true or false");
        return;
    case K_ARRAY:
        if (!lg_json_is(v, LG_JSON_ARRAY))
            wants(c, key, "a list");
        return;
    case K_IF:
        if (!lg_json_get(owner, "then") && !lg_json_get(owner, "else"))
            return;
        break;
    case K_UNEVALUATED:
        if (!is_schema(v))
            wants(c, key, "a schema");
        if (!has_applicator(owner))
            return;
        lg_compile_fail(c, LG_GRAMMAR_UNSUPPORTED_KEYWORD,
                        "keyword \"%.*s\" is not supported beside $ref, allOf, anyOf "
                        "or oneOf",
                        (int)key.n, key.p);
    case K_CONTAINS:
    case K_REFUSED: break;
    }
    lg_compile_fail(c, LG_GRAMMAR_UNSUPPORTED_KEYWORD, "keyword \"%.*s\" is not supported", (int)key.n,
                    key.p);
}

void lg_schema_check(lg_compiler *c, uint32_t node)
{
    const lg_json *j = c->node[node].j;

    if (c->node[node].checked)
        return;
    c->node[node].checked = true;
    lg_compile_at(c, node, NULL, NULL);
    if (!is_schema(j))
        lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "a schema must be an object or a boolean");
    for (size_t i = 0; i < lg_json_len(j); i++) {
        lg_str key;
        const lg_json *v = lg_json_member(j, i, &key);
        lg_compile_work(c, 4);
        for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++)
            if (lg_str_eqz(key, keywords[k].name)) {
                c->at = node;
                c->at_key[0] = key;
                check_value(c, node, key, v, keywords[k].kind);
                break;
            }
    }
    lg_compile_at(c, node, NULL, NULL);
}

// --- reading ---

LG_NORETURN static void repeated(lg_compiler *c, const char *p, const lg_json *j, uint32_t node)
{
    lg_json_limits lim = {.max_bytes = LG_SCHEMA_MAX_BYTES + 2, .max_depth = 2};
    lg_json_doc *doc = NULL;

    for (size_t i = 0;; i++) {
        const char *end;
        lg_str key = {0}, decoded;
        p = lg_json_skip_space(p + 1); // behind "{" or ","
        end = lg_json_skip_string(p);
        if (lg_json_parse((lg_str){p, (size_t)(end - p)}, &lim, &doc, NULL) != LG_OK)
            lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "a name occurs twice in one object");
        lg_compile_own(c, doc);
        decoded = lg_json_str(lg_json_root(doc));
        (void)lg_json_member(j, i, &key);
        if (i >= lg_json_len(j) || !lg_str_eq(key, decoded)) {
            c->at = node;
            c->at_key[0] = decoded;
            lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "a name occurs twice in one object");
        }
        p = lg_json_skip_space(lg_json_skip_value(lg_json_skip_space(lg_json_skip_space(end) + 1)));
    }
}

// The parser has merged repeated names; here the text is compared with the tree. As deep as the text is
// nested.
static const char *compare_text(lg_compiler *c, const char *p, const lg_json *j, uint32_t node)
{
    size_t n = 0, i = 0;
    bool object = *p == '{';

    if (*p != '{' && *p != '[')
        return lg_json_skip_value(p);
    for (const char *q = lg_json_skip_space(p + 1); *q != '}' && *q != ']'; n++) {
        if (object)
            q = lg_json_skip_space(lg_json_skip_string(q)) + 1;
        q = lg_json_skip_space(lg_json_skip_value(q));
        q = *q == ',' ? lg_json_skip_space(q + 1) : q;
    }
    lg_compile_work(c, n);
    if (n != lg_json_len(j))
        repeated(c, p, j, node);
    for (p = lg_json_skip_space(p + 1); i < n; i++) {
        if (object)
            p = lg_json_skip_space(lg_json_skip_string(p)) + 1;
        p = lg_json_skip_space(p);
        if (*p == '{' || *p == '[')
            p = compare_text(c, p, object ? lg_json_member(j, i, NULL) : lg_json_at(j, i),
                             lg_schema_at(c, node, i));
        else
            p = lg_json_skip_value(p);
        p = lg_json_skip_space(p);
        p = *p == ',' ? lg_json_skip_space(p + 1) : p;
    }
    return p + 1;
}

static void read_dialect(lg_compiler *c)
{
    static const struct {
        const char *uri;
        uint32_t dialect;
    } known[] = {{"json-schema.org/draft-04/schema", 4}, {"json-schema.org/draft-06/schema", 6},
                 {"json-schema.org/draft-07/schema", 7}, {"json-schema.org/draft/2019-09/schema", 2019},
                 {"json-schema.org/draft/2020-12/schema", 2020}};
    const lg_json *j = lg_schema_get(c, c->root, "$schema");
    lg_str uri = lg_json_str(j);

    c->dialect = 2020;
    if (!j)
        return;
    for (int i = 0; i < 2; i++) {
        lg_str scheme = i ? LG_STR("http://") : LG_STR("https://");
        if (lg_str_starts(uri, scheme)) {
            uri = (lg_str){uri.p + scheme.n, uri.n - scheme.n};
            break;
        }
    }
    if (uri.n && uri.p[uri.n - 1] == '#')
        uri.n--;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (lg_str_eqz(uri, known[i].uri)) {
            c->dialect = known[i].dialect;
            return;
        }
    lg_compile_at(c, c->root, "$schema", NULL);
    lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "this dialect of JSON Schema is not known");
}

void lg_schema_read(lg_compiler *c, lg_str text)
{
    lg_json_limits lim = {.max_bytes = LG_SCHEMA_MAX_BYTES, .max_depth = LG_SCHEMA_MAX_DEPTH};
    lg_err err = {0};
    lg_status st;
    const char *p;
    char *copy;

    if (text.n > LG_SCHEMA_MAX_BYTES)
        lg_compile_fail(c, LG_GRAMMAR_SCHEMA_TOO_LARGE, "a schema may have at most %d bytes",
                        LG_SCHEMA_MAX_BYTES);
    st = lg_json_parse(text, &lim, &c->doc, &err);
    if (st != LG_OK)
        lg_compile_fail(c, st == LG_E_LIMIT ? LG_GRAMMAR_SCHEMA_TOO_LARGE : LG_GRAMMAR_INVALID_SCHEMA, "%s",
                        err.msg);
    copy = LG_TMP(c, char, text.n + 1); // ends in NUL
    memcpy(copy, text.p, text.n);
    p = copy + (lg_str_starts(text, LG_STR("\xef\xbb\xbf")) ? 3 : 0);
    c->root = lg_schema_node(c, lg_json_root(c->doc), LG_NONE, (lg_str){0}, 0);
    (void)compare_text(c, lg_json_skip_space(p), lg_json_root(c->doc), c->root);
    read_dialect(c);
}
