/*
 * kcheck's generator, guarded buffers and verdicts. See kcheck.h.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kcheck.h"

/* ---- random ---- */

uint64_t kc_u64(kc *t)
{
    uint64_t z = t->state += 0x9E3779B97F4A7C15;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

int kc_int(kc *t, int low, int high)
{
    return low + (int)(kc_u64(t) % (uint64_t)(high - low + 1));
}

double kc_uniform(kc *t, double low, double high)
{
    return low + (high - low) * ((double)(kc_u64(t) >> 11) * 0x1p-53);
}

float kc_normal(kc *t)
{
    double s = 0.0;

    for (int i = 0; i < 12; i++)
        s += kc_uniform(t, -0.5, 0.5);
    return (float)s;
}

void kc_fill_x(kc *t, float *x, int n, int mode)
{
    for (int i = 0; i < n; i++) {
        float v = kc_normal(t);

        switch (mode) {
        case 1: x[i] = kc_int(t, 0, 63) ? v : v * 1e6f; break;
        case 2: x[i] = v < 0.0f ? -3.5f : 3.5f; break;
        case 3: x[i] = v * (i / 32 % 2 ? 1e-40f : 1e-29f); break;
        case 4: x[i] = v * 1e30f; break;
        case 5: x[i] = 0.0f; break;
        default: x[i] = v; break;
        }
    }
}

// Bytes of the f16 scales inside a block; -1 ends the list.
static void scale_fields(lg_qtype type, int at[2])
{
    at[0] = at[1] = -1;
    switch (type) {
    case LG_Q2_K: at[0] = 80, at[1] = 82; break;
    case LG_Q3_K: at[0] = 108; break;
    case LG_Q6_K: at[0] = 208; break;
    case LG_Q4_1:
    case LG_Q5_1:
    case LG_Q4_K:
    case LG_Q5_K: at[0] = 0, at[1] = 2; break;
    case LG_Q8_0:
    case LG_Q4_0:
    case LG_Q5_0:
    case LG_IQ4_NL:
    case LG_IQ4_XS: at[0] = 0; break;
    default: break;
    }
}

static uint16_t random_scale(kc *t, int mode)
{
    uint16_t sign = (uint16_t)(kc_u64(t) & 0x8000);

    switch (mode) {
    case 1: return sign | 0x7BFF;                                // 65504
    case 2: return sign | (uint16_t)kc_int(t, 0, 0x3FF);         // subnormal or zero
    case 3: return sign | (uint16_t)kc_int(t, 0, 0x7BFF);        // anything finite
    default: return sign | lg_f32_to_f16((float)kc_uniform(t, 1e-4, 2e-3));
    }
}

static void fill_float(kc *t, lg_qtype type, uint8_t *w, int64_t n, int mode)
{
    for (int64_t i = 0; i < n; i++) {
        float v = kc_normal(t);

        if (mode == 1)
            v = v < 0.0f ? -60000.0f : 60000.0f;
        if (mode == 2)
            v *= 1e-7f; // subnormal as f16
        if (mode == 3)
            v *= (float)ldexp(1.0, kc_int(t, -20, 12));
        if (type == LG_F32) {
            memcpy(w + 4 * i, &v, 4);
        } else {
            uint16_t h = type == LG_F16 ? lg_f32_to_f16(v) : lg_f32_to_bf16(v);

            memcpy(w + 2 * i, &h, 2);
        }
    }
}

void kc_fill_w(kc *t, lg_qtype type, uint8_t *w, int64_t n, int mode)
{
    const lg_qtype_info *info = lg_qtype_get((uint32_t)type);
    int at[2];

    if (type == LG_F32 || type == LG_F16 || type == LG_BF16) {
        fill_float(t, type, w, n, mode);
        return;
    }
    scale_fields(type, at);
    for (int64_t b = 0; b < n / info->block_elems; b++, w += info->block_bytes) {
        for (int i = 0; i < info->block_bytes; i++)
            w[i] = mode == 1 && kc_int(t, 0, 15) ? (kc_u64(t) & 1 ? 0xFF : 0x80) : (uint8_t)kc_u64(t);
        for (int i = 0; i < 2 && at[i] >= 0; i++) {
            uint16_t h = random_scale(t, mode);

            w[at[i]] = (uint8_t)h;
            w[at[i] + 1] = (uint8_t)(h >> 8);
        }
        if (type == LG_MXFP4) // a power of two; far larger ones overflow f32 with any activation
            w[0] = (uint8_t)(mode == 2   ? kc_int(t, 0, 3)
                             : mode == 3 ? kc_int(t, 0, 150)
                                         : kc_int(t, 110, 130));
    }
}

/* ---- memory ---- */

typedef struct kc_map {
    struct kc_map *next;
    void *base;
    size_t bytes;
} kc_map;

void *kc_guard(kc *t, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    kc_map *m = malloc(sizeof *m);
    uint8_t *base = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (!m || base == MAP_FAILED || mprotect(base + body, page, PROT_NONE) != 0) {
        (void)fprintf(stderr, "kcheck: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    *m = (kc_map){t->maps, base, body + page};
    t->maps = m;
    memset(base, 0xA5, body);
    return base + body - bytes;
}

void kc_release(kc *t)
{
    while (t->maps) {
        kc_map *m = t->maps;

        t->maps = m->next;
        (void)munmap(m->base, m->bytes);
        free(m);
    }
}

/* ---- verdicts ---- */

void kc_label(kc *t, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(t->label, sizeof t->label, fmt, ap);
    va_end(ap);
}

bool kc_check(kc *t, bool holds, const char *fmt, ...)
{
    t->checks++;
    if (holds)
        return true;
    if (++t->failures <= 20) {
        va_list ap;

        printf("FAIL %s %s: ", t->isa, t->label);
        va_start(ap, fmt);
        (void)vprintf(fmt, ap);
        va_end(ap);
        printf(" (--seed %llu)\n", (unsigned long long)t->seed);
    }
    return false;
}

bool kc_same(kc *t, const float *got, const float *want, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!(got[i] == want[i] || (got[i] != got[i] && want[i] != want[i])))
            return kc_check(t, false, "%s: element %d of %d is %.9g, not %.9g", what, i, n, (double)got[i],
                            (double)want[i]);
    return kc_check(t, true, "%s", what);
}
