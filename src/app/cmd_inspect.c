/*
 * app/cmd_inspect: `lagoon inspect`: what a file is and whether it would load, without loading it.
 *
 * Reads metadata and tensor table only, so a large file takes milliseconds. Whatever would stop a load (a
 * key, a shape, a missing tensor, the tokenizer, with --plan too little memory) is reported as the load
 * would, with exit status 1, behind what could be shown.
 */
#include <stdlib.h>

#include "app/commands.h"
#include "app/inspect.h"
#include "engine/spec.h"
#include "text/vocab.h"

typedef struct own {
    lg_common common;
    bool tensors, plan;
} own;

static const lg_option options[] = {
    LG_OPTION(own, tensors, "tensors", 0, bool, "", NULL, NULL, "also list every tensor"),
    LG_OPTION(own, plan, "plan", 0, bool, "", NULL, NULL, "also what loading it on this machine would take"),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_setting_id settings[] = {LG_FILE_SETTINGS, LG_SET_device, LG_SET_threads, LG_SET_ctx,
                                         LG_SET_kv_type,   LG_SET_isa,    LG_SET_draft,   LG_SET_draft_type,
                                         LG_SET_cache_slots, LG_SET_cache_ram, LG_SET_END};

// Everything that inspect works out, so that one function can give it back.
typedef struct work {
    lg_gguf *g;
    lg_hparams hp;
    lg_backend *backend;
    lg_spec_plan draft;
    lg_plan_for plan_for;
    lg_plan plan;
    lg_inspect in;
} work;

// Files that are no models of ours but have their place: nothing is wrong with them.
static const char *known_other(const lg_gguf *g)
{
    lg_str s;

    if (lg_kv_str(lg_gguf_find(g, "general.type"), &s) && lg_str_eqz(s, "imatrix"))
        return "none: an importance matrix";
    if (lg_kv_str(lg_gguf_find(g, "general.architecture"), &s) &&
        (lg_str_eqz(s, "dflash") || lg_str_eqz(s, "dflash-draft")))
        return "none: a DFlash drafter, which belongs to a model";
    return NULL;
}

// Configuration, tensors and tokenizer, as loading would look at them.
static lg_status examine(work *w, lg_err *err)
{
    lg_weights_plan weights;
    lg_vocab *vocab = NULL;

    w->in.note = known_other(w->g);
    if (w->in.note)
        return LG_OK;
    LG_TRY(lg_hparams_read(w->g, NULL, &w->hp, err));
    w->in.hp = &w->hp;
    LG_TRY(lg_weights_check(w->g, &w->hp, NULL, &weights, err));
    lg_weights_warn(&weights);
    LG_TRY(lg_vocab_load(w->g, &vocab, err));
    lg_vocab_destroy(vocab);
    return LG_OK;
}

static lg_status make_plan(work *w, const lg_engine_params *p, lg_err *err)
{
    lg_plan_for *f = &w->plan_for;
    lg_spec_plan *draft = &w->draft;

    if (!w->in.hp)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "has no configuration to plan for");
    LG_TRY(lg_backend_open(&p->backend, &w->backend, err));
    *f = (lg_plan_for){.hp = &w->hp, .b = w->backend, .kv_type = p->kv_type, .chunk = p->chunk,
                       .cache_slots = p->cache_slots, .cache_ram = p->cache_ram};
    LG_TRY(lg_weights_check(w->g, &w->hp, w->backend, &f->weights, err));
    LG_TRY(lg_spec_examine(p, &w->hp, w->backend, draft, err));
    if (draft->gguf) {
        f->draft = &draft->hp;
        f->draft_weights = draft->weights;
        f->draft_kv_type = draft->kv_type;
    }
    lg_plan_choose(f, p->ctx, &w->plan);
    w->in.plan = &w->plan;
    w->in.device = w->backend->info.name;
    return w->plan.fits ? LG_OK : lg_plan_refuse(f, &w->plan, err);
}

static int run(lg_app *app)
{
    const own *o = app->own;
    work *w = calloc(1, sizeof *w);
    lg_engine_params params;
    lg_err err = {0}, print = {0};
    lg_status st;
    int rc = LG_EXIT_OK;

    if (app->words.n_arg > 0 && app->set.from[LG_SET_model].source == LG_FROM_FLAG) {
        free(w);
        return lg_app_usage("inspect looks at one file; '%s' and --model %s are two", app->words.arg[0],
                            app->set.model);
    }
    if (!w)
        return lg_app_fail(&(lg_err){.code = LG_E_NOMEM, .msg = "out of memory"});
    if (app->words.n_arg)
        app->set.model = app->words.arg[0];
    st = lg_app_engine_params(app, &params, &err);
    if (st == LG_OK)
        st = lg_gguf_open(app->model_path, &w->g, &err);
    if (st != LG_OK)
        goto out;
    w->in.g = w->g;
    w->in.tensors = o->tensors;
    lg_inspect_count(&w->in);
    st = examine(w, &err);
    if (st == LG_OK && o->plan)
        st = make_plan(w, &params, &err);
    if (st != LG_OK)
        (void)lg_err_subject(&err, "%s", app->model_path);
    if (!app->common.json)
        lg_inspect_text(&w->in);
    else if (lg_inspect_json(&w->in, &print) != LG_OK)
        rc = lg_app_fail(&print);
    (void)lg_app_stdout_ok(); // what was found stands before what is wrong
out:
    if (st != LG_OK)
        rc = lg_app_fail(&err);
    lg_spec_plan_free(&w->draft);
    lg_backend_close(w->backend);
    lg_gguf_close(w->g);
    free(w);
    return rc;
}

const lg_cmd lg_cmd_inspect = {
    .words = {.name = "inspect",
              .usage = "inspect [FILE|NAME] [flags]",
              .summary = "show what a model file holds and whether it would load",
              .settings = settings,
              .options = options,
              .max_args = 1,
              .args_help = "FILE"},
    .own_bytes = sizeof(own),
    .run = run,
};
