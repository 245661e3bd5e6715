/*
 * backend/cuda/route_keys: the choice of experts from keys (route.cuh's key_of) by one warp, for up to
 * KEY_EXPERTS of them.
 */
#ifndef LG_BACKEND_CUDA_ROUTE_KEYS_CUH
#define LG_BACKEND_CUDA_ROUTE_KEYS_CUH

#include "backend/cuda/route.cuh"

enum { KEY_EXPERTS = 256 };

/* Keys of eight experts that follow each other, of each lane. */
struct key_set {
    unsigned key[8];
};

DEV key_set load_keys(const uint32_t *keys, int lane)
{
    uint4 a = __ldcg((const uint4 *)keys + 2 * lane), b = __ldcg((const uint4 *)keys + 2 * lane + 1);
    key_set s = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};

    return s;
}

/* The four greatest of a lane, in order. */
DEV void best_four(const unsigned (&key)[8], unsigned (&best)[4])
{
    unsigned q[2][4];

#pragma unroll
    for (int h = 0; h < 2; h++) { // a sorted four
        const unsigned *k = key + 4 * h;
        unsigned hi0 = max(k[0], k[1]), lo0 = min(k[0], k[1]), hi1 = max(k[2], k[3]), lo1 = min(k[2], k[3]);
        unsigned x = min(hi0, hi1), y = max(lo0, lo1);
        q[h][0] = max(hi0, hi1), q[h][1] = max(x, y), q[h][2] = min(x, y), q[h][3] = min(lo0, lo1);
    }
    unsigned a = max(q[0][0], q[1][3]), b = max(q[0][1], q[1][2]), c = max(q[0][2], q[1][1]),
             d = max(q[0][3], q[1][0]); // these count; first falling, then rising
    unsigned x = max(a, c), y = max(b, d), z = min(a, c), w = min(b, d);
    best[0] = max(x, y), best[1] = min(x, y), best[2] = max(z, w), best[3] = min(z, w);
}

/* One warp: the experts with the k greatest keys, rank i on lane i. n <= 256. -1 on all lanes: not known,
 * because two keys that count are equal, or more than three experts of a lane come before the last. */
DEV int choose_keys(key_set s, int n, int k, int lane)
{
    unsigned top[4], best = 0, owners = 1, value = 0;

    if (n < 256)
#pragma unroll
        for (int j = 0; j < 8; j++)
            s.key[j] = 8 * lane + j < n ? s.key[j] : 0u; // no expert
    best_four(s.key, top);
    unsigned twice = top[0] == top[1] ? top[1] : top[1] == top[2] ? top[2] : top[2] == top[3] ? top[3] : 0u;
#pragma unroll 1
    for (int i = 0; i < k; i++) {
        best = __reduce_max_sync(0xFFFFFFFFu, top[0]);
        bool wins = top[0] == best;
        unsigned who = __ballot_sync(0xFFFFFFFFu, wins);
        if (lane == i)
            owners = who, value = best;
        if (wins) // behind the fourth is what would win all that follows
            top[0] = top[1], top[1] = top[2], top[2] = top[3], top[3] = 0xFFFFFFFFu;
    }
    bool bad = (owners & (owners - 1)) != 0 || value == 0xFFFFFFFFu || twice >= best;
    int lane_of = __ffs((int)owners) - 1, at = 0;
#pragma unroll
    for (int j = 7; j >= 0; j--)
        at = __shfl_sync(0xFFFFFFFFu, s.key[j], lane_of) == value ? j : at;
    at = lane < k ? 8 * lane_of + at : 0;
    return __any_sync(0xFFFFFFFFu, bad) ? -1 : at;
}

/* The same, where choose_keys does not know. */
static __device__ __noinline__ int choose_among(key_set s, int n, int k, int lane)
{
    int id = 0;

#pragma unroll
    for (int j = 0; j < 8; j++)
        s.key[j] = 8 * lane + j < n ? s.key[j] : 0u; // no expert, or one that was taken
    for (int i = 0; i < k; i++) {
        unsigned top = 0;
        int at = 0;
#pragma unroll
        for (int j = 7; j >= 0; j--)
            if (s.key[j] >= top)
                top = s.key[j], at = j;
        unsigned best = __reduce_max_sync(0xFFFFFFFFu, top);
        // experts of lower lanes are lower
        int winner = __ffs((int)__ballot_sync(0xFFFFFFFFu, top == best)) - 1;
        int won = 8 * winner + __shfl_sync(0xFFFFFFFFu, at, winner);
        id = lane == i ? won : id;
#pragma unroll
        for (int j = 0; j < 8; j++)
            s.key[j] = 8 * lane + j == won ? 0u : s.key[j];
    }
    return id;
}

/* Experts of a warp's rows, every WARPS-th from `warp` on, from their keys: rank i on lane i, and its logit.
 * c: rows[] that chose an expert, a bit each, and rank[][] of the expert in the row. */
template <int WARPS, int TURNS, typename Choice>
DEV void choose_turns(const lg_cu_route &a, const float *logits, const key_set (&keys)[TURNS], Choice &c,
                      int rows, int warp, int lane, int (&id)[TURNS], float (&logit)[TURNS])
{
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        int row = warp + i * WARPS;
        if (row >= rows)
            break;
        id[i] = choose_keys(keys[i], a.n_expert, a.k, lane);
        if (id[i] < 0)
            id[i] = choose_among(keys[i], a.n_expert, a.k, lane);
        if (lane < a.k) {
            atomicOr(&c.rows[id[i]], (decltype(c.rows[0] + 0))1 << row);
            c.rank[row][id[i]] = (uint8_t)lane;
            logit[i] = __ldcg(&logits[row * a.n_expert + id[i]]);
        }
    }
}

/* What these rows chose, with its weights. */
template <int WARPS, int TURNS>
DEV void store_turns(const lg_cu_route &a, int rows, int warp, int lane, const int (&id)[TURNS],
                     const float (&logit)[TURNS])
{
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        int row = warp + i * WARPS;
        if (row >= rows)
            break;
        float w = weights_of(a, score_of(logit[i]), lane);
        if (lane < a.k) {
            a.ids[row * a.k + lane] = id[i];
            a.w[row * a.k + lane] = w;
        }
    }
}

#endif
