/*
 * tests/support/dialects: see dialects.h.
 */
#include "support/dialects.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "server/replay.h"

static void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    abort();
}

/* --- the service --- */

static lg_settings settings;
static lg_service service;

void dk_reset(void)
{
    settings.thinking = true;
    settings.default_budget = 4096;
    settings.history_thinking = "tail";
    settings.temperature = 1;
    settings.top_k = 20;
    settings.top_p = 1;
    settings.min_p = 0;
    settings.model_policy = "echo";
    settings.strict_status = "404";
    settings.model_aliases = (lg_list){0};
    settings.reasoning_field = "reasoning_content";
    settings.reasoning_format = "auto";
    settings.usage_on_finish = false;
    settings.drop_images = false;
    settings.anthropic_default_thinking = "on";
    settings.forced_tools = "force";
    settings.strict_tools = "ignore";
    settings.format_with_tools = false;
    settings.fim_order = "psm";
    settings.cache_slots = 16;
    service = (lg_service){.set = &settings,
                           .vocab = tt_vocab(),
                           .bpe = tt_bpe(),
                           .model_id = "laguna-test",
                           .model_path = "test.gguf",
                           .family = LG_TEMPLATE_S21,
                           .n_ctx = 100000,
                           .n_ctx_train = 262144,
                           .n_params = 1000,
                           .model_bytes = 2000,
                           .created = 1,
                           .replay = service.replay};
    if (!service.replay && lg_replay_create(1 << 20, &service.replay, NULL) != LG_OK)
        die("no replay memory");
}

lg_settings *dk_settings(void)
{
    if (!service.set)
        dk_reset();
    return &settings;
}

lg_service *dk_service(void)
{
    (void)dk_settings();
    return &service;
}

/* --- jobs --- */

lg_job *dk_job(const lg_dialect *d, const char *body, lg_api_error *e)
{
    lg_request rq = {.method = LG_STR("POST")};
    lg_job *job = NULL;
    char *low;

    *e = (lg_api_error){0};
    if (lg_job_create((size_t)1 << 26, &job, NULL) != LG_OK)
        die("no job");
    job->dialect = d;
    job->doc = tt_parse(lg_str_of(body));
    (void)snprintf(job->request_id, sizeof job->request_id, "req_0");
    if (d->parse(dk_service(), &rq, lg_json_root(job->doc), job, e) != LG_OK) {
        if (e->message[0] == '\0')
            die("an error without words");
        lg_job_release(job);
        return NULL;
    }
    if ((low = strchr(job->id, '_')) == NULL && (low = strchr(job->id, '-')) == NULL)
        die("a job without id");
    memcpy(low + 1, "0", 2);
    job->created = 1;
    return job;
}

void dk_prompt(const lg_job *job, lg_buf *out)
{
    for (size_t i = 0; i < job->prompt.n; i++)
        (void)lg_buf_adds(out, lg_vocab_bytes(tt_vocab(), job->prompt.p[i]));
}

lg_job *dk_accept(const lg_dialect *d, const char *body)
{
    lg_api_error e;
    lg_job *job = dk_job(d, body, &e);

    if (!job) {
        fprintf(stderr, "%s\n -> %s\n", body, e.message);
        die("a body that was not accepted");
    }
    return job;
}

void dk_prompt_ends(const lg_dialect *d, const char *body, const char *want)
{
    lg_job *job = dk_accept(d, body);
    lg_buf got;

    lg_buf_init(&got, 1 << 20);
    dk_prompt(job, &got);
    if (!lg_str_ends(lg_buf_str(&got), lg_str_of(want))) {
        fprintf(stderr, "%s\n got %.*s\nwant %s\n", body, (int)got.n, got.p, want);
        die("another prompt");
    }
    lg_buf_free(&got);
    lg_job_release(job);
}

void dk_refuses(const lg_dialect *d, const char *body, const char *param, const char *message)
{
    lg_api_error e;

    if (dk_job(d, body, &e)) {
        fprintf(stderr, "%s\n", body);
        die("a body that was accepted");
    }
    if (strcmp(e.param, param) != 0 || strcmp(e.message, message) != 0 || lg_api_status(&e) != 400) {
        fprintf(stderr, "%s\n got %d \"%s\": %s\nwant 400 \"%s\": %s\n", body, lg_api_status(&e), e.param,
                e.message, param, message);
        die("another error");
    }
}

/* --- a reply --- */

typedef struct stage {
    lg_job *job;
    lg_buf *out;
} stage;

// What waits in the job's event queue, handed to the dialect.
static bool show(stage *s, lg_buf *out)
{
    lg_job_event ev;

    while (lg_job_take(s->job, &ev)) {
        const lg_dialect *d = s->job->dialect;
        switch (ev.kind) {
        case LG_JOB_ERROR:
            if (s->job->stream)
                d->fail(s->job, ev.error, out);
            else
                lg_api_error_json(ev.error, d->shape, s->job->request_id, out);
            return true;
        case LG_JOB_END: d->finish(s->job, out); return true;
        default: d->event(s->job, &ev, out);
        }
    }
    return false;
}

static void hear(void *ctx, const lg_event *ev)
{
    stage *s = ctx;

    lg_job_put_reply(s->job, 0, ev);
    (void)show(s, s->out);
}

static bool is_id(char c)
{
    return (unsigned char)c < 32 && c != '\n' && c != '\t';
}

static int64_t feed(lg_reply *r, const dk_script *s)
{
    const char *p = s->text;
    int64_t n = 0;
    bool done = false;
    lg_err err = {0};

    while (*p && !done) {
        size_t len = 0;
        if (is_id(*p)) {
            if (lg_reply_feed(r, *p++, &done, &err) != LG_OK)
                die("feed");
            n++;
            continue;
        }
        while (p[len] && !is_id(p[len]))
            len++;
        done = tt_feed(r, (lg_str){p, len}, s->step);
        p += len;
        n++; // a stretch of text counts as one token, however it is cut
    }
    return n;
}

// Random ids become numbers in order of appearance.
static void number_ids(lg_str from, lg_buf *out)
{
    static const char *const prefix[] = {"toolu_", "call_", "fc_", "rs_"};
    char seen[64][32];
    int n_seen = 0;

    for (size_t at = 0; at < from.n;) {
        size_t len = 0, p = 0;
        for (; p < 4 && len == 0; p++) {
            size_t n = strlen(prefix[p]);
            if (!lg_str_starts((lg_str){from.p + at, from.n - at}, lg_str_of(prefix[p])))
                continue;
            for (len = n; at + len < from.n && isalnum((unsigned char)from.p[at + len]);)
                len++;
            if (len != n + 20)
                len = 0;
            else
                break;
        }
        if (len == 0) {
            (void)lg_buf_addc(out, from.p[at++]);
            continue;
        }
        char id[32];
        int i = 0;
        (void)snprintf(id, sizeof id, "%.*s", (int)len, from.p + at);
        while (i < n_seen && strcmp(seen[i], id) != 0)
            i++;
        if (i == n_seen && n_seen < 64)
            memcpy(seen[n_seen++], id, sizeof id);
        (void)lg_buf_addf(out, "%s%d", prefix[p], i);
        at += len;
    }
}

void dk_play(lg_job *job, const dk_script *s, lg_buf *out)
{
    const lg_reply_params p = {
        .family = job->family,
        .raw = job->raw,
        .thinking = job->thinking,
        .open_reasoning = !job->raw && lg_chat_ends_in_reasoning(tt_vocab(), job->prompt.p, job->prompt.n),
        .tool = job->tool,
        .n_tool = job->n_tool,
        .stop = job->stop,
        .n_stop = job->n_stop,
        .one_call = job->one_call};
    lg_gen_stats stats = {
        .prompt_tokens = (int64_t)job->prompt.n, .cached_tokens = 5, .seed = 7, .end = s->end};
    const lg_job_admission admitted = {.prompt_tokens = (int64_t)job->prompt.n, .cached_tokens = 4};
    lg_reply *r = NULL;
    lg_buf raw;
    stage st = {job, &raw};
    lg_err err = {0};

    lg_buf_init(&raw, 1 << 24);
    if (job->stream)
        job->dialect->open(job, &admitted, &raw);
    lg_job_put_progress(job, 0, 1, 2);
    if (lg_reply_create(tt_vocab(), &p, 1 << 20, hear, &st, &r, &err) != LG_OK)
        die("no parser");
    stats.output_tokens = feed(r, s);
    if (lg_reply_end(r, s->end, &stats.finish, &err) != LG_OK)
        die("end");
    stats.think_tokens = lg_reply_reasoning_tokens(r) > 0 ? 1 : 0;
    if (lg_reply_stop(r) >= 0)
        stats.end = LG_END_STOP_STRING;
    if (s->error) {
        lg_api_error e;
        (void)!lg_api_fail(&e, LG_API_INTERNAL, NULL, "%s", s->error);
        lg_job_put_error(job, &e);
    } else {
        lg_job_put_choice(job, 0, &stats, lg_reply_stop(r));
        lg_job_put_end(job);
    }
    if (!show(&st, &raw))
        die("no end");
    lg_reply_destroy(r);
    if (raw.failed)
        die("an answer that does not fit");
    number_ids(lg_buf_str(&raw), out);
    lg_buf_free(&raw);
}

/* --- streams --- */

size_t dk_each_event(lg_str s, dk_event_fn fn, void *ctx)
{
    size_t n = 0;

    while (s.n > 0) {
        lg_str name = LG_STR(""), data;
        size_t end = lg_str_find(s, LG_STR("\n\n"), 0), line;
        if (end == SIZE_MAX)
            die("a stream that ends inside an event");
        lg_str event = {s.p, end};
        if (lg_str_starts(event, LG_STR("event: "))) {
            line = lg_str_find(event, LG_STR("\n"), 0);
            if (line == SIZE_MAX)
                die("an event without data");
            name = (lg_str){event.p + 7, line - 7};
            event = (lg_str){event.p + line + 1, event.n - line - 1};
        }
        if (!lg_str_starts(event, LG_STR("data: ")) || lg_str_find(event, LG_STR("\n"), 0) != SIZE_MAX)
            die("an event that is not one line of data");
        data = (lg_str){event.p + 6, event.n - 6};
        fn(ctx, name, data);
        n++;
        s = (lg_str){s.p + end + 2, s.n - end - 2};
    }
    return n;
}

/* --- recorded answers --- */

static lg_buf recording(dk_record_fn record)
{
    lg_buf b;

    lg_buf_init(&b, 1 << 22);
    record(&b);
    if (b.failed)
        die("a record that does not fit");
    return b;
}

void dk_compare(dk_record_fn record, const char *file)
{
    lg_buf got = recording(record);
    char path[512], *text = NULL;
    size_t n = 0, i = 0;

    (void)snprintf(path, sizeof path, LG_TEST_DIR "/golden/%s", file);
    if (lg_read_all(path, 1 << 22, &text, &n, NULL) != LG_OK)
        die(path);
    while (i < n && i < got.n && text[i] == got.p[i])
        i++;
    if (i < n || i < got.n) {
        fprintf(stderr, "%s, byte %zu: \"%.*s\" instead of \"%.*s\"\n", file, i,
                (int)(got.n - i < 100 ? got.n - i : 100), got.p + i, (int)(n - i < 100 ? n - i : 100),
                text + i);
        abort();
    }
    lg_buf_free(&got);
    free(text);
}

bool dk_write(int argc, char **argv, dk_record_fn record)
{
    FILE *f;
    lg_buf b;

    if (argc != 3 || strcmp(argv[1], "--write") != 0)
        return false;
    b = recording(record);
    f = fopen(argv[2], "wb");
    if (!f || fwrite(b.p, 1, b.n, f) != b.n || fclose(f) != 0)
        die(argv[2]);
    lg_buf_free(&b);
    return true;
}
