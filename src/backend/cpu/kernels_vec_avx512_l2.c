/*
 * backend/cpu/kernels_vec_avx512_l2: the float kernels on 16 lanes that fetch ahead to L2, and four rows
 * ahead to L1 (LG_CPU_TO_L2).
 */
enum { VEC_FETCHES = 2, VEC_FAR = 1, VEC_STREAMS = 0 };
static const int vec_rows_ahead[VEC_FETCHES] = {64, 4};

#include "backend/cpu/avx512_vec.h"

void lg_cpu_vec_init_avx512_l2(lg_vec_kernels *k)
{
    vec_fill(k);
}
