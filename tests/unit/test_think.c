/*
 * Tests of engine/think: the phases of the graduated exit, token by token, and engine/ban's mask. The
 * vocabulary is the small recorded one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "engine/ban.h"
#include "engine/think.h"

static lg_gguf *file;
static lg_vocab *vocab;
static lg_bpe *bpe;
static lg_think_tables tables;
static int32_t word, stop; // an ordinary token, and one that ends a sentence

static int set_up(void **state)
{
    lg_ids ids = {0};

    (void)state;
    assert_int_equal(lg_gguf_open(LG_TEST_DIR "/golden/vocab512.gguf", &file, NULL), LG_OK);
    assert_int_equal(lg_vocab_load(file, &vocab, NULL), LG_OK);
    assert_int_equal(lg_bpe_create(vocab, LG_CRLF_HF, &bpe, NULL), LG_OK);
    assert_int_equal(lg_think_tables_make(bpe, &tables, NULL), LG_OK);
    assert_int_equal(lg_bpe_encode(bpe, LG_STR("x."), false, &ids, NULL), LG_OK);
    assert_int_equal(ids.n, 2);
    word = ids.p[0];
    stop = ids.p[1];
    lg_ids_free(&ids);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lg_think_tables_free(&tables);
    lg_bpe_destroy(bpe);
    lg_vocab_destroy(vocab);
    lg_gguf_close(file);
    return 0;
}

// One step inside the reasoning: the edit, then `id` comes unless another one is forced. Returns what came.
static int32_t step(lg_think *k, int32_t id, lg_edit *e)
{
    lg_edit_init(e);
    int32_t forced = lg_think_before(k, true, e);

    if (forced >= 0)
        id = forced;
    lg_think_after(k, id, false, id != tables.end_think);
    return id;
}

static bool masks(const lg_edit *e, int32_t id)
{
    for (int i = 0; i < e->n_mask; i++)
        if (e->mask[i] == id)
            return true;
    return false;
}

static void what_the_tables_hold(void **state)
{
    char text[256];
    size_t n = 0;

    (void)state;
    assert_int_equal(tables.end_think, 19);
    assert_int_equal(tables.n_eog, 2);
    for (int i = 0; i < tables.n_wrap; i++) {
        lg_str s = lg_vocab_bytes(vocab, tables.wrap[i]);
        memcpy(text + n, s.p, s.n);
        n += s.n;
    }
    text[n] = 0;
    assert_string_equal(text, "\nI have thought about this enough; now I will answer.\n");
    for (int i = 0; i < tables.n_cue; i++)
        assert_true(lg_vocab_bytes(vocab, tables.cue[i]).n >= 3);
}

static void no_bound(void **state)
{
    lg_think k;
    lg_edit e;

    (void)state;
    lg_think_init(&k, &tables, vocab, -1, 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(step(&k, word, &e), word);
        assert_true(masks(&e, 2) && masks(&e, 24) && !masks(&e, 19)); // never an end inside the reasoning
        assert_true(e.heir == 19 && e.n_left == 2 && e.lift < 0 && e.n_damp == 0);
    }
    assert_int_equal(step(&k, 19, &e), 19);
    assert_int_equal(k.exit, LG_THINK_NATURAL);
    assert_int_equal(k.injected, 0);
    lg_edit_init(&e);
    assert_int_equal(lg_think_before(&k, false, &e), -1); // nothing outside
    assert_true(lg_edit_empty(&e));
}

static void the_ramps(void **state)
{
    lg_think k;
    lg_edit e;

    (void)state;
    lg_think_init(&k, &tables, vocab, 200, 0);
    for (int n = 0; n < 200; n++) {
        (void)step(&k, word, &e);
        assert_true((e.damp_by > 0) == (n > 150));
        if (n >= 150)
            assert_true(fabsf(e.damp_by - 4 * (float)(n - 150) / 50) < 1e-5f);
        assert_int_equal(e.lift, n >= 180 ? 19 : -1);
        if (n >= 180)
            assert_true(fabsf(e.gap - (12 - 11 * (float)(n - 180) / 20)) < 1e-5f);
    }
    assert_int_equal(k.n, 200);
}

static void waits_for_a_sentence(void **state)
{
    lg_think k;
    lg_edit e;

    (void)state;
    lg_think_init(&k, &tables, vocab, 10, 0);
    for (int i = 0; i < 10 + LG_THINK_WAIT; i++) {
        assert_int_equal(step(&k, word, &e), word);
        if (i >= 10)
            assert_true(e.lift < 0 && e.n_damp == 0); // only waiting
    }
    for (int i = 0; i < tables.n_wrap; i++)
        assert_int_equal(step(&k, word, &e), tables.wrap[i]);
    for (int i = 0; i < LG_THINK_GRACE; i++) {
        assert_int_equal(step(&k, word, &e), word);
        assert_true(e.lift == 19 && e.gap == 0);
    }
    assert_int_equal(step(&k, word, &e), 19);
    assert_int_equal(k.exit, LG_THINK_FORCED);
    assert_int_equal(k.injected, tables.n_wrap + 1);
    assert_int_equal(k.n, 10 + LG_THINK_WAIT);
}

static void a_sentence_ends_the_wait(void **state)
{
    lg_think k;
    lg_edit e;

    (void)state;
    lg_think_init(&k, &tables, vocab, 10, 0);
    for (int i = 0; i < 14; i++)
        assert_int_equal(step(&k, i == 13 ? stop : word, &e), i == 13 ? stop : word);
    for (int i = 0; i < tables.n_wrap; i++)
        assert_int_equal(step(&k, word, &e), tables.wrap[i]);
    assert_int_equal(step(&k, 19, &e), 19);
    assert_int_equal(k.exit, LG_THINK_WRAPPED);
    // a sentence that ends right at the bound needs no wait
    lg_think_init(&k, &tables, vocab, 10, 0);
    for (int i = 0; i < 10; i++)
        (void)step(&k, i == 9 ? stop : word, &e);
    assert_int_equal(step(&k, word, &e), tables.wrap[0]);
}

static void how_it_ended(void **state)
{
    lg_think k;
    lg_edit e;

    (void)state;
    lg_think_init(&k, &tables, vocab, 100, 0);
    for (int i = 0; i < 95; i++)
        (void)step(&k, word, &e);
    lg_edit_init(&e);
    assert_int_equal(lg_think_before(&k, true, &e), -1);
    lg_think_after(&k, 19, true, false);
    assert_int_equal(k.exit, LG_THINK_LIFTED);
    lg_think_init(&k, &tables, vocab, 100, 0);
    lg_edit_init(&e);
    assert_int_equal(lg_think_before(&k, true, &e), -1);
    lg_think_after(&k, 25, false, false); // a tool call ends the reasoning too
    assert_int_equal(k.exit, LG_THINK_NATURAL);
}

static void a_bound_of_zero(void **state)
{
    lg_think k;
    lg_edit e;

    (void)state;
    lg_think_init(&k, &tables, vocab, 0, 5); // the bound wins over the floor
    assert_int_equal(step(&k, word, &e), 19);
    assert_int_equal(k.exit, LG_THINK_FORCED);
    assert_int_equal(k.injected, 1);
}

// The way out would take more than the reply may have: half of the reserve stays for the answer.
static void room_for_the_answer(void **state)
{
    lg_think k;
    lg_edit e;
    int n = 0;

    (void)state;
    lg_think_init(&k, &tables, vocab, 225, 0);
    lg_think_limit(&k, 300); // keeps 75
    while (step(&k, word, &e) != 19)
        n++;
    assert_int_equal(n, 300 - 75 / 2);
    assert_int_equal(k.exit, LG_THINK_FORCED);
    lg_think_init(&k, &tables, vocab, -1, 0); // no bound, no promise
    lg_think_limit(&k, 300);
    for (int i = 0; i < 400; i++)
        assert_int_equal(step(&k, word, &e), word);
}

static void the_floor(void **state)
{
    lg_think k;
    lg_edit e;

    (void)state;
    lg_think_init(&k, &tables, vocab, 100, 95);
    for (int i = 0; i < 97; i++) {
        (void)step(&k, word, &e);
        assert_int_equal(masks(&e, 19), i < 95);
        assert_true(masks(&e, 2) && masks(&e, 24));
        assert_int_equal(e.heir, i < 95 ? -1 : 19);
        assert_int_equal(e.lift, i < 95 ? -1 : 19);
    }
}

static bool allowed(const uint32_t *bits, int32_t id)
{
    return bits[id / 32] >> (id % 32) & 1;
}

static void banned_strings(void **state)
{
    lg_str ban[] = {LG_STR("he"), LG_STR(""), LG_STR("think")};
    uint32_t bits[16];
    int n = 0;

    (void)state;
    memset(bits, 0xff, sizeof bits);
    assert_int_equal(lg_ban_mask(vocab, ban, 2, bits), 0);
    for (int32_t id = 0; id < 512; id++) {
        lg_str s = lg_vocab_bytes(vocab, id);
        bool hit = !lg_vocab_is_added(vocab, id) && lg_str_find(s, LG_STR("he"), 0) != SIZE_MAX;
        assert_int_equal(allowed(bits, id), !hit);
        n += hit;
    }
    assert_true(n > 1);
    memset(bits, 0xff, sizeof bits);
    assert_int_equal(lg_ban_mask(vocab, ban + 2, 1, bits), 2); // <think> and </think>
    assert_true(allowed(bits, 18) && allowed(bits, 19));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_tables_hold),
        cmocka_unit_test(no_bound),
        cmocka_unit_test(the_ramps),
        cmocka_unit_test(waits_for_a_sentence),
        cmocka_unit_test(a_sentence_ends_the_wait),
        cmocka_unit_test(how_it_ended),
        cmocka_unit_test(a_bound_of_zero),
        cmocka_unit_test(room_for_the_answer),
        cmocka_unit_test(the_floor),
        cmocka_unit_test(banned_strings),
    };

    return cmocka_run_group_tests_name("think", tests, set_up, tear_down);
}
