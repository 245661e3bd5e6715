/*
 * backend/cpu/kernels: the table of CPU kernels, and what each entry owes.
 *
 * kernels_c.c is the definition; an ISA file overrides the entries it improves (dispatch.c runs them from
 * weakest to strongest). Kernels are pure functions of their arguments, may run on any thread, and read and
 * write exactly the bytes their contract names: weights need no alignment and may end at an unmapped page.
 *
 * The surprise is how exact this is. Products of quantised rows are integers until a block is complete, and
 * the order of every f32 operation is part of the contract (see "Exactness"), so gemv and gemm, one row and a
 * thousand, and all ISA levels give THE SAME BITS. An op may therefore pick whichever is fastest, and kcheck
 * compares with ==.
 */
#ifndef LG_BACKEND_CPU_KERNELS_H
#define LG_BACKEND_CPU_KERNELS_H

#include "backend/cpu/kernels_vec.h"
#include "gguf/quant.h"

/*
 * Activations. A weight type decides how its input is held:
 *   LG_ACT_F32   F32, F16, BF16 weights: the f32 row itself.
 *   LG_ACT_Q32   types with blocks of 32 (and NVFP4): int8 codes, a step per 16, a scale per 32 inputs.
 *   LG_ACT_Q256  types with blocks of 256: int8 codes, a step per 32, a scale per 256 inputs.
 * An input is code * step * scale. Steps are small integers, 1 to 16 (Q32) or to 8 (Q256): they give each
 * group of inputs a resolution of its own, and as integers they cost the products next to nothing, because
 * they multiply into the integer scales of the weights (docs/decisions/0033).
 *
 * A quantised row is one piece of memory, 64-byte aligned: n codes, then for each 16 codes an int16 sum (step
 * * the sum of the codes) and an int16 step (Q256: two equal ones for 32 codes), then n/32 or n/256 f32
 * scales, each part starting at a multiple of 64 bytes. Scales are f32 because activations exceed f16's
 * range.
 */
typedef enum lg_act_kind { LG_ACT_F32, LG_ACT_Q32, LG_ACT_Q256, LG_ACT_KINDS } lg_act_kind;

/* Inputs under one scale, inputs under one step, the largest step. Quantised kinds only. */
static inline int lg_act_block(lg_act_kind kind)
{
    return kind == LG_ACT_Q32 ? 32 : 256;
}
static inline int lg_act_group(lg_act_kind kind)
{
    return kind == LG_ACT_Q32 ? 16 : 32;
}
static inline int lg_act_steps(lg_act_kind kind)
{
    return kind == LG_ACT_Q32 ? 16 : 8;
}

static inline size_t lg_act_sums_at(int n)
{
    return ((size_t)n + 63) / 64 * 64;
}
static inline size_t lg_act_steps_at(int n)
{
    return lg_act_sums_at(n) + ((size_t)n / 8 + 63) / 64 * 64;
}
static inline size_t lg_act_scales_at(int n)
{
    return lg_act_steps_at(n) + ((size_t)n / 8 + 63) / 64 * 64;
}
/* Bytes of one row of n inputs, a multiple of 64. */
static inline size_t lg_act_bytes(lg_act_kind kind, int n)
{
    if (kind == LG_ACT_F32)
        return ((size_t)n * sizeof(float) + 63) / 64 * 64;
    return lg_act_scales_at(n) + ((size_t)(n / lg_act_block(kind)) * sizeof(float) + 63) / 64 * 64;
}

/* Bytes that a kernel may bring into the cache while it works, because its thread reads them next. Empty: p
 * is NULL. */
typedef struct lg_span {
    const uint8_t *p;
    size_t bytes;
} lg_span;

/* Rows of activations of one kind: row i at p + i * stride. F32 rows may be the caller's tensor. `ahead` is a
 * hint to gemm, which multiplies from cache and leaves memory idle. */
typedef struct lg_acts {
    const uint8_t *p;
    size_t stride;
    lg_span ahead;
} lg_acts;

/* A weight matrix as the file has it: row o at p + o * row_bytes, n_in inputs. `next` is a hint to gemv and
 * unpack: what their thread reads after the rows of the call. `to_l2` is one to gemv: this processor does
 * better when what is fetched ahead goes to its L2 and no further. */
typedef struct lg_mat {
    const uint8_t *p;
    size_t row_bytes;
    int n_in;
    lg_span next;
    bool to_l2;
} lg_mat;

/* gemm works on tiles of this many weight rows. */
enum { LG_TILE_ROWS = 16 };
/* Upper bound of what `unpack` writes for n_in inputs, any type and level; a multiple of 64. */
static inline size_t lg_tile_bytes(int n_in)
{
    return 64 * ((size_t)n_in + 64);
}

/* Columns and rows that `rows` takes at most. */
enum { LG_ROWS_COLS = 64, LG_ROWS_ROWS = 2 * LG_TILE_ROWS };

/*
 * Kernels of one weight type.
 *
 * Exactness. n = n_in, dw and da the f32 values of the weight's and the activation's scale, mw of its min,
 * all f32 operations rounded to nearest even, acc starts as +0, blocks in ascending order:
 *
 *   Q8_0 Q4_0 Q5_0 IQ4_NL MXFP4   per 32:   acc = fma(dw * da, (float)I, acc);  I = sum of code * step * act
 *   NVFP4                         per 16:   the same, da being that of the 32
 *   Q4_1 Q5_1                     as above, then acc = fma(mw * da, (float)S, acc);  S = sum of step * act
 *   Q6_K Q3_K IQ4_XS              per 256:  acc = fma(dw * da, (float)I, acc);
 *                                           I = sum of scale * code * step * act
 *   Q4_K Q5_K Q2_K                as above, then acc = fma(-(mw * da), (float)M, acc);
 *                                           M = sum of min * step * act
 *
 * where act, step are the activation's integers; codes, scales and mins those of the format (code - 8 for
 * Q4_0, code - 32 for Q6_K, T[code] for the IQ4 and FP4 types, ...), and I, S, M are exact int32: no format
 * can overflow them (Q6_K: 256 * 32 * 128 * 8 * 127 = 2^30 * 0.99). (float) rounds once.
 *
 *   F32 F16 BF16                  lane j of 8: acc_j = fma(w, x, acc_j) over the inputs j, j + 8, j + 16,
 * ...; s_j = acc_j + acc_(j+4) for j < 4; y = (s_0 + s_2) + (s_1 + s_3).
 *
 * Bits are promised for finite scales and activations; other input gives any value, never a fault. kcheck
 * also holds the reference to a double-precision product of lg_dequant_row's values: |got - ref| <= (chain +
 * 16) * 2^-24 * S, where chain is the number of fma in a row (or lane) and S the sum of |w| |x| with a
 * weight's min counted beside it.
 */
typedef struct lg_type_kernels {
    lg_act_kind act;

    /* y[i] = row (row + i) of w times the one activation row x, i in [0, n_rows). Decode: streams each weight
     * byte once. */
    void (*gemv)(const lg_mat *w, int row, int n_rows, const void *x, float *y);

    /* Prefill, in two steps. unpack writes rows [row, row + n_rows), n_rows <= LG_TILE_ROWS, into `tile`
     * (64-byte aligned, lg_tile_bytes), in a form private to this entry pair. */
    void (*unpack)(const lg_mat *w, int row, int n_rows, void *tile);
    /* y[c * y_stride + i] = tile row i times activation row idx[c] (or c when idx is NULL), c in [0, n_cols),
     * i in [0, n_rows): n_rows and n_in as given to unpack. Nothing else is written. */
    void (*gemm)(const void *tile, int n_in, int n_rows, const lg_acts *x, const int32_t *idx, int n_cols,
                 float *y, size_t y_stride);

    /* unpack and gemm in one, for at most LG_ROWS_COLS columns and LG_ROWS_ROWS rows; NULL where a level has
     * no faster way. `tile` is scratch as large as unpack's. x->ahead is not looked at. */
    void (*rows)(const lg_mat *w, int row, int n_rows, void *tile, const lg_acts *x, const int32_t *idx,
                 int n_cols, float *y, size_t y_stride);
} lg_type_kernels;

typedef struct lg_cpu_kernels {
    const char *isa; /* strongest level that filled this table: "c", "avx2", ... */

    /* Indexed by lg_qtype; entries of numbers that are no weight type have gemv == NULL. */
    lg_type_kernels type[LG_QTYPE_MAX];

    /* n activations (a multiple of the kind's block) to one quantised row. Bit-exact: per block a = max |x|;
     * a < 2^-100: codes and scale 0, steps 1. Else, T being the largest step and g = max |x| of a group:
     * step = ceil(g * (T / a)), at least 1 and at most T; code = rint(x * ((127 T / a) / step)) (ties to
     * even); scale = a / (127 T). quant[LG_ACT_F32] is NULL. */
    void (*quant[LG_ACT_KINDS])(const float *x, int n, void *row);

    /* out[i] = silu(gate[i]) * up[i]. |got - ref| <= 2^-20 |ref| + 2^-118 |up|; silu(-large) is -0, never
     * NaN; the bits of an element do not depend on its place in the array. out may be gate or up. */
    void (*swiglu)(const float *gate, const float *up, float *out, int n);

    /* Probes for measure.c. Reads `bytes` (a multiple of 256) at memory speed and returns something that
     * depends on all of them. */
    uint64_t (*probe_read)(const void *p, size_t bytes);
    /* Runs the multiply instruction of this level's integer gemm from registers for about `rounds` * 64
     * instructions; returns the operations done, two per multiply-add. */
    double (*probe_int8)(int64_t rounds);

    /* attention, norms, softmax: filled by lg_cpu_vec_init_*, with a contract of its own */
    lg_vec_kernels vec;
} lg_cpu_kernels;

/* ISA levels, weakest first; a level needs all weaker ones of its architecture. */
enum {
    LG_CPU_C = 0,
    LG_CPU_AVX2 = 1 << 0,       /* AVX2, FMA, F16C */
    LG_CPU_AVX512VNNI = 1 << 1, /* AVX-512 F, BW, VL, DQ, VNNI */
    LG_CPU_NEON = 1 << 2,
    LG_CPU_DOTPROD = 1 << 3,
    LG_CPU_I8MM = 1 << 4,
    /* no level: what is fetched ahead goes to L2 first, where kernels have that form */
    LG_CPU_TO_L2 = 1 << 5,
};

/* What this CPU and operating system can run, of what this build contains. */
unsigned lg_cpu_detect(void);
/* "avx2" -> the flags up to and including that level; "" or NULL -> everything lg_cpu_detect found. False
 * when the name is unknown or the machine lacks the level. */
bool lg_cpu_isa_find(const char *name, unsigned *flags);
/* Fills the table for these flags. */
void lg_cpu_kernels_init(lg_cpu_kernels *k, unsigned flags);

/* One exported symbol per ISA file. */
void lg_cpu_init_c(lg_cpu_kernels *k);
void lg_cpu_init_avx2(lg_cpu_kernels *k);
void lg_cpu_init_avx512vnni(lg_cpu_kernels *k);
void lg_cpu_init_neon(lg_cpu_kernels *k);
void lg_cpu_init_dotprod(lg_cpu_kernels *k);
void lg_cpu_init_i8mm(lg_cpu_kernels *k);

#endif
