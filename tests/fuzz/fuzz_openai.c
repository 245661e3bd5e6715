/*
 * fuzz/fuzz_openai: bodies of the OpenAI dialects. The first byte chooses the dialect (c chat, r responses, t
 * completions, i infill), the second one what the model writes; the rest is the body.
 *
 * Properties: a body that is a JSON object is either taken, or refused with a status of the client's and
 * words; what was taken leads to an answer whose every piece is JSON.
 */
#include "support/play.h"

enum { MAX_BYTES = 1 << 16, DEPTH = 512 };

static const td_script scripts[] = {
    {.text = {"why{19}so{24}", "a{24}", "b{24}", "", "", "", "", ""}},
    {.text =
         {"why{19}x{25}ls<arg_key>n</arg_key><arg_value>3</arg_value>{26}{25}apply_patch<arg_key>input</arg_key>"
          "<arg_value>a\\\"\n\t</arg_value>{26}{24}",
          "", "", "", "", "", "", ""}},
    {.text = {"{19}{25}ls<arg_key>input</arg_key><arg_value>cut \xC3\xA9", "", "", "", "", "", "", ""},
     .how = LG_END_LENGTH},
    {.text = {"half", "", "", "", "", "", "", ""}, .error = true},
    {.text = {"{19}{\"a\": 1}", "", "", "", "", "", "", ""}, .how = LG_END_SCHEMA, .logprobs = true},
};

static const lg_dialect *dialect_of(uint8_t c)
{
    switch (c) {
    case 'c': return &lg_dialect_chat;
    case 'r': return &lg_dialect_responses;
    case 't': return &lg_dialect_completions;
    case 'i': return &lg_dialect_infill;
    default: return NULL;
    }
}

static void check_json(lg_str text)
{
    lg_json_limits lim = {.max_bytes = text.n, .max_depth = 2 * DEPTH};
    lg_json_doc *doc = NULL;

    LG_ASSERT(lg_json_parse(text, &lim, &doc, NULL) == LG_OK);
    lg_json_free(doc);
}

static void check_answer(const td_run *r)
{
    size_t at = 0;
    lg_str name, data;

    if (!r->job->stream) {
        check_json(lg_buf_str(&r->out));
        return;
    }
    while (td_event(lg_buf_str(&r->out), &at, &name, &data))
        if (!lg_str_eqz(data, "[DONE]"))
            check_json(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    lg_json_limits lim = {.max_bytes = MAX_BYTES, .max_depth = DEPTH, .repair = true};
    const lg_dialect *d = n > 2 ? dialect_of(data[0]) : NULL;
    lg_json_doc *doc = NULL;
    td_run r;

    if (!d || lg_json_parse((lg_str){(const char *)data + 2, n - 2}, &lim, &doc, NULL) != LG_OK)
        return 0;
    if (!lg_json_is(lg_json_root(doc), LG_JSON_OBJECT)) { // the transport refuses it
        lg_json_free(doc);
        return 0;
    }
    td_take(d, doc, &r);
    if (r.st == LG_OK) {
        LG_ASSERT(r.job->prompt.n > 0 && r.job->n_choice > 0 && r.job->max_tokens > 0);
        const td_script *s = &scripts[data[1] % (sizeof scripts / sizeof *scripts)];
        if (r.job->stream || !s->error) { // without a stream the transport itself answers with the error
            td_go(s, data[1] % 7, &r);
            check_answer(&r);
        }
    } else {
        LG_ASSERT(lg_api_status(&r.error) >= 400 && lg_api_status(&r.error) < 500);
        LG_ASSERT(r.error.message[0] != 0);
    }
    td_free(&r);
    return 0;
}
