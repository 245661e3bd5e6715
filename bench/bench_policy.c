/*
 * Measures what the drafting policy costs where drafts are poor and brings where they are good: the same reply
 * by two engines that take turns of TURN tokens, so that whatever else the machine does meets both. Only a
 * side's own turns are counted.
 *
 *   bench_policy MODEL DRAFTER [TOKENS [REPS [THREADS [WORD ...]]]]
 *
 * Words choose texts (prose, code) and ways (below), all of them without; `greedy` takes the likeliest tokens.
 * Prose goes on from beginnings that the demonstration model has no text for; code is what it knows. Each
 * reply is the longest of those with the seeds 1 to SEEDS. Figures only; nothing is judged.
 *
 *   control  no drafts on either side: what the method itself says
 *   rest     the drafter is there, its policy never drafts: what a paused step costs
 *   new      the policy forgets everything before each reply, as in a process that has just started
 *   warm     the policy goes on from the reply before
 *
 * A reply's ratio, plain over drafting, is taken twice: of the sums of all turns, and by parts. There, turns
 * that drafted count as the ratio of their sums, and all others, which are alike, as the median of their
 * ratios to the plain turns beside them: a pause of the machine in one turn of many does not show. Both are given as the median of the replies between the limits that hold it with 95 % (order
 * statistics; with under 6 replies all there are).
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/engine_int.h"

enum { TEXTS = 6, PROSE = 3, REPS_MAX = 99, SEEDS = 24, TURN = 8, TURNS_MAX = 1024 };
enum { CONTROL, REST, NEW, WARM, WAYS };

static const char *const way_name[WAYS] = {"control", "rest", "new", "warm"};
static const char *const text[TEXTS] = {
    "The lagoon lies behind the dunes. In the morning",
    "My dear friend, I have walked along the shore today and",
    "Winter came early that year, and nobody in the village",
    "#include <stdio.h>\n\nint main(void)\n{\n",
    "def is_prime(n):\n",
    "function sum(values) {\n",
};

static const lg_draft_params policy = {.p_min = 0.5f, .pause_margin = 1};

typedef struct baton {
    pthread_mutex_t lock;
    pthread_cond_t passed;
    int turn;
    bool done[2];
} baton;

typedef struct side {
    lg_engine *e;
    baton *b; // NULL: no turns
    int id;
    bool drafts, rests, greedy;
    const char *text;
    uint64_t seed;
    int64_t limit;
    int made;       // tokens of this turn
    uint64_t start; // of this turn, ns; 0: before the first token
    double ns[TURNS_MAX], sum;
    int64_t rounds[TURNS_MAX]; // that were over when the turn ended
    int turns;
    lg_gen_stats stats;
    lg_status st;
    lg_err err;
} side;

static void await_turn(const side *s)
{
    (void)pthread_mutex_lock(&s->b->lock);
    while (s->b->turn != s->id && !s->b->done[!s->id])
        (void)pthread_cond_wait(&s->b->passed, &s->b->lock);
    (void)pthread_mutex_unlock(&s->b->lock);
}

static void pass(const side *s, bool done)
{
    (void)pthread_mutex_lock(&s->b->lock);
    s->b->turn = !s->id;
    s->b->done[s->id] = done;
    (void)pthread_cond_broadcast(&s->b->passed);
    (void)pthread_mutex_unlock(&s->b->lock);
}

static void end_turn(side *s, uint64_t now)
{
    double ns = (double)(now - s->start);

    s->sum += ns;
    if (s->turns < TURNS_MAX) {
        s->ns[s->turns] = ns;
        s->rounds[s->turns++] = s->stats.draft.made + s->stats.draft.rounds;
    }
    s->made = 0;
}

// So many plain steps in debt, the policy drafts no more.
static void lay_to_rest(const side *s)
{
    lg_pace *p = lg_spec_pace(s->e->spec);

    p->paused = true;
    p->probe = 0;
    p->purse = -1e6;
}

static void on_token(void *ctx, const lg_gen_token *t)
{
    side *s = ctx;
    uint64_t now = lg_now_ns();

    (void)t;
    if (s->rests)
        lay_to_rest(s);
    if (s->start == 0) { // the clock starts behind the first token
        s->start = now;
        s->made = 0;
    } else if (s->b && ++s->made >= TURN) {
        end_turn(s, now);
        pass(s, false);
        await_turn(s);
        s->start = lg_now_ns();
    }
}

static void ignore(void *ctx, const lg_event *ev)
{
    (void)ctx;
    (void)ev;
}

static lg_status generate(side *s)
{
    lg_gen_params p = {.sampling = lg_sampling_default(),
                       .max_tokens = s->limit,
                       .max_think = -1,
                       .reply = {.raw = true},
                       .no_draft = !s->drafts,
                       .cache = LG_CACHE_OFF,
                       .max_reply_bytes = 1 << 20,
                       .event = ignore,
                       .token = on_token,
                       .ctx = s};
    lg_ids ids = {0};
    lg_status st = lg_bpe_encode(lg_engine_bpe(s->e), lg_str_of(s->text), false, &ids, &s->err);

    p.sampling.seed = s->seed;
    if (s->greedy)
        p.sampling.temperature = 0;
    s->sum = 0;
    s->turns = s->made = 0;
    s->start = 0;
    if (st == LG_OK)
        st = lg_generate(s->e, ids.p, ids.n, &p, &s->stats, NULL, &s->err);
    if (s->start)
        end_turn(s, lg_now_ns());
    lg_ids_free(&ids);
    return st;
}

static void *run(void *arg)
{
    side *s = arg;

    await_turn(s);
    s->st = generate(s);
    pass(s, true);
    return NULL;
}

// Both sides of one reply; their threads end here.
static lg_status both(side s[2], lg_err *err)
{
    baton b = {.lock = PTHREAD_MUTEX_INITIALIZER, .passed = PTHREAD_COND_INITIALIZER};
    pthread_t other;

    s[0].b = s[1].b = &b;
    if (pthread_create(&other, NULL, run, &s[1]) != 0)
        return LG_FAIL(err, LG_E_IO, "no thread");
    (void)run(&s[0]);
    (void)pthread_join(other, NULL);
    for (int i = 0; i < 2; i++)
        if (s[i].st != LG_OK) {
            *err = s[i].err;
            return s[i].st;
        }
    return LG_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

// The ratio by parts: see above. *step: of the turns without drafts alone; 0: there is none.
static double by_parts(const side s[2], double *step)
{
    // the last turns are shorter
    int turns = s[0].turns < s[1].turns ? s[0].turns - 1 : s[1].turns - 1, alike = 0;
    static double ratio[TURNS_MAX];
    double plain = 0, spec = 0;

    *step = 0;
    if (turns < 1)
        return s[0].sum / s[1].sum;
    for (int i = 0; i < turns; i++) {
        // a round that ends with the turn's last token is counted in the next turn
        bool drafted = s[1].rounds[i + 1] != (i > 0 ? s[1].rounds[i - 1] : 0);

        if (drafted) {
            plain += s[0].ns[i];
            spec += s[1].ns[i];
        } else {
            ratio[alike++] = s[0].ns[i] / s[1].ns[i];
        }
    }
    if (alike > 0)
        *step = median(ratio, alike);
    double took = alike > 0 ? alike / *step : 0; // in plain turns
    if (plain > 0)
        took += (turns - alike) * spec / plain;
    return turns / took;
}

// Ranks, from 0, between which the median of n values lies with 95 %.
static void limits(int n, int *low, int *high)
{
    double p = pow(0.5, n), below = p; // P(rank of the median <= k) for k = 0

    *low = 0;
    for (int k = 1; below <= 0.025 && k < n / 2; k++) {
        *low = k - 1;
        p *= (double)(n - k + 1) / k;
        below += p;
    }
    *high = n - 1 - *low;
}

static void print_ratio(double *v, int n)
{
    int low, high;
    double m = median(v, n);

    limits(n, &low, &high);
    (void)printf("  %6.3f (%.3f to %.3f)", m, v[low], v[high]);
}

static lg_status measure(side s[2], int way, const char *kind, int reps, lg_err *err)
{
    static double sums[REPS_MAX], parts[REPS_MAX], step[REPS_MAX], us[REPS_MAX];
    int64_t rounds = 0, made = 0, accepted = 0;
    int n_step = 0;

    s[1].drafts = way != CONTROL;
    s[1].rests = way == REST;
    lg_engine_set_draft(s[1].e, &policy);
    for (int i = 0; i < reps; i++) {
        if (way == NEW)
            lg_engine_set_draft(s[1].e, &policy);
        LG_TRY(both(s, err));
        if (s[0].stats.output_tokens != s[1].stats.output_tokens)
            return LG_FAIL(err, LG_E_INPUT, "another reply with drafts than without");
        sums[i] = s[0].sum / s[1].sum;
        parts[i] = by_parts(s, &step[n_step]);
        n_step += step[n_step] > 0;
        us[i] = s[0].sum / 1e3 / (double)(s[0].stats.output_tokens - 1);
        rounds += s[1].stats.draft.rounds;
        made += s[1].stats.draft.made;
        accepted += s[1].stats.draft.accepted;
    }
    (void)printf("%-6s %-8s %6lld %9.0f", kind, way_name[way], (long long)s[0].stats.output_tokens,
                 median(us, reps));
    print_ratio(sums, reps);
    print_ratio(parts, reps);
    if (n_step > 0)
        print_ratio(step, n_step);
    (void)printf("  %.1f %.1f %.1f\n", (double)rounds / reps, (double)made / reps, (double)accepted / reps);
    (void)fflush(stdout);
    return LG_OK;
}

// The seed of the longest reply.
static lg_status find_seed(side *s, lg_err *err)
{
    int64_t longest = 0;
    uint64_t best = 1;

    s->b = NULL;
    for (s->seed = 1; s->seed <= (s->greedy ? 1 : SEEDS) && longest < s->limit; s->seed++) {
        if (generate(s) != LG_OK) {
            *err = s->err;
            return LG_E_INPUT;
        }
        if (s->stats.output_tokens > longest) {
            longest = s->stats.output_tokens;
            best = s->seed;
        }
    }
    s->seed = best;
    return longest > 1 ? LG_OK : LG_FAIL(err, LG_E_INPUT, "no reply has two tokens");
}

static bool is_kind(int which, const char *word)
{
    return strcmp(word, which < PROSE ? "prose" : "code") == 0;
}

// Whether the words choose it, or nothing of its kind: `is` says of what a word is the name.
static bool chosen(char **words, int n, int which, int all, bool (*is)(int, const char *))
{
    bool any = false;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < all; k++) {
            if (is(k, words[i]) && k == which)
                return true;
            any = any || is(k, words[i]);
        }
    return !any;
}

static bool is_way(int way, const char *word)
{
    return strcmp(word, way_name[way]) == 0;
}

static bool is_known(const char *word)
{
    bool known = strcmp(word, "greedy") == 0;

    for (int i = 0; i < WAYS; i++)
        known = known || is_way(i, word);
    return known || is_kind(0, word) || is_kind(PROSE, word);
}

static lg_status measure_text(side s[2], int which, int reps, char **words, int n, lg_err *err)
{
    s[0].text = s[1].text = text[which];
    LG_TRY(find_seed(&s[0], err));
    s[1].seed = s[0].seed;
    for (int way = 0; way < WAYS; way++)
        if (chosen(words, n, way, WAYS, is_way))
            LG_TRY(measure(s, way, which < PROSE ? "prose" : "code", reps, err));
    return LG_OK;
}

static lg_status open_engine(char **argv, int threads, lg_engine **out, lg_err *err)
{
    return lg_engine_open(&(lg_engine_params){.model_path = argv[1],
                                              .backend = {.device = "cpu", .isa = "", .threads = threads},
                                              .ctx = 4096,
                                              .kv_type = LG_F16,
                                              .draft_path = argv[2],
                                              .draft_required = true,
                                              .draft = policy},
                          out, err);
}

int main(int argc, char **argv)
{
    static side s[2] = {{.id = 0}, {.id = 1}};
    int n_words = argc > 6 ? argc - 6 : 0;
    char **words = argv + argc - n_words;
    bool known = argc >= 3;
    lg_err err = {0};
    lg_status st;

    for (int i = 0; i < n_words; i++) {
        known = known && is_known(words[i]);
        s[0].greedy = s[1].greedy = s[0].greedy || strcmp(words[i], "greedy") == 0;
    }
    if (!known) {
        (void)fprintf(stderr, "usage: bench_policy MODEL DRAFTER [TOKENS [REPS [THREADS [prose | code | control | "
                              "rest | new | warm | greedy ...]]]]\n");
        return 2;
    }
    int reps = argc > 4 ? atoi(argv[4]) : 5, threads = argc > 5 ? atoi(argv[5]) : 0;
    reps = reps < 1 ? 1 : reps > REPS_MAX ? REPS_MAX : reps;
    s[0].limit = s[1].limit = argc > 3 ? atoi(argv[3]) : 512;
    st = open_engine(argv, threads, &s[0].e, &err);
    if (st == LG_OK)
        st = open_engine(argv, threads, &s[1].e, &err);
    if (st == LG_OK)
        (void)printf("%-6s %-8s %6s %9s  %-24s  %-24s  %-24s  %s\n", "text", "way", "tokens", "plain us",
                     "speed-up by sums", "by parts", "turns without drafts", "rounds, drafts, accepted");
    for (int i = 0; st == LG_OK && i < TEXTS; i++)
        if (chosen(words, n_words, i, TEXTS, is_kind))
            st = measure_text(s, i, reps, words, n_words, &err);
    if (st != LG_OK)
        (void)fprintf(stderr, "bench_policy: %s%s%s\n", err.subject, err.subject[0] ? ": " : "", err.msg);
    lg_engine_close(s[0].e);
    lg_engine_close(s[1].e);
    return st == LG_OK ? 0 : 1;
}
