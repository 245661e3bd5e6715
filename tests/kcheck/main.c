/*
 * kcheck's front: options, the list of cases, the loop over ISA levels. See kcheck.h.
 *
 * Exit status: 0 all checks hold, 1 some do not, 2 wrong usage, 77 the named level is not available here.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kcheck.h"

typedef struct kc_entry {
    const char *name;
    void (*run)(kc *t);
} kc_entry;

static const kc_entry cases[] = {
    {"types", kc_case_types},   {"quant", kc_case_quant}, {"swiglu", kc_case_swiglu},
    {"vec", kc_case_vec},       {"linear", kc_case_linear}, {"moe", kc_case_moe},
    {"route", kc_case_route},   {"attention", kc_case_attention}, {"misc", kc_case_misc},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static const char *const usage = "usage: kcheck [--isa LEVEL] [--only TEXT] [--seed N] [--bench] [--list]\n";

static kc *running;

static void say(const char *s)
{
    ssize_t ignored = write(2, s, strlen(s));

    (void)ignored;
}

// Async-signal-safe: a fault is a kernel that went past its buffers.
static void on_fault(int sig)
{
    char text[24] = {0}, *p = text + sizeof text - 1;

    for (uint64_t s = running->seed; p == text + sizeof text - 1 || s; s /= 10)
        *--p = (char)('0' + s % 10);
    say(sig == SIGSEGV || sig == SIGBUS ? "kcheck: memory fault in "
                                        : "kcheck: illegal instruction or abort in ");
    say(running->isa);
    say(" ");
    say(running->label);
    say(", --seed ");
    say(p);
    say("\n");
    _exit(1);
}

// The cases, or the one that is named.
static void run_cases(kc *t, const char *isa, unsigned flags, const char *name)
{
    t->isa = isa;
    lg_cpu_kernels_init(&t->k, flags);
    lg_cpu_kernels_init(&t->ref, LG_CPU_C);
    for (int i = 0; i < N_CASES; i++) {
        if (name && strcmp(cases[i].name, name) != 0)
            continue;
        long checks = t->checks, failures = t->failures;

        // "--only q4_k" means that type of every case, "--only moe" that case.
        bool whole = t->only && strstr(cases[i].name, t->only);
        const char *only = t->only;
        t->state = t->seed + (uint64_t)i * 0x9E3779B97F4A7C15;
        t->only = whole ? NULL : only;
        cases[i].run(t);
        t->only = only;
        if (t->checks > checks)
            printf("%-11s %-9s %7ld checks, %ld failures\n", isa, cases[i].name, t->checks - checks,
                   t->failures - failures);
    }
}

static void run_level(kc *t, const char *isa, unsigned flags, bool bench)
{
    if (!bench) {
        run_cases(t, isa, flags, NULL);
        return;
    }
    t->isa = isa;
    lg_cpu_kernels_init(&t->k, flags);
    lg_cpu_kernels_init(&t->ref, LG_CPU_C);
    kc_bench(t);
}

static int run(kc *t, const char *isa, bool bench)
{
    char list[128];
    int levels = 0;

    (void)snprintf(list, sizeof list, "%s", lg_cpu_isa_list());
    for (char *save = NULL, *name = strtok_r(list, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        unsigned flags = 0;

        if (isa && strcmp(isa, name) != 0)
            continue;
        if (!lg_cpu_isa_find(name, &flags)) {
            if (isa) {
                printf("kcheck: skipped: this machine has no %s\n", isa);
                return 77;
            }
            printf("%-11s not available on this machine\n", name);
            continue;
        }
        run_level(t, name, flags, bench);
        if ((flags & LG_CPU_AVX512VNNI) && !bench) // the other form that its attention has
            run_cases(t, "... to L2", flags | LG_CPU_TO_L2, "vec");
        levels++;
    }
    if (levels == 0) {
        (void)fprintf(stderr, "kcheck: level \"%s\" is not in this build, which has: %s\n", isa,
                      lg_cpu_isa_list());
        return 2;
    }
    if (!bench)
        printf("kcheck: %ld checks, %ld failures, --seed %llu\n", t->checks, t->failures,
               (unsigned long long)t->seed);
    if (!bench && t->checks == 0) {
        (void)fprintf(stderr, "kcheck: nothing is called \"%s\"\n", t->only ? t->only : "");
        return 2;
    }
    return t->failures ? 1 : 0;
}

int main(int argc, char **argv)
{
    static kc t;
    const char *isa = NULL;
    bool bench = false;

    t.seed = (uint64_t)time(NULL);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--bench") == 0) {
            bench = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            for (int c = 0; c < N_CASES; c++)
                puts(cases[c].name);
            return 0;
        } else if (value && strcmp(argv[i], "--isa") == 0) {
            isa = argv[++i];
        } else if (value && strcmp(argv[i], "--only") == 0) {
            t.only = argv[++i];
        } else if (value && strcmp(argv[i], "--seed") == 0) {
            char *end;
            t.seed = strtoull(argv[++i], &end, 10);
            if (*end) {
                (void)fprintf(stderr, "kcheck: --seed wants a number\n%s", usage);
                return 2;
            }
        } else {
            (void)fputs(usage, stderr);
            return 2;
        }
    }
    running = &t;
    (void)signal(SIGSEGV, on_fault);
    (void)signal(SIGBUS, on_fault);
    (void)signal(SIGILL, on_fault);
    (void)signal(SIGABRT, on_fault);
    int status = run(&t, isa, bench);
    kc_release(&t);
    return status;
}
