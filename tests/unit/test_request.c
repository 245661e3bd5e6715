/*
 * unit/test_request: server/request: typed fields, ids, and what the replay memory gives back to a prompt.
 * Sampling, limits and thinking are tested through the dialects (test_dialect_openai_chat).
 */
#include "check.h"

#include <stdio.h>

#include "server/replay.h"
#include "server/request.h"
#include "support/play.h"
#include "support/texts.h"

static void fields(void **state)
{
    lg_json_doc *doc =
        tt_parse(LG_STR("{\"i\":20.0,\"f\":1.5,\"s\":\"x\",\"b\":true,\"n\":null,\"big\":1e300}"));
    const lg_json *o = lg_json_root(doc);
    lg_api_error e = {0};
    int64_t i = 7;
    double d = 7;
    bool b = false;
    lg_str s = {0};

    (void)state;
    assert_int_equal(lg_field_int(o, "", "i", 0, 100, &i, &e), LG_OK);
    assert_int_equal(i, 20);
    assert_int_equal(lg_field_int(o, "", "n", 0, 1, &i, &e), LG_OK); // null and absent change nothing
    assert_int_equal(lg_field_int(o, "", "absent", 0, 1, &i, &e), LG_OK);
    assert_int_equal(lg_field_int(NULL, "", "i", 0, 1, &i, &e), LG_OK);
    assert_int_equal(i, 20);
    assert_int_equal(lg_field_int(o, "a.", "f", 0, 100, &i, &e), LG_E_INPUT);
    assert_string_equal(e.param, "a.f");
    assert_string_equal(e.message, "a.f must be an integer");
    assert_int_equal(lg_field_int(o, "", "big", INT64_MIN, INT64_MAX, &i, &e), LG_E_INPUT);
    assert_int_equal(lg_field_int(o, "", "i", 0, 19, &i, &e), LG_E_INPUT);
    assert_string_equal(e.message, "i must be between 0 and 19");
    assert_int_equal(lg_field_int(o, "", "s", 0, 19, &i, &e), LG_E_INPUT);
    assert_int_equal(lg_field_num(o, "", "f", 1, 2, &d, &e), LG_OK);
    assert_true(d == 1.5);
    assert_int_equal(lg_field_num(o, "", "f", 0, 1, &d, &e), LG_E_INPUT);
    assert_int_equal(lg_field_num(o, "", "b", 0, 1, &d, &e), LG_E_INPUT);
    assert_int_equal(lg_field_bool(o, "", "b", &b, &e), LG_OK);
    assert_true(b);
    assert_int_equal(lg_field_bool(o, "", "i", &b, &e), LG_E_INPUT);
    assert_int_equal(lg_field_str(o, "", "s", &s, &e), LG_OK);
    assert_str(s, "x");
    assert_int_equal(lg_field_str(o, "", "b", &s, &e), LG_E_INPUT);
    assert_string_equal(e.message, "b must be a string");
    lg_json_free(doc);
}

static void ids(void **state)
{
    char a[40], b[40];

    (void)state;
    lg_random_id("chatcmpl-", a, sizeof a);
    assert_int_equal(strlen(a), strlen("chatcmpl-") + 20);
    for (int i = 0; i < 1000; i++) {
        lg_random_id("chatcmpl-", b, sizeof b);
        assert_string_not_equal(a, b);
    }
}

static void answer_of(const char *arguments, const char *reasoning, td_run *r)
{
    char body[1024];

    (void)snprintf(
        body, sizeof body,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\"%s,"
        "\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"ls\",\"arguments\":"
        "\"%s\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"x\"}]}",
        reasoning, arguments);
    td_parse(&lg_dialect_chat, body, r);
    assert_int_equal(r->st, LG_OK);
}

static bool holds(const lg_ids *prompt, const int32_t *want, size_t n)
{
    for (size_t i = 0; i + n <= prompt->n; i++)
        if (memcmp(prompt->p + i, want, n * sizeof *want) == 0)
            return true;
    return false;
}

/* A call that comes back becomes the ids that were sampled, and the reasoning that the client left out. */
static void recall(void **state)
{
    static const int32_t sampled[] = {25, 300, 301, 302, 303, 26};
    const size_t n = sizeof sampled / sizeof *sampled;
    lg_replay *replay = NULL;
    lg_buf text;
    td_run r;

    (void)state;
    assert_int_equal(lg_replay_create(1 << 20, &replay, NULL), LG_OK);
    lg_replay_put(replay, LG_STR("call_1"), LG_STR("ls"), LG_STR("{\"a\":1,\"b\":\"x\"}"), sampled, n,
                  LG_STR("why"));
    td_service()->replay = replay;
    answer_of("{\\\"b\\\": \\\"x\\\", \\\"a\\\": 1}", "", &r);
    assert_true(holds(&r.job->prompt, sampled, n));
    lg_buf_init(&text, 1 << 16);
    td_prompt(r.job, &text);
    assert_non_null(strstr(lg_buf_z(&text), "<think>why</think>"));
    td_free(&r);
    answer_of("{\\\"a\\\": 2}", ",\"reasoning_content\":\"mine\"", &r); // edited: rendered as it is
    assert_false(holds(&r.job->prompt, sampled, n));
    lg_buf_clear(&text);
    td_prompt(r.job, &text);
    assert_non_null(strstr(lg_buf_z(&text), "<think>mine</think>"));
    td_free(&r);
    lg_buf_free(&text);
    td_service()->replay = NULL;
    lg_replay_destroy(replay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields),
        cmocka_unit_test(ids),
        cmocka_unit_test(recall),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
