/*
 * gguf/gguf_parse: one part's header, metadata and tensor table.
 *
 * Nothing is believed before it was compared with the bytes that are left: counts only bound loops that
 * consume bytes, and lists grow with what was read, so that memory stays a small multiple of the bytes of the
 * table itself.
 *
 * Surprise: tensor data is never touched here, only its place is checked, so that opening a large file
 * reads a few pages.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf_int.h"

// --- reading ---

typedef struct cursor {
    const uint8_t *p;
    size_t n, pos;
} cursor;

static bool take(cursor *c, size_t n, const uint8_t **out)
{
    if (n > c->n - c->pos)
        return false;
    *out = c->p + c->pos;
    c->pos += n;
    return true;
}

static uint64_t le(const uint8_t *p, int n)
{
    uint64_t v = 0;

    for (int i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static bool take_u32(cursor *c, uint32_t *v)
{
    const uint8_t *p;

    if (!take(c, 4, &p))
        return false;
    *v = (uint32_t)le(p, 4);
    return true;
}

static bool take_u64(cursor *c, uint64_t *v)
{
    const uint8_t *p;

    if (!take(c, 8, &p))
        return false;
    *v = le(p, 8);
    return true;
}

static bool take_str(cursor *c, lg_str *s)
{
    uint64_t n;
    const uint8_t *p;

    if (!take_u64(c, &n) || n > SIZE_MAX || !take(c, (size_t)n, &p))
        return false;
    *s = (lg_str){(const char *)p, (size_t)n};
    return true;
}

// --- growing lists ---

static bool grow(void **at, size_t *cap, size_t size)
{
    size_t want = *cap ? *cap * 2 : 16;
    void *p = realloc(*at, want * size);

    if (!p)
        return false;
    *at = p;
    *cap = want;
    return true;
}

void lg_kv_list_free(lg_kv_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free((void *)(uintptr_t)l->at[i].str_at);
    free(l->at);
    free(l->index.slot);
    *l = (lg_kv_list){0};
}

// --- metadata ---

static size_t scalar_bytes(uint32_t type)
{
    switch (type) {
    case LG_GV_U8:
    case LG_GV_I8:
    case LG_GV_BOOL:
        return 1;
    case LG_GV_U16:
    case LG_GV_I16:
        return 2;
    case LG_GV_U32:
    case LG_GV_I32:
    case LG_GV_F32:
        return 4;
    case LG_GV_U64:
    case LG_GV_I64:
    case LG_GV_F64:
        return 8;
    default:
        return 0;
    }
}

static lg_status fail_ends(lg_err *err, lg_str key)
{
    return LG_FAIL(err, LG_E_INPUT, "the file ends inside the value of key %.*s; it is truncated or damaged",
                   LG_SHOW(key));
}

// Walks the strings of an array and notes where each begins. `n` is already known to fit the bytes left.
static lg_status read_strings(cursor *c, lg_kv_list *l, lg_gguf_kv *kv, lg_err *err)
{
    uint64_t *at;

    if (kv->count > MAX_STRINGS - l->n_strings)
        return LG_FAIL(err, LG_E_LIMIT, "key %.*s: more than %d strings in the metadata", LG_SHOW(kv->key),
                       MAX_STRINGS);
    at = malloc(((size_t)kv->count + 1) * sizeof *at);
    if (!at)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for the strings of key %.*s", LG_SHOW(kv->key));
    for (uint64_t i = 0; i < kv->count; i++) {
        lg_str s;

        at[i] = c->pos - (size_t)(kv->value - c->p);
        if (!take_str(c, &s)) {
            free(at);
            return fail_ends(err, kv->key);
        }
    }
    kv->str_at = at;
    l->n_strings += (size_t)kv->count;
    return LG_OK;
}

static lg_status read_array(cursor *c, lg_kv_list *l, lg_gguf_kv *kv, lg_err *err)
{
    uint32_t elem;
    const uint8_t *skip;

    if (!take_u32(c, &elem) || !take_u64(c, &kv->count))
        return fail_ends(err, kv->key);
    if (elem == LG_GV_ARRAY)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "key %.*s is an array of arrays, which is not supported",
                       LG_SHOW(kv->key));
    if (elem >= LG_GV_COUNT)
        return LG_FAIL(err, LG_E_INPUT, "key %.*s is an array of unknown type %" PRIu32, LG_SHOW(kv->key),
                       elem);
    size_t each = elem == LG_GV_STR ? 8 : scalar_bytes(elem); // a string takes at least its length field
    if (kv->count > (c->n - c->pos) / each)
        return LG_FAIL(err, LG_E_INPUT,
                       "key %.*s claims %" PRIu64 " elements, but only %zu bytes are left in the file",
                       LG_SHOW(kv->key), kv->count, c->n - c->pos);
    kv->elem = (lg_gguf_vtype)elem;
    kv->value = c->p + c->pos;
    if (elem == LG_GV_STR)
        return read_strings(c, l, kv, err);
    return take(c, (size_t)kv->count * each, &skip) ? LG_OK : fail_ends(err, kv->key);
}

static lg_status read_value(cursor *c, lg_kv_list *l, lg_gguf_kv *kv, lg_err *err)
{
    uint32_t type;
    lg_str s;

    if (!take_u32(c, &type))
        return fail_ends(err, kv->key);
    if (type >= LG_GV_COUNT)
        return LG_FAIL(err, LG_E_INPUT, "key %.*s has unknown value type %" PRIu32, LG_SHOW(kv->key), type);
    kv->type = (lg_gguf_vtype)type;
    if (type == LG_GV_ARRAY)
        return read_array(c, l, kv, err);
    kv->value = c->p + c->pos;
    if (type == LG_GV_STR)
        return take_str(c, &s) ? LG_OK : fail_ends(err, kv->key);
    return take(c, scalar_bytes(type), &kv->value) ? LG_OK : fail_ends(err, kv->key);
}

static lg_status read_kv(cursor *c, lg_kv_list *l, uint64_t i, uint64_t n, lg_err *err)
{
    lg_gguf_kv kv = {0};

    if (!take_str(c, &kv.key))
        return LG_FAIL(err, LG_E_INPUT,
                       "the file ends inside the name of key %" PRIu64 " of %" PRIu64
                       "; it is truncated or damaged",
                       i + 1, n);
    if (kv.key.n == 0 || kv.key.n > MAX_NAME)
        return LG_FAIL(err, LG_E_INPUT,
                       "key %" PRIu64 " of %" PRIu64 " has a name of %zu bytes; 1 to %d are allowed", i + 1,
                       n, kv.key.n, MAX_NAME);
    if (lg_index_find(&l->index, l->at, sizeof *l->at, kv.key) != SIZE_MAX)
        return LG_FAIL(err, LG_E_INPUT, "key %.*s occurs twice", LG_SHOW(kv.key));
    LG_TRY(read_value(c, l, &kv, err));
    if ((l->n == l->cap && !grow((void **)&l->at, &l->cap, sizeof *l->at))) {
        free((void *)(uintptr_t)kv.str_at);
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for the metadata");
    }
    l->at[l->n++] = kv; // owned by the list from here on
    if (!lg_index_add(&l->index, l->at, sizeof *l->at, l->n - 1))
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for the metadata");
    return LG_OK;
}

// --- values that the container itself uses ---

// An optional integer key in [min, max]; *out is untouched when it is absent.
static lg_status int_key(const lg_kv_list *l, const char *name, int64_t min, int64_t max, int64_t *out,
                         lg_err *err)
{
    size_t i = lg_index_find(&l->index, l->at, sizeof *l->at, lg_str_of(name));
    int64_t v;

    if (i == SIZE_MAX)
        return LG_OK;
    if (!lg_kv_i64(&l->at[i], &v))
        return LG_FAIL(err, LG_E_INPUT, "key %s has type %s; an integer is needed", name,
                       lg_gguf_vtype_name(l->at[i].type));
    if (v < min || v > max)
        return LG_FAIL(err, LG_E_INPUT, "key %s is %" PRId64 "; %" PRId64 " to %" PRId64 " are allowed", name,
                       v, min, max);
    *out = v;
    return LG_OK;
}

static lg_status read_own_keys(lg_gguf_part *p, lg_err *err)
{
    int64_t align = ALIGN_DEFAULT;

    LG_TRY(int_key(&p->kv, "general.alignment", 8, MAX_ALIGN, &align, err));
    if (align & (align - 1))
        return LG_FAIL(err, LG_E_INPUT, "key general.alignment is %" PRId64 "; a power of two is needed",
                       align);
    p->align = (size_t)align;
    p->split_no = -1;
    p->split_count = 0;
    p->split_tensors = -1;
    LG_TRY(int_key(&p->kv, "split.count", 0, MAX_PARTS, &p->split_count, err));
    if (p->split_count <= 1) {
        p->split_count = 0;
        return LG_OK;
    }
    LG_TRY(int_key(&p->kv, "split.no", 0, p->split_count - 1, &p->split_no, err));
    LG_TRY(int_key(&p->kv, "split.tensors.count", 0, MAX_TENSORS, &p->split_tensors, err));
    if (p->split_no < 0)
        return LG_FAIL(err, LG_E_INPUT, "key split.no is missing in a part of a split model");
    return LG_OK;
}

// --- tensors ---

// Shape, type and place of one entry of the tensor table; `t->offset` is still relative to the data section.
static lg_status read_tensor(cursor *c, lg_tensor_list *l, lg_gguf_tensor *t, uint64_t i, uint64_t n,
                             lg_err *err)
{
    uint32_t dims = 0, type = 0;
    uint64_t rows = 1;
    size_t row_bytes;

    *t = (lg_gguf_tensor){.ne = {1, 1, 1, 1}};
    if (!take_str(c, &t->name) || !take_u32(c, &dims))
        return LG_FAIL(err, LG_E_INPUT,
                       "the file ends inside entry %" PRIu64 " of %" PRIu64
                       " of the tensor table; it is truncated or damaged",
                       i + 1, n);
    if (t->name.n == 0 || t->name.n > MAX_NAME)
        return LG_FAIL(err, LG_E_INPUT,
                       "tensor %" PRIu64 " of %" PRIu64 " has a name of %zu bytes; 1 to %d are allowed",
                       i + 1, n, t->name.n, MAX_NAME);
    if (dims < 1 || dims > 4)
        return LG_FAIL(err, LG_E_INPUT, "tensor %.*s has %" PRIu32 " dimensions; 1 to 4 are allowed",
                       LG_SHOW(t->name), dims);
    t->n_dims = (int)dims;
    for (uint32_t d = 0; d < dims; d++)
        if (!take_u64(c, &t->ne[d]))
            return LG_FAIL(err, LG_E_INPUT, "the file ends inside the shape of tensor %.*s",
                           LG_SHOW(t->name));
    if (!take_u32(c, &type) || !take_u64(c, &t->offset))
        return LG_FAIL(err, LG_E_INPUT, "the file ends inside the entry of tensor %.*s", LG_SHOW(t->name));
    if (lg_index_find(&l->index, l->at, sizeof *l->at, t->name) != SIZE_MAX)
        return LG_FAIL(err, LG_E_INPUT, "tensor %.*s occurs twice", LG_SHOW(t->name));

    const lg_qtype_info *info = lg_qtype_get(type);
    if (!info->name)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "tensor %.*s has unknown type %" PRIu32, LG_SHOW(t->name),
                       type);
    t->type = (lg_qtype)type;
    if (t->ne[0] % (uint64_t)info->block_elems)
        return LG_FAIL(err, LG_E_INPUT,
                       "tensor %.*s has rows of %" PRIu64 " elements; type %s needs a multiple of %d",
                       LG_SHOW(t->name), t->ne[0], info->name, info->block_elems);
    for (int d = 0; d < 4; d++)
        if (t->ne[d] == 0)
            return LG_FAIL(err, LG_E_INPUT, "tensor %.*s has a dimension of size 0", LG_SHOW(t->name));
    for (int d = 1; d < 4; d++)
        if (__builtin_mul_overflow(rows, t->ne[d], &rows))
            return LG_FAIL(err, LG_E_INPUT, "the size of tensor %.*s overflows", LG_SHOW(t->name));
    if (rows > SIZE_MAX || !lg_row_bytes(t->type, t->ne[0], &row_bytes) ||
        !lg_mul_size(row_bytes, (size_t)rows, &t->bytes))
        return LG_FAIL(err, LG_E_INPUT, "the size of tensor %.*s overflows", LG_SHOW(t->name));
    return LG_OK;
}

static lg_status read_table(cursor *c, lg_tensor_list *l, int part, uint64_t n, lg_err *err)
{
    for (uint64_t i = 0; i < n; i++) {
        lg_gguf_tensor t;

        LG_TRY(read_tensor(c, l, &t, i, n, err));
        t.part = part;
        if (l->n == l->cap && !grow((void **)&l->at, &l->cap, sizeof *l->at))
            return LG_FAIL(err, LG_E_NOMEM, "out of memory for the tensor table");
        l->at[l->n++] = t;
        if (!lg_index_add(&l->index, l->at, sizeof *l->at, l->n - 1))
            return LG_FAIL(err, LG_E_NOMEM, "out of memory for the tensor table");
    }
    return LG_OK;
}

static int by_offset(const void *a, const void *b)
{
    const lg_gguf_tensor *x = *(const lg_gguf_tensor *const *)a, *y = *(const lg_gguf_tensor *const *)b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static lg_status check_overlap(const lg_gguf_tensor *t, size_t n, lg_err *err)
{
    lg_status st = LG_OK;
    const lg_gguf_tensor **order = malloc((n + 1) * sizeof(*order));

    if (!order)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for the tensor table");
    for (size_t i = 0; i < n; i++)
        order[i] = &t[i];
    qsort(order, n, sizeof(*order), by_offset);
    for (size_t i = 1; i < n && st == LG_OK; i++)
        if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
            st = LG_FAIL(err, LG_E_INPUT, "tensor %.*s overlaps tensor %.*s", LG_SHOW(order[i]->name),
                         LG_SHOW(order[i - 1]->name));
    free(order);
    return st;
}

// Turns relative offsets into absolute ones and pointers, checked against the file and against each other.
static lg_status place_tensors(lg_gguf_part *p, lg_gguf_tensor *t, size_t n, lg_err *err)
{
    const lg_gguf_tensor *first_cut = NULL;
    uint64_t need = p->data_at;

    for (size_t i = 0; i < n; i++) {
        uint64_t at, end;

        if (t[i].offset % p->align)
            return LG_FAIL(err, LG_E_INPUT,
                           "tensor %.*s has offset %" PRIu64 ", which is no multiple of the alignment %zu",
                           LG_SHOW(t[i].name), t[i].offset, p->align);
        if (__builtin_add_overflow((uint64_t)p->data_at, t[i].offset, &at) ||
            __builtin_add_overflow(at, (uint64_t)t[i].bytes, &end))
            return LG_FAIL(err, LG_E_INPUT,
                           "tensor %.*s has offset %" PRIu64 ", which overflows with its %zu bytes",
                           LG_SHOW(t[i].name), t[i].offset, t[i].bytes);
        t[i].offset = at;
        if (end > p->map.n && (!first_cut || at < first_cut->offset))
            first_cut = &t[i];
        need = end > need ? end : need;
    }
    if (first_cut)
        return LG_FAIL(err, LG_E_INPUT,
                       "tensor %.*s lies behind the end of the file: %" PRIu64
                       " bytes are missing; is the download complete?",
                       LG_SHOW(first_cut->name), need - p->map.n);
    LG_TRY(check_overlap(t, n, err));
    for (size_t i = 0; i < n; i++)
        t[i].data = p->map.p + t[i].offset;
    p->data_end = (size_t)need;
    return LG_OK;
}

// --- header ---

static lg_status check_magic(const lg_map *m, lg_err *err)
{
    const char *what = NULL;

    if (m->n >= 4 && !memcmp(m->p, "GGUF", 4)) {
        if (m->n >= HEADER_BYTES)
            return LG_OK;
        return LG_FAIL(err, LG_E_INPUT, "has %zu bytes, too few for a GGUF header; is the download complete?",
                       m->n);
    }
    if (m->n >= 4 && !memcmp(m->p, "FUGG", 4))
        what = "a big-endian GGUF file; little-endian ones are supported";
    else if (m->n >= 12 && !memcmp(m->p, "version http", 12))
        what = "a Git LFS pointer; download the file that it stands for";
    else if (m->n >= 9 && m->p[8] == '{')
        what = "not a GGUF file, it looks like safetensors; convert it first";
    else if (m->n && m->p[0] == '<')
        what = "not a GGUF file, it looks like a web page";
    else if (m->n == 0)
        what = "empty";
    if (what)
        return LG_FAIL(err, LG_E_INPUT, "is %s", what);
    return LG_FAIL(err, LG_E_INPUT, "not a GGUF file (starts with \"%.*s\"); see 'lagoon inspect --help'",
                   (int)(m->n < 5 ? m->n : 5), (const char *)m->p);
}

static lg_status check_version(uint32_t v, lg_err *err)
{
    if (v == 2 || v == 3)
        return LG_OK;
    if (v == 1)
        return LG_FAIL(err, LG_E_UNSUPPORTED,
                       "is GGUF version 1, which is no longer in use; convert the model again");
    if (v >= 1u << 16)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "is a big-endian GGUF file; little-endian ones are supported");
    return LG_FAIL(err, LG_E_UNSUPPORTED, "is GGUF version %" PRIu32 "; versions 2 and 3 are supported", v);
}

lg_status lg_gguf_parse_part(lg_gguf_part *p, int part, lg_tensor_list *tensors, lg_err *err)
{
    cursor c = {p->map.p, p->map.n, 4};
    uint64_t n_tensors = 0, n_kv = 0;
    size_t first = tensors->n;

    LG_TRY(check_magic(&p->map, err));
    bool whole = take_u32(&c, &p->version) && take_u64(&c, &n_tensors) && take_u64(&c, &n_kv);
    LG_ASSERT(whole); // check_magic saw HEADER_BYTES
    LG_TRY(check_version(p->version, err));
    if (n_tensors > MAX_TENSORS - first)
        return LG_FAIL(err, LG_E_INPUT, "claims %" PRIu64 " tensors; at most %d are allowed", n_tensors,
                       MAX_TENSORS);
    if (n_kv > MAX_KV)
        return LG_FAIL(err, LG_E_INPUT, "claims %" PRIu64 " metadata keys; at most %d are allowed", n_kv,
                       MAX_KV);
    for (uint64_t i = 0; i < n_kv; i++)
        LG_TRY(read_kv(&c, &p->kv, i, n_kv, err));
    LG_TRY(read_own_keys(p, err));
    LG_TRY(read_table(&c, tensors, part, n_tensors, err));
    p->data_at = c.pos + (p->align - c.pos % p->align) % p->align;
    p->data_end = p->data_at;
    return tensors->n > first ? place_tensors(p, tensors->at + first, tensors->n - first, err) : LG_OK;
}
