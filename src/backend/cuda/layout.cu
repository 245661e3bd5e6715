/*
 * backend/cuda/layout: how weights lie on the device, the kernels that bring them there, and synthetic
 * weights.
 *
 * Q8_0, Q4_K, Q5_K and Q6_K are taken apart into planes, so that every load is aligned and a warp's loads are
 * contiguous; bytes stay what they were. With n inputs, per row:
 *   Q8_0  codes 0-15 of every run, codes 16-31 of every run | f16 scales
 *   Q4_K  16 bytes a run, element j low and 16 + j high | 16 bytes a block: d, dmin, 8 fields scale | min <<
 * 6 Q5_K  as Q4_K | 4 bytes a run: bit w of byte b is the fifth bit of element 4w + b Q6_K  nibbles as Q4_K |
 * 8 bytes a run: bits 2w of byte b of word h, element 16h + 4w + b | 16 scales a block | f16 d A matrix is
 * plane after plane, each at a multiple of 256 bytes; every other type is stored as the file has it.
 *
 * Surprise: the synthetic generator must give the bits of model/synth_fill.c, so its float operations are
 * spelled with rounding intrinsics.
 */
#include "backend/cuda/common.cuh"

/* ---- shapes ---- */

static size_t plane(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t stored_block_bytes(int type)
{
    switch (type) {
    case LG_F32: return 4;
    case LG_F16: case LG_BF16: return 2;
    case LG_Q8_0: return 34;
    case LG_Q4_0: case LG_IQ4_NL: return 18;
    case LG_Q4_1: return 20;
    case LG_Q5_0: return 22;
    case LG_Q5_1: return 24;
    case LG_MXFP4: return 17;
    case LG_NVFP4: return 36;
    case LG_Q2_K: return 84;
    case LG_Q3_K: return 110;
    case LG_Q4_K: return 144;
    case LG_Q5_K: return 176;
    case LG_Q6_K: return 210;
    case LG_IQ4_XS: return 136;
    default: return 0;
    }
}

static int block_elems(int type)
{
    switch (type) {
    case LG_F32: case LG_F16: case LG_BF16: return 1;
    case LG_Q2_K: case LG_Q3_K: case LG_Q4_K: case LG_Q5_K: case LG_Q6_K: case LG_IQ4_XS: return 256;
    case LG_NVFP4: return 64;
    default: return 32;
    }
}

bool lg_cu_layout(lg_qtype type, int n_in, int n_out, lg_cu_mat *m)
{
    size_t n = (size_t)n_in, rows = (size_t)n_out, block = stored_block_bytes(type);

    if (block == 0 || n_in % block_elems(type) != 0)
        return false;
    m->type = type;
    m->n_in = n_in;
    m->n_out = n_out;
    m->at[0] = m->at[1] = m->at[2] = 0;
    if (!is_planar(type)) {
        m->matrix_bytes = rows * (n / (size_t)block_elems(type)) * block;
        return true;
    }
    m->at[0] = plane(rows * (type == LG_Q8_0 ? n : n / 2));
    size_t end = m->at[0];
    if (type == LG_Q8_0) {
        end += rows * n / 16;
    } else if (type == LG_Q4_K) {
        end += rows * n / 16;
    } else if (type == LG_Q5_K) {
        m->at[1] = plane(end + rows * n / 16);
        end = m->at[1] + rows * n / 8;
    } else {
        m->at[1] = plane(end + rows * n / 4);
        m->at[2] = plane(m->at[1] + rows * n / 16);
        end = m->at[2] + rows * n / 128;
    }
    m->matrix_bytes = plane(end);
    return true;
}

/* ---- from stored blocks to planes ---- */

// Byte j < 16 of a run's nibbles: element j low, element 16 + j high.
DEV uint8_t pair_nibbles(const uint8_t *q, int shift, int j)
{
    return (uint8_t)((q[j] >> shift & 15) | (q[j + 16] >> shift & 15) << 4);
}

DEV void k_fields(const uint8_t *b, uint8_t *dst)
{
    uint32_t w[3] = {0, 0, 0};

    for (int j = 0; j < 8; j++) {
        const uint8_t *sc = b + 4;
        unsigned s = j < 4 ? sc[j] & 63 : (sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4;
        unsigned m = j < 4 ? sc[j + 4] & 63 : sc[j + 4] >> 4 | (sc[j] >> 6) << 4;
        unsigned field = s | m << 6, bit = 12u * (unsigned)j;
        w[bit / 32] |= field << bit % 32;
        if (bit % 32 > 20)
            w[bit / 32 + 1] |= field >> (32 - bit % 32);
    }
    for (int i = 0; i < 4; i++)
        dst[i] = b[i];
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++)
            dst[4 + 4 * i + k] = (uint8_t)(w[i] >> 8 * k);
}

DEV void repack_q6_high(const uint8_t *block, int r, uint8_t *dst)
{
    const uint8_t *qh = block + 128 + 32 * (r / 4);

    for (int h = 0; h < 2; h++)
        for (int b = 0; b < 4; b++) {
            unsigned v = 0;
            for (int w = 0; w < 4; w++)
                v |= (unsigned)(qh[16 * h + 4 * w + b] >> 2 * (r % 4) & 3) << 2 * w;
            dst[4 * h + b] = (uint8_t)v;
        }
}

// One thread a run.
static __global__ void repack_kernel(lg_cu_mat m, const uint8_t *src, long long row0, long long n_runs)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    int per_row = m.n_in / 32;

    if (i >= n_runs)
        return;
    long long row = row0 + i / per_row;
    int run = (int)(i % per_row), out_row = (int)(row % m.n_out), r = run % 8;
    uint8_t *p = (uint8_t *)m.p + (size_t)(row / m.n_out) * m.matrix_bytes;
    size_t at = (size_t)out_row * (size_t)per_row + (size_t)run; // of the run in the matrix
    if (m.type == LG_Q8_0) {
        const uint8_t *b = src + (size_t)i * 34;
        uint8_t *q = p + (size_t)out_row * (size_t)m.n_in + (size_t)run * 16;
        for (int j = 0; j < 16; j++) {
            q[j] = b[2 + j];
            q[m.n_in / 2 + j] = b[18 + j];
        }
        p[m.at[0] + 2 * at] = b[0];
        p[m.at[0] + 2 * at + 1] = b[1];
        return;
    }
    int bytes = m.type == LG_Q4_K ? 144 : m.type == LG_Q5_K ? 176 : 210;
    const uint8_t *b = src + (size_t)(i / 8) * (size_t)bytes;
    size_t block = at / 8;
    if (m.type == LG_Q6_K) {
        const uint8_t *ql = b + 64 * (r / 4) + 32 * (r & 1);
        for (int j = 0; j < 16; j++)
            p[at * 16 + (size_t)j] = pair_nibbles(ql, 4 * (r % 4 / 2), j);
        repack_q6_high(b, r, p + m.at[0] + at * 8);
        p[m.at[1] + 2 * at] = b[192 + 2 * r];
        p[m.at[1] + 2 * at + 1] = b[193 + 2 * r];
        if (r == 0) {
            p[m.at[2] + 2 * block] = b[208];
            p[m.at[2] + 2 * block + 1] = b[209];
        }
        return;
    }
    const uint8_t *q = b + (m.type == LG_Q4_K ? 16 : 48) + 32 * (r / 2);
    for (int j = 0; j < 16; j++)
        p[at * 16 + (size_t)j] = pair_nibbles(q, 4 * (r & 1), j);
    if (r == 0)
        k_fields(b, p + m.at[0] + block * 16);
    for (int byte = 0; m.type == LG_Q5_K && byte < 4; byte++) {
        unsigned v = 0;
        for (int w = 0; w < 8; w++)
            v |= (unsigned)(b[16 + 4 * w + byte] >> r & 1) << w;
        p[m.at[1] + 4 * at + (size_t)byte] = (uint8_t)v;
    }
}

void lg_cu_repack(lg_cu *c, const lg_cu_mat *m, const void *src, int64_t row, int64_t rows)
{
    int64_t runs = rows * (m->n_in / 32);

    if (!is_planar(m->type)) {
        size_t bytes = (size_t)(m->n_in / block_elems(m->type)) * stored_block_bytes(m->type);
        cudaError_t e = cudaMemcpyAsync((uint8_t *)m->p + (size_t)row * bytes, src, (size_t)rows * bytes,
                                        cudaMemcpyDeviceToDevice, c->stream);
        if (e != cudaSuccess && c->error == cudaSuccess)
            c->error = e;
        return;
    }
    bool pdl = c->pdl;
    c->pdl = false;
    launch(c, repack_kernel, dim3((unsigned)ceil_div(runs, 256)), 256, 0, *m, (const uint8_t *)src,
           (long long)row, (long long)runs);
    c->pdl = pdl;
}

static __global__ void to_f32_kernel(int type, const uint8_t *src, float *dst, long long n, float scale)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        dst[i] = float_at(type, src, (size_t)i) * scale;
}

void lg_cu_to_f32(lg_cu *c, lg_qtype type, const void *src, float *dst, int64_t n, float scale)
{
    bool pdl = c->pdl;
    c->pdl = false;
    launch(c, to_f32_kernel, dim3((unsigned)ceil_div(n, 256)), 256, 0, (int)type, (const uint8_t *)src, dst,
           (long long)n, scale);
    c->pdl = pdl;
}

cudaError_t lg_cu_has_code(int *arch)
{
    cudaFuncAttributes a = {};
    cudaError_t e = cudaFuncGetAttributes(&a, to_f32_kernel);

    *arch = a.ptxVersion;
    return e;
}

/* ---- synthetic weights: the twin of model/synth_fill.c ---- */

DEV uint64_t mix64(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

DEV uint64_t word_at(uint64_t key, uint64_t counter)
{
    return mix64(key + 0x9E3779B97F4A7C15u * (counter + 1));
}

DEV void put16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

// As a word: with the 16-bit register of __float2half_rn, ptxas 13.0 stores a low byte of zero.
DEV unsigned f16_bits(float f)
{
    unsigned h;
    asm("{\n\t.reg .b16 t;\n\tcvt.rn.f16.f32 t, %1;\n\tcvt.u32.u16 %0, t;\n\t}" : "=r"(h) : "f"(f));
    return h;
}

DEV float put_scale(uint8_t *p, float centre, float gain, uint64_t random)
{
    uint32_t n = 45875 + (uint32_t)((random & 0xFFFF) * 39322 >> 16);
    unsigned h = f16_bits(__fmul_rn(__fmul_rn(__fmul_rn(centre, gain), 0x1p-16f), (float)n));

    put16(p, h);
    return half_bits(h);
}

DEV void put_min(uint8_t *p, float scale, float factor)
{
    put16(p, f16_bits(__fmul_rn(scale, factor)));
}

DEV void synth_iq4_xs(uint8_t *b, float gain, uint64_t r)
{
    unsigned high = 0;

    put_scale(b, 1.3e-4f, gain, r);
    for (int j = 0; j < 8; j++) {
        unsigned t = 28 + (unsigned)(r >> (16 + 3 * j) & 7);
        high |= (t >> 4) << 2 * j;
        b[4 + j / 2] = (uint8_t)(j & 1 ? (b[4 + j / 2] & 15) | (t & 15) << 4 : t & 15);
    }
    put16(b + 2, high);
}

DEV void synth_scales(int type, uint8_t *b, uint64_t r, float gain)
{
    switch (type) {
    case LG_Q8_0:
        put_scale(b, 2.7e-4f, gain, r);
        for (int i = 2; i < 34; i++)
            b[i] = b[i] == 0x80 ? 0x81 : b[i];
        break;
    case LG_Q4_0: put_scale(b, 4.3e-3f, gain, r); break;
    case LG_Q4_1: put_min(b + 2, put_scale(b, 4.3e-3f, gain, r), -7.5f); break;
    case LG_Q5_0: put_scale(b, 2.2e-3f, gain, r); break;
    case LG_Q5_1: put_min(b + 2, put_scale(b, 2.2e-3f, gain, r), -15.5f); break;
    case LG_Q2_K: put_min(b + 82, put_scale(b + 80, 1.4e-3f, gain, r), 1.5f); break;
    case LG_Q3_K: put_scale(b + 108, 4.6e-4f, gain, r); break;
    case LG_Q4_K: put_min(b + 2, put_scale(b, 1.2e-4f, gain, r), 7.5f); break;
    case LG_Q5_K:
        put_min(b + 2, put_scale(b, 1.2e-4f, gain, r), 15.5f);
        for (int i = 4; i < 12; i++)
            b[i] &= 0x5F;
        break;
    case LG_Q6_K:
        put_scale(b + 208, 1.4e-4f, gain, r);
        for (int i = 192; i < 208; i++)
            b[i] = (uint8_t)((b[i] * 21 >> 8) - 10);
        break;
    case LG_IQ4_NL: put_scale(b, 3.1e-4f, gain, r); break;
    case LG_IQ4_XS: synth_iq4_xs(b, gain, r); break;
    case LG_MXFP4: b[0] = (uint8_t)(119 + (r & 1) + (r >> 1 & 1)); break;
    default: // NVFP4
        for (int i = 0; i < 4; i++)
            b[i] = (uint8_t)(2 + (r >> 2 * i & 3));
        break;
    }
}

static __global__ void synth_blocks_kernel(uint64_t key, int type, int bytes, float gain, uint64_t block0,
                                           uint64_t n, uint8_t *dst)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x, words = ((uint64_t)bytes + 7) / 8 + 1;

    if (i >= n)
        return;
    uint8_t *b = dst + i * (uint64_t)bytes;
    uint64_t counter = (block0 + i) * words;
    for (int at = 0; at < bytes; at += 8) {
        uint64_t w = word_at(key, counter++);
        for (int k = 0; k < 8 && at + k < bytes; k++)
            b[at + k] = (uint8_t)(w >> 8 * k);
    }
    synth_scales(type, b, word_at(key, counter), gain);
}

static __global__ void synth_floats_kernel(uint64_t key, int type, float mean, float spread, uint64_t first,
                                           uint64_t n, uint8_t *dst)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n)
        return;
    uint64_t w = word_at(key, first + i);
    int sum = (int)((w & 0xFFFF) + (w >> 16 & 0xFFFF) + (w >> 32 & 0xFFFF) + (w >> 48)) - 131070;
    float v = __fadd_rn(mean, __fmul_rn(__fmul_rn(spread, 1.0f / 37837.0f), (float)sum));
    if (type == LG_F32)
        ((float *)dst)[i] = v;
    else if (type == LG_F16)
        ((__half *)dst)[i] = __float2half_rn(v);
    else
        ((__nv_bfloat16 *)dst)[i] = __float2bfloat16_rn(v);
}

static uint64_t host_mix64(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

void lg_cu_synth(lg_cu *c, uint64_t seed, uint32_t index, lg_qtype type, float mean, float spread,
                 uint64_t block0, uint64_t n, void *dst)
{
    uint64_t key = host_mix64(seed + 0x9E3779B97F4A7C15u * ((uint64_t)index + 1));
    dim3 grid((unsigned)ceil_div((int64_t)n, 256));
    bool pdl = c->pdl;

    c->pdl = false;
    if (is_float(type))
        launch(c, synth_floats_kernel, grid, 256, 0, key, (int)type, mean, spread, block0, n, (uint8_t *)dst);
    else
        launch(c, synth_blocks_kernel, grid, 256, 0, key, (int)type, (int)stored_block_bytes(type),
               spread / 0.02f, block0, n, (uint8_t *)dst);
    c->pdl = pdl;
}
