/*
 * grammar/number: decimal-exact numbers: comparison, the one spelling of a literal, and automata for bounds
 * and multiples. No floating point anywhere.
 */
#ifndef LG_GRAMMAR_NUMBER_H
#define LG_GRAMMAR_NUMBER_H

#include "grammar/compile.h"

/* +-digits * 10^exp; no zeros at either end, so equal values have equal fields. Zero has no digits. */
typedef struct lg_decimal {
    bool neg;
    lg_str digits;
    int64_t exp;
} lg_decimal;

/* From a JSON number; the digits are copied into temporary memory. Exponents saturate far outside what any
 * bound here can use. */
lg_decimal lg_decimal_of(lg_compiler *c, lg_str text);
int lg_decimal_cmp(const lg_decimal *a, const lg_decimal *b);
bool lg_decimal_integral(const lg_decimal *d);
/* The shortest decimal; exponent form only past 40 characters. In the grammar's memory. */
lg_str lg_decimal_spell(lg_compiler *c, const lg_decimal *d);
/* Is d a multiple of m (> 0)? Both within what lg_number_multiple accepts; else the compilation ends. */
bool lg_decimal_multiple(lg_compiler *c, const lg_decimal *d, const lg_decimal *m);

/* What a number must satisfy. */
typedef struct lg_number {
    bool has_min, has_max, min_open, max_open; /* open: the bound itself is excluded */
    lg_decimal min, max;
    uint64_t c; /* multiple of c / 10^e; c = 0: of nothing */
    uint32_t e;
    bool integer;  /* written without fraction and exponent */
    /* all spellings with a point, integers too, and none with an exponent: for comparing sets */
    bool by_value;
    uint32_t int_digits, frac_digits; /* at least this many are allowed */
} lg_number;

void lg_number_min(lg_number *n, const lg_decimal *d, bool open);
void lg_number_max(lg_number *n, const lg_decimal *d, bool open);
/* d > 0. Several combine to their least common multiple. */
void lg_number_multiple(lg_compiler *c, lg_number *n, const lg_decimal *d);
/* Satisfying both. */
lg_number lg_number_and(lg_compiler *c, const lg_number *a, const lg_number *b);
/* The texts, as an automaton over bytes; in temporary memory. */
lg_dfa lg_number_dfa(lg_compiler *c, const lg_number *n);

#endif
