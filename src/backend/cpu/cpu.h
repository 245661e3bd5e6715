/*
 * backend/cpu: the CPU backend's only public door.
 */
#ifndef LG_BACKEND_CPU_CPU_H
#define LG_BACKEND_CPU_CPU_H

#include "backend/registry.h"

/* Unknown or unavailable `isa`: LG_E_INPUT naming what this machine has. */
LG_NODISCARD lg_status lg_cpu_backend_create(const lg_backend_params *p, lg_backend **out, lg_err *err);
/* "c avx2 avx512vnni" or "c neon dotprod i8mm": the levels compiled in. */
const char *lg_cpu_isa_list(void);

#endif
