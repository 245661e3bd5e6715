/*
 * backend/cpu/cpu_mem: the CPU backend's memory.
 *
 * From 2 MiB on an allocation is a mapping of its own, aligned to 2 MiB so that the kernel can back it with
 * huge pages: weights and KV are read in long streams, and the TLB is the first thing that runs out. Called
 * outside steps only.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/cpu_internal.h"

static const size_t huge_page = (size_t)2 << 20;

static bool is_mapped(size_t bytes)
{
    return bytes >= huge_page;
}

// A mapping of `bytes` (a multiple of the page size) that begins at a multiple of huge_page; NULL when there
// is none.
static void *map_aligned(size_t bytes)
{
    size_t room = bytes + huge_page;
    char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    size_t head = (huge_page - (uintptr_t)p % huge_page) % huge_page;
    if (head)
        (void)munmap(p, head);
    if (room - head > bytes)
        (void)munmap(p + head + bytes, room - head - bytes);
#ifdef MADV_HUGEPAGE
    (void)madvise(p + head, bytes, MADV_HUGEPAGE);
#endif
    return p + head;
}

static size_t mapped_bytes(size_t bytes)
{
    const size_t page = 64 << 10; // the largest base page of the systems we run on

    return (bytes + page - 1) / page * page;
}

lg_status lg_cpu_mem_alloc(size_t bytes, lg_mem *out, lg_err *err)
{
    void *p = NULL;

    if (bytes > SIZE_MAX / 2)
        return LG_FAIL(err, LG_E_NOMEM, "%zu bytes are more than an address space holds", bytes);
    if (bytes > 0) {
        p = is_mapped(bytes) ? map_aligned(mapped_bytes(bytes)) : aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!p)
            return LG_FAIL(err, LG_E_NOMEM, "no memory for %zu bytes", bytes);
        if (!is_mapped(bytes))
            memset(p, 0, bytes);
    }
    *out = (lg_mem){.p = p, .bytes = bytes};
    return LG_OK;
}

void lg_cpu_mem_free(lg_mem *m)
{
    if (m->p && is_mapped(m->bytes))
        (void)munmap(m->p, mapped_bytes(m->bytes));
    else
        free(m->p);
    *m = (lg_mem){0};
}

void lg_cpu_mem_discard(const lg_mem *m, size_t off, size_t bytes)
{
    const size_t page = 64 << 10; // as above
    size_t from = (off + page - 1) / page * page, to = (off + bytes) / page * page;

    LG_ASSERT(off + bytes <= m->bytes);
    if (is_mapped(m->bytes) && to > from)
        (void)madvise((char *)m->p + from, to - from, MADV_DONTNEED);
}
