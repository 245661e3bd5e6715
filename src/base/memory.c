/*
 * base/memory: see memory.h. On Linux the tightest of the machine's free memory, every control group's limit
 * above the process (one may be set at any level), and what `ulimit -v` leaves of the address space: mapped
 * files and reserved memory count there like used memory.
 */
#include "base/memory.h"

#include <stddef.h>
#include <sys/resource.h>

#ifdef __linux__
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#else
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

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

static void look_at_address_space(memory *m)
{
    struct rlimit limit;
    unsigned long long pages = 0;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu", &pages) != 1)
        pages = 0;
    if (f)
        (void)fclose(f);
    uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t left = used < limit.rlim_cur ? limit.rlim_cur - used : 0;
    if (limit.rlim_cur < m->total)
        m->total = limit.rlim_cur;
    if (left < m->available)
        m->available = left;
}

void lg_memory_info(uint64_t *total, uint64_t *available)
{
    memory m = {.total = field_bytes("/proc/meminfo", "MemTotal:", 1024),
                .available = field_bytes("/proc/meminfo", "MemAvailable:", 1024)};

    lg_cgroup_each("memory", look_at_limit, &m);
    look_at_address_space(&m);
    *total = m.total;
    *available = m.available;
}

#else

void lg_memory_info(uint64_t *total, uint64_t *available)
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

bool lg_memory_reserved_counts(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}
