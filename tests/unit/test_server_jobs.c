/*
 * unit/test_server_jobs: the queue in front of the engine without an engine: order, capacity, cancellation,
 * stop, time limits; and the event queue of a job: nothing lost, nothing changed, whoever is faster.
 */
#include "check.h"
#include "clock.h"
#include "fault.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/dialect.h"
#include "server/jobs.h"

static const lg_dialect openai = {.name = "chat"},
                        anthropic = {.name = "messages", .shape = LG_SHAPE_ANTHROPIC};

static lg_jobs *queue(int capacity, bool fifo)
{
    lg_jobs_params p = {.capacity = capacity, .fifo = fifo};
    lg_jobs *q = NULL;

    assert_int_equal(lg_jobs_create(&p, &q, NULL), LG_OK);
    return q;
}

static lg_job *job_of(size_t tokens)
{
    lg_job *job = NULL;

    assert_int_equal(lg_job_create(1 << 16, &job, NULL), LG_OK);
    job->dialect = &openai;
    job->max_tokens = 10;
    for (size_t i = 0; i < tokens; i++)
        assert_int_equal(lg_ids_add(&job->prompt, 70, NULL), LG_OK);
    return job;
}

static lg_job *submitted(lg_jobs *q, size_t tokens)
{
    lg_job *job = job_of(tokens);
    lg_job_admission a;
    lg_api_error e;

    assert_int_equal(lg_jobs_reserve(q, &e), LG_OK);
    assert_int_equal(lg_jobs_submit(q, job, &a, &e), LG_OK);
    assert_int_equal(a.prompt_tokens, tokens);
    return job;
}

static lg_job *next(lg_jobs *q)
{
    bool stop;

    return lg_jobs_next(q, 0, NULL, NULL, &stop);
}

// The engine's part and the connection's part of a job end.
static void finish(lg_jobs *q, lg_job *job)
{
    lg_jobs_done(q, job);
    lg_job_release(job);
}

// --- the queue ---

static void picks(void **state)
{
    enum { S = 1000000 };
    const lg_pick shortest[] = {{0, 3 * S, 500}, {0, 2 * S, 20}, {0, S, 100}};
    const lg_pick aged[] = {{0, 20 * S, 50000}, {0, 19 * S, 20}, {0, S, 1}};
    const lg_pick young[] = {{0, 20 * S - 1, 50000}, {0, 19 * S, 20}, {0, S, 21}};
    const lg_pick urgent[] = {{0, 60 * S, 1}, {-1, 90 * S, 1}, {1, 0, 90000}, {1, 0, 80000}};
    const lg_pick equal[] = {{0, 2, 7}, {0, 1, 7}};

    (void)state;
    assert_int_equal(lg_jobs_pick(shortest, 3, false), 1);
    assert_int_equal(lg_jobs_pick(shortest, 3, true), 0);
    assert_int_equal(lg_jobs_pick(aged, 3, false), 0);
    assert_int_equal(lg_jobs_pick(young, 3, false), 1);
    assert_int_equal(lg_jobs_pick(urgent, 4, false), 3);
    assert_int_equal(lg_jobs_pick(urgent, 4, true), 2);
    assert_int_equal(lg_jobs_pick(urgent, 2, false), 0);
    assert_int_equal(lg_jobs_pick(equal, 2, false), 0);
}

static void ceilings(void **state)
{
    (void)state;
    assert_int_equal(lg_jobs_ceiling_us(0, 0, 100, 10, 0), 60000000);
    assert_int_equal(lg_jobs_ceiling_us(1000, 0, 400, 10, 0), 70000000);
    assert_int_equal(lg_jobs_ceiling_us(0, 100, 400, 40, 0), 70000000);
    assert_int_equal(lg_jobs_ceiling_us(1000, 100, 400, 40, 5e6), 80000000); // as the rates say
    assert_int_equal(lg_jobs_ceiling_us(1000, 100, 400, 40, 6e6), 84000000); // a deep context takes longer
    assert_true(lg_jobs_ceiling_us(INT64_MAX, INT64_MAX, 0.001, 0.001, 0) > 60000000);
}

static int64_t half_cached(void *ctx, const lg_job *job, double *work_us)
{
    *work_us = ctx ? *(double *)ctx : 0;
    return (int64_t)job->prompt.n > 50 ? (int64_t)job->prompt.n - 1 : 0;
}

static void order(void **state)
{
    lg_jobs *q = queue(16, false);
    lg_job *a = NULL, *b = NULL, *c = NULL;
    lg_job_row rows[4];
    lg_api_error e;
    bool stop;

    (void)state;
    lg_jobs_ready(q);
    a = submitted(q, 40);
    b = submitted(q, 10);
    c = submitted(q, 100);
    assert_int_equal(lg_jobs_list(q, rows, 4), 3);
    assert_int_equal(rows[0].prompt, 10);
    assert_int_equal(rows[1].prompt, 40);
    assert_int_equal(rows[2].prompt, 100);
    assert_false(rows[0].running);
    // what is cached does not count
    assert_ptr_equal(lg_jobs_next(q, 0, half_cached, NULL, &stop), c);
    assert_int_equal(lg_jobs_list(q, rows, 4), 3);
    assert_true(rows[0].running);
    assert_int_equal(rows[0].uncached, 1);
    finish(q, c);
    assert_ptr_equal(next(q), b);
    finish(q, b);
    assert_ptr_equal(next(q), a);
    finish(q, a);
    assert_null(next(q));
    assert_int_equal(lg_jobs_reserve(q, &e), LG_OK);
    assert_false(lg_jobs_empty(q));
    lg_jobs_unreserve(q);
    assert_true(lg_jobs_empty(q));
    lg_jobs_destroy(q);
}

// A large request that has waited for long goes before all that came later, and not a moment earlier.
static void aged(void **state)
{
    (void)state;
    if (!LG_HAVE_CLOCK)
        skip();
    for (uint64_t short_of = 0; short_of < 2; short_of++) {
        lg_jobs *q = queue(8, false);
        lg_job *large, *small;
        lg_job_row rows[2];

        lg_jobs_ready(q);
        clock_step(0);
        large = submitted(q, 90);
        clock_add(LG_AGE_GUARD_US - short_of);
        small = submitted(q, 10);
        assert_int_equal(lg_jobs_list(q, rows, 2), 2);
        assert_int_equal(rows[0].prompt, short_of ? 10 : 90);
        assert_int_equal(rows[short_of].waited_us, LG_AGE_GUARD_US - short_of);
        assert_int_equal(rows[1 - short_of].waited_us, 0);
        assert_ptr_equal(next(q), short_of ? small : large);
        finish(q, short_of ? small : large);
        assert_ptr_equal(next(q), short_of ? large : small);
        finish(q, short_of ? large : small);
        lg_jobs_destroy(q);
        clock_step(1);
    }
}

static void capacity(void **state)
{
    lg_jobs *q = queue(2, true);
    lg_job *a = NULL, *b = NULL, *c = NULL;
    lg_api_error e;

    (void)state;
    assert_int_equal(lg_jobs_reserve(q, &e), LG_E_INPUT);
    assert_int_equal(lg_api_status(&e), 503);
    lg_jobs_ready(q);
    a = submitted(q, 1);
    assert_ptr_equal(next(q), a);
    b = submitted(q, 1);
    assert_int_equal(lg_jobs_reserve(q, &e), LG_OK); // being prepared counts
    assert_int_equal(lg_jobs_reserve(q, &e), LG_E_INPUT);
    assert_int_equal(lg_api_status(&e), 429);
    lg_jobs_unreserve(q);
    c = submitted(q, 1);
    assert_int_equal(lg_jobs_reserve(q, &e), LG_E_INPUT);
    finish(q, a);
    assert_int_equal(lg_jobs_reserve(q, &e), LG_OK);
    lg_jobs_unreserve(q);
    assert_ptr_equal(next(q), b);
    finish(q, b);
    assert_ptr_equal(next(q), c);
    finish(q, c);
    lg_jobs_destroy(q);
}

static void cancelled(void **state)
{
    lg_jobs *q = queue(8, true);
    lg_job *a = NULL, *b = NULL;

    (void)state;
    lg_jobs_ready(q);
    a = submitted(q, 1);
    b = submitted(q, 2);
    lg_jobs_cancel(q, b); // waits: gone at once
    lg_job_release(b);
    assert_ptr_equal(next(q), a);
    lg_jobs_cancel(q, a); // runs: told
    assert_true(atomic_load(&a->cancel));
    assert_int_equal(lg_job_cancelled_why(a), LG_WHY_CLIENT);
    lg_job_release(a);  // the connection leaves first
    lg_jobs_done(q, a); // the engine frees it
    assert_true(lg_jobs_empty(q));
    lg_jobs_destroy(q);
}

static void stopped(void **state)
{
    lg_jobs *q = queue(8, true);
    lg_job *a = NULL, *b = NULL;
    lg_job_event ev;
    lg_api_error e;
    bool stop;

    (void)state;
    lg_jobs_ready(q);
    lg_jobs_fail(q); // the device is lost
    assert_int_equal(lg_jobs_reserve(q, &e), LG_E_INPUT);
    assert_int_equal(lg_api_status(&e), 503);
    assert_string_equal(lg_api_word(&e), "model_unavailable");
    (void)lg_api_from_err(&e, &(lg_err){.code = LG_E_DEVICE, .msg = "the card is gone"});
    assert_int_equal(lg_api_status(&e), 503);
    (void)lg_api_from_err(&e, &(lg_err){.code = LG_E_NOMEM, .msg = "no memory"});
    assert_int_equal(lg_api_status(&e), 500);
    lg_jobs_ready(q);
    a = submitted(q, 1);
    assert_ptr_equal(next(q), a);
    b = submitted(q, 1);
    lg_jobs_stop(q, 60000000);
    assert_true(lg_job_take(b, &ev));
    assert_int_equal(ev.kind, LG_JOB_ERROR);
    assert_int_equal(ev.error->kind, LG_API_STOPPING);
    lg_job_release(b);
    assert_int_equal(lg_jobs_reserve(q, &e), LG_E_INPUT);
    assert_int_equal(e.kind, LG_API_STOPPING);
    lg_jobs_tick(q, 0);
    assert_false(atomic_load(&a->cancel));
    lg_jobs_stop(q, 0);
    assert_true(atomic_load(&a->cancel));
    assert_int_equal(lg_job_cancelled_why(a), LG_WHY_STOP);
    finish(q, a);
    lg_jobs_ready(q); // a stop is final
    assert_int_equal(lg_jobs_get_state(q), LG_JOBS_STOPPING);
    assert_null(lg_jobs_next(q, -1, NULL, NULL, &stop));
    assert_true(stop);
    lg_jobs_destroy(q);
}

static void grace(void **state)
{
    lg_jobs *q = queue(8, true);
    lg_job *a = NULL;

    (void)state;
    if (!LG_HAVE_CLOCK)
        skip();
    lg_jobs_ready(q);
    a = submitted(q, 1);
    assert_ptr_equal(next(q), a);
    clock_step(0);
    lg_jobs_stop(q, 5000);
    clock_add(4999);
    lg_jobs_tick(q, 0);
    assert_false(atomic_load(&a->cancel));
    clock_add(1);
    lg_jobs_tick(q, 0);
    assert_true(atomic_load(&a->cancel));
    assert_int_equal(lg_job_cancelled_why(a), LG_WHY_STOP);
    finish(q, a);
    lg_jobs_destroy(q);
    clock_step(1);
}

// A job that runs for longer than anything explains is given up: the ceiling, from when it began.
static void overdue(void **state)
{
    (void)state;
    if (!LG_HAVE_CLOCK)
        skip();
    for (double work_us = 0; work_us < 100e6; work_us += 80e6) { // nothing measured at this depth; a slow one
        lg_jobs *q = queue(8, true);
        lg_job *a = NULL;
        bool stop;

        lg_jobs_ready(q);
        lg_jobs_measured(q, 400, 40);
        a = submitted(q, 40); // and 10 tokens of a reply
        clock_step(0);
        clock_add(3600 * 1000000ull); // in the queue
        assert_ptr_equal(lg_jobs_next(q, 0, half_cached, &work_us, &stop), a);
        clock_add(lg_jobs_ceiling_us(40, 10, 400, 40, work_us) - 1);
        lg_jobs_tick(q, 0);
        assert_false(atomic_load(&a->cancel));
        clock_add(1);
        lg_jobs_tick(q, 0);
        assert_true(atomic_load(&a->cancel));
        assert_int_equal(lg_job_cancelled_why(a), LG_WHY_TIME);
        finish(q, a);
        lg_jobs_destroy(q);
        clock_step(1);
    }
}

// A pause of the whole process is not time that the job used up.
static void pauses(void **state)
{
    lg_jobs *q = queue(8, true);
    lg_job *a = NULL;

    (void)state;
    if (!LG_HAVE_CLOCK)
        skip();
    lg_jobs_ready(q);
    lg_jobs_tick(q, 1000000); // nothing runs
    a = submitted(q, 1);
    assert_ptr_equal(next(q), a);
    clock_step(0);
    lg_jobs_stop(q, 5000);
    clock_add(600 * 1000000ull + 4999);
    lg_jobs_tick(q, 600 * 1000000ull);
    assert_false(atomic_load(&a->cancel));
    lg_jobs_tick(q, 0);
    assert_false(atomic_load(&a->cancel));
    clock_add(1);
    lg_jobs_tick(q, 0);
    assert_true(atomic_load(&a->cancel));
    finish(q, a);
    lg_jobs_destroy(q);
    clock_step(1);
}

static void seeds(void **state)
{
    lg_jobs *q = queue(8, true);
    lg_job *a = job_of(1), *b = job_of(1);
    lg_job_admission ad;
    lg_api_error e;

    (void)state;
    lg_jobs_ready(q);
    a->random_seed = b->random_seed = true;
    assert_int_equal(lg_jobs_reserve(q, &e), LG_OK);
    assert_int_equal(lg_jobs_submit(q, a, &ad, &e), LG_OK);
    assert_int_equal(ad.queue_position, 0);
    assert_int_equal(lg_jobs_reserve(q, &e), LG_OK);
    assert_int_equal(lg_jobs_submit(q, b, &ad, &e), LG_OK);
    assert_int_equal(ad.queue_position, 1);
    assert_true(a->sampling.seed != b->sampling.seed);
    assert_true(a->sampling.seed < (uint64_t)1 << 63);
    assert_string_not_equal(lg_job_tag(a), lg_job_tag(b));
    lg_jobs_cancel(q, a);
    lg_jobs_cancel(q, b);
    lg_job_release(a);
    lg_job_release(b);
    lg_jobs_destroy(q);
}

// --- events ---

static bool readable(const lg_job *job)
{
    struct pollfd p = {.fd = lg_job_fd(job), .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void reply(lg_job *job, lg_event_kind kind, int call, const char *text)
{
    lg_job_put_reply(job, 0, &(lg_event){.kind = kind, .call = call, .text = lg_str_of(text)});
}

static void events(void **state)
{
    lg_job *job = job_of(1);
    lg_gen_stats stats = {.output_tokens = 7};
    lg_job_event ev,
        token = {.token = 300, .logprob = -1.5f, .n_top = 2, .top = {{300, -1.5f}, {301, -2.5f}}};

    (void)state;
    assert_false(lg_job_take(job, &ev));
    assert_false(readable(job));
    lg_job_put_progress(job, 0, 1, 9);
    assert_true(readable(job));
    lg_job_put_progress(job, 0, 3, 9);
    lg_job_put_progress(job, 0, 5, 9); // beside the first, which tells what was cached, the newest is enough
    reply(job, LG_EV_CONTENT, 0, "hello");
    assert_true(lg_job_take(job, &ev));
    assert_false(readable(job));
    assert_int_equal(ev.kind, LG_JOB_PROGRESS);
    assert_int_equal(ev.done, 1);
    assert_true(lg_job_take(job, &ev));
    assert_int_equal(ev.kind, LG_JOB_PROGRESS);
    assert_int_equal(ev.done, 5);
    assert_int_equal(ev.total, 9);
    lg_job_put_progress(job, 0, 9, 9); // follows what was taken already
    lg_job_put_token(job, 0, &token);
    reply(job, LG_EV_CONTENT, 0, "");
    lg_job_put_choice(job, 2, &stats, 3);
    lg_job_put_end(job);
    assert_true(lg_job_take(job, &ev));
    assert_int_equal(ev.kind, LG_JOB_REPLY);
    assert_str(ev.reply.text, "hello");
    assert_true(lg_job_take(job, &ev));
    assert_int_equal(ev.done, 9);
    assert_true(lg_job_take(job, &ev));
    assert_int_equal(ev.kind, LG_JOB_TOKEN);
    assert_int_equal(ev.token, 300);
    assert_int_equal(ev.n_top, 2);
    assert_int_equal(ev.top[1].id, 301);
    assert_true(lg_job_take(job, &ev));
    assert_int_equal(ev.reply.text.n, 0);
    assert_true(lg_job_take(job, &ev));
    assert_int_equal(ev.choice, 2);
    assert_int_equal(ev.stop, 3);
    assert_int_equal(ev.stats->output_tokens, 7);
    assert_true(lg_job_take(job, &ev));
    assert_int_equal(ev.kind, LG_JOB_END);
    assert_false(lg_job_take(job, &ev));
    assert_true(lg_job_sound(job));
    lg_job_release(job);
}

// Memory that runs out in the middle loses events; the end it does not lose.
static void an_end_without_memory(void **state)
{
    lg_job *job = job_of(1);
    lg_job_event ev = {0};
    lg_api_error e;
    char *text;

    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    text = calloc(1, 1 << 20);
    assert_non_null(text);
    reply(job, LG_EV_CONTENT, 0, "first");
    fault_arm(FAULT_ALLOC, 1);
    lg_job_put_reply(job, 0, &(lg_event){.kind = LG_EV_CONTENT, .text = {text, 1 << 20}});
    assert_int_equal(fault_disarm(), 1);
    assert_false(lg_job_sound(job));
    (void)lg_api_fail(&e, LG_API_INTERNAL, NULL, "out of memory");
    lg_job_put_error(job, &e);
    assert_true(readable(job));
    assert_true(lg_job_take(job, &ev));
    assert_str(ev.reply.text, "first");
    assert_true(lg_job_take(job, &ev));
    assert_int_equal(ev.kind, LG_JOB_ERROR);
    assert_int_equal(ev.error->kind, LG_API_INTERNAL);
    assert_false(lg_job_take(job, &ev));
    free(text);
    lg_job_release(job);
}

// Whoever collects is woken by the end, and once much has gathered; whoever naps, by the end alone.
static void seldom_woken(void **state)
{
    lg_job *job = job_of(1), *napper = job_of(1);
    lg_job_event ev = {0};
    int n = 0;

    (void)state;
    lg_job_collect(job);
    assert_false(lg_job_take(job, &ev));
    for (int i = 0; i < 100; i++)
        reply(job, LG_EV_CONTENT, 0, "text");
    assert_false(readable(job));
    while (!readable(job)) {
        reply(job, LG_EV_CONTENT, 0, "text");
        assert_true(++n < 10000);
    }
    for (n += 100; n > 0; n--)
        assert_true(lg_job_take(job, &ev));
    assert_false(lg_job_take(job, &ev));
    assert_false(readable(job));
    lg_job_put_end(job);
    assert_true(readable(job));
    lg_job_release(job);

    assert_int_equal(lg_job_first_us(napper), 0);
    assert_false(lg_job_take_more(napper, &ev));
    reply(napper, LG_EV_CONTENT, 0, "text");
    assert_true(lg_job_first_us(napper) > 0);
    assert_false(readable(napper));
    lg_job_put_error(napper, &(lg_api_error){.kind = LG_API_INTERNAL});
    assert_true(readable(napper));
    assert_true(lg_job_take_more(napper, &ev));
    assert_int_equal(ev.kind, LG_JOB_REPLY);
    assert_true(lg_job_take_more(napper, &ev));
    assert_int_equal(ev.kind, LG_JOB_ERROR);
    assert_false(readable(napper));
    lg_job_release(napper);
}

static void call_ids(void **state)
{
    lg_job *a = job_of(1), *b = job_of(1);
    char first[40];

    (void)state;
    b->dialect = &anthropic;
    reply(a, LG_EV_TOOL_START, 0, "f");
    reply(a, LG_EV_TOOL_START, 1, "f");
    reply(b, LG_EV_TOOL_START, 0, "f");
    (void)snprintf(first, sizeof first, "%s", lg_job_call_id(a, 0, 0));
    assert_int_equal(strncmp(first, "call_", 5), 0);
    assert_int_equal(strlen(first), 25);
    assert_string_equal(lg_job_call_id(a, 0, 0), first);
    assert_string_not_equal(lg_job_call_id(a, 0, 1), first);
    assert_int_equal(strncmp(lg_job_call_id(b, 0, 0), "toolu_", 6), 0);
    assert_string_equal(lg_job_call_id(a, 0, 2), "");
    lg_job_release(a);
    lg_job_release(b);
}

enum { MANY = 20000 };

static void *write_many(void *arg)
{
    lg_job *job = arg;
    char text[64];

    for (int i = 0; i < MANY; i++) {
        (void)snprintf(text, sizeof text, "%.*s%d", i % 40, "........................................", i);
        reply(job, LG_EV_CONTENT, i, text);
    }
    lg_job_put_end(job);
    lg_job_release(job);
    return NULL;
}

// Until there is something to take: whoever is not woken waits until the runner's time limit.
static void sleep_on(const lg_job *job)
{
    struct pollfd p = {.fd = lg_job_fd(job), .events = POLLIN};

    assert_int_equal(poll(&p, 1, -1), 1);
}

// One thread writes, one reads, sleeping on the descriptor whenever it finds nothing.
static void two_threads(void **state)
{
    lg_job *job = job_of(1);
    lg_job_event ev = {0};
    pthread_t writer;
    char want[64];
    int n = 0;

    (void)state;
    lg_job_hold(job);
    assert_int_equal(pthread_create(&writer, NULL, write_many, job), 0);
    while (ev.kind != LG_JOB_END) {
        if (!lg_job_take(job, &ev)) {
            sleep_on(job);
            continue;
        }
        if (ev.kind == LG_JOB_END)
            break;
        (void)snprintf(want, sizeof want, "%.*s%d", n % 40, "........................................", n);
        assert_int_equal(ev.reply.call, n);
        assert_int_equal(ev.reply.text.n, strlen(want));
        assert_memory_equal(ev.reply.text.p, want, ev.reply.text.n);
        n++;
    }
    assert_int_equal(n, MANY);
    assert_int_equal(pthread_join(writer, NULL), 0);
    lg_job_release(job);
}

typedef struct crowd {
    lg_jobs *q;
    atomic_int served;
} crowd;

static void *one_client(void *arg)
{
    crowd *c = arg;

    for (int i = 0; i < 200; i++) {
        lg_job *job;
        lg_job_admission a;
        lg_job_event ev = {0};
        lg_api_error e;

        if (lg_jobs_reserve(c->q, &e) != LG_OK)
            continue;
        job = job_of((size_t)(i % 7) + 1);
        assert_int_equal(lg_jobs_submit(c->q, job, &a, &e), LG_OK);
        if (i % 3 == 0) { // leaves without waiting
            lg_jobs_cancel(c->q, job);
            lg_job_release(job);
            continue;
        }
        while (ev.kind != LG_JOB_END)
            if (!lg_job_take(job, &ev))
                sleep_on(job);
        atomic_fetch_add(&c->served, 1);
        lg_job_release(job);
    }
    return NULL;
}

static void *engine_thread(void *arg)
{
    crowd *c = arg;
    bool stop = false;

    while (!stop) {
        lg_job *job = lg_jobs_next(c->q, -1, half_cached, NULL, &stop);

        if (!job)
            continue;
        reply(job, LG_EV_CONTENT, 0, "text");
        lg_job_put_end(job);
        lg_jobs_done(c->q, job);
    }
    return NULL;
}

static void a_crowd(void **state)
{
    enum { CLIENTS = 8 };
    crowd c = {.q = queue(3, false)};
    pthread_t engine, client[CLIENTS];

    (void)state;
    lg_jobs_ready(c.q);
    assert_int_equal(pthread_create(&engine, NULL, engine_thread, &c), 0);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&client[i], NULL, one_client, &c), 0);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_join(client[i], NULL), 0);
    lg_jobs_stop(c.q, 0);
    assert_int_equal(pthread_join(engine, NULL), 0);
    assert_true(lg_jobs_empty(c.q));
    assert_true(atomic_load(&c.served) > 0);
    lg_jobs_destroy(c.q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks),     cmocka_unit_test(ceilings), cmocka_unit_test(order),
        cmocka_unit_test(aged),      cmocka_unit_test(overdue),
        cmocka_unit_test(capacity),  cmocka_unit_test(cancelled), cmocka_unit_test(stopped),
        cmocka_unit_test(grace),     cmocka_unit_test(seeds),    cmocka_unit_test(events),
        cmocka_unit_test(seldom_woken), cmocka_unit_test(an_end_without_memory), cmocka_unit_test(pauses),
        cmocka_unit_test(call_ids),  cmocka_unit_test(two_threads), cmocka_unit_test(a_crowd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
