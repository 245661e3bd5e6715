/*
 * grammar/emit: writes the program: one rule for each conjunction that the root needs. What no value
 * satisfies is left out here, with the commas and names that would lead to it.
 */
#include "grammar/emit.h"

#include <string.h>

enum { NATURAL_SPACES = 64, NATURAL_TABS = 16, FREE_BLANKS = 64 };

void *lg_emit_more(lg_writer *w, void *p, uint32_t n, size_t *cap, size_t size, uint32_t limit,
                   const char *what)
{
    void *bigger;

    if (n < *cap)
        return p;
    if (n >= limit)
        lg_compile_fail(w->c, LG_GRAMMAR_TOO_COMPLEX, "the schema needs more than %u %s", limit, what);
    *cap = *cap ? *cap * 2 : 256;
    bigger = lg_compile_perm(w->c, *cap, size);
    if (n)
        memcpy(bigger, p, n * size);
    return bigger;
}

uint32_t lg_emit_state(lg_writer *w)
{
    lg_program *p = w->p;

    p->state =
        lg_emit_more(w, p->state, p->n_state, &p->cap_state, sizeof *p->state, LG_MAX_STATES, "states");
    p->state[p->n_state] = (lg_state){LG_NONE, false};
    return p->n_state++;
}

lg_edge *lg_emit_edge(lg_writer *w, uint32_t from, uint32_t to, lg_edge_kind kind, uint32_t arg)
{
    lg_program *p = w->p;
    lg_edge *e;

    p->edge = lg_emit_more(w, p->edge, p->n_edge, &p->cap_edge, sizeof *p->edge, LG_MAX_EDGES, "edges");
    e = &p->edge[p->n_edge];
    *e = (lg_edge){.next = p->state[from].edge,
                   .to = to,
                   .arg = arg,
                   .below = LG_NONE,
                   .height = -1,
                   .kind = (uint8_t)kind};
    p->state[from].edge = p->n_edge++;
    return e;
}

static void punctuation(lg_writer *w, uint32_t from, uint32_t to, char ch)
{
    if (!w->mark[(int)ch]) {
        char *text = LG_PERM(w->c, char, 1);
        lg_str word = {text, 1};
        *text = ch;
        w->mark[(int)ch] = lg_lower_words(w->c, &word, 1, NULL) + 1;
    }
    (void)lg_emit_edge(w, from, to, LG_EDGE_TERM, w->mark[(int)ch] - 1);
}

// A state behind optional whitespace.
static uint32_t gap(lg_writer *w, uint32_t from, int which)
{
    uint32_t to;

    if (w->gap[which] == LG_NONE)
        return from;
    to = lg_emit_state(w);
    (void)lg_emit_edge(w, from, to, LG_EDGE_EPS, 0);
    (void)lg_emit_edge(w, from, to, LG_EDGE_TERM, w->gap[which]);
    return to;
}

static uint32_t bytes_term(lg_writer *w, lg_dfa_maker *m)
{
    lg_dfa d = lg_dfa_end(m);
    lg_term t = {.kind = LG_TERM_BYTES, .dfa = lg_dfa_keep(w->c, &d)};

    return lg_lower_term(w->c, &t);
}

void lg_emit_gaps(lg_writer *w)
{
    lg_dfa_maker m;

    for (int i = 0; i < N_GAPS; i++)
        w->gap[i] = LG_NONE;
    if (w->c->opt->whitespace == LG_WS_COMPACT)
        return;
    lg_dfa_begin(&m, w->c);
    if (w->c->opt->whitespace == LG_WS_FREE) {
        for (uint32_t i = 0; i <= FREE_BLANKS; i++) {
            if (i < FREE_BLANKS) {
                lg_dfa_edge_add(&m, '\t', '\n', i + 1);
                lg_dfa_edge_add(&m, '\r', '\r', i + 1);
                lg_dfa_edge_add(&m, ' ', ' ', i + 1);
            }
            lg_dfa_state_end(&m, i > 0);
        }
        w->gap[GAP_OPEN] = w->gap[GAP_COLON] = w->gap[GAP_BEFORE] = bytes_term(w, &m);
        return;
    }
    // a space; or a newline and spaces (states 2 on) or tabs (behind those)
    lg_dfa_edge_add(&m, '\n', '\n', 2);
    lg_dfa_edge_add(&m, ' ', ' ', 1);
    lg_dfa_state_end(&m, false);
    lg_dfa_state_end(&m, true);
    for (uint32_t i = 0; i <= NATURAL_SPACES; i++) {
        if (i == 0)
            lg_dfa_edge_add(&m, '\t', '\t', 3 + NATURAL_SPACES);
        if (i < NATURAL_SPACES)
            lg_dfa_edge_add(&m, ' ', ' ', 3 + i);
        lg_dfa_state_end(&m, true);
    }
    for (uint32_t i = 1; i <= NATURAL_TABS; i++) {
        if (i < NATURAL_TABS)
            lg_dfa_edge_add(&m, '\t', '\t', 3 + NATURAL_SPACES + i);
        lg_dfa_state_end(&m, true);
    }
    w->gap[GAP_OPEN] = bytes_term(w, &m);
    lg_dfa_begin(&m, w->c);
    lg_dfa_edge_add(&m, ' ', ' ', 1);
    lg_dfa_state_end(&m, false);
    lg_dfa_state_end(&m, true);
    w->gap[GAP_COLON] = bytes_term(w, &m);
}

uint32_t lg_emit_rule(lg_writer *w, uint32_t conj)
{
    lg_lower *l = w->c->lower;

    if (l->conj[conj].rule != LG_NONE)
        return l->conj[conj].rule;
    w->p->rule =
        lg_emit_more(w, w->p->rule, w->p->n_rule, &w->p->cap_rule, sizeof *w->p->rule, LG_MAX_RULES, "rules");
    w->p->rule[w->p->n_rule] = (lg_rule){lg_emit_state(w), l->conj[conj].height};
    l->conj[conj].rule = w->p->n_rule++;
    w->todo = lg_emit_more(w, w->todo, w->n_todo, &w->cap_todo, sizeof *w->todo, UINT32_MAX, "rules");
    w->todo[w->n_todo++] = conj;
    return l->conj[conj].rule;
}

static uint16_t height_of(const lg_writer *w, uint32_t conj)
{
    return w->c->lower->conj[conj].height;
}

bool lg_emit_fits(const lg_writer *w, uint32_t conj)
{
    return height_of(w, conj) < LG_MAX_OUTPUT_DEPTH;
}

// A state in front of a value that `to` stands behind.
static uint32_t value_state(lg_writer *w, uint32_t conj, uint32_t to)
{
    uint32_t s = lg_emit_state(w), r = lg_emit_rule(w, conj);

    lg_emit_edge(w, s, to, LG_EDGE_CALL, r)->height = (int16_t)height_of(w, conj);
    return s;
}

// Optional whitespace, a comma, optional whitespace, then `to`; returns the state in front of it.
static uint32_t separator(lg_writer *w, uint32_t to)
{
    uint32_t before = lg_emit_state(w), comma = gap(w, before, GAP_BEFORE), behind = lg_emit_state(w), last;

    punctuation(w, comma, behind, ',');
    last = gap(w, behind, GAP_OPEN);
    (void)lg_emit_edge(w, last, to, LG_EDGE_EPS, 0);
    return before;
}

// Optional whitespace and a closing bracket.
static uint32_t closing(lg_writer *w, uint32_t bracket)
{
    uint32_t s = lg_emit_state(w), last = gap(w, s, GAP_OPEN);

    if (last != bracket)
        (void)lg_emit_edge(w, last, bracket, LG_EDGE_EPS, 0);
    return s;
}

static void emit_array(lg_writer *w, const lg_body *b, uint32_t from, uint32_t final)
{
    uint32_t n = 0, s = lg_emit_state(w), bracket = lg_emit_state(w), end;
    bool rest;

    while (n < b->n && n < b->max && lg_emit_fits(w, b->child[n]))
        n++;
    rest = n == b->n && n < b->max && lg_emit_fits(w, b->child[n]);
    punctuation(w, bracket, final, ']');
    end = closing(w, bracket);
    punctuation(w, from, s, '[');
    s = gap(w, s, GAP_OPEN);
    if (b->min == 0)
        (void)lg_emit_edge(w, s, bracket, LG_EDGE_EPS, 0);
    for (uint32_t i = 0; i < n; i++) { // i items are there
        uint32_t next = lg_emit_state(w), item = value_state(w, b->child[i], next),
                 to = i ? separator(w, item) : item;
        lg_emit_edge(w, s, to, LG_EDGE_EPS, 0)->height = (int16_t)height_of(w, b->child[i]);
        if (i + 1 >= b->min)
            (void)lg_emit_edge(w, next, end, LG_EDGE_EPS, 0);
        s = next;
    }
    if (!rest)
        return;
    int16_t height = (int16_t)height_of(w, b->child[n]);
    uint32_t item = lg_emit_state(w), next = lg_emit_state(w), comma = separator(w, item),
             rule = lg_emit_rule(w, b->child[n]);
    uint32_t least = b->min > n ? b->min - n : 0;
    // the register counts the items behind the tuple
    lg_edge *e = lg_emit_edge(w, item, next, LG_EDGE_CALL, rule);
    e->height = height;
    e->count = true;
    e->top = b->max == LG_NONE ? least : b->max - n;
    lg_emit_edge(w, s, n ? comma : item, LG_EDGE_EPS, 0)->height = height;
    e = lg_emit_edge(w, next, comma, LG_EDGE_EPS, 0);
    e->height = height;
    e->below = b->max == LG_NONE ? LG_NONE : b->max - n;
    lg_emit_edge(w, next, end, LG_EDGE_EPS, 0)->least = least;
}

uint32_t lg_emit_new_object(lg_writer *w, const lg_body *b, lg_members *m)
{
    lg_compiler *c = w->c;
    lg_program *p = w->p;
    lg_object o = {.min = b->min, .max = b->max, .n_class = 0};
    uint32_t *req_after, *class_term = LG_PERM(c, uint32_t, b->n_class + 1), n_req = 0;
    uint16_t *height, *class_height = LG_PERM(c, uint16_t, b->n_class + 1);

    m->child = LG_PERM(c, uint32_t, b->n + 1);
    m->word = LG_PERM(c, lg_str, b->n + 1);
    m->required = LG_PERM(c, bool, b->n + 1);
    height = LG_PERM(c, uint16_t, b->n + 1);
    req_after = LG_PERM(c, uint32_t, b->n + 1);
    for (uint32_t i = 0; i < b->n; i++)
        if (lg_emit_fits(w, b->child[i])) {
            m->child[m->n] = b->child[i];
            m->word[m->n] = b->name[i];
            m->required[m->n] = b->required[i];
            n_req += b->required[i];
            height[m->n++] = height_of(w, b->child[i]);
        }
    for (uint32_t i = m->n; i-- > 1;)
        req_after[i - 1] = req_after[i] + m->required[i];
    for (uint32_t i = 0; i < b->n_class; i++)
        if (lg_emit_fits(w, b->class_child[i])) {
            class_term[o.n_class] = b->class_term[i];
            class_height[o.n_class++] = height_of(w, b->class_child[i]);
        }
    if (o.min <= n_req)
        o.min = 0;
    if (o.max >= m->n && o.n_class == 0)
        o.max = LG_NONE;
    m->counted = o.min > 0 || o.max != LG_NONE;
    m->top = o.max == LG_NONE ? o.min : o.max;
    o.n = m->n;
    o.height = height;
    o.req_after = req_after;
    o.class_term = class_term;
    o.class_height = class_height;
    o.any_order = c->opt->any_order;
    o.required = m->required;
    p->object =
        lg_emit_more(w, p->object, p->n_object, &p->cap_object, sizeof *p->object, LG_MAX_STATES, "objects");
    p->object[p->n_object] = o;
    p->has_keys |= o.n_class > 0;
    return p->n_object++;
}

// ":" and the value behind a name.
static void emit_member(lg_writer *w, uint32_t from, uint32_t conj, uint32_t to)
{
    uint32_t colon = gap(w, from, GAP_BEFORE), behind = lg_emit_state(w), value;

    punctuation(w, colon, behind, ':');
    value = gap(w, behind, GAP_COLON);
    lg_emit_edge(w, value, to, LG_EDGE_CALL, lg_emit_rule(w, conj))->height = (int16_t)height_of(w, conj);
}

// Where a name is due, names below i being done. No required name may be skipped.
uint32_t lg_emit_names(lg_writer *w, const lg_members *m, uint32_t i, uint32_t hi, uint32_t names,
                       const uint32_t *behind_key)
{
    const lg_object *o = &w->p->object[m->object];
    uint32_t s = lg_emit_state(w);
    lg_edge *e;

    for (uint32_t k = 0; hi == LG_NONE && k < o->n_class; k++) {
        e = lg_emit_edge(w, s, behind_key[k], LG_EDGE_TERM, o->class_term[k]);
        e->guard = LG_GUARD_KEY;
        e->object = m->object;
        e->hi = k;
        e->count = m->counted;
        e->top = m->top;
    }
    if (i < m->n) {
        e = lg_emit_edge(w, s, s, LG_EDGE_TERM, names);
        e->guard = LG_GUARD_NAME;
        e->object = m->object;
        e->lo = i;
        e->hi = hi == LG_NONE ? m->n - 1 : hi;
        e->count = m->counted;
        e->top = m->top;
    }
    return s;
}

// Names in any order: one state where a name is due, one behind a member. The guards know what has come.
static void emit_free_order(lg_writer *w, const lg_members *m, uint32_t open, uint32_t after, uint32_t brace,
                            uint32_t end, uint32_t names, const uint32_t *behind_key)
{
    uint32_t here = lg_emit_names(w, m, 0, LG_NONE, names, behind_key);
    lg_edge *e = lg_emit_edge(w, after, separator(w, here), LG_EDGE_EPS, 0);

    e->guard = LG_GUARD_MORE;
    e->object = m->object;
    e->hi = m->n;
    e->any_key = true;
    (void)lg_emit_edge(w, open, here, LG_EDGE_EPS, 0);
    for (int i = 0; i < 2; i++) {
        e = lg_emit_edge(w, i ? open : after, i ? brace : end, LG_EDGE_EPS, 0);
        e->guard = LG_GUARD_CLOSE;
        e->object = m->object;
    }
}

static void emit_object(lg_writer *w, const lg_body *b, uint32_t from, uint32_t final)
{
    lg_compiler *c = w->c;
    lg_members m = {0};
    uint32_t s = lg_emit_state(w), brace = lg_emit_state(w), end, hi = LG_NONE, names = LG_NONE, n_class;
    uint32_t *target, *after, *number, *behind_key;
    bool free_order = c->opt->any_order;

    m.object = lg_emit_new_object(w, b, &m);
    n_class = w->p->object[m.object].n_class;
    target = LG_PERM(c, uint32_t, m.n + 1);
    after = LG_TMP(c, uint32_t, m.n + 1); // states behind a member, by how many names are done
    number = LG_TMP(c, uint32_t, m.n + 1);
    behind_key = LG_TMP(c, uint32_t, n_class + 1);
    punctuation(w, brace, final, '}');
    end = closing(w, brace);
    punctuation(w, from, s, '{');
    s = gap(w, s, GAP_OPEN);
    for (uint32_t i = 0; i <= m.n; i++)
        after[i] = free_order && i > 0 ? after[0] : lg_emit_state(w);
    for (uint32_t i = 0; i < m.n; i++) {
        m.word[i] = lg_spell_string(c, m.word[i]);
        number[i] = i;
        target[i] = lg_emit_state(w);
        emit_member(w, target[i], m.child[i], after[i + 1]);
    }
    if (m.n)
        names = lg_lower_words(c, m.word, m.n, number);
    w->p->object[m.object].target = target;
    for (uint32_t i = 0, k = 0; i < b->n_class; i++)
        if (lg_emit_fits(w, b->class_child[i])) {
            behind_key[k] = lg_emit_state(w);
            emit_member(w, behind_key[k++], b->class_child[i], after[m.n]);
        }
    if (free_order)
        emit_free_order(w, &m, s, after[0], brace, end, names, behind_key);
    for (uint32_t i = m.n + 1; !free_order && i-- > 0;) {
        uint32_t here, comma;
        lg_edge *e;
        if (i < m.n && m.required[i])
            hi = i;
        here = lg_emit_names(w, &m, i, hi, names, behind_key);
        comma = separator(w, here);
        e = lg_emit_edge(w, after[i], comma, LG_EDGE_EPS, 0);
        e->guard = LG_GUARD_MORE;
        e->object = m.object;
        e->lo = i;
        e->hi = hi == LG_NONE ? m.n : hi;
        e->any_key = hi == LG_NONE;
        if (i == 0)
            (void)lg_emit_edge(w, s, here, LG_EDGE_EPS, 0);
        if (hi != LG_NONE)
            continue;
        e = lg_emit_edge(w, i == 0 ? s : after[i], i == 0 ? brace : end, LG_EDGE_EPS, 0);
        e->guard = LG_GUARD_CLOSE;
        e->object = m.object;
        if (i == 0 && m.n == 0) { // the state behind members is the same
            e = lg_emit_edge(w, after[0], end, LG_EDGE_EPS, 0);
            e->guard = LG_GUARD_CLOSE;
            e->object = m.object;
        }
    }
}

void lg_emit_word(lg_writer *w, uint32_t from, uint32_t to, lg_str text)
{
    lg_str word = text;

    (void)lg_emit_edge(w, from, to, LG_EDGE_TERM, lg_lower_words(w->c, &word, 1, NULL));
}

// A literal value as it is written; as deep as it is nested.
static void emit_value(lg_writer *w, const lg_json *j, uint32_t from, uint32_t final)
{
    bool object = lg_json_is(j, LG_JSON_OBJECT);
    uint32_t s, bracket;

    if (!object && !lg_json_is(j, LG_JSON_ARRAY)) {
        lg_emit_word(w, from, final, lg_spell_scalar(w->c, j));
        return;
    }
    s = lg_emit_state(w);
    bracket = lg_emit_state(w);
    punctuation(w, from, s, object ? '{' : '[');
    punctuation(w, bracket, final, object ? '}' : ']');
    s = gap(w, s, GAP_OPEN);
    if (lg_json_len(j) == 0)
        (void)lg_emit_edge(w, s, bracket, LG_EDGE_EPS, 0);
    for (size_t i = 0; i < lg_json_len(j); i++) {
        uint32_t item = lg_emit_state(w), next = lg_emit_state(w);
        lg_str key;
        const lg_json *v = object ? lg_json_member(j, i, &key) : lg_json_at(j, i);
        (void)lg_emit_edge(w, s, i ? separator(w, item) : item, LG_EDGE_EPS, 0);
        if (object) {
            uint32_t colon = lg_emit_state(w), behind = lg_emit_state(w);
            lg_emit_word(w, item, colon, lg_spell_string(w->c, key));
            punctuation(w, gap(w, colon, GAP_BEFORE), behind, ':');
            item = gap(w, behind, GAP_COLON);
        }
        emit_value(w, v, item, next);
        s = next;
    }
    if (lg_json_len(j))
        (void)lg_emit_edge(w, s, closing(w, bracket), LG_EDGE_EPS, 0);
}

static void emit_body(lg_writer *w, const lg_body *b, uint32_t start, uint32_t final)
{
    uint16_t height = lg_lower_height(w->c, b);

    if (height == LG_NO_HEIGHT)
        return;
    if (height > 0) { // another body of the rule may need less: near the depth limit only that one is offered
        uint32_t inner = lg_emit_state(w);
        lg_emit_edge(w, start, inner, LG_EDGE_EPS, 0)->height = (int16_t)(height - 1);
        start = inner;
    }
    switch (b->kind) {
    case LG_BODY_TERM: (void)lg_emit_edge(w, start, final, LG_EDGE_TERM, b->term); break;
    case LG_BODY_VALUE: emit_value(w, b->value, start, final); break;
    case LG_BODY_ARRAY: emit_array(w, b, start, final); break;
    case LG_BODY_OBJECT: emit_object(w, b, start, final); break;
    }
}

void lg_emit_rules(lg_writer *w)
{
    while (w->n_todo) {
        const lg_conj *k = &w->c->lower->conj[w->todo[--w->n_todo]];
        uint32_t start = w->p->rule[k->rule].start, final = lg_emit_state(w);
        lg_mark mark = lg_arena_mark(&w->c->tmp);
        w->p->state[final].final = true;
        for (const lg_body *b = k->body; b; b = b->next) {
            lg_compile_work(w->c, 10 + b->n);
            emit_body(w, b, start, final);
        }
        lg_arena_reset(&w->c->tmp, mark);
    }
}

void lg_emit_program(lg_compiler *c, uint32_t root)
{
    lg_writer w = {.c = c, .p = c->prog};

    lg_emit_gaps(&w);
    c->prog->root = lg_emit_rule(&w, root);
    lg_emit_rules(&w);
}
