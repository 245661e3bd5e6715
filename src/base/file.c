/*
 * base/file: see file.h. Files are opened close-on-exec; reads and writes restart after signals.
 *
 * Surprise: lg_out_open writes in place, without temporary name and rename, when the path is a device or a
 * pipe: renaming over /dev/null would replace it. A symbolic link is followed, so that the link stays.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

enum { OUT_BUFFER = 2 << 20, READ_FIRST = 1 << 16, HUGE_FROM = 64 << 20 };

static int64_t mtime_ns(const struct stat *sb)
{
#ifdef __APPLE__
    return (int64_t)sb->st_mtimespec.tv_sec * 1000000000 + sb->st_mtimespec.tv_nsec;
#else
    return (int64_t)sb->st_mtim.tv_sec * 1000000000 + sb->st_mtim.tv_nsec;
#endif
}

lg_status lg_map_open(const char *path, lg_map *out, lg_err *err)
{
    lg_status st = LG_OK;
    struct stat sb;
    void *p = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not block here

    if (fd < 0 || fstat(fd, &sb) != 0) {
        st = LG_FAIL(err, LG_E_IO, "cannot open: %s", strerror(errno));
        goto out;
    }
    if (!S_ISREG(sb.st_mode)) {
        st = LG_FAIL(err, LG_E_INPUT, "is %s; a regular file is needed",
                     S_ISDIR(sb.st_mode) ? "a directory" : "a device or pipe");
        goto out;
    }
    if (sb.st_size > 0) {
        if ((uint64_t)sb.st_size > SIZE_MAX) {
            st = LG_FAIL(err, LG_E_LIMIT, "is larger than this machine's address space");
            goto out;
        }
        p = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            st = LG_FAIL(err, errno == ENOMEM ? LG_E_NOMEM : LG_E_IO, "cannot map %lld bytes: %s",
                         (long long)sb.st_size, strerror(errno));
            goto out;
        }
#ifdef MADV_HUGEPAGE
        // Linux then reads large files in pieces of 2 MiB and maps them so, where the file system can: a few
        // times fewer requests to the disk, and fewer TLB misses for as long as the pages stay.
        if (sb.st_size >= HUGE_FROM)
            (void)madvise(p, (size_t)sb.st_size, MADV_HUGEPAGE);
#endif
    }
    *out = (lg_map){.p = p, .n = (size_t)sb.st_size, .dev = (uint64_t)sb.st_dev, .ino = (uint64_t)sb.st_ino,
                    .mtime_ns = mtime_ns(&sb)};
out:
    if (fd >= 0)
        (void)close(fd);
    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", path);
    return st;
}

void lg_map_close(lg_map *m)
{
    if (m->p)
        (void)munmap((void *)(uintptr_t)m->p, m->n);
    *m = (lg_map){0};
}

struct lg_out {
    char *path; /* where it ends up, links resolved */
    char *tmp;  /* where it is written; NULL when written in place */
    int fd;
    int error; /* errno of the first failure; sticky */
    uint64_t pos;
    size_t n;
    unsigned char buf[OUT_BUFFER];
};

static void out_destroy(lg_out *o)
{
    if (o->fd >= 0)
        (void)close(o->fd);
    if (o->tmp)
        (void)unlink(o->tmp);
    free(o->tmp);
    free(o->path);
    free(o);
}

// Opens a new file beside o->path. The name holds process, time and attempt, so that writers do not meet.
static lg_status open_beside(lg_out *o, mode_t mode, lg_err *err)
{
    size_t room = strlen(o->path) + 64;

    o->tmp = malloc(room);
    if (!o->tmp)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    for (int attempt = 0; attempt < 100; attempt++) {
        uint64_t stamp = lg_now_ns() + (uint64_t)attempt;
        (void)snprintf(o->tmp, room, "%s.%ld-%" PRIx64 ".tmp", o->path, (long)getpid(), stamp);
        o->fd = open(o->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (o->fd >= 0)
            return LG_OK;
        if (errno != EEXIST)
            break;
    }
    int why = errno;
    free(o->tmp);
    o->tmp = NULL; // not ours to unlink
    return LG_FAIL(err, LG_E_IO, "cannot create: %s", strerror(why));
}

lg_status lg_out_open(const char *path, lg_out **out, lg_err *err)
{
    lg_status st = LG_OK;
    struct stat sb;
    bool exists = stat(path, &sb) == 0;
    lg_out *o = malloc(sizeof *o);

    if (!o) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
        goto out;
    }
    o->fd = -1;
    o->error = 0;
    o->pos = 0;
    o->n = 0;
    o->tmp = NULL;
    o->path = exists ? realpath(path, NULL) : NULL;
    if (!o->path)
        o->path = strdup(path);
    if (!o->path) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
        goto out;
    }
    if (path[0] == 0 || (exists && S_ISDIR(sb.st_mode))) {
        st = LG_FAIL(err, LG_E_INPUT, "is %s; a file name is needed", path[0] ? "a directory" : "empty");
        goto out;
    }
    if (exists && !S_ISREG(sb.st_mode)) {
        o->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (o->fd < 0)
            st = LG_FAIL(err, LG_E_IO, "cannot open for writing: %s", strerror(errno));
        goto out;
    }
    st = open_beside(o, 0666, err);
    if (st == LG_OK && exists)
        (void)fchmod(o->fd, sb.st_mode & 07777); // a replaced file keeps its mode
out:
    if (st == LG_OK) {
        *out = o;
    } else {
        if (o)
            out_destroy(o);
        (void)lg_err_subject(err, "%s", path);
    }
    return st;
}

static void write_fully(lg_out *o, const unsigned char *p, size_t n)
{
    while (n && !o->error) {
        ssize_t got = write(o->fd, p, n < (1u << 30) ? n : 1u << 30);
        if (got > 0) {
            p += got;
            n -= (size_t)got;
        } else if (got == 0) {
            o->error = ENOSPC;
        } else if (errno != EINTR) {
            o->error = errno;
        }
    }
}

static void flush(lg_out *o)
{
    write_fully(o, o->buf, o->n);
    o->n = 0;
}

// In pieces of OUT_BUFFER that begin at multiples of it: Linux keeps them in large pages where the file
// system can, and then maps what was just written by 2 MiB as well (docs/decisions/0257).
void lg_out_write(lg_out *o, const void *p, size_t n)
{
    const unsigned char *from = p;

    o->pos += n;
    while (n > 0 && !o->error) {
        size_t part = n / OUT_BUFFER * OUT_BUFFER;

        if (o->n == 0 && part > 0) {
            write_fully(o, from, part);
        } else {
            part = n < OUT_BUFFER - o->n ? n : OUT_BUFFER - o->n;
            memcpy(o->buf + o->n, from, part);
            o->n += part;
            if (o->n == OUT_BUFFER)
                flush(o);
        }
        from += part;
        n -= part;
    }
}

uint64_t lg_out_pos(const lg_out *o)
{
    return o->pos;
}

bool lg_out_failed(const lg_out *o)
{
    return o->error != 0;
}

// Makes the rename itself durable. Some file systems cannot sync a directory; the file's content is safe by
// then.
static void sync_folder(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path)
                  : snprintf(dir, sizeof dir, ".");

    if (n < 0 || (size_t)n >= sizeof dir)
        return;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    (void)close(fd);
}

lg_status lg_out_commit(lg_out *o, lg_err *err)
{
    lg_status st = LG_OK;

    flush(o);
    if (!o->error && o->tmp && fsync(o->fd) != 0)
        o->error = errno;
    if (close(o->fd) != 0 && !o->error)
        o->error = errno; // network file systems report a full disk only here
    o->fd = -1;
    if (!o->error && o->tmp && rename(o->tmp, o->path) != 0)
        o->error = errno;
    if (o->error) {
        st = LG_FAIL(err, LG_E_IO, "cannot write: %s", strerror(o->error));
        (void)lg_err_subject(err, "%s", o->path);
    } else if (o->tmp) {
        sync_folder(o->path);
        free(o->tmp);
        o->tmp = NULL;
    }
    out_destroy(o);
    return st;
}

void lg_out_abort(lg_out *o)
{
    if (o)
        out_destroy(o);
}

// Reads fd to its end into *p (always with room for one more byte). *cap is the size of *p.
static lg_status read_to_end(int fd, size_t max, char **p, size_t *cap, size_t *n, lg_err *err)
{
    for (;;) {
        if (*n + 1 >= *cap) {
            size_t want = *cap ? *cap : READ_FIRST;
            want = want > SIZE_MAX / 2 ? SIZE_MAX : want * 2;
            char *grown = realloc(*p, want);
            if (!grown)
                return LG_FAIL(err, LG_E_NOMEM, "out of memory after %zu bytes", *n);
            *p = grown;
            *cap = want;
        }
        ssize_t got = read(fd, *p + *n, *cap - *n - 1);
        if (got == 0)
            return LG_OK;
        if (got < 0) {
            if (errno == EINTR)
                continue;
            return LG_FAIL(err, LG_E_IO, "cannot read: %s", strerror(errno));
        }
        *n += (size_t)got;
        if (*n > max)
            return LG_FAIL(err, LG_E_LIMIT, "is longer than the limit of %zu bytes", max);
    }
}

lg_status lg_read_all(const char *path, size_t max, char **p, size_t *n, lg_err *err)
{
    lg_status st = LG_OK;
    struct stat sb;
    char *data = NULL;
    size_t cap = 0, len = 0;
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        st = LG_FAIL(err, LG_E_IO, "cannot open: %s", strerror(errno));
        goto out;
    }
    if (fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && sb.st_size > 0) {
        if ((uint64_t)sb.st_size > max && !is_stdin) {
            st = LG_FAIL(err, LG_E_LIMIT, "has %lld bytes; the limit is %zu", (long long)sb.st_size, max);
            goto out;
        }
        if ((uint64_t)sb.st_size < max) {
            data = malloc((size_t)sb.st_size + 2); // one byte to see the end, one for the NUL
            cap = data ? (size_t)sb.st_size + 2 : 0;
        }
    }
    st = read_to_end(fd, max, &data, &cap, &len, err);
    if (st != LG_OK)
        goto out;
    LG_ASSERT(data != NULL); // there is always room for one more byte
    data[len] = 0;
    *p = data;
    *n = len;
    data = NULL;
out:
    free(data);
    if (fd >= 0 && !is_stdin)
        (void)close(fd);
    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", is_stdin ? "standard input" : path);
    return st;
}
