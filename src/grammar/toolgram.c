/*
 * grammar/toolgram: the grammar of tool calls. The call's brackets are control tokens; the tags inside are
 * ordinary text. Values that are always strings stand raw between their tags, so their text may not hold the
 * closing tag, and neither may the strings of JSON values.
 */
#include <stdio.h>
#include <string.h>

#include "grammar/emit.h"

#define KEY_OPEN     "<arg_key>"
#define KEY_TO_VALUE "</arg_key><arg_value>"
#define VALUE_CLOSE  "</arg_value>"

typedef struct tools {
    const lg_grammar_tool *tool;
    size_t n;
    int max_calls;
    const lg_special *special;
    lg_str schema;
} tools;

typedef struct argument { // what a value may be
    bool text, other;
    bool every; // any text at all
    bool one;   // a single alternative: its lengths are kept as numbers
    uint32_t min, max;
    uint32_t n;
    lg_dfa dfa;
} argument;

static void classify(lg_compiler *c, const lg_alternative *a, void *ctx)
{
    argument *arg = ctx;
    const lg_json **value;
    uint32_t n;
    bool every = false;
    lg_dfa d;

    if (!a->n_one_of && lg_lower_values(c, a, &value, &n)) {
        for (uint32_t i = 0; i < n; i++) {
            bool string = lg_json_is(value[i], LG_JSON_STRING);
            arg->text |= string;
            arg->other |= !string;
        }
        arg->n++;
        d = lg_lower_texts(c, a, &every);
    } else {
        arg->other |= (a->types & ~(unsigned)LG_TYPE_STRING) != 0;
        if (!(a->types & LG_TYPE_STRING))
            return;
        arg->text = true;
        if (arg->n++ == 0 && !a->n_one_of) { // most are a plain string
            arg->one = true;
            arg->dfa = lg_lower_patterns(c, a, &arg->every, &arg->min, &arg->max);
            return;
        }
        d = lg_lower_texts(c, a, &every);
    }
    if (arg->one) { // the lengths of the first must become part of its automaton after all
        lg_dfa length = lg_dfa_length(c, arg->min, arg->max), any = lg_dfa_any(c);
        arg->dfa = lg_dfa_product(c, arg->every ? &any : &arg->dfa, &length, LG_DFA_AND);
        arg->every = arg->every && arg->min == 0 && arg->max == LG_NONE;
        arg->one = false;
        arg->min = 0;
        arg->max = LG_NONE;
    }
    arg->every |= every;
    arg->dfa = lg_dfa_product(c, &arg->dfa, &d, LG_DFA_OR);
}

// From a state behind the opening tag to `to`, behind the value.
static void emit_argument(lg_writer *w, uint32_t conj, uint32_t from, uint32_t to)
{
    lg_compiler *c = w->c;
    const lg_conj *k = &c->lower->conj[conj];
    argument arg = {.max = LG_NONE};
    uint32_t term;
    lg_mark mark = lg_arena_mark(&c->tmp);
    lg_dfa any, tag, raw;

    lg_lower_expand(c, k->id, k->n, true, classify, &arg);
    if (!arg.text) {
        lg_emit_edge(w, from, to, LG_EDGE_CALL, lg_emit_rule(w, conj))->height = (int16_t)k->height;
        lg_arena_reset(&c->tmp, mark);
        return;
    }
    any = lg_dfa_any(c);
    tag = lg_dfa_containing(c, LG_STR(VALUE_CLOSE));
    if (arg.other) // may be read as something else: then nothing is known about the text
        arg = (argument){.every = true, .max = LG_NONE};
    raw = lg_dfa_product(c, arg.every ? &any : &arg.dfa, &tag, LG_DFA_AND_NOT);
    term = lg_lower_string(c, LG_TERM_RAW, &raw, arg.min, arg.max);
    lg_arena_reset(&c->tmp, mark);
    if (term == LG_NONE) {
        lg_compile_at(c, k->n ? k->id[0] >> 1 : c->root, NULL, NULL);
        lg_compile_fail(c, LG_GRAMMAR_UNSATISFIABLE, "no text satisfies this");
    }
    (void)lg_emit_edge(w, from, to, LG_EDGE_TERM, term);
}

static lg_str key_word(lg_compiler *c, lg_str name)
{
    size_t open = sizeof KEY_OPEN - 1, close = sizeof KEY_TO_VALUE - 1;
    char *p = LG_PERM(c, char, open + name.n + close);

    memcpy(p, KEY_OPEN, open);
    memcpy(p + open, name.p, name.n);
    memcpy(p + open + name.n, KEY_TO_VALUE, close);
    return (lg_str){p, open + name.n + close};
}

static void emit_arguments(lg_writer *w, const lg_body *b, uint32_t from, uint32_t final)
{
    lg_compiler *c = w->c;
    lg_members m = {0};
    uint32_t *target, *after, *number, hi = LG_NONE, names = LG_NONE;
    lg_edge *e;

    m.object = lg_emit_new_object(w, b, &m);
    w->p->object[m.object].any_order = false; // of arguments the order is always that of the schema
    target = LG_PERM(c, uint32_t, m.n + 1);
    after = LG_TMP(c, uint32_t, m.n + 1);
    number = LG_TMP(c, uint32_t, m.n + 1);
    after[0] = from;
    for (uint32_t i = 0; i < m.n; i++) {
        uint32_t value = lg_emit_state(w);
        if (lg_str_find(m.word[i], LG_STR("<"), 0) != SIZE_MAX) {
            lg_compile_at(c, c->root, "properties", &m.word[i]);
            lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "the name of a parameter may not hold \"<\"");
        }
        m.word[i] = key_word(c, m.word[i]);
        number[i] = i;
        target[i] = lg_emit_state(w);
        after[i + 1] = lg_emit_state(w);
        emit_argument(w, m.child[i], target[i], value);
        lg_emit_word(w, value, after[i + 1], LG_STR(VALUE_CLOSE));
    }
    if (m.n)
        names = lg_lower_words(c, m.word, m.n, number);
    w->p->object[m.object].target = target;
    for (uint32_t i = m.n + 1; i-- > 0;) {
        if (i < m.n && m.required[i])
            hi = i;
        if (i < m.n)
            (void)lg_emit_edge(w, after[i], lg_emit_names(w, &m, i, hi, names, NULL), LG_EDGE_EPS, 0);
        if (hi != LG_NONE)
            continue;
        e = lg_emit_edge(w, after[i], final, LG_EDGE_EPS, 0);
        e->guard = LG_GUARD_CLOSE;
        e->object = m.object;
    }
}

static void emit_tool(lg_writer *w, const tools *t, size_t i, uint32_t from, uint32_t final)
{
    static const lg_str none = {"{\"type\":\"object\"}", 17};
    lg_compiler *c = w->c;
    uint32_t id, root;

    (void)snprintf(c->prefix, sizeof c->prefix, "/tools/%zu/function/parameters", i);
    if (c->doc)
        lg_compile_own(c, c->doc);
    c->doc = NULL;
    lg_schema_read(c, t->tool[i].parameters.n ? t->tool[i].parameters : none);
    id = LG_WHOLE(c->root);
    root = lg_lower_conj(c, &id, 1, false);
    c->lower->n_proof = 0;
    lg_lower_all(c, root);
    for (const lg_body *b = c->lower->conj[root].body; b; b = b->next) {
        if (b->kind != LG_BODY_OBJECT) {
            lg_compile_at(c, c->root, NULL, NULL);
            lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA, "the parameters of a tool must be an object");
        }
        if (lg_lower_height(c, b) != LG_NO_HEIGHT)
            emit_arguments(w, b, from, final);
    }
    lg_emit_rules(w);
}

// Arguments that follow no schema: nothing, or any text that is no more of a name.
static void emit_any(lg_writer *w, uint32_t from, uint32_t end)
{
    lg_mark mark = lg_arena_mark(&w->c->tmp);
    lg_dfa text = lg_regex_dfa(w->c, LG_STR("^[<\\s]"));
    uint32_t term = lg_lower_string(w->c, LG_TERM_RAW, &text, 0, LG_NONE);

    lg_arena_reset(&w->c->tmp, mark);
    (void)lg_emit_edge(w, from, end, LG_EDGE_EPS, 0);
    (void)lg_emit_edge(w, from, end, LG_EDGE_TERM, term);
}

// The names, and behind each a state.
static void emit_tool_names(lg_writer *w, const tools *t, uint32_t from, uint32_t *target)
{
    lg_compiler *c = w->c;
    lg_program *p = w->p;
    lg_str *word = LG_TMP(c, lg_str, t->n + 1);
    uint32_t *number = LG_TMP(c, uint32_t, t->n + 1), n = 0;
    lg_edge *e;

    for (size_t i = 0; i < t->n; i++) {
        lg_str own = t->tool[i].name;
        target[i] = lg_emit_state(w);
        if (t->tool[i].mode == LG_TOOL_OFF)
            continue;
        if (own.n == 0 || lg_str_find(own, LG_STR("<"), 0) != SIZE_MAX)
            lg_compile_fail(c, LG_GRAMMAR_INVALID_SCHEMA,
                            "the name of a tool may not be empty or hold \"<\"");
        word[n] = (lg_str){LG_PERM(c, char, own.n), own.n};
        memcpy((char *)word[n].p, own.p, own.n);
        number[n++] = (uint32_t)i;
    }
    if (n == 0)
        lg_compile_fail(c, LG_GRAMMAR_UNSATISFIABLE, "there is no tool to call");
    p->object =
        lg_emit_more(w, p->object, p->n_object, &p->cap_object, sizeof *p->object, LG_MAX_STATES, "objects");
    p->object[p->n_object] = (lg_object){.n = (uint32_t)t->n,
                                         .target = target,
                                         .max = LG_NONE,
                                         .req_after = LG_PERM(c, uint32_t, t->n + 1),
                                         .height = LG_PERM(c, uint16_t, t->n + 1)};
    e = lg_emit_edge(w, from, from, LG_EDGE_TERM, lg_lower_words(c, word, n, number));
    e->object = p->n_object++;
    e->hi = (uint32_t)t->n - 1;
}

// The rule of the values that stand in place of calls; `from` leads into it.
static void emit_value_instead(lg_writer *w, lg_str schema, uint32_t from)
{
    lg_compiler *c = w->c;
    uint32_t id, root;

    lg_schema_read(c, schema);
    id = LG_WHOLE(c->root);
    root = lg_lower_conj(c, &id, 1, false);
    lg_lower_all(c, root);
    id = lg_emit_rule(w, root);
    lg_emit_rules(w);
    (void)lg_emit_edge(w, from, w->p->rule[id].start, LG_EDGE_EPS, 0);
    lg_compile_lower(c); // arguments are lowered otherwise: nothing may be shared with them
}

static void compile_tools(lg_compiler *c, const void *ctx)
{
    const tools *t = ctx;
    lg_writer w = {.c = c, .p = c->prog};
    lg_program *p = c->prog;
    uint32_t first, start, name, end, final, *target = LG_PERM(c, uint32_t, t->n + 1);
    lg_edge *e;

    lg_compile_lower(c);
    lg_emit_gaps(&w);
    first = lg_emit_state(&w);
    start = lg_emit_state(&w);
    name = lg_emit_state(&w);
    end = lg_emit_state(&w);
    final = lg_emit_state(&w);
    p->state[final].final = true;
    if (t->schema.n)
        emit_value_instead(&w, t->schema, first);
    c->tools = c->no_end_tag = true;
    p->rule = lg_emit_more(&w, p->rule, p->n_rule, &p->cap_rule, sizeof *p->rule, LG_MAX_RULES, "rules");
    p->rule[p->n_rule] = (lg_rule){first, 0};
    p->root = p->n_rule++;
    (void)lg_emit_edge(&w, first, start, LG_EDGE_EPS, 0);
    e = lg_emit_edge(&w, start, name, LG_EDGE_TOKEN, (uint32_t)t->special->tool_call);
    e->count = true;
    e->top = LG_NONE;
    (void)lg_emit_edge(&w, end, final, LG_EDGE_TOKEN, (uint32_t)t->special->end_tool_call);
    e = lg_emit_edge(&w, final, start, LG_EDGE_EPS, 0);
    e->below = (uint32_t)(t->max_calls > 1 ? t->max_calls : 1);
    emit_tool_names(&w, t, name, target);
    for (size_t i = 0; i < t->n; i++)
        if (t->tool[i].mode == LG_TOOL_TYPED)
            emit_tool(&w, t, i, target[i], end);
        else if (t->tool[i].mode == LG_TOOL_ANY)
            emit_any(&w, target[i], end);
}

lg_status lg_grammar_tools(const lg_grammar_tool *tool, size_t n, int max_calls, const lg_special *special,
                           lg_str schema, const lg_grammar_options *opt, lg_grammar **out,
                           lg_grammar_error *why, lg_err *err)
{
    tools t = {tool, n, max_calls, special, schema};

    if (n == 0 || special->tool_call < 0 || special->end_tool_call < 0)
        return LG_FAIL(err, LG_E_INPUT,
                       n ? "the vocabulary has no tokens for tool calls" : "there is no tool to call");
    return lg_compile_run(compile_tools, &t, opt, out, why, err);
}
