/*
 * unit/test_err: the error line, its cleaning, and the overflow-safe sums.
 */
#include "check.h"

static void set_and_line(void **state)
{
    lg_err err = {0};

    (void)state;
    assert_int_equal(LG_FAIL(&err, LG_E_INPUT, "%d is too many", 7), LG_E_INPUT);
    assert_line(&err, "7 is too many");
    assert_int_equal(lg_err_subject(&err, "%s", "a.gguf"), LG_E_INPUT);
    assert_int_equal(lg_err_subject(&err, "%s", "later ones do not count"), LG_E_INPUT);
    assert_line(&err, "a.gguf: 7 is too many");
    assert_int_equal(err.code, LG_E_INPUT);
    assert_non_null(strstr(err.file, "test_err.c"));
    assert_true(err.line > 0);
}

static void null_error(void **state)
{
    (void)state;
    assert_int_equal(LG_FAIL(NULL, LG_E_IO, "unseen"), LG_E_IO);
    assert_int_equal(lg_err_subject(NULL, "unseen"), LG_OK);
}

static void control_bytes(void **state)
{
    lg_err err = {0};

    (void)state;
    (void)LG_FAIL(&err, LG_E_INPUT, "a\x1b[2J\n\x7f");
    (void)lg_err_subject(&err, "s\r\n");
    assert_line(&err, "s??: a?[2J??");
}

static void cut_on_a_character(void **state)
{
    lg_err err = {0};
    char text[400];

    (void)state;
    for (size_t lead = 0; lead < 4; lead++) {
        memset(text, 'x', lead);
        for (size_t i = lead; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "\xF0\x9F\x98\x80", 5);
        (void)LG_FAIL(&err, LG_E_INPUT, "%s", text);
        size_t n = strlen(err.msg);
        assert_true(n < sizeof err.msg && n >= sizeof err.msg - 5);
        assert_int_equal(lg_utf8_complete(err.msg, n), n);
        assert_int_equal((n - lead) % 4, 0);
    }
}

static void short_line_buffer(void **state)
{
    lg_err err = {0};
    char line[8];

    (void)state;
    (void)LG_FAIL(&err, LG_E_INPUT, "a long message");
    assert_string_equal(lg_err_line(&err, line, sizeof line), "a long ");
}

static void sums(void **state)
{
    size_t r = 7;

    (void)state;
    assert_true(lg_mul_size(3, 5, &r));
    assert_int_equal(r, 15);
    assert_true(lg_add_size(SIZE_MAX - 1, 1, &r));
    assert_true(r == SIZE_MAX);
    r = 7;
    assert_false(lg_mul_size(SIZE_MAX / 2, 3, &r));
    assert_false(lg_add_size(SIZE_MAX, 1, &r));
    assert_int_equal(r, 7);
    assert_true(lg_mul_size(0, SIZE_MAX, &r));
    assert_int_equal(r, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_and_line),      cmocka_unit_test(null_error),
        cmocka_unit_test(control_bytes),     cmocka_unit_test(cut_on_a_character),
        cmocka_unit_test(short_line_buffer), cmocka_unit_test(sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
