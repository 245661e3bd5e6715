/*
 * text/bpe: text -> ids (chat.md 1.3-1.5) and incremental ids -> text (1.7).
 *
 * The encoder owns the compiled pattern, the merge table and bounded word caches; it may be shared by
 * threads, each of which borrows a cache for the length of a call.
 */
#ifndef LG_TEXT_BPE_H
#define LG_TEXT_BPE_H

#include "base/buf.h"
#include "text/split.h"
#include "text/vocab.h"

typedef struct lg_bpe lg_bpe;

typedef struct lg_ids {
    int32_t *p;
    size_t n, cap;
} lg_ids;
void lg_ids_free(lg_ids *ids);
LG_NODISCARD lg_status lg_ids_add(lg_ids *ids, int32_t id, lg_err *err);

/* v is borrowed */
LG_NODISCARD lg_status lg_bpe_create(const lg_vocab *v, lg_crlf crlf, lg_bpe **out, lg_err *err);
void lg_bpe_destroy(lg_bpe *b); /* takes NULL */
const lg_vocab *lg_bpe_vocab(const lg_bpe *b);

/* Append the ids of `text` (any bytes; ill-formed UTF-8 is kept byte for byte). `special`: texts of added
 * tokens become their ids (leftmost, longest); otherwise they are ordinary text. No BOS is added. */
LG_NODISCARD lg_status lg_bpe_encode(const lg_bpe *b, lg_str text, bool special, lg_ids *out, lg_err *err);

/* Streaming detokenizer: bytes of tokens in, complete UTF-8 out, at most 3 bytes held back. */
typedef struct lg_detok {
    char held[4];
    int n_held;
} lg_detok;
/* Append to `out` what became complete; ill-formed bytes become U+FFFD (maximal subpart). */
void lg_detok_feed(lg_detok *d, lg_str bytes, lg_buf *out);
void lg_detok_end(lg_detok *d, lg_buf *out); /* a held-back rest becomes one U+FFFD */

#endif
