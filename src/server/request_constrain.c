/*
 * server/request_constrain: response formats, forced calls and strict tools -> what the reply must look like
 * (api.md 3.5, 3.6; structured.md 12).
 *
 * Compiled on the connection's thread, or found compiled, before the request is queued: what cannot be
 * enforced is refused here, with the field that asked for it.
 */
#include <stdio.h>
#include <string.h>

#include "server/request_int.h"

static lg_status no_memory(const lg_job *job, lg_api_error *e)
{
    return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs more than %zu bytes of memory",
                       job->arena.limit);
}

// Drops the blanks between the values of a JSON text.
static void squeeze(lg_buf *b)
{
    size_t n = 0;
    bool inside = false;

    for (size_t i = 0; i < b->n; i++) {
        char c = b->p[i];
        if (!inside && c == ' ')
            continue;
        if (c == '"')
            inside = !inside;
        b->p[n++] = c;
        if (inside && c == '\\' && i + 1 < b->n)
            b->p[n++] = b->p[++i];
    }
    b->n = n;
}

// A JSON value as text, in the arena. What the request's reader has mended (repeated names, halves of
// surrogate pairs) is a fault in a schema: there it is the text that was sent.
static lg_status text_of(const lg_json *j, lg_job *job, lg_str *out, lg_api_error *e)
{
    lg_str written = job->doc ? lg_json_written(job->doc, j) : (lg_str){0};
    lg_buf b;

    lg_buf_init(&b, job->arena.limit);
    if (written.n) {
        (void)lg_buf_adds(&b, written);
    } else {
        (void)lg_json_dump(j, &b);
        squeeze(&b);
    }
    *out = (lg_str){b.failed ? NULL : lg_arena_dup(&job->arena, b.p, b.n), b.n};
    lg_buf_free(&b);
    return out->p ? LG_OK : no_memory(job, e);
}

static lg_status schema_text(const lg_format *f, lg_job *job, lg_str *out, lg_api_error *e)
{
    lg_json_kind kind = lg_json_kind_of(f->schema);

    if (!f->schema || (kind != LG_JSON_OBJECT && kind != LG_JSON_TRUE && kind != LG_JSON_FALSE)) {
        (void)lg_api_fail(e, LG_API_INVALID, f->param, "%s must be a JSON Schema: an object or a boolean",
                          f->param);
        (void)snprintf(e->code, sizeof e->code, "%s", lg_grammar_code_name(LG_GRAMMAR_INVALID_SCHEMA));
        return LG_E_INPUT;
    }
    return text_of(f->schema, job, out, e);
}

static lg_status choices(const lg_json *list, lg_job *job, lg_constraint_spec *spec, lg_api_error *e)
{
    size_t n = lg_json_len(list);
    lg_str *choice = LG_NEW_N(&job->arena, lg_str, n);

    if (!choice)
        return no_memory(job, e);
    for (size_t i = 0; i < n; i++)
        choice[i] = lg_json_str(lg_json_at(list, i));
    spec->choice = choice;
    spec->n_choice = n;
    return LG_OK;
}

static bool may_call(const lg_tool_choice *c, lg_str name)
{
    if (c->only.n > 0)
        return lg_str_eq(c->only, name);
    for (size_t i = 0; i < c->n_allowed; i++)
        if (lg_str_eq(c->allowed[i], name))
            return true;
    return c->n_allowed == 0;
}

static lg_status tool_specs(const lg_chat_request *r, lg_job *job, lg_constraint_spec *spec, lg_api_error *e)
{
    const lg_chat_tools *tools = r->tools;
    lg_grammar_tool *tool = LG_NEW_N(&job->arena, lg_grammar_tool, tools->n);
    bool strict = spec->kind == LG_CONSTRAIN_STRICT_CALLS;

    if (!tool)
        return no_memory(job, e);
    for (size_t i = 0; i < tools->n; i++) {
        tool[i].name = tools->tool[i].name;
        if (strict)
            tool[i].mode = tools->strict[i] ? LG_TOOL_TYPED : LG_TOOL_ANY;
        else
            tool[i].mode = may_call(&r->choice, tool[i].name) ? LG_TOOL_TYPED : LG_TOOL_OFF;
        if (tools->tool[i].parameters && tool[i].mode == LG_TOOL_TYPED)
            LG_TRY(text_of(tools->tool[i].parameters, job, &tool[i].parameters, e));
    }
    spec->tool = tool;
    spec->n_tool = tools->n;
    return LG_OK;
}

static bool any_strict(const lg_chat_tools *tools)
{
    for (size_t i = 0; tools->strict && i < tools->n; i++)
        if (tools->strict[i])
            return true;
    return false;
}

// What kind of constraint the request asks for; false: none.
static bool kind_of(const lg_service *s, const lg_chat_request *r, bool tools, lg_constraint_kind *out)
{
    if (r->choice.mode == LG_CHOICE_REQUIRED)
        *out = LG_CONSTRAIN_CALL;
    else if (r->format.kind == LG_FORMAT_REGEX)
        *out = LG_CONSTRAIN_REGEX;
    else if (r->format.kind == LG_FORMAT_CHOICE)
        *out = LG_CONSTRAIN_CHOICE;
    else if (r->format.kind != LG_FORMAT_TEXT && tools)
        *out = LG_CONSTRAIN_CALL_OR_SCHEMA;
    else if (r->format.kind == LG_FORMAT_JSON_SCHEMA)
        *out = LG_CONSTRAIN_SCHEMA;
    else if (r->format.kind == LG_FORMAT_JSON_OBJECT)
        *out = LG_CONSTRAIN_JSON_OBJECT;
    else if (tools && strcmp(s->set->strict_tools, "enforce") == 0 && any_strict(r->tools))
        *out = LG_CONSTRAIN_STRICT_CALLS;
    else
        return false;
    return true;
}

static lg_status check_allowed(const lg_service *s, const lg_chat_request *r, bool tools, lg_api_error *e)
{
    bool value = r->format.kind == LG_FORMAT_JSON_OBJECT || r->format.kind == LG_FORMAT_JSON_SCHEMA;
    char param[64];
    const char *dot = r->format.param ? strchr(r->format.param, '.') : NULL;

    if (r->choice.mode == LG_CHOICE_REQUIRED && strcmp(s->set->forced_tools, "reject") == 0)
        return lg_api_fail(e, LG_API_INVALID, "tool_choice",
                           "tool_choice must be \"auto\" or \"none\": this server forces no calls");
    if (r->format.kind == LG_FORMAT_TEXT || !tools || (value && s->set->format_with_tools))
        return LG_OK;
    // the field, without the path of the schema inside it
    (void)snprintf(param, sizeof param, "%.*s", dot ? (int)(dot - r->format.param) : 63, r->format.param);
    return lg_api_fail(e, LG_API_INVALID, param, "%s cannot be combined with tools", param);
}

static lg_status refused(const lg_grammar_error *why, const lg_err *err, const char *param, lg_api_error *e)
{
    if (why->code == LG_GRAMMAR_OK)
        return lg_api_from_err(e, err);
    (void)lg_api_fail(e, LG_API_INVALID, param, "%s", err->msg);
    (void)snprintf(e->code, sizeof e->code, "%s", lg_grammar_code_name(why->code));
    return LG_E_INPUT;
}

lg_status lg_request_constrain(const lg_service *s, const lg_chat_request *r, lg_job *job, lg_api_error *e)
{
    bool tools = r->chat->n_tool > 0 && r->choice.mode != LG_CHOICE_NONE;
    lg_constraint_spec spec = {.max_calls = r->choice.max_calls > 0 ? r->choice.max_calls : 1,
                               .special = lg_vocab_special(s->vocab)};
    const char *param = r->choice.mode == LG_CHOICE_REQUIRED ? "tools" : r->format.param;
    lg_grammar_error why = {0};
    lg_err err = {0};

    LG_TRY(check_allowed(s, r, tools, e));
    if (!kind_of(s, r, tools, &spec.kind))
        return LG_OK;
    if (spec.kind == LG_CONSTRAIN_STRICT_CALLS)
        param = "tools";
    if (!s->trie)
        return lg_api_fail(e, LG_API_INVALID, param,
                           "the vocabulary of this model allows no constrained answers");
    if (lg_constraint_options(r->format.options, &spec, &err) != LG_OK)
        return lg_api_from_err(e, &err);
    job->heal = spec.heal;
    if (spec.kind == LG_CONSTRAIN_REGEX)
        spec.schema = lg_json_str(r->format.schema);
    else if (spec.kind == LG_CONSTRAIN_CHOICE)
        LG_TRY(choices(r->format.schema, job, &spec, e));
    else if (spec.kind == LG_CONSTRAIN_SCHEMA ||
             (spec.kind == LG_CONSTRAIN_CALL_OR_SCHEMA && r->format.schema))
        LG_TRY(schema_text(&r->format, job, &spec.schema, e));
    else if (spec.kind == LG_CONSTRAIN_CALL_OR_SCHEMA)
        spec.schema = LG_STR("{\"type\": \"object\"}");
    if (tools)
        LG_TRY(tool_specs(r, job, &spec, e));
    if (lg_constraint_get(s->constraints, &spec, &job->constraint, &why, &err) != LG_OK)
        return refused(&why, &err, param, e);
    return LG_OK;
}

// Takes the prefix's last token back, and those before it as long as its text would begin inside a character.
static lg_status take_back(const lg_service *s, lg_job *job, lg_api_error *e)
{
    lg_buf text;
    char *copy;

    lg_buf_init(&text, job->arena.limit);
    do {
        lg_str token = lg_vocab_bytes(s->vocab, job->prompt.p[--job->prompt.n]);
        lg_buf all;
        lg_buf_init(&all, job->arena.limit);
        (void)lg_buf_adds(&all, token);
        (void)lg_buf_adds(&all, lg_buf_str(&text));
        lg_buf_free(&text);
        text = all;
        job->grammar_prefix--;
    } while (!text.failed && text.n > 0 && ((unsigned char)text.p[0] & 0xc0) == 0x80 &&
             job->grammar_prefix > 0);
    copy = text.failed ? NULL : lg_arena_dup(&job->arena, text.p, text.n);
    job->grammar_heal = (lg_str){copy, text.n};
    lg_buf_free(&text);
    while (job->n_mark > 0 && job->mark[job->n_mark - 1].token > job->prompt.n)
        job->n_mark--;
    return copy ? LG_OK : no_memory(job, e);
}

lg_status lg_request_prefix(const lg_service *s, const lg_chat_request *r, lg_job *job, lg_api_error *e)
{
    const lg_special *sp = lg_vocab_special(s->vocab);
    size_t n = 0;
    bool complete = false;
    lg_err err = {0};

    if (!job->constraint || r->prefix.n == 0)
        return LG_OK;
    while (n < job->prompt.n && job->prompt.p[job->prompt.n - n - 1] != sp->end_think)
        n++;
    if (lg_constraint_check_prefix(job->constraint, s->trie, s->vocab, job->prompt.p + job->prompt.n - n, n,
                                   &complete, &err) != LG_OK)
        return lg_api_from_err(e, &err);
    job->grammar_prefix = n;
    return job->heal && !complete ? take_back(s, job, e) : LG_OK;
}
