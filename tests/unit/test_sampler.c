/*
 * Tests of engine/sampler and engine/edit: the two ways to a token agree, truncation is exact, draws follow
 * the distribution (chi-squared), the random numbers are a pure function of seed and index.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/edit.h"
#include "support/maker.h"

enum { N = 64, DRAWS = 200000 };

static lg_sampling plain(void)
{
    lg_sampling s = lg_sampling_default();

    s.top_k = 0;
    return s;
}

// Logits that fall slowly, in a scrambled order; some are equal.
static void make_row(float *row, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        row[i] = (float)(floor(mk_normal(&seed) * 8) / 4);
}

// The row's n_top largest, by plain search.
static int sorted(const float *row, int n, int n_top, int32_t *ids, float *logits)
{
    bool taken[1024] = {false};

    for (int k = 0; k < n_top; k++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!taken[i] && (best < 0 || row[i] > row[best]))
                best = i;
        taken[best] = true;
        ids[k] = best;
        logits[k] = row[best];
    }
    return n_top;
}

static void uniform_is_a_function(void **state)
{
    double sum = 0, square = 0, both = 0;
    int bucket[16] = {0};

    (void)state;
    assert_true(lg_sample_uniform(1, 2) == lg_sample_uniform(1, 2));
    assert_true(lg_sample_uniform(1, 2) != lg_sample_uniform(2, 1));
    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = lg_sample_uniform(7, i), v = lg_sample_uniform(i, 0);
        assert_true(u >= 0 && u < 1 && v >= 0 && v < 1);
        sum += u;
        square += v;
        both += (u - 0.5) * (lg_sample_uniform(8, i) - 0.5);
        bucket[(int)(v * 16)]++;
    }
    assert_true(fabs(sum / DRAWS - 0.5) < 0.005);
    assert_true(fabs(square / DRAWS - 0.5) < 0.005);
    assert_true(fabs(both / DRAWS) < 0.002); // seeds beside each other are not correlated
    double chi = 0;
    for (int i = 0; i < 16; i++)
        chi += pow(bucket[i] - DRAWS / 16.0, 2) / (DRAWS / 16.0);
    assert_true(chi < 37.7); // 15 degrees of freedom, p = 0.001
}

static void draws_follow_the_distribution(void **state)
{
    lg_sampling s = plain();
    float row[N];
    int32_t heap[N];
    double p[N], total = 0, chi = 0;
    int count[N] = {0}, classes = 0;

    (void)state;
    s.temperature = 0.8f;
    make_row(row, N, 3);
    for (int i = 0; i < N; i++)
        total += p[i] = exp((double)row[i] / (double)s.temperature);
    for (uint64_t i = 0; i < DRAWS; i++)
        count[lg_sample_row(&s, row, N, heap, lg_sample_uniform(99, i))]++;
    for (int i = 0; i < N; i++) {
        double want = p[i] / total * DRAWS;
        if (want < 5)
            continue;
        chi += pow(count[i] - want, 2) / want;
        classes++;
    }
    assert_true(classes > 20);
    assert_true(chi < classes + 3.5 * sqrt(2.0 * classes)); // about p = 0.0003
}

static void greedy_takes_the_lower_id(void **state)
{
    lg_sampling s = plain();
    float row[N] = {0};
    int32_t heap[N], ids[N];
    float logits[N];

    (void)state;
    s.temperature = 0;
    row[9] = row[5] = row[40] = 3;
    assert_int_equal(lg_sample_row(&s, row, N, heap, 0.99), 5);
    lg_cand_list c = {.ids = ids, .logits = logits, .n = sorted(row, N, 1, ids, logits)};
    assert_int_equal(lg_sampling_cands(&s), 1);
    assert_int_equal(lg_sample_pick(&s, &c, 0.99), 5);
    s.temperature = 1;
    s.top_p = 0; // as narrow as it gets
    assert_int_equal(lg_sample_row(&s, row, N, heap, 0.99), 5);
}

// With top-k both ways must give the same token for every uniform number.
static void both_ways_agree(void **state)
{
    static const float top_p[] = {1, 0.9f, 0.5f, 0.01f}, min_p[] = {0, 0.05f, 0.5f, 1};
    float row[N], logits[N];
    int32_t heap[N], ids[N];

    (void)state;
    for (int k = 1; k <= N; k += 7)
        for (int a = 0; a < 16; a++) {
            lg_sampling s = plain();
            s.top_k = k;
            s.top_p = top_p[a / 4];
            s.min_p = min_p[a % 4];
            s.temperature = 0.5f + (float)a / 8;
            make_row(row, N, (uint64_t)(k * 100 + a + 1));
            lg_cand_list c = {
                .ids = ids, .logits = logits, .n = sorted(row, N, lg_sampling_cands(&s), ids, logits)};
            for (int i = 0; i < 200; i++) {
                double u = lg_sample_uniform((uint64_t)k, (uint64_t)i);
                assert_int_equal(lg_sample_row(&s, row, N, heap, u), lg_sample_pick(&s, &c, u));
            }
        }
}

// Which tokens can come at all, found by drawing with a fine comb of uniform numbers.
static int reachable(const lg_sampling *s, const float *row, int n, bool *hit)
{
    int32_t heap[N];
    int count = 0;

    memset(hit, 0, (size_t)n);
    for (int i = 0; i < 100000; i++)
        hit[lg_sample_row(s, row, n, heap, i / 100000.0)] = true;
    for (int i = 0; i < n; i++)
        count += hit[i];
    return count;
}

static void truncation_is_exact(void **state)
{
    // probabilities 0.4 0.3 0.2 0.06 0.04 at temperature 1
    static const double p[] = {0.06, 0.4, 0.2, 0.04, 0.3};
    float row[5];
    bool hit[N];

    (void)state;
    for (int i = 0; i < 5; i++)
        row[i] = (float)log(p[i]);
    lg_sampling s = plain();
    assert_int_equal(reachable(&s, row, 5, hit), 5);
    s.top_k = 2;
    assert_int_equal(reachable(&s, row, 5, hit), 2);
    assert_true(hit[1] && hit[4]);
    s = plain();
    s.top_p = 0.69f; // 0.4 + 0.3 reaches it
    assert_int_equal(reachable(&s, row, 5, hit), 2);
    s.top_p = 0.71f;
    assert_int_equal(reachable(&s, row, 5, hit), 3);
    s.top_k = 3; // top-p works on what top-k left: 0.4 / 0.9 < 0.71 < 0.7 / 0.9
    assert_int_equal(reachable(&s, row, 5, hit), 2);
    s = plain();
    s.min_p = 0.49f; // of 0.4: keeps 0.4, 0.3, 0.2
    assert_int_equal(reachable(&s, row, 5, hit), 3);
    s.min_p = 0.51f;
    assert_int_equal(reachable(&s, row, 5, hit), 2);
    s = plain();
    s.temperature = 0.2f; // the ratio 0.06 / 0.4 becomes its fifth power
    s.min_p = 0.01f;
    assert_int_equal(reachable(&s, row, 5, hit), 3);
}

static void penalties_and_bias(void **state)
{
    lg_logit_bias bias[] = {{3, 2.5f}, {4, -100}};
    lg_sampling s = plain();
    int32_t recent[] = {1, 2, 2, 0}, count[6] = {0, 0, 3, 0, 0, 1};
    float row[6] = {1, 2, -2, 0, 0, 5};

    (void)state;
    s.repetition_penalty = 2;
    s.repeat_last_n = 3; // not the 1 at the front
    s.frequency_penalty = 0.5f;
    s.presence_penalty = 1;
    s.bias = bias;
    s.n_bias = 2;
    assert_int_equal(lg_sampling_cands(&s), 0);
    lg_sample_penalize(&s, recent, 4, count, row, 6);
    assert_true(row[0] == 0.5f && row[1] == 2); // once, not once per occurrence
    assert_true(row[2] == -4 - 1.5f - 1);
    assert_true(row[3] == 2.5f && isinf(row[4]) && row[5] == 5 - 0.5f - 1);
}

static void nothing_left_is_said(void **state)
{
    lg_sampling s = plain();
    float row[4] = {-INFINITY, NAN, -INFINITY, NAN};
    int32_t heap[4];

    (void)state;
    assert_int_equal(lg_sample_row(&s, row, 4, heap, 0.5), -1);
    s.temperature = 0;
    assert_int_equal(lg_sample_row(&s, row, 4, heap, 0.5), -1);
    row[2] = 0; // a NaN beside it does no harm
    assert_int_equal(lg_sample_row(&s, row, 4, heap, 0.5), 2);
    s = plain();
    for (int i = 0; i < 100; i++)
        assert_int_equal(lg_sample_row(&s, row, 4, heap, i / 100.0), 2);
}

static void ranges_are_checked(void **state)
{
    lg_err err = {0};
    lg_sampling s = plain();

    (void)state;
    assert_int_equal(lg_sampling_check(&s, &err), LG_OK);
#define WRONG(field, value, name)                                                                            \
    do {                                                                                                     \
        lg_sampling w = plain();                                                                             \
        w.field = (value);                                                                                   \
        assert_int_equal(lg_sampling_check(&w, &err), LG_E_INPUT);                                           \
        assert_non_null(strstr(err.msg, name));                                                              \
    } while (0)
    WRONG(temperature, 5.1f, "temperature");
    WRONG(temperature, NAN, "temperature");
    WRONG(top_p, -0.1f, "top_p");
    WRONG(min_p, 1.5f, "min_p");
    WRONG(top_k, -2, "top_k");
    WRONG(frequency_penalty, 2.5f, "frequency_penalty");
    WRONG(presence_penalty, -3, "presence_penalty");
    WRONG(repetition_penalty, 0, "repetition_penalty");
    WRONG(repeat_last_n, -1, "repeat_last_n");
#undef WRONG
    lg_logit_bias bias = {-1, 0};
    s.bias = &bias;
    s.n_bias = 1;
    assert_int_equal(lg_sampling_check(&s, &err), LG_E_INPUT);
}

// Edits on the list must agree with edits on the row wherever they claim to be certain.
static void edits_agree(void **state)
{
    static const int32_t damp[] = {4, 9, 13, 21, 33};
    int certain = 0;

    (void)state;
    for (uint64_t seed = 1; seed < 3000; seed++) {
        uint64_t rng = seed * 77;
        float row[N], logits[N + 1], want_logits[N];
        int32_t ids[N + 1], want[N];
        bool lifted;
        lg_edit e;

        make_row(row, N, seed);
        lg_edit_init(&e);
        if (seed % 3 == 0)
            e.heir = 19, e.n_left = 2;
        e.mask[e.n_mask++] = 2;
        e.mask[e.n_mask++] = 24;
        if (seed % 2 == 0)
            e.damp = damp, e.n_damp = 5, e.damp_by = (float)mk_uniform(&rng) * 4;
        if (seed % 5 < 3)
            e.lift = 19, e.gap = (float)mk_uniform(&rng) * 6;
        int n = 1 + (int)(mk_uniform(&rng) * 20);
        (void)sorted(row, N, n, ids, logits);
        int sure = lg_edit_list(&e, ids, logits, n, &lifted);
        bool row_lifted = lg_edit_row(&e, row, N);
        (void)sorted(row, N, N, want, want_logits);
        assert_true(sure >= 0 && sure <= n + 1);
        for (int i = 0; i < sure; i++) {
            assert_int_equal(ids[i], want[i]);
            assert_true(logits[i] == want_logits[i]);
            if (ids[i] == 19)
                assert_int_equal(lifted, row_lifted);
        }
        certain += sure;
    }
    assert_true(certain > 20000); // most of the lists stay useful
}

static void edits_do_what_they_say(void **state)
{
    float row[32];
    int32_t cue = 7;
    lg_edit e;

    (void)state;
    for (int i = 0; i < 32; i++)
        row[i] = (float)i / 8;
    lg_edit_init(&e);
    assert_true(lg_edit_empty(&e));
    row[2] = 9; // an end-of-generation id on top: its chance goes to the heir
    e.mask[0] = 2;
    e.n_mask = e.n_left = 1;
    e.heir = 19;
    e.damp = &cue;
    e.n_damp = 1;
    e.damp_by = 4;
    assert_false(lg_edit_row(&e, row, 32));
    assert_true(isinf(row[2]) && row[2] < 0 && row[19] == 9 && row[7] == 7.0f / 8 - 4);
    row[19] = 1;
    lg_edit_init(&e);
    e.lift = 19;
    e.gap = 1;
    assert_true(lg_edit_row(&e, row, 32));
    assert_true(row[19] == 31.0f / 8 - 1);
    assert_false(lg_edit_row(&e, row, 32)); // it is there already
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_is_a_function),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(greedy_takes_the_lower_id),
        cmocka_unit_test(both_ways_agree),
        cmocka_unit_test(truncation_is_exact),
        cmocka_unit_test(penalties_and_bias),
        cmocka_unit_test(nothing_left_is_said),
        cmocka_unit_test(ranges_are_checked),
        cmocka_unit_test(edits_agree),
        cmocka_unit_test(edits_do_what_they_say),
    };

    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
