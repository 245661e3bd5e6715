/*
 * fuzz/fuzz_messages: bodies of the Messages API; the same body is counted, too.
 */
#include "body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void count(const uint8_t *data, size_t n)
{
    const lg_json_limits lim = {.max_bytes = BODY_MAX, .max_depth = 512, .repair = true};
    const lg_request rq = {.method = LG_STR("POST")};
    lg_json_doc *doc = NULL;
    lg_api_error e = {0};
    lg_arena a;
    lg_buf out;

    LG_ASSERT(lg_json_parse((lg_str){(const char *)data, n}, &lim, &doc, NULL) == LG_OK);
    lg_arena_init(&a, (size_t)1 << 24);
    lg_buf_init(&out, 1 << 12);
    LG_ASSERT(lg_util_count_tokens(dk_service(), &rq, lg_json_root(doc), &a, &out, &e) == LG_OK);
    body_check_frame(NULL, LG_STR(""), lg_buf_str(&out));
    lg_buf_free(&out);
    lg_arena_free(&a);
    lg_json_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > BODY_MAX)
        return 0;
    bool accepted = body_run(&lg_dialect_messages, data, n, false);
    LG_ASSERT(body_run(&lg_dialect_messages, data, n, true) == accepted);
    if (accepted)
        count(data, n);
    return 0;
}
