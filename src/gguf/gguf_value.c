/*
 * gguf/gguf_value: metadata values as the types that callers want. Values lie unaligned in the map, so they
 * are read byte by byte.
 */
#include <math.h>
#include <string.h>

#include "gguf/gguf.h"

// One scalar, widened: an integer in [INT64_MIN, UINT64_MAX] or a float.
typedef struct number {
    enum { NOT_A_NUMBER, SIGNED, UNSIGNED, FLOAT } kind;
    int64_t i;
    uint64_t u;
    double f;
} number;

static const struct {
    const char *name;
    size_t bytes; /* 0: not a scalar */
} kinds[LG_GV_COUNT] = {
    [LG_GV_U8] = {"u8", 1},       [LG_GV_I8] = {"i8", 1},     [LG_GV_U16] = {"u16", 2},
    [LG_GV_I16] = {"i16", 2},     [LG_GV_U32] = {"u32", 4},   [LG_GV_I32] = {"i32", 4},
    [LG_GV_F32] = {"f32", 4},     [LG_GV_BOOL] = {"bool", 1}, [LG_GV_STR] = {"string", 0},
    [LG_GV_ARRAY] = {"array", 0}, [LG_GV_U64] = {"u64", 8},   [LG_GV_I64] = {"i64", 8},
    [LG_GV_F64] = {"f64", 8},
};

const char *lg_gguf_vtype_name(lg_gguf_vtype type)
{
    return type < LG_GV_COUNT ? kinds[type].name : "unknown";
}

static number load(lg_gguf_vtype type, const uint8_t *p)
{
    number v = {NOT_A_NUMBER, 0, 0, 0.0};
    uint64_t raw = 0;

    for (size_t i = kinds[type].bytes; i-- > 0;)
        raw = raw << 8 | p[i];
    switch (type) {
    case LG_GV_U8:
    case LG_GV_U16:
    case LG_GV_U32:
    case LG_GV_U64:
        v.kind = UNSIGNED;
        v.u = raw;
        break;
    case LG_GV_BOOL: // some writers store any non-zero byte
        v.kind = UNSIGNED;
        v.u = raw != 0;
        break;
    case LG_GV_I8:
        v = (number){SIGNED, (int8_t)raw, 0, 0.0};
        break;
    case LG_GV_I16:
        v = (number){SIGNED, (int16_t)raw, 0, 0.0};
        break;
    case LG_GV_I32:
        v = (number){SIGNED, (int32_t)raw, 0, 0.0};
        break;
    case LG_GV_I64:
        v = (number){SIGNED, (int64_t)raw, 0, 0.0};
        break;
    case LG_GV_F32: {
        uint32_t bits = (uint32_t)raw;
        float f;

        memcpy(&f, &bits, sizeof f);
        v = (number){FLOAT, 0, 0, (double)f};
        break;
    }
    case LG_GV_F64:
        v.kind = FLOAT;
        memcpy(&v.f, &raw, sizeof v.f);
        break;
    default:
        break;
    }
    return v;
}

static bool to_i64(number v, int64_t *out)
{
    switch (v.kind) {
    case SIGNED:
        *out = v.i;
        return true;
    case UNSIGNED:
        if (v.u > INT64_MAX)
            return false;
        *out = (int64_t)v.u;
        return true;
    case FLOAT: // integral and in range; the bounds are exact as doubles
        if (!(v.f >= -0x1p63 && v.f < 0x1p63) || v.f != floor(v.f))
            return false;
        *out = (int64_t)v.f;
        return true;
    default:
        return false;
    }
}

static bool to_f64(number v, double *out)
{
    if (v.kind == FLOAT) {
        *out = v.f;
        return true;
    }
    int64_t i;
    if (!to_i64(v, &i) || i > INT64_C(1) << 53 || i < -(INT64_C(1) << 53))
        return false;
    *out = (double)i;
    return true;
}

// The scalar behind kv, or element i of its array.
static number scalar(const lg_gguf_kv *kv)
{
    return kv ? load(kv->type, kv->value) : (number){NOT_A_NUMBER, 0, 0, 0.0};
}

static number element(const lg_gguf_kv *kv, uint64_t i)
{
    if (!kv || kv->type != LG_GV_ARRAY || i >= kv->count || kinds[kv->elem].bytes == 0)
        return (number){NOT_A_NUMBER, 0, 0, 0.0};
    return load(kv->elem, kv->value + i * kinds[kv->elem].bytes);
}

static lg_str string_at(const uint8_t *p)
{
    uint64_t n = 0;

    for (int i = 8; i-- > 0;)
        n = n << 8 | p[i];
    return (lg_str){(const char *)p + 8, (size_t)n};
}

bool lg_kv_i64(const lg_gguf_kv *kv, int64_t *out)
{
    return to_i64(scalar(kv), out);
}

bool lg_kv_f64(const lg_gguf_kv *kv, double *out)
{
    return to_f64(scalar(kv), out);
}

bool lg_kv_bool(const lg_gguf_kv *kv, bool *out)
{
    int64_t v;

    if (!to_i64(scalar(kv), &v) || v < 0 || v > 1)
        return false;
    *out = v == 1;
    return true;
}

bool lg_kv_str(const lg_gguf_kv *kv, lg_str *out)
{
    if (!kv || kv->type != LG_GV_STR)
        return false;
    *out = string_at(kv->value);
    return true;
}

bool lg_kv_elem_i64(const lg_gguf_kv *kv, uint64_t i, int64_t *out)
{
    return to_i64(element(kv, i), out);
}

bool lg_kv_elem_f64(const lg_gguf_kv *kv, uint64_t i, double *out)
{
    return to_f64(element(kv, i), out);
}

bool lg_kv_elem_str(const lg_gguf_kv *kv, uint64_t i, lg_str *out)
{
    if (!kv || kv->type != LG_GV_ARRAY || kv->elem != LG_GV_STR || i >= kv->count)
        return false;
    *out = string_at(kv->value + kv->str_at[i]);
    return true;
}
