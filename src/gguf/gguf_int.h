/*
 * gguf/gguf_int: what the three files of the reader share (gguf.c: opening and look-up, gguf_parse.c: one
 * part's header, gguf_parts.c: names and consistency of split files). Private to gguf/.
 */
#ifndef LG_GGUF_GGUF_INT_H
#define LG_GGUF_GGUF_INT_H

#include "base/file.h"
#include "gguf/gguf.h"

/* Far above any real file, low enough that a hostile one costs little: real models have some 1000 tensors and
 * 60 keys, vocabularies some 10^5 strings. */
enum {
    MAX_KV = 1 << 16,
    MAX_TENSORS = 1 << 16,
    MAX_NAME = 1 << 16,    /* bytes of a key or a tensor name */
    MAX_STRINGS = 1 << 24, /* in all string arrays of a part together */
    MAX_PARTS = 1000,
    MAX_ALIGN = 1 << 20,
    HEADER_BYTES = 24,
    ALIGN_DEFAULT = 32,
};

/* Open-addressing hash from names to positions in an array whose elements begin with an lg_str. */
typedef struct lg_name_index {
    uint32_t *slot; /* position + 1; 0 is free */
    size_t n_slots; /* a power of two, or 0 */
    size_t n;
} lg_name_index;

typedef struct lg_kv_list {
    lg_gguf_kv *at;
    size_t n, cap;
    size_t n_strings; /* elements of string arrays so far */
    lg_name_index index;
} lg_kv_list;

typedef struct lg_tensor_list {
    lg_gguf_tensor *at;
    size_t n, cap;
    lg_name_index index;
} lg_tensor_list;

typedef struct lg_gguf_part {
    char *path;
    lg_map map;
    bool mapped; /* the map is ours to close */
    uint32_t version;
    size_t align;
    size_t data_at;  /* first byte of tensor data */
    size_t data_end; /* behind the last tensor; data_at when there is none */
    lg_kv_list kv;
    int64_t split_no, split_count, split_tensors; /* split_count 0: not part of a split model */
} lg_gguf_part;

struct lg_gguf {
    lg_gguf_part *part;
    int n_parts;
    lg_tensor_list tensors; /* of all parts */
    uint64_t file_bytes;
};

/* For messages: at most 100 bytes of a name, as the two arguments of "%.*s". */
#define LG_SHOW(s) (int)((s).n < 100 ? (s).n : 100), (s).p

/* Position of a name, or SIZE_MAX. `base` is the array, `stride` the size of its elements. */
size_t lg_index_find(const lg_name_index *ix, const void *base, size_t stride, lg_str name);
/* Adds element `i`, whose name is not in the index yet. False: out of memory. */
bool lg_index_add(lg_name_index *ix, const void *base, size_t stride, size_t i);

/* Header, metadata and tensor table of p->map, all checked; tensors are appended to `tensors` as those of
 * `part`. */
LG_NODISCARD lg_status lg_gguf_parse_part(lg_gguf_part *p, int part, lg_tensor_list *tensors, lg_err *err);
void lg_kv_list_free(lg_kv_list *l);

/* Split models. The name of part `no` (0-based) of `count` beside `path`, which is one of them; NULL when
 * path is not of the form PREFIX-00001-of-00003.gguf with that count, or out of memory. Caller frees. */
char *lg_gguf_part_path(const char *path, int64_t no, int64_t count);
/* What stands behind the data of a part: joined files are an error. */
LG_NODISCARD lg_status lg_gguf_check_tail(const lg_gguf_part *p, lg_err *err);
/* Whether all parts beside `path` exist; else an error that names the missing ones. */
LG_NODISCARD lg_status lg_gguf_check_siblings(const char *path, const lg_gguf_part *given, lg_err *err);

#endif
