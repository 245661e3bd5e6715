/*
 * engine/pace: how many drafts a round makes, how many of them are verified, and when drafting stops paying
 * (dflash.md 8). Plain arithmetic over measured times and measured acceptance; allocates nothing, calls no
 * device and reads no clock: times come from the caller, so a recorded trace can be replayed.
 *
 * What surprises: nothing here can change a token. A wrong guess costs time only.
 */
#ifndef LG_ENGINE_PACE_H
#define LG_ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { LG_DRAFTS_MAX = 15 };

typedef struct lg_pace_settings {
    int max;            /* most drafts a round, 1 to LG_DRAFTS_MAX */
    float p_min;        /* drafts are cut before the first one less sure than this; 0: never */
    /* pause when a token costs more than this times a plain one; 0: never, and time decides nothing: always
     * `max` drafts, of which p_min alone drops any */
    float pause_margin;
} lg_pace_settings;

/* Mean cost by width, in microseconds; known at some widths, between them interpolated. */
typedef struct lg_pace_cost {
    double us[LG_DRAFTS_MAX + 2];
    int n[LG_DRAFTS_MAX + 2];
} lg_pace_cost;

typedef struct lg_pace {
    lg_pace_settings set;
    lg_pace_cost draft, verify; /* by drafts; by rows (1: a plain step) */
    double other_us;            /* the rest of a speculative round: choosing, context */
    int n_other;
    double kept[LG_DRAFTS_MAX];     /* how often draft i was worth verifying */
    double accepted[LG_DRAFTS_MAX]; /* how often draft i was accepted when those before it were */
    int n_kept[LG_DRAFTS_MAX], n_accepted[LG_DRAFTS_MAX]; /* rounds that these are from */
    double trust;                   /* accepted drafts over the sum of their confidence */
    int64_t rounds;                 /* speculative ones, since the pace was made */
    /* auto-pause: averages of round time and committed tokens */
    double spec_us, spec_tokens, plain_us;
    int n_spec, n_plain, since_plain;
    bool paused;
    double purse;    /* plain steps that drafting may lose yet; below 0 it pauses */
    double patience; /* the next probe starts when the purse holds so many times its price */
    int probe;       /* rounds of the probe that are still to come */
    double probe_us, probe_tokens;
    /* health: rounds of three and more drafts of this reply, while none was accepted */
    int barren;
    bool warned, given_up;
} lg_pace;

void lg_pace_init(lg_pace *p, const lg_pace_settings *set);
/* A new reply: what was measured stays, what was decided is open again. */
void lg_pace_start(lg_pace *p);

/* How many drafts the coming round makes, at most `room`; 0: a plain step. */
int lg_pace_plan(lg_pace *p, int room);
/* How many of n drafts, with these confidences, are verified. */
int lg_pace_keep(const lg_pace *p, const float *confidence, int n);

/* What a round took. `drafted` were made, `kept` verified, of which `compared` were looked at and `accepted`
 * right; `tokens` were committed. A round that kept none was a plain step. */
typedef struct lg_pace_round {
    int drafted, kept, compared, accepted, tokens;
    const float *confidence; /* of the kept ones */
    uint64_t draft_us, verify_us, total_us;
    uint64_t context_us; /* beside these: rows for the drafter's context in a plain step or before drafts */
} lg_pace_round;
/* True once, when nothing was accepted for so long that something must be wrong; drafting then rests until
 * the next reply. */
bool lg_pace_record(lg_pace *p, const lg_pace_round *r);

/* Whether no draft is near, because drafting is paused and no probe is due, or given up for this reply. */
bool lg_pace_rests(const lg_pace *p);
/* While it rests: tokens that will pass before the next draft, at least; infinite: none in this reply. */
double lg_pace_rest(const lg_pace *p);

/* Estimated cost of a width; 0: no width was timed yet. */
double lg_pace_cost_at(const lg_pace_cost *c, int width);

#endif
