/*
 * app/cmd_logits: `lagoon logits`, the parity harness: one forward pass over given ids, raw numbers into
 * files.
 *
 * Everything is written as it comes, chunk by chunk; only expert weights wait in memory, because a route file
 * holds all ids before all weights. Files appear under their names when the whole run succeeded.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "app/commands.h"
#include "app/id_list.h"
#include "app/progress.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

enum { INPUT_MAX = 256 << 20, JSON_MAX = 1 << 16 };

typedef struct own {
    lg_common common;
    const char *tokens, *out, *positions, *layers_out, *routes_out;
    int64_t batch;
} own;

static const lg_option options[] = {
    LG_OPTION(own, tokens, "tokens", 0, str, "FILE", NULL, NULL,
              "the ids, a JSON array or numbers; - is standard input"),
    LG_OPTION(own, out, "out", 'o', str, "FILE", NULL, NULL,
              "where the logits go: little-endian f32 [positions, vocab]"),
    LG_OPTION(own, positions, "positions", 0, str, "LIST", "all", NULL,
              "all, last, or ascending positions: 3,17,199"),
    LG_OPTION(own, batch, "batch", 0, int, "N", "0", "0..1048576", "tokens in one chunk; 0 = all in one"),
    LG_OPTION(own, layers_out, "layers-out", 0, str, "DIR", NULL, NULL,
              "also the residual after each layer: l_out-NN.bin, f32 [tokens, hidden]"),
    LG_OPTION(own, routes_out, "routes-out", 0, str, "DIR", NULL, NULL,
              "also the experts chosen: route-NN.bin, i32 [tokens, k], then their weights, f32 [tokens, k]"),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_setting_id settings[] = {LG_MODEL_SETTINGS, LG_SET_END};

typedef struct job {
    const own *o;
    lg_app *app;
    lg_engine *e;
    lg_ids ids;
    lg_ids positions; // those wanted, ascending; empty: all
    bool all;
    size_t next;      // in positions
    size_t n_written; // rows of logits
    lg_out *logits;
    lg_out *layer[LG_LAYERS_MAX], *route[LG_LAYERS_MAX];
    float *weights[LG_LAYERS_MAX]; // [tokens][k]
    lg_bar bar;
} job;

static lg_status write_layers(job *j, size_t first, size_t n, lg_err *err)
{
    const lg_hparams *hp = lg_engine_hparams(j->e);

    for (int i = 0; i < hp->n_layer; i++) {
        const float *rows;
        LG_TRY(lg_engine_layer_rows(j->e, i, first, n, &rows, err));
        lg_out_write(j->layer[i], rows, n * (size_t)hp->hidden * sizeof *rows);
    }
    return LG_OK;
}

static lg_status write_routes(job *j, size_t first, size_t n, lg_err *err)
{
    const lg_hparams *hp = lg_engine_hparams(j->e);
    size_t k = (size_t)hp->n_expert_used;

    for (int i = 0; i < hp->n_layer; i++) {
        const int32_t *ids;
        const float *w;
        if (hp->layer[i].dense)
            continue;
        LG_TRY(lg_engine_route_rows(j->e, i, first, n, &ids, &w, err));
        lg_out_write(j->route[i], ids, n * k * sizeof *ids);
        memcpy(j->weights[i] + first * k, w, n * k * sizeof *w);
    }
    return LG_OK;
}

static bool wanted(job *j, size_t position)
{
    if (j->all)
        return true;
    if (j->next == j->positions.n || (size_t)j->positions.p[j->next] != position)
        return false;
    j->next++;
    return true;
}

static lg_status on_rows(void *ctx, size_t first, size_t n, lg_err *err)
{
    job *j = ctx;
    size_t vocab = (size_t)lg_engine_hparams(j->e)->vocab;
    bool last_only = j->positions.n == 1 && (size_t)j->positions.p[0] == j->ids.n - 1;

    for (size_t i = 0; i < n; i++) {
        const float *row;
        if (!wanted(j, first + i))
            continue;
        LG_TRY(lg_engine_logits(j->e, last_only ? 0 : (int)i, &row, err));
        lg_out_write(j->logits, row, vocab * sizeof *row);
        j->n_written++;
    }
    if (j->o->layers_out)
        LG_TRY(write_layers(j, first, n, err));
    if (j->o->routes_out)
        LG_TRY(write_routes(j, first, n, err));
    if (lg_out_failed(j->logits))
        return LG_FAIL(err, LG_E_IO, "cannot write");
    lg_bar_update(&j->bar, first + n, j->ids.n);
    return LG_OK;
}

static lg_status open_layer_files(job *j, const char *dir, const char *name, bool experts_only, lg_out **out,
                                  lg_err *err)
{
    const lg_hparams *hp = lg_engine_hparams(j->e);
    char path[4200];

    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return LG_FAIL(err, LG_E_IO, "cannot make the folder %s: %s", dir, strerror(errno));
    for (int i = 0; i < hp->n_layer; i++) {
        if (experts_only && hp->layer[i].dense)
            continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s-%02d.bin", dir, name, i) >= sizeof path)
            return LG_FAIL(err, LG_E_INPUT, "the folder name is too long");
        LG_TRY(lg_out_open(path, &out[i], err));
        if (experts_only) {
            j->weights[i] = malloc(j->ids.n * (size_t)hp->n_expert_used * sizeof(float));
            if (!j->weights[i])
                return LG_FAIL(err, LG_E_NOMEM, "no memory for the routes of %zu tokens", j->ids.n);
        }
    }
    return LG_OK;
}

static lg_status open_files(job *j, lg_err *err)
{
    LG_TRY(lg_out_open(j->o->out, &j->logits, err));
    if (j->o->layers_out)
        LG_TRY(open_layer_files(j, j->o->layers_out, "l_out", false, j->layer, err));
    if (j->o->routes_out)
        LG_TRY(open_layer_files(j, j->o->routes_out, "route", true, j->route, err));
    return LG_OK;
}

static lg_status commit(lg_out **o, lg_err *err)
{
    lg_out *file = *o;

    *o = NULL;
    return file ? lg_out_commit(file, err) : LG_OK;
}

static lg_status commit_files(job *j, lg_err *err)
{
    size_t k = (size_t)lg_engine_hparams(j->e)->n_expert_used;

    for (int i = 0; i < LG_LAYERS_MAX; i++) {
        if (j->route[i])
            lg_out_write(j->route[i], j->weights[i], j->ids.n * k * sizeof *j->weights[i]);
        LG_TRY(commit(&j->route[i], err));
        LG_TRY(commit(&j->layer[i], err));
    }
    return commit(&j->logits, err);
}

static lg_status read_positions(job *j, lg_err *err)
{
    lg_str rest = lg_str_of(j->o->positions);

    j->all = lg_str_eqz(rest, "all");
    if (j->all)
        return LG_OK;
    if (lg_str_eqz(rest, "last"))
        return lg_ids_add(&j->positions, (int32_t)j->ids.n - 1, err);
    while (rest.n > 0) {
        size_t comma = lg_str_find(rest, LG_STR(","), 0);
        lg_str word = {rest.p, comma < rest.n ? comma : rest.n};
        int64_t v;
        if (!lg_str_i64(word, &v) || v < 0 || (size_t)v >= j->ids.n)
            return LG_FAIL(err, LG_E_INPUT, "--positions: \"%.*s\" is no position of %zu tokens", (int)word.n,
                           word.p, j->ids.n);
        if (j->positions.n > 0 && v <= j->positions.p[j->positions.n - 1])
            return LG_FAIL(err, LG_E_INPUT, "--positions must ascend");
        LG_TRY(lg_ids_add(&j->positions, (int32_t)v, err));
        rest = comma < rest.n ? (lg_str){rest.p + comma + 1, rest.n - comma - 1} : (lg_str){0};
    }
    return j->positions.n > 0 ? LG_OK : LG_FAIL(err, LG_E_INPUT, "--positions is empty");
}

static lg_status read_input(job *j, lg_err *err)
{
    char *text = NULL;
    size_t n;
    lg_status st = lg_read_all(j->o->tokens, INPUT_MAX, &text, &n, err);

    if (st == LG_OK) {
        st = lg_app_read_ids((lg_str){text, n}, INT32_MAX, &j->ids, err);
        if (st == LG_OK && j->ids.n == 0)
            st = LG_FAIL(err, LG_E_INPUT, "has no token ids");
        if (st != LG_OK)
            (void)lg_err_subject(err, "%s", j->o->tokens);
    }
    free(text);
    return st;
}

static lg_status open_engine(job *j, lg_err *err)
{
    lg_engine_params p;

    LG_TRY(lg_app_engine_params(j->app, &p, err));
    p.draft_path = NULL; // nothing is decoded
    p.chunk = j->o->batch > 0 ? (int)j->o->batch : (int)j->ids.n;
    p.debug = j->o->layers_out;
    p.routes = j->o->routes_out;
    if (p.ctx == 0)
        p.ctx = (int64_t)j->ids.n;
    return lg_app_engine_open(j->app, &p, &j->e, err);
}

static lg_status evaluate(job *j, lg_err *err)
{
    bool last_only = j->positions.n == 1 && (size_t)j->positions.p[0] == j->ids.n - 1;
    lg_eval v = {.ids = j->ids.p,
                 .n = j->ids.n,
                 .all_logits = !last_only,
                 .cancel = j->app->cancel,
                 .chunk_done = on_rows,
                 .ctx = j};

    if (j->o->layers_out)
        v.flags |= LG_STEP_LAYERS;
    if (j->o->routes_out)
        v.flags |= LG_STEP_ROUTES;
    return lg_engine_eval(j->e, &v, err);
}

static lg_status print_result(const job *j, double seconds, lg_err *err)
{
    lg_buf b;

    lg_buf_init(&b, JSON_MAX);
    (void)lg_buf_addf(&b, "{\"positions\": %zu, \"vocab\": %d, \"device\": ", j->n_written,
                      lg_engine_hparams(j->e)->vocab);
    (void)lg_json_quote(lg_str_of(lg_engine_backend(j->e)->info.name), &b);
    (void)lg_buf_addf(&b, ", \"seconds\": %.3f}\n", seconds);
    return lg_app_print(&b, "the name", err);
}

static void clean_up(job *j)
{
    lg_out_abort(j->logits);
    for (int i = 0; i < LG_LAYERS_MAX; i++) {
        lg_out_abort(j->layer[i]);
        lg_out_abort(j->route[i]);
        free(j->weights[i]);
    }
    lg_engine_close(j->e);
    lg_ids_free(&j->ids);
    lg_ids_free(&j->positions);
}

static int run(lg_app *app)
{
    job j = {.o = app->own, .app = app};
    lg_err err = {0};
    uint64_t start;
    lg_status st;

    if (!j.o->tokens || !j.o->out)
        return lg_app_usage("logits wants --tokens FILE and -o FILE");
    st = read_input(&j, &err);
    if (st == LG_OK && read_positions(&j, &err) != LG_OK) {
        clean_up(&j);
        return lg_app_usage("%s", err.msg);
    }
    if (st == LG_OK)
        st = open_engine(&j, &err);
    if (st == LG_OK) {
        lg_app_catch_interrupt(app, 2);
        lg_app_catch_termination(app);
        st = open_files(&j, &err);
    }
    if (st == LG_OK) {
        lg_bar_start(&j.bar, "computing logits", LG_BAR_TOKENS, app->set.color, app->common.quiet);
        start = lg_now_us();
        st = evaluate(&j, &err);
        lg_bar_end(&j.bar, st == LG_OK);
        if (st == LG_OK)
            st = commit_files(&j, &err);
        if (st == LG_OK)
            st = print_result(&j, (double)(lg_now_us() - start) / 1e6, &err);
    }
    clean_up(&j);
    return st == LG_OK ? LG_EXIT_OK : lg_app_fail(&err);
}

const lg_cmd lg_cmd_logits = {
    .words = {.name = "logits",
              .usage = "logits --tokens IDS.json -o OUT.bin [flags]",
              .summary = "write the raw logits of given tokens",
              .settings = settings,
              .options = options,
              .notes = "For comparing devices, kernels and engines. Without --ctx the context is as long as "
                       "the input.\n"},
    .own_bytes = sizeof(own),
    .run = run,
};
