/*
 * grammar/compile: what the parts of the schema compiler share: memory, the work budget, and how a fault is
 * reported.
 *
 * All memory of a compilation lies in two arenas: `perm` becomes part of the grammar, `tmp` is reset after
 * each terminal. Used by one thread; lives for one call of lg_grammar_schema.
 *
 * Surprise: a fault anywhere below lg_compile_run ends the compilation with longjmp (decision 0070). Nothing
 * between there and here may own anything outside the arenas; documents are handed to lg_compile_own.
 */
#ifndef LG_GRAMMAR_COMPILE_H
#define LG_GRAMMAR_COMPILE_H

#include <setjmp.h>

#include "base/arena.h"
#include "grammar/grammar.h"
#include "grammar/program.h"

enum {
    LG_SCHEMA_MAX_BYTES = 256 << 10,
    LG_SCHEMA_MAX_DEPTH = 128,
    LG_SCHEMA_MAX_NODES = 50000,
    LG_MAX_RULES = 20000,
    LG_MAX_STATES = 200000,
    LG_MAX_EDGES = 500000,
    LG_MAX_BRANCHES = 4096,
    LG_MAX_NAMES = 2000,
    LG_MAX_ENUM = 20000,
    LG_MAX_LITERAL_BYTES = 256 << 10,
    LG_MAX_KEY_PATTERNS = 6,
    LG_MAX_DFA = 20000,      /* states of a determinized pattern */
    LG_MAX_PAIRS = 1 << 20,  /* of a product */
    LG_MAX_NUMBER = 400000,  /* states of a number before trimming */
    LG_MAX_PATTERN_LENGTH = 65536, /* maxLength beside a pattern */
    LG_MAX_TRAIL = 512,      /* evaluations inside one another */
    LG_MAX_WORK = 60000000,  /* steps of one compilation */
};

/* A schema: a JSON value and where it stands. */
typedef struct lg_snode {
    const lg_json *j;
    uint32_t parent; /* LG_NONE for the root */
    lg_str key;      /* its reference token below the parent, or ... */
    uint32_t index;  /* ... its index, when key.p is NULL */
    bool checked;
} lg_snode;

typedef struct lg_compiler {
    lg_arena *perm;
    lg_arena tmp;
    jmp_buf fail;
    uint64_t work;
    const lg_grammar_options *opt;
    lg_program *prog;
    char prefix[48]; /* of every pointer */
    const char *what; /* is being compiled, when it is no schema */
    /* where a fault is reported: a node and up to two tokens below it */
    uint32_t at;
    lg_str at_key[2];
    lg_status status;
    lg_grammar_error why;
    lg_err *err;

    lg_json_doc *doc; /* the schema */
    lg_json_doc **own; /* further documents; all are freed at the end */
    size_t n_own, cap_own;
    lg_snode *node;
    uint32_t n_node, cap_node;
    uint32_t *node_map, node_map_size; /* lg_json pointer -> node + 1 */
    uint32_t root;                     /* node of the document */
    uint32_t dialect;                  /* 4, 6, 7, 2019, 2020 */
    bool tools;  /* the root is the parameters of a tool */
    bool closed; /* the object at hand has no additional keys, whatever it says */
    bool no_end_tag;                   /* tool arguments: "</" may not stand in a JSON string */
    size_t literal_bytes;
    size_t n_enum;
    struct lg_lower *lower;
    /* schema and value of each evaluation that is under way (eval.c) */
    struct {
        uint32_t node;
        const lg_json *value;
    } trail[LG_MAX_TRAIL];
    uint32_t n_trail;
} lg_compiler;

/* Runs fn(c, ctx) with a fresh compiler over the memory of *g, makes the grammar ready, and cleans up. */
/* Empty tables for lowering (lower.h). */
void lg_compile_lower(lg_compiler *c);
typedef void (*lg_compile_fn)(lg_compiler *c, const void *ctx);
LG_NODISCARD lg_status lg_compile_run(lg_compile_fn fn, const void *ctx, const lg_grammar_options *opt,
                                      lg_grammar **out, lg_grammar_error *why, lg_err *err);

LG_NORETURN void lg_compile_fail(lg_compiler *c, lg_grammar_code code, const char *fmt, ...) LG_PRINTF(3, 4);
/* Where the next faults belong: a schema node, a keyword of it (NULL: the node) and a token below that (or
 * NULL). */
void lg_compile_at(lg_compiler *c, uint32_t node, const char *key, const lg_str *below);
/* Counts n steps; too many are a fault. */
void lg_compile_work(lg_compiler *c, uint64_t n);
/* Zeroed memory; never NULL. */
void *lg_compile_perm(lg_compiler *c, size_t n, size_t size);
void *lg_compile_tmp(lg_compiler *c, size_t n, size_t size);
#define LG_PERM(c, type, n) ((type *)lg_compile_perm((c), (n), sizeof(type)))
#define LG_TMP(c, type, n) ((type *)lg_compile_tmp((c), (n), sizeof(type)))
/* Takes a document: freed when the compilation ends. */
void lg_compile_own(lg_compiler *c, lg_json_doc *doc);
/* Room for one more element behind n in an array of the temporary arena. */
void *lg_compile_grow(lg_compiler *c, void *array, size_t n, size_t *cap, size_t size);
#define LG_GROW(c, array, n, cap) ((array) = lg_compile_grow((c), (array), (n), (cap), sizeof *(array)))

#endif
