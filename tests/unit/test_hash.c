/*
 * unit/test_hash: published values, and that pieces give what the whole gives.
 */
#include "check.h"

#include "base/hash.h"

static void known_values(void **state)
{
    lg_hash128 h;

    (void)state;
    assert_true(lg_hash_64("", 0, 0) == 0x2D06800538D394C2u);
    assert_true(lg_hash_64(NULL, 0, 0) == 0x2D06800538D394C2u);
    h = lg_hash_128("", 0, 0);
    assert_true(h.hi == 0x99AA06D3014798D8u && h.lo == 0x6001C324468D497Fu);
    assert_true(lg_hash_64("a", 1, 0) == 0xE6C632B61E964E1Fu);
    assert_true(lg_hash_64("abc", 3, 0) == 0x78AF5F94892F3950u);
    assert_true(lg_hash_64("abc", 3, 1) != lg_hash_64("abc", 3, 0));
    assert_true(lg_hash128_eq(h, h));
    assert_false(lg_hash128_eq(h, lg_hash_128("a", 1, 0)));
}

static void pieces(void **state)
{
    enum { N = 5000 };
    unsigned char data[N];
    lg_hasher *h = NULL;

    (void)state;
    for (size_t i = 0; i < N; i++)
        data[i] = (unsigned char)(i * 31 >> 2);
    assert_int_equal(lg_hasher_create(7, &h, NULL), LG_OK);
    for (size_t step = 1; step < N; step = step * 3 + 1) {
        lg_hasher_reset(h, step);
        for (size_t at = 0; at < N; at += step)
            lg_hasher_add(h, data + at, step < N - at ? step : N - at);
        lg_hasher_add(h, NULL, 0);
        assert_true(lg_hasher_64(h) == lg_hash_64(data, N, step));
        assert_true(lg_hash128_eq(lg_hasher_128(h), lg_hash_128(data, N, step)));
        assert_true(lg_hasher_64(h) == lg_hash_64(data, N, step));
    }
    lg_hasher_destroy(h);
    lg_hasher_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_values), cmocka_unit_test(pieces)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
