/*
 * Tests of engine/guide, constraint and what generate does with them: whole replies of a model with random
 * weights that must be values of their schema whatever it would rather say, calls that must be calls, and the
 * cache of compiled constraints.
 */
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/constraint.h"
#include "fault.h"
#include "grammar/grammar_int.h"

static const char model_path[] = LG_TEST_DIR "/golden/laguna-tiny-xs.gguf";
enum { EOS = 2, THINK = 18, END_THINK = 19, ASSISTANT = 23, TOOL_CALL = 25, END_TOOL_CALL = 26 };

typedef struct heard {
    lg_buf content, reasoning, calls; /* calls: "name(arguments) " */
} heard;

static void on_event(void *ctx, const lg_event *ev)
{
    heard *h = ctx;

    switch (ev->kind) {
    case LG_EV_REASONING: (void)lg_buf_adds(&h->reasoning, ev->text); break;
    case LG_EV_CONTENT: (void)lg_buf_adds(&h->content, ev->text); break;
    case LG_EV_TOOL_START: (void)lg_buf_addf(&h->calls, "%.*s(", (int)ev->text.n, ev->text.p); break;
    case LG_EV_TOOL_ARGS: (void)lg_buf_adds(&h->calls, ev->text); break;
    case LG_EV_TOOL_END: (void)lg_buf_addz(&h->calls, ") "); break;
    }
}

static void hear(heard *h)
{
    lg_buf_init(&h->content, 1 << 20);
    lg_buf_init(&h->reasoning, 1 << 20);
    lg_buf_init(&h->calls, 1 << 20);
}

static void forget(heard *h)
{
    lg_buf_free(&h->content);
    lg_buf_free(&h->reasoning);
    lg_buf_free(&h->calls);
}

static lg_engine *open_engine(void)
{
    lg_engine *e;
    lg_err err = {0};

    if (lg_engine_open(&(lg_engine_params){.model_path = model_path,
                                           .backend = {.device = "cpu", .threads = 1},
                                           .ctx = 1024,
                                           .kv_type = LG_F32,
                                           .chunk = 64},
                       &e, &err) != LG_OK)
        fail_msg("%s", err.msg);
    return e;
}

static lg_gen_params params(heard *h, uint64_t seed)
{
    lg_gen_params p = {.sampling = lg_sampling_default(),
                       .max_tokens = 400,
                       .max_think = -1,
                       .max_reply_bytes = 1 << 20,
                       .event = on_event,
                       .ctx = h};

    p.sampling.seed = seed;
    return p;
}

static lg_constraint *compile(const lg_constraint_spec *s)
{
    lg_constraint *c = NULL;
    lg_grammar_error why;
    lg_err err = {0};

    if (lg_constraint_get(NULL, s, &c, &why, &err) != LG_OK)
        fail_msg("%s", err.msg);
    return c;
}

static lg_constraint *of_schema(const char *schema)
{
    return compile(&(lg_constraint_spec){.kind = LG_CONSTRAIN_SCHEMA, .schema = lg_str_of(schema)});
}

static lg_ids run(lg_engine *e, const int32_t *prompt, size_t n, const lg_gen_params *p, lg_gen_stats *s)
{
    lg_ids ids = {0};
    lg_err err = {0};

    if (lg_generate(e, prompt, n, p, s, &ids, &err) != LG_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(ids.n, s->output_tokens);
    return ids;
}

static void assert_value(const char *schema, lg_str text)
{
    bool holds = false;
    lg_err err = {0};

    if (lg_schema_evaluate(lg_str_of(schema), text, &holds, &err) != LG_OK || !holds)
        fail_msg("%s\nis no value of %s (%s)", text.p ? text.p : "", schema, err.msg);
}

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":99},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"ab\"]},\"maxItems\":3}},"
    "\"required\":[\"id\",\"tags\"],\"additionalProperties\":false}",
    "{\"enum\":[\"red\",\"green\",\"blue\"]}",
    "{\"type\":\"integer\",\"minimum\":-5,\"maximum\":300}",
    "{\"type\":\"string\",\"pattern\":\"^[a-f]{3,9}$\"}",
    "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":2,\"maxItems\":4}",
    "{\"type\":\"string\",\"format\":\"date\"}",
    "{\"type\":\"string\",\"maxLength\":12}",
};

static void every_reply_is_a_value(void **state)
{
    const int32_t prompt[] = {EOS, ASSISTANT, END_THINK, 90, 91};
    lg_engine *e = open_engine();

    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        lg_constraint *c = of_schema(schemas[i]);
        for (uint64_t seed = 0; seed < 12; seed++) {
            heard h;
            hear(&h);
            lg_gen_params p = params(&h, seed);
            lg_logit_bias dislike = {300, -100};
            lg_str stop[] = {LG_STR("\""), LG_STR("1")}, ban[] = {LG_STR("e")};
            lg_gen_stats s;
            lg_constraint_apply(c, &p);
            p.sampling.temperature = seed % 4 ? (float)seed / 4 : 0;
            p.sampling.bias = &dislike; // every third from the full row
            p.sampling.n_bias = seed % 3 == 0;
            p.reply.stop = stop; // nobody looks for them in a value
            p.reply.n_stop = 2;
            p.ban = ban; // makes some of the values impossible; then it is no ban
            p.n_ban = seed % 5 == 0;
            lg_ids ids = run(e, prompt, 5, &p, &s);
            assert_int_equal(s.end, LG_END_SCHEMA);
            assert_int_equal(s.finish, LG_FINISH_STOP);
            assert_value(schemas[i], lg_buf_str(&h.content));
            lg_ids_free(&ids);
            forget(&h);
        }
        lg_constraint_release(c);
    }
    lg_engine_close(e);
}

// White space is part of the answer, also where the template family trims answers.
static void an_answer_is_verbatim(void **state)
{
    const int32_t prompt[] = {EOS, ASSISTANT, END_THINK};
    static const lg_template_family family[] = {LG_TEMPLATE_S21, LG_TEMPLATE_V2};
    lg_engine *e = open_engine();
    lg_constraint *c =
        compile(&(lg_constraint_spec){.kind = LG_CONSTRAIN_REGEX, .schema = LG_STR(" \\n[ab] {2}")});

    (void)state;
    for (int i = 0; i < 2; i++) {
        heard h;
        hear(&h);
        lg_gen_params p = params(&h, 1);
        lg_gen_stats s;
        lg_constraint_apply(c, &p);
        p.reply.family = family[i];
        lg_ids ids = run(e, prompt, 3, &p, &s);
        assert_int_equal(h.content.n, 5);
        assert_true(h.content.p[0] == ' ' && h.content.p[1] == '\n' && h.content.p[4] == ' ');
        lg_ids_free(&ids);
        forget(&h);
    }
    lg_constraint_release(c);
    lg_engine_close(e);
}

// The value comes after the reasoning, which ends with nothing but its tag, by itself or by its bound.
static void thinking_comes_first(void **state)
{
    const int32_t prompt[] = {EOS, ASSISTANT, THINK};
    lg_engine *e = open_engine();
    lg_constraint *c = of_schema(schemas[0]);

    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        heard h;
        hear(&h);
        lg_gen_params p = params(&h, seed);
        lg_gen_stats s;
        size_t at = 0;
        lg_constraint_apply(c, &p);
        p.sampling.temperature = 3;
        p.reply.thinking = p.reply.open_reasoning = true;
        p.max_tokens = 800;
        p.max_think = seed % 2 ? 30 : 5;
        lg_ids ids = run(e, prompt, 3, &p, &s);
        while (at < ids.n && ids.p[at] != END_THINK) {
            assert_false(lg_vocab_is_eog(lg_engine_vocab(e), ids.p[at]));
            assert_true(ids.p[at] != TOOL_CALL && ids.p[at] != ASSISTANT);
            at++;
        }
        assert_true(at < ids.n && s.think_tokens > 0 && s.end == LG_END_SCHEMA);
        assert_value(schemas[0], lg_buf_str(&h.content));
        lg_ids_free(&ids);
        forget(&h);
    }
    lg_constraint_release(c);
    lg_engine_close(e);
}

// A limit inside the value leaves a beginning of one.
static void a_limit_cuts(void **state)
{
    const int32_t prompt[] = {EOS, ASSISTANT, END_THINK};
    lg_engine *e = open_engine();
    lg_constraint *c = of_schema(schemas[0]);
    heard h;
    lg_gen_stats s;

    (void)state;
    hear(&h);
    lg_gen_params p = params(&h, 1);
    lg_constraint_apply(c, &p);
    p.max_tokens = 3;
    lg_ids ids = run(e, prompt, 3, &p, &s);
    assert_true(s.output_tokens == 3 && s.end == LG_END_LENGTH && s.finish == LG_FINISH_LENGTH);
    assert_true(h.content.n > 0 && h.content.p[0] == '{');
    lg_ids_free(&ids);
    forget(&h);
    lg_constraint_release(c);
    lg_engine_close(e);
}

// Evaluating forced tokens together changes which ones are drawn one by one, not what the reply is.
static void forced_tokens(void **state)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"identification\":{\"type\":\"boolean\"},"
        "\"description\":{\"enum\":[\"nothing\"]}},\"required\":[\"identification\",\"description\"],"
        "\"additionalProperties\":false}";
    const int32_t prompt[] = {EOS, ASSISTANT, END_THINK};
    lg_engine *e = open_engine();
    lg_constraint *c = compile(&(lg_constraint_spec){.kind = LG_CONSTRAIN_SCHEMA,
                                                     .schema = lg_str_of(schema),
                                                     .options = {.whitespace = LG_WS_COMPACT},
                                                     .fast_forward = true});
    int64_t forced = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        heard h;
        hear(&h);
        lg_gen_params p = params(&h, seed);
        lg_gen_stats s;
        lg_constraint_apply(c, &p);
        assert_true(p.fast_forward);
        p.sampling.frequency_penalty = (float)(seed % 2);
        lg_ids ids = run(e, prompt, 3, &p, &s);
        assert_int_equal(s.end, LG_END_SCHEMA);
        assert_value(schema, lg_buf_str(&h.content));
        forced += s.forced_tokens;
        // what is in the cache is what was said
        for (int64_t i = 3; i < lg_engine_pos(e); i++)
            assert_int_equal(lg_engine_tokens(e)[i], ids.p[i - 3]);
        lg_ids_free(&ids);
        p.max_tokens = 4; // a limit in the middle of forced tokens
        ids = run(e, prompt, 3, &p, &s);
        assert_int_equal(ids.n, 4);
        lg_ids_free(&ids);
        forget(&h);
    }
    assert_true(forced > 20);
    lg_constraint_release(c);
    lg_engine_close(e);
}

static void a_prefix_of_the_value(void **state)
{
    lg_engine *e = open_engine();
    lg_constraint *c = of_schema(schemas[0]);
    static const struct {
        const char *text, *error;
        bool complete;
    } cases[] = {
        {"{\"id\": 4", NULL, false},
        {"{\"id\":42,\"tags\":[\"a\",\"", NULL, false},
        {"{\"id\":42,\"tags\":[]}", NULL, true},
        {"{\"id\":420", "expected", false},
        {"{\"name\"", "at byte 2", false},
        {"{\"id\":42,\"tags\":[]} ", "expected the end", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t start[] = {EOS, ASSISTANT, END_THINK};
        const lg_token_trie *trie;
        lg_ids prompt = {0};
        lg_gen_stats s;
        lg_err err = {0};
        bool complete = false;
        heard h;
        hear(&h);
        lg_gen_params p = params(&h, i);
        for (int k = 0; k < 3; k++)
            assert_int_equal(lg_ids_add(&prompt, start[k], NULL), LG_OK);
        assert_int_equal(lg_bpe_encode(lg_engine_bpe(e), lg_str_of(cases[i].text), false, &prompt, NULL),
                         LG_OK);
        lg_constraint_apply(c, &p);
        p.grammar_prefix = prompt.n - 3;
        assert_int_equal(lg_engine_trie(e, &trie, NULL), LG_OK);
        lg_status st = lg_constraint_check_prefix(c, trie, lg_engine_vocab(e), prompt.p + 3, prompt.n - 3,
                                                  &complete, &err);
        if (cases[i].error) {
            assert_int_equal(st, LG_E_INPUT);
            assert_non_null(strstr(err.msg, cases[i].error));
            assert_int_equal(lg_generate(e, prompt.p, prompt.n, &p, &s, NULL, &err), LG_E_INPUT);
        } else {
            assert_int_equal(st, LG_OK);
            assert_int_equal(complete, cases[i].complete);
            lg_ids ids = run(e, prompt.p, prompt.n, &p, &s);
            assert_true(s.end == LG_END_SCHEMA && s.finish == LG_FINISH_STOP);
            assert_int_equal(ids.n == 0, cases[i].complete);
            lg_buf all;
            lg_buf_init(&all, 1 << 16);
            (void)lg_buf_addz(&all, cases[i].text);
            (void)lg_buf_adds(&all, lg_buf_str(&h.content));
            assert_value(schemas[0], lg_buf_str(&all));
            lg_buf_free(&all);
            lg_ids_free(&ids);
            if (!cases[i].complete) { // its last token is written anew
                lg_str last = lg_vocab_bytes(lg_engine_vocab(e), prompt.p[prompt.n - 1]);
                heard again;
                hear(&again);
                p.ctx = &again;
                p.grammar_prefix--;
                p.grammar_heal = last;
                ids = run(e, prompt.p, prompt.n - 1, &p, &s);
                assert_true(s.end == LG_END_SCHEMA && ids.n > 0);
                lg_buf_init(&all, 1 << 16);
                (void)lg_buf_addz(&all, cases[i].text);
                (void)lg_buf_adds(&all, lg_buf_str(&again.content));
                assert_value(schemas[0], lg_buf_str(&all));
                lg_buf_free(&all);
                lg_ids_free(&ids);
                forget(&again);
            }
        }
        lg_ids_free(&prompt);
        forget(&h);
    }
    lg_constraint_release(c);
    lg_engine_close(e);
}

static const lg_grammar_tool two_tools[] = {
    {.name = {"get", 3},
     .parameters = {"{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"maximum\":9,"
                    "\"minimum\":0}},\"required\":[\"n\"]}",
                    83}},
    {.name = {"get_all", 7},
     .parameters = {"{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"boolean\"}}}", 56}},
};

static bool is_call(const char *p)
{
    return (strncmp(p, "get({\"n\":", 9) == 0 && p[9] >= '0' && p[9] <= '9' && strcmp(p + 10, "}) ") == 0) ||
           strcmp(p, "get_all({\"b\":true}) ") == 0 || strcmp(p, "get_all({\"b\":false}) ") == 0 ||
           strcmp(p, "get_all({}) ") == 0;
}

static void calls_are_calls(void **state)
{
    const int32_t prompt[] = {EOS, ASSISTANT, END_THINK};
    lg_engine *e = open_engine();
    lg_grammar_tool tool[2] = {two_tools[0], two_tools[1]};
    lg_tool typed[2] = {{.name = tool[0].name}, {.name = tool[1].name}};
    lg_json_doc *doc[2];
    lg_constraint_spec spec = {.kind = LG_CONSTRAIN_CALL,
                               .tool = tool,
                               .n_tool = 2,
                               .max_calls = 1,
                               .special = lg_vocab_special(lg_engine_vocab(e))};

    (void)state;
    for (int i = 0; i < 2; i++) {
        lg_json_limits lim = {.max_bytes = 1000, .max_depth = 9};
        tool[i].parameters.n = strlen(tool[i].parameters.p);
        assert_int_equal(lg_json_parse(tool[i].parameters, &lim, &doc[i], NULL), LG_OK);
        typed[i].parameters = lg_json_root(doc[i]);
    }
    for (int way = 0; way < 3; way++) { // any tool, the second, calls or a value
        if (way == 1)
            tool[0].mode = LG_TOOL_OFF;
        if (way == 2) {
            tool[0].mode = LG_TOOL_TYPED;
            spec.kind = LG_CONSTRAIN_CALL_OR_SCHEMA;
            spec.schema = lg_str_of(schemas[1]);
        }
        lg_constraint *c = compile(&spec);
        for (uint64_t seed = 0; seed < 10; seed++) {
            heard h;
            hear(&h);
            lg_gen_params p = params(&h, seed);
            lg_logit_bias like = {TOOL_CALL, seed % 2 ? 100 : 0};
            lg_gen_stats s;
            lg_constraint_apply(c, &p);
            p.reply.tool = typed;
            p.reply.n_tool = 2;
            p.sampling.bias = &like;
            p.sampling.n_bias = way == 2;
            lg_ids ids = run(e, prompt, 3, &p, &s);
            assert_int_equal(s.end, LG_END_SCHEMA);
            if (way == 2 && h.calls.n == 0) {
                assert_value(schemas[1], lg_buf_str(&h.content));
                assert_int_equal(s.finish, LG_FINISH_STOP);
            } else {
                (void)lg_buf_addc(&h.calls, 0);
                assert_int_equal(ids.p[0], TOOL_CALL);
                assert_int_equal(ids.p[ids.n - 1], END_TOOL_CALL);
                if (!is_call(h.calls.p) || (way == 1 && h.calls.p[3] == '('))
                    fail_msg("%s", h.calls.p);
                assert_int_equal(s.finish, LG_FINISH_TOOL_CALLS);
            }
            lg_ids_free(&ids);
            forget(&h);
        }
        lg_constraint_release(c);
    }
    lg_json_free(doc[0]);
    lg_json_free(doc[1]);
    lg_engine_close(e);
}

// strict_tools: the text is free, a call is not, and behind a call the text is free again.
static void strict_calls(void **state)
{
    const int32_t prompt[] = {EOS, ASSISTANT, END_THINK};
    lg_engine *e = open_engine();
    lg_grammar_tool tool[2] = {two_tools[0], two_tools[1]};
    lg_tool typed[2] = {{.name = tool[0].name}, {.name = tool[1].name}};
    lg_constraint_spec spec = {.kind = LG_CONSTRAIN_STRICT_CALLS,
                               .tool = tool,
                               .n_tool = 2,
                               .max_calls = 1,
                               .special = lg_vocab_special(lg_engine_vocab(e))};
    int n_calls = 0;

    (void)state;
    tool[0].parameters.n = strlen(tool[0].parameters.p);
    tool[1].mode = LG_TOOL_OFF;
    lg_constraint *c = compile(&spec);
    for (uint64_t seed = 0; seed < 10; seed++) {
        heard h;
        hear(&h);
        lg_gen_params p = params(&h, seed);
        lg_logit_bias like = {TOOL_CALL, seed % 3 ? 5 : 0};
        lg_gen_stats s;
        lg_constraint_apply(c, &p);
        assert_true(p.grammar_calls);
        p.max_tokens = 120;
        p.reply.tool = typed;
        p.reply.n_tool = 2;
        p.sampling.bias = &like;
        p.sampling.n_bias = 1;
        lg_ids ids = run(e, prompt, 3, &p, &s);
        for (size_t i = 0, k = 0; i < ids.n; i++) // only the last may be cut
            if (ids.p[i] == TOOL_CALL) {
                for (k = i; k < ids.n && ids.p[k] != END_TOOL_CALL; k++)
                    continue;
                if (k == ids.n)
                    break;
                n_calls++;
                i = k;
            }
        (void)lg_buf_addc(&h.calls, 0);
        for (const char *at = h.calls.p; (at = strstr(at, ") ")) != NULL; at += 2)
            assert_true(at >= h.calls.p + 11 && strncmp(at - 11, "get({\"n\":", 9) == 0 && at[-1] == '}');
        assert_true(s.end != LG_END_SCHEMA);
        lg_ids_free(&ids);
        forget(&h);
    }
    assert_true(n_calls > 5);
    lg_constraint_release(c);
    lg_engine_close(e);
}

static void *compile_again_and_again(void *ctx)
{
    for (int i = 0; i < 60; i++) {
        char schema[64];
        lg_constraint *c = NULL;
        (void)snprintf(schema, sizeof schema, "{\"const\":%d}", i % 40);
        if (lg_constraint_get(ctx,
                              &(lg_constraint_spec){.kind = LG_CONSTRAIN_SCHEMA, .schema = lg_str_of(schema)},
                              &c, NULL, NULL) != LG_OK)
            return ctx;
        lg_constraint_release(c);
    }
    return NULL;
}

static void compiled_ones_are_kept(void **state)
{
    lg_constraint_cache *cache;
    lg_constraint *a, *b, *c;
    lg_constraint_spec spec = {.kind = LG_CONSTRAIN_SCHEMA, .schema = LG_STR("{\"const\":1000}")};
    lg_grammar_error why;
    lg_err err = {0};
    pthread_t thread[3];

    (void)state;
    assert_int_equal(lg_constraint_cache_create(64 << 20, &cache, &err), LG_OK);
    assert_int_equal(lg_constraint_get(cache, &spec, &a, &why, &err), LG_OK);
    assert_int_equal(lg_constraint_get(cache, &spec, &b, &why, &err), LG_OK);
    assert_ptr_equal(a, b);
    spec.options.whitespace = LG_WS_COMPACT;
    assert_int_equal(lg_constraint_get(cache, &spec, &c, &why, &err), LG_OK);
    assert_ptr_not_equal(a, c);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, compile_again_and_again, cache), 0);
    for (int i = 0; i < 3; i++) {
        void *failed = cache;
        assert_int_equal(pthread_join(thread[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(lg_constraint_get(cache, &spec, &b, &why, &err),
                     LG_OK); // 40 others came: it is made anew
    assert_ptr_not_equal(b, c);
    lg_constraint_release(a);
    lg_constraint_release(a);
    lg_constraint_release(b);
    lg_constraint_release(c);
    spec.schema = LG_STR("{\"not\":{}}");
    assert_int_not_equal(lg_constraint_get(cache, &spec, &a, &why, &err), LG_OK);
    assert_string_equal(lg_grammar_code_name(why.code), "unsupported_keyword");
    assert_string_equal(why.pointer, "/not");
    lg_constraint_cache_destroy(cache);
}

// Of two tools the one whose schema is refused takes raw text; a single one is refused.
static void refused_tools(void **state)
{
    lg_special special = {.tool_call = TOOL_CALL, .end_tool_call = END_TOOL_CALL};
    lg_grammar_tool tool[] = {
        {.name = LG_STR("plain"), .parameters = LG_STR("{\"type\":\"object\"}")},
        {.name = LG_STR("hard"),
         .parameters =
             LG_STR("{\"type\":\"object\",\"properties\":{\"x\":{\"not\":{}}},\"required\":[\"x\"]}")},
        {.name = LG_STR("odd"), .parameters = LG_STR("{\"type\":\"object\",\"properties\":3}")},
    };
    lg_constraint_spec spec = {
        .kind = LG_CONSTRAIN_CALL, .tool = tool, .n_tool = 3, .max_calls = 1, .special = &special};
    lg_grammar_error why;
    lg_constraint *c;
    lg_err err = {0};

    (void)state;
    c = compile(&spec);
    lg_constraint_release(c);
    tool[0].mode = tool[2].mode = LG_TOOL_OFF;
    assert_int_not_equal(lg_constraint_get(NULL, &spec, &c, &why, &err), LG_OK);
    assert_string_equal(why.pointer, "/tools/1/function/parameters/properties/x/not");
    tool[2].mode = LG_TOOL_TYPED; // both are refused
    assert_int_not_equal(lg_constraint_get(NULL, &spec, &c, &why, &err), LG_OK);
    assert_string_equal(why.pointer, "/tools/1/function/parameters/properties/x/not");
    tool[0].mode = LG_TOOL_TYPED;
    spec.kind = LG_CONSTRAIN_STRICT_CALLS; // what is called strict must be strict
    assert_int_not_equal(lg_constraint_get(NULL, &spec, &c, &why, &err), LG_OK);
    tool[1].mode = tool[2].mode = LG_TOOL_ANY;
    c = compile(&spec);
    lg_constraint_release(c);
}

// What is too large for the first, hasty try compiles in the second; a tool that is too much is softened
// there.
static void large_ones_take_turns(void **state)
{
    lg_special special = {.tool_call = TOOL_CALL, .end_tool_call = END_TOOL_CALL};
    lg_grammar_tool tool[2] = {{.name = LG_STR("plain"), .parameters = LG_STR("{\"type\":\"object\"}")},
                               {.name = LG_STR("hard")}};
    lg_constraint_spec spec = {.kind = LG_CONSTRAIN_SCHEMA};
    lg_constraint_cache *cache;
    lg_constraint *c;
    lg_grammar_error why;
    lg_err err = {0};
    lg_grammar *g = NULL;
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 1 << 20);
    (void)lg_buf_addz(&b, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 2000; i++)
        (void)lg_buf_addf(&b, "%s\"%d\":{\"maxLength\":%d}", i ? "," : "", i, i);
    assert_true(lg_buf_addz(&b, "}}"));
    spec.schema = lg_buf_str(&b);
    spec.options.hasty = true;
    assert_int_not_equal(lg_grammar_schema(spec.schema, &spec.options, &g, &why, &err), LG_OK);
    assert_true(why.code >= LG_GRAMMAR_SCHEMA_TOO_LARGE);
    spec.options.hasty = false;
    assert_int_equal(lg_constraint_cache_create(64 << 20, &cache, &err), LG_OK);
    assert_int_equal(lg_constraint_get(cache, &spec, &c, &why, &err), LG_OK);
    lg_constraint_release(c);
    spec.schema = LG_STR("{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){20}\"}");
    assert_int_not_equal(lg_constraint_get(cache, &spec, &c, &why, &err), LG_OK);
    assert_string_equal(lg_grammar_code_name(why.code), "too_complex");
    assert_string_equal(why.pointer, "/pattern");
    lg_buf_clear(&b);
    assert_true(lg_buf_addf(&b, "{\"type\":\"object\",\"properties\":{\"x\":%.*s}}", (int)spec.schema.n,
                            spec.schema.p));
    tool[1].parameters = lg_buf_str(&b);
    spec = (lg_constraint_spec){
        .kind = LG_CONSTRAIN_CALL, .tool = tool, .n_tool = 2, .max_calls = 1, .special = &special};
    assert_int_equal(lg_constraint_get(cache, &spec, &c, &why, &err), LG_OK);
    lg_constraint_release(c);
    tool[0].mode = LG_TOOL_OFF;
    assert_int_not_equal(lg_constraint_get(cache, &spec, &c, &why, &err), LG_OK);
    assert_string_equal(why.pointer, "/tools/1/function/parameters/properties/x/pattern");
    lg_constraint_cache_destroy(cache);
    lg_buf_free(&b);
}

// Memory that ends anywhere while a constraint is made is an error, or one tool less whose schema holds.
static void memory_ends(void **state)
{
    lg_special special = {.tool_call = TOOL_CALL, .end_tool_call = END_TOOL_CALL};
    lg_grammar_tool tool[] = {
        {.name = LG_STR("plain"), .parameters = LG_STR("{\"type\":\"object\"}")},
        {.name = LG_STR("hard"),
         .parameters =
             LG_STR("{\"type\":\"object\",\"properties\":{\"x\":{\"not\":{}}},\"required\":[\"x\"]}")},
    };
    lg_str choice[] = {LG_STR("left"), LG_STR("right")};
    const lg_constraint_spec specs[] = {
        {.kind = LG_CONSTRAIN_CALL, .tool = tool, .n_tool = 2, .max_calls = 1, .special = &special},
        {.kind = LG_CONSTRAIN_SCHEMA, .schema = LG_STR("{\"properties\":{\"a\":{\"type\":\"integer\"}}}")},
        {.kind = LG_CONSTRAIN_REGEX, .schema = LG_STR("[a-c]{3}")},
        {.kind = LG_CONSTRAIN_CHOICE, .choice = choice, .n_choice = 2},
    };

    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        bool done = false;
        for (long n = 1; !done; n++) {
            lg_constraint_cache *cache = NULL;
            lg_constraint *c = NULL;
            fault_arm(FAULT_ALLOC, n);
            lg_status st = lg_constraint_cache_create(1 << 20, &cache, NULL);
            if (st == LG_OK)
                st = lg_constraint_get(cache, &specs[i], &c, NULL, NULL);
            done = fault_disarm() == 0;
            assert_true(st == LG_OK || !done);
            if (st == LG_OK)
                lg_constraint_release(c);
            lg_constraint_cache_destroy(cache);
        }
    }
}

static void options(void **state)
{
    static const struct {
        const char *text, *subject;
    } cases[] = {
        {"{\"whitespace\":\"free\",\"one_of\":\"any\",\"unknown_format\":\"ignore\","
         "\"property_order\":\"any\","
         "\"fast_forward\":true}",
         ""},
        {"{}", ""},
        {"null", ""},
        {"{\"whitespace\":\"wide\"}", "format.options.whitespace"},
        {"{\"one_of\":true}", "format.options.one_of"},
        {"{\"fast_forward\":1}", "format.options.fast_forward"},
        {"{\"white\":\"free\"}", "format.options.white"},
    };
    lg_json_limits lim = {.max_bytes = 1000, .max_depth = 9};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lg_constraint_spec s = {0};
        lg_json_doc *doc;
        lg_err err = {0};
        assert_int_equal(lg_json_parse(lg_str_of(cases[i].text), &lim, &doc, NULL), LG_OK);
        assert_int_equal(lg_constraint_options(lg_json_root(doc), &s, &err),
                         *cases[i].subject ? LG_E_INPUT : LG_OK);
        assert_string_equal(err.subject, cases[i].subject);
        if (i == 0)
            assert_true(s.options.whitespace == LG_WS_FREE && s.options.one_of_any &&
                        s.options.ignore_formats && s.options.any_order && s.fast_forward);
        lg_json_free(doc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reply_is_a_value),
        cmocka_unit_test(an_answer_is_verbatim),
        cmocka_unit_test(thinking_comes_first),
        cmocka_unit_test(a_limit_cuts),
        cmocka_unit_test(forced_tokens),
        cmocka_unit_test(a_prefix_of_the_value),
        cmocka_unit_test(calls_are_calls),
        cmocka_unit_test(strict_calls),
        cmocka_unit_test(compiled_ones_are_kept),
        cmocka_unit_test(refused_tools),
        cmocka_unit_test(large_ones_take_turns),
        cmocka_unit_test(memory_ends),
        cmocka_unit_test(options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
