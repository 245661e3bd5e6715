/*
 * base/json: see json.h. Three steps: json_scan recognises and repairs, jansson builds its tree from the
 * plain text and merges duplicate keys, and a walk lays nodes of our own over it, which find members by index
 * and by key and know their number's text. Strings stay where jansson put them.
 */
#include "base/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json_scan.h"

enum { SORT_FROM = 9 }; // objects with as many members are searched through a sorted index

typedef struct member member;

struct lg_json {
    lg_json_kind kind;
    lg_str text; // of a string or number
    size_t n;    // elements or members
    union {
        const lg_json *items;
        const member *members;
    };
    const member *const *sorted; // members by key, for large objects
};

struct member {
    lg_str key;
    lg_json value;
};

struct lg_json_doc {
    json_t *tree; // owns the strings
    lg_buf numbers;
    lg_arena nodes;
    lg_json root;
    size_t n_members;
    bool repaired;
    lg_buf written; // the text, if the tree is not what it says
};

static int compare_keys(lg_str a, lg_str b)
{
    int c = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);

    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int compare_members(const void *a, const void *b)
{
    const member *const *x = a, *const *y = b;

    return compare_keys((*x)->key, (*y)->key);
}

static bool lay(lg_json_doc *doc, json_t *from, lg_json *to);

static bool lay_array(lg_json_doc *doc, json_t *from, lg_json *to)
{
    size_t n = json_array_size(from);
    lg_json *item = LG_NEW_N(&doc->nodes, lg_json, n);

    if (!item)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!lay(doc, json_array_get(from, i), &item[i]))
            return false;
    *to = (lg_json){.kind = LG_JSON_ARRAY, .n = n, .items = item};
    return true;
}

static bool lay_object(lg_json_doc *doc, json_t *from, lg_json *to)
{
    size_t n = json_object_size(from), i = 0;
    member *m = LG_NEW_N(&doc->nodes, member, n);
    const member **sorted = NULL;

    if (!m)
        return false;
    doc->n_members += n;
    for (void *it = json_object_iter(from); it; it = json_object_iter_next(from, it), i++) {
        m[i].key = (lg_str){json_object_iter_key(it), json_object_iter_key_len(it)};
        if (!lay(doc, json_object_iter_value(it), &m[i].value))
            return false;
    }
    if (n >= SORT_FROM) {
        sorted = LG_NEW_N(&doc->nodes, const member *, n);
        if (!sorted)
            return false;
        for (i = 0; i < n; i++)
            sorted[i] = &m[i];
        qsort(sorted, n, sizeof *sorted, compare_members);
    }
    *to = (lg_json){.kind = LG_JSON_OBJECT, .n = n, .members = m, .sorted = sorted};
    return true;
}

// Lays a node over `from`. Recursion is as deep as the text is nested, which the scan has bounded.
static bool lay(lg_json_doc *doc, json_t *from, lg_json *to)
{
    LG_ASSERT(!json_is_real(from)); // the scan leaves only integers
    switch (json_typeof(from)) {
    case JSON_OBJECT: return lay_object(doc, from, to);
    case JSON_ARRAY: return lay_array(doc, from, to);
    case JSON_STRING:
        *to = (lg_json){.kind = LG_JSON_STRING, .text = {json_string_value(from), json_string_length(from)}};
        return true;
    case JSON_INTEGER:
        *to = (lg_json){.kind = LG_JSON_NUMBER, .text = lg_str_of(doc->numbers.p + json_integer_value(from))};
        return true;
    case JSON_TRUE: *to = (lg_json){.kind = LG_JSON_TRUE}; return true;
    case JSON_FALSE: *to = (lg_json){.kind = LG_JSON_FALSE}; return true;
    case JSON_NULL: *to = (lg_json){.kind = LG_JSON_NULL}; return true;
    case JSON_REAL: break;
    }
    return false;
}

static bool keep_text(lg_json_doc *doc, lg_str text, size_t n_keys)
{
    if (!doc->repaired && n_keys == doc->n_members)
        return true;
    lg_buf_init(&doc->written, SIZE_MAX / 2);
    return lg_buf_adds(&doc->written, text) && lg_buf_z(&doc->written);
}

lg_status lg_json_parse(lg_str text, const lg_json_limits *lim, lg_json_doc **out, lg_err *err)
{
    lg_json_scan scan;
    json_error_t why;
    lg_json_doc *doc = calloc(1, sizeof *doc);
    lg_status st = lg_json_scan_text(text, lim, &scan, err);

    if (st != LG_OK)
        goto out;
    if (!doc) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory while reading JSON");
        goto out;
    }
    lg_arena_init(&doc->nodes, SIZE_MAX); // bounded by the number of values, which the scan has checked
    doc->numbers = scan.numbers;
    lg_buf_init(&scan.numbers, 0); // taken
    doc->repaired = scan.repaired;
    doc->tree = json_loadb(scan.text.p, scan.text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!doc->tree || !lay(doc, doc->tree, &doc->root) || !keep_text(doc, text, scan.n_keys)) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory while reading JSON");
        goto out;
    }
    *out = doc;
    doc = NULL;
out:
    lg_json_scan_free(&scan);
    lg_json_free(doc);
    return st;
}

void lg_json_free(lg_json_doc *doc)
{
    if (!doc)
        return;
    json_decref(doc->tree);
    lg_buf_free(&doc->numbers);
    lg_buf_free(&doc->written);
    lg_arena_free(&doc->nodes);
    free(doc);
}

const lg_json *lg_json_root(const lg_json_doc *doc)
{
    return &doc->root;
}

bool lg_json_repaired(const lg_json_doc *doc)
{
    return doc->repaired;
}

// The way from a node down to another: which element or member, level by level.
typedef struct way {
    const lg_json *node[LG_JSON_DEPTH_CAP + 1];
    size_t child[LG_JSON_DEPTH_CAP + 1];
    int depth;
} way;

static bool find_way(const lg_json *root, const lg_json *to, way *w)
{
    w->depth = 0;
    w->node[0] = root;
    w->child[0] = 0;
    while (w->node[w->depth] != to) {
        const lg_json *at = w->node[w->depth];
        size_t i = w->child[w->depth];

        if (i < at->n && (at->kind == LG_JSON_ARRAY || at->kind == LG_JSON_OBJECT)) {
            w->node[++w->depth] = at->kind == LG_JSON_ARRAY ? &at->items[i] : &at->members[i].value;
            w->child[w->depth] = 0;
        } else if (w->depth == 0) {
            return false;
        } else {
            w->child[--w->depth]++;
        }
    }
    return true;
}

// Is the string at p, up to end, this key?
static bool spells(const char *p, const char *end, lg_str key)
{
    lg_str raw = {p + 1, (size_t)(end - p) - 2};
    lg_json_limits lim = {.max_bytes = SIZE_MAX, .max_depth = 2, .repair = true};
    lg_json_doc *doc;
    lg_str text = {0};
    bool simple = true, same;

    if (lg_str_eq(raw, key))
        return true;
    for (size_t i = 0; i < raw.n && simple; i++)
        simple = raw.p[i] != '\\' && (unsigned char)raw.p[i] < 0x80;
    // as a key, where a NUL is repaired too
    lg_buf b;
    lg_buf_init(&b, SIZE_MAX / 2);
    if (simple || !lg_buf_addc(&b, '{') || !lg_buf_add(&b, p, (size_t)(end - p)) || !lg_buf_addz(&b, ":0}") ||
        lg_json_parse(lg_buf_str(&b), &lim, &doc, NULL) != LG_OK) {
        lg_buf_free(&b);
        return false;
    }
    (void)lg_json_member(&doc->root, 0, &text);
    same = lg_str_eq(text, key);
    lg_json_free(doc);
    lg_buf_free(&b);
    return same;
}

// The value of child i of the container `at`, which is written at p. Of repeated names the last one counts.
static const char *into(const char *p, const lg_json *at, size_t i)
{
    const char *found = NULL;

    p = lg_json_skip_space(p + 1);
    if (at->kind == LG_JSON_ARRAY) {
        for (; i > 0; i--)
            p = lg_json_skip_space(lg_json_skip_space(lg_json_skip_value(p)) + 1);
        return p;
    }
    while (*p != '}') {
        const char *end = lg_json_skip_string(p);
        const char *value = lg_json_skip_space(lg_json_skip_space(end) + 1);
        if (spells(p, end, at->members[i].key))
            found = value;
        p = lg_json_skip_space(lg_json_skip_value(value));
        p = *p == ',' ? lg_json_skip_space(p + 1) : p;
    }
    return found;
}

lg_str lg_json_written(const lg_json_doc *doc, const lg_json *j)
{
    const char *p = doc->written.p;
    way w;

    if (!p || !j || !find_way(&doc->root, j, &w))
        return (lg_str){0};
    if (lg_str_starts(lg_buf_str(&doc->written), LG_STR("\xEF\xBB\xBF")))
        p += 3;
    p = lg_json_skip_space(p);
    for (int i = 0; i < w.depth && p; i++)
        p = into(p, w.node[i], w.child[i]);
    return p ? (lg_str){p, (size_t)(lg_json_skip_value(p) - p)} : (lg_str){0};
}

lg_json_kind lg_json_kind_of(const lg_json *j)
{
    return j ? j->kind : LG_JSON_NULL;
}

bool lg_json_is(const lg_json *j, lg_json_kind kind)
{
    return lg_json_kind_of(j) == kind;
}

size_t lg_json_len(const lg_json *j)
{
    return j ? j->n : 0;
}

const lg_json *lg_json_at(const lg_json *array, size_t i)
{
    return lg_json_is(array, LG_JSON_ARRAY) && i < array->n ? &array->items[i] : NULL;
}

const lg_json *lg_json_get(const lg_json *object, const char *key)
{
    return lg_json_getn(object, lg_str_of(key));
}

const lg_json *lg_json_getn(const lg_json *object, lg_str key)
{
    if (!lg_json_is(object, LG_JSON_OBJECT))
        return NULL;
    if (!object->sorted) {
        for (size_t i = 0; i < object->n; i++)
            if (lg_str_eq(object->members[i].key, key))
                return &object->members[i].value;
        return NULL;
    }
    size_t lo = 0, hi = object->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = compare_keys(object->sorted[mid]->key, key);
        if (c == 0)
            return &object->sorted[mid]->value;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const lg_json *lg_json_member(const lg_json *object, size_t i, lg_str *key)
{
    if (!lg_json_is(object, LG_JSON_OBJECT) || i >= object->n)
        return NULL;
    if (key)
        *key = object->members[i].key;
    return &object->members[i].value;
}

lg_str lg_json_str(const lg_json *j)
{
    return lg_json_is(j, LG_JSON_STRING) ? j->text : (lg_str){0};
}

lg_str lg_json_number_text(const lg_json *j)
{
    return lg_json_is(j, LG_JSON_NUMBER) ? j->text : (lg_str){0};
}

// The value of digits (n of them, no sign or point) times ten to the power exp, as an exact integer up to
// max.
static bool scaled(const char *digit, size_t n, int64_t exp, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;

    while (n > 0 && digit[n - 1] == '0') {
        n--;
        exp++;
    }
    if (n == 0) {
        *out = 0;
        return true;
    }
    if (exp < 0 || exp > 19)
        return false;
    for (size_t i = 0; i < n + (size_t)exp; i++) {
        uint64_t d = i < n ? (uint64_t)(digit[i] - '0') : 0;
        if (v > (max - d) / 10)
            return false;
        v = v * 10 + d;
    }
    *out = v;
    return true;
}

// Takes a JSON number apart: its digits without leading zeros and point, at most `cap` significant ones, and
// the power of ten. False when there are more (no 64-bit integer has).
static bool decompose(lg_str t, char *digit, size_t cap, size_t *n, int64_t *exp)
{
    size_t i = t.p[0] == '-';
    bool after_point = false;
    size_t pending = 0; // zeros seen but not stored yet

    *n = 0;
    *exp = 0;
    for (; i < t.n && t.p[i] != 'e' && t.p[i] != 'E'; i++) {
        if (t.p[i] == '.') {
            after_point = true;
            continue;
        }
        if (after_point)
            (*exp)--;
        if (t.p[i] == '0') {
            pending += *n > 0;
            continue;
        }
        if (*n + pending >= cap)
            return false;
        memset(digit + *n, '0', pending);
        *n += pending;
        pending = 0;
        digit[(*n)++] = t.p[i];
    }
    *exp += (int64_t)pending; // trailing zeros, wherever the point was
    if (i < t.n) {
        int64_t e;
        lg_str text = {t.p + i + 1, t.n - i - 1};
        if (!lg_str_i64(text, &e) || e > 1000000000 || e < -1000000000)
            e = text.p[0] == '-' ? -1000000000 : 1000000000; // no text is long enough to make up for it
        *exp += e;
    }
    return true;
}

bool lg_json_i64(const lg_json *j, int64_t *out)
{
    lg_str t = lg_json_number_text(j);
    char digit[32];
    size_t n;
    int64_t exp;
    uint64_t v;

    if (t.n == 0)
        return false;
    if (lg_str_i64(t, out))
        return true;
    bool neg = t.p[0] == '-';
    if (!decompose(t, digit, sizeof digit, &n, &exp) || !scaled(digit, n, exp, (uint64_t)INT64_MAX + neg, &v))
        return false;
    *out = neg ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool lg_json_f64(const lg_json *j, double *out)
{
    lg_str t = lg_json_number_text(j);

    return t.n > 0 && lg_str_f64(t, out);
}

bool lg_json_bool(const lg_json *j, bool *out)
{
    if (!lg_json_is(j, LG_JSON_TRUE) && !lg_json_is(j, LG_JSON_FALSE))
        return false;
    *out = lg_json_is(j, LG_JSON_TRUE);
    return true;
}
