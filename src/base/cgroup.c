/*
 * base/cgroup: see cgroup.h.
 *
 * /proc/self/cgroup has a line "id:controllers:path" per hierarchy; version 2 is the line "0::path". In a
 * container the path may name a directory that is not mounted here; the parents are then still tried.
 */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

bool lg_read_line(const char *dir, const char *name, char *line, size_t n)
{
    char path[768];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return false;
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(line, (int)n, f);

    if (f)
        (void)fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = 0;
    return ok;
}

#ifdef __linux__

// `name` among the comma-separated `list`?
static bool has_word(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0)
            return true;
    return false;
}

static void each_up(const char *mount, const char *path, bool v2, void (*look)(void *, const char *, bool),
                    void *ctx)
{
    char dir[640];
    size_t root = strlen(mount);

    if ((size_t)snprintf(dir, sizeof dir, "%s%s", mount, strcmp(path, "/") ? path : "") >= sizeof dir)
        return;
    for (;;) {
        look(ctx, dir, v2);
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < root)
            return;
        *slash = 0;
    }
}

void lg_cgroup_each(const char *controller, void (*look)(void *ctx, const char *dir, bool v2), void *ctx)
{
    char line[640], mount[64];
    FILE *f = fopen("/proc/self/cgroup", "re");

    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':');
        char *path = list ? strchr(++list, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        if (!*list) {
            each_up("/sys/fs/cgroup", path, true, look, ctx);
        } else if (has_word(list, controller)) {
            (void)snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
            each_up(mount, path, false, look, ctx);
        }
    }
    if (f)
        (void)fclose(f);
}

#else

void lg_cgroup_each(const char *controller, void (*look)(void *ctx, const char *dir, bool v2), void *ctx)
{
    (void)controller;
    (void)look;
    (void)ctx;
}

#endif
