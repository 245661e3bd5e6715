/*
 * bench/bench_mask: cost of constrained decoding on one core, in processor time.
 *
 * usage: bench_mask MODEL.gguf
 *
 * Any file with a tokenizer will do. For a few schemas: compile time, then a walk of random legal tokens:
 * time of a mask that is new (median, 99th percentile, most), of one met before, and of accepting a token;
 * nodes of the token tree visited for each new mask.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "grammar/grammar_int.h"

enum { TOKENS = 400, WALKS = 4 };

static const struct {
    const char *name, *schema;
} schemas[] = {
    {"any object", "{\"type\":\"object\"}"},
    {"record",
     "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\",\"minimum\":1},\"name\":{\"type\":\"string\"},"
     "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":20}},\"kind\":{\"enum\":[\"a\",\"b\"]}},"
     "\"required\":[\"id\",\"name\",\"tags\",\"kind\"],\"additionalProperties\":false}"},
    {"patterns",
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z]+( [A-Z][a-z]+)*$\"},\"minItems\":20}"},
    {"dates",
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"date-time\"},\"minItems\":20}"},
    {"tree",
     "{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"string\"},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}},"
     "\"required\":[\"v\",\"kids\"],\"additionalProperties\":false}"},
};

static void die(const lg_err *err)
{
    char line[512];

    fprintf(stderr, "bench_mask: %s\n", lg_err_line(err, line, sizeof line));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static uint64_t seed = 1;

static int32_t choose(const uint32_t *mask, int32_t n, const lg_vocab *v)
{
    int32_t start, eos = lg_vocab_special(v)->eos;

    seed = seed * 6364136223846793005u + 1442695040888963407u;
    start = (int32_t)((seed >> 33) % (uint64_t)n);
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (start + i) % n;
        if (mask[id / 32] >> id % 32 & 1 && id != eos && id != lg_vocab_special(v)->eot)
            return id;
    }
    return -1;
}

static void measure(const char *name, lg_str schema, const lg_token_trie *t, const lg_vocab *v)
{
    static double fresh[TOKENS * WALKS], again[TOKENS * WALKS], step[TOKENS * WALKS];
    double begin = now_us(), compiled;
    size_t n = 0, n_step = 0;
    lg_grammar *g;
    lg_matcher *m;
    lg_err err = {0};
    uint64_t nodes = 0;

    if (lg_grammar_schema(schema, NULL, &g, NULL, &err) != LG_OK)
        die(&err);
    compiled = now_us() - begin;
    for (int w = 0; w < WALKS; w++) {
        if (lg_matcher_create(g, t, LG_PHASE_ANSWER, &m, &err) != LG_OK)
            die(&err);
        for (int i = 0; i < TOKENS && !lg_matcher_must_stop(m); i++) {
            const uint32_t *mask;
            uint64_t before = lg_matcher_nodes(m);
            double a = now_us(), b, c;
            bool ok, was_new;
            int32_t id;
            if (lg_matcher_mask(m, &mask, &err) != LG_OK)
                die(&err);
            b = now_us();
            was_new = lg_matcher_nodes(m) != before;
            nodes += lg_matcher_nodes(m) - before;
            if (was_new)
                fresh[n++] = b - a;
            c = now_us();
            if (lg_matcher_mask(m, &mask, &err) != LG_OK)
                die(&err);
            again[n_step] = now_us() - c;
            id = choose(mask, lg_vocab_size(v), v);
            if (id < 0)
                break;
            c = now_us();
            if (lg_matcher_accept(m, id, &ok, &err) != LG_OK)
                die(&err);
            step[n_step++] = now_us() - c;
        }
        lg_matcher_destroy(m);
    }
    qsort(fresh, n, sizeof *fresh, compare);
    qsort(again, n_step, sizeof *again, compare);
    qsort(step, n_step, sizeof *step, compare);
    printf(
        "%-12s compile %7.0f us; %5zu tokens, %4zu new masks: median %6.1f us, 99%% %8.1f, most %8.1f, %6.0f nodes; "
        "met before %5.2f us; accept %5.2f us; %zu KiB\n",
        name, compiled, n_step, n, n ? fresh[n / 2] : 0, n ? fresh[n * 99 / 100] : 0, n ? fresh[n - 1] : 0,
        n ? (double)nodes / (double)n : 0, again[n_step / 2], step[n_step / 2],
        lg_auto_bytes(g->automaton) / 1024);
    lg_grammar_destroy(g);
}

int main(int argc, char **argv)
{
    lg_gguf *file;
    lg_vocab *v;
    lg_token_trie *t;
    lg_err err = {0};
    double begin;

    if (argc != 2) {
        fprintf(stderr, "usage: bench_mask MODEL.gguf\n");
        return 2;
    }
    if (lg_gguf_open(argv[1], &file, &err) != LG_OK || lg_vocab_load(file, &v, &err) != LG_OK)
        die(&err);
    begin = now_us();
    if (lg_token_trie_create(v, &t, &err) != LG_OK)
        die(&err);
    printf("%d tokens, %u nodes in the tree, %u of tokens that are not plain text, made in %.1f ms\n",
           (int)lg_vocab_size(v), (unsigned)t->all.n, (unsigned)t->rest.n, (now_us() - begin) / 1000);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        measure(schemas[i].name, lg_str_of(schemas[i].schema), t, v);
    lg_token_trie_destroy(t);
    lg_vocab_destroy(v);
    lg_gguf_close(file);
    return 0;
}
