/*
 * unit/test_arena: zeroing, alignment, the limit, mark and reset, and memory that runs out.
 */
#include "check.h"

#include "base/arena.h"
#include "fault.h"

static bool all_zero(const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)p)[i])
            return false;
    return true;
}

static void zeroed_and_aligned(void **state)
{
    lg_arena a;

    (void)state;
    lg_arena_init(&a, 64 << 20);
    for (int round = 0; round < 2; round++) {
        lg_mark m = lg_arena_mark(&a);
        for (size_t n = 0; n < 300; n++) {
            unsigned char *p = lg_arena_alloc(&a, n * n);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 16, 0);
            assert_true(all_zero(p, n * n));
            memset(p, 0xAA, n * n); // what the second round must not see
        }
        lg_arena_reset(&a, m);
        assert_int_equal(a.used, 0);
    }
    lg_arena_free(&a);
}

static void distinct(void **state)
{
    lg_arena a;

    (void)state;
    lg_arena_init(&a, 1 << 20);
    char *x = lg_arena_alloc(&a, 0), *y = lg_arena_alloc(&a, 0), *z = lg_arena_dup(&a, "ab\0cd", 5);
    assert_true(x != y && y != z);
    assert_memory_equal(z, "ab\0cd\0", 6);
    lg_arena_free(&a);
}

static void limit(void **state)
{
    lg_arena a;

    (void)state;
    lg_arena_init(&a, 100);
    assert_non_null(lg_arena_alloc(&a, 90)); // counts as 96
    assert_null(lg_arena_alloc(&a, 16));
    assert_null(lg_arena_alloc(&a, 1));
    assert_null(lg_arena_alloc(&a, SIZE_MAX));
    assert_null(lg_arena_alloc(&a, SIZE_MAX - 8));
    assert_null(lg_arena_alloc_n(&a, SIZE_MAX / 2, 3));
    assert_null(lg_arena_dup(&a, "x", SIZE_MAX));
    lg_arena_free(&a);
    assert_non_null(lg_arena_alloc(&a, 90)); // free keeps the limit
    lg_arena_free(&a);
}

static void reset_reuses_chunks(void **state)
{
    lg_arena a;

    (void)state;
    lg_arena_init(&a, 64 << 20);
    assert_non_null(lg_arena_alloc(&a, 1));
    lg_mark m = lg_arena_mark(&a);
    long before = fault_calls(FAULT_ALLOC);
    for (int i = 0; i < 100; i++)
        assert_non_null(lg_arena_alloc(&a, 5000));
    long first = fault_calls(FAULT_ALLOC) - before;
    for (int round = 0; round < 3; round++) {
        lg_arena_reset(&a, m);
        for (int i = 0; i < 100; i++)
            assert_non_null(lg_arena_alloc(&a, 5000));
    }
    if (LG_HAVE_FAULT) {
        assert_true(first > 0);
        assert_int_equal(fault_calls(FAULT_ALLOC) - before, first);
    }
    lg_arena_free(&a);
}

static void out_of_memory(void **state)
{
    lg_arena a;

    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    lg_arena_init(&a, 64 << 20);
    assert_non_null(lg_arena_alloc(&a, 100));
    fault_arm(FAULT_ALLOC, 1);
    assert_null(lg_arena_alloc(&a, 1 << 20));
    assert_int_equal(fault_disarm(), 1);
    assert_non_null(lg_arena_alloc(&a, 1 << 20)); // and it goes on
    lg_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_and_aligned),  cmocka_unit_test(distinct),      cmocka_unit_test(limit),
        cmocka_unit_test(reset_reuses_chunks), cmocka_unit_test(out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
