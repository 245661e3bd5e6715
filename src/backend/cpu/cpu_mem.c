/*
 * backend/cpu/cpu_mem: the CPU backend's memory, and how much of it this machine has.
 *
 * From 2 MiB on an allocation is a mapping of its own, aligned to 2 MiB so that the kernel can back it with
 * huge pages: weights and KV are read in long streams, and the TLB is the first thing that runs out. Called
 * outside steps only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

#include "backend/cpu/cpu_internal.h"
#include "base/cgroup.h"

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

#ifdef __linux__

static uint64_t field_bytes(const char *path, const char *key, uint64_t unit)
{
    char line[128];
    uint64_t value = 0;
    size_t n = strlen(key);
    FILE *f = fopen(path, "re");

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0) {
            value = strtoull(line + n, NULL, 10) * unit;
            break;
        }
    if (f)
        (void)fclose(f);
    return value;
}

typedef struct memory {
    uint64_t total, available;
} memory;

static bool read_number(const char *dir, const char *name, uint64_t *out)
{
    char line[64], *end;

    if (!lg_read_line(dir, name, line, sizeof line))
        return false;
    *out = strtoull(line, &end, 10);
    return end != line; // "max" is no number
}

// Page cache counts as used in a control group, but the kernel gives it up before it kills anybody.
static void look_at_limit(void *ctx, const char *dir, bool v2)
{
    memory *m = ctx;
    char path[768];
    uint64_t limit = 0, used = 0;

    if (!read_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", &limit) || limit >= m->total)
        return;
    m->total = limit;
    if (!read_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", &used) ||
        (size_t)snprintf(path, sizeof path, "%s/memory.stat", dir) >= sizeof path)
        return;
    uint64_t cache = field_bytes(path, v2 ? "file " : "total_cache ", 1);
    used -= cache < used ? cache : used;
    uint64_t left = used < limit ? limit - used : 0;
    if (left < m->available)
        m->available = left;
}

void lg_cpu_mem_info(uint64_t *total, uint64_t *available)
{
    memory m = {.total = field_bytes("/proc/meminfo", "MemTotal:", 1024),
                .available = field_bytes("/proc/meminfo", "MemAvailable:", 1024)};

    lg_cgroup_each("memory", look_at_limit, &m);
    *total = m.total;
    *available = m.available;
}

#else

void lg_cpu_mem_info(uint64_t *total, uint64_t *available)
{
    vm_statistics64_data_t vm;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    uint64_t bytes = 0;
    size_t size = sizeof bytes;

    if (sysctlbyname("hw.memsize", &bytes, &size, NULL, 0) != 0)
        bytes = 0;
    *total = bytes;
    *available = bytes;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&vm, &n) == KERN_SUCCESS)
        *available = ((uint64_t)vm.free_count + vm.inactive_count + vm.purgeable_count) * vm_kernel_page_size;
}

#endif
