/*
 * server/guard: see guard.h.
 */
#include "server/guard.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/hash.h"
#include "server/dialect.h"

enum { KEY_FILE_MAX = 1 << 20, HOST_MAX = 256 };

typedef struct key {
    lg_str text;
    const char *name; // of its [client NAME] section, or NULL
    uint64_t hash;
} key;

struct lg_guard {
    key *key;
    size_t n_key;
    char *file; // text of api_key_file, which keys borrow
    lg_list cors, hosts;
    bool cors_any, cors_on, loopback;
};

static bool add_key(lg_guard *g, lg_str text, const char *name)
{
    key *grown = realloc(g->key, (g->n_key + 1) * sizeof *g->key);

    if (!grown)
        return false;
    g->key = grown;
    g->key[g->n_key++] = (key){.text = text, .name = name, .hash = lg_hash_64(text.p, text.n, 0) | 1};
    return true;
}

static lg_str trimmed(lg_str s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t' || s.p[s.n - 1] == '\r'))
        s.n--;
    return s;
}

static lg_status read_key_file(lg_guard *g, const char *path, lg_err *err)
{
    size_t n, before = g->n_key;
    bool mark; // of UTF-8, which some editors write; it is no part of the first line

    LG_TRY(lg_read_all(path, KEY_FILE_MAX, &g->file, &n, err));
    mark = lg_str_starts((lg_str){g->file, n}, LG_STR("\xEF\xBB\xBF"));
    for (const char *p = g->file + (mark ? 3 : 0), *end = g->file + n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        lg_str line = trimmed((lg_str){p, (size_t)((stop ? stop : end) - p)});

        // a comment must not open the door
        if (line.n > 0 && line.p[0] != '#' && !add_key(g, line, NULL))
            return LG_FAIL(err, LG_E_NOMEM, "out of memory");
        p = stop ? stop + 1 : end;
    }
    if (g->n_key == before) { // a server that was meant to be locked must not stand open
        (void)lg_err_subject(err, "%s", path);
        return LG_FAIL(err, LG_E_INPUT, "holds no API key; it wants one a line");
    }
    return LG_OK;
}

static bool is_loopback(const char *host)
{
    struct in_addr a;

    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "::1") == 0)
        return true;
    return inet_pton(AF_INET, host, &a) == 1 && (ntohl(a.s_addr) >> 24) == 127;
}

lg_status lg_guard_create(const lg_settings *set, lg_guard **out, lg_err *err)
{
    lg_guard *g = calloc(1, sizeof *g);
    lg_status st = LG_OK;

    if (!g)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    g->hosts = set->allowed_hosts;
    g->cors = set->cors;
    g->loopback = is_loopback(set->host);
    for (size_t i = 0; i < set->cors.n; i++) {
        const char *v = set->cors.v[i];

        if (strcasecmp(v, "yes") == 0 || strcasecmp(v, "true") == 0 || strcasecmp(v, "on") == 0 ||
            strcmp(v, "*") == 0)
            g->cors_any = g->cors_on = true;
        else if (*v && strcasecmp(v, "off") != 0 && strcasecmp(v, "no") != 0 && strcasecmp(v, "false") != 0)
            g->cors_on = true;
    }
    for (size_t i = 0; i < set->api_key.n && st == LG_OK; i++)
        if (*set->api_key.v[i] && !add_key(g, lg_str_of(set->api_key.v[i]), set->api_key.owner[i]))
            st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
    if (st == LG_OK && *set->api_key_file)
        st = read_key_file(g, set->api_key_file, err);
    if (st == LG_OK)
        *out = g;
    else
        lg_guard_destroy(g);
    return st;
}

void lg_guard_destroy(lg_guard *g)
{
    if (!g)
        return;
    free(g->key);
    free(g->file);
    free(g);
}

bool lg_guard_has_keys(const lg_guard *g)
{
    return g->n_key > 0;
}

bool lg_guard_loopback(const lg_guard *g)
{
    return g->loopback;
}

// --- names and sites ---

// Host without port and brackets.
static lg_str host_name(lg_str host)
{
    const char *colon;

    if (host.n > 0 && host.p[0] == '[') {
        const char *end = memchr(host.p, ']', host.n);

        return end ? (lg_str){host.p + 1, (size_t)(end - host.p) - 1} : host;
    }
    colon = memchr(host.p ? host.p : "", ':', host.n);
    return colon ? (lg_str){host.p, (size_t)(colon - host.p)} : host;
}

static bool same_text(lg_str a, const char *z)
{
    return a.n == strlen(z) && strncasecmp(a.p, z, a.n) == 0;
}

static bool ends_with(lg_str a, const char *z)
{
    size_t n = strlen(z);

    return a.n > n && strncasecmp(a.p + a.n - n, z, n) == 0;
}

static bool own_name(const lg_guard *g, lg_str host)
{
    char text[HOST_MAX];
    unsigned char addr[16];
    lg_str name = host_name(host);

    if (name.n == 0)
        return host.n == 0; // no Host at all: HTTP/1.0
    if (name.n >= sizeof text)
        return false;
    memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    if (inet_pton(AF_INET, text, addr) == 1 || inet_pton(AF_INET6, text, addr) == 1)
        return true;
    if (same_text(name, "localhost") || ends_with(name, ".localhost") || ends_with(name, ".local") ||
        ends_with(name, ".internal"))
        return true;
    for (size_t i = 0; i < g->hosts.n; i++)
        if (same_text(name, g->hosts.v[i]) || same_text(host, g->hosts.v[i]))
            return true;
    return false;
}

static bool listed_origin(const lg_guard *g, lg_str origin)
{
    for (size_t i = 0; i < g->cors.n; i++)
        if (same_text(origin, g->cors.v[i]))
            return true;
    return false;
}

// An origin is foreign unless it is this server's own: scheme://HOST with the Host of the request.
static bool foreign(const lg_request *rq, lg_str origin)
{
    lg_str host = lg_request_header(rq, "host");
    size_t at = lg_str_find(origin, LG_STR("://"), 0);

    if (at == SIZE_MAX || host.n == 0)
        return true;
    origin.p += at + 3;
    origin.n -= at + 3;
    return origin.n != host.n || strncasecmp(origin.p, host.p, host.n) != 0;
}

static bool json_type(lg_str type)
{
    static const char want[] = "application/json";
    size_t n = sizeof want - 1;

    return type.n >= n && strncasecmp(type.p, want, n) == 0 &&
           (type.n == n || type.p[n] == ';' || type.p[n] == ' ');
}

lg_status lg_guard_site(const lg_guard *g, const lg_request *rq, lg_api_error *e)
{
    lg_str host = lg_request_header(rq, "host"), origin = lg_request_header(rq, "origin");

    if (g->loopback && g->n_key == 0 && !own_name(g, host))
        return lg_api_fail(e, LG_API_FORBIDDEN, NULL,
                           "Host \"%.*s\" is not a name of this server; add it to the setting allowed_hosts",
                           (int)(host.n < 200 ? host.n : 200), host.p);
    if (origin.n == 0 || g->cors_any || listed_origin(g, origin) || !foreign(rq, origin))
        return LG_OK;
    if (lg_str_eqz(rq->method, "POST") && !json_type(lg_request_header(rq, "content-type")))
        return lg_api_fail(
            e, LG_API_FORBIDDEN, NULL,
            "a page of another site (Origin %.*s) may not call this server; the setting cors allows it",
            (int)(origin.n < 200 ? origin.n : 200), origin.p);
    return LG_OK;
}

void lg_guard_cors(const lg_guard *g, const lg_request *rq, bool preflight, lg_response *out)
{
    lg_str origin = lg_request_header(rq, "origin"), want;
    bool listed = listed_origin(g, origin);

    if (!g->cors_on || (!g->cors_any && !listed))
        return;
    if (listed) {
        lg_response_header(out, "Access-Control-Allow-Origin", "%.*s", (int)origin.n, origin.p);
        lg_response_header(out, "Vary", "Origin");
    } else {
        lg_response_header(out, "Access-Control-Allow-Origin", "*");
    }
    lg_response_header(out, "Access-Control-Expose-Headers", "x-request-id, retry-after");
    if (!preflight)
        return;
    want = lg_request_header(rq, "access-control-request-headers");
    lg_response_header(out, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    if (want.n > 0)
        lg_response_header(out, "Access-Control-Allow-Headers", "%.*s", (int)want.n, want.p);
    else
        lg_response_header(out, "Access-Control-Allow-Headers", "*");
    lg_response_header(out, "Access-Control-Max-Age", "86400");
}

// --- keys ---

/* Equal? The time depends on the length of what the client sent, and on nothing else. */
static bool equal_in_constant_time(lg_str sent, lg_str own)
{
    volatile unsigned char diff = sent.n == own.n ? 0 : 1;

    for (size_t i = 0; i < sent.n; i++)
        diff = (unsigned char)(diff | ((unsigned char)sent.p[i] ^ (unsigned char)own.p[i % own.n]));
    return diff == 0;
}

static const key *find_key(const lg_guard *g, lg_str sent)
{
    const key *found = NULL;

    if (sent.n == 0)
        return NULL;
    for (size_t i = 0; i < g->n_key; i++) // all of them, whichever it is
        if (equal_in_constant_time(sent, g->key[i].text))
            found = &g->key[i];
    return found;
}

lg_status lg_guard_key(const lg_guard *g, lg_request *rq, lg_api_error *e)
{
    lg_str bearer = trimmed(lg_request_header(rq, "authorization"));
    const key *k;

    if (g->n_key == 0)
        return LG_OK;
    if (bearer.n > 7 && strncasecmp(bearer.p, "bearer ", 7) == 0)
        bearer = trimmed((lg_str){bearer.p + 7, bearer.n - 7});
    else
        bearer.n = 0;
    k = find_key(g, bearer);
    if (!k)
        k = find_key(g, trimmed(lg_request_header(rq, "x-api-key")));
    if (!k)
        k = find_key(g, trimmed(lg_request_header(rq, "api-key")));
    if (!k)
        return lg_api_fail(
            e, LG_API_KEY, NULL,
            "no valid API key: send one as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
    rq->key = k->hash;
    if (k->name)
        (void)snprintf(rq->client, sizeof rq->client, "%s", k->name);
    return LG_OK;
}

void lg_guard_client(const lg_request *rq, char out[32])
{
    lg_str agent = lg_request_header(rq, "user-agent");
    size_t n = 0;
    int dots = 0;

    for (size_t i = 0; i < agent.n && n < 31; i++) {
        unsigned char c = (unsigned char)agent.p[i];

        if (c == ' ' || (c == '.' && memchr(agent.p, '/', i) && ++dots == 2))
            break;
        out[n++] = c > 0x20 && c < 0x7F && c != '=' && c != '"' ? (char)c : '?';
    }
    out[n] = '\0';
}
