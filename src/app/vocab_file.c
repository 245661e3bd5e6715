/*
 * app/vocab_file: see vocab_file.h.
 */
#include "app/vocab_file.h"

#include <string.h>

lg_status lg_app_vocab(lg_app *app, lg_vocab **out, lg_err *err)
{
    lg_gguf *g = NULL;
    lg_status st;

    LG_TRY(lg_app_model_path(app, err));
    LG_TRY(lg_gguf_open(app->model_path, &g, err));
    st = lg_vocab_load(g, out, err);
    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", app->model_path);
    lg_gguf_close(g);
    return st;
}

lg_status lg_app_encoder(lg_app *app, lg_vocab **vocab, lg_bpe **bpe, lg_err *err)
{
    lg_crlf crlf = strcmp(app->set.crlf_compat, "llama") == 0 ? LG_CRLF_LLAMA : LG_CRLF_HF;
    lg_vocab *v = NULL;
    lg_status st;

    LG_TRY(lg_app_vocab(app, &v, err));
    st = lg_bpe_create(v, crlf, bpe, err);
    if (st != LG_OK) {
        (void)lg_err_subject(err, "%s", app->model_path);
        lg_vocab_destroy(v);
        return st;
    }
    *vocab = v;
    return LG_OK;
}

void lg_app_print_ids(const lg_ids *ids, bool json)
{
    if (json)
        (void)putchar('[');
    for (size_t i = 0; i < ids->n; i++)
        printf("%s%d", i == 0 ? "" : json ? ", " : " ", ids->p[i]);
    if (json)
        (void)putchar(']');
    (void)putchar('\n');
}
