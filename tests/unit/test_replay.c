/*
 * unit/test_replay: what the model wrote comes back by call id, for a client that sends the same call in any
 * JSON spelling, and for no other; the bound holds and the least recently used go first; threads may share
 * it.
 */
#include "check.h"
#include "fault.h"

#include <pthread.h>
#include <stdio.h>

#include "server/replay.h"

static lg_str z(const char *text)
{
    return lg_str_of(text);
}

static lg_replay *memory(size_t max)
{
    lg_replay *r = NULL;

    assert_int_equal(lg_replay_create(max, &r, NULL), LG_OK);
    return r;
}

static const int32_t ids[] = {25, 300, 301, 302, 26};
enum { N_IDS = sizeof ids / sizeof ids[0] };

static bool hit(lg_replay *r, const char *id, const char *name, const lg_chat_arg *arg, size_t n_arg)
{
    lg_chat_call call = {.id = z(id), .name = z(name), .arg = arg, .n_arg = n_arg};
    lg_arena a;
    size_t n = 0;

    lg_arena_init(&a, 1 << 16);
    const int32_t *got = lg_replay_ids(r, &call, &a, &n);
    if (got) {
        assert_int_equal(n, N_IDS);
        assert_memory_equal(got, ids, sizeof ids);
    }
    lg_arena_free(&a);
    return got != NULL;
}

static void exact_ids(void **state)
{
    lg_replay *r = memory(1 << 20);
    const lg_chat_arg same[] = {{LG_STR("path"), LG_STR(" a b\n")}, {LG_STR("n"), LG_STR("1")}};
    const lg_chat_arg other[] = {{LG_STR("path"), LG_STR(" a b")}, {LG_STR("n"), LG_STR("1")}};

    (void)state;
    lg_replay_put(r, z("call_1"), z("f"), z("{\"path\":\" a b\\n\",\"n\":1}"), ids, N_IDS, z("because"));
    assert_true(hit(r, "call_1", "f", same, 2));
    assert_false(hit(r, "call_1", "f", other, 2)); // a string is compared byte for byte
    assert_false(hit(r, "call_1", "g", same, 2));
    assert_false(hit(r, "call_1", "f", same, 1));
    assert_false(hit(r, "call_1", "f", NULL, 0));
    assert_false(hit(r, "call_2", "f", same, 2));
    assert_false(hit(r, "", "f", same, 2));
    assert_true(lg_replay_knows(r, z("call_1")));
    assert_false(lg_replay_knows(r, z("call_")));
    assert_false(lg_replay_knows(r, z("")));
    lg_replay_put(r, z("call_0"), z("f"), z("{}"), ids, N_IDS, (lg_str){0});
    assert_true(hit(r, "call_0", "f", NULL, 0));
    lg_replay_destroy(r);
    lg_replay_destroy(NULL);
}

static void any_spelling(void **state)
{
    static const struct {
        const char *kept, *sent;
        bool hit;
    } cases[] = {
        {"{\"a\":{\"x\":1,\"y\":[1,2.50,null,true]}}", "{\"y\": [1, 2.5, null, true], \"x\": 1.0}", true},
        {"{\"a\":[{\"id\":\"1\"}]}", "[{\"id\": \"1\"}]", true},
        {"{\"a\":[{\"id\":\"1\"}]}", "[{\"id\": 1}]", false},
        {"{\"a\":1e3}", "1000", true},
        {"{\"a\":-0}", "0", true},
        {"{\"a\":123456789012345678901234567890}", "1.2345678901234568e+29", true},
        {"{\"a\":1e999}", "1e999", true},
        {"{\"a\":0.1}", "0.2", false},
        {"{\"a\":null}", "null", true},
        {"{\"a\":true}", "false", false},
        {"{\"a\":true}", "{", false},
        {"{\"a\":[]}", "{}", false},
        {"{\"a\":{\"k\":1}}", "{\"k\": 1, \"l\": 1}", false},
        {"{\"a\":\"{\\\"k\\\":1}\"}", "{\"k\":1}", true},
        {"{\"a\":\"{\\\"k\\\":1}\"}", "{\"k\": 1}", false}, // a string that looks like JSON is still a string
        {"{\"a\":\"\\u00e9\"}", "\xC3\xA9", true},
        {"{\"a\":\"\"}", "", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lg_replay *r = memory(1 << 20);
        const lg_chat_arg sent[] = {{LG_STR("a"), z(cases[i].sent)}};
        lg_replay_put(r, z("c"), z("f"), z(cases[i].kept), ids, N_IDS, (lg_str){0});
        if (hit(r, "c", "f", sent, 1) != cases[i].hit)
            fail_msg("case %zu: %s against %s", i, cases[i].kept, cases[i].sent);
        lg_replay_destroy(r);
    }
}

static void key_order(void **state)
{
    lg_replay *r = memory(1 << 20);
    const lg_chat_arg sent[] = {{LG_STR("b"), LG_STR("2")}, {LG_STR("a"), LG_STR("1")}};

    (void)state;
    lg_replay_put(r, z("c"), z("f"), z("{\"a\":1,\"b\":2}"), ids, N_IDS, (lg_str){0});
    assert_true(hit(r, "c", "f", sent, 2));
    lg_replay_destroy(r);
}

static void reasoning(void **state)
{
    lg_replay *r = memory(1 << 20);
    lg_arena a;

    (void)state;
    lg_arena_init(&a, 1 << 16);
    lg_replay_put(r, z("c"), z("f"), z("{}"), ids, N_IDS, z("I look first."));
    lg_replay_put(r, z("d"), z("f"), z("{}"), ids, N_IDS, (lg_str){0});
    assert_str(lg_replay_reasoning(r, z("c"), &a), "I look first.");
    assert_null(lg_replay_reasoning(r, z("d"), &a).p);
    assert_null(lg_replay_reasoning(r, z("e"), &a).p);
    lg_replay_put(r, z("c"), z("f"), z("{}"), ids, N_IDS, z("anew"));
    assert_str(lg_replay_reasoning(r, z("c"), &a), "anew");
    lg_arena_free(&a);
    lg_replay_destroy(r);
}

static void unusable(void **state)
{
    static const char *const bad[] = {"", "{", "[]", "1", "{\"a\":1", "{\"a\":1}x", "null"};
    lg_replay *r = memory(1 << 12);
    char big[6000];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lg_replay_put(r, z("c"), z("f"), z(bad[i]), ids, N_IDS, (lg_str){0});
        assert_false(lg_replay_knows(r, z("c")));
    }
    memset(big, 'x', sizeof big);
    lg_replay_put(r, z("c"), z("f"), z("{}"), ids, N_IDS, (lg_str){big, sizeof big});
    assert_false(lg_replay_knows(r, z("c")));
    lg_replay_put(r, z("d"), (lg_str){big, sizeof big}, z("{}"), ids, N_IDS, (lg_str){0});
    assert_false(lg_replay_knows(r, z("d")));
    lg_replay_destroy(r);
}

static void bounded(void **state)
{
    enum { N = 3000 };
    lg_replay *r = memory(64 << 10);
    char id[32];
    int kept = 0, first = -1;

    (void)state;
    for (int i = 0; i < N; i++) {
        (void)snprintf(id, sizeof id, "call_%d", i);
        lg_replay_put(r, z(id), z("f"), z("{\"a\":1}"), ids, N_IDS, z("thought"));
        assert_true(lg_replay_knows(r, z("call_0"))); // used again and again, so it stays
    }
    for (int i = N - 1; i > 0; i--) {
        (void)snprintf(id, sizeof id, "call_%d", i);
        if (!lg_replay_knows(r, z(id)))
            break;
        kept++;
        first = i;
    }
    assert_in_range(kept, 50, 500); // some 250 bytes each
    for (int i = 1; i < first; i++) {
        (void)snprintf(id, sizeof id, "call_%d", i);
        assert_false(lg_replay_knows(r, z(id)));
    }
    lg_replay_destroy(r);
}

typedef struct worker {
    lg_replay *r;
    int number;
} worker;

static void *work(void *arg)
{
    const worker *w = arg;
    const lg_chat_arg sent[] = {{LG_STR("a"), LG_STR("[1]")}};
    char id[32];

    for (int i = 0; i < 2000; i++) {
        lg_arena a;
        size_t n = 0;
        (void)snprintf(id, sizeof id, "call_%d", (i * 7 + w->number) % 40);
        lg_chat_call call = {.id = z(id), .name = LG_STR("f"), .arg = sent, .n_arg = 1};
        lg_arena_init(&a, 1 << 14);
        lg_replay_put(w->r, z(id), z("f"), z("{\"a\":[1]}"), ids, N_IDS, z("r"));
        const int32_t *got = lg_replay_ids(w->r, &call, &a, &n);
        LG_ASSERT(!got || (n == N_IDS && memcmp(got, ids, sizeof ids) == 0));
        lg_str text = lg_replay_reasoning(w->r, z(id), &a);
        LG_ASSERT(!text.p || lg_str_eqz(text, "r"));
        lg_arena_free(&a);
    }
    return NULL;
}

static void shared(void **state)
{
    worker w[4];
    pthread_t t[4];
    lg_replay *r = memory(5 << 10); // evicts all the time

    (void)state;
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){r, i};
        assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    lg_replay_destroy(r);
}

static void no_memory(void **state)
{
    lg_replay *r = NULL;
    bool done = false;

    (void)state;
    for (long n = 1; !done; n++) {
        fault_arm(FAULT_ALLOC, n);
        lg_status st = lg_replay_create(1 << 16, &r, NULL);
        done = fault_disarm() == 0;
        assert_true(done == (st == LG_OK));
        assert_true(done || r == NULL);
    }
    done = !LG_HAVE_FAULT;
    for (long n = 1; !done; n++) {
        fault_arm(FAULT_ALLOC, n);
        lg_replay_put(r, z("c"), z("f"), z("{\"a\":{\"k\":[1.5]}}"), ids, N_IDS, z("r"));
        done = fault_disarm() == 0;
        assert_int_equal(lg_replay_knows(r, z("c")), done);
    }
    lg_replay_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_ids), cmocka_unit_test(any_spelling), cmocka_unit_test(key_order),
        cmocka_unit_test(reasoning), cmocka_unit_test(unusable),     cmocka_unit_test(bounded),
        cmocka_unit_test(shared),    cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
