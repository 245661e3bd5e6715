/*
 * app/cmd_serve: `lagoon serve`, which is also the bare `lagoon`: the HTTP server with plain logs on stderr.
 *
 * Signals become bytes on a pipe, so that all work about a stop is done on the main thread; a third one ends
 * the process in the handler, whatever hangs.
 *
 * Surprise: records of level info are shown here unless log_level says otherwise: a server that is silent
 * about its requests cannot be looked after.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "app/commands.h"
#include "app/logs.h"
#include "base/log.h"
#include "server/server.h"

typedef struct own {
    lg_common common;
} own;

static const lg_option options[] = {LG_COMMON_OPTIONS(own), LG_OPTION_END};

static const lg_setting_id settings[] = {
    LG_MODEL_SETTINGS, LG_SET_chat_template, LG_SET_fim_order, LG_SET_host, LG_SET_port, LG_SET_api_key,
    LG_SET_api_key_file, LG_SET_tls_cert, LG_SET_tls_key, LG_SET_cors, LG_SET_allowed_hosts,
    LG_SET_metrics_public, LG_SET_slots_debug, LG_SET_dialects, LG_SET_max_body_bytes, LG_SET_max_connections,
    LG_SET_stop_grace,
    LG_SET_idle_exit, LG_SET_model_policy, LG_SET_model_aliases, LG_SET_strict_status, LG_SET_sse_ping_s,
    LG_SET_sse_ping, LG_SET_json_leading_space_ping, LG_SET_reasoning_field, LG_SET_reasoning_format,
    LG_SET_usage_on_finish, LG_SET_drop_images, LG_SET_anthropic_default_thinking, LG_SET_forced_tools,
    LG_SET_strict_tools, LG_SET_format_with_tools, LG_SET_responses_store, LG_SET_cache_slots,
    LG_SET_cache_ram, LG_SET_cache_scope, LG_SET_idle_prefill, LG_SET_queue_capacity, LG_SET_schedule,
    LG_SET_thinking, LG_SET_default_budget,
    LG_SET_history_thinking, LG_SET_temperature, LG_SET_top_k, LG_SET_top_p, LG_SET_min_p, LG_SET_log_content,
    LG_SET_log_file, LG_SET_log_format, LG_SET_log_max, LG_SET_tui, LG_SET_END};

static int signal_pipe[2] = {-1, -1};
static volatile sig_atomic_t n_signals;

/* Runs in a signal handler. */
static void on_signal(int sig)
{
    int saved = errno;
    ssize_t n;

    (void)sig;
    if (++n_signals > 2)
        _exit(LG_EXIT_INTERRUPTED);
    n = write(signal_pipe[1], "s", 1);
    (void)n;
    errno = saved;
}

static void on_hangup(int sig)
{
    (void)sig;
    lg_logs_reopen();
}

static lg_status catch_signals(const char *log_file, lg_err *err)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction hangup = {.sa_handler = on_hangup, .sa_flags = SA_RESTART}, before;

    if (pipe(signal_pipe) != 0)
        return LG_FAIL(err, LG_E_IO, "no more descriptors: %s", strerror(errno));
    (void)fcntl(signal_pipe[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(signal_pipe[1], F_SETFL, O_NONBLOCK);
    (void)sigemptyset(&sa.sa_mask);
    if (sigaction(SIGTERM, &sa, NULL) != 0 || sigaction(SIGINT, &sa, NULL) != 0)
        return LG_FAIL(err, LG_E_IO, "cannot catch signals: %s", strerror(errno));
    // a closed terminal still ends the server; with a log file SIGHUP opens it anew
    if (*log_file && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        (void)sigaction(SIGHUP, &hangup, NULL);
    return LG_OK;
}

/* The served id: laguna-NAME for a name of the catalogue, else the file's own name. */
static void served_id(const lg_app *app, char *out, size_t n)
{
    static const char *const names[] = {"s-2.1", "xs-2.1", "mini"};
    const char *slash = strrchr(app->model_path, '/'), *file = slash ? slash + 1 : app->model_path;
    size_t len = strlen(file);

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(app->set.model, names[i]) == 0) {
            (void)snprintf(out, n, "laguna-%s", names[i]);
            return;
        }
    if (len > 5 && strcmp(file + len - 5, ".gguf") == 0)
        len -= 5;
    (void)snprintf(out, n, "%.*s", (int)len, file);
}

/* Where standard error is a log of JSON, all that stands on it is. */
static bool only_records(const lg_settings *set)
{
    return !*set->log_file && strcmp(set->log_format, "json") == 0;
}

static void warn(const lg_app *app, const char *text)
{
    if (only_records(&app->set))
        LG_WARN("server", "warning", "%s", text);
    else
        lg_app_say("warning: %s", text);
}

static void warn_about_reach(const lg_app *app)
{
    const char *host = app->set.host;
    bool loopback =
        strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
    char text[512];

    (void)snprintf(text, sizeof text,
                   "listening on %s without an API key: whoever reaches this port can use the model; set "
                   "api_key",
                   host);
    if (!loopback && app->set.api_key.n == 0 && !*app->set.api_key_file)
        warn(app, text);
    if (app->set.log_content)
        warn(app, "log_content is on: prompts and answers are written into the log");
}

static void tell_address(const lg_app *app, const lg_server *s, const char *id)
{
    bool six = strchr(app->set.host, ':') != NULL;
    char url[512], value[LG_LOG_VALUE], model[LG_LOG_VALUE];

    (void)snprintf(url, sizeof url, "%s://%s%s%s:%d", lg_server_tls(s) ? "https" : "http", six ? "[" : "",
                   app->set.host, six ? "]" : "", lg_server_port(s));
    if (*app->set.log_file || only_records(&app->set))
        LG_INFO("server", "listening", "url=%s model=%s",
                lg_log_value(lg_str_of(url), value, sizeof value),
                lg_log_value(lg_str_of(id), model, sizeof model));
    if (!only_records(&app->set))
        lg_app_say("%s on %s", id, url);
}

static int serve(lg_app *app, const char *id, const lg_engine_params *engine, lg_err *err)
{
    lg_server_params p = {.set = &app->set, .engine = *engine, .model_id = id};
    lg_server_end end;
    lg_server *s;

    if (lg_server_open(&p, &s, err) != LG_OK)
        return lg_app_fail(err);
    warn_about_reach(app);
    tell_address(app, s, id);
    end = lg_server_run(s, signal_pipe[0], err);
    if (end == LG_SERVER_UNLOADED) // nobody waits for the rest of a model that is not wanted any more
        _exit(n_signals > 1 ? LG_EXIT_INTERRUPTED : LG_EXIT_OK);
    lg_server_close(s);
    switch (end) {
    case LG_SERVER_FAILED: return lg_app_fail(err);
    case LG_SERVER_CUT: return LG_EXIT_INTERRUPTED;
    case LG_SERVER_STOPPED:
    case LG_SERVER_UNLOADED: break;
    }
    return LG_EXIT_OK;
}

static int run(lg_app *app)
{
    lg_engine_params engine;
    lg_err err = {0};
    char id[256];
    int rc;

    if (app->set.from[LG_SET_log_level].source == LG_FROM_DEFAULT && !app->common.quiet)
        lg_log_set_level(LG_LOG_INFO);
    if (!*app->set.tls_cert != !*app->set.tls_key)
        return lg_app_usage("--tls-cert and --tls-key belong together; %s is missing",
                            *app->set.tls_cert ? "--tls-key" : "--tls-cert");
    if (lg_app_engine_params(app, &engine, &err) != LG_OK || catch_signals(app->set.log_file, &err) != LG_OK)
        return lg_app_fail(&err);
    if (lg_logs_open(&app->set, &err) != LG_OK)
        return lg_app_fail(&err);
    served_id(app, id, sizeof id);
    rc = serve(app, id, &engine, &err);
    lg_logs_close();
    return rc;
}

const lg_cmd lg_cmd_serve = {
    .words =
        {.name = "serve",
         .usage = "serve [flags]",
         .summary = "the HTTP server; also without the word",
         .settings = settings,
         .options = options,
         .notes =
             "OpenAI and Anthropic clients point at http://127.0.0.1:5241. SIGTERM or Ctrl-C lets the running answer\n"
             "finish (stop_grace); a second one cuts it; a third one ends at once."},
    .own_bytes = sizeof(own),
    .run = run,
};
