/*
 * fuzz/fuzz_tools: any bytes as the parameters of a tool (up to the first NUL), and what follows them as the
 * choices of a reply that calls it: forced, armed by the call, or a call in place of a value, with thinking
 * in front or not. A mask is never empty and never lies, what is taken back leaves no trace, forced tokens
 * are legal.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct world {
    lg_vocab *vocab;
    lg_bpe *bpe;
    lg_token_trie *trie;
    uint32_t *kept;
} world;

static const world *get_world(void)
{
    static world w;
    lg_gguf *file;

    if (w.vocab)
        return &w;
    LG_ASSERT(lg_gguf_open(VOCAB, &file, NULL) == LG_OK && lg_vocab_load(file, &w.vocab, NULL) == LG_OK);
    lg_gguf_close(file);
    LG_ASSERT(lg_bpe_create(w.vocab, LG_CRLF_HF, &w.bpe, NULL) == LG_OK);
    LG_ASSERT(lg_token_trie_create(w.vocab, &w.trie, NULL) == LG_OK);
    w.kept = calloc(lg_token_trie_words(w.trie), sizeof *w.kept);
    LG_ASSERT(w.kept);
    return &w;
}

static bool in(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

// The k-th token of the mask, counted around.
static int32_t nth(const world *w, const uint32_t *mask, size_t k)
{
    int32_t n = lg_vocab_size(w->vocab), all = 0;

    for (int32_t id = 0; id < n; id++)
        all += in(mask, id);
    LG_ASSERT(all > 0);
    k %= (size_t)all;
    for (int32_t id = 0; id < n; id++)
        if (in(mask, id) && k-- == 0)
            return id;
    return -1;
}

static void try_forced(const world *w, lg_matcher *m)
{
    lg_ids ids = {0};
    size_t n_ok;

    if (lg_matcher_forced(m, w->bpe, &ids, NULL) == LG_OK) {
        LG_ASSERT(lg_matcher_check(m, ids.p, ids.n, &n_ok, NULL) != LG_OK || n_ok == ids.n);
    }
    lg_ids_free(&ids);
}

static void reply(const world *w, lg_grammar *g, lg_phase start, const uint8_t *choice, size_t n)
{
    size_t bytes = lg_token_trie_words(w->trie) * sizeof *w->kept;
    const uint32_t *mask;
    lg_matcher *m;
    size_t n_ok;
    bool ok;

    if (lg_matcher_create(g, w->trie, start, &m, NULL) != LG_OK)
        return;
    for (size_t i = 0; i < n && i < 60 && !lg_matcher_must_stop(m); i++) {
        int32_t any = choice[i] * 2, id;
        if (lg_matcher_mask(m, &mask, NULL) != LG_OK)
            break;
        memcpy(w->kept, mask, bytes);
        LG_ASSERT(lg_matcher_check(m, &any, 1, &n_ok, NULL) != LG_OK || (n_ok == 1) == in(w->kept, any));
        id = nth(w, w->kept, (size_t)choice[i] * 7 + i);
        if (lg_matcher_accept(m, id, &ok, NULL) != LG_OK)
            break;
        LG_ASSERT(ok);
        if (i % 4 == 3) { // there and back
            lg_matcher_rollback(m, lg_matcher_n(m) - 1);
            if (lg_matcher_mask(m, &mask, NULL) != LG_OK)
                break;
            LG_ASSERT(memcmp(w->kept, mask, bytes) == 0);
            if (lg_matcher_accept(m, id, &ok, NULL) != LG_OK)
                break;
            LG_ASSERT(ok);
        }
        if (i % 8 == 0)
            try_forced(w, m);
    }
    lg_matcher_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const world *w = get_world();
    const uint8_t *end = n ? memchr(data, 0, n) : NULL;
    size_t length = end ? (size_t)(end - data) : n, rest = n - length;
    lg_grammar_tool tool[] = {{.name = LG_STR("get")},
                              {.name = LG_STR("get_all"), .parameters = {(const char *)data, length}},
                              {.name = LG_STR("loose"), .mode = LG_TOOL_ANY}};

    for (int way = 0; way < 3; way++) {
        lg_str schema = way == 1 ? LG_STR("{\"enum\":[1,\"x\"]}") : (lg_str){0};
        lg_phase start = way == 2 ? LG_PHASE_FREE : rest % 2 ? LG_PHASE_THINK : LG_PHASE_ANSWER;
        lg_grammar *g = NULL;
        lg_grammar_error why;
        lg_err err = {0};
        if (lg_grammar_tools(tool, 3, 1 + way, lg_vocab_special(w->vocab), schema, NULL, &g, &why, &err) !=
            LG_OK) {
            LG_ASSERT(g == NULL && err.msg[0] && why.code != LG_GRAMMAR_OK);
            continue;
        }
        reply(w, g, start, data + length, rest);
        lg_grammar_destroy(g);
    }
    return 0;
}
