/*
 * unit/test_vocab: text/vocab over the recorded vocabulary and over made ones: spellings, classes, special
 * ids that are elsewhere, template families, and what a bad file is told.
 */
#include "check.h"

#include <stdio.h>

#include "base/log.h"
#include "fault.h"
#include "support/texts.h"
#include "support/vocab_maker.h"

static const char *const two_added[] = {"\xE3\x80\x88|EOS|\xE3\x80\x89", "</assistant>", NULL};
static const vm_vocab plain = {.model = "gpt2", .pre = "laguna", .added = two_added};

static char last_warning[512];

static void keep_warning(void *ctx, lg_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)snprintf(last_warning, sizeof last_warning, "%s", line);
}

static void test_recorded(void **state)
{
    const lg_vocab *v = tt_vocab();
    const lg_special *s = lg_vocab_special(v);

    (void)state;
    assert_int_equal(lg_vocab_size(v), 512);
    assert_int_equal(s->bos, LG_ID_EOS);
    assert_int_equal(s->eos, LG_ID_EOS);
    assert_int_equal(s->eot, LG_ID_END_ASSISTANT);
    assert_int_equal(s->think, LG_ID_THINK);
    assert_int_equal(s->end_think, LG_ID_END_THINK);
    assert_int_equal(s->assistant, LG_ID_ASSISTANT);
    assert_int_equal(s->tool_call, LG_ID_TOOL_CALL);
    assert_int_equal(s->end_tool_call, LG_ID_END_TOOL_CALL);
    assert_int_equal(s->fim_start, 11);
    assert_int_equal(s->fim_middle, 6);
    assert_int_equal(s->fim_suffix, 7);
    assert_int_equal(s->mask, 12);
    assert_int_equal(s->pad, 9);
    assert_int_equal(lg_vocab_n_added(v), 70);
    for (int32_t id = 0; id < 512; id++) {
        assert_int_equal(lg_vocab_is_eog(v, id), id == 2 || id == 24);
        assert_int_equal(lg_vocab_is_added(v, id), id < 70);
        if (id < 70)
            assert_int_equal(lg_vocab_find_added(v, lg_vocab_bytes(v, id)), id);
        else if (id < 326) { // bytes in order
            assert_int_equal(lg_vocab_bytes(v, id).n, 1);
            assert_int_equal((unsigned char)lg_vocab_bytes(v, id).p[0], id - 70);
        }
    }
    assert_int_equal(lg_vocab_class(v, 24), LG_TOK_CONTROL);
    assert_int_equal(lg_vocab_class(v, 18), LG_TOK_USER);
    assert_int_equal(lg_vocab_n_merges(v), 186);
    for (size_t i = 0; i < 186; i++) {
        lg_str l, r;
        lg_vocab_merge(v, i, &l, &r);
        assert_true(l.n > 0 && r.n > 0 && r.p == l.p + l.n);
        assert_true(lg_str_eq((lg_str){l.p, l.n + r.n}, lg_vocab_bytes(v, 326 + (int32_t)i)));
    }
}

static void test_bad_ids(void **state)
{
    const lg_vocab *v = tt_vocab();

    (void)state;
    for (int i = 0; i < 2; i++) {
        int32_t id = i == 0 ? -1 : 512;
        assert_int_equal(lg_vocab_bytes(v, id).n, 0);
        assert_false(lg_vocab_is_added(v, id));
        assert_false(lg_vocab_is_eog(v, id));
        assert_int_equal(lg_vocab_class(v, id), LG_TOK_UNKNOWN);
    }
    assert_int_equal(lg_vocab_find_added(v, LG_STR("<user>")), -1);
    assert_int_equal(lg_vocab_find_added(v, LG_STR("")), -1);
}

static void test_families(void **state)
{
    static const struct {
        const char *text;
        lg_template_family family;
        bool known;
    } cases[] = {
        {"{# laguna_glm_thinking_v8 #}", LG_TEMPLATE_S21, true},
        {"{# laguna_glm_thinking_v8 #} render_assistant_messages_raw", LG_TEMPLATE_S21, true},
        {"x render_assistant_messages_raw y", LG_TEMPLATE_V2, true},
        {"{# laguna_glm_thinking_v5 #}", LG_TEMPLATE_V2, true},
        {"{{ something else }}", LG_TEMPLATE_S21, false},
        {NULL, LG_TEMPLATE_S21, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vm_vocab in = plain;
        lg_vocab *v = NULL;
        lg_err err = {0};
        bool known = !cases[i].known;
        in.chat_template = cases[i].text;
        assert_int_equal(vm_load(&in, &v, &err), LG_OK);
        assert_int_equal(lg_vocab_template(v, &known), cases[i].family);
        assert_int_equal(known, cases[i].known);
        assert_int_equal(lg_vocab_template(v, NULL), cases[i].family);
        lg_vocab_destroy(v);
    }
}

// Some files class <think> and its kind as normal; the text still makes it an added token.
static void test_classes(void **state)
{
    static const char *const names[] = {"<think>", "</think>", "<tool_call>", "</tool_call>", "<assistant>",
                                        "</assistant>", "\xE3\x80\x88|EOS|\xE3\x80\x89", NULL};

    (void)state;
    for (int c = LG_TOK_NORMAL; c <= LG_TOK_BYTE; c++) {
        vm_vocab in = {.model = "gpt2", .pre = "laguna", .added = names, .added_class = c};
        lg_vocab *v = NULL;
        lg_err err = {0};
        assert_int_equal(vm_load(&in, &v, &err), LG_OK);
        for (int32_t id = 0; id < 7; id++) {
            assert_true(lg_vocab_is_added(v, id));
            assert_true(lg_str_eqz(lg_vocab_bytes(v, id), names[id]));
        }
        assert_int_equal(lg_vocab_special(v)->think, 0);
        assert_int_equal(lg_vocab_special(v)->eot, 5);
        assert_int_equal(lg_vocab_special(v)->eos, 6);
        assert_true(lg_vocab_is_eog(v, 6) && lg_vocab_is_eog(v, 5));
        assert_int_equal(lg_vocab_special(v)->mask, -1);
        lg_vocab_destroy(v);
    }
    assert_non_null(strstr(last_warning, "are missing or elsewhere"));
}

static void eos_keys(lg_gguf_writer *w)
{
    lg_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 70);
    lg_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 71);
    lg_gguf_put_u32(w, "tokenizer.ggml.eot_token_id", 72);
}

static void id_past_end(lg_gguf_writer *w)
{
    lg_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 256);
}

static void id_text(lg_gguf_writer *w)
{
    lg_gguf_put_str(w, "tokenizer.ggml.seperator_token_id", LG_STR("2"));
}

// Keys count only where the text is missing, and must name tokens.
static void test_eos_by_key(void **state)
{
    vm_vocab in = {.model = "gpt2", .pre = "llama-bpe", .more = eos_keys};
    lg_vocab *v = NULL;
    lg_err err = {0};

    (void)state;
    assert_int_equal(vm_load(&in, &v, &err), LG_OK);
    assert_int_equal(lg_vocab_special(v)->bos, 70);
    assert_int_equal(lg_vocab_special(v)->eos, 71);
    assert_int_equal(lg_vocab_special(v)->eot, 72);
    lg_vocab_destroy(v);
    in.more = NULL;
    assert_int_equal(vm_load(&in, &v, &err), LG_OK);
    assert_int_equal(lg_vocab_special(v)->bos, -1);
    assert_int_equal(lg_vocab_special(v)->eos, -1);
    assert_non_null(strstr(last_warning, "no token ends a generation"));
    lg_vocab_destroy(v);
    v = NULL;
    for (int i = 0; i < 2; i++) {
        in.more = i == 0 ? id_past_end : id_text;
        assert_int_equal(vm_load(&in, &v, &err), LG_E_INPUT);
        assert_string_equal(
            err.msg, i == 0
                         ? "tokenizer.ggml.eos_token_id is no token; the ids of this vocabulary are 0 to 255"
                         : "tokenizer.ggml.seperator_token_id is no token; the ids of this vocabulary are "
                           "0 to 255");
        assert_null(v);
    }
}

// A token whose characters are not of the byte alphabet keeps them.
static void raw_token(lg_gguf_writer *w)
{
    lg_str t[] = {LG_STR("a\xE4\xB8\x96"), LG_STR("\xC4\xA0x"), LG_STR("\xFF")};

    lg_gguf_put_strs(w, "tokenizer.ggml.tokens", t, 3);
}

static void test_foreign_spelling(void **state)
{
    vm_vocab in = {.model = "gpt2", .pre = "laguna", .no_tokens = true, .no_types = true, .more = raw_token};
    lg_vocab *v = NULL;
    lg_err err = {0};

    (void)state;
    assert_int_equal(vm_load(&in, &v, &err), LG_OK);
    assert_str(lg_vocab_bytes(v, 0), "a\xE4\xB8\x96");
    assert_str(lg_vocab_bytes(v, 1), " x");
    assert_str(lg_vocab_bytes(v, 2), "\xFF");
    lg_vocab_destroy(v);
}

static void types_text(lg_gguf_writer *w)
{
    lg_gguf_put_str(w, "tokenizer.ggml.token_type", LG_STR("x"));
}

static void types_short(lg_gguf_writer *w)
{
    int32_t t[3] = {1, 1, 1};

    lg_gguf_put_array(w, "tokenizer.ggml.token_type", LG_GV_I32, t, 3);
}

static void types_range(lg_gguf_writer *w)
{
    int32_t t[258];

    for (int i = 0; i < 258; i++)
        t[i] = i == 100 ? 7 : 1;
    lg_gguf_put_array(w, "tokenizer.ggml.token_type", LG_GV_I32, t, 258);
}

static void merges_numbers(lg_gguf_writer *w)
{
    int32_t t[3] = {1, 1, 1};

    lg_gguf_put_array(w, "tokenizer.ggml.merges", LG_GV_I32, t, 3);
}

static void merge_without_blank(lg_gguf_writer *w)
{
    lg_str t[] = {LG_STR("a b"), LG_STR("ab")};

    lg_gguf_put_strs(w, "tokenizer.ggml.merges", t, 2);
}

static void merge_one_side(lg_gguf_writer *w)
{
    lg_str t[] = {LG_STR("a ")};

    lg_gguf_put_strs(w, "tokenizer.ggml.merges", t, 1);
}

static void merge_two_blanks(lg_gguf_writer *w)
{
    lg_str t[] = {LG_STR("a b c")};

    lg_gguf_put_strs(w, "tokenizer.ggml.merges", t, 1);
}

static void tokens_empty(lg_gguf_writer *w)
{
    lg_gguf_put_strs(w, "tokenizer.ggml.tokens", NULL, 0);
}

static void test_refused(void **state)
{
    static const struct {
        vm_vocab in;
        lg_status st;
        const char *msg;
    } cases[] = {
        {{.added = two_added}, LG_E_INPUT, "tokenizer.ggml.model is missing"},
        {{.model = "llama", .added = two_added},
         LG_E_UNSUPPORTED,
         "tokenizer.ggml.model is \"llama\"; only \"gpt2\" (byte-level BPE) works"},
        {{.model = "gpt2", .no_tokens = true}, LG_E_INPUT, "tokenizer.ggml.tokens is missing"},
        {{.model = "gpt2", .no_tokens = true, .no_types = true, .more = tokens_empty},
         LG_E_INPUT,
         "tokenizer.ggml.tokens is empty"},
        {{.model = "gpt2", .added = two_added, .no_merges = true},
         LG_E_INPUT,
         "tokenizer.ggml.merges is missing"},
        {{.model = "gpt2", .added = two_added, .no_types = true, .more = types_text},
         LG_E_INPUT,
         "tokenizer.ggml.token_type must be an array of 258 numbers, one a token"},
        {{.model = "gpt2", .added = two_added, .no_types = true, .more = types_short},
         LG_E_INPUT,
         "tokenizer.ggml.token_type must be an array of 258 numbers, one a token"},
        {{.model = "gpt2", .added = two_added, .no_types = true, .more = types_range},
         LG_E_INPUT,
         "tokenizer.ggml.token_type[100] must be a number from 1 to 6"},
        {{.model = "gpt2", .added = two_added, .no_merges = true, .more = merges_numbers},
         LG_E_INPUT,
         "tokenizer.ggml.merges must be an array of strings"},
        {{.model = "gpt2", .added = two_added, .no_merges = true, .more = merge_without_blank},
         LG_E_INPUT,
         "tokenizer.ggml.merges[1] must be two tokens with one space between"},
        {{.model = "gpt2", .added = two_added, .no_merges = true, .more = merge_one_side},
         LG_E_INPUT,
         "tokenizer.ggml.merges[0] must be two tokens with one space between"},
        {{.model = "gpt2", .added = two_added, .no_merges = true, .more = merge_two_blanks},
         LG_E_INPUT,
         "tokenizer.ggml.merges[0] has a character outside the byte alphabet"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lg_vocab *v = NULL;
        lg_err err = {0};
        assert_int_equal(vm_load(&cases[i].in, &v, &err), cases[i].st);
        assert_string_equal(err.msg, cases[i].msg);
        assert_null(v);
    }
}

static void test_no_memory(void **state)
{
    lg_gguf *g = NULL;
    lg_err err = {0};

    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    assert_int_equal(lg_gguf_open(LG_TEST_DIR "/golden/vocab512.gguf", &g, &err), LG_OK);
    for (long n = 1;; n++) {
        lg_vocab *v = NULL;
        fault_arm(FAULT_ALLOC, n);
        lg_status st = lg_vocab_load(g, &v, &err);
        if (fault_disarm() == 0) {
            assert_int_equal(st, LG_OK);
            assert_true(n > 5);
            lg_vocab_destroy(v);
            break;
        }
        assert_int_equal(st, LG_E_NOMEM);
        assert_null(v);
    }
    lg_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),   cmocka_unit_test(test_bad_ids),
        cmocka_unit_test(test_families),   cmocka_unit_test(test_classes),
        cmocka_unit_test(test_eos_by_key), cmocka_unit_test(test_foreign_spelling),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_no_memory),
    };

    lg_log_set_sink(keep_warning, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
