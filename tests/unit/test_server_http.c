/*
 * unit/test_server_http: what the server decides about a request without a socket: keys, foreign pages and
 * names, routes, the shape of errors, the client's name, JSON log records, the engine's picture.
 */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/logs.h"
#include "base/log.h"
#include "engine/logprob.h"
#include "server/guard.h"
#include "server/route.h"
#include "server/snapshot.h"

static lg_list list_of(const char *const *v, size_t n)
{
    static const char *const nobody[8];

    return (lg_list){.v = v, .owner = nobody, .n = n};
}

static lg_guard *guard(lg_settings *set)
{
    lg_guard *g = NULL;

    if (!set->host)
        set->host = "127.0.0.1";
    if (!set->api_key_file)
        set->api_key_file = "";
    assert_int_equal(lg_guard_create(set, &g, NULL), LG_OK);
    return g;
}

static lg_request request(const char *method, const lg_header *h, size_t n)
{
    return (lg_request){.method = lg_str_of(method), .header = h, .n_header = n};
}

static int with_key(const lg_guard *g, const char *name, const char *value)
{
    lg_header h = {lg_str_of(name), lg_str_of(value)};
    lg_request rq = request("GET", &h, 1);
    lg_api_error e;

    return lg_guard_key(g, &rq, &e) == LG_OK ? 200 : lg_api_status(&e);
}

static void keys(void **state)
{
    static const char *const key[] = {"sk-alice", "sk-bob"};
    static const char *const owner[] = {"alice", NULL};
    lg_settings set = {.api_key = {.v = key, .owner = owner, .n = 2}};
    lg_header h = {LG_STR("Authorization"), LG_STR("Bearer sk-alice")};
    lg_request rq = request("GET", &h, 1);
    lg_guard *g = guard(&set);
    lg_api_error e;

    (void)state;
    assert_true(lg_guard_has_keys(g));
    assert_int_equal(lg_guard_key(g, &rq, &e), LG_OK);
    assert_string_equal(rq.client, "alice");
    assert_true(rq.key != 0);
    assert_int_equal(with_key(g, "x-api-key", "sk-bob"), 200);
    assert_int_equal(with_key(g, "API-KEY", " sk-bob "), 200);
    assert_int_equal(with_key(g, "authorization", "BEARER   sk-bob"), 200);
    assert_int_equal(with_key(g, "authorization", "sk-bob"), 401);
    assert_int_equal(with_key(g, "authorization", "Basic sk-bob"), 401);
    assert_int_equal(with_key(g, "x-api-key", "sk-bo"), 401);
    assert_int_equal(with_key(g, "x-api-key", "sk-bobb"), 401);
    assert_int_equal(with_key(g, "x-api-key", "sk-bobsk-bob"), 401);
    assert_int_equal(with_key(g, "x-api-key", ""), 401);
    assert_int_equal(with_key(g, "cookie", "sk-bob"), 401);
    lg_guard_destroy(g);
    set.api_key.n = 0;
    g = guard(&set);
    assert_false(lg_guard_has_keys(g));
    assert_int_equal(with_key(g, "authorization", "Bearer EMPTY"), 200);
    lg_guard_destroy(g);
}

static int site(const lg_guard *g, const char *method, const char *host, const char *origin, const char *type)
{
    lg_header h[3];
    size_t n = 0;
    lg_request rq;
    lg_api_error e;

    if (host)
        h[n++] = (lg_header){LG_STR("Host"), lg_str_of(host)};
    if (origin)
        h[n++] = (lg_header){LG_STR("Origin"), lg_str_of(origin)};
    if (type)
        h[n++] = (lg_header){LG_STR("Content-Type"), lg_str_of(type)};
    rq = request(method, h, n);
    return lg_guard_site(g, &rq, &e) == LG_OK ? 200 : lg_api_status(&e);
}

static void sites(void **state)
{
    static const char *const hosts[] = {"my.example"}, *const cors[] = {"https://good.example"};
    static const char *const json = "application/json; charset=utf-8";
    lg_settings set = {.allowed_hosts = list_of(hosts, 1), .cors = list_of(cors, 1)};
    lg_guard *g = guard(&set);

    (void)state;
    assert_true(lg_guard_loopback(g));
    assert_int_equal(site(g, "GET", NULL, NULL, NULL), 200);
    assert_int_equal(site(g, "GET", "MY.example:5241", NULL, NULL), 200);
    assert_int_equal(site(g, "GET", "[::1]:5241", NULL, NULL), 200);
    assert_int_equal(site(g, "GET", "[::1", NULL, NULL), 403);
    assert_int_equal(site(g, "GET", "1.2.3", NULL, NULL), 403);
    assert_int_equal(site(g, "GET", ":80", NULL, NULL), 403);
    assert_int_equal(site(g, "GET", "rebind.example", NULL, NULL), 403);
    assert_int_equal(site(g, "POST", "localhost", "https://evil.example", "text/plain"), 403);
    assert_int_equal(site(g, "POST", "localhost", "https://evil.example", NULL), 403);
    assert_int_equal(site(g, "POST", "localhost", "https://evil.example", "application/jsonp"), 403);
    assert_int_equal(site(g, "POST", "localhost", "null", "text/plain"), 403);
    assert_int_equal(site(g, "POST", "localhost", "https://evil.example", json), 200);
    assert_int_equal(site(g, "POST", "localhost", "https://good.example", "text/plain"), 200);
    assert_int_equal(site(g, "POST", "localhost:5241", "http://localhost:5241", "text/plain"), 200);
    assert_int_equal(site(g, "POST", "localhost:5241", "http://localhost:5242", "text/plain"), 403);
    assert_int_equal(site(g, "GET", "localhost", "https://evil.example", NULL), 200);
    lg_guard_destroy(g);
    set.host = "0.0.0.0"; // reached under any name
    g = guard(&set);
    assert_false(lg_guard_loopback(g));
    assert_int_equal(site(g, "GET", "rebind.example", NULL, NULL), 200);
    lg_guard_destroy(g);
}

static void clients(void **state)
{
    static const struct {
        const char *agent, *want;
    } cases[] = {
        {"claude-cli/2.1.197 (external, cli)", "claude-cli/2.1"},
        {"curl/7.88.1", "curl/7.88"},
        {"Mozilla", "Mozilla"},
        {"my.own.agent/1.2.3", "my.own.agent/1.2"},
        {"a=b\"c/1", "a?b?c/1"},
        {"\xc3\xa4/1", "?" "?/1"},
        {"0123456789012345678901234567890123456789", "0123456789012345678901234567890"},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lg_header h = {LG_STR("user-agent"), lg_str_of(cases[i].agent)};
        lg_request rq = request("GET", &h, 1);
        char out[32];

        lg_guard_client(&rq, out);
        assert_string_equal(out, cases[i].want);
    }
}

static const lg_route *find(const lg_settings *set, const char *method, const char *target, lg_found want)
{
    lg_request rq = {.method = lg_str_of(method), .target = lg_str_of(target)};
    const lg_route *r = NULL;
    const char *path;
    bool doubled;

    lg_arena_init(&rq.arena, 1 << 16);
    path = lg_route_path(&rq, &doubled);
    assert_non_null(path);
    rq.path = lg_str_of(path);
    assert_int_equal(lg_route_find(set, &rq, &r), want);
    assert_int_equal(doubled, strncmp(target, "/v1/v1", 6) == 0 && (target[6] == '/' || !target[6]));
    lg_arena_free(&rq.arena);
    return r;
}

static void routes(void **state)
{
    static const char *const all[] = {"all"}, *const some[] = {"openai", "native"};
    lg_settings set = {.dialects = list_of(all, 1)};

    (void)state;
    assert_ptr_equal(find(&set, "POST", "/v1/chat/completions", LG_FOUND)->dialect, &lg_dialect_chat);
    assert_ptr_equal(find(&set, "POST", "/chat/completions/", LG_FOUND)->dialect, &lg_dialect_chat);
    assert_ptr_equal(find(&set, "POST", "/v1/v1/v1/messages//", LG_FOUND)->dialect, &lg_dialect_messages);
    assert_ptr_equal(find(&set, "POST", "/responses", LG_FOUND)->dialect, &lg_dialect_responses);
    assert_string_equal(find(&set, "GET", "/v1/models/any/name", LG_FOUND)->name, "models");
    assert_string_equal(find(&set, "HEAD", "/", LG_FOUND)->name, "health");
    assert_true(find(&set, "GET", "/v1/health", LG_FOUND)->open);
    assert_int_equal(find(&set, "DELETE", "/v1/messages", LG_FOUND_METHOD)->shape, LG_SHAPE_ANTHROPIC);
    assert_null(find(&set, "GET", "/v1", LG_FOUND_NOTHING));
    assert_null(find(&set, "GET", "", LG_FOUND_NOTHING));
    assert_null(find(&set, "POST", "/v1/v1x/messages", LG_FOUND_NOTHING));
    assert_null(find(&set, "GET", "/V1/models", LG_FOUND_NOTHING));
    set.dialects = list_of(some, 2);
    assert_non_null(find(&set, "POST", "/lagoon/v1/generate", LG_FOUND));
    assert_int_equal(find(&set, "POST", "/v1/messages", LG_FOUND_NOTHING)->shape, LG_SHAPE_ANTHROPIC);
    assert_non_null(find(&set, "GET", "/v1/models", LG_FOUND));
    for (size_t i = 0; i < 64 && lg_route_name(i); i++)
        assert_true(i < 32); // the metrics have a row for each
}

static const char *error_text(const lg_api_error *e, lg_error_shape shape, lg_buf *b)
{
    lg_buf_clear(b);
    lg_api_error_json(e, shape, "req_1", b);
    return lg_buf_z(b);
}

static void errors(void **state)
{
    lg_api_error e;
    lg_err err = {0};
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 1 << 16);
    assert_int_equal(lg_api_fail(&e, LG_API_INVALID, "messages[0]", "a \"b\"\n\xff %d", 7), LG_E_INPUT);
    assert_string_equal(error_text(&e, LG_SHAPE_OPENAI, &b),
                        "{\"error\":{\"message\":\"a \\\"b\\\"?? 7\",\"type\":\"invalid_request_error\","
                        "\"param\":\"messages[0]\",\"code\":null}}");
    assert_string_equal(error_text(&e, LG_SHAPE_ANTHROPIC, &b),
                        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\","
                        "\"message\":\"a \\\"b\\\"?? 7\"},\"request_id\":\"req_1\"}");
    (void)LG_FAIL(&err, LG_E_DEVICE, "lost");
    assert_int_equal(lg_api_from_err(&e, &err), LG_E_DEVICE);
    assert_int_equal(lg_api_status(&e), 503); // from then on the server has no model
    (void)LG_FAIL(&err, LG_E_NOMEM, "full");
    assert_int_equal(lg_api_from_err(&e, &err), LG_E_NOMEM);
    assert_int_equal(lg_api_status(&e), 500);
    (void)LG_FAIL(&err, LG_E_LIMIT, "too long");
    assert_int_equal(lg_api_from_err(&e, &err), LG_E_LIMIT);
    assert_int_equal(lg_api_status(&e), 400);
    e.status = 404;
    assert_int_equal(lg_api_status(&e), 404);
    lg_buf_free(&b);
}

static void log_lines(void **state)
{
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 4096);
    lg_logs_json(
        LG_STR(
            "12:04:05.123 info http done id=r-1 status=200 tok_s=31.0 text=\"a b\\\\\" empty= Note: a note"),
        "T", &b);
    assert_string_equal(
        lg_buf_z(&b),
        "{\"ts\":\"T\",\"level\":\"info\",\"mod\":\"http\",\"event\":\"done\",\"id\":\"r-1\","
        "\"status\":200,\"tok_s\":31.0,\"text\":\"a b\\\\\",\"empty\":\"\",\"note\":\"Note: a note\"}");
    lg_buf_clear(&b);
    lg_logs_json(LG_STR("12:04:05.123 warn x y v=-5 w=1e3 z=0x10 q=\"12\""), "T", &b);
    assert_string_equal(
        lg_buf_z(&b), "{\"ts\":\"T\",\"level\":\"warn\",\"mod\":\"x\",\"event\":\"y\",\"v\":-5,\"w\":1000.0,"
                      "\"z\":\"0x10\",\"q\":\"12\"}");
    lg_buf_free(&b);
}

/* Whatever a client sends stays one value, in the text and in the JSON made of it. */
#define TEXT(s) {(s), sizeof(s) - 1}
static void log_values(void **state)
{
    static const struct {
        size_t room;
        lg_str text;
        const char *value, *json;
    } cases[] = {
        {64, TEXT("curl/8.1"), "curl/8.1", "\"curl/8.1\""},
        {64, TEXT("a=b"), "a=b", "\"a=b\""},
        {64, TEXT(""), "\"\"", "\"\""},
        {64, TEXT("007"), "\"007\"", "\"007\""},
        {64, TEXT("-1.5e3"), "\"-1.5e3\"", "\"-1.5e3\""},
        {64, TEXT("my laptop"), "\"my laptop\"", "\"my laptop\""},
        {64, TEXT("/x\" a=0 y=\"\\"), "\"/x\\\" a=0 y=\\\"\\\\\"", "\"/x\\\" a=0 y=\\\"\\\\\""},
        {64, TEXT("a\nb\0c"), "\"a?b?c\"", "\"a?b?c\""},
        {16, TEXT("curl/8.1-and-more"), "curl/8.1-and-mo", "\"curl/8.1-and-mo\""},
        {16, TEXT("my laptop at work"), "\"my laptop at \"", "\"my laptop at \""},
        {16, TEXT("my laptop, \"it\""), "\"my laptop, \\\"\"", "\"my laptop, \\\"\""},
        {16, TEXT("my laptops (\xC3\xA9)"), "\"my laptops (\"", "\"my laptops (\""},
    };
    char value[64], line[128];
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 4096);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(lg_log_value(cases[i].text, value, cases[i].room), cases[i].value);
        (void)snprintf(line, sizeof line, "12:04:05.123 info x y v=%s w=1", value);
        lg_buf_clear(&b);
        lg_logs_json(lg_str_of(line), "T", &b);
        assert_non_null(strstr(lg_buf_z(&b), cases[i].json));
        assert_non_null(strstr(lg_buf_z(&b), ",\"w\":1}"));
    }
    lg_buf_free(&b);
}
#undef TEXT

static void logprobs(void **state)
{
    const float row[] = {1, 3, 2, 3, -INFINITY, NAN, -50};
    lg_logprobs p;
    double lse = log(exp(1) + 2 * exp(3) + exp(2) + exp(-50));

    (void)state;
    lg_logprobs_of(row, 7, 2, 3, &p);
    assert_int_equal(p.n_top, 3);
    assert_int_equal(p.top[0].id, 1); // ties to the lower id
    assert_int_equal(p.top[1].id, 3);
    assert_int_equal(p.top[2].id, 2);
    assert_true(fabs((double)p.logprob - (2 - lse)) < 1e-6);
    assert_true(fabs((double)p.top[0].logprob - (3 - lse)) < 1e-6);
    lg_logprobs_of(row, 7, 0, 0, &p);
    assert_int_equal(p.n_top, 0);
    lg_logprobs_of(row, 7, 0, 20, &p);
    assert_int_equal(p.n_top, 5); // what is not finite is left out
    for (int i = 1; i < p.n_top; i++)
        assert_true(p.top[i - 1].logprob >= p.top[i].logprob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),     cmocka_unit_test(sites),  cmocka_unit_test(clients),
        cmocka_unit_test(routes),   cmocka_unit_test(errors), cmocka_unit_test(log_lines),
        cmocka_unit_test(log_values), cmocka_unit_test(logprobs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
