/*
 * backend/cuda/few_cols: few.cuh's products of Q8_0 with tokens as columns: eight to an instruction, or twice
 * eight.
 *
 * An instruction multiplies one run of 16 weight rows and of eight tokens. Lane 4g + t gets the sums of rows
 * g and g + 8 with tokens 2t and 2t + 1, for each of the four runs of a quad: so it keeps the sums of four
 * classes where few.cuh's lanes keep one, and the classes of a quad are added up in a lane at the end. Bits
 * are the same. Both operands come from shared memory by ldmatrix, so nothing is masked and no instruction
 * waits for another one's sums.
 */
#ifndef LG_BACKEND_CUDA_FEW_COLS_CUH
#define LG_BACKEND_CUDA_FEW_COLS_CUH

#include "backend/cuda/few.cuh"

enum {
    COLS_EIGHT = 8, // tokens of an instruction
    COLS_SLOT = few_slot<LG_Q8_0>::BYTES,
    COLS_PART = 4 * 512, // bytes of a warp's sums of a tile with eight tokens
};

/* ---- tokens in shared memory ---- */

/* Codes of 8 * NT tokens, 16 bytes apart in banks; then scales, [quad][two tokens][run][token]. */
template <int NT> static __host__ __device__ __forceinline__ unsigned cols_bytes(int n_in)
{
    return (unsigned)(NT * COLS_EIGHT * (n_in + 16) + n_in / 128 * NT * 128);
}

/* The block: asks for columns [from, from + n) of `rows` quantised rows of n_in. */
template <int NT> DEV void cols_stage(unsigned to, const lg_cu_acts &x, int n_in, int from, int n, int rows)
{
    int pieces = n / 16, runs = n / 32, tid = (int)threadIdx.x, threads = (int)blockDim.x;
    const int8_t *q = x.q + from;
    const int4 *meta = x.meta + from / 32;
    unsigned scales = to + (unsigned)(NT * COLS_EIGHT * (n + 16));

    for (int i = tid, row = 0; row < rows; i += threads) {
        for (; i >= pieces && row < rows; row++)
            i -= pieces;
        if (row < rows)
            copy16(to + (unsigned)(row * (n + 16) + i * 16), q + (size_t)row * (size_t)n_in + i * 16);
    }
    for (int i = tid, row = 0; row < rows; i += threads) {
        for (; i >= runs && row < rows; row++)
            i -= runs;
        if (row < rows)
            few_copy4(scales + (unsigned)(i / 4 * (NT * 128) + row / 2 * 32 + i % 4 * 8 + row % 2 * 4),
                      meta + (size_t)row * (size_t)(n_in / 32) + i);
    }
}

/* ---- one quad ---- */

/* Four matrices of eight rows of 16 bytes; lane l has row l % 8 of matrix l / 8 at `at`. */
DEV void load_matrices(unsigned (&r)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

DEV float4 shared_f4(unsigned at)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at));
    return v;
}

DEV void cols_mma(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}

/* Where a lane copies to and reads from: of a slot the piece that it copies, its row of the first matrices
 * and the scales of its rows; of the tokens its row of matrices, and the scales of its two. */
struct cols_lane {
    unsigned copied, row, scales, token, two;
};

// A slot's pieces of a row are permuted, so that eight rows meet all banks.
DEV cols_lane cols_lane_of(int lane, int pitch)
{
    unsigned l = (unsigned)lane, g = l / 4, t = l % 4, r = l % 8;
    cols_lane c = {(g * 4 + (t ^ (g >> 1))) * 16, l / 8 * 512 + r * 64 + (r >> 1) * 16,
                   few_slot<LG_Q8_0>::SCALES + g * 8, r * (unsigned)pitch + l / 8 * 16, t * 32};
    return c;
}

/* few_fetch, to permuted places. */
DEV void cols_fetch(unsigned slot, few_reader &f, unsigned n, unsigned copied, int lane)
{
    unsigned to = slot + copied;

    copy16(to, f.codes);
    copy16(to + 512, f.codes + 8 * n);
    copy16(to + 1024, f.codes + n / 2);
    copy16(to + 1536, f.codes + 8 * n + n / 2);
    if (lane < 16)
        few_copy8(slot + few_slot<LG_Q8_0>::SCALES + (unsigned)lane * 8, f.scales);
    f.codes += SHARERS * 64;
    f.scales += SHARERS * 8;
}

/* The quad at `slot` times that of the tokens at `codes` and `scales` (of the lane); eight: bytes of codes of
 * eight tokens. */
template <int NT>
DEV void cols_quad(float (&acc)[NT][4][4], unsigned slot, const cols_lane &c, unsigned codes, unsigned eight,
                   unsigned scales)
{
    unsigned b[NT][2][4];
    float s[2][4], d[NT][8];

#pragma unroll
    for (int i = 0; i < NT; i++) {
        load_matrices(b[i][0], codes + (unsigned)i * eight);
        load_matrices(b[i][1], codes + (unsigned)i * eight + 64);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint2 h = shared_v2(slot + c.scales + (unsigned)r * 64);
        s[r][0] = half_bits(h.x & 0xFFFF), s[r][1] = half_bits(h.x >> 16);
        s[r][2] = half_bits(h.y & 0xFFFF), s[r][3] = half_bits(h.y >> 16);
    }
#pragma unroll
    for (int i = 0; i < NT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float4 v = shared_f4(scales + (unsigned)(i * 128 + h * 16));
            d[i][4 * h] = v.x, d[i][4 * h + 1] = v.y, d[i][4 * h + 2] = v.z, d[i][4 * h + 3] = v.w;
        }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned a[4];
        load_matrices(a, (slot + c.row) ^ (unsigned)j << 4);
#pragma unroll
        for (int i = 0; i < NT; i++) {
            int v[4];
            cols_mma(v, a, b[i][j / 2][j % 2 * 2], b[i][j / 2][j % 2 * 2 + 1]);
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[i][j][e] = fmaf(s[e / 2][j] * d[i][2 * j + e % 2], (float)v[e], acc[i][j][e]);
        }
    }
}

/* ---- tiles ---- */

/* Bytes of the sums of kw warps. */
template <int NT> static __host__ __device__ __forceinline__ unsigned cols_parts(int kw)
{
    return (unsigned)(NT * COLS_PART * kw);
}

/* few_join: the end of a tile; put(row, token, sum). */
template <int NT, typename Put>
DEV void cols_join(few_team &team, const float (&acc)[NT][4][4], int lane, Put put)
{
    const float *part = (const float *)team.part;

    if (team.count++ > 0) // the sums of the tile before have been read
        few_meet(team);
#pragma unroll
    for (int i = 0; i < NT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            team.part[((i * 4 + j) * team.kw + team.warp) * 32 + lane] =
                make_float4(acc[i][j][0], acc[i][j][1], acc[i][j][2], acc[i][j][3]);
    few_meet(team);
#pragma unroll 1
    for (int o = team.warp * 32 + lane; o < NT * 128; o += team.kw * 32) {
        const float *from = part + o / 128 * 4 * team.kw * 128 + o % 128;
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float v[SHARERS];
#pragma unroll
            for (int w = 0; w < SHARERS; w++)
                v[w] = w < team.kw ? from[(j * team.kw + w) * 128] : 0.0f;
#pragma unroll
            for (int n = SHARERS / 2; n > 0; n /= 2)
#pragma unroll
                for (int w = 0; w < n; w++)
                    v[w] += v[w + n];
            x[j] = v[0];
        }
        put(o % 128 / 16 + (o & 2) * 4, o / 128 * COLS_EIGHT + o / 4 % 4 * 2 + o % 2,
            (x[0] + x[2]) + (x[1] + x[3]));
    }
}

/* A warp's quads of its team's tiles, place(i) each, in order, through DEPTH slots. */
template <int DEPTH, typename Place> struct cols_weights {
    few_ring<DEPTH, COLS_SLOT> ring;
    few_reader from;
    unsigned n_in, copied;
    int ask, ask_tile, per_tile, quad, lane;
    Place place;

    __device__ __forceinline__ cols_weights(Place p) : place(p)
    {
    }
    __device__ __forceinline__ void get(unsigned slot)
    {
        if (ask == 0) {
            auto at = place(ask_tile++);
            from = few_reader_at<LG_Q8_0>(*at.m, at.p, at.row0, quad, lane);
        }
        cols_fetch(slot, from, n_in, copied, lane);
        ask = ask + 1 == per_tile ? 0 : ask + 1;
    }
    __device__ __forceinline__ void start(uint8_t *room, int tiles, int columns, const few_team &team,
                                          const cols_lane &c, int lane_)
    {
        int quads = columns / 128;
        n_in = (unsigned)columns;
        copied = c.copied;
        lane = lane_;
        quad = team.warp;
        ask = ask_tile = 0;
        per_tile = quad < quads ? (quads - quad + team.kw - 1) / team.kw : 0;
        ring.start(shared_at(room), tiles * per_tile, [&](unsigned slot) { get(slot); });
    }
    __device__ __forceinline__ unsigned turn(void)
    {
        return ring.turn([&](unsigned slot) { get(slot); });
    }
};

/* Where a tile is. */
struct cols_place {
    const lg_cu_mat *m;
    const uint8_t *p;
    int row0;
};

/* n tiles times tokens that are all in shared memory. ready() is called once the first weights are under way;
 * put(tile, row, token, sum) by one lane each; after(tile) by all of the team. */
template <int NT, int DEPTH, typename Place, typename Ready, typename Put, typename After>
DEV void cols_tiles(int n_in, int n, unsigned tokens, uint8_t *room, few_team &team, Place place, Ready ready,
                    Put put, After after)
{
    int lane = threadIdx.x % 32;
    cols_lane c = cols_lane_of(lane, n_in + 16);
    unsigned eight = (unsigned)(COLS_EIGHT * (n_in + 16));
    unsigned codes = tokens + c.token + (unsigned)team.warp * 128,
             scales = tokens + NT * eight + c.two + (unsigned)(team.warp * NT * 128);
    cols_weights<DEPTH, Place> weights(place);

    weights.start(room, n, n_in, team, c, lane);
    ready();
#pragma unroll 1
    for (int tile = 0; tile < n; tile++) {
        float acc[NT][4][4] = {};
#pragma unroll 1
        for (int j = 0; j < weights.per_tile; j++)
            cols_quad<NT>(acc, weights.turn(), c, codes + (unsigned)j * (SHARERS * 128), eight,
                          scales + (unsigned)j * (SHARERS * NT * 128));
        cols_join<NT>(team, acc, lane, [&](int row, int token, float sum) { put(tile, row, token, sum); });
        after(tile);
    }
}

/* The same with tokens that come in turns of COLS_CHUNK columns, of which two have room at `tokens`; the
 * team's sums take their place. stage(to, from, columns) asks for columns. rounds: of the block, of at most a
 * tile a team. n_in is above COLS_CHUNK, so a team has SHARERS warps. */
enum { COLS_CHUNK = 2048, COLS_TURNS = COLS_CHUNK / 128 / SHARERS };

template <int NT, int DEPTH, typename Place, typename Ready, typename Stage, typename Put>
DEV void cols_stream(int n_in, int n, int rounds, unsigned tokens, uint8_t *room, few_team &team, Place place,
                     Ready ready, Stage stage, Put put)
{
    const unsigned bytes = cols_bytes<NT>(COLS_CHUNK);
    int lane = threadIdx.x % 32;

    cols_lane c = cols_lane_of(lane, COLS_CHUNK + 16);
    cols_weights<DEPTH, Place> weights(place);
    auto ask = [&](int from) {
        if (from < n_in)
            stage(tokens + (unsigned)(from / COLS_CHUNK & 1) * bytes, from,
                  min((int)COLS_CHUNK, n_in - from));
    };
    weights.start(room, n, n_in, team, c, lane);
    ready();
#pragma unroll 1
    for (int tile = 0; tile < rounds; tile++) {
        float acc[NT][4][4] = {};
        if (tile > 0)
            __syncthreads(); // all sums have been read
        ask(0);
        copies_commit();
#pragma unroll 1
        for (int from = 0; from < n_in; from += COLS_CHUNK) {
            if (from == 0 || tile >= n)
                copies_wait<0>();
            else
                copies_wait<COLS_TURNS>(); // what came behind the tokens is weights
            __syncthreads();
            ask(from + COLS_CHUNK);
            copies_commit();
            int columns = min((int)COLS_CHUNK, n_in - from), quads = columns / 128;
            unsigned eight = (unsigned)(COLS_EIGHT * (columns + 16)),
                     at = tokens + (unsigned)(from / COLS_CHUNK & 1) * bytes;
            unsigned token = at + c.token - (unsigned)(lane % 8 * (COLS_CHUNK - columns)),
                     scales = at + NT * eight + c.two;
#pragma unroll 1
            for (int quad = team.warp; quad < quads && tile < n; quad += SHARERS)
                cols_quad<NT>(acc, weights.turn(), c, token + (unsigned)quad * 128, eight,
                              scales + (unsigned)(quad * NT * 128));
        }
        __syncthreads(); // all tokens have been read
        if (tile < n)
            cols_join<NT>(team, acc, lane,
                          [&](int row, int token, float sum) { put(tile, row, token, sum); });
    }
}

#endif
