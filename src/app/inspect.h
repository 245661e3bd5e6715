/*
 * app/inspect: what `lagoon inspect` knows about a file, and its two forms: text for people and JSON.
 *
 * Filled by cmd_inspect.c; borrows from the open file. Text of the file is cleaned before it is printed.
 */
#ifndef LG_APP_INSPECT_H
#define LG_APP_INSPECT_H

#include "engine/engine.h"

/* What a tensor is for: totals by these say where a model's bytes are. */
typedef enum lg_inspect_part {
    LG_PART_EMBEDDING,
    LG_PART_ATTENTION,
    LG_PART_DENSE,
    LG_PART_SHARED,
    LG_PART_EXPERTS,
    LG_PART_ROUTER,
    LG_PART_NORMS,
    LG_PART_HEAD,
    LG_PART_OTHER,
    LG_N_INSPECT_PARTS,
} lg_inspect_part;

typedef struct lg_inspect_sum {
    size_t n;
    uint64_t bytes, elements;
    uint64_t types; /* bit t: type t occurs */
} lg_inspect_sum;

typedef struct lg_inspect {
    const lg_gguf *g;
    bool tensors;         /* the table is wanted */
    const lg_hparams *hp; /* NULL: no configuration that we know */
    const char *note;     /* why not, when that is no error; else NULL */
    const lg_plan *plan;  /* NULL: not asked for */
    const char *device;   /* of the plan */
    lg_inspect_sum part[LG_N_INSPECT_PARTS];
    lg_inspect_sum type[LG_QTYPE_MAX];
} lg_inspect;

/* The two sums. */
void lg_inspect_count(lg_inspect *in);
const char *lg_inspect_part_name(lg_inspect_part part);

/* To stdout. The second fails when the object does not fit its buffer. */
void lg_inspect_text(const lg_inspect *in);
LG_NODISCARD lg_status lg_inspect_json(const lg_inspect *in, lg_err *err);

#endif
