/*
 * backend/cuda/measure: what the card can do: bytes read a second, and operations a second of the matrix
 * instruction that gemm.cu uses. Blocking; events around single launches, the best of several counts.
 */
#include "backend/cuda/common.cuh"

enum { PASSES = 7, ROUNDS = 4096 };

static __global__ void read_kernel(const uint4 *p, size_t n, unsigned *out)
{
    unsigned x = 0;
    size_t step = (size_t)gridDim.x * blockDim.x, i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (; i + 3 * step < n; i += 4 * step) {
        uint4 a = load16(p + i), b = load16(p + i + step), c = load16(p + i + 2 * step),
              d = load16(p + i + 3 * step);
        x ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    if (x == 0x12345678u) // so that the reads count
        *out = x;
}

static __global__ void fill_kernel(uint64_t *p, size_t n)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint64_t z = i * 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        p[i] = z ^ z >> 27;
    }
}

static __global__ void mma_kernel(float *out, unsigned seed)
{
    float c[8][4] = {};
    unsigned a[4], b[2];

    for (int i = 0; i < 4; i++)
        a[i] = 0x3F803F80u ^ (seed * (threadIdx.x + 1) & 0x007F007Fu);
    b[0] = a[1] ^ 0x00110022u, b[1] = a[2] ^ 0x80330044u;
    for (int r = 0; r < ROUNDS; r++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                "{%8, %9}, {%0, %1, %2, %3};"
                : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    float sum = 0.0f;
    for (int j = 0; j < 8; j++)
        sum += c[j][0] + c[j][1] + c[j][2] + c[j][3];
    if (sum == 1.2345f)
        *out = sum;
}

// Seconds of the fastest of PASSES runs of one launch; 0 when the device failed.
template <typename F> static double best_of(lg_cu *c, F enqueue)
{
    cudaEvent_t start = NULL, stop = NULL;
    float best = 0.0f;

    if (cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&stop) == cudaSuccess)
        for (int i = 0; i < PASSES; i++) {
            float ms = 0.0f;
            (void)cudaEventRecord(start, c->stream);
            enqueue();
            (void)cudaEventRecord(stop, c->stream);
            if (cudaEventSynchronize(stop) != cudaSuccess ||
                cudaEventElapsedTime(&ms, start, stop) != cudaSuccess)
                break;
            if (i > 0 && (best == 0.0f || ms < best)) // the first one warms up
                best = ms;
        }
    (void)cudaEventDestroy(start);
    (void)cudaEventDestroy(stop);
    return best * 1e-3;
}

double lg_cu_measure_read(lg_cu *c, const void *p, size_t bytes)
{
    bool pdl = c->pdl;

    c->pdl = false;
    launch(c, fill_kernel, dim3((unsigned)c->sms * 8), 512, 0, (uint64_t *)p, bytes / 8);
    double s = best_of(c, [&] {
        launch(c, read_kernel, dim3((unsigned)c->sms * 4), 512, 0, (const uint4 *)p, bytes / 16,
               (unsigned *)p);
    });
    c->pdl = pdl;
    return s > 0.0 ? (double)bytes / s : 0.0;
}

double lg_cu_measure_mma(lg_cu *c)
{
    bool pdl = c->pdl;
    unsigned blocks = (unsigned)c->sms * 4;

    c->pdl = false;
    double s = best_of(c, [&] { launch(c, mma_kernel, dim3(blocks), 256, 0, c->attn_part, 12345u); });
    c->pdl = pdl;
    return s > 0.0 ? (double)blocks * 8 * ROUNDS * 8 * 2 * 16 * 8 * 16 / s : 0.0;
}
