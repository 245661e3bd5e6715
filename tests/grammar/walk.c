/*
 * tests/grammar/walk: random replies under schemas that come from outside (walks.mjs makes them and judges
 * the replies).
 *
 * walk VOCAB.gguf. Each line of stdin is {"schema": TEXT, "walks": N, "seed": S, "any_order": BOOL,
 * "whitespace": 0-2}; the answer is one line: {"walks": [TEXT or null, ...]}, null where a walk was not
 * finished; {"code": ..., "message": ...} when the schema is refused; {"stuck": N} when nothing could come
 * next.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feed.h"

enum { TEXT_MAX = 4 << 20, MOST = 1000 };

static void refused(const lg_grammar_error *why, const lg_err *err, lg_buf *out)
{
    (void)lg_buf_addz(out, "{\"code\": ");
    (void)lg_json_quote(lg_str_of(lg_grammar_code_name(why->code)), out);
    (void)lg_buf_addz(out, ", \"message\": ");
    (void)lg_json_quote(lg_str_of(err->msg), out);
    (void)lg_buf_addz(out, "}");
}

static void walks(fd_world *w, lg_grammar *g, int64_t n, lg_buf *out)
{
    int stuck = 0;
    lg_buf text;

    lg_buf_init(&text, TEXT_MAX);
    (void)lg_buf_addz(out, "{\"walks\": [");
    for (int64_t i = 0; i < n && !stuck; i++) {
        // one in five wants the longest tokens and no end; the others end sooner or later
        fd_chooser how = i % 5 == 4 ? FD_GREEDY : FD_UNIFORM;
        bool done;
        lg_buf_clear(&text);
        stuck += !fd_walk(w, g, how, (int)fd_pick(w, 60), MOST, &text, &done);
        (void)lg_buf_addz(out, i ? ", " : "");
        if (done)
            (void)lg_json_quote(lg_buf_str(&text), out);
        else
            (void)lg_buf_addz(out, "null");
    }
    (void)lg_buf_addz(out, "]}");
    if (stuck) {
        lg_buf_clear(out);
        (void)lg_buf_addf(out, "{\"stuck\": %d}", stuck);
    }
    lg_buf_free(&text);
}

static void answer(fd_world *w, lg_str line, lg_buf *out)
{
    lg_json_limits lim = {.max_bytes = TEXT_MAX, .max_depth = 10};
    lg_json_doc *doc;
    lg_grammar_error why;
    lg_grammar *g;
    lg_grammar_options opt = {0};
    int64_t n = 0, seed = 0, whitespace = 0;
    lg_err err = {0};

    if (lg_json_parse(line, &lim, &doc, &err) != LG_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    (void)lg_json_i64(lg_json_get(lg_json_root(doc), "walks"), &n);
    (void)lg_json_i64(lg_json_get(lg_json_root(doc), "seed"), &seed);
    (void)lg_json_bool(lg_json_get(lg_json_root(doc), "any_order"), &opt.any_order);
    (void)lg_json_i64(lg_json_get(lg_json_root(doc), "whitespace"), &whitespace);
    opt.whitespace = whitespace == 1 ? LG_WS_COMPACT : whitespace == 2 ? LG_WS_FREE : LG_WS_NATURAL;
    w->rng = (uint64_t)seed;
    if (lg_grammar_schema(lg_json_str(lg_json_get(lg_json_root(doc), "schema")), &opt, &g, &why, &err) !=
        LG_OK) {
        refused(&why, &err, out);
    } else {
        walks(w, g, n, out);
        lg_grammar_destroy(g);
    }
    lg_json_free(doc);
}

int main(int argc, char **argv)
{
    fd_world w;
    lg_buf out;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    if (argc != 2)
        return 2;
    fd_open(&w, argv[1]);
    lg_buf_init(&out, 64 << 20);
    while ((n = getline(&line, &room, stdin)) > 0) {
        lg_buf_clear(&out);
        answer(&w, (lg_str){line, (size_t)n}, &out);
        (void)fwrite(out.p, 1, out.n, stdout);
        (void)fputc('\n', stdout);
        (void)fflush(stdout);
    }
    free(line);
    lg_buf_free(&out);
    fd_close(&w);
    return 0;
}
