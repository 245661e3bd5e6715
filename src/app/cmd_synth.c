/*
 * app/cmd_synth: `lagoon synth`: a GGUF of a real shape with synthetic weights.
 *
 * Main thread and a pool of its own. The size is known before anything is written, so a disk that is too
 * small is refused at once.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "app/commands.h"
#include "app/figures.h"
#include "app/progress.h"
#include "base/clock.h"
#include "base/json.h"
#include "model/mix.h"
#include "model/synth.h"

typedef struct own {
    lg_common common;
    const char *arch, *type, *output;
    int64_t layers, seed;
} own;

static const lg_option options[] = {
    LG_OPTION(own, arch, "arch", 0, str, "ARCH", NULL, "s-2.1|xs-2.1|s-2.1-dflash|xs-2.1-dflash",
              "whose shape: s-2.1, xs-2.1, or a drafter, s-2.1-dflash, xs-2.1-dflash"),
    LG_OPTION(own, output, "output", 'o', str, "FILE", NULL, NULL, "the file to write"),
    LG_OPTION(own, layers, "layers", 0, int, "N", "0", "0..48", "only the first N layers; 0 = all"),
    LG_OPTION(own, type, "type", 0, str, "TYPE", NULL, NULL,
              "recipe of types, or a block type for all matrices (default: as published)"),
    LG_OPTION(own, seed, "seed", 0, int, "N", "1", "0..9223372036854775807", "another seed is other weights"),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_setting_id settings[] = {LG_SET_color, LG_SET_log_level, LG_SET_threads, LG_SET_END};

// The folder of the output must have room for all of it. A file system that does not say is believed to.
static lg_status check_room(const char *path, uint64_t bytes, lg_err *err)
{
    const char *slash = strrchr(path, '/');
    char dir[4096];
    struct statvfs fs;
    lg_figure need, have;

    int n = slash ? snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path)
                  : snprintf(dir, sizeof dir, ".");
    if (n < 0 || (size_t)n >= sizeof dir || statvfs(dir, &fs) != 0 || fs.f_blocks == 0)
        return LG_OK;
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (room >= bytes)
        return LG_OK;
    (void)lg_err_subject(err, "%s", path);
    return LG_FAIL(err, LG_E_IO, "needs %s, the disk has %s free; --layers makes a smaller model",
                   lg_fig_bytes(&need, (double)bytes), lg_fig_bytes(&have, (double)room));
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    lg_bar_update(ctx, done, total);
}

static lg_status write_model(lg_app *app, const lg_synth *s, const char *path, lg_err *err)
{
    int threads = app->set.threads > 0 ? (int)app->set.threads : lg_cpu_cores();
    lg_synth_job job = {.progress = on_progress, .cancel = app->cancel};
    lg_status st;
    lg_bar bar;

    LG_TRY(lg_pool_create(threads, &job.pool, err));
    lg_bar_start(&bar, "writing", LG_BAR_BYTES, app->set.color, app->common.quiet);
    job.ctx = &bar;
    st = lg_synth_write(s, path, &job, err);
    lg_bar_end(&bar, st == LG_OK);
    lg_pool_destroy(job.pool);
    return st;
}

static lg_status report(const lg_app *app, const lg_synth *s, const own *o, double seconds, lg_err *err)
{
    lg_figure bytes;
    lg_buf b;

    if (!app->common.json) {
        (void)printf("%s: %zu tensors, %s\n", o->output, lg_synth_n_tensors(s),
                     lg_fig_bytes(&bytes, (double)lg_synth_tensor_bytes(s)));
        return LG_OK;
    }
    lg_buf_init(&b, 1 << 20);
    (void)lg_buf_addz(&b, "{\"file\": ");
    (void)lg_json_quote(lg_str_of(o->output), &b);
    (void)lg_buf_addz(&b, ", \"name\": ");
    (void)lg_json_quote(lg_str_of(lg_synth_name(s)), &b);
    (void)lg_buf_addf(&b, ", \"tensors\": %zu, \"tensor_bytes\": %llu, \"seed\": %lld, \"seconds\": %.3f}\n",
                      lg_synth_n_tensors(s), (unsigned long long)lg_synth_tensor_bytes(s), (long long)o->seed,
                      seconds);
    return lg_app_print(&b, "the name", err);
}

static int run(lg_app *app)
{
    own *o = app->own;
    lg_synth *s = NULL;
    lg_err err = {0};
    int rc = LG_EXIT_OK;
    uint64_t start_us = lg_now_us();

    if (!o->arch || !o->output)
        return lg_app_usage("synth wants --arch and -o FILE");
    lg_synth_params p = {
        .arch = o->arch, .type = o->type, .n_layer = (int)o->layers, .seed = (uint64_t)o->seed};
    if (lg_synth_create(&p, &s, &err) != LG_OK) {
        rc = lg_app_fail(&err);
        return err.code == LG_E_INPUT ? LG_EXIT_USAGE : rc;
    }
    lg_app_catch_interrupt(app, 2);
    lg_app_catch_termination(app);
    if (check_room(o->output, lg_synth_tensor_bytes(s), &err) != LG_OK ||
        write_model(app, s, o->output, &err) != LG_OK ||
        report(app, s, o, (double)(lg_now_us() - start_us) / 1e6, &err) != LG_OK)
        rc = lg_app_fail(&err);
    lg_synth_destroy(s);
    return rc;
}

const lg_cmd lg_cmd_synth = {
    .words =
        {.name = "synth",
         .usage = "synth --arch ARCH -o FILE [flags]",
         .summary = "write a GGUF of a real shape with synthetic weights",
         .settings = settings,
         .options = options,
         .notes =
             "TYPE is one of official q4_k_m q4_k_s q5_k_m q5_k_s q6_k q8_0 q4_0 q3_k_m q2_k iq4_xs iq4_nl\n"
             "mxfp4_moe f16 bf16 f32, or any block type. Default: official for s-2.1, q4_k_m for xs-2.1,\n"
             "bf16 for the drafters. The same seed gives the same file everywhere."},
    .own_bytes = sizeof(own),
    .run = run,
};
