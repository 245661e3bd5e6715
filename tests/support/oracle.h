/*
 * tests/support/oracle: Laguna in double precision, plain loops, written from the formulas alone; what the
 * engine's numbers are held to on models that have no recorded values.
 *
 * It shares the file reader, the dequantizers and the parsed configuration with the engine, and nothing else.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include "model/hparams.h"

typedef struct oracle {
    const lg_gguf *g;
    const lg_hparams *hp;
    bool round_acts; /* inputs of quantized matrices are rounded to int8 blocks as the CPU kernels do */
    /* outputs; NULL where not wanted */
    double *logits;  /* [n][vocab] */
    double *layers;  /* [n_layer][n][hidden] */
    int *routes;     /* [n_layer][n][k], descending selection score */
    double *weights; /* the same shape */
    double *gaps;    /* [n_layer][n]: score of the last expert chosen minus the best one that was not */
} oracle;

/* False when memory is short or a tensor is missing. */
bool oracle_run(const oracle *o, const int32_t *ids, int n);

#endif
