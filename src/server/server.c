/*
 * server/server: see server.h. Puts the parts together and takes them apart in the right order: no new
 * connections, the engine thread ends, responses go out, connections end, memory goes.
 */
#include "server/server.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "server/server_int.h"

enum {
    PEM_MAX = 1 << 20,
    REPLAY_BYTES = 64 << 20,
    GRAMMAR_BYTES = 64 << 20,
    SHOWN_BYTES = 16 << 20,
    HEADER_BYTES = 64 << 10,
    HEADER_S = 30, BODY_S = 30, WRITE_S = 60, IDLE_S = 75,
    FLUSH_MS = 10000, // for responses that are complete but not out: a slow line, a busy machine
};

static void on_tick(void *ctx, uint64_t paused_us)
{
    lg_server *s = ctx;

    if (paused_us > 0) {
        LG_INFO("server", "paused", "seconds=%.1f", (double)paused_us / 1e6);
        atomic_fetch_add(&s->last_request_us, paused_us);
    }
    lg_jobs_tick(s->jobs, paused_us);
}

static lg_status read_pem(const char *path, char **out, lg_err *err)
{
    size_t n;
    char *grown;

    LG_TRY(lg_read_all(path, PEM_MAX, out, &n, err));
    grown = realloc(*out, n + 1);
    if (!grown)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    grown[n] = '\0';
    *out = grown;
    return LG_OK;
}

static lg_status read_tls(lg_server *s, lg_err *err)
{
    if (!*s->set->tls_cert || !*s->set->tls_key)
        return LG_OK;
    LG_TRY(read_pem(s->set->tls_cert, &s->cert, err));
    LG_TRY(read_pem(s->set->tls_key, &s->cert_key, err));
    s->tls = true;
    return LG_OK;
}

static lg_status listen_on(lg_server *s, lg_err *err)
{
    lg_http_params p = {
        .host = s->set->host,
        .port = (int)s->set->port,
        .tls_cert = s->cert,
        .tls_key = s->cert_key,
        .max_body_bytes = s->set->max_body_bytes,
        .max_header_bytes = HEADER_BYTES,
        .max_connections = (int)s->set->max_connections,
        .header_s = HEADER_S,
        .body_s = BODY_S,
        .write_s = WRITE_S,
        .idle_s = IDLE_S,
        .handler = {.ctx = s,
                    .begin = lg_answer_begin,
                    .handle = lg_answer_handle,
                    .refuse = lg_answer_refuse,
                    .done = lg_answer_done,
                    .tick = on_tick},
    };

    return lg_http_open(&p, &s->http, err);
}

static lg_status make_parts(lg_server *s, lg_err *err)
{
    lg_jobs_params jobs = {.capacity = (int)s->set->queue_capacity,
                           .fifo = strcmp(s->set->schedule, "fifo") == 0};

    LG_TRY(lg_guard_create(s->set, &s->guard, err));
    LG_TRY(lg_jobs_create(&jobs, &s->jobs, err));
    LG_TRY(lg_metrics_create(&s->metrics, err));
    LG_TRY(lg_snapshot_create(&s->snapshot, err));
    LG_TRY(lg_recent_create(&s->recent, err));
    LG_TRY(lg_replay_create(REPLAY_BYTES, &s->replay, err));
    if (s->set->responses_store > 0)
        LG_TRY(lg_store_create((size_t)s->set->responses_store, &s->store, err));
    LG_TRY(lg_constraint_cache_create(GRAMMAR_BYTES, &s->constraints, err));
    LG_TRY(read_tls(s, err));
    s->loading = (lg_service){.set = s->set,
                              .model_id = s->p.model_id,
                              .model_path = s->p.engine.model_path,
                              .created = (int64_t)time(NULL),
                              .replay = s->replay,
                              .store = s->store,
                              .constraints = s->constraints};
    atomic_store(&s->service, &s->loading);
    if (pipe(s->ended_pipe) != 0)
        return LG_FAIL(err, LG_E_IO, "no more descriptors: %s", strerror(errno));
    return LG_OK;
}

lg_status lg_server_open(const lg_server_params *p, lg_server **out, lg_err *err)
{
    lg_server *s = calloc(1, sizeof *s);
    lg_status st;

    if (!s)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    s->p = *p;
    s->set = p->set;
    s->ended_pipe[0] = s->ended_pipe[1] = -1;
    (void)pthread_mutex_init(&s->large, NULL);
    (void)pthread_mutex_init(&s->shown_lock, NULL);
    (void)pthread_mutex_init(&s->unknown.lock, NULL);
    lg_buf_init(&s->shown_prompt, SHOWN_BYTES);
    atomic_store(&s->last_request_us, lg_now_us());
    st = make_parts(s, err);
    if (st == LG_OK)
        st = listen_on(s, err);
    if (st == LG_OK && pthread_create(&s->runner, NULL, lg_runner_main, s) != 0)
        st = LG_FAIL(err, LG_E_NOMEM, "no thread for the engine");
    else if (st == LG_OK)
        s->runner_started = true;
    if (st == LG_OK)
        *out = s;
    else
        lg_server_close(s);
    return st;
}

static void stop_runner(lg_server *s)
{
    if (!s->runner_started)
        return;
    lg_jobs_stop(s->jobs, 0);
    (void)pthread_join(s->runner, NULL);
    s->runner_started = false;
}

void lg_server_close(lg_server *s)
{
    if (!s)
        return;
    stop_runner(s);
    atomic_store(&s->over, true);
    lg_http_close(s->http);
    lg_engine_close(s->engine);
    lg_buf_free(&s->last_content);
    lg_buf_free(&s->last_reasoning);
    lg_constraint_cache_destroy(s->constraints);
    lg_store_destroy(s->store);
    lg_replay_destroy(s->replay);
    lg_recent_destroy(s->recent);
    lg_snapshot_destroy(s->snapshot);
    lg_metrics_destroy(s->metrics);
    lg_jobs_destroy(s->jobs);
    lg_guard_destroy(s->guard);
    for (int i = 0; i < 2; i++)
        if (s->ended_pipe[i] >= 0)
            (void)close(s->ended_pipe[i]);
    (void)pthread_mutex_destroy(&s->large);
    (void)pthread_mutex_destroy(&s->shown_lock);
    (void)pthread_mutex_destroy(&s->unknown.lock);
    lg_buf_free(&s->shown_prompt);
    free(s->cert);
    free(s->cert_key);
    free(s);
}

int lg_server_port(const lg_server *s)
{
    return lg_http_port(s->http);
}

bool lg_server_tls(const lg_server *s)
{
    return s->tls;
}

// How many signals have come; waits up to `ms` for the first.
static int signals(int fd, int ended_fd, int ms, bool *ended)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = ended_fd, .events = POLLIN}};
    char bytes[16];
    ssize_t n;

    if (poll(p, 2, ms) <= 0)
        return 0;
    *ended = *ended || (p[1].revents & POLLIN);
    if (!(p[0].revents & POLLIN))
        return 0;
    n = read(fd, bytes, sizeof bytes);
    return n > 0 ? (int)n : 0;
}

static bool idle_too_long(const lg_server *s)
{
    uint64_t now, last;

    if (s->set->idle_exit <= 0 || lg_jobs_get_state(s->jobs) == LG_JOBS_LOADING || !lg_jobs_empty(s->jobs))
        return false;
    now = lg_now_us();
    last = atomic_load(&s->last_request_us); // behind the state: set when the loading was over
    return now > last && (double)(now - last) / 1e6 >= s->set->idle_exit;
}

lg_server_end lg_server_run(lg_server *s, int signal_fd, lg_err *err)
{
    int count = 0;
    bool ended = false, told = false;

    while (!ended && count == 0) {
        count += signals(signal_fd, s->ended_pipe[0], 500, &ended);
        if (!ended && count == 0 && idle_too_long(s)) {
            LG_INFO("server", "idle", "seconds=%.0f", s->set->idle_exit);
            count = 1;
        }
    }
    if (ended && count == 0) { // only a model that cannot be loaded ends the engine thread unasked
        *err = s->load_err;
        return LG_SERVER_FAILED;
    }
    if (lg_jobs_get_state(s->jobs) == LG_JOBS_LOADING)
        return LG_SERVER_UNLOADED;
    LG_INFO("server", "stopping", "grace_s=%.0f", s->set->stop_grace);
    lg_jobs_stop(s->jobs, count > 1 ? 0 : (uint64_t)(s->set->stop_grace * 1e6));
    while (!ended) {
        count += signals(signal_fd, s->ended_pipe[0], 200, &ended);
        if (count > 1 && !told && !ended) {
            told = true;
            LG_INFO("server", "cutting", "signals=%d", count);
            lg_jobs_stop(s->jobs, 0);
        }
    }
    atomic_store(&s->over, true);
    lg_http_drain(s->http, FLUSH_MS);
    LG_INFO("server", "stopped", "signals=%d", count);
    return count > 1 ? LG_SERVER_CUT : LG_SERVER_STOPPED;
}
