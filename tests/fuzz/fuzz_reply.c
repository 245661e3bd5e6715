/*
 * fuzz/fuzz_reply: a reply of any tokens through the parser. The first four bytes choose switches; then a
 * byte below 32 is that token's id, any other byte the token of that byte, except that 0x7F says that the
 * next byte, whatever it is, is text.
 *
 * The same reply is fed once token by token and once with neighbouring text in one token where the vocabulary
 * has one; the events must be equal. Arguments of a call that ended must be one JSON object, and events come
 * in order. VOCAB is the path of a vocabulary file (compile-time).
 */
#include <stdlib.h>
#include <string.h>

#include "text/chat_json.h"
#include "text/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char tools_json[] =
    "[{\"function\":{\"name\":\"ls\"}},{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},\"a\":{\"type\":[\"array\",\"null\"]},"
    "\"o\":{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"boolean\"}]},\"u\":{\"$ref\":\"#/properties/s\"}}}}}]";

static const lg_vocab *vocab;
static const lg_bpe *encoder;
static lg_chat_tools tools;
static lg_json_doc *tools_doc; // lives as long as the process

static void open_all(void)
{
    static lg_arena arena;
    const lg_json_limits lim = {.max_bytes = 1 << 16, .max_depth = 64};
    lg_gguf *g = NULL;
    lg_vocab *v = NULL;
    lg_bpe *b = NULL;

    LG_ASSERT(lg_gguf_open(VOCAB, &g, NULL) == LG_OK);
    LG_ASSERT(lg_vocab_load(g, &v, NULL) == LG_OK);
    lg_gguf_close(g);
    LG_ASSERT(lg_bpe_create(v, LG_CRLF_HF, &b, NULL) == LG_OK);
    lg_arena_init(&arena, 1 << 20);
    LG_ASSERT(lg_json_parse(LG_STR(tools_json), &lim, &tools_doc, NULL) == LG_OK);
    LG_ASSERT(lg_chat_json_tools(lg_json_root(tools_doc), NULL, &arena, &tools, NULL) == LG_OK);
    vocab = v;
    encoder = b;
}

/* What was heard: a byte for the kind and the call before each stretch of one kind. */
typedef struct record {
    lg_buf all, args;
    int kind, call;
    bool in_call;
    int n_calls;
} record;

static void hear(void *ctx, const lg_event *ev)
{
    record *r = ctx;

    if (r->kind != (int)ev->kind || r->call != ev->call || ev->kind == LG_EV_TOOL_START ||
        ev->kind == LG_EV_TOOL_END)
        (void)lg_buf_addf(&r->all, "\n%d %d ", (int)ev->kind, ev->call);
    (void)lg_buf_adds(&r->all, ev->text);
    r->kind = (int)ev->kind;
    r->call = ev->call;
    for (size_t i = 0; i < ev->text.n;) { // always whole characters
        int32_t c;
        i += (size_t)lg_utf8_step(ev->text.p + i, ev->text.n - i, &c);
        LG_ASSERT(c >= 0);
    }
    switch (ev->kind) {
    case LG_EV_TOOL_START:
        LG_ASSERT(ev->call == r->n_calls && ev->text.n > 0 && !r->in_call);
        r->n_calls++;
        r->in_call = true;
        lg_buf_clear(&r->args);
        break;
    case LG_EV_TOOL_ARGS:
        LG_ASSERT(ev->call == r->n_calls - 1 && r->in_call && ev->text.n > 0);
        (void)lg_buf_adds(&r->args, ev->text);
        break;
    case LG_EV_TOOL_END: {
        lg_json_kind kind = LG_JSON_NULL;
        LG_ASSERT(r->in_call && lg_value_is_json(lg_buf_str(&r->args), &kind) && kind == LG_JSON_OBJECT);
        r->in_call = false;
        break;
    }
    default:
        LG_ASSERT(!r->in_call && ev->text.n > 0);
    }
}

static bool feed_text(lg_reply *reply, lg_str text, bool joined)
{
    lg_ids ids = {0};
    bool done = false;

    for (size_t i = 0; i < text.n && !joined; i++)
        LG_ASSERT(lg_bpe_encode(encoder, (lg_str){text.p + i, 1}, false, &ids, NULL) == LG_OK);
    if (joined)
        LG_ASSERT(lg_bpe_encode(encoder, text, false, &ids, NULL) == LG_OK);
    for (size_t i = 0; i < ids.n && !done; i++)
        LG_ASSERT(lg_reply_feed(reply, ids.p[i], &done, NULL) == LG_OK);
    lg_ids_free(&ids);
    return done;
}

static void run(const uint8_t *data, size_t n, const uint8_t *how, bool joined, record *rec)
{
    static const lg_str stops[] = {{"STOP", 4}, {"\n\n", 2}, {"</a", 3}};
    lg_reply_params p = {.family = how[0] & 1 ? LG_TEMPLATE_V2 : LG_TEMPLATE_S21, .thinking = how[0] >> 1 & 1,
                         .open_reasoning = how[0] >> 2 & 1, .raw = (how[0] >> 3) % 8 == 7, .tool = tools.tool,
                         .n_tool = how[1] & 1 ? 0 : tools.n, .stop = stops, .n_stop = how[2] % 4};
    lg_reply *reply = NULL;
    lg_finish finish;
    lg_buf text;
    bool done = false;

    *rec = (record){.kind = -1};
    lg_buf_init(&rec->all, 1 << 22);
    lg_buf_init(&rec->args, 1 << 22);
    lg_buf_init(&text, 1 << 20);
    LG_ASSERT(lg_reply_create(vocab, &p, 1 << 20, hear, rec, &reply, NULL) == LG_OK);
    for (size_t i = 0; i < n && !done; i++) {
        if (data[i] >= 32 || data[i] == '\n' || data[i] == '\t') {
            (void)lg_buf_addc(&text, (char)data[data[i] == 0x7F && i + 1 < n ? ++i : i]);
            continue;
        }
        done = feed_text(reply, lg_buf_str(&text), joined);
        lg_buf_clear(&text);
        if (!done)
            LG_ASSERT(lg_reply_feed(reply, data[i], &done, NULL) == LG_OK);
    }
    if (!done)
        (void)feed_text(reply, lg_buf_str(&text), joined);
    LG_ASSERT(lg_reply_end(reply, (lg_end)(how[3] % 5), &finish, NULL) == LG_OK);
    (void)lg_buf_addf(&rec->all, "\nfinish %d stop %d", (int)finish, lg_reply_stop(reply));
    LG_ASSERT(!rec->all.failed && !rec->args.failed);
    lg_reply_destroy(reply);
    lg_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    record a, b;

    if (!vocab)
        open_all();
    if (n < 4 || n > 1 << 14)
        return 0;
    run(data + 4, n - 4, data, false, &a);
    run(data + 4, n - 4, data, true, &b);
    LG_ASSERT(lg_str_eq(lg_buf_str(&a.all), lg_buf_str(&b.all)));
    lg_buf_free(&a.all);
    lg_buf_free(&a.args);
    lg_buf_free(&b.all);
    lg_buf_free(&b.args);
    return 0;
}
