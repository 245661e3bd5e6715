/*
 * unit/test_grammar: constrained decoding against slow and simple judges: masks against trying every token,
 * finished replies against the value evaluator, rollback against replay; and phases, limits and hostile
 * schemas.
 *
 * The vocabulary is made here: the bytes, and pieces that cross every boundary a document has.
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/grammar_int.h"
#include "support/texts.h"
#include "support/vocab_maker.h"

enum { WALK_TOKENS = 300, BRUTE_STATES = 14 };

static const char *const added[] = {"\xe3\x80\x88|EOS|\xe3\x80\x89",
                                    "<assistant>",
                                    "</assistant>",
                                    "<think>",
                                    "</think>",
                                    "<tool_call>",
                                    "</tool_call>",
                                    NULL};
static const char *const pieces[] = {"\",",
                                     "\":",
                                     "\": ",
                                     "{\"",
                                     "\"}",
                                     "\"]",
                                     "\",\"",
                                     "\": \"",
                                     "\":\"",
                                     "[{\"",
                                     "}]",
                                     "},",
                                     "},{\"",
                                     "[]",
                                     "{}",
                                     "],",
                                     "{\"a",
                                     "{\"a\":",
                                     "a\":1",
                                     "a\":1,\"",
                                     "\"a\":1,\"a\":1",
                                     ",\"b\":2}",
                                     "\"id\":",
                                     "true",
                                     "false",
                                     "null",
                                     "tr",
                                     "nul",
                                     "12",
                                     "123",
                                     "0.5",
                                     "1e",
                                     "e+",
                                     "-1",
                                     "00",
                                     "10",
                                     "99",
                                     ".5",
                                     "5,",
                                     "7}",
                                     "1]",
                                     "\n",
                                     "\n  ",
                                     "\n    ",
                                     "  ",
                                     " ",
                                     "\t",
                                     "\n\t",
                                     "\\n",
                                     "\\\"",
                                     "\\u",
                                     "\\ud",
                                     "\\ud83d",
                                     "\\u00",
                                     "de00",
                                     "\\\\",
                                     "\\/",
                                     "ab",
                                     "abc",
                                     "the",
                                     " the",
                                     "hello",
                                     "\xc3\xa9",
                                     "\xf0\x9f\x90",
                                     "\xa2",
                                     "\xe2\x80",
                                     "\xd0\xba",
                                     "x-",
                                     "_id",
                                     "2024-",
                                     "02-29",
                                     "-01-",
                                     "T12:",
                                     "00Z",
                                     "00:00",
                                     "192.",
                                     "168.",
                                     "::",
                                     "@",
                                     ".co",
                                     "http",
                                     "://",
                                     "foo",
                                     "red",
                                     "green",
                                     "kind",
                                     "</",
                                     "</arg_value>",
                                     "<arg_key>",
                                     "</arg_key><arg_value>",
                                     "</think>x",
                                     "a long run of plain text",
                                     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                     "\"\"",
                                     "\"\",\"",
                                     "\",\"\":",
                                     "}}",
                                     "]]",
                                     "}]}",
                                     NULL};

typedef struct fixture {
    lg_vocab *vocab;
    lg_token_trie *trie;
    int32_t eos, n;
    int32_t byte[256];
} fixture;

static fixture fix;
static uint64_t seed = 12345;

static uint32_t pick(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static int set_up(void **state)
{
    vm_vocab v = {.model = "gpt2", .pre = "laguna", .added = added, .tokens = pieces};

    (void)state;
    assert_int_equal(vm_load(&v, &fix.vocab, NULL), LG_OK);
    assert_int_equal(lg_token_trie_create(fix.vocab, &fix.trie, NULL), LG_OK);
    fix.n = lg_vocab_size(fix.vocab);
    fix.eos = lg_vocab_special(fix.vocab)->eos;
    assert_true(fix.eos >= 0);
    for (int32_t i = 0; i < fix.n; i++)
        if (lg_vocab_bytes(fix.vocab, i).n == 1 && !lg_vocab_is_added(fix.vocab, i))
            fix.byte[(unsigned char)lg_vocab_bytes(fix.vocab, i).p[0]] = i;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lg_token_trie_destroy(fix.trie);
    lg_vocab_destroy(fix.vocab);
    return 0;
}

static lg_grammar *compile(const char *schema)
{
    lg_grammar *g = NULL;
    lg_err err = {0};

    if (lg_grammar_schema(lg_str_of(schema), NULL, &g, NULL, &err) != LG_OK)
        fail_msg("%s: %s", schema, err.msg);
    return g;
}

static lg_matcher *start(lg_grammar *g, lg_phase phase)
{
    lg_matcher *m;

    assert_int_equal(lg_matcher_create(g, fix.trie, phase, &m, NULL), LG_OK);
    return m;
}

static const uint32_t *mask_of(lg_matcher *m)
{
    const uint32_t *mask;

    assert_int_equal(lg_matcher_mask(m, &mask, NULL), LG_OK);
    return mask;
}

static bool allowed(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

static bool accept(lg_matcher *m, int32_t id)
{
    bool ok;

    assert_int_equal(lg_matcher_accept(m, id, &ok, NULL), LG_OK);
    return ok;
}

static bool feed(lg_matcher *m, const char *text)
{
    for (; *text; text++)
        if (!accept(m, fix.byte[(unsigned char)*text]))
            return false;
    return true;
}

// The mask of this state: as served, without slices, without cache, and by trying every token.
static void check_mask(lg_matcher *m, const char *schema)
{
    size_t words = lg_token_trie_words(fix.trie);
    uint32_t *served = calloc(words, sizeof *served);

    memcpy(served, mask_of(m), words * sizeof *served);
    assert_memory_equal(served, mask_of(m), words * sizeof *served);
    lg_matcher_caches(m, true, false);
    assert_memory_equal(served, mask_of(m), words * sizeof *served);
    lg_matcher_caches(m, false, false);
    assert_memory_equal(served, mask_of(m), words * sizeof *served);
    lg_matcher_caches(m, true, true);
    for (int32_t id = 0; id < fix.n; id++) {
        size_t n_ok;
        assert_int_equal(lg_matcher_check(m, &id, 1, &n_ok, NULL), LG_OK);
        if (allowed(served, id) != (n_ok == 1))
            fail_msg("%s: token %d is %s the mask", schema, (int)id, n_ok ? "missing in" : "wrongly in");
    }
    free(served);
}

// One reply of random tokens; past a while those that close something are preferred. True when it was
// finished.
static bool walk(lg_grammar *g, const char *schema, bool brute)
{
    lg_matcher *m = start(g, LG_PHASE_ANSWER);
    lg_buf text;
    lg_err err = {0};
    bool done = false, holds = false;

    lg_buf_init(&text, 1 << 20);
    for (int i = 0; i < WALK_TOKENS && !done; i++) {
        const uint32_t *mask;
        int32_t choice = -1, n = 0;
        if (lg_matcher_must_stop(m)) {
            done = true;
            break;
        }
        if (brute && i < BRUTE_STATES)
            check_mask(m, schema);
        mask = mask_of(m);
        for (int32_t id = 0; id < fix.n; id++) {
            lg_str b = lg_vocab_bytes(fix.vocab, id);
            bool closes = b.n && (id == fix.eos || strchr("\"}]", b.p[0]));
            if (!allowed(mask, id))
                continue;
            n += i > 25 && closes ? 200 : 1; // reservoir: each with its weight
            if (pick((uint32_t)n) < (i > 25 && closes ? 200u : 1u))
                choice = id;
        }
        if (choice < 0)
            fail_msg("%s: nothing may follow %.*s", schema, (int)text.n, text.p);
        assert_true(accept(m, choice));
        if (lg_vocab_is_added(fix.vocab, choice))
            done = true;
        else
            assert_true(lg_buf_adds(&text, lg_vocab_bytes(fix.vocab, choice)));
    }
    // base/json does not read NUL in a name
    if (done && lg_str_find(lg_buf_str(&text), LG_STR("\\u0000"), 0) == SIZE_MAX) {
        if (lg_schema_evaluate(lg_str_of(schema), lg_buf_str(&text), &holds, &err) != LG_OK || !holds)
            fail_msg("%s accepts %.*s (%s)", schema, (int)text.n, text.p, err.msg);
    }
    lg_buf_free(&text);
    lg_matcher_destroy(m);
    return done;
}

typedef struct walked {
    int finished, begun;
} walked;

static void walk_case(void *ctx, const lg_json *c)
{
    walked *w = ctx;
    lg_grammar *g;
    lg_buf text;

    if (lg_json_get(c, "error"))
        return;
    lg_buf_init(&text, 1 << 20);
    assert_true(lg_json_dump(lg_json_get(c, "schema"), &text));
    if (lg_grammar_schema(lg_buf_str(&text), NULL, &g, NULL, NULL) == LG_OK) {
        for (int i = 0; i < 8; i++) {
            w->begun++;
            w->finished += walk(g, lg_buf_z(&text), i == 0);
        }
        lg_grammar_destroy(g);
    }
    lg_buf_free(&text);
}

static void test_walks(void **state)
{
    walked w = {0};

    (void)state;
    assert_true(tt_each("structured-cases.jsonl", "", walk_case, &w) > 130);
    assert_true(w.begun > 700);
    assert_true(w.finished * 10 > w.begun * 9);
}

// Schemas beyond the recorded cases, each walked with masks checked.
static void test_more_walks(void **state)
{
    static const char *const schemas[] = {
        "{}",
        "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]$\"},\"minProperties\":2}",
        "{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"ab\",\"abc\"]},\"minProperties\":2,\"additionalProperties\":"
        "{\"type\":\"null\"}}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"},\"b\":{\"type\":\"integer\"}},\"minProperties\":1,"
        "\"additionalProperties\":false}",
        "{\"type\":\"object\",\"patternProperties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"minimum\":5}},\"minProperties\":2,"
        "\"maxProperties\":3}",
        "{\"type\":\"string\",\"pattern\":\"^(ab|a)*$\",\"minLength\":3,\"maxLength\":5}",
        "{\"type\":\"string\",\"pattern\":\"[^\\\\x00-\\\\x1f]\\\\x01\",\"maxLength\":4}",
        "{\"type\":\"string\",\"pattern\":\"^(..)+$\",\"maxLength\":7,\"minLength\":3}",
        "{\"type\":\"number\",\"multipleOf\":0.3,\"exclusiveMinimum\":-1,\"maximum\":2}",
        "{\"type\":\"number\",\"exclusiveMinimum\":0.1,\"exclusiveMaximum\":0.2}",
        "{\"anyOf\":[{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}},{\"type\":\"array\",\"items\":{\"type\":\"integer\"},"
        "\"minItems\":2}]}",
        "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"$ref\":\"#\"},{\"enum\":[1,\"x\"]}]},\"minItems\":1,\"maxItems\":3}",
        "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}]}",
        "{\"oneOf\":[{\"type\":\"integer\",\"minimum\":0},{\"type\":\"string\",\"maxLength\":3},{\"type\":\"array\",\"maxItems\":0}]}",
        "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"],\"maxProperties\":2}",
        "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"integer\"}]}",
        "{\"type\":\"string\",\"maxLength\":20}",
        "{\"type\":\"string\",\"maxLength\":3}",
        "{\"type\":\"string\",\"format\":\"email\",\"maxLength\":12}",
    };
    static const lg_whitespace spaces[] = {LG_WS_NATURAL, LG_WS_COMPACT, LG_WS_FREE};

    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        for (int s = 0; s < 3; s++) {
            lg_grammar *g;
            lg_grammar_options opt = {.whitespace = spaces[s]};
            lg_err err = {0};
            if (lg_grammar_schema(lg_str_of(schemas[i]), &opt, &g, NULL, &err) != LG_OK)
                fail_msg("%s: %s", schemas[i], err.msg);
            for (int k = 0; k < 5; k++)
                (void)walk(g, schemas[i], k == 0);
            lg_grammar_destroy(g);
        }
}

static void test_rollback(void **state)
{
    lg_grammar *g =
        compile("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"array\",\"items\":{}}}");
    lg_matcher *m = start(g, LG_PHASE_ANSWER), *fresh;
    size_t words = lg_token_trie_words(fix.trie);
    int32_t history[64];
    size_t n = 0;

    (void)state;
    for (int i = 0; i < 300; i++) {
        const uint32_t *mask = mask_of(m);
        int32_t id = (int32_t)pick((uint32_t)fix.n);
        if (n == 64 || lg_matcher_must_stop(m) || pick(5) == 0) {
            n = pick((uint32_t)n + 1);
            lg_matcher_rollback(m, n);
            continue;
        }
        while (!allowed(mask, id) || id == fix.eos)
            id = (id + 1) % fix.n;
        assert_true(accept(m, id));
        history[n++] = id;
    }
    fresh = start(g, LG_PHASE_ANSWER);
    for (size_t i = 0; i < n; i++)
        assert_true(accept(fresh, history[i]));
    uint32_t *copy = calloc(words, sizeof *copy);
    memcpy(copy, mask_of(m), words * sizeof *copy);
    assert_memory_equal(copy, mask_of(fresh), words * sizeof *copy);
    // the same after the grammar has forgotten everything
    lg_grammar_limit(g, 1);
    assert_memory_equal(copy, mask_of(m), words * sizeof *copy);
    free(copy);
    lg_matcher_destroy(fresh);
    lg_matcher_destroy(m);
    lg_grammar_destroy(g);
}

static void test_phases(void **state)
{
    lg_grammar *g = compile("{\"type\":\"array\",\"maxItems\":1}");
    const lg_special *sp = lg_vocab_special(fix.vocab);
    lg_matcher *m = start(g, LG_PHASE_THINK);
    int32_t block[4] = {fix.byte['x'], sp->end_think, fix.byte['['], fix.byte['x']};
    size_t n_ok;

    (void)state;
    assert_false(allowed(mask_of(m), fix.eos));
    assert_false(allowed(mask_of(m), sp->eot));
    assert_false(allowed(mask_of(m), sp->tool_call));
    assert_true(allowed(mask_of(m), sp->end_think));
    assert_int_equal(lg_matcher_check(m, block, 4, &n_ok, NULL), LG_OK);
    assert_int_equal(n_ok, 3); // reasoning ends inside the block, and the grammar judges what follows
    assert_int_equal(lg_matcher_phase(m), LG_PHASE_THINK);
    for (int i = 0; i < 3; i++)
        assert_true(accept(m, block[i]));
    assert_false(accept(m, block[3]));
    assert_false(accept(m, sp->end_think));
    assert_false(accept(m, fix.eos));
    assert_int_equal(lg_matcher_n(m), 3);
    assert_true(accept(m, fix.byte[']']));
    assert_true(lg_matcher_must_stop(m));
    assert_false(accept(m, fix.byte[']']));
    assert_true(allowed(mask_of(m), fix.eos) && allowed(mask_of(m), sp->eot));
    assert_true(accept(m, fix.eos) && accept(m, fix.eos));
    lg_matcher_destroy(m);
    lg_grammar_destroy(g);

    g = compile("{\"type\":\"integer\"}"); // may go on: the end is one choice among others
    m = start(g, LG_PHASE_ANSWER);
    assert_true(feed(m, "12"));
    assert_false(lg_matcher_must_stop(m));
    assert_true(allowed(mask_of(m), fix.eos) && allowed(mask_of(m), fix.byte['3']));
    assert_false(accept(m, -1) || accept(m, fix.n) || accept(m, sp->think));
    assert_true(accept(m, sp->eot));
    assert_true(lg_matcher_must_stop(m));
    lg_matcher_destroy(m);
    lg_grammar_destroy(g);
}

static void test_depth(void **state)
{
    lg_grammar *g =
        compile("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1,\"maxItems\":1,\"$defs\":{},"
                "\"anyOf\":[{},{\"minItems\":1}],\"nullable\":true}");
    lg_matcher *m = start(g, LG_PHASE_ANSWER);
    int depth = 0;

    (void)state;
    while (accept(m, fix.byte['[']))
        depth++;
    assert_int_equal(depth, 255); // and null is the 256th value
    assert_true(feed(m, "null"));
    while (depth-- > 0)
        assert_true(accept(m, fix.byte[']']));
    assert_true(lg_matcher_must_stop(m));
    lg_matcher_destroy(m);
    lg_grammar_destroy(g);
}

// With the small recorded vocabulary, whose merges are known: forced text, as tokens, up to where a choice
// begins.
static void test_forced(void **state)
{
    lg_grammar *g =
        compile("{\"type\":\"object\",\"properties\":{\"the name\":{\"const\":\"the other\"}},\"required\":"
                "[\"the name\"],\"additionalProperties\":false}");
    lg_token_trie *trie;
    lg_matcher *m;
    lg_ids out = {0};
    lg_buf text;
    bool ok;

    (void)state;
    assert_int_equal(lg_token_trie_create(tt_vocab(), &trie, NULL), LG_OK);
    assert_int_equal(lg_matcher_create(g, trie, LG_PHASE_ANSWER, &m, NULL), LG_OK);
    lg_buf_init(&text, 1000);
    for (int round = 0; round < 40 && !lg_matcher_must_stop(m); round++) {
        const uint32_t *mask;
        int32_t id = -1;
        out.n = 0;
        assert_int_equal(lg_matcher_forced(m, tt_bpe(), &out, NULL), LG_OK);
        for (size_t i = 0; i < out.n; i++) { // what is forced is legal
            assert_int_equal(lg_matcher_accept(m, out.p[i], &ok, NULL), LG_OK);
            assert_true(ok);
            assert_true(lg_buf_adds(&text, lg_vocab_bytes(tt_vocab(), out.p[i])));
        }
        if (lg_matcher_must_stop(m))
            break;
        assert_int_equal(lg_matcher_mask(m, &mask, NULL), LG_OK);
        for (int32_t k = 0; k < lg_vocab_size(tt_vocab()) && id < 0;
             k++) // else the first that is allowed, but no blank
            if (allowed(mask, k) && lg_vocab_bytes(tt_vocab(), k).p[0] > ' ')
                id = k;
        assert_true(id >= 0);
        assert_int_equal(lg_matcher_accept(m, id, &ok, NULL), LG_OK);
        assert_true(ok && lg_buf_adds(&text, lg_vocab_bytes(tt_vocab(), id)));
    }
    assert_true(lg_matcher_must_stop(m));
    assert_string_equal(lg_buf_z(&text), "{\"the name\":\"the other\"}");
    lg_buf_free(&text);
    lg_ids_free(&out);
    lg_matcher_destroy(m);

    // one literal: nothing can go beyond its end, so all of it is forced
    lg_grammar_destroy(g);
    g = compile("{\"enum\":[\"xyzzy\"]}");
    assert_int_equal(lg_matcher_create(g, trie, LG_PHASE_ANSWER, &m, NULL), LG_OK);
    assert_int_equal(lg_matcher_forced(m, tt_bpe(), &out, NULL), LG_OK);
    assert_true(out.n >= 2);
    for (size_t i = 0; i < out.n; i++)
        assert_int_equal(lg_matcher_accept(m, out.p[i], &ok, NULL), LG_OK);
    assert_true(lg_matcher_must_stop(m));
    lg_ids_free(&out);
    lg_matcher_destroy(m);
    lg_grammar_destroy(g);
    lg_token_trie_destroy(trie);
}

// The table of masks: a configuration met again is not walked again.
static void test_reuse(void **state)
{
    lg_grammar *g = compile(
        "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}},"
        "\"additionalProperties\":false,\"required\":[\"a\"]}}");
    lg_matcher *m = start(g, LG_PHASE_ANSWER);
    uint64_t nodes = 0, slow = 0;

    (void)state;
    assert_true(feed(m, "["));
    for (int i = 0; i < 50; i++) {
        static const char item[] = "{\"a\":\"xy\"},";
        for (const char *p = item; *p; p++) {
            (void)mask_of(m);
            assert_true(accept(m, fix.byte[(unsigned char)*p]));
        }
        if (i == 2) {
            nodes = lg_matcher_nodes(m);
            slow = lg_auto_slow_steps(g->automaton);
        }
    }
    assert_int_equal(nodes, lg_matcher_nodes(m));
    assert_int_equal(slow, lg_auto_slow_steps(g->automaton));
    assert_true(lg_auto_bytes(g->automaton) < 200000);
    lg_matcher_destroy(m);
    lg_grammar_destroy(g);
}

// With the order free every order is accepted, a name twice is not, and what is required must come.
static void test_any_order(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        {"{\"a\":1,\"b\":2,\"c\":3}", true},
        {"{\"c\":3,\"b\":2,\"a\":1}", true},
        {"{\"b\":2,\"x\":0,\"a\":1}", true},
        {"{\"x\":0,\"b\":2}", true},
        {"{\"b\":2}", true},
        {"{\"a\":1,\"c\":3}", false},
        {"{\"b\":2,\"a\":1,\"b\":2}", false},
        {"{\"x\":0,\"b\":2,\"x\":0}", false},
        {"{\"a\":1,\"x\":0,\"c\":3", false}, // three of at most three, and b is still to come
        {"{\"b\":2,\"a\":1,\"c\":3,\"x\":0}", false},
        {"{}", false},
    };
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},"
        "\"c\":{\"const\":3}},\"required\":[\"b\"],\"maxProperties\":3,"
        "\"additionalProperties\":{\"const\":0}}";
    lg_grammar_options opt = {.any_order = true};
    lg_grammar *g;

    (void)state;
    assert_int_equal(lg_grammar_schema(LG_STR(schema), &opt, &g, NULL, NULL), LG_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lg_matcher *m = start(g, LG_PHASE_ANSWER);
        bool fed = feed(m, cases[i].text);
        if ((fed && lg_matcher_must_stop(m)) != cases[i].good)
            fail_msg("%s", cases[i].text);
        lg_matcher_destroy(m);
    }
    for (int i = 0; i < 60; i++)
        (void)walk(g, schema, i < 4);
    lg_grammar_destroy(g);
}

// May the token come where the last `owed` bytes of `text` must be spelled? `plain` stands at the same place
// and owes nothing.
static bool spells(lg_matcher *plain, int32_t id, const char *owed)
{
    lg_str b = lg_vocab_bytes(fix.vocab, id);
    size_t n_ok, n = strlen(owed);

    assert_int_equal(lg_matcher_check(plain, &id, 1, &n_ok, NULL), LG_OK);
    return n_ok == 1 && (n == 0 || (!lg_vocab_is_added(fix.vocab, id) && b.n > 0 &&
                                    memcmp(b.p, owed, b.n < n ? b.n : n) == 0));
}

// One reply whose beginning was taken back: each mask against every token, up to some tokens behind it.
static void heal_once(const char *schema, const char *before, const char *text, bool forgetful)
{
    lg_grammar *g = compile(schema);
    lg_matcher *m = start(g, LG_PHASE_ANSWER), *plain = start(g, LG_PHASE_ANSWER);
    size_t words = lg_token_trie_words(fix.trie), begin = strlen(before), owed = strlen(text), n;
    uint32_t *served = calloc(words, sizeof *served);

    assert_true(feed(m, before) && feed(plain, before));
    assert_int_equal(lg_matcher_heal(m, LG_STR("\x01"), NULL), LG_E_INPUT);
    assert_int_equal(lg_matcher_heal(m, lg_str_of(text), NULL), LG_OK);
    for (int i = 0; i < 6 && !lg_matcher_must_stop(m); i++) {
        int32_t choice = -1, ways = 0;
        if (forgetful)
            lg_grammar_clear(g);
        memcpy(served, mask_of(m), words * sizeof *served);
        for (int32_t id = 0; id < fix.n; id++) {
            bool may = spells(plain, id, text + strlen(text) - owed);
            lg_err err = {0};
            assert_int_equal(lg_matcher_check(m, &id, 1, &n, &err), LG_OK);
            if (may != (n == 1) || may != allowed(served, id))
                fail_msg("%s: token %d behind %s, %zu bytes owed", schema, (int)id, before, owed);
            if (may && pick((uint32_t)++ways) == 0)
                choice = id;
        }
        assert_true(choice >= 0 && accept(m, choice) && accept(plain, choice));
        n = lg_vocab_bytes(fix.vocab, choice).n;
        owed -= n < owed ? n : owed;
    }
    lg_matcher_rollback(m, begin); // what was owed there is owed again
    lg_matcher_rollback(plain, begin);
    memcpy(served, mask_of(m), words * sizeof *served);
    for (int32_t id = 0; id < fix.n; id++)
        assert_true(allowed(served, id) == spells(plain, id, text));
    free(served);
    lg_matcher_destroy(plain);
    lg_matcher_destroy(m);
    lg_grammar_destroy(g);
}

static void test_heal(void **state)
{
    static const struct {
        const char *schema, *before, *text;
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}", "",
         "{\"a"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}", "{\"a\"",
         ":"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{\"a\":1", "2"},
        {"{\"type\":\"object\"}", "{\"a\":1,\"", "a"}, // a name that is taken
        {"{\"type\":\"object\"}", "{\"ab\":1,\"a", "b"},
        {"{\"type\":\"string\"}", "\"x", "\xf0\x9f\x90\xa2"},
        {"{\"type\":\"string\",\"pattern\":\"^a{2,9}$\"}", "\"", "aa"},
        {"{\"enum\":[\"hello\",\"help\"]}", "\"", "hel"},
        {"{\"type\":\"integer\"}", "", "12"},
        {"{\"type\":\"string\"}", "\"a", " the"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 20; k++)
            heal_once(cases[i].schema, cases[i].before, cases[i].text, k % 2 == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order), cmocka_unit_test(test_walks),  cmocka_unit_test(test_more_walks),
        cmocka_unit_test(test_rollback),  cmocka_unit_test(test_phases), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_reuse),     cmocka_unit_test(test_forced), cmocka_unit_test(test_heal),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
