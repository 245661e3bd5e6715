/*
 * fuzz/walk_gguf: everything that happens to a model file before its weights are read: the container, each
 * value, the configuration, names and shapes, the tokenizer. What `lagoon inspect` does, from memory and
 * without printing.
 */
#ifndef WALK_GGUF_H
#define WALK_GGUF_H

#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "gguf/gguf.h"
#include "model/weights.h"
#include "text/vocab.h"

static volatile unsigned walk_sink; // what is read must be read

static void walk_bytes(const void *p, size_t n)
{
    const unsigned char *b = p;
    unsigned sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += b[i];
    walk_sink += sum;
}

static void walk_kv(const lg_gguf *g, const lg_gguf_kv *kv)
{
    char key[256];
    int64_t i;
    double f;
    bool b;
    lg_str s;

    walk_bytes(kv->key.p, kv->key.n);
    (void)lg_kv_bool(kv, &b);
    (void)lg_kv_i64(kv, &i);
    (void)lg_kv_f64(kv, &f);
    if (lg_kv_str(kv, &s))
        walk_bytes(s.p, s.n);
    for (uint64_t k = 0; k < kv->count; k++) {
        (void)lg_kv_elem_i64(kv, k, &i);
        (void)lg_kv_elem_f64(kv, k, &f);
        if (lg_kv_elem_str(kv, k, &s))
            walk_bytes(s.p, s.n);
    }
    if (kv->key.n < sizeof key && !memchr(kv->key.p, 0, kv->key.n)) {
        memcpy(key, kv->key.p, kv->key.n);
        key[kv->key.n] = 0;
        LG_ASSERT(lg_gguf_find(g, key) == kv);
    }
}

static void walk_tensor(const lg_gguf *g, const lg_gguf_tensor *t)
{
    LG_ASSERT(lg_gguf_find_tensor(g, t->name) == t);
    LG_ASSERT(t->bytes > 0 && t->part < lg_gguf_parts(g) && lg_qtype_get((uint32_t)t->type)->name);
    walk_bytes(t->data, 1);
    walk_bytes(t->data + t->bytes - 1, 1);
}

/* The error of a refused file is one line that a terminal can show, whatever the file says. */
static void walk_check_error(lg_status st, const lg_err *err)
{
    char line[512];

    LG_ASSERT(st != LG_OK && err->code == st && err->msg[0]);
    lg_err_line(err, line, sizeof line);
    for (const char *c = line; *c; c++)
        LG_ASSERT((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* Walks an open file; true when a model could be loaded from it. */
static bool walk_gguf(const lg_gguf *g)
{
    static lg_hparams hp;
    lg_weights_plan plan;
    lg_vocab *vocab = NULL;
    lg_err err = {0};
    lg_status st;

    for (size_t i = 0; i < lg_gguf_n_kv(g); i++)
        walk_kv(g, lg_gguf_kv_at(g, i));
    for (size_t i = 0; i < lg_gguf_n_tensors(g); i++)
        walk_tensor(g, lg_gguf_tensor_at(g, i));
    st = lg_hparams_read(g, NULL, &hp, &err);
    if (st == LG_OK)
        st = lg_weights_check(g, &hp, NULL, &plan, &err);
    bool runs = st == LG_OK;
    if (!runs)
        walk_check_error(st, &err);
    err = (lg_err){0};
    st = lg_vocab_load(g, &vocab, &err);
    if (st != LG_OK) {
        walk_check_error(st, &err);
        return false;
    }
    for (int32_t id = -1; id <= lg_vocab_size(vocab); id++) {
        lg_str s = lg_vocab_bytes(vocab, id);
        walk_bytes(s.p, s.n);
        (void)lg_vocab_class(vocab, id);
        (void)lg_vocab_is_eog(vocab, id);
    }
    lg_vocab_destroy(vocab);
    return runs;
}

#endif
