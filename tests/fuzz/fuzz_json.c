/*
 * fuzz/fuzz_json: any bytes through base/json, with and without repair. What parses must dump, the dump must
 * parse to the same dump, and every accessor must answer on every node.
 */
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static size_t walk(const lg_json *j)
{
    size_t sum = lg_json_str(j).n + lg_json_number_text(j).n;
    int64_t i;
    double d;
    bool b;

    LG_ASSERT(lg_json_is(j, LG_JSON_NUMBER) || (!lg_json_i64(j, &i) && !lg_json_f64(j, &d)));
    LG_ASSERT(lg_json_bool(j, &b) == (lg_json_is(j, LG_JSON_TRUE) || lg_json_is(j, LG_JSON_FALSE)));
    if (lg_json_i64(j, &i) && lg_json_f64(j, &d)) // both readings agree as far as a double goes
        LG_ASSERT((double)i == d);
    for (size_t k = 0; k < lg_json_len(j); k++) {
        lg_str key = {0};
        const lg_json *child = lg_json_is(j, LG_JSON_ARRAY) ? lg_json_at(j, k) : lg_json_member(j, k, &key);
        LG_ASSERT(child != NULL);
        if (lg_json_is(j, LG_JSON_OBJECT))
            LG_ASSERT(lg_json_getn(j, key) == child);
        sum += walk(child);
    }
    LG_ASSERT(lg_json_at(j, lg_json_len(j)) == NULL && lg_json_member(j, lg_json_len(j), NULL) == NULL);
    return sum;
}

static void dump(const lg_json_doc *doc, lg_buf *out)
{
    lg_buf_clear(out);
    LG_ASSERT(lg_json_dump(lg_json_root(doc), out));
}

static void check(lg_str text, bool repair)
{
    lg_json_limits lim = {.max_bytes = 1 << 20, .max_depth = 64, .repair = repair};
    lg_json_doc *doc, *again;
    lg_err err = {0};
    lg_buf one, two;

    if (lg_json_parse(text, &lim, &doc, &err) != LG_OK) {
        LG_ASSERT(err.code != LG_OK && err.msg[0]);
        return;
    }
    lg_buf_init(&one, 1 << 26);
    lg_buf_init(&two, 1 << 26);
    (void)walk(lg_json_root(doc));
    dump(doc, &one);
    // infinities are Python's, not JSON's
    if (lg_str_find(lg_buf_str(&one), LG_STR("Infinity"), 0) == SIZE_MAX) {
        lim = (lg_json_limits){.max_bytes = 1 << 26, .max_depth = 64, .repair = false};
        LG_ASSERT(lg_json_parse(lg_buf_str(&one), &lim, &again, &err) == LG_OK);
        dump(again, &two);
        LG_ASSERT(lg_str_eq(lg_buf_str(&one), lg_buf_str(&two)));
        lg_json_free(again);
    }
    lg_buf_free(&one);
    lg_buf_free(&two);
    lg_json_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    lg_str text = {(const char *)data, n};
    lg_buf out;

    check(text, true);
    check(text, false);
    lg_buf_init(&out, 16 * n + 16);
    LG_ASSERT(lg_json_quote(text, &out));
    check(lg_buf_str(&out), false); // whatever the bytes: a quoted string is JSON
    lg_buf_free(&out);
    return 0;
}
