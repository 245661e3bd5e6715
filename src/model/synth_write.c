/*
 * model/synth_write: a synthetic model as a file or in memory, made by all threads of a pool.
 *
 * A file is written in order: while the workers fill one chunk, the calling thread writes the one before and
 * then helps. In memory all tensors are filled in place.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model/synth_int.h"

enum { CHUNK = 8 << 20, SLICE = 128 << 10 }; // bytes: of one write; of what a thread takes at a time

// A run of blocks of one tensor to be filled, and bytes to be written meanwhile.
typedef struct fill_job {
    const lg_synth *s;
    size_t tensor;
    uint64_t block0, n_blocks;
    uint8_t *dst;
    lg_queue queue;
    lg_gguf_writer *out; // may be NULL
    const uint8_t *done;
    size_t n_done;
} fill_job;

static void fill_part(void *ctx, int thread, int n_threads)
{
    fill_job *j = ctx;
    const lg_synth_tensor *t = &j->s->tensor[j->tensor];
    int64_t bytes = lg_qtype_get((uint32_t)t->type)->block_bytes, step = SLICE / bytes;

    (void)n_threads;
    if (thread == 0 && j->n_done)
        (void)lg_gguf_write_data(j->out, j->done, j->n_done); // a failure comes out at the end
    for (;;) {
        int64_t at = lg_queue_take(&j->queue, step), left = (int64_t)j->n_blocks - at;

        if (left <= 0)
            return;
        lg_synth_fill(j->s->seed, (uint32_t)j->tensor, t->type, t->mean, t->spread, j->block0 + (uint64_t)at,
                      (uint64_t)(left < step ? left : step), j->dst + at * bytes);
    }
}

static bool cancelled(const lg_synth_job *job)
{
    return job->cancel && atomic_load_explicit(job->cancel, memory_order_relaxed);
}

static void report(const lg_synth_job *job, uint64_t done, uint64_t total)
{
    if (job->progress)
        job->progress(job->ctx, done, total);
}

// Makes and writes all data. `buf` has room for two chunks.
static lg_status write_all(const lg_synth *s, lg_gguf_writer *w, const lg_synth_job *job, uint8_t *buf,
                           lg_err *err)
{
    fill_job j = {.s = s, .out = w};
    uint64_t made = 0;
    int turn = 0;

    for (size_t i = 0; i < s->n_tensors; i++) {
        const lg_synth_tensor *t = &s->tensor[i];
        uint64_t bytes = (uint64_t)lg_qtype_get((uint32_t)t->type)->block_bytes, n = t->bytes / bytes;

        for (uint64_t at = 0; at < n; at += j.n_blocks) {
            j.tensor = i;
            j.block0 = at;
            j.n_blocks = n - at < CHUNK / bytes ? n - at : CHUNK / bytes;
            j.dst = buf + (turn ? CHUNK : 0);
            lg_queue_reset(&j.queue);
            lg_pool_run(job->pool, fill_part, &j);
            j.done = j.dst;
            j.n_done = (size_t)(j.n_blocks * bytes);
            turn = !turn;
            made += j.n_done;
            report(job, made, s->tensor_bytes);
            if (cancelled(job))
                return LG_FAIL(err, LG_E_CANCELLED, "interrupted");
        }
    }
    (void)lg_gguf_write_data(w, j.done, j.n_done);
    return LG_OK;
}

lg_status lg_synth_write(const lg_synth *s, const char *path, const lg_synth_job *job, lg_err *err)
{
    lg_gguf_writer *w = NULL;
    uint8_t *buf = malloc(2 * (size_t)CHUNK);
    lg_status st;

    if (!buf) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
        goto out;
    }
    st = lg_gguf_write_open(path, &w, err);
    if (st != LG_OK)
        goto out;
    st = lg_synth_describe(s, w, err);
    if (st == LG_OK)
        st = lg_gguf_write_begin(w, err);
    if (st == LG_OK)
        st = write_all(s, w, job, buf, err);
    if (st == LG_OK) {
        st = lg_gguf_write_finish(w, err);
        w = NULL;
    }
out:
    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", path);
    lg_gguf_write_abort(w);
    free(buf);
    return st;
}

// Zero pages that only exist once they are filled, large ones where the system has them.
static void *map_memory(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(p, n, MADV_HUGEPAGE);
#endif
    return p;
}

static lg_status fill_memory(const lg_synth *s, const lg_gguf *g, const lg_synth_job *job, lg_err *err)
{
    uint64_t made = 0;

    for (size_t i = 0; i < s->n_tensors; i++) {
        const lg_gguf_tensor *t = lg_gguf_tensor_at(g, i);
        uint64_t bytes = (uint64_t)lg_qtype_get((uint32_t)t->type)->block_bytes, n = t->bytes / bytes;
        fill_job j = {.s = s, .tensor = i};

        for (uint64_t at = 0; at < n; at += j.n_blocks) { // in pieces, for progress and interruption
            j.block0 = at;
            j.n_blocks = n - at < 16 * CHUNK / bytes ? n - at : 16 * CHUNK / bytes;
            j.dst = (uint8_t *)(uintptr_t)t->data + at * bytes; // the memory behind the reader is ours
            lg_queue_reset(&j.queue);
            lg_pool_run(job->pool, fill_part, &j);
            made += j.n_blocks * bytes;
            report(job, made, s->tensor_bytes);
            if (cancelled(job))
                return LG_FAIL(err, LG_E_CANCELLED, "interrupted");
        }
    }
    return LG_OK;
}

// How each tensor would be filled, for a backend that does it itself.
static lg_status leave_to_backend(const lg_synth *s, lg_synth_model *m, lg_err *err)
{
    m->made = calloc(s->n_tensors, sizeof *m->made);
    if (!m->made)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    for (size_t i = 0; i < s->n_tensors; i++) {
        m->made[i] = (lg_made){.seed = s->seed, .index = (uint32_t)i, .mean = s->tensor[i].mean,
                               .spread = s->tensor[i].spread};
        lg_gguf_set_made(m->gguf, i, &m->made[i]);
    }
    return LG_OK;
}

lg_status lg_synth_make(const lg_synth *s, const lg_synth_job *job, lg_synth_model *out, lg_err *err)
{
    lg_synth_model m = {0};
    lg_gguf_writer *w = NULL;
    lg_buf header;
    uint64_t bytes = 0;
    lg_status st;

    lg_buf_init(&header, 64 << 20);
    st = lg_gguf_write_open_mem(&w, err);
    if (st == LG_OK)
        st = lg_synth_describe(s, w, err);
    if (st == LG_OK)
        st = lg_gguf_write_header(w, &header, &bytes, err);
    if (st != LG_OK)
        goto out;
    m.mem = bytes <= SIZE_MAX ? map_memory((size_t)bytes) : NULL;
    if (!m.mem) {
        st =
            LG_FAIL(err, LG_E_NOMEM, "no memory for the %.1f GB of the synthetic model", (double)bytes / 1e9);
        goto out;
    }
    m.bytes = (size_t)bytes;
    memcpy(m.mem, header.p, header.n);
    st = lg_gguf_open_mem(lg_synth_name(s), m.mem, m.bytes, &m.gguf, err);
    if (st == LG_OK)
        st = job->unfilled ? leave_to_backend(s, &m, err) : fill_memory(s, m.gguf, job, err);
out:
    if (st == LG_OK)
        *out = m;
    else
        lg_synth_unmake(&m);
    lg_gguf_write_abort(w);
    lg_buf_free(&header);
    return st;
}

void lg_synth_unmake(lg_synth_model *m)
{
    lg_gguf_close(m->gguf);
    free(m->made);
    if (m->mem)
        (void)munmap(m->mem, m->bytes);
    *m = (lg_synth_model){0};
}
