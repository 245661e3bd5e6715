/*
 * unit/test_grammar_large: masks over a vocabulary of real size (100,352 tokens, synthetic): the same with
 * and without slices, and right for a sample of tokens; how much of the tree of tokens is looked at. And
 * replies under schemas made to hurt: bounded work for a mask, bounded memory for a grammar.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

#include "grammar/grammar_int.h"
#include "model/synth_int.h"
#include "support/scratch.h"

static lg_vocab *load(void)
{
    const char *path = scratch_path("vocab.gguf");
    lg_gguf_writer *w;
    lg_gguf *file;
    lg_vocab *v = NULL;

    assert_int_equal(lg_gguf_write_open(path, &w, NULL), LG_OK);
    assert_int_equal(lg_synth_put_vocab(w, NULL), LG_OK);
    assert_int_equal(lg_gguf_write_begin(w, NULL), LG_OK);
    assert_int_equal(lg_gguf_write_finish(w, NULL), LG_OK);
    assert_int_equal(lg_gguf_open(path, &file, NULL), LG_OK);
    assert_int_equal(lg_vocab_load(file, &v, NULL), LG_OK);
    lg_gguf_close(file);
    return v;
}

static void check(lg_matcher *m, const lg_vocab *v, size_t words, uint64_t most_nodes)
{
    uint32_t *served = calloc(words, sizeof *served);
    const uint32_t *mask;
    uint64_t before = lg_matcher_nodes(m);
    int32_t n = lg_vocab_size(v);

    assert_int_equal(lg_matcher_mask(m, &mask, NULL), LG_OK);
    memcpy(served, mask, words * sizeof *served);
    assert_in_range(lg_matcher_nodes(m) - before, 1, most_nodes);
    lg_matcher_caches(m, false, false);
    assert_int_equal(lg_matcher_mask(m, &mask, NULL), LG_OK);
    assert_memory_equal(served, mask, words * sizeof *served);
    lg_matcher_caches(m, true, true);
    for (int32_t id = 0; id < n; id += id < 400 ? 1 : 97) {
        size_t n_ok;
        assert_int_equal(lg_matcher_check(m, &id, 1, &n_ok, NULL), LG_OK);
        assert_int_equal(n_ok, served[id / 32] >> id % 32 & 1);
    }
    free(served);
}

static void test_large(void **state)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
        "\"p\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":9}},\"required\":[\"name\"]}";
    // twice the nodes that were visited when this was written; more means that slices or pruning have gone
    static const struct {
        const char *text;
        uint64_t most_nodes;
    } places[] = {{"{", 2048},
                  {"\"name\": \"some", 54264},
                  {"\", \"n\": 1", 7746},
                  {", \"p\": \"abc", 58952},
                  {"\", \"other ke", 54264}};
    lg_vocab *v = load();
    lg_token_trie *t;
    lg_grammar *g;
    lg_matcher *m;
    int32_t byte[256] = {0};

    (void)state;
    for (int32_t id = 0; id < lg_vocab_size(v); id++)
        if (lg_vocab_bytes(v, id).n == 1 && !lg_vocab_is_added(v, id))
            byte[(unsigned char)lg_vocab_bytes(v, id).p[0]] = id;
    assert_int_equal(lg_token_trie_create(v, &t, NULL), LG_OK);
    assert_int_equal(lg_token_trie_words(t), 3136);
    assert_int_equal(lg_grammar_schema(LG_STR(schema), NULL, &g, NULL, NULL), LG_OK);
    assert_int_equal(lg_matcher_create(g, t, LG_PHASE_ANSWER, &m, NULL), LG_OK);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        for (const char *p = places[i].text; *p; p++) {
            bool ok;
            assert_int_equal(lg_matcher_accept(m, byte[(unsigned char)*p], &ok, NULL), LG_OK);
            assert_true(ok);
        }
        check(m, v, lg_token_trie_words(t), places[i].most_nodes);
    }
    lg_matcher_destroy(m);
    lg_grammar_destroy(g);
    lg_token_trie_destroy(t);
    lg_vocab_destroy(v);
}

static uint64_t seed = 7;

static uint32_t pick(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

// A text of n parts, each printed with its number, between a head and a tail; a comma between them.
static void parts(lg_buf *b, const char *head, const char *part, int n, const char *tail)
{
    assert_true(lg_buf_addz(b, head));
    for (int i = 0; i < n; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, part, i, i, i);
        assert_true(lg_buf_addz(b, i ? "," : "") && lg_buf_addz(b, text));
    }
    assert_true(lg_buf_addz(b, tail));
}

static void make_hostile(int kind, lg_buf *b)
{
    static const char *const plain[] = {
        "{\"type\":\"string\",\"pattern\":\"^(a+)+$\"}",
        "{\"type\":\"string\",\"maxLength\":1000000000}",
        "{\"type\":\"array\",\"minItems\":1000000000}",
        "{\"type\":\"object\",\"patternProperties\":{\".*\":{\"type\":\"integer\"},\"^a\":{\"minimum\":3}}}",
        "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}",
        "{\"type\":\"object\",\"minProperties\":256,\"propertyNames\":{\"pattern\":\"^[a-z]{1,9}$\"}}",
        "{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){9}\",\"maxLength\":60000}",
        "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}},{\"enum\":[0]}]}}",
    };
    enum { PLAIN = sizeof plain / sizeof *plain };

    lg_buf_clear(b);
    if (kind < PLAIN)
        assert_true(lg_buf_addz(b, plain[kind]));
    else if (kind == PLAIN) // one long beginning of many words
        parts(b, "{\"enum\":[", "\"one beginning %05d\"", 10000, "]}");
    else if (kind == PLAIN + 1)
        parts(b, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{",
              "\"name%04d\":{\"type\":\"integer\"}", 2000, "}}");
    else if (kind == PLAIN + 2)
        parts(b, "{\"type\":\"object\",\"properties\":{", "\"%d\":{\"maxLength\":%d}", 2000,
              "},\"minProperties\":3}");
    else if (kind == PLAIN + 3) { // 60 times 60 alternatives
        parts(b, "{\"type\":\"integer\",\"allOf\":[{\"anyOf\":[", "{\"minimum\":%d}", 60, "]},");
        parts(b, "{\"anyOf\":[", "{\"multipleOf\":%d}", 0, "{\"maximum\":1000000}");
        parts(b, ",", "{\"minimum\":1%d}", 59, "]}]}");
    } else if (kind == PLAIN + 4) // many that agree for long
        parts(b, "{\"anyOf\":[",
              "{\"type\":\"array\",\"minItems\":%d,\"items\":{\"type\":\"string\",\"minLength\":%d}}", 60,
              "]}");
    else if (kind == PLAIN + 5)
        parts(
            b, "{\"anyOf\":[",
            "{\"type\":\"object\",\"minProperties\":%d,\"additionalProperties\":{\"type\":\"string\",\"minLength\":%d}}",
            40, "]}");
    else if (kind == PLAIN + 6)
        parts(b, "{\"anyOf\":[", "{\"type\":\"string\",\"pattern\":\"a.{%d}b\"}", 12, "]}");
    else
        assert_true(lg_buf_addz(b, ""));
}

// Random tokens of the masks. How many of the tree's nodes the dearest mask looked at.
static uint64_t follow(lg_grammar *g, const lg_token_trie *t, const lg_vocab *v, int tokens)
{
    lg_matcher *m;
    uint64_t most = 0;
    int32_t n = lg_vocab_size(v);

    assert_int_equal(lg_matcher_create(g, t, LG_PHASE_ANSWER, &m, NULL), LG_OK);
    for (int i = 0; i < tokens && !lg_matcher_must_stop(m); i++) {
        uint64_t before = lg_matcher_nodes(m);
        const uint32_t *mask;
        int32_t id = (int32_t)pick((uint32_t)n);
        bool ok;
        lg_err err = {0};
        if (lg_matcher_mask(m, &mask, &err) != LG_OK) {
            assert_int_equal(err.code, LG_E_LIMIT); // ends this reply alone
            break;
        }
        most = lg_matcher_nodes(m) - before > most ? lg_matcher_nodes(m) - before : most;
        for (int32_t k = 0; k < n && (!(mask[id / 32] >> id % 32 & 1) || lg_vocab_is_eog(v, id)); k++)
            id = (id + 1) % n;
        assert_int_equal(lg_matcher_accept(m, id, &ok, &err), LG_OK);
        assert_true(ok);
    }
    lg_matcher_destroy(m);
    return most;
}

static void test_hostile(void **state)
{
    lg_vocab *v = load();
    lg_token_trie *t;
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 1 << 20);
    assert_int_equal(lg_token_trie_create(v, &t, NULL), LG_OK);
    for (int kind = 0;; kind++) {
        lg_grammar *g = NULL;
        lg_err err = {0};
        make_hostile(kind, &b);
        if (b.n == 0)
            break;
        if (lg_grammar_schema(lg_buf_str(&b), NULL, &g, NULL, &err) != LG_OK)
            fail_msg("%.60s...: %s", lg_buf_z(&b), err.msg);
        for (int i = 0; i < 3; i++)
            assert_true(follow(g, t, v, 40) <= 300000); // the tree has 217,000
        assert_true(lg_grammar_size(g) < (size_t)64 << 20);
        lg_grammar_destroy(g);
    }
    lg_buf_free(&b);
    lg_token_trie_destroy(t);
    lg_vocab_destroy(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large), cmocka_unit_test(test_hostile)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
