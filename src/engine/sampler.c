/*
 * engine/sampler: see sampler.h. Pure functions on the engine's thread; no allocation.
 *
 * What surprises: candidates and full rows go through one function that walks logits in descending order, so
 * the same (seed, index) gives the same token whichever way the logits came. A full row is not sorted but
 * kept in a heap, from which only as many entries are popped as the draw looks at.
 */
#include "engine/sampler.h"

#include <math.h>

enum { TOP_K_MAX = 1 << 24, BIAS_MAX = 1024, REPEAT_MAX = 1024 };

lg_sampling lg_sampling_default(void)
{
    return (lg_sampling){
        .temperature = 1.0f, .top_k = 20, .top_p = 1.0f, .repetition_penalty = 1.0f, .repeat_last_n = 64};
}

static bool within(float v, float lo, float hi)
{
    return v >= lo && v <= hi; // false for NaN
}

lg_status lg_sampling_check(const lg_sampling *s, lg_err *err)
{
    const struct {
        const char *name;
        float v, lo, hi;
    } row[] = {
        {"temperature", s->temperature, 0, 5},
        {"top_p", s->top_p, 0, 1},
        {"min_p", s->min_p, 0, 1},
        {"frequency_penalty", s->frequency_penalty, -2, 2},
        {"presence_penalty", s->presence_penalty, -2, 2},
        {"repetition_penalty", s->repetition_penalty, 1e-3f, 2},
    };

    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (!within(row[i].v, row[i].lo, row[i].hi))
            return LG_FAIL(err, LG_E_INPUT, "%s is %g; it must be %g to %g", row[i].name, (double)row[i].v,
                           (double)row[i].lo, (double)row[i].hi);
    if (s->top_k < -1 || s->top_k > TOP_K_MAX)
        return LG_FAIL(err, LG_E_INPUT, "top_k is %d; it must be -1 to %d", s->top_k, TOP_K_MAX);
    if (s->repeat_last_n < 0 || s->repeat_last_n > REPEAT_MAX)
        return LG_FAIL(err, LG_E_INPUT, "repeat_last_n is %d; it must be 0 to %d", s->repeat_last_n,
                       REPEAT_MAX);
    if (s->n_bias < 0 || s->n_bias > BIAS_MAX)
        return LG_FAIL(err, LG_E_INPUT, "logit_bias has %d entries; at most %d are allowed", s->n_bias,
                       BIAS_MAX);
    for (int i = 0; i < s->n_bias; i++)
        if (s->bias[i].id < 0 || !within(s->bias[i].bias, -100, 100))
            return LG_FAIL(err, LG_E_INPUT, "logit_bias of token %d is %g; it must be -100 to 100",
                           (int)s->bias[i].id, (double)s->bias[i].bias);
    return LG_OK;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

double lg_sample_uniform(uint64_t seed, uint64_t index)
{
    // the seed is mixed first, so that seeds 1, 2, 3 do not give shifted copies of one stream
    uint64_t x = mix(mix(seed + UINT64_C(0x9E3779B97F4A7C15)) + (index + 1) * UINT64_C(0x9E3779B97F4A7C15));

    return (double)(x >> 11) * 0x1.0p-53;
}

static bool greedy(const lg_sampling *s)
{
    return s->temperature <= 0 || s->top_p <= 0 || s->top_k == 1;
}

static bool penalized(const lg_sampling *s)
{
    return s->n_bias > 0 || s->frequency_penalty != 0 || s->presence_penalty != 0 ||
           (s->repetition_penalty != 1 && s->repeat_last_n > 0);
}

int lg_sampling_cands(const lg_sampling *s)
{
    if (penalized(s))
        return 0;
    if (greedy(s))
        return 1;
    return s->top_k > 0 ? s->top_k : 0;
}

// Logits in descending order: a sorted list, or a heap over a row whose largest entries are popped on demand.
typedef struct ranked {
    const lg_cand_list *list;
    const float *row;
    int32_t *heap; // [0, n - popped) is the heap; behind it what was popped, the first at the very end
    int n, popped;
} ranked;

static float clean(float v)
{
    return v == v ? v : -INFINITY;
}

// Whether token a ranks before token b.
static bool before(const ranked *r, int32_t a, int32_t b)
{
    float x = clean(r->row[a]), y = clean(r->row[b]);

    return x > y || (x == y && a < b);
}

static void sift(const ranked *r, int at, int n)
{
    int32_t id = r->heap[at];

    for (int child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(r, r->heap[child + 1], r->heap[child]))
            child++;
        if (!before(r, r->heap[child], id))
            break;
        r->heap[at] = r->heap[child];
        at = child;
    }
    r->heap[at] = id;
}

static void heapify(ranked *r)
{
    for (int i = 0; i < r->n; i++)
        r->heap[i] = i;
    for (int i = r->n / 2 - 1; i >= 0; i--)
        sift(r, i, r->n);
}

static int32_t id_at(ranked *r, int i)
{
    if (r->list)
        return r->list->ids[i];
    for (; r->popped <= i; r->popped++) {
        int last = r->n - r->popped - 1;
        int32_t top = r->heap[0];
        r->heap[0] = r->heap[last];
        r->heap[last] = top;
        sift(r, 0, last);
    }
    return r->heap[r->n - 1 - i];
}

static float logit_at(ranked *r, int i)
{
    return r->list ? clean(r->list->logits[i]) : clean(r->row[id_at(r, i)]);
}

// Sum of the weights exp((logit - max) / temperature) of the k best.
static double total_weight(ranked *r, int k, double max, double temp)
{
    double sum = 0;

    for (int i = 0; i < k; i++) {
        // with no top-k a row is summed as it lies; popping all of it would sort the vocabulary
        float l = !r->list && k == r->n ? clean(r->row[i]) : logit_at(r, i);
        sum += exp(((double)l - max) / temp);
    }
    return sum;
}

static int32_t draw(const lg_sampling *s, ranked *r, double u)
{
    double max = (double)logit_at(r, 0), temp = (double)s->temperature, mass;
    int keep = s->top_k > 0 && s->top_k < r->n ? s->top_k : r->n;

    if (!isfinite(max))
        return -1;
    if (greedy(s))
        return id_at(r, 0);
    mass = total_weight(r, keep, max, temp);
    if (s->top_p < 1 || s->min_p > 0) {
        double goal = (double)s->top_p * mass, sum = 0;
        int i = 0;
        while (i < keep) {
            double w = exp(((double)logit_at(r, i) - max) / temp);
            if (w < (double)s->min_p)
                break;
            sum += w;
            i++;
            if (s->top_p < 1 && sum >= goal)
                break;
        }
        keep = i;
        mass = sum;
    }
    double sum = 0;
    for (int i = 0; i < keep; i++) {
        sum += exp(((double)logit_at(r, i) - max) / temp);
        if (u * mass < sum)
            return id_at(r, i);
    }
    return id_at(r, 0); // only when rounding left the sum short of u * mass
}

int32_t lg_sample_pick(const lg_sampling *s, const lg_cand_list *c, double u)
{
    ranked r = {.list = c, .n = c->n};

    return c->n > 0 ? draw(s, &r, u) : -1;
}

int32_t lg_sample_row(const lg_sampling *s, const float *row, int n, int32_t *heap, double u)
{
    ranked r = {.row = row, .heap = heap, .n = n};

    if (greedy(s)) {
        int32_t best = 0;
        for (int32_t i = 1; i < n; i++)
            if (before(&r, i, best))
                best = i;
        return isfinite(row[best]) ? best : -1;
    }
    heapify(&r);
    return draw(s, &r, u);
}

static bool seen_before(const int32_t *ids, int64_t i)
{
    for (int64_t k = 0; k < i; k++)
        if (ids[k] == ids[i])
            return true;
    return false;
}

void lg_sample_penalize(const lg_sampling *s, const int32_t *recent, int64_t n_recent, const int32_t *count,
                        float *row, int n)
{
    int64_t skip = n_recent > s->repeat_last_n ? n_recent - s->repeat_last_n : 0;

    recent += skip;
    n_recent -= skip;
    for (int64_t i = 0; s->repetition_penalty != 1 && i < n_recent; i++) {
        float *l = &row[recent[i]];
        if (!seen_before(recent, i))
            *l = *l > 0 ? *l / s->repetition_penalty : *l * s->repetition_penalty;
    }
    if (s->frequency_penalty != 0 || s->presence_penalty != 0)
        for (int i = 0; i < n; i++)
            if (count[i] > 0)
                row[i] -= s->frequency_penalty * (float)count[i] + s->presence_penalty;
    for (int i = 0; i < s->n_bias; i++) {
        float *l = &row[s->bias[i].id];
        *l = s->bias[i].bias <= -100 ? -INFINITY : *l + s->bias[i].bias;
    }
}
