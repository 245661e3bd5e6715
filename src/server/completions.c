/*
 * server/completions: the dialect of POST /v1/completions (api.md 6.1, 6.2): raw text in, raw text out.
 */
#include <string.h>

#include "server/completions_int.h"
#include "server/request_int.h"

enum { DEFAULT_LIMIT = 512, FIM_LIMIT = 128 };

/* One choice while it runs. The four lists of "logprobs" are JSON, comma between; streams: those not sent
 * yet. */
typedef struct choice {
    lg_text text;      /* answers in one piece */
    lg_text token, logprob, top, offset;
    int64_t n_chars;   /* of the tokens so far */
    lg_gen_stats *stats;
    bool failed;       /* the arena was too small: something is missing */
} choice;

typedef struct state {
    const lg_service *s;
    choice *choice;
    int n;             /* choices of each prompt */
    lg_openai_usage usage;
    bool include_usage, echo;
} state;

/* --- the request --- */

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static lg_status read_counts(const lg_json *body, lg_job *job, state *t, lg_api_error *e)
{
    int64_t n = 1, best = 1, logprobs = -1;

    LG_TRY(lg_field_int(body, "", "n", 1, 8, &n, e));
    LG_TRY(lg_field_int(body, "", "best_of", 1, 20, &best, e));
    if (best > n)
        return lg_api_fail(e, LG_API_INVALID, "best_of", "best_of must not be more than n");
    // true and false are Chat's form
    if (lg_json_is(field(body, "logprobs"), LG_JSON_TRUE))
        logprobs = 0;
    else if (!lg_json_is(field(body, "logprobs"), LG_JSON_FALSE))
        LG_TRY(lg_field_int(body, "", "logprobs", 0, LG_TOP_LOGPROBS_MAX, &logprobs, e));
    LG_TRY(lg_field_bool(body, "", "echo", &t->echo, e));
    if (t->echo && logprobs >= 0)
        return lg_api_fail(e, LG_API_INVALID, "echo",
                           "echo cannot be combined with logprobs: those of the prompt are not computed");
    LG_TRY(lg_field_bool(lg_json_get(body, "stream_options"), "stream_options.", "include_usage",
                         &t->include_usage, e));
    t->n = (int)n;
    job->n_logprobs = (int)logprobs;
    return LG_OK;
}

static lg_status read_prompt(const lg_service *s, const lg_json *body, lg_str suffix, lg_job *job,
                             lg_api_error *e)
{
    const lg_json *prompt = field(body, "prompt");

    if (suffix.n == 0)
        return lg_completion_prompts(s, prompt, job, e);
    if (prompt && !lg_json_is(prompt, LG_JSON_STRING))
        return lg_api_fail(e, LG_API_INVALID, "prompt", "prompt must be a string where there is a suffix");
    return lg_completion_fim(s, lg_json_str(prompt), suffix, "suffix", LG_API_INVALID, job, e);
}

static lg_status read_format(const lg_service *s, const lg_json *body, lg_job *job, lg_api_error *e)
{
    lg_chat none = {0};
    lg_chat_request r = {.chat = &none};

    LG_TRY(lg_request_format(body, &r.format, e));
    return lg_request_constrain(s, &r, job, e);
}

// The longest of the prompts decides how much each choice may write; only its length is looked at.
static lg_status fit(const lg_service *s, int64_t limit, lg_job *job, lg_api_error *e)
{
    size_t n = job->prompt.n;
    lg_status st;

    for (size_t i = 0; i < job->n_more; i++)
        if (job->more[i].n > job->prompt.n)
            job->prompt.n = job->more[i].n;
    st = lg_request_raw(s, limit, job, e);
    job->prompt.n = n;
    return st;
}

static lg_status parse(const lg_service *s, const lg_request *rq, const lg_json *body, lg_job *job,
                       lg_api_error *e)
{
    state *t = LG_NEW(&job->arena, state);
    lg_str suffix = {0};
    int64_t limit = 0;
    bool given = false;

    (void)rq;
    if (!t)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs too much memory");
    t->s = s;
    job->state = t;
    LG_TRY(lg_request_model(s, body, job, e));
    LG_TRY(lg_openai_start(body, "cmpl-", job, e));
    LG_TRY(lg_field_str(body, "", "suffix", &suffix, e));
    LG_TRY(lg_completion_sampling(s, body, suffix.n > 0, job, e));
    LG_TRY(lg_request_stop(body, "", "stop", job, e));
    LG_TRY(lg_openai_limit(body, &limit, &given, e));
    LG_TRY(read_counts(body, job, t, e));
    LG_TRY(read_prompt(s, body, suffix, job, e));
    LG_TRY(read_format(s, body, job, e));
    job->n_choice = t->n * (int)(1 + job->n_more);
    t->choice = LG_NEW_N(&job->arena, choice, (size_t)job->n_choice);
    if (!t->choice)
        return lg_api_fail(e, LG_API_INVALID, NULL, "the request needs too much memory");
    if (!given)
        limit = suffix.n > 0 ? FIM_LIMIT : DEFAULT_LIMIT;
    return fit(s, limit, job, e);
}

/* --- objects --- */

static lg_jsonw object_begin(const lg_job *job, lg_buf *out)
{
    const state *t = job->state;
    lg_jsonw w = lg_jsonw_start(out);

    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_strz(&w, "id", job->id);
    lg_jsonw_strz(&w, "object", "text_completion");
    lg_jsonw_int(&w, "created", job->created);
    lg_jsonw_str(&w, "model", lg_openai_model(job, t->s->model_id));
    lg_jsonw_strz(&w, "system_fingerprint", "lagoon-" LG_VERSION);
    lg_jsonw_open(&w, "choices", '[');
    return w;
}

static void list(lg_jsonw *w, const char *key, lg_text *items)
{
    lg_jsonw_open(w, key, '[');
    if (items->n > 0)
        lg_jsonw_raw(w, NULL, lg_text_str(items));
    lg_jsonw_close(w, ']');
    items->n = 0;
}

static void logprobs_json(lg_jsonw *w, choice *c)
{
    if (c->token.n == 0) {
        lg_jsonw_null(w, "logprobs");
        return;
    }
    lg_jsonw_open(w, "logprobs", '{');
    list(w, "tokens", &c->token);
    list(w, "token_logprobs", &c->logprob);
    list(w, "top_logprobs", &c->top);
    list(w, "text_offset", &c->offset);
    lg_jsonw_close(w, '}');
}

static void choice_json(lg_jsonw *w, choice *c, int index, lg_str text, const lg_gen_stats *s)
{
    lg_jsonw_open(w, NULL, '{');
    lg_jsonw_int(w, "index", index);
    lg_jsonw_str(w, "text", text);
    logprobs_json(w, c);
    lg_jsonw_strz(w, "finish_reason", s ? lg_openai_finish(s->finish) : NULL);
    lg_jsonw_close(w, '}');
}

static void chunk(lg_job *job, int index, lg_str text, const lg_gen_stats *s, lg_buf *out)
{
    state *t = job->state;
    lg_jsonw w;

    lg_sse_begin(out, NULL);
    w = object_begin(job, out);
    choice_json(&w, &t->choice[index], index, text, s);
    lg_jsonw_close(&w, ']');
    if (s && t->s->set->usage_on_finish)
        lg_openai_usage_json(&w, "usage", &t->usage);
    else if (t->include_usage)
        lg_jsonw_null(&w, "usage");
    lg_jsonw_close(&w, '}');
    lg_sse_end(out);
}

static void add_text(lg_job *job, int index, lg_str text, lg_buf *out)
{
    choice *c = &((state *)job->state)->choice[index];

    if (text.n == 0)
        return;
    if (job->stream)
        chunk(job, index, text, NULL, out);
    else
        c->failed = !lg_text_add(&c->text, &job->arena, text) || c->failed;
}

/* --- events --- */

static void echo_prompt(lg_job *job, int index, lg_buf *out)
{
    const state *t = job->state;
    int which = index / t->n;
    const int32_t *ids = which > 0 ? job->more[which - 1].p : job->prompt.p;
    size_t n = which > 0 ? job->more[which - 1].n : job->prompt.n;
    lg_buf text;

    lg_buf_init(&text, out->max);
    for (size_t i = 0; i < n; i++)
        if (i > 0 || ids[i] != lg_vocab_special(t->s->vocab)->bos)
            (void)lg_buf_adds(&text, lg_vocab_bytes(t->s->vocab, ids[i]));
    out->failed = out->failed || text.failed;
    add_text(job, index, lg_buf_str(&text), out);
    lg_buf_free(&text);
}

static void open_stream(lg_job *job, const lg_job_admission *a, lg_buf *out)
{
    const state *t = job->state;

    (void)a;
    for (int i = 0; t->echo && i < job->n_choice; i++)
        echo_prompt(job, i, out);
}

static bool add_item(lg_text *to, lg_arena *a, lg_buf *b)
{
    bool ok =
        !b->failed && (to->n == 0 || lg_text_add(to, a, LG_STR(","))) && lg_text_add(to, a, lg_buf_str(b));

    lg_buf_clear(b);
    return ok;
}

static void note_logprob(lg_job *job, const lg_job_event *ev)
{
    const state *t = job->state;
    choice *c = &t->choice[ev->choice];
    lg_str text = lg_vocab_bytes(t->s->vocab, ev->token);
    lg_jsonw w;
    lg_buf b;
    bool ok;

    lg_buf_init(&b, 1 << 20);
    (void)lg_json_quote(text, &b);
    ok = add_item(&c->token, &job->arena, &b);
    (void)lg_json_float(lg_openai_logprob(ev->logprob), &b);
    ok = add_item(&c->logprob, &job->arena, &b) && ok;
    w = lg_jsonw_start(&b);
    lg_jsonw_open(&w, NULL, '{');
    for (int i = 0; i < ev->n_top; i++) {
        lg_buf key;
        lg_buf_init(&key, 1 << 16);
        (void)lg_buf_adds(&key, lg_vocab_bytes(t->s->vocab, ev->top[i].id));
        if (lg_buf_z(&key)) // a token with a NUL inside is cut there: keys are names here, not data
            lg_jsonw_num(&w, lg_buf_z(&key), lg_openai_logprob(ev->top[i].logprob));
        lg_buf_free(&key);
    }
    lg_jsonw_close(&w, '}');
    ok = add_item(&c->top, &job->arena, &b) && ok;
    (void)lg_buf_addf(&b, "%lld", (long long)c->n_chars);
    ok = add_item(&c->offset, &job->arena, &b) && ok;
    for (size_t i = 0; i < text.n; i++)
        c->n_chars += ((unsigned char)text.p[i] & 0xC0) != 0x80;
    c->failed = c->failed || !ok;
    lg_buf_free(&b);
}

static void end_choice(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    state *t = job->state;
    choice *c = &t->choice[ev->choice];

    if (ev->choice % t->n == 0) { // the first of its prompt
        t->usage.prompt += ev->stats->prompt_tokens;
        t->usage.cached += ev->stats->cached_tokens;
    }
    t->usage.output += ev->stats->output_tokens;
    c->stats = LG_NEW(&job->arena, lg_gen_stats);
    c->failed = c->failed || !c->stats;
    if (c->stats)
        *c->stats = *ev->stats;
    if (job->stream)
        chunk(job, ev->choice, LG_STR(""), ev->stats, out);
}

static void event(lg_job *job, const lg_job_event *ev, lg_buf *out)
{
    if (ev->kind == LG_JOB_TOKEN)
        note_logprob(job, ev);
    else if (ev->kind == LG_JOB_REPLY)
        add_text(job, ev->choice, ev->reply.text, out);
    else if (ev->kind == LG_JOB_CHOICE_END)
        end_choice(job, ev, out);
}

static void whole_body(lg_job *job, lg_buf *out)
{
    state *t = job->state;
    lg_jsonw w = object_begin(job, out);

    for (int i = 0; i < job->n_choice; i++) {
        choice *c = &t->choice[i];
        lg_str text = lg_text_str(&c->text);
        if (t->echo) { // the prompt comes in front of what was gathered
            c->text = (lg_text){0};
            echo_prompt(job, i, out);
            c->failed = !lg_text_add(&c->text, &job->arena, text) || c->failed;
            text = lg_text_str(&c->text);
        }
        choice_json(&w, c, i, text, c->stats);
    }
    lg_jsonw_close(&w, ']');
    lg_openai_usage_json(&w, "usage", &t->usage);
    if (t->choice[0].stats)
        lg_openai_timings_json(&w, t->choice[0].stats);
    lg_jsonw_close(&w, '}');
}

static void finish(lg_job *job, lg_buf *out)
{
    const state *t = job->state;

    if (!job->stream)
        whole_body(job, out);
    for (int i = 0; i < job->n_choice; i++)
        out->failed = out->failed || t->choice[i].failed;
    if (!job->stream)
        return;
    if (t->include_usage) {
        lg_jsonw w;
        lg_sse_begin(out, NULL);
        w = object_begin(job, out);
        lg_openai_usage_end(&w, &t->usage);
    }
    lg_sse_frame(out, NULL, LG_STR("[DONE]"));
}

const lg_dialect lg_dialect_completions = {.name = "completions",
                                           .setting = "openai",
                                           .shape = LG_SHAPE_OPENAI,
                                           .ping = LG_PING_COMMENT,
                                           .parse = parse,
                                           .open = open_stream,
                                           .event = event,
                                           .finish = finish,
                                           .fail = lg_openai_fail};
