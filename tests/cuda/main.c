/*
 * tests/cuda: the program. test_cuda [--seed N] [--only CASE]
 *
 * Prints every failure up to a number, then counts; 77 when there is no card.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu.h"

static const struct {
    const char *name;
    void (*run)(gpu *g);
} cases[] = {
    {"synth", gpu_case_synth},   {"small", gpu_case_small}, {"linear", gpu_case_linear},
    {"widths", gpu_case_widths}, {"moe", gpu_case_moe},     {"attention", gpu_case_attention},
    {"route", gpu_case_route},   {"layer", gpu_case_layer},
    {"layer_many", gpu_case_layer_many},
};

int main(int argc, char **argv)
{
    gpu g = {.k = {.seed = 1, .isa = "cuda"}};
    lg_limits lim = {.max_rows = 400,
                     .max_out = 64,
                     .max_cand = 128,
                     .hidden = 5120,
                     .vocab = 100352,
                     .max_head = 60,
                     .max_q_cols = 60 * 128,
                     .max_ffn = 12288,
                     .max_ffn_expert = 1024,
                     .max_expert = 256,
                     .max_k = 12,
                     .max_ctx = 131072};
    const char *only = NULL;
    long failures = 0;
    lg_err err = {0};

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            g.k.seed = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
    }
    if (lg_backend_open(&(lg_backend_params){.device = "cuda"}, &g.b, &err) != LG_OK) {
        (void)printf("skipped: %s\n", err.msg);
        return 77;
    }
    if (g.b->ops->prepare(g.b, &lim, &err) != LG_OK) {
        (void)printf("%s\n", err.msg);
        return 1;
    }
    (void)printf("%s, seed %llu\n", g.b->info.name, (unsigned long long)g.k.seed);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        long checks = g.k.checks;

        if (only && strcmp(only, cases[i].name) != 0)
            continue;
        g.k.state = g.k.seed;
        g.k.failures = 0; // the first 20 of each case are printed
        cases[i].run(&g);
        failures += g.k.failures;
        (void)printf("%-10s %9ld checks, %ld failures\n", cases[i].name, g.k.checks - checks, g.k.failures);
        (void)fflush(stdout);
    }
    lg_backend_close(g.b);
    return failures > 0;
}
