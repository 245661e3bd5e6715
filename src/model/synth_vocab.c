/*
 * model/synth_vocab: the tokenizer of a synthetic model.
 *
 * The real vocabulary has 70 added tokens, 256 byte tokens and 100026 products of merges, each of exactly
 * one. This one has the same added tokens at the same ids, the byte tokens, and as many products: all pairs
 * of bytes, then triples of a pair and a common character. So every loader's checks hold (each merge names
 * two tokens and makes a third), any text can be encoded, and tables have the real sizes. The text means as
 * little as the weights do.
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "model/synth_int.h"

enum {
    N_ADDED = 70,
    N_BYTES = 256,
    FIRST_BYTE = N_ADDED,
    FIRST_PAIR = FIRST_BYTE + N_BYTES,
    N_PAIRS = N_BYTES * N_BYTES,
    N_MERGES = LG_SYNTH_VOCAB - FIRST_PAIR,
    MEMORY = 32 << 20, // strings and tables, some 9 MiB in fact
};

// token_type values
enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4 };

static const char *const added[] = {
    "〈|UNK|〉",
    "〈|CODE_START|〉",
    "〈|EOS|〉",
    "〈|CODE_END|〉",
    "〈|META_START|〉",
    "〈|META_END|〉",
    "〈|FIM_MIDDLE|〉",
    "〈|FIM_SUFFIX|〉",
    "〈|SEP|〉",
    "〈|PAD|〉",
    "〈|CLS|〉",
    "〈|FIM_START|〉",
    "〈|MASK|〉",
    "|◊|",
    "〈|",
    "|〉",
    "〈|/",
    "/|〉",
    "<think>",
    "</think>",
    "〈|SPECIAL_1|〉",
    "〈|SPECIAL_2|〉",
    "〈|SPECIAL_3|〉",
    "<assistant>",
    "</assistant>",
    "<tool_call>",
    "</tool_call>",
};
enum { N_NAMED = sizeof added / sizeof *added }; // those behind are 〈|SPECIAL_8|〉 and on

typedef struct vocab {
    lg_arena mem;
    lg_str *token, *merge;
    int32_t *type;
    lg_str byte[N_BYTES]; // each byte in the printable alphabet of byte-level BPE
    bool no_memory;
} vocab;

// Copies n bytes; an empty string when there is no memory.
static lg_str copy(vocab *v, const char *p, size_t n)
{
    char *q = lg_arena_dup(&v->mem, p, n);

    v->no_memory = v->no_memory || !q;
    return q ? (lg_str){q, n} : LG_STR("");
}

static lg_str join(vocab *v, lg_str a, const char *between, lg_str b)
{
    char s[32];
    int n = snprintf(s, sizeof s, "%.*s%s%.*s", (int)a.n, a.p, between, (int)b.n, b.p);

    return copy(v, s, (size_t)n); // at most three characters of at most two bytes, and a space
}

// The printable character of a byte: itself if it is printable and no space, else the next one from U+0100.
static void byte_alphabet(vocab *v)
{
    int32_t next = 0x100;

    for (int b = 0; b < N_BYTES; b++) {
        bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        char utf8[4];
        int n = lg_utf8_put(plain ? b : next++, utf8);

        v->byte[b] = copy(v, utf8, (size_t)n);
    }
}

static void add_tokens(vocab *v)
{
    for (int i = 0; i < N_ADDED; i++) {
        char name[32];
        bool user =
            i == 18 || i == 19 || i == 23 || i == 25 || i == 26; // 24 ends a turn and is control in files

        (void)snprintf(name, sizeof name, "〈|SPECIAL_%d|〉", i - 19);
        const char *z = i < N_NAMED ? added[i] : name;
        v->token[i] = copy(v, z, strlen(z));
        v->type[i] = user ? USER_DEFINED : CONTROL;
    }
    for (int b = 0; b < N_BYTES; b++) {
        v->token[FIRST_BYTE + b] = v->byte[b];
        v->type[FIRST_BYTE + b] = NORMAL;
    }
}

static void add_products(vocab *v)
{
    static const char third[] = "abcdefghijklmnopqrstuvwxyz .,_()="; // 33 of them make 35937 triples

    for (int i = 0; i < N_MERGES; i++) {
        int k = i - N_PAIRS, m = (int)sizeof third - 1;
        lg_str a, b;

        if (k < 0) {
            a = v->byte[i / N_BYTES];
            b = v->byte[i % N_BYTES];
        } else { // the pair of two of these characters, and a third
            int pair = N_BYTES * third[k / m / m] + third[k / m % m];
            a = v->token[FIRST_PAIR + pair];
            b = v->byte[(unsigned char)third[k % m]];
        }
        v->merge[i] = join(v, a, " ", b);
        v->token[FIRST_PAIR + i] = join(v, a, "", b);
        v->type[FIRST_PAIR + i] = NORMAL;
    }
}

lg_status lg_synth_put_vocab(lg_gguf_writer *w, lg_err *err)
{
    static const struct {
        const char *key;
        uint32_t id;
    } ids[] = {{"bos", 2},       {"eos", 2},     {"eot", 24}, {"unknown", 0},
               {"seperator", 8}, {"padding", 9}, {"mask", 12}};
    lg_status st = LG_OK;
    vocab v = {.token = NULL};

    lg_arena_init(&v.mem, MEMORY);
    v.token = LG_NEW_N(&v.mem, lg_str, LG_SYNTH_VOCAB);
    v.type = LG_NEW_N(&v.mem, int32_t, LG_SYNTH_VOCAB);
    v.merge = LG_NEW_N(&v.mem, lg_str, N_MERGES);
    if (!v.token || !v.type || !v.merge) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory for the tokenizer");
        goto out;
    }
    byte_alphabet(&v);
    add_tokens(&v);
    add_products(&v);
    if (v.no_memory) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory for the tokenizer");
        goto out;
    }
    lg_gguf_put_str(w, "tokenizer.ggml.model", LG_STR("gpt2"));
    lg_gguf_put_str(w, "tokenizer.ggml.pre", LG_STR("laguna"));
    lg_gguf_put_strs(w, "tokenizer.ggml.tokens", v.token, LG_SYNTH_VOCAB);
    lg_gguf_put_array(w, "tokenizer.ggml.token_type", LG_GV_I32, v.type, LG_SYNTH_VOCAB);
    lg_gguf_put_strs(w, "tokenizer.ggml.merges", v.merge, N_MERGES);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char key[64];

        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i].key);
        lg_gguf_put_u32(w, key, ids[i].id);
    }
    lg_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false); // the chat template writes it
out:
    lg_arena_free(&v.mem);
    return st;
}
