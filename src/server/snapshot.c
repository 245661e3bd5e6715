/*
 * server/snapshot: see snapshot.h. The struct lies in the box as words that are stored and loaded one by one,
 * so that a reader who meets a writer sees whole words, notices by the counter, and reads again.
 */
#include "server/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/dialect.h"

enum { EVERY_US = 50000, WORDS = (sizeof(lg_snapshot) + 7) / 8 };

struct lg_snapshot_box {
    atomic_uint seq; // odd: being written
    atomic_ullong word[WORDS];
    lg_snapshot own; // the engine thread's
    uint64_t written_us;
};

lg_status lg_snapshot_create(lg_snapshot_box **out, lg_err *err)
{
    lg_snapshot_box *b = calloc(1, sizeof *b);

    if (!b)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    b->own.since_us = lg_now_us();
    *out = b;
    return LG_OK;
}

void lg_snapshot_destroy(lg_snapshot_box *b)
{
    free(b);
}

static void publish(lg_snapshot_box *b, bool always)
{
    uint64_t now = lg_now_us(), words[WORDS] = {0};
    unsigned seq;

    if (!always && now - b->written_us < EVERY_US)
        return;
    b->written_us = now;
    memcpy(words, &b->own, sizeof b->own);
    seq = atomic_load_explicit(&b->seq, memory_order_relaxed);
    atomic_store_explicit(&b->seq, seq + 1, memory_order_seq_cst);
    for (size_t i = 0; i < WORDS; i++)
        atomic_store_explicit(&b->word[i], words[i], memory_order_release);
    atomic_store_explicit(&b->seq, seq + 2, memory_order_release);
}

void lg_snapshot_read(lg_snapshot_box *b, lg_snapshot *out)
{
    uint64_t words[WORDS];
    unsigned before, after;

    do {
        before = atomic_load_explicit(&b->seq, memory_order_acquire);
        for (size_t i = 0; i < WORDS; i++)
            words[i] = atomic_load_explicit(&b->word[i], memory_order_acquire);
        after = atomic_load_explicit(&b->seq, memory_order_acquire);
    } while (before != after || (before & 1));
    memcpy(out, words, sizeof *out);
}

static void enter(lg_snapshot_box *b, lg_phase_now phase)
{
    b->own.phase = phase;
    b->own.since_us = lg_now_us();
}

void lg_snapshot_load(lg_snapshot_box *b, uint64_t done, uint64_t total)
{
    b->own.load_done = done;
    b->own.load_total = total;
    publish(b, done >= total);
}

void lg_snapshot_ready(lg_snapshot_box *b, int64_t n_ctx)
{
    b->own.n_ctx = n_ctx;
    enter(b, LG_NOW_IDLE);
    publish(b, true);
}

void lg_snapshot_begin(lg_snapshot_box *b, const lg_job *job)
{
    lg_snapshot *o = &b->own;

    enter(b, LG_NOW_PREFILL);
    (void)snprintf(o->id, sizeof o->id, "%s", lg_job_tag(job));
    (void)snprintf(o->dialect, sizeof o->dialect, "%s", job->dialect->name);
    (void)snprintf(o->client, sizeof o->client, "%.*s", (int)(job->client.n < 31 ? job->client.n : 31),
                   job->client.n ? job->client.p : "");
    o->prompt = (int64_t)job->prompt.n;
    o->cached = o->prefill_done = 0;
    memset(o->tokens, 0, sizeof o->tokens);
    o->n_call = 0;
    o->job_start_us = o->since_us;
    o->first_token_us = 0;
    o->n_jobs++;
    publish(b, true);
}

void lg_snapshot_prefill(lg_snapshot_box *b, int64_t done, int64_t total)
{
    if (b->own.prefill_done == 0)
        b->own.cached = done;
    b->own.prefill_done = done;
    b->own.kv_tokens = done;
    if (done >= total)
        enter(b, LG_NOW_DECODE);
    publish(b, done >= total);
}

void lg_snapshot_token(lg_snapshot_box *b, lg_reply_phase phase)
{
    if (b->own.first_token_us == 0)
        b->own.first_token_us = lg_now_us();
    b->own.tokens[phase]++;
    b->own.kv_tokens++;
    publish(b, false);
}

void lg_snapshot_call(lg_snapshot_box *b)
{
    b->own.n_call++;
}

void lg_snapshot_end(lg_snapshot_box *b, const lg_engine *e)
{
    b->own.kv_tokens = lg_engine_pos(e);
    lg_engine_cache_stats(e, &b->own.cache);
    b->own.n_slot = lg_engine_cache_slots(e, b->own.slot, LG_SNAPSHOT_SLOTS);
    enter(b, LG_NOW_IDLE);
    publish(b, true);
}
