/*
 * bench/bench_constraint: what a constraint costs a decoded token. Replies of one model, free and under some
 * schemas, in turns: the medians and the fastest of the repetitions, the latter against free decoding.
 *
 * The schemas ask for more than a reply holds, so that only free ones can end early. A model with a
 * vocabulary of real size: `lagoon synth --arch xs-2.1 --layers 4 -o FILE`; what it says does not matter.
 *
 *     bench_constraint MODEL.gguf [TOKENS [REPETITIONS [THREADS [DEVICE [DRAFTER.gguf]]]]]
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine/engine.h"

enum { MOST_REPS = 200, SHORTEST = 16 };

static const struct {
    const char *name, *schema;
} kinds[] = {
    {"free", NULL},
    {"records",
     "{\"type\":\"array\",\"minItems\":100000,\"items\":{\"type\":\"object\",\"additionalProperties\":false,"
     "\"properties\":{\"id\":{\"type\":\"integer\",\"minimum\":1},\"name\":{\"type\":\"string\",\"maxLength\":40},"
     "\"kind\":{\"enum\":[\"person\",\"place\",\"thing\"]},\"price\":{\"type\":\"number\"},"
     "\"day\":{\"type\":\"string\",\"format\":\"date\"}},\"required\":[\"id\",\"name\",\"kind\",\"price\",\"day\"]}}"},
    {"text", "{\"type\":\"string\",\"minLength\":100000}"},
    {"patterns", "{\"type\":\"array\",\"minItems\":100000,\"items\":{\"type\":\"string\",\"pattern\":"
                 "\"^[A-Z][a-z]{2,9}( [A-Z][a-z]{2,9}){0,3}: [0-9]{1,4}(\\\\.[0-9]{2})?$\"}}"},
    {"any object",
     "{\"type\":\"object\",\"minProperties\":200,\"additionalProperties\":{\"type\":[\"string\",\"integer\"]}}"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static lg_err err;

static void must(lg_status st, const char *what)
{
    char line[512];

    if (st == LG_OK)
        return;
    (void)fprintf(stderr, "bench_constraint: %s: %s\n", what, lg_err_line(&err, line, sizeof line));
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// Milliseconds a token of one reply, its first aside; negative: it was too short to tell.
static double reply(lg_engine *e, lg_grammar *g, int64_t n, uint64_t seed)
{
    const lg_special *sp = lg_vocab_special(lg_engine_vocab(e));
    const int32_t prompt[] = {sp->eos, sp->assistant, sp->end_think};
    lg_gen_stats s;
    lg_gen_params p = {.sampling = lg_sampling_default(),
                       .max_tokens = n,
                       .max_think = -1,
                       .max_reply_bytes = 16 << 20,
                       .grammar = g,
                       .cache = LG_CACHE_OFF};

    p.sampling.seed = seed;
    must(lg_generate(e, prompt, 3, &p, &s, NULL, &err), "reply");
    return s.output_tokens >= SHORTEST ? (double)s.decode_us / 1e3 / (double)(s.output_tokens - 1) : -1;
}

static void run(lg_engine *e, int64_t tokens, int reps)
{
    static double ms[KINDS][MOST_REPS];
    lg_grammar *g[KINDS] = {NULL};
    int n[KINDS] = {0};

    for (int k = 1; k < KINDS; k++)
        must(lg_grammar_schema(lg_str_of(kinds[k].schema), NULL, &g[k], NULL, &err), kinds[k].name);
    for (int r = -1; r < reps; r++) // the first round warms up
        for (int k = 0; k < KINDS; k++) {
            double t = reply(e, g[k], tokens, (uint64_t)(r + 2));
            if (r >= 0 && t > 0)
                ms[k][n[k]++] = t;
        }
    (void)printf("%-12s %8s %26s %26s\n%-12s %8s %13s %12s %13s %12s\n", "", "", "fastest", "median", "",
                 "replies", "ms a token", "of free", "ms a token", "of free");
    for (int k = 0; k < KINDS; k++) {
        double best, mid;
        if (n[0] == 0 || n[k] == 0)
            continue;
        qsort(ms[k], (size_t)n[k], sizeof ms[k][0], ascending);
        best = ms[k][0];
        mid = ms[k][n[k] / 2];
        (void)printf("%-12s %8d %13.3f %12.3f %13.3f %12.3f\n", kinds[k].name, n[k], best, ms[0][0] / best,
                     mid, ms[0][n[0] / 2] / mid);
    }
    for (int k = 1; k < KINDS; k++)
        lg_grammar_destroy(g[k]);
}

int main(int argc, char **argv)
{
    int64_t tokens = argc > 2 ? atoll(argv[2]) : 64;
    int reps = argc > 3 ? atoi(argv[3]) : 15;
    lg_engine *e;

    if (argc < 2 || tokens < SHORTEST || tokens > 4000 || reps < 1 || reps > MOST_REPS) {
        (void)fprintf(stderr, "usage: bench_constraint MODEL.gguf [TOKENS [REPETITIONS [THREADS [DEVICE "
                              "[DRAFTER.gguf]]]]]\n");
        return 2;
    }
    must(lg_engine_open(&(lg_engine_params){.model_path = argv[1],
                                            .backend = {.device = argc > 5 ? argv[5] : "auto",
                                                        .threads = argc > 4 ? atoi(argv[4]) : 0},
                                            .ctx = tokens + 64,
                                            .kv_type = LG_F16,
                                            .draft_path = argc > 6 ? argv[6] : NULL,
                                            .draft_required = argc > 6},
                        &e, &err),
         argv[1]);
    run(e, tokens, reps);
    lg_engine_close(e);
    return 0;
}
