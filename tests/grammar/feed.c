/*
 * tests/grammar/feed: see feed.h.
 */
#include "feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const lg_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(1);
}

void fd_open(fd_world *w, const char *gguf)
{
    lg_gguf *file;
    lg_err err = {0};

    *w = (fd_world){.rng = 1};
    if (lg_gguf_open(gguf, &file, &err) != LG_OK || lg_vocab_load(file, &w->vocab, &err) != LG_OK ||
        lg_bpe_create(w->vocab, LG_CRLF_HF, &w->bpe, &err) != LG_OK ||
        lg_token_trie_create(w->vocab, &w->trie, &err) != LG_OK)
        die(gguf, &err);
    lg_gguf_close(file);
    for (int32_t id = 0; id < lg_vocab_size(w->vocab); id++) {
        lg_str b = lg_vocab_bytes(w->vocab, id);
        if (b.n == 1 && !lg_vocab_is_added(w->vocab, id))
            w->byte[(unsigned char)b.p[0]] = id;
    }
}

void fd_close(fd_world *w)
{
    lg_token_trie_destroy(w->trie);
    lg_bpe_destroy(w->bpe);
    lg_vocab_destroy(w->vocab);
}

uint32_t fd_pick(fd_world *w, uint32_t n)
{
    w->rng = w->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((w->rng >> 33) % n);
}

static bool in(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

bool fd_accepts(const fd_world *w, lg_grammar *g, lg_str text)
{
    const uint32_t *mask;
    lg_matcher *m;
    lg_err err = {0};
    bool ok = true;

    if (lg_matcher_create(g, w->trie, LG_PHASE_ANSWER, &m, &err) != LG_OK)
        die("matcher", &err);
    for (size_t i = 0; i < text.n && ok; i++)
        if (lg_matcher_accept(m, w->byte[(unsigned char)text.p[i]], &ok, &err) != LG_OK)
            die("accept", &err);
    if (ok && lg_matcher_mask(m, &mask, &err) != LG_OK)
        die("mask", &err);
    ok = ok && in(mask, lg_vocab_special(w->vocab)->eos);
    lg_matcher_destroy(m);
    return ok;
}

bool fd_accepts_cut(fd_world *w, lg_grammar *g, lg_str text)
{
    const uint32_t *mask;
    lg_matcher *m;
    lg_err err = {0};
    bool ok = true;

    if (lg_matcher_create(g, w->trie, LG_PHASE_ANSWER, &m, &err) != LG_OK)
        die("matcher", &err);
    for (size_t i = 0; i < text.n && ok;) {
        int32_t chosen = -1;
        uint32_t n = 0;
        for (int32_t id = 0; id < lg_vocab_size(w->vocab); id++)
            if (!lg_vocab_is_added(w->vocab, id) && lg_vocab_bytes(w->vocab, id).n > 0 &&
                lg_str_starts((lg_str){text.p + i, text.n - i}, lg_vocab_bytes(w->vocab, id)) &&
                fd_pick(w, ++n) == 0)
                chosen = id;
        if (lg_matcher_mask(m, &mask, &err) != LG_OK)
            die("mask", &err);
        ok = chosen >= 0 && in(mask, chosen);
        if (ok && lg_matcher_accept(m, chosen, &ok, &err) != LG_OK)
            die("accept", &err);
        i += lg_vocab_bytes(w->vocab, chosen).n;
    }
    if (ok && lg_matcher_mask(m, &mask, &err) != LG_OK)
        die("mask", &err);
    ok = ok && in(mask, lg_vocab_special(w->vocab)->eos);
    lg_matcher_destroy(m);
    return ok;
}

// A token of the mask, or -1. Past the free part those that begin by closing something count 300 times.
static int32_t choose(fd_world *w, const uint32_t *mask, fd_chooser how, bool closing)
{
    int32_t choice = -1, n_vocab = lg_vocab_size(w->vocab);
    uint32_t sum = 0;
    size_t longest = 0;

    for (int32_t id = 0; id < n_vocab; id++) {
        if (mask[id / 32] == 0) {
            id |= 31;
            continue;
        }
        if (!in(mask, id))
            continue;
        lg_str b = lg_vocab_bytes(w->vocab, id);
        bool end = lg_vocab_is_eog(w->vocab, id), closes = end || (b.n && strchr("\"}]", b.p[0]));
        uint32_t weight = closing && closes ? 300 : 1;
        if (how == FD_GREEDY &&
            !closing) { // opening brackets and long texts; an end only when nothing else is left
            size_t rank = end ? 1 : closes ? 2 : 3 + b.n + (b.n && strchr("[{", b.p[0]) ? 100 : 0);
            weight = rank < longest ? 0 : 1;
            if (rank > longest) {
                longest = rank;
                sum = 0;
            }
        }
        sum += weight;
        if (weight && fd_pick(w, sum) < weight)
            choice = id;
    }
    return choice;
}

bool fd_walk(fd_world *w, lg_grammar *g, fd_chooser how, int free, int most, lg_buf *out, bool *done)
{
    const uint32_t *mask;
    lg_matcher *m;
    lg_err err = {0};
    bool ok = true;

    *done = false;
    if (lg_matcher_create(g, w->trie, LG_PHASE_ANSWER, &m, &err) != LG_OK)
        die("matcher", &err);
    for (int i = 0; i < most && ok && !*done; i++) {
        int32_t id;
        if (lg_matcher_must_stop(m)) {
            *done = true;
            break;
        }
        if (lg_matcher_mask(m, &mask, &err) != LG_OK)
            die("mask", &err);
        id = choose(w, mask, how, i >= free);
        if (id < 0) {
            fprintf(stderr, "nothing may follow %.*s\n", (int)out->n, out->p ? out->p : "");
            ok = false;
            break;
        }
        if (lg_matcher_accept(m, id, &ok, &err) != LG_OK)
            die("accept", &err);
        if (!ok)
            fprintf(stderr, "token %d of the mask is refused behind %.*s\n", (int)id, (int)out->n, out->p);
        if (lg_vocab_is_added(w->vocab, id))
            *done = true;
        else
            (void)lg_buf_adds(out, lg_vocab_bytes(w->vocab, id));
    }
    *done = *done || lg_matcher_must_stop(m);
    lg_matcher_destroy(m);
    return ok;
}
