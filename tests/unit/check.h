/*
 * unit/check: cmocka with the headers it wants, and the few checks that the tests of base share.
 */
#ifndef LG_TEST_CHECK_H
#define LG_TEST_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/str.h"

/* A slice equals a literal that may hold NUL bytes. */
#define assert_str(s, lit)                            \
    do {                                              \
        lg_str got_ = (s);                            \
        assert_int_equal(got_.n, sizeof(lit) - 1);    \
        if (got_.n)                                   \
            assert_memory_equal(got_.p, lit, got_.n); \
    } while (0)

/* The user's line of an error. */
#define assert_line(err, want)                                              \
    do {                                                                    \
        char line_[512];                                                    \
        assert_string_equal(lg_err_line((err), line_, sizeof line_), want); \
    } while (0)

#endif
