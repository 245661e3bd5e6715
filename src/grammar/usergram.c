/*
 * grammar/usergram: grammars that are no JSON Schema: a pattern, a list of texts. What they admit is raw
 * text, without quotes and escapes. Any thread.
 */
#include <string.h>

#include "grammar/emit.h"

// A program that is one terminal.
static void emit_only(lg_compiler *c, uint32_t term)
{
    lg_writer w = {.c = c, .p = c->prog};
    lg_program *p = c->prog;
    uint32_t start = lg_emit_state(&w), final = lg_emit_state(&w);

    p->state[final].final = true;
    (void)lg_emit_edge(&w, start, final, LG_EDGE_TERM, term);
    p->rule = lg_emit_more(&w, p->rule, 0, &p->cap_rule, sizeof *p->rule, LG_MAX_RULES, "rules");
    p->rule[0] = (lg_rule){start, 0};
    p->root = 0;
    p->n_rule = 1;
}

static void compile_regex(lg_compiler *c, const void *ctx)
{
    static const char open[] = "^(?:", close[] = ")$";
    const lg_str *pattern = ctx;
    size_t n_open = sizeof open - 1, n_close = sizeof close - 1, n = n_open + pattern->n + n_close;
    char *whole = LG_PERM(c, char, n);
    uint32_t term;
    lg_dfa d;

    c->what = "pattern";
    (void)lg_regex_parse(c, *pattern); // by itself: its brackets must close inside
    memcpy(whole, open, n_open);
    memcpy(whole + n_open, pattern->p, pattern->n);
    memcpy(whole + n_open + pattern->n, close, n_close);
    d = lg_regex_dfa(c, (lg_str){whole, n});
    term = lg_lower_string(c, LG_TERM_RAW, &d, 0, LG_NONE);
    if (term == LG_NONE)
        lg_compile_fail(c, LG_GRAMMAR_UNSATISFIABLE, "no text matches this pattern");
    emit_only(c, term);
}

lg_status lg_grammar_regex(lg_str pattern, lg_grammar **out, lg_grammar_error *why, lg_err *err)
{
    return lg_compile_run(compile_regex, &pattern, NULL, out, why, err);
}

typedef struct choice {
    const lg_str *text;
    size_t n;
} choice;

static bool is_utf8(lg_str s)
{
    int32_t cp = 0;

    for (size_t i = 0; i < s.n && cp >= 0;)
        i += (size_t)lg_utf8_step(s.p + i, s.n - i, &cp);
    return cp >= 0;
}

static void compile_choice(lg_compiler *c, const void *ctx)
{
    const choice *ch = ctx;
    lg_str *word;
    size_t bytes = 0;

    c->what = "choices";
    if (ch->n == 0)
        lg_compile_fail(c, LG_GRAMMAR_UNSATISFIABLE, "there is nothing to choose from");
    if (ch->n > LG_MAX_ENUM)
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "more than %d choices", LG_MAX_ENUM);
    word = LG_TMP(c, lg_str, ch->n);
    for (size_t i = 0; i < ch->n; i++) {
        bytes += ch->text[i].n;
        if (ch->text[i].n == 0)
            lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "a choice may not be empty");
        if (bytes > LG_MAX_LITERAL_BYTES)
            lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "the choices hold more than %d bytes",
                            LG_MAX_LITERAL_BYTES);
        if (!is_utf8(ch->text[i]))
            lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "a choice is not UTF-8");
        word[i] = (lg_str){LG_PERM(c, char, ch->text[i].n), ch->text[i].n};
        memcpy((char *)word[i].p, ch->text[i].p, ch->text[i].n);
    }
    emit_only(c, lg_lower_words(c, word, (uint32_t)ch->n, NULL));
}

lg_status lg_grammar_choice(const lg_str *text, size_t n, lg_grammar **out, lg_grammar_error *why,
                            lg_err *err)
{
    choice c = {text, n};

    return lg_compile_run(compile_choice, &c, NULL, out, why, err);
}
