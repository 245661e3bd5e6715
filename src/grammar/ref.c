/*
 * grammar/ref: where a `$ref` points: a pointer, an anchor or an identifier inside the document.
 */
#include <string.h>

#include "grammar/schema.h"

LG_NORETURN static void unresolved(lg_compiler *c, uint32_t node)
{
    lg_compile_at(c, node, "$ref", NULL);
    lg_compile_fail(c, LG_GRAMMAR_UNRESOLVED_REF, "the reference points to nothing");
}

static const char *id_keyword(const lg_compiler *c)
{
    return c->dialect == 4 ? "id" : "$id";
}

// The identifier that a node gives itself, without a fragment; empty when it gives none. In the old drafts it
// gives none beside a $ref.
static lg_str own_id(const lg_compiler *c, const lg_json *j)
{
    lg_str id = lg_json_str(lg_json_get(j, id_keyword(c)));
    size_t hash = lg_str_find(id, LG_STR("#"), 0);

    if (c->dialect <= 7 && lg_json_get(j, "$ref"))
        return (lg_str){0};
    return hash == SIZE_MAX ? id : (lg_str){id.p, hash};
}

static bool has_scheme(lg_str uri)
{
    for (size_t i = 0; i < uri.n; i++) {
        char ch = uri.p[i];
        if (ch == ':')
            return i > 0;
        if (ch == '/' || ch == '?' || ch == '#')
            return false;
    }
    return false;
}

static lg_str join(lg_compiler *c, lg_str a, size_t n, lg_str b)
{
    char *p = LG_PERM(c, char, n + b.n + 1);

    memcpy(p, a.p, n);
    memcpy(p + n, b.p, b.n);
    return (lg_str){p, n + b.n};
}

// `uri` read in a document whose address is `base`; without "." and ".." parts, which identifiers hardly
// have.
static lg_str resolve(lg_compiler *c, lg_str base, lg_str uri)
{
    size_t n = base.n, authority = lg_str_find(base, LG_STR("://"), 0);

    if (has_scheme(uri) || base.n == 0)
        return uri;
    if (uri.n && uri.p[0] == '/') {
        n = authority == SIZE_MAX ? 0 : lg_str_find(base, LG_STR("/"), authority + 3);
        n = n == SIZE_MAX ? base.n : n;
    } else {
        while (n > 0 && base.p[n - 1] != '/')
            n--;
    }
    return join(c, base, n, uri);
}

static bool holds_values(lg_str key) // below these keywords there are no schemas
{
    static const char *const names[] = {"enum", "const", "default", "examples", "example"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lg_str_eqz(key, names[i]))
            return true;
    return false;
}

typedef struct search {
    lg_str uri; // absolute address wanted; p = NULL: an anchor in the resource at `from`
    lg_str anchor;
    uint32_t from;
} search;

// Depth first through the document; as deep as it is nested.
static uint32_t find(lg_compiler *c, uint32_t node, lg_str base, const search *s)
{
    const lg_json *j = c->node[node].j;
    bool object = lg_json_is(j, LG_JSON_OBJECT);
    lg_str id = own_id(c, j);

    lg_compile_work(c, 1);
    if (id.n)
        base = resolve(c, base, id);
    if (s->uri.p) {
        if (id.n && lg_str_eq(base, s->uri))
            return node;
    } else if (id.n && node != s->from) {
        return LG_NONE; // another resource
    } else {
        lg_str named = lg_json_str(lg_json_get(j, id_keyword(c)));
        if (lg_str_eq(lg_json_str(lg_json_get(j, "$anchor")), s->anchor) && lg_json_get(j, "$anchor"))
            return node;
        if (named.n == s->anchor.n + 1 && named.p[0] == '#' &&
            memcmp(named.p + 1, s->anchor.p, s->anchor.n) == 0)
            return node;
    }
    for (size_t i = 0; i < lg_json_len(j); i++) {
        lg_str key = {0};
        const lg_json *child = object ? lg_json_member(j, i, &key) : lg_json_at(j, i);
        uint32_t hit;
        if (holds_values(key) || lg_json_len(child) == 0)
            continue;
        hit = find(c, lg_schema_at(c, node, i), base, s);
        if (hit != LG_NONE)
            return hit;
    }
    return LG_NONE;
}

// The resource that a node belongs to, and its address.
static uint32_t resource(lg_compiler *c, uint32_t node, lg_str *base)
{
    uint32_t chain[LG_SCHEMA_MAX_DEPTH * 2], n = 0, root = LG_NONE;

    for (uint32_t i = node; i != LG_NONE && n < LG_SCHEMA_MAX_DEPTH * 2; i = c->node[i].parent)
        chain[n++] = i;
    *base = (lg_str){0};
    root = chain[n - 1];
    while (n-- > 0) {
        lg_str id = own_id(c, c->node[chain[n]].j);
        if (id.n) {
            *base = resolve(c, *base, id);
            root = chain[n];
        }
    }
    return root;
}

static int hex(char ch)
{
    return ch >= '0' && ch <= '9'                 ? ch - '0'
           : (ch | 32) >= 'a' && (ch | 32) <= 'f' ? (ch | 32) - 'a' + 10
                                                  : -1;
}

static lg_str percent_decoded(lg_compiler *c, lg_str t)
{
    char *p = LG_TMP(c, char, t.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < t.n; i++) {
        if (t.p[i] == '%' && i + 2 < t.n && hex(t.p[i + 1]) >= 0 && hex(t.p[i + 2]) >= 0) {
            p[n++] = (char)(hex(t.p[i + 1]) * 16 + hex(t.p[i + 2]));
            i += 2;
        } else {
            p[n++] = t.p[i];
        }
    }
    return (lg_str){p, n};
}

// One step of a pointer; LG_NONE when there is nothing.
static uint32_t descend(lg_compiler *c, uint32_t node, lg_str token)
{
    const lg_json *j = c->node[node].j;
    lg_str name = {LG_TMP(c, char, token.n + 1), 0};
    int64_t index;

    for (size_t i = 0; i < token.n; i++) {
        char ch = token.p[i];
        if (ch == '~' && i + 1 < token.n)
            ch = token.p[++i] == '1' ? '/' : '~';
        ((char *)name.p)[name.n++] = ch;
    }
    if (lg_json_is(j, LG_JSON_ARRAY))
        return lg_str_i64(name, &index) && index >= 0 && (size_t)index < lg_json_len(j)
                   ? lg_schema_at(c, node, (size_t)index)
                   : LG_NONE;
    for (size_t i = 0; i < lg_json_len(j); i++) {
        lg_str key;
        (void)lg_json_member(j, i, &key);
        if (lg_str_eq(key, name))
            return lg_schema_at(c, node, i);
    }
    return LG_NONE;
}

uint32_t lg_schema_ref(lg_compiler *c, uint32_t node)
{
    lg_str ref = lg_json_str(lg_schema_get(c, node, "$ref")), base, uri = ref, fragment = {0};
    size_t hash = lg_str_find(ref, LG_STR("#"), 0);
    uint32_t at = resource(c, node, &base);

    if (hash != SIZE_MAX) {
        uri.n = hash;
        fragment = percent_decoded(c, (lg_str){ref.p + hash + 1, ref.n - hash - 1});
    }
    if (uri.n) {
        search s = {.uri = resolve(c, base, uri)};
        if (!lg_str_eq(s.uri, base))
            at = find(c, c->root, (lg_str){0}, &s);
        if (at == LG_NONE) {
            lg_compile_at(c, node, "$ref", NULL);
            lg_compile_fail(c, LG_GRAMMAR_REMOTE_REF, "references to other documents are not supported");
        }
    }
    if (fragment.n && fragment.p[0] != '/') {
        search s = {.anchor = fragment, .from = at};
        at = find(c, at, base, &s);
    } else {
        for (size_t i = 0; i < fragment.n && at != LG_NONE;) {
            size_t end = lg_str_find(fragment, LG_STR("/"), i + 1);
            end = end == SIZE_MAX ? fragment.n : end;
            at = descend(c, at, (lg_str){fragment.p + i + 1, end - i - 1});
            i = end;
        }
    }
    if (at == LG_NONE)
        unresolved(c, node);
    return at;
}
