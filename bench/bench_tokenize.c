/*
 * bench/bench_tokenize: speed of the tokenizer on one core, in processor time.
 *
 * usage: bench_tokenize VOCAB.gguf [FILE...]
 *
 * For each file: megabytes a second of encoding, the first time (cold word cache) and the median of five
 * more. Then a megabyte and two of what hurts naive tokenizers: one letter, spaces, combining marks, digits.
 * The ratio of the two times shows whether the work grows linearly. train_vocab.py makes a vocabulary of real
 * size.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "text/bpe.h"

enum { RUNS = 5 };

static void die(const lg_err *err)
{
    char line[512];

    fprintf(stderr, "bench_tokenize: %s\n", lg_err_line(err, line, sizeof line));
    exit(1);
}

// Processor time of this thread, which other programs disturb less than the clock on the wall.
static double cpu_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds(const lg_bpe *b, lg_str text, size_t *n_ids)
{
    lg_ids ids = {0};
    lg_err err = {0};
    double t = cpu_seconds();

    if (lg_bpe_encode(b, text, false, &ids, &err) != LG_OK)
        die(&err);
    t = cpu_seconds() - t;
    *n_ids = ids.n;
    lg_ids_free(&ids);
    return t;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const lg_bpe *b, lg_str text, size_t *n_ids)
{
    double t[RUNS];

    for (int i = 0; i < RUNS; i++)
        t[i] = seconds(b, text, n_ids);
    qsort(t, RUNS, sizeof *t, by_value);
    return t[RUNS / 2];
}

static void bench_file(const lg_bpe *b, const char *path)
{
    char *p = NULL;
    size_t n = 0, n_ids = 0;
    lg_err err = {0};

    if (lg_read_all(path, (size_t)1 << 30, &p, &n, &err) != LG_OK)
        die(&err);
    double cold = seconds(b, (lg_str){p, n}, &n_ids), warm = median(b, (lg_str){p, n}, &n_ids);
    printf("%-40s %8.2f MB  first %6.1f MB/s  then %6.1f MB/s  %.2f bytes a token\n", path, (double)n / 1e6,
           (double)n / 1e6 / cold, (double)n / 1e6 / warm, n_ids ? (double)n / (double)n_ids : 0);
    free(p);
}

static void bench_run(const lg_bpe *b, const char *what, const char *unit)
{
    size_t n = 2 << 20, len = strlen(unit), n_ids;
    char *p = malloc(n);

    if (!p)
        exit(1);
    for (size_t i = 0; i < n; i++)
        p[i] = unit[i % len];
    double one = median(b, (lg_str){p, n / 2}, &n_ids), two = median(b, (lg_str){p, n}, &n_ids);
    printf("1 MiB of %-28s %8.1f ms   2 MiB %8.1f ms   ratio %.2f\n", what, one * 1e3, two * 1e3, two / one);
    free(p);
}

int main(int argc, char **argv)
{
    lg_gguf *g = NULL;
    lg_vocab *v = NULL;
    lg_bpe *b = NULL;
    lg_err err = {0};
    double t0, t1, t2;

    if (argc < 2) {
        fprintf(stderr, "usage: bench_tokenize VOCAB.gguf [FILE...]\n");
        return 2;
    }
    t0 = cpu_seconds();
    if (lg_gguf_open(argv[1], &g, &err) != LG_OK || lg_vocab_load(g, &v, &err) != LG_OK)
        die(&err);
    t1 = cpu_seconds();
    if (lg_bpe_create(v, LG_CRLF_HF, &b, &err) != LG_OK)
        die(&err);
    t2 = cpu_seconds();
    printf("%d tokens, %zu merges; load %.1f ms, encoder with self-check %.1f ms\n", lg_vocab_size(v),
           lg_vocab_n_merges(v), (t1 - t0) * 1e3, (t2 - t1) * 1e3);
    for (int i = 2; i < argc; i++)
        bench_file(b, argv[i]);
    bench_run(b, "the letter a", "a");
    bench_run(b, "spaces", " ");
    bench_run(b, "combining marks", "\xCC\x81");
    bench_run(b, "digits", "7");
    bench_run(b, "letters without a word in it", "qzjxkvbwpygfmucldrhsnioate");
    bench_run(b, "newlines", "\n");
    bench_run(b, "stray bytes", "\xFF");
    lg_bpe_destroy(b);
    lg_vocab_destroy(v);
    lg_gguf_close(g);
    return 0;
}
