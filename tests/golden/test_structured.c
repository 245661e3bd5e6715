/*
 * golden/test_structured: the recorded cases of constrained decoding (structured-cases.jsonl): what each
 * schema must accept, refuse, or be refused for itself. Texts are fed byte by byte and as the tokenizer cuts
 * them; every token must be in the mask where it is fed.
 *
 * Cases whose schema is refused as not supported are counted; their number may only shrink.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "support/texts.h"
#include "text/bpe.h"

enum { NOT_SUPPORTED = 0 }; // cases; lower it when it shrinks

typedef struct tally {
    const lg_token_trie *trie;
    int32_t byte[256];
    const char *id;
    bool calls; // texts hold control tokens, written by name
    int n_case, n_passed, n_refused, n_wrong, n_texts;
    bool wrong; // the case at hand
} tally;

static void report(tally *t, const char *what, lg_str text)
{
    printf("WRONG %s %s: %.*s\n", t->id, what, (int)(text.n < 300 ? text.n : 300), text.p);
    t->wrong = true;
}

static void die(const char *what, const lg_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(1);
}

// --- writing values ---

static void newline(lg_buf *out, int indent, int depth)
{
    if (indent <= 0)
        return;
    (void)lg_buf_addc(out, '\n');
    for (int i = 0; i < indent * depth; i++)
        (void)lg_buf_addc(out, ' ');
}

// indent 0: compact; -1: Python's separators; else as many spaces a level.
static void dump(const lg_json *j, int indent, int depth, lg_buf *out)
{
    bool object = lg_json_is(j, LG_JSON_OBJECT);
    size_t n = lg_json_len(j);

    if (lg_json_is(j, LG_JSON_STRING)) {
        (void)lg_json_quote(lg_json_str(j), out);
    } else if (lg_json_is(j, LG_JSON_NUMBER)) {
        (void)lg_buf_adds(out, lg_json_number_text(j));
    } else if (!object && !lg_json_is(j, LG_JSON_ARRAY)) {
        (void)lg_json_dump(j, out);
    } else {
        (void)lg_buf_addc(out, object ? '{' : '[');
        for (size_t i = 0; i < n; i++) {
            lg_str key;
            const lg_json *v = object ? lg_json_member(j, i, &key) : lg_json_at(j, i);
            if (i)
                (void)lg_buf_addz(out, indent < 0 ? ", " : ",");
            newline(out, indent, depth + 1);
            if (object) {
                (void)lg_json_quote(key, out);
                (void)lg_buf_addz(out, indent ? ": " : ":");
            }
            dump(v, indent, depth + 1, out);
        }
        if (n)
            newline(out, indent, depth);
        (void)lg_buf_addc(out, object ? '}' : ']');
    }
}

// --- feeding ---

static bool feed(tally *t, lg_matcher *m, int32_t id)
{
    const uint32_t *mask;
    lg_err err = {0};
    bool ok, in_mask;

    if (lg_matcher_mask(m, &mask, &err) != LG_OK)
        die("mask", &err);
    in_mask = mask[id / 32] >> id % 32 & 1;
    if (lg_matcher_accept(m, id, &ok, &err) != LG_OK)
        die("accept", &err);
    if (ok != in_mask)
        report(t, "mask and matcher disagree on", lg_vocab_bytes(tt_vocab(), id));
    return ok;
}

static bool complete(lg_matcher *m)
{
    const uint32_t *mask;
    int32_t eos = lg_vocab_special(tt_vocab())->eos;
    lg_err err = {0};

    if (lg_matcher_mask(m, &mask, &err) != LG_OK)
        die("mask", &err);
    return mask[eos / 32] >> eos % 32 & 1;
}

// Is the text a whole reply? step 0: in the tokenizer's pieces; else in single bytes. Control tokens are cut
// out by name.
static bool accepted(tally *t, lg_grammar *g, lg_str text, bool bytes)
{
    static const char *const control[] = {"<tool_call>", "</tool_call>"};
    lg_matcher *m;
    lg_err err = {0};
    bool ok = true;

    if (lg_matcher_create(g, t->trie, LG_PHASE_ANSWER, &m, &err) != LG_OK)
        die("matcher", &err);
    for (size_t i = 0; i < text.n && ok;) {
        size_t end = text.n, skip = 0;
        int32_t id = -1;
        for (int k = 0; k < 2; k++) {
            size_t at = lg_str_find(text, lg_str_of(control[k]), i);
            if (at < end) {
                end = at;
                skip = strlen(control[k]);
                id = lg_vocab_find_added(tt_vocab(), lg_str_of(control[k]));
            }
        }
        if (!t->calls) { // elsewhere the same letters are text
            end = text.n;
            skip = 0;
        }
        if (bytes) {
            for (; i < end && ok; i++)
                ok = feed(t, m, t->byte[(unsigned char)text.p[i]]);
        } else if (end > i) {
            lg_ids ids = {0};
            if (lg_bpe_encode(tt_bpe(), (lg_str){text.p + i, end - i}, false, &ids, &err) != LG_OK)
                die("encode", &err);
            for (size_t k = 0; k < ids.n && ok; k++)
                ok = feed(t, m, ids.p[k]);
            lg_ids_free(&ids);
        }
        i = end + skip;
        if (skip && ok)
            ok = feed(t, m, id);
    }
    ok = ok && complete(m);
    lg_matcher_destroy(m);
    t->n_texts++;
    return ok;
}

static void expect(tally *t, lg_grammar *g, lg_str text, bool want)
{
    for (int bytes = 0; bytes < 2; bytes++)
        if (accepted(t, g, text, bytes) != want)
            report(t, want ? "refused" : "accepted", text);
}

static void check_texts(tally *t, lg_grammar *g, const lg_json *c)
{
    const lg_json *list;
    lg_buf text;

    lg_buf_init(&text, 1 << 20);
    list = lg_json_get(c, "valid");
    for (size_t i = 0; i < lg_json_len(list); i++) {
        static const int styles[] = {0, -1, 2};
        for (int k = 0; k < 3; k++) {
            lg_buf_clear(&text);
            dump(lg_json_at(list, i), styles[k], 0, &text);
            expect(t, g, lg_buf_str(&text), true);
        }
    }
    list = lg_json_get(c, "invalid");
    for (size_t i = 0; i < lg_json_len(list); i++) {
        lg_buf_clear(&text);
        dump(lg_json_at(list, i), 0, 0, &text);
        expect(t, g, lg_buf_str(&text), false);
    }
    list = lg_json_get(c, "valid_text");
    for (size_t i = 0; i < lg_json_len(list); i++)
        expect(t, g, lg_json_str(lg_json_at(list, i)), true);
    list = lg_json_get(c, "reject_text");
    for (size_t i = 0; i < lg_json_len(list); i++)
        expect(t, g, lg_json_str(lg_json_at(list, i)), false);
    lg_buf_free(&text);
}

static bool not_supported(lg_grammar_code code)
{
    return code == LG_GRAMMAR_UNSUPPORTED_KEYWORD || code == LG_GRAMMAR_UNSUPPORTED_REGEX ||
           code == LG_GRAMMAR_UNSUPPORTED_FORMAT || code == LG_GRAMMAR_ONEOF_NOT_DISJOINT ||
           code == LG_GRAMMAR_TOO_COMPLEX;
}

static lg_status compile(const lg_json *c, lg_grammar **g, lg_grammar_error *why, lg_err *err)
{
    lg_buf text;
    lg_status st;

    lg_buf_init(&text, 1 << 20);
    (void)lg_json_dump(lg_json_get(c, "schema"), &text);
    st = lg_grammar_schema(lg_buf_str(&text), NULL, g, why, err);
    lg_buf_free(&text);
    return st;
}

static void run_case(void *ctx, const lg_json *c)
{
    tally *t = ctx;
    const lg_json *error = lg_json_get(c, "error");
    lg_grammar *g = NULL;
    lg_grammar_error why;
    lg_err err = {0};
    lg_status st;

    t->id = lg_json_str(lg_json_get(c, "id")).p;
    t->n_case++;
    t->wrong = false;
    st = compile(c, &g, &why, &err);
    if (error) {
        if (st == LG_OK)
            report(t, "should be refused", lg_json_str(lg_json_get(error, "code")));
        else if (!lg_str_eqz(lg_json_str(lg_json_get(error, "code")), lg_grammar_code_name(why.code)) ||
                 !lg_str_eqz(lg_json_str(lg_json_get(error, "pointer")), why.pointer))
            report(t, lg_grammar_code_name(why.code), lg_str_of(why.pointer));
    } else if (st != LG_OK && not_supported(why.code)) {
        printf("refused %s %s: %s\n", t->id, lg_grammar_code_name(why.code), err.msg);
        t->n_refused++;
        return;
    } else if (st != LG_OK) {
        report(t, "cannot be compiled", lg_str_of(err.msg));
    } else {
        check_texts(t, g, c);
    }
    lg_grammar_destroy(g);
    t->n_wrong += t->wrong;
    t->n_passed += !t->wrong;
}

enum { MAX_TOOLS = 8 };

static lg_status compile_tools(const lg_json *c, lg_grammar **g, lg_grammar_error *why, lg_err *err)
{
    const lg_json *list = lg_json_get(c, "tools");
    lg_str only = lg_json_str(lg_json_get(lg_json_get(lg_json_get(c, "tool_choice"), "function"), "name"));
    lg_grammar_tool tool[MAX_TOOLS];
    lg_buf text[MAX_TOOLS];
    size_t n = 0;
    lg_status st;

    for (size_t i = 0; i < lg_json_len(list) && i < MAX_TOOLS; i++) {
        const lg_json *f = lg_json_get(lg_json_at(list, i), "function");
        lg_str name = lg_json_str(lg_json_get(f, "name"));
        if (only.n && !lg_str_eq(name, only))
            continue;
        lg_buf_init(&text[n], 1 << 20);
        (void)lg_json_dump(lg_json_get(f, "parameters"), &text[n]);
        tool[n] = (lg_grammar_tool){.name = name, .parameters = lg_buf_str(&text[n])};
        n++;
    }
    st = lg_grammar_tools(tool, n, 1, lg_vocab_special(tt_vocab()), (lg_str){0}, NULL, g, why, err);
    while (n)
        lg_buf_free(&text[--n]);
    return st;
}

static void run_tools(void *ctx, const lg_json *c)
{
    tally *t = ctx;
    lg_grammar *g = NULL;
    lg_grammar_error why;
    lg_err err = {0};

    t->id = lg_json_str(lg_json_get(c, "id")).p;
    t->n_case++;
    t->wrong = false;
    t->calls = true;
    if (compile_tools(c, &g, &why, &err) != LG_OK)
        report(t, "cannot be compiled", lg_str_of(err.msg));
    else
        check_texts(t, g, c);
    lg_grammar_destroy(g);
    t->n_wrong += t->wrong;
    t->n_passed += !t->wrong;
}

int main(void)
{
    tally t = {0};
    lg_token_trie *trie;
    lg_err err = {0};

    if (lg_token_trie_create(tt_vocab(), &trie, &err) != LG_OK)
        die("trie", &err);
    t.trie = trie;
    for (int32_t id = 0; id < lg_vocab_size(tt_vocab()); id++) {
        lg_str b = lg_vocab_bytes(tt_vocab(), id);
        if (b.n == 1 && !lg_vocab_is_added(tt_vocab(), id))
            t.byte[(unsigned char)b.p[0]] = id;
    }
    (void)tt_each("structured-cases.jsonl", "", run_case, &t);
    (void)tt_each("structured-cases.jsonl", "toolcall", run_tools, &t);
    printf("%d cases, %d texts: %d passed, %d refused as not supported, %d wrong\n", t.n_case, t.n_texts,
           t.n_passed, t.n_refused, t.n_wrong);
    lg_token_trie_destroy(trie);
    return t.n_wrong > 0 || t.n_refused != NOT_SUPPORTED || t.n_case < 141;
}
