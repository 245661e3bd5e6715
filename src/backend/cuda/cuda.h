/*
 * backend/cuda: the CUDA backend's only public door. In the build when nvcc is (option `cuda`).
 */
#ifndef LG_BACKEND_CUDA_CUDA_H
#define LG_BACKEND_CUDA_CUDA_H

#include "backend/registry.h"

/* p->device: "cuda" or "auto" (the first card), or "cuda:N". LG_E_DEVICE or LG_E_UNSUPPORTED says in one line
 * what is missing: a driver, a newer driver, a card, a card that this build has code for. */
LG_NODISCARD lg_status lg_cuda_backend_create(const lg_backend_params *p, lg_backend **out, lg_err *err);

#endif
