/*
 * grammar/term: see term.h. Strings are three parts in lockstep: the front end turns bytes into code points,
 * the automaton judges those, and a count keeps the length. A beginning of a character, raw or escaped, is a
 * set of code points, and is live when one of them leads on.
 */
#include "grammar/term.h"

#include "base/err.h"

// Front ends: the low four bits say which, the rest is what they know.
enum {
    FE_OPEN,     // before the quote
    FE_NORMAL,   // between characters
    FE_LESS,     // the same behind a raw '<' that may not begin an end tag
    FE_UTF8,     // length << 4 | bytes left << 6 | value << 8
    FE_ESCAPE,   // behind a backslash
    FE_HEX,      // digits << 4 | value << 6
    FE_PAIR,     // a high surrogate (10 bits) << 4: a backslash must follow
    FE_PAIR_U,   // ... then u
    FE_PAIR_HEX, // ... then digits << 4 | value << 6 | high << 18
};

typedef struct span {
    uint32_t lo, hi;
} span;

enum { MAX_SPANS = 4 };

typedef enum fe_result { FE_DEAD, FE_GO, FE_CHAR, FE_END } fe_result;

lg_tstate lg_term_start(const lg_term *t)
{
    switch (t->kind) {
    case LG_TERM_WORDS: return (lg_tstate){0, t->n_word, 0};
    case LG_TERM_BYTES: return (lg_tstate){0, 0, 0};
    case LG_TERM_RAW: return (lg_tstate){0, FE_NORMAL, 0};
    case LG_TERM_STRING:
    case LG_TERM_KEY: break;
    }
    return (lg_tstate){0, FE_OPEN, 0};
}

bool lg_term_nullable(const lg_term *t)
{
    return t->kind == LG_TERM_RAW && t->min == 0 && (t->dfa.n == 0 || t->dfa.accept[0]);
}

static int hex_value(uint8_t b)
{
    if (b >= '0' && b <= '9')
        return b - '0';
    if (b >= 'a' && b <= 'f')
        return b - 'a' + 10;
    return b >= 'A' && b <= 'F' ? b - 'A' + 10 : -1;
}

static fe_result first_byte(uint8_t b, uint32_t *fe, uint32_t *cp)
{
    uint32_t len = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2;

    if (b < 0x80) {
        *cp = b;
        *fe = FE_NORMAL;
        return FE_CHAR;
    }
    if (b < 0xc2 || b > 0xf4)
        return FE_DEAD;
    *fe = FE_UTF8 | (len - 1) << 4 | (len - 1) << 6 | (uint32_t)(b & (0x7f >> len)) << 8;
    return FE_GO;
}

static fe_result escape_byte(const lg_term *t, uint8_t b, uint32_t *fe, uint32_t *cp)
{
    static const char short_form[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";

    if (b == 'u') {
        *fe = FE_HEX;
        return FE_GO;
    }
    for (int i = 0; i < 8; i++)
        if (b == (uint8_t)short_form[i] && !(t->canonical && b == '/')) {
            *cp = (uint8_t)meaning[i];
            *fe = FE_NORMAL;
            return FE_CHAR;
        }
    return FE_DEAD;
}

static fe_result hex_byte(const lg_term *t, uint8_t b, uint32_t *fe, uint32_t *cp)
{
    uint32_t kind = *fe & 15, n = *fe >> 4 & 3, high = *fe >> 18, v;
    int d = hex_value(b);

    if (d < 0 || (t->kind == LG_TERM_KEY && b >= 'A' && b <= 'F')) // a key has one spelling
        return FE_DEAD;
    v = kind == FE_HEX ? (*fe >> 6) * 16 + (uint32_t)d : (*fe >> 6 & 0xfff) * 16 + (uint32_t)d;
    if (n < 3) {
        *fe = kind | (n + 1) << 4 | v << 6 | (kind == FE_HEX ? 0 : high << 18);
        return FE_GO;
    }
    if (kind == FE_PAIR_HEX) {
        if (v < 0xdc00 || v > 0xdfff)
            return FE_DEAD;
        *cp = 0x10000 + (high << 10) + (v - 0xdc00);
    } else if (v >= 0xd800 && v < 0xdc00) {
        *fe = FE_PAIR | (v - 0xd800) << 4;
        return FE_GO;
    } else if (v >= 0xdc00 && v < 0xe000) {
        return FE_DEAD;
    } else {
        *cp = v;
    }
    if (t->canonical && (*cp > 0x1f || (*cp >= 8 && *cp <= 13 && *cp != 11))) // has a shorter spelling
        return FE_DEAD;
    *fe = FE_NORMAL;
    return FE_CHAR;
}

// One byte of the text; syntax only.
static fe_result front_end(const lg_term *t, uint8_t b, uint32_t *fe, uint32_t *cp)
{
    uint32_t kind = *fe & 15, left, v;

    switch (kind) {
    case FE_OPEN: *fe = FE_NORMAL; return b == '"' ? FE_GO : FE_DEAD;
    case FE_NORMAL:
    case FE_LESS:
        if (kind == FE_LESS && b == '/')
            return FE_DEAD;
        if (t->kind != LG_TERM_RAW) {
            if (b == '"')
                return FE_END;
            if (b < 0x20)
                return FE_DEAD;
            if (b == '\\') {
                *fe = FE_ESCAPE;
                return FE_GO;
            }
        }
        if (first_byte(b, fe, cp) == FE_CHAR) {
            if (b == '<' && t->no_end_tag)
                *fe = FE_LESS;
            return FE_CHAR;
        }
        return (*fe & 15) == FE_UTF8 ? FE_GO : FE_DEAD;
    case FE_UTF8:
        left = (*fe >> 6 & 3) - 1;
        v = (*fe >> 8) << 6 | (b & 0x3fu);
        if ((b & 0xc0) != 0x80)
            return FE_DEAD;
        *cp = v;
        *fe = left ? (*fe & 0x3f) | left << 6 | v << 8 : FE_NORMAL;
        return left ? FE_GO : FE_CHAR;
    case FE_ESCAPE: return escape_byte(t, b, fe, cp);
    case FE_HEX:
    case FE_PAIR_HEX: return hex_byte(t, b, fe, cp);
    case FE_PAIR: *fe = FE_PAIR_U | (*fe >> 4) << 4; return b == '\\' ? FE_GO : FE_DEAD;
    default: *fe = FE_PAIR_HEX | (*fe >> 4) << 18; return b == 'u' ? FE_GO : FE_DEAD;
    }
}

static uint32_t clip(span *s, uint32_t n, uint32_t lo, uint32_t hi, uint32_t from, uint32_t to)
{
    lo = lo > from ? lo : from;
    hi = hi < to ? hi : to;
    if (lo <= hi)
        s[n++] = (span){lo, hi};
    return n;
}

// The code points that a begun character may become.
static uint32_t spans_of(const lg_term *t, uint32_t fe, span *s)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000}, most[] = {0, 0x7ff, 0xffff, 0x10ffff};
    uint32_t bits, lo, hi, len, n = 0;

    switch (fe & 15) {
    case FE_UTF8:
        len = fe >> 4 & 3;
        bits = 6 * (fe >> 6 & 3);
        lo = (fe >> 8) << bits;
        hi = lo + (1u << bits) - 1;
        lo = lo > least[len] ? lo : least[len];
        hi = hi < most[len] ? hi : most[len];
        n = clip(s, n, lo, hi, 0, 0xd7ff);
        return clip(s, n, lo, hi, 0xe000, 0x10ffff);
    case FE_ESCAPE:
        if (!t->canonical) {
            s[0] = (span){0, 0xd7ff};
            s[1] = (span){0xe000, 0x10ffff};
            return 2;
        }
        s[0] = (span){0, 0x1f};
        s[1] = (span){'"', '"'};
        s[2] = (span){'\\', '\\'};
        return 3;
    case FE_HEX:
        bits = 4 * (4 - (fe >> 4 & 3));
        lo = (fe >> 6) << bits;
        hi = lo + (1u << bits) - 1;
        if (t->canonical) { // the control characters without a short form
            n = clip(s, n, lo, hi, 0, 7);
            n = clip(s, n, lo, hi, 0xb, 0xb);
            return clip(s, n, lo, hi, 0xe, 0x1f);
        }
        n = clip(s, n, lo, hi, 0, 0xd7ff);
        if (lo < 0xdc00 && hi >= 0xd800)
            s[n++] = (span){0x10000, 0x10ffff};
        return clip(s, n, lo, hi, 0xe000, 0xffff);
    case FE_PAIR:
    case FE_PAIR_U:
        lo = 0x10000 + ((fe >> 4) << 10);
        s[0] = (span){lo, lo + 0x3ff};
        return 1;
    case FE_PAIR_HEX:
        bits = 4 * (4 - (fe >> 4 & 3));
        lo = (fe >> 6 & 0xfff) << bits;
        hi = lo + (1u << bits) - 1;
        n = clip(s, 0, lo, hi, 0xdc00, 0xdfff);
        if (n)
            s[0] = (span){0x10000 + ((fe >> 18) << 10) + (s[0].lo - 0xdc00),
                          0x10000 + ((fe >> 18) << 10) + (s[0].hi - 0xdc00)};
        return n;
    default: return 0;
    }
}

// Can the length still come out right from state q with n characters?
static bool length_live(const lg_term *t, uint32_t q, uint32_t n)
{
    uint32_t need = n < t->min ? t->min - n : 0, room = t->max == LG_NONE ? LG_NONE : t->max - n;

    if (t->max != LG_NONE && n > t->max)
        return false;
    if (t->dfa.n == 0 || (!t->shortest && !t->longest))
        return true;
    if (!t->lengths)
        return t->shortest[q] <= room && t->longest[q] >= need;
    const uint64_t *row = t->lengths + (size_t)q * t->length_words;
    for (uint32_t k = need; k <= room;) {
        uint64_t bits = row[k / 64] >> k % 64;
        if (bits)
            return k + (uint32_t)__builtin_ctzll(bits) <= room;
        k += 64 - k % 64;
    }
    return false;
}

static uint32_t count_up(const lg_term *t, uint32_t n)
{
    uint32_t top = t->max == LG_NONE ? t->min : LG_NONE;

    return n < top ? n + 1 : n;
}

// A node of key bytes spells a prefix: how many used names begin with it, or are it?
static uint32_t used_below(const lg_keys *k, uint32_t prefix, bool exactly)
{
    uint32_t depth, parent, n = 0;
    uint8_t byte;

    k->node(k->tree, prefix, &parent, &byte, &depth);
    for (uint32_t i = 0; i < k->n; i++) {
        uint32_t at = k->used[i], d;
        k->node(k->tree, at, &parent, &byte, &d);
        if (d < depth || (exactly && d != depth))
            continue;
        for (; d > depth; d--) {
            at = parent;
            k->node(k->tree, at, &parent, &byte, &(uint32_t){0});
        }
        n += at == prefix;
    }
    return n;
}

// The state of the automaton behind the characters of a used name, or LG_NONE when the terminal cannot spell
// it.
static uint32_t class_state(const lg_term *t, const lg_keys *k, uint32_t node)
{
    uint32_t depth, parent, fe = FE_OPEN, q = 0, cp = 0, n;
    uint8_t byte, path[1024];

    k->node(k->tree, node, &parent, &byte, &depth);
    n = depth;
    if (n > sizeof path) // a finite class has no names as long as that
        return LG_NONE;
    for (uint32_t i = n; i-- > 0;) {
        path[i] = byte;
        node = parent;
        k->node(k->tree, node, &parent, &byte, &depth);
    }
    for (uint32_t i = 0; i < n; i++) {
        fe_result r = front_end(t, path[i], &fe, &cp);
        if (r == FE_DEAD)
            return LG_NONE;
        if (r == FE_CHAR && t->dfa.n && (q = lg_dfa_step(&t->dfa, q, cp)) == LG_NONE)
            return LG_NONE;
        if (r == FE_END)
            return t->dfa.n == 0 || t->dfa.accept[q] ? q : LG_NONE;
    }
    return LG_NONE;
}

// Of `total` words that begin with the prefix, is one not used yet?
static bool key_left(const lg_term *t, const lg_keys *k, uint32_t prefix, uint64_t total)
{
    uint32_t used = 0;

    if (total > k->n)
        return true;
    for (uint32_t i = 0; i < k->n; i++) {
        lg_keys one = *k;
        one.used = k->used + i;
        one.n = 1;
        used += used_below(&one, prefix, false) && class_state(t, k, k->used[i]) != LG_NONE;
    }
    return total > used;
}

// Is a begun or finished character live?
static bool text_live(const lg_term *t, const lg_where *w, const lg_tstate *s)
{
    uint32_t kind = s->b & 15, n, next = t->kind == LG_TERM_KEY ? 0 : count_up(t, s->c);
    uint64_t words = 0;
    span span_[MAX_SPANS];

    if (kind == FE_OPEN || kind == FE_NORMAL || kind == FE_LESS) {
        if (t->kind == LG_TERM_KEY)
            return key_left(t, &w->keys, s->c, t->dfa.n ? t->count[s->a] : LG_COUNT_MANY);
        return length_live(t, s->a, s->c);
    }
    n = spans_of(t, s->b, span_);
    if (t->dfa.n == 0)
        return n > 0 && (t->kind == LG_TERM_KEY || next <= t->max);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = t->dfa.first[s->a]; e < t->dfa.first[s->a + 1]; e++) {
            const lg_dfa_edge *edge = &t->dfa.edge[e];
            uint32_t lo = edge->lo > span_[i].lo ? edge->lo : span_[i].lo;
            uint32_t hi = edge->hi < span_[i].hi ? edge->hi : span_[i].hi;
            if (lo > hi)
                continue;
            if (t->kind != LG_TERM_KEY) {
                if (s->c < t->max && length_live(t, edge->to, next))
                    return true;
            } else {
                words += (uint64_t)(hi - lo + 1) * t->count[edge->to];
            }
        }
    return t->kind == LG_TERM_KEY && words > 0 && key_left(t, &w->keys, s->c, words);
}

static lg_tresult string_step(const lg_term *t, const lg_where *w, lg_tstate *s, uint8_t byte)
{
    lg_tstate to = *s;
    uint32_t cp = 0;
    fe_result r = front_end(t, byte, &to.b, &cp);
    lg_tresult out = {0};

    if (r == FE_DEAD)
        return out;
    if (t->kind == LG_TERM_KEY) {
        to.c = w->keys.child(w->keys.tree, s->c, byte);
        if (to.c == LG_NONE)
            return out;
    }
    if (r == FE_END) {
        out.done = t->dfa.n == 0 || t->dfa.accept[s->a];
        if (t->kind == LG_TERM_KEY)
            out.done = out.done && used_below(&w->keys, to.c, true) == 0;
        else
            out.done = out.done && s->c >= t->min;
        *s = to;
        return out;
    }
    if (r == FE_CHAR) {
        if (t->dfa.n && (to.a = lg_dfa_step(&t->dfa, s->a, cp)) == LG_NONE)
            return out;
        if (t->kind != LG_TERM_KEY) {
            if (s->c >= t->max)
                return out;
            to.c = count_up(t, s->c);
        }
    }
    if (!text_live(t, w, &to))
        return out;
    out.live = true;
    if (t->kind == LG_TERM_RAW)
        out.done = (to.b & 15) == FE_NORMAL && (t->dfa.n == 0 || t->dfa.accept[to.a]) && to.c >= t->min;
    *s = to;
    return out;
}

// --- guards ---

static bool fits(const lg_where *w, int height)
{
    return w->depth + 1 + (uint32_t)height < LG_MAX_OUTPUT_DEPTH;
}

// Additional names that may still come, saturating at what an object may have.
static uint32_t keys_left(const lg_object *o, const lg_where *w)
{
    uint64_t left = 0;
    uint32_t most = LG_MAX_USED_KEYS - w->keys.n;

    for (uint32_t i = 0; i < o->n_class && left < most; i++) {
        const lg_term *t = &w->p->term[o->class_term[i]];
        uint32_t n = t->dfa.n ? t->count[0] : LG_COUNT_MANY, used = 0;
        if (!fits(w, o->class_height[i]))
            continue;
        for (uint32_t k = 0; n <= LG_MAX_USED_KEYS && k < w->keys.n; k++)
            used += class_state(t, &w->keys, w->keys.used[k]) != LG_NONE;
        left += n - used;
    }
    return left < most ? (uint32_t)left : most;
}

static bool name_used(const lg_where *w, uint32_t j)
{
    for (uint32_t i = w->keys.n; i-- > 0 && w->keys.used[i] & LG_KNOWN_NAME;) // the last of the sorted set
        if (w->keys.used[i] == (LG_KNOWN_NAME | j))
            return true;
    return false;
}

// Of an object whose order is free: required names that are still to come, j aside.
static uint32_t missing(const lg_object *o, const lg_where *w, uint32_t j)
{
    uint32_t n = 0;

    for (uint32_t i = 0; o->any_order && i < o->n; i++)
        n += o->required[i] && i != j && !name_used(w, i);
    return n;
}

// Is there room for one more member and then for what is missing? With the order free nothing is ever passed
// by, so a lower bound that could be reached stays in reach.
static bool room(const lg_object *o, const lg_where *w, uint32_t n_missing)
{
    return (uint64_t)w->reg + 1 + n_missing <= o->max && w->keys.n + 1 + n_missing <= LG_MAX_USED_KEYS;
}

static bool name_open(const lg_object *o, const lg_where *w, uint32_t j)
{
    uint64_t with = (uint64_t)w->reg + 1, later = 0;

    if (o->any_order)
        return fits(w, o->height[j]) && !name_used(w, j) && room(o, w, missing(o, w, j));
    if (!fits(w, o->height[j]) || with + o->req_after[j] > o->max)
        return false;
    if (with >= o->min)
        return true;
    for (uint32_t k = j + 1; k < o->n && with + later < o->min; k++)
        later += fits(w, o->height[k]);
    return with + later + (o->n_class ? keys_left(o, w) : 0) >= o->min;
}

static bool any_name(const lg_object *o, const lg_where *w, uint32_t lo, uint32_t hi)
{
    for (uint32_t j = lo; j <= hi && j < o->n; j++)
        if (name_open(o, w, j))
            return true;
    return false;
}

static bool key_open(const lg_object *o, const lg_where *w, uint32_t class)
{
    const lg_term *t = &w->p->term[o->class_term[class]];

    if (w->keys.n >= LG_MAX_USED_KEYS || w->reg >= o->max || !fits(w, o->class_height[class]))
        return false;
    if (!key_left(t, &w->keys, 0, t->dfa.n ? t->count[0] : LG_COUNT_MANY))
        return false;
    if (o->any_order)
        return room(o, w, missing(o, w, LG_NONE));
    return w->reg >= o->min || (uint64_t)w->reg + keys_left(o, w) >= o->min;
}

bool lg_edge_open(const lg_edge *e, const lg_where *w)
{
    const lg_object *o = e->guard == LG_GUARD_NONE ? NULL : &w->p->object[e->object];

    if (w->reg >= e->below || w->reg < e->least || (e->height >= 0 && !fits(w, e->height)))
        return false;
    switch ((lg_guard)e->guard) {
    case LG_GUARD_NONE: return true;
    case LG_GUARD_NAME: return any_name(o, w, e->lo, e->hi);
    case LG_GUARD_KEY: return key_open(o, w, e->hi);
    case LG_GUARD_MORE:
        if (any_name(o, w, e->lo, e->hi))
            return true;
        for (uint32_t i = 0; e->any_key && i < o->n_class; i++)
            if (key_open(o, w, i))
                return true;
        return false;
    case LG_GUARD_CLOSE: return w->reg >= o->min && missing(o, w, LG_NONE) == 0;
    }
    return false;
}

// --- words ---

static lg_tresult words_step(const lg_term *t, const lg_edge *e, const lg_where *w, lg_tstate *s,
                             uint8_t byte)
{
    uint32_t lo = s->a, hi = s->b, at = s->c, end;
    lg_tresult out = {0};

    if (lo < hi && t->word[lo].n == at) // this one is complete
        lo++;
    for (end = hi; lo < end;) { // the first word whose next byte is not below
        uint32_t mid = lo + (end - lo) / 2;
        if ((uint8_t)t->word[mid].p[at] < byte)
            lo = mid + 1;
        else
            end = mid;
    }
    for (end = hi, hi = lo; hi < end;) { // and the first above
        uint32_t mid = hi + (end - hi) / 2;
        if ((uint8_t)t->word[mid].p[at] <= byte)
            hi = mid + 1;
        else
            end = mid;
    }
    if (lo == hi)
        return out;
    if (t->payload) {
        const lg_object *o = &w->p->object[e->object];
        bool open = false;
        for (uint32_t i = lo; i < hi && !open; i++)
            open = t->payload[i] >= e->lo && t->payload[i] <= e->hi && name_open(o, w, t->payload[i]);
        if (!open)
            return out;
    }
    *s = (lg_tstate){lo, hi, at + 1};
    out.word = lo;
    out.done = t->word[lo].n == at + 1;
    out.live = hi - lo > out.done;
    return out;
}

lg_tresult lg_term_step(const lg_term *t, const lg_edge *e, const lg_where *w, lg_tstate *s, uint8_t byte)
{
    lg_tresult out = {0};

    switch (t->kind) {
    case LG_TERM_WORDS: return words_step(t, e, w, s, byte);
    case LG_TERM_BYTES:
        s->a = lg_dfa_step(&t->dfa, s->a, byte);
        if (s->a == LG_NONE)
            return out;
        out.live = t->dfa.first[s->a] < t->dfa.first[s->a + 1];
        out.done = t->dfa.accept[s->a];
        return out;
    case LG_TERM_STRING:
    case LG_TERM_KEY:
    case LG_TERM_RAW: break;
    }
    return string_step(t, w, s, byte);
}

bool lg_term_wide(const lg_term *t, const lg_tstate *s, uint32_t *room)
{
    if (t->kind == LG_TERM_WORDS || t->kind == LG_TERM_BYTES || (s->b & 15) != FE_NORMAL || t->no_end_tag)
        return false;
    *room = LG_NONE;
    if (t->dfa.n && !t->open[s->a])
        return false;
    if (t->kind == LG_TERM_KEY)
        return true;
    if (t->dfa.n && (t->shortest || t->longest))
        return false;
    if (t->max != LG_NONE)
        *room = t->max - s->c;
    return true;
}
