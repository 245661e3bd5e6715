/*
 * app/cmd_tokenize: `lagoon tokenize`, text -> ids, and `lagoon detokenize`, ids -> bytes.
 *
 * Both work on bytes: text that is no UTF-8 goes through unchanged in both directions. No begin token is added.
 */
#include <stdlib.h>
#include <string.h>

#include "app/commands.h"
#include "app/vocab_file.h"
#include "base/file.h"
#include "base/json.h"

enum { INPUT_MAX = 1 << 30 };

typedef struct own {
    lg_common common;
    const char *file;
    bool special, control;
} own;

#define FILE_OPTION LG_OPTION(own, file, "file", 'f', str, "FILE", "-", NULL, "where to read; - is standard input")

static const lg_option tokenize_options[] = {
    FILE_OPTION,
    LG_OPTION(own, special, "special", 0, bool, "", NULL, NULL,
              "the text of a control token becomes that token, instead of ordinary text"),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_option detokenize_options[] = {
    FILE_OPTION,
    LG_OPTION(own, control, "control", 0, bool, "", "yes", NULL, "show tokens of type CONTROL"),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_setting_id settings[] = {LG_FILE_SETTINGS, LG_SET_crlf_compat, LG_SET_END};

static const char *input_name(const own *o)
{
    return strcmp(o->file, "-") == 0 ? "standard input" : o->file;
}

static int run_tokenize(lg_app *app)
{
    const own *o = app->own;
    lg_vocab *v = NULL;
    lg_bpe *b = NULL;
    lg_ids ids = {0};
    char *text = NULL;
    size_t n = 0;
    lg_err err = {0};
    lg_status st = lg_app_encoder(app, &v, &b, &err);

    if (st == LG_OK)
        st = lg_read_all(o->file, INPUT_MAX, &text, &n, &err);
    if (st == LG_OK)
        st = lg_bpe_encode(b, (lg_str){text, n}, o->special, &ids, &err);
    if (st == LG_OK)
        lg_app_print_ids(&ids, app->common.json);
    lg_ids_free(&ids);
    lg_bpe_destroy(b);
    lg_vocab_destroy(v);
    free(text);
    return st == LG_OK ? LG_EXIT_OK : lg_app_fail(&err);
}

/* --- reading ids --- */

typedef struct reader {
    lg_str s;
    size_t at;
} reader;

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_blanks(reader *r)
{
    while (r->at < r->s.n && blank(r->s.p[r->at]))
        r->at++;
}

static bool take(reader *r, char c)
{
    if (r->at == r->s.n || r->s.p[r->at] != c)
        return false;
    r->at++;
    return true;
}

// The next word, up to what may end an id.
static lg_str word(reader *r)
{
    size_t from = r->at;

    while (r->at < r->s.n && !blank(r->s.p[r->at]) && r->s.p[r->at] != ',' && r->s.p[r->at] != ']')
        r->at++;
    if (r->at == from && r->at < r->s.n)
        r->at++;
    return (lg_str){r->s.p + from, r->at - from};
}

static lg_status read_id(reader *r, const lg_vocab *v, lg_ids *out, lg_err *err)
{
    lg_str w = word(r);
    int64_t id;

    if (w.n == 0)
        return LG_FAIL(err, LG_E_INPUT, "ends where a token id should stand");
    if (!lg_str_i64(w, &id) || id < 0 || id >= lg_vocab_size(v))
        return LG_FAIL(err, LG_E_INPUT, "\"%.*s\" is no token id; they are numbers from 0 to %d, separated by spaces or "
                       "in a JSON array", (int)(w.n < 40 ? w.n : 40), w.p, lg_vocab_size(v) - 1);
    return lg_ids_add(out, (int32_t)id, err);
}

// Numbers between blanks, or [1, 2, 3].
static lg_status read_ids(lg_str text, const lg_vocab *v, lg_ids *out, lg_err *err)
{
    reader r = {.s = text};

    skip_blanks(&r);
    if (!take(&r, '[')) {
        for (; r.at < text.n; skip_blanks(&r))
            LG_TRY(read_id(&r, v, out, err));
        return LG_OK;
    }
    skip_blanks(&r);
    for (bool first = true; !take(&r, ']'); first = false) {
        if (!first && !take(&r, ','))
            return LG_FAIL(err, LG_E_INPUT, "a comma or ] must follow id %zu of the array", out->n);
        skip_blanks(&r);
        LG_TRY(read_id(&r, v, out, err));
        skip_blanks(&r);
    }
    skip_blanks(&r);
    if (r.at < text.n)
        return LG_FAIL(err, LG_E_INPUT, "there is something behind the array of ids");
    return LG_OK;
}

static void print_json(const lg_buf *bytes)
{
    lg_buf out;

    lg_buf_init(&out, SIZE_MAX / 2);
    (void)lg_buf_addz(&out, "{\"content\": ");
    (void)lg_json_quote(lg_buf_str(bytes), &out);
    (void)lg_buf_addz(&out, "}\n");
    (void)fwrite(out.p, 1, out.n, stdout);
    lg_buf_free(&out);
}

static int run_detokenize(lg_app *app)
{
    const own *o = app->own;
    lg_vocab *v = NULL;
    lg_ids ids = {0};
    char *text = NULL;
    size_t n = 0;
    lg_buf out;
    lg_err err = {0};
    lg_status st = lg_app_vocab(app, &v, &err);

    lg_buf_init(&out, SIZE_MAX / 2);
    if (st == LG_OK)
        st = lg_read_all(o->file, INPUT_MAX, &text, &n, &err);
    if (st == LG_OK) {
        st = read_ids((lg_str){text, n}, v, &ids, &err);
        if (st != LG_OK)
            (void)lg_err_subject(&err, "%s", input_name(o));
    }
    for (size_t i = 0; st == LG_OK && i < ids.n; i++)
        if (o->control || lg_vocab_class(v, ids.p[i]) != LG_TOK_CONTROL)
            (void)lg_buf_adds(&out, lg_vocab_bytes(v, ids.p[i]));
    if (st == LG_OK && out.failed)
        st = LG_FAIL(&err, LG_E_NOMEM, "out of memory for the text of %zu tokens", ids.n);
    if (st == LG_OK && app->common.json)
        print_json(&out);
    else if (st == LG_OK)
        (void)fwrite(out.p, 1, out.n, stdout);
    lg_buf_free(&out);
    lg_ids_free(&ids);
    lg_vocab_destroy(v);
    free(text);
    return st == LG_OK ? LG_EXIT_OK : lg_app_fail(&err);
}

const lg_cmd lg_cmd_tokenize = {
    .words = {.name = "tokenize",
              .usage = "tokenize [-f FILE] [flags]",
              .summary = "turn text into token ids",
              .settings = settings,
              .options = tokenize_options},
    .own_bytes = sizeof(own),
    .run = run_tokenize,
};

const lg_cmd lg_cmd_detokenize = {
    .words = {.name = "detokenize",
              .usage = "detokenize [-f FILE] [flags]",
              .summary = "turn token ids into the bytes they stand for",
              .settings = settings,
              .options = detokenize_options,
              .notes = "Ids are separated by spaces, or a JSON array. --no-control leaves out tokens of type CONTROL.\n"},
    .own_bytes = sizeof(own),
    .run = run_detokenize,
};
