/*
 * backend/cpu/kernels_vec_avx512: the float kernels on 16 lanes that fetch ahead to L1.
 */
enum { VEC_NEAR = 0 };

#include "backend/cpu/avx512_vec.h"

void lg_cpu_vec_init_avx512(lg_vec_kernels *k)
{
    vec_fill(k);
}
