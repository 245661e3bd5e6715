/*
 * base/file: read-only maps, atomic replacement of files, path helpers.
 */
#ifndef LG_BASE_FILE_H
#define LG_BASE_FILE_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct lg_map {
    const uint8_t *p; /* NULL for an empty file */
    size_t n;
    uint64_t dev, ino;
    int64_t mtime_ns;
} lg_map;

/* Map a regular file read-only. A directory, a device, a missing file: LG_E_IO / LG_E_INPUT with the path as
 * subject. */
LG_NODISCARD lg_status lg_map_open(const char *path, lg_map *out, lg_err *err);
void lg_map_close(lg_map *m);

/* A file written under a temporary name beside `path` and renamed on commit; abort or process death leave the
 * old file. Write errors are sticky and come out of commit, so that writers check once. */
typedef struct lg_out lg_out;
LG_NODISCARD lg_status lg_out_open(const char *path, lg_out **out, lg_err *err);
void lg_out_write(lg_out *o, const void *p, size_t n);
uint64_t lg_out_pos(const lg_out *o);
bool lg_out_failed(const lg_out *o); /* lets a long writer stop early */
/* fsync, rename, close. On failure (a full disk, say) the temporary file is removed. Frees o either way. */
LG_NODISCARD lg_status lg_out_commit(lg_out *o, lg_err *err);
void lg_out_abort(lg_out *o); /* takes NULL */

/* Whole file or stdin ("-") into memory, at most `max` bytes (LG_E_LIMIT beyond). Caller frees *p. */
LG_NODISCARD lg_status lg_read_all(const char *path, size_t max, char **p, size_t *n, lg_err *err);

#endif
