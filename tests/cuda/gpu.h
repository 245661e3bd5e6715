/*
 * tests/cuda: every op of the CUDA backend against plain loops in double. What the files of the check share.
 *
 * Inputs come from kcheck's generator, so a printed seed repeats a run. References round activations as the
 * backend says it does (int8 runs for up to 16 rows, bf16 above), so that bounds can be tight. Outputs are
 * NaN before an op writes them, and have columns that it must not touch. Without a card the program skips
 * (77).
 */
#ifndef LG_TESTS_CUDA_GPU_H
#define LG_TESTS_CUDA_GPU_H

#include "kcheck/kcheck.h"

enum { EXACT_ROWS = 16, CODE_ROWS = 64, PAD = 3 };

/* A tensor on the device with its host copy: rows * stride floats, PAD columns behind the last. */
typedef struct dev {
    lg_tensor t;
    lg_mem mem;
    float *host;
    int rows;
} dev;

typedef struct gpu {
    kc k;
    lg_backend *b;
    int n_key;
} gpu;

extern const lg_qtype gpu_types[17];

dev dev_new(gpu *g, int rows, int cols, lg_rows kind);          /* device holds NaN, host too */
dev dev_random(gpu *g, int rows, int cols, lg_rows kind, int mode);
void dev_send(gpu *g, dev *d);
void dev_fetch(gpu *g, dev *d);
void dev_free(gpu *g, dev *d);
float *dev_row(const dev *d, int r);
void dev_check_pad(gpu *g, const dev *d, const char *what);     /* the pad is still NaN */

/* Device memory with a copy of n bytes. */
lg_mem mem_of(gpu *g, const void *p, size_t n);

/* A random weight: on the device, and spelled out as floats ([expert][out][in]). */
typedef struct wt {
    lg_weight w;
    float *f;
    lg_qtype type;
    void *stored;
    float *scale; /* of each expert, or NULL */
} wt;
wt wt_random(gpu *g, lg_qtype type, lg_use use, int n_in, int n_out, int n_expert, int mode);
wt wt_vector(gpu *g, int n, double mean, double spread);
void wt_free(gpu *g, wt *w);

/* One recorded step: begin with a key of its own, so nothing is replayed. */
void gpu_begin(gpu *g, lg_step *s);
void gpu_end(gpu *g);

/* What the backend multiplies with: `rows` and the weight decide between int8 codes, bf16 and f32. */
bool takes_codes(const wt *w); /* with EXACT_ROWS < rows <= CODE_ROWS */
void round_acts(const wt *w, int rows, const float *x, int n, double *out);
/* y = row `expert`, `out` of w times x (rounded); *size gets the sum of |terms|. */
double product(const wt *w, int rows, int expert, int out, const double *x, double *size);

void check_near(gpu *g, double got, double want, double bound, const char *what, int r, int i);

void gpu_case_linear(gpu *g);
void gpu_case_widths(gpu *g);
void gpu_case_moe(gpu *g);
void gpu_case_route(gpu *g);
void gpu_case_layer(gpu *g);
void gpu_case_layer_many(gpu *g);
void gpu_case_attention(gpu *g);
void gpu_case_small(gpu *g);
void gpu_case_synth(gpu *g);

#endif
