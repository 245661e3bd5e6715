/*
 * gguf/gguf_parts: split models. Their files are named PREFIX-00001-of-00003.gguf and lie in one folder; this
 * file derives the names from any one of them and words what is wrong when they do not fit together.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/gguf_int.h"

enum { SUFFIX = 20 }; // "-00001-of-00003.gguf"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

// Length of PREFIX when the name ends as a part's name does.
static bool split_name(const char *path, size_t *prefix, int64_t *no, int64_t *count)
{
    size_t n = strlen(path);

    if (n < SUFFIX)
        return false;
    const char *s = path + n - SUFFIX;
    if (s[0] != '-' || memcmp(s + 6, "-of-", 4) || memcmp(s + 15, ".gguf", 5))
        return false;
    for (int i = 0; i < 5; i++)
        if (s[1 + i] < '0' || s[1 + i] > '9' || s[10 + i] < '0' || s[10 + i] > '9')
            return false;
    *no = strtol(s + 1, NULL, 10) - 1;
    *count = strtol(s + 10, NULL, 10);
    *prefix = n - SUFFIX;
    return true;
}

char *lg_gguf_part_path(const char *path, int64_t no, int64_t count)
{
    size_t prefix;
    int64_t own_no, own_count;

    if (!split_name(path, &prefix, &own_no, &own_count) || own_count != count)
        return NULL;
    char *out = malloc(prefix + SUFFIX + 16);
    if (out)
        (void)snprintf(out, prefix + SUFFIX + 16, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int)prefix,
                       path, no + 1, count);
    return out;
}

lg_status lg_gguf_check_tail(const lg_gguf_part *p, lg_err *err)
{
    size_t padded = p->data_end + (p->align - p->data_end % p->align) % p->align;
    size_t at[2] = {p->data_end, padded};

    for (int i = 0; i < 2; i++)
        if (at[i] <= p->map.n && p->map.n - at[i] >= HEADER_BYTES && !memcmp(p->map.p + at[i], "GGUF", 4)) {
            if (p->split_count)
                return LG_FAIL(err, LG_E_INPUT,
                               "is part %" PRId64 " of %" PRId64 " followed by %zu bytes of another GGUF"
                               " file; do not join the parts, pass the first one as it is",
                               p->split_no + 1, p->split_count, p->map.n - at[i]);
            return LG_FAIL(err, LG_E_INPUT,
                           "is followed by %zu bytes of another GGUF file; files must not be joined",
                           p->map.n - at[i]);
        }
    return LG_OK;
}

// "2, 4-6": the missing parts as numbers, and the first names, as many as fit.
static void list_missing(const char *path, int64_t count, char *numbers, size_t n_numbers, char *names,
                         size_t n_names, int *n_missing)
{
    size_t used = 0, used_names = 0;
    int64_t run = -1;
    bool full = false;

    *n_missing = 0;
    numbers[0] = names[0] = 0;
    for (int64_t i = 0; i <= count; i++) {
        char *sibling = i < count ? lg_gguf_part_path(path, i, count) : NULL;
        bool missing = sibling && access(sibling, F_OK) != 0;

        if (missing && run < 0)
            run = i;
        if (!missing && run >= 0 && used < n_numbers) {
            int n = i - run == 1
                        ? snprintf(numbers + used, n_numbers - used, "%s%" PRId64, used ? ", " : "", run + 1)
                        : snprintf(numbers + used, n_numbers - used, "%s%" PRId64 "-%" PRId64,
                                   used ? ", " : "", run + 1, i);
            used += (size_t)n;
            run = -1;
        }
        if (missing) {
            size_t n = strlen(base_name(sibling));
            (*n_missing)++;
            full = full || used_names + n + 2 >= n_names;
            if (!full)
                used_names += (size_t)snprintf(names + used_names, n_names - used_names, "%s%s",
                                               used_names ? ", " : "", base_name(sibling));
        }
        free(sibling);
    }
    if (full && used_names + 5 < n_names)
        (void)snprintf(names + used_names, n_names - used_names, ", ...");
}

lg_status lg_gguf_check_siblings(const char *path, const lg_gguf_part *given, lg_err *err)
{
    size_t prefix;
    int64_t no, count;
    int n_missing;
    char numbers[48], names[140];

    if (!split_name(path, &prefix, &no, &count))
        return LG_FAIL(err, LG_E_INPUT,
                       "is part %" PRId64 " of %" PRId64 " of a split model; give the parts back their"
                       " names, PREFIX-%05" PRId64 "-of-%05" PRId64 ".gguf, so that the others are found",
                       given->split_no + 1, given->split_count, given->split_no + 1, given->split_count);
    if (count != given->split_count || no != given->split_no)
        return LG_FAIL(err, LG_E_INPUT,
                       "is part %" PRId64 " of %" PRId64 " by its metadata, but %" PRId64 " of %" PRId64
                       " by its name; give it back its name",
                       given->split_no + 1, given->split_count, no + 1, count);
    list_missing(path, count, numbers, sizeof numbers, names, sizeof names, &n_missing);
    if (n_missing)
        return LG_FAIL(err, LG_E_IO, "part%s %s of %" PRId64 " missing: download %s into the same folder",
                       n_missing > 1 ? "s" : "", numbers, count, names);
    return LG_OK;
}
