/*
 * server/utilities: what a client can ask without the engine: /tokenize, /detokenize, /apply-template (api.md
 * 7). Token counts of the Messages API are in messages.c, next to the rendering they must agree with.
 *
 * Run on the connection's thread, pure but for the caller's arena. Both llama-server's and vLLM's bodies are
 * understood; which one it is shows in the field that carries the text.
 */
#include <stdio.h>
#include <string.h>

#include "server/jsonw.h"
#include "server/request.h"

static const lg_json *field(const lg_json *o, const char *key)
{
    const lg_json *j = lg_json_get(o, key);

    return lg_json_is(j, LG_JSON_NULL) ? NULL : j;
}

static lg_status from_err(lg_api_error *e, const lg_err *err, lg_status st)
{
    if (st != LG_OK)
        (void)lg_api_from_err(e, err);
    return st;
}

static void write_ids(lg_jsonw *w, const char *key, const lg_ids *ids)
{
    lg_jsonw_open(w, key, '[');
    for (size_t i = 0; i < ids->n; i++)
        lg_jsonw_int(w, NULL, ids->p[i]);
    lg_jsonw_close(w, ']');
}

/* --- a rendered conversation --- */

// Messages, tools and thinking of a Chat body, as the template itself has them: add_generation_prompt false
// leaves turns closed.
static lg_status render(const lg_service *s, const lg_json *body, lg_arena *a, lg_rendered *out,
                        lg_api_error *e)
{
    const lg_chat_json_opts opts = {.drop_images = s->set->drop_images, .template_only = true};
    lg_chat chat = {.family = s->family};
    lg_chat_tools tools;
    lg_think_ask think;
    lg_err err = {0};

    LG_TRY(lg_request_thinking(s, body, &think, e));
    chat.thinking = think.on;
    chat.history = think.history;
    LG_TRY(from_err(e, &err, lg_chat_json_body(body, &opts, a, &chat, &tools, &err)));
    return from_err(e, &err, lg_chat_render(&chat, a, out, &err));
}

/* --- /tokenize --- */

static lg_status encode_text(const lg_service *s, lg_str text, bool add_special, bool parse_special,
                             lg_ids *out, lg_api_error *e)
{
    const int32_t bos = lg_vocab_special(s->vocab)->bos;
    lg_err err = {0};

    add_special = add_special && bos >= 0;
    if (add_special)
        LG_TRY(from_err(e, &err, lg_ids_add(out, bos, &err)));
    LG_TRY(from_err(e, &err, lg_bpe_encode(s->bpe, text, parse_special, out, &err)));
    if (add_special && out->n > 1 && out->p[1] == bos) { // the text brought its own
        memmove(out->p, out->p + 1, (out->n - 1) * sizeof *out->p);
        out->n--;
    }
    return LG_OK;
}

// A token's text, or its bytes where it is no whole characters.
static void write_piece(lg_jsonw *w, lg_str bytes)
{
    bool whole = true;

    for (size_t i = 0; i < bytes.n && whole;) {
        int32_t cp;
        i += (size_t)lg_utf8_step(bytes.p + i, bytes.n - i, &cp);
        whole = cp >= 0;
    }
    if (whole) {
        lg_jsonw_str(w, "piece", bytes);
        return;
    }
    lg_jsonw_open(w, "piece", '[');
    for (size_t i = 0; i < bytes.n; i++)
        lg_jsonw_int(w, NULL, (unsigned char)bytes.p[i]);
    lg_jsonw_close(w, ']');
}

static void write_pieces(lg_jsonw *w, const lg_service *s, const lg_ids *ids)
{
    lg_jsonw_open(w, "tokens", '[');
    for (size_t i = 0; i < ids->n; i++) {
        lg_jsonw_open(w, NULL, '{');
        lg_jsonw_int(w, "id", ids->p[i]);
        write_piece(w, lg_vocab_bytes(s->vocab, ids->p[i]));
        lg_jsonw_close(w, '}');
    }
    lg_jsonw_close(w, ']');
}

static lg_status tokenize(const lg_service *s, const lg_json *body, lg_arena *a, lg_ids *ids, lg_api_error *e)
{
    const bool vllm = field(body, "prompt") != NULL;
    bool add_special = vllm, parse_special = true;
    lg_str text = {0};
    lg_rendered r;
    lg_err err = {0};

    if (field(body, "messages")) {
        LG_TRY(render(s, body, a, &r, e));
        return from_err(e, &err, lg_chat_encode(s->bpe, &r, ids, &err));
    }
    if (!vllm && !field(body, "content"))
        return lg_api_fail(e, LG_API_INVALID, "content", "content, prompt or messages must be there");
    LG_TRY(lg_field_str(body, "", vllm ? "prompt" : "content", &text, e));
    LG_TRY(lg_field_bool(body, "", "add_special", &add_special, e));
    LG_TRY(lg_field_bool(body, "", "add_special_tokens", &add_special, e));
    LG_TRY(lg_field_bool(body, "", "parse_special", &parse_special, e));
    return encode_text(s, text, add_special, parse_special, ids, e);
}

lg_status lg_util_tokenize(const lg_service *s, const lg_request *rq, const lg_json *body, lg_arena *a,
                           lg_buf *out, lg_api_error *e)
{
    const bool vllm = field(body, "prompt") || field(body, "messages");
    bool pieces = false;
    lg_ids ids = {0};
    lg_jsonw w = lg_jsonw_start(out);
    lg_status st;

    (void)rq;
    LG_TRY(lg_field_bool(body, "", "with_pieces", &pieces, e));
    st = tokenize(s, body, a, &ids, e);
    if (st == LG_OK) {
        lg_jsonw_open(&w, NULL, '{');
        if (pieces)
            write_pieces(&w, s, &ids);
        else
            write_ids(&w, "tokens", &ids);
        if (vllm) {
            lg_jsonw_int(&w, "count", (int64_t)ids.n);
            lg_jsonw_int(&w, "max_model_len", s->n_ctx);
        }
        lg_jsonw_close(&w, '}');
    }
    lg_ids_free(&ids);
    return st;
}

/* --- /detokenize --- */

lg_status lg_util_detokenize(const lg_service *s, const lg_request *rq, const lg_json *body, lg_arena *a,
                             lg_buf *out, lg_api_error *e)
{
    const lg_json *tokens = field(body, "tokens");
    lg_jsonw w = lg_jsonw_start(out);
    lg_status st = LG_OK;
    lg_buf text;
    char param[40];

    (void)rq;
    (void)a;
    if (!lg_json_is(tokens, LG_JSON_ARRAY))
        return lg_api_fail(e, LG_API_INVALID, "tokens", "tokens must be an array of token ids");
    lg_buf_init(&text, out->max);
    for (size_t i = 0; i < lg_json_len(tokens) && st == LG_OK; i++) {
        const lg_json *j = lg_json_at(tokens, i);
        int64_t id;
        if (lg_json_is(j, LG_JSON_NUMBER) && lg_json_i64(j, &id) && id >= 0 && id < lg_vocab_size(s->vocab)) {
            (void)lg_buf_adds(&text, lg_vocab_bytes(s->vocab, (int32_t)id));
            continue;
        }
        (void)snprintf(param, sizeof param, "tokens[%zu]", i);
        st = lg_api_fail(e, LG_API_INVALID, param, "%s is no token id; ids are 0 to %d", param,
                         (int)lg_vocab_size(s->vocab) - 1);
    }
    if (st == LG_OK && text.failed)
        st = lg_api_fail(e, LG_API_INVALID, "tokens", "the text of these tokens is too long");
    if (st == LG_OK) {
        lg_jsonw_open(&w, NULL, '{');
        lg_jsonw_str(&w, "content", lg_buf_str(&text));
        lg_jsonw_str(&w, "prompt", lg_buf_str(&text));
        lg_jsonw_close(&w, '}');
    }
    lg_buf_free(&text);
    return st;
}

/* --- /apply-template --- */

lg_status lg_util_apply_template(const lg_service *s, const lg_request *rq, const lg_json *body, lg_arena *a,
                                 lg_buf *out, lg_api_error *e)
{
    bool tokens = false;
    lg_rendered r;
    lg_err err = {0};
    lg_ids ids = {0};
    lg_buf text;
    lg_jsonw w = lg_jsonw_start(out);
    lg_status st;

    (void)rq;
    LG_TRY(lg_field_bool(body, "", "tokenize", &tokens, e));
    LG_TRY(render(s, body, a, &r, e));
    lg_buf_init(&text, out->max);
    st = lg_chat_text(&r, s->vocab, &text, &err);
    if (st == LG_OK && tokens)
        st = lg_chat_encode(s->bpe, &r, &ids, &err);
    if (st == LG_OK) {
        lg_jsonw_open(&w, NULL, '{');
        lg_jsonw_str(&w, "prompt", lg_buf_str(&text));
        if (tokens)
            write_ids(&w, "tokens", &ids);
        lg_jsonw_close(&w, '}');
    }
    lg_ids_free(&ids);
    lg_buf_free(&text);
    return from_err(e, &err, st);
}
