/*
 * server/request: typed fields, sampling, stop strings, tool choice, response format, model policy, ids
 * (request.h). Thinking is in request_think.c, the common end of every parse in request_chat.c.
 */
#include "server/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"

enum {
    MAX_STOP = 16,
    MAX_BIAS = 1024,
    MAX_TOP_K = 1 << 24,
    MAX_REPEAT = 1024,
    PATH = 160,
    MAX_PARALLEL_CALLS = 8, /* forced calls in a row, when the request asks for parallel ones */
};

/* --- typed fields --- */

// Member that is there and not null, or NULL.
static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static bool field_is(const lg_json *o, const char *key, const char *value)
{
    const lg_json *j = field(o, key);

    return lg_json_is(j, LG_JSON_STRING) && lg_str_eqz(lg_json_str(j), value);
}

static lg_status wrong(lg_api_error *e, const char *at, const char *key, const char *must)
{
    char path[PATH];

    (void)snprintf(path, sizeof path, "%s%s", at, key);
    return lg_api_fail(e, LG_API_INVALID, path, "%s must be %s", path, must);
}

// A whole number; one that 64 bits do not hold becomes the end of their range, and *inside is false.
static bool read_int(const lg_json *j, int64_t *out, bool *inside)
{
    double v;

    *inside = lg_json_is(j, LG_JSON_NUMBER) && lg_json_i64(j, out);
    if (*inside)
        return true;
    if (!lg_json_is(j, LG_JSON_NUMBER) || !lg_json_f64(j, &v) || fabs(v) < 0x1p63)
        return false; // a double of that size has no fraction
    *out = v < 0 ? INT64_MIN : INT64_MAX;
    return true;
}

// *there is false without the field; the rest as read_int.
static lg_status whole_field(const lg_json *o, const char *at, const char *key, bool *there, int64_t *out,
                             bool *inside, lg_api_error *e)
{
    const lg_json *j = field(o, key);

    *there = j != NULL;
    return !j || read_int(j, out, inside) ? LG_OK : wrong(e, at, key, "an integer");
}

lg_status lg_field_int(const lg_json *o, const char *at, const char *key, int64_t low, int64_t high,
                       int64_t *out, lg_api_error *e)
{
    bool there, inside = false;
    char must[96];
    int64_t v = 0;

    LG_TRY(whole_field(o, at, key, &there, &v, &inside, e));
    if (!there)
        return LG_OK;
    if (!inside || v < low || v > high) {
        (void)snprintf(must, sizeof must, "between %lld and %lld", (long long)low, (long long)high);
        return wrong(e, at, key, must);
    }
    *out = v;
    return LG_OK;
}

lg_status lg_field_limit(const lg_json *o, const char *at, const char *key, int64_t low, int64_t *out,
                         lg_api_error *e)
{
    bool there, inside;
    char must[96];
    int64_t v = 0;

    LG_TRY(whole_field(o, at, key, &there, &v, &inside, e));
    if (!there)
        return LG_OK;
    if (v < low) {
        (void)snprintf(must, sizeof must, "at least %lld", (long long)low);
        return wrong(e, at, key, must);
    }
    *out = v < LG_LIMIT_MOST ? v : LG_LIMIT_MOST;
    return LG_OK;
}

lg_status lg_field_num(const lg_json *o, const char *at, const char *key, double low, double high,
                       double *out, lg_api_error *e)
{
    const lg_json *j = field(o, key);
    char must[96];
    double v;

    if (!j)
        return LG_OK;
    if (!lg_json_is(j, LG_JSON_NUMBER) || !lg_json_f64(j, &v))
        return wrong(e, at, key, "a number");
    if (!(v >= low && v <= high)) {
        (void)snprintf(must, sizeof must, "between %g and %g", low, high);
        return wrong(e, at, key, must);
    }
    *out = v;
    return LG_OK;
}

lg_status lg_field_bool(const lg_json *o, const char *at, const char *key, bool *out, lg_api_error *e)
{
    const lg_json *j = field(o, key);

    if (j && !lg_json_bool(j, out))
        return wrong(e, at, key, "true or false");
    return LG_OK;
}

lg_status lg_field_str(const lg_json *o, const char *at, const char *key, lg_str *out, lg_api_error *e)
{
    const lg_json *j = field(o, key);

    if (!j)
        return LG_OK;
    if (!lg_json_is(j, LG_JSON_STRING))
        return wrong(e, at, key, "a string");
    *out = lg_json_str(j);
    return LG_OK;
}

static lg_status no_memory(const lg_job *job, lg_api_error *e)
{
    return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs more than %zu bytes of memory",
                       job->arena.limit);
}

/* --- sampling --- */

static lg_status read_bias(const lg_service *s, const lg_json *o, const char *at, lg_job *job,
                           lg_api_error *e)
{
    const lg_json *map = field(o, "logit_bias");
    size_t n = lg_json_len(map);
    lg_logit_bias *bias;

    if (!map)
        return LG_OK;
    if (!lg_json_is(map, LG_JSON_OBJECT))
        return wrong(e, at, "logit_bias", "an object of token ids and numbers");
    if (n > MAX_BIAS)
        return wrong(e, at, "logit_bias", "of at most 1024 entries");
    bias = LG_NEW_N(&job->arena, lg_logit_bias, n);
    if (!bias)
        return no_memory(job, e);
    for (size_t i = 0; i < n; i++) {
        lg_str key;
        const lg_json *value = lg_json_member(map, i, &key);
        int64_t id;
        double v;
        if (!lg_str_i64(key, &id) || id < 0 || id >= lg_vocab_size(s->vocab))
            return wrong(e, at, "logit_bias", "keyed by ids of the vocabulary");
        if (!lg_json_is(value, LG_JSON_NUMBER) || !lg_json_f64(value, &v) || !(v >= -100 && v <= 100))
            return wrong(e, at, "logit_bias", "of numbers between -100 and 100");
        bias[i] = (lg_logit_bias){(int32_t)id, (float)v};
    }
    job->sampling.bias = bias;
    job->sampling.n_bias = (int)n;
    return LG_OK;
}

static lg_status read_penalties(const lg_json *o, const char *at, lg_sampling *out, lg_api_error *e)
{
    double frequency = 0, presence = 0, repetition = 1;
    int64_t last = out->repeat_last_n;

    LG_TRY(lg_field_num(o, at, "frequency_penalty", -2, 2, &frequency, e));
    LG_TRY(lg_field_num(o, at, "presence_penalty", -2, 2, &presence, e));
    LG_TRY(lg_field_num(o, at, "repeat_penalty", 0.001, 2, &repetition, e));
    LG_TRY(lg_field_num(o, at, "repetition_penalty", 0.001, 2, &repetition, e));
    LG_TRY(lg_field_int(o, at, "repeat_last_n", -1, MAX_REPEAT, &last, e));
    out->frequency_penalty = (float)frequency;
    out->presence_penalty = (float)presence;
    out->repetition_penalty = (float)repetition;
    out->repeat_last_n = last < 0 ? MAX_REPEAT : (int)last;
    return LG_OK;
}

lg_status lg_request_sampling(const lg_service *s, const lg_json *o, const char *at, unsigned have,
                              lg_job *job, lg_api_error *e)
{
    double temperature = s->set->temperature, top_p = s->set->top_p, min_p = s->set->min_p;
    int64_t top_k = s->set->top_k, seed = -1;
    lg_sampling *out = &job->sampling;

    *out = lg_sampling_default();
    LG_TRY(lg_field_num(o, at, "temperature", 0, 5, &temperature, e));
    LG_TRY(lg_field_num(o, at, "top_p", 0, 1, &top_p, e));
    LG_TRY(lg_field_int(o, at, "top_k", -1, MAX_TOP_K, &top_k, e));
    if (have & LG_SAMPLE_MIN_P)
        LG_TRY(lg_field_num(o, at, "min_p", 0, 1, &min_p, e));
    if (have & LG_SAMPLE_SEED)
        LG_TRY(lg_field_int(o, at, "seed", INT64_MIN, INT64_MAX, &seed, e));
    if (have & LG_SAMPLE_PENALTIES)
        LG_TRY(read_penalties(o, at, out, e));
    if (have & LG_SAMPLE_BIAS)
        LG_TRY(read_bias(s, o, at, job, e));
    out->temperature = top_p == 0 ? 0 : (float)temperature; // no choice at all is the greedy one
    out->top_p = top_p == 0 ? 1 : (float)top_p;
    out->top_k = (int)top_k;
    out->min_p = (float)min_p;
    out->seed = (uint64_t)seed;
    job->random_seed = seed == -1;
    return LG_OK;
}

lg_status lg_request_stop(const lg_json *o, const char *at, const char *key, lg_job *job, lg_api_error *e)
{
    const lg_json *j = field(o, key);
    size_t n = lg_json_is(j, LG_JSON_ARRAY) ? lg_json_len(j) : 1;
    lg_str *stop;

    if (!j)
        return LG_OK;
    if (n > MAX_STOP)
        return wrong(e, at, key, "at most 16 strings");
    stop = LG_NEW_N(&job->arena, lg_str, n);
    if (!stop)
        return no_memory(job, e);
    job->n_stop = 0;
    for (size_t i = 0; i < n; i++) {
        const lg_json *one = lg_json_is(j, LG_JSON_ARRAY) ? lg_json_at(j, i) : j;
        if (!lg_json_is(one, LG_JSON_STRING))
            return wrong(e, at, key, "a string or an array of strings");
        if (lg_json_str(one).n > 0)
            stop[job->n_stop++] = lg_json_str(one);
    }
    job->stop = stop;
    return LG_OK;
}

/* --- tool choice --- */

static lg_status declared(const lg_chat_tools *tools, const lg_json *name, const char *param, lg_str *out,
                          lg_api_error *e)
{
    lg_str s = lg_json_str(name);

    for (size_t i = 0; i < tools->n && s.n > 0; i++) {
        if (lg_str_eq(tools->tool[i].name, s)) {
            *out = s;
            return LG_OK;
        }
    }
    if (s.n == 0)
        return lg_api_fail(e, LG_API_INVALID, param, "%s must name a tool", param);
    return lg_api_fail(e, LG_API_INVALID, param, "%s names \"%.*s\", which is not among the tools", param,
                       (int)(s.n < 64 ? s.n : 64), s.p);
}

// The name in {"type":"function","function":{"name"}} or {"type":"function","name"}.
static const lg_json *chosen_name(const lg_json *o)
{
    const lg_json *f = field(o, "function"), *custom = field(o, "custom");

    return field(f ? f : custom ? custom : o, "name");
}

static lg_status allowed_tools(const lg_json *o, const lg_chat_tools *tools, lg_arena *a, lg_tool_choice *out,
                               lg_api_error *e)
{
    const lg_json *inner = field(o, "allowed_tools") ? field(o, "allowed_tools") : o;
    const lg_json *list = field(inner, "tools");
    size_t n = lg_json_len(list);
    lg_str *name;

    if (!field_is(inner, "mode", "auto") && !field_is(inner, "mode", "required"))
        return lg_api_fail(e, LG_API_INVALID, "tool_choice.mode",
                           "tool_choice.mode must be \"auto\" or \"required\"");
    if (!lg_json_is(list, LG_JSON_ARRAY) || n == 0 || n > LG_CHAT_MAX_TOOLS)
        return lg_api_fail(e, LG_API_INVALID, "tool_choice.tools",
                           "tool_choice.tools must be an array of tools");
    name = LG_NEW_N(a, lg_str, n);
    if (!name)
        return lg_api_fail(e, LG_API_INVALID, "tool_choice.tools", "the request needs too much memory");
    for (size_t i = 0; i < n; i++)
        LG_TRY(declared(tools, chosen_name(lg_json_at(list, i)), "tool_choice.tools", &name[i], e));
    out->mode = field_is(inner, "mode", "required") ? LG_CHOICE_REQUIRED : LG_CHOICE_AUTO;
    out->allowed = name;
    out->n_allowed = n;
    return LG_OK;
}

static lg_status choice_word(lg_str word, const char *param, lg_tool_choice *out, lg_api_error *e)
{
    if (lg_str_eqz(word, "auto"))
        out->mode = LG_CHOICE_AUTO;
    else if (lg_str_eqz(word, "none"))
        out->mode = LG_CHOICE_NONE;
    else if (lg_str_eqz(word, "required") || lg_str_eqz(word, "any"))
        out->mode = LG_CHOICE_REQUIRED;
    else
        return lg_api_fail(e, LG_API_INVALID, param,
                           "%s must be \"auto\", \"none\", \"required\" or an object", param);
    return LG_OK;
}

lg_status lg_request_tool_choice(const lg_json *body, const lg_chat_tools *tools, lg_arena *a,
                                 lg_tool_choice *out, lg_api_error *e)
{
    const lg_json *j = field(body, "tool_choice"), *old = field(body, "function_call");
    const char *param = j ? "tool_choice" : "function_call";
    bool parallel = true;

    *out = (lg_tool_choice){.mode = LG_CHOICE_AUTO, .max_calls = 1};
    LG_TRY(lg_field_bool(body, "", "parallel_tool_calls", &parallel, e));
    out->parallel = parallel;
    j = j ? j : old;
    if (!j)
        return LG_OK;
    if (lg_json_is(j, LG_JSON_STRING)) {
        LG_TRY(choice_word(lg_json_str(j), param, out, e));
    } else if (!lg_json_is(j, LG_JSON_OBJECT)) {
        return lg_api_fail(e, LG_API_INVALID, param, "%s must be a string or an object", param);
    } else if (field_is(j, "type", "allowed_tools")) {
        LG_TRY(allowed_tools(j, tools, a, out, e));
    } else {
        out->mode = LG_CHOICE_REQUIRED;
        LG_TRY(declared(tools, chosen_name(j), param, &out->only, e));
    }
    if (out->mode == LG_CHOICE_REQUIRED && tools->n == 0)
        return lg_api_fail(e, LG_API_INVALID, param, "%s demands a call, but the request has no tools",
                           param);
    if (out->mode == LG_CHOICE_REQUIRED && out->only.n == 0 && parallel && field(body, "parallel_tool_calls"))
        out->max_calls = MAX_PARALLEL_CALLS;
    return LG_OK;
}

/* --- response format --- */

lg_status lg_request_format_of(const lg_json *f, const char *param, const lg_json *holder,
                               const char *schema_param, lg_format *out, lg_api_error *e)
{
    *out = (lg_format){.kind = LG_FORMAT_TEXT, .param = schema_param};
    if (!f || field_is(f, "type", "text"))
        return LG_OK;
    if (!lg_json_is(f, LG_JSON_OBJECT))
        return lg_api_fail(e, LG_API_INVALID, param, "%s must be an object", param);
    if (field_is(f, "type", "json_object")) {
        out->kind = field(f, "schema") ? LG_FORMAT_JSON_SCHEMA : LG_FORMAT_JSON_OBJECT;
        out->schema = field(f, "schema");
        return LG_OK;
    }
    if (!field_is(f, "type", "json_schema"))
        return lg_api_fail(e, LG_API_INVALID, param,
                           "%s.type must be \"text\", \"json_object\" or \"json_schema\"", param);
    if (field(holder, "name") && !lg_json_is(field(holder, "name"), LG_JSON_STRING))
        return lg_api_fail(e, LG_API_INVALID, param, "the name of %s must be a string", param);
    out->kind = LG_FORMAT_JSON_SCHEMA;
    out->schema = field(holder, "schema");
    return LG_OK;
}

lg_status lg_request_format(const lg_json *body, lg_format *out, lg_api_error *e)
{
    static const char *const refused[] = {"grammar", "guided_regex", "guided_choice", "guided_grammar"};
    const lg_json *f = field(body, "response_format"), *structured = field(body, "structured_outputs");
    const struct {
        const lg_json *schema;
        const char *param;
    } alias[] = {{field(body, "guided_json"), "guided_json"},
                 {field(structured, "json"), "structured_outputs.json"},
                 {field(body, "json_schema"), "json_schema"}};

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (field(body, refused[i]))
            return lg_api_fail(e, LG_API_INVALID, refused[i], "%s is not supported; use response_format",
                               refused[i]);
    LG_TRY(lg_request_format_of(f, "response_format", field(f, "json_schema"),
                                "response_format.json_schema.schema", out, e));
    for (size_t i = 0; i < sizeof alias / sizeof *alias && out->kind == LG_FORMAT_TEXT; i++)
        if (alias[i].schema)
            *out = (lg_format){
                .kind = LG_FORMAT_JSON_SCHEMA, .schema = alias[i].schema, .param = alias[i].param};
    return LG_OK;
}

/* --- model and ids --- */

lg_status lg_request_model(const lg_service *s, const lg_json *body, lg_job *job, lg_api_error *e)
{
    lg_str model = {0};
    bool known;

    LG_TRY(lg_field_str(body, "", "model", &model, e));
    job->model = model;
    if (strcmp(s->set->model_policy, "strict") != 0)
        return LG_OK;
    // where a request need not name a model, one that does not names no wrong one
    known = lg_str_eqz(model, s->model_id) || (!model.p && job->dialect && job->dialect->model_optional);
    for (size_t i = 0; i < s->set->model_aliases.n && !known; i++)
        known = lg_str_eqz(model, s->set->model_aliases.v[i]);
    if (known)
        return LG_OK;
    if (model.n > 0)
        (void)lg_api_fail(e, LG_API_NOT_FOUND, "model",
                          "the model \"%.*s\" is not served here; this is \"%s\"",
                          (int)(model.n < 64 ? model.n : 64), model.p, s->model_id);
    else
        (void)lg_api_fail(e, LG_API_NOT_FOUND, "model",
                          "model must name what is served here, which is \"%s\"", s->model_id);
    (void)snprintf(e->code, sizeof e->code, "model_not_found");
    if (strcmp(s->set->strict_status, "400") == 0) {
        e->status = 400;
        (void)snprintf(e->code, sizeof e->code, "model_mismatch");
    }
    return LG_E_INPUT;
}

void lg_random_id(const char *prefix, char *out, size_t n)
{
    static const char digit[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"; // 5 bits each
    enum { DIGITS = 20 };
    unsigned char bits[DIGITS];
    size_t at = strlen(prefix);

    // never on the systems we know; unguessable no more, still unique
    if (getentropy(bits, sizeof bits) != 0) {
        static atomic_uint_fast64_t count;
        for (size_t i = 0; i < sizeof bits; i++) {
            uint64_t seed[2] = {lg_now_ns(), atomic_fetch_add(&count, 1)};
            bits[i] = (unsigned char)lg_hash_64(seed, sizeof seed, i);
        }
    }
    LG_ASSERT(at + DIGITS < n);
    memcpy(out, prefix, at);
    for (size_t i = 0; i < DIGITS; i++)
        out[at++] = digit[bits[i] % 32];
    out[at] = 0;
}
