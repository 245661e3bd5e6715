/*
 * app/model: from -m NAME|FILE or --mini to an open engine.
 *
 * A NAME is looked for in $LAGOON_MODELS, in the data directory beside the binary, and in the Hugging Face
 * cache. Nothing is downloaded.
 *
 * Surprise: a word that is a known name is never taken for a file; `./mini` is the way to say the file.
 */
#include "app/app.h"

#include <dirent.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

#include "app/progress.h"
#include "base/settings.h"

typedef struct model_name {
    const char *name;
    const char *file; /* case-insensitive pattern of the file's name */
    const char *repo; /* directory of the repository in the Hugging Face cache, or NULL */
} model_name;

static const model_name catalogue[] = {
    {"s-2.1", "laguna-s-2.1*q4_k_m*.gguf", "models--poolside--Laguna-S-2.1-GGUF"},
    {"xs-2.1", "laguna-xs-2.1*q4_k_m*.gguf", "models--poolside--Laguna-XS-2.1-GGUF"},
    {"mini", "mini.gguf", NULL},
};
enum { N_NAMES = sizeof catalogue / sizeof catalogue[0], PATH_BYTES = 4096 };

/* dir/file into `out`; false when it does not fit. */
static bool join(char *out, const char *dir, const char *file)
{
    int n = snprintf(out, PATH_BYTES, "%s/%s", dir, file);

    return n > 0 && n < PATH_BYTES;
}

static bool is_file(const char *path)
{
    struct stat sb;

    return stat(path, &sb) == 0 && S_ISREG(sb.st_mode);
}

/* The first file of `dir`, by name, that matches; of a split model that is its first part. */
static bool find_in(const char *dir, const char *pattern, char *out)
{
    DIR *d = opendir(dir);
    char best[NAME_MAX + 1] = "";
    struct dirent *e;

    if (!d)
        return false;
    while ((e = readdir(d)) != NULL) {
        if (fnmatch(pattern, e->d_name, FNM_CASEFOLD) != 0 || (best[0] && strcmp(e->d_name, best) >= 0))
            continue;
        if (join(out, dir, e->d_name) && is_file(out))
            (void)snprintf(best, sizeof best, "%s", e->d_name);
    }
    (void)closedir(d);
    return best[0] && join(out, dir, best);
}

/* The revision that refs/main names, then any other snapshot. */
static bool find_in_hub(const char *hub, const model_name *m, char *out)
{
    char repo[PATH_BYTES], dir[PATH_BYTES], sub[NAME_MAX + 16];
    char rev[64] = "";
    bool found = false;
    struct dirent *e;
    FILE *f;
    DIR *d;

    if (!m->repo || !join(repo, hub, m->repo))
        return false;
    if (join(dir, repo, "refs/main") && (f = fopen(dir, "r")) != NULL) {
        if (fscanf(f, "%63[0-9a-f]", rev) != 1)
            rev[0] = '\0';
        (void)fclose(f);
    }
    (void)snprintf(sub, sizeof sub, "snapshots/%s", rev);
    if (rev[0] && join(dir, repo, sub) && find_in(dir, m->file, out))
        return true;
    if (!join(dir, repo, "snapshots") || !(d = opendir(dir)))
        return false;
    while (!found && (e = readdir(d)) != NULL) {
        (void)snprintf(sub, sizeof sub, "snapshots/%s", e->d_name);
        found = e->d_name[0] != '.' && join(dir, repo, sub) && find_in(dir, m->file, out);
    }
    (void)closedir(d);
    return found;
}

/* The folder of this program's file, without trailing slash. */
static bool program_dir(char *out)
{
#if defined(__APPLE__)
    char raw[PATH_BYTES];
    uint32_t n = sizeof raw;

    if (_NSGetExecutablePath(raw, &n) != 0 || !realpath(raw, out))
        return false;
#else
    ssize_t n = readlink("/proc/self/exe", out, PATH_BYTES - 1);

    if (n <= 0)
        return false;
    out[n] = '\0';
#endif
    char *slash = strrchr(out, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

static bool find_in_install(const model_name *m, char *out)
{
    char bin[PATH_BYTES], dir[PATH_BYTES];

    if (strcmp(m->name, "mini") != 0 || !program_dir(bin))
        return false;
    return (join(dir, bin, "../share/lagoon/models") && find_in(dir, m->file, out)) ||
           (join(dir, bin, "../models") && find_in(dir, m->file, out));
}

/* HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub: the first that is set is the one. */
static bool hub_dir(char *out)
{
    const char *hub = lg_env(LG_ENV_HF_HUB_CACHE), *home = lg_env(LG_ENV_HF_HOME);

    if (hub)
        return join(out, hub, "");
    if (home)
        return join(out, home, "hub");
    home = lg_env(LG_ENV_HOME);
    return home && join(out, home, ".cache/huggingface/hub");
}

static const model_name *find_name(const char *word)
{
    for (int i = 0; i < N_NAMES; i++)
        if (strcmp(word, catalogue[i].name) == 0)
            return &catalogue[i];
    return NULL;
}

static lg_status missing(const lg_app *app, const model_name *m, lg_err *err)
{
    char hub[PATH_BYTES] = "the Hugging Face cache";

    (void)lg_err_subject(err, "model %s", m->name);
    if (strcmp(m->name, "mini") == 0)
        return LG_FAIL(err, LG_E_IO,
                       "mini.gguf is not %s%s%sbeside the program (../share/lagoon/models, ../models); "
                       "name a file with -m FILE",
                       *app->set.models ? "in " : "", app->set.models, *app->set.models ? ", nor " : "");
    (void)hub_dir(hub);
    return LG_FAIL(err, LG_E_IO,
                   "is not here (looked for %s in %s%s%s); name a file with -m FILE, or use --mini", m->file,
                   *app->set.models ? app->set.models : "", *app->set.models ? " and " : "", hub);
}

lg_status lg_app_find_model(const lg_app *app, const char *word, char *out, size_t n, lg_err *err)
{
    const model_name *m = find_name(word);
    char path[PATH_BYTES], hub[PATH_BYTES];
    const char *names[N_NAMES];
    const char *near;
    int len;

    if (m) {
        bool found = (*app->set.models && find_in(app->set.models, m->file, path)) ||
                     find_in_install(m, path) || (hub_dir(hub) && find_in_hub(hub, m, path));
        if (!found)
            return missing(app, m, err);
        word = path;
    } else if (!strchr(word, '/') && access(word, F_OK) != 0) {
        for (int i = 0; i < N_NAMES; i++)
            names[i] = catalogue[i].name;
        near = lg_nearest(word, names, N_NAMES);
        (void)lg_err_subject(err, "%s", word);
        if (near)
            return LG_FAIL(err, LG_E_IO, "no such file or model; did you mean '%s'?", near);
        return LG_FAIL(err, LG_E_IO, "no such file; known names are s-2.1, xs-2.1 and mini");
    }
    len = snprintf(out, n, "%s", word);
    if (len < 0 || (size_t)len >= n)
        return LG_FAIL(err, LG_E_INPUT, "model path is longer than %zu bytes", n);
    return LG_OK;
}

lg_status lg_app_model_path(lg_app *app, lg_err *err)
{
    return lg_app_find_model(app, app->set.model, app->model_path, sizeof app->model_path, err);
}

lg_engine_params lg_app_engine_settings(const lg_app *app)
{
    const lg_settings *s = &app->set;
    lg_engine_params p = {
        .backend = {.device = s->device,
                    .threads = (int)s->threads,
                    .isa = strcmp(s->isa, "auto") ? s->isa : ""},
        .ctx = s->ctx,
        .crlf = strcmp(s->crlf_compat, "llama") == 0 ? LG_CRLF_LLAMA : LG_CRLF_HF,
        .cache_slots = (int)s->cache_slots,
        // for the engine 0 is auto; of one byte nothing is kept
        .cache_ram = s->cache_ram == LG_SIZE_AUTO ? 0 : s->cache_ram > 0 ? s->cache_ram : 1,
    };

    LG_ASSERT(lg_qtype_find(lg_str_of(s->kv_type), &p.kv_type)); // the table admits no other words
    lg_app_draft_settings(app, &p);
    return p;
}

lg_status lg_app_engine_params(lg_app *app, lg_engine_params *out, lg_err *err)
{
    LG_TRY(lg_app_model_path(app, err));
    *out = lg_app_engine_settings(app);
    out->model_path = app->model_path;
    lg_app_choose_drafter(app, out);
    return LG_OK;
}

static void on_load(void *ctx, uint64_t done, uint64_t total)
{
    lg_bar_update(ctx, done, total);
}

lg_status lg_app_engine_open(lg_app *app, const lg_engine_params *p, lg_engine **out, lg_err *err)
{
    const char *slash = strrchr(p->model_path, '/');
    lg_engine_params with_bar = *p;
    char what[64];
    lg_status st;
    lg_bar bar;

    (void)snprintf(what, sizeof what, "loading %s", slash ? slash + 1 : p->model_path);
    lg_bar_start(&bar, what, LG_BAR_BYTES, app->set.color, app->common.quiet);
    with_bar.progress = on_load;
    with_bar.progress_ctx = &bar;
    st = lg_engine_open(&with_bar, out, err);
    lg_bar_end(&bar, st == LG_OK);
    return st;
}
