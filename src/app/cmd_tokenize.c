/*
 * app/cmd_tokenize: `lagoon tokenize`, text -> ids, and `lagoon detokenize`, ids -> bytes.
 *
 * Both work on bytes: text that is no UTF-8 goes through unchanged in both directions. No begin token is
 * added.
 */
#include <stdlib.h>
#include <string.h>

#include "app/commands.h"
#include "app/id_list.h"
#include "app/vocab_file.h"
#include "base/file.h"
#include "base/json.h"

enum { INPUT_MAX = 1 << 30 };

typedef struct own {
    lg_common common;
    const char *file;
    bool special, control;
} own;

#define FILE_OPTION \
    LG_OPTION(own, file, "file", 'f', str, "FILE", "-", NULL, "where to read; - is standard input")

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

static lg_status print_json(const lg_buf *bytes, lg_err *err)
{
    lg_buf out;

    lg_buf_init(&out, SIZE_MAX / 2);
    (void)lg_buf_addz(&out, "{\"content\": ");
    (void)lg_json_quote(lg_buf_str(bytes), &out);
    (void)lg_buf_addz(&out, "}\n");
    return lg_app_print(&out, "the text", err);
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
        st = lg_app_read_ids((lg_str){text, n}, lg_vocab_size(v), &ids, &err);
        if (st != LG_OK)
            (void)lg_err_subject(&err, "%s", input_name(o));
    }
    for (size_t i = 0; st == LG_OK && i < ids.n; i++)
        if (o->control || lg_vocab_class(v, ids.p[i]) != LG_TOK_CONTROL)
            (void)lg_buf_adds(&out, lg_vocab_bytes(v, ids.p[i]));
    if (st == LG_OK && out.failed)
        st = LG_FAIL(&err, LG_E_NOMEM, "out of memory for the text of %zu tokens", ids.n);
    if (st == LG_OK && app->common.json)
        st = print_json(&out, &err);
    else if (st == LG_OK && out.n > 0)
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
    .words =
        {.name = "detokenize",
         .usage = "detokenize [-f FILE] [flags]",
         .summary = "turn token ids into the bytes they stand for",
         .settings = settings,
         .options = detokenize_options,
         .notes =
             "Ids are separated by spaces, or a JSON array. --no-control leaves out tokens of type CONTROL.\n"},
    .own_bytes = sizeof(own),
    .run = run_detokenize,
};
