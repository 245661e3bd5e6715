/*
 * app/drafter: which drafter belongs to a model file, and the drafting settings as engine parameters.
 *
 * A drafter lies beside its model and has the model's name up to the word "dflash": `mini-dflash.gguf` for
 * `mini.gguf`, `laguna-s-2.1-DFlash-BF16.gguf` for every quantization of `laguna-s-2.1`. Whether the two fit
 * is decided by their metadata when the engine opens them.
 */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <string.h>

#include "app/app.h"

/* Where "dflash" begins in a file name, whatever its case; NULL: nowhere. */
static const char *find_word(const char *name)
{
    static const char word[] = "dflash";

    for (; *name; name++) {
        size_t i = 0;
        while (word[i] && tolower((unsigned char)name[i]) == word[i])
            i++;
        if (!word[i])
            return name;
    }
    return NULL;
}

static bool ends_in_gguf(const char *name)
{
    size_t n = strlen(name);
    const char *end = n > 5 ? name + n - 5 : name;

    return tolower((unsigned char)end[0]) == '.' && tolower((unsigned char)end[1]) == 'g' &&
           tolower((unsigned char)end[2]) == 'g' && tolower((unsigned char)end[3]) == 'u' &&
           tolower((unsigned char)end[4]) == 'f';
}

/* Length of the name that drafter and model share, 0 when they do not belong together: what stands before
 * the separator and "dflash" must be the model's name, or a beginning of it that ends at a separator. */
static size_t shared_name(const char *drafter, const char *model)
{
    const char *word = find_word(drafter);
    size_t n = word ? (size_t)(word - drafter) : 0;

    if (n < 2 || !ends_in_gguf(drafter) || find_word(model))
        return 0;
    n--; // the separator
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)drafter[i]) != tolower((unsigned char)model[i]))
            return 0;
    return strchr(".-_", drafter[n]) && model[n] && strchr(".-_", model[n]) ? n : 0;
}

bool lg_app_find_drafter(const char *model_path, char *out, size_t n)
{
    const char *slash = strrchr(model_path, '/'), *model = slash ? slash + 1 : model_path;
    char dir[PATH_MAX], best[NAME_MAX + 1] = "";
    size_t most = 0;
    struct dirent *e;
    DIR *d;

    if (slash && (size_t)(slash - model_path) >= sizeof dir)
        return false;
    (void)snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - model_path) : 1, slash ? model_path : ".");
    d = opendir(*dir ? dir : "/");
    if (!d)
        return false;
    while ((e = readdir(d)) != NULL) {
        size_t shared = shared_name(e->d_name, model);
        // the longest shared name, then the first by name: of several precisions always the same one
        if (shared > most || (shared > 0 && shared == most && strcmp(e->d_name, best) < 0)) {
            most = shared;
            (void)snprintf(best, sizeof best, "%s", e->d_name);
        }
    }
    (void)closedir(d);
    int len = most > 0 ? snprintf(out, n, "%s/%s", dir, best) : -1;
    return len > 0 && (size_t)len < n;
}

void lg_app_draft_settings(const lg_app *app, lg_engine_params *p)
{
    const lg_settings *s = &app->set;

    p->draft = (lg_draft_params){.max = (int)s->draft_max,
                                 .p_min = (float)s->draft_p_min,
                                 .ctx = s->draft_ctx,
                                 .pause_margin = (float)s->draft_pause_margin,
                                 .type = strcmp(s->draft_type, "stored") == 0 ? LG_DRAFT_STORED
                                                                              : LG_DRAFT_Q8_0};
}

void lg_app_choose_drafter(lg_app *app, lg_engine_params *p)
{
    const char *word = app->set.draft;

    p->draft_path = NULL;
    p->draft_required = false;
    if (strcmp(word, "none") == 0)
        return;
    if (strcmp(word, "auto") != 0) {
        p->draft_path = word;
        p->draft_required = true;
    } else if (lg_app_find_drafter(app->model_path, app->draft_path, sizeof app->draft_path)) {
        p->draft_path = app->draft_path;
    }
}
