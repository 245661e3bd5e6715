/*
 * tests/support/npy: reads the arrays that recorded data comes in (NumPy .npy version 1, little-endian, C
 * order, f32 or i32).
 */
#ifndef NPY_H
#define NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct npy {
    int n_dims;
    size_t dim[4]; /* missing ones are 1 */
    size_t n;      /* product */
    bool is_float;
    union {
        float *f;
        int32_t *i;
    };
} npy;

/* False with a line on stderr. */
bool npy_read(const char *path, npy *out);
void npy_free(npy *a);

#endif
