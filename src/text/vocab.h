/*
 * text/vocab: token bytes, token classes and special ids, read from a GGUF's tokenizer.ggml.*
 * (chat.md 1.1, 1.2).
 *
 * Immutable after load; any thread may read. Control ids are resolved by token text, not by number.
 */
#ifndef LG_TEXT_VOCAB_H
#define LG_TEXT_VOCAB_H

#include "gguf/gguf.h"

typedef enum lg_tok_class {
    LG_TOK_NORMAL = 1,
    LG_TOK_UNKNOWN,
    LG_TOK_CONTROL,
    LG_TOK_USER,
    LG_TOK_UNUSED,
    LG_TOK_BYTE
} lg_tok_class;

/* The numbers that the model's own vocabulary gives to the tokens below. Rendered items carry these; encoding
 * and parsing go through lg_special, so that a file with other numbers works as well. */
enum {
    LG_ID_EOS = 2,
    LG_ID_FIM_MIDDLE = 6,
    LG_ID_FIM_SUFFIX = 7,
    LG_ID_PAD = 9,
    LG_ID_FIM_START = 11,
    LG_ID_MASK = 12,
    LG_ID_THINK = 18,
    LG_ID_END_THINK = 19,
    LG_ID_ASSISTANT = 23,
    LG_ID_END_ASSISTANT = 24,
    LG_ID_TOOL_CALL = 25,
    LG_ID_END_TOOL_CALL = 26,
};

/* Ids the engine knows by meaning; -1 where a vocabulary lacks the text. */
typedef struct lg_special {
    int32_t bos, eos, eot; /* eos = bos = U+3008 "|EOS|" U+3009; eot = </assistant> */
    int32_t think, end_think, assistant, tool_call, end_tool_call;
    int32_t fim_start, fim_middle, fim_suffix, mask, pad;
} lg_special;

typedef enum lg_template_family { LG_TEMPLATE_S21, LG_TEMPLATE_V2 } lg_template_family;

typedef struct lg_vocab lg_vocab;

LG_NODISCARD lg_status lg_vocab_load(const lg_gguf *g, lg_vocab **out, lg_err *err);
void lg_vocab_destroy(lg_vocab *v); /* takes NULL */

int32_t lg_vocab_size(const lg_vocab *v);
const lg_special *lg_vocab_special(const lg_vocab *v);
/* Template family chosen from tokenizer.chat_template (chat.md); *known false when it had to be guessed. */
lg_template_family lg_vocab_template(const lg_vocab *v, bool *known);
/* Bytes of a token as text (literal UTF-8 for control and user-defined ones). Empty slice for a bad id. */
lg_str lg_vocab_bytes(const lg_vocab *v, int32_t id);
lg_tok_class lg_vocab_class(const lg_vocab *v, int32_t id);
/* An id that ends a generation: eos or eot. */
bool lg_vocab_is_eog(const lg_vocab *v, int32_t id);
/* One of the added (control or user-defined) tokens, whatever class the file gives it. */
bool lg_vocab_is_added(const lg_vocab *v, int32_t id);
/* Added token with exactly this text, or -1. */
int32_t lg_vocab_find_added(const lg_vocab *v, lg_str text);
/* The added tokens in ascending order. */
size_t lg_vocab_n_added(const lg_vocab *v);
int32_t lg_vocab_added_at(const lg_vocab *v, size_t i);

/* Merge rules in order of rank: the bytes of both sides. Their concatenation in memory is the product:
 * right.p is left.p + left.n. */
size_t lg_vocab_n_merges(const lg_vocab *v);
void lg_vocab_merge(const lg_vocab *v, size_t rank, lg_str *left, lg_str *right);

#endif
