/*
 * base/cgroup: where the limits of this process's control group are written, on Linux; nowhere elsewhere.
 *
 * Read at start-up by whoever sizes something (threads, memory); any thread. A limit may be set at any level
 * above the process, so callers look at every directory and keep the tightest.
 */
#ifndef LG_BASE_CGROUP_H
#define LG_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/* Call `look` for each directory that may hold a limit of `controller` ("cpu", "memory"), innermost first. v2
 * says which names its files have. */
void lg_cgroup_each(const char *controller, void (*look)(void *ctx, const char *dir, bool v2), void *ctx);

/* First line of dir/name without its end, or false. For small files of the kernel's. */
bool lg_read_line(const char *dir, const char *name, char *line, size_t n);

#endif
