/*
 * server/answer: one request from its headers to its last byte, on the connection's thread: route, guard,
 * parse, queue, and then the job's events through the dialect, streamed or collected.
 *
 * The state of a request is a `call` in the request's arena. While it waits for the engine it looks at the
 * socket (lg_http_wait); a client that is gone cancels its job, and the connection leaves without waiting for
 * the engine.
 *
 * Surprise: the end of a client's input alone does not say that it is gone. A stream answers it with a
 * keep-alive at once, which a dead peer meets with a reset; where nothing may be written yet it counts as
 * gone (api.md 1.6).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/request.h"
#include "server/server_int.h"
#include "server/status.h"

enum {
    SPACE_PING_US = 10 * 1000 * 1000,
    LOOK_US = 20000,       // at the socket, while events come one after the other
    FIRST_LOOK_MS = 50,    // for the first event, before a stream opens
    NAP_US = 10000,        // between writes of a stream whose events come faster: 100 a second look smooth
    PIECE_BYTES = 16 << 10, // of what is ready, in one write
    JSON_DEPTH = 512,
    JSON_VALUES = 1 << 19, // a value takes up to 350 bytes
    LARGE_BODY = 256 << 10,
    ARENA_BASE = 16 << 20,
};

typedef struct call {
    lg_server *s;
    lg_request *rq;
    const lg_route *route; // NULL: none
    lg_error_shape shape;
    lg_job *job;
    lg_job_admission admission;
    lg_ping ping;
    uint64_t ping_us;      // longest silence
    bool spaces;           // the keep-alive of an answer that is not streamed
    // progress
    bool opened, ended, gone, half;
    bool hurried;          // events come faster than NAP_US
    uint64_t wrote_us, looked_us;
    // the account
    lg_gen_stats sum;
    int n_call;
    bool failed;
    lg_api_error error;
} call;

// --- errors and headers ---

static void common_headers(const lg_server *s, const lg_request *rq, lg_error_shape shape, lg_response *out)
{
    if (!rq || !rq->id[0])
        return;
    lg_response_header(out, "x-request-id", "%s", rq->id);
    if (shape == LG_SHAPE_ANTHROPIC)
        lg_response_header(out, "request-id", "%s", rq->id);
    lg_guard_cors(s->guard, rq, false, out);
}

static void respond_error(call *c, const lg_api_error *e, lg_response *out)
{
    out->status = lg_api_status(e);
    out->type = "application/json";
    lg_buf_clear(&out->body);
    lg_api_error_json(e, c->shape, c->rq->id, &out->body);
    common_headers(c->s, c->rq, c->shape, out);
    if (e->kind == LG_API_QUEUE_FULL)
        lg_response_header(out, "Retry-After", "1");
    else if (e->kind == LG_API_LOADING)
        lg_response_header(out, "Retry-After", "5");
    else if (e->kind == LG_API_KEY)
        lg_response_header(out, "WWW-Authenticate", "Bearer");
    c->failed = true;
    c->error = *e;
}

static void respond(call *c, int status, const char *type, lg_response *out)
{
    if (out->body.failed) {
        lg_api_error e;

        (void)lg_api_fail(&e, LG_API_INTERNAL, NULL, "out of memory");
        respond_error(c, &e, out);
        return;
    }
    out->status = status;
    out->type = type;
    common_headers(c->s, c->rq, c->shape, out);
}

void lg_answer_refuse(void *ctx, const lg_request *rq, int status, lg_response *out)
{
    static const struct {
        int status;
        lg_api_kind kind;
        const char *text;
    } kinds[] = {
        {408, LG_API_TIMEOUT, "the request did not arrive in time"},
        {413, LG_API_TOO_LARGE, "the body is larger than max_body_bytes allows"},
        {429, LG_API_QUEUE_FULL, "too many large requests at the same time"},
        {431, LG_API_HEADERS, "the headers are larger than 64 KiB"},
    };
    lg_server *s = ctx;
    lg_api_error e;
    call *c = rq ? rq->user : NULL;

    (void)lg_api_fail(&e, LG_API_INTERNAL, NULL, "internal error");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].status == status)
            (void)lg_api_fail(&e, kinds[i].kind, NULL, "%s", kinds[i].text);
    out->close = true;
    if (c) {
        respond_error(c, &e, out);
        return;
    }
    out->status = status;
    lg_api_error_json(&e, LG_SHAPE_OPENAI, NULL, &out->body);
    common_headers(s, rq, LG_SHAPE_OPENAI, out);
}

// --- headers ---

static bool valid_id(lg_str id)
{
    if (id.n == 0 || id.n > LG_REQUEST_ID_MAX)
        return false;
    for (size_t i = 0; i < id.n; i++) {
        char ch = id.p[i];

        if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '.' ||
              ch == '_' || ch == '-'))
            return false;
    }
    return true;
}

static void name_request(lg_request *rq)
{
    lg_str id = lg_request_header(rq, "x-request-id");

    if (valid_id(id))
        (void)snprintf(rq->id, sizeof rq->id, "%.*s", (int)id.n, id.p);
    else
        lg_random_id("req_", rq->id, 40);
}

static lg_status refuse_coding(const lg_request *rq, lg_api_error *e)
{
    lg_str coding = lg_request_header(rq, "content-encoding");

    if (coding.n == 0 || lg_str_eqz(coding, "identity"))
        return LG_OK;
    return lg_api_fail(e, LG_API_MEDIA_TYPE, "content-encoding",
                       "Content-Encoding %.*s is not supported; send the body plain",
                       (int)(coding.n < 40 ? coding.n : 40), coding.p);
}

static void preflight(call *c, lg_response *out)
{
    out->status = 204;
    out->type = NULL;
    lg_response_header(out, "x-request-id", "%s", c->rq->id);
    lg_guard_cors(c->s->guard, c->rq, true, out);
}

static lg_status no_route(call *c, lg_api_error *e)
{
    int n = atomic_fetch_add(&c->s->unknown_paths, 1);
    int shown = (int)(c->rq->target.n < 120 ? c->rq->target.n : 120);
    char path[128];

    if (n == 0)
        LG_INFO("http", "unknown-path", "path=%s (further ones are not logged)",
                lg_log_value(c->rq->target, path, sizeof path));
    return lg_api_fail(e, LG_API_NOT_FOUND, NULL, "%.*s %.*s is nothing that this server has",
                       (int)(c->rq->method.n < 20 ? c->rq->method.n : 20), c->rq->method.p, shown,
                       c->rq->target.p);
}

static lg_status check(call *c, lg_found found, lg_response *out, lg_api_error *e)
{
    bool open = found == LG_FOUND && c->route->open;

    LG_TRY(lg_guard_site(c->s->guard, c->rq, e));
    if (found == LG_FOUND && c->route->kind == LG_ROUTE_METRICS && c->s->set->metrics_public)
        open = true;
    if (!open)
        LG_TRY(lg_guard_key(c->s->guard, c->rq, e));
    if (found == LG_FOUND_NOTHING)
        return no_route(c, e);
    if (found == LG_FOUND_METHOD) {
        const char *allow = lg_route_allow(c->s->set, c->rq);

        lg_response_header(out, "Allow", "%s", allow);
        return lg_api_fail(e, LG_API_METHOD, NULL, "%s takes %s", c->route->path, allow);
    }
    LG_TRY(refuse_coding(c->rq, e));
    if (!c->route->loading && atomic_load(&c->s->service) == &c->s->loading)
        return lg_jobs_get_state(c->s->jobs) == LG_JOBS_STOPPING
                   ? lg_api_fail(e, LG_API_STOPPING, NULL, "the server is shutting down")
                   : lg_api_fail(e, LG_API_LOADING, NULL, "Loading model");
    return LG_OK;
}

void lg_answer_begin(void *ctx, lg_request *rq, lg_response *out)
{
    lg_server *s = ctx;
    call *c = LG_NEW(&rq->arena, call);
    lg_api_error e;
    bool doubled;
    const char *path;
    lg_found found;

    name_request(rq);
    path = c ? lg_route_path(rq, &doubled) : NULL;
    if (!path) {
        lg_answer_refuse(ctx, rq, 431, out);
        return;
    }
    rq->path = lg_str_of(path);
    rq->user = c;
    rq->anthropic = lg_request_header(rq, "anthropic-version").n > 0;
    lg_guard_client(rq, rq->client);
    c->s = s;
    c->rq = rq;
    found = lg_route_find(s->set, rq, &c->route);
    c->shape = c->route ? c->route->shape : rq->anthropic ? LG_SHAPE_ANTHROPIC : LG_SHAPE_OPENAI;
    if (doubled && !atomic_exchange(&s->doubled, true)) {
        char shown[128];

        LG_WARN("http", "doubled-prefix", "path=%s the client's base URL has /v1 too much",
                lg_log_value(rq->target, shown, sizeof shown));
    }
    if (lg_str_eqz(rq->method, "OPTIONS"))
        preflight(c, out);
    else if (check(c, found, out, &e) != LG_OK)
        respond_error(c, &e, out);
}

// --- events of a job ---

static void add_choice(call *c, const lg_gen_stats *s)
{
    lg_gen_stats *sum = &c->sum;

    if (sum->prompt_tokens == 0) {
        sum->prompt_tokens = s->prompt_tokens;
        sum->cached_tokens = s->cached_tokens;
        sum->prefill_us = s->prefill_us;
        sum->first_token_us = s->first_token_us;
    }
    sum->output_tokens += s->output_tokens;
    sum->think_tokens += s->think_tokens;
    sum->decode_us += s->decode_us;
    sum->draft.drafted += s->draft.drafted;
    sum->draft.accepted += s->draft.accepted;
    sum->end = s->end;
    sum->finish = s->finish;
}

static void take_event(call *c, const lg_job_event *ev, lg_buf *out)
{
    const lg_dialect *d = c->job->dialect;

    switch (ev->kind) {
    case LG_JOB_END:
        c->ended = true;
        d->finish(c->job, out);
        return;
    case LG_JOB_ERROR:
        c->ended = c->failed = true;
        c->error = *ev->error;
        if (c->job->stream)
            d->fail(c->job, ev->error, out);
        return;
    case LG_JOB_CHOICE_END:
        add_choice(c, ev->stats);
        break;
    case LG_JOB_REPLY:
        c->n_call += ev->reply.kind == LG_EV_TOOL_START;
        break;
    case LG_JOB_PROGRESS:
    case LG_JOB_TOKEN: break;
    }
    d->event(c->job, ev, out);
}

static void add_ping(call *c, lg_buf *out)
{
    if (c->spaces)
        (void)lg_buf_addc(out, ' ');
    else if (c->ping == LG_PING_EVENT)
        (void)lg_buf_addz(out, "event: ping\ndata: {\"type\": \"ping\"}\n\n");
    else if (c->ping == LG_PING_COMMENT)
        (void)lg_buf_addz(out, ": ping\n\n");
}

static bool may_ping(const call *c)
{
    return c->spaces || (c->job->stream && c->ping != LG_PING_NONE);
}

/* Look at the socket, waiting up to `ms` for the job; what is found may be a keep-alive in `out`. True when
 * the job ended the wait. */
static bool look(call *c, int ms, lg_buf *out)
{
    c->looked_us = lg_now_us();
    switch (lg_http_wait(c->rq, ms > 0 ? lg_job_fd(c->job) : -1, ms)) {
    case LG_WAIT_GONE:
        c->gone = true;
        break;
    case LG_WAIT_HALF:
        if (may_ping(c))
            add_ping(c, out);
        else
            c->gone = true;
        break;
    case LG_WAIT_WOKEN: return true;
    case LG_WAIT_TIME: break;
    }
    return false;
}

/* A connection that wakes for each token of a fast model takes the core that computes the next one. So while
 * events come faster than NAP_US it sleeps that long behind each write; only the job's end cuts it short.
 * True when it slept. */
static bool nap(call *c, uint64_t now, lg_buf *out)
{
    uint64_t until = c->wrote_us + NAP_US;

    if (!c->hurried || now >= until || lg_job_at_hand(c->job)) // the end may be among what is at hand
        return false;
    if (look(c, (int)((until - now + 999) / 1000), out))
        c->hurried = false;
    return true;
}

/* One step: an event, or a wait. Returns with something in `out`, or ended, or gone, or neither. */
static void step(call *c, lg_buf *out)
{
    lg_job_event ev;
    uint64_t now = lg_now_us(), due = c->wrote_us + c->ping_us;

    if (may_ping(c) && now >= due) {
        add_ping(c, out);
        return;
    }
    if (nap(c, now, out))
        return;
    if (lg_job_take(c->job, &ev)) {
        c->hurried = c->job->stream && (c->hurried || now < c->wrote_us + NAP_US);
        take_event(c, &ev, out);
        if (out->n == 0 && !c->ended && now - c->looked_us >= LOOK_US)
            (void)look(c, 0, out);
        return;
    }
    c->hurried = false;
    (void)look(c, may_ping(c) ? (int)((due - now) / 1000) + 1 : 60000, out);
}

/* What is ready behind the first event goes out with it. */
static void gather(call *c, lg_buf *out)
{
    lg_job_event ev;

    while (out->n > 0 && out->n < PIECE_BYTES && !c->ended && !c->gone && lg_job_take_more(c->job, &ev))
        take_event(c, &ev, out);
}

static void let_go(call *c)
{
    if (!c->job)
        return;
    if (!c->ended)
        lg_jobs_cancel(c->s->jobs, c->job);
}

/* Opening events show how much of the prompt is cached. A job that runs at once knows that in a moment: its
 * first event says so. One that queues opens a moment later than it could. */
static void open_stream(call *c, lg_buf *out)
{
    lg_job_event ev;
    bool has = false;

    c->opened = true;
    if (!c->job->stream)
        return;
    has = lg_job_take(c->job, &ev);
    if (!has) {
        (void)look(c, FIRST_LOOK_MS, out);
        has = lg_job_take(c->job, &ev);
    }
    if (has && ev.kind == LG_JOB_PROGRESS)
        c->admission.cached_tokens = ev.done;
    lg_buf_clear(out); // nothing comes before the opening, not even a keep-alive
    c->job->dialect->open(c->job, &c->admission, out);
    if (has)
        take_event(c, &ev, out);
}

static lg_stream_state next_piece(void *ctx, lg_buf *out)
{
    call *c = ctx;

    if (c->gone)
        return LG_STREAM_BROKEN;
    if (c->ended)
        return LG_STREAM_END;
    if (!c->opened)
        open_stream(c, out);
    while (out->n == 0 && !c->ended && !c->gone)
        step(c, out);
    gather(c, out);
    if (c->ended && c->failed && !c->job->stream) // an answer of spaces: the status is out already
        lg_api_error_json(&c->error, c->shape, c->rq->id, out);
    c->wrote_us = lg_now_us();
    if (c->gone) {
        let_go(c);
        return LG_STREAM_BROKEN;
    }
    return out->n > 0 ? LG_STREAM_MORE : LG_STREAM_END;
}

static void event_headers(call *c, lg_response *out)
{
    out->status = 200;
    common_headers(c->s, c->rq, c->shape, out);
    out->type = "text/event-stream; charset=utf-8";
    lg_response_header(out, "Cache-Control", "no-cache");
    lg_response_header(out, "X-Accel-Buffering", "no");
}

static void start_stream(call *c, lg_response *out)
{
    out->stream = (lg_stream){.next = next_piece, .ctx = c};
    if (c->job->stream) {
        event_headers(c, out);
        return;
    }
    out->status = 200;
    common_headers(c->s, c->rq, c->shape, out);
}

static void collect(call *c, lg_response *out)
{
    while (!c->ended && !c->gone)
        step(c, &out->body);
    if (c->gone)
        let_go(c);
    else if (c->failed)
        respond_error(c, &c->error, out);
    else
        respond(c, 200, "application/json", out);
}

// --- a job ---

static lg_ping ping_of(const lg_settings *set, const lg_dialect *d)
{
    if (strcmp(set->sse_ping, "off") == 0)
        return LG_PING_NONE;
    if (strcmp(set->sse_ping, "comment") == 0)
        return LG_PING_COMMENT;
    return strcmp(set->sse_ping, "event") == 0 ? LG_PING_EVENT : d->ping;
}

static lg_status parse_body(call *c, lg_json_doc **doc, lg_api_error *e)
{
    lg_json_limits lim = {.max_bytes = c->s->set->max_body_bytes,
                          .max_depth = JSON_DEPTH,
                          .repair = true,
                          .max_values = JSON_VALUES};
    lg_err err = {0};

    *doc = NULL;
    if (lg_json_parse(lg_buf_str(&c->rq->body), &lim, doc, &err) != LG_OK) {
        (void)lg_api_from_err(e, &err);
        if (e->kind == LG_API_INVALID)
            (void)lg_api_fail(e, LG_API_INVALID, NULL, "the body is not JSON: %s", err.msg);
        return LG_E_INPUT;
    }
    if (!lg_json_is(lg_json_root(*doc), LG_JSON_OBJECT)) {
        lg_json_free(*doc);
        *doc = NULL;
        return lg_api_fail(e, LG_API_INVALID, NULL, "the body must be a JSON object");
    }
    return LG_OK;
}

// In place of a queue reservation, a job in the queue.
static lg_status submit(call *c, const lg_service *v, lg_api_error *e)
{
    lg_job *job;
    lg_err err = {0};

    if (lg_job_create(ARENA_BASE + 4 * c->rq->body.n, &c->job, &err) != LG_OK)
        return lg_api_from_err(e, &err);
    job = c->job;
    job->dialect = c->route->dialect;
    job->created = (int64_t)time(NULL);
    job->ctx = v->n_ctx;
    job->family = v->family;
    job->client = lg_str_of(lg_arena_dup(&job->arena, c->rq->client, strlen(c->rq->client)));
    (void)snprintf(job->request_id, sizeof job->request_id, "%s", c->rq->id);
    if (strcmp(c->s->set->cache_scope, "key") == 0)
        job->scope = c->rq->key;
    LG_TRY(parse_body(c, &job->doc, e));
    lg_http_body_done(c->rq);
    lg_unknown_log(&c->s->unknown, job->dialect, lg_json_root(job->doc));
    LG_TRY(job->dialect->parse(v, c->rq, lg_json_root(job->doc), job, e));
    LG_ASSERT(job->prompt.n > 0 && job->n_choice > 0 && job->max_tokens > 0);
    c->ping = ping_of(c->s->set, job->dialect);
    if (!job->stream)
        lg_job_collect(job);
    c->spaces = !job->stream && c->s->set->json_leading_space_ping;
    c->ping_us = c->spaces ? SPACE_PING_US : (uint64_t)(c->s->set->sse_ping_s * 1e6);
    c->wrote_us = lg_now_us();
    return LG_OK;
}

// Of whom a record is: of nobody that is known, "-".
static const char *client_value(const char *client, char out[LG_LOG_VALUE])
{
    return lg_log_value(client[0] ? lg_str_of(client) : LG_STR("-"), out, LG_LOG_VALUE);
}

static void log_admission(const call *c)
{
    char client[LG_LOG_VALUE], id[LG_LOG_VALUE];

    LG_INFO("http", "admit", "id=%s dialect=%s client=%s in=%lld cached=%lld queue=%d req=%s",
            lg_job_tag(c->job), c->route->name, client_value(c->rq->client, client),
            (long long)c->admission.prompt_tokens, (long long)c->admission.cached_tokens,
            c->admission.queue_position, lg_log_value(lg_str_of(c->rq->id), id, sizeof id));
}

static void serve_job(call *c, lg_response *out)
{
    lg_api_error e;
    lg_status st = lg_jobs_reserve(c->s->jobs, &e);

    if (st == LG_OK) {
        st = submit(c, atomic_load(&c->s->service), &e);
        if (st == LG_OK)
            st = lg_jobs_submit(c->s->jobs, c->job, &c->admission, &e);
        else
            lg_jobs_unreserve(c->s->jobs);
    }
    if (st != LG_OK) {
        lg_job_release(c->job); // nobody else has it
        c->job = NULL;
        respond_error(c, &e, out);
        return;
    }
    log_admission(c);
    if (c->job->stream || c->spaces)
        start_stream(c, out);
    else
        collect(c, out);
}

// --- what needs no engine ---

static lg_status run_util(call *c, lg_response *out, lg_api_error *e)
{
    const lg_service *v = atomic_load(&c->s->service);
    lg_json_doc *doc = NULL;
    lg_arena a;
    lg_status st = LG_OK;

    lg_arena_init(&a, ARENA_BASE + 4 * c->rq->body.n);
    if (c->route->method == LG_POST)
        st = parse_body(c, &doc, e);
    if (st == LG_OK)
        st = c->route->util(v, c->rq, doc ? lg_json_root(doc) : NULL, &a, &out->body, e);
    lg_json_free(doc);
    lg_arena_free(&a);
    return st;
}

// The queue bounds what jobs take together; of what needs no queue, large bodies are worked on one by one.
static void serve_util(call *c, lg_response *out)
{
    bool large = c->rq->body.n > LARGE_BODY;
    lg_api_error e;
    lg_status st;

    if (large)
        (void)pthread_mutex_lock(&c->s->large);
    st = run_util(c, out, &e);
    if (large)
        (void)pthread_mutex_unlock(&c->s->large);
    if (st == LG_OK)
        respond(c, 200, "application/json", out);
    else
        respond_error(c, &e, out);
}

static void serve_health(call *c, lg_response *out)
{
    lg_jobs_state state = lg_jobs_get_state(c->s->jobs);
    int status = state == LG_JOBS_READY ? 200 : 503;

    lg_status_health(state, &out->body);
    if (state == LG_JOBS_LOADING)
        lg_response_header(out, "Retry-After", "5");
    respond(c, status, "application/json", out);
}

static void serve_events(call *c, lg_response *out)
{
    lg_api_error e;

    if (lg_watch_open(c->s, c->rq, &out->stream, &e) == LG_OK)
        event_headers(c, out);
    else
        respond_error(c, &e, out);
}

void lg_answer_handle(void *ctx, lg_request *rq, lg_response *out)
{
    call *c = rq->user;
    lg_server *s = ctx;
    lg_snapshot now;

    atomic_store(&s->last_request_us, lg_now_us());
    switch (c->route->kind) {
    case LG_ROUTE_JOB:
        serve_job(c, out);
        return;
    case LG_ROUTE_UTIL:
        serve_util(c, out);
        return;
    case LG_ROUTE_HEALTH:
        serve_health(c, out);
        return;
    case LG_ROUTE_METRICS:
        lg_snapshot_read(s->snapshot, &now);
        lg_metrics_write(s->metrics, &now, s->jobs, &out->body);
        respond(c, 200, "text/plain; version=0.0.4; charset=utf-8", out);
        return;
    case LG_ROUTE_SLOTS:
    case LG_ROUTE_STATUS:
        (c->route->kind == LG_ROUTE_SLOTS ? lg_status_slots : lg_status_json)(s, &out->body);
        respond(c, 200, "application/json", out);
        return;
    case LG_ROUTE_EVENTS:
        serve_events(c, out);
        return;
    }
}

// --- the end ---

static const char *finish_word(const call *c)
{
    if (c->gone || !c->ended)
        return "cancelled";
    if (c->failed)
        return "error";
    if (c->sum.finish == LG_FINISH_TOOL_CALLS && c->sum.end != LG_END_CANCELLED)
        return "tool_calls";
    switch (c->sum.end) {
    case LG_END_CANCELLED: return "cancelled";
    case LG_END_STOP_STRING: return "stop_string";
    case LG_END_SCHEMA: return "schema";
    case LG_END_EOG:
    case LG_END_LENGTH: break;
    }
    return c->sum.finish == LG_FINISH_LENGTH ? "length" : "stop";
}

static double tokens_a_second(const lg_gen_stats *s)
{
    return s->decode_us > 0 && s->output_tokens > 1
               ? (double)(s->output_tokens - 1) * 1e6 / (double)s->decode_us : 0;
}

// A job that did not come to its end has no account of it; what was done until now is known all the same.
static void take_partial(const call *c, uint64_t first, lg_recent_row *r)
{
    lg_job_account a = lg_job_so_far(c->job);
    uint64_t now = lg_now_us();

    r->cached = a.cached;
    r->think = a.thinking;
    r->out = a.output - a.thinking;
    if (first > 0 && now > first && a.output > 1)
        r->tok_s = (double)(a.output - 1) * 1e6 / (double)(now - first);
}

static lg_recent_row row_of(const call *c, int status)
{
    const lg_gen_stats *s = &c->sum;
    uint64_t first = c->job ? lg_job_first_us(c->job) : 0;
    lg_recent_row r = {.t = (int64_t)time(NULL), .status = status, .finish = "error", .accept = -1,
                       .ms = (lg_now_us() - c->rq->start_us) / 1000};

    (void)snprintf(r.dialect, sizeof r.dialect, "%s", c->route->name);
    (void)snprintf(r.client, sizeof r.client, "%s", c->rq->client);
    if (!c->job)
        return r;
    (void)snprintf(r.id, sizeof r.id, "%s", lg_job_tag(c->job));
    r.finish = finish_word(c);
    r.calls = c->n_call;
    r.prompt = (int64_t)c->job->prompt.n;
    r.cached = s->cached_tokens;
    r.think = s->think_tokens;
    r.out = s->output_tokens - s->think_tokens;
    r.queue_ms = lg_job_queue_us(c->job) / 1000;
    r.ttft_ms = first ? (first - c->rq->start_us) / 1000 : 0;
    r.tok_s = tokens_a_second(s);
    if (!c->ended || c->failed)
        take_partial(c, first, &r);
    if (s->draft.drafted > 0)
        r.accept = (double)s->draft.accepted / (double)s->draft.drafted;
    return r;
}

static void log_job(const call *c, const lg_recent_row *r)
{
    char accept[32] = "", client[LG_LOG_VALUE];

    if (r->accept >= 0)
        (void)snprintf(accept, sizeof accept, " accept=%.2f", r->accept);
    LG_INFO(
        "http", "done",
        "id=%s dialect=%s client=%s status=%d in=%lld cached=%lld think=%lld out=%lld tools=%d queue_ms=%llu "
        "ttft_ms=%llu tok_s=%.1f%s finish=%s%s%s",
        r->id, r->dialect, client_value(r->client, client), r->status, (long long)r->prompt,
        (long long)r->cached, (long long)r->think, (long long)r->out, r->calls,
        (unsigned long long)r->queue_ms, (unsigned long long)r->ttft_ms, r->tok_s, accept, r->finish,
        c->failed ? " code=" : "", c->failed ? lg_api_word(&c->error) : "");
}

/* Counted before it is logged: whoever waits for the line finds the request in every number. */
void lg_answer_done(void *ctx, lg_request *rq, int status)
{
    lg_server *s = ctx;
    call *c = rq->user;
    const lg_route *route = c ? c->route : NULL;
    char client[LG_LOG_VALUE];
    lg_recent_row row;

    if (c && c->job) {
        let_go(c);
        if (!c->ended || c->gone)
            status = 499;
    }
    lg_metrics_request(s->metrics, route ? route->name : NULL, status, lg_now_us() - rq->start_us);
    if (!route || route->kind != LG_ROUTE_JOB)
        return;
    row = row_of(c, status);
    lg_recent_add(s->recent, &row);
    if (c->job)
        log_job(c, &row);
    else // the message may quote the request, so it is for the client alone
        LG_INFO("http", "done", "dialect=%s client=%s status=%d code=%s", route->name,
                client_value(rq->client, client), status, c->failed ? lg_api_word(&c->error) : "-");
    lg_job_release(c->job);
    c->job = NULL;
}
