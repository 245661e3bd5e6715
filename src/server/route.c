/*
 * server/route: see route.h.
 */
#include "server/route.h"

#include <string.h>
#include <strings.h>

#define JOB(at, setting_, d)                                                                 \
    {                                                                                        \
        .path = (at), .name = #d, .kind = LG_ROUTE_JOB, .method = LG_POST, .setting = (setting_), \
        .dialect = &lg_dialect_##d                                                           \
    }

static const lg_route routes[] = {
    JOB("/v1/chat/completions", "openai", chat),
    JOB("/v1/responses", "responses", responses),
    JOB("/v1/completions", "openai", completions),
    JOB("/infill", "llama", infill),
    {.path = "/v1/messages",
     .name = "messages",
     .kind = LG_ROUTE_JOB,
     .method = LG_POST,
     .setting = "anthropic",
     .shape = LG_SHAPE_ANTHROPIC,
     .dialect = &lg_dialect_messages},
    JOB("/lagoon/v1/generate", "native", native),
    {.path = "/v1/messages/count_tokens",
     .name = "count_tokens",
     .kind = LG_ROUTE_UTIL,
     .method = LG_POST,
     .setting = "anthropic",
     .shape = LG_SHAPE_ANTHROPIC,
     .util = lg_util_count_tokens},
    {.path = "/v1/responses/*",
     .name = "responses",
     .kind = LG_ROUTE_UTIL,
     .setting = "responses",
     .stored = true,
     .util = lg_util_response},
    {.path = "/v1/responses/*",
     .name = "responses",
     .kind = LG_ROUTE_UTIL,
     .method = LG_DELETE,
     .setting = "responses",
     .stored = true,
     .util = lg_util_response_delete},
    {.path = "/v1/models", .name = "models", .kind = LG_ROUTE_UTIL, .loading = true, .util = lg_util_models},
    {.path = "/v1/models/*", .name = "models", .kind = LG_ROUTE_UTIL, .loading = true, .util = lg_util_model},
    {.path = "/tokenize",
     .name = "tokenize",
     .kind = LG_ROUTE_UTIL,
     .method = LG_POST,
     .setting = "llama",
     .util = lg_util_tokenize},
    {.path = "/detokenize",
     .name = "detokenize",
     .kind = LG_ROUTE_UTIL,
     .method = LG_POST,
     .setting = "llama",
     .util = lg_util_detokenize},
    {.path = "/apply-template",
     .name = "apply-template",
     .kind = LG_ROUTE_UTIL,
     .method = LG_POST,
     .setting = "llama",
     .util = lg_util_apply_template},
    {.path = "/props", .name = "props", .kind = LG_ROUTE_UTIL, .setting = "llama", .util = lg_util_props},
    {.path = "/slots", .name = "slots", .kind = LG_ROUTE_SLOTS, .loading = true, .setting = "llama"},
    {.path = "/metrics", .name = "metrics", .kind = LG_ROUTE_METRICS, .loading = true},
    {.path = "/health", .name = "health", .kind = LG_ROUTE_HEALTH, .open = true, .loading = true},
    {.path = "/", .name = "health", .kind = LG_ROUTE_HEALTH, .open = true, .loading = true},
    {.path = "/lagoon/v1/status", .name = "status", .kind = LG_ROUTE_STATUS, .loading = true},
    {.path = "/lagoon/v1/events", .name = "events", .kind = LG_ROUTE_EVENTS, .loading = true},
};
enum { N_ROUTES = sizeof routes / sizeof routes[0] };

/* Short forms that clients with a base URL without /v1 use, and llama-server's names. */
static const struct {
    const char *from, *to;
} aliases[] = {
    {"/chat/completions", "/v1/chat/completions"},
    {"/responses", "/v1/responses"},
    {"/completions", "/v1/completions"},
    {"/models", "/v1/models"},
    {"/v1/health", "/health"},
};

static const char *alias_of(const char *path)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(path, aliases[i].from) == 0)
            return aliases[i].to;
    return path;
}

// The path in a target of the absolute form, http://host/path, which proxies send and every server must take.
static lg_str without_host(lg_str t)
{
    size_t at;

    if (t.n >= 7 && strncasecmp(t.p, "http://", 7) == 0)
        at = 7;
    else if (t.n >= 8 && strncasecmp(t.p, "https://", 8) == 0)
        at = 8;
    else
        return t;
    while (at < t.n && t.p[at] != '/')
        at++;
    return at < t.n ? (lg_str){t.p + at, t.n - at} : LG_STR("/");
}

const char *lg_route_path(lg_request *rq, bool *doubled)
{
    lg_str t = without_host(rq->target);
    char *path;

    *doubled = false;
    while (t.n > 1 && t.p[t.n - 1] == '/')
        t.n--;
    while (lg_str_starts(t, LG_STR("/v1/v1")) && (t.n == 6 || t.p[6] == '/')) {
        *doubled = true;
        t.p += 3;
        t.n -= 3;
    }
    path = lg_arena_dup(&rq->arena, t.p, t.n);
    return path ? alias_of(path) : NULL;
}

static bool matches(const char *pattern, lg_str path)
{
    size_t n = strlen(pattern);

    if (n > 1 && pattern[n - 1] == '*')
        return path.n >= n && strncmp(path.p, pattern, n - 1) == 0;
    return lg_str_eqz(path, pattern);
}

static bool enabled(const lg_settings *set, const lg_route *r)
{
    if (r->stored && set->responses_store <= 0)
        return false;
    if (!r->setting)
        return true;
    for (size_t i = 0; i < set->dialects.n; i++)
        if (strcmp(set->dialects.v[i], "all") == 0 || strcmp(set->dialects.v[i], r->setting) == 0)
            return true;
    return false;
}

static lg_method method_of(const lg_route *r)
{
    return r->method ? r->method : LG_GET;
}

static lg_method method_named(lg_str m)
{
    return lg_str_eqz(m, "GET") || lg_str_eqz(m, "HEAD") ? LG_GET
           : lg_str_eqz(m, "POST")                       ? LG_POST
           : lg_str_eqz(m, "DELETE")                     ? LG_DELETE
                                                         : 0;
}

lg_found lg_route_find(const lg_settings *set, const lg_request *rq, const lg_route **out)
{
    lg_method m = method_named(rq->method);
    lg_found found = LG_FOUND_NOTHING;

    *out = NULL;
    for (size_t i = 0; i < N_ROUTES; i++) {
        const lg_route *r = &routes[i];

        if (!matches(r->path, rq->path))
            continue;
        if (!*out || enabled(set, r)) // what is off gives its shape to the error
            *out = r;
        if (!enabled(set, r))
            continue;
        if (method_of(r) == m)
            return LG_FOUND;
        found = LG_FOUND_METHOD;
    }
    return found;
}

const char *lg_route_allow(const lg_settings *set, const lg_request *rq)
{
    static const char *const text[] = {
        "OPTIONS",       "GET, HEAD, OPTIONS",         "POST, OPTIONS",         "GET, HEAD, POST, OPTIONS",
        "DELETE, OPTIONS", "GET, HEAD, DELETE, OPTIONS", "POST, DELETE, OPTIONS", "GET, HEAD, POST, DELETE, OPTIONS"};
    unsigned all = 0;

    for (size_t i = 0; i < N_ROUTES; i++)
        if (matches(routes[i].path, rq->path) && enabled(set, &routes[i]))
            all |= method_of(&routes[i]);
    return text[all];
}

const char *lg_route_name(size_t i)
{
    return i < N_ROUTES ? routes[i].name : NULL;
}

size_t lg_route_index(const lg_route *r)
{
    return (size_t)(r - routes);
}
