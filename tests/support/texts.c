/*
 * tests/support/texts: see texts.h.
 */
#include "support/texts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

static void die(const char *what, const lg_err *err)
{
    char line[512];

    fprintf(stderr, "%s: %s\n", what, lg_err_line(err, line, sizeof line));
    abort();
}

const lg_vocab *tt_vocab(void)
{
    static lg_vocab *v;
    lg_gguf *g = NULL;
    lg_err err = {0};

    if (v)
        return v;
    if (lg_gguf_open(LG_TEST_DIR "/golden/vocab512.gguf", &g, &err) != LG_OK ||
        lg_vocab_load(g, &v, &err) != LG_OK)
        die("vocab512.gguf", &err);
    lg_gguf_close(g);
    return v;
}

const lg_bpe *tt_bpe(void)
{
    static lg_bpe *b;
    lg_err err = {0};

    if (!b && lg_bpe_create(tt_vocab(), LG_CRLF_HF, &b, &err) != LG_OK)
        die("encoder", &err);
    return b;
}

lg_json_doc *tt_parse(lg_str text)
{
    lg_json_limits lim = {.max_bytes = 1 << 24, .max_depth = 512, .repair = true};
    lg_json_doc *doc = NULL;
    lg_err err = {0};

    if (lg_json_parse(text, &lim, &doc, &err) != LG_OK)
        die("case", &err);
    return doc;
}

size_t tt_each(const char *file, const char *kind, tt_case_fn fn, void *ctx)
{
    char path[512], *p = NULL;
    size_t n = 0, n_cases = 0;
    lg_err err = {0};

    (void)snprintf(path, sizeof path, "%s/golden/%s", LG_TEST_DIR, file);
    if (lg_read_all(path, 1 << 26, &p, &n, &err) != LG_OK)
        die(file, &err);
    lg_str all = {p, n};
    for (size_t from = 0; from < n;) {
        size_t end = lg_str_find(all, LG_STR("\n"), from);
        if (end == SIZE_MAX)
            end = n;
        if (end > from) {
            lg_json_doc *doc = tt_parse((lg_str){p + from, end - from});
            const lg_json *c = lg_json_root(doc);
            if (!kind || lg_str_eqz(lg_json_str(lg_json_get(c, "kind")), kind)) {
                fn(ctx, c);
                n_cases++;
            }
            lg_json_free(doc);
        }
        from = end + 1;
    }
    free(p);
    return n_cases;
}

void tt_unhex(lg_str hex, lg_buf *out)
{
    for (size_t i = 0; i + 1 < hex.n; i += 2) {
        char digits[3] = {hex.p[i], hex.p[i + 1], 0};
        (void)lg_buf_addc(out, (char)strtol(digits, NULL, 16));
    }
}

lg_ids tt_ids(const lg_json *array)
{
    lg_ids ids = {0};
    int64_t id = -1;

    for (size_t i = 0; i < lg_json_len(array); i++)
        if (!lg_json_i64(lg_json_at(array, i), &id) || lg_ids_add(&ids, (int32_t)id, NULL) != LG_OK)
            abort();
    return ids;
}

void tt_print_ids(const char *what, const lg_ids *ids)
{
    fprintf(stderr, "  %s:", what);
    for (size_t i = 0; i < ids->n; i++)
        fprintf(stderr, " %d", ids->p[i]);
    fprintf(stderr, "\n");
}

/* --- transcripts --- */

void tt_transcript_init(tt_transcript *t)
{
    lg_buf_init(&t->out, 1 << 26);
    t->kind = -1;
    t->call = 0;
}

static void text_of(tt_transcript *t, lg_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\n')
            (void)lg_buf_addz(&t->out, "\\n");
        else if (s.p[i] == '\\')
            (void)lg_buf_addz(&t->out, "\\\\");
        else
            (void)lg_buf_addc(&t->out, s.p[i]);
    }
}

void tt_transcript_event(void *transcript, const lg_event *ev)
{
    tt_transcript *t = transcript;
    bool joins = ev->kind == LG_EV_REASONING || ev->kind == LG_EV_CONTENT || ev->kind == LG_EV_TOOL_ARGS;

    if (joins && ev->text.n == 0)
        abort(); // no event is empty
    if (!joins || t->kind != (int)ev->kind || t->call != ev->call) {
        if (t->out.n > 0)
            (void)lg_buf_addc(&t->out, '\n');
        switch (ev->kind) {
        case LG_EV_REASONING: (void)lg_buf_addz(&t->out, "reasoning "); break;
        case LG_EV_CONTENT: (void)lg_buf_addz(&t->out, "content "); break;
        case LG_EV_TOOL_START: (void)lg_buf_addf(&t->out, "start %d ", ev->call); break;
        case LG_EV_TOOL_ARGS: (void)lg_buf_addf(&t->out, "args %d ", ev->call); break;
        case LG_EV_TOOL_END: (void)lg_buf_addf(&t->out, "end %d", ev->call); break;
        }
    }
    t->kind = joins ? (int)ev->kind : -1;
    t->call = ev->call;
    text_of(t, ev->text);
}

void tt_transcript_finish(tt_transcript *t, const char *reason)
{
    if (t->out.n > 0)
        (void)lg_buf_addc(&t->out, '\n');
    (void)lg_buf_addf(&t->out, "finish %s", reason);
}

const char *tt_finish_name(lg_finish f)
{
    return f == LG_FINISH_STOP ? "stop" : f == LG_FINISH_LENGTH ? "length" : "tool_calls";
}

bool tt_feed(lg_reply *r, lg_str text, size_t step)
{
    lg_err err = {0};
    bool done = false;

    for (size_t from = 0; from < text.n && !done;) {
        size_t n = step == 0 || step > text.n - from ? text.n - from : step;
        lg_ids ids = {0};
        if (lg_bpe_encode(tt_bpe(), (lg_str){text.p + from, n}, false, &ids, &err) != LG_OK)
            die("encode", &err);
        for (size_t i = 0; i < ids.n && !done; i++)
            if (lg_reply_feed(r, ids.p[i], &done, &err) != LG_OK)
                die("feed", &err);
        lg_ids_free(&ids);
        from += n;
    }
    return done;
}
