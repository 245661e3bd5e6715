/*
 * backend/cpu/kernels_vec_avx512: the float kernels on 16 lanes that fetch ahead to L1.
 *
 * Zen 5 drops what it has no room for among its misses (fetching alone goes by at twice the bandwidth), so
 * keys are asked for again, up to 8 rows before their turn, the nearest first (docs/decisions/0250). Values,
 * of which half a row is read at a time, are asked for twice in the order of memory (0255).
 */
enum { VEC_FETCHES = 4, VEC_FAR = 0, VEC_STREAMS = 1 };
static const int vec_rows_ahead[VEC_FETCHES] = {8, 20, 40, 64};

#include "backend/cpu/avx512_vec.h"

void lg_cpu_vec_init_avx512(lg_vec_kernels *k)
{
    vec_fill(k);
}
