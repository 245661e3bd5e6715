/*
 * backend/cuda/images: copies of KV blocks in pinned host memory, made and read on a stream of their own.
 *
 * A copy waits for the work that was enqueued before it, because that may still write or read its block; the
 * steps go on beside it until a fence. A failure is sticky and comes out of the next step.
 *
 * Surprise: taking pinned memory costs about as much as writing it once, since the system clears and locks
 * each page. The engine keeps what it took.
 */
#include "backend/cuda/internal.h"

#include "base/memory.h"

static lg_status image_alloc(lg_backend *b, size_t bytes, void **out, lg_err *err)
{
    lg_cuda *c = (lg_cuda *)b;

    LG_TRY(lg_cuda_health(c, err));
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
