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
    assert_int_equal(lg_kv_create(&backend, &full, &win, ctx, max_rows, spare, &kv, NULL), LG_OK);
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
    assert_int_equal(lg_kv_blocks(&full, 1000, 512), 16);
    // (512 + 2048 + 16) / 64 and two, two cuts of 9 blocks, one for a copy
    assert_int_equal(lg_kv_blocks(&win, 262144, 2048), 41 + 2 + 18 + 1);
    assert_int_equal(lg_kv_blocks(&win, 640, 2048), 10); // never more than the context
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
    assert_int_equal(kv.pool[LG_KV_WINDOW].n_unused, kv.cls[LG_KV_WINDOW].n_blocks);
    assert_int_equal(kv.pool[LG_KV_FULL].n_unused, kv.cls[LG_KV_FULL].n_blocks);
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
    assert_int_equal(kv.pool[LG_KV_FULL].n_unused, kv.cls[LG_KV_FULL].n_blocks - 2);
    lg_kv_destroy(&kv);
}

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
    assert_int_equal(n_copies, 1);
    assert_int_equal(last_copy.src_block, shared);
    assert_int_equal(last_copy.dst_block, kv.pool[LG_KV_FULL].table[1]);
    assert_int_not_equal(last_copy.dst_block, shared);
    assert_true(last_copy.src_row == 0 && last_copy.dst_row == 0 && last_copy.rows == 10);
    add(&kv, 1);
    assert_int_equal(n_copies, 1); // it is ours now
    assert_int_equal(kv.pool[LG_KV_FULL].refs[shared], 1);
    assert_int_equal(lg_kv_truncate(&kv, 0), 0);
    assert_int_equal(kv.pool[LG_KV_FULL].n_unused, kv.cls[LG_KV_FULL].n_blocks - 1); // the other holder's
    lg_kv_release(&kv, LG_KV_FULL, shared);
    assert_int_equal(kv.pool[LG_KV_FULL].n_unused, kv.cls[LG_KV_FULL].n_blocks);
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
    assert_int_equal(lg_kv_grow(&kv, 1, &err), LG_E_LIMIT);
    assert_true(lg_kv_check(&kv));
    lg_kv_release(&kv, LG_KV_FULL, 0);
    add(&kv, 1);
    lg_kv_destroy(&kv);
}

static void cuts(void **state)
{
    lg_kv kv = make(100000, 512, 256, 0);

    (void)state;
    for (int i = 0; i < 10; i++)
        add(&kv, 250);
    lg_kv_cut_here(&kv); // at 2500
    for (int i = 0; i < 10; i++)
        add(&kv, 250);
    lg_kv_cut_here(&kv); // at 5000
    lg_kv_cut_here(&kv); // nothing new
    for (int i = 0; i < 3000; i++)
        add(&kv, 1);
    assert_false(lg_kv_holds(&kv, 5100));
    n_copies = 0;
    assert_int_equal(lg_kv_truncate(&kv, 5100), 5000);
    assert_true(lg_kv_check(&kv));
    add(&kv, 256); // writes into the block that the cut shares: a copy of its 8 rows
    assert_int_equal(n_copies, 1);
    assert_int_equal(last_copy.rows, 5000 % 64);
    assert_visible(&kv, 256);
    for (int i = 0; i < 20; i++)
        add(&kv, 200);
    assert_int_equal(lg_kv_truncate(&kv, 4999), 4999); // the cut holds one row more than a resume at it needs
    assert_int_equal(kv.cut[0].pos, 0);                // and is gone: its last row may come out differently
    assert_int_equal(kv.cut[1].pos, 2500);
    for (int i = 0; i < 20; i++)
        add(&kv, 200);
    assert_int_equal(lg_kv_truncate(&kv, 4998), 2500);
    add(&kv, 256);
    assert_int_equal(lg_kv_truncate(&kv, 100), 0);
    assert_true(lg_kv_check(&kv));
    assert_int_equal(kv.pool[LG_KV_WINDOW].n_unused, kv.cls[LG_KV_WINDOW].n_blocks);
    lg_kv_destroy(&kv);
    // where the pool holds the whole context, every rewind is a length change and cuts are not made
    kv = make(640, 512, 256, 0);
    add(&kv, 256);
    lg_kv_cut_here(&kv);
    assert_int_equal(kv.cut[0].pos, 0);
    lg_kv_destroy(&kv);
}

// What the walk remembers of the two newest cuts.
typedef struct marks {
    int64_t at[LG_KV_CUTS];
} marks;

static int64_t best_mark(const marks *m, int64_t pos)
{
    int64_t best = 0;

    for (int i = 0; i < LG_KV_CUTS; i++)
        if (m->at[i] <= pos + 1 && m->at[i] > best)
            best = m->at[i];
    return best < pos ? best : pos;
}

static void step_back(lg_kv *kv, marks *m, uint64_t *rng)
{
    int64_t to = kv->pos - (int64_t)(mk_uniform(rng) * mk_uniform(rng) * 600);

    to = to < 0 ? 0 : to;
    int64_t want = lg_kv_holds(kv, to) || to == 0 ? to : best_mark(m, to);
    assert_int_equal(lg_kv_truncate(kv, to), want);
    for (int i = 0; i < LG_KV_CUTS; i++)
        if (m->at[i] > want)
            m->at[i] = 0;
}

static void mark_here(lg_kv *kv, marks *m)
{
    lg_kv_cut_here(kv);
    if (kv->pos == 0 || m->at[0] == kv->pos)
        return;
    m->at[1] = m->at[0];
    m->at[0] = kv->pos;
}

// Each row that is written is noted; every table entry must lead to the row written last for its position.
static void random_walk(void **state)
{
    enum { CTX = 3000, STEPS = 20000 };
    static int64_t row_of[2][200][LG_KV_BLOCK]; // [class][block][row] -> position written there
    uint64_t rng = 42;
    marks m = {{0}};
    lg_kv kv = make(CTX, 100, 90, 0);

    (void)state;
    for (int s = 0; s < STEPS; s++) {
        double what = mk_uniform(&rng);
        int n = 1 + (int)(mk_uniform(&rng) * 90);
        if (what < 0.6 && kv.pos + n <= CTX) {
            n_copies = 0;
            assert_int_equal(lg_kv_grow(&kv, n, NULL), LG_OK);
            for (int r = 0; n_copies && r < last_copy.rows; r++)
                row_of[1][last_copy.dst_block][r] = row_of[1][last_copy.src_block][r];
            for (int64_t p = kv.pos; p < kv.pos + n; p++)
                for (int c = 0; c < 2; c++)
                    row_of[c][kv.pool[c].table[p / LG_KV_BLOCK]][p % LG_KV_BLOCK] = p;
            if (what < 0.55)
                lg_kv_commit(&kv, n); // else the step failed
        } else if (what < 0.8) {
            step_back(&kv, &m, &rng);
        } else {
            mark_here(&kv, &m);
        }
        assert_true(lg_kv_check(&kv));
        for (int c = 0; c < 2; c++)
            for (int64_t p = c && kv.pos > 99 ? kv.pos - 99 : 0; p < kv.pos; p++) {
                assert_true(kv.pool[c].table[p / LG_KV_BLOCK] >= 0);
                assert_int_equal(row_of[c][kv.pool[c].table[p / LG_KV_BLOCK]][p % LG_KV_BLOCK], p);
            }
    }
    lg_kv_destroy(&kv);
}

// A cache with a drafter, whose rows follow those of the sequence.
static lg_kv make_drafting(int64_t ctx, int window, int draft_window, int max_rows)
{
    lg_kv_class draft = make_class(LG_KV_DRAFT, draft_window);
    lg_kv kv = make(ctx, window, max_rows, 0);

    assert_int_equal(lg_kv_add_draft(&kv, &draft, max_rows, 0, NULL), LG_OK);
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
    lg_kv_cut_here(&kv);
    for (int i = 0; i < 30; i++)
        add_both(&kv, 128);
    assert_int_equal(lg_kv_truncate(&kv, back), back);
    assert_int_equal(kv.draft_from, 0);
    assert_draft_visible(&kv);
    assert_int_equal(lg_kv_truncate(&kv, 0), 0);
    assert_int_equal(kv.draft_to, 0);
    assert_true(lg_kv_check(&kv));
    lg_kv_destroy(&kv);
}

static void drafter_starts_anew(void **state)
{
    lg_kv kv = make_drafting(100000, 512, 512, 128);

    (void)state;
    for (int i = 0; i < 20; i++)
        add(&kv, 100); // rows that the drafter never got
    lg_kv_cut_here(&kv);
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
    assert_int_equal(lg_kv_truncate(&kv, 2000), 2000);
    assert_true(lg_kv_check(&kv));
    add_both(&kv, 128);
    assert_int_equal(kv.draft_from, 2048);
    lg_kv_destroy(&kv);
}

// A wider window than the model's: what the model can rewind, the drafter may have lost.
static void drafter_walk(void **state)
{
    unsigned seed = 7;

    (void)state;
    for (int windows = 0; windows < 3; windows++) {
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
            else if (what < 12)
                lg_kv_cut_here(&kv);
            else
                (void)lg_kv_truncate(&kv, kv.pos > n * 20 ? kv.pos - n * (what == 12 ? 20 : 1) : 0);
            assert_true(lg_kv_check(&kv));
            assert_true(kv.draft_from % LG_KV_BLOCK == 0 || kv.draft_from == kv.draft_to);
            if (kv.draft_to == kv.pos)
                assert_draft_visible(&kv);
        }
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
        cmocka_unit_test(random_walk),
        cmocka_unit_test(drafter_follows),
        cmocka_unit_test(drafter_starts_anew),
        cmocka_unit_test(drafter_walk),
    };

    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
