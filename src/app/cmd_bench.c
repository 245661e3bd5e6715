/*
 * app/cmd_bench: `lagoon bench`: how fast this machine runs a model, and how much of what it could do that
 * is.
 *
 * A synthetic model is made in memory at real shape, so a machine can be judged without the file. A result
 * above what the device was measured to be capable of is a mistake of the measurement and fails the run.
 */
#include <stdlib.h>
#include <string.h>

#include "app/bench_draft.h"
#include "app/bench_run.h"
#include "app/commands.h"
#include "app/figures.h"
#include "app/progress.h"
#include "base/clock.h"
#include "base/json.h"
#include "model/synth.h"

enum { JSON_MAX = 16 << 20, CTX_SPARE = 64, REPLY_SPARE = 320 };

/* Least spread of routing that counts as uniform (docs/decisions/0062). */
static const double least_distinct = 0.8, least_effective = 0.5;

typedef struct own {
    lg_common common;
    const char *synthetic, *depth;
    int64_t layers, prompt, gen, reps;
    double warmup;
    bool phases, with_drafter;
} own;

static const lg_option options[] = {
    LG_OPTION(own, synthetic, "synthetic", 0, str, "NAME", NULL, "s-2.1|xs-2.1",
              "a model of this shape, made in memory, in place of --model"),
    LG_OPTION(own, with_drafter, "with-drafter", 0, bool, "", NULL, NULL,
              "with --synthetic: also a drafter of that shape, for the cost of a round"),
    LG_OPTION(own, layers, "layers", 0, int, "N", "0", "0..256",
              "only the first N layers of a synthetic model"),
    LG_OPTION(own, prompt, "prompt", 0, int, "N", "512", "0..16777216", "tokens of a prefill; 0 = none"),
    LG_OPTION(own, gen, "gen", 0, int, "N", "128", "0..1048576", "tokens of a decode; 0 = none"),
    LG_OPTION(own, depth, "depth", 0, str, "N,N,...", "0", NULL,
              "tokens in the cache before each measurement"),
    LG_OPTION(own, reps, "reps", 0, int, "N", "5", "1..100", "repetitions; the median counts"),
    LG_OPTION(own, warmup, "warmup", 0, secs, "TIME", "3s", "0..600", "least time of the warm-up"),
    LG_OPTION(own, phases, "phases", 0, bool, "", NULL, NULL, "time of each kind of op"),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_setting_id settings[] = {LG_MODEL_SETTINGS, LG_SET_END};

/* What the run owns. */
typedef struct bench {
    lg_app *app;
    const own *o;
    lg_bench m;
    lg_bench_routing routing;
    lg_synth_model synth, synth_draft;
    bool have_synth, have_draft;
    lg_bench_draft draft;
    char name[128];
    double load_s; /* opening a model from a file */
    lg_bar bar;
} bench;

static lg_status parse_depths(const char *text, lg_bench *m, lg_err *err)
{
    lg_str s = lg_str_of(text);

    for (size_t at = 0; at <= s.n;) {
        size_t comma = lg_str_find(s, LG_STR(","), at), end = comma == SIZE_MAX ? s.n : comma;
        int64_t n;

        if (m->n_depth == LG_BENCH_DEPTHS)
            return LG_FAIL(err, LG_E_INPUT, "--depth takes at most %d numbers", LG_BENCH_DEPTHS);
        if (!lg_str_i64((lg_str){s.p + at, end - at}, &n) || n < 0 || n > 1 << 24)
            return LG_FAIL(err, LG_E_INPUT, "--depth wants numbers of tokens like 0,4096,32768, not '%s'",
                           text);
        m->depth[m->n_depth++] = n;
        at = end + 1;
    }
    return LG_OK;
}

static int64_t deepest(const lg_bench *m)
{
    int64_t most = 0, n = m->prompt > m->gen ? m->prompt : m->gen;

    for (int i = 0; i < m->n_depth; i++)
        most = m->depth[i] > most ? m->depth[i] : most;
    return most + n;
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    lg_bar_update(ctx, done, total);
}

static void on_step(void *ctx, int done, int total)
{
    lg_bar_update(ctx, (uint64_t)done, (uint64_t)total);
}

/* A card makes synthetic weights itself, faster than they could be sent there. */
static bool device_fills(bench *b)
{
    lg_engine_params p = lg_app_engine_settings(b->app);
    lg_backend *dev = NULL;
    bool fills;

    if (lg_backend_open(&p.backend, &dev, NULL) != LG_OK)
        return false;
    fills = !dev->info.maps_weights;
    lg_backend_close(dev);
    return fills;
}

static lg_status make_synthetic(bench *b, lg_err *err)
{
    lg_synth *s = NULL;
    lg_pool *pool = NULL;
    lg_status st = lg_pool_create(lg_cpu_cores(), &pool, err);

    if (st == LG_OK)
        st = lg_synth_create(
            &(lg_synth_params){.arch = b->o->synthetic, .n_layer = (int)b->o->layers, .seed = 1}, &s, err);
    if (st == LG_OK) {
        if (b->o->layers > 0)
            (void)snprintf(b->name, sizeof b->name, "%s, %d layers", lg_synth_name(s), (int)b->o->layers);
        else
            (void)snprintf(b->name, sizeof b->name, "%s", lg_synth_name(s));
        lg_bar_start(&b->bar, "making weights", LG_BAR_BYTES, b->app->set.color, b->app->common.quiet);
        st = lg_synth_make(s, &(lg_synth_job){.pool = pool, .progress = on_progress, .ctx = &b->bar,
                                              .cancel = b->app->cancel,
                                              .unfilled = device_fills(b)},
                           &b->synth, err);
        lg_bar_end(&b->bar, st == LG_OK);
        b->have_synth = st == LG_OK;
    }
    lg_synth_destroy(s);
    lg_pool_destroy(pool);
    return st;
}

static lg_status make_synthetic_drafter(bench *b, lg_err *err)
{
    char arch[32];
    lg_synth *s = NULL;
    lg_pool *pool = NULL;
    lg_status st = lg_pool_create(lg_cpu_cores(), &pool, err);

    (void)snprintf(arch, sizeof arch, "%s-dflash", b->o->synthetic);
    if (st == LG_OK)
        st = lg_synth_create(&(lg_synth_params){.arch = arch, .target_layers = (int)b->o->layers, .seed = 2},
                             &s, err);
    if (st == LG_OK)
        st = lg_synth_make(s, &(lg_synth_job){.pool = pool, .cancel = b->app->cancel}, &b->synth_draft, err);
    b->have_draft = st == LG_OK;
    lg_synth_destroy(s);
    lg_pool_destroy(pool);
    return st;
}

static lg_status open_engine(bench *b, lg_err *err)
{
    const lg_settings *set = &b->app->set;
    int64_t need = deepest(&b->m) + CTX_SPARE;
    lg_engine_params p;

    if (b->o->synthetic) {
        LG_TRY(make_synthetic(b, err));
        p = lg_app_engine_settings(b->app);
        p.gguf = b->synth.gguf;
        p.model_path = b->name;
        p.routes = true;
        if (b->o->with_drafter) {
            LG_TRY(make_synthetic_drafter(b, err));
            p.draft_gguf = b->synth_draft.gguf;
            p.draft_path = "synthetic drafter";
            p.draft_required = true;
        }
    } else {
        const char *slash;

        LG_TRY(lg_app_engine_params(b->app, &p, err));
        slash = strrchr(p.model_path, '/');
        (void)snprintf(b->name, sizeof b->name, "%s", slash ? slash + 1 : p.model_path);
    }
    if (p.draft_path && need < b->m.gen + REPLY_SPARE)
        need = b->m.gen + REPLY_SPARE;
    p.backend.phases = b->o->phases;
    if (set->from[LG_SET_ctx].source == LG_FROM_DEFAULT)
        p.ctx = need;
    uint64_t start = lg_now_ns();
    LG_TRY(lg_app_engine_open(b->app, &p, &b->m.engine, err));
    b->load_s = (double)(lg_now_ns() - start) / 1e9;
    if (lg_engine_plan(b->m.engine)->ctx < need - CTX_SPARE)
        return LG_FAIL(err, LG_E_LIMIT,
                       "the deepest measurement needs a context of %lld tokens, --ctx is %lld",
                       (long long)(need - CTX_SPARE), (long long)lg_engine_plan(b->m.engine)->ctx);
    return LG_OK;
}

/* Collapsed routing would make every figure of a synthetic model too good. */
static lg_status check_routing(bench *b, lg_err *err)
{
    const lg_bench_routing *r = &b->routing;

    LG_TRY(lg_bench_route(b->m.engine, &b->routing, err));
    if (r->distinct < least_distinct)
        return LG_FAIL(err, LG_E_INPUT,
                       "routing is not spread: 8 tokens touch %.0f %% of the experts that independent "
                       "routing would",
                       r->distinct * 100);
    if (r->effective < least_effective)
        return LG_FAIL(err, LG_E_INPUT,
                       "routing is not spread: layer %d uses the equivalent of %.0f %% of its experts",
                       r->worst_layer, r->effective * 100);
    return LG_OK;
}

/* --- reports --- */

static double token_bytes(const lg_bench_run *r)
{
    return r->cost.weight_bytes + r->cost.kv_bytes;
}

static void print_ops(const lg_bench_run *r)
{
    double sum = 0;

    for (int i = 0; i < r->n_op; i++)
        sum += r->op[i].seconds;
    for (int i = 0; i < r->n_op; i++)
        if (r->op[i].seconds > 0)
            printf("    %-12s %10.1f us/token %5.1f %%\n", r->op[i].name,
                   r->op[i].seconds * 1e6 / ((double)r->tokens * r->n_rep), 100 * r->op[i].seconds / sum);
}

static bool drifts(const lg_bench *m)
{
    return lg_engine_backend(m->engine)->sustained_bandwidth != NULL;
}

/* What the ceilings around the repetitions were: how much the machine drifted. */
static void print_ceilings(const lg_bench *m)
{
    for (int prefill = 0; prefill < 2; prefill++) {
        double least = 0, most = 0;

        for (int i = 0; i < m->n_run; i++)
            for (int j = 0; m->run[i].prefill == prefill && j < m->run[i].n_rep; j++) {
                double c = m->run[i].rep[j].ceiling / 1e9;

                least = most == 0 || c < least ? c : least;
                most = c > most ? c : most;
            }
        if (most > 0)
            printf("  %s: %.1f to %.1f %s around its repetitions\n", prefill ? "prefill" : "decode", least,
                   most, prefill ? "Gop/s" : "GB/s");
    }
}

static void print_table(const bench *b)
{
    const lg_bench *m = &b->m;
    lg_figure f[3];

    printf("model    %s, %s of weights\ndevice   %s\nceiling  %.1f GB/s read, %.0f Gop/s\n", b->name,
           lg_fig_bytes(&f[0], (double)lg_engine_plan(m->engine)->weight_bytes),
           lg_engine_backend(m->engine)->info.name, m->bandwidth / 1e9, m->compute / 1e9);
    if (!b->o->synthetic)
        printf("load     %.2f s, %.1f GB/s\n", b->load_s,
               (double)lg_engine_plan(m->engine)->weight_bytes / b->load_s / 1e9);
    printf("\n%-8s %8s %7s %9s %9s %9s %12s %8s %9s  %s  %s\n", "phase", "depth", "tokens", "tok/s", "min",
           "max", "MB/token", "GB/s", "Gop/s", "of ceiling", "around it (min to max)");
    for (int i = 0; i < m->n_run; i++) {
        const lg_bench_run *r = &m->run[i];

        printf("%-8s %8lld %7lld %9s %9s %9s %12.2f %8.1f %9.0f  %8.1f %%  %5.1f %% (%.1f to %.1f)\n",
               r->prefill ? "prefill" : "decode", (long long)r->depth, (long long)r->tokens,
               lg_fig_rate(&f[0], r->median), lg_fig_rate(&f[1], r->min), lg_fig_rate(&f[2], r->max),
               token_bytes(r) / 1e6, r->gbs, r->gops, r->roofline * 100, r->around * 100,
               r->around_min * 100, r->around_max * 100);
        if (b->o->phases)
            print_ops(r);
    }
    printf("\nof ceiling: the median rate over the best that this run saw, decode by bytes read, prefill by "
           "operations\naround it: each repetition over the mean ceiling just before and after it%s\n",
           drifts(m) ? "" : "; the device is taken not to drift");
    print_ceilings(m);
    if (b->o->synthetic && b->routing.n_expert > 0)
        printf("routing: 8 tokens touch %.0f %% of the experts that independent routing would\n",
               b->routing.distinct * 100);
    if (b->draft.engine)
        lg_bench_draft_table(&b->draft);
}

static void put_run(const bench *b, const lg_bench_run *r, lg_buf *out)
{
    (void)lg_buf_addf(
        out,
        "{\"phase\": \"%s\", \"depth\": %lld, \"tokens\": %lld, \"tok_s\": %.6g, \"tok_s_min\": %.6g, "
        "\"tok_s_max\": %.6g, \"bytes_per_token\": %.0f, \"gbs\": %.6g, \"gops\": %.6g, \"roofline\": %.6g, "
        "\"roofline_around\": %.6g, \"roofline_around_min\": %.6g, \"roofline_around_max\": %.6g, "
        "\"reps\": [",
        r->prefill ? "prefill" : "decode", (long long)r->depth, (long long)r->tokens, r->median, r->min,
        r->max, token_bytes(r), r->gbs, r->gops, r->roofline, r->around, r->around_min, r->around_max);
    for (int i = 0; i < r->n_rep; i++)
        (void)lg_buf_addf(out, "%s{\"tok_s\": %.6g, \"ceiling\": %.6g, \"roofline\": %.6g}",
                          i > 0 ? ", " : "", r->rep[i].tok_s, r->rep[i].ceiling / 1e9, r->rep[i].ratio);
    (void)lg_buf_addz(out, "]");
    if (b->o->phases) {
        (void)lg_buf_addz(out, ", \"seconds\": {");
        for (int i = 0; i < r->n_op; i++)
            (void)lg_buf_addf(out, "%s\"%s\": %.6g", i > 0 ? ", " : "", r->op[i].name, r->op[i].seconds);
        (void)lg_buf_addz(out, "}");
    }
    (void)lg_buf_addz(out, "}");
}

static lg_status print_json(const bench *b, lg_err *err)
{
    const lg_bench *m = &b->m;
    lg_buf out;

    lg_buf_init(&out, JSON_MAX);
    (void)lg_buf_addz(&out, "{\"device\": ");
    (void)lg_json_quote(lg_str_of(lg_engine_backend(m->engine)->info.name), &out);
    (void)lg_buf_addz(&out, ", \"model\": ");
    (void)lg_json_quote(lg_str_of(b->name), &out);
    (void)lg_buf_addf(
        &out,
        ", \"synthetic\": %s, \"threads\": %d, \"bandwidth_gbs\": %.6g, \"compute_gops\": %.6g, "
        "\"runs\": [",
        b->o->synthetic ? "true" : "false",
        b->app->set.threads > 0 ? (int)b->app->set.threads : lg_cpu_cores(), m->bandwidth / 1e9,
        m->compute / 1e9);
    for (int i = 0; i < m->n_run; i++) {
        if (i > 0)
            (void)lg_buf_addz(&out, ", ");
        put_run(b, &m->run[i], &out);
    }
    (void)lg_buf_addz(&out, "], \"draft\": ");
    lg_bench_draft_json(&b->draft, &out);
    (void)lg_buf_addz(&out, "}\n");
    return lg_app_print(&out, "the report", err);
}

/* More than the device can do was not done. */
static lg_status check_ceiling(const bench *b, lg_err *err)
{
    for (int i = 0; i < b->m.n_run; i++) {
        const lg_bench_run *r = &b->m.run[i];

        if (r->roofline > 1)
            return LG_FAIL(err, LG_E_DEVICE, "%s at depth %lld ran at %.0f %% of what the device can do: %s",
                           r->prefill ? "prefill" : "decode", (long long)r->depth, r->roofline * 100,
                           r->prefill
                               ? "operations are counted that are not done"
                               : "its bytes come from a processor cache (a small model) or are not read");
    }
    return LG_OK;
}

static lg_status measure(bench *b, lg_err *err)
{
    lg_status st;

    LG_TRY(open_engine(b, err));
    if (b->o->synthetic)
        LG_TRY(check_routing(b, err));
    lg_bar_start(&b->bar, "measuring", LG_BAR_STEPS, b->app->set.color, b->app->common.quiet);
    b->m.step = on_step;
    b->m.ctx = &b->bar;
    st = lg_bench_measure(&b->m, err);
    if (st == LG_OK && lg_engine_drafter(b->m.engine)) {
        lg_engine_params p = lg_app_engine_settings(b->app);

        b->draft = (lg_bench_draft){.engine = b->m.engine,
                                    .depth = b->m.depth[0],
                                    .gen = b->m.gen,
                                    .reps = b->m.reps,
                                    .trained = !b->o->synthetic,
                                    .set = p.draft,
                                    .cancel = b->app->cancel};
        st = lg_bench_drafter(&b->draft, err);
    }
    lg_bar_end(&b->bar, st == LG_OK);
    if (st != LG_OK)
        return st;
    if (b->app->common.json)
        LG_TRY(print_json(b, err));
    else
        print_table(b);
    return check_ceiling(b, err);
}

static int run(lg_app *app)
{
    const own *o = app->own;
    bench *b = calloc(1, sizeof *b);
    lg_err err = {0};
    int rc = LG_EXIT_OK;

    if (!b)
        return lg_app_fail(&(lg_err){.code = LG_E_NOMEM, .msg = "out of memory"});
    lg_app_catch_interrupt(app, 2);
    b->app = app;
    b->o = o;
    b->m = (lg_bench){.prompt = o->prompt, .gen = o->gen, .reps = (int)o->reps, .warmup_s = o->warmup,
                      .phases = o->phases, .cancel = app->cancel};
    if (parse_depths(o->depth, &b->m, &err) != LG_OK)
        rc = lg_app_usage("%s", err.msg);
    else if (o->prompt == 0 && o->gen == 0)
        rc = lg_app_usage("--prompt 0 and --gen 0 leave nothing to measure");
    else if (o->synthetic && app->set.from[LG_SET_model].source == LG_FROM_FLAG)
        rc = lg_app_usage("bench measures one model; --synthetic %s and --model %s are two", o->synthetic,
                          app->set.model);
    else if (o->layers > 0 && !o->synthetic)
        rc = lg_app_usage("--layers belongs to --synthetic");
    else if (o->with_drafter && !o->synthetic)
        rc = lg_app_usage("--with-drafter belongs to --synthetic; a drafter file is --draft");
    else if (measure(b, &err) != LG_OK)
        rc = lg_app_fail(&err);
    lg_engine_close(b->m.engine);
    if (b->have_synth)
        lg_synth_unmake(&b->synth);
    if (b->have_draft)
        lg_synth_unmake(&b->synth_draft);
    free(b);
    return rc;
}

const lg_cmd lg_cmd_bench = {
    .words = {.name = "bench",
              .usage = "bench [flags]",
              .summary = "measure speed against what the machine can do",
              .settings = settings,
              .options = options,
              .notes = "Measure on an idle machine. A model that fits a processor cache measures the cache."},
    .own_bytes = sizeof(own),
    .run = run,
};
