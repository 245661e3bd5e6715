/*
 * tests/support/scratch: see scratch.h. Nothing here allocates: some tests count or fail allocations.
 */
#include "support/scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __APPLE__
extern char **environ;
#endif

enum { PATHS = 16, FOLDER_MAX = 512, PATH_BYTES = FOLDER_MAX + 256 };

static char folder[FOLDER_MAX];
static pid_t maker;

static void remove_folder(void)
{
    char path[PATH_BYTES];
    struct dirent *e;
    DIR *d;

    if (getpid() != maker) // a child that exits
        return;
    d = opendir(folder);
    while (d && (e = readdir(d)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        (void)unlink(path);
    }
    if (d)
        (void)closedir(d);
    (void)rmdir(folder);
}

static void make_folder(void)
{
    const char *dir = getenv("TMPDIR");
    int n = snprintf(folder, sizeof folder, "%s/lagoon-test-XXXXXX", dir && *dir ? dir : "/tmp");

    if (n >= FOLDER_MAX || !mkdtemp(folder) || atexit(remove_folder) != 0) {
        perror(folder);
        abort();
    }
    maker = getpid();
}

const char *scratch_path(const char *name)
{
    static char path[PATHS][PATH_BYTES];
    static unsigned turn;
    char *p = path[turn++ % PATHS];

    if (!maker)
        make_folder();
    if (snprintf(p, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES)
        abort();
    return p;
}

void scratch_no_settings(void)
{
    char name[128];

    for (char **e = environ; e && *e;) {
        size_t n = strcspn(*e, "=");

        if (strncmp(*e, "LAGOON_", 7) != 0 || n >= sizeof name) {
            e++;
            continue;
        }
        memcpy(name, *e, n);
        name[n] = '\0';
        (void)unsetenv(name);
        e = environ; // its entries have moved
    }
    (void)setenv("HOME", "/nonexistent", 1);
    (void)setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
}
