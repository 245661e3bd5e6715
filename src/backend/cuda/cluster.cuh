/*
 * backend/cuda/cluster: what the blocks of a cluster tell each other: they read each other's shared memory,
 * or send numbers there asynchronously, where a barrier beside them counts their bytes.
 *
 * Surprise: a barrier of the cluster with release semantics waits for memory and took 10 % of a window's
 * attention of one row; so there, and in norms, is only a relaxed one, before the kernel's wait.
 */
#ifndef LG_BACKEND_CUDA_CLUSTER_CUH
#define LG_BACKEND_CUDA_CLUSTER_CUH

#include "backend/cuda/common.cuh"

/* All threads: what this one did before is not told to the others, but for barriers in shared memory that
 * bars_ready has announced. */
[[maybe_unused]] DEV void cluster_arrive(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

[[maybe_unused]] DEV void cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The shared address `at` in block `rank` of the cluster.
[[maybe_unused]] DEV unsigned shared_of(unsigned at, unsigned rank)
{
    unsigned r = at;
#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
#endif
    return r;
}

// To a block of the cluster, where the barrier `bar` counts the bytes. The block must not end before.
[[maybe_unused]] DEV void send4(unsigned to, float4 v, unsigned bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
            to),
        "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(bar)
        : "memory");
#endif
}

[[maybe_unused]] DEV void send2(unsigned to, float2 v, unsigned bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
        "f"(v.x), "f"(v.y), "r"(bar)
        : "memory");
#endif
}

[[maybe_unused]] DEV void send1(unsigned to, float v, unsigned bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to),
                 "f"(v), "r"(bar)
                 : "memory");
#endif
}

[[maybe_unused]] DEV void sent_wait(unsigned bar) // until all that the block expects has come
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n\t"
                 "@!p bra again;\n\t"
                 "}" ::"r"(bar)
                 : "memory");
#endif
}

/* All threads of all blocks of the cluster that have not ended; what they wrote to shared memory before is
 * seen by all behind it. */
[[maybe_unused]] DEV void cluster_meet(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#endif
}

/* The float at this block's shared address `at` in block `rank`. */
[[maybe_unused]] DEV float float_of(unsigned at, unsigned rank)
{
    float v = 0.0f;
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n\t.reg .u32 a;\n\tmapa.shared::cluster.u32 a, %1, %2;\n\t"
                 "ld.shared::cluster.f32 %0, [a];\n\t}"
                 : "=f"(v)
                 : "r"(at), "r"(rank)
                 : "memory");
#endif
    return v;
}

/* Four floats to shared_of's address; cluster_meet tells. */
[[maybe_unused]] DEV void put_fours(unsigned to, float4 v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z),
                 "f"(v.w)
                 : "memory");
#endif
}

#endif
