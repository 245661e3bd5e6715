/*
 * gguf/gguf_write: see gguf_write.h. Metadata is kept serialised, tensors as a list, because their offsets
 * follow from their order; both become the header at begin. The file itself is base/file's atomic output.
 */
#include "gguf/gguf_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { ALIGN = 32, META_MAX = 1 << 30 };

typedef struct declared {
    char *name;
    size_t n_name;
    lg_qtype type;
    int n_dims;
    uint64_t ne[4];
    uint64_t offset, bytes; /* set by layout */
} declared;

struct lg_gguf_writer {
    lg_out *out; /* NULL: header only */
    lg_buf meta;
    uint64_t n_kv;
    declared *tensor;
    size_t n_tensors, cap_tensors;
    bool no_memory;
    size_t current; /* tensor whose data is coming */
    uint64_t done;  /* bytes of it so far */
};

static lg_gguf_writer *create(lg_err *err)
{
    lg_gguf_writer *w = calloc(1, sizeof *w);

    if (w)
        lg_buf_init(&w->meta, META_MAX);
    else
        (void)LG_FAIL(err, LG_E_NOMEM, "out of memory");
    return w;
}

lg_status lg_gguf_write_open(const char *path, lg_gguf_writer **out, lg_err *err)
{
    lg_gguf_writer *w = create(err);

    if (!w)
        return LG_E_NOMEM;
    lg_status st = lg_out_open(path, &w->out, err);
    if (st != LG_OK)
        lg_gguf_write_abort(w);
    else
        *out = w;
    return st;
}

lg_status lg_gguf_write_open_mem(lg_gguf_writer **out, lg_err *err)
{
    lg_gguf_writer *w = create(err);

    if (!w)
        return LG_E_NOMEM;
    *out = w;
    return LG_OK;
}

void lg_gguf_write_abort(lg_gguf_writer *w)
{
    if (!w)
        return;
    lg_out_abort(w->out);
    lg_buf_free(&w->meta);
    for (size_t i = 0; i < w->n_tensors; i++)
        free(w->tensor[i].name);
    free(w->tensor);
    free(w);
}

// --- metadata ---

static void add_le(lg_buf *b, uint64_t v, size_t n)
{
    unsigned char p[8];

    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> 8 * i);
    (void)lg_buf_add(b, p, n); // failure is sticky in the buffer
}

static void add_str(lg_buf *b, lg_str s)
{
    add_le(b, s.n, 8);
    (void)lg_buf_adds(b, s);
}

static void add_key(lg_gguf_writer *w, lg_str key, lg_gguf_vtype type)
{
    add_str(&w->meta, key);
    add_le(&w->meta, type, 4);
    w->n_kv++;
}

static size_t elem_bytes(lg_gguf_vtype type)
{
    static const unsigned char bytes[LG_GV_COUNT] = {
        [LG_GV_U8] = 1,  [LG_GV_I8] = 1,  [LG_GV_BOOL] = 1, [LG_GV_U16] = 2, [LG_GV_I16] = 2, [LG_GV_U32] = 4,
        [LG_GV_I32] = 4, [LG_GV_F32] = 4, [LG_GV_U64] = 8,  [LG_GV_I64] = 8, [LG_GV_F64] = 8,
    };

    return bytes[type];
}

void lg_gguf_put_i64(lg_gguf_writer *w, const char *key, lg_gguf_vtype type, int64_t v)
{
    LG_ASSERT(elem_bytes(type) && type != LG_GV_F32 && type != LG_GV_F64);
    add_key(w, lg_str_of(key), type);
    add_le(&w->meta, (uint64_t)v, elem_bytes(type));
}

void lg_gguf_put_u32(lg_gguf_writer *w, const char *key, uint32_t v)
{
    lg_gguf_put_i64(w, key, LG_GV_U32, v);
}

void lg_gguf_put_bool(lg_gguf_writer *w, const char *key, bool v)
{
    lg_gguf_put_i64(w, key, LG_GV_BOOL, v);
}

void lg_gguf_put_f32(lg_gguf_writer *w, const char *key, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    add_key(w, lg_str_of(key), LG_GV_F32);
    add_le(&w->meta, bits, 4);
}

void lg_gguf_put_str(lg_gguf_writer *w, const char *key, lg_str v)
{
    add_key(w, lg_str_of(key), LG_GV_STR);
    add_str(&w->meta, v);
}

void lg_gguf_put_array(lg_gguf_writer *w, const char *key, lg_gguf_vtype elem, const void *data, uint64_t n)
{
    LG_ASSERT(elem_bytes(elem) && n <= META_MAX);
    add_key(w, lg_str_of(key), LG_GV_ARRAY);
    add_le(&w->meta, elem, 4);
    add_le(&w->meta, n, 8);
    (void)lg_buf_add(&w->meta, data, (size_t)n * elem_bytes(elem));
}

void lg_gguf_put_strs(lg_gguf_writer *w, const char *key, const lg_str *v, uint64_t n)
{
    add_key(w, lg_str_of(key), LG_GV_ARRAY);
    add_le(&w->meta, LG_GV_STR, 4);
    add_le(&w->meta, n, 8);
    for (uint64_t i = 0; i < n; i++)
        add_str(&w->meta, v[i]);
}

void lg_gguf_put_copy(lg_gguf_writer *w, const lg_gguf_kv *kv)
{
    lg_str s = {0};

    add_key(w, kv->key, kv->type);
    if (kv->type == LG_GV_ARRAY) {
        add_le(&w->meta, kv->elem, 4);
        add_le(&w->meta, kv->count, 8);
        for (uint64_t i = 0; i < kv->count && lg_kv_elem_str(kv, i, &s); i++)
            add_str(&w->meta, s);
        if (kv->elem != LG_GV_STR)
            (void)lg_buf_add(&w->meta, kv->value, (size_t)kv->count * elem_bytes(kv->elem));
    } else if (lg_kv_str(kv, &s)) {
        add_str(&w->meta, s);
    } else {
        (void)lg_buf_add(&w->meta, kv->value, elem_bytes(kv->type));
    }
}

void lg_gguf_put_tensor(lg_gguf_writer *w, lg_str name, lg_qtype type, int n_dims, const uint64_t *ne)
{
    declared t = {.n_name = name.n, .type = type, .n_dims = n_dims, .ne = {1, 1, 1, 1}};

    LG_ASSERT(n_dims >= 1 && n_dims <= 4);
    memcpy(t.ne, ne, (size_t)n_dims * sizeof *ne);
    if (w->n_tensors == w->cap_tensors) {
        size_t cap = w->cap_tensors ? w->cap_tensors * 2 : 64;
        declared *p = realloc(w->tensor, cap * sizeof *p);
        if (!p) {
            w->no_memory = true;
            return;
        }
        w->tensor = p;
        w->cap_tensors = cap;
    }
    t.name = malloc(name.n + 1);
    if (!t.name) {
        w->no_memory = true;
        return;
    }
    memcpy(t.name, name.p, name.n);
    w->tensor[w->n_tensors++] = t;
}

// --- header and data ---

static uint64_t aligned(uint64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

// Sizes and offsets of all tensors; *data_bytes is the size of the data section, padding included.
static lg_status layout(lg_gguf_writer *w, uint64_t *data_bytes, lg_err *err)
{
    uint64_t at = 0;

    for (size_t i = 0; i < w->n_tensors; i++) {
        declared *t = &w->tensor[i];
        size_t bytes;
        bool ok = lg_row_bytes(t->type, t->ne[0], &bytes);

        for (int d = 1; d < 4 && ok; d++)
            ok = t->ne[d] <= SIZE_MAX && lg_mul_size(bytes, (size_t)t->ne[d], &bytes);
        if (!ok || bytes == 0 || bytes > INT64_MAX - ALIGN - at)
            return LG_FAIL(err, LG_E_INPUT,
                           "tensor %.*s [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "] cannot be"
                           " stored as %s",
                           (int)(t->n_name < 100 ? t->n_name : 100), t->name, t->ne[0], t->ne[1], t->ne[2],
                           t->ne[3], lg_qtype_get((uint32_t)t->type)->name);
        t->offset = at;
        t->bytes = bytes;
        at = aligned(at + bytes);
    }
    *data_bytes = at;
    return LG_OK;
}

lg_status lg_gguf_write_header(lg_gguf_writer *w, lg_buf *out, uint64_t *file_bytes, lg_err *err)
{
    static const char zeros[ALIGN];
    uint64_t data_bytes = 0;
    size_t start = out->n;

    if (w->no_memory || w->meta.failed)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for the metadata");
    LG_TRY(layout(w, &data_bytes, err));
    (void)lg_buf_add(out, "GGUF", 4);
    add_le(out, 3, 4);
    add_le(out, w->n_tensors, 8);
    add_le(out, w->n_kv, 8);
    (void)lg_buf_add(out, w->meta.p, w->meta.n);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const declared *t = &w->tensor[i];

        add_str(out, (lg_str){t->name, t->n_name});
        add_le(out, (uint64_t)t->n_dims, 4);
        for (int d = 0; d < t->n_dims; d++)
            add_le(out, t->ne[d], 8);
        add_le(out, t->type, 4);
        add_le(out, t->offset, 8);
    }
    (void)lg_buf_add(out, zeros, (size_t)(aligned(out->n - start) - (out->n - start)));
    if (out->failed)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory for the metadata");
    *file_bytes = out->n - start + data_bytes;
    return LG_OK;
}

lg_status lg_gguf_write_begin(lg_gguf_writer *w, lg_err *err)
{
    lg_buf header;
    uint64_t file_bytes;

    LG_ASSERT(w->out);
    lg_buf_init(&header, META_MAX + (size_t)META_MAX / 2);
    lg_status st = lg_gguf_write_header(w, &header, &file_bytes, err);
    if (st == LG_OK)
        lg_out_write(w->out, header.p, header.n);
    lg_buf_free(&header);
    return st;
}

bool lg_gguf_write_data(lg_gguf_writer *w, const void *p, size_t n)
{
    static const char zeros[ALIGN];
    const char *from = p;

    while (n) {
        LG_ASSERT(w->current < w->n_tensors);
        const declared *t = &w->tensor[w->current];
        size_t part = n < t->bytes - w->done ? n : (size_t)(t->bytes - w->done);

        lg_out_write(w->out, from, part);
        from += part;
        n -= part;
        w->done += part;
        if (w->done == t->bytes) {
            lg_out_write(w->out, zeros, (size_t)(aligned(t->bytes) - t->bytes));
            w->current++;
            w->done = 0;
        }
    }
    return !lg_out_failed(w->out);
}

lg_status lg_gguf_write_finish(lg_gguf_writer *w, lg_err *err)
{
    // a producer that stopped early because of a failed write gets that failure from commit
    LG_ASSERT(w->current == w->n_tensors || lg_out_failed(w->out));
    lg_status st = lg_out_commit(w->out, err);
    w->out = NULL;
    lg_gguf_write_abort(w);
    return st;
}
