/*
 * Tests of engine/kv: what is held, where, and what can be taken back. A backend of three functions stands in
 * for a device; it remembers what was copied. Random walks compare the pools with a plain model of the
 * sequence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv.h"
#include "support/maker.h"

static lg_kv_copy last_copy;
static int n_copies;

static lg_status fake_alloc(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err)
{
    (void)b;
    (void)err;
    *out = (lg_mem){.p = calloc(1, bytes ? bytes : 1), .bytes = bytes};
    return LG_OK;
}

static void fake_release(lg_backend *b, lg_mem *m)
{
    (void)b;
    free(m->p);
    *m = (lg_mem){0};
}

static void fake_move(lg_backend *b, const lg_kv_class *c, const lg_kv_copy *moves, int n)
{
    (void)b;
    (void)c;
    last_copy = moves[n - 1];
    n_copies += n;
}

static const lg_ops ops = {.alloc = fake_alloc, .release = fake_release, .kv_move = fake_move};
static lg_backend backend = {.ops = &ops};

static lg_kv_class make_class(lg_kv_class_id id, int window)
{
    return (lg_kv_class){.id = id,
                         .type = LG_F16,
                         .n_layer = 1,
                         .n_kv_head = 1,
                         .head_dim = 4,
                         .window = window,
                         .row_bytes = 8,
                         .tile_bytes = 512,
                         .layer_bytes = 1024,
                         .block_bytes = 1024};
}

static lg_kv make(int64_t ctx, int window, int max_rows, int spare)
{
    lg_kv_class full = make_class(LG_KV_FULL, 0), win = make_class(LG_KV_WINDOW, window);
    lg_kv kv;

    if (window == 0)
        win.n_layer = 0;
    assert_int_equal(lg_kv_create(&backend, &full, &win, ctx, max_rows, spare, spare, &kv, NULL), LG_OK);
    return kv;
}

static void add(lg_kv *kv, int n)
{
    assert_int_equal(lg_kv_grow(kv, n, NULL), LG_OK);
    lg_kv_commit(kv, n);
    assert_true(lg_kv_check(kv));
}

// What the queries of the next step will look at is there.
static void assert_visible(const lg_kv *kv, int n)
{
    for (int c = 0; c <= LG_KV_WINDOW; c++) {
        int64_t from = kv->cls[c].window ? kv->pos - n - kv->cls[c].window + 1 : 0;
        for (int64_t p = from > 0 ? from : 0; kv->cls[c].n_layer && p < kv->pos; p++)
            assert_true(kv->pool[c].table[p / LG_KV_BLOCK] >= 0);
    }
}

static void sizes(void **state)
{
    lg_kv_class win = make_class(LG_KV_WINDOW, 512), full = make_class(LG_KV_FULL, 0);

    (void)state;
    assert_int_equal(lg_kv_blocks(&full, 1000, 512), 16 + 1); // one for a copy
    assert_int_equal(lg_kv_blocks(&win, 262144, 2048), 41 + 2 + 1); // (512 + 2048 + 16) / 64 and two
    assert_int_equal(lg_kv_blocks(&win, 640, 2048), 10 + 1); // never more than the context
    win.n_layer = 0;
    assert_int_equal(lg_kv_blocks(&win, 640, 2048), 0);
}

static void context_end(void **state)
{
    lg_kv kv = make(130, 0, 64, 0);
    lg_err err = {0};

    (void)state;
    add(&kv, 64);
    add(&kv, 64);
    assert_int_equal(lg_kv_grow(&kv, 3, &err), LG_E_LIMIT);
    assert_non_null(strstr(err.msg, "context of 130"));
    add(&kv, 2);
    assert_int_equal(lg_kv_grow(&kv, 1, &err), LG_E_LIMIT);
    assert_int_equal(kv.pos, 130);
    lg_kv_destroy(&kv);
}

static void window_slides(void **state)
{
    lg_kv kv = make(100000, 512, 128, 0);

    (void)state;
    for (int i = 0; i < 300; i++) {
        add(&kv, i % 3 ? 128 : 1);
        assert_visible(&kv, i % 3 ? 128 : 1);
    }
    assert_true(kv.pool[LG_KV_WINDOW].first > 0);
    // a rejected verification is always a length change
    int64_t back = kv.pos - LG_KV_VERIFY_ROWS;
    assert_int_equal(lg_kv_truncate(&kv, back), back);
    assert_true(lg_kv_check(&kv));
    lg_kv_destroy(&kv);
}

static void rewind_has_a_limit(void **state)
{
    lg_kv kv = make(100000, 512, 256, 0);
    int64_t end;

    (void)state;
    for (int i = 0; i < 20; i++)
        add(&kv, 256);
    for (int i = 0; i < 100; i++)
        add(&kv, 1);
    end = kv.pos;
    // decoding has not pushed out what the last chunk left: about a chunk can be taken back
    assert_true(lg_kv_holds(&kv, end - 100));
    assert_true(lg_kv_holds(&kv, end - 200));
    assert_false(lg_kv_holds(&kv, end - 3000));
    assert_false(lg_kv_holds(&kv, end + 1));
    assert_int_equal(lg_kv_truncate(&kv, end - 200), end - 200);
    assert_true(lg_kv_check(&kv));
    add(&kv, 256);
    assert_visible(&kv, 256);
    assert_int_equal(lg_kv_truncate(&kv, 1000), 0); // the window before 1000 is gone: all is forgotten
    assert_int_equal(kv.pos, 0);
    assert_true(lg_kv_check(&kv));
    assert_int_equal(lg_kv_free_blocks(&kv, LG_KV_WINDOW), kv.cls[LG_KV_WINDOW].n_blocks);
    assert_int_equal(lg_kv_free_blocks(&kv, LG_KV_FULL), kv.cls[LG_KV_FULL].n_blocks);
    lg_kv_destroy(&kv);
}

static void short_sequences_rewind_freely(void **state)
{
    lg_kv kv = make(4096, 512, 512, 0);

    (void)state;
    add(&kv, 512);
    add(&kv, 200);
    for (int64_t p = 700; p >= 0; p -= 50) {
        assert_int_equal(lg_kv_truncate(&kv, p), p);
        assert_true(lg_kv_check(&kv));
    }
    lg_kv_destroy(&kv);
}

static void a_failed_step_changes_nothing(void **state)
{
    lg_kv kv = make(4096, 64, 64, 0);

    (void)state;
    add(&kv, 60);
    assert_int_equal(lg_kv_grow(&kv, 30, NULL), LG_OK); // ... and the step fails: no commit
    assert_int_equal(kv.pos, 60);
    assert_int_equal(lg_kv_grow(&kv, 5, NULL), LG_OK);
    lg_kv_commit(&kv, 5);
    assert_int_equal(lg_kv_truncate(&kv, 65), 65); // gives back what was made and not used
    assert_true(lg_kv_check(&kv));
    assert_int_equal(lg_kv_free_blocks(&kv, LG_KV_FULL), kv.cls[LG_KV_FULL].n_blocks - 2);
    lg_kv_destroy(&kv);
}

// Who shares a block knows how many of its rows are his: rows behind those are written in place.
static void shared_blocks_are_copied_first(void **state)
{
    lg_kv kv = make(1024, 0, 64, 1);
    int32_t shared;

    (void)state;
    add(&kv, 64);
    add(&kv, 10);
    shared = kv.pool[LG_KV_FULL].table[1];
    lg_kv_retain(&kv, LG_KV_FULL, shared);
    n_copies = 0;
    add(&kv, 1);
    assert_int_equal(n_copies, 0);
    assert_int_equal(kv.pool[LG_KV_FULL].table[1], shared);
    assert_int_equal(lg_kv_truncate(&kv, 74), 74); // row 10 is written again: somebody may refer to it
    add(&kv, 1);
    assert_int_equal(n_copies, 1);
    assert_int_equal(last_copy.src_block, shared);
    assert_int_equal(last_copy.dst_block, kv.pool[LG_KV_FULL].table[1]);
    assert_int_not_equal(last_copy.dst_block, shared);
    assert_true(last_copy.src_row == 0 && last_copy.dst_row == 0 && last_copy.rows == 10);
    add(&kv, 1);
    assert_int_equal(n_copies, 1); // it is ours now
    assert_int_equal(lg_kv_truncate(&kv, 70), 70);
    add(&kv, 1);
    assert_int_equal(n_copies, 1); // and may be written over
    assert_int_equal(kv.pool[LG_KV_FULL].refs[shared], 1);
    assert_true(kv.pool[LG_KV_FULL].n_kept == 1 && kv.pool[LG_KV_FULL].n_shared == 0);
    assert_int_equal(lg_kv_truncate(&kv, 0), 0);
    // the other holder's
    assert_int_equal(lg_kv_free_blocks(&kv, LG_KV_FULL), kv.cls[LG_KV_FULL].n_blocks - 1);
    lg_kv_release(&kv, LG_KV_FULL, shared);
    assert_int_equal(lg_kv_free_blocks(&kv, LG_KV_FULL), kv.cls[LG_KV_FULL].n_blocks);
    // a whole shared block is only read, never written: no copy
    add(&kv, 64);
    lg_kv_retain(&kv, LG_KV_FULL, kv.pool[LG_KV_FULL].table[0]);
    add(&kv, 1);
    assert_int_equal(n_copies, 1);
    lg_kv_destroy(&kv);
}

static void no_free_block_is_an_error(void **state)
{
    lg_kv kv = make(640, 0, 64, 0);
    lg_err err = {0};

    (void)state;
    for (int i = 0; i < 10; i++)
        add(&kv, 64);
    for (int i = 0; i < 10; i++)
        lg_kv_retain(&kv, LG_KV_FULL, kv.pool[LG_KV_FULL].table[i]);
    assert_int_equal(lg_kv_truncate(&kv, 0), 0);
    add(&kv, 64); // the one that is meant for a copy
    assert_int_equal(lg_kv_grow(&kv, 1, &err), LG_E_LIMIT);
    assert_true(lg_kv_check(&kv));
    lg_kv_release(&kv, LG_KV_FULL, 0);
    add(&kv, 1);
    lg_kv_destroy(&kv);
}

// A cut with the blocks of the full class, all of which it holds, as a tree of conversations would.
typedef struct cut {
    lg_kv_cut kv;
    int32_t full[2048], window[16], draft[16];
} cut;

static void cut_here(lg_kv *kv, cut *c)
{
    c->kv = (lg_kv_cut){.block = c->window, .draft_block = c->draft};
    lg_kv_cut_at(kv, kv->pos, true, &c->kv);
    for (int i = 0; i < lg_kv_entries(kv->pos); i++) {
        c->full[i] = kv->pool[LG_KV_FULL].table[i];
        lg_kv_retain(kv, LG_KV_FULL, c->full[i]);
    }
    assert_true(lg_kv_check(kv));
}

static void drop(lg_kv *kv, cut *c)
{
    for (int i = 0; i < lg_kv_entries(c->kv.pos); i++)
        lg_kv_release(kv, LG_KV_FULL, c->full[i]);
    lg_kv_cut_drop(kv, &c->kv);
    c->kv.pos = 0;
    assert_true(lg_kv_check(kv));
}

static void resume(lg_kv *kv, cut *c, int64_t pos)
{
    lg_kv_resume(kv, pos, c->full, &c->kv);
    assert_int_equal(kv->pos, pos);
    assert_true(lg_kv_check(kv));
}

static void cuts(void **state)
{
    static cut a, b;
    lg_kv kv = make(100000, 512, 256, 100);

    (void)state;
    for (int i = 0; i < 10; i++)
        add(&kv, 250);
    cut_here(&kv, &a); // at 2500
    for (int i = 0; i < 10; i++)
        add(&kv, 250);
    cut_here(&kv, &b); // at 5000
    for (int i = 0; i < 3000; i++)
        add(&kv, 1);
    assert_false(lg_kv_holds(&kv, 5100));
    assert_false(lg_kv_can_cut(&kv, 5100));
    assert_true(lg_kv_can_cut(&kv, kv.pos - 256)); // inside the last chunk
    n_copies = 0;
    resume(&kv, &b, 5000);
    add(&kv, 256); // writes into blocks that were filled since: a copy of 8 rows in both classes
    assert_int_equal(n_copies, 2);
    assert_int_equal(last_copy.rows, 5000 % 64);
    assert_visible(&kv, 256);
    for (int i = 0; i < 20; i++)
        add(&kv, 200);
    resume(&kv, &b, 4999); // the cut holds one row more than a resume at it needs
    n_copies = 0;
    add(&kv, 1);
    assert_int_equal(n_copies, 2);
    assert_int_equal(last_copy.rows, 4999 % 64);
    drop(&kv, &b);
    resume(&kv, &a, 2500);
    add(&kv, 256);
    assert_visible(&kv, 256);
    drop(&kv, &a);
    assert_int_equal(lg_kv_truncate(&kv, 0), 0);
    assert_true(lg_kv_check(&kv));
    assert_int_equal(lg_kv_free_blocks(&kv, LG_KV_WINDOW), kv.cls[LG_KV_WINDOW].n_blocks);
    assert_int_equal(lg_kv_free_blocks(&kv, LG_KV_FULL), kv.cls[LG_KV_FULL].n_blocks);
    lg_kv_destroy(&kv);
}

// The newest row of an appended block does not disturb a cut that shares it, and two cuts share blocks.
static void cuts_share(void **state)
{
    static cut a, b;
    lg_kv kv = make(100000, 512, 256, 100);

    (void)state;
    for (int i = 0; i < 10; i++)
        add(&kv, 250);
    n_copies = 0;
    cut_here(&kv, &a); // at 2500
    add(&kv, 10);
    cut_here(&kv, &b);
    add(&kv, 100);
    assert_int_equal(n_copies, 0);
    assert_int_equal(kv.pool[LG_KV_WINDOW].n_kept, 9); // one set of blocks serves both
    drop(&kv, &b);
    resume(&kv, &a, 2500);
    assert_int_equal(n_copies, 0);
    add(&kv, 1);
    assert_int_equal(n_copies, 2);
    drop(&kv, &a);
    lg_kv_destroy(&kv);
}

// Free blocks of one class give their memory back before another one takes more than all may have.
static uint64_t discarded;

static void fake_discard(lg_backend *b, const lg_mem *m, size_t off, size_t bytes)
{
    (void)b;
    memset((char *)m->p + off, 0xAA, bytes);
    discarded += bytes;
}

static void memory_moves_between_classes(void **state)
{
    enum { MANY = 14 };
    static cut a[MANY];
    lg_kv kv = make(2048, 64, 64, 60);

    (void)state;
    backend.discard = fake_discard;
    kv.max_bytes = 36 * 1024;
    discarded = 0;
    for (int round = 0; round < 20; round++) {
        int n = round % 2 ? 1 : MANY; // many cuts of a short sequence, or one of a long one
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < (n == 1 ? 30 : 1); k++)
                add(&kv, 64);
            cut_here(&kv, &a[i]);
            (void)lg_kv_truncate(&kv, 0);
            uint64_t sum = 0;
            for (int c = 0; c < 2; c++)
                sum += (uint64_t)(kv.pool[c].n_fresh - kv.pool[c].n_clean) * kv.cls[c].block_bytes;
            assert_true(sum <= kv.max_bytes);
        }
        for (int i = 0; i < n; i++)
            drop(&kv, &a[i]);
    }
    assert_true(discarded > 0);
    backend.discard = NULL;
    lg_kv_destroy(&kv);
}

// Each row that is written is noted; every table entry must lead to the row written last for its position,
// and each cut keeps its rows whatever the live sequence writes.
enum { WALK_CTX = 3000, WALK_CUTS = 6 };
typedef struct walk {
    lg_kv kv;
    int64_t row_of[2][400][LG_KV_BLOCK]; // [class][block][row] -> a number unique to what was written
    int64_t now[WALK_CTX];               // by position: what the live sequence has there
    cut cut[WALK_CUTS];
    int64_t had[WALK_CUTS][WALK_CTX];
    int64_t next;
} walk;

static void follow_copy(lg_backend *b, const lg_kv_class *c, const lg_kv_copy *m, int n);
static walk w;

static void follow_copy(lg_backend *b, const lg_kv_class *c, const lg_kv_copy *m, int n)
{
    (void)b;
    for (int i = 0; i < n; i++)
        memcpy(w.row_of[c->id][m[i].dst_block], w.row_of[c->id][m[i].src_block],
               (size_t)m[i].rows * sizeof(int64_t));
}

static void walk_write(int n, bool commit)
{
    lg_kv *kv = &w.kv;

    assert_int_equal(lg_kv_grow(kv, n, NULL), LG_OK);
    for (int64_t p = kv->pos; p < kv->pos + n; p++) {
        w.next++;
        for (int c = 0; c < 2; c++)
            w.row_of[c][kv->pool[c].table[p / LG_KV_BLOCK]][p % LG_KV_BLOCK] = w.next;
        if (commit)
            w.now[p] = w.next;
    }
    if (commit)
        lg_kv_commit(kv, n);
}

static void walk_check(void)
{
    lg_kv *kv = &w.kv;

    assert_true(lg_kv_check(kv));
    for (int c = 0; c < 2; c++)
        for (int64_t p = c && kv->pos > 99 ? kv->pos - 99 : 0; p < kv->pos; p++) {
            assert_true(kv->pool[c].table[p / LG_KV_BLOCK] >= 0);
            assert_int_equal(w.row_of[c][kv->pool[c].table[p / LG_KV_BLOCK]][p % LG_KV_BLOCK], w.now[p]);
        }
    for (int i = 0; i < WALK_CUTS; i++) {
        const cut *c = &w.cut[i];
        for (int64_t p = 0; p < c->kv.pos; p++)
            assert_int_equal(w.row_of[0][c->full[p / LG_KV_BLOCK]][p % LG_KV_BLOCK], w.had[i][p]);
        for (int64_t p = c->kv.pos > 100 ? c->kv.pos - 100 : 0; p < c->kv.pos; p++)
            assert_int_equal(w.row_of[1][c->window[p / LG_KV_BLOCK - c->kv.first]][p % LG_KV_BLOCK],
                             w.had[i][p]);
    }
}

static void random_walk(void **state)
{
    static const lg_ops following = {.alloc = fake_alloc, .release = fake_release, .kv_move = follow_copy};
    uint64_t rng = 42;

    (void)state;
    backend.ops = &following;
    w.kv = make(WALK_CTX, 100, 90, 320);
    for (int s = 0; s < 6000; s++) {
        double what = mk_uniform(&rng);
        int n = 1 + (int)(mk_uniform(&rng) * 90), i = (int)(mk_uniform(&rng) * WALK_CUTS);
        cut *c = &w.cut[i];
        if (what < 0.6 && w.kv.pos + n <= WALK_CTX) {
            walk_write(n, what < 0.55);
        } else if (what < 0.7) {
            int64_t to = w.kv.pos - (int64_t)(mk_uniform(&rng) * mk_uniform(&rng) * 600);
            to = to < 0 ? 0 : to;
            bool holds = lg_kv_holds(&w.kv, to);
            assert_int_equal(lg_kv_truncate(&w.kv, to), holds ? to : 0);
        } else if (what < 0.85 && c->kv.pos > 0) {
            int64_t back = what < 0.77 && c->kv.pos > 1 ? 1 : 0;
            resume(&w.kv, c, c->kv.pos - back);
            memcpy(w.now, w.had[i], (size_t)w.kv.pos * sizeof *w.now);
            if (what > 0.83)
                drop(&w.kv, c);
        } else if (lg_kv_can_cut(&w.kv, w.kv.pos)) {
            if (c->kv.pos)
                drop(&w.kv, c);
            cut_here(&w.kv, c);
            memcpy(w.had[i], w.now, (size_t)w.kv.pos * sizeof *w.now);
        }
        walk_check();
    }
    for (int i = 0; i < WALK_CUTS; i++)
        if (w.cut[i].kv.pos)
            drop(&w.kv, &w.cut[i]);
    lg_kv_destroy(&w.kv);
    backend.ops = &ops;
}

// A cache with a drafter, whose rows follow those of the sequence.
static lg_kv make_drafting(int64_t ctx, int window, int draft_window, int max_rows)
{
    lg_kv_class draft = make_class(LG_KV_DRAFT, draft_window);
    lg_kv kv = make(ctx, window, max_rows, 330);

    assert_int_equal(lg_kv_add_draft(&kv, &draft, max_rows, -1, NULL), LG_OK);
    return kv;
}

// n more rows, which also enter the drafter's context.
static void add_both(lg_kv *kv, int n)
{
    int64_t pos = kv->pos;

    add(kv, n);
    int skip = lg_kv_draft_skip(kv, pos, n);
    lg_kv_draft_commit(kv, n - skip);
    assert_true(lg_kv_check(kv));
}

static void assert_draft_visible(const lg_kv *kv)
{
    int64_t from = kv->pos - kv->cls[LG_KV_DRAFT].window + 1;

    assert_int_equal(kv->draft_to, kv->pos);
    for (int64_t p = from > kv->draft_from ? from : kv->draft_from; p < kv->pos; p++)
        assert_true(kv->pool[LG_KV_DRAFT].table[p / LG_KV_BLOCK] >= 0);
}

static void drafter_follows(void **state)
{
    static cut c;
    lg_kv kv = make_drafting(100000, 512, 512, 128);

    (void)state;
    for (int i = 0; i < 200; i++) {
        add_both(&kv, i % 3 ? 128 : 1);
        assert_int_equal(kv.draft_from, 0);
        assert_draft_visible(&kv);
    }
    // a rejected verification is a length change for the drafter too
    int64_t back = kv.pos - LG_KV_VERIFY_ROWS;
    assert_int_equal(lg_kv_truncate(&kv, back), back);
    assert_int_equal(kv.draft_from, 0);
    assert_draft_visible(&kv);
    // at a cut its rows are there again
    cut_here(&kv, &c);
    for (int i = 0; i < 30; i++)
        add_both(&kv, 128);
    resume(&kv, &c, back);
    drop(&kv, &c);
    assert_int_equal(kv.draft_from, 0);
    assert_draft_visible(&kv);
    assert_int_equal(lg_kv_truncate(&kv, 0), 0);
    assert_int_equal(kv.draft_to, 0);
    assert_true(lg_kv_check(&kv));
    lg_kv_destroy(&kv);
}

static void drafter_starts_anew(void **state)
{
    static cut c;
    lg_kv kv = make_drafting(100000, 512, 512, 128);

    (void)state;
    for (int i = 0; i < 20; i++)
        add(&kv, 100); // rows that the drafter never got
    cut_here(&kv, &c);
    assert_int_equal(c.kv.draft_from, -1);
    assert_int_equal(lg_kv_draft_skip(&kv, 1990, 10), 10);
    assert_int_equal(kv.draft_from, 2048 - 2048 % LG_KV_BLOCK);
    int64_t pos = kv.pos;
    add(&kv, 100); // 2000 to 2100: the next block starts at 2048
    assert_int_equal(lg_kv_draft_skip(&kv, pos, 100), 48);
    lg_kv_draft_commit(&kv, 52);
    assert_int_equal(kv.draft_from, 2048);
    assert_draft_visible(&kv);
    add_both(&kv, 1);
    assert_int_equal(kv.draft_from, 2048);
    // below its start there is nothing left of it
    assert_int_equal(lg_kv_truncate(&kv, 2040), 2040);
    assert_int_equal(kv.draft_from, kv.draft_to);
    add_both(&kv, 64);
    assert_int_equal(kv.draft_from, 2048);
    assert_draft_visible(&kv);
    // a cut without rows of the drafter
    for (int i = 0; i < 30; i++)
        add_both(&kv, 128);
    resume(&kv, &c, 2000);
    add_both(&kv, 128);
    assert_int_equal(kv.draft_from, 2048);
    drop(&kv, &c);
    lg_kv_destroy(&kv);
}

// A wider window than the model's: what the model can rewind, the drafter may have lost.
static void drafter_walk(void **state)
{
    unsigned seed = 7;

    (void)state;
    for (int windows = 0; windows < 3; windows++) {
        static cut c;
        lg_kv kv = make_drafting(20000, windows == 1 ? 64 : 512, windows == 2 ? 64 : 512, 100);
        for (int i = 0; i < 4000; i++) {
            seed = seed * 1103515245u + 12345u;
            int what = (int)(seed >> 16 & 15), n = (int)(seed >> 20 % 7 & 63) + 1;
            if (kv.pos + 100 > 20000)
                (void)lg_kv_truncate(&kv, (int64_t)(seed >> 8) % 20000);
            else if (what < 9)
                add_both(&kv, n);
            else if (what < 11)
                add(&kv, n);
            else if (what < 12 && lg_kv_can_cut(&kv, kv.pos)) {
                if (c.kv.pos)
                    drop(&kv, &c);
                cut_here(&kv, &c);
            } else if (what < 13 && c.kv.pos)
                resume(&kv, &c, c.kv.pos);
            else
                (void)lg_kv_truncate(&kv, kv.pos > n * 20 ? kv.pos - n * (what == 12 ? 20 : 1) : 0);
            assert_true(lg_kv_check(&kv));
            assert_true(kv.draft_from % LG_KV_BLOCK == 0 || kv.draft_from == kv.draft_to);
            if (kv.draft_to == kv.pos)
                assert_draft_visible(&kv);
        }
        if (c.kv.pos)
            drop(&kv, &c);
        lg_kv_destroy(&kv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(context_end),
        cmocka_unit_test(window_slides),
        cmocka_unit_test(rewind_has_a_limit),
        cmocka_unit_test(short_sequences_rewind_freely),
        cmocka_unit_test(a_failed_step_changes_nothing),
        cmocka_unit_test(shared_blocks_are_copied_first),
        cmocka_unit_test(no_free_block_is_an_error),
        cmocka_unit_test(cuts),
        cmocka_unit_test(cuts_share),
        cmocka_unit_test(memory_moves_between_classes),
        cmocka_unit_test(random_walk),
        cmocka_unit_test(drafter_follows),
        cmocka_unit_test(drafter_starts_anew),
        cmocka_unit_test(drafter_walk),
    };

    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
