/*
 * server/request_think: every way in which a request speaks about thinking (api.md 2), in one table for all
 * dialects. On and off said outright win over an effort or a budget, and those over the server's defaults.
 */
#include <stdio.h>
#include <string.h>

#include "server/request.h"

static const struct {
    const char *name;
    int64_t budget; /* 0: no thinking; < 0: no bound */
} efforts[] = {{"none", 0},    {"minimal", 512}, {"low", 2048}, {"medium", 4096},
               {"high", 16384}, {"xhigh", 32768}, {"max", -1}};

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static void set_budget(lg_think_ask *ask, int64_t budget)
{
    ask->explicitly = true;
    ask->on = budget != 0;
    ask->budget = budget;
}

static lg_status read_effort(const lg_json *o, const char *at, const char *key, lg_think_ask *ask,
                             lg_api_error *e)
{
    lg_str word = {0};
    char path[96];

    LG_TRY(lg_field_str(o, at, key, &word, e));
    if (!word.p)
        return LG_OK;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) {
        if (lg_str_eqz(word, efforts[i].name)) {
            set_budget(ask, efforts[i].budget);
            return LG_OK;
        }
    }
    (void)snprintf(path, sizeof path, "%s%s", at, key);
    return lg_api_fail(
        e, LG_API_INVALID, path,
        "%s must be \"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"", path);
}

static lg_status read_budget(const lg_json *o, const char *at, const char *key, int64_t low,
                             lg_think_ask *ask, lg_api_error *e)
{
    int64_t budget = INT64_MIN;

    LG_TRY(lg_field_limit(o, at, key, low, &budget, e));
    if (budget != INT64_MIN)
        set_budget(ask, budget);
    return LG_OK;
}

/* What was said outright. */
typedef struct outright {
    bool given, on;
} outright;

static lg_status read_switch(const lg_json *o, const char *at, const char *key, outright *to, lg_api_error *e)
{
    if (!field(o, key))
        return LG_OK;
    to->given = true;
    return lg_field_bool(o, at, key, &to->on, e);
}

static lg_status read_thinking(const lg_json *body, lg_think_ask *ask, outright *said, lg_api_error *e)
{
    const lg_json *t = field(body, "thinking");
    lg_str type = {0};

    if (!t)
        return LG_OK;
    if (lg_json_is(t, LG_JSON_TRUE) || lg_json_is(t, LG_JSON_FALSE))
        return read_switch(body, "", "thinking", said, e);
    if (!lg_json_is(t, LG_JSON_OBJECT))
        return lg_api_fail(e, LG_API_INVALID, "thinking", "thinking must be an object with a type");
    LG_TRY(lg_field_str(t, "thinking.", "type", &type, e));
    if (lg_str_eqz(type, "disabled")) {
        *said = (outright){true, false};
        return LG_OK;
    }
    // the model decides: on, but not a wish that a small limit must honour
    if (lg_str_eqz(type, "adaptive")) {
        ask->on = ask->on || !ask->explicitly;
        return LG_OK;
    }
    if (!lg_str_eqz(type, "enabled"))
        return lg_api_fail(e, LG_API_INVALID, "thinking.type",
                           "thinking.type must be \"enabled\", \"disabled\" or \"adaptive\"");
    *said = (outright){true, true};
    return read_budget(t, "thinking.", "budget_tokens", 1, ask, e);
}

static lg_history history_of(const char *word)
{
    return strcmp(word, "all") == 0    ? LG_HISTORY_ALL
           : strcmp(word, "none") == 0 ? LG_HISTORY_NONE
                                       : LG_HISTORY_TAIL;
}

static lg_status read_history(const lg_json *body, const lg_json *kwargs, lg_history *out, lg_api_error *e)
{
    bool preserve = false;
    lg_str word = {0};

    LG_TRY(lg_field_bool(kwargs, "chat_template_kwargs.", "preserve_thinking", &preserve, e));
    if (field(kwargs, "preserve_thinking"))
        *out = preserve ? LG_HISTORY_ALL : LG_HISTORY_TAIL;
    LG_TRY(lg_field_str(body, "", "history_thinking", &word, e));
    if (!word.p)
        return LG_OK;
    if (!lg_str_eqz(word, "tail") && !lg_str_eqz(word, "all") && !lg_str_eqz(word, "none"))
        return lg_api_fail(e, LG_API_INVALID, "history_thinking",
                           "history_thinking must be \"tail\", \"all\" or \"none\"");
    *out = history_of(word.p);
    return LG_OK;
}

// Member that must be an object when it is there.
static lg_status read_object(const lg_json *body, const char *key, const lg_json **out, lg_api_error *e)
{
    *out = field(body, key);
    if (*out && !lg_json_is(*out, LG_JSON_OBJECT))
        return lg_api_fail(e, LG_API_INVALID, key, "%s must be an object", key);
    return LG_OK;
}

lg_status lg_request_thinking(const lg_service *s, const lg_json *body, lg_think_ask *out, lg_api_error *e)
{
    static const char *const budget[] = {"thinking_budget_tokens", "thinking_budget", "reasoning_budget"};
    lg_think_ask ask = {.on = s->set->thinking,
                        .budget = s->set->default_budget,
                        .history = history_of(s->set->history_thinking)};
    const lg_json *reasoning, *kwargs, *config;
    outright said = {0};

    LG_TRY(read_object(body, "reasoning", &reasoning, e));
    LG_TRY(read_object(body, "chat_template_kwargs", &kwargs, e));
    LG_TRY(read_object(body, "output_config", &config, e));
    LG_TRY(read_effort(body, "", "reasoning_effort", &ask, e));
    LG_TRY(read_effort(reasoning, "reasoning.", "effort", &ask, e));
    LG_TRY(read_effort(config, "output_config.", "effort", &ask, e));
    LG_TRY(read_budget(reasoning, "reasoning.", "max_tokens", -1, &ask, e));
    for (size_t i = 0; i < sizeof budget / sizeof *budget; i++)
        LG_TRY(read_budget(body, "", budget[i], -1, &ask, e));
    LG_TRY(read_switch(kwargs, "chat_template_kwargs.", "enable_thinking", &said, e));
    LG_TRY(read_switch(body, "", "enable_thinking", &said, e));
    LG_TRY(read_switch(body, "", "think", &said, e));
    LG_TRY(read_switch(reasoning, "reasoning.", "enabled", &said, e));
    LG_TRY(read_thinking(body, &ask, &said, e));
    LG_TRY(lg_field_bool(reasoning, "reasoning.", "exclude", &ask.hide, e));
    LG_TRY(read_history(body, kwargs, &ask.history, e));
    if (said.given) {
        ask.explicitly = true;
        ask.on = said.on;
    }
    if (ask.on && ask.budget == 0) // switched on against an effort of "none" or a server without
        ask.budget = s->set->default_budget != 0 ? s->set->default_budget : -1;
    *out = ask;
    return LG_OK;
}
