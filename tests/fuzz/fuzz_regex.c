/*
 * fuzz/fuzz_regex: any bytes as a pattern, between length bounds taken from the first byte. A text that the
 * automaton finishes must satisfy the evaluator, and no state may be a dead end.
 */
#include "grammar/grammar_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void walk(lg_grammar *g, lg_str schema, uint64_t seed)
{
    lg_auto *a = g->automaton;
    uint32_t cfg = lg_auto_start(a);
    lg_buf text;
    bool holds = false;

    lg_buf_init(&text, 4096);
    for (int i = 0; i < 60 && cfg != LG_CFG_DEAD; i++) {
        uint32_t next = LG_CFG_DEAD, n = 0;
        char byte = 0;
        if (lg_auto_cfg(a, cfg)->accept) {
            LG_ASSERT(lg_schema_evaluate(schema, lg_buf_str(&text), &holds, NULL) == LG_OK && holds);
            break;
        }
        for (int b = 0; b < 256; b++) {
            uint32_t to = lg_auto_next(a, cfg, (uint8_t)b);
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            n += to != LG_CFG_DEAD ? (b == '"' ? 40 : 1) : 0; // an end is likely
            if (to != LG_CFG_DEAD && (seed >> 33) % n < (b == '"' ? 40u : 1u)) {
                next = to;
                byte = (char)b;
            }
        }
        LG_ASSERT(n > 0 || lg_auto_failed(a) != LG_OK);
        (void)lg_buf_addc(&text, byte);
        cfg = next;
    }
    lg_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    lg_grammar *g = NULL;
    lg_err err = {0};
    lg_buf schema;
    uint64_t seed = n;

    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        seed = seed * 31 + data[i];
    lg_buf_init(&schema, 16 * n + 256);
    (void)lg_buf_addz(&schema, "{\"type\":\"string\",\"pattern\":");
    (void)lg_json_quote((lg_str){(const char *)data + 1, n - 1}, &schema);
    if (data[0] & 1)
        (void)lg_buf_addf(&schema, ",\"minLength\":%d", data[0] >> 2 & 7);
    if (data[0] & 2)
        (void)lg_buf_addf(&schema, ",\"maxLength\":%d", data[0] >> 4);
    (void)lg_buf_addc(&schema, '}');
    if (lg_grammar_schema(lg_buf_str(&schema), NULL, &g, NULL, &err) == LG_OK) {
        walk(g, lg_buf_str(&schema), seed);
        walk(g, lg_buf_str(&schema), seed + 1);
    } else {
        LG_ASSERT(err.msg[0]);
    }
    lg_grammar_destroy(g);
    lg_buf_free(&schema);
    return 0;
}
