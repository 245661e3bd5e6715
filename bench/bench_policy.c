/*
 * Measures what the drafting policy costs where drafts are poor and brings where they are good: the same reply
 * with the default policy and without drafts, by two engines that take turns of TURN tokens, so that whatever
 * else the machine does meets both. Only a side's own turns are counted.
 *
 *   bench_policy MODEL DRAFTER [TOKENS [REPS [THREADS [prose | code]]]]
 *
 * Prose goes on from beginnings that the demonstration model has no text for; code is what it knows. Each
 * reply is the longest of those with the seeds 1 to SEEDS. `new` forgets everything before each reply, as a
 * process that has just started; `warm` keeps it. Figures only; nothing is judged.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"

enum { TEXTS = 6, PROSE = 3, REPS_MAX = 99, SEEDS = 24, TURN = 16 };
enum { NEW, WARM, WAYS };

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
    int id;   // 0: no drafts
    const char *text;
    uint64_t seed;
    int64_t limit;
    int made;         // tokens of this turn
    uint64_t start;   // of this turn, ns; 0: before the first token
    double ns;
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

static void on_token(void *ctx, const lg_gen_token *t)
{
    side *s = ctx;
    uint64_t now = lg_now_ns();

    (void)t;
    if (s->start == 0) { // the clock starts behind the first token
        s->start = now;
        s->made = 0;
    } else if (s->b && ++s->made >= TURN) {
        s->ns += (double)(now - s->start);
        s->made = 0;
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
                       .no_draft = s->id == 0,
                       .cache = LG_CACHE_OFF,
                       .max_reply_bytes = 1 << 20,
                       .event = ignore,
                       .token = on_token,
                       .ctx = s};
    lg_ids ids = {0};
    lg_status st = lg_bpe_encode(lg_engine_bpe(s->e), lg_str_of(s->text), false, &ids, &s->err);

    p.sampling.seed = s->seed;
    s->ns = 0;
    s->start = 0;
    if (st == LG_OK)
        st = lg_generate(s->e, ids.p, ids.n, &p, &s->stats, NULL, &s->err);
    if (s->start)
        s->ns += (double)(lg_now_ns() - s->start);
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

static lg_status measure(side s[2], int way, const char *kind, int reps, lg_err *err)
{
    double ratio[REPS_MAX], us[REPS_MAX];
    int64_t rounds = 0, made = 0, accepted = 0;

    for (int i = 0; i < reps; i++) {
        if (way == NEW)
            lg_engine_set_draft(s[1].e, &policy);
        LG_TRY(both(s, err));
        if (s[0].stats.output_tokens != s[1].stats.output_tokens)
            return LG_FAIL(err, LG_E_INPUT, "another reply with drafts than without");
        ratio[i] = s[0].ns / s[1].ns;
        us[i] = s[0].ns / 1e3 / (double)(s[0].stats.output_tokens - 1);
        rounds += s[1].stats.draft.rounds;
        made += s[1].stats.draft.made;
        accepted += s[1].stats.draft.accepted;
    }
    qsort(ratio, (size_t)reps, sizeof *ratio, by_value);
    qsort(us, (size_t)reps, sizeof *us, by_value);
    (void)printf("%-6s %-5s %6lld %9.0f %8.3f %8.3f %8.3f %8.1f %8.1f %9.1f\n", kind,
                 way == NEW ? "new" : "warm", (long long)s[0].stats.output_tokens, us[reps / 2],
                 ratio[reps / 2], ratio[0], ratio[reps - 1], (double)rounds / reps, (double)made / reps,
                 (double)accepted / reps);
    (void)fflush(stdout);
    return LG_OK;
}

// The seed of the longest reply.
static lg_status find_seed(side *s, lg_err *err)
{
    int64_t longest = 0;
    uint64_t best = 1;

    s->b = NULL;
    for (s->seed = 1; s->seed <= SEEDS && longest < s->limit; s->seed++) {
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

static lg_status measure_text(side s[2], int which, int reps, lg_err *err)
{
    s[0].text = s[1].text = text[which];
    LG_TRY(find_seed(&s[0], err));
    s[1].seed = s[0].seed;
    for (int way = 0; way < WAYS; way++)
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
    side s[2] = {{.id = 0}, {.id = 1}};
    lg_err err = {0};
    lg_status st;

    if (argc < 3) {
        (void)fprintf(stderr,
                      "usage: bench_policy MODEL DRAFTER [TOKENS [REPS [THREADS [prose | code]]]]\n");
        return 2;
    }
    int reps = argc > 4 ? atoi(argv[4]) : 5, threads = argc > 5 ? atoi(argv[5]) : 0;
    reps = reps < 1 ? 1 : reps > REPS_MAX ? REPS_MAX : reps;
    s[0].limit = s[1].limit = argc > 3 ? atoi(argv[3]) : 512;
    st = open_engine(argv, threads, &s[0].e, &err);
    if (st == LG_OK)
        st = open_engine(argv, threads, &s[1].e, &err);
    if (st == LG_OK)
        (void)printf("%-6s %-5s %6s %9s %8s %8s %8s %8s %8s %9s\n", "text", "way", "tokens", "plain us",
                     "speed-up", "min", "max", "rounds", "drafts", "accepted");
    for (int i = 0; st == LG_OK && i < TEXTS; i++)
        if (argc <= 6 || strcmp(argv[6], i < PROSE ? "prose" : "code") == 0)
            st = measure_text(s, i, reps, &err);
    if (st != LG_OK)
        (void)fprintf(stderr, "bench_policy: %s%s%s\n", err.subject, err.subject[0] ? ": " : "", err.msg);
    lg_engine_close(s[0].e);
    lg_engine_close(s[1].e);
    return st == LG_OK ? 0 : 1;
}
