/*
 * fuzz/replay: runs a fuzz target over its corpus as an ordinary test, without libFuzzer: each file as it is,
 * cut short at up to 64 places, and with 64 small mutations that depend only on the file's bytes.
 *
 *     replay_NAME CORPUS_FOLDER...      run;  prints what it did, fails when a folder is empty
 *     replay_NAME FILE...               run these files only: how one looks at a finding of `make fuzz`
 *
 * Inputs are handed over in blocks of exactly their size, so that a sanitizer sees any read past the end.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { VARIANTS = 64, FILE_MAX = 1 << 24 };

static long n_files, n_runs;

static void run(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);

    if (!copy) {
        fprintf(stderr, "replay: out of memory\n");
        exit(1);
    }
    if (n)
        memcpy(copy, data, n);
    (void)LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    n_runs++;
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u; // splitmix64

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static void mutate(uint8_t *data, size_t n, uint64_t *state)
{
    static const uint8_t extreme[] = {0, 1, 0x7F, 0x80, 0xFF, '"', '\\', '{', '[', '='};
    size_t at = next(state) % n, other = next(state) % n;

    switch (next(state) % 4) {
    case 0: data[at] ^= (uint8_t)(1u << next(state) % 8); break;
    case 1: data[at] = extreme[next(state) % sizeof extreme]; break;
    case 2: data[at] = data[other]; break;
    default: data[at] = (uint8_t)next(state); break;
    }
}

static void run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(FILE_MAX), *changed = malloc(FILE_MAX);

    if (!f || !data || !changed) {
        fprintf(stderr, "replay: %s: cannot read\n", path);
        exit(1);
    }
    size_t n = fread(data, 1, FILE_MAX, f);
    (void)fclose(f);
    n_files++;
    run(data, n);
    for (size_t i = 0; i < VARIANTS && i < n; i++)
        run(data, n <= VARIANTS ? i : i * (n / VARIANTS));
    uint64_t state = n;
    for (size_t i = 0; i < n; i++)
        state = state * 31 + data[i];
    for (int i = 0; i < VARIANTS && n > 0; i++) {
        memcpy(changed, data, n);
        for (int k = 0; k <= i % 4; k++)
            mutate(changed, n, &state);
        run(changed, n);
    }
    free(data);
    free(changed);
}

static int is_shown(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

// Files of a folder by name: what earlier inputs leave in a target is the same on every file system.
static void run_path(const char *path)
{
    char name[4096];
    struct stat sb;
    struct dirent **entry = NULL;
    int n;

    if (stat(path, &sb) == 0 && !S_ISDIR(sb.st_mode)) {
        run_file(path);
        return;
    }
    n = scandir(path, &entry, is_shown, alphasort);
    for (int i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "%s/%s", path, entry[i]->d_name);
        run_file(name);
        free(entry[i]);
    }
    free(entry);
    if (n <= 0) {
        fprintf(stderr, "replay: %s: no corpus there\n", path);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER_OR_FILE...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++)
        run_path(argv[i]);
    printf("%ld files, %ld runs\n", n_files, n_runs);
    return 0;
}
