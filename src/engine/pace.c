/*
 * engine/pace: see pace.h. The engine's thread.
 *
 * The number of drafts maximises tokens a microsecond: (1 + expected accepted drafts) / (drafting + verifying
 * that many rows). Before drafting the expectation comes from what earlier rounds accepted at each position;
 * after drafting from the drafts' own confidence, scaled by how well it has foretold acceptance.
 *
 * What drafting may lose is kept in a purse, in plain steps: it begins with PURSE_START, earns EARN a token,
 * gains what rounds win and pays what they lose. An empty purse pauses drafting, a filled one pays for a
 * probe; so whatever the text, drafting costs no more than that.
 *
 * What surprises: lengths grow from FIRST_DRAFTS on, each at most twice the longest that was timed. Where
 * rows cost time (a processor, a model that fits its caches) a first round of full length would cost more
 * than it could ever bring.
 */
#include "engine/pace.h"

#include <math.h>
#include <string.h>

#define ALPHA 0.15
#define SLOW_ALPHA 0.06 /* acceptance is noisier than time */
#define EARN 0.0075     /* of a plain step, a token */
#define PURSE_START 2
#define CONTEXT_MAX 4   /* plain steps that rows of context are charged at once: more is the machine */
#define PURSE_MAX 8
#define PATIENCE_MAX 8
#define RESUME 1.05     /* a probe must win so much: two rounds may be lucky */
#define HOPE 1.15       /* what a probe's length wins when all is accepted */

enum {
    FIRST_DRAFTS = 2,
    WARM_SPEC = 6,
    COLD = 3,          // times of a width until its mean begins
    WARM_PLAIN = 2,
    PLAIN_EVERY_WARM = 4,
    PLAIN_EVERY = 32,
    EXPLORE_EVERY = 32, // a longer round, so that late positions are not forgotten
    PROBE_ROUNDS = 2,
    BARREN_ROUNDS = 16,
    BARREN_DRAFTS = 3,
};

void lg_pace_init(lg_pace *p, const lg_pace_settings *set)
{
    *p = (lg_pace){.set = *set, .trust = 1, .purse = PURSE_START, .patience = 1};
    if (p->set.max > LG_DRAFTS_MAX)
        p->set.max = LG_DRAFTS_MAX;
    for (int i = 0; i < LG_DRAFTS_MAX; i++) {
        p->kept[i] = 0.9;
        p->accepted[i] = 0.8;
    }
}

void lg_pace_start(lg_pace *p)
{
    p->given_up = false;
    p->barren = 0;
    p->patience = 1; // another text: where the last reply did not pay, this one may be tried sooner
    p->probe = 0;
    p->n_spec = 0;
    p->since_plain = 0;
}

// The mean of the first values, then one that forgets.
static void average(double *mean, int *n, double v, double alpha)
{
    double part = 1.0 / (*n + 1);

    *mean += (part > alpha ? part : alpha) * (v - *mean);
    if (*n < 1 << 20)
        ++*n;
}

// A time that other work on the machine may have stretched: what is shorter than expected is believed at
// once, what is longer only if it stays so. Of the first times the least counts: pages and caches are cold.
static void add_time(double *mean, int *n, double us)
{
    if (*n == 0 || (*n < COLD && us < *mean))
        *mean = us;
    else if (us < *mean)
        *mean += 0.5 * (us - *mean);
    else if (*n >= COLD)
        *mean += 0.1 * (fmin(us, 2 * *mean) - *mean);
    if (*n < 1 << 20)
        ++*n;
}

static void add_cost(lg_pace_cost *c, int width, double us)
{
    add_time(&c->us[width], &c->n[width], us);
}

static double interpolated(const lg_pace_cost *c, int width)
{
    int lo = width, hi = width, least;

    while (lo >= 0 && c->n[lo] == 0)
        lo--;
    while (hi <= LG_DRAFTS_MAX + 1 && c->n[hi] == 0)
        hi++;
    if (lo < 0 && hi > LG_DRAFTS_MAX + 1)
        return 0;
    if (lo < 0)
        return c->us[hi] * (0.5 + 0.5 * width / hi);
    if (hi == lo)
        return c->us[lo];
    if (hi <= LG_DRAFTS_MAX + 1)
        return c->us[lo] + (c->us[hi] - c->us[lo]) * (width - lo) / (hi - lo);
    for (least = 0; c->n[least] == 0;)
        least++;
    double slope = least < lo ? (c->us[lo] - c->us[least]) / (lo - least) : 0.1 * c->us[lo];
    return c->us[lo] + (slope > 0 ? slope : 0) * (width - lo);
}

double lg_pace_cost_at(const lg_pace_cost *c, int width)
{
    double us = interpolated(c, width);

    // k rows never cost more than more rows do, nor more than as many smaller steps: a time that says so was
    // stretched
    for (int k = 1; k < LG_DRAFTS_MAX + 2; k++)
        if (c->n[k] > 0)
            us = fmin(us, k < width ? c->us[k] * width / k : c->us[k]);
    return us;
}

static int longest_timed(const lg_pace_cost *c)
{
    int n = LG_DRAFTS_MAX + 1;

    while (n > 0 && c->n[n] == 0)
        n--;
    return n;
}

// The number of drafts with the most tokens a microsecond, by what earlier rounds saw, and that rate.
static int best_length(const lg_pace *p, int max, double *rate_of_best)
{
    double tokens = 1, rows = 1, reach = 1, best = 0;
    int n = max;

    for (int i = 0; i < max; i++) {
        reach *= p->kept[i];
        rows += reach;
        tokens += reach * p->accepted[i];
        reach *= p->accepted[i];
        double cost = lg_pace_cost_at(&p->draft, i + 1) + lg_pace_cost_at(&p->verify, (int)(rows + 0.5));
        double rate = tokens / (cost + p->other_us);
        if (rate > best) {
            best = rate;
            n = i + 1;
        }
    }
    *rate_of_best = best;
    return n;
}

static bool plain_is_due(const lg_pace *p)
{
    if (p->n_plain == 0)
        return true; // nothing can be judged without it
    return p->since_plain >= (p->n_plain < WARM_PLAIN ? PLAIN_EVERY_WARM : PLAIN_EVERY);
}

// What a round of n drafts costs when all are verified, in plain steps.
static double round_price(const lg_pace *p, int n)
{
    return (lg_pace_cost_at(&p->draft, n) + lg_pace_cost_at(&p->verify, n + 1) + p->other_us) /
           (p->plain_us * (double)p->set.pause_margin);
}

// Of a probe: the shortest that could pay for more than itself; 0: none could.
static int probe_length(const lg_pace *p, int max)
{
    for (int n = 1; n <= max; n++)
        if (n + 1 >= HOPE * round_price(p, n))
            return n;
    return 0;
}

// Plain steps that a probe loses when it fails.
static double probe_price(const lg_pace *p)
{
    int n = probe_length(p, p->set.max);

    return n > 0 && longest_timed(&p->draft) > 0 ? fmax(0, round_price(p, n) - 1) : 1;
}

bool lg_pace_rests(const lg_pace *p)
{
    return p->given_up || (p->paused && p->probe == 0);
}

double lg_pace_rest(const lg_pace *p)
{
    if (p->given_up)
        return INFINITY;
    return fmax(0, (p->patience * probe_price(p) - p->purse) / EARN);
}

// Drafts of the coming round, at most `max`, by what is known.
static int choose_length(const lg_pace *p, int max)
{
    int timed = longest_timed(&p->draft), best, hope;
    double rate;

    if (timed == 0)
        return max < FIRST_DRAFTS ? max : FIRST_DRAFTS;
    hope = p->paused ? probe_length(p, max) : 0;
    if (max > 2 * timed)
        max = 2 * timed;
    best = best_length(p, max, &rate);
    if (p->rounds % EXPLORE_EVERY == EXPLORE_EVERY - 1)
        best = 2 * best < max ? 2 * best : max;
    if (best < hope)
        best = hope < max ? hope : max;
    return best;
}

int lg_pace_plan(lg_pace *p, int room)
{
    int max = p->set.max < room ? p->set.max : room;

    if (max <= 0 || p->given_up)
        return 0;
    if (p->set.pause_margin <= 0)
        return max;
    if (p->paused && p->probe == 0) {
        if (lg_pace_rest(p) > 0)
            return 0;
        p->probe = PROBE_ROUNDS;
        p->probe_us = p->probe_tokens = 0;
    } else if (!p->paused && plain_is_due(p)) {
        return 0;
    }
    return choose_length(p, max);
}

int lg_pace_keep(const lg_pace *p, const float *confidence, int n)
{
    double tokens = 1, reach = 1, best = 0;
    int keep = 0;

    for (int i = 0; i < n; i++)
        if (confidence[i] < p->set.p_min)
            n = i;
    if (p->set.pause_margin <= 0 || p->verify.n[1] == 0 || p->rounds < 2)
        return n;
    double drafting = lg_pace_cost_at(&p->draft, n > 0 ? n : 1) + p->other_us;
    for (int i = 0; i <= n; i++) {
        double rate = tokens / (drafting + lg_pace_cost_at(&p->verify, i + 1));
        if (rate > best) {
            best = rate;
            keep = i;
        }
        if (i < n) {
            reach *= fmin(1, (double)confidence[i] * p->trust);
            tokens += reach;
        }
    }
    return keep;
}

static void add_chance(double *mean, int *n, bool yes)
{
    double part = 1.0 / (*n + 3);

    *mean += (part > SLOW_ALPHA ? part : SLOW_ALPHA) * (yes - *mean);
    if (*n < 1 << 20)
        ++*n;
}

// Positions that no round reached yet are expected to be like the last one that was.
static void expect_alike(lg_pace *p, int i)
{
    for (int j = i + 1; j < LG_DRAFTS_MAX && p->n_kept[j] == 0; j++) {
        p->kept[j] = p->kept[i];
        p->accepted[j] = p->accepted[i];
    }
}

// What the round says about positions and about confidence.
static void learn(lg_pace *p, const lg_pace_round *r)
{
    double hoped = 0;

    for (int i = 0; i < r->drafted; i++) {
        bool kept = i < r->kept, reached = i <= r->accepted;
        if (!reached)
            break;
        add_chance(&p->kept[i], &p->n_kept[i], kept);
        if (i < r->compared)
            add_chance(&p->accepted[i], &p->n_accepted[i], i < r->accepted);
        expect_alike(p, i);
        if (!kept)
            break;
    }
    for (int i = 0; i < r->compared; i++)
        hoped += (double)r->confidence[i];
    if (hoped > 0)
        p->trust += SLOW_ALPHA * (fmin(1.5, r->accepted / hoped) - p->trust);
    if (p->trust < 0.3)
        p->trust = 0.3;
}

static void record_plain(lg_pace *p, const lg_pace_round *r)
{
    // drafts that were all dropped are not the plain step's cost
    add_time(&p->plain_us, &p->n_plain, (double)r->total_us - (double)r->draft_us);
    add_cost(&p->verify, 1, (double)r->verify_us);
    p->since_plain = 0;
}

// What a round with drafts costs by the averages of its parts, not by its own time: one round is too few to
// tell a slow round from a busy machine. Drafts that were all dropped cost their time too.
static double round_cost(const lg_pace *p, const lg_pace_round *r)
{
    double drafting = lg_pace_cost_at(&p->draft, r->drafted);

    return drafting + (r->kept > 0 ? lg_pace_cost_at(&p->verify, r->kept + 1) + p->other_us : p->plain_us);
}

static void record_drafted(lg_pace *p, const lg_pace_round *r)
{
    int n = p->n_spec;

    average(&p->spec_us, &n, round_cost(p, r), ALPHA);
    average(&p->spec_tokens, &p->n_spec, r->tokens, ALPHA);
    p->rounds++;
}

static void record_verified(lg_pace *p, const lg_pace_round *r)
{
    double rest = (double)r->total_us - (double)r->draft_us - (double)r->verify_us;

    add_time(&p->other_us, &p->n_other, rest);
    add_cost(&p->verify, r->kept + 1, (double)r->verify_us);
    p->since_plain++;
}

// What the round won or lost, and what its tokens earned.
static void account(lg_pace *p, const lg_pace_round *r)
{
    double limit = p->plain_us * (double)p->set.pause_margin;

    if (r->drafted > 0)
        p->purse += r->tokens - round_cost(p, r) / limit;
    p->purse += EARN * r->tokens - fmin(CONTEXT_MAX, (double)r->context_us / limit);
    if (p->purse > PURSE_MAX)
        p->purse = PURSE_MAX;
}

static void judge_probe(lg_pace *p, const lg_pace_round *r)
{
    double limit = p->plain_us * (double)p->set.pause_margin;

    p->probe_us += r->drafted > 0 ? round_cost(p, r) : p->plain_us;
    p->probe_tokens += r->tokens;
    if (p->probe_us > limit * p->probe_tokens) { // lost: not another round of it
        p->probe = 0;
        p->patience = fmin(2 * p->patience, PATIENCE_MAX);
        return;
    }
    if (--p->probe > 0)
        return;
    if (p->probe_us * RESUME > limit * p->probe_tokens)
        return;
    p->paused = false;
    p->patience = 1;
    p->spec_us = p->probe_us / PROBE_ROUNDS;
    p->spec_tokens = p->probe_tokens / PROBE_ROUNDS;
    p->n_spec = WARM_SPEC;
}

// Whether to pause, to go on pausing, or to resume.
static void judge(lg_pace *p, const lg_pace_round *r)
{
    double limit = p->plain_us * (double)p->set.pause_margin, rate;

    if (p->set.pause_margin <= 0 || p->n_plain == 0)
        return;
    account(p, r);
    if (p->paused) {
        if (p->probe > 0)
            judge_probe(p, r);
        return;
    }
    if (r->drafted == 0 || p->spec_us <= limit * p->spec_tokens)
        return;
    (void)best_length(p, p->set.max, &rate);
    // while the purse lasts, a longer block than those so far may be worth its way
    if (p->purse < 0 || (p->n_spec >= WARM_SPEC && rate * limit <= 1.05))
        p->paused = true;
}

bool lg_pace_record(lg_pace *p, const lg_pace_round *r)
{
    if (r->drafted > 0) {
        add_cost(&p->draft, r->drafted, (double)r->draft_us);
        learn(p, r);
    }
    if (r->kept == 0)
        record_plain(p, r);
    else
        record_verified(p, r);
    if (r->drafted > 0)
        record_drafted(p, r);
    judge(p, r);
    if (r->accepted > 0)
        p->barren = -1;
    if (r->kept >= BARREN_DRAFTS && p->barren >= 0 && ++p->barren >= BARREN_ROUNDS) {
        p->given_up = true;
        if (!p->warned)
            return p->warned = true;
    }
    return false;
}
