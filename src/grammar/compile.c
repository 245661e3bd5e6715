/*
 * grammar/compile: the frame around a compilation, and the ways in from outside. Any thread.
 */
#include "grammar/compile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar_int.h"
#include "grammar/lower.h"

enum { PERM_BYTES = 32 << 20, TMP_BYTES = 128 << 20, HASTE = 10 };

const char *lg_grammar_code_name(lg_grammar_code code)
{
    static const char *const names[] = {"",
                                        "invalid_schema",
                                        "unsupported_keyword",
                                        "unsupported_regex",
                                        "unsupported_format",
                                        "remote_ref",
                                        "unresolved_ref",
                                        "nonproductive_ref",
                                        "oneof_not_disjoint",
                                        "unsatisfiable",
                                        "schema_too_large",
                                        "too_complex"};

    return names[code];
}

void lg_compile_at(lg_compiler *c, uint32_t node, const char *key, const lg_str *below)
{
    c->at = node;
    c->at_key[0] = lg_str_of(key);
    c->at_key[1] = below ? *below : (lg_str){0};
}

static lg_status status_of(lg_grammar_code code)
{
    switch (code) {
    case LG_GRAMMAR_UNSUPPORTED_KEYWORD:
    case LG_GRAMMAR_UNSUPPORTED_REGEX:
    case LG_GRAMMAR_UNSUPPORTED_FORMAT:
    case LG_GRAMMAR_REMOTE_REF: return LG_E_UNSUPPORTED;
    case LG_GRAMMAR_SCHEMA_TOO_LARGE:
    case LG_GRAMMAR_TOO_COMPLEX: return LG_E_LIMIT;
    default: return LG_E_INPUT;
    }
}

void lg_compile_fail(lg_compiler *c, lg_grammar_code code, const char *fmt, ...)
{
    char text[200];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->why.code = code;
    c->why.pointer[0] = 0;
    if (code != LG_GRAMMAR_SCHEMA_TOO_LARGE)
        lg_schema_pointer(c, c->at, c->at_key, c->why.pointer, sizeof c->why.pointer);
    if (c->what)
        c->status = LG_FAIL(c->err, status_of(code), "%s: %s", c->what, text);
    else
        c->status = LG_FAIL(c->err, status_of(code), "schema at %.100s: %s",
                            c->why.pointer[0] ? c->why.pointer : "the root", text);
    longjmp(c->fail, 1);
}

void lg_compile_work(lg_compiler *c, uint64_t n)
{
    c->work += n;
    if (c->work > (c->opt->hasty ? LG_MAX_WORK / HASTE : LG_MAX_WORK))
        lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "the schema takes too long to compile");
}

static void *alloc(lg_compiler *c, lg_arena *a, size_t n, size_t size)
{
    void *p = lg_arena_alloc_n(a, n, size);

    if (!p)
        lg_compile_fail(c, LG_GRAMMAR_SCHEMA_TOO_LARGE, "the schema needs more memory than it may take");
    return p;
}

void *lg_compile_perm(lg_compiler *c, size_t n, size_t size)
{
    return alloc(c, c->perm, n, size);
}

void *lg_compile_tmp(lg_compiler *c, size_t n, size_t size)
{
    return alloc(c, &c->tmp, n, size);
}

void *lg_compile_grow(lg_compiler *c, void *array, size_t n, size_t *cap, size_t size)
{
    void *bigger;

    if (n < *cap)
        return array;
    *cap = *cap ? *cap * 2 : 16;
    bigger = lg_compile_tmp(c, *cap, size);
    if (n)
        memcpy(bigger, array, n * size);
    return bigger;
}

void lg_compile_own(lg_compiler *c, lg_json_doc *doc)
{
    if (c->n_own == c->cap_own) {
        size_t cap = c->cap_own ? c->cap_own * 2 : 8;
        lg_json_doc **bigger = lg_arena_alloc_n(c->perm, cap, sizeof *bigger);
        if (!bigger) {
            lg_json_free(doc);
            lg_compile_fail(c, LG_GRAMMAR_SCHEMA_TOO_LARGE, "the schema needs more memory than it may take");
        }
        if (c->n_own)
            memcpy(bigger, c->own, c->n_own * sizeof *bigger);
        c->own = bigger;
        c->cap_own = cap;
    }
    c->own[c->n_own++] = doc;
}

// A frame of its own: what the caller holds is not touched by the jump.
static void guarded(lg_compiler *c, lg_compile_fn fn, const void *ctx)
{
    if (setjmp(c->fail) == 0)
        fn(c, ctx);
}

// Without `out` only the run counts.
static lg_status run(lg_compile_fn fn, const void *ctx, const lg_grammar_options *opt, lg_grammar **out,
                     lg_grammar_error *why, lg_err *err)
{
    static const lg_grammar_options defaults;
    lg_grammar *g = calloc(1, sizeof *g);
    lg_compiler *c = calloc(1, sizeof *c);
    lg_status st = LG_OK;

    if (why)
        why->code = LG_GRAMMAR_OK;
    if (!g || !c) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory while compiling a grammar");
        goto out;
    }
    c->opt = opt ? opt : &defaults;
    lg_arena_init(&g->memory, c->opt->hasty ? PERM_BYTES / HASTE : PERM_BYTES);
    lg_arena_init(&c->tmp, c->opt->hasty ? TMP_BYTES / HASTE : TMP_BYTES);
    c->perm = &g->memory;
    c->prog = &g->program;
    c->err = err;
    c->at = LG_NONE;
    guarded(c, fn, ctx);
    st = c->status;
    if (st != LG_OK && why)
        *why = c->why;
    for (size_t i = 0; i < c->n_own; i++)
        lg_json_free(c->own[i]);
    lg_json_free(c->doc);
    lg_arena_free(&c->tmp);
    if (st == LG_OK && out) {
        atomic_store(&g->size, g->memory.used);
        st = lg_grammar_start(g, err);
        if (st == LG_E_LIMIT && why)
            *why = (lg_grammar_error){.code = LG_GRAMMAR_TOO_COMPLEX};
    }
    if (st == LG_OK && out) {
        *out = g;
        g = NULL;
    }
out:
    free(c);
    lg_grammar_destroy(g);
    return st;
}

lg_status lg_compile_run(lg_compile_fn fn, const void *ctx, const lg_grammar_options *opt, lg_grammar **out,
                         lg_grammar_error *why, lg_err *err)
{
    return run(fn, ctx, opt, out, why, err);
}

void lg_compile_lower(lg_compiler *c)
{
    c->lower = LG_PERM(c, lg_lower, 1);
    c->lower->conj = LG_PERM(c, lg_conj, 64);
    c->lower->cap_conj = 64;
    c->lower->n_conj = 1; // LG_NEVER
    c->lower->conj[0] = (lg_conj){.n = LG_NONE, .height = LG_NO_HEIGHT, .rule = LG_NONE, .expanded = true};
}

static void compile_schema(lg_compiler *c, const void *ctx)
{
    const lg_str *text = ctx;
    uint32_t id, root;

    lg_schema_read(c, *text);
    lg_compile_lower(c);
    id = LG_WHOLE(c->root);
    root = lg_lower_conj(c, &id, 1, false);
    lg_lower_all(c, root);
    lg_emit_program(c, root);
}

lg_status lg_grammar_schema(lg_str schema, const lg_grammar_options *opt, lg_grammar **out,
                            lg_grammar_error *why, lg_err *err)
{
    return lg_compile_run(compile_schema, &schema, opt, out, why, err);
}

lg_status lg_grammar_json_object(const lg_grammar_options *opt, lg_grammar **out, lg_err *err)
{
    return lg_grammar_schema(LG_STR("{\"type\":\"object\"}"), opt, out, NULL, err);
}

typedef struct evaluation {
    lg_str schema;
    const lg_json *value;
    bool *holds;
} evaluation;

static void evaluate(lg_compiler *c, const void *ctx)
{
    const evaluation *e = ctx;

    lg_schema_read(c, e->schema);
    lg_compile_lower(c);
    *e->holds = lg_eval(c, c->root, e->value, 0);
}

lg_status lg_schema_evaluate(lg_str schema, lg_str value, bool *holds, lg_err *err)
{
    lg_json_limits lim = {.max_bytes = 1 << 24, .max_depth = 1000};
    lg_json_doc *doc = NULL;
    evaluation e = {.schema = schema, .holds = holds};
    lg_grammar_options opt = {0};
    lg_status st = lg_json_parse(value, &lim, &doc, err);

    if (st == LG_OK) {
        e.value = lg_json_root(doc);
        st = run(evaluate, &e, &opt, NULL, NULL, err);
    }
    lg_json_free(doc);
    return st;
}
