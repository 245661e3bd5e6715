/*
 * server/jobs: see jobs.h. The queue; the event queue of a job is in events.c.
 */
#include "server/jobs.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "server/dialect.h"
#include "server/job_int.h"

/* Rates that ceilings assume before anything was measured: a large model on a slow machine. */
static const double FIRST_PREFILL = 40, FIRST_DECODE = 2;

struct lg_jobs {
    pthread_mutex_t lock;
    pthread_cond_t change; // for the engine thread
    lg_job *first, *last;  // that wait, in order of arrival
    int n_waiting, n_reserved, capacity;
    lg_job *running;
    bool fifo;
    lg_jobs_state state;
    double prefill, decode; // measured; 0: not yet
    unsigned next_tag;
    atomic_bool idle_cancel;
};

lg_status lg_jobs_create(const lg_jobs_params *p, lg_jobs **out, lg_err *err)
{
    lg_jobs *q = calloc(1, sizeof *q);

    if (!q)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    if (pthread_mutex_init(&q->lock, NULL) != 0 || lg_cond_init(&q->change) != 0) {
        free(q);
        return LG_FAIL(err, LG_E_NOMEM, "no more locks");
    }
    q->capacity = p->capacity;
    q->fifo = p->fifo;
    q->next_tag = (unsigned)(lg_now_us() & 0xFFF) + 0x1000;
    *out = q;
    return LG_OK;
}

void lg_jobs_destroy(lg_jobs *q)
{
    if (!q)
        return;
    LG_ASSERT(!q->first && !q->running);
    (void)pthread_cond_destroy(&q->change);
    (void)pthread_mutex_destroy(&q->lock);
    free(q);
}

static void lock(lg_jobs *q)
{
    (void)pthread_mutex_lock(&q->lock);
}

static void unlock(lg_jobs *q)
{
    (void)pthread_mutex_unlock(&q->lock);
}

// --- places ---

static lg_status refused(const lg_jobs *q, lg_api_error *e)
{
    switch (q->state) {
    case LG_JOBS_LOADING: return lg_api_fail(e, LG_API_LOADING, NULL, "Loading model");
    case LG_JOBS_STOPPING: return lg_api_fail(e, LG_API_STOPPING, NULL, "the server is shutting down");
    case LG_JOBS_FAILED:
        return lg_api_fail(e, LG_API_UNAVAILABLE, NULL, "the model is not available; see the log");
    case LG_JOBS_READY: break;
    }
    return LG_OK;
}

lg_status lg_jobs_reserve(lg_jobs *q, lg_api_error *e)
{
    lg_status st;

    lock(q);
    st = refused(q, e);
    if (st == LG_OK && q->n_reserved + q->n_waiting + (q->running ? 1 : 0) > q->capacity)
        st = lg_api_fail(e, LG_API_QUEUE_FULL, NULL,
                         "the queue is full: %d requests wait; try again in a moment",
                         q->n_waiting + q->n_reserved);
    if (st == LG_OK)
        q->n_reserved++;
    unlock(q);
    return st;
}

void lg_jobs_unreserve(lg_jobs *q)
{
    lock(q);
    LG_ASSERT(q->n_reserved > 0);
    q->n_reserved--;
    unlock(q);
}

static void unlink_job(lg_jobs *q, lg_job *job)
{
    lg_job *before = NULL;

    for (lg_job *j = q->first; j != job; j = j->priv->next)
        before = j;
    if (before)
        before->priv->next = job->priv->next;
    else
        q->first = job->priv->next;
    if (q->last == job)
        q->last = before;
    job->priv->next = NULL;
    q->n_waiting--;
}

static void draw_seed(lg_job *job)
{
    uint64_t seed;

    if (!job->random_seed)
        return;
    if (getentropy(&seed, sizeof seed) != 0)
        seed = lg_now_ns();
    job->sampling.seed = seed >> 1; // a number that a client can send back
}

// Marks are a help for the cache; without memory there are none.
static void copy_marks(lg_job *job)
{
    job->priv->mark = job->n_mark > 0 ? calloc(job->n_mark, sizeof *job->priv->mark) : NULL;
    if (job->priv->mark)
        lg_prompt_marks(job->mark, job->n_mark, job->priv->mark);
}

lg_cache_ask lg_job_ask(const lg_job *job)
{
    return (lg_cache_ask){.ids = job->prompt.p,
                          .n = job->prompt.n,
                          .mark = job->priv->mark,
                          .n_mark = job->priv->mark ? job->n_mark : 0,
                          .mode = job->cache,
                          .scope = job->scope};
}

lg_status lg_jobs_submit(lg_jobs *q, lg_job *job, lg_job_admission *a, lg_api_error *e)
{
    struct lg_job_private *v = job->priv;
    lg_status st;

    draw_seed(job);
    copy_marks(job);
    v->uncached = (int64_t)job->prompt.n;
    v->submit_us = lg_now_us();
    *a = (lg_job_admission){.prompt_tokens = (int64_t)job->prompt.n};
    lock(q);
    q->n_reserved--;
    st = refused(q, e);
    if (st == LG_OK) {
        (void)snprintf(v->tag, sizeof v->tag, "r-%x", q->next_tag++);
        a->queue_position = q->n_waiting + (q->running ? 1 : 0);
        atomic_fetch_add(&v->refs, 1);
        v->state = LG_JOB_WAITS;
        if (q->last)
            q->last->priv->next = job;
        else
            q->first = job;
        q->last = job;
        q->n_waiting++;
        atomic_store(&q->idle_cancel, true);
        (void)pthread_cond_signal(&q->change);
    }
    unlock(q);
    return st;
}

void lg_jobs_cancel(lg_jobs *q, lg_job *job)
{
    bool waited = false;

    atomic_store(&job->cancel, true);
    lock(q);
    if (job->priv->state == LG_JOB_WAITS) {
        unlink_job(q, job);
        job->priv->state = LG_JOB_ENDED;
        waited = true;
    }
    unlock(q);
    if (waited)
        lg_job_release(job); // the engine's hold
}

// --- the engine thread ---

size_t lg_jobs_pick(const lg_pick *p, size_t n, bool fifo)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++) {
        const lg_pick *a = &p[i], *b = &p[best];
        bool aged = b->waited_us >= LG_AGE_GUARD_US; // and a came later, so it may have to stand back

        if (a->priority != b->priority) {
            if (a->priority > b->priority)
                best = i;
        } else if (!fifo && !aged && a->uncached < b->uncached) {
            best = i;
        }
    }
    return best;
}

static lg_pick pick_row(const lg_job *j, uint64_t now)
{
    return (lg_pick){.priority = j->priority,
                     .waited_us = now - j->priv->submit_us,
                     .uncached = j->priv->uncached};
}

static int64_t all_tokens(const lg_job *j)
{
    int64_t n = (int64_t)j->prompt.n;

    for (size_t i = 0; i < j->n_more; i++)
        n += (int64_t)j->more[i].n;
    return n;
}

// The next of those that wait. Few of them: the whole order is looked at each time.
static lg_job *pick(lg_jobs *q)
{
    uint64_t now = lg_now_us();
    lg_job *best = q->first;
    lg_pick two[2];

    for (lg_job *j = q->first ? q->first->priv->next : NULL; j; j = j->priv->next) {
        two[0] = pick_row(best, now);
        two[1] = pick_row(j, now);
        if (lg_jobs_pick(two, 2, q->fifo) == 1)
            best = j;
    }
    return best;
}

uint64_t lg_jobs_ceiling_us(int64_t uncached, int64_t max_tokens, double prefill, double decode,
                            double work_us)
{
    double s = 60 + 4 * fmax((double)uncached / prefill + (double)max_tokens / decode, work_us / 1e6);

    return s > 1e9 ? (uint64_t)1e15 : (uint64_t)(s * 1e6);
}

static void wait_for_change(lg_jobs *q, int ms)
{
    if (ms < 0)
        (void)pthread_cond_wait(&q->change, &q->lock);
    else
        lg_cond_wait_ms(&q->change, &q->lock, ms);
}

static void begin(lg_jobs *q, lg_job *job)
{
    struct lg_job_private *v = job->priv;
    double prefill = q->prefill > 0 ? q->prefill : FIRST_PREFILL,
           decode = q->decode > 0 ? q->decode : FIRST_DECODE;

    unlink_job(q, job);
    q->running = job;
    v->state = LG_JOB_RUNS;
    v->start_us = lg_now_us();
    v->deadline_us = v->start_us + lg_jobs_ceiling_us(v->uncached, job->max_tokens * job->n_choice, prefill,
                                                      decode, v->work_us);
}

lg_job *lg_jobs_next(lg_jobs *q, int idle_ms, lg_jobs_cached_fn cached, void *ctx, bool *stop)
{
    uint64_t until = lg_now_us() + (uint64_t)(idle_ms < 0 ? 0 : idle_ms) * 1000;
    lg_job *job;

    lock(q);
    while (!q->first && q->state != LG_JOBS_STOPPING) {
        uint64_t now = lg_now_us();

        if (idle_ms >= 0 && now >= until)
            break;
        wait_for_change(q, idle_ms < 0 ? -1 : (int)((until - now) / 1000) + 1);
    }
    for (lg_job *j = q->first; j && cached; j = j->priv->next)
        j->priv->uncached = all_tokens(j) - cached(ctx, j, &j->priv->work_us);
    job = pick(q);
    if (job)
        begin(q, job);
    atomic_store(&q->idle_cancel, q->first != NULL || q->state == LG_JOBS_STOPPING);
    *stop = !job && q->state == LG_JOBS_STOPPING;
    unlock(q);
    return job;
}

bool lg_jobs_waiting(lg_jobs *q)
{
    bool some;

    lock(q);
    some = q->first != NULL;
    unlock(q);
    return some;
}

atomic_bool *lg_jobs_idle_cancel(lg_jobs *q)
{
    return &q->idle_cancel;
}

void lg_jobs_done(lg_jobs *q, lg_job *job)
{
    lock(q);
    LG_ASSERT(q->running == job);
    q->running = NULL;
    job->priv->state = LG_JOB_ENDED;
    unlock(q);
    lg_job_release(job);
}

// --- state ---

static void set_state(lg_jobs *q, lg_jobs_state state)
{
    lock(q);
    if (q->state != LG_JOBS_STOPPING)
        q->state = state;
    (void)pthread_cond_broadcast(&q->change);
    unlock(q);
}

void lg_jobs_ready(lg_jobs *q)
{
    set_state(q, LG_JOBS_READY);
}

void lg_jobs_fail(lg_jobs *q)
{
    set_state(q, LG_JOBS_FAILED);
}

lg_jobs_state lg_jobs_get_state(lg_jobs *q)
{
    lg_jobs_state s;

    lock(q);
    s = q->state;
    unlock(q);
    return s;
}

void lg_jobs_stop(lg_jobs *q, uint64_t grace_us)
{
    lg_api_error e;
    lg_job *out;

    (void)lg_api_fail(&e, LG_API_STOPPING, NULL, "the server is shutting down");
    lock(q);
    q->state = LG_JOBS_STOPPING;
    out = q->first;
    q->first = q->last = NULL;
    q->n_waiting = 0;
    for (lg_job *j = out; j; j = j->priv->next)
        j->priv->state = LG_JOB_ENDED;
    if (q->running) {
        struct lg_job_private *v = q->running->priv;
        uint64_t end = lg_now_us() + grace_us;

        if (end < v->deadline_us) {
            v->deadline_us = end;
            v->deadline_stops = true;
        }
        if (grace_us == 0) {
            atomic_store(&v->why, LG_WHY_STOP);
            atomic_store(&q->running->cancel, true);
        }
    }
    atomic_store(&q->idle_cancel, true);
    (void)pthread_cond_broadcast(&q->change);
    unlock(q);
    while (out) {
        lg_job *next = out->priv->next;

        lg_job_put_error(out, &e);
        lg_job_release(out);
        out = next;
    }
}

bool lg_jobs_empty(lg_jobs *q)
{
    bool empty;

    lock(q);
    empty = !q->first && !q->running && q->n_reserved == 0;
    unlock(q);
    return empty;
}

void lg_jobs_tick(lg_jobs *q, uint64_t paused_us)
{
    lock(q);
    if (q->running)
        q->running->priv->deadline_us += paused_us;
    if (q->running && lg_now_us() >= q->running->priv->deadline_us && !atomic_load(&q->running->cancel)) {
        atomic_store(&q->running->priv->why, q->running->priv->deadline_stops ? LG_WHY_STOP : LG_WHY_TIME);
        atomic_store(&q->running->cancel, true);
    }
    unlock(q);
}

void lg_jobs_measured(lg_jobs *q, double prefill, double decode)
{
    lock(q);
    if (prefill > 0)
        q->prefill = q->prefill > 0 ? 0.7 * q->prefill + 0.3 * prefill : prefill;
    if (decode > 0)
        q->decode = q->decode > 0 ? 0.7 * q->decode + 0.3 * decode : decode;
    unlock(q);
}

void lg_jobs_rates(lg_jobs *q, double *prefill, double *decode)
{
    lock(q);
    *prefill = q->prefill;
    *decode = q->decode;
    unlock(q);
}

static void fill_row(const lg_job *j, uint64_t now, lg_job_row *r)
{
    const struct lg_job_private *v = j->priv;

    *r = (lg_job_row){.prompt = (int64_t)j->prompt.n,
                      .uncached = v->uncached,
                      .waited_us = (v->state == LG_JOB_RUNS ? v->start_us : now) - v->submit_us,
                      .priority = j->priority,
                      .running = v->state == LG_JOB_RUNS,
                      .stream = j->stream};
    (void)snprintf(r->id, sizeof r->id, "%s", v->tag);
    (void)snprintf(r->dialect, sizeof r->dialect, "%s", j->dialect->name);
    (void)snprintf(r->client, sizeof r->client, "%.*s", (int)(j->client.n < 31 ? j->client.n : 31),
                   j->client.n ? j->client.p : "");
}

size_t lg_jobs_list(lg_jobs *q, lg_job_row *out, size_t max)
{
    enum { MOST = 256 };
    lg_pick picks[MOST];
    lg_job *job[MOST];
    uint64_t now;
    size_t n = 0, rows = 0, total;

    lock(q);
    now = lg_now_us(); // no earlier than what waits came
    total = (size_t)q->n_waiting + (q->running ? 1 : 0);
    if (q->running && rows < max)
        fill_row(q->running, now, &out[rows++]);
    for (lg_job *j = q->first; j && n < MOST; j = j->priv->next) {
        picks[n] = pick_row(j, now);
        job[n++] = j;
    }
    while (n > 0 && rows < max) {
        size_t i = lg_jobs_pick(picks, n, q->fifo);

        fill_row(job[i], now, &out[rows++]);
        n--;
        memmove(&picks[i], &picks[i + 1], (n - i) * sizeof picks[0]);
        memmove(&job[i], &job[i + 1], (n - i) * sizeof job[0]);
    }
    unlock(q);
    return total;
}
