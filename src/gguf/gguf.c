/*
 * gguf/gguf: see gguf.h. This file opens one file or all parts of a split model, joins their tensor tables
 * and answers look-ups; gguf_parse.c reads a part's header, gguf_value.c converts metadata values.
 */
#include "gguf/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf_int.h"

// --- name index ---

static lg_str name_at(const void *base, size_t stride, size_t i)
{
    lg_str s;

    memcpy(&s, (const char *)base + i * stride, sizeof s);
    return s;
}

// FNV-1a, its bits mixed once more because the table uses the low ones.
static uint64_t hash(lg_str s)
{
    uint64_t h = 0xCBF29CE484222325u;

    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 0x100000001B3u;
    return h ^ h >> 32;
}

// The slot that holds the name, or the free one where it belongs.
static size_t slot_of(const lg_name_index *ix, const void *base, size_t stride, lg_str name)
{
    size_t s = (size_t)hash(name) & (ix->n_slots - 1);

    while (ix->slot[s] && !lg_str_eq(name_at(base, stride, ix->slot[s] - 1), name))
        s = (s + 1) & (ix->n_slots - 1);
    return s;
}

size_t lg_index_find(const lg_name_index *ix, const void *base, size_t stride, lg_str name)
{
    if (ix->n_slots == 0)
        return SIZE_MAX;
    uint32_t at = ix->slot[slot_of(ix, base, stride, name)];
    return at ? at - 1 : SIZE_MAX;
}

bool lg_index_add(lg_name_index *ix, const void *base, size_t stride, size_t i)
{
    if (ix->n * 2 >= ix->n_slots) {
        lg_name_index bigger = {.n_slots = ix->n_slots ? ix->n_slots * 2 : 32};

        bigger.slot = calloc(bigger.n_slots, sizeof *bigger.slot);
        if (!bigger.slot)
            return false;
        for (size_t s = 0; s < ix->n_slots; s++)
            if (ix->slot[s])
                bigger.slot[slot_of(&bigger, base, stride, name_at(base, stride, ix->slot[s] - 1))] =
                    ix->slot[s];
        bigger.n = ix->n;
        free(ix->slot);
        *ix = bigger;
    }
    ix->slot[slot_of(ix, base, stride, name_at(base, stride, i))] = (uint32_t)(i + 1);
    ix->n++;
    return true;
}

// --- opening ---

static lg_gguf *create(int n_parts)
{
    lg_gguf *g = calloc(1, sizeof *g);

    if (g) {
        g->part = calloc((size_t)n_parts, sizeof *g->part);
        g->n_parts = n_parts;
    }
    if (g && !g->part) {
        free(g);
        g = NULL;
    }
    return g;
}

static void free_part(lg_gguf_part *p)
{
    if (p->mapped)
        lg_map_close(&p->map);
    lg_kv_list_free(&p->kv);
    free(p->path);
    *p = (lg_gguf_part){0};
}

void lg_gguf_close(lg_gguf *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_parts; i++)
        free_part(&g->part[i]);
    free(g->part);
    free(g->tensors.at);
    free(g->tensors.index.slot);
    free(g);
}

// Maps and reads part `i` from `path`, which is taken.
static lg_status open_part(lg_gguf *g, int i, char *path, lg_err *err)
{
    lg_gguf_part *p = &g->part[i];

    p->path = path;
    if (!path)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    LG_TRY(lg_map_open(path, &p->map, err));
    p->mapped = true;
    g->file_bytes += p->map.n;
    lg_status st = lg_gguf_parse_part(p, i, &g->tensors, err);
    if (st == LG_OK)
        st = lg_gguf_check_tail(p, err);
    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", path);
    return st;
}

static lg_status check_part(const lg_gguf *g, int i, lg_err *err)
{
    const lg_gguf_part *p = &g->part[i];

    if (p->split_count != g->n_parts || p->split_no != i) {
        lg_status st = LG_FAIL(err, LG_E_INPUT,
                               "says that it is part %" PRId64 " of %" PRId64 ", its name says %d of %d",
                               p->split_no + 1, p->split_count, i + 1, g->n_parts);
        (void)lg_err_subject(err, "%s", p->path);
        return st;
    }
    return LG_OK;
}

// All parts in order, after one of them (`path`, read as `given`) said that the model is split.
static lg_status open_parts(const char *path, const lg_gguf_part *given, lg_gguf **out, lg_err *err)
{
    lg_status st = lg_gguf_check_siblings(path, given, err);
    int n = (int)given->split_count;
    lg_gguf *g = NULL;

    if (st != LG_OK)
        goto out;
    g = create(n);
    if (!g) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
        goto out;
    }
    for (int i = 0; i < n && st == LG_OK; i++) {
        st = open_part(g, i, lg_gguf_part_path(path, i, n), err);
        if (st == LG_OK)
            st = check_part(g, i, err);
        if (st == LG_OK && i > 0)
            lg_kv_list_free(&g->part[i].kv); // only the first part's metadata counts
    }
    if (st == LG_OK && g->part[0].split_tensors >= 0 && (uint64_t)g->part[0].split_tensors != g->tensors.n)
        st = LG_FAIL(err, LG_E_INPUT,
                     "the parts hold %zu tensors together, key split.tensors.count says %" PRId64,
                     g->tensors.n, g->part[0].split_tensors);
    if (st == LG_OK) {
        *out = g;
        g = NULL;
    }
out:
    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", path);
    lg_gguf_close(g);
    return st;
}

lg_status lg_gguf_open(const char *path, lg_gguf **out, lg_err *err)
{
    lg_status st;
    lg_gguf *g = create(1);

    if (!g)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    st = open_part(g, 0, strdup(path), err);
    if (st == LG_OK && g->part[0].split_count) {
        st = open_parts(path, &g->part[0], out, err);
    } else if (st == LG_OK) {
        *out = g;
        g = NULL;
    }
    lg_gguf_close(g);
    return st;
}

lg_status lg_gguf_open_mem(const char *name, const void *p, size_t n, lg_gguf **out, lg_err *err)
{
    lg_status st = LG_OK;
    lg_gguf *g = create(1);

    if (!g || !(g->part[0].path = strdup(name))) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
        goto out;
    }
    g->part[0].map = (lg_map){.p = p, .n = n};
    g->file_bytes = n;
    st = lg_gguf_parse_part(&g->part[0], 0, &g->tensors, err);
    if (st == LG_OK)
        st = lg_gguf_check_tail(&g->part[0], err);
    if (st == LG_OK && g->part[0].split_count)
        st = LG_FAIL(err, LG_E_UNSUPPORTED, "is part of a split model; in memory it must be whole");
    if (st == LG_OK) {
        *out = g;
        g = NULL;
    }
out:
    lg_gguf_close(g);
    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", name);
    return st;
}

// --- looking ---

int lg_gguf_version(const lg_gguf *g)
{
    return (int)g->part[0].version;
}

int lg_gguf_parts(const lg_gguf *g)
{
    return g->n_parts;
}

const char *lg_gguf_path(const lg_gguf *g, int part)
{
    return g->part[part].path;
}

uint64_t lg_gguf_file_bytes(const lg_gguf *g)
{
    return g->file_bytes;
}

size_t lg_gguf_n_kv(const lg_gguf *g)
{
    return g->part[0].kv.n;
}

const lg_gguf_kv *lg_gguf_kv_at(const lg_gguf *g, size_t i)
{
    return &g->part[0].kv.at[i];
}

const lg_gguf_kv *lg_gguf_find(const lg_gguf *g, const char *key)
{
    const lg_kv_list *l = &g->part[0].kv;
    size_t i = lg_index_find(&l->index, l->at, sizeof *l->at, lg_str_of(key));

    return i == SIZE_MAX ? NULL : &l->at[i];
}

size_t lg_gguf_n_tensors(const lg_gguf *g)
{
    return g->tensors.n;
}

const lg_gguf_tensor *lg_gguf_tensor_at(const lg_gguf *g, size_t i)
{
    return &g->tensors.at[i];
}

void lg_gguf_set_made(lg_gguf *g, size_t i, const struct lg_made *made)
{
    g->tensors.at[i].made = made;
}

const lg_gguf_tensor *lg_gguf_find_tensor(const lg_gguf *g, lg_str name)
{
    size_t i = lg_index_find(&g->tensors.index, g->tensors.at, sizeof *g->tensors.at, name);

    return i == SIZE_MAX ? NULL : &g->tensors.at[i];
}
