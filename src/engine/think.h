/*
 * engine/think: bounds on reasoning, a graduated exit (api.md 2).
 *
 * Counted are newly generated reasoning tokens. With a bound B: from 0.75 B restart cues ("wait", "but", ...)
 * are damped, from 0.9 B the closing tag is lifted, at B the next sentence boundary (or 48 tokens later) gets
 * one closing sentence, then come 64 tokens of grace with the tag at the top, then the tag is forced.
 * End-of-generation ids never end a reply inside its reasoning: their chance goes to the closing tag.
 *
 * The tables depend on the vocabulary only and are made once; lg_think is plain data of one reply and
 * allocates nothing.
 */
#ifndef LG_ENGINE_THINK_H
#define LG_ENGINE_THINK_H

#include "engine/edit.h"
#include "text/bpe.h"

enum { LG_THINK_WAIT = 48, LG_THINK_GRACE = 64, LG_THINK_WRAP_MAX = 96 };

typedef struct lg_think_tables {
    int32_t end_think, eog[2]; /* -1 where the vocabulary lacks the id */
    int n_eog;
    int32_t *cue; /* restart cues */
    int n_cue;
    int32_t wrap[LG_THINK_WRAP_MAX]; /* the closing sentence */
    int n_wrap;
} lg_think_tables;

LG_NODISCARD lg_status lg_think_tables_make(const lg_bpe *b, lg_think_tables *out, lg_err *err);
void lg_think_tables_free(lg_think_tables *t);

typedef enum lg_think_exit {
    LG_THINK_NONE,    /* no reasoning, or it never ended */
    LG_THINK_NATURAL, /* the model ended it by itself */
    LG_THINK_LIFTED,  /* while the tag was lifted */
    LG_THINK_WRAPPED, /* after the closing sentence */
    LG_THINK_FORCED,  /* at the end of the grace, or at once with a bound of 0 */
} lg_think_exit;

typedef enum lg_think_phase {
    LG_THINK_FREE,
    LG_THINK_WAITING,
    LG_THINK_WRAPPING,
    LG_THINK_GRACING
} lg_think_phase;

typedef struct lg_think {
    const lg_think_tables *t;
    const lg_vocab *v;
    int64_t max, min; /* max < 0: no bound */
    int64_t seen;     /* tokens of the reply so far */
    int64_t close_at; /* reasoning that goes on when `seen` is this is closed at once; 0: never */
    int64_t n;        /* reasoning tokens generated, injected ones not counted */
    int64_t injected; /* tokens that were not the model's choice */
    lg_think_phase phase;
    int step;       /* tokens spent in the phase */
    bool boundary;  /* the text so far ends a sentence */
    bool forcing;   /* the coming token is forced */
    bool was_inside;
    lg_think_exit exit;
} lg_think;

/* The small-limit rule and the fit rule (api.md 1.10, 2): what a limit of `limit` tokens (<= 0: none) makes
 * of thinking, which the user asked for `explicitly` or not, and of its budget (< 0: none). */
void lg_think_rules(bool explicitly, int64_t limit, bool *thinking, int64_t *budget);

/* t is borrowed. max < 0: no bound; a floor `min` above the bound is lowered to it. */
void lg_think_init(lg_think *k, const lg_think_tables *t, const lg_vocab *v, int64_t max, int64_t min);
/* A bounded reasoning leaves at least half of the reserve of the fit rule to the answer: the way out of it
 * takes tokens too. `limit`: most tokens of the whole reply. */
void lg_think_limit(lg_think *k, int64_t limit);
/* Before each token. `inside`: the parser is in the reasoning. Returns the id that must come, or -1 and adds
 * what the bounds want to `e` (which lg_edit_init prepared). */
int32_t lg_think_before(lg_think *k, bool inside, lg_edit *e);
/* After each token; `lifted` as lg_edit_row and lg_edit_list answered; `inside`: the parser after the token.
 */
void lg_think_after(lg_think *k, int32_t id, bool lifted, bool inside);

#endif
