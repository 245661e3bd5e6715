/*
 * gguf/gguf: bounds-checked reader of GGUF v2 and v3 files, single or split.
 *
 * Opening maps every part, checks every count, length, offset, type and product against the file, and builds
 * an index; tensor data is never touched or copied. All slices and pointers borrow from the maps and live
 * until close. Immutable after open, so any thread may read.
 *
 * Surprise: integer metadata is read through one widening accessor, because writers mix integer types.
 */
#ifndef LG_GGUF_GGUF_H
#define LG_GGUF_GGUF_H

#include "base/err.h"
#include "base/str.h"
#include "gguf/quant.h"

typedef enum lg_gguf_vtype {
    LG_GV_U8,
    LG_GV_I8,
    LG_GV_U16,
    LG_GV_I16,
    LG_GV_U32,
    LG_GV_I32,
    LG_GV_F32,
    LG_GV_BOOL,
    LG_GV_STR,
    LG_GV_ARRAY,
    LG_GV_U64,
    LG_GV_I64,
    LG_GV_F64,
    LG_GV_COUNT,
} lg_gguf_vtype;

typedef struct lg_gguf_kv {
    lg_str key;
    lg_gguf_vtype type;
    lg_gguf_vtype elem;     /* of an array; nested arrays are refused by name at open */
    uint64_t count;         /* of an array */
    const uint8_t *value;   /* first byte of the value or of the first element, unaligned little-endian */
    const uint64_t *str_at; /* arrays of strings: offset of each element's length field from `value` */
} lg_gguf_kv;

typedef struct lg_gguf_tensor {
    lg_str name;
    lg_qtype type;
    int n_dims;
    uint64_t ne[4]; /* ne[0] is the fastest; missing ones are 1 */
    const uint8_t *data;
    size_t bytes;
    int part;        /* 0-based file of a split model */
    uint64_t offset; /* absolute, in that file */
    const struct lg_made *made; /* NULL, or how data would be made: then it is not there (lg_gguf_set_made) */
} lg_gguf_tensor;

typedef struct lg_gguf lg_gguf;

/* `path` may be any part of a split model; the others are found beside it. Errors are about the path. */
LG_NODISCARD lg_status lg_gguf_open(const char *path, lg_gguf **out, lg_err *err);
/* A single-file model that lies in memory: p (aligned to 64, n bytes) is borrowed and must outlive the
 * reader. `name` stands for the path. */
LG_NODISCARD lg_status lg_gguf_open_mem(const char *name, const void *p, size_t n, lg_gguf **out,
                                        lg_err *err);
void lg_gguf_close(lg_gguf *g); /* takes NULL */
/* Of a model in memory whose maker did not fill in tensor i: who loads it makes it. `made`
 * (backend/backend.h) is borrowed and must outlive the reader. */
void lg_gguf_set_made(lg_gguf *g, size_t i, const struct lg_made *made);

int lg_gguf_version(const lg_gguf *g);
int lg_gguf_parts(const lg_gguf *g);
const char *lg_gguf_path(const lg_gguf *g, int part);
uint64_t lg_gguf_file_bytes(const lg_gguf *g); /* all parts */

size_t lg_gguf_n_kv(const lg_gguf *g);
const lg_gguf_kv *lg_gguf_kv_at(const lg_gguf *g, size_t i);
const lg_gguf_kv *lg_gguf_find(const lg_gguf *g, const char *key); /* may return NULL */

size_t lg_gguf_n_tensors(const lg_gguf *g);
const lg_gguf_tensor *lg_gguf_tensor_at(const lg_gguf *g, size_t i);
const lg_gguf_tensor *lg_gguf_find_tensor(const lg_gguf *g, lg_str name); /* may return NULL; hashed */

const char *lg_gguf_vtype_name(lg_gguf_vtype type); /* "u32", "string", "array" */

/* Scalars. False when kv is NULL or the value is of another kind: integers and bool convert among themselves,
 * integers and floats among themselves where the value is kept; out of range is false. A bool is any integer
 * 0 or 1. */
bool lg_kv_i64(const lg_gguf_kv *kv, int64_t *out);
bool lg_kv_f64(const lg_gguf_kv *kv, double *out);
bool lg_kv_bool(const lg_gguf_kv *kv, bool *out);
bool lg_kv_str(const lg_gguf_kv *kv, lg_str *out);
/* Elements of an array, i < kv->count. */
bool lg_kv_elem_i64(const lg_gguf_kv *kv, uint64_t i, int64_t *out);
bool lg_kv_elem_f64(const lg_gguf_kv *kv, uint64_t i, double *out);
bool lg_kv_elem_str(const lg_gguf_kv *kv, uint64_t i, lg_str *out);

#endif
