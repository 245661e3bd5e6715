/*
 * backend/registry: which backends this build has, and which one fits a request.
 */
#ifndef LG_BACKEND_REGISTRY_H
#define LG_BACKEND_REGISTRY_H

#include "backend/backend.h"

typedef struct lg_backend_params {
    const char *device; /* "auto", "cpu", "cuda", "cuda:N", "metal" */
    int threads;        /* CPU; 0 = physical cores this process may use */
    const char *isa;    /* CPU; "" = best: c avx2 avx512vnni neon dotprod i8mm */
    bool phases;        /* keep per-op times */
} lg_backend_params;

LG_NODISCARD lg_status lg_backend_open(const lg_backend_params *p, lg_backend **out, lg_err *err);
void lg_backend_close(lg_backend *b); /* takes NULL */
/* "cpu (c avx2 avx512vnni)": what this build contains, for --version. */
const char *lg_backend_list(void);

#endif
