/*
 * app/vocab_file: the vocabulary of a model file, for commands that need no more of it.
 */
#ifndef LG_APP_VOCAB_FILE_H
#define LG_APP_VOCAB_FILE_H

#include "app/app.h"

/* Vocabulary of the model setting's file; an error has the path as subject. */
LG_NODISCARD lg_status lg_app_vocab(lg_app *app, lg_vocab **out, lg_err *err);
/* The same with an encoder for it, which borrows it. On failure neither is there. */
LG_NODISCARD lg_status lg_app_encoder(lg_app *app, lg_vocab **vocab, lg_bpe **bpe, lg_err *err);
/* Ids on stdout: separated by spaces, or as a JSON array. */
void lg_app_print_ids(const lg_ids *ids, bool json);

#endif
