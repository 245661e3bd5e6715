/*
 * text/vocab: see vocab.h. Everything is copied out of the GGUF into three blocks, so the file may be closed.
 *
 * Normal tokens are written in the GPT-2 byte alphabet, where each byte is one printable character; added
 * tokens are literal UTF-8. Which tokens are added is decided by class or, because some files class them as
 * normal, by text.
 */
#include "text/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct lg_vocab {
    int32_t n;
    char *bytes; /* of all tokens, one after the other */
    size_t *at;  /* n + 1 offsets */
    uint8_t *class_of;
    int32_t *added; /* ascending ids */
    size_t n_added;
    uint8_t *is_added;
    char *merge_bytes;
    size_t *merge_at;     /* n_merges + 1 */
    uint32_t *merge_left; /* bytes of the left side */
    size_t n_merges;
    lg_special special;
    lg_template_family family;
    bool family_known;
};

enum { MAX_TOKENS = 1 << 24, MAX_MERGES = 1 << 26 };

/* --- the byte alphabet --- */

enum { ALPHABET = 0x144 }; /* one past the last character in use: 68 bytes are moved to U+0100 and up */

// byte_of[c] is the byte that character c stands for, or -1.
static void make_alphabet(int16_t byte_of[ALPHABET])
{
    int next = 0x100;

    for (int c = 0; c < ALPHABET; c++)
        byte_of[c] = -1;
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        byte_of[printable ? b : next++] = (int16_t)b;
    }
}

// Decodes s into out, which has room for s.n bytes. SIZE_MAX when a character is not of the alphabet.
static size_t from_alphabet(const int16_t byte_of[ALPHABET], lg_str s, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n;) {
        int32_t c;
        i += (size_t)lg_utf8_step(s.p + i, s.n - i, &c);
        if (c < 0 || c >= ALPHABET || byte_of[c] < 0)
            return SIZE_MAX;
        out[n++] = (char)byte_of[c];
    }
    return n;
}

/* --- the added tokens of the model --- */

enum { N_KNOWN = 70 };
#define OPEN "\xE3\x80\x88"
#define CLOSE "\xE3\x80\x89"

typedef struct known_tokens {
    lg_str text[N_KNOWN]; /* by the id that the model gives it */
    char room[N_KNOWN][32];
} known_tokens;

static void make_known(known_tokens *k)
{
    static const char *const fixed[N_KNOWN] = {
        [0] = OPEN "|UNK|" CLOSE,         [1] = OPEN "|CODE_START|" CLOSE, [2] = OPEN "|EOS|" CLOSE,
        [3] = OPEN "|CODE_END|" CLOSE,    [4] = OPEN "|META_START|" CLOSE, [5] = OPEN "|META_END|" CLOSE,
        [6] = OPEN "|FIM_MIDDLE|" CLOSE,  [7] = OPEN "|FIM_SUFFIX|" CLOSE, [8] = OPEN "|SEP|" CLOSE,
        [9] = OPEN "|PAD|" CLOSE,         [10] = OPEN "|CLS|" CLOSE,       [11] = OPEN "|FIM_START|" CLOSE,
        [12] = OPEN "|MASK|" CLOSE,       [13] = "|\xE2\x97\x8A|",         [14] = OPEN "|",
        [15] = "|" CLOSE,                 [16] = OPEN "|/",                [17] = "/|" CLOSE,
        [18] = "<think>",                 [19] = "</think>",               [23] = "<assistant>",
        [24] = "</assistant>",            [25] = "<tool_call>",            [26] = "</tool_call>",
    };

    for (int id = 0; id < N_KNOWN; id++) {
        if (!fixed[id])
            (void)snprintf(k->room[id], sizeof k->room[id], OPEN "|SPECIAL_%d|" CLOSE, id - 19);
        k->text[id] = lg_str_of(fixed[id] ? fixed[id] : k->room[id]);
    }
}

static bool is_known(const known_tokens *k, lg_str raw)
{
    for (int id = 0; id < N_KNOWN; id++)
        if (lg_str_eq(raw, k->text[id]))
            return true;
    return false;
}

/* --- loading --- */

static lg_status need_strings(const lg_gguf *g, const char *key, uint64_t max, const lg_gguf_kv **out,
                              lg_err *err)
{
    const lg_gguf_kv *kv = lg_gguf_find(g, key);

    if (!kv)
        return LG_FAIL(err, LG_E_INPUT, "%s is missing", key);
    if (kv->type != LG_GV_ARRAY || kv->elem != LG_GV_STR)
        return LG_FAIL(err, LG_E_INPUT, "%s must be an array of strings", key);
    if (kv->count > max)
        return LG_FAIL(err, LG_E_INPUT, "%s has %llu entries; at most %llu are possible", key,
                       (unsigned long long)kv->count, (unsigned long long)max);
    *out = kv;
    return LG_OK;
}

static size_t strings_bytes(const lg_gguf_kv *kv)
{
    size_t n = 0;

    for (uint64_t i = 0; i < kv->count; i++) {
        lg_str s;
        if (lg_kv_elem_str(kv, i, &s))
            n += s.n; // slices of one mapped file: the sum cannot wrap
    }
    return n;
}

static lg_status load_classes(lg_vocab *v, const lg_gguf *g, lg_err *err)
{
    const lg_gguf_kv *kv = lg_gguf_find(g, "tokenizer.ggml.token_type");

    if (!kv) {
        memset(v->class_of, LG_TOK_NORMAL, (size_t)v->n);
        return LG_OK;
    }
    if (kv->type != LG_GV_ARRAY || kv->count != (uint64_t)v->n)
        return LG_FAIL(err, LG_E_INPUT,
                       "tokenizer.ggml.token_type must be an array of %d numbers, one a token", v->n);
    for (int32_t i = 0; i < v->n; i++) {
        int64_t t;
        if (!lg_kv_elem_i64(kv, (uint64_t)i, &t) || t < LG_TOK_NORMAL || t > LG_TOK_BYTE)
            return LG_FAIL(err, LG_E_INPUT, "tokenizer.ggml.token_type[%d] must be a number from 1 to 6", i);
        v->class_of[i] = (uint8_t)t;
    }
    return LG_OK;
}

static lg_status load_tokens(lg_vocab *v, const lg_gguf *g, const int16_t *byte_of, const known_tokens *known,
                             lg_err *err)
{
    const lg_gguf_kv *kv;
    size_t total;

    LG_TRY(need_strings(g, "tokenizer.ggml.tokens", MAX_TOKENS, &kv, err));
    if (kv->count == 0)
        return LG_FAIL(err, LG_E_INPUT, "tokenizer.ggml.tokens is empty");
    v->n = (int32_t)kv->count;
    total = strings_bytes(kv);
    v->bytes = malloc(total + 1);
    v->at = calloc((size_t)v->n + 1, sizeof *v->at);
    v->class_of = malloc((size_t)v->n);
    v->is_added = calloc((size_t)v->n, 1);
    v->added = malloc((size_t)v->n * sizeof *v->added);
    if (!v->bytes || !v->at || !v->class_of || !v->is_added || !v->added)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for a vocabulary of %d tokens", v->n);
    LG_TRY(load_classes(v, g, err));
    for (int32_t i = 0; i < v->n; i++) {
        lg_str raw = {0};
        char *to = v->bytes + v->at[i];
        int c = v->class_of[i];
        size_t n = SIZE_MAX;
        (void)lg_kv_elem_str(kv, (uint64_t)i, &raw);
        v->is_added[i] =
            c == LG_TOK_CONTROL || c == LG_TOK_USER || c == LG_TOK_UNKNOWN || is_known(known, raw);
        if (v->is_added[i])
            v->added[v->n_added++] = i;
        else
            n = from_alphabet(byte_of, raw, to);
        if (n == SIZE_MAX) {
            n = raw.n;
            memcpy(to, raw.p, n);
        }
        v->at[i + 1] = v->at[i] + n;
    }
    return LG_OK;
}

static lg_status load_merges(lg_vocab *v, const lg_gguf *g, const int16_t *byte_of, lg_err *err)
{
    const lg_gguf_kv *kv;

    LG_TRY(need_strings(g, "tokenizer.ggml.merges", MAX_MERGES, &kv, err));
    v->n_merges = (size_t)kv->count;
    v->merge_bytes = malloc(strings_bytes(kv) + 1);
    v->merge_at = calloc(v->n_merges + 1, sizeof *v->merge_at);
    v->merge_left = calloc(v->n_merges + 1, sizeof *v->merge_left);
    if (!v->merge_bytes || !v->merge_at || !v->merge_left)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for %zu merges", v->n_merges);
    for (size_t i = 0; i < v->n_merges; i++) {
        lg_str raw = {0};
        char *to = v->merge_bytes + v->merge_at[i];
        (void)lg_kv_elem_str(kv, i, &raw);
        size_t blank = lg_str_find(raw, LG_STR(" "), 0);
        if (blank == SIZE_MAX || blank == 0 || blank + 1 == raw.n || raw.n > UINT32_MAX)
            return LG_FAIL(err, LG_E_INPUT,
                           "tokenizer.ggml.merges[%zu] must be two tokens with one space between", i);
        size_t left = from_alphabet(byte_of, (lg_str){raw.p, blank}, to);
        size_t right =
            left == SIZE_MAX
                ? left
                : from_alphabet(byte_of, (lg_str){raw.p + blank + 1, raw.n - blank - 1}, to + left);
        if (right == SIZE_MAX)
            return LG_FAIL(err, LG_E_INPUT,
                           "tokenizer.ggml.merges[%zu] has a character outside the byte alphabet", i);
        v->merge_left[i] = (uint32_t)left;
        v->merge_at[i + 1] = v->merge_at[i] + left + right;
    }
    return LG_OK;
}

// Id of the token that is meant by a text of the model; else what the file's key says, if there is a key.
static int32_t resolve(const lg_vocab *v, const lg_gguf *g, lg_str text, const char *key)
{
    int32_t id = lg_vocab_find_added(v, text);
    int64_t from_key;

    if (id < 0 && key && lg_kv_i64(lg_gguf_find(g, key), &from_key) && from_key >= 0 && from_key < v->n)
        id = (int32_t)from_key;
    return id;
}

// Every id that the file names must be a token, also those that nothing here uses: a wrong one is a wrong
// conversion.
static lg_status check_ids(const lg_vocab *v, const lg_gguf *g, lg_err *err)
{
    for (size_t i = 0; i < lg_gguf_n_kv(g); i++) {
        const lg_gguf_kv *kv = lg_gguf_kv_at(g, i);
        int64_t id = -1;

        if (!lg_str_starts(kv->key, LG_STR("tokenizer.ggml.")) || !lg_str_ends(kv->key, LG_STR("_token_id")))
            continue;
        if (!lg_kv_i64(kv, &id) || id < 0 || id >= v->n)
            return LG_FAIL(err, LG_E_INPUT, "%.*s is no token; the ids of this vocabulary are 0 to %d",
                           (int)(kv->key.n < 64 ? kv->key.n : 64), kv->key.p, v->n - 1);
    }
    return LG_OK;
}

static void load_special(lg_vocab *v, const lg_gguf *g, const known_tokens *k)
{
    int moved = 0, example = 0;

    v->special = (lg_special){
        .bos = resolve(v, g, k->text[LG_ID_EOS], "tokenizer.ggml.bos_token_id"),
        .eos = resolve(v, g, k->text[LG_ID_EOS], "tokenizer.ggml.eos_token_id"),
        .eot = resolve(v, g, k->text[LG_ID_END_ASSISTANT], "tokenizer.ggml.eot_token_id"),
        .think = resolve(v, g, k->text[LG_ID_THINK], NULL),
        .end_think = resolve(v, g, k->text[LG_ID_END_THINK], NULL),
        .assistant = resolve(v, g, k->text[LG_ID_ASSISTANT], NULL),
        .tool_call = resolve(v, g, k->text[LG_ID_TOOL_CALL], NULL),
        .end_tool_call = resolve(v, g, k->text[LG_ID_END_TOOL_CALL], NULL),
        .fim_start = resolve(v, g, k->text[LG_ID_FIM_START], NULL),
        .fim_middle = resolve(v, g, k->text[LG_ID_FIM_MIDDLE], NULL),
        .fim_suffix = resolve(v, g, k->text[LG_ID_FIM_SUFFIX], NULL),
        .mask = resolve(v, g, k->text[LG_ID_MASK], NULL),
        .pad = resolve(v, g, k->text[LG_ID_PAD], "tokenizer.ggml.padding_token_id"),
    };
    for (int id = N_KNOWN - 1; id >= 0; id--) {
        if (lg_vocab_find_added(v, k->text[id]) != id) {
            moved++;
            example = id;
        }
    }
    if (moved)
        LG_WARN("vocab", "ids",
                "%d of the model's %d control tokens are missing or elsewhere, first %.*s (id %d)", moved,
                N_KNOWN, (int)k->text[example].n, k->text[example].p, example);
    if (v->special.eos < 0 && v->special.eot < 0)
        LG_WARN("vocab", "eog", "no token ends a generation");
}

static void load_template(lg_vocab *v, const lg_gguf *g)
{
    lg_str t = {0};

    (void)lg_kv_str(lg_gguf_find(g, "tokenizer.chat_template"), &t);
    v->family_known = true;
    v->family = LG_TEMPLATE_S21;
    if (lg_str_find(t, LG_STR("laguna_glm_thinking_v8"), 0) != SIZE_MAX)
        return;
    if (lg_str_find(t, LG_STR("render_assistant_messages_raw"), 0) != SIZE_MAX ||
        lg_str_find(t, LG_STR("laguna_glm_thinking_v5"), 0) != SIZE_MAX)
        v->family = LG_TEMPLATE_V2;
    else
        v->family_known = false;
}

static lg_status check_kind(const lg_gguf *g, lg_err *err)
{
    lg_str model = {0}, pre = {0};

    if (!lg_kv_str(lg_gguf_find(g, "tokenizer.ggml.model"), &model))
        return LG_FAIL(err, LG_E_INPUT, "tokenizer.ggml.model is missing");
    if (!lg_str_eqz(model, "gpt2"))
        return LG_FAIL(err, LG_E_UNSUPPORTED,
                       "tokenizer.ggml.model is \"%.*s\"; only \"gpt2\" (byte-level BPE) works",
                       (int)(model.n < 64 ? model.n : 64), model.p);
    if (lg_kv_str(lg_gguf_find(g, "tokenizer.ggml.pre"), &pre) && !lg_str_eqz(pre, "laguna"))
        LG_WARN("vocab", "pre", "tokenizer.ggml.pre is \"%.*s\"; the Laguna rule is used all the same",
                (int)(pre.n < 64 ? pre.n : 64), pre.p);
    return LG_OK;
}

lg_status lg_vocab_load(const lg_gguf *g, lg_vocab **out, lg_err *err)
{
    lg_status st;
    int16_t byte_of[ALPHABET];
    known_tokens known;
    lg_vocab *v = calloc(1, sizeof *v);

    if (!v)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    make_alphabet(byte_of);
    make_known(&known);
    st = check_kind(g, err);
    if (st == LG_OK)
        st = load_tokens(v, g, byte_of, &known, err);
    if (st == LG_OK)
        st = load_merges(v, g, byte_of, err);
    if (st == LG_OK)
        st = check_ids(v, g, err);
    if (st != LG_OK) {
        lg_vocab_destroy(v);
        return st;
    }
    load_special(v, g, &known);
    load_template(v, g);
    *out = v;
    return LG_OK;
}

void lg_vocab_destroy(lg_vocab *v)
{
    if (!v)
        return;
    free(v->bytes);
    free(v->at);
    free(v->class_of);
    free(v->is_added);
    free(v->added);
    free(v->merge_bytes);
    free(v->merge_at);
    free(v->merge_left);
    free(v);
}

/* --- reading --- */

int32_t lg_vocab_size(const lg_vocab *v)
{
    return v->n;
}

const lg_special *lg_vocab_special(const lg_vocab *v)
{
    return &v->special;
}

lg_template_family lg_vocab_template(const lg_vocab *v, bool *known)
{
    if (known)
        *known = v->family_known;
    return v->family;
}

lg_str lg_vocab_bytes(const lg_vocab *v, int32_t id)
{
    if (id < 0 || id >= v->n)
        return (lg_str){0};
    return (lg_str){v->bytes + v->at[id], v->at[id + 1] - v->at[id]};
}

lg_tok_class lg_vocab_class(const lg_vocab *v, int32_t id)
{
    return id < 0 || id >= v->n ? LG_TOK_UNKNOWN : (lg_tok_class)v->class_of[id];
}

bool lg_vocab_is_eog(const lg_vocab *v, int32_t id)
{
    return id >= 0 && (id == v->special.eos || id == v->special.eot);
}

bool lg_vocab_is_added(const lg_vocab *v, int32_t id)
{
    return id >= 0 && id < v->n && v->is_added[id];
}

int32_t lg_vocab_find_added(const lg_vocab *v, lg_str text)
{
    for (size_t i = 0; i < v->n_added; i++)
        if (lg_str_eq(lg_vocab_bytes(v, v->added[i]), text))
            return v->added[i];
    return -1;
}

size_t lg_vocab_n_added(const lg_vocab *v)
{
    return v->n_added;
}

int32_t lg_vocab_added_at(const lg_vocab *v, size_t i)
{
    return v->added[i];
}

size_t lg_vocab_n_merges(const lg_vocab *v)
{
    return v->n_merges;
}

void lg_vocab_merge(const lg_vocab *v, size_t rank, lg_str *left, lg_str *right)
{
    const char *p = v->merge_bytes + v->merge_at[rank];
    size_t n = v->merge_at[rank + 1] - v->merge_at[rank];

    *left = (lg_str){p, v->merge_left[rank]};
    *right = (lg_str){p + left->n, n - left->n};
}
