/*
 * gguf/gguf_write: streaming writer of single-file GGUF v3, used by synth, convert and quantize.
 *
 * Keys and tensor descriptions first, then lg_gguf_write_begin writes the header, then the data of each
 * tensor in the order it was declared. The file appears under its name only after finish; a failure leaves
 * nothing behind. A writer belongs to one thread.
 */
#ifndef LG_GGUF_GGUF_WRITE_H
#define LG_GGUF_GGUF_WRITE_H

#include "base/buf.h"
#include "gguf/gguf.h"

typedef struct lg_gguf_writer lg_gguf_writer;

LG_NODISCARD lg_status lg_gguf_write_open(const char *path, lg_gguf_writer **out, lg_err *err);
/* A writer for lg_gguf_write_header alone, without a file; abort frees it. */
LG_NODISCARD lg_status lg_gguf_write_open_mem(lg_gguf_writer **out, lg_err *err);
void lg_gguf_write_abort(lg_gguf_writer *w); /* takes NULL */

/* Copies of key and value are kept. Memory failure is sticky and comes out of begin. */
void lg_gguf_put_u32(lg_gguf_writer *w, const char *key, uint32_t v);
void lg_gguf_put_i64(lg_gguf_writer *w, const char *key, lg_gguf_vtype type,
                     int64_t v); /* any integer type, bool */
void lg_gguf_put_f32(lg_gguf_writer *w, const char *key, float v);
void lg_gguf_put_bool(lg_gguf_writer *w, const char *key, bool v);
void lg_gguf_put_str(lg_gguf_writer *w, const char *key, lg_str v);
/* n numbers of type `elem` as they lie in the memory of a little-endian machine; bool is one byte. */
void lg_gguf_put_array(lg_gguf_writer *w, const char *key, lg_gguf_vtype elem, const void *data, uint64_t n);
void lg_gguf_put_strs(lg_gguf_writer *w, const char *key, const lg_str *v, uint64_t n);
void lg_gguf_put_copy(lg_gguf_writer *w, const lg_gguf_kv *kv); /* verbatim from another file */
void lg_gguf_put_tensor(lg_gguf_writer *w, lg_str name, lg_qtype type, int n_dims, const uint64_t *ne);

/* LG_E_INPUT when a tensor's shape does not fit its type or its size overflows. */
LG_NODISCARD lg_status lg_gguf_write_begin(lg_gguf_writer *w, lg_err *err);
/* The header as begin would write it, appended to *out, and the size that the whole file would have. */
LG_NODISCARD lg_status lg_gguf_write_header(lg_gguf_writer *w, lg_buf *out, uint64_t *file_bytes,
                                            lg_err *err);
/* Next bytes of the current tensor; padding between tensors is the writer's. More bytes than declared is a
 * bug of the caller (assert). False once a write failed, so that a long producer can stop. */
bool lg_gguf_write_data(lg_gguf_writer *w, const void *p, size_t n);
/* Checks that all data came, fsync, rename. Frees w either way. */
LG_NODISCARD lg_status lg_gguf_write_finish(lg_gguf_writer *w, lg_err *err);

#endif
