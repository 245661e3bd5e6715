/*
 * text/split: the pre-tokenizer, plain text -> pre-tokens (chat.md 1.3).
 *
 * Two stages: a cut before every newline run, then one pattern on each piece, whose matches are the
 * pre-tokens. The pattern runs in PCRE2 with its JIT; the object is immutable after create and may be shared
 * by threads.
 *
 * Surprise: ill-formed UTF-8 is legal. Each stray byte counts as one character that is no letter, digit or
 * space.
 */
#ifndef LG_TEXT_SPLIT_H
#define LG_TEXT_SPLIT_H

#include "base/err.h"
#include "base/str.h"

/* How CR LF is cut: HF keeps it together (how the model was trained), LLAMA takes only LF for a newline. */
typedef enum lg_crlf { LG_CRLF_HF, LG_CRLF_LLAMA } lg_crlf;

typedef struct lg_split lg_split;

LG_NODISCARD lg_status lg_split_create(lg_crlf crlf, lg_split **out, lg_err *err);
void lg_split_destroy(lg_split *s); /* takes NULL */

/* One text on its way through the pattern; belongs to one thread. The fields are private. */
typedef struct lg_split_run {
    const lg_split *split;
    lg_str text;
    const char *subject; /* what the pattern sees: text.p, or the shadow */
    char *shadow;        /* copy without ill-formed bytes, NULL when there are none */
    size_t pos, piece, piece_end;
    void *match;
    bool failed;
} lg_split_run;

/* The text is borrowed until lg_split_end, which must follow a successful begin. */
LG_NODISCARD lg_status lg_split_begin(const lg_split *s, lg_str text, lg_split_run *run, lg_err *err);
/* Next pre-token, a slice of the text and never empty; false at the end of the text or after a failure. */
bool lg_split_next(lg_split_run *run, lg_str *out);
/* Frees what the run holds. LG_E_NOMEM when the pattern ran out of memory, so that the text was not finished.
 */
LG_NODISCARD lg_status lg_split_end(lg_split_run *run, lg_err *err);

#endif
