/*
 * unit/test_bpe: text/bpe and text/merge against a plain implementation, on short and long words, with
 * vocabularies whose rules are in an unnatural order, name texts that are no tokens, or repeat; added tokens;
 * threads; the streaming detokenizer in every cut.
 */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>

#include "fault.h"
#include "support/texts.h"
#include "support/vocab_maker.h"
#include "text/merge.h"

/* --- the plain implementation --- */

// Ids of one word: the lowest rule first, the leftmost pair on ties, looked up by text.
static void plain_merge(const lg_vocab *v, lg_str word, lg_ids *out)
{
    lg_str *part = malloc((word.n + 1) * sizeof *part);
    size_t n = word.n;

    for (size_t i = 0; i < n; i++)
        part[i] = (lg_str){word.p + i, 1};
    for (;;) {
        size_t best = n, best_rank = lg_vocab_n_merges(v);
        for (size_t i = 0; i + 1 < n; i++) {
            for (size_t rank = 0; rank < best_rank; rank++) {
                lg_str l, r;
                lg_vocab_merge(v, rank, &l, &r);
                if (lg_str_eq(l, part[i]) && lg_str_eq(r, part[i + 1])) {
                    best = i;
                    best_rank = rank;
                }
            }
        }
        if (best == n)
            break;
        part[best].n += part[best + 1].n;
        memmove(&part[best + 1], &part[best + 2], (n - best - 2) * sizeof *part);
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t id = -1;
        for (int32_t k = 0; k < lg_vocab_size(v) && id < 0; k++)
            if (!lg_vocab_is_added(v, k) && lg_str_eq(lg_vocab_bytes(v, k), part[i]))
                id = k;
        if (id >= 0) {
            assert_int_equal(lg_ids_add(out, id, NULL), LG_OK);
            continue;
        }
        for (size_t b = 0; b < part[i].n; b++) // no token: its bytes
            for (int32_t k = 0; k < lg_vocab_size(v); k++)
                if (!lg_vocab_is_added(v, k) && lg_str_eq(lg_vocab_bytes(v, k), (lg_str){part[i].p + b, 1})) {
                    assert_int_equal(lg_ids_add(out, k, NULL), LG_OK);
                    break;
                }
    }
    free(part);
}

static void check_word(const lg_vocab *v, const lg_merge_table *t, lg_merge_room *room, lg_str word)
{
    int32_t *got = malloc((word.n + 1) * sizeof *got);
    lg_ids want = {0};
    lg_err err = {0};
    size_t n = 0;
    int32_t whole = lg_merge_whole(t, word, lg_merge_hash(word));

    plain_merge(v, word, &want);
    assert_int_equal(lg_merge(t, room, word, got, &n, &err), LG_OK);
    if (n != want.n || memcmp(got, want.p, n * sizeof *got) != 0) {
        print_error("word of %zu bytes: %.*s\n", word.n, (int)word.n, word.p);
        fail();
    }
    if (whole >= 0) { // the short cut may say nothing else than merging
        assert_int_equal(want.n, 1);
        assert_int_equal(want.p[0], whole);
    }
    lg_ids_free(&want);
    free(got);
}

static void random_words(const lg_vocab *v, const char *letters, size_t max, int rounds, unsigned seed)
{
    lg_merge_table *t = NULL;
    lg_merge_room room = {0};
    lg_err err = {0};
    char word[512];

    assert_int_equal(lg_merge_table_create(v, &t, &err), LG_OK);
    for (int round = 0; round < rounds; round++) {
        size_t n = 1 + (size_t)rand_r(&seed) % max;
        for (size_t i = 0; i < n; i++)
            word[i] = letters[(size_t)rand_r(&seed) % strlen(letters)];
        check_word(v, t, &room, (lg_str){word, n});
    }
    lg_merge_room_free(&room);
    lg_merge_table_destroy(t);
}

static void test_recorded_vocab(void **state)
{
    (void)state;
    random_words(tt_vocab(), "theinrdo w", 40, 200, 1);
    random_words(tt_vocab(), "theinrdo w", 200, 40, 2);
    random_words(tt_vocab(), "  \n\r", 300, 20, 3);
    random_words(tt_vocab(), "\xE3\x81\x82\xF0\x9F\x91\x8D\xE2\x80\x8D", 200, 20, 4);
}

/* Rules over a, b, c in an order no training gives: products before their parts, overlaps, repeats. */
static const char *const odd_tokens[] = {"ab", "bc", "aa", "aaa", "aab", "abab", "cc", "abc", NULL};
static const vm_merge odd_merges[] = {
    {"ab", "ab"}, {"aa", "a"}, {"b", "c"}, {"aa", "b"}, {"a", "b"}, {"a", "a"}, {"b", "c"}, {"c", "c"},
    {"cc", "cc"}, {"a", "bc"}, {"cccc", "a"}, {"a", "b"}, {"xy", "z"}, {"x", "y"}, {"bc", "a"},
};

static void test_odd_rules(void **state)
{
    vm_vocab in = {.model = "gpt2", .pre = "laguna", .tokens = odd_tokens, .merges = odd_merges,
                   .n_merges = sizeof odd_merges / sizeof odd_merges[0]};
    lg_vocab *v = NULL;
    lg_err err = {0};

    (void)state;
    assert_int_equal(vm_load(&in, &v, &err), LG_OK);
    random_words(v, "abc", 12, 3000, 5);
    random_words(v, "aab", 64, 400, 6);
    random_words(v, "abcxyz", 65, 400, 7);
    random_words(v, "abc", 400, 200, 8);
    random_words(v, "a", 400, 40, 9);
    random_words(v, "cca", 500, 40, 10);
    lg_vocab_destroy(v);
}

static void test_no_byte(void **state)
{
    static const char *const few[] = {"a", "b", NULL};
    vm_vocab in = {.model = "gpt2", .pre = "laguna", .no_bytes = true, .tokens = few};
    lg_vocab *v = NULL;
    lg_bpe *b = NULL;
    lg_err err = {0};

    (void)state;
    assert_int_equal(vm_load(&in, &v, &err), LG_OK);
    assert_int_equal(lg_bpe_create(v, LG_CRLF_HF, &b, &err), LG_E_INPUT);
    assert_string_equal(err.msg, "tokenizer.ggml.tokens has no token for byte 0x00");
    assert_null(b);
    lg_vocab_destroy(v);
}

/* --- added tokens --- */

static void test_added(void **state)
{
    static const char *const names[] = {"<a>", "<a><a>", "<", "b>", "<a>b", NULL};
    static const struct {
        const char *text;
        int32_t want[8];
        size_t n;
    } cases[] = {
        {"<a>", {0}, 1},          {"<a><a>", {1}, 1},    {"<a><a><a>", {1, 0}, 2}, {"<a>b>", {4, 5 + '>'}, 2},
        {"<<a>", {2, 0}, 2},      {"ab>", {5 + 'a', 3}, 2}, {"x", {5 + 'x'}, 1},   {"", {0}, 0},
        {"<a", {2, 5 + 'a'}, 2},
    };
    vm_vocab in = {.model = "gpt2", .pre = "laguna", .added = names};
    lg_vocab *v = NULL;
    lg_bpe *b = NULL;
    lg_err err = {0};

    (void)state;
    assert_int_equal(vm_load(&in, &v, &err), LG_OK);
    assert_int_equal(lg_bpe_create(v, LG_CRLF_HF, &b, &err), LG_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lg_ids ids = {0};
        assert_int_equal(lg_bpe_encode(b, lg_str_of(cases[i].text), true, &ids, &err), LG_OK);
        assert_int_equal(ids.n, cases[i].n);
        if (ids.n > 0)
            assert_memory_equal(ids.p, cases[i].want, ids.n * sizeof *ids.p);
        ids.n = 0;
        assert_int_equal(lg_bpe_encode(b, lg_str_of(cases[i].text), false, &ids, &err), LG_OK);
        assert_int_equal(ids.n, strlen(cases[i].text)); // inert: bytes only
        for (size_t k = 0; k < ids.n; k++)
            assert_false(lg_vocab_is_added(v, ids.p[k]));
        lg_ids_free(&ids);
    }
    lg_bpe_destroy(b);
    lg_vocab_destroy(v);
}

/* --- whole texts --- */

static void shows(const lg_ids *ids, lg_str want)
{
    size_t at = 0;

    for (size_t i = 0; i < ids->n; i++) {
        lg_str s = lg_vocab_bytes(tt_vocab(), ids->p[i]);
        assert_true(s.n <= want.n - at);
        assert_memory_equal(s.p, want.p + at, s.n);
        at += s.n;
    }
    assert_int_equal(at, want.n);
}

// A megabyte in one word and beside it: no byte is lost, and nothing takes forever (the runner's time limit).
static void test_long_runs(void **state)
{
    static const char *const unit[] = {"a", " ", "\xCC\x81", "7", "\n", "\xFF", "thein", "\r\n"};
    size_t n = 1 << 20;
    char *p = malloc(n);
    lg_err err = {0};

    (void)state;
    assert_non_null(p);
    for (size_t u = 0; u < sizeof unit / sizeof unit[0]; u++) {
        lg_ids ids = {0};
        for (size_t i = 0; i < n; i++)
            p[i] = unit[u][i % strlen(unit[u])];
        assert_int_equal(lg_bpe_encode(tt_bpe(), (lg_str){p, n}, false, &ids, &err), LG_OK);
        shows(&ids, (lg_str){p, n});
        lg_ids_free(&ids);
    }
    free(p);
}

// Ids are appended; a failure takes back what it added.
static void test_append_and_failure(void **state)
{
    static const char text[] =
        "hello \xFF world, \xE4\xB8\x96 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaa <think>";
    lg_ids ids = {0};
    lg_err err = {0};

    (void)state;
    assert_int_equal(lg_ids_add(&ids, 7, &err), LG_OK);
    assert_int_equal(lg_bpe_encode(tt_bpe(), LG_STR("hello"), false, &ids, &err), LG_OK);
    assert_int_equal(ids.p[0], 7);
    assert_true(ids.n > 1);
    if (LG_HAVE_FAULT) {
        size_t before = ids.n;
        for (long n = 1;; n++) {
            lg_bpe *b = NULL;
            fault_arm(FAULT_ALLOC, n);
            lg_status st = lg_bpe_create(tt_vocab(), LG_CRLF_HF, &b, &err);
            if (st == LG_OK)
                st = lg_bpe_encode(b, LG_STR(text), true, &ids, &err);
            long failed = fault_disarm();
            lg_bpe_destroy(b);
            if (failed == 0) {
                assert_int_equal(st, LG_OK);
                assert_true(ids.n > before);
                break;
            }
            assert_int_equal(st, LG_E_NOMEM);
            assert_int_equal(ids.n, before);
        }
    }
    lg_ids_free(&ids);
}

static void *encode_many(void *arg)
{
    const lg_ids *want = arg;
    lg_err err = {0};

    for (int i = 0; i < 200; i++) {
        static const char text[] =
            "def main(argc):\n    return print(\"the other one, 123\") # \xE4\xB8\x96\n";
        lg_ids ids = {0};
        if (lg_bpe_encode(tt_bpe(), LG_STR(text), false, &ids, &err) != LG_OK || ids.n != want->n ||
            memcmp(ids.p, want->p, ids.n * sizeof *ids.p) != 0) {
            lg_ids_free(&ids);
            return arg;
        }
        lg_ids_free(&ids);
    }
    return NULL;
}

static void test_threads(void **state)
{
    static const char text[] = "def main(argc):\n    return print(\"the other one, 123\") # \xE4\xB8\x96\n";
    enum { N = 12 }; // more than there are idle workspaces
    pthread_t thread[N];
    lg_ids want = {0};
    lg_err err = {0};

    (void)state;
    assert_int_equal(lg_bpe_encode(tt_bpe(), LG_STR(text), false, &want, &err), LG_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, encode_many, &want), 0);
    for (int i = 0; i < N; i++) {
        void *wrong = &want;
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        assert_null(wrong);
    }
    lg_ids_free(&want);
}

/* --- the detokenizer --- */

// All at once: what any cut must add up to.
static void detok_whole(lg_str bytes, lg_buf *out)
{
    for (size_t i = 0; i < bytes.n;) {
        int32_t c;
        int len = lg_utf8_step(bytes.p + i, bytes.n - i, &c);
        if (c < 0) {
            len = lg_utf8_bad_len(bytes.p + i, bytes.n - i);
            (void)lg_buf_addz(out, "\xEF\xBF\xBD");
        } else {
            (void)lg_buf_add(out, bytes.p + i, (size_t)len);
        }
        i += (size_t)len;
    }
}

static void test_detok(void **state)
{
    static const char pool[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\xA0\xF4\x90\xFF\xC0";
    unsigned seed = 11;
    lg_buf want, got;

    (void)state;
    lg_buf_init(&want, 1 << 16);
    lg_buf_init(&got, 1 << 16);
    for (int round = 0; round < 50000; round++) {
        char bytes[16];
        size_t n = (size_t)rand_r(&seed) % sizeof bytes;
        lg_detok d = {0};
        for (size_t i = 0; i < n; i++)
            bytes[i] = pool[(size_t)rand_r(&seed) % (sizeof pool - 1)];
        lg_buf_clear(&want);
        lg_buf_clear(&got);
        detok_whole((lg_str){bytes, n}, &want);
        for (size_t at = 0; at < n;) {
            size_t step = 1 + (size_t)rand_r(&seed) % 6;
            if (step > n - at)
                step = n - at;
            size_t before = got.n;
            lg_detok_feed(&d, (lg_str){bytes + at, step}, &got);
            at += step;
            assert_true(d.n_held <= 3);
            for (size_t i = before; i < got.n;) { // each delta is well-formed
                int32_t c;
                i += (size_t)lg_utf8_step(got.p + i, got.n - i, &c);
                assert_true(c >= 0);
            }
        }
        lg_detok_end(&d, &got);
        assert_int_equal(got.n, want.n);
        if (got.n > 0)
            assert_memory_equal(got.p, want.p, got.n);
    }
    lg_buf_free(&want);
    lg_buf_free(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_vocab), cmocka_unit_test(test_odd_rules),
        cmocka_unit_test(test_no_byte),        cmocka_unit_test(test_added),
        cmocka_unit_test(test_long_runs),      cmocka_unit_test(test_append_and_failure),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_detok),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
