/*
 * backend/cpu/avx2_common: small pieces that the AVX2 kernels share. Static inline; compiled with AVX2, FMA
 * and F16C.
 *
 * The sums here follow the trees of kernels.h: four rows are reduced together by transposing adds, which
 * costs less than three instructions a row and leaves the rows in lanes, ready for one f32 multiply-add.
 */
#ifndef LG_BACKEND_CPU_AVX2_COMMON_H
#define LG_BACKEND_CPU_AVX2_COMMON_H

#include <immintrin.h>
#include <string.h>

#include "backend/cpu/blocks.h"
#include "backend/cpu/kernels.h"

#define LG_INLINE    static inline __attribute__((always_inline))
#define LG_PRAGMA(x) _Pragma(#x)
#if defined(__clang__)
// "full" wants a constant count, which these loops have where their function is inlined; of those that then
// turn once clang says that it can't unroll them.
#pragma clang diagnostic ignored "-Wpass-failed"
#define LG_UNROLL(n) LG_PRAGMA(clang loop unroll(full))
#else
#define LG_UNROLL(n) LG_PRAGMA(GCC unroll n)
#endif

/* Keeps v in a register and this addition where it is written. gcc otherwise turns chains of integer
 * additions into trees, whose partial sums of a whole tile spill (Q4_K gemm: 155 Gop/s with the trees, 230
 * without; Zen 3). */
LG_INLINE void keep(__m256i *v)
{
    __asm__("" : "+x"(*v));
}

/* Unaligned loads and broadcasts from memory. */
LG_INLINE __m256i load256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
LG_INLINE __m128i load128(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
/* The same, once: for values used twice, which the compiler would rather load twice. Blocks are no multiples
 * of 64 bytes, so every other load touches two cache lines and counts double. */
LG_INLINE __m256i load256_once(const void *p)
{
    __m256i v = load256(p);

    keep(&v);
    return v;
}
LG_INLINE __m256i two_halves(const void *low, const void *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(low)), load128(high), 1);
}
LG_INLINE int32_t load_i32(const void *p)
{
    int32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}
LG_INLINE __m256i broadcast_i32(const void *p)
{
    return _mm256_set1_epi32(load_i32(p));
}

/* Where the parts of a quantised activation row are. */
LG_INLINE const int16_t *act_sums(const void *row, int n)
{
    return (const int16_t *)(const void *)((const uint8_t *)row + lg_act_sums_at(n));
}
LG_INLINE const int16_t *act_steps(const void *row, int n)
{
    return (const int16_t *)(const void *)((const uint8_t *)row + lg_act_steps_at(n));
}
LG_INLINE const float *act_scales(const void *row, int n)
{
    return (const float *)(const void *)((const uint8_t *)row + lg_act_scales_at(n));
}

/* Lane i = sum of the eight int32 of row i. */
LG_INLINE __m128i sum4_i32(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    __m256i all = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));

    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

/* s_j = acc_j + acc_(j+4). */
LG_INLINE __m128 fold_lanes(__m256 a)
{
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}
/* Lane i = (s_0 + s_2) + (s_1 + s_3) of row i. */
LG_INLINE __m128 sum4_f32(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m128 sa = fold_lanes(a), sb = fold_lanes(b), sc = fold_lanes(c), sd = fold_lanes(d);
    __m128 ab = _mm_add_ps(_mm_movelh_ps(sa, sb), _mm_movehl_ps(sb, sa)); // a02 a13 b02 b13
    __m128 cd = _mm_add_ps(_mm_movelh_ps(sc, sd), _mm_movehl_ps(sd, sc));

    return _mm_add_ps(_mm_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                      _mm_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}

/* The f16 at p[0], p[1], p[2], p[3] as four f32. */
LG_INLINE __m128 four_f16(const uint8_t *const p[4])
{
    __m128i h = _mm_setzero_si128();

    h = _mm_insert_epi16(h, get16(p[0]), 0);
    h = _mm_insert_epi16(h, get16(p[1]), 1);
    h = _mm_insert_epi16(h, get16(p[2]), 2);
    h = _mm_insert_epi16(h, get16(p[3]), 3);
    return _mm_cvtph_ps(h);
}

/* The first n of four lanes. */
LG_INLINE void store_lanes(float *y, __m128 v, int n)
{
    if (n >= 4) {
        _mm_storeu_ps(y, v);
        return;
    }
    float lane[4];
    _mm_storeu_ps(lane, v);
    memcpy(y, lane, (size_t)n * sizeof *lane);
}
/* Row pointers of a group of `count` rows of which n exist; the others read row 0 and are not stored. */
LG_INLINE void row_pointers(const lg_mat *w, int row, int n, int count, const uint8_t **p)
{
    for (int i = 0; i < count; i++)
        p[i] = w->p + (size_t)(row + (i < n ? i : 0)) * w->row_bytes;
}

/*
 * What gemv fetches, in the order of memory, as many bytes at each step over a group of four rows as the step
 * uses: the rows of the call, then what the thread reads next. The distance is LG_AHEAD, or a whole group
 * where that is longer: all four rows of the next group are wanted as soon as this one ends. Past its own
 * rows a stream takes nothing that the thread does not read: short pieces would lose a fifth of the bandwidth
 * (docs/decisions/0155). A second stream may ask for the same bytes `lag` later.
 *
 * The requests of a step are spread over its work: a burst of them is dropped where as many, one by one, are
 * not (docs/decisions/0254).
 */
enum { LG_AHEAD = 9216 };
typedef struct stream {
    const uint8_t *at, *end;
    const lg_span *next;
    size_t again; /* where nothing follows: so many bytes once more, which are on their way */
} stream;

LG_INLINE stream stream_of(const lg_mat *w, int row, int n_rows, size_t lag)
{
    const uint8_t *at = w->p + (size_t)row * w->row_bytes, *end = at + (size_t)n_rows * w->row_bytes;
    size_t group = 4 * w->row_bytes, ahead = (group > LG_AHEAD ? group + 1024 : LG_AHEAD) - lag;

    at = (size_t)(end - at) > ahead ? at + ahead : end - 1;
    return (stream){at, end, &w->next, (size_t)n_rows < 4 ? (size_t)n_rows * w->row_bytes : group};
}

LG_INLINE void fetch(const uint8_t *p, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

/* Lines of part i of `parts` of a step of `bytes`: [first_line(i), first_line(i + 1)). */
LG_INLINE int first_line(int bytes, int i, int parts)
{
    return (bytes + 63) / 64 * i / parts;
}

/* Part i of `parts` of a step. v comes back as it is: compilers would gather requests that hang on nothing.
 */
LG_INLINE __m256i fetch_part(const stream *s, int bytes, int i, int parts, __m256i v)
{
    for (int l = first_line(bytes, i, parts); l < first_line(bytes, i + 1, parts); l++)
        __asm__ volatile("prefetcht0 %1" : "+x"(v) : "m"(s->at[64 * l]));
    return v;
}

/* The stream moves on by a step. */
LG_INLINE void pass_on(stream *s, int bytes)
{
    s->at += bytes;
    if (__builtin_expect(s->at < s->end, 1))
        return;
    if (s->next && s->next->bytes) {
        s->at = s->next->p;
        s->end = s->at + s->next->bytes;
        s->next = NULL;
    } else {
        s->at = s->end - s->again;
    }
}

/* A span that is fetched into L2, or into L1 if it is `near`, beside other work, evenly: processors have some
 * sixteen misses of a core on their way at once, and what asks for more of them waits. Whole lines a step, so
 * that the loop's length is the same until the end; the span may be done before the work is. */
typedef struct shares {
    const uint8_t *at, *end;
    size_t each; /* bytes of a step, a multiple of 64 */
    bool near;
} shares;

LG_INLINE shares shares_of(const lg_span *s, int n)
{
    return (shares){s->p, s->p + s->bytes, (s->bytes / (size_t)n + 64) / 64 * 64, false};
}

/* n steps. */
LG_INLINE void fetch_shares(shares *s, int n)
{
    size_t left = s->at < s->end ? (size_t)(s->end - s->at) : 0, bytes = (size_t)n * s->each;
    const uint8_t *stop = s->at + (bytes < left ? bytes : left);

    if (s->near)
        for (; s->at < stop; s->at += 64)
            _mm_prefetch((const char *)s->at, _MM_HINT_T0);
    else
        for (; s->at < stop; s->at += 64)
            _mm_prefetch((const char *)s->at, _MM_HINT_T1);
}

/*
 * The loop around a gemm of interleaved tiles. A slice of LG_SLICE inputs (about 10 KiB of tile) stays in L1
 * while up to LG_GEMM_GROUP columns pass over it, four or eight at a time; sums of 16 rows wait in `acc`
 * meanwhile. Without slices each four columns would read the whole tile, 40 KiB for 2048 inputs, from L2.
 *
 * `cols` adds inputs [at, at + n) of n_cols columns (1 to `width`) to acc[16 * column + row] and
 * fetches a share of what follows with each 32 inputs; it, `variant` and `width` are constants where this is
 * inlined. A tile has unit_bytes for each `unit` inputs.
 */
enum { LG_SLICE = 512, LG_GEMM_GROUP = 64 };
typedef void (*cols_fn)(int variant, const uint8_t *slice, int n_in, int at, int n, const uint8_t *const *x,
                        int n_cols, shares *ahead, float *acc);

LG_INLINE int fetch_steps(int n_in, int n_cols, int width)
{
    return (n_in + 31) / 32 * ((n_cols + width - 1) / width);
}

// n columns, at most `width`, at once.
LG_INLINE void slice_times_group(cols_fn cols, int variant, int width, const uint8_t *slice, int n_in, int at,
                                 int inputs, const uint8_t *const *a, int n, shares *ahead, float *acc)
{
    if (width > 4 && n > 4) {
        switch (n) {
        case 8: cols(variant, slice, n_in, at, inputs, a, 8, ahead, acc); break;
        case 7: cols(variant, slice, n_in, at, inputs, a, 7, ahead, acc); break;
        case 6: cols(variant, slice, n_in, at, inputs, a, 6, ahead, acc); break;
        default: cols(variant, slice, n_in, at, inputs, a, 5, ahead, acc); break;
        }
        return;
    }
    switch (n) {
    case 4: cols(variant, slice, n_in, at, inputs, a, 4, ahead, acc); break;
    case 3: cols(variant, slice, n_in, at, inputs, a, 3, ahead, acc); break;
    case 2: cols(variant, slice, n_in, at, inputs, a, 2, ahead, acc); break;
    case 1: cols(variant, slice, n_in, at, inputs, a, 1, ahead, acc); break;
    default: break;
    }
}

// Columns of the next turn of n: in as few turns as there can be, since each loads the weights. Groups of
// eight: the last two are of the same width, or nearly; of four, there is no turn to save.
LG_INLINE int columns_of_turn(int n, int width)
{
    if (n <= width)
        return n;
    return n >= 2 * width || width <= 4 ? width : (n + 1) / 2;
}

LG_INLINE void slice_times_columns(cols_fn cols, int variant, int width, const uint8_t *slice, int n_in,
                                   int at, int n, const uint8_t *const *a, int n_cols, shares *ahead,
                                   float *acc)
{
    for (int c = 0, now; c < n_cols; c += now) {
        now = columns_of_turn(n_cols - c, width);
        slice_times_group(cols, variant, width, slice, n_in, at, n, a + c, now, ahead,
                          acc + LG_TILE_ROWS * c);
    }
}

/* Pointers to columns [first, first + n), and their sums at zero. Where results will go is fetched meanwhile:
 * rows of y are far apart, so each store at the end would wait for a line of its own. */
LG_INLINE void start_group(const lg_acts *x, const int32_t *idx, int first, int n, const uint8_t **a,
                           float *acc, const float *y, size_t y_stride)
{
    for (int c = 0; c < n; c++) {
        a[c] = x->p + (size_t)(idx ? idx[first + c] : first + c) * x->stride;
        __builtin_prefetch(y + (size_t)(first + c) * y_stride, 1, 2);
    }
    memset(acc, 0, (size_t)n * LG_TILE_ROWS * sizeof *acc);
}

LG_INLINE void store_group(const float *acc, int first, int n, int n_rows, float *y, size_t y_stride)
{
    for (int c = 0; c < n; c++)
        memcpy(y + (size_t)(first + c) * y_stride, acc + LG_TILE_ROWS * c, (size_t)n_rows * sizeof *acc);
}

/* slice_times_columns with its constants. */
typedef void (*slice_fn)(const uint8_t *slice, int n_in, int at, int n, const uint8_t *const *a, int n_cols,
                         shares *ahead, float *acc);

LG_INLINE void gemm_sliced(slice_fn multiply, int width, int unit, size_t unit_bytes, const void *tile,
                           int n_in, int n_rows, const lg_acts *x, const int32_t *idx, int n_cols, float *y,
                           size_t y_stride)
{
    _Alignas(64) float acc[LG_GEMM_GROUP * LG_TILE_ROWS];
    const uint8_t *a[LG_GEMM_GROUP];
    shares ahead = shares_of(&x->ahead, fetch_steps(n_in, n_cols, width));

    for (int first = 0; first < n_cols; first += LG_GEMM_GROUP) {
        int group = n_cols - first < LG_GEMM_GROUP ? n_cols - first : LG_GEMM_GROUP;
        const uint8_t *slice = tile;

        start_group(x, idx, first, group, a, acc, y, y_stride);
        for (int at = 0; at < n_in; at += LG_SLICE) {
            int n = n_in - at < LG_SLICE ? n_in - at : LG_SLICE;

            multiply(slice, n_in, at, n, a, group, &ahead, acc);
            slice += (size_t)(n / unit) * unit_bytes;
        }
        store_group(acc, first, group, n_rows, y, y_stride);
    }
}

/* gemm from name_slice, and both from the columns of a slice. */
#define LG_GEMM_OF_SLICES(name, width, unit, unit_bytes)                                                \
    static void name(const void *tile, int n_in, int n_rows, const lg_acts *x, const int32_t *idx,      \
                     int n_cols, float *y, size_t y_stride)                                             \
    {                                                                                                   \
        gemm_sliced(name##_slice, width, unit, unit_bytes, tile, n_in, n_rows, x, idx, n_cols, y, y_stride); \
    }
#define LG_SLICED_GEMM(name, cols, variant, width, unit, unit_bytes)                                    \
    static void name##_slice(const uint8_t *slice, int n_in, int at, int n, const uint8_t *const *a,    \
                             int n_cols, shares *ahead, float *acc)                                     \
    {                                                                                                   \
        slice_times_columns(cols, variant, width, slice, n_in, at, n, a, n_cols, ahead, acc);           \
    }                                                                                                   \
    LG_GEMM_OF_SLICES(name, width, unit, unit_bytes)

/* 8 x 8 int32: on return r[i] lane j = what was dword i of row j. Rows are given as memory, 32 bytes each. */
LG_INLINE void transpose_rows(const uint8_t *const p[8], size_t at, __m256i r[8])
{
    __m256i t[8], u[8];

    for (int i = 0; i < 4; i++) {
        t[i] = two_halves(p[i] + at, p[i + 4] + at);               // dwords 0..3 of rows i and i + 4
        t[i + 4] = two_halves(p[i] + at + 16, p[i + 4] + at + 16); // dwords 4..7
    }
    for (int h = 0; h < 8; h += 4) {
        u[h] = _mm256_unpacklo_epi32(t[h], t[h + 1]);
        u[h + 1] = _mm256_unpackhi_epi32(t[h], t[h + 1]);
        u[h + 2] = _mm256_unpacklo_epi32(t[h + 2], t[h + 3]);
        u[h + 3] = _mm256_unpackhi_epi32(t[h + 2], t[h + 3]);
        r[h] = _mm256_unpacklo_epi64(u[h], u[h + 2]);
        r[h + 1] = _mm256_unpackhi_epi64(u[h], u[h + 2]);
        r[h + 2] = _mm256_unpacklo_epi64(u[h + 1], u[h + 3]);
        r[h + 3] = _mm256_unpackhi_epi64(u[h + 1], u[h + 3]);
    }
}

/* The same for 16 bytes a row: r[0..3]. */
LG_INLINE void transpose_half_rows(const uint8_t *const p[8], size_t at, __m256i r[4])
{
    __m256i t[4], u[4];

    for (int i = 0; i < 4; i++)
        t[i] = two_halves(p[i] + at, p[i + 4] + at);
    u[0] = _mm256_unpacklo_epi32(t[0], t[1]);
    u[1] = _mm256_unpackhi_epi32(t[0], t[1]);
    u[2] = _mm256_unpacklo_epi32(t[2], t[3]);
    u[3] = _mm256_unpackhi_epi32(t[2], t[3]);
    r[0] = _mm256_unpacklo_epi64(u[0], u[2]);
    r[1] = _mm256_unpackhi_epi64(u[0], u[2]);
    r[2] = _mm256_unpacklo_epi64(u[1], u[3]);
    r[3] = _mm256_unpackhi_epi64(u[1], u[3]);
}

/* Eight f16, each in the low half of an int32 lane, to f32. */
LG_INLINE __m256 f16_of_lanes(__m256i v)
{
    __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0xFFFF));
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), _MM_SHUFFLE(3, 1, 2, 0));

    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}

#endif
