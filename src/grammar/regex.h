/*
 * grammar/regex: regular expressions of ECMA-262 (with the `u` flag) to automata over code points.
 *
 * Supported and refused constructs: see regex_parse.c. Faults end the compilation at the place that
 * lg_compile_at set: malformed text is an invalid schema, a construct that no automaton can follow an
 * unsupported regex, and what would need too many states too complex.
 */
#ifndef LG_GRAMMAR_REGEX_H
#define LG_GRAMMAR_REGEX_H

#include "grammar/compile.h"

/* The texts in which the pattern matches somewhere (anchors permitting). In temporary memory. */
lg_dfa lg_regex_dfa(lg_compiler *c, lg_str pattern);

/* --- between parser and automaton --- */

typedef struct lg_range {
    uint32_t lo, hi;
} lg_range;

typedef enum lg_re_kind {
    LG_RE_EMPTY,
    LG_RE_CHARS,
    LG_RE_START,
    LG_RE_END,
    LG_RE_SEQ,
    LG_RE_ALT,
    LG_RE_REPEAT
} lg_re_kind;

typedef struct lg_re lg_re;
struct lg_re {
    lg_re_kind kind;
    lg_re *child, *next;   /* parts of SEQ and ALT, or what repeats; and the sibling */
    uint32_t min, max;     /* of REPEAT; max LG_NONE: no bound */
    const lg_range *range; /* of CHARS: ascending, disjoint; may be empty */
    uint32_t n_range;
};

const lg_re *lg_regex_parse(lg_compiler *c, lg_str pattern);

/* Unicode 14.0: general categories as ranges that cover all code points. */
typedef struct lg_unicode_range {
    uint32_t lo : 24;
    uint32_t category : 8; /* index into lg_unicode_category, or of a script */
} lg_unicode_range;
extern const lg_unicode_range lg_unicode_ranges[];
extern const uint32_t lg_n_unicode_ranges;
extern const char lg_unicode_category[30][3];

/* Unicode 14.0: scripts (short and long name), Script as ranges that cover all code points, Script_Extensions
 * likewise, where a number from lg_n_scripts on is a set of several (ended by 255); and where Alphabetic
 * begins and ends in turn. */
enum { LG_SCRIPTS_OF_ONE = 24 };
extern const uint32_t lg_n_scripts, lg_n_script_ranges, lg_n_scripts_ranges, lg_n_alphabetic;
extern const char *const lg_script_name[][2];
extern const lg_unicode_range lg_script_ranges[], lg_scripts_ranges[];
extern const uint8_t lg_script_set[][LG_SCRIPTS_OF_ONE];
extern const uint32_t lg_alphabetic[];

#endif
