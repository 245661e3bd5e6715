/*
 * fuzz/fuzz_tokenizer: any bytes through the encoder, plain and with control tokens, and the streaming
 * detokenizer. The first byte chooses how the detokenizer's input is cut.
 *
 * No byte may be lost, plain text must never become a control token, and every cut must give the same
 * well-formed text. VOCAB is the path of a vocabulary file (compile-time).
 */
#include <string.h>

#include "text/bpe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const lg_vocab *vocab;
static const lg_bpe *encoder[2];

static void open_encoders(void)
{
    lg_gguf *g = NULL;
    lg_vocab *v = NULL;
    lg_bpe *b[2] = {NULL, NULL};

    LG_ASSERT(lg_gguf_open(VOCAB, &g, NULL) == LG_OK);
    LG_ASSERT(lg_vocab_load(g, &v, NULL) == LG_OK);
    lg_gguf_close(g);
    LG_ASSERT(lg_bpe_create(v, LG_CRLF_HF, &b[0], NULL) == LG_OK);
    LG_ASSERT(lg_bpe_create(v, LG_CRLF_LLAMA, &b[1], NULL) == LG_OK);
    vocab = v;
    encoder[0] = b[0];
    encoder[1] = b[1];
}

static void check_encoding(const lg_bpe *b, lg_str text, bool special)
{
    lg_ids ids = {0};
    size_t at = 0;

    LG_ASSERT(lg_bpe_encode(b, text, special, &ids, NULL) == LG_OK);
    for (size_t i = 0; i < ids.n; i++) {
        lg_str s = lg_vocab_bytes(vocab, ids.p[i]);
        LG_ASSERT(special || !lg_vocab_is_added(vocab, ids.p[i]));
        LG_ASSERT(s.n > 0 && s.n <= text.n - at && memcmp(s.p, text.p + at, s.n) == 0);
        at += s.n;
    }
    LG_ASSERT(at == text.n);
    lg_ids_free(&ids);
}

static void detok(lg_str text, size_t step, lg_buf *out)
{
    lg_detok d = {0};

    lg_buf_clear(out);
    for (size_t at = 0; at < text.n; at += step) {
        size_t n = step < text.n - at ? step : text.n - at;
        lg_detok_feed(&d, (lg_str){text.p + at, n}, out);
        LG_ASSERT(d.n_held >= 0 && d.n_held <= 3);
    }
    lg_detok_end(&d, out);
    LG_ASSERT(!out->failed);
    for (size_t i = 0; i < out->n;) {
        int32_t c;
        i += (size_t)lg_utf8_step(out->p + i, out->n - i, &c);
        LG_ASSERT(c >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!vocab)
        open_encoders();
    if (n == 0 || n > 1 << 16)
        return 0;
    lg_str text = {(const char *)data + 1, n - 1};
    for (int i = 0; i < 4; i++)
        check_encoding(encoder[i & 1], text, i >> 1);

    lg_buf whole, cut;
    lg_buf_init(&whole, 1 << 20);
    lg_buf_init(&cut, 1 << 20);
    detok(text, text.n + 1, &whole);
    detok(text, 1 + data[0] % 7, &cut);
    LG_ASSERT(lg_str_eq(lg_buf_str(&whole), lg_buf_str(&cut)));
    lg_buf_free(&whole);
    lg_buf_free(&cut);
    return 0;
}
