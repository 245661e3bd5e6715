/*
 * kcheck: every kernel and every backend op against a reference, for each ISA level that this machine has.
 *
 * A case is a function that draws its inputs from the seeded generator, so a printed seed repeats it exactly.
 * Buffers come from kc_guard: they end where an unmapped page begins, and a read or write past the end is a
 * fault that names the case. Links base, gguf and backend only, so that it cross-builds and runs under an
 * emulator.
 */
#ifndef LG_TESTS_KCHECK_H
#define LG_TESTS_KCHECK_H

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"

typedef struct kc {
    const char *isa;    /* level under test */
    lg_cpu_kernels k;   /* its table */
    lg_cpu_kernels ref; /* level c */
    const char *only;   /* substring of a case name, or NULL */
    uint64_t seed, state;
    long checks, failures;
    char label[160];    /* what is being checked, for messages */
    struct kc_map *maps;
} kc;

/* ---- random inputs ---- */
uint64_t kc_u64(kc *t);
int kc_int(kc *t, int low, int high); /* both included */
double kc_uniform(kc *t, double low, double high);
float kc_normal(kc *t);

/* n finite activations: mode 0 ordinary, 1 with outliers of 1e6, 2 all of one magnitude, 3 tiny and
 * subnormal, 4 huge (1e30), 5 zeros. */
enum { KC_X_MODES = 6 };
void kc_fill_x(kc *t, float *x, int n, int mode);

/* n elements (whole blocks) of a weight type, finite: mode 0 ordinary, 1 all codes and block scales at their
 * largest with the largest f32 scale, 2 subnormal f32 scales, 3 any bytes with a finite scale. */
enum { KC_W_MODES = 4 };
void kc_fill_w(kc *t, lg_qtype type, uint8_t *w, int64_t n, int mode);

/* ---- memory and verdicts ---- */
/* `bytes` bytes that end at an unmapped page, filled with 0xA5. Valid until kc_release. */
void *kc_guard(kc *t, size_t bytes);
void kc_release(kc *t);

/* What is being checked from here on. */
void kc_label(kc *t, const char *fmt, ...) LG_PRINTF(2, 3);
/* Counts one check; prints the label and the text when it does not hold (the first 20 of them). */
bool kc_check(kc *t, bool holds, const char *fmt, ...) LG_PRINTF(3, 4);
/* Equal floats, both NaN included; prints the first difference. */
bool kc_same(kc *t, const float *got, const float *want, int n, const char *what);

/* ---- cases ---- */
void kc_case_types(kc *t);  /* gemv, unpack, gemm of each weight type */
void kc_case_quant(kc *t);  /* activation rows */
void kc_case_swiglu(kc *t);
void kc_case_vec(kc *t);    /* float kernels: attention, norms, softmax, KV types */
void kc_case_linear(kc *t); /* backend ops from here on */
void kc_case_moe(kc *t);
void kc_case_route(kc *t);
void kc_case_attention(kc *t);
void kc_case_misc(kc *t);

/* Times every kernel of the level. */
void kc_bench(kc *t);

#endif
