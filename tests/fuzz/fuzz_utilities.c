/*
 * fuzz/fuzz_utilities: bodies of /tokenize, /detokenize and /apply-template.
 */
#include "body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void run(lg_utility_fn fn, const lg_json *body)
{
    const lg_request rq = {.method = LG_STR("POST")};
    lg_api_error e = {0};
    lg_arena a;
    lg_buf out;

    lg_arena_init(&a, (size_t)1 << 24);
    lg_buf_init(&out, 1 << 22);
    if (fn(dk_service(), &rq, body, &a, &out, &e) != LG_OK) {
        LG_ASSERT(e.message[0] && lg_api_status(&e) < 500);
        lg_buf_clear(&out);
        lg_api_error_json(&e, LG_SHAPE_OPENAI, "req_0", &out);
    }
    body_check_frame(NULL, LG_STR(""), lg_buf_str(&out));
    lg_buf_free(&out);
    lg_arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const lg_json_limits lim = {.max_bytes = BODY_MAX, .max_depth = 512, .repair = true};
    lg_json_doc *doc = NULL;

    if (lg_json_parse((lg_str){(const char *)data, n}, &lim, &doc, NULL) != LG_OK)
        return 0;
    if (lg_json_is(lg_json_root(doc), LG_JSON_OBJECT)) {
        run(lg_util_tokenize, lg_json_root(doc));
        run(lg_util_detokenize, lg_json_root(doc));
        run(lg_util_apply_template, lg_json_root(doc));
    }
    lg_json_free(doc);
    return 0;
}
