/*
 * grammar/number: see number.h. The automaton reads a number digit by digit. Besides the count of digits, its
 * state is how the part read so far compares with each bound's digits, and the remainder modulo the divisor.
 */
#include "grammar/number.h"

#include <stdio.h>
#include <string.h>

enum { DIGITS = 20, MAX_DIGITS = 1000, PLAIN_SPELLING = 40, EXP_CAP = 1000000000, MAX_REMAINDERS = 65536 };

lg_decimal lg_decimal_of(lg_compiler *c, lg_str text)
{
    size_t i = 0, n = 0;
    lg_decimal d = {.neg = text.n > 0 && text.p[0] == '-'};
    char *digit = LG_TMP(c, char, text.n + 1);
    bool point = false;

    for (i = d.neg; i < text.n && text.p[i] != 'e' && text.p[i] != 'E'; i++) {
        if (text.p[i] == '.') {
            point = true;
            continue;
        }
        d.exp -= point;
        if (n > 0 || text.p[i] != '0')
            digit[n++] = text.p[i];
    }
    for (; n > 0 && digit[n - 1] == '0'; n--)
        d.exp++;
    if (i < text.n) {
        int64_t e;
        if (!lg_str_i64((lg_str){text.p + i + 1, text.n - i - 1}, &e) || e > EXP_CAP || e < -EXP_CAP)
            e = text.p[i + 1] == '-' ? -EXP_CAP : EXP_CAP;
        d.exp += e;
    }
    if (n == 0)
        return (lg_decimal){0};
    d.digits = (lg_str){digit, n};
    return d;
}

// Digits before the point; at most 0 for values below one.
static int64_t int_digits(const lg_decimal *d)
{
    return d->digits.n ? (int64_t)d->digits.n + d->exp : 0;
}

// Digit i after (i >= 0) or before (i < 0) the point.
static int digit_at(const lg_decimal *d, int64_t i)
{
    int64_t at = int_digits(d) + i;

    return at < 0 || at >= (int64_t)d->digits.n ? 0 : d->digits.p[at] - '0';
}

static int compare_size(const lg_decimal *a, const lg_decimal *b)
{
    size_t n = a->digits.n < b->digits.n ? a->digits.n : b->digits.n;
    int r;

    if (a->digits.n == 0 || b->digits.n == 0)
        return (a->digits.n > 0) - (b->digits.n > 0);
    if (int_digits(a) != int_digits(b))
        return int_digits(a) < int_digits(b) ? -1 : 1;
    r = memcmp(a->digits.p, b->digits.p, n);
    return r ? (r > 0) - (r < 0) : (a->digits.n > b->digits.n) - (a->digits.n < b->digits.n);
}

int lg_decimal_cmp(const lg_decimal *a, const lg_decimal *b)
{
    if (a->neg != b->neg)
        return a->neg ? -1 : 1;
    return a->neg ? -compare_size(a, b) : compare_size(a, b);
}

bool lg_decimal_integral(const lg_decimal *d)
{
    return d->exp >= 0;
}

lg_str lg_decimal_spell(lg_compiler *c, const lg_decimal *d)
{
    int64_t before = int_digits(d), after = d->exp < 0 ? -d->exp : 0;
    int64_t plain = d->neg + (before > 0 ? before : 1) + (after ? after + 1 : 0);
    size_t cap = (plain <= PLAIN_SPELLING ? (size_t)plain : d->digits.n) + 32, n = 0;
    char *p = LG_PERM(c, char, cap);

    if (d->neg)
        p[n++] = '-';
    if (plain <= PLAIN_SPELLING) {
        for (int64_t i = before > 0 ? -before : -1; i < after; i++) {
            if (i == 0)
                p[n++] = '.';
            p[n++] = (char)('0' + digit_at(d, i));
        }
        return (lg_str){p, n};
    }
    p[n++] = d->digits.p[0];
    if (d->digits.n > 1) {
        p[n++] = '.';
        memcpy(p + n, d->digits.p + 1, d->digits.n - 1);
        n += d->digits.n - 1;
    }
    n += (size_t)snprintf(p + n, cap - n, "e%lld", (long long)(before - 1));
    return (lg_str){p, n};
}

LG_NORETURN static void too_fine(lg_compiler *c)
{
    lg_compile_fail(c, LG_GRAMMAR_TOO_COMPLEX, "this multipleOf needs more than %d remainders",
                    MAX_REMAINDERS);
}

// d = *n / 10^*e
static void fraction(lg_compiler *c, const lg_decimal *d, uint64_t *n, uint32_t *e)
{
    *n = 0;
    if (d->digits.n > 9 || d->exp > 9 || d->exp < -30)
        too_fine(c);
    for (size_t i = 0; i < d->digits.n; i++)
        *n = *n * 10 + (uint64_t)(d->digits.p[i] - '0');
    for (int64_t i = 0; i < d->exp; i++)
        *n *= 10;
    *e = d->exp < 0 ? (uint32_t)-d->exp : 0;
}

bool lg_decimal_multiple(lg_compiler *c, const lg_decimal *d, const lg_decimal *m)
{
    uint64_t n, rem = 0;
    uint32_t e;
    int64_t last;

    fraction(c, m, &n, &e);
    last = (int64_t)e;
    if (d->digits.n == 0)
        return true;
    if (d->exp < -last) // a digit below the unit of the divisor
        return false;
    if (int_digits(d) > MAX_DIGITS || n > UINT64_MAX / 16)
        too_fine(c);
    for (int64_t i = -int_digits(d); i < last; i++)
        rem = (rem * 10 + (uint64_t)digit_at(d, i)) % n;
    return rem == 0;
}

void lg_number_min(lg_number *n, const lg_decimal *d, bool open)
{
    int r = n->has_min ? lg_decimal_cmp(d, &n->min) : 1;

    if (r > 0) {
        n->min = *d;
        n->min_open = open;
    } else if (r == 0) {
        n->min_open |= open;
    }
    n->has_min = true;
}

void lg_number_max(lg_number *n, const lg_decimal *d, bool open)
{
    int r = n->has_max ? lg_decimal_cmp(d, &n->max) : -1;

    if (r < 0) {
        n->max = *d;
        n->max_open = open;
    } else if (r == 0) {
        n->max_open |= open;
    }
    n->has_max = true;
}

static void multiple_of(lg_compiler *c, lg_number *n, uint64_t m, uint32_t e)
{
    uint64_t a, b;

    if (n->c) {
        uint64_t own = n->c;
        for (; e < n->e; e++) {
            if (m > UINT64_MAX / 100000)
                too_fine(c);
            m *= 10;
        }
        for (uint32_t i = n->e; i < e; i++) {
            if (own > UINT64_MAX / 100000)
                too_fine(c);
            own *= 10;
        }
        for (a = own, b = m; b;) {
            uint64_t t = a % b;
            a = b;
            b = t;
        }
        if (own / a > UINT64_MAX / m)
            too_fine(c);
        m *= own / a;
    }
    for (; e > 0 && m % 10 == 0; e--)
        m /= 10;
    n->c = m;
    n->e = e;
}

void lg_number_multiple(lg_compiler *c, lg_number *n, const lg_decimal *d)
{
    uint64_t m;
    uint32_t e;

    fraction(c, d, &m, &e);
    multiple_of(c, n, m, e);
}

lg_number lg_number_and(lg_compiler *c, const lg_number *a, const lg_number *b)
{
    lg_number n = *a;

    if (b->has_min)
        lg_number_min(&n, &b->min, b->min_open);
    if (b->has_max)
        lg_number_max(&n, &b->max, b->max_open);
    if (b->c)
        multiple_of(c, &n, b->c, b->e);
    n.integer |= b->integer;
    n.by_value |= b->by_value;
    return n;
}

enum phase { START, MINUS, INT, POINT, FRAC, EXP, EXP_SIGN, X0, X1, X2, X9, X1D, X2A, XD, X3 };
enum { LESS, EQUAL, MORE };

// How the digits so far compare with the first as many of each bound.
typedef struct reading {
    enum phase phase;
    bool neg, zero;
    uint32_t k, f; // digits before and after the point
    uint32_t low, high;
    uint64_t rem;
} reading;

typedef struct interval { // of magnitudes, for one sign
    bool any, has_high, low_open, high_open;
    lg_decimal low, high;
} interval;

typedef struct machine {
    lg_compiler *c;
    const lg_number *n;
    interval side[2]; // not negative, negative
    uint32_t max_int, max_frac;
    bool exponent;
    lg_index states;
    lg_dfa_maker m;
} machine;

static uint64_t pack(const reading *r)
{
    return (uint64_t)r->phase | (uint64_t)r->neg << 4 | (uint64_t)r->zero << 5 | (uint64_t)r->k << 6 |
           (uint64_t)r->f << 17 | (uint64_t)r->low << 28 | (uint64_t)r->high << 30 | r->rem << 32;
}

static reading unpack(uint64_t v)
{
    return (reading){(enum phase)(v & 15), v >> 4 & 1, v >> 5 & 1, v >> 6 & 2047, v >> 17 & 2047, v >> 28 & 3,
                     v >> 30 & 3, v >> 32};
}

static void go(machine *x, char lo, char hi, const reading *to)
{
    uint64_t key = pack(to);
    bool added;

    lg_dfa_edge_add(&x->m, (unsigned char)lo, (unsigned char)hi, lg_index_get(&x->states, &key, &added));
    if (x->states.n > LG_MAX_NUMBER)
        lg_compile_fail(x->c, LG_GRAMMAR_TOO_COMPLEX, "the number needs more than %d states", LG_MAX_NUMBER);
}

static uint32_t order(int a, int b)
{
    return a < b ? LESS : a > b ? MORE : EQUAL;
}

static uint32_t width(const lg_decimal *d) // digits of the integer part as written
{
    return int_digits(d) > 0 ? (uint32_t)int_digits(d) : 1;
}

// One more digit of the integer part.
static void int_digit(machine *x, reading r, int d)
{
    const interval *v = &x->side[r.neg];
    uint32_t wl = width(&v->low), wh = v->has_high ? width(&v->high) : 0;

    r.phase = INT;
    r.zero = r.k == 0 && d == 0;
    if (r.k < wl && r.low == EQUAL)
        r.low = order(d, digit_at(&v->low, (int64_t)r.k - wl));
    if (r.k >= wl)
        r.low = MORE;
    if (v->has_high && r.k >= wh)
        return;
    if (v->has_high && r.high == EQUAL)
        r.high = order(d, digit_at(&v->high, (int64_t)r.k - wh));
    r.k++;
    if (r.k > x->max_int)
        return;
    if (x->n->c)
        r.rem = (r.rem * 10 + (uint64_t)d) % x->n->c;
    go(x, (char)('0' + d), (char)('0' + d), &r);
}

// The integer part is complete: compares it whole. False when the bounds exclude it.
static bool int_done(const machine *x, reading *r)
{
    const interval *v = &x->side[r->neg];

    if (r->k < width(&v->low))
        r->low = LESS;
    if (v->has_high && r->k < width(&v->high))
        r->high = LESS;
    if (!v->has_high)
        r->high = LESS;
    return r->low != LESS && r->high != MORE;
}

static void frac_digit(machine *x, reading r, int d)
{
    const interval *v = &x->side[r.neg];

    r.phase = FRAC;
    if (r.low == EQUAL)
        r.low = order(d, digit_at(&v->low, r.f));
    if (r.high == EQUAL)
        r.high = order(d, digit_at(&v->high, r.f));
    if (r.low == LESS || r.high == MORE || r.f >= x->max_frac)
        return;
    if (x->n->c) {
        if (r.f < x->n->e)
            r.rem = (r.rem * 10 + (uint64_t)d) % x->n->c;
        else if (d)
            return;
    }
    r.f++;
    go(x, (char)('0' + d), (char)('0' + d), &r);
}

static bool ends_here(const lg_decimal *d, uint32_t f) // no digits but zeros from place f on
{
    return d->digits.n == 0 || d->exp >= -(int64_t)f;
}

// Is the number complete and inside the bounds?
static bool complete(const machine *x, reading r)
{
    const interval *v = &x->side[r.neg];
    uint64_t rem = r.rem;

    if (r.phase >= X0)
        return true;
    if ((r.phase != INT && r.phase != FRAC) || (r.phase == INT && !int_done(x, &r)))
        return false;
    if (r.low == EQUAL && (!ends_here(&v->low, r.f) || v->low_open))
        return false;
    if (r.high == EQUAL && v->high_open && ends_here(&v->high, r.f))
        return false;
    for (uint32_t f = r.f; x->n->c && f < x->n->e; f++)
        rem = rem * 10 % x->n->c;
    return rem == 0;
}

static void exponent_edges(machine *x, const reading *r)
{
    static const struct {
        enum phase from;
        char lo, hi;
        enum phase to;
    } move[] = {
        {EXP, '+', '+', EXP_SIGN}, {EXP, '-', '-', EXP_SIGN}, {EXP, '0', '0', X0}, {EXP, '1', '1', X1},
        {EXP, '2', '2', X2}, {EXP, '3', '9', X9}, {EXP_SIGN, '0', '0', X0}, {EXP_SIGN, '1', '1', X1},
        {EXP_SIGN, '2', '2', X2}, {EXP_SIGN, '3', '9', X9}, {X1, '0', '9', X1D}, {X1D, '0', '9', X3},
        {X2, '0', '7', X2A}, {X2, '8', '9', XD}, {X2A, '0', '9', X3}, {X9, '0', '9', XD},
    };

    for (size_t i = 0; i < sizeof move / sizeof *move; i++)
        if (move[i].from == r->phase)
            go(x, move[i].lo, move[i].hi, &(reading){.phase = move[i].to});
}

static void edges(machine *x, reading r)
{
    bool digits = r.phase == START || r.phase == MINUS || (r.phase == INT && !r.zero);
    reading next = r;

    if (r.phase == START && x->side[1].any) {
        next =
            (reading){.phase = MINUS, .neg = true, .low = EQUAL, .high = x->side[1].has_high ? EQUAL : LESS};
        go(x, '-', '-', &next);
    }
    next = r;
    if (r.phase == INT && !x->n->integer && int_done(x, &next)) {
        next.phase = POINT;
        next.k = 0;
        next.zero = false;
        go(x, '.', '.', &next);
    }
    if (digits && (r.neg || x->side[0].any || r.phase == INT))
        for (int d = 0; d < 10; d++)
            int_digit(x, r, d);
    if (r.phase == POINT || r.phase == FRAC)
        for (int d = 0; d < 10; d++)
            frac_digit(x, r, d);
    if ((r.phase == INT || r.phase == FRAC) && x->exponent && complete(x, r)) {
        go(x, 'E', 'E', &(reading){.phase = EXP});
        go(x, 'e', 'e', &(reading){.phase = EXP});
    }
    if (r.phase >= EXP)
        exponent_edges(x, &r);
}

static void split_by_sign(machine *x)
{
    const lg_number *n = x->n;
    interval *plus = &x->side[0], *minus = &x->side[1];

    plus->any = !n->has_max || !n->max.neg;
    if (n->has_min && !n->min.neg) {
        plus->low = n->min;
        plus->low_open = n->min_open;
    }
    plus->has_high = n->has_max;
    plus->high = n->max;
    plus->high_open = n->max_open;
    minus->any = !n->has_min || n->min.neg;
    minus->low_open = true; // there is no -0
    if (n->has_max && n->max.neg) {
        minus->low = n->max;
        minus->low_open = n->max_open;
    }
    minus->has_high = n->has_min;
    minus->high = n->min;
    minus->high_open = n->min_open;
}

static void digit_limits(machine *x)
{
    const lg_number *n = x->n;
    const lg_decimal *bound[2] = {n->has_min ? &n->min : NULL, n->has_max ? &n->max : NULL};
    int64_t before = DIGITS, after = DIGITS;

    before = (int64_t)n->int_digits > before ? (int64_t)n->int_digits : before;
    after = (int64_t)n->frac_digits > after ? (int64_t)n->frac_digits : after;
    after = (int64_t)n->e > after ? (int64_t)n->e : after;
    for (int i = 0; i < 2; i++)
        if (bound[i]) {
            before = int_digits(bound[i]) > before ? int_digits(bound[i]) : before;
            after = 1 - bound[i]->exp > after ? 1 - bound[i]->exp : after;
        }
    if (before > MAX_DIGITS || after > MAX_DIGITS)
        lg_compile_fail(x->c, LG_GRAMMAR_TOO_COMPLEX, "a bound may have at most %d digits", MAX_DIGITS);
    x->max_int = (uint32_t)before;
    x->max_frac = (uint32_t)after;
}

lg_dfa lg_number_dfa(lg_compiler *c, const lg_number *n)
{
    machine x = {.c = c, .n = n};
    lg_number by_value;
    reading start = {.phase = START, .low = EQUAL};
    uint64_t key;
    bool added;

    if (n->by_value && n->integer) { // whole numbers may carry zeros behind the point
        by_value = *n;
        by_value.integer = false;
        multiple_of(c, &by_value, 1, 0);
        x.n = &by_value;
    }
    if (x.n->c * (x.n->e + 2) > MAX_REMAINDERS)
        too_fine(c);
    split_by_sign(&x);
    digit_limits(&x);
    x.exponent = !n->integer && !n->by_value && !n->has_min && !n->has_max && !n->c;
    start.high = x.side[0].has_high ? EQUAL : LESS;
    lg_index_init(&x.states, c, 1);
    key = pack(&start);
    (void)lg_index_get(&x.states, &key, &added);
    lg_dfa_begin(&x.m, c);
    for (size_t i = 0; i < x.states.n; i++) {
        reading r = unpack(x.states.key[i]);
        edges(&x, r);
        lg_dfa_state_end(&x.m, complete(&x, r));
    }
    return lg_dfa_end(&x.m);
}
