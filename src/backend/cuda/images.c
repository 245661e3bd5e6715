/*
 * backend/cuda/images: copies of KV blocks in pinned host memory, made and read on a stream of their own.
 *
 * A copy waits for the work that was enqueued before it, because that may still write or read its block; the
 * steps go on beside it until a fence. A failure is sticky and comes out of the next step.
 *
 * Surprise: taking pinned memory costs more than filling it, since the system clears and locks each page
 * (257 ms for 437 MB on one machine). So a thread takes some of each size ahead, from the first time on
 * that it is asked for. That thread touches nothing else of the backend.
 */
#include "backend/cuda/internal.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"

enum { SIZES = 4, READY_MAX = 128, READY_BYTES = 128 << 20 };

typedef struct ready_size {
    size_t bytes;
    int n, want;
    void *image[READY_MAX];
} ready_size;

/* Images that are taken already; everything behind the lock. */
typedef struct lg_cuda_ready {
    pthread_mutex_t lock;
    pthread_cond_t change;
    pthread_t thread;
    bool stop, full; /* full: the system has no more */
    int device;
    ready_size size[SIZES];
} lg_cuda_ready;

static ready_size *short_of(lg_cuda_ready *r)
{
    for (int i = 0; i < SIZES; i++)
        if (r->size[i].bytes > 0 && r->size[i].n < r->size[i].want)
            return &r->size[i];
    return NULL;
}

static void *take_ahead(void *arg)
{
    lg_cuda_ready *r = arg;

    (void)cudaSetDevice(r->device);
    (void)pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        ready_size *s = r->full ? NULL : short_of(r);
        void *p = NULL;
        if (!s) {
            (void)pthread_cond_wait(&r->change, &r->lock);
            continue;
        }
        size_t bytes = s->bytes;
        (void)pthread_mutex_unlock(&r->lock);
        if (cudaHostAlloc(&p, bytes, cudaHostAllocDefault) != cudaSuccess)
            p = NULL; // whoever needs one says so
        (void)pthread_mutex_lock(&r->lock);
        r->full = !p;
        if (p)
            s->image[s->n++] = p;
    }
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

static lg_cuda_ready *ready_open(int device)
{
    lg_cuda_ready *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->device = device;
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->change, NULL);
    if (pthread_create(&r->thread, NULL, take_ahead, r) == 0)
        return r;
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->change);
    free(r);
    return NULL;
}

static void ready_close(lg_cuda_ready *r)
{
    if (!r)
        return;
    (void)pthread_mutex_lock(&r->lock);
    r->stop = true;
    (void)pthread_cond_signal(&r->change);
    (void)pthread_mutex_unlock(&r->lock);
    (void)pthread_join(r->thread, NULL);
    for (int i = 0; i < SIZES; i++)
        while (r->size[i].n > 0)
            (void)cudaFreeHost(r->size[i].image[--r->size[i].n]);
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->change);
    free(r);
}

// One that was taken ahead, or NULL; the thread learns of the size.
static void *ready_take(lg_cuda_ready *r, size_t bytes)
{
    void *p = NULL;
    int i = 0;

    (void)pthread_mutex_lock(&r->lock);
    while (i < SIZES && r->size[i].bytes != bytes && r->size[i].bytes > 0)
        i++;
    if (i < SIZES) {
        ready_size *s = &r->size[i];
        size_t want = READY_BYTES / bytes;
        s->bytes = bytes;
        s->want = want > READY_MAX ? READY_MAX : want < 2 ? 2 : (int)want;
        if (s->n > 0)
            p = s->image[--s->n];
        r->full = false;
        (void)pthread_cond_signal(&r->change);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return p;
}

static lg_status image_alloc(lg_backend *b, size_t bytes, void **out, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;

    LG_TRY(lg_cuda_health(c, err));
    if (!c->ready)
        c->ready = ready_open(c->device);
    *out = c->ready ? ready_take(c->ready, bytes) : NULL;
    if (*out)
        return LG_OK;
    cudaError_t e = cudaHostAlloc(out, bytes, cudaHostAllocDefault);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); // the device is well
        return LG_FAIL(err, LG_E_NOMEM, "the system has no %zu bytes of memory that can be pinned", bytes);
    }
    return lg_cuda_check(c, e, "pinned memory", err);
}

static void image_release(lg_backend *b, void *p)
{
    lg_cuda *c = (lg_cuda *)b;

    if (!p)
        return;
    (void)cudaSetDevice(c->device);
    (void)cudaStreamSynchronize(c->copies);
    (void)cudaFreeHost(p);
}

static void copy_block(lg_cuda *c, void *dst, const void *src, size_t n, enum cudaMemcpyKind kind)
{
    LG_ASSERT(!c->in_step);
    if (lg_cuda_health(c, NULL) != LG_OK) // comes out of the next begin
        return;
    cudaError_t e = cudaEventRecord(c->before_copy, c->cu.stream);
    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(c->copies, c->before_copy, 0);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(dst, src, n, kind, c->copies);
    if (lg_cuda_check(c, e, "copying a KV block", NULL) != LG_OK)
        return; // sticky
}

static void image_out(lg_backend *b, const lg_mem *m, size_t off, void *image, size_t n)
{
    LG_ASSERT(off <= m->bytes && n <= m->bytes - off);
    copy_block((lg_cuda *)b, image, (const char *)m->p + off, n, cudaMemcpyDeviceToHost);
}

static void image_in(lg_backend *b, const lg_mem *m, size_t off, const void *image, size_t n)
{
    LG_ASSERT(off <= m->bytes && n <= m->bytes - off);
    copy_block((lg_cuda *)b, (char *)m->p + off, image, n, cudaMemcpyHostToDevice);
}

static void image_fence(lg_backend *b)
{
    lg_cuda *c = (lg_cuda *)b;

    if (lg_cuda_health(c, NULL) != LG_OK)
        return;
    cudaError_t e = cudaEventRecord(c->after_copies, c->copies);
    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(c->cu.stream, c->after_copies, 0);
    if (lg_cuda_check(c, e, "waiting for copies of KV blocks", NULL) != LG_OK)
        return; // sticky
}

lg_status lg_cuda_images_open(lg_cuda *c, bool one_memory, lg_err *err)
{
    static const lg_images images = {.alloc = image_alloc,
                                     .release = image_release,
                                     .out = image_out,
                                     .in = image_in,
                                     .fence = image_fence};
    uint64_t total = 0;

    if (one_memory)
        return LG_OK;
    LG_TRY(lg_cuda_check(c, cudaStreamCreateWithFlags(&c->copies, cudaStreamNonBlocking), "a stream", err));
    LG_TRY(lg_cuda_check(c, cudaEventCreateWithFlags(&c->before_copy, cudaEventDisableTiming), "an event",
                         err));
    LG_TRY(lg_cuda_check(c, cudaEventCreateWithFlags(&c->after_copies, cudaEventDisableTiming), "an event",
                         err));
    lg_memory_info(&total, &c->base.info.image_bytes);
    c->base.images = &images;
    return LG_OK;
}

void lg_cuda_images_close(lg_cuda *c)
{
    ready_close(c->ready);
    c->ready = NULL;
    if (c->copies) {
        (void)cudaStreamSynchronize(c->copies);
        (void)cudaStreamDestroy(c->copies);
    }
    if (c->before_copy)
        (void)cudaEventDestroy(c->before_copy);
    if (c->after_copies)
        (void)cudaEventDestroy(c->after_copies);
    c->copies = NULL;
    c->before_copy = c->after_copies = NULL;
}
