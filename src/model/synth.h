/*
 * model/synth: models of real shape with synthetic weights, as a file (`lagoon synth`) or in memory
 * (`lagoon bench --synthetic`).
 *
 * Names, shapes, types and metadata are those of the published models. Weights come from a counter: every
 * block is a pure function of (seed, tensor index, block index), so any slice can be made again anywhere, by
 * any number of threads, and a device kernel can make the same bits.
 *
 * Surprise: values are never zero or constant, because processors run faster on those; and no f16 scale is
 * random bytes.
 */
#ifndef LG_MODEL_SYNTH_H
#define LG_MODEL_SYNTH_H

#include <stdatomic.h>

#include "base/pool.h"
#include "gguf/gguf.h"
#include "model/weights.h"

typedef struct lg_synth_params {
    const char *arch; /* "s-2.1", "xs-2.1", "s-2.1-dflash", "xs-2.1-dflash" */
    const char *type; /* a recipe of model/mix; NULL: as published */
    int n_layer;      /* 0: all */
    int target_layers; /* drafters: layers of the model they are for; 0: all. Fewer are tapped evenly */
    uint64_t seed;
} lg_synth_params;

#define LG_SYNTH_SPREAD 0.02f /* of trained weights; the spread of embeddings is another, see synth.c */

typedef struct lg_synth_tensor {
    char name[48];
    lg_qtype type;
    int n_dims;
    uint64_t ne[4];
    size_t bytes;
    float mean, spread; /* of the elements; for block types about, and centred */
} lg_synth_tensor;

typedef struct lg_synth lg_synth;

/* The list of tensors; LG_E_INPUT names what is not known. */
LG_NODISCARD lg_status lg_synth_create(const lg_synth_params *p, lg_synth **out, lg_err *err);
void lg_synth_destroy(lg_synth *s); /* takes NULL */
size_t lg_synth_n_tensors(const lg_synth *s);
const lg_synth_tensor *lg_synth_tensor_at(const lg_synth *s, size_t i);
uint64_t lg_synth_tensor_bytes(const lg_synth *s); /* data of all tensors */
const char *lg_synth_name(const lg_synth *s);      /* "Laguna S 2.1 synthetic" */

/* n_blocks blocks of `type` from block0 on, of tensor number `index` in the list. Elements of the three float
 * types count as blocks. Integer arithmetic and single float operations only, so the result is the same
 * everywhere. */
void lg_synth_fill(uint64_t seed, uint32_t index, lg_qtype type, float mean, float spread, uint64_t block0,
                   uint64_t n_blocks, void *dst);

typedef struct lg_synth_job {
    lg_pool *pool;
    lg_progress progress; /* called on the caller's thread; may be NULL */
    void *ctx;
    const atomic_bool *cancel; /* may be NULL; LG_E_CANCELLED when it is set */
    bool unfilled;             /* lg_synth_make: leave the data to the backend (lg_source.made) */
} lg_synth_job;

/* Write the model to `path`; nothing is left there on failure. */
LG_NODISCARD lg_status lg_synth_write(const lg_synth *s, const char *path, const lg_synth_job *job,
                                      lg_err *err);

/* The same model in memory, as an open GGUF. */
typedef struct lg_synth_model {
    lg_gguf *gguf;
    void *mem;
    size_t bytes;
    lg_made *made; /* unfilled: of each tensor */
} lg_synth_model;
LG_NODISCARD lg_status lg_synth_make(const lg_synth *s, const lg_synth_job *job, lg_synth_model *out,
                                     lg_err *err);
void lg_synth_unmake(lg_synth_model *m); /* closes the GGUF and gives the memory back */

#endif
