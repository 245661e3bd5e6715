/*
 * tests/support/play: see play.h.
 */
#include "support/play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "support/scratch.h"
#include "support/texts.h"

static bool writing;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    abort();
}

/* --- what the server provides --- */

lg_settings *td_settings(void)
{
    static lg_settings set;
    static bool made;
    static const lg_setting_id none[] = {LG_SET_END};
    const lg_command cmd = {.name = "test", .usage = "test", .summary = "", .settings = none};
    char name[] = "test";
    char *argv[] = {name, NULL};
    lg_words words = {0};
    lg_err err = {0};

    if (made)
        return &set;
    scratch_no_settings();
    if (lg_settings_load(&set, &cmd, 1, argv, NULL, &words, &err) != LG_OK)
        die("settings", err.msg);
    made = true;
    return &set;
}

lg_service *td_service(void)
{
    static lg_service s;
    static lg_token_trie *trie;
    lg_err err = {0};

    if (!trie && lg_token_trie_create(tt_vocab(), &trie, &err) != LG_OK)
        die("token trie", err.msg);
    if (!s.vocab)
        s = (lg_service){.set = td_settings(),
                         .vocab = tt_vocab(),
                         .bpe = tt_bpe(),
                         .trie = trie,
                         .model_id = "laguna-test",
                         .model_path = "test.gguf",
                         .family = LG_TEMPLATE_S21,
                         .n_ctx = 4096,
                         .n_ctx_train = 8192,
                         .n_params = 1000,
                         .model_bytes = 2000,
                         .created = 1};
    return &s;
}

/* In place of the queue's, which are random. */
const char *lg_job_call_id(const lg_job *job, int choice, int call)
{
    static char id[8][8][48];

    (void)job;
    if (choice >= 8 || call >= 8)
        return "call_many";
    (void)snprintf(id[choice][call], sizeof id[0][0], "call_%d_%d", choice, call);
    return id[choice][call];
}

/* --- a run --- */

void td_parse(const lg_dialect *d, const char *body, td_run *r)
{
    td_take(d, tt_parse(lg_str_of(body)), r);
}

void td_take(const lg_dialect *d, lg_json_doc *doc, td_run *r)
{
    lg_job *job = calloc(1, sizeof *job);

    if (!job)
        die("job", "no memory");
    *r = (td_run){.job = job};
    lg_buf_init(&r->out, 1 << 26);
    lg_arena_init(&job->arena, 1 << 26);
    job->dialect = d;
    job->n_choice = 1;
    job->n_logprobs = -1;
    job->max_think = -1;
    job->doc = doc;
    (void)snprintf(job->request_id, sizeof job->request_id, "req-1");
    r->st = d->parse(td_service(), NULL, lg_json_root(job->doc), job, &r->error);
    job->created = 1;
}

void td_free(td_run *r)
{
    lg_ids_free(&r->job->prompt);
    lg_constraint_release(r->job->constraint);
    lg_json_free(r->job->doc);
    lg_json_free(r->job->made);
    lg_arena_free(&r->job->arena);
    lg_buf_free(&r->out);
    free(r->job);
}

void td_refuse(const lg_dialect *d, const char *body, const char *param, const char *code, const char *words)
{
    td_run r;
    bool right;

    td_parse(d, body, &r);
    right = r.st != LG_OK && strcmp(r.error.param, param) == 0 && lg_api_status(&r.error) == 400 &&
            (!code || strcmp(r.error.code, code) == 0) && (!words || strstr(r.error.message, words));
    if (!right) {
        fprintf(stderr, "%s\n -> %d \"%s\" \"%s\" \"%s\"\n", body, r.st, r.error.param, r.error.code,
                r.error.message);
        die("another error than", words ? words : param);
    }
    td_free(&r);
}

void td_prompt(const lg_job *job, lg_buf *out)
{
    for (size_t i = 0; i < job->prompt.n; i++)
        (void)lg_buf_adds(out, lg_vocab_bytes(tt_vocab(), job->prompt.p[i]));
}

typedef struct player {
    td_run *run;
    const td_script *script;
    int choice;
} player;

static void give(player *p, lg_job_event *ev)
{
    ev->choice = p->choice;
    p->run->job->dialect->event(p->run->job, ev, &p->run->out);
}

static void on_event(void *ctx, const lg_event *ev)
{
    player *p = ctx;

    if (ev->kind == LG_EV_CONTENT && p->script->logprobs)
        give(p, &(lg_job_event){.kind = LG_JOB_TOKEN, .token = 300, .logprob = -0.5f, .n_top = 1,
                                .top = {{301, -1.5f}}});
    give(p, &(lg_job_event){.kind = LG_JOB_REPLY, .reply = *ev});
}

// Feeds the script; returns whether it ended the reply.
static bool feed(lg_reply *r, lg_str text, size_t step)
{
    bool done = false;
    lg_err err = {0};

    for (size_t at = 0; at < text.n && !done;) {
        int id = 0, len = 0;
        if (sscanf(text.p + at, "{%2d}%n", &id, &len) == 1 && len == 4) {
            if (lg_reply_feed(r, id, &done, &err) != LG_OK)
                die("reply", err.msg);
            at += 4;
            continue;
        }
        size_t end = at + 1;
        while (end < text.n && !(sscanf(text.p + end, "{%2d}%n", &id, &len) == 1 && len == 4))
            end++;
        done = tt_feed(r, (lg_str){text.p + at, end - at}, step);
        at = end;
    }
    return done;
}

static void play_choice(player *p, size_t step)
{
    lg_job *job = p->run->job;
    lg_reply_params params = {
        .family = job->family,
        .raw = job->raw,
        .thinking = job->thinking,
        .open_reasoning = !job->raw && lg_chat_ends_in_reasoning(tt_vocab(), job->prompt.p, job->prompt.n),
        .tool = job->tool,
        .n_tool = job->n_tool,
        .stop = job->stop,
        .n_stop = job->n_stop,
        .stop_id = job->stop_id,
        .n_stop_id = job->n_stop_id,
        .one_call = job->one_call};
    lg_gen_stats stats = {.prompt_tokens = 40, .cached_tokens = 8, .output_tokens = 20, .think_tokens = 5,
                          .prefill_us = 1000, .first_token_us = 1500, .decode_us = 2000, .seed = 7,
                          .found = {.cached = 8, .from = LG_CACHE_LIVE}};
    lg_err err = {0};
    lg_reply *r = NULL;

    if (lg_reply_create(tt_vocab(), &params, 1 << 24, on_event, p, &r, &err) != LG_OK)
        die("reply", err.msg);
    give(p, &(lg_job_event){.kind = LG_JOB_PROGRESS, .done = 8, .total = 40});
    stats.end = feed(r, lg_str_of(p->script->text[p->choice % 8]), step) ? LG_END_EOG : p->script->how;
    if (stats.end == LG_END_EOG && lg_reply_stop(r) >= 0)
        stats.end = LG_END_STOP_STRING;
    if (!p->script->error) {
        if (lg_reply_end(r, stats.end, &stats.finish, &err) != LG_OK)
            die("reply", err.msg);
        give(p, &(lg_job_event){.kind = LG_JOB_CHOICE_END, .stats = &stats, .stop = lg_reply_stop(r)});
    }
    lg_reply_destroy(r);
}

// A character of the random part of an id.
static bool id_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
}

// The version, and random ids: 20 characters behind '_' or '-' become numbers in the order of appearance.
static void number_ids(lg_buf *b)
{
    enum { LEN = 20, MAX = 64 };
    char seen[MAX][LEN];
    int n_seen = 0;
    const lg_str version = LG_STR("lagoon-" LG_VERSION);
    lg_buf out;

    lg_buf_init(&out, b->max);
    for (size_t i = 0; i < b->n;) {
        size_t k = i;
        int at = 0;
        while (k < b->n && k - i < LEN && id_char(b->p[k]))
            k++;
        bool id = k - i == LEN && i > 0 && (b->p[i - 1] == '_' || b->p[i - 1] == '-') &&
                  (k == b->n || !id_char(b->p[k]));
        if (lg_str_starts((lg_str){b->p + i, b->n - i}, version)) {
            (void)lg_buf_addz(&out, "lagoon-VERSION");
            i += version.n;
            continue;
        }
        if (!id) {
            (void)lg_buf_addc(&out, b->p[i++]);
            continue;
        }
        while (at < n_seen && memcmp(seen[at], b->p + i, LEN) != 0)
            at++;
        if (at == MAX)
            die("ids", "too many");
        if (at == n_seen)
            memcpy(seen[n_seen++], b->p + i, LEN);
        (void)lg_buf_addf(&out, "%d", at);
        i = k;
    }
    if (out.failed)
        die("ids", "too long");
    lg_buf_free(b);
    *b = out;
}

void td_play(const lg_dialect *d, const char *body, const td_script *s, size_t step, td_run *r)
{
    td_parse(d, body, r);
    if (r->st != LG_OK)
        die(r->error.param, r->error.message);
    td_go(s, step, r);
    number_ids(&r->out);
}

void td_go(const td_script *s, size_t step, td_run *r)
{
    const lg_dialect *d = r->job->dialect;
    player p = {.run = r, .script = s};
    lg_api_error failed;

    if (r->job->stream)
        d->open(r->job, &(lg_job_admission){.prompt_tokens = 40, .cached_tokens = 8}, &r->out);
    for (; p.choice < r->job->n_choice && !(s->error && p.choice > 0); p.choice++)
        play_choice(&p, step);
    if (s->error) {
        (void)lg_api_fail(&failed, LG_API_INTERNAL, NULL, "the device failed");
        d->fail(r->job, &failed, &r->out);
    } else {
        p.choice = 0;
        give(&p, &(lg_job_event){.kind = LG_JOB_END});
        d->finish(r->job, &r->out);
    }
    if (r->out.failed)
        die("output", "failed");
}

bool td_event(lg_str stream, size_t *at, lg_str *name, lg_str *data)
{
    lg_str rest = {stream.p + *at, stream.n - *at};
    size_t end = lg_str_find(rest, LG_STR("\n\n"), 0);

    *name = *data = (lg_str){0};
    if (rest.n == 0)
        return false;
    if (end == SIZE_MAX)
        die("stream", "does not end with a blank line");
    *at += end + 2;
    rest.n = end;
    if (lg_str_starts(rest, LG_STR("event: "))) {
        size_t line = lg_str_find(rest, LG_STR("\n"), 0);
        if (line == SIZE_MAX)
            die("stream", "an event without data");
        *name = (lg_str){rest.p + 7, line - 7};
        rest = (lg_str){rest.p + line + 1, rest.n - line - 1};
    }
    if (!lg_str_starts(rest, LG_STR("data: ")))
        die("stream", "a line that is no data");
    *data = (lg_str){rest.p + 6, rest.n - 6};
    if (lg_str_find(*data, LG_STR("\n"), 0) != SIZE_MAX)
        die("stream", "data of several lines");
    return true;
}

void td_record(const lg_dialect *d, const char *name, const char *body, const td_script *s, size_t step,
               lg_buf *all)
{
    td_run r;

    td_play(d, body, s, step, &r);
    (void)lg_buf_addf(all, "=== %s %s\n", name, r.job->stream ? "stream" : "body");
    (void)lg_buf_adds(all, lg_buf_str(&r.out));
    (void)lg_buf_addz(all, r.job->stream || s->error ? "" : "\n");
    td_free(&r);
}

void td_golden(const char *name, lg_str got)
{
    char path[512];
    lg_map map = {0};
    lg_err err = {0};

    (void)snprintf(path, sizeof path, LG_TEST_DIR "/golden/%s", name);
    if (writing) {
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(got.p, 1, got.n, f) != got.n || fclose(f) != 0)
            die(path, "cannot be written");
        return;
    }
    if (lg_map_open(path, &map, &err) != LG_OK)
        die(path, err.msg);
    if (map.n != got.n || memcmp(map.p, got.p, got.n) != 0) {
        fprintf(stderr, "--- %s\n%.*s--- got\n%.*s", name, (int)map.n, (const char *)map.p, (int)got.n,
                got.p);
        die(path, "differs");
    }
    lg_map_close(&map);
}

void td_main(int argc, char **argv)
{
    writing = argc > 1 && strcmp(argv[1], "--write") == 0;
}
