/*
 * app/groups: the flags that several commands share: model, vocabulary, generation.
 *
 * Defaults of generation are the checkpoint's own (temperature 1, top-k 20) and the thinking budget of the server.
 */
#include "app/app.h"

#define MODEL(field) offsetof(lg_model_opts, field)
#define GEN(field) offsetof(lg_gen_opts, field)
#define ABSENT(flag) {.name = flag, .kind = LG_OPT_ABSENT}

static const lg_option vocab_table[] = {
    {.name = "model", .letter = 'm', .kind = LG_OPT_TEXT, .at = MODEL(model), .arg = "FILE|NAME",
     .help = "GGUF file (first part of a split one is enough), or s-2.1, xs-2.1, mini"},
    {.name = "mini", .kind = LG_OPT_SWITCH, .at = MODEL(mini), .help = "the small demonstration model"},
    {0},
};

static const lg_option model_table[] = {
    {.name = "model", .letter = 'm', .kind = LG_OPT_TEXT, .at = MODEL(model), .arg = "FILE|NAME",
     .help = "GGUF file (first part of a split one is enough), or s-2.1, xs-2.1, mini; without: s-2.1"},
    {.name = "mini", .kind = LG_OPT_SWITCH, .at = MODEL(mini), .help = "the small demonstration model"},
    {.name = "device", .kind = LG_OPT_TEXT, .at = MODEL(device), .arg = "auto|cpu|cuda[:N]|metal", .def = "auto",
     .help = "where to run"},
    {.name = "threads", .letter = 't', .kind = LG_OPT_INT, .at = MODEL(threads), .arg = "N", .max = 1024,
     .help = "CPU threads; without: the physical cores this process may use"},
    {.name = "ctx", .letter = 'c', .kind = LG_OPT_INT, .at = MODEL(ctx), .arg = "N", .max = 1 << 30,
     .help = "context length; without: the trained one, lowered when memory does not allow it"},
    {.name = "kv-type", .kind = LG_OPT_TEXT, .at = MODEL(kv_type), .choices = "f16|f32|q8_0", .def = "f16",
     .help = "element type of the KV cache"},
    {.name = "isa", .kind = LG_OPT_TEXT, .at = MODEL(isa), .arg = "LEVEL",
     .help = "highest CPU kernel level: c avx2 avx512vnni neon dotprod i8mm; without: the best here"},
    {.name = "no-draft", .kind = LG_OPT_SWITCH, .at = MODEL(no_draft), .help = "decode without a drafter"},
    ABSENT("draft"),
    ABSENT("draft-max"),
    ABSENT("draft-p-min"),
    ABSENT("draft-ctx"),
    ABSENT("draft-pause-margin"),
    {0},
};

static const lg_option gen_table[] = {
    {.name = "max-tokens", .letter = 'n', .kind = LG_OPT_INT, .at = GEN(max_tokens), .arg = "N", .min = -1,
     .max = 1 << 30, .def = "32768", .help = "most tokens of an answer, thinking included; 0 = what fits the context"},
    {.name = "temp", .kind = LG_OPT_REAL, .at = GEN(temp), .arg = "T", .max = 5, .def = "1",
     .help = "temperature; 0 = greedy and reproducible"},
    {.name = "top-k", .kind = LG_OPT_INT, .at = GEN(top_k), .arg = "K", .min = -1, .max = 1 << 30, .def = "20",
     .help = "sample among the K likeliest; 0 = off"},
    {.name = "top-p", .kind = LG_OPT_REAL, .at = GEN(top_p), .arg = "P", .max = 1, .def = "1",
     .help = "sample among the likeliest with total probability P"},
    {.name = "min-p", .kind = LG_OPT_REAL, .at = GEN(min_p), .arg = "P", .max = 1, .def = "0",
     .help = "drop what is less likely than P times the likeliest"},
    {.name = "seed", .kind = LG_OPT_INT, .at = GEN(seed), .arg = "N", .def = "-1", .help = "random seed; -1 = a new one"},
    {.name = "think", .kind = LG_OPT_BOOL, .at = GEN(think), .def = "yes", .help = "think before answering"},
    {.name = "max-think", .kind = LG_OPT_INT, .at = GEN(max_think), .arg = "N", .min = -1, .max = 1 << 30,
     .def = "4096", .help = "thinking budget in tokens; -1 = none"},
    {.name = "min-think", .kind = LG_OPT_INT, .at = GEN(min_think), .arg = "N", .max = 1 << 30, .def = "0",
     .help = "think at least N tokens"},
    {.name = "stop", .kind = LG_OPT_LIST, .at = GEN(stop), .arg = "S",
     .help = "end the answer before this text; may be repeated"},
    {.name = "ban-string", .kind = LG_OPT_LIST, .at = GEN(ban), .arg = "S",
     .help = "a text the model must not write; may be repeated"},
    ABSENT("json-schema"),
    ABSENT("json-object"),
    ABSENT("regex"),
    {0},
};

void lg_app_add_groups(lg_app *app, unsigned uses)
{
    lg_parse *p = &app->parse;

    if (uses & LG_USES_MODEL)
        p->set[p->n_set++] = (lg_opt_set){"model and device", model_table, &app->model};
    else if (uses & LG_USES_VOCAB)
        p->set[p->n_set++] = (lg_opt_set){"model", vocab_table, &app->model};
    if (uses & LG_USES_GENERATION)
        p->set[p->n_set++] = (lg_opt_set){"generation", gen_table, &app->gen};
}
