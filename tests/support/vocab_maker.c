/*
 * tests/support/vocab_maker: see vocab_maker.h.
 */
#include "support/vocab_maker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/scratch.h"

enum { MAX = 4096 };

typedef struct strings {
    lg_buf buf;
    size_t at[MAX + 1], n;
    lg_str slice[MAX];
} strings;

static void put(strings *s, lg_str text, bool spell)
{
    if (s->n == MAX)
        abort();
    s->at[s->n++] = s->buf.n;
    if (spell)
        vm_spell(text, &s->buf);
    else
        (void)lg_buf_adds(&s->buf, text);
    s->at[s->n] = s->buf.n;
}

static const lg_str *slices(strings *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->slice[i] = (lg_str){s->buf.p + s->at[i], s->at[i + 1] - s->at[i]};
    return s->slice;
}

void vm_spell(lg_str bytes, lg_buf *out)
{
    for (size_t i = 0; i < bytes.n; i++) {
        int b = (unsigned char)bytes.p[i], moved = 0;
        char utf8[4];
        for (int k = 0; k < b; k++)
            moved += !((k >= 33 && k <= 126) || (k >= 161 && k <= 172) || k >= 174);
        bool keeps = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        (void)lg_buf_add(out, utf8, (size_t)lg_utf8_put(keeps ? b : 0x100 + moved, utf8));
    }
}

static void put_lists(const vm_vocab *v, lg_gguf_writer *w, strings *tokens, strings *merges)
{
    int32_t class_of[MAX];
    size_t n_added = 0;

    for (; v->added && v->added[n_added]; n_added++)
        put(tokens, lg_str_of(v->added[n_added]), false);
    for (int b = 0; b < 256 && !v->no_bytes; b++) {
        char c = (char)b;
        put(tokens, (lg_str){&c, 1}, true);
    }
    for (size_t i = 0; v->tokens && v->tokens[i]; i++)
        put(tokens, lg_str_of(v->tokens[i]), true);
    for (size_t i = 0; i < tokens->n; i++)
        class_of[i] = i < n_added ? (v->added_class ? v->added_class : LG_TOK_CONTROL) : LG_TOK_NORMAL;
    for (size_t i = 0; i < v->n_merges; i++) {
        lg_buf rule;
        lg_buf_init(&rule, 4096);
        vm_spell(lg_str_of(v->merges[i].left), &rule);
        (void)lg_buf_addc(&rule, ' ');
        vm_spell(lg_str_of(v->merges[i].right), &rule);
        put(merges, lg_buf_str(&rule), false);
        lg_buf_free(&rule);
    }
    if (!v->no_tokens)
        lg_gguf_put_strs(w, "tokenizer.ggml.tokens", slices(tokens), tokens->n);
    if (!v->no_types)
        lg_gguf_put_array(w, "tokenizer.ggml.token_type", LG_GV_I32, class_of, tokens->n);
    if (!v->no_merges)
        lg_gguf_put_strs(w, "tokenizer.ggml.merges", slices(merges), merges->n);
}

void vm_write(const vm_vocab *v, const char *path)
{
    strings *tokens = calloc(1, sizeof *tokens), *merges = calloc(1, sizeof *merges);
    lg_gguf_writer *w = NULL;
    lg_err err = {0};

    if (!tokens || !merges || lg_gguf_write_open(path, &w, &err) != LG_OK)
        abort();
    lg_buf_init(&tokens->buf, 1 << 20);
    lg_buf_init(&merges->buf, 1 << 20);
    if (v->model)
        lg_gguf_put_str(w, "tokenizer.ggml.model", lg_str_of(v->model));
    if (v->pre)
        lg_gguf_put_str(w, "tokenizer.ggml.pre", lg_str_of(v->pre));
    if (v->chat_template)
        lg_gguf_put_str(w, "tokenizer.chat_template", lg_str_of(v->chat_template));
    put_lists(v, w, tokens, merges);
    if (v->more)
        v->more(w);
    if (lg_gguf_write_begin(w, &err) != LG_OK || lg_gguf_write_finish(w, &err) != LG_OK)
        abort();
    lg_buf_free(&tokens->buf);
    lg_buf_free(&merges->buf);
    free(tokens);
    free(merges);
}

lg_status vm_load(const vm_vocab *v, lg_vocab **out, lg_err *err)
{
    const char *path = scratch_path("vocab.gguf");
    lg_gguf *g = NULL;
    lg_status st;

    vm_write(v, path);
    if (lg_gguf_open(path, &g, err) != LG_OK)
        abort();
    st = lg_vocab_load(g, out, err);
    lg_gguf_close(g);
    return st;
}
