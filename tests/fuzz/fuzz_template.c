/*
 * fuzz/fuzz_template: a Chat Completions body (any bytes) through JSON, messages, both templates and the
 * encoder. The first byte chooses family, thinking and policy.
 *
 * The prompt's ids must spell the rendered text, begin with the only begin token, and hold as many other
 * control tokens as the template put there; marks must be in order and inside. VOCAB is the path of a
 * vocabulary file (compile-time).
 */
#include <string.h>

#include "text/chat_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { ARENA = 1 << 24 };

static const lg_bpe *encoder;

static void open_encoder(void)
{
    lg_gguf *g = NULL;
    lg_vocab *v = NULL;
    lg_bpe *b = NULL;

    LG_ASSERT(lg_gguf_open(VOCAB, &g, NULL) == LG_OK);
    LG_ASSERT(lg_vocab_load(g, &v, NULL) == LG_OK);
    lg_gguf_close(g);
    LG_ASSERT(lg_bpe_create(v, LG_CRLF_HF, &b, NULL) == LG_OK);
    encoder = b;
}

static void check_ids(const lg_rendered *r, const lg_ids *ids, lg_str text)
{
    const lg_vocab *v = lg_bpe_vocab(encoder);
    size_t at = 0, n_added = 0, n_control = 0;

    for (size_t i = 0; i < ids->n; i++) {
        lg_str s = lg_vocab_bytes(v, ids->p[i]);
        LG_ASSERT(s.n > 0 && s.n <= text.n - at && memcmp(s.p, text.p + at, s.n) == 0);
        at += s.n;
        n_added += lg_vocab_is_added(v, ids->p[i]);
        LG_ASSERT((ids->p[i] == lg_vocab_special(v)->bos) == (i == 0));
    }
    LG_ASSERT(at == text.n);
    for (size_t i = 0; i < r->n_item; i++)
        n_control += r->item[i].kind == LG_ITEM_CTRL;
    LG_ASSERT(n_added == n_control);
    for (size_t i = 0; i < r->n_mark; i++) {
        LG_ASSERT(r->mark[i].byte <= text.n && r->mark[i].token <= ids->n && r->mark[i].item <= r->n_item);
        LG_ASSERT(i == 0 ||
                  (r->mark[i].byte >= r->mark[i - 1].byte && r->mark[i].token >= r->mark[i - 1].token));
    }
}

static void check(const lg_json *body, uint8_t how, lg_arena *a)
{
    lg_chat chat = {.family = how & 1 ? LG_TEMPLATE_V2 : LG_TEMPLATE_S21, .thinking = how >> 1 & 1,
                    .history = (lg_history)((how >> 2) % 3)};
    lg_chat_json_opts o = {.drop_images = how >> 4 & 1, .template_only = how >> 5 & 1};
    lg_chat_tools tools;
    lg_rendered r;
    lg_ids ids = {0};
    lg_buf text;
    lg_err err = {0};

    if (lg_chat_json_body(body, &o, a, &chat, &tools, &err) != LG_OK) {
        LG_ASSERT(err.msg[0]);
        return;
    }
    if (lg_chat_render(&chat, a, &r, &err) != LG_OK) {
        LG_ASSERT(err.code == LG_E_LIMIT);
        return;
    }
    lg_buf_init(&text, 1 << 26);
    LG_ASSERT(lg_chat_text(&r, NULL, &text, NULL) == LG_OK);
    LG_ASSERT(lg_chat_encode(encoder, &r, &ids, NULL) == LG_OK);
    check_ids(&r, &ids, lg_buf_str(&text));
    lg_ids_free(&ids);
    lg_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const lg_json_limits lim = {.max_bytes = 1 << 16, .max_depth = 64, .repair = true};
    lg_json_doc *doc = NULL;
    lg_arena a;

    if (!encoder)
        open_encoder();
    if (n == 0 || lg_json_parse((lg_str){(const char *)data + 1, n - 1}, &lim, &doc, NULL) != LG_OK)
        return 0;
    lg_arena_init(&a, ARENA);
    check(lg_json_root(doc), data[0], &a);
    lg_arena_free(&a);
    lg_json_free(doc);
    return 0;
}
