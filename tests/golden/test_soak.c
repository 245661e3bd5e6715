/*
 * Many requests on one engine: prompts that share beginnings, replies cut short, requests given up between
 * chunks or in a reply, contexts that grow to the end. Conversations come back from the prefix cache, on a
 * device with memory of its own mostly from images on the host.
 *
 * From time to time a conversation is restored and its logits are held, bit for bit, to an engine that
 * computes it afresh with the same chunk ends. At the end the device has as much memory in use as after the
 * first steps, but for what recorded steps take: there are at most 64 of them, some of which come late (16.8
 * MB were seen on an H200 between the first 100 and 10,000 steps).
 *
 * usage: test_soak DEVICE STEPS SEED MODEL [DRAFTER]
 * DEVICE may be cpu-images: the CPU as if its memory were not the host's.
 * A step is a chunk of a prompt or a token of a reply. Exit 1 with what went wrong; 77 without device or
 * file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_int.h"
#include "engine/prefix_int.h"

enum { CTX = 1536, CHUNK = 128, TALKS = 12, TAIL = 24, WARM = 100, EVERY = 400, GRAPH_BYTES = 32 << 20 };

typedef struct talk {
    int32_t ids[CTX];
    size_t n;
} talk;

typedef struct soak {
    const char *device, *model, *drafter;
    lg_engine *e, *fresh; /* fresh: keeps nothing */
    talk talk[TALKS];
    uint64_t state;
    atomic_bool cancel;
    int cancel_at; /* calls until the request is given up; 0: never */
    long steps, requests, cancelled, restores;
    int64_t cached;
    uint64_t free_bytes; /* of the device after the first steps */
} soak;

// --- the CPU with images: what lg_backend_open gives goes through here (--wrap) ---

#if LG_WRAP_BACKEND

static bool images_wanted;

static lg_status image_alloc(lg_backend *b, size_t bytes, void **out, lg_err *err)
{
    (void)b;
    *out = malloc(bytes);
    return *out ? LG_OK : LG_FAIL(err, LG_E_NOMEM, "no memory for an image");
}

static void image_release(lg_backend *b, void *p)
{
    (void)b;
    free(p);
}

static void image_out(lg_backend *b, const lg_mem *m, size_t off, void *image, size_t n)
{
    (void)b;
    memcpy(image, (const char *)m->p + off, n);
}

static void image_in(lg_backend *b, const lg_mem *m, size_t off, const void *image, size_t n)
{
    (void)b;
    memcpy((char *)m->p + off, image, n);
}

static void image_fence(lg_backend *b)
{
    (void)b;
}

static const lg_images cpu_images = {.alloc = image_alloc,
                                     .release = image_release,
                                     .out = image_out,
                                     .in = image_in,
                                     .fence = image_fence};

lg_status __real_lg_backend_open(const lg_backend_params *p, lg_backend **out, lg_err *err);
lg_status __wrap_lg_backend_open(const lg_backend_params *p, lg_backend **out, lg_err *err);

lg_status __wrap_lg_backend_open(const lg_backend_params *p, lg_backend **out, lg_err *err)
{
    lg_status st = __real_lg_backend_open(p, out, err);

    if (st == LG_OK && images_wanted) {
        (*out)->images = &cpu_images;
        (*out)->discard = NULL;
        (*out)->info.image_bytes = UINT64_C(1) << 30;
    }
    return st;
}

#endif

static unsigned below(soak *s, unsigned n)
{
    s->state = s->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(s->state >> 33) % n;
}

static lg_status open_engine(const soak *s, bool cached, lg_engine **out, lg_err *err)
{
    lg_engine_params p = {.model_path = s->model,
                          .backend = {.device = s->device, .threads = 2, .isa = ""},
                          .ctx = CTX,
                          .kv_type = LG_F16,
                          .chunk = CHUNK,
                          .cache_slots = cached ? TALKS : 1,
                          .cache_ram = (uint64_t)(cached ? 96 : 1) << 20,
                          .cache_near = 1, // no slots but those of the live sequence
                          .cache_min = 1,
                          .cache_step = 200,
                          .draft_path = cached ? s->drafter : NULL,
                          .draft_required = true};

    return lg_engine_open(&p, out, err);
}

static void ignore(void *ctx, const lg_event *ev)
{
    (void)ctx;
    (void)ev;
}

static void count(soak *s)
{
    s->steps++;
    if (s->cancel_at > 0 && --s->cancel_at == 0)
        atomic_store(&s->cancel, true);
}

static void on_prefill(void *ctx, size_t done, size_t total)
{
    (void)done;
    (void)total;
    count(ctx);
}

static void on_token(void *ctx, const lg_gen_token *t)
{
    (void)t;
    count(ctx);
}

// The device's free memory, as a backend sees it that is opened now.
static uint64_t free_now(const soak *s)
{
    lg_backend *b = NULL;
    uint64_t bytes = 0;

    if (lg_backend_open(&(lg_backend_params){.device = s->device}, &b, NULL) == LG_OK)
        bytes = b->info.free_bytes;
    lg_backend_close(b);
    return bytes;
}

static void random_ids(soak *s, talk *t, size_t n)
{
    unsigned vocab = (unsigned)lg_engine_hparams(s->e)->vocab;

    for (; n > 0 && t->n < CTX - TAIL - 1; n--)
        t->ids[t->n++] = (int32_t)below(s, vocab);
}

// Goes on with a conversation, goes back in one, or begins one with what another began with.
static talk *next_talk(soak *s)
{
    talk *t = &s->talk[below(s, TALKS)];
    const talk *from = &s->talk[below(s, TALKS)];
    unsigned what = below(s, 8);

    if (what < 2 && from != t)
        *t = *from;
    if (what < 3 && t->n > 0)
        t->n = below(s, (unsigned)t->n);
    if (what == 7 || t->n > CTX - 200)
        t->n = 0;
    random_ids(s, t, 1 + below(s, what == 6 ? CTX : 150));
    return t;
}

static lg_status request(soak *s, lg_err *err)
{
    talk *t = next_talk(s);
    lg_gen_params p = {.sampling = lg_sampling_default(),
                       .max_tokens = 1 + below(s, 60),
                       .max_think = -1,
                       .reply = {.raw = true},
                       .max_reply_bytes = 1 << 20,
                       .cancel = &s->cancel,
                       .event = ignore,
                       .prefill = on_prefill,
                       .token = on_token,
                       .ctx = s,
                       .cache = below(s, 10) == 0 ? LG_CACHE_NO_STORE : LG_CACHE_USE};
    lg_gen_stats stats = {0};
    lg_ids out = {0};

    p.sampling.temperature = below(s, 2) ? 0 : 1;
    p.sampling.seed = s->state;
    atomic_store(&s->cancel, false);
    s->cancel_at = below(s, 4) == 0 ? 1 + (int)below(s, 20) : 0;
    lg_status st = lg_generate(s->e, t->ids, t->n, &p, &stats, &out, err);
    for (size_t i = 0; st == LG_OK && i < out.n && t->n < CTX - TAIL - 1; i++)
        t->ids[t->n++] = out.p[i];
    lg_ids_free(&out);
    s->requests++;
    s->cancelled += stats.end == LG_END_CANCELLED;
    s->cached += stats.cached_tokens;
    if (st == LG_OK && !lg_prefix_check(s->e->px))
        st = LG_FAIL(err, LG_E_INPUT, "the prefix cache contradicts itself");
    return st;
}

static lg_status eval(lg_engine *e, const int32_t *ids, size_t n, const float **row, lg_err *err)
{
    LG_TRY(lg_engine_eval(e, &(lg_eval){.ids = ids, .n = n}, err));
    return lg_engine_logits(e, 0, row, err);
}

// Computes a new conversation, lets others push it out, restores it, and compares what follows.
static lg_status restore(soak *s, lg_err *err)
{
    static talk t;
    lg_gen_params p = {.sampling = lg_sampling_default(), .max_tokens = 1, .max_think = -1,
                       .reply = {.raw = true}, .max_reply_bytes = 1 << 16, .event = ignore};
    lg_gen_stats stats;
    const float *got, *want;

    t.n = 0;
    random_ids(s, &t, 200 + below(s, 1000));
    size_t n = t.n, vocab = (size_t)lg_engine_hparams(s->e)->vocab;
    for (size_t i = 0; i < TAIL; i++)
        t.ids[t.n++] = (int32_t)below(s, (unsigned)vocab);
    LG_TRY(lg_generate(s->e, t.ids, n, &p, &stats, NULL, err));
    if (stats.cached_tokens > 0) // began as another one did: its chunks end elsewhere
        return LG_OK;
    for (int i = 0; i < 4; i++)
        LG_TRY(request(s, err));
    lg_cache_ask ask = {.ids = t.ids, .n = t.n};
    int64_t k = lg_cache_begin(s->e, &ask, (int64_t)t.n - 1, true);
    lg_status st = eval(s->e, t.ids + k, t.n - (size_t)k, &got, err);
    lg_cache_end(s->e);
    if (st != LG_OK || k != (int64_t)n) // evicted meanwhile: another time
        return st;
    s->restores++;
    (void)lg_engine_truncate(s->fresh, 0);
    LG_TRY(eval(s->fresh, t.ids, n, &want, err));
    LG_TRY(eval(s->fresh, t.ids + n, TAIL, &want, err));
    for (size_t i = 0; i < vocab; i++)
        if (memcmp(got + i, want + i, sizeof *got) != 0)
            return LG_FAIL(err, LG_E_INPUT, "restored at %lld: logit %zu is %.9g, computed afresh %.9g",
                           (long long)k, i, (double)got[i], (double)want[i]);
    return LG_OK;
}

static lg_status run(soak *s, long steps, lg_err *err)
{
    long next = WARM + EVERY;

    while (s->steps < steps || s->restores == 0) {
        LG_TRY(request(s, err));
        if (s->free_bytes == 0 && s->steps >= WARM) {
            LG_TRY(restore(s, err)); // the fresh engine has done all that it does
            s->free_bytes = free_now(s);
        }
        if (s->steps >= next || s->steps >= steps) {
            LG_TRY(restore(s, err));
            next = s->steps + EVERY;
        }
    }
    uint64_t now = free_now(s);
    bool own = lg_engine_backend(s->e)->images != NULL; // else others use the same memory
    (void)printf("%ld steps, %ld requests, %ld given up, %lld tokens from the cache, %ld restores equal\n",
                 s->steps, s->requests, s->cancelled, (long long)s->cached, s->restores);
    if (!own)
        return LG_OK;
    bool card = strcmp(lg_engine_backend(s->e)->info.kind, "cpu") != 0;
    (void)printf("copied to images %llu blocks, back %llu; free %.1f MB, after %d steps it was %.1f MB\n",
                 (unsigned long long)s->e->kv.moved.out_blocks, (unsigned long long)s->e->kv.moved.in_blocks,
                 (double)now / 1e6, WARM, (double)s->free_bytes / 1e6);
    if (s->e->kv.moved.in_blocks == 0)
        return LG_FAIL(err, LG_E_INPUT, "no block came back from an image");
    if (card && now + GRAPH_BYTES < s->free_bytes)
        return LG_FAIL(err, LG_E_INPUT, "the device has %llu bytes less free than after the first steps",
                       (unsigned long long)(s->free_bytes - now));
    return LG_OK;
}

int main(int argc, char **argv)
{
    static soak s;
    lg_err err = {0};
    char line[512];

    if (argc < 5 || access(argv[4], R_OK) != 0 || (argc > 5 && access(argv[5], R_OK) != 0)) {
        (void)printf("test_soak DEVICE STEPS SEED MODEL [DRAFTER]; the files are needed\n");
        return 77;
    }
    s.device = argv[1];
    if (strcmp(s.device, "cpu-images") == 0) {
#if LG_WRAP_BACKEND
        images_wanted = true;
#endif
        s.device = "cpu";
    }
    s.state = strtoull(argv[3], NULL, 10);
    s.model = argv[4];
    s.drafter = argc > 5 ? argv[5] : NULL;
    lg_status st = open_engine(&s, true, &s.e, &err);
    if (st == LG_E_DEVICE || st == LG_E_UNSUPPORTED) {
        (void)printf("skipped: %s\n", err.msg);
        return 77;
    }
    if (st == LG_OK)
        st = open_engine(&s, false, &s.fresh, &err);
    if (st == LG_OK)
        st = run(&s, strtol(argv[2], NULL, 10), &err);
    if (st != LG_OK)
        (void)printf("FAIL after %ld steps: %s\n", s.steps, lg_err_line(&err, line, sizeof line));
    lg_engine_close(s.fresh);
    lg_engine_close(s.e);
    return st != LG_OK;
}
