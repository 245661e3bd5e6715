/*
 * backend/cuda/few: products of 2 to LG_CU_EXACT_ROWS rows by int8 tensor cores, in the order of sums of one.
 *
 * A tile is 16 weight rows; up to eight warps share it. Quad q is the runs 4q to 4q + 3; warp w of kw takes
 * the quads w, w + kw, ... in ascending order, by way of a ring in shared memory. Lane 4g + t holds run
 * 4q + t of rows g and g + 8 as they are stored, and the B operand is diagonal: column 2r + j has the codes
 * of run 4q + r of token j where the lane's t is r, and zeros elsewhere. So the sums that come back to a lane
 * are those of its own run with two tokens, and the scales that it needs are those beside its codes.
 *
 * The lane's sums of a row and a token are then gemv.cuh's sums of class 4w + t (runs that are equal modulo
 * 32); the join over warps, then over t, is warp_sum's tree. Bits are those of one row.
 *
 * Surprise: lanes whose B is zero never load it; their registers are zeroed once and loads are predicated.
 */
#ifndef LG_BACKEND_CUDA_FEW_CUH
#define LG_BACKEND_CUDA_FEW_CUH

#include "backend/cuda/stream.cuh"

enum {
    TILE_ROWS = 16,
    SHARERS = 8,               // warps of a tile, at most
    PART_BYTES = SHARERS * 512 // of SHARERS warps: sums of a tile with two tokens, before they are joined
};

/* ---- tokens in shared memory ---- */

/* Two tokens: codes of both (16 bytes apart in banks), then [run] of both scales, then, but for Q8_0, [run]
 * of both scaled sums, or for Q6_K of both pairs of sums. */
template <int T> static __host__ __device__ __forceinline__ unsigned pair_bytes(int n_in)
{
    return (unsigned)(2 * n_in + 128 + n_in / 32 * (T == LG_Q8_0 ? 8 : 16));
}

/* Offset of the scales in a pair, and from there to the sums. */
struct pair_planes {
    unsigned scale, sums;
};

DEV pair_planes planes_of(int n_in)
{
    pair_planes p = {2 * (unsigned)n_in + 128, (unsigned)n_in / 4};
    return p;
}

/* Run `run` of token `token` to its pair: codes and numbers. */
template <int T> DEV void put_token(uint8_t *to, int n_in, int token, int run, int4 a, int4 b, int4 m)
{
    pair_planes plane = planes_of(n_in);
    int odd = token & 1;
    uint8_t *pair = to + (unsigned)(token >> 1) * pair_bytes<T>(n_in);
    int4 *codes = (int4 *)(pair + odd * (n_in + 16) + run * 32);
    int *scale = (int *)(pair + plane.scale) + 2 * run + odd;

    codes[0] = a;
    codes[1] = b;
    scale[0] = m.x;
    if (T != LG_Q8_0)
        scale[plane.sums / 4] = T == LG_Q6_K ? m.z : m.y;
}

/* The block's warps: n rows, row_of(token) each, to pairs at `to`. Quantised rows of n_in values. A warp
 * takes 32 runs of a row at a time, and has HELD times as many under way. */
template <int T, int HELD, typename RowOf>
DEV void copy_tokens(uint8_t *to, const int8_t *q, const int4 *meta, int n_in, int n, RowOf row_of)
{
    int lane = threadIdx.x % 32, warps = (int)blockDim.x / 32, runs = n_in / 32, pieces = (runs + 31) / 32;
    unsigned by = (65536u + (unsigned)pieces - 1) / (unsigned)pieces; // i / pieces is i * by >> 16

#pragma unroll 1
    for (int p = (int)threadIdx.x / 32; p < n * pieces; p += HELD * warps) {
        held_run r[HELD];
        int token[HELD], run[HELD];
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            int i = p + j * warps;
            token[j] = (int)((unsigned)i * by >> 16);
            run[j] = i < n * pieces ? (i - token[j] * pieces) * 32 + lane : runs;
            if (run[j] < runs) {
                size_t row = (size_t)row_of(token[j]);
                hold_run(r[j], q + row * (size_t)n_in, meta + row * (size_t)runs, run[j], runs);
            }
        }
#pragma unroll
        for (int j = 0; j < HELD; j++)
            if (run[j] < runs)
                put_token<T>(to, n_in, token[j], run[j], r[j].a, r[j].b, r[j].meta);
    }
}

/* ---- weights in a ring ---- */

/* A slot holds a quad of 16 rows: codes by lane (run 4q + t of row g, then of row g + 8; Q8_0: then the
 * second halves), [row] the other planes. */
template <int T> struct few_slot {
    enum {
        CODES = T == LG_Q8_0 ? 2048 : 1024,
        HIGH = CODES,                                // Q6_K: 32 bytes a row
        SCALES = HIGH + (T == LG_Q6_K ? 512 : 0),    // 8 bytes a row; Q4_K: the block's header
        BLOCK = SCALES + (T == LG_Q4_K ? 256 : 128), // Q6_K: a word with the block's scale, then where in it
        BYTES = BLOCK + (T == LG_Q6_K ? 128 : 0),
    };
};

DEV void few_copy8(unsigned to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}

DEV void few_copy4(unsigned to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

DEV void put_shared(unsigned to, unsigned v)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}

/* Where the lane copies from: codes of its run; high bits of row lane / 2; scales and block of row lane % 16.
 */
struct few_reader {
    const uint8_t *codes, *high, *scales, *block;
};

template <int T>
DEV few_reader few_reader_at(const lg_cu_mat &m, const uint8_t *p, int row0, int quad, int lane)
{
    size_t n = (size_t)m.n_in, row = (size_t)(row0 + lane % 16);
    few_reader f = {};

    f.codes = p + (size_t)(row0 + lane / 4) * (T == LG_Q8_0 ? n : n / 2) + (4 * quad + lane % 4) * 16;
    if (T == LG_Q6_K) {
        f.high = p + m.at[0] + (size_t)(row0 + lane / 2) * (n / 4) + quad * 32 + lane % 2 * 16;
        f.scales = p + m.at[1] + row * (n / 16) + quad * 8;
        f.block = p + m.at[2] + row * (n / 128) + quad / 2 * 2;
    } else {
        f.scales = p + m.at[0] + row * (n / 16) + (T == LG_Q8_0 ? quad * 8 : quad / 2 * 16);
    }
    return f;
}

/* The quad to a slot; the reader goes on to the quad after SHARERS. n: columns. */
template <int T> DEV void few_fetch(unsigned slot, few_reader &f, unsigned n, int lane)
{
    unsigned to = slot + (unsigned)lane * 16;

    copy16(to, f.codes);
    copy16(to + 512, f.codes + (T == LG_Q8_0 ? 8 * n : 4 * n));
    if (T == LG_Q8_0) {
        copy16(to + 1024, f.codes + n / 2);
        copy16(to + 1536, f.codes + 8 * n + n / 2);
    }
    if (T == LG_Q6_K)
        copy16(to + few_slot<T>::HIGH, f.high);
    if (lane < 16) {
        if (T == LG_Q4_K)
            copy16(to + few_slot<T>::SCALES, f.scales);
        else
            few_copy8(slot + few_slot<T>::SCALES + (unsigned)lane * 8, f.scales);
        if (T == LG_Q6_K) { // of two bytes, which a copy has not
            unsigned odd = (unsigned)(uintptr_t)f.block & 2;
            few_copy4(slot + few_slot<T>::BLOCK + (unsigned)lane * 4, f.block - odd);
            put_shared(slot + few_slot<T>::BLOCK + 64 + (unsigned)lane * 4, odd * 8);
        }
    }
    f.codes += SHARERS * 64;
    f.scales += SHARERS * 8;
    if (T == LG_Q6_K) {
        f.high += SHARERS * 32;
        f.block += SHARERS;
    }
}

/* A warp's items in turn through DEPTH slots of SLOT bytes, by shared addresses. start asks for the first;
 * turn returns the slot of the next one and asks for another. get(slot) starts the copies of the next item,
 * while `left` says there are some. */
template <int DEPTH, int SLOT> struct few_ring {
    unsigned now, last; // the slot that is read; the last one of the ring
    int left;

    template <typename Get> __device__ __forceinline__ void start(unsigned p, int n, Get get)
    {
        now = last = p + (DEPTH - 1) * SLOT; // the slot before the first one
        left = n;
#pragma unroll 1
        for (int i = 0; i < DEPTH - 1; i++) {
            if (left > 0) {
                get(p + (unsigned)(i * SLOT));
                left--;
            }
            copies_commit();
        }
    }
    template <typename Get> __device__ __forceinline__ unsigned turn(Get get)
    {
        copies_wait<DEPTH - 2>();
        __syncwarp(); // all lanes are done with the slot before, and see this one
        if (left > 0) {
            get(now);
            left--;
        }
        copies_commit();
        now = now == last ? last - (DEPTH - 1) * SLOT : now + SLOT;
        return now;
    }
};

/* ---- loads from shared memory ---- */

DEV uint4 shared_v4(unsigned at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at));
    return v;
}

DEV uint2 shared_v2(unsigned at)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}

DEV unsigned shared_u32(unsigned at)
{
    unsigned v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

DEV unsigned shared_u16(unsigned at)
{
    unsigned short v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at));
    return v;
}

DEV float2 shared_f2(unsigned at)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
    return v;
}

/* ---- one quad ---- */

// Sums are kept on top of 1.5 * 2^23, whose bits make them floats at once.
enum { FEW_ZERO = 0x4B400000 };

DEV float few_float(int d)
{
    return __int_as_float(d) - 12582912.0f;
}

/* d = c + 16 rows times 8 columns, 32 deep; c is c0, c1, c0, c1: a value for each column of the lane. */
DEV void few_mma_first(int (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                       unsigned b1, int c0, int c1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %10, %11};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c0), "r"(c1));
}

DEV void few_mma(int (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* The diagonal: 32 codes of the lane's run and token; lanes beside it keep what they have, which is zeros. */
DEV void few_tokens(unsigned (&b)[8], unsigned at, unsigned mine)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %9, 0;\n\t"
                 "@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%8];\n\t"
                 "@p ld.shared.v4.u32 {%4, %5, %6, %7}, [%8 + 16];\n\t}"
                 : "+r"(b[0]), "+r"(b[1]), "+r"(b[2]), "+r"(b[3]), "+r"(b[4]), "+r"(b[5]), "+r"(b[6]),
                   "+r"(b[7])
                 : "r"(at), "r"(mine));
}

/* Codes and scales of a quad as the instruction wants them: lo and hi are the halves of a run, [row][word].
 */
template <int T> struct few_quad {
    unsigned lo[2][4], hi[2][4];
    float s[2], m[2]; // Q6_K: the scales of both halves
};

/* Row g + 8r: codes x (Q8_0: y the second half; Q6_K: h the high bits). */
template <int T> DEV void few_codes(few_quad<T> &k, int r, uint4 x, uint4 y, uint2 h)
{
    const unsigned a[4] = {x.x, x.y, x.z, x.w}, b[4] = {y.x, y.y, y.z, y.w};
    // Four words of a row come in neighbouring registers, and the instruction wants two of either row there.
    // If this were a copy, it would be made again for every pair of tokens.
    unsigned zero = threadIdx.y;

#pragma unroll
    for (int w = 0; w < 4; w++) {
        k.lo[r][w] = T == LG_Q8_0 ? a[w] ^ zero : a[w] & 0x0F0F0F0F;
        k.hi[r][w] = T == LG_Q8_0 ? b[w] ^ zero : a[w] >> 4 & 0x0F0F0F0F;
        if (T == LG_Q6_K) {
            k.lo[r][w] |= (h.x >> 2 * w & 0x03030303) << 4;
            k.hi[r][w] |= (h.y >> 2 * w & 0x03030303) << 4;
        }
    }
}

/* f16 scale of the block, and the two int8 of the run. */
DEV void few_scales6(few_quad<LG_Q6_K> &k, int r, unsigned block, unsigned s)
{
    float f = half_bits(block);

    k.s[r] = f * (float)(int8_t)(s & 0xFF);
    k.m[r] = f * (float)(int8_t)(s >> 8);
}

/* Where a lane reads in a slot: codes, and of its row the other planes. */
struct few_places {
    unsigned codes, high, scales, block;
};

template <int T> DEV few_places few_places_of(int lane)
{
    unsigned row = (unsigned)lane / 4, t = (unsigned)lane % 4;
    few_places at = {(unsigned)lane * 16, few_slot<T>::HIGH + row * 32 + t * 8,
                     few_slot<T>::SCALES + (T == LG_Q4_K ? row * 16 : row * 8 + t * 2),
                     few_slot<T>::BLOCK + row * 4};
    return at;
}

/* The quad of the slot at p. */
template <int T> DEV void few_take(few_quad<T> &k, unsigned p, const few_places &at, int run8)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        unsigned u = (unsigned)r * 512, rows = (unsigned)r * 8;
        uint4 x = shared_v4(p + at.codes + u), y = {};
        uint2 h = {};
        if (T == LG_Q8_0)
            y = shared_v4(p + at.codes + u + 1024);
        if (T == LG_Q6_K)
            h = shared_v2(p + at.high + rows * 32);
        few_codes<T>(k, r, x, y, h);
        if constexpr (T == LG_Q8_0) {
            k.s[r] = half_bits(shared_u16(p + at.scales + rows * 8));
        } else if constexpr (T == LG_Q6_K) {
            unsigned block = p + at.block + rows * 4;
            few_scales6(k, r, shared_u32(block) >> shared_u32(block + 64) & 0xFFFF,
                        shared_u16(p + at.scales + rows * 8));
        } else {
            k_scales(shared_v4(p + at.scales + rows * 16), run8, &k.s[r], &k.m[r]);
        }
    }
}

/* The quad times two tokens, whose numbers are at `meta` (planes of the lane's run); b: few_tokens. acc: rows
 * g and g + 8 of both. As stream.cuh's dot_raw, to the bit. */
template <int T>
DEV void few_dot(float (&acc)[4], const few_quad<T> &k, const unsigned (&b)[8], unsigned at,
                 const pair_planes &p)
{
    float2 d = shared_f2(at + p.scale);
    int v[4];

    if (T == LG_Q6_K) {
        float2 sums = shared_f2(at + p.scale + p.sums);
        int x = __float_as_int(sums.x), y = __float_as_int(sums.y), u[4];
        few_mma_first(v, k.lo[0][0], k.lo[1][0], k.lo[0][1], k.lo[1][1], b[0], b[1],
                      (int)FEW_ZERO - 32 * (int)(short)(x & 0xFFFF),
                      (int)FEW_ZERO - 32 * (int)(short)(y & 0xFFFF));
        few_mma_first(u, k.hi[0][0], k.hi[1][0], k.hi[0][1], k.hi[1][1], b[4], b[5],
                      (int)FEW_ZERO - 32 * (x >> 16), (int)FEW_ZERO - 32 * (y >> 16));
        few_mma(v, k.lo[0][2], k.lo[1][2], k.lo[0][3], k.lo[1][3], b[2], b[3]);
        few_mma(u, k.hi[0][2], k.hi[1][2], k.hi[0][3], k.hi[1][3], b[6], b[7]);
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[i] = fmaf(i & 1 ? d.y : d.x, fmaf(k.m[i / 2], few_float(u[i]), k.s[i / 2] * few_float(v[i])),
                          acc[i]);
        return;
    }
    // b in pairs of neighbours: two words of a load are an operand as they are
    few_mma_first(v, k.lo[0][0], k.lo[1][0], k.lo[0][1], k.lo[1][1], b[0], b[1], 0, 0);
    few_mma(v, k.lo[0][2], k.lo[1][2], k.lo[0][3], k.lo[1][3], b[2], b[3]);
    few_mma(v, k.hi[0][0], k.hi[1][0], k.hi[0][1], k.hi[1][1], b[4], b[5]);
    few_mma(v, k.hi[0][2], k.hi[1][2], k.hi[0][3], k.hi[1][3], b[6], b[7]);
    float2 ds = {};
    if (T != LG_Q8_0)
        ds = shared_f2(at + p.scale + p.sums);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        acc[i] = fmaf(k.s[i / 2] * (i & 1 ? d.y : d.x), (float)v[i], acc[i]);
        if (T != LG_Q8_0)
            acc[i] = fmaf(k.m[i / 2], i & 1 ? ds.y : ds.x, acc[i]);
    }
}

/* ---- tiles ---- */

/* Where a tile is: a matrix (with the shape of the others) and its first row, behind which there are
 * TILE_ROWS. */
struct few_place {
    const uint8_t *p;
    int row0;
};

/* What the warps of a tile share: how many they are, which of them this one is, the barrier of theirs, where
 * their sums go, and how many tiles they have had. */
struct few_team {
    int kw, warp, barrier, count;
    float4 *part;
};

/* The team of the calling warp; parts: PAIRS * PART_BYTES for each SHARERS warps of the block. *index: which
 * team of the block it is; *teams: how many there are. */
template <int PAIRS> DEV few_team team_of(uint8_t *parts, int kw, int *index, int *teams)
{
    int warp = (int)threadIdx.x / 32, mine = warp / kw;
    few_team t = {kw, warp % kw, 1 + mine, 0, (float4 *)parts + mine * PAIRS * kw * 32};

    *index = mine;
    *teams = (int)blockDim.x / 32 / kw;
    return t;
}

static __host__ __device__ __forceinline__ int few_sharers(int n_in)
{
    int quads = n_in / 128;
    return quads > 4 ? 8 : quads > 2 ? 4 : quads;
}

template <int N> DEV void named_barrier(int threads)
{
    asm volatile("bar.sync %0, %1;" ::"n"(N), "r"(threads) : "memory");
}

// The team's warps: nobody goes on before all are here. (Constant names, so that a block reserves few
// barriers.)
DEV void few_meet(const few_team &t)
{
    int threads = 32 * t.kw;

    if (t.kw == 1) {
        __syncwarp();
        return;
    }
    switch (t.barrier) {
    case 1: named_barrier<1>(threads); break;
    case 2: named_barrier<2>(threads); break;
    case 3: named_barrier<3>(threads); break;
    case 4: named_barrier<4>(threads); break;
    case 5: named_barrier<5>(threads); break;
    case 6: named_barrier<6>(threads); break;
    case 7: named_barrier<7>(threads); break;
    default: named_barrier<8>(threads); break;
    }
}

/* Sums over t of pair c, and put(row, token, sum) of each. */
template <typename Put> DEV void few_put(float4 v, int c, int lane, Put put)
{
    float sums[4] = {v.x, v.y, v.z, v.w}, sum;
    int index = sums_of<4>(sums, 4, lane, &sum);

    put(lane / 4 + 8 * (index >> 1), 2 * c + (index & 1), sum);
}

/* The end of a tile: sums over the warps, then over t; put(row, token, sum) for each of them. */
template <int PAIRS, typename Put>
DEV void few_join(few_team &team, const float (&acc)[PAIRS][4], int lane, Put put)
{
    float4 *part = team.part;

    if (team.count > 0) // the sums of the tile before have been read
        few_meet(team);
#pragma unroll
    for (int c = 0; c < PAIRS; c++)
        part[(c * team.kw + team.warp) * 32 + lane] = make_float4(acc[c][0], acc[c][1], acc[c][2], acc[c][3]);
    few_meet(team);
#pragma unroll 1
    for (int c = 0; c < PAIRS; c++) {
        if (((team.count * PAIRS + c) & (team.kw - 1)) != team.warp)
            continue;
        float4 v[SHARERS];
#pragma unroll
        for (int i = 0; i < SHARERS; i++)
            v[i] = i < team.kw ? part[(c * team.kw + i) * 32 + lane] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int o = SHARERS / 2; o > 0; o /= 2)
#pragma unroll
            for (int i = 0; i < o; i++)
                v[i] = add4(v[i], v[i + o]);
        few_put(v[0], c, lane, put);
    }
    team.count++;
}

/* n tiles, place(i) each, times the tokens of PAIRS pairs at `tokens`; slots: the warp's RING bytes. ready()
 * is called once the first weights are under way; put(tile, row, token, sum) by one lane each. */
template <int T, int PAIRS, int RING, typename Place, typename Ready, typename Put>
DEV void few_tiles(const lg_cu_mat &m, int n, unsigned tokens, uint8_t *room, few_team &team, Place place,
                   Ready ready, Put put)
{
    enum { DEPTH = RING / few_slot<T>::BYTES };
    int lane = threadIdx.x % 32, g = lane / 4, run = 4 * team.warp + lane % 4, n_in = m.n_in,
        quads = n_in / 128;
    int per_tile = team.warp < quads ? (quads - team.warp + team.kw - 1) / team.kw : 0, ask = 0, ask_tile = 0;
    unsigned mine = lane % 4 == g >> 1, pair = pair_bytes<T>(n_in);
    pair_planes plane = planes_of(n_in);
    unsigned codes_at = tokens + (unsigned)((g & 1) * (n_in + 16) + run * 32),
             meta_at = tokens + (unsigned)run * 8;
    unsigned b[8] = {};
    few_ring<DEPTH, few_slot<T>::BYTES> slots;
    few_places places = few_places_of<T>(lane);
    few_reader from;

    auto get = [&](unsigned slot) { // there is a next quad in the row only with all sharers
        if (ask == 0) {
            few_place at = place(ask_tile++);
            from = few_reader_at<T>(m, at.p, at.row0, team.warp, lane);
        }
        few_fetch<T>(slot, from, (unsigned)n_in, lane);
        ask = ask + 1 == per_tile ? 0 : ask + 1;
    };
    slots.start(shared_at(room), n * per_tile, get);
    ready();
#pragma unroll 1
    for (int tile = 0; tile < n; tile++) {
        float acc[PAIRS][4] = {};
#pragma unroll 1
        for (int j = 0; j < per_tile; j++) {
            few_quad<T> k;
            unsigned quad = (unsigned)j * (SHARERS * 128); // of a row of tokens
            few_take<T>(k, slots.turn(get), places, run & 7);
#pragma unroll
            for (int c = 0; c < PAIRS; c++) {
                few_tokens(b, codes_at + (unsigned)c * pair + quad, mine);
                few_dot<T>(acc[c], k, b, meta_at + (unsigned)c * pair + quad / 4, plane);
            }
        }
        few_join<PAIRS>(team, acc, lane, [&](int row, int token, float sum) { put(tile, row, token, sum); });
    }
}

/* Can a matrix be multiplied so? */
static inline bool few_takes(const lg_cu_mat *m)
{
    return (m->type == LG_Q8_0 || m->type == LG_Q4_K || m->type == LG_Q6_K) && m->n_in % 128 == 0 &&
           m->n_in >= 128 && m->n_out >= TILE_ROWS;
}

#endif
