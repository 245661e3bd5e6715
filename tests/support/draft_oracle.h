/*
 * tests/support/draft_oracle: the DFlash drafter in double precision, plain loops, written from the formulas
 * alone; what the engine's drafts are held to.
 *
 * It shares the file reader, the dequantizers and the parsed configuration with the engine, and nothing else.
 */
#ifndef DRAFT_ORACLE_H
#define DRAFT_ORACLE_H

#include "model/dflash.h"

typedef struct draft_oracle {
    const lg_gguf *draft, *target; /* the target lends embedding and head */
    const lg_dflash_params *hp;
    const double *taps; /* [n_tap][n][hidden]: residuals of the target at positions 0 .. n - 1 */
    int n;
    int from; /* the position that rotations count from: no matter to logits */
    int32_t last; /* the token at position n */
    int rows;     /* of the block, its first one included */
    /* outputs */
    double *k, *v;  /* [n_layer][n][KV columns]: the context's rows */
    double *logits; /* [rows - 1][vocab]: of the rows behind the first */
} draft_oracle;

/* False when memory is short or a tensor is missing. */
bool draft_oracle_run(const draft_oracle *o);

#endif
