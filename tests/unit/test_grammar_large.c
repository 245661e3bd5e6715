/*
 * unit/test_grammar_large: masks over a vocabulary of real size (100,352 tokens, synthetic): the same with
 * and without slices, and right for a sample of tokens; how much of the tree of tokens is looked at.
 */
#include "check.h"

#include <stdlib.h>
#include <unistd.h>

#include "grammar/grammar_int.h"
#include "model/synth_int.h"

static lg_vocab *load(void)
{
    char path[] = "/tmp/lagoon-vocab-XXXXXX";
    int fd = mkstemp(path);
    lg_gguf_writer *w;
    lg_gguf *file;
    lg_vocab *v = NULL;

    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(lg_gguf_write_open(path, &w, NULL), LG_OK);
    assert_int_equal(lg_synth_put_vocab(w, NULL), LG_OK);
    assert_int_equal(lg_gguf_write_begin(w, NULL), LG_OK);
    assert_int_equal(lg_gguf_write_finish(w, NULL), LG_OK);
    assert_int_equal(lg_gguf_open(path, &file, NULL), LG_OK);
    (void)unlink(path);
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
    } places[] = {{"{", 2048}, {"\"name\": \"some", 54264}, {"\", \"n\": 1", 7746}, {", \"p\": \"abc", 58952},
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
