/*
 * engine/constraint: see constraint.h. A constraint is kept under a key that spells its specification out;
 * equal keys are equal constraints.
 */
#include "engine/constraint.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"

enum {
    KEPT = 32,
    KEY_MAX = 64 << 20,
    RAW_MAX = 1 << 20,
    // Compilations that are repeated for one set of tools, each with one tool less to follow its schema;
    // those that failed for their size cost eight of them.
    REPAIRS = 16,
    COSTLY = 8,
};

struct lg_constraint {
    atomic_int refs;
    lg_constraint_cache *home; /* outlives it; NULL: none */
    lg_constraint_kind kind;
    lg_grammar_options options;
    bool fast_forward;
    lg_grammar *grammar;
    lg_buf key;
    size_t schema_at, schema_n, choice_at, n_choice; /* in key */
    lg_hash128 hash;
};

struct lg_constraint_cache {
    pthread_mutex_t lock;
    pthread_mutex_t dear; /* held while something large is compiled: one at a time, for memory's sake */
    size_t max_bytes;
    lg_constraint *kept[KEPT + 1]; /* the newest first; one more while the lock is held */
    int n;
};

/* --- keys --- */

static void key_str(lg_buf *b, lg_str s)
{
    uint64_t n = s.n;

    (void)lg_buf_add(b, (const char *)&n, sizeof n);
    (void)lg_buf_adds(b, s);
}

static void key_int(lg_buf *b, int64_t v)
{
    (void)lg_buf_add(b, (const char *)&v, sizeof v);
}

// Everything that decides what is compiled, in a form that two specifications share only when they are equal.
static lg_status make_key(const lg_constraint_spec *s, lg_constraint *c, lg_err *err)
{
    lg_buf *b = &c->key;

    key_int(b, s->kind);
    key_int(b, s->options.whitespace);
    key_int(b, s->options.one_of_any);
    key_int(b, s->options.any_order);
    key_int(b, s->options.ignore_formats);
    key_int(b, s->fast_forward);
    key_int(b, s->max_calls);
    key_int(b, s->special ? s->special->tool_call : -1);
    key_int(b, s->special ? s->special->end_tool_call : -1);
    key_str(b, s->schema);
    c->schema_at = b->n - s->schema.n;
    c->schema_n = s->schema.n;
    key_int(b, (int64_t)s->n_tool);
    for (size_t i = 0; i < s->n_tool; i++) {
        key_int(b, s->tool[i].mode);
        key_str(b, s->tool[i].name);
        key_str(b, s->tool[i].parameters);
    }
    c->choice_at = b->n;
    c->n_choice = s->n_choice;
    for (size_t i = 0; i < s->n_choice; i++)
        key_str(b, s->choice[i]);
    if (b->failed)
        return LG_FAIL(err, LG_E_LIMIT, "the constraint is too long");
    c->hash = lg_hash_128(b->p, b->n, 0);
    return LG_OK;
}

static bool same(const lg_constraint *a, const lg_constraint *b)
{
    return lg_hash128_eq(a->hash, b->hash) && lg_str_eq(lg_buf_str(&a->key), lg_buf_str(&b->key));
}

static size_t bytes_of(const lg_constraint *c)
{
    return sizeof *c + c->key.n + lg_grammar_size(c->grammar);
}

/* --- the cache --- */

lg_status lg_constraint_cache_create(size_t max_bytes, lg_constraint_cache **out, lg_err *err)
{
    lg_constraint_cache *c = calloc(1, sizeof *c);

    if (!c)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for compiled constraints");
    c->max_bytes = max_bytes;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_mutex_init(&c->dear, NULL);
    *out = c;
    return LG_OK;
}

void lg_constraint_cache_destroy(lg_constraint_cache *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n; i++)
        lg_constraint_release(c->kept[i]);
    (void)pthread_mutex_destroy(&c->lock);
    (void)pthread_mutex_destroy(&c->dear);
    free(c);
}

static void to_front(lg_constraint_cache *cache, int at, lg_constraint *c)
{
    memmove(cache->kept + 1, cache->kept, (size_t)at * sizeof *cache->kept);
    cache->kept[0] = c;
}

// With the lock held: the equal one, newly used, with a reference for the caller; or NULL.
static lg_constraint *find(lg_constraint_cache *cache, const lg_constraint *like)
{
    for (int i = 0; i < cache->n; i++) {
        lg_constraint *c = cache->kept[i];
        if (!same(c, like))
            continue;
        to_front(cache, i, c);
        atomic_fetch_add(&c->refs, 1);
        return c;
    }
    return NULL;
}

// With the lock held: what lies beyond the limits, the newest aside, goes to `gone`. Grammars grow while they
// are used, so this is asked at every look-up.
static int trim(lg_constraint_cache *cache, lg_constraint *gone[KEPT + 1])
{
    size_t sum = 0;
    int n = 0, keep = 0;

    while (keep < cache->n && keep < KEPT) {
        sum += bytes_of(cache->kept[keep]);
        if (keep > 0 && sum > cache->max_bytes)
            break;
        keep++;
    }
    for (int i = keep; i < cache->n; i++)
        gone[n++] = cache->kept[i];
    cache->n = keep;
    return n;
}

// With the lock held: the equal one; or c itself, if there is a grammar in it, which is then kept; or NULL.
static lg_constraint *find_or_keep(lg_constraint_cache *cache, lg_constraint *c)
{
    lg_constraint *found = find(cache, c);

    if (found || !c->grammar)
        return found;
    to_front(cache, cache->n, c);
    cache->n++;
    atomic_fetch_add(&c->refs, 1);
    return c;
}

// The constraint to use in place of c, with a reference for the caller; NULL: c must be compiled first.
static lg_constraint *share(lg_constraint_cache *cache, lg_constraint *c)
{
    lg_constraint *gone[KEPT + 1], *use;
    int n;

    if (!cache)
        return c->grammar ? c : NULL;
    (void)pthread_mutex_lock(&cache->lock);
    use = find_or_keep(cache, c);
    n = trim(cache, gone);
    (void)pthread_mutex_unlock(&cache->lock);
    for (int i = 0; i < n; i++)
        lg_constraint_release(gone[i]);
    return use;
}

/* --- compiling --- */

static bool is_limit(lg_grammar_code code)
{
    return code >= LG_GRAMMAR_SCHEMA_TOO_LARGE;
}

// The schema of a tool with nothing left but the names of its arguments; false when it has none to show.
static bool names_only(lg_str schema, lg_buf *out)
{
    lg_json_limits lim = {.max_bytes = 256 << 10, .max_depth = 128, .repair = true};
    const lg_json *root, *names, *needed;
    lg_json_doc *doc;
    bool ok;

    if (lg_json_parse(schema, &lim, &doc, NULL) != LG_OK)
        return false;
    root = lg_json_root(doc);
    names = lg_json_get(root, "properties");
    needed = lg_json_get(root, "required");
    ok = lg_json_is(names, LG_JSON_OBJECT);
    (void)lg_buf_addz(out, "{\"type\":\"object\",\"properties\":{");
    for (size_t i = 0; ok && i < lg_json_len(names); i++) {
        lg_str name;
        (void)lg_json_member(names, i, &name);
        (void)lg_buf_addz(out, i ? "," : "");
        (void)lg_json_quote(name, out);
        (void)lg_buf_addz(out, ":{}");
    }
    (void)lg_buf_addz(out, "},\"required\":[");
    for (size_t i = 0, n = 0; ok && lg_json_is(needed, LG_JSON_ARRAY) && i < lg_json_len(needed); i++) {
        const lg_json *name = lg_json_at(needed, i);
        if (!lg_json_is(name, LG_JSON_STRING) || !lg_json_getn(names, lg_json_str(name)))
            continue;
        (void)lg_buf_addz(out, n++ ? "," : "");
        (void)lg_json_quote(lg_json_str(name), out);
    }
    (void)lg_buf_addz(out, "]}");
    lg_json_free(doc);
    return ok && !out->failed;
}

// A tool whose schema was refused: its arguments become raw text, or anything if that is refused too.
static void soften(lg_grammar_tool *t, lg_buf *raw)
{
    bool first = raw->max == 0;

    if (first)
        lg_buf_init(raw, RAW_MAX);
    if (first && names_only(t->parameters, raw))
        t->parameters = lg_buf_str(raw);
    else
        t->mode = LG_TOOL_ANY;
}

// The tool that a pointer names, or n.
static size_t tool_at(const char *pointer, size_t n)
{
    unsigned long i;
    char *end;

    if (strncmp(pointer, "/tools/", 7) != 0 || pointer[7] < '0' || pointer[7] > '9')
        return n;
    i = strtoul(pointer + 7, &end, 10);
    return *end == '/' && i < n ? i : n;
}

static lg_status compile_calls(const lg_constraint_spec *s, lg_grammar **out, lg_grammar_error *why,
                               lg_err *err)
{
    lg_grammar_tool *tool = calloc(s->n_tool + 1, sizeof *tool);
    lg_buf *raw = calloc(s->n_tool + 1, sizeof *raw);
    lg_err *soft_for = calloc(s->n_tool + 1, sizeof *soft_for);
    lg_err first = {0}, now = {0};
    lg_grammar_error where = {0}, first_where = {0};
    size_t left = 0;
    lg_status st = LG_OK;
    bool soft = s->kind != LG_CONSTRAIN_STRICT_CALLS;

    if (!tool || !raw || !soft_for) {
        st = LG_FAIL(err, LG_E_NOMEM, "no memory for the grammar of tool calls");
        goto out;
    }
    if (s->n_tool)
        memcpy(tool, s->tool, s->n_tool * sizeof *tool);
    for (size_t i = 0; i < s->n_tool; i++)
        left += tool[i].mode != LG_TOOL_OFF;
    for (int tries = 0;; tries++) {
        size_t bad;
        now = (lg_err){0};
        st = lg_grammar_tools(tool, s->n_tool, s->max_calls, s->special,
                              s->kind == LG_CONSTRAIN_CALL_OR_SCHEMA ? s->schema : (lg_str){0}, &s->options,
                              out, &where, &now);
        if (st == LG_OK)
            break;
        if (s->options.hasty && is_limit(where.code)) {
            st = LG_FAIL(err, now.code, "%s", now.msg);
            if (why)
                *why = where;
            break;
        }
        if (first.code == LG_OK) {
            first = now;
            first_where = where;
        }
        bad = tool_at(where.pointer, s->n_tool);
        tries += is_limit(where.code) ? COSTLY - 1 : 0;
        if (!soft || where.code == LG_GRAMMAR_OK || bad == s->n_tool || tool[bad].mode == LG_TOOL_ANY ||
            (left -= raw[bad].max == 0) == 0 || tries >= REPAIRS) {
            st = LG_FAIL(err, first.code, "%s", first.msg);
            if (why)
                *why = first_where;
            break;
        }
        soften(&tool[bad], &raw[bad]);
        soft_for[bad] = now;
    }
    for (size_t i = 0; st == LG_OK && i < s->n_tool; i++)
        if (soft_for[i].code != LG_OK)
            LG_WARN("tools", "schema", "the arguments of %.*s are not checked: %s",
                    (int)(tool[i].name.n < 64 ? tool[i].name.n : 64), tool[i].name.p, soft_for[i].msg);
out:
    for (size_t i = 0; raw && i < s->n_tool; i++)
        lg_buf_free(&raw[i]);
    free(soft_for);
    free(raw);
    free(tool);
    return st;
}

static lg_status compile(const lg_constraint_spec *s, lg_grammar **out, lg_grammar_error *why, lg_err *err)
{
    switch (s->kind) {
    case LG_CONSTRAIN_SCHEMA: return lg_grammar_schema(s->schema, &s->options, out, why, err);
    case LG_CONSTRAIN_JSON_OBJECT: return lg_grammar_json_object(&s->options, out, err);
    case LG_CONSTRAIN_REGEX: return lg_grammar_regex(s->schema, out, why, err);
    case LG_CONSTRAIN_CHOICE: return lg_grammar_choice(s->choice, s->n_choice, out, why, err);
    case LG_CONSTRAIN_CALL:
    case LG_CONSTRAIN_CALL_OR_SCHEMA:
    case LG_CONSTRAIN_STRICT_CALLS: return compile_calls(s, out, why, err);
    }
    return LG_FAIL(err, LG_E_INPUT, "there is no such constraint");
}

// Most specifications compile at once in little memory; what is larger takes turns, so that many of them at
// the same time do not take the memory of many.
static lg_status compile_in_turn(lg_constraint_cache *cache, const lg_constraint_spec *s, lg_grammar **out,
                                 lg_grammar_error *why, lg_err *err)
{
    lg_constraint_spec first = *s;
    lg_grammar_error where = {0};
    lg_status st;

    if (!cache)
        return compile(s, out, why, err);
    first.options.hasty = true;
    st = compile(&first, out, &where, err);
    if (st != LG_OK && is_limit(where.code)) {
        (void)pthread_mutex_lock(&cache->dear);
        st = compile(s, out, &where, err);
        (void)pthread_mutex_unlock(&cache->dear);
    }
    if (why)
        *why = where;
    return st;
}

lg_status lg_constraint_get(lg_constraint_cache *cache, const lg_constraint_spec *spec, lg_constraint **out,
                            lg_grammar_error *why, lg_err *err)
{
    lg_constraint *c = calloc(1, sizeof *c), *use = NULL;
    lg_status st;

    if (why)
        *why = (lg_grammar_error){0};
    if (!c)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for a constraint");
    atomic_init(&c->refs, 1);
    c->kind = spec->kind;
    c->options = spec->options;
    c->fast_forward = spec->fast_forward;
    c->home = cache;
    lg_buf_init(&c->key, KEY_MAX);
    st = make_key(spec, c, err);
    if (st == LG_OK)
        use = share(cache, c);
    if (st == LG_OK && !use) {
        st = compile_in_turn(cache, spec, &c->grammar, why, err);
        if (st == LG_OK) // another thread may have compiled the same meanwhile
            use = share(cache, c);
    }
    if (use != c)
        lg_constraint_release(c);
    if (st == LG_OK)
        *out = use;
    return st;
}

void lg_constraint_release(lg_constraint *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    lg_grammar_destroy(c->grammar);
    lg_buf_free(&c->key);
    free(c);
}

/* --- what a constraint is used for --- */

lg_constraint_kind lg_constraint_kind_of(const lg_constraint *c)
{
    return c->kind;
}

lg_grammar *lg_constraint_grammar(lg_constraint *c)
{
    return c->grammar;
}

void lg_constraint_apply(lg_constraint *c, lg_gen_params *p)
{
    if (!c)
        return;
    p->grammar = c->grammar;
    p->grammar_calls = c->kind == LG_CONSTRAIN_STRICT_CALLS;
    p->fast_forward = c->fast_forward;
}

static lg_status refuse_token(lg_matcher *m, lg_str text, size_t index, size_t offset, lg_err *err)
{
    lg_buf expected, quoted;
    lg_status st;

    lg_buf_init(&expected, 256);
    lg_buf_init(&quoted, 256);
    st = lg_matcher_expected(m, &expected, err);
    (void)lg_json_quote((lg_str){text.p, text.n < 32 ? text.n : 32}, &quoted);
    if (st == LG_OK)
        st = LG_FAIL(err, LG_E_INPUT,
                     "token %.*s of the prefix (number %zu, at byte %zu) cannot stand there; expected %.*s",
                     (int)quoted.n, quoted.p, index, offset, (int)expected.n, expected.p);
    lg_buf_free(&expected);
    lg_buf_free(&quoted);
    return st;
}

// The texts of a choice, which lie in the key; NULL when memory ends. Freed by the caller.
static lg_str *choices_of(const lg_constraint *c)
{
    lg_str *choice = calloc(c->n_choice + 1, sizeof *choice);
    const char *p = c->key.p + c->choice_at;

    for (size_t i = 0; choice && i < c->n_choice; i++) {
        uint64_t n;
        memcpy(&n, p, sizeof n);
        choice[i] = (lg_str){p + sizeof n, (size_t)n};
        p += sizeof n + n;
    }
    return choice;
}

lg_status lg_constraint_check_prefix(const lg_constraint *c, const lg_token_trie *trie, const lg_vocab *v,
                                     const int32_t *ids, size_t n, bool *complete, lg_err *err)
{
    lg_constraint_spec s = {.kind = c->kind == LG_CONSTRAIN_CALL_OR_SCHEMA ? LG_CONSTRAIN_SCHEMA : c->kind,
                            .schema = {c->key.p + c->schema_at, c->schema_n},
                            .options = c->options};
    lg_grammar *g = NULL;
    lg_matcher *m = NULL;
    size_t offset = 0;
    bool ok = true;
    lg_status st;
    lg_str *choice = choices_of(c);

    if (!choice)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for a constraint");
    s.choice = choice;
    s.n_choice = c->n_choice;
    if (s.kind == LG_CONSTRAIN_CALL || s.kind == LG_CONSTRAIN_STRICT_CALLS)
        st = LG_FAIL(err, LG_E_INPUT, "a call of a tool takes no prefix");
    else
        st = compile_in_turn(c->home, &s, &g, NULL, err);
    if (st == LG_OK)
        st = lg_matcher_create(g, trie, LG_PHASE_ANSWER, &m, err);
    for (size_t i = 0; st == LG_OK && i < n; i++) {
        lg_str text = lg_vocab_bytes(v, ids[i]);
        st = lg_matcher_accept(m, ids[i], &ok, err);
        if (st == LG_OK && !ok)
            st = refuse_token(m, text, i, offset, err);
        offset += text.n;
    }
    if (st == LG_OK)
        *complete = lg_matcher_must_stop(m);
    lg_matcher_destroy(m);
    lg_grammar_destroy(g);
    free(choice);
    return st;
}

/* --- format.options --- */

// Which of the words a string is; -1: none.
static int word_of(const lg_json *v, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (lg_json_is(v, LG_JSON_STRING) && lg_str_eqz(lg_json_str(v), words[i]))
            return i;
    return -1;
}

lg_status lg_constraint_options(const lg_json *options, lg_constraint_spec *spec, lg_err *err)
{
    static const struct {
        const char *name, *word[3];
        int n;
    } known[] = {
        {"whitespace", {"natural", "compact", "free"}, 3},
        {"one_of", {"exact", "any"}, 2},
        {"unknown_format", {"error", "ignore"}, 2},
        {"property_order", {"schema", "any"}, 2},
        {"fast_forward", {NULL}, 0},
        {"heal", {NULL}, 0},
    };
    enum { N = sizeof known / sizeof *known, FAST_FORWARD = N - 2, HEAL };
    int chosen[N] = {spec->options.whitespace, spec->options.one_of_any, spec->options.ignore_formats,
                     spec->options.any_order,  spec->fast_forward,       spec->heal};

    if (options && !lg_json_is(options, LG_JSON_NULL) && !lg_json_is(options, LG_JSON_OBJECT))
        return LG_FAIL(err, LG_E_INPUT, "must be an object");
    for (size_t i = 0; options && i < lg_json_len(options); i++) {
        lg_str key;
        const lg_json *v = lg_json_member(options, i, &key);
        bool yes = false;
        int k = 0, w;
        while (k < N && !lg_str_eqz(key, known[k].name))
            k++;
        if (k == N) {
            (void)LG_FAIL(err, LG_E_INPUT, "unknown field");
        } else if (k >= FAST_FORWARD && lg_json_bool(v, &yes)) {
            chosen[k] = yes;
            continue;
        } else if ((w = word_of(v, known[k].word, known[k].n)) >= 0) {
            chosen[k] = w;
            continue;
        } else if (k >= FAST_FORWARD) {
            (void)LG_FAIL(err, LG_E_INPUT, "must be true or false");
        } else {
            (void)LG_FAIL(err, LG_E_INPUT,
                          known[k].n == 3 ? "must be \"%s\", \"%s\" or \"%s\"" : "must be \"%s\" or \"%s\"",
                          known[k].word[0], known[k].word[1], known[k].word[2]);
        }
        (void)lg_err_subject(err, "format.options.%.*s", (int)(key.n < 64 ? key.n : 64), key.p);
        return LG_E_INPUT;
    }
    spec->options = (lg_grammar_options){.whitespace = (lg_whitespace)chosen[0],
                                         .one_of_any = chosen[1] != 0,
                                         .ignore_formats = chosen[2] != 0,
                                         .any_order = chosen[3] != 0};
    spec->fast_forward = chosen[FAST_FORWARD] != 0;
    spec->heal = chosen[HEAL] != 0;
    return LG_OK;
}
