/*
 * tests/support/npy: see npy.h.
 */
#include "support/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_header(const char *h, npy *a)
{
    const char *p = strstr(h, "'shape': (");

    if (strstr(h, "'descr': '<f4'"))
        a->is_float = true;
    else if (!strstr(h, "'descr': '<i4'"))
        return false;
    if (!p || !strstr(h, "'fortran_order': False"))
        return false;
    a->n = 1;
    for (int i = 0; i < 4; i++)
        a->dim[i] = 1;
    for (p += strlen("'shape': ("); *p && *p != ')' && a->n_dims < 4;) {
        char *end;
        a->dim[a->n_dims] = strtoul(p, &end, 10);
        if (end == p)
            return false;
        a->n *= a->dim[a->n_dims++];
        for (p = end; *p == ',' || *p == ' '; p++)
            continue;
    }
    return true;
}

bool npy_read(const char *path, npy *out)
{
    npy a = {0};
    unsigned char head[10];
    char *text = NULL;
    FILE *f = fopen(path, "rb");
    bool ok = false;

    if (!f || fread(head, 1, sizeof head, f) != sizeof head || memcmp(head, "\x93NUMPY\x01", 7) != 0)
        goto out;
    size_t n = head[8] + 256u * head[9];
    if (!(text = calloc(n + 1, 1)) || fread(text, 1, n, f) != n || !parse_header(text, &a))
        goto out;
    if (!(a.f = malloc(a.n * sizeof *a.f)))
        goto out;
    ok = fread(a.f, sizeof *a.f, a.n, f) == a.n;
out:
    if (!ok) {
        (void)fprintf(stderr, "%s: not an array of f32 or i32\n", path);
        free(a.f);
    }
    if (f)
        (void)fclose(f);
    free(text);
    if (ok)
        *out = a;
    return ok;
}

void npy_free(npy *a)
{
    free(a->f);
    *a = (npy){0};
}
