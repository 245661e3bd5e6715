/*
 * unit/test_grammar_fault: memory that ends anywhere between schema and mask is an error, not a crash, and
 * leaves nothing behind. After a failure the same grammar can be used again.
 */
#include "check.h"

#include "fault.h"
#include "grammar/grammar.h"
#include "support/texts.h"

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^x+$\"}},"
    "\"additionalProperties\":{\"type\":\"array\",\"items\":{\"enum\":[1,[2],\"z\"]}}}";

// Feeds a text in single bytes, asking for the mask before each; LG_OK when all went well.
static lg_status follow(lg_matcher *m, const char *text)
{
    for (; *text; text++) {
        const uint32_t *mask;
        int32_t id = 0;
        bool ok;
        while (lg_vocab_is_added(tt_vocab(), id) || lg_vocab_bytes(tt_vocab(), id).n != 1 ||
               lg_vocab_bytes(tt_vocab(), id).p[0] != *text)
            id++;
        LG_TRY(lg_matcher_mask(m, &mask, NULL));
        LG_TRY(lg_matcher_accept(m, id, &ok, NULL));
        assert_true(ok);
    }
    return LG_OK;
}

static void test_making(void **state)
{
    bool done = false;

    (void)state;
    (void)tt_vocab();
    for (long n = 1; !done; n++) {
        lg_token_trie *t = NULL;
        lg_grammar *g = NULL;
        lg_matcher *m = NULL;
        fault_arm(FAULT_ALLOC, n);
        lg_status st = lg_token_trie_create(tt_vocab(), &t, NULL);
        if (st == LG_OK)
            st = lg_grammar_schema(lg_str_of(schema), NULL, &g, NULL, NULL);
        if (st == LG_OK)
            st = lg_matcher_create(g, t, LG_PHASE_ANSWER, &m, NULL);
        done = fault_disarm() == 0;
        assert_int_equal(st == LG_OK, done);
        lg_matcher_destroy(m);
        lg_grammar_destroy(g);
        lg_token_trie_destroy(t);
    }
}

static void test_following(void **state)
{
    static const char text[] = "{\"a\": \"xxx\", \"other\": [1, [2], \"z\"], \"third\": []}";
    lg_token_trie *t;
    bool done = false;

    (void)state;
    assert_int_equal(lg_token_trie_create(tt_vocab(), &t, NULL), LG_OK);
    for (long n = 1; !done; n++) {
        lg_grammar *g;
        lg_matcher *m;
        lg_status st;
        assert_int_equal(lg_grammar_schema(lg_str_of(schema), NULL, &g, NULL, NULL), LG_OK);
        assert_int_equal(lg_matcher_create(g, t, LG_PHASE_ANSWER, &m, NULL), LG_OK);
        fault_arm(FAULT_ALLOC, n);
        st = follow(m, text);
        done = fault_disarm() == 0;
        assert_true(st == LG_OK || (!done && st == LG_E_NOMEM));
        lg_matcher_rollback(m, 0);
        assert_int_equal(follow(m, text), LG_OK);
        assert_true(lg_matcher_must_stop(m));
        lg_matcher_destroy(m);
        lg_grammar_destroy(g);
    }
    lg_token_trie_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_making), cmocka_unit_test(test_following)};

    if (!LG_HAVE_FAULT)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
