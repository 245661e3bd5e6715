/*
 * backend/cuda/few_warp: few.cuh's tiles with a warp each: for groups of up to four rows, which leave a warp
 * registers for the sums of all classes of runs.
 *
 * A warp takes all quads of a tile in ascending order, quad q into the sums of class q % SHARERS, which are
 * those of warp q % SHARERS in few.cuh; joined in the same order, they have the same bits. No warp waits for
 * another one: there are no barriers and no sums in shared memory, and a block may be small.
 *
 * A slot of the warp's ring holds two quads, which share the numbers of a block of 256 (Q8_0: one quad). A
 * lane copies the codes that it will read.
 */
#ifndef LG_BACKEND_CUDA_FEW_WARP_CUH
#define LG_BACKEND_CUDA_FEW_WARP_CUH

#include "backend/cuda/few.cuh"

/* Codes by quad and lane (few_slot), then [row] the other planes. */
template <int T> struct warp_slot {
    enum {
        QUADS = T == LG_Q8_0 ? 1 : 2,
        CODES = 2048,
        HIGH = CODES,                                // Q6_K: 64 bytes a row
        SCALES = HIGH + (T == LG_Q6_K ? 1024 : 0),   // 16 bytes a row; Q8_0: 8
        BLOCK = SCALES + (T == LG_Q8_0 ? 128 : 256), // Q6_K: a word a row, with the block's scale in a half
        BYTES = BLOCK + (T == LG_Q6_K ? 64 : 0),
        DEPTH = T == LG_Q6_K ? 3 : 4,
        RING = DEPTH * BYTES,
    };
};

/* Bytes of a warp's ring for either type. */
template <int T, int S> static __host__ __device__ constexpr int warp_ring(void)
{
    int t = warp_slot<T>::RING, s = warp_slot<S>::RING;

    return t > s ? t : s;
}

/* The first slot of a tile; the reader goes on to the next. */
template <int T> DEV few_reader warp_reader_at(const lg_cu_mat &m, const uint8_t *p, int row0, int lane)
{
    size_t n = (size_t)m.n_in, row = (size_t)(row0 + lane % 16);
    few_reader f = {};

    f.codes = p + (size_t)(row0 + lane / 4) * (T == LG_Q8_0 ? n : n / 2) + lane % 4 * 16;
    f.scales = p + m.at[T == LG_Q6_K ? 1 : 0] + row * (n / 16);
    if (T == LG_Q6_K) {
        f.high = p + m.at[0] + (size_t)(row0 + lane / 2) * (n / 4) + lane % 2 * 16;
        f.block = p + m.at[2] + row * (n / 128);
    }
    return f;
}

template <int T> DEV void warp_fetch(unsigned slot, few_reader &f, unsigned n, int lane)
{
    unsigned to = slot + (unsigned)lane * 16;
    const uint8_t *below = f.codes + (T == LG_Q8_0 ? 8 * n : 4 * n); // eight rows

    copy16(to, f.codes);
    copy16(to + 512, below);
    copy16(to + 1024, f.codes + (T == LG_Q8_0 ? n / 2 : 64));
    copy16(to + 1536, below + (T == LG_Q8_0 ? n / 2 : 64));
    if (T == LG_Q6_K) {
        unsigned high = slot + warp_slot<T>::HIGH + (unsigned)(lane / 2 * 64 + lane % 2 * 16);
        copy16(high, f.high);
        copy16(high + 32, f.high + 32);
        f.high += 64;
    }
    if (lane < 16) {
        if (T == LG_Q8_0)
            few_copy8(slot + warp_slot<T>::SCALES + (unsigned)lane * 8, f.scales);
        else
            copy16(slot + warp_slot<T>::SCALES + (unsigned)lane * 16, f.scales);
        if (T == LG_Q6_K) // of two bytes, which a copy has not
            few_copy4(slot + warp_slot<T>::BLOCK + (unsigned)lane * 4,
                      f.block - ((unsigned)(uintptr_t)f.block & 2));
    }
    f.codes += warp_slot<T>::QUADS * 64;
    f.scales += T == LG_Q8_0 ? 8 : 16;
    f.block += T == LG_Q6_K ? 2 : 0;
}

template <int T> DEV few_places warp_places_of(int lane)
{
    unsigned row = (unsigned)lane / 4, t = (unsigned)lane % 4;
    few_places at = {(unsigned)lane * 16, warp_slot<T>::HIGH + row * 64 + t * 8,
                     warp_slot<T>::SCALES + (T == LG_Q8_0 ? row * 8 + t * 2 : row * 16),
                     warp_slot<T>::BLOCK + row * 4};
    return at;
}

/* Quad i of the slot at p. odd: Q6_K: which half of the word has the block's scale, times 16. */
template <int T> DEV void warp_take(few_quad<T> &k, unsigned p, const few_places &at, int i, int t, int odd)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        unsigned u = (unsigned)(i * 1024 + r * 512);
        uint4 x = shared_v4(p + at.codes + u), y = {};
        uint2 h = {};
        if (T == LG_Q8_0)
            y = shared_v4(p + at.codes + u + 1024);
        if (T == LG_Q6_K)
            h = shared_v2(p + at.high + (unsigned)(r * 512 + i * 32));
        few_codes<T>(k, r, x, y, h);
        if constexpr (T == LG_Q8_0) {
            k.s[r] = half_bits(shared_u16(p + at.scales + (unsigned)(r * 64)));
        } else if constexpr (T == LG_Q6_K) {
            unsigned s = shared_u16(p + at.scales + (unsigned)(r * 128 + i * 8 + t * 2));
            few_scales6(k, r, shared_u32(p + at.block + (unsigned)(r * 32)) >> odd & 0xFFFF, s);
        } else {
            k_scales(shared_v4(p + at.scales + (unsigned)(r * 128)), 4 * i + t, &k.s[r], &k.m[r]);
        }
    }
}

/* n tiles (ONE: 1), place(i) each, times the tokens of PAIRS pairs at `tokens`; room: the warp's ring.
 * ready() is called once the first weights are under way; put(tile, row, token, sum) by one lane each. */
template <int T, int PAIRS, bool ONE, typename Place, typename Ready, typename Put>
DEV void warp_tiles(const lg_cu_mat &m, int n, unsigned tokens, unsigned room, Place place, Ready ready,
                    Put put)
{
    enum { QUADS = warp_slot<T>::QUADS, SLOTS = SHARERS / QUADS };
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, n_in = m.n_in, slots = n_in / (QUADS * 128);
    unsigned mine = t == g >> 1, pair = pair_bytes<T>(n_in), b[8] = {};
    pair_planes plane = planes_of(n_in);
    int ask = 0, ask_tile = 0;
    few_places places = warp_places_of<T>(lane);
    few_ring<warp_slot<T>::DEPTH, warp_slot<T>::BYTES> ring;
    few_reader from;

    auto next = [&] {
        few_place at = place(ask_tile++);
        from = warp_reader_at<T>(m, at.p, at.row0, lane);
        ask = slots;
    };
    auto get = [&](unsigned slot) {
        if (!ONE && ask == 0)
            next();
        warp_fetch<T>(slot, from, (unsigned)n_in, lane);
        ask--;
    };
    if (ONE)
        next();
    ring.start(room, n * slots, get);
    ready();
#pragma unroll 1
    for (int tile = 0; tile < n; tile++) {
        float4 v[PAIRS][SHARERS];
        unsigned codes = tokens + (unsigned)((g & 1) * (n_in + 16) + t * 32), meta = tokens + (unsigned)t * 8;
        int odd = T == LG_Q6_K ? (place(tile).row0 + g) * (n_in / 256) : 0;
#pragma unroll
        for (int c = 0; c < PAIRS; c++)
#pragma unroll
            for (int i = 0; i < SHARERS; i++)
                v[c][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
        for (int s = 0; s < slots; s += SLOTS, codes += SHARERS * 128, meta += SHARERS * 32) {
#pragma unroll
            for (int j = 0; j < SLOTS; j++) {
                if (s + j >= slots)
                    break;
                unsigned slot = ring.turn(get);
#pragma unroll
                for (int i = 0; i < QUADS; i++) {
                    few_quad<T> k;
                    unsigned quad = (unsigned)(j * QUADS + i);
                    warp_take<T>(k, slot, places, i, t, (odd + s + j & 1) * 16);
#pragma unroll
                    for (int c = 0; c < PAIRS; c++) {
                        float4 &sum = v[c][quad];
                        float acc[4] = {sum.x, sum.y, sum.z, sum.w};
                        few_tokens(b, codes + (unsigned)c * pair + quad * 128, mine);
                        few_dot<T>(acc, k, b, meta + (unsigned)c * pair + quad * 32, plane);
                        sum = make_float4(acc[0], acc[1], acc[2], acc[3]);
                    }
                }
            }
        }
#pragma unroll
        for (int c = 0; c < PAIRS; c++) {
#pragma unroll
            for (int o = SHARERS / 2; o > 0; o /= 2)
#pragma unroll
                for (int i = 0; i < o; i++)
                    v[c][i] = add4(v[c][i], v[c][i + o]);
            few_put(v[c][0], c, lane, [&](int row, int token, float sum) { put(tile, row, token, sum); });
        }
    }
}

#endif
