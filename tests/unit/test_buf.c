/*
 * unit/test_buf: growth, the maximum, sticky failure, and memory that runs out.
 */
#include "check.h"

#include "base/buf.h"
#include "fault.h"

static void appends(void **state)
{
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 1 << 20);
    assert_true(lg_buf_add(&b, "a\0b", 3));
    assert_true(lg_buf_adds(&b, LG_STR("cd")));
    assert_true(lg_buf_addz(&b, "ef"));
    assert_true(lg_buf_addc(&b, 'g'));
    assert_true(lg_buf_addf(&b, "%d-%s", 7, "x"));
    assert_true(lg_buf_add(&b, NULL, 0));
    assert_str(lg_buf_str(&b), "a\0bcdefg7-x");
    assert_int_equal(lg_buf_z(&b)[b.n], 0);
    lg_buf_clear(&b);
    assert_string_equal(lg_buf_z(&b), "");
    lg_buf_free(&b);
    assert_null(b.p);
    assert_int_equal(b.max, 1 << 20);
}

static void long_format(void **state)
{
    char text[5000];
    lg_buf b;

    (void)state;
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = 0;
    lg_buf_init(&b, sizeof text); // one to spare: the NUL of printf must not count
    assert_true(lg_buf_addf(&b, "%s%s", text, "z"));
    assert_int_equal(b.n, sizeof text);
    assert_string_equal(lg_buf_z(&b) + sizeof text - 2, "yz");
    lg_buf_free(&b);
}

static void maximum(void **state)
{
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 5);
    assert_true(lg_buf_addz(&b, "abc"));
    assert_true(lg_buf_addz(&b, "de"));
    assert_string_equal(lg_buf_z(&b), "abcde"); // the NUL has room beyond
    assert_false(lg_buf_addc(&b, 'f'));
    assert_true(b.failed);
    assert_str(lg_buf_str(&b), "abcde");
    assert_null(lg_buf_z(&b));
    lg_buf_clear(&b);
    assert_false(b.failed);
    assert_true(lg_buf_addz(&b, "ab"));
    assert_false(lg_buf_addf(&b, "%s", "12345"));
    assert_false(lg_buf_addc(&b, 'c')); // would fit, but the content stays a prefix
    assert_str(lg_buf_str(&b), "ab");
    lg_buf_free(&b);

    lg_buf_init(&b, 0);
    assert_true(lg_buf_addz(&b, ""));
    assert_false(lg_buf_addc(&b, 'x'));
    lg_buf_free(&b);
    lg_buf_init(&b, SIZE_MAX);
    assert_null(lg_buf_room(&b, SIZE_MAX));
    assert_true(b.failed);
    lg_buf_free(&b);
}

static void room(void **state)
{
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 100);
    assert_non_null(lg_buf_room(&b, 0));
    char *p = lg_buf_room(&b, 100);
    assert_non_null(p);
    assert_int_equal(b.n, 0);
    memset(p, 'r', 100);
    b.n += 100;
    assert_null(lg_buf_room(&b, 1));
    lg_buf_free(&b);
}

static void out_of_memory(void **state)
{
    lg_buf b;

    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    lg_buf_init(&b, 1 << 20);
    assert_true(lg_buf_addz(&b, "kept"));
    fault_arm(FAULT_ALLOC, 1);
    assert_null(lg_buf_room(&b, 1000));
    assert_int_equal(fault_disarm(), 1);
    assert_true(b.failed);
    assert_str(lg_buf_str(&b), "kept");
    lg_buf_clear(&b);
    assert_non_null(lg_buf_room(&b, 1000));
    lg_buf_free(&b);

    lg_buf_init(&b, 1 << 20);
    fault_arm(FAULT_ALLOC, 1);
    assert_false(lg_buf_addf(&b, "%0999d", 1));
    assert_int_equal(fault_disarm(), 1);
    lg_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends), cmocka_unit_test(long_format),   cmocka_unit_test(maximum),
        cmocka_unit_test(room),    cmocka_unit_test(out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
