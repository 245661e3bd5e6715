/*
 * unit/test_reply: text/reply: each row of the state tables, ends, both families, stop strings, limits, and
 * the property that no cut of the input changes the events. A script is text in which {NN} stands for the
 * token NN.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

#include "fault.h"
#include "support/texts.h"
#include "text/chat_json.h"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"ls\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"path\":{\"type\":\"string\"},\"text\":{\"type\":\"string\"},\"mode\":{\"type\":\"integer\"},"
    "\"tags\":{\"type\":\"array\"},\"any\":{}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"ls_all\"}}]";

static lg_arena arena;
static lg_json_doc *doc;
static lg_chat_tools tools;

typedef struct script {
    const char *text;
    lg_end how;
    bool open, no_think, no_tools, raw, v2, one_call;
    int32_t stop_id;
    const char *stop[3];
} script;

// Feeds the script with its texts cut into `step` bytes; returns lg_reply_fallbacks.
static int run(const script *s, size_t step, tt_transcript *t, int *stop)
{
    lg_str stops[3], text = lg_str_of(s->text);
    lg_reply_params p = {.family = s->v2 ? LG_TEMPLATE_V2 : LG_TEMPLATE_S21,
                         .raw = s->raw,
                         .thinking = !s->no_think,
                         .open_reasoning = s->open,
                         .tool = s->no_tools ? NULL : tools.tool,
                         .n_tool = s->no_tools ? 0 : tools.n,
                         .stop = stops,
                         .stop_id = &s->stop_id,
                         .n_stop_id = s->stop_id > 0,
                         .one_call = s->one_call};
    lg_reply *r = NULL;
    lg_finish finish;
    lg_err err = {0};
    bool done = false;
    int n_fallback;

    for (; p.n_stop < 3 && s->stop[p.n_stop]; p.n_stop++)
        stops[p.n_stop] = lg_str_of(s->stop[p.n_stop]);
    tt_transcript_init(t);
    assert_int_equal(lg_reply_create(tt_vocab(), &p, 1 << 20, tt_transcript_event, t, &r, &err), LG_OK);
    for (size_t at = 0; at < text.n && !done;) {
        int id = 0, len = 0;
        if (sscanf(text.p + at, "{%2d}%n", &id, &len) == 1 && len == 4) {
            assert_int_equal(lg_reply_feed(r, id, &done, &err), LG_OK);
            at += 4;
            continue;
        }
        size_t end = at + 1;
        while (end < text.n && !(sscanf(text.p + end, "{%2d}%n", &id, &len) == 1 && len == 4))
            end++;
        done = tt_feed(r, (lg_str){text.p + at, end - at}, step);
        at = end;
    }
    assert_int_equal(lg_reply_end(r, s->how, &finish, &err), LG_OK);
    tt_transcript_finish(t, tt_finish_name(finish));
    if (stop)
        *stop = lg_reply_stop(r);
    n_fallback = lg_reply_fallbacks(r);
    lg_reply_destroy(r);
    return n_fallback;
}

static void check(const script *s, const char *want)
{
    for (size_t step = 0; step < 9; step++) {
        tt_transcript t;
        (void)run(s, step, &t, NULL);
        if (!lg_str_eqz(lg_buf_str(&t.out), want)) {
            print_error("script %s\nstep %zu\ngot  %.*s\nwant %s\n", s->text, step, (int)t.out.n, t.out.p,
                        want);
            fail();
        }
        lg_buf_free(&t.out);
    }
}

/* CHECK(transcript, script text, other fields of the script ...) */
#define CHECK(want, ...) check(&(script){.text = __VA_ARGS__}, want)

static int fallbacks(const char *text, bool open)
{
    tt_transcript t;
    int n = run(&(script){.text = text, .open = open}, 1, &t, NULL);

    lg_buf_free(&t.out);
    return n;
}

// Calls in a form that is not the model's own are counted, whether they could be read or not.
static void test_fallbacks(void **state)
{
    (void)state;
    assert_int_equal(fallbacks("{25}ls{26}{25}ls<arg_key>a</arg_key><arg_value>b</arg_value>{26}{24}", false),
                     0);
    assert_int_equal(fallbacks("{25}{\"name\":\"ls\",\"arguments\":{}}{26}{24}", false), 1);
    assert_int_equal(fallbacks("{25}{\"name\":\"ls\"}{26} and {25}ls{\"a\":1}{26}{24}", false), 2);
    assert_int_equal(fallbacks("{25}{broken{26}{24}", false), 1);
    assert_int_equal(fallbacks("{25}{26}{24}", false), 1);
    assert_int_equal(fallbacks("a quotation: {25}no such{26}{19}x{24}", true), 0);
    assert_int_equal(fallbacks("{\"name\":\"ls\"} in prose{24}", false), 0);
}

/* --- reasoning and content --- */

static void test_reasoning(void **state)
{
    (void)state;
    CHECK("reasoning plan\ncontent go\nfinish stop", "plan{19}go{24}", .open = true);
    CHECK("reasoning \\n plan\ncontent go\nfinish stop", "\n plan{19}go{02}", .open = true);
    CHECK("reasoning plan\ncontent go\nfinish stop", " \n{18}plan{19}go{24}", .open = true);
    CHECK("reasoning a<think>b\nfinish stop", "a{18}b{24}", .open = true);
    // kept for an exact replay
    CHECK("reasoning  \\n\ncontent go\nfinish stop", " \n{19}go{24}", .open = true);
    CHECK("reasoning x</tool_call>y\nfinish length", "x{26}y", .open = true, .how = LG_END_LENGTH);
    CHECK("reasoning x\nfinish stop", "x{23}more", .open = true, .how = LG_END_LENGTH);
    CHECK("reasoning <tool_call>ls</tool_call> here\ncontent done\nfinish stop",
          "<tool_call>ls</tool_call> here{19}done{24}", .open = true); // spelled as text
    CHECK("reasoning use <tool_call>ls\ncontent x\nfinish stop", "use {25}ls{19}x{24}", .open = true,
          .no_tools = true);
    CHECK("finish stop", "{24}", .open = true);
    CHECK("finish length", "", .open = true, .how = LG_END_LENGTH);
    CHECK("finish length", "", .open = true, .how = LG_END_CANCELLED);
}

static void test_probe(void **state)
{
    (void)state;
    CHECK("reasoning go \nstart 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "go {25} ls \n{26}{24}",
          .open = true);
    CHECK("reasoning go\nstart 0 write\nargs 0 {\"path\":\"x\"}\nend 0\ncontent ok\nfinish tool_calls",
          "go{25}write<arg_key>path</arg_key><arg_value>x</arg_value>{26}ok{24}", .open = true);
    CHECK("reasoning <tool_call>lsx\ncontent y\nfinish stop", "{25}lsx{19}y{24}", .open = true);
    CHECK("reasoning <tool_call>ls x<arg_key>\nfinish stop", "{25}ls x<arg_key>{24}", .open = true);
    CHECK("reasoning <tool_call>l</tool_call>\nfinish stop", "{25}l{26}{24}", .open = true);
    CHECK("reasoning <tool_call>ls_all\nfinish length", "{25}ls_all", .open = true, .how = LG_END_LENGTH);
    CHECK("start 0 ls_all\nargs 0 {}\nend 0\nfinish length", "{25}ls_all{26}", .open = true,
          .how = LG_END_LENGTH);
    CHECK("reasoning <tool_call>ls\nfinish stop", "{25}ls{24}", .open = true);
    CHECK("start 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "{25}\n{25}ls{26}{24}", .open = true);
    CHECK("reasoning <tool_call>l\nstart 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "{25}l{25}ls{26}{24}",
          .open = true);
    CHECK("reasoning <tool_call>{\"name\": \"ls\"}</tool_call>\nfinish stop",
          "{25}{\"name\": \"ls\"}{26}{24}", .open = true);
    CHECK("reasoning <tool_call>ls<arg_kex\ncontent z\nfinish stop", "{25}ls<arg_kex{19}z{24}", .open = true);
}

static void test_content(void **state)
{
    (void)state;
    CHECK("content hi\nfinish stop", "hi{24}");
    CHECK("content \\n hi \\n\nfinish stop", "\n hi \n{24}");
    CHECK("content \\n\nfinish stop", "\n{24}");
    CHECK("content \\nhi\nfinish stop", "{19}\nhi{24}");
    CHECK("content hi\nfinish stop", "\n{19}hi{24}");
    CHECK("content a</think>b<think>c\nfinish stop", "a{19}b{18}c{24}");
    CHECK("reasoning r\ncontent c\nfinish stop", "{18}r{19}c{24}");
    CHECK("content c\nfinish stop", "{18}r{19}c{24}", .no_think = true); // suppressed
    CHECK("start 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "{18}r{25}ls{26}{24}", .no_think = true);
    CHECK("content x</tool_call>\nfinish stop", "x{26}{24}");
    CHECK("content <tool_call>ls</tool_call>\nfinish stop", "{25}ls{26}{24}", .no_tools = true);
    CHECK("content a\nfinish stop", "a{23}b", .how = LG_END_LENGTH);
    CHECK("content ab\nfinish stop", "a{00}{09}{20}{69}b{24}"); // other control tokens are nothing
    CHECK("content {\"name\": \"ls\"}\nfinish stop", "{\"name\": \"ls\"}{24}");
    CHECK("content x\nfinish stop", "x", .how = LG_END_SCHEMA);
    CHECK("content \\n\nfinish length", "\n", .how = LG_END_LENGTH);
}

// Characters split between tokens, also by a token that is nothing; leftovers before a tag.
static void test_utf8(void **state)
{
    (void)state;
    CHECK("reasoning \xF0\x9F\x9A\xA9\xC3\xA9\xE6\xBC\xA2\ncontent \xF0\x9F\x9A\x80 ok\nfinish stop",
          "\xF0\x9F\x9A\xA9\xC3\xA9\xE6\xBC\xA2{19}\xF0\x9F\x9A\x80 ok{24}", .open = true);
    CHECK("content \xE4\xB8\x96\nfinish stop", "\xE4\xB8{09}\x96{24}");
    CHECK("reasoning a\xEF\xBF\xBD\ncontent b\xEF\xBF\xBD\nfinish length", "a\xE4\xB8{19}b\xF0\x9F",
          .open = true, .how = LG_END_LENGTH);
    CHECK("content a\xEF\xBF\xBD" "b\nfinish stop", "a\xFF" "b{24}");
    CHECK(
        "start 0 write\nargs 0 {\"path\":\"Ume\xC3\xA5 \xF0\x9F\x9A\xA9\xEF\xBF\xBD\"}\nend 0\nfinish tool_calls",
        "{25}write<arg_key>path</arg_key><arg_value>Ume\xC3\xA5 \xF0\x9F\x9A\xA9\xC3</arg_value>{26}{24}");
}

/* --- calls --- */

static void test_names(void **state)
{
    (void)state;
    CHECK("start 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "{25}\n{25} ls\n{26}{24}");
    CHECK("start 0 ls\nargs 0 {\"p\":\".\"}\nend 0\nfinish tool_calls",
          "{25}ls\n<tool_call>ls<arg_key>p</arg_key><arg_value>.</arg_value>{26}{24}");
    CHECK("start 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "{25}write{25}ls{26}{24}");
    CHECK("content <tool_call></tool_call>\nfinish stop", "{25}{26}{24}");
    CHECK("content \\n<tool_call> \\n</tool_call>ok\nfinish stop", "\n{25} \n{26}ok{24}");
    CHECK("content <tool_call><arg_key>a</arg_key></tool_call>\nfinish stop",
          "{25}<arg_key>a</arg_key>{26}{24}");
    CHECK("start 0 unknown tool\nargs 0 {}\nend 0\nfinish tool_calls", "{25}unknown tool{26}{24}");
    CHECK(
        "content a \nstart 0 ls\nargs 0 {}\nend 0\nstart 1 ls_all\nargs 1 {}\nend 1\ncontent \\nz\nfinish tool_calls",
        "a {25}ls{26} \n{25}ls_all{26}\nz{24}");
    // declared: the model ended its turn
    CHECK("start 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "{25}ls{24}");
    CHECK("content <tool_call>lsx\nfinish stop", "{25}lsx{24}");                  // not declared
    CHECK("finish length", "{25}ls", .how = LG_END_LENGTH);
    CHECK("content abc\nfinish length", "abc{25}ls", .how = LG_END_LENGTH);
    CHECK("content a<tool_call>x\nfinish stop", "a{25}x{23}");
}

static void test_json_body(void **state)
{
    (void)state;
    CHECK("start 0 ls\nargs 0 {\"a\":[1.50,{\"b\":null}]}\nend 0\nfinish tool_calls",
          "{25} {\"arguments\": {\"a\":[1.50,{\"b\":null}]}, \"name\": \"ls\"} {26}{24}");
    CHECK("start 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "{25}{\"name\":\"ls\"}{26}{24}");
    CHECK("start 0 write\nargs 0 {\"path\": \"<think>\"}\nend 0\nfinish tool_calls",
          "{25}write\n{\"path\": \"{18}\"}{26}{24}");
    CHECK("content <tool_call>{\"name\":\"ls\",}</tool_call>\nfinish stop", "{25}{\"name\":\"ls\",}{26}{24}");
    CHECK("content <tool_call>{\"name\":1}</tool_call>\nfinish stop", "{25}{\"name\":1}{26}{24}");
    CHECK("content <tool_call>{\"name\":\"\"}</tool_call>\nfinish stop", "{25}{\"name\":\"\"}{26}{24}");
    CHECK("content <tool_call>{\"name\":\"ls\",\"arguments\":\"x\"}</tool_call>\nfinish stop",
          "{25}{\"name\":\"ls\",\"arguments\":\"x\"}{26}{24}");
    CHECK("content <tool_call>f{x</tool_call>\nfinish stop", "{25}f{x{26}{24}");
    CHECK("start 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "{25}{\"name\":\"ls\"}{24}");
    CHECK("content <tool_call>{\"name\"\nfinish stop", "{25}{\"name\"{24}");
    CHECK("finish length", "{25}{\"name\":\"ls\"}", .how = LG_END_LENGTH);
    CHECK("start 0 ls\nargs 0 {}\nend 0\ncontent x\nfinish tool_calls",
          "{25}{\"name\":\"\\u006cs\"}{26}x{24}");
}

static void test_arguments(void **state)
{
    (void)state;
    CHECK(
        "start 0 write\nargs 0 {\"path\":\" a\\\\n \",\"mode\":7,\"tags\":[\"x\"],\"any\":{\"k\":1}}\nend 0\nfinish tool_calls",
        "{25}write\n<arg_key> path </arg_key>\n<arg_value> a\n </arg_value>\n<arg_key>mode</arg_key>x<arg_value> 7.0 "
        "</arg_value><arg_key>tags</arg_key><arg_value>['x']</arg_value><arg_key>any</arg_key><arg_value>{\"k\":1}"
        "</arg_value>\n{26}{24}");
    CHECK("start 0 write\nargs 0 {\"path\":\"\"}\nend 0\nfinish tool_calls",
          "{25}write<arg_key>path</arg_key><arg_value></arg_value>{26}{24}");
    // a key whose value never comes gives way to the next
    CHECK("start 0 write\nargs 0 {\"path\":\"p\"}\nend 0\nfinish tool_calls",
          "{25}write<arg_key>mode</arg_key><arg_key>path</arg_key><arg_value>p</arg_value>{26}{24}");
    CHECK(
        "start 0 write\nargs 0 {\"path\":\"1\"}\nend 0\nfinish tool_calls",
        "{25}write<arg_key>path</arg_key><arg_value>1</arg_value><arg_key>path</arg_key><arg_value>2</arg_value>{26}{24}");
    CHECK("start 0 write\nargs 0 {\"path\":\"1\"}\nend 0\nstart 1 ls\nargs 1 {}\nend 1\nfinish tool_calls",
          "{25}write<arg_key>path</arg_key><arg_value>1</arg_value>{25}ls{26}{24}");
    CHECK("start 0 write\nargs 0 {\"<think>k\":\"v\"}\nend 0\nfinish tool_calls",
          "{25}write<arg_key>{18}k</arg_key>{19}<arg_value>v</arg_value>{26}{24}");
    CHECK("start 0 write\nargs 0 {}\nend 0\nfinish tool_calls", "{25}write<arg_key>pa{26}{24}");
    CHECK("start 0 write\nargs 0 {}\nend 0\nfinish tool_calls", "{25}write<arg_key>path</arg_key>{24}");
    CHECK("start 0 write\nfinish length", "{25}write<arg_key>path</arg_key>", .how = LG_END_LENGTH);
}

static void test_values(void **state)
{
#define VALUE(v) "{25}write<arg_key>text</arg_key><arg_value>" v
#define TEXT(v) "start 0 write\nargs 0 {\"text\":\"" v "\"}\nend 0\nfinish tool_calls"
    (void)state;
    CHECK(TEXT("a</arg_value>b"), VALUE("a</arg_value>b</arg_value>{26}{24}"));
    CHECK(TEXT("a</arg_value> \\\\n<b"), VALUE("a</arg_value> \n<b</arg_value>{26}{24}"));
    CHECK(TEXT("</arg_value>"), VALUE("</arg_value></arg_value> \n{26}{24}"));
    CHECK(TEXT("</arg_value><arg_"), VALUE("</arg_value><arg_</arg_value>{26}{24}"));
    CHECK(TEXT("</arg_value><arg_kex>"), VALUE("</arg_value><arg_kex></arg_value>{26}{24}"));
    CHECK(TEXT("</arg_</arg_</arg_value"), VALUE("</arg_</arg_</arg_value</arg_value>{26}{24}"));
    CHECK(TEXT("</arinag</argh</arrr"), VALUE("</arinag</argh</arrr</arg_value>{26}{24}"));
    CHECK(TEXT("<</arg_value>x"), VALUE("<</arg_value>x</arg_value>{26}{24}"));
    CHECK(TEXT("a<think>b</think>c<assistant>d<tool_call>e"),
          VALUE("a{18}b{19}c{23}d{25}e</arg_value>{26}{24}"));
    CHECK(TEXT("a</tool_call>b"), VALUE("a{26}b</arg_value>{26}{24}"));
    CHECK(TEXT("a</tool_call> \\\\n</tool_call>"), VALUE("a{26} \n{26}</arg_value>{26}{24}"));
    CHECK(TEXT("a</tool_call> </arg_valu"), VALUE("a{26} </arg_valu</arg_value>{26}{24}"));
    CHECK(TEXT("a"), VALUE("a{26} \n{24}"));
    CHECK(TEXT("a</arg_value><think>b"), VALUE("a</arg_value>{18}b</arg_value>{26}{24}"));
    CHECK(TEXT("a</arg_"), VALUE("a</arg_{24}"));                // everything held back is flushed
    CHECK(TEXT("a</arg_value><arg_"), VALUE("a</arg_value><arg_{24}"));
    CHECK(TEXT("a"), VALUE("a</arg_value> {24}"));
    CHECK(TEXT("a"), VALUE("a{24}"));
    CHECK("start 0 write\nargs 0 {\"text\":\"a\"}\nend 0\nstart 1 ls\nargs 1 {}\nend 1\nfinish tool_calls",
          VALUE("a{26}{25}ls{26}{24}"));
    CHECK("start 0 write\nargs 0 {\"text\":\"a\nfinish length", VALUE("a</arg_"), .how = LG_END_LENGTH);
    CHECK("start 0 write\nargs 0 {\"text\":\"a\nfinish length", VALUE("a{26}"), .how = LG_END_LENGTH);
    CHECK("start 0 write\nargs 0 {\"text\":\"a\"\nfinish length", VALUE("a</arg_value>"),
          .how = LG_END_LENGTH);
    CHECK("start 0 write\nargs 0 {\"text\":\"a\nfinish stop", VALUE("a"), .how = LG_END_STOP_STRING);
    CHECK("start 0 write\nfinish length", "{25}write<arg_key>mode</arg_key><arg_value>4",
          .how = LG_END_LENGTH);
    CHECK("start 0 write\nargs 0 {\"mode\":\"4</arg_value>x\"}\nend 0\nfinish tool_calls",
          "{25}write<arg_key>mode</arg_key><arg_value>4</arg_value>x</arg_value>{26}{24}");
    CHECK("start 0 write\nargs 0 {\"text\":\"\\\\\"\\\\\\\\\\\\u0001\\\\t\"}\nend 0\nfinish tool_calls",
          VALUE("\"\\\x01\t</arg_value>{26}{24}"));
}

// Long strings must arrive while they are written.
static void test_streaming(void **state)
{
    lg_reply_params p = {.tool = tools.tool, .n_tool = tools.n};
    lg_reply *r = NULL;
    tt_transcript t;
    lg_err err = {0};
    bool done;

    (void)state;
    tt_transcript_init(&t);
    assert_int_equal(lg_reply_create(tt_vocab(), &p, 1 << 20, tt_transcript_event, &t, &r, &err), LG_OK);
    assert_int_equal(lg_reply_feed(r, 25, &done, &err), LG_OK);
    assert_int_equal(lg_reply_now(r), LG_PHASE_TOOL);
    (void)tt_feed(r, LG_STR("write<arg_key>text</arg_key><arg_value>"), 0);
    for (int i = 0; i < 2000; i++) {
        size_t before = t.out.n;
        (void)tt_feed(r, LG_STR("abc"), 0);
        assert_int_equal(t.out.n, before + 3);
    }
    lg_reply_destroy(r); // without an end
    lg_buf_free(&t.out);
}

static void count_events(void *ctx, const lg_event *ev)
{
    *(size_t *)ctx += ev->text.n > 0;
}

// An ordinary reply is parsed without allocating.
static void test_no_allocation(void **state)
{
    static const char text[] = " the quick \xE4\xB8\x96 return (x);\n";
    lg_str stop = LG_STR("STOP");
    lg_reply_params p = {.thinking = true,
                         .open_reasoning = true,
                         .tool = tools.tool,
                         .n_tool = tools.n,
                         .stop = &stop,
                         .n_stop = 1};
    lg_ids ids = {0};
    lg_reply *r = NULL;
    size_t n_events = 0;
    lg_err err = {0};
    bool done;

    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    for (int part = 0; part < 3; part++) {
        for (int i = 0; i < 40; i++)
            assert_int_equal(lg_bpe_encode(tt_bpe(), LG_STR(text), false, &ids, &err), LG_OK);
        assert_int_equal(lg_ids_add(&ids, part == 0 ? 19 : part == 1 ? 25 : 24, &err), LG_OK);
        if (part == 1)
            assert_int_equal(
                lg_bpe_encode(tt_bpe(), LG_STR("write<arg_key>text</arg_key><arg_value>"), false, &ids, &err),
                LG_OK);
    }
    assert_int_equal(lg_reply_create(tt_vocab(), &p, 1 << 20, count_events, &n_events, &r, &err), LG_OK);
    long before = fault_calls(FAULT_ALLOC);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(lg_reply_feed(r, ids.p[i], &done, &err), LG_OK);
    assert_true(fault_calls(FAULT_ALLOC) - before <= 2); // the list of keys, and what stop strings hold back
    assert_true(done && n_events > 100);
    lg_reply_destroy(r);
    lg_ids_free(&ids);
}

static void test_phase_and_count(void **state)
{
    lg_reply_params p = {.thinking = true, .open_reasoning = true, .tool = tools.tool, .n_tool = tools.n};
    lg_reply *r = NULL;
    tt_transcript t;
    lg_err err = {0};
    bool done;
    lg_finish f;

    (void)state;
    tt_transcript_init(&t);
    assert_int_equal(lg_reply_create(tt_vocab(), &p, 1 << 20, tt_transcript_event, &t, &r, &err), LG_OK);
    assert_int_equal(lg_reply_now(r), LG_PHASE_REASONING);
    for (int i = 0; i < 5; i++)
        assert_int_equal(lg_reply_feed(r, 167, &done, &err), LG_OK);
    assert_int_equal(lg_reply_reasoning_tokens(r), 5);
    assert_int_equal(lg_reply_feed(r, 19, &done, &err), LG_OK);
    assert_int_equal(lg_reply_now(r), LG_PHASE_CONTENT);
    assert_int_equal(lg_reply_feed(r, 167, &done, &err), LG_OK);
    assert_int_equal(lg_reply_reasoning_tokens(r), 5);
    assert_false(done);
    assert_int_equal(lg_reply_feed(r, 24, &done, &err), LG_OK);
    assert_true(done);
    assert_int_equal(lg_reply_feed(r, 167, &done, &err), LG_OK); // nothing comes after the end
    assert_true(done);
    assert_int_equal(lg_reply_end(r, LG_END_LENGTH, &f, &err), LG_OK);
    assert_int_equal(f, LG_FINISH_STOP);
    assert_int_equal(lg_reply_stop(r), -1);
    tt_transcript_finish(&t, "stop");
    assert_str(lg_buf_str(&t.out), "reasoning aaaaa\ncontent a\nfinish stop");
    lg_reply_destroy(r);
    lg_buf_free(&t.out);
}

/* --- the other family, raw text, stop strings --- */

static void test_v2(void **state)
{
    (void)state;
    CHECK("reasoning plan\\n more\ncontent go  on\nfinish stop", "\n plan\n more \n{19}\n go  on \n{24}",
          .open = true, .v2 = true);
    CHECK("content a\nstart 0 ls\nargs 0 {}\nend 0\ncontent b\nfinish tool_calls",
          "\na\n{25}ls\n{26}\nb\n{24}", .v2 = true);
    CHECK("finish stop", " \n{19} \n{24}", .open = true, .v2 = true);
    CHECK("content a\nfinish length", "a \n", .v2 = true, .how = LG_END_LENGTH);
}

static void test_raw(void **state)
{
    (void)state;
    CHECK("content \\n a<think>b<tool_call>ls</tool_call> \nfinish stop", "\n a{18}b{25}ls{26} {24}",
          .raw = true);
    CHECK("content x\xE3\x80\x88|PAD|\xE3\x80\x89\nfinish length", "x{09}", .raw = true,
          .how = LG_END_LENGTH);
    CHECK("content ab\nfinish stop", "abSTOPc", .raw = true, .stop = {"STOP"}, .how = LG_END_LENGTH);
    CHECK("content x\nfinish stop", "x{24}", .raw = true, .open = true);
    CHECK("content x\nfinish stop", "x{06}y{24}", .raw = true, .stop_id = 6, .how = LG_END_LENGTH);
}

static void test_one_call(void **state)
{
    (void)state;
    CHECK("content a\nstart 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "a{25}ls{26}b{25}ls{26}{24}",
          .one_call = true, .how = LG_END_LENGTH);
    // a second <tool_call> closes the first call
    CHECK("start 0 write\nargs 0 {\"path\":\"1\"}\nend 0\nfinish tool_calls",
          "{25}write<arg_key>path</arg_key><arg_value>1</arg_value>{25}ls{26}{24}", .one_call = true,
          .how = LG_END_LENGTH);
    CHECK("content a<tool_call></tool_call>b\nfinish stop", "a{25}{26}b{24}", .one_call = true);
}

static void test_stop_strings(void **state)
{
    script which = {.text = "one and two", .how = LG_END_LENGTH, .stop = {"two", "and", "nd t"}};
    tt_transcript t;
    int stop;

    (void)state;
    CHECK("content one \nfinish stop", "one STOP two", .stop = {"STOP"});
    CHECK("content one STO\nfinish length", "one STO", .stop = {"STOP"}, .how = LG_END_LENGTH);
    CHECK("content SSTSTO\nfinish stop", "SSTSTOSTOP", .stop = {"STOP"});
    CHECK("reasoning STOP\ncontent a\nfinish stop", "STOP{19}aSTOP{24}", .open = true, .stop = {"STOP"});
    CHECK("start 0 write\nargs 0 {\"text\":\"STOP\"}\nend 0\ncontent b\nfinish stop",
          "{25}write<arg_key>text</arg_key><arg_value>STOP</arg_value>{26}bSTOPc{24}", .stop = {"STOP"});
    CHECK("finish stop", "\nabc", .stop = {"\n"}, .how = LG_END_LENGTH);
    CHECK("content \xC3\xA9\nfinish stop", "\xC3\xA9\xC3\xA8x", .stop = {"\xC3\xA8"}, .how = LG_END_LENGTH);
    CHECK("content aST\nstart 0 ls\nargs 0 {}\nend 0\nfinish tool_calls", "aST{25}ls{26}{24}",
          .stop = {"STOP"});
    CHECK("content a<tool_call\nfinish stop", "a{25}x{24}", .stop = {">x"}); // markup that is content
    CHECK("content x\nfinish stop", "x</think>y", .stop = {"</think>"}, .how = LG_END_LENGTH);
    CHECK("content x\nfinish stop", "x{19}y", .stop = {"</think>"}, .how = LG_END_LENGTH);
    (void)run(&which, 0, &t, &stop);
    assert_int_equal(stop, 1);
    assert_str(lg_buf_str(&t.out), "content one \nfinish stop");
    lg_buf_free(&t.out);
    which.text = "two";
    (void)run(&which, 0, &t, &stop);
    assert_int_equal(stop, 0);
    lg_buf_free(&t.out);
}

// A long hostile stop string neither loses text nor costs more than linear time.
static void test_long_stop(void **state)
{
    enum { N = 40000 };
    char *stop = malloc(N + 1), *text = malloc(3 * N + 1);
    lg_str needle = {stop, N};
    lg_reply_params p = {.stop = &needle, .n_stop = 1};
    lg_reply *r = NULL;
    tt_transcript t;
    lg_finish f;
    lg_err err = {0};

    (void)state;
    memset(stop, 'a', N);
    stop[N - 1] = 'b';
    memset(text, 'a', 3 * N);
    text[3 * N] = 0;
    tt_transcript_init(&t);
    assert_int_equal(lg_reply_create(tt_vocab(), &p, 1 << 20, tt_transcript_event, &t, &r, &err), LG_OK);
    assert_false(tt_feed(r, (lg_str){text, 3 * N}, 16));
    assert_int_equal(lg_reply_end(r, LG_END_LENGTH, &f, &err), LG_OK);
    assert_int_equal(t.out.n, strlen("content ") + 3 * N);
    lg_reply_destroy(r);
    lg_buf_free(&t.out);
    free(stop);
    free(text);
}

/* --- limits --- */

static void test_limit(void **state)
{
    lg_reply_params p = {.tool = tools.tool, .n_tool = tools.n};
    lg_reply *r = NULL;
    tt_transcript t;
    lg_err err = {0};
    lg_status st = LG_OK;
    bool done;

    (void)state;
    tt_transcript_init(&t);
    assert_int_equal(lg_reply_create(tt_vocab(), &p, 1000, tt_transcript_event, &t, &r, &err), LG_OK);
    assert_int_equal(lg_reply_feed(r, 25, &done, &err), LG_OK);
    for (int i = 0; i < 2000 && st == LG_OK; i++)
        st = lg_reply_feed(r, 167, &done, &err);
    assert_int_equal(st, LG_E_LIMIT);
    lg_reply_destroy(r);
    lg_buf_free(&t.out);
}

static void test_no_memory(void **state)
{
    static const char text[] = "write<arg_key>any</arg_key><arg_value>['x', {'y': 1}]</arg_value>";
    lg_str stop = LG_STR("STOP");
    lg_reply_params p = {.tool = tools.tool, .n_tool = tools.n, .stop = &stop, .n_stop = 1};
    lg_ids ids = {0};
    lg_err err = {0};

    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    assert_int_equal(lg_ids_add(&ids, 167, &err), LG_OK);
    assert_int_equal(lg_ids_add(&ids, 25, &err), LG_OK);
    assert_int_equal(lg_bpe_encode(tt_bpe(), LG_STR(text), false, &ids, &err), LG_OK);
    assert_int_equal(lg_ids_add(&ids, 26, &err), LG_OK);
    for (long n = 1;; n++) {
        lg_reply *r = NULL;
        tt_transcript t;
        lg_finish f;
        bool done;
        tt_transcript_init(&t);
        assert_non_null(lg_buf_room(&t.out, 4096)); // what the test itself needs
        fault_arm(FAULT_ALLOC, n);
        lg_status st = lg_reply_create(tt_vocab(), &p, 1 << 20, tt_transcript_event, &t, &r, &err);
        for (size_t i = 0; i < ids.n && st == LG_OK; i++)
            st = lg_reply_feed(r, ids.p[i], &done, &err);
        if (st == LG_OK)
            st = lg_reply_end(r, LG_END_EOG, &f, &err);
        long failed = fault_disarm();
        lg_reply_destroy(r);
        lg_buf_free(&t.out);
        if (failed == 0) {
            assert_int_equal(st, LG_OK);
            assert_true(n > 8);
            break;
        }
        assert_true(st == LG_E_NOMEM || st == LG_E_LIMIT);
    }
    lg_ids_free(&ids);
}

/* --- random scripts --- */

// Any cut gives the same events; arguments of a call that ended are a JSON object.
static void test_random(void **state)
{
    static const char *const part[] = {
        "{18}",
        "{19}",
        "{25}",
        "{26}",
        "{23}",
        "{24}",
        "ls",
        "write",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "path",
        "text",
        "mode",
        "any",
        " ",
        "\n",
        "<",
        "</arg_",
        "\"",
        "\\",
        "{",
        "}",
        "[1, 'a']",
        "{\"name\":\"ls\"}",
        "STOP",
        "ST",
        "\xC3\xA9",
        "\xE4\xB8",
        "<tool_call>",
        "x",
        "write<arg_key>text</arg_key><arg_value>",
        "</arg_value>{26}",
    };
    enum { N_PARTS = sizeof part / sizeof part[0] };
    unsigned seed = 5;

    (void)state;
    for (int round = 0; round < 6000; round++) {
        char text[1024] = "";
        script s = {.text = text,
                    .how = (lg_end)(rand_r(&seed) % 4),
                    .open = rand_r(&seed) % 2,
                    .no_think = rand_r(&seed) % 4 == 0,
                    .no_tools = rand_r(&seed) % 8 == 0,
                    .v2 = rand_r(&seed) % 4 == 0,
                    .stop = {rand_r(&seed) % 2 ? "STOP" : NULL}};
        size_t n = 0;
        tt_transcript first;
        for (int k = rand_r(&seed) % 24; k > 0; k--)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", part[rand_r(&seed) % N_PARTS]);
        (void)run(&s, 0, &first, NULL);
        for (size_t step = 1; step < 6; step += 2) {
            tt_transcript again;
            (void)run(&s, step, &again, NULL);
            if (!lg_str_eq(lg_buf_str(&again.out), lg_buf_str(&first.out))) {
                print_error("script %s\nstep %zu\n%.*s\nelse\n%.*s\n", text, step, (int)again.out.n,
                            again.out.p, (int)first.out.n, first.out.p);
                fail();
            }
            lg_buf_free(&again.out);
        }
        lg_buf_free(&first.out);
    }
}

static int set_up(void **state)
{
    lg_err err = {0};

    (void)state;
    lg_arena_init(&arena, 1 << 20);
    doc = tt_parse(LG_STR(tools_json));
    return lg_chat_json_tools(lg_json_root(doc), NULL, &arena, &tools, &err) != LG_OK;
}

static int tear_down(void **state)
{
    (void)state;
    lg_json_free(doc);
    lg_arena_free(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_json_body),
        cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_phase_and_count),
        cmocka_unit_test(test_v2),
        cmocka_unit_test(test_raw),
        cmocka_unit_test(test_one_call),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_long_stop),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
