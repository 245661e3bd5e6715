/*
 * app/id_list: token ids as people and programs write them: numbers between blanks, or a JSON array.
 */
#ifndef LG_APP_ID_LIST_H
#define LG_APP_ID_LIST_H

#include "text/bpe.h"

/* Appends the ids of `text`. LG_E_INPUT names the first word that is no id below n_vocab. */
LG_NODISCARD lg_status lg_app_read_ids(lg_str text, int32_t n_vocab, lg_ids *out, lg_err *err);

#endif
