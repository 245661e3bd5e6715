/*
 * app/turn: one answer: the generation flags, the run with prefill bar and display, and the line of figures
 * behind it. Shared by generate and chat.
 *
 * Everything runs on the main thread; Ctrl-C and a closed stdout set the cancel flag that the engine watches.
 */
#ifndef LG_APP_TURN_H
#define LG_APP_TURN_H

#include "app/app.h"
#include "app/progress.h"
#include "app/show.h"
#include "engine/constraint.h"

/* Flags of generate and chat: member `gen` of the command's own struct. */
typedef struct lg_gen_opts {
    int64_t max_tokens; /* <= 0: what fits the context */
    int64_t seed;       /* -1: a new one for each answer */
    int64_t max_think;  /* LG_BUDGET_UNSET: the setting default_budget; -1: no bound */
    int64_t min_think;
    lg_list stop, ban;
    const char *json_schema, *regex;
    bool json_object;
} lg_gen_opts;

enum { LG_BUDGET_UNSET = -2 };

#define LG_GEN_OPTIONS(own)                                                                                \
    LG_OPTION(own, gen.max_tokens, "max-tokens", 'n', int, "N", "32768", "-1..16777216",                   \
              "most tokens of an answer, thinking included; 0 or -1 = what fits the context"),             \
        LG_OPTION(own, gen.seed, "seed", 0, int, "N", "-1", "-1..9223372036854775807",                     \
                  "random seed; -1 = a new one"),                                                          \
        LG_OPTION(own, gen.max_think, "max-think", 0, int, "N", NULL, "-1..16777216",                      \
                  "most tokens of thinking; -1 = no bound; without: the setting default_budget"),          \
        LG_OPTION(own, gen.min_think, "min-think", 0, int, "N", "0", "0..16777216",                        \
                  "think at least N tokens"),                                                              \
        LG_OPTION(own, gen.stop, "stop", 0, list, "TEXT", NULL, NULL,                                      \
                  "end the answer before this text; may be repeated"),                                     \
        LG_OPTION(own, gen.ban, "ban-string", 0, list, "TEXT", NULL, NULL,                                 \
                  "no token that holds this text may be written; may be repeated"),                                     \
        LG_OPTION(own, gen.json_schema, "json-schema", 0, str, "FILE", NULL, NULL,                         \
                  "the answer is JSON that this JSON Schema admits"),                                      \
        LG_OPTION(own, gen.json_object, "json-object", 0, bool, "", NULL, NULL,                            \
                  "the answer is a JSON object"),                                                          \
        LG_OPTION(own, gen.regex, "regex", 0, str, "R", NULL, NULL,                                        \
                  "the answer matches this regular expression from end to end")

#define LG_GEN_SETTINGS                                                                    \
    LG_SET_thinking, LG_SET_default_budget, LG_SET_history_thinking, LG_SET_chat_template, \
        LG_SET_temperature, LG_SET_top_k, LG_SET_top_p, LG_SET_min_p

/* What every answer of this process is made with; the flags and settings, checked. */
typedef struct lg_asking {
    lg_sampling sampling;
    bool random_seed;
    int64_t max_tokens; /* <= 0: what fits the context */
    bool thinking, thinking_explicit;
    int64_t max_think; /* -1: no bound */
    int64_t min_think;
    lg_str stop[64], ban[64];
    size_t n_stop, n_ban;
    lg_history history;
    const char *family; /* auto, s21, v2 */
    lg_constraint *constraint; /* of every answer; NULL: free */
} lg_asking;

/* Fill `out` from flags and settings. */
LG_NODISCARD lg_status lg_asking_make(const lg_app *app, const lg_gen_opts *gen, lg_asking *out, lg_err *err);
/* Prints why it failed; the exit status: 2, but 1 for a schema file that cannot be read. */
int lg_asking_fail(const lg_err *err);
void lg_asking_free(lg_asking *a); /* one of its copies; a zeroed one is fine */

/* What the user should know before the first answer: a template that was guessed, bans that do little. */
void lg_asking_warn(const lg_app *app, const lg_asking *a, bool raw, const lg_vocab *v);

/* Template family of this vocabulary, or the one that the setting names. */
lg_template_family lg_asking_family(const lg_asking *a, const lg_vocab *v);

/* One answer to `prompt`. The reply's texts are in show->content and show->reasoning, also when it was cut
 * short. *closed tells that stdout took nothing more. A prompt that leaves no room is LG_E_LIMIT. */
typedef struct lg_turn {
    lg_app *app;
    lg_engine *engine;
    const lg_asking *asking;
    bool thinking; /* what the prompt was rendered with */
    bool raw;      /* no parsing of the reply */
    int64_t max_think;
    lg_show *show;
    /* results */
    lg_gen_stats stats;
    bool closed;
    /* private */
    lg_bar *bar;
} lg_turn;
LG_NODISCARD lg_status lg_turn_run(lg_turn *t, const lg_ids *prompt, lg_err *err);

/* "312 + 1,204 thinking  30.7 tok/s  first token 0.31 s  cached 98 %  ctx 85,914 of 262,144" */
void lg_turn_figures(const lg_turn *t, lg_buf *out);
/* The answer and its figures on stdout, one line of JSON. */
LG_NODISCARD lg_status lg_turn_json(const lg_turn *t, lg_err *err);
/* Tokens a second while decoding; 0 when unknown. */
double lg_turn_rate(const lg_gen_stats *s);

#endif
