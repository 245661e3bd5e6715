/*
 * text/split: see split.h. Stage 1 is a search for newlines, stage 2 a PCRE2 pattern.
 *
 * The pattern spells out two things that PCRE2's shorthands get wrong for us: \s would also take U+180E,
 * which left White_Space long ago, and a caseless 's would also take U+017F. Every character is matched by
 * some alternative, so a match always starts where the previous one ended and the pattern can be anchored.
 *
 * Surprise: the JIT may be missing (hardened systems forbid writable code); the interpreter then does the
 * same work, about ten times slower.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct lg_split {
    pcre2_code *code;
    pcre2_match_context *limits;
    bool jit;
    lg_crlf crlf;
};

#define SPACE \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

static const char pattern[] = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
                              "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
                              "|\\p{N}"
                              "|\\x{20}?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"
                              "|[" SPACE "]*[\\r\\n]+"
                              "|[" SPACE "]+(?![^" SPACE "])"
                              "|[" SPACE "]+";

/* A control character stands in for a stray byte: one byte, and no letter, number, space or apostrophe. */
enum { STAND_IN = 1 };

lg_status lg_split_create(lg_crlf crlf, lg_split **out, lg_err *err)
{
    lg_status st = LG_OK;
    int code = 0;
    PCRE2_SIZE at = 0;
    lg_split *s = calloc(1, sizeof *s);

    if (!s)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    s->crlf = crlf;
    s->code = pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                            &code, &at, NULL);
    if (!s->code) {
        st = LG_FAIL(err, LG_E_UNSUPPORTED,
                     "PCRE2 refuses the pre-tokenizer pattern (error %d at byte %zu); it needs "
                     "a build with Unicode support",
                     code, (size_t)at);
        goto out;
    }
    s->limits = pcre2_match_context_create(NULL);
    if (!s->limits) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory");
        goto out;
    }
    // The interpreter counts one step a character of a space run; its default limit is for patterns from
    // strangers.
    (void)pcre2_set_match_limit(s->limits, UINT32_MAX);
    s->jit = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0;
    *out = s;
    s = NULL;
out:
    lg_split_destroy(s);
    return st;
}

void lg_split_destroy(lg_split *s)
{
    if (!s)
        return;
    pcre2_match_context_free(s->limits);
    pcre2_code_free(s->code);
    free(s);
}

// Offset of the first ill-formed byte, or n. Eight ASCII bytes at a time, since that is what prompts are made
// of.
static size_t well_formed(const char *p, size_t n)
{
    size_t i = 0;

    while (i < n) {
        uint64_t w;
        if (n - i >= sizeof w) {
            memcpy(&w, p + i, sizeof w);
            if ((w & 0x8080808080808080u) == 0) {
                i += sizeof w;
                continue;
            }
        }
        int32_t cp;
        int len = lg_utf8_step(p + i, n - i, &cp);
        if (cp < 0)
            return i;
        i += (size_t)len;
    }
    return n;
}

static char *make_shadow(lg_str text, size_t bad)
{
    char *shadow = malloc(text.n);

    if (!shadow)
        return NULL;
    memcpy(shadow, text.p, text.n);
    while (bad < text.n) {
        shadow[bad++] = STAND_IN;
        bad += well_formed(shadow + bad, text.n - bad);
    }
    return shadow;
}

lg_status lg_split_begin(const lg_split *s, lg_str text, lg_split_run *run, lg_err *err)
{
    size_t bad = well_formed(text.p, text.n);
    char *shadow = NULL;
    pcre2_match_data *match;

    if (bad < text.n && !(shadow = make_shadow(text, bad)))
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    match = pcre2_match_data_create(1, NULL);
    if (!match) {
        free(shadow);
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    }
    *run = (lg_split_run){.split = s, .text = text, .subject = shadow ? shadow : text.p, .shadow = shadow,
                          .match = match};
    return LG_OK;
}

// Length of the newline run at p: LF in either mode, CR LF as well in HF's.
static size_t newline_run(const lg_split *s, const char *p, size_t n)
{
    size_t i = 0;

    for (;;) {
        if (i < n && p[i] == '\n')
            i++;
        else if (s->crlf == LG_CRLF_HF && n - i >= 2 && p[i] == '\r' && p[i + 1] == '\n')
            i += 2;
        else
            return i;
    }
}

// Stage 1: where the piece that starts at `from` ends, which is where the next newline run starts. A run at
// the start belongs to the piece (HF) or is a piece of its own (LLAMA).
static size_t piece_end(const lg_split *s, lg_str text, size_t from)
{
    size_t run = newline_run(s, text.p + from, text.n - from);
    const char *lf;

    if (run > 0 && s->crlf == LG_CRLF_LLAMA)
        return from + run;
    from += run;
    if (from == text.n)
        return from;
    lf = memchr(text.p + from, '\n', text.n - from);
    if (!lf)
        return text.n;
    size_t end = (size_t)(lf - text.p);
    return s->crlf == LG_CRLF_HF && end > from && text.p[end - 1] == '\r' ? end - 1 : end;
}

bool lg_split_next(lg_split_run *run, lg_str *out)
{
    const lg_split *s = run->split;
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(run->match);
    PCRE2_SPTR piece;
    int rc;

    if (run->pos == run->text.n || run->failed)
        return false;
    if (run->pos == run->piece_end) {
        run->piece = run->pos;
        run->piece_end = piece_end(s, run->text, run->pos);
    }
    piece = (PCRE2_SPTR)run->subject + run->piece;
    if (s->jit)
        rc = pcre2_jit_match(s->code, piece, run->piece_end - run->piece, run->pos - run->piece,
                             PCRE2_NO_UTF_CHECK, run->match, s->limits);
    else
        rc = pcre2_match(s->code, piece, run->piece_end - run->piece, run->pos - run->piece,
                         PCRE2_NO_UTF_CHECK, run->match, s->limits);
    if (rc < 0) {
        LG_ASSERT(rc != PCRE2_ERROR_NOMATCH);
        run->failed = true;
        return false;
    }
    size_t end = run->piece + span[1];
    LG_ASSERT(end > run->pos && end <= run->piece_end);
    *out = (lg_str){run->text.p + run->pos, end - run->pos};
    run->pos = end;
    return true;
}

lg_status lg_split_end(lg_split_run *run, lg_err *err)
{
    bool failed = run->failed;

    pcre2_match_data_free(run->match);
    free(run->shadow);
    *run = (lg_split_run){0};
    if (failed)
        return LG_FAIL(err, LG_E_NOMEM, "the pre-tokenizer ran out of memory");
    return LG_OK;
}
