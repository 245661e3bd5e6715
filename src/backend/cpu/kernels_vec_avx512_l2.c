/*
 * backend/cpu/kernels_vec_avx512_l2: the float kernels on 16 lanes that fetch ahead to L2, and four rows
 * ahead to L1 (LG_CPU_TO_L2).
 */
enum { VEC_NEAR = 4 };

#include "backend/cpu/avx512_vec.h"

void lg_cpu_vec_init_avx512_l2(lg_vec_kernels *k)
{
    vec_fill(k);
}
