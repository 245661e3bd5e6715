/*
 * tests/grammar/bench: what constraints cost on a vocabulary of real size (structured.md 15 of the targets):
 * compiling, one mask, one token, memory.
 *
 * bench CASES.jsonl [SUITE_DIRECTORY] [-v] [--vocab FILE.gguf]. Each schema is compiled, then walked at
 * random; every mask and every accepted token of the walks is timed, the first walk on a fresh grammar.
 * Without
 * --vocab the vocabulary is made here: 100,352 tokens composed like those of a byte-level BPE (94 % plain
 * text; words with and without a blank, runs of blanks, punctuation, parts of characters). Times depend on
 * the machine; nothing here passes or fails.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "feed.h"
#include "gguf/gguf_write.h"
#include "grammar/grammar_int.h"
#include "support/vocab_maker.h"

enum { N_TOKENS = 100352, N_ADDED = 70, WALKS = 4, TOKENS = 120, FILE_MAX = 8 << 20 };

/* --- a vocabulary --- */

typedef struct maker {
    lg_buf text;
    size_t at[N_TOKENS + 1], n;
    lg_str token[N_TOKENS];
    int32_t class_of[N_TOKENS];
    uint32_t *slot; // hash of raw texts
    lg_buf plain;
    size_t plain_at[N_TOKENS + 1];
    uint64_t rng;
} maker;

static uint32_t pick(maker *m, uint32_t n)
{
    m->rng = m->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((m->rng >> 33) % n);
}

static bool known(maker *m, lg_str s)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 16777619u;
    for (h &= (1u << 18) - 1; m->slot[h]; h = (h + 1) & ((1u << 18) - 1)) {
        size_t i = m->slot[h] - 1;
        if (lg_str_eq(s, (lg_str){m->plain.p + m->plain_at[i], m->plain_at[i + 1] - m->plain_at[i]}))
            return true;
    }
    m->slot[h] = (uint32_t)m->n + 1;
    return false;
}

static void put(maker *m, lg_str s)
{
    if (m->n == N_TOKENS || s.n == 0 || known(m, s))
        return;
    m->plain_at[m->n] = m->plain.n;
    (void)lg_buf_adds(&m->plain, s);
    m->plain_at[m->n + 1] = m->plain.n;
    m->at[m->n] = m->text.n;
    vm_spell(s, &m->text);
    m->class_of[m->n++] = LG_TOK_NORMAL;
    m->at[m->n] = m->text.n;
}

static void put_added(maker *m)
{
    static const char *const named[] = {
        [0] = "〈|UNK|〉",    [2] = "〈|EOS|〉",     [18] = "<think>",     [19] = "</think>",
        [23] = "<assistant>", [24] = "</assistant>", [25] = "<tool_call>", [26] = "</tool_call>"};

    for (int i = 0; i < N_ADDED; i++) {
        m->plain_at[m->n] = m->plain.n;
        m->at[m->n] = m->text.n;
        if (i < 27 && named[i])
            (void)lg_buf_addz(&m->text, named[i]);
        else
            (void)lg_buf_addf(&m->text, "〈|SPECIAL_%d|〉", i);
        m->class_of[m->n++] = LG_TOK_CONTROL;
        m->plain_at[m->n] = m->plain.n;
        m->at[m->n] = m->text.n;
    }
}

static void put_blanks(maker *m)
{
    char run[128];

    for (int lead = 0; lead < 3; lead++)
        for (size_t n = 1; n <= 80; n++) {
            memset(run, '\n', 2);
            memset(run + lead, n % 8 == 7 ? '\t' : ' ', n);
            put(m, (lg_str){run, (size_t)lead + n});
        }
}

static void put_punctuation(maker *m)
{
    static const char chars[] = "\"'(){}[]<>;:,.=+-*/\\|&!?#@$%^~_`";
    char s[4];

    for (int i = 0; i < 3800; i++) {
        size_t n = 2 + pick(m, 2), at = 0;
        if (pick(m, 4) == 0)
            s[at++] = ' ';
        while (at < n)
            s[at++] = chars[pick(m, sizeof chars - 1)];
        put(m, (lg_str){s, n});
    }
}

// Words of Latin letters, one in eight of another script, and now and then a character that is cut.
static void put_words(maker *m)
{
    static const char *const onset[] = {"b", "c", "d", "f", "g", "h",  "l",  "m",  "n",
                                        "p", "r", "s", "t", "v", "st", "tr", "pl", ""};
    static const char *const rest[] = {"a",   "e",  "i",   "o",  "u",  "er", "an", "in",
                                       "ion", "al", "ing", "ed", "ly", "or", "us", "y"};

    while (m->n < N_TOKENS) {
        lg_buf w;
        lg_buf_init(&w, 64);
        if (pick(m, 2))
            (void)lg_buf_addc(&w, ' ');
        if (pick(m, 8) == 0) {
            int32_t from = pick(m, 2) ? 0x4e00 : 0x430;
            char utf8[4];
            for (uint32_t i = 0, n = 1 + pick(m, 3); i < n; i++)
                (void)lg_buf_add(
                    &w, utf8, (size_t)lg_utf8_put(from + (int32_t)pick(m, from > 0x1000 ? 6000 : 32), utf8));
            if (pick(m, 20) == 0)
                w.n--;
        } else {
            for (uint32_t i = 0, n = 1 + pick(m, 3); i < n; i++) {
                (void)lg_buf_addz(&w, onset[pick(m, sizeof onset / sizeof *onset)]);
                (void)lg_buf_addz(&w, rest[pick(m, sizeof rest / sizeof *rest)]);
            }
            if (pick(m, 6) == 0 && w.p[w.n > 1 && w.p[0] == ' '] >= 'a')
                w.p[w.n > 1 && w.p[0] == ' '] -= 32;
        }
        put(m, lg_buf_str(&w));
        lg_buf_free(&w);
    }
}

static void make_vocab(const char *path)
{
    maker *m = calloc(1, sizeof *m);
    lg_gguf_writer *w;
    lg_err err = {0};

    m->slot = calloc(1u << 18, sizeof *m->slot);
    m->rng = 3;
    lg_buf_init(&m->text, 64 << 20);
    lg_buf_init(&m->plain, 64 << 20);
    put_added(m);
    for (int b = 0; b < 256; b++)
        put(m, (lg_str){&(char){(char)b}, 1});
    put_blanks(m);
    put_punctuation(m);
    put_words(m);
    for (size_t i = 0; i < N_TOKENS; i++)
        m->token[i] = (lg_str){m->text.p + m->at[i], m->at[i + 1] - m->at[i]};
    if (lg_gguf_write_open(path, &w, &err) != LG_OK)
        abort();
    lg_gguf_put_str(w, "tokenizer.ggml.model", LG_STR("gpt2"));
    lg_gguf_put_str(w, "tokenizer.ggml.pre", LG_STR("laguna"));
    lg_gguf_put_strs(w, "tokenizer.ggml.tokens", m->token, N_TOKENS);
    lg_gguf_put_array(w, "tokenizer.ggml.token_type", LG_GV_I32, m->class_of, N_TOKENS);
    lg_gguf_put_strs(w, "tokenizer.ggml.merges", m->token, 0);
    lg_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 2);
    lg_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 2);
    if (lg_gguf_write_begin(w, &err) != LG_OK || lg_gguf_write_finish(w, &err) != LG_OK)
        abort();
    lg_buf_free(&m->text);
    lg_buf_free(&m->plain);
    free(m->slot);
    free(m);
}

/* --- measuring --- */

typedef struct times {
    uint32_t *ns;
    size_t n, cap;
} times;

// Processor time of this thread: what else the machine does is no cost of ours.
static uint64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void took(times *t, uint64_t since)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 1024;
        t->ns = realloc(t->ns, t->cap * sizeof *t->ns);
        if (!t->ns)
            abort();
    }
    t->ns[t->n++] = (uint32_t)(now_ns() - since);
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void report(const char *what, times *t)
{
    if (t->n == 0)
        return;
    qsort(t->ns, t->n, sizeof *t->ns, by_size);
    printf("%-22s %8zu  median %9.2f us  p99 %9.1f us  max %9.1f us\n", what, t->n, t->ns[t->n / 2] / 1e3,
           t->ns[t->n * 99 / 100] / 1e3, t->ns[t->n - 1] / 1e3);
    free(t->ns);
}

typedef struct bench {
    fd_world world;
    times compile, first, again, accept, bytes;
    int n_schema, n_refused;
    bool verbose; // tells which masks took more than a millisecond
    const char *schema;
} bench;

// A random token of the mask; past half of the walk one that closes something, if there is one.
static int32_t choose(bench *b, const uint32_t *mask, bool closing)
{
    int32_t n = lg_vocab_size(b->world.vocab), from = (int32_t)fd_pick(&b->world, (uint32_t)n), any = -1;
    static const char ends[] = "\"}],";

    for (size_t i = 0; closing && i < sizeof ends - 1; i++) {
        int32_t id = b->world.byte[(unsigned char)ends[i]];
        if (mask[id / 32] >> id % 32 & 1)
            return id;
    }
    for (int32_t i = 0; i < n && any < 0; i++) {
        int32_t id = (from + i) % n;
        if (mask[id / 32] >> id % 32 & 1)
            any = id;
    }
    return any;
}

static void walk(bench *b, lg_grammar *g, times *masks)
{
    lg_matcher *m;

    if (lg_matcher_create(g, b->world.trie, LG_PHASE_ANSWER, &m, NULL) != LG_OK)
        abort();
    for (int i = 0; i < TOKENS && !lg_matcher_must_stop(m); i++) {
        const uint32_t *mask;
        bool ok;
        uint64_t nodes = lg_matcher_nodes(m), t = now_ns();
        if (lg_matcher_mask(m, &mask, NULL) != LG_OK)
            abort();
        took(masks, t);
        if (b->verbose && masks->ns[masks->n - 1] > 1000000)
            printf("%u us and %llu nodes for the mask behind token %d under %.300s\n",
                   masks->ns[masks->n - 1] / 1000, (unsigned long long)(lg_matcher_nodes(m) - nodes), i,
                   b->schema);
        int32_t id = choose(b, mask, i > TOKENS / 2);
        t = now_ns();
        if (id < 0 || lg_matcher_accept(m, id, &ok, NULL) != LG_OK || !ok)
            abort();
        took(&b->accept, t);
    }
    lg_matcher_destroy(m);
}

static void measure(bench *b, const lg_json *schema)
{
    lg_grammar *g;
    lg_buf text;
    uint64_t t;

    lg_buf_init(&text, FILE_MAX);
    (void)lg_json_dump(schema, &text);
    b->n_schema++;
    b->schema = lg_buf_z(&text);
    t = now_ns();
    if (lg_grammar_schema(lg_buf_str(&text), NULL, &g, NULL, NULL) != LG_OK) {
        b->n_refused++;
    } else {
        took(&b->compile, t);
        for (int i = 0; i < WALKS; i++)
            walk(b, g, i == 0 ? &b->first : &b->again);
        if (b->bytes.n == b->bytes.cap)
            took(&b->bytes, now_ns());
        else
            b->bytes.n++;
        b->bytes.ns[b->bytes.n - 1] = (uint32_t)(lg_grammar_size(g) / 1024);
        lg_grammar_destroy(g);
    }
    lg_buf_free(&text);
}

static void each_schema(bench *b, const lg_json *j)
{
    for (size_t i = 0; i < lg_json_len(j); i++)
        if (lg_json_get(lg_json_at(j, i), "schema"))
            measure(b, lg_json_get(lg_json_at(j, i), "schema"));
}

// A file of JSON values, one a line or one in all.
static void run_file(bench *b, const char *path)
{
    lg_json_limits lim = {.max_bytes = FILE_MAX, .max_depth = 500, .repair = true};
    lg_err err = {0};
    lg_json_doc *doc;
    char *text, *line;
    size_t n;

    if (lg_read_all(path, FILE_MAX, &text, &n, &err) != LG_OK) {
        fprintf(stderr, "%s: %s\n", path, err.msg);
        exit(1);
    }
    if (lg_json_parse((lg_str){text, n}, &lim, &doc, &err) == LG_OK) {
        each_schema(b, lg_json_root(doc));
        lg_json_free(doc);
        free(text);
        return;
    }
    for (line = text; line < text + n;) {
        char *end = memchr(line, '\n', (size_t)(text + n - line));
        size_t length = end ? (size_t)(end - line) : (size_t)(text + n - line);
        if (lg_json_parse((lg_str){line, length}, &lim, &doc, &err) == LG_OK) {
            if (lg_json_get(lg_json_root(doc), "schema") && !lg_json_get(lg_json_root(doc), "error"))
                measure(b, lg_json_get(lg_json_root(doc), "schema"));
            lg_json_free(doc);
        }
        line += length + 1;
    }
    free(text);
}

static void run_folder(bench *b, const char *path)
{
    char below[1024];
    struct dirent *e;
    DIR *d = opendir(path);

    while (d && (e = readdir(d)) != NULL) {
        (void)snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (e->d_name[0] == '.')
            continue;
        if (strstr(e->d_name, ".json"))
            run_file(b, below);
        else
            run_folder(b, below);
    }
    if (d)
        (void)closedir(d);
}

int main(int argc, char **argv)
{
    bench b = {0};
    char path[] = "/tmp/lagoon-bench-vocab-XXXXXX";
    const char *vocab = NULL;
    int n_files = 0, fd = -1;
    uint64_t t;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--vocab") == 0 && i + 1 < argc)
            vocab = argv[i + 1];
        else if (strcmp(argv[i], "-v") == 0)
            b.verbose = true;
    if (!vocab) {
        fd = mkstemp(path);
        if (fd < 0)
            return 1;
        make_vocab(path);
        vocab = path;
    }
    fd_open(&b.world, vocab);
    if (fd >= 0) {
        (void)close(fd);
        (void)unlink(path);
    }
    lg_token_trie_destroy(b.world.trie);
    t = now_ns();
    if (lg_token_trie_create(b.world.vocab, &b.world.trie, NULL) != LG_OK)
        return 1;
    printf("vocabulary of %d tokens, tables made in %.0f ms\n", (int)lg_vocab_size(b.world.vocab),
           (double)(now_ns() - t) / 1e6);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--vocab") == 0)
            i++;
        else if (argv[i][0] != '-' && n_files++ == 0)
            run_file(&b, argv[i]);
        else if (argv[i][0] != '-')
            run_folder(&b, argv[i]);
    }
    printf("%d schemas, %d refused\n", b.n_schema, b.n_refused);
    report("compile", &b.compile);
    report("mask, first walk", &b.first);
    report("mask, later walks", &b.again);
    report("accept", &b.accept);
    if (b.bytes.n) {
        qsort(b.bytes.ns, b.bytes.n, sizeof *b.bytes.ns, by_size);
        printf("memory of a grammar: median %u KiB, largest %u KiB\n", b.bytes.ns[b.bytes.n / 2],
               b.bytes.ns[b.bytes.n - 1]);
        free(b.bytes.ns);
    }
    fd_close(&b.world);
    return 0;
}
