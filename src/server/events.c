/*
 * server/events: a job and its event queue (jobs.h): two buffers of records. The engine appends to one, the
 * connection reads the other, and they change places when the reader's is used up; so the lock is held for a
 * copy, and text stays valid until the next take.
 *
 * Surprise: the reader is woken only when it said that it found nothing, so that a busy connection costs the
 * engine no system call. One that wants the whole answer (lg_job_collect) is woken by its end alone, or when
 * much has gathered.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/eventfd.h>
#endif

#include "base/clock.h"
#include "server/dialect.h"
#include "server/job_int.h"

enum { QUEUE_MAX_BYTES = 1 << 30, COLLECT_BYTES = 64 << 10, ALIGN = 16 };

/* Before its payload: text of a reply, tops of a token, stats of a choice, an error. */
typedef struct record {
    lg_job_event_kind kind;
    int choice;
    int64_t a, b;  // progress; reply: kind and call; token: id; choice: stop
    float logprob;
    uint32_t n;    // bytes of the payload
} record;

struct lg_job_call_name {
    int choice, call;
    char id[32];
    lg_job_call_name *next;
};

// --- life ---

static bool open_wake(int fd[2])
{
#if defined(__linux__)
    fd[0] = fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd[0] >= 0;
#else
    if (pipe(fd) != 0) {
        fd[0] = fd[1] = -1;
        return false;
    }
    for (int i = 0; i < 2; i++) {
        (void)fcntl(fd[i], F_SETFD, FD_CLOEXEC);
        (void)fcntl(fd[i], F_SETFL, O_NONBLOCK);
    }
    return true;
#endif
}

static void close_wake(const int fd[2])
{
    if (fd[0] >= 0)
        (void)close(fd[0]);
    if (fd[1] >= 0 && fd[1] != fd[0])
        (void)close(fd[1]);
}

lg_status lg_job_create(size_t arena_limit, lg_job **out, lg_err *err)
{
    lg_job *job = calloc(1, sizeof *job);
    struct lg_job_private *v = calloc(1, sizeof *v);

    if (!job || !v || !open_wake(v->wake) || pthread_mutex_init(&v->lock, NULL) != 0) {
        if (v)
            close_wake(v->wake);
        free(v);
        free(job);
        return LG_FAIL(err, LG_E_NOMEM, "no memory or descriptor for one more request");
    }
    atomic_init(&v->refs, 1);
    lg_buf_init(&v->in, QUEUE_MAX_BYTES);
    lg_buf_init(&v->out, QUEUE_MAX_BYTES);
    lg_arena_init(&job->arena, arena_limit);
    job->priv = v;
    job->n_choice = 1;
    job->n_logprobs = -1;
    job->max_think = -1;
    job->sampling = lg_sampling_default();
    *out = job;
    return LG_OK;
}

void lg_job_hold(lg_job *job)
{
    atomic_fetch_add(&job->priv->refs, 1);
}

void lg_job_release(lg_job *job)
{
    struct lg_job_private *v;

    if (!job || atomic_fetch_sub(&job->priv->refs, 1) > 1)
        return;
    v = job->priv;
    while (v->call) {
        lg_job_call_name *next = v->call->next;

        free(v->call);
        v->call = next;
    }
    close_wake(v->wake);
    lg_buf_free(&v->in);
    lg_buf_free(&v->out);
    (void)pthread_mutex_destroy(&v->lock);
    free(v->mark);
    free(v);
    lg_ids_free(&job->prompt);
    lg_constraint_release(job->constraint);
    lg_json_free(job->doc);
    lg_json_free(job->made);
    lg_arena_free(&job->arena);
    free(job);
}

int lg_job_fd(const lg_job *job)
{
    return job->priv->wake[0];
}

const char *lg_job_tag(const lg_job *job)
{
    return job->priv->tag;
}

uint64_t lg_job_queue_us(const lg_job *job)
{
    uint64_t from = job->priv->submit_us, to = job->priv->start_us ? job->priv->start_us : lg_now_us();

    return from > 0 && to > from ? to - from : 0;
}

void lg_job_count_cached(lg_job *job, int64_t tokens)
{
    atomic_store_explicit(&job->priv->cached, tokens, memory_order_relaxed);
}

void lg_job_count_token(lg_job *job, bool thinking)
{
    atomic_fetch_add_explicit(&job->priv->output, 1, memory_order_relaxed);
    if (thinking)
        atomic_fetch_add_explicit(&job->priv->thinking, 1, memory_order_relaxed);
}

lg_job_account lg_job_so_far(const lg_job *job)
{
    struct lg_job_private *v = job->priv;

    return (lg_job_account){.cached = atomic_load_explicit(&v->cached, memory_order_relaxed),
                            .output = atomic_load_explicit(&v->output, memory_order_relaxed),
                            .thinking = atomic_load_explicit(&v->thinking, memory_order_relaxed)};
}

uint64_t lg_job_first_us(const lg_job *job)
{
    return atomic_load(&job->priv->first_us);
}

lg_job_why lg_job_cancelled_why(const lg_job *job)
{
    return (lg_job_why)atomic_load(&job->priv->why);
}

bool lg_job_sound(const lg_job *job)
{
    return !atomic_load(&job->priv->broken);
}

// --- the writing side ---

static void wake(struct lg_job_private *v)
{
#if defined(__linux__)
    uint64_t one = 1;
    ssize_t n = write(v->wake[1], &one, sizeof one);
#else
    ssize_t n = write(v->wake[1], "!", 1);
#endif
    (void)n; // full means that the reader has been woken already
}

static bool ends(lg_job_event_kind kind)
{
    return kind == LG_JOB_END || kind == LG_JOB_ERROR;
}

// Whether the reader is to be woken for a record of this kind that has just been added.
static bool wakes(const struct lg_job_private *v, lg_job_event_kind kind)
{
    if (ends(kind))
        return true;
    return v->wanted && (!v->collects || v->in.n >= COLLECT_BYTES);
}

static void put(lg_job *job, const record *r, const void *payload)
{
    static const char zeros[ALIGN];
    struct lg_job_private *v = job->priv;
    size_t start, pad = (ALIGN - (sizeof *r + r->n) % ALIGN) % ALIGN;

    (void)pthread_mutex_lock(&v->lock);
    if (r->kind == LG_JOB_PROGRESS && v->last_progress) // the newest is enough, beside the first
        v->in.n = v->last_progress - 1;
    start = v->in.n;
    if (lg_buf_room(&v->in, sizeof *r + r->n + pad)) {
        (void)lg_buf_add(&v->in, r, sizeof *r);
        (void)lg_buf_add(&v->in, payload, r->n);
        (void)lg_buf_add(&v->in, zeros, pad);
    } else {
        atomic_store(&v->broken, true);
        atomic_store(&job->cancel, true);
        v->lost_end = v->lost_end || ends(r->kind);
    }
    v->last_progress = r->kind == LG_JOB_PROGRESS && v->progressed ? start + 1 : 0;
    v->progressed = v->progressed || r->kind == LG_JOB_PROGRESS;
    if (wakes(v, r->kind)) {
        v->wanted = false;
        wake(v);
    }
    (void)pthread_mutex_unlock(&v->lock);
}

void lg_job_put_progress(lg_job *job, int choice, int64_t done, int64_t total)
{
    put(job, &(record){.kind = LG_JOB_PROGRESS, .choice = choice, .a = done, .b = total}, NULL);
}

void lg_job_put_token(lg_job *job, int choice, const lg_job_event *t)
{
    put(job,
        &(record){.kind = LG_JOB_TOKEN, .choice = choice, .a = t->token, .b = t->n_top, .logprob = t->logprob,
                  .n = (uint32_t)((size_t)t->n_top * sizeof t->top[0])},
        t->top);
}

void lg_job_put_choice(lg_job *job, int choice, const lg_gen_stats *stats, int stop)
{
    put(job, &(record){.kind = LG_JOB_CHOICE_END, .choice = choice, .a = stop, .n = sizeof *stats}, stats);
}

void lg_job_put_end(lg_job *job)
{
    put(job, &(record){.kind = LG_JOB_END}, NULL);
}

void lg_job_put_error(lg_job *job, const lg_api_error *e)
{
    put(job, &(record){.kind = LG_JOB_ERROR, .n = sizeof *e}, e);
}

static void name_call(lg_job *job, int choice, int call)
{
    // 35; a byte above 244 is drawn again
    static const char letters[] = "0123456789abcdefghijkmnopqrstuvwxyz";
    const char *prefix = job->dialect && job->dialect->shape == LG_SHAPE_ANTHROPIC ? "toolu_" : "call_";
    lg_job_call_name *c = calloc(1, sizeof *c);
    size_t n = strlen(prefix);

    if (!c) {
        atomic_store(&job->priv->broken, true);
        return;
    }
    *c = (lg_job_call_name){.choice = choice, .call = call};
    memcpy(c->id, prefix, n);
    while (n < strlen(prefix) + 20) { // 20 letters of 35 are over 96 bits
        unsigned char raw[32];

        if (getentropy(raw, sizeof raw) != 0)
            memset(raw, (int)(lg_now_ns() & 0x7F), sizeof raw);
        for (size_t i = 0; i < sizeof raw && n < strlen(prefix) + 20; i++)
            if (raw[i] < 245)
                c->id[n++] = letters[raw[i] % 35];
    }
    (void)pthread_mutex_lock(&job->priv->lock);
    c->next = job->priv->call;
    job->priv->call = c;
    job->priv->n_call++;
    (void)pthread_mutex_unlock(&job->priv->lock);
}

void lg_job_put_reply(lg_job *job, int choice, const lg_event *ev)
{
    if (ev->kind == LG_EV_TOOL_START)
        name_call(job, choice, ev->call);
    if (atomic_load(&job->priv->first_us) == 0)
        atomic_store(&job->priv->first_us, lg_now_us());
    put(job,
        &(record){
            .kind = LG_JOB_REPLY, .choice = choice, .a = ev->kind, .b = ev->call, .n = (uint32_t)ev->text.n},
        ev->text.p);
}

const char *lg_job_call_id(const lg_job *job, int choice, int call)
{
    struct lg_job_private *v = job->priv;
    const char *id = "";

    (void)pthread_mutex_lock(&v->lock);
    for (const lg_job_call_name *c = v->call; c; c = c->next)
        if (c->choice == choice && c->call == call) {
            id = c->id;
            break;
        }
    (void)pthread_mutex_unlock(&v->lock);
    return id;
}

// --- the reading side ---

static void drain_wake(struct lg_job_private *v)
{
    char sink[64];

    while (read(v->wake[0], sink, sizeof sink) > 0)
        ;
}

// True when there is something in `out` to read. ask: to be woken when there is not.
static bool refill(struct lg_job_private *v, bool ask)
{
    lg_buf used;

    if (v->at < v->out.n)
        return true;
    (void)pthread_mutex_lock(&v->lock);
    v->wanted = ask && v->in.n == 0;
    if (v->in.n > 0) {
        used = v->out;
        v->out = v->in;
        v->in = used;
        v->in.n = 0;
        v->in.failed = false;
        v->last_progress = 0;
        v->at = 0;
        drain_wake(v);
    }
    (void)pthread_mutex_unlock(&v->lock);
    return v->at < v->out.n;
}

// Nobody waits for an end that there was no memory for.
static bool take_lost_end(struct lg_job_private *v, lg_job_event *ev)
{
    bool lost;

    (void)pthread_mutex_lock(&v->lock);
    lost = v->lost_end && v->in.n == 0;
    v->lost_end = v->lost_end && !lost;
    (void)pthread_mutex_unlock(&v->lock);
    if (!lost)
        return false;
    (void)lg_api_fail(&v->no_memory, LG_API_INTERNAL, NULL, "out of memory");
    *ev = (lg_job_event){.kind = LG_JOB_ERROR, .error = &v->no_memory};
    return true;
}

static bool take(lg_job *job, bool ask, lg_job_event *ev)
{
    struct lg_job_private *v = job->priv;
    const char *payload;
    record r;

    if (!refill(v, ask))
        return take_lost_end(v, ev);
    memcpy(&r, v->out.p + v->at, sizeof r);
    payload = v->out.p + v->at + sizeof r;
    v->at += (sizeof r + r.n + ALIGN - 1) / ALIGN * ALIGN;
    *ev = (lg_job_event){.kind = r.kind, .choice = r.choice};
    switch (r.kind) {
    case LG_JOB_PROGRESS:
        ev->done = r.a;
        ev->total = r.b;
        break;
    case LG_JOB_REPLY:
        ev->reply = (lg_event){.kind = (lg_event_kind)r.a, .call = (int)r.b, .text = {payload, r.n}};
        break;
    case LG_JOB_TOKEN:
        ev->token = (int32_t)r.a;
        ev->n_top = (int)r.b;
        ev->logprob = r.logprob;
        memcpy(ev->top, payload, r.n);
        break;
    case LG_JOB_CHOICE_END:
        ev->stop = (int)r.a;
        ev->stats = (const lg_gen_stats *)(const void *)payload;
        break;
    case LG_JOB_ERROR:
        ev->error = (const lg_api_error *)(const void *)payload;
        break;
    case LG_JOB_END: break;
    }
    return true;
}

bool lg_job_take(lg_job *job, lg_job_event *ev)
{
    return take(job, true, ev);
}

bool lg_job_take_more(lg_job *job, lg_job_event *ev)
{
    return take(job, false, ev);
}

bool lg_job_at_hand(const lg_job *job)
{
    return job->priv->at < job->priv->out.n;
}

void lg_job_collect(lg_job *job)
{
    job->priv->collects = true;
}
