/*
 * Tests of engine/pace on replayed rounds: a device is a table of costs, a text is a chance of acceptance by
 * position. What matters is the time of the whole reply against plain decoding, whichever way it comes about.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "engine/pace.h"

// Microseconds of a step of `rows` rows, and of n drafts; the last row saves `bend` of each one before it.
typedef struct device {
    double row0, row, draft0, draft, bend;
} device;

// Bound by memory (rows are cheap), by arithmetic (a row costs about half a step), and like the demonstration
// model on two cores: a draft half a step, 15 drafts 2.3, 4 rows 2.4.
static const device big = {20000, 1800, 4000, 100, 0}, small = {600, 550, 500, 140, 0},
                    mini = {350, 330, 300, 85, 0.011};

static double verify_us(const device *d, int rows)
{
    return d->row0 + d->row * rows * (1 - d->bend * rows);
}

static uint64_t state;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1.0p-53;
}

static double noisy(double us)
{
    return us * (0.97 + 0.06 * uniform());
}

// Time of one reply of `tokens` tokens, and what it would have been without drafts, added to *spec and
// *plain. Drafts are right with probability p each; the drafter knows it roughly.
static void reply(lg_pace *p, const device *d, double chance, int tokens, double *spec, double *plain)
{
    lg_pace_start(p);
    for (int made = 0; made < tokens;) {
        float sure[LG_DRAFTS_MAX];
        int n = lg_pace_plan(p, tokens - made - 1), accepted = 0;
        lg_pace_round r = {.drafted = n, .confidence = sure};

        assert_true(n >= 0 && n <= LG_DRAFTS_MAX && n <= (tokens - made - 1 > 0 ? tokens - made - 1 : 0));
        for (int i = 0; i < n; i++)
            sure[i] = (float)fmin(0.99, fmax(0.01, chance + 0.3 * (uniform() - 0.5)));
        int kept = n > 0 ? lg_pace_keep(p, sure, n) : 0;
        assert_true(kept >= 0 && kept <= n);
        while (accepted < kept && uniform() < chance)
            accepted++;
        r.kept = kept;
        r.accepted = accepted;
        r.compared = accepted < kept ? accepted + 1 : kept;
        r.tokens = accepted + 1;
        r.draft_us = n > 0 ? (uint64_t)noisy(d->draft0 + d->draft * n) : 0;
        r.verify_us = (uint64_t)noisy(verify_us(d, kept + 1));
        r.total_us = r.draft_us + r.verify_us + 20;
        (void)lg_pace_record(p, &r);
        made += r.tokens;
        *spec += (double)r.total_us;
        *plain += r.tokens * (verify_us(d, 1) + 20);
    }
}

static double speedup(const device *d, double chance, int replies, int tokens, double p_min)
{
    lg_pace p;
    double spec = 0, plain = 0;

    lg_pace_init(&p, &(lg_pace_settings){.max = LG_DRAFTS_MAX, .p_min = (float)p_min, .pause_margin = 1});
    for (int i = 0; i < replies; i++)
        reply(&p, d, chance, tokens, &spec, &plain);
    return plain / spec;
}

static void pays_where_it_can(void **unused)
{
    (void)unused;
    state = 1;
    assert_true(speedup(&big, 0.9, 4, 256, 0.5) > 2.5);
    assert_true(speedup(&big, 0.75, 4, 256, 0.5) > 1.5);
    assert_true(speedup(&small, 0.97, 4, 256, 0.5) > 1.15);
}

// Whatever the chance: what the purse holds is all that is lost, by long replies and by short ones.
static void loses_little(void **unused)
{
    static const double chances[] = {0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.85};
    static const device *const devices[] = {&big, &small, &mini};

    (void)unused;
    state = 2;
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 7; i++) {
            assert_true(speedup(devices[d], chances[i], 1, 512, 0.5) > 0.98);
            assert_true(speedup(devices[d], chances[i], 1, 512, 0) > 0.98);
            assert_true(speedup(devices[d], chances[i], 4, 512, 0.5) > 0.985);
            assert_true(speedup(devices[d], chances[i], 20, 40, 0.5) > 0.98);
        }
}

// How long a pause lasts is known when it begins, and a probe ends it.
static void rests(void **unused)
{
    lg_pace p;
    lg_pace_round bad = {.drafted = 2, .kept = 2, .compared = 1, .tokens = 1, .confidence = (float[2]){1, 1},
                         .draft_us = 600, .verify_us = 1200, .total_us = 1800},
                  plain = {.tokens = 1, .verify_us = 600, .total_us = 600};
    int waited = 0;
    double rest;

    (void)unused;
    lg_pace_init(&p, &(lg_pace_settings){.max = 15, .p_min = 0.5f, .pause_margin = 1});
    lg_pace_start(&p);
    while (!p.paused) {
        bool drafts = lg_pace_plan(&p, 99) > 0;
        (void)lg_pace_record(&p, drafts ? &bad : &plain);
        assert_false(lg_pace_rests(&p) && !p.paused);
        assert_true(++waited < 20);
    }
    assert_true(lg_pace_rests(&p));
    rest = lg_pace_rest(&p);
    assert_true(rest > 30 && rest < 700);
    for (waited = 0; lg_pace_plan(&p, 99) == 0; waited++)
        (void)lg_pace_record(&p, &plain);
    assert_true(fabs(waited - rest) < 2);
    assert_false(lg_pace_rests(&p)); // the probe has begun
}

// The margin is what a token may cost, in plain steps: whether rounds of two tokens at a time pause drafting.
static bool pauses(float margin, int cost_us)
{
    lg_pace p;
    lg_pace_round round = {.drafted = 1, .kept = 1, .compared = 1, .accepted = 1, .tokens = 2,
                           .confidence = (float[1]){1}, .draft_us = (uint64_t)cost_us / 3,
                           .verify_us = (uint64_t)cost_us * 2 / 3, .total_us = (uint64_t)cost_us},
                  plain = {.tokens = 1, .verify_us = 600, .total_us = 600};

    lg_pace_init(&p, &(lg_pace_settings){.max = 1, .p_min = 0.5f, .pause_margin = margin});
    lg_pace_start(&p);
    for (int i = 0; i < 100 && !p.paused; i++)
        (void)lg_pace_record(&p, lg_pace_plan(&p, 99) > 0 ? &round : &plain);
    return p.paused;
}

static void margins(void **unused)
{
    (void)unused;
    assert_false(pauses(1, 900)); // three quarters of a plain step a token
    assert_true(pauses(1, 1500)); // five quarters
    assert_false(pauses(1.5f, 1500));
    assert_true(pauses(0.5f, 900));
    assert_false(pauses(10, 9000));
    assert_false(pauses(0, 90000)); // never
}

// A text that turns from prose to code and back.
static void follows_the_text(void **unused)
{
    lg_pace p;
    double spec = 0, plain = 0, spec2 = 0, plain2 = 0;

    (void)unused;
    state = 3;
    lg_pace_init(&p, &(lg_pace_settings){.max = LG_DRAFTS_MAX, .p_min = 0.5f, .pause_margin = 1});
    for (int i = 0; i < 6; i++) {
        reply(&p, &big, 0.05, 200, &spec, &plain);
        reply(&p, &big, 0.9, 400, &spec2, &plain2);
    }
    assert_true(plain / spec > 0.95);
    assert_true(plain2 / spec2 > 2);
}

static void limits(void **unused)
{
    static const float sure[] = {0.9f, 0.8f, 0.4f, 0.9f};
    lg_pace p;

    (void)unused;
    lg_pace_init(&p, &(lg_pace_settings){.max = 99});
    assert_int_equal(p.set.max, LG_DRAFTS_MAX);
    lg_pace_start(&p);
    for (int room = 0; room < 20; room++) // time decides nothing with a margin of 0
        assert_int_equal(lg_pace_plan(&p, room), room < LG_DRAFTS_MAX ? room : LG_DRAFTS_MAX);
    assert_int_equal(lg_pace_keep(&p, sure, 4), 4);
    lg_pace_init(&p, &(lg_pace_settings){.max = 4, .p_min = 0.5f});
    assert_int_equal(lg_pace_plan(&p, 100), 4);
    assert_int_equal(lg_pace_keep(&p, sure, 4), 2);
    assert_int_equal(lg_pace_keep(&p, sure + 2, 2), 0);
}

// Sixteen rounds of three drafts or more without a right one: said once, and no more drafts in this reply.
static void barren(void **unused)
{
    lg_pace p;
    lg_pace_round r = {.drafted = 5, .kept = 5, .compared = 1, .tokens = 1, .confidence = (float[5]){0},
                       .draft_us = 10, .verify_us = 100, .total_us = 120};
    int told = 0;

    (void)unused;
    lg_pace_init(&p, &(lg_pace_settings){.max = 5});
    for (int turn = 0; turn < 2; turn++) {
        lg_pace_start(&p);
        for (int i = 0; i < 16; i++) {
            assert_int_equal(lg_pace_plan(&p, 99), 5);
            told += lg_pace_record(&p, &r);
        }
        assert_int_equal(lg_pace_plan(&p, 99), 0);
        assert_true(lg_pace_rests(&p) && isinf(lg_pace_rest(&p)));
    }
    assert_int_equal(told, 1);
    lg_pace_start(&p);
    assert_false(lg_pace_rests(&p));
    r.accepted = 1;
    r.compared = 2;
    assert_false(lg_pace_record(&p, &r));
    r.accepted = 0;
    for (int i = 0; i < 40; i++)
        (void)lg_pace_record(&p, &r);
    assert_int_equal(lg_pace_plan(&p, 99), 5); // one right draft shows that the pair belongs together
}

static void costs_between_measurements(void **unused)
{
    lg_pace_cost c = {0};

    (void)unused;
    assert_true(lg_pace_cost_at(&c, 4) == 0);
    c.us[2] = 100;
    c.n[2] = 1;
    assert_true(lg_pace_cost_at(&c, 2) == 100);
    assert_true(lg_pace_cost_at(&c, 1) < 100 && lg_pace_cost_at(&c, 8) > 100);
    c.us[10] = 180;
    c.n[10] = 1;
    assert_true(fabs(lg_pace_cost_at(&c, 6) - 140) < 1e-9);
    assert_true(fabs(lg_pace_cost_at(&c, 15) - 230) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pays_where_it_can), cmocka_unit_test(loses_little),
        cmocka_unit_test(follows_the_text),  cmocka_unit_test(limits), cmocka_unit_test(rests),
        cmocka_unit_test(margins),           cmocka_unit_test(barren),
        cmocka_unit_test(costs_between_measurements),
    };

    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
