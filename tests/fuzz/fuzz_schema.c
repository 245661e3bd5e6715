/*
 * fuzz/fuzz_schema: any bytes as a JSON Schema. What compiles must never run into a dead end: from every
 * state that a walk meets, the text can go on or end. What does not compile says why.
 */
#include "grammar/grammar_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t roll(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void walk(lg_grammar *g, uint64_t seed)
{
    lg_auto *a = g->automaton;
    uint32_t cfg = lg_auto_start(a);

    for (int i = 0; i < 40 && cfg != LG_CFG_DEAD; i++) {
        uint32_t next = LG_CFG_DEAD, n = 0;
        for (int b = 0; b < 256; b++) {
            uint32_t to = lg_auto_next(a, cfg, (uint8_t)b);
            if (to != LG_CFG_DEAD && roll(&seed) % ++n == 0)
                next = to;
        }
        LG_ASSERT(n > 0 || lg_auto_cfg(a, cfg)->accept || lg_auto_failed(a) != LG_OK);
        cfg = next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const lg_grammar_options options[] = {
        {.whitespace = LG_WS_NATURAL},
        {.whitespace = LG_WS_COMPACT, .any_order = true},
        {.whitespace = LG_WS_FREE, .ignore_formats = true, .one_of_any = true}};
    uint64_t seed = n;

    for (size_t i = 0; i < n; i++)
        seed = seed * 31 + data[i];
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        lg_grammar *g = NULL;
        lg_grammar_error why;
        lg_err err = {0};
        if (lg_grammar_schema((lg_str){(const char *)data, n}, &options[i], &g, &why, &err) != LG_OK) {
            LG_ASSERT(g == NULL && err.msg[0] && why.code != LG_GRAMMAR_OK);
            continue;
        }
        walk(g, seed);
        walk(g, seed + 1);
        lg_grammar_destroy(g);
    }
    return 0;
}
