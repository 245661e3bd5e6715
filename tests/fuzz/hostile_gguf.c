/*
 * fuzz/hostile_gguf: damaged model files by the thousand, each a field, entry or region away from a valid
 * one.
 *
 *     hostile_gguf VOCAB FILES [SEED]     VOCAB: a GGUF whose tokenizer the valid models take
 *     hostile_gguf VOCAB --write DIR      the valid models themselves (seeds of fuzz_gguf)
 *
 * Unlike the mutations of a fuzzer these know the container: counts, lengths, types, offsets and shapes get
 * the values that break readers, entries are dropped, doubled and exchanged. Every file must be refused with
 * one clean line or be walked to its end, in bounded time and memory. Some go through a real file, the rest
 * through memory.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "app/inspect.h"
#include "base/file.h"
#include "support/maker.h"
#include "walk_gguf.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||     \
    __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { FIELDS_MAX = 1 << 13, ENTRIES_MAX = 512, N_BASES = 3, SECONDS_MAX = 2, MEMORY_MAX_MIB = 256 };

typedef struct span {
    size_t at, n;
} span;

// A valid file, its numbers, and its metadata and tensor entries.
typedef struct base {
    uint8_t *p;
    size_t n, header; // bytes; of that before the tensor data
    span field[FIELDS_MAX];
    int n_fields;
    span value[FIELDS_MAX]; // those fields that say something about the model, not about the container
    int n_values;
    span entry[ENTRIES_MAX];
    int n_entries, n_kv;
} base;

static uint64_t rng_state;
static long current; // file in work, for the signal handler
static unsigned long long seed;

static uint64_t rng(void)
{
    uint64_t z = rng_state += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t below(size_t n)
{
    return (size_t)(rng() % n);
}

// --- the map of a valid file ---

static uint64_t number(const base *b, size_t at, size_t n)
{
    uint64_t v = 0;

    while (n-- > 0)
        v = v << 8 | b->p[at + n];
    return v;
}

static size_t field(base *b, size_t at, size_t n)
{
    if (b->n_fields < FIELDS_MAX)
        b->field[b->n_fields++] = (span){at, n};
    return at + n;
}

static size_t meaning(base *b, size_t at, size_t n)
{
    if (b->n_values < FIELDS_MAX)
        b->value[b->n_values++] = (span){at, n};
    return field(b, at, n);
}

static size_t string_field(base *b, size_t at)
{
    return field(b, at, 8) + (size_t)number(b, at, 8);
}

static size_t value_field(base *b, uint64_t type, size_t at)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

    return type == LG_GV_STR ? string_field(b, at) : meaning(b, at, bytes[type]);
}

static void map_base(base *b)
{
    uint64_t n_tensors = number(b, 8, 8), n_kv = number(b, 16, 8);
    size_t at = field(b, field(b, field(b, 4, 4), 8), 8);

    LG_ASSERT(n_kv + n_tensors <= ENTRIES_MAX);
    for (uint64_t i = 0; i < n_kv; i++) {
        size_t start = at;

        at = string_field(b, at);
        uint64_t type = number(b, at, 4);
        at = field(b, at, 4);
        if (type == LG_GV_ARRAY) {
            uint64_t elem = number(b, at, 4), count = number(b, at + 4, 8);
            at = field(b, field(b, at, 4), 8);
            for (uint64_t k = 0; k < count; k++)
                at = value_field(b, elem, at);
        } else {
            at = value_field(b, type, at);
        }
        b->entry[b->n_entries++] = (span){start, at - start};
    }
    b->n_kv = (int)n_kv;
    for (uint64_t i = 0; i < n_tensors; i++) {
        size_t start = at;

        at = string_field(b, at);
        uint64_t dims = number(b, at, 4);
        at = field(b, at, 4);
        for (uint64_t d = 0; d < dims; d++)
            at = meaning(b, at, 8);
        at = field(b, meaning(b, at, 4), 8);
        b->entry[b->n_entries++] = (span){start, at - start};
    }
    b->header = at;
    LG_ASSERT(b->n_fields < FIELDS_MAX && at <= b->n);
}

// --- damage ---

static void set_number(uint8_t *p, span f, uint64_t v)
{
    for (size_t i = 0; i < f.n; i++)
        p[f.at + i] = (uint8_t)(v >> 8 * i);
}

static void damage_field(const base *b, uint8_t *p, span f)
{
    static const uint64_t values[] = {0,
                                      1,
                                      2,
                                      4,
                                      8,
                                      9,
                                      31,
                                      32,
                                      33,
                                      41,
                                      127,
                                      128,
                                      255,
                                      256,
                                      0x7FFF,
                                      0x8000,
                                      0xFFFF,
                                      0x10000,
                                      0x7FFFFFFF,
                                      0x80000000,
                                      0xFFFFFFFF,
                                      0x100000000,
                                      0x7FC00000,
                                      0x7F800000,
                                      UINT64_C(1) << 40,
                                      UINT64_C(1) << 61,
                                      UINT64_C(1) << 62,
                                      INT64_MAX,
                                      UINT64_C(1) << 63,
                                      UINT64_MAX - 31,
                                      UINT64_MAX - 7,
                                      UINT64_MAX};
    int j = (int)below((size_t)b->n_fields);
    uint64_t v = number(b, f.at, f.n);

    switch (below(6)) {
    case 0:
    case 1:
        v = values[below(sizeof values / sizeof *values)];
        break;
    case 2:
        v += below(9) - 4;
        break;
    case 3:
        v ^= UINT64_C(1) << below(8 * f.n);
        break;
    case 4:
        v = number(b, b->field[j].at, b->field[j].n);
        break;
    default:
        v = rng();
        break;
    }
    set_number(p, f, v);
}

// A field of the container, or one of the model: most of these are token types, the rest is interesting.
static void damage_container(const base *b, uint8_t *p)
{
    damage_field(b, p, b->field[below((size_t)b->n_fields)]);
}

static void damage_meaning(const base *b, uint8_t *p)
{
    size_t few = (size_t)b->n_values < 90 ? (size_t)b->n_values : 90, n = (size_t)b->n_values;

    damage_field(b, p, b->value[rng() & 3 ? (rng() & 1 ? below(few) : n - 1 - below(n / 8)) : below(n)]);
}

// A letter of a key or a name: something that was there is missing now, something unknown is there.
static void damage_name(const base *b, uint8_t *p)
{
    span e = b->entry[below((size_t)b->n_entries)];

    p[e.at + 8 + below((size_t)number(b, e.at, 8))] ^= (uint8_t)(1u << below(8));
}

static void damage_bytes(const base *b, uint8_t *p, size_t n)
{
    size_t reach = rng() & 3 ? b->header : n, at = below(reach), count = 1 + below(8);

    for (size_t i = 0; i < count && at + i < n; i++)
        p[at + i] = (uint8_t)rng();
}

// Moves the bytes behind `at` by `by`, which may be negative; p has room.
static void shift(uint8_t *p, size_t *n, size_t at, ptrdiff_t by)
{
    size_t from = by < 0 ? at + (size_t)-by : at;

    memmove(p + at + (by < 0 ? 0 : by), p + from, *n - from);
    *n = (size_t)((ptrdiff_t)*n + by);
}

// Drops, doubles or exchanges whole entries; the counts follow or do not.
static void damage_entry(const base *b, uint8_t *p, size_t *n)
{
    int i = (int)below((size_t)b->n_entries), j = (int)below((size_t)b->n_entries);
    span e = b->entry[i], o = b->entry[j];
    span count = i < b->n_kv ? (span){16, 8} : (span){8, 8};
    bool honest = rng() & 3;
    uint64_t now = number(b, count.at, 8);

    switch (below(3)) {
    case 0:
        shift(p, n, e.at, -(ptrdiff_t)e.n);
        set_number(p, count, honest ? now - 1 : now);
        break;
    case 1:
        shift(p, n, e.at, (ptrdiff_t)o.n);
        memcpy(p + e.at, b->p + o.at, o.n);
        set_number(p, count, honest ? now + 1 : now);
        break;
    default: // the other's name over this one's, as far as both are as long
        if (number(b, e.at, 8) == number(b, o.at, 8))
            memcpy(p + e.at, b->p + o.at, 8 + (size_t)number(b, o.at, 8));
        else
            damage_name(b, p);
        break;
    }
}

// A damaged copy of a base in `p`, which has room for twice its size; returns its length.
static size_t damaged(const base *b, uint8_t *p)
{
    size_t n = b->n;

    memcpy(p, b->p, n);
    if (rng() & 1) { // the container stays whole, so that the damage reaches the model
        for (size_t k = 1 + below(2); k > 0; k--)
            rng() & 3 ? damage_meaning(b, p) : damage_name(b, p);
        return n;
    }
    for (size_t k = below(3); k > 0; k--)
        rng() & 1 ? damage_container(b, p) : damage_bytes(b, p, n);
    switch (below(8)) {
    case 0:
        damage_entry(b, p, &n);
        break;
    case 1: // cut
        n = rng() & 1 ? below(n) : below(b->header + 64);
        break;
    case 2: // joined to itself
        memcpy(p + n, b->p, b->n);
        n += b->n - (rng() & 1 ? below(64) : 0);
        break;
    default:
        break;
    }
    return n;
}

// --- the run ---

static void on_signal(int sig)
{
    fprintf(stderr, "hostile_gguf: signal %d in file %ld of seed %llu\n", sig, current, seed);
    _exit(1);
}

static lg_status open_one(const uint8_t *p, size_t n, const char *path, lg_gguf **g, void **mem, lg_err *err)
{
    *mem = NULL;
    if (path) {
        FILE *f = fopen(path, "wb");
        LG_ASSERT(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
        return lg_gguf_open(path, g, err);
    }
    *mem = malloc(n ? n : 1);
    LG_ASSERT(*mem);
    memcpy(*mem, p, n);
    return lg_gguf_open_mem("hostile.gguf", *mem, n, g, err);
}

// Both forms of `lagoon inspect`; stdout leads nowhere.
static void show(const lg_gguf *g)
{
    static lg_hparams hp;
    lg_inspect in = {.g = g, .tensors = true};
    lg_err err = {0};

    if (lg_hparams_read(g, NULL, &hp, &err) == LG_OK)
        in.hp = &hp;
    lg_inspect_count(&in);
    lg_inspect_text(&in);
    LG_ASSERT(lg_inspect_json(&in, &err) == LG_OK);
}

// What this thread has computed: other work on the machine is not counted; one that stands still may be.
static uint64_t worked_us(void)
{
    struct timespec t;

    LG_ASSERT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

// One file: refused with a clean line, or walked and shown. Counts what happened; returns how long it took.
static uint64_t look_at(const uint8_t *p, size_t n, const char *path, long counts[3])
{
    uint64_t start = worked_us();
    lg_gguf *g = NULL;
    lg_err err = {0};
    void *mem;
    lg_status st = open_one(p, n, path, &g, &mem, &err);

    if (st != LG_OK) {
        LG_ASSERT(!g && err.subject[0]);
        walk_check_error(st, &err);
        counts[0]++;
    } else {
        counts[walk_gguf(g) ? 2 : 1]++;
        show(g);
        lg_gguf_close(g);
    }
    free(mem);
    return worked_us() - start;
}

// The same, in bounded time: what a file costs it costs every time, so of three looks the shortest counts.
static void try_one(const uint8_t *p, size_t n, const char *path, long counts[3])
{
    const uint64_t most = SECONDS_MAX * UINT64_C(1000000);
    long again[3] = {0};

    if (look_at(p, n, path, counts) >= most)
        LG_ASSERT(look_at(p, n, path, again) < most || look_at(p, n, path, again) < most);
}

static mk_model small(const char *vocab, int which)
{
    static const bool pattern[] = {false, true, true};
    mk_model m = mk_default(vocab);

    m.n_layer = 3;
    m.hidden = 32;
    m.heads_full = 2;
    m.heads_window = 3;
    m.ffn_dense = 32;
    m.n_expert = 4;
    m.n_used = 2;
    m.ffn_expert = m.ffn_shared = 32;
    m.linear = m.experts = m.embed = LG_Q8_0;
    if (which == 1)
        m.is_window = pattern;
    if (which == 2) {
        m.elem_gate = m.tied = true;
        m.linear = LG_Q4_0;
    }
    return m;
}

static void make_bases(const char *vocab, const char *dir, base *b, bool keep)
{
    for (int i = 0; i < N_BASES; i++) {
        char path[512];
        mk_model m = small(vocab, i);
        char *p;

        (void)snprintf(path, sizeof path, "%s/laguna-%d", dir, i);
        LG_ASSERT(mk_write(&m, path));
        LG_ASSERT(lg_read_all(path, 1 << 24, &p, &b[i].n, NULL) == LG_OK);
        b[i].p = (uint8_t *)p;
        if (!keep)
            (void)unlink(path);
        map_base(&b[i]);
        long counts[3] = {0};
        try_one(b[i].p, b[i].n, NULL, counts);
        LG_ASSERT(counts[2] == 1); // undamaged, it is a model
    }
}

static long memory_mib(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
#ifdef __APPLE__
    return (long)(u.ru_maxrss >> 20);
#else
    return (long)(u.ru_maxrss >> 10);
#endif
}

int main(int argc, char **argv)
{
    static base b[N_BASES];
    char dir[] = "/tmp/lagoon-hostile-XXXXXX", path[64];
    long counts[3] = {0}, files = argc > 2 ? atol(argv[2]) : 0;
    bool keep = argc == 4 && strcmp(argv[2], "--write") == 0;

    if (argc < 3 || (!keep && files < 1)) {
        fprintf(stderr, "usage: hostile_gguf VOCAB FILES [SEED] | hostile_gguf VOCAB --write DIR\n");
        return 2;
    }
    lg_log_set_level(LG_LOG_OFF);
    if ((!keep && !mkdtemp(dir)) || !freopen("/dev/null", "w", stdout)) {
        perror("hostile_gguf");
        return 1;
    }
    make_bases(argv[1], keep ? argv[3] : dir, b, keep);
    if (keep)
        return 0;
    seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    (void)signal(SIGSEGV, on_signal);
    (void)signal(SIGBUS, on_signal);
    (void)signal(SIGABRT, on_signal);
    (void)snprintf(path, sizeof path, "%s/m.gguf", dir);
    long before = memory_mib();
    for (current = 0; current < files; current++) {
        base *from = &b[current % N_BASES];
        uint8_t *p = malloc(2 * from->n + 4096);

        LG_ASSERT(p);
        rng_state = seed * 0x9E3779B97F4A7C15u + (uint64_t)current * 0xD1B54A32D192ED03u;
        size_t n = damaged(from, p);
        try_one(p, n, current % 16 == 0 ? path : NULL, counts);
        free(p);
    }
    (void)unlink(path);
    (void)rmdir(dir);
    fprintf(stderr,
            "hostile_gguf: seed %llu, %ld files: %ld refused by the container, %ld by the model, %ld still "
            "models; "
            "%ld MiB more at most\n",
            seed, files, counts[0], counts[1], counts[2], memory_mib() - before);
    LG_ASSERT(files < 100 || (counts[0] > files / 10 && counts[1] > files / 20)); // else the damage misses
    LG_ASSERT(SANITIZED ||
              memory_mib() - before < MEMORY_MAX_MIB); // sanitizers keep freed memory for a while
    return 0;
}
